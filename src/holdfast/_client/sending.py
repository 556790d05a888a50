"""Sending a message: recorded in the journal first if there is one, sent at most once, reconciled.

`holdfast.connect` documents what a caller may allow beyond that (``on_unknown``,
``context_ids``). The search for a lost message is in `holdfast._client.reconcile`.

A message that begins a conversation may get a context id from the client, by which it can be
found. The protocol lets agents refuse such an id (A2A 3.4.1): the message is then sent to that
agent once more without one, and so is every later message.
"""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING, Any, TypeVar, cast

import msgspec

from holdfast._aio.cancel_scope import wait_until
from holdfast._client.resend import found_task, outcome_unknown, wants_resend, wants_search
from holdfast._client.task_waiter import watch_task
from holdfast._model.digest import message_digest
from holdfast._model.operations import LIST_TASKS, SEND_MESSAGE, SEND_STREAMING_MESSAGE
from holdfast._pipeline.transport import CallProgress, Reply
from holdfast._policy.attempts import joined_attempts, last_not_executed
from holdfast._policy.deadline import deadline_error
from holdfast._policy.retry import backoff
from holdfast._policy.task_ownership import TaskOwner
from holdfast.errors import (
    A2AError,
    DeadlineExceededError,
    Facts,
    InvalidAgentResponseError,
    InvalidParamsError,
    OutcomeUnknownError,
    TaskNotFoundError,
)
from holdfast.types import ListTasksRequest, SendMessageConfiguration, SendMessageResponse, Task

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine

    from holdfast._client.call_scope import CallScope
    from holdfast._client.core import ClientCore
    from holdfast._client.reconcile_search import SearchReport
    from holdfast._journal.writer import HeldCall, Journaling
    from holdfast._model.operations import Operation
    from holdfast._pipeline.transport import Stream
    from holdfast._policy.deadline import Deadline
    from holdfast._stream.replies import PendingReply
    from holdfast.errors import Attempt
    from holdfast.types import Message, SendMessageRequest, StreamResponse

__all__ = [
    "SendOperation",
    "is_context_refused",
    "returns_immediately",
    "with_client_context_id",
    "without_context_id",
]

R = TypeVar("R")
T = TypeVar("T")


_CONTEXT_ID = re.compile(r"context[\s_-]?id", re.IGNORECASE)


def with_client_context_id(
    request: SendMessageRequest, core: ClientCore
) -> SendMessageRequest | None:
    """Return the message in a context of the client's; None if it has one, or is to have none."""
    message, endpoint = request.message, core.endpoint
    is_refused = endpoint is not None and endpoint.accepts_context_ids is False
    if core.context_ids != "client" or is_refused or message.context_id or message.task_id:
        return None
    return _in_context(request, core.env.new_id())


def without_context_id(request: SendMessageRequest, core: ClientCore) -> SendMessageRequest:
    """Return the message without a context; later messages to this agent get none either."""
    if core.endpoint is not None:
        core.endpoint.accepts_context_ids = False
    return _in_context(request, None)


async def is_context_refused(
    request: SendMessageRequest,
    error: A2AError,
    core: ClientCore,
    scope: CallScope,
) -> bool:
    """Return whether the agent refused the client's context id, and so executed nothing.

    An agent may report invalid parameters after it has executed the message; then a task exists.
    If that task is in a context of the agent's own, the search here does not find it. The error
    therefore has to mention this context id, or ids of contexts in general: an error about a
    model's context that is too long does not count.
    """
    context_id = request.message.context_id
    if not isinstance(error, InvalidParamsError) or not context_id:
        return False
    if context_id not in error.message and not _CONTEXT_ID.search(error.message):
        return False
    tasks = ListTasksRequest(context_id=context_id)
    try:
        page = await core.call(LIST_TASKS, tasks, scope)
    except (InvalidParamsError, TaskNotFoundError):
        return True  # the agent does not know that context
    except A2AError:
        return False
    return not page.value.tasks


def _in_context(request: SendMessageRequest, context_id: str | None) -> SendMessageRequest:
    message = msgspec.structs.replace(request.message, context_id=context_id)
    return msgspec.structs.replace(request, message=message)


_POLL_INTERVAL_S = 2.0
"""Seconds between two polls of a task that was found."""


class SendOperation:
    """Sends one message.

    Args:
        core: Makes calls.
        request: The message, with its id.
        scope: The deadline of the operation, what each of its requests carries, and what to do
            if the reply is lost.
        reply: The message as a reply to an interrupted task; None where it is none.

    Attributes:
        call: The journal's record of it; None where there is no journal.
        attempts: Each attempt to send it, in order.
    """

    call: HeldCall | None = None
    attempts: tuple[Attempt, ...] = ()
    _progress: CallProgress | None = None
    _began: float | None = None  # when the first attempt began, on the event loop's clock
    _opened: Reply[Stream[StreamResponse]] | None = None
    _earlier: tuple[Attempt, ...] = ()  # attempts of calls that failed
    _lost: OutcomeUnknownError | None = None  # the error of the latest lost reply
    _times_lost = 0
    _search: SearchReport | None = None
    _is_resumed = False  # whether the message may have been sent before, in an earlier call

    def __init__(
        self,
        core: ClientCore,
        request: SendMessageRequest,
        scope: CallScope,
        *,
        reply: PendingReply | None = None,
    ) -> None:
        own = with_client_context_id(request, core) if core.context_ids == "client" else None
        self._original = request.message
        self._core = core
        self._scope = scope
        self._request = own or request
        self._is_own_context = own is not None
        self._reply = reply

    def resume(self, call: HeldCall, lost: OutcomeUnknownError, search: SearchReport) -> None:
        """Resume a recorded call, whose message may have been sent before: send it again.

        Args:
            call: The call, which this client has claimed.
            lost: The error of the message's lost reply.
            search: The search for the task of the message, which found none.
        """
        record, request = call.record, self._request
        message = msgspec.structs.replace(self._original, message_id=record.message_id)
        if record.is_own_context:
            message = msgspec.structs.replace(message, context_id=record.context_id)
        self.call, self._lost, self._times_lost, self._search = call, lost, 1, search
        self._scope.call_group.check_held = call.check_held
        call.operation = self._scope.operation
        self._is_resumed, self._is_own_context = True, record.is_own_context
        self._request = msgspec.structs.replace(request, message=message)

    def recorded(self, work: Callable[[], Awaitable[T]]) -> Awaitable[T]:
        """Do the work of the call once it is recorded, for as long as this client holds it.

        Raises:
            JournalError: It could not be recorded, and nothing was sent; or another client has
                taken the call over meanwhile.
            DeadlineExceededError: It was not recorded in time; nothing was sent.
        """
        journaling = self._core.journaling
        return work() if journaling is None else self._recorded(journaling, work)

    async def _recorded(self, journaling: Journaling, work: Callable[[], Awaitable[T]]) -> T:
        label = None if self._scope.keyed is None else self._scope.keyed.label
        operation, deadline = self._scope.operation, self._scope.deadline
        beginning = journaling.begin(
            self._request,
            self._scope.deadline,
            is_own_context=self._is_own_context,
            label=label,
            digest=None if label is None else message_digest(self._original),
            traceparent=operation.observers.traceparent(operation),
        )
        begun = operation.journaled("begin", beginning)
        call = self.call = await wait_until(deadline.at, begun, self._too_late)
        self._scope.call_group.check_held = call.check_held
        call.operation = operation
        try:
            return await call.while_held(work())
        except BaseException as error:
            if isinstance(error, A2AError) or self.is_sent:
                await call.record_error(error)
            else:  # cancelled, or ended by a hook of the caller
                await call.record_not_sent(error)
            raise

    @property
    def is_sent(self) -> bool:
        """Whether the message may have been sent."""
        progress = self._progress
        return self._lost is not None or (progress is not None and progress.executed is None)

    @property
    def owner(self) -> TaskOwner:
        """The message as the owner of the task that it creates, or that it continues."""
        message, original = self._request.message, self._original
        return TaskOwner(
            message_id=message.message_id,
            own_context_id=message.context_id if self._is_own_context else None,
            message=None if original.task_id or original.context_id else original,
            began=None if self.call is None else self.call.record.began,
        )

    def answer(self) -> Coroutine[Any, Any, Reply[Task | Message]]:
        """Send the message, and record the agent's answer; see `send`.

        The message is recorded before, where there is a journal, and is a reply where its task
        waits for one.
        """
        is_plain = self._core.journaling is None and not self._original.task_id
        return self.send() if is_plain else self._recorded_answer()

    async def _recorded_answer(self) -> Reply[Task | Message]:
        if self._original.task_id:
            asks = returns_immediately(self._request)
            self._reply = await self._core.replying(self._original, self._scope, asks=asks)
        if self._core.journaling is None:
            return await self.send()
        reply = await self.recorded(self.send)
        if self.call is not None:
            await self.call.record_answer(reply.value)
        return reply

    async def response(self) -> Reply[SendMessageResponse]:
        """Do the same, and return the answer in the protocol's own form."""
        reply = await self.answer()
        if isinstance(reply.value, Task):
            response = SendMessageResponse(task=reply.value)
        else:
            response = SendMessageResponse(message=reply.value)
        return cast("Reply[SendMessageResponse]", msgspec.structs.replace(reply, value=response))

    async def send(self, *, at_once: bool = False) -> Reply[Task | Message]:
        """Send the message; if its reply is lost, the task that it created stands for the reply.

        Like the reply, that task is returned once it is over or interrupted, unless the request
        asks the agent to return immediately.

        Args:
            at_once: Whether to ask the agent to return immediately, whatever the request says.

        Raises:
            OutcomeUnknownError: The reply was lost, and no task was found.
            DuplicateTasksError: The message created more than one task.
            DeadlineExceededError: The message created a task; `task` is the task as last seen.
        """
        core = self._core
        if at_once:
            self._ask_for_an_answer_at_once()
        reply = await self._once(SEND_MESSAGE, core.call)
        if isinstance(reply, Reply):
            made = _first_made(reply)
            if self._reply is not None:
                self._reply.record(made.value)
            return made
        if returns_immediately(self._request):
            return Reply(value=reply)
        return Reply(value=await self._answered(reply))

    async def open(self) -> Reply[Stream[StreamResponse]] | Task:
        """Send the message for a stream; if that is lost, return the task that it created.

        Raises:
            OutcomeUnknownError: The reply was lost, and no task was found.
            DuplicateTasksError: The message created more than one task.
        """
        core = self._core
        opened = await self._once(SEND_STREAMING_MESSAGE, core.stream)
        self._opened = opened if isinstance(opened, Reply) else None
        return opened

    async def search(self, error: A2AError | None, deadline: Deadline) -> Task:
        """Search for the task of the message, whose stream broke before it named one.

        The message is not sent again, whatever ``on_unknown`` says: its stream had begun.

        Args:
            error: The error that broke the stream; None if the stream merely ended.
            deadline: The deadline of the search, besides its own time limit.

        Raises:
            OutcomeUnknownError: No task was found, or no search is wanted.
            DuplicateTasksError: The message created more than one task.
        """
        message, opened = self._request.message, self._opened
        facts = Facts() if error is None else error.facts()
        facts |= {"executed": None, "transient": False, "retry_stopped_reason": None}
        if opened is not None:
            facts["attempts"] = opened.attempts
            facts["agent"] = None if opened.endpoint is None else opened.endpoint.agent
        reason = "" if error is None else f": {error.message}"
        name = f"message {message.message_id}"
        lost = OutcomeUnknownError(
            f"{name} was sent, but its stream broke before it named a task{reason}",
            message_id=message.message_id,
            context_id=message.context_id,
            **facts,
        )
        lost.__cause__ = error
        began = asyncio.get_running_loop().time() if self._began is None else self._began
        operation = SEND_STREAMING_MESSAGE.name
        search = await self._search_for(operation, lost, began, deadline=deadline)
        task = found_task(lost, search)
        if task is None:
            raise outcome_unknown(lost, search, has_key=self._has_key) from error
        return task

    # ── At most once ─────────────────────────────────────────────────────────────────────────

    async def _once(
        self,
        operation: Operation[SendMessageRequest, R],
        make: Callable[..., Awaitable[Reply[T]]],
    ) -> Reply[T] | Task:
        """Send the message until it has arrived once, or its outcome is unknown.

        Args:
            operation: The operation that sends it.
            make: Makes a call of that operation: `ClientCore.call` or `ClientCore.stream`.

        Returns:
            The reply; or if that was lost, the task that the message created.
        """
        call_group = self._scope.call_group
        clock = (call_group.loop or asyncio.get_running_loop()).time
        while True:
            progress = self._progress = CallProgress(began=clock(), call_group=call_group)
            if self._began is None:
                self._began = progress.began
            try:
                reply = await make(operation, self._request, self._scope, progress=progress)
            except A2AError as error:
                task = await self._after_failure(operation.name, error, progress.began)
                if task is not None:
                    return task
            else:
                self.attempts = reply.attempts
                if self._earlier:
                    after = progress.began - self._began
                    self.attempts = joined_attempts(self._earlier, reply.attempts, after=after)
                if self._reply is not None:
                    self._note_reply_sent()
                return reply

    async def _after_failure(self, operation: str, error: A2AError, began: float) -> Task | None:
        """Decide what to do after a call that sent the message has failed.

        Args:
            operation: Name of the operation.
            error: The error of the call.
            began: When it began, on the event loop's clock.

        Returns:
            The task that the message created; None to send the message again.

        Raises:
            A2AError: The message is not sent again.
        """
        first = began if self._began is None else self._began
        earlier = joined_attempts(self._earlier, error.attempts, after=began - first)
        self._earlier = self.attempts = error.attempts = earlier
        lost = self._lost
        if isinstance(error, OutcomeUnknownError):
            self._lost = lost = error
            self._times_lost += 1
            search = self._search = await self._search_for(operation, lost, first)
            if (task := found_task(lost, search)) is not None:
                self._note_reply_sent()
                return task
            if not await self._may_resend(search, self._times_lost):
                raise self._outcome_unknown(lost) from lost.__cause__
        elif self._is_own_context and await self._is_context_refused(error):
            self._earlier = last_not_executed(earlier)
            self._is_own_context = False
            self._request = without_context_id(self._request, self._core)
        elif lost is None or error.executed is not False:
            raise error
        elif isinstance(error, DeadlineExceededError):
            error.executed = None
            addition = f"message {lost.message_id} was sent before, and its reply was lost"
            error.message = f"{error.message}; {addition}"
            raise error
        else:
            raise self._outcome_unknown(lost, failed=error) from lost.__cause__
        return None

    @property
    def _has_key(self) -> bool:
        return self._scope.keyed is not None or self._is_resumed

    def _outcome_unknown(
        self, lost: OutcomeUnknownError, *, failed: A2AError | None = None
    ) -> OutcomeUnknownError:
        """Return the error for the caller of a message whose reply was lost."""
        return outcome_unknown(
            lost, self._search, times=self._times_lost, failed=failed, has_key=self._has_key
        )

    def _note_reply_sent(self) -> None:
        """Note that the agent has received the message, if it is a reply."""
        task_id = self._request.message.task_id
        if self._reply is not None and task_id:
            self._core.replies.record_reply(task_id, self._reply)

    async def _search_for(
        self,
        operation: str,
        error: OutcomeUnknownError,
        began: float,
        *,
        deadline: Deadline | None = None,
    ) -> SearchReport | None:
        """Search for the task that the message created; None if no search is wanted."""
        core = self._core
        if not wants_search(self._scope.on_unknown, core.resilience.reconcile):
            return None
        sent_at = core.env.wall() - (asyncio.get_running_loop().time() - began)
        if self._is_resumed and self.call is not None:
            sent_at = min(sent_at, self.call.record.began)
        from holdfast._client.reconcile import LostMessage, search_for  # few replies are lost

        lost = LostMessage(
            message=self._request.message,
            operation=operation,
            sent_at=sent_at,
            is_own_context=self._is_own_context,
        )
        scope = self._scope if deadline is None else self._scope.within(deadline)
        return await search_for(lost, error, core, scope, call=self.call)

    async def _may_resend(self, search: SearchReport | None, times: int) -> bool:
        """Wait, and return whether the message may be sent again after so many lost replies."""
        core, policy = self._core, self._core.resilience.retry
        may = wants_resend(self._scope.on_unknown, search) and times <= policy.max_retries
        may = may and not self._scope.call_group.is_abandoned
        wait = backoff(policy, times, core.env.random())
        if not may or wait >= self._scope.deadline.remaining(asyncio.get_running_loop().time()):
            return False
        with self._scope.operation.waiting("backoff", wait):
            await core.pause(wait)
        return not core.is_closing

    async def _is_context_refused(self, error: A2AError) -> bool:
        """Return whether the message may be sent again, without the client's context id."""
        if self._scope.call_group.is_abandoned or self._core.is_closing:
            return False
        return await is_context_refused(self._request, error, self._core, self._scope)

    def _ask_for_an_answer_at_once(self) -> None:
        configuration = self._request.configuration or SendMessageConfiguration()
        at_once = msgspec.structs.replace(configuration, return_immediately=True)
        self._request = msgspec.structs.replace(self._request, configuration=at_once)

    async def _answered(self, task: Task) -> Task:
        """Wait until an agent would have replied with the task, and return it."""
        core, reply, clock = self._core, self._reply, asyncio.get_running_loop().time
        core.check_watching(task.id)
        began, longest = clock(), core.resilience.reconnect.max_quiet

        def is_answer(task: Task) -> bool:
            if reply is None or not task.state.is_interrupted:
                return task.state.is_terminal or task.state.is_interrupted
            reply.record(task)
            max_silence = reply.max_silence(task.status, longest)
            return not reply.is_stale(task.status) or clock() - began >= max_silence

        scope = msgspec.structs.replace(self._scope, consumers=())
        return await watch_task(
            core,
            task.id,
            task,
            scope,
            _POLL_INTERVAL_S,
            until=is_answer,
            owner=self.owner,
        )

    def _too_late(self) -> DeadlineExceededError:
        return deadline_error(
            "the call was not recorded in the journal",
            self._scope.deadline,
            then="; nothing was sent",
            executed=False,
        )


def returns_immediately(request: SendMessageRequest) -> bool:
    """Return whether a request asks the agent to reply as soon as the task exists."""
    return request.configuration is not None and bool(request.configuration.return_immediately)


def _first_made(reply: Reply[SendMessageResponse]) -> Reply[Task | Message]:
    """Return the reply with the task or message itself in place of the response around it."""
    result = reply.value.task or reply.value.message
    if result is None:
        text = "the reply contains neither a task nor a message"  # the codec lets none through
        raise InvalidAgentResponseError(text, attempts=reply.attempts)
    return cast("Reply[Task | Message]", msgspec.structs.replace(reply, value=result))
