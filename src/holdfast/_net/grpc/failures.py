"""Map the errors of grpcio to those of `holdfast.errors`.

Rules:
- Nothing was sent only if no connection was made. A status, from the server or from grpcio, is
  mapped by `holdfast._wire.grpc_status`.
- A reply that grpcio itself rejects exceeds a limit of the client, whatever its status.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Self

from holdfast._wire.grpc import message_too_large
from holdfast._wire.grpc_status import RpcStatus
from holdfast._wire.limits import limit_error

if TYPE_CHECKING:
    from typing import Any

    from grpc import aio

    from holdfast._model.operations import Operation
    from holdfast._wire.limits import Limits
    from holdfast.errors import LimitExceededError

__all__ = ["NotConnectedError", "reason_in", "status_of", "too_large"]

_TOO_LARGE = re.compile(r"larger than max \([0-9]+ vs\. ([0-9]+)\)")
_INFLATED_TOO_LARGE = "Decompressed message larger than max"
_LARGE_METADATA = re.compile(r"metadata size exceeds .*vs\. ([0-9]+)\)")
_CLIENT_PREFIX = "Stream removed"
"""Prefix of newer releases for what the client has rejected; no server sends it."""

_SERVER_PREFIX = "SERVER:"
"""Prefix of gRPC's own servers for the same text if they reject the client's request."""


class NotConnectedError(Exception):
    """No connection was made.

    Attributes:
        status: The status of grpcio; None if the channel was closed.
    """

    def __init__(self, details: str) -> None:
        super().__init__(details)
        self.status: RpcStatus | None = RpcStatus(code="UNAVAILABLE", details=details)

    @classmethod
    def closed(cls) -> Self:
        """Return the error of a closed channel."""
        error = cls("the channel is closed")
        error.status = None
        return error


def reason_in(details: str) -> str:
    """Return the reason of a failed connection, without grpcio's words around it."""
    last = details.rpartition("last error: ")[2].removeprefix("UNKNOWN: ")
    address, separator, reason = last.partition("Failed to connect to remote host: ")
    if separator:
        return reason
    return last.rpartition("lookup failed for ")[2].partition(": ")[2].rstrip("]") or address


def status_of(error: aio.AioRpcError) -> RpcStatus:
    """Return the status of a call."""
    return RpcStatus(
        code=error.code().name,
        details=error.details() or "",
        initial=tuple(error.initial_metadata() or ()),
        trailing=tuple(error.trailing_metadata() or ()),
    )


def too_large(
    operation: Operation[Any, Any], error: aio.AioRpcError, limits: Limits
) -> LimitExceededError | None:
    """Return the error of a reply that grpcio rejected as too large; None for other failures.

    The agent has answered, so the status does not show whether it executed the call.
    """
    details = error.details() or ""
    if error.code().name != "RESOURCE_EXHAUSTED" or _SERVER_PREFIX in details:
        return None
    metadata_bound = _LARGE_METADATA.search(details)
    if metadata_bound is not None:
        if int(metadata_bound[1]) != limits.headers and not details.startswith(_CLIENT_PREFIX):
            return None  # the server rejected the request's metadata
        problem = f"the metadata of the reply is larger than {limits.headers} bytes"
        return limit_error("headers", limits, problem, grpc_status=error.code().name)
    message_bound = _TOO_LARGE.search(details)
    if message_bound is None and _INFLATED_TOO_LARGE not in details:
        return None
    # An inflated message exceeds the channel's bound, which is not below the client's limits.
    most = None if message_bound is None else int(message_bound[1])
    return message_too_large(operation, limits, most=most, grpc_status=error.code().name)
