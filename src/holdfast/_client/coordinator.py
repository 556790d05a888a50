"""The coordinator: many named agents, calls to one of them or to all at once, and their health."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Self, Unpack, cast

import msgspec

from holdfast._aio.closing import ClosingContext, close_in_turn, raise_first
from holdfast._aio.env import SystemEnv
from holdfast._arguments import (
    MAX_KEY_LENGTH,
    check_items,
    check_key,
    check_not_empty,
    check_options,
    check_seconds,
)
from holdfast._client.client import asking
from holdfast._client.content import Content, to_user_message
from holdfast._client.fan_out import FanOut
from holdfast._client.named_agent import (
    AgentHealth,
    AgentOrClient,
    AgentResult,
    NamedAgent,
    join_some,
)
from holdfast._client.options import ConnectOptions, SendOptions
from holdfast._client.settings import check_connect_options
from holdfast._journal.resolve import resolve_journal
from holdfast._model.settings import check_count, check_kind
from holdfast._net.resolve_engine import check_tls, resolve_engine
from holdfast._pipeline.admission import Admission, AdmissionQueue
from holdfast._pipeline.endpoints import Endpoints
from holdfast.errors import NotEnoughResultsError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from holdfast._aio.closing import Closable
    from holdfast._client.client import Client
    from holdfast._policy.deadline import Deadline
    from holdfast.types import Message

__all__ = ["Coordinator"]

_CLOSE_TIMEOUT_S = 30.0
"""Seconds that the connections and the journal have to close."""

_ITERABLE_OPTIONS = (
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
"""Options that every client reads, and that may be one-shot iterables."""

_MAX_NAMES_SHOWN = 10
"""Agents that an error names at most."""

_COORDINATOR_OPTIONS = (*ConnectOptions.__annotations__, "concurrency")

_FAN_OUT_OPTIONS = (
    "agents",
    "min_results",
    "within",
    "cancel_on_abandon",
    "key",
    *SendOptions.__annotations__,
)


class Coordinator(ClosingContext):
    """Client of many agents; use it as an async context manager, in one event loop.

    All agents share the connections and the state of their endpoints. While the circuit breaker
    of an agent is open, calls to that agent fail immediately with a `CircuitOpenError`.

    Args:
        agents: A mapping of names to agents: anything that `connect` accepts, such as an address,
            or a list of addresses for an agent with replicas; or a `Client`, which keeps its own
            options, such as its ``journal`` and ``observers``, and which the coordinator does not
            close. Or a list of addresses, one for each agent, which are also the names. Empty by
            default; `add` adds agents later.
        concurrency: Messages in flight at the same time; at least 1, 100 by default. A message
            holds its slot until it is answered; others wait in a queue, in which fan-outs take
            turns. If there are several agents, an agent gets another slot only while more slots
            are free than it holds already, so that one agent that hangs takes at most half of
            them. Many hanging agents together can take all: set it higher than the number of
            agents that may hang.
        options: Options of `connect`, which apply to every agent that is not a `Client`: ``auth``,
            ``timeout`` (seconds, 900 by default), ``card_ttl`` (seconds, 300 by default),
            ``card_verifier``, ``require_signature``, ``resilience``, ``limits``, ``engine``,
            ``tls``, ``shared``, ``env``, ``url``, ``tenant``, ``bindings``,
            ``supported_protocol_bindings``, ``protocol_version``, ``allow_legacy``,
            ``transport_producers``, ``grpc_channel_factory``, ``configuration``, ``streaming``,
            ``on_unknown``, ``context_ids``, ``journal``, ``shared_store``, ``headers``,
            ``extensions``, ``credential_origins``, ``allowed_networks``, ``reach``,
            ``interceptors``, ``consumers``, ``observers``, ``telemetry``, ``call_layers`` and
            ``attempt_layers``.
            Pass clients if ``auth`` or ``headers`` differ between agents. The coordinator closes
            an ``engine`` or ``journal`` that it created itself.

    Raises:
        ValueError: An address, a name or an option is not valid.
        TypeError: An argument of another type.

    Example:
        Ask two agents at once::

            agents = {"moon": "http://localhost:9999", "sun": "http://localhost:9998"}
            async with holdfast.Coordinator(agents) as coordinator:
                for result in await coordinator.fan_out("How far are you?"):
                    print(result.agent, result.error or result.answer.text)
    """

    def __init__(
        self,
        agents: Mapping[str, AgentOrClient] | Iterable[str] = (),
        *,
        concurrency: int = 100,
        **options: Unpack[ConnectOptions],
    ) -> None:
        check_count("concurrency", concurrency, least=1)
        check_options("a Coordinator", options, _COORDINATOR_OPTIONS)
        if options.get("url") is not None:
            text = "url= is the address of one agent; pass connect(…, url=…) as that agent"
            raise ValueError(text)
        named = _named(agents)
        self._admission = Admission(concurrency, lambda: len(self._agents) > 1)
        self._options, self._owned = _shared_options(options, concurrency)
        self._env = self._options.get("env") or SystemEnv()
        check_connect_options(**self._options).route(_UNUSED_URL)  # invalid options raise here
        self._agents: dict[str, NamedAgent] = {}
        self._fan_outs: set[FanOut] = set()
        self._is_closed = False
        for name, agent in named:
            self.add(name, agent)

    async def __aenter__(self) -> Self:
        """Return the coordinator.

        Raises:
            RuntimeError: The coordinator is closed.
        """
        self._check_open()
        return self

    async def close(self) -> None:
        """End the calls in flight, and close the clients and connections that it created.

        Tasks of calls that were abandoned (``cancel_on_abandon``) are canceled first, which takes
        up to 20 s if their agents do not answer. Can be called twice.
        """
        self._is_closed = True
        agents, self._agents = self._agents, {}
        for name, agent in agents.items():
            agent.closed_reason = "the coordinator was closed"
            self._admission.dismiss(name)
        owned, self._owned = self._owned, ()
        try:
            await asyncio.gather(*(fan_out.close() for fan_out in tuple(self._fan_outs)))
        finally:
            try:
                closing = (agent.close() for agent in agents.values())
                raise_first(await asyncio.gather(*closing, return_exceptions=True))
            finally:
                await close_in_turn(owned, seconds=_CLOSE_TIMEOUT_S)

    # ── Agents ───────────────────────────────────────────────────────────────────────────────

    @property
    def agents(self) -> tuple[str, ...]:
        """The names of the agents."""
        return tuple(self._agents)

    def client(self, name: str) -> Client:
        """Return the client of an agent, for calls that the coordinator does not offer.

        Args:
            name: The name of the agent.

        Raises:
            ValueError: There is no agent with this name.
        """
        return self._agent(name).client

    def add(self, name: str, agent: AgentOrClient) -> None:
        """Add an agent; fan-outs that have started do not include it.

        Args:
            name: The name of the agent; not in use yet.
            agent: Anything that `connect` accepts, or a `Client`, which stays open.

        Raises:
            ValueError: The name is in use, or the address is not valid.
            TypeError: The agent is of a type that `connect` does not accept.
            RuntimeError: The coordinator is closed.
        """
        self._check_open()
        if check_not_empty("the name of an agent", name) in self._agents:
            text = f"agent {name!r} already exists; remove it first, or use another name"
            raise ValueError(text)
        self._agents[name] = NamedAgent(name, agent, self._options)

    async def remove(self, name: str) -> None:
        """Remove an agent, and close its client unless the caller supplied it.

        Calls to the agent that are in flight or wait for a slot end with an `A2AConnectionError`;
        the agent does not cancel its tasks. With a caller-supplied client, calls in flight
        continue to their end. Like `Client.close`, this takes up to 20 s if tasks of calls that
        were abandoned (``cancel_on_abandon``) are being canceled and the agent does not answer;
        new calls to the agent are refused at once.

        Args:
            name: The name of the agent.

        Raises:
            ValueError: There is no agent with this name.
        """
        agent = self._agent(name)
        del self._agents[name]
        agent.closed_reason = f"the agent {name!r} was removed"
        self._admission.dismiss(name)
        await agent.close()

    def health(self) -> dict[str, AgentHealth]:
        """Return each agent's health by name, from its breakers in the running event loop."""
        return {name: agent.health(self._env) for name, agent in self._agents.items()}

    # ── Calls ────────────────────────────────────────────────────────────────────────────────

    async def delegate(
        self,
        agent: str,
        message: Content,
        *,
        cancel_on_abandon: bool = False,
        key: str | None = None,
        **options: Unpack[SendOptions],
    ) -> AgentResult:
        """Send a message to one agent, as `Client.ask` does; an `A2AError` is in the result.

        The wait for a concurrency slot counts against the timeout of the call.

        Args:
            agent: The name of the agent.
            message: The `Content` to send: text, parts, a `Message` or its JSON object.
            cancel_on_abandon: Whether to cancel the agent's task if the call is cancelled, or its
                timeout expires, as `Client.stream_message` does in the background. False by
                default.
            key: Idempotency key: the name of the call in the client's journal, from 1 to 512
                characters; None, the default, for no key. The message of a key is executed at most
                once: if the journal has a call of the key, from this process or another one, this
                call sends nothing, waits for that call, resumes it if its process crashed, and
                returns its result. Only ``on_unknown="resend"`` or ``"resend_if_absent"`` may send
                the message again, if its outcome is unknown.
            options: Any of `SendOptions`: ``timeout`` (seconds; the client's own, 900, by
                default), ``headers``, ``extensions``, ``context`` and ``tenant`` (none by
                default), ``timeouts`` (the client's `Timeouts` by default), ``on_unknown`` (after
                a lost reply: the client's own, ``"reconcile"``, by default).

        Returns:
            The answer or the error; `AgentResult.unwrap` raises the error.

        Raises:
            ValueError: There is no agent with this name, or the message has no content.
            TypeError: An argument of another type.
            RuntimeError: The coordinator is closed.

        Example:
            Ask the agent that fits::

                async with holdfast.Coordinator({"moon": "http://localhost:9999"}) as coordinator:
                    result = await coordinator.delegate("moon", "How far are you?", timeout=60)
                    print(result.error or result.answer.text)
        """
        self._check_open()
        if key is not None:
            self._agent(agent).check_journal()
        return await self._agent(agent).ask(
            to_user_message(message, new_id=""),
            options,
            method=Coordinator.delegate,
            admission=self._admission,
            queue=AdmissionQueue(),
            key=key,
            cancel_on_abandon=cancel_on_abandon,
        )

    def fan_out(
        self,
        message: Content | Iterable[tuple[str, Content]],
        *,
        agents: Iterable[str] | None = None,
        min_results: int = 1,
        within: float | None = None,
        cancel_on_abandon: bool = False,
        key: str | None = None,
        **options: Unpack[SendOptions],
    ) -> FanOut:
        """Send messages to many agents at once, and return their results.

        ``await`` the fan-out for all results, in the order of the messages; or iterate over it for
        each result as it completes. An `A2AError` of one agent is in that agent's result, and
        delays no other. To stop early, leave the iteration inside of ``async with``. To run it in
        a task of its own, pass it to ``asyncio.ensure_future``; it is not a coroutine, but its
        ``results()`` is.

        Args:
            message: One message for all agents, sent to each with its own message id; or pairs of
                an agent's name and a message, such as ``zip(names, messages)`` or the ``items()``
                of a dict. An agent may occur more than once.
            agents: The names of the agents that receive the one message; all agents by default.
            min_results: Number of agents that have to answer; at least 1, 1 by default. A task
                that failed, was rejected or needs input does not count as an answer.
            within: Seconds for the whole fan-out, more than 0; an agent without an answer by then
                has a `DeadlineExceededError`. None, the default, for no limit. The timeout of each
                call also counts from the start of the fan-out, and includes its wait for a
                concurrency slot.
            cancel_on_abandon: Whether to cancel the tasks that the fan-out stops waiting for,
                because of a deadline or because it is closed, before they are terminal or need
                input. It delays no result: each client cancels its task in the background, as
                `Client.stream_message` describes. False by default.
            key: Idempotency key: the name of the call in the client's journal, from 1 to 512
                characters; None, the default, for no key. The message of a key is executed at most
                once by each agent: if the journal has a call of the key, from this process or
                another one, nothing is sent, and the result of that call is returned. Only
                ``on_unknown="resend"`` or ``"resend_if_absent"`` may send the message again, if
                its outcome is unknown. The key of the call to each agent is this key, a slash and
                the name of the agent; so no agent may occur more than once.
            options: Any of `SendOptions`: ``timeout`` (seconds; the client's own, 900, by
                default), ``headers``, ``extensions``, ``context`` and ``tenant`` (none by
                default), ``timeouts`` (the client's `Timeouts` by default), ``on_unknown`` (after
                a lost reply: the client's own, ``"reconcile"``, by default). They apply to each
                message.

        Returns:
            The fan-out; nothing is sent before it is used.

        Raises:
            NotEnoughResultsError: There are fewer messages than ``min_results``; nothing was sent.
            ValueError: There is no agent with a given name, a message has no content, or a number
                is out of range.
            TypeError: An argument of another type.
            RuntimeError: The coordinator is closed.

        Example:
            Use the first results, and answer within ten seconds::

                agents = {"moon": "http://localhost:9999", "sun": "http://localhost:9998"}
                async with holdfast.Coordinator(agents) as coordinator:
                    async for result in coordinator.fan_out("How far are you?", within=10):
                        print(result.agent, result.error or result.answer.text)
        """
        self._check_open()
        check_options("a fan-out", options, _FAN_OUT_OPTIONS)
        check_count("min_results", min_results)
        check_kind("cancel_on_abandon", cancel_on_abandon, bool)
        if within is not None:
            check_seconds("within", within)
        requests = self._requests(message, agents)
        if len(requests) < min_results:
            raise _too_few_requests(min_results, len(requests), has_agents=bool(self._agents))
        if key is not None:
            _check_keys(key, [agent.name for agent, _ in requests])
            for agent, _ in requests:
                agent.check_journal()
        for agent, first in requests[:1]:
            # Invalid options raise here.
            asking(agent.client, first, options, method=Coordinator.fan_out, key=key)
        queue = AdmissionQueue()

        async def ask(
            agent: NamedAgent,
            message: Message,
            deadline: Deadline | None,
            on_cancel: Callable[[AgentResult], None],
        ) -> AgentResult:
            return await agent.ask(
                message,
                options,
                method=Coordinator.fan_out,
                admission=self._admission,
                queue=queue,
                key=None if key is None else f"{key}/{agent.name}",
                within=deadline,
                cancel_on_abandon=cancel_on_abandon,
                on_cancel=on_cancel,
            )

        return FanOut(
            requests,
            ask,
            min_results=min_results,
            within=within,
            on_start=self._on_fan_out_start,
            on_end=self._fan_outs.discard,
        )

    def _on_fan_out_start(self, fan_out: FanOut) -> None:
        self._check_open()
        self._fan_outs.add(fan_out)

    def _requests(
        self,
        message: Content | Iterable[tuple[str, Content]],
        agents: Iterable[str] | None,
    ) -> list[tuple[NamedAgent, Message]]:
        """Return the agents with the message for each."""
        content, pairs = _content_or_pairs(message)
        if pairs is None:
            names = self.agents if agents is None else check_items("agents", agents)
            shared = self._shared_message(content)
            if shared.task_id is not None and len(names) > 1:
                text = (
                    f"task {shared.task_id} belongs to one agent, but {len(names)} agents are "
                    "called"
                )
                raise ValueError(text)
            shared = msgspec.structs.replace(shared, message_id="")
            return [(self._agent(name), shared) for name in names]
        if agents is not None:
            text = "agents= cannot be combined with pairs, which name their agents"
            raise ValueError(text)
        requests = [
            (self._agent(name), to_user_message(content, new_id="")) for name, content in pairs
        ]
        message_ids: set[str] = set()
        for _, own_message in requests:
            if own_message.message_id and own_message.message_id in message_ids:
                text = (
                    f"the message id {own_message.message_id!r} is used twice; omit it, so that "
                    "each message gets its own"
                )
                raise ValueError(text)
            message_ids.add(own_message.message_id)
        return requests

    def _shared_message(self, content: Content) -> Message:
        """Return the one message for all agents.

        Raises:
            ValueError: The message has no content.
            TypeError: The content is not a message.
        """
        try:
            return to_user_message(content, new_id="")
        except (ValueError, TypeError):
            if not isinstance(content, Mapping) or content.keys().isdisjoint(self._agents):
                raise
            text = "a dict is one message; to send each agent its own message, pass its .items()"
            raise ValueError(text) from None

    def _agent(self, name: str) -> NamedAgent:
        agent = self._agents.get(check_not_empty("the name of an agent", name))
        if agent is None:
            names = join_some([*map(repr, self._agents)], _MAX_NAMES_SHOWN) or "none"
            text = f"there is no agent {name!r}; valid names: {names}"
            raise ValueError(text)
        return agent

    def _check_open(self) -> None:
        if self._is_closed:
            text = "the coordinator is closed"
            raise RuntimeError(text)


_UNUSED_URL = "http://agent.invalid"
"""An address that never resolves (RFC 6761, 6.4)."""


def _named(
    agents: Mapping[str, AgentOrClient] | Iterable[str],
) -> Sequence[tuple[str, AgentOrClient]]:
    """Return pairs of a name and an agent.

    Raises:
        ValueError: An address has a query, and so cannot be shown as a name.
        TypeError: The argument is neither a mapping nor a sequence of addresses.
    """
    if isinstance(agents, Mapping):
        return list(cast("Mapping[str, AgentOrClient]", agents).items())
    requirement = "agents must be a dict of names and agents, or a list of addresses"
    if not isinstance(cast("object", agents), Iterable):
        text = f"{requirement}, not {type(agents).__name__}"
        raise TypeError(text)
    addresses = check_items("agents", agents)
    for address in addresses:
        if not isinstance(cast("object", address), str):
            text = f"{requirement}, not of {type(address).__name__}; pass {{name: agent}}"
            raise TypeError(text)
        if "?" in address:
            text = (
                "an address with a query may contain a secret; name it in a dict: {name: address}"
            )
            raise ValueError(text)
    return [(address, address) for address in addresses]


def _shared_options(
    options: ConnectOptions, concurrency: int
) -> tuple[ConnectOptions, tuple[Closable, ...]]:
    """Return the options of all clients, and the resources that the coordinator has to close."""
    copied: dict[str, Any] = {**options}
    copied.update(
        (name, check_items(name, copied[name])) for name in _ITERABLE_OPTIONS if name in copied
    )
    common = cast("ConnectOptions", copied)
    owned: list[Closable] = []
    tls = common.pop("tls", None)  # an option of the shared engine
    check_tls(tls, common.get("engine"))
    if common.get("engine") is None:
        from holdfast._net.aiohttp import OwnedEngine  # slow to import

        # A call uses at most one connection, and a second one to get its task.
        engine = OwnedEngine(
            "Coordinator",
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
        resolved = resolve_journal(journal)
        common["journal"] = resolved
        if resolved is not journal:
            owned.append(resolved)
    if common.get("shared") is None:
        common["shared"] = Endpoints()
    return common, tuple(owned)


def _content_or_pairs(
    message: Content | Iterable[tuple[str, Content]],
) -> tuple[Content, list[tuple[str, Content]] | None]:
    """Return one message, or pairs of an agent's name and a message; reads an iterable once."""
    if not isinstance(message, Iterable) or isinstance(message, str | bytes | Mapping):
        return cast("Content", message), None
    members: list[Any] = list(message)
    if not all(isinstance(member, tuple) for member in members):
        return cast("Content", members), None
    for pair in members:
        if len(pair) != 2:
            text = f"each pair is an agent's name and a message; one has {len(pair)} members"
            raise ValueError(text)
    return "", members


def _check_keys(key: str, names: Sequence[str]) -> None:
    """Check the key of a fan-out, from which each agent's call gets a key with the agent's name.

    Raises:
        ValueError: The key is not valid, is too long with a name, or an agent occurs twice.
        TypeError: The key is not a string.
    """
    check_key(key)
    if len(set(names)) < len(names):
        text = "with a key, no agent may occur more than once; pass keys to delegate() instead"
        raise ValueError(text)
    longest = max((f"{key}/{name}" for name in names), key=len, default=key)
    if len(longest) > MAX_KEY_LENGTH:
        text = (
            f"key must have at most {MAX_KEY_LENGTH - len(longest) + len(key)} characters, not "
            f"{len(key)}: with a slash and the name of an agent, at most {MAX_KEY_LENGTH}"
        )
        raise ValueError(text)


def _too_few_requests(
    min_results: int, requests: int, *, has_agents: bool
) -> NotEnoughResultsError:
    """Return the error of a fan-out with fewer messages than required answers."""
    agents = "1 agent" if min_results == 1 else f"{min_results} agents"
    text = (
        f"min_results requires {agents}, but only {requests} {'is' if requests == 1 else 'are'} "
        "called"
    )
    if not has_agents:
        text = f"{text}: the coordinator has no agents"
    return NotEnoughResultsError(f"{text}; nothing was sent", executed=False)
