"""Sending a message: written down first where there is a journal, sent once, and looked for.

What a caller allows beyond that, `holdfast.connect` says at ``on_unknown`` and ``context_ids``.
How it is looked for is in `holdfast._client.reconcile`.

A message that begins a conversation may get a context of the client's own, to be found by there.
The protocol leaves it to agents whether to take one (A2A 3.4.1): one that refuses it gets the
message once more without, and from then on every message.
"""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING, TypeVar, cast

import msgspec

from holdfast._aio.cancel_scope import wait_until
from holdfast._client.reconcile import LostMessage, search_for
from holdfast._client.resend import is_resent, is_searched_for, outcome_unknown, task_found
from holdfast._client.task_waiter import watch_task
from holdfast._model.digest import message_digest
from holdfast._model.operations import LIST_TASKS, SEND_MESSAGE, SEND_STREAMING_MESSAGE
from holdfast._pipeline.transport import CallProgress, Reply
from holdfast._policy.attempts import joined_attempts, last_not_executed
from holdfast._policy.origin import Origin
from holdfast._policy.retry import backoff
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
    from collections.abc import Awaitable, Callable

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

__all__ = ["SendOperation", "is_context_refused", "with_client_context_id", "without_context_id"]

R = TypeVar("R")
T = TypeVar("T")


_CONTEXT_ID = re.compile(r"context[\s_-]?id", re.IGNORECASE)


def with_client_context_id(
    request: SendMessageRequest, core: ClientCore
) -> SendMessageRequest | None:
    """The message in a context of its own; None where it has a place, or is to have none."""
    message, known = request.message, core.endpoint
    is_refused = known is not None and known.accepts_context_ids is False
    if core.context_ids != "client" or is_refused or message.context_id or message.task_id:
        return None
    return _in_context(request, core.env.new_id())


def without_context_id(request: SendMessageRequest, core: ClientCore) -> SendMessageRequest:
    """The message in no context, as everything to this agent from now on."""
    if core.endpoint is not None:
        core.endpoint.accepts_context_ids = False
    return _in_context(request, None)


async def is_context_refused(
    request: SendMessageRequest,
    error: A2AError,
    core: ClientCore,
    scope: CallScope,
) -> bool:
    """Whether it was its own context that was refused, and so nothing was executed.

    An agent may say that parameters are wrong after it ran; then there is a task. If it ran in a
    context of its own, none is found here; so it has to speak of this one, or of ids: a model's
    context may be too long.
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
        return True  # it does not know that context
    except A2AError:
        return False
    return not page.value.tasks


def _in_context(request: SendMessageRequest, context_id: str | None) -> SendMessageRequest:
    message = msgspec.structs.replace(request.message, context_id=context_id)
    return msgspec.structs.replace(request, message=message)


_POLL = 2.0
"""Seconds between two looks at a task that was found."""


class SendOperation:
    """One message on its way.

    Args:
        core: What makes calls.
        request: The message, with its id.
        scope: When all of it ends, what goes with each request, and what to do where
            the reply is lost.
        reply: The message as a reply to an interrupted task; None where it is none.

    Attributes:
        call: What is written down of it; None where there is no journal.
        attempts: Each try that was made to send it, in order.
    """

    def __init__(
        self,
        core: ClientCore,
        request: SendMessageRequest,
        scope: CallScope,
        *,
        reply: PendingReply | None = None,
    ) -> None:
        own = with_client_context_id(request, core) if core.context_ids == "client" else None
        self._given = request.message
        self._core = core
        self._scope = scope
        self._request = own or request
        self._is_own_context = own is not None
        self._reply = reply
        self.call: HeldCall | None = None
        self.attempts: tuple[Attempt, ...] = ()
        self._progress: CallProgress | None = None
        self._began: float | None = None  # when it was sent first, on the event loop's clock
        self._opened: Reply[Stream[StreamResponse]] | None = None
        self._earlier: tuple[Attempt, ...] = ()  # attempts of calls that failed
        self._lost: OutcomeUnknownError | None = None  # how a reply was lost last
        self._times_lost = 0
        self._search: SearchReport | None = None

    def recorded(self, work: Callable[[], Awaitable[T]]) -> Awaitable[T]:
        """Does the work of the call once it is written down, for as long as it is held.

        Raises:
            JournalError: It could not be written down, and nothing was sent; or somebody else has
                taken it over meanwhile.
            DeadlineExceededError: Nor was it in time; nothing was sent.
        """
        journaling = self._core.journaling
        return work() if journaling is None else self._recorded(journaling, work)

    async def _recorded(self, journaling: Journaling, work: Callable[[], Awaitable[T]]) -> T:
        label = self._scope.label
        beginning = journaling.begin(
            self._request,
            self._scope.deadline,
            is_own_context=self._is_own_context,
            label=label,
            digest=None if label is None else message_digest(self._given),
        )
        call = self.call = await wait_until(self._scope.deadline.at, beginning, self._too_late)
        try:
            return await call.while_held(work())
        except BaseException as error:
            await call.failed(error)
            raise

    @property
    def is_sent(self) -> bool:
        """Whether the message may have left."""
        progress = self._progress
        return self._lost is not None or (progress is not None and progress.executed is None)

    @property
    def origin(self) -> Origin:
        """The message as the origin of the task that it makes, or that it is for."""
        message, given = self._request.message, self._given
        return Origin(
            message_id=message.message_id,
            own_context_id=message.context_id if self._is_own_context else None,
            message=None if given.task_id or given.context_id else given,
            began=None if self.call is None else self.call.record.began,
        )

    async def answer(self) -> Reply[Task | Message]:
        """Send the message, and note what the agent makes of it; see `send`.

        It is recorded before, where there is a journal, and is a reply where its task waits for
        one.
        """
        if self._given.task_id:
            asks = _returns_immediately(self._request)
            self._reply = await self._core.replying(self._given, self._scope, asks=asks)
        if self._core.journaling is None:
            return await self.send()
        reply = await self.recorded(self.send)
        if self.call is not None:
            await self.call.answered(reply.value)
        return reply

    async def response(self) -> Reply[SendMessageResponse]:
        """Does the same, and gives that in the protocol's own form."""
        reply = await self.answer()
        if isinstance(reply.value, Task):
            response = SendMessageResponse(task=reply.value)
        else:
            response = SendMessageResponse(message=reply.value)
        return cast("Reply[SendMessageResponse]", msgspec.structs.replace(reply, value=response))

    async def send(self, *, at_once: bool = False) -> Reply[Task | Message]:
        """Sends it; where its reply was lost, the task that it made stands for the reply.

        As the reply would have, that task comes when it is over or interrupted, unless the agent
        was asked to answer at once.

        Args:
            at_once: Whether to ask for an answer at once, whatever the request says.

        Raises:
            OutcomeUnknownError: Its reply was lost, and it was not found.
            DuplicateTasksError: It made more than one task.
            DeadlineExceededError: It made a task; `task` is how it was last seen.
        """
        core = self._core
        if at_once:
            self._ask_for_an_answer_at_once()
        reply = await self._once(SEND_MESSAGE, core.call)
        if isinstance(reply, Reply):
            made = _first_made(reply)
            if self._reply is not None:
                self._reply.saw(made.value)
            return made
        if _returns_immediately(self._request):
            return Reply(value=reply)
        return Reply(value=await self._answered(reply))

    async def open(self) -> Reply[Stream[StreamResponse]] | Task:
        """Sends it for a stream; where that was lost, gives the task that the message made.

        Raises:
            OutcomeUnknownError: What came of it was lost, and it was not found.
            DuplicateTasksError: It made more than one task.
        """
        core = self._core
        opened = await self._once(SEND_STREAMING_MESSAGE, core.stream)
        self._opened = opened if isinstance(opened, Reply) else None
        return opened

    async def search(self, error: A2AError | None, deadline: Deadline) -> Task:
        """Search for the task of the message, whose stream broke before it named one.

        The message is not sent again, whatever ``on_unknown`` says: its stream had begun.

        Args:
            error: What the stream broke with; None if it merely ended.
            deadline: When the search ends, besides its own bound.

        Raises:
            OutcomeUnknownError: It was not found, or is not to be searched for.
            DuplicateTasksError: The message made more than one task.
        """
        message, opened = self._request.message, self._opened
        facts = Facts() if error is None else error.facts()
        facts |= {"executed": None, "transient": False, "retry_stopped_reason": None}
        if opened is not None:
            facts["attempts"] = opened.attempts
            facts["agent"] = None if opened.endpoint is None else opened.endpoint.agent
        why = "" if error is None else f": {error.message}"
        name = f"message {message.message_id}"
        lost = OutcomeUnknownError(
            f"{name} was sent, but its stream broke before it named a task{why}",
            message_id=message.message_id,
            context_id=message.context_id,
            **facts,
        )
        lost.__cause__ = error
        began = asyncio.get_running_loop().time() if self._began is None else self._began
        operation = SEND_STREAMING_MESSAGE.name
        search = await self._search_for(operation, lost, began, deadline=deadline)
        task = task_found(lost, search)
        if task is None:
            raise outcome_unknown(lost, search) from error
        return task

    # ── Once ─────────────────────────────────────────────────────────────────────────────────

    async def _once(
        self,
        operation: Operation[SendMessageRequest, R],
        make: Callable[..., Awaitable[Reply[T]]],
    ) -> Reply[T] | Task:
        """Send the message until it has arrived once, or nobody can know whether it has.

        Args:
            operation: How to send it.
            make: Makes a call of that operation: `ClientCore.call` or `ClientCore.stream`.

        Returns:
            The reply; or where that was lost, the task that the message made.
        """
        clock = asyncio.get_running_loop().time
        while True:
            progress = self._progress = CallProgress(
                began=clock(), call_group=self._scope.call_group
            )
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
                    self._taken()
                return reply

    async def _after_failure(self, operation: str, error: A2AError, began: float) -> Task | None:
        """Decide what to do after a call that sent the message has failed.

        Args:
            operation: Name of the operation.
            error: How the call failed.
            began: When it began, on the event loop's clock.

        Returns:
            The task that the message made; None to send the message again.

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
            if (task := task_found(lost, search)) is not None:
                self._taken()
                return task
            if not await self._may_resend(search, self._times_lost):
                raise outcome_unknown(lost, search, times=self._times_lost) from lost.__cause__
        elif self._is_own_context and await self._is_context_refused(error):
            self._earlier = last_not_executed(earlier)
            self._is_own_context = False
            self._request = without_context_id(self._request, self._core)
        elif lost is None or error.executed is not False:
            raise error
        elif isinstance(error, DeadlineExceededError):
            error.executed = None
            before = f"message {lost.message_id} was sent before, and its reply was lost"
            error.message = f"{error.message}; {before}"
            raise error
        else:
            unknown = outcome_unknown(lost, self._search, times=self._times_lost, failed=error)
            raise unknown from lost.__cause__
        return None

    def _taken(self) -> None:
        """Notes that the agent has got the message, as a reply, if it is one."""
        task_id = self._request.message.task_id
        if self._reply is not None and task_id:
            self._core.replies.sent(task_id, self._reply)

    async def _search_for(
        self,
        operation: str,
        error: OutcomeUnknownError,
        began: float,
        *,
        deadline: Deadline | None = None,
    ) -> SearchReport | None:
        """The search for the task that the message made; None if there is to be none."""
        core = self._core
        if not is_searched_for(self._scope.on_unknown, core.resilience.reconcile):
            return None
        ago = asyncio.get_running_loop().time() - began
        lost = LostMessage(
            message=self._request.message,
            operation=operation,
            sent_at=core.env.wall() - ago,
            is_own_context=self._is_own_context,
        )
        scope = self._scope if deadline is None else self._scope.within(deadline)
        return await search_for(lost, error, core, scope, call=self.call)

    async def _may_resend(self, search: SearchReport | None, times: int) -> bool:
        """Whether the caller allows another try, and so many; waits before it."""
        core, policy = self._core, self._core.resilience.retry
        may = is_resent(self._scope.on_unknown, search) and times <= policy.max_retries
        wait = backoff(policy, times, core.env.random())
        if not may or wait >= self._scope.deadline.left(asyncio.get_running_loop().time()):
            return False
        await core.pause(wait)
        return not core.is_closed

    def _is_context_refused(self, error: A2AError) -> Awaitable[bool]:
        return is_context_refused(self._request, error, self._core, self._scope)

    def _ask_for_an_answer_at_once(self) -> None:
        configuration = self._request.configuration or SendMessageConfiguration()
        at_once = msgspec.structs.replace(configuration, return_immediately=True)
        self._request = msgspec.structs.replace(self._request, configuration=at_once)

    async def _answered(self, task: Task) -> Task:
        """The task once an agent would have answered with it."""
        core, reply, clock = self._core, self._reply, asyncio.get_running_loop().time
        core.check_watching(task.id)
        began, longest = clock(), core.resilience.reconnect.max_quiet

        def is_answer(task: Task) -> bool:
            if reply is None or not task.state.is_interrupted:
                return task.state.is_terminal or task.state.is_interrupted
            reply.saw(task)
            patience = reply.patience(task.status, longest)
            return not reply.is_stale(task.status) or clock() - began >= patience

        scope = msgspec.structs.replace(self._scope, consumers=())
        return await watch_task(
            core,
            task.id,
            task,
            scope,
            _POLL,
            until=is_answer,
            origin=self.origin,
        )

    def _too_late(self) -> DeadlineExceededError:
        deadline = self._scope.deadline
        return DeadlineExceededError(
            f"the call was not recorded in the journal within the {deadline.name} timeout of "
            f"{deadline.shown}; nothing was sent",
            deadline=deadline.name,
            timeout=deadline.timeout,
            executed=False,
        )


def _returns_immediately(request: SendMessageRequest) -> bool:
    return request.configuration is not None and bool(request.configuration.return_immediately)


def _first_made(reply: Reply[SendMessageResponse]) -> Reply[Task | Message]:
    """The reply with the first that the agent made of a message in place of what holds it."""
    result = reply.value.task or reply.value.message
    if result is None:
        text = "the reply holds neither task nor message"  # the codec lets none through
        raise InvalidAgentResponseError(text, attempts=reply.attempts)
    return cast("Reply[Task | Message]", msgspec.structs.replace(reply, value=result))
