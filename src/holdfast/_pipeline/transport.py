"""The seam of operations: calls, replies, and what carries the one to the other.

A `Transport` takes a `Call` and gives a `Reply` or raises an `A2AError`; where the operation
streams, the reply's value is an open `Stream`. A layer is a function from a transport to a
transport; the whole client is layers over a binding.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Hashable, Iterable, Mapping, MutableMapping
from functools import reduce
from typing import TYPE_CHECKING, Any, Generic, Protocol, Self, TypeVar

import msgspec

from holdfast._model.operations import Operation
from holdfast._model.redacted_repr import RedactedRepr
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
    "Call",
    "CallGroup",
    "CallNext",
    "CallProgress",
    "ClientCallContext",
    "ExtensibleLayer",
    "Layer",
    "PassThrough",
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
    """Where a call goes, for what stands below the choice of that."""
    endpoint = call.endpoint
    if endpoint is None:
        message = "the call has no endpoint yet"
        raise RuntimeError(message)
    return endpoint


def addressed(call: Call[P, R]) -> Call[P, R]:
    """The call with the tenant of its interface, unless its parameters name one.

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
            "which knows no tenants",
            agent=endpoint.agent,
            executed=False,
        )
    return call


class CallGroup(msgspec.Struct):
    """What the calls share that are made for one call of the caller's.

    Attributes:
        secrets: What their requests carry. Whoever makes a request notes it; read by those who
            tell of an error.
        places: How many of them are under way that were let in; the others need no leave then.
            Written and read by `AdmissionLayer`.
        home: Number of the replica where a message was sent, and may have arrived; None where
            there is none. Written and read by `ReplicaLayer`.
        message_id: Id of that message; None where another operation than a message was sent.
            Written and read by `ReplicaLayer`.
        sends: How many tries were made to send a message. Written by `AttemptLayer`, read by
            those who made the call.
        operation: Name of the one that the caller asked for: the one that sends the message, else
            the first; None before.
            Written by `ClientCore`, read by `RetryLayer`.
        request_id: Names that one in logs and errors. Written by `ClientCore`, read by those who
            tell what came of it.
        ends_with_request: Whether the caller's call is over with its request; False where it may
            take several. Written by `ObservedCall`, and by `ClientCore` for requests that the
            caller did not ask for; read by `Observers`.
        attempts: How many attempts its requests took that are over. Written and read by
            `Observers`, like `agent`.
        agent: The address of the last attempt, as observers get it.
        is_observed: Whether an observer, or the log, takes what goes well. Written by
            `ClientCore` when the call begins.
    """

    secrets: Secrets = msgspec.field(default_factory=Secrets)
    places: int = 0
    home: int | None = None
    message_id: str | None = None
    sends: int = 0
    operation: str | None = None
    request_id: str | None = None
    ends_with_request: bool = True
    attempts: int = 0
    agent: str | None = None
    is_observed: bool = True


class CallProgress(Progress):
    """How far a call has come: the only part of a call that changes.

    Attributes:
        sent: Whether a byte of the current attempt may have left. Written by the engine;
            taken back by `AttemptLayer` before and after an attempt, and by `CredentialsLayer`
            where nothing was executed.
        began: When the call began, on the event loop's clock.
        lacks_credentials: Whether the current attempt failed because there were none: that says
            nothing of the agent. Written by `CredentialsLayer`.
        attempts: The attempts that are over, in order. Written by `AttemptLayer`; those above it
            tell of them, and see by them whether an attempt was made.
        card: How far the fetch of the card has come that this call waits for, if it does. Written
            by `AgentCardResolver` and `InterfaceLayer`, read by `DeadlineLayer` and observers.
        endpoint: Where the last attempt was made; None before. Written by `AttemptLayer`, and by
            `HedgeLayer` for the one of two that counts; read by both and `RetryLayer`.
        ways: Each way that the call may take, and how often it has failed there, was refused, or
            is being made. Written and read by `try_in_order`; `HedgeLayer` gives its second
            attempt a copy.
        call_group: What it shares with other calls.
    """

    began: float = 0.0
    lacks_credentials: bool = False
    attempts: list[Attempt] = []  # noqa: RUF012  msgspec makes a new one for each
    card: CallProgress | None = None
    endpoint: Endpoint | None = None
    ways: dict[Hashable, int] = {}  # noqa: RUF012  the same
    call_group: CallGroup = msgspec.field(default_factory=CallGroup)

    @property
    def secrets(self) -> Secrets:
        """What the requests carry."""
        return self.call_group.secrets

    def goes_on(self, at: float) -> None:
        """Notes when the next attempt begins, or is to begin at the earliest."""
        last = self.attempts[-1]
        wait = max(0.0, at - self.began - last.started - last.duration)
        self.attempts[-1] = msgspec.structs.replace(last, wait=wait)

    @property
    def has_others(self) -> bool:
        """Whether a way is left at which the call has not failed; read by `RetryLayer`."""
        return 0 in self.ways.values()

    def join(self, other: CallProgress) -> None:
        """Takes over what was tried for the same call apart from it."""
        after = other.began - self.began
        self.attempts[:] = joined_attempts(self.attempts, other.attempts, after=after)
        for way, times in other.ways.items():
            self.ways[way] = max(times, self.ways.get(way, 0))

    @property
    def executed(self) -> bool | None:
        """Whether the call was executed that has no reply: False for no, None for unknown."""
        attempts = [attempt.executed for attempt in self.attempts]
        return was_executed([*attempts, None if self.sent else False])


class ClientCallContext(RedactedRepr, msgspec.Struct, frozen=True, kw_only=True):
    """What a caller tells those who look at one call: credential services, interceptors, layers.

    It goes with the call, and not to the agent.

    Attributes:
        state: Anything, by name; `InMemoryContextCredentialStore` looks for ``"sessionId"``.
    """

    state: MutableMapping[str, Any] = {}

    def __repr__(self) -> str:
        return f"ClientCallContext({', '.join(self.state)})"  # names only: it may hold secrets


class AuthProvider(Protocol):
    """Where credentials come from; asked anew for each attempt.

    An `A2AError` that it raises counts as a failure of the attempt, of which nothing was sent;
    any other exception is raised as it is. What it takes counts against the call's deadline.
    """

    async def credentials(self, call: AnyCall, /) -> Credentials:
        """What the call is to carry. Its ``card`` is None where the card itself is fetched."""
        ...

    async def on_unauthorized(self, call: AnyCall, error: AuthenticationError, /) -> bool:
        """Told of a 401; True asks to try once more with new credentials.

        ``call`` is the call as it was sent, with the credentials that were refused.
        """
        ...


class Call(RedactedRepr, msgspec.Struct, Generic[P, R], frozen=True, kw_only=True):
    """One call of one operation.

    Attributes:
        operation: A row of the table of operations.
        params: Its parameters.
        request_id: Names the call in logs and errors, and is the JSON-RPC id.
        deadline: When the whole call ends.
        timeouts: Limits of each attempt; None for those of the client.
        headers: The caller's headers and the credentials; they go to trusted origins only.
        query: Parameters to add to the address, unencoded; they are treated like the headers.
        extensions: URIs for ``A2A-Extensions``.
        context: What the caller says about it.
        endpoint: Where the call goes; None until it is chosen.
        reach: How far inside that may lie; None where the caller named it and set no bound.
        card: The card that names the endpoint; None until it is chosen.
        auth: Where credentials come from; None for nowhere.
        attempt: Number of the try, from 1.
        is_retried: Whether to try it again where that is safe; who looks after that by themselves
            say no.
        progress: How far it has come.
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
        """The address that the call goes to, as shown in errors and logs."""
        return None if self.endpoint is None else self.endpoint.agent


class Reply(msgspec.Struct, Generic[R], frozen=True, kw_only=True):
    """What came back.

    Attributes:
        value: The typed answer.
        headers: Of the HTTP reply, or the metadata of gRPC; look them up in lower case.
        raw: The body as received; of gRPC, the message.
        endpoint: Who answered.
        attempts: Every try that was made, the successful one last.
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
        """`raw` as text."""
        return self.raw.decode("utf-8", "replace")


class Stream(Protocol[T_co]):
    """What one connection brings, event by event, until its end of file.

    Whoever has one closes it, whatever happened.
    """

    def __aiter__(self) -> Self: ...

    def __anext__(self) -> Coroutine[Any, Any, T_co]:
        """Waits for the next event.

        Raises:
            StopAsyncIteration: The connection ended in good order.
            A2AError: It broke, or the agent tells of an error.
        """
        ...

    @property
    def next_nowait(self) -> Callable[[], T_co | None]:
        """Gives the next event if it is there already, else None; a method will do.

        Events come in bursts, and to wait for each, through all layers, costs more than to read
        it. It never fails: what fails is waited for.
        """
        ...

    async def close(self) -> None:
        """Lets go of the connection; the agent goes on. Can be called twice."""
        ...


class StreamWrapper(Generic[T]):
    """A stream over another one; derive from it, and override what changes.

    Args:
        inner: What is below.

    Attributes:
        next_nowait: Gives None, so that ``__anext__`` sees every event. A stream that has nothing
            to do with single events hands on what the one below has.
    """

    def __init__(self, inner: Stream[T]) -> None:
        self._inner = inner
        self.next_nowait: Callable[[], T | None] = _nothing

    def __aiter__(self) -> Self:
        return self

    def __anext__(self) -> Coroutine[Any, Any, T]:
        """The next event from below."""
        return self._inner.__anext__()

    async def close(self) -> None:
        """Closes what is below."""
        await self._inner.close()


def _nothing() -> None:
    """Nothing is there."""


class Transport(Protocol):
    """Carries calls."""

    def unary(self, call: Call[P, R], /) -> Coroutine[Any, Any, Reply[R]]:
        """Makes a call that has one answer; most write it with ``async def``.

        Raises:
            A2AError: Whatever went wrong, with facts.
        """
        ...

    def stream(self, call: Call[P, R], /) -> Coroutine[Any, Any, Reply[Stream[R]]]:
        """Makes a call that is answered by events; it returns when the first one has come.

        Raises:
            A2AError: Whatever went wrong before the first event, with facts.
        """
        ...

    async def close(self) -> None:
        """Frees everything."""
        ...


CallNext = Callable[[Call[P, R]], Coroutine[Any, Any, Reply[T]]]
"""How a layer hands a call to what is below."""


class PassThrough:
    """A transport over another one; derive your layers from it, and override what they change.

    Override `through` for what is the same for both kinds of calls: a stream is a call whose reply
    is there when its first event is. What happens to an open stream is for `stream`.

    Args:
        inner: What is below.
    """

    def __init__(self, inner: Transport) -> None:
        self._inner = inner

    def unary(self, call: Call[P, R], /) -> Coroutine[Any, Any, Reply[R]]:
        """Makes the call below."""
        return self.through(call, self._inner.unary)

    def stream(self, call: Call[P, R], /) -> Coroutine[Any, Any, Reply[Stream[R]]]:
        """Opens the stream below."""
        return self.through(call, self._inner.stream)

    def through(
        self, call: Call[P, R], onward: CallNext[P, R, T], /
    ) -> Coroutine[Any, Any, Reply[T]]:
        """Makes a call of either kind.

        Args:
            call: The call.
            onward: Makes it below.
        """
        return onward(call)

    async def close(self) -> None:
        """Frees what is below."""
        await self._inner.close()


class ExtensibleLayer(PassThrough):
    """A layer below which another one may be put while the client is in use."""

    def put_below(self, layer: Layer) -> None:
        """Put a layer between this one and what is below; calls in flight pass it by."""
        self._inner = layer(self._inner)


class UnaryOnly:
    """Derive from it a transport that cannot stream; tasks are looked after by polling then."""

    async def stream(self, call: Call[P, R], /) -> Reply[Stream[R]]:
        """Refuses.

        Raises:
            UnsupportedOperationError: Always; nothing was sent.
        """
        message = f"{call.operation.name} was not called: the transport does not stream"
        raise UnsupportedOperationError(message, executed=False)


Layer = Callable[[Transport], Transport]
"""Puts a transport over another one; a class that takes the inner one is a layer too."""


def compose(layers: Iterable[Layer], transport: Transport) -> Transport:
    """Puts layers over a transport; the first one is the outermost."""
    return reduce(lambda inner, layer: layer(inner), reversed(list(layers)), transport)


AnyCall = Call[Any, Any]
AnyReply = Reply[Any]
