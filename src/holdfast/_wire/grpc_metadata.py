"""What goes around the messages of gRPC: headers as its metadata, and metadata as headers."""

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
"""For the channel: gRPC writes the header by itself (``grpc.primary_user_agent``)."""

Metadata = Iterable[tuple[str, str | bytes]]
"""As grpcio gives and takes it: values of names that end in ``-bin`` are bytes."""

_OWN = FRAMING | {"content-type", "user-agent"}
"""What gRPC writes by itself."""

_RESERVED = "grpc-"
_BINARY = "-bin"
_NAME = re.compile(r"(?!-bin$)[0-9a-z_.-]+")
_VALUE = re.compile(r"[\x20-\x7e]*")


def request_metadata(
    version: str, headers: Mapping[str, str], extensions: Collection[str] = ()
) -> tuple[tuple[str, str | bytes], ...]:
    """The metadata of a call: its headers, the version and the extensions (A2A 10.3).

    Args:
        version: One of `PROTOCOL_VERSIONS`.
        headers: The caller's headers and the credentials, names in lower case. Those that gRPC
            writes by itself (``user-agent``, ``content-type`` …) are left out; the value of a
            name in ``-bin`` is base64.
        extensions: URIs of the extensions that are asked for; none leaves the caller's own header.

    Raises:
        ValueError: A name or a value that gRPC does not carry; the value is not shown.
    """
    written = {**headers, **protocol_headers(version, extensions, headers)}
    return tuple(
        (name, _carried(name, value)) for name, value in written.items() if name not in _OWN
    )


def _carried(name: str, value: str) -> str | bytes:
    """A value as gRPC carries it (its specification of HTTP/2, "Custom-Metadata")."""
    if name.startswith(_RESERVED):
        raise ValueError(f"the header {name} is set by gRPC, not by the caller")
    if _NAME.fullmatch(name) is None:
        raise ValueError(f"{name!r} is not a name that gRPC carries: only a-z, 0-9, '_', '-', '.'")
    if name.endswith(_BINARY):
        try:
            return base64.b64decode(value + "=" * (-len(value) % 4), validate=True)
        except (binascii.Error, ValueError):
            raise ValueError(f"the header {name} is binary, so that it must be base64") from None
    if _VALUE.fullmatch(value) is None:
        raise ValueError(f"the header {name} has a character that gRPC does not carry")
    return value.strip()


def reply_headers(*metadata: Metadata | None) -> dict[str, str]:
    """Metadata as the headers of a `Reply`: initial first, then trailing.

    Names are in lower case, values of one name are joined by a comma; binary ones are base64;
    gRPC's own (``grpc-…``) are left out.
    """
    headers = all_headers(*metadata)
    return {name: value for name, value in headers.items() if not name.startswith(_RESERVED)}


def all_headers(*metadata: Metadata | None) -> dict[str, str]:
    """All of it by name, gRPC's own as well; see `reply_headers`."""
    headers: dict[str, str] = {}
    for each in metadata:
        for name, value in each or ():
            lowered, text = name.lower(), value if isinstance(value, str) else _text(name, value)
            headers[lowered] = f"{headers[lowered]}, {text}" if lowered in headers else text
    return headers


def _text(name: str, value: bytes) -> str:
    if name.lower().endswith(_BINARY):
        return base64.b64encode(value).decode()
    return value.decode("utf-8", "replace")
