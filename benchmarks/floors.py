"""CPU time of each layer of a SendMessage, in microseconds, without any I/O.

The layers are those of a client that `connect` creates, in their order. Each layer, and the whole
stack, is timed over a stub that replies immediately; the time of the stub is subtracted.
`Client.send_message` is timed over the same stub, and the binding with its codec over an engine
that replies immediately. Each timed call, also of the stub alone, has its own `CallProgress`.

`asyncio.timeout_at`, the standard library's deadline, is timed for comparison; the layers do not
use it.
"""

from __future__ import annotations

import asyncio
import copy
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn

import msgspec
import payloads
from timing import microseconds

from holdfast import connect
from holdfast._pipeline.binding_router import BindingRouter
from holdfast._pipeline.transport import CallGroup, CallProgress, compose
from holdfast.extend import BaseLayer, Call, HttpReply, HttpRequest, Reply, Transport
from holdfast.types import SendMessageResponse, Task

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from holdfast._pipeline.transport import AnyCall
    from holdfast.client import Client
    from holdfast.extend import Layer


class StubEngine:
    """Replies to every request immediately, with the card or with the task."""

    url = "http://127.0.0.1:9/"

    def __init__(self) -> None:
        self.canned: HttpReply | None = None

    async def request(self, request: HttpRequest) -> HttpReply:
        """Return the reply; `canned`, if it is set, costs no time to make."""
        if self.canned is not None:
            return self.canned
        if not request.body:
            return HttpReply(status=200, body=payloads.card(self.url))
        request_id = msgspec.json.decode(request.body)["id"].encode()
        return HttpReply(status=200, body=payloads.reply(b'"%b"' % request_id))

    def stream(self, request: HttpRequest) -> NoReturn:
        """Raise an error: there are no streams."""
        raise NotImplementedError

    async def close(self) -> None:
        """Nothing to free."""


class StubTransport:
    """Replies to every call immediately with the same task, and keeps the call."""

    def __init__(self) -> None:
        self.call: AnyCall | None = None
        self._reply: Reply[Any] = Reply(value=SendMessageResponse(task=Task(id="1")))

    async def unary(self, call: Call[Any, Any], /) -> Reply[Any]:
        """Keep the call, and return the reply."""
        self.call = call
        return self._reply

    async def close(self) -> None:
        """Nothing to free."""


class Floors:
    """The parts of a call, each timed alone.

    Args:
        timed: The functions to time, by name.
    """

    def __init__(self, timed: Mapping[str, Callable[[], Awaitable[object]]]) -> None:
        self._timed = timed

    async def measure(self, calls: int) -> dict[str, Any]:
        """Time every part once, one after the other, as the mean of `calls` calls."""
        costs = {name: await microseconds(call, calls=calls) for name, call in self._timed.items()}
        return {"costs": costs}

    @classmethod
    async def of_connect(cls) -> Floors:
        """Take the parts from the client that `connect` creates."""
        stub, engine = StubTransport(), StubEngine()
        client, layers, binding = _taken_apart(stub, engine)
        await client.send_message(payloads.QUESTION)
        made = _call_of(stub)

        timed = {
            "the client over a stub": lambda: client.send_message(payloads.QUESTION),
            "a stub for the client": lambda: stub.unary(made),
            "a stub": _calling(stub, made),
            "timeout_at": _scoped(stub, made),
            "the stack": _calling(compose(layers, stub), made),
        }
        call = made
        for layer in layers:
            over = layer(stub)
            timed[f"layer {type(over).__name__}"] = _calling(over, call)
            await over.unary(call)
            call = _call_of(stub)
        reply = await binding.unary(call)
        assert reply.value.task.id == payloads.TASK_ID
        engine.canned = HttpReply(status=200, headers=reply.headers, body=reply.raw)
        timed["the binding"] = _calling(binding, call)
        return cls(timed)


def _taken_apart(stub: StubTransport, engine: StubEngine) -> tuple[Client, list[Layer], Transport]:
    """Return a client over a stub, its layers from the outermost one, and the binding."""
    client = connect(engine.url, auth=payloads.TOKEN, engine=engine)
    core: Any = client._core  # noqa: SLF001  there is no public way to a client's layers
    layers: list[Layer] = []
    transport = core._transport  # noqa: SLF001  the same
    while isinstance(transport, BaseLayer) and not isinstance(transport, BindingRouter):
        layers.append(partial(_over, transport))
        transport = transport._inner  # noqa: SLF001  the same
    core._transport = stub  # noqa: SLF001  the same
    return client, layers, transport


def _over(layer: BaseLayer, inner: Transport) -> Transport:
    """Return the same layer over another transport."""
    copied = copy.copy(layer)
    copied._inner = inner  # noqa: SLF001  the same
    return copied


def _call_of(stub: StubTransport) -> AnyCall:
    assert stub.call is not None
    return stub.call


def _fresh_progress() -> Callable[[], CallProgress]:
    """Return the progress of a call as a client creates it."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    return lambda: CallProgress(began=began, call_group=CallGroup(loop=loop))


def _calling(transport: Transport, call: AnyCall) -> Callable[[], Awaitable[object]]:
    replace, fresh = msgspec.structs.replace, _fresh_progress()

    async def once() -> None:
        await transport.unary(replace(call, progress=fresh()))

    return once


def _scoped(transport: Transport, call: AnyCall) -> Callable[[], Awaitable[object]]:
    at = call.deadline.at
    replace, fresh = msgspec.structs.replace, _fresh_progress()

    async def once() -> None:
        async with asyncio.timeout_at(at):
            await transport.unary(replace(call, progress=fresh()))

    return once
