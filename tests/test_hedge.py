"""Hedging: after a wait that most reads do not need, and paid for by reads."""

import pytest
from hypothesis import strategies as st

from holdfast.policy.hedge import HedgeBudget, HedgePolicy, Latencies, hedge_delay

from .strategies import given


@given(durations=st.lists(st.floats(0, 1000), min_size=1), size=st.integers(1, 30))
def test_a_quantile_is_that_of_the_last_ones(durations, size):
    latencies = Latencies(size)
    for seconds in durations:
        latencies.add(seconds)

    last = sorted(durations[-size:])

    assert len(latencies) == len(last)
    assert latencies.quantile(1.0) == last[-1]
    for share in (0.01, 0.5, 0.95):
        found = latencies.quantile(share)
        assert sum(seconds <= found for seconds in last) >= share * len(last)
        assert sum(seconds < found for seconds in last) < share * len(last)


def test_of_nothing_there_is_no_quantile():
    assert Latencies().quantile(0.5) == 0.0


def test_nothing_is_hedged_before_enough_was_seen():
    latencies, policy = Latencies(), HedgePolicy()
    for _ in range(19):
        latencies.add(0.1)
    assert hedge_delay(policy, latencies) is None

    latencies.add(5.0)

    assert hedge_delay(policy, latencies) == 0.1


def test_a_hedge_is_never_made_at_once():
    latencies = Latencies()
    for _ in range(100):
        latencies.add(0.0001)

    assert hedge_delay(HedgePolicy(), latencies) == 0.01


@given(reads=st.lists(st.booleans(), max_size=400), extra=st.sampled_from([0.01, 0.05, 0.3]))
def test_hedges_never_exceed_their_share_of_the_reads(reads, extra):
    budget, hedges = HedgeBudget(HedgePolicy(most_extra=extra)), 0

    for done, is_slow in enumerate(reads, 1):
        budget.read()
        if is_slow:
            hedges += budget.take()
        assert hedges <= extra * done


def test_what_is_saved_is_bounded():
    budget = HedgeBudget(HedgePolicy())
    for _ in range(100_000):
        budget.read()

    assert sum(budget.take() for _ in range(100)) == 10


@pytest.mark.parametrize(
    "policy",
    [
        {"quantile": 0.0},
        {"quantile": 1.0},
        {"most_extra": 0},
        {"most_extra": 1.5},
        {"least_samples": 0},
        {"least_delay": -1.0},
        {"least_delay": float("nan")},
    ],
)
def test_numbers_out_of_bounds_are_refused(policy):
    with pytest.raises(ValueError, match=next(iter(policy))):
        HedgePolicy(**policy)
