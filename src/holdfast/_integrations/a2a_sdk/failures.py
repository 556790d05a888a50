"""Facts of a failure of the SDK's transports: is it transient, and did the agent execute the call?

The SDK's errors hide the failure below them: a connect timeout and a read timeout are the same
`A2AClientTimeoutError`, and no error has a status. Only the error that it was raised from remains
(``__cause__``). It is recognized by the names of its classes, so that httpx, httpx2 and gRPC need
not be installed.

Rules:
- The caller's predicate decides whether a retry may help; `default_retry_predicate` decides by the
  kind of the cause alone.
- A request counts as possibly executed unless one of these shows the opposite:
  - httpx: no connection was made, so that no byte of the request was sent.
  - An error of httpx counts only if its request is that of the call: a request that an event hook
    or a login of the caller sends to another server fails with the same errors, even after the
    agent has executed the call.
  - An HTTP reply: `holdfast._wire.raw_replies` decides by status and body; without an agent's
    error, 429, 503 with Retry-After and similar statuses come from a gateway before the agent.
    After a redirect that turns POST into GET nothing is shown: the agent answered the POST.
  - gRPC: both the library and agents report UNAVAILABLE, with the same text if an agent passes on
    the error of *its* connection. So the text counts only if the reply has no metadata, the
    channel had no connection before the attempt, and failed to make one. Any other status is a
    reply.
- The delay that a server requests: Retry-After (seconds or a date), retry-after-ms, RetryInfo, or
  ``grpc-retry-pushback-ms`` (gRFC A6), which may also forbid retries.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
from a2a.client.errors import A2AClientError, A2AClientTimeoutError

from holdfast._model.error_reading import make_error_object
from holdfast._model.error_values import seconds
from holdfast._wire.grpc_status import NO_CONNECTION
from holdfast._wire.protobuf.details import read_details
from holdfast._wire.raw_replies import read_raw_error
from holdfast._wire.status import REFUSALS
from holdfast.errors import A2AError
from holdfast.extend import HttpReply
from holdfast.policies import Limits

if TYPE_CHECKING:
    from collections.abc import Iterator

    from a2a.client.transports.base import ClientTransport

    from holdfast.protocol import Operation

__all__ = ["Failure", "address_of", "channel_state", "default_retry_predicate", "read_failure"]

_HTTPX = frozenset({"httpx", "httpx2"})
_GRPC = frozenset({"grpc"})

_RETRIED_STATUSES = frozenset({429, 502, 503, 504})
_RETRIED_CODES = frozenset({"UNAVAILABLE", "RESOURCE_EXHAUSTED"})

_NOT_SENT = frozenset(
    {"ConnectError", "ConnectTimeout", "PoolTimeout", "ProxyError", "UnsupportedProtocol"}
)
"""Errors of httpx from before the first byte of a request."""

_PERMANENT = frozenset({"LocalProtocolError", "TooManyRedirects", "UnsupportedProtocol"})
"""Errors of httpx that every retry would repeat."""

_SAME_METHOD = frozenset({307, 308})
"""Redirects that repeat the request unchanged (RFC 9110, 15.4)."""

_MAX_NESTING = 8
"""Maximum number of nested transports that are examined."""


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    """Facts of a failed request.

    Attributes:
        executed: False if the agent did not execute it; None if unknown.
        retry_after: Seconds that the server requests before a retry; None if not stated.
        is_final: Whether the server forbids retries.
    """

    executed: bool | None = None
    retry_after: float | None = None
    is_final: bool = False


_MAY_BE_EXECUTED = Failure()
_NOT_EXECUTED = Failure(executed=False)


def default_retry_predicate(exc: Exception) -> bool:
    """Return whether a retry may help, by the kind of the failure alone.

    It may after timeouts; if there was no reply (request errors of httpx, except for a request
    that cannot be sent and for endless redirects); after HTTP 429, 502, 503 and 504; and after
    UNAVAILABLE and RESOURCE_EXHAUSTED of gRPC. An error of the protocol, such as
    `TaskNotFoundError`, is a reply. If the transport is Holdfast's, its error states whether it is
    transient.

    Args:
        exc: The exception of a transport of the SDK.
    """
    if not isinstance(exc, A2AClientError):
        return False
    cause: Any = exc.__cause__
    if isinstance(cause, A2AError):
        return cause.transient
    if isinstance(exc, A2AClientTimeoutError):
        return True
    kinds = _kinds(cause, _HTTPX)
    if "HTTPStatusError" in kinds:
        return cause.response.status_code in _RETRIED_STATUSES
    if "RequestError" in kinds:
        return not kinds & _PERMANENT
    return "RpcError" in _kinds(cause, _GRPC) and _code(cause) in _RETRIED_CODES


def read_failure(
    error: Exception,
    *,
    operation: Operation[Any, Any],
    now: float,
    states: tuple[str | None, str | None],
    address: str | None = None,
) -> Failure:
    """Return the facts of a failure, from the cause of its exception.

    Args:
        error: The exception of a transport of the SDK.
        operation: The operation that was called.
        now: Wall time in seconds since the epoch, for a Retry-After date.
        states: The `channel_state` before and after the attempt.
        address: The `address_of` the transport.
    """
    failure = _read(error, now=now, states=states)
    if failure.executed is False and not _is_own_request(error.__cause__, operation, address):
        return msgspec.structs.replace(failure, executed=None)
    return failure


def _read(error: Exception, *, now: float, states: tuple[str | None, str | None]) -> Failure:
    """Return the facts of the request that an error is about."""
    cause: Any = error.__cause__
    for a2a_error in (cause, getattr(cause, "__cause__", None)):
        if isinstance(a2a_error, A2AError):  # the transport is Holdfast's
            return Failure(executed=a2a_error.executed, retry_after=a2a_error.retry_after)
    kinds = _kinds(cause, _HTTPX)
    if "HTTPStatusError" in kinds:
        return _of_reply(cause.response, now=now)
    if kinds & _NOT_SENT:
        return _NOT_EXECUTED
    if "RpcError" in _kinds(cause, _GRPC):
        return _of_rpc(cause, states)
    return _MAY_BE_EXECUTED


def channel_state(transport: ClientTransport | None) -> str | None:
    """Return the state of the gRPC channel of a transport, such as ``"READY"``.

    Returns:
        None if it has no channel, or the channel does not report its state.
    """
    for nested in _nested_transports(transport):
        channel = getattr(nested, "channel", None)
        if channel is not None and _kinds(channel, _GRPC):
            try:
                return str(channel.get_state().name)
            except Exception:  # noqa: BLE001  a closed channel raises several kinds
                return None
    return None


def address_of(transport: ClientTransport | None) -> str | None:
    """Return the address that a transport sends requests to, or below; None if unknown."""
    urls = (getattr(nested, "url", None) for nested in _nested_transports(transport))
    return next((url for url in urls if isinstance(url, str)), None)


def _nested_transports(transport: ClientTransport | None) -> Iterator[Any]:
    """Yield a transport, and the transports that it wraps."""
    nested: Any = transport
    for _ in range(_MAX_NESTING):
        if nested is None:
            return
        yield nested
        nested = getattr(nested, "_base", None)  # the attribute of the SDK's decorator


def _of_reply(response: Any, *, now: float) -> Failure:
    """Return the facts of an HTTP reply, by the tables of the core."""
    try:
        headers = {str(name).lower(): str(value) for name, value in response.headers.items()}
        is_changed = any(each.status_code not in _SAME_METHOD for each in response.history)
        status = int(response.status_code)
    except Exception:  # noqa: BLE001  the reply of another library, which may be broken
        return _MAY_BE_EXECUTED
    try:
        body, is_readable = bytes(response.content), True
    except Exception:  # noqa: BLE001  the body of a stream was not read
        body, is_readable = b"", False
    reply = HttpReply(status=status, headers=headers, body=body)
    error = read_raw_error(reply, now=now, refusals=REFUSALS, limits=Limits())
    executed = error.executed if is_readable and not is_changed else None
    return Failure(executed=executed, retry_after=error.retry_after)


def _is_own_request(cause: Any, operation: Operation[Any, Any], address: str | None) -> bool:
    """Return whether an error of httpx is about the request of the call, and not another one."""
    kinds = _kinds(cause, _HTTPX)
    if not kinds:
        return True
    try:
        request = cause.request
        if "HTTPStatusError" in kinds:
            request = [*cause.response.history, cause.response][0].request
    except RuntimeError:  # an error without a request, as tests raise it
        return True
    if request.method not in {"POST", operation.verb, operation.other_verb}:
        return False  # the request of a redirect
    if address is None:
        return True
    url = request.url
    try:
        own = type(url)(address)
    except Exception:  # noqa: BLE001  the attribute of another transport may be no address
        return False
    if not own.host:  # it is relative to the client's base URL
        return True
    is_same_origin = (url.scheme, url.host, url.port) == (own.scheme, own.host, own.port)
    return is_same_origin and url.path.startswith(own.path.rstrip("/"))


def _of_rpc(error: Any, states: tuple[str | None, str | None]) -> Failure:
    trailing = _metadata(error, "trailing_metadata")
    pushback = trailing.get("grpc-retry-pushback-ms")
    if pushback is not None:
        wait = seconds(pushback)
        if wait is None:
            return Failure(is_final=True)
        return Failure(retry_after=wait / 1000)
    if (details := trailing.get("grpc-status-details-bin")) is not None:
        return Failure(retry_after=_retry_info(details))
    before, after = states
    is_unsent = (
        _code(error) == "UNAVAILABLE"
        and not trailing
        and not _metadata(error, "initial_metadata")
        and str(_rpc_fact(error, "details")).startswith(NO_CONNECTION)
        and before not in {None, "READY"}
        and after == "TRANSIENT_FAILURE"
    )
    return _NOT_EXECUTED if is_unsent else _MAY_BE_EXECUTED


def _code(error: Any) -> str:
    """Return the name of a gRPC status; empty if there is none."""
    return str(getattr(_rpc_fact(error, "code"), "name", ""))


def _metadata(error: Any, which: str) -> dict[str, Any]:
    return {key.lower(): value for key, value in _rpc_fact(error, which) or ()}


def _rpc_fact(error: Any, name: str) -> Any:
    """Return a fact of an `RpcError`; None if it has none, because the class has no methods."""
    method = getattr(error, name, None)
    return method() if callable(method) else None


def _retry_info(details: Any) -> float | None:
    """Return the seconds of the `google.rpc.RetryInfo` in the details of a gRPC status."""
    status = read_details(details) if isinstance(details, bytes) else None
    return None if status is None else make_error_object(0, "", None, status.details).retry_after


def _kinds(value: object, packages: frozenset[str]) -> set[str]:
    """Return the names of an object's classes that one of the packages defines."""
    mro = type(value).__mro__
    return {kind.__name__ for kind in mro if kind.__module__.partition(".")[0] in packages}
