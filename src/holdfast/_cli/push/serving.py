"""An ASGI application served at a local address, for as long as a command needs it.

Rules: one address, plain HTTP, nothing but requests; what the application does not read is not
read; nothing is left listening when the context closes. It is aiohttp's server, which the core
brings along.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Self, cast

from aiohttp import web

from holdfast._net.accepting import settle_accepted

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, MutableMapping
    from types import TracebackType

    Message = MutableMapping[str, Any]
    Application = Callable[
        [Message, Callable[[], Awaitable[Message]], Callable[[Message], Awaitable[None]]],
        Awaitable[None],
    ]

__all__ = ["Served"]

_SHUTDOWN = 2.0
"""Seconds that requests have to end when the context closes."""
_KEPT_ALIVE = 15.0


class Served:
    """Serves while the context is open.

    Args:
        host: The address to listen on.
        port: The port; 0 takes a free one.

    Attributes:
        url: Where it listens, once the context is open.
        application: What answers; everything is answered by 503 until there is one.

    Raises:
        OSError: On entry: nobody can listen there.
    """

    def __init__(self, host: str, port: int) -> None:
        self._host = host
        self._port = port
        self._runner = web.ServerRunner(
            web.Server(self._answer, access_log=None, keepalive_timeout=_KEPT_ALIVE),
            shutdown_timeout=_SHUTDOWN,
        )
        self.url = ""
        self.application: Application | None = None

    async def __aenter__(self) -> Self:
        await self._runner.setup()
        try:
            self._site = web.TCPSite(self._runner, self._host, self._port)
            await self._site.start()
        except BaseException:
            await self._runner.cleanup()
            raise
        host, port = cast("tuple[str, int]", self._runner.addresses[0][:2])
        self.url = f"http://[{host}]:{port}/" if ":" in host else f"http://{host}:{port}/"
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            await settle_accepted()
            await self._site.stop()
            await asyncio.sleep(0)  # aiohttp waits for those that do not wait for a request yet
        finally:
            await self._runner.cleanup()

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        if self.application is None:
            return web.Response(status=503)
        scope: Message = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": f"{request.version.major}.{request.version.minor}",
            "method": request.method,
            "scheme": "http",
            "path": request.path,
            "query_string": request.query_string.encode(),
            "headers": [(name.lower(), value) for name, value in request.raw_headers],
        }
        status, headers, body = 500, dict[str, str](), bytearray()

        async def receive() -> Message:
            try:
                piece = await request.content.readany()
            except (ConnectionError, web.RequestPayloadError):
                return {"type": "http.disconnect"}
            more = not request.content.at_eof()
            return {"type": "http.request", "body": piece, "more_body": more}

        async def send(message: Message) -> None:
            nonlocal status, headers
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = {name.decode(): value.decode() for name, value in message["headers"]}
            else:
                body.extend(message.get("body", b""))

        await self.application(scope, receive, send)
        headers.pop("content-length", None)  # aiohttp says it
        return web.Response(status=status, headers=headers, body=bytes(body))
