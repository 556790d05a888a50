"""Client processes to be killed: each line of standard input is a job, for a process of its own.

A job is a JSON object: ``id``, ``url``, ``journal`` (a path, or an address of PostgreSQL),
``report`` (a file that what it has seen is added to, line by line), ``do`` (``call``, ``run`` or
``resume``), and what `Job` takes.
Of each process two lines are told: that it is there, with its pid, and its status at its end.

Processes are forked, before anything runs in them: starting Python takes longer than to be killed.
"""

import asyncio
import json
import os
import random
import select
import signal
import sys
from contextlib import suppress
from dataclasses import dataclass, field

import holdfast
import holdfast._net.aiohttp
from holdfast import Message, Part, Role, RunItem
from holdfast._journal import postgres as _imported_before_the_fork  # noqa: F401
from holdfast._journal.resolve import open_journal

RESILIENCE = holdfast.Resilience(
    timeouts=holdfast.Timeouts(first_byte=1.0, idle=1.0),
    retry=holdfast.RetryPolicy(base_delay=0.02, max_delay=0.1),
    reconnect=holdfast.ReconnectPolicy(backoff=0.02, max_backoff=0.1),
    budget=None,
    breaker=holdfast.BreakerPolicy(open_for=0.1, max_open_for=0.5),
    reconcile=holdfast.ReconcilePolicy(timeout=0.8, backoff=0.05, max_backoff=0.2),
)


@dataclass(frozen=True)
class Job:
    """What one process is to do.

    Attributes:
        calls: Each a way and the id of its message.
        at_once: How many calls are on their way.
        dies: Number of the call of the journal at which the process kills itself, from 1 on, and
            ``before`` or ``after`` it; None for none.
        lease: Seconds.
        seed: Of its random numbers.
    """

    id: int
    url: str
    journal: str
    report: str
    do: str = "call"
    calls: list = field(default_factory=list)
    at_once: int = 1
    dies: list | None = None
    lease: float = 0.4
    seed: int = 0


class DyingJournal:
    """A journal at whose n-th call the process ends, with that call done or not."""

    def __init__(self, journal, number, when):
        self._journal, self._left, self._when = journal, number, when

    def __getattr__(self, name):
        found = getattr(self._journal, name)
        if name not in {"begin", "update"}:
            return found

        async def called(*arguments):
            self._left -= 1
            if self._left == 0 and self._when == "before":
                os.kill(os.getpid(), signal.SIGKILL)
            done = await found(*arguments)
            if self._left == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            return done

        return called


class Client:
    """Does a job, and reports."""

    def __init__(self, job):
        self._job = job
        self._report = os.open(job.report, os.O_APPEND | os.O_CREAT | os.O_WRONLY)
        journal = open_journal("journal", job.journal, lease=job.lease)
        self._kept = journal
        self._journal = journal if job.dies is None else DyingJournal(journal, *job.dies)

    async def work(self):
        random.seed(self._job.seed)
        client = holdfast.connect(
            self._job.url,
            url=f"{self._job.url}rpc",
            journal=self._journal,
            resilience=RESILIENCE,
            timeout=20.0,
        )
        if isinstance(self._kept, holdfast.PostgresJournal):
            await self._until_reached()
        async with client:
            await getattr(self, f"_{self._job.do}")(client)
        await self._kept.close()

    async def _until_reached(self):
        """Waits for the server, which may restart: a first connection is not repeated."""
        while True:
            try:
                await self._kept.check()
            except holdfast.errors.JournalError:
                await asyncio.sleep(0.02)
            else:
                return

    async def _call(self, client):
        room = asyncio.Semaphore(self._job.at_once)

        async def one(way, message_id):
            async with room:
                self._say(began=message_id)
                await self._ended(message_id, getattr(self, f"_by_{way}")(client, message_id))

        await asyncio.gather(*(one(*call) for call in self._job.calls))

    async def _run(self, client):
        names = {name for _, name in self._job.calls}
        while names:  # another process may hold some: later
            items = [RunItem(key=name, content=_message(name)) for name in sorted(names)]
            async with client.run(
                items, run_id="night", concurrency=self._job.at_once, poll_interval=0.05
            ) as results:
                async for result in results:
                    with suppress(holdfast.errors.JournalError):
                        await self._ended(result.key, _given(result))
                        if not _is_unread(result):
                            names.discard(result.key)
            await asyncio.sleep(0.02)

    async def _resume(self, client):
        """Resumes pending calls until each has an outcome: leases have to end first."""
        while calls := [call for call in await client.pending() if not call.is_unknown]:
            await asyncio.gather(*(self._resumed(call) for call in calls))
            await asyncio.sleep(0.02)

    async def _resumed(self, call):
        with suppress(holdfast.errors.JournalError):  # held: later
            await self._ended(call.message_id, call.resume())

    async def _by_ask(self, client, message_id):
        return await client.ask(_message(message_id), poll_interval=0.05)

    async def _by_send(self, client, message_id):
        return holdfast.Answer(task=await client.send_message(_message(message_id)))

    async def _by_stream(self, client, message_id):
        async with client.stream_message(_message(message_id)) as events:
            return await events.result()

    async def _ended(self, message_id, work):
        try:
            answer = await work
        except holdfast.OutcomeUnknownError:
            self._say(unknown=message_id)
        except holdfast.A2AError as error:
            if isinstance(error, holdfast.errors.JournalError):
                if self._job.do != "call":
                    raise
                self._say(**{"taken over": message_id})
                return
            said = {"executed": error.executed, "error": f"{type(error).__name__}: {error}"}
            self._say(failed=message_id, **said)
        else:
            task = None if answer.task is None else answer.task.to_json()
            self._say(answered=message_id, text=answer.text, task=task)

    def _say(self, **facts):
        os.write(self._report, json.dumps(facts).encode() + b"\n")


def _message(message_id):
    return Message(message_id=message_id, role=Role.USER, parts=(Part(text=message_id),))


async def _given(result):
    if result.error is not None:
        raise result.error
    return result.answer


def _is_unread(result):
    """Whether the message was executed, and its task could not be read: a later run reads it."""
    return result.was_resumed and result.error is not None and result.error.executed is True


def _tell(**facts):
    os.write(1, json.dumps(facts).encode() + b"\n")


def work(job):
    """Does a job."""
    asyncio.run(Client(Job(**job)).work())


def main(do):
    """Takes jobs, and tells of ends, until standard input ends.

    Args:
        do: Does a job, in a process of its own.
    """
    running = {}
    received = b""
    while True:
        if select.select([0], [], [], 0.005)[0]:
            more = os.read(0, 65536)
            if not more:
                break
            received += more
        while b"\n" in received:
            line, _, received = received.partition(b"\n")
            job = json.loads(line)
            pid = os.fork()
            if pid == 0:
                do(job)
                os._exit(0)
            running[pid] = job["id"]
            _tell(id=job["id"], pid=pid)
        with suppress(ChildProcessError):
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                status = os.waitstatus_to_exitcode(ended[1])
                _tell(id=running.pop(ended[0]), status=status)
    for pid in running:
        os.kill(pid, signal.SIGKILL)


if __name__ == "__main__":
    sys.exit(main(work))
