"""Authorization servers: where their endpoints are, and who says so.

Rules: a client secret, a code or a refresh token goes to endpoints that the caller named, that the
metadata of an issuer names which the caller named, or that a card, or metadata that it points to,
names at an origin which the caller trusts; never to where a card alone points. Metadata counts
only if it names the issuer that was asked (RFC 8414, 3.3; OpenID Connect Discovery 4.3). All of
them are https, but for loopback.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, cast
from urllib.parse import urlsplit

import msgspec

from holdfast._arguments import check_url, items
from holdfast._model import codec
from holdfast._model.addresses import is_http_address
from holdfast._model.hosts import is_loopback
from holdfast._model.settings import check_kind
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
    "AuthorizationServer",
    "FromCard",
    "Named",
    "check_endpoint",
    "discover",
    "named_in",
    "named_origins",
    "object_in",
]

LIMITS = Limits(body=256 * 1024)
TIMEOUTS = Timeouts(pool=5.0, connect=5.0, write=5.0, first_byte=15.0, idle=10.0)

PKCE_METHOD = "S256"
"""The only method of PKCE that is used; ``plain`` protects nothing where it is read."""

PKCE_NOT_ADVERTISED = (
    "the authorization server does not advertise PKCE with S256 (RFC 7636), without which a "
    "stolen authorization code can be redeemed"
)
"""What errors say of a server that does not name that method."""

_ENDPOINTS = (
    "token_endpoint",
    "authorization_endpoint",
    "device_authorization_endpoint",
    "revocation_endpoint",
)


class AuthorizationServer(msgspec.Struct, frozen=True, kw_only=True):
    """Where an authorization server is, in the words of its metadata (RFC 8414, 2).

    Attributes:
        token_endpoint: Where tokens come from.
        issuer: How it names itself; None if that is not known.
        authorization_endpoint: Where a person's browser goes, for `AuthorizationCode`.
        device_authorization_endpoint: Where device codes come from, for `DeviceCode`.
        revocation_endpoint: Where tokens are given back (RFC 7009).
        token_endpoint_auth_methods_supported: How clients say who they are there.
        authorization_response_iss_parameter_supported: Whether it names itself in what it
            answers by way of the browser (RFC 9207).
        code_challenge_methods_supported: The PKCE methods of the server (RFC 7636).
            `AuthorizationCode` needs ``S256`` among them, which is the default for a server that
            you describe yourself.

    Raises:
        ValueError: An address that cannot be right, or is not https.
        TypeError: A value of another type.
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
    """The authorization server that an agent's card names, at origins that the caller trusts.

    Args:
        trusted: Origins of authorization servers, such as ``"https://id.example.com"``. What the
            card names elsewhere is never called, and neither are endpoints elsewhere of metadata
            that the card names: whoever writes the card chooses among all that is published there.
        scheme: Name of the security scheme on the card; the first one that fits if left out.

    Raises:
        ValueError: There is no origin, or one that cannot be right.
        TypeError: An argument of another type.
    """

    def __init__(self, trusted: Iterable[str], *, scheme: str | None = None) -> None:
        check_kind("scheme", scheme, (str, type(None)))
        origins = items("trusted", trusted)
        self.trusted = frozenset(
            canonical_origin(check_endpoint(one, "trusted origin")) for one in origins
        )
        if not self.trusted:
            text = "trusted is empty; name the origins of the authorization servers to trust"
            raise ValueError(text)
        self.scheme = scheme

    def check_server(self, server: AuthorizationServer) -> None:
        """Checks that a server whose metadata a card names is trusted with all its endpoints.

        Raises:
            CredentialOriginError: One of them is at an origin that is not.
        """
        for name in _ENDPOINTS:
            url = getattr(server, name)
            if url is not None:
                self.check_origin(canonical_origin(url))

    def check_origin(self, at: str) -> None:
        """Checks that an origin is trusted.

        Raises:
            CredentialOriginError: It is not.
        """
        if at not in self.trusted:
            raise CredentialOriginError(
                f"the card names an authorization server at {at}, which is not among those that "
                f"you trust ({', '.join(sorted(self.trusted))}); nothing was sent there",
                origin=at,
                executed=False,
            )

    def __repr__(self) -> str:
        return f"FromCard({sorted(self.trusted)}, scheme={self.scheme!r})"


class Named(NamedTuple):
    """What a card says of its authorization server.

    Attributes:
        server: Its endpoints; None where it names metadata.
        metadata_url: Where those are to be found.
        scopes: What tokens must be for.
        scheme: Name of the scheme that says so.
    """

    server: AuthorizationServer | None
    metadata_url: str | None
    scopes: tuple[str, ...]
    scheme: str


class Discovered(NamedTuple):
    """What an issuer says of itself.

    Attributes:
        server: Its endpoints.
        asked: Where it lies; its endpoints may lie no further inside.
    """

    server: AuthorizationServer
    asked: NetworkScope


def check_endpoint(url: object, what: str) -> str:
    """Checks an address that gets secrets: https, or on this machine.

    Raises:
        ValueError: It is another one, or cannot be right.
        TypeError: It is no string.
    """
    checked = check_url(url, what, no_user="pass client_id and client_secret instead")
    parts = urlsplit(checked)
    if parts.scheme != "https" and not is_loopback(parts.hostname or ""):
        text = f"the {what} {presentable(checked)} must be https: secrets go there"
        raise ValueError(text)
    return checked


def metadata_addresses(issuer: str) -> tuple[str, ...]:
    """Where an issuer's metadata may be (RFC 8414, 3.1 and 5; OpenID Connect Discovery 4)."""
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


async def discover(engine: HttpEngine, issuer: str, *, at: str | None = None) -> Discovered:
    """Asks an issuer where its endpoints are.

    Args:
        engine: What carries the requests.
        issuer: Its name, which the metadata must repeat; where a card names the metadata alone,
            the address of these.
        at: Where the metadata is; looked for below the issuer if left out.

    Raises:
        AuthenticationError: There is no metadata, or it is somebody else's.
        A2AError: What the engine raises.
    """
    refused = ""
    for url in (at,) if at is not None else metadata_addresses(issuer):
        request = HttpRequest(
            method="GET",
            url=url,
            headers={"accept": "application/json"},
            timeouts=TIMEOUTS,
            limits=LIMITS,
        )
        got = await fetch(engine, request, elsewhere=False)
        if got.reply.status >= 500 or got.reply.status == 429:
            raise AuthenticationError(
                f"the metadata of {presentable(issuer)} was answered by HTTP {got.reply.status}",
                http_status=got.reply.status,
                transient=True,
                executed=False,
            )
        document = object_in(got.reply.body) if got.reply.status == 200 else None
        if document is None:
            is_ok = got.reply.status == 200
            refused = f"HTTP {got.reply.status}{', not a JSON object' if is_ok else ''}"
            continue
        expected = _issuer_of(url) if at is not None else issuer
        return Discovered(_server_in(document, expected), got.scope)
    text = f"{presentable(issuer)} has no metadata of an authorization server ({refused})"
    raise AuthenticationError(text, executed=False)


def named_in(card: AgentCard, flow: str, where: FromCard) -> Named | None:
    """What a card says of the authorization server of a flow; None if it says nothing.

    Args:
        card: The card.
        flow: The flow's name on it, as ``client_credentials``.
        where: Whom the caller trusts.

    Raises:
        CredentialOriginError: It names one that the caller does not trust.
        AuthenticationError: What it names cannot be an address.
    """
    required = {
        name: scopes.list
        for needed in card.security_requirements
        for name, scopes in needed.schemes.items()
    }
    names = [where.scheme] if where.scheme else [*required, *card.security_schemes]
    for name in dict.fromkeys(names):
        scheme = card.security_schemes.get(name)
        found = None if scheme is None else _named(scheme, flow)
        if found is not None:
            _check_trust(found, where, name)
            return _as_named(found, name, required.get(name, ()))
    return None


def named_origins(card: AgentCard, flow: str) -> list[str]:
    """The origins of the authorization server that a card names for a flow, whoever they are."""
    for scheme in card.security_schemes.values():
        found = _named(scheme, flow)
        if found is not None:
            named = [url for url in _addresses(found) if is_http_address(url)]
            return list(dict.fromkeys(map(canonical_origin, named)))
    return []


_Found = dict[str, Any]
"""Addresses by the names of metadata, ``metadata_url`` among them; and ``is_pkce_required``."""


def _addresses(found: _Found) -> list[str]:
    return [value for value in found.values() if isinstance(value, str)]


def _named(scheme: SecurityScheme, flow: str) -> _Found | None:
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


def _check_trust(found: _Found, where: FromCard, scheme: str) -> None:
    for url in _addresses(found):
        try:
            at = canonical_origin(check_endpoint(url, "address"))
        except ValueError as error:
            text = f"the card's scheme {scheme!r} cannot be used: {error}"
            raise AuthenticationError(text, schemes=(scheme,), executed=False) from None
        where.check_origin(at)


def _as_named(found: _Found, scheme: str, scopes: tuple[str, ...]) -> Named:
    metadata_url = found.pop("metadata_url", None)
    methods = (PKCE_METHOD,) if found.pop("is_pkce_required", False) else ()
    server = (
        AuthorizationServer(**found, code_challenge_methods_supported=methods)
        if metadata_url is None
        else None
    )
    return Named(server, metadata_url, scopes, scheme)


def object_in(body: bytes) -> dict[str, Any] | None:
    """The JSON object that a server answered; None if it is none, or too large."""
    try:
        check_json_size(body, LIMITS)
        return codec.as_object(codec.parse(body))
    except (A2AError, ValueError):
        return None


def _issuer_of(url: str) -> str:
    """The issuer whose metadata stand at an address (see `metadata_addresses`)."""
    for known in ("/.well-known/openid-configuration", "/.well-known/oauth-authorization-server"):
        before, found, after = url.partition(known)
        if found:
            return before + after
    return canonical_origin(url)


def _server_in(document: Mapping[str, Any], issuer: str) -> AuthorizationServer:
    said = document.get("issuer")
    if not isinstance(said, str) or not _is_same(said, issuer):
        text = f"the metadata is not that of {presentable(issuer)}: it names another issuer"
        raise AuthenticationError(text, executed=False)
    values = {name: document.get(name) for name in _ENDPOINTS}
    names_itself = document.get("authorization_response_iss_parameter_supported") is True
    try:
        return AuthorizationServer(
            issuer=said,
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
        text = f"the metadata of {presentable(said)} cannot be used: {error}"
        raise AuthenticationError(text, executed=False) from None


def _names(listed: object) -> tuple[str, ...]:
    return tuple(map(str, cast("list[object]", listed))) if isinstance(listed, list) else ()


def _is_same(said: str, issuer: str) -> bool:
    """Whether they name the same issuer; callers leave out the slash at the end, or add one."""
    return said.removesuffix("/") == issuer.removesuffix("/")
