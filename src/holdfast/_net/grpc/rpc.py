"""One call over a gRPC channel: its bytes, its timeouts, and whether it may have been sent.

Rules, each of which differs from grpcio's default behaviour:
- A timeout is named by its phase: connecting, the begin of the reply, the next event. No deadline
  is sent (``grpc-timeout``): the time that a caller waits is not the time that an agent may work,
  and a server stops its work at the deadline that it receives.
- `sent` is set before the request is handed to a connected channel.
- A call that ends because its channel was closed is an error, not a cancellation of the caller.
- A cancelled wait for an event leaves the stream unchanged.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncGenerator
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, Self, TypeVar

from grpc import aio

from holdfast._aio.callbacks import cancel_and_wait
from holdfast._aio.cancel_scope import pending_cancellations
from holdfast._net.engine import connection_error, timeout_error
from holdfast._net.grpc.failures import NotConnectedError, reason_in, status_of, too_large
from holdfast._wire.grpc_metadata import reply_headers
from holdfast._wire.grpc_status import error_from_status
from holdfast.errors import A2AConnectionError, A2AError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from holdfast._model.operations import Operation
    from holdfast._net.grpc.channels import Channels, ConnectedChannel
    from holdfast._wire.grpc_status import RpcStatus
    from holdfast._wire.http import HttpRequest
    from holdfast._wire.limits import Limits
    from holdfast.errors import TimeoutPhase

__all__ = ["Rpc", "RpcEvents", "call_unary"]

R = TypeVar("R")

_MAX_EVENTS_AHEAD = 16
_MAX_BYTES_AHEAD = 1024 * 1024
"""Events, and their bytes, that are read ahead of the consumer, as they arrive in bursts."""


class Rpc(NamedTuple):
    """A call as gRPC carries it, and its errors.

    Attributes:
        request: Its body, timeouts and limits, as an HTTP request.
        url: Address of the interface, as it is written.
        method: Path of the method.
        metadata: Its headers.
        operation: The operation.
        version: The protocol version.
        limits: Bound the size of the reply.
        refusals: See `error_from_status`.
        wall: Returns the wall-clock time.
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

    async def connected(self, channels: Channels, *, streaming: bool) -> ConnectedChannel:
        """Return a connected channel to send it on.

        Raises:
            A2AError: There is no connection. Nothing was sent.
        """
        try:
            with channels.watchdog.within(self.request.timeouts.connect):
                return await channels.connected(self.url, self.request, streaming=streaming)
        except NotConnectedError as error:
            if error.status is None:
                raise self.closed(sent=False) from None
            raise self._connect_error(error.status) from None
        except A2AError:
            raise
        except TimeoutError:
            raise self.timed_out("connect", sent=False) from None
        except asyncio.CancelledError:
            if _is_not_cancelled():
                raise self.closed(sent=False) from None
            raise

    def failed(self, error: aio.AioRpcError, *, began: bool = False) -> A2AError:
        """Return the error of a failed call."""
        limit = too_large(self.operation, error, self.limits)
        return self._status_error(status_of(error), began=began) if limit is None else limit

    def timed_out(self, phase: TimeoutPhase, *, sent: bool = True) -> A2AError:
        """Return the error of an expired timeout."""
        return timeout_error(self.request, phase, sent=sent)

    def closed(self, *, sent: bool = True) -> A2AError:
        """Return the error of a call whose channel was closed."""
        return connection_error(self.request, "closed", sent=sent, transient=False)

    def empty(self, missing: str) -> A2AError:
        """Return the error of a reply with status OK that lacks a required part."""
        reason = f"status OK without {missing}"
        return connection_error(self.request, "truncated", reason, sent=True)

    def _connect_error(self, status: RpcStatus) -> A2AError:
        mapped = self._status_error(status, sent=False)
        if not isinstance(mapped, A2AConnectionError):
            return mapped
        reason = None if mapped.failure == "refused" else reason_in(status.details or "")
        error = connection_error(
            self.request, mapped.failure, reason, sent=False, transient=mapped.transient
        )
        error.grpc_status = mapped.grpc_status
        return error

    def _status_error(
        self, status: RpcStatus, *, sent: bool = True, began: bool = False
    ) -> A2AError:
        return error_from_status(
            self.operation,
            status,
            version=self.version,
            now=self.wall(),
            refusals=self.refusals,
            sent=sent,
            began=began,
        )


async def call_unary(rpc: Rpc, channels: Channels) -> tuple[bytes, Mapping[str, str]]:
    """Make a unary call; return the message of the reply, and the metadata around it.

    Raises:
        A2AError: The call failed.
    """
    connected = await rpc.connected(channels, streaming=False)
    try:
        return await _call_over(rpc, channels, connected)
    except aio.AioRpcError as error:
        raise rpc.failed(error) from error
    except aio.UsageError:
        raise rpc.closed() from None
    except asyncio.CancelledError:
        if _is_not_cancelled():
            raise rpc.closed() from None
        raise
    except TimeoutError:
        raise rpc.timed_out("first_byte") from None
    finally:
        await connected.leave()


async def _call_over(
    rpc: Rpc, channels: Channels, connected: ConnectedChannel
) -> tuple[bytes, Mapping[str, str]]:
    request = rpc.request
    method: aio.UnaryUnaryMultiCallable[bytes, bytes | None]  # None if there is no message
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
        call.cancel()  # does nothing if it has ended


class RpcEvents(Generic[R]):
    """A stream of events; implements `holdfast._pipeline.transport.Stream`.

    Args:
        rpc: The call.
        channels: The channels.
        agent: The agent's address for errors.
        decode: Decodes an event.
    """

    def __init__(
        self, rpc: Rpc, channels: Channels, *, agent: str, decode: Callable[[bytes], R]
    ) -> None:
        self._rpc = rpc
        self._channels = channels
        self._agent = agent
        self._decode = decode
        self._connected: ConnectedChannel | None = None
        self._reader: asyncio.Task[None] | None = None
        self._inbox = _Inbox()
        self._first: R | None = None  # until it is requested
        self._has_events = False

    def __del__(self) -> None:
        # The stream was dropped without close(), and its loop is still open.
        reader, connected = self._reader, self._connected
        if reader is not None and connected is not None:
            with contextlib.suppress(RuntimeError):  # the loop is closed
                reader.get_loop().call_soon_threadsafe(_abandon, reader, connected)

    def __aiter__(self) -> Self:
        return self

    async def open(self) -> Mapping[str, str]:
        """Send the request, wait for the first event, and return the metadata before it.

        Raises:
            A2AError: The call failed; it has ended.
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
        """Return the next value if it is buffered; errors are raised by `__anext__`."""
        messages = self._inbox.messages
        if not messages or self._first is not None:
            return None
        try:
            value = self._decode(messages[0])
        except A2AError:
            return None
        self._inbox.take()
        return value

    async def close(self) -> None:
        """End the call; the agent's task is not canceled."""
        reader, self._reader = self._reader, None
        connected, self._connected = self._connected, None
        self._first = None
        self._inbox.discard()
        try:
            if reader is not None:
                await cancel_and_wait(reader)
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
        self._reader = self._channels.start_reader(inbox.read(call))
        await self._wait("first_byte", lambda: inbox.headers is None)

    async def _next(self) -> R:
        inbox = self._inbox
        await self._wait("idle", lambda: not inbox.messages)
        if not inbox.messages:
            raise self._end_error()
        self._has_events = True
        return self._decode(inbox.take())

    def _end_error(self) -> Exception:
        """Return the exception for the end of the call."""
        inbox = self._inbox
        if inbox.failure is not None:
            return self._rpc.failed(inbox.failure, began=self._has_events)
        return self._rpc.closed() if inbox.is_closed else StopAsyncIteration()

    async def _wait(self, phase: TimeoutPhase, is_missing: Callable[[], bool]) -> None:
        """Wait while something is missing and the call has not ended."""
        inbox = self._inbox
        if inbox.has_ended or not is_missing():
            return
        try:
            with self._channels.watchdog.within(getattr(self._rpc.request.timeouts, phase)):
                while is_missing() and not inbox.has_ended:
                    inbox.changed.clear()
                    await inbox.changed.wait()
        except TimeoutError:
            raise self._rpc.timed_out(phase) from None


class _Inbox:
    """The messages of a stream that were received and not consumed yet.

    It has no reference to the stream, so that its reader does not keep a dropped stream alive.

    Attributes:
        messages: The messages.
        changed: Set when something has arrived.
        headers: The metadata before the first message; None until they arrive.
        failure: The error that ended the call.
        has_ended: Whether no more messages will arrive.
        is_closed: Whether the call ended because its channel was closed.
    """

    def __init__(self) -> None:
        self.messages = deque[bytes]()
        self.changed = asyncio.Event()
        self.headers: Mapping[str, str] | None = None
        self.failure: aio.AioRpcError | None = None
        self.has_ended = self.is_closed = False
        self._size = 0
        self._room = asyncio.Event()

    def take(self) -> bytes:
        """Return the next message; there must be one."""
        message = self.messages.popleft()
        self._size -= len(message)
        self._room.set()
        return message

    def discard(self) -> None:
        """Discard all messages, and accept no more."""
        self.messages.clear()
        self.failure = None
        self.has_ended, self.is_closed = True, False

    async def read(self, call: aio.UnaryStreamCall[bytes, bytes]) -> None:
        """Read messages, some of them ahead of the consumer."""
        messages = aiter(call)
        try:
            self.headers = reply_headers(await call.initial_metadata())
            self.changed.set()
            async for message in messages:
                self.messages.append(message)
                self._size += len(message)
                self.changed.set()
                while len(self.messages) >= _MAX_EVENTS_AHEAD or self._size > _MAX_BYTES_AHEAD:
                    self._room.clear()
                    await self._room.wait()
        except aio.AioRpcError as error:
            self.failure = error
        except asyncio.CancelledError:
            if not _is_not_cancelled():
                raise
            self.is_closed = True
        finally:
            self.has_ended = True
            self.changed.set()
            call.cancel()  # does nothing if it has ended
            if isinstance(messages, AsyncGenerator):  # left in the middle
                await messages.aclose()


def _abandon(reader: asyncio.Task[None], connected: ConnectedChannel) -> None:
    """End the call of a dropped stream."""
    reader.cancel()
    reader.add_done_callback(lambda _: asyncio.ensure_future(connected.leave()))


def _is_not_cancelled() -> bool:
    """Return whether the running task was not cancelled: a closed channel looks the same."""
    return not pending_cancellations()
