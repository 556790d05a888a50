"""Decide which of the events that follow a subscription are new to the caller.

After a subscription, an agent sends the task as it stands, and then events. The protocol does not
say where in the text their chunks begin. They may repeat what the caller has: the official server
repeated chunks in 36 of 200 subscriptions, and in 197 with a slower store. And text may be missing
before them: written while no connection was open, and not stored yet. The content does not decide
either: the chunks "ha" and "ha" are two, and a store that shows "ha" may lack any text between it
and a following chunk "ha". Known text never rules out that a chunk belongs behind all of it.

Rules:
- Chunks of an artifact that the caller had before are not taken from the connection. They are the
  reason to get the task, whose text is delivered instead (`holdfast._stream.outbox`). This waits
  for the store, and nothing is repeated, lost or taken back.
- An artifact whose first chunk the connection brings, as its first event about it, is followed:
  all its later events on this connection are new.
- A whole artifact gives the text, and so do chunks appended to it. It is followed as soon as that
  is a text that the artifact cannot have had before (`holdfast._stream.artifact_texts`).
- If the agent has no store, only the connection counts. What follows its snapshot is new (A2A
  3.1.6), and a whole artifact repeats the known one while its text is a beginning of that.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from holdfast._stream.status_order import was_before
from holdfast.types import TaskArtifactUpdateEvent, TaskStatusUpdateEvent

if TYPE_CHECKING:
    from holdfast._stream.outbox import EventOutbox
    from holdfast.types import Event, Task

__all__ = ["OverlapResolver"]

_HELD = 1 << 20
"""Characters of an artifact's chunks to keep, in case the agent turns out to have no store."""


class OverlapResolver:
    """Filters the events of one connection, once the task was requested beside it.

    Args:
        outbox: The caller's task and events.
    """

    def __init__(self, outbox: EventOutbox) -> None:
        self._outbox = outbox
        self._status = None if (task := outbox.whole()) is None else task.status
        self._has_no_store = False
        self._followed: set[str] = set()
        self._pending: dict[str, _Pending] = {}

    @property
    def followed(self) -> frozenset[str]:
        """The artifacts whose events on this connection are all new."""
        return frozenset(self._followed)

    @property
    def is_behind(self) -> bool:
        """Whether the connection brought chunks that the caller's task does not show yet."""
        return any(pending.is_missing for pending in self._pending.values())

    def filter(self, event: Event) -> list[Event]:
        """Take an event of the connection, and return the events that are certainly new."""
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
        """Note that a newly fetched task was merged into the outbox.

        Args:
            task: The task.
            is_ahead: Whether it may contain what the connection brings later.
        """
        if task.status == self._outbox.status:
            self._status = task.status
        if is_ahead:
            self._followed.clear()
        have = self._outbox.whole() if self._pending else None
        for artifact in () if have is None else have.artifacts:
            if (pending := self._pending.get(artifact.artifact_id)) is not None:
                pending.update_known(self._outbox.texts.text(artifact.parts))

    def drop_store(self) -> list[Event]:
        """Stop to wait for the store, which does not exist, and return the events that are new."""
        self._has_no_store = True
        return [new for name in list(self._pending) for new in self._release(name)]

    def finish(self) -> list[Event]:
        """Return the artifacts that the connection ended with, if there is no store."""
        whole: list[Event] = [
            self._follow(name)
            for name, pending in self._pending.items()
            if pending.is_whole and pending.text != pending.known
        ]
        self._pending.clear()
        return whole

    def _place(self, event: TaskArtifactUpdateEvent) -> list[Event]:
        """Return what is new of an artifact that is not followed."""
        artifact_id = event.artifact.artifact_id
        pending = self._pending.get(artifact_id)
        if pending is None:
            known = self._outbox.text_of(artifact_id)
            if self._begins(event, known):
                self._followed.add(artifact_id)
                return [event]
            pending = self._pending[artifact_id] = _Pending(known or "")
        pending.add(event, self._outbox.texts.text(event.artifact.parts))
        if not self._is_new(artifact_id, pending):
            return []
        new = self._follow(artifact_id)
        del self._pending[artifact_id]
        return [new if event.append and not pending.continues else event]

    def _begins(self, event: TaskArtifactUpdateEvent, known: str | None) -> bool:
        """Return whether an artifact is followed from its first event on."""
        if self._has_no_store:
            return event.append or known is None
        texts, artifact_id = self._outbox.texts, event.artifact.artifact_id
        is_first = known is None and not event.append and not texts.is_partial(artifact_id)
        if known is None:  # it may have existed while no connection was open
            texts.note_missed(artifact_id)
        return is_first

    def _is_new(self, artifact_id: str, pending: _Pending) -> bool:
        """Return whether an artifact has a text that it cannot have had before."""
        texts, known = self._outbox.texts, pending.known
        if not pending.is_whole or (texts.is_partial(artifact_id) and not self._has_no_store):
            return False
        text = pending.text
        if self._has_no_store:
            return not known.startswith(text)
        return not texts.may_be_old(artifact_id, text, known)

    def _follow(self, artifact_id: str) -> TaskArtifactUpdateEvent:
        """Follow an artifact from here on, and return it as the connection has it."""
        self._followed.add(artifact_id)
        if not self._has_no_store:
            self._outbox.texts.note_missed(artifact_id)
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
    """The events of a connection for one artifact, while it is unknown which of them are new.

    Args:
        known: The text that the caller has of it.

    Attributes:
        known: The text that the caller has by now.
        is_whole: Whether the connection has brought the artifact from its beginning.
        is_missing: Whether the caller's text does not show the last chunk yet: a reason to get the
            task soon.
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
        """Take an event."""
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
        """Take the text that the caller has by now."""
        self.known = known
        if known.find(self._last, self._after) >= 0:
            self.is_missing = False

    @property
    def text(self) -> str:
        """The text that the connection brought."""
        return "".join(text for text, _ in self._held or ())

    @property
    def continues(self) -> bool:
        """Whether the last event continues the caller's text."""
        return self.text == self.known + self._last

    def whole(self) -> TaskArtifactUpdateEvent:
        """Return the artifact as the connection has it."""
        events = [event for _, event in self._held or ()]
        parts = tuple(part for event in events for part in event.artifact.parts)
        artifact = msgspec.structs.replace(events[0].artifact, parts=parts)
        return msgspec.structs.replace(events[-1], artifact=artifact, append=False)

    def after_the_known(self) -> list[TaskArtifactUpdateEvent]:
        """Return the chunks that are new if the first one continued the caller's text."""
        new: list[TaskArtifactUpdateEvent] = []
        at = self._began_at
        for text, event in self._held or ():
            if at >= len(self.known):
                new.append(event)
            elif not self.known.startswith(text, at):
                return []
            at += len(text)
        return new
