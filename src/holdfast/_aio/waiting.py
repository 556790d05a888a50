"""Waiting until a moment or an event, and no longer."""

from __future__ import annotations

import asyncio
import contextlib
import math
from typing import TYPE_CHECKING, TypeVar

from holdfast.errors import A2AError, DeadlineExceededError, Facts, TaskAuthRequiredError
from holdfast.types import TaskState

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from holdfast._policy.deadline import Deadline
    from holdfast.types import Task

__all__ = [
    "CancelScope",
    "ScopeCancelled",
    "add_last_seen",
    "callback_deadline_error",
    "until",
    "wait_deadline_error",
]

T = TypeVar("T")


async def until(at: float, awaitable: Awaitable[T], too_late: Callable[[], A2AError]) -> T:
    """Waits for something until a moment on the event loop's clock.

    Args:
        at: The moment; infinity for none.
        awaitable: What to wait for.
        too_late: Makes the error to raise at that moment.
    """
    scope = asyncio.timeout_at(None if at == math.inf else at)
    try:
        async with scope:
            return await awaitable
    except TimeoutError as error:
        # Our own timeouts are TimeoutErrors too, and pass through here on their way up.
        if not scope.expired() or isinstance(error, A2AError):
            raise
        raise too_late() from None


class ScopeCancelled(Exception):  # noqa: N818  control flow, not an error
    """A wait was ended by another task."""


class CancelScope:
    """Waits that another task can end.

    Attributes:
        is_ended: Whether `end` was called.
    """

    def __init__(self) -> None:
        self.is_ended = False
        self._scope: asyncio.Timeout | None = None

    async def result(self, awaitable: Awaitable[T]) -> T:
        """Return what something gives, unless `end` comes first, which cancels it.

        A result that arrives in the same moment is returned: it may be a connection, and nobody
        else could close it. `is_ended` tells of the end.

        Raises:
            Ended: There is no result; what was ended before is not begun.
        """
        if self.is_ended:
            if asyncio.iscoroutine(awaitable):
                awaitable.close()
            raise ScopeCancelled
        scope = self._scope = asyncio.timeout(None)
        try:
            async with scope:
                return await awaitable
        except TimeoutError as error:
            if isinstance(error, A2AError) or not scope.expired():
                raise
            raise ScopeCancelled from None
        finally:
            self._scope = None

    async def wait(self, awaitable: Awaitable[object]) -> None:
        """Waits for something, and no longer than until `end`; `is_ended` says which it was."""
        with contextlib.suppress(ScopeCancelled):
            await self.result(awaitable)

    def end(self) -> None:
        """Ends the wait, if there is one."""
        if self._scope is not None and not self.is_ended:
            self._scope.reschedule(asyncio.get_running_loop().time())
        self.is_ended = True


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
