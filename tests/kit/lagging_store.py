"""A model of an agent whose store lags behind its streams, and of what a caller may be given.

It shares no code with the library but the protocol's types. The agent makes a list of events, each
with its time. A stream brings each event when it happens; the store takes it some time later, in
order. A subscription begins with a snapshot or without, and may repeat events of before. All of
it is drawn from a seed (`World`), so that a schedule can be replayed.

What a caller has of an artifact is judged by the states that the artifact truly had (`Judge`):
what the caller has after each event has to be one of them, and never one of before.
"""

import asyncio
import bisect
import math
import random

from holdfast import (
    A2AConnectionError,
    A2AError,
    A2AHTTPError,
    A2ATimeoutError,
    Artifact,
    Limits,
    Message,
    Part,
    ReconnectPolicy,
    Role,
    Task,
    TaskState,
)
from holdfast._aio.watchdog import Watchdog
from holdfast._stream.machine import StreamMachine
from holdfast._stream.resumable import ResumableStream
from holdfast._stream.text import TextFold
from holdfast.client import TextDelta
from holdfast.errors import MethodNotFoundError, UnsupportedOperationError
from holdfast.policies import Deadline
from holdfast.testing import run
from holdfast.types import (
    StreamResponse,
    TaskArtifactUpdateEvent,
    TaskStatus,
    TaskStatusUpdateEvent,
)

TOKENS = ("a ", "b ", "c ")
LAGS = (0.0, 0.0, 0.02, 0.05, 1.0, 5.0, 20.0)
PACES = (0.0, 0.01, 0.05, 0.3, 2.0)
DEADLINE = 600.0


class World:
    """One agent, its task and its store.

    Args:
        seed: What everything is drawn from.
        fixed: What is given instead: ``lag`` in seconds, ``replaces``, ``cuts`` and others.
    """

    def __init__(self, seed, **fixed):
        dice = self.dice = random.Random(seed)
        self.seed = seed
        self.replaces = fixed.get("replaces", dice.random() < 0.5)
        self.artifacts = fixed.get("artifacts", dice.choice((1, 1, 1, 2, 3)))
        self.is_dated = fixed.get("is_dated", dice.random() < 0.8)
        self.end = fixed.get(
            "end",
            dice.choice((*[TaskState.COMPLETED] * 2, TaskState.FAILED, TaskState.INPUT_REQUIRED)),
        )
        self.has_store = fixed.get("has_store", dice.random() < 0.9)
        self._make_events(fixed.get("length", dice.randint(1, 16)))
        self._make_store(fixed)
        self.cuts = fixed.get("cuts", dice.choice((0, 1, 1, 1, 2, 3, 6)))
        self.overlap = fixed.get("overlap", dice.choice((0, 0, 0, 1, 2, 5)))
        self.snapshot = fixed.get("snapshot", dice.choice(("store", "store", "newer", None)))
        if not self.has_store:  # else what is missed is lost, or nobody can say what is repeated
            self.snapshot, self.overlap = "live", 0
        self.fails = fixed.get("fails", dice.choice((0.0, 0.0, 0.0, 0.3, 0.7)))
        self.fails_until = fixed.get("fails_until", dice.choice((math.inf, 0.0, 3.0, 30.0)))
        self.looks = self.subscriptions = 0

    def _make_events(self, length):
        dice = self.dice
        pace = dice.choice(PACES)
        at, texts, self.events = dice.choice((0.0, pace)), {}, []
        words = TOKENS[: dice.choice((1, 2, 3, 3))]
        for number in range(length):
            at += pace * dice.choice((0.0, 0.5, 1.0, 1.0, 3.0))
            if dice.random() < 0.1:
                self.events.append((at, self._status(number, TaskState.WORKING)))
                continue
            name = f"artifact-{dice.randrange(self.artifacts)}"
            parts, known = [dice.choice(words)], texts.get(name)
            append = known is not None
            if append and self.replaces and dice.random() < 0.3:
                append = False
                kind = dice.choice(("prefix", "prefix", "other", "longer", "same"))
                if kind == "prefix":
                    parts = known[: dice.randint(1, len(known))]
                elif kind == "longer":
                    parts = [*known, *parts]
                elif kind == "same":
                    parts = known
            elif known is None and dice.random() < 0.1:
                append = True
            texts[name] = [*known, *parts] if append and known else list(parts)
            event = TaskArtifactUpdateEvent(
                task_id="t",
                context_id="c",
                artifact=Artifact(
                    artifact_id=name, parts=tuple(Part(text=text) for text in parts)
                ),
                append=append,
            )
            self.events.append((at, event))
        at += pace * dice.choice((0.0, 1.0, 5.0))
        self.events.append((at, self._status(length, self.end)))
        self.times = [at for at, _ in self.events]
        self.tasks = [_task(None, (), TaskState.SUBMITTED, self._stamp(-1))]
        for _, event in self.events:
            self.tasks.append(_after(self.tasks[-1], event))

    def _make_store(self, fixed):
        dice = self.dice
        constant = fixed.get("lag")
        if constant is None and dice.random() < 0.6:
            constant = dice.choice(LAGS)
        stuck = fixed.get("stuck", dice.random() < 0.05)
        stops = dice.randrange(len(self.events)) if stuck and self.has_store else len(self.events)
        self.is_stuck = stops < len(self.events)
        self.stored, latest = [], 0.0
        for number, at in enumerate(self.times):
            lag = dice.choice(LAGS) * dice.random() if constant is None else constant
            latest = max(latest, at + lag) if number < stops else math.inf
            self.stored.append(latest)

    def _stamp(self, number):
        number += 1
        return f"2026-01-01T00:{number // 60:02}:{number % 60:02}Z" if self.is_dated else None

    def _status(self, number, state):
        says = None
        if state is TaskState.INPUT_REQUIRED:
            says = Message(
                message_id=f"m-{number}", role=Role.AGENT, parts=(Part(text="?"),), task_id="t"
            )
        status = TaskStatus(state=state, message=says, timestamp=self._stamp(number))
        return TaskStatusUpdateEvent(task_id="t", context_id="c", status=status)

    # ── Where it stands ──────────────────────────────────────────────────────────────────────

    def happened(self):
        return bisect.bisect_right(self.times, asyncio.get_running_loop().time())

    def in_store(self):
        return bisect.bisect_right(self.stored, asyncio.get_running_loop().time())

    # ── What the stream is made of ───────────────────────────────────────────────────────────

    is_closed = False
    client = property(lambda self: self)
    subscribing_is_safe = True

    def first(self):
        return Connection(self, [self.tasks[0]], 0)

    async def subscribe(self, task_id):
        self.subscriptions += 1
        await asyncio.sleep(self.dice.choice((0.0, 0.001, 0.03)))
        self._break(0.3)
        place = self.happened()
        if place == len(self.events):
            raise UnsupportedOperationError("over", executed=False)
        store = self.in_store()
        at = {"store": store, "newer": self.dice.randint(min(store, place), place), "live": place}
        opening = [] if self.snapshot is None else [self.tasks[at[self.snapshot]]]
        connection = Connection(self, opening, max(0, place - self.dice.randint(0, self.overlap)))
        await asyncio.sleep(self.dice.choice((0.0, 0.001, 0.03)))
        return connection

    async def get_task(self, task_id):
        self.looks += 1
        await asyncio.sleep(self.dice.choice((0.0, 0.001, 0.03)))
        if not self.has_store:
            raise MethodNotFoundError("no GetTask", executed=False)
        self._break(1.0)
        task = self.tasks[self.in_store()]
        await asyncio.sleep(self.dice.choice((0.0, 0.001, 0.03)))
        return task

    def _break(self, share):
        if asyncio.get_running_loop().time() > self.fails_until:
            return
        if self.dice.random() < self.fails * share:
            if self.dice.random() < 0.5:
                raise A2AHTTPError("502", http_status=502, transient=True)
            raise A2ATimeoutError("slow", phase="first_byte", transient=True)

    async def pause(self, seconds, *, reason):
        await asyncio.sleep(seconds)

    def check_open(self, task_id):
        pass

    def on_interrupted(self, task_id, error):
        pass

    def on_failing(self, task_id, error, *, seconds):
        pass

    def on_gap(self, task_id):
        pass

    def on_reconnect(self, task_id, number, error):
        pass

    def register(self, task_id, stream):
        pass

    def unregister(self, task_id, stream):
        pass

    def random(self):
        return self.dice.random()


class Connection:
    """What one connection brings."""

    def __init__(self, world, opening, place):
        self.world, self.opening, self.place = world, list(opening), place
        self.left = math.inf
        if world.cuts:
            world.cuts -= 1
            self.left = world.dice.randint(1, 6)

    def __aiter__(self):
        return self

    def next_nowait(self):
        if self.left <= 0:
            return None
        if self.opening:
            self.left -= 1
            return StreamResponse(task=self.opening.pop(0))
        if self.place >= self.world.happened():
            return None
        self.left -= 1
        self.place += 1
        event = self.world.events[self.place - 1][1]
        if isinstance(event, TaskArtifactUpdateEvent):
            return StreamResponse(artifact_update=event)
        return StreamResponse(status_update=event)

    async def __anext__(self):
        world, loop = self.world, asyncio.get_running_loop()
        while (response := self.next_nowait()) is None:
            if self.left <= 0:
                await asyncio.sleep(world.dice.choice((0.0, 0.0, 0.1)))
                if world.dice.random() < 0.5:
                    raise StopAsyncIteration
                raise A2AConnectionError("cut", failure="reset", transient=True)
            if self.place >= len(world.events):
                raise StopAsyncIteration
            await asyncio.sleep(world.times[self.place] - loop.time())
        return response

    async def close(self):
        pass


class Judge:
    """What is wrong with what a caller was given; see `wrong`.

    Args:
        world: The agent.
    """

    def __init__(self, world):
        self.world = world
        self.wrong = set()
        self.text = TextFold()
        self.put_together = {}
        self.have = None
        names = {a.artifact_id for task in world.tasks for a in task.artifacts}
        self.states = {name: [_text(task, name) for task in world.tasks] for name in names}
        self.reached = dict.fromkeys(names, 0)

    def saw(self, event):
        for change in self.text.changes(event):
            if not isinstance(change, TextDelta):
                self.put_together[change.artifact_id] = ""
                if not self.world.replaces:
                    self.wrong.add("repeated")
            elif change.artifact_id is not None:
                text = self.put_together.get(change.artifact_id, "") + change.text
                self.put_together[change.artifact_id] = text
        self.have = _after(self.have, event)
        for name, states in self.states.items():
            text, at = _text(self.have, name), self.reached[name]
            if text != self.put_together.get(name, ""):
                self.wrong.add("text is not the task's")
            if text in states[at:]:
                self.reached[name] = states.index(text, at)
            else:
                self.wrong.add("repeated" if text in states else "lost")

    def ended(self, task, error):
        """The stream ended with a task, or with an error."""
        world = self.world
        if error is not None:
            return
        truth = world.tasks[-1]
        if task is None or task.state is not truth.state:
            self.wrong.add("wrong final")
        elif not world.is_stuck:  # else nobody can say what the agent's task is
            for name in self.states:
                if not _text(task, name) == self.put_together.get(name, "") == _text(truth, name):
                    self.wrong.add("wrong final")


def live(world):
    """Drives the machine and its shell through a world, in virtual time; gives a judge."""
    judge = Judge(world)

    async def main():
        limit = Deadline(name="stream", timeout=DEADLINE, at=DEADLINE)
        stream = ResumableStream(
            StreamMachine(Limits(), max_reconnects=8),
            world,
            world.first(),
            env=world,
            watchdog=Watchdog(),
            deadline=limit,
            policy=ReconnectPolicy(),
            max_retry_after=None,
            poll_interval=2.0,
        )
        error = None
        try:
            while (event := await stream.next()) is not None:
                judge.saw(event)
                if world.end is TaskState.INPUT_REQUIRED and stream.is_settled:
                    await stream.settle()
                    break
        except A2AError as caught:
            error = caught
        await stream.close()
        judge.ended(stream.outbox.task, error)
        judge.error = error
        judge.took = asyncio.get_running_loop().time()

    run(main())
    return judge


def _task(before, artifacts, state, stamp, message=None):
    status = TaskStatus(state=state, timestamp=stamp, message=message)
    return Task(id="t", context_id="c", status=status, artifacts=artifacts)


def _after(task, event):
    """A task after an event, as the protocol says: an independent fold, of text alone."""
    if isinstance(event, Task):
        return event
    if isinstance(event, TaskStatusUpdateEvent):
        return Task(id="t", context_id="c", status=event.status, artifacts=task.artifacts)
    artifacts = {a.artifact_id: a for a in task.artifacts}
    new, known = event.artifact, artifacts.get(event.artifact.artifact_id)
    if event.append and known is not None:
        new = Artifact(artifact_id=new.artifact_id, parts=known.parts + new.parts)
    artifacts[new.artifact_id] = new
    return Task(id="t", context_id="c", status=task.status, artifacts=tuple(artifacts.values()))


def _text(task, name):
    parts = [a.parts for a in task.artifacts if a.artifact_id == name] if task else []
    return "".join(part.text for part in parts[0]) if parts else ""
