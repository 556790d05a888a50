"""Headers as gRPC metadata, and metadata as headers."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

from holdfast._version import __version__
from holdfast._wire.bindings import protocol_headers
from holdfast._wire.http import FRAMING

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

__all__ = ["USER_AGENT", "Metadata", "all_headers", "reply_headers", "request_metadata"]

USER_AGENT = f"holdfast/{__version__}"
"""For the channel option ``grpc.primary_user_agent``; gRPC writes the header."""

Metadata = Iterable[tuple[str, str | bytes]]
"""As grpcio takes and returns it: values of names that end in ``-bin`` are bytes."""

_SET_BY_GRPC = FRAMING | {"content-type", "user-agent"}
"""Headers that gRPC writes."""

_RESERVED = "grpc-"
_BINARY = "-bin"
_NAME = re.compile(r"(?!-bin$)[0-9a-z_.-]+")
_VALUE = re.compile(r"[\x20-\x7e]*")


def request_metadata(
    version: str, headers: Mapping[str, str], extensions: Collection[str] = ()
) -> tuple[tuple[str, str | bytes], ...]:
    """Return the metadata of a call: headers, version and extensions (A2A 10.3).

    Args:
        version: One of `PROTOCOL_VERSIONS`.
        headers: The caller's headers and the credentials, names in lower case. Those that gRPC
            writes (``user-agent``, ``content-type`` …) are omitted; the value of a name in
            ``-bin`` is base64.
        extensions: URIs of the requested extensions; if empty, the caller's own header is kept.

    Raises:
        ValueError: gRPC cannot carry a name or value; the message hides the value.
    """
    combined = {**headers, **protocol_headers(version, extensions, headers)}
    return tuple(
        (name, _metadata_value(name, value))
        for name, value in combined.items()
        if name not in _SET_BY_GRPC
    )


def _metadata_value(name: str, value: str) -> str | bytes:
    """Convert a header value for gRPC (its HTTP/2 specification, "Custom-Metadata")."""
    if name.startswith(_RESERVED):
        raise ValueError(f"the header {name} is set by gRPC, not by the caller")
    if _NAME.fullmatch(name) is None:
        raise ValueError(f"{name!r} is not a name that gRPC carries: only a-z, 0-9, '_', '-', '.'")
    if name.endswith(_BINARY):
        try:
            return base64.b64decode(value + "=" * (-len(value) % 4), validate=True)
        except (binascii.Error, ValueError):
            raise ValueError(f"the header {name} is binary: its value must be base64") from None
    if _VALUE.fullmatch(value) is None:
        raise ValueError(f"the header {name} has a character that gRPC does not carry")
    return value.strip()


def reply_headers(*metadata: Metadata | None) -> dict[str, str]:
    """Return metadata as the headers of a `Reply`: initial first, then trailing.

    Names are in lower case, values of one name are joined by a comma, binary values are base64.
    gRPC's own headers (``grpc-…``) are omitted.
    """
    headers = all_headers(*metadata)
    return {name: value for name, value in headers.items() if not name.startswith(_RESERVED)}


def all_headers(*metadata: Metadata | None) -> dict[str, str]:
    """Like `reply_headers`, including gRPC's own."""
    headers: dict[str, str] = {}
    for part in metadata:
        for name, value in part or ():
            lower_name, text = (
                name.lower(),
                value if isinstance(value, str) else _text(name, value),
            )
            headers[lower_name] = (
                f"{headers[lower_name]}, {text}" if lower_name in headers else text
            )
    return headers


def _text(name: str, value: bytes) -> str:
    if name.lower().endswith(_BINARY):
        return base64.b64encode(value).decode()
    return value.decode("utf-8", "replace")
