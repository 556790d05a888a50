"""What a client knows of its own work: numbers to show, to log or to scrape."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast._policy.breaker import BreakerState

if TYPE_CHECKING:
    from holdfast._aio.per_loop import PerLoop
    from holdfast._pipeline.admission import Admission
    from holdfast._pipeline.endpoints import Endpoint, KnownEndpoints
    from holdfast._policy.breaker import Switch
    from holdfast._policy.resilience import Resilience

__all__ = ["ClientStats", "EndpointStats", "client_stats"]


class EndpointStats(msgspec.Struct, frozen=True, kw_only=True):
    """One address, as far as a client knows it.

    Attributes:
        url: The address, without credentials or query.
        binding: The protocol's name of its binding; ``"card"`` where the card was looked for.
        version: The version of the protocol that is spoken there.
        answered: Calls that went well, of all clients that share its `Endpoint`.
        attempts: Tries that were made, of the same.
        circuit: What its breaker does with calls, or what somebody has decided by hand.
        failures: Calls that have failed in a row.
        retry_after: Seconds until a call may go through; None where the circuit was opened by
            hand.
        retry_tokens: What was left for retries at the last change; None where nothing bounds them.
        is_rate_limited: Whether calls wait because the agent has asked to come later.
        waiting: How many of them do.
    """

    url: str
    binding: str
    version: str
    answered: int = 0
    attempts: int = 0
    circuit: BreakerState = "closed"
    failures: int = 0
    retry_after: float | None = 0.0
    retry_tokens: float | None = None
    is_rate_limited: bool = False
    waiting: int = 0


class ClientStats(msgspec.Struct, frozen=True, kw_only=True):
    """A client, as it stands; what belongs to an event loop is that of the running one.

    Attributes:
        url: The address that answered last, without credentials or query; None before.
        endpoints: The addresses that it has called, or was about to.
        in_flight: Calls that have a place among those at once; None where
            `Resilience.concurrency` sets no number.
        waiting: Calls that wait for such a place.
    """

    url: str | None = None
    endpoints: tuple[EndpointStats, ...] = ()
    in_flight: int | None = None
    waiting: int = 0

    def to_dict(self) -> dict[str, Any]:
        """All of it as a JSON object."""
        told: dict[str, Any] = msgspec.to_builtins(self)
        return told


def client_stats(
    url: str | None,
    endpoints: KnownEndpoints,
    resilience: Resilience,
    admissions: PerLoop[Admission] | None,
) -> ClientStats:
    """What a client knows.

    Args:
        url: The address that answered last.
        endpoints: All that it knows.
        resilience: Its policies.
        admissions: Who is let in; None where everybody is.
    """
    try:
        now = asyncio.get_running_loop().time()
    except RuntimeError:
        now = 0.0  # where no loop runs, there is no breaker to ask either
    admission = None if admissions is None else admissions.known_here()
    none_yet = None if admissions is None else 0
    return ClientStats(
        url=url,
        endpoints=tuple(
            _endpoint_stats(one, resilience, endpoints.switch, now=now) for one in endpoints
        ),
        in_flight=none_yet if admission is None else admission.taken,
        waiting=0 if admission is None else admission.waiting,
    )


def _endpoint_stats(
    endpoint: Endpoint, resilience: Resilience, switch: Switch, *, now: float
) -> EndpointStats:
    policy = resilience.breaker
    breaker = None if policy is None else endpoint.known_breaker(policy)
    state: BreakerState = "closed" if breaker is None else breaker.state(now=now)
    wait: float | None = 0.0 if breaker is None else breaker.retry_after(now=now)
    if switch.position is not None:
        state, wait = switch.position, None if switch.position == "open" else 0.0
    gates = endpoint.gates()
    return EndpointStats(
        url=endpoint.agent,
        binding=endpoint.interface.protocol_binding,
        version=endpoint.version,
        answered=endpoint.answered,
        attempts=endpoint.attempts,
        circuit=state,
        failures=0 if breaker is None else breaker.failures,
        retry_after=wait,
        retry_tokens=endpoint.tokens(resilience.budget),
        is_rate_limited=any(gate.is_held for gate in gates),
        waiting=sum(gate.waiting for gate in gates),
    )
