"""Streams that are cut where the store lags behind: each text once, and the agent's at the end.

The schedules are drawn (`tests.kit.lagging_store`); 100,000 of them in ``make thorough``.
"""

import asyncio

import pytest
from tests.kit.effort import case, rounds
from tests.kit.lagging_store import DEADLINE, World, live

from holdfast import (
    A2AHTTPError,
    Artifact,
    Limits,
    Part,
    Resilience,
    Task,
    TaskState,
    connect,
    text_part,
)
from holdfast._stream.machine import StreamMachine
from holdfast._stream.states import Action, Wait
from holdfast.client import TextDelta
from holdfast.errors import MethodNotFoundError, ReconnectError
from holdfast.testing import (
    Cut,
    FakeAgent,
    FakeNetwork,
    Plan,
    Streaming,
    asks,
    bad_gateway,
    streams,
)
from holdfast.testing import Step as PlannedStep
from holdfast.types import TaskArtifactUpdateEvent, TaskStatus, TaskStatusUpdateEvent

BAD_GATEWAY = A2AHTTPError("502", http_status=502, transient=True)


def check(seed, **world):
    with case(f"{seed} {world}"):
        judge = live(World(seed, **world))
        assert judge.wrong == set(), judge.wrong
        assert judge.took <= DEADLINE + 1  # a look may end after it
        return judge


@pytest.mark.rule("D03")
@pytest.mark.parametrize("part", range(10))
def test_any_schedule_gives_each_text_once_and_the_agents_task_at_the_end(part):
    each = rounds(30, 10_000)
    for seed in range(part * each, (part + 1) * each):
        check(seed)


@pytest.mark.rule("D03")
@pytest.mark.parametrize("lag", [0.0, 0.02, 0.05, 1.0, 20.0])
def test_one_cut_of_a_growing_text_never_fails_where_the_store_answers(lag):
    plain = {"replaces": False, "fails": 0.0, "stuck": False, "has_store": True, "cuts": 1}
    for seed in range(rounds(30, 1000)):
        assert check(seed, lag=lag, **plain).error is None


@pytest.mark.parametrize("seed", [16, 52, 54, 91, 110])
def test_text_that_recurs_is_not_placed_where_it_only_looks_right(seed):
    judge = check(
        seed,
        lag=1.0,
        replaces=False,
        artifacts=1,
        cuts=1,
        fails=0.0,
        stuck=False,
        has_store=True,
    )
    assert judge.error is None


def test_a_look_that_finds_the_task_waiting_for_input_gives_all_of_it():
    assert check(90946).error is None


def test_a_store_that_never_shows_the_end_of_a_completed_task_is_no_answer():
    judge = check(20202)
    assert isinstance(judge.error, ReconnectError)
    assert "ended with COMPLETED after a cut, but GetTask does not" in str(judge.error)
    assert judge.error.task.id == "t"


# ── The machine alone ────────────────────────────────────────────────────────────────────────


def chunk(text, *, append=True, name="a"):
    artifact = Artifact(artifact_id=name, parts=(Part(text=text),))
    return TaskArtifactUpdateEvent(task_id="t", context_id="c", artifact=artifact, append=append)


def task(*texts, state=TaskState.WORKING, stamp="2026-01-01T00:00:00Z"):
    parts = tuple(Part(text=text) for text in texts)
    artifacts = (Artifact(artifact_id="a", parts=parts),) if texts else ()
    status = TaskStatus(state=state, timestamp=stamp)
    return Task(id="t", context_id="c", status=status, artifacts=artifacts)


def cut_after(*events):
    """A machine whose stream was cut, and that has subscribed again."""
    machine = StreamMachine(Limits(), max_reconnects=8)
    for event in (task(), *events):
        machine.on_event(event)
    machine.on_cut(None)
    machine.on_waited()
    machine.on_subscribed()
    taken(machine)
    return machine


def taken(machine):
    """The texts that the caller gets next."""
    texts = []
    while (event := machine.outbox.take()) is not None:
        if isinstance(event, TaskArtifactUpdateEvent):
            texts.append(("" if event.append else "=") + event.artifact.text)
    return texts


def test_a_502_for_the_task_is_not_taken_for_an_agent_without_a_store():
    machine = cut_after(chunk("a", append=False))
    machine.on_event(task("a"))
    machine.on_task(task("a"))

    machine.on_event(chunk("c"))  # and "b" before it is missing
    machine.on_no_task(BAD_GATEWAY)

    assert (taken(machine), machine.action) == ([], Action.READ)
    machine.on_look_due()
    machine.on_task(task("a", "b", "c"))
    assert "".join(taken(machine)) == "bc"


def test_a_502_for_the_first_look_is_not_taken_for_an_agent_without_a_store():
    machine = cut_after(chunk("a", append=False))
    machine.on_event(task("a"))
    machine.on_no_task(BAD_GATEWAY)

    machine.on_event(chunk("c"))
    assert (taken(machine), machine.action) == ([], Action.GET_TASK)
    machine.on_task(task("a", "b", "c"))

    assert "".join(taken(machine)) == "bc"


def test_without_a_store_what_follows_the_snapshot_is_new_even_if_it_looks_the_same():
    machine = cut_after(chunk("ha ", append=False))
    machine.on_event(task("ha ", "ha "))
    machine.on_no_task(MethodNotFoundError("no GetTask", executed=False))

    machine.on_event(chunk("ha "))

    assert "".join(taken(machine)) == "ha ha "


def test_artifact_that_begins_after_a_cut_is_emitted_at_once():
    machine = cut_after(chunk("a", append=False))
    machine.on_event(task("a"))
    machine.on_task(task("a"))

    for new in (chunk("x", append=False, name="b"), chunk("x", name="b")):
        machine.on_event(new)

    assert (taken(machine), machine.action) == (["=x", "x"], Action.READ)


def test_a_store_that_still_shows_what_was_replaced_takes_nothing_back():
    machine = cut_after(chunk("abc", append=False), chunk("ab", append=False))
    machine.on_event(task("abc"))
    machine.on_task(task("abc"))
    assert taken(machine) == []

    machine.on_event(chunk("d"))
    machine.on_task(task("abd"))

    assert machine.outbox.whole().text == "abd"


def test_a_prefix_that_replaced_the_text_during_a_cut_is_there_when_the_task_waits():
    machine = cut_after(chunk("abc", append=False))
    waiting = task("ab", state=TaskState.INPUT_REQUIRED, stamp="2026-01-01T00:00:09Z")
    machine.on_event(task("ab"))
    machine.on_task(task("ab"))
    assert taken(machine) == []  # it may be older

    event = TaskStatusUpdateEvent(task_id="t", context_id="c", status=waiting.status)
    machine.on_event(event)
    machine.on_no_task(BAD_GATEWAY)
    while isinstance(machine.action, Wait):
        machine.on_waited()
    machine.on_task(waiting)

    assert taken(machine) == ["=ab"]
    assert (machine.outbox.task.text, machine.outbox.state) == ("ab", TaskState.INPUT_REQUIRED)


# ── Over the wire ────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("binding", ["JSONRPC", "HTTP+JSON"])
async def test_over_the_wire_text_that_recurs_comes_once(binding):
    for seed in range(rounds(20, 1000)):
        dice = World(seed).dice
        words = [dice.choice("ab") for _ in range(dice.randint(4, 12))]
        agent = FakeAgent(
            streams(*words, every=dice.choice((0.01, 0.1, 1.0))),
            store_lag=dice.choice((0.0, 0.02, 0.05, 1.0, 5.0)),
            streaming=Streaming(snapshot=dice.random() < 0.7, overlap=dice.choice((0, 0, 2))),
        )
        agent.inject(Cut(after_events=dice.randint(2, 6)), on="SendStreamingMessage")
        if dice.random() < 0.5:
            agent.inject(Cut(after_events=dice.randint(1, 4)), on="SubscribeToTask")
        if dice.random() < 0.5:
            agent.inject(bad_gateway(), on="GetTask", times=dice.randint(1, 3))
        options = {"engine": FakeNetwork(agent), "resilience": Resilience(budget=None)}
        with case(f"{seed}"):
            client = connect(agent.url, bindings=(binding,), **options)
            async with client, client.stream_message("hi") as events:
                changes = [change async for change in events.text_changes()]
                answer = await events.result()
            assert all(isinstance(change, TextDelta) for change in changes)
            assert "".join(change.text for change in changes) == "".join(words) == answer.text


@pytest.mark.parametrize("binding", ["JSONRPC", "HTTP+JSON"])
async def test_after_a_cut_text_comes_while_the_agent_writes(binding):
    agent = FakeAgent(streams(*"abababababab", every=1.0))
    agent.inject(Cut(after_events=4), on="SendStreamingMessage")
    client = connect(agent.url, bindings=(binding,), engine=FakeNetwork(agent))
    async with client, client.stream_message("hi") as events:
        deltas = [text async for text in events.text_deltas()]

    assert "".join(deltas) == "abababababab"
    assert len(deltas) >= 6
    assert len(agent.calls("GetTask")) <= 12


# ── Through a client ─────────────────────────────────────────────────────────────────────────────


both_bindings = pytest.mark.parametrize("binding", ["JSONRPC", "HTTP+JSON"])


both_versions = pytest.mark.parametrize("version", ["1.0", "0.3"])


def connected(agent, binding="JSONRPC", **options):
    return connect(agent.url, engine=FakeNetwork(agent), bindings=(binding,), **options)


def scripted(*behaviours, **options):
    """An agent that does one thing after another."""
    left = iter(behaviours)
    return FakeAgent(lambda _: next(left), **options)


@both_bindings
@both_versions
async def test_a_lagging_store_with_a_newer_status_takes_no_text_back(version, binding):
    """Agents may write without saying that they work, and store that they do."""
    silent = PlannedStep(state=TaskState.WORKING)
    texts = [
        PlannedStep(
            after=4, artifacts=(Artifact(artifact_id="a", parts=(text_part(text),)),), append=True
        )
        for text in ("one ", "two ", "three")
    ]
    plan = Plan((silent, *texts, PlannedStep(state=TaskState.COMPLETED, after=1)))
    agent = scripted(
        asks("Go on?"),
        plan,
        versions=(version,),
        store_lag=3,
        streaming=Streaming(snapshot=False),
    )
    agent.inject(Cut(after_events=99), on="SendStreamingMessage")
    agent.inject(Cut(after_events=2), on="SendStreamingMessage")
    chat = connected(agent, binding).conversation()
    await chat.ask("count")
    await asyncio.sleep(10)

    async with chat.stream_message("yes") as events:
        text = "".join([text async for text in events.text_deltas()])

    assert text == "one two three"
