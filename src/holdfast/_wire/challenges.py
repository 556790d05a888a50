"""Authentication challenges: ``WWW-Authenticate`` (RFC 9110, 11.6.1; RFC 6750, 3)."""

from __future__ import annotations

import re
from collections.abc import Mapping

import msgspec

__all__ = ["Challenge", "bearer_challenge", "read_challenges"]

_MAX_HEADER_CHARACTERS = 8192
"""Characters of the header that are parsed."""

_NAME = r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+"
_PARAMETER = re.compile(rf'\s*({_NAME})\s*=\s*(?:({_NAME})|"((?:[^"\\]|\\.)*)")\s*(?:,|\Z)')
_SCHEME = re.compile(rf"[\s,]*({_NAME})(?:[ \t]+|(?=\s*(?:,|\Z)))")
_TOKEN68 = re.compile(r"[A-Za-z0-9\-._~+/]+=*\s*(?:,|\Z)")
_ESCAPED = re.compile(r"\\(.)")


class Challenge(msgspec.Struct, frozen=True, kw_only=True):
    """One authentication scheme that a server accepts.

    Attributes:
        scheme: Name of the scheme, in lower case.
        parameters: Parameters by name in lower case; the first of duplicates wins.
    """

    scheme: str
    parameters: Mapping[str, str] = {}

    @property
    def error(self) -> str | None:
        """Why a token was refused: ``invalid_token``, ``insufficient_scope`` … (RFC 6750)."""
        return self.parameters.get("error")

    @property
    def scopes(self) -> tuple[str, ...]:
        """Scopes that the token must have."""
        return tuple(dict.fromkeys(self.parameters.get("scope", "").split()))


def read_challenges(header: str) -> list[Challenge]:
    """Parse the challenges of a header, up to the first one that is malformed."""
    text, position = header[:_MAX_HEADER_CHARACTERS], 0
    challenges: list[Challenge] = []
    while match := _SCHEME.match(text, position):
        position = match.end()
        parameters: dict[str, str] = {}
        token68 = _TOKEN68.match(text, position)
        if token68 is not None and _PARAMETER.match(text, position) is None:
            position = token68.end()  # a bare value, such as Negotiate's
        while parameter := _PARAMETER.match(text, position):
            position = parameter.end()
            plain, quoted = parameter[2], parameter[3]
            value = plain if quoted is None else _ESCAPED.sub(r"\1", quoted)
            parameters.setdefault(parameter[1].lower(), value)
        challenges.append(Challenge(scheme=match[1].lower(), parameters=parameters))
    return challenges


def bearer_challenge(headers: Mapping[str, str]) -> Challenge | None:
    """Return the challenge for a bearer token; None if the reply has none.

    Args:
        headers: Headers of the reply, names in lower case.
    """
    for challenge in read_challenges(headers.get("www-authenticate", "")):
        if challenge.scheme == "bearer":
            return challenge
    return None
