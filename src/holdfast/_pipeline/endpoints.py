"""Endpoints: the interfaces that a client calls, with what it learned about each.

A registry of them is owned by one client or shared by several; there is no module-level state.
"""

from __future__ import annotations

import asyncio
import math
from typing import TYPE_CHECKING, Any, Literal

from holdfast._aio.per_loop import PerLoop
from holdfast._model.addresses import with_ascii_host
from holdfast._model.bounded_dict import BoundedDict
from holdfast._model.operations import CANCEL_TASK, CARD_BINDING
from holdfast._pipeline.retry_after_gate import RetryAfterGate
from holdfast._policy.breaker import Breaker, BreakerPolicy, ManualOverride
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

_CallKind = Literal["sends", "reads"]
"""Calls that wait for the same Retry-After: those that must not run twice, and all others."""


_MAX_ENDPOINTS = 1000
"""Endpoints to remember; the least recently used ones are forgotten."""

_FORGET_AFTER_S = 3600.0
"""Seconds without a call after which an endpoint is forgotten."""


class Endpoint:
    """One interface of one agent, with the client's state for it.

    Attributes:
        interface: Interface of the card: address, binding, tenant.
        agent: The address as shown in errors and logs.
        version: The protocol version to use.
        subscribing_is_safe: Whether a subscription leaves a task unchanged. Official servers of
            0.3 store the chunks of a task once more for each subscriber.
        clock_skew: Seconds that its clock is ahead of the local one; None if unknown.
        lists_tasks: Whether it supports ListTasks; None if unknown.
        accepts_context_ids: Whether it accepts context ids chosen by a client; None if unknown.
        has_two_file_forms: Whether a file is sent in a field of bytes that servers use in two
            ways.
        files_are_base64: Whether that field has base64 text; None if unknown.
        file_form_lock: Held while `files_are_base64` is determined.
        speaks_version: Whether it supports `version`, and not another one; None if unknown.
        version_lock: Held while `speaks_version` is determined.
        version_checks: Number of attempts to determine it.
        answered: Number of successful calls.
        attempts: Number of attempts, of all calls.
        has_sent_retry_after: Whether it has ever sent Retry-After.
        last_used: Time of the latest call, on the event loop's clock.
    """

    __slots__ = (
        "_breakers",
        "_budgets",
        "_gates",
        "_hedgings",
        "_spoken_forms",
        "accepts_context_ids",
        "agent",
        "answered",
        "attempts",
        "clock_skew",
        "file_form_lock",
        "files_are_base64",
        "has_sent_retry_after",
        "has_two_file_forms",
        "interface",
        "last_used",
        "lists_tasks",
        "speaks_version",
        "subscribing_is_safe",
        "version",
        "version_checks",
        "version_lock",
    )

    def __init__(self, interface: AgentInterface) -> None:
        self.interface = interface
        self.agent = presentable(with_ascii_host(interface.url))
        self.version = spoken_version(interface.protocol_version) or PROTOCOL_VERSION
        self.subscribing_is_safe = self.version == PROTOCOL_VERSION
        self.clock_skew: float | None = None
        self.lists_tasks: bool | None = None
        self.accepts_context_ids: bool | None = None
        self.speaks_version: bool | None = None
        binding = interface.protocol_binding
        self.has_two_file_forms = self.version == OLDER_VERSION and binding != "JSONRPC"
        self.files_are_base64: bool | None = None
        # Locks, and not a `SingleFlight`: each caller that probes does so within its own call, in
        # its task, with its credentials and deadline, and in the record of its attempts.
        self.file_form_lock = PerLoop(asyncio.Lock)
        self.version_lock = PerLoop(asyncio.Lock)
        self.version_checks = 0
        self.answered = 0
        self.attempts = 0
        self.last_used = -math.inf
        self._budgets: dict[BudgetPolicy, RetryBudget] = {}
        self._breakers = PerLoop[dict[BreakerPolicy, Breaker]](dict)
        self._hedgings = PerLoop[dict[HedgePolicy, Hedging]](dict)
        self.has_sent_retry_after = False
        self._gates = PerLoop[dict[_CallKind, RetryAfterGate]](dict)
        self._spoken_forms: dict[str, AnyOperation] = {}

    @property
    def is_of_card(self) -> bool:
        """True if this is the address of a card, which takes no calls."""
        return self.interface.protocol_binding == CARD_BINDING

    def spoken(self, operation: AnyOperation) -> AnyOperation:
        """Return an operation in the form that this endpoint understands.

        Args:
            operation: The operation, in the form of protocol 1.0.
        """
        return self._spoken_forms.get(operation.name, operation)

    def learn(self, operation: AnyOperation) -> None:
        """Remember the form of an operation that succeeded.

        Args:
            operation: The operation, in the form that succeeded.
        """
        self._spoken_forms[operation.name] = operation

    def learn_file_form(self, error: object) -> None:
        """Remember the form of files that the error of an unknown task reveals, if it does.

        Args:
            error: The error of GetTask for a task id that is a file in one of the forms.
        """
        form = sends_base64(error)
        if form is not None:
            self.files_are_base64 = form

    def succeeded(self, policy: BudgetPolicy | None) -> None:
        """Record a successful call of a client with such a budget.

        Args:
            policy: The budget policy of the client; None without a budget.
        """
        self.answered += 1
        if policy is not None and (budget := self._budgets.get(policy)) is not None:
            budget.succeeded()

    def charge(self, policy: BudgetPolicy | None, *, now: float) -> bool:
        """Charge a transient failure to a budget, and return whether it allows a retry.

        Args:
            policy: The budget policy of the client. Clients with equal policies share a budget;
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
        """Return the breaker of the clients with such a policy, in the running event loop.

        Args:
            policy: The breaker policy of the clients.
        """
        breakers = self._breakers.here()
        breaker = breakers.get(policy)
        if breaker is None:
            breaker = breakers[policy] = Breaker(policy)
        return breaker

    def hedging(self, policy: HedgePolicy) -> Hedging:
        """Return the hedging state of the clients with such a policy, in the running loop.

        Args:
            policy: The hedge policy of the clients.
        """
        hedgings = self._hedgings.here()
        hedging = hedgings.get(policy)
        if hedging is None:
            hedging = hedgings[policy] = Hedging(policy)
        return hedging

    def known_breaker(self, policy: BreakerPolicy) -> Breaker | None:
        """Return the breaker if a call has used it; None without a running event loop.

        Args:
            policy: The breaker policy of the clients.
        """
        return (self._breakers.known_here() or {}).get(policy)

    def tokens(self, policy: BudgetPolicy | None) -> float | None:
        """Return the tokens of a budget at its last change; None without a policy.

        Args:
            policy: The budget policy of the clients; None without a budget.
        """
        if policy is None:
            return None
        budget = self._budgets.get(policy)
        return float(policy.tokens) if budget is None else budget.tokens

    def retry_after_gates(self) -> list[RetryAfterGate]:
        """Return the Retry-After gates of the running event loop."""
        return [*(self._gates.known_here() or {}).values()]

    def retry_after_gate(self, operation: AnyOperation) -> RetryAfterGate | None:
        """Return the gate for an operation; None if such calls never received Retry-After.

        A cancel never waits: it reduces the agent's load.

        Args:
            operation: The operation.
        """
        if not self.has_sent_retry_after or operation.name == CANCEL_TASK.name:
            return None
        return self._gates.here().get(_kind_of(operation))

    def on_retry_after(
        self, operation: AnyOperation, seconds: float, *, started: float, draw: float
    ) -> None:
        """Hold back calls of an operation's kind; sends and reads have separate gates.

        Args:
            operation: The operation that was refused.
            seconds: The wait that the agent requested.
            started: When the refused call started, on the event loop's clock.
            draw: A random number from 0 up to 1.
        """
        self.has_sent_retry_after = True
        gate = self._gates.here().setdefault(_kind_of(operation), RetryAfterGate())
        gate.on_retry_after(seconds, started=started, draw=draw)


class Endpoints:
    """Registry of endpoints by interface, for one client or shared by several."""

    def __init__(self) -> None:
        self._endpoints: dict[tuple[str | None, ...], Endpoint] = {}

    def of(self, interface: AgentInterface) -> Endpoint:
        """Return the endpoint of an interface; the same one while it is remembered.

        Args:
            interface: The interface of a card.
        """
        key = _key(interface)
        endpoint = self._endpoints.get(key)
        if endpoint is None:
            endpoint = self._endpoints[key] = Endpoint(interface)
            self._forget_unused()
        return endpoint

    def _forget_unused(self) -> None:
        """Forget endpoints that were not called lately; those not called yet are kept."""
        endpoints = dict(self._endpoints)  # other threads may add to the registry
        latest = max(endpoint.last_used for endpoint in endpoints.values())
        oldest = latest - _FORGET_AFTER_S
        unused = {key for key, e in endpoints.items() if -math.inf < e.last_used < oldest}
        if len(endpoints) - len(unused) > _MAX_ENDPOINTS:
            unused.add(min(endpoints, key=lambda key: _recency(endpoints[key])))
        for key in unused:
            self._endpoints.pop(key, None)

    def __len__(self) -> int:
        return len(self._endpoints)


class KnownEndpoints:
    """The endpoints of a registry that one client uses.

    It keeps them even if the registry, which other clients may share, forgets them.

    Args:
        registry: The registry.

    Attributes:
        override: The manual override of their circuit breakers.
    """

    def __init__(self, registry: Endpoints) -> None:
        self.override = ManualOverride()
        self._registry = registry
        # Bounded, as each fetch of a card may name new interfaces.
        self._endpoints: BoundedDict[tuple[str | None, ...], Endpoint] = BoundedDict(
            _MAX_ENDPOINTS
        )

    def of(self, interface: AgentInterface) -> Endpoint:
        """Return the endpoint of an interface; always the same one."""
        key = _key(interface)
        endpoint = self._endpoints.get(key)
        if endpoint is None:
            endpoint = self._endpoints[key] = self._registry.of(interface)
        return endpoint

    def __iter__(self) -> Iterator[Endpoint]:
        return iter(tuple(self._endpoints.values()))


def _kind_of(operation: AnyOperation) -> _CallKind:
    """Return which calls wait together with those of an operation."""
    return "sends" if operation.safety == "conditional" else "reads"


def _recency(endpoint: Endpoint) -> float:
    """Return when an endpoint was called last; infinity if its first call is still to come."""
    return math.inf if endpoint.last_used == -math.inf else endpoint.last_used


def _key(interface: AgentInterface) -> tuple[str | None, ...]:
    return (
        interface.url,
        interface.protocol_binding,
        interface.protocol_version,
        interface.tenant,
    )
