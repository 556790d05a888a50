"""The consistency checker: compares what a client received with the state of the agent."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast._testing.timeline import fold_events
from holdfast.types import Message, Task, TaskArtifactUpdateEvent, TaskState

if TYPE_CHECKING:
    from collections.abc import Iterator

    from holdfast._testing.agent import FakeAgent
    from holdfast._testing.timeline import Update
    from holdfast.types import AgentCard, Event

__all__ = ["ConsistencyChecker"]


class ConsistencyChecker:
    """Comparison of the events that a client received with the agent; a test helper.

    It checks that no message id was executed more than once; that a task whose end the client
    received has the agent's state and artifacts, from a snapshot or from its events; that the
    client received no other state afterwards; and that the end was emitted once.

    Args:
        agent: The agent.
    """

    def __init__(self, agent: FakeAgent) -> None:
        self._agent = agent
        self._records: dict[str, _TaskRecord] = {}

    def record_task(self, task: Task) -> None:
        """Record a snapshot that the client received.

        Args:
            task: The snapshot.
        """
        self._record(task.id).add(task)

    def record_event(self, event: Event) -> None:
        """Record an event of a stream that the client received, in order.

        Args:
            event: The event; a message is ignored, because it belongs to no task.
        """
        if isinstance(event, Message):
            return
        record = self._record(event.id if isinstance(event, Task) else event.task_id)
        record.add(event)
        record.emitted_ends += _is_end(event)

    def consumer(self, event: Event, task: Task | None, _card: AgentCard) -> None:
        """Record an event as a consumer of the client: ``connect(consumers=[checker.consumer])``.

        A task may come from a stream or not, so a task that repeats the end is not a problem.

        Args:
            event: The event.
            task: The task after the event.
        """
        if not isinstance(event, Task):
            self.record_event(event)
        elif task is not None:
            self.record_task(task)

    def problems(self) -> list[str]:
        """Return the problems, one line each; needs a running event loop."""
        problems = [
            f"message {message_id} was executed {len(ids)} times: {', '.join(ids)}"
            for message_id, ids in self._agent.executions.items()
            if len(ids) > 1
        ]
        tasks = self._agent.tasks
        for task_id, record in self._records.items():
            task = tasks.get(task_id)
            if task is None:
                problems.append(f"task {task_id} was seen, but the agent has none")
            else:
                problems.extend(_compare(record, task))
        return problems

    def check(self) -> None:
        """Check that there are no problems.

        Raises:
            AssertionError: There are some; the text has a line for each.
        """
        problems = self.problems()
        if problems:
            raise AssertionError("\n".join(problems))

    def _record(self, task_id: str) -> _TaskRecord:
        return self._records.setdefault(task_id, _TaskRecord(task_id))


class _TaskRecord:
    """The client's view of one task.

    Attributes:
        end: The first terminal state; None if there was none.
        left_end: Whether another state followed it.
        emitted_ends: Number of stream events with a terminal state.
    """

    def __init__(self, task_id: str) -> None:
        self.end: TaskState | None = None
        self.left_end = False
        self.emitted_ends = 0
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
            self.left_end = self.left_end or state is not self.end
        elif state.is_terminal:
            self.end = state

    @property
    def task(self) -> Task:
        """The task as last seen."""
        return fold_events(self._snapshot, self._updates)


def _is_end(event: Task | Update) -> bool:
    return not isinstance(event, TaskArtifactUpdateEvent) and event.status.state.is_terminal


def _compare(record: _TaskRecord, task: Task) -> Iterator[str]:
    if record.end is None:
        return
    if record.left_end:
        yield f"task {task.id} was seen to leave its end, {record.end.name}"
    if record.end is not task.state:
        yield f"task {task.id} was seen {record.end.name}, but is {task.state.name}"
    if record.emitted_ends > 1:
        yield f"the end of task {task.id} was emitted {record.emitted_ends} times"
    if record.task.artifacts != task.artifacts:
        yield f"task {task.id} was seen with other artifacts than the agent's"
