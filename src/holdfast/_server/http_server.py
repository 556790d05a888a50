"""uvicorn, without its signals: when it ends is decided by who started it."""

from __future__ import annotations

import asyncio
import contextlib
import math
from typing import TYPE_CHECKING, Any

import uvicorn

from holdfast._net.accepting import settle_accepted

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
    """How uvicorn serves an agent.

    Args:
        app: The application; its lifespan is the caller's affair.
        cert_file: For TLS, with the chain; None for none.
        key_file: That goes with it.
        head_timeout: Seconds in which the head of a request has to come.
        last_grace: Seconds after which connections are cut that are still open at the end.
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
    config.http_protocol_class = _with_limit(config.http_protocol_class, head_timeout)
    return config


def _with_limit(protocol: Any, seconds: float) -> Any:
    """A protocol of uvicorn's that does not wait for ever for the head of a request.

    uvicorn itself waits so for connections that send nothing, or half a head.
    """

    class Limited(protocol):  # type: ignore[misc]
        _limit: asyncio.TimerHandle | None = None

        def connection_made(self, transport: Any) -> None:
            above: Any = super()
            above.connection_made(transport)
            self._begin(transport)

        def data_received(self, data: bytes) -> None:
            above: Any = super()
            above.data_received(data)
            if self.cycle is not None and not self.cycle.response_complete:
                self._end()
            elif self._limit is None:
                self._begin(self.transport)

        def connection_lost(self, exc: Exception | None) -> None:
            self._end()
            above: Any = super()
            above.connection_lost(exc)

        def _begin(self, transport: asyncio.Transport) -> None:
            self._limit = asyncio.get_running_loop().call_later(seconds, transport.abort)

        def _end(self) -> None:
            if self._limit is not None:
                self._limit.cancel()
                self._limit = None

    return Limited


class HttpServer(uvicorn.Server):
    """A server that says when it has started, and leaves the signals of the process alone."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self._has_started = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begins to listen."""
        await super().startup(sockets)
        self._has_started.set()

    async def wait_started(self, serving: asyncio.Task[None]) -> None:
        """Waits until it listens.

        Args:
            serving: The task that it runs in.

        Raises:
            Exception: What it failed with.
        """
        started = asyncio.create_task(self._has_started.wait())
        try:
            await asyncio.wait([started, serving], return_when=asyncio.FIRST_COMPLETED)
        finally:
            started.cancel()
        if serving.done():
            await serving

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Shut down, and close connections that were made just before."""
        try:
            await settle_accepted()
        finally:  # cancelled or not, the port is closed
            for server in self.servers:
                server.close()
        await asyncio.sleep(0)  # uvicorn looks only once at which connections there are
        await super().shutdown(sockets)

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None]:
        """Captures none."""
        yield
