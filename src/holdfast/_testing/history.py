"""A history checker: what a client was told, held against what the agent did."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast._testing.timeline import folded
from holdfast.types import Message, Task, TaskArtifactUpdateEvent, TaskState

if TYPE_CHECKING:
    from collections.abc import Iterator

    from holdfast._testing.agent import FakeAgent
    from holdfast._testing.timeline import Update
    from holdfast.types import AgentCard, Event

__all__ = ["History"]


class History:
    """Collects what a client saw of an agent; pass `consumer` to `connect(consumers=…)`.

    What must hold: no message id was executed more than once; a task that the client saw end
    has the agent's state and artifacts, as a snapshot or as its events add up; after its end it
    was not seen in another state; its end was told once.

    Args:
        agent: The agent.
    """

    def __init__(self, agent: FakeAgent) -> None:
        self._agent = agent
        self._seen: dict[str, _Seen] = {}

    def saw(self, task: Task) -> None:
        """Notes a snapshot that the client was given."""
        self._of(task.id).add(task)

    def saw_event(self, event: Event) -> None:
        """Notes an event of a stream that the client was given, in order.

        A message without a task says nothing that could be held against the agent.
        """
        if isinstance(event, Message):
            return
        seen = self._of(event.id if isinstance(event, Task) else event.task_id)
        seen.add(event)
        seen.told_ends += _is_end(event)

    def consumer(self, event: Event, task: Task | None, _card: AgentCard) -> None:
        """Notes what a client tells its consumers.

        Whether a task comes from a stream is not known here: that its end is told a second time
        by a task is no problem.
        """
        if not isinstance(event, Task):
            self.saw_event(event)
        elif task is not None:
            self.saw(task)

    def problems(self) -> list[str]:
        """What does not hold, one line each. To be asked while the event loop runs."""
        found = [
            f"message {message_id} was executed {len(made)} times: {', '.join(made)}"
            for message_id, made in self._agent.executions.items()
            if len(made) > 1
        ]
        tasks = self._agent.tasks
        for task_id, seen in self._seen.items():
            task = tasks.get(task_id)
            if task is None:
                found.append(f"task {task_id} was seen, but the agent has none")
            else:
                found.extend(_compare(seen, task))
        return found

    def check(self) -> None:
        """Raises if something does not hold.

        Raises:
            AssertionError: With a line for each problem.
        """
        problems = self.problems()
        if problems:
            raise AssertionError("\n".join(problems))

    def _of(self, task_id: str) -> _Seen:
        return self._seen.setdefault(task_id, _Seen(task_id))


class _Seen:
    """What was seen of one task.

    Attributes:
        end: The first terminal state; None if there was none.
        has_left: Whether another state came after it.
        told_ends: How many events of streams told an end.
    """

    def __init__(self, task_id: str) -> None:
        self.end: TaskState | None = None
        self.has_left = False
        self.told_ends = 0
        self._snapshot = Task(id=task_id)
        self._updates: list[Update] = []

    def add(self, event: Task | Update) -> None:
        if isinstance(event, Task):
            self._snapshot, self._updates = event, []
        else:
            self._updates.append(event)
        if isinstance(event, TaskArtifactUpdateEvent):
            return
        state = event.status.state
        if self.end is not None:
            self.has_left = self.has_left or state is not self.end
        elif state.is_terminal:
            self.end = state

    @property
    def task(self) -> Task:
        """The task as it was seen last."""
        return folded(self._snapshot, self._updates)


def _is_end(event: Task | Update) -> bool:
    return not isinstance(event, TaskArtifactUpdateEvent) and event.status.state.is_terminal


def _compare(seen: _Seen, task: Task) -> Iterator[str]:
    if seen.end is None:
        return
    if seen.has_left:
        yield f"task {task.id} was seen to leave its end, {seen.end.name}"
    if seen.end is not task.state:
        yield f"task {task.id} was seen {seen.end.name}, but is {task.state.name}"
    if seen.told_ends > 1:
        yield f"the end of task {task.id} was told {seen.told_ends} times"
    if seen.task.artifacts != task.artifacts:
        yield f"task {task.id} was seen with other artifacts than the agent's"
