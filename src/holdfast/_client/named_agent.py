"""One of the agents of a `Coordinator`, and what came of asking it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias, cast

import msgspec

from holdfast._aio.cancel_scope import wait_until
from holdfast._arguments import check_url
from holdfast._client.answer import Answer
from holdfast._client.client import Client, asking
from holdfast._client.connect import connect
from holdfast._client.targets import AgentTarget
from holdfast._model.error_values import one_line
from holdfast._wire.http import presentable
from holdfast.errors import (
    A2AConnectionError,
    A2AError,
    DeadlineExceededError,
    TaskAuthRequiredError,
    TaskInputRequiredError,
)
from holdfast.types import AgentCard

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast._aio.env import Env
    from holdfast._client.options import ConnectOptions, SendOptions
    from holdfast._pipeline.admission import Admission, AdmissionQueue
    from holdfast._policy.deadline import Deadline
    from holdfast.types import Message, Task

__all__ = ["Agent", "AgentHealth", "AgentResult", "NamedAgent", "given_up", "listed"]

_LONGEST_QUESTION = 500
"""Characters of a task's question that an error tells; the task has all of it."""

_SHOWN = 3
"""Agents that an error names whose calls hold slots."""

Agent: TypeAlias = AgentTarget | Sequence[AgentTarget] | Client
"""What a coordinator can be given: what `connect` takes, or a client, which stays its owner's."""


class AgentResult(msgspec.Struct, frozen=True, kw_only=True):
    """What came of asking one agent: either `answer` or `error` is set.

    Attributes:
        agent: The name of the agent.
        answer: Its answer: a message, or a task that is completed.
        error: Why there is none. A task that failed, was rejected or was canceled is an error, and
            so is one that needs input (`TaskInputRequiredError`): its ``task`` can be gone on
            with.
        duration: Seconds that it took, with its wait for a place.
        attempts: How many tries were made to send the message; of one that got no further than
            the agent's card, to fetch that.
    """

    agent: str
    answer: Answer | None = None
    error: A2AError | None = None
    duration: float = 0.0
    attempts: int = 0

    def unwrap(self) -> Answer:
        """The answer.

        Raises:
            A2AError: There is none; `error` says why.
        """
        if self.answer is None:
            raise cast("A2AError", self.error)
        return self.answer


class AgentHealth(msgspec.Struct, frozen=True, kw_only=True):
    """How an agent is, as its circuit breaker sees it.

    Attributes:
        url: Its address, without credentials or query; None while that is not known.
        healthy: Whether calls go through. An agent that was never called is healthy.
        consecutive_failures: Calls that have failed in a row.
        last_failure: When a call has failed last, in seconds since the epoch; None for never.
        cause: What that was, in a line; None where that is not known.
        open_until: When the next call may go through, in seconds since the epoch; None where one
            may now, and where none does because somebody wants it so (see `Circuit.open`).
    """

    url: str | None
    healthy: bool = True
    consecutive_failures: int = 0
    last_failure: float | None = None
    cause: str | None = None
    open_until: float | None = None


class NamedAgent:
    """An agent with a name; its client is made when it is needed.

    Args:
        name: What results call it.
        agent: Where it is, or the client to call it with.
        options: Those of the client.

    Attributes:
        name: What results call it.
        gone: Why nobody is to call it any more; empty as long as somebody may.
    """

    def __init__(self, name: str, agent: Agent, options: ConnectOptions) -> None:
        self.name = name
        self.gone = ""
        self._agent: AgentTarget | Sequence[AgentTarget] | None = None
        self._options = options
        self._client: Client | None = None
        self._url: str | None = None
        if isinstance(agent, Client):
            self._client = agent
            return
        self._agent = agent
        if isinstance(agent, str):
            self._url = presentable(check_url(agent, f"address of {name!r}", or_path=True))
        elif not isinstance(agent, Path):
            self._client = self._connected(agent)  # cards are judged at once

    @property
    def client(self) -> Client:
        """What calls it."""
        if self._client is None:
            self._client = self._connected(cast("AgentTarget", self._agent))
        return self._client

    def _connected(self, agent: AgentTarget | Sequence[AgentTarget]) -> Client:
        """A client of what the name stands for.

        Raises:
            ValueError: That cannot be right.
            TypeError: It is none of what `connect` takes.
        """
        is_several = isinstance(agent, Sequence) and not isinstance(agent, str | bytes)
        for place in cast("Sequence[object]", agent) if is_several else (agent,):
            if not isinstance(place, str | Path | AgentCard | Mapping):
                text = (
                    f"the agent {self.name!r} must be a URL, a Path, an AgentCard, a dict, a list "
                    f"of these or a Client, not {type(place).__name__}"
                )
                raise TypeError(text)
        if not agent:
            text = f"the agent {self.name!r} is empty: name a URL, a Path or a card"
            raise ValueError(text)
        return connect(agent, **self._options)

    async def close(self) -> None:
        """Ends the calls under way, unless the client was lent: with that, they go on."""
        if self._client is not None and self._agent is not None:
            await self._client.close()

    def health(self, env: Env) -> AgentHealth:
        """How it is.

        Args:
            env: Where wall time comes from.
        """
        client = self._client
        if client is None:
            return AgentHealth(url=self._url)
        circuit, last = client.circuit, client.circuit.last_failure
        left = circuit.retry_after
        return AgentHealth(
            url=self._url or client.stats().url,
            healthy=circuit.state == "closed",
            consecutive_failures=circuit.failures,
            last_failure=None if last is None else env.wall() - _ago(last.at),
            cause=None if last is None else last.cause,
            open_until=env.wall() + left if left else None,
        )

    async def ask(
        self,
        message: Message,
        options: SendOptions,
        *,
        admission: Admission,
        queue: AdmissionQueue,
        within: Deadline | None = None,
        late: Callable[[Client, Task], None] | None = None,
        cancelled: Callable[[AgentResult], None] = lambda _: None,
    ) -> AgentResult:
        """Asks it as soon as there is a place; its time begins now.

        Args:
            message: The message.
            options: See `SendOptions`.
            admission: The slots.
            queue: Where to wait for one.
            within: When it ends at the latest.
            late: Told of a task that is waited for no longer, and is not over.
            cancelled: Told how far it has come if it is cancelled.
        """
        clock = asyncio.get_running_loop().time
        began = clock()
        answer: Answer | None = None
        error: A2AError | None = None
        client = self.client
        events, call_group, deadline = asking(client, message, options, within=within)
        # Who is refused at once takes no place, and waits for none.
        needs_place = client.circuit.state != "open"
        is_late = False
        try:
            if needs_place:
                await self._enter(admission, queue, deadline)
            try:
                self._check_there()
                async with events:
                    answer = await events.result()
            finally:
                if needs_place:
                    admission.leave(self.name)
            if answer.task is not None and answer.needs_input:
                error = self._asks_back(answer.task, answer.question, at=client.stats().url)
                answer = None
        except A2AError as failure:
            error = failure
            is_late = isinstance(error, DeadlineExceededError | TaskAuthRequiredError)
        except asyncio.CancelledError:
            is_late = True
            cancelled(given_up(self.name, sends=call_group.sends, duration=clock() - began))
            raise
        except RuntimeError:
            if not self.gone:
                raise
            # Its client was closed between two requests.
            error = self._is_gone(is_sent=call_group.sends > 0)
        finally:
            task = events.task
            if is_late and late is not None and task is not None and not task.state.is_terminal:
                late(client, task)
        return AgentResult(
            agent=self.name,
            answer=answer,
            error=error,
            duration=clock() - began,
            attempts=call_group.sends or (0 if error is None else len(error.attempts)),
        )

    async def _enter(
        self, admission: Admission, queue: AdmissionQueue, deadline: Deadline
    ) -> None:
        """Takes a place as soon as there is one.

        Raises:
            DeadlineExceededError: There was none in time.
        """
        if admission.enter_at_once(self.name):
            return
        taken = ""

        def look() -> None:
            nonlocal taken
            taken = _taken(admission)

        # The calls that hold the slots may leave at the same moment, with the same deadline.
        looking = asyncio.get_running_loop().call_at(deadline.at, look)
        entering = admission.enter(queue, self.name)
        try:
            await wait_until(
                deadline.at, entering, lambda: _no_place(deadline, taken or _taken(admission))
            )
        finally:
            looking.cancel()

    def _check_there(self) -> None:
        if self.gone:
            raise self._is_gone()

    def _is_gone(self, *, is_sent: bool = False) -> A2AConnectionError:
        message = f"{self.gone}{'' if is_sent else '; nothing was sent'}"
        return A2AConnectionError(message, failure="closed", executed=None if is_sent else False)

    def _asks_back(self, task: Task, question: str, *, at: str | None) -> TaskInputRequiredError:
        told = one_line(question, _LONGEST_QUESTION)
        how = f"answer with coordinator.client({self.name!r}).ask(…, task_id={task.id!r})"
        message = f"task {task.id} needs input: {f'{told}; ' if told else ''}{how}"
        return TaskInputRequiredError(message, task=task, executed=True, agent=at)


def _ago(at: float) -> float:
    """Seconds since a moment on the event loop's clock."""
    return asyncio.get_running_loop().time() - at


def given_up(name: str, *, sends: int = 0, duration: float = 0.0) -> AgentResult:
    """Return the result of an agent whose call was cancelled."""
    message = f"the call was cancelled{' in flight' if sends else '; nothing was sent'}"
    error = A2AConnectionError(message, failure="closed", executed=None if sends else False)
    return AgentResult(agent=name, error=error, duration=duration, attempts=sends)


def listed(shown: Sequence[str], most: int) -> str:
    """The first of some texts, and how many more there are."""
    more = [f"{len(shown) - most} more"] if len(shown) > most else []
    return ", ".join((*shown[:most], *more))


def _taken(admission: Admission) -> str:
    """Say which agents' calls have the slots."""
    taken, slots = admission.taken, admission.slots
    names = listed([repr(name) for name in admission.holders], _SHOWN)
    how_many, why = "all slots", ""
    if taken < slots:
        how_many, why = (
            f"{taken} of {slots} slots",
            ", and no agent may take more than are left free",
        )
    return f"{how_many} (concurrency={slots}) are taken by calls in flight, to {names}{why}"


def _no_place(deadline: Deadline, taken: str) -> DeadlineExceededError:
    return DeadlineExceededError(
        "no concurrency slot was free within the "
        f"{deadline.name} timeout of {deadline.shown}: {taken}; nothing was sent",
        deadline=deadline.name,
        timeout=deadline.timeout,
        executed=False,
    )
