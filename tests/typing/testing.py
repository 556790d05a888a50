"""What a user writes with the kit for tests; checked by the type checkers, never run."""

from __future__ import annotations

from typing import TYPE_CHECKING, assert_type

import httpx

from holdfast import Answer, Client, connect
from holdfast.server import A2AServer
from holdfast.testing import (
    AsgiNetwork,
    Cut,
    FakeAgent,
    FaultProxy,
    InProcessClients,
    LoopbackServer,
    Received,
    make_test_client_factory,
    make_test_rest_client_factory,
    pick_free_port,
    rate_limited,
    run,
    streams,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, MutableMapping
    from typing import Any

    from holdfast.extend import HttpEngine

    Message = MutableMapping[str, Any]


async def app(scope: Message, receive: Callable[[], Awaitable[Message]], send: object) -> None:
    """An application."""


async def answer(text: str) -> str:
    """An agent."""
    return text


async def in_process() -> None:
    """Clients of a server, a fake agent, an application."""
    factory = make_test_client_factory(A2AServer(answer), url="http://agent.test", timeout=5)
    assert_type(factory, InProcessClients)
    async with factory, factory() as http, factory.connect(timeout=3) as client:
        assert_type(http, httpx.AsyncClient)
        assert_type(client, Client)
        assert_type(await client.ask("hello"), Answer)
    engine: HttpEngine = factory.engine()
    connect(factory.url, engine=engine)
    make_test_rest_client_factory(FakeAgent(streams("a")))
    make_test_rest_client_factory(app)

    async with AsgiNetwork({"http://agent.test": app}) as network:
        assert_type(network.crashes, list[Exception])
        network.add("http://other.test", app)
        also: HttpEngine = network
        connect("http://agent.test", engine=also)


async def on_sockets() -> None:
    """A proxy before an agent."""
    port = assert_type(pick_free_port(), int)
    async with LoopbackServer(FakeAgent(), host="::1", port=port) as server:
        assert_type(server, LoopbackServer)
        async with FaultProxy(server.url) as proxy:
            assert_type(proxy, FaultProxy)
            proxy.inject(Cut(after_events=2), on="SendStreamingMessage")
            proxy.inject(rate_limited(1), times=2)
            await proxy.refuse()
            await proxy.listen()
            assert_type(proxy.calls("GetTask"), list[Received])


run(in_process())
