"""Details of gRPC errors: the `google.rpc.Status` in the metadata."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from google.protobuf.message import Message as ProtoMessage

__all__ = ["RichStatus", "read_details"]

_TYPE_PREFIX = "type.googleapis.com/google.rpc."
_MAX_DETAILS = 64
"""Number of details that are decoded per error."""


class RichStatus(NamedTuple):
    """A `google.rpc.Status`.

    Attributes:
        code: Number of the gRPC status.
        message: Text of the agent.
        details: Typed details, each as ProtoJSON with an ``@type``; of an unknown type only the
            ``@type``.
    """

    code: int
    message: str
    details: tuple[dict[str, Any], ...]


def read_details(data: bytes) -> RichStatus | None:
    """Decode the value of ``grpc-status-details-bin``.

    Returns:
        None if it is malformed, or protobuf is not installed.
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
    details = tuple(_detail(any_) for any_ in status.details[:_MAX_DETAILS])
    return RichStatus(status.code, status.message, details)


def _detail(packed: Any) -> dict[str, Any]:
    from google.protobuf.json_format import Error, MessageToDict
    from google.protobuf.message import DecodeError

    detail: dict[str, Any] = {"@type": str(packed.type_url)}
    kind = _detail_types().get(detail["@type"].rpartition("/")[2])
    if kind is None:
        return detail
    try:
        members: dict[str, Any] = MessageToDict(kind.FromString(packed.value))
    except (DecodeError, Error, ValueError, RecursionError):
        return detail
    # A Struct goes into a member of its own (ProtoJSON of Any).
    return {**detail, "value": members} if kind.__name__ == "Struct" else {**members, **detail}


def _detail_types() -> dict[str, type[ProtoMessage]]:
    """Return the types of details by their full names."""
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
