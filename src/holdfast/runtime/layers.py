"""The layers of a call, each one thing; `assembly.py` writes down their order.

Rules: a layer never swallows a cancellation, waits only within the call's deadline, and leaves
nothing running. What it decides is decided by a pure function of `holdfast.policy`.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any, TypeVar

from holdfast.errors import (
    A2AConnectionError,
    A2AError,
    DeadlineExceededError,
    Facts,
    InvalidAgentResponseError,
    LimitExceededError,
    OutcomeUnknownError,
)
from holdfast.model.operations import SEND_MESSAGE, SEND_STREAMING_MESSAGE
from holdfast.policy.retry import lost_the_reply
from holdfast.runtime.perloop import PerLoop
from holdfast.runtime.transport import (
    AnyCall,
    Call,
    PassThrough,
    Reply,
    Transport,
)
from holdfast.runtime.waiting import until
from holdfast.runtime.watchdog import Watchdog

if TYPE_CHECKING:
    from collections.abc import Awaitable, Coroutine, Sequence

    from holdfast.model.requests import SendMessageRequest
    from holdfast.runtime.listeners import Hooks, Interceptor, Observers

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
    """Tells observers when a call is over, names the call in its error, and keeps secrets."""

    def __init__(self, inner: Transport, observers: Observers) -> None:
        super().__init__(inner)
        self._observers = observers

    async def unary(self, call: Call[P, R], /) -> Reply[R]:
        error: BaseException | None = None
        try:
            return await self._inner.unary(call)
        except BaseException as failure:
            error = failure
            if isinstance(failure, A2AError):
                call.progress.secrets.hide_in(failure)
                failure.request_id = call.request_id
            raise
        finally:
            self._observers.call_finished(call, error)


class InterceptorLayer(PassThrough):
    """Runs the caller's interceptors around a call."""

    def __init__(self, inner: Transport, hooks: Hooks) -> None:
        super().__init__(inner)
        self._hooks = hooks

    def unary(self, call: Call[P, R], /) -> Coroutine[Any, Any, Reply[R]]:
        interceptors = self._hooks.interceptors
        return self._intercepted(call, interceptors) if interceptors else self._inner.unary(call)

    async def _intercepted(
        self, call: Call[P, R], interceptors: Sequence[Interceptor]
    ) -> Reply[R]:
        asked: list[Interceptor] = []
        outcome: Reply[R] | A2AError
        try:
            outcome = await self._ask_and_call(call, interceptors, asked)
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

    async def _ask_and_call(
        self, call: Call[P, R], interceptors: Sequence[Interceptor], asked: list[Interceptor]
    ) -> Reply[R]:
        for interceptor in interceptors:
            asked.append(interceptor)
            answer = await _by_deadline(call, interceptor.before(call))
            if isinstance(answer, Reply):
                return answer
            call = answer
        return await self._inner.unary(call)


class OutcomeLayer(PassThrough):
    """Turns a lost reply to a message into what it means: nobody knows whether it was executed."""

    def unary(self, call: Call[P, R], /) -> Coroutine[Any, Any, Reply[R]]:
        return self._sent(call) if call.operation in _SENDS else self._inner.unary(call)

    async def _sent(self, call: Call[P, R]) -> Reply[R]:
        try:
            return await self._inner.unary(call)
        except A2AError as error:
            if lost_the_reply(error):
                raise _outcome_unknown(call, error) from error
            if _is_no_answer(error):
                error.message = f"{error.message}; {_may_have_run(call)}"
            raise


class DeadlineLayer(PassThrough):
    """Ends the whole call at its deadline, or when the client is closed."""

    def __init__(self, inner: Transport) -> None:
        super().__init__(inner)
        self._under_way = PerLoop(_UnderWay)

    async def unary(self, call: Call[P, R], /) -> Reply[R]:
        under_way = self._under_way.here()
        limit = under_way.watchdog.until(call.deadline.at)
        try:
            with limit:
                return await self._inner.unary(call)
        except TimeoutError as error:
            # Our own timeouts are TimeoutErrors too, and pass through here on their way up.
            if not limit.expired or isinstance(error, A2AError):
                raise
        finally:
            under_way.one_is_over()
        raise _closed(call) if limit.ended else deadline_exceeded(call)

    async def close(self) -> None:
        """Ends the calls under way in this event loop, and frees what is below."""
        await self._under_way.here().end()
        await self._inner.close()


class _UnderWay:
    """The calls under way in one event loop."""

    def __init__(self) -> None:
        self.watchdog = Watchdog()
        self._drained: asyncio.Event | None = None

    def one_is_over(self) -> None:
        if self._drained is not None and self.watchdog.idle:
            self._drained.set()

    async def end(self) -> None:
        """Ends them all, and gives them time for a last word."""
        if self.watchdog.idle:
            return
        self.watchdog.end_all()
        self._drained = self._drained or asyncio.Event()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_LAST_WORD):
                await self._drained.wait()


_SENDS = frozenset({SEND_MESSAGE, SEND_STREAMING_MESSAGE})


def deadline_exceeded(call: AnyCall) -> DeadlineExceededError:
    """The error of a call whose time is over."""
    deadline = call.deadline
    awaited = "; the agent's card was still awaited, and nothing else was sent"
    return DeadlineExceededError(
        f"{call.operation.name} did not finish within the {deadline.name} timeout of "
        f"{deadline.timeout:g} s{'' if call.progress.card is None else awaited}",
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


def _is_no_answer(error: A2AError) -> bool:
    """Whether something came back that says nothing about the message."""
    unreadable = isinstance(error, InvalidAgentResponseError) and error.code is None
    return error.executed is None and (unreadable or isinstance(error, LimitExceededError))


def _may_have_run(call: AnyCall) -> str:
    params: SendMessageRequest = call.params
    return (
        f"message {params.message.message_id} was sent, and may have been executed: look for it "
        "among the agent's tasks before sending it again"
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
