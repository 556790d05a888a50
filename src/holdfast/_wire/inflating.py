"""Taking apart bodies that come compressed, without making more of them than was agreed."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING

from holdfast._wire.limits import limit_error
from holdfast.errors import InvalidAgentResponseError

if TYPE_CHECKING:
    from holdfast._wire.limits import Limits
    from holdfast.errors import LimitExceededError

__all__ = ["Inflater"]

_CODINGS = frozenset({"gzip", "x-gzip", "deflate"})
_EITHER = 32 + zlib.MAX_WBITS
"""gzip or zlib, as the first bytes say."""

_UNSUSPICIOUS = 1024 * 1024
"""Bytes of a body whose ratio does not matter: repetitive texts are small all the same."""

_MOST_MEMBERS = 100
"""Each costs time, even an empty one; servers send one."""


class Inflater:
    """Decompresses one body, piece by piece (RFC 9110, 8.4.1; RFC 1952).

    Args:
        coding: The value of ``Content-Encoding``.
        limits: Bounds its size and its ratio.

    Raises:
        InvalidAgentResponseError: The coding is none that was asked for.
    """

    def __init__(self, coding: str, limits: Limits) -> None:
        if coding.strip().lower() not in _CODINGS:
            text = f"the reply is encoded as {coding!r}, which was not asked for"
            raise InvalidAgentResponseError(text)
        self._limits = limits
        self._member = zlib.decompressobj(_EITHER)
        self._members = 1
        self._taken = self._made = 0

    @classmethod
    def of(cls, coding: str, limits: Limits) -> Inflater | None:
        """The one that a body needs, None for a body that is not compressed."""
        if coding.strip().lower() in {"", "identity"}:
            return None
        return cls(coding, limits)

    def feed(self, data: bytes) -> bytes:
        """Decompresses the next piece.

        Raises:
            LimitExceededError: The body becomes larger than agreed.
            InvalidAgentResponseError: The data is broken.
        """
        self._taken += len(data)
        if self._taken > self._limits.body:
            raise self._too_large(self._taken)
        allowed = max(_UNSUSPICIOUS, self._limits.inflation_ratio * self._taken)
        most = min(allowed, self._limits.body) - self._made
        made = bytearray()
        while data:
            if self._member.eof:  # several members in a row are one body (RFC 1952, 2.2)
                self._count_member()
                self._member = zlib.decompressobj(_EITHER)
            try:
                made += self._member.decompress(data, most + 1 - len(made))
            except zlib.error as error:
                raise _broken(str(error)) from None
            if len(made) > most:
                raise self._too_large(allowed)
            data = self._member.unused_data
        self._made += len(made)
        return bytes(made)

    @property
    def is_cut(self) -> bool:
        """Whether the body, if it ends here, ends too early."""
        return self._taken > 0 and not self._member.eof

    def _count_member(self) -> None:
        self._members += 1
        if self._members > _MOST_MEMBERS:
            raise _broken(f"it has more than {_MOST_MEMBERS} members")

    def _too_large(self, allowed: int) -> LimitExceededError:
        limits = self._limits
        if allowed >= limits.body:
            return limit_error("body", limits, f"the reply is larger than {limits.body} bytes")
        what = f"the reply becomes more than {limits.inflation_ratio} times larger unpacked"
        return limit_error("inflation_ratio", limits, what)


def _broken(why: str) -> InvalidAgentResponseError:
    return InvalidAgentResponseError(
        f"the reply cannot be read: its compression is broken ({why})"
    )
