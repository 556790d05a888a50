"""Knowing an agent's card.

Rules: nothing is fetched before it is needed; many who ask at once cause one fetch; a card is
kept for as long as its server says (RFC 9111), on the event loop's clock; one that is too old
stands in for a while where no newer one can be had.
"""

from __future__ import annotations

import asyncio
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import msgspec

from holdfast._aio.cancel_scope import CancelScope
from holdfast._aio.per_loop import PerLoop
from holdfast._aio.single_flight import SingleFlight
from holdfast._model.operations import CARD_BINDING, GET_AGENT_CARD
from holdfast._pipeline.cards.fetch import CardLocation, FoundCard
from holdfast._pipeline.cards.files import read_card_file
from holdfast._pipeline.cards.trust import ReceivedCard
from holdfast._pipeline.transport import AnyCall, Call, CallProgress, Reply, Transport, UnaryOnly
from holdfast._policy.retry import TOO_LATE
from holdfast._wire.origins import origin
from holdfast.errors import A2AConnectionError, A2AError, CardSignatureError
from holdfast.types import AgentCard, AgentInterface

if TYPE_CHECKING:
    from collections.abc import Coroutine, Mapping

    from holdfast._model.operations import Operation
    from holdfast._pipeline.cards.trust import AcceptedCard, CardTrust
    from holdfast._pipeline.cards.verification import CardVerification
    from holdfast._pipeline.credentials import AuthProviderRef
    from holdfast._pipeline.endpoints import KnownEndpoints
    from holdfast._policy.deadline import Deadline
    from holdfast._wire.limits import Limits
    from holdfast._wire.network_scope import NetworkReach, NetworkScope

__all__ = ["FETCH_CARD", "AgentCardResolver"]

_LEAST_AGE, _MOST_AGE = 5.0, 86_400.0
"""Seconds. A card is used for a moment even if its server wants no cache, since it would have to
be fetched for every single call; and looked at once a day even if it is good for a year."""

_REFRESHING = 10.0
"""Seconds that one call waits for a newer card while there is one that can stand in; no more than
half of the time that the call has."""

_STANDING_IN = 3600.0
"""Seconds for which a card that is too old may stand in, if its server says nothing of that."""

_PAUSE = 30.0
"""Seconds until the next try to get a newer one than that."""

FETCH_CARD = cast("Operation[CardLocation, FoundCard]", GET_AGENT_CARD)
"""The same operation as it is answered below the one who keeps the card."""


class AgentCardResolver(UnaryOnly):
    """Knows the card of one agent, and fetches it when it must.

    Args:
        agent: An origin, an address, a card's URL, a `Path` to a card's file, or a card that was
            checked.
        fetch: Carries `GET_AGENT_CARD`.
        endpoints: Where what is learned about the card's server is kept.
        auth: Where credentials for the card's server come from.
        headers: Sent along; not those of a call, since many calls share one card.
        ttl: Seconds that a card is kept whose server says nothing of that.
        limits: How large a card in a file may be.
        trust: Decides which cards are used.
        document: The JSON object that a card in hand was read from, if it was.
        reach: How far inside the card's server may lie, and what is asked on behalf of the fetch;
            None for anywhere.

    Attributes:
        is_doubtful: Whether there is no card, and the last fetch failed or took too long. Written
            by `ReplicaCards` and `ReplicaLayer`, which go to another replica then.
    """

    def __init__(
        self,
        agent: str | Path | AgentCard,
        fetch: Transport,
        endpoints: KnownEndpoints,
        auth: AuthProviderRef,
        *,
        headers: Mapping[str, str],
        ttl: float,
        limits: Limits,
        trust: CardTrust,
        document: Mapping[str, Any] | None = None,
        reach: NetworkReach | None = None,
    ) -> None:
        self._agent = agent
        self._fetch = fetch
        self._endpoints = endpoints
        self._auth = auth
        self._headers = headers
        self._ttl = ttl
        self._limits = limits
        self._trust = trust
        self._document = document
        self._reach = reach
        self._believed: AcceptedCard | None = None  # what came from the source last
        self._believed_until = -math.inf
        self._replaced_until = math.inf
        self._used: AcceptedCard | None = None
        self._card: AgentCard | None = None
        self._source: AgentCard | None = None  # which is another one if `replace` was called
        self._found: FoundCard | None = None
        self._secrets: frozenset[str] = frozenset()
        self._fresh_until = -math.inf
        self._usable_until = -math.inf
        self._fetches = PerLoop(_Fetches)
        self.is_doubtful = False

    async def unary(self, call: Call[Any, Any], /) -> Reply[Any]:
        """Answers `GET_AGENT_CARD`, so that a resolver can stand at the bottom of a stack."""
        return Reply(value=await self.card(call))

    async def close(self) -> None:
        """Frees what fetches."""
        await self._fetch.close()

    async def card(self, call: AnyCall) -> AgentCard:
        """The card, from memory or fetched within the deadline of the call that needs it.

        Raises:
            AgentCardResolutionError: There is no card.
            InvalidAgentCardError: It is not usable.
            LimitExceededError: It is too large.
            CardSignatureError: Its signature is wrong, or not verified where it must be.
            A2AError: It could not be fetched.
        """
        if (card := self.fresh) is not None:
            return card
        fetches = self._fetches.here()
        if fetches.flight.is_running():
            call.progress.card = fetches.progress
        return await fetches.flight.run(lambda: self._begin(call, fetches))

    def _begin(self, call: AnyCall, fetches: _Fetches) -> Coroutine[Any, Any, AgentCard]:
        fetches.progress = call.progress.card = None
        if isinstance(self._agent, str):
            began = asyncio.get_running_loop().time()
            progress = CallProgress(began=began, call_group=call.progress.call_group)
            fetches.progress = call.progress.card = progress
        return self._load(call)

    @property
    def fresh(self) -> AgentCard | None:
        """The card, unless it must be looked at again."""
        return self._card if asyncio.get_running_loop().time() < self._fresh_until else None

    @property
    def is_needed(self) -> bool:
        """Whether the next call has to fetch it, as there is none that could stand in."""
        return self._card is None or asyncio.get_running_loop().time() >= self._usable_until

    @property
    def last(self) -> AgentCard | None:
        """The card as last seen, however long ago."""
        return self._card

    @property
    def verification(self) -> CardVerification | None:
        """What the signatures of that card are worth; None before there is one."""
        return None if self._used is None else self._used.verification

    @property
    def received(self) -> ReceivedCard | None:
        """That card as it came; None before there is one."""
        return None if self._used is None else self._used.received

    @property
    def scope(self) -> NetworkScope:
        """Where the host lies that the card was fetched from; public if it was not."""
        return "public" if self._found is None else self._found.scope

    @property
    def secrets(self) -> frozenset[str]:
        """What the card's server was sent, and may have put into the card."""
        return self._secrets

    def replace(self, believed: AcceptedCard, secrets: frozenset[str]) -> None:
        """Uses a card in place of the present one, until its source has a new one.

        Args:
            believed: The card to use.
            secrets: What was sent to get it.
        """
        self._card, self._used = believed.card, believed
        self._secrets = secrets
        self._replaced_until = asyncio.get_running_loop().time() + believed.fresh_for
        self._fresh_until = min(self._fresh_until, self._replaced_until)

    async def _load(self, call: AnyCall) -> AgentCard:
        if (card := self.fresh) is not None:  # since the caller before has left
            return card
        card = await self._loaded(call)
        used = self._used
        if card is self._source or used is None:
            return card
        return await self._verified_replacement(call, used)

    async def _verified_replacement(self, call: AnyCall, used: AcceptedCard) -> AgentCard:
        """The card that replaced the source's, verified again when its keys are due.

        One that is no longer verified is dropped for the source's.
        """
        loop = asyncio.get_running_loop()
        if loop.time() >= self._replaced_until:
            try:
                used = await self._trust.believed(call, used.received)
            except CardSignatureError:
                self._card, self._used = self._source, self._believed
                self._replaced_until = math.inf
            else:
                self._card, self._used = used.card, used
                self._replaced_until = loop.time() + used.fresh_for
        self._fresh_until = min(self._fresh_until, self._replaced_until)
        return cast("AgentCard", self._card)

    async def _loaded(self, call: AnyCall) -> AgentCard:
        match self._agent:
            case AgentCard():
                document = self._document
                in_hand = ReceivedCard(self._agent, document or {}) if document else None
                received = in_hand or ReceivedCard.of(self._agent)
                return self._keep(await self._trusted(call, received), math.inf)
            case str():
                return await self._load_from(self._agent, call)
            case Path():
                read = await asyncio.to_thread(read_card_file, self._agent, self._limits)
                return self._keep(await self._trusted(call, ReceivedCard(*read)), self._ttl)

    async def _trusted(self, call: AnyCall, received: ReceivedCard) -> AcceptedCard:
        """The card that may be used; verified again only if it or its keys may have changed."""
        loop = asyncio.get_running_loop()
        before = self._believed
        # Of one that nobody could verify, the key may be there by now.
        settled = before is not None and before.verification.outcome != "unverifiable"
        is_due = loop.time() >= self._believed_until
        if before is None or is_due or not settled or before.received != received:
            before = self._believed = await self._trust.believed(call, received)
            self._believed_until = loop.time() + before.fresh_for
        return before

    async def _load_from(self, agent: str, call: AnyCall) -> AgentCard:
        loop = asyncio.get_running_loop()
        if self._card is None or loop.time() >= self._usable_until:
            return await self._keep_found(call, await self._fetched(agent, call, call.deadline))
        # Others go on with the card that there is, whatever becomes of this call.
        self._stand_in(_PAUSE)
        at = loop.time() + min(_REFRESHING, call.deadline.left(loop.time()) / 2)
        pause = _PAUSE
        try:
            async with CancelScope(at):
                found = await self._fetched(
                    agent, call, msgspec.structs.replace(call.deadline, at=at)
                )
                return await self._keep_found(call, found)
        except A2AError as error:
            if not _may_pass(error):
                self._fresh_until = -math.inf
                raise
            pause = max(_PAUSE, error.retry_after or 0.0)
        self._stand_in(pause)
        return self._card

    def _stand_in(self, seconds: float) -> None:
        """Uses the card that there is for some seconds, and no longer than it may be."""
        now = asyncio.get_running_loop().time()
        self._fresh_until = min(now + seconds, self._usable_until)

    async def _keep_found(self, call: AnyCall, found: FoundCard) -> AgentCard:
        believed = await self._trusted(call, ReceivedCard(found.card, found.document))
        self._found, self._secrets = found, found.secrets
        said = found.caching
        lifetime = self._ttl
        if said.lifetime is not None:
            lifetime = min(max(said.lifetime, min(_LEAST_AGE, self._ttl)), _MOST_AGE)
        grace = said.stale_if_error
        if grace is None:
            grace = _STANDING_IN if self._ttl else 0.0
        return self._keep(believed, lifetime, min(grace, _MOST_AGE))

    def _keep(self, believed: AcceptedCard, lifetime: float, grace: float = 0.0) -> AgentCard:
        if self._card is None or believed.card != self._source:
            self._card = self._source = believed.card
        if self._card is self._source:  # and nothing was put in its place
            self._used = believed
        if believed.verification.is_for_now:
            lifetime = min(lifetime, _PAUSE)
        now = asyncio.get_running_loop().time()
        self._fresh_until = min(now + lifetime, self._believed_until)
        self._usable_until = self._fresh_until + grace
        self.is_doubtful = False
        return self._card

    async def _fetched(self, agent: str, call: AnyCall, deadline: Deadline) -> FoundCard:
        server = AgentInterface(url=origin(agent), protocol_binding=CARD_BINDING)
        reply = await self._fetch.unary(
            Call(
                operation=FETCH_CARD,
                params=CardLocation.of(agent, self._found),
                request_id=call.request_id,
                deadline=deadline,
                headers=self._headers,
                endpoint=self._endpoints.of(server),
                auth=self._auth.provider,
                reach=self._reach,
                progress=call.progress.card or CallProgress(),
            )
        )
        return reply.value


class _Fetches:
    """The fetch of the card in one event loop, for all calls that need the card meanwhile.

    A fetch belongs to the call that began it: it has that call's deadline and observers.

    Attributes:
        flight: The fetch.
        progress: How far it has come; None where nothing is fetched from a server.
    """

    def __init__(self) -> None:
        self.flight: SingleFlight[AgentCard] = SingleFlight(
            _cancelled, lasts="led", is_leaders_own=_is_out_of_time
        )
        self.progress: CallProgress | None = None


def _cancelled() -> A2AError:
    return A2AConnectionError(
        "the fetch of the agent's card was cancelled", failure="closed", executed=False
    )


def _is_out_of_time(error: BaseException) -> bool:
    """Whether a fetch failed for the deadline of its call; other calls may have more time."""
    return isinstance(error, A2AError) and (error.retry_stopped_reason or "").endswith(TOO_LATE)


def _may_pass(error: A2AError) -> bool:
    """Whether another card may stand in (RFC 5861, 4): the server said nothing about this one."""
    return error.transient or (error.http_status or 0) >= 500
