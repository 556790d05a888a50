"""The card of an agent: fetched when it is needed, cached, verified.

Rules: nothing is fetched before it is needed; concurrent calls share one fetch; a card is cached
for as long as its server says (RFC 9111), on the event loop's clock; a stale card is used for a
while if no newer one can be fetched.
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
from holdfast._pipeline.cards.fetch import CardLocation, FetchedCard
from holdfast._pipeline.cards.files import read_card_file
from holdfast._pipeline.cards.trust import ReceivedCard
from holdfast._pipeline.transport import AnyCall, Call, CallProgress, Reply, Transport, UnaryOnly
from holdfast._policy.attempts import attempts_within
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

_MIN_LIFETIME_S, _MAX_LIFETIME_S = 5.0, 86_400.0
"""Seconds. A card is cached for a moment even if its server forbids it, or every call would fetch
it; and it is fetched once a day even if its server allows a year."""

_REFRESH_TIMEOUT_S = 10.0
"""Seconds that a call waits for a newer card while there is a usable stale one; at most half of
the time that the call has left."""

_STALE_S = 3600.0
"""Seconds for which a stale card may be used if its server does not say (``stale-if-error``)."""

_REFRESH_PAUSE_S = 30.0
"""Seconds until the next attempt to replace a stale card."""

FETCH_CARD = cast("Operation[CardLocation, FetchedCard]", GET_AGENT_CARD)
"""`GET_AGENT_CARD` below the resolver, where its result is the card with its metadata."""


class AgentCardResolver(UnaryOnly):
    """Fetches and caches the card of one agent.

    Args:
        agent: An origin, an address, a card's URL, a `Path` to a card's file, or a checked card.
        fetch: Performs `GET_AGENT_CARD`.
        endpoints: Keeps what is learned about the card's server.
        auth: Source of the credentials for the card's server.
        headers: Headers of the request; not those of a call, as many calls share one card.
        ttl: Seconds for which a card is cached if its server does not say.
        limits: Bound the size of a card in a file.
        trust: Decides which cards are used.
        document: The JSON object from which a given card was read, if it was.
        reach: The most private network that the card's server may be in, and the requests made on
            behalf of the fetch; None for no limit.

    Attributes:
        secrets: The secrets that were sent to the card's server, which may repeat them there.
        is_doubtful: Whether there is no card, and the latest fetch failed or took too long. Set by
            `ReplicaCards` and `ReplicaLayer`, which then use another replica.
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
        self._accepted: AcceptedCard | None = None  # the latest card of the source
        self._accepted_until = -math.inf
        self._replaced_until = math.inf
        self._used: AcceptedCard | None = None
        self._card: AgentCard | None = None
        self._source_card: AgentCard | None = None  # differs from _card after `replace`
        self._fetched: FetchedCard | None = None
        self.secrets: frozenset[str] = frozenset()
        self._fresh_until = -math.inf
        self._usable_until = -math.inf
        self._fetches = PerLoop(_Fetches)
        self.is_doubtful = False

    async def unary(self, call: Call[Any, Any], /) -> Reply[Any]:
        """Answer `GET_AGENT_CARD`, as the bottom of a stack of layers."""
        return Reply(value=await self.card(call))

    async def close(self) -> None:
        """Close the transport that fetches the card."""
        await self._fetch.close()

    async def card(self, call: AnyCall) -> AgentCard:
        """Return the card, from the cache or fetched within the deadline of the call.

        Raises:
            AgentCardResolutionError: There is no card.
            InvalidAgentCardError: The card is not valid.
            LimitExceededError: The card is too large.
            CardSignatureError: A signature is invalid, or the card must be verified and is not.
            A2AError: The card could not be fetched.
        """
        if (card := self.fresh_card(call)) is not None:
            return card
        fetches = self._fetches.here()
        if fetches.flight.is_running():
            call.progress.card = fetches.progress
        try:
            return await fetches.flight.run(lambda: self._start(call, fetches))
        except A2AError as error:
            fetch = call.progress.card
            if fetch is not None and error.attempts:
                after = fetch.began - call.progress.began
                error.attempts = attempts_within(error.attempts, after=after)
            raise

    def _start(self, call: AnyCall, fetches: _Fetches) -> Coroutine[Any, Any, AgentCard]:
        fetches.progress = call.progress.card = None
        if isinstance(self._agent, str):
            began = asyncio.get_running_loop().time()
            progress = CallProgress(began=began, call_group=call.progress.call_group)
            fetches.progress = call.progress.card = progress
        return self._load_for(call, fetches)

    async def _load_for(self, call: AnyCall, fetches: _Fetches) -> AgentCard:
        progress = fetches.progress
        try:
            return await self._load(call)
        finally:
            if fetches.progress is progress:
                fetches.progress = None  # it refers to the call, which may be dropped

    def fresh_card(self, call: AnyCall) -> AgentCard | None:
        """Return the card for a call, while it is fresh."""
        loop = call.progress.call_group.loop or asyncio.get_running_loop()
        return self._card if loop.time() < self._fresh_until else None

    @property
    def is_needed(self) -> bool:
        """Whether the next call has to fetch the card, as there is no usable stale one."""
        return self._card is None or asyncio.get_running_loop().time() >= self._usable_until

    @property
    def last(self) -> AgentCard | None:
        """The latest card, even if it is stale."""
        return self._card

    @property
    def verification(self) -> CardVerification | None:
        """The result of verifying the signatures of `last`; None before there is a card."""
        return None if self._used is None else self._used.verification

    @property
    def received(self) -> ReceivedCard | None:
        """The card `last` as it was received; None before there is a card."""
        return None if self._used is None else self._used.received

    @property
    def scope(self) -> NetworkScope:
        """The network scope of the host that served the card; public if it was not fetched."""
        return "public" if self._fetched is None else self._fetched.scope

    def replace(self, accepted: AcceptedCard, secrets: frozenset[str]) -> None:
        """Use another card in place of the present one, until the source has a new one.

        Args:
            accepted: The card to use.
            secrets: The secrets that were sent to get it.
        """
        self._card, self._used = accepted.card, accepted
        self.secrets = secrets
        self._replaced_until = asyncio.get_running_loop().time() + accepted.fresh_for
        self._fresh_until = min(self._fresh_until, self._replaced_until)

    async def _load(self, call: AnyCall) -> AgentCard:
        if (card := self.fresh_card(call)) is not None:  # loaded since the previous call
            return card
        card = await self._load_source_card(call)
        used = self._used
        if card is self._source_card or used is None:
            return card
        return await self._verified_replacement(call, used)

    async def _verified_replacement(self, call: AnyCall, used: AcceptedCard) -> AgentCard:
        """Return the card given to `replace`, verified again if its keys are no longer fresh.

        If its verification fails, the source's card is used again.
        """
        loop = asyncio.get_running_loop()
        if loop.time() >= self._replaced_until:
            try:
                used = await self._trust.accept(call, used.received)
            except CardSignatureError:
                self._card, self._used = self._source_card, self._accepted
                self._replaced_until = math.inf
            else:
                self._card, self._used = used.card, used
                self._replaced_until = loop.time() + used.fresh_for
        self._fresh_until = min(self._fresh_until, self._replaced_until)
        return cast("AgentCard", self._card)

    async def _load_source_card(self, call: AnyCall) -> AgentCard:
        match self._agent:
            case AgentCard() as card:
                document = self._document
                received = ReceivedCard(card, document) if document else ReceivedCard.of(card)
                return self._store(await self._accept(call, received), math.inf)
            case str():
                return await self._load_from(self._agent, call)
            case Path():
                read = await asyncio.to_thread(read_card_file, self._agent, self._limits)
                return self._store(await self._accept(call, ReceivedCard(*read)), self._ttl)

    async def _accept(self, call: AnyCall, received: ReceivedCard) -> AcceptedCard:
        """Return the usable card; verified again only if it or its keys may have changed."""
        loop = asyncio.get_running_loop()
        accepted = self._accepted
        # The key of an unverifiable card may have become available.
        is_final = accepted is not None and accepted.verification.outcome != "unverifiable"
        is_due = loop.time() >= self._accepted_until
        if accepted is None or is_due or not is_final or accepted.received != received:
            accepted = self._accepted = await self._trust.accept(call, received)
            self._accepted_until = loop.time() + accepted.fresh_for
        return accepted

    async def _load_from(self, agent: str, call: AnyCall) -> AgentCard:
        loop = asyncio.get_running_loop()
        if self._card is None or loop.time() >= self._usable_until:
            return await self._store_fetched(
                call, await self._fetch_from(agent, call, call.deadline)
            )
        # Meanwhile other calls use the stale card, even if this call fails.
        self._use_stale_card(_REFRESH_PAUSE_S)
        deadline_at = loop.time() + min(
            _REFRESH_TIMEOUT_S, call.deadline.remaining(loop.time()) / 2
        )
        pause = _REFRESH_PAUSE_S
        try:
            async with CancelScope(deadline_at):
                fetched = await self._fetch_from(
                    agent, call, msgspec.structs.replace(call.deadline, at=deadline_at)
                )
                return await self._store_fetched(call, fetched)
        except A2AError as error:
            if not _allows_stale_card(error):
                self._fresh_until = -math.inf
                raise
            pause = max(_REFRESH_PAUSE_S, error.retry_after or 0.0)
        self._use_stale_card(pause)
        return self._card

    def _use_stale_card(self, seconds: float) -> None:
        """Treat the stale card as fresh for some seconds, while it is usable."""
        now = asyncio.get_running_loop().time()
        self._fresh_until = min(now + seconds, self._usable_until)

    async def _store_fetched(self, call: AnyCall, fetched: FetchedCard) -> AgentCard:
        accepted = await self._accept(call, ReceivedCard(fetched.card, fetched.document))
        self._fetched, self.secrets = fetched, fetched.secrets
        caching = fetched.caching
        lifetime = self._ttl
        if caching.lifetime is not None:
            lifetime = max(caching.lifetime, min(_MIN_LIFETIME_S, self._ttl))
            lifetime = min(lifetime, _MAX_LIFETIME_S)
        stale_for = caching.stale_if_error
        if stale_for is None:
            stale_for = _STALE_S if self._ttl else 0.0
        return self._store(accepted, lifetime, min(stale_for, _MAX_LIFETIME_S))

    def _store(self, accepted: AcceptedCard, lifetime: float, stale_for: float = 0.0) -> AgentCard:
        if self._card is None or accepted.card != self._source_card:
            self._card = self._source_card = accepted.card
        if self._card is self._source_card:  # it was not replaced
            self._used = accepted
        if accepted.verification.is_for_now:
            lifetime = min(lifetime, _REFRESH_PAUSE_S)
        now = asyncio.get_running_loop().time()
        self._fresh_until = min(now + lifetime, self._accepted_until)
        self._usable_until = self._fresh_until + stale_for
        self.is_doubtful = False
        return self._card

    async def _fetch_from(self, agent: str, call: AnyCall, deadline: Deadline) -> FetchedCard:
        server = AgentInterface(url=origin(agent), protocol_binding=CARD_BINDING)
        operation = call.progress.operation
        request_id = call.request_id
        if operation is not None:
            request_id = operation.add_request(FETCH_CARD.name, None)
        reply = await self._fetch.unary(
            Call(
                operation=FETCH_CARD,
                params=CardLocation.of(agent, self._fetched),
                request_id=request_id,
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
    """The fetch of the card in one event loop, shared by all calls that need the card.

    A fetch belongs to the call that started it: it has that call's deadline and observers.

    Attributes:
        flight: The fetch.
        progress: Its progress; None if the card does not come from a server.
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
    """Return whether a fetch failed because of its call's deadline; other calls may have more."""
    return isinstance(error, A2AError) and (error.retry_stopped_reason or "").endswith(TOO_LATE)


def _allows_stale_card(error: A2AError) -> bool:
    """Return whether an error allows the use of a stale card (RFC 5861, 4)."""
    return error.transient or (error.http_status or 0) >= 500
