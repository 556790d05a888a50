"""The retry budget: spent by failures, earned by successes and by time, never by rounding."""

import math

import pytest
from hypothesis import strategies as st
from tests.kit.strategies import given

from holdfast._policy.budget import RetryBudget
from holdfast._policy.retry import Retry, decide
from holdfast.errors import A2AHTTPError
from holdfast.policies import BudgetPolicy, RetryPolicy

AT_ONCE = 100.0  # a moment; nothing passes while it is used


def budget(**policy):
    return RetryBudget(BudgetPolicy(**policy), now=AT_ONCE)


@pytest.mark.rule("D08")
def test_retries_are_allowed_while_more_than_half_is_left():
    full = budget()

    answers = [full.failed(now=AT_ONCE) for _ in range(7)]

    assert answers == [True, True, True, True, False, False, False]
    assert full.tokens == 3


def test_a_failure_is_charged_before_the_answer_is_given():
    small = budget(tokens=2)

    assert small.failed(now=AT_ONCE) is False  # one of two left is not more than half
    assert small.tokens == 1


def test_a_failure_is_charged_even_where_the_answer_is_no():
    spent = budget()

    for _ in range(50):
        spent.failed(now=AT_ONCE)

    assert spent.tokens == 0  # and no debt
    for _ in range(61):
        spent.succeeded()
    assert spent.tokens == 6.1
    assert spent.failed(now=AT_ONCE) is True


def test_ten_successes_pay_for_one_failure():
    used = budget()
    for _ in range(5):
        used.failed(now=AT_ONCE)

    for _ in range(10):
        used.succeeded()

    assert used.tokens == 6
    assert used.failed(now=AT_ONCE) is False
    for _ in range(11):
        used.succeeded()
    assert used.failed(now=AT_ONCE) is True


def test_the_budget_never_grows_beyond_full():
    full = budget()

    for _ in range(1000):
        full.succeeded()
    full.failed(now=AT_ONCE + 1_000_000)

    assert full.tokens == 9


def test_a_quiet_client_recovers_with_time_alone():
    spent = budget()
    while spent.failed(now=AT_ONCE):
        pass
    assert spent.tokens == 5

    assert spent.failed(now=AT_ONCE + 10) is False  # 5 + 1 - 1
    assert spent.failed(now=AT_ONCE + 30) is True  # 5 + 2 - 1
    assert spent.tokens == 6


def test_a_thousand_small_gifts_are_exactly_as_many_tokens():
    # 0.1 has no exact binary form; thousandths have.
    spent = budget(tokens=1000)
    for _ in range(1000):
        spent.failed(now=AT_ONCE)

    for _ in range(1000):
        spent.succeeded()

    assert spent.tokens == 100


@given(steps=st.lists(st.floats(min_value=0, max_value=5), min_size=1, max_size=200))
def test_time_that_passes_in_small_pieces_gives_as_much_as_at_once(steps):
    pieces, whole = budget(tokens=1000), budget(tokens=1000)
    for _ in range(500):
        pieces.failed(now=AT_ONCE)
        whole.failed(now=AT_ONCE)

    now = AT_ONCE
    for step in steps:
        now += step
        pieces.failed(now=now)
    for _ in steps:
        whole.failed(now=now)

    assert pieces.tokens == pytest.approx(whole.tokens, abs=0.002)


@given(
    happenings=st.lists(st.booleans() | st.floats(min_value=0, max_value=1000), max_size=200),
    tokens=st.integers(min_value=1, max_value=50),
)
def test_the_budget_stays_within_its_bounds_and_counts_in_thousandths(happenings, tokens):
    state = budget(tokens=tokens)
    now = AT_ONCE
    for happening in happenings:
        before = state.tokens
        if happening is True:
            state.succeeded()
            assert state.tokens >= before
        else:
            now += happening
            allowed = state.failed(now=now)
            assert allowed == (state.tokens > tokens / 2)
        assert 0 <= state.tokens <= tokens
        assert state.tokens == round(state.tokens, 3)


def test_a_clock_that_stands_still_or_goes_back_gives_nothing():
    used = budget()
    used.failed(now=AT_ONCE)

    used.failed(now=AT_ONCE)
    used.failed(now=AT_ONCE - 1000)

    assert used.tokens == 7


@pytest.mark.rule("D08")
@pytest.mark.parametrize("retries", [1, 3, 10])
def test_a_total_outage_is_hardly_made_worse(retries):
    # Given an agent that answers 503 to everything, and a thousand calls within a second ...
    calls, attempts, now = 1000, 0, AT_ONCE
    shared = budget()
    policy = RetryPolicy(max_retries=retries)
    error = A2AHTTPError("busy", transient=True, executed=False)
    # ... when each is retried as policy and budget allow ...
    for _ in range(calls):
        now += 0.001
        number = 0
        again = True
        while again:
            number += 1
            attempts += 1
            allowed = shared.failed(now=now)
            decision = decide(
                policy, error, safety="read", attempt=number, time_left=math.inf, draw=0.5
            )
            again = allowed and isinstance(decision, Retry)
    # ... then there are hardly more attempts than calls.
    assert calls < attempts <= calls * 1.05


@pytest.mark.parametrize(
    "policy",
    [
        {"tokens": 0},
        {"tokens": -1},
        {"success_gives": -0.1},
        {"success_gives": float("nan")},
        {"success_gives": math.inf},
        {"seconds_per_token": 0},
        {"seconds_per_token": float("nan")},
    ],
)
def test_a_budget_that_cannot_be_is_refused(policy):
    with pytest.raises(ValueError, match=next(iter(policy))):
        BudgetPolicy(**policy)
