"""Many agents, each with a name: asking one of them, asking all at once, and how they are."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Self, Unpack, cast

import msgspec

from holdfast._aio.closing import ClosingContext, close_in_turn, raise_first
from holdfast._aio.env import SystemEnv
from holdfast._arguments import check_options, check_seconds, items, not_empty
from holdfast._client.client import asking
from holdfast._client.connect import connect
from holdfast._client.content import Content, to_message
from holdfast._client.fan_out import FanOut
from holdfast._client.named_agent import Agent, AgentHealth, AgentResult, NamedAgent, listed
from holdfast._client.options import ConnectOptions, SendOptions
from holdfast._client.resolve import check_tls, resolve_engine, resolve_journal
from holdfast._model.settings import check_count, check_kind
from holdfast._pipeline.admission import Admission, AdmissionQueue
from holdfast._pipeline.endpoints import Endpoints
from holdfast.errors import A2AError, NotEnoughResultsError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from holdfast._aio.closing import Closable
    from holdfast._client.client import Client
    from holdfast._client.options import CallOptions
    from holdfast._policy.deadline import Deadline
    from holdfast.types import Message, Task

__all__ = ["Coordinator"]

_CANCELLING = 10.0
"""Seconds that an agent has to take a request to cancel a task."""

_CLOSING = 30.0
"""Seconds that the connections and the journal have to close."""

_SEVERAL = (
    "bindings",
    "supported_protocol_bindings",
    "extensions",
    "credential_origins",
    "allowed_networks",
    "interceptors",
    "consumers",
    "observers",
    "call_layers",
    "attempt_layers",
)
"""Options that every client reads, and that could be read only once."""

_SHOWN = 10
"""Names that a message lists at most."""

_OPTIONS = (*ConnectOptions.__annotations__, "concurrency")

_FAN_OUT_OPTIONS = (
    "agents",
    "min_results",
    "within",
    "cancel_remote",
    *SendOptions.__annotations__,
)


class Coordinator(ClosingContext):
    """Calls many agents. Use it as an async context manager, in one event loop.

    All share their connections and what is known of the places they are at. An agent that is away
    is left alone by its circuit breaker, and answered for at once with a `CircuitOpenError`.

    Args:
        agents: Names, and what `connect` takes as an agent, or a `Client`; that one is used and
            not closed. Or addresses, which are their names as well. If left out or empty, the
            coordinator starts without agents; `add` adds them.
        concurrency: How many messages are under way at once. Each waits for its answer; the
            others wait in a queue, each fan-out in turns with the others. Where there are several
            agents, each leaves as many places free as it has. As many agents as there are
            places can still take all of them, if they never answer: have more places than agents
            that may hang.
        options: See `connect`. They are for every agent, ``auth`` and ``headers`` too: where those
            differ, pass clients. An ``engine`` and a ``journal`` of the coordinator's own are
            closed with it.

    Raises:
        ValueError: An address, a name or an option that cannot be right.
        TypeError: An argument of another type.
    """

    def __init__(
        self,
        agents: Mapping[str, Agent] | Iterable[str] = (),
        *,
        concurrency: int = 100,
        **options: Unpack[ConnectOptions],
    ) -> None:
        check_count("concurrency", concurrency, least=1)
        check_options("a Coordinator", options, _OPTIONS)
        if options.get("url") is not None:
            text = "url= is the address of one agent; pass connect(…, url=…) as that agent"
            raise ValueError(text)
        named = _named(agents)
        self._admission = Admission(concurrency, lambda: len(self._agents) > 1)
        self._options, self._owned = _shared(options, concurrency)
        self._env = self._options.get("env") or SystemEnv()
        connect(_NOBODY, **self._options)  # what cannot be right is told at once
        self._agents: dict[str, NamedAgent] = {}
        self._leaving: set[asyncio.Task[None]] = set()
        self._fan_outs: set[FanOut] = set()
        self._is_closed = False
        for name, agent in named:
            self.add(name, agent)

    async def __aenter__(self) -> Self:
        """The coordinator itself.

        Raises:
            RuntimeError: It is closed.
        """
        self._check_open()
        return self

    async def close(self) -> None:
        """Ends what is under way, and closes the clients and connections that are its own.

        Requests to cancel tasks that were asked for (``cancel_remote``) have up to 10 s more.
        Can be called twice.
        """
        self._is_closed = True
        agents, self._agents = self._agents, {}
        for name, agent in agents.items():
            agent.gone = "the coordinator was closed"
            self._admission.dismiss(name)
        owned, self._owned = self._owned, ()
        try:
            await asyncio.gather(*(fan_out.close() for fan_out in tuple(self._fan_outs)))
            await asyncio.gather(*self._leaving, return_exceptions=True)
        finally:
            try:
                closing = (agent.close() for agent in agents.values())
                raise_first(await asyncio.gather(*closing, return_exceptions=True))
            finally:
                await close_in_turn(owned, seconds=_CLOSING)

    # ── Agents ───────────────────────────────────────────────────────────────────────────────

    @property
    def agents(self) -> tuple[str, ...]:
        """The names of the agents."""
        return tuple(self._agents)

    def client(self, name: str) -> Client:
        """The client of an agent, for all that is done with one agent alone.

        Raises:
            ValueError: There is no such agent.
        """
        return self._of(name).client

    def add(self, name: str, agent: Agent) -> None:
        """Adds an agent; fan-outs that are under way do not ask it.

        Raises:
            ValueError: The name is taken, or an address that cannot be right.
            TypeError: It is none of what `connect` takes.
            RuntimeError: The coordinator is closed.
        """
        self._check_open()
        if not_empty("the name of an agent", name) in self._agents:
            text = f"there is an agent {name!r} already; remove it first, or use another name"
            raise ValueError(text)
        self._agents[name] = NamedAgent(name, agent, self._options)

    async def remove(self, name: str) -> None:
        """Removes an agent, and closes its client unless that was lent.

        Calls to it that are under way end with an `A2AConnectionError`, and so do those that wait
        for their turn; the agent itself goes on with its tasks. Over a client that was lent, calls
        under way come to their own end.

        Raises:
            ValueError: There is no such agent.
        """
        agent = self._of(name)
        del self._agents[name]
        agent.gone = f"the agent {name!r} was removed"
        self._admission.dismiss(name)
        await agent.close()

    def health(self) -> dict[str, AgentHealth]:
        """How each agent is, by name, as the circuit breakers of the running event loop see it."""
        return {name: agent.health(self._env) for name, agent in self._agents.items()}

    # ── Asking ───────────────────────────────────────────────────────────────────────────────

    async def delegate(
        self, agent: str, message: Content, **options: Unpack[SendOptions]
    ) -> AgentResult:
        """Asks one agent as `Client.ask` does; what goes wrong there is in the result.

        The wait for a place counts against the time of the call.

        Args:
            agent: Its name.
            message: Text, parts, a `Message` or its JSON object.
            options: See `SendOptions`.

        Returns:
            The answer, or why there is none; `AgentResult.unwrap` raises that.

        Raises:
            ValueError: There is no such agent, or nothing in the message.
            TypeError: An argument of another type.
        """
        self._check_open()
        return await self._of(agent).ask(
            to_message(message, new_id=""),
            options,
            admission=self._admission,
            queue=AdmissionQueue(),
        )

    def fan_out(
        self,
        message: Content | Iterable[tuple[str, Content]],
        *,
        agents: Iterable[str] | None = None,
        min_results: int = 1,
        within: float | None = None,
        cancel_remote: bool = False,
        **options: Unpack[SendOptions],
    ) -> FanOut:
        """Asks many agents at once, and gives what each came to.

        ``await`` it for all results, in the order asked for; or iterate over it for each as it
        comes. What goes wrong with one agent is in its result, and delays no other. Who has had
        enough leaves the iteration, inside of ``async with``. For a task of its own, pass it to
        `asyncio.ensure_future`; it is no coroutine, as its ``results()`` is.

        Args:
            message: One message for all, each with an id of its own; or pairs of an agent's name
                and a message, as ``zip(names, messages)`` or the ``items()`` of a dict give them.
                An agent may be named more than once.
            agents: Who is asked, where it is one message; all agents if left out.
            min_results: How many have to answer. A task that failed, was rejected or needs input
                is no answer.
            within: Seconds for all of it; who has not answered by then has a
                `DeadlineExceededError`. The time of each call counts from the beginning too, with
                its wait for a place.
            cancel_remote: Whether to cancel tasks at the agents that are waited for no longer:
                since the time is over, or the fan-out is closed. It needs a task that is known by
                then, happens beside the results, and holds up `close` for up to 10 s.
            options: See `SendOptions`, for each message.

        Raises:
            NotEnoughResultsError: Fewer are asked than have to answer; nothing was sent.
            ValueError: There is no such agent, nothing in a message, or a number that cannot be
                right.
            TypeError: An argument of another type.
        """
        self._check_open()
        check_options("a fan-out", options, _FAN_OUT_OPTIONS)
        check_count("min_results", min_results)
        check_kind("cancel_remote", cancel_remote, bool)
        if within is not None:
            check_seconds("within", within)
        asked = self._asked(message, agents)
        if len(asked) < min_results:
            raise _too_few(min_results, len(asked), has_any=bool(self._agents))
        for agent, first in asked[:1]:
            asking(agent.client, first, options)  # what cannot be right is told at once
        queue = AdmissionQueue()

        def late(client: Client, task: Task) -> None:
            leaving = asyncio.get_running_loop().create_task(_cancel(client, task, options))
            self._leaving.add(leaving)
            leaving.add_done_callback(self._leaving.discard)

        async def ask(
            agent: NamedAgent,
            message: Message,
            deadline: Deadline | None,
            cancelled: Callable[[AgentResult], None],
        ) -> AgentResult:
            return await agent.ask(
                message,
                options,
                admission=self._admission,
                queue=queue,
                within=deadline,
                late=late if cancel_remote else None,
                cancelled=cancelled,
            )

        return FanOut(
            asked,
            ask,
            min_results=min_results,
            within=within,
            begun=self._has_begun,
            over=self._fan_outs.discard,
        )

    def _has_begun(self, fan_out: FanOut) -> None:
        self._check_open()
        self._fan_outs.add(fan_out)

    def _asked(
        self,
        message: Content | Iterable[tuple[str, Content]],
        agents: Iterable[str] | None,
    ) -> list[tuple[NamedAgent, Message]]:
        """Who is asked what."""
        content, pairs = _content_or_pairs(message)
        if pairs is None:
            names = self.agents if agents is None else items("agents", agents)
            one = self._one_for_all(content)
            if one.task_id is not None and len(names) > 1:
                text = f"task {one.task_id} is one agent's, and {len(names)} are asked"
                raise ValueError(text)
            one = msgspec.structs.replace(one, message_id="")
            return [(self._of(name), one) for name in names]
        if agents is not None:
            text = "agents= is for one message to all; pairs name their agents themselves"
            raise ValueError(text)
        asked = [(self._of(name), to_message(content, new_id="")) for name, content in pairs]
        seen: set[str] = set()
        for _, own in asked:
            if own.message_id and own.message_id in seen:
                text = (
                    f"the message id {own.message_id!r} is there more than once; leave it out, "
                    "and each message gets its own"
                )
                raise ValueError(text)
            seen.add(own.message_id)
        return asked

    def _one_for_all(self, content: Content) -> Message:
        """The one message for all agents.

        Raises:
            ValueError: There is nothing in it.
            TypeError: It is none.
        """
        try:
            return to_message(content, new_id="")
        except (ValueError, TypeError):
            if not isinstance(content, Mapping) or content.keys().isdisjoint(self._agents):
                raise
            text = "a dict is one message; for a message for each agent, pass .items() of it"
            raise ValueError(text) from None

    def _of(self, name: str) -> NamedAgent:
        agent = self._agents.get(not_empty("the name of an agent", name))
        if agent is None:
            known = listed([repr(known) for known in self._agents], _SHOWN) or "none"
            text = f"there is no agent {name!r}; there are: {known}"
            raise ValueError(text)
        return agent

    def _check_open(self) -> None:
        if self._is_closed:
            text = "the coordinator is closed"
            raise RuntimeError(text)


_NOBODY = "http://agent.invalid"
"""An address that nobody has (RFC 6761, 6.4)."""


def _named(agents: Mapping[str, Agent] | Iterable[str]) -> Sequence[tuple[str, Agent]]:
    """Names and agents.

    Raises:
        ValueError: An address is there twice, or is no name to be shown.
        TypeError: It is neither a mapping nor a sequence of addresses.
    """
    if isinstance(agents, Mapping):
        return list(cast("Mapping[str, Agent]", agents).items())
    wanted = "agents must be a dict of names and agents, or a list of addresses"
    if not isinstance(cast("object", agents), Iterable):
        text = f"{wanted}, not {type(agents).__name__}"
        raise TypeError(text)
    addresses = items("agents", agents)
    for address in addresses:
        if not isinstance(cast("object", address), str):
            text = f"{wanted}, not of {type(address).__name__}; name it, as {{name: agent}}"
            raise TypeError(text)
        if "?" in address:
            text = "an address with a query may hold a secret: name it, as {name: address}"
            raise ValueError(text)
    return [(address, address) for address in addresses]


def _shared(
    options: ConnectOptions, concurrency: int
) -> tuple[ConnectOptions, tuple[Closable, ...]]:
    """The options of all clients, and what has to be closed after them."""
    given: dict[str, Any] = {**options}
    given.update((name, items(name, given[name])) for name in _SEVERAL if name in given)
    common = cast("ConnectOptions", given)
    owned: list[Closable] = []
    tls = common.pop("tls", None)  # which the engine tells to all clients
    check_tls(tls, common.get("engine"))
    if common.get("engine") is None:
        from holdfast._net.aiohttp import AiohttpEngine  # heavy; importing holdfast is not

        # Each call has a connection of its own at most, and one more for a look at its task.
        engine = AiohttpEngine(
            max_connections=max(100, concurrency),
            max_streams=max(1000, concurrency),
            ssl=True if tls is None else tls,
        )
        common["engine"] = engine
        owned.append(engine)
    else:
        common["engine"], _ = resolve_engine(common.get("engine"))
    journal = common.get("journal")
    if journal is not None:
        kept = resolve_journal(journal)
        common["journal"] = kept
        if kept is not journal:
            owned.append(kept)
    if common.get("shared") is None:
        common["shared"] = Endpoints()
    return common, tuple(owned)


def _content_or_pairs(
    given: Content | Iterable[tuple[str, Content]],
) -> tuple[Content, list[tuple[str, Content]] | None]:
    """One message, or pairs of agents and messages; what can be read once only is read here."""
    if not isinstance(given, Iterable) or isinstance(given, str | bytes | Mapping):
        return cast("Content", given), None
    listed: list[Any] = list(given)
    if not all(isinstance(one, tuple) for one in listed):
        return cast("Content", listed), None
    for pair in listed:
        if len(pair) != 2:
            text = f"each pair is an agent's name and a message; one has {len(pair)} members"
            raise ValueError(text)
    return "", listed


def _too_few(wanted: int, asked: int, *, has_any: bool) -> NotEnoughResultsError:
    """The error of a fan-out that cannot have as many answers as are wanted."""
    agents = "1 agent" if wanted == 1 else f"{wanted} agents"
    text = f"{agents} should answer, and {asked} {'is' if asked == 1 else 'are'} asked"
    if not has_any:
        text = f"{text}: the coordinator has no agents"
    return NotEnoughResultsError(f"{text}; nothing was sent", executed=False)


async def _cancel(client: Client, task: Task, options: SendOptions) -> None:
    """Asks an agent to cancel a task; if that fails, nothing is left to be done."""
    alike: dict[str, Any] = {**options, "timeout": _CANCELLING}
    alike.pop("on_unknown", None)
    with contextlib.suppress(A2AError, RuntimeError):
        await client.cancel_task(task.id, confirm=False, **cast("CallOptions", alike))
