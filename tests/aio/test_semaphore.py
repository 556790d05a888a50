"""The semaphore and the queue below it: in order, and no turn is lost with a caller who leaves."""

import asyncio
import random
from pathlib import Path

import pytest

import holdfast
from holdfast._aio.semaphore import FifoSemaphore, WaitingQueue


async def waiting(semaphore, number):
    """Some who wait, in order."""
    tasks = [asyncio.create_task(semaphore.acquire()) for _ in range(number)]
    await asyncio.sleep(0)
    return tasks


async def test_as_many_is_full_at_once_as_there_are():
    semaphore = FifoSemaphore(2)
    await semaphore.acquire()
    assert not semaphore.is_full
    await semaphore.acquire()
    assert semaphore.is_full


async def test_slots_are_given_to_who_waits_in_order():
    semaphore = FifoSemaphore(1)
    await semaphore.acquire()
    first, second = await waiting(semaphore, 2)

    semaphore.release()
    assert semaphore.is_full  # before the first has noticed
    await first
    assert not second.done()
    semaphore.release()
    await second
    semaphore.release()
    assert not semaphore.is_full


async def test_waiter_that_was_cancelled_gets_no_slot():
    semaphore = FifoSemaphore(1)
    await semaphore.acquire()
    first, second = await waiting(semaphore, 2)

    first.cancel()
    semaphore.release()  # before the first has noticed
    await second
    await asyncio.wait([first])
    assert semaphore.is_full
    semaphore.release()
    assert not semaphore.is_full


async def test_waiter_that_was_cancelled_earlier_is_forgotten():
    semaphore = FifoSemaphore(1)
    await semaphore.acquire()
    for task in await waiting(semaphore, 3):
        task.cancel()
        await asyncio.wait([task])

    semaphore.release()
    assert not semaphore.is_full


async def test_who_is_cancelled_as_a_slot_comes_passes_it_on():
    semaphore = FifoSemaphore(1)
    await semaphore.acquire()
    first, second = await waiting(semaphore, 2)

    semaphore.release()
    first.cancel()
    await second
    assert first.cancelled()
    semaphore.release()
    assert not semaphore.is_full


async def test_a_wait_that_is_closed_keeps_no_slot():
    semaphore = FifoSemaphore(1)
    await semaphore.acquire()
    abandoned = semaphore.acquire()
    abandoned.send(None)
    abandoned.close()

    semaphore.release()
    assert not semaphore.is_full


async def test_a_queue_gives_turns_in_order_and_to_those_who_stand_first():
    queue, came = WaitingQueue(lambda: None), []

    async def wait(name, **how):
        await queue.wait(**how)
        came.append(name)

    for name, first in [("a", False), ("b", False), ("c", True), ("d", True)]:
        task = asyncio.create_task(wait(name, first=first))
        await asyncio.sleep(0)
        assert not task.done()
    assert len(queue) == 4
    for _ in range(4):
        assert queue.wake_next()
        await asyncio.sleep(0)

    assert came == ["d", "c", "a", "b"]
    assert len(queue) == 0


@pytest.mark.parametrize("how", ["cancelled", "closed"])
async def test_a_turn_that_was_given_and_not_taken_is_reported(how):
    unused = []
    queue = WaitingQueue(lambda: unused.append(queue.wake_next()))
    if how == "cancelled":
        leaving = asyncio.create_task(queue.wait())
        leave = leaving.cancel
    else:
        leaving = queue.wait()
        leaving.send(None)
        leave = leaving.close
    await asyncio.sleep(0)
    other = asyncio.create_task(queue.wait())
    await asyncio.sleep(0)

    assert queue.wake_next()
    leave()
    await other

    assert unused == [True]
    assert (len(queue), queue.wake_next()) == (0, False)


async def test_callers_who_have_left_take_no_room():
    semaphore = FifoSemaphore(1)
    await semaphore.acquire()
    tasks = await waiting(semaphore, 5000)

    for task in reversed(tasks):
        task.cancel()
    await asyncio.wait(tasks)

    assert len(semaphore._queue._queue) < 100
    semaphore.release()
    assert not semaphore.is_full


@pytest.mark.parametrize("seed", range(20))
async def test_a_storm_of_cancellations_loses_no_slot(seed):
    dice, semaphore, held = random.Random(seed), FifoSemaphore(3), 0

    async def use():
        nonlocal held
        await semaphore.acquire()
        held += 1
        assert held <= 3
        try:
            await asyncio.sleep(dice.choice([0, 0.1, 1]))
        finally:
            held -= 1
            semaphore.release()

    tasks = []
    for _ in range(200):
        tasks.append(asyncio.create_task(use()))
        if dice.random() < 0.3:
            await asyncio.sleep(dice.choice([0, 0.1]))
        if dice.random() < 0.4:
            dice.choice(tasks).cancel()
    await asyncio.gather(*tasks, return_exceptions=True)

    assert held == 0
    for _ in range(3):
        assert not semaphore.is_full
        await semaphore.acquire()
    assert semaphore.is_full


async def test_a_slot_is_held_for_a_block_and_given_back_whatever_happens_there():
    semaphore = FifoSemaphore(1)

    async def fails():
        async with semaphore:
            assert semaphore.is_full
            raise ValueError("wrong")

    with pytest.raises(ValueError, match="wrong"):
        await fails()

    assert not semaphore.is_full


def test_there_is_no_other_semaphore():
    package = Path(holdfast.__file__).parent
    sources = {path: path.read_text() for path in package.rglob("*.py")}

    others = [str(path) for path, text in sources.items() if "asyncio.Semaphore(" in text]
    assert others == []
