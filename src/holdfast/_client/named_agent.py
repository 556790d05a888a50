"""An agent of a `Coordinator`, its health, and the result of a call to it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, cast

import msgspec

from holdfast._aio.cancel_scope import wait_until
from holdfast._arguments import check_url
from holdfast._client.answer import Answer, input_required
from holdfast._client.client import Client, asking, has_journal, name_agent
from holdfast._client.connect import connect
from holdfast._client.content import from_sdk
from holdfast._client.targets import AgentTarget
from holdfast._model.sdk_values import kind_of
from holdfast._policy.deadline import deadline_error
from holdfast._wire.http import presentable
from holdfast.errors import A2AConnectionError, A2AError
from holdfast.types import AgentCard

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast._aio.env import Env
    from holdfast._client.call_scope import CallScope
    from holdfast._client.options import ConnectOptions, SendOptions
    from holdfast._pipeline.admission import Admission, AdmissionQueue
    from holdfast._policy.deadline import Deadline
    from holdfast.errors import DeadlineExceededError
    from holdfast.types import Message

__all__ = [
    "AgentHealth",
    "AgentOrClient",
    "AgentResult",
    "NamedAgent",
    "cancelled_result",
    "join_some",
]

_MAX_HOLDERS_SHOWN = 3
"""Agents with calls in concurrency slots that an error names at most."""

AgentOrClient: TypeAlias = AgentTarget | Sequence[AgentTarget] | Client
"""An agent of a coordinator: anything that `connect` accepts, or a `Client`, which stays open."""


class AgentResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a call to one agent: either `answer` or `error` is set.

    Attributes:
        agent: The name of the agent.
        answer: The answer: a message, or a completed task.
        error: The reason why there is no answer. A task that failed, was rejected or was canceled
            is an error, and so is a task that needs input (`TaskInputRequiredError`): continue it
            with the ``task`` of the error.
        duration: Seconds that the call took, including the wait for a concurrency slot.
        attempts: Number of attempts to send the message; if the call did not get past the agent
            card, the number of attempts to fetch it.
    """

    agent: str
    answer: Answer | None = None
    error: A2AError | None = None
    duration: float = 0.0
    attempts: int = 0

    def unwrap(self) -> Answer:
        """Return the answer.

        Raises:
            A2AError: There is no answer: raises `error`.
        """
        if self.answer is None:
            raise cast("A2AError", self.error)
        return self.answer


class AgentHealth(msgspec.Struct, frozen=True, kw_only=True):
    """The health of an agent, according to its circuit breaker.

    Attributes:
        url: The agent's address, without credentials or query; None if it is not known yet.
        healthy: Whether the circuit is closed. An agent that was never called is healthy.
        consecutive_failures: Number of consecutive failures.
        last_failure: Time of the latest failure, in seconds since the epoch; None for none.
        cause: The reason of the latest failure, in one line; None if it is not known.
        open_until: Time at which the next call may pass, in seconds since the epoch; None if a
            call may pass now, or if the circuit was opened manually (`Circuit.open`).
    """

    url: str | None
    healthy: bool = True
    consecutive_failures: int = 0
    last_failure: float | None = None
    cause: str | None = None
    open_until: float | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the health as a JSON object."""
        document: dict[str, Any] = msgspec.to_builtins(self)
        return document


class NamedAgent:
    """An agent with a name; its client is created when it is needed.

    Args:
        name: The agent's name in results.
        agent: The agent, or the client to call it with.
        options: The options of the client to create.

    Attributes:
        name: The agent's name in results.
        closed_reason: Why the agent can no longer be called; None while it can.
    """

    def __init__(self, name: str, agent: AgentOrClient, options: ConnectOptions) -> None:
        self.name = name
        self.closed_reason: str | None = None
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
            self._client = self._connect(agent)  # an invalid card raises here

    @property
    def client(self) -> Client:
        """The client of this agent."""
        if self._client is None:
            self._client = self._connect(cast("AgentTarget", self._agent))
        return self._client

    def _connect(self, agent: AgentTarget | Sequence[AgentTarget]) -> Client:
        """Return a new client.

        Raises:
            ValueError: The target is empty or not valid.
            TypeError: The target is of a type that `connect` does not accept.
        """
        is_list = isinstance(agent, Sequence) and not isinstance(agent, str | bytes)
        for given in cast("Sequence[object]", agent) if is_list else (agent,):
            target = from_sdk(given, AgentCard)
            if not isinstance(target, str | Path | AgentCard | Mapping):
                text = (
                    f"the agent {self.name!r} must be a URL, a Path, an AgentCard, a dict, a list "
                    f"of these or a Client, not {kind_of(target)}"
                )
                raise TypeError(text)
        if not agent:
            text = f"the agent {self.name!r} has an empty list; pass a URL, a Path or a card"
            raise ValueError(text)
        client = connect(agent, **self._options)
        name_agent(client, self.name)
        return client

    def check_journal(self) -> None:
        """Check that a call to the agent may have a key.

        Raises:
            ValueError: The client is the caller's, and has no journal.
        """
        if self._agent is None and not has_journal(self.client):
            text = (
                f"key= needs a journal, and the client of agent {self.name!r} has none: a client "
                "that is passed to a Coordinator keeps its own options; pass connect(…, "
                "journal=…), with the journal of the coordinator"
            )
            raise ValueError(text)

    async def close(self) -> None:
        """Close the client and end its calls, unless the client belongs to the caller."""
        if self._client is not None and self._agent is not None:
            await self._client.close()

    def health(self, env: Env) -> AgentHealth:
        """Return the health of the agent.

        Args:
            env: Source of the wall-clock time.
        """
        client = self._client
        if client is None:
            return AgentHealth(url=self._url)
        circuit, failure = client.circuit, client.circuit.last_failure
        retry_after = circuit.retry_after
        return AgentHealth(
            url=self._url or client.stats().url,
            healthy=circuit.state == "closed",
            consecutive_failures=circuit.failures,
            last_failure=None if failure is None else env.wall() - _seconds_since(failure.at),
            cause=None if failure is None else failure.cause,
            open_until=env.wall() + retry_after if retry_after else None,
        )

    async def ask(
        self,
        message: Message,
        options: SendOptions,
        *,
        method: Callable[..., Any],
        admission: Admission,
        queue: AdmissionQueue,
        key: str | None = None,
        within: Deadline | None = None,
        cancel_on_abandon: bool = False,
        on_cancel: Callable[[AgentResult], None] = lambda _: None,
    ) -> AgentResult:
        """Send a message as soon as there is a slot, and wait for the answer.

        Args:
            message: The message.
            method: The method that the caller called.
            options: See `SendOptions`; the timeout includes the wait for a slot.
            admission: The concurrency slots.
            queue: The queue in which to wait for a slot.
            key: See `Client.ask`.
            within: A deadline that bounds the call further.
            cancel_on_abandon: See `Client.ask`.
            on_cancel: Called with the result so far if the call is cancelled.
        """
        clock = asyncio.get_running_loop().time
        started_at = clock()
        answer: Answer | None = None
        error: A2AError | None = None
        client = self.client
        send, scope = asking(
            client,
            message,
            options,
            method=method,
            key=key,
            within=within,
            cancel_on_abandon=cancel_on_abandon,
        )
        # A call that the open circuit refuses immediately needs no slot.
        needs_slot = client.circuit.state != "open"
        try:
            with scope.operation:
                if needs_slot:
                    await self._enter(admission, queue, scope)
                try:
                    if self.closed_reason is not None:
                        raise _closed_error(self.closed_reason, is_sent=False)
                    answer = await send()
                    if answer.task is not None and answer.needs_input:
                        raise input_required(
                            answer.task,
                            answer.question,
                            client=f"coordinator.client({self.name!r})",
                            agent=client.stats().url,
                        )
                except RuntimeError as failure:
                    if self.closed_reason is None:
                        raise
                    # The client was closed between two requests.
                    is_sent = scope.call_group.sends > 0
                    raise _closed_error(self.closed_reason, is_sent=is_sent) from failure
                finally:
                    if needs_slot:
                        admission.leave(self.name)
        except A2AError as failure:
            answer, error = None, failure
        except asyncio.CancelledError:
            duration = clock() - started_at
            on_cancel(cancelled_result(self.name, sends=scope.call_group.sends, duration=duration))
            raise
        return AgentResult(
            agent=self.name,
            answer=answer,
            error=error,
            duration=clock() - started_at,
            attempts=scope.call_group.sends or (0 if error is None else len(error.attempts)),
        )

    async def _enter(self, admission: Admission, queue: AdmissionQueue, scope: CallScope) -> None:
        """Take a concurrency slot as soon as one is free.

        Raises:
            DeadlineExceededError: No slot was free before the deadline.
        """
        if admission.enter_at_once(self.name):
            return
        usage = ""

        def record_usage() -> None:
            nonlocal usage
            usage = _slot_usage(admission)

        deadline = scope.deadline
        # Calls with the same deadline may leave their slots before the error is made.
        recording = asyncio.get_running_loop().call_at(deadline.at, record_usage)
        entering = admission.enter(queue, self.name)
        try:
            with scope.operation.waiting("concurrency"):
                await wait_until(
                    deadline.at,
                    entering,
                    lambda: _no_slot_error(deadline, usage or _slot_usage(admission)),
                )
        finally:
            recording.cancel()


def _seconds_since(moment: float) -> float:
    """Return the seconds since a moment on the event loop's clock."""
    return asyncio.get_running_loop().time() - moment


def _closed_error(reason: str, *, is_sent: bool) -> A2AConnectionError:
    message = f"{reason}{'' if is_sent else '; nothing was sent'}"
    return A2AConnectionError(message, failure="closed", executed=None if is_sent else False)


def cancelled_result(name: str, *, sends: int = 0, duration: float = 0.0) -> AgentResult:
    """Return the result of an agent whose call was cancelled."""
    message = f"the call was cancelled{' in flight' if sends else '; nothing was sent'}"
    error = A2AConnectionError(message, failure="closed", executed=None if sends else False)
    return AgentResult(agent=name, error=error, duration=duration, attempts=sends)


def join_some(texts: Sequence[str], limit: int) -> str:
    """Join the first texts, and say how many more there are."""
    more = [f"{len(texts) - limit} more"] if len(texts) > limit else []
    return ", ".join((*texts[:limit], *more))


def _slot_usage(admission: Admission) -> str:
    """Describe which agents' calls hold the concurrency slots."""
    used, slots = admission.taken, admission.slots
    names = join_some([repr(name) for name in admission.holders], _MAX_HOLDERS_SHOWN)
    usage, reason = "all slots", ""
    if used < slots:
        usage = f"{used} of {slots} slots"
        reason = ", and no agent may take more than are free"
    return f"{usage} (concurrency={slots}) are taken by calls in flight, to {names}{reason}"


def _no_slot_error(deadline: Deadline, usage: str) -> DeadlineExceededError:
    return deadline_error(
        "no concurrency slot was free",
        deadline,
        then=f": {usage}; nothing was sent",
        executed=False,
    )
