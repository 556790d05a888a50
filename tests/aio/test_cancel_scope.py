"""Parts of a task that end at a moment, or when another task says so."""

import ast
import asyncio
import math
from collections import Counter
from pathlib import Path

import pytest

import holdfast
from holdfast import A2ATimeoutError
from holdfast._aio.callbacks import reject_self_cancellation
from holdfast._aio.cancel_scope import (
    CancelScope,
    ScopeCancelled,
    pending_cancellations,
    wait_until,
)


def now():
    return asyncio.get_running_loop().time()


async def cancelled_after(seconds, scope):
    await asyncio.sleep(seconds)
    scope.cancel()


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


async def test_what_is_cancelled_is_cancelled_and_gives_nothing():
    scope, done = CancelScope(), []
    cancelling = asyncio.create_task(cancelled_after(2, scope))

    with pytest.raises(ScopeCancelled):
        await scope.result(work(5, done))

    assert done == [2]
    await cancelling


async def test_what_was_ended_before_is_not_begun():
    scope, done = CancelScope(), []
    scope.cancel()

    with pytest.raises(ScopeCancelled):
        await scope.result(work(1, done))
    await scope.wait(work(1, done))

    assert done == []


async def test_a_result_that_arrives_as_the_wait_is_cancelled_is_returned():
    scope = CancelScope()

    async def end():
        scope.cancel()
        return "42"

    assert (await scope.result(end()), scope.is_cancelled) == ("42", True)


async def test_end_is_no_error_to_callers_that_read_it_elsewhere():
    scope, done = CancelScope(), []
    cancelling = asyncio.create_task(cancelled_after(2, scope))

    await scope.wait(work(5, done))

    assert (done, scope.is_cancelled) == ([2], True)
    await cancelling


@pytest.mark.parametrize("error", [TimeoutError(), A2ATimeoutError("late", phase="write")])
async def test_a_timeout_of_the_work_is_its_own(error):
    with pytest.raises(type(error)) as caught:
        await CancelScope().wait(work(1, [], error))

    assert caught.value is error


async def test_who_is_cancelled_is_not_ended():
    scope, done = CancelScope(), []
    waiting = asyncio.create_task(scope.result(work(5, done)))
    await asyncio.sleep(2)
    waiting.cancel()

    with pytest.raises(asyncio.CancelledError):
        await waiting

    assert (done, scope.is_cancelled) == ([2], False)


# ── As a context, with a moment ──────────────────────────────────────────────────────────────


async def test_a_block_ends_quietly_at_its_moment():
    done = []
    async with CancelScope(3) as scope:
        await work(5, done)

    assert (done, scope.expired, scope.is_cancelled) == ([3], True, False)


async def test_a_block_that_finishes_is_not_expired():
    async with CancelScope.within(3) as scope:
        await work(2, [])
    await asyncio.sleep(5)

    assert (scope.expired, scope.is_cancelled) == (False, False)


async def test_a_scope_that_was_cancelled_ends_the_next_block_where_it_first_waits():
    scope, begun = CancelScope(), []
    scope.cancel()
    scope.cancel()
    async with scope:
        begun.append(1)
        await asyncio.sleep(5)
        begun.append(2)

    assert (begun, now(), scope.expired) == ([1], 0, False)


async def test_a_cancel_in_the_moment_of_the_limit_is_an_end_as_well():
    async with CancelScope(3) as scope:
        asyncio.get_running_loop().call_at(3, scope.cancel)
        await asyncio.sleep(5)

    assert (now(), scope.is_cancelled) == (3, True)


async def test_a_scope_can_be_entered_again():
    scope = CancelScope()
    for at in (2, 5):
        scope.at = at
        async with scope:
            await asyncio.sleep(10)
        assert (scope.expired, now()) == (True, at)
    scope.at = 20
    async with scope:
        await asyncio.sleep(1)
    assert not scope.expired


@pytest.mark.parametrize("inner_at", [2, 3])
async def test_the_scope_whose_moment_came_is_the_one_that_expired(inner_at):
    async with CancelScope(3) as outer:
        async with CancelScope(inner_at) as inner:
            await asyncio.sleep(10)
        await asyncio.sleep(10)

    assert (outer.expired, inner.expired, now()) == (True, inner_at == 2, 3)


async def test_a_cancellation_in_the_moment_of_the_limit_is_not_swallowed():
    async def block():
        async with CancelScope(3):
            await asyncio.sleep(10)

    task = asyncio.create_task(block())
    asyncio.get_running_loop().call_at(3, task.cancel)
    await asyncio.wait([task])

    assert task.cancelled()


@pytest.mark.parametrize("error", [TimeoutError("inner"), A2ATimeoutError("late", phase="write")])
async def test_a_timeout_from_inside_passes_a_scope_and_a_limit_unchanged(error):
    with pytest.raises(type(error)) as caught:
        async with CancelScope(3):
            await work(1, [], error)
    assert caught.value is error

    with pytest.raises(type(error)) as caught:
        await wait_until(3, work(1, [], error), lambda: ValueError("too late"))
    assert caught.value is error


async def test_a_wait_ends_with_the_error_of_its_caller():
    done = []
    with pytest.raises(ValueError, match="too late"):
        await wait_until(3, work(5, done), lambda: ValueError("too late"))
    assert done == [3]
    assert await wait_until(math.inf, work(5, done), lambda: ValueError("too late")) == "42"


# ── Cancellations from within ────────────────────────────────────────────────────────────────


async def test_a_cancellation_from_within_is_a_failure_and_one_from_outside_passes():
    async def cancels_itself():
        raise asyncio.CancelledError

    with pytest.raises(RuntimeError, match="it cancelled itself"):
        await reject_self_cancellation(cancels_itself())

    task = asyncio.create_task(reject_self_cancellation(work(5, [])))
    await asyncio.sleep(1)
    task.cancel()
    await asyncio.wait([task])
    assert task.cancelled()


async def test_what_a_cancelled_task_still_does_may_cancel_itself_too():
    outcomes = []

    async def cancels_itself():
        raise asyncio.CancelledError

    async def cleaning():
        try:
            await asyncio.sleep(5)
        finally:
            with pytest.raises(RuntimeError, match="it cancelled itself"):
                await reject_self_cancellation(cancels_itself())
            outcomes.append(pending_cancellations())

    task = asyncio.create_task(cleaning())
    await asyncio.sleep(1)
    task.cancel()
    await asyncio.wait([task])

    assert (task.cancelled(), outcomes, pending_cancellations()) == (True, [1], 0)


# ── The only idioms ──────────────────────────────────────────────────────────────────────────

PLAIN_TIMEOUTS = {
    "_aio/cancel_scope.py": 1,
    # The caller takes every TimeoutError, and every other OSError, for the same failure.
    "_auth/oauth/redirects.py": 1,
    "_doctor/tls.py": 1,
    "_server/errors.py": 1,
    "_server/identity.py": 1,
    "_server/push.py": 1,
    "_server/running.py": 1,
    "_server/safe_handler.py": 1,
    "_testing/relay.py": 1,
    # Waits for processes, which raise none.
    "_cli/conformance/run.py": 2,
    # Wait for events, which raise none.
    "_integrations/temporal/activities.py": 1,
    "_integrations/temporal/attempt.py": 2,
}
"""Where `asyncio.timeout` stands without a scope: a TimeoutError from inside changes nothing."""


def test_time_limits_and_cancellations_are_distinguished_in_one_place():
    package, plain, by_hand = Path(holdfast.__file__).parent, Counter(), set()
    for path in package.rglob("*.py"):
        name, source = path.relative_to(package).as_posix(), path.read_text()
        if not any(word in source for word in ("asyncio.timeout", "wait_for", "cancel")):
            continue  # quicker than to parse it
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.Attribute) and ast.unparse(node) in {
                "asyncio.timeout",
                "asyncio.timeout_at",
                "asyncio.wait_for",
            }:
                plain[name] += 1
            if isinstance(node, ast.Attribute) and node.attr in {"cancelling", "uncancel"}:
                by_hand.add(name)

    assert plain == PLAIN_TIMEOUTS
    assert by_hand == {"_aio/cancel_scope.py", "_aio/watchdog.py"}
