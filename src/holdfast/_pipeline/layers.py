"""The layers of a whole call; `holdfast._pipeline.order` has their order.

Rules: a layer never swallows a cancellation, waits only within the call's deadline, and leaves
nothing running. Decisions are made by pure functions of `holdfast._policy`.
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
from holdfast._model.sdk_values import kind_of
from holdfast._pipeline.call_errors import complete, deadline_exceeded, ended, with_outcome
from holdfast._pipeline.connection import (
    Bounds,
    Connection,
    connection_over,
)
from holdfast._pipeline.layer_streams import InterceptedStream, OneEvent, with_stream
from holdfast._pipeline.observed_request import ObservedRequest
from holdfast._pipeline.transport import (
    AnyCall,
    BaseLayer,
    Call,
    CallNext,
    ExtensibleLayer,
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
from holdfast.types import Message, SendMessageResponse, StreamResponse, Task

if TYPE_CHECKING:
    from collections.abc import Awaitable, Coroutine, Sequence

    from holdfast._pipeline.caller_operation import CallerOperation
    from holdfast._pipeline.listeners import Interceptor, ListenerSet, Observers
    from holdfast._wire.network_scope import NetworkReach

__all__ = [
    "CompletingLayer",
    "DeadlineLayer",
    "InterceptorLayer",
    "ObservedLayer",
    "OpeningLayer",
    "ReachLayer",
]

P = TypeVar("P")
R = TypeVar("R")
T = TypeVar("T")


class ReachLayer(BaseLayer):
    """Restricts the networks that calls may reach, over any binding.

    Args:
        inner: The transport below.
        reach: The most private network that a call may reach.
    """

    def __init__(self, inner: Transport, reach: NetworkReach) -> None:
        super().__init__(inner)
        self._reach = reach

    def handle(
        self, call: Call[P, R], call_next: CallNext[P, R, T], /
    ) -> Coroutine[Any, Any, Reply[T]]:
        """Make the call within the restriction."""
        if call.reach is None:
            call = msgspec.structs.replace(call, reach=self._reach)
        return call_next(call)


_CLOSE_GRACE_S = 1.0
"""Seconds that an interceptor has after the call's deadline, and that a call has to close."""


class ObservedLayer(ExtensibleLayer):
    """Reports the start and the end of a request to observers, and completes its error."""

    def __init__(self, inner: Transport, observers: Observers) -> None:
        super().__init__(inner)
        self._observers = observers

    def unary(self, call: Call[P, R], /) -> Coroutine[Any, Any, Reply[R]]:
        operation = call.progress.operation
        if operation is not None and not operation.is_observed:
            return self._unobserved(call, operation)
        return self._observed(call)

    async def _observed(self, call: Call[P, R]) -> Reply[R]:
        request = ObservedRequest(call, self._observers)
        try:
            reply = await self._inner.unary(call)
        except BaseException as failure:
            request.finish(failure)
            raise
        request.finish(None, reply.value)
        return reply

    async def _unobserved(self, call: Call[P, R], operation: CallerOperation) -> Reply[R]:
        """Make a request that nothing observes: only its operation learns of it."""
        operation.requests += 1
        try:
            reply = await self._inner.unary(call)
        except BaseException as failure:
            if isinstance(failure, A2AError):
                complete(failure, call)
            operation.keep_attempts(call, failure)
            raise
        if call.operation.safety == "conditional":
            operation.keep_attempts(call, None)
        operation.note_later(reply.value)
        return reply

    async def stream(self, call: Call[P, R], /) -> Reply[Stream[R]]:
        request = ObservedRequest(call, self._observers)
        try:
            reply = await self._inner.stream(call)
        except BaseException as failure:
            request.finish(failure)
            raise
        return with_stream(reply, connection_over(reply.value).observe(request))


class CompletingLayer(ExtensibleLayer):
    """Completes the error of a call that makes its requests elsewhere, such as for the card."""

    async def unary(self, call: Call[P, R], /) -> Reply[R]:
        try:
            return await self._inner.unary(call)
        except A2AError as error:
            complete(error, call)
            raise


class InterceptorLayer(BaseLayer):
    """Runs the caller's interceptors around a call, and around each event of a stream."""

    def __init__(self, inner: Transport, hooks: ListenerSet) -> None:
        super().__init__(inner)
        self._hooks = hooks

    async def unary(self, call: Call[P, R], /) -> Reply[R]:
        entered: list[Interceptor] = []
        outcome: Reply[R] | A2AError
        try:
            answer = await _before(call, self._hooks.interceptors, entered)
            outcome = answer if isinstance(answer, Reply) else await self._inner.unary(answer)
        except A2AError as error:
            outcome = error
        return await _after(call, entered, outcome)

    async def stream(self, call: Call[P, R], /) -> Reply[Stream[R]]:
        entered: list[Interceptor] = []
        outcome: Reply[R] | A2AError
        try:
            answer = await _before(call, self._hooks.interceptors, entered)
            if not isinstance(answer, Reply):
                opened = await self._inner.stream(answer)
                after = partial(_after, call, entered)
                return with_stream(opened, InterceptedStream(opened.value, call, opened, after))
            outcome = answer
        except A2AError as error:
            outcome = error
        replacement = await _after(call, entered, outcome)
        return with_stream(replacement, OneEvent(replacement.value))


class DeadlineLayer(BaseLayer):
    """Ends the call at its deadline, or when the client is closed.

    Every end of a call passes this layer, so it also decides what an error means for the
    operation.
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
        return with_stream(reply, self._connection(reply.value, call))

    async def _bounded(self, call: AnyCall, waiting: Coroutine[Any, Any, T]) -> T:
        in_flight = self._in_flight.here(call.progress.call_group.loop)
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
                in_flight.note_end()
        end = ended(call, is_closed=limit.ended)
        meaning = self._meaning(end, call)
        raise meaning from (None if meaning is end else end)

    def _connection(self, stream: Stream[T], call: AnyCall) -> Connection[T]:
        """Return the opened stream with waits that are bounded by the call's deadline."""
        in_flight = self._in_flight.here()
        bounds = Bounds(
            watchdog=in_flight.watchdog,
            at=call.deadline.at,
            left=in_flight.note_end,
            error=lambda is_closed: ended(call, is_closed=is_closed),
        )
        return connection_over(stream).bound(bounds)

    def _meaning(self, error: A2AError, call: AnyCall) -> A2AError:
        """Return the error of a call in terms of its operation."""
        return with_outcome(error, call)

    async def close(self) -> None:
        """End the calls in flight in this event loop, and close the transport below."""
        await self._in_flight.here().end()
        await self._inner.close()


class OpeningLayer(DeadlineLayer):
    """Does the same for requests that may be answered by a stream, as only the reply shows.

    Such a stream has no time limit while it delivers events; any other body is part of the call.
    The code that makes the request decides what an error means.
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
        return with_stream(reply, self._connection(reply.value, call))


class _InFlight:
    """The calls in flight in one event loop.

    Attributes:
        watchdog: Keeps their deadlines.
        drained: Set when the last of them is over; None while no close waits for that.
    """

    def __init__(self) -> None:
        self.watchdog = Watchdog()
        self.drained: asyncio.Event | None = None

    def note_end(self) -> None:
        """Note that a call has ended."""
        if self.drained is not None and self.watchdog.idle:
            self.drained.set()

    async def end(self) -> None:
        """End all calls, and give them time to close their connections."""
        if self.watchdog.idle:
            return
        self.watchdog.end_all()
        self.drained = self.drained or asyncio.Event()
        async with CancelScope.within(_CLOSE_GRACE_S):
            await self.drained.wait()


async def _before(
    call: Call[P, R], interceptors: Sequence[Interceptor], entered: list[Interceptor]
) -> Call[P, R] | Reply[R]:
    """Return the call, or the reply, of the interceptors; adds those that ran to ``entered``."""
    for interceptor in interceptors:
        entered.append(interceptor)
        hook = _hook(interceptor, "before", interceptor.before(call))
        answer = await _by_deadline(call, hook)
        if isinstance(answer, Reply):
            _check_early_value(interceptor, call, answer.value)
            return answer
        if not isinstance(cast("object", answer), Call):
            raise _returns(interceptor, "before", "the call to make or a Reply", answer)
        call = answer
    return call


def _check_early_value(interceptor: Interceptor, call: AnyCall, value: object) -> None:
    """Check the value of an early reply, which the client handles as the agent's."""
    expected = call.operation.response
    if not isinstance(value, expected):
        name = expected.__name__
        text = (
            f"{type(interceptor).__name__}.before answered {call.operation.name} with a wrong "
            f"value: the value of the Reply must be {name}, not {kind_of(value, expected)}"
        )
        if expected in {SendMessageResponse, StreamResponse} and isinstance(value, Task | Message):
            text += f"; pass {name}({type(value).__name__.lower()}=…)"
        raise TypeError(text)


async def _after(
    call: Call[P, R], entered: Sequence[Interceptor], outcome: Reply[R] | A2AError
) -> Reply[R]:
    """Pass an outcome to the interceptors that ran before; raise it if it is an error."""
    for interceptor in reversed(entered):
        try:
            hook = _hook(interceptor, "after", interceptor.after(call, outcome))
            result = await _with_grace_period(call, hook)
        except A2AError as error:
            if isinstance(outcome, Reply):
                error.executed, error.transient = True, False
            result = error
        if not isinstance(cast("object", result), Reply | A2AError):
            failure = outcome if isinstance(outcome, A2AError) else None
            raise _returns(interceptor, "after", "a Reply or an A2AError", result) from failure
        outcome = result
    if isinstance(outcome, A2AError):
        raise outcome
    return outcome


def _hook(interceptor: Interceptor, name: str, hook: Awaitable[T]) -> Awaitable[T]:
    """Check that a hook returned an awaitable: ``async`` is easily forgotten."""
    if not isawaitable(cast("object", hook)):
        message = f"{type(interceptor).__name__}.{name} must be written with async def"
        raise TypeError(message)
    return hook


def _returns(interceptor: Interceptor, name: str, expected: str, value: object) -> TypeError:
    """Return the error of a hook that returned another type."""
    kind = kind_of(value)
    return TypeError(f"{type(interceptor).__name__}.{name} must return {expected}, not {kind}")


async def _by_deadline(call: AnyCall, awaitable: Awaitable[T]) -> T:
    return await wait_until(call.deadline.at, awaitable, lambda: deadline_exceeded(call))


async def _with_grace_period(call: AnyCall, hook: Awaitable[T]) -> T:
    """Run a caller's hook until the call's deadline, or for a grace period after it."""
    now = asyncio.get_running_loop().time()
    deadline = max(call.deadline.at, now + _CLOSE_GRACE_S)
    return await wait_until(deadline, hook, lambda: deadline_exceeded(call))
