"""The gRPC channels of one event loop, by address; connected before anything is sent.

Rules, each of which differs from grpcio's default behaviour:
- A request is handed over only when its channel is connected: a request that did not get so far
  has sent nothing. Connecting is a single try, which fails immediately; the next one starts
  anew, and does not wait for as long as gRPC would (up to two minutes).
- A connection that was idle for long is not reused.
- Open streams cannot starve calls: they have connections of their own, each for as many streams
  as common servers accept.
- Channels belong to an event loop, and are closed with it; another loop has its own. The caller's
  channels are never closed, and carry calls and streams alike.
- A process that forks closes its clients before, or makes no calls after it: grpcio has threads.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any

import grpc
from grpc import aio

from holdfast._aio.watchdog import Watchdog
from holdfast._net.grpc.failures import NotConnectedError

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Coroutine

    from holdfast._net.grpc.channel_factory import ChannelMaker
    from holdfast._wire.http import HttpRequest
    from holdfast._wire.network_scope import NetworkReach

__all__ = ["Channels", "ConnectedChannel"]

_PER_CONNECTION = 100
"""Calls, or streams, on one connection: every server should accept that many (RFC 9113, 6.5.2)."""

_MAX_IDLE_S = 30.0
"""Seconds for which an idle connection is reused. Load balancers and firewalls drop it after a
minute, some of them silently: a request on it would be lost."""

_MAX_GROUPS = 100
"""Groups of channels that are kept besides those in use; the least recently used are closed."""

_READY = grpc.ChannelConnectivity.READY
_FAILED = grpc.ChannelConnectivity.TRANSIENT_FAILURE
_SHUTDOWN = grpc.ChannelConnectivity.SHUTDOWN
_UNUSABLE = frozenset({_FAILED, _SHUTDOWN})

_UNKNOWN_METHOD = "/holdfast.Nowhere/Ask"


class ConnectedChannel:
    """A channel with its use count.

    Attributes:
        channel: The channel.
        uses: The number of calls on it.
        is_kept: Whether new calls may use it; otherwise it is closed after the last one.
        is_closed: Whether it was closed, even with calls on it.
    """

    __slots__ = ("_idle_since", "_is_borrowed", "_now", "channel", "is_closed", "is_kept", "uses")

    def __init__(self, channel: aio.Channel, *, is_borrowed: bool) -> None:
        self.channel = channel
        self.uses = 0
        self.is_kept = True
        self.is_closed = False
        self._is_borrowed = is_borrowed
        self._now = asyncio.get_running_loop().time
        self._idle_since = self._now()

    @property
    def is_stale(self) -> bool:
        """Whether it was idle so long that it may have been dropped silently."""
        return (
            not (self.uses or self._is_borrowed) and self._now() - self._idle_since > _MAX_IDLE_S
        )

    @property
    def has_room(self) -> bool:
        """Whether one more call may use it."""
        return self._is_borrowed or self.uses < _PER_CONNECTION

    async def leave(self) -> None:
        """End one use."""
        self.uses -= 1
        self._idle_since = self._now()
        if not self.is_kept and not self.uses:
            await self.close()

    async def retire(self) -> None:
        """Accept no more calls, and close it after the last one."""
        self.is_kept = False
        if not self.uses:
            await self.close()

    async def close(self) -> None:
        """Close it unless it belongs to the caller; calls on it fail."""
        if not self._is_borrowed:
            self.is_closed = True
            await self.channel.close()


class _ChannelGroup:
    """The channels with one key.

    Attributes:
        connecting: Held while a channel is connected, so that concurrent calls share it.
        channels: The channels that are kept.
    """

    __slots__ = ("channels", "connecting")

    def __init__(self) -> None:
        self.connecting = asyncio.Lock()
        self.channels: list[ConnectedChannel] = []


_GroupKey = tuple[str, bool, "NetworkReach | None"]
"""The address, whether it is for streams alone, and the network reach."""


class Channels:
    """The channels of one event loop.

    Attributes:
        watchdog: Enforces the timeouts of everything that uses a channel.
    """

    def __init__(self, maker: ChannelMaker) -> None:
        self.watchdog = Watchdog()
        self._maker = maker
        self._groups: dict[_GroupKey, _ChannelGroup] = {}
        self._readers = set[asyncio.Task[None]]()
        self._closer = _close_with_loop(self._groups)
        with contextlib.suppress(StopIteration):
            self._closer.__anext__().send(None)  # its first step registers it with the loop

    async def connected(
        self, url: str, request: HttpRequest, *, streaming: bool
    ) -> ConnectedChannel:
        """Return a connected channel with one more use; the caller ends it with `leave`.

        Args:
            url: Address of the interface, as it is written.
            request: The request to send.
            streaming: Whether the reply is a stream.

        Raises:
            NotConnectedError: No connection was made.
            A2AError: No channel can be created: see `ChannelMaker.make`.
        """
        is_for_streams = streaming and not self._maker.are_borrowed
        key = (url, is_for_streams, request.reach)
        group = self._groups.pop(key, None) or _ChannelGroup()
        self._groups[key] = group  # the most recently used one comes last
        connected = _with_room(group)
        if connected is None:
            async with group.connecting:
                connected = _with_room(group) or await self._connect(group, url, request)
        connected.uses += 1
        if len(self._groups) > _MAX_GROUPS:
            await self._retire_idle()
        return connected

    def start_reader(self, reading: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run a reader of a stream in a task, and keep the task until it ends."""
        task = asyncio.ensure_future(reading)
        self._readers.add(task)
        task.add_done_callback(self._readers.discard)
        return task

    async def close(self) -> None:
        """Close all channels; calls in flight fail."""
        await _close(self._groups)

    async def _connect(
        self, group: _ChannelGroup, url: str, request: HttpRequest
    ) -> ConnectedChannel:
        is_borrowed = self._maker.are_borrowed
        if not is_borrowed:
            await _retire_unusable(group, is_pinned=request.reach is not None)
        connected = next((c for c in group.channels if c.has_room), None)
        if connected is None:
            connected = ConnectedChannel(
                await self._maker.make(url, request), is_borrowed=is_borrowed
            )
            group.channels.append(connected)
        try:
            await _until_ready(connected.channel)
        except BaseException:  # also a cancellation: the next call starts anew
            if connected in group.channels and not is_borrowed:
                group.channels.remove(connected)
                await connected.retire()
            raise
        return connected

    async def _retire_idle(self) -> None:
        idle = [
            key
            for key, group in self._groups.items()
            if not group.connecting.locked() and not any(c.uses for c in group.channels)
        ]
        for key in idle[: len(self._groups) - _MAX_GROUPS]:
            for connected in self._groups.pop(key).channels:
                await connected.retire()


def _with_room(group: _ChannelGroup) -> ConnectedChannel | None:
    """Return a connected channel that may take one more call."""
    for connected in group.channels:
        is_ready = connected.channel.get_state() is _READY
        if is_ready and connected.has_room and not connected.is_stale:
            return connected
    return None


async def _retire_unusable(group: _ChannelGroup, *, is_pinned: bool) -> None:
    """Retire channels that are stale or have failed, and pinned ones that are not ready."""
    for connected in list(group.channels):
        state = connected.channel.get_state()
        if connected.is_stale or state in _UNUSABLE or (is_pinned and state is not _READY):
            group.channels.remove(connected)
            await connected.retire()


async def _until_ready(channel: aio.Channel) -> None:
    """Wait until a channel is connected, or has failed to connect.

    A channel of the caller may have failed before, and waits by itself before it tries again.

    Raises:
        NotConnectedError: It has failed.
    """
    state = channel.get_state(try_to_connect=True)
    has_failed = state is _FAILED
    while state is not _READY:
        if state is _SHUTDOWN:
            raise NotConnectedError.closed()
        if state is _FAILED and not has_failed:
            reason = await _failure_reason(channel)
            if reason is not None:
                raise NotConnectedError(reason)
        has_failed = state is _FAILED
        await channel.wait_for_state_change(state)
        state = channel.get_state(try_to_connect=True)


async def _failure_reason(channel: aio.Channel) -> str | None:
    """Return why a channel is not connected; None if it is, after all.

    grpcio gives the reason only to a call. The call is not sent on a channel that has failed; if
    it were, it would be for a method that does not exist.
    """
    try:
        method: aio.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(_UNKNOWN_METHOD)
        await method(b"", timeout=1.0)
    except aio.AioRpcError as error:
        if error.code() is grpc.StatusCode.UNAVAILABLE:
            return error.details() or ""
    return None


async def _close(groups: dict[_GroupKey, _ChannelGroup]) -> None:
    closing = [connected for group in groups.values() for connected in group.channels]
    for group in groups.values():
        group.channels.clear()
    groups.clear()  # later requests create new channels
    for connected in closing:
        await connected.close()


async def _close_with_loop(groups: dict[_GroupKey, _ChannelGroup]) -> AsyncGenerator[None]:
    """Close channels when this generator is closed, as a loop that ends does."""
    try:
        yield
    finally:
        await _close(groups)
