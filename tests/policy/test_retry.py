"""Whether a failed call is tried again, and when (DESIGN: policies, sending once)."""

import math

import pytest
from hypothesis import assume
from hypothesis import strategies as st
from tests.kit.strategies import given

from holdfast._policy.retry import GiveUp, Retry, RetryState, backoff, decide, is_outcome_unknown
from holdfast.errors import (
    A2AConnectionError,
    A2AError,
    A2AHTTPError,
    A2ATimeoutError,
    AgentError,
    AuthenticationError,
    DeadlineExceededError,
    InternalError,
    InvalidAgentResponseError,
    OutcomeUnknownError,
    RateLimitedError,
    TaskNotFoundError,
)
from holdfast.policies import RetryPolicy

SAFETIES = ["read", "idempotent", "conditional"]

seconds = st.floats(min_value=0, max_value=1e6)
draws = st.floats(min_value=0, max_value=1, exclude_max=True)
policies = st.builds(
    RetryPolicy,
    max_retries=st.integers(min_value=0, max_value=20),
    base_delay=seconds,
    backoff_factor=st.floats(min_value=1, max_value=1e6),
    max_delay=seconds,
    jitter=st.booleans(),
    max_retry_after=seconds,
)
failures = st.builds(
    A2AError,
    st.just("it failed"),
    executed=st.sampled_from([True, False, None]),
    transient=st.booleans(),
    retry_after=st.none() | seconds,
)
situations = st.fixed_dictionaries(
    {
        "safety": st.sampled_from(SAFETIES),
        "attempt": st.integers(min_value=1, max_value=30),
        "time_left": st.just(math.inf) | seconds,
        "draw": draws,
    }
)


def after(error, policy=None, **situation):
    defaults = {"safety": "read", "attempt": 1, "time_left": math.inf, "draw": 0.5}
    return decide(policy or RetryPolicy(), error, **(defaults | situation))


def busy(**facts):
    return A2AError("busy", **{"transient": True, "executed": False, **facts})


# ── The rules, one by one ────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("safety", SAFETIES)
@pytest.mark.parametrize("transient", [True, False])
@pytest.mark.parametrize("executed", [True, False, None])
def test_a_failure_is_retried_if_it_is_transient_and_running_twice_does_no_harm(
    safety, transient, executed
):
    decision = after(A2AError("x", transient=transient, executed=executed), safety=safety)

    harmless = safety != "conditional" or executed is False
    assert isinstance(decision, Retry) == (transient and harmless)


@pytest.mark.parametrize("attempt", range(1, 7))
def test_there_are_as_many_retries_as_agreed(attempt):
    decision = after(busy(), RetryPolicy(max_retries=3), attempt=attempt)

    assert isinstance(decision, Retry) == (attempt <= 3)


def test_no_retries_means_one_try():
    assert after(busy(), RetryPolicy(max_retries=0)) == GiveUp("retries are disabled")


def test_single_retry_is_reported_in_the_singular():
    assert after(busy(), RetryPolicy(max_retries=1), attempt=2) == GiveUp(
        "the limit of 1 retry is reached"
    )


def test_a_predicate_can_say_no():
    policy = RetryPolicy(retry_predicate=lambda error: error.http_status != 503)

    assert isinstance(after(busy(http_status=429), policy), Retry)
    assert after(busy(http_status=503), policy) == GiveUp("retry_predicate returned False")


def test_a_predicate_is_asked_only_about_what_may_be_retried_at_all():
    asked = []
    policy = RetryPolicy(retry_predicate=lambda error: asked.append(error) or True)

    for error in (A2AError("no"), busy(executed=None), busy(executed=True)):
        assert isinstance(after(error, policy, safety="conditional"), GiveUp)
    assert isinstance(after(busy(), policy, attempt=4), GiveUp)

    assert asked == []


@pytest.mark.rule("D08")
def test_a_hint_is_a_lower_bound():
    without_jitter = RetryPolicy(jitter=False)

    assert after(busy(retry_after=7.0), without_jitter) == Retry(7.0)
    assert after(busy(retry_after=0.25), without_jitter) == Retry(1.0)
    assert after(busy(retry_after=0.0), without_jitter) == Retry(1.0)


def test_those_who_got_the_same_hint_do_not_come_back_together():
    delays = {after(busy(retry_after=7.0), draw=draw).delay for draw in (0.0, 0.3, 0.6, 0.9)}

    assert len(delays) == 4
    assert min(delays) == 7.0
    assert max(delays) < 8.0


def test_a_hint_beyond_what_the_caller_follows_ends_it_at_once():
    reason = "the agent asked to wait 60.5 s, and max_retry_after is 60 s"
    assert after(busy(retry_after=60.5)) == GiveUp(reason)
    assert isinstance(after(busy(retry_after=60.0)), Retry)
    assert isinstance(after(busy(retry_after=60.5), RetryPolicy(max_retry_after=100)), Retry)


@pytest.mark.rule("S29")
@pytest.mark.parametrize(
    ("time_left", "again"), [(7.01, True), (7.0, False), (6.9, False), (0.0, False)]
)
def test_s29_a_wait_that_would_reach_the_deadline_ends_it_at_once(time_left, again):
    policy = RetryPolicy(jitter=False)

    decision = after(busy(retry_after=7.0), policy, time_left=time_left)

    assert isinstance(decision, Retry) == again
    if not again:
        assert decision == GiveUp("waiting 7 s would exceed the deadline")


@pytest.mark.rule("S29")
def test_s29_no_time_left_ends_it_even_without_a_wait():
    policy = RetryPolicy(base_delay=0)

    assert isinstance(after(busy(), policy, time_left=0.0), GiveUp)
    assert after(busy(), policy, time_left=0.1) == Retry(0.0)


@pytest.mark.parametrize(
    ("attempt", "bound"), [(1, 1.0), (2, 2.0), (3, 4.0), (5, 16.0), (6, 30.0), (99, 30.0)]
)
def test_the_backoff_doubles_up_to_its_cap(attempt, bound):
    assert backoff(RetryPolicy(jitter=False), attempt, 0.5) == bound
    assert backoff(RetryPolicy(), attempt, 0.5) == bound / 2
    assert backoff(RetryPolicy(), attempt, 0.0) == 0.0


# ── Properties ───────────────────────────────────────────────────────────────────────────────


@given(policy=policies, error=failures, situation=situations)
def test_a_decision_is_a_wait_or_a_reason(policy, error, situation):
    decision = decide(policy, error, **situation)

    if isinstance(decision, Retry):
        assert 0 <= decision.delay < math.inf
    else:
        assert decision.reason


@pytest.mark.rule("P31")
@given(policy=policies, error=failures, situation=situations)
def test_what_must_not_run_twice_is_never_retried_unless_it_certainly_did_not_run(
    policy, error, situation
):
    situation["safety"] = "conditional"
    assume(error.executed is not False)

    assert isinstance(decide(policy, error, **situation), GiveUp)


@given(policy=policies, error=failures, situation=situations, answer=st.booleans())
def test_a_predicate_never_widens_what_is_retried(policy, error, situation, answer):
    plain = decide(policy, error, **situation)
    asked = decide(with_predicate(policy, answer), error, **situation)

    if answer:
        assert asked == plain
    else:
        assert isinstance(asked, GiveUp)


def with_predicate(policy, answer):
    fields = {name: getattr(policy, name) for name in policy.__struct_fields__}
    return RetryPolicy(**{**fields, "retry_predicate": lambda error: answer})


@pytest.mark.rule("D08")
@given(policy=policies, hint=seconds, situation=situations)
def test_a_retry_is_never_earlier_than_the_hint(policy, hint, situation):
    decision = decide(policy, busy(retry_after=hint), **situation)

    if isinstance(decision, Retry):
        assert decision.delay >= hint
    if hint > policy.max_retry_after:
        assert isinstance(decision, GiveUp)


@pytest.mark.rule("S29")
@given(policy=policies, error=failures, situation=situations, time_left=seconds)
def test_s29_a_retry_is_never_at_or_beyond_the_deadline(policy, error, situation, time_left):
    decision = decide(policy, error, **{**situation, "time_left": time_left})

    if isinstance(decision, Retry):
        assert decision.delay < time_left


@given(policy=policies, attempt=st.integers(min_value=1, max_value=10**6), draw=draws)
def test_the_backoff_lies_between_nought_and_its_bound_and_never_overflows(policy, attempt, draw):
    wait = backoff(policy, attempt, draw)

    assert 0 <= wait <= policy.max_delay
    if attempt == 1:
        assert wait <= policy.base_delay


@pytest.mark.parametrize("factor", [2, 2.0, 1e308, pytest.param(10**300, id="huge")])
def test_the_backoff_never_overflows_however_large_the_numbers(factor):
    policy = RetryPolicy(backoff_factor=factor, max_delay=30.0, jitter=False)

    assert backoff(policy, 100_000, 0.5) == 30.0


# ── What a policy may be ─────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("bad", [-1, -0.001, math.nan])
@pytest.mark.parametrize("name", ["base_delay", "max_delay", "max_retry_after"])
def test_a_policy_with_a_negative_number_is_refused_by_name(name, bad):
    with pytest.raises(ValueError, match=name):
        RetryPolicy(**{name: bad})


def test_a_negative_number_of_retries_is_refused():
    with pytest.raises(ValueError, match="max_retries must not be negative"):
        RetryPolicy(max_retries=-1)


@pytest.mark.parametrize("name", ["base_delay", "max_delay", "backoff_factor"])
def test_a_policy_with_an_endless_wait_is_refused_by_name(name):
    with pytest.raises(ValueError, match=name):
        RetryPolicy(**{name: math.inf})


@pytest.mark.parametrize("bad", [0.99, 0, -2, math.nan])
def test_a_backoff_that_shrinks_is_refused(bad):
    with pytest.raises(ValueError, match="backoff_factor"):
        RetryPolicy(backoff_factor=bad)


def test_any_hint_may_be_followed():
    assert after(busy(retry_after=1e6), RetryPolicy(max_retry_after=math.inf)).delay >= 1e6


# ── A lost reply ─────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "error",
    [
        A2AConnectionError("x", failure="disconnected"),
        A2AConnectionError("x", failure="truncated"),
        A2ATimeoutError("x", phase="first_byte"),
        DeadlineExceededError("x", deadline="call", timeout=1),
        A2AHTTPError("HTTP 502", http_status=502, transient=True),
        A2AHTTPError("HTTP 503 without Retry-After", http_status=503, transient=True),
    ],
    ids=str,
)
def test_missing_answer_without_a_search_is_a_lost_reply(error):
    assert is_outcome_unknown(error)

    error.executed = False
    assert not is_outcome_unknown(error)
    error.executed = True
    assert not is_outcome_unknown(error)


@pytest.mark.parametrize(
    "error",
    [
        InternalError("x", code=-32603, transient=True),
        AgentError("x", code=-32050, transient=True),
        TaskNotFoundError("x"),
        InvalidAgentResponseError("x"),
        RateLimitedError("x", transient=True),
        AuthenticationError("x"),
        A2AHTTPError("HTTP 400", http_status=400),
        OutcomeUnknownError("x", message_id="m"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_an_answer_is_not_a_lost_reply_whatever_it_says(error):
    assert not is_outcome_unknown(error)


# ── What counts ──────────────────────────────────────────────────────────────────────────────


def tried(*failures):
    """What has been tried: whether each was an attempt, stands in line, and who got through."""
    tries = RetryState()
    for was_attempted, is_in_line, answered in failures:
        tries.failed(busy(), was_attempted=was_attempted, is_in_line=is_in_line, answered=answered)
    return tries


def test_a_refusal_before_anything_was_attempted_is_all_there_is():
    assert tried((False, False, 0)).last is None
    assert tried((False, False, 0), (True, False, 0)).last is not None


def test_refusal_counts_for_queued_calls_only_if_no_call_succeeded():
    assert tried((True, True, 0), (True, True, 0), (True, True, 0)).failures == 3
    assert tried((True, True, 0), (True, True, 1), (True, True, 7)).failures == 1
    assert tried((True, True, 0), (True, True, 1), (True, True, 1)).failures == 2


def test_failure_counts_whichever_call_succeeded():
    assert tried((True, True, 0), (True, False, 1), (False, False, 7)).failures == 3


@pytest.mark.rule("D08")
def test_beyond_the_budget_there_is_no_retry():
    assert after(busy(), within_budget=False) == GiveUp("the agent's retry budget is exhausted")
