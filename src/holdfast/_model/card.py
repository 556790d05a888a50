"""The agent card and what it declares (A2A specification 4.4 and 4.5)."""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import urlsplit

from holdfast._model.addresses import has_user, is_http_address
from holdfast._model.types import WireValue
from holdfast.errors import InvalidAgentCardError

__all__ = [
    "APIKeySecurityScheme",
    "AgentCapabilities",
    "AgentCard",
    "AgentCardSignature",
    "AgentExtension",
    "AgentInterface",
    "AgentProvider",
    "AgentSkill",
    "AuthorizationCodeOAuthFlow",
    "ClientCredentialsOAuthFlow",
    "DeviceCodeOAuthFlow",
    "HTTPAuthSecurityScheme",
    "ImplicitOAuthFlow",
    "MutualTlsSecurityScheme",
    "OAuth2SecurityScheme",
    "OAuthFlows",
    "OpenIdConnectSecurityScheme",
    "PasswordOAuthFlow",
    "SecurityRequirement",
    "SecurityScheme",
    "StringList",
    "check_card",
    "check_interface",
    "lacks",
]


class AgentInterface(WireValue, frozen=True, kw_only=True):
    """An address and what is spoken there (A2A 4.4.6).

    Attributes:
        url: Where; used as it is, no slash added or removed.
        protocol_binding: ``JSONRPC``, ``HTTP+JSON``, ``GRPC`` or a URI.
        tenant: To be repeated in every request, if set.
        protocol_version: As ``1.0``; may be missing on real cards.
    """

    url: str = ""
    protocol_binding: str = ""
    tenant: str | None = None
    protocol_version: str | None = None


class AgentProvider(WireValue, frozen=True, kw_only=True):
    """Who runs the agent (A2A 4.4.2)."""

    url: str = ""
    organization: str = ""


class AgentExtension(WireValue, frozen=True, kw_only=True):
    """A protocol extension that the agent supports (A2A 4.4.4)."""

    uri: str = ""
    description: str | None = None
    required: bool = False
    params: dict[str, Any] | None = None


class AgentCapabilities(WireValue, frozen=True, kw_only=True):
    """Optional parts of the protocol that the agent offers (A2A 4.4.3).

    ``None`` is "not declared", which the protocol reads as "no".
    """

    streaming: bool | None = None
    push_notifications: bool | None = None
    extensions: tuple[AgentExtension, ...] = ()
    extended_agent_card: bool | None = None


class StringList(WireValue, frozen=True, kw_only=True):
    """A list of strings, such as OAuth scopes."""

    list: tuple[str, ...] = ()


class SecurityRequirement(WireValue, frozen=True, kw_only=True):
    """Schemes that must be used together, each with its scopes."""

    schemes: dict[str, StringList] = {}


class AgentSkill(WireValue, frozen=True, kw_only=True):
    """Something that the agent can do (A2A 4.4.5)."""

    id: str = ""
    name: str = ""
    description: str = ""
    tags: tuple[str, ...] = ()
    examples: tuple[str, ...] = ()
    input_modes: tuple[str, ...] = ()
    output_modes: tuple[str, ...] = ()
    security_requirements: tuple[SecurityRequirement, ...] = ()


class AgentCardSignature(WireValue, frozen=True, kw_only=True):
    """A JSON Web Signature over the card (A2A 4.4.7, 8.4.2)."""

    protected: str = ""
    signature: str = ""
    header: dict[str, Any] | None = None


class APIKeySecurityScheme(WireValue, frozen=True, kw_only=True):
    """A key in a header, the query or a cookie (A2A 4.5.2)."""

    description: str | None = None
    location: str = ""
    name: str = ""


class HTTPAuthSecurityScheme(WireValue, frozen=True, kw_only=True):
    """An HTTP authentication scheme, such as Bearer (A2A 4.5.3)."""

    description: str | None = None
    scheme: str = ""
    bearer_format: str | None = None


class AuthorizationCodeOAuthFlow(WireValue, frozen=True, kw_only=True):
    """OAuth 2.0 authorization code (A2A 4.5.8)."""

    authorization_url: str = ""
    token_url: str = ""
    refresh_url: str | None = None
    scopes: dict[str, str] = {}
    pkce_required: bool = False


class ClientCredentialsOAuthFlow(WireValue, frozen=True, kw_only=True):
    """OAuth 2.0 client credentials (A2A 4.5.9)."""

    token_url: str = ""
    refresh_url: str | None = None
    scopes: dict[str, str] = {}


class ImplicitOAuthFlow(WireValue, frozen=True, kw_only=True):
    """OAuth 2.0 implicit grant; deprecated by the specification."""

    authorization_url: str = ""
    refresh_url: str | None = None
    scopes: dict[str, str] = {}


class PasswordOAuthFlow(WireValue, frozen=True, kw_only=True):
    """OAuth 2.0 password grant; deprecated by the specification."""

    token_url: str = ""
    refresh_url: str | None = None
    scopes: dict[str, str] = {}


class DeviceCodeOAuthFlow(WireValue, frozen=True, kw_only=True):
    """OAuth 2.0 device authorization, RFC 8628 (A2A 4.5.10)."""

    device_authorization_url: str = ""
    token_url: str = ""
    refresh_url: str | None = None
    scopes: dict[str, str] = {}


class OAuthFlows(WireValue, frozen=True, kw_only=True):
    """The flow that an OAuth 2.0 scheme offers: one member is set (A2A 4.5.7)."""

    authorization_code: AuthorizationCodeOAuthFlow | None = None
    client_credentials: ClientCredentialsOAuthFlow | None = None
    implicit: ImplicitOAuthFlow | None = None
    password: PasswordOAuthFlow | None = None
    device_code: DeviceCodeOAuthFlow | None = None


class OAuth2SecurityScheme(WireValue, frozen=True, kw_only=True):
    """OAuth 2.0 (A2A 4.5.4)."""

    description: str | None = None
    flows: OAuthFlows = OAuthFlows()
    oauth2_metadata_url: str | None = None


class OpenIdConnectSecurityScheme(WireValue, frozen=True, kw_only=True):
    """OpenID Connect (A2A 4.5.5)."""

    description: str | None = None
    open_id_connect_url: str = ""


class MutualTlsSecurityScheme(WireValue, frozen=True, kw_only=True):
    """Mutual TLS (A2A 4.5.6)."""

    description: str | None = None


class SecurityScheme(WireValue, frozen=True, kw_only=True):
    """A way to authenticate: one member is set (A2A 4.5.1)."""

    api_key_security_scheme: APIKeySecurityScheme | None = None
    http_auth_security_scheme: HTTPAuthSecurityScheme | None = None
    oauth2_security_scheme: OAuth2SecurityScheme | None = None
    open_id_connect_security_scheme: OpenIdConnectSecurityScheme | None = None
    mtls_security_scheme: MutualTlsSecurityScheme | None = None


class AgentCard(WireValue, frozen=True, kw_only=True):
    """What an agent says of itself (A2A 4.4.1)."""

    name: str = ""
    description: str = ""
    supported_interfaces: tuple[AgentInterface, ...] = ()
    provider: AgentProvider | None = None
    version: str = ""
    documentation_url: str | None = None
    capabilities: AgentCapabilities = AgentCapabilities()
    security_schemes: dict[str, SecurityScheme] = {}
    security_requirements: tuple[SecurityRequirement, ...] = ()
    default_input_modes: tuple[str, ...] = ()
    default_output_modes: tuple[str, ...] = ()
    skills: tuple[AgentSkill, ...] = ()
    signatures: tuple[AgentCardSignature, ...] = ()
    icon_url: str | None = None


def check_card(card: AgentCard) -> None:
    """Checks what a client needs of a card.

    Raises:
        InvalidAgentCardError: With the field that is missing or wrong.
    """
    if not card.name:
        raise lacks("name")
    if not card.supported_interfaces:
        raise lacks("supportedInterfaces")
    for index, interface in enumerate(card.supported_interfaces):
        check_interface(interface, f"supportedInterfaces[{index}].url")
        if not interface.protocol_binding:
            raise lacks(f"supportedInterfaces[{index}].protocolBinding")


def check_interface(interface: AgentInterface, field: str) -> None:
    """Checks the address of an interface.

    Args:
        interface: The interface.
        field: Where the address stands in the card.

    Raises:
        InvalidAgentCardError: It is missing or wrong.
    """
    if not interface.url:
        raise lacks(field)
    if not _is_address(interface):
        scheme = _SCHEME.match(interface.url)
        if scheme is not None and scheme[1].lower() not in {"http", "https"}:
            message = (
                f"the agent card is not valid: {field} begins with {scheme[0]}, and the binding "
                f"{interface.protocol_binding} needs http:// or https://"
            )
            raise InvalidAgentCardError(message, field=field, executed=False)
        message = (
            f"the agent card is not valid: {field} is not an absolute address, or one that "
            "others read in another way (a user name, a space, a backslash)"
        )
        raise InvalidAgentCardError(message, field=field, executed=False)


_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]{0,19})://")


def _is_address(interface: AgentInterface) -> bool:
    """Whether it can be called; bindings that are not HTTP have address forms of their own."""
    if interface.protocol_binding.upper() in {"JSONRPC", "HTTP+JSON"}:
        return is_http_address(interface.url)
    if interface.protocol_binding.upper() == "GRPC" and has_user(interface.url):
        return False
    try:
        _ = urlsplit(interface.url).port
    except ValueError:
        return False
    return True


def lacks(field: str) -> InvalidAgentCardError:
    """The error of a card without a field that a client needs."""
    return InvalidAgentCardError(f"the agent card lacks {field}", field=field, executed=False)
