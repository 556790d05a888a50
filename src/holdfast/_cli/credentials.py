"""Credentials of the command line, carried as the agent's card declares (A2A 7.3, 4.5).

Rules: the card is fetched without them, even where its server asks for them: no card declares yet
what takes them (a2a-cli, AUTH_008). A server that the caller named by ``--credential-origin`` gets
a token that it asks for. Then they go with each request, in a header, a cookie or the query, and
to the agent's own origin only; the token of a login only if the card asks for one. To the address
of the extended card go those that the card declares a scheme for (a2a-cli 12.4).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from holdfast._model.operations import GET_AGENT_CARD, GET_EXTENDED_AGENT_CARD
from holdfast._wire.challenges import bearer_challenge
from holdfast._wire.credentials import Credentials as Carried
from holdfast._wire.credentials import is_cookie_name, is_cookie_value
from holdfast._wire.http import check_headers
from holdfast._wire.security import describe_alternative, required_alternatives
from holdfast.errors import InvalidAgentCardError
from holdfast.types import APIKeySecurityScheme, HTTPAuthSecurityScheme, SecurityScheme

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from holdfast._pipeline.transport import AnyCall
    from holdfast._wire.security import Alternative
    from holdfast.errors import AuthenticationError
    from holdfast.types import AgentCard

__all__ = ["Credentials", "Need", "Way", "asks_for_token", "ways_in"]

_DEFAULT_HEADER = "X-API-Key"


class Credentials:
    """A bearer token and an API key, as an `AuthProvider`.

    Args:
        bearer: The token, if there is one.
        api_key: The key, if there is one.
        answers: Whether a card's server that asks for a token gets it, though its card is not
            known yet: the caller named it as one that credentials are for.
    """

    def __init__(self, bearer: str | None, api_key: str | None, *, answers: bool = False) -> None:
        self._answers = answers
        self._bearer = {} if bearer is None else {"authorization": f"Bearer {bearer}"}
        self._api_key = api_key
        self._key = Carried()
        self._has_card = False
        self._untaken: set[str] = set()
        self._card_is_guarded = False

    def fit(self, card: AgentCard) -> None:
        """Learns from the card where the key goes.

        Raises:
            InvalidAgentCardError: The card declares a place that there is not.
            ValueError: The key cannot stand where the card wants it.
        """
        self._has_card = True
        fitting = _key_scheme(card)
        taken = {_need(scheme, fitting).flag for scheme in card.security_schemes.values()}
        if any(one.api_key_security_scheme is not None for one in card.security_schemes.values()):
            taken.add("--api-key")
        self._untaken = {"--bearer", "--api-key"} - taken
        if self._api_key is None:
            return
        scheme = _key_scheme(card)
        if scheme is None:
            self._key = Carried(headers={_DEFAULT_HEADER: self._api_key})
            return
        carry = _PLACES.get(scheme.location.lower())
        if not scheme.name or carry is None:
            raise InvalidAgentCardError(
                f"the agent card wants its API key in {scheme.location!r} under the name "
                f"{scheme.name!r}; there are header, query and cookie",
                field="securitySchemes",
                executed=False,
            )
        self._key = carry(scheme.name, self._api_key)

    @property
    def undeclared(self) -> set[str]:
        """The flags whose credentials no scheme of the card takes, of those that are given."""
        given = {"--bearer": bool(self._bearer), "--api-key": self._api_key is not None}
        return {flag for flag in self._untaken if given[flag]}

    async def credentials(self, call: AnyCall, /) -> Carried:
        """What a call carries."""
        if call.operation is GET_AGENT_CARD:
            return Carried(headers=self._bearer if self._card_is_guarded else {})
        if call.operation.name == GET_EXTENDED_AGENT_CARD.name:
            bearer = {} if "--bearer" in self._untaken else self._bearer
            key = Carried() if "--api-key" in self._untaken else self._key
            return Carried(headers={**bearer, **key.headers}, query=key.query, cookies=key.cookies)
        return Carried(
            headers={**self._bearer, **self._key.headers},
            query=self._key.query,
            cookies=self._key.cookies,
        )

    async def on_unauthorized(self, _call: AnyCall, error: AuthenticationError, /) -> bool:
        """Show the token to a card's server that asks for one, if the caller named it for that."""
        asked = self._answers and bearer_challenge(error.headers) is not None
        self._card_is_guarded = asked and bool(self._bearer) and not self._has_card
        return self._card_is_guarded


def _in_header(name: str, key: str) -> Carried:
    try:
        return Carried(headers=check_headers({name: key}))
    except ValueError as error:
        raise InvalidAgentCardError(
            f"the agent card wants its API key in a header that cannot be: {error}",
            field="securitySchemes",
            executed=False,
        ) from None


def _in_query(name: str, key: str) -> Carried:
    return Carried(query={name: key})


def _in_cookie(name: str, key: str) -> Carried:
    if not (is_cookie_name(name) and is_cookie_value(key)):
        message = "the agent wants its API key in a cookie, which cannot hold this one"
        raise ValueError(message)
    return Carried(cookies={name: key})


_PLACES: Mapping[str, Callable[[str, str], Carried]] = {
    "header": _in_header,
    "query": _in_query,
    "cookie": _in_cookie,
}


class Need(NamedTuple):
    """One of the credentials that an agent asks for together.

    Attributes:
        flag: What gives it; None if nothing does.
        header: The header that carries it, which a service parameter can be.
        param: For ``--svc-param``: what to write.
    """

    flag: str | None
    header: str | None = None
    param: str = ""


class Way(NamedTuple):
    """One of the things that an agent asks for, any of which is enough.

    Attributes:
        words: What it is.
        needs: What it takes, all of it together.
        hindrance: Why the command line cannot give it; None if it can.
    """

    words: str
    needs: tuple[Need, ...]
    hindrance: str | None


def ways_in(card: AgentCard) -> list[Way]:
    """What the card asks for or, if it asks for nothing, what it declares."""
    return [_way(one, card) for one in required_alternatives(card)]


def asks_for_token(card: AgentCard) -> bool:
    """Return whether a card, or a skill on it, asks for a bearer token of any kind.

    A card that requires nothing asks for what it declares.
    """
    by_skills = (one for skill in card.skills for one in skill.security_requirements)
    names = {name for one in required_alternatives(card) for name in one.schemes}
    names.update(name for one in by_skills for name in one.schemes)
    schemes = (card.security_schemes.get(name) for name in names)
    return any(scheme is not None and _takes_token(scheme) for scheme in schemes)


def _takes_token(scheme: SecurityScheme) -> bool:
    http = scheme.http_auth_security_scheme
    return (
        scheme.oauth2_security_scheme is not None
        or scheme.open_id_connect_security_scheme is not None
        or (http is not None and http.scheme.lower() == "bearer")
    )


def _way(one: Alternative, card: AgentCard) -> Way:
    schemes = [card.security_schemes.get(name) for name in one.schemes]
    needs = tuple(dict.fromkeys(_need(scheme, _key_scheme(card)) for scheme in schemes))
    hindrance = None
    if one.unusable or Need(None) in needs or len({_BEARER, _BASIC} & {*needs}) > 1:
        hindrance = "the command line cannot give that"
    elif not all(need.flag for need in needs):
        hindrance = "the command line can give only one API key"
    return Way(describe_alternative(one, card), needs, hindrance)


def _need(scheme: SecurityScheme | None, fitting: APIKeySecurityScheme | None) -> Need:
    """What gives a credential; the API key goes where one scheme wants it, others aside."""
    match scheme:
        case SecurityScheme(api_key_security_scheme=APIKeySecurityScheme() as key):
            location = key.location.lower()
            header = key.name.lower() if location == "header" else location
            if key == fitting:
                return Need("--api-key", header)
            param = f"{key.name}:<key>"
            return Need("--svc-param" if location == "header" else None, header, param)
        case SecurityScheme(http_auth_security_scheme=HTTPAuthSecurityScheme() as http):
            return _HTTP.get(http.scheme.lower(), Need(None))
        case SecurityScheme(mtls_security_scheme=None):
            return _BEARER
        case _:
            return Need(None)


_BEARER = Need("--bearer", "authorization")
_BASIC = Need("--svc-param", "authorization", "Authorization:Basic <user:password in base64>")
_HTTP = {"bearer": _BEARER, "basic": _BASIC}


def _key_scheme(card: AgentCard) -> APIKeySecurityScheme | None:
    """The API key scheme that the card requires, else the first one that it knows."""
    required = [name for needed in card.security_requirements for name in needed.schemes]
    for name in (*required, *card.security_schemes):
        scheme = card.security_schemes.get(name)
        if scheme is not None and scheme.api_key_security_scheme is not None:
            return scheme.api_key_security_scheme
    return None
