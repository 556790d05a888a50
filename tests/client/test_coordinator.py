"""Many agents: each result once and at its index, whatever happens to the others."""

import asyncio
import random
from collections import Counter
from contextlib import AsyncExitStack

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.kit.effort import crossed, rounds
from tests.kit.virtual_env import EPOCH, VirtualWall

from holdfast import (
    A2AConnectionError,
    AgentCard,
    BreakerPolicy,
    CircuitOpenError,
    Coordinator,
    DeadlineExceededError,
    Message,
    NotEnoughResultsError,
    Part,
    Resilience,
    RetryPolicy,
    Role,
    SqliteJournal,
    TaskFailedError,
    TaskInputRequiredError,
    TaskState,
    connect,
)
from holdfast.errors import InvalidAgentCardError, TaskRejectedError
from holdfast.testing import (
    Delay,
    FakeAgent,
    FakeNetwork,
    LoopbackServer,
    Refuse,
    Stall,
    asks,
    completes,
    fails,
    rejects,
    run,
    works_forever,
)
from holdfast.types import AgentCapabilities, AgentExtension, AgentInterface

pytestmark = pytest.mark.filterwarnings("error")

ONCE = Resilience(retry=RetryPolicy(max_retries=0))


def now():
    return asyncio.get_running_loop().time()


def fake(name, behaviour="done", **options):
    return FakeAgent(behaviour, url=f"http://{name}.test", **options)


def coordinating(*agents, **options):
    """Return a coordinator of agents with the names of their hosts."""
    options.setdefault("engine", FakeNetwork(*agents))
    options.setdefault("env", VirtualWall(draw=0.5))
    return Coordinator({name_of(agent): agent.url for agent in agents}, **options)


def name_of(agent):
    return agent.url.removeprefix("http://").removesuffix(".test")


def after(seconds, text="done"):
    return completes(text, after=seconds)


async def collected(fan_out, *, iterates):
    """Return the results of a fan-out, and the error that it ends with."""
    results = []
    try:
        if not iterates:
            return list(await fan_out), None
        async for result in fan_out:
            results.append(result)  # noqa: PERF401  what came before an error is looked at, too
    except NotEnoughResultsError as error:
        return results, error
    return results, None


def received_ids(agent):
    return [message_id for message_id, attempts in agent.executions.items() for _ in attempts]


# ── Results of all agents ────────────────────────────────────────────────────────────────────


async def test_results_have_the_order_of_the_messages():
    agents = [fake("a", after(3, "A")), fake("b", after(1, "B")), fake("c", after(2, "C"))]

    async with coordinating(*agents) as coordinator:
        results = await coordinator.fan_out("hello")

    assert [(result.agent, result.answer.text) for result in results] == [
        ("a", "A"),
        ("b", "B"),
        ("c", "C"),
    ]
    assert [result.duration for result in results] == pytest.approx([3, 1, 2])
    assert {(result.error, result.attempts) for result in results} == {(None, 1)}
    assert now() == pytest.approx(3)  # at the same time


async def test_iteration_yields_results_in_the_order_of_completion():
    agents = [fake("a", after(3)), fake("b", after(1)), fake("c", after(2))]

    async with coordinating(*agents) as coordinator, coordinator.fan_out("hello") as fan_out:
        order = [(result.agent, now()) async for result in fan_out]

    assert [name for name, _ in order] == ["b", "c", "a"]
    assert [when for _, when in order] == pytest.approx([1, 2, 3])


async def test_each_agent_gets_its_own_message_id():
    agents = [fake("a"), fake("b")]
    message = Message(message_id="mine", role=Role.USER, parts=(Part(text="hello"),))

    async with coordinating(*agents) as coordinator:
        await coordinator.fan_out(message)

    ids = [*received_ids(agents[0]), *received_ids(agents[1])]
    assert len(set(ids)) == 2
    assert "mine" not in ids


async def test_pairs_may_name_an_agent_twice():
    agents = [fake(name, lambda turn: completes(turn.message.text * 2)) for name in "ab"]

    async with coordinating(*agents) as coordinator:
        results = await coordinator.fan_out(zip("aba", "xyz", strict=True))

    assert [(result.agent, result.answer.text) for result in results] == [
        ("a", "xx"),
        ("b", "yy"),
        ("a", "zz"),
    ]


async def test_agents_selects_some_of_the_agents():
    agents = [fake(name) for name in "abc"]

    async with coordinating(*agents) as coordinator:
        results = await coordinator.fan_out("hello", agents=["c", "a"])

    assert [result.agent for result in results] == ["c", "a"]
    assert agents[1].received == []


async def test_several_parts_are_one_message():
    agents = [fake(name, lambda turn: completes(turn.message.text)) for name in "ab"]

    async with coordinating(*agents) as coordinator:
        results = await coordinator.fan_out(Part(text=text) for text in ("x", "y"))

    assert {result.answer.text for result in results} == {"x\ny"}


async def test_an_error_of_one_agent_is_its_result():
    agents = [
        fake("good"),
        fake("failing", fails("no oven")),
        fake("choosy", rejects("not mine")),
        fake("asking", asks("which one?")),
        fake("away"),
    ]
    agents[-1].inject(Refuse(), times=100)

    async with coordinating(*agents) as coordinator:
        results = {result.agent: result for result in await coordinator.fan_out("hello")}

    assert {name: type(result.error) for name, result in results.items()} == {
        "good": type(None),
        "failing": TaskFailedError,
        "choosy": TaskRejectedError,
        "asking": TaskInputRequiredError,
        "away": A2AConnectionError,
    }
    asking = results["asking"]
    assert asking.answer is None
    assert asking.error.task.state is TaskState.INPUT_REQUIRED
    assert "which one?" in str(asking.error)
    assert results["away"].attempts == 4
    assert [result.attempts for name, result in results.items() if name != "away"] == [1] * 4
    assert results["good"].unwrap().text == "done"
    with pytest.raises(TaskFailedError, match="no oven"):
        results["failing"].unwrap()


async def test_a_task_that_needs_input_can_be_continued():
    def behave(turn):
        return asks("which one?") if turn.task is None else completes("the red one")

    async with coordinating(fake("a", behave)) as coordinator:
        needing_input = await coordinator.delegate("a", "paint it")
        task = needing_input.error.task
        more = Message(task_id=task.id, context_id=task.context_id, parts=(Part(text="red"),))
        result = await coordinator.delegate("a", more)

    assert result.unwrap().text == "the red one"


async def test_the_error_of_a_question_says_how_to_answer():
    def behave(turn):
        return asks("which one?") if turn.task is None else completes("the red one")

    async with coordinating(fake("a", behave)) as coordinator:
        error = (await coordinator.delegate("a", "paint it")).error
        assert error.message == (
            f"task {error.task.id} needs input: which one?; "
            f"answer with coordinator.client('a').ask(…, task_id={error.task.id!r})"
        )
        answer = await coordinator.client("a").ask("red", task_id=error.task.id)

    assert answer.text == "the red one"


# ── min_results ──────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("answering", [0, 1, 2, 3])
@pytest.mark.parametrize("required", [0, 1, 2, 3])
@pytest.mark.parametrize("iterates", [False, True])
async def test_too_few_answers_are_an_error_with_all_results(answering, required, iterates):
    agents = [fake(name, "done" if n < answering else fails()) for n, name in enumerate("abc")]

    async with coordinating(*agents) as coordinator:
        fan_out = coordinator.fan_out("hello", min_results=required)
        results, error = await collected(fan_out, iterates=iterates)

    assert (error is None) == (answering >= required)
    assert len(results) == (3 if iterates or error is None else 0)
    if error is not None:
        assert [result.agent for result in error.results] == ["a", "b", "c"]
        assert [result.error is None for result in error.results].count(True) == answering
        assert f"{answering} of 3" in str(error)
        assert "c: task " in str(error)


async def test_min_results_above_the_number_of_messages_is_refused():
    agents = [fake("a"), fake("b")]
    async with coordinating(*agents) as coordinator:
        with pytest.raises(NotEnoughResultsError, match="nothing was sent") as caught:
            coordinator.fan_out("hello", min_results=3)

    assert caught.value.executed is False
    assert agents[0].received == []


async def test_a_fan_out_without_agents_has_no_results():
    async with coordinating(fake("a")) as coordinator:
        assert await coordinator.fan_out(zip([], [], strict=True), min_results=0) == ()
        with pytest.raises(NotEnoughResultsError, match="1 agent, but only 0 are called"):
            coordinator.fan_out([])


async def test_too_few_answers_are_unexecuted_if_nothing_was_sent():
    agents = [fake("a"), fake("b")]
    for agent in agents:
        agent.inject(Refuse(), times=100)

    async with coordinating(*agents, resilience=ONCE) as coordinator:
        with pytest.raises(NotEnoughResultsError) as caught:
            await coordinator.fan_out("hello")

    assert (caught.value.executed, caught.value.transient) == (False, True)


# ── within ───────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("cancel_on_abandon", [False, True])
async def test_within_ends_the_wait_for_slow_agents(cancel_on_abandon):
    quick, slow = fake("quick", after(1)), fake("slow", works_forever())
    network = FakeNetwork(quick, slow)

    async with coordinating(quick, slow, engine=network) as coordinator:
        results = await coordinator.fan_out("hello", within=5, cancel_on_abandon=cancel_on_abandon)

        assert now() == pytest.approx(5)
        assert results[0].answer.text == "done"
        late = results[1].error
        assert isinstance(late, DeadlineExceededError)
        assert (late.deadline, late.timeout, late.executed) == ("fan-out", 5, True)
        assert late.task.state is TaskState.WORKING

    assert len(slow.calls("CancelTask")) == cancel_on_abandon
    assert quick.calls("CancelTask") == []
    state = TaskState.CANCELED if cancel_on_abandon else TaskState.WORKING
    assert next(iter(slow.tasks.values())).state is state
    assert (network.in_flight, slow.open_streams) == (0, 0)


async def test_a_hanging_cancel_request_delays_nothing_for_long():
    slow = fake("slow", works_forever())
    slow.inject(Stall(), on="CancelTask", times=100)

    async with coordinating(slow) as coordinator:
        await coordinator.fan_out("hello", within=5, min_results=0, cancel_on_abandon=True)
        assert now() == pytest.approx(5)

    assert now() == pytest.approx(15)


async def test_too_few_answers_with_a_question_says_that_a_question_is_no_answer():
    async with coordinating(fake("a"), fake("b", asks("Which one?"))) as coordinator:
        with pytest.raises(NotEnoughResultsError) as caught:
            await coordinator.fan_out("hello", min_results=2)

    assert "b: task " in str(caught.value)
    assert str(caught.value).endswith("; a question (TaskInputRequiredError) is not an answer")


async def test_the_error_names_each_failure_and_is_shortened():
    agents = [fake("a"), fake("b", fails("no traffic today")), fake("c", fails("x" * 1000))]

    async with coordinating(*agents) as coordinator:
        with pytest.raises(NotEnoughResultsError) as caught:
            await coordinator.fan_out("hello", min_results=2)

    assert "1 of 3 has answered, but min_results requires 2; b: task " in str(caught.value)
    assert "ended in FAILED: no traffic today, c: task " in str(caught.value)
    assert str(caught.value).endswith("x … " + "x" * 120)
    assert len(str(caught.value)) < 600


async def test_the_error_keeps_the_advice_of_each_failure(tmp_path):
    """What to do is at the end of a message: here, of a key that was used for another address."""
    key = "new-headlines-of-the-morning-2026-11-24"
    before, moved = fake("a"), FakeAgent(url="http://moved.europe-west4.example.com:8443/agents/a")
    network = FakeNetwork(before, moved)
    journal = SqliteJournal(tmp_path / "calls.db")
    async with Coordinator({"a": before.url}, journal=journal, engine=network) as coordinator:
        await coordinator.fan_out("hello", key=key)

    async with Coordinator({"a": moved.url}, journal=journal, engine=network) as coordinator:
        with pytest.raises(NotEnoughResultsError) as caught:
            await coordinator.fan_out("hello", key=key)
        [result] = caught.value.results

    await journal.close()
    assert len(result.error.message) > 160
    assert str(caught.value).endswith(result.error.message)


async def test_a_coordinator_without_agents_is_named_in_the_error():
    async with coordinating() as coordinator:
        with pytest.raises(
            NotEnoughResultsError, match="0 are called: the coordinator has no agents; nothing"
        ):
            coordinator.fan_out("hello")


async def test_a_call_that_never_got_a_slot_was_not_sent():
    agents = [fake("a", works_forever()), fake("b")]

    async with coordinating(*agents, concurrency=1) as coordinator:
        results = await coordinator.fan_out("hello", within=5, min_results=0)

    assert results[1].error.executed is False
    assert "no concurrency slot" in str(results[1].error)
    assert agents[1].received == []
    assert now() == pytest.approx(5)


async def test_a_slot_timeout_names_the_holders():
    silent = [fake(f"silent-{n}", works_forever()) for n in range(4)]
    agents = [*silent, fake("well")]

    async with coordinating(*agents, concurrency=4) as coordinator:
        results = await coordinator.fan_out("hello", within=2, min_results=0)

    assert str(results[4].error) == (
        "no concurrency slot was free within the fan-out timeout of 2 s: all slots "
        "(concurrency=4) are taken by calls in flight, to 'silent-0', 'silent-1', 'silent-2', 1 "
        "more; nothing was sent"
    )


async def test_a_slot_timeout_names_the_share_of_an_agent():
    silent = fake("silent", works_forever())

    async with coordinating(silent, fake("well"), concurrency=2) as coordinator:
        results = await coordinator.fan_out([("silent", "x")] * 2, within=2, min_results=0)

    assert str(results[1].error).endswith(
        ": 1 of 2 slots (concurrency=2) are taken by calls in flight, to 'silent', and no agent "
        "may take more than are free; nothing was sent"
    )


async def test_one_slot_more_than_silent_agents_suffices_for_the_others():
    agents = [*[fake(f"silent-{n}", works_forever()) for n in range(2)], fake("a"), fake("b")]

    async with coordinating(*agents, concurrency=3) as coordinator:
        for _ in range(5):
            results = await coordinator.fan_out("hello", within=2)
            assert [result.error is None for result in results] == [False, False, True, True]


async def test_the_timeout_of_a_call_applies_in_a_fan_out():
    async with coordinating(fake("a", works_forever()), fake("b", after(4))) as coordinator:
        results = await coordinator.fan_out("hello", within=9, timeout=3, min_results=0)

    assert {result.error.deadline for result in results} == {"call"}
    assert now() == pytest.approx(3)


# ── No leaks ─────────────────────────────────────────────────────────────────────────────────


@crossed("how, seed", ["awaiting", "iterating", "closing"], range(4))
def test_a_fan_out_cancelled_at_any_moment_leaves_nothing_in_flight(how, seed):
    async def main():
        dice = random.Random(seed)
        for step in range(25):
            agents = [fake(name, after(0.2 * n), latency=0.1) for n, name in enumerate("abcde")]
            agents[1].inject(Refuse(), times=2)
            agents[2].inject(Delay(seconds=0.3))
            network = FakeNetwork(*agents, latency=0.05)
            clients = {name_of(agent): connect(agent.url, engine=network) for agent in agents}
            async with Coordinator(clients, concurrency=dice.choice([1, 3, 100])) as coordinator:

                async def use(coordinator=coordinator):
                    if how == "awaiting":
                        return await coordinator.fan_out("hello")
                    async with coordinator.fan_out("hello") as fan_out:
                        return [result async for result in fan_out]

                user = asyncio.create_task(use())
                await asyncio.sleep(step * 0.06)
                if how == "closing":
                    await coordinator.close()
                    await asyncio.wait([user])
                    assert user.exception() is None or isinstance(user.exception(), RuntimeError)
                else:
                    user.cancel()
                    await asyncio.wait([user])
                    assert user.cancelled() or len(user.result()) == 5

                assert asyncio.all_tasks() == {asyncio.current_task()}
                assert network.in_flight == 0
                assert {agent.open_streams for agent in agents} == {0}
                assert [agent.calls("CancelTask") for agent in agents] == [[]] * 5

    run(main(), seed=seed)


async def test_a_fan_out_can_be_left_early():
    agents = [fake("quick", after(1)), fake("slow", works_forever())]
    network = FakeNetwork(*agents)

    async with coordinating(*agents, engine=network) as coordinator:
        async with coordinator.fan_out("hello", cancel_on_abandon=True) as fan_out:
            async for result in fan_out:
                assert (result.agent, fan_out.in_flight) == ("quick", 1)
                break
        assert now() == pytest.approx(1)
        assert network.in_flight <= 1  # which is the request to cancel

    assert len(agents[1].calls("CancelTask")) == 1
    assert network.in_flight == 0


async def test_a_fan_out_closed_at_once_sends_nothing():
    agent = fake("a")
    async with coordinating(agent) as coordinator:
        fan_out = coordinator.fan_out("hello")
        await fan_out.close()
        with pytest.raises(RuntimeError, match="closed"):
            await fan_out

    assert agent.received == []


async def test_results_can_be_awaited_again():
    async with coordinating(fake("a")) as coordinator:
        fan_out = coordinator.fan_out("hello")

        assert await fan_out == await fan_out.results()


@pytest.mark.parametrize("how", ["iterating", "awaiting", "breaking off", "at the same time"])
async def test_each_iteration_yields_all_results(how):
    agents = [fake("a", after(2)), fake("b", after(1)), fake("c", after(3))]

    async with coordinating(*agents) as coordinator:
        fan_out = coordinator.fan_out("hello")
        if how == "awaiting":
            await fan_out
        elif how == "breaking off":
            async for _ in fan_out:
                break
        first, second = await asyncio.gather(
            collected(fan_out, iterates=True), collected(fan_out, iterates=True)
        )
        assert [result.agent for result in first[0]] == ["b", "a", "c"]
        assert second == first
        assert await collected(fan_out, iterates=True) == first

    assert [len(received_ids(agent)) for agent in agents] == [1, 1, 1]


async def test_too_few_answers_end_each_iteration():
    async with coordinating(fake("a", fails())) as coordinator:
        fan_out = coordinator.fan_out("hello")
        for _ in range(2):
            results, error = await collected(fan_out, iterates=True)
            assert (len(results), type(error)) == (1, NotEnoughResultsError)


async def test_an_unused_fan_out_causes_a_warning():
    agent = fake("a")
    async with coordinating(agent) as coordinator:
        with pytest.warns(RuntimeWarning, match="fan-out was never started: await it") as warned:
            coordinator.fan_out("hello")
        assert warned[0].filename == __file__
        with (
            pytest.warns(RuntimeWarning, match="never started"),
            pytest.raises(TypeError, match="coroutine"),
        ):
            await asyncio.create_task(coordinator.fan_out("hello"))

        fan_out = coordinator.fan_out("hello")
        await fan_out.close()
        del fan_out  # is nothing that was forgotten
        assert agent.received == []

        assert len(await asyncio.ensure_future(coordinator.fan_out("hello"))) == 1


async def test_an_exception_of_a_consumer_is_raised_and_cancels_the_others():
    class OddError(Exception):
        pass

    def consume(event, task, card):
        if task.state.is_terminal:
            raise OddError

    agents = [fake("a", after(1)), fake("b", works_forever())]
    network = FakeNetwork(*agents)
    async with coordinating(*agents, engine=network, consumers=[consume]) as coordinator:
        with pytest.raises(OddError):
            await coordinator.fan_out("hello")

        assert now() == pytest.approx(1)
        assert asyncio.all_tasks() == {asyncio.current_task()}
        assert network.in_flight == 0


async def test_a_terminal_task_is_not_cancelled():
    async def consume(event, task, card):
        await asyncio.sleep(10 if task.state.is_terminal else 0)

    agent = fake("a", after(1))
    async with coordinating(agent, consumers=[consume]) as coordinator:
        results = await coordinator.fan_out(
            "hello", within=5, min_results=0, cancel_on_abandon=True
        )

    assert isinstance(results[0].error, DeadlineExceededError)
    assert next(iter(agent.tasks.values())).state is TaskState.COMPLETED
    assert agent.calls("CancelTask") == []


async def test_cancel_requests_do_not_delay_results():
    slow = fake("slow", works_forever(), cancel_takes=8)
    async with coordinating(slow) as coordinator:
        await coordinator.fan_out("hello", within=5, min_results=0, cancel_on_abandon=True)

    assert len(slow.calls("CancelTask")) == 1
    assert now() == pytest.approx(5)


# ── Each result once, in its place ───────────────────────────────────────────────────────────

OUTCOMES = st.sampled_from(["done", "fails", "asks", "refuses", "away", "late"])


@given(
    behaviours=st.lists(st.tuples(OUTCOMES, st.floats(0, 9)), min_size=1, max_size=12),
    concurrency=st.integers(1, 12),
    required=st.integers(0, 12),
    iterates=st.booleans(),
    seed=st.integers(0, 2**32),
)
@settings(max_examples=rounds(20, 60))
def test_each_result_is_yielded_once_at_its_index(
    behaviours, concurrency, required, iterates, seed
):
    async def main():
        agents = [_agent(f"agent{n}", *behaviour) for n, behaviour in enumerate(behaviours)]
        names = [name_of(agent) for agent in agents]
        network = FakeNetwork(*agents)
        async with coordinating(
            *agents, engine=network, concurrency=concurrency, resilience=ONCE
        ) as coordinator:
            fan_out = coordinator.fan_out(
                "hello", within=1000, timeout=20, min_results=min(required, len(agents))
            )
            results, error = await collected(fan_out, iterates=iterates)
        if error is not None:
            assert not iterates or Counter(map(id, results)) == Counter(map(id, error.results))
            results = list(error.results)
            assert [result.agent for result in results] == names
        assert Counter(result.agent for result in results) == Counter(names)
        assert iterates or [result.agent for result in results] == names
        assert all((result.answer is None) != (result.error is None) for result in results)
        assert (sum(result.error is None for result in results) >= min(required, len(agents))) == (
            error is None
        )
        assert network.in_flight == 0
        assert all(
            len(attempts) == 1 for agent in agents for attempts in agent.executions.values()
        )

    run(main(), seed=seed)


def _agent(name, outcome, seconds):
    agent = fake(
        name,
        {
            "fails": fails("no", after=seconds),
            "asks": asks("what?", after=seconds),
            "refuses": rejects("no"),
            "late": works_forever(),
        }.get(outcome, after(seconds)),
    )
    if outcome == "away":
        agent.inject(Refuse(), times=100)
    return agent


# ── Independence of agents ───────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("fault", [Refuse(), Stall()], ids=["refusing", "stalling"])
async def test_one_unreachable_agent_of_ten_delays_no_other(fault):
    times = rounds(40, 120)  # 1,080 calls of the others, where there is time
    agents = [fake(f"agent{n}", after(1)) for n in range(10)]
    agents[4].inject(fault, times=100_000)

    async with coordinating(*agents) as coordinator:
        healthy = [name for name in coordinator.agents if name != "agent4"]
        results = []
        for _ in range(times):
            began = now()
            async with coordinator.fan_out("hello", within=30) as fan_out:
                async for result in fan_out:
                    if result.agent in healthy:
                        results.append(result)
                        assert now() == pytest.approx(began + 1, abs=0.001)
            await asyncio.sleep(0.5)
        health = coordinator.health()

    well = [result for result in results if result.error is None]
    assert len(results) == 9 * times
    assert len(well) >= 0.999 * len(results)
    assert max(result.duration for result in well) == pytest.approx(1, abs=0.001)
    assert all(health[name].healthy for name in healthy)


async def test_agents_take_turns_however_often_one_is_named():
    slow, quick = fake("slow", after(10)), fake("quick", after(1))

    async with coordinating(slow, quick, concurrency=2) as coordinator:
        pairs = [("slow", "x")] * 20 + [("quick", "y")]
        async with coordinator.fan_out(pairs) as fan_out:
            first = await anext(aiter(fan_out))

    assert (first.agent, now()) == ("quick", pytest.approx(1))


async def test_a_small_fan_out_does_not_wait_for_a_large_one():
    agents = [fake(f"agent{n}", after(1)) for n in range(40)]

    async with coordinating(*agents, concurrency=4) as coordinator:
        large = asyncio.ensure_future(coordinator.fan_out("hello").results())
        await asyncio.sleep(0.5)
        small = await coordinator.fan_out("hello", agents=["agent0", "agent1"])
        delegated = await coordinator.delegate("agent2", "hello")
        took = now()
        await large

    assert len(small) == 2
    assert delegated.error is None
    assert took <= 4
    assert now() == pytest.approx(43 / 4, abs=1)


async def test_concurrency_bounds_the_messages_in_flight():
    agents = [fake(f"agent{n}", after(1)) for n in range(9)]
    network = FakeNetwork(*agents)

    async with coordinating(*agents, engine=network, concurrency=3) as coordinator:
        await asyncio.gather(*(coordinator.fan_out("hello").results() for _ in range(2)))

    assert network.peak <= 3
    assert now() == pytest.approx(6)


# ── delegate ─────────────────────────────────────────────────────────────────────────────────


async def test_delegate_returns_the_answer_or_the_error():
    agents = [fake("a", after(2, "yes")), fake("b", fails("no"))]

    async with coordinating(*agents) as coordinator:
        well = await coordinator.delegate("a", "hello", headers={"x-trace": "7"})
        badly = await coordinator.delegate("b", "hello")

    assert (well.agent, well.answer.text, well.error) == ("a", "yes", None)
    assert (well.duration, well.attempts) == (pytest.approx(2), 1)
    assert isinstance(badly.error, TaskFailedError)
    assert agents[0].received[-1].headers["x-trace"] == "7"


async def test_attempts_are_those_of_the_message():
    agent = fake("a", after(30), streaming=False)
    agent.inject(Refuse(), on="SendMessage", times=2)
    unreachable = fake("gone")

    async with coordinating(agent, engine=FakeNetwork(agent)) as coordinator:
        coordinator.add("gone", unreachable.url)
        assert (await coordinator.delegate("a", "hello")).attempts == 3
        assert (await coordinator.delegate("gone", "hello")).attempts == 1  # to find its card


async def test_the_wait_for_a_slot_ends_at_the_timeout_of_the_call():
    agent = fake("a", works_forever())
    async with coordinating(agent, concurrency=1) as coordinator:
        first = asyncio.create_task(coordinator.delegate("a", "hello"))
        await asyncio.sleep(1)
        second = await coordinator.delegate("a", "hello", timeout=5)
        first.cancel()
        await asyncio.wait([first])

    assert (second.error.executed, second.error.deadline) == (False, "call")
    assert now() == pytest.approx(6)


# ── Health ───────────────────────────────────────────────────────────────────────────────────


async def test_an_agent_that_was_never_called_is_healthy():
    async with coordinating(fake("a")) as coordinator:
        health = coordinator.health()["a"]

    assert (health.url, health.healthy) == ("http://a.test", True)
    assert (health.consecutive_failures, health.last_failure, health.open_until) == (0, None, None)


async def test_health_is_the_state_of_the_breaker():
    agent = fake("a")
    policy = Resilience(
        retry=RetryPolicy(max_retries=0), breaker=BreakerPolicy.simple(failures=3, open_for=30)
    )

    async with coordinating(agent, fake("b"), resilience=policy) as coordinator:
        await coordinator.delegate("a", "hello")
        agent.inject(Refuse(), times=3)
        await asyncio.sleep(10)
        await coordinator.delegate("a", "hello")
        health = coordinator.health()["a"]
        assert (health.healthy, health.consecutive_failures, health.open_until) == (True, 1, None)
        await coordinator.delegate("a", "hello")
        await coordinator.delegate("a", "hello")
        opened = now()

        health = coordinator.health()
        assert health["b"].healthy
        away = health["a"]
        assert (away.healthy, away.consecutive_failures) == (False, 3)
        assert away.last_failure == pytest.approx(EPOCH + opened)
        assert away.open_until == pytest.approx(EPOCH + opened + 30)
        assert "refused" in away.cause
        assert away.to_dict() == {name: getattr(away, name) for name in away.__struct_fields__}

        began, received = now(), len(agent.received)
        result = await coordinator.delegate("a", "hello")
        assert isinstance(result.error, CircuitOpenError)
        assert (now(), len(agent.received)) == (began, received)  # at once, with nothing sent

        await asyncio.sleep(31)
        assert (await coordinator.delegate("a", "hello")).error is None
        well = coordinator.health()["a"]
        assert (well.healthy, well.consecutive_failures, well.open_until) == (True, 0, None)
        assert well.last_failure == pytest.approx(EPOCH + opened)


async def test_an_agent_without_a_reachable_card_is_unhealthy():
    unreachable = fake("gone")
    unreachable.inject(Refuse(), times=1000)

    async with coordinating(unreachable, resilience=ONCE) as coordinator:
        for _ in range(5):
            await coordinator.delegate("gone", "hello")
        health = coordinator.health()["gone"]

        assert (health.healthy, health.consecutive_failures) == (False, 5)
        assert isinstance((await coordinator.delegate("gone", "hello")).error, CircuitOpenError)


async def test_an_agent_with_replicas_has_the_health_of_the_best():
    first, second = fake("first"), fake("second")
    network = FakeNetwork(first, second)
    agents = {"a": [first.url, second.url]}

    async with Coordinator(agents, engine=network, resilience=ONCE) as coordinator:
        for _ in range(10):
            await coordinator.delegate("a", "hello")
        first.inject(Refuse(), times=1000)
        for _ in range(60):
            await coordinator.delegate("a", "hello")
            await asyncio.sleep(1)
        assert coordinator.health()["a"].healthy
        assert coordinator.health()["a"].last_failure is not None

        second.inject(Refuse(), times=1000)
        for _ in range(12):
            result = await coordinator.delegate("a", "hello")
        assert isinstance(result.error, CircuitOpenError)
        assert not coordinator.health()["a"].healthy


async def test_an_open_circuit_needs_no_slot():
    busy, unreachable = fake("busy", works_forever()), fake("gone")
    async with coordinating(busy, unreachable, concurrency=1) as coordinator:
        coordinator.client("gone").circuit.open()
        await coordinator.delegate("gone", "hello")
        waiting = asyncio.create_task(coordinator.delegate("busy", "hello"))
        await asyncio.sleep(1)

        result = await coordinator.delegate("gone", "hello")

        assert isinstance(result.error, CircuitOpenError)
        assert now() == pytest.approx(1)
        health = coordinator.health()["gone"]
        assert (health.healthy, health.open_until) == (False, None)
        waiting.cancel()
        await asyncio.wait([waiting])


# ── Adding and removing agents ───────────────────────────────────────────────────────────────


async def test_agents_can_be_added_and_removed():
    agents = [fake("a", after(5)), fake("b", after(5)), fake("c", after(1))]
    network = FakeNetwork(*agents)

    async with coordinating(*agents[:2], engine=network) as coordinator:
        fan_out = asyncio.ensure_future(coordinator.fan_out("hello").results())
        await asyncio.sleep(2)
        coordinator.add("c", agents[2].url)
        await coordinator.remove("b")
        assert coordinator.agents == ("a", "c")
        results = await fan_out

        assert [result.agent for result in results] == ["a", "b"]
        assert results[0].error is None
        assert isinstance(results[1].error, A2AConnectionError)
        assert results[1].error.failure == "closed"
        assert [result.agent for result in await coordinator.fan_out("hello")] == ["a", "c"]
        assert set(coordinator.health()) == {"a", "c"}


async def test_a_call_that_waits_for_a_slot_of_a_removed_agent_sends_nothing():
    agents = [fake("a", after(5)), fake("b")]

    async with coordinating(*agents, concurrency=1) as coordinator:
        fan_out = asyncio.ensure_future(coordinator.fan_out("hello").results())
        await asyncio.sleep(2)
        await coordinator.remove("b")
        results = await fan_out

    assert (results[1].error.failure, results[1].error.executed) == ("closed", False)
    assert agents[1].received == []


async def test_removing_an_agent_with_a_borrowed_client_ends_waiting_calls():
    agents = [fake("a", after(5)), fake("b")]
    network = FakeNetwork(*agents)
    clients = {name_of(agent): connect(agent.url, engine=network) for agent in agents}

    async with Coordinator(clients, concurrency=1) as coordinator:
        fan_out = asyncio.ensure_future(coordinator.fan_out("hello").results())
        await asyncio.sleep(2)
        await coordinator.remove("b")
        results = await fan_out

    assert (results[1].error.failure, results[1].error.executed) == ("closed", False)
    assert agents[1].received == []


async def test_an_agent_removed_while_the_journal_writes_is_sent_nothing(tmp_path):
    class Slow(SqliteJournal):
        async def begin(self, record):
            await asyncio.sleep(2)
            return await super().begin(record)

    agent, journal = fake("a"), Slow(tmp_path / "calls.db")
    async with coordinating(agent, journal=journal) as coordinator:
        in_flight = asyncio.create_task(coordinator.delegate("a", "hello"))
        await asyncio.sleep(1)
        await coordinator.remove("a")
        result = await in_flight

    await journal.close()
    assert (result.error.failure, result.error.executed) == ("closed", False)
    assert agent.calls("SendMessage") == agent.calls("SendStreamingMessage") == []


async def test_a_borrowed_client_is_not_closed():
    agent = fake("a", after(5))
    network = FakeNetwork(agent)
    client = connect(agent.url, engine=network)

    async with Coordinator({"a": client}, engine=network) as coordinator:
        assert coordinator.client("a") is client
        in_flight = asyncio.create_task(coordinator.delegate("a", "hello"))
        await asyncio.sleep(1)
        await coordinator.remove("a")
        assert (await in_flight).error is None

    assert (await client.ask("hello")).text == "done"


async def test_an_agent_can_be_a_card_file(tmp_path):
    agent = fake("a")
    card = await connect(agent.url, engine=FakeNetwork(agent)).agent_card()
    path = tmp_path / "card.json"
    path.write_bytes(msgspec.json.encode(card))

    for target in (path, [path]):
        async with Coordinator({"a": target}, engine=FakeNetwork(agent)) as coordinator:
            assert (await coordinator.delegate("a", "hello")).error is None


async def test_an_agent_can_be_a_card_and_is_checked_at_once():
    agent = fake("a")
    card = await connect(agent.url, engine=FakeNetwork(agent)).agent_card()
    network = FakeNetwork(agent)

    async with Coordinator({"a": card}, engine=network) as coordinator:
        assert (await coordinator.delegate("a", "hello")).error is None
        with pytest.raises(InvalidAgentCardError):
            coordinator.add("b", {"name": "no interface"})
        assert coordinator.agents == ("a",)


async def test_a_closed_coordinator_refuses_calls():
    coordinator = coordinating(fake("a"))
    await coordinator.close()
    await coordinator.close()

    with pytest.raises(RuntimeError, match="closed"):
        await coordinator.delegate("a", "hello")
    with pytest.raises(RuntimeError, match="closed"):
        coordinator.fan_out("hello")
    with pytest.raises(RuntimeError, match="closed"):
        coordinator.add("b", "http://b.test")
    with pytest.raises(RuntimeError, match="the coordinator is closed"):
        async with coordinator:
            pass


@pytest.mark.parametrize("iterates", [False, True])
async def test_a_fan_out_started_after_close_is_refused(iterates):
    agent = fake("a")
    async with coordinating(agent) as coordinator:
        fan_out = coordinator.fan_out("hello")

    for _ in range(2):
        with pytest.raises(RuntimeError, match="the coordinator is closed"):
            await collected(fan_out, iterates=iterates)
    assert agent.received == []


async def test_calls_ended_by_close_do_not_report_a_removed_agent():
    agents = [fake("a", after(5)), fake("b")]
    coordinator = coordinating(*agents, concurrency=1)
    in_flight = [asyncio.create_task(coordinator.delegate(name, "hello")) for name in "ab"]
    await asyncio.sleep(2)
    await coordinator.close()

    waited = await in_flight[1]
    assert str(waited.error) == "the coordinator was closed; nothing was sent"
    assert waited.error.executed is False
    assert "removed" not in str((await in_flight[0]).error)


# ── Sockets ──────────────────────────────────────────────────────────────────────────────────


@pytest.mark.real_time
async def test_a_coordinator_on_sockets_leaks_nothing():
    def behave(turn):
        return works_forever() if turn.message.text == "long" else "done"

    async with AsyncExitStack() as stack:
        agents = [FakeAgent(behave) for _ in range(3)]
        servers = [await stack.enter_async_context(LoopbackServer(agent)) for agent in agents]
        async with Coordinator([server.url for server in servers], concurrency=2) as coordinator:
            results = await coordinator.fan_out("hello", min_results=3)
            fan_out = coordinator.fan_out(zip(coordinator.agents, ["x", "long", "x"], strict=True))
            async with fan_out:
                coming = aiter(fan_out)
                first = [await anext(coming), await anext(coming)]

        assert [result.answer.text for result in results] == ["done"] * 3
        assert {server.agent for server in first} == {servers[0].url, servers[2].url}
    assert asyncio.all_tasks() == {asyncio.current_task()}
    assert [agent.open_streams for agent in agents] == [0, 0, 0]


# ── Invalid arguments ────────────────────────────────────────────────────────────────────────


async def test_unknown_agents_are_named():
    async with coordinating(fake("a"), fake("b")) as coordinator:
        for use in (
            lambda: coordinator.fan_out("hello", agents=["c"]),
            lambda: coordinator.fan_out([("a", "x"), ("c", "y")]),
            lambda: coordinator.client("c"),
        ):
            with pytest.raises(ValueError, match="no agent 'c'; valid names: 'a', 'b'"):
                use()
        with pytest.raises(ValueError, match="no agent 'c'"):
            await coordinator.delegate("c", "hello")
        with pytest.raises(ValueError, match="no agent 'c'"):
            await coordinator.remove("c")


@pytest.mark.parametrize(
    ("arguments", "options", "error", "match"),
    [
        (("",), {}, ValueError, "at least one part"),
        (([("a", "")],), {}, ValueError, "at least one part"),
        (([("a", "x", "y")],), {}, ValueError, "one has 3 members"),
        (([("a", "x")],), {"agents": ["a"]}, ValueError, "pairs, which name their agents"),
        (("x",), {"agents": "a"}, TypeError, "must be a sequence"),
        (("x",), {"within": 0}, ValueError, "within must be"),
        (("x",), {"min_results": -1}, ValueError, "min_results"),
        (("x",), {"min_results": 1.5}, TypeError, "min_results"),
        (("x",), {"cancel_on_abandon": 1}, TypeError, "cancel_on_abandon"),
        (("x",), {"timeout": -1}, ValueError, "timeout"),
        (
            ("x",),
            {"colour": "red"},
            TypeError,
            "'colour' is not an option of .*; there are agents, ",
        ),
        (("x",), {"witin": 3}, TypeError, "'witin' is not an option .*; did you mean 'within'?"),
        (("x",), {"time_out": 3}, TypeError, "did you mean 'timeout'?"),
        (
            ({"a": "x", "z": "y"},),
            {},
            ValueError,
            r"a dict is one message; .* pass its \.items\(\)",
        ),
        (({"z": "y"},), {}, ValueError, "'z' is not a member of the message; write "),
        (
            (Message(task_id="7", parts=(Part(text="x"),)),),
            {},
            ValueError,
            "task 7 belongs to one agent",
        ),
    ],
)
async def test_invalid_arguments_are_refused_at_once(arguments, options, error, match):
    agents = [fake("a"), fake("b")]
    async with coordinating(*agents) as coordinator:
        with pytest.raises(error, match=match):
            coordinator.fan_out(*arguments, **options)

    assert agents[0].received == []


async def test_a_repeated_message_id_is_refused():
    message = Message(message_id="mine", parts=(Part(text="x"),))
    async with coordinating(fake("a"), fake("b")) as coordinator:
        with pytest.raises(ValueError, match="'mine' is used twice"):
            coordinator.fan_out([("a", message), ("b", message)])


@pytest.mark.parametrize(
    ("agents", "options", "error", "match"),
    [
        ("http://a.test", {}, TypeError, r"\['http://a.test'\]"),
        (["http://a.test", "http://a.test"], {}, ValueError, "already"),
        (["http://a.test/?key=s3cret"], {}, ValueError, "may contain a secret"),
        ([7], {}, TypeError, "a dict of names and agents, or a list of addresses, not of int"),
        (5, {}, TypeError, "agents must be a dict of names and agents, or .*, not int"),
        (["a.test"], {}, ValueError, "did you mean https://a.test"),
        ({"a": 7}, {}, TypeError, "the agent 'a' must be a URL, .* or a Client, not int"),
        ({"a": None}, {}, TypeError, "the agent 'a' must be a URL, .* not NoneType"),
        ({"a": b"http://a.test"}, {}, TypeError, "the agent 'a' must be .* not bytes"),
        ({"a": ["http://a.test", None]}, {}, TypeError, "the agent 'a' must be .* not NoneType"),
        ({"a": []}, {}, ValueError, "the agent 'a' has an empty list"),
        ({"": "http://a.test"}, {}, ValueError, "name of an agent"),
        ({7: "http://a.test"}, {}, TypeError, "name of an agent"),
        ([], {"concurrency": 0}, ValueError, "concurrency"),
        ([], {"timeout": -1}, ValueError, "timeout"),
        (
            [],
            {"colour": "red"},
            TypeError,
            "'colour' is not an option of a Coordinator; there are",
        ),
        ([], {"timout": 3}, TypeError, "'timout' is not an option .*; did you mean 'timeout'?"),
        ([], {"url": "http://a.test"}, ValueError, "the address of one agent"),
    ],
)
def test_agents_and_options_are_checked_when_they_are_passed(agents, options, error, match):
    with pytest.raises(error, match=match) as caught:
        Coordinator(agents, engine=FakeNetwork(), **options)

    assert "s3cret" not in str(caught.value)


async def test_one_shot_iterables_in_options_apply_to_every_agent():
    uri = AgentExtension(uri="urn:x")
    agents = [fake(name, extensions=[uri]) for name in "ab"]

    async with coordinating(*agents, extensions=iter(["urn:x"])) as coordinator:
        results = await coordinator.fan_out("hello")

    assert [result.answer.extensions for result in results] == [("urn:x",)] * 2


async def test_addresses_are_also_names():
    agents = [fake("a"), fake("b")]
    async with Coordinator([agent.url for agent in agents], engine=FakeNetwork(*agents)) as them:
        results = await them.fan_out("hello")

    assert [result.agent for result in results] == ["http://a.test", "http://b.test"]


# ── Failing, silent and removed agents ───────────────────────────────────────────────────────────


def card_of(*agents):
    return AgentCard(
        name="several",
        description="one agent at several addresses",
        version="1",
        supported_interfaces=tuple(
            AgentInterface(
                url=f"{agent.url}/rpc", protocol_binding="JSONRPC", protocol_version="1.0"
            )
            for agent in agents
        ),
        capabilities=AgentCapabilities(streaming=True),
        default_input_modes=("text/plain",),
        default_output_modes=("text/plain",),
    )


async def test_too_few_results_are_not_unexecuted_if_an_agent_answered():
    well, away = fake("well"), fake("away")
    away.inject(Refuse(), times=100)

    async with coordinating(well, away, resilience=ONCE) as coordinator:
        with pytest.raises(NotEnoughResultsError) as caught:
            await coordinator.fan_out("hello", min_results=2)

    assert len(well.executions) == 1
    assert caught.value.executed is not False


async def test_a_call_cancelled_before_it_was_sent_is_unexecuted():
    slow, waiting = fake("slow", works_forever()), fake("waiting")

    async with coordinating(slow, waiting, concurrency=1) as coordinator:
        fan_out = coordinator.fan_out("hello")
        async with fan_out:
            await asyncio.sleep(1)
        come = aiter(fan_out)
        results = {result.agent: result for result in [await anext(come), await anext(come)]}

    assert waiting.received == []
    assert results["waiting"].error.executed is False
    assert results["slow"].error.executed is not False


async def test_an_agent_whose_name_does_not_resolve_is_unhealthy():
    unreachable = fake("gone")
    async with Coordinator(
        {"gone": card_of(unreachable)},
        engine=FakeNetwork(),
        resilience=ONCE,
        env=VirtualWall(draw=0.5),
    ) as coordinator:
        results = [await coordinator.delegate("gone", "hello") for _ in range(6)]
        health = coordinator.health()["gone"]

    assert isinstance(results[4].error, A2AConnectionError)
    assert isinstance(results[5].error, CircuitOpenError)
    assert "resolved" in str(results[5].error)
    assert (health.healthy, health.consecutive_failures) == (False, 5)


@pytest.mark.parametrize("silent", [1, 2])
async def test_agents_that_never_answer_take_no_slot_from_the_others(silent):
    agents = [fake(f"agent{n}", completes("done", after=1)) for n in range(6)]
    for agent in agents[:silent]:
        agent.inject(Stall(), on="SendStreamingMessage", times=1000)

    async with coordinating(*agents, concurrency=12) as coordinator:
        healthy = set(coordinator.agents[silent:])
        answered = []

        async def ask():
            began = now()
            async with coordinator.fan_out("hello") as fan_out:
                async for result in fan_out:
                    if result.agent in healthy:
                        answered.append(result.answer.text)
                        assert now() == pytest.approx(began + 1, abs=0.01)

        asking = []
        for _ in range(60):
            asking.append(asyncio.create_task(ask()))
            await asyncio.sleep(1)
        await asyncio.sleep(2)
        for call in asking:
            call.cancel()
        await asyncio.gather(*asking, return_exceptions=True)

    assert answered == ["done"] * 60 * len(healthy)


async def test_an_agent_without_others_may_use_all_slots():
    agent = fake("agent", completes("done", after=1))

    async with coordinating(agent, concurrency=10) as coordinator:
        await coordinator.fan_out([("agent", "hello")] * 10)

    assert now() == pytest.approx(1)


class Unhurried(FakeNetwork):
    """Connections of streams that do not close."""

    def stream(self, request):
        inner = super().stream(request)

        class Connection:
            async def __aenter__(self):
                return await inner.__aenter__()

            async def __aexit__(self, *error):
                await inner.__aexit__(*error)
                await asyncio.sleep(1_000_000)

        return Connection() if b"Stream" in (request.body or b"") else inner


async def test_a_coordinator_closes_all_its_fan_outs_at_once():
    agents = [fake(f"agent{n}", works_forever()) for n in range(3)]
    coordinator = coordinating(*agents, engine=Unhurried(*agents))
    asking = [asyncio.create_task(coordinator.fan_out("hello").results()) for _ in range(20)]
    await asyncio.sleep(1)

    await coordinator.close()

    assert now() <= 12
    await asyncio.gather(*asking, return_exceptions=True)


@pytest.mark.parametrize("ends", ["close", "remove"])
async def test_calls_that_wait_for_a_removed_agent_end_at_once(ends):
    busy, other_agent = fake("busy", works_forever()), fake("other")
    network = FakeNetwork(busy, other_agent)
    borrowed = connect(busy.url, engine=network)
    coordinator = Coordinator(
        {"busy": borrowed, "other": other_agent.url},
        engine=network,
        concurrency=1,
        env=VirtualWall(draw=0.5),
    )
    in_flight = asyncio.create_task(coordinator.delegate("busy", "hello"))
    await asyncio.sleep(1)
    waiting = [asyncio.create_task(coordinator.delegate("other", "hello")) for _ in range(3)]
    await asyncio.sleep(1)

    await (coordinator.close() if ends == "close" else coordinator.remove("other"))
    results = await asyncio.gather(*waiting)

    assert now() == 2
    assert {(result.error.failure, result.error.executed) for result in results} == {
        ("closed", False)
    }
    assert other_agent.received == []
    in_flight.cancel()
    await asyncio.gather(in_flight, return_exceptions=True)
    if ends == "remove":
        coordinator.add("other", other_agent.url)
        assert (await coordinator.delegate("other", "hello", timeout=5)).error is None
        await coordinator.close()
    await borrowed.close()
