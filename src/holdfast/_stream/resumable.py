"""Run `holdfast._stream.machine`: do what the machine says, and report to it what happened.

Rules: one thing at a time, and nothing in the background: between two calls of `next` nothing
happens. A call that is cancelled can be made again. Whatever ends a stream closes its connection.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from holdfast._aio.callbacks import cancel_and_wait
from holdfast._aio.cancel_scope import CancelScope
from holdfast._pipeline.connection import Connection, connection_over
from holdfast._policy.deadline import (
    NEVER,
    Deadline,
    add_last_seen,
    poll_delays,
    wait_deadline_error,
)
from holdfast._policy.reconnect import ReconnectPolicy, growing_wait
from holdfast._stream.states import Action, Input, Wait
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
    from holdfast._pipeline.observations import WaitReason
    from holdfast._pipeline.transport import Stream
    from holdfast._stream.machine import StreamMachine
    from holdfast.types import Event, StreamResponse, Task

__all__ = ["ResumableStream", "TaskSource"]

T = TypeVar("T")

_SETTLE_S = 1.0
"""Seconds that an agent has to send the whole task at its end."""


class StreamClient(Protocol):
    """A client.

    Attributes:
        is_closed: Whether it was closed.
    """

    is_closed: bool


class TaskSource(Protocol):
    """The requests that a stream is made of."""

    @property
    def client(self) -> StreamClient:
        """The client that makes the requests; closing it ends the stream."""
        ...

    async def subscribe(self, task_id: str) -> Stream[StreamResponse]:
        """Subscribe to the task."""
        ...

    async def get_task(self, task_id: str) -> Task:
        """Fetch the task."""
        ...

    async def find_task(self, error: A2AError | None) -> Task:
        """Search for the task of the message, whose stream `error` ended before it named a task.

        Raises:
            OutcomeUnknownError: No task was found.
        """
        ...

    @property
    def subscribing_is_safe(self) -> bool:
        """Whether a subscription leaves a task unchanged, at the agent that answered last."""
        ...

    async def pause(self, seconds: float, *, reason: WaitReason | None) -> None:
        """Wait, until the client is closed at the latest; report a wait that has a reason."""
        ...

    def check_open(self, task_id: str) -> None:
        """Raise an `A2AConnectionError` if the client is closed."""
        ...

    def on_interrupted(self, task_id: str | None, error: A2AError | None) -> None:
        """Notify observers that the stream was cut, or cannot be resumed yet."""
        ...

    def on_failing(self, task_id: str | None, error: A2AError, *, seconds: float) -> None:
        """Warn that requests continue to fail; the stream fails after `seconds` of that."""
        ...

    def on_reconnect(self, task_id: str, number: int, error: A2AError | None) -> None:
        """Notify observers of a reconnect, and of the error that made it necessary."""
        ...

    def on_gap(self, task_id: str | None) -> None:
        """Notify observers that status messages may be missing after a cut."""
        ...

    def register(self, task_id: str, stream: ResumableStream) -> None:
        """Register the stream for its task, whose changes it then expects."""
        ...

    def unregister(self, task_id: str, stream: ResumableStream) -> None:
        """Remove a closed stream."""
        ...


class ResumableStream:
    """The events of one task or message, over any number of connections.

    Args:
        machine: The machine, in any state.
        source: Makes the requests.
        connection: The connection that is open; None for none.
        env: Randomness for backoffs.
        watchdog: Measures how long a connection is silent.
        deadline: The deadline of the stream, if any.
        policy: When to reconnect, and how often.
        max_retry_after: Longest Retry-After to follow, in seconds; None follows any, up to the
            deadline.
        poll_interval: Seconds between two requests for a task that is polled.

    Attributes:
        outbox: The events for the caller, and the task that they describe.
    """

    def __init__(
        self,
        machine: StreamMachine,
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
        self._machine = machine
        self.outbox = machine.outbox
        self._source = source
        self._time = asyncio.get_running_loop().time
        self._look_at: float | None = None  # when to fetch the task, if no event comes
        self._heard_at = 0.0  # when a chunk came last, which does not change `_look_at`
        self._fetched_at = 0.0  # when the task was fetched last
        self._reading: asyncio.Task[bool] | None = None  # a wait beside a request for the task
        self._was_connected = self._has_reported_gap = False
        self._connect(connection)
        self._env = env
        self._watchdog = watchdog
        self._limit: TimeLimit | None = None  # of the wait for `_reading`
        self._deadline = deadline
        self._policy = policy
        self._max_retry_after = max_retry_after
        self._poll_interval = poll_interval
        self._delays: Iterator[float] | None = None
        self._failure: A2AError | None = None  # ends it
        self._waiting: Wait | None = None
        self._wakes_at = 0.0
        self._silent_since: float | None = None  # while the task is polled
        self._wait_reason: WaitReason = "reconnect"
        self._failing_since: float | None = None  # while every request fails
        self._has_warned = False  # of requests that fail
        self._stale_since: float | None = None  # while the task does not show the reply
        self._scope = CancelScope()
        self._registered: str | None = None  # the task id that it is registered for

    @property
    def reconnects(self) -> int:
        """The number of resubscriptions after a cut."""
        return self._machine.reconnects

    @property
    def is_polled(self) -> bool:
        """Whether the task is polled, or was at the end, in place of a subscription."""
        return self._machine.is_polled

    @property
    def gap(self) -> bool:
        """Whether status messages may be missing."""
        return self._machine.gap

    @property
    def error(self) -> A2AError | None:
        """The error that broke a connection last."""
        return self._machine.error

    @property
    def cause(self) -> A2AError | None:
        """At the end, the error that broke a connection, unless the agent continued after it."""
        return self._machine.cause

    @property
    def is_stale(self) -> bool:
        """Whether the caller's task still waits for the reply that was just sent."""
        reply, task = self._machine.reply, self.outbox.task
        return reply is not None and task is not None and reply.is_stale(task.status)

    @property
    def is_settled(self) -> bool:
        """Whether the caller has an answer."""
        state = self.outbox.state
        if state is None:
            return self.outbox.message is not None
        return state.is_settled and not self.outbox.has_news and not self._machine.is_stale

    async def next(self) -> Event | None:
        """Wait for the next event; None at the end.

        Raises:
            ReconnectError: The stream was cut, and cannot be resumed.
            DeadlineExceededError: The deadline has passed; `task` is the task as last seen.
            TaskAuthRequiredError: The same, while the task waits for an authorization.
            A2AError: The agent refuses to continue.
        """
        machine = self._machine
        try:
            if self._failure is not None:
                raise self._failure
            event = self.outbox.take() if self.outbox.pending else None
            while event is None:
                is_reading = machine.action is Action.READ and not self._source.client.is_closed
                if is_reading and (response := self._next_nowait()) is not None:
                    event = response.artifact_update
                    if event is not None and not machine.may_repeat:
                        self._heard_at = self._time()
                    elif (event := response.event) is not None:
                        self._look_at = None
                    else:
                        continue  # an unknown kind of event counts no more than a comment
                    event = machine.accept(event)
                    continue
                if self._scope.is_cancelled or machine.action is Action.STOP:
                    await self._finish()
                    return None
                await (self._read() if is_reading else self._do(machine.action))
                event = self.outbox.take() if self.outbox.pending else None
        except A2AError as error:
            await self._fail(error)
            raise
        self._silent_since = None
        if self._registered is None and self.outbox.task_id is not None:
            self._registered = self.outbox.task_id
            self._source.register(self._registered, self)
        if self._deadline.ends_at_first_event:
            self._deadline = NEVER
        return event

    async def _fail(self, error: A2AError) -> None:
        self._failure = error  # raised again by the next call if this one is cancelled
        if not isinstance(error, OutcomeUnknownError):
            outbox = self.outbox
            add_last_seen(error, outbox.task, task_id=outbox.task_id, state=outbox.state)
        with contextlib.suppress(TimeoutError):  # of a connection that does not close
            await self.close()

    async def close(self) -> None:
        """End the stream, and a wait for its next event; the agent continues with the task."""
        self._scope.cancel()
        if self._registered is not None:
            self._source.unregister(self._registered, self)
        await self._let_go()

    async def _finish(self) -> None:
        """End normally, or because the stream was closed meanwhile."""
        if self._scope.is_cancelled:
            await self._let_go()  # of a connection that was opened meanwhile
        else:
            self._machine.close_reply()
            await self.settle()

    async def _let_go(self) -> None:
        connection = self._connection
        self._connect(None)
        if connection is not None:
            await connection.close()

    async def _replace(self) -> None:
        """Let go of a connection that is over; the stream continues even if it does not close."""
        with contextlib.suppress(TimeoutError):
            await self._let_go()

    def _connect(self, stream: Stream[StreamResponse] | None) -> None:
        self._connection = connection = None if stream is None else connection_over(stream)
        self._next_nowait = _nothing if connection is None else connection.next_nowait
        self._was_connected = self._was_connected or connection is not None
        self._look_at = None
        self._forget_reading()

    async def _read(self) -> None:
        """Wait until the connection has an event, or the machine has something to do."""
        connection, machine = self._connection, self._machine
        if connection is None or (machine.may_repeat and self._is_due()):
            # Without a connection: it was let go of, as after an error.
            (machine.on_look_due if self._is_due() else machine.on_end)()
            return
        try:
            while self._reading is None:
                look_at = self._look_at
                if look_at is None or machine.may_repeat:
                    look_at = self._next_look()
                if await connection.wait(look_at, self._watchdog):
                    return
                if self._next_look() <= self._time():
                    break
            await self._read_beside_requests(connection)
        except StopAsyncIteration:
            if machine.expects(Input.END) and not self._scope.is_cancelled:
                machine.on_end()
            await self._replace()
        except A2AError as error:
            if not self._scope.is_cancelled:  # else it broke because it was closed
                await self._lose(error)

    async def _lose(self, error: A2AError) -> None:
        """Let go of a connection that broke."""
        self._check_deadline(error)
        if isinstance(error, LimitExceededError):
            raise error
        if self._machine.expects(Input.CUT):
            self._machine.on_cut(error)
        await self._replace()

    async def _read_beside_requests(self, connection: Connection[StreamResponse]) -> None:
        """Fetch the task while the connection is silent, and wait for an event meanwhile."""
        machine, reading = self._machine, self._reading
        self._check_open()  # the client may have been closed in the meantime
        if reading is None or reading.cancelled():
            reading = self._reading = asyncio.create_task(connection.wait())
        try:
            while not await self._arrives(reading):
                self._check_open()
                self._look_at, is_due = None, self._is_due()
                machine.on_look_due()
                task_id = self.outbox.task_id or ""
                asking = self._get_task(task_id) if is_due else self._get_task_beside(reading)
                await self._scope.wait(asking)
                self._check_stale(self._time())
                is_over = machine.action is not Action.READ or self._scope.is_cancelled
                if is_over or self.outbox.has_news:
                    break
        finally:
            await cancel_and_wait(reading)
        if not reading.done():
            return  # a layer holds it up: the next wait continues with it
        self._forget_reading()
        if not reading.cancelled() and machine.action is not Action.STOP:
            reading.result()  # which raises if the connection has ended
            # An event that cannot be merged now stays in the connection.
            response = connection.next_nowait() if machine.expects(Input.EVENT) else None
            if response is not None and (event := response.event) is not None:
                self._look_at = None
                machine.on_event(event)

    def _forget_reading(self) -> None:
        """Forget a wait, whether an event has arrived or not."""
        reading, self._reading = self._reading, None
        if reading is not None and reading.done() and not reading.cancelled():
            reading.exception()  # else it is logged as never retrieved

    async def _get_task_beside(self, reading: asyncio.Future[Any]) -> None:
        """Fetch the task, but only until the connection brings something.

        The machine learns of a reply here alone: one that comes after the wait for a cancelled
        request, as a layer may cause, must not change the stream.
        """
        asking = asyncio.create_task(self._source.get_task(self.outbox.task_id or ""))
        try:
            await asyncio.wait({reading, asking}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            await cancel_and_wait(asking)
        if asking.done() and not asking.cancelled():
            await self._take_task(asking)

    async def _arrives(self, reading: asyncio.Future[bool]) -> bool:
        """Return whether an event arrives before the task is to be fetched."""
        limit = self._limit = self._watchdog.until(self._next_look())
        try:
            with limit:
                await asyncio.wait({reading})
        except TimeoutError:
            if not limit.fired:
                raise
        finally:
            self._limit = None
        return reading.done()

    def _next_look(self) -> float:
        """Return when to fetch the task if nothing comes; a cancelled wait does not change it."""
        silence, after = self._machine.silence, self._machine.compare_after
        if silence is None:
            self._look_at = None
            return math.inf
        if self._look_at is None:
            self._look_at = self._time() + silence
        self._look_at = max(self._look_at, self._heard_at + silence)
        return self._look_at if after is None else min(self._look_at, self._fetched_at + after)

    def _is_due(self) -> bool:
        """Return whether the task is to be fetched now, whatever the connection brings."""
        after = self._machine.compare_after
        return after is not None and self._time() >= self._fetched_at + after

    def expect_change(self) -> None:
        """Fetch the task soon: it is known to change."""
        self._machine.expect_change()
        silence = self._machine.silence
        if silence is None:
            return
        soon = self._time() + silence
        if self._look_at is not None:
            self._look_at = min(self._look_at, soon)
        limit = self._limit if self._connection is None else self._limit or self._connection.limit
        if limit is not None and soon < limit.at:
            limit.restart(silence)

    async def _do(self, action: Action | Wait) -> None:
        """Do what there is to do without a connection, until the stream is closed."""
        self._check_open()
        if isinstance(action, Wait) and action is not self._waiting:
            self._note_failure(action)
            if not self._machine.is_polled:
                self._source.on_interrupted(self.outbox.task_id, action.error)
            self._note_gap()
        async with CancelScope(self._outage_end()) as outage:
            await self._scope.wait(self._doing(action))
        if outage.expired and not self._scope.is_cancelled:
            raise self._outage_error()

    def _note_failure(self, wait: Wait) -> None:
        """Note when requests began to fail, and warn once that they continue to fail."""
        if wait.error is None:
            return
        if self._failing_since is None:
            self._failing_since, self._has_warned = self._time(), False
        elif not self._has_warned:
            self._has_warned = True
            left = min(self._outage_end(), self._deadline.at) - self._time()
            self._source.on_failing(self.outbox.task_id, wait.error, seconds=left)

    def _note_gap(self) -> None:
        """Report a gap, once; the messages of a task that was never streamed are not one."""
        if self._machine.gap and self._was_connected and not self._has_reported_gap:
            self._has_reported_gap = True
            self._source.on_gap(self.outbox.task_id)

    def _outage_end(self) -> float:
        """Return when the stream fails unless a request succeeds before; infinity for never."""
        has_deadline = self._machine.until_deadline and self._deadline.at < math.inf
        if self._failing_since is None or has_deadline:
            return math.inf
        return self._failing_since + self._policy.max_outage

    def _outage_error(self) -> A2AError:
        task_id, state, longest = self.outbox.task_id, self.outbox.state, self._policy.max_outage
        last_seen = "" if state is None else f" (last seen {state.name})"
        return self._machine.lost(
            f"every request for task {task_id}{last_seen} failed for {longest:g} s "
            f"(ReconnectPolicy.max_outage); resume later with subscribe_to_task({task_id!r})"
        )

    def _doing(self, action: Action | Wait) -> Coroutine[Any, Any, None]:
        if isinstance(action, Wait):
            return self._wait(action)
        if action is Action.SEARCH:
            return self._search()
        task_id = self.outbox.task_id or ""
        return self._subscribe(task_id) if action is Action.SUBSCRIBE else self._get_task(task_id)

    async def _get_task(self, task_id: str) -> None:
        await self._take_task(self._source.get_task(task_id))

    async def _take_task(self, asking: Awaitable[Task]) -> None:
        """Pass the machine the reply to a request for the task."""
        try:
            task = await asking
        except A2AError as error:
            self._check_deadline(error)
            self._machine.on_no_task(error)
        else:
            self._failing_since = None
            self._machine.on_task(task)
        self._fetched_at = self._time()

    async def _search(self) -> None:
        await self._replace()
        self._machine.on_found(await self._source.find_task(self._machine.error))

    async def _subscribe(self, task_id: str) -> None:
        await self._replace()
        try:
            self._connect(await self._source.subscribe(task_id))
        except A2AError as error:
            self._check_deadline(error)
            self._machine.on_refused(error)
        else:
            self._failing_since = None
            self._machine.on_subscribed(subscribing_is_safe=self._source.subscribing_is_safe)
            if self._machine.reconnects:
                self._source.on_reconnect(task_id, self._machine.reconnects, self._machine.error)
            self._note_gap()

    async def _wait(self, wait: Wait) -> None:
        loop = asyncio.get_running_loop()
        if self._waiting is not wait:  # else it was cancelled, and continues
            self._check_hint(wait)
            self._waiting = wait
            delay = self._delay(wait)
            self._wakes_at = loop.time() + max(delay, wait.at_least)
            self._wait_reason = "retry_after" if wait.at_least > delay else "reconnect"
        end = self._end(wait)
        seconds = max(0.0, min(self._wakes_at, end.at) - loop.time())
        reason = None if self._machine.is_polled else self._wait_reason
        await self._source.pause(seconds, reason=reason)
        self._check_open()
        if end.remaining(loop.time()) <= 0:
            raise wait_deadline_error(end, self.outbox.task, self.outbox.task_id, wait.error)
        self._check_stale(loop.time())
        self._machine.on_waited()

    def _check_stale(self, now: float) -> None:
        """Take a status that does not show the reply for the answer, after a long silence."""
        if not self._machine.is_stale:
            self._stale_since = None
            return
        if self._stale_since is None:
            self._stale_since = now
        reply, status = self._machine.reply, self.outbox.status
        if reply is None or status is None:
            return
        if now - self._stale_since >= reply.max_silence(status, self._policy.max_quiet):
            self._machine.on_expired()

    def _check_hint(self, wait: Wait) -> None:
        """Fail at once if the agent asks for a longer wait than is possible.

        Raises:
            DeadlineExceededError: The deadline comes before the end of the wait. The agent's error
                is the cause, and its facts are among the facts.
            TaskAuthRequiredError: The same, while the task waits for an authorization.
            A2AError: The agent's error: it asks for a longer wait than the policy allows.
        """
        error, left, most = wait.error, self._time_left, self._max_retry_after
        if error is None or most is None or wait.at_least <= min(most, left):
            return
        asked = f"the agent asked to wait {wait.at_least:g} s"
        if wait.at_least > most:
            error.retry_stopped_reason = f"{asked}, and max_retry_after is {most:g} s"
            raise error
        error.retry_stopped_reason = f"{asked}, and {left:g} s are left"
        raise wait_deadline_error(
            self._deadline, self.outbox.task, self.outbox.task_id, error, left=left
        )

    def _delay(self, wait: Wait) -> float:
        if not wait.attempt:
            self._delays = self._delays or poll_delays(self._poll_interval)
            return next(self._delays)
        self._delays = None
        policy = self._policy
        return growing_wait(
            wait.attempt, self._env.random(), first=policy.backoff, most=policy.max_backoff
        )

    def _end(self, wait: Wait) -> Deadline:
        """Return when waiting ends: at the deadline or, without one, after a long silence."""
        if wait.attempt or self._deadline.at < math.inf:
            return self._deadline
        if self._silent_since is None:
            self._silent_since = self._time()
        longest = self._policy.max_quiet
        return Deadline(name="quiet", timeout=longest, at=self._silent_since + longest)

    async def settle(self) -> None:
        """Fetch the agent's final task, if that is quick.

        Reads to the end of the connection, where an agent may send the whole task, or fetches it.
        """
        machine, connection = self._machine, self._connection
        with contextlib.suppress(TimeoutError, A2AError):
            async with CancelScope.within(_SETTLE_S):
                if connection is not None and machine.action is Action.STOP:
                    async for response in connection:
                        if response.task is not None:
                            self.outbox.refresh_final(response.task)
                    await self.close()  # the next request may need its slot
                if not self.outbox.is_whole and self.outbox.task_id is not None:
                    task = await self._source.get_task(self.outbox.task_id)
                    machine.check_origin(task)
                    self.outbox.refresh_final(task)
        if machine.action is Action.STOP:
            await self.close()

    @property
    def _time_left(self) -> float:
        return self._deadline.remaining(self._time())

    def _check_deadline(self, error: A2AError) -> None:
        """Raise if the error of a call is this stream's own deadline."""
        if not isinstance(error, DeadlineExceededError) or self._time_left > 0:
            return
        if self.outbox.task_id is None:
            raise error
        raise wait_deadline_error(self._deadline, self.outbox.task, self.outbox.task_id, error)

    def _check_open(self) -> None:
        self._source.check_open(self.outbox.task_id or "")


def _nothing() -> None:
    """Return None: nothing is buffered."""
