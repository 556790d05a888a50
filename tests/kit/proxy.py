"""A proxy that passes calls on to an agent, and does to its streams what networks do.

It is a script for `tests.kit.raw_server.serve`; how it passes them on is that of each `Door`.
"""

import asyncio
import functools
from dataclasses import dataclass

from tests.kit.door import Door, end, is_stream, next_chunk
from tests.kit.raw_server import LAST_CHUNK, chunk

__all__ = ["Fault", "Proxy"]


@dataclass(frozen=True)
class Fault:
    """What happens to one stream.

    Attributes:
        kind: ``reset`` (RST), ``close`` (FIN in the middle of the body), ``end`` (the body ends in
            good order), ``stall`` (nothing comes any more), ``twice`` (an event is repeated, and
            all goes on).
        after: Events that pass before; of ``twice`` the number of the event.
        more: Bytes that pass of the event that follows.
    """

    kind: str
    after: int
    more: int = 0


async def _nothing():
    pass


class Proxy(Door):
    """Passes on what is asked of an agent.

    Args:
        agent: The agent's origin.
        faults: What happens to each of its streams, in order; None for nothing. To those that
            follow nothing happens.
        on_stream: ``async def on_stream()``, called when a stream has begun, and its first event
            is still to be passed on.
        on_break: The same when a stream is about to be broken.
        on_request: The same when a request has come, and is still to be passed on.

    Attributes:
        requests: What was passed on.
        streams: How many of the replies were streams.
        happened: The faults that came to pass.
    """

    def __init__(
        self, agent, faults=(), on_stream=_nothing, on_break=_nothing, on_request=_nothing
    ):
        super().__init__(agent)
        self._faults = iter(faults)
        self._on_stream, self._on_break, self._on_request = on_stream, on_break, on_request
        self.requests = []
        self.streams = 0
        self.happened = []
        self._left = asyncio.Semaphore(0)

    async def until_left(self, count):
        """Waits until so many clients have left a stream before its end."""
        for _ in range(count):
            await self._left.acquire()

    async def __call__(self, connection):
        request = await connection.request()
        if request is None:
            return
        self.requests.append(request)
        await self._on_request()
        await self.pass_on(connection, request, functools.partial(self._pass_back, connection))

    async def _pass_back(self, connection, head, reader):
        if not is_stream(head):
            await connection.send(head + await reader.read())
            return
        self.streams += 1
        fault = next(self._faults, None)
        await connection.send(head)
        try:
            await self._pass_stream_on(connection, fault, reader)
        except asyncio.IncompleteReadError:  # the agent breaks it
            connection.close()
        except asyncio.CancelledError:
            self._left.release()
            raise

    async def _pass_stream_on(self, connection, fault, reader):
        number = 0
        while event := await next_chunk(reader):
            if number == 0:
                await self._on_stream()
            if fault is not None and fault.kind != "twice" and number == fault.after:
                await self._break(connection, fault, event)
                return
            number += 1
            await connection.send(chunk(event))
            if fault is not None and number == fault.after:
                if fault.kind == "twice":
                    self.happened.append(fault)
                    await connection.send(chunk(event))
                elif not fault.more:
                    await self._break(connection, fault, b"")
                    return
        await connection.send(LAST_CHUNK)

    async def _break(self, connection, fault, event):
        self.happened.append(fault)
        await self._on_break()
        if fault.more:
            await connection.send(chunk(event[: fault.more]))
        if fault.kind == "stall":
            await connection.gone.wait()
        else:
            await end(connection, fault.kind)
