"""A scripted agent that speaks the protocol's real bytes, JSON-RPC and HTTP+JSON.

`FakeAgent` takes an HTTP request and decides on the reply and its time. It does no I/O:
`holdfast._testing.network` sends requests to it in process, in virtual time;
`holdfast._testing.server` serves it on a real socket.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import urlsplit

import msgspec

from holdfast._arguments import check_kind, explains_unknown_options
from holdfast._model.settings import check_count
from holdfast._testing.exchange import Exchange
from holdfast._testing.faults import check_fault
from holdfast._testing.operations import ContextHandling, Operations, Result
from holdfast._testing.parsed_request import CARD, ParsedRequest, Refusal
from holdfast._testing.parsed_request_v03 import V03FileEncoding, v03_card
from holdfast._testing.plans import Plan, echo
from holdfast._testing.request_parsing import read_request
from holdfast._testing.streaming import Streaming
from holdfast._testing.timeline import Store
from holdfast.protocol import GET_EXTENDED_AGENT_CARD, OPERATIONS
from holdfast.types import AgentCapabilities, AgentCard, AgentInterface, AgentSkill, Message

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from holdfast._testing.bodies import EventBody
    from holdfast._testing.faults import Fault
    from holdfast._testing.plans import Behaviour
    from holdfast.extend import HttpRequest
    from holdfast.types import AgentExtension, Task

__all__ = ["FakeAgent", "FaultQueue", "Received"]

_OPERATION_NAMES = frozenset({CARD, *OPERATIONS})


class FaultQueue:
    """A queue of faults, each for one request."""

    def __init__(self) -> None:
        self._faults: deque[tuple[str | None, Fault]] = deque()

    def add(self, fault: Fault, *, on: str | None, times: int) -> None:
        """Add a fault.

        Args:
            fault: The fault.
            on: Name of the operation that it is for; None for any operation except the card.
            times: Number of requests.

        Raises:
            ValueError: There is no such operation, or ``times`` is less than 1.
            TypeError: ``fault`` is not a fault, or ``times`` is not a whole number.
        """
        check_fault(fault)
        check_count("times", times, least=1)
        if on is not None and on not in _OPERATION_NAMES:
            message = f"on must be one of {', '.join(sorted(_OPERATION_NAMES))}, not {on!r}"
            raise ValueError(message)
        self._faults.extend([(on, fault)] * times)

    def clear(self) -> None:
        """Remove all pending faults."""
        self._faults.clear()

    @property
    def pending(self) -> tuple[Fault, ...]:
        """The faults that have not been used."""
        return tuple(fault for _, fault in self._faults)

    def take(self, operation: str) -> Fault | None:
        """Remove and return the fault for a request; None for none.

        Args:
            operation: Name of the request's operation.
        """
        for index, (on, fault) in enumerate(tuple(self._faults)):
            if on == operation or (on is None and operation != CARD):
                del self._faults[index]
                return fault
        return None


_JSON = (Mapping, list, tuple, str, int, float, type(None))
"""Classes of the JSON values that a card may be, valid or not."""

_PATHS = {"JSONRPC": "/rpc", "HTTP+JSON": "/rest"}


class Received(msgspec.Struct, frozen=True, kw_only=True):
    """A request that reached the agent.

    Attributes:
        operation: Name of the operation, or ``"GetAgentCard"``; empty for any other request.
        method: HTTP method.
        url: The absolute URL.
        headers: Headers; names in lower case.
        body: The body.
        at: Time of arrival, on the event loop's clock in seconds.
    """

    operation: str
    method: str
    url: str
    headers: Mapping[str, str]
    body: bytes
    at: float


class FakeAgent:
    """Agent for tests and demonstrations; it fails on demand.

    Its card is at ``/.well-known/agent-card.json``, JSON-RPC at ``/rpc``, HTTP+JSON at ``/rest``.
    Its tasks continue when a client leaves, and its streams emit events at their time on the event
    loop's clock. It may be used from one event loop at a time.

    Args:
        behaviour: The outcome of each message: a function that takes a `ReceivedMessage`, or a
            fixed `Plan`, `Message` or text; by default it echoes.
        url: Its origin in process, ``http://agent.test`` by default; on a socket the real address
            is used.
        bindings: The bindings that its card offers, in order; it supports JSONRPC and HTTP+JSON.
        versions: Protocol versions that it supports, ``"1.0"`` and ``"0.3"``; its card is one of
            1.0, one of 0.3, or both in one.
        card: A card to serve instead of the generated one: an `AgentCard` or any JSON value; or a
            function that gets the generated `AgentCard`, with the right addresses, and returns
            another.
        token: A bearer token that every operation requires; None for none.
        cancel_takes: Seconds from a cancel request until the task is CANCELED; None for never.
        records_messages: Whether messages appear in a task's history; True by default.
        lists_tasks: Whether it has a list of tasks; True by default.
        contexts: Handling of an unknown context id of a message: ``"taken"`` uses it, as real
            agents do; ``"refused"`` answers with an error; ``"ignored"`` makes a new one.
        streaming: Whether it streams, or a `Streaming` with the details; True, the default,
            follows the specification.
        extensions: Extensions that its card declares; it activates those that a request names.
        store_lag: Seconds until GetTask, ListTasks and the first task of a subscription show an
            event.
        reply_lag: Seconds for which a task stays unchanged after a message that continues it, as
            on servers that store and publish nothing before their agent does: the stream, a
            SendMessage that returns immediately, and GetTask show the earlier question.
        latency: Seconds before each reply.
        id_suffix: The end of the ids that it makes; replicas with separate stores need different
            ones.
        v03_file_encoding: The form of ``fileWithBytes`` over HTTP+JSON in protocol 0.3:
            ``"base64"`` text, as the official server for Python writes it, or ``"bytes"``, as the
            proto defines it.
        store: The `store` of another fake agent to share, as replicas do; None for a new one.

    Raises:
        ValueError: ``versions`` is empty, or contains an unknown version.
        TypeError: ``behaviour`` is neither a function nor a `Plan`, a `Message` or text;
            or ``card`` is an object of another type.

    Attributes:
        url: Its origin in process.
        card: The card that it serves instead of the generated one; None for the generated one.
        received: Every request that reached it, in order.
        store: Its tasks and push notification configurations; other fake agents may share it.

    Example:
        Test a caller against rate limiting, in virtual time::

            from holdfast.testing import FakeAgent, FakeNetwork, rate_limited

            fake = FakeAgent("The moon is 384,400 km away.")
            fake.inject(rate_limited(retry_after=30))
            async with holdfast.connect(fake.url, engine=FakeNetwork(fake)) as agent:
                answer = await agent.ask("How far is the moon?")
            assert answer.text == "The moon is 384,400 km away."
            assert not fake.pending_faults
    """

    @explains_unknown_options()
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
        contexts: ContextHandling = "taken",
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
            message = f"versions must be '1.0', '0.3' or both, not {versions!r}"
            raise ValueError(message)
        if not callable(card):
            check_kind("card", card, (AgentCard, *_JSON), or_else=", JSON or a function")
        self.url = url
        self.card = card
        self.received: list[Received] = []
        self.store = Store() if store is None else store
        default = Streaming() if streaming is True else None
        self._streaming = streaming if isinstance(streaming, Streaming) else default
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
        self._faults = FaultQueue()

    # ── For the test ─────────────────────────────────────────────────────────────────────────

    @explains_unknown_options()
    def inject(self, fault: Fault, *, on: str | None = None, times: int = 1) -> None:
        """Add a fault for future requests; faults are used in the order of the calls.

        Args:
            fault: The fault.
            on: Name of the operation that it is for (``"GetAgentCard"`` for the card); None for
                any operation except the card.
            times: Number of requests, 1 by default.

        Raises:
            ValueError: There is no such operation, or ``times`` is less than 1.
            TypeError: ``fault`` is not a fault, or ``times`` is not a whole number.
        """
        self._faults.add(fault, on=on, times=times)

    @property
    def pending_faults(self) -> tuple[Fault, ...]:
        """The injected faults that no request has used."""
        return self._faults.pending

    @property
    def executions(self) -> dict[str, list[str]]:
        """By message id: the ids of the tasks or reply messages that it created."""
        return self._operations.executions

    @property
    def tasks(self) -> dict[str, Task]:
        """Every task in its current state, by id; needs a running event loop."""
        now = asyncio.get_running_loop().time()
        return {
            task_id: timeline.task(now) for task_id, timeline in self._operations.timelines.items()
        }

    @property
    def open_streams(self) -> int:
        """The number of streams that a client reads; zero when nothing leaks."""
        return len(self._streams)

    def calls(self, operation: str) -> list[Received]:
        """Return the received requests for one operation, by its name.

        Args:
            operation: Name of the operation, such as ``"SendMessage"``.
        """
        return [received for received in self.received if received.operation == operation]

    # ── For engines and servers ──────────────────────────────────────────────────────────────

    @property
    def epoch(self) -> float:
        """Wall time when the event loop's clock shows zero, in seconds since 1970.

        It is 2026-01-01 in process, and real time on a socket.
        """
        return self._operations.epoch

    @epoch.setter
    def epoch(self, epoch: float) -> None:
        self._operations.epoch = epoch

    def exchange(self, request: HttpRequest) -> Exchange:
        """Return the exchange for a request, with its fault.

        Nothing is executed before ``Exchange.reply`` is called.

        Args:
            request: The request, with an absolute URL and header names in lower case.
        """
        parsed = read_request(
            request,
            self._streaming or Streaming(),
            self._versions,
            v03_file_encoding=self._v03_file_encoding,
        )
        return Exchange(
            parsed,
            self._faults.take(parsed.operation),
            lambda: self._execute(parsed, request),
            headers=self._extension_headers(request),
            latency=self._latency,
            streams=self._streams,
            epoch=self.epoch,
        )

    def _execute(self, parsed: ParsedRequest, request: HttpRequest) -> Result:
        now = asyncio.get_running_loop().time()
        self.received.append(
            Received(
                operation=parsed.operation,
                method=request.method,
                url=request.url,
                headers=dict(request.headers),
                body=request.body,
                at=now,
            )
        )
        if parsed.operation == CARD:
            is_replaced = self.card is not None and not callable(self.card)
            card = self.card if is_replaced else self._public_card(request)
            return Result(value=lambda _now: card)
        if self._token is not None:
            authorization = request.headers.get("authorization")
            if authorization != f"Bearer {self._token}":
                raise Refusal(-32000, "unauthorized", http_status=401)
        params: Any = parsed.params()
        if parsed.operation == GET_EXTENDED_AGENT_CARD.name:
            card = self._own_card(request)
            extended = msgspec.structs.replace(card, name=f"{card.name}, extended")
            return Result(value=lambda _now: extended)
        return self._operations.execute(parsed.operation, params, now)

    def _public_card(self, request: HttpRequest) -> object:
        """Return its own card in the form of the versions that it speaks."""
        card = self._own_card(request)
        if "0.3" not in self._versions:
            return card
        document = v03_card(card)
        return {**document, **card.to_dict()} if "1.0" in self._versions else document

    def _extension_headers(self, request: HttpRequest) -> dict[str, str]:
        """Return the header that names the activated extensions (A2A 4.6)."""
        requested = request.headers.get("a2a-extensions", "").split(",")
        declared = {extension.uri for extension in self._extensions}
        activated = [uri for value in requested if (uri := value.strip()) in declared]
        return {"a2a-extensions": ", ".join(activated)} if activated else {}

    def _own_card(self, request: HttpRequest) -> AgentCard:
        """Return its own card, with the addresses of the request's origin."""
        card = self._default_card(request)
        if not callable(self.card):
            return card
        return cast("Callable[[AgentCard], AgentCard]", self.card)(card)

    def _default_card(self, request: HttpRequest) -> AgentCard:
        parts = urlsplit(request.url)
        base = f"{parts.scheme}://{parts.netloc}"
        return AgentCard(
            name="Fake agent",
            description="Executes its script.",
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
    check_kind("behaviour", outcome, (Message, Plan, str), or_else=", a Plan, text or a function")
    return lambda _turn: outcome
