"""Fetching an agent's card from what the caller names: an origin, an address, the card's own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit

import msgspec

from holdfast._model import codec
from holdfast._model.card_reading import describe_content, read_card
from holdfast._model.operations import WELL_KNOWN
from holdfast._model.redacted_repr import RedactedRepr
from holdfast._net.engine import HttpEngine, fetch
from holdfast._pipeline.transport import AnyCall, Call, Reply, UnaryOnly
from holdfast._wire import status
from holdfast._wire.bindings import PROTOCOL_VERSION, protocol_headers
from holdfast._wire.caching import Caching
from holdfast._wire.credentials import with_query
from holdfast._wire.http import (
    HttpReply,
    HttpRequest,
    Timeouts,
    excerpt,
    harmless_headers,
    media_type,
    presentable,
)
from holdfast._wire.limits import as_card_error, card_limits, check_json_size
from holdfast._wire.network_scope import Network, NetworkScope
from holdfast._wire.redaction import hidden_in_path
from holdfast.errors import (
    A2AError,
    AgentCardResolutionError,
    InvalidAgentCardError,
)
from holdfast.types import AgentCard

if TYPE_CHECKING:
    from holdfast._aio.env import Env
    from holdfast._wire.limits import Limits

__all__ = [
    "CardLocation",
    "CardTransport",
    "FoundCard",
]

_SHOWN = 60
"""Characters of a media type that an error shows at most."""

P = TypeVar("P")
R = TypeVar("R")


class FoundCard(RedactedRepr, msgspec.Struct, frozen=True, kw_only=True):
    """A card as its server gave it.

    Attributes:
        card: The card.
        document: The JSON object that it was read from.
        url: Where it was looked for.
        moved_to: Where it was found in the end.
        scope: Where the host lies that was asked.
        caching: How long it may be kept.
        secrets: What went along with the request, and may be repeated in the card.
    """

    card: AgentCard
    document: Mapping[str, Any]
    url: str
    moved_to: str
    scope: NetworkScope
    caching: Caching
    secrets: frozenset[str]

    def __repr__(self) -> str:
        return f"FoundCard({self.card.name!r}, {presentable(self.url)})"  # no secrets


class CardLocation(msgspec.Struct, frozen=True):
    """Where a card may be.

    Attributes:
        urls: Addresses to try in order; the next one after a 404 only.
        known: The card as last seen, if it was; its own address is tried before all others.
    """

    urls: tuple[str, ...]
    known: FoundCard | None = None

    @classmethod
    def of(cls, agent: str, known: FoundCard | None = None) -> CardLocation:
        """Reads what a caller named: an origin, an address below one, or a card's own URL."""
        parts = urlsplit(agent)
        if parts.path.endswith(".json"):
            return cls((agent,), known)
        base = agent.partition("?")[0].partition("#")[0].rstrip("/")
        well_known = tuple(f"{base}{path}" for path in WELL_KNOWN)
        return cls(well_known if parts.path in {"", "/"} else (*well_known, agent), known)


class CardTransport(UnaryOnly):
    """The bottom of the stack for `GET_AGENT_CARD`.

    Args:
        engine: What carries the requests.
        env: Where wall time comes from.
        timeouts: Of one request.
        limits: How large a card may be.
        networks: Where a redirect may lead besides the outside; see `fetch`.
        version: The version of the protocol to ask for; some agents have a card for each.
    """

    def __init__(
        self,
        engine: HttpEngine,
        env: Env,
        *,
        timeouts: Timeouts,
        limits: Limits,
        networks: tuple[Network, ...],
        version: str = PROTOCOL_VERSION,
    ) -> None:
        self._engine = engine
        self._env = env
        self._timeouts = timeouts
        self._limits = limits
        self._networks = networks
        self._version = version

    async def unary(self, call: Call[Any, Any], /) -> Reply[Any]:
        """Tries the addresses in order."""
        location: CardLocation = call.params
        known = location.known
        if known is not None:
            reply = await self._fetch(call, known.url, known)
            if reply is not None:
                return reply
        for url in location.urls:
            if known is not None and url == known.url:
                continue
            reply = await self._fetch(call, url)
            if reply is not None:
                return reply
        tried = ", ".join(presentable(url) for url in location.urls)
        raise AgentCardResolutionError(
            f"there is no agent card at {tried} (HTTP 404); name the card's own URL if it is "
            "somewhere else",
            http_status=404,
            executed=False,
        )

    async def close(self) -> None:
        """Nothing to free: the engine belongs to the client."""

    async def _fetch(
        self, call: AnyCall, url: str, known: FoundCard | None = None
    ) -> Reply[FoundCard] | None:
        secrets = call.progress.secrets
        secrets.note(call.headers, call.query, url)
        conditions = {} if known is None else known.caching.conditions()
        request = HttpRequest(
            method="GET",
            url=with_query(url, call.query),
            headers={
                **call.headers,
                "accept": "application/json",
                **protocol_headers(self._version),
                **conditions,
            },
            timeouts=self._timeouts,
            limits=card_limits(self._limits),
            progress=call.progress,
        )
        try:
            # A redirect may repeat the query: what is secret in it goes to no other origin.
            reply, moved_to, scope = await fetch(
                self._engine, request, elsewhere=not call.query, allowed=self._networks
            )
            # An address that is not a well-known one may be the agent's own, which takes no GET.
            if reply.status == 404 or (reply.status == 405 and not _is_well_known(url)):
                return None
            same = known if conditions and reply.status == 304 else None
            if same is not None and not (
                same.moved_to == moved_to and same.caching.is_confirmed_by(reply.headers)
            ):
                return await self._fetch(call, url)  # it is about another one (RFC 9111, 4.3.4)
            read = self._card_of(reply) if same is None else (same.card, same.document)
        except A2AError as error:
            told = as_card_error(error, self._limits)
            asked = presentable(request.url)
            if told.agent not in {None, asked}:
                told.message = f"{told.message}, where {asked} leads"
            told.agent = hidden_in_path(told.agent or asked, secrets.values())
            told.executed = False
            if told is error:
                raise
            raise told from None
        before = None if same is None else same.caching
        caching = Caching.of(reply.headers, now=self._env.wall(), revalidated=before)
        found = FoundCard(
            card=read[0],
            document=read[1],
            url=url,
            moved_to=moved_to,
            scope=scope,
            caching=caching,
            secrets=secrets.values(),
        )
        return Reply(value=found, headers=reply.headers, raw=reply.body)

    def _card_of(self, reply: HttpReply) -> tuple[AgentCard, Mapping[str, Any]]:
        if reply.status != 200:
            raise status.from_http_status(reply, now=self._env.wall())
        try:
            check_json_size(reply.body, self._limits)
            document = codec.parse(reply.body)
            return read_card(document), document
        except codec.MalformedError as error:
            wrong = InvalidAgentCardError(_not_json(error, reply))
        except InvalidAgentCardError as error:
            wrong = error
        wrong.http_status = reply.status
        wrong.headers = harmless_headers(reply.headers)
        wrong.excerpt = excerpt(reply.body)
        raise wrong


def _not_json(error: codec.MalformedError, reply: HttpReply) -> str:
    """Say why a reply is not a card, and what it is instead."""
    if reply.body.lstrip().startswith((b"{", b"[")):
        return f"the agent card is {error}"
    kind, named = describe_content(reply.body), media_type(reply.headers)[:_SHOWN]
    shown = f" ({named})" if named else ""
    return (
        f"the agent card is not JSON: the reply {kind}{shown}; there may be no agent at this "
        "address"
    )


def _is_well_known(url: str) -> bool:
    return url.endswith(WELL_KNOWN)
