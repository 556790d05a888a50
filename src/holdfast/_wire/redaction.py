"""Taking secrets out of errors, for agents that echo what they were sent.

Credentials are secret whatever they look like. Of the other headers that a caller sends, those are
taken for secret whose name says so, and those whose value is long enough to be a key.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import quote, quote_plus, unquote_plus, urlsplit

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from holdfast._wire.credentials import Credentials
    from holdfast.errors import A2AError

__all__ = ["Secrets", "hidden_in_path", "redact", "repeats", "secrets_in"]

_SHORTEST_SECRET = 4
"""What is shorter is no secret, and would only make holes in the errors."""

_SHORTEST_KEY = 16
"""Length from which any header's value may be a key."""

_SECRET_NAME = re.compile(r"auth|cookie|credential|key|passw|secret|session|sign|token")

_OPEN = frozenset({"traceparent", "tracestate"})
"""What is there to be read by all on the way, however long it is (W3C Trace Context)."""

_OWN = frozenset({"agent", "request_id"})
"""What the client itself says in an error."""

_SHORTEST_ENCODED = 8
"""Characters from which a secret is searched for in hex, and in base64 within a longer text."""

_ESCAPE = re.compile(
    r"%(?P<percent>[0-9A-Fa-f]{2})"
    r"|\\{1,4}(?:u00|x)(?P<code>[0-9A-Fa-f]{2})"
    r"|\\{1,4}(?P<itself>[/\"'])"
    r"|&#0{0,4}(?P<decimal>[0-9]{2,3});"
    r"|&#[xX]0{0,4}(?P<hex>[0-9A-Fa-f]{2});"
    r"|&(?P<name>amp|lt|gt|quot|apos);"
)
"""A character in another notation: in addresses, in JSON and program text, in HTML."""

_NAMED = {"amp": "&", "lt": "<", "gt": ">", "quot": '"', "apos": "'"}

_ESCAPED_TIMES = 3
"""How often a text may have been escaped, one notation around another."""

_DEEPEST = 50
"""What is nested deeper in an error is not looked through, and left out."""

_MOST = 200_000
"""Characters of an error that are looked through; the rest is left out."""


def secrets_in(headers: Mapping[str, str]) -> list[str]:
    """The values of headers that are taken for secret; names in lower case."""
    found = [
        value
        for name, value in headers.items()
        if name not in _OPEN and (len(value) >= _SHORTEST_KEY or _SECRET_NAME.search(name))
    ]
    cookies = [pair.partition("=")[2].strip() for pair in headers.get("cookie", "").split(";")]
    return found + [value for value in cookies if value]


class Secrets:
    """What the requests of one operation carry, and no error of it may repeat.

    Noting is cheap, since every request is noted; what is secret of it is found out when there is
    an error.
    """

    _credentials: tuple[Credentials, ...] = ()
    _requests: tuple[tuple[Mapping[str, str], Mapping[str, str], str], ...] = ()
    _values: frozenset[str] = frozenset()

    def note(self, headers: Mapping[str, str], query: Mapping[str, str], url: str) -> None:
        """Notes a request.

        Args:
            headers: Names in lower case.
            query: Parameters that carry credentials.
            url: Its address, as it was named; the values in its query count like headers.
        """
        if not (headers or query or "?" in url):
            return
        request = (headers, query, url)
        if not self._requests or self._requests[-1] != request:
            self._requests += (request,)

    def note_credentials(self, credentials: Credentials) -> None:
        """Notes what a request carries to say who sends it, all of which is secret."""
        if credentials not in self._credentials:
            self._credentials += (credentials,)

    def note_values(self, values: Iterable[str]) -> None:
        """Notes what is secret whatever it is called."""
        self._values |= frozenset(values)

    def hide_in(self, error: A2AError) -> None:
        """Puts ``***`` in the place of all of them, wherever they stand in an error."""
        redact(error, self.found())

    def found(self) -> frozenset[str]:
        """All of them."""
        found = set(self._values)
        for credentials in self._credentials:
            found.update(credentials.values)
        for headers, query, url in self._requests:
            found.update(secrets_in(headers), query.values(), _in_query(url))
        return frozenset(found)


def _in_query(url: str) -> list[str]:
    try:
        present = urlsplit(url).query.split("&")
    except ValueError:
        return []
    named = [pair.partition("=") for pair in present]
    raw = {name.lower(): value for name, _, value in named}
    plain = {name.lower(): unquote_plus(value) for name, _, value in named}
    return [*secrets_in(raw), *secrets_in(plain)]


def hidden_in_path(address: str, secrets: Iterable[str]) -> str:
    """An address to show, with ``***`` in the place of secrets that its path repeats."""
    found = sorted(_spellings(secrets), key=len, reverse=True)
    scheme, separator, rest = address.partition("://")
    host, slash, path = rest.partition("/")
    return f"{scheme}{separator}{host}{slash}{_plain(found, path)}"


def repeats(values: Iterable[str], text: str) -> bool:
    """Whether a text holds one of the values, in a spelling that `redact` knows."""
    texts = {text, _unescaped(text)}
    return any(spelling in text for spelling in _spellings(values) for text in texts)


def redact(error: A2AError, values: Iterable[str]) -> None:
    """Replaces secrets by ``***``, wherever they stand in an error.

    A secret is found as it is; with any of its ASCII characters as percent, JSON, program or HTML
    escapes, also nested up to three deep (such a text is shown unescaped); in base64, of either
    alphabet and also within a longer text; in hex of one case. It is not found where it was split
    up, reversed, compressed, encrypted or hashed, or where upper and lower case were changed.

    Args:
        error: The error; changed.
        values: The secrets, as header values: with or without a scheme such as Bearer.
    """
    secrets = sorted(_spellings(values), key=len, reverse=True)
    if not secrets:
        return
    error.message = _plain(secrets, error.message, is_cut=True)
    if error.excerpt is not None:
        error.excerpt = _plain(secrets, error.excerpt, is_cut=True)
    left = _Left()
    for name, value in vars(error).items():
        if name not in _OWN:
            setattr(error, name, _without(secrets, value, left))


class _Left:
    """How much of an error is still looked through."""

    characters = _MOST


def _spellings(headers: Iterable[str]) -> set[str]:
    """Each value whole and without its scheme, plain, encoded, and as JSON and HTML write it."""
    from html import escape  # slow to import, and needed only for errors

    values = {value.strip() for value in headers}
    values |= {value.partition(" ")[2].strip() for value in values}
    values |= {part for value in values for part in _user_and_password(value)}
    values = {value for value in values if len(value) >= _SHORTEST_SECRET}
    encoded = {
        spelling
        for value in values
        for spelling in (
            *_base64(value),
            *_hex(value),
            quote(value, safe="", errors="replace"),
            quote(value, errors="replace"),
            quote_plus(value, errors="replace"),
            _json(value),
            _json(_json(value)),
            escape(value),
        )
    }
    return values | encoded


def _user_and_password(value: str) -> tuple[str, ...]:
    """What the value of a Basic scheme hides (RFC 7617): both together, and the password."""
    try:
        plain = base64.b64decode(value, validate=True).decode()
    except (binascii.Error, ValueError):
        return ()
    user, colon, password = plain.partition(":")
    return (plain, password) if colon and user.isprintable() else ()


def _json(value: str) -> str:
    return json.dumps(value)[1:-1]


def _base64(value: str) -> set[str]:
    """The value in base64: alone, and at each of the three offsets in a longer text."""
    data = value.encode(errors="replace")
    codes = {base64.b64encode(data).rstrip(b"=")}  # what pads it hides nothing
    if len(data) >= _SHORTEST_ENCODED:
        for offset in range(3):  # without the characters at both ends that hold bits of others
            code = base64.b64encode(bytes(offset) + data)
            codes.add(code[-(-offset * 8 // 6) : (offset + len(data)) * 8 // 6])
    plain = {code.decode() for code in codes}
    return plain | {code.replace("+", "-").replace("/", "_") for code in plain}


def _hex(value: str) -> tuple[str, ...]:
    if len(value) < _SHORTEST_ENCODED:
        return ()
    code = value.encode(errors="replace").hex()
    return code, code.upper()


def _unescaped(text: str) -> str:
    """The text with escapes of printable ASCII characters replaced by the characters."""
    for _ in range(_ESCAPED_TIMES):
        before, text = text, _ESCAPE.sub(_character, text)
        if text == before:
            break
    return text


def _character(escape: re.Match[str]) -> str:
    kind, value = cast("str", escape.lastgroup), escape[cast("str", escape.lastgroup)]
    if kind == "itself":
        return value
    if kind == "name":
        return _NAMED[value]
    code = int(value, 10 if kind == "decimal" else 16)
    return chr(code) if 0x20 <= code < 0x7F else escape[0]


def _without(secrets: list[str], value: Any, left: _Left, depth: int = 0) -> Any:
    if isinstance(value, str):
        left.characters -= len(value)
        return _plain(secrets, value) if left.characters >= 0 else "***"
    if not isinstance(value, dict | list | tuple):
        return value
    left.characters -= 1
    if depth > _DEEPEST or left.characters < 0:
        return "***"
    if isinstance(value, dict):
        members = cast("dict[Any, Any]", value)
        return {
            _without(secrets, name, left, depth): _without(secrets, member, left, depth + 1)
            for name, member in members.items()
        }
    items = cast("list[Any] | tuple[Any, ...]", value)
    redacted = [_without(secrets, item, left, depth + 1) for item in items]
    return tuple(redacted) if isinstance(value, tuple) else redacted


def _plain(secrets: list[str], text: str, *, is_cut: bool = False) -> str:
    redacted = _replaced(secrets, str(text), is_cut=is_cut)
    unescaped = _unescaped(redacted)
    if unescaped != redacted:
        without = _replaced(secrets, unescaped, is_cut=is_cut)
        if without != unescaped:
            return without
    return text if redacted == text else redacted


def _replaced(secrets: list[str], text: str, *, is_cut: bool) -> str:
    for secret in secrets:
        text = text.replace(secret, "***")
    *cut_off, last = text.split("…")  # where a text was cut off, and maybe a secret with it
    last = _without_end(secrets, last) if is_cut else last
    return "…".join([*(_without_end(secrets, piece) for piece in cut_off), last])


def _without_end(secrets: list[str], text: str) -> str:
    """Cuts off the beginning of a secret at the end of a text that was itself cut off there."""
    for secret in secrets:
        end = text[-len(secret) :]
        at = end.find(secret[:_SHORTEST_SECRET])
        while at >= 0:
            if secret.startswith(end[at:]):
                return f"{text[: len(text) - len(end) + at]}***"
            at = end.find(secret[:_SHORTEST_SECRET], at + 1)
    return text
