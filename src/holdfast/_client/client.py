"""The client: the protocol's operations as methods, and waiting for the tasks that they create.

The layers of every call are listed in `holdfast._pipeline.order`.
"""

from __future__ import annotations

from contextlib import aclosing
from functools import partial
from typing import TYPE_CHECKING, Any, Self, TypeVar, Unpack, cast

import msgspec

from holdfast._aio.async_only import AsyncOnlyIterator
from holdfast._aio.closing import ClosingContext, close_in_turn
from holdfast._arguments import (
    check_hook,
    check_hooks,
    check_interceptors,
    check_items,
    check_json_object,
    check_key,
    check_not_empty,
    check_not_negative,
    check_push_config,
    check_rate,
    check_seconds,
    format_timestamp,
)
from holdfast._client.cancel_request import may_have_run_before, request_cancel
from holdfast._client.circuit import Circuit
from holdfast._client.content import to_user_message
from holdfast._client.core import ClientCore, is_terminal
from holdfast._client.event_stream import EventStream, answer_of
from holdfast._client.options import check_call_options
from holdfast._client.sending import SendOperation
from holdfast._client.stats import ClientStats, client_stats
from holdfast._client.streams import StreamCalls
from holdfast._client.task_waiter import wait_for_task, watch_task
from holdfast._model import operations as op
from holdfast._model.codec import MalformedError
from holdfast._model.redacted_repr import short_repr
from holdfast._model.sendable import check_sendable
from holdfast._model.settings import check_count, check_kind, explains_unknown_options
from holdfast.errors import (
    CancelUnconfirmedError,
    DeadlineExceededError,
    InvalidAgentResponseError,
    TaskAuthRequiredError,
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
    from collections.abc import (
        AsyncGenerator,
        AsyncIterable,
        AsyncIterator,
        Awaitable,
        Callable,
        Generator,
        Iterable,
        Mapping,
        Sequence,
    )
    from datetime import datetime

    from holdfast._aio.closing import Closable
    from holdfast._client.answer import Answer
    from holdfast._client.batch import BulkRun, RunItem
    from holdfast._client.call_scope import CallScope
    from holdfast._client.client_tools import ClientTools
    from holdfast._client.content import Content
    from holdfast._client.conversation import Conversation, InterruptionHook
    from holdfast._client.keyed_calls import KeyedCall
    from holdfast._client.options import CallOptions, SendOptions
    from holdfast._client.pending import PendingCall, ResumedCall
    from holdfast._journal.writer import Journaling
    from holdfast._model.operations import Operation
    from holdfast._pipeline.cards.verification import CardVerification
    from holdfast._pipeline.listeners import Consumer, Interceptor
    from holdfast._pipeline.transport import Reply
    from holdfast._policy.deadline import Deadline
    from holdfast.types import AgentCard, AgentInterface

__all__ = [
    "Client",
    "asking",
    "chosen_interface",
    "has_journal",
    "journaling_of",
    "new_client",
    "streaming",
    "subscribing",
]

P = TypeVar("P")
R = TypeVar("R")

_CANCEL_TIMEOUT_S = 60.0
_CLOSE_TIMEOUT_S = 30.0
_MAX_EMPTY_PAGES = 100


class Client(ClosingContext):
    """Client of one agent, made by `connect`; use it as an async context manager.

    Every operation takes `CallOptions` by keyword, and raises an `A2AError` if it fails: an error
    that the protocol names, one of the transport, or `DeadlineExceededError`. A closed client
    raises a RuntimeError.
    """

    _core: ClientCore
    _owned: Sequence[Closable]
    _name: str

    def __init__(self, *_args: object, **_options: object) -> None:
        text = "a Client is made by holdfast.connect(url, …), which takes its options"
        raise TypeError(text)

    def __await__(self) -> Generator[Any, None, Self]:
        """Return the client itself: ``await connect(…)`` is the same as ``connect(…)``."""
        return self
        yield  # makes this a generator

    def __repr__(self) -> str:
        return short_repr(self, agent=self._name, is_closed=self._core.is_closed)

    async def close(self) -> None:
        """End the calls in flight, and close the connections unless the engine is borrowed.

        Later calls raise a RuntimeError at once. Then the tasks of calls that were abandoned
        (``cancel_on_abandon``) are canceled, which takes up to 20 s if their agents do not answer;
        calls in flight may finish meanwhile, but send no further messages. After that they get 1 s
        to finish and raise an `A2AConnectionError`. Everything is closed even if a caller-supplied
        layer or transport raises meanwhile; the first of these errors is raised at the end. Can be
        called twice.

        Raises:
            TimeoutError: Such a layer took longer than 10 s to close, or a transport 5 s.
        """
        self._core.refuse_calls()
        await close_in_turn(
            (self._core.abandoned, self._core, *self._owned), seconds=_CLOSE_TIMEOUT_S
        )

    # ── Consumers and interceptors ───────────────────────────────────────────────────────────

    async def add_event_consumer(self, consumer: Consumer) -> None:
        """Add a consumer behind the present ones, for calls that begin afterwards.

        Args:
            consumer: Function or coroutine function that is called with the event, the task after
                the event, and the agent's card (`Consumer`).

        Raises:
            TypeError: The consumer cannot be called.
        """
        added = check_hooks("consumers", (consumer,), "__call__")
        self._core.hooks.consumers += added

    async def add_interceptor(self, interceptor: Interceptor) -> None:
        """Add an interceptor behind the present ones, for calls that begin afterwards.

        An `AuthInterceptor` becomes the source of credentials; they are sent only to the origins
        that `connect` allows.

        Args:
            interceptor: An `Interceptor`, whose methods are called before and after each call.

        Raises:
            ValueError: The client has another source of credentials already.
            TypeError: The argument is not an interceptor.
        """
        added = check_interceptors((interceptor,))
        self._core.add_interceptors(added)

    async def add_request_middleware(self, interceptor: Interceptor) -> None:
        """Add an interceptor; the same as `add_interceptor`.

        Args:
            interceptor: An `Interceptor`, whose methods are called before and after each call.

        Raises:
            ValueError: The client has another source of credentials already.
            TypeError: The argument is not an interceptor.
        """
        await self.add_interceptor(interceptor)

    # ── State ────────────────────────────────────────────────────────────────────────────────

    @property
    def circuit(self) -> Circuit:
        """The agent's circuit breaker, which can be opened, closed and reset by hand."""
        return Circuit(self._core)

    def stats(self) -> ClientStats:
        """Return the client's statistics so far; without secrets, and without a request."""
        core = self._core
        return client_stats(core.agent, core.endpoints, core.resilience, core.admissions)

    # ── The card ─────────────────────────────────────────────────────────────────────────────

    @explains_unknown_options()
    async def agent_card(self, *, timeout: float | None = None) -> AgentCard:
        """Return the agent's card, from the cache while it is fresh.

        Args:
            timeout: Seconds, more than 0; the client's own timeout by default.

        Raises:
            AgentCardResolutionError: No card was found.
            InvalidAgentCardError: The card is not usable.
            CardSignatureError: The signature of the card is invalid, or is required and not
                verified.
        """
        options: CallOptions = {} if timeout is None else {"timeout": timeout}
        scope = self._core.begin("call", options, method=Client.agent_card)
        with scope.operation:
            return await self._core.card(scope)

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

    @explains_unknown_options()
    async def discover(self, *, timeout: float | None = None) -> AgentCard:
        """Return the agent's card; the same as `agent_card`.

        Args:
            timeout: Seconds, more than 0; the client's own timeout by default.

        Raises:
            A2AError: The card could not be fetched, is not usable, or its signature is not
                accepted.
        """
        return await self.agent_card(timeout=timeout)

    async def get_extended_agent_card(self, **options: Unpack[CallOptions]) -> AgentCard:
        """Fetch the card for authenticated clients (A2A 3.1.11), which replaces the public one.

        Args:
            options: Any of `CallOptions`: ``timeout`` (seconds; the client's own, 900, by
                default), ``headers``, ``extensions``, ``context`` and ``tenant`` (none by
                default), ``timeouts`` (the client's `Timeouts` by default).

        Raises:
            UnsupportedOperationError: The agent offers no extended card.
            ExtendedAgentCardNotConfiguredError: The agent declares an extended card but has none.
            InvalidAgentCardError: The card is not usable.
            CardSignatureError: The signature of the card is invalid, or is required and not
                verified.
        """
        scope = self._core.begin("call", options, method=Client.get_extended_agent_card)
        with scope.operation:
            return await self._core.extended_card(scope)

    # ── Pending calls ────────────────────────────────────────────────────────────────────────

    @explains_unknown_options()
    async def pending(self, *, message_id: str | None = None) -> list[PendingCall]:
        """Return the calls to this agent that have no known outcome in the journal, oldest first.

        They include calls that a client is working on (`PendingCall.is_held`), this client among
        them, calls whose task an earlier search did not find (`PendingCall.is_unknown`), and calls
        whose record is damaged (`PendingCall.damage`), which cannot be resumed.
        A call whose task waits for input (INPUT_REQUIRED) has an outcome, so it is not pending.

        Args:
            message_id: Return only the call of this message; all calls if left out.

        Raises:
            JournalError: The journal, or the record of that message, cannot be read.
            ValueError: The client has no journal (``connect(journal=…)``), or the message id is
                empty.
            TypeError: The message id is not text.
            RuntimeError: The client was closed.

        Example:
            Show the calls that a crashed process left::

                async with holdfast.connect("http://localhost:9999", journal="calls.db") as agent:
                    for call in await agent.pending():
                        print(call.message_id, call.began, call.state)
        """
        if message_id is not None:
            check_not_empty("message_id", message_id)
        from holdfast._client.pending import PendingCall  # not needed without a journal

        journaling = self._core.journaling_for("pending()")
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
        sent again. A call is finished in the journal once its outcome is yielded: if the caller
        stops iterating earlier, or the call times out, it stays pending. So does a call whose
        outcome is an `OutcomeUnknownError`, until its task is found or `PendingCall.dismiss` ends
        it; such calls come last, and each is searched for once.

        Args:
            concurrency: Calls to resume at the same time, at most; at least 1, 8 by default.
            poll_interval: Seconds between two polls of a task that has to be polled; more than 0,
                2 by default.
            options: Any of `CallOptions`: ``timeout`` (seconds; the client's own, 900, by
                default), ``headers``, ``extensions``, ``context`` and ``tenant`` (none by
                default), ``timeouts`` (the client's `Timeouts` by default).

        Raises:
            JournalError: The journal cannot be read; raised by the first step of the iteration.
            ValueError: The client has no journal (``connect(journal=…)``), or an option is not
                valid.
            TypeError: An argument of another type.

        Example:
            Finish the calls of a crashed process::

                async with holdfast.connect("http://localhost:9999", journal="calls.db") as agent:
                    async for outcome in agent.resume_pending():
                        print(outcome.message_id, outcome.error or outcome.answer.text)
        """
        check_count("concurrency", concurrency, least=1)
        check_seconds("poll_interval", poll_interval)
        journaling = self._core.journaling_for("resume_pending()")
        check_call_options(options, method=Client.resume_pending)
        from holdfast._client.pending import resume_all  # not needed without a journal

        outcomes = resume_all(
            self._core,
            journaling,
            concurrency=concurrency,
            poll_interval=poll_interval,
            options=options,
        )
        return AsyncOnlyIterator("resume_pending()", outcomes)

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
        cancel_on_abandon: bool = False,
        key: str | None = None,
        **options: Unpack[SendOptions],
    ) -> Answer:
        """Send a message and wait for the answer, however long the agent works on it.

        If the agent's card declares streaming, the answer is streamed, and a cut connection is
        resumed; otherwise the agent is asked to return the task immediately, and the task is
        polled. The call ends when the task is terminal or waits for input; it continues while the
        task waits for an authorization. An exception of a consumer is raised unchanged, after the
        message was sent.

        Args:
            message: The `Content` to send: text, parts, a `Message` or its JSON object.
            task_id: Id of the task to continue; a new task by default.
            context_id: Id of the conversation to continue; a new conversation by default.
            metadata: A JSON object for the metadata of the request (``params.metadata``); none by
                default.
            message_metadata: A JSON object to add to the message's own metadata
                (``message.metadata``); it takes precedence if both have a member.
            accepted_output_modes: Media types that the caller accepts; the client's own by
                default, any if empty.
            push_notification_config: Configuration with which the agent sends updates of the task;
                the client's own by default.
            tools: Functions that the agent may call, or `ClientTools`, through AG2's extension for
                client tools; their results are sent to the agent, and its last answer is returned.
            poll_interval: Seconds between two polls of the task; the first polls are quicker; more
                than 0, 2 by default.
            cancel_on_abandon: Whether to cancel the agent's task if the call is cancelled, or its
                timeout expires, before the task is terminal or needs input. The call does not
                wait: the client cancels the task in the background, as `stream_message` describes.
                False by default.
            key: Idempotency key: the name of the call in the client's journal, from 1 to 512
                characters; None, the default, for no key. The message of a key is executed at most
                once: if the journal has a call of the key, from this process or another one, this
                call sends nothing, waits for that call, resumes it if its process crashed, and
                returns its result. Only ``on_unknown="resend"`` or ``"resend_if_absent"`` may send
                the message again, if its outcome is unknown.
            options: Any of `SendOptions`: ``timeout`` (seconds; the client's own, 900, by
                default), ``headers``, ``extensions``, ``context`` and ``tenant`` (none by
                default), ``timeouts`` (the client's `Timeouts` by default), ``on_unknown`` (after
                a lost reply: the client's own, ``"reconcile"``, by default).

        Returns:
            The answer, which is a completed task, a task that waits for input
            (`Answer.needs_input`), or a message.

        Raises:
            KeyConflictError: The key was used for another message or another agent; nothing was
                sent.
            CallEndedError: The call of the key has ended without an answer that can be returned.
            TaskFailedError: The task failed; also `TaskRejectedError`, `TaskCanceledError`.
            OutcomeUnknownError: The message was sent, its reply was lost, and the search found no
                task of it. It was not sent again, unless ``on_unknown`` allows it.
            DeadlineExceededError: The timeout expired; ``task`` is the task in its last known
                state.
            TaskAuthRequiredError: The timeout expired while the task waits for an authorization.
            ClientToolsNotSupportedError: The agent does not support tools; nothing was sent.
            LimitExceededError: The agent called tools too often; ``task`` waits for their results.
            ValueError: The message has no content, or an argument is out of range.
            A2AError: Any other failure; ``executed`` says whether the agent executed the message.
            TypeError: An argument of another type.

        Example:
            Ask a question, and answer the agent's own question if it has one::

                async with holdfast.connect("http://localhost:9999") as agent:
                    answer = await agent.ask("How far is the moon?", timeout=60)
                    if answer.needs_input:
                        answer = await agent.ask("In kilometres.", task_id=answer.task_id)
                    print(answer.text)
        """
        check_seconds("poll_interval", poll_interval)
        offered = _offered(tools, options)
        scope = self._core.begin("call", options, sends=True, method=Client.ask)
        scope = self._core.keyed(scope, key)
        sending = partial(
            self._sending,
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
            cancel_on_abandon=cancel_on_abandon,
        )
        return await answer_of(sending, scope)

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
        key: str | None = None,
        **options: Unpack[SendOptions],
    ) -> Task | Message:
        """Send a message with the raw operation SendMessage (A2A 3.1.1).

        Without ``return_immediately``, the agent replies only when the task is terminal or
        interrupted, and any network failure until then cuts the request. `ask` does not depend on
        that.

        Args:
            message: The `Content` to send: text, parts, a `Message` or its JSON object.
            task_id: Id of the task to continue; a new task by default.
            context_id: Id of the conversation to continue; a new conversation by default.
            metadata: A JSON object for the metadata of the request (``params.metadata``); none by
                default.
            message_metadata: A JSON object to add to the message's own metadata
                (``message.metadata``); it takes precedence if both have a member.
            return_immediately: Whether the agent replies as soon as the task exists; False by
                default, unless the client's ``configuration`` says otherwise.
            history_length: Largest number of messages of the task's history to return, 0 or more;
                by default the agent decides.
            accepted_output_modes: Media types that the caller accepts; the client's own by
                default, any if empty.
            push_notification_config: Configuration with which the agent sends updates of the task;
                the client's own by default.
            key: Idempotency key: the name of the call in the client's journal, from 1 to 512
                characters; None, the default, for no key. The message of a key is executed at most
                once: if the journal has a call of the key, from this process or another one, this
                call sends nothing, waits for that call, resumes it if its process crashed, and
                returns its result. Only ``on_unknown="resend"`` or ``"resend_if_absent"`` may send
                the message again, if its outcome is unknown.
            options: Any of `SendOptions`: ``timeout`` (seconds; the client's own, 900, by
                default), ``headers``, ``extensions``, ``context`` and ``tenant`` (none by
                default), ``timeouts`` (the client's `Timeouts` by default), ``on_unknown`` (after
                a lost reply: the client's own, ``"reconcile"``, by default).

        Returns:
            The task, in any state, or the agent's message.

        Raises:
            KeyConflictError: The key was used for another message or another agent; nothing was
                sent.
            CallEndedError: The call of the key has ended without an answer that can be returned.
            OutcomeUnknownError: The message was sent, its reply was lost, and the search found no
                task of it. It was not sent again, unless ``on_unknown`` allows it.
            ValueError: The message has no content, or an argument is out of range.
            DeadlineExceededError: The timeout expired.
            A2AError: Any other failure; ``executed`` says whether the agent executed the message.
            TypeError: An argument of another type.

        Example:
            Send a message without waiting, and wait for its task later::

                async with holdfast.connect("http://localhost:9999") as agent:
                    task = await agent.send_message("Write the report.", return_immediately=True)
                    task = await agent.wait(task.id, timeout=600)
                    print(task.state, task.text)
        """
        scope = self._core.begin("call", options, sends=True, method=Client.send_message)
        scope = self._core.keyed(scope, key)
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

        async def send() -> Task | Message:
            return (await SendOperation(core, request, scope).answer()).value

        with scope.operation:
            if scope.keyed is None:
                result = await send()
            else:
                result = await scope.keyed.once(
                    request.message,
                    scope.deadline,
                    send=send,
                    earlier=lambda call: call.result(request, scope),
                )
            if scope.consumers:
                task = result if isinstance(result, Task) else None
                await core.call_consumers(scope.consumers, result, task, scope)
            return result

    def run(
        self,
        messages: Iterable[Content | RunItem] | AsyncIterable[Content | RunItem],
        *,
        run_id: str | None = None,
        concurrency: int = 32,
        rate: float | None = None,
        poll_interval: float = 2.0,
        shared: bool = False,
        **options: Unpack[SendOptions],
    ) -> BulkRun:
        """Send many messages, a few at a time, and yield the result of each as it arrives.

        Each message is sent as by `ask`, and its failure is its result. With a journal and a
        ``run_id``, a run whose process was killed is resumed by the same call with the same
        messages: calls that were sent are resumed, and no message is sent twice, unless
        ``on_unknown`` allows it. The answer of a finished message comes from the journal if that
        stores messages (``SqliteJournal(path, store_messages=True)``). Otherwise its task is
        fetched from the agent, and the result is a `TaskNotFoundError` if the agent has lost it,
        or a `CallEndedError` if the answer was a message without a task. Two concurrent runs with
        the same ``run_id`` share the work, and each yields every result; if they are ``shared``,
        each yields the results of the messages that it sent or resumed. If another message was
        sent under the key of a message, its result is a `KeyConflictError`. If the agent asks
        a question, the result is a `TaskInputRequiredError`. An exception of a consumer or another
        hook ends the run.

        A run has no deadline of its own: end it with `BulkRun.stop` or `BulkRun.close`.

        Args:
            messages: The messages to send, each a `Content` or a `RunItem`. A message is
                identified by its position, which must stay the same, or by the key of its
                `RunItem`. A tuple of two strings is refused: it is either a key with its message,
                which is a `RunItem`, or a message of two parts, which is a list.
            run_id: Name of the run in the journal, from 1 to 512 characters without control
                characters; None, the default, records no run.
            concurrency: Largest number of messages in flight; at least 1, 32 by default.
            rate: Largest number of messages to send per second, more than 0; None, the default,
                for no limit. Messages that an earlier run sent are not delayed.
            poll_interval: Seconds between two polls of a task; the first polls are quicker; more
                than 0, 2 by default.
            shared: Whether several processes share the run: messages that another process has
                sent are left to that process, without a result here, and resumed if it crashed.
                The run ends when all messages have ended. A message whose outcome is unknown has
                ended: ``on_unknown`` applies to it only in a later run that is not shared. False
                by default; needs a ``run_id``.
            options: Any of `SendOptions`: ``timeout`` (seconds; the client's own, 900, by
                default), ``headers``, ``extensions``, ``context`` and ``tenant`` (none by
                default), ``timeouts`` (the client's `Timeouts` by default), ``on_unknown`` (after
                a lost reply: the client's own, ``"reconcile"``, by default). The timeout limits,
                for each message, everything that this run does about it.

        Returns:
            The results, in the order in which they arrive; nothing is sent before the iteration.

        Raises:
            ValueError: A number is out of range, there is a ``run_id`` and no journal, or the run
                is shared and has no ``run_id``.
            TypeError: An argument of another type.

        Example:
            Send many messages, of which eight are in flight::

                async with holdfast.connect("http://localhost:9999") as agent:
                    async for result in agent.run(["one", "two", "three"], concurrency=8):
                        print(result.key, result.error or result.answer.text)
        """
        from holdfast._client.batch import (  # most programs send messages one by one
            BulkRun,
            check_messages,
        )

        check_messages(messages)
        check_count("concurrency", concurrency, least=1)
        check_seconds("poll_interval", poll_interval)
        if rate is not None:
            check_rate("rate", rate)
        check_call_options(options, sends=True, method=Client.run)
        check_kind("shared", shared, bool)
        keys = None
        if shared and run_id is None:
            text = "a shared run needs a run_id, the same in all its processes"
            raise ValueError(text)
        if run_id is not None:
            check_key(run_id, "run_id")
            from holdfast._client.keyed_calls import KeySpace  # not needed without a journal

            journaling = self._core.journaling_for("run_id")
            keys = KeySpace(self._core, journaling, run_id, is_shared=shared)

        def begin(keyed: KeyedCall | None) -> CallScope:
            scope = self._core.begin("call", options, sends=True, method=Client.run)
            scope.operation.starts_with_request = shared
            return msgspec.structs.replace(scope, keyed=keyed)

        async def ask(message: Message, scope: CallScope) -> Answer:
            sending = partial(
                self._sending, scope, message, poll_interval=poll_interval, until_deadline=True
            )
            return await answer_of(sending, scope)

        return BulkRun(messages, begin, ask, keys, concurrency=concurrency, rate=rate)

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
        cancel_on_abandon: bool = False,
        key: str | None = None,
        **options: Unpack[SendOptions],
    ) -> EventStream:
        """Send a message, and stream the events of its answer (A2A 3.1.2).

        The message is sent when the stream is entered; a ``timeout`` counts from this call.
        Without a timeout only the end of the task ends the stream; a connection on which nothing
        arrives for longer than `Timeouts.idle` counts as cut.

        An agent that does not offer streaming is polled, and the events are derived from the
        task's states. An agent of protocol 0.3 is polled after a cut, because a subscription may
        change its task (`subscribe_to_task` explains this).

        Args:
            message: The `Content` to send: text, parts, a `Message` or its JSON object.
            task_id: Id of the task to continue; a new task by default.
            context_id: Id of the conversation to continue; a new conversation by default.
            metadata: A JSON object for the metadata of the request (``params.metadata``); none by
                default.
            message_metadata: A JSON object to add to the message's own metadata
                (``message.metadata``); it takes precedence if both have a member.
            accepted_output_modes: Media types that the caller accepts; the client's own by
                default, any if empty.
            push_notification_config: Configuration with which the agent sends updates of the task;
                the client's own by default.
            tools: Functions that the agent may call, or `ClientTools`, as for `ask`. The stream
                continues over all the turns that the calls take, and its events include the calls.
            poll_interval: Seconds between two polls of a task that has to be polled; more than 0,
                2 by default.
            cancel_on_abandon: Whether to cancel the agent's task if the caller leaves the stream
                early, or is cancelled, or if the timeout expires, before the task is terminal or
                needs input. The caller does not wait: the client cancels the task in the
                background, and `Client.close` waits for that. Without an event so far, the client
                waits up to 10 s for the first one. If the task's id is still unknown, it searches
                for the task as for a lost reply; the request to cancel has 10 s. If both fail, the
                agent continues with the task, and a warning is logged. A reply to a task
                (``task_id``) cancels that task, unless the agent refuses the reply; if the agent
                does not answer it within the 10 s, the task is canceled. A message that was not
                sent by then is not sent. A call that is recorded in a journal is held until then:
                a canceled task ends it, otherwise it stays pending; a call that another process
                has taken over is not canceled. False by default.
            key: Idempotency key: the name of the call in the client's journal, from 1 to 512
                characters; None, the default, for no key. The message of a key is executed at most
                once: if the journal has a call of the key, from this process or another one, this
                call sends nothing, waits for that call, resumes it if its process crashed, and
                returns its result. Only ``on_unknown="resend"`` or ``"resend_if_absent"`` may send
                the message again, if its outcome is unknown.
            options: Any of `SendOptions`: ``timeout`` (seconds; no limit by default), ``headers``,
                ``extensions``, ``context`` and ``tenant`` (none by default), ``timeouts`` (the
                client's `Timeouts` by default), ``on_unknown`` (after a lost reply: the client's
                own, ``"reconcile"``, by default).

        Returns:
            The stream; nothing is sent before it is entered. Its methods raise the errors of the
            call.

        Raises:
            KeyConflictError: The key was used for another message or another agent; nothing was
                sent.
            CallEndedError: The call of the key has ended without an answer that can be returned.
            ClientToolsNotSupportedError: Raised by the stream: the agent does not support tools;
                nothing was sent.
            ValueError: The message has no content, or an argument is out of range.
            TypeError: An argument of another type.

        Example:
            Print the answer while the agent writes it::

                async with holdfast.connect("http://localhost:9999") as agent:
                    async with agent.stream_message("Tell me a story.") as events:
                        async for text in events.text_deltas():
                            print(text, end="", flush=True)
                        answer = await events.result()
        """
        check_seconds("poll_interval", poll_interval)
        offered = _offered(tools, options)
        scope = self._core.begin("stream", options, sends=True, method=Client.stream_message)
        scope = self._core.keyed(scope, key)
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
            cancel_on_abandon=cancel_on_abandon,
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
        cancel_on_abandon: bool = False,
    ) -> EventStream:
        """Return the stream of an answer, which sends the message when it is entered."""
        if cancel_on_abandon is not False:
            check_kind("cancel_on_abandon", cancel_on_abandon, bool)
        calls = StreamCalls(
            self._core,
            scope,
            poll_interval=poll_interval,
            until_deadline=until_deadline,
            cancel_on_abandon=cancel_on_abandon,
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
        if tools is not None and scope.keyed is not None:
            text = "key cannot be combined with tools: their results are messages of their own"
            raise ValueError(text)
        if tools is None:
            sends = send(
                message,
                task_id=task_id,
                context_id=context_id,
                message_metadata=message_metadata,
            )
            return EventStream(calls, sends)
        first = to_user_message(
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

    @explains_unknown_options()
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
        """Begin or continue a conversation: messages that share a context id.

        Args:
            context_id: Id of the conversation to continue; by default the agent assigns a new one.
            task: The task to continue, in its last known state; it names its conversation.
            on_input: Input handler: a function or coroutine function that gets the `Interruption`
                and returns the reply to the task's question. Without it, and where it returns
                None, the question is the answer (`Answer.needs_input`).
            on_auth: Handler of an authorization that the agent requests, called in the same way.
                Where it returns None, or the authorization was granted meanwhile, the client waits
                until the task continues.
            input_timeout: Seconds that a handler has, more than 0; None, the default, for the time
                that is left of the turn.
            tools: Functions that the agent may call in each turn, or `ClientTools`, as for `ask`.
                Calls that ``task`` itself contains are not run, because they may have been
                answered elsewhere.
            timeout: Seconds of a turn, including handlers and tools; more than 0, 86,400 (a day)
                by default.
            max_turns: Largest number of replies of the handlers in a turn; 0 for none, 32 by
                default.
            poll_interval: Seconds between two polls of a task that has to be polled; more than 0,
                2 by default.

        Returns:
            The conversation; nothing is sent.

        Raises:
            ValueError: A number is out of range, or the task belongs to another conversation.
            TypeError: An argument of another type.

        Example:
            Continue as long as the agent has questions::

                async with holdfast.connect("http://localhost:9999") as agent:
                    conversation = agent.conversation(on_input=lambda asked: input(asked.text))
                    answer = await conversation.ask("Book a table.")
                    print(answer.text)
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
            task_id: Id of the task.
            history_length: Largest number of messages of its history to return, 0 or more; None,
                the default, leaves it to the agent. Some agents truncate the stored history to the
                length requested.
            options: Any of `CallOptions`: ``timeout`` (seconds; the client's own, 900, by
                default), ``headers``, ``extensions``, ``context`` and ``tenant`` (none by
                default), ``timeouts`` (the client's `Timeouts` by default).

        Returns:
            The task in its current state.

        Raises:
            TaskNotFoundError: The agent has no such task, or it belongs to another caller.
            A2AError: Any other failure of the call.
            ValueError: The task id is empty, or an argument is out of range.
            TypeError: An argument of another type.

        Example:
            Look at a task once::

                async with holdfast.connect("http://localhost:9999") as agent:
                    task = await agent.get_task("task-1")
                    print(task.state, task.text)
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
            context_id: Only tasks of this conversation; all by default.
            status: Only tasks in this state; all by default.
            limit: Tasks on a page, 1 to 100, 50 by default.
            page_token: ``next_page_token`` of the previous page; by default the first page.
            history_length: Largest number of messages of each history to return, 0 or more; None,
                the default, leaves it to the agent.
            status_timestamp_after: Only tasks whose status is not older than this, as a
                ``datetime`` or RFC 3339 text; a time without a time zone is read as UTC.
            include_artifacts: Whether to return artifacts; False by default.
            options: Any of `CallOptions`: ``timeout`` (seconds; the client's own, 900, by
                default), ``headers``, ``extensions``, ``context`` and ``tenant`` (none by
                default), ``timeouts`` (the client's `Timeouts` by default).

        Returns:
            One page; its ``next_page_token`` is empty on the last one.

        Raises:
            UnsupportedOperationError: The agent uses protocol 0.3, in which this operation is
                optional, and does not offer it.
            ValueError: An argument is out of range.
            TypeError: An argument of another type.
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
        """Iterate over all tasks, page by page (A2A 3.1.4).

        ``limit`` and ``timeout`` apply to each page. A task that is updated meanwhile may be
        skipped.

        Args:
            context_id: Only tasks of this conversation; all by default.
            status: Only tasks in this state; all by default.
            limit: Tasks on a page, 1 to 100, 50 by default.
            history_length: Largest number of messages of each history to return, 0 or more; None,
                the default, leaves it to the agent.
            status_timestamp_after: Only tasks whose status is not older than this, as a
                ``datetime`` or RFC 3339 text; a time without a time zone is read as UTC.
            include_artifacts: Whether to return artifacts; False by default.
            options: Any of `CallOptions`: ``timeout`` (seconds; the client's own, 900, by
                default), ``headers``, ``extensions``, ``context`` and ``tenant`` (none by
                default), ``timeouts`` (the client's `Timeouts` by default).

        Raises:
            InvalidAgentResponseError: The agent returns the same page again and again, or empty
                pages without end.
            ValueError: An argument is out of range; raised by the call itself.
            TypeError: An argument of another type; raised by the call itself.
            UnsupportedOperationError: The agent uses protocol 0.3, in which this operation is
                optional, and does not offer it.
        """
        options["extensions"] = check_items(
            "extensions", options.get("extensions", ())
        )  # for each page
        check_call_options(options, method=Client.iter_tasks)
        request = _list_request(
            context_id,
            status=status,
            limit=limit,
            page_token=None,
            history_length=history_length,
            status_timestamp_after=status_timestamp_after,
            include_artifacts=include_artifacts,
        )
        return AsyncOnlyIterator("iter_tasks()", self._iter_tasks(request, options))

    async def _iter_tasks(
        self, request: ListTasksRequest, options: CallOptions
    ) -> AsyncGenerator[Task]:
        scope = self._core.begin("call", options, method=Client.iter_tasks)
        operation = scope.operation
        failure: BaseException | None = None
        is_left = False
        operation.begin()
        try:
            pages = self._tasks_of_pages(request, scope, options.get("timeout"))
            async with aclosing(pages) as tasks:
                async for task in tasks:
                    yield task
        except GeneratorExit:
            is_left = True
            raise
        except BaseException as error:
            failure = error
            raise
        finally:
            operation.finish(failure, is_left=is_left)

    async def _tasks_of_pages(
        self, request: ListTasksRequest, scope: CallScope, timeout: float | None
    ) -> AsyncGenerator[Task]:
        """Iterate over the tasks of all pages; the timeout applies to each page."""
        token, seen, empty = "", set[str](), 0
        while True:
            request = msgspec.structs.replace(request, page_token=token or None)
            check_sendable("params", request)
            deadline = self._core.deadline("call", timeout)
            page = (await self._core.call(op.LIST_TASKS, request, scope.within(deadline))).value
            for task in page.tasks:
                yield task
            token = page.next_page_token
            if not token:
                return
            empty = 0 if page.tasks else empty + 1
            if token in seen or empty > _MAX_EMPTY_PAGES:
                reason = "a page token was repeated" if token in seen else f"{empty} empty pages"
                text = f"the agent's task list does not end: {reason}"
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
        """Wait until a task is terminal or needs input, and return it in either state.

        Temporary failures do not end the wait. Nor does a task that waits for an authorization,
        which may be granted out of band (A2A 7.6), nor the question that the task asked before
        this client replied: some servers show it for a while.

        Args:
            task_id: Id of the task.
            until: Predicate of the task: the wait ends once it returns True, instead of at a
                terminal or interrupted state. None by default.
            poll_interval: Seconds between two polls; the first polls are quicker; more than 0, 2
                by default.
            options: Any of `CallOptions`: ``timeout`` (seconds; the client's own, 900, by
                default), ``headers``, ``extensions``, ``context`` and ``tenant`` (none by
                default), ``timeouts`` (the client's `Timeouts` by default).

        Returns:
            The task.

        Raises:
            DeadlineExceededError: The timeout expired; ``task`` is the task in its last known
                state.
            TaskAuthRequiredError: The timeout expired while the task waits for an authorization.
            TaskNotFoundError: The agent has no such task, or it belongs to another caller.
            ValueError: The task id is empty, or a number is out of range.
            TypeError: An argument of another type.

        Example:
            Wait for a task for ten minutes at most::

                async with holdfast.connect("http://localhost:9999") as agent:
                    task = await agent.wait("task-1", timeout=600)
                    print(task.state, task.text)
        """
        check_seconds("poll_interval", poll_interval)
        check_not_empty("task_id", task_id)
        if until is not None:
            check_hook("until", until)
        scope = self._core.begin("wait", options, method=Client.wait)
        calls = StreamCalls(self._core, scope, poll_interval=poll_interval, until_deadline=True)

        def follow(task: Task) -> EventStream:
            return EventStream(calls, calls.follow(task_id, task))

        with scope.operation:
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
        """Stream a task: its current state, and then its events (A2A 3.1.6).

        A terminal task is its only event. Cuts and polling are handled as by `stream_message`.

        The official Python server of protocol 0.3 appends the chunks that it sends to a subscriber
        to the stored task once more: from then on, the task contains its text twice, for every
        client. That server also hangs about 1,000 events after a subscriber has disconnected.
        Tasks of agents of protocol 0.3 are therefore polled, and a log message says so.

        Args:
            task_id: Id of the task.
            force_subscription: Whether to subscribe at an agent of protocol 0.3 in spite of that;
                False by default.
            poll_interval: Seconds between two polls of a task that has to be polled; more than 0,
                2 by default.
            options: Any of `CallOptions`: ``timeout`` (seconds; no limit by default), ``headers``,
                ``extensions``, ``context`` and ``tenant`` (none by default), ``timeouts`` (the
                client's `Timeouts` by default).

        Returns:
            The stream; nothing is sent before it is entered. Its methods raise the errors of the
            call.

        Raises:
            TaskNotFoundError: Raised by the stream: the agent has no such task.
            ValueError: The task id is empty, or a number is out of range.
            TypeError: An argument of another type.
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
        """Ask the agent to cancel a task (A2A 3.1.5), and wait until the task is terminal.

        Agents may accept the request and continue, or have completed the task meanwhile: check the
        state of the returned task.

        Args:
            task_id: Id of the task.
            confirm: Whether to wait until the task is terminal; True by default. If False, the
                agent's reply is returned.
            metadata: A JSON object for the metadata of the request; none by default.
            poll_interval: Seconds between two polls; the first polls are quicker; more than 0, 2
                by default.
            options: Any of `CallOptions`: ``timeout`` (seconds; 60 by default, or the client's own
                if that is less), ``headers``, ``extensions``, ``context`` and ``tenant`` (none by
                default), ``timeouts`` (the client's `Timeouts` by default).

        Returns:
            The task in its last known state.

        Raises:
            TaskNotCancelableError: The task is terminal already, or cannot be canceled.
            TaskNotFoundError: The agent has no such task, or it belongs to another caller.
            CancelUnconfirmedError: The task did not end in time; ``task`` is its last known state.
            ValueError: The task id is empty, or a number is out of range.
            TypeError: An argument of another type.

        Example:
            Cancel a task, whatever it has become meanwhile::

                async with holdfast.connect("http://localhost:9999") as agent:
                    task = await agent.cancel_task("task-1")
                    print(task.state)
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
        with scope.operation:
            task = await request_cancel(self._core, request, scope)
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
        """Register an address to which the agent posts updates of a task (A2A 3.1.7).

        Args:
            config: The configuration, with the task's id and the address; `PushReceiver.config`
                makes one.
            options: Any of `CallOptions`: ``timeout`` (seconds; the client's own, 900, by
                default), ``headers``, ``extensions``, ``context`` and ``tenant`` (none by
                default), ``timeouts`` (the client's `Timeouts` by default).

        Returns:
            The configuration as the agent stored it, with its id.

        Raises:
            PushNotificationNotSupportedError: The agent does not support push notifications.
            TaskNotFoundError: The agent has no such task, or it belongs to another caller.
            ValueError: The task's id or the address is missing, or a text cannot be encoded.
            TypeError: The argument is not a `TaskPushNotificationConfig`.
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
        """Fetch one push notification configuration of a task (A2A 3.1.8).

        Args:
            task_id: Id of the task.
            config_id: Id of the configuration.
            options: Any of `CallOptions`: ``timeout`` (seconds; the client's own, 900, by
                default), ``headers``, ``extensions``, ``context`` and ``tenant`` (none by
                default), ``timeouts`` (the client's `Timeouts` by default).

        Raises:
            TaskNotFoundError: The agent has no such task or configuration.
            PushNotificationNotSupportedError: The agent does not support push notifications.
            ValueError: An id is empty.
            TypeError: An argument of another type.
        """
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
            task_id: Id of the task.
            limit: Configurations on a page, 0 or more; None, the default, leaves it to the agent.
            page_token: ``next_page_token`` of the previous page; by default the first page.
            options: Any of `CallOptions`: ``timeout`` (seconds; the client's own, 900, by
                default), ``headers``, ``extensions``, ``context`` and ``tenant`` (none by
                default), ``timeouts`` (the client's `Timeouts` by default).

        Raises:
            TaskNotFoundError: The agent has no such task, or it belongs to another caller.
            PushNotificationNotSupportedError: The agent does not support push notifications.
            ValueError: The task id is empty, or the limit is out of range.
            TypeError: An argument of another type.
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
        """Delete one push notification configuration of a task (A2A 3.1.10).

        To delete a configuration again is not an error.

        Args:
            task_id: Id of the task.
            config_id: Id of the configuration.
            options: Any of `CallOptions`: ``timeout`` (seconds; the client's own, 900, by
                default), ``headers``, ``extensions``, ``context`` and ``tenant`` (none by
                default), ``timeouts`` (the client's `Timeouts` by default).

        Raises:
            TaskNotFoundError: The agent has no such task or configuration.
            PushNotificationNotSupportedError: The agent does not support push notifications.
            ValueError: An id is empty.
            TypeError: An argument of another type.
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
            if not may_have_run_before(error):
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
        reply is lost, the task that it created replaces the reply. Consumers are not called.

        Args:
            operation: The operation, from `holdfast.protocol.OPERATIONS`.
            params: The parameters of the operation; a message must have an id.
            options: Any of `SendOptions`: ``timeout`` (seconds; the client's own, 900, by
                default), ``headers``, ``extensions``, ``context`` and ``tenant`` (none by
                default), ``timeouts`` (the client's `Timeouts` by default), ``on_unknown`` (after
                a lost reply: the client's own, ``"reconcile"``, by default). ``on_unknown``
                applies to messages only.

        Returns:
            The typed answer with its headers, its raw body and its attempts.

        Raises:
            ValueError: The operation is answered by a stream, the message has no id, the request
                does not name its task or configuration, or contains a value that cannot be sent
                (an unpaired surrogate, or metadata that are not JSON).
            TypeError: The operation is not an `Operation`, or the parameters are not its own.
            A2AError: The call failed.
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
                with scope.operation:
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
        with scope.operation:
            return await self._core.call(operation, params, scope)


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


def new_client(core: ClientCore, *, owned: Sequence[Closable], name: str) -> Client:
    """Return a client.

    Args:
        core: Makes its calls.
        owned: What it closes besides.
        name: The agent, as `repr` shows it.
    """
    client = Client.__new__(Client)
    # A function of the class's own module: its constructor tells callers what to call instead.
    client._core, client._owned, client._name = core, owned, name  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
    return client


def name_agent(client: Client, name: str) -> None:
    """Let observers and logs call the agent of a client by a name, in place of its address."""
    client._core.observers.agent = name  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]  # as in `asking`


def has_journal(client: Client) -> bool:
    """Return whether a client records its calls."""
    return client._core.journaling is not None  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]


def asking(
    client: Client,
    message: Content,
    options: SendOptions,
    *,
    method: Callable[..., Any],
    key: str | None = None,
    within: Deadline | None = None,
    cancel_on_abandon: bool = False,
) -> tuple[Callable[[], Awaitable[Answer]], CallScope]:
    """Do what `Client.ask` does, for callers that query several agents.

    Args:
        client: The client that sends the message.
        message: The complete message.
        options: See `SendOptions`.
        method: The method that the caller called.
        key: See `Client.ask`.
        within: A deadline besides that of the options.
        cancel_on_abandon: See `Client.ask`.

    Returns:
        A function that sends the message and returns the answer; and the scope of the call, whose
        operation is to be entered around that.
    """
    # A function of the class's own module: there is no public way to what siblings share.
    core = client._core  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
    scope = core.keyed(core.begin("call", options, sends=True, method=method), key)
    if within is not None and within.at < scope.deadline.at:
        scope = scope.within(within)
    ask = client._sending  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
    sending = partial(
        ask,
        scope,
        message,
        poll_interval=2.0,
        until_deadline=True,
        cancel_on_abandon=cancel_on_abandon,
    )
    sending()  # invalid arguments raise here
    return partial(answer_of, sending, scope), scope


async def chosen_interface(client: Client, **options: Unpack[CallOptions]) -> AgentInterface:
    """Return the interface that calls of a client go to, without a call.

    Args:
        client: The client.
        options: See `CallOptions`; credentials and headers decide whether an interface is refused.

    Raises:
        A2AError: The reason why no interface can be called.
    """
    core = client._core  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]  # as above
    scope = core.begin("call", options, method=chosen_interface)
    with scope.operation:
        return await core.chosen_interface(scope)


def journaling_of(client: Client) -> Journaling | None:
    """Return what records the calls of a client; None without a journal."""
    return client._core.journaling  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]  # as above


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
    method = Client.stream_message if sends else Client.subscribe_to_task
    scope = core.begin("stream", options, method=method, sends=sends)
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


def _state_of(task: Task | None) -> str:
    return "in an unknown state" if task is None else task.state.name
