"""Storage of a receiver for its expected tasks, within bounds.

A watch holds one or more configurations of a task, and its deliveries. Secrets are stored and
looked up as digests, so that the time of a lookup reveals nothing about them. A watch ends when it
is forgotten, or with the receiver; then all waits for it end too.
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

__all__ = ["Watch", "Watches", "authorization_secret"]

_MIN_RECOUNT_BYTES = 64 * 1024
"""Size up to which the stored size of a task is not measured anew."""


class Watch:
    """Configurations and deliveries of one task.

    Attributes:
        deliveries: The deliveries.
        secret_digests: Digests of the secrets of the configurations.
        task_id: The task: named by the caller, or of the first delivery.
        is_claimed: The caller named the task.
        ended_because: Why the watch has ended; None before.
        failure: Error if the task cannot be stored.
        size: Size when it was last measured, plus the bytes delivered since.
        measured_size: Size in bytes when it was last measured.
        waiting: Events of the waits for deliveries.
        polls: Scopes of the requests to the agent; cancelled when the watch ends.
    """

    def __init__(self, limits: Limits) -> None:
        self.deliveries = Deliveries(limits)
        self.secret_digests: set[bytes] = set()
        self.task_id: str | None = None
        self.is_claimed = False
        self.ended_because: str | None = None
        self.failure: LimitExceededError | None = None
        self.size = 0
        self.measured_size = 0
        self.waiting: set[asyncio.Event] = set()
        self.polls: set[CancelScope] = set()

    def end_waits(self) -> None:
        """Wake all waits, and cancel their requests."""
        self.wake()
        for scope in self.polls:
            scope.cancel()

    def wake(self) -> None:
        """Wake all waits: there is a new delivery."""
        for news in self.waiting:
            news.set()


class Watches:
    """All watches of a receiver.

    Args:
        limits: Bounds of a task.
        most: Maximum number of watches.
        most_bytes: Maximum size in bytes, including requests that are being read.

    Attributes:
        most_bytes: See the argument.
        is_closed: The receiver is closed.
        refused: Number of deliveries that were refused, of any task.
        last_refusal: Why the last one of these was refused.
    """

    def __init__(self, limits: Limits, *, most: int, most_bytes: int) -> None:
        self._limits = limits
        self._most = most
        self.most_bytes = most_bytes
        self._all: dict[Watch, None] = {}
        self._by_digest: dict[bytes, tuple[Watch, ...]] = {}
        self._by_task: dict[str, Watch] = {}
        self._bytes = 0
        self.is_closed = False
        self.refused = 0
        self.last_refusal = ""

    def __len__(self) -> int:
        return len(self._all)

    def add(self) -> Watch:
        """Add a watch, evicting one that is not needed if there are too many.

        Raises:
            QueueFullError: All watches are needed.
        """
        while len(self._all) >= self._most:
            evicted = next(self._evictable(), None)
            if evicted is None:
                text = f"{self._most} tasks are expected already; raise the limit with max_tasks=…"
                raise QueueFullError(text, executed=False)
            self.forget(evicted)
        watch = Watch(self._limits)
        self._all[watch] = None
        return watch

    def by_secret(self, secret: str) -> tuple[Watch, ...]:
        """Return the watches of a secret; several if the caller reused it."""
        return self._by_digest.get(_digest(secret), ())

    def of_task(self, task_id: str) -> Watch | None:
        """Return the watch of a task that the caller named."""
        return self._by_task.get(task_id)

    def has_unnamed_task(self, watches: tuple[Watch, ...] | None) -> bool:
        """Return whether one of these watches has no task yet; of all watches for None."""
        return any(watch.task_id is None for watch in watches or self._all)

    def add_config(self, watch: Watch, config: TaskPushNotificationConfig) -> None:
        """Accept deliveries of an agent with this configuration."""
        authentication = config.authentication
        secrets = [config.token]
        if authentication is not None and authentication.credentials:
            credentials = authentication.credentials
            secrets.append(authorization_secret(authentication.scheme, credentials))
        for digest in {*map(_digest, filter(None, secrets))} - watch.secret_digests:
            watch.secret_digests.add(digest)
            self._by_digest[digest] = (*self._by_digest.get(digest, ()), watch)

    def claim(self, watch: Watch, task_id: str) -> None:
        """Set the task that the caller named; discard deliveries of another task."""
        if watch.task_id not in {None, task_id}:
            self._bytes -= watch.size
            watch.size = watch.measured_size = 0
            watch.deliveries, watch.failure = Deliveries(self._limits), None
        watch.task_id, watch.is_claimed = task_id, True
        self._by_task[task_id] = watch

    def forget(self, watch: Watch) -> None:
        """Remove the watch."""
        if watch not in self._all:
            return
        del self._all[watch]
        self._bytes -= watch.size
        for digest in watch.secret_digests:
            others = tuple(other for other in self._by_digest.pop(digest) if other is not watch)
            if others:
                self._by_digest[digest] = others
        if watch.is_claimed:
            del self._by_task[watch.task_id or ""]
        watch.ended_because = "the config was forgotten"
        watch.end_waits()

    def close(self) -> None:
        """End all watches; `of_task` still finds them."""
        self.is_closed = True
        for watch in self._all:
            watch.ended_because = "the receiver was closed"
            watch.end_waits()

    def deliver(self, watch: Watch, event: Event, body: bytes) -> None:
        """Add a delivery; a repeated body is ignored.

        Raises:
            LimitExceededError: The task becomes too large; its waits fail with the same error.
        """
        digest = hashlib.sha256(body).digest()
        if watch.deliveries.has(digest):
            return
        try:
            has_changed = watch.deliveries.add(event, digest)
        except LimitExceededError as error:
            watch.failure = error
            watch.end_waits()
            raise
        self._add_size(watch, watch.deliveries.per_delivery + (len(body) if has_changed else 0))
        if has_changed:
            watch.wake()

    def note_refusal(self, refused: Refused) -> None:
        """Count a refused delivery; one that came too early does not count."""
        if refused.reason is not Refusal.TOO_EARLY:
            self.refused += 1
            self.last_refusal = refused.text

    def add_polled(self, watch: Watch, task: Task) -> None:
        """Add the agent's response to a poll, like a delivery.

        Raises:
            LimitExceededError: The task is too large; nothing has changed.
        """
        if watch.deliveries.add_polled(task):
            self._add_size(watch, watch.deliveries.size)
            watch.wake()

    def confirm(self, watch: Watch, task: Task) -> None:
        """Replace the task by the agent's final response.

        Raises:
            InvalidAgentResponseError: The response is another task; nothing has changed.
            LimitExceededError: The task is too large; nothing has changed.
        """
        watch.deliveries.confirm(task)
        self._add_size(watch, watch.deliveries.size)
        watch.wake()

    def _add_size(self, watch: Watch, size: int) -> None:
        """Add bytes to the size of a watch.

        The size is measured anew each time that it may have doubled.
        """
        watch.size += size
        self._bytes += size
        if watch.size > 2 * watch.measured_size + _MIN_RECOUNT_BYTES:
            watch.measured_size = watch.deliveries.size
            self._bytes += watch.measured_size - watch.size
            watch.size = watch.measured_size
        if watch.deliveries.is_terminal:  # the last to end is evicted last
            del self._all[watch]
            self._all[watch] = None

    def reserve(self, size: int) -> None:
        """Reserve memory for a body that is being read; evict what is not needed.

        Raises:
            Refused: There is not enough memory.
        """
        self._bytes += size
        if self._bytes <= self.most_bytes:
            return
        for watch in [watch for watch in self._evictable() if watch.size]:
            self.forget(watch)
            if self._bytes <= self.most_bytes:
                return
        raise Refused(Refusal.UNAVAILABLE, "the receiver's memory is full")

    def release(self, size: int) -> None:
        """Release reserved memory."""
        self._bytes -= size

    def _evictable(self) -> Iterator[Watch]:
        """Yield watches to evict: first terminal tasks, then unnamed ones, each oldest first."""
        idle = [watch for watch in self._all if not watch.waiting]
        yield from (watch for watch in idle if watch.deliveries.is_terminal)
        yield from (watch for watch in idle if not watch.is_claimed)


def authorization_secret(scheme: str, credentials: str) -> str:
    """Return an ``Authorization`` value for lookup; the case of schemes does not matter."""
    return f"{scheme.lower()} {credentials.strip()}"


def _digest(secret: str) -> bytes:
    return hashlib.sha256(secret.encode(errors="replace")).digest()
