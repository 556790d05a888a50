"""Whether a stream that somebody else reads may end where it ends.

The rules are those of a client's own streams (`holdfast._stream.machine`), but for these, since
whoever reads here is to be told of no cut that is none:
- What cannot be understood may have been the last thing to be said: an event that nobody here can
  read, or of a kind or with a state that nobody here knows. So may an error, of any form, which
  whoever reads the stream finds in it.
- A task that waits for an authorization may end its stream, as one that waits for input may:
  servers of the official SDK end it when the agent returns, and are then sent the credentials in
  another message. A client of Holdfast asks what is true; here nobody can.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast._wire.bindings import CODECS
from holdfast._wire.http import HttpReply
from holdfast._wire.limits import check_json_size
from holdfast.errors import A2AError
from holdfast.types import Message, TaskArtifactUpdateEvent, TaskState

if TYPE_CHECKING:
    from holdfast._integrations.recognition import Recognized
    from holdfast._wire.limits import Limits
    from holdfast._wire.sse import ServerSentEvent
    from holdfast.types import StreamResponse

__all__ = ["Ending"]

_GOES_ON = frozenset({TaskState.SUBMITTED, TaskState.WORKING})
"""What a task cannot be left at. One that is not known (`UNSPECIFIED`) is, by servers of 0.3."""


class Ending:
    """What is known of the end of a stream, from the events that have passed.

    Args:
        recognized: What the stream answers: an operation of the protocol that streams.
        limits: Bounds the JSON that is looked at; of what is more, it is not known what it says.
    """

    def __init__(self, recognized: Recognized, limits: Limits) -> None:
        self._operation = recognized.operation
        self._request_id = recognized.request_id
        self._codec = CODECS[recognized.binding, recognized.version]
        self._read = self._codec.reader(self._operation, self._request_id)
        self._limits = limits
        self._may_end = False
        self._has_begun = False
        self._state: TaskState | None = None  # as last told

    @property
    def missing(self) -> str | None:
        """What is not there if the stream ends now; None if it may."""
        if not self._has_begun:
            return "without an event"
        if self._may_end or (self._state is not None and self._state not in _GOES_ON):
            return None
        state = "" if self._state is None else f": it is {self._state.value}"
        return f"before the task came to an end{state}"

    def passed(self, event: ServerSentEvent) -> None:
        """Notes an event of the stream."""
        if self._may_end:
            return
        is_first, self._has_begun = not self._has_begun, True
        response = None if event.event == "error" else self._understood(event.data)
        told = None if response is None else response.event
        if told is None or (self._codec.is_last is not None and self._codec.is_last(response)):
            self._may_end = True
        elif isinstance(told, Message):
            self._may_end = is_first
        elif not isinstance(told, TaskArtifactUpdateEvent):
            self._state = state = told.status.state
            self._may_end = state.is_terminal

    def _understood(self, data: bytes) -> StreamResponse | None:
        """What an event says; None if that is an error, or cannot be read."""
        try:
            check_json_size(data, self._limits)
            response: StreamResponse | None = self._read(data)
            if response is None:
                response = self._codec.decode(
                    self._operation,
                    self._request_id,
                    HttpReply(status=200, headers={}, body=data),
                    now=0.0,  # when to come again is not asked
                    refusals=frozenset(),
                )
        except A2AError:
            return None
        return response
