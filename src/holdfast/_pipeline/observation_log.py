"""Log records of observations: their level, their text, and their fields.

Rules:
- DEBUG is for each step, INFO for what the client does about a failure, WARNING for what a person
  may have to look at. Nothing is logged as an error: the caller gets it as an exception.
- Bodies, headers and credentials are never logged.
- A record has the fields of its observation as attributes (``extra``), for formatters that write
  JSON. Fields that are not known are left out. ``docs/howto/observe.md`` lists the names.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from holdfast._pipeline import observations as event
from holdfast.errors import A2AError, OutcomeUnknownError

if TYPE_CHECKING:
    from holdfast._pipeline.observations import Observation

__all__ = ["log_observation", "log_record", "subject_fields"]

logger = logging.getLogger("holdfast")
logger.addHandler(logging.NullHandler())  # no output unless the program configures logging

_SIGNATURES = {
    "verified": "verified",
    "absent": "not signed",
    "invalid": "signed wrongly",
    "unverifiable": "not verified",
}
"""Outcomes of the verification of a card, as messages name them."""

_REASONS: dict[event.WaitReason, str] = {
    "backoff": "backoff",
    "retry_after": "Retry-After",
    "circuit": "open circuit",
    "concurrency": "concurrency limit",
    "reconnect": "backoff before a reconnect",
    "lease": "lease of another process; longer if that process is alive",
}
"""Reasons of waits, as messages name them."""


_STEPS = frozenset(
    {
        event.OperationStarted,
        event.RequestStarted,
        event.RequestFinished,
        event.AttemptStarted,
        event.AttemptFinished,
        event.EventReceived,
        event.WaitFinished,
        event.JournalWritten,
    }
)
"""Observations that are logged at DEBUG, or not at all: most of all observations."""


def log_observation(observation: Observation) -> None:
    """Log an observation under ``holdfast``."""
    if type(observation) not in _STEPS or logger.isEnabledFor(logging.DEBUG):
        _log_observation(observation)


def _log_observation(observation: Observation) -> None:
    match observation:
        case event.OperationStarted() | event.RequestStarted():
            log_record(observation, logging.DEBUG, "started")
        case event.OperationFinished():
            _log_operation(observation)
        case event.RequestFinished(attempts=attempts, duration=duration, error=error):
            log_record(
                observation,
                logging.DEBUG,
                "%s after %.3f s (attempts: %d)",
                _end(error),
                duration,
                attempts,
                attempts=attempts,
                duration_s=duration,
                error=error,
            )
        case event.AttemptStarted(number=number):
            log_record(observation, logging.DEBUG, "attempt %d started", number, attempt=number)
        case event.AttemptFinished(number=number, duration=duration, error=error):
            log_record(
                observation,
                logging.DEBUG,
                "attempt %d %s after %.3f s%s",
                number,
                _end(error),
                duration,
                f": {error}" if isinstance(error, A2AError) else "",
                attempt=number,
                duration_s=duration,
                error=error,
            )
        case event.CircuitChanged():
            _log_circuit(observation)
        case event.CardChecked():
            _log_card(observation)
        case event.ReconcileStarted() | event.Reconciled():
            _log_search(observation)
        case event.StreamInterrupted() | event.Reconnected() | event.GapDetected():
            _log_stream(observation)
        case _:
            _log_detail(observation)


def _log_operation(finished: event.OperationFinished) -> None:
    # A caller that treats all errors alike may not see that the message may have been executed.
    is_unknown = isinstance(finished.error, OutcomeUnknownError)
    log_record(
        finished,
        logging.WARNING if is_unknown else logging.DEBUG,
        "%s after %.3f s (attempts: %d)%s",
        "left by its caller" if finished.outcome == "left" else _end(finished.error),
        finished.duration,
        finished.attempts,
        f": {finished.error}" if is_unknown else "",
        outcome=finished.outcome,
        attempts=finished.attempts,
        retries=finished.retries,
        reconnects=finished.reconnects,
        duration_s=finished.duration,
        executed=finished.executed,
        state=None if finished.state is None else finished.state.name,
        error=finished.error,
    )


def _log_detail(observation: Observation) -> None:
    """Log a retry, a hedge, a wait or a step that the journal has recorded."""
    match observation:
        case event.RetryScheduled(number=number, wait=wait, reason=reason, error=error):
            log_record(
                observation,
                logging.INFO,
                "attempt %d failed with %s: %s; attempt %d follows in %.3f s (%s)",
                number - 1,
                type(error).__name__,
                error,
                number,
                wait,
                _REASONS[reason],
                attempt=number,
                wait_s=wait,
                wait_reason=reason,
                error=error,
            )
        case event.RetryStopped(reason=stopped, error=error):
            log_record(observation, logging.DEBUG, "no further attempt: %s", stopped, error=error)
        case event.HedgeStarted(delay=delay):
            log_record(
                observation,
                logging.DEBUG,
                "no reply for %.3f s: a second attempt is made",
                delay,
                wait_s=delay,
            )
        case event.WaitStarted(reason=reason, seconds=seconds):
            limit = "" if seconds is None else f" for {seconds:.3f} s"
            log_record(
                observation,
                logging.INFO if reason == "lease" else logging.DEBUG,
                "waiting%s (%s)",
                limit,
                _REASONS[reason],
                wait_s=seconds,
                wait_reason=reason,
            )
        case event.WaitFinished(reason=reason, duration=duration):
            log_record(
                observation,
                logging.DEBUG,
                "waited %.3f s (%s)",
                duration,
                _REASONS[reason],
                duration_s=duration,
                wait_reason=reason,
            )
        case event.JournalWritten(step=step, duration=duration, error=error):
            # A failure is a warning of the journal's own.
            log_record(
                observation,
                logging.DEBUG,
                "journal: %s %s in %.3f s",
                step,
                "recorded" if error is None else f"failed with {type(error).__name__}",
                duration,
                step=step,
                duration_s=duration,
                error=error,
            )
        case _:  # an event of a stream
            pass


def _log_stream(
    observation: event.StreamInterrupted | event.Reconnected | event.GapDetected,
) -> None:
    match observation:
        case event.StreamInterrupted(error=error):
            cause = "" if error is None else f" with {type(error).__name__}: {error}"
            log_record(
                observation,
                logging.INFO,
                "the stream of task %s was interrupted%s",
                observation.task_id,
                cause,
                error=error,
            )
        case event.Reconnected(number=number, error=error):
            log_record(
                observation,
                logging.INFO,
                "reconnected to task %s (reconnect %d)",
                observation.task_id,
                number,
                reconnects=number,
                error=error,
            )
        case event.GapDetected():
            log_record(
                observation,
                logging.WARNING,
                "status messages of task %s may be missing after a cut, the answer is not",
                observation.task_id,
            )


def _log_search(observation: event.ReconcileStarted | event.Reconciled) -> None:
    message_id = observation.message_id
    if isinstance(observation, event.Reconciled):
        task_id, duration = observation.task_id, observation.duration
        found = "was not found" if task_id is None else f"was found as task {task_id}"
        log_record(
            observation,
            logging.INFO,
            "message %s %s after %.3f s",
            message_id,
            found,
            duration,
            duration_s=duration,
            error=observation.error,
        )
        return
    seconds = observation.timeout
    text = "the reply to message %s was lost"
    if observation.request_id is None:  # an earlier call sent it, as the journal says
        text = "the outcome of message %s is unknown"
    text += ": searching for its task for up to %g s" if seconds else "; no time is left to search"
    arguments = (message_id, seconds) if seconds else (message_id,)
    log_record(
        observation, logging.INFO, text, *arguments, timeout_s=seconds, error=observation.error
    )


def _log_card(checked: event.CardChecked) -> None:
    verification = checked.verification
    is_doubtful = verification.outcome in {"invalid", "unverifiable"}
    log_record(
        checked,
        logging.WARNING if is_doubtful else logging.DEBUG,
        "the card is %s: %s",
        _SIGNATURES[verification.outcome],
        verification.reason or f"key {verification.key_id!r}",
        signature=verification.outcome,
        key_id=verification.key_id,
    )


def _log_circuit(changed: event.CircuitChanged) -> None:
    level, text = logging.INFO, "circuit closed"
    arguments: tuple[object, ...] = ()
    if changed.state == "open":
        level, text = logging.WARNING, "circuit open for %.3g s after %d consecutive failures"
        arguments = (changed.retry_after, changed.failures)
    elif changed.state == "half_open":
        text = "circuit half-open: one call probes the agent"
    log_record(
        changed,
        level,
        text,
        *arguments,
        circuit=changed.state,
        failures=changed.failures,
        retry_after_s=changed.retry_after,
    )


def log_record(
    observation: Observation,
    level: int,
    text: str,
    *arguments: object,
    error: BaseException | None = None,
    exc_info: bool = False,
    **fields: object,
) -> None:
    """Log a text about the subject of an observation, with its fields.

    Args:
        observation: The observation, or only its ids.
        level: Level of the record.
        text: The text, with placeholders for ``arguments``.
        arguments: Values of the placeholders.
        error: The error that the record is about; its facts are fields.
        exc_info: Whether the record has the traceback of the exception that is handled now.
        fields: Other fields; those that are None are left out.
    """
    if not logger.isEnabledFor(level):
        return
    is_of_operation = isinstance(observation, event.OperationStarted | event.OperationFinished)
    if is_of_operation or observation.request_id is None:
        subject = f"{observation.operation} {observation.operation_id}"
        target = observation.agent
    else:
        subject = f"{observation.method} {observation.request_id}"
        target = observation.endpoint or observation.agent
    template = f"%s%s: {text}"
    logger.log(
        level,
        template,
        subject,
        f" to {target}" if target else "",
        *arguments,
        exc_info=exc_info,
        extra=_known({**_error_fields(error), **fields, **subject_fields(observation)}),
    )


def subject_fields(observation: Observation) -> dict[str, Any]:
    """Return the fields of all records about an operation, as far as they are known."""
    return _known(
        {
            "operation_id": observation.operation_id,
            "parent_id": observation.parent_id,
            "request_id": observation.request_id,
            "operation": observation.operation,
            "method": observation.method,
            "agent": observation.agent or None,
            "endpoint": observation.endpoint,
            "message_id": observation.message_id,
            "task_id": observation.task_id,
            "context_id": observation.context_id,
        }
    )


def _known(fields: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}


def _error_fields(error: BaseException | None) -> dict[str, Any]:
    """Return the fields of an error."""
    if error is None:
        return {}
    fields: dict[str, Any] = {"error_type": type(error).__name__}
    if isinstance(error, A2AError):
        fields |= {
            "executed": error.executed,
            "transient": error.transient,
            "http_status": None if error.http_status is None else int(error.http_status),
        }
    return fields


def _end(error: BaseException | None) -> str:
    return "succeeded" if error is None else f"failed with {type(error).__name__}"
