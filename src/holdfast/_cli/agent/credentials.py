"""Credentials: which of them an agent gets, and how the agent's card wants them sent.

Rules:
- Each source binds its own credentials: to the agents that its ``A2ACLI_CREDENTIAL_ORIGIN`` names,
  else to the agent that it names itself. A source that names neither, such as a flag, binds them
  to the agent that the user names, in any of the user's own sources.
- No credential goes to an agent that only a found file names.
- ``--credential-origin`` on the command line adds agents for all credentials.
- A withheld credential is reported, and the command continues without it.
- The card is fetched without credentials, even if its server asks for them: no card has declared
  the schemes that take them (a2a-cli, AUTH_008). A server that the caller named by
  ``--credential-origin`` gets a token if it asks for one.
- Then credentials are sent with each request, in a header, a cookie or the query, as the card
  declares (A2A 7.3, 4.5), and to the agent's own origin only; the token of a login only if the
  card asks for one. The address of the extended card gets those that the card declares a scheme
  for (a2a-cli 12.4).
"""

from __future__ import annotations

import re
import shlex
from typing import TYPE_CHECKING, NamedTuple

from holdfast._cli.agent.reference import read_reference
from holdfast._cli.options.configuration import DEFAULT, FLAG, PREFIX
from holdfast._cli.options.masking import masked_reference
from holdfast._cli.options.parameters import setting_beside
from holdfast._cli.output.base import Notice
from holdfast._model.operations import GET_AGENT_CARD, GET_EXTENDED_AGENT_CARD
from holdfast._wire.credentials import Credentials as Carried
from holdfast._wire.credentials import is_cookie_name, is_cookie_value
from holdfast._wire.http import check_headers
from holdfast._wire.origins import canonical_origin
from holdfast._wire.security import describe_alternative, required_alternatives
from holdfast.errors import A2AError, InvalidAgentCardError
from holdfast.types import APIKeySecurityScheme, HTTPAuthSecurityScheme, SecurityScheme

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    import click

    from holdfast._cli.options.configuration import Source
    from holdfast._cli.options.settings import Settings
    from holdfast._cli.output.base import Output
    from holdfast._pipeline.transport import AnyCall
    from holdfast._wire.security import Alternative
    from holdfast.errors import AuthenticationError
    from holdfast.types import AgentCard

__all__ = [
    "CredentialSet",
    "Credentials",
    "RequiredCredential",
    "accepted_credentials",
    "asks_for_token",
    "bind",
    "origin_of",
]

_DEFAULT_HEADER = "X-API-Key"


class Credentials:
    """A bearer token and an API key, as an `AuthProvider`.

    Args:
        bearer: The token, if there is one.
        api_key: The key, if there is one.
        answers: Whether a card's server that asks for a token gets it before its card is known:
            the caller named it by ``--credential-origin``.
    """

    def __init__(self, bearer: str | None, api_key: str | None, *, answers: bool = False) -> None:
        self._answers = answers
        self._bearer = {} if bearer is None else {"authorization": f"Bearer {bearer}"}
        self._api_key = api_key
        self._key = Carried()
        self._has_card = False
        self._untaken: set[str] = set()
        self._card_is_guarded = False

    def adapt_to_card(self, card: AgentCard) -> None:
        """Learn from the card where the API key is sent.

        Raises:
            InvalidAgentCardError: The card declares a location that does not exist.
            ValueError: The key cannot be sent where the card wants it.
        """
        self._has_card = True
        fitting = _key_scheme(card)
        declared_flags = {
            _required_credential(scheme, fitting).flag for scheme in card.security_schemes.values()
        }
        if any(
            scheme.api_key_security_scheme is not None for scheme in card.security_schemes.values()
        ):
            declared_flags.add("--api-key")
        self._untaken = {"--bearer", "--api-key"} - declared_flags
        if self._api_key is None:
            return
        scheme = _key_scheme(card)
        if scheme is None:
            self._key = Carried(headers={_DEFAULT_HEADER: self._api_key})
            return
        carry = _LOCATIONS.get(scheme.location.lower())
        if not scheme.name or carry is None:
            raise InvalidAgentCardError(
                f"the agent card declares its API key in {scheme.location!r}, named "
                f"{scheme.name!r}; valid are header, query and cookie",
                field="securitySchemes",
                executed=False,
            )
        self._key = carry(scheme.name, self._api_key)

    @property
    def undeclared(self) -> set[str]:
        """The flags of the credentials that no scheme of the card takes."""
        is_given = {"--bearer": bool(self._bearer), "--api-key": self._api_key is not None}
        return {flag for flag in self._untaken if is_given[flag]}

    async def credentials(self, call: AnyCall, /) -> Carried:
        """Return the credentials of a call."""
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
        """Send the token to a card's server that asks for one, if the caller named that server."""
        from holdfast._wire.challenges import bearer_challenge  # only after a 401

        is_requested = self._answers and bearer_challenge(error.headers) is not None
        self._card_is_guarded = is_requested and bool(self._bearer) and not self._has_card
        return self._card_is_guarded


def _in_header(name: str, key: str) -> Carried:
    try:
        return Carried(headers=check_headers({name: key}))
    except ValueError as error:
        raise InvalidAgentCardError(
            f"the agent card declares its API key in an invalid header: {error}",
            field="securitySchemes",
            executed=False,
        ) from None


def _in_query(name: str, key: str) -> Carried:
    return Carried(query={name: key})


def _in_cookie(name: str, key: str) -> Carried:
    if not (is_cookie_name(name) and is_cookie_value(key)):
        message = (
            "the agent card declares its API key in a cookie, and this key has characters that "
            "a cookie must not contain"
        )
        raise ValueError(message)
    return Carried(cookies={name: key})


_LOCATIONS: Mapping[str, Callable[[str, str], Carried]] = {
    "header": _in_header,
    "query": _in_query,
    "cookie": _in_cookie,
}


class RequiredCredential(NamedTuple):
    """One of several credentials that an agent requires together.

    Attributes:
        flag: The flag that supplies it; None if none does.
        header: The header that carries it; it can be a service parameter.
        param: The value for ``--svc-param``.
    """

    flag: str | None
    header: str | None = None
    param: str = ""


class CredentialSet(NamedTuple):
    """One of several alternatives, any of which satisfies the agent.

    Attributes:
        words: A description.
        needs: The credentials that it requires, all of them together.
        obstacle: Why the command line cannot supply it; None if it can.
    """

    words: str
    needs: tuple[RequiredCredential, ...]
    obstacle: str | None


def accepted_credentials(card: AgentCard) -> list[CredentialSet]:
    """Return the alternatives that the card requires or, if it requires none, declares."""
    return [_credential_set(alternative, card) for alternative in required_alternatives(card)]


def asks_for_token(card: AgentCard) -> bool:
    """Return whether a card, or a skill on it, asks for a bearer token of any kind.

    A card that requires nothing asks for what it declares.
    """
    by_skills = (
        requirement for skill in card.skills for requirement in skill.security_requirements
    )
    names = {name for requirement in required_alternatives(card) for name in requirement.schemes}
    names.update(name for requirement in by_skills for name in requirement.schemes)
    schemes = (card.security_schemes.get(name) for name in names)
    return any(scheme is not None and _takes_token(scheme) for scheme in schemes)


def _takes_token(scheme: SecurityScheme) -> bool:
    http = scheme.http_auth_security_scheme
    return (
        scheme.oauth2_security_scheme is not None
        or scheme.open_id_connect_security_scheme is not None
        or (http is not None and http.scheme.lower() == "bearer")
    )


def _credential_set(alternative: Alternative, card: AgentCard) -> CredentialSet:
    schemes = [card.security_schemes.get(name) for name in alternative.schemes]
    needs = tuple(
        dict.fromkeys(_required_credential(scheme, _key_scheme(card)) for scheme in schemes)
    )
    obstacle = None
    if (
        alternative.unusable
        or RequiredCredential(None) in needs
        or len({_BEARER, _BASIC} & {*needs}) > 1
    ):
        obstacle = "the command line does not support that"
    elif not all(need.flag for need in needs):
        obstacle = "the command line sends only one API key"
    return CredentialSet(describe_alternative(alternative, card), needs, obstacle)


def _required_credential(
    scheme: SecurityScheme | None, fitting: APIKeySecurityScheme | None
) -> RequiredCredential:
    """Return the source of a credential; the API key is for one scheme, other keys are not."""
    match scheme:
        case SecurityScheme(api_key_security_scheme=APIKeySecurityScheme() as key):
            location = key.location.lower()
            header = key.name.lower() if location == "header" else location
            if key == fitting:
                return RequiredCredential("--api-key", header)
            param = f"{key.name}:<key>"
            return RequiredCredential(
                "--svc-param" if location == "header" else None, header, param
            )
        case SecurityScheme(http_auth_security_scheme=HTTPAuthSecurityScheme() as http):
            return _HTTP.get(http.scheme.lower(), RequiredCredential(None))
        case SecurityScheme(mtls_security_scheme=None):
            return _BEARER
        case _:
            return RequiredCredential(None)


_BEARER = RequiredCredential("--bearer", "authorization")
_BASIC = RequiredCredential(
    "--svc-param", "authorization", "Authorization:Basic <user:password in base64>"
)
_HTTP = {"bearer": _BEARER, "basic": _BASIC}


def _key_scheme(card: AgentCard) -> APIKeySecurityScheme | None:
    """Return the API key scheme that the card requires, else the first one that it declares."""
    required = [name for needed in card.security_requirements for name in needed.schemes]
    for name in (*required, *card.security_schemes):
        scheme = card.security_schemes.get(name)
        if scheme is not None and scheme.api_key_security_scheme is not None:
            return scheme.api_key_security_scheme
    return None


_CREDENTIALS = (
    "bearer",
    "api_key",
    "svc_param",
    "client_cert",
    "client_key",
    "push_token",
    "push_credentials",
)
"""Options whose values are credentials."""

_ORIGIN = f"{PREFIX}CREDENTIAL_ORIGIN"
_AGENTS = (f"{PREFIX}AGENT_CARD", f"{PREFIX}ENDPOINT")


def bind(
    ctx: click.Context, settings: Settings, reference: str | Path, output: Output
) -> Settings:
    """Remove the credentials that are not for an agent from the settings, and report them.

    Args:
        ctx: The command's context.
        settings: The settings, as they were read.
        reference: Where the agent's card is.
        output: Where withheld credentials are reported.

    Returns:
        The settings without the withheld credentials; `Settings.withheld` has the reasons.
    """
    origin = _origin_of_reference(reference)
    agent = _Agent(settings.agent_card, settings.agent_source, origin)
    withheld: dict[str, str] = {}
    for name in _CREDENTIALS:
        source = settings.sources.get(name)
        if source is None or source is DEFAULT:
            continue
        reason = _reason(ctx, settings, source, agent)
        if reason is not None:
            withheld[name] = f"{settings.named[name]} is not sent: {reason}"
            output.emit(Notice.warning(withheld[name]))
    without_certificate = withheld.keys() & {"client_cert", "client_key"}
    return settings._replace(
        bearer=None if "bearer" in withheld else settings.bearer,
        api_key=None if "api_key" in withheld else settings.api_key,
        svc_params={} if "svc_param" in withheld else settings.svc_params,
        client_cert=None if without_certificate else settings.client_cert,
        client_key=None if without_certificate else settings.client_key,
        withheld=withheld,
        bound_to=agent.origin,
        is_credential_origin=any(
            agent.is_named_by(named) for named in settings.credential_origins
        ),
    )


def origin_of(card: AgentCard) -> str | None:
    """Return the origin that a card from a file stands for: that of its first interface."""
    try:
        return canonical_origin(card.supported_interfaces[0].url)
    except (IndexError, ValueError):
        return None


class _Agent(NamedTuple):
    """The agent of a command.

    Attributes:
        text: The reference, as written.
        source: Where it is named.
        origin: Its origin; None if unknown.
    """

    text: str
    source: Source
    origin: str | None

    def is_named_by(self, text: str) -> bool:
        """Return whether a reference names this agent, too."""
        if self.source.is_trusted and text.strip() == self.text.strip():
            return True
        try:
            reference = read_reference(text)
            return isinstance(reference, str) and canonical_origin(reference) == self.origin
        except ValueError:
            return False


def _reason(ctx: click.Context, settings: Settings, source: Source, agent: _Agent) -> str | None:
    """Return why a credential from a source does not go to an agent; None if it does."""
    if settings.sources["credential_origins"] is FLAG:
        more = settings.credential_origins
        if any(agent.is_named_by(reference) for reference in more):
            return None
    text = masked_reference(agent.text)
    origins = setting_beside(ctx, source, _ORIGIN)
    agents = re.split(r"[,\s]+", origins.strip()) if origins else []
    agents = agents or [value for name in _AGENTS if (value := setting_beside(ctx, source, name))]
    if not agents:
        if agent.source.is_trusted:
            return None
        return (
            f"{agent.source.location} names the agent {text}, but the file may not be yours; if "
            f"you trust the agent: --agent-card {shlex.quote(text)}"
        )
    if any(agent.is_named_by(reference) for reference in agents):
        return None
    intended = ", ".join(masked_reference(reference) for reference in agents)
    return (
        f"it belongs to {intended}, which the same source names, and not to {text}; to send it "
        f"to both: --credential-origin {shlex.quote(agent.origin or text)}"
    )


def _origin_of_reference(reference: str | Path) -> str | None:
    try:
        if isinstance(reference, str):
            return canonical_origin(reference)
        from holdfast._pipeline.cards.files import read_card_file  # heavy: imported when needed
        from holdfast._wire.limits import Limits

        return origin_of(read_card_file(reference, Limits())[0])
    except (A2AError, ValueError):  # reported when the card is fetched
        return None
