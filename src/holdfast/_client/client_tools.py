"""Answers for which an agent calls the caller's own functions: AG2's client tools.

Rules: each tool call runs here, at most once, whatever happens to the answer; the results go back
as the next message of the same task, under the deadline of the whole answer; the number of turns
and of tool calls is bounded.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast._aio.callbacks import side_by_side
from holdfast._aio.waiting import callback_deadline_error, until
from holdfast._arguments import check_kind, items
from holdfast._client.reply_loop import Turn
from holdfast._client.tools import Tool
from holdfast._model.settings import check_count
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

__all__ = ["ClientTools", "ToolLoop", "ToolTranscript", "ask_for_tools", "client_tools"]

_AT_ONCE = 16
"""How many calls of one turn run at the same time."""

_INTERRUPTED = "the call was interrupted while it ran, and is not run again"


class ClientTools:
    """Functions that an agent may call while it works on an answer.

    The agent is told of each by its signature and docstring. The calls of one turn run side by
    side, within the timeout of the answer; one that is cancelled has a second to end. One that is
    not async runs in a thread of the event loop's default executor, and there to its end,
    whatever becomes of the answer. No call runs twice: of one that was interrupted, the agent is
    told so if the task is gone on with.

    Args:
        functions: The functions; no two of one name. Raise a `ToolError` in one to tell the agent
            why there is no result; of another exception the agent is told the kind alone.
        max_turns: How often the agent may call for one answer, each time one or more of them; at
            least 1.
        max_tool_calls: How many calls may run for one answer, those of all times together; at
            least 1. Of calls that exceed it none runs.
        raises: Whether such an exception ends the answer instead, raised as it is.

    Attributes:
        max_turns: How often the agent may call for one answer.
        max_tool_calls: How many calls may run for one answer.
        raises: Whether an exception ends the answer.
        tools: The functions, described, by their names.

    Raises:
        TypeError: One of them is no function with a name, or a parameter cannot be described.
        ValueError: Two have the same name, or `max_turns` or `max_tool_calls` is not positive.
    """

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
        for function in items("tools", functions):
            tool = Tool(function)
            if self.tools.setdefault(tool.schema.name, tool) is not tool:
                text = f"two tools have the name {tool.schema.name!r}"
                raise ValueError(text)


def client_tools(given: ClientTools | Iterable[Callable[..., Any]]) -> ClientTools | None:
    """What a caller passes as tools; None where there are none."""
    if given == ():  # as mostly
        return None
    tools = given if isinstance(given, ClientTools) else ClientTools(given)
    return tools if tools.tools else None


def ask_for_tools(options: CallOptions, tools: ClientTools | None) -> None:
    """Adds the extension to the options of a call, if there are tools."""
    if tools is not None:
        asked = items("extensions", options.get("extensions", ()))
        options["extensions"] = (*asked, CLIENT_TOOLS)


class ToolTranscript:
    """What an agent has called, and what was said, over all turns that belong together.

    Attributes:
        begun: Calls of the last task that were run.
        found: What came of those of them that ran to their end.
        answered: Calls of it whose results were sent, or that were passed over.
        said: What was said by both, as the extension's events: the history that goes with the next
            message.
        untold: What the caller said last; it joins the history when the agent has answered.
        heard: The agent's last answer to a message of the caller's; the history has it already.
        texts: The artifacts' texts of the last task, as last seen.
    """

    def __init__(self) -> None:
        self._task_id: str | None = None
        self.begun: set[ToolCall] = set()
        self.found: dict[ToolCall, ToolResult] = {}
        self.answered: set[ToolCall] = set()
        self.said: list[dict[str, Any]] = []
        self.untold: list[dict[str, Any]] = []
        self.heard: Task | Message | None = None
        self.texts: dict[str, str] = {}

    def new_calls(self, task: Task) -> list[ToolCall]:
        """What a task calls that was not answered, each once, however often it is told.

        Raises:
            InvalidAgentResponseError: A call cannot be read.
        """
        if task.id != self._task_id:  # which has calls of its own, whatever their names
            self._task_id = task.id
            self.begun.clear()
            self.found.clear()
            self.answered.clear()
        return [call for call in dict.fromkeys(tool_calls_in(task)) if call not in self.answered]

    def pass_over(self, task: Task) -> None:
        """Notes what a task calls already as answered: by others, or by nobody."""
        with contextlib.suppress(InvalidAgentResponseError):  # which nobody can answer
            self.answered.update(self.new_calls(task))


class ToolLoop:
    """The tools in the turns of one answer: offered with each message, called, and answered.

    Args:
        tools: What the agent may call.
        calls: What makes calls.
        stream: What the answer is made of; its deadline ends all of it.
        talk: What went before.
    """

    def __init__(
        self,
        tools: ClientTools,
        calls: ClientCore,
        stream: StreamCalls,
        talk: ToolTranscript | None = None,
    ) -> None:
        self._tools = tools
        self._offer = schemas_part(tool.schema for tool in tools.tools.values())
        self._calls = calls
        self._stream = stream
        self._talk = talk or ToolTranscript()
        self._turns = 0
        self._ran = 0  # calls
        self._last: tuple[Message, list[ToolCall], tuple[int, list[dict[str, Any]]]] | None = None

    async def begin(
        self, message: Message, send: Callable[..., Callable[[], Awaitable[ResumableStream]]]
    ) -> Turn:
        """Sends a message, and gives the answer with all the turns that it takes.

        Args:
            message: The message.
            send: `StreamCalls.send`, with what goes with each message.

        Raises:
            A2AError: See `Client.ask`.
        """
        known = await self._look_at(message.task_id) if message.task_id else None

        async def say(task: Task | None, said: Message) -> ResumableStream:
            sending = send(
                said,
                task_id=said.task_id,
                context_id=said.context_id,
                known=task,
                has_gone_on=self.going_on(),
            )
            return await sending()

        return Turn(
            await say(known, self.opening(message, known)),
            reply_to=self.reply,
            send=say,
            is_sent=lambda: self._stream.is_sent,
            wants_reply=self.has_called,
            seen_to=None if known is None else known.status,
        )

    def opening(self, message: Message, before: Task | Message | None = None) -> Message:
        """A message of the user's, with the tools on offer, and what was said before.

        Args:
            message: The message.
            before: What the agent said last. What the task calls now is passed over: others have
                answered it, or nobody will.
        """
        talk = self._talk
        if isinstance(before, Task):
            talk.pass_over(before)
        if before is not None and before != talk.heard:
            said, talk.heard = self._last_word(before), before
            if said and talk.untold:
                talk.said += (*talk.untold, model_response_event(said, ()))
        talk.untold = [user_input_event(message.parts)]
        return self._offering(message)

    async def reply(self, task: Task) -> Message | None:
        """Runs what a waiting task calls, and makes the message that tells what came of it.

        Returns:
            The message; None if the task calls nothing that is new.

        Raises:
            LimitExceededError: The agent has used up its turns or calls; `task` waits for results,
                and is not canceled.
            DeadlineExceededError: The deadline has passed; running functions are cancelled.
            A2AConnectionError: The client was closed meanwhile.
            InvalidAgentResponseError: A call cannot be read.
        """
        calls, talk = self._new_calls(task), self._talk
        if not calls:
            return None
        if self._turns == self._tools.max_turns:
            raise self._too_often(task)
        new = sum(call not in talk.begun for call in calls)
        if self._ran + new > self._tools.max_tool_calls:
            raise self._too_many(task, new)
        self._ran += new
        deadline = self._stream.deadline
        found = await until(deadline.at, self._run(calls), lambda: self._too_late(task, calls))
        if self._calls.is_closed:
            text = f"the client was closed while tools ran for task {task.id}"
            raise A2AConnectionError(
                text, failure="closed", executed=True, agent=self._calls.agent
            )
        self._turns += 1
        before = len(talk.said), talk.untold
        talk.answered.update(calls)
        talk.said += (*talk.untold, model_response_event("\n".join(self._new_texts(task)), calls))
        talk.untold = [tool_results_event(found)]
        reply = self._offering(
            Message(
                message_id=self._calls.env.new_id(),
                role=Role.USER,
                parts=(results_part(found),),
                task_id=task.id,
                context_id=task.context_id,
            )
        )
        self._last = reply, calls, before
        return reply

    def not_sent(self, reply: Message) -> None:
        """Takes back what a message would have told, if it is of tools: another one has to."""
        if self._last is None or reply is not self._last[0]:
            return
        _, calls, (said, self._talk.untold) = self._last
        self._talk.answered.difference_update(calls)
        del self._talk.said[said:]

    def has_called(self, task: Task) -> bool:
        """Whether a waiting task calls what was not answered."""
        return bool(self._new_calls(task))

    def going_on(self) -> Callable[[Task], bool]:
        """What says of a task that waits as before whether it calls anew.

        Agents built with AG2 leave the task waiting, as it was, while they work on results, and
        tell their calls one by one: so it does when it calls the same twice in a row.
        """
        last: list[ToolCall] = []

        def has_gone_on(task: Task) -> bool:
            nonlocal last
            calls, last = last, self._new_calls(task)
            return bool(last) and last == calls

        return has_gone_on

    # ── Within ───────────────────────────────────────────────────────────────────────────────

    def _offering(self, message: Message) -> Message:
        extensions = tuple(dict.fromkeys((*message.extensions, CLIENT_TOOLS)))
        before = (history_part(self._talk.said),) if self._talk.said else ()
        parts = (*message.parts, *before, self._offer)
        return msgspec.structs.replace(message, parts=parts, extensions=extensions)

    async def _look_at(self, task_id: str) -> Task:
        """The task that a message is for."""
        try:
            return await self._stream.look(task_id)
        except A2AError as error:
            error.executed = False  # of the message, which was not sent
            raise

    def _new_calls(self, task: Task) -> list[ToolCall]:
        with self._stream.scope.hiding_secrets():
            return self._talk.new_calls(task)

    def _new_texts(self, task: Task) -> list[str]:
        """The texts of artifacts that are new, or other than they were the last time."""
        known = self._talk.texts
        self._talk.texts = {artifact.artifact_id: artifact.text for artifact in task.artifacts}
        return [t for name, t in self._talk.texts.items() if t and known.get(name) != t]

    def _last_word(self, before: Task | Message) -> str:
        """What an answer adds to what is known to be said."""
        if isinstance(before, Message):
            return before.text
        texts, closing = self._new_texts(before), before.status.message
        if closing is not None and closing.text and closing.text not in texts:
            texts.append(closing.text)
        return "\n".join(texts)

    async def _run(self, calls: Sequence[ToolCall]) -> list[ToolResult]:
        """Runs calls side by side, and gives their results in order."""
        room = asyncio.Semaphore(_AT_ONCE)
        return await side_by_side((f"tool {c.name}", self._run_one(c, room)) for c in calls)

    async def _run_one(self, call: ToolCall, room: asyncio.Semaphore) -> ToolResult:
        tools, talk = self._tools.tools, self._talk
        if call.name not in tools:
            reason = f"there is no tool {call.name!r}; there are {', '.join(tools)}"
            return ToolResult(id=call.id, name=call.name, error=reason)
        async with room:
            if call in talk.begun:
                again = ToolResult(id=call.id, name=call.name, error=_INTERRUPTED)
                return talk.found.get(call, again)
            talk.begun.add(call)
            found = talk.found[call] = await tools[call.name].run(call, raises=self._tools.raises)
            return found

    def _too_often(self, task: Task) -> LimitExceededError:
        bound = self._tools.max_turns
        return LimitExceededError(
            f"task {task.id} calls tools once more after {bound} turns with tools, which are as "
            "many as it may have (max_turns)",
            which="max_turns",
            bound=bound,
            task=task,
            executed=True,
            agent=self._calls.agent,
        )

    def _too_many(self, task: Task, new: int) -> LimitExceededError:
        bound = self._tools.max_tool_calls
        return LimitExceededError(
            f"task {task.id} requests {new} tool calls after {self._ran}, but max_tool_calls "
            f"allows {bound} for one answer; none of the new calls ran, and the task waits for "
            "their results",
            which="max_tool_calls",
            bound=bound,
            task=task,
            executed=True,
            agent=self._calls.agent,
        )

    def _too_late(self, task: Task, calls: Sequence[ToolCall]) -> DeadlineExceededError:
        names = ", ".join(dict.fromkeys(c.name for c in calls))
        late = callback_deadline_error(
            f"tools ({names}) did not finish",
            self._stream.deadline,
            task,
            then=f"; task {task.id} waits for their results",
        )
        late.agent = self._calls.agent
        return late
