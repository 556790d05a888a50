"""A proxy in front of a real agent, with the faults of networks and of other proxies.

It forwards requests over real sockets, and applies the faults of `holdfast._testing.faults` to
requests and replies. A client sees the same of a fault here, of a `LoopbackServer`, and in
process. Faults of the agent itself (`Fail`) are not supported.
"""

from __future__ import annotations

import asyncio
from http import HTTPStatus
from typing import TYPE_CHECKING, cast
from urllib.parse import urlsplit

from holdfast._arguments import explains_unknown_options
from holdfast._integrations.recognition import recognize
from holdfast._testing.agent import FaultQueue, Received
from holdfast._testing.bodies import Reply, WholeBody
from holdfast._testing.faults import Delay, Fail, Fault, Garbage, Refuse, Reset, Respond, Stall
from holdfast._testing.http_messages import (
    LARGEST_HEAD,
    BadRequestError,
    error_reply,
    read_request,
)
from holdfast._testing.listening import Listener
from holdfast._testing.relay import Relay, RelayedEvents, RelayError
from holdfast._testing.reply_writing import send_events, send_instead, send_whole
from holdfast.protocol import GET_AGENT_CARD, GET_EXTENDED_AGENT_CARD

if TYPE_CHECKING:
    from collections.abc import Coroutine
    from typing import Any

    from holdfast.extend import HttpRequest

__all__ = ["FaultProxy"]

_CARD_OPERATIONS = frozenset({GET_AGENT_CARD.name, GET_EXTENDED_AGENT_CARD.name})


class FaultProxy(Listener):
    """A proxy at `url` that forwards requests to an agent while the context is open.

    >>> async with FaultProxy("http://127.0.0.1:9999") as proxy:
    ...     proxy.inject(Cut(after_events=2), on="SendStreamingMessage")
    ...     async with connect(proxy.url) as agent:
    ...         answer = await agent.ask("hello")

    In the agent's card, the proxy's address replaces the agent's, so that calls go through the
    proxy too. `refuse` and `stall` apply to connections, whatever the request; `listen` ends both.
    The proxy supports HTTP/1.1: one request on each connection, with Content-Length. If the agent
    cannot be reached, it answers HTTP 502.

    Args:
        agent: The agent's origin: ``http://`` and a host on this machine or another.
        host: The address to listen on; by default 127.0.0.1, loopback only.
        port: The port; 0 for a free one.

    Raises:
        ValueError: ``agent`` is not such an origin.

    Attributes:
        url: The proxy's address, while the context is open.
        received: Every request that it received, in order.
        connections: Number of connections that were made.
    """

    @explains_unknown_options()
    def __init__(self, agent: str, *, host: str = "127.0.0.1", port: int = 0) -> None:
        parts = urlsplit(agent)
        if parts.scheme != "http" or not parts.hostname:
            text = (
                "the agent of a fault proxy must be an address that begins with http://, not "
                f"{agent!r}"
            )
            raise ValueError(text)
        self._agent = f"http://{parts.netloc}"
        self._faults = FaultQueue()
        self.received: list[Received] = []
        super().__init__(self._serve_one, host=host, port=port, largest_head=LARGEST_HEAD)

    @explains_unknown_options()
    def inject(self, fault: Fault, *, on: str | None = None, times: int = 1) -> None:
        """Add a fault for future requests; faults are used in the order of the calls.

        Args:
            fault: The fault.
            on: Name of the operation that it is for (``"GetAgentCard"`` for the card); None for
                any operation except the card.
            times: Number of requests, 1 by default.

        Raises:
            ValueError: There is no such operation, ``times`` is less than 1, or a proxy cannot
                have the fault.
            TypeError: ``fault`` is not a fault, or ``times`` is not a whole number.
        """
        if isinstance(fault, Fail):
            text = "Fail is a reply of the agent itself; use Respond for a proxy"
            raise ValueError(text)  # noqa: TRY004  it is a Fault, but not one for a proxy
        if isinstance(fault, Refuse) or (isinstance(fault, Stall) and fault.phase == "connect"):
            text = "a socket cannot refuse or stall one request: use refuse() or stall()"
            raise ValueError(text)
        self._faults.add(fault, on=on, times=times)

    @property
    def pending_faults(self) -> tuple[Fault, ...]:
        """The injected faults that no request has used."""
        return self._faults.pending

    def calls(self, operation: str) -> list[Received]:
        """Return the received requests for one operation, by its name.

        Args:
            operation: Name of the operation, such as ``"SendMessage"``.
        """
        return [received for received in self.received if received.operation == operation]

    async def _serve_one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve the request of a connection."""
        try:
            request = await read_request(reader, self.url)
        except BadRequestError as bad:
            writer.write(error_reply(bad.status))
            await writer.drain()
            return
        if request is None:
            return
        passage = _Passage(self._agent, self.url, request, self._record(request))
        try:
            if not await _run_while_connected(passage.go(), reader):
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

    def _record(self, request: HttpRequest) -> _Record:
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


_Record = tuple[str, Fault | None]


class _Passage:
    """One request to the agent, and its reply.

    Attributes:
        fault: The fault; None for none.
        reply: The reply for the client; None if the fault is that there is no reply.
    """

    def __init__(self, agent: str, proxy: str, request: HttpRequest, record: _Record) -> None:
        self._agent = agent
        self._proxy = proxy
        self._request = request
        self._operation, self.fault = record
        self._relay: Relay | None = None
        self.reply: Reply | None = None

    async def go(self) -> None:
        """Forward the request with its fault, until the reply starts."""
        match self.fault:
            case Delay(seconds=seconds, after_execution=after):
                if not after:
                    await asyncio.sleep(seconds)
                self.reply = await self._forward()
                if after:
                    await asyncio.sleep(seconds)
            case Reset(after_events=None) | Garbage() | Stall(phase="first_byte"):
                if self.fault.after_execution:
                    await self._forward()
            case Respond() as answer:
                if answer.after_execution:
                    await self._forward()
                body = WholeBody(answer.body)
                self.reply = Reply(status=answer.status, headers=answer.headers, body=body)
            case _:
                self.reply = await self._forward()

    def close(self) -> None:
        """Close the connection to the agent."""
        if self._relay is not None:
            self._relay.close()

    async def _forward(self) -> Reply | None:
        """Forward the request, and return the agent's reply; a stream has only started."""
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
            self.fault = Reset()  # the client sees what the agent did
            return None
        if self._operation in _CARD_OPERATIONS:
            body = body.replace(self._agent.encode(), self._proxy.encode())
        whole = WholeBody(body, self.fault)
        return Reply(status=relay.status, headers=relay.headers, body=whole)


def _bad_gateway() -> Reply:
    body = WholeBody(b"the agent is not there")
    headers = {"content-type": "text/plain"}
    return Reply(status=HTTPStatus.BAD_GATEWAY, headers=headers, body=body)


async def _run_while_connected(
    work: Coroutine[Any, Any, None], reader: asyncio.StreamReader
) -> bool:
    """Run a coroutine while a client is connected; return whether it finished."""
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
