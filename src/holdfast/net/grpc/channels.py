"""The channels of one event loop: one for what is called, connected before anything is sent.

Rules, each against something that grpcio does otherwise:
- A request is handed over when its channel is connected, and not before: whoever never came so
  far has sent nothing. What connects is one attempt, which fails at once; the next attempt begins
  anew, and does not wait for as long as gRPC would (up to two minutes).
- Nothing is tried again below the layers of a call, and no server configures its clients.
- An address that somebody else names is resolved here, and the channel leads to the numbers that
  may be reached, whatever the name says later.
- Open streams cannot starve calls: they have connections of their own, each for so many of them
  as common servers take.
- Proxies are those of the environment, read once, as they are for HTTP.
- Channels belong to an event loop, and end with it; another loop gets others. What was lent is
  never closed.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple, cast

import grpc
from grpc import aio

from holdfast.errors import InvalidAgentCardError
from holdfast.model.grpc_addresses import grpc_address
from holdfast.net.grpc.credentials import channel_credentials
from holdfast.net.grpc.failures import NotConnectedError
from holdfast.net.grpc.numbers import check_own_number, target_within
from holdfast.runtime.engine import connection_error
from holdfast.runtime.watchdog import Watchdog
from holdfast.wire.grpc import USER_AGENT
from holdfast.wire.http import presentable

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from holdfast.net.proxies import Proxies
    from holdfast.net.tls_config import TlsConfig
    from holdfast.wire.http import HttpRequest
    from holdfast.wire.limits import Limits
    from holdfast.wire.reach import Reach

__all__ = ["ChannelFactory", "ChannelSettings", "Channels", "Connected"]

ChannelFactory = Callable[[str], aio.Channel]
"""Makes the channel for an address, as the card or ``url=`` writes it."""

_PER_CONNECTION = 100
"""Calls, or streams, on one connection: as many as every server should take (RFC 9113, 6.5.2)."""

_MOST = 100
"""Channels that are kept besides those in use; the ones that were not used for longest go."""

_KEEP_ALIVE = 330_000
"""Milliseconds after which a silent connection is asked whether it lives. Servers take more than
one question in five minutes for an attack, and hang up."""

_ANSWER = 20_000
"""Milliseconds that the answer may take."""

_OPTIONS: tuple[tuple[str, int | str], ...] = (
    ("grpc.enable_retries", 0),
    ("grpc.service_config_disable_resolution", 1),
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.keepalive_time_ms", _KEEP_ALIVE),
    ("grpc.keepalive_timeout_ms", _ANSWER),
    ("grpc.max_send_message_length", -1),
    ("grpc.primary_user_agent", USER_AGENT),
)

_Options = list[tuple[str, int | str]]

_Ready = grpc.ChannelConnectivity.READY
_Failed = grpc.ChannelConnectivity.TRANSIENT_FAILURE
_Over = grpc.ChannelConnectivity.SHUTDOWN
_GIVEN_UP = frozenset({_Failed, _Over})

_NOWHERE = "/holdfast.Nowhere/Ask"


class ChannelSettings(NamedTuple):
    """What channels are made with.

    Attributes:
        limits: How large replies and their headers may be.
        tls: Whom to trust, and which certificate to show; None for the system's authorities.
        proxies: Those of the environment.
        factory: The caller's own, in place of all that.
    """

    limits: Limits
    tls: TlsConfig | None
    proxies: Proxies
    factory: ChannelFactory | None


class Connected:
    """A channel, while it is in use.

    Attributes:
        channel: The channel.
        uses: How many calls are on it.
        is_kept: Whether more may come; what is not kept is closed with the last one.
        is_closed: Whether it was closed under those that are on it.
    """

    __slots__ = ("_is_lent", "channel", "is_closed", "is_kept", "uses")

    def __init__(self, channel: aio.Channel, *, is_lent: bool) -> None:
        self.channel = channel
        self.uses = 0
        self.is_kept = True
        self.is_closed = False
        self._is_lent = is_lent

    @property
    def has_room(self) -> bool:
        """Whether one more call may go over it."""
        return self._is_lent or self.uses < _PER_CONNECTION

    async def leave(self) -> None:
        """Ends one use."""
        self.uses -= 1
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


_Purpose = tuple[str, bool, "Reach | None"]
"""The address, whether it is for streams, and how far it may lead."""


class Channels:
    """The channels of one event loop.

    Attributes:
        watchdog: What keeps the limits of everything that uses one.
    """

    def __init__(self, settings: ChannelSettings) -> None:
        self.watchdog = Watchdog()
        self._settings = settings
        self._credentials: grpc.ChannelCredentials | None = None
        self._ways: dict[_Purpose, _Way] = {}
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
            A2AConnectionError: The name of the host is not known, or TLS cannot be spoken.
            NetworkPolicyError: The address leads where it must not.
            InvalidAgentCardError: It is no address of gRPC.
            TypeError: The caller's factory made something else.
        """
        purpose = (url, streaming, request.reach)
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

    async def close(self) -> None:
        """Closes all of them; calls that are under way fail."""
        await _close(self._ways)

    async def _connect(self, way: _Way, url: str, request: HttpRequest) -> Connected:
        is_lent = self._settings.factory is not None
        if not is_lent:
            await _clear(way, is_pinned=request.reach is not None)
        known = next((known for known in way.channels if known.has_room), None)
        if known is None:
            known = Connected(await self._made(url, request), is_lent=is_lent)
            way.channels.append(known)
        try:
            await _until_ready(known.channel)
        except BaseException:  # also of one who was cancelled: the next one begins anew
            if known in way.channels and not is_lent:
                way.channels.remove(known)
                await known.let_go()
            raise
        return known

    async def _made(self, url: str, request: HttpRequest) -> aio.Channel:
        """A channel that is not connected yet."""
        settings, reach, address = self._settings, request.reach, grpc_address(url)
        if settings.factory is not None:
            if reach is not None and address is not None:
                check_own_number(address, url, reach)  # all that can be known; it is the user's
            return _checked(settings.factory(url))
        if address is None:
            message = f"{presentable(url)} is not an address of gRPC, such as host:port"
            raise InvalidAgentCardError(message, field="url", executed=False)
        options: _Options = [*_OPTIONS, *_bounds(settings.limits)]
        target, proxy = f"dns:///{address.authority}", settings.proxies.of(address.url)
        if proxy is not None:
            options.append(("grpc.http_proxy", str(proxy)))
            if reach is not None:
                check_own_number(address, url, reach)  # it is the proxy that resolves names
        else:
            options.append(("grpc.enable_http_proxy", 0))
            if reach is not None:
                target = await target_within(reach, address, url, request)
                options.append(("grpc.default_authority", address.authority))
        if not address.is_secure:
            return aio.insecure_channel(target, options=options)
        if reach is not None:
            options.append(("grpc.ssl_target_name_override", address.host))
        if self._credentials is None:
            try:
                self._credentials = channel_credentials(settings.tls)
            except (OSError, ValueError) as error:  # of a file that has changed, say
                raise connection_error(
                    request, "tls", str(error), sent=False, transient=False
                ) from None
        return aio.secure_channel(target, self._credentials, options=options)

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
        if known.has_room and known.channel.get_state() is _Ready:
            return known
    return None


async def _clear(way: _Way, *, is_pinned: bool) -> None:
    """Lets go of what begins anew: what was given up, and what must look at its name again."""
    for known in list(way.channels):
        state = known.channel.get_state()
        if state in _GIVEN_UP or (is_pinned and state is not _Ready):
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


def _bounds(limits: Limits) -> _Options:
    """The limits of replies: a little more than ours, so that those are told."""
    return [
        ("grpc.max_receive_message_length", max(limits.body, limits.event, limits.card) + 1024),
        ("grpc.max_metadata_size", limits.headers),
        ("grpc.absolute_max_metadata_size", limits.headers),
    ]


def _checked(channel: aio.Channel) -> aio.Channel:
    if not isinstance(cast("object", channel), aio.Channel):
        text = f"grpc_channel_factory must give a grpc.aio.Channel, not {type(channel).__name__}"
        raise TypeError(text)
    return channel


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
