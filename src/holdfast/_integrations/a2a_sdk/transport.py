"""`HoldfastTransport`: the SDK's transport, made of Holdfast's client.

Rules:
- Arguments are converted and never changed.
- The SDK's own client has checked the card: each request is sent, and the agent decides about it.
- The address is the one that the SDK chose, also after an extended card.
- An error is raised as the SDK's error, with Holdfast's error as its cause.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from typing import (
    TYPE_CHECKING,
    Any,
    Generic,
    NamedTuple,
    TypeVar,
    Unpack,
    cast,
)

import msgspec
from a2a.client.errors import A2AClientError, AgentCardResolutionError
from a2a.client.transports.base import ClientTransport
from a2a.types import a2a_pb2 as pb

from holdfast import protocol as op
from holdfast._arguments import check_headers, check_kind, check_one_of, check_seconds, check_url
from holdfast._client.client import streaming, subscribing
from holdfast._client.options import CALL_TIMEOUT, ClientOptions
from holdfast._integrations.a2a_sdk.conversion import check_budget, resilience_of
from holdfast._integrations.a2a_sdk.errors import SDK_ERRORS
from holdfast._integrations.a2a_sdk.httpx_settings import LentClient
from holdfast._integrations.a2a_sdk.messages import to_card, to_params, to_proto
from holdfast._integrations.a2a_sdk.validation import check_card, check_config, check_names
from holdfast._model.codec import MalformedError
from holdfast._stream.artifact_texts import flattened
from holdfast._stream.difference import difference
from holdfast.auth import ClientCallContext
from holdfast.client import connect
from holdfast.errors import A2AError
from holdfast.extend import SystemEnv, presentable
from holdfast.protocol import HTTP_BINDINGS, PROTOCOL_VERSION
from holdfast.types import (
    AgentCapabilities,
    AgentInterface,
    Message,
    StreamResponse,
    Task,
    TaskArtifactUpdateEvent,
    TaskStatusUpdateEvent,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from a2a.client.client import ClientCallContext as SdkContext
    from a2a.client.client import ClientConfig
    from google.protobuf.message import Message as ProtoMessage

    from holdfast._integrations.a2a_sdk.retry_config import RetryConfig
    from holdfast.client import CallOptions, Client, EventStream
    from holdfast.policies import Timeouts
    from holdfast.protocol import Operation
    from holdfast.types import (
        AgentCard,
        CancelTaskRequest,
        DeleteTaskPushNotificationConfigRequest,
        Event,
        Request,
    )

__all__ = ["HoldfastTransport", "TransportOptions"]

P = TypeVar("P", bound="Request")
R = TypeVar("R")
M = TypeVar("M", bound="ProtoMessage")


class TransportOptions(ClientOptions, total=False):
    """What can be said of a `HoldfastTransport`; `holdfast.connect` says what each of it means.

    What is not here, such as interceptors, consumers and how messages are to be treated, is said
    to the SDK's client as before.
    """


class HoldfastTransport(ClientTransport):
    """Carries the SDK's calls over Holdfast's client, by JSON-RPC or HTTP+JSON.

    For ``ClientFactory.register``, as ``factory.register("JSONRPC", HoldfastTransport)``; or see
    `client_factory`, which does that. Calls are tried again where that is safe, a message whose
    reply was lost is looked for and never sent twice, and a stream that is cut goes on.

    Of the SDK's `ClientCallContext`, ``service_parameters`` become headers of the call, which go
    to the origin of ``url`` and nowhere else, and ``state`` becomes that of Holdfast's context.
    ``timeout`` is the deadline of a call, with everything that is tried again. Of a stream, which
    may well take longer, it is how long a connection may be quiet, as in the SDK; it counts as
    cut then, and is picked up again. The option ``timeout``, or that of ``retry_config``, is for
    calls for which nobody says more; of a stream, also where the SDK makes one of
    ``send_message``, it bounds all that comes before its first event.

    Args:
        card: The agent's card.
        url: Address of the interface that calls go to.
        config: The SDK's configuration. Of its ``httpx_client`` come along: headers and cookies,
            as they are at each call, a user name with its password, and timeouts. ``User-Agent``
            does not, nor ``limits`` of connections (see `AiohttpEngine`); ``base_url`` says
            nothing, as addresses are whole. What else can be seen is an error until what stands
            for it is passed. The client itself is neither used nor closed. Its transport
            may be `holdfast.integrations.httpx.Transport`, whose settings are for what the client
            is used for by others, such as cards.
        protocol_binding: ``"JSONRPC"`` or ``"HTTP+JSON"``; if left out, what the card says of
            that address.
        retry_config: How to try again, in the words of `RetryTransport`. Its ``on_retry`` is told
            of retries of what was asked for; of the search for a lost reply, and of a stream that
            is picked up, ``observers`` are.
        options: See `TransportOptions`.

    Raises:
        ValueError: An option that cannot be right, both ``retry_config`` and ``resilience``, or a
            lent httpx client with something that cannot come along.
        TypeError: An argument of another type.
        a2a.client.errors.AgentCardResolutionError: The card is not valid, or ``url`` is not.
    """

    def __init__(
        self,
        card: pb.AgentCard,
        url: str,
        config: ClientConfig | None = None,
        *,
        protocol_binding: str | None = None,
        retry_config: RetryConfig | None = None,
        **options: Unpack[TransportOptions],
    ) -> None:
        check_names("a HoldfastTransport", options, TransportOptions.__annotations__)
        check_card(card)
        check_kind("url", url, str)
        check_config(config)
        if protocol_binding is not None:
            check_one_of("protocol_binding", protocol_binding, HTTP_BINDINGS)
        self._card = card
        own = _card_of(card, url, protocol_binding)
        [interface, *_] = own.supported_interfaces
        self._tenant = interface.tenant or ""
        self._errors = SDK_ERRORS[interface.protocol_binding]
        self._create_push_config = _CREATE_PUSH_CONFIG
        resilience = resilience_of(retry_config, options.get("resilience"))
        check_budget(retry_config, options.get("shared"))
        defaults = cast("TransportOptions", {})
        if retry_config is not None:
            if retry_config.timeout is not None:
                defaults["timeout"] = retry_config.timeout
            if retry_config.resend_ambiguous:
                defaults["on_unknown"] = "resend"
                self._create_push_config = _CREATE_PUSH_CONFIG_AGAIN
        said = cast("TransportOptions", {**defaults, **options})
        instead = cast("TransportOptions", {**options})
        if retry_config is not None:
            instead["resilience"] = resilience
        lent = None if config is None else config.httpx_client
        self._lent = None if lent is None else LentClient(lent, url, instead)
        if self._lent is not None and options.get("resilience") is None:
            longest = said.get("timeout", CALL_TIMEOUT)
            timeouts = self._lent.timeouts(resilience.timeouts, longest=longest)
            resilience = msgspec.structs.replace(resilience, timeouts=timeouts)
        self._timeouts = resilience.timeouts
        self._opening = said.get("timeout")
        self._env = options.get("env") or SystemEnv()
        said["resilience"], said["env"] = resilience, self._env
        try:
            self._client = connect(own, **said)
        except A2AError as error:  # of what the agent put into its card
            raise AgentCardResolutionError(_what_is_wrong(url, error)) from error
        self._is_closed = False

    @property
    def client(self) -> Client:
        """Holdfast's client: its circuit, its statistics, and what its journal holds."""
        return self._client

    async def close(self) -> None:
        """Ends the calls under way, and closes the connections; can be called twice.

        Raises:
            A2AClientError: Something of the caller's did not close.
        """
        self._is_closed = True
        try:
            await self._client.close()
        except Exception as error:
            message = f"the transport did not close well: {error}"
            raise A2AClientError(message) from error

    # ── Operations ───────────────────────────────────────────────────────────────────────────

    async def send_message(
        self, request: pb.SendMessageRequest, *, context: SdkContext | None = None
    ) -> pb.SendMessageResponse:
        """Sends a message, and waits as the agent does; see `holdfast.Client.send_message`."""
        return await self._ask(_SEND_MESSAGE, request, context)

    def send_message_streaming(
        self, request: pb.SendMessageRequest, *, context: SdkContext | None = None
    ) -> AsyncGenerator[pb.StreamResponse]:
        """Sends a message, and gives its answer as it comes; a cut does not end it."""

        def begin(options: CallOptions) -> EventStream:
            params = self._params(request)
            return streaming(self._client, params, options, opening=self._opening)

        return self._events(begin, request.tenant, context)

    async def get_task(
        self, request: pb.GetTaskRequest, *, context: SdkContext | None = None
    ) -> pb.Task:
        """Fetches a task."""
        return await self._ask(_GET_TASK, request, context)

    async def list_tasks(
        self, request: pb.ListTasksRequest, *, context: SdkContext | None = None
    ) -> pb.ListTasksResponse:
        """Lists one page of tasks."""
        return await self._ask(_LIST_TASKS, request, context)

    async def cancel_task(
        self, request: pb.CancelTaskRequest, *, context: SdkContext | None = None
    ) -> pb.Task:
        """Asks the agent to cancel a task; a try that succeeded and was lost counts."""
        return await self._ask(_CANCEL_TASK, request, context)

    async def create_task_push_notification_config(
        self, request: pb.TaskPushNotificationConfig, *, context: SdkContext | None = None
    ) -> pb.TaskPushNotificationConfig:
        """Tells the agent where to send news of a task."""
        return await self._ask(self._create_push_config, request, context)

    async def get_task_push_notification_config(
        self,
        request: pb.GetTaskPushNotificationConfigRequest,
        *,
        context: SdkContext | None = None,
    ) -> pb.TaskPushNotificationConfig:
        """Fetches one configuration of a task."""
        return await self._ask(_GET_PUSH_CONFIG, request, context)

    async def list_task_push_notification_configs(
        self,
        request: pb.ListTaskPushNotificationConfigsRequest,
        *,
        context: SdkContext | None = None,
    ) -> pb.ListTaskPushNotificationConfigsResponse:
        """Lists one page of the configurations of a task."""
        return await self._ask(_LIST_PUSH_CONFIGS, request, context)

    async def delete_task_push_notification_config(
        self,
        request: pb.DeleteTaskPushNotificationConfigRequest,
        *,
        context: SdkContext | None = None,
    ) -> None:
        """Deletes one configuration of a task; a try that succeeded and was lost counts."""
        with self._errors:
            await self._value(_deleted, request, context)

    def subscribe(
        self, request: pb.SubscribeToTaskRequest, *, context: SdkContext | None = None
    ) -> AsyncGenerator[pb.StreamResponse]:
        """Gives a task as it stands, and then what happens to it; a cut does not end it.

        A task that is over is its only event.
        """

        def begin(options: CallOptions) -> EventStream:
            task_id = _named("id", request.id)
            return subscribing(self._client, task_id, options, opening=self._opening)

        return self._events(begin, request.tenant, context)

    async def get_extended_agent_card(
        self, request: pb.GetExtendedAgentCardRequest, *, context: SdkContext | None = None
    ) -> pb.AgentCard:
        """Fetches the extended card; the present one if that does not speak of another."""
        if not self._card.capabilities.extended_agent_card:
            return self._card
        return await self._ask(_GET_EXTENDED_AGENT_CARD, request, context)

    # ── What they have in common ─────────────────────────────────────────────────────────────

    async def _ask(
        self, operation: _Unary[Any, Any, M], request: Any, context: SdkContext | None
    ) -> M:
        with self._errors:
            return to_proto(await self._value(operation.ask, request, context), operation.answer)

    async def _value(self, ask: _Asked[Any, R], request: Any, context: SdkContext | None) -> R:
        options = self._options(request.tenant, context)
        return await ask(self._client, self._params(request), options)

    async def _events(
        self,
        begin: Callable[[CallOptions], EventStream],
        tenant: str,
        context: SdkContext | None,
    ) -> AsyncGenerator[pb.StreamResponse]:
        with self._errors:
            options = self._options(tenant, context, streams=True)
            async with begin(options) as events:
                is_settled, settled_task = False, None
                async for event in events:
                    yield to_proto(_response(event), pb.StreamResponse)
                    if isinstance(event, Task | TaskStatusUpdateEvent):
                        is_settled = event.status.state.is_settled
                    settled_task = events.task if is_settled else None
                for event in _late_artifacts(settled_task, events.task):
                    yield to_proto(_response(event), pb.StreamResponse)

    def _options(
        self, tenant: str, context: SdkContext | None, *, streams: bool = False
    ) -> CallOptions:
        """What goes with a call.

        Raises:
            A2AClientError: The transport is closed, or a header or the timeout cannot be right.
        """
        if self._is_closed:
            message = "the transport is closed"
            raise A2AClientError(message)
        try:
            return self._checked_options(tenant, context, streams=streams)
        except (TypeError, ValueError) as error:
            raise A2AClientError(str(error)) from error

    def _checked_options(
        self, tenant: str, context: SdkContext | None, *, streams: bool
    ) -> CallOptions:
        timeout = None if context is None else context.timeout
        options: CallOptions = {
            "context": ClientCallContext(state={} if context is None else context.state),
            "tenant": tenant if tenant and tenant != self._tenant else None,
            "timeouts": None if timeout is None else self._limits(timeout, streams=streams),
        }
        if timeout is not None and not streams:
            options["timeout"] = check_seconds("timeout", timeout)
        parameters = None if context is None else context.service_parameters
        if self._lent is not None or parameters:
            lent = {} if self._lent is None else self._lent.headers()
            options["headers"] = {**lent, **check_headers(parameters or {})}
        return options

    def _limits(self, timeout: float, *, streams: bool) -> Timeouts:
        """The limits of an attempt of a call for which the caller named a timeout."""
        own = self._timeouts
        if streams:
            return msgspec.structs.replace(own, first_byte=timeout, idle=timeout)
        return msgspec.structs.replace(
            own, first_byte=max(own.first_byte, timeout), idle=max(own.idle, timeout)
        )

    def _params(self, request: Any) -> Any:
        """The parameters; a message without an id gets one, to be known by.

        The SDK names the interface's own tenant, for which protocol 0.3 has no place: it is added
        where there is one, and another is said with the call.
        """
        params: Any = msgspec.structs.replace(to_params(request), tenant=None)
        message = getattr(params, "message", None)
        if message is None or message.message_id:
            return params
        named = msgspec.structs.replace(message, message_id=self._env.new_id())
        return msgspec.structs.replace(params, message=named)


# ── Operations ───────────────────────────────────────────────────────────────────────────────


_Asked = Callable[["Client", P, "CallOptions"], Awaitable[R]]


class _Unary(NamedTuple, Generic[P, R, M]):
    """An operation that has one answer.

    Attributes:
        ask: Makes the call.
        answer: The SDK's type of its answer.
    """

    ask: _Asked[P, R]
    answer: type[M]


def _plain(operation: Operation[P, R]) -> _Asked[P, R]:
    """A call that is the operation and no more."""

    async def ask(client: Client, params: P, options: CallOptions) -> R:
        return (await client.call(operation, params, **options)).value

    return ask


async def _canceled(client: Client, params: CancelTaskRequest, options: CallOptions) -> Task:
    """Cancels a task; that an earlier try has done it is no error."""
    task_id = _named("id", params.id)
    return await client.cancel_task(task_id, confirm=False, metadata=params.metadata, **options)


async def _deleted(
    client: Client, params: DeleteTaskPushNotificationConfigRequest, options: CallOptions
) -> None:
    """Deletes a configuration; that an earlier try has done it is no error."""
    await client.delete_task_push_notification_config(
        _named("task_id", params.task_id), _named("id", params.id), **options
    )


def _named(member: str, value: str) -> str:
    """A member without which nothing can be asked for.

    Raises:
        MalformedError: It is empty.
    """
    if not value:
        message = f"the request lacks {member}"
        raise MalformedError(message)
    return value


_SEND_MESSAGE = _Unary(_plain(op.SEND_MESSAGE), pb.SendMessageResponse)
_GET_TASK = _Unary(_plain(op.GET_TASK), pb.Task)
_LIST_TASKS = _Unary(_plain(op.LIST_TASKS), pb.ListTasksResponse)
_CANCEL_TASK = _Unary(_canceled, pb.Task)
_CREATE_PUSH_CONFIG = _Unary(_plain(op.CREATE_PUSH_CONFIG), pb.TaskPushNotificationConfig)
_CREATE_PUSH_CONFIG_AGAIN = _Unary(
    _plain(msgspec.structs.replace(op.CREATE_PUSH_CONFIG, safety="idempotent")),
    pb.TaskPushNotificationConfig,
)
"""The same for those to whom a second one does no harm."""
_GET_PUSH_CONFIG = _Unary(_plain(op.GET_PUSH_CONFIG), pb.TaskPushNotificationConfig)
_LIST_PUSH_CONFIGS = _Unary(
    _plain(op.LIST_PUSH_CONFIGS), pb.ListTaskPushNotificationConfigsResponse
)
_GET_EXTENDED_AGENT_CARD = _Unary(_plain(op.GET_EXTENDED_AGENT_CARD), pb.AgentCard)

_MEMBERS: Mapping[type[Event], str] = {
    Task: "task",
    Message: "message",
    TaskStatusUpdateEvent: "status_update",
    TaskArtifactUpdateEvent: "artifact_update",
}


def _response(event: Event) -> StreamResponse:
    member: dict[str, Any] = {_MEMBERS[type(event)]: event}
    return StreamResponse(**member)


def _late_artifacts(emitted: Task | None, final: Task | None) -> Iterable[Event]:
    """Return events of artifacts that changed after the last status of a stream.

    Holdfast's own stream has these changes in its task; a reader of events alone needs an event.
    An artifact that is only divided into other parts, or no longer in the task, was emitted.
    """
    if emitted is None or final is None or emitted is final:
        return ()
    stand_ins: dict[bytes, str] = {}
    texts = {a.artifact_id: flattened(a.parts, stand_ins) for a in emitted.artifacts}
    changed = {
        artifact.artifact_id
        for artifact in final.artifacts
        if texts.get(artifact.artifact_id) != flattened(artifact.parts, stand_ins)
    }
    return [
        event
        for event in (difference(emitted, final) if changed else ())
        if isinstance(event, Task)
        or (isinstance(event, TaskArtifactUpdateEvent) and event.artifact.artifact_id in changed)
    ]


# ── The card ─────────────────────────────────────────────────────────────────────────────────


def _card_of(card: pb.AgentCard, url: str, binding: str | None) -> AgentCard:
    """What of a card is for the transport: the interface at an address, and how to log in.

    The SDK's client has compared what it asks for with what the card declares, which may be
    another card by now; so all that can be declared is.
    """
    bindings = HTTP_BINDINGS if binding is None else (binding,)
    whole = to_card(card)
    there = [
        msgspec.structs.replace(interface, protocol_binding=interface.protocol_binding.upper())
        for interface in whole.supported_interfaces
        if interface.url == url and interface.protocol_binding.upper() in bindings
    ]
    first = there[0].protocol_binding if there else bindings[0]
    named = AgentInterface(url=url, protocol_binding=first, protocol_version=PROTOCOL_VERSION)
    return msgspec.structs.replace(
        whole,
        name=card.name or presentable(url),
        supported_interfaces=tuple(i for i in there if i.protocol_binding == first) or (named,),
        capabilities=AgentCapabilities(
            streaming=True, push_notifications=True, extended_agent_card=True
        ),
    )


def _what_is_wrong(url: str, error: A2AError) -> str:
    """What is wrong with a card: where it is the address, with that and what was meant."""
    try:
        check_url(url, "address of the agent")
    except ValueError as wrong:
        return f"{error}; {wrong}"
    return str(error)
