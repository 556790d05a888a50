"""Finding the task that a message made, where the reply to it was lost: what to ask next.

All of this is pure: `Reconciliation` is told what came back, and says what to do
(`Reconciliation.step`). `holdfast.reconciling` is the shell that does it.

Rules (A2A 3.1.3, 3.1.4, 3.4):
- A task is the message's if its history or its status holds the message, by its id. In a context
  that was made for this one message, every task is. In the list of a context, none of another
  context is: not every agent heeds what it is asked for.
- A look asks for the task that the message was for; then for the list of its context's tasks; or,
  where it names none that the agent knows, of those that changed since it was sent, by the agent's
  clock. Every page is read: there may be two tasks.
- A clock that is behind is reckoned with, and one that is ahead is not: who tells the time need
  not be who dates the tasks. So some looks, ever fewer of them, go by no time at all.
- Not found proves nothing. A history may leave messages out, a reply that is a message is in no
  list, a request may still be under way, stores may differ. So a look that finds nothing is
  repeated, until the time is over or the agent has said that there is nothing to be had. So it has
  where it fails in its own words, try after try, and never answered; and where it answered the
  message with an error, and shows that the task is over, or that there is none.
- A task that was seen is found, though there was no time for the rest of the pages.
- A search that was not finished proves even less, and says why it was not (`Unseen`). Of one that
  was, it is known that each place was read to its end when it was last looked at (`Absent`).
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, TypeAlias

import msgspec

from holdfast.errors import (
    A2AError,
    DeadlineExceededError,
    InvalidParamsError,
    LimitExceededError,
    TaskNotFoundError,
    UnsupportedOperationError,
)
from holdfast.model.types import Task
from holdfast.tasks.places import (
    MAX_SIZE,
    GetTask,
    ListPage,
    Place,
    Since,
    has_no_list,
    places,
)

if TYPE_CHECKING:
    from holdfast.model.requests import ListTasksResponse
    from holdfast.model.types import Message

__all__ = [
    "Absent",
    "Fetch",
    "Found",
    "FoundTwice",
    "GetTask",
    "ListPage",
    "LookAgain",
    "Reconciliation",
    "SearchReport",
    "SearchResult",
    "Unseen",
]

_NOT_BY_TIME = (InvalidParamsError, UnsupportedOperationError)
"""How agents say that they cannot list by time."""

_MARGIN_KNOWN = 5.0
"""Seconds before a message was sent from which on tasks may be its: dates have whole seconds."""

_MARGIN_UNKNOWN = 60.0
"""The same, as long as nothing is known of the agent's clock."""


class Fetch(msgspec.Struct, frozen=True):
    """Ask for the task that a list has shown; say `Reconciliation.fetched` or `not_fetched` then.

    A list leaves artifacts out.
    """

    task_id: str


class LookAgain(msgspec.Struct, frozen=True):
    """Nothing yet: wait, and say `Reconciliation.waited`.

    Attributes:
        looks: How many looks there were.
    """

    looks: int


class Found(msgspec.Struct, frozen=True):
    """The task that the message made."""

    task: Task


class FoundTwice(msgspec.Struct, frozen=True):
    """The message made more than one task."""

    tasks: tuple[Task, ...]


class Absent(msgspec.Struct, frozen=True):
    """Everywhere that it might be was read to the end, and it was not there by then."""


class Unseen(msgspec.Struct, frozen=True):
    """It was not found, and not everything was read.

    Attributes:
        why: What kept from that, and may not the next time. None where no more is to be had: the
            agent has no list, or one with more pages than may be read.
    """

    why: A2AError | None = None


SearchResult: TypeAlias = Found | Absent | Unseen
"""What a search comes to that does not find two tasks."""


class SearchReport(msgspec.Struct, frozen=True, kw_only=True):
    """A search that is over.

    Attributes:
        result: What it came to.
        looked_at: What was searched, in order, a line each.
        told: A sentence about it, where nothing was found.
    """

    result: SearchResult
    looked_at: tuple[str, ...]
    told: str


class Reconciliation:
    """Looks for what became of one message.

    Args:
        message: The message as it was sent.
        sent_at: When it was first sent, by the own clock, in seconds since the epoch.
        clock_skew: Seconds that the agent's clock is ahead of the own; None where not known.
        is_own_context: Whether its context was made for it, and nobody else has used it.
        has_list: Whether the agent may have a list of tasks.
        is_refused: Whether the agent answered the message, with an error that does not say
            whether it ran.
        max_pages: Pages to read in one look.

    Attributes:
        step: What to do next, or what came of it.
        seen: The task as a list has shown it, without artifacts, as soon as one has.
        has_list: Whether the agent may have a list of tasks, as far as that is known by now.
        clock_skew: Seconds that the agent's clock is ahead, as far as that is known by now.
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
        self._places = list(places(message, is_own_context=is_own_context))
        if not has_list:
            for place in self._places:
                place.close_list()
        self._looks = 0
        self._at = 0
        self._pages = 0
        self._size = MAX_SIZE
        self._tokens: set[str] = set()
        self._since: datetime | None = None
        self._matches: dict[str, Task] = {}
        self._late: A2AError | None = None
        self.seen: Task | None = None
        self.step: GetTask | ListPage | Fetch | LookAgain | Found | FoundTwice | Absent | Unseen
        self._look()

    @property
    def looked_at(self) -> tuple[str, ...]:
        """What was searched, in order, a line each."""
        return tuple(str(place) for place in self._places if place.looks or place.trouble)

    @property
    def error(self) -> A2AError | None:
        """What keeps from looking at a place; None where nothing does."""
        errors = [place.error for place in self._places if place.error is not None]
        return errors[-1] if errors else None

    def told(self, seconds: float) -> str:
        """Say in a sentence how a search ended that found nothing after so many seconds."""
        named = "; ".join(self.looked_at)
        why = self.step.why if isinstance(self.step, Unseen) else None
        if any(place.looks for place in self._places):
            if why is None:
                how = f"took {seconds:.3g} s and found nothing, which proves nothing"
            else:
                how = f"was not finished after {seconds:.3g} s: {why.message}"
            return f"The search of {named} {how}"
        if named:
            return f"The agent could not be searched: {named}"
        return "No search was made" if why is None else f"No search was made: {why.message}"

    def got(self, task: Task) -> None:
        """The task that the message was for."""
        self._place.read(is_cut_short=False)
        if self._is_ours(task):
            self.step = Found(task)
            return
        if self._is_refused and task.state.is_terminal:
            self._place.answered()
        self._next_place()

    def fetched(self, task: Task) -> None:
        """The task that a list has shown, whole."""
        listed = self.seen
        self.step = Found(task if listed is None or task.id == listed.id else listed)

    def not_fetched(self, error: A2AError) -> None:
        """It did not come; where that is to stay so, what the list has shown has to do."""
        may_pass = error.transient or isinstance(error, DeadlineExceededError)
        if not may_pass and self.seen is not None:
            self.step = Found(self.seen)
        elif self._late is not None:
            self.step = self._end(self._late)
        else:
            self._pause()

    def listed(self, page: ListTasksResponse, *, wall: float, agent_time: float | None) -> None:
        """The page that was asked for.

        Args:
            page: The page.
            wall: The time now by the own clock, in seconds since the epoch.
            agent_time: The time by the agent's, where it told it.
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
            self._since = self._begin_of_time()  # its clock is behind: some was left out
            self._tokens.clear()
            self.step = self._page()
        elif token and may_read_more and token not in self._tokens:
            self._tokens.add(token)
            self.step = msgspec.structs.replace(self._page(), page_token=token)
        else:
            if not self._is_aside:  # that may have no end
                self._place.read(is_cut_short=bool(token))
            self._next_place()

    def failed(self, error: A2AError, *, has_path: bool = True) -> None:
        """What was asked for did not come.

        Args:
            error: Why.
            has_path: Whether operations have paths of their own there; see `has_no_list`.
        """
        if isinstance(error, TaskNotFoundError) and isinstance(self.step, GetTask):
            self._place.read(is_cut_short=False)  # an answer, from a store that may be behind
            if self._is_refused:
                self._place.answered()
            self._next_place()
        elif isinstance(error, DeadlineExceededError):
            self._place.trouble = error.message
            if not self._place.looks:  # else what was read before counts
                self._place.error = error
            self._pause()
        elif isinstance(error, LimitExceededError) and self._place.is_list and self._size > 1:
            self._size //= 10  # histories are long there
            self._ask_place()
        elif self._is_aside:
            self._next_place()  # the next look by the clock says whether that is to last
        elif self._since is not None and not self._tokens and isinstance(error, _NOT_BY_TIME):
            self._place.ask = ListPage()  # an agent of 0.3 has no such filter
            self._ask_place()
        else:
            self._failed_here(error, has_path=has_path)
            self._next_place()

    def waited(self) -> None:
        """The wait is over: look again."""
        self._look()

    def finish(self, late: A2AError) -> None:
        """The search has had its time; ``late`` says so, where that was too short for a look.

        A task that was seen by then is asked for all the same.
        """
        if len(self._matches) > 1:
            self.step = FoundTwice(tuple(self._matches.values()))
        elif self.seen is not None and self._late is None:
            self._late = late
            self.step = Fetch(self.seen.id)
        else:
            self.step = self._end(late)

    def cut_short(self, why: A2AError) -> None:
        """The search may not go on."""
        self.step = Unseen(why)

    # ── Within ───────────────────────────────────────────────────────────────────────────────

    @property
    def _place(self) -> Place:
        return self._places[self._at]

    @property
    def _is_aside(self) -> bool:
        """Whether this look, the second, fourth, eighth and so on, leaves the time aside."""
        look = self._looks + 1
        return isinstance(self._place.ask, Since) and look > 1 and not look & (look - 1)

    def _failed_here(self, error: A2AError, *, has_path: bool) -> None:
        place = self._place
        if place.is_list and has_no_list(error, has_path=has_path):
            self.has_list = False
            place.close_list()
        else:  # a page that another one has named may be gone
            may_pass, is_refused = bool(self._tokens), self._is_refused
            place.failed(error, may_pass=may_pass, is_refused=is_refused)

    def _look(self) -> None:
        self._matches.clear()
        self._at = -1
        self._next_place()

    def _next_place(self) -> None:
        self._at += 1
        while self._at < len(self._places) and self._place.is_closed:
            self._at += 1
        if self._at < len(self._places):
            self._ask_place()
        else:
            self._conclude()

    def _ask_place(self) -> None:
        self._pages = 0
        self._tokens.clear()
        ask = self._place.ask
        goes_by_time = isinstance(ask, Since) and not self._is_aside
        self._since = self._begin_of_time() if goes_by_time else None
        self.step = ask if isinstance(ask, GetTask) else self._page()

    def _page(self) -> ListPage:
        ask = self._place.ask
        page = ask if isinstance(ask, ListPage) else ListPage(since=self._since)
        return msgspec.structs.replace(page, size=self._size)

    def _conclude(self) -> None:
        """What a look at all places comes to."""
        matches = tuple(self._matches.values())
        if len(matches) > 1:
            self.step = FoundTwice(matches)
        elif matches:
            self.step = Fetch(matches[0].id)
        elif all(place.is_closed for place in self._places):
            self.step = self._end(None)
        else:
            self._pause()

    def _end(self, late: A2AError | None) -> Absent | Unseen:
        """What the search came to that found nothing."""
        if self.error is not None:
            return Unseen(self.error)
        is_to_come = not all(place.looks or place.is_closed for place in self._places)
        if is_to_come or self.seen is not None:
            return Unseen(late)
        is_read = any(place.looks for place in self._places)
        is_cut_short = any(place.is_cut_short or place.is_answered for place in self._places)
        return Absent() if is_read and not is_cut_short else Unseen()

    def _pause(self) -> None:
        self._looks += 1
        self.step = LookAgain(self._looks)

    def _begin_of_time(self) -> datetime:
        """From when on, by the agent's clock, a task may be the message's."""
        if self.clock_skew is None:
            began = self._sent_at - _MARGIN_UNKNOWN
        else:
            began = self._sent_at + min(0.0, self.clock_skew) - _MARGIN_KNOWN
        return datetime.fromtimestamp(int(max(0.0, began)), UTC)

    def _is_ours(self, task: Task) -> bool:
        message = self._message
        if self._is_own_context and task.context_id == message.context_id:
            return True
        ask = self._place.ask
        asked = ask.context_id if isinstance(ask, ListPage) else None
        if asked is not None and task.context_id not in {None, "", asked}:
            return False
        said = (*task.history, task.status.message)
        return any(one is not None and one.message_id == message.message_id for one in said)
