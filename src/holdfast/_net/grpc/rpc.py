"""One call over a channel: its bytes, its limits, and what may have left.

Rules, each against something that grpcio does otherwise:
- A limit is named by what was waited for: a connection, the first of the reply, more of it. No
  deadline goes along (``grpc-timeout``): what a caller waits for is not how long an agent may
  work, and a server ends its own work at the deadline that it is told.
- `sent` is noted before the request is handed to a channel that is connected.
- A call that ends because its channel was closed is an error, and no cancellation of the caller's.
- Whoever waits for an event and gives up leaves the stream as it is.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncGenerator
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, Self, TypeVar

from grpc import aio

from holdfast._aio.cancel_scope import pending_cancellations
from holdfast._net.engine import connection_error, timeout_error
from holdfast._net.grpc.failures import NotConnectedError, reason_in, status_of, too_large
from holdfast._wire.grpc_metadata import reply_headers
from holdfast._wire.grpc_status import error_from_status
from holdfast.errors import A2AConnectionError, A2AError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from holdfast._model.operations import Operation
    from holdfast._net.grpc.channels import Channels, Connected
    from holdfast._wire.grpc_status import RpcStatus
    from holdfast._wire.http import HttpRequest
    from holdfast._wire.limits import Limits
    from holdfast.errors import TimeoutPhase

__all__ = ["Rpc", "RpcEvents", "answer_of"]

R = TypeVar("R")

_AHEAD = 16
_BYTES_AHEAD = 1024 * 1024
"""Events, and bytes of them, that are read before anybody asks: they come in bursts."""


class Rpc(NamedTuple):
    """A call as gRPC carries it, and the errors that tell of it.

    Attributes:
        request: Its bytes and limits, in the words of HTTP, which gRPC is.
        url: Address of the interface, as it is written.
        method: Path of the method.
        metadata: Its headers.
        operation: What is called.
        version: The version of the protocol that is spoken.
        limits: How large a reply to accept.
        refusals: See `error_from_status`.
        wall: Tells the time.
    """

    request: HttpRequest
    url: str
    method: str
    metadata: tuple[tuple[str, str | bytes], ...]
    operation: Operation[Any, Any]
    version: str
    limits: Limits
    refusals: frozenset[int]
    wall: Callable[[], float]

    async def connected(self, channels: Channels, *, streaming: bool) -> Connected:
        """Gives a channel to send it over.

        Raises:
            A2AError: There is none. Nothing was sent.
        """
        try:
            with channels.watchdog.within(self.request.timeouts.connect):
                return await channels.connected(self.url, self.request, streaming=streaming)
        except NotConnectedError as error:
            if error.status is None:
                raise self.closed(sent=False) from None
            raise self._never_connected(error.status) from None
        except A2AError:
            raise
        except TimeoutError:
            raise self.timed_out("connect", sent=False) from None
        except asyncio.CancelledError:
            if _is_wanted():
                raise self.closed(sent=False) from None
            raise

    def failed(self, error: aio.AioRpcError, *, began: bool = False) -> A2AError:
        """How it failed."""
        limited = too_large(self.operation, error, self.limits)
        return self._told(status_of(error), began=began) if limited is None else limited

    def timed_out(self, phase: TimeoutPhase, *, sent: bool = True) -> A2AError:
        """One of its limits fired."""
        return timeout_error(self.request, phase, sent=sent)

    def closed(self, *, sent: bool = True) -> A2AError:
        """Its channel was closed."""
        return connection_error(self.request, "closed", sent=sent, transient=False)

    def empty(self, what: str) -> A2AError:
        """A reply has ended well, and lacks what it must have."""
        return connection_error(self.request, "truncated", f"status OK without {what}", sent=True)

    def _never_connected(self, status: RpcStatus) -> A2AError:
        told = self._told(status, sent=False)
        if not isinstance(told, A2AConnectionError):
            return told
        reason = None if told.failure == "refused" else reason_in(status.details or "")
        error = connection_error(
            self.request, told.failure, reason, sent=False, transient=told.transient
        )
        error.grpc_status = told.grpc_status
        return error

    def _told(self, status: RpcStatus, *, sent: bool = True, began: bool = False) -> A2AError:
        return error_from_status(
            self.operation,
            status,
            version=self.version,
            now=self.wall(),
            refusals=self.refusals,
            sent=sent,
            began=began,
        )


async def answer_of(rpc: Rpc, channels: Channels) -> tuple[bytes, Mapping[str, str]]:
    """Makes a call that has one answer: its message, and the metadata around it.

    Raises:
        A2AError: Whatever went wrong.
    """
    connected = await rpc.connected(channels, streaming=False)
    try:
        return await _answer_over(rpc, channels, connected)
    except aio.AioRpcError as error:
        raise rpc.failed(error) from error
    except aio.UsageError:
        raise rpc.closed() from None
    except asyncio.CancelledError:
        if _is_wanted():
            raise rpc.closed() from None
        raise
    except TimeoutError:
        raise rpc.timed_out("first_byte") from None
    finally:
        await connected.leave()


async def _answer_over(
    rpc: Rpc, channels: Channels, connected: Connected
) -> tuple[bytes, Mapping[str, str]]:
    request = rpc.request
    method: aio.UnaryUnaryMultiCallable[bytes, bytes | None]  # which no message is
    method = connected.channel.unary_unary(rpc.method)
    request.progress.sent = True
    call = method(request.body, metadata=rpc.metadata)
    try:
        with channels.watchdog.within(request.timeouts.first_byte):
            body = await call
        if body is None:
            raise rpc.empty("a message")
        return body, reply_headers(await call.initial_metadata(), await call.trailing_metadata())
    finally:
        call.cancel()  # which does nothing to one that is over


class RpcEvents(Generic[R]):
    """A stream of events, in the shape of `holdfast._pipeline.transport.Stream`.

    Args:
        rpc: The call.
        channels: Where there is a channel for it.
        agent: What errors call the agent.
        decode: Makes the value of an event.
    """

    def __init__(
        self, rpc: Rpc, channels: Channels, *, agent: str, decode: Callable[[bytes], R]
    ) -> None:
        self._rpc = rpc
        self._channels = channels
        self._agent = agent
        self._decode = decode
        self._connected: Connected | None = None
        self._reading: asyncio.Task[None] | None = None
        self._inbox = _Inbox()
        self._first: R | None = None  # until it is asked for
        self._came = False

    def __del__(self) -> None:
        # Nobody has it any more who could close it, and its loop goes on.
        reading, connected = self._reading, self._connected
        if reading is not None and connected is not None:
            with contextlib.suppress(RuntimeError):  # of a loop that is closed
                reading.get_loop().call_soon_threadsafe(_abandon, reading, connected)

    def __aiter__(self) -> Self:
        return self

    async def open(self) -> Mapping[str, str]:
        """Sends the request, waits for the first event, and gives the metadata before it.

        Raises:
            A2AError: Whatever went wrong until then; the call is over.
        """
        try:
            await self._send()
            try:
                self._first = await self._next()
            except StopAsyncIteration:
                raise self._rpc.empty("an event") from None
        except BaseException as error:
            if isinstance(error, A2AError):
                error.agent = self._agent
            await self.close()
            raise
        return self._inbox.headers or {}

    async def __anext__(self) -> R:
        if self._first is not None:
            value, self._first = self._first, None
            return value
        try:
            return await self._next()
        except A2AError as error:
            error.agent = self._agent
            raise

    def next_nowait(self) -> R | None:
        """The next value if it is there already; what fails does so where it is waited for."""
        arrived = self._inbox.arrived
        if not arrived or self._first is not None:
            return None
        try:
            value = self._decode(arrived[0])
        except A2AError:
            return None
        self._inbox.take()
        return value

    async def close(self) -> None:
        """Ends the call; the agent goes on."""
        reading, self._reading = self._reading, None
        connected, self._connected = self._connected, None
        self._first = None
        self._inbox.empty()
        try:
            if reading is not None and not reading.done():
                reading.cancel()
                await asyncio.wait({reading})
        finally:
            if connected is not None:
                await connected.leave()

    async def _send(self) -> None:
        rpc = self._rpc
        self._connected = await rpc.connected(self._channels, streaming=True)
        try:
            method: aio.UnaryStreamMultiCallable[bytes, bytes]
            method = self._connected.channel.unary_stream(rpc.method)
            rpc.request.progress.sent = True
            call = method(rpc.request.body, metadata=rpc.metadata)
        except aio.UsageError:
            raise rpc.closed() from None
        inbox = self._inbox
        self._reading = self._channels.goes_on(inbox.read(call))
        await self._wait("first_byte", lambda: inbox.headers is None)

    async def _next(self) -> R:
        inbox = self._inbox
        await self._wait("idle", lambda: not inbox.arrived)
        if not inbox.arrived:
            raise self._end()
        self._came = True
        return self._decode(inbox.take())

    def _end(self) -> Exception:
        """What the end of the call means."""
        inbox = self._inbox
        if inbox.failure is not None:
            return self._rpc.failed(inbox.failure, began=self._came)
        return self._rpc.closed() if inbox.is_closed else StopAsyncIteration()

    async def _wait(self, phase: TimeoutPhase, lacks: Callable[[], bool]) -> None:
        """Waits while something lacks, and the call goes on."""
        inbox = self._inbox
        if inbox.is_over or not lacks():
            return
        try:
            with self._channels.watchdog.within(getattr(self._rpc.request.timeouts, phase)):
                while lacks() and not inbox.is_over:
                    inbox.news.clear()
                    await inbox.news.wait()
        except TimeoutError:
            raise self._rpc.timed_out(phase) from None


class _Inbox:
    """What has come of a stream, and was not asked for yet.

    It knows nothing of who asks, so that nobody keeps a stream alive that was left alone.

    Attributes:
        arrived: The messages.
        news: Set when something has come.
        headers: The metadata before the first message; None until they are there.
        failure: How the call failed.
        is_over: Whether nothing more will come.
        is_closed: Whether that is because its channel was closed.
    """

    def __init__(self) -> None:
        self.arrived = deque[bytes]()
        self.news = asyncio.Event()
        self.headers: Mapping[str, str] | None = None
        self.failure: aio.AioRpcError | None = None
        self.is_over = self.is_closed = False
        self._size = 0
        self._room = asyncio.Event()

    def take(self) -> bytes:
        """The next message, of those that are there."""
        message = self.arrived.popleft()
        self._size -= len(message)
        self._room.set()
        return message

    def empty(self) -> None:
        """Throws away what is there; nothing more comes."""
        self.arrived.clear()
        self.failure = None
        self.is_over, self.is_closed = True, False

    async def read(self, call: aio.UnaryStreamCall[bytes, bytes]) -> None:
        """Reads what comes, a little ahead of those who ask for it."""
        messages = aiter(call)
        try:
            self.headers = reply_headers(await call.initial_metadata())
            self.news.set()
            async for message in messages:
                self.arrived.append(message)
                self._size += len(message)
                self.news.set()
                while len(self.arrived) >= _AHEAD or self._size > _BYTES_AHEAD:
                    self._room.clear()
                    await self._room.wait()
        except aio.AioRpcError as error:
            self.failure = error
        except asyncio.CancelledError:
            if not _is_wanted():
                raise
            self.is_closed = True
        finally:
            self.is_over = True
            self.news.set()
            call.cancel()  # which does nothing to one that is over
            if isinstance(messages, AsyncGenerator):  # left in the middle
                await messages.aclose()


def _abandon(reading: asyncio.Task[None], connected: Connected) -> None:
    """Ends a call that nobody waits for any more."""
    reading.cancel()
    reading.add_done_callback(lambda _: asyncio.ensure_future(connected.leave()))


def _is_wanted() -> bool:
    """Whether nobody has cancelled the running task: a call that is over can look the same."""
    return not pending_cancellations()
