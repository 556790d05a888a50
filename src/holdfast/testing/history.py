"""A history checker: what a client was told, held against what the agent did."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.model.types import Task

if TYPE_CHECKING:
    from holdfast.model.card import AgentCard
    from holdfast.runtime.listeners import Event
    from holdfast.testing.agent import FakeAgent

__all__ = ["History"]


class History:
    """Collects what a client saw of an agent; pass `consumer` to `connect(consumers=…)`.

    What must hold: no message id was executed more than once; a task that the client saw end
    has the agent's state and artifacts; after its end it was not seen in another state.

    Args:
        agent: The agent.
    """

    def __init__(self, agent: FakeAgent) -> None:
        self._agent = agent
        self._seen: dict[str, list[Task]] = {}

    def saw(self, task: Task) -> None:
        """Notes a snapshot that the client was given."""
        self._seen.setdefault(task.id, []).append(task)

    def consumer(self, event: Event, task: Task | None, _card: AgentCard) -> None:
        """Notes what a client tells its consumers."""
        if isinstance(event, Task) and task is not None:
            self.saw(task)

    def problems(self) -> list[str]:
        """What does not hold, one line each. To be asked while the event loop runs."""
        found = [
            f"message {message_id} was executed {len(made)} times: {', '.join(made)}"
            for message_id, made in self._agent.executions.items()
            if len(made) > 1
        ]
        tasks = self._agent.tasks
        for task_id, snapshots in self._seen.items():
            task = tasks.get(task_id)
            if task is None:
                found.append(f"task {task_id} was seen, but the agent has none")
            else:
                found.extend(_compare(snapshots, task))
        return found

    def check(self) -> None:
        """Raises if something does not hold.

        Raises:
            AssertionError: With a line for each problem.
        """
        problems = self.problems()
        if problems:
            raise AssertionError("\n".join(problems))


def _compare(snapshots: list[Task], task: Task) -> list[str]:
    ends = [index for index, seen in enumerate(snapshots) if seen.state.is_terminal]
    if not ends:
        return []
    end = snapshots[ends[0]]
    found: list[str] = []
    if any(seen.state is not end.state for seen in snapshots[ends[0] :]):
        found.append(f"task {task.id} was seen to leave its end, {end.state.name}")
    if end.state is not task.state:
        found.append(f"task {task.id} was seen {end.state.name}, but is {task.state.name}")
    if snapshots[-1].artifacts != task.artifacts:
        found.append(f"task {task.id} was seen with other artifacts than the agent's")
    return found
