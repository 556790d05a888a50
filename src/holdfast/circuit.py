"""The circuit to one agent: whether it is called at all, and who decides about that by hand."""

from __future__ import annotations

import asyncio
import math
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from holdfast.calls import Calls
    from holdfast.policy.breaker import Breaker, BreakerState

__all__ = ["Circuit", "SeenFailure"]


_RECENTLY = 120.0
"""Seconds for which an address counts as in use, beside the one that was called last."""

_RANKS: dict[BreakerState, int] = {"closed": 0, "half_open": 1, "open": 2}


class SeenFailure(msgspec.Struct, frozen=True, kw_only=True):
    """A failure that showed an agent to be away.

    Attributes:
        at: When, on the event loop's clock.
        cause: What it was, in a line; None where that is not known.
    """

    at: float
    cause: str | None = None


class Circuit:
    """The circuit breakers between a client and its agent, in the running event loop.

    Each address has one: where the card is, and where calls go. An agent that can be called at
    several is as well as the best of those that were called lately and have ever answered. As long
    as there is no card, it is as well as the server of the card. What is done by hand is done to
    all of them, those that the client comes to know later included. Clients with the same
    `BreakerPolicy` that share their `Endpoints` share their breakers as well.
    """

    def __init__(self, calls: Calls) -> None:
        self._calls = calls

    @property
    def state(self) -> BreakerState:
        """``"closed"``: calls go through; ``"open"``: none does; ``"half_open"``: one may try."""
        breaker = self._breaker()
        return "closed" if breaker is None else breaker.state(now=_now())

    @property
    def failures(self) -> int:
        """Calls that have failed in a row, as far as failing shows that the agent is away."""
        breaker = self._breaker()
        return 0 if breaker is None else breaker.failures

    @property
    def last_failure(self) -> SeenFailure | None:
        """The last of them that there was, at any address, however well all was since then."""
        policy = self._calls.resilience.breaker
        if policy is None:
            return None
        seen = [
            SeenFailure(at=breaker.failed_at, cause=one.last_failure)
            for one in self._calls.endpoints
            if (breaker := one.known_breaker(policy)) and breaker.failed_at is not None
        ]
        return max(seen, key=lambda failure: failure.at, default=None)

    @property
    def retry_after(self) -> float | None:
        """Seconds until a call may go through; None where it was opened by hand."""
        breaker = self._breaker()
        return 0.0 if breaker is None else breaker.retry_after(now=_now())

    def open(self) -> None:
        """Lets no call through, until it is closed or reset; calls under way go on.

        Raises:
            RuntimeError: `Resilience.breaker` is None.
        """
        self._calls.endpoints.hold("open")

    def close(self) -> None:
        """Lets all calls through, whatever fails, until it is opened or reset.

        Raises:
            RuntimeError: `Resilience.breaker` is None.
        """
        self._calls.endpoints.hold("close")

    def reset(self) -> None:
        """Closes it, and counts anew: from then on the policy decides again.

        Raises:
            RuntimeError: `Resilience.breaker` is None.
        """
        self._calls.endpoints.hold(None)

    def _breaker(self) -> Breaker | None:
        """The breaker that decides about the next call; None where nobody was called yet."""
        calls, policy = self._calls, self._calls.resilience.breaker
        if policy is None:
            return None
        called = [
            (one, breaker) for one in calls.endpoints if (breaker := one.known_breaker(policy))
        ]
        if not called:  # as where no event loop runs
            return None
        needs_card = calls.needs_card
        known = [(one, breaker) for one, breaker in called if one.is_of_card == needs_card]
        newest = max((one.used for one, _ in known), default=0.0)
        lately = [(one, breaker) for one, breaker in known if one.used >= newest - _RECENTLY]
        now = _now()

        def rank(breaker: Breaker) -> tuple[int, float]:
            wait = breaker.retry_after(now=now)
            return _RANKS[breaker.state(now=now)], math.inf if wait is None else wait

        answered = [breaker for one, breaker in lately if one.answered]
        if answered:
            return min(answered, key=rank)
        return max((breaker for _, breaker in lately), key=rank, default=None)


def _now() -> float:
    return asyncio.get_running_loop().time()
