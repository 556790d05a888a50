"""What an error of gRPC says besides its status: the `google.rpc.Status` in its metadata."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from google.protobuf.message import Message as ProtoMessage

__all__ = ["RichStatus", "read_details"]

_TYPES = "type.googleapis.com/google.rpc."
_MOST = 64
"""Details that are read of one error."""


class RichStatus(NamedTuple):
    """A `google.rpc.Status`.

    Attributes:
        code: The number of the gRPC status.
        message: What the agent says about it.
        details: Typed details, each as its ProtoJSON with an ``@type``. Of those that are not
            known here there is the ``@type`` alone.
    """

    code: int
    message: str
    details: tuple[dict[str, Any], ...]


def read_details(data: bytes) -> RichStatus | None:
    """Reads the value of ``grpc-status-details-bin``.

    Returns:
        None if it is none, or protobuf is not installed.
    """
    try:
        from google.protobuf.message import DecodeError
        from google.rpc.status_pb2 import Status  # type: ignore[import-untyped]
    except ImportError:
        return None
    try:
        status = Status.FromString(data)
    except DecodeError:
        return None
    details = tuple(_detail(any_) for any_ in status.details[:_MOST])
    return RichStatus(status.code, status.message, details)


def _detail(packed: Any) -> dict[str, Any]:
    from google.protobuf.json_format import Error, MessageToDict
    from google.protobuf.message import DecodeError

    told: dict[str, Any] = {"@type": str(packed.type_url)}
    kind = _known().get(told["@type"].rpartition("/")[2])
    if kind is None:
        return told
    try:
        members: dict[str, Any] = MessageToDict(kind.FromString(packed.value))
    except (DecodeError, Error, ValueError, RecursionError):
        return told
    # An object without a schema stands in a member of its own (ProtoJSON of Any).
    return {**told, "value": members} if kind.__name__ == "Struct" else {**members, **told}


def _known() -> dict[str, type[ProtoMessage]]:
    """The messages that details are made of, by their full names."""
    from google.protobuf.struct_pb2 import Struct
    from google.rpc import error_details_pb2 as rpc  # type: ignore[import-untyped]

    kinds = (
        rpc.BadRequest,
        rpc.DebugInfo,
        rpc.ErrorInfo,
        rpc.Help,
        rpc.LocalizedMessage,
        rpc.PreconditionFailure,
        rpc.QuotaFailure,
        rpc.RequestInfo,
        rpc.ResourceInfo,
        rpc.RetryInfo,
        Struct,
    )
    return {kind.DESCRIPTOR.full_name: kind for kind in kinds}
