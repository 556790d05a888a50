"""Schema of an agent card (A2A 4.4, 4.5), and a validator.

Rules: a required member is present and not empty; a present member has its type. Members that the
specification does not define are ignored (A2A 5.7).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Literal, NamedTuple, cast

from holdfast._model.addresses import is_http_address

__all__ = ["AGENT_CARD", "Members", "Rule", "card_faults"]


class Rule(NamedTuple):
    """Rule of the specification for one member.

    Attributes:
        presence: Required, optional with a presence of its own, or plain: absence means the
            default.
        holds: Shape of the member: a value, a message, or a list or map of either.
        of: Rules of the message's members, or of its items' members; None for values.
        is_flag: The value is a boolean; otherwise a string.
    """

    presence: Literal["required", "optional", "plain"]
    holds: Literal["value", "message", "list", "map"] = "value"
    of: Mapping[str, Rule] | None = None
    is_flag: bool = False


Members = Mapping[str, Rule]
"""Rules of a message, by member name."""

_REQUIRED = Rule("required")
_OPTIONAL = Rule("optional")
_PLAIN = Rule("plain")
_FLAG = Rule("plain", is_flag=True)
_OPTIONAL_FLAG = Rule("optional", is_flag=True)
_REQUIRED_LIST = Rule("required", "list")
_LIST = Rule("plain", "list")
_STRUCT = Rule("plain", "message")


def _message_rule(of: Members, presence: Literal["required", "plain"] = "plain") -> Rule:
    return Rule(presence, "message", of)


def _list_rule(of: Members, presence: Literal["required", "plain"] = "plain") -> Rule:
    return Rule(presence, "list", of)


_SECURITY_REQUIREMENT: Members = {"schemes": Rule("plain", "map", {"list": _LIST})}
_COMMON_FLOW: Members = {"refreshUrl": _PLAIN, "scopes": Rule("required", "map")}
_DEPRECATED_FLOW: Members = {"refreshUrl": _PLAIN, "scopes": Rule("plain", "map")}
_FLOWS: Members = {
    "authorizationCode": _message_rule(
        {
            **_COMMON_FLOW,
            "authorizationUrl": _REQUIRED,
            "tokenUrl": _REQUIRED,
            "pkceRequired": _FLAG,
        }
    ),
    "clientCredentials": _message_rule({**_COMMON_FLOW, "tokenUrl": _REQUIRED}),
    "implicit": _message_rule({**_DEPRECATED_FLOW, "authorizationUrl": _PLAIN}),
    "password": _message_rule({**_DEPRECATED_FLOW, "tokenUrl": _PLAIN}),
    "deviceCode": _message_rule(
        {**_COMMON_FLOW, "deviceAuthorizationUrl": _REQUIRED, "tokenUrl": _REQUIRED}
    ),
}
_SCHEME: Members = {
    "apiKeySecurityScheme": _message_rule(
        {"description": _PLAIN, "location": _REQUIRED, "name": _REQUIRED}
    ),
    "httpAuthSecurityScheme": _message_rule(
        {"description": _PLAIN, "scheme": _REQUIRED, "bearerFormat": _PLAIN}
    ),
    "oauth2SecurityScheme": _message_rule(
        {
            "description": _PLAIN,
            "flows": _message_rule(_FLOWS, "required"),
            "oauth2MetadataUrl": _PLAIN,
        }
    ),
    "openIdConnectSecurityScheme": _message_rule(
        {"description": _PLAIN, "openIdConnectUrl": _REQUIRED}
    ),
    "mtlsSecurityScheme": _message_rule({"description": _PLAIN}),
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
    "extensions": _list_rule(_EXTENSION),
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
    "securityRequirements": _list_rule(_SECURITY_REQUIREMENT),
}
AGENT_CARD: Members = {
    "name": _REQUIRED,
    "description": _REQUIRED,
    "supportedInterfaces": _list_rule(_INTERFACE, "required"),
    "provider": _message_rule({"url": _REQUIRED, "organization": _REQUIRED}),
    "version": _REQUIRED,
    "documentationUrl": _OPTIONAL,
    "capabilities": _message_rule(_CAPABILITIES, "required"),
    "securitySchemes": Rule("plain", "map", _SCHEME),
    "securityRequirements": _list_rule(_SECURITY_REQUIREMENT),
    "defaultInputModes": _REQUIRED_LIST,
    "defaultOutputModes": _REQUIRED_LIST,
    "skills": _list_rule(_SKILL, "required"),
    "iconUrl": _OPTIONAL,
}
"""Rules of an agent card as A2A 1.0 defines it (``specification/a2a.proto``)."""


_SIGNATURES = Rule(
    "plain",
    "list",
    {
        "protected": _REQUIRED,
        "signature": _REQUIRED,
        "header": _STRUCT,
    },
)

_CARD_OF_V03: Members = {
    "name": _REQUIRED,
    "description": _REQUIRED,
    "url": _REQUIRED,
    "version": _REQUIRED,
    "protocolVersion": _REQUIRED,
    "preferredTransport": _PLAIN,
    "additionalInterfaces": _list_rule({"url": _REQUIRED, "transport": _REQUIRED}),
    "provider": _message_rule({"url": _REQUIRED, "organization": _REQUIRED}),
    "documentationUrl": _PLAIN,
    "iconUrl": _PLAIN,
    "capabilities": _message_rule(
        {
            "streaming": _FLAG,
            "pushNotifications": _FLAG,
            "stateTransitionHistory": _FLAG,
            "extensions": _list_rule(_EXTENSION),
        },
        "required",
    ),
    "securitySchemes": Rule("plain", "map", {"type": _REQUIRED}),
    "defaultInputModes": _REQUIRED_LIST,
    "defaultOutputModes": _REQUIRED_LIST,
    "skills": _list_rule(
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
"""Rules of an agent card of protocol 0.3 (its specification, section 5.5)."""

_MAX_FAULTS = 100
"""Number of faults that are reported."""

_VERSION = re.compile(r"[0-9]+\.[0-9]+(\.[0-9]+)?")
_HTTP_BINDINGS = ("JSONRPC", "HTTP+JSON")


def card_faults(document: Mapping[str, Any]) -> list[str]:
    """Return the faults of a card, each as a line that begins with the member's path.

    Args:
        document: The card as received.
    """
    is_v03 = not document.get("supportedInterfaces") and "url" in document
    faults: list[str] = []
    for fault in _all_faults(document, is_v03=is_v03):
        if len(faults) == _MAX_FAULTS:
            break
        faults.append(fault)
    return faults


def _all_faults(document: Mapping[str, Any], *, is_v03: bool) -> Iterator[str]:
    yield from _message_faults(document, _CARD_OF_V03 if is_v03 else AGENT_CARD, "")
    yield from _member_faults(document.get("signatures"), _SIGNATURES, "signatures")
    if is_v03:
        yield from _address_faults(document.get("url"), "url")
    else:
        yield from _interface_faults(document)
        yield from _scheme_faults(document)
    yield from _requirement_faults(document)


def _message_faults(content: Mapping[str, Any], rules: Members, path: str) -> Iterator[str]:
    for name, rule in rules.items():
        member_path = f"{path}.{name}" if path else name
        member = content.get(name)
        if rule.presence == "required" and (member is None or member in ("", [])):
            problem = "is missing" if member is None else "is empty"
            yield f"{member_path} {problem}, and required"
            continue
        yield from _member_faults(member, rule, member_path)


def _member_faults(member: Any, rule: Rule, path: str) -> Iterator[str]:
    if member is None:  # null means absent (ProtoJSON)
        return
    type_, type_name = (bool, "true or false") if rule.is_flag else _KINDS[rule.holds]
    if not isinstance(member, type_):
        yield f"{path} is not {type_name}"
        return
    for item_path, item in _items_of(member, rule, path):
        if rule.of is None:
            if not isinstance(item, str):
                yield f"{item_path} is not a text"
        elif not isinstance(item, dict):
            yield f"{item_path} is not an object"
        else:
            yield from _message_faults(cast("dict[str, Any]", item), rule.of, item_path)


def _items_of(member: Any, rule: Rule, path: str) -> list[tuple[str, Any]]:
    """Return the items of a member, each with its path."""
    if rule.holds == "list":
        return [(f"{path}[{index}]", item) for index, item in enumerate(member)]
    if rule.holds == "map":
        return [(f"{path}[{name!r}]", item) for name, item in member.items()]
    return [(path, member)] if rule.holds == "message" and rule.of is not None else []


_KINDS: Mapping[str, tuple[type, str]] = {
    "value": (str, "a text"),
    "message": (dict, "an object"),
    "list": (list, "a list"),
    "map": (dict, "an object"),
}


def _interface_faults(document: Mapping[str, Any]) -> Iterator[str]:
    for index, interface in enumerate(_objects(document.get("supportedInterfaces"))):
        path = f"supportedInterfaces[{index}]"
        if interface.get("protocolBinding") in _HTTP_BINDINGS:
            yield from _address_faults(interface.get("url"), f"{path}.url")
        version = interface.get("protocolVersion")
        if isinstance(version, str) and version and not _VERSION.fullmatch(version):
            yield f"{path}.protocolVersion is not a version such as 1.0"


def _address_faults(url: object, path: str) -> Iterator[str]:
    if isinstance(url, str) and url and not is_http_address(url):
        yield f"{path} is not an absolute address"


def _scheme_faults(document: Mapping[str, Any]) -> Iterator[str]:
    schemes = document.get("securitySchemes")
    if not isinstance(schemes, dict):
        return
    for name, scheme in cast("dict[str, Any]", schemes).items():
        if not isinstance(scheme, dict):
            continue
        kinds = [kind for kind in _SCHEME if cast("dict[str, Any]", scheme).get(kind) is not None]
        if len(kinds) != 1:
            problem = (
                "has no member for its kind" if not kinds else f"is {' and '.join(kinds)} at once"
            )
            yield f"securitySchemes[{name!r}] {problem}"


def _requirement_faults(document: Mapping[str, Any]) -> Iterator[str]:
    declared = document.get("securitySchemes")
    declared_names = (
        set(cast("dict[str, Any]", declared)) if isinstance(declared, dict) else set[str]()
    )
    for member in ("securityRequirements", "security"):
        for index, requirement in enumerate(_objects(document.get(member))):
            schemes = (
                requirement.get("schemes", {}) if member == "securityRequirements" else requirement
            )
            required = cast("dict[str, Any]", schemes) if isinstance(schemes, dict) else {}
            for name in required:
                if name not in declared_names:
                    yield f"{member}[{index}] asks for {name!r}, which securitySchemes lacks"


def _objects(value: object) -> list[dict[str, Any]]:
    items = cast("list[Any]", value) if isinstance(value, list) else []
    return [cast("dict[str, Any]", item) for item in items if isinstance(item, dict)]
