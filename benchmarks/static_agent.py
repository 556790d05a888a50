"""The agent that the clients call: an asyncio protocol without a framework, in its own process.

It answers a GET with its card, SendMessage with the same task each time, and SendStreamingMessage
with the stream that the message's text names (see `payloads.STREAMS`), under the id of the
request, and keeps connections open. A stream is written at once, each event a chunk of HTTP as
servers send it; that of `payloads.HELD` stays open after its first event, and that of
`payloads.PACED` brings one event a second from then on, at another moment in each stream. Of
streamed tasks it keeps nothing, and says so when it is asked for one. The agent does less than
any client does per call, so that it is not what is measured. It prints its URL when it is ready;
for each line that it then gets on standard input it prints the CPU seconds that it used so far;
at the end of standard input it stops.
"""

from __future__ import annotations

import asyncio
import re
import sys
import time
from itertools import count

import payloads
from descriptors import as_many_as_there_may_be

_ID = re.compile(rb'"id"\s*:\s*("[^"]*"|\d+)')
_TEXT = re.compile(rb'"text"\s*:\s*"([^"]*)"')
_LENGTH = re.compile(rb"content-length:\s*(\d+)", re.IGNORECASE)

_STREAMING = (
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
)


_GOLDEN = 0.6180339887498949
"""Spreads the moments of paced streams evenly over the second, however many there are."""

_paced = count()


class StaticAgent(asyncio.Protocol):
    """One connection."""

    def __init__(self, url: str) -> None:
        self._card = payloads.card(url)
        self._received = b""
        self._timer: asyncio.TimerHandle | None = None
        self._transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keeps the transport."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def connection_lost(self, _error: Exception | None) -> None:
        """Ends what is paced."""
        if self._timer is not None:
            self._timer.cancel()

    def data_received(self, data: bytes) -> None:
        """Answers every request that is complete."""
        self._received += data
        while (end := self._received.find(b"\r\n\r\n") + 4) > 3:
            head = self._received[:end]
            length = _LENGTH.search(head)
            whole = end + (int(length[1]) if length else 0)
            if len(self._received) < whole:
                return
            body, self._received = self._received[end:whole], self._received[whole:]
            self._answer(head, body)

    def _answer(self, head: bytes, body: bytes) -> None:
        request_id = _ID.search(body)
        if head.startswith(b"GET "):
            content = self._card
        elif request_id is not None and b"SendMessage" in body:
            content = payloads.reply(request_id[1])
        elif request_id is not None and b"SendStreamingMessage" in body:
            text = _TEXT.search(body)
            assert text is not None
            asked_for = text[1].decode()
            self._transport.write(_STREAMING + payloads.stream(asked_for, request_id[1]))
            if asked_for == payloads.PACED:
                at = asyncio.get_running_loop().time() + next(_paced) * _GOLDEN % 1
                self._pace(at, payloads.paced_event(request_id[1]))
            return
        elif request_id is not None and b"GetTask" in body:
            content = payloads.no_task(request_id[1])
        else:
            self._transport.write(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")
            return
        self._transport.write(
            b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b"
            % (len(content), content)
        )

    def _pace(self, at: float, event: bytes) -> None:
        """Writes an event at a moment, and each second after it."""

        def write() -> None:
            self._transport.write(event)
            self._pace(at + 1, event)

        self._timer = asyncio.get_running_loop().call_at(at, write)


async def main() -> None:
    as_many_as_there_may_be()
    loop = asyncio.get_running_loop()
    url = ""
    server = await loop.create_server(lambda: StaticAgent(url), "127.0.0.1", 0, backlog=1024)
    host, port = server.sockets[0].getsockname()
    url = f"http://{host}:{port}/"
    print(url, flush=True)
    over = loop.create_future()

    def on_input() -> None:
        if not sys.stdin.readline():
            loop.remove_reader(sys.stdin)
            over.set_result(None)
            return
        print(time.process_time(), flush=True)

    loop.add_reader(sys.stdin, on_input)
    await over
    server.close()


if __name__ == "__main__":
    asyncio.run(main())
