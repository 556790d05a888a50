"""What the failures of grpcio mean, in the words of `holdfast.errors`.

Rules:
- Nothing was sent only where no connection came about before. A status, whoever made it, is read
  by `holdfast._wire.grpc_status`.
- What gRPC itself refuses of a reply is a limit of the client's, whatever status it has.
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
_INFLATES = "Decompressed message larger than max"
_LARGE_METADATA = re.compile(r"metadata size exceeds .*vs\. ([0-9]+)\)")
_OURS = "Stream removed"
"""What newer releases put before what the client has refused, and no server."""

_NOT_OURS = "SERVER:"
"""What gRPC's own servers put before the same words where it is our request that they refuse."""


class NotConnectedError(Exception):
    """No connection came about.

    Attributes:
        status: What gRPC says of it; None if the channel was closed.
    """

    def __init__(self, details: str) -> None:
        super().__init__(details)
        self.status: RpcStatus | None = RpcStatus(code="UNAVAILABLE", details=details)

    @classmethod
    def closed(cls) -> Self:
        """That of a channel that was closed."""
        error = cls("the channel is closed")
        error.status = None
        return error


def reason_in(details: str) -> str:
    """Why no connection came about, without what gRPC says around it."""
    last = details.rpartition("last error: ")[2].removeprefix("UNKNOWN: ")
    where, found, why = last.partition("Failed to connect to remote host: ")
    if found:
        return why
    return last.rpartition("lookup failed for ")[2].partition(": ")[2].rstrip("]") or where


def status_of(error: aio.AioRpcError) -> RpcStatus:
    """How a call ended."""
    return RpcStatus(
        code=error.code().name,
        details=error.details() or "",
        initial=tuple(error.initial_metadata() or ()),
        trailing=tuple(error.trailing_metadata() or ()),
    )


def too_large(
    operation: Operation[Any, Any], error: aio.AioRpcError, limits: Limits
) -> LimitExceededError | None:
    """The error of a reply that gRPC has not let through; None if that is not the failure.

    The agent has answered then, so that there is no telling from the status what it did.
    """
    details = error.details() or ""
    if error.code().name != "RESOURCE_EXHAUSTED" or _NOT_OURS in details:
        return None
    found = _LARGE_METADATA.search(details)
    if found is not None:
        if int(found[1]) != limits.headers and not details.startswith(_OURS):
            return None  # the server has refused what the request carries
        what = f"the metadata of the reply is larger than {limits.headers} bytes"
        return limit_error("headers", limits, what, grpc_status=error.code().name)
    found = _TOO_LARGE.search(details)
    if found is None and _INFLATES not in details:
        return None
    # What inflates to more is larger than the channel allows, and that is no less than ours.
    most, status = None if found is None else int(found[1]), error.code().name
    return message_too_large(operation, limits, most=most, grpc_status=status)
