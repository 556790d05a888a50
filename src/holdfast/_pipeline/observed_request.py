"""A request of an operation: observers learn of its start and its end, each once."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from holdfast._pipeline.call_errors import complete
from holdfast._pipeline.transport import CallProgress
from holdfast.errors import A2AError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from holdfast._model.operations import Operation
    from holdfast._pipeline.caller_operation import CallerOperation
    from holdfast._pipeline.listeners import Observers
    from holdfast._pipeline.transport import AnyCall, Call, Reply

__all__ = ["ObservedRequest", "make_beside"]

P = TypeVar("P")
R = TypeVar("R")


class ObservedRequest:
    """Reports the start of a request when it is created, and its end once.

    A request outside of an operation, such as one of the HTTP transports for other libraries, is
    an operation of its own.

    Args:
        call: The call of the request.
        observers: The observers to notify.

    Attributes:
        attempts: Number of its attempts that have started, if they are observed.
    """

    def __init__(self, call: AnyCall, observers: Observers) -> None:
        progress = call.progress
        self._call: AnyCall | None = call
        self._observers = observers
        self.attempts = 0
        self._own: CallerOperation | None = None
        self._operation = progress.operation
        if self._operation is None:
            is_observed = observers.are_active()
            self._own = self._operation = observers.operation_of(call, is_observed=is_observed)
            self._own.begin()
            self._own.add_request(call.operation.name, None, request_id=call.request_id)
        self._operation.requests += 1
        if self._operation.is_observed:
            self._operation.open_requests[call.request_id] = self
            observers.request_started(call)

    def complete(self, error: A2AError) -> None:
        """Add the names of the request to its error, and hide what it carries."""
        if self._call is not None:
            complete(error, self._call)

    def finish(self, error: BaseException | None, value: object = None) -> None:
        """Report the end of the request, once.

        Args:
            error: The error with which it ends; None where there is none.
            value: The value of its reply.
        """
        call, self._call = self._call, None
        operation = self._operation
        if call is None or operation is None:
            return
        if isinstance(error, A2AError):
            complete(error, call)
        operation.keep_attempts(call, error)
        if operation.is_observed:
            operation.note(value)
            operation.open_requests.pop(call.request_id, None)
            duration = operation.now() - call.progress.began
            self._observers.request_finished(
                call, error, attempts=self.attempts, duration=duration
            )
        else:
            operation.note_later(value)
        if self._own is not None:
            self._own.finish(error)


async def make_beside(
    call: AnyCall,
    operation: Operation[P, R],
    params: P,
    make: Callable[[Call[P, R]], Awaitable[Reply[R]]],
    *,
    progress: CallProgress | None = None,
) -> Reply[R]:
    """Make a request of a layer's own for a call, such as a probe, as a request of its operation.

    Args:
        call: The call.
        operation: The operation of the request.
        params: Its parameters.
        make: Makes the request.
        progress: The progress of the request; a new one if left out.
    """
    if progress is None:
        began = asyncio.get_running_loop().time()
        progress = CallProgress(began=began, call_group=call.progress.call_group)
    beside: Any = msgspec.structs.replace(
        call, operation=operation, params=params, is_retried=False, progress=progress
    )
    caller_operation = progress.operation = progress.operation or call.progress.operation
    if caller_operation is None:  # a custom layer makes the call: no request of it is reported
        return await make(beside)
    request_id = caller_operation.add_request(operation.name, params)
    beside = msgspec.structs.replace(beside, request_id=request_id)
    request = ObservedRequest(beside, caller_operation.observers)
    try:
        reply = await make(beside)
    except BaseException as failure:
        request.finish(failure)
        raise
    request.finish(None)
    return reply
