"""The locations where the task of a message may be: a task or a list, and the results so far.

This module is pure; `holdfast._client.reconcile_search` uses it.
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
    "Since",
    "TaskLocation",
    "has_no_list",
    "task_locations",
]

MAX_SIZE = 100
"""Maximum page size of the protocol (A2A 3.1.4)."""

_TRANSIENT = (A2AConnectionError, A2ATimeoutError, InvalidAgentResponseError, A2AHTTPError)
"""Errors that a later round may not get, although a single call is not retried after them: an HTTP
status without an A2A error is from a gateway, which may answer differently then."""

_MAX_REFUSALS = 7
"""Attempts that the agent itself refuses, without a successful one, after which a location is
closed."""

_MAX_REFUSALS_AFTER_REFUSAL = 3
"""The same if the agent has refused the message, too."""

_MAX_ANSWERS = 3
"""Reads of a finished task that close its location, if the agent refused the message."""

_PERMANENT = (AuthenticationError, PermissionDeniedError)
"""Errors that the next round would get, too: its credentials are the same."""


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


class TaskLocation(msgspec.Struct, kw_only=True):
    """A location to search: a task or a list.

    Attributes:
        name: Name of the location in errors.
        ask: The request to make.
        looks: Number of complete reads.
        trouble: Reason of the last failed read.
        error: Error of the last round; None if there was none, or nothing to read.
        is_closed: Whether it is not read again, because that would fail again or show the same.
        is_cut_short: Whether it has more pages than may be read.
        refusals: Consecutive attempts that the agent itself refused.
        answers: Reads that showed a task that accepts no message.
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
        return self._described(f" (read {self.looks} times)" if self.looks > 1 else "")

    @property
    def description(self) -> str:
        """The location, and what prevented a complete read of it, if anything did."""
        return self._described("")

    def _described(self, times: str) -> str:
        short = ", not all of them" if self.is_cut_short else ""
        trouble = f" ({self.trouble})" if self.trouble else ""
        return f"{self.name}{times}{short}{trouble}"

    def read(self, *, is_cut_short: bool) -> None:
        """Note a complete read."""
        self.looks += 1
        self.error, self.is_cut_short, self.refusals = None, is_cut_short, 0

    def answered(self) -> None:
        """Note a task that accepts no message, and close the location after several of them."""
        self.answers += 1
        self.is_closed = self.is_answered

    def failed(self, error: A2AError, *, may_pass: bool, is_refused: bool = False) -> None:
        """Note a failed read, and decide whether the location is read again.

        Args:
            error: The failure.
            may_pass: Whether the failure may be transient, whatever the error says.
            is_refused: Whether the agent refused the message, too.
        """
        self.trouble, self.error = error.message or type(error).__name__, error
        is_transient = may_pass or error.transient or isinstance(error, _TRANSIENT)
        if isinstance(error, _PERMANENT):
            is_transient = may_pass or error.transient
        attempts = max(1, len(error.attempts))
        self.refusals = self.refusals + attempts if is_agents_own(error) else 0
        limit = _MAX_REFUSALS_AFTER_REFUSAL if is_refused else _MAX_REFUSALS
        is_hopeless = self.refusals >= limit and not self.looks
        self.is_closed = is_hopeless or not is_transient

    @property
    def is_answered(self) -> bool:
        """Whether it was closed because it shows a finished task."""
        return self.answers >= _MAX_ANSWERS

    @property
    def is_list(self) -> bool:
        """Whether it is a list of tasks."""
        return not isinstance(self.ask, GetTask)

    def close_list(self) -> None:
        """Note that the agent has no list, if it is one."""
        if self.is_list:
            self.trouble, self.error = "the agent has no list of tasks", None
            self.is_closed = True


def task_locations(message: Message, *, is_own_context: bool) -> Iterator[TaskLocation]:
    """Yield the locations where the task of a message may be, in the order of the search."""
    if message.task_id:
        yield TaskLocation(name=f"task {message.task_id}", ask=GetTask(message.task_id))
    if message.context_id:
        name = f"the tasks of context {message.context_id}"
        yield TaskLocation(name=name, ask=ListPage(context_id=message.context_id))
    if is_own_context or not (message.context_id or message.task_id):
        yield TaskLocation(name="the tasks that changed since the message was sent", ask=Since())


def has_no_list(error: A2AError, *, has_path: bool = True) -> bool:
    """Return whether an error means that the agent has no list of tasks.

    Args:
        error: The error of the request for the list.
        has_path: Whether the list has its own path. Without one, an unknown path means that no
            agent runs there, for example during a restart.
    """
    if isinstance(error, A2AHTTPError):
        return has_path and is_unknown_operation(error)
    return isinstance(error, UnsupportedOperationError) or is_unknown_operation(error)
