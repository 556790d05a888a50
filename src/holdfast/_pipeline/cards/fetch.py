"""Fetching an agent's card from an origin, an agent's address or the card's own URL."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit

import msgspec

from holdfast._model import codec
from holdfast._model.card_reading import describe_content, read_card
from holdfast._model.operations import CARD_PATHS
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
    "FetchedCard",
]

_MAX_MEDIA_TYPE_CHARS = 60
"""Characters of a media type that an error shows at most."""

P = TypeVar("P")
R = TypeVar("R")


class FetchedCard(RedactedRepr, msgspec.Struct, frozen=True, kw_only=True):
    """A card as its server returned it.

    Attributes:
        card: The card.
        document: The JSON object of the card.
        url: The address that was requested.
        moved_to: The address after redirects.
        scope: The network scope of the host that answered.
        caching: How long the card may be cached.
        secrets: The secrets of the request, which the card may repeat.
    """

    card: AgentCard
    document: Mapping[str, Any]
    url: str
    moved_to: str
    scope: NetworkScope
    caching: Caching
    secrets: frozenset[str]

    def __repr__(self) -> str:
        return f"FetchedCard({self.card.name!r}, {presentable(self.url)})"  # no secrets


class CardLocation(msgspec.Struct, frozen=True):
    """The addresses at which a card may be.

    Attributes:
        urls: Addresses to try in order; the next one only after a 404.
        last: The card as last fetched, if it was; its address is tried before all others.
    """

    urls: tuple[str, ...]
    last: FetchedCard | None = None

    @classmethod
    def of(cls, agent: str, last: FetchedCard | None = None) -> CardLocation:
        """Return the location for an origin, an agent's address, or a card's own URL."""
        parts = urlsplit(agent)
        if parts.path.endswith(".json"):
            return cls((agent,), last)
        base = agent.partition("?")[0].partition("#")[0].rstrip("/")
        well_known = tuple(f"{base}{path}" for path in CARD_PATHS)
        return cls(well_known if parts.path in {"", "/"} else (*well_known, agent), last)


class CardTransport(UnaryOnly):
    """The bottom of the stack for `GET_AGENT_CARD`.

    Args:
        engine: Makes the requests.
        env: Source of the wall-clock time.
        timeouts: The timeouts of one request.
        limits: Bound the size of a card.
        networks: Private networks that a redirect may lead to; see `fetch`.
        version: The protocol version to request; some agents have a card for each version.
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
        """Try the addresses in order."""
        location: CardLocation = call.params
        last = location.last
        if last is not None:
            reply = await self._fetch(call, last.url, last)
            if reply is not None:
                return reply
        for url in location.urls:
            if last is not None and url == last.url:
                continue
            reply = await self._fetch(call, url)
            if reply is not None:
                return reply
        tried = ", ".join(presentable(url) for url in location.urls)
        raise AgentCardResolutionError(
            f"no agent card was found at {tried} (HTTP 404); if the card is at another URL, pass "
            "that URL",
            http_status=404,
            executed=False,
        )

    async def close(self) -> None:
        """Do nothing: the engine belongs to the client."""

    async def _fetch(
        self, call: AnyCall, url: str, last: FetchedCard | None = None
    ) -> Reply[FetchedCard] | None:
        secrets = call.progress.secrets
        secrets.note(call.headers, call.query, url)
        conditions = {} if last is None else last.caching.conditions()
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
            progress=call.progress.request,
        )
        try:
            # A redirect may repeat the query, whose secrets must not reach another origin.
            reply, moved_to, scope = await fetch(
                self._engine, request, other_origins=not call.query, allowed=self._networks
            )
            # Other than a well-known address, it may be the agent's own, which accepts no GET.
            if reply.status == 404 or (reply.status == 405 and not _is_well_known(url)):
                return None
            unchanged = last if conditions and reply.status == 304 else None
            if unchanged is not None and not (
                unchanged.moved_to == moved_to and unchanged.caching.is_confirmed_by(reply.headers)
            ):
                return await self._fetch(call, url)  # the 304 is of another card (RFC 9111, 4.3.4)
            if unchanged is None:
                card, document = self._read(reply)
            else:
                card, document = unchanged.card, unchanged.document
        except A2AError as error:
            card_error = as_card_error(error, self._limits)
            requested = presentable(request.url)
            if card_error.agent not in {None, requested}:
                card_error.message = f"{card_error.message}, where {requested} leads"
            card_error.agent = hidden_in_path(card_error.agent or requested, secrets.values())
            card_error.executed = False
            if card_error is error:
                raise
            raise card_error from None
        revalidated = None if unchanged is None else unchanged.caching
        caching = Caching.of(reply.headers, now=self._env.wall(), revalidated=revalidated)
        fetched = FetchedCard(
            card=card,
            document=document,
            url=url,
            moved_to=moved_to,
            scope=scope,
            caching=caching,
            secrets=secrets.values(),
        )
        return Reply(value=fetched, headers=reply.headers, raw=reply.body)

    def _read(self, reply: HttpReply) -> tuple[AgentCard, Mapping[str, Any]]:
        if reply.status != 200:
            raise status.from_http_status(reply, now=self._env.wall())
        try:
            check_json_size(reply.body, self._limits)
            document = codec.parse(reply.body)
            return read_card(document), document
        except codec.MalformedError as error:
            card_error = InvalidAgentCardError(_not_json(error, reply))
        except InvalidAgentCardError as error:
            card_error = error
        card_error.http_status = reply.status
        card_error.headers = harmless_headers(reply.headers)
        card_error.excerpt = excerpt(reply.body)
        raise card_error


def _not_json(error: codec.MalformedError, reply: HttpReply) -> str:
    """Say why a reply is not a card, and what it is instead."""
    if reply.body.lstrip().startswith((b"{", b"[")):
        return f"the agent card is {error}"
    kind = describe_content(reply.body)
    declared_type = media_type(reply.headers)[:_MAX_MEDIA_TYPE_CHARS]
    shown = f" ({declared_type})" if declared_type else ""
    return (
        f"the agent card is not JSON: the reply {kind}{shown}; there may be no agent at this "
        "address"
    )


def _is_well_known(url: str) -> bool:
    return url.endswith(CARD_PATHS)
