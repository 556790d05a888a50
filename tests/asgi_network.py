"""An engine that carries requests to ASGI applications in process, event by event."""

import asyncio
import contextlib
from urllib.parse import unquote, urlsplit

from holdfast.testing import FakeNetwork
from holdfast.wire.http import HttpReply

__all__ = ["AsgiNetwork"]


class AsgiNetwork:
    """Carries requests to the application of their origin; what breaks off is a cut connection.

    Args:
        apps: Applications by origin.
    """

    def __init__(self, apps):
        self.apps = apps
        self.crashes = []

    async def request(self, request):
        async with self.stream(request) as reply:
            return HttpReply(status=reply.status, headers=reply.headers, body=await reply.read())

    @contextlib.asynccontextmanager
    async def stream(self, request):
        parts = urlsplit(request.url)
        app = self.apps.get(f"{parts.scheme}://{parts.netloc}")
        if app is None:
            async with FakeNetwork().stream(request):
                raise AssertionError("nobody is there")
        request.progress.sent = True
        reply = _Reply()
        task = asyncio.create_task(self._serve(app, request, parts, reply))
        try:
            await reply.begin()
            yield reply
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def close(self):
        pass

    async def _serve(self, app, request, parts, reply):
        headers = {"host": parts.netloc, **request.headers}
        scope = {
            "type": "http",
            "method": request.method,
            "scheme": parts.scheme,
            "path": unquote(parts.path),
            "query_string": parts.query.encode(),
            "headers": [(n.encode(), v.encode("latin-1")) for n, v in headers.items()],
        }
        bodies = [{"type": "http.request", "body": request.body, "more_body": False}]

        async def receive():
            if not bodies:
                await asyncio.Event().wait()
            return bodies.pop()

        try:
            await app(scope, receive, reply.send)
        except Exception as error:  # noqa: BLE001  as a server does
            self.crashes.append(error)
        reply.end()


class _Reply:
    def __init__(self):
        self.status = 0
        self.headers = {}
        self._messages = asyncio.Queue()
        self._is_whole = False

    async def send(self, message):
        await self._messages.put(message)

    def end(self):
        self._messages.put_nowait(None)

    async def begin(self):
        start = await self._messages.get()
        assert start is not None, "the application answered nothing"
        assert start["type"] == "http.response.start"
        self.status = start["status"]
        self.headers = {n.decode().lower(): v.decode() for n, v in start["headers"]}

    async def chunks(self):
        while True:
            message = await self._messages.get()
            if message is None:
                raise ConnectionResetError("the application broke off")
            if message["body"]:
                yield message["body"]
            if not message.get("more_body", False):
                return

    async def read(self):
        return b"".join([piece async for piece in self.chunks()])
