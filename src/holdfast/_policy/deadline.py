"""Deadlines, the errors of waits that reach them, and how often to poll meanwhile."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import msgspec

from holdfast.errors import A2AError, DeadlineExceededError, Facts, TaskAuthRequiredError
from holdfast.types import TaskState

if TYPE_CHECKING:
    from collections.abc import Iterator

    from holdfast.types import Task

__all__ = [
    "NEVER",
    "Deadline",
    "add_last_seen",
    "callback_deadline_error",
    "poll_delays",
    "wait_deadline_error",
]


class Deadline(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A moment at which waiting ends.

    Attributes:
        name: Whose deadline, as errors name it: ``"call"``, ``"wait"``, ``"cancel"``,
            ``"stream"``, ``"fan-out"``; or ``"quiet"``, of a stream that brings nothing new.
        timeout: Seconds from its beginning to its end.
        at: The moment, on the event loop's clock.
        ends_at_first_event: Whether it is over with the first event of a stream, which may then go
            on for as long as it likes.
    """

    name: str
    timeout: float
    at: float
    ends_at_first_event: bool = False

    @property
    def shown(self) -> str:
        """The timeout for error messages: rounded, with its unit."""
        return f"{self.timeout:.2g} s" if self.timeout < 0.1 else f"{round(self.timeout, 2):g} s"

    def left(self, now: float) -> float:
        """Seconds left, not below zero."""
        return max(0.0, self.at - now)


NEVER = Deadline(name="stream", timeout=math.inf, at=math.inf)
"""That of a stream that may go on for as long as it likes."""


def poll_delays(interval: float) -> Iterator[float]:
    """The waits between looks, in seconds: short at first, then `interval`.

    Quick tasks are noticed quickly, and long ones are not asked after more often than agreed.
    """
    delay = interval / 16
    while True:
        yield delay
        delay = min(interval, delay * 2)


def add_last_seen(error: A2AError, task_id: str | None, state: TaskState | None) -> None:
    """Adds to an error that ends a wait how the task was last seen; None for never.

    It is a later call that failed: where the task was seen, what the caller asked for did run.
    """
    if state is not None:
        error.executed = True
        if task_id and f"task {task_id}" not in error.message:
            error.message = f"{error.message}; task {task_id} was last seen {state.name}"


def callback_deadline_error(
    what: str, deadline: Deadline, task: Task | None, *, then: str = ""
) -> DeadlineExceededError:
    """The error of the caller's own code that took too long: a consumer, a hook, a tool.

    Args:
        what: What did not come about.
        deadline: What has struck.
        task: The task that it was about, if there is one.
        then: What follows from it.
    """
    return DeadlineExceededError(
        f"{what} within the {deadline.name} timeout of {deadline.shown}{then}",
        deadline=deadline.name,
        timeout=deadline.timeout,
        task=task,
        executed=True,
    )


def wait_deadline_error(
    deadline: Deadline,
    task: Task | None,
    task_id: str | None,
    failure: A2AError | None,
    *,
    left: float = 0.0,
) -> DeadlineExceededError | TaskAuthRequiredError:
    """The error of who has waited for a task until a deadline; its cause is set.

    Args:
        deadline: What has struck.
        task: The task as last seen, if ever.
        task_id: Its id, if that is known.
        failure: What went wrong last, if anything; its attempts are told.
        left: Seconds until the deadline, where the agent asked to wait longer than that; all that
            it said is told then.
    """
    facts = Facts(executed=None if task is None else True)
    if failure is not None and left:
        facts = failure.facts()
        facts["executed"] = failure.executed if task is None else True
    elif failure is not None:
        facts["attempts"] = failure.attempts
        facts["agent"] = failure.agent
        facts["request_id"] = failure.request_id
        facts["executed"] = failure.executed if task is None else True
    when = f"{left:.3g} s before" if left else "at"
    end = f"{when} the end of the {deadline.name} timeout of {deadline.shown}"
    name = f"task {task_id}" if task_id else "the task"
    seen = "never seen" if task is None else f"last seen {task.state.name}"
    late = DeadlineExceededError(
        f"{name} was {seen} {end}{_what_failed(failure)}",
        deadline=deadline.name,
        timeout=deadline.timeout,
        task=task,
        **facts,
    )
    late.__cause__ = failure
    if task is None or task.state is not TaskState.AUTH_REQUIRED:
        return late
    said = task.status.message
    prompt = f": {said.text}" if said is not None and said.text else ""
    message = f"task {task.id} still waits for an authorization {end}{prompt}"
    waiting = TaskAuthRequiredError(message, task=task, **facts)
    waiting.__cause__ = late
    return waiting


def _what_failed(failure: A2AError | None) -> str:
    """What went wrong last, in words that follow others; none where time merely ran out."""
    if isinstance(failure, DeadlineExceededError):  # of a try that had followed others
        errors = [attempt.error for attempt in failure.attempts if attempt.wait is not None]
        what = errors[-1] if errors else None
    else:
        what = None if failure is None else failure.message
    return f"; what failed last: {what}" if what else ""
