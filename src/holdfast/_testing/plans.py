"""What a fake agent does with a message: a plan is the life of a task, told in advance.

A plan has steps; each happens some seconds after the one before. Where a task stands is a
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
    "Step",
    "Turn",
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
    """One thing that happens to a task.

    On a stream the message is an event, each artifact is one, and then the status is one.

    Attributes:
        state: The state that the task takes; None if its status stays as it is.
        after: Seconds after the step before.
        says: Text of the status message; None for none.
        message: Text of a message beside the status, which the history keeps; None for none. The
            official server sends none for a task, others do.
        artifacts: Artifacts that come with it; one with a known id replaces the earlier one.
        append: Whether the parts of the artifacts go behind those of the earlier ones instead.
        last_chunk: Whether the artifacts are said to be complete with it.
        is_stored: Whether the agent keeps it. What it does not keep is told on streams alone, as
            of an agent that says "failed" when it crashes, while GetTask says "working" for ever.

    Raises:
        ValueError: `after` is negative, or it says something without a state.
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
            message = f"a step cannot happen {self.after:g} s after the step before"
            raise ValueError(message)
        if self.says is not None and self.state is None:
            message = "what a step says is part of a status: name its state"
            raise ValueError(message)


class Plan(msgspec.Struct, frozen=True):
    """The life of a task from one message on.

    Attributes:
        steps: What happens, in order. Before the first one the task is SUBMITTED.
        crash: Says what a blocking SendMessage answers in place of the failed task, as an internal
            error; None if it answers the task. See `crashes`.
    """

    steps: tuple[Step, ...]
    crash: str | None = None


class Turn(msgspec.Struct, frozen=True, kw_only=True):
    """A message that reached the agent.

    Attributes:
        message: The message.
        task: The task that it continues, as it stands; None for a new one.
    """

    message: Message
    task: Task | None = None


Behaviour = Callable[[Turn], Plan | Message | str]
"""Says what the agent does with a message; plain text is a task that completes with it."""


def completes(
    *contents: str | Part | Artifact, after: float = 0.0, works: float | None = None
) -> Plan:
    """A task that completes.

    Args:
        contents: Its artifacts; text and parts become one artifact each.
        after: Seconds until it completes.
        works: Seconds until it is WORKING; None leaves it SUBMITTED until it completes.

    Raises:
        ValueError: It would be WORKING after it completes.
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
    """A task that is WORKING at once, and whose one artifact grows chunk by chunk.

    Args:
        chunks: The texts that it is put together from, each a part of its own.
        every: Seconds from one event to the next.
        then: What the task does after the last chunk; it completes if left out.
    """
    steps = [Step(state=TaskState.SUBMITTED), Step(state=TaskState.WORKING)]
    for number, chunk in enumerate(chunks, start=1):
        artifacts = (_artifact(1, chunk),)
        is_last = number == len(chunks)
        steps.append(Step(after=every, artifacts=artifacts, append=number > 1, last_chunk=is_last))
    return _followed(steps, then or completes(), after=every)


def fails(reason: str | None = None, *, after: float = 0.0) -> Plan:
    """A task that ends in FAILED, with the reason as its status message."""
    return _ends(TaskState.FAILED, reason, after)


def rejects(reason: str | None = None, *, after: float = 0.0) -> Plan:
    """A task that the agent refuses."""
    return _ends(TaskState.REJECTED, reason, after)


def asks(question: str, *, after: float = 0.0) -> Plan:
    """A task that waits for another message."""
    return _ends(TaskState.INPUT_REQUIRED, question, after)


def needs_auth(
    prompt: str, *, cleared_after: float | None = None, then: Plan | None = None
) -> Plan:
    """A task that waits for an authorization.

    Args:
        prompt: What it says.
        cleared_after: Seconds until the authorization is given out of band; None for never.
        then: What the task does after that; it completes if left out.
    """
    waiting = Step(state=TaskState.AUTH_REQUIRED, says=prompt)
    if cleared_after is None:
        return Plan((Step(state=TaskState.SUBMITTED), waiting))
    cleared = Step(state=TaskState.WORKING, after=cleared_after)
    steps = [Step(state=TaskState.SUBMITTED), waiting, cleared]
    return _followed(steps, then or completes("authorized"))


def crashes(reason: str = "the agent crashed", *, after: float = 0.0) -> Plan:
    """A task whose agent raises while it works.

    As on servers built with the official SDK, the task is stored as FAILED without a reason, and
    who waits for it in a blocking SendMessage is answered by an internal error instead.
    """
    failed = Step(state=TaskState.FAILED, after=after)
    return Plan((Step(state=TaskState.SUBMITTED), Step(state=TaskState.WORKING), failed), reason)


def works_forever() -> Plan:
    """A task that never gets anywhere."""
    return Plan((Step(state=TaskState.SUBMITTED), Step(state=TaskState.WORKING)))


def replies(text: str) -> Message:
    """A message instead of a task."""
    return Message(role=Role.AGENT, parts=(Part(text=text),))


def echo(turn: Turn) -> Plan:
    """Completes with the text of the message: what a fake agent does unless told otherwise."""
    return completes(turn.message.text)


def _ends(state: TaskState, says: str | None, after: float) -> Plan:
    return Plan((Step(state=TaskState.SUBMITTED), Step(state=state, after=after, says=says)))


def _followed(steps: list[Step], plan: Plan, *, after: float = 0.0) -> Plan:
    """Steps, and what follows from a plan, without its SUBMITTED, some seconds later."""
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
