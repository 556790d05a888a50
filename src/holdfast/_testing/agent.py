"""A scripted agent that speaks the protocol's real bytes, JSON-RPC and HTTP+JSON.

`FakeAgent` is the agent itself: it takes an HTTP request and says what it answers, and when. It
does no I/O: `holdfast._testing.network` carries requests to it in process, in virtual time;
`holdfast._testing.server` puts it behind a real socket.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import urlsplit

import msgspec

from holdfast._model.operations import GET_EXTENDED_AGENT_CARD, OPERATIONS
from holdfast._testing.exchange import Exchange
from holdfast._testing.operations import Contexts, Operations, Result
from holdfast._testing.plans import echo
from holdfast._testing.serverrequests import read_request
from holdfast._testing.serverwire import CARD, Refusal, Wire
from holdfast._testing.streaming import Streaming
from holdfast._testing.timeline import Store
from holdfast._testing.v03wire import V03FileEncoding, v03_card
from holdfast.types import AgentCapabilities, AgentCard, AgentInterface, AgentSkill

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from holdfast._testing.bodies import EventBody
    from holdfast._testing.faults import Fault
    from holdfast._testing.plans import Behaviour, Plan
    from holdfast._wire.http import HttpRequest
    from holdfast.types import AgentExtension, Message, Task

__all__ = ["FakeAgent", "InjectedFaults", "Received"]

_NAMES = frozenset({CARD, *(operation.name for operation in OPERATIONS)})


class InjectedFaults:
    """Faults, each for one request."""

    def __init__(self) -> None:
        self._faults: deque[tuple[str | None, Fault]] = deque()

    def add(self, fault: Fault, *, on: str | None, times: int) -> None:
        """Adds a fault.

        Args:
            fault: What goes wrong.
            on: Name of the operation that it waits for; None for whichever comes first, the card
                not counted.
            times: With how many requests.

        Raises:
            ValueError: There is no such operation.
        """
        if on is not None and on not in _NAMES:
            message = f"{on!r} is none of {', '.join(sorted(_NAMES))}"
            raise ValueError(message)
        self._faults.extend([(on, fault)] * times)

    def clear(self) -> None:
        """Forgets those that no request has met yet."""
        self._faults.clear()

    @property
    def pending(self) -> tuple[Fault, ...]:
        """Those that no request has met yet."""
        return tuple(fault for _, fault in self._faults)

    def take(self, operation: str) -> Fault | None:
        """The fault that a request meets; None for none.

        Args:
            operation: What the request asks for, by name.
        """
        for index, (on, fault) in enumerate(tuple(self._faults)):
            if on == operation or (on is None and operation != CARD):
                del self._faults[index]
                return fault
        return None


_PATHS = {"JSONRPC": "/rpc", "HTTP+JSON": "/rest"}


class Received(msgspec.Struct, frozen=True, kw_only=True):
    """A request that reached the agent.

    Attributes:
        operation: Name of the operation, or ``"GetAgentCard"``; empty if it is neither.
        method: HTTP method.
        url: The whole address.
        headers: Names in lower case.
        body: As it came.
        at: When, on the event loop's clock.
    """

    operation: str
    method: str
    url: str
    headers: Mapping[str, str]
    body: bytes
    at: float


class FakeAgent:
    """An agent for tests and demonstrations.

    Its card is at ``/.well-known/agent-card.json``, JSON-RPC at ``/rpc``, HTTP+JSON at ``/rest``.
    It works on when a client leaves, and its streams tell events as they happen on the clock.
    To be used from one event loop at a time.

    Args:
        behaviour: What it does with a message: a function that says so, or the same each time;
            it echoes if left out.
        url: Its origin in process; behind a socket the real address counts.
        bindings: The bindings that its card offers, in order; it speaks JSONRPC and HTTP+JSON.
        versions: The versions of the protocol that it speaks, ``"1.0"`` and ``"0.3"``; its card is
            one of 1.0, one of 0.3, or both in one.
        card: A card to show in place of its own: an `AgentCard`, or anything that is JSON; or a
            function that makes an `AgentCard` of its own, which names the right addresses.
        token: A bearer token that every operation needs; None for none.
        cancel_takes: Seconds from a request to cancel until the task is CANCELED; None for never.
        records_messages: Whether messages appear in a task's history.
        lists_tasks: Whether it has a list of tasks.
        contexts: What it does with a context that a message names and that it does not know: it
            is ``"taken"``, as real agents do, ``"refused"``, or ``"ignored"`` for one of its own.
        streaming: Whether it streams, and how; True as the specification says.
        extensions: What its card declares; of these it activates what a request asks for.
        store_lag: Seconds until GetTask, ListTasks and the task that a subscription begins with
            show what happened.
        reply_lag: Seconds for which a task that was replied to stays as it was, for everybody, as
            on servers that store and publish nothing before their agent does: the stream of the
            reply, a SendMessage that returns at once and GetTask show the question once more.
        latency: Seconds before each reply.
        id_suffix: What the ids that it makes end with; replicas with stores of their own need
            different ones.
        v03_file_encoding: How it writes ``fileWithBytes`` over HTTP+JSON of protocol 0.3: as
            ``"base64"`` text, like the official server for Python, or as the ``"bytes"``
            themselves, as the proto says.
        store: The `store` of another fake agent, which both share then, as the replicas of an
            agent may; None for one of its own.

    Raises:
        ValueError: It is to speak no version, or one that there is not.

    Attributes:
        url: Its origin in process.
        card: The card that it shows in place of its own; None for its own.
        received: Every request that reached it, in order.
        store: Its tasks and push notification configs, to be shared with other fake agents.
    """

    def __init__(
        self,
        behaviour: Behaviour | Plan | Message | str = echo,
        *,
        url: str = "http://agent.test",
        bindings: tuple[str, ...] = ("JSONRPC", "HTTP+JSON"),
        versions: tuple[str, ...] = ("1.0",),
        card: object = None,
        token: str | None = None,
        cancel_takes: float | None = 0.0,
        records_messages: bool = True,
        lists_tasks: bool = True,
        contexts: Contexts = "taken",
        streaming: bool | Streaming = True,
        extensions: Sequence[AgentExtension] = (),
        store_lag: float = 0.0,
        reply_lag: float = 0.0,
        latency: float = 0.0,
        id_suffix: str = "",
        v03_file_encoding: V03FileEncoding = "base64",
        store: Store | None = None,
    ) -> None:
        if not versions or not set(versions) <= {"1.0", "0.3"}:
            message = f"versions are '1.0', '0.3' or both, not {versions!r}"
            raise ValueError(message)
        self.url = url
        self.card = card
        self.received: list[Received] = []
        self.store = Store() if store is None else store
        own = Streaming() if streaming is True else None
        self._streaming = streaming if isinstance(streaming, Streaming) else own
        self._streams: set[EventBody] = set()
        self._operations = Operations(
            behaviour if callable(behaviour) else _always(behaviour),
            cancel_takes=cancel_takes,
            records_messages=records_messages,
            lists_tasks=lists_tasks,
            contexts=contexts,
            streaming=self._streaming,
            store_lag=store_lag,
            reply_lag=reply_lag,
            id_suffix=id_suffix,
            store=self.store,
        )
        self._bindings = bindings
        self._versions = versions
        self._v03_file_encoding: V03FileEncoding = v03_file_encoding
        self._token = token
        self._extensions = tuple(extensions)
        self._latency = latency
        self._faults = InjectedFaults()

    # ── For the test ─────────────────────────────────────────────────────────────────────────

    def inject(self, fault: Fault, *, on: str | None = None, times: int = 1) -> None:
        """Lets something go wrong with requests to come, in the order of the calls.

        Args:
            fault: What goes wrong.
            on: Name of the operation that it waits for (``"GetAgentCard"`` for the card); None
                for whichever comes first, the card not counted.
            times: With how many requests.

        Raises:
            ValueError: There is no such operation.
        """
        self._faults.add(fault, on=on, times=times)

    @property
    def pending_faults(self) -> tuple[Fault, ...]:
        """The injected faults that no request has met yet."""
        return self._faults.pending

    @property
    def executions(self) -> dict[str, list[str]]:
        """The ids of the tasks, or of the reply messages, that each message id made."""
        return self._operations.executions

    @property
    def tasks(self) -> dict[str, Task]:
        """Every task as it stands, by id. To be asked while the event loop runs."""
        now = asyncio.get_running_loop().time()
        return {task_id: life.task(now) for task_id, life in self._operations.lives.items()}

    @property
    def open_streams(self) -> int:
        """Streams that somebody reads: zero when nothing leaks."""
        return len(self._streams)

    def calls(self, operation: str) -> list[Received]:
        """The requests for one operation, by its name."""
        return [received for received in self.received if received.operation == operation]

    # ── For what carries requests ────────────────────────────────────────────────────────────

    @property
    def epoch(self) -> float:
        """Wall time when the event loop's clock shows zero, in seconds since 1970.

        It is 2026-01-01 in process; behind a socket the agent tells real time.
        """
        return self._operations.epoch

    @epoch.setter
    def epoch(self, epoch: float) -> None:
        self._operations.epoch = epoch

    def exchange(self, request: HttpRequest) -> Exchange:
        """Meets a request, and takes the fault that is meant for it.

        Nothing is executed before the exchange is asked for its reply.

        Args:
            request: The request, its URL absolute, the names of its headers in lower case.
        """
        wire = read_request(
            request,
            self._streaming or Streaming(),
            self._versions,
            v03_file_encoding=self._v03_file_encoding,
        )
        return Exchange(
            wire,
            self._faults.take(wire.operation),
            lambda: self._take_in(wire, request),
            headers=self._activated(request),
            latency=self._latency,
            streams=self._streams,
            epoch=self.epoch,
        )

    def _take_in(self, wire: Wire, request: HttpRequest) -> Result:
        now = asyncio.get_running_loop().time()
        self.received.append(
            Received(
                operation=wire.operation,
                method=request.method,
                url=request.url,
                headers=dict(request.headers),
                body=request.body,
                at=now,
            )
        )
        if wire.operation == CARD:
            is_shown = self.card is not None and not callable(self.card)
            card = self.card if is_shown else self._public_card(request)
            return Result(value=lambda _now: card)
        if self._token is not None:
            given = request.headers.get("authorization")
            if given != f"Bearer {self._token}":
                raise Refusal(-32000, "unauthorized", http_status=401)
        params: Any = wire.params()
        if wire.operation == GET_EXTENDED_AGENT_CARD.name:
            card = self._card_at(request)
            extended = msgspec.structs.replace(card, name=f"{card.name}, extended")
            return Result(value=lambda _now: extended)
        return self._operations.execute(wire.operation, params, now)

    def _public_card(self, request: HttpRequest) -> object:
        """Its own card, as the versions that it speaks have it."""
        card = self._card_at(request)
        if "0.3" not in self._versions:
            return card
        as_v03 = v03_card(card)
        return {**as_v03, **card.to_dict()} if "1.0" in self._versions else as_v03

    def _activated(self, request: HttpRequest) -> dict[str, str]:
        """The header that tells which extensions are activated (A2A 4.6)."""
        asked = request.headers.get("a2a-extensions", "").split(",")
        known = {extension.uri for extension in self._extensions}
        activated = [uri for each in asked if (uri := each.strip()) in known]
        return {"a2a-extensions": ", ".join(activated)} if activated else {}

    def _card_at(self, request: HttpRequest) -> AgentCard:
        """Its own card, with the addresses under which the request found it."""
        card = self._plain_card(request)
        if not callable(self.card):
            return card
        return cast("Callable[[AgentCard], AgentCard]", self.card)(card)

    def _plain_card(self, request: HttpRequest) -> AgentCard:
        parts = urlsplit(request.url)
        base = f"{parts.scheme}://{parts.netloc}"
        return AgentCard(
            name="Fake agent",
            description="Does as it is told.",
            version="1.0",
            supported_interfaces=tuple(
                AgentInterface(
                    url=f"{base}{_PATHS.get(binding, '/')}",
                    protocol_binding=binding,
                    protocol_version="1.0",
                )
                for binding in self._bindings
            ),
            capabilities=AgentCapabilities(
                streaming=self._streaming is not None and self._streaming.declared,
                push_notifications=True,
                extended_agent_card=True,
                extensions=self._extensions,
            ),
            default_input_modes=("text/plain",),
            default_output_modes=("text/plain",),
            skills=(
                AgentSkill(
                    id="echo", name="Echo", description="Says what it hears.", tags=("test",)
                ),
            ),
        )


def _always(outcome: Plan | Message | str) -> Behaviour:
    return lambda _turn: outcome
