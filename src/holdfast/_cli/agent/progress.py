"""Reports of what a command waits for, and of what the client does about failures.

Rules: a short wait is silent; a long one is reported after a few seconds, and then seldom, on
standard error, with or without a terminal. Each report is one line without advice for programs.
Commands that follow a stream report each cut of it; other commands report only an outage.
"""

from __future__ import annotations

import asyncio
import contextlib
import copy
import math
from typing import TYPE_CHECKING, Protocol

from holdfast._cli.errors import one_line
from holdfast._cli.options.masking import masked_reference
from holdfast._cli.options.values import shown_duration
from holdfast._cli.output.base import Notice
from holdfast._model.operations import GET_AGENT_CARD, GET_TASK, SEND_NAMES, SUBSCRIBE_TO_TASK
from holdfast._pipeline.observations import (
    AttemptFinished,
    AttemptStarted,
    Reconciled,
    ReconcileStarted,
    Reconnected,
    RequestFinished,
    RetryScheduled,
)
from holdfast.errors import A2AError

if TYPE_CHECKING:
    from pathlib import Path

    from holdfast._cli.output.base import Output
    from holdfast._pipeline.observations import Observation
    from holdfast.types import AgentCard, Task

__all__ = ["ProgressReporter", "WaitReport"]

_SILENT_S = 3.0
"""Seconds before a wait is first reported."""

_REPEATED_S = 30.0
"""Seconds between two reports, also of different waits."""

_FAILURES_TO_REPORT = 2
"""Consecutive failures after which the agent is reported as unreachable."""


class Watched(Protocol):
    """The parts of a session that its reports name."""

    @property
    def reference(self) -> str | Path: ...

    @property
    def card(self) -> AgentCard | None: ...

    @property
    def task(self) -> Task | None: ...

    @property
    def follows(self) -> bool: ...


class ProgressReporter:
    """Reports the waits and the failures of a session.

    Args:
        session: The session: its agent and its task.
        output: Where to report.
        max_attempts: Maximum number of attempts of a call.
        reports_replies: Whether to report the wait for a reply; not where many are in flight.
    """

    def __init__(
        self, session: Watched, output: Output, *, max_attempts: int, reports_replies: bool
    ) -> None:
        self._session = session
        self._output = output
        self._max_attempts = max_attempts
        self._reports_replies = reports_replies
        self._waiting = WaitReport(output)
        self._failures = 0  # consecutive failures of subscriptions
        self._last_cut: A2AError | None = None  # the last reported one

    def await_card(self) -> None:
        """Report the wait for the agent's card, if it is long."""
        reference = masked_reference(str(self._session.reference))
        self._waiting.begin(f"the agent card of {reference}")

    def await_key(self, key: str) -> None:
        """Report the wait for a call of another process, if it is long."""
        self._waiting.begin(f"the earlier call of the key {key!r}, which another process may hold")

    def end_wait(self) -> None:
        """Note that the wait has ended."""
        self._waiting.end()

    def observe(self, observation: Observation) -> None:
        """Report why nothing happens for a while, whether or not there is a terminal."""
        if self._reports_replies:
            self._await(observation)
        if (line := self._line(observation)) is not None:
            self._output.emit(Notice.warning(line))

    def note_answer(self) -> None:
        """Note that the agent answers; report it after an outage that was reported."""
        self._waiting.end()
        self._end_outage()

    def _line(self, observation: Observation) -> str | None:
        """Return the report of an observation; None if there is none."""
        match observation:
            case ReconcileStarted():
                return _search_line(observation)
            case Reconciled():
                return None if observation.task_id is None else _found_line(observation)
            case RetryScheduled():
                return self._retry_line(observation)
            case _ if not self._session.follows:
                return self._outage_line(observation)
            case Reconnected():
                return _reconnected_line(observation) if self._was_cut(observation) else None
            case _:
                cut = _cut_by(observation)
                return None if cut is None else _reconnecting_line(observation, cut)

    def _await(self, observation: Observation) -> None:
        """Report a long wait for the card or a reply, until the task is known."""
        if isinstance(observation, AttemptFinished | RequestFinished):
            self._waiting.end()
        elif not isinstance(observation, AttemptStarted):
            return
        elif observation.method == GET_AGENT_CARD.name:
            self.await_card()
        elif self._session.task is None:
            sent = "the message" if observation.method in SEND_NAMES else observation.method
            agent = masked_reference(observation.endpoint or str(self._session.reference))
            self._waiting.begin(f"the reply from {agent} to {sent}")

    def _outage_line(self, observation: Observation) -> str | None:
        """Return that the agent is unreachable, once per outage; a cut alone is not reported."""
        task = self._session.task
        if isinstance(observation, Reconnected):
            self._end_outage()
        elif task is not None and (cut := _cut_by(observation)) is not None:
            self._failures += 1
            if self._failures == _FAILURES_TO_REPORT:
                return _outage_line(observation, cut, task.id)
        return None

    def _end_outage(self) -> None:
        if self._failures >= _FAILURES_TO_REPORT:
            self._output.emit(Notice.warning("the agent answers again"))
        self._failures = 0

    def _retry_line(self, retry: RetryScheduled) -> str:
        """Return the report of a retry; polls of a task that is waited for are unbounded."""
        session = self._session
        if retry.method != GET_TASK.name or session.task is None:
            return _retry_line(retry, self._max_attempts)
        offers = session.card is not None and bool(session.card.capabilities.streaming)
        if session.follows and offers:
            return _reconnecting_line(retry, retry.error)
        return _retry_line(retry, None)

    def _was_cut(self, observation: Reconnected) -> bool:
        """Return whether a stream was cut; a stream also ends when its task waits for a person.

        An observation has the last failure of its stream, however long ago that was.
        """
        task = self._session.task
        is_new = observation.error is not None and observation.error is not self._last_cut
        self._last_cut = observation.error
        return is_new or task is None or not task.state.is_interrupted


class WaitReport:
    """Reports the wait of a command on standard error, after some seconds and then now and then.

    Args:
        output: Where the wait is reported.
        shows_elapsed: Whether a report says how long nothing has arrived.
    """

    def __init__(self, output: Output, *, shows_elapsed: bool = False) -> None:
        self._subject: str | None = None
        self._shows_elapsed = shows_elapsed
        self._began = -math.inf
        self._output = output
        self._reported = -math.inf
        self._timer: asyncio.TimerHandle | None = None

    def begin(self, subject: str) -> None:
        """Note that a wait begins; an earlier wait ends."""
        self.end()
        self._subject = subject
        loop = asyncio.get_running_loop()
        self._began = loop.time()
        report_at = max(loop.time() + _SILENT_S, self._reported + _REPEATED_S)
        self._timer = loop.call_at(report_at, self._report)

    def end(self) -> None:
        """Note that the wait has ended."""
        self._subject = None
        if self._timer is not None:
            self._timer.cancel()

    def _report(self) -> None:
        loop = asyncio.get_running_loop()
        self._reported = loop.time()
        self._timer = loop.call_later(_REPEATED_S, self._report)
        text = f"waiting for {self._subject}"
        if self._shows_elapsed:
            elapsed = shown_duration(round(self._reported - self._began))
            text = f"{text}; none has arrived for {elapsed}"
        with contextlib.suppress(OSError):  # the next write reports it
            self._output.emit(Notice("Progress", text))


def _cut_by(observation: Observation) -> A2AError | None:
    """Return the error of an attempt to resume a stream after which another attempt follows."""
    if (
        isinstance(observation, AttemptFinished)
        and observation.method == SUBSCRIBE_TO_TASK.name
        and isinstance(observation.error, A2AError)
        and observation.error.transient
    ):
        return observation.error
    return None


# ── Lines ────────────────────────────────────────────────────────────────────────────────────


def _retry_line(retry: RetryScheduled, max_attempts: int | None) -> str:
    """Say that an attempt failed and another one follows.

    Args:
        retry: The attempt that follows.
        max_attempts: How many attempts there are at most; None if more may follow.
    """
    wait = shown_duration(math.ceil(retry.wait * 10) / 10)
    count = "" if max_attempts is None else f" (attempt {retry.number} of {max_attempts})"
    return f"{_failure(retry, retry.error)}; retrying in {wait}{count}"


def _reconnected_line(observation: Reconnected) -> str:
    """Say that a stream that was cut was resumed."""
    cause = "the stream was cut"
    if observation.error is not None:
        cause = f"{cause}: {_without_excerpt(observation.error)}"
    return (
        f"{cause}; reconnected to task {observation.task_id}; status messages sent in between may "
        "be missing"
    )


def _reconnecting_line(failed: Observation, error: A2AError) -> str:
    """Say that a stream that was cut cannot be resumed yet."""
    return f"the stream was cut, and cannot be resumed yet: {_failure(failed, error)}; retrying"


def _outage_line(failed: Observation, error: A2AError, task_id: str) -> str:
    """Say that the agent cannot be reached while a task is waited for."""
    return f"{_failure(failed, error)}; waiting for task {task_id} until the agent answers again"


def _search_line(started: ReconcileStarted) -> str:
    """Say that the reply to a message is lost and that its task is searched for."""
    cause = started.error.__cause__
    cut = f"{started.method}: no reply came"
    if isinstance(cause, A2AError):
        cut = _failure(started, cause)
    search = "no time is left to search for its task"
    if started.timeout:
        search = f"searching for its task for up to {shown_duration(started.timeout)}"
    return (
        f"{cut}; the reply to message {started.message_id} is lost: {search}; the message is not "
        "sent again"
    )


def _found_line(reconciled: Reconciled) -> str:
    """Say that the search for a message's task has succeeded."""
    return (
        f"the search found task {reconciled.task_id}, created by message {reconciled.message_id}"
    )


def _failure(failed: Observation, error: A2AError) -> str:
    """Return what failed and why; the A2A method is named once."""
    line, method = _without_excerpt(error), failed.method or failed.operation
    return line if line.startswith(f"{method} ") else f"{method}: {line}"


def _without_excerpt(error: A2AError) -> str:
    """Return an error in one line, without what the agent answered."""
    error = copy.copy(error)
    error.excerpt = None
    return one_line(error)
