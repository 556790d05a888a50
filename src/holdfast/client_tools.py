"""Answers that an agent works out with the caller's own functions: AG2's client tools.

Rules: what the agent calls runs here, once for each call; the results go back as the next message
of the same task, under the deadline of the whole answer; an agent that calls for ever is told no.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast.answer import raise_for_outcome
from holdfast.arguments import check_kind, items
from holdfast.errors import (
    A2AConnectionError,
    A2AError,
    DeadlineExceededError,
    LimitExceededError,
)
from holdfast.model.settings import check_count
from holdfast.model.types import Message, Role
from holdfast.runtime.waiting import until
from holdfast.tools import Tool
from holdfast.wire.client_tools import (
    CLIENT_TOOLS,
    ToolResult,
    called,
    calls_in,
    history,
    offer,
    resulted,
    results,
    user_input,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from holdfast.answer import Answer
    from holdfast.calls import Calls, PerCall
    from holdfast.event_stream import EventStream
    from holdfast.model.types import Task
    from holdfast.policy.deadline import Deadline
    from holdfast.wire.client_tools import ToolCall

__all__ = ["ClientTools", "ToolTurns", "client_tools"]

_AT_ONCE = 16
"""How many calls of one turn run at the same time."""


class ClientTools:
    """Functions that an agent may call while it works on an answer.

    The agent is told of each by its signature and docstring. The calls of one turn run side by
    side, within the timeout of the answer. One that is not async runs in a thread, and there to
    its end, whatever becomes of the answer.

    Args:
        functions: The functions; no two of one name. Raise a `ToolError` in one to tell the agent
            why there is no result; of another exception the agent is told the kind alone.
        max_turns: How often the agent may call, each time any number of them.
        raises: Whether such an exception ends the answer instead, raised as it is.

    Attributes:
        max_turns: How often the agent may call.
        raises: Whether an exception ends the answer.
        tools: The functions, described, by their names.

    Raises:
        TypeError: One of them is no function with a name, or a parameter cannot be described.
        ValueError: Two have the same name, or `max_turns` is not positive.
    """

    def __init__(
        self,
        functions: Iterable[Callable[..., Any]],
        *,
        max_turns: int = 16,
        raises: bool = False,
    ) -> None:
        check_count("max_turns", max_turns, least=1)
        check_kind("raises", raises, bool)
        self.max_turns = max_turns
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


class ToolTurns:
    """The tools in the turns of one answer: offered with each message, called, and answered.

    Args:
        tools: What the agent may call.
        calls: What makes calls.
        deadline: When all of it ends.
        per_call: What goes with each request.
        poll_interval: Seconds between two looks where a task has to be polled.
    """

    def __init__(
        self,
        tools: ClientTools,
        calls: Calls,
        deadline: Deadline,
        per_call: PerCall,
        *,
        poll_interval: float,
    ) -> None:
        self._tools = tools
        self._offer = offer(tool.schema for tool in tools.tools.values())
        self._calls = calls
        self._deadline = deadline
        self._per_call = per_call
        self._poll_interval = poll_interval
        self._turns = 0
        self._answered: set[ToolCall] = set()
        self._history: list[dict[str, Any]] = []
        self._said: dict[str, str] = {}

    async def answer(self, message: Message, send: Callable[[Message], EventStream]) -> Answer:
        """Sends a message, answers the agent's calls, and gives what it says in the end.

        Args:
            message: The message.
            send: Sends one, under the deadline and with the options of all of it.

        Raises:
            LimitExceededError: It called too often; `task` waits for results.
            DeadlineExceededError: The time is over, perhaps while a function ran.
            A2AError: See `Client.ask`.
        """
        if message.task_id:
            await self._look_back(message.task_id)
        async with send(self.opening(message)) as events:
            answer = await events.result()
        while answer.task is not None:
            reply = await self.reply(answer.task)
            if reply is None:
                break
            async with send(reply) as events:
                later = await events.result()
            answer = await self._gone_on(later, answer.task)
        return answer

    def opening(self, message: Message) -> Message:
        """A message of the user's, with the tools on offer."""
        self._history.append(user_input(message.parts))
        return self._offering(message)

    async def reply(self, task: Task) -> Message | None:
        """Runs what a waiting task calls, and makes the message that tells what came of it.

        Returns:
            The message; None if the task calls nothing that is new.

        Raises:
            LimitExceededError: The agent has had its turns; `task` waits for results.
            DeadlineExceededError: The time is over, and the functions that ran are cancelled.
            A2AConnectionError: The client was closed meanwhile.
            InvalidAgentResponseError: A call cannot be read.
        """
        calls = self._new_calls(task)
        if not calls:
            return None
        if self._turns == self._tools.max_turns:
            raise self._too_often(task)
        found = await until(
            self._deadline.at, self._run(calls), lambda: self._too_late(task, calls)
        )
        if self._calls.is_closed:
            text = f"the client was closed while tools ran for task {task.id}"
            raise A2AConnectionError(
                text, failure="closed", executed=True, agent=self._calls.agent
            )
        self._turns += 1
        self._answered.update(calls)
        self._history.append(called(self._note_said(task), calls))
        told = Message(
            message_id=self._calls.env.new_id(),
            role=Role.USER,
            parts=(results(found), history(self._history)),
            task_id=task.id,
            context_id=task.context_id,
        )
        self._history.append(resulted(found))
        return self._offering(told)

    def pass_over(self, task: Task) -> None:
        """Notes what a task holds already: calls that others have answered, or never will."""
        self._answered.update(self._new_calls(task))
        self._note_said(task)

    # ── Within ───────────────────────────────────────────────────────────────────────────────

    def _offering(self, message: Message) -> Message:
        extensions = tuple(dict.fromkeys((*message.extensions, CLIENT_TOOLS)))
        parts = (*message.parts, self._offer)
        return msgspec.structs.replace(message, parts=parts, extensions=extensions)

    async def _look_back(self, task_id: str) -> None:
        """Passes over what the task holds that a message is for."""
        try:
            task = await self._calls.get_task(task_id, self._deadline, self._per_call)
        except A2AError as error:
            error.executed = False  # of the message, which was not sent
            raise
        self.pass_over(task)

    def _new_calls(self, task: Task) -> list[ToolCall]:
        with self._per_call.hiding_secrets():
            return [call for call in calls_in(task) if call not in self._answered]

    def _note_said(self, task: Task) -> str:
        """What the agent has said since the last time."""
        before = self._said
        self._said = {artifact.artifact_id: artifact.text for artifact in task.artifacts}
        return "\n".join(t for name, t in self._said.items() if t and before.get(name) != t)

    async def _run(self, calls: Sequence[ToolCall]) -> list[ToolResult]:
        """Runs calls side by side, and gives their results in order; it leaves none running."""
        room = asyncio.Semaphore(_AT_ONCE)
        running = [asyncio.create_task(self._run_one(call, room)) for call in calls]
        try:
            return await asyncio.gather(*running)
        finally:
            for task in running:
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)

    async def _run_one(self, call: ToolCall, room: asyncio.Semaphore) -> ToolResult:
        tools = self._tools.tools
        if call.name not in tools:
            reason = f"there is no tool {call.name!r}; there are {', '.join(tools)}"
            return ToolResult(id=call.id, name=call.name, error=reason)
        async with room:
            return await tools[call.name].run(call, raises=self._tools.raises)

    async def _gone_on(self, answer: Answer, before: Task) -> Answer:
        """What the agent has made of results, with all that the task held before.

        Agents built with AG2 leave the task waiting, as it was, while they work on results; so it
        has not gone on before its status is another one, or it calls the same twice in a row.
        """
        task, stale = answer.task, before.status
        if task is None:
            return answer
        if task.status == stale and stale.timestamp is not None:
            last: list[ToolCall] = []

            def has_gone_on(seen: Task) -> bool:
                nonlocal last
                calls, last = last, self._new_calls(seen)
                is_same = seen.status == stale and not (last and last == calls)
                return seen.state.is_settled and not is_same

            task = await self._calls.watch(
                task.id,
                task,
                self._deadline,
                self._poll_interval,
                self._per_call,
                until=has_gone_on,
            )
            with self._per_call.hiding_secrets():
                raise_for_outcome(task, agent=self._calls.agent)
        elif not _ids(before) <= _ids(task):  # told in updates, and not asked for in time
            task = await self._calls.get_task(task.id, self._deadline, self._per_call)
        return msgspec.structs.replace(answer, task=task)

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

    def _too_late(self, task: Task, calls: Sequence[ToolCall]) -> DeadlineExceededError:
        names = ", ".join(dict.fromkeys(call.name for call in calls))
        return DeadlineExceededError(
            f"tools ({names}) did not finish within the {self._deadline.name} timeout of "
            f"{self._deadline.timeout:g} s; task {task.id} waits for their results",
            deadline=self._deadline.name,
            timeout=self._deadline.timeout,
            task=task,
            executed=True,
            agent=self._calls.agent,
        )


def _ids(task: Task) -> set[str]:
    return {artifact.artifact_id for artifact in task.artifacts}
