"""The behaviour of a fake agent: a plan is the course of a task, decided in advance.

A plan has steps; each happens some seconds after the previous one. The state of a task is a
function of the clock, so nothing runs in the background.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

from holdfast.types import Artifact, Message, Part, Role, Task, TaskState

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = [
    "Behaviour",
    "Plan",
    "ReceivedMessage",
    "Step",
    "asks",
    "completes",
    "crashes",
    "echo",
    "fails",
    "needs_auth",
    "rejects",
    "replies",
    "streams",
    "works_forever",
]


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """One change of a task.

    On a stream, the message is an event, each artifact is one, and then the status is one.

    Attributes:
        state: The new state; None if the status does not change.
        after: Seconds after the previous step.
        says: Text of the status message; None for none.
        message: Text of a message besides the status, which the history keeps; None for none. The
            official server sends no such messages for a task, others do.
        artifacts: Artifacts of this step; one with a known id replaces the earlier one.
        append: Whether the parts of the artifacts are appended to the earlier ones instead; False
            by default.
        last_chunk: Whether the artifacts are marked as complete; False by default.
        is_stored: Whether the agent stores it; True by default. A step that is not stored is
            emitted on streams only, as by an agent that reports "failed" when it crashes, while
            GetTask reports "working" forever.

    Raises:
        ValueError: `after` is negative, or `says` is given without a state.
    """

    state: TaskState | None = None
    after: float = 0.0
    says: str | None = None
    message: str | None = None
    artifacts: tuple[Artifact, ...] = ()
    append: bool = False
    last_chunk: bool = False
    is_stored: bool = True

    def __post_init__(self) -> None:
        if not self.after >= 0:
            message = f"after must be zero or more seconds, not {self.after:g}"
            raise ValueError(message)
        if self.says is not None and self.state is None:
            message = "text needs state: it is part of a status"
            raise ValueError(message)


class Plan(msgspec.Struct, frozen=True):
    """The course of a task after a message.

    Attributes:
        steps: The steps, in order. Before the first one, the task is SUBMITTED.
        crash: Text of the internal error that a blocking SendMessage returns instead of the failed
            task; None if it returns the task, as for all plans but `crashes`.
    """

    steps: tuple[Step, ...]
    crash: str | None = None


class ReceivedMessage(msgspec.Struct, frozen=True, kw_only=True):
    """A message that reached the agent.

    Attributes:
        message: The message.
        task: The task that it continues, in its current state; None for a new task.
    """

    message: Message
    task: Task | None = None


Behaviour = Callable[[ReceivedMessage], Plan | Message | str]
"""Function that returns the outcome of a message; plain text is a task that completes with it."""


def completes(
    *contents: str | Part | Artifact, after: float = 0.0, works: float | None = None
) -> Plan:
    """Plan a task that completes.

    Args:
        contents: Its artifacts; text and parts become one artifact each.
        after: Seconds until it is COMPLETED.
        works: Seconds until it is WORKING; None leaves it SUBMITTED until it completes.

    Raises:
        ValueError: ``works`` is greater than ``after``.
    """
    final = Step(
        state=TaskState.COMPLETED,
        after=after - (works or 0.0),
        artifacts=_artifacts(contents),
    )
    steps = [Step(state=TaskState.SUBMITTED)]
    if works is not None:
        steps.append(Step(state=TaskState.WORKING, after=works))
    return Plan((*steps, final))


def streams(*chunks: str, every: float = 0.0, then: Plan | None = None) -> Plan:
    """Plan a task that is WORKING at once, and whose artifact grows chunk by chunk.

    Args:
        chunks: The texts of the artifact, each a separate part.
        every: Seconds between two events.
        then: The plan after the last chunk; None to complete.
    """
    steps = [Step(state=TaskState.SUBMITTED), Step(state=TaskState.WORKING)]
    for number, chunk in enumerate(chunks, start=1):
        artifacts = (_artifact(1, chunk),)
        is_last = number == len(chunks)
        steps.append(Step(after=every, artifacts=artifacts, append=number > 1, last_chunk=is_last))
    return _followed(steps, then or completes(), after=every)


def fails(reason: str | None = None, *, after: float = 0.0) -> Plan:
    """Plan a task that fails.

    Args:
        reason: Text of its status message; None for none.
        after: Seconds until it is FAILED.
    """
    return _ends(TaskState.FAILED, reason, after)


def rejects(reason: str | None = None, *, after: float = 0.0) -> Plan:
    """Plan a task that the agent rejects.

    Args:
        reason: Text of its status message; None for none.
        after: Seconds until it is REJECTED.
    """
    return _ends(TaskState.REJECTED, reason, after)


def asks(question: str, *, after: float = 0.0) -> Plan:
    """Plan a task that waits for another message.

    Args:
        question: Text of its status message.
        after: Seconds until it is INPUT_REQUIRED.
    """
    return _ends(TaskState.INPUT_REQUIRED, question, after)


def needs_auth(
    prompt: str, *, cleared_after: float | None = None, then: Plan | None = None
) -> Plan:
    """Plan a task that waits for an authorization (AUTH_REQUIRED).

    Args:
        prompt: Text of its status message.
        cleared_after: Seconds until the authorization is given out of band; None for never.
        then: The plan after that; None to complete.
    """
    waiting = Step(state=TaskState.AUTH_REQUIRED, says=prompt)
    if cleared_after is None:
        return Plan((Step(state=TaskState.SUBMITTED), waiting))
    cleared = Step(state=TaskState.WORKING, after=cleared_after)
    steps = [Step(state=TaskState.SUBMITTED), waiting, cleared]
    return _followed(steps, then or completes("authorized"))


def crashes(reason: str = "the agent crashed", *, after: float = 0.0) -> Plan:
    """Plan a task whose agent raises an exception while it works.

    As on servers built with the official SDK, the task is stored as FAILED without a reason, and a
    blocking SendMessage returns an internal error instead of the task.

    Args:
        reason: Text of the internal error; "the agent crashed" by default.
        after: Seconds until the task is FAILED.
    """
    failed = Step(state=TaskState.FAILED, after=after)
    return Plan((Step(state=TaskState.SUBMITTED), Step(state=TaskState.WORKING), failed), reason)


def works_forever() -> Plan:
    """Plan a task that stays WORKING."""
    return Plan((Step(state=TaskState.SUBMITTED), Step(state=TaskState.WORKING)))


def replies(text: str) -> Message:
    """Return a message as the outcome instead of a task.

    Args:
        text: Text of the message.
    """
    return Message(role=Role.AGENT, parts=(Part(text=text),))


def echo(turn: ReceivedMessage) -> Plan:
    """Plan a task that completes with the text of the message; the default of a fake agent.

    Args:
        turn: The message.
    """
    return completes(turn.message.text)


def _ends(state: TaskState, says: str | None, after: float) -> Plan:
    return Plan((Step(state=TaskState.SUBMITTED), Step(state=state, after=after, says=says)))


def _followed(steps: list[Step], plan: Plan, *, after: float = 0.0) -> Plan:
    """Return a plan of some steps, and of another plan without its SUBMITTED, seconds later."""
    rest = [step for step in plan.steps if step.state is not TaskState.SUBMITTED]
    rest[:1] = [msgspec.structs.replace(step, after=step.after + after) for step in rest[:1]]
    return Plan((*steps, *rest), plan.crash)


def _artifacts(contents: Sequence[str | Part | Artifact]) -> tuple[Artifact, ...]:
    return tuple(_artifact(number, content) for number, content in enumerate(contents, start=1))


def _artifact(number: int, content: str | Part | Artifact) -> Artifact:
    if isinstance(content, Artifact):
        return content
    part = Part(text=content) if isinstance(content, str) else content
    return Artifact(artifact_id=f"artifact-{number}", parts=(part,))
