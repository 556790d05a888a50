"""Finding out what became of a message whose reply was lost, by asking the agent.

This is the shell: it makes calls and waits. What to ask, what follows from the answers, and when
there is nothing more to ask, is decided by `holdfast._client.reconcile_search`, which is pure.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import msgspec

from holdfast._client.reconcile_search import (
    Absent,
    DuplicateFound,
    Fetch,
    Found,
    Inconclusive,
    Reconciliation,
    RetryLater,
    SearchReport,
    SearchResult,
)
from holdfast._model.operations import GET_TASK, LIST_TASKS
from holdfast._policy.deadline import Deadline, add_last_seen
from holdfast._policy.reconnect import growing_wait
from holdfast._stream.task_locations import GetTask, ListPage, is_own_word
from holdfast._wire.caching import http_date
from holdfast.errors import (
    A2AConnectionError,
    A2AError,
    CircuitOpenError,
    DeadlineExceededError,
    DuplicateTasksError,
    Facts,
)
from holdfast.types import GetTaskRequest, ListTasksRequest, Message

if TYPE_CHECKING:
    from holdfast._client.call_scope import CallScope
    from holdfast._client.core import ClientCore
    from holdfast._journal.leases import HeldCall
    from holdfast.errors import OutcomeUnknownError
    from holdfast.types import Task

__all__ = ["LostMessage", "find_task"]

_HISTORY = 1000
"""Messages of a history to ask for. Some agents show none unless asked, and some forget for good
what is beyond the number that they are asked for."""


class LostMessage(msgspec.Struct, frozen=True, kw_only=True):
    """A message whose reply was lost.

    Attributes:
        message: The message as it was sent.
        operation: Name of the operation that sent it.
        sent_at: When it was first sent, in seconds since the epoch.
        is_own_context: Whether its context was made for it, and nobody else has used it.
    """

    message: Message
    operation: str
    sent_at: float
    is_own_context: bool


async def find_task(
    lost: LostMessage,
    error: OutcomeUnknownError,
    calls: ClientCore,
    scope: CallScope,
    *,
    call: HeldCall | None = None,
    at_least_once: bool = False,
) -> SearchReport:
    """Looks for the task that a message made.

    Args:
        lost: The message.
        error: What says that its reply was lost.
        calls: What makes calls.
        scope: When the caller's patience ends, while the search has a bound of its own
            too, and what goes with each request.
        call: Where to note the task; None where there is no journal.
        at_least_once: Whether only the caller's deadline ends the first look.

    Raises:
        DuplicateTasksError: It made more than one task.
        A2AError: It made a task, which could only be seen in a list: ``executed`` is True.
    """
    known, clock = calls.endpoint, asyncio.get_running_loop().time
    began = clock()
    search = Reconciliation(
        lost.message,
        sent_at=lost.sent_at,
        clock_skew=None if known is None else known.clock_skew,
        is_own_context=lost.is_own_context,
        has_list=known is None or known.lists_tasks is not False,
        is_refused=isinstance(error.__cause__, A2AError) and is_own_word(error.__cause__),
        max_pages=calls.resilience.reconcile.max_pages,
    )
    calls.observers.reconcile_started(
        error,
        operation=lost.operation,
        seconds=min(calls.resilience.reconcile.timeout, scope.deadline.left(began)),
    )
    searcher = _Searcher(search, error, calls, scope, at_least_once=at_least_once)
    outcome = await searcher.search()
    seconds = clock() - began
    if isinstance(outcome, DuplicateFound):
        raise _duplicate(error, outcome.tasks) from error
    task = outcome.task if isinstance(outcome, Found) else search.seen
    calls.observers.reconciled(
        error,
        operation=lost.operation,
        searched=search.searched,
        task_id=None if task is None else task.id,
        seconds=seconds,
    )
    if task is not None and call is not None:
        await call.saw(task)
    if isinstance(outcome, Inconclusive) and outcome.why is not None and task is not None:
        raise _only_seen(outcome.why, task) from error
    told = "" if isinstance(outcome, Found) else search.told(seconds, is_begun=searcher.has_asked)
    return SearchReport(result=outcome, searched=search.searched, told=told)


class _Searcher:
    """Makes the calls that a search is made of.

    Attributes:
        has_asked: Whether a request was made.
    """

    def __init__(
        self,
        search: Reconciliation,
        error: OutcomeUnknownError,
        calls: ClientCore,
        scope: CallScope,
        *,
        at_least_once: bool,
    ) -> None:
        seconds = calls.resilience.reconcile.timeout
        now = asyncio.get_running_loop().time()
        self.has_asked = False
        self._search = search
        self._error = error
        self._calls = calls
        self._deadline = scope.deadline
        self._patience = Deadline(name="reconcile", timeout=seconds, at=now + seconds)
        self._is_due = at_least_once  # what is next, however little patience there is
        self._scope = scope
        self._epoch = calls.env.wall() - now  # once: the wall clock may be set meanwhile

    async def search(self) -> SearchResult | DuplicateFound:
        """Goes on until it is found, or the time is over."""
        loop, search = asyncio.get_running_loop(), self._search
        policy = self._calls.resilience.reconcile
        while not isinstance(step := search.step, Found | DuplicateFound | Absent | Inconclusive):
            self._is_due = self._is_due and not isinstance(step, RetryLater)
            if self._calls.is_closed:
                search.cut_short(self._closed())
            elif loop.time() >= self._deadline.at:
                search.cut_short(self._late(self._deadline))
            elif loop.time() >= self._within.at:
                search.finish(self._late(self._patience))
                self._is_due = isinstance(search.step, Fetch)  # if it is not too late for that
            elif not isinstance(step, RetryLater):
                await self._ask(step)
            else:
                wait = growing_wait(
                    step.looks,
                    self._calls.env.random(),
                    first=policy.backoff,
                    most=policy.max_backoff,
                )
                await self._calls.pause(min(wait, self._within.left(loop.time())))
                search.waited()
        return step

    @property
    def _within(self) -> Deadline:
        """What ends the search as it stands."""
        if self._is_due:
            return self._deadline
        return min(self._deadline, self._patience, key=lambda one: one.at)

    async def _ask(self, step: GetTask | ListPage | Fetch) -> None:
        """Asks for one thing, and tells the search what came."""
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
            if self._calls.is_closed:  # which is what ends it
                return
            if await self._waited(error):
                return  # the same is asked again
            if isinstance(step, Fetch):
                search.not_fetched(error)
            else:
                self._failed(error)

    async def _waited(self, error: A2AError) -> bool:
        """Whether it was a circuit that is open, and is worth to be asked again by now.

        A search belongs to a message that was sent: it waits as a retry of that would.
        """
        wait, left = error.retry_after, self._within.left(asyncio.get_running_loop().time())
        if not isinstance(error, CircuitOpenError) or wait is None or wait >= left:
            return False
        await self._calls.pause(wait)
        return True

    async def _get(self, task_id: str) -> Task:
        get = GetTaskRequest(id=task_id, history_length=_HISTORY)
        return (await self._calls.call(GET_TASK, get, self._scope.within(self._within))).value

    async def _list(self, step: ListPage) -> None:
        search = self._search
        page = await self._calls.call(LIST_TASKS, _page(step), self._scope.within(self._within))
        told = http_date(page.headers.get("date", ""))
        wall = self._epoch + asyncio.get_running_loop().time()
        search.listed(page.value, wall=wall, agent_time=told)
        if page.endpoint is not None:
            page.endpoint.clock_skew = search.clock_skew

    def _failed(self, error: A2AError) -> None:
        search, place = self._search, self._calls.endpoint
        has_path = place is None or place.interface.protocol_binding != "JSONRPC"
        had_list = search.has_list
        search.failed(error, has_path=has_path)
        if place is not None and had_list and not search.has_list:
            place.lists_tasks = False

    def _closed(self) -> A2AConnectionError:
        return A2AConnectionError(
            f"the client was closed {'during' if self.has_asked else 'before'} the search for "
            f"message {self._error.message_id}",
            failure="closed",
            **self._facts(),
        )

    def _facts(self) -> Facts:
        """Those of the call whose reply was lost that hold for its search, too."""
        error = self._error
        return Facts(attempts=error.attempts, agent=error.agent, request_id=error.request_id)

    def _late(self, deadline: Deadline) -> DeadlineExceededError:
        error = self._search.error
        failed = ""
        if error is not None and not isinstance(error, DeadlineExceededError):
            failed = f"; what failed last: {error.message}"
        limit, name = f"the {deadline.name} timeout of {deadline.shown}", self._error.message_id
        what = f"{limit} left no time to search for message {name}"
        if self.has_asked:
            what = f"the search for message {name} did not finish within {limit}{failed}"
        late = DeadlineExceededError(
            what,
            deadline=deadline.name,
            timeout=deadline.timeout,
            **self._facts(),
        )
        late.__cause__ = error
        return late


def _page(step: ListPage) -> ListTasksRequest:
    return ListTasksRequest(
        context_id=step.context_id,
        page_size=step.size,
        page_token=step.page_token or None,
        history_length=_HISTORY,
        status_timestamp_after=None if step.since is None else step.since.isoformat(),
    )


def _only_seen(why: A2AError, task: Task) -> A2AError:
    """The error of a search that has seen the task, and could not get it."""
    add_last_seen(why, task.id, task.state)
    if isinstance(why, DeadlineExceededError):
        why.task = task
    return why


def _duplicate(lost: OutcomeUnknownError, tasks: tuple[Task, ...]) -> DuplicateTasksError:
    facts = lost.facts()
    facts["executed"] = True
    names = ", ".join(task.id for task in tasks)
    return DuplicateTasksError(
        f"the agent has {len(tasks)} tasks of message {lost.message_id}: {names}. If "
        "on_unknown= did not have it sent again, a proxy or the agent duplicated it",
        message_id=lost.message_id,
        tasks=tasks,
        **facts,
    )
