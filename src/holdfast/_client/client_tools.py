"""Client tools: the agent calls functions of the caller while it works (an AG2 extension).

Rules: each tool call runs at most once, even if the answer is cancelled or resumed; the results
are the next message of the same task, under the deadline of the whole answer; the number of turns
and of tool calls is bounded.
"""

from __future__ import annotations

import contextlib
import logging
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from holdfast._aio.callbacks import gather_bounded
from holdfast._aio.cancel_scope import wait_until
from holdfast._aio.semaphore import FifoSemaphore
from holdfast._arguments import check_items, check_kind
from holdfast._client.reply_loop import ReplyLoop
from holdfast._client.tools import Tool
from holdfast._model.settings import check_count, explains_unknown_options
from holdfast._policy.deadline import callback_deadline_error
from holdfast._wire.client_tools import (
    CLIENT_TOOLS,
    ToolResult,
    history_part,
    model_response_event,
    results_part,
    schemas_part,
    tool_calls_in,
    tool_results_event,
    user_input_event,
)
from holdfast.errors import (
    A2AConnectionError,
    A2AError,
    DeadlineExceededError,
    InvalidAgentResponseError,
    LimitExceededError,
)
from holdfast.types import Message, Role, Task

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Sequence

    from holdfast._client.core import ClientCore
    from holdfast._client.options import CallOptions
    from holdfast._client.streams import StreamCalls
    from holdfast._stream.resumable import ResumableStream
    from holdfast._wire.client_tools import ToolCall

__all__ = ["ClientTools", "ToolLoop", "ToolTranscript", "add_tools_extension", "resolve_tools"]

_MAX_PARALLEL_CALLS = 16
"""Calls of one turn that run at the same time."""

_INTERRUPTED = "the tool call was interrupted, and is not run again"


class ClientTools:
    """Functions that an agent may call while it works on an answer.

    Each function is described to the agent by its signature and docstring. The calls of one turn
    run concurrently, at most 16 at a time, within the timeout of the answer; a coroutine that is
    cancelled has 1 s to end. A function that is not async runs in a thread of the event loop's
    default executor; it always runs to its end, even if the answer is cancelled. No call runs
    twice: if a call was interrupted and the task is resumed, the agent receives an error for that
    call.

    Args:
        functions: The functions, each with a different name. Raise a `ToolError` in a function to
            send the agent the reason why there is no result; of other exceptions, the agent
            receives only the type's name.
        max_turns: Turns in which the agent may call tools for one answer, with one or more calls
            each; at least 1, 16 by default.
        max_tool_calls: Calls that may run for one answer, over all its turns; at least 1, 100 by
            default. If the calls of a turn exceed it, none of them runs.
        raises: If true, an exception that is not a `ToolError` ends the answer and is raised
            unchanged. False by default.

    Attributes:
        max_turns: Largest number of turns in which the agent may call tools for one answer.
        max_tool_calls: Largest number of calls that may run for one answer.
        raises: Whether an exception ends the answer.
        tools: The tools by name.

    Raises:
        TypeError: An item is not a function with a name, or a parameter cannot be described.
        ValueError: Two functions have the same name, or ``max_turns`` or ``max_tool_calls`` is not
            positive.
    """

    @explains_unknown_options()
    def __init__(
        self,
        functions: Iterable[Callable[..., Any]],
        *,
        max_turns: int = 16,
        max_tool_calls: int = 100,
        raises: bool = False,
    ) -> None:
        check_count("max_turns", max_turns, least=1)
        check_count("max_tool_calls", max_tool_calls, least=1)
        check_kind("raises", raises, bool)
        self.max_turns = max_turns
        self.max_tool_calls = max_tool_calls
        self.raises = raises
        self.tools: dict[str, Tool] = {}
        for function in check_items("tools", functions):
            tool = Tool(function)
            if self.tools.setdefault(tool.schema.name, tool) is not tool:
                text = f"two tools have the name {tool.schema.name!r}"
                raise ValueError(text)


def resolve_tools(tools: ClientTools | Iterable[Callable[..., Any]]) -> ClientTools | None:
    """Return the tools that a caller passes as ``tools=``; None if there are none."""
    if tools == ():  # the usual case, without building a ClientTools
        return None
    resolved = tools if isinstance(tools, ClientTools) else ClientTools(tools)
    return resolved if resolved.tools else None


def add_tools_extension(options: CallOptions, tools: ClientTools | None) -> None:
    """Add the extension's URI to the options of a call if there are tools."""
    if tools is not None:
        extensions = check_items("extensions", options.get("extensions", ()))
        options["extensions"] = (*extensions, CLIENT_TOOLS)


class ToolTranscript:
    """The tool calls of an agent and the messages of both sides, over several turns.

    Attributes:
        started: Calls of the latest task that were started.
        results: Results of the calls that ran to their end.
        answered: Calls of the latest task whose results were sent, or that were skipped.
        history: The messages of both sides, as events of the extension; sent with the next
            message.
        pending: The caller's latest input; it joins the history once the agent has answered.
        last_reply: The agent's latest reply to the caller that the history contains.
        texts: Texts of the latest task's artifacts by artifact id, as last seen.
    """

    def __init__(self) -> None:
        self._task_id: str | None = None
        self.started: set[ToolCall] = set()
        self.results: dict[ToolCall, ToolResult] = {}
        self.answered: set[ToolCall] = set()
        self.history: list[dict[str, Any]] = []
        self.pending: list[dict[str, Any]] = []
        self.last_reply: Task | Message | None = None
        self.texts: dict[str, str] = {}

    def new_calls(self, task: Task) -> list[ToolCall]:
        """Return the calls of a task that were not answered yet, each once.

        Raises:
            InvalidAgentResponseError: A call cannot be read.
        """
        if task.id != self._task_id:  # another task's calls differ, even with equal ids
            self._task_id = task.id
            self.started.clear()
            self.results.clear()
            self.answered.clear()
        return [call for call in dict.fromkeys(tool_calls_in(task)) if call not in self.answered]

    def skip_calls(self, task: Task) -> None:
        """Mark the present calls of a task as answered, so that they do not run."""
        with contextlib.suppress(InvalidAgentResponseError):  # an unreadable call cannot run
            self.answered.update(self.new_calls(task))


class ToolLoop:
    """Offers tools with each message of one answer, runs the agent's calls, and sends results.

    Args:
        tools: The tools.
        core: The client's core.
        calls: The calls of the answer; their deadline bounds the whole of it.
        transcript: The transcript of earlier turns.
    """

    def __init__(
        self,
        tools: ClientTools,
        core: ClientCore,
        calls: StreamCalls,
        transcript: ToolTranscript | None = None,
    ) -> None:
        self._tools = tools
        self._schemas = schemas_part(tool.schema for tool in tools.tools.values())
        self._core = core
        self._calls = calls
        self._transcript = transcript or ToolTranscript()
        self._turn_count = 0
        self._call_count = 0
        self._last_sent: _SentResults | None = None

    async def begin(
        self, message: Message, send: Callable[..., Callable[[], Awaitable[ResumableStream]]]
    ) -> ReplyLoop:
        """Send a message, and return the events of all turns of its answer.

        Args:
            message: The message.
            send: `StreamCalls.send`, with the options of each message.

        Raises:
            A2AError: See `Client.ask`.
        """
        task = await self._get_task(message.task_id) if message.task_id else None

        async def send_message(task: Task | None, message: Message) -> ResumableStream:
            sending = send(
                message,
                task_id=message.task_id,
                context_id=message.context_id,
                known=task,
                has_progressed=self.progress_check(),
            )
            return await sending()

        return ReplyLoop(
            await send_message(task, self.first_message(message, task)),
            reply_to=self.reply,
            send=send_message,
            is_sent=lambda: self._calls.is_sent,
            wants_reply=self.has_new_calls,
            replied_to=None if task is None else task.status,
        )

    def first_message(self, message: Message, last_reply: Task | Message | None = None) -> Message:
        """Return a message of the user with the offered tools and the history.

        Args:
            message: The message.
            last_reply: The agent's latest reply. The calls that its task shows now are skipped:
                another client may have answered them.
        """
        transcript = self._transcript
        if isinstance(last_reply, Task):
            transcript.skip_calls(last_reply)
        if last_reply is not None and last_reply != transcript.last_reply:
            text, transcript.last_reply = self._new_text(last_reply), last_reply
            if text and transcript.pending:
                transcript.history += (*transcript.pending, model_response_event(text, ()))
        transcript.pending = [user_input_event(message.parts)]
        return self._with_tools(message)

    async def reply(self, task: Task) -> Message | None:
        """Run the calls of an interrupted task, and return the message with their results.

        Returns:
            The message; None if the task has no new calls.

        Raises:
            LimitExceededError: The agent has used up its turns or calls; `task` waits for results,
                and is not canceled.
            DeadlineExceededError: The deadline has passed; running functions are cancelled.
            A2AConnectionError: The client was closed meanwhile.
            InvalidAgentResponseError: A call cannot be read.
        """
        calls, transcript = self._new_calls(task), self._transcript
        if not calls:
            return None
        if self._turn_count == self._tools.max_turns:
            raise self._too_many_turns(task)
        new_count = sum(call not in transcript.started for call in calls)
        if self._call_count + new_count > self._tools.max_tool_calls:
            raise self._too_many_calls(task, new_count)
        self._call_count += new_count
        deadline = self._calls.deadline
        tool_results = await wait_until(
            deadline.at, self._run_all(calls), lambda: self._deadline_error(task, calls)
        )
        if self._core.is_closing:
            text = f"the client was closed while tools ran for task {task.id}"
            raise A2AConnectionError(text, failure="closed", executed=True, agent=self._core.agent)
        self._turn_count += 1
        history_length, pending = len(transcript.history), transcript.pending
        transcript.answered.update(calls)
        transcript.history += (
            *pending,
            model_response_event("\n".join(self._new_texts(task)), calls),
        )
        transcript.pending = [tool_results_event(tool_results)]
        reply = self._with_tools(
            Message(
                message_id=self._core.env.new_id(),
                role=Role.USER,
                parts=(results_part(tool_results),),
                task_id=task.id,
                context_id=task.context_id,
            )
        )
        self._last_sent = _SentResults(reply, calls, history_length, pending)
        return reply

    def revert(self, reply: Message) -> None:
        """Forget that a message carried tool results, because it was not sent."""
        last, transcript = self._last_sent, self._transcript
        if last is None or reply is not last.message:
            return
        transcript.pending = last.pending
        transcript.answered.difference_update(last.calls)
        del transcript.history[last.history_length :]

    def has_new_calls(self, task: Task) -> bool:
        """Return whether an interrupted task has calls that were not answered."""
        return bool(self._new_calls(task))

    def progress_check(self) -> Callable[[Task], bool]:
        """Return a predicate: does a task, interrupted as before, have new calls?

        Agents built with AG2 leave the task interrupted while they work on the results, and add
        their calls one by one. The calls are complete when two looks show the same ones.
        """
        last_calls: list[ToolCall] = []

        def has_progressed(task: Task) -> bool:
            nonlocal last_calls
            previous, last_calls = last_calls, self._new_calls(task)
            return bool(last_calls) and last_calls == previous

        return has_progressed

    # ── Messages ─────────────────────────────────────────────────────────────────────────────

    def _with_tools(self, message: Message) -> Message:
        events = self._transcript.history
        extensions = tuple(dict.fromkeys((*message.extensions, CLIENT_TOOLS)))
        parts = (*message.parts, *((history_part(events),) if events else ()), self._schemas)
        return msgspec.structs.replace(message, parts=parts, extensions=extensions)

    async def _get_task(self, task_id: str) -> Task:
        try:
            return await self._calls.get_task(task_id)
        except A2AError as error:
            error.executed = False  # the message was not sent
            raise

    def _new_calls(self, task: Task) -> list[ToolCall]:
        with self._calls.scope.hiding_secrets():
            return self._transcript.new_calls(task)

    def _new_texts(self, task: Task) -> list[str]:
        """Return the texts of artifacts that are new or have changed since the last call."""
        previous = self._transcript.texts
        texts = {artifact.artifact_id: artifact.text for artifact in task.artifacts}
        self._transcript.texts = texts
        return [t for artifact_id, t in texts.items() if t and previous.get(artifact_id) != t]

    def _new_text(self, reply: Task | Message) -> str:
        """Return the text of a reply that the history does not contain."""
        if isinstance(reply, Message):
            return reply.text
        texts, final = self._new_texts(reply), reply.status.message
        if final is not None and final.text and final.text not in texts:
            texts.append(final.text)
        return "\n".join(texts)

    # ── Calls ────────────────────────────────────────────────────────────────────────────────

    async def _run_all(self, calls: Sequence[ToolCall]) -> list[ToolResult]:
        """Run calls concurrently, and return their results in order."""
        slots = FifoSemaphore(_MAX_PARALLEL_CALLS)
        return await gather_bounded((f"tool {c.name}", self._run(c, slots)) for c in calls)

    async def _run(self, call: ToolCall, slots: FifoSemaphore) -> ToolResult:
        tools, transcript = self._tools.tools, self._transcript
        if call.name not in tools:
            reason = f"there is no tool {call.name!r}; valid names: {', '.join(tools)}"
            return ToolResult(id=call.id, name=call.name, error=reason)
        async with slots:
            if call in transcript.started:
                interrupted = ToolResult(id=call.id, name=call.name, error=_INTERRUPTED)
                return transcript.results.get(call, interrupted)
            transcript.started.add(call)
            result = await tools[call.name].run(
                call,
                raises=self._tools.raises,
                on_failure=lambda error: self._log_failure(call.name, error),
            )
            transcript.results[call] = result
            return result

    def _log_failure(self, name: str, error: Exception) -> None:
        operation = self._calls.scope.operation
        operation.log(logging.WARNING, "tool %s failed", name, error=error, exc_info=True)

    # ── Errors ───────────────────────────────────────────────────────────────────────────────

    def _too_many_turns(self, task: Task) -> LimitExceededError:
        bound = self._tools.max_turns
        return LimitExceededError(
            f"task {task.id} requests more tool calls after {bound} turns with tools, but "
            f"max_turns allows {bound}",
            which="max_turns",
            bound=bound,
            task=task,
            executed=True,
            agent=self._core.agent,
        )

    def _too_many_calls(self, task: Task, new_count: int) -> LimitExceededError:
        bound = self._tools.max_tool_calls
        return LimitExceededError(
            f"task {task.id} requests {new_count} tool calls after {self._call_count}, but "
            f"max_tool_calls allows {bound} for one answer; none of the new calls ran, and the "
            "task waits for their results",
            which="max_tool_calls",
            bound=bound,
            task=task,
            executed=True,
            agent=self._core.agent,
        )

    def _deadline_error(self, task: Task, calls: Sequence[ToolCall]) -> DeadlineExceededError:
        names = ", ".join(dict.fromkeys(c.name for c in calls))
        error = callback_deadline_error(
            f"tools ({names}) did not finish",
            self._calls.deadline,
            task,
            then=f"; task {task.id} waits for their results",
        )
        error.agent = self._core.agent
        return error


class _SentResults(NamedTuple):
    """The latest message with tool results, and the state of the transcript before it."""

    message: Message
    calls: list[ToolCall]
    history_length: int
    pending: list[dict[str, Any]]
