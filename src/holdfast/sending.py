"""Sending a message: written down first where there is a journal, sent once, and looked for.

What a caller allows beyond that, `holdfast.connect` says at ``on_unknown`` and ``context_ids``.
"""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING, TypeVar

import msgspec

from holdfast.errors import (
    A2AError,
    DeadlineExceededError,
    InvalidParamsError,
    OutcomeUnknownError,
    TaskNotFoundError,
)
from holdfast.model.operations import LIST_TASKS, SEND_STREAMING_MESSAGE
from holdfast.model.requests import ListTasksRequest, SendMessageConfiguration
from holdfast.policy.retry import backoff
from holdfast.reconciling import find
from holdfast.runtime.transport import Reply
from holdfast.runtime.waiting import until

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from holdfast.calls import Calls, PerCall
    from holdfast.journaling import HeldCall, Journaling
    from holdfast.model.requests import SendMessageRequest
    from holdfast.model.types import Message, StreamResponse, Task
    from holdfast.policy.deadline import Deadline
    from holdfast.runtime.transport import CallProgress, Stream

__all__ = ["Sending"]

T = TypeVar("T")

_CONTEXT_ID = re.compile(r"context[\s_-]?id", re.IGNORECASE)

_POLL = 2.0
"""Seconds between two looks at a task that was found."""


class Sending:
    """One message on its way.

    Args:
        calls: What makes calls.
        request: The message, with its id.
        deadline: When all of it ends.
        per_call: What goes with each request, and what to do where the reply is lost.

    Attributes:
        call: What is written down of it; None where there is no journal.
    """

    def __init__(
        self, calls: Calls, request: SendMessageRequest, deadline: Deadline, per_call: PerCall
    ) -> None:
        self._calls = calls
        self._deadline = deadline
        self._per_call = per_call
        self._request = request
        self._began = asyncio.get_running_loop().time()
        self.call: HeldCall | None = None
        self._progress: CallProgress | None = None
        self._is_lost = False
        self._is_unseen = False  # it was lost, and nothing could be looked at
        self._is_own_context = False
        if calls.context_ids == "client":
            self._name_context()

    def recorded(self, work: Callable[[], Awaitable[T]]) -> Awaitable[T]:
        """Does the work of the call once it is written down, for as long as it is held.

        Raises:
            JournalError: It could not be written down, and nothing was sent; or somebody else has
                taken it over meanwhile.
            DeadlineExceededError: Nor was it in time; nothing was sent.
        """
        journaling = self._calls.journaling
        return work() if journaling is None else self._recorded(journaling, work)

    async def _recorded(self, journaling: Journaling, work: Callable[[], Awaitable[T]]) -> T:
        beginning = journaling.begin(
            self._request,
            self._deadline,
            is_own_context=self._is_own_context,
            label=self._per_call.label,
        )
        call = self.call = await until(self._deadline.at, beginning, self._too_late)
        try:
            return await call.while_held(work())
        except BaseException as error:
            if self._is_unseen and isinstance(error, OutcomeUnknownError):
                await call.release()  # an agent that is down has not said that there is nothing
            else:
                await call.failed(error)
            raise

    @property
    def is_sent(self) -> bool:
        """Whether the message may have left."""
        progress = self._progress
        return self._is_lost or (
            progress is not None and (progress.sent or progress.maybe_executed)
        )

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
        calls = self._calls
        if at_once:
            self._ask_for_an_answer_at_once()
        reply = await self._once(
            lambda progress: calls.send(
                self._request, self._deadline, self._per_call, progress=progress
            )
        )
        if isinstance(reply, Reply):
            return reply
        configuration = self._request.configuration
        if configuration is not None and configuration.return_immediately:
            return Reply(value=reply)
        return Reply(value=await self._answered(reply))

    def open(self) -> Awaitable[Reply[Stream[StreamResponse]] | Task]:
        """Sends it for a stream; where that was lost, gives the task that the message made.

        Raises:
            OutcomeUnknownError: What came of it was lost, and it was not found.
            DuplicateTasksError: It made more than one task.
        """
        calls = self._calls
        return self._once(
            lambda progress: calls.open(
                SEND_STREAMING_MESSAGE,
                self._request,
                self._deadline,
                self._per_call,
                progress=progress,
            )
        )

    # ── Once ─────────────────────────────────────────────────────────────────────────────────

    async def _once(self, send: Callable[[CallProgress], Awaitable[Reply[T]]]) -> Reply[T] | Task:
        lost: OutcomeUnknownError | None = None
        resent = 0
        while True:
            self._progress = self._calls.progress(self._per_call)
            try:
                return await send(self._progress)
            except OutcomeUnknownError as error:
                lost, self._is_lost = error, True
                if (task := await self._found(lost)) is not None:
                    return task
                resent += 1
                await self._wait_to_resend(lost, resent)
            except A2AError as error:
                if self._is_own_context and await self._is_context_refused(error):
                    self._leave_context()
                elif lost is None or error.executed is not False:
                    raise
                elif isinstance(error, DeadlineExceededError):
                    error.executed = None  # an earlier try may have arrived
                    raise
                else:
                    raise lost from error

    async def _wait_to_resend(self, lost: OutcomeUnknownError, resent: int) -> None:
        """Waits before it is sent again.

        Raises:
            OutcomeUnknownError: The one given: the caller allows no other try, or not so many.
        """
        calls, policy = self._calls, self._calls.resilience.retry
        wait = backoff(policy, resent, calls.env.random())
        resends = {"resend"} if self._has_not_looked else {"resend", "resend_if_absent"}
        may = self._per_call.on_unknown in resends and not calls.is_closed
        left = self._deadline.left(asyncio.get_running_loop().time())
        if not may or resent > policy.max_retries or wait >= left:
            raise lost
        await calls.pause(wait)

    @property
    def _has_not_looked(self) -> bool:
        """Whether nothing can be said to be absent: there was no list, or none to be reached."""
        known = self._calls.endpoint
        has_list = known is None or known.lists_tasks is not False
        return self._is_unseen or not (has_list or self._request.message.task_id)

    def _ask_for_an_answer_at_once(self) -> None:
        configuration = self._request.configuration or SendMessageConfiguration()
        at_once = msgspec.structs.replace(configuration, return_immediately=True)
        self._request = msgspec.structs.replace(self._request, configuration=at_once)

    async def _answered(self, task: Task) -> Task:
        """The task once an agent would have answered with it."""
        per_call = msgspec.structs.replace(self._per_call, consumers=())
        return await self._calls.watch(
            task.id,
            task,
            self._deadline,
            _POLL,
            per_call,
            until=lambda task: task.state.is_terminal or task.state.is_interrupted,
        )

    async def _found(self, lost: OutcomeUnknownError) -> Task | None:
        """The task that the message made, if it is to be looked for and can be found."""
        if self._per_call.on_unknown in {"raise", "resend"}:
            return None
        loop = asyncio.get_running_loop()
        epoch = self._calls.env.wall() - loop.time()  # once: the wall clock may be set meanwhile
        found = await find(
            self._request.message,
            lost,
            self._calls,
            self._deadline,
            self._per_call,
            sent_at=epoch + self._began,
            wall=lambda: epoch + loop.time(),
            is_own_context=self._is_own_context,
        )
        self._is_unseen = isinstance(found, A2AError)
        return None if isinstance(found, A2AError) else found

    def _too_late(self) -> DeadlineExceededError:
        deadline = self._deadline
        return DeadlineExceededError(
            f"the call was not written down within the {deadline.name} timeout of "
            f"{deadline.timeout:g} s; nothing was sent",
            deadline=deadline.name,
            timeout=deadline.timeout,
            executed=False,
        )

    # ── A context of its own ─────────────────────────────────────────────────────────────────

    def _name_context(self) -> None:
        """Gives a message that begins a conversation a context of its own, to be found by."""
        message, known = self._request.message, self._calls.endpoint
        refused = known is not None and known.takes_contexts is False
        if refused or message.context_id or message.task_id:
            return
        self._is_own_context = True
        self._put_context(self._calls.env.new_id())

    def _put_context(self, context_id: str | None) -> None:
        message = msgspec.structs.replace(self._request.message, context_id=context_id)
        self._request = msgspec.structs.replace(self._request, message=message)

    def _leave_context(self) -> None:
        """Sends it in no context from now on, as everything to this agent."""
        self._is_own_context = False
        self._put_context(None)
        if self._calls.endpoint is not None:
            self._calls.endpoint.takes_contexts = False

    async def _is_context_refused(self, error: A2AError) -> bool:
        """Whether it was the context that was refused, and so nothing was executed.

        An agent may say that parameters are wrong after it ran; then there is a task. If it ran in
        a context of its own, none is found here; so it has to speak of this one, or of ids: a
        model's context may be too long.
        """
        context_id, said = self._request.message.context_id, error.message
        if not isinstance(error, InvalidParamsError) or not context_id:
            return False
        if context_id not in said and not _CONTEXT_ID.search(said):
            return False
        request = ListTasksRequest(context_id=context_id)
        try:
            page = await self._calls.run(LIST_TASKS, request, self._deadline, self._per_call)
        except (InvalidParamsError, TaskNotFoundError):
            return True  # it does not know that context
        except A2AError:
            return False
        return not page.value.tasks
