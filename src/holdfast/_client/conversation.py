"""What `Client.conversation` gives: several messages to one agent that belong together.

Rules (A2A 3.4, 7.6):
- The context goes with every message, and the task for as long as it is open: what is said after
  its end begins another task in the same context.
- A turn ends when the agent has answered. What it asks on the way is replied to by the hooks, and
  is no part of its answer; where there is no hook or no reply, the question is the end.
- An authorization may be given behind the client's back: it goes on watching.
- Whatever ends a turn early leaves the task as it is, and the conversation goes on with it; where
  nobody knows whether it was replied to, the agent is asked how it stands first.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, TypeAlias, Unpack

import msgspec

from holdfast._aio.callbacks import reject_self_cancellation, side_by_side
from holdfast._aio.waiting import callback_deadline_error, until
from holdfast._arguments import json_object
from holdfast._client.client_tools import ToolLoop, ToolTranscript, ask_for_tools
from holdfast._client.content import Content, to_message
from holdfast._client.event_stream import EventStream
from holdfast._client.reply_loop import Turn
from holdfast._client.streams import StreamCalls
from holdfast._policy.deadline import Deadline
from holdfast.errors import (
    A2AConnectionError,
    A2AError,
    DeadlineExceededError,
    TaskAuthRequiredError,
    TaskInputRequiredError,
    TaskInterruptedError,
)
from holdfast.types import Task, TaskState

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import Any

    from holdfast._client.answer import Answer
    from holdfast._client.client_tools import ClientTools
    from holdfast._client.core import ClientCore
    from holdfast._client.options import SendOptions
    from holdfast._stream.resumable import ResumableStream
    from holdfast.types import Message, TaskStatus

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

    def to_error(self, why: str) -> TaskInterruptedError:
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
"""Gives the reply to an interruption, or None for no reply; may be a coroutine function.

The reply is what `Client.ask` takes as a message, such as text; `Reply` is what layers give.

One that is not runs on the event loop, which stands still meanwhile, deadlines included. That is
fine for the built-in `input()` where nothing else goes on; a first Ctrl-C is then noticed only
after Enter, a second one at once. In a thread (`asyncio.to_thread`) the loop goes on, but a thread
cannot be cancelled, and the program does not end before Enter.
"""


class Conversation:
    """A conversation with one agent, turn by turn; made by `Client.conversation`.

    To be used by one task at a time.
    """

    def __init__(
        self,
        calls: ClientCore,
        *,
        context_id: str | None,
        task: Task | None,
        hooks: Mapping[TaskState, InterruptionHook],
        input_timeout: float | None,
        tools: ClientTools | None,
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
        self._tools = tools
        self._talk = ToolTranscript()
        if task is not None:
            self._talk.pass_over(task)
        self._heard: Task | Message | None = task  # what the agent said last
        self._turn: EventStream | None = None
        self._is_unsure = False  # whether something was sent, and nothing came back
        self._replied_to: TaskStatus | None = None  # by what was sent last

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
        message_metadata: Mapping[str, Any] | None = None,
        accepted_output_modes: Iterable[str] | None = None,
        **options: Unpack[SendOptions],
    ) -> Answer:
        """Says something, and waits for the answer; for what is raised see `stream_message`.

        Args:
            message: Text, parts, a `Message` or its JSON object.
            metadata: A JSON object for the metadata of the request (``params.metadata``), and in
                those of the hooks' replies.
            message_metadata: A JSON object to add to the message's own metadata
                (``message.metadata``); it wins where both have a member.
            accepted_output_modes: Media types that the caller can use; the client's own if left
                out, any if empty.
            **options: See `SendOptions`; the timeout is that of the conversation if left out.

        Returns:
            The answer; its `needs_input` says that the agent waits for another message, and that
            no hook had a reply.

        Raises:
            TaskFailedError: The task failed; also `TaskRejectedError`, `TaskCanceledError`.
        """
        turn = self.stream_message(
            message,
            metadata=metadata,
            message_metadata=message_metadata,
            accepted_output_modes=accepted_output_modes,
            **options,
        )
        async with turn as events:
            return await events.result()

    def stream_message(
        self,
        message: Content,
        *,
        metadata: Mapping[str, Any] | None = None,
        message_metadata: Mapping[str, Any] | None = None,
        accepted_output_modes: Iterable[str] | None = None,
        **options: Unpack[SendOptions],
    ) -> EventStream:
        """Says something, and gives the answer as it comes, with those to the hooks' replies.

        What it raises while it is iterated over, beside what `EventStream` raises:

        - `TaskInputRequiredError`: a hook failed, did not reply in time, or was asked too often;
          its cause tells. The task still waits: reply with `ask`.
        - `TaskAuthRequiredError`: the same of an authorization, or nobody gave it in time. Go on
          with `wait`, or with `ask` to say something about it.
        - `LimitExceededError`, `DeadlineExceededError`: the agent called tools too often, or they
          took too long. Go on with `wait`, which runs no call again.

        Args:
            message: See `ask`.
            metadata: See `ask`.
            message_metadata: See `ask`.
            accepted_output_modes: See `ask`.
            **options: See `SendOptions`; the timeout is that of the conversation if left out.
        """
        self._catch_up()
        said = to_message(
            message,
            new_id=self._calls.env.new_id(),
            context_id=self._context_id,
            metadata=message_metadata,
        )
        calls = self._stream_calls(options, of=Conversation.stream_message)
        replies = self._replies(calls, metadata, accepted_output_modes)

        async def say() -> Turn:
            return await replies.say(said, await self._open_task(calls), self._heard)

        return self._enterable(calls, say)

    async def wait(self, **options: Unpack[SendOptions]) -> Answer:
        """Goes on with the open task without saying anything, as after an error.

        Args:
            **options: See `SendOptions`; the timeout is that of the conversation if left out.

        Returns:
            The answer, as `ask` gives it. A hook whose reply was not sent is asked once more. What
            may have been replied to, because nobody knows whether a reply arrived, is the caller's
            to reply to, and not the hooks'.

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
        replies = self._replies(calls, None, None)

        async def follow() -> Turn:
            live = await calls.follow(task.id)()
            if not self._is_unsure:
                return replies.turn(live)
            quiet = self._calls.resilience.reconnect.max_quiet
            return replies.turn(live, self._replied_to, max_quiet=quiet)

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
            self._task, self._heard = turn.task, whole
            self._context_id = whole.context_id or self._context_id

    def _stream_calls(
        self, options: SendOptions, *, of: Callable[..., Any] | None = None
    ) -> StreamCalls:
        if options.get("timeout") is None:
            options["timeout"] = self._timeout
        ask_for_tools(options, self._tools)
        scope = self._calls.begin("conversation", options, sends=True, of=of)
        return StreamCalls(self._calls, scope, poll_interval=self._poll_interval, patient=True)

    def _check_idle(self) -> None:
        if self._turn is not None and not self._turn.is_over:
            text = "a turn of the conversation is in flight; close its stream first"
            raise RuntimeError(text)

    def _enterable(self, calls: StreamCalls, begin: Callable[[], Awaitable[Turn]]) -> EventStream:
        """The stream of a turn, which begins when it is entered."""

        async def enter() -> Turn:
            self._check_idle()
            self._catch_up()
            self._turn = stream
            try:
                return await begin()
            except BaseException:
                self._turn = None
                raise

        stream = EventStream(calls, enter)
        return stream

    def _replies(
        self,
        calls: StreamCalls,
        metadata: Mapping[str, Any] | None,
        modes: Iterable[str] | None,
    ) -> _Replies:
        tools = None
        if self._tools is not None:
            tools = ToolLoop(self._tools, self._calls, calls, self._talk)
        send = partial(
            calls.send,
            metadata=json_object("metadata", metadata),
            configuration=self._calls.configuration(
                return_immediately=None, accepted_output_modes=modes, push_notification_config=None
            ),
            has_gone_on=None if tools is None else tools.going_on(),
        )
        return _Replies(
            calls,
            send=partial(self._send, calls, send),
            tools=tools,
            hooks=self._hooks,
            input_timeout=self._input_timeout,
            max_turns=self._max_turns,
            new_id=self._calls.env.new_id,
        )

    async def _send(
        self,
        calls: StreamCalls,
        send: Callable[..., Callable[[], Awaitable[ResumableStream]]],
        task: Task | None,
        message: Message,
    ) -> ResumableStream:
        """Sends a message, to a task if there is one, and notes it where nothing comes back."""
        context_id = self._context_id if task is None else task.context_id or self._context_id
        task_id = None if task is None else task.id
        sending = send(message, task_id=task_id, context_id=context_id, known=task)
        self._is_unsure, self._replied_to = True, None if task is None else task.status
        try:
            live = await sending()
        except asyncio.CancelledError:
            self._is_unsure = calls.is_sent
            raise
        except A2AError as error:
            self._is_unsure = error.executed is not False
            raise
        self._is_unsure = False
        return live

    async def _open_task(self, calls: StreamCalls) -> Task | None:
        """The task to go on with, if any: one that was left at work may be over by now."""
        task = self.task
        if task is None or task.state.is_terminal:
            return None
        if self._is_unsure or not task.state.is_interrupted:
            try:
                task = await calls.look(task.id)
            except A2AError as error:
                error.executed = False  # of the message, which was not sent
                if isinstance(error, DeadlineExceededError) and error.task is None:
                    error.task = task
                raise
            self._task, self._heard, self._is_unsure = task, task, False
        return None if task.state.is_terminal else task


class _Replies:
    """What is said in one turn: by the caller, by the tools, and by the hooks.

    Args:
        calls: What the turn is made of.
        send: Sends a message, to a task if there is one.
        tools: What the agent may call.
        hooks: Who replies to interruptions.
        input_timeout: Seconds that a hook has.
        max_turns: How often they may reply.
        new_id: Makes an id for a message.
    """

    def __init__(
        self,
        calls: StreamCalls,
        *,
        send: Callable[[Task | None, Message], Awaitable[ResumableStream]],
        tools: ToolLoop | None,
        hooks: Mapping[TaskState, InterruptionHook],
        input_timeout: float | None,
        max_turns: int,
        new_id: Callable[[], str],
    ) -> None:
        self._calls = calls
        self._send = send
        self._tools = tools
        self._hooks = hooks
        self._input_timeout = input_timeout
        self._max_turns = max_turns
        self._new_id = new_id
        self._given = 0
        self._unsent: tuple[TaskStatus, Message] | None = None  # for who goes on

    async def say(self, said: Message, known: Task | None, heard: Task | Message | None) -> Turn:
        """Begins the turn with a message.

        Args:
            said: The message.
            known: The task that it goes on with.
            heard: What the agent said last.
        """
        if self._tools is not None:
            said = self._tools.opening(said, known or heard)
        seen_to = None if known is None else known.status
        return self.turn(await self._send(known, said), seen_to)

    def turn(
        self,
        live: ResumableStream,
        seen_to: TaskStatus | None = None,
        *,
        max_quiet: float | None = None,
    ) -> Turn:
        """The turn that begins with a stream."""
        return Turn(
            live,
            reply_to=self._reply_to,
            send=self._send_reply,
            is_sent=lambda: self._calls.is_sent,
            wants_reply=lambda task: self._tools is not None and self._tools.has_called(task),
            seen_to=seen_to,
            max_quiet=max_quiet,
        )

    async def _send_reply(self, task: Task, reply: Message) -> ResumableStream:
        self._unsent = None
        try:
            if self._calls.is_closed:
                text = "the client was closed"
                raise A2AConnectionError(text, failure="closed", executed=False)
            return await self._send(task, reply)
        except asyncio.CancelledError:
            if not self._calls.is_sent:
                self._unsent = task.status, reply
                if self._tools is not None:
                    self._tools.not_sent(reply)
            raise
        except A2AError as error:
            if error.executed is False and self._tools is not None:
                self._tools.not_sent(reply)
            raise

    async def _reply_to(self, task: Task) -> Message | None:
        """What is replied to an interruption; None for no reply.

        Raises:
            TaskInterruptedError: The hook raised, did not reply in time, or has replied often
                enough.
            A2AError: See `ToolLoop.reply`.
        """
        reply = None if self._tools is None else await self._tools.reply(task)
        if reply is None and self._unsent is not None and self._unsent[0] == task.status:
            return self._unsent[1]
        hook = self._hooks.get(task.state)
        if reply is not None or hook is None:
            return reply
        interruption = Interruption(task=task)
        if self._given >= self._max_turns:
            bound = self._max_turns
            why = f"{bound} replies were not enough" if bound else "no hook may reply"
            raise interruption.to_error(f"{why} (max_turns={bound})")
        reply = await self._asked(hook, interruption)
        if reply is not None and task.state is TaskState.AUTH_REQUIRED:
            with contextlib.suppress(A2AError):  # else it is sent in any case
                task = await self._calls.look(task.id)
            if task.state is not TaskState.AUTH_REQUIRED:  # somebody has given it meanwhile
                return None
        self._given += reply is not None
        return reply

    async def _asked(self, hook: InterruptionHook, interruption: Interruption) -> Message | None:
        """What a hook replies."""
        task, deadline, now = interruption.task, self._calls.deadline, _now()
        if self._input_timeout is not None and now + self._input_timeout < deadline.at:
            seconds = self._input_timeout
            deadline = Deadline(name="input", timeout=seconds, at=now + seconds)
        late = callback_deadline_error("the hook did not reply", deadline, task)

        async def ask() -> Content | None:
            given = hook(interruption)
            return await given if inspect.isawaitable(given) else given

        async def wait() -> Message | None:
            (reply,) = await side_by_side([("a hook", reject_self_cancellation(ask()))])
            if reply is None:
                return None
            return to_message(
                reply, new_id=self._new_id(), task_id=task.id, context_id=task.context_id
            )

        try:
            return await until(deadline.at, wait(), lambda: late)
        except TaskInterruptedError as error:
            if error.task.id == task.id:
                raise  # the hook's own word: whoever called sees to it
            raise interruption.to_error(_failed(error)) from error
        except Exception as error:
            raise interruption.to_error(
                late.message if error is late else _failed(error)
            ) from error


def _failed(error: Exception) -> str:
    return f"the hook failed: {type(error).__name__}{f': {error}' if str(error) else ''}"


def _now() -> float:
    return asyncio.get_running_loop().time()
