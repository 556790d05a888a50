"""The layer that is one attempt: it is observed, timed and written down, whatever comes of it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, TypeVar

import msgspec

from holdfast._pipeline.transport import AnyCall, Call, CallNext, PassThrough, Reply, Transport
from holdfast.errors import A2AError, Attempt

if TYPE_CHECKING:
    from holdfast._pipeline.listeners import Observers

__all__ = ["AttemptLayer"]

P = TypeVar("P")
R = TypeVar("R")
T = TypeVar("T")


class AttemptLayer(PassThrough):
    """Notes each attempt in the call's progress, and gives its error what is known of it."""

    def __init__(self, inner: Transport, observers: Observers) -> None:
        super().__init__(inner)
        self._observers = observers

    async def through(self, call: Call[P, R], onward: CallNext[P, R, T], /) -> Reply[T]:
        loop, progress, endpoint = asyncio.get_running_loop(), call.progress, call.endpoint
        started = loop.time()
        if progress.attempts:
            progress.goes_on(started)
            call = msgspec.structs.replace(call, attempt=len(progress.attempts) + 1)
        progress.endpoint = endpoint
        if endpoint is not None:
            endpoint.used = started
            endpoint.attempts += 1
        progress.call_group.sends += call.operation.safety == "conditional"
        progress.sent = progress.lacks_credentials = False
        self._observers.attempt_started(call)
        try:
            reply = await onward(call)
        except A2AError as error:
            duration = loop.time() - started
            progress.secrets.hide_in(error)  # before anybody is told of it
            error.request_id, error.traceparent = call.request_id, call.headers.get("traceparent")
            error.agent = error.agent or call.agent
            progress.settle_executed(error)
            self._observers.attempt_failed(call, error, duration=duration)
            what = f"{type(error).__name__}: {error}"
            _note(call, started, duration, what, executed=error.executed)
            raise
        except asyncio.CancelledError:
            executed = None if progress.sent else False
            what = "cancelled while in flight"
            _note(call, started, loop.time() - started, what, executed=executed)
            raise
        _note(call, started, loop.time() - started, executed=True)
        return msgspec.structs.replace(reply, attempts=tuple(progress.attempts))


def _note(
    call: AnyCall,
    started: float,
    duration: float,
    error: str | None = None,
    *,
    executed: bool | None,
) -> None:
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
