"""The replicas of an agent, and the choice of the replica for each call.

Rules:
- A call about a task, a conversation or a page of a list goes to its home: the replica that
  created it (`holdfast._pipeline.affinity`). If the home of a task is not known, all replicas are
  searched for the task.
- While the home is unavailable, the other replicas replace it if they share a store. Reads, and
  other calls that may be executed twice, go to them first. A message goes to the home first, and
  to another replica only if the home certainly did not execute it and the other one has its task.
- While it is not known whether the replicas share a store, the others are searched for a task of
  the unavailable home. With separate stores they do not replace it.
- If a replica does not find an object of another one, this proves nothing: the home's error is
  raised.
- A message that may have reached a replica is searched for there, and not sent to any other.
- Any other call goes to the replica with the fewest calls in flight and recent failures. Latency
  is not considered: it depends on the request, and a replica that fails immediately is fastest.
- If the card of a replica has to be fetched while another replica has its card and is available,
  the fetch may take 1 s, and the replica is tried last while it fails.
- A replica that refuses, whose address has no agent, or where this call has failed is tried last
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
from holdfast._pipeline.failover import try_in_order
from holdfast._pipeline.layer_streams import with_stream
from holdfast._pipeline.observed_request import make_beside
from holdfast._pipeline.transport import (
    AnyCall,
    BaseLayer,
    Call,
    CallNext,
    CallProgress,
    Reply,
    Stream,
    StreamWrapper,
    Transport,
)
from holdfast._policy.attempts import joined_attempts
from holdfast._policy.breaker import classify
from holdfast._wire.status import is_not_an_agent
from holdfast.errors import (
    A2AError,
    A2ATimeoutError,
    CircuitOpenError,
    InvalidParamsError,
    TaskNotFoundError,
)
from holdfast.types import GetTaskRequest, SendMessageRequest, Task

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Sequence

    from holdfast._aio.env import Env
    from holdfast._pipeline.cards.resolver import AgentCardResolver

__all__ = ["Replica", "ReplicaLayer"]

P = TypeVar("P")
R = TypeVar("R")
T = TypeVar("T")

_FAILURE_WEIGHT = 10
"""Calls in flight that count as much as one failure that just happened."""

_HALF_LIFE_S = 5.0
"""Seconds after which a failure counts half."""

_MAX_FAILURES = 5.0
"""Failures that count at most."""

_CARD_TIMEOUT_S = 1.0
"""Seconds to fetch the card of a replica while another replica has its card."""

_CANCEL_GRACE_S = 1.0
"""Seconds that a cancelled read has to end after another replica answered."""


class Replica:
    """One replica of the agent.

    Args:
        transport: Makes calls to it.
        name: Its address, or another unique name.
        cards: Fetches its card.

    Attributes:
        transport: Makes calls to it.
        cards: Fetches its card.
        mark: Marks its page tokens.
        in_flight: Number of calls and open streams.
    """

    def __init__(self, transport: Transport, name: str, cards: AgentCardResolver) -> None:
        self.transport = transport
        self.cards = cards
        self.mark = page_mark(name)
        self.in_flight = 0
        self._failures = 0.0
        self._failed_at = 0.0

    def failed(self, now: float) -> None:
        """Record that it was unavailable."""
        self._failures = min(_MAX_FAILURES, self._decayed_failures(now) + 1)
        self._failed_at = now

    def load(self, now: float) -> int:
        """Return its calls in flight and failures as an integer, which ignores old failures."""
        return self.in_flight + self.penalty(now)

    def penalty(self, now: float) -> int:
        """Return the weight of its recent failures; 0 without any."""
        return round(_FAILURE_WEIGHT * self._decayed_failures(now))

    @property
    def is_doubtful(self) -> bool:
        """Whether it has no card, and the last fetch of its card failed."""
        return self.cards.is_needed and self.cards.is_doubtful

    def _decayed_failures(self, now: float) -> float:
        age = max(0.0, now - self._failed_at)
        return self._failures * math.exp2(-age / _HALF_LIFE_S)


class ReplicaLayer(BaseLayer):
    """Makes each call at one of several replicas.

    Args:
        inner: The transport below the transports of all replicas.
        replicas: The replicas; at least one.
        env: Source of the random choice among equal replicas.
        shared_store: Whether the replicas share a store; None to detect it.
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
        """Make the call at the home of its object, or at the best replica.

        Raises:
            CircuitOpenError: All circuits are open; ``retry_after`` is that of the first to close.
            A2AError: The call failed. If its home is unavailable, the error is the home's, not
                that of another replica that does not find the object.
        """
        replica, reply = await self._route(call, lambda replica: replica.transport.unary)
        self.learn(call, reply.value, replica)
        page = marked(reply.value, replica.mark)
        return reply if page is reply.value else msgspec.structs.replace(reply, value=page)

    async def stream(self, call: Call[P, R], /) -> Reply[Stream[R]]:
        """Open the stream at the replica that `unary` would choose."""
        replica, reply = await self._route(call, lambda replica: replica.transport.stream)
        return with_stream(reply, _CountedStream(reply.value, self, call, replica))

    async def _route(
        self, call: Call[P, R], method_of: Callable[[Replica], CallNext[P, R, T]]
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
                return replica, await self._make_at(replica, call, method_of(replica))
            return await self._replace_home(replica, call, method_of(replica))

        if home is None:
            return await try_in_order(call, self._by_load(), make)
        return await self._at_home(home, call, make)

    async def _make_at(
        self, replica: Replica, call: Call[P, R], call_next: CallNext[P, R, T]
    ) -> Reply[T]:
        progress, sends = call.progress, call.operation.safety == "conditional"
        call_group, may_have_arrived = progress.call_group, _may_have_arrived(call)
        if sends:
            call_group.home, call_group.message_id = (
                self._replicas.index(replica),
                _message_id(call),
            )
        replica.in_flight += 1
        try:
            return await call_next(call)
        except A2AError as error:
            if sends and error.executed is False and not may_have_arrived:
                call_group.home = None
            if _shows_unavailable(call, error):
                replica.failed(asyncio.get_running_loop().time())
            raise
        finally:
            replica.in_flight -= 1

    async def _need_card(self, replica: Replica, call: AnyCall) -> None:
        """Fetch the card of a replica, in bounded time if another replica can take the call.

        Raises:
            A2AError: The card could not be fetched; the call was not made.
        """
        if not replica.cards.is_needed:
            return
        now = asyncio.get_running_loop().time()
        if all(other.cards.is_needed or other.penalty(now) for other in self._replicas):
            return
        deadline_at = min(now + _CARD_TIMEOUT_S, call.deadline.at)
        deadline = msgspec.structs.replace(call.deadline, at=deadline_at)

        def timeout_error() -> A2AError:
            text = f"the card of another replica did not arrive within {_CARD_TIMEOUT_S:g} s"
            return A2ATimeoutError(
                text, phase="first_byte", timeout=_CARD_TIMEOUT_S, transient=True
            )

        fetch = replica.cards.card(msgspec.structs.replace(call, deadline=deadline))
        try:
            await wait_until(deadline_at, fetch, timeout_error)
        except A2AError as error:
            not_sent(error)
            replica.cards.is_doubtful = True
            replica.failed(asyncio.get_running_loop().time())
            raise
        finally:
            call.progress.card = None

    def _by_load(self) -> list[Replica]:
        """Return all replicas, the best one first."""
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
        """Make a call at its home, or at another replica if that may replace the home."""
        progress, now = call.progress, asyncio.get_running_loop().time()
        if _may_have_arrived(call):
            return await try_in_order(call, [home], make)
        is_shared = self._homes.shares_store(now)
        if is_shared is None and home.penalty(now):
            is_shared = bool(await self._detect_shared_store(home, call))
        if is_shared is None:
            for replica in self._replicas:  # a retry may detect it, and use another replica
                progress.candidates.setdefault(replica, 0)
        attempts_before = len(progress.attempts)
        try:
            return await try_in_order(call, self._choices(home, call, is_shared=is_shared), make)
        except A2AError as error:
            is_refusal = len(progress.attempts) == attempts_before
            is_unavailable = isinstance(error, CircuitOpenError) or _shows_unavailable(call, error)
            if is_shared is not None or not (is_refusal and is_unavailable):
                raise
            if not await self._detect_shared_store(home, call):
                raise
        return await try_in_order(call, self._choices(home, call, is_shared=True), make)

    def _choices(self, home: Replica, call: AnyCall, *, is_shared: bool | None) -> list[Replica]:
        """Return the replicas at which a call may be made, the best one first."""
        if not is_shared:
            return [home]
        now, replicas = asyncio.get_running_loop().time(), self._by_load()
        replicas.sort(key=lambda replica: replica is not home)
        if call.operation.safety != "conditional":
            replicas.sort(key=lambda replica: replica.penalty(now))
        return replicas

    async def _replace_home(
        self, replica: Replica, call: Call[P, R], call_next: CallNext[P, R, T]
    ) -> tuple[Replica, Reply[T]] | None:
        """Make a call at a replica that is not its home; None if it does not have the object."""
        task_id = task_of(call.params)
        if call.operation.safety == "conditional" and task_id is not None:
            failure = await self._get_task_error(task_id, call, replica)
            if isinstance(failure, TaskNotFoundError):
                return None
            if failure is not None:
                raise not_sent(failure)
        try:
            return replica, await self._make_at(replica, call, call_next)
        except (TaskNotFoundError, InvalidParamsError) as error:
            is_about_page = getattr(call.params, "page_token", None)
            is_unknown = isinstance(error, TaskNotFoundError) or is_about_page
            if call.operation.safety != "conditional" and is_unknown:
                return None
            raise

    async def _detect_shared_store(self, home: Replica, call: AnyCall) -> bool:
        """Detect whether the replicas share a store: search the others for a task of the home.

        If no task is known, or no other replica answers, the next call tries again.
        """
        task_id = task_of(call.params) or self._homes.last_task_at(home)
        owner, failures = None, list[A2AError]()
        if task_id is not None:
            others = [replica for replica in self._by_load() if replica is not home]
            owner, failures = await self._search(task_id, call, others)
        if owner is not None:
            self._homes.found_shared()
            return True
        if any(isinstance(failure, TaskNotFoundError) for failure in failures):
            self._homes.found_separate(asyncio.get_running_loop().time())
        for replica in self._replicas:
            if replica is not home:
                call.progress.candidates.pop(replica, None)
        return False

    # ── Homes ────────────────────────────────────────────────────────────────────────────────

    def _home(self, call: AnyCall) -> Replica | None:
        """Return the home of a call, if it is known."""
        sent_to = call.progress.call_group.home
        if sent_to is not None:
            return self._replicas[sent_to]
        params, homes = call.params, self._homes
        return homes.of_task(task_of(params)) or homes.of_context(context_of(params))

    async def _find(self, task_id: str, call: AnyCall) -> Replica | None:
        """Search all replicas for a task; None if no replica has it.

        Raises:
            A2AError: No replica that answered has the task, but another one, which may have it,
                did not answer.
        """
        owner, failures = await self._search(task_id, call, self._by_load())
        if owner is not None:
            self._homes.keep(task_id, owner)
            return owner
        unanswered = [error for error in failures if not isinstance(error, TaskNotFoundError)]
        for failure in unanswered:
            # The call itself was not made, but the search for its home counts as an attempt.
            not_sent(failure)
            attempts = call.progress.attempts
            made = [msgspec.structs.replace(a, executed=False) for a in failure.attempts]
            attempts[:] = joined_attempts(attempts, made, after=0.0)
        if unanswered:
            raise unanswered[0]
        return None

    async def _search(
        self, task_id: str, call: AnyCall, replicas: Iterable[Replica]
    ) -> tuple[Replica | None, list[A2AError]]:
        """Search replicas for a task at once; return the one that has it, and the errors."""
        replica_by_read = {
            asyncio.create_task(self._get_task_error(task_id, call, replica)): replica
            for replica in replicas
        }
        pending, failures = set(replica_by_read), list[A2AError]()
        try:
            while pending:
                done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
                for read in done:
                    failure = read.result()
                    if failure is None:
                        return replica_by_read[read], failures
                    failures.append(failure)
        finally:
            for read in pending:
                read.cancel()
            if pending:
                await asyncio.wait(pending, timeout=_CANCEL_GRACE_S)
        return None, failures

    async def _get_task_error(
        self, task_id: str, call: AnyCall, replica: Replica
    ) -> A2AError | None:
        """Get a task from one replica; return the error, or None if the replica has the task."""
        progress = CallProgress(began=call.progress.began, call_group=call.progress.call_group)
        params = GetTaskRequest(id=task_id, history_length=0)

        def make(read: Call[GetTaskRequest, Task]) -> Awaitable[Reply[Task]]:
            return self._make_at(replica, read, replica.transport.unary)

        try:
            await make_beside(call, GET_TASK, params, make, progress=progress)
        except A2AError as error:
            error.attempts = tuple(progress.attempts)
            return error
        return None

    def learn(self, call: AnyCall, value: object, replica: Replica) -> None:
        """Remember the home of the objects in a reply or in an event of a stream."""
        self._homes.learn(value, replica, moves=isinstance(call.params, SendMessageRequest))


class _CountedStream(StreamWrapper[T]):
    """Counts a stream at its replica, and learns the home of its task from the first event."""

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


def _shows_unavailable(call: AnyCall, error: A2AError) -> bool:
    """Return whether an error shows that a replica is unavailable."""
    is_failure = classify(error) == "failure" or is_not_an_agent(call.operation, error)
    return is_failure and not call.progress.lacks_credentials


def _may_have_arrived(call: AnyCall) -> bool:
    """Return whether this message was sent before, and may have been executed."""
    call_group = call.progress.call_group
    is_send = isinstance(call.params, SendMessageRequest)
    return is_send and call_group.home is not None and call_group.message_id == _message_id(call)


def _message_id(call: AnyCall) -> str | None:
    params = call.params
    return params.message.message_id if isinstance(params, SendMessageRequest) else None
