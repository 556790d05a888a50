"""Which of the chunks that follow a subscription are new to the caller.

An agent that is subscribed to sends the task as it stands, and then what happens. But where in
the text the chunks that follow begin is not said. They may repeat what the caller has (the
official server repeated chunks in 36 of 200 subscriptions, and in 197 with a slower store), and
there may be text between the two that the caller lacks, because it was written while no
connection was open and the store is behind. Their content does not say it either: "ha" and "ha"
are two, and behind "ha" in a store that lags anything may stand that the chunk "ha" follows. Of
all places where chunks may belong, the one beyond all that is known is never ruled out by what is
known.

Rules:
- Of an artifact that the caller had before, chunks are not taken from the connection: they are the
  reason to ask for the task, and its text is (`holdfast._stream.outbox`). The price is to wait for
  the store, and nothing comes twice, is lost or has to be taken back.
- An artifact that the caller hears of for the first time with its first chunk is followed: from
  there on, all that comes is new.
- A whole artifact says what the text is, and so does what is appended to it. It is followed from
  where it has become a text that the artifact cannot have had before (`holdfast._stream.outbox`).
- Where there is no store, the connection is all there is. Then what follows the snapshot is new
  (A2A 3.1.6), and a whole artifact that begins like the known one repeats it until it goes on.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import msgspec

from holdfast._model import codec
from holdfast._stream.status_order import was_before
from holdfast.types import TaskArtifactUpdateEvent, TaskStatusUpdateEvent

if TYPE_CHECKING:
    from collections.abc import Iterable

    from holdfast._stream.outbox import EventOutbox
    from holdfast.types import Event, Part, Task

__all__ = ["FlattenedText", "OverlapResolver"]

_HELD = 1 << 20
"""Characters of chunks of an artifact to keep for the case that there turns out to be no store."""

_STANDS_IN = 0x100000
"""The first of the characters of no meaning (Unicode's plane 16, private use) that stand for parts
which are no plain text; there are 65,534 of them, and the last one stands for all others."""

_LAST = 0x10FFFD


class FlattenedText:
    """Writes parts as text, so that continuations are found by comparing; equal parts alike."""

    def __init__(self) -> None:
        self._characters: dict[bytes, str] = {}

    def text(self, parts: Iterable[Part]) -> str:
        """The text of parts one after the other, with a character for each that is no plain text.

        How an agent divides a text into parts does not count.
        """
        return "".join(self._written(part) for part in parts)

    def _written(self, part: Part) -> str:
        if part.text is not None and not part.metadata and not part.filename:
            return part.text
        code = min(_STANDS_IN + len(self._characters), _LAST)
        digest = hashlib.blake2b(codec.encode(part), digest_size=16).digest()
        return self._characters.setdefault(digest, chr(code))


class OverlapResolver:
    """What one connection brings, after the task was asked for.

    Args:
        outbox: What the caller has.
    """

    def __init__(self, outbox: EventOutbox) -> None:
        self._outbox = outbox
        self._status = None if (task := outbox.whole()) is None else task.status
        self._has_no_store = False
        self._followed: set[str] = set()
        self._pending: dict[str, _Pending] = {}

    @property
    def followed(self) -> frozenset[str]:
        """The artifacts of which everything that the connection brings is new."""
        return frozenset(self._followed)

    @property
    def is_behind(self) -> bool:
        """Whether the caller's task was not yet seen to hold what the connection brought."""
        return any(pending.is_missing for pending in self._pending.values())

    def filter(self, event: Event) -> list[Event]:
        """Takes what the connection brings, and gives what of it is new for certain."""
        if isinstance(event, TaskArtifactUpdateEvent):
            if event.artifact.artifact_id in self._followed:
                return [event]
            return self._place(event)
        if isinstance(event, TaskStatusUpdateEvent):
            if self._status is not None and was_before(event.status, self._status):
                return []
            self._status = None
        return [event]

    def merged(self, task: Task, *, is_ahead: bool = False) -> None:
        """The outbox has what the task shows, as it was asked for once more.

        Args:
            task: The task.
            is_ahead: Whether it may show what the connection has not brought yet.
        """
        if task.status == self._outbox.status:
            self._status = task.status
        if is_ahead:
            self._followed.clear()
        have = self._outbox.whole() if self._pending else None
        for artifact in () if have is None else have.artifacts:
            if (pending := self._pending.get(artifact.artifact_id)) is not None:
                pending.update_known(self._outbox.writing.text(artifact.parts))

    def drop_store(self) -> list[Event]:
        """Gives what is new where there is no store; `filter` does from here on."""
        self._has_no_store = True
        return [new for name in list(self._pending) for new in self._release(name)]

    def finish(self) -> list[Event]:
        """Gives what the connection ended with where there is no store."""
        whole: list[Event] = [
            self._follow(name)
            for name, pending in self._pending.items()
            if pending.is_whole and pending.text != pending.known
        ]
        self._pending.clear()
        return whole

    def _place(self, event: TaskArtifactUpdateEvent) -> list[Event]:
        """What is new of an artifact that is not followed."""
        artifact_id = event.artifact.artifact_id
        pending = self._pending.get(artifact_id)
        if pending is None:
            known = self._outbox.text_of(artifact_id)
            if self._begins(event, known):
                self._followed.add(artifact_id)
                return [event]
            pending = self._pending[artifact_id] = _Pending(known or "")
        pending.add(event, self._outbox.writing.text(event.artifact.parts))
        if not self._is_new(artifact_id, pending):
            return []
        new = self._follow(artifact_id)
        del self._pending[artifact_id]
        return [new if event.append and not pending.goes_on else event]

    def _begins(self, event: TaskArtifactUpdateEvent, known: str | None) -> bool:
        """Whether an artifact is followed from its first event on."""
        if self._has_no_store:
            return event.append or known is None
        past, artifact_id = self._outbox.past, event.artifact.artifact_id
        is_first = known is None and not event.append and not past.is_partial(artifact_id)
        if known is None:  # it may have been there while no connection was open
            past.skipped(artifact_id)
        return is_first

    def _is_new(self, artifact_id: str, pending: _Pending) -> bool:
        """Whether an artifact has become what it cannot have been before."""
        past, known = self._outbox.past, pending.known
        if not pending.is_whole or (past.is_partial(artifact_id) and not self._has_no_store):
            return False
        text = pending.text
        if self._has_no_store:
            return not known.startswith(text)
        return not past.may_hold(artifact_id, text, known)

    def _follow(self, artifact_id: str) -> TaskArtifactUpdateEvent:
        """Follows an artifact from here on, and gives it as the connection has it."""
        self._followed.add(artifact_id)
        if not self._has_no_store:
            self._outbox.past.skipped(artifact_id)
        return self._pending[artifact_id].whole()

    def _release(self, artifact_id: str) -> list[TaskArtifactUpdateEvent]:
        pending = self._pending[artifact_id]
        if not pending.is_whole:
            new = pending.after_the_known()
            self._followed.add(artifact_id)
        elif self._is_new(artifact_id, pending):
            new = [self._follow(artifact_id)]
        else:
            return []
        del self._pending[artifact_id]
        return new


class _Pending:
    """What a connection has brought of an artifact, while it is unknown what of it is new.

    Args:
        known: What the caller has of it, written as text.

    Attributes:
        known: The same, by now.
        is_whole: Whether the connection says what the artifact is: it brought all of it.
        is_missing: Whether the last chunk was not yet seen at the end of what the caller has, or
            behind that: where not, there is no hurry to ask for the task.
    """

    def __init__(self, known: str) -> None:
        self.known = known
        self.is_whole = False
        self.is_missing = False
        self._last, self._after = "", 0
        self._began_at = len(known)
        self._held: list[tuple[str, TaskArtifactUpdateEvent]] | None = []
        self._size = 0

    def add(self, event: TaskArtifactUpdateEvent, text: str) -> None:
        """Takes an event."""
        self._last, self.is_missing = text, True
        self._after = max(0, len(self.known) - len(text))
        if not event.append:
            self.is_whole, self._held, self._size = True, [], 0
        if self._held is not None:
            self._held.append((text, event))
            self._size += len(text) + 1
            if event.append and self._size > _HELD + 2 * len(self.known):
                self.is_whole, self._held = False, None

    def update_known(self, known: str) -> None:
        """Takes what the caller has by now."""
        self.known = known
        if known.find(self._last, self._after) >= 0:
            self.is_missing = False

    @property
    def text(self) -> str:
        """What the connection brought, one after the other."""
        return "".join(text for text, _ in self._held or ())

    @property
    def goes_on(self) -> bool:
        """Whether the last event goes on where the caller stands."""
        return self.text == self.known + self._last

    def whole(self) -> TaskArtifactUpdateEvent:
        """The artifact as the connection says it is."""
        events = [event for _, event in self._held or ()]
        parts = tuple(part for event in events for part in event.artifact.parts)
        artifact = msgspec.structs.replace(events[0].artifact, parts=parts)
        return msgspec.structs.replace(events[-1], artifact=artifact, append=False)

    def after_the_known(self) -> list[TaskArtifactUpdateEvent]:
        """The chunks that are new if the first one goes on where the caller stood."""
        new: list[TaskArtifactUpdateEvent] = []
        at = self._began_at
        for text, event in self._held or ():
            if at >= len(self.known):
                new.append(event)
            elif not self.known.startswith(text, at):
                return []
            at += len(text)
        return new
