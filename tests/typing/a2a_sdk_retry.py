"""`RetryTransport` as a caller's program uses it, for type checkers: never run."""

# What must be refused is marked as ignored; an ignored line that is right is an error as well.
# pyright: reportUnnecessaryTypeIgnoreComment=true

from typing import assert_type

from a2a.client.transports.base import ClientTransport
from a2a.client.transports.tenant_decorator import TenantTransportDecorator
from a2a.types.a2a_pb2 import (
    GetTaskRequest,
    SendMessageRequest,
    SendMessageResponse,
    StreamResponse,
    Task,
)

from holdfast import BudgetPolicy
from holdfast.extend import Env
from holdfast.integrations.a2a_sdk import (
    RetryConfig,
    RetryFacts,
    RetryTransport,
    SharedBudget,
    default_retry_predicate,
    retry_facts,
)


def narrower(exc: Exception) -> bool:
    return default_retry_predicate(exc) and not isinstance(exc, TimeoutError)


def listen(attempt: int, exc: Exception, delay: float) -> None:
    assert_type((attempt, exc, delay), tuple[int, Exception, float])


async def listen_patiently(attempt: int, exc: Exception, delay: float) -> None:
    listen(attempt, exc, delay)


async def wrapping(inner: ClientTransport, env: Env) -> None:
    budget = SharedBudget(BudgetPolicy(tokens=20))
    assert_type(budget.tokens, float)
    whole = RetryTransport(
        inner,
        max_retries=5,
        base_delay=0.5,
        max_delay=10,
        retry_predicate=narrower,
        on_retry=listen_patiently,
        resend_ambiguous=True,
        max_retry_after=120,
        timeout=60,
        budget=budget,
        env=env,
    )
    config = RetryConfig(on_retry=listen, budget=None)
    assert_type(RetryTransport.from_config(inner, config), RetryTransport)
    RetryTransport(inner, budget=BudgetPolicy())
    RetryTransport(inner, budget="standard")
    RetryTransport(TenantTransportDecorator(whole, "acme"))
    RetryTransport(inner, 3)  # type: ignore[call-arg]
    RetryTransport(inner, max_retries="3")  # type: ignore[arg-type]
    config.max_retries = 4  # type: ignore[misc]


async def calling(transport: RetryTransport) -> None:
    async with transport as entered:
        assert_type(entered, RetryTransport)
    assert_type(await transport.send_message(SendMessageRequest()), SendMessageResponse)
    assert_type(await transport.get_task(GetTaskRequest(id="t-1")), Task)
    async for event in transport.send_message_streaming(SendMessageRequest()):
        assert_type(event, StreamResponse)
    try:
        await transport.get_task(GetTaskRequest(id="t-1"))
    except Exception as error:  # noqa: BLE001  for the types
        facts = retry_facts(error)
        assert_type(facts, RetryFacts | None)
        if facts is not None:
            assert_type(facts.attempts, int)
            assert_type(facts.executed, bool | None)
