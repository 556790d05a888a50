"""The HTTP bindings: for each, pure functions that encode a call and decode its reply."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from holdfast._version import __version__
from holdfast._wire import jsonrpc, rest
from holdfast._wire.versions import (
    BINDINGS,
    GRPC_BINDING,
    HTTP_BINDINGS,
    OLDER_VERSION,
    PROTOCOL_VERSION,
    PROTOCOL_VERSIONS,
    ProtocolVersion,
    spoken_version,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from holdfast._model.operations import Operation
    from holdfast._wire.http import Encoded, HttpReply

__all__ = [
    "BINDINGS",
    "GRPC_BINDING",
    "HTTP_BINDINGS",
    "OLDER_VERSION",
    "PROTOCOL_VERSION",
    "PROTOCOL_VERSIONS",
    "Codec",
    "ProtocolVersion",
    "codec_for",
    "extensions_in",
    "protocol_headers",
    "spoken_version",
]


class Encode(Protocol):
    """Encode a call as a request."""

    def __call__(
        self, operation: Operation[Any, Any], params: Any, url: str, request_id: str, /
    ) -> Encoded: ...


class Decode(Protocol):
    """Decode a reply to a value, or raise an `A2AError`."""

    def __call__(
        self,
        operation: Operation[Any, Any],
        request_id: str,
        reply: HttpReply,
        /,
        *,
        now: float,
        refusals: frozenset[int],
    ) -> Any: ...


class Reader(Protocol):
    """Make a reader of a stream's plain events; for other events it returns None."""

    def __call__(
        self, operation: Operation[Any, Any], request_id: str, /
    ) -> Callable[[bytes], Any]: ...


class Codec(msgspec.Struct, frozen=True):
    """Codec of a binding for calls and replies; of a stream it decodes the data of each event.

    Attributes:
        encode: Encodes a call as a request.
        decode: Decodes a reply to a value.
        reader: Makes a reader of a stream's plain events.
        has_verbs: The HTTP method depends on the operation.
        is_last: Returns whether an event declares itself the last one of its stream; None if the
            binding's events never do.
        has_snapshots: A subscription begins with the task; otherwise with the next event, which
            may never come.
    """

    encode: Encode
    decode: Decode
    reader: Reader
    has_verbs: bool = False
    is_last: Callable[[Any], bool] | None = None
    has_snapshots: bool = True


@cache
def codec_for(binding: str, version: str) -> Codec:
    """Return the codec of an HTTP binding for a version of the protocol.

    Args:
        binding: One of `HTTP_BINDINGS`.
        version: One of `PROTOCOL_VERSIONS`.
    """
    has_verbs = binding == "HTTP+JSON"
    if version == PROTOCOL_VERSION:
        wire = rest if has_verbs else jsonrpc
        return Codec(wire.encode, wire.decode, wire.reader, has_verbs=has_verbs)
    from holdfast._wire import v03  # ever fewer agents speak it alone

    encode, decode, reader = (
        (v03.encode_rest, v03.decode_rest, v03.rest_reader)
        if has_verbs
        else (v03.encode_rpc, v03.decode_rpc, v03.rpc_reader)
    )
    return Codec(
        encode,
        decode,
        reader,
        has_verbs=has_verbs,
        is_last=v03.is_last,
        has_snapshots=False,
    )


_COMMON_HEADERS: Mapping[str, Mapping[str, str]] = {
    version: {"a2a-version": version, "user-agent": f"holdfast/{__version__}"}
    for version in PROTOCOL_VERSIONS
}
"""By version. 0.3 defines no version header, but agents that speak both versions read one."""

_EXTENSION_HEADERS: Mapping[str, tuple[str, ...]] = {
    PROTOCOL_VERSION: ("a2a-extensions",),
    OLDER_VERSION: ("a2a-extensions", "x-a2a-extensions"),
}


def protocol_headers(
    version: str, extensions: Collection[str] = (), caller_headers: Mapping[str, str] | None = None
) -> Mapping[str, str]:
    """Return the protocol's headers of a request (A2A 3.6.1, 3.2.6).

    Args:
        version: One of `PROTOCOL_VERSIONS`.
        extensions: URIs of the requested extensions.
        caller_headers: The caller's own headers; their list of extensions is used as it is if
            `extensions` is empty.
    """
    common = _COMMON_HEADERS[version]
    extension_list = ",".join(extensions) or (
        _extension_list(caller_headers) if caller_headers else ""
    )
    if not extension_list:
        return common
    return {**common, **dict.fromkeys(_EXTENSION_HEADERS[version], extension_list)}


def extensions_in(headers: Mapping[str, str]) -> tuple[str, ...]:
    """Return the extension URIs in the headers of a request or reply (A2A 14.2.2)."""
    return tuple(uri for item in _extension_list(headers).split(",") if (uri := item.strip()))


def _extension_list(headers: Mapping[str, str]) -> str:
    return headers.get("a2a-extensions") or headers.get("x-a2a-extensions") or ""
