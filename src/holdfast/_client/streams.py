"""Streams of a client: how a message or a subscription begins one, and its later requests."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from functools import partial
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

import msgspec

from holdfast._client.sending import SendOperation
from holdfast._model.operations import SUBSCRIBE_TO_TASK
from holdfast._pipeline.transport import Reply
from holdfast._policy.deadline import NEVER
from holdfast._stream.machine import StreamMachine
from holdfast._stream.resumable import ResumableStream
from holdfast.errors import A2AError, UnsupportedOperationError
from holdfast.types import SubscribeToTaskRequest

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping

    from holdfast._client.call_scope import CallScope
    from holdfast._client.content import Content
    from holdfast._client.core import ClientCore
    from holdfast._client.pending import Resend
    from holdfast._client.reconcile_search import SearchReport
    from holdfast._journal.writer import HeldCall
    from holdfast._pipeline.listeners import Consumer
    from holdfast._pipeline.observations import WaitReason
    from holdfast._pipeline.transport import Stream
    from holdfast._policy.deadline import Deadline
    from holdfast._policy.task_ownership import TaskOwner
    from holdfast._stream.outbox import EventOutbox
    from holdfast._stream.replies import PendingReply
    from holdfast.errors import Attempt, OutcomeUnknownError
    from holdfast.types import (
        Event,
        Message,
        SendMessageConfiguration,
        SendMessageRequest,
        StreamResponse,
        Task,
    )

__all__ = ["StreamCalls"]


class StreamCalls:
    """One stream of a client, which begins with a message or follows an existing task.

    Args:
        client: Makes the requests.
        scope: The deadline, if any, and what each of the stream's requests carries.
        poll_interval: Seconds between two polls where the task has to be polled.
        until_deadline: Whether only the deadline ends the stream while the agent is unreachable or
            sends Retry-After.
        cancel_on_abandon: Whether to cancel the agent's task if the caller abandons the call.

    Attributes:
        client: Makes the requests.
        scope: The deadline, if any, and what each of the stream's requests carries.
        cancel_on_abandon: Whether to cancel the agent's task if the caller abandons the call.
        extensions: The extensions that the agent has activated, according to its first reply.
        call: The journal's record of the message that was sent last; None where there is none.
    """

    def __init__(
        self,
        client: ClientCore,
        scope: CallScope,
        *,
        poll_interval: float,
        until_deadline: bool = False,
        cancel_on_abandon: bool = False,
    ) -> None:
        self.client = client
        self.scope = scope
        self.cancel_on_abandon = cancel_on_abandon
        self._poll_interval = poll_interval
        self._until_deadline = until_deadline
        self.extensions: tuple[str, ...] = ()
        self.call: HeldCall | None = None
        self._sending: SendOperation | None = None
        self._sent_to: str | None = None
        self._owner: TaskOwner | None = None  # the message that created the task
        self._subscribed: tuple[Attempt, ...] = ()

    @property
    def deadline(self) -> Deadline:
        """The deadline of the stream, if any."""
        return self.scope.deadline

    @property
    def attempts(self) -> tuple[Attempt, ...]:
        """Each attempt to send the message, or to subscribe first, in order."""
        return self._subscribed if self._sending is None else self._sending.attempts

    @property
    def is_sent(self) -> bool:
        """Whether the message that was to be sent last may have been sent."""
        return self._sending is not None and self._sending.is_sent

    @property
    def is_late(self) -> bool:
        """Whether the deadline has passed."""
        return self.deadline.remaining(asyncio.get_running_loop().time()) <= 0

    @property
    def sent_to(self) -> str | None:
        """The task that the message continues, if the message may have been sent."""
        return self._sent_to if self.is_sent else None

    def send(
        self,
        content: Content,
        *,
        task_id: str | None,
        context_id: str | None,
        metadata: Mapping[str, Any] | None,
        configuration: SendMessageConfiguration,
        message_metadata: Mapping[str, Any] | None = None,
        known: Task | None = None,
        has_progressed: Callable[[Task], bool] | None = None,
    ) -> Callable[[], Awaitable[ResumableStream]]:
        """Return a function that sends a message and returns the stream of its answer.

        An agent without streaming is asked to return immediately, and its task is polled. For a
        task that the caller knows (``known``), only changes are delivered; for ``has_progressed``
        see `StreamMachine`.
        """
        request = self.client.request(
            content,
            task_id=task_id,
            context_id=context_id,
            metadata=metadata,
            message_metadata=message_metadata,
            configuration=configuration,
        )
        return self.send_request(request, known=known, has_progressed=has_progressed)

    def send_request(
        self,
        request: SendMessageRequest,
        *,
        known: Task | None = None,
        has_progressed: Callable[[Task], bool] | None = None,
    ) -> Callable[[], Awaitable[ResumableStream]]:
        """Do the same with a complete request, whose message has an id."""
        make = partial(self._machine, known=known, has_progressed=has_progressed)
        scope, keyed = self.scope, self.scope.keyed
        send = partial(self._send, request, scope, known, make)
        if keyed is None:
            return send
        # Only this message has the key, however often it is sent, and no reply after it.
        self.scope = msgspec.structs.replace(scope, keyed=None)
        again = partial(self._resend, request, make=make, known=known)
        return partial(
            keyed.once,
            request.message,
            self.deadline,
            send=send,
            earlier=lambda call: call.events(self, again),
        )

    def resend(self, request: SendMessageRequest) -> Resend:
        """Return a function that sends the message of a recorded call again."""
        return partial(self._resend, request, make=self._machine)

    def answered(self, result: Task | Message) -> ResumableStream:
        """Return a stream of one event, the result of a call that has ended."""
        machine = self._machine()
        machine.on_event(result)
        machine.on_poll_only()
        return self._resumable(machine, None)

    def note_state(self, outbox: EventOutbox) -> None:
        """Note the state of a stream's task when the stream has ended."""
        if outbox.task_id is not None and outbox.status is not None:
            self.client.replies.record_status(outbox.task_id, outbox.status)

    def on_first_event(self) -> None:
        """End the deadline if it applies only to the first event (`ends_at_first_event`)."""
        if self.deadline.ends_at_first_event:
            self.scope = self.scope.within(NEVER)

    def subscribe_to(
        self, task_id: str, *, forced: bool = False, owner: TaskOwner | None = None
    ) -> Callable[[], Awaitable[ResumableStream]]:
        """Return a function that yields a task and its events, by a subscription if offered.

        At an agent of protocol 0.3, whose stored task a subscription may change, the task is
        polled instead, unless it is ``forced``. ``owner`` is the message that created the task,
        where it is known: after a restart, an agent may give the id to another message's task.
        """
        self._owner = owner
        return partial(self._subscribe_to, task_id, forced=forced)

    def follow(
        self, task_id: str, task: Task | None = None
    ) -> Callable[[], Awaitable[ResumableStream]]:
        """Return a function that yields a task and its events, subscribing only where harmless.

        For a task that the caller has already, only changes are delivered.
        """
        return partial(self._follow, task_id, task)

    async def _send(
        self,
        request: SendMessageRequest,
        scope: CallScope,
        known: Task | None,
        make: Callable[..., StreamMachine],
    ) -> ResumableStream:
        reply = await self.client.replying(request.message, scope, last_seen=known)
        sending = self._sending = SendOperation(self.client, request, scope, reply=reply)
        self._sent_to = request.message.task_id
        make = partial(make, reply=reply)
        if self.call is not None and known is not None:  # this message replies to that answer
            await self.call.record_answer(known)
        try:
            return await sending.recorded(partial(self._begin, sending, make))
        finally:
            self.call = sending.call

    async def _resend(
        self,
        request: SendMessageRequest,
        call: HeldCall,
        lost: OutcomeUnknownError,
        search: SearchReport,
        *,
        make: Callable[..., StreamMachine],
        known: Task | None = None,
    ) -> ResumableStream:
        """Send the message of a claimed call again, because its task was not found."""
        reply = await self.client.replying(request.message, self.scope, last_seen=known)
        sending = self._sending = SendOperation(self.client, request, self.scope, reply=reply)
        sending.resume(call, lost, search)
        self._sent_to = request.message.task_id
        return await self._begin(sending, partial(make, reply=reply))

    async def _begin(
        self, sending: SendOperation, make: Callable[..., StreamMachine]
    ) -> ResumableStream:
        if self.cancel_on_abandon and sending.call is not None:
            sending.call.hold_after_errors()  # until its task is canceled: see `AbandonedCall`
        if await self._are_streams_offered():
            try:
                opened = await sending.open()
            except UnsupportedOperationError as error:
                if error.executed is not False:  # the agent refused, not this client
                    raise
            else:
                self._owner = sending.owner
                machine = make(subscribing_is_safe=self.subscribing_is_safe)
                self.on_first_event()
                if isinstance(opened, Reply):
                    self.extensions = opened.extensions
                    return self._resumable(machine, opened.value)
                machine.on_found(opened)
                return self._resumable(machine, None)
        sent = await sending.send(at_once=True)
        self.on_first_event()
        self.extensions = sent.extensions
        self._owner = sending.owner
        machine = make()
        machine.on_event(sent.value)
        machine.on_poll_only()
        return self._resumable(machine, None)

    async def _subscribe_to(self, task_id: str, *, forced: bool) -> ResumableStream:
        self.scope.operation.task_id = task_id
        machine = self._machine(task_id=task_id, reply=self.client.replies.pending(task_id))
        if not await self._are_streams_offered():
            machine.on_poll_only()
        elif not forced and await self._is_of_v03():
            self.scope.operation.log(
                logging.WARNING,
                "task %s is polled: the agent speaks protocol 0.3, whose servers may store a "
                "task's text once more for each subscriber (force_subscription=True subscribes)",
                task_id,
            )
            machine.on_poll_only()
        return self._resumable(machine, None)

    async def _is_of_v03(self) -> bool:
        """Return whether calls go to an interface of protocol 0.3, fetching the card if needed."""
        if self.client.subscribing_is_safe is not None:
            return not self.client.subscribing_is_safe
        card = await self.client.card(self.scope)
        versions = [interface.protocol_version or "" for interface in card.supported_interfaces]
        return bool(versions) and all(version.startswith("0.") for version in versions)

    async def _follow(self, task_id: str, task: Task | None) -> ResumableStream:
        reply = self.client.replies.pending(task_id)
        machine = self._machine(task_id=task_id, task=task, reply=reply)
        if not (await self._are_streams_offered() and await self._is_subscribing_safe(task_id)):
            machine.on_poll_only()
        return self._resumable(machine, None)

    async def _is_subscribing_safe(self, task_id: str) -> bool:
        """Return whether a subscription leaves a task unchanged; False while that is unknown."""
        if self.client.subscribing_is_safe is None:
            with contextlib.suppress(A2AError):  # polling the task raises it again
                await self.get_task(task_id)
        return self.subscribing_is_safe

    async def _are_streams_offered(self) -> bool:
        if not self.client.streaming:
            return False
        card = await self.client.card(self.scope)
        return bool(card.capabilities.streaming)

    def _machine(
        self,
        *,
        task_id: str | None = None,
        task: Task | None = None,
        known: Task | None = None,
        reply: PendingReply | None = None,
        subscribing_is_safe: bool = True,
        has_progressed: Callable[[Task], bool] | None = None,
    ) -> StreamMachine:
        return StreamMachine(
            self.client.limits,
            max_reconnects=self.client.resilience.reconnect.max_reconnects,
            until_deadline=self._until_deadline,
            task_id=task_id,
            task=task,
            known=known,
            reply=reply,
            subscribing_is_safe=subscribing_is_safe,
            has_progressed=has_progressed,
            owner=self._owner,
        )

    def _resumable(
        self, machine: StreamMachine, connection: Stream[StreamResponse] | None
    ) -> ResumableStream:
        resilience = self.client.resilience
        return ResumableStream(
            machine,
            self,
            connection,
            env=self.client.env,
            watchdog=self.client.watchdog,
            deadline=self.deadline,
            policy=resilience.reconnect,
            max_retry_after=None if self._until_deadline else resilience.retry.max_retry_after,
            poll_interval=self._poll_interval,
        )

    # ── The requests of the stream ───────────────────────────────────────────────────────────

    async def subscribe(self, task_id: str) -> Stream[StreamResponse]:
        """Subscribe to the task, once: retrying is the stream's task."""
        self.check_open(task_id)
        reply = await self.client.stream(
            SUBSCRIBE_TO_TASK,
            SubscribeToTaskRequest(id=task_id),
            self.scope,
            is_retried=False,
        )
        self.extensions = self.extensions or reply.extensions
        self._subscribed = self._subscribed or reply.attempts
        return reply.value

    async def get_task(self, task_id: str) -> Task:
        """Fetch the task."""
        self.check_open(task_id)
        task = await self.client.get_task(task_id, self.scope)
        if self._owner is not None and self.client.journaling is not None:
            await self.client.journaling.note_later(self._owner, task)
        return task

    async def find_task(self, error: A2AError | None, deadline: Deadline | None = None) -> Task:
        """Search for the task of the message that was sent last: see `SendOperation.search`.

        Args:
            error: The error that broke the stream, if any.
            deadline: The deadline of the search; that of the stream if left out.
        """
        self.check_open("")
        if self._sending is None:
            text = "no message was sent"
            raise RuntimeError(text)
        return await self._sending.search(error, deadline or self.deadline)

    def on_interrupted(self, task_id: str | None, error: A2AError | None) -> None:
        """Notify observers that the stream was cut, or cannot be resumed yet."""
        operation = self.scope.operation
        operation.task_id = task_id
        self.client.observers.stream_interrupted(operation, error)

    def on_failing(self, task_id: str | None, error: A2AError, *, seconds: float) -> None:
        """Warn that requests continue to fail; the stream fails after `seconds` of that."""
        operation = self.scope.operation
        operation.task_id = task_id
        operation.log(
            logging.WARNING,
            "the stream of task %s was cut, and requests fail; trying again for up to %.0f s: %s",
            task_id,
            seconds,
            error,
            error=error,
        )

    def on_gap(self, task_id: str | None) -> None:
        """Notify observers that status messages may be missing after a cut."""
        operation = self.scope.operation
        operation.task_id = task_id
        self.client.observers.gap_detected(operation)

    def on_reconnect(self, task_id: str, number: int, error: A2AError | None) -> None:
        """Notify observers of a reconnect."""
        operation = self.scope.operation
        operation.task_id = task_id
        self.client.observers.reconnected(operation, number=number, error=error)

    def register(self, task_id: str, stream: ResumableStream) -> None:
        """Register a stream of a task."""
        self.client.streams.setdefault(task_id, WeakSet()).add(stream)

    def unregister(self, task_id: str, stream: ResumableStream) -> None:
        """Remove a stream of a task."""
        streams = self.client.streams.get(task_id, WeakSet[ResumableStream]())
        streams.discard(stream)
        if not streams:
            self.client.streams.pop(task_id, None)

    async def call_consumers(
        self, consumers: Iterable[Consumer], event: Event, task: Task | None
    ) -> None:
        """Call consumers with an event."""
        await self.client.call_consumers(consumers, event, task, self.scope)

    @property
    def agent(self) -> str | None:
        """The address that answered last."""
        return self.client.agent

    @property
    def subscribing_is_safe(self) -> bool:
        """Whether a subscription leaves a task unchanged; False until an agent has answered."""
        return bool(self.client.subscribing_is_safe)

    async def pause(self, seconds: float, *, reason: WaitReason | None) -> None:
        """Wait, until the client is closed at the latest; report a wait that has a reason."""
        if reason is None:
            await self.client.pause(seconds)
            return
        with self.scope.operation.waiting(reason, seconds):
            await self.client.pause(seconds)

    def check_open(self, task_id: str) -> None:
        """Raise an `A2AConnectionError` if the client is closed."""
        self.client.check_watching(task_id)
