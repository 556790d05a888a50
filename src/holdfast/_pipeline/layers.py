"""The layers of a whole call; `holdfast._pipeline.order` has their order.

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
from holdfast._aio.watchdog import TimeLimit, Watchdog
from holdfast._pipeline.call_errors import complete, deadline_exceeded, ended, with_outcome
from holdfast._pipeline.connection import (
    Bounds,
    Connection,
    InterceptedStream,
    OneEvent,
    connection_over,
    replaced,
)
from holdfast._pipeline.transport import (
    AnyCall,
    Call,
    CallNext,
    ExtensibleLayer,
    PassThrough,
    Reply,
    Stream,
    Transport,
)
from holdfast._policy.deadline import NEVER
from holdfast._wire.http import media_type
from holdfast._wire.sse import EVENT_STREAM
from holdfast.errors import (
    A2AError,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Coroutine, Sequence

    from holdfast._pipeline.listeners import Interceptor, ListenerSet, Observers
    from holdfast._wire.network_scope import NetworkReach

__all__ = [
    "DeadlineLayer",
    "InterceptorLayer",
    "ObservedLayer",
    "OpeningLayer",
    "ReachLayer",
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


_CLOSE_GRACE_S = 1.0
"""Seconds that an interceptor has for a call whose own time is over, and a call that is closed."""


class ObservedLayer(ExtensibleLayer):
    """Reports the end of a request to observers, and completes its error."""

    def __init__(self, inner: Transport, observers: Observers) -> None:
        super().__init__(inner)
        self._observers = observers

    async def unary(self, call: Call[P, R], /) -> Reply[R]:
        try:
            reply = await self._inner.unary(call)
        except BaseException as failure:
            self._failed(call, failure)
            raise
        if call.progress.call_group.is_observed:
            self._observers.request_finished(call, None)
        return reply

    async def stream(self, call: Call[P, R], /) -> Reply[Stream[R]]:
        try:
            reply = await self._inner.stream(call)
        except BaseException as failure:
            self._failed(call, failure)
            raise
        connection = connection_over(reply.value)
        return replaced(reply, connection.observe(call, self._observers))

    def _failed(self, call: AnyCall, failure: BaseException) -> None:
        if isinstance(failure, A2AError):
            complete(failure, call)
        self._observers.request_finished(call, failure)


class InterceptorLayer(PassThrough):
    """Runs the caller's interceptors around a call, and around each event of a stream."""

    def __init__(self, inner: Transport, hooks: ListenerSet) -> None:
        super().__init__(inner)
        self._hooks = hooks

    async def unary(self, call: Call[P, R], /) -> Reply[R]:
        asked: list[Interceptor] = []
        outcome: Reply[R] | A2AError
        try:
            answer = await _before(call, self._hooks.interceptors, asked)
            outcome = answer if isinstance(answer, Reply) else await self._inner.unary(answer)
        except A2AError as error:
            outcome = error
        return await _after(call, asked, outcome)

    async def stream(self, call: Call[P, R], /) -> Reply[Stream[R]]:
        asked: list[Interceptor] = []
        outcome: Reply[R] | A2AError
        try:
            answer = await _before(call, self._hooks.interceptors, asked)
            if not isinstance(answer, Reply):
                opened = await self._inner.stream(answer)
                after = partial(_after, call, asked)
                return replaced(opened, InterceptedStream(opened.value, call, opened, after))
            outcome = answer
        except A2AError as error:
            outcome = error
        instead = await _after(call, asked, outcome)
        return replaced(instead, OneEvent(instead.value))


class DeadlineLayer(PassThrough):
    """Ends the call at its deadline, or when the client is closed.

    All ends of a call come together here, so that this layer also says what a failure means for
    what was asked.
    """

    def __init__(self, inner: Transport) -> None:
        super().__init__(inner)
        self._in_flight = PerLoop(_InFlight)

    def unary(self, call: Call[P, R], /) -> Coroutine[Any, Any, Reply[R]]:
        return self._bounded(call, self._inner.unary(call))

    async def stream(self, call: Call[P, R], /) -> Reply[Stream[R]]:
        reply = await self._bounded(call, self._inner.stream(call))
        if call.deadline.ends_at_first_event:
            call = msgspec.structs.replace(call, deadline=NEVER)
        return replaced(reply, self._connection(reply.value, call))

    async def _bounded(self, call: AnyCall, waiting: Coroutine[Any, Any, T]) -> T:
        in_flight = self._in_flight.here()
        limit = TimeLimit(in_flight.watchdog, call.deadline.at)
        try:
            with limit:
                return await waiting
        except A2AError as error:
            meaning = self._meaning(error, call)
            if meaning is error:
                raise
            raise meaning from error
        except TimeoutError:
            if not limit.fired:
                raise
        finally:
            if in_flight.drained is not None:
                in_flight.one_is_over()
        end = ended(call, is_closed=limit.ended)
        meaning = self._meaning(end, call)
        raise meaning from (None if meaning is end else end)

    def _connection(self, stream: Stream[T], call: AnyCall) -> Connection[T]:
        """The stream that was opened, no event of which is waited for longer than the call may."""
        in_flight = self._in_flight.here()
        bounds = Bounds(
            watchdog=in_flight.watchdog,
            at=call.deadline.at,
            left=in_flight.one_is_over,
            error=lambda is_closed: ended(call, is_closed=is_closed),
        )
        return connection_over(stream).bound(bounds)

    def _meaning(self, error: A2AError, call: AnyCall) -> A2AError:
        """The error of a call in terms of what was asked for."""
        return with_outcome(error, call)

    async def close(self) -> None:
        """Ends the calls in flight in this event loop, and frees what is below."""
        await self._in_flight.here().end()
        await self._inner.close()


class OpeningLayer(DeadlineLayer):
    """The same for requests of which only the reply tells whether it is a stream of events.

    Such a stream may go on for as long as it brings something; any other body is part of the call.
    What a failure means is for those to say who know what they asked for.
    """

    def _meaning(
        self,
        error: A2AError,
        call: AnyCall,  # noqa: ARG002  which may be of any kind
    ) -> A2AError:
        return error

    async def stream(self, call: Call[P, R], /) -> Reply[Stream[R]]:
        reply = await self._bounded(call, self._inner.stream(call))
        if media_type(reply.headers) == EVENT_STREAM:
            call = msgspec.structs.replace(call, deadline=NEVER)
        return replaced(reply, self._connection(reply.value, call))


class _InFlight:
    """The calls in flight in one event loop.

    Attributes:
        watchdog: Keeps their deadlines.
        drained: Set when the last of them is over; None while nobody waits for that.
    """

    def __init__(self) -> None:
        self.watchdog = Watchdog()
        self.drained: asyncio.Event | None = None

    def one_is_over(self) -> None:
        """Note the end of a call."""
        if self.drained is not None and self.watchdog.idle:
            self.drained.set()

    async def end(self) -> None:
        """End them all, and give them time to close what they hold."""
        if self.watchdog.idle:
            return
        self.watchdog.end_all()
        self.drained = self.drained or asyncio.Event()
        async with CancelScope.within(_CLOSE_GRACE_S):
            await self.drained.wait()


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


async def _by_deadline(call: AnyCall, awaitable: Awaitable[T]) -> T:
    return await wait_until(call.deadline.at, awaitable, lambda: deadline_exceeded(call))


async def _with_last_word(call: AnyCall, hook: Awaitable[T]) -> T:
    """Waits for a caller's hook within the call's deadline, or for a last word after it."""
    now = asyncio.get_running_loop().time()
    at = max(call.deadline.at, now + _CLOSE_GRACE_S)
    return await wait_until(at, hook, lambda: deadline_exceeded(call))
