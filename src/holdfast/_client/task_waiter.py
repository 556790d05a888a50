"""Waiting for one task: by polling it, and by notifications of changes where there are any.

Rules: a temporary failure does not end the wait, since an agent that restarts can be called
again; the agent is not called before its Retry-After; a deadline ends every wait, and its error
has the task as last seen and the last failure.

`TaskWaiter` is the loop, for clients and receivers of push notifications alike; `watch_task` runs
it for a client, with its consumers, its journal and its secrets. `wait_for_task` decides for
`Client.wait` when a task is fetched, when its events are followed, and when it is polled.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Protocol

from holdfast._policy.attempts import more_informative
from holdfast._policy.deadline import Deadline, add_last_seen, poll_delays, wait_deadline_error
from holdfast.errors import A2AError, DeadlineExceededError, TaskAuthRequiredError
from holdfast.types import TaskArtifactUpdateEvent

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable
    from contextlib import AbstractAsyncContextManager

    from holdfast._client.call_scope import CallScope
    from holdfast._client.core import ClientCore
    from holdfast._policy.task_ownership import TaskOwner
    from holdfast.types import Event, Task

__all__ = ["TaskWaiter", "polled_every", "wait_for_task", "watch_task"]


class TaskWaiter:
    """One wait for a task.

    Args:
        task_id: The task.
        task: The task as last seen; None if it was not seen.
        deadline: The deadline of the wait.
        get: Fetches the task, itself within the deadline; None where no agent can be called.
        delay: Seconds until the next request, given the seconds that are left.
        pause: Waits for some seconds; returns the task at once when a notification arrives.
        on_change: Called with each fetched task that differs from the previous one; its exception
            ends the wait.

    Attributes:
        task: The task as last seen; set it where it was seen during a request.
    """

    def __init__(
        self,
        task_id: str,
        task: Task | None,
        *,
        deadline: Deadline,
        get: Callable[[], Awaitable[Task]] | None,
        delay: Callable[[float], float],
        pause: Callable[[float], Awaitable[Task | None]] = asyncio.sleep,
        on_change: Callable[[Task], Awaitable[None]] | None = None,
    ) -> None:
        self._task_id = task_id
        self.task = task
        self._deadline = deadline
        self._get = get
        self._delay = delay
        self._pause = pause
        self._on_change = on_change
        self._failure: A2AError | None = None  # of the last request
        self._not_before = 0.0  # the next one, on the event loop's clock

    async def wait(self, until: Callable[[Task], bool], *, is_due: bool = False) -> Task:
        """Wait until the task satisfies a predicate, and return it.

        Args:
            until: The predicate.
            is_due: Whether the first request is made at once.

        Raises:
            DeadlineExceededError: With the task as last seen, caused by the last failure, if any.
            TaskAuthRequiredError: The same, where the task waits for an authorization.
            A2AError: A permanent failure; `executed` is True where the task was seen.
        """
        while self.task is None or not until(self.task):
            if self._time_left() <= 0:
                raise self.deadline_error()
            if is_due or not await self._is_notified():
                is_due = False
                if self._get is not None and self._time_left() > 0:
                    await self._request(self._get)
        return self.task

    def deadline_error(self, failure: A2AError | None = None) -> A2AError:
        """Return the error of a wait that has reached its deadline.

        Args:
            failure: The last failure; that of the last request if left out.
        """
        last = self._failure or failure
        return wait_deadline_error(self._deadline, self.task, self._task_id, last)

    def _time_left(self) -> float:
        return self._deadline.remaining(asyncio.get_running_loop().time())

    async def _is_notified(self) -> bool:
        """Wait until the next request is due; return whether a notification arrived before."""
        left, now = self._time_left(), asyncio.get_running_loop().time()
        wait = left
        if self._get is not None:
            wait = min(left, max(self._delay(left), self._not_before - now))
        notified = await self._pause(wait)
        if notified is not None:
            self.task = notified
        return notified is not None

    async def _request(self, get: Callable[[], Awaitable[Task]]) -> None:
        try:
            fetched = await get()
        except DeadlineExceededError as error:
            raise self.deadline_error(error)  # noqa: B904  it has its own cause
        except A2AError as error:
            if not error.transient:
                task = self.task
                state = None if task is None else task.state
                add_last_seen(error, task, task_id=self._task_id, state=state)
                raise
            self._not_before = asyncio.get_running_loop().time() + (error.retry_after or 0.0)
            self._failure = more_informative(error, self._failure)
            return
        has_changed, self.task = fetched != self.task, fetched
        self._failure, self._not_before = None, 0.0
        if has_changed and self._on_change is not None:
            await self._on_change(fetched)


def polled_every(interval: float) -> Callable[[float], float]:
    """Return a `delay` of a `TaskWaiter`: short at first, then `interval` seconds."""
    delays = poll_delays(interval)
    return lambda _left: next(delays)


class TaskEvents(Protocol):
    """The events of a task, and the task as they have changed it."""

    @property
    def task(self) -> Task | None: ...

    def __aiter__(self) -> AsyncIterator[Event]: ...


async def wait_for_task(
    core: ClientCore,
    task_id: str,
    scope: CallScope,
    interval: float,
    *,
    until: Callable[[Task], bool] | None,
    follow: Callable[[Task], AbstractAsyncContextManager[TaskEvents]],
) -> Task:
    """Wait until a task is over or needs input, or satisfies a predicate.

    A status that the task had before this client replied to it does not end the wait. There are
    three steps, and each begins only if the wait is not over after the one before:

    1. The task is fetched at once, as it may be over already.
    2. Its events are followed. The stream itself chooses between a subscription and polling: see
       `holdfast._stream.machine`.
    3. If the stream ends, as it does with the task or at a question that was answered already, the
       task is polled, since nothing else can still change what the agent reports.

    Args:
        core: Makes the requests.
        task_id: The task.
        scope: The deadline, the consumers, and what each request carries.
        interval: Seconds between two polls.
        until: The predicate; None for a task that is over or needs input.
        follow: Opens the stream of the task, given the task as fetched.

    Raises:
        A2AError: See `watch_task`.
    """
    reply, is_wanted = core.replies.pending(task_id), until or _is_settled

    def is_done(task: Task) -> bool:
        return (reply is None or not reply.is_stale(task.status)) and is_wanted(task)

    task = await watch_task(core, task_id, None, scope, interval, until=lambda _task: True)
    if reply is not None:
        reply.record(task)
    if is_done(task):
        return task
    async with follow(task) as events:
        async for event in events:
            if until is None and isinstance(event, TaskArtifactUpdateEvent):
                continue  # it settles nothing, and assembling the task takes time
            if events.task is not None and is_done(events.task):
                return events.task
        task = events.task or task
    return await watch_task(core, task_id, task, scope, interval, until=is_done)


def _is_settled(task: Task) -> bool:
    return task.state.is_settled


async def watch_task(
    core: ClientCore,
    task_id: str,
    task: Task | None,
    scope: CallScope,
    interval: float,
    *,
    until: Callable[[Task], bool],
    owner: TaskOwner | None = None,
) -> Task:
    """Poll a task of a client until it satisfies a predicate, and call consumers with changes.

    Args:
        core: Makes the requests.
        task_id: The task.
        task: The task as last seen; None fetches it at once.
        scope: The deadline, the consumers, and what each request carries.
        interval: Seconds between two requests; the first waits are shorter.
        until: The predicate of the task.
        owner: The message that created the task, where that is known.

    Raises:
        TaskNotFoundError: The agent does not have it; or, where its ``owner`` is known, has
            given its id to another message's task.
        DeadlineExceededError: With the task as last seen.
        TaskAuthRequiredError: The same, where the task waits for an authorization.
        A2AConnectionError: The client was closed meanwhile.
    """
    core.check_open()
    context_id = None if task is None else task.context_id
    consumer_errors: list[A2AError] = []

    async def get() -> Task:
        core.check_watching(task_id)
        fetched = await core.get_task(task_id, scope)
        if owner is not None:
            if core.journaling is not None:
                await core.journaling.note_later(owner, fetched)
            owner.check(fetched, context_id)
        return fetched

    async def call_consumers(changed: Task) -> None:
        try:
            if scope.consumers:
                await core.call_consumers(scope.consumers, changed, changed, scope)
        except A2AError as error:
            consumer_errors.append(error)
            raise

    try:
        waiter = TaskWaiter(
            task_id,
            task,
            deadline=scope.deadline,
            get=get,
            delay=polled_every(interval),
            pause=core.pause,
            on_change=call_consumers,
        )
        return await waiter.wait(until, is_due=task is None)
    except (DeadlineExceededError, TaskAuthRequiredError) as error:
        if error not in consumer_errors:
            error.agent = error.agent or core.agent
            scope.secrets.hide_in(error)
        raise
