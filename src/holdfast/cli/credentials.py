"""Credentials of the command line, carried as the agent's card declares (A2A 7.3, 4.5).

Rules: the card is fetched without them, unless its server asks for a bearer token; then they go
with each request, in a header, a cookie or the query, and to the agent's own origin only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import quote, urlsplit, urlunsplit

import msgspec

from holdfast.errors import InvalidAgentCardError
from holdfast.runtime.discovery import GET_AGENT_CARD
from holdfast.wire.credentials import Credentials as Carried
from holdfast.wire.http import check_headers, origin

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from contextlib import AbstractAsyncContextManager

    from holdfast.errors import AuthenticationError
    from holdfast.model.card import AgentCard, APIKeySecurityScheme
    from holdfast.runtime.engine import HttpEngine
    from holdfast.runtime.transport import AnyCall
    from holdfast.wire.http import HttpReply, HttpRequest, HttpStream

__all__ = ["Credentials", "declared_schemes"]

_DEFAULT_HEADER = "X-API-Key"
_COOKIE_CHARACTERS = frozenset(
    "!#$%&'()*+-./0123456789:<=>?@ABCDEFGHIJKLMNOPQRSTUVWXYZ[]^_`abcdefghijklmnopqrstuvwxyz{|}~"
)
"""RFC 6265, 4.1.1."""


class Credentials:
    """A bearer token and an API key, as an `AuthProvider`.

    Args:
        bearer: The token, if there is one.
        api_key: The key, if there is one.
    """

    def __init__(self, bearer: str | None, api_key: str | None) -> None:
        self._bearer = {} if bearer is None else {"authorization": f"Bearer {bearer}"}
        self._api_key = api_key
        self._key_headers: dict[str, str] = {}
        self._query: _KeyInQuery | None = None
        self._has_card = False
        self._card_is_guarded = False

    def over(self, engine: HttpEngine) -> HttpEngine:
        """An engine that can put the key into the query."""
        self._query = _KeyInQuery(engine)
        return self._query

    def fit(self, card: AgentCard, address: str) -> None:
        """Learns from the card where the key goes.

        Args:
            card: The card.
            address: The interface that calls go to.

        Raises:
            InvalidAgentCardError: The card declares a place that there is not.
            ValueError: The key cannot stand where the card wants it.
        """
        self._has_card = True
        if self._api_key is None:
            return
        scheme = _key_scheme(card)
        if scheme is None:
            self._key_headers = {_DEFAULT_HEADER: self._api_key}
            return
        location = scheme.location.lower()
        if not scheme.name or location not in {"query", *_HEADERS}:
            raise InvalidAgentCardError(
                f"the agent card wants its API key in {scheme.location!r} under the name "
                f"{scheme.name!r}; there are header, query and cookie",
                field="securitySchemes",
                executed=False,
            )
        if location in _HEADERS:
            self._key_headers = _HEADERS[location](scheme.name, self._api_key)
        elif self._query is not None:
            self._query.add(origin(address), scheme.name, self._api_key)

    async def credentials(self, call: AnyCall, /) -> Carried:
        """The headers for a call."""
        if call.operation is GET_AGENT_CARD:
            headers = self._bearer if self._card_is_guarded else {}
        else:
            headers = {**self._bearer, **self._key_headers}
        return Carried(headers=headers)

    async def on_unauthorized(self, _call: AnyCall, error: AuthenticationError, /) -> bool:
        """Shows the token to a card's server that asks for one; nobody else gets a second try."""
        asked = error.headers.get("www-authenticate", "").lower().startswith("bearer")
        self._card_is_guarded = asked and bool(self._bearer) and not self._has_card
        return self._card_is_guarded


def _in_header(name: str, key: str) -> dict[str, str]:
    try:
        return check_headers({name: key})
    except ValueError as error:
        raise InvalidAgentCardError(
            f"the agent card wants its API key in a header that cannot be: {error}",
            field="securitySchemes",
            executed=False,
        ) from None


def _in_cookie(name: str, key: str) -> dict[str, str]:
    if not set(f"{name}{key}") <= _COOKIE_CHARACTERS or "=" in name:
        message = "the agent wants its API key in a cookie, which cannot hold this one"
        raise ValueError(message)
    return {"cookie": f"{name}={key}"}


_HEADERS: Mapping[str, Callable[[str, str], dict[str, str]]] = {
    "header": _in_header,
    "cookie": _in_cookie,
}


class _KeyInQuery:
    """An engine that adds the key to the query of what goes to one origin."""

    def __init__(self, inner: HttpEngine) -> None:
        self._inner = inner
        self._origin = ""
        self._pair = ""

    def add(self, where: str, name: str, key: str) -> None:
        """Adds the key from now on."""
        self._origin = where
        self._pair = f"{quote(name, safe='')}={quote(key, safe='')}"

    async def request(self, request: HttpRequest) -> HttpReply:
        """Sends a request."""
        return await self._inner.request(self._with_key(request))

    def stream(self, request: HttpRequest) -> AbstractAsyncContextManager[HttpStream]:
        """Sends a request whose reply is read later."""
        return self._inner.stream(self._with_key(request))

    async def close(self) -> None:
        """Closes the engine below."""
        await self._inner.close()

    def _with_key(self, request: HttpRequest) -> HttpRequest:
        if not self._pair or origin(request.url) != self._origin:
            return request
        parts = urlsplit(request.url)
        query = f"{parts.query}&{self._pair}" if parts.query else self._pair
        url = urlunsplit((parts.scheme, parts.netloc, parts.path, query, parts.fragment))
        return msgspec.structs.replace(request, url=url)


def declared_schemes(card: AgentCard) -> set[str]:
    """The flags whose credentials the card declares: ``--bearer``, ``--api-key``."""
    flags: set[str] = set()
    for scheme in card.security_schemes.values():
        if scheme.api_key_security_scheme is not None:
            flags.add("--api-key")
        elif scheme.mtls_security_scheme is None:
            flags.add("--bearer")
    return flags


def _key_scheme(card: AgentCard) -> APIKeySecurityScheme | None:
    """The API key scheme that the card requires, else the first one that it knows."""
    required = [name for needed in card.security_requirements for name in needed.schemes]
    for name in (*required, *card.security_schemes):
        scheme = card.security_schemes.get(name)
        if scheme is not None and scheme.api_key_security_scheme is not None:
            return scheme.api_key_security_scheme
    return None
