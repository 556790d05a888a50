"""The seam between servers or push receivers and a tracing library, such as OpenTelemetry.

They report a `ServerActivity` to a `ServerTelemetry`, and get a `ServerSpan`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Literal, Protocol

import msgspec

from holdfast.types import TaskState

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

__all__ = [
    "ActivityKind",
    "ServerActivity",
    "ServerSpan",
    "ServerTelemetry",
]

ActivityKind = Literal["request", "push", "delivery"]
"""Kind of a `ServerActivity`: an A2A request that a server answers, a push notification that it
sends, or the delivery of one that a push receiver answers."""


class ServerActivity(msgspec.Struct, frozen=True, kw_only=True):
    """A request, a push or a delivery that a server or a push receiver handles, in one span.

    Fields that are not known, or not yet, are None.

    Attributes:
        kind: The kind of the activity (`ActivityKind`).
        method: The A2A method of a request, such as ``SendMessage``.
        endpoint: The address that was called: the agent's for a request, the receiver's for a push
            or a delivery.
        version: The protocol version that a request names.
        tenant: The tenant that a request names.
        message_id: Id of the client's message.
        task_id: Id of the task.
        context_id: Id of the conversation.
        state: The latest state of the task.
        http_status: The HTTP status of the reply to a push or a delivery.
        headers: The headers or gRPC metadata that were received, names in lower case. They include
            credentials.
    """

    kind: ActivityKind
    method: str | None = None
    endpoint: str | None = None
    version: str | None = None
    tenant: str | None = None
    message_id: str | None = None
    task_id: str | None = None
    context_id: str | None = None
    state: TaskState | None = None
    http_status: int | None = None
    headers: Mapping[str, str] = {}

    def __repr__(self) -> str:
        return (
            f"ServerActivity(kind={self.kind!r}, method={self.method!r})"  # headers hold secrets
        )


class ServerSpan(Protocol):
    """The span of a `ServerActivity`."""

    def attached(self) -> AbstractContextManager[None]:
        """Return a context in which the span is the current one; not to be held across a yield."""
        ...

    def headers(self) -> Mapping[str, str]:
        """Return the headers that carry the trace context to the receiver of a push.

        A client chose the receiver: tracestate and baggage do not belong into them. The headers of
        the push itself, such as ``content-type``, take precedence.
        """
        ...

    def end(self, activity: ServerActivity, error: BaseException | None = None) -> None:
        """End the span; a second call does nothing.

        Args:
            activity: The activity with the fields that are known at its end.
            error: The error that ended it; None for none.
        """
        ...


class ServerTelemetry(Protocol):
    """Makes the spans of servers and push receivers; the first failure is logged as a warning."""

    def start_span(
        self, activity: ServerActivity, parent: ServerSpan | None = None, /
    ) -> ServerSpan:
        """Start the span of an activity.

        Args:
            activity: The activity.
            parent: The span that caused it, for a push; None if unknown. The parent of a request
                is in its headers.
        """
        ...
