"""What a receiver keeps of the tasks that it is told about, within bounds.

A watch is a configuration, or several of one task, and what was delivered for it. Only the
digests of their secrets are kept, and looked up: how long that takes says nothing about a secret.
A watch ends when it is forgotten, or with the receiver, and so does all that waits at it.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from holdfast._push.deliveries import Deliveries
from holdfast._push.refusals import Refusal, Refused
from holdfast.errors import LimitExceededError, QueueFullError

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Iterator

    from holdfast._aio.cancel_scope import CancelScope
    from holdfast._wire.limits import Limits
    from holdfast.types import Event, Task, TaskPushNotificationConfig

__all__ = ["Watch", "Watches", "credentials_of"]

_COUNTED_FROM = 64 * 1024
"""Bytes below which it is not worth while to count anew what a task has come to."""


class Watch:
    """What is kept of one task.

    Attributes:
        deliveries: What was delivered.
        proofs: Digests of the secrets of its configurations.
        task_id: The task: what the caller named, or else what was delivered first.
        is_claimed: Whether the caller named it.
        end: Why it is over, in words; None while it is not.
        failure: Why the task cannot be kept.
        size: Bytes that it took to deliver since it was counted, and what it came to then.
        counted: Bytes that it came to when it was last counted.
        waiting: Those who wait for news.
        asking: Those who ask the agent, as scopes that end when there is nothing to ask for.
    """

    def __init__(self, limits: Limits) -> None:
        self.deliveries = Deliveries(limits)
        self.proofs: set[bytes] = set()
        self.task_id: str | None = None
        self.is_claimed = False
        self.end: str | None = None
        self.failure: LimitExceededError | None = None
        self.size = 0
        self.counted = 0
        self.waiting: set[asyncio.Event] = set()
        self.asking: set[CancelScope] = set()

    def break_off(self) -> None:
        """Tells those who wait that there is nothing to wait for."""
        self.wake()
        for scope in self.asking:
            scope.cancel()

    def wake(self) -> None:
        """Tells those who wait that there is news."""
        for news in self.waiting:
            news.set()


class Watches:
    """All watches of a receiver.

    Args:
        limits: How large a task may become.
        most: How many of them there may be.
        most_bytes: How many bytes they, and what is being read, may have together.

    Attributes:
        most_bytes: The same.
        is_closed: Whether all of them are over.
    """

    def __init__(self, limits: Limits, *, most: int, most_bytes: int) -> None:
        self._limits = limits
        self._most = most
        self.most_bytes = most_bytes
        self._all: dict[Watch, None] = {}
        self._by_proof: dict[bytes, tuple[Watch, ...]] = {}
        self._by_task: dict[str, Watch] = {}
        self._bytes = 0
        self.is_closed = False

    def __len__(self) -> int:
        return len(self._all)

    def add(self) -> Watch:
        """A new watch, in the place of one that nobody needs if there are too many.

        Raises:
            QueueFullError: All of them are needed.
        """
        while len(self._all) >= self._most:
            needless = next(self._needless(), None)
            if needless is None:
                text = f"{self._most} tasks are expected already; raise the limit with max_tasks=…"
                raise QueueFullError(text, executed=False)
            self.forget(needless)
        watch = Watch(self._limits)
        self._all[watch] = None
        return watch

    def proven_by(self, secret: str) -> tuple[Watch, ...]:
        """What a secret belongs to: one watch, or several that a caller gave the same one."""
        return self._by_proof.get(_digest(secret), ())

    def of_task(self, task_id: str) -> Watch | None:
        """The watch of a task that the caller named."""
        return self._by_task.get(task_id)

    def lack_task(self, some: tuple[Watch, ...] | None) -> bool:
        """Whether nobody named the task yet of one of these; of any one without them."""
        return any(watch.task_id is None for watch in some or self._all)

    def admit(self, watch: Watch, config: TaskPushNotificationConfig) -> None:
        """Lets an agent deliver that was given a configuration."""
        own = config.authentication
        given = [config.token]
        if own is not None and own.credentials:
            given.append(credentials_of(own.scheme, own.credentials))
        for proof in {*map(_digest, filter(None, given))} - watch.proofs:
            watch.proofs.add(proof)
            self._by_proof[proof] = (*self._by_proof.get(proof, ()), watch)

    def claim(self, watch: Watch, task_id: str) -> None:
        """Notes what the caller named; what was delivered of another task is thrown away."""
        if watch.task_id not in {None, task_id}:
            self._bytes -= watch.size
            watch.size = watch.counted = 0
            watch.deliveries, watch.failure = Deliveries(self._limits), None
        watch.task_id, watch.is_claimed = task_id, True
        self._by_task[task_id] = watch

    def forget(self, watch: Watch) -> None:
        """Keeps nothing of it any more."""
        if watch not in self._all:
            return
        del self._all[watch]
        self._bytes -= watch.size
        for proof in watch.proofs:
            others = tuple(other for other in self._by_proof.pop(proof) if other is not watch)
            if others:
                self._by_proof[proof] = others
        if watch.is_claimed:
            del self._by_task[watch.task_id or ""]
        watch.end = "it was forgotten"
        watch.break_off()

    def close(self) -> None:
        """Ends all of them; what was delivered stays."""
        self.is_closed = True
        for watch in self._all:
            watch.end = "the receiver was closed"
            watch.break_off()

    def deliver(self, watch: Watch, event: Event, body: bytes) -> None:
        """Takes what was delivered; the same body counts once.

        Raises:
            LimitExceededError: The task becomes too large; those who wait are told.
        """
        digest = hashlib.sha256(body).digest()
        if watch.deliveries.has(digest):
            return
        try:
            is_news = watch.deliveries.add(event, digest)
        except LimitExceededError as error:
            watch.failure = error
            watch.break_off()
            raise
        self._grow(watch, watch.deliveries.per_delivery + (len(body) if is_news else 0))
        if is_news:
            watch.wake()

    def learn(self, watch: Watch, task: Task) -> None:
        """Takes what an agent answered, as news like any other.

        Raises:
            LimitExceededError: The task is too large; nothing has changed.
        """
        if watch.deliveries.learn(task):
            self._grow(watch, watch.deliveries.size)
            watch.wake()

    def confirm(self, watch: Watch, task: Task) -> None:
        """Takes what an agent answered as the truth.

        Raises:
            InvalidAgentResponseError: It is another task; nothing has changed.
            LimitExceededError: The task is too large; nothing has changed.
        """
        watch.deliveries.confirm(task)
        self._grow(watch, watch.deliveries.size)
        watch.wake()

    def _grow(self, watch: Watch, size: int) -> None:
        """Counts so many bytes more.

        What all of it has come to is counted anew each time that it may have doubled.
        """
        watch.size += size
        self._bytes += size
        if watch.size > 2 * watch.counted + _COUNTED_FROM:
            watch.counted = watch.deliveries.size
            self._bytes += watch.counted - watch.size
            watch.size = watch.counted
        if watch.deliveries.is_over:  # the last to be over is the last to be forgotten
            del self._all[watch]
            self._all[watch] = None

    def hold(self, size: int) -> None:
        """Counts bytes that are being read; forgets for them what nobody needs.

        Raises:
            Refused: It is too much all the same.
        """
        self._bytes += size
        if self._bytes <= self.most_bytes:
            return
        for watch in [watch for watch in self._needless() if watch.size]:
            self.forget(watch)
            if self._bytes <= self.most_bytes:
                return
        raise Refused(Refusal.NOT_NOW, "too much is kept here already")

    def release(self, size: int) -> None:
        """Counts bytes that were read no more."""
        self._bytes -= size

    def _needless(self) -> Iterator[Watch]:
        """What may be forgotten, the oldest first: tasks that are over, then those without one."""
        idle = [watch for watch in self._all if not watch.waiting]
        yield from (watch for watch in idle if watch.deliveries.is_over)
        yield from (watch for watch in idle if not watch.is_claimed)


def credentials_of(scheme: str, credentials: str) -> str:
    """What ``Authorization`` holds, as it is looked up: schemes are written in either case."""
    return f"{scheme.lower()} {credentials.strip()}"


def _digest(secret: str) -> bytes:
    return hashlib.sha256(secret.encode(errors="replace")).digest()
