"""Requests of another library, sent through the layers of Holdfast's own calls.

This module turns an HTTP request into its reply, independently of the library that created it.

Rules:
- The caller gets each reply unchanged. The layers see a reply that is not a success as the error
  that it means; when no retry is left, the reply is returned nevertheless.
- The attempt of an operation with a single document as its answer includes the complete reply: a
  cut is a failure like any other. A reply that may be a stream is returned with its headers, and
  is not retried after that; a cut is raised to its reader.
- A stream of the protocol ends where the protocol allows it; any other end is a cut, even if HTTP
  ended it in order (`holdfast._integrations.stream_end`). Its pieces are not delayed for that.
- A stream is not resumed: that would require its earlier events.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple, Self, TypeVar, cast

import msgspec

from holdfast._aio.per_loop import PerLoop
from holdfast._integrations.recognition import recognize
from holdfast._integrations.stream_end import StreamEndDetector
from holdfast._pipeline.admission import Admission
from holdfast._pipeline.endpoints import KnownEndpoints
from holdfast._pipeline.http_binding import MAX_IDLE
from holdfast._pipeline.layer_streams import OneEvent
from holdfast._pipeline.listeners import Observers
from holdfast._pipeline.order import layered_requests
from holdfast._pipeline.transport import CallProgress
from holdfast._wire.raw_replies import read_raw_error
from holdfast._wire.sse import EventStreamParser
from holdfast.errors import A2AError
from holdfast.extend import (
    Call,
    Endpoints,
    HttpReply,
    HttpRequest,
    Reply,
    connection_error,
    limit_error,
    media_type,
    origin,
)
from holdfast.policies import Deadline
from holdfast.protocol import CARD_BINDING, EVENT_STREAM
from holdfast.types import AgentInterface

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Mapping
    from contextlib import AbstractAsyncContextManager

    from holdfast._integrations.recognition import AnyOperation, Recognized
    from holdfast.extend import AnyCall, Endpoint, Env, HttpEngine, HttpStream, Stream
    from holdfast.observe import Observer, TelemetrySource
    from holdfast.policies import Limits, Resilience

__all__ = ["ForeignReply", "ForeignRequests"]

P = TypeVar("P")
R = TypeVar("R")


class ForeignReply(NamedTuple):
    """The reply to a request.

    Attributes:
        status: HTTP status.
        headers: As received; look them up in lower case.
        body: The complete body, decompressed; or a stream of its pieces, to be closed.
    """

    status: int
    headers: Mapping[str, str]
    body: bytes | Stream[bytes]


class ForeignRequests:
    """Sends requests to any endpoint.

    Args:
        engine: Sends the attempts; borrowed, not closed.
        resilience: The policies.
        timeout: Seconds for a request with all its attempts, until its reply is complete; of a
            stream of events, until it begins.
        limits: Largest sizes of a reply.
        shared: State of the endpoints.
        env: Source of wall time, random numbers and ids.
        observers: Called with the events of each call.
        telemetry: The telemetry; None for that of ``HoldfastInstrumentor``, or none.
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
        telemetry: TelemetrySource | None,
    ) -> None:
        concurrency = resilience.concurrency
        self._endpoints = KnownEndpoints(shared)
        self._timeout = timeout
        self._env = env
        self._transport = layered_requests(
            _ForeignBinding(engine, env, resilience, limits),
            resilience=resilience,
            env=env,
            observers=Observers(observers, telemetry=telemetry, budget=resilience.budget),
            override=self._endpoints.override,
            admissions=None
            if concurrency is None
            else PerLoop(lambda: Admission(concurrency.limit)),
        )

    async def send(self, request: HttpRequest, *, began: float) -> ForeignReply:
        """Send a request, with retries where they are safe.

        Args:
            request: The request; its `progress` and `max_idle` are ignored.
            began: When it was created, in seconds on the event loop's clock.

        Raises:
            A2AError: There is no reply; the error has the facts of all attempts.
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
        """End the requests in flight in this event loop; later ones are sent nevertheless."""
        await self._transport.close()

    def _endpoint(self, recognized: Recognized, url: str) -> Endpoint:
        # As cards and clients name it, so that they share the state of the endpoint.
        is_card = recognized.binding == CARD_BINDING
        base_url = origin(url) if is_card else "/".join(url.split("/", 3)[:3])
        return self._endpoints.of(
            AgentInterface(
                url=f"{base_url}{recognized.base}",
                protocol_binding=recognized.binding,
                protocol_version=recognized.version or None,
            )
        )


_REFUSAL = "holdfast_refusal"
"""The attribute of an error that holds its reply."""


class _Outgoing(NamedTuple):
    """A request in flight.

    Attributes:
        request: The request.
        recognized: Its operation.
    """

    request: HttpRequest
    recognized: Recognized


class _Answer(Reply[Any], frozen=True, kw_only=True):
    """A reply with its status, which the layers pass through.

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
        """Send a request, and read the complete reply."""
        with _named(call.agent):
            reply = await self._engine.request(self._request(call))
            self._judge(reply)
        return _answer(call, reply, reply.body)

    async def stream(self, call: Call[P, R], /) -> Reply[Stream[R]]:
        """Send a request, and wait for the headers of the reply."""
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
        """Do nothing: the engine is borrowed."""

    @staticmethod
    def _stays_open(outgoing: _Outgoing, reply: HttpStream) -> bool:
        """Return whether the body may be a stream."""
        return not outgoing.recognized.is_known or media_type(reply.headers) == EVENT_STREAM

    def _request(self, call: AnyCall) -> HttpRequest:
        outgoing: _Outgoing = call.params
        request = outgoing.request
        call.progress.secrets.note(request.headers, {}, request.url)
        return msgspec.structs.replace(
            request,
            headers=call.headers,  # with the trace context of the attempt
            max_idle=MAX_IDLE[call.operation.safety],
            limits=self._limits,
            progress=call.progress.request,
        )

    def _judge(self, reply: HttpReply) -> None:
        """Check that a reply is not an error.

        Raises:
            A2AError: The error that the reply means.
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
    """Add the agent's name to errors."""
    try:
        yield
    except A2AError as error:
        error.agent = agent
        raise


class _OpenBody:
    """The body of a reply as a `Stream` of its pieces.

    Args:
        connection: The open connection of the reply; closed with this stream.
        reply: The reply.
        outgoing: The request. In the protocol the last event must be complete, and that of a
            streaming operation must be a regular end.
        agent: The agent's name, for errors.
        limits: Largest size of the body, or of each of any number of events.
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
        self._end_detector: StreamEndDetector | None = None
        if media_type(reply.headers) == EVENT_STREAM:
            self._events = EventStreamParser(limits)
            if recognized.is_known and recognized.operation.streaming:
                self._end_detector = StreamEndDetector(recognized, limits)

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
            self._check(chunk)
        return chunk

    def next_nowait(self) -> bytes | None:
        """Return None: no piece is buffered."""
        return None

    async def close(self) -> None:
        """Release the connection."""
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.__aexit__(None, None, None)

    def _missing(self) -> str | None:
        """Return why the end of the body is a cut; None if it is regular."""
        if self._is_of_a2a and self._events is not None and self._events.is_cut:
            return "in the middle of an event"
        return None if self._end_detector is None else self._end_detector.missing

    def _check(self, chunk: bytes) -> None:
        """Check the size so far, and record the events.

        Raises:
            LimitExceededError: The body or an event is too large.
        """
        if self._events is not None:
            for event in self._events.feed(chunk):
                if self._end_detector is not None:
                    self._end_detector.passed(event)
            return
        self._size += len(chunk)
        if self._size > self._limits.body:
            text = f"the reply is larger than {self._limits.body} bytes"
            raise limit_error("body", self._limits, text)


def _streaming(operation: AnyOperation) -> AnyOperation:
    """Return an operation that may be answered by events."""
    return operation if operation.streaming else msgspec.structs.replace(operation, streaming=True)
