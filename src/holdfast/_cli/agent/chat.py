"""``holdfast chat``: a conversation at a terminal, turn by turn (a2a-cli 8.1).

Rules: each message is sent once, in the context of the earlier ones, and to the task while that
waits for input; a message after Ctrl-C is a new message of the context; an answer is shown as it
arrives, and the chat continues if it ends early; for a message without an answer, the chat says
the command that shows it. Ctrl-C stops following an answer, and never cancels the agent's task;
SIGTERM does the same, and ends the chat. A task that the agent no longer knows is dropped.
"""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING, Any

import click

from holdfast._cli.agent.outcomes import (
    OUTCOMES,
    named_outcome,
    stated_end_reason,
    suggest_download,
    warn_of_gap,
)
from holdfast._cli.environment import InterruptedLine
from holdfast._cli.error_table import describe
from holdfast._cli.options.masking import masked_reference
from holdfast._cli.options.values import shown_duration
from holdfast._cli.output.base import Failed, MessageSending, Notice, StreamEnded, StreamEvent
from holdfast.errors import (
    A2AError,
    OutcomeUnknownError,
    TaskNotFoundError,
    UnsupportedOperationError,
)
from holdfast.types import Message, Part, Role, TaskArtifactUpdateEvent, TaskState

if TYPE_CHECKING:
    from collections.abc import Coroutine, Mapping

    from holdfast._cli.agent.session import Session
    from holdfast._cli.environment import Terminal
    from holdfast._cli.output.chat_text import ChatOutput
    from holdfast._client.conversation import Conversation
    from holdfast._client.event_stream import EventStream
    from holdfast.types import Event, Task, TaskStatus

__all__ = ["Chat"]

_PROMPT, _REPLY_PROMPT, _MORE_PROMPT = "> ", "reply> ", "... "

_COMMAND = re.compile(r"/([A-Za-z][\w-]*)\s*")
"""Lines that are commands to the chat; a line with more words, as a path, is for the agent."""
_LEAVING = ("exit", "quit")

_HELP = """\
Every line is a message to the agent, except:
/help    shows this list
/exit    ends the chat (also /quit, Ctrl-D, and Ctrl-C at an empty line)
//WORD   sends /WORD to the agent
\\        at the end of a line continues the message on the next line
Ctrl-C   stops an answer; the agent continues its work
Enter    at an empty line follows the stopped answer again
Up       recalls earlier lines of this chat
"""
_UNFINISHED = "the message is incomplete and was not sent"
_TERMINATED = "SIGTERM has ended the chat"
_NO_TEXT = "the line is not UTF-8 and was not sent"
_BEGINS_ANEW = "the next line begins a new task"
_UNANSWERED: Mapping[bool | None, str] = {
    False: "the agent did not execute your message; you can send it again",
    True: "the agent executed your message, but its answer is lost",
    None: "it is unknown whether the agent executed your message; it was not sent again",
}


class Chat:
    """A conversation with an agent at a terminal.

    Args:
        session: The agent.
        output: Where answers and warnings go.
        terminal: Where lines are read.
        metadata: The metadata of the request of each message.
        message_metadata: The metadata of each message itself.
    """

    def __init__(
        self,
        session: Session,
        output: ChatOutput,
        terminal: Terminal,
        *,
        metadata: dict[str, Any] | None,
        message_metadata: dict[str, Any] | None,
    ) -> None:
        session.follows = True
        self._session = session
        self._output = output
        self._terminal = terminal
        self._metadata = metadata
        self._message_metadata = message_metadata
        self._conversation: Conversation = session.client.conversation()
        self._answer: asyncio.Task[None] | None = None
        self._is_stopped = False
        self._is_named = False  # the task, by the caller, who has not sent it a message yet

    async def run(
        self, first: Part | None, *, task_id: str | None, context_id: str | None
    ) -> None:
        """Hold the conversation until the user ends it.

        Args:
            first: The first message; read from the terminal if it is None.
            task_id: The task to continue.
            context_id: The context to continue.

        Raises:
            A2AError: The agent cannot be called, or the task cannot be continued.
        """
        try:
            task = await self._begin(task_id, context_id)
        except BaseException:
            self._terminal.discard()
            raise
        self._output.greet(self._session.card, masked_reference(str(self._session.reference)))
        with self._terminal.interrupts(self._stop):
            if first is not None:
                await self._send(first)
            elif task is not None and task.state is not TaskState.INPUT_REQUIRED:
                await self._follow()
            while (line := await self._read()) is not None:
                if (command := _COMMAND.fullmatch(line)) is not None:
                    if command[1] in _LEAVING:
                        break
                    self._command(command[1])
                elif line.strip():
                    await self._send(
                        Part(text=line.removeprefix("/") if line[:2] == "//" else line)
                    )
                else:
                    await self._follow()
        self._report_continuation()

    def _command(self, name: str) -> None:
        """Execute a line that is a command to the chat itself."""
        if name == "help":
            self._output.note(_HELP)
        else:
            self._output.emit(
                Notice.warning(
                    f"/{name} is not a command of this chat, and was not sent; /help shows the "
                    f"commands, and //{name} sends /{name} to the agent"
                )
            )

    async def _begin(self, task_id: str | None, context_id: str | None) -> Task | None:
        await self._session.prepare()
        task = None if task_id is None else await self._open(task_id)
        self._is_named = task is not None
        try:
            self._continue(task, context_id)
        except ValueError as error:
            raise click.UsageError(f"--context-id: {error}") from None
        return task

    async def _open(self, task_id: str) -> Task:
        """Return the task that the caller names, and show its state."""
        session = self._session
        session.continues = True
        task = await session.client.get_task(
            task_id, timeout=session.seconds_left(), headers=session.svc_params
        )
        if task.state.is_terminal:
            session.task = task
            raise UnsupportedOperationError(
                f"task {task.id} is {task.state}, and takes no more messages; nothing was sent",
                executed=False,
            )
        self._output.emit(StreamEvent(task, task))
        self._output.emit(StreamEnded())
        return task

    def _continue(self, task: Task | None, context_id: str | None) -> None:
        self._conversation = self._session.client.conversation(
            task=task,
            context_id=context_id,
            poll_interval=self._session.settings.poll_interval,
        )

    # ── Input ────────────────────────────────────────────────────────────────────────────────

    async def _read(self) -> str | None:
        """Read the next message; None at the end. A backslash at its end continues a line."""
        task, lines = self._conversation.task, list[str]()
        waits = task is not None and task.state is TaskState.INPUT_REQUIRED
        while True:
            prompt = _MORE_PROMPT if lines else _REPLY_PROMPT if waits else _PROMPT
            try:
                line = await self._terminal.read(prompt)
                line.encode()
            except EOFError:
                if lines:
                    self._output.emit(Notice.warning(_UNFINISHED))
                return None
            except InterruptedLine as interrupted:
                if not lines and not interrupted.typed:
                    return None
                lines.clear()
            except UnicodeError:
                self._output.emit(Notice.warning(_NO_TEXT))
                lines.clear()
            else:
                lines.append(line.removesuffix("\\"))
                if lines[-1] == line:
                    return "\n".join(lines)

    def _report_continuation(self) -> None:
        """Say how to continue the conversation later, and whether a signal has ended it."""
        if self._terminal.is_terminated:
            self._output.emit(Notice.warning(_TERMINATED))
        context_id, task = self._conversation.context_id, self._open_task
        words = ["--context-id", context_id] if context_id else []
        words += [] if task is None else ["--task-id", task.id]
        if words:
            command = self._session.command("chat", *words)
            self._output.emit(Notice.hint(f"to continue: {command}"))

    @property
    def _open_task(self) -> Task | None:
        return self._conversation.task if self._conversation.is_open else None

    def _task_to_reply_to(self) -> Task | None:
        """Return the task that the next message is for: a waiting one, or the one named."""
        task, is_named, self._is_named = self._open_task, self._is_named, False
        if task is None or task.state.is_interrupted or is_named:
            return task
        self._continue(None, self._conversation.context_id)
        return None

    # ── Answers ──────────────────────────────────────────────────────────────────────────────

    async def _send(self, part: Part) -> None:
        session, task = self._session, self._task_to_reply_to()
        message = Message(
            message_id=session.new_message_id(),
            role=Role.USER,
            parts=(part,),
            metadata=self._message_metadata,
        )
        session.continues = task is not None
        self._output.emit(MessageSending(message))
        session.begin(task)
        events = self._conversation.stream_message(
            message,
            metadata=self._metadata,
            timeout=session.seconds_left(),
            headers=session.svc_params,
        )
        await self._wait_for(self._show(events))

    async def _follow(self) -> None:
        """Follow an abandoned answer again, if there is one."""
        session, task = self._session, self._open_task
        if task is None:
            return
        self._is_named = False
        session.begin(task)
        events = session.client.subscribe_to_task(
            task.id,
            poll_interval=session.settings.poll_interval,
            timeout=session.seconds_left(),
            headers=session.svc_params,
        )
        await self._wait_for(self._show(events))
        if events.task is not None and self._open_task is not None:  # else it was dropped
            self._continue(events.task, None)

    def _stop(self) -> None:
        """Abandon the answer that is arriving, if there is one."""
        if self._answer is not None:
            self._is_stopped = self._answer.cancel()

    async def _wait_for(self, answer: Coroutine[Any, Any, None]) -> None:
        """Wait for the end of an answer, or for Ctrl-C."""
        self._answer, self._is_stopped = asyncio.create_task(answer), False
        try:
            with self._terminal.hides_keys():
                await self._answer
        except asyncio.CancelledError:
            if not self._is_stopped:
                raise
            self._output.interrupted()
            self._report_unfinished()
        except A2AError as error:
            self._output.emit(StreamEnded())
            self._failed(error)
        finally:
            self._answer = None
            self._session.message_id = None

    async def _show(self, events: EventStream) -> None:
        """Show an answer as it arrives."""
        async with events:
            self._session.message_id = None
            async for event in events:
                task = events.task
                self._output.emit(StreamEvent(event, task))
                status = _status(event)
                if task is None or status is None:
                    continue
                if events.is_stale:
                    continue
                if status.state is TaskState.INPUT_REQUIRED:
                    break
                if status.state is TaskState.AUTH_REQUIRED:
                    limit = self._session.settings.timeout
                    self._output.emit(
                        Notice.warning(
                            f"task {task.id} {OUTCOMES[status.state]}; waiting for it "
                            f"until Ctrl-C, {shown_duration(limit)} (--timeout) at most"
                        )
                    )
        self._output.emit(StreamEnded())
        task = events.task
        warn_of_gap(self._session, self._output, events)
        if task is not None and task.state.is_terminal and task.state in OUTCOMES:
            reason = await stated_end_reason(events)
            self._output.emit(Notice.warning(f"{named_outcome(task)}{reason}"))
        if task is not None:
            suggest_download(self._session, self._output, task)

    def _failed(self, error: A2AError) -> None:
        self._session.continues = False  # the chat says itself what the next line does
        failure, task = describe(error, self._session), self._open_task
        is_answering = self._session.message_id is None
        if (
            is_answering
            and task is not None
            and failure.hint == self._session.resume_command(task.id)
        ):
            failure = failure._replace(hint=None)  # the hint that follows repeats it
        if task is not None and isinstance(error, TaskNotFoundError):
            self._continue(None, self._conversation.context_id)
            failure = failure._replace(hint=f"{failure.hint}; {_BEGINS_ANEW}")
        self._output.emit(Failed(failure))
        if is_answering:
            self._report_unfinished()
        elif not isinstance(error, OutcomeUnknownError):  # its text says so
            self._output.emit(
                Notice.warning(_UNANSWERED[self._session.may_have_been_sent and error.executed])
            )

    def _report_unfinished(self) -> None:
        """Report the known state of an answer that was not followed to its end."""
        session, task = self._session, self._open_task
        if session.message_id is not None:
            may_have = "was in flight; the agent may have received it"
            became = may_have if session.may_have_been_sent else "was not sent"
            self._output.emit(Notice.warning(f"message {session.message_id} {became}"))
        elif task is not None:
            follow = "follow it" if self._terminal.is_terminated else "Enter follows it again, or"
            self._output.emit(
                Notice.hint(
                    f"task {task.id} was last seen {task.state}; {follow} later: "
                    f"{session.resume_command(task.id)}"
                )
            )


def _status(event: Event) -> TaskStatus | None:
    """Return the status of the task that an event shows, if it shows one."""
    return None if isinstance(event, Message | TaskArtifactUpdateEvent) else event.status
