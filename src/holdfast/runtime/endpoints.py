"""What a client remembers of the places that it calls.

One registry, owned by a client or shared between several; nothing of this is at module level.
"""

from __future__ import annotations

import asyncio
import math
from typing import TYPE_CHECKING, Any

from holdfast.policy.breaker import Breaker, BreakerPolicy
from holdfast.policy.budget import BudgetPolicy, RetryBudget
from holdfast.runtime.gate import Gate
from holdfast.runtime.perloop import PerLoop
from holdfast.wire.bindings import PROTOCOL_VERSION, spoken_version
from holdfast.wire.http import presentable

if TYPE_CHECKING:
    from holdfast.model.card import AgentInterface
    from holdfast.model.operations import Operation

    AnyOperation = Operation[Any, Any]

__all__ = ["Endpoint", "Endpoints"]


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
        can_be_watched: Whether a subscription leaves a task as it is. Official servers of 0.3
            store the chunks of a task once more for each who subscribes to it.
        clock_skew: Seconds that its clock is ahead of the own; None where not known.
        lists_tasks: Whether it has a list of tasks; None where not known.
        takes_contexts: Whether it takes contexts that a client names; None where not known.
        speaks_version: Whether it was seen to speak that version, or another one; None where that
            is not known.
        answered: How many calls went well.
        last_failure: How a call failed last that showed it to be away, in a line.
        used: When it was called last, on the event loop's clock.
        asking: Held by whoever finds that out.
        asked: How often that was tried.
    """

    __slots__ = (
        "_breakers",
        "_budgets",
        "_gates",
        "_spoken",
        "agent",
        "answered",
        "asked",
        "asking",
        "can_be_watched",
        "clock_skew",
        "interface",
        "last_failure",
        "lists_tasks",
        "speaks_version",
        "takes_contexts",
        "used",
        "version",
    )

    def __init__(self, interface: AgentInterface) -> None:
        self.interface = interface
        self.agent = presentable(interface.url)
        self.version = spoken_version(interface.protocol_version) or PROTOCOL_VERSION
        self.can_be_watched = self.version == PROTOCOL_VERSION
        self.clock_skew: float | None = None
        self.lists_tasks: bool | None = None
        self.takes_contexts: bool | None = None
        self.speaks_version: bool | None = None
        self.asking = PerLoop(asyncio.Lock)
        self.asked = 0
        self.answered = 0
        self.last_failure: str | None = None
        self.used = -math.inf
        self._budgets: dict[BudgetPolicy, RetryBudget] = {}
        self._breakers = PerLoop[dict[BreakerPolicy, Breaker]](dict)
        self._gates: PerLoop[dict[bool, Gate]] | None = None
        self._spoken: dict[str, AnyOperation] = {}

    def spoken(self, operation: AnyOperation) -> AnyOperation:
        """An operation as it is spoken here."""
        return self._spoken.get(operation.name, operation)

    def learn(self, operation: AnyOperation) -> None:
        """Notes that an operation went well in this form."""
        self._spoken[operation.name] = operation

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

    @property
    def has_gates(self) -> bool:
        """Whether it has ever asked to be called later."""
        return self._gates is not None

    def gate(self, *, sends: bool) -> Gate | None:
        """Where calls wait, of a kind that was told to come later; None for those that were not.

        Args:
            sends: Whether it is about calls that must not run twice.
        """
        return None if self._gates is None else self._gates.here().get(sends)

    def told_to_wait(self, seconds: float, *, sends: bool, started: float, draw: float) -> None:
        """Holds calls of a kind back.

        Args:
            seconds: How long the agent asks to wait.
            sends: Whether it is about calls that must not run twice.
            started: When the call started that was refused, by the event loop's clock.
            draw: A random number from 0 up to 1.
        """
        if self._gates is None:
            self._gates = PerLoop[dict[bool, Gate]](dict)
        gate = self._gates.here().setdefault(sends, Gate())
        gate.told_to_wait(seconds, started=started, draw=draw)


class Endpoints:
    """All endpoints of a client, by interface."""

    def __init__(self) -> None:
        self._endpoints: dict[tuple[str | None, ...], Endpoint] = {}

    def of(self, interface: AgentInterface) -> Endpoint:
        """The endpoint of an interface; the same one each time, while it is remembered."""
        key = (
            interface.url,
            interface.protocol_binding,
            interface.protocol_version,
            interface.tenant,
        )
        now = asyncio.get_running_loop().time()
        endpoint = self._endpoints.pop(key, None)
        for other, known in list(self._endpoints.items()):
            if now - known.used > _UNUSED:
                self._endpoints.pop(other, None)
        if endpoint is None:
            endpoint = Endpoint(interface)
        endpoint.used = max(endpoint.used, now)
        self._endpoints[key] = endpoint
        if len(self._endpoints) > _MOST:
            longest = min(self._endpoints, key=lambda key: self._endpoints[key].used)
            self._endpoints.pop(longest, None)
        return endpoint

    def __len__(self) -> int:
        return len(self._endpoints)
