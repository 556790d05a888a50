"""The gRPC binding (A2A specification 10) in both versions: calls to bytes, bytes to values or errors.

Nothing here knows of grpcio, which carries the bytes: a call is the path of a method, metadata and
a message; what comes back is a message, or a status with metadata.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast._version import __version__

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from holdfast.errors import A2AError
    from holdfast.model.operations import Operation
    from holdfast.wire.limits import Limits

__all__ = [
    "BINDING",
    "CODECS",
    "USER_AGENT",
    "GrpcCodec",
    "Metadata",
    "RpcRequest",
    "RpcStatus",
    "check_library",
    "error_of",
    "reply_headers",
    "request_metadata",
]

BINDING = "GRPC"
"""The name that cards use."""

USER_AGENT = f"holdfast/{__version__}"
"""For the channel: gRPC writes the header by itself (``grpc.primary_user_agent``)."""

AnyOperation = Any

Metadata = Iterable[tuple[str, str | bytes]]
"""As grpcio gives and takes it: values of names that end in ``-bin`` are bytes."""


class RpcRequest(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What becomes of a call.

    Attributes:
        method: Path of the method, as ``/lf.a2a.v1.A2AService/SendMessage``.
        body: The message, serialized.
    """

    method: str
    body: bytes


class RpcStatus(msgspec.Struct, frozen=True, kw_only=True):
    """How a call ended that was no success, as gRPC tells it.

    Attributes:
        code: Name of the status, as ``"NOT_FOUND"``, or its number.
        details: The text that came along.
        initial: Metadata before the reply.
        trailing: Metadata behind it.
    """

    code: str | int
    details: str = ""
    initial: Metadata = ()
    trailing: Metadata = ()


class GrpcCodec(msgspec.Struct, frozen=True, kw_only=True):
    """How a version of the protocol is spoken over gRPC.

    Attributes:
        service: Full name of the service.
        is_last: As in `holdfast.wire.bindings.Codec`.
        has_snapshots: As there.
    """

    service: str
    is_last: Callable[[Any], bool] | None = None
    has_snapshots: bool = True

    def encode(self, operation: Operation[Any, Any], params: Any) -> RpcRequest:
        """Makes the request of a call.

        Raises:
            MalformedError: A parameter has no form in protocol buffers; the error names it. (It is
                a `ValueError`; nothing was sent.)
            UnsupportedOperationError: Version 0.3 has no such operation, or no word for what the
                request says; nothing was sent (``executed`` is False).
            ImportError: The extra is not installed.
        """
        raise NotImplementedError

    def decode(self, operation: Operation[Any, Any], body: bytes, *, limits: Limits) -> Any:
        """Reads the reply of an operation, or one event of its stream.

        Args:
            operation: What was called.
            body: The message, serialized.
            limits: How much is accepted; the number of artifacts, parts and messages is checked,
                too.

        Raises:
            InvalidAgentResponseError: It is not the message that it must be.
            LimitExceededError: It is larger than a limit.
        """
        raise NotImplementedError


CODECS: Mapping[str, GrpcCodec] = {
    "1.0": GrpcCodec(service="lf.a2a.v1.A2AService"),
    "0.3": GrpcCodec(service="a2a.v1.A2AService", has_snapshots=False),
}
"""By version of the protocol."""


def check_library() -> None:
    """Checks that messages can be read and written.

    Raises:
        ImportError: The extra is not installed; the text names it.
    """
    raise NotImplementedError


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
    raise NotImplementedError


def reply_headers(*metadata: Metadata | None) -> dict[str, str]:
    """Metadata as the headers of a `Reply`: initial first, then trailing.

    Names are in lower case, values of one name are joined by a comma; binary ones are base64;
    gRPC's own (``grpc-…``) are left out.
    """
    raise NotImplementedError


def error_of(
    operation: Operation[Any, Any],
    ended: RpcStatus,
    *,
    version: str,
    now: float,
    refusals: frozenset[int],
    sent: bool = True,
    began: bool = False,
) -> A2AError:
    """Makes the error of a call that gRPC says has failed.

    Args:
        operation: What was called.
        ended: What gRPC says.
        version: The version of the protocol that was spoken.
        now: Wall time in seconds since the epoch, to read a Retry-After date by.
        refusals: HTTP statuses that are taken to mean "not executed" (`Resilience.refusals`);
            those gRPC statuses mean it that stand for one of them.
        sent: False where it is certain that no byte of the request left, because there never was
            a connection: then it was not executed, whatever is said.
        began: Whether an event or the initial metadata had come before.

    Returns:
        With ``grpc_status`` and the facts; raised by whoever asked, who adds ``agent``.
    """
    raise NotImplementedError
