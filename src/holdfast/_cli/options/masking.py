"""Secrets in option values: what help, errors and diagnostics show in their place."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from urllib.parse import unquote

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

__all__ = [
    "hidden",
    "hidden_params",
    "masked_address",
    "masked_reference",
    "names_user",
    "secrets_in_params",
    "secrets_in_reference",
]


def hidden(_text: str) -> str:
    """Return a placeholder of a secret, which shows that there is one."""
    return "***"


def hidden_params(text: str) -> str:
    """Return the names of service parameters, without their values."""
    return re.sub(_AFTER_NAME, ":***", text)


_AFTER_NAME = r":.*"


def secrets_in_params(params: Mapping[str, str]) -> list[str]:
    """Return the possible secrets in service parameters: all outside the protocol."""
    from holdfast._wire.redaction import secrets_in
    from holdfast._wire.security import PROTOCOL_HEADERS

    custom = {name: value for name, value in params.items() if name not in PROTOCOL_HEADERS}
    return [*custom.values(), *secrets_in(custom)]


def masked_reference(text: str) -> str:
    """Return a reference to an agent without possible secrets: user, password, query."""
    address, mark, query = text.partition("?")
    pairs = (f"{name}***" for name, _ in _pairs(query))
    return f"{re.sub(_USER, '***@', address)}{mark}{'&'.join(pairs)}"


def masked_address(word: str) -> str | None:
    """Return a word that looks like the address of an agent, masked; None for any other word."""
    return masked_reference(word) if re.fullmatch(_ADDRESS, word) else None


_ADDRESS = r"https?://\S+|[\w.-]+:[0-9]{1,5}(?:/\S*)?"


def names_user(text: str) -> bool:
    """Return whether an address has a user name, perhaps with a password."""
    return re.search(_USER, text.partition("?")[0]) is not None


def secrets_in_reference(text: str) -> list[str]:
    """Return the secrets in an address: user and password, and possible keys in its query."""
    from holdfast._wire.redaction import secrets_in

    address, _, query = text.partition("?")
    users = [user.removesuffix("@") for user in re.findall(_USER, address)]
    secrets = [*users, *(user.partition(":")[2] for user in users)]
    for name, value in _pairs(query):
        secrets += secrets_in({name.removesuffix("=").lower() or "token": value})
    return [*secrets, *(unquote(value) for value in secrets)]


_USER = r"(?:(?<=://)|^)(?:[^/]*|[^/]*:[^/]*[^0-9/][^/]*/.*)@"
"""Also with a slash in the password, which makes the address wrong, not the password public."""


def _pairs(query: str) -> Iterator[tuple[str, str]]:
    """Yield the names in a query with their equals signs, and the values; a value may be alone."""
    for pair in query.split("&") if query else ():
        name, equals, value = pair.partition("=")
        yield (f"{name}=", value) if equals and value.strip("=") else ("", pair)
