"""Slots: in order, and none is lost with those who gave up waiting."""

import asyncio

from holdfast._aio.semaphore import Slots


async def waiting(slots, number):
    """Some who wait, in order."""
    tasks = [asyncio.create_task(slots.take()) for _ in range(number)]
    await asyncio.sleep(0)
    return tasks


async def test_as_many_are_taken_at_once_as_there_are():
    slots = Slots(2)
    await slots.take()
    assert not slots.are_taken
    await slots.take()
    assert slots.are_taken


async def test_slots_are_given_to_who_waits_in_order():
    slots = Slots(1)
    await slots.take()
    first, second = await waiting(slots, 2)

    slots.give_back()
    assert slots.are_taken  # before the first has noticed
    await first
    assert not second.done()
    slots.give_back()
    await second
    slots.give_back()
    assert not slots.are_taken


async def test_who_gave_up_waiting_gets_no_slot():
    slots = Slots(1)
    await slots.take()
    first, second = await waiting(slots, 2)

    first.cancel()
    slots.give_back()  # before the first has noticed
    await second
    await asyncio.wait([first])
    assert slots.are_taken
    slots.give_back()
    assert not slots.are_taken


async def test_who_gave_up_waiting_some_time_ago_is_forgotten():
    slots = Slots(1)
    await slots.take()
    for task in await waiting(slots, 3):
        task.cancel()
        await asyncio.wait([task])

    slots.give_back()
    assert not slots.are_taken


async def test_who_is_cancelled_as_a_slot_comes_passes_it_on():
    slots = Slots(1)
    await slots.take()
    first, second = await waiting(slots, 2)

    slots.give_back()
    first.cancel()
    await second
    assert first.cancelled()
    slots.give_back()
    assert not slots.are_taken


async def test_a_wait_that_is_closed_keeps_no_slot():
    slots = Slots(1)
    await slots.take()
    abandoned = slots.take()
    abandoned.send(None)
    abandoned.close()

    slots.give_back()
    assert not slots.are_taken
