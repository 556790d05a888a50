"""uvicorn without signal handlers: the code that starts the server also stops it."""

from __future__ import annotations

import asyncio
import contextlib
import math
from typing import TYPE_CHECKING, Any

import uvicorn

from holdfast._aio.accepting import settle_accepted

if TYPE_CHECKING:
    import socket
    from collections.abc import Generator

__all__ = ["HttpServer", "configuration"]


def configuration(
    app: Any,
    *,
    cert_file: str | None,
    key_file: str | None,
    head_timeout: float,
    last_grace: float,
) -> uvicorn.Config:
    """Return uvicorn's configuration for serving an agent.

    Args:
        app: The application; its lifespan is not run.
        cert_file: The TLS certificate with its chain, in PEM; None for no TLS.
        key_file: The private key of the certificate.
        head_timeout: Seconds in which the head of a request must arrive.
        last_grace: Seconds after which connections that are open at shutdown are cut.
    """
    config = uvicorn.Config(
        app,
        access_log=False,
        lifespan="off",
        log_config=None,
        server_header=False,
        ssl_certfile=cert_file,
        ssl_keyfile=key_file,
        timeout_graceful_shutdown=math.ceil(last_grace),
        ws="none",
    )
    config.load()
    config.http_protocol_class = _with_head_timeout(config.http_protocol_class, head_timeout)
    return config


def _with_head_timeout(protocol: Any, seconds: float) -> Any:
    """Return a protocol of uvicorn with a timeout for the head of a request.

    uvicorn itself waits forever for connections that send nothing, or half a head.
    """

    class TimedProtocol(protocol):  # type: ignore[misc]
        _timer: asyncio.TimerHandle | None = None

        def connection_made(self, transport: Any) -> None:
            base: Any = super()
            base.connection_made(transport)
            self._start_timer(transport)

        def data_received(self, data: bytes) -> None:
            base: Any = super()
            base.data_received(data)
            if self.cycle is not None and not self.cycle.response_complete:
                self._stop_timer()
            elif self._timer is None:
                self._start_timer(self.transport)

        def connection_lost(self, exc: Exception | None) -> None:
            self._stop_timer()
            base: Any = super()
            base.connection_lost(exc)

        def _start_timer(self, transport: asyncio.Transport) -> None:
            self._timer = asyncio.get_running_loop().call_later(seconds, transport.abort)

        def _stop_timer(self) -> None:
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None

    return TimedProtocol


class HttpServer(uvicorn.Server):
    """A server that reports when it has started, and installs no signal handlers."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self._has_started = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start to listen."""
        await super().startup(sockets)
        self._has_started.set()

    async def wait_started(self, serving: asyncio.Task[None]) -> None:
        """Wait until the server listens.

        Args:
            serving: The task that runs `serve`.

        Raises:
            Exception: The server failed to start.
        """
        started = asyncio.create_task(self._has_started.wait())
        try:
            await asyncio.wait([started, serving], return_when=asyncio.FIRST_COMPLETED)
        finally:
            started.cancel()
        if serving.done():
            await serving

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Shut down, and close connections that were accepted just before."""
        try:
            await settle_accepted()
        finally:  # the port is closed even on cancellation
            for server in self.servers:
                server.close()
        await asyncio.sleep(0)  # uvicorn lists its open connections only once
        await super().shutdown(sockets)

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None]:
        """Capture no signals."""
        yield
