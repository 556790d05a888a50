"""Conversations: several messages to one agent in one context, made by `Client.conversation`.

Rules (A2A 3.4, 7.6):
- Every message carries the context id, and the task id while the task is open. A message after
  the task's end begins another task in the same context.
- A turn ends when the agent has answered. Hooks reply to the interruptions before that, which are
  not part of the answer; without a hook or a reply, the question is the answer.
- An authorization may be granted outside of the client; the client keeps following the task.
- An error or a cancellation ends the turn, but not the task: the conversation continues with it.
  If a reply may have been lost, the client gets the task from the agent first.
- If the agent no longer has the open task, the call fails with `TaskNotFoundError`, and the next
  message begins another task in the same context.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, TypeAlias, Unpack

import msgspec

from holdfast._aio.callbacks import gather_bounded, reject_self_cancellation
from holdfast._aio.cancel_scope import wait_until
from holdfast._arguments import check_json_object
from holdfast._client.client_tools import ToolLoop, ToolTranscript, add_tools_extension
from holdfast._client.content import Content, to_user_message
from holdfast._client.event_stream import EventStream, answer_of
from holdfast._client.reply_loop import ReplyLoop
from holdfast._client.streams import StreamCalls
from holdfast._model.settings import check_kind
from holdfast._policy.deadline import Deadline, callback_deadline_error
from holdfast.errors import (
    A2AConnectionError,
    A2AError,
    TaskAuthRequiredError,
    TaskInputRequiredError,
    TaskInterruptedError,
    TaskNotFoundError,
    note_task,
)
from holdfast.types import Task, TaskState

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import Any

    from holdfast._client.answer import Answer
    from holdfast._client.call_scope import CallScope
    from holdfast._client.client_tools import ClientTools
    from holdfast._client.core import ClientCore
    from holdfast._client.options import SendOptions
    from holdfast._stream.resumable import ResumableStream
    from holdfast.types import Message, TaskStatus

__all__ = ["Conversation", "Interruption", "InterruptionHook"]


class Interruption(msgspec.Struct, frozen=True, kw_only=True):
    """A task that waits for input or for an authorization.

    Attributes:
        task: The task, in state INPUT_REQUIRED or AUTH_REQUIRED.
    """

    task: Task

    @property
    def message(self) -> Message | None:
        """The agent's status message, with all its parts."""
        return self.task.status.message

    @property
    def text(self) -> str:
        """The text of `message`: the question, or how to authorize; empty if there is none."""
        return "" if self.message is None else self.message.text

    def to_error(self, reason: str) -> TaskInterruptedError:
        """Return the error to raise if the hook's caller has to handle the interruption.

        An agent that calls another agent uses it to pass an interruption on: it sets its own task
        to the same state, and continues with `Conversation.wait` or `Conversation.ask` later.

        Args:
            reason: Reason for the missing reply, in one line.

        Returns:
            A `TaskAuthRequiredError` or a `TaskInputRequiredError`, by the state of the task.
        """
        authorizes = self.task.state is TaskState.AUTH_REQUIRED
        error_type = TaskAuthRequiredError if authorizes else TaskInputRequiredError
        required = "an authorization" if authorizes else "input"
        message = f"task {self.task.id} still waits for {required}: {reason}"
        return error_type(message, task=self.task, executed=True)


InterruptionHook: TypeAlias = Callable[[Interruption], Awaitable[Content | None] | Content | None]
"""Input handler: function that returns the reply to an `Interruption`, or None for no reply.

The reply is anything that `Client.ask` accepts as a message, such as text. It is not a `Reply`,
which layers return. The handler may be a coroutine function.

A hook that is not a coroutine function blocks the event loop while it runs, and deadlines too.
That is acceptable for the built-in ``input()`` if nothing else runs; the program then notices a
first Ctrl-C only after Enter, a second one immediately. In a thread (``asyncio.to_thread``) the
hook does not block the loop, but a thread cannot be cancelled, and the program does not exit
before Enter.
"""


class Conversation:
    """Conversation with one agent, turn by turn; made by `Client.conversation`.

    Each message carries the conversation's context id, and its task id while the task is open.

    Not safe for concurrent use: one turn at a time.
    """

    def __init__(
        self,
        core: ClientCore,
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
        self._core = core
        self._context_id = context_id if task is None else task.context_id or context_id
        self._task = task
        self._hooks = hooks
        self._input_timeout = input_timeout
        self._timeout = timeout
        self._max_turns = max_turns
        self._poll_interval = poll_interval
        self._tools = tools
        self._transcript = ToolTranscript()
        if task is not None:
            self._transcript.skip_calls(task)
        self._last_reply: Task | Message | None = task  # the agent's
        self._turn: EventStream | None = None
        self._may_have_replied = False  # a message was sent, and its reply may be lost
        self._replied_to: TaskStatus | None = None  # the status that the last message replies to
        self._missing_task_id: str | None = None  # of a task that the agent no longer has

    @property
    def context_id(self) -> str | None:
        """The id of the conversation; None until the agent assigns it with its first answer."""
        self._update()
        return self._context_id

    @property
    def task(self) -> Task | None:
        """The task of the latest turn, as last seen.

        None if the agent replied with a message, or no longer has the task.
        """
        self._update()
        return self._task

    @property
    def is_open(self) -> bool:
        """True if the latest turn's task is not terminal; the next message then continues it."""
        task = self.task
        return task is not None and not task.state.is_terminal

    async def ask(
        self,
        message: Content,
        *,
        metadata: Mapping[str, Any] | None = None,
        message_metadata: Mapping[str, Any] | None = None,
        accepted_output_modes: Iterable[str] | None = None,
        cancel_on_abandon: bool = False,
        key: str | None = None,
        **options: Unpack[SendOptions],
    ) -> Answer:
        """Send a message, and wait for the answer.

        Args:
            message: The `Content` to send: text, parts, a `Message` or its JSON object.
            metadata: A JSON object for the metadata of the request (``params.metadata``), and of
                the requests that send the hooks' replies.
            message_metadata: A JSON object to add to the message's own metadata
                (``message.metadata``); it takes precedence if both have a member.
            accepted_output_modes: Media types that the caller accepts; the client's own by
                default, any if empty.
            cancel_on_abandon: Whether to cancel the open task if the call is cancelled, or its
                timeout expires, as `Client.stream_message` does in the background. False by
                default.
            key: Idempotency key: the name of the call in the client's journal, from 1 to 512
                characters; None, the default, for no key. The message of a key is executed at most
                once: if the journal has a call of the key, from this process or another one, this
                call sends nothing, waits for that call, resumes it if its process crashed, and
                returns its result. Only ``on_unknown="resend"`` or ``"resend_if_absent"`` may send
                the message again, if its outcome is unknown.
            options: Any of `SendOptions`: ``timeout`` (seconds; that of the conversation by
                default), ``headers``, ``extensions``, ``context`` and ``tenant`` (none by
                default), ``timeouts`` (the client's `Timeouts` by default), ``on_unknown`` (after
                a lost reply: the client's own, ``"reconcile"``, by default).

        Returns:
            The answer. If its `Answer.needs_input` is true, the agent waits for another message,
            and no hook had a reply.

        Raises:
            TaskFailedError: The task failed; also `TaskRejectedError`, `TaskCanceledError`.
            A2AError: Any other failure, as listed at `stream_message`.
            ValueError: The message has no content, or an argument is out of range.
            TypeError: An argument of another type.

        Example:
            Carry an answer over into the next question::

                async with holdfast.connect("http://localhost:9999") as agent:
                    conversation = agent.conversation()
                    await conversation.ask("How far is the moon?")
                    answer = await conversation.ask("And in miles?")
                    print(answer.text)
        """
        sending, scope = self._sending(
            message,
            options,
            method=Conversation.ask,
            metadata=metadata,
            message_metadata=message_metadata,
            accepted_output_modes=accepted_output_modes,
            cancel_on_abandon=cancel_on_abandon,
            key=key,
        )
        return await answer_of(sending, scope)

    def stream_message(
        self,
        message: Content,
        *,
        metadata: Mapping[str, Any] | None = None,
        message_metadata: Mapping[str, Any] | None = None,
        accepted_output_modes: Iterable[str] | None = None,
        cancel_on_abandon: bool = False,
        key: str | None = None,
        **options: Unpack[SendOptions],
    ) -> EventStream:
        """Send a message, and return the events of the answer and of the hooks' replies.

        Iterating over the stream raises, beside the errors of `EventStream`:

        - `TaskInputRequiredError`: a hook failed, did not reply in time, or was called too often;
          see its cause. The task still waits: reply with `ask`.
        - `TaskAuthRequiredError`: the same for an authorization, or it was not granted in time.
          Continue with `wait`, or with `ask` to send a message about it.
        - `LimitExceededError`, `DeadlineExceededError`: the agent called tools too often, or they
          took too long. Continue with `wait`, which runs no call again.

        Args:
            message: The `Content` to send: text, parts, a `Message` or its JSON object.
            metadata: A JSON object for the metadata of the request (``params.metadata``), and of
                the requests that send the hooks' replies.
            message_metadata: A JSON object to add to the message's own metadata
                (``message.metadata``); it takes precedence if both have a member.
            accepted_output_modes: Media types that the caller accepts; the client's own by
                default, any if empty.
            cancel_on_abandon: Whether to cancel the open task if the caller leaves the stream
                early, or is cancelled, or if the timeout expires, as `Client.stream_message` does
                in the background. False by default.
            key: Idempotency key: the name of the call in the client's journal, from 1 to 512
                characters; None, the default, for no key. The message of a key is executed at most
                once: if the journal has a call of the key, from this process or another one, this
                call sends nothing, waits for that call, resumes it if its process crashed, and
                returns its result. Only ``on_unknown="resend"`` or ``"resend_if_absent"`` may send
                the message again, if its outcome is unknown.
            options: Any of `SendOptions`: ``timeout`` (seconds; that of the conversation by
                default), ``headers``, ``extensions``, ``context`` and ``tenant`` (none by
                default), ``timeouts`` (the client's `Timeouts` by default), ``on_unknown`` (after
                a lost reply: the client's own, ``"reconcile"``, by default).

        Returns:
            The stream of one turn; nothing is sent before it is entered.

        Raises:
            ValueError: The message has no content, or an argument is not valid.
            TypeError: An argument of another type.
        """
        sending, _ = self._sending(
            message,
            options,
            method=Conversation.stream_message,
            metadata=metadata,
            message_metadata=message_metadata,
            accepted_output_modes=accepted_output_modes,
            cancel_on_abandon=cancel_on_abandon,
            key=key,
        )
        return sending()

    async def wait(self, **options: Unpack[SendOptions]) -> Answer:
        """Continue the open task without sending a message, as after an error.

        Args:
            options: Any of `SendOptions`: ``timeout`` (seconds; that of the conversation by
                default), ``headers``, ``extensions``, ``context`` and ``tenant`` (none by
                default), ``timeouts`` (the client's `Timeouts` by default), ``on_unknown`` (after
                a lost reply: the client's own, ``"reconcile"``, by default).

        Returns:
            The answer, as from `ask`. A hook whose reply was not sent is called once more. If a
            reply may have arrived, no hook is called for that interruption, and the caller has to
            reply.

        Raises:
            RuntimeError: There is no open task, or a turn is in flight.
            A2AError: The turn failed, as listed at `stream_message`.
            ValueError: An argument is out of range.
            TypeError: An argument of another type.
        """
        self._check_idle()
        task = self.task
        if task is None or task.state.is_terminal:
            text = "there is no open task to wait for"
            raise RuntimeError(text)
        calls = self._stream_calls(self._scope(options, method=Conversation.wait))
        replies = self._replies(calls, None, None)

        async def follow() -> ReplyLoop:
            stream = await calls.follow(task.id)()
            if not self._may_have_replied:
                return replies.loop(stream)
            max_quiet = self._core.resilience.reconnect.max_quiet
            return replies.loop(stream, self._replied_to, max_quiet=max_quiet)

        try:
            async with self._new_turn(calls, follow) as events:
                return await events.result()
        except TaskNotFoundError as error:
            if error.task_id == task.id:
                self._drop_missing(task, error)
            raise

    # ── Turns ────────────────────────────────────────────────────────────────────────────────

    def _update(self) -> None:
        """Take over the task and context of the latest turn, even if it has not ended."""
        turn = self._turn
        if turn is None:
            return
        reply = turn.task or turn.message
        if reply is not None:
            self._task, self._last_reply = turn.task, reply
            self._context_id = reply.context_id or self._context_id
        if self._task is not None and self._task.id == self._missing_task_id:
            self._task = None

    def _drop_missing(self, task: Task, error: TaskNotFoundError) -> None:
        """Do not continue a task that the agent no longer has; say so in the error."""
        if self._missing_task_id == task.id:
            return
        note_task(error, task)
        self._missing_task_id, self._may_have_replied = task.id, False
        error.message += "; the next message of the conversation begins another task"
        self._update()

    def _sending(
        self,
        message: Content,
        options: SendOptions,
        *,
        method: Callable[..., Any],
        metadata: Mapping[str, Any] | None,
        message_metadata: Mapping[str, Any] | None,
        accepted_output_modes: Iterable[str] | None,
        cancel_on_abandon: bool,
        key: str | None,
    ) -> tuple[Callable[[], EventStream], CallScope]:
        """Return a function that returns a stream of a turn, and the scope of the turn.

        Each stream sends the same message, to the task that was open when the first of them began:
        a call of a key is recognized by its message.
        """
        self._update()
        first = to_user_message(
            message,
            new_id=self._core.env.new_id(),
            context_id=self._context_id,
            metadata=message_metadata,
        )
        check_kind("cancel_on_abandon", cancel_on_abandon, bool)
        scope = self._scope(options, method=method, key=key)
        opening: _Opening | None = None

        def sending() -> EventStream:
            calls = self._stream_calls(scope, cancel_on_abandon=cancel_on_abandon)
            replies = self._replies(calls, metadata, accepted_output_modes)

            async def begin() -> ReplyLoop:
                nonlocal opening
                opening = opening or await self._opening(first, calls)
                return await replies.begin(opening)

            return self._new_turn(calls, begin)

        return sending, scope

    def _scope(
        self,
        options: SendOptions,
        *,
        method: Callable[..., Any],
        key: str | None = None,
    ) -> CallScope:
        deadline = "call"
        if options.get("timeout") is None:
            deadline, options["timeout"] = "conversation", self._timeout
        add_tools_extension(options, self._tools)
        scope = self._core.begin(deadline, options, sends=True, method=method)
        if key is not None and self._tools is not None:
            text = "key cannot be combined with tools: their results are messages of their own"
            raise ValueError(text)
        return self._core.keyed(scope, key)

    def _stream_calls(self, scope: CallScope, *, cancel_on_abandon: bool = False) -> StreamCalls:
        return StreamCalls(
            self._core,
            scope,
            poll_interval=self._poll_interval,
            until_deadline=True,
            cancel_on_abandon=cancel_on_abandon,
        )

    def _check_idle(self) -> None:
        if self._turn is not None and not self._turn.is_over:
            text = "a turn of the conversation is in flight; close its stream first"
            raise RuntimeError(text)

    def _new_turn(
        self, calls: StreamCalls, begin: Callable[[], Awaitable[ReplyLoop]]
    ) -> EventStream:
        """Return the stream of a turn, which begins when the stream is entered."""

        async def enter() -> ReplyLoop:
            self._check_idle()
            self._update()
            self._turn = stream
            try:
                return await begin()
            except BaseException:
                if self._turn is stream:  # an abandoned turn may end after the next one begins
                    self._turn = None
                raise

        stream = EventStream(calls, enter)
        return stream

    def _replies(
        self,
        calls: StreamCalls,
        metadata: Mapping[str, Any] | None,
        accepted_output_modes: Iterable[str] | None,
    ) -> _Replies:
        tools = None
        if self._tools is not None:
            tools = ToolLoop(self._tools, self._core, calls, self._transcript)
        send = partial(
            calls.send,
            metadata=check_json_object("metadata", metadata),
            configuration=self._core.configuration(
                return_immediately=None,
                accepted_output_modes=accepted_output_modes,
                push_notification_config=None,
            ),
            has_progressed=None if tools is None else tools.progress_check(),
        )
        return _Replies(
            calls,
            send=partial(self._send, calls, send),
            tools=tools,
            hooks=self._hooks,
            input_timeout=self._input_timeout,
            max_turns=self._max_turns,
            new_id=self._core.env.new_id,
        )

    async def _send(
        self,
        calls: StreamCalls,
        send: Callable[..., Callable[[], Awaitable[ResumableStream]]],
        task: Task | None,
        message: Message,
    ) -> ResumableStream:
        """Send a message, to a task if there is one; remember if its reply may be lost."""
        task_id = context_id = None
        if task is not None:
            task_id, context_id = task.id, task.context_id or self._context_id
        sending = send(message, task_id=task_id, context_id=context_id, known=task)
        self._may_have_replied, self._replied_to = True, None if task is None else task.status
        try:
            stream = await sending()
        except asyncio.CancelledError:
            self._may_have_replied = calls.is_sent
            raise
        except A2AError as error:
            self._may_have_replied = error.executed is not False
            if task is not None and isinstance(error, TaskNotFoundError):
                await self._look_for(task, calls, error)
            raise
        self._may_have_replied, self._missing_task_id = False, None
        return stream

    async def _look_for(self, task: Task, calls: StreamCalls, error: TaskNotFoundError) -> None:
        """Look whether the agent still has a task: another agent's task may be the missing one."""
        try:
            await calls.get_task(task.id)
        except TaskNotFoundError:
            self._drop_missing(task, error)
        except A2AError:
            pass  # the next message looks again

    async def _opening(self, message: Message, calls: StreamCalls) -> _Opening:
        """Return the beginning of a turn with a message, which gets the conversation's context.

        A repeated call of a key continues the task that it continued the first time, although that
        task may have ended since: it is then the same message, and is not sent again.
        """
        task, context_id, ended = await self._open_task(calls), self._context_id, self.task
        if task is not None:
            context_id = task.context_id or context_id
        complete = to_user_message(message, new_id="", context_id=context_id)
        keyed = calls.scope.keyed
        if keyed is not None and task is None and ended is not None and not complete.task_id:
            reply = msgspec.structs.replace(complete, task_id=ended.id)
            if await keyed.was_message(reply, calls.deadline):
                task = ended
        return _Opening(complete, task, self._last_reply)

    async def _open_task(self, calls: StreamCalls) -> Task | None:
        """Return the task to continue, if any; get it from the agent if it may have changed."""
        task = self.task
        if task is None or task.state.is_terminal:
            return None
        if self._may_have_replied or not task.state.is_interrupted:
            try:
                task = await calls.get_task(task.id)
            except A2AError as error:
                error.executed = False  # the message was not sent
                note_task(error, task)
                if isinstance(error, TaskNotFoundError):
                    self._drop_missing(task, error)
                raise
            self._task, self._last_reply, self._may_have_replied = task, task, False
        return None if task.state.is_terminal else task


class _Opening(NamedTuple):
    """The beginning of a turn.

    Attributes:
        message: The message, in its context.
        task: The open task that it continues; None to begin another task.
        last_reply: The agent's latest reply.
    """

    message: Message
    task: Task | None
    last_reply: Task | Message | None


class _Replies:
    """The messages of one turn: the caller's, the tools' results, and the hooks' replies.

    Args:
        calls: The calls of the turn.
        send: Sends a message, to a task if there is one.
        tools: The tools that the agent may call.
        hooks: The hooks, by the state that they reply to.
        input_timeout: Seconds that a hook may take; None for the time left of the turn.
        max_turns: Number of replies of the hooks that one turn may have.
        new_id: Returns a new message id.
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
        self._reply_count = 0
        self._unsent: tuple[TaskStatus, Message] | None = None  # for the next iteration

    async def begin(self, opening: _Opening) -> ReplyLoop:
        """Begin the turn with its first message."""
        message, task, last_reply = opening
        if self._tools is not None:
            message = self._tools.first_message(message, task or last_reply)
        replied_to = None if task is None else task.status
        return self.loop(await self._send(task, message), replied_to)

    def loop(
        self,
        stream: ResumableStream,
        replied_to: TaskStatus | None = None,
        *,
        max_quiet: float | None = None,
    ) -> ReplyLoop:
        """Return the events of the turn that begins with a stream."""
        return ReplyLoop(
            stream,
            reply_to=self._reply_to,
            send=self._send_reply,
            is_sent=lambda: self._calls.is_sent,
            wants_reply=lambda task: self._tools is not None and self._tools.has_new_calls(task),
            replied_to=replied_to,
            max_quiet=max_quiet,
        )

    async def _send_reply(self, task: Task, reply: Message) -> ResumableStream:
        self._unsent = None
        try:
            if self._calls.client.is_closing:
                text = "the client was closed"
                raise A2AConnectionError(text, failure="closed", executed=False)
            return await self._send(task, reply)
        except asyncio.CancelledError:
            if not self._calls.is_sent:
                self._unsent = task.status, reply
                if self._tools is not None:
                    self._tools.revert(reply)
            raise
        except A2AError as error:
            if error.executed is False and self._tools is not None:
                self._tools.revert(reply)
            raise

    async def _reply_to(self, task: Task) -> Message | None:
        """Return the reply to an interruption; None for no reply.

        Raises:
            TaskInterruptedError: The hook raised, did not reply in time, or the hooks have replied
                `max_turns` times.
            A2AError: See `ToolLoop.reply`.
        """
        reply = None if self._tools is None else await self._tools.reply(task)
        if reply is None and self._unsent is not None and self._unsent[0] == task.status:
            return self._unsent[1]
        hook = self._hooks.get(task.state)
        if reply is not None or hook is None:
            return reply
        interruption = Interruption(task=task)
        if self._reply_count >= self._max_turns:
            bound = self._max_turns
            reason = f"{bound} replies were not enough" if bound else "no handler may reply"
            raise interruption.to_error(f"{reason} (max_turns={bound})")
        reply = await self._call_hook(hook, interruption)
        if reply is not None and task.state is TaskState.AUTH_REQUIRED:
            with contextlib.suppress(A2AError):  # the reply is sent if the look fails
                task = await self._calls.get_task(task.id)
            if task.state is not TaskState.AUTH_REQUIRED:  # granted outside of the client
                return None
        self._reply_count += reply is not None
        return reply

    async def _call_hook(
        self, hook: InterruptionHook, interruption: Interruption
    ) -> Message | None:
        """Return the reply of a hook, as a message."""
        task, deadline, now = interruption.task, self._calls.deadline, _now()
        if self._input_timeout is not None and now + self._input_timeout < deadline.at:
            seconds = self._input_timeout
            deadline = Deadline(name="input", timeout=seconds, at=now + seconds)
        handler = _handler_of(task)
        deadline_error = callback_deadline_error(f"{handler} did not reply", deadline, task)

        async def call() -> Content | None:
            result = hook(interruption)
            return await result if inspect.isawaitable(result) else result

        async def wait() -> Message | None:
            (reply,) = await gather_bounded([(handler, reject_self_cancellation(call()))])
            if reply is None:
                return None
            return to_user_message(
                reply, new_id=self._new_id(), task_id=task.id, context_id=task.context_id
            )

        try:
            return await wait_until(deadline.at, wait(), lambda: deadline_error)
        except TaskInterruptedError as error:
            if error.task.id == task.id:
                raise  # the hook passes the interruption on: see Interruption.to_error
            raise interruption.to_error(_handler_failure(task, error)) from error
        except Exception as error:
            is_late = error is deadline_error
            reason = deadline_error.message if is_late else _handler_failure(task, error)
            raise interruption.to_error(reason) from error


_INPUT_HANDLER = "the input handler (on_input)"


def _handler_of(task: Task) -> str:
    is_authorization = task.state is TaskState.AUTH_REQUIRED
    return "the authorization handler (on_auth)" if is_authorization else _INPUT_HANDLER


def _handler_failure(task: Task, error: Exception) -> str:
    text = f": {error}" if str(error) else ""
    return f"{_handler_of(task)} failed: {type(error).__name__}{text}"


def _now() -> float:
    return asyncio.get_running_loop().time()
