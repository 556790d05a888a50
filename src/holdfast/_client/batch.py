"""Many messages to one agent: a few at a time, each sent once, whatever happens to the program."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterable
from typing import TYPE_CHECKING, Any, Self, TypeVar, cast

import msgspec

from holdfast._aio.callbacks import reject_self_cancellation
from holdfast._aio.closing import ClosingContext
from holdfast._arguments import not_empty
from holdfast._client.answer import Answer
from holdfast._client.content import Content, to_message
from holdfast.errors import A2AError, JournalError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    from holdfast._client.call_scope import CallScope
    from holdfast._client.run_records import EarlierSend, RunRecords
    from holdfast._pipeline.observed_call import ObservedCall
    from holdfast._policy.deadline import Deadline
    from holdfast.types import Message

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

    def __post_init__(self) -> None:
        not_empty("key", self.key)


class RunResult(msgspec.Struct, frozen=True, kw_only=True):
    """What one message of many came to: either `answer` or `error` is set.

    Attributes:
        key: The key of its `RunItem`; of other messages, their place, from 0 on, as text.
        answer: The answer.
        error: Why there is none: an `A2AError`, as `RunItemChangedError` of a message that is not
            the one that was sent under its key before; or the ValueError or TypeError of what is
            no message.
        duration: Seconds that it took in this run.
        was_resumed: Whether an earlier run had sent it, or may have.
        agent: Where that one sent it, as the journal calls it: see `CallRecord.agent`. It may be
            another name than the one that this run uses, or another agent. None where
            `was_resumed` is False.
    """

    key: str
    answer: Answer | None = None
    error: Exception | None = None
    duration: float = 0.0
    was_resumed: bool = False
    agent: str | None = None


class BulkRun(ClosingContext):
    """The results of many messages, as they come; made by `Client.run`.

    Iterate over it once: at its end it is exhausted. Messages are taken when there is room for
    them, and while somebody iterates; an async generator that they come from is closed with the
    run. Whoever leaves early says `close`, or uses the run as an async context manager.
    """

    def __init__(
        self,
        messages: Iterable[Content | RunItem] | AsyncIterable[Content | RunItem],
        begin: Callable[[str | None], tuple[CallScope, ObservedCall]],
        ask: Callable[[Message, CallScope], Awaitable[Answer]],
        records: RunRecords | None,
        *,
        concurrency: int,
        rate: float | None,
    ) -> None:
        self._items = _items(messages)
        self._begin = begin
        self._ask = ask
        self._records = records
        self._concurrency = concurrency
        self._interval = 0.0 if rate is None else 1.0 / rate
        self._not_before = 0.0
        self._is_stopped = False
        self._is_waited_for = False
        self._taking: asyncio.Task[RunItem | None] | None = None
        self._on_the_way: set[asyncio.Task[RunResult]] = set()
        self._done: deque[RunResult] = deque()
        self._fault: BaseException | None = None

    @property
    def in_flight(self) -> int:
        """How many messages are on their way."""
        return len(self._on_the_way)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> RunResult:
        """The next result, in the order in which they come.

        What is wrong with one message, a `JournalError` too, is in its result. What ends the run
        before its time is raised behind the results of all that was under way, which the time of
        each answer bounds.

        Raises:
            ValueError: A key was given to more than one message; nothing behind it is sent.
            RuntimeError: The client was closed; somebody else waits for the next result; or what
                a message or the messages themselves wait for was cancelled.
            Exception: What the messages themselves raise when they are iterated over, and what
                a consumer, an interceptor or another hook of the caller's raises.
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
            await self._items.aclose()
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
        item = await reject_self_cancellation(anext(self._items, None))
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
        return await reject_self_cancellation(self._result(item))

    async def _result(self, item: RunItem) -> RunResult:
        clock, key = asyncio.get_running_loop().time, item.key
        began = clock()
        try:
            message = to_message(item.content, new_id="")
            message.to_json()
        except (ValueError, TypeError) as fault:
            return RunResult(key=key, error=fault, duration=clock() - began)
        label = None if self._records is None else self._records.label(key)
        scope, observed = self._begin(label)
        answer: Answer | None = None
        error: A2AError | None = None
        before: EarlierSend | None = None
        is_taken = False
        try:
            with observed:
                while answer is None:
                    before = await self._sent_before(key, message, scope.deadline)
                    if before is not None:
                        answer, is_taken = await before.answer(scope), False
                        continue
                    try:
                        answer = await self._ask(message, scope)
                    except JournalError as refusal:
                        if is_taken or refusal.reason not in {"exists", "taken_over"}:
                            raise
                        is_taken = True  # by another client, as the journal shows
        except A2AError as failure:
            error = failure
        return RunResult(
            key=key,
            answer=answer,
            error=error,
            duration=clock() - began,
            was_resumed=before is not None,
            agent=None if before is None else before.agent,
        )

    async def _sent_before(
        self, key: str, message: Message, deadline: Deadline
    ) -> EarlierSend | None:
        return None if self._records is None else await self._records.find(key, message, deadline)


async def _items(
    messages: Iterable[Content | RunItem] | AsyncIterable[Content | RunItem],
) -> AsyncGenerator[RunItem]:
    """Messages with their keys.

    Raises:
        ValueError: A key was given to more than one message.
    """
    keyed = _Keyed()
    if isinstance(messages, AsyncGenerator):
        generator = cast("AsyncGenerator[Content | RunItem]", messages)
        async with contextlib.aclosing(generator):  # nobody else may have a hold of it
            async for message in generator:
                yield keyed.item(message)
    elif isinstance(messages, AsyncIterable):
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
