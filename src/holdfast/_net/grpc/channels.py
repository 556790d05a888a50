"""The channels of one event loop: one for what is called, connected before anything is sent.

Rules, each against something that grpcio does otherwise:
- A request is handed over when its channel is connected, and not before: whoever never came so
  far has sent nothing. What connects is one attempt, which fails at once; the next attempt begins
  anew, and does not wait for as long as gRPC would (up to two minutes).
- A connection that had nothing to do for long is not trusted to be there.
- Open streams cannot starve calls: they have connections of their own, each for so many of them
  as common servers take.
- Channels belong to an event loop, and end with it; another loop gets others. What was lent is
  never closed, and carries calls and streams alike.
- A process that forks closes its clients before, or calls nothing afterwards: grpcio has threads.
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

__all__ = ["Channels", "Connected"]

_PER_CONNECTION = 100
"""Calls, or streams, on one connection: as many as every server should take (RFC 9113, 6.5.2)."""

_MAX_IDLE = 30.0
"""Seconds that a connection may have had nothing on it. What stands between ends it after a
minute, and not all of that tells: a request that goes there then is lost."""

_MOST = 100
"""Channels that are kept besides those in use; the ones that were not used for longest go."""

_Ready = grpc.ChannelConnectivity.READY
_Failed = grpc.ChannelConnectivity.TRANSIENT_FAILURE
_Over = grpc.ChannelConnectivity.SHUTDOWN
_GIVEN_UP = frozenset({_Failed, _Over})

_NOWHERE = "/holdfast.Nowhere/Ask"


class Connected:
    """A channel, while it is in use.

    Attributes:
        channel: The channel.
        uses: How many calls are on it.
        is_kept: Whether more may come; what is not kept is closed with the last one.
        is_closed: Whether it was closed under those that are on it.
    """

    __slots__ = ("_is_lent", "_left", "_now", "channel", "is_closed", "is_kept", "uses")

    def __init__(self, channel: aio.Channel, *, is_lent: bool) -> None:
        self.channel = channel
        self.uses = 0
        self.is_kept = True
        self.is_closed = False
        self._is_lent = is_lent
        self._now = asyncio.get_running_loop().time
        self._left = self._now()

    @property
    def is_stale(self) -> bool:
        """Whether it may have been ended by now without a word."""
        return not (self.uses or self._is_lent) and self._now() - self._left > _MAX_IDLE

    @property
    def has_room(self) -> bool:
        """Whether one more call may go over it."""
        return self._is_lent or self.uses < _PER_CONNECTION

    async def leave(self) -> None:
        """Ends one use."""
        self.uses -= 1
        self._left = self._now()
        if not self.is_kept and not self.uses:
            await self.close()

    async def let_go(self) -> None:
        """Keeps it for those only that are on it."""
        self.is_kept = False
        if not self.uses:
            await self.close()

    async def close(self) -> None:
        """Closes it, unless it was lent; what is on it fails."""
        if not self._is_lent:
            self.is_closed = True
            await self.channel.close()


class _Way:
    """The channels of one purpose.

    Attributes:
        connecting: Held by whoever connects; those who come meanwhile use what comes of it.
        channels: Those that are kept.
    """

    __slots__ = ("channels", "connecting")

    def __init__(self) -> None:
        self.connecting = asyncio.Lock()
        self.channels: list[Connected] = []


_Purpose = tuple[str, bool, "NetworkReach | None"]
"""The address, whether it is for streams alone, and how far it may lead."""


class Channels:
    """The channels of one event loop.

    Attributes:
        watchdog: What keeps the limits of everything that uses one.
    """

    def __init__(self, making: ChannelMaker) -> None:
        self.watchdog = Watchdog()
        self._making = making
        self._ways: dict[_Purpose, _Way] = {}
        self._going_on = set[asyncio.Task[None]]()
        self._at_last = _close_at_last(self._ways)
        with contextlib.suppress(StopIteration):
            self._at_last.__anext__().send(None)  # from its first step on, the loop knows of it

    async def connected(self, url: str, request: HttpRequest, *, streaming: bool) -> Connected:
        """Gives a channel that is connected; whoever has it leaves it.

        Args:
            url: Address of the interface, as it is written.
            request: What is to be sent over it.
            streaming: Whether the reply is a stream.

        Raises:
            NotConnectedError: No connection came about.
            A2AError: There can be none: see `ChannelMaker.make`.
        """
        has_its_own = streaming and not self._making.is_lent
        purpose = (url, has_its_own, request.reach)
        way = self._ways.pop(purpose, None) or _Way()
        self._ways[purpose] = way  # the most recently used one comes last
        found = _with_room(way)
        if found is None:
            async with way.connecting:
                found = _with_room(way) or await self._connect(way, url, request)
        found.uses += 1
        if len(self._ways) > _MOST:
            await self._let_some_go()
        return found

    def goes_on(self, reading: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Reads what comes over one of them; the task is kept until it is over."""
        task = asyncio.ensure_future(reading)
        self._going_on.add(task)
        task.add_done_callback(self._going_on.discard)
        return task

    async def close(self) -> None:
        """Closes all of them; calls that are under way fail."""
        await _close(self._ways)

    async def _connect(self, way: _Way, url: str, request: HttpRequest) -> Connected:
        is_lent = self._making.is_lent
        if not is_lent:
            await _clear(way, is_pinned=request.reach is not None)
        known = next((known for known in way.channels if known.has_room), None)
        if known is None:
            known = Connected(await self._making.make(url, request), is_lent=is_lent)
            way.channels.append(known)
        try:
            await _until_ready(known.channel)
        except BaseException:  # also of one who was cancelled: the next one begins anew
            if known in way.channels and not is_lent:
                way.channels.remove(known)
                await known.let_go()
            raise
        return known

    async def _let_some_go(self) -> None:
        idle = [
            purpose
            for purpose, way in self._ways.items()
            if not way.connecting.locked() and not any(known.uses for known in way.channels)
        ]
        for purpose in idle[: len(self._ways) - _MOST]:
            for known in self._ways.pop(purpose).channels:
                await known.let_go()


def _with_room(way: _Way) -> Connected | None:
    """A channel that is connected, and takes one more."""
    for known in way.channels:
        is_ready = known.channel.get_state() is _Ready
        if is_ready and known.has_room and not known.is_stale:
            return known
    return None


async def _clear(way: _Way, *, is_pinned: bool) -> None:
    """Lets go of what begins anew: what is stale or given up, and what looks at its name again."""
    for known in list(way.channels):
        state = known.channel.get_state()
        if known.is_stale or state in _GIVEN_UP or (is_pinned and state is not _Ready):
            way.channels.remove(known)
            await known.let_go()


async def _until_ready(channel: aio.Channel) -> None:
    """Waits until a channel is connected, or has failed to.

    One that was lent may have failed before, and waits a while by itself until it tries again.

    Raises:
        NotConnectedError: It has failed.
    """
    state = channel.get_state(try_to_connect=True)
    has_failed = state is _Failed
    while state is not _Ready:
        if state is _Over:
            raise NotConnectedError.closed()
        if state is _Failed and not has_failed and (why := await _reason(channel)) is not None:
            raise NotConnectedError(why)
        has_failed = state is _Failed
        await channel.wait_for_state_change(state)
        state = channel.get_state(try_to_connect=True)


async def _reason(channel: aio.Channel) -> str | None:
    """Why a channel is not connected, which only a call is told; None if it is, after all.

    Such a call is not sent. If one were, it would be for a method that there is not.
    """
    try:
        nowhere: aio.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(_NOWHERE)
        await nowhere(b"", timeout=1.0)
    except aio.AioRpcError as error:
        if error.code() is grpc.StatusCode.UNAVAILABLE:
            return error.details() or ""
    return None


async def _close(ways: dict[_Purpose, _Way]) -> None:
    closing = [known for way in ways.values() for known in way.channels]
    for way in ways.values():
        way.channels.clear()
    ways.clear()  # whoever sends from now on makes new ones
    for known in closing:
        await known.close()


async def _close_at_last(ways: dict[_Purpose, _Way]) -> AsyncGenerator[None]:
    """Closes channels when it is closed, which a loop that ends does to its generators."""
    try:
        yield
    finally:
        await _close(ways)
