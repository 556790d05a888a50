"""The availability of the agent of ``holdfast run``: its outages, and the reaction to them.

Rules: an outage begins with the first transient failure and ends with any answer of the agent, a
refusal included. During an outage no message is sent but, now and then, a probe, and no probe
while a call in flight reaches the agent anyway. After minutes of an outage the run ends: the next
run resumes what has a task. An agent that answers, and accepts no message for as long, is sent no
more messages; an agent that refuses the credentials is sent no more at once.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from holdfast._cli.batch.session import JournaledSession, was_not_sent
from holdfast._cli.errors import unreachable_reason
from holdfast._cli.options.values import shown_duration
from holdfast._model.operations import SEND_NAMES
from holdfast._pipeline.observations import AttemptFinished, AttemptStarted, RequestFinished
from holdfast.errors import (
    A2AConnectionError,
    A2AError,
    A2AHTTPError,
    A2ATimeoutError,
    AuthenticationError,
    DeadlineExceededError,
    JournalError,
    KeyConflictError,
    RateLimitedError,
)

if TYPE_CHECKING:
    from pathlib import Path

    from holdfast._cli.batch.session import StoredJournal
    from holdfast._cli.environment import CliEnvironment
    from holdfast._cli.options.settings import Settings
    from holdfast._cli.output.base import Output
    from holdfast._client.answer import Answer
    from holdfast._pipeline.observations import Observation
    from holdfast.types import AgentCard, Event, Task

__all__ = ["MAX_OUTAGE_S", "Outage", "WatchedSession", "is_unreachable"]

MAX_OUTAGE_S = 300.0
"""Seconds of an outage after which the run ends."""

_MAX_REFUSALS = 10
"""Consecutive messages that an agent refuses for good before it is sent no more."""

_MIN_PROBE_DELAY_S, _MAX_PROBE_DELAY_S = 1.0, 30.0
"""Seconds before the first probe, and the maximum; each delay is twice the one before."""

_REPORT_OUTAGE_AFTER_S = 3.0
"""Seconds for which the agent must be unreachable before a warning says so."""

_RECENT_FAILURE_S = 60.0
"""Seconds after a failure within which the next attempt is expected."""


def is_unreachable(error: A2AError) -> bool:
    """Return whether an error means that the agent is unreachable for now."""
    return (
        error.transient
        and isinstance(error, A2AConnectionError | A2ATimeoutError | A2AHTTPError)
        and not isinstance(error, RateLimitedError | DeadlineExceededError)
    )


class Outage:
    """The outages of an agent, and whether it accepts messages.

    Attributes:
        error: The last failure; None if the agent has answered since.
        sending: The calls by which messages are being sent, by their ids.
    """

    def __init__(self) -> None:
        self.error: A2AError | None = None
        self.sending = set[str]()
        self._since = self._failed = 0.0
        self._read_failed = -_RECENT_FAILURE_S
        self._not_sent = False
        self._not_sent_since = self._not_sent_last = 0.0
        self._refused = 0
        self._pause = 0.0
        self._limited_until = 0.0
        self._is_reported = False

    @property
    def seconds(self) -> float:
        """The seconds of the current outage; 0 if there is none."""
        return 0.0 if self.error is None else _now() - self._since

    @property
    def limited_seconds(self) -> float:
        """The seconds for which the agent has asked to send no message (Retry-After)."""
        return max(0.0, self._limited_until - _now())

    @property
    def is_over_long(self) -> bool:
        """Return whether the outage is too long to wait for its end."""
        return self.error is not None and self._failed - self._since >= MAX_OUTAGE_S

    @property
    def is_on(self) -> bool:
        """Return whether no message is to be sent but a probe."""
        return self.error is not None or (
            self._not_sent and _now() - self._not_sent_last < _RECENT_FAILURE_S
        )

    def change(self) -> str | None:
        """Return what has changed since the last report, for people to read; None for nothing."""
        if self.error is None and self._is_reported:
            self._is_reported = False
            return "the agent answers again"
        if (
            self.error is not None
            and self.seconds >= _REPORT_OUTAGE_AFTER_S
            and not self._is_reported
        ):
            self._is_reported = True
            wait = f"waiting up to {shown_duration(MAX_OUTAGE_S)} until it answers"
            return f"the agent cannot be reached: {unreachable_reason(self.error)}; {wait}"
        return None

    def note_failure(self, error: A2AError, *, is_read: bool = True) -> None:
        """Record a failed attempt."""
        if isinstance(error, DeadlineExceededError):
            return  # which says nothing about the agent
        if error.retry_after is not None:
            self._limited_until = _now() + error.retry_after
        if not is_unreachable(error):
            self.note_answer()
            return
        self._failed = _now()
        if self.error is None:
            self._since = self._failed
        if is_read:
            self._read_failed = self._failed
        self.error = error

    def note_answer(self) -> None:
        """Record an answer of the agent."""
        if self.error is not None:
            self.error, self._read_failed = None, -_RECENT_FAILURE_S
            if not self._not_sent:
                self._pause = 0.0

    def note_outcome(self, outcome: Answer | Exception) -> None:
        """Record the outcome of a message."""
        if isinstance(outcome, KeyConflictError | JournalError):
            return  # the agent was not called
        if not isinstance(outcome, A2AError) or not was_not_sent(outcome):
            self._not_sent, self._refused = False, 0
            self._pause = 0.0
        elif outcome.transient and not isinstance(outcome, A2AHTTPError):
            return  # the outage lasts until the agent answers
        elif outcome.transient:
            self._not_sent_last = _now()
            if not self._not_sent:
                self._not_sent, self._not_sent_since = True, self._not_sent_last
        else:
            self._refused += 1

    def stops_sending_after(self, outcome: Answer | Exception) -> bool:
        """Return whether no more messages are to be sent after an outcome."""
        if isinstance(outcome, AuthenticationError) or self._refused >= _MAX_REFUSALS:
            return True
        seconds = self._not_sent_last - self._not_sent_since
        return self._not_sent and seconds >= MAX_OUTAGE_S

    def pause(self) -> float:
        """Return the seconds to wait before the next probe; longer each time."""
        self._pause = min(max(_MIN_PROBE_DELAY_S, 2 * self._pause), _MAX_PROBE_DELAY_S)
        return self._pause

    def expects_answer(self) -> bool:
        """Return whether a call in flight will soon detect that the agent is reachable."""
        return self.error is not None and _now() - self._read_failed < _RECENT_FAILURE_S


class WatchedSession(JournaledSession):
    """A session with a journal that observes the outages of its agent.

    Args:
        environment: The environment of the command.
        settings: The settings of the command.
        reference: Where the card is.
        output: Where results and errors go.
        journal: The journal; closed with the session.

    Attributes:
        outage: The outages of the agent.
    """

    def __init__(
        self,
        environment: CliEnvironment,
        settings: Settings,
        reference: str | Path,
        output: Output,
        journal: StoredJournal,
    ) -> None:
        super().__init__(environment, settings, reference, output, journal)
        self.outage = Outage()

    def _on_event(self, event: Event, task: Task | None, card: AgentCard) -> None:
        super()._on_event(event, task, card)
        self.outage.note_answer()

    def _on_observation(self, observation: Observation) -> None:
        super()._on_observation(observation)
        outage, is_read = self.outage, observation.method not in SEND_NAMES
        if isinstance(observation, AttemptFinished):
            if isinstance(observation.error, A2AError):
                outage.note_failure(observation.error, is_read=is_read)
        elif isinstance(observation, AttemptStarted) and not is_read:
            outage.sending.add(observation.request_id or "")
        elif isinstance(observation, RequestFinished):
            outage.sending.discard(observation.request_id or "")
            if observation.error is None and observation.attempts:
                outage.note_answer()


def _now() -> float:
    return asyncio.get_running_loop().time()
