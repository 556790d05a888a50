"""How a call of the SDK is retried: a unary call, or the opening of a stream.

The engine is the client's own, `holdfast._pipeline.retry_engine`; here it is given the facts that
`holdfast._integrations.a2a_sdk.failures` has read, and its outcome is put into the SDK's words:

- What the caller gets in the end is the SDK's own error, the very object; `retry_facts`, and a
  note on it, say what was tried.
- Each attempt gets a copy of the request of its own: a decorator such as the SDK's for tenants
  writes into it.
- A stream is retried before its first event. From then on it is the caller's.
- An attempt may have been executed although its reply was lost: an answer to the next one such as
  "the task cannot be canceled" is then looked into (`DoneBefore`).
- A cancellation by the caller goes through at once, and counts for nothing.
- The caller's listener is called outside of all ``except``, so that what it logs itself does not
  quote an error of the SDK, in which an address may hold a secret.
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

__all__ = ["DoneBefore", "RetryExecutor", "RetryFacts", "own_copy", "retry_facts"]

Request_contra = TypeVar("Request_contra", contravariant=True)
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)

logger = logging.getLogger("holdfast")

_FACTS = "holdfast_retry_facts"
"""The attribute of an error that holds what was tried."""


class Method(Protocol[Request_contra, R_co]):
    """A method of the SDK's transports."""

    def __call__(
        self, request: Request_contra, /, *, context: ClientCallContext | None = None
    ) -> R_co: ...


@dataclass(frozen=True, kw_only=True, slots=True)
class RetryFacts:
    """What was tried before a call failed, and why no more.

    Attributes:
        attempts: How many tries were made.
        reason: Why there was no other.
        executed: False if the last try was certainly not executed; None if it may have been.
        retry_after: Seconds after which the server wants to be asked again; None if it did not
            say.
    """

    attempts: int
    reason: str
    executed: bool | None = None
    retry_after: float | None = None


class DoneBefore(NamedTuple, Generic[R]):
    """How to find out whether an earlier try has done what a later one was refused.

    Attributes:
        refusals: The errors that an agent answers with where it is done already.
        find: Gives the answer in a tuple if it is; None if it is not.
    """

    refusals: tuple[type[Exception], ...]
    find: Callable[[], Awaitable[tuple[R] | None]]


def retry_facts(error: BaseException) -> RetryFacts | None:
    """What a `RetryTransport` tried before it raised this error; None if it had no hand in it."""
    facts = getattr(error, _FACTS, None)
    return facts if isinstance(facts, RetryFacts) else None


def own_copy(request: Request) -> Request:
    """A copy of a request, for somebody who may write into it."""
    copied = type(request)()
    copied.CopyFrom(request)
    return copied


class RetryExecutor:
    """Makes the calls of one transport, and retries them.

    Args:
        transport: The transport; None where there is none, as for a card.
        config: How to retry.
        env: Where wall time and random numbers come from.
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
        before: DoneBefore[R] | None = None,
    ) -> R:
        """Makes a unary call of the transport."""
        return await self.execute(
            operation, lambda: method(own_copy(request), context=context), before
        )

    async def execute(
        self,
        operation: Operation[Any, Any],
        start: Callable[[], Awaitable[R]],
        before: DoneBefore[R] | None = None,
    ) -> R:
        """Makes any call with one answer.

        Args:
            operation: What it is, which says what a second execution would cost.
            start: Makes one attempt.
            before: How to find out whether an earlier attempt has done it.
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
            done = None if before is None else await call.found(before, failure)
            if done is not None:
                call.succeeded()
                return done[0]
            await self.engine.after_failure(call, call.failed(failure))

    async def stream(
        self,
        operation: Operation[Any, Any],
        method: Method[Request, AsyncGenerator[R]],
        request: Request,
        context: ClientCallContext | None,
    ) -> AsyncGenerator[R]:
        """Makes a call that streams; it is retried up to its first event."""
        call = _SdkCall(self, operation)
        while True:
            async with aclosing(method(own_copy(request), context=context)) as events:
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
        """Makes one attempt, as far as there is time.

        Raises:
            A2AClientTimeoutError: The time of the call is over.
        """
        if self._ends_at <= _now():
            raise self._too_late() from self._last
        self._attempts += 1
        self._channel_state = channel_state(self._executor.transport)
        async with CancelScope(self._ends_at):
            return await start()
        raise self._too_late() from self._last

    async def found(self, before: DoneBefore[R], error: Exception) -> tuple[R] | None:
        """The answer to an earlier attempt, if there was one; see `DoneBefore`."""
        if not self._may_be_done or not isinstance(error, before.refusals):
            return None
        with contextlib.suppress(Exception):  # what the agent said of the call itself counts
            async with CancelScope(self._ends_at):
                return await before.find()
        return None

    def succeeded(self) -> None:
        """Notes that the agent has answered."""
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
        stop = "the agent asked not to be tried again" if is_final else None
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
            "%s: try %d failed with %s; the next one is in %.3g s",
            self._operation.name,
            self._attempts,
            type(error).__name__,
            wait,
        )
        if on_retry is not None and error is not None:
            await notify(on_retry, self._attempts, error, wait, until=self._ends_at)

    def _too_late(self) -> A2AClientTimeoutError:
        text = f"{self._operation.name} took longer than its {self._executor.config.timeout:g} s"
        error = A2AClientTimeoutError(text)
        self._is_out_of_time, self._last_failure = True, Failure()
        self._add_facts(error, "the timeout of the call expired")
        return error

    def _add_facts(self, error: Exception, reason: str) -> None:
        """Adds to an error what was tried."""
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
