"""Places for calls: first come, first served, whoever leaves and whenever."""

import asyncio
import gc
import random

import pytest
from hypothesis import strategies as st
from tests.kit.strategies import given
from tests.kit.virtual_env import FixedDraws

from holdfast import (
    A2AError,
    CircuitOpenError,
    ConcurrencyPolicy,
    Resilience,
    RetryPolicy,
    connect,
)
from holdfast._pipeline.admission import Admission, AdmissionQueue
from holdfast.errors import QueueFullError
from holdfast.testing import FakeAgent, FakeNetwork, rate_limited, run, works_forever


async def settled():
    """Lets everybody go on who can."""
    for _ in range(5):
        await asyncio.sleep(0)


async def comes(admission, arrived, name, line=None):
    await admission.enter(line)
    arrived.append(name)


def test_places_go_to_those_who_came_first():
    async def main():
        admission, arrived = Admission(2), []
        tasks = [asyncio.create_task(comes(admission, arrived, n)) for n in range(6)]
        await settled()
        assert arrived == [0, 1]
        assert admission.waiting == 4

        for _ in range(4):
            admission.leave()
            await settled()

        await asyncio.gather(*tasks)
        assert arrived == [0, 1, 2, 3, 4, 5]

    run(main())


def test_a_newcomer_does_not_overtake_one_who_has_just_been_let_in():
    async def main():
        admission, arrived = Admission(1), []
        await comes(admission, arrived, "first")
        second = asyncio.create_task(comes(admission, arrived, "second"))
        await settled()

        admission.leave()  # the place is the second one's, though it has not run yet
        third = asyncio.create_task(comes(admission, arrived, "third"))
        await settled()

        assert arrived == ["first", "second"]
        admission.leave()
        await asyncio.gather(second, third)

    run(main())


def test_a_place_given_to_one_who_leaves_goes_to_the_next():
    async def main():
        admission, arrived = Admission(1), []
        await comes(admission, arrived, "first")
        second = asyncio.create_task(comes(admission, arrived, "second"))
        third = asyncio.create_task(comes(admission, arrived, "third"))
        await settled()

        admission.leave()
        second.cancel()  # in the same turn of the loop
        await settled()

        assert arrived == ["first", "third"]
        assert second.cancelled()
        await third

    run(main())


@pytest.mark.rule("D05")
@given(seed=st.integers(0, 2**32), places=st.integers(1, 6))
def test_no_slot_is_lost_whenever_a_waiting_call_is_cancelled(seed, places):
    dice = random.Random(seed)

    async def main():
        admission = Admission(places, lambda: True)
        lines = [AdmissionQueue() for _ in range(3)]
        inside = []

        async def comes():
            name = dice.choice("abcd")
            await admission.enter(dice.choice(lines), name)
            inside.append(name)
            try:
                assert len(inside) <= places
                for _ in range(dice.randrange(4)):
                    await asyncio.sleep(0)
            finally:
                inside.remove(name)
                admission.leave(name)

        tasks = []
        for _ in range(60):
            tasks.append(asyncio.create_task(comes()))
            for _ in range(dice.randrange(3)):
                await asyncio.sleep(0)
            if dice.random() < 0.4:
                dice.choice(tasks).cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

        async with asyncio.timeout(1):  # as many others as there are places
            for n in range(places):
                await admission.enter(lines[0], f"other{n}")

    run(main(), seed=seed)


@given(places=st.integers(1, 4), seed=st.integers(0, 2**32), max_examples=150, callers=st.just(40))
def test_slots_stay_constant_whichever_caller_leaves(places, seed, callers):
    dice = random.Random(seed)

    async def main():
        admission, inside, most = Admission(places), 0, 0
        lines = [None, AdmissionQueue(), AdmissionQueue()]

        async def call():
            nonlocal inside, most
            await admission.enter(dice.choice(lines))
            inside += 1
            most = max(most, inside)
            try:
                await asyncio.sleep(dice.random())
            finally:
                inside -= 1
                admission.leave()

        tasks = []
        for _ in range(callers):
            tasks.append(asyncio.create_task(call()))
            if dice.random() < 0.5:
                await asyncio.sleep(dice.random() / 4)
            if dice.random() < 0.4:
                dice.choice(tasks).cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

        assert most <= places
        assert inside == admission.waiting == admission.taken == 0
        assert [admission.enter_at_once() for _ in range(places + 1)] == [True] * places + [False]

    run(main())


def test_who_finds_a_place_free_does_not_wait():
    async def main():
        admission = Admission(2)

        await asyncio.wait_for(admission.enter(), timeout=1)
        await asyncio.wait_for(admission.enter(AdmissionQueue()), timeout=1)

        assert admission.taken == 2
        assert not admission.enter_at_once()

    run(main())


def test_lines_take_turns_however_long_one_is():
    async def main():
        admission, arrived = Admission(1), []
        long, short = AdmissionQueue(), AdmissionQueue()
        await admission.enter()
        tasks = [asyncio.create_task(comes(admission, arrived, f"long {n}", long)) for n in (1, 2)]
        await settled()
        tasks += [asyncio.create_task(comes(admission, arrived, f"{n}", short)) for n in (1, 2)]
        tasks += [asyncio.create_task(comes(admission, arrived, "alone"))]
        await settled()
        assert (admission.taken, admission.waiting) == (1, 5)

        for _ in range(5):
            admission.leave()
            await settled()

        await asyncio.gather(*tasks)
        assert arrived == ["long 1", "1", "alone", "long 2", "2"]

    run(main())


# ── Through a client ─────────────────────────────────────────────────────────────────────────────


ONCE = Resilience(retry=RetryPolicy(max_retries=0))


def now():
    return asyncio.get_running_loop().time()


def fake(name, behaviour="done", **options):
    return FakeAgent(behaviour, url=f"http://{name}.test", **options)


@pytest.mark.rule("D05")
async def test_calls_that_stop_waiting_leave_no_future_behind():
    agent = fake("agent", works_forever())
    client = connect(
        agent.url,
        engine=FakeNetwork(agent),
        resilience=Resilience(concurrency=ConcurrencyPolicy(limit=1)),
    )
    async with client.stream_message("hello") as events:
        await anext(events)
        gc.collect()
        for _ in range(2000):
            with pytest.raises(A2AError):
                await client.ask("hello", timeout=0.1)
        gc.collect()
        turns = [one for one in gc.get_objects() if isinstance(one, asyncio.Future)]

    assert len(turns) < 500
    await client.close()


async def test_an_open_circuit_is_not_waited_for_in_the_queue():
    agent = fake("agent")
    client = connect(agent.url, engine=FakeNetwork(agent), resilience=ONCE, env=FixedDraws())
    await client.list_tasks()
    agent.inject(rate_limited(60), on="ListTasks")
    slow = asyncio.create_task(client.list_tasks())
    for _ in range(5):
        pass
    await asyncio.gather(slow, return_exceptions=True)
    client.circuit.open()
    began = now()

    with pytest.raises(CircuitOpenError):
        await client.list_tasks()

    assert now() == began


@pytest.mark.rule("P32")
async def test_a_stream_without_a_deadline_waits_for_a_slot_at_most_900_seconds():
    agent = fake("agent", works_forever())
    client = connect(
        agent.url,
        engine=FakeNetwork(agent),
        resilience=Resilience(concurrency=ConcurrencyPolicy(limit=1)),
    )
    async with client.stream_message("first") as events:
        await anext(events)
        async with asyncio.timeout(10_000):
            with pytest.raises(QueueFullError, match="for 900 s") as caught:
                await client.stream_message("second").__aenter__()

    assert (caught.value.executed, caught.value.transient) == (False, True)
    assert client.stats().waiting == 0
    assert len(agent.executions) == 1
