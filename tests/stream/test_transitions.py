"""The table of states against the machine: each row can happen, and nothing else does.

`walk` applies random inputs that the table allows, drawn from `INPUTS`, to machines of all kinds.
The machine raises `RuntimeError` where it wants to enter a state that the table does not list.
"""

from __future__ import annotations

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
    Role,
    Task,
    TaskNotFoundError,
    TaskState,
)
from holdfast._stream.machine import StreamMachine
from holdfast._stream.replies import PendingReply
from holdfast._stream.states import TRANSITIONS, Input, State
from holdfast.errors import InternalError, MethodNotFoundError, UnsupportedOperationError
from holdfast.types import TaskArtifactUpdateEvent, TaskStatus, TaskStatusUpdateEvent

WALKS, STEPS = 40_000, 30

WITHOUT_CONNECTION = {
    State.SUBSCRIBING,
    State.UNSUBSCRIBABLE,
    State.DOUBTED,
    State.RESTING,
    State.POLLING,
    State.SEARCHING,
}

RESET = A2AConnectionError("reset", failure="disconnected", transient=True)
BUSY = A2AHTTPError("502", http_status=502, transient=True)
IDLE = A2ATimeoutError("idle", phase="idle", transient=True)
BROKEN = InternalError("broken", transient=True)
OVER = UnsupportedOperationError("over", executed=False)
UNKNOWN = TaskNotFoundError("no such task")
MISSING = MethodNotFoundError("no such method")


def status(state: TaskState, minute: int = 0) -> TaskStatus:
    return TaskStatus(state=state, timestamp=f"2026-01-01T00:{minute:02}:00Z")


def task(state: TaskState, minute: int = 0, *texts: str, name: str = "a") -> Task:
    parts = tuple(Part(text=text) for text in texts)
    artifacts = (Artifact(artifact_id=name, parts=parts),) if parts else ()
    return Task(id="t", context_id="c", status=status(state, minute), artifacts=artifacts)


def update(state: TaskState, minute: int) -> TaskStatusUpdateEvent:
    return TaskStatusUpdateEvent(task_id="t", context_id="c", status=status(state, minute))


def chunk(text: str, *, append: bool = True, task_id: str = "t") -> TaskArtifactUpdateEvent:
    artifact = Artifact(artifact_id="a", parts=(Part(text=text),))
    return TaskArtifactUpdateEvent(
        task_id=task_id, context_id="c", artifact=artifact, append=append
    )


WORKING, WAITS = TaskState.WORKING, TaskState.INPUT_REQUIRED
TASKS = [
    task(WORKING),
    task(WORKING, 1, "one"),
    task(WORKING, 2, "one", "two"),
    task(WAITS, 1, "one"),
    task(WAITS, 0),
    task(TaskState.COMPLETED, 3, "one", "two"),
]
EVENTS = [
    *TASKS,
    chunk("one", append=False),
    chunk("two"),
    chunk("two"),
    chunk("none", task_id=""),
    update(WORKING, 1),
    update(WAITS, 2),
    update(TaskState.COMPLETED, 3),
    update(TaskState.FAILED, 3),
    Message(message_id="m", role=Role.AGENT, parts=(Part(text="hi"),)),
]

INPUTS = {
    Input.EVENT: (StreamMachine.on_event, EVENTS),
    Input.CUT: (StreamMachine.on_cut, [None, RESET, BUSY, IDLE]),
    Input.REFUSED: (StreamMachine.on_refused, [RESET, BUSY, IDLE, BROKEN, OVER, UNKNOWN, MISSING]),
    Input.TASK: (StreamMachine.on_task, TASKS),
    Input.NO_TASK: (StreamMachine.on_no_task, [RESET, BUSY, UNKNOWN, MISSING]),
    Input.FOUND: (StreamMachine.on_found, TASKS),
    Input.LOOK_DUE: (lambda machine, _: machine.on_look_due(), [None]),
    Input.END: (lambda machine, _: machine.on_end(), [None]),
    Input.SUBSCRIBED: (
        lambda machine, is_safe: machine.on_subscribed(subscribing_is_safe=is_safe),
        [True, True, False],
    ),
    Input.POLL_ONLY: (lambda machine, _: machine.on_poll_only(), [None]),
    Input.WAITED: (lambda machine, _: machine.on_waited(), [None]),
    Input.EXPIRED: (lambda machine, _: machine.on_expired(), [None]),
}

SILENT = [(Input.LOOK_DUE, None), (Input.TASK, TASKS[2])] * 2
SILENT_AND_WAITING = [(Input.LOOK_DUE, None), (Input.TASK, TASKS[3])] * 2
CAUGHT_UP = [(Input.SUBSCRIBED, True), (Input.EVENT, TASKS[1]), (Input.TASK, TASKS[1])]
CAUGHT_UP_WAITING = [(Input.SUBSCRIBED, True), (Input.EVENT, TASKS[4]), (Input.TASK, TASKS[4])]
BEGINNINGS = [
    [],
    [],
    [(Input.EVENT, TASKS[4]), (Input.LOOK_DUE, None)],
    [(Input.EVENT, TASKS[0]), *SILENT],
    [(Input.EVENT, chunk("none", task_id="")), *SILENT],
    [(Input.EVENT, TASKS[4]), *SILENT_AND_WAITING],
    [(Input.EVENT, chunk("none", task_id="")), (Input.LOOK_DUE, None)],
    [(Input.REFUSED, BROKEN)],
    [(Input.REFUSED, OVER)],
    [*CAUGHT_UP],
    [*CAUGHT_UP, (Input.LOOK_DUE, None)],
    [*CAUGHT_UP, (Input.EVENT, chunk("two"))],
    [*CAUGHT_UP_WAITING],
    [*CAUGHT_UP_WAITING, (Input.LOOK_DUE, None)],
]
"""How walks begin: some at once at random, others where a random walk seldom comes."""


class Recorded(StreamMachine):
    """A machine that records its transitions."""

    def __init__(self, visited, **options):
        super().__init__(Limits(), **options)
        self.visited = visited
        self.last = None  # the state before, and what happened

    def _enter(self, happened, state):
        before = self.state
        super()._enter(happened, state)
        self.visited.add((before, happened, state))
        self.last = before, happened


def machine(dice, visited) -> Recorded:
    known = dice.choice([None, None, task(WAITS), task(WORKING, 1, "one")])
    reply = PendingReply("t", "m", task(WAITS).status) if dice.random() < 0.3 else None
    return Recorded(
        visited,
        max_reconnects=dice.choice([0, 1, 8, 8]),
        until_deadline=dice.random() < 0.3,
        task_id=dice.choice([None, None, "t"]),
        task=known if dice.random() < 0.3 else None,
        known=known,
        reply=reply,
        subscribing_is_safe=dice.random() < 0.7,
    )


def may_happen(machine, happened) -> bool:
    """Whether what runs the machine could report this."""
    if happened is Input.EVENT and machine.state in WITHOUT_CONNECTION:
        return machine.last == (State.CHECKING, Input.TASK)  # while a wait for it was cancelled
    if happened is Input.WAITED or machine.wait is not None:
        return happened is Input.WAITED and machine.wait is not None
    if happened is Input.POLL_ONLY:
        return machine.outbox.task_id is not None or machine.state is State.DONE
    if happened is Input.FOUND:
        return machine.outbox.task_id is None
    if happened is Input.EXPIRED:
        return machine.is_stale
    if happened is Input.LOOK_DUE:
        return machine.silence is not None
    return True


def walk(dice, visited):
    """One stream, from its beginning to its end or an error."""
    stream = machine(dice, visited)
    for happened, value in dice.choice(BEGINNINGS):
        if happened not in TRANSITIONS[stream.state] or not may_happen(stream, happened):
            break
        if not take(stream, happened, value):
            return
    # Each walk prefers some inputs, and few values of each, so that unlikely sequences come about.
    weights = {happened: dice.choice([0.1, 1, 10]) for happened in Input}
    values = {
        happened: dice.sample(choices, min(len(choices), dice.randint(1, 4)))
        for happened, (_, choices) in INPUTS.items()
    }
    for _ in range(STEPS):
        possible = [i for i in TRANSITIONS[stream.state] if may_happen(stream, i)]
        if not possible:
            return
        [happened] = dice.choices(possible, [weights[happened] for happened in possible])
        if not take(stream, happened, dice.choice(values[happened])):
            return


def take(stream, happened, value) -> bool:
    """Report what happened; return whether the stream continues."""
    report, _ = INPUTS[happened]
    try:
        report(stream, value)
    except A2AError:
        return False
    while stream.outbox.take() is not None:
        pass
    return True


def test_machine_on_random_walks_makes_every_transition_of_the_table_and_no_other():
    never = {
        (state, happened, following)
        for state, row in TRANSITIONS.items()
        for happened, followers in row.items()
        for following in followers
    }
    dice = random.Random(3)
    for _ in range(WALKS):
        visited = set()
        walk(dice, visited)
        never -= visited
        if not never:
            break
    assert sorted(" ".join(part.name for part in transition) for transition in never) == []
