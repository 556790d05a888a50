"""Paths to an agent on loopback, each of which applies one fault to the first message.

A path is for one call: its address forwards all requests to the agent, except for the first
message, which meets one of `faults`. Later requests meet none. `Paths` serves the card of each
path, which names its address, and reports which faults occurred, so that only these are counted.

It implements the part of HTTP that the official server uses: JSON-RPC in a body with its length,
one request on each connection, and streams whose chunks are one event each.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import struct
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Coroutine

__all__ = ["CARD_PATH", "NO_FAULT", "Fault", "Path", "Paths", "faults", "get"]

HOST = "127.0.0.1"
CARD_PATH = "/.well-known/agent-card.json"
SENDS = frozenset({"SendMessage", "SendStreamingMessage"})

CLOSED_FOR = 0.25
"""Seconds after the first one until a path that refuses connections takes them."""

_LAST_CHUNK = b"0\r\n\r\n"


@dataclass(frozen=True)
class Fault:
    """The fault of the first message of a call.

    Attributes:
        name: What the report calls it.
        refuses: Connections are refused for `CLOSED_FOR` seconds.
        answer: The status line and headers of what is answered in the agent's place.
        passes: The agent is given the message, and has begun to work when the rest happens.
        events: How many events of its answer come through. None: no byte of the answer does.
        end: ``reset`` (RST), ``end`` (the reply ends in good order), ``stall`` (nothing comes any
            more); None for all of the answer.
    """

    name: str
    refuses: bool = False
    answer: tuple[str, ...] = ()
    passes: bool = False
    events: int | None = None
    end: str | None = None


NO_FAULT = Fault("no fault")


def faults(chunks: int) -> tuple[Fault, ...]:
    """All there are, for an answer of so many chunks of text, which follow two other events."""
    middle, late = 2 + chunks // 3, 2 + chunks - 1
    return (
        NO_FAULT,
        Fault("connection refused", refuses=True),
        Fault("reset before execution", end="reset"),
        Fault("reset after execution, the reply lost", passes=True, end="reset"),
        Fault("429, Retry-After: 1", answer=("429 Too Many Requests", "Retry-After: 1")),
        Fault("503", answer=("503 Service Unavailable",)),
        Fault("503, Retry-After: 1", answer=("503 Service Unavailable", "Retry-After: 1")),
        Fault("stall: executed, no byte of a reply", passes=True, end="stall"),
        Fault("stream cut by a reset", passes=True, events=middle, end="reset"),
        Fault("stream ended early in good order", passes=True, events=middle, end="end"),
        Fault("stream cut just before its end", passes=True, events=late, end="reset"),
    )


@dataclass
class Path:
    """One address, and what it has seen.

    Attributes:
        call: The call that it is for.
        fault: What happens to its first message.
        port: Where it is.
        tried: Connections that the client wanted, as it says itself.
        accepted: Those that were made.
        requests: What came over them.
        messages: The ids of the messages that came, in order.
        happened: Whether the fault came to pass, if it is one of those that can be seen from here.
    """

    call: str
    fault: Fault
    port: int = 0
    tried: int = 0
    accepted: int = 0
    requests: int = 0
    messages: list[str] = field(default_factory=list)
    happened: bool = False

    @property
    def has_met_its_fault(self) -> bool:
        """Whether the fault occurred."""
        if self.fault.refuses:
            return self.tried > self.accepted
        return self.happened or not (self.fault.answer or self.fault.end)


class Paths:
    """The paths to one agent, and their cards; enter it.

    Args:
        agent: The agent's origin.
        faults: What happens to the first message of each call.
    """

    def __init__(self, agent: str, faults: dict[str, Fault]) -> None:
        self._agent = agent
        self.paths = {call: Path(call, fault) for call, fault in faults.items()}
        self._by_port: dict[int, Path] = {}
        self._sockets: dict[str, socket.socket] = {}
        self._servers: list[asyncio.Server] = []
        self._following: set[asyncio.Task[None]] = set()
        self._failures: list[BaseException] = []
        self._card: dict[str, Any] = {}
        self._url = ""

    async def __aenter__(self) -> Self:
        self._card = json.loads(await get(self._agent, CARD_PATH))
        for call, path in self.paths.items():
            # A port that is bound and not listened at refuses connections.
            bound = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
            bound.bind((HOST, 0))
            self._sockets[call] = bound
            path.port = bound.getsockname()[1]
            self._by_port[path.port] = path
            if not path.fault.refuses:
                await self._open(path)
        cards = await asyncio.start_server(self._follow_card, HOST, 0)
        self._servers.append(cards)
        self._url = f"http://{HOST}:{cards.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *_: object) -> None:
        for server in self._servers:
            server.close()
        for task in self._following:
            task.cancel()
        await asyncio.gather(*self._following, return_exceptions=True)
        for bound in self._sockets.values():
            bound.close()
        if self._failures:
            raise self._failures[0]

    def url(self, call: str) -> str:
        """Return the address of the card of a call's path."""
        return f"{self._url}/{call}"

    def tried(self, port: int) -> None:
        """Note a connection that the client is about to try."""
        path = self._by_port.get(port)
        if path is None:  # a card is fetched
            return
        path.tried += 1
        if path.fault.refuses and path.tried == 1:
            self._follow(self._open_later(path))

    async def _open_later(self, path: Path) -> None:
        await asyncio.sleep(CLOSED_FOR)
        await self._open(path)

    async def _open(self, path: Path) -> None:
        def follow(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            path.accepted += 1
            self._follow(_Passage(path, self._agent, reader, writer).go())

        server = await asyncio.start_server(follow, sock=self._sockets[path.call], backlog=64)
        self._servers.append(server)

    def _follow_card(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._follow(self._give_card(reader, writer))

    async def _give_card(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        path = self.paths[head.split()[1].decode().split("/")[1]]
        address = f"http://{HOST}:{path.port}"
        interfaces = [
            {**interface, "url": interface["url"].replace(self._agent, address)}
            for interface in self._card["supportedInterfaces"]
        ]
        # Without an extended card: one of the clients would ask for it in each call.
        capabilities = {**self._card["capabilities"], "extendedAgentCard": False}
        card = {**self._card, "supportedInterfaces": interfaces, "capabilities": capabilities}
        writer.write(_reply("200 OK", json.dumps(card).encode()))
        await writer.drain()
        writer.close()

    def _follow(self, what: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(what)
        self._following.add(task)
        task.add_done_callback(self._note)

    def _note(self, task: asyncio.Task[None]) -> None:
        self._following.discard(task)
        if not task.cancelled() and (error := task.exception()):
            self._failures.append(error)


class _Passage:
    """One connection of a path."""

    def __init__(
        self, path: Path, agent: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self._path = path
        self._agent = agent
        self._reader = reader
        self._writer = writer

    async def go(self) -> None:
        try:
            with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
                await self._go()
        finally:
            self._writer.close()

    async def _go(self) -> None:
        head = await self._reader.readuntil(b"\r\n\r\n")
        body = await self._reader.readexactly(int(_header(head, b"content-length") or 0))
        self._path.requests += 1
        fault = self._fault_of(body)
        if fault.answer:
            self._path.happened = True
            status, *headers = fault.answer
            self._writer.write(_reply(status, b"come later", "text/plain", *headers))
            await self._writer.drain()
        elif fault.end and not fault.passes:
            self._path.happened = True
            self._reset()
        else:
            await self._pass_on(fault, head + body)

    def _fault_of(self, body: bytes) -> Fault:
        """Apply the fault to a request, and record the request if it is a message."""
        call = json.loads(body) if body else {}
        if call.get("method") not in SENDS:
            return NO_FAULT
        self._path.messages.append(call["params"]["message"]["messageId"])
        return self._path.fault if len(self._path.messages) == 1 else NO_FAULT

    async def _pass_on(self, fault: Fault, request: bytes) -> None:
        reader, writer = await asyncio.open_connection(HOST, urlsplit(self._agent).port)
        passing = asyncio.ensure_future(self._pass_back(fault, reader))
        leaving = asyncio.ensure_future(self._reader.read())
        try:
            writer.write(request.replace(b"\r\n", b"\r\nConnection: close\r\n", 1))
            await asyncio.wait({passing, leaving}, return_when=asyncio.FIRST_COMPLETED)
            if passing.done():
                passing.result()
        finally:
            for task in (passing, leaving):
                task.cancel()
            writer.transport.abort()
            await asyncio.gather(passing, leaving, return_exceptions=True)

    async def _pass_back(self, fault: Fault, reader: asyncio.StreamReader) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        if not (_header(head, b"content-type") or b"").startswith(b"text/event-stream"):
            assert fault.end is None, "a message was not answered by a stream"
            self._writer.write(head + await reader.read())
            await self._writer.drain()
            return
        if fault.events is not None or fault.end is None:
            self._writer.write(head)
        number = 0
        async for event in _chunks(reader):
            if fault.end and number == (fault.events or 0):
                self._path.happened = True
                await self._end(fault.end)
                return
            number += 1
            self._writer.write(b"%x\r\n%b\r\n" % (len(event), event))
            await self._writer.drain()
        assert fault.end is None, "the answer was over before its fault"
        self._writer.write(_LAST_CHUNK)
        await self._writer.drain()

    async def _end(self, how: str) -> None:
        match how:
            case "reset":
                await asyncio.sleep(0.01)  # a reset overtakes what was written
                self._reset()
            case "end":
                self._writer.write(_LAST_CHUNK)
                await self._writer.drain()
            case _:
                await asyncio.Event().wait()

    def _reset(self) -> None:
        linger = struct.pack("ii", 1, 0)
        connection = self._writer.get_extra_info("socket")
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        self._writer.transport.abort()


async def get(origin: str, path: str) -> bytes:
    """Return the body of a server's answer to a GET."""
    async with asyncio.timeout(10):
        reader, writer = await asyncio.open_connection(HOST, urlsplit(origin).port)
        writer.write(f"GET {path} HTTP/1.0\r\nHost: {HOST}\r\n\r\n".encode())
        head = await reader.readuntil(b"\r\n\r\n")
        body = await reader.read()
        writer.close()
    assert b" 200 " in head.partition(b"\r\n")[0], head
    return body


def _reply(status: str, body: bytes, kind: str = "application/json", *headers: str) -> bytes:
    lines = (
        f"HTTP/1.1 {status}",
        f"Content-Type: {kind}",
        f"Content-Length: {len(body)}",
        "Connection: close",
        *headers,
        "",
        "",
    )
    return "\r\n".join(lines).encode() + body


def _header(head: bytes, name: bytes) -> bytes | None:
    for line in head.split(b"\r\n")[1:]:
        if line.partition(b":")[0].lower() == name:
            return line.partition(b":")[2].strip()
    return None


async def _chunks(reader: asyncio.StreamReader) -> AsyncIterator[bytes]:
    """Return the chunks of a chunked body."""
    while size := int(await reader.readuntil(b"\r\n"), 16):
        yield (await reader.readexactly(size + 2))[:-2]
