"""The end of a stream that another library reads: regular, or a cut.

The rules are those of a client's own streams (`holdfast._stream.machine`), with these differences,
since a regular end must not be reported as a cut:
- An event that cannot be understood may be the last one: an unreadable event, or one of an unknown
  kind or with an unknown state. So may an error of any form, which the reader of the stream finds
  in it.
- A task that waits for an authorization may end its stream, as one that waits for input may:
  servers of the official SDK end it when the agent returns, and then get the credentials in
  another message. A client of Holdfast fetches the task; here that is not possible.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast._wire.bindings import codec_for
from holdfast._wire.http import HttpReply
from holdfast._wire.limits import check_json_size
from holdfast.errors import A2AError
from holdfast.types import Message, TaskArtifactUpdateEvent, TaskState

if TYPE_CHECKING:
    from holdfast._integrations.recognition import Recognized
    from holdfast._wire.limits import Limits
    from holdfast._wire.sse import ServerSentEvent
    from holdfast.types import StreamResponse

__all__ = ["StreamEndDetector"]

_UNFINISHED_STATES = frozenset({TaskState.SUBMITTED, TaskState.WORKING})
"""States at which a stream must not end. Servers of 0.3 do end one at `UNSPECIFIED`."""


class StreamEndDetector:
    """Decides from the events of a stream whether it may end.

    Args:
        recognized: The request that the stream answers: a streaming operation of the protocol.
        limits: Bounds of the JSON to decode; a larger event counts as not understood.
    """

    def __init__(self, recognized: Recognized, limits: Limits) -> None:
        self._operation = recognized.operation
        self._request_id = recognized.request_id
        self._codec = codec_for(recognized.binding, recognized.version)
        self._read = self._codec.reader(self._operation, self._request_id)
        self._limits = limits
        self._may_end = False
        self._has_begun = False
        self._state: TaskState | None = None  # of the last event that has one

    @property
    def missing(self) -> str | None:
        """Why the stream is cut if it ends now; None if it may end."""
        if not self._has_begun:
            return "without an event"
        if self._may_end or (self._state is not None and self._state not in _UNFINISHED_STATES):
            return None
        state = "" if self._state is None else f": it is {self._state.value}"
        return f"before the task ended{state}"

    def passed(self, event: ServerSentEvent) -> None:
        """Record an event of the stream."""
        if self._may_end:
            return
        is_first, self._has_begun = not self._has_begun, True
        response = None if event.event == "error" else self._decode(event.data)
        content = None if response is None else response.event
        if content is None or (self._codec.is_last is not None and self._codec.is_last(response)):
            self._may_end = True
        elif isinstance(content, Message):
            self._may_end = is_first
        elif not isinstance(content, TaskArtifactUpdateEvent):
            self._state = state = content.status.state
            self._may_end = state.is_terminal

    def _decode(self, data: bytes) -> StreamResponse | None:
        """Return the content of an event; None if it is an error, or cannot be decoded."""
        try:
            check_json_size(data, self._limits)
            response: StreamResponse | None = self._read(data)
            if response is None:
                response = self._codec.decode(
                    self._operation,
                    self._request_id,
                    HttpReply(status=200, headers={}, body=data),
                    now=0.0,  # only for Retry-After, which is not used
                    refusals=frozenset(),
                )
        except A2AError:
            return None
        return response
