"""Checks of the sent message: whether it can be found again, and whether its id is unique."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from holdfast._doctor.findings import Finding

if TYPE_CHECKING:
    from collections.abc import Iterator

    from holdfast._doctor.facts import Observations, SendingFacts

__all__ = ["check_recording"]

_CHECKS = ("sending.answer", "recording.task", "recording.list", "recording.time")
_FAILED = frozenset({"TASK_STATE_FAILED", "TASK_STATE_REJECTED"})
_LOST = "when a reply is lost, the caller cannot find out whether the message was executed"
_KEEP = "keep the messages of callers in the history, with their ids"


def check_recording(observed: Observations, _now: float) -> Iterator[Finding]:
    """Check what the agent stores of the message."""
    if observed.card is None:
        return
    sending = observed.sending
    reason = ""
    if not observed.may_send:
        reason = "no test message was passed"
    elif sending is None:
        reason = observed.unmeasured_reason
    elif sending.not_sent_reason:
        reason = sending.not_sent_reason
    if reason or sending is None:
        for check in (*_CHECKS, "sending.twice"):
            yield Finding(check, "not measured", reason)
        return
    for finding in _sent_message(sending, observed):
        yield msgspec.structs.replace(finding, about=sending.about)


def _sent_message(sending: SendingFacts, observed: Observations) -> Iterator[Finding]:
    yield _answer(sending, observed)
    if sending.is_message:
        yield Finding(
            "recording.task",
            "info",
            "a message was returned instead of a task",
            f"no task holds it: {_LOST}",
        )
    elif sending.task_id:
        yield _in_task(sending, observed)
        yield _in_list(sending, observed)
        yield _in_recent(sending, observed)
    yield _twice(sending, observed)


def _answer(sending: SendingFacts, observed: Observations) -> Finding:
    check, reply = "sending.answer", sending.reply
    if reply is not None and reply.status is None and reply.is_executed is False:
        return Finding(
            check,
            "problem",
            f"message {sending.message_id} was not executed: {reply.summary}",
            "no message reaches the agent there",
            "check that the agent is running, and the network; the message can be sent again",
        )
    if reply is None or reply.status is None:
        reason = observed.stopped or (reply.summary if reply else "no answer came")
        return Finding(
            check,
            "warning",
            f"message {sending.message_id} was sent, and {reason}",
            "the outcome is unknown: the agent may have executed it",
            "search the agent's tasks for it before you send it again",
        )
    if sending.task_id:
        note = {
            "TASK_STATE_SUBMITTED": "; it is still running",
            "TASK_STATE_WORKING": "; it is still running",
            "TASK_STATE_INPUT_REQUIRED": "; it waits for an answer",
            "TASK_STATE_AUTH_REQUIRED": "; it waits for an authorization",
        }.get(sending.state, "")
        saw = f"message {sending.message_id} made task {sending.task_id}, {sending.state}"
        if sending.state in _FAILED:
            return Finding(
                check,
                "info",
                saw,
                "that is the agent's decision; it shows little about other tasks",
                "examine it with a message that the agent accepts",
            )
        return Finding(check, "ok", f"{saw}{note}")
    if sending.is_message:
        return Finding(check, "ok", f"message {sending.message_id} was answered by a message")
    if reply.is_result:
        return Finding(
            check,
            "warning",
            f"message {sending.message_id} was accepted, but no event and no task was returned",
            "the outcome is unknown: the agent may have executed it",
            "search the agent's tasks for it before you send it again",
        )
    return Finding(
        check,
        "problem",
        f"message {sending.message_id}: {reply.summary}",
        "the agent did not complete this message",
        "read the agent's own log",
    )


def _in_task(sending: SendingFacts, observed: Observations) -> Finding:
    check = "recording.task"
    if sending.in_task is None:
        return Finding(check, "not measured", observed.unmeasured_reason)
    if sending.in_task:
        return Finding(check, "ok", "the task's history has the message by its id")
    return Finding(
        check,
        "warning",
        "the task's history does not have the message",
        _LOST,
        _KEEP,
    )


def _in_list(sending: SendingFacts, observed: Observations) -> Finding:
    check = "recording.list"
    if sending.in_list is None:
        return Finding(check, "not measured", _not_listed_reason(sending, observed))
    if sending.in_list:
        return Finding(check, "ok", "the list of its context has the message by its id")
    return Finding(
        check,
        "warning",
        "the list of its context does not have the message",
        _LOST,
        "list tasks with their history (A2A 3.1.4)" if sending.in_task else _KEEP,
    )


def _in_recent(sending: SendingFacts, observed: Observations) -> Finding:
    check = "recording.time"
    if sending.in_recent is None:
        reason = _not_listed_reason(sending, observed)
        if sending.has_list and sending.is_v03:
            reason = "lists of protocol 0.3 cannot filter by time"
        return Finding(check, "not measured", reason)
    if sending.in_recent:
        return Finding(check, "ok", "the list of tasks since the message was sent has the task")
    return Finding(
        check,
        "warning",
        "the list of tasks since the message was sent does not have the task",
        f"a task of a context that is not known yet cannot be found; {_LOST}",
        "set a timestamp on each status, and filter by statusTimestampAfter (A2A 3.1.4)",
    )


def _not_listed_reason(sending: SendingFacts, observed: Observations) -> str:
    return observed.unmeasured_reason if sending.has_list else "the agent has no list of tasks"


def _twice(sending: SendingFacts, observed: Observations) -> Finding:
    check, second_reply = "sending.twice", sending.second_reply
    if second_reply is None:
        reason = "the first message got no answer"
        if not observed.may_repeat:
            reason = "it sends the message a second time: pass --twice (twice=True) to allow it"
        return Finding(check, "not measured", observed.stopped or reason)
    saw = "the same message, under the same id, once more"
    if sending.second_task_id and sending.second_task_id == sending.task_id:
        return Finding(check, "ok", f"{saw}: the same task")
    if second_reply.is_result:
        made = "a second answer" if sending.is_second_message else "a second task"
        return Finding(
            check,
            "info",
            f"{saw}: {made}{f', {sending.second_task_id}' if sending.second_task_id else ''}",
            "a message that is sent again after a lost reply is executed twice; most agents "
            "behave so",
            "create one task for each message id (A2A 3.3.1)",
        )
    return Finding(
        check,
        "ok",
        f"{saw}: {second_reply.summary}",
        "it is refused, and apparently not executed twice",
    )
