"""The interface between operations and bindings: calls, replies, and the transports between them.

A `Transport` takes a `Call` and returns a `Reply` or raises an `A2AError`; where the operation
streams, the reply's value is an open `Stream`. A layer is a function from a transport to a
transport; the whole client is layers over a binding.
"""

from __future__ import annotations

from asyncio import AbstractEventLoop
from collections.abc import (
    Awaitable,
    Callable,
    Coroutine,
    Hashable,
    Iterable,
    Mapping,
    MutableMapping,
)
from functools import reduce
from typing import TYPE_CHECKING, Any, Generic, Protocol, Self, TypeVar

import msgspec

from holdfast._model.operations import Operation
from holdfast._model.redacted_repr import RedactedRepr
from holdfast._model.settings import NamedFieldsMeta
from holdfast._pipeline.caller_operation import CallerOperation
from holdfast._pipeline.endpoints import Endpoint
from holdfast._policy.attempts import joined_attempts, was_executed
from holdfast._policy.deadline import Deadline
from holdfast._wire.bindings import OLDER_VERSION, extensions_in
from holdfast._wire.http import Progress, Timeouts
from holdfast._wire.network_scope import NetworkReach
from holdfast._wire.redaction import Secrets
from holdfast.errors import Attempt, UnsupportedOperationError, VersionNotSupportedError
from holdfast.types import AgentCard

if TYPE_CHECKING:
    from holdfast._wire.credentials import Credentials
    from holdfast.errors import AuthenticationError

__all__ = [
    "AnyCall",
    "AnyReply",
    "AuthProvider",
    "BaseLayer",
    "Call",
    "CallGroup",
    "CallNext",
    "CallProgress",
    "ClientCallContext",
    "ExtensibleLayer",
    "Layer",
    "Reply",
    "Stream",
    "StreamWrapper",
    "Transport",
    "UnaryOnly",
    "addressed",
    "compose",
    "endpoint_of",
]

P = TypeVar("P")
R = TypeVar("R")
T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


def endpoint_of(call: AnyCall) -> Endpoint:
    """Return the endpoint of a call, for layers below the choice of an endpoint."""
    endpoint = call.endpoint
    if endpoint is None:
        message = "the call has no endpoint yet"
        raise RuntimeError(message)
    return endpoint


def addressed(call: Call[P, R]) -> Call[P, R]:
    """Return the call with the tenant of its interface, unless its parameters name one.

    Raises:
        VersionNotSupportedError: They name one, and the interface is of a version without tenants.
    """
    params: Any = call.params
    endpoint = call.endpoint
    if not params.tenant:
        tenant = None if endpoint is None else endpoint.interface.tenant
        if params.tenant == tenant:
            return call
        params = msgspec.structs.replace(params, tenant=tenant)
        return msgspec.structs.replace(call, params=params)
    if endpoint is not None and endpoint.version == OLDER_VERSION:
        raise VersionNotSupportedError(
            f"{call.operation.name} was not called: the agent speaks protocol {OLDER_VERSION}, "
            "which has no tenants",
            agent=endpoint.agent,
            executed=False,
        )
    return call


class CallGroup(msgspec.Struct):
    """The state that is shared by the requests of one call of the caller's.

    Attributes:
        secrets: The secrets that the requests carry. Written where a request is made; read where
            an error is reported.
        slots: How many of its requests hold a slot of the concurrency limit; the others need no
            slot then. Written and read by `AdmissionLayer`.
        home: Number of the replica to which a message was sent, and where it may have arrived;
            None where there is none. Written and read by `ReplicaLayer`.
        message_id: Id of that message; None where another operation was sent.
            Written and read by `ReplicaLayer`.
        sends: How many attempts were made to send a message. Written by `AttemptLayer`, read by
            the code that made the call.
        operation: The operation of the caller, for requests that begin; None where a client did
            not begin one. Written by `ClientCore` and by `AbandonedCall`.
        is_abandoned: Whether its caller no longer waits for it, so that a message is not sent
            again, and its requests pass while the client is closing. Written by `AbandonedCall`,
            read by `RetryLayer`, `SendOperation` and `ClientCore`.
        check_held: Checks, before a message is sent, that its call is still this client's; None
            without a journal. Written by `SendOperation`, called by `AttemptLayer`.
        loop: The event loop of the call, for the layers: until Python 3.12, each question for the
            running loop costs a system call. None where a client did not begin the call.
    """

    secrets: Secrets = msgspec.field(default_factory=Secrets)
    slots: int = 0
    home: int | None = None
    message_id: str | None = None
    sends: int = 0
    operation: CallerOperation | None = None
    is_abandoned: bool = False
    check_held: Callable[[], Awaitable[None]] | None = None
    loop: AbstractEventLoop | None = None


class CallProgress(msgspec.Struct):
    """The progress of a call: the only part of a call that changes.

    Attributes:
        request: The progress of the request in flight, or of the next one. Written by the engine
            or transport that carries it.
        awaits: The queue in which the call waits before its request, as errors name it; None
            outside of queues. Written by the layer that has the queue.
        began: When the call began, on the event loop's clock.
        lacks_credentials: Whether the current attempt failed because there were no credentials,
            which does not count against the agent. Written by `CredentialsLayer`.
        attempts: The attempts that are over, in order. Written by `AttemptLayer`; the layers
            above report them, and see by them whether an attempt was made.
        card: The progress of the fetch of the card that this call waits for, if any. Written
            by `AgentCardResolver` and `InterfaceLayer`, read by `DeadlineLayer` and observers.
        endpoint: The endpoint of the last attempt; None before. Written by `AttemptLayer`, whose
            reply has it too; read where a call has failed, or has not ended yet.
        candidates: The interfaces or replicas that may take the call, and how often it has failed
            there, was refused, or is being made. Written and read by `try_in_order`; `HedgeLayer`
            gives its second attempt a copy.
        call_group: The state that it shares with other calls.
        operation: The operation of the caller that it belongs to: that of the group when it began.
            Written by `ObservedRequest` where there was none.
        traceparent: The trace context that the last attempt carried, if a telemetry added it.
            Written by the layer of the telemetry, read for errors.
    """

    request: Progress = msgspec.field(default_factory=Progress)
    awaits: str | None = None
    began: float = 0.0
    lacks_credentials: bool = False
    attempts: list[Attempt] = []
    card: CallProgress | None = None
    endpoint: Endpoint | None = None
    candidates: dict[Hashable, int] = {}
    call_group: CallGroup = msgspec.field(default_factory=CallGroup)
    operation: CallerOperation | None = None
    traceparent: str | None = None

    def __post_init__(self) -> None:
        self.operation = self.operation or self.call_group.operation

    @property
    def secrets(self) -> Secrets:
        """The secrets that the requests carry."""
        return self.call_group.secrets

    def end_request(self) -> None:
        """Note that the request is over, and that its outcome is known to a layer or recorded."""
        self.request = Progress()

    def note_start(self, at: float) -> None:
        """Note the earliest time at which the next attempt begins."""
        last = self.attempts[-1]
        wait = max(0.0, at - self.began - last.started - last.duration)
        self.attempts[-1] = msgspec.structs.replace(last, wait=wait)

    @property
    def has_others(self) -> bool:
        """Whether there is a candidate at which the call has not failed; read by `RetryLayer`."""
        return 0 in self.candidates.values()

    def join(self, other: CallProgress) -> None:
        """Add what another progress of the same call has recorded."""
        after = other.began - self.began
        self.attempts[:] = joined_attempts(self.attempts, other.attempts, after=after)
        for candidate, times in other.candidates.items():
            self.candidates[candidate] = max(times, self.candidates.get(candidate, 0))

    def end_with(self, other: CallProgress) -> None:
        """Add what a request has recorded that was made for this call, and has ended it.

        Its attempts did not execute this call, whatever became of them.
        """
        other.attempts[:] = [
            msgspec.structs.replace(attempt, executed=False) for attempt in other.attempts
        ]
        self.join(other)
        self.endpoint = other.endpoint

    @property
    def executed(self) -> bool | None:
        """Whether a call without a reply was executed: False for no, None for unknown."""
        attempts = [attempt.executed for attempt in self.attempts]
        return was_executed([*attempts, None if self.request.sent else False])


class ClientCallContext(
    RedactedRepr, msgspec.Struct, frozen=True, kw_only=True, metaclass=NamedFieldsMeta
):
    """Values of a caller for credential services, interceptors and layers, for one call.

    It is not sent to the agent.

    Attributes:
        state: Any values, by name; `InMemoryContextCredentialStore` reads ``"sessionId"``.
    """

    state: MutableMapping[str, Any] = {}

    def __repr__(self) -> str:
        return f"ClientCallContext({', '.join(self.state)})"  # names only: values may be secret


class AuthProvider(Protocol):
    """A source of credentials, called for each attempt.

    An `A2AError` that it raises counts as a failure of the attempt, in which nothing was sent; any
    other exception is raised unchanged. The time that it takes counts against the call's deadline.
    """

    async def credentials(self, call: AnyCall, /) -> Credentials:
        """Return the credentials of a call.

        Args:
            call: The call; its ``card`` is None while the card is fetched.

        Raises:
            AuthenticationError: There are no credentials; nothing was sent.
        """
        ...

    async def on_unauthorized(self, call: AnyCall, error: AuthenticationError, /) -> bool:
        """Handle an HTTP 401, and return True to try once more with new credentials.

        The second attempt asks `credentials` again.

        Args:
            call: The call as it was sent, with the credentials that were refused.
            error: The error of the agent.
        """
        ...


class Call(RedactedRepr, msgspec.Struct, Generic[P, R], frozen=True, kw_only=True):
    """One call of one operation.

    Attributes:
        operation: A row of the table of operations.
        params: Parameters of the operation.
        request_id: Id of the call in logs and errors; also the JSON-RPC id.
        deadline: The deadline of the whole call.
        timeouts: `Timeouts` of each attempt; None for the client's.
        headers: The caller's headers and the credentials; they go to trusted origins only.
        query: Parameters to add to the address, unencoded; they are treated like the headers.
        extensions: URIs for ``A2A-Extensions``.
        context: The caller's data about the call.
        endpoint: The endpoint of the call; None until it is chosen.
        reach: The networks that the endpoint may be in (`NetworkReach`); None if the caller named
            its address and set no limit.
        card: The card that names the endpoint; None until it is chosen.
        auth: The source of credentials; None for no credentials.
        attempt: Number of the attempt, from 1.
        is_trusted: Whether the endpoint's origin may get credentials; only the card has named an
            origin that is not trusted. True by default.
        is_retried: Whether to retry the call where that is safe; False if the code that makes the
            call retries itself. True by default.
        progress: The progress of the call.
    """

    operation: Operation[P, R]
    params: P
    request_id: str
    deadline: Deadline
    timeouts: Timeouts | None = None
    headers: Mapping[str, str] = {}
    query: Mapping[str, str] = {}
    extensions: tuple[str, ...] = ()
    context: ClientCallContext | None = None
    endpoint: Endpoint | None = None
    reach: NetworkReach | None = None
    card: AgentCard | None = None
    auth: AuthProvider | None = None
    attempt: int = 1
    is_trusted: bool = True
    is_retried: bool = True
    progress: CallProgress = msgspec.field(default_factory=CallProgress)

    def __repr__(self) -> str:
        # Names only: the values of the headers are secret, and the parameters are the caller's.
        return (
            f"Call({self.operation.name}, request_id={self.request_id!r}, agent={self.agent!r}, "
            f"attempt={self.attempt}, headers=[{', '.join(self.headers)}])"
        )

    @property
    def agent(self) -> str | None:
        """Address that the call goes to, as shown in errors and logs."""
        return None if self.endpoint is None else self.endpoint.agent


class Reply(msgspec.Struct, Generic[R], frozen=True, kw_only=True):
    """The reply to a call.

    Attributes:
        value: The typed answer.
        headers: Headers of the HTTP reply, or the metadata of gRPC; names in lower case.
        raw: The body as received; for gRPC, the message.
        endpoint: The endpoint that answered.
        attempts: Every attempt that was made, the successful one last.
    """

    value: R
    headers: Mapping[str, str] = {}
    raw: bytes = b""
    endpoint: Endpoint | None = None
    attempts: tuple[Attempt, ...] = ()

    @property
    def extensions(self) -> tuple[str, ...]:
        """URIs of the extensions that the agent has activated (``A2A-Extensions``)."""
        return extensions_in(self.headers)

    @property
    def text(self) -> str:
        """The body (`raw`) as text."""
        return self.raw.decode("utf-8", "replace")


class Stream(Protocol[T_co]):
    """Events of one connection, until its end.

    The code that receives a stream has to close it in every case.
    """

    def __aiter__(self) -> Self: ...

    def __anext__(self) -> Coroutine[Any, Any, T_co]:
        """Wait for the next event.

        Raises:
            StopAsyncIteration: The connection ended normally.
            A2AError: The connection broke, or the agent reports an error.
        """
        ...

    @property
    def next_nowait(self) -> Callable[[], T_co | None]:
        """Return the next event if it is buffered, else None; may be a method.

        Events come in bursts, and waiting for each of them through all layers costs more than
        reading it. It never raises: failures are raised by waiting.
        """
        ...

    async def close(self) -> None:
        """Close the connection; the agent continues. Can be called twice."""
        ...


class StreamWrapper(Generic[T]):
    """Base class of streams over another stream; override the methods that change.

    Args:
        inner: The stream below.

    Attributes:
        next_nowait: Returns None, so that ``__anext__`` sees every event. A stream that does not
            handle single events passes on the function of the stream below.
    """

    def __init__(self, inner: Stream[T]) -> None:
        self._inner = inner
        self.next_nowait: Callable[[], T | None] = _nothing

    def __aiter__(self) -> Self:
        return self

    def __anext__(self) -> Coroutine[Any, Any, T]:
        """Wait for the next event from below."""
        return self._inner.__anext__()

    async def close(self) -> None:
        """Close the stream below."""
        await self._inner.close()


def _nothing() -> None:
    """Return None: nothing is buffered."""


class Transport(Protocol):
    """Carries calls: unary ones, and ones that are answered by a stream."""

    def unary(self, call: Call[P, R], /) -> Coroutine[Any, Any, Reply[R]]:
        """Make a call that has one reply; most implementations are ``async def``.

        Args:
            call: The call.

        Returns:
            The reply.

        Raises:
            A2AError: The call failed; the attributes of the error are its facts.
        """
        ...

    def stream(self, call: Call[P, R], /) -> Coroutine[Any, Any, Reply[Stream[R]]]:
        """Make a call that is answered by events; return once the first one has arrived.

        Args:
            call: The call.

        Returns:
            A reply whose value is the open `Stream`.

        Raises:
            A2AError: The call failed before the first event; the attributes of the error are its
                facts.
        """
        ...

    async def close(self) -> None:
        """Release all resources."""
        ...


CallNext = Callable[[Call[P, R]], Coroutine[Any, Any, Reply[T]]]
"""Function with which a layer makes a call at the transport below."""


class BaseLayer:
    """Base class of layers: a transport over another one; override the methods that change.

    Override `handle` for behaviour that both kinds of calls share: a stream is a call whose reply
    has arrived when its first event has. Override `stream` for what happens to an open stream.

    Args:
        inner: The transport below.
    """

    def __init__(self, inner: Transport) -> None:
        self._inner = inner

    def unary(self, call: Call[P, R], /) -> Coroutine[Any, Any, Reply[R]]:
        """Make a call with one reply, through `handle`.

        Args:
            call: The call.
        """
        return self.handle(call, self._inner.unary)

    def stream(self, call: Call[P, R], /) -> Coroutine[Any, Any, Reply[Stream[R]]]:
        """Make a call that is answered by events, through `handle`.

        Args:
            call: The call.
        """
        return self.handle(call, self._inner.stream)

    def handle(
        self, call: Call[P, R], call_next: CallNext[P, R, T], /
    ) -> Coroutine[Any, Any, Reply[T]]:
        """Make a call of either kind; override it for behaviour that both kinds share.

        Args:
            call: The call.
            call_next: Function that makes the call at the transport below.
        """
        return call_next(call)

    async def close(self) -> None:
        """Close the transport below."""
        await self._inner.close()


class ExtensibleLayer(BaseLayer):
    """A layer below which another one may be inserted while the client is in use."""

    def put_below(self, layer: Layer) -> None:
        """Insert a layer between this one and the one below; calls in flight do not pass it."""
        self._inner = layer(self._inner)


class UnaryOnly:
    """Base class of transports that cannot stream; tasks are polled then."""

    async def stream(self, call: Call[P, R], /) -> Reply[Stream[R]]:
        """Refuse the call.

        Args:
            call: The call.

        Raises:
            UnsupportedOperationError: Always; nothing was sent.
        """
        message = f"{call.operation.name} was not called: the transport does not stream"
        raise UnsupportedOperationError(message, executed=False)


Layer = Callable[[Transport], Transport]
"""Function that puts a transport over another one; a class that takes the inner one is a layer."""


def compose(layers: Iterable[Layer], transport: Transport) -> Transport:
    """Put layers over a transport; the first one is the outermost."""
    return reduce(lambda inner, layer: layer(inner), reversed(list(layers)), transport)


AnyCall = Call[Any, Any]
"""A call of any operation."""
AnyReply = Reply[Any]
"""A reply to any operation."""
