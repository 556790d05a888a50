"""Agent cards of protocol 0.3 (its specification, section 5.5), alone and beside one of 1.0.

Rules: a card that has interfaces of 1.0 is one of 1.0, and what it repeats for older clients can
neither break it nor come first; a card without them is read whole.
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
"""Each names schemes and their scopes; in ProtoJSON within ``schemes`` and ``list``."""


class Interface(WireValue, frozen=True, kw_only=True):
    """One more address."""

    url: str = ""
    transport: str = ""


class Capabilities(WireValue, frozen=True, kw_only=True):
    """Optional parts of the protocol."""

    streaming: bool | None = None
    push_notifications: bool | None = None
    extensions: tuple[model.AgentExtension, ...] = ()


class Skill(WireValue, frozen=True, kw_only=True):
    """Something that the agent can do."""

    id: str = ""
    name: str = ""
    description: str = ""
    tags: tuple[str, ...] = ()
    examples: tuple[str, ...] = ()
    input_modes: tuple[str, ...] = ()
    output_modes: tuple[str, ...] = ()
    security: Requirements = ()


class Scheme(model.SecurityScheme, frozen=True, kw_only=True):
    """A way to authenticate: flat, with its `type`; in ProtoJSON as 1.0 has it."""

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
    """What an agent says of itself."""

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
    """Reads a card of protocol 0.3.

    Raises:
        InvalidAgentCardError: With the field that is missing or wrong, by its name in 0.3.
    """
    try:
        card = codec.from_builtins(document, Card)
    except codec.MalformedError as error:
        message = f"the agent card is not valid: {error}"
        raise InvalidAgentCardError(message, field=error.path, executed=False) from None
    return to_card(card)


def to_card(card: Card) -> model.AgentCard:
    """A card of protocol 0.3 as one of the model.

    Raises:
        InvalidAgentCardError: With the field that is missing or wrong, by its name in 0.3.
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
    told = card.capabilities
    return model.AgentCard(
        name=card.name,
        description=card.description,
        supported_interfaces=tuple(interfaces),
        provider=card.provider,
        version=card.version,
        documentation_url=card.documentation_url,
        icon_url=card.icon_url,
        capabilities=model.AgentCapabilities(
            streaming=told.streaming,
            push_notifications=told.push_notifications,
            extensions=told.extensions,
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
    """A card of 1.0 with what it says to clients of 0.3 behind its own.

    Args:
        card: The card as one of 1.0.
        document: The JSON object that it was read from.
    """
    try:
        as_v03 = codec.from_builtins(document, Card)
    except codec.MalformedError:
        return card
    interfaces = list(card.supported_interfaces)
    if (as_v03.protocol_version or _DEFAULT_VERSION).startswith("0."):
        known = {_place(interface) for interface in interfaces}
        for field, interface in _interfaces(as_v03):
            if _is_usable(interface, field) and _place(interface) not in known:
                known.add(_place(interface))
                interfaces.append(interface)
    schemes = {**_schemes(as_v03), **_told(card.security_schemes)}
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
    """The card's addresses, the preferred one first, each under its field."""
    version = card.protocol_version or _DEFAULT_VERSION
    named = [("url", card.url, card.preferred_transport or _DEFAULT_TRANSPORT)]
    for index, more in enumerate(card.additional_interfaces):
        named.append((f"additionalInterfaces[{index}].url", more.url, more.transport))
    for field, url, transport in named:
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


def _place(interface: model.AgentInterface) -> tuple[str, str, str]:
    """What two interfaces have in common that are one; versions differ in their last number."""
    version = ".".join((interface.protocol_version or "").split(".")[:2])
    return interface.url, interface.protocol_binding.upper(), version


def _told(schemes: dict[str, model.SecurityScheme]) -> dict[str, model.SecurityScheme]:
    """The schemes that say in the words of 1.0 what they are."""
    return {name: scheme for name, scheme in schemes.items() if scheme != model.SecurityScheme()}


def _schemes(card: Card) -> dict[str, model.SecurityScheme]:
    return {name: _scheme(scheme) for name, scheme in card.security_schemes.items()}


def _scheme(told: Scheme) -> model.SecurityScheme:
    about = told.description
    match told.type:
        case "apiKey":
            key = model.APIKeySecurityScheme(
                description=about, location=told.location, name=told.name
            )
            return model.SecurityScheme(api_key_security_scheme=key)
        case "http":
            http = model.HTTPAuthSecurityScheme(
                description=about, scheme=told.scheme, bearer_format=told.bearer_format
            )
            return model.SecurityScheme(http_auth_security_scheme=http)
        case "oauth2":
            oauth = model.OAuth2SecurityScheme(
                description=about,
                flows=told.flows,
                oauth2_metadata_url=told.oauth2_metadata_url,
            )
            return model.SecurityScheme(oauth2_security_scheme=oauth)
        case "openIdConnect":
            oidc = model.OpenIdConnectSecurityScheme(
                description=about, open_id_connect_url=told.open_id_connect_url
            )
            return model.SecurityScheme(open_id_connect_security_scheme=oidc)
        case "mutualTLS":
            mtls = model.MutualTlsSecurityScheme(description=about)
            return model.SecurityScheme(mtls_security_scheme=mtls)
        case _:
            names = model.SecurityScheme.__struct_fields__
            return model.SecurityScheme(**{name: getattr(told, name) for name in names})


def _requirements(told: Requirements) -> tuple[model.SecurityRequirement, ...]:
    return tuple(model.SecurityRequirement(schemes=_scopes(each)) for each in told)


def _scopes(requirement: dict[str, Any]) -> dict[str, model.StringList]:
    inner = codec.as_object(requirement.get("schemes"))
    schemes = requirement if inner is None or len(requirement) > 1 else inner
    return {name: model.StringList(list=_texts(scopes)) for name, scopes in schemes.items()}


def _texts(scopes: object) -> tuple[str, ...]:
    inner = codec.as_object(scopes)
    listed: object = scopes if inner is None else inner.get("list")
    items = cast("list[Any]", listed) if isinstance(listed, list) else []
    return tuple(item for item in items if isinstance(item, str))


def _skill(told: Skill) -> model.AgentSkill:
    return model.AgentSkill(
        id=told.id,
        name=told.name,
        description=told.description,
        tags=told.tags,
        examples=told.examples,
        input_modes=told.input_modes,
        output_modes=told.output_modes,
        security_requirements=_requirements(told.security),
    )
