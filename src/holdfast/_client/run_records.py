"""The journal's records of a run's messages, and the answers of messages sent before."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast._aio.cancel_scope import wait_until
from holdfast._client.answer import Answer, raise_for_outcome
from holdfast._client.event_stream import EventStream
from holdfast._client.pending import resumed_stream
from holdfast._client.streams import StreamCalls
from holdfast._journal.protocol import stored
from holdfast._journal.records import explain_missing_task, label_of, owner_of
from holdfast._model.digest import message_digest
from holdfast.errors import (
    A2AError,
    CallEndedError,
    DeadlineExceededError,
    JournalError,
    OutcomeUnknownError,
    RunItemChangedError,
    TaskNotFoundError,
)
from holdfast.types import Message, Task

if TYPE_CHECKING:
    from holdfast._client.call_scope import CallScope
    from holdfast._client.core import ClientCore
    from holdfast._journal.protocol import CallRecord
    from holdfast._journal.writer import Journaling
    from holdfast._policy.deadline import Deadline
    from holdfast.errors import CallOutcome

__all__ = ["EarlierSend", "RunRecords"]


class RunRecords:
    """The records of one run.

    Args:
        core: Makes the requests.
        journaling: The journal with the records.
        run_id: Names the run.
        poll_interval: Seconds between two polls of a task.

    Attributes:
        held: Number of messages that wait for another holder of their call, which may have
            crashed.
    """

    def __init__(
        self, core: ClientCore, journaling: Journaling, run_id: str, *, poll_interval: float
    ) -> None:
        self._core = core
        self._journaling = journaling
        self._run_id = run_id
        self.held = 0
        self._poll_interval = poll_interval

    def label(self, key: str) -> str:
        """Return the label of a message in the journal: see `label_of`."""
        return label_of(self._run_id, key)

    async def was_sent(self, key: str) -> bool:
        """Return whether a message was sent before, or may have been; False if unknown."""
        try:
            record = await self._journaling.find_label(self.label(key))
        except JournalError:
            return False
        return record is not None and record.outcome != "not_sent"

    async def find(self, key: str, message: Message, deadline: Deadline) -> EarlierSend | None:
        """Return the earlier send of a message; None if it was not sent.

        Raises:
            RunItemChangedError: Another message had the same key, and may have been sent.
            JournalError: The journal cannot be read.
            DeadlineExceededError: The journal was not read in time.
        """
        reading = self._journaling.find_label(self.label(key))

        def too_late() -> DeadlineExceededError:
            return DeadlineExceededError(
                f"the journal did not return the key {key!r} within the {deadline.name} timeout "
                f"of {deadline.shown}",
                deadline=deadline.name,
                timeout=deadline.timeout,
            )

        record = await wait_until(deadline.at, reading, too_late)
        if record is None or record.outcome == "not_sent":
            return None
        if record.digest not in {None, message_digest(message)}:
            raise RunItemChangedError(
                f"the key {key!r} was used in this run for another message "
                f"({record.message_id}); this message was not sent: pass another key, or another "
                "run_id",
                key=key,
                message_id=record.message_id,
                executed=False,
            )
        return EarlierSend(
            record, self._core, self._journaling, self._poll_interval, run=self, message=message
        )


class EarlierSend:
    """A message that was sent before, or may have been sent."""

    def __init__(
        self,
        record: CallRecord,
        core: ClientCore,
        journaling: Journaling,
        poll_interval: float,
        *,
        run: RunRecords,
        message: Message,
    ) -> None:
        self._record = record
        self._run = run
        self._message = message
        self._core = core
        self._journaling = journaling
        self._poll_interval = poll_interval

    @property
    def agent(self) -> str:
        """The name in the journal of the agent that it was sent to."""
        return self._record.agent

    async def answer(self, scope: CallScope) -> Answer | None:
        """Return the answer, whichever client finishes the call; None if it was not sent.

        Args:
            scope: The deadline, and what each request carries.

        Raises:
            CallEndedError: The call has ended, and its answer is not stored.
            A2AError: Another reason for no answer.
        """
        record = self._record
        while (outcome := record.outcome) is None:
            self._run.held += 1
            try:
                record = await self._journaling.wait_until_free(
                    record.message_id, scope.deadline, waits_for_holder=True
                )
            finally:
                self._run.held -= 1
            if record.outcome is None:
                events = resumed_stream(
                    record,
                    self._core,
                    self._journaling,
                    scope=scope,
                    poll_interval=self._poll_interval,
                    message=self._message,
                )
                try:
                    async with events:
                        return await events.result()
                except JournalError as error:
                    if error.reason not in {"held", "finished", "taken_over"}:
                        raise  # otherwise another client has finished the call
        if outcome == "not_sent":
            return None
        result = await self._result(record, outcome, scope)
        if isinstance(result, Message):
            return Answer(message=result)
        if not result.state.is_settled:
            return await self._continued(result, scope)
        with scope.hiding_secrets():
            raise_for_outcome(result)
        return Answer(task=result)

    async def _continued(self, task: Task, scope: CallScope) -> Answer:
        """Wait for a task that works again, because its question was answered."""
        streams = StreamCalls(
            self._core, scope, poll_interval=self._poll_interval, until_deadline=True
        )
        owner = owner_of(self._record, self._message)
        async with EventStream(streams, streams.subscribe_to(task.id, owner=owner)) as events:
            return await events.result()

    async def _result(
        self, record: CallRecord, outcome: CallOutcome, scope: CallScope
    ) -> Task | Message:
        """Return the answer of a finished call; a question may have been answered since."""
        if outcome == "unknown":
            raise OutcomeUnknownError(
                f"the outcome of message {record.message_id} is unknown, as an earlier run "
                "reported. This run has not sent it",
                message_id=record.message_id,
                context_id=record.context_id,
            )
        was_answered = outcome == "answered"
        recorded: Message | Task | None = None
        if was_answered and record.result is not None:
            kind: type[Message | Task] = Message if record.state is None else Task
            recorded = stored(record.result, kind, record.message_id)
            if isinstance(recorded, Message) or recorded.state.is_terminal:
                return recorded
        if was_answered and record.state is not None and record.task_id is not None:
            try:
                task = await self._task(record, record.task_id, scope)
            except TaskNotFoundError:
                if recorded is None:
                    raise
                return recorded
            if task is not None:
                return task
        if recorded is not None:
            return recorded
        detail = "" if record.detail is None else f" ({record.detail})"
        target = "" if self._journaling.is_own(record) else f" to {record.agent}"
        raise CallEndedError(
            f"the call of message {record.message_id}{target} has already ended: "
            f"{outcome}{detail}, but its answer is not stored; it was not sent again",
            message_id=record.message_id,
            outcome=outcome,
            detail=record.detail,
            executed=True if was_answered else None,
        )

    async def _task(self, record: CallRecord, task_id: str, scope: CallScope) -> Task | None:
        """Return the task that answered a call; None if the call went to another agent."""
        is_here = self._journaling.is_own(record)
        try:
            task = await self._core.get_task(task_id, scope)
            owner = owner_of(record, self._message)
            await self._journaling.note_later(owner, task)
            owner.check(task)
        except A2AError as error:
            if isinstance(error, TaskNotFoundError):
                if not is_here:
                    return None
                explain_missing_task(error, record, self._journaling.agent)
            error.executed = True  # the message was executed, even if this request failed
            raise
        return task if is_here or task.context_id == record.context_id else None
