"""The card of an agent with several replicas."""

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

_CLOSE_TIMEOUT_S = 5.0
"""Seconds that a resolver has to close."""

_CANCEL_GRACE_S = 1.0
"""Seconds that a cancelled fetch has to end after another replica returned its card."""


class ReplicaCards(UnaryOnly):
    """The card of an agent with several replicas: that of the first replica to return one.

    A cached card is used before any is fetched. Otherwise all cards are fetched at the same time,
    so that a replica that is not available causes no delay.

    Args:
        resolvers: The resolver of each replica.
    """

    def __init__(self, resolvers: Sequence[AgentCardResolver]) -> None:
        self._resolvers = tuple(resolvers)

    async def unary(self, call: Call[Any, Any], /) -> Reply[Any]:
        """Answer `GET_AGENT_CARD`.

        Raises:
            A2AError: No replica returned a card: the error of the first replica.
        """
        cards = (resolver.fresh_card(call) for resolver in self._resolvers)
        fresh = next((card for card in cards if card is not None), None)
        return Reply(value=await self._fetch_first(call) if fresh is None else fresh)

    async def _fetch_first(self, call: AnyCall) -> AgentCard:
        """Fetch all cards at once, and return the first; the other fetches are cancelled."""
        calls = [call, *(_with_own_progress(call) for _ in self._resolvers[1:])]
        fetches = [
            asyncio.create_task(_card_or_error(resolver, fetch_call))
            for resolver, fetch_call in zip(self._resolvers, calls, strict=True)
        ]
        pending = set(fetches)
        try:
            while pending:
                done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
                for fetch in done:
                    if not isinstance(card := fetch.result(), A2AError):
                        return card
        finally:
            for resolver, fetch_call, fetch in zip(self._resolvers, calls, fetches, strict=True):
                if not fetch.done():
                    card_progress = fetch_call.progress.card
                    if card_progress is not None and card_progress.attempts:  # failed ones
                        resolver.is_doubtful = True
                    fetch.cancel()
            if pending:
                await asyncio.wait(pending, timeout=_CANCEL_GRACE_S)
        raise cast("A2AError", fetches[0].result())

    @property
    def is_needed(self) -> bool:
        """Whether the next call has to fetch a card, as no replica has a usable one."""
        return all(resolver.is_needed for resolver in self._resolvers)

    @property
    def last(self) -> AgentCard | None:
        """The latest card of a replica, even if it is stale."""
        return None if (resolver := self._with_card()) is None else resolver.last

    @property
    def verification(self) -> CardVerification | None:
        """The result of verifying the signatures of `last`."""
        return None if (resolver := self._with_card()) is None else resolver.verification

    @property
    def received(self) -> ReceivedCard | None:
        """The card `last` as it was received."""
        return None if (resolver := self._with_card()) is None else resolver.received

    def _with_card(self) -> AgentCardResolver | None:
        return next((r for r in self._resolvers if r.last is not None), None)

    def replace(self, accepted: AcceptedCard, secrets: frozenset[str]) -> None:
        """Do nothing: a card of one replica says nothing about the interfaces of the others."""

    async def close(self) -> None:
        """Close all resolvers."""
        await close_in_turn(self._resolvers, seconds=_CLOSE_TIMEOUT_S)


async def _card_or_error(resolver: AgentCardResolver, call: AnyCall) -> AgentCard | A2AError:
    try:
        return await resolver.card(call)
    except A2AError as error:
        resolver.is_doubtful = True
        return error


def _with_own_progress(call: AnyCall) -> AnyCall:
    """Return the same call with progress of its own."""
    progress = CallProgress(began=call.progress.began, call_group=call.progress.call_group)
    return msgspec.structs.replace(call, progress=progress)
