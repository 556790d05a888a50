"""Labels of a journal's records, the origins of their tasks, and their errors."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from holdfast._journal.protocol import stored
from holdfast._policy.task_ownership import TaskOwner
from holdfast.errors import JournalError
from holdfast.types import SendMessageRequest

if TYPE_CHECKING:
    from holdfast._journal.protocol import CallRecord
    from holdfast.types import Message

__all__ = ["label_of", "owner_of", "run_and_key", "unknown_here"]


def label_of(run_id: str, key: str) -> str:
    """Return the label of a message of a run; it is unique among all runs."""
    return f"{run_id.replace('%', '%25').replace(':', '%3A')}:{key}"


def run_and_key(label: str) -> tuple[str, str]:
    """Return the name of the run and the key of the message from a label."""
    name, _, key = label.partition(":")
    return name.replace("%3A", ":").replace("%25", "%"), key


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


def unknown_here(record: CallRecord, agent: str) -> JournalError:
    """Return the error of a call that is recorded for another agent and unknown to this one."""
    return JournalError(
        f"message {record.message_id} was recorded for {record.agent}, but {agent} has no task "
        "of it; pass the agent under its earlier name, or pass another run_id",
        reason="other_agent",
        message_id=record.message_id,
        agent=record.agent,
    )
