"""Many messages to one agent: a few at a time, each sent once, whatever happens to the program."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterable
from typing import TYPE_CHECKING, Any, Self, TypeVar

import msgspec

from holdfast.answer import Answer, raise_for_outcome
from holdfast.content import Content, to_message
from holdfast.errors import A2AError, JournalError, OutcomeUnknownError
from holdfast.journaling import digest_of
from holdfast.model.types import Message, Task
from holdfast.pending import PendingCall

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable
    from types import TracebackType

    from holdfast.calls import Calls
    from holdfast.journaling import Journaling
    from holdfast.options import CallOptions
    from holdfast.runtime.journal import CallRecord

__all__ = ["BulkRun", "RunItem", "RunResult"]

T = TypeVar("T")


class RunItem(msgspec.Struct, frozen=True, kw_only=True):
    """One message of many, with a key of its own.

    Attributes:
        key: What it is called in results, and in the journal: the same in every run.
        content: The message.
    """

    key: str
    content: Content


class RunResult(msgspec.Struct, frozen=True, kw_only=True):
    """What one message of many came to: either `answer` or `error` is set.

    Attributes:
        key: The key of its `RunItem`; of other messages, their place, from 0 on, as text.
        answer: The answer.
        error: Why there is none: an `A2AError`, or a ValueError or TypeError of a message that
            cannot be sent.
        duration: Seconds that it took in this run.
        was_resumed: Whether an earlier run had sent it, or may have.
    """

    key: str
    answer: Answer | None = None
    error: Exception | None = None
    duration: float = 0.0
    was_resumed: bool = False


class BulkRun:
    """The results of many messages, as they come; made by `Client.run`.

    Iterate over it once. Messages are taken when there is room for them, and while somebody
    iterates. Whoever leaves early says `close`, or uses the run as an async context manager.
    """

    def __init__(
        self,
        calls: Calls,
        messages: Iterable[Content | RunItem] | AsyncIterable[Content | RunItem],
        ask: Callable[[Content, str | None], Awaitable[Answer]],
        *,
        run_id: str | None,
        concurrency: int,
        rate: float | None,
        poll_interval: float,
        options: CallOptions,
    ) -> None:
        self._calls = calls
        self._items = _items(messages)
        self._ask = ask
        self._run_id = run_id
        self._concurrency = concurrency
        self._poll_interval = poll_interval
        self._options = options
        self._interval = 0.0 if rate is None else 1.0 / rate
        self._not_before = 0.0
        self._is_stopped = False
        self._is_waited_for = False
        self._taking: asyncio.Task[RunItem | None] | None = None
        self._on_the_way: set[asyncio.Task[RunResult]] = set()
        self._done: deque[RunResult] = deque()
        self._fault: BaseException | None = None

    @property
    def under_way(self) -> int:
        """How many messages are on their way."""
        return len(self._on_the_way)

    def __aiter__(self) -> Self:
        return self

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def __anext__(self) -> RunResult:
        """The next result, in the order in which they come.

        What is wrong with one message, a `JournalError` too, is in its result. What ends the run
        before its time is raised behind the results of all that was under way, which the time of
        each answer bounds.

        Raises:
            ValueError: A key was given to more than one message; nothing behind it is sent.
            RuntimeError: The client was closed; or somebody else waits for the next result.
            Exception: What the messages themselves raise when they are iterated over.
        """
        if self._is_waited_for:
            text = "the run is iterated over already: each result is given once"
            raise RuntimeError(text)
        self._is_waited_for = True
        try:
            while not self._done:
                await self._work()
            return self._done.popleft()
        finally:
            self._is_waited_for = False

    def stop(self) -> None:
        """Takes no more messages, and begins with none; those on their way come to their end."""
        self._is_stopped = True
        if self._taking is not None:
            self._taking.cancel()

    async def close(self) -> None:
        """Stops, and waits no longer for what is on its way. Can be called twice.

        Where there is a journal, the next run with the same ``run_id`` goes on with that.
        """
        self.stop()
        tasks: list[asyncio.Task[Any]] = [*self._on_the_way]
        if self._taking is not None:
            tasks.append(self._taking)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._taking = self._fault = None
        self._on_the_way.clear()
        self._done.clear()
        await self._items.aclose()

    # ── Taking messages ──────────────────────────────────────────────────────────────────────

    async def _work(self) -> None:
        """Goes on until something has come to its end.

        Raises:
            StopAsyncIteration: Everything has.
            Exception: So it has, and this is why there was no more of it.
        """
        waiting: set[asyncio.Task[Any]] = {*self._on_the_way}
        if (taking := self._take()) is not None:
            waiting.add(taking)
        if not waiting:
            fault, self._fault = self._fault, None
            raise fault or StopAsyncIteration
        done, _ = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        for task in done & self._on_the_way:
            self._on_the_way.discard(task)
            if (result := self._result_of(task)) is not None:
                self._done.append(result)
        if taking in done:
            self._taking = None
            item = self._result_of(taking)
            if item is None:
                self._is_stopped = True
            elif not self._is_stopped:  # else it was taken, and waited for its time
                self._on_the_way.add(asyncio.create_task(self._one(item)))

    def _take(self) -> asyncio.Task[RunItem | None] | None:
        """What takes the next message, if there is room for one."""
        has_room = not self._is_stopped and len(self._on_the_way) < self._concurrency
        if self._taking is None and has_room:
            self._taking = asyncio.create_task(self._next_item())
        return self._taking

    async def _next_item(self) -> RunItem | None:
        loop = asyncio.get_running_loop()
        item = await anext(self._items, None)
        if item is not None:
            await asyncio.sleep(max(0.0, self._not_before - loop.time()))
            self._not_before = max(self._not_before, loop.time()) + self._interval
        return item

    def _result_of(self, task: asyncio.Task[T]) -> T | None:
        """What a task came to; what went wrong with it ends the run, behind what is under way."""
        if task.cancelled():
            return None
        if (error := task.exception()) is None:
            return task.result()
        self._fault = self._fault or error
        self.stop()
        return None

    # ── One message ──────────────────────────────────────────────────────────────────────────

    async def _one(self, item: RunItem) -> RunResult:
        loop = asyncio.get_running_loop()
        began, journaling = loop.time(), self._calls.journaling
        answer: Answer | None = None
        error: Exception | None = None
        was_resumed = False
        try:
            message = to_message(item.content, new_id="")  # raises for what cannot be sent
            label = None if self._run_id is None else _label(self._run_id, item.key)
            record = await _sent(journaling, label)
            if record is None:
                try:
                    answer = await self._ask(message, label)
                except JournalError:
                    record = await _sent(journaling, label)  # somebody was quicker
                    if record is None:
                        raise
            if record is not None and journaling is not None:
                _check_same(item.key, message, record)
                was_resumed = True
                answer = await self._gone_on_with(record, journaling)
        except (A2AError, ValueError, TypeError) as failure:
            error = failure
        return RunResult(
            key=item.key,
            answer=answer,
            error=error,
            duration=loop.time() - began,
            was_resumed=was_resumed,
        )

    async def _gone_on_with(self, record: CallRecord, journaling: Journaling) -> Answer:
        """The answer to a message that was sent before, whoever brings it to its end."""
        deadline, _ = self._calls.begin("wait", self._options)
        tried = 0
        while record.outcome is None:
            record = await journaling.until_free(record.message_id, deadline, outlasts=True)
            if record.outcome is None:
                call = PendingCall(record, self._calls, journaling)
                try:
                    return await call.resume(poll_interval=self._poll_interval, **self._options)
                except JournalError:
                    if record.generation == tried:
                        raise
                    tried = record.generation  # somebody else may have been quicker
        if record.outcome == "unknown":
            raise OutcomeUnknownError(
                f"nobody knows whether the agent ran message {record.message_id}, as an earlier "
                "run has reported. It was not sent again",
                message_id=record.message_id,
                context_id=record.context_id,
            )
        return _answer_of(await self._result(record))

    async def _result(self, record: CallRecord) -> Task | Message:
        """What answered a call that is over."""
        if record.result is not None:
            if record.state is None:
                return msgspec.json.decode(record.result, type=Message)
            return msgspec.json.decode(record.result, type=Task)
        if record.state is not None and record.task_id is not None:
            deadline, per_call = self._calls.begin("call", self._options)
            try:
                return await self._calls.get_task(record.task_id, deadline, per_call)
            except A2AError as error:
                error.executed = True  # the message, whatever became of this look
                raise
        raise A2AError(
            f"an earlier run has ended with: {record.detail or record.outcome}", executed=None
        )


async def _items(
    messages: Iterable[Content | RunItem] | AsyncIterable[Content | RunItem],
) -> AsyncGenerator[RunItem]:
    """Messages with their keys.

    Raises:
        ValueError: A key was given to more than one message.
    """
    keyed = _Keyed()
    if isinstance(messages, AsyncIterable):
        async for message in messages:
            yield keyed.item(message)
    else:
        for message in messages:
            yield keyed.item(message)


class _Keyed:
    """Gives each message its key."""

    def __init__(self) -> None:
        self._place = 0
        self._seen: set[str] = set()

    def item(self, message: Content | RunItem) -> RunItem:
        place, self._place = self._place, self._place + 1
        if isinstance(message, RunItem):
            item = message
            if not self._seen:  # only places so far, which are many where there is nothing else
                self._seen.update(map(str, range(place)))
        else:
            item = RunItem(key=str(place), content=message)
            if not self._seen:
                return item
        if item.key in self._seen:
            text = f"the key {item.key!r} was given to more than one message"
            raise ValueError(text)
        self._seen.add(item.key)
        return item


def _label(run_id: str, key: str) -> str:
    """What a message of a run is called: no other one is called the same."""
    return f"{run_id.replace('%', '%25').replace(':', '%3A')}:{key}"


async def _sent(journaling: Journaling | None, label: str | None) -> CallRecord | None:
    """What the journal knows of a message that may have been sent."""
    if journaling is None or label is None:
        return None
    record = (await journaling.labelled([label])).get(label)
    return None if record is None or record.outcome == "not_sent" else record


def _check_same(key: str, message: Message, record: CallRecord) -> None:
    """Checks that a message is the one that was sent under its key."""
    if record.digest not in {None, digest_of(message)}:
        text = (
            f"another message was sent under the key {key!r} in this run before, as message "
            f"{record.message_id}; this one was not sent: give it a key of its own, or the run "
            "another run_id"
        )
        raise ValueError(text)


def _answer_of(result: Task | Message) -> Answer:
    if isinstance(result, Message):
        return Answer(message=result)
    raise_for_outcome(result)
    return Answer(task=result)
