"""The bindings that are HTTP: a pair of pure functions each, under the name that cards use."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from holdfast.wire import jsonrpc, rest

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast.model.operations import Operation
    from holdfast.wire.http import Encoded, HttpReply

__all__ = ["BINDINGS", "PROTOCOL_VERSION", "Codec"]

PROTOCOL_VERSION = "1.0"


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


BINDINGS = {
    "JSONRPC": Codec(jsonrpc.encode, jsonrpc.decode, jsonrpc.reader),
    "HTTP+JSON": Codec(rest.encode, rest.decode, rest.reader, has_verbs=True),
}
