"""The shell around `holdfast.tasks.resume`: does what the machine says, and tells it what came.

Rules: one thing at a time, and nothing in the background: between two calls of `next` nothing
happens. A call that is cancelled can be made again. Whatever ends a stream closes its connection.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Protocol

from holdfast.errors import (
    A2AError,
    DeadlineExceededError,
    LimitExceededError,
    TaskAuthRequiredError,
)
from holdfast.model.types import TaskState
from holdfast.policy.deadline import Deadline, poll_delays
from holdfast.policy.reconnect import ReconnectPolicy, reconnect_delay
from holdfast.runtime.transport import at_hand
from holdfast.tasks.resume import Resume, Step, Wait

if TYPE_CHECKING:
    from collections.abc import Iterator

    from holdfast.model.types import StreamResponse, Task
    from holdfast.runtime.env import Env
    from holdfast.runtime.transport import Stream
    from holdfast.tasks.fold import StreamEvent

__all__ = ["LiveStream", "TaskSource"]

_LAST_WORD = 1.0
"""Seconds that an agent has to tell the whole task at its end."""


class TaskSource(Protocol):
    """Where a stream comes from: the calls that it is made of."""

    async def subscribe(self, task_id: str) -> Stream[StreamResponse]:
        """Subscribes to the task."""
        ...

    async def look(self, task_id: str) -> Task:
        """Asks for the task."""
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

    def reconnected(self, task_id: str, number: int) -> None:
        """Told of each reconnect."""
        ...


class LiveStream:
    """The events of one task or message, over any number of connections.

    Args:
        resume: The machine; what it was told so far stands.
        source: What it is made of.
        connection: The connection that is open; None for none.
        env: Randomness for backoffs.
        deadline: When it ends, if ever.
        policy: How patiently to reconnect.
        max_retry_after: Longest hint of an agent to follow, in seconds.
        poll_interval: Seconds between two looks at a task that is polled.
    """

    def __init__(
        self,
        resume: Resume,
        source: TaskSource,
        connection: Stream[StreamResponse] | None,
        *,
        env: Env,
        deadline: Deadline,
        policy: ReconnectPolicy,
        max_retry_after: float,
        poll_interval: float,
    ) -> None:
        self.resume = resume
        self._source = source
        self._connect(connection)
        self._env = env
        self._deadline = deadline
        self._policy = policy
        self._max_retry_after = max_retry_after
        self._poll_interval = poll_interval
        self._delays: Iterator[float] = poll_delays(poll_interval)
        self._is_closed = False
        self._failure: A2AError | None = None  # of what was at hand
        self._waiting: Wait | None = None
        self._wakes_at = 0.0

    def at_hand(self) -> StreamEvent | None:
        """The next event if nothing has to be waited for; what fails does so in `next`."""
        resume = self.resume
        try:
            if resume.has_news:
                return resume.take()
            if resume.step is not Step.READ or self._source.is_closed:
                return None
            if (response := self._at_hand()) is not None:
                chunk = response.artifact_update
                if chunk is not None and resume.passed_on(chunk):
                    return chunk
                event = response.event
                if event is not None:
                    resume.received(event)
                    return resume.take()
        except A2AError as error:
            self._failure = error
        return None

    async def next(self) -> StreamEvent | None:
        """The next event; None at the end.

        Raises:
            ReconnectError: It was cut, and cannot be picked up again.
            DeadlineExceededError: Its time is over; `task` is the task as last seen.
            TaskAuthRequiredError: The same, while the task waits for an authorization.
            A2AError: The agent refuses to go on.
        """
        resume = self.resume
        try:
            if self._failure is not None:
                raise self._failure
            while (event := resume.take()) is None:
                step = resume.step
                if self._is_closed:
                    return None
                if step is Step.DONE:
                    await self.settle()
                    return None
                self._source.check_open(resume.task_id or "")
                if step is Step.READ:
                    await self._read()
                else:
                    await self._go_on(step)
        except A2AError as error:
            await self.close()
            if self._is_too_late(error):
                raise self._too_late(error) from error
            self.resume.explain(error)
            raise
        return event

    async def close(self) -> None:
        """Ends it, whoever waits for an event; the agent goes on with the task."""
        self._is_closed = True
        await self._let_go()

    async def _let_go(self) -> None:
        connection = self._connection
        self._connect(None)
        if connection is not None:
            await connection.close()

    def _connect(self, connection: Stream[StreamResponse] | None) -> None:
        self._connection = connection
        self._at_hand = at_hand(connection)

    async def _read(self) -> None:
        connection = self._connection
        if connection is None:  # it was let go of, as after an error
            self.resume.ended()
            return
        try:
            response = await connection.__anext__()
        except StopAsyncIteration:
            await self._let_go()
            self.resume.ended()
        except A2AError as error:
            if isinstance(error, LimitExceededError) or self._is_too_late(error):
                raise
            await self._let_go()
            self.resume.cut(error)
        else:
            event = response.event
            if event is not None:  # else it is of a kind that this client does not know
                self.resume.received(event)

    async def _go_on(self, step: Step | Wait) -> None:
        if isinstance(step, Wait):
            await self._wait(step)
            self.resume.waited()
            return
        task_id = self.resume.task_id or ""
        if step is Step.SUBSCRIBE:
            await self._subscribe(task_id)
            return
        try:
            task = await self._source.look(task_id)
        except A2AError as error:
            if self._is_too_late(error):
                raise
            self.resume.not_found(error)
        else:
            self.resume.found(task)

    async def _subscribe(self, task_id: str) -> None:
        await self._let_go()
        try:
            self._connect(await self._source.subscribe(task_id))
        except A2AError as error:
            if self._is_too_late(error):
                raise
            self.resume.refused(error)
        else:
            if self._is_closed:  # meanwhile
                await self._let_go()
            self.resume.subscribed()
            if self.resume.reconnects:
                self._source.reconnected(task_id, self.resume.reconnects)

    async def _wait(self, step: Wait) -> None:
        if step.at_least > self._max_retry_after and step.error is not None:
            step.error.gave_up = f"the agent asks to wait {step.at_least:g} s"
            raise step.error
        loop = asyncio.get_running_loop()
        if self._waiting is not step:  # else it was cancelled, and goes on
            self._waiting = step
            self._wakes_at = loop.time() + max(self._delay(step), step.at_least)
        await self._source.pause(min(self._wakes_at - loop.time(), self._time_left))
        self._source.check_open(self.resume.task_id or "")
        if self._time_left <= 0:
            deadline = self._deadline
            raise DeadlineExceededError(
                deadline=deadline.name,
                timeout=deadline.timeout,
                attempts=() if step.error is None else step.error.attempts,
            ) from step.error

    def _delay(self, step: Wait) -> float:
        if not step.attempt:
            return next(self._delays)
        self._delays = poll_delays(self._poll_interval)
        return reconnect_delay(self._policy, step.attempt, self._env.random())

    async def settle(self) -> None:
        """Makes a task that came to rest the agent's own to the last word, if that is quick.

        Reads to the end of the connection, where an agent may tell the whole task, or asks for it.
        """
        resume, connection = self.resume, self._connection
        with contextlib.suppress(TimeoutError, A2AError):
            async with asyncio.timeout(_LAST_WORD):
                if connection is not None and resume.step is Step.DONE:
                    async for response in connection:
                        if response.task is not None:
                            resume.retold(response.task)
                    await self.close()  # the next request may need its place
                if not resume.is_whole and resume.task_id is not None:
                    resume.retold(await self._source.look(resume.task_id))
        if resume.step is Step.DONE:
            await self.close()

    @property
    def _time_left(self) -> float:
        return self._deadline.left(asyncio.get_running_loop().time())

    def _is_too_late(self, error: A2AError) -> bool:
        """Whether it is this stream's own deadline that an error tells of."""
        return isinstance(error, DeadlineExceededError) and self._time_left <= 0

    def _too_late(self, error: A2AError) -> A2AError:
        """The error of a stream whose time is over, from that of the call that it struck in."""
        task, deadline = self.resume.task, self._deadline
        if self.resume.task_id is None:
            return error
        facts = error.facts()
        end = f"at the end of the {deadline.name} timeout of {deadline.timeout:g} s"
        seen = "never seen"
        if task is not None:
            facts["executed"] = True
            seen = f"last seen {task.state.name}"
        if task is not None and task.state is TaskState.AUTH_REQUIRED:
            said = task.status.message
            prompt = f": {said.text}" if said is not None and said.text else ""
            message = f"task {task.id} still waits for an authorization {end}{prompt}"
            return TaskAuthRequiredError(message, task=task, **facts)
        return DeadlineExceededError(
            f"task {self.resume.task_id} was {seen} {end}",
            deadline=deadline.name,
            timeout=deadline.timeout,
            task=task,
            **facts,
        )
