"""The action of each command on its agent, after its options are parsed."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Any, TypedDict

import click

from holdfast._cli.agent.outcomes import (
    report_outcome,
    stated_end_reason,
    suggest_download,
    warn_of_gap,
)
from holdfast._cli.options.masking import secrets_in_reference
from holdfast._cli.options.values import shown_duration
from holdfast._cli.output.base import (
    ConfigDeleted,
    MessageSending,
    MessageSent,
    Notice,
    Result,
    StreamEnded,
    StreamEvent,
    TaskBegan,
)
from holdfast.errors import A2AError, TaskNotCancelableError
from holdfast.types import (
    ListTasksResponse,
    Message,
    Role,
    SendMessageResponse,
    Task,
    TaskPushNotificationConfig,
    TaskState,
)

if TYPE_CHECKING:
    from datetime import datetime

    from holdfast._cli.agent.session import Session
    from holdfast._cli.output.base import Output
    from holdfast._client.event_stream import EventStream
    from holdfast._policy.reconcile import OnUnknown
    from holdfast.types import Part

__all__ = [
    "Filters",
    "cancel_task",
    "create_push_config",
    "delete_push_config",
    "get_push_config",
    "get_task",
    "list_push_configs",
    "list_tasks",
    "send",
    "subscribe_to_task",
]


class Filters(TypedDict):
    """Filters and fields of a task list: see `holdfast.Client.list_tasks`."""

    context_id: str | None
    status: TaskState | None
    status_timestamp_after: datetime | None
    limit: int
    history_length: int | None
    include_artifacts: bool


_CANCEL_TIMEOUT_S = 60.0
"""Seconds that a cancellation waits for the end of the task by default."""


async def send(
    session: Session,
    output: Output,
    *,
    parts: tuple[Part, ...],
    task_id: str | None,
    context_id: str | None,
    metadata: dict[str, Any] | None,
    message_metadata: dict[str, Any] | None,
    on_unknown: OnUnknown = "reconcile",
) -> None:
    """Send the message, unless the journal has its result, and wait for its outcome."""
    session.on_unknown = on_unknown
    if not await session.has_result():
        await session.prepare()
    session.continues = task_id is not None
    message = Message(
        message_id=session.new_message_id(),
        role=Role.USER,
        parts=parts,
        task_id=task_id,
        context_id=context_id,
        metadata=message_metadata,
    )
    output.emit(MessageSending(message))
    if session.key is not None:
        session.await_key()
    waits = session.settings.waits is not False
    # A journal has the outcome of a call if the call lasts until its task is settled.
    if session.settings.stream or (waits and session.journal is not None):
        events = session.client.stream_message(
            message,
            metadata=metadata,
            key=session.key,
            on_unknown=on_unknown,
            poll_interval=session.settings.poll_interval,
            timeout=session.seconds_left(),
            headers=session.svc_params,
        )
        await _follow(session, output, events, is_reply=True)
        return
    answer = await session.client.send_message(
        message,
        metadata=metadata,
        key=session.key,
        on_unknown=on_unknown,
        return_immediately=True,
        timeout=session.seconds_left(),
        headers=session.svc_params,
    )
    session.message_id = None
    _say_whether_sent(session, output)
    if isinstance(answer, Message):
        output.emit(Result(SendMessageResponse(message=answer)))
        return
    # A server may answer with an older state of the task.
    may_be_stale = task_id is not None and answer.state.is_interrupted
    if waits and (may_be_stale or not session.is_at_rest(answer)):
        output.emit(TaskBegan(answer))
        answer = await _wait(session, answer.id)
    output.emit(Result(SendMessageResponse(task=answer)))
    report_outcome(session, output, answer, suggests_wait=not waits)
    suggest_download(session, output, answer)


async def get_task(session: Session, output: Output, *, task_id: str, history: int | None) -> None:
    """Show the task, at once or when it is settled."""
    await session.prepare()

    async def look(history_length: int | None) -> Task:
        return await session.client.get_task(
            task_id,
            history_length=history_length,
            timeout=session.seconds_left(),
            headers=session.svc_params,
        )

    if session.settings.waits:
        task = session.task = await look(None)
        if not session.is_at_rest(task):
            output.emit(TaskBegan(task))
            task = await _wait(session, task_id)
        # Some agents drop the history beyond a requested length: request it at the end only.
        task = task if history is None else await look(history)
    else:
        task = await look(history)
    output.emit(Result(task, history=history is not None))
    report_outcome(session, output, task)


async def subscribe_to_task(session: Session, output: Output, *, task_id: str) -> None:
    """Follow the task until it is settled; show its events, or its final state."""
    await session.prepare()
    events = session.client.subscribe_to_task(
        task_id,
        poll_interval=session.settings.poll_interval,
        timeout=session.seconds_left(),
        headers=session.svc_params,
    )
    await _follow(session, output, events)


async def list_tasks(
    session: Session,
    output: Output,
    *,
    filters: Filters,
    page_token: str | None,
    every_page: bool,
) -> None:
    """Show one page of tasks, or all of them."""
    await session.prepare()
    if every_page:
        await _list_all(session, output, filters)
        return
    page = await session.client.list_tasks(
        **filters,
        page_token=page_token,
        timeout=session.seconds_left(),
        headers=session.svc_params,
    )
    output.emit(Result(page, history=filters["history_length"] is not None))
    if page.next_page_token:
        output.emit(
            Notice.hint(f"the next page: --page-token {shlex.quote(page.next_page_token)}")
        )


async def _list_all(session: Session, output: Output, filters: Filters) -> None:
    tasks: list[Task] = []
    pages = session.client.iter_tasks(
        **filters, timeout=session.seconds_left(), headers=session.svc_params
    )

    async def read() -> None:
        async for task in pages:
            if session.settings.stream:
                output.emit(Result(task))
            else:
                tasks.append(task)

    await session.within_time(read())
    if not session.settings.stream:
        page = ListTasksResponse(tasks=tuple(tasks), page_size=len(tasks), total_size=len(tasks))
        output.emit(Result(page, history=filters["history_length"] is not None))


async def cancel_task(
    session: Session, output: Output, *, task_id: str, metadata: dict[str, Any] | None
) -> None:
    """Ask the agent to cancel the task, and wait for the end of the task."""
    await session.prepare()
    settings = session.settings
    left = session.seconds_left()
    try:
        task = await session.client.cancel_task(
            task_id,
            confirm=settings.waits is not False,
            metadata=metadata,
            timeout=left if settings.timeout_given else min(left, _CANCEL_TIMEOUT_S),
            poll_interval=settings.poll_interval,
            headers=session.svc_params,
        )
    except TaskNotCancelableError as error:
        task = await _canceled_before(session, output, task_id, error)
    output.emit(Result(task))
    if not task.state.is_terminal:
        output.emit(Notice.warning(f"task {task.id} is still {task.state}"))
        output.emit(Notice.hint(session.command("task", "get", "--wait", task.id)))
    elif task.state is not TaskState.CANCELED:
        output.emit(Notice.warning(f"task {task.id} was not canceled: it is {task.state}"))


async def _canceled_before(
    session: Session, output: Output, task_id: str, error: TaskNotCancelableError
) -> Task:
    """Fetch a task that has ended already: if it was canceled, the command succeeded."""
    try:
        task = await session.client.get_task(
            task_id, timeout=session.seconds_left(), headers=session.svc_params
        )
    except A2AError:
        raise error from None
    if task.state is not TaskState.CANCELED:
        session.task = task
        output.emit(TaskBegan(task))
        raise error
    return task


async def _wait(session: Session, task_id: str) -> Task:
    return await session.client.wait(
        task_id,
        until=session.is_at_rest,
        timeout=session.seconds_left(),
        poll_interval=session.settings.poll_interval,
        headers=session.svc_params,
    )


def _say_whether_sent(session: Session, output: Output) -> None:
    """Show whether this command sent its message, if the message has a key."""
    if session.key is not None:
        output.emit(MessageSent(session.may_have_been_sent))


async def _follow(
    session: Session, output: Output, events: EventStream, *, is_reply: bool = False
) -> None:
    """Show each event until the task is settled, or else the state of the task at the end.

    Args:
        session: The session.
        output: Where they are shown.
        events: The events.
        is_reply: Whether they reply to a message, and not to a subscription.
    """
    shows = session.settings.stream
    if shows or not is_reply:
        _warn_of_polls(session, output)
    message = await _show_events(session, output, events)
    task = events.task
    if shows:
        output.emit(StreamEnded())
    elif is_reply:
        output.emit(Result(SendMessageResponse(task=task, message=message)))
    elif task is not None:
        output.emit(Result(task))
    if task is None:
        return
    if shows:
        warn_of_gap(session, output, events)
    report_outcome(session, output, task, reason=await stated_end_reason(events))
    suggest_download(session, output, task)


def _warn_of_polls(session: Session, output: Output) -> None:
    """Say that there is no stream, if the agent offers none."""
    card = session.card
    if card is None or not card.capabilities.streaming:
        interval = shown_duration(session.settings.poll_interval)
        output.emit(
            Notice.warning(
                f"the agent does not support streaming; the task is polled every {interval} "
                "instead"
            )
        )


async def _show_events(session: Session, output: Output, events: EventStream) -> Message | None:
    """Show each event until the task is settled; return the message that replies instead."""
    message: Message | None = None
    has_reply = has_begun = False
    async with events:
        session.message_id = None
        async for event in events:
            task = events.task
            if not has_reply:
                has_reply = True
                _say_whether_sent(session, output)
            if isinstance(event, Message):
                message = event
            if session.settings.stream:
                output.emit(StreamEvent(event, task))
            elif task is not None and not (has_begun or session.is_at_rest(task)):
                has_begun = True
                output.emit(TaskBegan(task))
            is_waiting = task is not None and task.state.is_interrupted and not events.is_stale
            if task is not None and is_waiting and session.is_at_rest(task):
                break
    return message


# ── Push configurations ──────────────────────────────────────────────────────────────────────


async def create_push_config(
    session: Session, output: Output, *, config: TaskPushNotificationConfig
) -> None:
    """Set where the agent sends push notifications of a task.

    Raises:
        click.UsageError: The secrets in it are for another agent.
    """
    for name in ("push_token", "push_credentials"):
        if name in session.settings.withheld:  # without them the configuration would differ
            raise click.UsageError(session.settings.withheld[name])
    output.hide((*config.secrets, *secrets_in_reference(config.url)))
    await session.prepare()
    created = await session.client.create_task_push_notification_config(
        config, timeout=session.seconds_left(), headers=session.svc_params
    )
    output.emit(Result(created))


async def get_push_config(
    session: Session, output: Output, *, task_id: str, config_id: str
) -> None:
    """Show one configuration."""
    session.asks_for_config = True
    await session.prepare()
    config = await session.client.get_task_push_notification_config(
        task_id, config_id, timeout=session.seconds_left(), headers=session.svc_params
    )
    output.emit(Result(config))


async def list_push_configs(
    session: Session,
    output: Output,
    *,
    task_id: str,
    limit: int | None,
    page_token: str | None,
) -> None:
    """Show one page of a task's configurations."""
    await session.prepare()
    page = await session.client.list_task_push_notification_configs(
        task_id,
        limit=limit,
        page_token=page_token,
        timeout=session.seconds_left(),
        headers=session.svc_params,
    )
    output.emit(Result(page))
    if page.next_page_token:
        output.emit(
            Notice.hint(f"the next page: --page-token {shlex.quote(page.next_page_token)}")
        )


async def delete_push_config(
    session: Session, output: Output, *, task_id: str, config_id: str
) -> None:
    """Delete one configuration; a missing one counts as deleted."""
    session.asks_for_config = True
    await session.prepare()
    await session.client.delete_task_push_notification_config(
        task_id, config_id, timeout=session.seconds_left(), headers=session.svc_params
    )
    output.emit(ConfigDeleted(task_id, config_id))
