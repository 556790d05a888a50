"""Serving an agent on sockets: uvicorn for HTTP, grpc.aio for gRPC.

Rules: the card names the real addresses. At shutdown no new turn starts; turns in flight get the
grace to finish, and then they are stopped and their tasks fail. No task of the event loop is left
behind, and every wait has a timeout.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import socket
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast._arguments import check_duration, check_kind, check_port, check_url
from holdfast._server.extra import require_extra
from holdfast.types import AgentCard

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence
    from types import FrameType, TracebackType

    import uvicorn

    from holdfast._server.grpc_server import GrpcServer
    from holdfast._server.service import Service
    from holdfast._server.settings import ServerSettings

__all__ = ["Running", "Serving", "serve"]

logger = logging.getLogger("holdfast.server")

_FLUSH_GRACE_S = 10.0
"""Seconds beyond the grace for sending replies, before their connections are cut."""

_START_TIMEOUT_S = 30.0
_WILDCARD_HOSTS = frozenset({"0.0.0.0", "::", ""})  # noqa: S104  refused as addresses of the agent
_BACKLOG = 2048

_USER_TIMEOUT_MS = 60_000
"""Milliseconds after which the system closes a connection whose peer acknowledges nothing, if the
system supports it: closing the connection would wait forever for that peer."""


class Running(msgspec.Struct, frozen=True, kw_only=True):
    """An agent that is being served.

    Attributes:
        url: The agent's address.
        card: The public card.
        grpc_url: ``host:port`` of gRPC; None if it is not served.
    """

    url: str
    card: AgentCard
    grpc_url: str | None = None


class Serving(AbstractAsyncContextManager["Running"]):
    """Context in which an agent is served, returned by `A2AServer.serving`."""

    def __init__(
        self,
        agent_card: Callable[..., AgentCard],
        service: Callable[[AgentCard], Service],
        settings: ServerSettings,
        host: str,
        port: int,
        *,
        bindings: Sequence[str],
        url: str | None,
        grpc_port: int,
        grace: float,
        cert_file: str | None,
        key_file: str | None,
        grpc_interceptors: Sequence[Any],
    ) -> None:
        check_kind("host", host, str)
        check_port("port", port)
        check_port("grpc_port", grpc_port)
        check_duration("grace", grace)
        if url is not None:
            check_url(url, "url")
        elif host in _WILDCARD_HOSTS:
            raise ValueError(
                f"clients cannot connect to {host!r}: pass the agent's address as url="
            )
        if (cert_file is None) != (key_file is None):
            raise ValueError("cert_file and key_file must be passed together")
        require_extra("server", "serving an agent", "uvicorn")
        if "GRPC" in bindings:
            require_extra("server,grpc", "serving an agent over gRPC")
        self._agent_card = agent_card
        self._make_service = service
        self._settings = settings
        self._host = host
        self._port = port
        self._bindings = tuple(bindings)
        self._url = url
        self._grpc_port = grpc_port
        self._grace = grace
        self._cert_file = cert_file
        self._key_file = key_file
        self._interceptors = tuple(grpc_interceptors)
        self._service: Service | None = None
        self._http: uvicorn.Server | None = None
        self._http_task: asyncio.Task[None] | None = None
        self._grpc: GrpcServer | None = None

    if not TYPE_CHECKING:  # type checkers report the mistake by themselves

        def __getattr__(self, name: str) -> object:
            text = f"{type(self).__name__!r} object has no attribute {name!r}"
            if name in Running.__struct_fields__:
                text = f"{text}; enter it first: async with server.serving() as running"
            raise AttributeError(text, name=name, obj=self)

    async def __aenter__(self) -> Running:
        """Start serving.

        Raises:
            OSError: The port is taken.
        """
        listener = _listen(self._host, self._port)
        try:
            running = await self._start(listener)
        except BaseException:
            listener.close()
            await self.stop(0.0)
            raise
        logger.info("serving %s at %s", running.card.name, running.url)
        return running

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.stop(self._grace if error is None else 0.0)

    async def stop(self, grace: float | None = None) -> int:
        """Stop serving: turns in flight get a grace to finish, and are stopped after it.

        Args:
            grace: Seconds that turns in flight get to finish; None for the ``grace`` of
                `A2AServer.serving`.

        Returns:
            The number of turns that were stopped.
        """
        seconds = self._grace if grace is None else grace
        shutdown = asyncio.create_task(self._shut_down(seconds), name="stopping the agent")
        try:
            return await asyncio.shield(shutdown)
        except asyncio.CancelledError:
            self.end_grace()
            await asyncio.wait([shutdown], timeout=_FLUSH_GRACE_S)
            raise

    def end_grace(self) -> None:
        """End the grace of a `stop` in progress at once."""
        if self._service is not None:
            self._service.end_grace()
        if self._http is not None:
            self._http.force_exit = True

    async def _start(self, listener: socket.socket) -> Running:
        from holdfast._server.host_check import host_rules

        scheme = "http" if self._cert_file is None else "https"
        host, port = _bracketed(self._host), listener.getsockname()[1]
        url = self._url or f"{scheme}://{host}:{port}"
        rules = host_rules(
            url,
            listens_on=self._host,
            allowed_hosts=self._settings.allowed_hosts,
            allowed_origins=self._settings.allowed_origins,
        )
        grpc_url: str | None = None
        if "GRPC" in self._bindings:
            from holdfast._server.grpc_server import GrpcGate, GrpcServer

            self._grpc = grpc = GrpcServer(
                f"{host}:{self._grpc_port}",
                cert_file=self._cert_file,
                key_file=self._key_file,
                gate=GrpcGate(rules, self._settings.authenticate),
                interceptors=self._interceptors,
                max_body=self._settings.max_body,
            )
            grpc_url = f"{host}:{grpc.port}"
        card = self._agent_card(url=url, bindings=self._bindings, grpc_url=grpc_url)
        self._service = service = self._make_service(card)
        if self._grpc is not None:
            await self._grpc.start(service.handler, with_v03="0.3" in self._settings.versions)
        await self._start_http(service.app(card, self._bindings, rules), listener)
        return Running(url=url, card=card, grpc_url=grpc_url)

    async def _start_http(self, app: Any, listener: socket.socket) -> None:
        from holdfast._server.http_server import HttpServer, configuration

        config = configuration(
            app,
            cert_file=self._cert_file,
            key_file=self._key_file,
            head_timeout=self._settings.body_timeout,
            last_grace=self._grace + _FLUSH_GRACE_S,
        )
        self._http = http = HttpServer(config)
        self._http_task = asyncio.create_task(http.serve(sockets=[listener]), name="uvicorn")
        async with asyncio.timeout(_START_TIMEOUT_S):
            await http.wait_started(self._http_task)

    async def _shut_down(self, grace: float) -> int:
        """Stop listening, then the turns, then the servers that carry their replies."""
        if self._http is not None:
            self._http.should_exit = True
        servers = [self._http_task] if self._http_task is not None else []
        if self._grpc is not None:
            stopping = self._grpc.stop(grace + _FLUSH_GRACE_S)
            servers.append(asyncio.create_task(stopping, name="stopping gRPC"))
        stopped = 0 if self._service is None else await self._service.close(grace)
        if servers:
            _, pending = await asyncio.wait(servers, timeout=_FLUSH_GRACE_S)
            for task in pending:
                task.cancel()
            await asyncio.gather(*servers, return_exceptions=True)
        return stopped


async def serve(serving: Serving) -> None:
    """Serve until SIGINT or SIGTERM; a second signal ends the grace."""
    stop_requested = asyncio.Event()

    def stop(number: int) -> None:
        if stop_requested.is_set():
            logger.warning("stopping at once")
            serving.end_grace()
        else:
            logger.info("stopping on %s", signal.Signals(number).name)
            stop_requested.set()

    with _log_to_stderr():
        async with serving:
            with _signal_handlers(stop):
                await stop_requested.wait()
                await serving.stop()


@contextlib.contextmanager
def _log_to_stderr() -> Generator[None]:
    """Write the server's log to stderr, if the program has not configured logging.

    Without it the operator would see neither the agent's address nor why a function fails:
    clients get no detail.
    """
    if _has_handler(logger):
        yield
        return
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(levelname)s: %(message)s"))
    level = logger.level
    logger.addHandler(handler)
    if level == logging.NOTSET:
        logger.setLevel(logging.INFO)
    try:
        yield
    finally:
        logger.setLevel(level)
        logger.removeHandler(handler)


def _has_handler(log: logging.Logger) -> bool:
    """Whether a logger or one of its parents handles records."""
    current: logging.Logger | None = log
    while current is not None:
        if any(not isinstance(handler, logging.NullHandler) for handler in current.handlers):
            return True
        current = current.parent if current.propagate else None
    return False


@contextlib.contextmanager
def _signal_handlers(handle: Callable[[int], None]) -> Generator[None]:
    """Call a function on SIGINT and SIGTERM, if this is the main thread."""
    loop = asyncio.get_running_loop()
    previous: dict[signal.Signals, Any] = {}

    def on_signal(number: int, _: FrameType | None) -> None:
        loop.call_soon_threadsafe(handle, number)

    try:
        for number in (signal.SIGINT, signal.SIGTERM):
            previous[number] = signal.signal(number, on_signal)
    except ValueError:  # not in the main thread, where the caller cancels instead
        pass
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # asyncio sets TCP_NODELAY only on sockets whose protocol is named.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if hasattr(socket, "TCP_USER_TIMEOUT"):  # accepted connections inherit it
            listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _USER_TIMEOUT_MS)
        listener.bind((host, port))
        listener.listen(_BACKLOG)
        listener.setblocking(False)  # noqa: FBT003  the parameter is positional-only
    except OSError as error:
        listener.close()
        text = f"cannot listen on {_bracketed(host)}:{port}: {error.strerror or error}"
        raise OSError(error.errno, text) from None
    except BaseException:
        listener.close()
        raise
    return listener


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host
