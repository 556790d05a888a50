"""Errors of an agent as failures of Temporal, with their facts, and back."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any, cast

import msgspec
from temporalio.exceptions import ApplicationError

from holdfast._integrations.durable import may_succeed_later

if TYPE_CHECKING:
    from holdfast.errors import A2AError

__all__ = ["AgentFailure", "agent_failure", "application_error"]


_MAX_FACT_CHARACTERS = 8_000
"""Largest JSON of one fact in the details of a failure; the history of a workflow keeps it."""


class AgentFailure(msgspec.Struct, frozen=True, kw_only=True):
    """The facts of a failed call of an agent, as a workflow or a client of Temporal sees it.

    Attributes:
        type: Name of the error's class in `holdfast.errors`, such as ``"TaskFailedError"``.
        message: Description of the failure, in one line.
        executed: Whether the agent executed the message; None if unknown.
        transient: Whether the same call may succeed later.
        retry_after: Seconds to wait before a retry, if the agent gave a delay.
        message_id: Id of the message, if known.
        task_id: Id of the agent's task, if known.
        context_id: Id of the conversation, if known.
        task_state: State of the task as last seen, such as ``"TASK_STATE_FAILED"``, if known.
        details: All facts as a JSON object, such as ``code``, ``http_status`` and ``attempts``; a
            fact whose JSON is longer than 8,000 characters is left out.
    """

    type: str
    message: str
    executed: bool | None = None
    transient: bool = False
    retry_after: float | None = None
    message_id: str | None = None
    task_id: str | None = None
    context_id: str | None = None
    task_state: str | None = None
    details: Mapping[str, Any] = {}


def agent_failure(error: BaseException) -> AgentFailure | None:
    """Return the facts of the call that failed, from an error of Temporal.

    Args:
        error: An ``ActivityError`` in a workflow, or a ``WorkflowFailureError`` at a client; its
            causes are searched.

    Returns:
        The facts; None if no failed call of an agent caused the error.

    Example:
        Compensate in a workflow if the message was not executed::

            try:
                answer = await pizzeria.ask(order)
            except ActivityError as error:
                failure = agent_failure(error)
                if failure is None or failure.executed is not False:
                    raise
                answer = await other_pizzeria.ask(order)
    """
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ApplicationError) and cause.type and cause.details:
            facts = cause.details[0]
            if isinstance(facts, Mapping) and "executed" in facts:
                return _failure(cause, cast("Mapping[str, Any]", facts))
        cause = cause.__cause__
    return None


def _failure(error: ApplicationError, facts: Mapping[str, Any]) -> AgentFailure:
    names = set(AgentFailure.__struct_fields__) - {"type", "message", "details"}
    known = {name: facts[name] for name in names if name in facts}
    return AgentFailure(type=error.type or "", message=error.message, details=facts, **known)


def application_error(
    error: A2AError,
    *,
    message_id: str,
    context_id: str | None,
    task_id: str | None,
    has_journal: bool,
) -> ApplicationError:
    """Return the failure of an activity; it is retryable if a later attempt may do better.

    An attempt after one that may have sent the message never sends it again, so a retry is always
    safe; it is useless where it can only fail again.

    Args:
        error: The error of the call.
        message_id: Id of the message.
        context_id: Id of the conversation, if known.
        task_id: Id of the agent's task, if known.
        has_journal: Whether a later attempt can resume the call from a journal.
    """
    task, task_id = error.task, error.task_id or task_id
    details: dict[str, Any] = {
        "executed": error.executed,
        "transient": error.transient,
        "message_id": message_id,
        "context_id": context_id if task is None else task.context_id,
        "task_id": task_id,
        "task_state": None if task is None else str(task.state),
    }
    for name, value in error.facts().items():
        if value not in (None, (), {}):
            built = msgspec.to_builtins(value)
            if len(msgspec.json.encode(built)) <= _MAX_FACT_CHARACTERS:
                details[name] = built
    delay = None if error.retry_after is None else timedelta(seconds=error.retry_after)
    return ApplicationError(
        str(error),
        details,
        type=type(error).__name__,
        non_retryable=not may_succeed_later(error, task_id, has_journal=has_journal),
        next_retry_delay=delay,
    )
