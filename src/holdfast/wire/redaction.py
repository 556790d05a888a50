"""Taking secrets out of errors, for agents that echo what they were sent.

Credentials are secret whatever they look like. Of the other headers that a caller sends, those are
taken for secret whose name says so, and those whose value is long enough to be a key.
"""

from __future__ import annotations

import json
import re
from html import escape
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from holdfast.errors import A2AError

__all__ = ["redact", "secrets_in"]

_SHORTEST_SECRET = 4
"""What is shorter is no secret, and would only make holes in the errors."""

_SHORTEST_KEY = 16
"""Length from which any header's value may be a key."""

_SECRET_NAME = re.compile(r"auth|cookie|credential|key|passw|secret|session|sign|token")

_OWN = frozenset({"agent", "request_id"})
"""What the client itself says in an error."""

_DEEPEST = 50
"""What is nested deeper in an error is not looked through, and left out."""

_SHORTEST_CUT = 200
"""Length from which a text may be the beginning of a longer one; see `wire.http.excerpt`."""


def secrets_in(headers: Mapping[str, str]) -> list[str]:
    """The values of headers that are taken for secret; names in lower case."""
    return [
        value
        for name, value in headers.items()
        if len(value) >= _SHORTEST_KEY or _SECRET_NAME.search(name)
    ]


def redact(error: A2AError, values: Iterable[str]) -> None:
    """Puts ``***`` in the place of secrets, wherever they stand in an error.

    Args:
        error: The error; changed.
        values: The secrets, as header values: with or without a scheme such as Bearer.
    """
    secrets = sorted(_spellings(values), key=len, reverse=True)
    if not secrets:
        return
    error.message = _without(secrets, error.message)
    for name, value in vars(error).items():
        if name not in _OWN:
            setattr(error, name, _without(secrets, value))


def _spellings(headers: Iterable[str]) -> set[str]:
    """Each value whole and without its scheme, plain and as JSON and HTML write it."""
    values = {value.strip() for value in headers}
    values |= {value.partition(" ")[2].strip() for value in values}
    values |= {json.dumps(value)[1:-1] for value in values} | {escape(value) for value in values}
    return {value for value in values if len(value) >= _SHORTEST_SECRET}


def _without(secrets: list[str], value: Any, depth: int = 0) -> Any:
    if depth > _DEEPEST:
        return "***"
    if isinstance(value, str):
        text = str(value)
        for secret in secrets:
            text = text.replace(secret, "***")
        if len(value) >= _SHORTEST_CUT:
            text = _without_beginning(secrets, text)
        return value if text == value else text
    if isinstance(value, dict):
        members = cast("dict[Any, Any]", value)
        return {name: _without(secrets, member, depth + 1) for name, member in members.items()}
    if isinstance(value, list):
        return [_without(secrets, item, depth + 1) for item in cast("list[Any]", value)]
    if isinstance(value, tuple):
        return tuple(_without(secrets, item, depth + 1) for item in cast("tuple[Any, ...]", value))
    return value


def _without_beginning(secrets: list[str], text: str) -> str:
    """Cuts off the beginning of a secret at the end of a text that was itself cut off there."""
    for secret in secrets:
        for length in range(min(len(secret), len(text)), _SHORTEST_SECRET - 1, -1):
            if text.endswith(secret[:length]):
                return f"{text[:-length]}***"
    return text
