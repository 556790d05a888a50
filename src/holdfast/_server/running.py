"""Serving an agent on sockets: uvicorn for what is HTTP, grpc.aio for gRPC.

Rules: the card says where the agent really is; at the end no new turn begins, those under way
have their time, and then they are ended and say so; nothing is left running, and nothing waits for
ever.
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

from holdfast._arguments import check_age, check_kind, check_port, check_url
from holdfast._server.extra import need
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

_MARGIN = 10.0
"""Seconds beyond the grace that replies have to leave, before their connections are cut."""

_STARTING = 30.0
_NOWHERE = frozenset({"0.0.0.0", "::", ""})  # noqa: S104  refused as an address for callers
_BACKLOG = 2048

_UNACKNOWLEDGED = 60_000
"""Milliseconds after which the system ends a connection whose other end takes nothing of what is
sent, where the system can: closing it would wait for that end for ever."""


class Running(msgspec.Struct, frozen=True, kw_only=True):
    """An agent that is served.

    Attributes:
        url: Where it can be reached.
        card: As it is served.
        grpc_url: ``host:port`` of gRPC; None where it is not served.
    """

    url: str
    card: AgentCard
    grpc_url: str | None = None


class Serving(AbstractAsyncContextManager["Running"]):
    """Serves an agent while a block runs; see `A2AServer.serving`."""

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
        check_age("grace", grace)
        if url is not None:
            check_url(url, "url")
        elif host in _NOWHERE:
            raise ValueError(
                f"clients cannot connect to {host!r}: pass the agent's address as url="
            )
        if (cert_file is None) != (key_file is None):
            raise ValueError("cert_file and key_file go together")
        need("server", "serving an agent", "uvicorn")
        if "GRPC" in bindings:
            need("server,grpc", "serving an agent over gRPC")
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

    if not TYPE_CHECKING:  # type checkers tell it themselves

        def __getattr__(self, name: str) -> object:
            text = f"{type(self).__name__!r} object has no attribute {name!r}"
            if name in Running.__struct_fields__:
                text = f"{text}; enter it first: async with server.serving() as running"
            raise AttributeError(text, name=name, obj=self)

    async def __aenter__(self) -> Running:
        """Starts it.

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
        """Ends it: what runs has its time, then it is ended.

        Args:
            grace: Seconds that turns under way have; None for what was said at first.

        Returns:
            How many turns were ended.
        """
        seconds = self._grace if grace is None else grace
        ending = asyncio.create_task(self._end(seconds), name="stopping the agent")
        try:
            return await asyncio.shield(ending)
        except asyncio.CancelledError:
            self.hurry()
            await asyncio.wait([ending], timeout=_MARGIN)
            raise

    def hurry(self) -> None:
        """Takes away what is left of the grace."""
        if self._service is not None:
            self._service.hurry()
        if self._http is not None:
            self._http.force_exit = True

    async def _start(self, listener: socket.socket) -> Running:
        from holdfast._server.host_check import host_rules

        scheme = "http" if self._cert_file is None else "https"
        host, port = _shown(self._host), listener.getsockname()[1]
        url = self._url or f"{scheme}://{host}:{port}"
        rules = host_rules(
            url,
            listens_on=self._host,
            allowed_hosts=self._settings.allowed_hosts,
            allowed_origins=self._settings.allowed_origins,
        )
        grpc_url: str | None = None
        if "GRPC" in self._bindings:
            from holdfast._server.grpc_gate import GrpcGate
            from holdfast._server.grpc_server import GrpcServer

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
            await self._grpc.start(service.handler, with_older="0.3" in self._settings.versions)
        await self._start_http(service.app(card, self._bindings, rules), listener)
        return Running(url=url, card=card, grpc_url=grpc_url)

    async def _start_http(self, app: Any, listener: socket.socket) -> None:
        from holdfast._server.http_server import HttpServer, configuration

        config = configuration(
            app,
            cert_file=self._cert_file,
            key_file=self._key_file,
            head_timeout=self._settings.body_timeout,
            last_grace=self._grace + _MARGIN,
        )
        self._http = http = HttpServer(config)
        self._http_task = asyncio.create_task(http.serve(sockets=[listener]), name="uvicorn")
        async with asyncio.timeout(_STARTING):
            await http.wait_started(self._http_task)

    async def _end(self, grace: float) -> int:
        """Stops listening, ends the turns, and then what carries them."""
        if self._http is not None:
            self._http.should_exit = True
        carriers = [self._http_task] if self._http_task is not None else []
        if self._grpc is not None:
            stopping = asyncio.create_task(self._grpc.stop(grace + _MARGIN), name="stopping gRPC")
            carriers.append(stopping)
        ended = 0 if self._service is None else await self._service.close(grace)
        if carriers:
            _, late = await asyncio.wait(carriers, timeout=_MARGIN)
            for task in late:
                task.cancel()
            await asyncio.gather(*carriers, return_exceptions=True)
        return ended


async def serve(serving: Serving) -> None:
    """Serves until the process is told to stop, by SIGINT or SIGTERM; by a second one at once."""
    told = asyncio.Event()

    def stop(number: int) -> None:
        if told.is_set():
            logger.warning("stopping at once")
            serving.hurry()
        else:
            logger.info("stopping on %s", signal.Signals(number).name)
            told.set()

    with _heard():
        async with serving:
            with _signals(stop):
                await told.wait()
                await serving.stop()


@contextlib.contextmanager
def _heard() -> Generator[None]:
    """Shows on stderr what the server says, where the program has not set up logging.

    A library is silent then, but whoever runs a server wants to know where it is, and why a
    function of theirs fails: clients are not told.
    """
    if _is_set_up(logger):
        yield
        return
    shown = logging.StreamHandler()
    shown.setFormatter(logging.Formatter("%(levelname)s: %(message)s"))
    earlier = logger.level
    logger.addHandler(shown)
    if earlier == logging.NOTSET:
        logger.setLevel(logging.INFO)
    try:
        yield
    finally:
        logger.setLevel(earlier)
        logger.removeHandler(shown)


def _is_set_up(asked: logging.Logger) -> bool:
    """Whether anything does something with what a logger is given."""
    at: logging.Logger | None = asked
    while at is not None:
        if any(not isinstance(handler, logging.NullHandler) for handler in at.handlers):
            return True
        at = at.parent if at.propagate else None
    return False


@contextlib.contextmanager
def _signals(handle: Any) -> Generator[None]:
    """Hands over the signals that end a process, where that is possible."""
    loop = asyncio.get_running_loop()
    earlier: dict[signal.Signals, Any] = {}

    def from_system(number: int, _: FrameType | None) -> None:
        loop.call_soon_threadsafe(handle, number)

    try:
        for number in (signal.SIGINT, signal.SIGTERM):
            earlier[number] = signal.signal(number, from_system)
    except ValueError:  # not in the main thread: whoever started it ends it
        pass
    try:
        yield
    finally:
        for number, handler in earlier.items():
            signal.signal(number, handler)


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # Named as TCP, so that asyncio sends small replies without delay.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if hasattr(socket, "TCP_USER_TIMEOUT"):  # connections have it from here
            listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _UNACKNOWLEDGED)
        listener.bind((host, port))
        listener.listen(_BACKLOG)
        listener.setblocking(False)  # noqa: FBT003  it has no name
    except OSError as error:
        listener.close()
        text = f"cannot listen on {_shown(host)}:{port}: {error.strerror or error}"
        raise OSError(error.errno, text) from None
    except BaseException:
        listener.close()
        raise
    return listener


def _shown(host: str) -> str:
    return f"[{host}]" if ":" in host else host
