"""The span of a request to a push receiver."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING

import msgspec

from holdfast._asgi import ASGIScope, header_map
from holdfast._model.server_spans import ServerActivity
from holdfast.types import Message, Task, TaskStatusUpdateEvent

if TYPE_CHECKING:
    from holdfast._model.server_spans import ServerSpan, ServerTelemetry
    from holdfast.types import Event

__all__ = ["DeliverySpan"]


class DeliverySpan:
    """The span of one request; nothing without telemetry.

    Args:
        telemetry: Makes the span; None for no span.
        url: The address of the receiver.
        scope: The scope of the request.
    """

    def __init__(self, telemetry: ServerTelemetry | None, url: str, scope: ASGIScope) -> None:
        self._span: ServerSpan | None = None
        if telemetry is not None:
            headers = header_map(scope.get("headers") or ())
            self._activity = ServerActivity(kind="delivery", endpoint=url, headers=headers)
            self._span = telemetry.start_span(self._activity)

    def attached(self) -> AbstractContextManager[None]:
        """Return a context in which the span is the current one."""
        return nullcontext() if self._span is None else self._span.attached()

    def end(
        self,
        status: int | None = None,
        event: Event | None = None,
        error: BaseException | None = None,
    ) -> None:
        """End the span.

        Args:
            status: The HTTP status of the answer; None for no answer.
            event: The event of an accepted delivery.
            error: The error that prevented an answer.
        """
        if self._span is None:
            return
        activity = msgspec.structs.replace(self._activity, http_status=status)
        if event is not None:
            activity = msgspec.structs.replace(
                activity,
                task_id=event.id if isinstance(event, Task) else event.task_id,
                context_id=event.context_id,
                message_id=event.message_id if isinstance(event, Message) else None,
                state=event.status.state
                if isinstance(event, Task | TaskStatusUpdateEvent)
                else None,
            )
        self._span.end(activity, error)
