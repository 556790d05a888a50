"""The errors of calls: what each of them carries, and what a failure means for what was asked.

This is the one place that adds facts to the errors of a call. `AttemptLayer` completes the error
of each attempt, `DeadlineLayer` says what the failure of a whole call means, and `ObservedLayer`
completes what leaves the pipeline. Layers between them decide by these facts, and add none.

Whether a call was executed is decided by `was_executed` (`holdfast._policy.attempts`), from what
the last attempt shows and from the attempts before it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from holdfast._model.operations import SEND_OPERATIONS
from holdfast._pipeline.listeners import attempts_of
from holdfast._policy.attempts import was_executed
from holdfast._policy.deadline import last_error_text
from holdfast._policy.retry import is_outcome_unknown
from holdfast.errors import (
    A2AConnectionError,
    A2AError,
    DeadlineExceededError,
    Facts,
    InvalidAgentResponseError,
    LimitExceededError,
    OutcomeUnknownError,
)

if TYPE_CHECKING:
    from holdfast._pipeline.transport import AnyCall
    from holdfast.types import SendMessageRequest

__all__ = [
    "complete",
    "complete_attempt",
    "deadline_exceeded",
    "ended",
    "not_sent",
    "with_outcome",
]

E = TypeVar("E", bound=A2AError)


def complete(error: A2AError, call: AnyCall) -> None:
    """Add the names of a call to its error, and hide what its requests carry."""
    call.progress.call_group.secrets.hide_in(error)
    error.request_id = call.request_id
    error.traceparent = error.traceparent or _traceparent(call)


def complete_attempt(error: A2AError, call: AnyCall) -> None:
    """Complete the error of an attempt that has just failed.

    An error that says "not executed" speaks of its own attempt; an earlier one may have been.
    """
    error.traceparent = None  # which may be that of another call, as of a provider's
    complete(error, call)
    error.agent = error.agent or call.agent
    attempts = [attempt.executed for attempt in call.progress.attempts]
    error.executed = was_executed([*attempts, error.executed])


def not_sent(error: E) -> E:
    """Return the error of a preparation: whatever became of that, the call itself was not sent."""
    error.executed = False
    return error


def with_outcome(error: A2AError, call: AnyCall) -> A2AError:
    """Return the error of a call in terms of what was asked for.

    For a message whose reply was lost that is another error, an `OutcomeUnknownError`.
    """
    if call.operation not in SEND_OPERATIONS:
        return error
    if is_outcome_unknown(error):
        return _outcome_unknown(call, error)
    if _is_no_answer(error):
        error.message = f"{error.message}; {_may_have_run(call)}"
    return error


def deadline_exceeded(call: AnyCall) -> DeadlineExceededError:
    """Return the error of a call whose time is over."""
    deadline, progress = call.deadline, call.progress
    awaited = "; the agent's card had not arrived, and nothing else was sent"
    waiting = progress.card or progress
    queue = waiting.awaits or waiting.request.awaits
    waited = "" if queue is None else f" while waiting for a {queue}"
    return DeadlineExceededError(
        f"{call.operation.name} did not finish within the {deadline.name} timeout of "
        f"{deadline.shown}{waited}{'' if progress.card is None else awaited}"
        f"{last_error_text(attempts_of(call))}",
        deadline=deadline.name,
        timeout=deadline.timeout,
        **_ended(call),
    )


def ended(call: AnyCall, *, is_closed: bool) -> A2AError:
    """Return the error of a call that was ended: its client was closed, or its time is over."""
    if not is_closed:
        return deadline_exceeded(call)
    message = f"the client was closed while {call.operation.name} was in flight"
    return A2AConnectionError(message, failure="closed", **_ended(call))


def _ended(call: AnyCall) -> Facts:
    """Return the facts of a call that was ended from outside."""
    progress = call.progress
    attempts = attempts_of(call)
    return Facts(
        executed=progress.executed,
        attempts=attempts,
        agent=attempts[-1].agent if attempts else call.agent,
        request_id=call.request_id,
        traceparent=_traceparent(call),
    )


def _traceparent(call: AnyCall) -> str | None:
    """Return the trace context that a call carried: the caller's own, or that of a telemetry."""
    return call.headers.get("traceparent") or call.progress.traceparent


def _is_no_answer(error: A2AError) -> bool:
    """Return whether the reply does not show if the message was executed."""
    unreadable = isinstance(error, InvalidAgentResponseError) and error.code is None
    return error.executed is None and (unreadable or isinstance(error, LimitExceededError))


def _may_have_run(call: AnyCall) -> str:
    params: SendMessageRequest = call.params
    return (
        f"message {params.message.message_id} was sent, and may have been executed: search the "
        "agent's tasks for it before sending it again"
    )


def _outcome_unknown(call: AnyCall, error: A2AError) -> OutcomeUnknownError:
    params: SendMessageRequest = call.params
    message = params.message
    facts = error.facts()
    facts["executed"] = None
    facts["transient"] = False
    facts["retry_stopped_reason"] = None  # the message says it
    return OutcomeUnknownError(
        f"the outcome of message {message.message_id} is unknown: the message was sent, but its "
        f"reply was lost: {error.message}",
        message_id=message.message_id,
        context_id=message.context_id,
        **facts,
    )
