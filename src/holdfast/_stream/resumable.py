"""The shell around `holdfast._stream.machine`: does what the machine says, and tells it what came.

Rules: one thing at a time, and nothing in the background: between two calls of `next` nothing
happens. A call that is cancelled can be made again. Whatever ends a stream closes its connection.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from holdfast._aio.waiting import CancelScope, add_last_seen, wait_deadline_error
from holdfast._policy.deadline import NEVER, Deadline, poll_delays
from holdfast._policy.reconnect import ReconnectPolicy, growing_wait
from holdfast._stream.machine import Resume, Step, Wait
from holdfast.errors import (
    A2AError,
    DeadlineExceededError,
    LimitExceededError,
    OutcomeUnknownError,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Coroutine, Iterator

    from holdfast._aio.env import Env
    from holdfast._aio.watchdog import TimeLimit, Watchdog
    from holdfast._pipeline.transport import Stream
    from holdfast.types import Event, StreamResponse, Task

__all__ = ["ResumableStream", "TaskSource"]

T = TypeVar("T")

_LAST_WORD = 1.0
"""Seconds that an agent has to tell the whole task at its end."""


class _Quiet(Exception):  # noqa: N818 (it is no error)
    """Nothing came for as long as patience lasts."""


class TaskSource(Protocol):
    """Where a stream comes from: the calls that it is made of."""

    async def subscribe(self, task_id: str) -> Stream[StreamResponse]:
        """Subscribes to the task."""
        ...

    async def look(self, task_id: str) -> Task:
        """Asks for the task."""
        ...

    async def search(self, error: A2AError | None) -> Task:
        """Searches for the task of a message, where `error` ended its stream before it named one.

        Raises:
            OutcomeUnknownError: It was not found.
        """
        ...

    @property
    def subscribing_is_safe(self) -> bool:
        """Whether a subscription leaves a task as it is where it was made last."""
        ...

    @property
    def is_closed(self) -> bool:
        """Whether the client is closed."""
        ...

    async def pause(self, seconds: float) -> None:
        """Waits, and no longer than until the client is closed."""
        ...

    def check_open(self, task_id: str) -> None:
        """Raises an `A2AConnectionError` if the client is closed."""
        ...

    def reconnected(self, task_id: str, number: int, error: A2AError | None) -> None:
        """Told of each reconnect, and of what made it necessary."""
        ...

    def follows(self, task_id: str, live: ResumableStream) -> None:
        """Told once which task a stream is of; it is to hurry when something else changes that."""
        ...

    def leaves(self, task_id: str, live: ResumableStream) -> None:
        """Told when a stream is closed that it was told of."""
        ...


class ResumableStream:
    """The events of one task or message, over any number of connections.

    Args:
        resume: The machine; what it was told so far stands.
        source: What it is made of.
        connection: The connection that is open; None for none.
        env: Randomness for backoffs.
        watchdog: Says when a connection has been quiet for long.
        deadline: When it ends, if ever.
        policy: How patiently to reconnect.
        max_retry_after: Longest hint of an agent to follow, in seconds; None follows any, to the
            deadline.
        poll_interval: Seconds between two looks at a task that is polled.

    Attributes:
        told: What the caller has been told, and is to be told next.
    """

    def __init__(
        self,
        resume: Resume,
        source: TaskSource,
        connection: Stream[StreamResponse] | None,
        *,
        env: Env,
        watchdog: Watchdog,
        deadline: Deadline,
        policy: ReconnectPolicy,
        max_retry_after: float | None,
        poll_interval: float,
    ) -> None:
        self._resume = resume
        self.told = resume.told
        self._source = source
        self._patient_until: float | None = None  # as far as the connection is read
        self._looked_at = 0.0  # the last time that the task was asked for
        self._reading: asyncio.Future[StreamResponse] | None = None  # whose event is yet to come
        self._connect(connection)
        self._env = env
        self._watchdog = watchdog
        self._limit: TimeLimit | None = None  # of the wait for an event
        self._deadline = deadline
        self._policy = policy
        self._max_retry_after = max_retry_after
        self._poll_interval = poll_interval
        self._delays: Iterator[float] = poll_delays(poll_interval)
        self._failure: A2AError | None = None  # which ends it
        self._waiting: Wait | None = None
        self._wakes_at = 0.0
        self._quiet_since: float | None = None  # as far as a task is polled
        self._stale_since: float | None = None  # as far as a task was seen that has not gone on
        self._going_on = CancelScope()
        self._follows: str | None = None  # the task, as the source knows it

    @property
    def reconnects(self) -> int:
        """How often it was subscribed to again after a cut."""
        return self._resume.reconnects

    @property
    def gap(self) -> bool:
        """Whether status messages may be missing."""
        return self._resume.gap

    @property
    def error(self) -> A2AError | None:
        """What a connection broke with last."""
        return self._resume.error

    @property
    def cause(self) -> A2AError | None:
        """At the end, what a connection broke with, unless the agent went on after that."""
        return self._resume.cause

    @property
    def is_stale(self) -> bool:
        """Whether the task that the caller has still waits for what it was just given."""
        reply, task = self._resume.reply, self.told.task
        return reply is not None and task is not None and reply.is_stale(task.status)

    @property
    def is_settled(self) -> bool:
        """Whether the caller has been told of an answer."""
        state = self.told.state
        if state is None:
            return self.told.message is not None
        return state.is_settled and not self.told.has_news and not self._resume.is_stale

    def next_nowait(self) -> Event | None:
        """The next event if nothing has to be waited for; what fails does so in `next`."""
        resume = self._resume
        try:
            if resume.step is not Step.READ:
                return self.told.take()
            if self._source.is_closed or self._reading is not None:
                return None
            if (response := self._at_hand()) is None:
                return None
            chunk = response.artifact_update
            if chunk is not None and not resume.may_repeat:
                self._patient_until = None
                return self.told.pass_on(chunk)
            if (event := response.event) is not None:
                self._patient_until = None
                resume.received(event)
                return self.told.take()
        except A2AError as error:
            self._failure = error
        return None

    async def next(self) -> Event | None:
        """The next event; None at the end.

        Raises:
            ReconnectError: It was cut, and cannot be picked up again.
            DeadlineExceededError: Its time is over; `task` is the task as last seen.
            TaskAuthRequiredError: The same, while the task waits for an authorization.
            A2AError: The agent refuses to go on.
        """
        resume = self._resume
        try:
            if self._failure is not None:
                raise self._failure
            while (event := self.told.take()) is None:
                step = resume.step
                if self._going_on.is_ended:
                    await self._let_go()  # of what came meanwhile
                    return None
                if step is Step.DONE:
                    self._resume.waited_enough()
                    await self.settle()
                    return None
                self._check_open()
                if step is Step.READ:
                    await self._read()
                else:
                    await self._going_on.wait(self._go_on(step))
        except A2AError as error:
            self._failure = error  # to be told by the next call if this one is cancelled
            if not isinstance(error, OutcomeUnknownError):
                add_last_seen(error, self.told.task_id, self.told.state)
            with contextlib.suppress(TimeoutError):  # of what does not close
                await self.close()
            raise
        self._quiet_since = None
        if self._follows is None and self.told.task_id is not None:
            self._follows = self.told.task_id
            self._source.follows(self._follows, self)
        if self._deadline.ends_at_first_event:
            self._deadline = NEVER
        return event

    async def close(self) -> None:
        """Ends it, whoever waits for an event; the agent goes on with the task."""
        self._going_on.end()
        if self._follows is not None:
            self._source.leaves(self._follows, self)
        await self._let_go()

    async def _let_go(self) -> None:
        connection = self._connection
        self._connect(None)
        if connection is not None:
            await connection.close()

    async def _replace(self) -> None:
        """Lets go of a connection that is over; another one follows even if it does not close."""
        with contextlib.suppress(TimeoutError):
            await self._let_go()

    def _connect(self, connection: Stream[StreamResponse] | None) -> None:
        self._connection = connection
        self._patient_until = None
        self._forget_reading()
        self._at_hand = _nothing if connection is None else connection.next_nowait

    async def _read(self) -> None:
        connection = self._connection
        if self._is_due():
            self._resume.quiet()
            return
        if connection is None:  # it was let go of, as after an error
            self._resume.ended()
            return
        try:
            response = await self._next_of(connection)
        except StopAsyncIteration:
            if not self._going_on.is_ended:
                self._resume.ended()
            await self._replace()
        except A2AError as error:
            if self._going_on.is_ended:
                return  # it broke because it was let go of
            self._check_deadline(error)
            if isinstance(error, LimitExceededError):
                raise
            self._resume.cut(error)
            await self._replace()
        else:
            self._patient_until = None
            if response is not None and (event := response.event) is not None:
                self._resume.received(event)

    async def _next_of(self, connection: Stream[StreamResponse]) -> StreamResponse | None:
        """The next event; None if the task, asked for while it is quiet, has more to tell."""
        if self._reading is None:
            with contextlib.suppress(_Quiet):
                return await self._patiently(_known(connection))
        return await self._watched(connection)

    async def _patiently(self, awaitable: Awaitable[T]) -> T:
        """Waits for something for as long as patience lasts.

        Raises:
            _Quiet: It did not come.
        """
        quiet_at = self._quiet_at()
        if quiet_at is None:
            return await awaitable
        limit = self._limit = self._watchdog.until(quiet_at)
        try:
            with limit:
                return await awaitable
        except TimeoutError as error:
            if isinstance(error, A2AError) or not limit.expired:
                raise
            raise _Quiet from None
        finally:
            self._limit = None

    async def _watched(self, connection: Stream[StreamResponse]) -> StreamResponse | None:
        """The same, where the task is asked for first, beside it.

        An event that arrives in the moment in which this is cancelled is kept for the next call.
        """
        resume, reading = self._resume, self._reading
        self._check_open()  # it may have been closed in the moment in which patience ended
        if reading is None or reading.cancelled():
            reading = self._reading = asyncio.ensure_future(_known(connection))
        try:
            while not await self._comes(reading):
                self._check_open()
                self._patient_until, is_due = None, self._is_due()
                resume.quiet()
                task_id = self.told.task_id or ""
                looking = self._look(task_id) if is_due else self._look_beside(reading)
                await self._going_on.wait(looking)
                self._check_stale(asyncio.get_running_loop().time())
                if resume.step is not Step.READ or self.told.has_news or self._going_on.is_ended:
                    break
        finally:
            if reading.cancel():
                await asyncio.wait({reading})
        self._forget_reading()
        return None if reading.cancelled() or resume.step is Step.DONE else reading.result()

    def _forget_reading(self) -> None:
        """Forgets the event that was read last, whether it has arrived or not."""
        reading, self._reading = self._reading, None
        if reading is not None and reading.done() and not reading.cancelled():
            reading.exception()  # nobody else asks for it

    async def _look_beside(self, reading: asyncio.Future[Any]) -> None:
        """Asks for the task, and no longer than until the connection goes on."""
        looking = asyncio.ensure_future(self._look(self.told.task_id or ""))
        try:
            await asyncio.wait({reading, looking}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            if looking.cancel():
                await asyncio.wait({looking})
        if not looking.cancelled():
            looking.result()

    async def _comes(self, reading: asyncio.Future[Any]) -> bool:
        """Whether an event comes for as long as patience lasts."""
        with contextlib.suppress(_Quiet):
            await self._patiently(asyncio.wait({reading}))
        return reading.done()

    def _quiet_at(self) -> float | None:
        """When the task is asked for; what was cancelled goes on where it stood."""
        patience, after = self._resume.patience, self._resume.look_after
        if patience is None:
            self._patient_until = None
        elif self._patient_until is None:
            self._patient_until = asyncio.get_running_loop().time() + patience
        if self._patient_until is None or after is None:
            return self._patient_until
        return min(self._patient_until, self._looked_at + after)

    def _is_due(self) -> bool:
        """Whether the task is to be asked for, whatever the connection brings meanwhile."""
        after = self._resume.look_after
        return after is not None and asyncio.get_running_loop().time() >= self._looked_at + after

    def hurry(self) -> None:
        """Has the task asked for soon: something else says that it changes."""
        self._resume.hurry()
        patience = self._resume.patience
        if patience is None:
            return
        soon = asyncio.get_running_loop().time() + patience
        if self._patient_until is not None:
            self._patient_until = min(self._patient_until, soon)
        if self._limit is not None and soon < self._limit.at:
            self._limit.restart(patience)

    def _go_on(self, step: Step | Wait) -> Coroutine[Any, Any, None]:
        """Does what there is to do without a connection."""
        if isinstance(step, Wait):
            return self._wait(step)
        if step is Step.SEARCH:
            return self._search()
        task_id = self.told.task_id or ""
        return self._subscribe(task_id) if step is Step.SUBSCRIBE else self._look(task_id)

    async def _look(self, task_id: str) -> None:
        try:
            task = await self._source.look(task_id)
        except A2AError as error:
            self._check_deadline(error)
            self._resume.not_found(error)
        else:
            self._resume.found(task)
        self._looked_at = asyncio.get_running_loop().time()

    async def _search(self) -> None:
        await self._replace()
        self._resume.made(await self._source.search(self._resume.error))

    async def _subscribe(self, task_id: str) -> None:
        await self._replace()
        try:
            self._connect(await self._source.subscribe(task_id))
        except A2AError as error:
            self._check_deadline(error)
            self._resume.refused(error)
        else:
            self._resume.subscribed(resubscribes=self._source.subscribing_is_safe)
            if self._resume.reconnects:
                self._source.reconnected(task_id, self._resume.reconnects, self._resume.error)

    async def _wait(self, step: Wait) -> None:
        loop = asyncio.get_running_loop()
        if self._waiting is not step:  # else it was cancelled, and goes on
            self._check_hint(step)
            self._waiting = step
            self._wakes_at = loop.time() + max(self._delay(step), step.at_least)
        end = self._end(step)
        await self._source.pause(max(0.0, min(self._wakes_at, end.at) - loop.time()))
        self._check_open()
        if end.left(loop.time()) <= 0:
            raise wait_deadline_error(end, self.told.task, self.told.task_id, step.error)
        self._check_stale(loop.time())
        self._resume.waited()

    def _check_stale(self, now: float) -> None:
        """Believes a task that still waits for what it was given, when all is quiet for long."""
        if not self._resume.is_stale:
            self._stale_since = None
            return
        if self._stale_since is None:
            self._stale_since = now
        reply, status = self._resume.reply, self.told.status
        if reply is None or status is None:
            return
        if now - self._stale_since >= reply.patience(status, self._policy.max_quiet):
            self._resume.waited_enough()

    def _check_hint(self, step: Wait) -> None:
        """Fails at once where the agent asks for more patience than there is.

        Raises:
            DeadlineExceededError: The deadline comes before the agent may be asked again. What the
                agent said is its cause, and among its facts.
            TaskAuthRequiredError: The same, while the task waits for an authorization.
            A2AError: What the agent said, where it asks for a longer wait than the policy allows.
        """
        error, left, most = step.error, self._time_left, self._max_retry_after
        if error is None or most is None or step.at_least <= min(most, left):
            return
        error.retry_stopped_reason = f"another try has to wait {step.at_least:g} s"
        if step.at_least > most:
            raise error
        error.retry_stopped_reason = f"{error.retry_stopped_reason}, and {left:g} s are left"
        raise wait_deadline_error(
            self._deadline, self.told.task, self.told.task_id, error, left=left
        )

    def _delay(self, step: Wait) -> float:
        if not step.attempt:
            return next(self._delays)
        self._delays = poll_delays(self._poll_interval)
        policy = self._policy
        return growing_wait(
            step.attempt, self._env.random(), first=policy.backoff, most=policy.max_backoff
        )

    def _end(self, step: Wait) -> Deadline:
        """When waiting ends: at the deadline or, where there is none, when all is quiet."""
        if step.attempt or self._deadline.at < math.inf:
            return self._deadline
        if self._quiet_since is None:
            self._quiet_since = asyncio.get_running_loop().time()
        quiet = self._policy.max_quiet
        return Deadline(name="quiet", timeout=quiet, at=self._quiet_since + quiet)

    async def settle(self) -> None:
        """Makes a task that came to rest the agent's own to the last word, if that is quick.

        Reads to the end of the connection, where an agent may tell the whole task, or asks for it.
        """
        resume, connection = self._resume, self._connection
        with contextlib.suppress(TimeoutError, A2AError):
            async with asyncio.timeout(_LAST_WORD):
                if connection is not None and resume.step is Step.DONE:
                    async for response in connection:
                        if response.task is not None:
                            self.told.correct(response.task)
                    await self.close()  # the next request may need its place
                if not self.told.is_whole and self.told.task_id is not None:
                    task = await self._source.look(self.told.task_id)
                    resume.check_origin(task)
                    self.told.correct(task)
        if resume.step is Step.DONE:
            await self.close()

    @property
    def _time_left(self) -> float:
        return self._deadline.left(asyncio.get_running_loop().time())

    def _check_deadline(self, error: A2AError) -> None:
        """Raises if it is this stream's own deadline that an error of a call tells of."""
        if not isinstance(error, DeadlineExceededError) or self._time_left > 0:
            return
        if self.told.task_id is None:
            raise error
        raise wait_deadline_error(self._deadline, self.told.task, self.told.task_id, error)

    def _check_open(self) -> None:
        self._source.check_open(self.told.task_id or "")


def _nothing() -> None:
    """Nothing is at hand."""


async def _known(connection: Stream[StreamResponse]) -> StreamResponse:
    """The next event of a kind that this client knows; others prove no more than a comment."""
    while (response := await connection.__anext__()).event is None:
        pass
    return response
