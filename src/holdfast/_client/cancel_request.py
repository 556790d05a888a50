"""The request to cancel a task, whose retries may find the task canceled already."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast._model.operations import CANCEL_TASK
from holdfast.errors import TaskNotCancelableError, TaskNotFoundError
from holdfast.types import CancelTaskRequest, TaskState

if TYPE_CHECKING:
    from holdfast._client.call_scope import CallScope
    from holdfast._client.core import ClientCore
    from holdfast.errors import A2AError
    from holdfast.types import Task

__all__ = ["may_have_run_before", "request_cancel"]


async def request_cancel(core: ClientCore, request: CancelTaskRequest, scope: CallScope) -> Task:
    """Ask the agent to cancel a task, and return the task as the agent's reply shows it.

    Args:
        core: Makes calls.
        request: The request.
        scope: The deadline of the request, and what it carries.

    Raises:
        TaskNotCancelableError: The task is over already, or cannot be canceled.
        TaskNotFoundError: The agent does not know it.
    """
    try:
        task = (await core.call(CANCEL_TASK, request, scope)).value
    except (TaskNotCancelableError, TaskNotFoundError) as error:
        task = await _canceled_before(request.id, error, core, scope)
    core.expect_change(request.id)  # an agent may not notify every subscriber
    return task


async def _canceled_before(
    task_id: str,
    error: TaskNotCancelableError | TaskNotFoundError,
    core: ClientCore,
    scope: CallScope,
) -> Task:
    """Return the canceled task if an earlier attempt of the same cancel has succeeded."""
    if not may_have_run_before(error):
        raise error
    try:
        task = await core.get_task(task_id, scope)
    except TaskNotFoundError:
        raise error from None
    if task.state is not TaskState.CANCELED:
        raise error
    return task


def may_have_run_before(error: A2AError) -> bool:
    """Return whether an earlier attempt of the same call may have been executed."""
    return any(attempt.executed is not False for attempt in error.attempts[:-1])
