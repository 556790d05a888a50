"""Agent cards as text for people and pipes: one ``Label: value`` per line (a2a-cli 11.2)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast._cli.output.text import View, entry, field

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from holdfast._pipeline.cards.verification import CardVerification
    from holdfast.types import AgentCard, AgentInterface, SecurityScheme

__all__ = ["render_card", "verified"]


def render_card(
    card: AgentCard,
    chosen: AgentInterface | None,
    view: View,
    verification: CardVerification | None,
) -> Iterator[str]:
    """Yield the lines for a card.

    Args:
        card: The card.
        chosen: The interface that calls would use; None if there is none.
        view: What to show.
        verification: The outcome of its signature check.
    """
    yield field("Name", card.name)
    yield from entry("Description", card.description)
    yield field("Version", card.version)
    if card.provider is not None:
        yield field("Provider", f"{card.provider.organization} {card.provider.url}")
    yield from entry("Documentation", card.documentation_url)
    yield field("Streaming", _YES_NO[card.capabilities.streaming])
    yield field("Push notifications", _YES_NO[card.capabilities.push_notifications])
    yield field("Extended card", _YES_NO[card.capabilities.extended_agent_card])
    for extension in card.capabilities.extensions:
        yield field("Extension", f"{extension.uri}{' (required)' if extension.required else ''}")
    for interface in card.supported_interfaces:
        yield field("Interface", _interface(interface))
    yield field("Transport", None if chosen is None else _interface(chosen))
    for name, scheme in card.security_schemes.items():
        yield field("Security scheme", f"{name}: {_scheme(scheme)}")
    for requirement in card.security_requirements:
        needed = (f"{name} {' '.join(s.list)}".strip() for name, s in requirement.schemes.items())
        yield field("Security requirement", " and ".join(needed))
    yield field("Input modes", ", ".join(card.default_input_modes))
    yield field("Output modes", ", ".join(card.default_output_modes))
    for skill in card.skills:
        yield field("Skill", f"{skill.id}: {skill.name}")
        yield from entry("Skill description", skill.description)
        yield from entry("Skill tags", ", ".join(skill.tags))
        if view.verbose:
            for example in skill.examples:
                yield from entry("Skill example", example)
            yield from entry("Skill input modes", ", ".join(skill.input_modes))
            yield from entry("Skill output modes", ", ".join(skill.output_modes))
    if verification is not None:
        yield field("Signature", verified(verification))


def verified(verification: CardVerification) -> str:
    """Return the outcome of a card's signature check, in one line."""
    if verification.outcome != "verified":
        return f"{verification.outcome}: {verification.reason}"
    by = "the key" if verification.key_id is None else f"key {verification.key_id!r}"
    origin = "" if verification.key_url is None else f" of {verification.key_url}"
    without = ", ".join(verification.unsigned)
    return f"verified by {by}{origin}" + (f"; not signed, and not used: {without}" * bool(without))


_YES_NO: Mapping[bool | None, str] = {True: "yes", False: "no", None: "no"}


def _interface(interface: AgentInterface) -> str:
    version = interface.protocol_version or "(no version)"
    tenant = f" tenant {interface.tenant}" if interface.tenant else ""
    return f"{interface.protocol_binding} {version} {interface.url}{tenant}"


def _scheme(scheme: SecurityScheme) -> str:
    if (key := scheme.api_key_security_scheme) is not None:
        return f"API key in {key.location} {key.name}"
    if (http := scheme.http_auth_security_scheme) is not None:
        return f"HTTP {http.scheme}"
    flows_by_name = {
        "OAuth 2.0": scheme.oauth2_security_scheme,
        "OpenID Connect": scheme.open_id_connect_security_scheme,
        "mutual TLS": scheme.mtls_security_scheme,
    }
    return next(
        (name for name, flow in flows_by_name.items() if flow is not None), "of unknown kind"
    )
