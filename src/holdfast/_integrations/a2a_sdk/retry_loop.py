"""How one call is tried: one way for those with an answer, one for those with a stream of them.

Whether and when to try again is decided by `holdfast._policy.retry`, of facts that
`holdfast._integrations.a2a_sdk.failures` has read.

- What the caller gets in the end is the SDK's own error, the very object; `retry_facts`, and a
  note on it, say what was tried.
- Each try gets a copy of the request of its own: a decorator such as the SDK's for tenants
  writes into it.
- A stream is tried again before its first event. From then on it is the caller's.
- What is tried again may have been done by the try before, whose reply was lost: an answer such as
  "the task cannot be canceled" is then looked into (`DoneBefore`).
- A cancellation by the caller goes through at once, and counts for nothing.
- The caller's listener is told outside of all ``except``, so that what it logs itself does not
  quote an error of the SDK, in which an address may hold a secret.
"""

from __future__ import annotations

import asyncio
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
from holdfast._integrations.a2a_sdk.notify import tell
from holdfast._policy.retry import GiveUp, Retry, decide
from holdfast.errors import A2AError

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable

    from a2a.client.client import ClientCallContext
    from a2a.client.transports.base import ClientTransport
    from google.protobuf.message import Message

    from holdfast._aio.env import Env
    from holdfast._integrations.a2a_sdk.retry_config import RetryConfig
    from holdfast._model.operations import Operation, Safety

    Request = TypeVar("Request", bound=Message)

__all__ = ["DoneBefore", "RetryFacts", "Trying", "own_copy", "retry_facts"]

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


class Trying:
    """Tries the calls of one transport.

    Args:
        transport: The transport; None where there is none, as for a card.
        config: How to try.
        env: Where wall time and dice come from.
    """

    def __init__(self, transport: ClientTransport | None, config: RetryConfig, env: Env) -> None:
        self.transport = transport
        self.config = config
        self.env = env
        self.policy = config.policy()
        self.budget = config.shared_budget()

    async def unary(
        self,
        operation: Operation[Any, Any],
        method: Method[Request, Awaitable[R]],
        request: Request,
        context: ClientCallContext | None,
        before: DoneBefore[R] | None = None,
    ) -> R:
        """Tries a call with one answer."""
        return await self.asking(
            operation, lambda: method(own_copy(request), context=context), before
        )

    async def asking(
        self,
        operation: Operation[Any, Any],
        start: Callable[[], Awaitable[R]],
        before: DoneBefore[R] | None = None,
    ) -> R:
        """Tries whatever has one answer.

        Args:
            operation: What it is, which says what a second execution would cost.
            start: Makes one try.
            before: How to find out whether an earlier try has done it.
        """
        call = _OneCall(self, operation)
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
            await call.until_next(failure)

    async def stream(
        self,
        operation: Operation[Any, Any],
        method: Method[Request, AsyncGenerator[R]],
        request: Request,
        context: ClientCallContext | None,
    ) -> AsyncGenerator[R]:
        """Tries a call that streams, up to its first event."""
        call = _OneCall(self, operation)
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
            await call.until_next(failure)


class _OneCall:
    """One call: what has become of it so far."""

    __slots__ = (
        "_attempts",
        "_deadline",
        "_is_over",
        "_last",
        "_may_be_done",
        "_operation",
        "_state",
        "_trying",
    )

    def __init__(self, trying: Trying, operation: Operation[Any, Any]) -> None:
        self._trying = trying
        self._operation = operation
        self._attempts = 0
        self._last: Exception | None = None
        self._is_over = False
        self._may_be_done = False
        self._state: str | None = None
        timeout = trying.config.timeout
        self._deadline = None if timeout is None else _now() + timeout

    async def attempt(self, start: Callable[[], Awaitable[R]]) -> R:
        """Makes one try, as far as there is time.

        Raises:
            A2AClientTimeoutError: The time of the call is over.
        """
        if self._deadline is not None and self._deadline <= _now():
            raise self._too_late() from self._last
        self._attempts += 1
        self._state = channel_state(self._trying.transport)
        async with CancelScope(math.inf if self._deadline is None else self._deadline):
            return await start()
        raise self._too_late() from self._last

    async def found(self, before: DoneBefore[R], error: Exception) -> tuple[R] | None:
        """The answer to an earlier try, if there was one; see `DoneBefore`."""
        if not self._may_be_done or not isinstance(error, before.refusals):
            return None
        try:
            async with CancelScope(math.inf if self._deadline is None else self._deadline):
                return await before.find()
        except Exception:  # noqa: BLE001  the caller learns what the agent said of the call itself
            return None
        return None

    def succeeded(self) -> None:
        """Notes that the agent has answered."""
        if self._trying.budget is not None:
            self._trying.budget.succeeded()

    async def until_next(self, error: Exception) -> None:
        """Waits until the next try.

        Raises:
            Exception: The error: there is no other try.
        """
        if self._is_over:
            raise error
        self._last = error
        failed = _now()
        config = self._trying.config
        is_transient = bool(config.predicate(error))
        failure = read_failure(
            error,
            operation=self._operation,
            now=self._trying.env.wall(),
            states=(self._state, channel_state(self._trying.transport)),
            address=address_of(self._trying.transport),
        )
        self._may_be_done = self._may_be_done or failure.executed is not False
        decision = self._decide(failure, is_transient=is_transient, now=failed)
        if isinstance(decision, GiveUp):
            if is_transient or self._attempts > 1:
                self._tell(error, decision.reason, failure)
            raise error
        logger.info(
            "%s: try %d failed with %s; the next one is in %.3g s",
            self._operation.name,
            self._attempts,
            type(error).__name__,
            decision.delay,
        )
        if config.on_retry is not None:
            until = self._deadline or math.inf
            await tell(config.on_retry, self._attempts, error, decision.delay, until=until)
        await asyncio.sleep(max(0.0, failed + decision.delay - _now()))

    def _decide(self, failure: Failure, *, is_transient: bool, now: float) -> Retry | GiveUp:
        trying = self._trying
        # Whoever is refused may still fail: what is charged does not depend on what is decided.
        may_retry = trying.budget is None or not is_transient or trying.budget.failed()
        if is_transient and failure.is_final:
            return GiveUp("the agent asked not to be tried again")
        safety: Safety = "idempotent" if trying.config.resend_ambiguous else self._operation.safety
        return decide(
            trying.policy,
            A2AError(
                "as the core sees it",
                transient=is_transient,
                executed=failure.executed,
                retry_after=failure.retry_after,
            ),
            safety=safety,
            attempt=self._attempts,
            time_left=math.inf if self._deadline is None else self._deadline - now,
            draw=trying.env.random(),
            within_budget=may_retry,
        )

    def _too_late(self) -> A2AClientTimeoutError:
        text = f"{self._operation.name} took longer than its {self._trying.config.timeout:g} s"
        error = A2AClientTimeoutError(text)
        self._is_over = True
        self._tell(error, "the timeout of the call expired", Failure())
        return error

    def _tell(self, error: Exception, reason: str, failure: Failure) -> None:
        """Adds to an error what was tried."""
        facts = RetryFacts(
            attempts=self._attempts,
            reason=reason,
            executed=failure.executed,
            retry_after=failure.retry_after,
        )
        setattr(error, _FACTS, facts)
        tries = "1 try" if self._attempts == 1 else f"{self._attempts} tries"
        note = f"Holdfast stopped retrying after {tries}: {reason}"
        if note not in getattr(error, "__notes__", ()):
            error.add_note(note)


def _now() -> float:
    return asyncio.get_running_loop().time()
