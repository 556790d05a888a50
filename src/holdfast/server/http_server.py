"""uvicorn, without its signals: when it ends is decided by who started it."""

from __future__ import annotations

import asyncio
import contextlib
import math
from typing import TYPE_CHECKING, Any

import uvicorn

if TYPE_CHECKING:
    import socket
    from collections.abc import Generator

__all__ = ["HttpServer", "configuration"]


def configuration(
    app: Any, *, cert_file: str | None, key_file: str | None, last_grace: float
) -> uvicorn.Config:
    """How uvicorn serves an agent.

    Args:
        app: The application; its lifespan is the caller's affair.
        cert_file: For TLS, with the chain; None for none.
        key_file: That goes with it.
        last_grace: Seconds after which connections are cut that are still open at the end.
    """
    return uvicorn.Config(
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

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None]:
        """Captures none."""
        yield
