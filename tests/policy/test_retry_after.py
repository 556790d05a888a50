"""The pace at which calls start where an agent has said that they come too fast."""

import math
from itertools import pairwise

import pytest
from hypothesis import strategies as st
from tests.kit.strategies import given

from holdfast._policy.retry_after import SlowStart

NO_DRAW = 0.0


def told(pace, seconds, *, now, started=None, draw=NO_DRAW):
    started = now if started is None else started
    pace.on_retry_after(seconds, started=started, now=now, draw=draw)


def start(pace, now):
    """Starts the next call as soon as it may, and says when that was."""
    when = pace.next_start(now=now)
    pace.started(now=when)
    return when


def starts(pace, now, count):
    moments = []
    for _ in range(count):
        now = start(pace, now)
        moments.append(now)
    return moments


def test_call_is_not_delayed_before_the_first_hint():
    pace = SlowStart()

    assert starts(pace, 100.0, 1000) == [100.0] * 1000
    assert pace.is_free


def test_a_hint_holds_back_everybody():
    pace = SlowStart()

    told(pace, 10.0, now=100.0)

    assert pace.next_start(now=100.0) == 110.0
    assert pace.next_start(now=120.0) == 120.0


def test_afterwards_they_come_one_by_one_and_ever_faster():
    pace = SlowStart()
    told(pace, 10.0, now=100.0)

    moments = starts(pace, 100.0, 40)

    assert moments[0] == 110.0
    gaps = [later - earlier for earlier, later in pairwise(moments)]
    assert gaps[0] == 1.0
    assert all(after <= before + 1e-9 for before, after in pairwise(gaps))
    assert moments[-1] < 117


def test_a_wait_of_moments_is_followed_by_moments():
    pace = SlowStart()
    told(pace, 0.05, now=0.0)

    first, second, third = starts(pace, 0.0, 3)

    assert (first, second) == (0.05, 0.1)
    assert 0.14 < third < 0.15


def test_another_complaint_halves_the_rate():
    pace = SlowStart()
    told(pace, 1.0, now=0.0)
    last = starts(pace, 0.0, 60)[-1]
    before = pace.next_start(now=last) - last

    told(pace, 1.0, now=last)

    first, second = starts(pace, last, 2)
    assert first == last + 1.0
    assert second - first == pytest.approx(2 * before)


def test_who_comes_when_asked_is_held_back_no_longer_than_that():
    pace, now = SlowStart(), 0.0

    for _ in range(20):
        told(pace, 7.0, now=now)
        later = start(pace, now)
        assert later == now + 7.0
        now = later


def test_call_in_flight_before_the_rate_limit_is_not_a_new_one():
    pace = SlowStart()
    told(pace, 1.0, now=0.0)
    last = starts(pace, 0.0, 60)[-1]
    for _ in range(25):
        told(pace, 1.0, now=last, started=last - 0.1)
    first, second = starts(pace, last, 2)

    told(pace, 1.0, now=second, started=last - 0.1)  # one that took long

    after = starts(pace, second, 2)
    once = second - first
    assert after[0] == second + 1.0
    assert after[1] - after[0] == pytest.approx(once, rel=0.2)


def test_a_wait_is_drawn_a_little_longer_once_for_all():
    pace = SlowStart()

    told(pace, 10.0, now=0.0, draw=0.5)
    assert pace.next_start(now=0.0) == 10.5

    told(pace, 10.0, now=0.1, draw=0.9)
    assert pace.next_start(now=0.0) == 10.5


def test_a_shorter_hint_shortens_nothing():
    pace = SlowStart()
    told(pace, 10.0, now=0.0)

    told(pace, 1.0, now=1.0)
    assert pace.next_start(now=1.0) == 10.0

    told(pace, 60.0, now=2.0)
    assert pace.next_start(now=2.0) == 62.0


def test_after_a_quiet_minute_all_is_as_before():
    pace = SlowStart()
    told(pace, 1.0, now=0.0)
    starts(pace, 0.0, 3)

    start(pace, 62.0)

    assert pace.is_free
    assert starts(pace, 62.0, 100) == [62.0] * 100


@pytest.mark.parametrize(("hint", "gap"), [(0.001, 1 / 256), (0.1, 0.1), (7.0, 7.0), (60.0, 60.0)])
def test_a_call_for_each_wait_that_was_asked_for_is_always_allowed(hint, gap):
    pace, now = SlowStart(), 0.0

    for _ in range(50):
        told(pace, hint, now=now)
        now = start(pace, now)

    assert start(pace, now) - now <= gap


@given(
    happenings=st.lists(
        st.one_of(
            st.tuples(st.just("pass"), st.floats(0, 30)),
            st.tuples(st.just("told"), st.floats(0, 100)),
            st.tuples(st.just("start"), st.just(0.0)),
        ),
        max_size=80,
    ),
    draw=st.floats(0, 0.99),
)
def test_no_call_starts_within_a_wait(happenings, draw):
    pace, now, until = SlowStart(), 0.0, -math.inf

    for what, seconds in happenings:
        if what == "pass":
            now += seconds
        elif what == "told":
            told(pace, seconds, now=now, draw=draw)
            until = max(until, now + seconds)
        else:
            now = start(pace, now)
            assert now >= until
        held = pace.next_start(now=now)
        assert held >= until
        assert held <= max(now, until) + 61.0
