"""Which credentials a card asks for, and how each is carried (A2A 4.5, 7.3).

A card names its security schemes, and lists requirements: one of them is enough, and it is met by
all of its schemes together. What follows from that is decided here, without asking anybody.
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
"""Begins what a program can do about a 401; others say it in their own words."""

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
"""Headers that every request has already."""


class _UnfitError(Exception):
    """A credential cannot be carried; the text says what it is not, and never what it is."""


Carry = Callable[[str], Credentials]


def _bearer(credential: str) -> Credentials:
    if (fault := bearer_fault(credential)) is not None:
        raise _UnfitError(fault)
    return Credentials(headers={"authorization": f"Bearer {credential}"})


def _basic(credential: str) -> Credentials:
    if not _BASIC.fullmatch(credential) or not is_text(credential):
        text = "no user:password (RFC 7617)"
        raise _UnfitError(text)
    encoded = base64.b64encode(credential.encode()).decode()
    return Credentials(headers={"authorization": f"Basic {encoded}"})


def _in_header(name: str) -> Carry | None:
    if not _is_header(name, "") or name.lower() in PROTOCOL_HEADERS:
        return None

    def carry(credential: str) -> Credentials:
        if not _is_header(name, credential):
            text = "nothing that a header can hold"
            raise _UnfitError(text)
        return Credentials(headers={name.lower(): credential})

    return carry


def _in_query(name: str) -> Carry | None:
    if not name or not is_text(name):
        return None

    def carry(credential: str) -> Credentials:
        if not is_text(credential):
            text = "no text that can be encoded"
            raise _UnfitError(text)
        return Credentials(query={name: credential})

    return carry


def _in_cookie(name: str) -> Carry | None:
    if not is_cookie_name(name):
        return None

    def carry(credential: str) -> Credentials:
        if not is_cookie_value(credential):
            text = "nothing that a cookie can hold (RFC 6265)"
            raise _UnfitError(text)
        return Credentials(cookies={name: credential})

    return carry


def _api_key(scheme: APIKeySecurityScheme) -> Carry | None:
    place = _PLACES.get(scheme.location.lower())
    return None if place is None else place(scheme.name)


def _is_header(name: str, value: str) -> bool:
    try:
        check_headers({name: value})
    except ValueError:
        return False
    return True


_PLACES: Mapping[str, Callable[[str], Carry | None]] = {
    "header": _in_header,
    "query": _in_query,
    "cookie": _in_cookie,
}

_HTTP: Mapping[str, Carry] = {"bearer": _bearer, "basic": _basic}

_KINDS: Mapping[str, Callable[[SecurityScheme], Carry | None]] = {
    "api_key_security_scheme": lambda s: _if_set(s.api_key_security_scheme, _api_key),
    "http_auth_security_scheme": lambda s: _if_set(
        s.http_auth_security_scheme, lambda http: _HTTP.get(http.scheme.lower())
    ),
    "oauth2_security_scheme": lambda _: _bearer,
    "open_id_connect_security_scheme": lambda _: _bearer,
    "mtls_security_scheme": lambda _: lambda _: Credentials(),  # the connection carries it
}


def _if_set(member: T | None, read: Callable[[T], Carry | None]) -> Carry | None:
    return None if member is None else read(member)


def _carry_of(scheme: SecurityScheme) -> Carry | None:
    """How a scheme carries a credential; None if this client cannot know."""
    kind = _kind_of(scheme)
    return None if kind is None else _KINDS[kind](scheme)


def _kind_of(scheme: SecurityScheme) -> str | None:
    """The one member that says what a scheme is; None if there is none, or there are more."""
    kinds = [kind for kind in _KINDS if getattr(scheme, kind) is not None]
    return kinds[0] if len(kinds) == 1 else None


# ── Choosing among the requirements of a card ────────────────────────────────────────────────


class Alternative(msgspec.Struct, frozen=True, kw_only=True):
    """One of a card's security requirements.

    Attributes:
        schemes: Names of the schemes that meet it together.
        carries: For those that take a credential: how it is carried. Empty where it cannot be met.
        hindrances: What is wrong with those that nobody can satisfy, by name.
    """

    schemes: tuple[str, ...]
    carries: Mapping[str, Carry]
    hindrances: Mapping[str, str]

    def met_by(self, held: Mapping[str, str | None]) -> Credentials | None:
        """What meets it; None if something is missing, or goes where something else goes.

        Args:
            held: Credentials by the name of their scheme; None or empty for one that there is
                not.

        Raises:
            AuthenticationError: A credential is nothing that its scheme can carry.
        """
        if self.hindrances or not all(held.get(name) for name in self.carries):
            return None
        together: Credentials | None = Credentials()
        for name, carry in self.carries.items():
            try:
                one = carry(held[name] or "")
            except _UnfitError as error:
                raise AuthenticationError(
                    f"the credential for {name!r} is {error}; nothing was sent",
                    schemes=(name,),
                    executed=False,
                ) from None
            together = together and together.joined(one)
        return together


def alternatives(card: AgentCard) -> list[Alternative]:
    """What the card asks for, the best first: its own order, but what needs no credential last.

    Empty if it asks for nothing.
    """
    found = [_alternative(tuple(r.schemes), card) for r in card.security_requirements]
    return sorted(found, key=lambda one: not (one.carries or one.hindrances))


def unsatisfied_error(
    card: AgentCard, asked: Iterable[Alternative], held: Mapping[str, str | None]
) -> AuthenticationError:
    """The error of a call that meets none of the alternatives. No value is shown."""
    asked = list(asked)
    schemes = dict.fromkeys(name for one in asked for name in one.schemes)
    missing = tuple(name for name in schemes if name in held and not held[name])
    hindrances = {name: why for one in asked for name, why in one.hindrances.items()}
    reasons = [f"there is no credential for {_listed(missing, 'or')}"] if missing else []
    reasons += [f"{name!r} {why}" for name, why in hindrances.items()]
    reasons += [
        f"the credentials for {_listed(one.carries, 'and')} exclude each other"
        for one in asked
        if not one.hindrances and all(held.get(name) for name in one.carries)
    ]
    listed = ", or ".join(_listed(one.schemes, "and") for one in asked)
    return AuthenticationError(
        f"agent {card.name!r} asks for {listed}: {'; '.join(reasons)}; nothing was sent",
        schemes=tuple(schemes),
        missing=missing,
        executed=False,
    )


def required_alternatives(card: AgentCard) -> list[Alternative]:
    """What an agent may have missed that answers 401: what its card asks for, else declares."""
    asked = [one for one in alternatives(card) if one.schemes]
    return asked or [_alternative((name,), card) for name in card.security_schemes]


def explain_refusal(
    error: AuthenticationError | PermissionDeniedError,
    card: AgentCard,
    headers: Mapping[str, str],
) -> None:
    """Adds to a 401 what the card asks for, and to it or a 403 how to pass credentials.

    Args:
        error: It was sent without an `AuthProvider`.
        card: Of the agent that was called.
        headers: What was sent, names in lower case; the caller's own may hold credentials.
    """
    found = required_alternatives(card)
    places = {"authorization", "cookie", *_key_headers(card)}
    given = ", ".join(sorted(places & headers.keys()))
    if isinstance(error, AuthenticationError) and found:
        verb = "asks for" if any(r.schemes for r in card.security_requirements) else "declares"
        named = ", or ".join(describe_alternative(one, card) for one in found)
        error.message = f"{error.message}; agent {card.name!r} {verb} {named}"
        error.schemes = tuple(dict.fromkeys(name for one in found for name in one.schemes))
        if given:
            error.message += f", and did not take what was sent in the header {given}"
            explain_missing_scheme(error, headers, card)
            return
        error.missing = tuple(dict.fromkeys(name for one in found for name in one.carries))
    elif not (given or secrets_in(headers)):
        error.message += "; no credentials were sent"
    else:
        explain_missing_scheme(error, headers, card)
        return
    within_reach = next((one.carries for one in found if one.carries), None)
    if within_reach is not None:
        held = ", ".join(f"{name!r}: …" for name in within_reach)
        error.message += f"{ADVICE}SchemeCredentials({{{held}}})"
    elif not found:
        error.message += ADVICE


def explain_missing_scheme(
    error: AuthenticationError | PermissionDeniedError,
    headers: Mapping[str, str],
    card: AgentCard | None,
) -> None:
    """Add to a 401 that the value of ``Authorization`` is a token without a scheme.

    Args:
        error: The refusal; a 403 stays as it is.
        headers: What was sent. No value is shown.
        card: Of the agent that was called; an API key that it wants there has no scheme.
    """
    if card is not None and "authorization" in _key_headers(card):
        return
    sent = {name.lower(): value for name, value in headers.items()}
    words = sent.get("authorization", "").lower().split()
    if isinstance(error, AuthenticationError) and len(words) == 1 and words[0] not in _SCHEMES:
        error.message += (
            "; the Authorization header that was sent names no scheme: write 'Bearer <token>'"
        )


def _key_headers(card: AgentCard) -> set[str]:
    """The names of API keys that a card declares, in lower case."""
    keys = (scheme.api_key_security_scheme for scheme in card.security_schemes.values())
    return {key.name.lower() for key in keys if key is not None}


def explain_unused_credentials(
    error: AuthenticationError | PermissionDeniedError, card: AgentCard
) -> None:
    """Adds to a 401 or 403 why an `AuthProvider` gave nothing, if the card wants nothing."""
    if alternatives(card):
        return
    lacks = "requires none" if card.security_schemes else "declares no security schemes"
    error.message += (
        f"; none of the credentials in auth were used: the card of agent {card.name!r} {lacks}"
    )


def describe_alternative(one: Alternative, card: AgentCard) -> str:
    """The schemes of an alternative, each with its kind."""
    return " and ".join(_named(name, card.security_schemes.get(name)) for name in one.schemes)


def _named(name: str, scheme: SecurityScheme | None) -> str:
    if scheme is None:
        return f"{name!r}, which it does not declare"
    kind, http = _kind_of(scheme), scheme.http_auth_security_scheme
    if kind is None or (http is None and _carry_of(scheme) is None):
        return f"{name!r}, of a kind that this client does not know"
    words = None if http is None else _HTTP_WORDS.get(http.scheme.lower())
    return (words or _WORDS[kind]).format(name, getattr(scheme, kind))


_WORDS: Mapping[str, str] = {
    "api_key_security_scheme": "the API key {0!r} ({1.location} {1.name!r})",
    "http_auth_security_scheme": "the HTTP credential {0!r} (scheme {1.scheme!r})",
    "oauth2_security_scheme": "the OAuth 2.0 token {0!r}",
    "open_id_connect_security_scheme": "the OpenID Connect token {0!r}",
    "mtls_security_scheme": "the client certificate {0!r}",
}
_HTTP_WORDS: Mapping[str, str] = {
    "bearer": "the bearer token {0!r}",
    "basic": "the user and password {0!r}",
}


def _alternative(names: tuple[str, ...], card: AgentCard) -> Alternative:
    carries: dict[str, Carry] = {}
    hindrances: dict[str, str] = {}
    for name in names:
        scheme = card.security_schemes.get(name)
        carry = None if scheme is None else _carry_of(scheme)
        if scheme is None:
            hindrances[name] = "is not declared among its schemes"
        elif carry is None:
            hindrances[name] = "is of a kind that this client does not know"
        elif scheme.mtls_security_scheme is None:
            carries[name] = carry
    return Alternative(schemes=names, carries={} if hindrances else carries, hindrances=hindrances)


def _listed(names: Iterable[str], word: str) -> str:
    return f" {word} ".join(repr(name) for name in names)
