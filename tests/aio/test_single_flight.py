"""One piece of work for all who need its result: who waits, who begins anew, and what is left."""

import asyncio
import random

import pytest

from holdfast import A2AConnectionError, A2AError
from holdfast._aio.single_flight import SingleFlight

ALL = ["waited", "led", "finished"]


class Works:
    """Works that take a while, in a flight of their own."""

    def __init__(self, seconds=5, error=None, **options):
        self.seconds, self.error = seconds, error
        self.begun, self.cancelled, self.at_once, self.most_at_once = 0, 0, 0, 0
        self.flight = SingleFlight(
            lambda: A2AConnectionError("ended", failure="closed"), **options
        )

    async def work(self):
        self.begun += 1
        number = self.begun
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        try:
            await asyncio.sleep(self.seconds)
        except asyncio.CancelledError:
            self.cancelled += 1
            await asyncio.sleep(0)  # an end takes a moment
            raise
        finally:
            self.at_once -= 1
        if self.error is not None:
            raise self.error
        return number

    def call(self):
        return asyncio.create_task(self.flight.run(self.work))

    async def calls(self, count):
        tasks = []
        for _ in range(count):
            tasks.append(self.call())
            await asyncio.sleep(0)
        return tasks


def nothing_is_left():
    return asyncio.all_tasks() == {asyncio.current_task()}


@pytest.mark.parametrize("lasts", ALL)
async def test_work_that_runs_is_shared_and_the_next_caller_begins_anew(lasts):
    works = Works(lasts=lasts)

    assert await asyncio.gather(*(await works.calls(20))) == [1] * 20
    assert not works.flight.is_running()
    assert await works.call() == 2


@pytest.mark.parametrize(
    ("lasts", "result", "at"), [("waited", 1, 5), ("led", 2, 8), ("finished", 1, 5)]
)
async def test_the_caller_who_began_leaves_and_the_others_have_a_result(lasts, result, at):
    works = Works(lasts=lasts)
    first, *others = await works.calls(4)
    await asyncio.sleep(3)
    first.cancel()

    assert await asyncio.gather(*others) == [result] * 3
    assert first.cancelled()
    assert asyncio.get_running_loop().time() == at


@pytest.mark.parametrize(("lasts", "cancelled"), [("waited", 1), ("led", 1), ("finished", 0)])
async def test_last_caller_to_leave_cancels_the_shared_work(lasts, cancelled):
    works = Works(lasts=lasts)
    tasks = await works.calls(3)
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)

    assert works.cancelled == cancelled
    assert nothing_is_left() == bool(cancelled)
    await asyncio.sleep(6)
    assert nothing_is_left()
    assert not works.flight.is_running()


async def test_the_caller_who_came_last_begins_anew():
    works = Works(lasts="led")
    begun = []

    async def led(name):
        begun.append(name)
        return await works.work()

    tasks = [asyncio.create_task(works.flight.run(lambda n=n: led(n))) for n in "abc"]
    await asyncio.sleep(1)
    tasks[0].cancel()

    assert await asyncio.gather(*tasks[1:]) == [2, 2]
    assert begun == ["a", "c"]


async def test_an_error_of_the_leaders_own_is_its_alone():
    late = A2AError("late")
    works = Works(lasts="led", is_leaders_own=lambda error: str(error) == "late", error=late)
    first, second, third = await works.calls(3)
    await asyncio.sleep(4)

    results = []
    for task in (first, third, second):
        results += await asyncio.gather(task, return_exceptions=True)

    assert (works.begun, results) == (3, [late] * 3)  # each led once, the last one first


@pytest.mark.parametrize("lasts", ALL)
async def test_of_an_error_each_caller_has_a_copy(lasts):
    error = A2AError("refused")
    error.__cause__ = ValueError("why")
    works = Works(lasts=lasts, error=error)

    errors = await asyncio.gather(*(await works.calls(10)), return_exceptions=True)

    assert {str(each) for each in errors} == {"refused"}
    assert {each.__cause__ for each in errors} == {error.__cause__}
    assert len({id(each) for each in errors}) == 10


@pytest.mark.parametrize("lasts", ALL)
async def test_shielded_work_finishes_whichever_caller_leaves(lasts):
    works = Works(lasts=lasts)
    tasks = await works.calls(2)
    works.flight.shield()
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)

    assert await works.call() == 1
    assert works.cancelled == 0


@pytest.mark.parametrize("lasts", ALL)
async def test_closing_ends_the_work_and_is_an_error_of_those_who_wait(lasts):
    works = Works(lasts=lasts)
    tasks = await works.calls(3)
    await works.flight.close()

    errors = await asyncio.gather(*tasks, return_exceptions=True)

    assert [str(error) for error in errors] == ["ended"] * 3
    assert nothing_is_left()
    assert await works.call() == 2


@pytest.mark.parametrize("lasts", ALL)
async def test_work_that_cancels_itself_cancels_no_caller(lasts):
    works = Works(lasts=lasts, error=asyncio.CancelledError())
    tasks = await works.calls(3)

    errors = await asyncio.gather(*tasks, return_exceptions=True)

    assert [str(error) for error in errors] == ["ended"] * 3
    assert works.begun == 1


@pytest.mark.parametrize("lasts", ["waited", "led"])
async def test_a_caller_who_comes_while_work_is_being_cancelled_begins_anew_after_it(lasts):
    works = Works(lasts=lasts)
    (first,) = await works.calls(1)
    await asyncio.sleep(1)
    first.cancel()
    await asyncio.sleep(0)

    assert await works.call() == 2
    assert (works.cancelled, works.most_at_once) == (1, 1)


@pytest.mark.parametrize("lasts", ALL)
async def test_closed_call_delays_no_other_call(lasts):
    works = Works(lasts=lasts)
    abandoned = works.flight.run(works.work)
    abandoned.send(None)
    other = works.call()
    await asyncio.sleep(1)
    abandoned.close()

    assert await other in {1, 2}
    assert nothing_is_left()


async def test_each_key_has_work_of_its_own():
    works = Works()

    results = await asyncio.gather(*(works.flight.run(works.work, key) for key in "aabb"))

    assert results == [1, 1, 2, 2]


@pytest.mark.parametrize("lasts", ALL)
async def test_a_storm_of_cancellations_leaves_nothing(lasts):
    dice = random.Random(7)
    works = Works(seconds=1, lasts=lasts)
    for _ in range(200):
        tasks = await works.calls(dice.randrange(1, 5))
        await asyncio.sleep(dice.choice([0, 0.5, 1, 1.2]))
        left = [task for task in tasks if dice.random() < 0.6 and task.cancel()]
        results = await asyncio.gather(*tasks, return_exceptions=True)
        kept = [result for task, result in zip(tasks, results, strict=True) if task not in left]
        assert all(isinstance(result, int) for result in kept)

    await asyncio.sleep(2)
    assert nothing_is_left()
    assert works.most_at_once == 1
    assert not works.flight.is_running()
