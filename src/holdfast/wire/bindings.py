"""The bindings that are HTTP: a pair of pure functions each, under the name that cards use."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, Protocol

import msgspec

from holdfast.wire import jsonrpc, rest, v03

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from holdfast.model.operations import Operation
    from holdfast.wire.http import Encoded, HttpReply

__all__ = [
    "BINDINGS",
    "CODECS",
    "OLDER_VERSION",
    "PROTOCOL_VERSION",
    "PROTOCOL_VERSIONS",
    "Codec",
    "ProtocolVersion",
    "spoken_version",
]

ProtocolVersion = Literal["1.0", "0.3"]

PROTOCOL_VERSION: ProtocolVersion = "1.0"
OLDER_VERSION: ProtocolVersion = "0.3"
PROTOCOL_VERSIONS: tuple[ProtocolVersion, ...] = (PROTOCOL_VERSION, OLDER_VERSION)


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
    """Makes what reads the plain events of a stream; it gives None where `Decode` has to say."""

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
    """

    encode: Encode
    decode: Decode
    reader: Reader
    has_verbs: bool = False


CODECS: Mapping[tuple[str, str], Codec] = {
    ("JSONRPC", PROTOCOL_VERSION): Codec(jsonrpc.encode, jsonrpc.decode, jsonrpc.reader),
    ("HTTP+JSON", PROTOCOL_VERSION): Codec(rest.encode, rest.decode, rest.reader, has_verbs=True),
    ("JSONRPC", OLDER_VERSION): Codec(v03.encode_rpc, v03.decode_rpc, v03.read_rpc),
    ("HTTP+JSON", OLDER_VERSION): Codec(
        v03.encode_rest, v03.decode_rest, v03.read_rest, has_verbs=True
    ),
}
"""By binding and version of the protocol."""

BINDINGS = ("JSONRPC", "HTTP+JSON")

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
