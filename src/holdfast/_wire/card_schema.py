"""What an agent card has by the specification (A2A 4.4, 4.5), and whether one has it.

Rules: what is required is there, and is not empty; what is there is of its type. Members that the
specification does not have are left to those who put them there (A2A 5.7).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Literal, NamedTuple, cast

from holdfast._model.addresses import is_http_address

__all__ = ["AGENT_CARD", "Members", "Rule", "card_faults"]


class Rule(NamedTuple):
    """What the specification says of a member.

    Attributes:
        presence: Whether it is required, may be left out and tells so, or counts as its default.
        holds: What it is: a value, a message, a list or a map of either.
        of: The members of the message, or of those in it; None for values.
        is_flag: Whether the value is true or false; else it is a text.
    """

    presence: Literal["required", "optional", "plain"]
    holds: Literal["value", "message", "list", "map"] = "value"
    of: Mapping[str, Rule] | None = None
    is_flag: bool = False


Members = Mapping[str, Rule]
"""A message, by the names of its members."""

_REQUIRED = Rule("required")
_OPTIONAL = Rule("optional")
_PLAIN = Rule("plain")
_FLAG = Rule("plain", is_flag=True)
_OPTIONAL_FLAG = Rule("optional", is_flag=True)
_REQUIRED_LIST = Rule("required", "list")
_LIST = Rule("plain", "list")
_STRUCT = Rule("plain", "message")


def _message(of: Members, presence: Literal["required", "plain"] = "plain") -> Rule:
    return Rule(presence, "message", of)


def _many(of: Members, presence: Literal["required", "plain"] = "plain") -> Rule:
    return Rule(presence, "list", of)


_REQUIREMENT: Members = {"schemes": Rule("plain", "map", {"list": _LIST})}
_FLOW_ENDS: Members = {"refreshUrl": _PLAIN, "scopes": Rule("required", "map")}
_GIVEN_UP: Members = {"refreshUrl": _PLAIN, "scopes": Rule("plain", "map")}
_FLOWS: Members = {
    "authorizationCode": _message(
        {
            **_FLOW_ENDS,
            "authorizationUrl": _REQUIRED,
            "tokenUrl": _REQUIRED,
            "pkceRequired": _FLAG,
        }
    ),
    "clientCredentials": _message({**_FLOW_ENDS, "tokenUrl": _REQUIRED}),
    "implicit": _message({**_GIVEN_UP, "authorizationUrl": _PLAIN}),
    "password": _message({**_GIVEN_UP, "tokenUrl": _PLAIN}),
    "deviceCode": _message(
        {**_FLOW_ENDS, "deviceAuthorizationUrl": _REQUIRED, "tokenUrl": _REQUIRED}
    ),
}
_SCHEME: Members = {
    "apiKeySecurityScheme": _message(
        {"description": _PLAIN, "location": _REQUIRED, "name": _REQUIRED}
    ),
    "httpAuthSecurityScheme": _message(
        {"description": _PLAIN, "scheme": _REQUIRED, "bearerFormat": _PLAIN}
    ),
    "oauth2SecurityScheme": _message(
        {
            "description": _PLAIN,
            "flows": _message(_FLOWS, "required"),
            "oauth2MetadataUrl": _PLAIN,
        }
    ),
    "openIdConnectSecurityScheme": _message(
        {"description": _PLAIN, "openIdConnectUrl": _REQUIRED}
    ),
    "mtlsSecurityScheme": _message({"description": _PLAIN}),
}
_EXTENSION: Members = {
    "uri": _PLAIN,
    "description": _PLAIN,
    "required": _FLAG,
    "params": _STRUCT,
}
_CAPABILITIES: Members = {
    "streaming": _OPTIONAL_FLAG,
    "pushNotifications": _OPTIONAL_FLAG,
    "extensions": _many(_EXTENSION),
    "extendedAgentCard": _OPTIONAL_FLAG,
}
_INTERFACE: Members = {
    "url": _REQUIRED,
    "protocolBinding": _REQUIRED,
    "tenant": _PLAIN,
    "protocolVersion": _REQUIRED,
}
_SKILL: Members = {
    "id": _REQUIRED,
    "name": _REQUIRED,
    "description": _REQUIRED,
    "tags": _REQUIRED_LIST,
    "examples": _LIST,
    "inputModes": _LIST,
    "outputModes": _LIST,
    "securityRequirements": _many(_REQUIREMENT),
}
AGENT_CARD: Members = {
    "name": _REQUIRED,
    "description": _REQUIRED,
    "supportedInterfaces": _many(_INTERFACE, "required"),
    "provider": _message({"url": _REQUIRED, "organization": _REQUIRED}),
    "version": _REQUIRED,
    "documentationUrl": _OPTIONAL,
    "capabilities": _message(_CAPABILITIES, "required"),
    "securitySchemes": Rule("plain", "map", _SCHEME),
    "securityRequirements": _many(_REQUIREMENT),
    "defaultInputModes": _REQUIRED_LIST,
    "defaultOutputModes": _REQUIRED_LIST,
    "skills": _many(_SKILL, "required"),
    "iconUrl": _OPTIONAL,
}
"""The card and what is in it, by the definitions of A2A 1.0 (``specification/a2a.proto``)."""


_SIGNATURES = Rule(
    "plain",
    "list",
    {
        "protected": _REQUIRED,
        "signature": _REQUIRED,
        "header": _STRUCT,
    },
)

_OF_03: Members = {
    "name": _REQUIRED,
    "description": _REQUIRED,
    "url": _REQUIRED,
    "version": _REQUIRED,
    "protocolVersion": _REQUIRED,
    "preferredTransport": _PLAIN,
    "additionalInterfaces": _many({"url": _REQUIRED, "transport": _REQUIRED}),
    "provider": _message({"url": _REQUIRED, "organization": _REQUIRED}),
    "documentationUrl": _PLAIN,
    "iconUrl": _PLAIN,
    "capabilities": _message(
        {
            "streaming": _FLAG,
            "pushNotifications": _FLAG,
            "stateTransitionHistory": _FLAG,
            "extensions": _many(_EXTENSION),
        },
        "required",
    ),
    "securitySchemes": Rule("plain", "map", {"type": _REQUIRED}),
    "defaultInputModes": _REQUIRED_LIST,
    "defaultOutputModes": _REQUIRED_LIST,
    "skills": _many(
        {
            "id": _REQUIRED,
            "name": _REQUIRED,
            "description": _REQUIRED,
            "tags": _REQUIRED_LIST,
            "examples": _LIST,
            "inputModes": _LIST,
            "outputModes": _LIST,
        },
        "required",
    ),
    "supportsAuthenticatedExtendedCard": _FLAG,
}
"""The same for protocol 0.3 (its specification, section 5.5)."""

_MOST = 100
"""Faults that are told of."""

_VERSION = re.compile(r"[0-9]+\.[0-9]+(\.[0-9]+)?")
_HTTP_BINDINGS = ("JSONRPC", "HTTP+JSON")


def card_faults(document: Mapping[str, Any]) -> list[str]:
    """What is wrong with a card, each in a line that begins with the place.

    Args:
        document: The card as received.
    """
    is_older = not document.get("supportedInterfaces") and "url" in document
    found: list[str] = []
    for fault in _all_faults(document, is_older=is_older):
        if len(found) == _MOST:
            break
        found.append(fault)
    return found


def _all_faults(document: Mapping[str, Any], *, is_older: bool) -> Iterator[str]:
    yield from _of_message(document, _OF_03 if is_older else AGENT_CARD, "")
    yield from _of_member(document.get("signatures"), _SIGNATURES, "signatures")
    if is_older:
        yield from _of_address(document.get("url"), "url")
    else:
        yield from _of_interfaces(document)
        yield from _of_schemes(document)
    yield from _of_requirements(document)


def _of_message(content: Mapping[str, Any], message: Members, path: str) -> Iterator[str]:
    for name, rule in message.items():
        place = f"{path}.{name}" if path else name
        member = content.get(name)
        if rule.presence == "required" and (member is None or member in ("", [])):
            how = "is missing" if member is None else "is empty"
            yield f"{place} {how}, and required"
            continue
        yield from _of_member(member, rule, place)


def _of_member(member: Any, rule: Rule, place: str) -> Iterator[str]:
    if member is None:  # which means absent (ProtoJSON)
        return
    kind, words = (bool, "true or false") if rule.is_flag else _KINDS[rule.holds]
    if not isinstance(member, kind):
        yield f"{place} is not {words}"
        return
    for step, one in _inside(member, rule, place):
        if rule.of is None:
            if not isinstance(one, str):
                yield f"{step} is not a text"
        elif not isinstance(one, dict):
            yield f"{step} is not an object"
        else:
            yield from _of_message(cast("dict[str, Any]", one), rule.of, step)


def _inside(member: Any, rule: Rule, place: str) -> list[tuple[str, Any]]:
    """What a member is made of, each with its place."""
    if rule.holds == "list":
        return [(f"{place}[{index}]", one) for index, one in enumerate(member)]
    if rule.holds == "map":
        return [(f"{place}[{name!r}]", one) for name, one in member.items()]
    return [(place, member)] if rule.holds == "message" and rule.of is not None else []


_KINDS: Mapping[str, tuple[type, str]] = {
    "value": (str, "a text"),
    "message": (dict, "an object"),
    "list": (list, "a list"),
    "map": (dict, "an object"),
}


def _of_interfaces(document: Mapping[str, Any]) -> Iterator[str]:
    for index, one in enumerate(_objects(document.get("supportedInterfaces"))):
        place = f"supportedInterfaces[{index}]"
        if one.get("protocolBinding") in _HTTP_BINDINGS:
            yield from _of_address(one.get("url"), f"{place}.url")
        version = one.get("protocolVersion")
        if isinstance(version, str) and version and not _VERSION.fullmatch(version):
            yield f"{place}.protocolVersion is not a version such as 1.0"


def _of_address(url: object, place: str) -> Iterator[str]:
    if isinstance(url, str) and url and not is_http_address(url):
        yield f"{place} is not an absolute address"


def _of_schemes(document: Mapping[str, Any]) -> Iterator[str]:
    schemes = document.get("securitySchemes")
    if not isinstance(schemes, dict):
        return
    for name, scheme in cast("dict[str, Any]", schemes).items():
        if not isinstance(scheme, dict):
            continue
        kinds = [kind for kind in _SCHEME if cast("dict[str, Any]", scheme).get(kind) is not None]
        if len(kinds) != 1:
            how = "says nothing of its kind" if not kinds else f"is {' and '.join(kinds)} at once"
            yield f"securitySchemes[{name!r}] {how}"


def _of_requirements(document: Mapping[str, Any]) -> Iterator[str]:
    declared = document.get("securitySchemes")
    names = set(cast("dict[str, Any]", declared)) if isinstance(declared, dict) else set[str]()
    for member in ("securityRequirements", "security"):
        for index, one in enumerate(_objects(document.get(member))):
            schemes = one.get("schemes", {}) if member == "securityRequirements" else one
            wanted = cast("dict[str, Any]", schemes) if isinstance(schemes, dict) else {}
            for name in wanted:
                if name not in names:
                    yield f"{member}[{index}] asks for {name!r}, which securitySchemes has not"


def _objects(value: object) -> list[dict[str, Any]]:
    items = cast("list[Any]", value) if isinstance(value, list) else []
    return [cast("dict[str, Any]", item) for item in items if isinstance(item, dict)]
