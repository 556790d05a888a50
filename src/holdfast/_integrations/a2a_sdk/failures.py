"""What a failure of the SDK's transports means: is it worth another try, and did the agent run it?

The SDK flattens what happened below it: a timeout of connecting and one of reading are the same
`A2AClientTimeoutError`, and no error has a status. What is left is the error that it was raised
from (``__cause__``). That is read by the names of its classes, so that neither httpx, httpx2 nor
gRPC has to be there.

Rules:
- Whether another try may help is asked of the caller's predicate; `default_retry_predicate` goes
  by the kind of the cause alone.
- That an agent did not run a request has to be shown; everything else may have run:
  - httpx: no connection came about, so that no byte of the request left.
  - Whatever httpx says is about the request only if it names that: what a caller's event hook,
    or a login, asks of somebody else fails with the same errors, also after the agent has run it.
  - An HTTP reply: as `holdfast._wire.raw_replies` says of its status and body; where no agent
    speaks, 429, 503 with Retry-After and their like come from in front of it.
    Not so after a redirect that turns POST into GET: the agent has answered the POST.
  - gRPC: UNAVAILABLE is said by the library and by agents alike, in the same words if an agent
    passes on what *its* connection said. So the words count only if the reply carries no
    metadata, and the channel had no connection before the attempt, and failed to make one.
    Any other status is an answer.
- A wait that a server asks for: Retry-After (seconds or a date), retry-after-ms, RetryInfo,
  ``grpc-retry-pushback-ms`` (gRFC A6), which may also ask not to come back.
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

_LASTING = frozenset({"LocalProtocolError", "TooManyRedirects", "UnsupportedProtocol"})
"""Errors of httpx that are the same at every try."""

_KEEPING = frozenset({307, 308})
"""Redirects that send the same request elsewhere (RFC 9110, 15.4)."""

_DEEP = 8
"""How many transports around each other are looked through."""


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    """What a failure says of the request.

    Attributes:
        executed: False if the agent did not run it; None if it may have.
        retry_after: Seconds to wait before another try, as the server asks.
        is_final: Whether the server asks not to be tried again.
    """

    executed: bool | None = None
    retry_after: float | None = None
    is_final: bool = False


_MAY_HAVE_RUN = Failure()
_NOT_EXECUTED = Failure(executed=False)


def default_retry_predicate(exc: Exception) -> bool:
    """Whether another try may help, by the kind of a failure alone.

    So it is after timeouts, where no reply came (httpx's request errors, but for a request that
    cannot be sent as it is, and redirects without end), after HTTP 429, 502, 503 and 504, and
    after gRPC's UNAVAILABLE and RESOURCE_EXHAUSTED. An error in the protocol's own terms, such as
    `TaskNotFoundError`, is an answer. Where Holdfast itself is below, it knows.

    Args:
        exc: What a transport of the SDK raised.
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
        return not kinds & _LASTING
    return "RpcError" in _kinds(cause, _GRPC) and _code(cause) in _RETRIED_CODES


def read_failure(
    error: Exception,
    *,
    operation: Operation[Any, Any],
    now: float,
    states: tuple[str | None, str | None],
    address: str | None = None,
) -> Failure:
    """Reads what an error was raised from.

    Args:
        error: What a transport of the SDK raised.
        operation: What was called.
        now: Wall time in seconds since the epoch, to read a Retry-After date by.
        states: What `channel_state` said before and after the attempt.
        address: What `address_of` says of the transport.
    """
    failure = _read(error, now=now, states=states)
    if failure.executed is False and not _is_about_it(error.__cause__, operation, address):
        return msgspec.structs.replace(failure, executed=None)
    return failure


def _read(error: Exception, *, now: float, states: tuple[str | None, str | None]) -> Failure:
    """What an error says of the request that it is about."""
    cause: Any = error.__cause__
    for known in (cause, getattr(cause, "__cause__", None)):
        if isinstance(known, A2AError):  # Holdfast itself is below, and knows
            return Failure(executed=known.executed, retry_after=known.retry_after)
    kinds = _kinds(cause, _HTTPX)
    if "HTTPStatusError" in kinds:
        return _of_reply(cause.response, now=now)
    if kinds & _NOT_SENT:
        return _NOT_EXECUTED
    if "RpcError" in _kinds(cause, _GRPC):
        return _of_rpc(cause, states)
    return _MAY_HAVE_RUN


def channel_state(transport: ClientTransport | None) -> str | None:
    """What the gRPC channel of a transport says of its connection, as ``"READY"``.

    Returns:
        None if it has none, or says nothing.
    """
    for one in _around(transport):
        channel = getattr(one, "channel", None)
        if channel is not None and _kinds(channel, _GRPC):
            try:
                return str(channel.get_state().name)
            except Exception:  # noqa: BLE001  a channel that is closed says so in several ways
                return None
    return None


def address_of(transport: ClientTransport | None) -> str | None:
    """The address that a transport sends its requests to, or below; None if it does not say."""
    found = (getattr(one, "url", None) for one in _around(transport))
    return next((url for url in found if isinstance(url, str)), None)


def _around(transport: ClientTransport | None) -> Iterator[Any]:
    """A transport, and those that it is around."""
    below: Any = transport
    for _ in range(_DEEP):
        if below is None:
            return
        yield below
        below = getattr(below, "_base", None)  # as the SDK's decorator has it


def _of_reply(response: Any, *, now: float) -> Failure:
    """What an HTTP reply says, by the tables of the core."""
    try:
        headers = {str(name).lower(): str(value) for name, value in response.headers.items()}
        is_changed = any(one.status_code not in _KEEPING for one in response.history)
        status = int(response.status_code)
    except Exception:  # noqa: BLE001  a third party's reply, which nobody can read
        return _MAY_HAVE_RUN
    try:
        body, is_readable = bytes(response.content), True
    except Exception:  # noqa: BLE001  of a stream that nobody has read, whoever's class it is
        body, is_readable = b"", False
    reply = HttpReply(status=status, headers=headers, body=body)
    known = read_raw_error(reply, now=now, refusals=REFUSALS, limits=Limits())
    executed = known.executed if is_readable and not is_changed else None
    return Failure(executed=executed, retry_after=known.retry_after)


def _is_about_it(cause: Any, operation: Operation[Any, Any], address: str | None) -> bool:
    """Whether what httpx tells of is the request, and not one that followed or came with it."""
    kinds = _kinds(cause, _HTTPX)
    if not kinds:
        return True
    try:
        request = cause.request
        if "HTTPStatusError" in kinds:
            request = [*cause.response.history, cause.response][0].request
    except RuntimeError:  # made by hand, without one
        return True
    if request.method not in {"POST", operation.verb, operation.other_verb}:
        return False  # a redirect has led there
    if address is None:
        return True
    asked = request.url
    try:
        own = type(asked)(address)
    except Exception:  # noqa: BLE001  what a third party calls so is no address
        return False
    if not own.host:  # it counts from the client's own
        return True
    there = (asked.scheme, asked.host, asked.port) == (own.scheme, own.host, own.port)
    return there and asked.path.startswith(own.path.rstrip("/"))


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
    is_shown = (
        _code(error) == "UNAVAILABLE"
        and not trailing
        and not _metadata(error, "initial_metadata")
        and str(_said(error, "details")).startswith(NO_CONNECTION)
        and before not in {None, "READY"}
        and after == "TRANSIENT_FAILURE"
    )
    return _NOT_EXECUTED if is_shown else _MAY_HAVE_RUN


def _code(error: Any) -> str:
    """The name of a gRPC status; empty if there is none."""
    return str(getattr(_said(error, "code"), "name", ""))


def _metadata(error: Any, which: str) -> dict[str, Any]:
    return {key.lower(): value for key, value in _said(error, which) or ()}


def _said(error: Any, what: str) -> Any:
    """What an `RpcError` says of itself; None if nothing: the class alone promises none of it."""
    method = getattr(error, what, None)
    return method() if callable(method) else None


def _retry_info(details: Any) -> float | None:
    """The seconds of a `google.rpc.RetryInfo` among the details of a gRPC status."""
    told = read_details(details) if isinstance(details, bytes) else None
    return None if told is None else make_error_object(0, "", None, told.details).retry_after


def _kinds(thing: object, packages: frozenset[str]) -> set[str]:
    """The names of the classes of something, as far as one of these packages defines them."""
    mro = type(thing).__mro__
    return {kind.__name__ for kind in mro if kind.__module__.partition(".")[0] in packages}
