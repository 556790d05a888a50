"""Requests that somebody else wrote, carried through the layers of Holdfast's own calls.

It owns the way from an HTTP request to its reply, and knows nothing of whose library made it.

Rules:
- A reply is the caller's, untouched, whatever it says. One that is no success is shown to the
  layers as the error that it means; when no try is left, it is the answer all the same.
- Of what is known to have one document for an answer, the whole reply belongs to the attempt: one
  that is cut is a failure like any other. What may be a stream is there with its headers, and
  nothing is tried again after that; a cut is told to whoever reads.
- A stream of the protocol ends where the protocol lets it; every other end is a cut, however good
  the order it came in (`holdfast.integrations.endings`). What passes is not held back for that.
- A stream is not picked up again: that takes somebody who knows what was in it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Self, TypeVar, cast

import msgspec

from holdfast.errors import A2AError
from holdfast.integrations.endings import Ending
from holdfast.integrations.recognizing import recognize
from holdfast.layering import layered_requests
from holdfast.model.card import AgentInterface
from holdfast.policy.deadline import Deadline
from holdfast.runtime.admission import Admission
from holdfast.runtime.binding import MAX_IDLE
from holdfast.runtime.endpoints import CARD_BINDING, Endpoints, KnownEndpoints
from holdfast.runtime.engine import connection_error
from holdfast.runtime.listeners import Observers
from holdfast.runtime.open_streams import OneEvent
from holdfast.runtime.perloop import PerLoop
from holdfast.runtime.transport import Call, CallProgress, Reply
from holdfast.wire.foreign import error_in
from holdfast.wire.http import HttpReply, HttpRequest, media_type
from holdfast.wire.limits import exceeded
from holdfast.wire.origins import origin
from holdfast.wire.sse import EventStreamParser

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from contextlib import AbstractAsyncContextManager

    from holdfast.integrations.recognizing import AnyOperation, Recognized
    from holdfast.policy.resilience import Resilience
    from holdfast.runtime.endpoints import Endpoint
    from holdfast.runtime.engine import HttpEngine
    from holdfast.runtime.env import Env
    from holdfast.runtime.listeners import Observer
    from holdfast.runtime.transport import AnyCall, Stream
    from holdfast.wire.http import HttpStream
    from holdfast.wire.limits import Limits

__all__ = ["ForeignReply", "ForeignRequests"]

P = TypeVar("P")
R = TypeVar("R")

_EVENTS = "text/event-stream"


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
            switch=self._endpoints.switch,
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
        opens = operation.streaming or _EVENTS in request.headers.get("accept", "")
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
            if opens:
                opened = await self._transport.stream(call)
                return ForeignReply(outgoing.status, opened.headers, opened.value)
            reply: HttpReply = (await self._transport.unary(call)).value
        except A2AError as error:
            refusal = outgoing.refusal_in(error)
            if refusal is None:
                raise
            reply = refusal
        return ForeignReply(reply.status, reply.headers, reply.body)

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


class _Outgoing:
    """A request on its way, and what came back of its attempts.

    Attributes:
        request: The request.
        recognized: What it is.
        status: Of the reply whose body is still coming.
    """

    def __init__(self, request: HttpRequest, recognized: Recognized) -> None:
        self.request = request
        self.recognized = recognized
        self.status = 0
        self._refusals: list[tuple[A2AError, HttpReply]] = []

    def refuse(self, error: A2AError, reply: HttpReply) -> None:
        """Notes the reply that an error stands for."""
        self._refusals.append((error, reply))
        del self._refusals[:-2]  # of two at a time, as a hedge makes them

    def refusal_in(self, error: A2AError) -> HttpReply | None:
        """The reply that an error stands for, if it stands for one."""
        return next((reply for told, reply in self._refusals if told is error), None)


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
        try:
            reply = await self._engine.request(self._request(call))
        except A2AError as error:
            error.agent = call.agent
            raise
        self._judge(call, reply)
        return Reply(value=cast("R", reply), headers=reply.headers, endpoint=call.endpoint)

    async def stream(self, call: Call[P, R], /) -> Reply[Stream[R]]:
        """Sends a request, and waits for the headers of the reply."""
        outgoing: _Outgoing = cast("Any", call.params)
        request = self._request(call)
        body = _OpenBody(self._engine.stream(request), request, call.agent)
        try:
            reply = await body.open()
            if reply.status < 300 and self._stays_open(outgoing, reply):
                body.watch(self._limits, outgoing.recognized)
                stream: Stream[bytes] = body
            else:
                whole = HttpReply(
                    status=reply.status, headers=reply.headers, body=await body.read()
                )
                await body.close()
                self._judge(call, whole)
                stream = OneEvent(whole.body)
        except BaseException:
            await body.close()
            raise
        outgoing.status = reply.status
        return Reply(
            value=cast("Stream[R]", stream), headers=reply.headers, endpoint=call.endpoint
        )

    async def close(self) -> None:
        """Nothing to free: the engine belongs to somebody else."""

    @staticmethod
    def _stays_open(outgoing: _Outgoing, reply: HttpStream) -> bool:
        """Whether the body may be one that comes bit by bit for a long time."""
        return not outgoing.recognized.is_known or media_type(reply.headers) == _EVENTS

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

    def _judge(self, call: AnyCall, reply: HttpReply) -> None:
        """Lets pass what is no error.

        Raises:
            A2AError: What the reply means.
        """
        if reply.status < 400:
            return
        error = error_in(reply, now=self._env.wall(), refusals=self._refusals, limits=self._limits)
        error.agent = call.agent
        outgoing: _Outgoing = call.params
        outgoing.refuse(error, reply)
        raise error


class _OpenBody:
    """The body of a reply while it comes, which is a `Stream` of its pieces."""

    def __init__(
        self,
        connection: AbstractAsyncContextManager[HttpStream],
        request: HttpRequest,
        agent: str | None,
    ) -> None:
        self._connection: AbstractAsyncContextManager[HttpStream] | None = connection
        self._is_open = False
        self._request = request
        self._agent = agent
        self._reply: HttpStream | None = None
        self._events: EventStreamParser | None = None
        self._is_complete = False
        self._ending: Ending | None = None
        self._size = 0

    async def open(self) -> HttpStream:
        """Sends the request."""
        connection = self._connection
        if connection is None:
            text = "it was closed before it was opened"
            raise RuntimeError(text)
        try:
            self._reply = await connection.__aenter__()
        except A2AError as error:
            error.agent = self._agent
            raise
        self._is_open = True
        self._chunks = self._reply.chunks()
        return self._reply

    async def read(self) -> bytes:
        """The whole body."""
        if self._reply is None:
            return b""
        try:
            return await self._reply.read()
        except A2AError as error:
            error.agent = self._agent
            raise

    def watch(self, limits: Limits, recognized: Recognized) -> None:
        """Begins to look at what comes.

        Args:
            limits: What it may be: a body, or events of any number.
            recognized: What it answers. In the protocol the last event has to be whole, and of an
                operation that streams it has to be the end.
        """
        self._limits = limits
        self._is_complete = recognized.is_known
        if self._reply is not None and media_type(self._reply.headers) == _EVENTS:
            self._events = EventStreamParser(limits)
            if recognized.is_known and recognized.operation.streaming:
                self._ending = Ending(recognized, limits)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> bytes:
        if not self._is_open:
            raise StopAsyncIteration
        try:
            chunk = await self._chunks.__anext__()
            self._look_at(chunk)
        except StopAsyncIteration:
            reason = self._missing()
            if reason is None:
                raise
            error = connection_error(self._request, "truncated", reason, sent=True)
            error.agent = self._agent
            raise error from None
        except A2AError as error:
            error.agent = self._agent
            raise
        return chunk

    def at_hand(self) -> bytes | None:
        """Nothing: each piece is waited for."""
        return None

    async def close(self) -> None:
        """Lets go of the connection."""
        is_open, self._is_open = self._is_open, False
        connection, self._connection = self._connection, None
        if is_open and connection is not None:
            await connection.__aexit__(None, None, None)

    def _missing(self) -> str | None:
        """What is not there at the end; None if all is."""
        if self._is_complete and self._events is not None and self._events.is_cut:
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
            raise exceeded("body", self._limits, what)


def _streaming(operation: AnyOperation) -> AnyOperation:
    """An operation that may be answered by events."""
    return operation if operation.streaming else msgspec.structs.replace(operation, streaming=True)
