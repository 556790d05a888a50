"""``holdfast run results``: the result of each line of a run, from its journal.

Rules: nothing is sent, and nothing is written to the journal; each message of the input has
exactly one result, in the order of the lines; of a large run, some lines and the ids of all
lines are in memory.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from holdfast._cli.batch.input import BadLine, Line
from holdfast._cli.batch.output import Results
from holdfast._cli.batch.plan import open_input, run_name
from holdfast._cli.batch.session import journal_at, unusable_journal
from holdfast._cli.errors import CommandError, Failure, unusable
from holdfast._cli.output.base import Notice
from holdfast._cli.output.json_output import document
from holdfast._journal.protocol import stored
from holdfast._journal.records import executed_of, label_of
from holdfast.errors import JournalError
from holdfast.types import Message, Task

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Mapping

    from holdfast._cli.batch.input import Lines
    from holdfast._cli.batch.session import StoredJournal
    from holdfast._cli.output.base import Output
    from holdfast._journal.protocol import CallRecord

__all__ = ["print_results"]

_BATCH_LINES = 200
"""Number of lines whose calls are read from the journal together."""

_PENDING = "HOLDFAST_ERR_PENDING"
_UNKNOWN = "HOLDFAST_ERR_OUTCOME_UNKNOWN"
_ENDED = "HOLDFAST_ERR_CALL_ENDED"


async def print_results(source: str, journal: str, run_id: str | None, output: Output) -> None:
    """Print the result of each line of a run.

    Args:
        source: The input, as written.
        journal: The journal, as written.
        run_id: The name of the run; None for that of the input.
        output: Where warnings go.

    Raises:
        CommandError: A file or the journal cannot be used, or lines have no answer.
    """
    lines = open_input(source, run_id)
    try:
        store = journal_at(journal, is_there=True, read_only=True)
        try:
            await _print_all(lines, source, run_name(source, run_id), store, output)
        except JournalError as error:
            raise CommandError(unusable_journal(error)) from None
        finally:
            await store.close()
    finally:
        lines.close()


async def _print_all(
    lines: Lines, source: str, name: str, journal: StoredJournal, output: Output
) -> None:
    printed = Results(None, without_errors=False)
    count = recorded = answered = 0
    async for batch in _batches(lines, source, output):
        labels = {line.key: label_of(name, line.key) for line in batch}
        records = await _find(journal, list(labels.values()))
        recorded += len(records)
        for line in batch:
            members = _members(line, records.get(labels[line.key]), output)
            printed.write(line, members)
            count += 1
            answered += "error" not in members
        printed.known.clear()  # only a run needs them
    if answered < count:
        verb = "has" if count - answered == 1 else "have"
        message = f"{count - answered} of {count} lines {verb} no answer in the journal"
        hint = None
        if not recorded:
            hint = f"the journal has no call of the run {name!r}; name the run with --run-id"
        raise CommandError(Failure(code="HOLDFAST_ERR_RUN", message=message, hint=hint))


async def _find(
    journal: StoredJournal, labels: list[str]
) -> Mapping[str, CallRecord | JournalError]:
    """Return the records of labels; the error of a record that is damaged, if not all are.

    Raises:
        JournalError: The journal cannot be read.
    """
    try:
        return await journal.find_labels(labels)
    except JournalError as error:
        if error.reason != "damaged":
            raise
        damage = error
    records: dict[str, CallRecord | JournalError] = {}
    for label in labels:
        try:
            records.update(await journal.find_labels([label]))
        except JournalError as error:
            records[label] = error
    if all(isinstance(records.get(label), JournalError) for label in labels):
        raise damage
    return records


async def _batches(lines: Lines, source: str, output: Output) -> AsyncGenerator[list[Line]]:
    """Yield the lines that are messages, `_BATCH_LINES` at a time."""
    batch: list[Line] = []
    async for line in _read(lines, source):
        if isinstance(line, BadLine):
            problem = f"line {line.number} of {source} {line.reason}"
            output.emit(Notice.warning(f"{problem}; it has no result"))
            continue
        batch.append(line)
        if len(batch) == _BATCH_LINES:
            yield batch
            batch = []
    if batch:
        yield batch


async def _read(lines: Lines, source: str) -> AsyncGenerator[Line | BadLine]:
    """Yield the lines of the input.

    Raises:
        CommandError: It cannot be read.
    """
    try:
        async for line in lines:
            yield line
    except OSError as error:
        raise unusable(source, f"cannot be read: {error.strerror or error}") from None


def _members(
    line: Line, record: CallRecord | JournalError | None, output: Output
) -> dict[str, Any]:
    """Return the members of the result of a line: its task or message, or an error."""
    if isinstance(record, JournalError):
        failure = Failure(code="HOLDFAST_ERR_JOURNAL", message=record.message)
        return {"executed": None, "error": output.error_members(failure)}
    if record is not None and record.digest == line.digest and record.outcome == "answered":
        kind: type[Message | Task] = Message if record.state is None else Task
        try:
            if record.result is not None:
                result = stored(record.result, kind, record.message_id)
                return {"message" if kind is Message else "task": document(result)}
        except JournalError as error:
            failure = Failure(code="HOLDFAST_ERR_JOURNAL", message=error.message)
            return {"executed": True, "error": output.error_members(failure)}
    failure, executed = _failure(line, record)
    if record is not None and record.digest == line.digest:
        ids = {
            "taskId": record.task_id,
            "contextId": record.context_id,
            "messageId": record.message_id,
        }
        failure = failure._replace(ids={name: value for name, value in ids.items() if value})
    return {"executed": executed, "error": output.error_members(failure)}


def _failure(line: Line, record: CallRecord | None) -> tuple[Failure, bool | None]:
    """Return why a line has no answer, and whether it was executed; None if unknown."""
    if record is None or record.outcome == "not_sent":
        detail = "" if record is None or record.detail is None else f": {record.detail}"
        message = f"the message was not sent{detail}"
        hint = "holdfast run sends it"
        return Failure(code="HOLDFAST_ERR_RUN", message=message, hint=hint), False
    call = f"the call of message {record.message_id}"
    if record.digest != line.digest:
        message = f"the id {line.id!r} belongs to another message in the journal"
        return Failure(code="HOLDFAST_ERR_INPUT", message=message), False
    detail = f": {record.detail}" if record.detail else ""
    executed = executed_of(record)
    if record.outcome is None:
        if record.lease_left > 0:
            message = f"{call} is pending: another process works on it, or crashed just now"
            hint = (
                "when that process has ended, resume the call with holdfast run or holdfast resume"
            )
        else:
            message = f"{call} is pending, and no process works on it"
            hint = (
                "to wait or search for the answer: holdfast run with --retry-errors, or holdfast "
                "resume; if they report that the agent has lost the task (TaskNotFoundError), no "
                "answer can arrive: only a run with another --run-id sends the message again"
            )
        return Failure(code=_PENDING, message=message, hint=hint), executed
    if record.outcome == "unknown":
        message = f"the outcome of {call} is unknown{detail}"
        return Failure(code=_UNKNOWN, message=message), executed
    if record.outcome == "answered":
        message = f"{call} was answered, but its answer is not stored in the journal"
        return Failure(code=_ENDED, message=message), executed
    return Failure(code=_ENDED, message=f"{call} has ended: {record.outcome}{detail}"), executed
