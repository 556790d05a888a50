"""An ASGI application on a real socket: as much of a server as tests need."""

import asyncio
import contextlib
from urllib.parse import urlsplit

from holdfast.testing.serverhttp import head_of, read_request

__all__ = ["serving"]


@contextlib.asynccontextmanager
async def serving(application):
    """Serves what the function makes of the server's address; gives that application."""
    app = None
    handlers = set()

    async def serve(reader, writer):
        handlers.add(asyncio.current_task())
        try:
            request = await read_request(reader, url)
            if request is not None:
                await _answer(app, request, writer)
            writer.close()
            await writer.wait_closed()
        finally:
            writer.transport.abort()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    url = "http://{}:{}".format(*server.sockets[0].getsockname())
    app = application(url)
    try:
        async with server:
            yield app
    finally:
        for handler in handlers:
            handler.cancel()
        await asyncio.gather(*handlers, return_exceptions=True)


async def _answer(app, request, writer):
    scope = {
        "type": "http",
        "method": request.method,
        "path": urlsplit(request.url).path,
        "headers": [(name.encode(), value.encode()) for name, value in request.headers.items()],
    }
    pieces = [request.body[:100], request.body[100:]]

    async def receive():
        return {"type": "http.request", "body": pieces.pop(0), "more_body": bool(pieces)}

    async def send(message):
        if message["type"] == "http.response.start":
            headers = {name.decode(): value.decode() for name, value in message["headers"]}
            length = int(headers.pop("content-length"))
            writer.write(head_of(message["status"], headers, length=length, keep_alive=False))
        else:
            writer.write(message["body"])
            await writer.drain()

    await app(scope, receive, send)
