"""The machine that keeps a stream alive: what the caller gets is the agent's task, once."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.kit.effort import rounds

from holdfast import (
    A2AConnectionError,
    Artifact,
    Limits,
    Message,
    Part,
    Role,
    Task,
    TaskNotFoundError,
    TaskState,
)
from holdfast._stream.fold import fold
from holdfast._stream.machine import StreamMachine
from holdfast._stream.states import Action, Input, Wait
from holdfast.errors import UnsupportedOperationError
from holdfast.types import TaskArtifactUpdateEvent, TaskStatus, TaskStatusUpdateEvent

W, C, F = TaskState.WORKING, TaskState.COMPLETED, TaskState.FAILED
REFUSED = A2AConnectionError("refused", failure="refused", executed=False, transient=True)


def stamp(number: int) -> str:
    return f"2026-01-01T00:{number // 60:02}:{number % 60:02}Z"


def status(number: int, state: TaskState = W, says: str | None = None) -> TaskStatusUpdateEvent:
    message = says and Message(
        message_id=f"says-{number}", role=Role.AGENT, parts=(Part(text=says),), task_id="t"
    )
    return TaskStatusUpdateEvent(
        task_id="t",
        context_id="c",
        status=TaskStatus(state=state, message=message or None, timestamp=stamp(number)),
    )


def chunk(text: str, artifact: str = "a", *, append: bool = True) -> TaskArtifactUpdateEvent:
    return TaskArtifactUpdateEvent(
        task_id="t",
        context_id="c",
        artifact=Artifact(artifact_id=artifact, parts=(Part(text=text),)),
        append=append,
    )


NEW = Task(id="t", context_id="c", status=TaskStatus(state=W, timestamp=stamp(0)))


class Server:
    """An agent that works through a list of events, whoever listens.

    Args:
        events: What happens.
        dice: Decides how far it comes between two requests, and where connections break.
        overlap: How many events a snapshot may hold that its stream repeats.
        stale: How many events a snapshot may lack that its stream does not bring either.
        ahead: How many events a snapshot that is not stale may hold before a look shows them.
        behind: How many events a look may lack that connections brought already.
        lag: How many looks at a task that is over show an older one.
        late: How many looks and snapshots ago the store was up to date, which all of them show.
        snapshots: Whether a subscription begins with the task.
        cuts: How often a connection breaks.
        subscribing_is_safe: Whether it takes more than one subscriber.
    """

    def __init__(
        self,
        events,
        dice,
        *,
        overlap=0,
        stale=0,
        ahead=0,
        behind=0,
        lag=0,
        late=0,
        snapshots=True,
        cuts=3,
        subscribing_is_safe=True,
    ):
        self.subscribing_is_safe = subscribing_is_safe
        self.events = events
        self.tasks = [NEW]
        for event in events:
            self.tasks.append(fold(self.tasks[-1], event))
        self.dice = dice
        self.done = 0
        self.overlap, self.stale, self.lag, self.snapshots = overlap, stale, lag, snapshots
        self.ahead, self.behind, self.stored = ahead, behind, 0
        self.cuts = cuts
        self.late = late
        self.reached = [0] * late  # by the work, at the last looks and snapshots
        self.looks = self.subscriptions = 0
        self.line: list = []
        self.at = 0

    def work(self, most=3):
        self.done = min(len(self.events), self.done + self.dice.randint(0, most))

    def open(self):
        self.at = 0
        return NEW

    def subscribe(self):
        self.subscriptions += 1
        self.work()
        if self.done == len(self.events) and self.dice.random() < 0.7:
            raise UnsupportedOperationError("over", executed=None)
        self.at = max(0, self.done - self.dice.randint(0, self.overlap))
        if self.late:
            shown = self.in_the_store()
        elif self.stale:
            shown = max(0, self.at - self.dice.randint(0, self.stale))
        else:
            shown = min(len(self.events), self.done + self.dice.randint(0, self.ahead))
        self.line = [self.tasks[shown]] if self.snapshots else []

    def look(self):
        self.looks += 1
        self.work()
        if self.done == len(self.events) and self.lag:
            self.lag -= 1
            return self.tasks[max(0, self.done - 1)]
        if self.late:
            return self.tasks[self.in_the_store()]
        if self.done < len(self.events):
            self.stored = max(self.stored, self.done - self.dice.randint(0, self.behind))
            return self.tasks[self.stored]
        return self.tasks[self.done]

    def in_the_store(self):
        self.reached.append(self.done)
        return self.reached.pop(0)

    def read(self):
        """The next event, or an exception for how the connection ends."""
        if self.cuts and self.dice.random() < 0.3:
            self.cuts -= 1
            raise REFUSED if self.dice.random() < 0.5 else EOFError
        if self.line:
            return self.line.pop(0)
        while self.at >= self.done:
            if self.done == len(self.events):
                raise EOFError
            self.work()
        self.at += 1
        return self.events[self.at - 1]


def run(server, machine, *, first=True, most=2000):
    """Drives a machine to its end, and gives what the caller saw."""
    seen = []
    if first:
        machine.on_event(server.open())
    for _ in range(most):
        while (event := machine.outbox.take()) is not None:
            seen.append(event)
        if machine.action is Action.STOP:
            return seen
        go_on(server, machine)
    raise AssertionError(f"no end: {machine.action}")


def go_on(server, machine):
    """Does what the machine says."""
    match machine.action:
        case Wait():
            server.work()
            machine.on_waited()
        case Action.GET_TASK:
            machine.on_task(server.look())
        case Action.SUBSCRIBE:
            try:
                server.subscribe()
            except UnsupportedOperationError as error:
                machine.on_refused(error)
            else:
                machine.on_subscribed(subscribing_is_safe=server.subscribing_is_safe)
        case _:
            read(server, machine)


def read(server, machine):
    """Reads once."""
    try:
        event = server.read()
    except EOFError:
        machine.on_end()
    except A2AConnectionError as error:
        machine.on_cut(error)
    else:
        machine.on_event(event)


def machine(**options) -> StreamMachine:
    options.setdefault("max_reconnects", 8)
    return StreamMachine(Limits(), **options)


def text_of(events, name="a") -> str:
    """The text that a caller puts together from the events of an artifact."""
    text = ""
    for event in events:
        if isinstance(event, Task):
            text = "".join(a.text for a in event.artifacts if a.artifact_id == name)
        elif isinstance(event, TaskArtifactUpdateEvent) and event.artifact.artifact_id == name:
            text = text + event.artifact.text if event.append else event.artifact.text
    return text


def histories(*more):
    """Lists of what happens to one task."""
    words = st.sampled_from(["a", "a", "a", "b", "ab", "ba", "Hello, ", "world!", " "])
    piece = st.one_of(
        words.map(lambda word: ("chunk", word)),
        words.map(lambda word: ("chunk", word)),
        words.map(lambda word: ("other", word)),
        st.just(("status", "")),
        words.map(lambda word: ("says", word)),
        *(words.map(lambda word, kind=kind: (kind, word)) for kind in more),
    )
    return st.lists(piece, min_size=0, max_size=25)


def events_of(pieces, end=C):
    events = []
    for number, (kind, word) in enumerate(pieces, start=1):
        match kind:
            case "chunk":
                events.append(chunk(word))
            case "other":
                events.append(chunk(word, "b"))
            case "replace":
                events.append(chunk(word, append=False))
            case "status":
                events.append(status(number))
            case _:
                events.append(status(number, says=word))
    return [*events, status(len(pieces) + 1, end)]


WORLDS = {
    "seed": st.integers(0, 2**32),
    "overlap": st.integers(0, 6),
    "stale": st.integers(0, 3),
    "ahead": st.integers(0, 2),
    "lag": st.integers(0, 2),
    "snapshots": st.booleans(),
    "cuts": st.integers(0, 12),
    "from_the_start": st.booleans(),
}


def lived(pieces, seed, from_the_start, **world):
    """A server, its machine at the end, and what the caller saw."""
    server = Server(events_of(pieces), random.Random(seed), **world)
    resume = machine(
        max_reconnects=50,
        task_id=None if from_the_start else "t",
        subscribing_is_safe=server.subscribing_is_safe,
    )
    return server, resume, run(server, resume, first=from_the_start)


def check_whole(server, resume, seen):
    """What the caller has is the agent's task, and it ended once."""
    truth = server.tasks[-1]
    assert resume.outbox.task is not None
    assert resume.outbox.task.artifacts == truth.artifacts
    assert resume.outbox.task.status == truth.status
    assert resume.outbox.task.history == truth.history or not server.subscriptions
    folded = None
    for event in seen:
        folded = fold(folded, event)
    assert folded is not None
    assert folded.artifacts == truth.artifacts
    states = [e for e in seen if isinstance(e, Task | TaskStatusUpdateEvent)]
    assert [e.status.state.is_terminal for e in states].count(True) == 1
    assert seen[-1] is states[-1] or seen[-1].status == states[-1].status
    stamps = [e.status.timestamp for e in states if isinstance(e, TaskStatusUpdateEvent)]
    assert stamps == sorted(set(stamps)), "a status came twice, or too late"


@pytest.mark.rule("D02", "D03")
@settings(max_examples=rounds(100, 400))
@given(pieces=histories(), **WORLDS)
def test_whatever_the_connections_do_the_caller_gets_the_agents_task_once(pieces, **world):
    server, resume, seen = lived(pieces, **world)
    check_whole(server, resume, seen)
    for name in ("a", "b"):
        lengths = [len(text_of(seen[: n + 1], name)) for n in range(len(seen))]
        assert lengths == sorted(lengths), "text was taken back"
        assert text_of(seen, name) == text_of([server.tasks[-1]], name)


@settings(max_examples=rounds(100, 400))
@given(pieces=histories(), **WORLDS)
def test_where_a_task_is_not_to_be_subscribed_to_again_it_is_looked_at(pieces, **world):
    server, resume, seen = lived(pieces, subscribing_is_safe=False, **world)
    check_whole(server, resume, seen)
    assert resume.reconnects == 0
    # One that asks for a subscription tries until there is one.
    assert server.subscriptions == 0 if world["from_the_start"] else server.subscriptions >= 1
    for name in ("a", "b"):
        lengths = [len(text_of(seen[: n + 1], name)) for n in range(len(seen))]
        assert lengths == sorted(lengths), "text was taken back"
        assert text_of(seen, name) == text_of([server.tasks[-1]], name)


@settings(max_examples=rounds(100, 400))
@given(pieces=histories("replace", "replace"), **WORLDS)
def test_an_artifact_that_is_replaced_meanwhile_is_the_agents_at_the_end(pieces, **world):
    check_whole(*lived(pieces, **world))


@settings(max_examples=rounds(100, 400))
@given(histories(), st.integers(0, 2**32), st.integers(1, 3), st.integers(1, 6))
def test_where_looks_tell_less_than_streams_the_task_is_the_agents_at_the_end(
    pieces, seed, behind, cuts
):
    check_whole(*lived(pieces, seed, from_the_start=True, behind=behind, cuts=cuts))


@pytest.mark.rule("D03")
@settings(max_examples=rounds(100, 400))
@given(
    kinds=st.lists(st.sampled_from(["chunk", "other", "status"]), max_size=25),
    seed=st.integers(0, 2**32),
    late=st.integers(1, 2),
    overlap=st.integers(0, 4),
    cuts=st.integers(1, 6),
    snapshots=st.booleans(),
)
def test_from_a_store_that_is_late_all_text_comes_once_and_none_is_taken_back(
    kinds, seed, **world
):
    words = [(kind, f"{kind}-{number} ") for number, kind in enumerate(kinds)]
    server, resume, seen = lived(words, seed, from_the_start=True, **world)
    check_whole(server, resume, seen)
    for name in ("a", "b"):
        texts = [text_of(seen[: n + 1], name) for n in range(len(seen))]
        truth = text_of([server.tasks[-1]], name)
        assert all(truth.startswith(text) for text in texts), "text was told that is not there"
        assert texts == sorted(texts, key=len), "text was taken back"


def picked_up(*chunks):
    """A machine whose caller has got some chunks, that has subscribed again, and lacks nothing."""
    resume, task = machine(), NEW
    resume.on_event(NEW)
    for event in chunks:
        resume.on_event(event)
        task = fold(task, event)
    resume.on_cut(None)
    resume.on_waited()
    resume.on_subscribed()
    resume.on_event(task)
    resume.on_task(task)
    while resume.outbox.take() is not None:
        pass
    assert resume.action is Action.READ
    return resume, task


def test_whole_artifact_that_grew_after_a_reconnect_is_emitted_at_once():
    resume, _ = picked_up(chunk("one", append=False))
    grown = chunk("one two", append=False)

    resume.on_event(grown)

    assert (resume.outbox.take(), resume.action) == (grown, Action.READ)
    resume.on_event(chunk(" three"))
    assert resume.outbox.take() == chunk(" three")
    assert resume.outbox.task.text == "one two three"


def test_whole_artifact_repeated_after_a_reconnect_is_not_emitted_again():
    resume, _ = picked_up(chunk("one", append=False), chunk(" two"))

    resume.on_event(chunk("one", append=False))
    while resume.action is not Action.READ:
        resume.on_task(resume.outbox.task)
    resume.on_event(chunk(" two"))
    resume.on_event(chunk(" three"))

    assert resume.outbox.take() == chunk(" three")
    assert resume.outbox.take() is None


def test_whole_artifact_is_emitted_if_the_content_of_the_task_is_unknown():
    resume, _ = picked_up(chunk("one", append=False))
    gone = TaskNotFoundError("no such task")

    resume.on_event(chunk(" two"))
    resume.on_no_task(gone)
    resume.on_event(other := chunk("something else", append=False))
    while resume.action is not Action.READ:
        resume.on_no_task(gone)

    assert resume.outbox.take() == chunk(" two")
    assert resume.outbox.take() == other


def test_a_question_of_long_ago_ends_nothing():
    asking = TaskStatus(state=TaskState.INPUT_REQUIRED, timestamp=stamp(3))
    working = TaskStatus(state=W, timestamp=stamp(5))
    resume = machine()
    resume.on_event(Task(id="t", context_id="c", status=working))
    resume.on_poll_only()
    resume.on_waited()

    resume.on_task(Task(id="t", context_id="c", status=asking))  # from a store that is late

    assert isinstance(resume.action, Wait)
    resume.on_waited()
    resume.on_task(Task(id="t", context_id="c", status=status(6, C).status))
    assert resume.action is Action.STOP
    assert resume.outbox.state is C


def subscribed() -> StreamMachine:
    """A machine whose connection is laid over a task at work."""
    machine = StreamMachine(Limits(), max_reconnects=8, task_id="t")
    machine.on_subscribed()
    machine.on_event(NEW)
    machine.on_task(NEW)
    return machine


def test_each_end_is_doubted_anew() -> None:
    machine = subscribed()
    machine.on_event(status(1, TaskState.INPUT_REQUIRED))
    while machine.action is not Action.READ:  # the store does not tell of it
        machine.on_waited() if isinstance(machine.action, Wait) else machine.on_task(NEW)

    machine.on_event(status(2, C))
    assert machine.action is Action.GET_TASK
    machine.on_task(NEW)

    assert isinstance(machine.action, Wait)  # for a store that is behind


def test_a_task_is_polled_no_earlier_than_its_agent_asks() -> None:
    busy = A2AConnectionError("busy", failure="refused", transient=True, retry_after=40)
    machine = subscribed()
    machine.on_cut(busy)
    while isinstance(machine.action, Wait) and machine.action.attempt:
        assert machine.action.at_least == 40
        machine.on_waited()
        machine.on_refused(busy)

    assert machine.action == Wait(attempt=0, at_least=40, error=busy)


def test_a_silent_connection_that_brings_an_event_after_all_is_followed() -> None:
    lost = machine()
    lost.on_event(NEW)
    ahead = fold(fold(NEW, chunk("one", append=False)), chunk(" two"))
    for _ in range(2):  # it had time to bring what the task shows
        lost.on_look_due()
        lost.on_task(ahead)
    assert isinstance(lost.action, Wait)

    lost.on_event(chunk("one", append=False))

    assert (lost.action, lost.outbox.state) == (Action.READ, W)
    lost.on_event(status(9, C))
    assert lost.action is Action.STOP


def test_what_cannot_happen_in_a_state_is_no_transition() -> None:
    lost = machine()
    assert [what.name for what in Input if not lost.expects(what)] == [
        "SUBSCRIBED",
        "REFUSED",
        "TASK",
        "NO_TASK",
        "WAITED",
    ]
    with pytest.raises(RuntimeError, match="SUBSCRIBED leads from FOLLOWING to JOINED"):
        lost.on_subscribed()
