"""A fake agent behind a real loopback socket, with faults at the level of bytes."""

from __future__ import annotations

import asyncio
import socket
from typing import TYPE_CHECKING, Self

from holdfast._arguments import explains_unknown_options
from holdfast._testing.bodies import EventBody
from holdfast._testing.faults import Fault, Refuse, Stall
from holdfast._testing.http_messages import (
    LARGEST_HEAD,
    BadRequestError,
    error_reply,
    read_request,
)
from holdfast._testing.listening import Listener
from holdfast._testing.reply_writing import send_events, send_instead, send_whole
from holdfast.extend import SystemEnv

if TYPE_CHECKING:
    from holdfast._testing.agent import FakeAgent

__all__ = ["LoopbackServer", "pick_free_port"]


def pick_free_port(host: str = "127.0.0.1") -> int:
    """Return a free TCP port.

    Another process may take the port before it is used; a server that can bind port 0 and report
    its port avoids that. The system assigns ports in turn, so that in practice it does not assign
    one twice within a short time.

    Args:
        host: The address to listen on, IPv4 or IPv6, as in ``"::1"``, 127.0.0.1 by default; a name
            is resolved.

    Raises:
        OSError: This machine has no such address.
    """
    family, kind, protocol, _, address = socket.getaddrinfo(
        host, 0, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )[0]
    with socket.socket(family, kind, protocol) as probe:
        probe.bind(address)
        port: int = probe.getsockname()[1]
        return port


class LoopbackServer(Listener):
    """Serves a fake agent on this machine while the context is open.

    The agent's wall time is real time from then on. The server supports a part of HTTP/1.1:
    requests with Content-Length, one after the other on a connection. The end of the context
    closes every connection, and raises the first exception that the agent's behaviour raised.

    Args:
        agent: The agent.
        host: The address to listen on; by default 127.0.0.1, loopback only.
        port: The port; 0 for a free one.

    Attributes:
        url: The agent's address, while the context is open.
        connections: Number of connections that were made.

    Raises:
        TypeError: The port is not an integer.
        ValueError: The port is not between 0 and 65535.
    """

    @explains_unknown_options()
    def __init__(self, agent: FakeAgent, *, host: str = "127.0.0.1", port: int = 0) -> None:
        self._agent = agent
        super().__init__(self._serve_all, host=host, port=port, largest_head=LARGEST_HEAD)

    async def __aenter__(self) -> Self:
        self._agent.epoch = SystemEnv().wall() - asyncio.get_running_loop().time()
        return await super().__aenter__()

    async def _serve_all(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while await self._serve_one(reader, writer):
            pass

    async def _serve_one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Serve one request; return whether another one may follow."""
        try:
            request = await read_request(reader, self.url)
        except BadRequestError as bad:
            writer.write(error_reply(bad.status))
            await writer.drain()
            return False
        if request is None:
            return False
        exchange = self._agent.exchange(request)
        if isinstance(exchange.fault, Refuse) or _is_connect_stall(exchange.fault):
            text = "a socket cannot refuse or stall one request: use refuse() or stall()"
            raise TypeError(text)
        try:
            reply = await exchange.reply()
            if reply is None:
                await send_instead(exchange.fault, reader, writer)
                return False
            keep_alive = request.headers.get("connection", "").lower() != "close"
            if isinstance(reply.body, EventBody):
                return await send_events(reply, reply.body, reader, writer, keep_alive=keep_alive)
            return await send_whole(reply, reader, writer, keep_alive=keep_alive)
        except asyncio.CancelledError:
            exchange.drop()  # the server closes
            raise
        finally:
            exchange.close()


def _is_connect_stall(fault: Fault | None) -> bool:
    return isinstance(fault, Stall) and fault.phase == "connect"
