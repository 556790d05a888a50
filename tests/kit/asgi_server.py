"""An ASGI application on a real socket: as much of a server as tests need."""

import contextlib
from urllib.parse import urlsplit

from holdfast._testing.http_messages import LARGEST_HEAD, head_of, read_request
from holdfast._testing.listening import Listener

__all__ = ["serving"]


@contextlib.asynccontextmanager
async def serving(application):
    """Serves what the function makes of the server's address; gives that application."""

    async def serve(reader, writer):
        request = await read_request(reader, server.url)
        if request is not None:
            await _answer(app, request, writer)

    async with Listener(serve, host="127.0.0.1", port=0, largest_head=LARGEST_HEAD) as server:
        app = application(server.url)
        yield app


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
