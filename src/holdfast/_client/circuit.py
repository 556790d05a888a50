"""The state of the circuit breakers between a client and its agent, and its manual override."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from holdfast._client.core import ClientCore
    from holdfast._pipeline.endpoints import Endpoint
    from holdfast._policy.breaker import Breaker, BreakerFailure, BreakerState

__all__ = ["Circuit"]


_IN_USE_S = 120.0
"""Seconds for which an endpoint counts as in use, beside the one that was called last."""

_RANKS: dict[BreakerState, int] = {"closed": 0, "half_open": 1, "open": 2}


class Circuit:
    """Circuit breakers between a client and its agent, in the running event loop.

    Each endpoint has a breaker: the endpoint of the card, and each endpoint that takes calls.
    Until the client has a card, the properties show the breaker of the card's endpoint. With
    several endpoints, they show the best breaker of the endpoints that were called in the last two
    minutes and have answered at least once. `open`, `close` and `reset` apply to all calls of this
    client, in every event loop, and are not reported to observers. Clients with the same
    `BreakerPolicy` that share their `Endpoints` share their breakers.
    """

    def __init__(self, core: ClientCore) -> None:
        self._core = core
        self._override = core.endpoints.override

    def __repr__(self) -> str:
        return f"Circuit(state={self.state!r}, failures={self.failures})"

    @property
    def state(self) -> BreakerState:
        """``"closed"``: calls pass; ``"open"``: no call passes; ``"half_open"``: one may probe."""
        if self._override.state is not None:
            return self._override.state
        breaker = self._breaker()
        return "closed" if breaker is None else breaker.state(now=_now())

    @property
    def failures(self) -> int:
        """The number of consecutive failures that count for the breaker."""
        breaker = self._breaker()
        return 0 if breaker is None else breaker.failures

    @property
    def last_failure(self) -> BreakerFailure | None:
        """The latest failure at any endpoint, even if calls succeeded since; None for none."""
        failures = [breaker.last_failure for _, breaker in self._used() if breaker.last_failure]
        return max(failures, key=lambda failure: failure.at, default=None)

    @property
    def retry_after(self) -> float | None:
        """Seconds until a call may pass; None if `open` was called."""
        if self._override.state is not None:
            return None if self._override.state == "open" else 0.0
        breaker = self._breaker()
        return 0.0 if breaker is None else breaker.retry_after(now=_now())

    def open(self) -> None:
        """Let no call pass until `close` or `reset` is called; calls in flight continue."""
        self._override.state = "open"

    def close(self) -> None:
        """Let all calls pass, even if they fail, until `open` or `reset` is called."""
        self._override.state = "closed"

    def reset(self) -> None:
        """Return control to the policy; its counts in the running event loop start at zero."""
        self._override.state = None
        for _, breaker in self._used():
            breaker.reset()

    def _used(self) -> list[tuple[Endpoint, Breaker]]:
        """Return the breakers that calls have used; none if no event loop is running."""
        policy = self._core.resilience.breaker
        if policy is None:
            return []
        endpoints = self._core.endpoints
        return [(e, breaker) for e in endpoints if (breaker := e.known_breaker(policy))]

    def _breaker(self) -> Breaker | None:
        """Return the breaker that decides about the next call; None before the first call."""
        used = self._used()
        if not used:
            return None
        is_of_card = self._core.needs_card
        relevant = [(e, breaker) for e, breaker in used if e.is_of_card == is_of_card]
        latest = max((e.last_used for e, _ in relevant), default=0.0)
        in_use = [(e, breaker) for e, breaker in relevant if e.last_used >= latest - _IN_USE_S]
        now = _now()

        def rank(breaker: Breaker) -> tuple[int, float]:
            return _RANKS[breaker.state(now=now)], breaker.retry_after(now=now)

        answered = [breaker for e, breaker in in_use if e.answered]
        if answered:
            return min(answered, key=rank)
        return max((breaker for _, breaker in in_use), key=rank, default=None)


def _now() -> float:
    return asyncio.get_running_loop().time()
