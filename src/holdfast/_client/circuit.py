"""The circuit to one agent: whether it is called at all, and who decides about that by hand."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from holdfast._client.core import ClientCore
    from holdfast._pipeline.endpoints import Endpoint
    from holdfast._policy.breaker import Breaker, BreakerFailure, BreakerState

__all__ = ["Circuit"]


_RECENTLY = 120.0
"""Seconds for which an address counts as in use, beside the one that was called last."""

_RANKS: dict[BreakerState, int] = {"closed": 0, "half_open": 1, "open": 2}


class Circuit:
    """The circuit breakers between a client and its agent, in the running event loop.

    Each address has one: where the card is, and where calls go. Of several addresses, the best one
    of those counts that were called in the last two minutes and have ever answered; as long as
    there is no card, that of the card. What is done by hand is done to all calls of this client,
    in whichever event loop, and is told to no observer. Clients with the same `BreakerPolicy` that
    share their `Endpoints` share their breakers.
    """

    def __init__(self, calls: ClientCore) -> None:
        self._calls = calls
        self._switch = calls.endpoints.switch

    def __repr__(self) -> str:
        return f"Circuit(state={self.state!r}, failures={self.failures})"

    @property
    def state(self) -> BreakerState:
        """``"closed"``: calls go through; ``"open"``: none does; ``"half_open"``: one may try."""
        if self._switch.position is not None:
            return self._switch.position
        breaker = self._breaker()
        return "closed" if breaker is None else breaker.state(now=_now())

    @property
    def failures(self) -> int:
        """Calls that have failed in a row, as far as failing shows that the agent is away."""
        breaker = self._breaker()
        return 0 if breaker is None else breaker.failures

    @property
    def last_failure(self) -> BreakerFailure | None:
        """The last of them that there was, at any address, however well all was since then."""
        seen = [breaker.last_failure for _, breaker in self._known() if breaker.last_failure]
        return max(seen, key=lambda failure: failure.at, default=None)

    @property
    def retry_after(self) -> float | None:
        """Seconds until a call may go through; None where it was opened by hand."""
        if self._switch.position is not None:
            return None if self._switch.position == "open" else 0.0
        breaker = self._breaker()
        return 0.0 if breaker is None else breaker.retry_after(now=_now())

    def open(self) -> None:
        """Lets no call through, until it is closed or reset; calls under way go on."""
        self._switch.position = "open"

    def close(self) -> None:
        """Lets all calls through, whatever fails, until it is opened or reset."""
        self._switch.position = "closed"

    def reset(self) -> None:
        """Leaves it to the policy again, which counts anew in the running event loop."""
        self._switch.position = None
        for _, breaker in self._known():
            breaker.reset()

    def _known(self) -> list[tuple[Endpoint, Breaker]]:
        """The breakers that calls have met; none where no event loop runs."""
        policy = self._calls.resilience.breaker
        if policy is None:
            return []
        endpoints = self._calls.endpoints
        return [(one, breaker) for one in endpoints if (breaker := one.known_breaker(policy))]

    def _breaker(self) -> Breaker | None:
        """The breaker that decides about the next call; None where nobody was called yet."""
        called = self._known()
        if not called:
            return None
        needs_card = self._calls.needs_card
        known = [(one, breaker) for one, breaker in called if one.is_of_card == needs_card]
        newest = max((one.used for one, _ in known), default=0.0)
        lately = [(one, breaker) for one, breaker in known if one.used >= newest - _RECENTLY]
        now = _now()

        def rank(breaker: Breaker) -> tuple[int, float]:
            return _RANKS[breaker.state(now=now)], breaker.retry_after(now=now)

        answered = [breaker for one, breaker in lately if one.answered]
        if answered:
            return min(answered, key=rank)
        return max((breaker for _, breaker in lately), key=rank, default=None)


def _now() -> float:
    return asyncio.get_running_loop().time()
