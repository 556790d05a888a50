"""The calls of a client: ids, headers and deadlines, sending, watching tasks, calling consumers.

`Client` has the protocol's operations; what they share is here.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import math
from itertools import count
from typing import TYPE_CHECKING, Any, TypeVar, cast

import msgspec

from holdfast._aio.cancel_scope import CancelScope, wait_until
from holdfast._aio.closing import close_in_turn
from holdfast._aio.per_loop import PerLoop
from holdfast._aio.watchdog import Watchdog
from holdfast._arguments import (
    check_configuration,
    check_items,
    check_json_object,
    check_key,
    check_seconds,
)
from holdfast._auth.providers import one_provider
from holdfast._client.abandoned_calls import AbandonedCalls
from holdfast._client.call_scope import CallScope
from holdfast._client.content import Content, to_user_message
from holdfast._client.options import CallOptions, SendOptions, check_call_options
from holdfast._model.card_checks import check_card
from holdfast._model.operations import (
    GET_AGENT_CARD,
    GET_EXTENDED_AGENT_CARD,
    GET_TASK,
    SEND_NAMES,
)
from holdfast._pipeline.caller_operation import CallerOperation
from holdfast._pipeline.cards.fetch import CardLocation
from holdfast._pipeline.cards.trust import received_card
from holdfast._pipeline.interfaces_layer import CHOOSE_INTERFACE
from holdfast._pipeline.transport import (
    Call,
    CallGroup,
    CallProgress,
    Reply,
    Stream,
    Transport,
)
from holdfast._policy.deadline import Deadline, callback_deadline_error
from holdfast._stream.replies import PendingReply, Replies
from holdfast.errors import (
    A2AConnectionError,
    A2AError,
    CardSignatureError,
    DeadlineExceededError,
    InvalidAgentCardError,
)
from holdfast.types import (
    GetExtendedAgentCardRequest,
    GetTaskRequest,
    SendMessageConfiguration,
    SendMessageRequest,
    SendMessageResponse,
    Task,
    TaskPushNotificationConfig,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable, Mapping
    from weakref import WeakSet

    from holdfast._aio.env import Env
    from holdfast._journal.writer import Journaling
    from holdfast._model.operations import Operation
    from holdfast._pipeline.admission import Admission
    from holdfast._pipeline.cards.replicas import ReplicaCards
    from holdfast._pipeline.cards.resolver import AgentCardResolver
    from holdfast._pipeline.cards.trust import AcceptedCard, CardTrust
    from holdfast._pipeline.cards.verification import CardVerification
    from holdfast._pipeline.credentials import AuthProviderRef
    from holdfast._pipeline.endpoints import Endpoint, KnownEndpoints
    from holdfast._pipeline.listeners import Consumer, Interceptor, ListenerSet, Observers
    from holdfast._pipeline.order import CallPipeline
    from holdfast._pipeline.transport import AnyCall
    from holdfast._policy.reconcile import ContextIds, OnUnknown
    from holdfast._policy.resilience import Resilience
    from holdfast._stream.resumable import ResumableStream
    from holdfast._wire.limits import Limits
    from holdfast.types import AgentCard, AgentInterface, Event, Message

__all__ = ["ClientCore", "is_terminal"]

P = TypeVar("P")
R = TypeVar("R")


_DEFAULT_CONFIGURATION = SendMessageConfiguration()


_WITHOUT_REQUEST = frozenset({GET_AGENT_CARD.name, CHOOSE_INTERFACE.name})
"""Operations that are answered from a cache, or by requests of their own."""

_QUESTION_TIMEOUT_S = 5.0
"""Seconds to learn the question of a task before the reply to it is sent."""

_CLOSE_TIMEOUT_S = 10.0
"""Seconds in which a stack of layers has to close; each layer in it has less."""


class ClientCore:
    """Makes calls over a stack of layers.

    Args:
        pipeline: The stack for operations.
        cards: The stack for `GET_AGENT_CARD`.
        choices: The stack for `CHOOSE_INTERFACE`.
        resolver: Fetches and caches the card.
        env: The source of ids, random numbers and wall time.
        timeout: Seconds of a call that names no timeout.
        headers: Sent with every call.
        extensions: URIs for ``A2A-Extensions`` of every call.
        configuration: The configuration of messages, where a call does not override it.
        hooks: Interceptors and consumers: see calls, and get every task and message.
        auth: The source of credentials.
        observers: Notified of reconnects and of searches for lost replies.
        resilience: How streams are resumed and lost replies searched for.
        limits: How large a streamed task may become.
        streaming: Whether to use streams where they are offered.
        on_unknown: What to do about a message whose reply was lost.
        context_ids: Whether the agent or the client creates the id of a conversation.
        journaling: Records calls; None without a journal.
        endpoints: The addresses that it learns.
        admissions: The limits of calls in flight, per event loop; None for no limit.
        trust: Decides which cards are used.

    Attributes:
        timeout: Seconds of a call that names no timeout.
        env: The source of ids, random numbers and wall time.
        observers: Notified of reconnects and of searches for lost replies.
        resilience: How streams are resumed and lost replies searched for.
        limits: How large a streamed task may become.
        streaming: Whether to use streams where they are offered.
        replies: The questions of tasks as last seen, and the replies sent to them.
        hooks: Interceptors and consumers; a caller may add to them.
        auth: The source of credentials; a caller may set it later.
        context_ids: Whether the agent or the client creates the id of a conversation.
        journaling: Records calls; None without a journal.
        endpoints: The addresses that it has learned.
        admissions: The limits of calls in flight, per event loop; None for no limit.
        agent: The address that answered last, as shown in errors.
        endpoint: The endpoint that was called last; None before the first call.
        subscribing_is_safe: Whether a subscription leaves the agent's task unchanged; None until
            an agent has answered.
        is_closing: Whether it takes no more calls.
        is_closed: Whether the calls in flight end, too.
        streams: The open streams, by the ids of their tasks.
        abandoned: The calls whose tasks are being canceled.
    """

    def __init__(
        self,
        pipeline: CallPipeline,
        cards: Transport,
        choices: Transport,
        resolver: AgentCardResolver | ReplicaCards,
        env: Env,
        *,
        timeout: float,
        headers: Mapping[str, str],
        extensions: tuple[str, ...],
        configuration: SendMessageConfiguration,
        hooks: ListenerSet,
        auth: AuthProviderRef,
        observers: Observers,
        resilience: Resilience,
        limits: Limits,
        streaming: bool,
        on_unknown: OnUnknown,
        context_ids: ContextIds,
        journaling: Journaling | None,
        endpoints: KnownEndpoints,
        admissions: PerLoop[Admission] | None,
        trust: CardTrust,
    ) -> None:
        self.timeout = timeout
        self.observers = observers
        self.resilience = resilience
        self.limits = limits
        self.streaming = streaming
        self.env = env
        self.replies = Replies()
        self.hooks = hooks
        self.auth = auth
        self.context_ids = context_ids
        self.journaling = journaling
        self.endpoints = endpoints
        self.admissions = admissions
        self.agent: str | None = None
        self.endpoint: Endpoint | None = None
        self.subscribing_is_safe: bool | None = None
        self._on_unknown: OnUnknown = on_unknown
        self._pipeline = pipeline
        self._transport = pipeline.transport
        self._cards = cards
        self._choices = choices
        self._resolver = resolver
        self._trust = trust
        self._extended: AcceptedCard | None = None  # unless a public card was returned after it
        self._headers = headers
        self._extensions = extensions
        self._configuration = configuration
        self._name = env.new_id()
        self._numbers = count(1)
        self.is_closing = self.is_closed = False
        self._closing = PerLoop(asyncio.Event)
        self._watchdogs = PerLoop(Watchdog)
        self.streams: dict[str, WeakSet[ResumableStream]] = {}
        self.abandoned = AbandonedCalls()

    def refuse_calls(self) -> None:
        """Refuse new calls, and messages of calls in flight; their other requests pass."""
        self.is_closing = True
        if self.journaling is not None:
            self.journaling.refuse_calls()

    async def close(self) -> None:
        """Refuse all requests, wake calls that wait between requests, and close all layers."""
        self.refuse_calls()
        self.is_closed = True
        self._closing.here().set()
        journaling = () if self.journaling is None else (self.journaling,)
        stacks = (self._transport, self._cards, self._choices)
        await close_in_turn((*journaling, *stacks, self._trust), seconds=_CLOSE_TIMEOUT_S)

    @property
    def watchdog(self) -> Watchdog:
        """The time limits of streams in the running event loop."""
        return self._watchdogs.here()

    def add_interceptors(self, added: tuple[Interceptor, ...]) -> None:
        """Add interceptors, for calls that begin from now on.

        Raises:
            ValueError: The client has another source of credentials already.
        """
        self.auth.provider = one_provider(self.auth.provider, added)
        self.hooks.interceptors += added
        self._pipeline.update()

    def expect_change(self, task_id: str) -> None:
        """Make the streams of a task poll it soon, because a change is expected."""
        for stream in tuple(self.streams.get(task_id, ())):
            stream.expect_change()

    async def pause(self, seconds: float) -> None:
        """Wait between two calls, until the client is closed at the latest."""
        async with CancelScope.within(seconds):
            await self._closing.here().wait()

    def deadline(
        self, name: str, timeout: float | None, loop: asyncio.AbstractEventLoop | None = None
    ) -> Deadline:
        """Return a deadline that begins now; a stream without a timeout has no deadline.

        Args:
            name: What errors call it.
            timeout: Its seconds; None for the client's.
            loop: The running loop, if the caller has it.

        Raises:
            ValueError: The timeout is not a positive number of seconds.
        """
        if timeout is None:
            seconds = math.inf if name == "stream" else self.timeout
        else:
            seconds = check_seconds("timeout", timeout)
        now = (loop or asyncio.get_running_loop()).time()
        return Deadline(name=name, timeout=seconds, at=now + seconds)

    def begin(
        self,
        name: str,
        options: CallOptions | SendOptions,
        *,
        method: Callable[..., Any],
        sends: bool = False,
        operation_name: str | None = None,
    ) -> CallScope:
        """Check the options of a call, and begin it now.

        Args:
            name: What the call's deadline is called.
            options: What the caller passes.
            method: The method that takes the options, for errors about its own arguments.
            sends: Whether the call may send a message.
            operation_name: What observers call it; the name of the method if left out.

        Raises:
            ValueError: A timeout, header or URI that is not valid.
            TypeError: An option that does not exist, or is of another type.
        """
        loop = asyncio.get_running_loop()
        operation = self._operation(operation_name or method.__name__, loop)
        call_group = CallGroup(operation=operation, loop=loop)
        if not options:
            return CallScope(
                deadline=self.deadline(name, None, loop),
                extensions=self._extensions,
                consumers=self.hooks.consumers,
                call_group=call_group,
                on_unknown=self._on_unknown,
            )
        checked = check_call_options(options, sends=sends, method=method)
        return CallScope(
            deadline=self.deadline(name, checked.get("timeout"), loop),
            headers=cast("dict[str, str]", checked.get("headers") or {}),
            extensions=tuple(dict.fromkeys((*self._extensions, *checked.get("extensions", ())))),
            context=checked.get("context"),
            tenant=checked.get("tenant"),
            timeouts=checked.get("timeouts"),
            consumers=self.hooks.consumers,
            call_group=call_group,
            on_unknown=checked.get("on_unknown", self._on_unknown),
        )

    def keyed(self, scope: CallScope, key: str | None) -> CallScope:
        """Return the scope of a call that has a key; the same scope if the key is None.

        Raises:
            ValueError: The key is not valid, or there is no journal.
            TypeError: It is not a string.
        """
        if key is None:
            return scope
        check_key(key)
        journaling = self.journaling_for("key=")
        from holdfast._client.keyed_calls import KeySpace  # not needed without a journal

        keyed = KeySpace(self, journaling, None).call(key)
        return msgspec.structs.replace(scope, keyed=keyed)

    def journaling_for(self, feature: str) -> Journaling:
        """Return what records calls, for a feature that needs a journal.

        Raises:
            ValueError: There is no journal.
        """
        if self.journaling is None:
            text = (
                f"{feature} needs a journal; pass one as connect(…, journal=…) or "
                "Coordinator(…, journal=…)"
            )
            raise ValueError(text)
        return self.journaling

    def configuration(
        self,
        *,
        return_immediately: bool | None = None,
        history_length: int | None = None,
        accepted_output_modes: Iterable[str] | None = None,
        push_notification_config: TaskPushNotificationConfig | None = None,
    ) -> SendMessageConfiguration:
        """Return the configuration of a message: the client's, overridden by the call's.

        Raises:
            ValueError: A value that is not valid.
            TypeError: An argument of another type.
        """
        own = self._configuration
        modes, push = own.accepted_output_modes, own.task_push_notification_config
        if accepted_output_modes is not None:
            modes = check_items("accepted_output_modes", accepted_output_modes)
        if push_notification_config is not None:
            push = push_notification_config
        configuration = SendMessageConfiguration(
            accepted_output_modes=modes,
            task_push_notification_config=push,
            history_length=own.history_length if history_length is None else history_length,
            return_immediately=(
                own.return_immediately if return_immediately is None else return_immediately
            ),
        )
        return check_configuration(configuration)

    def _operation(
        self, name: str, loop: asyncio.AbstractEventLoop | None = None
    ) -> CallerOperation:
        return CallerOperation(
            self.observers,
            name,
            f"{self._name}-{next(self._numbers)}",
            is_observed=self.observers.are_active(),
            loop=loop,
        )

    @property
    def needs_card(self) -> bool:
        """Whether the next call has to fetch the agent's card first."""
        return self._resolver.is_needed

    async def card(self, scope: CallScope) -> AgentCard:
        """Return the agent's card, for the caller or for another call."""
        card = (await self._cards.unary(self._call(GET_AGENT_CARD, CardLocation(()), scope))).value
        self._extended = None
        return card

    async def chosen_interface(self, scope: CallScope) -> AgentInterface:
        """Choose the interface that a call would go to, without making one."""
        return (await self._choices.unary(self._call(CHOOSE_INTERFACE, None, scope))).value

    async def extended_card(self, scope: CallScope) -> AgentCard:
        """Fetch the agent's extended card, which replaces the public one.

        A card that was fetched for a context, or with headers of the call, does not: it may be
        specific to one user, and would mislead other users of the client.
        """
        request, deadline = GetExtendedAgentCardRequest(), scope.deadline
        call = self._call(GET_EXTENDED_AGENT_CARD, request, scope)
        reply = await self._made(call)
        with scope.hiding_secrets():
            try:
                check_card(reply.value)
                accepted = await wait_until(
                    deadline.at,
                    self._trust.accept(call, received_card(reply)),
                    lambda: callback_deadline_error("the card was not verified", deadline, None),
                )
            except (InvalidAgentCardError, CardSignatureError) as error:
                error.agent = self.agent
                raise
        self._extended = accepted
        if scope.context is None and not scope.headers:  # otherwise it may be one user's own
            self._resolver.replace(accepted, scope.secrets.values())
        return accepted.card

    @property
    def card_verification(self) -> CardVerification | None:
        """The result of verifying the latest card's signatures; None before there is a card."""
        if self._extended is not None:
            return self._extended.verification
        return self._resolver.verification

    @property
    def card_document(self) -> Mapping[str, Any] | None:
        """The JSON object of the latest card as received; None before there is a card."""
        extended = self._extended
        received = self._resolver.received if extended is None else extended.received
        return None if received is None or not received.is_whole else received.document

    def call(
        self,
        operation: Operation[P, R],
        params: P,
        scope: CallScope,
        *,
        is_retried: bool = True,
        progress: CallProgress | None = None,
    ) -> Coroutine[Any, Any, Reply[R]]:
        """Make one call that has one answer."""
        return self._made(
            self._call(operation, params, scope, is_retried=is_retried, progress=progress)
        )

    async def _made(self, call: Call[P, R]) -> Reply[R]:
        try:
            reply = await self._transport.unary(call)
        except BaseException:
            self.endpoint = call.progress.endpoint or self.endpoint
            raise
        self._note(call, reply.endpoint)
        value: object = reply.value
        task = value.task if isinstance(value, SendMessageResponse) else value
        if isinstance(task, Task):
            self.replies.record_status(task.id, task.status)
        return reply

    async def stream(
        self,
        operation: Operation[P, R],
        params: P,
        scope: CallScope,
        *,
        is_retried: bool = True,
        progress: CallProgress | None = None,
    ) -> Reply[Stream[R]]:
        """Open one connection of a stream."""
        call = self._call(operation, params, scope, is_retried=is_retried, progress=progress)
        try:
            reply = await self._transport.stream(call)
        except BaseException:
            self.endpoint = call.progress.endpoint or self.endpoint
            raise
        self._note(call, reply.endpoint)
        return reply

    def _note(self, call: AnyCall, endpoint: Endpoint | None) -> None:
        """Remember the endpoint that has answered; None for the reply of a layer."""
        self.endpoint = endpoint or call.progress.endpoint or self.endpoint
        if endpoint is not None:
            self.agent, self.subscribing_is_safe = endpoint.agent, endpoint.subscribing_is_safe
        elif self.subscribing_is_safe is None:
            self.subscribing_is_safe = True  # a transport without endpoints

    def request(
        self,
        content: Content,
        *,
        task_id: str | None,
        context_id: str | None,
        metadata: Mapping[str, Any] | None,
        configuration: SendMessageConfiguration | None = None,
        message_metadata: Mapping[str, Any] | None = None,
    ) -> SendMessageRequest:
        """Return the request that sends a message, with an id that all attempts share.

        Args:
            content: The message.
            task_id: The task that it continues.
            context_id: The conversation that it belongs to.
            metadata: The metadata of the request.
            configuration: The configuration of the message; the client's own if left out.
            message_metadata: The metadata of the message.
        """
        message = to_user_message(
            content,
            new_id=self.env.new_id(),
            task_id=task_id,
            context_id=context_id,
            metadata=message_metadata,
        )
        if configuration is None:
            configuration = self._configuration
        return SendMessageRequest(
            message=message,
            configuration=None if configuration == _DEFAULT_CONFIGURATION else configuration,
            metadata=None if metadata is None else check_json_object("metadata", metadata),
        )

    async def get_task(self, task_id: str, scope: CallScope) -> Task:
        """Fetch a task."""
        return (await self.call(GET_TASK, GetTaskRequest(id=task_id), scope)).value

    async def replying(
        self,
        message: Message,
        scope: CallScope,
        *,
        last_seen: Task | None = None,
        asks: bool = True,
    ) -> PendingReply | None:
        """Return a message as a reply to an interrupted task, before it is sent, or None.

        Args:
            message: The message.
            scope: The deadline of the call, and what each of its requests carries.
            last_seen: The task, where the caller has it.
            asks: Whether to fetch a task that was not seen yet: once, for 5 s at most. Without a
                reply, its question is unknown: see `PendingReply`.
        """
        task_id = message.task_id
        if not task_id:
            return None
        question = last_seen.status if last_seen is not None else self.replies.question(task_id)
        if question is None:
            if not asks:
                return None
            at = min(scope.deadline.at, asyncio.get_running_loop().time() + _QUESTION_TIMEOUT_S)
            own_deadline = Deadline(name="look", timeout=_QUESTION_TIMEOUT_S, at=at)
            request = GetTaskRequest(id=task_id)
            call_group = CallGroup(secrets=scope.secrets, operation=scope.call_group.operation)
            own_scope = msgspec.structs.replace(
                scope, deadline=own_deadline, call_group=call_group
            )
            with contextlib.suppress(A2AError):
                task = await self.call(GET_TASK, request, own_scope, is_retried=False)
                question = task.value.status
            if question is not None and not question.state.is_settled:
                question = None  # a store that lags may not show the question yet
        if question is not None and not question.state.is_interrupted:
            return None
        return PendingReply(task_id, message.message_id, question, message)

    def check_watching(self, task_id: str) -> None:
        """Raise an error if the client is closed while a task is watched.

        Raises:
            A2AConnectionError: The client is closed.
        """
        if self.is_closed:
            text = f"the client was closed while task {task_id} was watched"
            raise A2AConnectionError(text, failure="closed", agent=self.agent)

    def _call(
        self,
        operation: Operation[P, R],
        params: P,
        scope: CallScope,
        *,
        is_retried: bool = True,
        progress: CallProgress | None = None,
    ) -> Call[P, R]:
        call_group = scope.call_group
        if call_group.operation is None:  # a scope that no method of a client began
            call_group.operation = self._operation(operation.name)
        if self.is_closing and self._refuses(operation, call_group):
            self.check_open()
        request_id = call_group.operation.id
        if operation.name not in _WITHOUT_REQUEST:
            request_id = call_group.operation.add_request(operation.name, params)
        if not isinstance(params, SendMessageRequest) or params.configuration is not None:
            _note_push_secrets(params, scope)
        if scope.tenant is not None and operation.name not in _WITHOUT_REQUEST:
            named: Any = params
            params = msgspec.structs.replace(named, tenant=scope.tenant)
        if progress is None:
            now = (call_group.loop or asyncio.get_running_loop()).time()
            progress = CallProgress(began=now, call_group=call_group)
        return Call(
            operation=operation,
            params=params,
            request_id=request_id,
            deadline=scope.deadline,
            timeouts=scope.timeouts,
            headers={**self._headers, **scope.headers} if scope.headers else self._headers,
            extensions=scope.extensions,
            context=scope.context,
            auth=self.auth.provider,
            is_retried=is_retried,
            progress=progress,
        )

    def _refuses(self, operation: Operation[P, R], call_group: CallGroup) -> bool:
        """Return whether a client that is closing refuses a request."""
        caller_operation = call_group.operation
        is_begun = caller_operation is not None and caller_operation.requests > 0
        is_new = not is_begun and not call_group.is_abandoned
        return self.is_closed or is_new or operation.name in SEND_NAMES

    def check_open(self) -> None:
        """Raise a RuntimeError if the client takes no more calls."""
        if self.is_closing:
            text = "the client is closed"
            raise RuntimeError(text)

    async def call_consumers(
        self, consumers: Iterable[Consumer], event: Event, task: Task | None, scope: CallScope
    ) -> None:
        """Call consumers with an event, in order, with the card as last seen.

        An expired card is not fetched again: an event that has arrived must not be lost because
        the card is not available.
        """
        deadline = scope.deadline

        async def call_each() -> None:
            card = self._resolver.last or await self.card(scope)
            for consumer in consumers:
                pending = consumer(event, task, card)
                if inspect.isawaitable(pending):
                    await pending

        def too_late() -> DeadlineExceededError:
            return callback_deadline_error("a consumer did not finish", deadline, task)

        await wait_until(deadline.at, call_each(), too_late)


def _note_push_secrets(params: object, scope: CallScope) -> None:
    """Note the secrets in the push notification configurations of a request."""
    push = params if isinstance(params, TaskPushNotificationConfig) else None
    if isinstance(params, SendMessageRequest) and params.configuration is not None:
        push = params.configuration.task_push_notification_config
    if push is not None:
        scope.secrets.note_values(push.secrets)


def is_terminal(task: Task) -> bool:
    """Return whether a task is over."""
    return task.state.is_terminal
