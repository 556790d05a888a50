"""Retries of the SDK's calls: of a unary call, or of opening a stream.

The engine is the client's, `holdfast._pipeline.retry_engine`. It gets the facts that
`holdfast._integrations.a2a_sdk.failures` reads.

Rules:
- The caller gets the SDK's own exception object; `retry_facts`, and a note on the exception,
  describe the attempts.
- Each attempt gets its own copy of the request: a decorator such as the SDK's for tenants changes
  it.
- A stream is retried before its first event only.
- An attempt may have been executed although its reply was lost. So if the agent refuses the next
  attempt, as with "the task cannot be canceled", `EarlierEffect` finds out whether an earlier one
  succeeded.
- A cancellation by the caller is raised at once, and does not count as a failure.
- The caller's listener is called outside of every ``except`` block, so that its own logging does
  not include an exception of the SDK, whose address may contain a secret.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
from contextlib import aclosing
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, Protocol, TypeVar

from a2a.client.errors import A2AClientTimeoutError

from holdfast._aio.cancel_scope import CancelScope
from holdfast._integrations.a2a_sdk.failures import (
    Failure,
    address_of,
    channel_state,
    read_failure,
)
from holdfast._integrations.a2a_sdk.notify import notify
from holdfast._pipeline.retry_engine import FailedAttempt, RetryEngine
from holdfast._policy.retry import RetryState
from holdfast.errors import A2AError

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable

    from a2a.client.client import ClientCallContext
    from a2a.client.transports.base import ClientTransport
    from google.protobuf.message import Message

    from holdfast._integrations.a2a_sdk.retry_config import RetryConfig
    from holdfast.extend import Env
    from holdfast.protocol import Operation, Safety

    Request = TypeVar("Request", bound=Message)

__all__ = ["EarlierEffect", "RetryExecutor", "RetryFacts", "copy_request", "retry_facts"]

Request_contra = TypeVar("Request_contra", contravariant=True)
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)

logger = logging.getLogger("holdfast")

_FACTS = "holdfast_retry_facts"
"""The attribute of an exception with its `RetryFacts`."""


class Method(Protocol[Request_contra, R_co]):
    """A method of the SDK's transports."""

    def __call__(
        self, request: Request_contra, /, *, context: ClientCallContext | None = None
    ) -> R_co: ...


@dataclass(frozen=True, kw_only=True, slots=True)
class RetryFacts:
    """The attempts of a failed call, and why there was no further one.

    Attributes:
        attempts: Number of attempts.
        reason: Reason why there was no further attempt.
        executed: False if the agent did not execute the last attempt; None if unknown.
        retry_after: Seconds that the server requests before a retry; None if not stated.
    """

    attempts: int
    reason: str
    executed: bool | None = None
    retry_after: float | None = None


class EarlierEffect(NamedTuple, Generic[R]):
    """The effect of an earlier attempt whose reply was lost, if the agent refuses a later one.

    Attributes:
        refusals: The exceptions of an agent that has executed the call already.
        find: Returns the result in a tuple; None if no earlier attempt succeeded.
    """

    refusals: tuple[type[Exception], ...]
    find: Callable[[], Awaitable[tuple[R] | None]]


def retry_facts(error: BaseException) -> RetryFacts | None:
    """Return the attempts of a `RetryTransport` before it raised an exception.

    Args:
        error: The exception.

    Returns:
        None if it was not raised by a `RetryTransport`.
    """
    facts = getattr(error, _FACTS, None)
    return facts if isinstance(facts, RetryFacts) else None


def copy_request(request: Request) -> Request:
    """Return a copy of a request, which its receiver may change."""
    copied = type(request)()
    copied.CopyFrom(request)
    return copied


class RetryExecutor:
    """Makes the calls of one transport, and retries them.

    Args:
        transport: The transport; None if there is none, as for a card.
        config: When and how to retry.
        env: Source of wall time and random numbers.
    """

    def __init__(self, transport: ClientTransport | None, config: RetryConfig, env: Env) -> None:
        self.transport = transport
        self.config = config
        self.env = env
        self.engine = RetryEngine(config.policy(), env)
        self.budget = config.shared_budget()

    async def unary(
        self,
        operation: Operation[Any, Any],
        method: Method[Request, Awaitable[R]],
        request: Request,
        context: ClientCallContext | None,
        earlier: EarlierEffect[R] | None = None,
    ) -> R:
        """Make a unary call of the transport."""
        return await self.execute(
            operation, lambda: method(copy_request(request), context=context), earlier
        )

    async def execute(
        self,
        operation: Operation[Any, Any],
        start: Callable[[], Awaitable[R]],
        earlier: EarlierEffect[R] | None = None,
    ) -> R:
        """Make a call with one reply.

        Args:
            operation: The operation; its safety decides whether it may be repeated.
            start: Makes one attempt.
            earlier: Finds the effect of an earlier attempt; None for no search.
        """
        call = _SdkCall(self, operation)
        while True:
            try:
                answer = await call.attempt(start)
            except Exception as error:  # noqa: BLE001  what it is decides what is done
                failure = error
            else:
                call.succeeded()
                return answer
            result = None if earlier is None else await call.earlier_result(earlier, failure)
            if result is not None:
                call.succeeded()
                return result[0]
            await self.engine.after_failure(call, call.failed(failure))

    async def stream(
        self,
        operation: Operation[Any, Any],
        method: Method[Request, AsyncGenerator[R]],
        request: Request,
        context: ClientCallContext | None,
    ) -> AsyncGenerator[R]:
        """Make a streaming call; it is retried until its first event."""
        call = _SdkCall(self, operation)
        while True:
            async with aclosing(method(copy_request(request), context=context)) as events:
                try:
                    first = await call.attempt(partial(anext, events))
                except StopAsyncIteration:
                    call.succeeded()
                    return
                except Exception as error:  # noqa: BLE001  what it is decides what is done
                    failure = error
                else:
                    call.succeeded()
                    yield first
                    async for event in events:
                        yield event
                    return
            await self.engine.after_failure(call, call.failed(failure))


class _SdkCall:
    """One call of the SDK, for the engine."""

    def __init__(self, executor: RetryExecutor, operation: Operation[Any, Any]) -> None:
        self.state = RetryState()
        self._executor = executor
        self._operation = operation
        self._attempts = 0
        self._last: Exception | None = None
        self._last_failure = Failure()
        self._is_out_of_time = False
        self._may_be_done = False
        self._channel_state: str | None = None
        timeout = executor.config.timeout
        self._ends_at = math.inf if timeout is None else _now() + timeout

    @property
    def safety(self) -> Safety:
        is_allowed = self._executor.config.resend_ambiguous
        return "idempotent" if is_allowed else self._operation.safety

    async def attempt(self, start: Callable[[], Awaitable[R]]) -> R:
        """Make one attempt, until the timeout of the call.

        Raises:
            A2AClientTimeoutError: The timeout of the call expired.
        """
        if self._ends_at <= _now():
            raise self._too_late() from self._last
        self._attempts += 1
        self._channel_state = channel_state(self._executor.transport)
        async with CancelScope(self._ends_at):
            return await start()
        raise self._too_late() from self._last

    async def earlier_result(self, earlier: EarlierEffect[R], error: Exception) -> tuple[R] | None:
        """Return the result of an earlier attempt; None if none succeeded."""
        if not self._may_be_done or not isinstance(error, earlier.refusals):
            return None
        with contextlib.suppress(Exception):  # the caller gets the refusal instead
            async with CancelScope(self._ends_at):
                return await earlier.find()
        return None

    def succeeded(self) -> None:
        """Record a reply of the agent."""
        if self._executor.budget is not None:
            self._executor.budget.succeeded()

    def failed(self, error: Exception) -> FailedAttempt:
        """Return the facts of a failed attempt.

        Raises:
            A2AClientTimeoutError: It is that of `attempt`, after which there is no other one.
        """
        if self._is_out_of_time:
            raise error
        executor = self._executor
        is_transient = bool(executor.config.predicate(error))
        self._last = error
        self._last_failure = failure = read_failure(
            error,
            operation=self._operation,
            now=executor.env.wall(),
            states=(self._channel_state, channel_state(executor.transport)),
            address=address_of(executor.transport),
        )
        self._may_be_done = self._may_be_done or failure.executed is not False
        is_final = is_transient and failure.is_final
        facts = A2AError(
            "as the engine sees it",
            transient=is_transient,
            executed=failure.executed,
            retry_after=failure.retry_after,
        )
        stop = "the agent declared the failure final" if is_final else None
        return FailedAttempt(error=facts, raised=error, stop=stop)

    def time_left(self, now: float) -> float:
        return self._ends_at - now

    def charge(self, now: float) -> bool:  # noqa: ARG002  a shared budget has its own clock
        budget = self._executor.budget
        return budget is None or budget.failed()

    def final_error(self, failed: FailedAttempt, reason: str) -> Exception:
        if failed.error.transient or self._attempts > 1:
            self._add_facts(failed.raised, reason)
        return failed.raised

    async def before_wait(self, wait: float) -> None:
        error, on_retry = self._last, self._executor.config.on_retry
        logger.info(
            "%s: attempt %d failed with %s; next attempt in %.3g s",
            self._operation.name,
            self._attempts,
            type(error).__name__,
            wait,
            extra={
                "method": self._operation.name,
                "attempt": self._attempts + 1,
                "wait_s": wait,
                "error_type": type(error).__name__,
            },
        )
        if on_retry is not None and error is not None:
            await notify(on_retry, self._attempts, error, wait, until=self._ends_at)

    def waiting(
        self,
        failed: FailedAttempt,  # noqa: ARG002  nothing observes the waits of the SDK's calls
        seconds: float,  # noqa: ARG002
    ) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext()

    def _too_late(self) -> A2AClientTimeoutError:
        timeout = self._executor.config.timeout
        text = f"{self._operation.name} did not finish within the timeout of {timeout:g} s"
        error = A2AClientTimeoutError(text)
        self._is_out_of_time, self._last_failure = True, Failure()
        self._add_facts(error, "the timeout of the call expired")
        return error

    def _add_facts(self, error: Exception, reason: str) -> None:
        """Add the facts of the attempts to an exception."""
        facts = RetryFacts(
            attempts=self._attempts,
            reason=reason,
            executed=self._last_failure.executed,
            retry_after=self._last_failure.retry_after,
        )
        setattr(error, _FACTS, facts)
        tries = "1 try" if self._attempts == 1 else f"{self._attempts} tries"
        note = f"Holdfast stopped retrying after {tries}: {reason}"
        if note not in getattr(error, "__notes__", ()):
            error.add_note(note)


def _now() -> float:
    return asyncio.get_running_loop().time()
