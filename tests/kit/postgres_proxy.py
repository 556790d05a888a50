"""What may lie between a journal and its PostgreSQL server: a bad network, or a pooler."""

import asyncio
import contextlib
import random
import struct
import threading

__all__ = ["PostgresPooler", "PostgresProxy"]

_SSL, _GSS, _CANCEL = 80877103, 80877104, 80877102
"""Codes of requests in place of a startup."""

_PASSED = {"user", "database", "application_name", "client_encoding"}
"""Startup parameters that a pooler passes on, as PgBouncer does."""


class PostgresProxy:
    """Passes bytes on to a server, in a thread of its own; it may lose, delay and hold them.

    Args:
        server: The server.
        seed: Draws the faults.

    Attributes:
        dsn: The address of the server's database through the proxy.
        cuts: Share of the pieces at which a connection is cut, before or after the piece arrived.
        delay: Longest delay of a piece, in seconds.
        cut_count: Connections that were cut.
    """

    def __init__(self, server, *, seed=0):
        self._socket = str(server.directory / ".s.PGSQL.5432")
        self._dice = random.Random(seed)
        self.cuts = self.delay = 0.0
        self._open = set()
        self._loop = asyncio.new_event_loop()
        self._passes = None
        self.cut_count = 0
        started = threading.Event()
        self._thread = threading.Thread(target=self._run, args=[started], daemon=True)
        self._thread.start()
        started.wait()
        self.dsn = f"postgresql://postgres@127.0.0.1:{self._port}/postgres?sslmode=disable"

    def __enter__(self):
        return self

    def __exit__(self, *_error):
        self._loop.call_soon_threadsafe(self._stopped.set)
        self._thread.join()

    def cut(self):
        """Cut all connections."""
        self._loop.call_soon_threadsafe(self._cut)

    def hold(self):
        """Pass nothing on any more, in either direction."""
        self._loop.call_soon_threadsafe(self._passes.clear)

    def _cut(self):
        for writer in [*self._open]:
            self.cut_count += 1
            writer.transport.abort()

    def _run(self, started):
        with contextlib.closing(self._loop):
            self._loop.run_until_complete(self._listen(started))

    async def _listen(self, started):
        self._stopped, self._passes = asyncio.Event(), asyncio.Event()
        self._passes.set()
        listener = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self._port = listener.sockets[0].getsockname()[1]
        started.set()
        await self._stopped.wait()
        listener.close()
        serving = asyncio.all_tasks() - {asyncio.current_task()}
        for task in serving:
            task.cancel()
        await asyncio.gather(*serving, return_exceptions=True)
        self._cut()
        await asyncio.sleep(0)  # the transports close

    async def connected(self):
        """Connect to the server."""
        reader, writer = await asyncio.open_unix_connection(self._socket)
        self._open.add(writer)
        return reader, writer

    async def _accept(self, reader, writer):
        self._open.add(writer)
        ends = (OSError, asyncio.IncompleteReadError, asyncio.CancelledError)
        with contextlib.suppress(*ends):  # a cancelled handler would be reported
            await self.serve(reader, writer)
        self._open.discard(writer)
        writer.transport.abort()

    async def serve(self, reader, writer):
        """Serve a connection."""
        back_reader, back_writer = await self.connected()
        ways = [
            asyncio.ensure_future(self._pass_on(reader, back_writer)),
            asyncio.ensure_future(self._pass_on(back_reader, writer)),
        ]
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for way in ways:
                way.cancel()
            await asyncio.gather(*ways, return_exceptions=True)
            self._open.discard(back_writer)
            back_writer.transport.abort()

    async def _pass_on(self, reader, writer):
        while piece := await reader.read(65536):
            if self.delay:
                await asyncio.sleep(self._dice.uniform(0, self.delay))
            await self._passes.wait()
            is_cut = self._dice.random() < self.cuts
            if is_cut and self._dice.random() < 0.5:
                piece = b""
            writer.write(piece)
            await writer.drain()
            if is_cut:
                self.cut_count += 1
                return


class PostgresPooler(PostgresProxy):
    """Assigns a connection of the server to each transaction, as PgBouncer does in that mode.

    Args:
        server: The server.
        size: Its connections.
    """

    def __init__(self, server, size=3):
        self._size = size
        self._pool = None
        super().__init__(server)

    async def serve(self, reader, writer):
        """Serve a client."""
        if self._pool is None:
            self._pool = asyncio.Queue()
            for _ in range(self._size):
                self._pool.put_nowait(await self._session())
        parameters = await _startup(reader, writer)
        if refused := [name for name in parameters if name not in _PASSED]:
            fields = f"SFATAL\0C08P01\0Munsupported startup parameter: {refused[0]}\0\0"
            writer.write(_message(b"E", fields.encode()))
            await writer.drain()
            return
        settings = {"server_version": "18.0", "client_encoding": "UTF8"}
        known = [_message(b"S", f"{n}\0{text}\0".encode()) for n, text in settings.items()]
        key = _message(b"K", struct.pack("!II", 1, 1))
        hello = [_message(b"R", struct.pack("!I", 0)), *known, key, _message(b"Z", b"I")]
        writer.write(b"".join(hello))
        while True:
            request = await _request(reader)
            back_reader, back_writer = await self._pool.get()
            state = b"T"
            while True:  # until the transaction ends
                back_writer.write(request)
                while True:
                    kind, body = await _read(back_reader)
                    writer.write(_message(kind, body))
                    if kind == b"Z":
                        state = body
                        break
                if state == b"I":
                    break
                request = await _request(reader)
            self._pool.put_nowait((back_reader, back_writer))

    async def _session(self):
        reader, writer = await self.connected()
        body = struct.pack("!I", 196608) + b"user\0postgres\0database\0postgres\0\0"
        writer.write(struct.pack("!I", 4 + len(body)) + body)
        while (await _read(reader))[0] != b"Z":
            pass
        return reader, writer


async def _startup(reader, writer):
    """Read the startup of a client; returns its parameters."""
    while True:
        length, code = struct.unpack("!II", await reader.readexactly(8))
        body = await reader.readexactly(length - 8)
        if code not in {_SSL, _GSS}:
            words = body.decode().rstrip("\0").split("\0")
            return dict(zip(words[::2], words[1::2], strict=False)) if code != _CANCEL else {}
        writer.write(b"N")


async def _request(reader):
    """Read messages up to one that ends a request."""
    request = b""
    while True:
        kind, body = await _read(reader)
        request += _message(kind, body)
        if kind == b"X":
            raise asyncio.IncompleteReadError(b"", None)
        if kind in {b"Q", b"S"}:
            return request


async def _read(reader):
    kind = await reader.readexactly(1)
    (length,) = struct.unpack("!I", await reader.readexactly(4))
    return kind, await reader.readexactly(length - 4)


def _message(kind, body):
    return kind + struct.pack("!I", 4 + len(body)) + body
