"""Agent cards of protocol 0.3 (its specification, section 5.5), alone and within a card of 1.0.

Rules: a card with interfaces of 1.0 is a card of 1.0; its members for older clients can neither
invalidate it nor take precedence. A card without them is decoded as a card of 0.3.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

import msgspec

from holdfast import types as model
from holdfast._model import codec
from holdfast._model.card_checks import check_interface, missing_field_error
from holdfast.errors import InvalidAgentCardError
from holdfast.types import WireValue

__all__ = ["Card", "read", "to_card", "with_v03_members"]

_DEFAULT_VERSION = "0.3.0"
_DEFAULT_TRANSPORT = "JSONRPC"

Requirements = tuple[dict[str, Any], ...]
"""Each item maps scheme names to scopes; in ProtoJSON within ``schemes`` and ``list``."""


class Interface(WireValue, frozen=True, kw_only=True):
    """Additional interface."""

    url: str = ""
    transport: str = ""


class Capabilities(WireValue, frozen=True, kw_only=True):
    """Optional parts of the protocol."""

    streaming: bool | None = None
    push_notifications: bool | None = None
    extensions: tuple[model.AgentExtension, ...] = ()


class Skill(WireValue, frozen=True, kw_only=True):
    """Capability that the agent offers."""

    id: str = ""
    name: str = ""
    description: str = ""
    tags: tuple[str, ...] = ()
    examples: tuple[str, ...] = ()
    input_modes: tuple[str, ...] = ()
    output_modes: tuple[str, ...] = ()
    security: Requirements = ()


class Scheme(model.SecurityScheme, frozen=True, kw_only=True):
    """Security scheme: flat with a `type`, or as in 1.0 (ProtoJSON)."""

    type: str | None = None
    description: str | None = None
    location: str = msgspec.field(default="", name="in")
    name: str = ""
    scheme: str = ""
    bearer_format: str | None = None
    flows: model.OAuthFlows = model.OAuthFlows()
    oauth2_metadata_url: str | None = None
    open_id_connect_url: str = ""


class Card(WireValue, frozen=True, kw_only=True):
    """Agent card of protocol 0.3."""

    name: str = ""
    description: str = ""
    url: str = ""
    preferred_transport: str = ""
    additional_interfaces: tuple[Interface, ...] = ()
    protocol_version: str | None = None
    provider: model.AgentProvider | None = None
    version: str = ""
    documentation_url: str | None = None
    icon_url: str | None = None
    capabilities: Capabilities = Capabilities()
    security_schemes: dict[str, Scheme] = {}
    security: Requirements = ()
    default_input_modes: tuple[str, ...] = ()
    default_output_modes: tuple[str, ...] = ()
    skills: tuple[Skill, ...] = ()
    signatures: tuple[model.AgentCardSignature, ...] = ()
    supports_authenticated_extended_card: bool = False


def read(document: dict[str, Any]) -> model.AgentCard:
    """Decode a card of protocol 0.3.

    Raises:
        InvalidAgentCardError: A field is missing or invalid; the error has its name in 0.3.
    """
    try:
        card = codec.from_builtins(document, Card)
    except codec.MalformedError as error:
        message = f"the agent card is not valid: {error}"
        raise InvalidAgentCardError(message, field=error.path, executed=False) from None
    return to_card(card)


def to_card(card: Card) -> model.AgentCard:
    """Convert a card of protocol 0.3 to the model.

    Raises:
        InvalidAgentCardError: A field is missing or invalid; the error has its name in 0.3.
    """
    if not card.name:
        raise missing_field_error("name")
    interfaces: list[model.AgentInterface] = []
    for field, interface in _interfaces(card):
        if not interface.protocol_binding:
            raise missing_field_error(f"{field.removesuffix('url')}transport")
        check_interface(interface, field)
        if interface not in interfaces:
            interfaces.append(interface)
    capabilities = card.capabilities
    return model.AgentCard(
        name=card.name,
        description=card.description,
        supported_interfaces=tuple(interfaces),
        provider=card.provider,
        version=card.version,
        documentation_url=card.documentation_url,
        icon_url=card.icon_url,
        capabilities=model.AgentCapabilities(
            streaming=capabilities.streaming,
            push_notifications=capabilities.push_notifications,
            extensions=capabilities.extensions,
            extended_agent_card=card.supports_authenticated_extended_card or None,
        ),
        security_schemes=_schemes(card),
        security_requirements=_requirements(card.security),
        default_input_modes=card.default_input_modes,
        default_output_modes=card.default_output_modes,
        skills=tuple(map(_skill, card.skills)),
        signatures=card.signatures,
    )


def with_v03_members(card: model.AgentCard, document: dict[str, Any]) -> model.AgentCard:
    """Add to a card of 1.0 its interfaces and schemes for clients of 0.3.

    Args:
        card: The card of 1.0.
        document: The JSON object that it was decoded from.
    """
    try:
        as_v03 = codec.from_builtins(document, Card)
    except codec.MalformedError:
        return card
    interfaces = list(card.supported_interfaces)
    if (as_v03.protocol_version or _DEFAULT_VERSION).startswith("0."):
        identities = {_identity(interface) for interface in interfaces}
        for field, interface in _interfaces(as_v03):
            if _is_usable(interface, field) and _identity(interface) not in identities:
                identities.add(_identity(interface))
                interfaces.append(interface)
    schemes = {**_schemes(as_v03), **_typed_schemes(card.security_schemes)}
    capabilities = card.capabilities
    if capabilities.extended_agent_card is None and as_v03.supports_authenticated_extended_card:
        capabilities = msgspec.structs.replace(capabilities, extended_agent_card=True)
    return msgspec.structs.replace(
        card,
        capabilities=capabilities,
        supported_interfaces=tuple(interfaces),
        security_schemes=schemes,
        security_requirements=card.security_requirements or _requirements(as_v03.security),
    )


def _interfaces(card: Card) -> Iterator[tuple[str, model.AgentInterface]]:
    """Yield the card's interfaces, the preferred one first, each with its field."""
    version = card.protocol_version or _DEFAULT_VERSION
    addresses = [("url", card.url, card.preferred_transport or _DEFAULT_TRANSPORT)]
    for index, additional in enumerate(card.additional_interfaces):
        addresses.append(
            (f"additionalInterfaces[{index}].url", additional.url, additional.transport)
        )
    for field, url, transport in addresses:
        interface = model.AgentInterface(
            url=url, protocol_binding=transport, protocol_version=version
        )
        yield field, interface


def _is_usable(interface: model.AgentInterface, field: str) -> bool:
    try:
        check_interface(interface, field)
    except InvalidAgentCardError:
        return False
    return bool(interface.protocol_binding)


def _identity(interface: model.AgentInterface) -> tuple[str, str, str]:
    """Return what identifies an interface: URL, binding, and version without patch number."""
    version = ".".join((interface.protocol_version or "").split(".")[:2])
    return interface.url, interface.protocol_binding.upper(), version


def _typed_schemes(schemes: dict[str, model.SecurityScheme]) -> dict[str, model.SecurityScheme]:
    """Return the schemes that have a type of 1.0."""
    return {name: scheme for name, scheme in schemes.items() if scheme != model.SecurityScheme()}


def _schemes(card: Card) -> dict[str, model.SecurityScheme]:
    return {name: _scheme(scheme) for name, scheme in card.security_schemes.items()}


def _scheme(source: Scheme) -> model.SecurityScheme:
    description = source.description
    match source.type:
        case "apiKey":
            key = model.APIKeySecurityScheme(
                description=description, location=source.location, name=source.name
            )
            return model.SecurityScheme(api_key_security_scheme=key)
        case "http":
            http = model.HTTPAuthSecurityScheme(
                description=description, scheme=source.scheme, bearer_format=source.bearer_format
            )
            return model.SecurityScheme(http_auth_security_scheme=http)
        case "oauth2":
            oauth = model.OAuth2SecurityScheme(
                description=description,
                flows=source.flows,
                oauth2_metadata_url=source.oauth2_metadata_url,
            )
            return model.SecurityScheme(oauth2_security_scheme=oauth)
        case "openIdConnect":
            oidc = model.OpenIdConnectSecurityScheme(
                description=description, open_id_connect_url=source.open_id_connect_url
            )
            return model.SecurityScheme(open_id_connect_security_scheme=oidc)
        case "mutualTLS":
            mtls = model.MutualTlsSecurityScheme(description=description)
            return model.SecurityScheme(mtls_security_scheme=mtls)
        case _:
            names = model.SecurityScheme.__struct_fields__
            return model.SecurityScheme(**{name: getattr(source, name) for name in names})


def _requirements(requirements: Requirements) -> tuple[model.SecurityRequirement, ...]:
    return tuple(
        model.SecurityRequirement(schemes=_scopes(requirement)) for requirement in requirements
    )


def _scopes(requirement: dict[str, Any]) -> dict[str, model.StringList]:
    inner = codec.as_object(requirement.get("schemes"))
    schemes = requirement if inner is None or len(requirement) > 1 else inner
    return {name: model.StringList(list=_texts(scopes)) for name, scopes in schemes.items()}


def _texts(scopes: object) -> tuple[str, ...]:
    inner = codec.as_object(scopes)
    listed: object = scopes if inner is None else inner.get("list")
    items = cast("list[Any]", listed) if isinstance(listed, list) else []
    return tuple(item for item in items if isinstance(item, str))


def _skill(source: Skill) -> model.AgentSkill:
    return model.AgentSkill(
        id=source.id,
        name=source.name,
        description=source.description,
        tags=source.tags,
        examples=source.examples,
        input_modes=source.input_modes,
        output_modes=source.output_modes,
        security_requirements=_requirements(source.security),
    )
