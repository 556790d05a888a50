"""A door before a real agent: what comes is passed on, and what the agent answers passed back.

It owns the passing on, for scripts of `tests.kit.raw_server.serve` that change what passes:
`Proxy` to streams, by their number, `FaultyAgent` to messages. It knows of HTTP what it needs: one
request on each connection, replies that end with it, and bodies in chunks, of which each is one
event of a stream.
"""

import asyncio
from urllib.parse import urlsplit

from tests.kit.raw_server import LAST_CHUNK, header

__all__ = ["Door", "end", "is_stream", "next_chunk"]


class Door:
    """Passes requests on to an agent, each over a connection of its own.

    Args:
        agent: The agent's origin.
    """

    def __init__(self, agent):
        self._origin = agent
        self._port = urlsplit(agent).port

    async def pass_on(self, connection, request, pass_back):
        """Passes a request on, and lets go of the agent when the client leaves.

        Args:
            connection: Where the request came from.
            request: Its bytes.
            pass_back: ``async def pass_back(head, reader)``, called with the head of the reply,
                and what brings its body.
        """
        reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
        writer.write(request.replace(b"\r\n", b"\r\nConnection: close\r\n", 1))

        async def reply():
            await pass_back(await reader.readuntil(b"\r\n\r\n"), reader)

        passing = asyncio.ensure_future(reply())
        leaving = asyncio.ensure_future(connection.until_gone())
        try:
            await asyncio.wait({passing, leaving}, return_when=asyncio.FIRST_COMPLETED)
            if passing.done():
                passing.result()
        finally:
            for task in (passing, leaving):
                task.cancel()
            writer.transport.abort()
            await asyncio.wait({passing, leaving})


def is_stream(head):
    """Whether a reply with this head is a stream of events."""
    return (header(head, "content-type") or "").startswith("text/event-stream")


async def next_chunk(reader):
    """The next piece of a body in chunks; nothing at its end."""
    size = int(await reader.readuntil(b"\r\n"), 16)
    return (await reader.readexactly(size + 2))[:-2]


async def end(connection, how):
    """Ends a body in chunks: ``reset`` (RST), ``close`` (FIN), ``end`` (in good order)."""
    match how:
        case "reset":
            connection.reset()
        case "close":
            connection.close()
        case "end":
            await connection.send(LAST_CHUNK)
