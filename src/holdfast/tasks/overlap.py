"""Which of the chunks that follow a subscription a task already holds.

An agent that is subscribed to sends the task as it stands, and then what happens; what it sends
then may be in the task already (the official server repeated chunks in 36 of 200 subscriptions,
and in 197 with a slower store). That a chunk looks like what is there proves nothing: "ha" and
"ha" are two. So each artifact is written out as one text, and the question is where in that text
the chunks of the stream begin. Every place that fits what is known is a candidate; what the
agent's task turns out to hold rules candidates out.

And a task may lack what happened before a stream began, if it comes from a store that is behind.
So what a stream brings is told when the task is seen to hold the beginning of it; until then
something may be missing before it.

Rules: nothing is new as long as it may be old, or something may be missing before it; what the
agent's task holds is never new.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.model import codec
from holdfast.model.types import TaskArtifactUpdateEvent, TaskState, TaskStatusUpdateEvent
from holdfast.tasks.order import is_newer

if TYPE_CHECKING:
    from collections.abc import Iterable

    from holdfast.model.types import Event, Part, Task, TaskStatus

__all__ = ["CatchUp", "Writing"]

_LOOKS = 8
"""Doubtful events for each of which the task is asked for; then, whenever their number doubles."""

_MOST = 64
"""Places to keep in mind; an agent that says "ha" a thousand times has more, and is believed only
where its task says so."""

_STANDS_IN = 0x100000
"""The first of the characters of no meaning (Unicode's plane 16, private use) that stand for parts
which are no plain text; there are 65,534 of them, and the last one stands for all others."""

_LAST = 0x10FFFD


class Writing:
    """Writes parts as text, so that what runs on can be told by comparing; equal parts alike."""

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
        return self._characters.setdefault(codec.encode(part), chr(code))


class CatchUp:
    """What one connection brings, laid over the task that was asked for after it had begun.

    Args:
        base: The task; None if nobody has it, and all that comes is new.
    """

    def __init__(self, base: Task | None) -> None:
        self._base = base
        self._status = None if base is None else base.status  # None once all that comes is new
        self._writing = Writing()
        self._overlaps: dict[str, _Overlap | None] = {}  # None where all that comes is new
        self._doubts = 0
        self._is_in_doubt = False
        self._is_trusting = False

    def follow(self, event: Event) -> list[Event]:
        """Takes what the connection brings, and gives what is known to be new by now."""
        self._is_in_doubt = False
        if isinstance(event, TaskArtifactUpdateEvent):
            return self._follow_artifact(event)
        if isinstance(event, TaskStatusUpdateEvent):
            if self._status is not None and _was_before(event.status, self._status):
                return []
            self._status = None
        return [event]

    @property
    def wants_look(self) -> bool:
        """Whether what came last may be in the task, or not: the task should be asked for."""
        few = self._doubts <= _LOOKS or self._doubts.bit_count() == 1
        return self._is_in_doubt and few

    def look(self, before: Task, after: Task) -> list[Event]:
        """Takes what another look at the task has told the caller, and gives what else is new.

        Args:
            before: The task as the caller had it.
            after: The task as the caller has it now.
        """
        self._base = after
        if before.status != after.status:
            self._status = after.status
        found: list[Event] = []
        for artifact_id, overlap in self._overlaps.items():
            known = self._text_of(after, artifact_id) or ""
            if overlap is None:
                # All was new so far: the connection stands where the caller stood.
                told = self._text_of(before, artifact_id) or ""
                if known != told:
                    start = len(told) if known.startswith(told) else None
                    self._overlaps[artifact_id] = _Overlap(known, start)
                continue
            found += overlap.look(known)
            if overlap.is_at_odds:
                self._overlaps[artifact_id] = self._overlap(known)
            elif overlap.is_clear:
                self._overlaps[artifact_id] = None
        return found

    def give_up(self) -> list[Event]:
        """Gives what is new if nobody can say: the connection repeats as much as it may."""
        return [new for overlap in self._open() for new in overlap.give_up()]

    def trust(self) -> list[Event]:
        """Gives what is new if nothing is missing before it; so does `follow` from here on."""
        self._is_trusting = True
        return [new for overlap in self._open() for new in overlap.trust()]

    @property
    def is_ahead(self) -> bool:
        """Whether the task still lacks what the connection brought."""
        return any(overlap.is_ahead for overlap in self._open())

    def _open(self) -> list[_Overlap]:
        return [overlap for overlap in self._overlaps.values() if overlap is not None]

    def _follow_artifact(self, event: TaskArtifactUpdateEvent) -> list[Event]:
        artifact_id = event.artifact.artifact_id
        if artifact_id not in self._overlaps:
            known = self._text_of(self._base, artifact_id)
            if known is None and (self._base is None or not event.append or self._is_trusting):
                self._overlaps[artifact_id] = None
            else:
                self._overlaps[artifact_id] = self._overlap(known or "")
        overlap = self._overlaps[artifact_id]
        if overlap is None:
            return [event]
        text = self._writing.text(event.artifact.parts)
        if not event.append and (self._is_trusting or overlap.is_outgrown_by(text)):
            self._overlaps[artifact_id] = None
            return [event]
        found: list[Event] = [*(overlap.add(event, text) if event.append else ())]
        if not event.append:
            overlap.replace(text)
        if overlap.is_clear:
            self._overlaps[artifact_id] = None
        elif not event.append or overlap.is_open or overlap.is_at_odds or overlap.is_ahead:
            self._is_in_doubt = True
            self._doubts += 1
        return found

    def _overlap(self, known: str) -> _Overlap:
        overlap = _Overlap(known)
        if self._is_trusting:
            overlap.trust()
        return overlap

    def _text_of(self, task: Task | None, artifact_id: str) -> str | None:
        """An artifact written out; None if the task has none of that id."""
        artifacts = () if task is None else task.artifacts
        found = (a.parts for a in artifacts if a.artifact_id == artifact_id)
        parts = next(found, None)
        return None if parts is None else self._writing.text(parts)


def _was_before(status: TaskStatus, now: TaskStatus) -> bool:
    """Whether a status was there before another one, or is the same."""
    if status == now:
        return True
    newer = is_newer(now, status)
    return status.state is TaskState.SUBMITTED if newer is None else newer


class _Overlap:
    """The chunks that a stream brings of one artifact, laid over what its task holds.

    Args:
        known: What the task holds, written as text.
        start: Where in it the stream begins; None if that is not known.

    Attributes:
        is_clear: Whether it is clear which of the chunks to come are new: all of them.
    """

    def __init__(self, known: str, start: int | None = None) -> None:
        self._known = known
        self._from = len(known)  # where the stream begins if it repeats nothing
        # Where it may begin; None before the first chunk.
        self._starts: list[int] | None = None if start is None else [start]
        self._seen = ""
        self._held: list[tuple[int, int, TaskArtifactUpdateEvent]] = []
        self._is_joined = start is not None  # nothing is missing between the two
        self.is_clear = False

    def add(self, chunk: TaskArtifactUpdateEvent, text: str) -> list[TaskArtifactUpdateEvent]:
        """Takes a chunk, and gives what is known to be new by now."""
        if self.is_at_odds:
            return []
        at = len(self._seen)
        self._held.append((at, at + len(text), chunk))
        self._seen += text
        if self._starts is None:
            if not text:
                return self._cleared()
            self._starts = self._places_of(text)
        return self._judged()

    def replace(self, text: str) -> None:
        """Takes a whole artifact that came in the stream: from here on, it begins at the start."""
        self._starts, self._seen = [0], text
        self._held.clear()
        self._is_joined = True
        self._judged()

    def look(self, known: str) -> list[TaskArtifactUpdateEvent]:
        """Takes what the task holds by now, and gives what is known to be new by now.

        Args:
            known: At least what was known before, which has been told to the caller.
        """
        self._known = known
        return [] if self._starts is None else self._judged()

    def give_up(self) -> list[TaskArtifactUpdateEvent]:
        """Gives what is new if nobody can say: the stream repeats as much as it may."""
        if self._starts:
            self._starts = [min(self._starts)]
        return self.trust()

    def trust(self) -> list[TaskArtifactUpdateEvent]:
        """Gives what is new if nothing is missing between what the task holds and the stream."""
        self._is_joined = True
        return self._judged() if self._starts else []

    @property
    def is_at_odds(self) -> bool:
        """Whether the stream and the task cannot be reconciled."""
        return self._starts is not None and not self._starts

    @property
    def is_ahead(self) -> bool:
        """Whether the task was not yet seen to hold what the stream brought."""
        is_found = self._starts is not None and len(self._starts) == 1
        return is_found and not self._is_joined and bool(self._held)

    @property
    def is_open(self) -> bool:
        """Whether chunks are held back of which nobody knows yet whether they are new."""
        return self._starts is not None and len(self._starts) != 1

    def is_outgrown_by(self, text: str) -> bool:
        """Whether a whole artifact goes on where the task's stops, so that it is newer."""
        return len(text) > len(self._known) and text.startswith(self._known)

    def _places_of(self, text: str) -> list[int]:
        places = [self._from]
        at = self._known.find(text)
        while 0 <= at < self._from:
            if len(places) >= _MOST:
                return []
            places.append(at)
            at = self._known.find(text, at + 1)
        return places

    def _judged(self) -> list[TaskArtifactUpdateEvent]:
        if self._starts:
            self._starts = [start for start in self._starts if self._fits(start)]
            if not self._starts and not self._is_joined:
                # What is between was missing when the stream began: it begins further on.
                later = self._known.find(self._seen, self._from + 1)
                self._starts = [] if later < 0 else [later]
        if self._starts is None or len(self._starts) != 1:
            return []
        start, known = self._starts[0], len(self._known)
        self._is_joined = self._is_joined or start < known
        if not self._is_joined:
            return []
        if any(start + at < known < start + end for at, end, _ in self._held):
            self._starts = []  # a chunk is there or not, and never in part
        new = [chunk for at, _, chunk in self._held if start + at >= known]
        self._held.clear()
        self.is_clear = start + len(self._seen) >= known
        return new if self._starts else []

    def _fits(self, start: int) -> bool:
        both = min(len(self._known) - start, len(self._seen))
        return both <= 0 or self._known.startswith(self._seen[:both], start)

    def _cleared(self) -> list[TaskArtifactUpdateEvent]:
        new = [chunk for _, _, chunk in self._held]
        self._held.clear()
        self._seen = ""
        return new
