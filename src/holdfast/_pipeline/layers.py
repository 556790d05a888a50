"""The layers of a call, each one thing; `assembly.py` writes down their order.

Rules: a layer never swallows a cancellation, waits only within the call's deadline, and leaves
nothing running. What it decides is decided by a pure function of `holdfast._policy`.
"""

from __future__ import annotations

import asyncio
from functools import partial
from inspect import isawaitable
from typing import TYPE_CHECKING, Any, TypeVar, cast

import msgspec

from holdfast._aio.cancel_scope import CancelScope, wait_until
from holdfast._aio.per_loop import PerLoop
from holdfast._aio.watchdog import Watchdog
from holdfast._model.operations import SENDS
from holdfast._pipeline.connection import (
    Bounds,
    Connection,
    InterceptedStream,
    OneEvent,
    replaced,
)
from holdfast._pipeline.listeners import attempts_of
from holdfast._pipeline.transport import (
    AnyCall,
    Call,
    CallNext,
    PassThrough,
    Reply,
    Stream,
    Transport,
)
from holdfast._policy.deadline import NEVER
from holdfast._policy.retry import is_outcome_unknown
from holdfast._wire.http import media_type
from holdfast._wire.sse import EVENT_STREAM
from holdfast.errors import (
    A2AConnectionError,
    A2AError,
    DeadlineExceededError,
    Facts,
    InvalidAgentResponseError,
    LimitExceededError,
    OutcomeUnknownError,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Coroutine, Sequence

    from holdfast._pipeline.listeners import Interceptor, ListenerSet, Observers
    from holdfast._wire.network_scope import NetworkReach
    from holdfast.types import SendMessageRequest

__all__ = [
    "DeadlineLayer",
    "InterceptorLayer",
    "ObservedLayer",
    "OpeningLayer",
    "OutcomeLayer",
    "ReachLayer",
    "deadline_exceeded",
]

P = TypeVar("P")
R = TypeVar("R")
T = TypeVar("T")


class ReachLayer(PassThrough):
    """Bounds where calls lead, over whatever binding: for an address that others named.

    Args:
        inner: What is below.
        reach: How far inside it may lie.
    """

    def __init__(self, inner: Transport, reach: NetworkReach) -> None:
        super().__init__(inner)
        self._reach = reach

    def through(
        self, call: Call[P, R], onward: CallNext[P, R, T], /
    ) -> Coroutine[Any, Any, Reply[T]]:
        """Makes the call within its bounds."""
        if call.reach is None:
            call = msgspec.structs.replace(call, reach=self._reach)
        return onward(call)


_LAST_WORD = 1.0
"""Seconds that an interceptor has for a call whose own time is over, and a call that is closed."""


class ObservedLayer(PassThrough):
    """Reports the end of a request to observers, names it in its error, and keeps secrets."""

    def __init__(self, inner: Transport, observers: Observers) -> None:
        super().__init__(inner)
        self._observers = observers

    async def stream(self, call: Call[P, R], /) -> Reply[Stream[R]]:
        reply = await self.through(call, self._inner.stream)
        connection = Connection.over(reply.value)
        return replaced(reply, connection.observe(call, self._observers))

    async def through(self, call: Call[P, R], onward: CallNext[P, R, T], /) -> Reply[T]:
        try:
            reply = await onward(call)
        except BaseException as failure:
            if isinstance(failure, A2AError):
                call.progress.secrets.hide_in(failure)
                failure.request_id = call.request_id
                failure.traceparent = failure.traceparent or call.headers.get("traceparent")
            self._observers.request_finished(call, failure)
            raise
        if not call.operation.streaming:  # a stream is over when it is closed
            self._observers.request_finished(call, None)
        return reply


class InterceptorLayer(PassThrough):
    """Runs the caller's interceptors around a call, and around each event of a stream."""

    def __init__(self, inner: Transport, hooks: ListenerSet) -> None:
        super().__init__(inner)
        self._hooks = hooks

    def unary(self, call: Call[P, R], /) -> Coroutine[Any, Any, Reply[R]]:
        interceptors = self._hooks.interceptors
        return self._intercepted(call, interceptors) if interceptors else self._inner.unary(call)

    def stream(self, call: Call[P, R], /) -> Coroutine[Any, Any, Reply[Stream[R]]]:
        interceptors = self._hooks.interceptors
        return self._opened(call, interceptors) if interceptors else self._inner.stream(call)

    async def _intercepted(
        self, call: Call[P, R], interceptors: Sequence[Interceptor]
    ) -> Reply[R]:
        asked: list[Interceptor] = []
        outcome: Reply[R] | A2AError
        try:
            answer = await _before(call, interceptors, asked)
            outcome = answer if isinstance(answer, Reply) else await self._inner.unary(answer)
        except A2AError as error:
            outcome = error
        return await _after(call, asked, outcome)

    async def _opened(
        self, call: Call[P, R], interceptors: Sequence[Interceptor]
    ) -> Reply[Stream[R]]:
        asked: list[Interceptor] = []
        outcome: Reply[R] | A2AError
        try:
            answer = await _before(call, interceptors, asked)
            if not isinstance(answer, Reply):
                opened = await self._inner.stream(answer)
                after = partial(_after, call, asked)
                return replaced(opened, InterceptedStream(opened.value, call, opened, after))
            outcome = answer
        except A2AError as error:
            outcome = error
        instead = await _after(call, asked, outcome)
        return replaced(instead, OneEvent(instead.value))


class OutcomeLayer(PassThrough):
    """Turn the error of a lost reply to a message into an `OutcomeUnknownError`."""

    def through(
        self, call: Call[P, R], onward: CallNext[P, R, T], /
    ) -> Coroutine[Any, Any, Reply[T]]:
        return _sent(call, onward) if call.operation in SENDS else onward(call)


class DeadlineLayer(PassThrough):
    """Ends the whole call at its deadline, or when the client is closed."""

    def __init__(self, inner: Transport) -> None:
        super().__init__(inner)
        self._in_flight = PerLoop(_UnderWay)

    async def stream(self, call: Call[P, R], /) -> Reply[Stream[R]]:
        reply = await self._bounded(call, self._inner.stream(call))
        if call.deadline.ends_at_first_event:
            call = msgspec.structs.replace(call, deadline=NEVER)
        return replaced(reply, self._connection(reply.value, call))

    def through(
        self, call: Call[P, R], onward: CallNext[P, R, T], /
    ) -> Coroutine[Any, Any, Reply[T]]:
        return self._bounded(call, onward(call))

    async def _bounded(self, call: AnyCall, waiting: Coroutine[Any, Any, T]) -> T:
        in_flight = self._in_flight.here()
        limit = in_flight.watchdog.until(call.deadline.at)
        try:
            with limit:
                return await waiting
        except TimeoutError:
            if not limit.fired:
                raise
        finally:
            in_flight.one_is_over()
        raise _ended_error(call, is_closed=limit.ended)

    def _connection(self, stream: Stream[T], call: AnyCall) -> Connection[T]:
        """The stream that was opened, no event of which is waited for longer than the call may."""
        in_flight = self._in_flight.here()
        bounds = Bounds(
            watchdog=in_flight.watchdog,
            at=call.deadline.at,
            left=in_flight.one_is_over,
            error=lambda is_closed: _ended_error(call, is_closed=is_closed),
        )
        return Connection.over(stream).bound(bounds)

    async def close(self) -> None:
        """Ends the calls under way in this event loop, and frees what is below."""
        await self._in_flight.here().end()
        await self._inner.close()


class OpeningLayer(DeadlineLayer):
    """The same for requests of which only the reply tells whether it is a stream of events.

    Such a stream may go on for as long as it brings something; any other body is part of the call.
    """

    async def stream(self, call: Call[P, R], /) -> Reply[Stream[R]]:
        reply = await self._bounded(call, self._inner.stream(call))
        if media_type(reply.headers) == EVENT_STREAM:
            call = msgspec.structs.replace(call, deadline=NEVER)
        return replaced(reply, self._connection(reply.value, call))


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
        async with CancelScope.within(_LAST_WORD):
            await self._drained.wait()


async def _sent(call: Call[P, R], onward: CallNext[P, R, T]) -> Reply[T]:
    try:
        return await onward(call)
    except A2AError as error:
        if is_outcome_unknown(error):
            raise _outcome_unknown(call, error) from error
        if _is_no_answer(error):
            error.message = f"{error.message}; {_may_have_run(call)}"
        raise


async def _before(
    call: Call[P, R], interceptors: Sequence[Interceptor], asked: list[Interceptor]
) -> Call[P, R] | Reply[R]:
    """The call as the interceptors want it, or the answer of one of them; notes whom it asked."""
    for interceptor in interceptors:
        asked.append(interceptor)
        hook = _hook(interceptor, "before", interceptor.before(call))
        answer = await _by_deadline(call, hook)
        if isinstance(answer, Reply):
            return answer
        if not isinstance(cast("object", answer), Call):
            raise _returns(interceptor, "before", "the call to make or a Reply", answer)
        call = answer
    return call


async def _after(
    call: Call[P, R], asked: Sequence[Interceptor], outcome: Reply[R] | A2AError
) -> Reply[R]:
    """What those who were asked before make of an outcome; raises it if that is an error."""
    for interceptor in reversed(asked):
        try:
            hook = _hook(interceptor, "after", interceptor.after(call, outcome))
            made = await _with_last_word(call, hook)
        except A2AError as error:
            if isinstance(outcome, Reply):
                error.executed = True
            made = error
        if not isinstance(cast("object", made), Reply | A2AError):
            failure = outcome if isinstance(outcome, A2AError) else None
            raise _returns(interceptor, "after", "a Reply or an A2AError", made) from failure
        outcome = made
    if isinstance(outcome, A2AError):
        raise outcome
    return outcome


def _hook(interceptor: Interceptor, name: str, hook: Awaitable[T]) -> Awaitable[T]:
    """Checks what calling a hook gave, as those who write one forget to say ``async``."""
    if not isawaitable(cast("object", hook)):
        message = f"{type(interceptor).__name__}.{name} must be written with async def"
        raise TypeError(message)
    return hook


def _returns(interceptor: Interceptor, name: str, what: str, value: object) -> TypeError:
    """The error of a hook that returns something else."""
    kind = type(value).__name__
    return TypeError(f"{type(interceptor).__name__}.{name} must return {what}, not {kind}")


def deadline_exceeded(call: AnyCall) -> DeadlineExceededError:
    """The error of a call whose time is over."""
    deadline, progress = call.deadline, call.progress
    awaited = "; the agent's card was still awaited, and nothing else was sent"
    place = progress.awaits if progress.card is None else progress.card.awaits
    waited = "" if place is None else f" while waiting for a {place}"
    return DeadlineExceededError(
        f"{call.operation.name} did not finish within the {deadline.name} timeout of "
        f"{deadline.shown}{waited}{'' if progress.card is None else awaited}",
        deadline=deadline.name,
        timeout=deadline.timeout,
        **_ended(call),
    )


def _ended_error(call: AnyCall, *, is_closed: bool) -> A2AError:
    """The error of a call that was ended: by the closing of its client, or by its deadline."""
    return _closed(call) if is_closed else deadline_exceeded(call)


def _closed(call: AnyCall) -> A2AConnectionError:
    message = f"the client was closed while {call.operation.name} was in flight"
    return A2AConnectionError(message, failure="closed", **_ended(call))


def _ended(call: AnyCall) -> Facts:
    """What is known of a call that is ended from outside."""
    progress = call.progress
    attempts = attempts_of(call)
    return Facts(
        executed=None if progress.sent or progress.maybe_executed else False,
        attempts=attempts,
        agent=attempts[-1].agent if attempts else call.agent,
        request_id=call.request_id,
        traceparent=call.headers.get("traceparent"),
    )


def _is_no_answer(error: A2AError) -> bool:
    """Whether something came back that says nothing about the message."""
    unreadable = isinstance(error, InvalidAgentResponseError) and error.code is None
    return error.executed is None and (unreadable or isinstance(error, LimitExceededError))


def _may_have_run(call: AnyCall) -> str:
    params: SendMessageRequest = call.params
    return (
        f"message {params.message.message_id} was sent, and may have been executed: search the "
        "agent's tasks for it before sending it again"
    )


def _outcome_unknown(call: AnyCall, error: A2AError) -> OutcomeUnknownError:
    params: SendMessageRequest = call.params
    message = params.message
    facts = error.facts()
    facts["executed"] = None
    facts["transient"] = False
    facts["retry_stopped_reason"] = None  # the message says it
    return OutcomeUnknownError(
        f"the outcome of message {message.message_id} is unknown: the message was sent, but its "
        f"reply was lost: {error.message}",
        message_id=message.message_id,
        context_id=message.context_id,
        **facts,
    )


async def _by_deadline(call: AnyCall, awaitable: Awaitable[T]) -> T:
    return await wait_until(call.deadline.at, awaitable, lambda: deadline_exceeded(call))


async def _with_last_word(call: AnyCall, hook: Awaitable[T]) -> T:
    """Waits for a caller's hook within the call's deadline, or for a last word after it."""
    now = asyncio.get_running_loop().time()
    at = max(call.deadline.at, now + _LAST_WORD)
    return await wait_until(at, hook, lambda: deadline_exceeded(call))
