"""The common base of `holdfast.integrations.httpx` and `holdfast.integrations.httpx2`.

It converts a request of the library to an `HttpRequest`, and the reply to a response or an
exception of the library, of the class that the library's own transport would raise.
`ForeignRequests` sends the request.
"""

from __future__ import annotations

import asyncio
from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar, Generic, NamedTuple, Protocol, TypeVar
from weakref import WeakSet

from holdfast._aio.cancel_scope import CancelScope
from holdfast._aio.per_loop import PerLoop
from holdfast._arguments import (
    check_kind,
    check_methods,
    check_observers,
    check_seconds,
    explains_unknown_options,
)
from holdfast._integrations.raw_requests import ForeignReply, ForeignRequests
from holdfast._net.resolve_engine import resolve_engine
from holdfast._wire.http import FRAMING
from holdfast.errors import (
    A2AConnectionError,
    A2AError,
    A2ATimeoutError,
    CircuitOpenError,
    DeadlineExceededError,
    InvalidAgentResponseError,
    LimitExceededError,
    QueueFullError,
    RateLimitedError,
)
from holdfast.extend import Endpoints, Env, HttpRequest, SystemEnv, limit_error
from holdfast.policies import Limits, Resilience, Timeouts

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping, Sequence

    import aiohttp

    from holdfast.extend import HttpEngine, Stream
    from holdfast.observe import Observer, TelemetrySource

__all__ = ["BaseBody", "BaseTransport", "Carrier"]

RequestT = TypeVar("RequestT")
ResponseT = TypeVar("ResponseT")


class OpenStreams:
    """The open streams; closes those that were abandoned while open.

    It holds references to them: a stream collected with its response could not be closed properly.
    """

    def __init__(self) -> None:
        self._open: set[Stream[bytes]] = set()
        self._left: set[Stream[bytes]] = set()
        self._closing: set[asyncio.Task[None]] = set()

    def add(self, stream: Stream[bytes]) -> None:
        """Add an open stream."""
        self._open.add(stream)

    def discard(self, stream: Stream[bytes]) -> None:
        """Remove a stream that its owner closes."""
        self._open.discard(stream)

    def leave(self, stream: Stream[bytes], loop: asyncio.AbstractEventLoop) -> None:
        """Start to close an abandoned stream of an event loop, from any thread."""
        self._open.discard(stream)
        self._left.add(stream)
        try:
            loop.call_soon_threadsafe(self._begin, stream, loop)
        except RuntimeError:  # the loop is closed, and the pool with it
            self._left.discard(stream)

    async def closed(self) -> None:
        """Wait until abandoned streams of this loop are closed, for at most `_CLOSE_TIMEOUT_S`."""
        if self._left:
            await asyncio.sleep(0)  # their closing starts
        loop = asyncio.get_running_loop()
        closing = [task for task in self._closing if task.get_loop() is loop]
        async with CancelScope.within(_CLOSE_TIMEOUT_S):
            await asyncio.gather(*closing, return_exceptions=True)

    def _begin(self, stream: Stream[bytes], loop: asyncio.AbstractEventLoop) -> None:
        self._left.discard(stream)
        task = loop.create_task(stream.close())
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)


class Carrier(Protocol):
    """Sends the requests of a transport; see `ForeignRequests`."""

    async def send(self, request: HttpRequest, *, began: float) -> ForeignReply:
        """Send a request."""
        ...

    async def close(self) -> None:
        """End the requests in flight in this event loop."""
        ...


class BaseBody:
    """The streamed body of a response; closes itself at its end and after an error.

    Args:
        stream: Its pieces.
        failure_of: Converts an error to the library's exception.
        among: Closes it if it is abandoned.
    """

    def __init__(
        self,
        stream: Stream[bytes],
        failure_of: Callable[[A2AError], Exception],
        among: OpenStreams,
    ) -> None:
        self._stream: Stream[bytes] | None = stream
        self._failure_of = failure_of
        self._among = among
        among.add(stream)
        self._is_ended = False
        self._loop = asyncio.get_running_loop()

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def __anext__(self) -> bytes:
        if self._stream is None:
            raise StopAsyncIteration
        try:
            if self._is_ended:
                text = "the transport was closed while a response was open"
                raise A2AConnectionError(text, failure="closed")  # noqa: TRY301  as what is below
            return await self._stream.__anext__()
        except A2AError as error:
            await self.aclose()
            failure = self._failure_of(error)
            cause = error
        except BaseException:  # also the end, or a cancellation, after which no reader continues
            await self.aclose()
            raise
        raise failure from cause

    def end(self) -> None:
        """Raise at the next read: a closing connection may look like the end of the body."""
        self._is_ended = True

    async def aclose(self) -> None:
        """Release the connection. Can be called twice."""
        stream, self._stream = self._stream, None
        if stream is not None:
            self._among.discard(stream)
            await stream.close()

    def __del__(self) -> None:
        # A response abandoned while open would keep its slot in the pool for ever.
        stream = self._stream
        if stream is not None:
            self._among.leave(stream, self._loop)


class BaseTransport(Generic[RequestT, ResponseT]):
    """Sends the requests of an ``AsyncClient`` with Holdfast's retries, circuit breaker and pool.

    The A2A operation of a request is recognized from its content (both versions of the protocol,
    JSON-RPC and HTTP+JSON). A read, and an operation that may run twice, is retried after any
    transient failure. A message, and any other operation, is retried only if it was certainly not
    executed. A request that is not of A2A is classified by its method: GET, HEAD, OPTIONS and
    TRACE are safe (RFC 9110, 9.2.1).

    When no retry is left:

    - An HTTP error status is returned unchanged; the client calls ``raise_for_status()``.
    - Without a reply, the library's own exception is raised, with Holdfast's error as its
      ``__cause__``. A request that was never sent is a ``ConnectError`` (so is an open circuit),
      ``ConnectTimeout``, ``ProxyError``, ``LocalProtocolError`` or ``PoolTimeout`` (so is a full
      queue, and a deadline that expires in one). With the others the execution is unknown:
      ``ReadTimeout`` (also for a deadline), ``WriteTimeout``, ``ReadError``,
      ``RemoteProtocolError``. A reply beyond ``limits`` is a ``DecodingError``.
    - An A2A error in a reply with status 200 is a reply. A retried cancel may be answered with the
      error that the task cannot be canceled, because the first attempt has canceled it.

    A streaming response (by its operation, ``Accept`` or ``Content-Type``) is returned piece by
    piece. It is not resumed after a cut, which raises a ``RemoteProtocolError``. A stream of A2A
    events is cut if the protocol does not allow it to end there, even if HTTP ended it in order:
    it may end after a message as its first event, when the task is finished or waits for input or
    an authorization, at ``final: true`` of 0.3, at an error, and at an event that is not
    understood.

    The client's timeouts apply to each attempt instead of those of ``Resilience.timeouts``;
    ``read`` is both the wait for the reply and that between its pieces. If the client has None,
    Holdfast's own applies: no wait is unbounded. The library's default is 5 seconds, which is
    short for an agent: ``AsyncClient(transport=..., timeout=120)``. ``timeout`` bounds all
    attempts together, independently of the client's.

    Differences from the library's own transport:

    - HTTP/1.1 only, on asyncio only; ``verify``, ``cert``, ``http2`` and ``limits`` of the client
      have no effect: pass ``engine=AiohttpEngine(...)``. Proxies are taken from the environment by
      that engine; a ``proxy`` or ``mounts`` of the client bypass this transport.
    - A streamed request body is read before anything is sent, up to ``Limits.body`` bytes, so that
      it can be sent again; a larger one is a ``WriteError``, and nothing was sent.
    - The engine sets the headers of framing (``Content-Length``, ``Transfer-Encoding``,
      ``Connection`` …) and ``Accept-Encoding``; a response is decompressed already, and without
      ``Content-Encoding``. Of ``extensions`` only ``timeout`` is used.
    - The caller chooses the addresses: all are allowed. Redirects are returned.

    Args:
        resilience: The policies; `Resilience.standard` if left out. `Resilience.reconnect` and
            `Resilience.reconcile` have no effect here.
        timeout: Seconds for a request with all its attempts, until its reply is complete, 900 by
            default; of a stream of events, until it begins; more than 0.
        limits: Largest sizes of a reply. Only `Limits.body`, `Limits.headers`, `Limits.event` and
            `Limits.inflation_ratio` apply here.
        engine: Sends the attempts: a borrowed `HttpEngine` or ``aiohttp.ClientSession``, which is
            not closed; an own `AiohttpEngine` by default.
        shared: State of the endpoints, to share with clients and other transports.
        env: Source of wall time, random numbers and ids; for tests.
        observers: Plain functions that are called with each `Observation` of a call; a request
            that is not an A2A operation is named after its method, as in ``"HTTP POST"``.
        telemetry: Makes spans and metrics, such as
            ``holdfast.integrations.opentelemetry.Telemetry``. By default that of
            ``HoldfastInstrumentor``, or none.

    Raises:
        ValueError: A number is out of its bounds.
        TypeError: An argument is of another type.
    """

    _library: ClassVar[Any]
    _body: ClassVar[type[BaseBody]]

    @explains_unknown_options()
    def __init__(
        self,
        *,
        resilience: Resilience | None = None,
        timeout: float = 900.0,
        limits: Limits | None = None,
        engine: HttpEngine | aiohttp.ClientSession | None = None,
        shared: Endpoints | None = None,
        env: Env | None = None,
        observers: Sequence[Observer] = (),
        telemetry: TelemetrySource | None = None,
    ) -> None:
        resilience = Resilience.standard() if resilience is None else resilience
        limits = Limits() if limits is None else limits
        env = SystemEnv() if env is None else env
        shared = Endpoints() if shared is None else shared
        check_kind("resilience", resilience, Resilience)
        check_kind("limits", limits, Limits)
        check_kind("shared", shared, Endpoints)
        check_methods("env", env, "wall", "random", "new_id")
        self._timeout = check_seconds("timeout", timeout)
        observers = check_observers(observers)
        if telemetry is not None:
            check_methods("telemetry", telemetry, "observe", "layer")
        used, self._owned = resolve_engine(engine)
        self._limits = limits
        self._open = OpenStreams()
        self._bodies = PerLoop[WeakSet[BaseBody]](WeakSet)
        self._timeouts = lru_cache(maxsize=64)(_AttemptTimeouts(resilience.timeouts))
        self._requests: Carrier = ForeignRequests(
            used,
            resilience=resilience,
            timeout=timeout,
            limits=limits,
            shared=shared,
            env=env,
            observers=observers,
            telemetry=telemetry,
        )

    async def handle_async_request(self, request: RequestT) -> ResponseT:
        """Send a request; called by the library."""
        began = asyncio.get_running_loop().time()
        try:
            outgoing = await self._to_outgoing(request)
            reply = await self._requests.send(outgoing, began=began)
        except A2AError as error:
            failure, cause = self._failure_of(error, request), error
        else:
            response: ResponseT = self._response(request, reply)
            return response
        raise failure from cause

    if not TYPE_CHECKING:  # so that type checkers refuse the library's Client, too

        def __enter__(self) -> None:
            """Raise a TypeError: it is for an AsyncClient."""
            name = self._library.__name__
            text = f"this transport is for {name}.AsyncClient, not {name}.Client"
            raise TypeError(f"{text}; holdfast.sync is for blocking code")

        def handle_request(self, _request: object) -> None:
            """Raise a TypeError: it is for an AsyncClient."""
            self.__enter__()

    async def aclose(self) -> None:
        """End the requests in flight in this event loop, and close the transport's own engine."""
        for body in [*self._bodies.here()]:
            body.end()
        try:
            await self._requests.close()
            await self._open.closed()
        finally:
            if self._owned is not None:
                await self._owned.close()

    async def _to_outgoing(self, request: Any) -> HttpRequest:
        """Return the request for an engine."""
        library, url = self._library, request.url
        if url.scheme not in {"http", "https"} or not url.host:
            text = "the address of a request must begin with http:// or https:// and name a host"
            raise library.UnsupportedProtocol(text, request=request)
        timeouts: Mapping[str, float | None] = request.extensions.get("timeout", {})
        return HttpRequest(
            method=request.method,
            url=f"{url.scheme}://{url.netloc.decode()}{url.raw_path.decode()}",
            headers=_headers(request),
            body=await self._read(request),
            timeouts=self._timeouts(*map(timeouts.get, _PHASES)),
        )

    async def _read(self, request: Any) -> bytes:
        """Return the body of a request, which is not closed."""
        library, stream = self._library, request.stream
        if isinstance(stream, library.ByteStream):
            return b"".join(stream)
        body = bytearray()
        async with CancelScope.within(self._timeout) as scope:
            if isinstance(stream, library.AsyncByteStream):
                async for piece in stream:
                    self._add(body, piece)
            else:
                for piece in stream:
                    self._add(body, piece)
        if scope.expired:
            text = f"the body of the request did not come within {self._timeout:g} s"
            raise library.WriteTimeout(text, request=request)
        return bytes(body)

    def _add(self, body: bytearray, piece: bytes) -> None:
        body += piece
        if len(body) > self._limits.body:
            text = f"the body of the request is a stream of more than {self._limits.body} bytes"
            raise limit_error("body", self._limits, text, executed=False)

    def _response(self, request: Any, reply: ForeignReply) -> Any:
        body = reply.body
        if isinstance(body, bytes):
            stream: Any = self._library.ByteStream(body)
        else:
            stream = self._body(body, lambda error: self._failure_of(error, request), self._open)
            self._bodies.here().add(stream)
        return self._library.Response(
            status_code=reply.status,
            headers=_as_decoded(reply.headers),
            stream=stream,
            extensions={"http_version": b"HTTP/1.1"},
        )

    def _failure_of(self, error: A2AError, request: Any) -> Exception:
        """The library's exception for an error."""
        failure: Exception = getattr(self._library, _name_of(error))(str(error), request=request)
        return failure


_CLOSE_TIMEOUT_S = 5.0
"""Seconds that responses which were left open have to be closed."""

_PHASES = ("connect", "read", "write", "pool")
"""What the library calls its timeouts."""

_SHORTEST = 0.001
"""Seconds; httpx allows zero, which an engine does not."""


class _AttemptTimeouts:
    """Combines the timeouts of the library with those of the policy, for one attempt."""

    def __init__(self, own: Timeouts) -> None:
        self._own = own

    def __call__(
        self,
        connect: float | None,
        read: float | None,
        write: float | None,
        pool: float | None,
    ) -> Timeouts:
        own = self._own
        return Timeouts(
            pool=_given_or(own.pool, pool),
            connect=_given_or(own.connect, connect),
            write=_given_or(own.write, write),
            first_byte=_given_or(own.first_byte, read),
            idle=_given_or(own.idle, read),
        )


def _given_or(own: float, given: float | None) -> float:
    return own if given is None else max(_SHORTEST, given)


def _headers(request: Any) -> dict[str, str]:
    """Return the headers, with repeated ones joined (RFC 9110, 5.3; RFC 6265, 5.4)."""
    headers: dict[str, str] = {}
    for given, value in request.headers.multi_items():
        name = given.lower()
        if name in headers:
            separator = "; " if name == "cookie" else ", "
            headers[name] = f"{headers[name]}{separator}{value}"
        else:
            headers[name] = value
    host = headers.get("host")
    carried = {
        name: value
        for name, value in headers.items()
        if name not in FRAMING and name != "accept-encoding"
    }
    if host is not None and host != request.url.netloc.decode():
        carried["host"] = host  # the caller's own: the address says the rest
    return carried


def _as_decoded(headers: Mapping[str, str]) -> list[tuple[bytes, bytes]]:
    """Return the headers of a decompressed reply as the received bytes."""
    named = [(name.lower(), name, value) for name, value in headers.items()]
    is_encoded = any(lowered == "content-encoding" for lowered, _, _ in named)
    omitted = {"content-encoding", "content-length"} if is_encoded else frozenset[str]()
    return [
        (name.encode("latin-1", "replace"), value.encode("utf-8", "surrogateescape"))
        for lowered, name, value in named
        if lowered not in omitted
    ]


class _Row(NamedTuple):
    """The library's exceptions for one class of errors.

    Attributes:
        kind: The class.
        detail: Their phase or failure, as `_detail` returns it; None for all of them.
        sent: The name of the library's exception if the request may have been sent.
        unsent: The name if it was not sent.
    """

    kind: type[A2AError]
    detail: str | None
    sent: str
    unsent: str


_EXCEPTIONS = (
    _Row(A2ATimeoutError, "pool", "ReadTimeout", "PoolTimeout"),
    _Row(A2ATimeoutError, "connect", "ReadTimeout", "ConnectTimeout"),
    _Row(A2ATimeoutError, "write", "WriteTimeout", "WriteTimeout"),
    _Row(A2ATimeoutError, None, "ReadTimeout", "ReadTimeout"),
    _Row(DeadlineExceededError, None, "ReadTimeout", "PoolTimeout"),
    _Row(QueueFullError, None, "ReadTimeout", "PoolTimeout"),
    _Row(RateLimitedError, None, "ReadTimeout", "PoolTimeout"),
    _Row(CircuitOpenError, None, "ReadError", "ConnectError"),
    _Row(A2AConnectionError, "unsendable", "ReadError", "LocalProtocolError"),
    _Row(A2AConnectionError, "dns", "ReadError", "ConnectError"),
    _Row(A2AConnectionError, "refused", "ReadError", "ConnectError"),
    _Row(A2AConnectionError, "unreachable", "ReadError", "ConnectError"),
    _Row(A2AConnectionError, "tls", "ReadError", "ConnectError"),
    _Row(A2AConnectionError, "proxy", "ReadError", "ProxyError"),
    _Row(A2AConnectionError, "closed", "ReadError", "ConnectError"),
    _Row(A2AConnectionError, None, "RemoteProtocolError", "ConnectError"),
    _Row(LimitExceededError, None, "DecodingError", "WriteError"),
    _Row(InvalidAgentResponseError, None, "RemoteProtocolError", "ConnectError"),
    _Row(A2AError, None, "ReadError", "ConnectError"),
)
"""The first matching row applies."""


def _name_of(error: A2AError) -> str:
    """Return the name of the library's exception for an error."""
    detail = _detail(error)
    row = next(
        row for row in _EXCEPTIONS if isinstance(error, row.kind) and row.detail in {None, detail}
    )
    return row.unsent if error.executed is False else row.sent


def _detail(error: A2AError) -> str | None:
    """Return the phase of a timeout, or the failure of a connection."""
    if isinstance(error, A2ATimeoutError):
        return error.phase
    if not isinstance(error, A2AConnectionError):
        return None
    is_sendable = error.transient or error.failure != "unreachable"
    return error.failure if is_sendable else "unsendable"  # to no address
