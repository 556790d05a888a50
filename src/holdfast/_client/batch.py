"""Bulk runs: many messages to one agent, a few in flight at a time, each sent at most once."""

from __future__ import annotations

import asyncio
import contextlib
import warnings
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterable, ItemsView, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Literal, Self, TypeVar, cast

import msgspec

from holdfast._aio.async_only import AsyncOnly
from holdfast._aio.callbacks import reject_self_cancellation
from holdfast._aio.closing import ClosingContext
from holdfast._arguments import check_iterable, check_key
from holdfast._client.answer import Answer, input_required
from holdfast._client.content import Content, to_user_message
from holdfast.errors import A2AError, JournalError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from holdfast._client.call_scope import CallScope
    from holdfast._client.keyed_calls import KeyedCall, KeySpace
    from holdfast.types import Message

__all__ = ["BulkRun", "RunItem", "RunResult", "check_messages"]

T = TypeVar("T")

_DEFERRAL_S = 2.0
"""In a shared run, seconds until a call that another process holds is looked up again."""

_MAX_DEFERRED = 1000
"""Number of deferred calls at which no further message is read until one of them has ended."""

_AS_RUN_ITEM = "for a message with a key, pass RunItem(key=…, content=…)"


class RunItem(msgspec.Struct, frozen=True, kw_only=True):
    """One message of a bulk run, with its key.

    Attributes:
        key: Identifies the message in results and in the journal, 1 to 512 characters without
            control characters. Use the same key in every run.
        content: The message.
    """

    key: str
    content: Content

    def __post_init__(self) -> None:
        check_key(self.key)


class RunResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result of one message of a bulk run: either `answer` or `error` is set.

    Attributes:
        key: The key of its `RunItem`. A message without a `RunItem` has its index as key, counted
            from 0, as text.
        answer: The answer.
        error: The reason why there is no answer: an `A2AError`, such as `TaskInputRequiredError`
            if the agent asks a question (continue its ``task`` with `Client.ask`), or
            `KeyConflictError` if an earlier run sent another message under this key; or the
            ValueError or TypeError of an invalid message.
        duration: Seconds that the message took in this run.
        was_resumed: Whether an earlier run sent the message, or may have sent it; False by
            default.
        agent: Name of the agent that the earlier run sent it to, as in `CallRecord.agent`. It may
            differ from the name that this run uses, or be another agent. None if ``was_resumed``
            is False.
    """

    key: str
    answer: Answer | None = None
    error: Exception | None = None
    duration: float = 0.0
    was_resumed: bool = False
    agent: str | None = None


class BulkRun(ClosingContext, AsyncOnly):
    """The results of many messages, in the order in which they complete; made by `Client.run`.

    Iterate over it once; then it is exhausted. It reads messages only during iteration, and only
    while fewer than ``concurrency`` are in flight. If the messages come from an async generator,
    the run closes the generator when it ends. To stop early, call `close`, or use the run as an
    async context manager. A run that is never iterated over sends nothing, and causes a
    ``RuntimeWarning``.

    Attributes:
        finished_elsewhere: Number of messages without a result here, because another process of a
            shared run has finished their calls.
        on_finished_elsewhere: Called with the key of each such message; None, the default, for
            nothing.
    """

    def __init__(
        self,
        messages: Iterable[Content | RunItem] | AsyncIterable[Content | RunItem],
        begin: Callable[[KeyedCall | None], CallScope],
        ask: Callable[[Message, CallScope], Awaitable[Answer]],
        keys: KeySpace | None,
        *,
        concurrency: int,
        rate: float | None,
    ) -> None:
        self._items = _items(messages)
        self._begin = begin
        self._ask = ask
        self._keys = keys
        self._concurrency = concurrency
        self._interval_s = 0.0 if rate is None else 1.0 / rate
        self._next_send_at = 0.0
        self._is_stopped = False
        self._is_used = False
        self._is_being_read = False
        self._reader: asyncio.Task[RunItem | None] | None = None
        self._deferred_reader: asyncio.Task[RunItem] | None = None
        self._read: deque[RunItem] = deque()  # to be sent or resumed once there is a slot
        self._in_flight: set[asyncio.Task[RunResult | None]] = set()
        self._results: deque[RunResult] = deque()
        self._fatal_error: BaseException | None = None
        self._is_exhausted = False
        self._deferred: deque[tuple[float, RunItem]] = deque()  # held by others, each with a time
        self.finished_elsewhere = 0
        self.on_finished_elsewhere: Callable[[str], None] | None = None

    def __del__(self) -> None:
        if not (self._is_used or self._is_stopped):
            text = "a run was never started: iterate over it with 'async for'; nothing was sent"
            warnings.warn(text, RuntimeWarning, stacklevel=2, source=self)

    @property
    def in_flight(self) -> int:
        """The number of messages in flight."""
        return len(self._in_flight)

    @property
    def held(self) -> int:
        """The number of messages that wait for a call that another client holds in the journal.

        That client may have crashed: then the calls are resumed when their leases end. In a shared
        run these messages are not in flight.
        """
        if self._keys is None:
            return 0
        return self._keys.held + len(self._deferred) + (self._deferred_reader is not None)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> RunResult:
        """Return the next result, in the order of completion.

        An error of one message, a `JournalError` too, is in that message's result. An error that
        ends the run is raised only after the results of all messages in flight, each of which is
        bounded by its own timeout.

        Raises:
            ValueError: Two messages have the same key; no message after the second is sent.
            TypeError: A message is a tuple of two strings; no message after it is sent.
            RuntimeError: The client was closed; another task is already waiting for the next
                result; or a message or the iterable waited for something that was cancelled.
            Exception: The iterable of messages raised it, or a consumer, an interceptor or
                another hook of the caller did.
        """
        if self._is_being_read:
            text = "the run is already being iterated: each result is yielded once"
            raise RuntimeError(text)
        self._is_used = self._is_being_read = True
        try:
            while not self._results:
                await self._advance()
            return self._results.popleft()
        finally:
            self._is_being_read = False

    def stop(self) -> None:
        """Read and send no more messages; those in flight still produce their results."""
        self._is_stopped = True
        self._read.clear()
        for reader in self._readers:
            reader.cancel()

    async def close(self) -> None:
        """Stop, and abandon the messages in flight. Can be called twice.

        If there is a journal, the next run with the same ``run_id`` resumes them.
        """
        self.stop()
        tasks: list[asyncio.Task[Any]] = [*self._in_flight, *self._readers]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._reader = self._deferred_reader = self._fatal_error = None
        self._in_flight.clear()
        self._deferred.clear()
        self._results.clear()
        await self._items.aclose()

    # ── Reading messages ─────────────────────────────────────────────────────────────────────

    async def _advance(self) -> None:
        """Wait until a message is read or completes.

        Raises:
            StopAsyncIteration: All messages have completed.
            Exception: All messages in flight have completed, and this error ended the run.
        """
        while self._read and len(self._in_flight) < self._concurrency:
            self._in_flight.add(asyncio.create_task(self._run_item(self._read.popleft())))
        self._start_readers()
        waiting: set[asyncio.Task[Any]] = {*self._in_flight, *self._readers}
        if not waiting:
            await self._items.aclose()
            error, self._fatal_error = self._fatal_error, None
            raise error or StopAsyncIteration
        done, _ = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        for task in done & self._in_flight:
            self._in_flight.discard(task)
            if (result := self._outcome(task)) is not None:
                self._results.append(result)
        if self._reader is not None and self._reader in done:
            item = self._outcome(self._reader)
            self._reader, self._is_exhausted = None, item is None
            self._add_read(item)
        if self._deferred_reader is not None and self._deferred_reader in done:
            deferred = self._outcome(self._deferred_reader)
            self._deferred_reader = None
            self._add_read(deferred)

    def _add_read(self, item: RunItem | None) -> None:
        if item is not None and not self._is_stopped:  # stop() was called while it waited
            self._read.append(item)

    @property
    def _readers(self) -> list[asyncio.Task[Any]]:
        readers = (self._reader, self._deferred_reader)
        return [reader for reader in readers if reader is not None]

    def _start_readers(self) -> None:
        """Start to read the next message, and the next deferred one, if there is a free slot."""
        if self._is_stopped or len(self._in_flight) >= self._concurrency:
            return
        if self._deferred and self._deferred_reader is None:
            self._deferred_reader = asyncio.create_task(self._next_deferred())
        has_more = not self._is_exhausted and len(self._deferred) < _MAX_DEFERRED
        if has_more and self._reader is None:
            self._reader = asyncio.create_task(self._next_item())

    async def _next_item(self) -> RunItem | None:
        item = await reject_self_cancellation(anext(self._items, None))
        if item is not None:
            await self._wait_for_rate(item)
        return item

    async def _next_deferred(self) -> RunItem:
        due, item = self._deferred.popleft()
        await asyncio.sleep(max(0.0, due - asyncio.get_running_loop().time()))
        await self._wait_for_rate(item)
        return item

    async def _wait_for_rate(self, item: RunItem) -> None:
        """Wait until the message may be sent; a message that was sent before does not wait."""
        if not self._interval_s or await self._was_sent(item):
            return
        now = asyncio.get_running_loop().time()
        send_at = max(self._next_send_at, now)
        self._next_send_at = send_at + self._interval_s
        await asyncio.sleep(send_at - now)

    async def _was_sent(self, item: RunItem) -> bool:
        """Return whether an earlier run has sent the message, so that the rate does not apply."""
        return self._keys is not None and await self._keys.call(item.key).was_sent()

    def _outcome(self, task: asyncio.Task[T]) -> T | None:
        """Return the result of a finished task; if it raised, keep the error and stop the run."""
        if task.cancelled():
            return None
        if (error := task.exception()) is None:
            return task.result()
        self._fatal_error = self._fatal_error or error
        self.stop()
        return None

    # ── One message ──────────────────────────────────────────────────────────────────────────

    async def _run_item(self, item: RunItem) -> RunResult | None:
        return await reject_self_cancellation(self._send_or_resume(item))

    async def _send_or_resume(self, item: RunItem) -> RunResult | None:
        """Return the result of a message; None if another process has its call."""
        clock, key = asyncio.get_running_loop().time, item.key
        started_at = clock()
        try:
            message = to_user_message(item.content, new_id="")
            message.to_json()
        except (ValueError, TypeError) as invalid:
            return RunResult(key=key, error=invalid, duration=clock() - started_at)
        keyed = None if self._keys is None else self._keys.call(key)
        scope = self._begin(keyed)
        answer: Answer | None = None
        error: A2AError | None = None
        try:
            with scope.operation as operation:
                try:
                    answer = await self._ask(message, scope)
                except JournalError:
                    if keyed is not None and keyed.left_as is not None:
                        operation.hand_over()
                    raise
                if answer.task is not None and answer.needs_input:
                    raise input_required(answer.task, answer.question)
        except A2AError as failure:
            if keyed is not None and keyed.left_as is not None:
                self._skip(item, keyed.left_as)
                return None
            answer, error = None, failure
        earlier = None if keyed is None else keyed.earlier
        return RunResult(
            key=key,
            answer=answer,
            error=error,
            duration=clock() - started_at,
            was_resumed=earlier is not None,
            agent=None if earlier is None else earlier.agent,
        )

    def _skip(self, item: RunItem, left_as: Literal["held", "finished"]) -> None:
        """Skip a message that another process has; if it is held, try again after a while."""
        if left_as == "held":
            due = asyncio.get_running_loop().time() + _DEFERRAL_S
            self._deferred.append((due, item))
            return
        self.finished_elsewhere += 1
        if self.on_finished_elsewhere is not None:
            self.on_finished_elsewhere(item.key)


def check_messages(messages: object) -> None:
    """Check the messages of a run before the first one is read.

    Raises:
        TypeError: They are not a sequence, or a dict or its items.
    """
    if isinstance(messages, ItemsView):
        text = f"messages must not be the items of a dict; {_AS_RUN_ITEM}"
        raise TypeError(text)
    try:
        check_iterable("messages", messages, Iterable, AsyncIterable)
    except TypeError as fault:
        if not isinstance(messages, Mapping):
            raise
        text = f"{fault}; {_AS_RUN_ITEM}"
        raise TypeError(text) from None


async def _items(
    messages: Iterable[Content | RunItem] | AsyncIterable[Content | RunItem],
) -> AsyncGenerator[RunItem]:
    """Yield the messages with their keys.

    Raises:
        ValueError: Two messages have the same key.
        TypeError: A message is a tuple of two strings.
    """
    keys = _KeyAssigner()
    if isinstance(messages, AsyncGenerator):
        generator = cast("AsyncGenerator[Content | RunItem]", messages)
        async with contextlib.aclosing(generator):  # the caller may hold no reference to it
            async for message in generator:
                yield keys.item(message)
    elif isinstance(messages, AsyncIterable):
        async for message in messages:
            yield keys.item(message)
    else:
        for message in messages:
            yield keys.item(message)


class _KeyAssigner:
    """Gives each message a key, and rejects duplicates.

    As long as all keys are indices, they cannot repeat and are not stored.
    """

    def __init__(self) -> None:
        self._count = 0
        self._keys: set[str] = set()

    def item(self, message: Content | RunItem) -> RunItem:
        index, self._count = self._count, self._count + 1
        if isinstance(message, RunItem):
            item = message
            if not self._keys:
                self._keys.update(map(str, range(index)))
        elif _is_pair(message):
            text = f"a message must not be a tuple of two strings; {_AS_RUN_ITEM}"
            raise TypeError(text)
        else:
            item = RunItem(key=str(index), content=message)
            if not self._keys:
                return item
        if item.key in self._keys:
            text = f"the key {item.key!r} was passed for more than one message"
            raise ValueError(text)
        self._keys.add(item.key)
        return item


def _is_pair(message: object) -> bool:
    """Return whether a message looks like a key and a text; a list of two texts is two parts."""
    if not isinstance(message, tuple):
        return False
    parts = cast("tuple[object, ...]", message)
    return len(parts) == 2 and all(isinstance(part, str) for part in parts)
