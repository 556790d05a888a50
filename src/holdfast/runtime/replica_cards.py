"""The card of an agent that is at several places."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from holdfast.errors import A2AError
from holdfast.runtime.closing import close_in_turn
from holdfast.runtime.transport import Call, Reply, UnaryOnly

if TYPE_CHECKING:
    from collections.abc import Sequence

    from holdfast.model.card import AgentCard
    from holdfast.runtime.card_trust import BelievedCard, ReceivedCard
    from holdfast.runtime.card_verification import CardVerification
    from holdfast.runtime.resolver import AgentCardResolver

__all__ = ["ReplicaCards"]

_CLOSING = 5.0
"""Seconds that a card's stack has to close."""


class ReplicaCards(UnaryOnly):
    """The card of an agent that is at several places: of the first one that gives it.

    Args:
        resolvers: What knows each place's card.
    """

    def __init__(self, resolvers: Sequence[AgentCardResolver]) -> None:
        self._resolvers = tuple(resolvers)

    async def unary(self, call: Call[Any, Any], /) -> Reply[Any]:
        """Answers `GET_AGENT_CARD`.

        Raises:
            A2AError: No place gives a card; what the first one said.
        """
        failures: list[A2AError] = []
        # One that need not be fetched first: the replica of another one may be away.
        for resolver in sorted(self._resolvers, key=lambda resolver: resolver.fresh is None):
            try:
                return Reply(value=await resolver.card(call))
            except A2AError as error:
                failures.append(error)
        raise failures[0]

    @property
    def is_needed(self) -> bool:
        """Whether the next call has to fetch a card, as no place has one that could stand in."""
        return all(one.is_needed for one in self._resolvers)

    @property
    def last(self) -> AgentCard | None:
        """A card as last seen, however long ago."""
        return next((one.last for one in self._resolvers if one.last is not None), None)

    @property
    def verification(self) -> CardVerification | None:
        """What the signatures of that card are worth."""
        found = (one.verification for one in self._resolvers if one.last is not None)
        return next(found, None)

    @property
    def received(self) -> ReceivedCard | None:
        """That card as it came."""
        return next((one.received for one in self._resolvers if one.last is not None), None)

    def replace(self, believed: BelievedCard, secrets: frozenset[str]) -> None:
        """Keeps nothing: a card that one place gave says nothing of the way to the others."""

    async def close(self) -> None:
        """Frees what fetches."""
        await close_in_turn(self._resolvers, seconds=_CLOSING)
