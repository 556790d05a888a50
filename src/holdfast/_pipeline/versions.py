"""Finding out which version of the protocol an agent speaks, where its card leaves that open.

Rules: the question executes nothing; only an answer in the protocol's own terms counts, so that a
gateway's refusal or a bad moment is never remembered as a fact; an older version counts as spoken
only if the agent understood it; those who call at the same time ask once between them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from holdfast._model.operations import GET_TASK, SEND_MESSAGE, SEND_STREAMING_MESSAGE
from holdfast._pipeline.transport import CallProgress
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

__all__ = ["find_out", "is_of_another_version", "shows_another_version"]


async def find_out(
    transport: Transport, endpoint: Endpoint, newer: AnyCall, older: Callable[[], AnyCall]
) -> None:
    """Finds out whether an endpoint speaks its version, unless it is known or found out already.

    What cannot be found out now stays unknown: it is left to the call, and to the next one.

    Args:
        transport: Carries the questions.
        endpoint: The endpoint of the newer version, which remembers the answer.
        newer: The call as it would be made there.
        older: Makes what it would be in the older version.

    Raises:
        A2AError: The newer version is not understood, and the call may not be made in the older.
    """
    asked = endpoint.asked
    async with endpoint.asking.here():
        if endpoint.speaks_version is not None or endpoint.asked != asked:
            return  # somebody has asked meanwhile
        understood = await _understands(transport, newer)
        if understood is False:
            understood = False if await _understands(transport, older()) else None
        endpoint.speaks_version = understood
        endpoint.asked += 1


async def _understands(transport: Transport, call: AnyCall) -> bool | None:
    """Asks for a task that is none; None if the answer says nothing about the version."""
    name = f"{call.request_id}-version"
    question = msgspec.structs.replace(
        call,
        operation=GET_TASK,
        params=GetTaskRequest(id=name),
        request_id=name,
        is_retried=False,
        progress=CallProgress(began=call.progress.began, call_group=call.progress.call_group),
    )
    try:
        await transport.unary(question)
    except A2AError as error:
        if _is_of_a_gateway(error) or error.retry_after is not None:
            return None
        if is_of_another_version(error):
            return False
        return None if error.transient or error.code is None else True
    return True


def _is_of_a_gateway(error: A2AError) -> bool:
    """Whether those say it who stand before an agent, whatever their words."""
    refusals = (AuthenticationError, PermissionDeniedError)
    return isinstance(error, refusals) or error.http_status in {401, 403}


def is_of_another_version(error: A2AError) -> bool:
    """Whether agents answer so that speak another version, among other reasons."""
    if isinstance(error, A2AHTTPError):
        return error.http_status in {400, 404, 405, 501}
    return error.code in _OF_ANOTHER_VERSION


_OF_ANOTHER_VERSION = frozenset({-32600, -32601, -32603, -32009})
"""Invalid request, unknown method, internal error, version not supported."""


def shows_another_version(error: A2AError, call: AnyCall, binding: str) -> bool:
    """Whether there is hardly another reason for an error than the version that was spoken."""
    if isinstance(error, VersionNotSupportedError):
        return True
    if call.operation.name not in _EVERYWHERE:
        return False
    if isinstance(error, A2AHTTPError):  # an unknown path, which has the version in it
        return binding == "HTTP+JSON" and error.http_status in {404, 405}
    return isinstance(error, MethodNotFoundError)


_EVERYWHERE = frozenset({SEND_MESSAGE.name, SEND_STREAMING_MESSAGE.name, GET_TASK.name})
"""What agents of every version know, by some name."""
