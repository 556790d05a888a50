"""Several places where the same agent is, and which of them a call goes to.

Rules:
- What belongs to a task or a conversation goes where that was made; where that is not known, the
  task is looked for everywhere.
- What was sent somewhere, and may have arrived, is looked after there.
- Anything else goes where the least is under way and the least has failed lately. How long answers
  take says nothing: that depends on what is asked, and a place that fails at once is the quickest.
- One that refuses, where no agent is, or where this call has failed gives way to others
  (`holdfast.runtime.failover`).
"""

from __future__ import annotations

import asyncio
import math
from operator import attrgetter
from typing import TYPE_CHECKING, TypeVar, cast

import msgspec

from holdfast.errors import A2AError, TaskNotFoundError
from holdfast.model.operations import GET_TASK
from holdfast.model.requests import (
    CancelTaskRequest,
    DeleteTaskPushNotificationConfigRequest,
    GetTaskPushNotificationConfigRequest,
    GetTaskRequest,
    ListTaskPushNotificationConfigsRequest,
    ListTaskPushNotificationConfigsResponse,
    ListTasksRequest,
    ListTasksResponse,
    SendMessageRequest,
    SendMessageResponse,
    SubscribeToTaskRequest,
    TaskPushNotificationConfig,
)
from holdfast.model.types import (
    Message,
    StreamResponse,
    Task,
    TaskArtifactUpdateEvent,
    TaskStatusUpdateEvent,
)
from holdfast.policy.attempts import joined_attempts
from holdfast.policy.breaker import judge
from holdfast.runtime.failover import first_that_takes
from holdfast.runtime.open_streams import replaced
from holdfast.runtime.transport import (
    AnyCall,
    Call,
    CallProgress,
    Onward,
    PassThrough,
    Reply,
    Stream,
    StreamOver,
    Transport,
)
from holdfast.wire.status import is_no_agent

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from holdfast.runtime.env import Env

__all__ = ["Replica", "ReplicaLayer"]

P = TypeVar("P")
R = TypeVar("R")
T = TypeVar("T")

_MOST_HOMES = 10_000
"""Tasks, conversations and pages whose place is remembered; the ones not used for longest go."""

_FAILURE = 10
"""Calls under way that one failure of just now counts for."""

_HALF_LIFE = 5.0
"""Seconds after which a failure counts half."""

_MOST_FAILURES = 5.0
"""Failures that count at most."""


_ENDING = 1.0
"""Seconds that a question has to end which is answered elsewhere."""


class Replica:
    """One place where the agent is.

    Attributes:
        transport: Makes calls there.
        under_way: Calls and open streams.
    """

    def __init__(self, transport: Transport) -> None:
        self.transport = transport
        self.under_way = 0
        self._failures = 0.0
        self._since = 0.0

    def failed(self, now: float) -> None:
        """Notes that it was away."""
        self._failures = min(_MOST_FAILURES, self._left(now) + 1)
        self._since = now

    def load(self, now: float) -> int:
        """What speaks against it; a whole number, so that what is long ago counts nothing."""
        return self.under_way + round(_FAILURE * self._left(now))

    def _left(self, now: float) -> float:
        age = max(0.0, now - self._since)
        return self._failures * math.exp2(-age / _HALF_LIFE)


class ReplicaLayer(PassThrough):
    """Makes each call at one of several replicas.

    Args:
        inner: What is below the transports of all of them.
        replicas: At least one.
        env: Draws among those that are alike.
    """

    def __init__(self, inner: Transport, replicas: Sequence[Replica], env: Env) -> None:
        super().__init__(inner)
        self._replicas = tuple(replicas)
        self._env = env
        self._homes: dict[str, Replica] = {}

    async def unary(self, call: Call[P, R], /) -> Reply[R]:
        """Makes the call at the right place, or the best.

        Raises:
            CircuitOpenError: All are left alone for now; the one that may be back first says when.
            A2AError: What went wrong where it was made.
        """
        replica, reply = await self._somewhere(call, lambda one: one.transport.unary)
        self.learn(reply.value, replica)
        return reply

    async def stream(self, call: Call[P, R], /) -> Reply[Stream[R]]:
        """Opens the stream there; the same as `unary`."""
        replica, reply = await self._somewhere(call, lambda one: one.transport.stream)
        return replaced(reply, _Placed(reply.value, self, replica))

    async def _somewhere(
        self, call: Call[P, R], way: Callable[[Replica], Onward[P, R, T]]
    ) -> tuple[Replica, Reply[T]]:
        async def make(replica: Replica) -> tuple[Replica, Reply[T]]:
            return replica, await self._at(replica, call, way(replica))

        home = await self._home(call)
        if home is not None:
            return await make(home)
        return await first_that_takes(call, self._in_order(), make)

    async def _at(self, replica: Replica, call: Call[P, R], onward: Onward[P, R, T]) -> Reply[T]:
        progress, sends = call.progress, call.operation.safety == "conditional"
        if sends:
            progress.errand.home = self._replicas.index(replica)
        replica.under_way += 1
        try:
            return await onward(call)
        except A2AError as error:
            if sends and error.executed is False:
                progress.errand.home = None
            is_away = judge(error) == "failure" or is_no_agent(call.operation, error)
            if is_away and not progress.lacks_credentials:
                replica.failed(asyncio.get_running_loop().time())
            raise
        finally:
            replica.under_way -= 1

    def _in_order(self) -> list[Replica]:
        """All replicas, the best one first."""
        now, random = asyncio.get_running_loop().time(), self._env.random
        ranks = {one: (one.load(now), random()) for one in self._replicas}
        return sorted(self._replicas, key=ranks.__getitem__)

    # ── Where something is at home ───────────────────────────────────────────────────────────

    async def _home(self, call: AnyCall) -> Replica | None:
        """The only place for a call; None if any will do."""
        home = call.progress.errand.home
        if home is not None:
            return self._replicas[home]
        task_id, *others = _belongs_to(call.params)
        for name in (task_id, *others):
            if name is not None and (known := self._homes.get(name)) is not None:
                return known
        return None if task_id is None else await self._find(task_id, call)

    async def _find(self, task_id: str, call: AnyCall) -> Replica | None:
        """The place of a task; None if no place knows it. All are asked at once.

        Raises:
            A2AError: It is at none of those that could be asked, and one could not be asked.
        """
        asked = {
            asyncio.create_task(self._ask_for(task_id, call, replica)): replica
            for replica in self._in_order()
        }
        left, failures = set(asked), list[A2AError]()
        try:
            while left:
                done, left = await asyncio.wait(left, return_when=asyncio.FIRST_COMPLETED)
                for one in done:
                    failure = one.result()
                    if failure is None:
                        self._keep(task_id, asked[one])
                        return asked[one]
                    if not isinstance(failure, TaskNotFoundError):
                        failures.append(failure)
        finally:
            for one in left:
                one.cancel()
            if left:
                await asyncio.wait(left, timeout=_ENDING)
        for failure in failures:
            # The call itself was not made; that its place was not found counts as a try of it.
            failure.executed = False
            attempts = call.progress.attempts
            made = [msgspec.structs.replace(one, executed=False) for one in failure.attempts]
            attempts[:] = joined_attempts(attempts, made, after=0.0)
        if failures:
            raise failures[0]
        return None

    async def _ask_for(self, task_id: str, call: AnyCall, replica: Replica) -> A2AError | None:
        """Asks one place for a task; None if it is there."""
        progress = CallProgress(began=call.progress.began, errand=call.progress.errand)
        question = msgspec.structs.replace(
            call,
            operation=GET_TASK,
            params=GetTaskRequest(id=task_id, history_length=0),
            progress=progress,
        )
        try:
            await self._at(replica, question, replica.transport.unary)
        except A2AError as error:
            error.attempts = tuple(progress.attempts)
            return error
        return None

    def learn(self, value: object, replica: Replica) -> None:
        """Remembers where what was answered, or told of in a stream, is at home."""
        for name in _named_in(value):
            self._keep(name, replica)

    def _keep(self, name: str, replica: Replica) -> None:
        self._homes.pop(name, None)
        self._homes[name] = replica
        if len(self._homes) > _MOST_HOMES:
            del self._homes[next(iter(self._homes))]


class _Placed(StreamOver[T]):
    """Counts a stream at its replica, and tells what its first event is about."""

    def __init__(self, inner: Stream[T], layer: ReplicaLayer, replica: Replica) -> None:
        super().__init__(inner)
        self._layer = layer
        self._replica: Replica | None = replica
        self._is_new = True
        replica.under_way += 1

    async def __anext__(self) -> T:
        event = await super().__anext__()
        if self._is_new and self._replica is not None:
            self._is_new = False
            self._layer.learn(event, self._replica)
            self.at_hand = self._inner.at_hand
        return event

    async def close(self) -> None:
        replica, self._replica = self._replica, None
        if replica is not None:
            replica.under_way -= 1
        await super().close()


_BELONGS_TO: Mapping[type, tuple[str | None, ...]] = {
    SendMessageRequest: ("message.task_id", "message.context_id"),
    GetTaskRequest: ("id",),
    ListTasksRequest: (None, "page_token", "context_id"),
    CancelTaskRequest: ("id",),
    SubscribeToTaskRequest: ("id",),
    TaskPushNotificationConfig: ("task_id",),
    GetTaskPushNotificationConfigRequest: ("task_id",),
    ListTaskPushNotificationConfigsRequest: ("task_id", "page_token"),
    DeleteTaskPushNotificationConfigRequest: ("task_id",),
}
"""Where a request names the task that it is about, and then what else tells where it goes."""

_TELLS_OF: Mapping[type, tuple[str, ...]] = {
    SendMessageResponse: ("task", "message"),
    StreamResponse: ("task", "message", "status_update", "artifact_update"),
    ListTasksResponse: ("next_page_token", "tasks"),
    ListTaskPushNotificationConfigsResponse: ("next_page_token",),
    Task: ("id", "context_id"),
    Message: ("task_id", "context_id"),
    TaskStatusUpdateEvent: ("task_id", "context_id"),
    TaskArtifactUpdateEvent: ("task_id", "context_id"),
    TaskPushNotificationConfig: ("task_id",),
}
"""Where an answer, or an event, names what is at home where it came from."""


def _belongs_to(params: object) -> tuple[str | None, ...]:
    """The task that a call is about, and then what else tells where it goes."""
    paths = _BELONGS_TO.get(type(params), (None,))
    return tuple(None if path is None else attrgetter(path)(params) for path in paths)


def _named_in(value: object) -> Iterator[str]:
    """Ids in an answer, or an event, by which its place can be known later."""
    if isinstance(value, str):
        yield value
    for name in _TELLS_OF.get(type(value), ()):
        part = getattr(value, name)
        for one in cast("tuple[object, ...]", part) if isinstance(part, tuple) else (part,):
            if one:
                yield from _named_in(one)
