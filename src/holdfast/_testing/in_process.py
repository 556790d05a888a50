"""Clients of an agent in process: no socket, no port, and streams that come chunk by chunk.

It owns the ways to it, which are one engine: `AsgiNetwork` for an application, `FakeNetwork` for
a fake agent. httpx gets that engine as a transport, with nothing of Holdfast's in between: no
retries, and a stream that ends where the agent ends it.
"""

from __future__ import annotations

import inspect
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any, Protocol, Self, Unpack, cast, runtime_checkable

from holdfast._arguments import check_seconds, check_url
from holdfast._client.connect import connect
from holdfast._testing.agent import FakeAgent
from holdfast._testing.asgi import AsgiNetwork
from holdfast._testing.narrowing import OnlyBinding
from holdfast._testing.network import FakeNetwork
from holdfast._wire.origins import origin

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    import httpx

    from holdfast._client.client import Client
    from holdfast._client.options import CreateOptions
    from holdfast._net.asgi import Application
    from holdfast._net.engine import HttpEngine

__all__ = ["InProcessClients", "make_test_client_factory", "make_test_rest_client_factory"]

_URL = "http://agent.test"
_TIMEOUT = 30.0


@runtime_checkable
class _Server(Protocol):
    """A `holdfast.server.A2AServer`, as far as it is needed here."""

    def app(self, *, url: str, bindings: tuple[str, ...]) -> Application:
        """Makes its application."""
        ...

    def agent_card(self, *, url: str, bindings: tuple[str, ...]) -> object:
        """Makes its card."""
        ...


class InProcessClients:
    """Clients of one agent in process; see `make_test_client_factory`, which makes it.

    Called, it gives an ``httpx.AsyncClient``. Entered, it has the application start up before and
    shut down after, and raises at its end what the application raised, if anything; it can be
    used without that.

    Args:
        network: Who carries requests to the agent.
        engine: The same, or something around it.
        url: The agent's origin.
        timeout: Seconds; see there.

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
        """Makes a client of httpx, to be closed by the caller; the others go on then.

        Raises:
            ImportError: There is no httpx: ``pip install "holdfast[httpx]"``.
        """
        from holdfast._testing.httpx_transport import async_client  # comes with an extra

        return async_client(self._engine, base_url=self.url, timeout=self._timeout)

    def engine(self) -> HttpEngine:
        """What carries requests to the agent: for ``connect(url, engine=...)`` and the like."""
        return self._engine

    def connect(self, **options: Unpack[CreateOptions]) -> Client:
        """Connects a Holdfast client.

        Args:
            options: As for `holdfast.connect`.
        """
        given: dict[str, Any] = {"timeout": self._timeout, **options}
        return connect(self.url, engine=self._engine, **given)

    async def close(self) -> None:
        """Ends requests that the application still works on though their clients have left."""
        await self._engine.close()


def make_test_client_factory(
    server: object, *, url: str | None = None, timeout: float = _TIMEOUT
) -> InProcessClients:
    """Makes clients that reach a server in process, without a socket.

    >>> factory = make_test_client_factory(A2AServer(answer), url="http://agent.test")
    >>> async with factory, factory.connect() as agent:
    ...     print((await agent.ask("hello")).text)

    ``factory()`` is an ``httpx.AsyncClient``, as other people's clients take it; it gives streams
    chunk by chunk, which httpx's own transport for applications does not.

    Args:
        server: An `A2AServer`, which speaks JSON-RPC here; a `FakeAgent`; or an ASGI application.
        url: Its origin. ``http://agent.test`` if left out, and that of a fake agent its own.
        timeout: Seconds that each phase of a request of httpx may take, and that a call of
            Holdfast may take altogether.

    Raises:
        ValueError: `url` is not that of the fake agent, or is none; `timeout` is not positive.
        TypeError: `server` is none of these.
    """
    return _clients(server, url, timeout, "JSONRPC", is_only=False)


def make_test_rest_client_factory(
    server: object, *, url: str | None = None, timeout: float = _TIMEOUT
) -> InProcessClients:
    """Does the same for HTTP+JSON: the card declares this interface only.

    The card of a fake agent or an ASGI application is narrowed on its way.

    Args:
        server: As for `make_test_client_factory`; an application has to speak HTTP+JSON.
        url: Its origin.
        timeout: Seconds, as there.

    Raises:
        ValueError: As there.
        TypeError: As there.
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
            text = f"the fake agent is at {server.url}: say FakeAgent(url={url!r})"
            raise ValueError(text)
        url, engine = server.url, FakeNetwork(server)
        network = engine
    else:
        url = check_url(_URL if url is None else url, "url").rstrip("/")
        app, is_narrow = _application(server, url, binding)
        engine = network = AsgiNetwork({url: app})
        is_only = is_only and not is_narrow
    if is_only:
        engine = OnlyBinding(engine, binding)
    return InProcessClients(network, engine, url=url, timeout=timeout)


def _application(server: object, url: str, binding: str) -> tuple[Application, bool]:
    """The application, and whether its card names that binding only."""
    if isinstance(server, _Server):
        return server.app(url=url, bindings=(binding,)), True
    if not callable(server):
        text = (
            "server must be an A2AServer, a FakeAgent or an ASGI application, "
            f"not {type(server).__name__}"
        )
        raise TypeError(text)
    if not _takes_three(server):
        name = getattr(server, "__name__", type(server).__name__)
        text = (
            f"{name} is not an ASGI application, which takes scope, receive and send; if it is "
            f"a function that answers messages, pass A2AServer({name})"
        )
        raise TypeError(text)
    return cast("Application", server), False


def _takes_three(application: Callable[..., object]) -> bool:
    try:
        inspect.signature(application).bind(None, None, None)
    except TypeError:
        return False
    except ValueError:  # a builtin does not say
        return True
    return True
