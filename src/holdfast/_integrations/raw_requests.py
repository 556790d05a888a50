"""Requests that somebody else wrote, carried through the layers of Holdfast's own calls.

It owns the way from an HTTP request to its reply, and knows nothing of whose library made it.

Rules:
- A reply is the caller's, untouched, whatever it says. One that is no success is shown to the
  layers as the error that it means; when no try is left, it is the answer all the same.
- Of what is known to have one document for an answer, the whole reply belongs to the attempt: one
  that is cut is a failure like any other. What may be a stream is there with its headers, and
  nothing is tried again after that; a cut is told to whoever reads.
- A stream of the protocol ends where the protocol lets it; every other end is a cut, however good
  the order it came in (`holdfast._integrations.stream_end`). What passes is not held back for
that. - A stream is not picked up again: that takes somebody who knows what was in it.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple, Self, TypeVar, cast

import msgspec

from holdfast._aio.per_loop import PerLoop
from holdfast._integrations.recognition import recognize
from holdfast._integrations.stream_end import Ending
from holdfast._model.operations import CARD_BINDING
from holdfast._net.engine import connection_error
from holdfast._pipeline.admission import Admission
from holdfast._pipeline.connection import OneEvent
from holdfast._pipeline.endpoints import Endpoints, KnownEndpoints
from holdfast._pipeline.http_binding import MAX_IDLE
from holdfast._pipeline.listeners import Observers
from holdfast._pipeline.order import layered_requests
from holdfast._pipeline.transport import Call, CallProgress, Reply
from holdfast._policy.deadline import Deadline
from holdfast._wire.http import HttpReply, HttpRequest, media_type
from holdfast._wire.limits import limit_error
from holdfast._wire.origins import origin
from holdfast._wire.raw_replies import read_raw_error
from holdfast._wire.sse import EVENT_STREAM, EventStreamParser
from holdfast.errors import A2AError
from holdfast.types import AgentInterface

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Mapping
    from contextlib import AbstractAsyncContextManager

    from holdfast._aio.env import Env
    from holdfast._integrations.recognition import AnyOperation, Recognized
    from holdfast._net.engine import HttpEngine
    from holdfast._pipeline.endpoints import Endpoint
    from holdfast._pipeline.listeners import Observer
    from holdfast._pipeline.transport import AnyCall, Stream
    from holdfast._policy.resilience import Resilience
    from holdfast._wire.http import HttpStream
    from holdfast._wire.limits import Limits

__all__ = ["ForeignReply", "ForeignRequests"]

P = TypeVar("P")
R = TypeVar("R")


class ForeignReply(NamedTuple):
    """What came back.

    Attributes:
        status: HTTP status.
        headers: As received; look them up in lower case.
        body: The whole body, decompressed; or what there will be of it, to be closed.
    """

    status: int
    headers: Mapping[str, str]
    body: bytes | Stream[bytes]


class ForeignRequests:
    """Carries requests to wherever they go.

    Args:
        engine: What carries them in the end; not closed.
        resilience: What to do when things go wrong.
        timeout: Seconds for a request with all its tries, until its reply is there; of a stream
            of events, until it begins.
        limits: How large a reply may be.
        shared: What is known of agents.
        env: Wall time, randomness and ids.
        observers: Called with what happens.
    """

    def __init__(
        self,
        engine: HttpEngine,
        *,
        resilience: Resilience,
        timeout: float,
        limits: Limits,
        shared: Endpoints,
        env: Env,
        observers: Iterable[Observer],
    ) -> None:
        concurrency = resilience.concurrency
        self._endpoints = KnownEndpoints(shared)
        self._timeout = timeout
        self._env = env
        self._transport = layered_requests(
            _ForeignBinding(engine, env, resilience, limits),
            resilience=resilience,
            env=env,
            observers=Observers(observers),
            override=self._endpoints.override,
            admissions=None
            if concurrency is None
            else PerLoop(lambda: Admission(concurrency.limit)),
        )

    async def send(self, request: HttpRequest, *, began: float) -> ForeignReply:
        """Sends a request, as often as it is safe and useful.

        Args:
            request: The request; its `progress` and `max_idle` are not looked at.
            began: When it was made, on the event loop's clock.

        Raises:
            A2AError: There is no reply; what it knows of all tries is in it.
        """
        recognized = recognize(request.method, request.url, request.body)
        operation = recognized.operation
        outgoing = _Outgoing(request, recognized)
        opens = operation.streaming or EVENT_STREAM in request.headers.get("accept", "")
        call: AnyCall = Call(
            operation=_streaming(operation) if opens else operation,
            params=outgoing,
            request_id=self._env.new_id(),
            deadline=Deadline(name="call", timeout=self._timeout, at=began + self._timeout),
            headers=request.headers,
            endpoint=self._endpoint(recognized, request.url),
            progress=CallProgress(began=began),
        )
        try:
            carry = self._transport.stream if opens else self._transport.unary
            reply = cast("_Answer", await carry(call))
        except A2AError as error:
            refusal: HttpReply | None = getattr(error, _REFUSAL, None)
            if refusal is None:
                raise
            return ForeignReply(refusal.status, refusal.headers, refusal.body)
        return ForeignReply(reply.status, reply.headers, reply.value)

    async def close(self) -> None:
        """Ends the requests under way in this event loop; later ones are carried all the same."""
        await self._transport.close()

    def _endpoint(self, recognized: Recognized, url: str) -> Endpoint:
        # As cards and clients name them, so that what is shared is the same place.
        is_card = recognized.binding == CARD_BINDING
        place = origin(url) if is_card else "/".join(url.split("/", 3)[:3])
        return self._endpoints.of(
            AgentInterface(
                url=f"{place}{recognized.base}",
                protocol_binding=recognized.binding,
                protocol_version=recognized.version or None,
            )
        )


_REFUSAL = "holdfast_refusal"
"""The attribute of an error that holds the reply which it stands for."""


class _Outgoing(NamedTuple):
    """A request on its way.

    Attributes:
        request: The request.
        recognized: What it is.
    """

    request: HttpRequest
    recognized: Recognized


class _Answer(Reply[Any], frozen=True, kw_only=True):
    """What comes back through the layers, which keep what they do not know.

    Attributes:
        status: HTTP status.
    """

    status: int


class _ForeignBinding:
    """The bottom of the stack: one attempt."""

    def __init__(
        self, engine: HttpEngine, env: Env, resilience: Resilience, limits: Limits
    ) -> None:
        self._engine = engine
        self._env = env
        self._refusals = resilience.refusals
        self._limits = limits

    async def unary(self, call: Call[P, R], /) -> Reply[R]:
        """Sends a request, and reads the whole reply."""
        with _named(call.agent):
            reply = await self._engine.request(self._request(call))
            self._judge(reply)
        return _answer(call, reply, reply.body)

    async def stream(self, call: Call[P, R], /) -> Reply[Stream[R]]:
        """Sends a request, and waits for the headers of the reply."""
        outgoing: _Outgoing = cast("Any", call.params)
        connection = self._engine.stream(self._request(call))
        with _named(call.agent):
            reply = await connection.__aenter__()
        body = _OpenBody(connection, reply, outgoing, agent=call.agent, limits=self._limits)
        if reply.status < 300 and self._stays_open(outgoing, reply):
            return _answer(call, reply, body)
        try:
            with _named(call.agent):
                whole = HttpReply(
                    status=reply.status, headers=reply.headers, body=await reply.read()
                )
                self._judge(whole)
        finally:
            await body.close()
        return _answer(call, reply, OneEvent(whole.body))

    async def close(self) -> None:
        """Nothing to free: the engine belongs to somebody else."""

    @staticmethod
    def _stays_open(outgoing: _Outgoing, reply: HttpStream) -> bool:
        """Whether the body may be one that comes bit by bit for a long time."""
        return not outgoing.recognized.is_known or media_type(reply.headers) == EVENT_STREAM

    def _request(self, call: AnyCall) -> HttpRequest:
        outgoing: _Outgoing = call.params
        request = outgoing.request
        call.progress.secrets.note(request.headers, {}, request.url)
        return msgspec.structs.replace(
            request,
            max_idle=MAX_IDLE[call.operation.safety],
            limits=self._limits,
            progress=call.progress,
        )

    def _judge(self, reply: HttpReply) -> None:
        """Lets pass what is no error.

        Raises:
            A2AError: What the reply means.
        """
        if reply.status < 400:
            return
        error = read_raw_error(
            reply, now=self._env.wall(), refusals=self._refusals, limits=self._limits
        )
        setattr(error, _REFUSAL, reply)
        raise error


def _answer(call: AnyCall, reply: HttpReply | HttpStream, value: object) -> Reply[Any]:
    return _Answer(value=value, headers=reply.headers, endpoint=call.endpoint, status=reply.status)


@contextmanager
def _named(agent: str | None) -> Generator[None]:
    """Names the agent in what goes wrong."""
    try:
        yield
    except A2AError as error:
        error.agent = agent
        raise


class _OpenBody:
    """The body of a reply while it comes, which is a `Stream` of its pieces.

    Args:
        connection: What it comes over, which is open; closed with this.
        reply: The reply.
        outgoing: What is answered. In the protocol the last event has to be whole, and of an
            operation that streams it has to be the end.
        agent: Where it comes from, to be named in errors.
        limits: How large it may be: a body, or events of any number.
    """

    def __init__(
        self,
        connection: AbstractAsyncContextManager[HttpStream],
        reply: HttpStream,
        outgoing: _Outgoing,
        *,
        agent: str | None,
        limits: Limits,
    ) -> None:
        self._connection: AbstractAsyncContextManager[HttpStream] | None = connection
        self._chunks = reply.chunks()
        self._agent = agent
        self._request, recognized = outgoing
        self._limits = limits
        self._size = 0
        self._is_of_a2a = recognized.is_known
        self._events: EventStreamParser | None = None
        self._ending: Ending | None = None
        if media_type(reply.headers) == EVENT_STREAM:
            self._events = EventStreamParser(limits)
            if recognized.is_known and recognized.operation.streaming:
                self._ending = Ending(recognized, limits)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> bytes:
        if self._connection is None:
            raise StopAsyncIteration
        with _named(self._agent):
            try:
                chunk = await self._chunks.__anext__()
            except StopAsyncIteration:
                reason = self._missing()
                if reason is None:
                    raise
                cut = connection_error(self._request, "truncated", reason, sent=True)
                raise cut from None
            self._look_at(chunk)
        return chunk

    def next_nowait(self) -> bytes | None:
        """Nothing: each piece is waited for."""
        return None

    async def close(self) -> None:
        """Lets go of the connection."""
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.__aexit__(None, None, None)

    def _missing(self) -> str | None:
        """What is not there at the end; None if all is."""
        if self._is_of_a2a and self._events is not None and self._events.is_cut:
            return "in the middle of an event"
        return None if self._ending is None else self._ending.missing

    def _look_at(self, chunk: bytes) -> None:
        """Checks how large it becomes, and notes what passes.

        Raises:
            LimitExceededError: Too large.
        """
        if self._events is not None:
            for event in self._events.feed(chunk):
                if self._ending is not None:
                    self._ending.passed(event)
            return
        self._size += len(chunk)
        if self._size > self._limits.body:
            what = f"the reply is larger than {self._limits.body} bytes"
            raise limit_error("body", self._limits, what)


def _streaming(operation: AnyOperation) -> AnyOperation:
    """An operation that may be answered by events."""
    return operation if operation.streaming else msgspec.structs.replace(operation, streaming=True)
