"""What `Client.conversation` gives: several messages to one agent that belong together.

Rules (A2A 3.4, 7.6):
- The context goes with every message, and the task for as long as it is open: what is said after
  its end begins another task in the same context.
- A turn ends when the agent has answered. What it asks on the way is replied to by the hooks, and
  is no part of its answer; where there is no hook or no reply, the question is the end.
- An authorization may be given behind the client's back: it goes on watching.
- Whatever ends a turn early leaves the task as it is, and the conversation goes on with it.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, TypeAlias, Unpack

import msgspec

from holdfast.content import Content, to_message
from holdfast.errors import (
    A2AError,
    DeadlineExceededError,
    TaskAuthRequiredError,
    TaskInputRequiredError,
    TaskInterruptedError,
)
from holdfast.event_stream import EventStream
from holdfast.model.types import Task, TaskState
from holdfast.policy.deadline import Deadline
from holdfast.runtime.waiting import Endable, until
from holdfast.stream_calls import StreamCalls

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import Any

    from holdfast.answer import Answer
    from holdfast.calls import Calls
    from holdfast.model.requests import SendMessageConfiguration
    from holdfast.model.types import Event, Message, TaskStatus
    from holdfast.options import CallOptions
    from holdfast.runtime.live import LiveStream
    from holdfast.tasks.told import Told

__all__ = ["Conversation", "Interruption", "InterruptionHook"]


class Interruption(msgspec.Struct, frozen=True, kw_only=True):
    """What an agent waits for in the middle of a task: input, or an authorization.

    Attributes:
        task: The task as it stands.
    """

    task: Task

    @property
    def message(self) -> Message | None:
        """What the agent says about it, with all parts."""
        return self.task.status.message

    @property
    def text(self) -> str:
        """The text of it: the question, or how to authorize."""
        return "" if self.message is None else self.message.text

    def error(self, why: str) -> TaskInterruptedError:
        """The error to raise where whoever called has to see to it.

        An agent that calls another one passes an interruption on with it: it sets its own task to
        the same state, and goes on with `Conversation.wait` or `Conversation.ask` later.

        Args:
            why: Why there is no reply.
        """
        authorizes = self.task.state is TaskState.AUTH_REQUIRED
        kind = TaskAuthRequiredError if authorizes else TaskInputRequiredError
        awaited = "an authorization" if authorizes else "input"
        message = f"task {self.task.id} still waits for {awaited}: {why}"
        return kind(message, task=self.task, executed=True)


InterruptionHook: TypeAlias = Callable[[Interruption], Awaitable[Content | None] | Content | None]
"""Gives the reply to an interruption, or None for no reply; may be a coroutine function."""


class Conversation:
    """A conversation with one agent, turn by turn; made by `Client.conversation`.

    To be used by one task at a time.
    """

    def __init__(
        self,
        calls: Calls,
        *,
        context_id: str | None,
        task: Task | None,
        hooks: Mapping[TaskState, InterruptionHook],
        input_timeout: float | None,
        timeout: float,
        max_turns: int,
        poll_interval: float,
    ) -> None:
        self._calls = calls
        self._context_id = context_id if task is None else task.context_id or context_id
        self._task = task
        self._hooks = hooks
        self._input_timeout = input_timeout
        self._timeout = timeout
        self._max_turns = max_turns
        self._poll_interval = poll_interval
        self._turn: EventStream | None = None

    @property
    def context_id(self) -> str | None:
        """The conversation's id; the agent gives it with its first answer."""
        self._catch_up()
        return self._context_id

    @property
    def task(self) -> Task | None:
        """The task of the last turn, as last seen; None where there was a message instead."""
        self._catch_up()
        return self._task

    @property
    def is_open(self) -> bool:
        """Whether the task of the last turn may go on: the next message is for it then."""
        task = self.task
        return task is not None and not task.state.is_terminal

    async def ask(
        self,
        message: Content,
        *,
        metadata: Mapping[str, Any] | None = None,
        accepted_output_modes: Iterable[str] | None = None,
        **options: Unpack[CallOptions],
    ) -> Answer:
        """Says something, and waits for the answer; for what is raised see `stream_message`.

        Args:
            message: Text, parts, a `Message` or its JSON object.
            metadata: A JSON object to send along.
            accepted_output_modes: Media types that the caller can use; the client's own if left
                out.
            **options: See `CallOptions`; the timeout is that of the conversation if left out.

        Returns:
            The answer; its `needs_input` says that the agent waits for another message, and that
            no hook had a reply.

        Raises:
            TaskFailedError: The task failed; also `TaskRejectedError`, `TaskCanceledError`.
        """
        turn = self.stream_message(
            message, metadata=metadata, accepted_output_modes=accepted_output_modes, **options
        )
        async with turn as events:
            return await events.result()

    def stream_message(
        self,
        message: Content,
        *,
        metadata: Mapping[str, Any] | None = None,
        accepted_output_modes: Iterable[str] | None = None,
        **options: Unpack[CallOptions],
    ) -> EventStream:
        """Says something, and gives the answer as it comes, with those to the hooks' replies.

        What it raises while it is iterated over, beside what `Client.stream_message` raises:

        - `TaskInputRequiredError`: a hook failed, did not reply in time, or was asked too often;
          its cause tells. The task still waits: reply with `ask`.
        - `TaskAuthRequiredError`: the same of an authorization, or nobody gave it in time. Go on
          with `wait`, or with `ask` to say something about it.

        Args:
            message: See `ask`.
            metadata: See `ask`.
            accepted_output_modes: See `ask`.
            **options: See `CallOptions`; the timeout is that of the conversation if left out.
        """
        self._catch_up()
        said = to_message(message, new_id=self._calls.env.new_id(), context_id=self._context_id)
        calls = self._stream_calls(options)
        configuration = self._configuration(accepted_output_modes)

        async def say() -> _Turn:
            known = await self._open_task(calls)
            send = calls.send(
                said,
                task_id=None if known is None else known.id,
                context_id=self._context_id,
                metadata=metadata,
                configuration=configuration,
                known=known,
            )
            return self._turn_of(await send(), calls, configuration, known)

        return self._enterable(calls, say)

    async def wait(self, **options: Unpack[CallOptions]) -> Answer:
        """Goes on with the open task without saying anything, as after an error.

        Args:
            **options: See `CallOptions`; the timeout is that of the conversation if left out.

        Returns:
            The answer, as `ask` gives it.

        Raises:
            RuntimeError: There is no open task, or a turn is under way.
            A2AError: See `stream_message`.
        """
        self._check_idle()
        task = self.task
        if task is None or task.state.is_terminal:
            text = "there is no open task to wait for"
            raise RuntimeError(text)
        calls = self._stream_calls(options)

        async def follow() -> _Turn:
            live = await calls.follow(task.id)()
            return self._turn_of(live, calls, self._configuration(None), None)

        async with self._enterable(calls, follow) as events:
            return await events.result()

    # ── Within ───────────────────────────────────────────────────────────────────────────────

    def _catch_up(self) -> None:
        """Learns from the last turn, however far it came."""
        turn = self._turn
        if turn is None:
            return
        whole = turn.task or turn.message
        if whole is not None:
            self._task = turn.task
            self._context_id = whole.context_id or self._context_id

    def _stream_calls(self, options: CallOptions) -> StreamCalls:
        if options.get("timeout") is None:
            options["timeout"] = self._timeout
        deadline, per_call = self._calls.begin("conversation", options)
        return StreamCalls(
            self._calls, deadline, per_call, poll_interval=self._poll_interval, patient=True
        )

    def _check_idle(self) -> None:
        if self._turn is not None and not self._turn.is_over:
            text = "a turn of the conversation is under way; close its stream first"
            raise RuntimeError(text)

    def _enterable(self, calls: StreamCalls, begin: Callable[[], Awaitable[_Turn]]) -> EventStream:
        """The stream of a turn, which begins when it is entered."""

        async def enter() -> _Turn:
            self._check_idle()
            self._catch_up()
            before, self._turn = self._turn, stream
            try:
                return await begin()
            except BaseException:
                self._turn = before
                raise

        stream = EventStream(calls, enter)
        return stream

    def _configuration(self, modes: Iterable[str] | None) -> SendMessageConfiguration:
        return self._calls.configuration(
            return_immediately=None, accepted_output_modes=modes, push_notification_config=None
        )

    def _turn_of(
        self,
        live: LiveStream,
        calls: StreamCalls,
        configuration: SendMessageConfiguration,
        known: Task | None,
    ) -> _Turn:
        return _Turn(
            live,
            ask=partial(self._asked, calls),
            reply=partial(self._reply, calls, configuration),
            max_turns=self._max_turns,
            seen_to=None if known is None else known.status,
        )

    async def _open_task(self, calls: StreamCalls) -> Task | None:
        """The task to go on with, if any: one that was left at work may be over by now."""
        task = self.task
        if task is not None and not task.state.is_interrupted and not task.state.is_terminal:
            task = await calls.look(task.id)
        return None if task is None or task.state.is_terminal else task

    async def _asked(self, calls: StreamCalls, interruption: Interruption) -> Message | None:
        """What the hook replies; None if there is no hook, or no reply.

        Raises:
            TaskInterruptedError: The hook raised, or did not reply in time.
        """
        hook = self._hooks.get(interruption.task.state)
        if hook is None:
            return None
        deadline, now = calls.deadline, asyncio.get_running_loop().time()
        if self._input_timeout is not None and now + self._input_timeout < deadline.at:
            seconds = self._input_timeout
            deadline = Deadline(name="input", timeout=seconds, at=now + seconds)
        late = DeadlineExceededError(
            f"the hook did not reply within the {deadline.name} timeout of {deadline.timeout:g} s",
            deadline=deadline.name,
            timeout=deadline.timeout,
            task=interruption.task,
            executed=True,
        )

        async def ask() -> Message | None:
            given = hook(interruption)
            reply = await given if inspect.isawaitable(given) else given
            return None if reply is None else to_message(reply, new_id=self._calls.env.new_id())

        try:
            return await until(deadline.at, ask(), lambda: late)
        except TaskInterruptedError:
            raise  # the hook's own word: whoever called sees to it
        except Exception as error:
            why = f"the hook failed: {type(error).__name__}: {error}"
            raise interruption.error(late.message if error is late else why) from error

    async def _reply(
        self,
        calls: StreamCalls,
        configuration: SendMessageConfiguration,
        task: Task,
        reply: Content,
    ) -> LiveStream:
        """Sends a reply to the open task."""
        send = calls.send(
            reply,
            task_id=task.id,
            context_id=task.context_id,
            metadata=None,
            configuration=configuration,
            known=task,
        )
        return await send()


class _Turn:
    """The streams of one turn, one after the other: see `holdfast.event_stream.Live`.

    Args:
        live: The first one.
        ask: Asks for a reply to an interruption, if there is one.
        reply: Sends it, and gives the stream that follows.
        max_turns: How often to reply.
        seen_to: The interruption that the first one replies to, if it does.
    """

    def __init__(
        self,
        live: LiveStream,
        *,
        ask: Callable[[Interruption], Awaitable[Content | None]],
        reply: Callable[[Task, Content], Awaitable[LiveStream]],
        max_turns: int,
        seen_to: TaskStatus | None,
    ) -> None:
        self._live = live
        self._ask = ask
        self._reply = reply
        self._max_turns = max_turns
        self._seen_to = seen_to  # the last interruption that was asked about
        self._is_left = False  # it has no reply
        self._is_over = False
        self._past: list[LiveStream] = []
        self._going_on = Endable()

    @property
    def told(self) -> Told:
        return self._live.told

    @property
    def reconnects(self) -> int:
        return sum(live.reconnects for live in (*self._past, self._live))

    @property
    def gap(self) -> bool:
        return any(live.gap for live in (*self._past, self._live))

    @property
    def error(self) -> A2AError | None:
        return self._live.error

    @property
    def cause(self) -> A2AError | None:
        return self._live.cause

    @property
    def is_settled(self) -> bool:
        if not self._live.is_settled:
            return False
        if self._is_over or not self._is_interrupted:
            return True
        return self._is_left and self._is_seen_to

    def at_hand(self) -> Event | None:
        return self._live.at_hand()

    async def next(self) -> Event | None:
        while not self._is_over:
            if self._is_interrupted and not self._is_seen_to:
                await self._going_on.wait(self._go_on())
            if self._going_on.is_ended:
                await self._live.close()  # which may have come meanwhile
            event = await self._live.next()
            if event is not None:
                return event
            waits = self._is_interrupted and not self._is_seen_to
            self._is_over = self._going_on.is_ended or not waits
        return None

    async def settle(self) -> None:
        await self._live.settle()

    async def close(self) -> None:
        self._going_on.end()
        await self._live.close()

    @property
    def _is_interrupted(self) -> bool:
        """Whether the caller has been told that the task waits for something."""
        told = self._live.told
        return told.state is not None and told.state.is_interrupted and not told.has_news

    @property
    def _is_seen_to(self) -> bool:
        """Whether it was asked about; the agent may tell it once more before it goes on."""
        status, told = self._seen_to, self.told
        if told.status is status or status is None or told.status is None:
            return told.status is status
        # What was asked may have gone into the history by now.
        said = told.status.message is None or told.status.message == status.message
        is_same = (told.status.state, told.status.timestamp) == (status.state, status.timestamp)
        return is_same and said and told.count <= 1

    async def _go_on(self) -> None:
        """Sees to an interruption: asks for a reply, and sends it, each once."""
        task, status = self.told.task, self.told.status
        if task is None:
            return
        interruption = Interruption(task=task)
        if len(self._past) >= self._max_turns:
            raise interruption.error(f"{self._max_turns} replies were not enough")
        reply = await self._ask(interruption)
        self._seen_to, self._is_left = status, reply is None
        if reply is None:
            return
        onward = await self._reply(task, reply)
        self._past.append(self._live)
        self._live, past = onward, self._live
        with contextlib.suppress(TimeoutError):  # the turn goes on, whatever does not close
            await past.close()
