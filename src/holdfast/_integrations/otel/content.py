"""The content of messages as attributes of spans, which a program must ask for.

The form is that of the semantic conventions for generative AI: ``gen_ai.input.messages`` and
``gen_ai.output.messages``, JSON arrays of messages with their parts. The bytes of files are left
out, and so are credentials in the addresses of files.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from holdfast.extend import StreamWrapper, presentable
from holdfast.types import (
    Message,
    SendMessageRequest,
    SendMessageResponse,
    StreamResponse,
    Task,
    TaskArtifactUpdateEvent,
    TaskStatusUpdateEvent,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from holdfast.extend import Stream
    from holdfast.types import Part

__all__ = ["Content", "RecordedStream", "parts_of"]

_MAX_LENGTH = 65_536
"""Largest length of the JSON of the parts of an attribute, in bytes."""


class RecordedStream(StreamWrapper[Any]):
    """Passes each event of a stream to a function.

    Args:
        inner: The stream.
        record: The function.
    """

    def __init__(self, inner: Stream[Any], record: Callable[[object], None]) -> None:
        super().__init__(inner)
        self._record = record

    async def __anext__(self) -> Any:
        event = await self._inner.__anext__()
        self._record(event)
        return event


class Content:
    """The parts of a message, as JSON of a bounded length.

    Args:
        role: Its author: ``"user"``, or ``"assistant"`` for the agent.
    """

    def __init__(self, role: str) -> None:
        self._role = role
        self._parts: list[msgspec.Raw] = []
        self._length = 0

    def add(self, parts: Iterable[Part]) -> None:
        """Add parts until one does not fit; then this call and all later ones add nothing more."""
        for part in parts:
            encoded = msgspec.json.encode(_described(part))
            self._length += len(encoded)
            if self._length > _MAX_LENGTH:
                return
            self._parts.append(msgspec.Raw(encoded))

    def to_json(self) -> str:
        """Return the message, as the only one of an array."""
        return msgspec.json.encode([{"role": self._role, "parts": self._parts}]).decode()


def parts_of(value: object) -> list[Part]:
    """Return the parts in a request, a reply or an event; empty for none."""
    if isinstance(value, SendMessageRequest):
        value = value.message
    elif isinstance(value, SendMessageResponse):
        value = value.task or value.message
    elif isinstance(value, StreamResponse):
        value = value.event
    if isinstance(value, Message):
        return [*value.parts]
    if isinstance(value, TaskArtifactUpdateEvent):
        return [*value.artifact.parts]
    parts: list[Part] = []
    if isinstance(value, Task):
        parts.extend(part for artifact in value.artifacts for part in artifact.parts)
    if isinstance(value, Task | TaskStatusUpdateEvent) and value.status.message is not None:
        parts.extend(value.status.message.parts)
    return parts


def _described(part: Part) -> dict[str, Any]:
    if part.text is not None:
        return {"type": "text", "content": part.text}
    if part.url is not None:
        return {"type": "uri", "uri": presentable(part.url), "mime_type": part.media_type}
    if part.raw is not None:
        return {"type": "blob", "mime_type": part.media_type, "size": len(part.raw)}
    return {"type": "data", "content": part.data}
