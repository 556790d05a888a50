"""Detection of the protocol version that an agent speaks, if its card leaves it open.

Rules: the probe executes nothing; only a response of the protocol itself counts, so that a
gateway's refusal or a temporary failure is never remembered; an older version counts as spoken
only if the agent understood it; concurrent calls share one probe.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast._model.operations import GET_TASK, SEND_MESSAGE, SEND_STREAMING_MESSAGE
from holdfast._pipeline.observed_request import make_beside
from holdfast.errors import (
    A2AError,
    A2AHTTPError,
    AuthenticationError,
    MethodNotFoundError,
    PermissionDeniedError,
    VersionNotSupportedError,
)
from holdfast.types import GetTaskRequest

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast._pipeline.endpoints import Endpoint
    from holdfast._pipeline.transport import AnyCall, Transport

__all__ = ["detect_version", "is_of_another_version", "shows_another_version"]


async def detect_version(
    transport: Transport, endpoint: Endpoint, newer: AnyCall, older: Callable[[], AnyCall]
) -> None:
    """Detect whether an endpoint speaks its version, if this is not known yet.

    A probe without a result leaves it unknown; the next call probes again.

    Args:
        transport: Makes the probes.
        endpoint: The endpoint of the newer version, which remembers the result.
        newer: The call in the newer version.
        older: Returns the call in the older version.

    Raises:
        A2AError: The agent does not understand the newer version, and the call is not possible in
            the older one.
    """
    checks = endpoint.version_checks
    async with endpoint.version_lock.here():
        if endpoint.speaks_version is not None or endpoint.version_checks != checks:
            return  # a concurrent call has probed
        understood = await _understands(transport, newer)
        if understood is False:
            understood = False if await _understands(transport, older()) else None
        endpoint.speaks_version = understood
        endpoint.version_checks += 1


async def _understands(transport: Transport, call: AnyCall) -> bool | None:
    """Request a task that does not exist; None if the response does not show the version."""
    params = GetTaskRequest(id=f"{call.request_id}-version")
    try:
        await make_beside(call, GET_TASK, params, transport.unary)
    except A2AError as error:
        if _may_be_of_gateway(error) or error.retry_after is not None:
            return None
        if is_of_another_version(error):
            return False
        return None if error.transient or error.code is None else True
    return True


def _may_be_of_gateway(error: A2AError) -> bool:
    """Return whether an error may come from a gateway in front of the agent."""
    refusals = (AuthenticationError, PermissionDeniedError)
    return isinstance(error, refusals) or error.http_status in {401, 403}


def is_of_another_version(error: A2AError) -> bool:
    """Return whether an error may mean that the agent speaks another version."""
    if isinstance(error, A2AHTTPError):
        return error.http_status in {400, 404, 405, 501}
    return error.code in _VERSION_ERROR_CODES


_VERSION_ERROR_CODES = frozenset({-32600, -32601, -32603, -32009})
"""Invalid request, unknown method, internal error, version not supported."""


def shows_another_version(error: A2AError, call: AnyCall, binding: str) -> bool:
    """Return whether an error almost certainly means that the agent speaks another version."""
    if isinstance(error, VersionNotSupportedError):
        return True
    if call.operation.name not in _IN_EVERY_VERSION:
        return False
    if isinstance(error, A2AHTTPError):  # an unknown path: the path contains the version
        return binding == "HTTP+JSON" and error.http_status in {404, 405}
    return isinstance(error, MethodNotFoundError)


_IN_EVERY_VERSION = frozenset({SEND_MESSAGE.name, SEND_STREAMING_MESSAGE.name, GET_TASK.name})
"""Operations that exist in every version of the protocol."""
