"""Canonical JSON (RFC 8785) of an agent card, over which its signatures are made (A2A 8.4.1).

Implementations differ in what they omit from a card before they sign it, so a card may have been
signed in one of several forms. Each form is also a document that holds only members covered by the
signed bytes. If a signature is valid for a form, the client uses that form's document and nothing
else of the received card. The forms, strictest first:

- ``received``: the whole card except its ``signatures``.
- ``specified``: as the specification defines: members with default values that are neither
  required nor optional are omitted, and missing required members are added with their defaults.
- ``known``: the same, restricted to the members that the specification defines, as a typed model
  writes it.
- ``sdk``: as a2a-sdk and a2a-js write it: empty members are omitted too, at any depth. This drops
  security requirements without scopes, so they are restored if the signed card declares the
  scheme. An attacker who adds one can only make the client send the credential that its caller
  configured for that scheme of that agent, in the place that the signed card names.

Protocol 0.3 defines no form; its cards have ``received`` and ``sdk``. There ``sdk`` does not cover
the type of a security scheme, which its other members imply. The SDK always writes the type, so a
card that lacks one has no ``sdk`` form: removing a type breaks the signature.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Literal, NamedTuple, cast

from holdfast._wire.card_schema import AGENT_CARD, Members, Rule

__all__ = [
    "FormName",
    "NoCanonicalFormError",
    "SignedForm",
    "canonical_json",
    "signed_forms",
    "unsigned_members",
]

FormName = Literal["received", "specified", "known", "sdk"]

_MAX_SAFE_INTEGER = 2**53 - 1
"""Largest exact integer; RFC 8785 (3.2.2.3) treats all numbers as doubles."""


class NoCanonicalFormError(ValueError):
    """The card has no canonical JSON: lone surrogate, number out of range, or too deep."""


class SignedForm(NamedTuple):
    """Form in which a card may have been signed.

    Attributes:
        name: Name of the form.
        document: The part of the card that the form covers.
        payload: The signed bytes.
        restored: Members that replace the document's: requirements that the form omits.
    """

    name: FormName
    document: dict[str, Any]
    payload: bytes
    restored: Mapping[str, Any] = {}

    @property
    def used(self) -> dict[str, Any]:
        """The part of the card that the client acts on."""
        return {**self.document, **self.restored}


def canonical_json(value: object) -> bytes:
    """Return the canonical JSON of a value as parsed by `json.loads`.

    Raises:
        NoCanonicalFormError: The value has none.
    """
    import rfc8785  # needs an extra

    try:
        return rfc8785.dumps(_doubles(value))
    except (rfc8785.CanonicalizationError, OverflowError, RecursionError, UnicodeError):
        text = "the card has no canonical JSON (RFC 8785)"
    raise NoCanonicalFormError(text)


def signed_forms(document: Mapping[str, Any]) -> Iterator[SignedForm]:
    """Yield the forms in which a card may have been signed, strictest first, without duplicates.

    Args:
        document: The card as received; not modified.

    Raises:
        NoCanonicalFormError: The card has none.
    """
    content = {name: member for name, member in document.items() if name != "signatures"}
    is_v03 = not content.get("supportedInterfaces") and "url" in content
    seen: set[bytes] = set()
    try:
        for form in _forms_of_v03(content) if is_v03 else _forms(content):
            if form.payload not in seen:
                seen.add(form.payload)
                yield form
    except RecursionError:
        text = "the card has no canonical JSON (RFC 8785): it is nested too deeply"
        raise NoCanonicalFormError(text) from None


def unsigned_members(received: Mapping[str, Any], used: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the paths of received members that have a value and are not used.

    Args:
        received: The card as received.
        used: The part of the card that is used.
    """
    content = {name: member for name, member in received.items() if name != "signatures"}
    return tuple(_missing(content, used, ""))


# ── Forms ────────────────────────────────────────────────────────────────────────────────────


def _forms(content: dict[str, Any]) -> Iterator[SignedForm]:
    yield SignedForm("received", content, canonical_json(content))
    for name, only_known in (("specified", False), ("known", True)):
        document = _by_presence(content, AGENT_CARD, only_known=only_known)
        filled = _by_presence(content, AGENT_CARD, only_known=only_known, fills=True)
        yield SignedForm(cast("FormName", name), document, canonical_json(filled))
    known_members = _by_presence(content, AGENT_CARD, only_known=True)
    lean = _lean(known_members)
    yield SignedForm(
        "sdk", lean, canonical_json(lean), _restored_requirements(known_members, lean)
    )


def _forms_of_v03(content: dict[str, Any]) -> Iterator[SignedForm]:
    yield SignedForm("received", content, canonical_json(content))
    lean = _lean(content)
    if not _has_types(lean):
        return
    payload = canonical_json(_without_implied(lean))
    yield SignedForm("sdk", lean, payload, _restored_requirements(content, lean, "security"))


def _by_presence(
    content: Mapping[str, Any], message: Members, *, only_known: bool, fills: bool = False
) -> dict[str, Any]:
    """Return the members that the specification does not omit (A2A 5.7, 8.4.1).

    Args:
        content: A message as received.
        message: Rules of its members.
        only_known: Drop members without a rule.
        fills: Add missing required members with their defaults.
    """
    kept_members: dict[str, Any] = {}
    for name, member in content.items():
        rule = message.get(name)
        if rule is None:
            if not only_known:
                kept_members[name] = member
            continue
        if member is None:  # null means absent (ProtoJSON)
            continue
        kept = _inside(member, rule, only_known=only_known, fills=fills)
        if rule.presence != "plain" or rule.holds == "message" or kept not in _DEFAULTS:
            kept_members[name] = kept
    if fills:
        for name, rule in message.items():
            if rule.presence == "required" and name not in kept_members:
                kept_members[name] = _inside(
                    _EMPTY[rule.holds], rule, only_known=only_known, fills=True
                )
    return kept_members


_DEFAULTS: tuple[Any, ...] = ("", False, 0, [], {})
_EMPTY: Mapping[str, Any] = {"value": "", "message": {}, "list": [], "map": {}}


def _inside(member: Any, rule: Rule, *, only_known: bool, fills: bool) -> Any:
    rules = rule.of
    if rules is None:
        return member

    def filtered(item: Any) -> Any:
        if not isinstance(item, dict):
            return item
        message = cast("dict[str, Any]", item)
        return _by_presence(message, rules, only_known=only_known, fills=fills)

    if rule.holds == "list" and isinstance(member, list):
        return [filtered(item) for item in cast("list[Any]", member)]
    if rule.holds == "map" and isinstance(member, dict):
        return {name: filtered(item) for name, item in cast("dict[str, Any]", member).items()}
    return filtered(member)


def _lean(content: dict[str, Any]) -> dict[str, Any]:
    return cast("dict[str, Any] | None", _without_empty(content)) or {}


def _without_empty(value: Any) -> Any:
    """Drop empty texts, lists and objects at any depth; None if nothing remains."""
    if isinstance(value, dict):
        members = cast("dict[str, Any]", value).items()
        kept = {name: _without_empty(member) for name, member in members}
        return {name: member for name, member in kept.items() if member is not None} or None
    if isinstance(value, list):
        items = map(_without_empty, cast("list[Any]", value))
        return [item for item in items if item is not None] or None
    return None if value == "" else value


def _restored_requirements(
    content: Mapping[str, Any], lean: Mapping[str, Any], member: str = "securityRequirements"
) -> dict[str, Any]:
    """Return a card's requirements, including those without scopes whose scheme is declared."""
    requirements, declared = content.get(member), lean.get("securitySchemes")
    if not (isinstance(requirements, list) and isinstance(declared, dict)):
        return {}
    schemes = cast("dict[str, Any]", declared)
    restored = (
        _restored_requirement(requirement, schemes, member)
        for requirement in cast("list[Any]", requirements)
    )
    present = [requirement for requirement in restored if requirement is not None]
    return {member: present} if present else {}


def _restored_requirement(requirement: Any, declared: Mapping[str, Any], member: str) -> Any:
    """Return a requirement reduced to its signed part and to declared schemes; None if empty."""
    signed_part = _without_empty(requirement)
    if not isinstance(requirement, dict):
        return signed_part
    has_schemes_member = member == "securityRequirements"  # from protocol 1.0 on
    members = cast("dict[str, Any]", requirement)
    schemes = members.get("schemes") if has_schemes_member else members
    if not isinstance(schemes, dict):
        return signed_part
    scopes_type: type = dict if has_schemes_member else list
    without_scopes = {
        name: cast("object", scopes)
        for name, scopes in cast("dict[str, Any]", schemes).items()
        if name in declared and isinstance(scopes, scopes_type) and _without_empty(scopes) is None
    }
    if not without_scopes:
        return signed_part
    merged = cast("dict[str, Any]", signed_part or {})
    if has_schemes_member:
        return {"schemes": {**merged.get("schemes", {}), **without_scopes}}
    return {**merged, **without_scopes}


_TYPE_BY_MEMBER: Mapping[str, str] = {
    "in": "apiKey",
    "scheme": "http",
    "flows": "oauth2",
    "openIdConnectUrl": "openIdConnect",
}
"""Type of a security scheme of protocol 0.3, by a member that no other type has."""

_DEFAULTS_OF_V03: Mapping[str, str] = {"protocolVersion": "0.3.0", "preferredTransport": "JSONRPC"}


def _has_types(card: Mapping[str, Any]) -> bool:
    """Return whether each security scheme of a 0.3 card states its type."""
    schemes = card.get("securitySchemes")
    if not isinstance(schemes, dict):
        return True
    declared = cast("dict[str, Any]", schemes).values()
    return all(isinstance(scheme, dict) and "type" in scheme for scheme in declared)


def _without_implied(card: Mapping[str, Any]) -> dict[str, Any]:
    """Drop what a reader of a 0.3 card infers: default values and types of security schemes."""
    explicit = {n: member for n, member in card.items() if _DEFAULTS_OF_V03.get(n) != member}
    schemes = card.get("securitySchemes")
    if isinstance(schemes, dict):
        declared = cast("dict[str, Any]", schemes).items()
        explicit["securitySchemes"] = {name: _without_type(scheme) for name, scheme in declared}
    return explicit


def _without_type(scheme: Any) -> Any:
    if not isinstance(scheme, dict):
        return scheme
    members = cast("dict[str, Any]", scheme)
    implied = [kind for name, kind in _TYPE_BY_MEMBER.items() if name in members]
    if implied != [members.get("type")]:
        return members
    return {name: member for name, member in members.items() if name != "type"}


# ── Values ───────────────────────────────────────────────────────────────────────────────────


def _doubles(value: Any) -> Any:
    """Convert integers that RFC 8785 cannot write exactly to floats."""
    if isinstance(value, Mapping):
        members = cast("Mapping[str, Any]", value).items()
        return {name: _doubles(member) for name, member in members}
    if isinstance(value, list | tuple):
        return [_doubles(item) for item in cast("list[Any]", value)]
    is_large = isinstance(value, int) and not -_MAX_SAFE_INTEGER <= value <= _MAX_SAFE_INTEGER
    return float(value) if is_large else value


def _missing(received: Any, used: Any, path: str) -> Iterator[str]:
    if isinstance(received, dict):
        kept = cast("dict[str, Any]", used) if isinstance(used, dict) else {}
        for name, member in cast("dict[str, Any]", received).items():
            step = f"{path}.{name}" if path else name
            if name in kept:
                yield from _missing(member, kept[name], step)
            elif member is not None and member not in _DEFAULTS:
                yield step
    elif isinstance(received, list):
        items = cast("list[Any]", received)
        kept_items = cast("list[Any]", used) if isinstance(used, list) else []
        if len(items) != len(kept_items):
            yield path
            return
        for index, (item, kept_item) in enumerate(zip(items, kept_items, strict=True)):
            yield from _missing(item, kept_item, f"{path}[{index}]")
