"""A proxy before a real agent, with the faults of networks and of other proxies.

It passes requests on over real sockets, and does to them, or to what comes back, what
`holdfast._testing.faults` has names for; so a client sees the same of a fault here, of a
`LoopbackServer`, and in process. What belongs to the agent itself it cannot do: `Fail`.
"""

from __future__ import annotations

import asyncio
from http import HTTPStatus
from typing import TYPE_CHECKING, cast
from urllib.parse import urlsplit

from holdfast._integrations.recognition import recognize
from holdfast._model.operations import GET_AGENT_CARD, GET_EXTENDED_AGENT_CARD
from holdfast._testing.agent import InjectedFaults, Received
from holdfast._testing.bodies import Reply, WholeBody
from holdfast._testing.faults import Delay, Fail, Fault, Garbage, Refuse, Reset, Respond, Stall
from holdfast._testing.listening import Listener
from holdfast._testing.relay import Relay, RelayedEvents, RelayError
from holdfast._testing.serverhttp import LARGEST_HEAD, BadRequestError, error_reply, read_request
from holdfast._testing.serverreplies import send_events, send_instead, send_whole

if TYPE_CHECKING:
    from collections.abc import Coroutine
    from typing import Any

    from holdfast._wire.http import HttpRequest

__all__ = ["FaultProxy"]

_CARDS = frozenset({GET_AGENT_CARD.name, GET_EXTENDED_AGENT_CARD.name})


class FaultProxy(Listener):
    """Passes on to an agent what is asked of it at `url`, while the context is open.

    >>> async with FaultProxy("http://127.0.0.1:9999") as proxy:
    ...     proxy.inject(Cut(after_events=2), on="SendStreamingMessage")
    ...     async with connect(proxy.url) as agent:
    ...         answer = await agent.ask("hello")

    The agent's card is passed on with the proxy's address in place of the agent's, so that calls
    come here, too. `refuse` and `stall` are for connections, whatever is asked over them; `listen`
    ends both. It speaks HTTP/1.1: one request on each connection, with Content-Length. An agent
    that is not there is answered for by 502.

    Args:
        agent: The agent's origin, ``http://`` and a host on this machine or another.
        host: The address to listen on; loopback alone if left out.
        port: The port; 0 takes a free one.

    Raises:
        ValueError: `agent` is no such origin.

    Attributes:
        url: The proxy's address, once the context is open.
        received: Every request that came, in order.
        connections: Connections that were made.
    """

    def __init__(self, agent: str, *, host: str = "127.0.0.1", port: int = 0) -> None:
        parts = urlsplit(agent)
        if parts.scheme != "http" or not parts.hostname:
            text = f"a fault proxy passes on to an address that begins with http://, not {agent!r}"
            raise ValueError(text)
        self._agent = f"http://{parts.netloc}"
        self._faults = InjectedFaults()
        self.received: list[Received] = []
        super().__init__(self._serve_one, host=host, port=port, largest_head=LARGEST_HEAD)

    def inject(self, fault: Fault, *, on: str | None = None, times: int = 1) -> None:
        """Lets something go wrong with requests to come, in the order of the calls.

        Args:
            fault: What goes wrong.
            on: Name of the operation that it waits for (``"GetAgentCard"`` for the card); None
                for whichever comes first, the card not counted.
            times: With how many requests.

        Raises:
            ValueError: There is no such operation, or it is no fault that a proxy can have.
        """
        if isinstance(fault, Fail):
            text = "Fail is an answer of the agent itself; of a proxy there is Respond"
            raise ValueError(text)  # noqa: TRY004  its type is right, and it is of no use here
        if isinstance(fault, Refuse) or (isinstance(fault, Stall) and fault.phase == "connect"):
            text = "a socket cannot refuse or stall one request: use refuse() or stall()"
            raise ValueError(text)
        self._faults.add(fault, on=on, times=times)

    @property
    def pending_faults(self) -> tuple[Fault, ...]:
        """The injected faults that no request has met yet."""
        return self._faults.pending

    def calls(self, operation: str) -> list[Received]:
        """The requests for one operation, by its name."""
        return [received for received in self.received if received.operation == operation]

    async def _serve_one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serves the one request of a connection."""
        try:
            request = await read_request(reader, self.url)
        except BadRequestError as bad:
            writer.write(error_reply(bad.status))
            await writer.drain()
            return
        if request is None:
            return
        passage = _Passage(self._agent, self.url, request, self._note(request))
        try:
            if not await _unless_left(passage.go(), reader):
                return
            reply = passage.reply
            if reply is None:
                await send_instead(passage.fault, reader, writer)
            elif isinstance(reply.body, RelayedEvents):
                await send_events(reply, reply.body, reader, writer, keep_alive=False)
            else:
                await send_whole(reply, reader, writer, keep_alive=False)
        finally:
            passage.close()

    def _note(self, request: HttpRequest) -> _Note:
        recognized = recognize(request.method, request.url, request.body)
        name = recognized.operation.name if recognized.is_known else ""
        self.received.append(
            Received(
                operation=name,
                method=request.method,
                url=request.url,
                headers=dict(request.headers),
                body=request.body,
                at=asyncio.get_running_loop().time(),
            )
        )
        return name, self._faults.take(name)


_Note = tuple[str, Fault | None]


class _Passage:
    """One request on its way to the agent and back.

    Attributes:
        fault: What goes wrong with it.
        reply: What the client gets; None where the fault is that there is no reply.
    """

    def __init__(self, agent: str, here: str, request: HttpRequest, note: _Note) -> None:
        self._agent = agent
        self._here = here
        self._request = request
        self._operation, self.fault = note
        self._relay: Relay | None = None
        self.reply: Reply | None = None

    async def go(self) -> None:
        """Does with the request what its fault says, until the reply begins."""
        match self.fault:
            case Delay(seconds=seconds, after_execution=after):
                if not after:
                    await asyncio.sleep(seconds)
                self.reply = await self._passed_on()
                if after:
                    await asyncio.sleep(seconds)
            case Reset(after_events=None) | Garbage() | Stall(phase="first_byte"):
                if self.fault.after_execution:
                    await self._passed_on()
            case Respond() as answer:
                if answer.after_execution:
                    await self._passed_on()
                body = WholeBody(answer.body)
                self.reply = Reply(status=answer.status, headers=answer.headers, body=body)
            case _:
                self.reply = await self._passed_on()

    def close(self) -> None:
        """Lets go of the agent."""
        if self._relay is not None:
            self._relay.close()

    async def _passed_on(self) -> Reply | None:
        """The agent's reply; of a stream its beginning."""
        try:
            relay = self._relay = await Relay.begin(self._agent, self._request)
        except OSError:
            return _bad_gateway()
        try:
            await relay.head()
            if relay.is_stream:
                events = RelayedEvents(relay, self.fault)
                return Reply(status=relay.status, headers=relay.headers, body=events)
            body = await relay.body()
        except RelayError:
            self.fault = Reset()  # the agent's doing, and the client sees it as it was
            return None
        if self._operation in _CARDS:
            body = body.replace(self._agent.encode(), self._here.encode())
        whole = WholeBody(body, self.fault)
        return Reply(status=relay.status, headers=relay.headers, body=whole)


def _bad_gateway() -> Reply:
    body = WholeBody(b"the agent is not there")
    headers = {"content-type": "text/plain"}
    return Reply(status=HTTPStatus.BAD_GATEWAY, headers=headers, body=body)


async def _unless_left(work: Coroutine[Any, Any, None], reader: asyncio.StreamReader) -> bool:
    """Does some work while a client waits for it; says whether it has waited to the end."""
    loop = asyncio.get_running_loop()
    working, leaving = loop.create_task(work), loop.create_task(reader.read(1))
    both = cast("set[asyncio.Task[Any]]", {working, leaving})
    try:
        await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            working.result()
            return True
        return False
    finally:
        for task in both:
            task.cancel()
        await asyncio.gather(*both, return_exceptions=True)
