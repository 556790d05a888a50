"""How a client makes streams: how each begins, and the calls that it is made of from then on."""

from __future__ import annotations

import contextlib
import logging
from functools import partial
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

from holdfast._client.sending import SendOperation
from holdfast._model.operations import SEND_STREAMING_MESSAGE, SUBSCRIBE_TO_TASK
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
    from holdfast._journal.writer import HeldCall
    from holdfast._pipeline.listeners import Consumer
    from holdfast._pipeline.transport import Stream
    from holdfast._policy.deadline import Deadline
    from holdfast._policy.origin import Origin
    from holdfast._stream.outbox import EventOutbox
    from holdfast._stream.replies import PendingReply
    from holdfast.errors import Attempt
    from holdfast.types import (
        Event,
        SendMessageConfiguration,
        SendMessageRequest,
        StreamResponse,
        Task,
    )

__all__ = ["StreamCalls"]

logger = logging.getLogger("holdfast")


class StreamCalls:
    """One stream of a client: opened by a message, or of a task that there is already.

    Args:
        calls: What makes calls.
        scope: When it ends, if ever, and what goes with each of its requests.
        poll_interval: Seconds between two looks where the task has to be polled.
        until_deadline: Whether only the deadline ends the stream while the agent is unreachable or
            sends Retry-After.

    Attributes:
        scope: When it ends, if ever, and what goes with each of its requests.
        extensions: What the agent has activated, as the reply to the first request said.
        call: What is written down of the message that was sent last; None for nothing.
        is_polled: Whether the task is polled because a subscription might do it harm.
        observed: The call, as observers learn of its end.
    """

    def __init__(
        self,
        calls: ClientCore,
        scope: CallScope,
        *,
        poll_interval: float,
        until_deadline: bool = False,
    ) -> None:
        self._calls = calls
        self.scope = scope
        self._poll_interval = poll_interval
        self._until_deadline = until_deadline
        self.extensions: tuple[str, ...] = ()
        self.call: HeldCall | None = None
        self._request_id = ""
        self._sending: SendOperation | None = None
        self.is_polled = False
        self._origin: Origin | None = None  # the message that the task answers
        self.observed = calls.observed(scope, SUBSCRIBE_TO_TASK.name)
        self._subscribed: tuple[Attempt, ...] = ()

    @property
    def deadline(self) -> Deadline:
        """When the stream ends, if ever."""
        return self.scope.deadline

    @property
    def attempts(self) -> tuple[Attempt, ...]:
        """Each try that was made to send the message, or to subscribe first, in order."""
        return self._subscribed if self._sending is None else self._sending.attempts

    @property
    def is_sent(self) -> bool:
        """Whether the message that was to be sent last may have left."""
        return self._sending is not None and self._sending.is_sent

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
        """What sends a message, and gives what comes of it.

        Where the agent does not stream, it is asked to answer at once, and its task is polled.
        Of a task that is ``known``, only what is new is delivered; for ``has_progressed`` see
        `StreamMachine`.
        """
        request = self._calls.request(
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
        """The same for a request that says everything itself; its message has an id."""
        self.observed.operation = SEND_STREAMING_MESSAGE.name
        make = partial(self._machine, known=known, has_progressed=has_progressed)
        return partial(self._send, request, known, make)

    def saw(self, outbox: EventOutbox) -> None:
        """Notes how the task of a stream stands when that is over."""
        if outbox.task_id is not None and outbox.status is not None:
            self._calls.replies.saw(outbox.task_id, outbox.status)

    def has_begun(self) -> None:
        """Notes that there is a first event; see `Deadline.ends_at_first_event`."""
        if self.deadline.ends_at_first_event:
            self.scope = self.scope.within(NEVER)

    def subscribe_to(
        self, task_id: str, *, forced: bool = False, origin: Origin | None = None
    ) -> Callable[[], Awaitable[ResumableStream]]:
        """What gives a task and its events: by a subscription, where streams are offered.

        At an agent of protocol 0.3, whose stored task a subscription may change, the task is
        polled instead, unless it is ``forced``. Where the message that the task answers is known,
        ``origin`` is it: an agent that restarts may give the id to another message's task.
        """
        self._origin = origin
        return partial(self._subscribe_to, task_id, forced=forced)

    def follow(
        self, task_id: str, task: Task | None = None
    ) -> Callable[[], Awaitable[ResumableStream]]:
        """What gives a task and its events: by a subscription only where that does it no harm.

        Of a task that the caller has already, only what is new is delivered.
        """
        return partial(self._follow, task_id, task)

    async def _send(
        self, request: SendMessageRequest, known: Task | None, make: Callable[..., StreamMachine]
    ) -> ResumableStream:
        reply = await self._calls.replying(request.message, self.scope, known=known)
        sending = self._sending = SendOperation(self._calls, request, self.scope, reply=reply)
        make = partial(make, reply=reply)
        if self.call is not None and known is not None:  # whose answer this message is for
            await self.call.answered(known)
        try:
            return await sending.recorded(partial(self._begin, sending, make))
        finally:
            self.call = sending.call

    async def _begin(
        self, sending: SendOperation, make: Callable[..., StreamMachine]
    ) -> ResumableStream:
        if await self._are_streams_offered():
            try:
                opened = await sending.open()
            except UnsupportedOperationError as error:
                if error.executed is not False:  # it is the agent who says so
                    raise
            else:
                self._origin = sending.origin
                machine = make(resubscribes=self.subscribing_is_safe)
                self.has_begun()
                if isinstance(opened, Reply):
                    self.extensions = opened.extensions
                    return self._live(machine, opened.value)
                machine.on_found(opened)
                return self._live(machine, None)
        sent = await sending.send(at_once=True)
        self.has_begun()
        self.extensions = sent.extensions
        self._origin = sending.origin
        machine = make()
        machine.on_event(sent.value)
        machine.on_no_streams()
        return self._live(machine, None)

    async def _subscribe_to(self, task_id: str, *, forced: bool) -> ResumableStream:
        machine = self._machine(task_id=task_id, reply=self._calls.replies.pending(task_id))
        if not await self._are_streams_offered():
            machine.on_no_streams()
        elif not forced and await self._is_of_v03():
            logger.warning(
                "task %s is polled: the agent speaks protocol 0.3, whose servers may store a "
                "task's text once more for each subscriber (force_subscription=True subscribes)",
                task_id,
            )
            self.is_polled = True
            machine.on_no_streams()
        return self._live(machine, None)

    async def _is_of_v03(self) -> bool:
        """Whether calls go to an interface of protocol 0.3, which may be known by now."""
        if self._calls.subscribing_is_safe is not None:
            return not self._calls.subscribing_is_safe
        card = await self._calls.card(self.deadline)
        versions = [one.protocol_version or "" for one in card.supported_interfaces]
        return bool(versions) and all(version.startswith("0.") for version in versions)

    async def _follow(self, task_id: str, task: Task | None) -> ResumableStream:
        reply = self._calls.replies.pending(task_id)
        machine = self._machine(task_id=task_id, task=task, reply=reply)
        if not (await self._are_streams_offered() and await self._may_subscribe(task_id)):
            machine.on_no_streams()
        return self._live(machine, None)

    async def _may_subscribe(self, task_id: str) -> bool:
        """Whether a subscription leaves a task as it is; not as long as nobody knows."""
        if self._calls.subscribing_is_safe is None:
            with contextlib.suppress(A2AError):  # which comes again when the task is polled
                await self.get_task(task_id)
        return self.subscribing_is_safe

    async def _are_streams_offered(self) -> bool:
        if not self._calls.streaming:
            return False
        card = await self._calls.card(self.deadline)
        return bool(card.capabilities.streaming)

    def _machine(
        self,
        *,
        task_id: str | None = None,
        task: Task | None = None,
        known: Task | None = None,
        reply: PendingReply | None = None,
        resubscribes: bool = True,
        has_progressed: Callable[[Task], bool] | None = None,
    ) -> StreamMachine:
        return StreamMachine(
            self._calls.limits,
            max_reconnects=self._calls.resilience.reconnect.max_reconnects,
            until_deadline=self._until_deadline,
            task_id=task_id,
            task=task,
            known=known,
            reply=reply,
            resubscribes=resubscribes,
            has_progressed=has_progressed,
            origin=self._origin,
        )

    def _live(
        self, machine: StreamMachine, connection: Stream[StreamResponse] | None
    ) -> ResumableStream:
        resilience = self._calls.resilience
        return ResumableStream(
            machine,
            self,
            connection,
            env=self._calls.env,
            watchdog=self._calls.watchdog,
            deadline=self.deadline,
            policy=resilience.reconnect,
            max_retry_after=None if self._until_deadline else resilience.retry.max_retry_after,
            poll_interval=self._poll_interval,
        )

    # ── What the stream is made of ───────────────────────────────────────────────────────────

    async def subscribe(self, task_id: str) -> Stream[StreamResponse]:
        """Subscribes to the task, once: the stream itself tries again."""
        self.check_open(task_id)
        self._request_id = self._calls.env.new_id()
        reply = await self._calls.stream(
            SUBSCRIBE_TO_TASK,
            SubscribeToTaskRequest(id=task_id),
            self.scope,
            request_id=self._request_id,
            is_retried=False,
        )
        self.extensions = self.extensions or reply.extensions
        self._subscribed = self._subscribed or reply.attempts
        return reply.value

    async def get_task(self, task_id: str) -> Task:
        """Fetches the task."""
        self.check_open(task_id)
        task = await self._calls.get_task(task_id, self.scope)
        if self._origin is not None and self._calls.journaling is not None:
            await self._calls.journaling.note_later(self._origin, task)
        return task

    async def find_task(self, error: A2AError | None) -> Task:
        """Searches for the task of the message that was sent last: see `SendOperation.search`."""
        self.check_open("")
        if self._sending is None:
            text = "no message was sent"
            raise RuntimeError(text)
        return await self._sending.search(error, self.deadline)

    def on_reconnect(self, task_id: str, number: int, error: A2AError | None) -> None:
        """Tells observers."""
        self._calls.observers.reconnected(
            request_id=self._request_id,
            agent=self._calls.agent,
            task_id=task_id,
            number=number,
            error=error,
        )

    def register(self, task_id: str, stream: ResumableStream) -> None:
        """Notes a stream of a task."""
        self._calls.streams.setdefault(task_id, WeakSet()).add(stream)

    def unregister(self, task_id: str, stream: ResumableStream) -> None:
        """Forgets it."""
        others = self._calls.streams.get(task_id, WeakSet[ResumableStream]())
        others.discard(stream)
        if not others:
            self._calls.streams.pop(task_id, None)

    async def tell(self, consumers: Iterable[Consumer], event: Event, task: Task | None) -> None:
        """Tells consumers of an event."""
        await self._calls.tell(consumers, event, task, self.deadline)

    @property
    def agent(self) -> str | None:
        """The address that answered last."""
        return self._calls.agent

    @property
    def subscribing_is_safe(self) -> bool:
        """Whether a subscription leaves a task as it is, as far as anybody has answered."""
        return bool(self._calls.subscribing_is_safe)

    @property
    def is_closed(self) -> bool:
        """Whether the client is closed."""
        return self._calls.is_closed

    async def pause(self, seconds: float) -> None:
        """Waits, and no longer than until the client is closed."""
        await self._calls.pause(seconds)

    def check_open(self, task_id: str) -> None:
        """Raises an `A2AConnectionError` if the client is closed."""
        self._calls.check_watching(task_id)
