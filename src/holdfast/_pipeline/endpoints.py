"""What a client remembers of the places that it calls.

One registry, owned by a client or shared between several; nothing of this is at module level.
"""

from __future__ import annotations

import asyncio
import math
from typing import TYPE_CHECKING, Any

from holdfast._aio.per_loop import PerLoop
from holdfast._model.addresses import with_ascii_host
from holdfast._model.bounded_dict import BoundedDict
from holdfast._model.operations import CANCEL_TASK, CARD_BINDING
from holdfast._pipeline.retry_after_gate import RetryAfterGate
from holdfast._policy.breaker import Breaker, BreakerPolicy, Switch
from holdfast._policy.budget import BudgetPolicy, RetryBudget
from holdfast._policy.hedge import HedgePolicy, Hedging
from holdfast._wire.bindings import OLDER_VERSION, PROTOCOL_VERSION, spoken_version
from holdfast._wire.files import sends_base64
from holdfast._wire.http import presentable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from holdfast._model.operations import Operation
    from holdfast.types import AgentInterface

    AnyOperation = Operation[Any, Any]

__all__ = ["Endpoint", "Endpoints", "KnownEndpoints"]


_MOST = 1000
"""Endpoints that are remembered; the ones that were not used for longest are forgotten."""

_UNUSED = 3600.0
"""Seconds after which an endpoint is forgotten that nobody has called."""


class Endpoint:
    """One interface of one agent, and what was learned about it.

    Attributes:
        interface: Address, binding, tenant.
        agent: The address as shown in errors and logs.
        version: The version of the protocol to speak there.
        subscribing_is_safe: Whether a subscription leaves a task as it is. Official servers of 0.3
            store the chunks of a task once more for each who subscribes to it.
        clock_skew: Seconds that its clock is ahead of the own; None where not known.
        lists_tasks: Whether it has a list of tasks; None where not known.
        takes_contexts: Whether it takes contexts that a client names; None where not known.
        has_two_file_forms: Whether a file is in a field of bytes there that servers use in two
            ways (`holdfast._wire.files`).
        files_are_base64: Whether they put base64 text there; None where not known.
        asking_files: Held while that is found out.
        speaks_version: Whether it was seen to speak that version, or another one; None where that
            is not known.
        asking: Held by whoever finds that out.
        asked: How often that was tried.
        answered: How many calls went well.
        attempts: How many tries were made, of any call.
        has_gates: Whether it has ever asked to be called later.
        used: When it was called last, on the event loop's clock.
    """

    __slots__ = (
        "_breakers",
        "_budgets",
        "_gates",
        "_hedgings",
        "_spoken",
        "agent",
        "answered",
        "asked",
        "asking",
        "asking_files",
        "attempts",
        "clock_skew",
        "files_are_base64",
        "has_gates",
        "has_two_file_forms",
        "interface",
        "lists_tasks",
        "speaks_version",
        "subscribing_is_safe",
        "takes_contexts",
        "used",
        "version",
    )

    def __init__(self, interface: AgentInterface) -> None:
        self.interface = interface
        self.agent = presentable(with_ascii_host(interface.url))
        self.version = spoken_version(interface.protocol_version) or PROTOCOL_VERSION
        self.subscribing_is_safe = self.version == PROTOCOL_VERSION
        self.clock_skew: float | None = None
        self.lists_tasks: bool | None = None
        self.takes_contexts: bool | None = None
        self.speaks_version: bool | None = None
        binding = interface.protocol_binding
        self.has_two_file_forms = self.version == OLDER_VERSION and binding != "JSONRPC"
        self.files_are_base64: bool | None = None
        self.asking_files = PerLoop(asyncio.Lock)
        self.asking = PerLoop(asyncio.Lock)
        self.asked = 0
        self.answered = 0
        self.attempts = 0
        self.used = -math.inf
        self._budgets: dict[BudgetPolicy, RetryBudget] = {}
        self._breakers = PerLoop[dict[BreakerPolicy, Breaker]](dict)
        self._hedgings = PerLoop[dict[HedgePolicy, Hedging]](dict)
        self.has_gates = False
        self._gates = PerLoop[dict[bool, RetryAfterGate]](dict)
        self._spoken: dict[str, AnyOperation] = {}

    @property
    def is_of_card(self) -> bool:
        """Whether cards come from there, and no calls go there."""
        return self.interface.protocol_binding == CARD_BINDING

    def spoken(self, operation: AnyOperation) -> AnyOperation:
        """An operation as it is spoken here."""
        return self._spoken.get(operation.name, operation)

    def learn(self, operation: AnyOperation) -> None:
        """Notes that an operation went well in this form."""
        self._spoken[operation.name] = operation

    def learn_file_form(self, error: object) -> None:
        """Remember what the error of an unknown task shows of how files are written there.

        Args:
            error: See `holdfast._wire.files.sends_base64`.
        """
        form = sends_base64(error)
        if form is not None:
            self.files_are_base64 = form

    def succeeded(self, policy: BudgetPolicy | None) -> None:
        """Notes a success of a client with such a budget."""
        self.answered += 1
        if policy is not None and (budget := self._budgets.get(policy)) is not None:
            budget.succeeded()

    def charge(self, policy: BudgetPolicy | None, *, now: float) -> bool:
        """Charges a transient failure to a budget, and says whether a retry is within it.

        Args:
            policy: The budget of the client that asks. Clients that ask for the same share it;
                each of the others is charged for its own failures only.
            now: The event loop's time in seconds.
        """
        if policy is None:
            return True
        budget = self._budgets.get(policy)
        if budget is None:
            budget = self._budgets[policy] = RetryBudget(policy, now=now)
        return budget.failed(now=now)

    def breaker(self, policy: BreakerPolicy) -> Breaker:
        """The breaker of the clients with such a policy, in the running event loop."""
        breakers = self._breakers.here()
        breaker = breakers.get(policy)
        if breaker is None:
            breaker = breakers[policy] = Breaker(policy)
        return breaker

    def hedging(self, policy: HedgePolicy) -> Hedging:
        """What clients with such a policy know of the reads here, in the running event loop."""
        hedgings = self._hedgings.here()
        hedging = hedgings.get(policy)
        if hedging is None:
            hedging = hedgings[policy] = Hedging(policy)
        return hedging

    def known_breaker(self, policy: BreakerPolicy) -> Breaker | None:
        """The same, if it was made; None where no event loop runs."""
        return (self._breakers.known_here() or {}).get(policy)

    def tokens(self, policy: BudgetPolicy | None) -> float | None:
        """What was left at the last change of a budget; None where nothing bounds retries."""
        if policy is None:
            return None
        budget = self._budgets.get(policy)
        return float(policy.tokens) if budget is None else budget.tokens

    def gates(self) -> list[RetryAfterGate]:
        """Where calls wait, or have waited, in the running event loop."""
        return [*(self._gates.known_here() or {}).values()]

    def gate(self, operation: AnyOperation) -> RetryAfterGate | None:
        """Where calls of an operation wait, if such calls were ever told to come later.

        A cancel never waits: what it ends is what the agent is busy with.
        """
        if not self.has_gates or operation.name == CANCEL_TASK.name:
            return None
        return self._gates.here().get(_sends(operation))

    def on_retry_after(
        self, operation: AnyOperation, seconds: float, *, started: float, draw: float
    ) -> None:
        """Holds back calls of an operation's kind, sends and reads apart.

        Args:
            operation: What was refused.
            seconds: How long the agent asks to wait.
            started: When the call started that was refused, by the event loop's clock.
            draw: A random number from 0 up to 1.
        """
        self.has_gates = True
        gate = self._gates.here().setdefault(_sends(operation), RetryAfterGate())
        gate.on_retry_after(seconds, started=started, draw=draw)


class Endpoints:
    """All endpoints that are known, by interface; of one client, or of several that share them."""

    def __init__(self) -> None:
        self._endpoints: dict[tuple[str | None, ...], Endpoint] = {}

    def of(self, interface: AgentInterface) -> Endpoint:
        """The endpoint of an interface; the same one each time, while it is remembered."""
        key = _key(interface)
        endpoint = self._endpoints.get(key)
        if endpoint is None:
            endpoint = self._endpoints[key] = Endpoint(interface)
            self._forget_the_unused()
        return endpoint

    def _forget_the_unused(self) -> None:
        """Makes room; what nobody has called yet is the newest."""
        endpoints = dict(self._endpoints)  # other threads may add to them
        last = max(endpoint.used for endpoint in endpoints.values())
        unused = {key for key, one in endpoints.items() if -math.inf < one.used < last - _UNUSED}
        if len(endpoints) - len(unused) > _MOST:
            unused.add(min(endpoints, key=lambda key: _age(endpoints[key])))
        for key in unused:
            self._endpoints.pop(key, None)

    def __len__(self) -> int:
        return len(self._endpoints)


class KnownEndpoints:
    """Those endpoints of a registry that one client has come to know.

    It keeps them even where the registry, which others may share, forgets them.

    Args:
        registry: The registry.

    Attributes:
        switch: What somebody has decided by hand about their circuits.
    """

    def __init__(self, registry: Endpoints) -> None:
        self.switch = Switch()
        self._registry = registry
        # A card may name new ones each time.
        self._endpoints: BoundedDict[tuple[str | None, ...], Endpoint] = BoundedDict(_MOST)

    def of(self, interface: AgentInterface) -> Endpoint:
        """The endpoint of an interface; the same one each time."""
        key = _key(interface)
        endpoint = self._endpoints.get(key)
        if endpoint is None:
            endpoint = self._endpoints[key] = self._registry.of(interface)
        return endpoint

    def __iter__(self) -> Iterator[Endpoint]:
        return iter(tuple(self._endpoints.values()))


def _sends(operation: AnyOperation) -> bool:
    """Whether it is one that must not run twice."""
    return operation.safety == "conditional"


def _age(endpoint: Endpoint) -> float:
    """When it was called last; what nobody has called yet is about to be."""
    return math.inf if endpoint.used == -math.inf else endpoint.used


def _key(interface: AgentInterface) -> tuple[str | None, ...]:
    return (
        interface.url,
        interface.protocol_binding,
        interface.protocol_version,
        interface.tenant,
    )
