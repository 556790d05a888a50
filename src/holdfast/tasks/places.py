"""Where the task of a message may be: what to ask for there, and how far that was looked at.

All of this is pure, and what `holdfast.tasks.reconcile` is made of.
"""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

import msgspec

from holdfast.errors import (
    A2AConnectionError,
    A2AError,
    A2AHTTPError,
    A2ATimeoutError,
    AuthenticationError,
    InternalError,
    InvalidAgentResponseError,
    PermissionDeniedError,
    UnsupportedOperationError,
)
from holdfast.wire.status import is_unknown_there

if TYPE_CHECKING:
    from collections.abc import Iterator

    from holdfast.model.types import Message

__all__ = [
    "MAX_SIZE",
    "GetTask",
    "ListPage",
    "Place",
    "Since",
    "has_no_list",
    "is_own_word",
    "places",
]

MAX_SIZE = 100
"""Tasks on a page: the most that the protocol allows (A2A 3.1.4)."""

_MAY_PASS = (A2AConnectionError, A2ATimeoutError, InvalidAgentResponseError, A2AHTTPError)
"""What a later look need not meet, whether or not a single call would be tried again for it: a
bare HTTP status is the word of something on the way, which may say another one by then."""

_GATEWAY = frozenset({408, 425, 429, 502, 503, 504})
"""HTTP statuses that say that the agent was not reached, or asks to come later."""

_TRIES = 7
"""Tries that a place refuses in the agent's own words, and none that succeeds, until nothing
speaks for another answer to the next one."""

_TRIES_OF_REFUSED = 3
"""The same where the agent has answered the message in the same way."""

_ANSWERS = 3
"""Looks at a task that cannot take a message any more, where the agent answered the message."""

_STAYS = (AuthenticationError, PermissionDeniedError)
"""What it would meet all the same: its credentials are those of this one."""


class GetTask(msgspec.Struct, frozen=True):
    """Ask for the task that the message was for; say `Reconciliation.got` or `failed` then."""

    task_id: str


class ListPage(msgspec.Struct, frozen=True, kw_only=True):
    """Ask for a page of tasks with histories; say `Reconciliation.listed` or `failed` then.

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
    """Look through the tasks that changed since the message was sent, page by page."""


class Place(msgspec.Struct, kw_only=True):
    """Somewhere to look.

    Attributes:
        name: As errors name it.
        ask: What to ask for.
        looks: How often it was looked at to the end.
        trouble: Why it could not be looked at, the last time that it could not.
        error: What kept from looking at it the last time; None where nothing did, and where there
            is nothing to be looked at.
        is_closed: Whether it is not to be looked at again: that would fail once more, or show the
            same.
        is_cut_short: Whether there were more pages than may be read.
        refusals: Tries in a row that the agent refused in its own words.
        answers: Looks that showed a task that takes no message.
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
        """Notes that it was looked at."""
        self.looks += 1
        self.error, self.is_cut_short, self.refusals = None, is_cut_short, 0

    def answered(self) -> None:
        """Notes that it shows a task that takes no message, and closes it after some of these."""
        self.answers += 1
        self.is_closed = self.is_answered

    def failed(self, error: A2AError, *, may_pass: bool, is_refused: bool = False) -> None:
        """Notes that it could not be looked at, and whether it is to be again.

        Args:
            error: Why.
            may_pass: Whether that need not last, whatever the error says.
            is_refused: Whether the agent has answered the message in its own words, too.
        """
        self.trouble, self.error = error.message or type(error).__name__, error
        by_kind = isinstance(error, _MAY_PASS) and not isinstance(error, _STAYS)
        tries = max(1, len(error.attempts))
        self.refusals = self.refusals + tries if is_own_word(error) else 0
        most = _TRIES_OF_REFUSED if is_refused else _TRIES
        is_hopeless = self.refusals >= most and not self.looks
        self.is_closed = is_hopeless or not (may_pass or error.transient or by_kind)

    @property
    def is_answered(self) -> bool:
        """Whether it was closed because of what it shows."""
        return self.answers >= _ANSWERS

    @property
    def is_list(self) -> bool:
        """Whether a list of tasks is asked for there."""
        return not isinstance(self.ask, GetTask)

    def close_list(self) -> None:
        """Notes that there is nothing to look at, if it is a list."""
        if self.is_list:
            self.trouble, self.error = "the agent has no list of tasks", None
            self.is_closed = True


def places(message: Message, *, is_own_context: bool) -> Iterator[Place]:
    """Where the task of a message may be, in the order to look."""
    if message.task_id:
        yield Place(name=f"task {message.task_id}", ask=GetTask(message.task_id))
    if message.context_id:
        name = f"the tasks of context {message.context_id}"
        yield Place(name=name, ask=ListPage(context_id=message.context_id))
    if is_own_context or not (message.context_id or message.task_id):
        yield Place(name="the tasks changed since the message was sent", ask=Since())


def is_own_word(error: A2AError) -> bool:
    """Whether it is the agent itself that fails, as far as can be seen, and not the way to it."""
    if isinstance(error, A2AHTTPError):
        return error.http_status not in _GATEWAY and not is_unknown_there(error)
    return isinstance(error, InternalError | InvalidAgentResponseError)


def has_no_list(error: A2AError, *, has_path: bool = True) -> bool:
    """Whether an agent that was asked for a list says that it has none.

    Args:
        error: What it says.
        has_path: Whether a list has a path of its own. Where it has none, nobody is behind a path
            that is unknown: what restarts is not reached for a while.
    """
    if isinstance(error, A2AHTTPError):
        return has_path and is_unknown_there(error)
    return isinstance(error, UnsupportedOperationError) or is_unknown_there(error)
