"""What a refusal says that it wants: ``WWW-Authenticate`` (RFC 9110, 11.6.1; RFC 6750, 3)."""

from __future__ import annotations

import re
from collections.abc import Mapping

import msgspec

__all__ = ["Challenge", "bearer_challenge", "read_challenges"]

_LONGEST = 8192
"""Characters that are looked at."""

_NAME = r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+"
_PARAMETER = re.compile(rf'\s*({_NAME})\s*=\s*(?:({_NAME})|"((?:[^"\\]|\\.)*)")\s*(?:,|\Z)')
_SCHEME = re.compile(rf"[\s,]*({_NAME})(?:[ \t]+|(?=\s*(?:,|\Z)))")
_TOKEN68 = re.compile(r"[A-Za-z0-9\-._~+/]+=*\s*(?:,|\Z)")
_ESCAPED = re.compile(r"\\(.)")


class Challenge(msgspec.Struct, frozen=True, kw_only=True):
    """One scheme by which a request may authenticate.

    Attributes:
        scheme: Its name, in lower case.
        parameters: Its parameters, names in lower case; of one that comes twice, the first.
    """

    scheme: str
    parameters: Mapping[str, str] = {}

    @property
    def error(self) -> str | None:
        """Why a token was refused, as ``invalid_token`` or ``insufficient_scope`` (RFC 6750)."""
        return self.parameters.get("error")

    @property
    def scopes(self) -> tuple[str, ...]:
        """The scopes that a token must have."""
        return tuple(dict.fromkeys(self.parameters.get("scope", "").split()))


def read_challenges(header: str) -> list[Challenge]:
    """The challenges of a header, as far as it can be read."""
    text, at = header[:_LONGEST], 0
    found: list[Challenge] = []
    while match := _SCHEME.match(text, at):
        at = match.end()
        parameters: dict[str, str] = {}
        token = _TOKEN68.match(text, at)
        if token is not None and _PARAMETER.match(text, at) is None:
            at = token.end()  # one value without a name, as that of Negotiate
        while parameter := _PARAMETER.match(text, at):
            at = parameter.end()
            plain, quoted = parameter[2], parameter[3]
            value = plain if quoted is None else _ESCAPED.sub(r"\1", quoted)
            parameters.setdefault(parameter[1].lower(), value)
        found.append(Challenge(scheme=match[1].lower(), parameters=parameters))
    return found


def bearer_challenge(headers: Mapping[str, str]) -> Challenge | None:
    """What a reply says of bearer tokens; None if it does not.

    Args:
        headers: Of the reply, names in lower case.
    """
    for challenge in read_challenges(headers.get("www-authenticate", "")):
        if challenge.scheme == "bearer":
            return challenge
    return None
