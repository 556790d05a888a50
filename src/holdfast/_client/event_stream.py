"""The result of `Client.stream_message` and `Client.subscribe_to_task`: an answer as a stream."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Protocol, Self

from holdfast._aio.async_only import AsyncOnly
from holdfast._aio.callbacks import cancel_and_wait
from holdfast._client.abandoned_calls import AbandonedCall
from holdfast._client.answer import Answer, raise_for_outcome
from holdfast._model.redacted_repr import short_repr
from holdfast._model.settings import check_kind, explains_unknown_options
from holdfast._stream.text import TextChanges, TextDeltas
from holdfast.errors import A2AError, DeadlineExceededError, JournalError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable
    from types import TracebackType

    from holdfast._client.call_scope import CallScope
    from holdfast._client.streams import StreamCalls
    from holdfast._journal.writer import HeldCall
    from holdfast._pipeline.listeners import Consumer
    from holdfast._stream.outbox import EventOutbox
    from holdfast._stream.text import TextChange
    from holdfast.types import Event, Message, Task

__all__ = ["EventSource", "EventStream", "answer_of"]


class EventSource(Protocol):
    """The source of the events of a stream: see `holdfast._stream.resumable.ResumableStream`."""

    @property
    def outbox(self) -> EventOutbox:
        """The events for the caller, and the task that they describe."""
        ...

    @property
    def reconnects(self) -> int:
        """The number of resubscriptions after a cut."""
        ...

    @property
    def is_polled(self) -> bool:
        """Whether the task is polled, or was at the end, in place of a subscription."""
        ...

    @property
    def gap(self) -> bool:
        """Whether status messages may be missing."""
        ...

    @property
    def error(self) -> A2AError | None:
        """The error that broke a connection last."""
        ...

    @property
    def cause(self) -> A2AError | None:
        """At the end, the error that broke a connection, unless the agent continued after that."""
        ...

    @property
    def is_settled(self) -> bool:
        """Whether there is an answer for the caller."""
        ...

    @property
    def is_stale(self) -> bool:
        """Whether the caller's task still waits for the reply that was just sent."""
        ...

    async def next(self) -> Event | None:
        """Wait for the next event; None at the end."""
        ...

    async def settle(self) -> None:
        """Fetch the agent's final task, if that is quick."""
        ...

    async def close(self) -> None:
        """End the stream, and a wait for its next event; the agent continues with the task."""
        ...


class EventStream(AsyncOnly):
    """Events of one task, or the one message that an agent answers with.

    Enter it, then iterate; or iterate over `text_deltas` or `text_changes`; or wait for `result`.
    It survives cut connections: each event is yielded once, in order, and the last one ends the
    task. Leaving it early, at any moment, closes the connection; the agent's task is canceled only
    with ``cancel_on_abandon=True``. Leaving also ends an iteration in progress; starting an
    iteration afterwards is an error if the stream had not ended.

    Not safe for concurrent use: by one task at a time. A cancelled iteration can be resumed: waits
    continue where they were, and an interrupted request is made again.

    Example:
        Read the events of an answer::

            async with holdfast.connect("http://localhost:9999") as agent:
                async with agent.stream_message("How far is the moon?") as events:
                    async for event in events:
                        print(type(event).__name__)
    """

    _is_reported = True  # while it has not begun, there is no end to report

    def __init__(self, calls: StreamCalls, begin: Callable[[], Awaitable[EventSource]]) -> None:
        self._calls = calls
        self._begin: Callable[[], Awaitable[EventSource]] | None = begin
        self._source: EventSource | None = None
        self._unrecorded: Event | None = None  # to be delivered once the journal has its task
        self._unconsumed: Event | None = None  # to be delivered once all consumers have it
        self._remaining_consumers: list[Consumer] = []  # of the event that is not delivered yet
        self._is_plain = False  # no journal and no consumer handles an event before the caller
        self._has_begun = False
        self._is_being_read = False
        self._is_over = False
        self._operation = calls.scope.operation  # which its abandonment replaces in the scope
        self._has_ended = False  # by itself, and not because its caller left it
        self._is_abandoned: bool | None = None  # until it ends
        self._failure: BaseException | None = None  # the last error that the caller got
        self._raises_on_failure = True  # in the iteration over the text
        self._changes: TextChanges | None = None

    if not TYPE_CHECKING:  # so that type checkers refuse them, too

        def __await__(self) -> None:
            """Raise a TypeError: a stream is entered."""
            text = (
                "a stream is not awaited: write 'async with agent.stream_message(…) as events', "
                "or 'await agent.ask(…)' for the answer alone"
            )
            raise TypeError(text)

        def __enter__(self) -> None:
            """Raise a TypeError: it is an async context manager."""
            text = "use 'async with' for a stream, not 'with'; holdfast.sync is for blocking code"
            raise TypeError(text)

        def __exit__(self, *error: object) -> None:
            """Do nothing: `__enter__` raises."""

    def __del__(self) -> None:
        """Report the end of the operation if the stream was dropped and not closed."""
        if not self._is_reported:
            self._is_reported = True
            self._operation.drop()

    def __repr__(self) -> str:
        task = self.task
        return short_repr(
            self,
            task_id=None if task is None else task.id,
            state=None if task is None else task.state,
            is_over=self._is_over,
        )

    async def __aenter__(self) -> Self:
        """Send the message, and wait for the first event; a subscription is made only later.

        Raises:
            OutcomeUnknownError: The message was sent, its reply was lost, and no task of it was
                found.
            A2AError: Another failure before the first event.
            RuntimeError: It was entered before.
        """
        begin, self._begin = self._begin, None
        if begin is None or self._is_over:
            text = "the stream was already used; create another one"
            raise RuntimeError(text)
        self._operation.begin()
        self._is_reported = False
        try:
            if self._calls.cancel_on_abandon:
                await self._begin_in_task(begin)
            else:
                self._source = await begin()
        except BaseException as failure:
            self._report_end(failure)
            raise
        self._is_plain = not self._calls.scope.consumers and self._calls.call is None
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connection; the agent continues. Can be called twice.

        With ``cancel_on_abandon``, the agent's task is canceled if it is not over; `close` does
        not wait for that.
        """
        self._end()
        if self._is_abandoned is None:
            self._is_abandoned = self._abandons(self._failure)
        if self._is_abandoned:
            self._report_end(self._failure)
            self._failure = None
            return
        try:
            try:
                if self._source is not None:
                    await self._source.close()
            finally:
                await self._record_outcome(self._source)
        except BaseException as failure:
            self._failure = self._failure or failure
            raise
        finally:
            self._report_end(self._failure)
            self._failure = None  # its traceback refers to this stream

    async def _begin_in_task(self, begin: Callable[[], Awaitable[EventSource]]) -> None:
        """Begin in a task, which continues if the caller is cancelled: see `AbandonedCall`."""

        async def open_source() -> EventSource:
            self._source = await begin()
            return self._source

        opening = asyncio.get_running_loop().create_task(open_source(), name="holdfast: begins")
        try:
            await asyncio.wait({opening})
            opening.result()
        except BaseException as failure:
            self._is_over = True
            self._is_abandoned = self._abandons(failure, opening)
            if not self._is_abandoned:
                await cancel_and_wait(opening)
                if self._source is not None:
                    await self._source.close()
                if self._calls.call is not None:
                    await self._calls.call.release()
            raise

    def _abandons(
        self, failure: BaseException | None, opening: asyncio.Task[EventSource] | None = None
    ) -> bool:
        """Return whether an end of the stream abandons the agent's task, which is then canceled.

        Args:
            failure: The error with which the stream ends; None if its caller left it.
            opening: Opens the source, if the stream ends before it has begun.
        """
        calls, source = self._calls, self._source
        if not calls.cancel_on_abandon or calls.client.is_closed:
            return False
        if isinstance(failure, A2AError):
            is_late = isinstance(failure, DeadlineExceededError) or calls.is_late
            if not is_late or failure.executed is False:
                return False
        if opening is None:
            if source is None or source.is_settled:
                return False
            state = source.outbox.state
            if state is not None and state.is_terminal:
                return False
        call = AbandonedCall(calls, opening or source, is_readable=not self._is_being_read)
        calls.client.abandoned.start(call.cancel_task())
        return True

    def _report_end(self, failure: BaseException | None) -> None:
        """Report the end of the operation, once, if the stream was entered."""
        if not self._is_reported:
            self._is_reported = True
            is_left = not (self._has_ended or self._is_settled)
            self._operation.finish(failure, is_left=is_left)

    def _end(self) -> None:
        self._is_over = True
        self._operation.end()
        if self._source is not None:
            self._calls.note_state(self._source.outbox)

    def __aiter__(self) -> Self:
        """Begin to iterate, or continue.

        Raises:
            RuntimeError: The stream was closed, or has failed, before its end.
        """
        if self._is_over and not self._is_settled:
            text = "the stream was closed before its end: iterate inside `async with`"
            raise RuntimeError(text)
        return self

    async def __anext__(self) -> Event:
        """Wait for the next event.

        Raises:
            ReconnectError: The stream was cut, and could not be resumed; `task` is the
                task as last seen.
            DeadlineExceededError: The timeout expired; `task` is the task as last seen.
            TaskAuthRequiredError: The timeout expired while the task waits for an authorization.
            A2AError: The agent refuses to continue.
            RuntimeError: The stream was not entered, or another task is reading it.
        """
        if self._is_being_read:
            text = "the stream is already being read by another task"
            raise RuntimeError(text)
        if self._source is None:
            text = (
                "enter the stream first: async with client.stream_message(…) as events, or "
                "subscribe_to_task(…) (holdfast.sync: with)"
            )
            raise RuntimeError(text)
        if self._is_over:
            raise StopAsyncIteration
        self._is_being_read = True
        self._failure = None  # a cancelled iteration can be resumed
        try:
            if self._is_plain:
                event = await self._source.next()
            else:
                event = await self._next_for_all(self._source)
        except BaseException as failure:
            await self._fail(failure)
            raise
        finally:
            self._is_being_read = False
        if not self._has_begun:
            self._has_begun = True
            self._calls.on_first_event()
        if event is None:
            self._has_ended = True
            self._end()
            raise StopAsyncIteration
        self._operation.note_event(event)
        return event

    async def _fail(self, failure: BaseException) -> None:
        """Complete a failure, and close the stream; a cancelled stream can be resumed."""
        self._failure = failure
        if isinstance(failure, A2AError) and self._unconsumed is None:  # else a consumer raised it
            failure.agent = failure.agent or self._calls.agent
            failure.operation_id = self._operation.id
            self._calls.scope.secrets.hide_in(failure)
            if (call := self._calls.call) is not None:
                await call.record_error(failure)
        if isinstance(failure, Exception):
            with contextlib.suppress(TimeoutError):  # of a connection that does not close
                await self.close()

    async def _next_for_all(self, source: EventSource) -> Event | None:
        """Return the next event, once the journal has its task, and consumers have the event."""
        event, call = self._unconsumed, self._calls.call
        if event is None:
            event = await (source.next() if call is None else self._recorded_next(source, call))
        if event is not None and self._calls.scope.consumers:
            await self._call_consumers(event)
        return event

    async def _call_consumers(self, event: Event) -> None:
        """Call the consumers; after a cancellation, continue with the next of them."""
        self._operation.note_answered()
        if event is not self._unconsumed:
            self._unconsumed, self._remaining_consumers = event, [*self._calls.scope.consumers]
        while self._remaining_consumers:
            await self._calls.call_consumers((self._remaining_consumers[0],), event, self.task)
            del self._remaining_consumers[0]
        self._unconsumed = None

    async def _recorded_next(self, source: EventSource, call: HeldCall) -> Event | None:
        """Return the next event, once its task is in the journal: the caller may act on it."""
        event = self._unrecorded = self._unrecorded or await call.while_held(source.next())
        call, outbox = self._calls.call or call, source.outbox  # a reply may have been sent
        if not call.is_recorded(outbox.task_id, outbox.state) and outbox.task is not None:
            await call.record_state(outbox.task)
        self._unrecorded = None
        return event

    async def _record_outcome(self, source: EventSource | None) -> None:
        """Record the outcome; a stream that its caller left early has none yet."""
        call = self._calls.call
        if call is None:
            return
        answer = None if source is None else source.outbox.task or source.outbox.message
        if source is None or answer is None or not source.is_settled:
            await call.release()
        else:
            await call.record_answer(answer)

    @property
    def is_over(self) -> bool:
        """True if no more events follow: the stream has ended, has failed, or was closed."""
        return self._is_over

    @property
    def task(self) -> Task | None:
        """The task according to the events so far; None if there is none."""
        return None if self._source is None else self._source.outbox.task

    @property
    def is_stale(self) -> bool:
        """True while `task` still waits for the message of this stream, which is a reply to it.

        Some servers begin the stream of a reply with the task as it was before the reply. That
        event is yielded like any other, but it is not the answer: `result` waits for the next.
        """
        return self._source is not None and self._source.is_stale

    @property
    def message(self) -> Message | None:
        """The last message of the stream; without a task, it is the answer."""
        return None if self._source is None else self._source.outbox.message

    @property
    def extensions(self) -> tuple[str, ...]:
        """URIs of the extensions that the agent has activated, according to its first reply."""
        return self._calls.extensions

    @property
    def reconnects(self) -> int:
        """The number of resubscriptions after a cut; always 0 for a task that is polled."""
        return 0 if self._source is None else self._source.reconnects

    @property
    def last_error(self) -> A2AError | None:
        """The error that broke a connection of the stream last; None if there was none.

        An error with which the agent itself ends a stream counts too.
        """
        return None if self._source is None else self._source.error

    @property
    def is_polled(self) -> bool:
        """True if events come from polling the task instead of from a stream, or did at the end.

        A task is polled if the agent does not offer streams, if a subscription might change the
        stored task (protocol 0.3), and after too many subscriptions that failed or brought no
        event. A single GetTask beside a stream, or in place of a subscription, does not count as
        polling.
        """
        return self._source is not None and self._source.is_polled

    @property
    def gap(self) -> bool:
        """True if status messages may be missing: agents need not keep those sent during a cut.

        The task itself, with its artifacts and its state, is always complete.
        """
        return self._source is not None and self._source.gap

    @explains_unknown_options()
    def text_changes(self, *, raise_on_failure: bool = True) -> AsyncIterator[TextChange]:
        """Iterate over the changes of the answer's text: `TextDelta` and `TextReset`.

        A task that waits for input ends the iteration like a completed one: the state of `task` is
        INPUT_REQUIRED then, and `result` contains the question (`Answer.question`).

        Args:
            raise_on_failure: Whether a task that failed, was rejected or canceled raises its error
                at the end; True by default. If False, look at the state of `task`.

        Raises:
            TaskFailedError: At the end: the task failed; also `TaskRejectedError`,
                `TaskCanceledError`.
            A2AError: The stream failed: `ReconnectError`, `DeadlineExceededError`,
                `TaskAuthRequiredError`, or an error of the agent.
            RuntimeError: The stream was not entered, was closed, or has failed, before its end.
            TypeError: ``raise_on_failure`` is not a bool.

        Example:
            Show text, and remove what the agent replaces::

                async with holdfast.connect("http://localhost:9999") as agent:
                    async with agent.stream_message("Tell me a story.") as events:
                        async for change in events.text_changes():
                            match change:
                                case holdfast.client.TextDelta(text=text):
                                    print(text, end="", flush=True)
                                case holdfast.client.TextReset():
                                    print("(the text begins again)")
        """
        return self._text_iteration(raise_on_failure=raise_on_failure)

    @explains_unknown_options()
    def text_deltas(self, *, raise_on_failure: bool = True) -> AsyncIterator[str]:
        """Iterate over the text of the answer as it grows: new text only.

        Joined, it is the text of the answer, unless the agent writes artifacts in turns or
        replaces text: the new text follows then, and `text_changes` reports the reset. A line
        feed separates two artifacts.

        A task that waits for input ends the iteration like a completed one: the state of `task` is
        INPUT_REQUIRED then, and `result` contains the question (`Answer.question`).

        Args:
            raise_on_failure: Whether a task that failed, was rejected or canceled raises its error
                at the end; True by default. If False, look at the state of `task`.

        Raises:
            TaskFailedError: At the end: the task failed; also `TaskRejectedError`,
                `TaskCanceledError`.
            A2AError: The stream failed: `ReconnectError`, `DeadlineExceededError`,
                `TaskAuthRequiredError`, or an error of the agent.
            RuntimeError: The stream was not entered, was closed, or has failed, before its end.
            TypeError: ``raise_on_failure`` is not a bool.

        Example:
            Print the answer while the agent writes it::

                async with holdfast.connect("http://localhost:9999") as agent:
                    async with agent.stream_message("Tell me a story.") as events:
                        async for text in events.text_deltas():
                            print(text, end="", flush=True)
        """
        return TextDeltas(self._text_iteration(raise_on_failure=raise_on_failure))

    def _text_iteration(self, *, raise_on_failure: bool) -> TextChanges:
        """Return the only iteration over text: after a break, the next one continues it."""
        check_kind("raise_on_failure", raise_on_failure, bool)
        self._raises_on_failure = raise_on_failure
        if self._changes is None:
            self._changes = TextChanges(self, self._check_outcome)
        return self._changes

    async def result(self) -> Answer:
        """Wait for the answer, until the task is terminal or needs input.

        Returns:
            The answer, which is a completed task, a task that waits for input
            (`Answer.needs_input`), or a message.

        Raises:
            TaskFailedError: The task failed; also `TaskRejectedError`, `TaskCanceledError`.
            A2AError: The stream failed: `ReconnectError`, `DeadlineExceededError`,
                `TaskAuthRequiredError`, or an error of the agent.
            RuntimeError: The stream was not entered, was closed, or has failed, before there was
                an answer.

        Example:
            Wait for the answer without reading the events::

                async with holdfast.connect("http://localhost:9999") as agent:
                    async with agent.stream_message("How far is the moon?") as events:
                        answer = await events.result()
                    print(answer.text)
        """
        while not self._is_settled:
            try:
                await self.__anext__()
            except StopAsyncIteration:
                break
        if self._source is not None and not self._is_over:
            await self._source.settle()
        if not self._is_settled:
            text = "the stream was closed before it had an answer"
            raise RuntimeError(text)
        task = self.task
        if task is None:
            return Answer(message=self.message, extensions=self.extensions)
        self._raise_for_outcome(task)
        return Answer(task=task, extensions=self.extensions)

    def _raise_for_outcome(self, task: Task) -> None:
        """Raise an error if the task is over and not completed."""
        calls = self._calls
        try:
            with calls.scope.hiding_secrets():
                raise_for_outcome(
                    task,
                    agent=calls.agent,
                    stream_error=None if self._source is None else self._source.cause,
                    request_id=calls.scope.operation.request_id,
                    attempts=calls.attempts,
                )
        except A2AError as failure:
            failure.operation_id = self._operation.id  # the operation may go on, or have ended
            self._failure = failure
            raise

    def _check_outcome(self) -> None:
        """Raise that error at the end of an iteration over text, if wanted, and only once."""
        task, is_to_raise = self.task, self._raises_on_failure
        self._raises_on_failure = False
        if is_to_raise and task is not None:
            self._raise_for_outcome(task)

    @property
    def _is_settled(self) -> bool:
        return self._source is not None and self._source.is_settled


async def answer_of(sending: Callable[[], EventStream], scope: CallScope) -> Answer:
    """Send a message and return the answer.

    If another client takes the call of a key over, this one waits for that client's answer.

    Args:
        sending: Returns the stream of the answer, which sends the message when it is entered.
        scope: The scope of the call.
    """
    with scope.operation:
        while True:
            try:
                async with sending() as events:
                    return await events.result()
            except JournalError as error:
                if scope.keyed is None or not scope.keyed.is_taken_over(error):
                    raise
