"""Checks of the agent's card: location, required members, caching, signatures."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from holdfast._doctor.findings import Finding
from holdfast._wire.http import media_type
from holdfast.errors import (
    A2AConnectionError,
    A2ATimeoutError,
    AgentCardResolutionError,
    AuthenticationError,
    InvalidAgentCardError,
    InvalidAgentResponseError,
    LimitExceededError,
    PermissionDeniedError,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from holdfast._doctor.facts import CardFacts, Observations
    from holdfast.errors import A2AError

__all__ = ["check_agent_card"]

_REQUIRED = (
    "name",
    "description",
    "version",
    "capabilities",
    "defaultInputModes",
    "defaultOutputModes",
    "skills",
)
"""Required members of a card (A2A 4.4.1) besides the interfaces, in 1.0 and in 0.3."""

_REQUIRED_OF_SKILLS = ("id", "name", "description", "tags")


def check_agent_card(observed: Observations, _now: float) -> Iterator[Finding]:
    """Check the card."""
    if observed.card_error is not None:
        yield _missing(observed.card_error)
        return
    card = observed.card
    if card is None:
        yield Finding("card.found", "not measured", observed.unmeasured_reason)
        return
    yield from _found(card)
    yield from _form(card)
    yield from _members(card)
    if card.is_fetched:
        yield from _caching(card)
    yield from _signatures(card)


def _missing(error: A2AError) -> Finding:
    saw = str(error)
    if isinstance(error, A2AConnectionError | A2ATimeoutError):
        return Finding(
            "card.reached",
            "problem",
            saw,
            "the agent cannot be called from here",
            "check the address, the network, and that the agent is running",
        )
    if isinstance(error, AuthenticationError | PermissionDeniedError):
        return Finding(
            "card.found",
            "problem",
            saw,
            "clients cannot find out how to call the agent, nor which credentials it requires",
            "pass the credentials that the card's server requires, or make the card public",
        )
    if isinstance(error, InvalidAgentResponseError) or _is_something_else(error):
        return Finding(
            "card.valid",
            "problem",
            saw,
            "clients cannot call an agent without a card",
            "check the address and port: no agent seems to be there",
        )
    if isinstance(error, InvalidAgentCardError | LimitExceededError):
        return Finding(
            "card.valid",
            "problem",
            saw,
            "clients cannot call an agent without a card",
            "correct the card: it must be a JSON object with a name and interfaces (A2A 4.4.1)",
        )
    if isinstance(error, AgentCardResolutionError):
        first = "" if error.http_status is None else "check the address and port; "
        return Finding(
            "card.found",
            "problem",
            saw,
            "clients that have only the agent's address cannot call it",
            f"{first}serve the card at /.well-known/agent-card.json (A2A 8.2), or name its URL",
        )
    return Finding(
        "card.found",
        "problem",
        saw,
        "the server does not serve the card, so clients cannot call the agent",
        "read the log of the server, or of the proxy before it",
    )


def _is_something_else(error: A2AError) -> bool:
    """Whether a server answered with something that is not meant to be a card."""
    is_fetched = isinstance(error, InvalidAgentCardError) and error.http_status is not None
    is_json = "json" in media_type(error.headers)
    return is_fetched and not is_json and not (error.excerpt or "").lstrip().startswith("{")


def _found(card: CardFacts) -> Iterator[Finding]:
    where = f"found at {card.url}"
    if not card.is_fetched:
        yield Finding("card.found", "ok", f"read from {card.url}")
        return
    if card.is_at_legacy_path:
        yield Finding(
            "card.found",
            "warning",
            where,
            "this is the path of agents before protocol 0.3; newer clients may not request it",
            "serve it at /.well-known/agent-card.json as well (A2A 8.2)",
        )
    else:
        yield Finding("card.found", "ok", where)
    if card.moved_to != card.url:
        yield Finding(
            "card.moved",
            "info",
            f"the server redirects to {card.moved_to}",
            "each fetch of the card costs one more request, and not all callers follow",
        )
    if card.requires_credentials:
        yield Finding(
            "card.access",
            "info",
            "the server requires credentials for the card",
            "clients must know how to authenticate before they can read the card that declares it",
        )
    kind = media_type(card.headers)
    if kind != "application/json" and not kind.endswith("+json"):
        yield Finding(
            "card.type",
            "warning",
            f"its content type is {kind or 'not said'}",
            "strict clients and browsers do not read it as JSON",
            "serve it as application/json",
        )


def _form(card: CardFacts) -> Iterator[Finding]:
    document = card.document
    is_v1, is_v03 = "supportedInterfaces" in document, "url" in document
    form = "1.0 and 0.3 in one" if is_v1 and is_v03 else "0.3" if is_v03 else "1.0"
    count = len(card.card.supported_interfaces)
    yield Finding(
        "card.valid",
        "ok",
        f"a card of protocol {form}, {_counted(count, 'interface')}, "
        f"{_counted(len(card.card.skills), 'skill')}",
    )


def _members(card: CardFacts) -> Iterator[Finding]:
    document = card.document
    missing = [name for name in _REQUIRED if document.get(name) in (None, "")]
    missing += [
        f"skills[{index}].{name}"
        for index, skill in enumerate(_objects(document.get("skills")))
        for name in _REQUIRED_OF_SKILLS
        if skill.get(name) in (None, "")
    ]
    interfaces = _objects(document.get("supportedInterfaces"))
    missing += [
        f"supportedInterfaces[{index}].protocolVersion"
        for index, interface in enumerate(interfaces)
        if not interface.get("protocolVersion")
    ]
    if not interfaces and not document.get("protocolVersion"):
        missing.append("protocolVersion")
    if missing:
        shown = ", ".join(missing[:5]) + (f" and {len(missing) - 5} more" if missing[5:] else "")
        yield Finding(
            "card.members",
            "warning",
            f"it lacks {shown}",
            "the protocol requires them (A2A 4.4); strict callers refuse the card",
            "add them to the card",
        )
    elif not card.card.skills:
        yield Finding(
            "card.members",
            "info",
            "it names no skill",
            "the card does not describe the agent's purpose",
            "describe the agent's abilities in skills",
        )
    else:
        yield Finding("card.members", "ok", "it has all that the protocol requires")
    endpoints = [
        (
            interface.url,
            interface.protocol_binding.upper(),
            interface.protocol_version,
            interface.tenant,
        )
        for interface in card.card.supported_interfaces
    ]
    if len(set(endpoints)) < len(endpoints):
        yield Finding(
            "card.repeats",
            "info",
            "it names an interface twice",
            "clients that try the next interface after a failure try the same one again",
            "name each interface once",
        )


def _caching(card: CardFacts) -> Iterator[Finding]:
    headers = card.headers
    etag, cache_control = headers.get("etag"), headers.get("cache-control")
    modified = headers.get("last-modified")
    if not (etag or modified):
        yield Finding(
            "card.caching",
            "info",
            f"no ETag and no Last-Modified{_cache_control(cache_control)}",
            "callers fetch the whole card again whenever they check it",
            "send an ETag and Cache-Control (A2A 8.6)",
        )
    elif card.is_revalidated is False:
        yield Finding(
            "card.caching",
            "info",
            f"{'ETag' if etag else 'Last-Modified'}, but the whole card is sent to clients that "
            f"have it{_cache_control(cache_control)}",
            "callers fetch the whole card again whenever they check it",
            "answer 304 to If-None-Match and If-Modified-Since (RFC 9110, 13.1)",
        )
    elif not cache_control:
        yield Finding(
            "card.caching",
            "info",
            "an ETag or Last-Modified, and no Cache-Control",
            "each client guesses how long the card is fresh",
            "send Cache-Control: max-age=… (A2A 8.6)",
        )
    else:
        validator = "ETag" if etag else "Last-Modified"
        yield Finding("card.caching", "ok", f"{validator}, Cache-Control: {cache_control}")


def _cache_control(value: str | None) -> str:
    return f"; Cache-Control: {value}" if value else "; no Cache-Control"


def _signatures(card: CardFacts) -> Iterator[Finding]:
    count, verification = len(card.card.signatures), card.verification
    if verification is not None and verification.outcome == "verified":
        saw = f"verified by key {verification.key_id!r}"
        if verification.unsigned:
            saw += f"; not signed: {', '.join(verification.unsigned)}"
        yield Finding("card.signatures", "ok", saw)
    elif verification is not None and verification.outcome == "invalid":
        yield Finding(
            "card.signatures",
            "problem",
            verification.reason,
            "the card was altered or signed with another key: clients that verify it refuse it",
            "sign the card anew, as it is served (A2A 8.4.2)",
        )
    elif verification is not None and verification.outcome == "unverifiable":
        yield Finding(
            "card.signatures",
            "warning",
            f"{_counted(count, 'signature')}, not verified: {verification.reason}",
            "clients that require a signature refuse the card",
        )
    elif count:
        yield Finding(
            "card.signatures",
            "info",
            f"{_counted(count, 'signature')}, not verified",
            "the origin of the card was not verified: this examination has no keys",
        )
    else:
        yield Finding("card.signatures", "ok", "not signed, as most cards are (A2A 8.4)")


def _objects(value: object) -> list[Mapping[str, Any]]:
    items = cast("list[Any]", value) if isinstance(value, list) else []
    return [cast("Mapping[str, Any]", item) for item in items if isinstance(item, dict)]


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
