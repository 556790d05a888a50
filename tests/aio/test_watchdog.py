"""The watchdog against `asyncio.timeout`, which it must equal, and what it can besides."""

import asyncio
import contextlib
import contextvars
import gc
import math

import pytest
from hypothesis import strategies as st
from tests.kit.strategies import given

from holdfast._aio.watchdog import TimeLimit, Watchdog
from holdfast.testing import run


def now():
    return asyncio.get_running_loop().time()


async def outcome_of(scope, working):
    """What a scope does to what runs in it, and when; both kinds of scope enter alike."""
    try:
        await scope(working)
    except TimeoutError:
        return "timeout", now()
    except asyncio.CancelledError:
        return "cancelled", now()
    return "done", now()


def of_the_watchdog(watchdog, outer, inner, restart):
    async def scope(working):
        with watchdog.until(outer), watchdog.until(inner) as limit:
            if restart is not None:
                await asyncio.sleep(restart[0])
                limit.restart(restart[1])
            await working

    return scope


def of_asyncio(outer, inner, restart):
    async def scope(working):
        async with asyncio.timeout_at(outer), asyncio.timeout_at(inner) as limit:
            if restart is not None:
                await asyncio.sleep(restart[0])
                limit.reschedule(now() + restart[1])
            await working

    return scope


moments = st.integers(0, 9)
callers = st.fixed_dictionaries(
    {
        "starts": moments,
        "works": moments,
        "outer": moments,
        "inner": moments,
        "restart": st.none() | st.tuples(moments, moments),
        "cancelled": st.none() | moments,
    }
)


async def _outcomes(scope_of, plans):
    async def caller(plan):
        await asyncio.sleep(plan["starts"])
        scope = scope_of(plan["outer"] + 0.5, plan["inner"] + 0.25, plan["restart"])
        return await outcome_of(scope, asyncio.sleep(plan["works"]))

    tasks = [asyncio.ensure_future(caller(plan)) for plan in plans]
    for task, plan in zip(tasks, plans, strict=True):
        if plan["cancelled"] is not None:
            asyncio.get_running_loop().call_later(plan["cancelled"] + 0.125, task.cancel)
    results = await asyncio.gather(*tasks, return_exceptions=True)
    return [
        "cancelled before" if isinstance(result, asyncio.CancelledError) else result
        for result in results
    ], [task.cancelling() for task in tasks]


@pytest.mark.filterwarnings("ignore:coroutine 'sleep' was never awaited:RuntimeWarning")
@given(plans=st.lists(callers, max_size=6), max_examples=200)
def test_it_does_what_a_timer_for_each_limit_does(plans):
    async def watched():
        watchdog = Watchdog()
        found = await _outcomes(lambda *limits: of_the_watchdog(watchdog, *limits), plans)
        assert watchdog.idle
        return found

    assert run(watched()) == run(_outcomes(of_asyncio, plans))


async def test_a_limit_that_has_passed_counts_at_the_first_wait():
    await asyncio.sleep(10)

    async def late():
        with Watchdog().until(3):
            await asyncio.sleep(0)
            await asyncio.sleep(5)

    with pytest.raises(TimeoutError):
        await late()
    assert now() == 10


async def test_who_comes_late_is_not_put_off_by_who_comes_later_still():
    await asyncio.sleep(10)
    watchdog = Watchdog()

    async def late(at):
        with watchdog.until(at):
            await asyncio.sleep(0)

    outcomes = await asyncio.gather(late(5), late(4), late(3), return_exceptions=True)

    assert [type(outcome) for outcome in outcomes] == [TimeoutError] * 3


async def test_what_a_cancelled_task_still_does_has_limits_too():
    watchdog, outcome = Watchdog(), []

    async def tidies():
        try:
            await asyncio.sleep(100)
        finally:
            try:
                with watchdog.within(2):
                    await asyncio.sleep(100)
            except TimeoutError:
                outcome.append(now())

    task = asyncio.ensure_future(tidies())
    await asyncio.sleep(1)
    task.cancel()
    await asyncio.wait([task])

    assert outcome == [3]
    assert task.cancelled()


async def test_who_is_ended_is_ended_once():
    watchdog, tidied = Watchdog(), []

    async def caller(seconds, tidying):
        with watchdog.within(seconds):
            try:
                await asyncio.sleep(100)
            finally:
                await asyncio.sleep(tidying)
                tidied.append(now())

    callers = (caller(1, 10), caller(2, 1), caller(3, 1))
    await asyncio.gather(*callers, return_exceptions=True)

    assert tidied == [3, 4, 11]


async def test_a_limit_that_is_moved_back_to_a_moment_strikes_there_once():
    watchdog = Watchdog()

    async def working():
        try:
            with watchdog.until(10.0) as limit:
                await asyncio.sleep(1)
                limit.restart(4.0)  # to 5
                await asyncio.sleep(3)
                limit.restart(6.0)  # and back to 10
                await asyncio.sleep(60)
        except TimeoutError:
            return now(), asyncio.current_task().cancelling()

    async def other(at):  # which wakes the watchdog in between
        with contextlib.suppress(TimeoutError), watchdog.until(at):
            await asyncio.sleep(60)

    moved, *_ = await asyncio.gather(working(), other(0.5), other(2.0))

    assert moved == (10.0, 0)


async def test_a_limit_that_has_struck_does_not_strike_again_with_all_the_others(monkeypatch):
    watchdog, loop = Watchdog(), asyncio.get_running_loop()

    async def working():
        try:
            with watchdog.until(20.0) as limit:
                try:
                    await asyncio.sleep(1)
                    limit.restart(9.0)  # to 10, while it is known to end at 20
                    await asyncio.sleep(60)
                finally:
                    with monkeypatch.context() as early:  # as timers may be
                        early.setattr(loop, "time", lambda: 9.999)
                        watchdog.end_all()
                    await asyncio.sleep(0)
        except TimeoutError:
            return limit.ended, asyncio.current_task().cancelling()

    async def other(at):
        with contextlib.suppress(TimeoutError), watchdog.until(at):
            await asyncio.sleep(60)

    struck, *_ = await asyncio.gather(working(), other(0.5), other(11.0))

    assert struck == (False, 0)


async def test_infinity_is_never():
    watchdog = Watchdog()

    with watchdog.until(math.inf), watchdog.within(math.inf):
        await asyncio.sleep(1e9)

    assert now() == 1e9


async def test_both_limits_at_one_moment_are_the_outer_ones():
    watchdog = Watchdog()

    async def nested():
        with watchdog.until(4):
            try:
                with watchdog.until(4):
                    await asyncio.sleep(9)
            except TimeoutError:
                pytest.fail("the inner scope took what the outer one must end")

    with pytest.raises(TimeoutError):
        await nested()
    assert asyncio.current_task().cancelling() == 0


@pytest.mark.parametrize("seconds", [1, 2, 3, 7])
async def test_a_limit_can_be_moved_either_way(seconds):
    async def moved():
        with Watchdog().within(4) as limit:
            await asyncio.sleep(1)
            limit.restart(seconds)
            await asyncio.sleep(100)

    with pytest.raises(TimeoutError):
        await moved()
    assert now() == 1 + seconds


async def test_a_limit_cannot_be_put_off_once_it_has_come():
    async def stubborn():
        with Watchdog().within(2) as limit:
            try:
                await asyncio.sleep(9)
            finally:
                limit.restart(100)

    with pytest.raises(TimeoutError):
        await stubborn()
    assert now() == 2


async def test_all_limits_can_be_brought_forward_but_not_those_that_have_come():
    watchdog = Watchdog()
    limits = []

    async def caller(seconds):
        with watchdog.within(seconds) as limit:
            limits.append(limit)
            await asyncio.sleep(100)

    waiting = [asyncio.ensure_future(caller(seconds)) for seconds in (5, 50, math.inf)]
    await asyncio.sleep(5)
    watchdog.end_all()
    outcomes = await asyncio.gather(*waiting, return_exceptions=True)

    assert [type(outcome) for outcome in outcomes] == [TimeoutError] * 3
    assert [limit.ended for limit in limits] == [False, True, True]
    assert now() == 5


async def test_it_is_idle_only_when_all_have_left():
    watchdog = Watchdog()

    async def caller():
        with watchdog.within(3):
            try:
                await asyncio.sleep(9)
            finally:
                await asyncio.sleep(2)

    waiting = asyncio.ensure_future(caller())
    seen = [watchdog.idle]
    for _ in range(3):
        await asyncio.sleep(2)
        seen.append(watchdog.idle)
    await asyncio.gather(waiting, return_exceptions=True)

    assert seen == [True, False, False, True]
    assert isinstance(waiting.exception(), TimeoutError)


def timers():
    loop = asyncio.get_running_loop()
    return [timer.when() for timer in loop._scheduled if not timer.cancelled()]


async def test_many_limits_have_one_timer(monkeypatch):
    loop = asyncio.get_running_loop()
    made, call_at = [], loop.call_at
    monkeypatch.setattr(loop, "call_at", lambda *a, **k: made.append(a[0]) or call_at(*a, **k))
    watchdog = Watchdog()

    with watchdog.within(30):
        for _ in range(1000):
            with watchdog.within(40) as limit:
                limit.restart(50)
                limit.restart(35)
                await asyncio.sleep(0)
        assert timers() == made == [30]


async def test_obsolete_timer_fires_once():
    watchdog = Watchdog()

    with watchdog.within(30):
        with watchdog.within(20):
            assert timers() == [20]
        assert timers() == [20]  # it may wake up for nobody while others wait
        await asyncio.sleep(25)
        assert timers() == [30]
    assert timers() == [30]  # for a scope that is entered at once
    await asyncio.sleep(0)
    assert timers() == []


async def test_scopes_one_after_the_other_have_one_timer(monkeypatch):
    loop = asyncio.get_running_loop()
    made, call_at = [], loop.call_at
    monkeypatch.setattr(loop, "call_at", lambda *a, **k: made.append(a[0]) or call_at(*a, **k))
    watchdog = Watchdog()

    for _ in range(1000):
        with watchdog.within(30):
            await asyncio.sleep(0)
    await asyncio.sleep(0)

    assert (made, timers()) == ([30], [])


def test_a_scope_that_is_left_after_its_loop_was_closed_is_left():
    loop = asyncio.new_event_loop()

    async def scope():
        with Watchdog().within(30):
            await asyncio.sleep(5)

    async def begin():
        coroutine = scope()
        coroutine.send(None)
        return coroutine

    coroutine = loop.run_until_complete(begin())
    loop.close()
    coroutine.close()


async def brief(watchdog):
    """A limit that comes, so that the watchdog puts all that are open in order."""
    with contextlib.suppress(TimeoutError), watchdog.within(0.5):
        await asyncio.sleep(9)


async def test_a_limit_can_be_put_off_after_others_have_come():
    watchdog = Watchdog()

    async def patient():
        with watchdog.within(4) as limit:
            await brief(watchdog)
            limit.restart(6)
            await brief(watchdog)
            limit.restart(8)
            await brief(watchdog)
            await asyncio.sleep(100)

    with pytest.raises(TimeoutError):
        await patient()
    assert now() == 9


def alive(kind):
    gc.collect()
    return sum(isinstance(found, kind) for found in gc.get_objects())


@pytest.mark.parametrize("in_between", [brief, lambda _: asyncio.sleep(0)])
async def test_few_of_many_limits_that_were_left_are_kept(in_between):
    watchdog = Watchdog()

    with watchdog.within(1e9):
        for _ in range(2000):
            with watchdog.within(1e6):
                await in_between(watchdog)
        assert alive(TimeLimit) < 400


@pytest.mark.parametrize("in_between", [brief, lambda _: asyncio.sleep(0)])
async def test_nothing_of_those_who_have_left_is_kept(in_between):
    class Request:
        pass

    request = contextvars.ContextVar("request")
    watchdog = Watchdog()

    async def handle():
        request.set(Request())
        with watchdog.within(30):
            await in_between(watchdog)

    with watchdog.within(40):
        await asyncio.create_task(handle())
        await asyncio.sleep(0)
        assert timers() != []
        assert alive(Request) == 0


async def test_who_cannot_be_ended_does_not_keep_the_others_waiting():
    class Obstinate(asyncio.Future):
        def cancel(self, msg=None):
            raise RuntimeError("cannot be cancelled")

    told = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context))
    watchdog, obstinate = Watchdog(), Obstinate()

    async def waits(what):
        with watchdog.within(5):
            await what

    first = asyncio.ensure_future(waits(obstinate))
    others = [asyncio.ensure_future(waits(asyncio.sleep(100))) for _ in range(9)]
    await asyncio.wait(others)

    assert now() == 5
    assert [str(context["exception"]) for context in told] == ["cannot be cancelled"]
    obstinate.set_result(None)
    await first


def test_it_needs_a_task():
    async def main():
        watchdog = Watchdog()
        asyncio.get_running_loop().call_soon(outside, watchdog)
        await asyncio.sleep(1)

    def outside(watchdog):
        with pytest.raises(RuntimeError, match="only be set inside a task"), watchdog.within(1):
            pass
        refused.append(True)

    refused = []
    run(main())
    assert refused
