"""What the signature of an agent card is made over (A2A 8.4.1): its canonical JSON (RFC 8785).

Implementations differ in what they leave out of a card before they sign it, so that it may have
been signed in several forms. Rules: each form is a document as well, which has nothing that the
form's bytes do not cover; a card whose signature is right in one form is used as that document,
and nothing else of what was received is. The forms, strictest first:

- ``received``: all of the card but its ``signatures``;
- ``specified``: without what the specification leaves out, members with default values that are
  neither required nor optional; and with what it requires, if only by its default;
- ``known``: the same of the members that the specification has, as from a typed model;
- ``sdk``: as a2a-sdk and a2a-js do it: of those members whatever is empty is left out too, at any
  depth. Of security requirements without scopes nothing is left, so that these are put back where
  the signed card declares the scheme: who adds one can only have the client send what its caller
  gave for that scheme of that agent, and where the signed card wants it.

Of protocol 0.3, which defines no form, there are the first and the last one. There the last one
does not cover the type of a security scheme, which its other members imply: a card that lacks such
a type, which the SDK always writes, has no such form, so that removing one breaks the signature.
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

_SAFE = 2**53 - 1
"""Integers beyond it are doubles for RFC 8785 (3.2.2.3), like all numbers."""


class NoCanonicalFormError(ValueError):
    """It has no canonical JSON: a lone surrogate, a number out of range, or too deep."""


class SignedForm(NamedTuple):
    """A form in which a card may have been signed.

    Attributes:
        name: Which one.
        document: What of the card it covers.
        payload: The bytes that are signed.
        restored: Members to use in place of the document's, with requirements that the form lost.
    """

    name: FormName
    document: dict[str, Any]
    payload: bytes
    restored: Mapping[str, Any] = {}

    @property
    def used(self) -> dict[str, Any]:
        """What of the card is acted upon."""
        return {**self.document, **self.restored}


def canonical_json(value: object) -> bytes:
    """The canonical JSON of a value, as `json.loads` would give it.

    Raises:
        NoCanonicalFormError: There is none.
    """
    import rfc8785  # with an extra

    try:
        return rfc8785.dumps(_doubles(value))
    except (rfc8785.CanonicalizationError, OverflowError, RecursionError, UnicodeError):
        text = "the card has no canonical JSON (RFC 8785)"
    raise NoCanonicalFormError(text)


def signed_forms(document: Mapping[str, Any]) -> Iterator[SignedForm]:
    """The forms in which a card may have been signed, strictest first, each payload once.

    Args:
        document: The card as received; it is not changed.

    Raises:
        NoCanonicalFormError: There is none.
    """
    content = {name: member for name, member in document.items() if name != "signatures"}
    is_older = not content.get("supportedInterfaces") and "url" in content
    seen: set[bytes] = set()
    try:
        for form in _forms_of_03(content) if is_older else _forms(content):
            if form.payload not in seen:
                seen.add(form.payload)
                yield form
    except RecursionError:
        text = "the card has no canonical JSON (RFC 8785): it is nested too deeply"
        raise NoCanonicalFormError(text) from None


def unsigned_members(received: Mapping[str, Any], used: Mapping[str, Any]) -> tuple[str, ...]:
    """The members that were received and say something, and are not used.

    Args:
        received: The card as received.
        used: What of it is used.
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
    known = _by_presence(content, AGENT_CARD, only_known=True)
    lean = _lean(known)
    yield SignedForm("sdk", lean, canonical_json(lean), _with_bare(known, lean))


def _forms_of_03(content: dict[str, Any]) -> Iterator[SignedForm]:
    yield SignedForm("received", content, canonical_json(content))
    lean = _lean(content)
    if not _has_types(lean):
        return
    payload = canonical_json(_without_implied(lean))
    yield SignedForm("sdk", lean, payload, _with_bare(content, lean, "security"))


def _by_presence(
    content: Mapping[str, Any], message: Members, *, only_known: bool, fills: bool = False
) -> dict[str, Any]:
    """The members that are not left out (A2A 5.7, 8.4.1).

    Args:
        content: A message as received.
        message: What is known of its members.
        only_known: Whether to leave out the others.
        fills: Whether to add the required ones that are missing.
    """
    found: dict[str, Any] = {}
    for name, member in content.items():
        rule = message.get(name)
        if rule is None:
            if not only_known:
                found[name] = member
            continue
        if member is None:  # which means absent (ProtoJSON)
            continue
        kept = _inside(member, rule, only_known=only_known, fills=fills)
        if rule.presence != "plain" or rule.holds == "message" or kept not in _DEFAULTS:
            found[name] = kept
    if fills:
        for name, rule in message.items():
            if rule.presence == "required" and name not in found:
                found[name] = _inside(_EMPTY[rule.holds], rule, only_known=only_known, fills=True)
    return found


_DEFAULTS: tuple[Any, ...] = ("", False, 0, [], {})
_EMPTY: Mapping[str, Any] = {"value": "", "message": {}, "list": [], "map": {}}


def _inside(member: Any, rule: Rule, *, only_known: bool, fills: bool) -> Any:
    of = rule.of
    if of is None:
        return member

    def read(one: Any) -> Any:
        if not isinstance(one, dict):
            return one
        return _by_presence(cast("dict[str, Any]", one), of, only_known=only_known, fills=fills)

    if rule.holds == "list" and isinstance(member, list):
        return [read(one) for one in cast("list[Any]", member)]
    if rule.holds == "map" and isinstance(member, dict):
        return {name: read(one) for name, one in cast("dict[str, Any]", member).items()}
    return read(member)


def _lean(content: dict[str, Any]) -> dict[str, Any]:
    return cast("dict[str, Any] | None", _without_empty(content)) or {}


def _without_empty(value: Any) -> Any:
    """What is left of a value without empty texts, lists and objects; None for nothing."""
    if isinstance(value, dict):
        members = cast("dict[str, Any]", value).items()
        kept = {name: _without_empty(member) for name, member in members}
        return {name: member for name, member in kept.items() if member is not None} or None
    if isinstance(value, list):
        items = map(_without_empty, cast("list[Any]", value))
        return [item for item in items if item is not None] or None
    return None if value == "" else value


def _with_bare(
    content: Mapping[str, Any], lean: Mapping[str, Any], member: str = "securityRequirements"
) -> dict[str, Any]:
    """The requirements of a card with those of declared schemes that have no scopes."""
    given, declared = content.get(member), lean.get("securitySchemes")
    if not (isinstance(given, list) and isinstance(declared, dict)):
        return {}
    names = cast("dict[str, Any]", declared)
    read = (_bare_of(one, names, member) for one in cast("list[Any]", given))
    found = [one for one in read if one is not None]
    return {member: found} if found else {}


def _bare_of(requirement: Any, declared: Mapping[str, Any], member: str) -> Any:
    """What is left of a requirement that is signed, or of a declared scheme; None for nothing."""
    left = _without_empty(requirement)
    if not isinstance(requirement, dict):
        return left
    is_wrapped = member == "securityRequirements"  # from protocol 1.0 on
    members = cast("dict[str, Any]", requirement)
    inside = members.get("schemes") if is_wrapped else members
    if not isinstance(inside, dict):
        return left
    kind: type = dict if is_wrapped else list
    bare = {
        name: cast("object", scopes)
        for name, scopes in cast("dict[str, Any]", inside).items()
        if name in declared and isinstance(scopes, kind) and _without_empty(scopes) is None
    }
    if not bare:
        return left
    signed = cast("dict[str, Any]", left or {})
    if is_wrapped:
        return {"schemes": {**signed.get("schemes", {}), **bare}}
    return {**signed, **bare}


_TYPES: Mapping[str, str] = {
    "in": "apiKey",
    "scheme": "http",
    "flows": "oauth2",
    "openIdConnectUrl": "openIdConnect",
}
"""By a member that no other kind of scheme has in protocol 0.3: its type."""

_DEFAULTS_OF_03: Mapping[str, str] = {"protocolVersion": "0.3.0", "preferredTransport": "JSONRPC"}


def _has_types(card: Mapping[str, Any]) -> bool:
    """Whether each security scheme of a card of 0.3 says of which type it is."""
    schemes = card.get("securitySchemes")
    if not isinstance(schemes, dict):
        return True
    known = cast("dict[str, Any]", schemes).values()
    return all(isinstance(scheme, dict) and "type" in scheme for scheme in known)


def _without_implied(card: Mapping[str, Any]) -> dict[str, Any]:
    """A card of 0.3 without what a reader knows all the same: defaults, and types of schemes."""
    found = {n: member for n, member in card.items() if _DEFAULTS_OF_03.get(n) != member}
    schemes = card.get("securitySchemes")
    if isinstance(schemes, dict):
        known = cast("dict[str, Any]", schemes).items()
        found["securitySchemes"] = {name: _without_type(scheme) for name, scheme in known}
    return found


def _without_type(scheme: Any) -> Any:
    if not isinstance(scheme, dict):
        return scheme
    members = cast("dict[str, Any]", scheme)
    implied = [kind for name, kind in _TYPES.items() if name in members]
    if implied != [members.get("type")]:
        return members
    return {name: member for name, member in members.items() if name != "type"}


# ── Values ───────────────────────────────────────────────────────────────────────────────────


def _doubles(value: Any) -> Any:
    """The same value, with numbers that RFC 8785 can write."""
    if isinstance(value, Mapping):
        members = cast("Mapping[str, Any]", value).items()
        return {name: _doubles(member) for name, member in members}
    if isinstance(value, list | tuple):
        return [_doubles(item) for item in cast("list[Any]", value)]
    is_large = isinstance(value, int) and not -_SAFE <= value <= _SAFE
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
