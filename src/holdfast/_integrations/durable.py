"""Shared by the integrations with durable engines: keys of steps, and errors worth a retry."""

from __future__ import annotations

import hashlib

from holdfast.errors import (
    A2AConnectionError,
    A2AError,
    A2ATimeoutError,
    CallEndedError,
    CircuitOpenError,
    DeadlineExceededError,
    DuplicateTasksError,
    JournalError,
    KeyConflictError,
    OutcomeUnknownError,
    QueueFullError,
    RateLimitedError,
    ReconnectError,
    TaskTerminalError,
)

__all__ = ["may_succeed_later", "step_key"]

_MAX_KEY_CHARACTERS = 512

_CONNECTION_ERRORS = (
    A2AConnectionError,
    A2ATimeoutError,
    CircuitOpenError,
    DeadlineExceededError,
    QueueFullError,
    RateLimitedError,
    ReconnectError,
)
"""Errors after which a later attempt may still get the answer of a known task."""

_TRANSIENT_JOURNAL_REASONS = frozenset(
    {"unusable", "full", "locked", "unreachable", "exists", "held", "finished", "taken_over"}
)
"""Reasons of a `JournalError` that a later attempt may not have."""


def step_key(engine: str, workflow: str, run: str, step: str) -> str:
    """Return the key of a step: the same in all its repetitions, and different from other steps'.

    Args:
        engine: Name of the engine.
        workflow: Id of the workflow.
        run: Id of its run; empty if a workflow has one run.
        step: Id of the step in the run.
    """
    key = "/".join(part for part in (engine, workflow, run, step) if part)
    if len(key) <= _MAX_KEY_CHARACTERS:
        return key
    digest = hashlib.blake2b(key.encode(), digest_size=16).hexdigest()
    return "/".join(part for part in (engine, "…", run, digest) if part)


def may_succeed_later(error: A2AError, task_id: str | None, *, has_journal: bool) -> bool:
    """Return whether a later attempt of a step may succeed; no attempt sends a message again.

    Args:
        error: The error of an attempt.
        task_id: Id of the agent's task, if known.
        has_journal: Whether a later attempt can resume the call from a journal.
    """
    match error:
        case TaskTerminalError() | KeyConflictError() | CallEndedError() | DuplicateTasksError():
            return False
        case JournalError():
            return error.reason in _TRANSIENT_JOURNAL_REASONS
        case OutcomeUnknownError():
            return has_journal and error.search_error is not None  # a retry searches again
        case _ if error.executed is False:
            return error.transient
        case DeadlineExceededError() if has_journal:
            return True  # a retry waits for the holder of the call, or resumes it
        case _:
            return task_id is not None and isinstance(error, _CONNECTION_ERRORS)
