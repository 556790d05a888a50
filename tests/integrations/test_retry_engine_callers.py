"""The client and `RetryTransport` retry by the same rules, and report the same facts."""

import asyncio
import contextlib

import httpx
import pytest
from a2a.types import a2a_pb2 as sdk
from tests.kit.sdk_transports import Dice, Scripted, refused, status_error, unanswered

from holdfast import A2AError, connect
from holdfast.integrations.a2a_sdk import RetryTransport, retry_facts
from holdfast.policies import BudgetPolicy, Resilience, RetryPolicy
from holdfast.testing import FakeAgent, FakeNetwork, Refuse, Reset, Respond

SEND, GET = "SendMessage", "GetTask"


def unavailable(**headers):
    """Both forms of a 503: of the agent, and as the SDK raises it."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return Respond(status=503, headers=named), lambda: status_error(503, **headers)


AWAY = unavailable()
LATER = unavailable(retry_after="5")
MUCH_LATER = unavailable(retry_after="100")
REFUSED = Refuse(), refused
NO_REPLY = Reset(after_execution=True), lambda: unanswered(httpx.ReadError)

BUDGET = BudgetPolicy()

CASES = {
    "all attempts fail": (GET, [AWAY] * 9, {}),
    "the last attempt succeeds": (GET, [AWAY] * 3, {}),
    "one retry is allowed": (GET, [AWAY] * 9, {"max_retries": 1}),
    "retries are turned off": (GET, [AWAY] * 9, {"max_retries": 0}),
    "the server names a time": (GET, [LATER, LATER], {}),
    "the server names a long time": (GET, [LATER, MUCH_LATER], {}),
    "the time that is left is too short": (GET, [AWAY] * 9, {"timeout": 2.0}),
    "the server's time is longer than what is left": (GET, [LATER], {"timeout": 4.0}),
    "the budget is spent": (GET, [AWAY] * 9, {"budget": BudgetPolicy(tokens=4)}),
    "a read without a reply is retried": (GET, [NO_REPLY] * 9, {}),
    "a message that was not sent is retried": (SEND, [REFUSED] * 9, {}),
    "a message that was refused is retried": (SEND, [LATER, REFUSED], {}),
    "a message that may have run is not sent again": (SEND, [REFUSED, NO_REPLY], {}),
}


async def of_client(operation, faults, *, max_retries=3, timeout=None, budget=BUDGET):
    """Times of the attempts, and the facts of the error."""
    agent, times, began = FakeAgent(), [], asyncio.get_running_loop().time
    await (warm := connect(agent.url, engine=FakeNetwork(agent))).send_message("hello")
    task_id = next(iter(agent.tasks))
    for fault, _ in faults:
        agent.inject(fault, on=operation)

    class Timed(FakeNetwork):
        async def request(self, request):
            times.append(began())
            return await super().request(request)

    resilience = Resilience(
        retry=RetryPolicy(max_retries=max_retries, base_delay=1.0),
        budget=budget,
        breaker=None,
        retry_after=None,
    )
    client = connect(
        await warm.agent_card(), engine=Timed(agent), env=Dice(0.5), resilience=resilience
    )
    more = {} if timeout is None else {"timeout": timeout}
    try:
        if operation == GET:
            await client.get_task(task_id, **more)
        else:
            await client.send_message("hello", on_unknown="raise", **more)
    except A2AError as error:
        facts = error if error.retry_stopped_reason else error.__cause__  # the outcome is unknown
        return times, (
            len(error.attempts),
            facts.retry_stopped_reason,
            facts.executed,
            facts.retry_after,
        )
    return times, None


async def of_sdk(operation, faults, *, max_retries=3, timeout=None, budget=BUDGET):
    inner = Scripted(*(make() for _, make in faults))
    transport = RetryTransport(
        inner, env=Dice(0.5), max_retries=max_retries, timeout=timeout, budget=budget
    )
    facts = None
    try:
        if operation == GET:
            await transport.get_task(sdk.GetTaskRequest(id="t-1"))
        else:
            await transport.send_message(sdk.SendMessageRequest())
    except Exception as error:  # noqa: BLE001  what it is the facts say
        facts = retry_facts(error)
    told = facts and (facts.attempts, facts.reason, facts.executed, facts.retry_after)
    return inner.times, told


@pytest.mark.parametrize("case", CASES)
async def test_the_client_and_the_sdks_transport_make_the_same_attempts_and_report_the_same(case):
    operation, faults, options = CASES[case]

    times, facts = await of_client(operation, faults, **options)
    sdk_times, sdk_facts = await of_sdk(operation, faults, **options)

    began = times[0], sdk_times[0]
    assert [at - began[0] for at in times] == [at - began[1] for at in sdk_times]
    assert facts == sdk_facts


@pytest.mark.parametrize("slow", [0.25, 2.0])
async def test_the_time_that_a_listener_takes_is_part_of_the_wait(slow):
    async def listen(number, error, wait):
        await asyncio.sleep(slow)

    agent = FakeAgent()
    policy = RetryPolicy(max_retries=1, jitter=False, on_retry=listen)
    client = connect(
        agent.url, engine=FakeNetwork(agent), resilience=Resilience(retry=policy, retry_after=None)
    )
    await client.agent_card()
    agent.inject(AWAY[0], on="ListTasks", times=9)
    began = asyncio.get_running_loop().time()

    with contextlib.suppress(A2AError):
        await client.list_tasks()

    assert asyncio.get_running_loop().time() - began == max(1.0, slow)
