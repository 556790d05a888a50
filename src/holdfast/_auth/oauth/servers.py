"""Authorization servers: their endpoints, and which sources of them are trusted.

Rules: a client secret, code or refresh token is sent only to endpoints that the caller named, that
the metadata of a caller's issuer names, or that a card or its metadata names at an origin that the
caller trusts; a card alone is never enough. Metadata is accepted only if it names the requested
issuer (RFC 8414, 3.3; OpenID Connect Discovery 4.3). All addresses are https, except loopback.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, cast
from urllib.parse import urlsplit

import msgspec

from holdfast._arguments import check_items, check_url
from holdfast._model import codec
from holdfast._model.addresses import is_http_address
from holdfast._model.error_values import text_of
from holdfast._model.hosts import is_loopback
from holdfast._model.settings import check_kind, explains_unknown_options
from holdfast._net.engine import fetch
from holdfast._wire.http import HttpRequest, Timeouts, presentable
from holdfast._wire.limits import Limits, check_json_size
from holdfast._wire.origins import canonical_origin
from holdfast.errors import A2AError, AuthenticationError, CredentialOriginError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from holdfast._net.engine import HttpEngine
    from holdfast._wire.network_scope import NetworkScope
    from holdfast.types import AgentCard, SecurityScheme

__all__ = [
    "PKCE_METHOD",
    "PKCE_NOT_ADVERTISED",
    "WITHOUT_METADATA",
    "AuthorizationServer",
    "CardServer",
    "FromCard",
    "card_server",
    "card_server_origins",
    "check_endpoint",
    "discover",
    "object_in",
]

LIMITS = Limits(body=256 * 1024)
TIMEOUTS = Timeouts(pool=5.0, connect=5.0, write=5.0, first_byte=15.0, idle=10.0)

PKCE_METHOD = "S256"
"""The only supported method of PKCE; ``plain`` does not protect a code that is read."""

PKCE_NOT_ADVERTISED = (
    "the authorization server does not advertise PKCE with S256 (RFC 7636), without which a "
    "stolen authorization code can be redeemed"
)
"""Text of errors about a server without that method."""

WITHOUT_METADATA = (
    ": check the issuer, or pass AuthorizationServer(token_endpoint=…) in place of the issuer"
)
"""Advice about an issuer without metadata."""

_ENDPOINTS = (
    "token_endpoint",
    "authorization_endpoint",
    "device_authorization_endpoint",
    "revocation_endpoint",
)


class AuthorizationServer(msgspec.Struct, frozen=True, kw_only=True):
    """Endpoints of an authorization server, with the names of its metadata (RFC 8414, 2).

    Attributes:
        token_endpoint: Issues tokens.
        issuer: Issuer identifier; None if unknown.
        authorization_endpoint: Opened in the user's browser, for `AuthorizationCode`.
        device_authorization_endpoint: Issues device codes, for `DeviceCode`.
        revocation_endpoint: Revokes tokens (RFC 7009).
        token_endpoint_auth_methods_supported: Authentication methods for clients.
        authorization_response_iss_parameter_supported: Whether the server sends its issuer in
            browser redirects (RFC 9207); False by default.
        code_challenge_methods_supported: PKCE methods (RFC 7636). `AuthorizationCode` needs
            ``S256``, the default for a server that you describe yourself.

    Raises:
        ValueError: An address is invalid; or not https, except on this machine.
        TypeError: A value has another type.
    """

    token_endpoint: str
    issuer: str | None = None
    authorization_endpoint: str | None = None
    device_authorization_endpoint: str | None = None
    revocation_endpoint: str | None = None
    token_endpoint_auth_methods_supported: tuple[str, ...] = ()
    authorization_response_iss_parameter_supported: bool = False
    code_challenge_methods_supported: tuple[str, ...] = (PKCE_METHOD,)

    def __post_init__(self) -> None:
        for name in _ENDPOINTS:
            url = getattr(self, name)
            if url is not None or name == "token_endpoint":
                check_endpoint(url, name)
        check_kind("issuer", self.issuer, (str, type(None)))


class FromCard:
    """The authorization server in an agent's card, if its origin is trusted.

    Args:
        trusted: Origins of authorization servers, such as ``"https://id.example.com"``. Servers at
            other origins are never called, even as endpoints in metadata that the card names: the
            author of the card can choose among everything that is published there.
        scheme: Name of the security scheme in the card; by default the first suitable one.

    Raises:
        ValueError: The list is empty, or an origin is invalid.
        TypeError: An argument has another type.
    """

    @explains_unknown_options()
    def __init__(self, trusted: Iterable[str], *, scheme: str | None = None) -> None:
        check_kind("scheme", scheme, (str, type(None)))
        origins = check_items("trusted", trusted)
        self.trusted = frozenset(
            canonical_origin(check_endpoint(url, "trusted origin")) for url in origins
        )
        if not self.trusted:
            text = "trusted is empty; name the origins of the authorization servers to trust"
            raise ValueError(text)
        self.scheme = scheme

    def check_server(self, server: AuthorizationServer) -> None:
        """Check that all endpoints of a server from a card's metadata are trusted.

        Args:
            server: The endpoints.

        Raises:
            CredentialOriginError: An endpoint is at another origin.
        """
        for name in _ENDPOINTS:
            url = getattr(server, name)
            if url is not None:
                self.check_origin(canonical_origin(url))

    def check_origin(self, origin: str) -> None:
        """Check that an origin is trusted.

        Args:
            origin: The origin.

        Raises:
            CredentialOriginError: The origin is not trusted.
        """
        if origin not in self.trusted:
            raise CredentialOriginError(
                f"the card names an authorization server at {origin}, which is not a trusted "
                f"origin ({', '.join(sorted(self.trusted))}); nothing was sent there",
                origin=origin,
                executed=False,
            )

    def __repr__(self) -> str:
        return f"FromCard({sorted(self.trusted)}, scheme={self.scheme!r})"


class CardServer(NamedTuple):
    """Authorization server in a card.

    Attributes:
        server: Its endpoints; None if the card names metadata.
        metadata_url: URL of the metadata; None if the card names endpoints.
        scopes: Scopes that tokens must have.
        scheme: Name of the security scheme.
    """

    server: AuthorizationServer | None
    metadata_url: str | None
    scopes: tuple[str, ...]
    scheme: str


class Discovered(NamedTuple):
    """Metadata of an issuer.

    Attributes:
        server: Its endpoints.
        scope: Network scope of the issuer; its endpoints may be in no more private one.
    """

    server: AuthorizationServer
    scope: NetworkScope


def check_endpoint(url: object, subject: str) -> str:
    """Check a URL to which secrets are sent: https, or on this machine.

    Raises:
        ValueError: The URL is invalid, or not secure.
        TypeError: The value is not a string.
    """
    checked = check_url(url, subject, no_user="pass client_id and client_secret instead")
    parts = urlsplit(checked)
    if parts.scheme != "https" and not is_loopback(parts.hostname or ""):
        text = (
            f"the {subject} {presentable(checked)} must use https, because credentials are sent "
            "there"
        )
        raise ValueError(text)
    return checked


def metadata_addresses(issuer: str) -> tuple[str, ...]:
    """Return the possible metadata URLs of an issuer (RFC 8414, 3.1, 5; OpenID Discovery 4)."""
    parts = urlsplit(issuer)
    base, path = f"{parts.scheme}://{parts.netloc}", parts.path.rstrip("/")
    return tuple(
        dict.fromkeys(
            (
                f"{base}{path}/.well-known/openid-configuration",
                f"{base}/.well-known/oauth-authorization-server{path}",
                f"{base}/.well-known/openid-configuration{path}",
            )
        )
    )


async def discover(
    engine: HttpEngine, issuer: str, *, metadata_url: str | None = None
) -> Discovered:
    """Fetch the metadata of an issuer.

    Args:
        engine: Carries the requests.
        issuer: Identifier of the issuer, which the metadata must repeat; the URL of the metadata
            if a card names only that.
        metadata_url: URL of the metadata; by default below the issuer.

    Raises:
        AuthenticationError: There is no metadata, or it is of another issuer.
        A2AError: An error of the engine.
    """
    refused, tried = "", list[str]()
    server = presentable(issuer if metadata_url is None else _issuer_of_metadata(metadata_url))
    for url in (metadata_url,) if metadata_url is not None else metadata_addresses(issuer):
        request = HttpRequest(
            method="GET",
            url=url,
            headers={"accept": "application/json"},
            timeouts=TIMEOUTS,
            limits=LIMITS,
        )
        try:
            reply, _, scope = await fetch(engine, request, other_origins=False)
        except A2AError as error:
            error.agent = server
            raise
        if reply.status >= 500 or reply.status == 429:
            raise AuthenticationError(
                f"could not get the metadata of the authorization server {server}: "
                f"HTTP {reply.status}",
                http_status=reply.status,
                transient=True,
                executed=False,
                agent=server,
            )
        document = object_in(reply.body) if reply.status == 200 else None
        if document is None:
            is_ok = reply.status == 200
            refused = f"HTTP {reply.status}{', not a JSON object' if is_ok else ''}"
            tried.append(presentable(url))
            continue
        expected = _issuer_of_metadata(url) if metadata_url is not None else issuer
        return Discovered(_server_in(document, expected), scope)
    text = (
        f"{presentable(issuer)} has no authorization server metadata ({refused}) at "
        f"{' or '.join(tried)}{WITHOUT_METADATA}"
    )
    raise AuthenticationError(text, executed=False, agent=server)


def card_server(card: AgentCard, flow: str, trust: FromCard) -> CardServer | None:
    """Return the authorization server in a card for a flow; None if there is none.

    Args:
        card: The card.
        flow: Name of the flow in the card, such as ``client_credentials``.
        trust: The caller's trusted origins.

    Raises:
        CredentialOriginError: The server is not trusted.
        AuthenticationError: An address is invalid.
    """
    required = {
        name: scopes.list
        for needed in card.security_requirements
        for name, scopes in needed.schemes.items()
    }
    names = [trust.scheme] if trust.scheme else [*required, *card.security_schemes]
    for name in dict.fromkeys(names):
        scheme = card.security_schemes.get(name)
        addresses = None if scheme is None else _addresses_for(scheme, flow)
        if addresses is not None:
            _check_trust(addresses, trust, name)
            return _as_card_server(addresses, name, required.get(name, ()))
    return None


def card_server_origins(card: AgentCard, flow: str) -> list[str]:
    """Return the origins of the authorization server in a card, trusted or not."""
    for scheme in card.security_schemes.values():
        addresses = _addresses_for(scheme, flow)
        if addresses is not None:
            urls = [url for url in _urls_in(addresses) if is_http_address(url)]
            return list(dict.fromkeys(map(canonical_origin, urls)))
    return []


_Addresses = dict[str, Any]
"""Endpoints by their names in metadata, or ``metadata_url``; and ``is_pkce_required``."""


def _urls_in(addresses: _Addresses) -> list[str]:
    return [value for value in addresses.values() if isinstance(value, str)]


def _addresses_for(scheme: SecurityScheme, flow: str) -> _Addresses | None:
    oidc, oauth = scheme.open_id_connect_security_scheme, scheme.oauth2_security_scheme
    if oidc is not None and oidc.open_id_connect_url:
        return {"metadata_url": oidc.open_id_connect_url}
    offered = None if oauth is None else getattr(oauth.flows, flow)
    if offered is not None:
        return {
            "token_endpoint": offered.token_url,
            "authorization_endpoint": getattr(offered, "authorization_url", None) or None,
            "device_authorization_endpoint": getattr(offered, "device_authorization_url", None)
            or None,
            "is_pkce_required": getattr(offered, "pkce_required", False),
        }
    if oauth is not None and oauth.oauth2_metadata_url:
        return {"metadata_url": oauth.oauth2_metadata_url}
    return None


def _check_trust(addresses: _Addresses, trust: FromCard, scheme: str) -> None:
    for url in _urls_in(addresses):
        try:
            origin = canonical_origin(check_endpoint(url, "address"))
        except ValueError as error:
            text = f"the card's scheme {scheme!r} cannot be used: {error}"
            raise AuthenticationError(text, schemes=(scheme,), executed=False) from None
        trust.check_origin(origin)


def _as_card_server(addresses: _Addresses, scheme: str, scopes: tuple[str, ...]) -> CardServer:
    metadata_url = addresses.pop("metadata_url", None)
    methods = (PKCE_METHOD,) if addresses.pop("is_pkce_required", False) else ()
    server = (
        AuthorizationServer(**addresses, code_challenge_methods_supported=methods)
        if metadata_url is None
        else None
    )
    return CardServer(server, metadata_url, scopes, scheme)


def object_in(body: bytes) -> dict[str, Any] | None:
    """Return the JSON object in a response; None if it is malformed or too large."""
    try:
        check_json_size(body, LIMITS)
        return codec.as_object(codec.parse(body))
    except (A2AError, ValueError):
        return None


def _issuer_of_metadata(url: str) -> str:
    """Return the issuer of a metadata URL (see `metadata_addresses`)."""
    for path in ("/.well-known/openid-configuration", "/.well-known/oauth-authorization-server"):
        before, separator, after = url.partition(path)
        if separator:
            return before + after
    return canonical_origin(url)


def _server_in(document: Mapping[str, Any], issuer: str) -> AuthorizationServer:
    named_issuer = document.get("issuer")
    if not isinstance(named_issuer, str) or not _is_same(named_issuer, issuer):
        named = text_of(presentable(str(named_issuer or ""))) or "no issuer"
        text = f"OAuth issuer mismatch: the metadata of {presentable(issuer)} is of {named}"
        raise AuthenticationError(text, executed=False)
    values = {name: document.get(name) for name in _ENDPOINTS}
    names_itself = document.get("authorization_response_iss_parameter_supported") is True
    try:
        return AuthorizationServer(
            issuer=named_issuer,
            token_endpoint_auth_methods_supported=_names(
                document.get("token_endpoint_auth_methods_supported")
            ),
            code_challenge_methods_supported=_names(
                document.get("code_challenge_methods_supported")
            ),
            authorization_response_iss_parameter_supported=names_itself,
            **{name: value for name, value in values.items() if value is not None},
        )
    except (ValueError, TypeError) as error:
        text = f"the metadata of {presentable(named_issuer)} cannot be used: {error}"
        raise AuthenticationError(text, executed=False) from None


def _names(listed: object) -> tuple[str, ...]:
    return tuple(map(str, cast("list[object]", listed))) if isinstance(listed, list) else ()


def _is_same(named_issuer: str, issuer: str) -> bool:
    """Return whether both name the same issuer; a final slash does not matter."""
    return named_issuer.removesuffix("/") == issuer.removesuffix("/")
