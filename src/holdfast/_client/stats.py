"""Statistics of a client: a snapshot to show, log or export."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast._policy.breaker import BreakerState

if TYPE_CHECKING:
    from holdfast._aio.per_loop import PerLoop
    from holdfast._pipeline.admission import Admission
    from holdfast._pipeline.endpoints import Endpoint, KnownEndpoints
    from holdfast._policy.breaker import ManualOverride
    from holdfast._policy.resilience import Resilience

__all__ = ["ClientStats", "EndpointStats", "client_stats"]


class EndpointStats(msgspec.Struct, frozen=True, kw_only=True):
    """Statistics of one endpoint.

    Attributes:
        url: The address, without credentials or query.
        binding: The protocol's name of its binding; ``"card"`` for the address of the agent card.
        version: The protocol version of the calls to it.
        answered: Number of successful calls, of all clients that share the `Endpoints`.
        attempts: Number of attempts, of the same clients.
        circuit: State of its circuit breaker, or the manual override of `Circuit`.
        failures: Number of consecutive failures.
        retry_after: Seconds until a call may pass; None if the circuit was opened manually.
        retry_tokens: Tokens left in the retry budget at its last change; None without a budget.
        is_rate_limited: Whether calls wait because the agent sent Retry-After.
        waiting: Number of calls that wait for that reason.
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
    """Statistics of a client; figures of an event loop are for the running event loop.

    Attributes:
        url: The address that answered last, without credentials or query; None before the first
            answer.
        endpoints: The endpoints that the client has called, or was about to call.
        in_flight: Number of calls that hold a concurrency slot; None if
            `Resilience.concurrency` is not set.
        waiting: Number of calls that wait for a slot.
    """

    url: str | None = None
    endpoints: tuple[EndpointStats, ...] = ()
    in_flight: int | None = None
    waiting: int = 0

    def to_dict(self) -> dict[str, Any]:
        """Return the statistics as a JSON object."""
        document: dict[str, Any] = msgspec.to_builtins(self)
        return document


def client_stats(
    url: str | None,
    endpoints: KnownEndpoints,
    resilience: Resilience,
    admissions: PerLoop[Admission] | None,
) -> ClientStats:
    """Return the statistics of a client.

    Args:
        url: The address that answered last.
        endpoints: Its endpoints.
        resilience: Its policies.
        admissions: Its concurrency slots; None if concurrency is not limited.
    """
    try:
        now = asyncio.get_running_loop().time()
    except RuntimeError:
        now = 0.0  # without a running loop there are no breakers either
    admission = None if admissions is None else admissions.known_here()
    unused = None if admissions is None else 0
    return ClientStats(
        url=url,
        endpoints=tuple(
            _endpoint_stats(endpoint, resilience, endpoints.override, now=now)
            for endpoint in endpoints
        ),
        in_flight=unused if admission is None else admission.taken,
        waiting=0 if admission is None else admission.waiting,
    )


def _endpoint_stats(
    endpoint: Endpoint, resilience: Resilience, override: ManualOverride, *, now: float
) -> EndpointStats:
    policy = resilience.breaker
    breaker = None if policy is None else endpoint.known_breaker(policy)
    state: BreakerState = "closed" if breaker is None else breaker.state(now=now)
    retry_after: float | None = 0.0 if breaker is None else breaker.retry_after(now=now)
    if override.state is not None:
        state, retry_after = override.state, None if override.state == "open" else 0.0
    gates = endpoint.retry_after_gates()
    return EndpointStats(
        url=endpoint.agent,
        binding=endpoint.interface.protocol_binding,
        version=endpoint.version,
        answered=endpoint.answered,
        attempts=endpoint.attempts,
        circuit=state,
        failures=0 if breaker is None else breaker.failures,
        retry_after=retry_after,
        retry_tokens=endpoint.tokens(resilience.budget),
        is_rate_limited=any(gate.is_held for gate in gates),
        waiting=sum(gate.waiting for gate in gates),
    )
