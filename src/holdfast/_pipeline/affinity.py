"""Affinity: the replica that a task, a conversation or a page of a list belongs to.

Rules:
- A task and a conversation belong to the replica that answered the message that created them. If
  another replica accepts a reply to the task, the task moves there; a read moves nothing.
- A replica that has a task of another one shares its store. A replica that does not find such a
  task has a separate store, or one that lags: it counts as separate for a minute.
- The token of a page is marked with the replica that returned it, as two replicas may return the
  same token.
"""

from __future__ import annotations

from hashlib import blake2b
from operator import attrgetter
from typing import TYPE_CHECKING, Generic, TypeVar, cast

import msgspec

from holdfast._model.bounded_dict import BoundedDict
from holdfast.types import (
    CancelTaskRequest,
    DeleteTaskPushNotificationConfigRequest,
    GetTaskPushNotificationConfigRequest,
    GetTaskRequest,
    ListTaskPushNotificationConfigsRequest,
    ListTaskPushNotificationConfigsResponse,
    ListTasksRequest,
    ListTasksResponse,
    Message,
    SendMessageRequest,
    SendMessageResponse,
    StreamResponse,
    SubscribeToTaskRequest,
    Task,
    TaskArtifactUpdateEvent,
    TaskPushNotificationConfig,
    TaskStatusUpdateEvent,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

__all__ = ["Homes", "context_of", "marked", "page_mark", "task_of", "unmarked"]

H = TypeVar("H")
T = TypeVar("T")

_MAX_HOMES = 10_000
"""Tasks, and as many conversations, whose home is remembered; the oldest are forgotten."""

_SEPARATE_S = 60.0
"""Seconds for which stores count as separate after a task of another replica was not found."""


class Homes(Generic[H]):
    """The known homes of tasks and conversations, and whether the replicas share a store.

    Args:
        shared_store: Whether the replicas share a store, as the caller states; None to detect it.
    """

    def __init__(self, *, shared_store: bool | None) -> None:
        self._declared = shared_store
        self._is_shared = False
        self._separate_until = 0.0
        self._tasks: BoundedDict[str, H] = BoundedDict(_MAX_HOMES)
        self._contexts: BoundedDict[str, H] = BoundedDict(_MAX_HOMES)

    def shares_store(self, now: float) -> bool | None:
        """Return whether the replicas share a store; None if it is not known.

        Args:
            now: The event loop's time in seconds.
        """
        if self._declared is not None:
            return self._declared
        if self._is_shared:
            return True
        return False if now < self._separate_until else None

    def found_shared(self) -> None:
        """Record that a replica has a task of another one."""
        self._is_shared = True

    def found_separate(self, now: float) -> None:
        """Record that a replica did not find a task of another one."""
        self._separate_until = now + _SEPARATE_S

    def of_task(self, task_id: str | None) -> H | None:
        """Return the home of a task, if it is known."""
        return None if task_id is None else self._tasks.get(task_id)

    def of_context(self, context_id: str | None) -> H | None:
        """Return the home of a conversation, if it is known."""
        return None if context_id is None else self._contexts.get(context_id)

    def last_task_at(self, home: H) -> str | None:
        """Return the id of the most recent task of a home, if there is one."""
        tasks = reversed(self._tasks.items())
        return next((task_id for task_id, replica in tasks if replica is home), None)

    def keep(self, task_id: str, home: H) -> None:
        """Record the home of a task."""
        self._tasks[task_id] = home

    def learn(self, value: object, source: H, *, moves: bool) -> None:
        """Record the homes of the objects in an answer or event.

        Args:
            value: The answer or event.
            source: The replica that sent it.
            moves: Whether its tasks belong to this replica from now on, even if they had another
                home.
        """
        for part in _parts_of(value):
            task_id = part.id if isinstance(part, Task) else part.task_id
            if task_id:
                home = self._tasks.get(task_id, source)
                if home is not source and not isinstance(part, Message):
                    self._is_shared = True
                self._tasks[task_id] = source if moves else home
            if part.context_id:
                home = self._contexts.get(part.context_id, source)
                self._contexts[part.context_id] = source if moves else home


# ── Ids in requests and answers ──────────────────────────────────────────────────────────────────

_TASK_OF: Mapping[type, attrgetter[str | None]] = {
    SendMessageRequest: attrgetter("message.task_id"),
    GetTaskRequest: attrgetter("id"),
    CancelTaskRequest: attrgetter("id"),
    SubscribeToTaskRequest: attrgetter("id"),
    TaskPushNotificationConfig: attrgetter("task_id"),
    GetTaskPushNotificationConfigRequest: attrgetter("task_id"),
    ListTaskPushNotificationConfigsRequest: attrgetter("task_id"),
    DeleteTaskPushNotificationConfigRequest: attrgetter("task_id"),
}
"""The task id of a request, by type."""

_CONTEXT_OF: Mapping[type, attrgetter[str | None]] = {
    SendMessageRequest: attrgetter("message.context_id"),
    ListTasksRequest: attrgetter("context_id"),
}
"""The context id of a request, by type."""

_PARTS: Mapping[type, tuple[str, ...]] = {
    SendMessageResponse: ("task", "message"),
    StreamResponse: ("task", "message", "status_update", "artifact_update"),
    ListTasksResponse: ("tasks",),
}
"""The members of an answer or event that have a task or context id."""

_Part = Task | Message | TaskStatusUpdateEvent | TaskArtifactUpdateEvent


def task_of(params: object) -> str | None:
    """Return the task id of a request, if it has one."""
    return _id_in(_TASK_OF, params)


def context_of(params: object) -> str | None:
    """Return the context id of a request, if it has one."""
    return _id_in(_CONTEXT_OF, params)


def _id_in(getters: Mapping[type, attrgetter[str | None]], params: object) -> str | None:
    getter = getters.get(type(params))
    return None if getter is None else getter(params) or None


def _parts_of(value: object) -> Iterator[_Part]:
    if isinstance(value, _Part):
        yield value
    for name in _PARTS.get(type(value), ()):
        member = getattr(value, name)
        parts = cast("tuple[object, ...]", member) if isinstance(member, tuple) else (member,)
        for part in parts:
            yield from _parts_of(part)


# ── Pages ────────────────────────────────────────────────────────────────────────────────────────

_LISTS = ListTasksRequest | ListTaskPushNotificationConfigsRequest
_PAGES = ListTasksResponse | ListTaskPushNotificationConfigsResponse


def page_mark(name: str) -> str:
    """Return the mark of a replica in page tokens, which is the same in every process.

    Args:
        name: The replica's address, or another unique name.
    """
    return blake2b(name.encode(), digest_size=4).hexdigest()


def marked(page: T, mark: str) -> T:
    """Mark the token of the next page with its replica; return other values unchanged."""
    if not isinstance(page, _PAGES) or not page.next_page_token:
        return page
    token = f"{page.next_page_token}@{mark}"
    return cast("T", msgspec.structs.replace(page, next_page_token=token))


def unmarked(params: T, replicas: Mapping[str, H]) -> tuple[T, H | None]:
    """Remove the mark from a request for a page.

    Args:
        params: A request, of any operation.
        replicas: The replicas by their marks.

    Returns:
        The request without the mark, and the replica; None without a known mark.
    """
    if not isinstance(params, _LISTS) or not params.page_token:
        return params, None
    token, _, mark = params.page_token.rpartition("@")
    home = replicas.get(mark) if token else None
    if home is None:
        return params, None
    return cast("T", msgspec.structs.replace(params, page_token=token)), home
