"""All policies in one value: the defaults, and the bare wire."""

import pytest

from holdfast.policies import BudgetPolicy, Resilience, RetryPolicy, Timeouts


def test_the_standard_is_that_of_the_documentation():
    standard = Resilience.standard()

    assert standard == Resilience()
    assert standard.timeouts == Timeouts(
        pool=10.0, connect=5.0, write=30.0, first_byte=120.0, idle=120.0
    )
    assert standard.retry == RetryPolicy(
        max_retries=3,
        base_delay=1.0,
        backoff_factor=2.0,
        max_delay=30.0,
        jitter=True,
        max_retry_after=60.0,
    )
    assert standard.budget == BudgetPolicy(tokens=10, success_gives=0.1, seconds_per_token=10.0)
    assert standard.refusals == {401, 403, 404, 405, 411, 413, 414, 415, 421, 422, 425, 429, 503}


def test_off_is_one_try_without_a_budget_and_with_the_same_timeouts():
    off = Resilience.off()

    assert off.retry.max_retries == 0
    assert off.budget is None
    assert off.timeouts == Timeouts()


def test_policies_are_frozen_so_that_clients_can_share_them():
    for policy in (Resilience(), RetryPolicy(), BudgetPolicy(), Timeouts()):
        with pytest.raises(AttributeError):
            setattr(policy, policy.__struct_fields__[0], None)


@pytest.mark.parametrize("name", ["budget", "breaker", "rate_limit", "concurrency", "hedge"])
def test_what_can_be_switched_off_is_switched_off_by_none(name):
    with pytest.raises(TypeError, match=f"{name} must be .*Policy, or None to switch it off, not"):
        Resilience(**{name: False})
    assert getattr(Resilience(**{name: None}), name) is None


def test_what_cannot_be_switched_off_names_its_class_alone():
    with pytest.raises(TypeError, match="retry must be RetryPolicy, not NoneType"):
        Resilience(retry=None)
