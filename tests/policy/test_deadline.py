"""Deadlines, and how often to look."""

from itertools import islice, pairwise

import pytest
from hypothesis import strategies as st
from tests.kit.strategies import given

from holdfast._policy.deadline import poll_delays
from holdfast.policies import Deadline


@pytest.mark.parametrize(
    ("now", "left"), [(90.0, 10.0), (99.75, 0.25), (100.0, 0.0), (101.0, 0.0)]
)
def test_what_is_left_is_never_less_than_nothing(now, left):
    assert Deadline(name="call", timeout=10.0, at=100.0).remaining(now) == left


def test_a_deadline_says_whose_it_is_and_what_was_given():
    deadline = Deadline(name="wait", timeout=900.0, at=1000.0)

    assert (deadline.name, deadline.timeout) == ("wait", 900.0)


def test_looks_are_close_at_first_and_then_as_far_apart_as_agreed():
    delays = list(islice(poll_delays(2.0), 8))

    assert delays == [0.125, 0.25, 0.5, 1.0, 2.0, 2.0, 2.0, 2.0]


@given(interval=st.floats(min_value=0.001, max_value=1e6))
def test_no_look_comes_later_than_agreed_or_at_once(interval):
    delays = list(islice(poll_delays(interval), 10))

    assert all(0 < delay <= interval for delay in delays)
    assert all(earlier <= later for earlier, later in pairwise(delays))
    assert delays[-1] == interval
