"""What ``holdfast run`` knows of an agent that takes nothing: since when, and what to do then.

Rules: an agent is away from the first failure that may pass on, until it answers anything: a
refusal, too. While it is away, no message is begun but, now and then, one to try with, and none
where what is under way asks for it anyway. Away for minutes, all is left as it is: whatever has a
task is gone on with by the next run. An agent that answers, and takes no message for as long, is
sent no more; and one that does not take the credentials, at once.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from holdfast._cli.batch.session import JournaledSession, was_not_sent
from holdfast._model.operations import SEND_NAMES
from holdfast._pipeline.listeners import AttemptFailed, AttemptStarted, RequestFinished
from holdfast.errors import (
    A2AConnectionError,
    A2AError,
    A2AHTTPError,
    A2ATimeoutError,
    AuthenticationError,
    DeadlineExceededError,
    JournalError,
    RateLimitedError,
    RunItemChangedError,
)

if TYPE_CHECKING:
    from pathlib import Path

    from holdfast._cli.environment import CliEnvironment
    from holdfast._cli.options.settings import Settings
    from holdfast._cli.output.base import Output
    from holdfast._client.answer import Answer
    from holdfast._journal.sqlite import SqliteJournal
    from holdfast._pipeline.listeners import Observation
    from holdfast.types import AgentCard, Event, Task

__all__ = ["LONGEST_OUTAGE", "Outage", "WatchedSession", "is_away"]

LONGEST_OUTAGE = 300.0
"""Seconds for which an agent may be away, before it is waited for no longer."""

_REFUSALS = 10
"""Messages in a row that an agent refuses for good, before it is sent no more."""

_FIRST, _LONGEST = 1.0, 30.0
"""Seconds before the first message to try with, and most; in between they double."""

_RECENT = 60.0
"""Seconds after something failed in which the next try is expected."""


def is_away(error: A2AError) -> bool:
    """Whether an agent that fails in this way was not reached, and may be later."""
    return (
        error.transient
        and isinstance(error, A2AConnectionError | A2ATimeoutError | A2AHTTPError)
        and not isinstance(error, RateLimitedError | DeadlineExceededError)
    )


class Outage:
    """Whether the agent is away, and whether it takes messages.

    Attributes:
        error: What failed last; None where nothing has since the agent answered.
        sending: The calls by which messages are being sent, by their ids.
    """

    def __init__(self) -> None:
        self.error: A2AError | None = None
        self.sending = set[str]()
        self._since = self._failed = 0.0
        self._read_failed = -_RECENT
        self._not_sent = False
        self._not_sent_since = self._not_sent_last = 0.0
        self._refused = 0
        self._pause = 0.0

    @property
    def seconds(self) -> float:
        """For how long the agent has been away; 0 where it is not."""
        return 0.0 if self.error is None else _now() - self._since

    @property
    def is_over_long(self) -> bool:
        """Whether it has been away for so long that it is waited for no more."""
        return self.error is not None and self._failed - self._since >= LONGEST_OUTAGE

    @property
    def is_on(self) -> bool:
        """Whether no message is to be begun but to try with."""
        return self.error is not None or (
            self._not_sent and _now() - self._not_sent_last < _RECENT
        )

    def failed(self, error: A2AError, *, is_read: bool = True) -> None:
        """Takes in that a try failed."""
        if isinstance(error, DeadlineExceededError):
            return  # which tells nothing of the agent
        if not is_away(error):
            self.answered()
            return
        self._failed = _now()
        if self.error is None:
            self._since = self._failed
        if is_read:
            self._read_failed = self._failed
        self.error = error

    def answered(self) -> None:
        """Takes in that the agent answered."""
        if self.error is not None:
            self.error, self._read_failed = None, -_RECENT
            if not self._not_sent:
                self._pause = 0.0

    def saw(self, outcome: Answer | Exception) -> None:
        """Takes in what came of a message."""
        if isinstance(outcome, RunItemChangedError | JournalError):
            return  # the agent was not asked
        if not isinstance(outcome, A2AError) or not was_not_sent(outcome):
            self._not_sent, self._refused = False, 0
            self._pause = 0.0
        elif outcome.transient and not isinstance(outcome, A2AHTTPError):
            return  # it is away until it answers
        elif outcome.transient:
            self._not_sent_last = _now()
            if not self._not_sent:
                self._not_sent, self._not_sent_since = True, self._not_sent_last
        else:
            self._refused += 1

    def has_ended_with(self, outcome: Answer | Exception) -> bool:
        """Whether no more are to be sent, after this came of a message."""
        if isinstance(outcome, AuthenticationError) or self._refused >= _REFUSALS:
            return True
        seconds = self._not_sent_last - self._not_sent_since
        return self._not_sent and seconds >= LONGEST_OUTAGE

    def pause(self) -> float:
        """Seconds to wait before the next message to try with; longer each time."""
        self._pause = min(max(_FIRST, 2 * self._pause), _LONGEST)
        return self._pause

    def is_asked_for(self) -> bool:
        """Whether what is under way finds out soon whether the agent is back."""
        return self.error is not None and _now() - self._read_failed < _RECENT


class WatchedSession(JournaledSession):
    """An agent and a journal, and whether the agent is away.

    Args:
        world: What the command runs in.
        settings: What it was told.
        reference: Where the card is.
        output: Where it says things.
        journal: The journal; closed with the session.

    Attributes:
        outage: Of the agent.
    """

    def __init__(
        self,
        world: CliEnvironment,
        settings: Settings,
        reference: str | Path,
        output: Output,
        journal: SqliteJournal,
    ) -> None:
        super().__init__(world, settings, reference, output, journal)
        self.outage = Outage()

    def _saw(self, event: Event, task: Task | None, card: AgentCard) -> None:
        super()._saw(event, task, card)
        self.outage.answered()

    def _observed(self, observation: Observation) -> None:
        super()._observed(observation)
        outage, is_read = self.outage, observation.operation not in SEND_NAMES
        if isinstance(observation, AttemptFailed):
            outage.failed(observation.error, is_read=is_read)
        elif isinstance(observation, AttemptStarted) and not is_read:
            outage.sending.add(observation.request_id)
        elif isinstance(observation, RequestFinished):
            outage.sending.discard(observation.request_id)
            if observation.error is None and observation.attempts:
                outage.answered()


def _now() -> float:
    return asyncio.get_running_loop().time()
