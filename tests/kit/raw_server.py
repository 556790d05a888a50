"""A server that knows nothing but sockets: what it does with a connection is a script.

It keeps every byte that it was sent, and can do what a well-behaved server never does: reset in
the middle of anything, not read, answer garbage. Several servers may share an event loop with the
client under test; `serve_in_thread` is for a server that outlives the loops of its clients.
"""

import asyncio
import contextlib
import socket
import struct
import threading

from holdfast._aio.accepting import settle_accepted

__all__ = [
    "LAST_CHUNK",
    "RawConnection",
    "RawServer",
    "always",
    "chunk",
    "head",
    "header",
    "reply",
    "serve",
    "serve_in_thread",
]

LAST_CHUNK = b"0\r\n\r\n"


def head(*headers, status="200 OK"):
    """The beginning of a reply, up to the empty line."""
    return "\r\n".join([f"HTTP/1.1 {status}", *headers, "", ""]).encode()


def reply(body=b"{}", *headers, status="200 OK"):
    """A whole reply."""
    return head(f"Content-Length: {len(body)}", *headers, status=status) + body


def chunk(data):
    """A piece of a chunked body."""
    return b"%x\r\n%b\r\n" % (len(data), data)


def always(*pieces):
    """The script of a server that answers each request with the same bytes."""

    async def script(connection):
        while await connection.request() is not None:
            await connection.send(*pieces or (reply(),))

    return script


class RawConnection:
    """One connection, as the script sees it."""

    def __init__(self, server, reader, writer):
        self._server = server
        self._reader = reader
        self._writer = writer
        self.requests = []
        self.gone = asyncio.Event()
        """Set when the client was seen to leave."""

    async def request(self):
        """Reads a whole request, and returns its bytes; None if the client leaves instead."""
        try:
            received = await self._reader.readuntil(b"\r\n\r\n")
            length = header(received, "content-length")
            if length is not None:
                received += await self._reader.readexactly(int(length))
        except (asyncio.IncompleteReadError, ConnectionError):
            self.gone.set()
            return None
        self.requests.append(received)
        self._server.note(received)
        return received

    async def first_bytes(self):
        """Reads until something of a request is there."""
        return await self._reader.read(1)

    async def send(self, *pieces):
        """Sends pieces of bytes, each by itself, as far as the client takes them."""
        with contextlib.suppress(ConnectionError):
            for piece in pieces:
                self._writer.write(piece)
                await self._writer.drain()
                await asyncio.sleep(0)

    async def until_gone(self):
        """Reads on until the client closes or resets; returns what it still sent."""
        received = b""
        with contextlib.suppress(ConnectionError):
            while more := await self._reader.read(65536):
                received += more
        self.gone.set()
        return received

    async def stall(self):
        """Does nothing for as long as the server lives."""
        await asyncio.Event().wait()

    def stop_reading(self):
        """Takes no more bytes from the socket."""
        self._writer.transport.pause_reading()

    def reset(self):
        """Ends the connection with a RST."""
        self._writer.get_extra_info("socket").setsockopt(
            socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0)
        )
        self.abort()

    def abort(self):
        """Ends the connection at once, whatever is still to be written."""
        self._writer.transport.abort()

    def close(self):
        """Ends the connection with a FIN after what was written."""
        self._writer.close()

    def finish(self):
        """Sends a FIN at once, and goes on reading."""
        self._writer.get_extra_info("socket").shutdown(socket.SHUT_WR)


class RawServer:
    """What was asked of a server so far; made by `serve`.

    Attributes:
        connections: Every connection that was accepted, in order.
        requests: The bytes of every request, in order of their arrival.
        failures: What scripts raised; the first one is raised when the server stops.
    """

    def __init__(self, script):
        self._script = script
        self._tasks = {}
        self._scheme = "http"
        self._stopped = False
        self.connections = []
        self.requests = []
        self.failures = []
        self._changed = asyncio.Event()
        self._loop = asyncio.get_running_loop()

    @property
    def url(self):
        return f"{self._scheme}://{self._host}:{self.port}/"

    @property
    def open(self):
        """The connections whose script still runs."""
        return [connection for connection in self.connections if connection in self._tasks]

    def note(self, request):
        self.requests.append(request)
        self._tell()

    async def until(self, condition):
        """Waits until a condition on this server holds, such as a number of requests."""
        while not condition():
            await self._changed.wait()

    def wait(self, condition):
        """The same for another thread."""
        asyncio.run_coroutine_threadsafe(self.until(condition), self._loop).result(10)

    def call(self, function):
        """Calls a function in the server's loop, from another thread."""
        self._loop.call_soon_threadsafe(function)

    def _tell(self):
        self._changed.set()
        self._changed = asyncio.Event()

    async def start(self, *, ssl=None, host="127.0.0.1", receive_buffer=None, refusing=False):
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        listening = socket.socket(family, socket.SOCK_STREAM)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if receive_buffer is not None:  # accepted sockets inherit it
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        listening.bind((host, 0))
        self.port = listening.getsockname()[1]
        self._host = f"[{host}]" if ":" in host else host
        self._scheme = "https" if ssl else "http"
        self._listening = await asyncio.start_server(
            self._accept,
            sock=listening,
            ssl=ssl,
            backlog=1024,
            limit=2**24,
            start_serving=not refusing,
        )

    async def open_up(self):
        """Accepts connections from now on, where they were refused so far."""
        await self._listening.start_serving()

    async def stop(self):
        self._stopped = True
        await settle_accepted()
        self._listening.close()
        await asyncio.sleep(0)
        tasks = dict(self._tasks)
        for connection, task in tasks.items():
            connection.abort()
            task.cancel()
        await asyncio.gather(*tasks.values(), return_exceptions=True)
        await self._listening.wait_closed()
        if self.failures:
            raise self.failures[0]

    def _accept(self, reader, writer):
        if self._stopped:
            writer.transport.abort()
            return
        connection = RawConnection(self, reader, writer)
        self.connections.append(connection)
        self._tasks[connection] = self._loop.create_task(self._follow(connection, writer))
        self._tell()

    async def _follow(self, connection, writer):
        try:
            await self._script(connection)
            writer.close()
        except Exception as error:  # noqa: BLE001  a script that fails must fail its test
            self.failures.append(error)
            writer.transport.abort()
        finally:
            del self._tasks[connection]
            self._tell()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()


@contextlib.asynccontextmanager
async def serve(script=None, **options):
    """Serves on a loopback port of its own.

    Args:
        script: ``async def script(connection)``, called for each connection; when it returns,
            the connection is closed. The default answers every request with ``{}``.
        options: ``ssl`` (a context), ``host``, ``receive_buffer`` (bytes in the kernel),
            ``refusing`` (the port refuses connections until ``open_up``).
    """
    server = RawServer(script or always())
    await server.start(**options)
    try:
        yield server
    finally:
        await server.stop()


@contextlib.contextmanager
def serve_in_thread(script=None, **options):
    """Serves from a thread with a loop of its own; for tests whose clients have several loops."""
    started = threading.Event()
    made = []

    async def main():
        stop = asyncio.Event()
        async with serve(script, **options) as server:
            made.extend((server, asyncio.get_running_loop(), stop))
            started.set()
            await stop.wait()

    thread = threading.Thread(target=asyncio.run, args=(main(),))
    thread.start()
    assert started.wait(10)
    server, loop, stop = made
    try:
        yield server
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join(10)


def header(request, name):
    """The value of a header in the bytes of a message, None if it has none."""
    lines = request.partition(b"\r\n\r\n")[0].decode("latin-1").split("\r\n")[1:]
    for line in lines:
        if line.partition(":")[0].lower() == name:
            return line.partition(":")[2].strip()
    return None
