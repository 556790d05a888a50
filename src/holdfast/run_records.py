"""What a journal knows of the messages of a run, and what comes of those that were sent before."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.answer import Answer, raise_for_outcome
from holdfast.errors import A2AError, JournalError, OutcomeUnknownError
from holdfast.model import codec
from holdfast.model.digest import digest_of
from holdfast.model.types import Message, Task
from holdfast.pending import PendingCall

if TYPE_CHECKING:
    from holdfast.calls import Calls
    from holdfast.journaling import Journaling
    from holdfast.options import CallOptions
    from holdfast.runtime.journal import CallRecord

__all__ = ["RunRecords", "SentBefore"]


class RunRecords:
    """The records of one run.

    Args:
        calls: What makes calls.
        journaling: Where the records are.
        run_id: Names the run.
        poll_interval: Seconds between two looks at a task.
        options: What goes with each look.
    """

    def __init__(
        self,
        calls: Calls,
        journaling: Journaling,
        run_id: str,
        *,
        poll_interval: float,
        options: CallOptions,
    ) -> None:
        self._calls = calls
        self._journaling = journaling
        self._name = run_id.replace("%", "%25").replace(":", "%3A")
        self._poll_interval = poll_interval
        self._options = options

    def label(self, key: str) -> str:
        """What the journal calls a message: no other one of any run is called the same."""
        return f"{self._name}:{key}"

    async def find(self, key: str, message: Message) -> SentBefore | None:
        """A message that may have been sent; None for one that was not.

        Raises:
            ValueError: Another message had its key, and may have been sent.
            JournalError: The journal cannot be read.
        """
        record = await self._journaling.find_label(self.label(key))
        if record is None or record.outcome == "not_sent":
            return None
        if record.digest not in {None, digest_of(message)}:
            text = (
                f"another message was sent under the key {key!r} in this run before, as message "
                f"{record.message_id}; this one was not sent: give it a key of its own, or the "
                "run another run_id"
            )
            raise ValueError(text)
        return SentBefore(
            record, self._calls, self._journaling, self._poll_interval, self._options
        )


class SentBefore:
    """A message that was sent before, or may have been."""

    def __init__(
        self,
        record: CallRecord,
        calls: Calls,
        journaling: Journaling,
        poll_interval: float,
        options: CallOptions,
    ) -> None:
        self._record = record
        self._calls = calls
        self._journaling = journaling
        self._poll_interval = poll_interval
        self._options = options

    async def answer(self) -> Answer:
        """The answer, whoever brings the call to its end.

        Raises:
            A2AError: Why there is none.
        """
        deadline, _ = self._calls.begin("wait", self._options)
        record, tried = self._record, 0
        while record.outcome is None:
            record = await self._journaling.until_free(record.message_id, deadline, outlasts=True)
            if record.outcome is None:
                call = PendingCall(record, self._calls, self._journaling, deadline=deadline)
                try:
                    return await call.resume(poll_interval=self._poll_interval, **self._options)
                except JournalError:
                    if record.generation == tried:
                        raise
                    tried = record.generation  # somebody else may have been quicker
        if record.outcome == "unknown":
            raise OutcomeUnknownError(
                f"nobody knows whether the agent ran message {record.message_id}, as an earlier "
                "run has reported. It was not sent again",
                message_id=record.message_id,
                context_id=record.context_id,
            )
        result = await self._result(record)
        if isinstance(result, Message):
            return Answer(message=result)
        raise_for_outcome(result)
        return Answer(task=result)

    async def _result(self, record: CallRecord) -> Task | Message:
        """What answered a call that is over."""
        if record.result is not None:
            kind: type[Message | Task] = Message if record.state is None else Task
            return codec.decode(record.result.encode(), kind)
        if record.state is not None and record.task_id is not None:
            deadline, per_call = self._calls.begin("call", self._options)
            try:
                return await self._calls.get_task(record.task_id, deadline, per_call)
            except A2AError as error:
                error.executed = True  # the message, whatever became of this look
                raise
        raise A2AError(
            f"an earlier run has ended with: {record.detail or record.outcome}", executed=None
        )
