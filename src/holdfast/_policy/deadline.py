"""Deadlines, the errors of waits that reach them, and the intervals of polling."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import msgspec

from holdfast.errors import (
    A2AError,
    DeadlineExceededError,
    Facts,
    TaskAuthRequiredError,
    TaskNotFoundError,
    note_task,
)
from holdfast.types import TaskState

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from holdfast.errors import Attempt
    from holdfast.types import Task

__all__ = [
    "LOST_IN_A_RESTART",
    "NEVER",
    "Deadline",
    "add_last_seen",
    "callback_deadline_error",
    "deadline_error",
    "poll_delays",
    "wait_deadline_error",
]


class Deadline(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Moment at which a wait ends.

    Attributes:
        name: The kind of deadline, as errors name it: ``"call"``, ``"wait"``, ``"cancel"``,
            ``"stream"``, ``"conversation"`` (its own timeout), ``"fan-out"``; or ``"quiet"`` for a
            stream without new events.
        timeout: Seconds from the start of the wait to the deadline.
        at: The time, in seconds on the event loop's clock.
        ends_at_first_event: Whether the deadline ends with the first event of a stream, which may
            then take any time. False by default.
    """

    name: str
    timeout: float
    at: float
    ends_at_first_event: bool = False

    @property
    def shown(self) -> str:
        """The timeout for error messages, rounded and with its unit."""
        return f"{self.timeout:.2g} s" if self.timeout < 0.1 else f"{round(self.timeout, 2):g} s"

    def remaining(self, now: float) -> float:
        """Return the seconds from ``now`` to the deadline; 0 or more.

        Args:
            now: The present time, in seconds on the event loop's clock.
        """
        return max(0.0, self.at - now)


NEVER = Deadline(name="stream", timeout=math.inf, at=math.inf)
"""The deadline of a stream without a time limit."""


def poll_delays(interval: float) -> Iterator[float]:
    """Yield the seconds between polls: short at first, then `interval`.

    The end of a short task is noticed soon, and a long one is not polled more often than agreed.
    """
    delay = interval / 16
    while True:
        yield delay
        delay = min(interval, delay * 2)


LOST_IN_A_RESTART = "an agent that keeps its tasks in memory loses them when it restarts"
"""The usual reason why an agent does not find a task that it had."""


def add_last_seen(
    error: A2AError, task: Task | None, *, task_id: str | None, state: TaskState | None
) -> None:
    """Add the task as last seen to an error that ends a wait.

    If the task was seen (`state` is not None), a later call failed: the caller's operation was
    executed, and repeating it would execute it again.
    """
    note_task(error, task, task_id)
    if state is None:
        return
    error.executed, error.transient = True, False
    if task_id and f"task {task_id}" not in error.message:
        error.message = f"{error.message}; task {task_id} was last seen {state.name}"
        if isinstance(error, TaskNotFoundError):
            error.message += f"; {LOST_IN_A_RESTART}"


def deadline_error(
    what: str,
    deadline: Deadline,
    *,
    then: str = "",
    task: Task | None = None,
    executed: bool | None = None,
) -> DeadlineExceededError:
    """Return the error of something that did not happen before a deadline.

    Args:
        what: What did not happen; it begins the error's text.
        deadline: The deadline that expired.
        then: The consequence; it ends the error's text.
        task: The task concerned; None if there is none.
        executed: Whether the agent has executed the caller's message; None if unknown.
    """
    return DeadlineExceededError(
        f"{what} within the {deadline.name} timeout of {deadline.shown}{then}",
        deadline=deadline.name,
        timeout=deadline.timeout,
        task=task,
        executed=executed,
    )


def callback_deadline_error(
    what: str, deadline: Deadline, task: Task | None, *, then: str = ""
) -> DeadlineExceededError:
    """Return the error of caller-supplied code (consumer, hook, tool): see `deadline_error`."""
    return deadline_error(what, deadline, then=then, task=task, executed=True)


def wait_deadline_error(
    deadline: Deadline,
    task: Task | None,
    task_id: str | None,
    failure: A2AError | None,
    *,
    left: float = 0.0,
) -> DeadlineExceededError | TaskAuthRequiredError:
    """Return the error of a wait for a task that reached its deadline, with the cause set.

    Args:
        deadline: The deadline that expired.
        task: The task as last seen; None if it was never seen.
        task_id: The id of the task; None if unknown.
        failure: The last failure; None if there is none. Its attempts are copied to the error.
        left: Seconds until the deadline if the agent asked to wait longer than that; the error
            then has all facts of `failure`, except that it is not transient: the task continues.
    """
    facts = Facts(executed=None if task is None else True)
    if failure is not None and left:
        facts = failure.facts()
        facts["transient"] = False
        facts["executed"] = failure.executed if task is None else True
    elif failure is not None:
        facts["attempts"] = failure.attempts
        facts["agent"] = failure.agent
        facts["request_id"] = failure.request_id
        facts["executed"] = failure.executed if task is None else True
    when = f"{left:.3g} s before" if left else "at"
    end = f"{when} the end of the {deadline.name} timeout of {deadline.shown}"
    if deadline.name == "quiet":
        end += " (ReconnectPolicy.max_quiet)"
    name = f"task {task_id}" if task_id else "the task"
    last_state = "never seen" if task is None else f"last seen {task.state.name}"
    expired = DeadlineExceededError(
        f"{name} was {last_state} {end}{_last_failure_text(failure)}",
        deadline=deadline.name,
        timeout=deadline.timeout,
        task=task,
        **facts,
    )
    note_task(expired, None, task_id)
    expired.__cause__ = failure
    if task is None or task.state is not TaskState.AUTH_REQUIRED:
        return expired
    status_message = task.status.message
    text = "" if status_message is None else status_message.text
    prompt = f": {text}" if text else ""
    message = f"task {task.id} still waits for an authorization {end}{prompt}"
    auth_required = TaskAuthRequiredError(message, task=task, **facts)
    auth_required.__cause__ = expired
    return auth_required


def _last_failure_text(failure: A2AError | None) -> str:
    """Return the last failure as the end of an error's text; empty if only time ran out."""
    if isinstance(failure, DeadlineExceededError):  # of an attempt that followed others
        return last_error_text(failure.attempts)
    return f"; last error: {failure.message}" if failure is not None else ""


def last_error_text(attempts: Sequence[Attempt]) -> str:
    """Return why the last retried attempt failed, as the end of the text of a deadline's error."""
    errors = [attempt.error for attempt in attempts if attempt.wait is not None]
    return f"; last error: {errors[-1]}" if errors and errors[-1] else ""
