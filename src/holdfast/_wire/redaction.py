"""Redaction of secrets in errors, since agents may echo what they received.

Credentials are always secret. Another header of the caller counts as secret if its name suggests
so, or if its value is long enough to be a key.
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
"""Shorter values are not redacted: they occur everywhere, and are hardly secret."""

_SHORTEST_KEY = 16
"""Length in characters from which any header's value may be a key."""

_SECRET_NAME = re.compile(r"auth|cookie|credential|key|passw|secret|session|sign|token")

_PUBLIC_HEADERS = frozenset({"traceparent", "tracestate"})
"""Meant for every hop, however long (W3C Trace Context)."""

_SET_BY_CLIENT = frozenset({"agent", "request_id"})
"""Facts of an error that the client sets itself."""

_SHORTEST_ENCODED = 8
"""Length in characters from which a secret is searched for in hex, and in base64 within a longer
text."""

_ESCAPE = re.compile(
    r"%(?P<percent>[0-9A-Fa-f]{2})"
    r"|\\{1,4}(?:u00|x)(?P<code>[0-9A-Fa-f]{2})"
    r"|\\{1,4}(?P<itself>[/\"'])"
    r"|&#0{0,4}(?P<decimal>[0-9]{2,3});"
    r"|&#[xX]0{0,4}(?P<hex>[0-9A-Fa-f]{2});"
    r"|&(?P<name>amp|lt|gt|quot|apos);"
)
"""An escaped character: in URLs, in JSON and program text, in HTML."""

_HTML_ENTITIES = {"amp": "&", "lt": "<", "gt": ">", "quot": '"', "apos": "'"}

_ESCAPED_TIMES = 3
"""Levels of escaping that are undone."""

_MAX_DEPTH = 50
"""Values nested deeper in an error are omitted."""

_MAX_CHARACTERS = 200_000
"""Characters of an error that are searched; the rest is omitted."""


def secrets_in(headers: Mapping[str, str]) -> list[str]:
    """Return the header values that count as secret; header names in lower case."""
    values = [
        value
        for name, value in headers.items()
        if name not in _PUBLIC_HEADERS
        and (len(value) >= _SHORTEST_KEY or _SECRET_NAME.search(name))
    ]
    cookies = [pair.partition("=")[2].strip() for pair in headers.get("cookie", "").split(";")]
    return values + [value for value in cookies if value]


class Secrets:
    """Secrets of one operation's requests, which its errors must not repeat.

    Recording is cheap, since it happens for every request; the secrets are extracted only when
    there is an error.
    """

    _credentials: tuple[Credentials, ...] = ()
    _requests: tuple[tuple[Mapping[str, str], Mapping[str, str], str], ...] = ()
    _values: frozenset[str] = frozenset()

    def note(self, headers: Mapping[str, str], query: Mapping[str, str], url: str) -> None:
        """Record a request.

        Args:
            headers: Names in lower case.
            query: Parameters that carry credentials.
            url: URL as the caller gave it; the values of its query are treated like headers.
        """
        if not (headers or query or "?" in url):
            return
        request = (headers, query, url)
        if not self._requests or self._requests[-1] != request:
            self._requests += (request,)

    def note_credentials(self, credentials: Credentials) -> None:
        """Record credentials, all of which are secret."""
        if credentials not in self._credentials:
            self._credentials += (credentials,)

    def note_values(self, values: Iterable[str]) -> None:
        """Record values that are secret whatever they look like."""
        self._values |= frozenset(values)

    def hide_in(self, error: A2AError) -> None:
        """Replace all secrets in an error by ``***``."""
        redact(error, self.values())

    def values(self) -> frozenset[str]:
        """Return all secrets."""
        values = set(self._values)
        for credentials in self._credentials:
            values.update(credentials.values)
        for headers, query, url in self._requests:
            values.update(secrets_in(headers), query.values(), _query_secrets(url))
        return frozenset(values)


def _query_secrets(url: str) -> list[str]:
    try:
        query = urlsplit(url).query.split("&")
    except ValueError:
        return []
    pairs = [pair.partition("=") for pair in query]
    encoded = {name.lower(): value for name, _, value in pairs}
    decoded = {name.lower(): unquote_plus(value) for name, _, value in pairs}
    return [*secrets_in(encoded), *secrets_in(decoded)]


def hidden_in_path(address: str, secrets: Iterable[str]) -> str:
    """Return a URL to show, with secrets in its path replaced by ``***``."""
    spellings = sorted(_spellings(secrets), key=len, reverse=True)
    scheme, separator, rest = address.partition("://")
    host, slash, path = rest.partition("/")
    return f"{scheme}{separator}{host}{slash}{_redact_text(spellings, path)}"


def repeats(values: Iterable[str], text: str) -> bool:
    """Return whether a text contains one of the values, in a spelling that `redact` finds."""
    texts = {text, _unescaped(text)}
    return any(spelling in text for spelling in _spellings(values) for text in texts)


def redact(error: A2AError, values: Iterable[str]) -> None:
    """Replace secrets in an error by ``***``.

    A secret is found literally; with any of its ASCII characters as percent, JSON, program or HTML
    escapes, nested up to three deep (such a text is shown unescaped); in base64, of either
    alphabet and also within a longer text; in hex of one case. It is not found if it was split,
    reversed, compressed, encrypted or hashed, or if its case was changed.

    Args:
        error: The error; modified.
        values: The secrets as header values, with or without a scheme such as Bearer.
    """
    secrets = sorted(_spellings(values), key=len, reverse=True)
    if not secrets:
        return
    error.message = _redact_text(secrets, error.message, is_cut=True)
    if error.excerpt is not None:
        error.excerpt = _redact_text(secrets, error.excerpt, is_cut=True)
    budget = _Budget()
    for name, value in vars(error).items():
        if name not in _SET_BY_CLIENT:
            setattr(error, name, _redact_value(secrets, value, budget))


class _Budget:
    """Characters of an error that may still be searched."""

    characters = _MAX_CHARACTERS


def _spellings(headers: Iterable[str]) -> set[str]:
    """Return each value with and without its scheme: plain, encoded, in JSON and in HTML."""
    from html import escape  # slow to import, needed only for errors

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
    """Return the decoded value of a Basic scheme (RFC 7617), and its password."""
    try:
        plain = base64.b64decode(value, validate=True).decode()
    except (binascii.Error, ValueError):
        return ()
    user, colon, password = plain.partition(":")
    return (plain, password) if colon and user.isprintable() else ()


def _json(value: str) -> str:
    return json.dumps(value)[1:-1]


def _base64(value: str) -> set[str]:
    """Return the value in base64: alone, and at each of the three offsets in a longer text."""
    data = value.encode(errors="replace")
    codes = {base64.b64encode(data).rstrip(b"=")}  # without the padding
    if len(data) >= _SHORTEST_ENCODED:
        for offset in range(3):  # without the characters at both ends that share bits with others
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
    """Replace escapes of printable ASCII characters by the characters."""
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
        return _HTML_ENTITIES[value]
    code = int(value, 10 if kind == "decimal" else 16)
    return chr(code) if 0x20 <= code < 0x7F else escape[0]


def _redact_value(secrets: list[str], value: Any, budget: _Budget, depth: int = 0) -> Any:
    if isinstance(value, str):
        budget.characters -= len(value)
        return _redact_text(secrets, value) if budget.characters >= 0 else "***"
    if not isinstance(value, dict | list | tuple):
        return value
    budget.characters -= 1
    if depth > _MAX_DEPTH or budget.characters < 0:
        return "***"
    if isinstance(value, dict):
        members = cast("dict[Any, Any]", value)
        return {
            _redact_value(secrets, name, budget, depth): _redact_value(
                secrets, member, budget, depth + 1
            )
            for name, member in members.items()
        }
    items = cast("list[Any] | tuple[Any, ...]", value)
    redacted = [_redact_value(secrets, item, budget, depth + 1) for item in items]
    return tuple(redacted) if isinstance(value, tuple) else redacted


def _redact_text(secrets: list[str], text: str, *, is_cut: bool = False) -> str:
    redacted = _replace_secrets(secrets, str(text), is_cut=is_cut)
    unescaped = _unescaped(redacted)
    if unescaped != redacted:
        without = _replace_secrets(secrets, unescaped, is_cut=is_cut)
        if without != unescaped:
            return without
    return text if redacted == text else redacted


def _replace_secrets(secrets: list[str], text: str, *, is_cut: bool) -> str:
    for secret in secrets:
        text = text.replace(secret, "***")
    *truncated, last = text.split("…")  # a text was truncated here, perhaps within a secret
    last = _redact_cut_end(secrets, last) if is_cut else last
    return "…".join([*(_redact_cut_end(secrets, piece) for piece in truncated), last])


def _redact_cut_end(secrets: list[str], text: str) -> str:
    """Redact the beginning of a secret at the end of a truncated text."""
    for secret in secrets:
        end = text[-len(secret) :]
        start = end.find(secret[:_SHORTEST_SECRET])
        while start >= 0:
            if secret.startswith(end[start:]):
                return f"{text[: len(text) - len(end) + start]}***"
            start = end.find(secret[:_SHORTEST_SECRET], start + 1)
    return text
