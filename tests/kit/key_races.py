"""Processes that call an agent with the same keys, on one journal, and crash at any step.

A plan says when each process asks, and at which step it crashes or stands still; a step is the
moment before or after an operation of the journal, or before or after a request.

Three kinds of problems are noted: wrong results of a caller; executions that the results do not
show; and breaches of leases, which most often do no harm (`Holders`).
"""

import asyncio
import itertools
import json
import logging

import msgspec
from hypothesis import strategies as st
from tests.kit.foreign_journal import Foreign

from holdfast import (
    A2AConnectionError,
    A2AError,
    Message,
    OutcomeUnknownError,
    Part,
    Role,
    TaskTerminalError,
    connect,
)
from holdfast.errors import CallEndedError, DuplicateTasksError, JournalError, KeyConflictError
from holdfast.testing import (
    Cut,
    Delay,
    Duplicate,
    FakeAgent,
    FakeNetwork,
    Refuse,
    Reset,
    Respond,
    Stall,
    completes,
    fails,
    replies,
    run,
)

__all__ = ["RESENDING", "Plan", "late_plans", "plans", "problems_of"]

KEYS = ("a", "b")
RESENDING = ("reconcile", "resend", "resend_if_absent")
"""Values of ``on_unknown`` of plans in which a message may be sent again."""

LONGEST = 600.0
"""Seconds after which no call of a plan is in flight any more."""

SENDS = ("SendStreamingMessage", "SendMessage")
ABOUT_SENDS = (
    Refuse(),
    Reset(),
    Reset(after_execution=True),
    Stall(),
    Stall(after_execution=True),
    Delay(seconds=20, after_execution=False),
    Delay(seconds=20),
    Cut(),
    Cut(after_events=1),
    Cut(after_events=1, clean=True),
    Duplicate(event=1),
    Respond(status=502),
    Respond(status=502, after_execution=True),
    Respond(status=429),
)
ABOUT_READS = (Refuse(), Reset(), Stall(), Respond(status=502), Respond(status=503))


class Ask(msgspec.Struct, frozen=True):
    """One call: `cancelled_after` some seconds, unless that is None."""

    key: str
    way: str
    at: float
    on_unknown: str
    cancelled_after: float | None
    names_message: bool


class ProcessPlan(msgspec.Struct, frozen=True):
    """One process: the steps at which it crashes, and stands still for longer than a lease."""

    asks: tuple[Ask, ...]
    crashes_at: int | None
    stands_still_at: int | None
    resumes: bool


class Plan(msgspec.Struct, frozen=True):
    """What happens; `seed` is that of the order in which ready tasks continue."""

    processes: tuple[ProcessPlan, ...]
    answers: tuple[tuple[str, float], ...]
    streaming: bool
    faults: tuple[object, ...]
    faults_of_reads: tuple[object, ...]
    seed: int


def late_plans():
    """Return plans in which a process stands still while another one asks for the same key."""

    def asks(at):
        return st.builds(
            Ask,
            key=st.just("a"),
            way=st.sampled_from(["ask", "conversation", "send", "stream"]),
            at=st.just(at),
            on_unknown=st.just("reconcile"),
            cancelled_after=st.none(),
            names_message=st.booleans(),
        )

    def processes(at, stands_still_at):
        return st.builds(
            ProcessPlan,
            asks=st.tuples(asks(at)),
            crashes_at=st.none(),
            stands_still_at=stands_still_at,
            resumes=st.just(False),
        )

    return st.builds(
        Plan,
        processes=st.tuples(processes(0, st.integers(4, 10)), processes(3, st.none())),
        answers=st.just((("task", 60), ("task", 0))),
        streaming=st.booleans(),
        faults=st.just(()),
        faults_of_reads=st.just(()),
        seed=st.integers(0, 9999),
    )


def plans(on_unknown=("reconcile", "raise")):
    """Return the plans whose calls have one of these options."""
    asks = st.builds(
        Ask,
        key=st.sampled_from(KEYS),
        way=st.sampled_from(["ask", "conversation", "send", "send at once", "stream"]),
        at=st.sampled_from([0, 0, 0.1, 3, 25, 45]),
        on_unknown=st.sampled_from(on_unknown),
        cancelled_after=st.sampled_from([None] * 5 + [0, 0.05, 4]),
        names_message=st.booleans(),
    )
    processes = st.builds(
        ProcessPlan,
        asks=st.lists(asks, min_size=1, max_size=3).map(tuple),
        crashes_at=st.none() | st.integers(1, 24),
        stands_still_at=st.none() | st.integers(1, 12) | st.integers(1, 24),
        resumes=st.booleans(),
    )
    return st.builds(
        Plan,
        processes=st.lists(processes, min_size=2, max_size=3).map(tuple),
        answers=st.tuples(
            *[
                st.tuples(
                    st.sampled_from(["task", "task", "message", "failure"]),
                    st.sampled_from([0, 4, 50]),
                )
            ]
            * len(KEYS)
        ),
        streaming=st.booleans(),
        faults=st.lists(st.sampled_from(ABOUT_SENDS), min_size=1, max_size=3).map(tuple),
        faults_of_reads=st.lists(st.sampled_from(ABOUT_READS), max_size=2).map(tuple),
        seed=st.integers(0, 9999),
    )


class CrashError(OSError):
    """The process has crashed: what it does has no effect."""


class Process:
    """A client with a journal of its own over the records of all.

    Attributes:
        is_dead: Whether it has crashed.
        has_stood_still: Whether it has stood still.
    """

    def __init__(self, world, plan):
        self.is_dead = self.has_stood_still = False
        self.tasks = []
        self._plan = plan
        self._steps = 0
        self._goes_on_at = 0.0
        self.client = connect(
            world.agent.url,
            engine=Network(world.agent, self, world.holders),
            journal=Steps(world.store, self, world.holders),
        )

    def begin(self, work, *, cancelled_after=None):
        """Begin work of the process."""
        task = asyncio.get_running_loop().create_task(work)
        self.tasks.append(task)
        if cancelled_after is not None:
            asyncio.get_running_loop().call_later(cancelled_after, task.cancel)

    async def ended(self):
        """Return the errors of the work, once all of it has ended."""
        ends = await asyncio.gather(*self.tasks, return_exceptions=True)
        expected = asyncio.CancelledError | (Exception if self.is_dead else asyncio.CancelledError)
        return [end for end in ends if end is not None and not isinstance(end, expected)]

    async def step(self):
        """Do one step: crash or stand still where the plan says so."""
        if self.is_dead:
            raise CrashError
        self._steps += 1
        if self._plan is not None:
            now = asyncio.get_running_loop().time()
            if self._steps == self._plan.crashes_at:
                self.is_dead = True
                for task in self.tasks:
                    task.cancel()
                raise CrashError
            if self._steps == self._plan.stands_still_at:
                self._goes_on_at, self.has_stood_still = now + 50, True
            await asyncio.sleep(max(0.0, self._goes_on_at - now))
        if self.is_dead:
            raise CrashError


class Steps:
    """A journal whose operations are steps of a process."""

    stores_messages = True
    lease = 30.0

    def __init__(self, store, process, holders):
        self._store = store
        self._process = process
        self._holders = holders

    def __getattr__(self, name):
        operation = getattr(self._store, name)

        async def noted(*arguments):
            async with self._holders.turn:  # else the next operation may be noted first
                result = await operation(*arguments)
                self._holders.note(self._process, name, arguments, result)
            return result

        async def stepped(*arguments):
            await self._process.step()
            # A cancelled operation takes effect, or does not.
            result = await asyncio.shield(asyncio.ensure_future(noted(*arguments)))
            await self._process.step()
            return result

        return stepped

    async def close(self):
        """Do nothing: the records are those of all processes."""


class Network(FakeNetwork):
    """A network in which requests are steps of a process."""

    def __init__(self, agent, process, holders):
        super().__init__(agent)
        self._process = process
        self._holders = holders

    def stream(self, request):
        if request.body:
            body = json.loads(request.body)
            if body["method"] in SENDS:
                self._holders.note_send(self._process, body["params"]["message"]["messageId"])
        return Request(super().stream(request), self._process)


class Request:
    """One request."""

    def __init__(self, connection, process):
        self._connection = connection
        self._process = process

    async def __aenter__(self):
        try:
            await self._process.step()
        except CrashError as error:
            raise A2AConnectionError("the process has crashed", failure="refused") from error
        stream = await self._connection.__aenter__()
        try:
            await self._process.step()
        except BaseException:
            await self._connection.__aexit__(None, None, None)
            raise
        return stream

    async def __aexit__(self, *error):
        await self._connection.__aexit__(*error)


class Holders:
    """The process that holds each call, by what the journal has answered.

    A breach is noted where it happens, because most breaches do no harm: a call that was taken
    over from a live process most often has the same result nevertheless.

    Attributes:
        problems: What went wrong, a line each.
        turn: Held during an operation of the journal.
    """

    def __init__(self):
        self.problems = []
        self.turn = asyncio.Lock()
        self._holders = {}  # by message: the process, and the generation
        self._released = set()  # messages

    def note(self, process, name, arguments, result):
        """Note an operation that has taken effect."""
        if name == "begin":
            self._take(process, result)
        elif name == "claim":
            holder, _ = self._holders.get(result.message_id, (None, None))
            is_free = holder is None or result.message_id in self._released
            if not (is_free or holder.is_dead or holder.has_stood_still):
                self.problems.append(f"{result.message_id} was taken over from a live process")
            self._take(process, result)
        elif name == "renew":
            held = dict(*arguments)
            for message_id in result:
                self._check(process, message_id, held[message_id], "renewed")
        elif name == "update" and result:
            message_id, generation, update = arguments
            self._check(process, message_id, generation, "updated")
            if update.outcome is not None:
                self._holders.pop(message_id, None)
            elif update.releases:
                self._released.add(message_id)

    def _take(self, process, record):
        self._holders[record.message_id] = process, record.generation
        self._released.discard(record.message_id)

    def _check(self, process, message_id, generation, verb):
        if self._holders.get(message_id) != (process, generation):
            self.problems.append(f"{message_id} was {verb} by a process that no longer holds it")

    def note_send(self, process, message_id):
        """Note that a process is about to send a message."""
        holder, _ = self._holders.get(message_id, (None, None))
        if holder is not process or message_id in self._released:
            self.problems.append(f"{message_id} is sent by a process that does not hold its call")


ELSEWHERE = {"held", "taken_over", "finished"}
EXPECTED = OutcomeUnknownError | TaskTerminalError | DuplicateTasksError


class World:
    """The agent, the records, and what was returned to the callers.

    Attributes:
        results: By key, what its callers got: an id, or an error.
        executed: By key, the id of the message of each execution.
    """

    def __init__(self, plan, store):
        self._answers = dict(zip(KEYS, plan.answers, strict=True))
        self.agent = FakeAgent(self._answer, streaming=plan.streaming)
        for fault in plan.faults:
            self.agent.inject(fault, on=SENDS[not plan.streaming])
        for fault in plan.faults_of_reads:
            self.agent.inject(fault, on="GetTask")
            self.agent.inject(fault, on="ListTasks")
        self.store = store
        self.holders = Holders()
        self.results = {key: [] for key in KEYS}
        self.executed = {key: [] for key in KEYS}
        self.problems = self.holders.problems

    def is_message(self, key):
        """Return whether the agent answers with a message, which no search finds."""
        return self._answers[key][0] == "message"

    def _answer(self, turn):
        key = turn.message.text
        kind, after = self._answers[key]
        self.executed[key].append(turn.message.message_id)
        if kind == "message":
            return replies(f"{key} by {turn.message.message_id}")
        return (completes if kind == "task" else fails)(key, after=after)

    async def ask(self, process, ask):
        """Make a call, and note its result unless its process crashes."""
        await asyncio.sleep(ask.at)
        try:
            result = await result_of(process.client, ask)
        except A2AError as error:
            result = error
        if not process.is_dead:
            self.results[ask.key].append(result)
            if is_wrong(result, ask.way, has_stood_still=process.has_stood_still):
                self.problems.append(f"{ask.key}: {result!r}")

    async def resume(self, process):
        """Resume what is pending; several processes may do so at once."""
        async for outcome in process.client.resume_pending():
            error = outcome.error
            is_elsewhere = isinstance(error, JournalError) and error.reason in ELSEWHERE
            if isinstance(error, JournalError) and not is_elsewhere and not process.is_dead:
                self.problems.append(f"resuming {outcome.message_id}: {error!r}")


def is_wrong(result, way, *, has_stood_still):
    """Return whether no caller may get such a result."""
    if isinstance(result, JournalError):
        # A stream whose call another process continues ends; so does a call that was not sent,
        # because its lease could not be renewed in time.
        ends_stream = way == "stream" and result.reason == "taken_over"
        is_late = result.reason == "unusable" and result.executed is False
        return not (has_stood_still and (ends_stream or is_late))
    if isinstance(result, CallEndedError):  # two tasks are known: see `_judge`
        return result.outcome != "duplicated"
    return isinstance(result, KeyConflictError)


async def result_of(client, ask):
    """Return the id of the task that answers a call, or the text of the message."""
    message_id = f"{ask.key}-1" if ask.names_message else client_id()
    message = Message(message_id=message_id, role=Role.USER, parts=[Part(text=ask.key)])
    options = {"key": ask.key, "on_unknown": ask.on_unknown, "timeout": LONGEST}
    if ask.way in {"send", "send at once"}:
        at_once = ask.way == "send at once"
        result = await client.send_message(message, return_immediately=at_once, **options)
        return result.text if isinstance(result, Message) else result.id
    try:
        if ask.way == "ask":
            answer = await client.ask(message, **options)
        elif ask.way == "conversation":
            answer = await client.conversation().ask(message, **options)
        else:
            async with client.stream_message(message, **options) as events:
                answer = await events.result()
    except TaskTerminalError as error:
        return error.task.id
    return answer.task_id or answer.text


def client_id():
    """Return the id of a message that no other call has."""
    return f"m-{next(_ids)}"


_ids = itertools.count(1)


async def _play(plan, store, *, may_resend):
    world, processes = World(plan, store), []
    for its_plan in plan.processes:
        process = Process(world, its_plan)
        processes.append(process)
        for ask in its_plan.asks:
            process.begin(world.ask(process, ask), cancelled_after=ask.cancelled_after)
        if its_plan.resumes:
            process.begin(world.resume(process))
    for process in processes:
        world.problems += [repr(error) for error in await process.ended()]
    for process in processes:
        await process.client.close()
    await asyncio.sleep(100)  # the leases end, and late requests arrive
    world.agent._faults.clear()
    for key in KEYS:
        await _judge(world, key, may_resend=may_resend)
    await store.close()
    return world.problems


async def _judge(world, key, *, may_resend):
    """Note what is wrong with the results of a key, after a survivor has asked for it."""
    earlier, before = list(world.results[key]), len(world.executed[key])
    await _survive(world, key)
    executed = world.executed[key]
    first, second = world.results[key][len(earlier) :]
    known = {result for result in (*earlier, first, second) if isinstance(result, str)}
    was_unknown = any(isinstance(result, OutcomeUnknownError) for result in earlier)
    wrong = {
        "was executed as several messages": len(set(executed)) > 1,
        "was executed after its outcome was unknown": was_unknown and len(executed) > before,
        "has two results at the end": type(first) is not type(second),
    }
    if len(executed) < 2 or not may_resend:
        wrong |= {
            "was executed more than once": len(executed) > 1,
            "has several results": len(known) > 1,
            "has no result at the end": not isinstance(first, str | OutcomeUnknownError),
            "was executed, and is not found": bool(executed)
            and not (isinstance(first, str) or world.is_message(key)),
        }
    world.problems += [
        f"{key} {problem}: executed {executed}, results {earlier}, then {first!r}, {second!r}"
        for problem, is_wrong in wrong.items()
        if is_wrong
    ]


async def _survive(world, key):
    """Resume what is pending, and ask twice for a key, by a process that does not crash."""
    survivor = Process(world, None)
    async with survivor.client as client:
        async for outcome in client.resume_pending():
            if outcome.error is not None and not isinstance(outcome.error, EXPECTED):
                world.problems.append(f"the survivor resumed {outcome.error!r}")
        pending = await client.pending()
        if not all(call.is_unknown for call in pending):
            world.problems.append(f"these stay pending: {pending}")
        for way in ("ask", "send"):
            await world.ask(survivor, Ask(key, way, 0, "reconcile", None, names_message=True))


def problems_of(plan, store=None, *, may_resend=False):
    """Return what went wrong, a line each.

    Args:
        plan: What happens.
        store: The journal of all processes, with a lease of 30 s, which is closed at the end; one
            in memory if left out.
        may_resend: Whether some calls allow their message to be sent again.
    """
    logger = logging.getLogger("holdfast")
    level = logger.level
    logger.setLevel(logging.CRITICAL)  # most of the time would be spent on warnings
    try:
        return run(_play(plan, store or Foreign(), may_resend=may_resend), seed=plan.seed)
    finally:
        logger.setLevel(level)
