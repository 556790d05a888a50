"""Waits that somebody else can end."""

import asyncio

import pytest

from holdfast import A2ATimeoutError
from holdfast._aio.waiting import CancelScope, ScopeCancelled


async def ended_after(seconds, endable):
    await asyncio.sleep(seconds)
    endable.end()


async def work(seconds, done, error=None):
    try:
        await asyncio.sleep(seconds)
    finally:
        done.append(asyncio.get_running_loop().time())
    if error is not None:
        raise error
    return "42"


async def test_what_is_not_ended_gives_what_it_gives():
    assert await CancelScope().result(work(1, [])) == "42"


async def test_what_is_ended_is_cancelled_and_gives_nothing():
    endable, done = CancelScope(), []
    ending = asyncio.create_task(ended_after(2, endable))

    with pytest.raises(ScopeCancelled):
        await endable.result(work(5, done))

    assert done == [2]
    await ending


async def test_what_was_ended_before_is_not_begun():
    endable, done = CancelScope(), []
    endable.end()

    with pytest.raises(ScopeCancelled):
        await endable.result(work(1, done))
    await endable.wait(work(1, done))

    assert done == []


async def test_a_result_that_arrives_as_the_wait_is_ended_is_returned():
    endable = CancelScope()

    async def end():
        endable.end()
        return "42"

    assert (await endable.result(end()), endable.is_ended) == ("42", True)


async def test_an_end_is_no_error_to_who_looks_for_it_elsewhere():
    endable, done = CancelScope(), []
    ending = asyncio.create_task(ended_after(2, endable))

    await endable.wait(work(5, done))

    assert (done, endable.is_ended) == ([2], True)
    await ending


@pytest.mark.parametrize("error", [TimeoutError(), A2ATimeoutError("late", phase="write")])
async def test_a_timeout_of_the_work_is_its_own(error):
    with pytest.raises(type(error)) as caught:
        await CancelScope().wait(work(1, [], error))

    assert caught.value is error


async def test_who_is_cancelled_is_not_ended():
    endable, done = CancelScope(), []
    waiting = asyncio.create_task(endable.result(work(5, done)))
    await asyncio.sleep(2)
    waiting.cancel()

    with pytest.raises(asyncio.CancelledError):
        await waiting

    assert (done, endable.is_ended) == ([2], False)
