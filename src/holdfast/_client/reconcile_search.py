"""The search for the task of a message whose reply was lost: which request to make next.

This module is pure: `Reconciliation` takes the replies, and decides the next step
(`Reconciliation.step`). `holdfast._client.reconcile` is the shell that makes the requests.

Rules (A2A 3.1.3, 3.1.4, 3.4):
- A task belongs to the message if its history or its status contains the message's id. In a
  context that was made for this one message, every task belongs to it. In the list of a context,
  a task of another context does not: some agents ignore the filter.
- One round of the search gets the task that the message was for; then it lists the tasks of its
  context; or, if the message names no context that the agent knows, the tasks that changed since
  the message was sent, by the agent's clock. Every page is read: there may be two tasks.
- An agent's clock that is behind is corrected for; one that is ahead is not, because the server
  that answers may not be the one that dates the tasks. So some rounds, ever fewer, list without a
  time.
- Not finding the task proves nothing: a history may omit messages, a reply that is a message is
  in no list, the request may still be in flight, stores may differ. So a round that finds nothing
  is repeated until the deadline, or until the agent has shown that more rounds are useless: it
  refused several attempts with errors of its own and never answered one; or it answered the
  message with an error, and shows that the task has ended or does not exist.
- A task that was seen counts as found, even if there was no time for the remaining pages.
- A search that was not finished proves even less, and reports why (`Inconclusive`). After a
  finished one, each location was read to its end in the last round (`Absent`).
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, TypeAlias

import msgspec

from holdfast._client.task_locations import (
    MAX_SIZE,
    GetTask,
    ListPage,
    Since,
    TaskLocation,
    has_no_list,
    task_locations,
)
from holdfast._policy.task_ownership import has_message
from holdfast.errors import (
    A2AError,
    DeadlineExceededError,
    InvalidParamsError,
    LimitExceededError,
    TaskNotFoundError,
    UnsupportedOperationError,
)
from holdfast.types import Task, TaskState

if TYPE_CHECKING:
    from holdfast.types import ListTasksResponse, Message

__all__ = [
    "Absent",
    "Duplicate",
    "Fetch",
    "Found",
    "GetTask",
    "Inconclusive",
    "ListPage",
    "Reconciliation",
    "RetryLater",
    "SearchReport",
    "SearchResult",
]

_NOT_BY_TIME = (InvalidParamsError, UnsupportedOperationError)
"""Errors of agents that cannot list by time."""

_MARGIN_KNOWN = 5.0
"""Seconds before a message was sent from which tasks may be its: dates have whole seconds."""

_MARGIN_UNKNOWN = 60.0
"""The same, while the agent's clock is unknown."""


class Fetch(msgspec.Struct, frozen=True):
    """Get the task that a list has shown, then call `Reconciliation.fetched` or `not_fetched`.

    A list omits artifacts.
    """

    task_id: str


class RetryLater(msgspec.Struct, frozen=True):
    """Nothing was found yet: wait, then call `Reconciliation.waited`.

    Attributes:
        rounds: The number of rounds so far.
    """

    rounds: int


class Found(msgspec.Struct, frozen=True):
    """The task that the message created."""

    task: Task


class Duplicate(msgspec.Struct, frozen=True):
    """The message created more than one task."""

    tasks: tuple[Task, ...]


class Absent(msgspec.Struct, frozen=True):
    """Every location was read to its end, and the task was not there at that time."""


class Inconclusive(msgspec.Struct, frozen=True):
    """The task was not found, and not every location was read.

    Attributes:
        error: The error that prevented it, and may not occur the next time. None if no location
            can be read further: the agent has no list, or one with more pages than may be read.
    """

    error: A2AError | None = None


SearchResult: TypeAlias = Found | Duplicate | Absent | Inconclusive
"""The result of a search."""


class SearchReport(msgspec.Struct, frozen=True, kw_only=True):
    """A search that has ended.

    Attributes:
        result: The result of the search.
        seen: The task as a list has shown it, where it could not be fetched, or was not found.
        searched: The locations that were searched, in order, a line each.
        summary: A sentence about the search, if nothing was found.
    """

    result: SearchResult
    seen: Task | None
    searched: tuple[str, ...]
    summary: str


class Reconciliation:
    """Searches for the task of one message.

    Args:
        message: The message as it was sent.
        sent_at: When it was first sent, by the client's clock, in seconds since the epoch.
        clock_skew: Seconds that the agent's clock is ahead of the client's; None if unknown.
        is_own_context: Whether its context was made for this message, and used by no other.
        has_list: Whether the agent may have a list of tasks.
        is_refused: Whether the agent answered the message with an error that does not say
            whether the message was executed.
        max_pages: Pages to read in one round.

    Attributes:
        step: What to do next, or the result.
        seen: The task as a list has shown it, without artifacts; None until then.
        has_list: Whether the agent may have a list of tasks, as far as known.
        clock_skew: Seconds that the agent's clock is ahead, as far as known.
    """

    def __init__(
        self,
        message: Message,
        *,
        sent_at: float,
        clock_skew: float | None = None,
        is_own_context: bool = False,
        has_list: bool = True,
        is_refused: bool = False,
        max_pages: int = 20,
    ) -> None:
        self.clock_skew = clock_skew
        self.has_list = has_list
        self._message = message
        self._sent_at = sent_at
        self._is_own_context = is_own_context
        self._is_refused = is_refused
        self._max_pages = max_pages
        self._locations = list(task_locations(message, is_own_context=is_own_context))
        if not has_list:
            for location in self._locations:
                location.close_list()
        self._rounds = 0
        self._location_index = 0
        self._pages = 0
        self._size = MAX_SIZE
        self._tokens: set[str] = set()
        self._since: datetime | None = None
        self._matches: dict[str, Task] = {}
        self._deadline_error: A2AError | None = None
        self.seen: Task | None = None
        self.step: (
            GetTask | ListPage | Fetch | RetryLater | Found | Duplicate | Absent | Inconclusive
        )
        self._begin_round()

    @property
    def searched(self) -> tuple[str, ...]:
        """The locations that were searched, in order, a line each."""
        return tuple(
            str(location) for location in self._locations if location.looks or location.trouble
        )

    @property
    def error(self) -> A2AError | None:
        """The last error of a location that could not be read; None if there is none."""
        errors = [location.error for location in self._locations if location.error is not None]
        return errors[-1] if errors else None

    def summary(self, seconds: float, *, is_begun: bool) -> str:
        """Return a sentence about a search that found nothing in so many seconds.

        Args:
            seconds: How long it took.
            is_begun: Whether a request was made.
        """
        searched = [location for location in self._locations if location.looks or location.trouble]
        named = "; ".join(location.description for location in searched)
        error = self.step.error if isinstance(self.step, Inconclusive) else None
        looks = max(location.looks for location in self._locations)
        if looks and error is None:
            searches = "1 search" if looks == 1 else f"{looks} searches"
            return (
                f"{searches} in {seconds:.3g} s found no task of the message, which does not "
                f"prove that it was not executed; searched: {named}"
            )
        if looks and error is not None:
            return f"The search of {named} was not finished after {seconds:.3g} s: {error.message}"
        if named:
            failed = [location for location in self._locations if location.trouble]
            return "; ".join(
                f"The search of {location.name} failed: {location.trouble}" for location in failed
            )
        if is_begun and error is not None:
            return f"The search was not finished after {seconds:.3g} s: {error.message}"
        return "No search was made" if error is None else f"No search was made: {error.message}"

    def got(self, task: Task) -> None:
        """Take the task that the message continues."""
        self._location.read(is_cut_short=False)
        if self._is_ours(task):
            self.step = Found(task)
            return
        if self._is_refused and task.state.is_terminal:
            self._location.answered()
        self._next_location()

    def fetched(self, task: Task) -> None:
        """Take the complete task that a list has shown."""
        listed = self.seen
        self.step = Found(task if listed is None or task.id == listed.id else listed)

    def not_fetched(self, error: A2AError) -> None:
        """Take the failure of that request; after a permanent one, use the task of the list.

        A list shows no artifacts, so a completed task of it does not have the answer.
        """
        may_pass = error.transient or isinstance(error, DeadlineExceededError)
        if not may_pass and self.seen is not None:
            self.step = Inconclusive(error) if _lacks_answer(self.seen) else Found(self.seen)
        elif self._deadline_error is not None:
            self.step = self._end(self._deadline_error)
        else:
            self._pause()

    def listed(self, page: ListTasksResponse, *, wall: float, agent_time: float | None) -> None:
        """Take the page that was requested.

        Args:
            page: The page.
            wall: The time now by the client's clock, in seconds since the epoch.
            agent_time: The time by the agent's clock, if its reply has it.
        """
        self._pages += 1
        for task in page.tasks:
            if self._is_ours(task):
                self._matches[task.id] = self.seen = task
        if agent_time is not None:
            self.clock_skew = agent_time - wall
        token = page.next_page_token
        may_read_more = self._pages < self._max_pages
        if may_read_more and self._since is not None and self._begin_of_time() < self._since:
            self._since = self._begin_of_time()  # the agent's clock is behind: tasks were omitted
            self._tokens.clear()
            self.step = self._page()
        elif token and may_read_more and token not in self._tokens:
            self._tokens.add(token)
            self.step = msgspec.structs.replace(self._page(), page_token=token)
        else:
            if not self._lists_without_time:  # a list without a time may have no end
                self._location.read(is_cut_short=bool(token))
            self._next_location()

    def failed(self, error: A2AError, *, has_path: bool = True) -> None:
        """Take the failure of the request.

        Args:
            error: The failure.
            has_path: Whether operations have paths of their own; see `has_no_list`.
        """
        if isinstance(error, TaskNotFoundError) and isinstance(self.step, GetTask):
            self._location.read(is_cut_short=False)  # an answer, but the store may lag
            if self._is_refused:
                self._location.answered()
            self._next_location()
        elif isinstance(error, DeadlineExceededError):
            self._location.trouble = error.message
            if not self._location.looks:  # otherwise the results of the earlier rounds count
                self._location.error = error
            self._pause()
        elif isinstance(error, LimitExceededError) and self._location.is_list and self._size > 1:
            self._size //= 10  # histories are long
            self._request_location()
        elif self._lists_without_time:
            self._next_location()  # the next round by time shows whether the failure lasts
        elif self._since is not None and not self._tokens and isinstance(error, _NOT_BY_TIME):
            self._location.ask = ListPage()  # an agent of 0.3 has no such filter
            self._request_location()
        else:
            self._failed_here(error, has_path=has_path)
            self._next_location()

    def waited(self) -> None:
        """Begin the next round."""
        self._begin_round()

    def finish(self, late: A2AError) -> None:
        """End the search at its deadline; ``late`` is the error if there was no time for a round.

        A task that was seen by then is requested all the same.
        """
        if len(self._matches) > 1:
            self.step = Duplicate(tuple(self._matches.values()))
        elif self.seen is not None and self._deadline_error is None:
            self._deadline_error = late
            self.step = Fetch(self.seen.id)
        else:
            self.step = self._end(late)

    def cut_short(self, error: A2AError) -> None:
        """End the search because of an error."""
        self.step = Inconclusive(error)

    # ── Internal ───────────────────────────────────────────────────────────────────────────────

    @property
    def _location(self) -> TaskLocation:
        return self._locations[self._location_index]

    @property
    def _lists_without_time(self) -> bool:
        """Whether this round (the second, fourth, eighth and so on) lists without a time."""
        round_number = self._rounds + 1
        return (
            isinstance(self._location.ask, Since)
            and round_number > 1
            and not round_number & (round_number - 1)
        )

    def _failed_here(self, error: A2AError, *, has_path: bool) -> None:
        location = self._location
        if location.is_list and has_no_list(error, has_path=has_path):
            self.has_list = False
            location.close_list()
        else:  # a page may have disappeared since the previous page named it
            may_pass, is_refused = bool(self._tokens), self._is_refused
            location.failed(error, may_pass=may_pass, is_refused=is_refused)

    def _begin_round(self) -> None:
        self._matches.clear()
        self._location_index = -1
        self._next_location()

    def _next_location(self) -> None:
        self._location_index += 1
        while self._location_index < len(self._locations) and self._location.is_closed:
            self._location_index += 1
        if self._location_index < len(self._locations):
            self._request_location()
        else:
            self._conclude()

    def _request_location(self) -> None:
        self._pages = 0
        self._tokens.clear()
        ask = self._location.ask
        goes_by_time = isinstance(ask, Since) and not self._lists_without_time
        self._since = self._begin_of_time() if goes_by_time else None
        self.step = ask if isinstance(ask, GetTask) else self._page()

    def _page(self) -> ListPage:
        ask = self._location.ask
        page = ask if isinstance(ask, ListPage) else ListPage(since=self._since)
        return msgspec.structs.replace(page, size=self._size)

    def _conclude(self) -> None:
        """Decide what follows a round through all locations."""
        matches = tuple(self._matches.values())
        if len(matches) > 1:
            self.step = Duplicate(matches)
        elif matches:
            self.step = Fetch(matches[0].id)
        elif all(location.is_closed for location in self._locations):
            self.step = self._end(None)
        else:
            self._pause()

    def _end(self, late: A2AError | None) -> Absent | Inconclusive:
        """Return the result of a search that found nothing."""
        if self.error is not None:
            return Inconclusive(self.error)
        is_to_come = not all(location.looks or location.is_closed for location in self._locations)
        if is_to_come or self.seen is not None:
            return Inconclusive(late)
        is_read = any(location.looks for location in self._locations)
        is_cut_short = any(
            location.is_cut_short or location.is_answered for location in self._locations
        )
        return Absent() if is_read and not is_cut_short else Inconclusive()

    def _pause(self) -> None:
        self._rounds += 1
        self.step = RetryLater(self._rounds)

    def _begin_of_time(self) -> datetime:
        """Return the earliest time, by the agent's clock, of a task of the message."""
        if self.clock_skew is None:
            began = self._sent_at - _MARGIN_UNKNOWN
        else:
            began = self._sent_at + min(0.0, self.clock_skew) - _MARGIN_KNOWN
        return datetime.fromtimestamp(int(max(0.0, began)), UTC)

    def _is_ours(self, task: Task) -> bool:
        message = self._message
        if self._is_own_context and task.context_id == message.context_id:
            return True
        ask = self._location.ask
        context_id = ask.context_id if isinstance(ask, ListPage) else None
        if context_id is not None and task.context_id not in {None, "", context_id}:
            return False
        return has_message(task, message.message_id)


def _lacks_answer(task: Task) -> bool:
    """Return whether a task is completed, and nothing in it is an answer."""
    is_completed = task.state is TaskState.COMPLETED
    return is_completed and not task.artifacts and task.status.message is None
