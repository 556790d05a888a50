"""The card of an agent that is at several places."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, cast

import msgspec

from holdfast._aio.closing import close_in_turn
from holdfast._pipeline.transport import Call, CallProgress, Reply, UnaryOnly
from holdfast.errors import A2AError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from holdfast._pipeline.cards.resolver import AgentCardResolver
    from holdfast._pipeline.cards.trust import AcceptedCard, ReceivedCard
    from holdfast._pipeline.cards.verification import CardVerification
    from holdfast._pipeline.transport import AnyCall
    from holdfast.types import AgentCard

__all__ = ["ReplicaCards"]

_CLOSING = 5.0
"""Seconds that a card's stack has to close."""

_ENDING_S = 1.0
"""Seconds that a fetch has to end after another place gave its card."""


class ReplicaCards(UnaryOnly):
    """The card of an agent that is at several places: of the first one that answers with it.

    One that is in the cache is taken before any is fetched; else all are fetched at once, so that
    a place that is away costs no time.

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
        fresh = next((one.fresh for one in self._resolvers if one.fresh is not None), None)
        return Reply(value=await self._fetched(call) if fresh is None else fresh)

    async def _fetched(self, call: AnyCall) -> AgentCard:
        """Fetch all cards at once, and return the first; the other fetches are cancelled."""
        calls = [call, *(_beside(call) for _ in self._resolvers[1:])]
        fetches = [
            asyncio.create_task(_card_or_error(resolver, its))
            for resolver, its in zip(self._resolvers, calls, strict=True)
        ]
        left = set(fetches)
        try:
            while left:
                done, left = await asyncio.wait(left, return_when=asyncio.FIRST_COMPLETED)
                for fetch in done:
                    if not isinstance(card := fetch.result(), A2AError):
                        return card
        finally:
            for resolver, its, fetch in zip(self._resolvers, calls, fetches, strict=True):
                if not fetch.done():
                    card_progress = its.progress.card
                    if card_progress is not None and card_progress.attempts:  # which failed
                        resolver.is_doubtful = True
                    fetch.cancel()
            if left:
                await asyncio.wait(left, timeout=_ENDING_S)
        raise cast("A2AError", fetches[0].result())

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

    def replace(self, believed: AcceptedCard, secrets: frozenset[str]) -> None:
        """Keeps nothing: a card that one place gave says nothing of the way to the others."""

    async def close(self) -> None:
        """Frees what fetches."""
        await close_in_turn(self._resolvers, seconds=_CLOSING)


async def _card_or_error(resolver: AgentCardResolver, call: AnyCall) -> AgentCard | A2AError:
    try:
        return await resolver.card(call)
    except A2AError as error:
        resolver.is_doubtful = True
        return error


def _beside(call: AnyCall) -> AnyCall:
    """Return the same call with progress of its own."""
    progress = CallProgress(began=call.progress.began, call_group=call.progress.call_group)
    return msgspec.structs.replace(call, progress=progress)
