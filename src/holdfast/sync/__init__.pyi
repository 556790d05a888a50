# Written by `python -m tests.sync_stub`.

"""The synchronous API: the same classes and methods as `holdfast`, which block.

    import holdfast.sync

    with holdfast.sync.connect("https://agent.example.com") as agent:
        print(agent.ask("How far is the moon?").text)

- Values, errors, options and policies are the same for both; they are in `holdfast`.
- It can be used by any number of threads, and while an event loop runs, as in a notebook. An async
  function that calls it blocks its own event loop meanwhile: await `holdfast` there.
- Plain functions that are passed as hooks (``on_input``, ``on_auth``, ``consumers``, ``on_retry``)
  and the iterator of messages of ``run`` are run by the thread that waits for the call, and only
  while it waits: they may block, ask for input, and call this API. A timeout does not interrupt
  them; it ends the call after they return. Tools run in threads, as in `holdfast`.
- Coroutine functions, observers, predicates, layers and caller-supplied objects run on one event
  loop in a thread of its own. They must not call this API; that raises a RuntimeError. `run` calls
  their methods: ``run(engine.close())``.
- Ctrl-C ends a call like a cancellation: the connection is closed, and the agent's task continues.
  A forked child can use its parent's clients, over connections of its own.
"""

import os
from collections.abc import AsyncIterable, Callable, Coroutine, Iterable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Generic, Self, TypeAlias, TypeVar, Unpack

import aiohttp
from grpc import aio

from holdfast._client.answer import Answer
from holdfast._client.batch import RunItem, RunResult
from holdfast._client.client_tools import ClientTools
from holdfast._client.conversation import InterruptionHook
from holdfast._client.named_agent import AgentHealth, AgentOrClient, AgentResult
from holdfast._client.options import CallOptions, ConnectOptions, CreateOptions, SendOptions
from holdfast._client.pending import ResumedCall
from holdfast._client.stats import ClientStats
from holdfast._client.targets import AgentTarget
from holdfast._compat.factory import ClientConfig, Producer
from holdfast._doctor.findings import Diagnosis
from holdfast._journal.protocol import Journal
from holdfast._model.operations import Operation
from holdfast._pipeline.cards.verification import CardVerification
from holdfast._pipeline.endpoints import Endpoints
from holdfast._pipeline.listeners import Consumer, Interceptor
from holdfast._pipeline.observations import Observer, TelemetrySource
from holdfast._pipeline.produced import TransportProducer
from holdfast._pipeline.transport import Layer, Reply
from holdfast._policy.breaker import BreakerFailure, BreakerState
from holdfast._policy.reconcile import ContextIds, OnUnknown
from holdfast._policy.resilience import Resilience
from holdfast._stream.fold import TaskUpdate
from holdfast._stream.text import TextChange
from holdfast._wire.network_scope import AgentReach
from holdfast.auth import AuthProvider
from holdfast.client import Content
from holdfast.compat import CredentialService
from holdfast.errors import A2AError, JournalError
from holdfast.extend import Env, HttpEngine
from holdfast.policies import Limits, TlsConfig
from holdfast.protocol import ProtocolVersion
from holdfast.signatures import CardVerifier, CardVerifierCallable
from holdfast.types import (
    AgentCard,
    Event,
    ListTaskPushNotificationConfigsResponse,
    ListTasksResponse,
    Message,
    SendMessageConfiguration,
    Task,
    TaskPushNotificationConfig,
    TaskState,
)

E = TypeVar("E")

P = TypeVar("P")

R = TypeVar("R")

_T = TypeVar("_T")

Agent: TypeAlias = AgentTarget | Sequence[AgentTarget] | Client

__all__ = [
    "A2ACardResolver",
    "BulkRun",
    "Circuit",
    "Client",
    "ClientFactory",
    "ClientTaskManager",
    "Conversation",
    "Coordinator",
    "EventStream",
    "FanOut",
    "Iteration",
    "PendingCall",
    "ask",
    "connect",
    "diagnose",
    "run",
]

class A2ACardResolver:
    """Fetcher of agent cards below one address; use it as a context manager.

    It has no cache: each call fetches the card, with the retries and limits of `connect`.

    Args:
        base_url: The base address of the cards.
        agent_card_path: Path of the card below that; None, the default, to search for the card as
            `connect` does.
        auth: Credentials for the server of the cards: a value for ``Authorization``, headers, or
            an `AuthProvider` that does not need a card; None for none.
        headers: Headers for every request.
        timeout: Seconds for a fetch, including its retries, 900 by default.
        resilience: The policies; None for `Resilience.standard`.
        limits: Bounds on the size of a card; None for the defaults.
        allowed_networks: Networks that a redirect may lead to, as for `connect`.
        reach: Addresses that may be fetched: ``"any"``, the default, or ``"public"``, as for
            `connect`.
        engine: The HTTP engine, as for `connect`.
        tls: TLS settings, without ``engine``.
        card_verifier: Verifier of the cards' signatures, such as a `CardVerifier`; none by
            default.
        require_signature: Whether a card without a verified signature is an error; False by
            default.
        env: Wall time, randomness and ids; None for the system's.

    Raises:
        ValueError: An address, a header or a number is not valid, or arguments contradict each
            other.
        TypeError: An argument has the wrong type.
    """
    def __init__(
        self,
        base_url: str,
        agent_card_path: str | None = None,
        *,
        auth: str | Mapping[str, str] | AuthProvider | None = None,
        headers: Mapping[str, str] | None = None,
        timeout: float = 900.0,
        resilience: Resilience | None = None,
        limits: Limits | None = None,
        allowed_networks: Iterable[str] = (),
        reach: AgentReach = "any",
        engine: HttpEngine | aiohttp.ClientSession | None = None,
        tls: TlsConfig | None = None,
        card_verifier: CardVerifier | CardVerifierCallable | None = None,
        require_signature: bool = False,
        env: Env | None = None,
    ) -> None: ...
    def close(self) -> None:
        """End fetches in flight, and close the connections unless the caller supplied the engine.

        Later fetches raise a RuntimeError. Can be called twice.
        """

    def get_agent_card(
        self,
        relative_card_path: str | None = None,
        *,
        headers: Mapping[str, str] | None = None,
        timeout: float | None = None,
    ) -> AgentCard:
        """Fetch a card.

        Args:
            relative_card_path: The path of the card below the base address, ``"/"`` for that
                address itself; None for that of the resolver.
            headers: Headers for this fetch; they replace the resolver's of the same names.
            timeout: Seconds for the whole fetch; None for the resolver's.

        Raises:
            AgentCardResolutionError: There is no card.
            InvalidAgentCardError: The card is not valid.
            CardSignatureError: Its signature is invalid, or required and not verified.
            DeadlineExceededError: The timeout expired.
            A2AError: The card could not be fetched.
            ValueError: A path, a header or a number is not valid.
            RuntimeError: The resolver is closed.
        """

    def __enter__(self) -> Self: ...
    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...

class BulkRun:
    """The results of many messages, in the order in which they complete; made by `Client.run`.

    Iterate over it once; then it is exhausted. It reads messages only during iteration, and only
    while fewer than ``concurrency`` are in flight. If the messages come from a generator,
    the run closes the generator when it ends. To stop early, call `close`, or use the run as a context manager. A run that is never iterated over sends nothing, and causes a
    ``RuntimeWarning``.

    Attributes:
        finished_elsewhere: Number of messages without a result here, because another process of a
            shared run has finished their calls.
        on_finished_elsewhere: Called with the key of each such message; None, the default, for
            nothing.
    """
    @property
    def in_flight(self) -> int:
        """The number of messages in flight."""

    @property
    def held(self) -> int:
        """The number of messages that wait for a call that another client holds in the journal.

        That client may have crashed: then the calls are resumed when their leases end. In a shared
        run these messages are not in flight.
        """

    def __iter__(self) -> Self: ...
    def __next__(self) -> RunResult:
        """Return the next result, in the order of completion.

        An error of one message, a `JournalError` too, is in that message's result. An error that
        ends the run is raised only after the results of all messages in flight, each of which is
        bounded by its own timeout.

        Raises:
            ValueError: Two messages have the same key; no message after the second is sent.
            TypeError: A message is a tuple of two strings; no message after it is sent.
            RuntimeError: The client was closed; another task is already waiting for the next
                result; or a message or the iterable waited for something that was cancelled.
            Exception: The iterable of messages raised it, or a consumer, an interceptor or
                another hook of the caller did.
        """

    def stop(self) -> None:
        """Read and send no more messages; those in flight still produce their results."""

    def close(self) -> None:
        """Stop, and abandon the messages in flight. Can be called twice.

        If there is a journal, the next run with the same ``run_id`` resumes them.
        """

    def __enter__(self) -> Self: ...
    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...

class Circuit:
    """Circuit breakers between a client and its agent.

    Each endpoint has a breaker: the endpoint of the card, and each endpoint that takes calls.
    Until the client has a card, the properties show the breaker of the card's endpoint. With
    several endpoints, they show the best breaker of the endpoints that were called in the last two
    minutes and have answered at least once. `open`, `close` and `reset` apply to all calls of this
    client and are not reported to observers. Clients with the same
    `BreakerPolicy` that share their `Endpoints` share their breakers.
    """
    @property
    def state(self) -> BreakerState:
        """``"closed"``: calls pass; ``"open"``: no call passes; ``"half_open"``: one may probe."""

    @property
    def failures(self) -> int:
        """The number of consecutive failures that count for the breaker."""

    @property
    def last_failure(self) -> BreakerFailure | None:
        """The latest failure at any endpoint, even if calls succeeded since; None for none."""

    @property
    def retry_after(self) -> float | None:
        """Seconds until a call may pass; None if `open` was called."""

    def open(self) -> None:
        """Let no call pass until `close` or `reset` is called; calls in flight continue."""

    def close(self) -> None:
        """Let all calls pass, even if they fail, until `open` or `reset` is called."""

    def reset(self) -> None:
        """Return control to the policy; its counts start at zero."""

class Client:
    """Client of one agent, made by `connect`; use it as a context manager.

    Every operation takes `CallOptions` by keyword, and raises an `A2AError` if it fails: an error
    that the protocol names, one of the transport, or `DeadlineExceededError`. A closed client
    raises a RuntimeError.
    """
    def close(self) -> None:
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

    def add_event_consumer(self, consumer: Consumer) -> None:
        """Add a consumer behind the present ones, for calls that begin afterwards.

        Args:
            consumer: Function that is called with the event, the task after
                the event, and the agent's card (`Consumer`).

        Raises:
            TypeError: The consumer cannot be called.
        """

    def add_interceptor(self, interceptor: Interceptor) -> None:
        """Add an interceptor behind the present ones, for calls that begin afterwards.

        An `AuthInterceptor` becomes the source of credentials; they are sent only to the origins
        that `connect` allows.

        Args:
            interceptor: An `Interceptor`, whose methods are called before and after each call.

        Raises:
            ValueError: The client has another source of credentials already.
            TypeError: The argument is not an interceptor.
        """

    def add_request_middleware(self, interceptor: Interceptor) -> None:
        """Add an interceptor; the same as `add_interceptor`.

        Args:
            interceptor: An `Interceptor`, whose methods are called before and after each call.

        Raises:
            ValueError: The client has another source of credentials already.
            TypeError: The argument is not an interceptor.
        """

    @property
    def circuit(self) -> Circuit:
        """The agent's circuit breaker, which can be opened, closed and reset by hand."""

    def stats(self) -> ClientStats:
        """Return the client's statistics so far; without secrets, and without a request."""

    def agent_card(self, *, timeout: float | None = None) -> AgentCard:
        """Return the agent's card, from the cache while it is fresh.

        Args:
            timeout: Seconds, more than 0; the client's own timeout by default.

        Raises:
            AgentCardResolutionError: No card was found.
            InvalidAgentCardError: The card is not usable.
            CardSignatureError: The signature of the card is invalid, or is required and not
                verified.
        """

    @property
    def card_verification(self) -> CardVerification | None:
        """The result of verifying the signatures of the latest card, public or extended.

        None before there is a card. Without ``connect(card_verifier=…)`` no signature is verified.
        """

    @property
    def card_document(self) -> Mapping[str, Any] | None:
        """The JSON object of the latest card as received, with members that the model lacks.

        None before there is a card, and for a card that was passed as an `AgentCard`. For a card
        received over gRPC it is the JSON form of the message, and None if the message has unknown
        fields or is of protocol 0.3.
        """

    def discover(self, *, timeout: float | None = None) -> AgentCard:
        """Return the agent's card; the same as `agent_card`.

        Args:
            timeout: Seconds, more than 0; the client's own timeout by default.

        Raises:
            A2AError: The card could not be fetched, is not usable, or its signature is not
                accepted.
        """

    def get_extended_agent_card(self, **options: Unpack[CallOptions]) -> AgentCard:
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

    def pending(self, *, message_id: str | None = None) -> list[PendingCall]:
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

                with holdfast.sync.connect("http://localhost:9999", journal="calls.db") as agent:
                    for call in agent.pending():
                        print(call.message_id, call.began, call.state)
        """

    def resume_pending(
        self, *, concurrency: int = 8, poll_interval: float = 2.0, **options: Unpack[CallOptions]
    ) -> Iteration[ResumedCall]:
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

                with holdfast.sync.connect("http://localhost:9999", journal="calls.db") as agent:
                    for outcome in agent.resume_pending():
                        print(outcome.message_id, outcome.error or outcome.answer.text)
        """

    def ask(
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

                with holdfast.sync.connect("http://localhost:9999") as agent:
                    answer = agent.ask("How far is the moon?", timeout=60)
                    if answer.needs_input:
                        answer = agent.ask("In kilometres.", task_id=answer.task_id)
                    print(answer.text)
        """

    def send_message(
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

                with holdfast.sync.connect("http://localhost:9999") as agent:
                    task = agent.send_message("Write the report.", return_immediately=True)
                    task = agent.wait(task.id, timeout=600)
                    print(task.state, task.text)
        """

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

                with holdfast.sync.connect("http://localhost:9999") as agent:
                    for result in agent.run(["one", "two", "three"], concurrency=8):
                        print(result.key, result.error or result.answer.text)
        """

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

                with holdfast.sync.connect("http://localhost:9999") as agent:
                    with agent.stream_message("Tell me a story.") as events:
                        for text in events.text_deltas():
                            print(text, end="", flush=True)
                        answer = events.result()
        """

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
            on_input: Input handler: a function that gets the `Interruption`
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

                with holdfast.sync.connect("http://localhost:9999") as agent:
                    conversation = agent.conversation(on_input=lambda asked: input(asked.text))
                    answer = conversation.ask("Book a table.")
                    print(answer.text)
        """

    def get_task(
        self, task_id: str, *, history_length: int | None = None, **options: Unpack[CallOptions]
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

                with holdfast.sync.connect("http://localhost:9999") as agent:
                    task = agent.get_task("task-1")
                    print(task.state, task.text)
        """

    def list_tasks(
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
    ) -> Iteration[Task]:
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

    def wait(
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

                with holdfast.sync.connect("http://localhost:9999") as agent:
                    task = agent.wait("task-1", timeout=600)
                    print(task.state, task.text)
        """

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

    def cancel_task(
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

                with holdfast.sync.connect("http://localhost:9999") as agent:
                    task = agent.cancel_task("task-1")
                    print(task.state)
        """

    def create_task_push_notification_config(
        self, config: TaskPushNotificationConfig, **options: Unpack[CallOptions]
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

    def get_task_push_notification_config(
        self, task_id: str, config_id: str, **options: Unpack[CallOptions]
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

    def list_task_push_notification_configs(
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

    def delete_task_push_notification_config(
        self, task_id: str, config_id: str, **options: Unpack[CallOptions]
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

    def call(
        self, operation: Operation[P, R], params: P, **options: Unpack[SendOptions]
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

    def __enter__(self) -> Self: ...
    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...

class ClientFactory:
    """Factory of clients with shared settings, under the names of the official SDK.

    Args:
        config: The shared settings; None for ``ClientConfig()``.
        consumers: Functions that every client calls with each event, the
            task after it, and the agent's card (`Consumer`), before its own consumers.

    Raises:
        TypeError: An argument has the wrong type.
    """
    def __init__(
        self, config: ClientConfig | None = None, consumers: Iterable[Consumer] | None = None
    ) -> None: ...
    def register(self, label: str, producer: Producer) -> None:
        """Register a custom binding, for clients that are created afterwards.

        Args:
            label: The binding's name in cards; a binding that Holdfast supports is replaced.
            producer: Function that gets the card, the interface's address and the `ClientConfig`,
                and returns the transport (`Producer`); called when the interface is first used.
                The transport carries calls below all of the client's layers.

        Raises:
            ValueError: The name is empty.
            TypeError: An argument has the wrong type.
        """

    def create(
        self,
        agent: str | Path | AgentCard | Mapping[str, Any],
        /,
        consumers: Iterable[Consumer] | None = None,
        interceptors: Iterable[Interceptor] | None = None,
        **options: Unpack[CreateOptions],
    ) -> Client:
        """Create a client for one agent; nothing is fetched before its first call.

        Args:
            agent: The agent's card, or any other agent that `connect` accepts.
            consumers: Functions that this client calls with each event, the
                task after it, and the agent's card (`Consumer`), after the factory's consumers.
            interceptors: Objects whose methods are called before and after each call
                (`Interceptor`); none by default.
            options: Other options of `connect`: ``auth``, ``timeout`` (seconds, 900 by default),
                ``card_ttl`` (seconds, 300 by default), ``card_verifier``, ``require_signature``,
                ``resilience``, ``limits``, ``engine``, ``tls``, ``shared``, ``env``, ``url``,
                ``tenant``, ``bindings``, ``supported_protocol_bindings``, ``protocol_version``,
                ``allow_legacy``, ``transport_producers``, ``grpc_channel_factory``,
                ``configuration``, ``streaming``, ``on_unknown``, ``context_ids``, ``journal``,
                ``shared_store``, ``headers``, ``extensions``, ``credential_origins``,
                ``allowed_networks``, ``reach``, ``observers``, ``telemetry``, ``call_layers`` and
                ``attempt_layers``. They override the configuration, and ``transport_producers``
                override registered producers.

        Raises:
            ValueError: An option is not valid, or options contradict each other.
            InvalidAgentCardError: The card is not valid.
            TypeError: An argument has the wrong type.
        """

    def create_from_url(
        self,
        agent: str,
        /,
        interceptors: Iterable[Interceptor] | None = None,
        **options: Unpack[CreateOptions],
    ) -> Client:
        """Create a client for the agent at an address, and fetch its card.

        Args:
            agent: The agent's address, or that of its card.
            interceptors: Objects whose methods are called before and after each call
                (`Interceptor`); none by default.
            options: Other options of `connect`, as for `create`: ``auth``, ``timeout`` (seconds,
                900 by default), ``card_ttl`` (seconds, 300 by default), ``card_verifier``,
                ``require_signature``, ``resilience``, ``limits``, ``engine``, ``tls``, ``shared``,
                ``env``, ``url``, ``tenant``, ``bindings``, ``supported_protocol_bindings``,
                ``protocol_version``, ``allow_legacy``, ``transport_producers``,
                ``grpc_channel_factory``, ``configuration``, ``streaming``, ``on_unknown``,
                ``context_ids``, ``journal``, ``shared_store``, ``headers``, ``extensions``,
                ``credential_origins``, ``allowed_networks``, ``reach``, ``observers``,
                ``telemetry``, ``call_layers`` and ``attempt_layers``.

        Raises:
            AgentCardResolutionError: No card was found.
            InvalidAgentCardError: The card is not usable.
            CardSignatureError: The signature of the card is invalid, or is required and not
                verified.
            A2AError: The card could not be fetched.
            ValueError: An option is not valid, or options contradict each other.
            TypeError: An argument has the wrong type.
        """

class ClientTaskManager:
    """Accumulator of the events of one task into the task.

    The rules are those of Holdfast's streams: a second `Task` with the same id is a newer
    snapshot, the message of a status moves into the history with the next status, and returned
    tasks are never changed afterwards.

    Args:
        limits: Bounds on the size of the task; None for the defaults.
    """
    def __init__(self, *, limits: Limits | None = None) -> None: ...
    def get_task(self) -> Task | None:
        """Return the current task; None before its first event."""

    def get_task_or_raise(self) -> Task:
        """Return the current task.

        Raises:
            InvalidAgentResponseError: There was no event of a task yet.
        """

    def process(self, event: E) -> E:
        """Fold an event into the task, and return the event; a `Message` is ignored.

        Args:
            event: The event.

        Raises:
            InvalidAgentResponseError: The event is of another task or context; the task is
                unchanged.
            LimitExceededError: The task becomes too large; the task is unchanged.
        """

    def save_task_event(self, event: TaskUpdate) -> Task:
        """Fold an event into the task, and return the task.

        Args:
            event: The event.

        Raises:
            InvalidAgentResponseError: The event is of another task or context; the task is
                unchanged.
            LimitExceededError: The task becomes too large; the task is unchanged.
        """

    def update_with_message(self, message: Message, task: Task) -> Task:
        """Append the status message of a task, and then a message, to the task's history.

        Args:
            message: The next message, usually of the user.
            task: The task; it replaces the current one. This object is not changed.

        Returns:
            The task with both in its history, and without a status message.

        Raises:
            InvalidAgentResponseError: The task or the message is of another task than the current
                one; the current task is unchanged.
            LimitExceededError: The task becomes too large; the current task is unchanged.
        """

class Conversation:
    """Conversation with one agent, turn by turn; made by `Client.conversation`.

    Each message carries the conversation's context id, and its task id while the task is open.

    Not safe for concurrent use: one turn at a time.
    """
    @property
    def context_id(self) -> str | None:
        """The id of the conversation; None until the agent assigns it with its first answer."""

    @property
    def task(self) -> Task | None:
        """The task of the latest turn, as last seen.

        None if the agent replied with a message, or no longer has the task.
        """

    @property
    def is_open(self) -> bool:
        """True if the latest turn's task is not terminal; the next message then continues it."""

    def ask(
        self,
        message: Content,
        *,
        metadata: Mapping[str, Any] | None = None,
        message_metadata: Mapping[str, Any] | None = None,
        accepted_output_modes: Iterable[str] | None = None,
        cancel_on_abandon: bool = False,
        key: str | None = None,
        **options: Unpack[SendOptions],
    ) -> Answer:
        """Send a message, and wait for the answer.

        Args:
            message: The `Content` to send: text, parts, a `Message` or its JSON object.
            metadata: A JSON object for the metadata of the request (``params.metadata``), and of
                the requests that send the hooks' replies.
            message_metadata: A JSON object to add to the message's own metadata
                (``message.metadata``); it takes precedence if both have a member.
            accepted_output_modes: Media types that the caller accepts; the client's own by
                default, any if empty.
            cancel_on_abandon: Whether to cancel the open task if the call is cancelled, or its
                timeout expires, as `Client.stream_message` does in the background. False by
                default.
            key: Idempotency key: the name of the call in the client's journal, from 1 to 512
                characters; None, the default, for no key. The message of a key is executed at most
                once: if the journal has a call of the key, from this process or another one, this
                call sends nothing, waits for that call, resumes it if its process crashed, and
                returns its result. Only ``on_unknown="resend"`` or ``"resend_if_absent"`` may send
                the message again, if its outcome is unknown.
            options: Any of `SendOptions`: ``timeout`` (seconds; that of the conversation by
                default), ``headers``, ``extensions``, ``context`` and ``tenant`` (none by
                default), ``timeouts`` (the client's `Timeouts` by default), ``on_unknown`` (after
                a lost reply: the client's own, ``"reconcile"``, by default).

        Returns:
            The answer. If its `Answer.needs_input` is true, the agent waits for another message,
            and no hook had a reply.

        Raises:
            TaskFailedError: The task failed; also `TaskRejectedError`, `TaskCanceledError`.
            A2AError: Any other failure, as listed at `stream_message`.
            ValueError: The message has no content, or an argument is out of range.
            TypeError: An argument of another type.

        Example:
            Carry an answer over into the next question::

                with holdfast.sync.connect("http://localhost:9999") as agent:
                    conversation = agent.conversation() conversation.ask("How far is the moon?")
                    answer = conversation.ask("And in miles?")
                    print(answer.text)
        """

    def stream_message(
        self,
        message: Content,
        *,
        metadata: Mapping[str, Any] | None = None,
        message_metadata: Mapping[str, Any] | None = None,
        accepted_output_modes: Iterable[str] | None = None,
        cancel_on_abandon: bool = False,
        key: str | None = None,
        **options: Unpack[SendOptions],
    ) -> EventStream:
        """Send a message, and return the events of the answer and of the hooks' replies.

        Iterating over the stream raises, beside the errors of `EventStream`:

        - `TaskInputRequiredError`: a hook failed, did not reply in time, or was called too often;
          see its cause. The task still waits: reply with `ask`.
        - `TaskAuthRequiredError`: the same for an authorization, or it was not granted in time.
          Continue with `wait`, or with `ask` to send a message about it.
        - `LimitExceededError`, `DeadlineExceededError`: the agent called tools too often, or they
          took too long. Continue with `wait`, which runs no call again.

        Args:
            message: The `Content` to send: text, parts, a `Message` or its JSON object.
            metadata: A JSON object for the metadata of the request (``params.metadata``), and of
                the requests that send the hooks' replies.
            message_metadata: A JSON object to add to the message's own metadata
                (``message.metadata``); it takes precedence if both have a member.
            accepted_output_modes: Media types that the caller accepts; the client's own by
                default, any if empty.
            cancel_on_abandon: Whether to cancel the open task if the caller leaves the stream
                early, or is cancelled, or if the timeout expires, as `Client.stream_message` does
                in the background. False by default.
            key: Idempotency key: the name of the call in the client's journal, from 1 to 512
                characters; None, the default, for no key. The message of a key is executed at most
                once: if the journal has a call of the key, from this process or another one, this
                call sends nothing, waits for that call, resumes it if its process crashed, and
                returns its result. Only ``on_unknown="resend"`` or ``"resend_if_absent"`` may send
                the message again, if its outcome is unknown.
            options: Any of `SendOptions`: ``timeout`` (seconds; that of the conversation by
                default), ``headers``, ``extensions``, ``context`` and ``tenant`` (none by
                default), ``timeouts`` (the client's `Timeouts` by default), ``on_unknown`` (after
                a lost reply: the client's own, ``"reconcile"``, by default).

        Returns:
            The stream of one turn; nothing is sent before it is entered.

        Raises:
            ValueError: The message has no content, or an argument is not valid.
            TypeError: An argument of another type.
        """

    def wait(self, **options: Unpack[SendOptions]) -> Answer:
        """Continue the open task without sending a message, as after an error.

        Args:
            options: Any of `SendOptions`: ``timeout`` (seconds; that of the conversation by
                default), ``headers``, ``extensions``, ``context`` and ``tenant`` (none by
                default), ``timeouts`` (the client's `Timeouts` by default), ``on_unknown`` (after
                a lost reply: the client's own, ``"reconcile"``, by default).

        Returns:
            The answer, as from `ask`. A hook whose reply was not sent is called once more. If a
            reply may have arrived, no hook is called for that interruption, and the caller has to
            reply.

        Raises:
            RuntimeError: There is no open task, or a turn is in flight.
            A2AError: The turn failed, as listed at `stream_message`.
            ValueError: An argument is out of range.
            TypeError: An argument of another type.
        """

class Coordinator:
    """Client of many agents; use it as a context manager.

    All agents share the connections and the state of their endpoints. While the circuit breaker
    of an agent is open, calls to that agent fail immediately with a `CircuitOpenError`.

    Args:
        agents: A mapping of names to agents: anything that `connect` accepts, such as an address,
            or a list of addresses for an agent with replicas; or a `Client`, which keeps its own
            options, such as its ``journal`` and ``observers``, and which the coordinator does not
            close. Or a list of addresses, one for each agent, which are also the names. Empty by
            default; `add` adds agents later.
        concurrency: Messages in flight at the same time; at least 1, 100 by default. A message
            holds its slot until it is answered; others wait in a queue, in which fan-outs take
            turns. If there are several agents, an agent gets another slot only while more slots
            are free than it holds already, so that one agent that hangs takes at most half of
            them. Many hanging agents together can take all: set it higher than the number of
            agents that may hang.
        options: Options of `connect`, which apply to every agent that is not a `Client`: ``auth``,
            ``timeout`` (seconds, 900 by default), ``card_ttl`` (seconds, 300 by default),
            ``card_verifier``, ``require_signature``, ``resilience``, ``limits``, ``engine``,
            ``tls``, ``shared``, ``env``, ``url``, ``tenant``, ``bindings``,
            ``supported_protocol_bindings``, ``protocol_version``, ``allow_legacy``,
            ``transport_producers``, ``grpc_channel_factory``, ``configuration``, ``streaming``,
            ``on_unknown``, ``context_ids``, ``journal``, ``shared_store``, ``headers``,
            ``extensions``, ``credential_origins``, ``allowed_networks``, ``reach``,
            ``interceptors``, ``consumers``, ``observers``, ``telemetry``, ``call_layers`` and
            ``attempt_layers``.
            Pass clients if ``auth`` or ``headers`` differ between agents. The coordinator closes
            an ``engine`` or ``journal`` that it created itself.

    Raises:
        ValueError: An address, a name or an option is not valid.
        TypeError: An argument of another type.

    Example:
        Ask two agents at once::

            agents = {"moon": "http://localhost:9999", "sun": "http://localhost:9998"}
            with holdfast.sync.Coordinator(agents) as coordinator:
                for result in coordinator.fan_out("How far are you?"):
                    print(result.agent, result.error or result.answer.text)
    """
    def __init__(
        self,
        agents: Mapping[str, AgentOrClient] | Iterable[str] = (),
        *,
        concurrency: int = 100,
        **options: Unpack[ConnectOptions],
    ) -> None: ...
    def __enter__(self) -> Self:
        """Return the coordinator.

        Raises:
            RuntimeError: The coordinator is closed.
        """

    def close(self) -> None:
        """End the calls in flight, and close the clients and connections that it created.

        Tasks of calls that were abandoned (``cancel_on_abandon``) are canceled first, which takes
        up to 20 s if their agents do not answer. Can be called twice.
        """

    @property
    def agents(self) -> tuple[str, ...]:
        """The names of the agents."""

    def client(self, name: str) -> Client:
        """Return the client of an agent, for calls that the coordinator does not offer.

        Args:
            name: The name of the agent.

        Raises:
            ValueError: There is no agent with this name.
        """

    def add(self, name: str, agent: AgentOrClient) -> None:
        """Add an agent; fan-outs that have started do not include it.

        Args:
            name: The name of the agent; not in use yet.
            agent: Anything that `connect` accepts, or a `Client`, which stays open.

        Raises:
            ValueError: The name is in use, or the address is not valid.
            TypeError: The agent is of a type that `connect` does not accept.
            RuntimeError: The coordinator is closed.
        """

    def remove(self, name: str) -> None:
        """Remove an agent, and close its client unless the caller supplied it.

        Calls to the agent that are in flight or wait for a slot end with an `A2AConnectionError`;
        the agent does not cancel its tasks. With a caller-supplied client, calls in flight
        continue to their end. Like `Client.close`, this takes up to 20 s if tasks of calls that
        were abandoned (``cancel_on_abandon``) are being canceled and the agent does not answer;
        new calls to the agent are refused at once.

        Args:
            name: The name of the agent.

        Raises:
            ValueError: There is no agent with this name.
        """

    def health(self) -> dict[str, AgentHealth]:
        """Return each agent's health by name, from its breakers."""

    def delegate(
        self,
        agent: str,
        message: Content,
        *,
        cancel_on_abandon: bool = False,
        key: str | None = None,
        **options: Unpack[SendOptions],
    ) -> AgentResult:
        """Send a message to one agent, as `Client.ask` does; an `A2AError` is in the result.

        The wait for a concurrency slot counts against the timeout of the call.

        Args:
            agent: The name of the agent.
            message: The `Content` to send: text, parts, a `Message` or its JSON object.
            cancel_on_abandon: Whether to cancel the agent's task if the call is cancelled, or its
                timeout expires, as `Client.stream_message` does in the background. False by
                default.
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
            The answer or the error; `AgentResult.unwrap` raises the error.

        Raises:
            ValueError: There is no agent with this name, or the message has no content.
            TypeError: An argument of another type.
            RuntimeError: The coordinator is closed.

        Example:
            Ask the agent that fits::

                with holdfast.sync.Coordinator({"moon": "http://localhost:9999"}) as coordinator:
                    result = coordinator.delegate("moon", "How far are you?", timeout=60)
                    print(result.error or result.answer.text)
        """

    def fan_out(
        self,
        message: Content | Iterable[tuple[str, Content]],
        *,
        agents: Iterable[str] | None = None,
        min_results: int = 1,
        within: float | None = None,
        cancel_on_abandon: bool = False,
        key: str | None = None,
        **options: Unpack[SendOptions],
    ) -> FanOut:
        """Send messages to many agents at once, and return their results.

        Call ``results()`` for all results, in the order of the messages; or iterate over it for
        each result as it completes. An `A2AError` of one agent is in that agent's result, and
        delays no other. To stop early, leave the iteration inside of ``with``.

        Args:
            message: One message for all agents, sent to each with its own message id; or pairs of
                an agent's name and a message, such as ``zip(names, messages)`` or the ``items()``
                of a dict. An agent may occur more than once.
            agents: The names of the agents that receive the one message; all agents by default.
            min_results: Number of agents that have to answer; at least 1, 1 by default. A task
                that failed, was rejected or needs input does not count as an answer.
            within: Seconds for the whole fan-out, more than 0; an agent without an answer by then
                has a `DeadlineExceededError`. None, the default, for no limit. The timeout of each
                call also counts from the start of the fan-out, and includes its wait for a
                concurrency slot.
            cancel_on_abandon: Whether to cancel the tasks that the fan-out stops waiting for,
                because of a deadline or because it is closed, before they are terminal or need
                input. It delays no result: each client cancels its task in the background, as
                `Client.stream_message` describes. False by default.
            key: Idempotency key: the name of the call in the client's journal, from 1 to 512
                characters; None, the default, for no key. The message of a key is executed at most
                once by each agent: if the journal has a call of the key, from this process or
                another one, nothing is sent, and the result of that call is returned. Only
                ``on_unknown="resend"`` or ``"resend_if_absent"`` may send the message again, if
                its outcome is unknown. The key of the call to each agent is this key, a slash and
                the name of the agent; so no agent may occur more than once.
            options: Any of `SendOptions`: ``timeout`` (seconds; the client's own, 900, by
                default), ``headers``, ``extensions``, ``context`` and ``tenant`` (none by
                default), ``timeouts`` (the client's `Timeouts` by default), ``on_unknown`` (after
                a lost reply: the client's own, ``"reconcile"``, by default). They apply to each
                message.

        Returns:
            The fan-out; nothing is sent before it is used.

        Raises:
            NotEnoughResultsError: There are fewer messages than ``min_results``; nothing was sent.
            ValueError: There is no agent with a given name, a message has no content, or a number
                is out of range.
            TypeError: An argument of another type.
            RuntimeError: The coordinator is closed.

        Example:
            Use the first results, and answer within ten seconds::

                agents = {"moon": "http://localhost:9999", "sun": "http://localhost:9998"}
                with holdfast.sync.Coordinator(agents) as coordinator:
                    for result in coordinator.fan_out("How far are you?", within=10):
                        print(result.agent, result.error or result.answer.text)
        """

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...

class EventStream:
    """Events of one task, or the one message that an agent answers with.

    Enter it, then iterate; or iterate over `text_deltas` or `text_changes`; or wait for `result`.
    It survives cut connections: each event is yielded once, in order, and the last one ends the
    task. Leaving it early, at any moment, closes the connection; the agent's task is canceled only
    with ``cancel_on_abandon=True``. Leaving also ends an iteration in progress; starting an
    iteration afterwards is an error if the stream had not ended.

    Not safe for concurrent use: by one thread at a time. A cancelled iteration can be resumed: waits
    continue where they were, and an interrupted request is made again.

    Example:
        Read the events of an answer::

            with holdfast.sync.connect("http://localhost:9999") as agent:
                with agent.stream_message("How far is the moon?") as events:
                    for event in events:
                        print(type(event).__name__)
    """
    def __enter__(self) -> Self:
        """Send the message, and wait for the first event; a subscription is made only later.

        Raises:
            OutcomeUnknownError: The message was sent, its reply was lost, and no task of it was
                found.
            A2AError: Another failure before the first event.
            RuntimeError: It was entered before.
        """

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...
    def close(self) -> None:
        """Close the connection; the agent continues. Can be called twice.

        With ``cancel_on_abandon``, the agent's task is canceled if it is not over; `close` does
        not wait for that.
        """

    def __iter__(self) -> Self:
        """Begin to iterate, or continue.

        Raises:
            RuntimeError: The stream was closed, or has failed, before its end.
        """

    def __next__(self) -> Event:
        """Wait for the next event.

        Raises:
            ReconnectError: The stream was cut, and could not be resumed; `task` is the
                task as last seen.
            DeadlineExceededError: The timeout expired; `task` is the task as last seen.
            TaskAuthRequiredError: The timeout expired while the task waits for an authorization.
            A2AError: The agent refuses to continue.
            RuntimeError: The stream was not entered, or another task is reading it.
        """

    @property
    def is_over(self) -> bool:
        """True if no more events follow: the stream has ended, has failed, or was closed."""

    @property
    def task(self) -> Task | None:
        """The task according to the events so far; None if there is none."""

    @property
    def is_stale(self) -> bool:
        """True while `task` still waits for the message of this stream, which is a reply to it.

        Some servers begin the stream of a reply with the task as it was before the reply. That
        event is yielded like any other, but it is not the answer: `result` waits for the next.
        """

    @property
    def message(self) -> Message | None:
        """The last message of the stream; without a task, it is the answer."""

    @property
    def extensions(self) -> tuple[str, ...]:
        """URIs of the extensions that the agent has activated, according to its first reply."""

    @property
    def reconnects(self) -> int:
        """The number of resubscriptions after a cut; always 0 for a task that is polled."""

    @property
    def last_error(self) -> A2AError | None:
        """The error that broke a connection of the stream last; None if there was none.

        An error with which the agent itself ends a stream counts too.
        """

    @property
    def is_polled(self) -> bool:
        """True if events come from polling the task instead of from a stream, or did at the end.

        A task is polled if the agent does not offer streams, if a subscription might change the
        stored task (protocol 0.3), and after too many subscriptions that failed or brought no
        event. A single GetTask beside a stream, or in place of a subscription, does not count as
        polling.
        """

    @property
    def gap(self) -> bool:
        """True if status messages may be missing: agents need not keep those sent during a cut.

        The task itself, with its artifacts and its state, is always complete.
        """

    def text_changes(self, *, raise_on_failure: bool = True) -> Iteration[TextChange]:
        """Iterate over the changes of the answer's text: `TextDelta` and `TextReset`.

        A task that waits for input ends the iteration like a completed one: the state of `task` is
        INPUT_REQUIRED then, and `result` contains the question (`Answer.question`).

        Args:
            raise_on_failure: Whether a task that failed, was rejected or canceled raises its error
                at the end; True by default. If False, look at the state of `task`.

        Raises:
            TaskFailedError: At the end: the task failed; also `TaskRejectedError`,
                `TaskCanceledError`.
            A2AError: The stream failed: `ReconnectError`, `DeadlineExceededError`,
                `TaskAuthRequiredError`, or an error of the agent.
            RuntimeError: The stream was not entered, was closed, or has failed, before its end.
            TypeError: ``raise_on_failure`` is not a bool.

        Example:
            Show text, and remove what the agent replaces::

                with holdfast.sync.connect("http://localhost:9999") as agent:
                    with agent.stream_message("Tell me a story.") as events:
                        for change in events.text_changes():
                            match change:
                                case holdfast.client.TextDelta(text=text):
                                    print(text, end="", flush=True)
                                case holdfast.client.TextReset():
                                    print("(the text begins again)")
        """

    def text_deltas(self, *, raise_on_failure: bool = True) -> Iteration[str]:
        """Iterate over the text of the answer as it grows: new text only.

        Joined, it is the text of the answer, unless the agent writes artifacts in turns or
        replaces text: the new text follows then, and `text_changes` reports the reset. A line
        feed separates two artifacts.

        A task that waits for input ends the iteration like a completed one: the state of `task` is
        INPUT_REQUIRED then, and `result` contains the question (`Answer.question`).

        Args:
            raise_on_failure: Whether a task that failed, was rejected or canceled raises its error
                at the end; True by default. If False, look at the state of `task`.

        Raises:
            TaskFailedError: At the end: the task failed; also `TaskRejectedError`,
                `TaskCanceledError`.
            A2AError: The stream failed: `ReconnectError`, `DeadlineExceededError`,
                `TaskAuthRequiredError`, or an error of the agent.
            RuntimeError: The stream was not entered, was closed, or has failed, before its end.
            TypeError: ``raise_on_failure`` is not a bool.

        Example:
            Print the answer while the agent writes it::

                with holdfast.sync.connect("http://localhost:9999") as agent:
                    with agent.stream_message("Tell me a story.") as events:
                        for text in events.text_deltas():
                            print(text, end="", flush=True)
        """

    def result(self) -> Answer:
        """Wait for the answer, until the task is terminal or needs input.

        Returns:
            The answer, which is a completed task, a task that waits for input
            (`Answer.needs_input`), or a message.

        Raises:
            TaskFailedError: The task failed; also `TaskRejectedError`, `TaskCanceledError`.
            A2AError: The stream failed: `ReconnectError`, `DeadlineExceededError`,
                `TaskAuthRequiredError`, or an error of the agent.
            RuntimeError: The stream was not entered, was closed, or has failed, before there was
                an answer.

        Example:
            Wait for the answer without reading the events::

                with holdfast.sync.connect("http://localhost:9999") as agent:
                    with agent.stream_message("How far is the moon?") as events:
                        answer = events.result()
                    print(answer.text)
        """

class FanOut:
    """The results of messages to many agents; made by `Coordinator.fan_out`.

    Iterate over it for the results in the order of completion, or it for all of them in the
    order of the messages. Both can be repeated and return the same results: each message is sent
    once. Each iteration starts with the first completed result. Nothing is sent before it is used;
    a fan-out that is never used causes a ``RuntimeWarning``. To leave an
    iteration early, use it as a context manager, or call `close`.
    """
    @property
    def in_flight(self) -> int:
        """The number of messages without a result."""

    def __enter__(self) -> Self:
        """Start all calls.

        Raises:
            RuntimeError: The fan-out or its coordinator was closed.
        """

    def results(self) -> tuple[AgentResult, ...]:
        """Wait for all results, and return them in the order of the messages.

        If it is cancelled, all calls in flight are cancelled.

        Raises:
            NotEnoughResultsError: Fewer than ``min_results`` agents answered; the error has all
                results.
            RuntimeError: The fan-out, its coordinator or an agent's client was closed before the
                end.
            Exception: A consumer or another hook of the caller raised it.
        """

    def __iter__(self) -> Iteration[AgentResult]:
        """Iterate over all results in the order of completion.

        Raises:
            NotEnoughResultsError: After the last result: fewer than ``min_results`` agents
                answered.
            RuntimeError: The fan-out, its coordinator or an agent's client was closed before the
                end.
            Exception: A consumer or another hook of the caller raised it.
        """

    def close(self) -> None:
        """Cancel the calls in flight. Can be called twice."""

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...

class PendingCall:
    """A call that has no outcome in the journal, or an unknown one; returned by `Client.pending`.

    Resuming it never sends its message again: if the task's id is known, the client waits for the
    task; otherwise it searches for the task of the message.
    """
    @property
    def message_id(self) -> str:
        """Id of the message of the call, which may not have been sent."""

    @property
    def key(self) -> str | None:
        """The ``key`` of the call, or in a run the key of its message; None if it has none.

        In a fan-out with a key, it is ``key/name``, with the name of the agent.
        """

    @property
    def run_id(self) -> str | None:
        """The ``run_id`` of the run that the message belongs to; None if it belongs to none."""

    @property
    def damage(self) -> JournalError | None:
        """The error of reading the journal's record of the call; None if it is readable.

        A damaged call cannot be resumed, only dismissed: `resume` and `stream` raise this error.
        Other unreadable parts of the record are missing here, and `began` is 1970-01-01.
        """

    @property
    def task_id(self) -> str | None:
        """Id of the task; None if unknown."""

    @property
    def context_id(self) -> str | None:
        """Id of the conversation; None if unknown."""

    @property
    def agent(self) -> str:
        """Name of the agent that the call was sent to, as in `CallRecord.agent`."""

    @property
    def began(self) -> datetime:
        """Start of the call, in UTC."""

    @property
    def state(self) -> TaskState | None:
        """State of the task as last seen; None if no reply was seen."""

    @property
    def is_unknown(self) -> bool:
        """True if an earlier search found no task of the message (`OutcomeUnknownError`).

        The call stays pending: `resume` searches once more, and `dismiss` ends it.
        """

    @property
    def is_held(self) -> bool:
        """True if a process holds the lease of the call, or crashed less than a lease ago.

        The process may be this client's. The value is as of the time when the journal was read.
        """

    @property
    def held_until(self) -> datetime | None:
        """End of the lease unless its holder renews it, in UTC; None if there is no lease.

        It is by the clock of the journal's store: on another machine, clocks may differ.
        """

    @property
    def message(self) -> Message | None:
        """The message, to be sent again manually; None unless the journal stores messages.

        Raises:
            JournalError: The stored message is ``"damaged"``.
        """

    def resume(self, *, poll_interval: float = 2.0, **options: Unpack[CallOptions]) -> Answer:
        """Wait for the answer as `Client.wait` does, and return it as `Client.ask` does.

        If another process holds the call, this method waits until that lease is renewed or ends: a
        process that crashed does not renew its lease.

        Args:
            poll_interval: Seconds between two polls of a task that has to be polled; more than 0,
                2 by default.
            options: Any of `CallOptions`: ``timeout`` (seconds; the client's own, 900, by
                default), ``headers``, ``extensions``, ``context`` and ``tenant`` (none by
                default), ``timeouts`` (the client's `Timeouts` by default).

        Returns:
            The answer, which is a completed task, a task that waits for input
            (`Answer.needs_input`), or a message.

        Raises:
            OutcomeUnknownError: No task of the message was found; if the search was not possible
                or not complete, ``search_error`` has the reason. The call stays pending: it can be
                resumed again, or dismissed.
            DuplicateTasksError: More than one task was found, which ends the call.
            TaskNotFoundError: The agent no longer has the task, or has given its id to the task of
                another message, as after a restart that lost its tasks; the call stays pending.
            JournalError: Another client works on the call, or the call has ended.
            TaskFailedError: The task failed; also `TaskRejectedError`, `TaskCanceledError`.
            DeadlineExceededError: The timeout expired; the call can be resumed again.
            ValueError: An argument is out of range.
            TypeError: An argument of another type.
        """

    def stream(self, *, poll_interval: float = 2.0, **options: Unpack[CallOptions]) -> EventStream:
        """Stream the outcome: the current state of the task, and then its events.

        The call is taken over when the stream is entered, which raises the errors that `resume`
        lists.

        Args:
            poll_interval: Seconds between two polls of a task that has to be polled; more than 0,
                2 by default.
            options: Any of `CallOptions`: ``timeout`` (seconds; the client's own, 900, by
                default), ``headers``, ``extensions``, ``context`` and ``tenant`` (none by
                default), ``timeouts`` (the client's `Timeouts` by default).

        Returns:
            The stream; nothing is requested before it is entered.

        Raises:
            ValueError: An argument is out of range.
            TypeError: An argument of another type.
        """

    def dismiss(self) -> None:
        """End the call without an answer; the agent is not notified, and continues.

        A call whose record is damaged can be dismissed too, if the journal is a `SqliteJournal` or
        another journal with a method ``dismiss_damaged``.

        Raises:
            JournalError: Another client works on the call, or may work on it (`is_held`); the call
                has ended; or the journal cannot be written.
        """

def ask(
    agent: AgentTarget | Sequence[AgentTarget],
    message: Content,
    *,
    tools: ClientTools | Iterable[Callable[..., Any]] = (),
    **options: Unpack[ConnectOptions],
) -> Answer:
    """Send one message to an agent, and return the answer; opens and closes a client for it.

    Args:
        agent: Address of the agent, its card's file, its card, or a list of replicas, as for
            `connect`.
        message: The `Content` to send: text, parts, a `Message` or its JSON object.
        tools: Functions that the agent may call, or `ClientTools`, as for `Client.ask`.
        options: Options of `connect`: ``auth``, ``timeout`` (seconds, 900 by default),
            ``card_ttl`` (seconds, 300 by default), ``card_verifier``, ``require_signature``,
            ``resilience``, ``limits``, ``engine``, ``tls``, ``shared``, ``env``, ``url``,
            ``tenant``, ``bindings``, ``supported_protocol_bindings``, ``protocol_version``,
            ``allow_legacy``, ``transport_producers``, ``grpc_channel_factory``, ``configuration``,
            ``streaming``, ``on_unknown``, ``context_ids``, ``journal``, ``shared_store``,
            ``headers``, ``extensions``, ``credential_origins``, ``allowed_networks``, ``reach``,
            ``interceptors``, ``consumers``, ``observers``, ``telemetry``, ``call_layers`` and
            ``attempt_layers``.

    Returns:
        The answer, which is a completed task, a task that waits for input (`Answer.needs_input`),
        or a message.

    Raises:
        A2AError: The call failed; ``executed`` says whether the agent executed the message.
        ValueError: The message has no content, or an option is not valid.
        TypeError: An argument of another type.

    Example:
        Ask one question::

            answer = holdfast.sync.ask("http://localhost:9999", "How far is the moon?")
            print(answer.text)
    """

def connect(
    agent: AgentTarget | Sequence[AgentTarget],
    *,
    auth: str | Mapping[str, str] | AuthProvider | CredentialService | None = None,
    timeout: float = 900.0,
    card_ttl: float = 300.0,
    card_verifier: CardVerifier | CardVerifierCallable | None = None,
    require_signature: bool = False,
    resilience: Resilience | None = None,
    limits: Limits | None = None,
    engine: HttpEngine | aiohttp.ClientSession | None = None,
    tls: TlsConfig | None = None,
    shared: Endpoints | None = None,
    env: Env | None = None,
    url: str | None = None,
    tenant: str | None = None,
    bindings: Sequence[str] = (),
    supported_protocol_bindings: Sequence[str] = (),
    protocol_version: ProtocolVersion | None = None,
    allow_legacy: bool = False,
    transport_producers: Mapping[str, TransportProducer] | None = None,
    grpc_channel_factory: Callable[[str], aio.Channel] | None = None,
    configuration: SendMessageConfiguration | None = None,
    streaming: bool = True,
    on_unknown: OnUnknown = "reconcile",
    context_ids: ContextIds = "agent",
    journal: str | os.PathLike[str] | Journal | None = None,
    shared_store: bool | None = None,
    headers: Mapping[str, str] | None = None,
    extensions: Iterable[str] = (),
    credential_origins: Iterable[str] = (),
    allowed_networks: Iterable[str] = (),
    reach: AgentReach = "any",
    interceptors: Sequence[Interceptor] = (),
    consumers: Sequence[Consumer] = (),
    observers: Sequence[Observer] = (),
    telemetry: TelemetrySource | None = None,
    call_layers: Sequence[Layer] = (),
    attempt_layers: Sequence[Layer] = (),
) -> Client:
    """Make a client for one agent; nothing is fetched before the first call.

    A card that is passed is checked immediately; for a card that has to be fetched or read from a
    file, the first call reports the same problems as an `A2AError`.

    Args:
        agent: The agent: its origin or address (the card is fetched from the well-known path below
            it), the card's own URL, a ``Path`` to the card's file, the card, or its JSON object
            (`AgentTarget`). Or a list of these: replicas of the same agent. Calls about a task or
            a conversation go to the replica that created it; while that replica is unreachable, to
            the others if they share its store.
        auth: A value for ``Authorization`` with its scheme, such as ``"Bearer …"``; headers; an
            `AuthProvider`; or a `CredentialService`, which is asked for the credentials that the
            card's security requirements name, as by `AuthInterceptor`. None by default.
        timeout: Seconds for a whole call, including all retries; more than 0, 900 by default.
        card_ttl: Seconds for which the card is cached if its server sends no ``Cache-Control``;
            300 by default. 0 shares a card only among the calls that wait for the same fetch.
        card_verifier: Verifier of the signatures of the agent's card: a `CardVerifier`, or a
            function that gets the JSON object of a signed card as received, and
            raises if a signature is wrong. Only the signed members of a verified card are used; a
            card with a wrong signature is refused; `Client.card_verification` is the result. None,
            the default, verifies nothing. Pass a card as its JSON object or file: an `AgentCard`
            may lack members that were signed.
        require_signature: Whether to refuse a card that is not verified, because it has no
            signature or because its key is unknown; then nothing is sent to the agent. False by
            default.
        resilience: Retries, timeouts and other policies; `Resilience.standard` by default.
        limits: Bounds on the size of replies; ``Limits()`` by default.
        engine: The HTTP engine: an `HttpEngine` or an ``aiohttp.ClientSession``, which is used and
            not closed; by default an `AiohttpEngine` of the client's own.
        tls: TLS settings for the client's own connections: authorities to trust, and a certificate
            to present. A caller-supplied engine has its own: ``AiohttpEngine(ssl=TlsConfig(…))``.
            The system's authorities by default.
        shared: State of agents (circuits, budgets, versions) that several clients share; by
            default a client has its own. Clients with the same `Resilience.budget` share that
            retry budget.
        env: Source of wall time, random numbers and ids, for tests; the system's by default.
        url: Address of the agent's interface; the card's by default. An address that begins with
            ``grpc://``, or with ``grpcs://`` for TLS, restricts the client to gRPC.
        tenant: Tenant of all requests; the card's by default.
        bindings: Preferred bindings, best first: ``"JSONRPC"``, ``"HTTP+JSON"``, ``"GRPC"``. Where
            the card has none of them, or the list is empty, the card's order counts. An interface
            of the newer protocol version comes before one with a preferred binding. ``"GRPC"``
            needs the extra ``grpc``; without it, and with a custom ``engine``, which gRPC does not
            use, a gRPC interface is not chosen unless the list names the binding.
        supported_protocol_bindings: The only bindings that may be used; all if empty, the default,
            as in the official SDK's configuration.
        protocol_version: The version to use, ``"1.0"`` or ``"0.3"``, regardless of the card. By
            default, each interface is called in the version that the card declares for it, 1.0
            before 0.3; where it declares none, the client sends a harmless read request before the
            first call to find out.
        allow_legacy: Whether to probe for protocol 0.3 in the same way if the card declares 1.0
            only. Without this option, 0.3 is never used with such an agent: an undeclared older
            version may be an attempt at a downgrade. The option adds nothing to
            ``protocol_version="0.3"``, and is refused together with ``"1.0"``. Both options are
            refused together with ``tenant``, which 0.3 does not have. False by default.
        transport_producers: Factories of the transports of custom bindings, by the names of the
            bindings in cards: functions that get a card and one of its interfaces, and return a
            `Transport` (`TransportProducer`). None by default.
        grpc_channel_factory: Function that makes the channel for the address of a gRPC interface,
            as the card or ``url`` writes it; the channel is used unchanged, shared by all calls to
            that address, and never closed. By default, the client opens its own channels, with the
            TLS of ``tls``, or of an ``AiohttpEngine(ssl=TlsConfig(…))``. An address without a
            scheme, such as ``host:port``, uses TLS, unless it is this machine's. After a fork, the
            process must not make gRPC calls.
        configuration: Configuration of messages whose call sets none (A2A 3.2.2); none by default.
        streaming: Whether to use streams if the agent offers them; otherwise tasks are polled.
            True by default.
        on_unknown: Handling of a message that was sent and whose reply was lost. ``"reconcile"``,
            the default, searches for the task that the message created, which then replaces the
            reply (`ReconcilePolicy` bounds the search), and raises `OutcomeUnknownError` if none
            is found; ``"raise"`` raises it at once. The other two values send the same message
            again, up to `RetryPolicy.max_retries` times. They are for messages that may be
            executed twice: ``"resend_if_absent"`` resends after a search that was complete and
            found no task. It assumes that the agent's list shows every task soon, with the
            messages that created it, and that no request is delayed in the network for longer;
            ``"resend"`` assumes nothing and does not search.
        context_ids: The side that creates the id of a conversation: ``"agent"``, the default, or
            ``"client"``, which makes a lost reply findable where an agent stores no messages. The
            protocol lets agents refuse a client's context id (A2A 3.4.1); the message is then sent
            again without one.
        journal: Journal in which calls are recorded before they are sent, so that none is lost
            when the process crashes: a file, as ``"calls.db"``, a ``Path``, or
            ``"sqlite:///calls.db"`` (with four slashes for an absolute path); a PostgreSQL
            database, as ``"postgresql://host/name"``; or a `Journal`, which may be shared and is
            not closed. `Client.pending` returns the calls without an
            outcome. None, the default, records nothing.
        shared_store: Whether the replicas of a list share a store of tasks, so that each of them
            can serve every task. None lets the client find out: while the replica that created a
            task is unreachable, it asks the others for the task. True assumes a shared store from
            the start, which helps if that replica fails early. False keeps each task at the
            replica that created it.
        headers: HTTP headers to send with every request. Like ``auth``, they go to the origin of
            ``agent`` and ``url`` (of the card's first interface, where the card was passed) and
            nowhere else.
        extensions: URIs of protocol extensions for ``A2A-Extensions``, requested with every call
            (A2A 4.6). It is an error before anything is sent if the card does not declare a
            requested extension, or requires one that neither this option nor the call names.
        credential_origins: Further origins that may get ``auth`` and ``headers``. Messages are
            sent to the origin that the card names in any case. If neither this option nor
            ``agent`` or ``url`` names it, the logger ``holdfast.security`` warns once.
        allowed_networks: Networks that the card or a redirect may point into, such as
            ``"10.0.0.0/8"``. An address from another origin may point into other private,
            link-local or loopback networks only where the agent's own address is at least as
            private, and never to a cloud's metadata service.
        reach: Addresses that this client may connect to (SSRF protection): ``"any"``, the default,
            or ``"public"`` for public addresses and ``allowed_networks`` only. Use ``"public"`` in
            services that get agents' addresses from their users. It covers ``agent`` and ``url``,
            cards, redirects, interfaces over HTTP and gRPC, key sets, and the authorization server
            of ``auth``, and checks the IP address of each connection (`NetworkPolicyError`). A
            name that a proxy or ``grpc_channel_factory`` resolves is refused, because the client
            cannot check its address.
        interceptors: Objects whose methods are called before and after each call, and may change
            it or answer it early (`Interceptor`). An `AuthInterceptor` among them is the same as
            ``auth``. None by default.
        consumers: Functions that are called with each task, message or
            event that sending and waiting return, the task after it, and the agent's card
            (`Consumer`). Their exceptions are raised to the caller. None by default.
        observers: Plain functions that are called with each `Observation`, such as
            `OperationFinished` (`Observer`). An exception of an observer is logged, and the first
            one is also a ``RuntimeWarning``. None by default.
        telemetry: Makes spans and metrics, such as
            ``holdfast.integrations.opentelemetry.Telemetry``. By default that of
            ``HoldfastInstrumentor``, or none.
        call_layers: Custom layers around each call with all its attempts, outermost first:
            functions that get a `Transport` and return one (`Layer`). None by default.
        attempt_layers: Custom layers around each attempt, outermost first; as for ``call_layers``.

    Returns:
        The client; close it, or use it as a context manager. Nothing is sent before its
        first call.

    Raises:
        ValueError: An address, a header, a binding or a number that is not valid, or options
            that contradict each other; or no interface of the card that was passed may be used.
        InvalidAgentCardError: The card that was passed is not usable; ``field`` names the cause.
        ImportError: gRPC is requested, and its extra is not installed.
        TypeError: An argument of another type.

    Example:
        Ask one agent, with a deadline of a minute for each call::

            with holdfast.sync.connect("http://localhost:9999", timeout=60) as agent:
                answer = agent.ask("How far is the moon?")
                print(answer.text)
    """

def diagnose(
    agent: str | Path,
    *,
    send: Content | None = None,
    twice: bool = False,
    auth: str | Mapping[str, str] | AuthProvider | CredentialService | None = None,
    headers: Mapping[str, str] | None = None,
    timeout: float = 120.0,
    protocol_version: ProtocolVersion | None = None,
    bindings: Sequence[str] = (),
    limits: Limits | None = None,
    engine: HttpEngine | aiohttp.ClientSession | None = None,
    env: Env | None = None,
    card_verifier: CardVerifier | CardVerifierCallable | None = None,
    tls: TlsConfig | None = None,
) -> Diagnosis:
    """Examine an agent, and return the findings: each with its consequence and an advice.

    By default only harmless requests are sent, some ten for each interface: they read the card and
    tasks, name a task that does not exist, or are not valid, so that no agent executes anything.
    Checks of streams, and of how messages are stored, need a message.

    Args:
        agent: The agent's address, or the ``Path`` of its card, as for `connect`.
        send: A message (`Content`, such as text) that the agent may execute; it is sent once.
            None, the default, for none.
        twice: Whether to send the same message, with the same id, once more, to check that the id
            is unique; False by default. Most agents execute it a second time.
        auth: Credentials, as for `connect`.
        headers: Headers for every request to the agent's own origin.
        timeout: Seconds for the whole examination, more than 0, 120 by default; half of them are
            for observing the task.
        protocol_version: The version in which the message may be sent, ``"1.0"`` or ``"0.3"``;
            None for any that the agent supports.
        bindings: Preferred bindings for the message, the best one first: ``"JSONRPC"``,
            ``"HTTP+JSON"``.
        limits: Bounds on the size of replies; None for the defaults.
        engine: The HTTP engine, as for `connect`. With your own engine, which may trust other
            authorities, the server's TLS is not inspected.
        env: Wall time and ids; None for the system's.
        card_verifier: Verifier of the card's signatures, such as a `CardVerifier`; none by
            default.
        tls: TLS settings, without ``engine``.

    Returns:
        The findings, also if the agent cannot be reached.

    Raises:
        ValueError: An address, a header or a number is not valid.
        TypeError: An argument has the wrong type.

    Example:
        Print the problems of an agent::

            from holdfast.sync import diagnose

            diagnosis = diagnose("http://localhost:9999")
            for finding in diagnosis.findings:
                if finding.level == "problem":
                    print(finding.check, finding.saw, finding.do)
    """

class Iteration(Generic[_T]):
    """A walk through what comes, which keeps what it comes from."""

    def __iter__(self) -> Self:
        """The iteration itself."""
    def __next__(self) -> _T:
        """The next one."""
    def close(self) -> None:
        """Ends it early. Can be called twice."""

def run(coroutine: Coroutine[Any, Any, _T]) -> _T:
    """Run a coroutine on the event loop of `holdfast.sync`, and return its result.

    For methods of caller-supplied objects, such as an engine or a journal:
    ``run(engine.close())``.

    Args:
        coroutine: The coroutine.

    Raises:
        TypeError: It is not a coroutine.
        RuntimeError: It is called on that event loop, or the process is exiting.
        BaseException: The coroutine raised it.
    """
