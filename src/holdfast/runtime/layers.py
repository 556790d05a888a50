"""The layers of a call, each one thing; `assembly.py` writes down their order.

Rules: a layer never swallows a cancellation, waits only within the call's deadline, and leaves
nothing running. What it decides is decided by a pure function of `holdfast.policy`.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, TypeVar

from holdfast.errors import (
    A2AConnectionError,
    A2AError,
    DeadlineExceededError,
    Facts,
    OutcomeUnknownError,
)
from holdfast.model.operations import SEND_MESSAGE, SEND_STREAMING_MESSAGE
from holdfast.policy.retry import lost_the_reply
from holdfast.runtime.listeners import (
    CallFinished,
    Interceptor,
    Observer,
)
from holdfast.runtime.transport import (
    AnyCall,
    Call,
    PassThrough,
    Reply,
    Transport,
)
from holdfast.runtime.waiting import until

if TYPE_CHECKING:
    from collections.abc import Awaitable, Sequence

    from holdfast.model.requests import SendMessageRequest


__all__ = [
    "DeadlineLayer",
    "InterceptorLayer",
    "ObservedLayer",
    "OutcomeLayer",
    "deadline_exceeded",
]

P = TypeVar("P")
R = TypeVar("R")
T = TypeVar("T")

_LAST_WORD = 1.0
"""Seconds that an interceptor has for a call whose own time is over, and a call that is closed."""


class ObservedLayer(PassThrough):
    """Tells observers when a call is over, and names the call in its error."""

    def __init__(self, inner: Transport, observe: Observer) -> None:
        super().__init__(inner)
        self._observe = observe

    async def unary(self, call: Call[P, R], /) -> Reply[R]:
        error: BaseException | None = None
        try:
            reply = await self._inner.unary(call)
        except A2AError as failure:
            error = failure
            failure.request_id = call.request_id
            raise
        except BaseException as failure:
            error = failure
            raise
        else:
            return reply
        finally:
            now = asyncio.get_running_loop().time()
            tries = call.progress.attempts
            self._observe(
                CallFinished(
                    request_id=call.request_id,
                    operation=call.operation.name,
                    agent=tries[-1].agent if tries else None,
                    attempts=len(tries),
                    duration=now - call.progress.began,
                    error=error,
                )
            )


class InterceptorLayer(PassThrough):
    """Runs the caller's interceptors around a call."""

    def __init__(self, inner: Transport, interceptors: Sequence[Interceptor]) -> None:
        super().__init__(inner)
        self._interceptors = tuple(interceptors)

    async def unary(self, call: Call[P, R], /) -> Reply[R]:
        asked: list[Interceptor] = []
        outcome: Reply[R] | A2AError
        try:
            outcome = await self._ask_and_call(call, asked)
        except A2AError as error:
            outcome = error
        for interceptor in reversed(asked):
            try:
                outcome = await _with_last_word(call, interceptor.after(call, outcome))
            except A2AError as error:
                if isinstance(outcome, Reply):
                    error.executed = True
                outcome = error
        if isinstance(outcome, A2AError):
            raise outcome
        return outcome

    async def _ask_and_call(self, call: Call[P, R], asked: list[Interceptor]) -> Reply[R]:
        for interceptor in self._interceptors:
            asked.append(interceptor)
            answer = await _by_deadline(call, interceptor.before(call))
            if isinstance(answer, Reply):
                return answer
            call = answer
        return await self._inner.unary(call)


class OutcomeLayer(PassThrough):
    """Turns a lost reply to a message into what it means: nobody knows whether it was executed."""

    async def unary(self, call: Call[P, R], /) -> Reply[R]:
        if call.operation not in _SENDS:
            return await self._inner.unary(call)
        try:
            return await self._inner.unary(call)
        except A2AError as error:
            if not lost_the_reply(error):
                raise
            raise _outcome_unknown(call, error) from error


class DeadlineLayer(PassThrough):
    """Ends the whole call at its deadline, or when the client is closed."""

    def __init__(self, inner: Transport) -> None:
        super().__init__(inner)
        self._scopes: dict[asyncio.Timeout, asyncio.AbstractEventLoop] = {}
        self._closed = False
        self._drained: dict[asyncio.AbstractEventLoop, asyncio.Event] = {}

    async def unary(self, call: Call[P, R], /) -> Reply[R]:
        scope = asyncio.timeout_at(call.deadline.at)
        try:
            async with scope:
                loop = self._scopes[scope] = asyncio.get_running_loop()
                try:
                    return await self._inner.unary(call)
                finally:
                    del self._scopes[scope]
                    if loop in self._drained and loop not in self._scopes.values():
                        self._drained[loop].set()
        except TimeoutError as error:
            # Our own timeouts are TimeoutErrors too, and pass through here on their way up.
            if not scope.expired() or isinstance(error, A2AError):
                raise
        raise _closed(call) if self._closed else deadline_exceeded(call)

    async def close(self) -> None:
        """Ends the calls under way, and frees what is below."""
        loop = asyncio.get_running_loop()
        self._closed = True
        for scope, its_loop in self._scopes.items():
            if its_loop is loop and not scope.expired():
                scope.reschedule(loop.time())
        if loop in self._scopes.values():  # another loop ends its own
            drained = self._drained.setdefault(loop, asyncio.Event())
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_LAST_WORD):
                    await drained.wait()
        await self._inner.close()


_SENDS = frozenset({SEND_MESSAGE, SEND_STREAMING_MESSAGE})


def deadline_exceeded(call: AnyCall) -> DeadlineExceededError:
    """The error of a call whose time is over."""
    deadline = call.deadline
    return DeadlineExceededError(
        f"{call.operation.name} did not finish within the {deadline.name} timeout of "
        f"{deadline.timeout:g} s",
        deadline=deadline.name,
        timeout=deadline.timeout,
        **_ended(call),
    )


def _closed(call: AnyCall) -> A2AConnectionError:
    message = f"the client was closed while {call.operation.name} was under way"
    return A2AConnectionError(message, failure="closed", **_ended(call))


def _ended(call: AnyCall) -> Facts:
    """What is known of a call that is ended from outside."""
    progress = call.progress
    attempts = progress.attempts
    if not attempts and progress.card is not None:
        attempts = progress.card.attempts  # it did not get further than the card
    return Facts(
        executed=None if progress.sent or progress.maybe_executed else False,
        attempts=attempts,
        agent=attempts[-1].agent if attempts else call.agent,
        request_id=call.request_id,
    )


def _outcome_unknown(call: AnyCall, error: A2AError) -> OutcomeUnknownError:
    params: SendMessageRequest = call.params
    message = params.message
    facts = error.facts()
    facts["executed"] = None
    facts["transient"] = False
    facts["gave_up"] = None  # the message says it
    return OutcomeUnknownError(
        f"nobody knows whether the agent ran message {message.message_id}: it was sent, but its "
        f"reply was lost: {error.message}. It was not sent again. Look for it among the agent's "
        "tasks, or send it again if running it twice does no harm",
        message_id=message.message_id,
        context_id=message.context_id,
        **facts,
    )


async def _by_deadline(call: AnyCall, awaitable: Awaitable[T]) -> T:
    return await until(call.deadline.at, awaitable, lambda: deadline_exceeded(call))


async def _with_last_word(call: AnyCall, hook: Awaitable[T]) -> T:
    """Waits for a caller's hook within the call's deadline, or for a last word after it."""
    now = asyncio.get_running_loop().time()
    at = max(call.deadline.at, now + _LAST_WORD)
    return await until(at, hook, lambda: deadline_exceeded(call))
