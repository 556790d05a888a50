"""Sending the caller's message, and watching what becomes of it.

Rules: the message is sent once, and once more only where the caller allows it; nothing here tries
again; the task is never canceled; who watches stops when the time for that is over.
"""

from __future__ import annotations

import asyncio
import math
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from holdfast._aio.cancel_scope import CancelScope
from holdfast._doctor.facts import Answered, SendingFacts, StreamFacts
from holdfast._doctor.recording_engine import StreamWitness
from holdfast._model import operations as op
from holdfast._stream.fold import TaskFold
from holdfast._wire.bindings import OLDER_VERSION
from holdfast.errors import A2AError
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

    from holdfast._doctor.probes import Questions
    from holdfast._doctor.recording_engine import Seen
    from holdfast._pipeline.transport import Stream
    from holdfast.types import Event

__all__ = ["Delivery"]

_LAST_WORD = 2.0
"""Seconds in which a stream is to end when the task is over."""

_POLL = 2.0
"""Seconds between two looks at a task."""

_HISTORY = 100
_MARGIN = 120.0
"""Seconds by which a list by time begins before the message was sent: clocks differ."""


class Delivery:
    """One message on its way.

    Args:
        questions: The interface that it goes to.
        message: The message.
        facts: Where to note what becomes of it.
        seen: Where to note what replies tell.
        skew: Seconds that the agent's clock is ahead, as far as that is known.
    """

    def __init__(
        self, questions: Questions, message: Message, facts: SendingFacts, seen: Seen, skew: float
    ) -> None:
        self._questions = questions
        self._message = message
        self._facts = facts
        self._seen = seen
        self._skew = skew
        self._fold = TaskFold()
        self._subscribing: asyncio.Task[None] | None = None

    @property
    def task(self) -> Task | None:
        """The task as it stands; None if there is none."""
        return self._fold.task

    async def run(
        self, *, streams: bool, watch: float, twice: bool, sending: Callable[[], None]
    ) -> None:
        """Sends the message and looks at what there is to see.

        Args:
            streams: Whether to have the answer streamed.
            watch: Seconds to watch.
            twice: Whether to send the message once more at the end.
            sending: Called right before each time.
        """
        facts = self._facts
        facts.message_id, facts.is_streamed = self._message.message_id, streams
        listing = self._questions.facts.listing
        facts.has_list = listing is not None and listing.answered.is_result
        facts.is_older = self._questions.endpoint.version == OLDER_VERSION
        began = self._questions.caller.env.wall()
        sending()
        try:
            await (self._streamed(watch) if streams else self._polled(watch))
        finally:
            if self._subscribing is not None:
                self._subscribing.cancel()
                await asyncio.wait({self._subscribing})
        if facts.task_id:
            await self._look_back(began)
        if streams and facts.task_id and self.task is not None and self.task.state.is_terminal:
            await self._subscribe_to_over()
        if twice and facts.answered is not None and facts.answered.is_result:
            sending()
            await self._again(watch)

    # ── The first time ───────────────────────────────────────────────────────────────────────

    async def _polled(self, watch: float) -> None:
        ends = asyncio.get_running_loop().time() + watch
        call = self._questions.call(op.SEND_MESSAGE, self._request(at_once=True))
        heard = await self._questions.ask(call, within=watch)
        self._facts.answered, value = heard.answered, heard.value
        if value is None:
            return
        if value.task is None:
            self._facts.is_message = True
            return
        self._add(value.task)
        async with CancelScope(ends):
            while self.task is not None and not self.task.state.is_settled:
                await asyncio.sleep(_POLL)
                await self._get()

    async def _streamed(self, watch: float) -> None:
        questions, facts = self._questions, self._facts
        stream = facts.stream = StreamFacts()
        began = asyncio.get_running_loop().time()
        witness = StreamWitness(questions.caller.engine, questions.caller.env, self._seen, stream)
        call = questions.call(op.SEND_STREAMING_MESSAGE, self._request(at_once=False))
        events: Stream[StreamResponse] | None = None
        try:
            async with CancelScope.within(watch) as scope:
                stream.opened, events = await questions.open(call, witness)
                facts.answered = stream.opened
                if events is not None:
                    await self._follow(events, stream, began)
            if scope.expired:
                if stream.opened is None:
                    stream.opened = facts.answered = Answered(failure=f"no event for {watch:g} s")
                stream.end = "left"
        finally:
            if events is not None:
                await events.close()
        if self._subscribing is not None and stream.end in {"settled", "open"}:
            await asyncio.wait({self._subscribing}, timeout=_POLL)

    async def _follow(
        self, events: Stream[StreamResponse], stream: StreamFacts, began: float
    ) -> None:
        clock = asyncio.get_running_loop().time
        try:
            while (response := await self._next(events, stream)) is not None:
                stream.arrivals.append(clock() - began)
                event = response.event
                if event is None:
                    continue
                if isinstance(event, Message) and self.task is None:
                    self._facts.is_message, stream.end = True, "message"
                    continue
                self._add(event)
                _note_time(event, stream)
                self._begin_subscribing()
        except A2AError as error:
            self._questions.caller.secrets.hide_in(error)
            stream.failure = error.message
        if stream.end is None:
            task = self.task
            stream.end = "settled" if task is not None and task.state.is_settled else "cut"

    async def _next(
        self, events: Stream[StreamResponse], stream: StreamFacts
    ) -> StreamResponse | None:
        """The next event; None at the end, which is not waited for when the task is over."""
        task = self.task
        is_over = self._facts.is_message or (task is not None and task.state.is_settled)
        async with CancelScope.within(_LAST_WORD if is_over else math.inf):
            return await anext(events, None)
        stream.end = "open" if task is None or task.state.is_terminal else "settled"
        return None

    def _begin_subscribing(self) -> None:
        """Subscribes as soon as there is a task, while it runs.

        Official servers of 0.3 store chunks once more for each subscription: they are left alone.
        """
        task = self.task
        is_over = task is None or task.state.is_settled
        if self._subscribing is None and not (is_over or self._facts.is_older):
            self._subscribing = asyncio.create_task(self._subscribe())

    async def _subscribe(self) -> None:
        facts, fold = self._facts.subscription, TaskFold()
        params = SubscribeToTaskRequest(id=self._facts.task_id)
        call = self._questions.call(op.SUBSCRIBE_TO_TASK, params)
        opened, events = await self._questions.open(call)
        if events is None:
            # The task may have ended before the refusal, and its stream may say so later.
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
        looking = self._questions.call(op.GET_TASK, GetTaskRequest(id=fold.task.id))
        whole = (await self._questions.ask(looking)).value
        if whole is not None:
            told, true = _length(fold.task), _length(whole)
            facts.text = "right" if told == true else "repeated" if told > true else "lost"

    async def _is_settled(self) -> bool:
        """Whether the task has ended or waits for input: its store or its stream may be first."""
        call = self._questions.call(op.GET_TASK, GetTaskRequest(id=self._facts.task_id))
        stored = (await self._questions.ask(call)).value
        known = [task for task in (stored, self.task) if task is not None]
        return not known or any(task.state.is_settled for task in known)

    # ── Afterwards ───────────────────────────────────────────────────────────────────────────

    async def _get(self, history_length: int | None = None) -> Task | None:
        params = GetTaskRequest(id=self._facts.task_id, history_length=history_length)
        task = (await self._questions.ask(self._questions.call(op.GET_TASK, params))).value
        if task is not None:
            self._add(task)
        return task

    async def _look_back(self, began: float) -> None:
        """Looks for the message where one looks whose reply was lost."""
        facts = self._facts
        task = await self._get(_HISTORY)
        if task is None:
            return
        facts.in_task = self._is_in(task)
        if not facts.has_list:
            return
        if task.context_id:
            found = await self._listed(
                ListTasksRequest(context_id=task.context_id, history_length=_HISTORY)
            )
            if found is not None:
                facts.in_list = any(self._is_in(one) for one in found if one.id == task.id)
        if not facts.is_older:
            since = datetime.fromtimestamp(began + self._skew - _MARGIN, UTC)
            stamp = since.isoformat(timespec="seconds").replace("+00:00", "Z")
            found = await self._listed(ListTasksRequest(status_timestamp_after=stamp))
            if found is not None:
                facts.in_recent = any(one.id == task.id for one in found)

    async def _listed(self, params: ListTasksRequest) -> tuple[Task, ...] | None:
        call = self._questions.call(op.LIST_TASKS, params)
        page = (await self._questions.ask(call)).value
        return None if page is None else page.tasks

    async def _subscribe_to_over(self) -> None:
        facts = self._facts.subscription
        params = SubscribeToTaskRequest(id=self._facts.task_id)
        call = self._questions.call(op.SUBSCRIBE_TO_TASK, params)
        events: Stream[Any] | None = None
        try:
            async with CancelScope.within(_POLL * 5) as scope:
                facts.of_over, events = await self._questions.open(call)
                if events is not None:
                    async for _ in events:
                        facts.events_of_over += 1
            if scope.expired:
                facts.of_over = _left_open(facts.events_of_over)
        except A2AError:
            pass  # it is over in any case
        finally:
            if events is not None:
                await events.close()

    async def _again(self, within: float) -> None:
        """Sends the same message once more."""
        facts = self._facts
        call = self._questions.call(op.SEND_MESSAGE, self._request(at_once=True))
        heard = await self._questions.ask(call, within=within)
        facts.again, value = heard.answered, heard.value
        if value is not None:
            facts.is_second_message = value.message is not None
            facts.second_task_id = "" if value.task is None else value.task.id

    # ── Within ───────────────────────────────────────────────────────────────────────────────

    def _request(self, *, at_once: bool) -> SendMessageRequest:
        configuration = SendMessageConfiguration(return_immediately=True) if at_once else None
        return SendMessageRequest(message=self._message, configuration=configuration)

    def _add(self, event: Event) -> None:
        if isinstance(event, Message):
            return
        self._fold.add(event)
        task = self._fold.task
        if task is not None:
            self._facts.task_id, self._facts.state = task.id, str(task.state)

    def _is_in(self, task: Task) -> bool:
        sent = self._message.message_id
        said = [*task.history, *([task.status.message] if task.status.message else [])]
        return any(message.message_id == sent for message in said)


def _note_time(event: Event, stream: StreamFacts) -> None:
    """Notes when the agent itself says that something happened."""
    status = getattr(event, "status", None)
    time = None if status is None else status.time
    if time is not None:
        stream.stamped.append(time.timestamp())


def _length(task: Task) -> int:
    """Characters of text in the artifacts."""
    return sum(
        len(part.text)
        for artifact in task.artifacts
        for part in artifact.parts
        if part.text is not None
    )


def _left_open(events: int) -> Answered:
    told = f"{events} events and " if events else ""
    return Answered(failure=f"{told}no end for {_POLL * 5:g} s")
