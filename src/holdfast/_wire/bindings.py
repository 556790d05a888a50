"""The bindings that are HTTP: a pair of pure functions each, under the name that cards use."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from holdfast._version import __version__
from holdfast._wire import jsonrpc, rest, v03
from holdfast._wire.versions import (
    BINDINGS,
    GRPC_BINDING,
    HTTP_BINDINGS,
    OLDER_VERSION,
    PROTOCOL_VERSION,
    PROTOCOL_VERSIONS,
    ProtocolVersion,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from holdfast._model.operations import Operation
    from holdfast._wire.http import Encoded, HttpReply

__all__ = [
    "BINDINGS",
    "CODECS",
    "GRPC_BINDING",
    "HTTP_BINDINGS",
    "OLDER_VERSION",
    "PROTOCOL_VERSION",
    "PROTOCOL_VERSIONS",
    "Codec",
    "ProtocolVersion",
    "extensions_in",
    "protocol_headers",
    "spoken_version",
]


class Encode(Protocol):
    """Makes a request of a call."""

    def __call__(
        self, operation: Operation[Any, Any], params: Any, url: str, request_id: str, /
    ) -> Encoded: ...


class Decode(Protocol):
    """Makes a value of a reply, or raises an `A2AError`."""

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
    """Makes what reads the plain events of a stream; of any other it makes None, for `Decode`."""

    def __call__(
        self, operation: Operation[Any, Any], request_id: str, /
    ) -> Callable[[bytes], Any]: ...


class Codec(msgspec.Struct, frozen=True):
    """How a binding writes calls and reads replies; of a stream, the data of each event.

    Attributes:
        encode: Makes a request of a call.
        decode: Makes a value of a reply.
        reader: Makes what reads the plain events of a stream.
        has_verbs: Whether the HTTP method says something.
        is_last: Tells whether an event says that it is the last one of its stream; None where none
            says so.
        has_snapshots: Whether a subscription begins with the task; else with the next thing that
            happens, which may be nothing.
    """

    encode: Encode
    decode: Decode
    reader: Reader
    has_verbs: bool = False
    is_last: Callable[[Any], bool] | None = None
    has_snapshots: bool = True


CODECS: Mapping[tuple[str, str], Codec] = {
    ("JSONRPC", PROTOCOL_VERSION): Codec(jsonrpc.encode, jsonrpc.decode, jsonrpc.reader),
    ("HTTP+JSON", PROTOCOL_VERSION): Codec(rest.encode, rest.decode, rest.reader, has_verbs=True),
    ("JSONRPC", OLDER_VERSION): Codec(
        v03.encode_rpc,
        v03.decode_rpc,
        v03.rpc_reader,
        is_last=v03.is_last,
        has_snapshots=False,
    ),
    ("HTTP+JSON", OLDER_VERSION): Codec(
        v03.encode_rest,
        v03.decode_rest,
        v03.rest_reader,
        has_verbs=True,
        is_last=v03.is_last,
        has_snapshots=False,
    ),
}
"""By binding and version of the protocol."""

_ALWAYS: Mapping[str, Mapping[str, str]] = {
    version: {"a2a-version": version, "user-agent": f"holdfast/{__version__}"}
    for version in PROTOCOL_VERSIONS
}
"""By version; 0.3 itself has no header for it, and agents of both versions look for one."""

_FOR_EXTENSIONS: Mapping[str, tuple[str, ...]] = {
    PROTOCOL_VERSION: ("a2a-extensions",),
    OLDER_VERSION: ("a2a-extensions", "x-a2a-extensions"),
}

_SPOKEN = {"1": PROTOCOL_VERSION, "0.2": OLDER_VERSION, "0.3": OLDER_VERSION}


def spoken_version(declared: str | None) -> str | None:
    """The version that is spoken where a card declares one, as ``1.0.3``.

    What 0.2 calls the same as 0.3 is the same; whoever declares nothing is tried with 1.0.

    Returns:
        None for one that is not spoken here.
    """
    if not declared:
        return PROTOCOL_VERSION
    major, _, rest_of_it = declared.strip().removeprefix("v").partition(".")
    return _SPOKEN.get(major) or _SPOKEN.get(f"{major}.{rest_of_it.partition('.')[0]}")


def protocol_headers(
    version: str, extensions: Collection[str] = (), written: Mapping[str, str] | None = None
) -> Mapping[str, str]:
    """The headers of every request (A2A 3.6.1, 3.2.6).

    Args:
        version: One of `PROTOCOL_VERSIONS`.
        extensions: URIs of the extensions that are asked for.
        written: The caller's own headers, which may ask for some; if they alone do, it stays as
            it is written.
    """
    always = _ALWAYS[version]
    listed = ",".join(extensions) or (_listed(written) if written else "")
    if not listed:
        return always
    return {**always, **dict.fromkeys(_FOR_EXTENSIONS[version], listed)}


def extensions_in(headers: Mapping[str, str]) -> tuple[str, ...]:
    """The URIs of extensions in the headers of a request or of a reply (A2A 14.2.2)."""
    return tuple(uri for each in _listed(headers).split(",") if (uri := each.strip()))


def _listed(headers: Mapping[str, str]) -> str:
    return headers.get("a2a-extensions") or headers.get("x-a2a-extensions") or ""
