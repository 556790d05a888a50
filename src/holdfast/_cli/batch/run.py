"""``holdfast run``: many messages to one agent, a few at a time, each sent once.

Rules: a line with a result is done, unless the result says that it was certainly not executed; a
line without a result that the journal knows is resumed, and so is a line whose result is an open
question; the rest is sent. So the same command
continues wherever the one before ended. A line whose result says that it was executed keeps that
fact, whatever a later attempt finds out. A line that is not a message, an agent that refuses
access, and a journal or results that cannot be written stop the sending; the messages in flight
end first, and their results are written as far as that is possible. If the agent is unreachable
for long, the run ends without waiting for them.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast._cli.batch.availability import MAX_OUTAGE_S, is_unreachable
from holdfast._cli.batch.input import BadLine, Line
from holdfast._cli.batch.plan import check_not_already_running
from holdfast._cli.batch.progress import Progress, Remaining, Summary
from holdfast._cli.batch.session import (
    answer_of,
    check_journal,
    failure_of,
    members_of,
    unusable_journal,
    was_not_sent,
)
from holdfast._cli.errors import CommandError, Failure, unreachable_reason
from holdfast._cli.options.masking import masked_reference
from holdfast._cli.options.values import shown_duration
from holdfast._cli.output.base import Notice
from holdfast._client.batch import RunItem
from holdfast._journal.agent_name import addresses_in, agent_name, is_same_agent
from holdfast._journal.records import label_of, run_and_key
from holdfast._journal.sqlite import SqliteJournal
from holdfast.errors import (
    A2AConnectionError,
    A2AError,
    A2ATimeoutError,
    DeadlineExceededError,
    JournalError,
    KeyConflictError,
    ReconnectError,
)
from holdfast.types import TaskState

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable
    from contextlib import AbstractContextManager

    from holdfast._cli.batch.availability import WatchedSession
    from holdfast._cli.batch.input import Lines
    from holdfast._cli.batch.output import Results
    from holdfast._cli.batch.plan import Plan
    from holdfast._cli.output.base import Output
    from holdfast._client.answer import Answer
    from holdfast._client.batch import BulkRun
    from holdfast._journal.protocol import CallRecord

__all__ = ["Run"]

_OPEN = (A2AConnectionError, A2ATimeoutError, DeadlineExceededError, ReconnectError)
"""Errors after which an answer may still come."""


_CHECK_INTERVAL_S = 0.5
"""Seconds between two checks whether the agent is unreachable."""

_SENDING_GRACE_S = 30.0
"""Seconds to wait for messages that are just being sent, before the run ends."""


class Run:
    """A run of many messages.

    Args:
        session: The agent and the journal.
        output: Where warnings and the summary go.
        plan: What to do.
        interrupts: Calls a function at each Ctrl-C, while the context is open.
    """

    def __init__(
        self,
        session: WatchedSession,
        output: Output,
        plan: Plan,
        interrupts: Callable[[Callable[[], None]], AbstractContextManager[None]],
    ) -> None:
        self._session = session
        self._output = output
        self._plan = plan
        self._interrupts = interrupts
        self._summary = Summary(session, output, plan)
        self._counts = self._summary.counts
        self._lines_in_flight: dict[str, Line] = {}
        self._answered_before: set[str] = set()
        self._fault: CommandError | None = None
        self._interruptions = 0
        self._outage = session.outage
        self._on_interrupt: Callable[[], None] = lambda: None
        self._stop: Callable[[], None] = lambda: None
        self._in_flight: Callable[[], int] = lambda: 0

    async def run(self) -> None:
        """Send the messages, and write their results.

        Raises:
            CommandError: A file cannot be used, was moved, or lines have no answer.
            KeyboardInterrupt: Ctrl-C ended the run.
            A2AError: The agent cannot be called.
        """
        plan, session = self._plan, self._session
        session.on_unknown = plan.on_unknown
        if isinstance(session.journal, SqliteJournal):
            plan.check_apart(session.journal.path)
        lines = plan.open_input()
        try:
            await check_journal(session.journal)
            results = plan.open_output()
            try:
                await check_not_already_running(plan, session, lines, results)
                with self._interrupts(self._interrupted):
                    if await self._is_reachable():
                        await self._work(lines, results)
                        self._remove_answered_questions(results)
            finally:
                results.close()
            remaining = await self._remaining(lines, results)
            is_interrupted = self._interruptions > 0
            self._summary.report(remaining, self._fault, is_interrupted=is_interrupted)
        finally:
            lines.close()

    def _remove_answered_questions(self, results: Results) -> None:
        try:
            results.remove_answered_questions()
        except OSError as error:
            self._fault = self._fault or self._unwritable(error)

    def _interrupted(self) -> None:
        self._interruptions += 1
        self._on_interrupt()

    # ── The agent ────────────────────────────────────────────────────────────────────────────

    async def _is_reachable(self) -> bool:
        """Prepare for calls once the agent can be reached; False if the run was ended before.

        Raises:
            A2AError: The agent cannot be called.
        """
        preparing = asyncio.create_task(self._prepare())
        watching = asyncio.create_task(self._watch(preparing))

        def interrupted() -> None:
            preparing.cancel()

        self._on_interrupt = interrupted
        try:
            await preparing
        except asyncio.CancelledError:
            if not self._is_ended:
                raise
        finally:
            watching.cancel()
            preparing.cancel()
        return not self._is_ended

    @property
    def _is_ended(self) -> bool:
        """Return whether the run was ended early."""
        return self._interruptions > 0 or self._fault is not None

    async def _prepare(self) -> None:
        session = self._session
        try:
            await session.prepare()
        except A2AError as error:
            if not is_unreachable(error):
                raise
            await self._wait_until_reachable()
            await session.prepare()

    async def _wait_until_reachable(self) -> None:
        session, outage = self._session, self._outage
        while True:
            await asyncio.sleep(outage.pause())
            session.begin()
            try:
                await session.client.agent_card(timeout=session.seconds_left())
            except A2AError as error:
                if not is_unreachable(error):
                    raise
            else:
                return

    # ── Sending ──────────────────────────────────────────────────────────────────────────────

    async def _work(self, lines: Lines, results: Results) -> None:
        plan, session = self._plan, self._session
        run = session.client.run(
            self._items(lines, results),
            run_id=plan.name,
            concurrency=plan.concurrency,
            rate=plan.rate,
            poll_interval=session.settings.poll_interval,
            timeout=session.settings.timeout,
            headers=session.svc_params,
            on_unknown=plan.on_unknown,
            shared=plan.is_shared,
        )
        run.on_finished_elsewhere = self._finished_elsewhere
        progress = Progress(self._counts, session.outage, self._output)
        progress.begin(lines, run)
        writing = asyncio.create_task(self._write_all(run, results))
        self._stop = run.stop
        self._in_flight = lambda: run.in_flight
        watching = asyncio.create_task(self._watch(writing))

        def interrupted() -> None:
            if self._interruptions > 1:
                writing.cancel()
                return
            run.stop()
            asyncio.get_running_loop().call_later(plan.grace, writing.cancel)
            if run.in_flight:
                self._output.emit(
                    Notice.warning(
                        f"sending has stopped; waiting up to {shown_duration(plan.grace)} for "
                        f"{run.in_flight} in flight; press Ctrl-C again to stop at once"
                    )
                )

        self._on_interrupt = interrupted
        try:
            await writing
        except CommandError as fault:
            self._fault = self._fault or fault
        except asyncio.CancelledError:
            if not self._is_ended:
                raise
        finally:
            watching.cancel()
            self._report_outage()
            writing.cancel()
            await run.close()
            progress.end()

    def _finished_elsewhere(self, key: str) -> None:
        """Count a line whose result another process of the run has."""
        del self._lines_in_flight[key]
        self._counts.elsewhere += 1

    async def _items(self, lines: Lines, results: Results) -> AsyncGenerator[RunItem]:
        """Yield the messages to send."""
        async for line in self._read(lines):
            if isinstance(line, BadLine):
                if not self._skips(line):
                    return
                continue
            earlier = results.known.get(line.key)
            if earlier is None or earlier.is_question_of(line.digest):
                answered = await self._find_answered(line)
                if answered is not None and not self._is_of_this_agent(answered):
                    if earlier is None:
                        self._write(line, self._of_other_agent(line, answered), results)
                    else:
                        self._summary.add_earlier(earlier)
                    continue
                if earlier is not None and answered is None:
                    self._summary.add_earlier(earlier)
                    continue
                await self._wait()
                if answered is not None and _is_final(answered):
                    self._answered_before.add(line.key)
                self._lines_in_flight[line.key] = line
                yield RunItem(key=line.key, content=line.message)
            elif earlier.digest != line.digest:
                self._write(line, _changed(line, self._plan.output), results)
            else:
                self._summary.add_earlier(earlier)

    async def _find_answered(self, line: Line) -> CallRecord | None:
        """Return the record of a line if its call was answered before this run; else None."""
        if self._plan.is_shared:
            return None  # each line has one result, of the process that sent it
        try:
            record = await self._session.journal.find_label(label_of(self._plan.name, line.key))
        except JournalError:
            return None  # the call itself reports it
        return record if record is not None and record.outcome == "answered" else None

    def _is_of_this_agent(self, record: CallRecord) -> bool:
        """Return whether a call was made to the agent of this run, as far as its card tells."""
        reference, card = self._session.reference, self._session.card
        if is_same_agent(agent_name(reference), record.agent):
            return True
        if card is None or not isinstance(reference, Path):
            return False
        addresses = tuple(f"{address}/" for address in addresses_in(record.agent))
        return any(f"{agent.url}/".startswith(addresses) for agent in card.supported_interfaces)

    def _of_other_agent(self, line: Line, record: CallRecord) -> KeyConflictError:
        """Return the error of a line that another agent has answered in a run of this name."""
        other = masked_reference(addresses_in(record.agent)[0])
        this = masked_reference(agent_name(self._session.reference))
        return KeyConflictError(
            f"{other} has answered this line in the run {self._plan.name}, according to "
            f"{self._plan.journal}; it was not sent to {this}",
            key=line.key,
            message_id=record.message_id,
            other_agent=record.agent,
            executed=False,
        )

    async def _read(self, lines: Lines) -> AsyncGenerator[Line | BadLine]:
        try:
            async for line in lines:
                yield line
        except OSError as error:
            message = f"{self._plan.input} cannot be read further: {error.strerror or error}"
            self._fault = CommandError(Failure(code="HOLDFAST_ERR_FILE", message=message))

    def _skips(self, line: BadLine) -> bool:
        problem = f"line {line.number} of {self._plan.input} {line.reason}"
        if self._plan.skips_bad_lines:
            self._counts.skipped += 1
            self._output.emit(Notice.warning(f"{problem}; skipped"))
            return True
        self._fault = CommandError(
            Failure(
                code="HOLDFAST_ERR_INPUT",
                message=f"{problem}; no line after it was sent",
                hint="correct it and start again, or skip such lines with --on-bad-line skip",
            )
        )
        return False

    async def _write_all(self, run: BulkRun, results: Results) -> None:
        async for result in run:
            line = self._lines_in_flight.pop(result.key)
            if isinstance(result.error, JournalError) and not was_not_sent(result.error):
                command = self._session.command(*self._plan.words())
                self._stop_sending(unusable_journal(result.error, command=command))
                continue  # the line is without a result: the journal knows whether it was sent
            outcome = result.answer if result.answer is not None else result.error
            if isinstance(outcome, KeyConflictError):
                outcome = _changed(line, self._plan.journal, outcome.message_id)
            if outcome is None:
                continue
            try:
                self._write(line, outcome, results)
            except CommandError as fault:
                self._stop_sending(fault.failure)
                self._counts.unwritten += answer_of(outcome) is not None
            self._stop_if_unsendable(outcome)

    def _write(self, line: Line, outcome: Answer | Exception, results: Results) -> None:
        if isinstance(outcome, A2AError) and results.was_executed(line):
            outcome.executed = True  # whatever another attempt could find out
        members = members_of(outcome, self._session, self._output)
        if "error" in members:
            executed = False if was_not_sent(outcome) else getattr(outcome, "executed", None)
            members = {"executed": executed, **members}
        if results.is_gone:
            raise self._gone()
        try:
            results.write(line, members)
        except KeyboardInterrupt:  # the pipe has no reader any more
            self._interruptions += 1
            raise asyncio.CancelledError from None
        except BrokenPipeError:
            raise
        except OSError as error:  # the journal has it
            raise self._unwritable(error) from None
        is_earlier = line.key in self._answered_before
        self._answered_before.discard(line.key)
        self._summary.add(line, outcome, is_earlier=is_earlier)

    def _stop_if_unsendable(self, outcome: Answer | Exception) -> None:
        """Stop sending if nothing can be sent."""
        self._outage.note_outcome(outcome)
        self._summary.has_open |= isinstance(outcome, _OPEN) and not was_not_sent(outcome)
        if self._outage.stops_sending_after(outcome):
            failure = failure_of(outcome, self._session)
            self._stop_sending(self._with_resume_hint(failure, "sending has stopped"))

    def _with_resume_hint(self, failure: Failure, problem: str) -> Failure:
        resuming = f"to resume: {self._session.command(*self._plan.words())}"
        hint = f"{failure.hint}; then, {resuming}" if failure.hint else resuming
        return failure._replace(message=f"{problem}: {failure.message}", hint=hint)

    async def _wait(self) -> None:
        """Wait before the next message while the agent is unreachable or refuses calls."""
        outage, clock = self._outage, asyncio.get_running_loop().time
        if not outage.is_on:
            return
        until = clock() + outage.pause()

        def is_over() -> bool:
            expects_answer = outage.expects_answer() and self._in_flight() > 0
            return not outage.is_on or (clock() >= until and not expects_answer)

        await _wait_until(is_over)

    async def _watch(self, work: asyncio.Task[None]) -> None:
        """Report an outage of the agent, and end the work if it lasts too long."""
        outage = self._outage
        while True:
            await asyncio.sleep(_CHECK_INTERVAL_S)
            self._report_outage()
            if outage.error is not None and outage.is_over_long:
                self._stop_sending(self._outage_failure(outage.error))
                await self._until_sent()
                work.cancel()

    def _report_outage(self) -> None:
        """Report when the agent becomes unreachable, and when it answers again."""
        if (change := self._outage.change()) is not None:
            self._output.emit(Notice.warning(change))

    async def _until_sent(self) -> None:
        """Wait for messages that are being sent: if cancelled, their outcome is unknown."""
        clock = asyncio.get_running_loop().time
        until = clock() + _SENDING_GRACE_S
        await _wait_until(lambda: not self._outage.sending or clock() >= until)

    def _outage_failure(self, error: A2AError) -> Failure:
        """Return the failure for an agent that was unreachable for too long."""
        failure = failure_of(error, self._session)._replace(message=unreachable_reason(error))
        duration = shown_duration(MAX_OUTAGE_S)
        return self._with_resume_hint(failure, f"the agent has not been reached for {duration}")

    def _unwritable(self, error: OSError) -> CommandError:
        return CommandError(
            Failure(
                code="HOLDFAST_ERR_FILE",
                message=f"{self._plan.output} cannot be written: {error.strerror or error}",
                hint=f"to resume: {self._session.command(*self._plan.words())}",
            )
        )

    def _gone(self) -> CommandError:
        message = f"{self._plan.output} was moved or deleted; the journal has the results in it"
        hint = (
            f"to write all results again, and resume: {self._session.command(*self._plan.words())}"
        )
        return CommandError(Failure(code="HOLDFAST_ERR_FILE", message=message, hint=hint))

    def _stop_sending(self, failure: Failure) -> None:
        """Stop sending; messages in flight end first."""
        self._fault = self._fault or CommandError(failure)
        self._stop()

    async def _remaining(self, lines: Lines, results: Results) -> Remaining:
        """Return the lines without an answer or error."""
        if not self._is_ended:
            return Remaining()
        if not lines.is_file:
            return Remaining(None, None)
        pending_keys = await self._pending_keys()
        count = pending = 0
        try:
            for line in lines.again():
                if isinstance(line, BadLine):
                    count += not self._plan.skips_bad_lines
                elif line.key not in results.known:
                    count += 1
                    pending += pending_keys is not None and line.key in pending_keys
        except OSError:
            return Remaining(None, None)
        count -= self._counts.unwritten + self._counts.elsewhere
        return Remaining(count, None if pending_keys is None else min(pending, count))

    async def _pending_keys(self) -> set[str] | None:
        """Return the keys of the run's pending calls; None if the journal cannot be read."""
        try:
            records = await self._session.journal.unfinished()
        except JournalError:
            return None
        named = [run_and_key(r.label) for r in records if r.label and r.outcome is None]
        return {key for name, key in named if name == self._plan.name}


def _is_final(record: CallRecord) -> bool:
    """Return whether the answer of a call can no longer change: a message, or an ended task."""
    return record.state is None or TaskState(record.state).is_terminal


async def _wait_until(is_over: Callable[[], bool]) -> None:
    while not is_over():  # noqa: ASYNC110  only time can make it true
        await asyncio.sleep(_CHECK_INTERVAL_S)


def _changed(line: Line, recorded_in: str, message_id: str | None = None) -> KeyConflictError:
    """Return the error of a changed message, in the terms of the command line."""
    return KeyConflictError(
        f"the id {line.id!r} belongs to another message in {recorded_in}; this message was not "
        "sent: give it an id of its own",
        key=line.key,
        message_id=message_id,
        executed=False,
    )
