"""The layer that makes one attempt: it is observed, timed and recorded, whatever its outcome."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, TypeVar

import msgspec

from holdfast._pipeline.call_errors import complete_attempt
from holdfast._pipeline.transport import AnyCall, Call, CallNext, ExtensibleLayer, Reply, Transport
from holdfast.errors import A2AError, Attempt

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast._pipeline.listeners import Observers

__all__ = ["AttemptLayer"]

P = TypeVar("P")
R = TypeVar("R")
T = TypeVar("T")


class AttemptLayer(ExtensibleLayer):
    """Makes one attempt: counts it, reports it, completes its error and adds it to the list.

    Only this layer writes the record of a call's attempts.
    """

    def __init__(self, inner: Transport, observers: Observers) -> None:
        super().__init__(inner)
        self._observers = observers

    async def handle(self, call: Call[P, R], call_next: CallNext[P, R, T], /) -> Reply[T]:
        progress, endpoint = call.progress, call.endpoint
        call_group = progress.call_group
        is_send = call.operation.safety == "conditional"
        if is_send and call_group.check_held is not None:
            await call_group.check_held()
        clock = (call_group.loop or asyncio.get_running_loop()).time
        started = clock()
        if progress.attempts:
            progress.note_start(started)
            call = msgspec.structs.replace(call, attempt=len(progress.attempts) + 1)
        progress.endpoint = endpoint
        if endpoint is not None:
            endpoint.last_used = started
            endpoint.attempts += 1
        if is_send:
            call_group.sends += 1
        attempt = _StartedAttempt(call, self._observers, clock, started)
        try:
            reply = await call_next(call)
        except A2AError as error:
            complete_attempt(error, call)
            progress.end_request()
            attempt.finish(error, executed=error.executed)
            raise
        except BaseException as failure:  # else the request would seem to have had no attempt
            attempt.finish(failure, executed=None if progress.request.sent else False)
            raise
        attempt.finish(None, executed=True)
        attempts = tuple(progress.attempts)
        return msgspec.structs.replace(reply, endpoint=endpoint, attempts=attempts)


class _StartedAttempt:
    """An attempt that has started: its end is reported, and it is added to the list."""

    __slots__ = ("_call", "_clock", "_id", "_observers", "_started")

    def __init__(
        self, call: AnyCall, observers: Observers, clock: Callable[[], float], started: float
    ) -> None:
        self._call, self._observers = call, observers
        self._clock, self._started = clock, started
        self._id: str | None = None  # unless it is reported
        operation = call.progress.operation
        if operation is not None:
            self._id = operation.add_attempt(call)
            if self._id is not None:
                observers.attempt_started(call, self._id)

    def finish(self, error: BaseException | None, *, executed: bool | None) -> None:
        """Report the end of the attempt, and record it."""
        call, duration = self._call, self._clock() - self._started
        if self._id is not None:
            self._observers.attempt_finished(call, self._id, duration=duration, error=error)
        endpoint, progress = call.endpoint, call.progress
        progress.attempts.append(
            Attempt(
                number=call.attempt,
                method=call.operation.name,
                agent="" if endpoint is None else endpoint.agent,
                started=self._started - progress.began,
                duration=duration,
                error=None if error is None else _in_one_line(error),
                executed=executed,
            )
        )


def _in_one_line(error: BaseException) -> str:
    """Return the reason of a failure."""
    if isinstance(error, A2AError):
        return f"{type(error).__name__}: {error}"
    if isinstance(error, asyncio.CancelledError):
        return "cancelled while in flight"
    return type(error).__name__
