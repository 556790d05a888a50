"""Watching a task by looking at it again and again: always possible, never without an end."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from holdfast._policy.attempts import more_informative
from holdfast._policy.deadline import Deadline, add_last_seen, poll_delays, wait_deadline_error
from holdfast.errors import A2AError, DeadlineExceededError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from holdfast.types import Task

__all__ = ["poll"]


async def poll(
    look: Callable[[], Awaitable[Task]],
    task_id: str,
    task: Task | None,
    *,
    until: Callable[[Task], bool],
    deadline: Deadline,
    interval: float,
    seen: Callable[[Task], Awaitable[None]],
    pause: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> Task:
    """Looks at a task until it is as wanted.

    A failure that may pass does not end it: an agent that restarts is asked again.

    Args:
        look: Fetches the task, itself within the deadline.
        task_id: The task.
        task: The same as last seen; None looks at once.
        until: Whether it is as wanted.
        deadline: When to give up.
        interval: Seconds between two looks; the first ones are quicker.
        seen: Told of each task that differs from the one before; what it raises ends the wait.
        pause: Waits for some seconds, or until the client is closed.

    Raises:
        DeadlineExceededError: With the task as last seen, caused by the last failure, if any.
        TaskAuthRequiredError: The same, where the task waits for an authorization.
        A2AError: A failure that will not pass; `executed` is True where the task was seen.
    """
    loop = asyncio.get_running_loop()
    delays = poll_delays(interval)
    failure: A2AError | None = None
    asked = 0.0
    while task is None or not until(task):
        if task is not None or failure is not None:
            left = deadline.left(loop.time())
            await pause(min(max(next(delays), asked), left))
        if deadline.left(loop.time()) <= 0:
            raise wait_deadline_error(deadline, task, task_id, failure)
        try:
            found = await look()
        except DeadlineExceededError as error:
            cause = failure or error
            raise wait_deadline_error(deadline, task, task_id, cause)  # noqa: B904  it has its cause
        except A2AError as error:
            if not error.transient:
                add_last_seen(error, task_id, None if task is None else task.state)
                raise
            asked = error.retry_after or 0.0
            failure = more_informative(error, failure)
        else:
            changed, task, failure, asked = found != task, found, None, 0.0
            if changed:
                await seen(task)
    return task
