"""Searching for the task of a message whose reply was lost, by requests to the agent.

This module makes the requests and waits. The pure module
`holdfast._client.reconcile_search` decides which request to make, and when the search ends.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Literal

import msgspec

from holdfast._client.reconcile_search import (
    Absent,
    Duplicate,
    Fetch,
    Found,
    Inconclusive,
    Reconciliation,
    RetryLater,
    SearchReport,
    SearchResult,
)
from holdfast._client.task_locations import GetTask, ListPage
from holdfast._model.operations import GET_TASK, LIST_TASKS
from holdfast._policy.deadline import Deadline
from holdfast._policy.reconnect import growing_wait
from holdfast._wire.caching import http_date
from holdfast._wire.status import is_agents_own
from holdfast.errors import (
    A2AConnectionError,
    A2AError,
    CircuitOpenError,
    DeadlineExceededError,
    Facts,
)
from holdfast.types import GetTaskRequest, ListTasksRequest, Message

if TYPE_CHECKING:
    from holdfast._client.call_scope import CallScope
    from holdfast._client.core import ClientCore
    from holdfast._journal.leases import HeldCall
    from holdfast.errors import OutcomeUnknownError
    from holdfast.types import Task

__all__ = ["LostMessage", "search_for"]

Rounds = Literal["in time", "at least one", "one"]

_HISTORY = 1000
"""Messages of a history to request. Some agents return none unless asked, and some truncate the
stored history to the number that is requested."""


class LostMessage(msgspec.Struct, frozen=True, kw_only=True):
    """A message whose reply was lost.

    Attributes:
        message: The message as it was sent.
        operation: Name of the operation that sent it.
        sent_at: When it was first sent, in seconds since the epoch.
        is_own_context: Whether its context was made for this message, and used by no other.
    """

    message: Message
    operation: str
    sent_at: float
    is_own_context: bool


async def search_for(
    lost_message: LostMessage,
    error: OutcomeUnknownError,
    core: ClientCore,
    scope: CallScope,
    *,
    call: HeldCall | None = None,
    rounds: Rounds = "in time",
) -> SearchReport:
    """Search for the task that a message created; `holdfast._client.resend` decides what follows.

    Args:
        lost_message: The message.
        error: The error of the lost reply.
        core: Makes the requests.
        scope: The caller's deadline, besides the search's own, and what each request carries.
        call: The journal's record of the call, to note the task; None where there is no journal.
        rounds: ``"in time"``: repeat the search until its own deadline; ``"at least one"``: the
            same, but only the caller's deadline ends the first round; ``"one"``: search once,
            because an earlier call repeated the search.
    """
    endpoint, clock = core.endpoint, asyncio.get_running_loop().time
    began = clock()
    search = Reconciliation(
        lost_message.message,
        sent_at=lost_message.sent_at,
        clock_skew=None if endpoint is None else endpoint.clock_skew,
        is_own_context=lost_message.is_own_context,
        has_list=endpoint is None or endpoint.lists_tasks is not False,
        is_refused=isinstance(error.__cause__, A2AError) and is_agents_own(error.__cause__),
        max_pages=core.resilience.reconcile.max_pages,
    )
    operation = scope.operation  # which an abandonment of the call replaces
    core.observers.reconcile_started(
        operation,
        error,
        method=lost_message.operation,
        seconds=min(core.resilience.reconcile.timeout, scope.deadline.remaining(began)),
    )
    searcher = _Searcher(search, error, core, scope, rounds=rounds)
    task: Task | None = None
    failure: BaseException | None = None
    try:
        result = await searcher.search()
        if not isinstance(result, Duplicate):
            task = result.task if isinstance(result, Found) else search.seen
    except BaseException as raised:
        failure = raised
        raise
    finally:
        seconds = clock() - began
        core.observers.reconciled(
            operation,
            error,
            method=lost_message.operation,
            searched=search.searched,
            task_id=None if task is None else task.id,
            seconds=seconds,
            failure=failure,
        )
    if task is not None and call is not None:
        await call.record_state(task)
    is_empty = isinstance(result, Absent | Inconclusive)
    return SearchReport(
        result=result,
        seen=search.seen,
        searched=search.searched,
        summary=search.summary(seconds, is_begun=searcher.has_asked) if is_empty else "",
    )


class _Searcher:
    """Makes the requests of a search.

    Attributes:
        has_asked: Whether a request was made.
    """

    def __init__(
        self,
        search: Reconciliation,
        error: OutcomeUnknownError,
        core: ClientCore,
        scope: CallScope,
        *,
        rounds: Rounds,
    ) -> None:
        seconds = core.resilience.reconcile.timeout
        now = asyncio.get_running_loop().time()
        end = now if rounds == "one" else now + seconds
        self.has_asked = False
        self._search = search
        self._error = error
        self._core = core
        self._deadline = scope.deadline
        self._own_deadline = Deadline(name="reconcile", timeout=seconds, at=end)
        self._is_due = rounds != "in time"  # the first round, whatever the search's own deadline
        self._scope = scope
        self._epoch = core.env.wall() - now  # read once: the wall clock may be set meanwhile

    async def search(self) -> SearchResult:
        """Make one request after another until the search ends."""
        loop, search = asyncio.get_running_loop(), self._search
        policy = self._core.resilience.reconcile
        while not isinstance(step := search.step, Found | Duplicate | Absent | Inconclusive):
            self._is_due = self._is_due and not isinstance(step, RetryLater)
            if self._core.is_closed:
                search.cut_short(self._closed())
            elif loop.time() >= self._deadline.at:
                search.cut_short(self._late(self._deadline))
            elif loop.time() >= self._ends.at:
                search.finish(self._late(self._own_deadline))
                self._is_due = isinstance(search.step, Fetch)  # if the caller's deadline permits
            elif not isinstance(step, RetryLater):
                await self._ask(step)
            else:
                wait = growing_wait(
                    step.rounds,
                    self._core.env.random(),
                    first=policy.backoff,
                    most=policy.max_backoff,
                )
                await self._core.pause(min(wait, self._ends.remaining(loop.time())))
                search.waited()
        return step

    @property
    def _ends(self) -> Deadline:
        """The deadline that ends the search in its present state."""
        if self._is_due:
            return self._deadline
        return min(self._deadline, self._own_deadline, key=lambda deadline: deadline.at)

    async def _ask(self, step: GetTask | ListPage | Fetch) -> None:
        """Make one request, and pass the search its reply."""
        search, self.has_asked = self._search, True
        try:
            match step:
                case ListPage():
                    await self._list(step)
                case GetTask():
                    search.got(await self._get(step.task_id))
                case Fetch():
                    search.fetched(await self._get(step.task_id))
        except A2AError as error:
            if self._core.is_closed:  # closing the client has caused the error
                return
            if await self._waited(error):
                return  # the same request is made again
            if isinstance(step, Fetch):
                search.not_fetched(error)
            else:
                self._failed(error)

    async def _waited(self, error: A2AError) -> bool:
        """Wait if a circuit is open; return whether the request is worth making again then.

        A search belongs to a message that was sent: it waits like a retry of that message.
        """
        wait, remaining = (
            error.retry_after,
            self._ends.remaining(asyncio.get_running_loop().time()),
        )
        if not isinstance(error, CircuitOpenError) or wait is None or wait >= remaining:
            return False
        await self._core.pause(wait)
        return True

    async def _get(self, task_id: str) -> Task:
        get = GetTaskRequest(id=task_id, history_length=_HISTORY)
        return (await self._core.call(GET_TASK, get, self._scope.within(self._ends))).value

    async def _list(self, step: ListPage) -> None:
        search = self._search
        page = await self._core.call(LIST_TASKS, _page(step), self._scope.within(self._ends))
        agent_time = http_date(page.headers.get("date", ""))
        wall = self._epoch + asyncio.get_running_loop().time()
        search.listed(page.value, wall=wall, agent_time=agent_time)
        if page.endpoint is not None:
            page.endpoint.clock_skew = search.clock_skew

    def _failed(self, error: A2AError) -> None:
        search, endpoint = self._search, self._core.endpoint
        has_path = endpoint is None or endpoint.interface.protocol_binding != "JSONRPC"
        had_list_before = search.has_list
        search.failed(error, has_path=has_path)
        if endpoint is not None and had_list_before and not search.has_list:
            endpoint.lists_tasks = False

    def _closed(self) -> A2AConnectionError:
        return A2AConnectionError(
            f"the client was closed {'during' if self.has_asked else 'before'} the search for "
            f"message {self._error.message_id}",
            failure="closed",
            **self._facts(),
        )

    def _facts(self) -> Facts:
        """Return the facts of the lost call that also apply to its search."""
        error = self._error
        return Facts(attempts=error.attempts, agent=error.agent, request_id=error.request_id)

    def _late(self, deadline: Deadline) -> DeadlineExceededError:
        error = self._search.error
        last_failure = ""
        if error is not None and not isinstance(error, DeadlineExceededError):
            last_failure = f"; last error: {error.message}"
        limit, name = f"the {deadline.name} timeout of {deadline.shown}", self._error.message_id
        text = f"{limit} expired before the search for message {name}"
        if self.has_asked:
            text = f"the search for message {name} did not finish within {limit}{last_failure}"
        deadline_error = DeadlineExceededError(
            text,
            deadline=deadline.name,
            timeout=deadline.timeout,
            **self._facts(),
        )
        deadline_error.__cause__ = error
        return deadline_error


def _page(step: ListPage) -> ListTasksRequest:
    return ListTasksRequest(
        context_id=step.context_id,
        page_size=step.size,
        page_token=step.page_token or None,
        history_length=_HISTORY,
        status_timestamp_after=None if step.since is None else step.since.isoformat(),
    )
