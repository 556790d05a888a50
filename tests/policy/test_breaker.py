"""The circuit breaker: opens for an outage, lets one call try, and forgets what is out of date."""

import math

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from holdfast._policy.breaker import Breaker, classify
from holdfast.errors import (
    A2AConnectionError,
    A2AHTTPError,
    A2ATimeoutError,
    AgentError,
    AuthenticationError,
    CircuitOpenError,
    CredentialOriginError,
    InternalError,
    QueueFullError,
    RateLimitedError,
    TaskNotFoundError,
)
from holdfast.policies import BreakerFailure, BreakerPolicy

MIDDLE = 0.5  # a draw that leaves the time as it is


def breaker(**policy):
    return Breaker(BreakerPolicy(**policy))


def call(one, *, went_well, now, duration=0.0):
    """Makes a call, and says whether it was let through."""
    permit = one.acquire(now=now)
    if permit is None:
        return False
    settle(one, permit, "success" if went_well else "failure", now=now, duration=duration)
    return True


def settle(one, permit, verdict, *, now, duration=0.0, draw=MIDDLE, cause="refused"):
    one.settle(permit, verdict, duration=duration, now=now, draw=lambda: draw, cause=cause)


def opened(now=100.0, **policy):
    one = breaker(**policy)
    for _ in range(5):
        call(one, went_well=False, now=now)
    assert one.state(now=now) == "open"
    return one


def test_failures_in_a_row_open_it():
    one = breaker()

    let_through = [call(one, went_well=False, now=100.0) for _ in range(7)]

    assert let_through == [True] * 5 + [False] * 2
    assert one.failures == 5
    assert one.retry_after(now=101.0) == 4.0


def test_a_success_between_them_begins_the_row_anew():
    one = breaker(failure_rate=None)

    for _ in range(20):
        for _ in range(4):
            assert call(one, went_well=False, now=100.0)
        assert call(one, went_well=True, now=100.0)


def test_half_of_the_last_calls_open_it_too():
    one = breaker()

    outcomes = [True, False] * 5
    for went_well in outcomes:
        assert call(one, went_well=went_well, now=100.0)

    assert one.state(now=100.0) == "open"


def test_a_share_of_few_calls_says_nothing():
    one = breaker(failures=None)

    for _ in range(9):
        assert call(one, went_well=False, now=100.0)

    assert one.state(now=100.0) == "closed"


def test_what_is_older_than_the_window_does_not_count():
    one = breaker(failures=None)
    for _ in range(9):
        call(one, went_well=False, now=100.0)

    call(one, went_well=False, now=110.0)

    assert one.state(now=110.0) == "closed"


@pytest.mark.rule("D09")
def test_500_callers_at_half_open_are_one():
    one = opened()

    permits = [one.acquire(now=105.0) for _ in range(500)]

    assert sum(permit is not None for permit in permits) == 1
    assert one.state(now=105.0) == "half_open"


def test_a_probe_that_is_answered_closes_it():
    one = opened()

    assert call(one, went_well=True, now=105.0)

    assert one.state(now=105.0) == "closed"
    assert one.failures == 0


@pytest.mark.parametrize(
    ("factor", "waits"), [(2, [5, 10, 20, 40, 50, 50]), (1.2, [5, 6, 7.2, 8.64, 10.368])]
)
def test_each_probe_that_fails_makes_the_time_longer_up_to_a_bound(factor, waits):
    one, now, waited = opened(backoff_factor=factor), 100.0, []

    for _ in waits:
        wait = one.retry_after(now=now)
        waited.append(wait)
        now += wait
        assert call(one, went_well=False, now=now)

    assert waited == pytest.approx(waits)


def test_an_outage_of_weeks_overflows_nothing():
    one, now = opened(), 100.0

    for _ in range(5000):
        now += one.retry_after(now=now)
        assert call(one, went_well=False, now=now)

    assert one.retry_after(now=now) == pytest.approx(50)


def test_the_time_is_drawn_around_its_middle():
    waits = []
    for draw in (0.0, 0.5, 0.999999):
        one = breaker(failures=1)
        settle(one, one.acquire(now=0.0), "failure", now=0.0, draw=draw)
        waits.append(one.retry_after(now=0.0))

    assert waits == pytest.approx([4.0, 5.0, 6.0], abs=1e-4)


@pytest.mark.rule("D07")
def test_abandoned_probe_frees_its_slot_for_the_next():
    one = opened()
    probe = one.acquire(now=105.0)
    assert one.acquire(now=105.0) is None

    settle(one, probe, None, now=105.0)

    assert one.acquire(now=105.0) is not None
    assert one.acquire(now=105.0) is None


def test_a_probe_that_takes_too_long_makes_room_for_the_next():
    one = opened()
    slow = one.acquire(now=105.0)
    assert one.retry_after(now=106.0) == 1.0  # of a probe in progress, which may end any time
    assert one.retry_after(now=109.5) == 0.5

    assert one.acquire(now=109.9) is None
    second = one.acquire(now=110.0)

    assert second is not None
    settle(one, slow, None, now=110.0)
    assert one.acquire(now=110.0) is None  # the second one is on its way
    settle(one, slow, "success", now=110.0, duration=5.0)
    assert one.state(now=110.0) == "closed"


@pytest.mark.rule("D09")
def test_what_was_let_through_before_says_nothing_afterwards():
    one = breaker()
    old = [one.acquire(now=99.0) for _ in range(20)]
    for _ in range(5):
        call(one, went_well=False, now=100.0)
    until = one.retry_after(now=100.0)

    settle(one, old[0], "failure", now=101.0)
    settle(one, old[1], "success", now=101.0, duration=0.0)

    assert one.state(now=101.0) == "open"
    assert one.retry_after(now=100.0) == until
    probe = one.acquire(now=105.0)
    settle(one, old[2], "failure", now=105.0)
    settle(one, probe, "success", now=105.0, duration=0.0)
    for late in old[3:]:
        settle(one, late, "failure", now=106.0)
    assert one.state(now=106.0) == "closed"


def test_an_agent_that_answers_errors_is_neither_well_nor_away():
    one = breaker(failure_rate=None)
    for _ in range(4):
        call(one, went_well=False, now=100.0)

    for _ in range(50):
        settle(one, one.acquire(now=100.0), "reachable", now=100.0)
    assert one.state(now=100.0) == "closed"
    call(one, went_well=False, now=100.0)

    assert one.state(now=100.0) == "open"
    settle(one, one.acquire(now=105.0), "reachable", now=105.0)
    assert one.state(now=105.0) == "closed"


def test_one_that_opens_again_at_once_stays_open_for_longer():
    one = opened(backoff_factor=2)
    assert call(one, went_well=True, now=105.0)

    for _ in range(5):
        call(one, went_well=False, now=106.0)
    assert one.retry_after(now=106.0) == 10.0

    assert call(one, went_well=True, now=116.0)
    for _ in range(5):
        call(one, went_well=False, now=126.0)  # a window later
    assert one.retry_after(now=126.0) == 5.0


def test_an_answer_that_takes_too_long_counts_as_failed():
    one = breaker(slow_after=2.0)

    for _ in range(5):
        assert call(one, went_well=True, now=100.0, duration=2.1)

    assert one.state(now=100.0) == "open"


def test_the_last_failure_that_counted_is_remembered_however_well_all_is_since_then():
    one = breaker(slow_after=2.0)
    assert one.last_failure is None
    before = one.acquire(now=99.0)
    call(one, went_well=True, now=100.0)
    call(one, went_well=False, now=101.0)
    call(one, went_well=True, now=102.0)
    one.reset()

    settle(one, before, "failure", now=103.0)

    assert one.last_failure == BreakerFailure(at=101.0, cause="refused")
    call(one, went_well=True, now=104.0, duration=2.5)
    assert one.last_failure == BreakerFailure(at=104.0, cause="the reply took 2.5 s")


@pytest.mark.parametrize("way", ["probe", "reset"])
def test_calls_before_an_outage_do_not_count_after_it(way):
    one = breaker(failures=None)
    for _ in range(10):
        assert call(one, went_well=False, now=100.0)
    assert one.state(now=100.0) == "open"

    if way == "reset":
        one.reset()
    else:
        assert call(one, went_well=True, now=105.0)

    for _ in range(9):  # a tenth failure would open it
        assert call(one, went_well=False, now=105.0)
    assert one.state(now=105.0) == "closed"


def test_what_is_reset_counts_anew():
    one = opened(backoff_factor=2)
    now = 105.0
    assert call(one, went_well=False, now=now)
    assert one.retry_after(now=now) == 10.0

    one.reset()

    for _ in range(5):
        assert call(one, went_well=False, now=now)
    assert one.retry_after(now=now) == 5.0


def test_the_simple_one_counts_three_and_waits_thirty_seconds_each_time():
    one, now = Breaker(BreakerPolicy.simple()), 100.0
    for _ in range(3):
        assert call(one, went_well=False, now=now)
    for _ in range(4):
        assert one.retry_after(now=now) == 30.0
        now += 30.0
        assert call(one, went_well=False, now=now)


@pytest.mark.parametrize(
    ("error", "shows"),
    [
        (A2AConnectionError("", failure="refused", transient=True), "failure"),
        (A2ATimeoutError("", phase="first_byte", timeout=1.0, transient=True), "failure"),
        (A2AHTTPError("", http_status=503, transient=True), "failure"),
        (AgentError("", code=-32005, transient=True), "failure"),
        (A2AHTTPError("", http_status=400), "reachable"),
        (TaskNotFoundError("", code=-32001), "success"),
        (AuthenticationError("", http_status=401), "reachable"),
        (InternalError("", code=-32603), "reachable"),
        (InternalError("", code=-32603, transient=True), "reachable"),
        (RateLimitedError("", http_status=429, transient=True), None),
        (A2ATimeoutError("", phase="pool", timeout=1.0, transient=True), None),
        (A2AConnectionError("", failure="closed"), None),
        (A2AConnectionError("", failure="tls"), "failure"),
        (A2AConnectionError("", failure="dns"), "failure"),
        (A2AConnectionError("", failure="proxy"), None),
        (CircuitOpenError("", transient=True), None),
        (QueueFullError("", transient=True), None),
        (CredentialOriginError("", origin="https://a.test"), None),
    ],
)
def test_what_the_end_of_a_call_shows_of_an_agent(error, shows):
    assert classify(error) == shows


@pytest.mark.parametrize(
    "policy",
    [
        {"failures": 0},
        {"min_calls": 0},
        {"failure_rate": 0.0},
        {"failure_rate": 1.1},
        {"failure_rate": math.nan},
        {"window": 0.0},
        {"window": math.inf},
        {"open_for": math.nan},
        {"max_open_for": -1.0},
        {"max_open_for": 5.0, "open_for": 20.0},
        {"backoff_factor": 0.9},
        {"backoff_factor": math.inf},
        {"slow_after": -1.0},
        {"min_wait_to_count": math.nan},
    ],
)
def test_numbers_out_of_bounds_are_refused(policy):
    with pytest.raises(ValueError, match=next(iter(policy))):
        BreakerPolicy(**policy)


class Breaking(RuleBasedStateMachine):
    """Anything may happen at any time; what must hold is written down beside it."""

    def __init__(self):
        super().__init__()
        self.now = 1000.0
        self.one = breaker(failures=3, min_calls=6)
        self.in_flight = []
        self.probe_began = -math.inf

    @rule(seconds=st.sampled_from([0.0, 0.4, 1.0, 5.0, 30.0, 90.0]))
    def time_passes(self, seconds):
        self.now += seconds

    @rule(callers=st.integers(1, 20))
    def many_ask_at_once(self, callers):
        state = self.one.state(now=self.now)
        permits = [self.one.acquire(now=self.now) for _ in range(callers)]
        granted = [permit for permit in permits if permit is not None]
        if state == "closed":
            assert len(granted) == callers
        elif state == "open":
            assert not granted
        else:
            assert len(granted) <= 1
        if state != "closed" and granted:
            self.probe_began = self.now
        self.in_flight += granted

    @precondition(lambda self: self.in_flight)
    @rule(
        which=st.integers(0, 1000),
        verdict=st.sampled_from(["success", "reachable", "failure", None]),
        draw=st.floats(0, 0.99),
    )
    def one_ends(self, which, verdict, draw):
        permit = self.in_flight.pop(which % len(self.in_flight))
        before = self.one.state(now=self.now)
        settle(self.one, permit, verdict, now=self.now, draw=draw)
        after = self.one.state(now=self.now)
        if before == "open":
            assert after == "open", "only a probe ends an outage"
        if not permit.is_probe and before == "half_open":
            assert after == "half_open", "what was let through before says nothing"

    @invariant()
    def whoever_is_refused_learns_when_to_come_back(self):
        wait = self.one.retry_after(now=self.now)
        assert 0 <= wait <= 60

    @invariant()
    def it_lets_somebody_through_in_the_end(self):
        state = self.one.state(now=self.now)
        later = self.now + self.one.retry_after(now=self.now)
        assert self.one.state(now=later) in {"closed", "half_open"} or state == "closed"


TestBreaking = Breaking.TestCase
