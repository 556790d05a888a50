"""Finding out what became of a message whose reply was lost, by asking the agent.

What to ask, and what follows, is decided by `holdfast.tasks.reconcile`.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from holdfast.errors import A2AError, DuplicateTasksError
from holdfast.model.operations import GET_TASK, LIST_TASKS
from holdfast.model.requests import GetTaskRequest, ListTasksRequest
from holdfast.policy.deadline import Deadline
from holdfast.policy.reconnect import growing_wait
from holdfast.tasks.reconcile import (
    Found,
    FoundTwice,
    GetTask,
    ListPage,
    LookAgain,
    NotFound,
    Reconciliation,
    has_no_list,
)
from holdfast.wire.fields import http_date

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast.calls import Calls, PerCall
    from holdfast.errors import OutcomeUnknownError
    from holdfast.model.types import Message, Task

__all__ = ["find"]

_HISTORY = 1000
"""Messages of a history to ask for. Some agents show none unless asked, and some forget for good
what is beyond the number that they are asked for."""

_PAGE = 100
"""Tasks on a page: the most that the protocol allows (A2A 3.1.4)."""


async def find(
    message: Message,
    lost: OutcomeUnknownError,
    calls: Calls,
    deadline: Deadline,
    per_call: PerCall,
    *,
    sent_at: float,
    wall: Callable[[], float],
    is_own_context: bool,
) -> Task | A2AError | None:
    """The task that a message made; None if none was found, and ``lost`` is made to say so.

    Where nothing could be looked at, what went wrong there is what is given.

    Args:
        message: The message as it was sent.
        lost: The error to raise if it is not found.
        calls: What makes calls.
        deadline: When the caller's patience ends; the search has a bound of its own too.
        per_call: What goes with each request.
        sent_at: When it was first sent, in seconds since the epoch.
        wall: Gives the time now by the same clock.
        is_own_context: Whether its context was made for it, and nobody else has used it.

    Raises:
        DuplicateTasksError: It made more than one task.
    """
    policy, known = calls.resilience.reconcile, calls.endpoint
    began = asyncio.get_running_loop().time()
    end = min(deadline.at, began + policy.max_seconds)
    search = Reconciliation(
        message,
        sent_at=sent_at,
        clock_skew=None if known is None else known.clock_skew,
        is_own_context=is_own_context,
        has_list=known is None or known.lists_tasks is not False,
        max_pages=policy.max_pages,
    )
    within = Deadline(name="reconcile", timeout=end - began, at=end)
    searcher = _Searcher(search, calls, within, per_call, wall)
    await searcher.search()
    seconds = asyncio.get_running_loop().time() - began
    match search.step:
        case Found(task):
            calls.observers.reconciled(lost, task_id=task.id, seconds=seconds)
            return task
        case FoundTwice(tasks):
            raise _duplicate(lost, tasks) from lost
        case _:
            calls.observers.reconciled(lost, task_id=None, seconds=seconds)
    lost.looked_at = search.looked_at
    if lost.looked_at:
        lost.message = (
            f"{lost.message}. It was looked for in {'; '.join(lost.looked_at)}, for "
            f"{seconds:.3g} s, and not found, which proves nothing"
        )
    return None if search.has_looked else searcher.trouble


class _Searcher:
    """Makes the calls that a search is made of.

    Attributes:
        trouble: What went wrong last, but for a list that there is not.
    """

    def __init__(
        self,
        search: Reconciliation,
        calls: Calls,
        deadline: Deadline,
        per_call: PerCall,
        wall: Callable[[], float],
    ) -> None:
        self._search = search
        self._calls = calls
        self._deadline = deadline
        self._per_call = per_call
        self._wall = wall
        self.trouble: A2AError | None = None

    async def search(self) -> None:
        """Goes on until it is found, or the time is over."""
        loop, search, policy = asyncio.get_running_loop(), self._search, self._calls.resilience
        while not isinstance(step := search.step, Found | FoundTwice | NotFound):
            if self._calls.is_closed or loop.time() >= self._deadline.at:
                search.give_up()
            elif not isinstance(step, LookAgain):
                await self._ask(step)
            else:
                first, most = policy.reconcile.backoff, policy.reconcile.max_backoff
                wait = growing_wait(step.looks, self._calls.env.random(), first=first, most=most)
                await self._calls.pause(min(wait, self._deadline.left(loop.time())))
                search.waited()

    async def _ask(self, step: GetTask | ListPage) -> None:
        """Asks for one thing, and tells the search what came."""
        calls, search = self._calls, self._search
        try:
            if isinstance(step, GetTask):
                get = GetTaskRequest(id=step.task_id, history_length=_HISTORY)
                reply = await calls.run(GET_TASK, get, self._deadline, self._per_call)
                search.got(reply.value)
                return
            page = await calls.run(LIST_TASKS, _page(step), self._deadline, self._per_call)
        except A2AError as error:
            search.failed(error)
            self.trouble = self.trouble if has_no_list(error) else error
            if isinstance(step, ListPage) and has_no_list(error) and calls.endpoint:
                calls.endpoint.lists_tasks = False
        else:
            told = http_date(page.headers.get("date", ""))
            search.listed(page.value, wall=self._wall(), agent_time=told)
            if page.endpoint is not None:
                page.endpoint.clock_skew = search.clock_skew


def _page(step: ListPage) -> ListTasksRequest:
    return ListTasksRequest(
        context_id=step.context_id,
        page_size=_PAGE,
        page_token=step.page_token or None,
        history_length=_HISTORY,
        status_timestamp_after=None if step.since is None else step.since.isoformat(),
    )


def _duplicate(lost: OutcomeUnknownError, tasks: tuple[Task, ...]) -> DuplicateTasksError:
    facts = lost.facts()
    facts["executed"] = True
    names = ", ".join(task.id for task in tasks)
    return DuplicateTasksError(
        f"the agent has {len(tasks)} tasks of message {lost.message_id}: {names}. Unless it was "
        "sent again as on_unknown= allows, what lies between or the agent itself has doubled it",
        message_id=lost.message_id,
        tasks=tasks,
        **facts,
    )
