"""What `holdfast.integrations.httpx` and `holdfast.integrations.httpx2` have in common: all of it.

It owns the two edges: a request of the library becomes an `HttpRequest`, and what comes back a
response or an exception of the library, of the class that the library's own transport would have
taken for it. `foreign_requests` does what is between them.
"""

from __future__ import annotations

import asyncio
from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar, Generic, NamedTuple, Protocol, TypeVar
from weakref import WeakSet

from holdfast._aio.cancel_scope import CancelScope
from holdfast._aio.env import Env, SystemEnv
from holdfast._aio.per_loop import PerLoop
from holdfast._arguments import check_able, check_kind, check_seconds, observer_hooks
from holdfast._client.resolve import resolve_engine
from holdfast._integrations.raw_requests import ForeignReply, ForeignRequests
from holdfast._pipeline.endpoints import Endpoints
from holdfast._policy.resilience import Resilience
from holdfast._wire.http import FRAMING, HttpRequest, Timeouts
from holdfast._wire.limits import Limits, limit_error
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

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping, Sequence

    import aiohttp

    from holdfast._net.engine import HttpEngine
    from holdfast._pipeline.listeners import Observer
    from holdfast._pipeline.transport import Stream

__all__ = ["BaseBody", "BaseTransport", "Carrier"]

RequestT = TypeVar("RequestT")
ResponseT = TypeVar("ResponseT")


class OpenStreams:
    """The streams that are open; closes those that somebody has left open and forgotten.

    It holds on to them: what is collected together with a response could not be closed in order.
    """

    def __init__(self) -> None:
        self._open: set[Stream[bytes]] = set()
        self._left: set[Stream[bytes]] = set()
        self._closing: set[asyncio.Task[None]] = set()

    def add(self, stream: Stream[bytes]) -> None:
        """Notes a stream that is open."""
        self._open.add(stream)

    def discard(self, stream: Stream[bytes]) -> None:
        """Forgets a stream that is closed by somebody else."""
        self._open.discard(stream)

    def leave(self, stream: Stream[bytes], loop: asyncio.AbstractEventLoop) -> None:
        """Begins to close a stream of this event loop, from wherever it was found."""
        self._open.discard(stream)
        self._left.add(stream)
        try:
            loop.call_soon_threadsafe(self._begin, stream, loop)
        except RuntimeError:  # the loop is over, and the pool with it
            self._left.discard(stream)

    async def closed(self) -> None:
        """Waits until those that were left open here are closed, for a few seconds at most."""
        if self._left:
            await asyncio.sleep(0)  # they are begun with
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
    """Carries the requests of a transport; see `ForeignRequests`."""

    async def send(self, request: HttpRequest, *, began: float) -> ForeignReply:
        """Sends a request."""
        ...

    async def close(self) -> None:
        """Ends what is under way in this event loop."""
        ...


class BaseBody:
    """The body of a response while it comes; closes itself when it ends, however it does.

    Args:
        stream: Its pieces.
        failure_of: Makes the library's exception of an error.
        among: Closes it if everybody has forgotten it.
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
        except BaseException:  # the end, too; and who is cancelled reads no more
            await self.aclose()
            raise
        raise failure from cause

    def end(self) -> None:
        """Lets nothing more come: what its connection gives from now on may look like its end."""
        self._is_ended = True

    async def aclose(self) -> None:
        """Lets go of the connection. Can be called twice."""
        stream, self._stream = self._stream, None
        if stream is not None:
            self._among.discard(stream)
            await stream.close()

    def __del__(self) -> None:
        # A response that was left open and forgotten would keep its place in the pool for ever.
        stream = self._stream
        if stream is not None:
            self._among.leave(stream, self._loop)


class BaseTransport(Generic[RequestT, ResponseT]):
    """Carries the requests of an ``AsyncClient`` with Holdfast's retries, breaker and pool.

    Which operation of A2A a request is, is read from it (both versions of the protocol, JSON-RPC
    and HTTP+JSON). A read, and what may be done twice, is tried again after any failure that may
    pass. A message, and everything that is not known to be harmless, is tried again only where it
    certainly did not run. What is not of A2A at all goes by its method: GET, HEAD, OPTIONS and
    TRACE change nothing (RFC 9110, 9.2.1).

    When there are no more tries:

    - A refusal by HTTP is returned, as it came; the client calls ``raise_for_status()``.
    - Where there is no reply, the library's own exception is raised, with Holdfast's error as its
      ``__cause__``. What was never sent is a ``ConnectError`` (so is an open circuit),
      ``ConnectTimeout``, ``ProxyError``, ``LocalProtocolError`` or ``PoolTimeout`` (so is a line
      that is full, and a deadline that ends while waiting in one). The others leave open whether
      it ran: ``ReadTimeout`` (so does a deadline), ``WriteTimeout``, ``ReadError``,
      ``RemoteProtocolError``. A reply beyond `limits` is a ``DecodingError``.
    - An error of the protocol in a reply with status 200 is a reply. A cancel that was tried again
      may be answered by one that says that the task is not to be canceled: it was, the first time.

    A response that streams (by its operation, by ``Accept`` or ``Content-Type``) comes piece by
    piece. It is not picked up again where it is cut: that raises a ``RemoteProtocolError``. The
    events of A2A are cut wherever the protocol does not let them end, even if HTTP says that all
    is there: they may end after a message that comes first, when the task is over or waits for
    input or an authorization, at ``final: true`` of 0.3, at an error, and at whatever is not
    understood here.

    The client's timeouts count, for each try, in place of those of ``Resilience.timeouts``;
    ``read`` is both the wait for the reply and that between its pieces. Where the client has None,
    Holdfast's own counts: nothing waits for ever. The library's default is 5 seconds, which is
    short for an agent: ``AsyncClient(transport=..., timeout=120)``. `timeout` bounds all tries
    together, and whatever the client says.

    Not what the library's own transport does:

    - HTTP/1.1 only, on asyncio only; ``verify``, ``cert``, ``http2`` and ``limits`` of the client
      do nothing: pass ``engine=AiohttpEngine(...)``. Proxies are those of the environment, which
      that reads; a ``proxy`` or ``mounts`` of the client go past this transport.
    - A body that is a stream is read before anything is sent, up to ``Limits.body`` bytes, so that
      it can be sent again; more is a ``WriteError``, and nothing was sent.
    - What frames a message (``Content-Length``, ``Transfer-Encoding``, ``Connection`` …) and
      ``Accept-Encoding`` are the engine's; a response is decompressed already, and without
      ``Content-Encoding``. Of ``extensions`` only ``timeout`` is looked at.
    - Addresses are the caller's: any one is reached. Redirects are returned.

    Args:
        resilience: What to do when things go wrong; `Resilience.standard()` if left out. Its
            `reconnect` and `reconcile` do nothing here.
        timeout: Seconds for a request with everything that is tried again, until its reply is
            there; of a stream of events, until it begins.
        limits: How large a reply to accept. Of what the protocol says only `body`, `headers`,
            `event` and `inflation_ratio` count here.
        engine: What carries requests: an `HttpEngine` or an `aiohttp.ClientSession`, which are
            used and not closed; an `AiohttpEngine` of its own if left out.
        shared: What is known of agents, to share with clients and other transports.
        env: Wall time, randomness and ids; for tests.
        observers: Called with what happens; a request that is no operation of A2A is called after
            its method, as in ``"HTTP POST"``.

    Raises:
        ValueError: A number that cannot be right.
        TypeError: An argument of another type.
    """

    _library: ClassVar[Any]
    _body: ClassVar[type[BaseBody]]

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
    ) -> None:
        resilience = Resilience.standard() if resilience is None else resilience
        limits = Limits() if limits is None else limits
        env = SystemEnv() if env is None else env
        shared = Endpoints() if shared is None else shared
        check_kind("resilience", resilience, Resilience)
        check_kind("limits", limits, Limits)
        check_kind("shared", shared, Endpoints)
        check_able("env", env, "wall", "random", "new_id")
        self._timeout = check_seconds("timeout", timeout)
        observers = observer_hooks(observers)
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
        )

    async def handle_async_request(self, request: RequestT) -> ResponseT:
        """Carries a request; what the library calls."""
        began = asyncio.get_running_loop().time()
        try:
            outgoing = await self._written(request)
            reply = await self._requests.send(outgoing, began=began)
        except A2AError as error:
            failure, cause = self._failure_of(error, request), error
        else:
            response: ResponseT = self._response(request, reply)
            return response
        raise failure from cause

    async def aclose(self) -> None:
        """Ends the requests under way in this event loop, and closes an engine of its own."""
        for body in [*self._bodies.here()]:
            body.end()
        try:
            await self._requests.close()
            await self._open.closed()
        finally:
            if self._owned is not None:
                await self._owned.close()

    async def _written(self, request: Any) -> HttpRequest:
        """The request as an engine needs it."""
        library, url = self._library, request.url
        if url.scheme not in {"http", "https"} or not url.host:
            text = "the address of a request must begin with http:// or https:// and name a host"
            raise library.UnsupportedProtocol(text, request=request)
        given: Mapping[str, float | None] = request.extensions.get("timeout", {})
        return HttpRequest(
            method=request.method,
            url=f"{url.scheme}://{url.netloc.decode()}{url.raw_path.decode()}",
            headers=_headers(request),
            body=await self._read(request),
            timeouts=self._timeouts(*map(given.get, _PHASES)),
        )

    async def _read(self, request: Any) -> bytes:
        """The body of a request, which stays the caller's."""
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
            what = f"the body of the request is a stream of more than {self._limits.body} bytes"
            raise limit_error("body", self._limits, what, executed=False)

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
"""Seconds; the library takes zero, which is over before it begins."""


class _AttemptTimeouts:
    """Makes the timeouts of an attempt of those that the client has, where it has any."""

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
    """The headers to carry: those that are given twice as one (RFC 9110, 5.3; RFC 6265, 5.4)."""
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
    """The headers of a reply whose body was decompressed, in the bytes in which they came."""
    given = [(name.lower(), name, value) for name, value in headers.items()]
    is_encoded = any(lowered == "content-encoding" for lowered, _, _ in given)
    left_out = {"content-encoding", "content-length"} if is_encoded else frozenset[str]()
    return [
        (name.encode("latin-1", "replace"), value.encode("utf-8", "surrogateescape"))
        for lowered, name, value in given
        if lowered not in left_out
    ]


class _Row(NamedTuple):
    """How errors of one kind are told.

    Attributes:
        kind: The kind.
        which: Which of them, as `_which` says; None for all of them.
        sent: The name of the library's exception where the request may have been sent.
        unsent: The name where it was not.
    """

    kind: type[A2AError]
    which: str | None
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
"""The first row that fits counts."""


def _name_of(error: A2AError) -> str:
    """The name of the library's exception for an error."""
    which = _which(error)
    row = next(
        row for row in _EXCEPTIONS if isinstance(error, row.kind) and row.which in {None, which}
    )
    return row.unsent if error.executed is False else row.sent


def _which(error: A2AError) -> str | None:
    """What kind of timeout it was, or what became of the connection."""
    if isinstance(error, A2ATimeoutError):
        return error.phase
    if not isinstance(error, A2AConnectionError):
        return None
    is_passing = error.transient or error.failure != "unreachable"
    return error.failure if is_passing else "unsendable"  # nowhere, as it is
