"""The client: the protocol's operations as methods, and waiting for the tasks that they create.

The layers of every call are listed in `holdfast._pipeline.order`.
"""

from __future__ import annotations

from collections.abc import AsyncIterable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar, Unpack, cast

import msgspec

from holdfast._aio.closing import ClosingContext, close_in_turn
from holdfast._arguments import (
    check_hook,
    check_hooks,
    check_items,
    check_iterable,
    check_json_object,
    check_not_empty,
    check_not_negative,
    check_push_config,
    check_rate,
    check_seconds,
    format_timestamp,
)
from holdfast._client.circuit import Circuit
from holdfast._client.content import to_message
from holdfast._client.core import ClientCore, is_terminal
from holdfast._client.event_stream import EventStream
from holdfast._client.options import check_call_options
from holdfast._client.sending import SendOperation
from holdfast._client.stats import ClientStats, client_stats
from holdfast._client.streams import StreamCalls
from holdfast._client.task_waiter import wait_for_task, watch_task
from holdfast._model import operations as op
from holdfast._model.codec import MalformedError
from holdfast._model.sendable import check_sendable
from holdfast._model.settings import check_count, check_kind
from holdfast.errors import (
    A2AError,
    CancelUnconfirmedError,
    DeadlineExceededError,
    InvalidAgentResponseError,
    TaskAuthRequiredError,
    TaskNotCancelableError,
    TaskNotFoundError,
)
from holdfast.types import (
    CancelTaskRequest,
    DeleteTaskPushNotificationConfigRequest,
    GetTaskPushNotificationConfigRequest,
    GetTaskRequest,
    ListTaskPushNotificationConfigsRequest,
    ListTaskPushNotificationConfigsResponse,
    ListTasksRequest,
    ListTasksResponse,
    Message,
    SendMessageRequest,
    Task,
    TaskPushNotificationConfig,
    TaskState,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping, Sequence
    from datetime import datetime

    from holdfast._aio.closing import Closable
    from holdfast._client.answer import Answer
    from holdfast._client.batch import BulkRun, RunItem
    from holdfast._client.call_scope import CallScope
    from holdfast._client.client_tools import ClientTools
    from holdfast._client.content import Content
    from holdfast._client.conversation import Conversation, InterruptionHook
    from holdfast._client.options import CallOptions, SendOptions
    from holdfast._client.pending import PendingCall, ResumedCall
    from holdfast._journal.writer import Journaling
    from holdfast._model.operations import Operation
    from holdfast._pipeline.cards.verification import CardVerification
    from holdfast._pipeline.listeners import Consumer, Interceptor
    from holdfast._pipeline.observed_call import ObservedCall
    from holdfast._pipeline.transport import CallGroup, Reply
    from holdfast._policy.deadline import Deadline
    from holdfast.types import AgentCard, AgentInterface

__all__ = ["Client", "asking", "chosen_interface", "streaming", "subscribing"]

P = TypeVar("P")
R = TypeVar("R")

_CANCEL_TIMEOUT_S = 60.0
_CLOSE_TIMEOUT_S = 30.0
_MAX_EMPTY_PAGES = 100


class Client(ClosingContext):
    """Calls one agent. Made by `holdfast.connect`; use it as an async context manager.

    Every operation takes `CallOptions` by keyword, and raises an `A2AError`: an error that the
    protocol names, one of the transport, or `DeadlineExceededError`. Only a client that was
    closed raises a RuntimeError.
    """

    def __init__(self, core: ClientCore, *, owned: Sequence[Closable]) -> None:
        self._core = core
        self._owned = owned

    async def close(self) -> None:
        """End the calls in flight, and close the connections unless the engine is borrowed.

        Calls in flight get 1 s to finish and raise an `A2AConnectionError`; later calls raise a
        RuntimeError. Everything is closed even if a caller-supplied layer or transport raises
        meanwhile; the first of these errors is raised at the end. Can be called twice.

        Raises:
            TimeoutError: Such a layer took longer than 10 s to close, or a transport 5 s.
        """
        await close_in_turn((self._core, *self._owned), seconds=_CLOSE_TIMEOUT_S)

    # ── Consumers and interceptors ───────────────────────────────────────────────────────────

    async def add_event_consumer(self, consumer: Consumer) -> None:
        """Add a consumer after the present ones; it gets no events of calls in flight.

        Raises:
            TypeError: It cannot be called.
        """
        added = check_hooks("consumers", (consumer,), "__call__")
        self._core.hooks.consumers += added

    async def add_request_middleware(self, interceptor: Interceptor) -> None:
        """Add an interceptor after the present ones; calls in flight are not affected.

        An `AuthInterceptor` becomes the source of credentials; they are sent only to the origins
        that `connect` allows.

        Raises:
            ValueError: The client has another source of credentials already.
            TypeError: It is not an interceptor.
        """
        added = check_hooks("interceptors", (interceptor,), "before", "after")
        self._core.add_interceptors(added)

    # ── State ────────────────────────────────────────────────────────────────────────────────

    @property
    def circuit(self) -> Circuit:
        """The agent's circuit breaker, which can be opened, closed and reset by hand."""
        return Circuit(self._core)

    def stats(self) -> ClientStats:
        """Return the client's statistics so far; costs nothing, and holds no secret."""
        core = self._core
        return client_stats(core.agent, core.endpoints, core.resilience, core.admissions)

    # ── The card ─────────────────────────────────────────────────────────────────────────────

    async def agent_card(self, *, timeout: float | None = None) -> AgentCard:
        """Return the agent's card, from the cache while it is fresh.

        Args:
            timeout: Seconds; the client's own timeout if left out or None.

        Raises:
            AgentCardResolutionError: There is no card.
            InvalidAgentCardError: It is not usable.
            CardSignatureError: Its signature is wrong; or it is not verified, and must be.
        """
        return await self._core.card(self._core.deadline("call", timeout), is_asked_for=True)

    @property
    def card_verification(self) -> CardVerification | None:
        """The result of verifying the signatures of the latest card, public or extended.

        None before there is a card. Without ``connect(card_verifier=…)`` no signature is verified.
        """
        return self._core.card_verification

    @property
    def card_document(self) -> Mapping[str, Any] | None:
        """The JSON object of the latest card as received, with members that the model lacks.

        None before there is a card, and for a card that was passed as an `AgentCard`. For a card
        received over gRPC it is the JSON form of the message, and None if the message has unknown
        fields or is of protocol 0.3.
        """
        return self._core.card_document

    async def discover(self, *, timeout: float | None = None) -> AgentCard:
        """Return the agent's card; the same as `agent_card`."""
        return await self.agent_card(timeout=timeout)

    async def get_extended_agent_card(self, **options: Unpack[CallOptions]) -> AgentCard:
        """Fetch the card for authenticated clients (A2A 3.1.11), which replaces the public one.

        Raises:
            UnsupportedOperationError: The agent offers no extended card.
            ExtendedAgentCardNotConfiguredError: The agent declares an extended card but has none.
            InvalidAgentCardError: It is not usable.
            CardSignatureError: Its signature is wrong; or it is not verified, and must be.
        """
        scope = self._core.begin("call", options, method=Client.get_extended_agent_card)
        return await self._core.extended_card(scope)

    # ── Pending calls ────────────────────────────────────────────────────────────────────────

    async def pending(self, *, message_id: str | None = None) -> list[PendingCall]:
        """Return the calls to this agent that have no outcome in the journal, oldest first.

        They include calls that a client works on, this client among them: see
        `PendingCall.is_held`; and calls whose record is damaged, which cannot be resumed: see
        `PendingCall.damage`.

        Args:
            message_id: Return only the call of this message; all calls if left out.

        Raises:
            JournalError: The journal, or the record of that message, cannot be read.
            ValueError: There is no journal: see `connect`; or the message id is empty.
            TypeError: The message id is not text.
            RuntimeError: The client was closed.
        """
        if message_id is not None:
            check_not_empty("message_id", message_id)
        from holdfast._client.pending import PendingCall  # not needed without a journal

        journaling = self._journaling("pending()")
        return [
            PendingCall(record, self._core, journaling)
            for record in await journaling.unfinished(message_id)
        ]

    def resume_pending(
        self,
        *,
        concurrency: int = 8,
        poll_interval: float = 2.0,
        **options: Unpack[CallOptions],
    ) -> AsyncIterator[ResumedCall]:
        """Resume all pending calls, and iterate over their outcomes as they arrive.

        The failure of one call is in its outcome, and does not end the iteration. No message is
        sent again: see `PendingCall.resume`. A call is finished in the journal once its outcome is
        yielded: if the caller stops iterating earlier, or the call times out, it stays pending.

        Args:
            concurrency: Calls to resume at the same time, at most; at least 1.
            poll_interval: Seconds between two polls of a task that has to be polled.
            options: Options of each call; see `CallOptions`.

        Raises:
            JournalError: The journal cannot be read; raised by the first step.
            ValueError: There is no journal: see `connect`; or an option is not valid.
        """
        check_count("concurrency", concurrency, least=1)
        check_seconds("poll_interval", poll_interval)
        journaling = self._journaling("resume_pending()")
        check_call_options(options, method=Client.resume_pending)
        from holdfast._client.pending import resume_all  # not needed without a journal

        return resume_all(
            self._core,
            journaling,
            concurrency=concurrency,
            poll_interval=poll_interval,
            options=options,
        )

    def _journaling(self, feature: str) -> Journaling:
        journaling = self._core.journaling
        if journaling is None:
            text = f"{feature} needs a journal; pass one as connect(journal=…)"
            raise ValueError(text)
        return journaling

    # ── Messages ─────────────────────────────────────────────────────────────────────────────

    async def ask(
        self,
        message: Content,
        *,
        task_id: str | None = None,
        context_id: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        message_metadata: Mapping[str, Any] | None = None,
        accepted_output_modes: Iterable[str] | None = None,
        push_notification_config: TaskPushNotificationConfig | None = None,
        tools: ClientTools | Iterable[Callable[..., Any]] = (),
        poll_interval: float = 2.0,
        **options: Unpack[SendOptions],
    ) -> Answer:
        """Send a message and wait for the answer, however long the agent works on it.

        If the agent's card declares streaming, the answer is streamed, and a cut connection is
        resumed; otherwise the agent is asked to return the task immediately, and the task is
        polled. The call ends when the task is over or waits for input; it continues while the
        task waits for an authorization. An exception of a consumer is raised as it is, after the
        message was sent.

        Args:
            message: Text, parts, a `Message` or its JSON object.
            task_id: The task to continue.
            context_id: The conversation to continue.
            metadata: A JSON object for the metadata of the request (``params.metadata``).
            message_metadata: A JSON object to add to the message's own metadata
                (``message.metadata``); it wins where both have a member.
            accepted_output_modes: Media types that the caller accepts; the client's own if left
                out, any if empty.
            push_notification_config: Where the agent sends updates of the task; the client's own
                if left out.
            tools: Functions that the agent may call, through AG2's extension for client tools;
                their results are sent to the agent, and the answer is its last one.
            poll_interval: Seconds between two polls of the task; the first polls are quicker.

        Raises:
            TaskFailedError: The task failed; also `TaskRejectedError`, `TaskCanceledError`.
            OutcomeUnknownError: The message was sent, its reply was lost, and no task of it was
                found; it was not sent again, unless ``on_unknown`` allows it.
            DeadlineExceededError: The timeout expired; `task` is the task as last seen.
            TaskAuthRequiredError: The timeout expired while the task waits for an authorization.
            ClientToolsNotSupportedError: The agent does not support tools; nothing was sent.
            LimitExceededError: The agent called tools too often; `task` waits for their results.
            ValueError: The message has no content.
        """
        check_seconds("poll_interval", poll_interval)
        offered = _offered(tools, options)
        scope = self._core.begin("call", options, sends=True, method=Client.ask)
        events = self._sending(
            scope,
            message,
            task_id=task_id,
            context_id=context_id,
            metadata=metadata,
            message_metadata=message_metadata,
            accepted_output_modes=accepted_output_modes,
            push_notification_config=push_notification_config,
            tools=offered,
            poll_interval=poll_interval,
            until_deadline=True,
        )
        async with events:
            return await events.result()

    async def send_message(
        self,
        message: Content,
        *,
        task_id: str | None = None,
        context_id: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        message_metadata: Mapping[str, Any] | None = None,
        return_immediately: bool | None = None,
        history_length: int | None = None,
        accepted_output_modes: Iterable[str] | None = None,
        push_notification_config: TaskPushNotificationConfig | None = None,
        **options: Unpack[SendOptions],
    ) -> Task | Message:
        """Send a message: the raw operation (A2A 3.1.1), which the agent may block.

        Without `return_immediately`, the agent replies when the task is over or interrupted, to
        one request that any network failure until then may cut; `ask` does not depend on that.

        Args:
            message: Text, parts, a `Message` or its JSON object.
            task_id: The task to continue.
            context_id: The conversation to continue.
            metadata: A JSON object for the metadata of the request (``params.metadata``).
            message_metadata: A JSON object to add to the message's own metadata
                (``message.metadata``); it wins where both have a member.
            return_immediately: Whether the agent replies as soon as the task exists; if left out,
                it does not, unless the client is configured so.
            history_length: How many messages of the task's history to return at most.
            accepted_output_modes: Media types that the caller accepts; the client's own if left
                out, any if empty.
            push_notification_config: Where the agent sends updates of the task; the client's own
                if left out.

        Returns:
            The task, in whatever state it is, or the agent's message.

        Raises:
            OutcomeUnknownError: The message was sent, its reply was lost, and no task of it was
                found; it was not sent again, unless ``on_unknown`` allows it.
            ValueError: The message has no content.
        """
        scope = self._core.begin("call", options, sends=True, method=Client.send_message)
        core, configuration = self._core, None
        if (
            return_immediately is not None
            or history_length is not None
            or accepted_output_modes is not None
            or push_notification_config is not None
        ):
            configuration = core.configuration(
                return_immediately=return_immediately,
                history_length=history_length,
                accepted_output_modes=accepted_output_modes,
                push_notification_config=push_notification_config,
            )
        request = core.request(
            message,
            task_id=task_id,
            context_id=context_id,
            metadata=metadata,
            message_metadata=message_metadata,
            configuration=configuration,
        )
        with core.observed(scope, op.SEND_MESSAGE.name):
            result = (await SendOperation(core, request, scope).answer()).value
            if scope.consumers:
                task = result if isinstance(result, Task) else None
                await core.call_consumers(scope.consumers, result, task, scope.deadline)
            return result

    def run(
        self,
        messages: Iterable[Content | RunItem] | AsyncIterable[Content | RunItem],
        *,
        run_id: str | None = None,
        concurrency: int = 32,
        rate: float | None = None,
        poll_interval: float = 2.0,
        **options: Unpack[SendOptions],
    ) -> BulkRun:
        """Send many messages, a few at a time, and yield the result of each as it arrives.

        Each message is sent as by `ask`, and its failure is its result. With a journal and a
        ``run_id``, a run whose process was killed is resumed by the same call with the same
        messages: calls that were sent are resumed, results that are recorded are not requested
        again, and no message is sent twice, unless ``on_unknown`` allows it. Two concurrent runs
        with the same ``run_id`` share the work, and each yields every result. A message that
        differs from the one that was sent under its key has a `RunItemChangedError` as its
        result. An exception of a consumer or another hook ends the run.

        Args:
            messages: The messages; each is identified by its position, which must stay the same,
                or by the key of a `RunItem`.
            run_id: Names the run in the journal.
            concurrency: How many messages are in flight at once, at most.
            rate: How many messages are begun per second at most, more than 0; None for as many as
                ``concurrency`` admits.
            poll_interval: Seconds between two polls of a task; the first polls are quicker.
            options: See `SendOptions`; ``timeout`` limits, for each message, everything that this
                run does about it.
                done about it in this run.

        Raises:
            ValueError: A number that is not valid, or a ``run_id`` without a journal.
            TypeError: An argument of another type.
        """
        check_iterable("messages", messages, Iterable, AsyncIterable)
        check_count("concurrency", concurrency, least=1)
        check_seconds("poll_interval", poll_interval)
        if rate is not None:
            check_rate("rate", rate)
        check_call_options(options, sends=True, method=Client.run)
        records = None
        if run_id is not None:
            check_not_empty("run_id", run_id)
            from holdfast._client.run_records import RunRecords  # not needed without a journal

            journaling = self._journaling("run_id")
            records = RunRecords(self._core, journaling, run_id, poll_interval=poll_interval)

        def begin(label: str | None) -> tuple[CallScope, ObservedCall]:
            scope = self._core.begin("call", options, sends=True, method=Client.run)
            observed = self._core.observed(scope, op.SEND_STREAMING_MESSAGE.name)
            return msgspec.structs.replace(scope, label=label), observed

        async def ask(message: Message, scope: CallScope) -> Answer:
            events = self._sending(
                scope, message, poll_interval=poll_interval, until_deadline=True
            )
            async with events:
                return await events.result()

        from holdfast._client.batch import BulkRun  # most programs send messages one by one

        return BulkRun(messages, begin, ask, records, concurrency=concurrency, rate=rate)

    def stream_message(
        self,
        message: Content,
        *,
        task_id: str | None = None,
        context_id: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        message_metadata: Mapping[str, Any] | None = None,
        accepted_output_modes: Iterable[str] | None = None,
        push_notification_config: TaskPushNotificationConfig | None = None,
        tools: ClientTools | Iterable[Callable[..., Any]] = (),
        poll_interval: float = 2.0,
        **options: Unpack[SendOptions],
    ) -> EventStream:
        """Send a message and stream its answer (A2A 3.1.2).

        The message is sent when the stream is entered; a ``timeout`` counts from this call.
        Without a timeout only the task's end ends the stream; a connection on which nothing
        arrives for longer than `Timeouts.idle` counts as cut. An agent without streaming is
        polled, and the events are derived from the task's states. So is an agent of protocol 0.3
        after a cut, because a subscription may change its task (see `subscribe_to_task`).

        Args:
            message: Text, parts, a `Message` or its JSON object.
            task_id: The task to continue.
            context_id: The conversation to continue.
            metadata: A JSON object for the metadata of the request (``params.metadata``).
            message_metadata: A JSON object to add to the message's own metadata
                (``message.metadata``); it wins where both have a member.
            accepted_output_modes: Media types that the caller accepts; the client's own if left
                out, any if empty.
            push_notification_config: Where the agent sends updates of the task; the client's own
                if left out.
            tools: Functions that the agent may call: see `ask`. The stream continues over all the
                turns that this takes, and its events include the calls.
            poll_interval: Seconds between two polls where the task has to be polled.
        """
        check_seconds("poll_interval", poll_interval)
        offered = _offered(tools, options)
        scope = self._core.begin("stream", options, sends=True, method=Client.stream_message)
        return self._sending(
            scope,
            message,
            task_id=task_id,
            context_id=context_id,
            metadata=metadata,
            message_metadata=message_metadata,
            accepted_output_modes=accepted_output_modes,
            push_notification_config=push_notification_config,
            tools=offered,
            poll_interval=poll_interval,
            until_deadline=False,
        )

    def _sending(
        self,
        scope: CallScope,
        message: Content,
        *,
        task_id: str | None = None,
        context_id: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        message_metadata: Mapping[str, Any] | None = None,
        accepted_output_modes: Iterable[str] | None = None,
        push_notification_config: TaskPushNotificationConfig | None = None,
        tools: ClientTools | None = None,
        poll_interval: float,
        until_deadline: bool,
    ) -> EventStream:
        """Return the stream of an answer, which sends the message when it is entered."""
        calls = StreamCalls(
            self._core,
            scope,
            poll_interval=poll_interval,
            until_deadline=until_deadline,
        )
        send = partial(
            calls.send,
            metadata=metadata,
            configuration=self._core.configuration(
                return_immediately=None,
                accepted_output_modes=accepted_output_modes,
                push_notification_config=push_notification_config,
            ),
        )
        if tools is None:
            sends = send(
                message,
                task_id=task_id,
                context_id=context_id,
                message_metadata=message_metadata,
            )
            return EventStream(calls, sends)
        first = to_message(
            message,
            new_id=self._core.env.new_id(),
            task_id=task_id,
            context_id=context_id,
            metadata=message_metadata,
        )
        check_json_object("metadata", metadata)  # an invalid argument raises now, not when sending
        from holdfast._client.client_tools import ToolLoop  # few calls offer tools

        tool_loop = ToolLoop(tools, self._core, calls)
        return EventStream(calls, partial(tool_loop.begin, first, send))

    def conversation(
        self,
        *,
        context_id: str | None = None,
        task: Task | None = None,
        on_input: InterruptionHook | None = None,
        on_auth: InterruptionHook | None = None,
        input_timeout: float | None = None,
        tools: ClientTools | Iterable[Callable[..., Any]] = (),
        timeout: float = 86400.0,
        max_turns: int = 32,
        poll_interval: float = 2.0,
    ) -> Conversation:
        """Begin a conversation, or continue one: messages that belong together.

        Args:
            context_id: The conversation to continue.
            task: The task to continue, as last seen; it names its conversation.
            on_input: Input handler: replies to the questions of a task. Without it, and where it
                returns None, the question is the answer (`Answer.needs_input`).
            on_auth: Handles an authorization that the agent requests; where it returns None, or
                the authorization was granted meanwhile, the client waits until the task continues.
            input_timeout: Seconds that a handler has; as long as the turn if left out.
            tools: Functions that the agent may call in each turn: see `ask`. Calls that `task`
                itself contains are not run, because they may have been answered elsewhere.
            timeout: Seconds of a turn, including handlers and tools.
            max_turns: How many replies of the handlers a turn may take; 0 for none.
            poll_interval: Seconds between two polls where the task has to be polled.

        Raises:
            ValueError: A number that is not valid; or the task is of another conversation.
            TypeError: An argument of another type.
        """
        check_seconds("poll_interval", poll_interval)
        check_seconds("timeout", timeout)
        if input_timeout is not None:
            check_seconds("input_timeout", input_timeout)
        check_count("max_turns", max_turns)
        for name, hook in (("on_input", on_input), ("on_auth", on_auth)):
            if hook is not None:
                check_hook(name, hook)
        if context_id is not None:
            check_not_empty("context_id", context_id)
        if task is not None:
            check_kind("task", task, Task)
            if context_id is not None and task.context_id not in {None, context_id}:
                text = f"task {task.id} is of the conversation {task.context_id!r}"
                raise ValueError(text)
        handlers = {TaskState.INPUT_REQUIRED: on_input, TaskState.AUTH_REQUIRED: on_auth}
        from holdfast._client.client_tools import resolve_tools
        from holdfast._client.conversation import Conversation  # most programs have none

        return Conversation(
            self._core,
            context_id=context_id,
            task=task,
            hooks={state: hook for state, hook in handlers.items() if hook is not None},
            input_timeout=input_timeout,
            tools=resolve_tools(tools),
            timeout=timeout,
            max_turns=max_turns,
            poll_interval=poll_interval,
        )

    # ── Tasks ────────────────────────────────────────────────────────────────────────────────

    async def get_task(
        self,
        task_id: str,
        *,
        history_length: int | None = None,
        **options: Unpack[CallOptions],
    ) -> Task:
        """Fetch the current state of a task (A2A 3.1.3).

        Args:
            task_id: The task.
            history_length: How many messages of its history to return at most; None leaves it to
                the agent. Some agents truncate the stored history to the length requested.

        Raises:
            TaskNotFoundError: The agent does not know it.
        """
        reply = await self._call(
            op.GET_TASK,
            GetTaskRequest(
                id=check_not_empty("task_id", task_id),
                history_length=check_not_negative("history_length", history_length),
            ),
            options,
            method=Client.get_task,
        )
        return reply.value

    async def list_tasks(
        self,
        context_id: str | None = None,
        *,
        status: TaskState | None = None,
        limit: int = 50,
        page_token: str | None = None,
        history_length: int | None = None,
        status_timestamp_after: datetime | str | None = None,
        include_artifacts: bool = False,
        **options: Unpack[CallOptions],
    ) -> ListTasksResponse:
        """List one page of tasks, the most recently updated first (A2A 3.1.4).

        Args:
            context_id: Only tasks of this conversation.
            status: Only tasks in this state.
            limit: Tasks on a page, 1 to 100.
            page_token: ``next_page_token`` of the previous page.
            history_length: How many messages of each history to return at most.
            status_timestamp_after: Only tasks whose status is not older than this; a time
                without a time zone is read as UTC.
            include_artifacts: Whether to return artifacts.

        Raises:
            UnsupportedOperationError: The agent speaks protocol 0.3, in which this operation is
                optional, and does not offer it.
        """
        request = _list_request(
            context_id,
            status=status,
            limit=limit,
            page_token=page_token,
            history_length=history_length,
            status_timestamp_after=status_timestamp_after,
            include_artifacts=include_artifacts,
        )
        return (await self._call(op.LIST_TASKS, request, options, method=Client.list_tasks)).value

    def iter_tasks(
        self,
        context_id: str | None = None,
        *,
        status: TaskState | None = None,
        limit: int = 50,
        history_length: int | None = None,
        status_timestamp_after: datetime | str | None = None,
        include_artifacts: bool = False,
        **options: Unpack[CallOptions],
    ) -> AsyncIterator[Task]:
        """Iterate over all tasks, page by page; for the arguments see `list_tasks`.

        ``limit`` and ``timeout`` apply to each page. A task that is updated meanwhile may be
        skipped.

        Raises:
            InvalidAgentResponseError: The agent returns the same page again and again, or empty
                pages without end.
            ValueError: An argument that is not valid; raised by the call itself.
            TypeError: An argument of another type; raised by the call itself.
        """
        options["extensions"] = check_items(
            "extensions", options.get("extensions", ())
        )  # for each page
        check_call_options(options, method=Client.list_tasks)
        request = _list_request(
            context_id,
            status=status,
            limit=limit,
            page_token=None,
            history_length=history_length,
            status_timestamp_after=status_timestamp_after,
            include_artifacts=include_artifacts,
        )
        return self._iter_tasks(request, options)

    async def _iter_tasks(
        self, request: ListTasksRequest, options: CallOptions
    ) -> AsyncIterator[Task]:
        token, seen, empty = "", set[str](), 0
        while True:
            request = msgspec.structs.replace(request, page_token=token or None)
            reply = await self._call(op.LIST_TASKS, request, options, method=Client.list_tasks)
            page = reply.value
            for task in page.tasks:
                yield task
            token = page.next_page_token
            if not token:
                return
            empty = 0 if page.tasks else empty + 1
            if token in seen or empty > _MAX_EMPTY_PAGES:
                reason = "a page token came twice" if token in seen else f"{empty} empty pages"
                text = f"the agent's list of tasks has no end: {reason}"
                raise InvalidAgentResponseError(text, agent=self._core.agent)
            seen.add(token)

    async def wait(
        self,
        task_id: str,
        *,
        until: Callable[[Task], bool] | None = None,
        poll_interval: float = 2.0,
        **options: Unpack[CallOptions],
    ) -> Task:
        """Wait until a task is over or needs input, and return it in either state.

        Temporary failures do not end the wait. Nor does a task that waits for an authorization,
        which may be granted out of band (A2A 7.6), nor the question that the task asked before
        this client replied: some servers show it for a while.

        Args:
            task_id: The task.
            until: Predicate of the task that ends the wait, in place of the rule above.
            poll_interval: Seconds between two polls; the first polls are quicker.

        Raises:
            DeadlineExceededError: The timeout expired; `task` is the task as last seen.
            TaskAuthRequiredError: The timeout expired while the task waits for an authorization.
            TaskNotFoundError: The agent does not know it.
        """
        check_seconds("poll_interval", poll_interval)
        check_not_empty("task_id", task_id)
        if until is not None:
            check_hook("until", until)
        scope = self._core.begin("wait", options, method=Client.wait)
        calls = StreamCalls(self._core, scope, poll_interval=poll_interval, until_deadline=True)

        def follow(task: Task) -> EventStream:
            return EventStream(calls, calls.follow(task_id, task))

        with self._core.observed(scope, op.GET_TASK.name):
            return await wait_for_task(
                self._core, task_id, scope, poll_interval, until=until, follow=follow
            )

    def subscribe_to_task(
        self,
        task_id: str,
        *,
        force_subscription: bool = False,
        poll_interval: float = 2.0,
        **options: Unpack[CallOptions],
    ) -> EventStream:
        """Yield the current state of a task, and then its events (A2A 3.1.6).

        A task that is over is its only event. For the rest see `stream_message`.

        The official Python server of protocol 0.3 adds what it sends to a subscriber to the stored
        task a second time: from then on, the task contains its text twice, for every client. That
        server also hangs about 1,000 events after a subscriber has disconnected. A task of an
        agent of 0.3 is therefore polled instead, and the log says so.

        Args:
            task_id: The task.
            force_subscription: Whether to subscribe at an agent of protocol 0.3 all the same.
            poll_interval: Seconds between two polls where the task has to be polled.
        """
        check_seconds("poll_interval", poll_interval)
        check_not_empty("task_id", task_id)
        check_kind("force_subscription", force_subscription, bool)
        scope = self._core.begin("stream", options, method=Client.subscribe_to_task)
        calls = StreamCalls(self._core, scope, poll_interval=poll_interval)
        return EventStream(calls, calls.subscribe_to(task_id, forced=force_subscription))

    async def cancel_task(
        self,
        task_id: str,
        *,
        confirm: bool = True,
        metadata: Mapping[str, Any] | None = None,
        poll_interval: float = 2.0,
        **options: Unpack[CallOptions],
    ) -> Task:
        """Ask the agent to cancel a task (A2A 3.1.5), and wait until the task is over.

        Agents may accept the request and continue, or have completed the task meanwhile: check
        the state of the returned task. A ``timeout`` that is left out is 60 s, or the client's own
        if that is less.

        Args:
            task_id: The task.
            confirm: Whether to wait until it is over; otherwise the agent's reply is returned.
            metadata: A JSON object for the metadata of the request.
            poll_interval: Seconds between two polls; the first polls are quicker.

        Raises:
            TaskNotCancelableError: The task is over already, or cannot be canceled.
            TaskNotFoundError: The agent does not know it.
            CancelUnconfirmedError: The task did not end in time; `task` is the task as last seen.
        """
        check_seconds("poll_interval", poll_interval)
        check_kind("confirm", confirm, bool)
        if options.get("timeout") is None:
            options["timeout"] = min(_CANCEL_TIMEOUT_S, self._core.timeout)
        scope = self._core.begin("cancel", options, method=Client.cancel_task)
        request = CancelTaskRequest(
            id=check_not_empty("task_id", task_id),
            metadata=check_json_object("metadata", metadata),
        )
        with self._core.observed(scope, op.CANCEL_TASK.name):
            try:
                task = (await self._core.call(op.CANCEL_TASK, request, scope)).value
            except (TaskNotCancelableError, TaskNotFoundError) as error:
                task = await self._canceled_before(task_id, error, scope)
            self._core.expect_change(task_id)  # an agent may not notify every subscriber
            if not confirm or task.state.is_terminal:
                return task
            try:
                task = await watch_task(
                    self._core, task_id, task, scope, poll_interval, until=is_terminal
                )
            except (DeadlineExceededError, TaskAuthRequiredError) as error:
                raise CancelUnconfirmedError(
                    f"task {task_id} is still {_state_of(error.task)} {scope.deadline.shown} "
                    "after the agent took the request to cancel it",
                    task=error.task or task,
                    **error.facts(),
                ) from error
            self._core.expect_change(task_id)
            return task

    # ── Push notifications ───────────────────────────────────────────────────────────────────

    async def create_task_push_notification_config(
        self,
        config: TaskPushNotificationConfig,
        **options: Unpack[CallOptions],
    ) -> TaskPushNotificationConfig:
        """Register an address to which the agent sends updates of ``config.task_id`` (A2A 3.1.7).

        Raises:
            PushNotificationNotSupportedError: The agent does not support push notifications.
            TaskNotFoundError: The agent does not know the task.
            ValueError: The task's id or the address is missing, or a text cannot be encoded.
            TypeError: It is not a `TaskPushNotificationConfig`.
        """
        check_push_config("config", config)
        check_not_empty("config.task_id", config.task_id or "")
        reply = await self._call(
            op.CREATE_PUSH_CONFIG,
            config,
            options,
            method=Client.create_task_push_notification_config,
        )
        return reply.value

    async def get_task_push_notification_config(
        self,
        task_id: str,
        config_id: str,
        **options: Unpack[CallOptions],
    ) -> TaskPushNotificationConfig:
        """Fetch one push notification configuration of a task (A2A 3.1.8)."""
        request = GetTaskPushNotificationConfigRequest(
            task_id=check_not_empty("task_id", task_id), id=check_not_empty("config_id", config_id)
        )
        reply = await self._call(
            op.GET_PUSH_CONFIG,
            request,
            options,
            method=Client.get_task_push_notification_config,
        )
        return reply.value

    async def list_task_push_notification_configs(
        self,
        task_id: str,
        *,
        limit: int | None = None,
        page_token: str | None = None,
        **options: Unpack[CallOptions],
    ) -> ListTaskPushNotificationConfigsResponse:
        """List one page of the push notification configurations of a task (A2A 3.1.9).

        Args:
            task_id: The task.
            limit: Configurations on a page; None leaves it to the agent.
            page_token: ``next_page_token`` of the previous page.
        """
        request = ListTaskPushNotificationConfigsRequest(
            task_id=check_not_empty("task_id", task_id),
            page_size=check_not_negative("limit", limit),
            page_token=_page_token(page_token),
        )
        reply = await self._call(
            op.LIST_PUSH_CONFIGS,
            request,
            options,
            method=Client.list_task_push_notification_configs,
        )
        return reply.value

    async def delete_task_push_notification_config(
        self,
        task_id: str,
        config_id: str,
        **options: Unpack[CallOptions],
    ) -> None:
        """Delete one configuration of a task (A2A 3.1.10); deleting it again is not an error.

        Raises:
            TaskNotFoundError: The agent does not know the task or the configuration.
        """
        request = DeleteTaskPushNotificationConfigRequest(
            task_id=check_not_empty("task_id", task_id), id=check_not_empty("config_id", config_id)
        )
        try:
            await self._call(
                op.DELETE_PUSH_CONFIG,
                request,
                options,
                method=Client.delete_task_push_notification_config,
            )
        except TaskNotFoundError as error:
            if not _ran_before(error):
                raise

    # ── Any operation ────────────────────────────────────────────────────────────────────────

    async def call(
        self,
        operation: Operation[P, R],
        params: P,
        **options: Unpack[SendOptions],
    ) -> Reply[R]:
        """Make a call of any unary operation, and return the whole reply.

        A message is sent as by `send_message`: it is recorded in the journal first, and if its
        reply is lost, the task that it created stands for the reply. Consumers are not called.

        Args:
            operation: The operation, of `holdfast.protocol.OPERATIONS`.
            params: Its parameters; a message has its id already.
            options: See `SendOptions`; ``on_unknown`` applies to messages.

        Raises:
            ValueError: The operation is answered by a stream, the message has no id, the request
                does not name its task or configuration, or contains a value that cannot be sent
                (an unpaired surrogate, or metadata that are not JSON).
            TypeError: The operation is not an `Operation`, or the parameters are not its own.
        """
        check_kind("operation", operation, op.Operation)
        check_kind("params", params, operation.request)
        if operation.streaming:
            text = f"{operation.name} is answered by a stream, not by one reply"
            raise ValueError(text)
        _check_named(operation, params)
        if isinstance(params, SendMessageRequest):
            check_not_empty("message_id", params.message.message_id)
            if operation.name == op.SEND_MESSAGE.name:
                check_sendable("params", params)
                scope = self._core.begin("call", options, sends=True, method=Client.call)
                with self._core.observed(scope, operation.name):
                    return cast(
                        "Reply[R]", await SendOperation(self._core, params, scope).response()
                    )
        return await self._call(operation, params, options, method=Client.call)

    async def _call(
        self,
        operation: Operation[P, R],
        params: P,
        options: CallOptions | SendOptions,
        *,
        method: Callable[..., Any],
    ) -> Reply[R]:
        check_sendable("params", params)
        scope = self._core.begin("call", options, method=method)
        return await self._core.call(operation, params, scope)

    async def _canceled_before(
        self,
        task_id: str,
        error: TaskNotCancelableError | TaskNotFoundError,
        scope: CallScope,
    ) -> Task:
        """Return the canceled task if an earlier attempt of the same cancel has succeeded."""
        if not _ran_before(error):
            raise error
        try:
            task = await self._core.get_task(task_id, scope)
        except TaskNotFoundError:
            raise error from None
        if task.state is not TaskState.CANCELED:
            raise error
        return task


def _offered(
    tools: ClientTools | Iterable[Callable[..., Any]], options: SendOptions
) -> ClientTools | None:
    """Return the tools of a call, whose extension it then requests; None if there are none."""
    if tools == ():
        return None
    from holdfast._client.client_tools import add_tools_extension, resolve_tools  # rarely needed

    offered = resolve_tools(tools)
    add_tools_extension(options, offered)
    return offered


def asking(
    client: Client, message: Content, options: SendOptions, *, within: Deadline | None = None
) -> tuple[EventStream, CallGroup, Deadline]:
    """Do what `Client.ask` does, for callers that query several agents.

    Args:
        client: The client that sends the message.
        message: The complete message.
        options: See `SendOptions`.
        within: A deadline besides that of the options.

    Returns:
        The stream of the answer, which sends the message when it is entered; the data that its
        requests share; and its deadline.
    """
    # A function of the class's own module: there is no public way to what siblings share.
    core = client._core  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
    scope = core.begin("call", options, sends=True)
    if within is not None and within.at < scope.deadline.at:
        scope = scope.within(within)
    ask = client._sending  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
    events = ask(scope, message, poll_interval=2.0, until_deadline=True)
    return events, scope.call_group, scope.deadline


async def chosen_interface(client: Client, **options: Unpack[CallOptions]) -> AgentInterface:
    """Return the interface that calls of a client go to, without a call.

    Args:
        client: The client.
        options: See `CallOptions`; credentials and headers decide whether an interface is refused.

    Raises:
        A2AError: The reason why no interface can be called.
    """
    core = client._core  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]  # as above
    return await core.chosen_interface(core.begin("call", options))


def streaming(
    client: Client,
    request: SendMessageRequest,
    options: CallOptions | SendOptions,
    *,
    opening: float | None = None,
) -> EventStream:
    """Do what `Client.stream_message` does, with a complete request.

    Args:
        client: The client that sends the message.
        request: The message, with its id, and its configuration.
        options: See `SendOptions`.
        opening: Seconds until the first event, including all attempts.
    """
    stream = _stream_calls(client, options, opening, sends=True)
    return EventStream(stream, stream.send_request(request))


def subscribing(
    client: Client, task_id: str, options: CallOptions, *, opening: float | None = None
) -> EventStream:
    """Do what `Client.subscribe_to_task` does, with a time limit of its own for the first event.

    Args:
        client: The client that subscribes.
        task_id: The task.
        options: See `CallOptions`.
        opening: Seconds until the first event, including all attempts.
    """
    stream = _stream_calls(client, options, opening)
    begin = stream.subscribe_to(
        check_not_empty("task_id", task_id), forced=True
    )  # the caller wants it
    return EventStream(stream, begin)


def _stream_calls(
    client: Client,
    options: CallOptions | SendOptions,
    opening: float | None,
    *,
    sends: bool = False,
) -> StreamCalls:
    core = client._core  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]  # as above
    scope = core.begin("stream", options, sends=sends)
    if opening is not None and options.get("timeout") is None:
        bound = core.deadline("call", opening)
        scope = scope.within(msgspec.structs.replace(bound, ends_at_first_event=True))
    return StreamCalls(core, scope, poll_interval=2.0)


def _list_request(
    context_id: str | None,
    *,
    status: TaskState | None,
    limit: int,
    page_token: str | None,
    history_length: int | None,
    status_timestamp_after: datetime | str | None,
    include_artifacts: bool,
) -> ListTasksRequest:
    """Return the request for a page of tasks; for the arguments see `Client.list_tasks`."""
    if context_id is not None:
        check_not_empty("context_id", context_id)
    if status is not None:
        check_kind("status", status, TaskState)
    if not 1 <= (check_not_negative("limit", limit) or 0) <= 100:
        text = "limit must be from 1 to 100"
        raise ValueError(text)
    check_kind("include_artifacts", include_artifacts, bool)
    return ListTasksRequest(
        context_id=context_id,
        status=status,
        page_size=limit,
        page_token=_page_token(page_token),
        history_length=check_not_negative("history_length", history_length),
        status_timestamp_after=format_timestamp("status_timestamp_after", status_timestamp_after),
        include_artifacts=include_artifacts or None,
    )


def _page_token(token: str | None) -> str | None:
    """Return the page token; None for an empty one, which the last page has."""
    if token is not None:
        check_kind("page_token", token, str)
    return token or None


def _check_named(operation: Operation[Any, Any], params: object) -> None:
    """Check that a request names its task or configuration, which only some bindings require."""
    for name in getattr(params, "__struct_fields__", ()):
        if f"{{{name}}}" in operation.path:
            value = getattr(params, name)
            if not value:
                text = f"the request lacks {name}"
                raise MalformedError(text)
            check_kind(f"params.{name}", value, str)


def _ran_before(error: A2AError) -> bool:
    """Return whether an earlier attempt of the same call may have been executed."""
    return any(attempt.executed is not False for attempt in error.attempts[:-1])


def _state_of(task: Task | None) -> str:
    return "in an unknown state" if task is None else task.state.name
