"""Security requirements of a card, and how requests carry credentials for them (A2A 4.5, 7.3).

A card declares security schemes and lists requirements. A request must satisfy one requirement,
with credentials for all of its schemes. This module evaluates that, without any I/O.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, TypeVar

import msgspec

from holdfast._wire.credentials import (
    Credentials,
    bearer_fault,
    is_cookie_name,
    is_cookie_value,
    is_text,
)
from holdfast._wire.http import check_headers
from holdfast._wire.redaction import secrets_in
from holdfast.errors import AuthenticationError, PermissionDeniedError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from holdfast.types import AgentCard, APIKeySecurityScheme, SecurityScheme

__all__ = [
    "ADVICE",
    "PROTOCOL_HEADERS",
    "Alternative",
    "alternatives",
    "describe_alternative",
    "explain_missing_scheme",
    "explain_refusal",
    "explain_unused_credentials",
    "required_alternatives",
    "unsatisfied_error",
]

ADVICE = ": pass auth="
"""Begins the advice of a 401 for programs; other interfaces word it themselves."""

T = TypeVar("T")

_BASIC = re.compile(r"[^:\x00-\x1f\x7f]*:[^\x00-\x1f\x7f]*")
"""A user, a colon, a password, and no control characters (RFC 7617, 2)."""

_SCHEMES = ("basic", "bearer", "digest", "negotiate")
"""Single words that are a scheme without a credential, not a token without a scheme."""

PROTOCOL_HEADERS = frozenset(
    {
        "accept",
        "a2a-extensions",
        "a2a-version",
        "content-type",
        "user-agent",
        "x-a2a-extensions",
    }
)
"""Headers that every request has."""


class _UnfitError(Exception):
    """A credential does not suit its scheme; the text describes the fault, never the value."""


Carrier = Callable[[str], Credentials]


def _bearer(credential: str) -> Credentials:
    if (fault := bearer_fault(credential)) is not None:
        raise _UnfitError(fault)
    return Credentials(headers={"authorization": f"Bearer {credential}"})


def _basic(credential: str) -> Credentials:
    if not _BASIC.fullmatch(credential) or not is_text(credential):
        text = "not a user:password (RFC 7617)"
        raise _UnfitError(text)
    encoded = base64.b64encode(credential.encode()).decode()
    return Credentials(headers={"authorization": f"Basic {encoded}"})


def _in_header(name: str) -> Carrier | None:
    if not _is_header(name, "") or name.lower() in PROTOCOL_HEADERS:
        return None

    def carry(credential: str) -> Credentials:
        if not _is_header(name, credential):
            text = "not a valid header value"
            raise _UnfitError(text)
        return Credentials(headers={name.lower(): credential})

    return carry


def _in_query(name: str) -> Carrier | None:
    if not name or not is_text(name):
        return None

    def carry(credential: str) -> Credentials:
        if not is_text(credential):
            text = "not valid Unicode"
            raise _UnfitError(text)
        return Credentials(query={name: credential})

    return carry


def _in_cookie(name: str) -> Carrier | None:
    if not is_cookie_name(name):
        return None

    def carry(credential: str) -> Credentials:
        if not is_cookie_value(credential):
            text = "not a valid cookie value (RFC 6265)"
            raise _UnfitError(text)
        return Credentials(cookies={name: credential})

    return carry


def _api_key(scheme: APIKeySecurityScheme) -> Carrier | None:
    in_location = _LOCATIONS.get(scheme.location.lower())
    return None if in_location is None else in_location(scheme.name)


def _is_header(name: str, value: str) -> bool:
    try:
        check_headers({name: value})
    except ValueError:
        return False
    return True


_LOCATIONS: Mapping[str, Callable[[str], Carrier | None]] = {
    "header": _in_header,
    "query": _in_query,
    "cookie": _in_cookie,
}

_HTTP: Mapping[str, Carrier] = {"bearer": _bearer, "basic": _basic}

_KINDS: Mapping[str, Callable[[SecurityScheme], Carrier | None]] = {
    "api_key_security_scheme": lambda s: _if_set(s.api_key_security_scheme, _api_key),
    "http_auth_security_scheme": lambda s: _if_set(
        s.http_auth_security_scheme, lambda http: _HTTP.get(http.scheme.lower())
    ),
    "oauth2_security_scheme": lambda _: _bearer,
    "open_id_connect_security_scheme": lambda _: _bearer,
    "mtls_security_scheme": lambda _: lambda _: Credentials(),  # the connection carries it
}


def _if_set(member: T | None, read: Callable[[T], Carrier | None]) -> Carrier | None:
    return None if member is None else read(member)


def _carrier_of(scheme: SecurityScheme) -> Carrier | None:
    """Return the carrier of a scheme's credentials; None if the scheme is not supported."""
    kind = _kind_of(scheme)
    return None if kind is None else _KINDS[kind](scheme)


def _kind_of(scheme: SecurityScheme) -> str | None:
    """Return the member that defines a scheme; None if there is none, or more than one."""
    kinds = [kind for kind in _KINDS if getattr(scheme, kind) is not None]
    return kinds[0] if len(kinds) == 1 else None


# ── Requirements of a card ───────────────────────────────────────────────────────────────────


class Alternative(msgspec.Struct, frozen=True, kw_only=True):
    """One of a card's security requirements.

    Attributes:
        schemes: Names of the schemes that are needed together.
        carriers: Functions that put a credential into a request, by scheme that takes one. Empty
            if the requirement cannot be satisfied.
        unusable: Schemes that no client can satisfy, with the reason.
    """

    schemes: tuple[str, ...]
    carriers: Mapping[str, Carrier]
    unusable: Mapping[str, str]

    def credentials_from(self, by_scheme: Mapping[str, str | None]) -> Credentials | None:
        """Return credentials that satisfy the requirement.

        Args:
            by_scheme: Credentials by the name of their scheme; None or empty if missing.

        Returns:
            None if a credential is missing, or two need the same header, parameter or cookie.

        Raises:
            AuthenticationError: A credential does not suit its scheme.
        """
        if self.unusable or not all(by_scheme.get(name) for name in self.carriers):
            return None
        combined: Credentials | None = Credentials()
        for name, carry in self.carriers.items():
            try:
                credentials = carry(by_scheme[name] or "")
            except _UnfitError as error:
                raise AuthenticationError(
                    f"the credential for {name!r} is {error}; nothing was sent",
                    schemes=(name,),
                    executed=False,
                ) from None
            combined = combined and combined.joined(credentials)
        return combined


def alternatives(card: AgentCard) -> list[Alternative]:
    """Return the card's requirements in its order, those without credentials last."""
    declared = [_alternative(tuple(r.schemes), card) for r in card.security_requirements]
    return sorted(declared, key=lambda option: not (option.carriers or option.unusable))


def unsatisfied_error(
    card: AgentCard, required: Iterable[Alternative], by_scheme: Mapping[str, str | None]
) -> AuthenticationError:
    """Return the error of a call that satisfies no alternative. No credential is shown."""
    required = list(required)
    schemes = dict.fromkeys(name for option in required for name in option.schemes)
    missing = tuple(name for name in schemes if name in by_scheme and not by_scheme[name])
    unusable = {name: reason for option in required for name, reason in option.unusable.items()}
    reasons = [f"there is no credential for {_listed(missing, 'or')}"] if missing else []
    reasons += [f"{name!r} {reason}" for name, reason in unusable.items()]
    reasons += [
        f"the credentials for {_listed(option.carriers, 'and')} exclude each other"
        for option in required
        if not option.unusable and all(by_scheme.get(name) for name in option.carriers)
    ]
    listed = ", or ".join(_listed(option.schemes, "and") for option in required)
    return AuthenticationError(
        f"agent {card.name!r} requires {listed}: {'; '.join(reasons)}; nothing was sent",
        schemes=tuple(schemes),
        missing=missing,
        executed=False,
    )


def required_alternatives(card: AgentCard) -> list[Alternative]:
    """Return the requirements of an agent that answered 401; else option per declared scheme."""
    required = [option for option in alternatives(card) if option.schemes]
    return required or [_alternative((name,), card) for name in card.security_schemes]


def _is_oauth(card: AgentCard, name: str) -> bool:
    scheme = card.security_schemes.get(name)
    return scheme is not None and scheme.oauth2_security_scheme is not None


def explain_refusal(
    error: AuthenticationError | PermissionDeniedError,
    card: AgentCard,
    headers: Mapping[str, str],
) -> None:
    """Add the card's requirements to a 401, and advice on credentials to a 401 or 403.

    Args:
        error: Error of a call without an `AuthProvider`.
        card: Card of the called agent.
        headers: Headers that were sent, names in lower case; the caller's own may hold
            credentials.
    """
    required = required_alternatives(card)
    credential_headers = {"authorization", "cookie", *_key_headers(card)}
    sent = ", ".join(sorted(credential_headers & headers.keys()))
    if isinstance(error, AuthenticationError) and required:
        verb = "requires" if any(r.schemes for r in card.security_requirements) else "declares"
        listed = ", or ".join(describe_alternative(option, card) for option in required)
        error.message = f"{error.message}; agent {card.name!r} {verb} {listed}"
        error.schemes = tuple(
            dict.fromkeys(name for option in required for name in option.schemes)
        )
        if sent:
            error.message += f", and did not accept the header {sent}"
            explain_missing_scheme(error, headers, card)
            return
        error.missing = tuple(
            dict.fromkeys(name for option in required for name in option.carriers)
        )
    elif not (sent or secrets_in(headers)):
        error.message += "; no credentials were sent"
    else:
        explain_missing_scheme(error, headers, card)
        return
    usable = next((option.carriers for option in required if option.carriers), None)
    if usable is not None:
        example = ", ".join(f"{name!r}: …" for name in usable)
        error.message += f"{ADVICE}SchemeCredentials({{{example}}})"
        if any(_is_oauth(card, name) for option in required for name in option.carriers):
            error.message += ", or a provider such as holdfast.auth.oauth.ClientCredentials(…)"
    elif not required:
        error.message += ADVICE


def explain_missing_scheme(
    error: AuthenticationError | PermissionDeniedError,
    headers: Mapping[str, str],
    card: AgentCard | None,
) -> None:
    """Add to a 401 that the value of ``Authorization`` is a token without a scheme.

    Args:
        error: The refusal; a 403 is not changed.
        headers: Headers that were sent. No value is shown.
        card: Card of the called agent; an API key in ``Authorization`` has no scheme.
    """
    if card is not None and "authorization" in _key_headers(card):
        return
    sent = {name.lower(): value for name, value in headers.items()}
    words = sent.get("authorization", "").lower().split()
    if isinstance(error, AuthenticationError) and len(words) == 1 and words[0] not in _SCHEMES:
        error.message += "; the Authorization header has no scheme: pass 'Bearer <token>'"


def _key_headers(card: AgentCard) -> set[str]:
    """Return the headers of the API keys that a card declares, in lower case."""
    keys = (scheme.api_key_security_scheme for scheme in card.security_schemes.values())
    return {key.name.lower() for key in keys if key is not None}


def explain_unused_credentials(
    error: AuthenticationError | PermissionDeniedError, card: AgentCard
) -> None:
    """Add to a 401 or 403 why an `AuthProvider` sent nothing, if the card requires nothing."""
    if alternatives(card):
        return
    lacks = "requires none" if card.security_schemes else "declares no security schemes"
    error.message += f"; no credentials of auth were sent: the card of agent {card.name!r} {lacks}"


def describe_alternative(alternative: Alternative, card: AgentCard) -> str:
    """Describe the schemes of an alternative, each with its kind."""
    return " and ".join(
        _describe_scheme(name, card.security_schemes.get(name)) for name in alternative.schemes
    )


def _describe_scheme(name: str, scheme: SecurityScheme | None) -> str:
    if scheme is None:
        return f"{name!r}, which the card does not declare"
    kind, http = _kind_of(scheme), scheme.http_auth_security_scheme
    if kind is None or (http is None and _carrier_of(scheme) is None):
        return f"{name!r}, of an unsupported kind"
    description = None if http is None else _HTTP_DESCRIPTIONS.get(http.scheme.lower())
    return (description or _DESCRIPTIONS[kind]).format(name, getattr(scheme, kind))


_DESCRIPTIONS: Mapping[str, str] = {
    "api_key_security_scheme": "the API key {0!r} ({1.location} {1.name!r})",
    "http_auth_security_scheme": "the HTTP credential {0!r} (scheme {1.scheme!r})",
    "oauth2_security_scheme": "the OAuth 2.0 token {0!r}",
    "open_id_connect_security_scheme": "the OpenID Connect token {0!r}",
    "mtls_security_scheme": "the client certificate {0!r}",
}
_HTTP_DESCRIPTIONS: Mapping[str, str] = {
    "bearer": "the bearer token {0!r}",
    "basic": "the user and password {0!r}",
}


def _alternative(names: tuple[str, ...], card: AgentCard) -> Alternative:
    carriers: dict[str, Carrier] = {}
    unusable: dict[str, str] = {}
    for name in names:
        scheme = card.security_schemes.get(name)
        carry = None if scheme is None else _carrier_of(scheme)
        if scheme is None:
            unusable[name] = "is not declared in the card"
        elif carry is None:
            unusable[name] = "is of an unsupported kind"
        elif scheme.mtls_security_scheme is None:
            carriers[name] = carry
    return Alternative(schemes=names, carriers={} if unusable else carriers, unusable=unusable)


def _listed(names: Iterable[str], conjunction: str) -> str:
    return f" {conjunction} ".join(repr(name) for name in names)
