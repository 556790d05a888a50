"""The layer that makes one attempt: it is observed, timed and recorded, whatever its outcome."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, TypeVar

import msgspec

from holdfast._pipeline.call_errors import complete_attempt
from holdfast._pipeline.transport import AnyCall, Call, CallNext, ExtensibleLayer, Reply, Transport
from holdfast.errors import A2AError, Attempt

if TYPE_CHECKING:
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
        if call_group.is_observed:
            self._observers.attempt_started(call)
        try:
            reply = await call_next(call)
        except A2AError as error:
            duration = clock() - started
            complete_attempt(error, call)
            progress.end_request()
            self._observers.attempt_failed(call, error, duration=duration)
            outcome = f"{type(error).__name__}: {error}"
            _add(call, started, duration, outcome, executed=error.executed)
            raise
        except BaseException as failure:  # else the request would seem to have had no attempt
            executed = None if progress.request.sent else False
            is_cancelled = isinstance(failure, asyncio.CancelledError)
            outcome = "cancelled while in flight" if is_cancelled else type(failure).__name__
            _add(call, started, clock() - started, outcome, executed=executed)
            raise
        _add(call, started, clock() - started, executed=True)
        attempts = tuple(progress.attempts)
        return msgspec.structs.replace(reply, endpoint=endpoint, attempts=attempts)


def _add(
    call: AnyCall,
    started: float,
    duration: float,
    error: str | None = None,
    *,
    executed: bool | None,
) -> None:
    """Record an attempt of a call."""
    endpoint, progress = call.endpoint, call.progress
    progress.attempts.append(
        Attempt(
            number=call.attempt,
            agent="" if endpoint is None else endpoint.agent,
            started=started - progress.began,
            duration=duration,
            error=error,
            executed=executed,
        )
    )
