"""Several places where the same agent is, and which of them a call goes to.

Rules:
- What belongs to a task or a conversation goes where that was made; where that is not known, the
  task is looked for everywhere.
- What was sent somewhere, and may have arrived, is looked after there.
- Anything else goes where the least is under way and the least has failed lately. How long answers
  take says nothing: that depends on what is asked, and a place that fails at once is the quickest.
- One that refuses before anything is sent, or where no agent is, is passed over; one at which this
  call has failed comes last.
"""

from __future__ import annotations

import asyncio
import math
from typing import TYPE_CHECKING, Any, TypeVar, cast

import msgspec

from holdfast.errors import A2AError, TaskNotFoundError
from holdfast.model.operations import GET_TASK
from holdfast.model.requests import (
    CancelTaskRequest,
    GetTaskRequest,
    ListTasksResponse,
    SendMessageRequest,
    SendMessageResponse,
    SubscribeToTaskRequest,
)
from holdfast.model.types import Message, StreamResponse, Task
from holdfast.policy.breaker import judge
from holdfast.policy.retry import nobody_is_there
from holdfast.runtime.closing import close_in_turn
from holdfast.runtime.open_streams import replaced
from holdfast.runtime.transport import (
    AnyCall,
    Call,
    CallProgress,
    Onward,
    Reply,
    Stream,
    StreamOver,
    Transport,
    UnaryOnly,
)
from holdfast.wire.status import is_no_agent

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from holdfast.model.card import AgentCard
    from holdfast.runtime.endpoints import Endpoint
    from holdfast.runtime.env import Env
    from holdfast.runtime.resolver import AgentCardResolver

__all__ = ["Replica", "ReplicaCards", "ReplicaLayer"]

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

_CLOSING = 5.0
"""Seconds that a card's stack has to close."""


_ENDING = 1.0
"""Seconds that a question has to end which is answered elsewhere."""


class Replica:
    """One place where the agent is.

    Attributes:
        transport: Makes calls there.
        resolver: Knows its card.
        under_way: Calls and open streams.
        endpoint: Where the last call went.
    """

    def __init__(self, transport: Transport, resolver: AgentCardResolver) -> None:
        self.transport = transport
        self.resolver = resolver
        self.under_way = 0
        self.endpoint: Endpoint | None = None
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


class ReplicaLayer:
    """Makes each call at one of several replicas.

    Args:
        replicas: At least one; what is below their transports is the same.
        env: Draws among those that are alike.
    """

    def __init__(self, replicas: Sequence[Replica], env: Env) -> None:
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
        self._learn(reply.value, replica)
        return reply

    async def stream(self, call: Call[P, R], /) -> Reply[Stream[R]]:
        """Opens the stream there; the same as `unary`."""
        replica, reply = await self._somewhere(call, lambda one: one.transport.stream)
        return replaced(reply, _Placed(reply.value, self, replica))

    async def close(self) -> None:
        """Frees what is below, which is the same for all."""
        await self._replicas[0].transport.close()

    async def _somewhere(
        self, call: Call[P, R], way: Callable[[Replica], Onward[P, R, T]]
    ) -> tuple[Replica, Reply[T]]:
        home = await self._home(call)
        if home is not None:
            return home, await self._at(home, call, way(home))
        progress = call.progress
        refused: A2AError | None = None
        for replica in self._in_order(call):
            tried = len(progress.attempts)
            try:
                return replica, await self._at(replica, call, way(replica))
            except A2AError as error:
                is_untried = len(progress.attempts) == tried and error.executed is False
                is_nowhere = nobody_is_there(error) and not progress.lacks_credentials
                is_other = is_no_agent(call.operation, error) and error.executed is False
                if not (is_untried or is_nowhere or is_other):
                    raise
                refused = _sooner(error, refused)
        raise cast("A2AError", refused)

    async def _at(self, replica: Replica, call: Call[P, R], onward: Onward[P, R, T]) -> Reply[T]:
        progress, sends = call.progress, call.operation.safety == "conditional"
        tried = len(progress.attempts)
        if sends:
            progress.errand.home = replica
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
            if len(progress.attempts) > tried:
                replica.endpoint = progress.endpoint
            progress.has_others = self._has_others(call)

    def _in_order(self, call: AnyCall) -> list[Replica]:
        """All replicas, the best one first."""
        now, avoids = asyncio.get_running_loop().time(), call.progress.avoids
        ranks = {
            one: (
                sum(one.endpoint is place for place in avoids),
                one.load(now),
                self._env.random(),
            )
            for one in self._replicas
        }
        return sorted(self._replicas, key=ranks.__getitem__)

    def _has_others(self, call: AnyCall) -> bool:
        """Whether there is a place at which this call has not failed."""
        progress = call.progress
        return progress.errand.home is None and any(
            one.endpoint not in progress.avoids for one in self._replicas
        )

    # ── Where something is at home ───────────────────────────────────────────────────────────

    async def _home(self, call: AnyCall) -> Replica | None:
        """The only place for a call; None if any will do."""
        home = cast("Replica | None", call.progress.errand.home)
        if home is not None:
            return home
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
            for replica in self._in_order(call)
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
            for number, made in enumerate(failure.attempts, len(attempts) + 1):
                attempts.append(msgspec.structs.replace(made, number=number, executed=False))
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
            is_retried=False,
            progress=progress,
        )
        try:
            await self._at(replica, question, replica.transport.unary)
        except A2AError as error:
            error.attempts = tuple(progress.attempts)
            return error
        return None

    def _learn(self, value: object, replica: Replica) -> None:
        """Remembers where what was answered is at home."""
        for name in _named_in(value):
            self._keep(name, replica)

    def _keep(self, name: str, replica: Replica) -> None:
        self._homes.pop(name, None)
        self._homes[name] = replica
        if len(self._homes) > _MOST_HOMES:
            del self._homes[next(iter(self._homes))]

    def learn(self, event: object, replica: Replica) -> None:
        """Remembers where the task of a stream is at home."""
        self._learn(event, replica)


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


class ReplicaCards(UnaryOnly):
    """The card of an agent that is at several places: of the first one that gives it.

    Args:
        resolvers: What knows each place's card.
    """

    def __init__(self, resolvers: Sequence[AgentCardResolver]) -> None:
        self._resolvers = tuple(resolvers)

    async def unary(self, call: Call[Any, Any], /) -> Reply[Any]:
        """Answers `GET_AGENT_CARD`.

        Raises:
            A2AError: No place gives a card; what the first one said.
        """
        failure: A2AError | None = None
        for resolver in self._resolvers:
            try:
                return Reply(value=await resolver.card(call))
            except A2AError as error:
                failure = failure or error
        raise cast("A2AError", failure)

    @property
    def is_needed(self) -> bool:
        """Whether the next call has to fetch a card, as no place has one that could stand in."""
        return all(one.is_needed for one in self._resolvers)

    @property
    def last(self) -> AgentCard | None:
        """A card as last seen, however long ago."""
        return next((one.last for one in self._resolvers if one.last is not None), None)

    def replace(self, card: AgentCard, secrets: frozenset[str]) -> None:
        """Keeps nothing: a card that one place gave says nothing of the way to the others."""

    async def close(self) -> None:
        """Frees what fetches."""
        await close_in_turn(self._resolvers, seconds=_CLOSING)


def _belongs_to(params: object) -> tuple[str | None, ...]:
    """The task that a call is about, and then what else tells where it goes."""
    if isinstance(params, SendMessageRequest):
        message = params.message
        return message.task_id, message.context_id
    if isinstance(params, GetTaskRequest | CancelTaskRequest | SubscribeToTaskRequest):
        return (params.id,)
    return (
        getattr(params, "task_id", None),
        getattr(params, "page_token", None),
        getattr(params, "context_id", None),
    )


def _named_in(value: object) -> Iterator[str]:
    """Ids in an answer, or an event, by which its place can be known later."""
    if isinstance(value, SendMessageResponse | StreamResponse):
        for name in value.__struct_fields__:
            yield from _named_in(getattr(value, name))
    elif isinstance(value, ListTasksResponse):
        yield from filter(None, (value.next_page_token, *(task.id for task in value.tasks)))
    elif isinstance(value, Task):
        yield from filter(None, (value.id, value.context_id))
    elif isinstance(value, Message):
        yield from filter(None, (value.task_id, value.context_id))
    elif value is not None:
        yield from filter(
            None, (getattr(value, "task_id", None), getattr(value, "context_id", None))
        )


def _sooner(one: A2AError, other: A2AError | None) -> A2AError:
    """That of two refusals which ends sooner; one that does not end by itself counts last."""
    if other is None or other.retry_after is None:
        return one if one.retry_after is not None or other is None else other
    return other if one.retry_after is None or other.retry_after <= one.retry_after else one
