"""Waiting for one task: for what is delivered, and by asking the agent where a client is at hand.

Rules: a wait is no longer than its time; it ends with its watch, also while the agent is asked;
what the agent answers is held against what was delivered meanwhile, and it is not asked again
before it wants to be.
"""

from __future__ import annotations

import asyncio
from copy import copy
from typing import TYPE_CHECKING, TypeVar

from holdfast._aio.cancel_scope import CancelScope, ScopeCancelled
from holdfast._policy.attempts import more_informative
from holdfast._policy.deadline import Deadline, wait_deadline_error
from holdfast._stream.fold import is_newer
from holdfast.errors import (
    A2AConnectionError,
    A2AError,
    DeadlineExceededError,
    TaskAuthRequiredError,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from holdfast._client.client import Client
    from holdfast._push.watches import Watch, Watches
    from holdfast.types import Task

__all__ = ["TaskWait"]

T = TypeVar("T")

_LAST_LOOK = 1.0
"""Seconds before its end that a wait asks the agent for the last time."""


class TaskWait:
    """One wait; it begins when it is made.

    Args:
        watches: Where the task is kept.
        watch: The task, which was named.
        until: Says of the task whether the wait is over; by default that it is over or needs
            input. A task that is over ends it in any case.
        timeout: Seconds.
        poll_interval: Seconds without news after which the agent is asked.
    """

    def __init__(
        self,
        watches: Watches,
        watch: Watch,
        *,
        until: Callable[[Task], bool] | None,
        timeout: float,
        poll_interval: float,
    ) -> None:
        self._watches = watches
        self._watch = watch
        self._task_id = watch.task_id or ""
        self._until = until
        end = asyncio.get_running_loop().time() + timeout
        self._deadline = Deadline(name="wait", timeout=timeout, at=end)
        self._poll_interval = poll_interval
        self._failure: A2AError | None = None  # of the last question
        self._not_before = 0.0  # the next one, on the event loop's clock

    async def task(self, client: Client | None) -> Task:
        """The task as wanted, confirmed by the agent where there is a client.

        Raises:
            DeadlineExceededError: The time is over.
            TaskAuthRequiredError: The same, while the task waits for an authorization.
            LimitExceededError: The task has become too large.
            A2AConnectionError: The watch has ended.
            A2AError: The agent was asked, and refused.
        """
        news = asyncio.Event()
        self._watch.waiting.add(news)
        try:
            while True:
                news.clear()
                self._check()
                task = self._watch.deliveries.task
                if task is not None and self._is_wanted(task):
                    confirmed = task if client is None else await self._confirmed(client)
                    if confirmed is not None:
                        return confirmed
                    continue
                left = self._left()
                if left <= 0:
                    raise self._too_late()
                pause = left if client is None else self._pause(left)
                is_quiet = not await _happens(news, pause)
                if is_quiet and client is not None and self._left() > 0:
                    await self._look(client)
        finally:
            self._watch.waiting.discard(news)

    def _is_wanted(self, task: Task) -> bool:
        if task.state.is_terminal:
            return True
        if self._watch.deliveries.is_over:
            return False
        return task.state.is_settled if self._until is None else self._until(task)

    def _pause(self, left: float) -> float:
        """Seconds until the agent is asked: once before the end at least, unless it wants rest."""
        asked = self._not_before - asyncio.get_running_loop().time()
        pause = min(self._poll_interval, max(left / 2, min(left, _LAST_LOOK)))
        return min(left, max(pause, asked))

    async def _look(self, client: Client) -> None:
        """Asks the agent for a task of which nothing was heard for long."""
        try:
            task = await self._asked(client.get_task(self._task_id, timeout=self._left()))
        except A2AError as error:
            if not (error.transient or isinstance(error, DeadlineExceededError)):
                raise
            self._failure = more_informative(error, self._failure)
            now = asyncio.get_running_loop().time()
            self._not_before = now + (error.retry_after or 0.0)
        else:
            self._failure = None
            self._watches.learn(self._watch, task)

    async def _confirmed(self, client: Client) -> Task | None:
        """The task as the agent has it, once that is as wanted as well.

        None if something newer was delivered meanwhile.
        """
        left = self._left()
        if left <= 0:
            raise self._too_late()
        before = self._watch.deliveries.status
        asking = client.wait(self._task_id, until=self._is_wanted, timeout=left)
        try:
            task = await self._asked(asking)
        except (DeadlineExceededError, TaskAuthRequiredError) as error:
            self._failure = error
            seen = error.task if isinstance(error, TaskAuthRequiredError) else None
            raise self._too_late(seen)  # noqa: B904  it has its cause
        status = self._watch.deliveries.status
        if status is not None and status is not before and is_newer(status, task.status):
            return None
        self._watches.confirm(self._watch, task)
        return task

    async def _asked(self, asking: Awaitable[T]) -> T:
        """What the agent answers, unless there is nothing to ask for any more."""
        scope = CancelScope()
        self._watch.asking.add(scope)
        try:
            answer = await scope.result(asking)
        except ScopeCancelled:
            raise self._end() from None
        finally:
            self._watch.asking.discard(scope)
        self._check()
        return answer

    # ── Its ends ─────────────────────────────────────────────────────────────────────────────

    def _check(self) -> None:
        if self._watch.end is not None or self._watch.failure is not None:
            raise self._end()

    def _end(self) -> A2AError:
        if self._watch.failure is not None:
            return copy(self._watch.failure)
        text = f"{self._watch.end} while task {self._task_id} was waited for"
        executed = None if self._watch.deliveries.task is None else True
        return A2AConnectionError(text, failure="closed", executed=executed)

    def _too_late(self, task: Task | None = None) -> A2AError:
        seen = task or self._watch.deliveries.task
        return wait_deadline_error(self._deadline, seen, self._task_id, self._failure)

    def _left(self) -> float:
        return self._deadline.left(asyncio.get_running_loop().time())


async def _happens(news: asyncio.Event, seconds: float) -> bool:
    async with CancelScope.within(seconds):
        await news.wait()
        return True
    return False
