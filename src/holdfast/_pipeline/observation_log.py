"""Log records of observations: their level, their text, and their fields.

Rules:
- Bodies, headers and credentials are never logged.
- A record has the fields of its observation as attributes (``extra``), for formatters that write
  JSON. Fields that are not known are left out. ``docs/howto/observe.md`` lists the names.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from holdfast._model.operations import SUBSCRIBE_TO_TASK
from holdfast._pipeline.observations import (
    AttemptFailed,
    AttemptStarted,
    CallFinished,
    CardChecked,
    CircuitChanged,
    Reconciled,
    ReconcileStarted,
    Reconnected,
    RequestFinished,
    RetryScheduled,
)
from holdfast.errors import A2AError, TaskNotFoundError, UnsupportedOperationError

if TYPE_CHECKING:
    from holdfast._pipeline.observations import Observation

__all__ = ["log_observation"]

logger = logging.getLogger("holdfast")
logger.addHandler(logging.NullHandler())  # no output unless the program configures logging

_SIGNATURES = {
    "verified": "verified",
    "absent": "not signed",
    "invalid": "signed wrongly",
    "unverifiable": "not verified",
}
"""Outcomes of the verification of a card, as messages name them."""


def log_observation(observation: Observation) -> None:
    """Log an observation under ``holdfast``."""
    match observation:
        case AttemptStarted(number=number):
            _log(logging.DEBUG, observation, "attempt %d started", number, attempt=number)
        case AttemptFailed(number=number, duration=duration, error=error):
            # A refused subscription means that the task is over: the stream fetches it.
            is_answer = observation.operation == SUBSCRIBE_TO_TASK.name and isinstance(
                error, UnsupportedOperationError | TaskNotFoundError
            )
            _log(
                logging.INFO if is_answer else logging.WARNING,
                observation,
                "attempt %d failed after %.3f s: %s: %s",
                number,
                duration,
                type(error).__name__,
                error,
                attempt=number,
                duration_s=duration,
                error=error,
            )
        case RetryScheduled(number=number, wait=wait, error=error):
            _log(
                logging.INFO,
                observation,
                "attempt %d follows in %.3f s",
                number,
                wait,
                attempt=number,
                wait_s=wait,
                error=error,
            )
        case CircuitChanged():
            _log_circuit(observation)
        case Reconnected(task_id=task_id, number=number, error=error):
            _log(
                logging.INFO,
                observation,
                "reconnected to task %s (reconnect %d)",
                task_id,
                number,
                task_id=task_id,
                reconnects=number,
                error=error,
            )
        case ReconcileStarted():
            _log_search(observation)
        case Reconciled(message_id=message_id, task_id=task_id, duration=duration):
            found = "was not found" if task_id is None else f"was found as task {task_id}"
            _log(
                logging.WARNING,
                observation,
                "message %s, whose reply was lost, %s after %.3f s",
                message_id,
                found,
                duration,
                message_id=message_id,
                task_id=task_id,
                duration_s=duration,
            )
        case CardChecked():
            _log_card(observation)
        case (
            RequestFinished(attempts=attempts, duration=duration, error=error)
            | CallFinished(attempts=attempts, duration=duration, error=error)
        ):
            _log(
                logging.DEBUG,
                observation,
                "%s %s after %.3f s (attempts: %d)",
                "call" if isinstance(observation, CallFinished) else "request",
                "succeeded" if error is None else f"failed with {type(error).__name__}",
                duration,
                attempts,
                attempts=attempts,
                duration_s=duration,
                error=error,
            )
        case _:
            pass


def _log_search(started: ReconcileStarted) -> None:
    message_id, seconds = started.message_id, started.timeout
    text = "the reply to message %s was lost: searching for its task for up to %g s"
    arguments: tuple[object, ...] = (message_id, seconds)
    if not seconds:
        text = "the reply to message %s was lost, and no time is left to search for its task"
        arguments = (message_id,)
    _log(
        logging.WARNING,
        started,
        text,
        *arguments,
        message_id=message_id,
        timeout_s=seconds,
        error=started.error,
    )


def _log_card(checked: CardChecked) -> None:
    verification = checked.verification
    is_doubtful = verification.outcome in {"invalid", "unverifiable"}
    _log(
        logging.WARNING if is_doubtful else logging.DEBUG,
        checked,
        "the card is %s: %s",
        _SIGNATURES[verification.outcome],
        verification.reason or f"key {verification.key_id!r}",
        signature=verification.outcome,
        key_id=verification.key_id,
    )


def _log_circuit(changed: CircuitChanged) -> None:
    level, text = logging.INFO, "circuit closed"
    arguments: tuple[object, ...] = ()
    if changed.state == "open":
        level, text = logging.WARNING, "circuit open for %.3g s after %d consecutive failures"
        arguments = (changed.retry_after, changed.failures)
    elif changed.state == "half_open":
        text = "circuit half-open: one call probes the agent"
    _log(
        level,
        changed,
        text,
        *arguments,
        circuit=changed.state,
        failures=changed.failures,
        retry_after_s=changed.retry_after,
    )


def _log(
    level: int,
    observation: Observation,
    text: str,
    *arguments: object,
    error: BaseException | None = None,
    **fields: object,
) -> None:
    """Log a text about the request of an observation, with fields; None is left out."""
    if not logger.isEnabledFor(level):
        return
    operation, agent = observation.operation, observation.agent
    request_id = observation.request_id or None
    subject_fields = {"operation": operation, "request_id": request_id, "agent": agent}
    fields = {**_error_fields(error), **fields, **subject_fields}
    subject = operation if request_id is None else f"{operation} {request_id}"
    target = "" if agent is None else f" to {agent}"
    template = f"%s%s: {text}"
    logger.log(
        level,
        template,
        subject,
        target,
        *arguments,
        extra={name: value for name, value in fields.items() if value is not None},
    )


def _error_fields(error: BaseException | None) -> dict[str, Any]:
    """Return the fields of an error."""
    if error is None:
        return {}
    fields: dict[str, Any] = {"error_type": type(error).__name__}
    if isinstance(error, A2AError):
        fields |= {
            "executed": error.executed,
            "transient": error.transient,
            "task_id": error.task_id,
            "http_status": error.http_status,
        }
    return fields
