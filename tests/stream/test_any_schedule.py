"""Whatever happens, in whatever order: the caller gets the agent's events and text, each once.

`Schedule` drives the machine of a stream against a model of an agent. Its rules are all that may
happen: the agent works, its store catches up or not, a connection brings one event or a burst, is
cut or ends, is silent, repeats, begins with a snapshot or without; requests fail. Beside the
machine runs a second one that is given each event by `on_event` and `EventOutbox.take` where the
first gets it by `accept`: both have to do the same.
"""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from tests.kit.effort import rounds

from holdfast import (
    A2AConnectionError,
    A2AError,
    A2AHTTPError,
    Artifact,
    Limits,
    Part,
    Task,
    TaskState,
)
from holdfast._stream.fold import fold
from holdfast._stream.machine import StreamMachine
from holdfast._stream.states import TRANSITIONS, Action, State, Wait
from holdfast.errors import UnsupportedOperationError
from holdfast.types import TaskArtifactUpdateEvent, TaskStatus, TaskStatusUpdateEvent

ARTIFACTS = ("a", "b")
MOST_LAGS = 3
MOST_FAILURES = 3
RESET = A2AConnectionError("reset", failure="disconnected", transient=True)
BUSY = A2AHTTPError("502", http_status=502, transient=True)
FOREVER = 10**6


def status(number: int, state: TaskState) -> TaskStatus:
    return TaskStatus(state=state, timestamp=f"2026-01-01T00:{number // 60:02}:{number % 60:02}Z")


NEW = Task(id="t", context_id="c", status=status(0, TaskState.SUBMITTED))


class Agent:
    """A task that only grows, each piece of text with a number of its own."""

    def __init__(self):
        self.events = []
        self.tasks = [NEW]
        self.stored = 0
        self.lags = MOST_LAGS  # looks in a row that may show less than has happened

    @property
    def is_over(self):
        return self.tasks[-1].state.is_terminal

    def write(self, artifact_id, *, parts):
        number, known = len(self.events), self.tasks[-1].artifacts
        artifact = Artifact(
            artifact_id=artifact_id,
            parts=tuple(Part(text=f"<{number}.{part}>") for part in range(parts)),
        )
        append = any(one.artifact_id == artifact_id for one in known)
        self.happens(
            TaskArtifactUpdateEvent(task_id="t", context_id="c", artifact=artifact, append=append)
        )

    def enter(self, state):
        self.happens(
            TaskStatusUpdateEvent(
                task_id="t", context_id="c", status=status(len(self.events) + 1, state)
            )
        )

    def happens(self, event):
        self.events.append(event)
        self.tasks.append(fold(self.tasks[-1], event))

    def look(self, lag):
        """The task from a store that may be behind, but not for ever, and never goes back."""
        if lag and self.lags:
            self.lags -= 1
        else:
            self.lags, lag = MOST_LAGS, 0
        self.stored = max(self.stored, len(self.events) - lag)
        return self.tasks[self.stored]


class Schedule(RuleBasedStateMachine):
    @initialize(is_known=st.booleans(), delivered=st.integers(0, 4), missed=st.integers(0, 3))
    def begin(self, is_known, delivered, missed):
        self.agent = Agent()
        self.opening, self.at = [NEW], 0
        self.caller = []
        self.failures = MOST_FAILURES
        options = {"max_reconnects": FOREVER, "task_id": "t" if is_known else None}
        self.machine = StreamMachine(Limits(), **options)
        self.twin = StreamMachine(Limits(), **options)
        if is_known or delivered:
            self.stand(delivered, missed)

    def stand(self, delivered, missed):
        """Begins where the caller has some of the text, and a later connection is open."""
        for number in range(delivered + missed):
            self.agent.write(ARTIFACTS[number % 2], parts=1)
        if self.reads():
            for _ in range(delivered + 1):
                self.bring()
            self.take()
            self.is_cut(None)
        self.subscribes(1, "stored", 0)
        self.brings_one()
        self.gets_the_task(missed)

    # ── What happens at the agent ────────────────────────────────────────────────────────────

    @precondition(lambda self: not self.agent.is_over)
    @rule(
        artifact_id=st.sampled_from(ARTIFACTS),
        parts=st.integers(0, 2),
        times=st.integers(1, 4),
    )
    def writes(self, artifact_id, parts, times):
        for _ in range(times):
            self.agent.write(artifact_id, parts=parts)

    @precondition(lambda self: not self.agent.is_over)
    @rule(state=st.sampled_from([TaskState.WORKING, TaskState.AUTH_REQUIRED]))
    def says(self, state):
        self.agent.enter(state)

    @precondition(lambda self: not self.agent.is_over and len(self.agent.events) > 8)
    @rule(state=st.sampled_from([TaskState.COMPLETED, TaskState.FAILED, TaskState.CANCELED]))
    def ends(self, state):
        self.agent.enter(state)

    # ── What happens to the connection ───────────────────────────────────────────────────────

    def reads(self):
        return self.machine.action is Action.READ

    def waiting(self):
        return len(self.opening) + len(self.agent.events) - self.at

    @precondition(lambda self: self.reads() and self.waiting())
    @rule()
    def brings_one(self):
        self.bring()
        self.take()

    @precondition(lambda self: self.reads() and self.waiting())
    @rule(most=st.integers(2, 6))
    def brings_a_burst(self, most):
        for _ in range(most):
            if not (self.reads() and self.waiting()):
                break
            self.bring()
        self.take()

    @precondition(lambda self: self.machine.state in {State.CHECKING, State.RECHECKING})
    @rule()
    def brings_one_while_the_task_is_asked_for(self):
        if self.waiting():
            self.bring()
            self.take()

    @precondition(lambda self: self.reads())
    @rule(error=st.sampled_from([None, RESET]))
    def is_cut(self, error):
        self.both(lambda machine: machine.on_cut(error))

    @precondition(lambda self: self.reads() and not self.waiting())
    @rule()
    def ends_in_good_order(self):
        self.both(lambda machine: machine.on_end())

    @precondition(lambda self: self.reads() and self.machine.silence is not None)
    @rule(is_changing=st.booleans())
    def is_silent(self, is_changing):
        if is_changing:
            self.both(lambda machine: machine.expect_change())
        self.both(lambda machine: machine.on_look_due())

    @precondition(lambda self: self.machine.action is Action.STOP)
    @rule()
    def nothing_comes_any_more(self):
        assert self.machine.outbox.take() is None

    # ── What the machine asks for ────────────────────────────────────────────────────────────

    @precondition(lambda self: self.machine.action is Action.GET_TASK)
    @rule(lag=st.integers(0, 4))
    def gets_the_task(self, lag):
        task = self.agent.look(lag)
        self.both(lambda machine: machine.on_task(task))
        self.take()

    @precondition(lambda self: self.machine.action is Action.GET_TASK and self.failures)
    @rule()
    def gets_no_task(self):
        self.failures -= 1
        self.both(lambda machine: machine.on_no_task(BUSY))
        self.take()

    @precondition(lambda self: self.machine.action is Action.SUBSCRIBE)
    @rule(
        overlap=st.integers(0, 4),
        snapshot=st.sampled_from(["stored", "newer", None]),
        lag=st.integers(0, 4),
    )
    def subscribes(self, overlap, snapshot, lag):
        agent = self.agent
        if agent.is_over:
            self.refuse(UnsupportedOperationError("over", executed=False))
            return
        newest = max(agent.stored, len(agent.events) - lag)
        shown = {"stored": agent.stored, "newer": newest, None: None}[snapshot]
        self.opening = [] if shown is None else [agent.tasks[shown]]
        self.at = max(0, len(agent.events) - overlap)
        self.both(lambda machine: machine.on_subscribed())

    @precondition(lambda self: self.machine.action is Action.SUBSCRIBE and self.failures)
    @rule(error=st.sampled_from([RESET, BUSY]))
    def is_refused(self, error):
        self.failures -= 1
        self.refuse(error)

    @precondition(lambda self: self.machine.action is Action.SEARCH)
    @rule(lag=st.integers(0, 4))
    def is_found(self, lag):
        task = self.agent.look(lag)
        self.both(lambda machine: machine.on_found(task))
        self.take()

    def refuse(self, error: A2AError):
        self.both(lambda machine: machine.on_refused(error))

    # ── Both machines ────────────────────────────────────────────────────────────────────────

    def both(self, what):
        for machine in (self.machine, self.twin):
            what(machine)
            if isinstance(machine.action, Wait):
                machine.on_waited()

    def bring(self):
        if self.opening:
            event = self.opening.pop(0)
        else:
            event = self.agent.events[self.at]
            self.at += 1
        before = len(self.caller)
        if (taken := self.machine.accept(event)) is not None:
            self.caller.append(taken)
        self.twin.on_event(event)
        taken = self.twin.outbox.take()
        assert self.caller[before:] == ([] if taken is None else [taken])

    def take(self):
        while (event := self.machine.outbox.take()) is not None:
            self.caller.append(event)
            assert self.twin.outbox.take() == event
        assert self.twin.outbox.take() is None

    # ── What has to be so ────────────────────────────────────────────────────────────────────

    @invariant()
    def both_machines_stand_alike(self):
        one, other = self.machine, self.twin
        assert (one.state, one.action) == (other.state, other.action)
        assert (one.silence, one.compare_after) == (other.silence, other.compare_after)
        assert one.outbox.whole() == other.outbox.whole()
        assert (one.outbox.status, one.outbox.count) == (other.outbox.status, other.outbox.count)
        assert one.outbox.is_whole == other.outbox.is_whole

    @invariant()
    def the_text_of_the_caller_is_a_beginning_of_the_agents(self):
        for artifact_id in ARTIFACTS:
            text, previous = "", ""
            truth = text_of(self.agent.tasks[-1], artifact_id)
            for event in self.caller:
                text = text_after(text, event, artifact_id)
                assert text.startswith(previous), "text was taken back"
                assert truth.startswith(text), "text came twice, too early or out of order"
                previous = text

    def teardown(self):
        """Lets everything come to its end: nothing is lost either."""
        if not hasattr(self, "agent"):
            return
        if not self.agent.is_over:
            self.agent.enter(TaskState.COMPLETED)
        self.take()
        for _ in range(200):
            self.advance()
            if self.machine.action is Action.STOP:
                break
        assert self.machine.action is Action.STOP
        truth = self.agent.tasks[-1]
        task, folded = self.machine.outbox.task, None
        for event in self.caller:
            folded = fold(folded, event)
        for have in (task, folded):
            assert (have.artifacts, have.status) == (truth.artifacts, truth.status)
        updates = [e for e in self.caller if isinstance(e, TaskStatusUpdateEvent)]
        stamps = [update.status.timestamp for update in updates]
        assert stamps == sorted(set(stamps)), "a status came twice, or too late"
        self.the_text_of_the_caller_is_a_beginning_of_the_agents()

    def advance(self):
        """Does what the machine asks for, with an agent that has nothing to hide."""
        match self.machine.action:
            case Action.GET_TASK:
                self.gets_the_task(0)
            case Action.SUBSCRIBE:
                self.subscribes(0, "stored", 0)
            case Action.SEARCH:
                self.is_found(0)
            case Action.READ if self.waiting():
                self.brings_one()
            case Action.READ:
                self.ends_in_good_order()
            case _:
                pass


def text_of(task, artifact_id):
    return "".join(a.text for a in task.artifacts if a.artifact_id == artifact_id)


def text_after(text, event, artifact_id):
    """The text of an artifact as a caller puts it together."""
    if isinstance(event, Task):
        return text_of(event, artifact_id)
    if isinstance(event, TaskArtifactUpdateEvent) and event.artifact.artifact_id == artifact_id:
        return text + event.artifact.text if event.append else event.artifact.text
    return text


TestAnySchedule = Schedule.TestCase
TestAnySchedule.settings = settings(max_examples=rounds(60, 2000), stateful_step_count=40)


def test_each_state_can_be_reached_and_left_for_the_end():
    followers = {
        state: set().union(*rows.values()) - {state} for state, rows in TRANSITIONS.items()
    }
    assert set(TRANSITIONS) == set(State)
    for first, wanted in ((State.FOLLOWING, set(State)), *((s, {State.DONE}) for s in State)):
        reached = {first}
        while new := set().union(*(followers[state] for state in reached)) - reached:
            reached |= new
        assert wanted <= reached
