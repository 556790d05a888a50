"""What each command does with its agent, once its options are understood."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from holdfast.errors import A2AError, TaskNotCancelableError
from holdfast.model.requests import SendMessageResponse
from holdfast.model.types import Message, Role, Task, TaskState

if TYPE_CHECKING:
    from collections.abc import Mapping

    from holdfast.cli.output import Output
    from holdfast.cli.session import Session
    from holdfast.model.types import Part

__all__ = ["cancel_task", "get_card", "get_task", "send"]

_CANCEL_TIMEOUT = 60.0
"""Seconds that a cancel waits for the end of the task unless told otherwise."""


async def send(
    session: Session,
    output: Output,
    *,
    parts: tuple[Part, ...],
    task_id: str | None,
    context_id: str | None,
    metadata: dict[str, Any] | None,
) -> None:
    """Sends the message once, and waits for what becomes of it."""
    await session.prepare()
    session.continues = task_id is not None
    message = Message(
        message_id=session.new_message_id(),
        role=Role.USER,
        parts=parts,
        task_id=task_id,
        context_id=context_id,
    )
    output.sending(message)
    answer = await session.client.send_message(
        message,
        metadata=metadata,
        return_immediately=True,
        timeout=session.left(),
        headers=session.svc_params,
    )
    session.message_id = None
    if isinstance(answer, Message):
        output.result(SendMessageResponse(message=answer))
        return
    waits = session.settings.waits is not False
    if waits and not _is_settled(answer):
        output.began(answer)
        answer = await _wait(session, answer.id)
    output.result(SendMessageResponse(task=answer))
    _comment(session, output, answer, goes_on=not waits)


async def get_task(session: Session, output: Output, *, task_id: str, history: int | None) -> None:
    """Shows the task, at once or when it is settled."""
    await session.prepare()

    async def look(history_length: int | None) -> Task:
        return await session.client.get_task(
            task_id,
            history_length=history_length,
            timeout=session.left(),
            headers=session.svc_params,
        )

    if session.settings.waits:
        task = session.task = await look(None)
        if not _is_settled(task):
            output.began(task)
            task = await _wait(session, task_id)
        # Some agents forget what goes beyond a history that was asked for: ask at the end only.
        task = task if history is None else await look(history)
    else:
        task = await look(history)
    output.result(task, history=history is not None)
    _comment(session, output, task)


async def cancel_task(
    session: Session, output: Output, *, task_id: str, metadata: dict[str, Any] | None
) -> None:
    """Asks to cancel the task, and waits for its end."""
    await session.prepare()
    settings = session.settings
    left = session.left()
    try:
        task = await session.client.cancel_task(
            task_id,
            confirm=settings.waits is not False,
            metadata=metadata,
            timeout=left if settings.timeout_given else min(left, _CANCEL_TIMEOUT),
            poll_interval=settings.poll_interval,
            headers=session.svc_params,
        )
    except TaskNotCancelableError as error:
        task = await _canceled_before(session, output, task_id, error)
    output.result(task)
    if not task.state.is_terminal:
        output.warn(f"task {task.id} is still {task.state}")
        output.hint(session.command("task", "get", "--wait", task.id))
    elif task.state is not TaskState.CANCELED:
        output.warn(f"task {task.id} was over before: {task.state}")


async def _canceled_before(
    session: Session, output: Output, task_id: str, error: TaskNotCancelableError
) -> Task:
    """Looks how a task ended that is over: one that was canceled is as it was to be."""
    try:
        task = await session.client.get_task(
            task_id, timeout=session.left(), headers=session.svc_params
        )
    except A2AError:
        raise error from None
    if task.state is not TaskState.CANCELED:
        session.task = task
        output.began(task)
        raise error
    return task


async def get_card(session: Session, output: Output) -> None:
    """Shows the card, even one whose interfaces are of no use."""
    card = await session.get_card()
    output.card(card, await session.chosen())


async def _wait(session: Session, task_id: str) -> Task:
    return await session.client.wait(
        task_id,
        until=_is_settled,
        timeout=session.left(),
        poll_interval=session.settings.poll_interval,
        headers=session.svc_params,
    )


def _is_settled(task: Task) -> bool:
    return task.state.is_terminal or task.state.is_interrupted


def _comment(session: Session, output: Output, task: Task, *, goes_on: bool = False) -> None:
    """Names an outcome that is no success, and the command that goes on from here."""
    if (said := _OUTCOMES.get(task.state)) is not None:
        output.warn(f"task {task.id} {said} ({task.state})")
    if task.state is TaskState.INPUT_REQUIRED:
        output.hint(session.command("send", "--task-id", task.id, "<reply>"))
    elif task.state is TaskState.AUTH_REQUIRED or (goes_on and not task.state.is_terminal):
        output.hint(session.command("task", "get", "--wait", task.id))


_OUTCOMES: Mapping[TaskState, str] = {
    TaskState.FAILED: "failed",
    TaskState.REJECTED: "was rejected",
    TaskState.CANCELED: "was canceled",
    TaskState.INPUT_REQUIRED: "waits for your answer",
    TaskState.AUTH_REQUIRED: "waits for an authorization",
}
