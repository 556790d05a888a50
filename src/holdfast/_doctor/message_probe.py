"""The probe that sends the caller's message, and observes its task.

Rules: the message is sent once, and once more only if the caller allows it; nothing is retried;
the task is never canceled; observing ends when its time is over.
"""

from __future__ import annotations

import asyncio
import math
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from holdfast import protocol as op
from holdfast._aio.callbacks import cancel_and_wait
from holdfast._aio.cancel_scope import CancelScope
from holdfast._doctor.facts import ReplyFacts, SendingFacts, StreamFacts
from holdfast._doctor.recording import StreamRecordingEngine
from holdfast._stream.fold import TaskFold
from holdfast.errors import A2AError
from holdfast.protocol import OLDER_VERSION
from holdfast.types import (
    GetTaskRequest,
    ListTasksRequest,
    Message,
    SendMessageConfiguration,
    SendMessageRequest,
    StreamResponse,
    SubscribeToTaskRequest,
    Task,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast._doctor.interface_probe import InterfaceProbe
    from holdfast._doctor.recording import ReplyLog
    from holdfast.extend import Stream
    from holdfast.types import Event

__all__ = ["MessageProbe"]

_STREAM_END_GRACE_S = 2.0
"""Seconds in which a stream should end after its task has."""

_POLL_INTERVAL_S = 2.0
_LATE_SUBSCRIPTION_S = 10.0
"""Seconds to read a subscription to a task that has ended."""

_HISTORY_LENGTH = 100
_CLOCK_MARGIN_S = 120.0
"""Seconds by which a list by time starts before the message was sent, because clocks differ."""


class MessageProbe:
    """Sends one message, and observes its task.

    Args:
        interface: The interface to send to.
        message: The message.
        facts: Records the observations.
        log: Records the replies.
        skew: Seconds that the agent's clock is ahead, as far as that is known.
    """

    def __init__(
        self,
        interface: InterfaceProbe,
        message: Message,
        facts: SendingFacts,
        log: ReplyLog,
        skew: float,
    ) -> None:
        self._interface = interface
        self._message = message
        self._facts = facts
        self._log = log
        self._skew = skew
        self._fold = TaskFold()
        self._subscribing: asyncio.Task[None] | None = None

    @property
    def task(self) -> Task | None:
        """The task as last seen; None if there is none."""
        return self._fold.task

    async def run(
        self, *, streams: bool, watch: float, twice: bool, on_send: Callable[[], None]
    ) -> None:
        """Send the message, and observe its task.

        Args:
            streams: Whether to request a stream.
            watch: Seconds to observe the task.
            twice: Whether to send the message once more at the end.
            on_send: Called right before the message is sent, each time.
        """
        facts = self._facts
        facts.message_id, facts.is_streamed = self._message.message_id, streams
        listing = self._interface.facts.listing
        facts.has_list = listing is not None and listing.reply.is_result
        facts.is_v03 = self._interface.endpoint.version == OLDER_VERSION
        sent_at = self._interface.client.env.wall()
        on_send()
        try:
            await (self._send_streaming(watch) if streams else self._send(watch))
        finally:
            if self._subscribing is not None:
                await cancel_and_wait(self._subscribing)
        if facts.task_id:
            await self._search_message(sent_at)
        if streams and facts.task_id and self.task is not None and self.task.state.is_terminal:
            await self._subscribe_after_end()
        if twice and facts.reply is not None and facts.reply.is_result:
            on_send()
            await self._send_again(watch)

    # ── The first time ───────────────────────────────────────────────────────────────────────

    async def _send(self, watch: float) -> None:
        """Send the message without a stream, and poll its task."""
        watch_until = asyncio.get_running_loop().time() + watch
        call = self._interface.make_call(op.SEND_MESSAGE, self._request(returns_at_once=True))
        result = await self._interface.call(call, timeout=watch)
        self._facts.reply, value = result.reply, result.value
        if value is None:
            return
        if value.task is None:
            self._facts.is_message = True
            return
        self._add(value.task)
        async with CancelScope(watch_until):
            while self.task is not None and not self.task.state.is_settled:
                await asyncio.sleep(_POLL_INTERVAL_S)
                await self._get_task()

    async def _send_streaming(self, watch: float) -> None:
        """Send the message, and read its stream."""
        interface, facts = self._interface, self._facts
        stream = facts.stream = StreamFacts()
        started_at = asyncio.get_running_loop().time()
        client = interface.client
        engine = StreamRecordingEngine(client.engine, client.env, self._log, stream)
        request = self._request(returns_at_once=False)
        call = interface.make_call(op.SEND_STREAMING_MESSAGE, request)
        events: Stream[StreamResponse] | None = None
        try:
            async with CancelScope.within(watch) as scope:
                stream.opened, events = await interface.open_stream(call, engine)
                facts.reply = stream.opened
                if events is not None:
                    await self._read_stream(events, stream, started_at)
            if scope.expired:
                if stream.opened is None:
                    stream.opened = facts.reply = ReplyFacts(failure=f"no event for {watch:g} s")
                stream.end = "left"
        finally:
            if events is not None:
                await events.close()
        if self._subscribing is not None and stream.end in {"settled", "open"}:
            await asyncio.wait({self._subscribing}, timeout=_POLL_INTERVAL_S)

    async def _read_stream(
        self, events: Stream[StreamResponse], stream: StreamFacts, started_at: float
    ) -> None:
        clock = asyncio.get_running_loop().time
        try:
            while (response := await self._next(events, stream)) is not None:
                stream.arrivals.append(clock() - started_at)
                event = response.event
                if event is None:
                    continue
                if isinstance(event, Message) and self.task is None:
                    self._facts.is_message, stream.end = True, "message"
                    continue
                self._add(event)
                _record_timestamp(event, stream)
                self._start_subscription()
        except A2AError as error:
            self._interface.client.redact(error)
            stream.failure = error.message
        if stream.end is None:
            task = self.task
            stream.end = "settled" if task is not None and task.state.is_settled else "cut"

    async def _next(
        self, events: Stream[StreamResponse], stream: StreamFacts
    ) -> StreamResponse | None:
        """Return the next event; None at the end, or if the stream stays open after its task."""
        task = self.task
        is_over = self._facts.is_message or (task is not None and task.state.is_settled)
        async with CancelScope.within(_STREAM_END_GRACE_S if is_over else math.inf):
            return await anext(events, None)
        stream.end = "open" if task is None or task.state.is_terminal else "settled"
        return None

    def _start_subscription(self) -> None:
        """Subscribe to the task once, while it runs.

        Not in 0.3, whose official servers store chunks once more for each subscription.
        """
        task = self.task
        is_over = task is None or task.state.is_settled
        if self._subscribing is None and not (is_over or self._facts.is_v03):
            self._subscribing = asyncio.create_task(self._subscribe())

    async def _subscribe(self) -> None:
        facts, fold = self._facts.subscription, TaskFold()
        params = SubscribeToTaskRequest(id=self._facts.task_id)
        call = self._interface.make_call(op.SUBSCRIBE_TO_TASK, params)
        opened, events = await self._interface.open_stream(call)
        if events is None:
            # The task may have ended before the refusal, and its stream may report that later.
            facts.opened = None if await self._is_settled() else opened
            return
        facts.opened = opened
        is_chunked = False
        try:
            async for response in events:
                event = response.event
                if event is None:
                    continue
                if facts.begins_with_task is None:
                    facts.begins_with_task = isinstance(event, Task)
                is_chunked |= response.artifact_update is not None
                if not isinstance(event, Message):
                    fold.add(event)
        except A2AError:
            return
        finally:
            await events.close()
        if fold.task is None or not fold.task.state.is_terminal or not is_chunked:
            return
        request = self._interface.make_call(op.GET_TASK, GetTaskRequest(id=fold.task.id))
        stored = (await self._interface.call(request)).value
        if stored is not None:
            received, expected = _text_length(fold.task), _text_length(stored)
            if received == expected:
                facts.text = "right"
            else:
                facts.text = "repeated" if received > expected else "lost"

    async def _is_settled(self) -> bool:
        """Whether the task has ended or waits for input, by its store or by its stream."""
        call = self._interface.make_call(op.GET_TASK, GetTaskRequest(id=self._facts.task_id))
        stored = (await self._interface.call(call)).value
        tasks = [task for task in (stored, self.task) if task is not None]
        return not tasks or any(task.state.is_settled for task in tasks)

    # ── Afterwards ───────────────────────────────────────────────────────────────────────────

    async def _get_task(self, history_length: int | None = None) -> Task | None:
        params = GetTaskRequest(id=self._facts.task_id, history_length=history_length)
        call = self._interface.make_call(op.GET_TASK, params)
        task = (await self._interface.call(call)).value
        if task is not None:
            self._add(task)
        return task

    async def _search_message(self, sent_at: float) -> None:
        """Search for the message as a client does whose reply was lost."""
        facts = self._facts
        task = await self._get_task(_HISTORY_LENGTH)
        if task is None:
            return
        facts.in_task = self._contains_message(task)
        if not facts.has_list:
            return
        if task.context_id:
            tasks = await self._list_tasks(
                ListTasksRequest(context_id=task.context_id, history_length=_HISTORY_LENGTH)
            )
            if tasks is not None:
                facts.in_list = any(
                    self._contains_message(listed) for listed in tasks if listed.id == task.id
                )
        if not facts.is_v03:
            since = datetime.fromtimestamp(sent_at + self._skew - _CLOCK_MARGIN_S, UTC)
            timestamp = since.isoformat(timespec="seconds").replace("+00:00", "Z")
            tasks = await self._list_tasks(ListTasksRequest(status_timestamp_after=timestamp))
            if tasks is not None:
                facts.in_recent = any(listed.id == task.id for listed in tasks)

    async def _list_tasks(self, params: ListTasksRequest) -> tuple[Task, ...] | None:
        call = self._interface.make_call(op.LIST_TASKS, params)
        page = (await self._interface.call(call)).value
        return None if page is None else page.tasks

    async def _subscribe_after_end(self) -> None:
        facts = self._facts.subscription
        params = SubscribeToTaskRequest(id=self._facts.task_id)
        call = self._interface.make_call(op.SUBSCRIBE_TO_TASK, params)
        events: Stream[Any] | None = None
        try:
            async with CancelScope.within(_LATE_SUBSCRIPTION_S) as scope:
                facts.after_end, events = await self._interface.open_stream(call)
                if events is not None:
                    async for _ in events:
                        facts.events_after_end += 1
            if scope.expired:
                facts.after_end = _left_open(facts.events_after_end)
        except A2AError:
            pass  # the stream has ended, if with an error
        finally:
            if events is not None:
                await events.close()

    async def _send_again(self, timeout: float) -> None:
        """Send the same message once more."""
        facts = self._facts
        call = self._interface.make_call(op.SEND_MESSAGE, self._request(returns_at_once=True))
        result = await self._interface.call(call, timeout=timeout)
        facts.second_reply, value = result.reply, result.value
        if value is not None:
            facts.is_second_message = value.message is not None
            facts.second_task_id = "" if value.task is None else value.task.id

    # ── Internal ─────────────────────────────────────────────────────────────────────────────

    def _request(self, *, returns_at_once: bool) -> SendMessageRequest:
        configuration = None
        if returns_at_once:
            configuration = SendMessageConfiguration(return_immediately=True)
        return SendMessageRequest(message=self._message, configuration=configuration)

    def _add(self, event: Event) -> None:
        if isinstance(event, Message):
            return
        self._fold.add(event)
        task = self._fold.task
        if task is not None:
            self._facts.task_id, self._facts.state = task.id, str(task.state)

    def _contains_message(self, task: Task) -> bool:
        status_messages = [task.status.message] if task.status.message else []
        return any(
            message.message_id == self._message.message_id
            for message in [*task.history, *status_messages]
        )


def _record_timestamp(event: Event, stream: StreamFacts) -> None:
    """Record the agent's own time of a status."""
    status = getattr(event, "status", None)
    time = None if status is None else status.time
    if time is not None:
        stream.timestamps.append(time.timestamp())


def _text_length(task: Task) -> int:
    """Return the number of characters of text in the artifacts."""
    return sum(
        len(part.text)
        for artifact in task.artifacts
        for part in artifact.parts
        if part.text is not None
    )


def _left_open(events: int) -> ReplyFacts:
    received = f"{events} events and " if events else ""
    return ReplyFacts(failure=f"{received}no end for {_LATE_SUBSCRIPTION_S:g} s")
