"""Decompression of reply bodies, bounded by `Limits`."""

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
_GZIP_OR_ZLIB = 32 + zlib.MAX_WBITS
"""zlib detects the format by the header."""

_RATIO_FREE_BYTES = 1024 * 1024
"""Decompressed size up to which the ratio is not checked; small repetitive texts exceed it."""

_MAX_MEMBERS = 100
"""Maximum gzip members of a body; each costs time even if empty, and servers send one."""


class Inflater:
    """Incremental decompressor of one body (RFC 9110, 8.4.1; RFC 1952).

    Args:
        coding: The value of ``Content-Encoding``.
        limits: Bounds of its size and ratio.

    Raises:
        InvalidAgentResponseError: The client did not offer this coding.
    """

    def __init__(self, coding: str, limits: Limits) -> None:
        if coding.strip().lower() not in _CODINGS:
            text = f"the reply is encoded as {coding!r}, which was not requested"
            raise InvalidAgentResponseError(text)
        self._limits = limits
        self._member = zlib.decompressobj(_GZIP_OR_ZLIB)
        self._members = 1
        self._bytes_in = self._bytes_out = 0

    @classmethod
    def for_coding(cls, coding: str, limits: Limits) -> Inflater | None:
        """Return the decompressor that a body needs; None if it is not compressed."""
        if coding.strip().lower() in {"", "identity"}:
            return None
        return cls(coding, limits)

    def feed(self, data: bytes) -> bytes:
        """Decompress the next piece.

        Raises:
            LimitExceededError: The body exceeds its size or ratio limit.
            InvalidAgentResponseError: The data is broken.
        """
        self._bytes_in += len(data)
        if self._bytes_in > self._limits.body:
            raise self._too_large(self._bytes_in)
        allowed = max(_RATIO_FREE_BYTES, self._limits.inflation_ratio * self._bytes_in)
        most = min(allowed, self._limits.body) - self._bytes_out
        inflated = bytearray()
        while data:
            if self._member.eof:  # several members in a row are one body (RFC 1952, 2.2)
                self._count_member()
                self._member = zlib.decompressobj(_GZIP_OR_ZLIB)
            try:
                inflated += self._member.decompress(data, most + 1 - len(inflated))
            except zlib.error as error:
                raise _broken(str(error)) from None
            if len(inflated) > most:
                raise self._too_large(allowed)
            data = self._member.unused_data
        self._bytes_out += len(inflated)
        return bytes(inflated)

    @property
    def is_cut(self) -> bool:
        """Return whether the compressed data would be incomplete if the body ended here."""
        return self._bytes_in > 0 and not self._member.eof

    def _count_member(self) -> None:
        self._members += 1
        if self._members > _MAX_MEMBERS:
            raise _broken(f"it has more than {_MAX_MEMBERS} members")

    def _too_large(self, allowed: int) -> LimitExceededError:
        limits = self._limits
        if allowed >= limits.body:
            return limit_error("body", limits, f"the reply is larger than {limits.body} bytes")
        problem = (
            f"the reply becomes more than {limits.inflation_ratio} times larger when decompressed"
        )
        return limit_error("inflation_ratio", limits, problem)


def _broken(reason: str) -> InvalidAgentResponseError:
    return InvalidAgentResponseError(
        f"the reply cannot be read: its compression is broken ({reason})"
    )
