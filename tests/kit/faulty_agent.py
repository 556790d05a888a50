"""A door before a real agent, where messages meet what networks and proxies do.

It is a script for `tests.kit.raw_server.serve`; how it passes things on is that of each `Door`. It
knows of A2A what it needs: which request fetches the card, which sends a message, which event of a
stream brings what. The card that it hands out leads to itself, because a client may insist on
that.
"""

import functools
import json
from dataclasses import dataclass
from http import HTTPStatus

from tests.kit.door import Door, end, is_stream, next_chunk
from tests.kit.raw_server import LAST_CHUNK, chunk, header, reply

__all__ = ["CARD_PATH", "SENDING", "Answer", "Cut", "FaultyAgent", "LostMessage", "NotSent"]

CARD_PATH = "/.well-known/agent-card.json"

SENDING = frozenset({"SendMessage", "SendStreamingMessage"})

REST = {
    "/message:send": "SendMessage",
    "/message:stream": "SendStreamingMessage",
    "/extendedAgentCard": "GetExtendedAgentCard",
    "/tasks": "ListTasks",
}
"""The operations of paths that name no task; of the others, `OF_A_TASK`."""

OF_A_TASK = {":subscribe": "SubscribeToTask", ":cancel": "CancelTask"}

OF_0_3 = {"message/send": "SendMessage", "message/stream": "SendStreamingMessage"}
"""What protocol 0.3 calls what is asked for here."""


@dataclass(frozen=True)
class NotSent:
    """The connection is reset (RST) instead of passing the message on: it is not executed."""


@dataclass(frozen=True)
class LostMessage:
    """The message is executed to its end; then the connection is reset before any reply."""


@dataclass(frozen=True)
class Answer:
    """Something before the agent answers in its place: the message is not executed.

    Attributes:
        status: That of HTTP.
        headers: Lines of them.
    """

    status: int
    headers: tuple[str, ...] = ()


@dataclass(frozen=True)
class Cut:
    """The stream ends early.

    Attributes:
        how: ``reset`` (RST), ``close`` (FIN in the middle of the body), ``end`` (the body ends in
            good order).
        after: Events that pass before.
        over: Whether the task is over by then; else the agent still works on it.
    """

    how: str
    after: int
    over: bool = True


class FaultyAgent(Door):
    """Passes on what is asked of an agent, and breaks what is sent.

    Args:
        agent: The agent's origin.
        faults: What happens to each message that is sent, in order; None for nothing. To those
            that follow nothing happens.
        at: The operations that it happens to instead, by the specification's names.
        on_stream: ``async def on_stream()``, called when a stream has begun, and its first event
            is still to be passed on.

    Attributes:
        asked: The operations that were asked for, in order; ``card`` is the public card.
    """

    def __init__(self, agent, faults=(), *, at=SENDING, on_stream=None):
        super().__init__(agent)
        self._faults, self._at = iter(faults), at
        self._on_stream = on_stream
        self.asked = []

    async def __call__(self, connection):
        request = await connection.request()
        if request is None:
            return
        operation = _operation(request)
        self.asked.append(operation)
        fault = next(self._faults, None) if operation in self._at else None
        match fault:
            case NotSent():
                connection.reset()
            case Answer(status, headers):
                line = f"{status} {HTTPStatus(status).phrase}"
                await connection.send(reply(b"", "Connection: close", *headers, status=line))
            case _:
                here = "http://" + header(request, "host")
                pass_back = functools.partial(self._pass_back, connection, fault, here)
                await self.pass_on(connection, request, pass_back)

    async def _pass_back(self, connection, fault, here, head, reader):
        if fault == LostMessage():
            await reader.read()
            connection.reset()
        elif is_stream(head):
            await connection.send(head)
            await self._pass_stream_on(connection, fault, reader)
        else:  # a card is to lead here
            body = (await reader.read()).replace(self._origin.encode(), here.encode())
            status = head.partition(b"\r\n")[0].decode().partition(" ")[2]
            kind = f"Content-Type: {header(head, 'content-type')}"
            await connection.send(reply(body, kind, "Connection: close", status=status))

    async def _pass_stream_on(self, connection, cut, reader):
        passed = 0
        while event := await next_chunk(reader):
            if passed == 0 and self._on_stream is not None:
                await self._on_stream()
            if cut is not None and passed == cut.after:
                if cut.over:
                    while await next_chunk(reader):
                        pass
                await end(connection, cut.how)
                return
            await connection.send(chunk(event))
            passed += 1
        await connection.send(LAST_CHUNK)


def _operation(request):
    """What is asked for, by the name of the specification."""
    path = request.split(b" ", 2)[1].decode().partition("?")[0]
    if path == CARD_PATH:
        return "card"
    if path == "/rpc":
        method = json.loads(request.partition(b"\r\n\r\n")[2])["method"]
        return OF_0_3.get(method, method)
    path = path.removeprefix("/rest").removeprefix("/v1")  # protocol 0.3
    if path in REST:
        return REST[path]
    return next((name for end, name in OF_A_TASK.items() if path.endswith(end)), "GetTask")
