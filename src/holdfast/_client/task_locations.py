"""The places where the task of a message may be: what to request there, and what was read.

All of this is pure, and used by `holdfast._client.reconcile_search`.
"""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

import msgspec

from holdfast._wire.status import is_agents_own, is_unknown_operation
from holdfast.errors import (
    A2AConnectionError,
    A2AError,
    A2AHTTPError,
    A2ATimeoutError,
    AuthenticationError,
    InvalidAgentResponseError,
    PermissionDeniedError,
    UnsupportedOperationError,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from holdfast.types import Message

__all__ = [
    "MAX_SIZE",
    "GetTask",
    "ListPage",
    "Place",
    "Since",
    "has_no_list",
    "places",
]

MAX_SIZE = 100
"""Tasks on a page: the most that the protocol allows (A2A 3.1.4)."""

_MAY_PASS = (A2AConnectionError, A2ATimeoutError, InvalidAgentResponseError, A2AHTTPError)
"""Errors that a later round may not meet, even if a single call would not be retried after them: a
bare HTTP status comes from a gateway, which may answer differently by then."""

_TRIES = 7
"""Attempts that the agent refuses with errors of its own, without one that succeeds, after which a
place is closed."""

_TRIES_OF_REFUSED = 3
"""The same if the agent has answered the message with such an error, too."""

_ANSWERS = 3
"""Reads of a finished task after which its place is closed, if the agent answered the message."""

_STAYS = (AuthenticationError, PermissionDeniedError)
"""Errors that the next round would meet, too: its credentials are the same."""


class GetTask(msgspec.Struct, frozen=True):
    """Get the task that the message was for, then call `Reconciliation.got` or `failed`."""

    task_id: str


class ListPage(msgspec.Struct, frozen=True, kw_only=True):
    """Get a page of tasks with histories, then call `Reconciliation.listed` or `failed`.

    Attributes:
        context_id: Only tasks of this context; None for all.
        since: Only tasks whose status is not older; None for all.
        page_token: Where the page begins; empty for the first one.
        size: Tasks on it at most.
    """

    context_id: str | None = None
    since: datetime | None = None
    page_token: str = ""
    size: int = MAX_SIZE


class Since(msgspec.Struct, frozen=True):
    """List the tasks that changed since the message was sent, page by page."""


class Place(msgspec.Struct, kw_only=True):
    """A place to search: a task or a list.

    Attributes:
        name: The place in the words of errors.
        ask: What to request.
        looks: How often it was read to its end.
        trouble: Why it could not be read, the last time that it could not.
        error: The error of the last round; None if there was none, or nothing to read.
        is_closed: Whether it is not read again, because that would fail again or show the same.
        is_cut_short: Whether there were more pages than may be read.
        refusals: Attempts in a row that the agent refused with errors of its own.
        answers: Reads that showed a task that takes no message.
    """

    name: str
    ask: GetTask | ListPage | Since
    looks: int = 0
    trouble: str = ""
    error: A2AError | None = None
    is_closed: bool = False
    is_cut_short: bool = False
    refusals: int = 0
    answers: int = 0

    def __str__(self) -> str:
        times = "" if self.looks == 1 else f", {self.looks} times"
        short = ", not all of them" if self.is_cut_short else ""
        if not self.trouble:
            return f"{self.name}{times}{short}"
        return f"{self.name}{times if self.looks else ''}{short} ({self.trouble})"

    def read(self, *, is_cut_short: bool) -> None:
        """Note that it was read to its end."""
        self.looks += 1
        self.error, self.is_cut_short, self.refusals = None, is_cut_short, 0

    def answered(self) -> None:
        """Note that it shows a task that takes no message, and close it after some of these."""
        self.answers += 1
        self.is_closed = self.is_answered

    def failed(self, error: A2AError, *, may_pass: bool, is_refused: bool = False) -> None:
        """Note that it could not be read, and decide whether it is read again.

        Args:
            error: The failure.
            may_pass: Whether the failure may be transient, whatever the error says.
            is_refused: Whether the agent answered the message with an error of its own, too.
        """
        self.trouble, self.error = error.message or type(error).__name__, error
        by_kind = isinstance(error, _MAY_PASS) and not isinstance(error, _STAYS)
        tries = max(1, len(error.attempts))
        self.refusals = self.refusals + tries if is_agents_own(error) else 0
        most = _TRIES_OF_REFUSED if is_refused else _TRIES
        is_hopeless = self.refusals >= most and not self.looks
        self.is_closed = is_hopeless or not (may_pass or error.transient or by_kind)

    @property
    def is_answered(self) -> bool:
        """Whether it was closed because it shows a finished task."""
        return self.answers >= _ANSWERS

    @property
    def is_list(self) -> bool:
        """Whether it is a list of tasks."""
        return not isinstance(self.ask, GetTask)

    def close_list(self) -> None:
        """Note that the agent has no list, if it is one."""
        if self.is_list:
            self.trouble, self.error = "the agent has no list of tasks", None
            self.is_closed = True


def places(message: Message, *, is_own_context: bool) -> Iterator[Place]:
    """Yield the places where the task of a message may be, in the order of the search."""
    if message.task_id:
        yield Place(name=f"task {message.task_id}", ask=GetTask(message.task_id))
    if message.context_id:
        name = f"the tasks of context {message.context_id}"
        yield Place(name=name, ask=ListPage(context_id=message.context_id))
    if is_own_context or not (message.context_id or message.task_id):
        yield Place(name="the tasks changed since the message was sent", ask=Since())


def has_no_list(error: A2AError, *, has_path: bool = True) -> bool:
    """Whether an error says that the agent has no list of tasks.

    Args:
        error: The error of the request for the list.
        has_path: Whether the list has a path of its own. If it has none, an unknown path means
            that no agent runs there, for example during a restart.
    """
    if isinstance(error, A2AHTTPError):
        return has_path and is_unknown_operation(error)
    return isinstance(error, UnsupportedOperationError) or is_unknown_operation(error)
