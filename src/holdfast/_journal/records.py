"""Labels of a journal's records, the origins of their tasks, and their errors."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from holdfast._journal.agent_name import addresses_in
from holdfast._journal.protocol import stored
from holdfast._policy.deadline import LOST_IN_A_RESTART
from holdfast._policy.task_ownership import TaskOwner
from holdfast.errors import JournalError
from holdfast.types import SendMessageRequest, TaskState

if TYPE_CHECKING:
    from holdfast._journal.protocol import CallRecord
    from holdfast.errors import TaskNotFoundError
    from holdfast.types import Message

__all__ = [
    "executed_of",
    "explain_missing_task",
    "label_of",
    "missing_replicas",
    "owner_of",
    "run_and_key",
    "shown_agent",
    "unknown_here",
]


def label_of(run_id: str, key: str) -> str:
    """Return the label of a message of a run; it is unique among all runs."""
    return f"{run_id.replace('%', '%25').replace(':', '%3A')}:{key}"


def run_and_key(label: str) -> tuple[str, str]:
    """Return the name of the run and the key of the message from a label."""
    name, _, key = label.partition(":")
    return name.replace("%3A", ":").replace("%25", "%"), key


def executed_of(record: CallRecord) -> bool | None:
    """Return whether the agent executed the message of a call; None if that is unknown.

    If the record has a state, the agent has reported the task, whatever the outcome of the call.
    """
    if record.state is not None or record.outcome in {"answered", "duplicated"}:
        return True
    return False if record.outcome == "not_sent" else None


def owner_of(record: CallRecord, message: Message | None = None) -> TaskOwner:
    """Return the message of a call as the owner of its task.

    Args:
        record: The call.
        message: The message as its caller passed it; None for the stored one. If that is damaged,
            the message counts as unknown: its task can be found without it.
    """
    context_id = record.context_id
    if message is None and record.request is not None:
        with contextlib.suppress(JournalError):
            message = stored(record.request, SendMessageRequest, record.message_id).message
            context_id = message.context_id
    has_begun = message is not None and not message.task_id
    is_first = record.is_own_context or message is None or not message.context_id
    return TaskOwner(
        message_id=record.message_id,
        context_id=None if record.state is None else record.context_id,
        own_context_id=context_id if record.is_own_context else None,
        message=message if has_begun and is_first else None,
        began=record.began,
    )


def missing_replicas(record: CallRecord, agent: str) -> list[str]:
    """Return the addresses that a call was recorded for and that an agent's name lacks."""
    known = addresses_in(agent)
    return [address for address in addresses_in(record.agent) if address not in known]


def unknown_here(record: CallRecord, agent: str) -> JournalError:
    """Return the error of a call that was recorded for other addresses and is unknown to this one.

    Args:
        record: The call.
        agent: The name of the agent that has no task of the call.
    """
    missing = missing_replicas(record, agent)
    return JournalError(
        f"message {record.message_id} was recorded for {shown_agent(record.agent)}, but "
        f"{shown_agent(agent)} has no task of it; connect to {', '.join(missing)}, or pass "
        "another run_id",
        reason="other_agent",
        message_id=record.message_id,
        agent=" ".join(missing),
    )


def explain_missing_task(error: TaskNotFoundError, record: CallRecord, agent: str) -> None:
    """Add the recorded facts about the task to an error, and why the task may be missing.

    Args:
        error: The error of the agent, or of its listed replicas.
        record: The call of the task.
        agent: The name of the agent that does not have the task.
    """
    missing = missing_replicas(record, agent)
    if not missing and record.task_id and f"task {record.task_id}" not in error.message:
        last_seen = "" if record.state is None else f", last seen {TaskState(record.state).name}"
        error.message += (
            f"; the task of message {record.message_id} is {record.task_id}{last_seen}: "
            f"{LOST_IN_A_RESTART}; the message was not sent again"
        )
    elif missing:
        error.message += (
            f"; the call was recorded for {shown_agent(record.agent)}, so the task may be at "
            f"{', '.join(missing)}, which this client does not have: connect to it, too"
        )


def shown_agent(name: str) -> str:
    """Return the addresses in the name of an agent for people."""
    return ", ".join(addresses_in(name))
