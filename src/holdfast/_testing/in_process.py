"""Clients of an agent in process: no socket, no port, and streams chunk by chunk.

All clients use one engine: `AsgiNetwork` for an application, `FakeNetwork` for a fake agent. httpx
gets that engine as a transport without Holdfast's policies: no retries, and a stream ends where
the agent ends it.
"""

from __future__ import annotations

import inspect
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any, Protocol, Self, Unpack, cast, runtime_checkable

from holdfast._arguments import check_seconds, check_url, explains_unknown_options
from holdfast._testing.agent import FakeAgent
from holdfast._testing.asgi import AsgiNetwork
from holdfast._testing.network import FakeNetwork
from holdfast._testing.single_binding import SingleBindingEngine
from holdfast.client import connect
from holdfast.extend import origin

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    import httpx

    from holdfast._asgi import ASGIApplication
    from holdfast.client import Client, CreateOptions
    from holdfast.extend import HttpEngine

__all__ = ["InProcessClients", "make_test_client_factory", "make_test_rest_client_factory"]

_DEFAULT_URL = "http://agent.test"
_DEFAULT_TIMEOUT_S = 30.0


@runtime_checkable
class _Server(Protocol):
    """The methods of `holdfast.server.A2AServer` that are used here."""

    def app(self, *, url: str, bindings: tuple[str, ...]) -> ASGIApplication:
        """Return its application."""
        ...

    def agent_card(self, *, url: str, bindings: tuple[str, ...]) -> object:
        """Return its card."""
        ...


class InProcessClients:
    """Clients of one agent in process; returned by `make_test_client_factory`.

    Calling it returns an ``httpx.AsyncClient``. As an async context manager, it starts the
    application up and shuts it down, and at its end raises the first exception that the
    application raised; it also works without that.

    Args:
        network: Reaches the agent.
        engine: The network, or an engine that wraps it.
        url: The agent's origin.
        timeout: Seconds that each phase of an httpx request may take, and seconds that a whole
            call of a Holdfast client may take.

    Attributes:
        url: The agent's origin.
    """

    def __init__(
        self, network: AsgiNetwork | FakeNetwork, engine: HttpEngine, *, url: str, timeout: float
    ) -> None:
        self.url = url
        self._network = network
        self._engine = engine
        self._timeout = timeout
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        if isinstance(self._network, AsgiNetwork):
            await self._stack.enter_async_context(self._network)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._stack.__aexit__(kind, error, trace)

    def __call__(self) -> httpx.AsyncClient:
        """Return a new httpx client; the caller closes it, which does not affect the others.

        Raises:
            ImportError: httpx is not installed; the extra ``httpx`` installs it.
        """
        from holdfast._testing.httpx_transport import async_client  # needs an extra

        return async_client(self._engine, base_url=self.url, timeout=self._timeout)

    def engine(self) -> HttpEngine:
        """Return the engine that reaches the agent, for ``connect(url, engine=...)``."""
        return self._engine

    def connect(self, **options: Unpack[CreateOptions]) -> Client:
        """Return a Holdfast client.

        Args:
            options: Options of `holdfast.connect` except ``engine``: ``auth``, ``timeout``
                (seconds, 900 by default), ``card_ttl`` (seconds, 300 by default),
                ``card_verifier``, ``require_signature``, ``resilience``, ``limits``, ``tls``,
                ``shared``, ``env``, ``url``, ``tenant``, ``bindings``,
                ``supported_protocol_bindings``, ``protocol_version``, ``allow_legacy``,
                ``transport_producers``, ``grpc_channel_factory``, ``configuration``,
                ``streaming``, ``on_unknown``, ``context_ids``, ``journal``, ``shared_store``,
                ``headers``, ``extensions``, ``credential_origins``, ``allowed_networks``,
                ``reach``, ``interceptors``, ``consumers``, ``observers``, ``telemetry``,
                ``call_layers`` and ``attempt_layers``.
        """
        settings: dict[str, Any] = {"timeout": self._timeout, **options}
        return connect(self.url, engine=self._engine, **settings)

    async def close(self) -> None:
        """End requests that the application still handles although their clients have left."""
        await self._engine.close()


@explains_unknown_options()
def make_test_client_factory(
    server: object, *, url: str | None = None, timeout: float = _DEFAULT_TIMEOUT_S
) -> InProcessClients:
    """Return a factory of clients that reach a server in process, without a socket.

    >>> factory = make_test_client_factory(A2AServer(answer), url="http://agent.test")
    >>> async with factory, factory.connect() as agent:
    ...     print((await agent.ask("hello")).text)

    ``factory()`` returns an ``httpx.AsyncClient`` for other client libraries; it streams chunk by
    chunk, which httpx's own transport for ASGI applications does not.

    Args:
        server: An `A2AServer`, which uses JSON-RPC here; a `FakeAgent`; or an ASGI application.
        url: The server's origin; None for ``http://agent.test``, or for that of the fake agent.
        timeout: Seconds that each phase of an httpx request may take, and seconds that a whole
            call of a Holdfast client may take, 30 by default.

    Raises:
        ValueError: ``url`` is not valid, or not that of the fake agent; ``timeout`` is not
            positive.
        TypeError: ``server`` is none of these.
    """
    return _clients(server, url, timeout, "JSONRPC", is_only=False)


@explains_unknown_options()
def make_test_rest_client_factory(
    server: object, *, url: str | None = None, timeout: float = _DEFAULT_TIMEOUT_S
) -> InProcessClients:
    """Return a factory of clients that reach a server in process over HTTP+JSON.

    The clients see a card with HTTP+JSON interfaces only; other interfaces are removed from the
    card of a fake agent or an ASGI application.

    Args:
        server: An `A2AServer`; a `FakeAgent`; or an ASGI application with HTTP+JSON.
        url: The server's origin; None for ``http://agent.test``, or for that of the fake agent.
        timeout: Seconds that each phase of an httpx request may take, and seconds that a whole
            call of a Holdfast client may take, 30 by default.

    Raises:
        ValueError: ``url`` is not valid, or not that of the fake agent; ``timeout`` is not
            positive.
        TypeError: ``server`` is none of these.
    """
    return _clients(server, url, timeout, "HTTP+JSON", is_only=True)


def _clients(
    server: object, url: str | None, timeout: float, binding: str, *, is_only: bool
) -> InProcessClients:
    check_seconds("timeout", timeout)
    engine: HttpEngine
    network: AsgiNetwork | FakeNetwork
    if isinstance(server, FakeAgent):
        if url is not None and origin(url) != origin(server.url):
            text = f"the fake agent is at {server.url}; pass FakeAgent(url={url!r})"
            raise ValueError(text)
        url, engine = server.url, FakeNetwork(server)
        network = engine
    else:
        url = check_url(_DEFAULT_URL if url is None else url, "url").rstrip("/")
        app, has_one_binding = _application(server, url, binding)
        engine = network = AsgiNetwork({url: app})
        is_only = is_only and not has_one_binding
    if is_only:
        engine = SingleBindingEngine(engine, binding)
    return InProcessClients(network, engine, url=url, timeout=timeout)


def _application(server: object, url: str, binding: str) -> tuple[ASGIApplication, bool]:
    """Return the application, and whether its card has interfaces of that binding only."""
    if isinstance(server, _Server):
        return server.app(url=url, bindings=(binding,)), True
    if not callable(server):
        text = (
            "server must be an A2AServer, a FakeAgent or an ASGI application, "
            f"not {type(server).__name__}"
        )
        raise TypeError(text)
    if not _takes_three_arguments(server):
        name = getattr(server, "__name__", type(server).__name__)
        text = (
            f"{name} is not an ASGI application, which takes scope, receive and send; if it is "
            f"a function that answers messages, pass A2AServer({name})"
        )
        raise TypeError(text)
    return cast("ASGIApplication", server), False


def _takes_three_arguments(application: Callable[..., object]) -> bool:
    try:
        inspect.signature(application).bind(None, None, None)
    except TypeError:
        return False
    except ValueError:  # a builtin has no signature
        return True
    return True
