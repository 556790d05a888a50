"""The texts of errors and progress, one line each: what happened, without advice for programs."""

from __future__ import annotations

import copy
import math
from typing import TYPE_CHECKING, cast

from holdfast import errors
from holdfast._cli.values import masked_reference, shown_duration
from holdfast._pipeline.interfaces import CHECK_ADDRESS
from holdfast._wire.security import ADVICE

if TYPE_CHECKING:
    from holdfast._cli.errors import CommandState
    from holdfast._pipeline.listeners import (
        AttemptFailed,
        Reconciled,
        ReconcileStarted,
        Reconnected,
        RetryScheduled,
    )
    from holdfast.errors import A2AError

__all__ = [
    "SEARCH",
    "as_told",
    "away",
    "bare",
    "found",
    "inside",
    "is_about_address",
    "not_canceled",
    "over_limit",
    "reconnected",
    "reconnecting",
    "reply_lost",
    "required",
    "retrying",
    "searching",
    "timed_out",
    "unauthorized",
    "undeclared",
    "waiting_out",
    "with_state",
    "withheld",
    "without_advice",
    "without_check",
]

SEARCH = "reconcile"
"""The name of the deadline of the search for a lost reply, which the caller did not set."""


def retrying(retry: RetryScheduled, tries: int | None) -> str:
    """Say that an attempt failed and another one follows, in one line.

    Args:
        retry: The attempt that follows.
        tries: How many attempts there are at most; None if more may follow.
    """
    told = copy.copy(retry.error)
    told.excerpt = None
    wait = shown_duration(math.ceil(retry.wait * 10) / 10)
    count = "" if tries is None else f" (attempt {retry.number} of {tries})"
    return f"{_failure(retry.operation, told)}; trying again in {wait}{count}"


def reconnected(observation: Reconnected) -> str:
    """Say that a stream that was cut was resumed, in one line."""
    what = "the stream was cut"
    if observation.error is not None:
        told = copy.copy(observation.error)
        told.excerpt = None
        what = f"{what}: {bare(told)}"
    return (
        f"{what}; reconnected to task {observation.task_id}; status messages sent in between may "
        "be missing"
    )


def reconnecting(failed: AttemptFailed | RetryScheduled) -> str:
    """Say that a stream that was cut cannot be resumed yet, in one line."""
    told = copy.copy(failed.error)
    told.excerpt = None
    return (
        f"the stream was cut, and cannot be resumed yet: {_failure(failed.operation, told)}; "
        "trying again"
    )


def waiting_out(failed: AttemptFailed, task_id: str) -> str:
    """Say that the agent cannot be reached while a task is waited for, in one line."""
    told = copy.copy(failed.error)
    told.excerpt = None
    return (
        f"{_failure(failed.operation, told)}; waiting for task {task_id} until the agent answers "
        "again"
    )


def searching(started: ReconcileStarted) -> str:
    """Say that the reply to a message is lost and that its task is searched for, in one line."""
    told = copy.copy(started.error.__cause__)
    why = f"{started.operation}: no reply came"
    if isinstance(told, errors.A2AError):
        told.excerpt = None
        why = _failure(started.operation, told)
    search = "no time is left to search for its task"
    if started.timeout:
        search = f"searching for its task for up to {shown_duration(started.timeout)}"
    return (
        f"{why}; the reply to message {started.message_id} is lost: {search}; the message is not "
        "sent again"
    )


def found(reconciled: Reconciled) -> str:
    """Say that the search for a message's task has found it, in one line."""
    return (
        f"the search found task {reconciled.task_id}, which message {reconciled.message_id} made"
    )


def away(error: A2AError) -> str:
    """Say why the agent cannot be reached, in one line, without the attempts."""
    told = copy.copy(error)
    told.excerpt = told.retry_stopped_reason = None
    return bare(told)


def as_told(error: A2AError, _situation: CommandState) -> str:
    """Return an error in one line, without the hint, and without facts that its reason repeats."""
    told, reason = copy.copy(error), error.retry_stopped_reason or ""
    told.other_version = None
    if f"{len(error.attempts) - 1} retries" in reason:
        told.attempts = ()
    if error.retry_after is not None and f"{error.retry_after:g} s" in reason:
        told.retry_after = None
    return str(told)


def _failure(operation: str, error: A2AError) -> str:
    """Return what failed and why; the operation is named once."""
    told = bare(error)
    return told if told.startswith(f"{operation} ") else f"{operation}: {told}"


def bare(error: A2AError) -> str:
    """Return an error in one line, without its attempts, which the caller of this describes."""
    told = copy.copy(error)
    told.attempts, told.retry_after, told.retry_stopped_reason = (), None, None
    return str(told)


def timed_out(error: A2AError, situation: CommandState) -> str:
    """Say which timeout expired, and what was known then."""
    seconds = situation.settings.timeout
    if isinstance(error, errors.DeadlineExceededError) and error.timeout < seconds - 1:
        seconds = error.timeout  # a cancel has a shorter one
    limit = f"the timeout of {shown_duration(seconds)} expired"
    if isinstance(error, errors.DeadlineExceededError) and error.deadline == SEARCH:
        within = shown_duration(error.timeout)
        limit = f"the reply was lost, and the search for the task did not finish within {within}"
    if isinstance(error, errors.OutcomeUnknownError):
        return (
            f"{limit}; the outcome of message {error.message_id} is unknown; it was not sent again"
        )
    if situation.task is not None:
        seen = f"task {situation.task.id} was last seen {situation.task.state}"
        return f"{limit}; {seen}{_since_then(error)}"
    if situation.card is None:
        where = masked_reference(str(situation.reference))
        return f"{limit}; the agent's card was still awaited from {where}{_since_then(error)}"
    return limit


def not_canceled(error: A2AError, _situation: CommandState) -> str:
    """Say that a cancellation was not confirmed."""
    return f"{error.message}{_since_then(error)}"


def with_state(error: A2AError, situation: CommandState) -> str:
    """Return an error in one line, with the state of the task."""
    state = "" if situation.task is None else f"; the task is {situation.task.state}"
    return f"{as_told(error, situation)}{state}"


def _since_then(error: A2AError) -> str:
    """Return the failure that lasted until the timeout expired; empty if there was none."""
    failure = error.__cause__
    while isinstance(failure, errors.DeadlineExceededError):
        failure = failure.__cause__
    if not isinstance(failure, errors.A2AError) or isinstance(failure, errors.OutcomeUnknownError):
        return ""  # the reply was lost before the timeout, not because of it
    return f"; since then: {bare(failure)}"


def reply_lost(error: A2AError, _situation: CommandState) -> str:
    """Say that the outcome of a message is unknown."""
    message_id = cast("errors.OutcomeUnknownError", error).message_id
    cause = error.__cause__
    if isinstance(cause, errors.A2AError):
        why = bare(cause)
    elif error.attempts:
        why = "its reply was lost"
    else:  # of another process, known from a journal
        why = (
            "it may have been sent, and the process that recorded it ended before a reply was "
            "recorded"
        )
    return f"the outcome of message {message_id} is unknown: {why}; it was not sent again"


def withheld(error: A2AError, _situation: CommandState) -> str:
    """Say that an interface gets no credentials."""
    where = cast("errors.CredentialOriginError", error).origin
    return (
        f"the agent's interface is at {where}, which is not where the card came from; nothing "
        "was sent there"
    )


def inside(error: A2AError, _situation: CommandState) -> str:
    """Say that an address is in a network that is too private."""
    address = cast("errors.NetworkPolicyError", error).address
    return (
        f"{error.agent} resolves to {address}, which a card, a catalog or a redirect must not "
        "name (SSRF protection); nothing was sent there"
    )


def required(error: A2AError, situation: CommandState) -> str:
    """Say which extensions the agent requires."""
    uris = cast("errors.ExtensionSupportRequiredError", error).extensions
    if not uris:  # the agent itself reported it
        return as_told(error, situation)
    return f"the agent requires the extension {', '.join(uris)}; nothing was sent"


def undeclared(error: A2AError, _situation: CommandState) -> str:
    """Say which extensions the agent does not declare."""
    uris = cast("errors.ExtensionNotSupportedError", error).extensions
    return f"the agent's card does not declare the extension {', '.join(uris)}; nothing was sent"


def over_limit(error: A2AError, _situation: CommandState) -> str:
    """Say which limit was exceeded, without how a program raises it."""
    told = copy.copy(error)
    which = cast("errors.LimitExceededError", error).which
    advice = f"; if that is right, raise the limit with Limits({which}=…)"  # for programs
    told.message = error.message.replace(advice, "")
    return str(told)


def without_check(error: A2AError, situation: CommandState) -> str:
    """Return an HTTP error in one line, without the advice for programs: the hint replaces it."""
    told = copy.copy(error)
    what, found, _ = error.message.partition(CHECK_ADDRESS)
    told.message = f"{what}{found.partition(':')[0]}"
    return as_told(told, situation)


def unauthorized(error: A2AError, _situation: CommandState) -> str:
    """Say which credentials the agent needs, without how a program passes them."""
    told = copy.copy(error)
    told.message = error.message.partition(ADVICE)[0]  # what follows is for programs
    return str(told)


def without_advice(error: A2AError, situation: CommandState) -> str:
    """Say what is wrong with a card, without what a program would do about it."""
    told = as_told(error, situation)
    return told.partition(". ")[0] if is_about_address(error, situation) else told


def is_about_address(error: A2AError, situation: CommandState) -> bool:
    """Whether a readable card names an address that cannot be called."""
    field = getattr(error, "field", None) or ""
    return situation.card is not None and (field == "url" or field.endswith(".url"))
