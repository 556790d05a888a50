"""A connection that is made in the moment in which a server closes is closed with it."""

import asyncio
import contextlib
import gc
import socket
from urllib.parse import urlsplit

import pytest
from tests.kit.raw_server import serve

from holdfast._auth.oauth.redirects import LoopbackRedirect
from holdfast._cli.agent.push_receiver import Served
from holdfast._server.http_server import HttpServer
from holdfast.server import A2AServer
from holdfast.testing import FakeAgent, FaultProxy, LoopbackServer

pytestmark = pytest.mark.real_time

LIMIT = 120
"""Seconds after which a wait hangs."""

TURNS = range(6)
"""Turns of the event loop between the connection and the end: what comes of it takes some."""


@contextlib.asynccontextmanager
async def redirect():
    async with LoopbackRedirect("state") as server:
        yield server.uri


@contextlib.asynccontextmanager
async def refusing():
    async with LoopbackServer(FakeAgent()) as server:
        yield server.url
        await server.refuse()


@contextlib.asynccontextmanager
async def at_url(server):
    async with server as running:
        yield running.url


SERVERS = {
    "loopback server": lambda: at_url(LoopbackServer(FakeAgent())),
    "loopback server that refuses": refusing,
    "fault proxy": lambda: at_url(FaultProxy("http://127.0.0.1:9")),
    "redirect of a login": redirect,
    "receiver of pushes": lambda: at_url(Served("127.0.0.1", 0)),
    "raw server of the tests": lambda: at_url(serve()),
}


def echo(text: str) -> str:
    """Says what it was told."""
    return text


async def closed(client):
    """Waits until the other side has closed or reset."""
    client.setblocking(False)
    async with asyncio.timeout(LIMIT):
        with contextlib.suppress(ConnectionResetError):
            assert await asyncio.get_running_loop().sock_recv(client, 1) == b""


@pytest.mark.parametrize("turns", TURNS)
@pytest.mark.parametrize("server", SERVERS.values(), ids=SERVERS)
async def test_a_connection_made_while_a_server_closes_is_closed(server, turns):
    with socket.socket() as client:
        async with asyncio.timeout(LIMIT), server() as url:
            client.connect(("127.0.0.1", urlsplit(url).port))
            for _ in range(turns):
                await asyncio.sleep(0)

        await closed(client)
    gc.collect()  # a ResourceWarning is an error


@pytest.mark.parametrize("turns", [2, 3, 4])
async def test_a_connection_made_while_an_agent_server_closes_is_closed(monkeypatch, turns):
    on_tick = HttpServer.on_tick

    async def tick(self, counter):
        if self.should_exit:
            client.connect(("127.0.0.1", urlsplit(running.url).port))
            for _ in range(turns):
                await asyncio.sleep(0)
        return await on_tick(self, counter)

    monkeypatch.setattr(HttpServer, "on_tick", tick)
    with socket.socket() as client:
        async with asyncio.timeout(LIMIT), A2AServer(echo).serving(grace=3600) as running:
            pass

        await closed(client)
    gc.collect()  # a ResourceWarning is an error
