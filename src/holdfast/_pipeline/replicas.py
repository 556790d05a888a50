"""The replicas of an agent, and which of them a call goes to.

Rules:
- What belongs to a task, a conversation or a page of a list goes to its home, the replica that
  made it (`holdfast._pipeline.affinity`). Where the home of a task is not known, all are asked.
- While the home is away and the replicas share a store, the others stand in. Reads, and other
  calls that may be executed twice, go to them first. A message goes to the home first, and to
  another replica only if the home certainly did not execute it and the other one shows its task.
- While it is not known whether the replicas share a store, the others are asked for a task of the
  home that is away. With stores of their own they do not stand in.
- That a replica does not find what belongs to another one proves nothing: the error is the home's.
- A message that may have arrived at a replica is searched for there, and sent nowhere else.
- Anything else goes where the fewest calls are in flight and the fewest have failed lately. How
  long answers take says nothing: that depends on what is asked, and a replica that fails at once
  is the quickest.
- A replica whose card is still to be fetched, while another one has its card and answers, has 1 s
  for that, and comes after the others for as long as it fails.
- A replica that refuses, where no agent is, or where this call has failed comes after the others
  (`holdfast._pipeline.failover`).
"""

from __future__ import annotations

import asyncio
import math
from typing import TYPE_CHECKING, TypeVar

import msgspec

from holdfast._aio.cancel_scope import wait_until
from holdfast._model.operations import GET_TASK
from holdfast._pipeline.affinity import Homes, context_of, marked, page_mark, task_of, unmarked
from holdfast._pipeline.call_errors import not_sent
from holdfast._pipeline.connection import replaced
from holdfast._pipeline.failover import try_in_order
from holdfast._pipeline.transport import (
    AnyCall,
    Call,
    CallNext,
    CallProgress,
    PassThrough,
    Reply,
    Stream,
    StreamWrapper,
    Transport,
)
from holdfast._policy.attempts import joined_attempts
from holdfast._policy.breaker import judge
from holdfast._wire.status import is_not_an_agent
from holdfast.errors import (
    A2AError,
    A2ATimeoutError,
    CircuitOpenError,
    InvalidParamsError,
    TaskNotFoundError,
)
from holdfast.types import GetTaskRequest, SendMessageRequest

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Sequence

    from holdfast._aio.env import Env
    from holdfast._pipeline.cards.resolver import AgentCardResolver

__all__ = ["Replica", "ReplicaLayer"]

P = TypeVar("P")
R = TypeVar("R")
T = TypeVar("T")

_FAILURE = 10
"""Calls in flight that one failure of just now counts for."""

_HALF_LIFE_S = 5.0
"""Seconds after which a failure counts half."""

_MAX_FAILURES = 5.0
"""Failures that count at most."""

_CARD_S = 1.0
"""Seconds to fetch the card of a replica while another replica has its card."""

_ENDING_S = 1.0
"""Seconds that a read has to end after another replica answered it."""


class Replica:
    """One replica of the agent.

    Args:
        transport: Makes calls there.
        name: The replica's address, or what else tells it from the others.
        cards: Knows its card.

    Attributes:
        transport: Makes calls there.
        cards: Knows its card.
        mark: Marks page tokens that are from there.
        in_flight: Calls and open streams.
    """

    def __init__(self, transport: Transport, name: str, cards: AgentCardResolver) -> None:
        self.transport = transport
        self.cards = cards
        self.mark = page_mark(name)
        self.in_flight = 0
        self._failures = 0.0
        self._since = 0.0

    def failed(self, now: float) -> None:
        """Note that it was away."""
        self._failures = min(_MAX_FAILURES, self._left(now) + 1)
        self._since = now

    def load(self, now: float) -> int:
        """Return what speaks against it: an integer, so that old failures count nothing."""
        return self.in_flight + self.penalty(now)

    def penalty(self, now: float) -> int:
        """Return what its failures count for; 0 where none was of late."""
        return round(_FAILURE * self._left(now))

    @property
    def is_doubtful(self) -> bool:
        """Whether it has no card, and the last fetch of its card failed."""
        return self.cards.is_needed and self.cards.is_doubtful

    def _left(self, now: float) -> float:
        age = max(0.0, now - self._since)
        return self._failures * math.exp2(-age / _HALF_LIFE_S)


class ReplicaLayer(PassThrough):
    """Makes each call at one of several replicas.

    Args:
        inner: What is below the transports of all of them.
        replicas: At least one.
        env: Draws among those that are alike.
        shared_store: Whether they share a store; None to learn it.
    """

    def __init__(
        self,
        inner: Transport,
        replicas: Sequence[Replica],
        env: Env,
        *,
        shared_store: bool | None = None,
    ) -> None:
        super().__init__(inner)
        self._replicas = tuple(replicas)
        self._by_mark = {replica.mark: replica for replica in replicas}
        self._env = env
        self._homes = Homes[Replica](shared_store=shared_store)

    async def unary(self, call: Call[P, R], /) -> Reply[R]:
        """Make the call at the home of what it is about, or at the best replica.

        Raises:
            CircuitOpenError: All circuits are open; ``retry_after`` is that of the first to close.
            A2AError: The call failed where it was made. One that belongs to a replica that is away
                fails as it did there, though the others may not know what it is about.
        """
        replica, reply = await self._somewhere(call, lambda replica: replica.transport.unary)
        self.learn(call, reply.value, replica)
        page = marked(reply.value, replica.mark)
        return reply if page is reply.value else msgspec.structs.replace(reply, value=page)

    async def stream(self, call: Call[P, R], /) -> Reply[Stream[R]]:
        """Open the stream there; the same as `unary`."""
        replica, reply = await self._somewhere(call, lambda replica: replica.transport.stream)
        return replaced(reply, _Placed(reply.value, self, call, replica))

    async def _somewhere(
        self, call: Call[P, R], way: Callable[[Replica], CallNext[P, R, T]]
    ) -> tuple[Replica, Reply[T]]:
        params, page_home = unmarked(call.params, self._by_mark)
        if page_home is not None:
            call = msgspec.structs.replace(call, params=params)
        home = page_home or self._home(call)
        task_id = task_of(call.params)
        if home is None and task_id is not None:
            home = await self._find(task_id, call)

        async def make(replica: Replica) -> tuple[Replica, Reply[T]] | None:
            if home is None:
                await self._need_card(replica, call)
            if home is None or replica is home:
                return replica, await self._at(replica, call, way(replica))
            return await self._stand_in(replica, call, way(replica))

        if home is None:
            return await try_in_order(call, self._in_order(), make)
        return await self._at_home(home, call, make)

    async def _at(self, replica: Replica, call: Call[P, R], onward: CallNext[P, R, T]) -> Reply[T]:
        progress, sends = call.progress, call.operation.safety == "conditional"
        call_group, may_have_arrived = progress.call_group, _may_have_arrived(call)
        if sends:
            call_group.home, call_group.message_id = (
                self._replicas.index(replica),
                _message_id(call),
            )
        replica.in_flight += 1
        try:
            return await onward(call)
        except A2AError as error:
            if sends and error.executed is False and not may_have_arrived:
                call_group.home = None
            if _is_away(call, error):
                replica.failed(asyncio.get_running_loop().time())
            raise
        finally:
            replica.in_flight -= 1

    async def _need_card(self, replica: Replica, call: AnyCall) -> None:
        """Fetch the card of a replica, within a bound where another replica can take the call.

        Raises:
            A2AError: It did not come; the call was not made.
        """
        if not replica.cards.is_needed:
            return
        now = asyncio.get_running_loop().time()
        if all(one.cards.is_needed or one.penalty(now) for one in self._replicas):
            return
        at = min(now + _CARD_S, call.deadline.at)
        within = msgspec.structs.replace(call.deadline, at=at)

        def too_late() -> A2AError:
            text = f"the card of another replica did not come within {_CARD_S:g} s"
            return A2ATimeoutError(text, phase="first_byte", timeout=_CARD_S, transient=True)

        fetch = replica.cards.card(msgspec.structs.replace(call, deadline=within))
        try:
            await wait_until(at, fetch, too_late)
        except A2AError as error:
            not_sent(error)
            replica.cards.is_doubtful = True
            replica.failed(asyncio.get_running_loop().time())
            raise
        finally:
            call.progress.card = None

    def _in_order(self) -> list[Replica]:
        """All replicas, the best one first."""
        now, random = asyncio.get_running_loop().time(), self._env.random
        ranks = {
            replica: (replica.load(now), replica.is_doubtful, random())
            for replica in self._replicas
        }
        return sorted(self._replicas, key=ranks.__getitem__)

    # ── Calls that belong to a replica ───────────────────────────────────────────────────────

    async def _at_home(
        self, home: Replica, call: AnyCall, make: Callable[[Replica], Awaitable[T | None]]
    ) -> T:
        """Make a call at its home, or where others may stand in at one of these."""
        progress, now = call.progress, asyncio.get_running_loop().time()
        if _may_have_arrived(call):
            return await try_in_order(call, [home], make)
        shares = self._homes.shares_store(now)
        if shares is None and home.penalty(now):
            shares = bool(await self._ask_for_store(home, call))
        if shares is None:
            for replica in self._replicas:  # a retry may find out, and go there
                progress.ways.setdefault(replica, 0)
        tried = len(progress.attempts)
        try:
            return await try_in_order(call, self._ways(home, call, shares=shares), make)
        except A2AError as error:
            is_refusal = len(progress.attempts) == tried
            is_away = isinstance(error, CircuitOpenError) or _is_away(call, error)
            if shares is not None or not (is_refusal and is_away):
                raise
            if not await self._ask_for_store(home, call):
                raise
        return await try_in_order(call, self._ways(home, call, shares=True), make)

    def _ways(self, home: Replica, call: AnyCall, *, shares: bool | None) -> list[Replica]:
        """Where a call may be made, the best replica first."""
        if not shares:
            return [home]
        now, ways = asyncio.get_running_loop().time(), self._in_order()
        ways.sort(key=lambda replica: replica is not home)
        if call.operation.safety != "conditional":
            ways.sort(key=lambda replica: replica.penalty(now))
        return ways

    async def _stand_in(
        self, replica: Replica, call: Call[P, R], onward: CallNext[P, R, T]
    ) -> tuple[Replica, Reply[T]] | None:
        """Make a call at another replica than its home; None where that does not know of it."""
        task_id = task_of(call.params)
        if call.operation.safety == "conditional" and task_id is not None:
            failure = await self._ask_for(task_id, call, replica)
            if isinstance(failure, TaskNotFoundError):
                return None
            if failure is not None:
                raise not_sent(failure)
        try:
            return replica, await self._at(replica, call, onward)
        except (TaskNotFoundError, InvalidParamsError) as error:
            is_about_page = getattr(call.params, "page_token", None)
            is_unknown = isinstance(error, TaskNotFoundError) or is_about_page
            if call.operation.safety != "conditional" and is_unknown:
                return None
            raise

    async def _ask_for_store(self, home: Replica, call: AnyCall) -> bool:
        """Find out whether the replicas share a store: whether another one has a task of a home.

        Where there is no such task, or no other replica answers, the next call asks again.
        """
        task_id = task_of(call.params) or self._homes.last_task_at(home)
        found, failures = None, list[A2AError]()
        if task_id is not None:
            others = [replica for replica in self._in_order() if replica is not home]
            found, failures = await self._ask_all_for(task_id, call, others)
        if found is not None:
            self._homes.found_shared()
            return True
        if any(isinstance(failure, TaskNotFoundError) for failure in failures):
            self._homes.found_separate(asyncio.get_running_loop().time())
        for replica in self._replicas:
            if replica is not home:
                call.progress.ways.pop(replica, None)
        return False

    # ── Where something is at home ───────────────────────────────────────────────────────────

    def _home(self, call: AnyCall) -> Replica | None:
        """The replica that a call belongs to, as far as it is known."""
        sent_to = call.progress.call_group.home
        if sent_to is not None:
            return self._replicas[sent_to]
        params, homes = call.params, self._homes
        return homes.of_task(task_of(params)) or homes.of_context(context_of(params))

    async def _find(self, task_id: str, call: AnyCall) -> Replica | None:
        """Search all replicas for a task; None if no replica knows it.

        Raises:
            A2AError: It is at none of those that answered, and one of the others, which may have
                it, did not answer.
        """
        found, failures = await self._ask_all_for(task_id, call, self._in_order())
        if found is not None:
            self._homes.keep(task_id, found)
            return found
        unanswered = [one for one in failures if not isinstance(one, TaskNotFoundError)]
        for failure in unanswered:
            # The call itself was not made; that its home was not found counts as a try of it.
            not_sent(failure)
            attempts = call.progress.attempts
            made = [msgspec.structs.replace(one, executed=False) for one in failure.attempts]
            attempts[:] = joined_attempts(attempts, made, after=0.0)
        if unanswered:
            raise unanswered[0]
        return None

    async def _ask_all_for(
        self, task_id: str, call: AnyCall, replicas: Iterable[Replica]
    ) -> tuple[Replica | None, list[A2AError]]:
        """Ask several replicas for a task at once: who has it, or how all of them failed."""
        asked = {
            asyncio.create_task(self._ask_for(task_id, call, replica)): replica
            for replica in replicas
        }
        left, failures = set(asked), list[A2AError]()
        try:
            while left:
                done, left = await asyncio.wait(left, return_when=asyncio.FIRST_COMPLETED)
                for one in done:
                    failure = one.result()
                    if failure is None:
                        return asked[one], failures
                    failures.append(failure)
        finally:
            for one in left:
                one.cancel()
            if left:
                await asyncio.wait(left, timeout=_ENDING_S)
        return None, failures

    async def _ask_for(self, task_id: str, call: AnyCall, replica: Replica) -> A2AError | None:
        """Ask one replica for a task; None if it is there."""
        progress = CallProgress(began=call.progress.began, call_group=call.progress.call_group)
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

    def learn(self, call: AnyCall, value: object, replica: Replica) -> None:
        """Remember the home of what an answer, or the event of a stream, is about."""
        self._homes.learn(value, replica, moves=isinstance(call.params, SendMessageRequest))


class _Placed(StreamWrapper[T]):
    """Counts a stream at its replica, and learns from its first event what it is about."""

    def __init__(
        self, inner: Stream[T], layer: ReplicaLayer, call: AnyCall, replica: Replica
    ) -> None:
        super().__init__(inner)
        self._layer = layer
        self._call = call
        self._replica: Replica | None = replica
        self._is_new = True
        replica.in_flight += 1

    async def __anext__(self) -> T:
        event = await super().__anext__()
        if self._is_new and self._replica is not None:
            self._is_new = False
            self._layer.learn(self._call, event, self._replica)
            self.next_nowait = self._inner.next_nowait
        return event

    async def close(self) -> None:
        replica, self._replica = self._replica, None
        if replica is not None:
            replica.in_flight -= 1
        await super().close()


def _is_away(call: AnyCall, error: A2AError) -> bool:
    """Return whether an error shows that a replica is away."""
    is_failure = judge(error) == "failure" or is_not_an_agent(call.operation, error)
    return is_failure and not call.progress.lacks_credentials


def _may_have_arrived(call: AnyCall) -> bool:
    """Return whether this message was sent before, and may have been executed."""
    call_group = call.progress.call_group
    is_send = isinstance(call.params, SendMessageRequest)
    return is_send and call_group.home is not None and call_group.message_id == _message_id(call)


def _message_id(call: AnyCall) -> str | None:
    params = call.params
    return params.message.message_id if isinstance(params, SendMessageRequest) else None
