"""`HoldfastTransport`: a transport of the SDK that makes its calls with Holdfast's client.

Rules:
- Arguments are converted and never changed.
- The SDK's client has checked the card: each request is sent, and the agent decides about it.
- The address is the one that the SDK chose, even if an extended card names another.
- An error is raised as the SDK's error, with Holdfast's error as its cause.
"""

from __future__ import annotations

from typing import (
    TYPE_CHECKING,
    Any,
    ClassVar,
    TypeVar,
    Unpack,
    cast,
)

import msgspec
from a2a.client.errors import A2AClientError, AgentCardResolutionError
from a2a.client.transports.base import ClientTransport
from a2a.types import a2a_pb2 as pb

from holdfast._arguments import (
    check_caller_headers,
    check_kind,
    check_one_of,
    check_seconds,
    check_url,
)
from holdfast._client.client import streaming, subscribing
from holdfast._client.options import CALL_TIMEOUT, ClientOptions
from holdfast._integrations.a2a_sdk import unary_calls
from holdfast._integrations.a2a_sdk.conversion import check_budget, resilience_of
from holdfast._integrations.a2a_sdk.errors import SDK_ERRORS
from holdfast._integrations.a2a_sdk.httpx_settings import HttpxSettings
from holdfast._integrations.a2a_sdk.messages import to_card, to_params, to_proto
from holdfast._integrations.a2a_sdk.stream_events import late_artifacts, to_response
from holdfast._integrations.a2a_sdk.unary_calls import Ask, UnaryCall, required
from holdfast._integrations.a2a_sdk.validation import (
    check_card,
    check_config,
    check_context,
    check_names,
    check_request,
)
from holdfast.auth import ClientCallContext
from holdfast.client import connect
from holdfast.errors import A2AError, TaskFailedError
from holdfast.extend import SystemEnv, presentable
from holdfast.protocol import HTTP_BINDINGS, PROTOCOL_VERSION
from holdfast.types import (
    AgentCapabilities,
    AgentInterface,
    Task,
    TaskState,
    TaskStatusUpdateEvent,
)

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable

    from a2a.client.client import ClientCallContext as SdkContext
    from a2a.client.client import ClientConfig
    from google.protobuf.message import Message as ProtoMessage

    from holdfast._integrations.a2a_sdk.retry_config import RetryConfig
    from holdfast.client import CallOptions, Client, EventStream
    from holdfast.policies import Timeouts
    from holdfast.types import (
        AgentCard,
        Request,
    )

__all__ = ["HoldfastTransport", "TransportOptions"]

P = TypeVar("P", bound="Request")
R = TypeVar("R")
M = TypeVar("M", bound="ProtoMessage")


class TransportOptions(ClientOptions, total=False):
    """Options of a `HoldfastTransport`, with the meaning that they have for `holdfast.connect`.

    Interceptors, consumers and the configuration of messages are options of the SDK's client. The
    SDK also verifies the signatures of cards, by its ``signature_verifier``.
    """


class HoldfastTransport(ClientTransport):
    """Transport of the SDK over Holdfast's client, by JSON-RPC or HTTP+JSON.

    Pass it to ``ClientFactory.register``, as ``factory.register("JSONRPC", HoldfastTransport)``,
    or use `client_factory`, which registers it. A failed call is retried where that is safe; if
    the reply to a message is lost, its task is searched for, and the message is never sent twice;
    a stream that is cut is resumed.

    Of the SDK's `ClientCallContext`, ``service_parameters`` become headers of the call, which are
    sent to the origin of ``url`` only, and ``state`` becomes the state of Holdfast's context. Its
    ``timeout`` is the deadline of a call in seconds, including retries. For a stream, which may
    take longer, it is the longest time without data, as in the SDK; then the connection counts as
    cut, and the stream is resumed. The option ``timeout``, or that of ``retry_config``, applies to
    calls without a timeout of their own; for a stream, including one that the SDK opens for
    ``send_message``, it limits the time until the first event.

    Args:
        card: The agent's card.
        url: Address of the interface that calls go to.
        config: The SDK's configuration. Of its ``httpx_client``, the transport takes over headers
            and cookies, as they are at each call, a user name with its password, and timeouts. It
            does not take over ``User-Agent`` and ``limits`` of connections, which an
            `AiohttpEngine` has; ``base_url`` has no effect, because addresses are absolute. Any
            other setting that it can see is an error until you pass the option that replaces it.
            The client itself is neither used nor closed. Its transport may be
            `holdfast.integrations.httpx.Transport`, whose settings apply to other requests of the
            client, such as those of cards.
        protocol_binding: ``"JSONRPC"`` or ``"HTTP+JSON"``; None for the binding that the card
            declares for that address.
        retry_config: Retries, as for `RetryTransport`; None for the defaults. Its ``on_retry`` is
            called for retries of the caller's own request; ``observers`` also receive the search
            for a lost reply, and the reconnections of a stream.
        options: Options of Holdfast's client: ``auth``, ``timeout`` (seconds, 900 by default),
            ``resilience``, ``limits``, ``engine``, ``tls``, ``shared``, ``env``,
            ``protocol_version``, ``allow_legacy``, ``on_unknown``, ``context_ids``, ``journal``,
            ``headers``, ``credential_origins``, ``allowed_networks``, ``reach``, ``observers``,
            ``telemetry``, ``call_layers`` and ``attempt_layers``.

    Raises:
        ValueError: An option is not valid, both ``retry_config`` and ``resilience`` are given, or
            the httpx client has a setting that the transport cannot take over.
        TypeError: An argument has the wrong type.
        a2a.client.errors.AgentCardResolutionError: The card is not valid, or ``url`` is not.
    """

    _taker: ClassVar[str] = "HoldfastTransport"
    """What takes the options, for errors."""

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
        own = ("protocol_binding", "retry_config")
        check_names("a HoldfastTransport", options, (*own, *TransportOptions.__annotations__))
        check_card(card)
        check_kind("url", url, str)
        check_config(config)
        if protocol_binding is not None:
            check_one_of("protocol_binding", protocol_binding, HTTP_BINDINGS)
        self._card = card
        own_card = _card_of(card, url, protocol_binding)
        [interface, *_] = own_card.supported_interfaces
        self._tenant = interface.tenant or ""
        self._errors = SDK_ERRORS[interface.protocol_binding].advising(self._taker)
        self._create_push_config = unary_calls.CREATE_PUSH_CONFIG
        resilience = resilience_of(retry_config, options.get("resilience"))
        check_budget(retry_config, options.get("shared"), taker=self._taker)
        defaults = cast("TransportOptions", {})
        if retry_config is not None:
            if retry_config.timeout is not None:
                defaults["timeout"] = retry_config.timeout
            if retry_config.resend_ambiguous:
                defaults["on_unknown"] = "resend"
                self._create_push_config = unary_calls.CREATE_PUSH_CONFIG_AGAIN
        settings = cast("TransportOptions", {**defaults, **options})
        replacements = cast("TransportOptions", {**options})
        if retry_config is not None:
            replacements["resilience"] = resilience
        httpx_client = None if config is None else config.httpx_client
        self._httpx_settings = (
            None
            if httpx_client is None
            else HttpxSettings(httpx_client, url, replacements, taker=self._taker)
        )
        if self._httpx_settings is not None and options.get("resilience") is None:
            longest = settings.get("timeout", CALL_TIMEOUT)
            timeouts = self._httpx_settings.timeouts(resilience.timeouts, longest=longest)
            resilience = msgspec.structs.replace(resilience, timeouts=timeouts)
        self._timeouts = resilience.timeouts
        self._opening = settings.get("timeout")
        self._env = options.get("env") or SystemEnv()
        settings["resilience"], settings["env"] = resilience, self._env
        try:
            self._client = connect(own_card, **settings)
        except A2AError as error:  # the agent's card is not valid
            raise AgentCardResolutionError(_card_fault(url, error)) from error
        self._is_closed = False

    @property
    def client(self) -> Client:
        """Holdfast's client, with its circuit, statistics and journal."""
        return self._client

    async def close(self) -> None:
        """End the calls in flight, and close the connections; can be called twice.

        Raises:
            A2AClientError: An object of the caller failed to close.
        """
        self._is_closed = True
        try:
            await self._client.close()
        except Exception as error:
            message = f"closing the transport failed: {error}"
            raise A2AClientError(message) from error

    # ── Operations ───────────────────────────────────────────────────────────────────────────

    async def send_message(
        self, request: pb.SendMessageRequest, *, context: SdkContext | None = None
    ) -> pb.SendMessageResponse:
        """Send a message, and return the agent's reply, as `Client.send_message` does."""
        return await self._ask(unary_calls.SEND_MESSAGE, request, context)

    def send_message_streaming(
        self, request: pb.SendMessageRequest, *, context: SdkContext | None = None
    ) -> AsyncGenerator[pb.StreamResponse]:
        """Send a message, and yield its events; a stream that is cut is resumed.

        If the agent ended the stream with an error, and the task is FAILED without a message, that
        error is raised after the events.
        """

        def begin(options: CallOptions) -> EventStream:
            params = self._params(request)
            return streaming(self._client, params, options, opening=self._opening)

        return self._events(begin, request.tenant, context)

    async def get_task(
        self, request: pb.GetTaskRequest, *, context: SdkContext | None = None
    ) -> pb.Task:
        """Return a task."""
        return await self._ask(unary_calls.GET_TASK, request, context)

    async def list_tasks(
        self, request: pb.ListTasksRequest, *, context: SdkContext | None = None
    ) -> pb.ListTasksResponse:
        """Return one page of the list of tasks."""
        return await self._ask(unary_calls.LIST_TASKS, request, context)

    async def cancel_task(
        self, request: pb.CancelTaskRequest, *, context: SdkContext | None = None
    ) -> pb.Task:
        """Cancel a task; it is not an error if an attempt with a lost reply canceled it."""
        return await self._ask(unary_calls.CANCEL_TASK, request, context)

    async def create_task_push_notification_config(
        self, request: pb.TaskPushNotificationConfig, *, context: SdkContext | None = None
    ) -> pb.TaskPushNotificationConfig:
        """Add a push notification config to a task."""
        return await self._ask(self._create_push_config, request, context)

    async def get_task_push_notification_config(
        self,
        request: pb.GetTaskPushNotificationConfigRequest,
        *,
        context: SdkContext | None = None,
    ) -> pb.TaskPushNotificationConfig:
        """Return a push notification config of a task."""
        return await self._ask(unary_calls.GET_PUSH_CONFIG, request, context)

    async def list_task_push_notification_configs(
        self,
        request: pb.ListTaskPushNotificationConfigsRequest,
        *,
        context: SdkContext | None = None,
    ) -> pb.ListTaskPushNotificationConfigsResponse:
        """Return one page of the push notification configs of a task."""
        return await self._ask(unary_calls.LIST_PUSH_CONFIGS, request, context)

    async def delete_task_push_notification_config(
        self,
        request: pb.DeleteTaskPushNotificationConfigRequest,
        *,
        context: SdkContext | None = None,
    ) -> None:
        """Delete a push notification config.

        It is not an error if an attempt with a lost reply deleted it.
        """
        with self._errors:
            await self._value(unary_calls.delete_push_config, request, context)

    def subscribe(
        self, request: pb.SubscribeToTaskRequest, *, context: SdkContext | None = None
    ) -> AsyncGenerator[pb.StreamResponse]:
        """Yield a task, and its events from then on; a stream that is cut is resumed.

        For a task that has ended, the task is the only event.
        """

        def begin(options: CallOptions) -> EventStream:
            task_id = required("id", request.id)
            return subscribing(self._client, task_id, options, opening=self._opening)

        return self._events(begin, request.tenant, context)

    async def get_extended_agent_card(
        self, request: pb.GetExtendedAgentCardRequest, *, context: SdkContext | None = None
    ) -> pb.AgentCard:
        """Return the extended card; the present card if it declares no extended one."""
        if not self._card.capabilities.extended_agent_card:
            return self._card
        return await self._ask(unary_calls.GET_EXTENDED_AGENT_CARD, request, context)

    # ── Common to all operations ─────────────────────────────────────────────────────────────

    async def _ask(
        self, operation: UnaryCall[Any, Any, M], request: Any, context: SdkContext | None
    ) -> M:
        with self._errors:
            return to_proto(await self._value(operation.ask, request, context), operation.answer)

    async def _value(self, ask: Ask[Any, R], request: Any, context: SdkContext | None) -> R:
        check_request(request)
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
                    yield to_proto(to_response(event), pb.StreamResponse)
                    if isinstance(event, Task | TaskStatusUpdateEvent):
                        is_settled = event.status.state.is_settled
                    settled_task = events.task if is_settled else None
                for event in late_artifacts(settled_task, events.task):
                    yield to_proto(to_response(event), pb.StreamResponse)
                await _raise_agent_error(events)

    def _options(
        self, tenant: str, context: SdkContext | None, *, streams: bool = False
    ) -> CallOptions:
        """Return the options of a call.

        Raises:
            A2AClientError: The transport is closed, or a header or the timeout is not valid.
            TypeError: The context is not one of the SDK.
        """
        check_context(context)
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
            "timeouts": None
            if timeout is None
            else self._timeouts_of_call(timeout, streams=streams),
        }
        if timeout is not None and not streams:
            options["timeout"] = check_seconds("timeout", timeout)
        parameters = None if context is None else context.service_parameters
        if self._httpx_settings is not None or parameters:
            headers = {} if self._httpx_settings is None else self._httpx_settings.headers()
            options["headers"] = {**headers, **check_caller_headers(parameters or {})}
        return options

    def _timeouts_of_call(self, timeout: float, *, streams: bool) -> Timeouts:
        """Return the timeouts of each attempt of a call with a timeout of its own."""
        own = self._timeouts
        if streams:
            return msgspec.structs.replace(own, first_byte=timeout, idle=timeout)
        return msgspec.structs.replace(
            own, first_byte=max(own.first_byte, timeout), idle=max(own.idle, timeout)
        )

    def _params(self, request: Any) -> Any:
        """Return the parameters; a message without an id gets one, by which it can be found.

        The SDK adds the interface's own tenant, which protocol 0.3 does not have: the client adds
        it where the protocol has one, and another tenant is an option of the call.
        """
        params: Any = msgspec.structs.replace(to_params(request), tenant=None)
        message = getattr(params, "message", None)
        if message is None or message.message_id:
            return params
        identified = msgspec.structs.replace(message, message_id=self._env.new_id())
        return msgspec.structs.replace(params, message=identified)


async def _raise_agent_error(events: EventStream) -> None:
    """Raise the error with which the agent ended a stream, if its task failed without a message.

    The task is then all that is left of the agent's failure, and it does not give the reason.
    """
    task = events.task
    if task is None or task.state is not TaskState.FAILED or task.status.message is not None:
        return
    try:
        await events.result()
    except TaskFailedError as error:
        if isinstance(error.__cause__, A2AError):
            raise error.__cause__ from None


# ── The card ─────────────────────────────────────────────────────────────────────────────────


def _card_of(card: pb.AgentCard, url: str, binding: str | None) -> AgentCard:
    """Return a card with the interface at one address only, and with all capabilities.

    The SDK's client has compared its request with the capabilities of the card, and that card may
    have been replaced since; so the client must not compare them again.
    """
    bindings = HTTP_BINDINGS if binding is None else (binding,)
    full_card = to_card(card)
    interfaces = [
        msgspec.structs.replace(interface, protocol_binding=interface.protocol_binding.upper())
        for interface in full_card.supported_interfaces
        if interface.url == url and interface.protocol_binding.upper() in bindings
    ]
    first = interfaces[0].protocol_binding if interfaces else bindings[0]
    default = AgentInterface(url=url, protocol_binding=first, protocol_version=PROTOCOL_VERSION)
    return msgspec.structs.replace(
        full_card,
        name=card.name or presentable(url),
        supported_interfaces=tuple(i for i in interfaces if i.protocol_binding == first)
        or (default,),
        capabilities=AgentCapabilities(
            streaming=True, push_notifications=True, extended_agent_card=True
        ),
    )


def _card_fault(url: str, error: A2AError) -> str:
    """Return why a card is not valid; if the address is the reason, with a suggestion."""
    try:
        check_url(url, "address of the agent")
    except ValueError as address_error:
        return f"{error}; {address_error}"
    return str(error)
