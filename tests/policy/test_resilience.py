"""All policies in one value: the defaults, and the bare wire."""

import math

import pytest

from holdfast import AiohttpEngine, ReconnectPolicy
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


@pytest.mark.parametrize("name", ["budget", "breaker", "retry_after", "concurrency", "hedge"])
def test_what_can_be_switched_off_is_switched_off_by_none(name):
    with pytest.raises(TypeError, match=f"{name} must be .*Policy, or None to switch it off, not"):
        Resilience(**{name: False})
    assert getattr(Resilience(**{name: None}), name) is None


def test_what_cannot_be_switched_off_names_its_class_alone():
    with pytest.raises(TypeError, match="retry must be RetryPolicy, not NoneType"):
        Resilience(retry=None)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: Resilience(retry=3), "retry must be RetryPolicy, not int"),
        (lambda: Resilience(timeouts=5), "timeouts must be Timeouts, not int"),
        (
            lambda: Resilience(budget=5),
            "budget must be BudgetPolicy, or None to switch it off, not int",
        ),
        (lambda: Resilience(refusals=[429]), "refusals must be frozenset, not list"),
        (lambda: Timeouts(connect="5"), "connect must be a number, not str"),
        (lambda: Timeouts(idle=True), "idle must be a number, not bool"),
        (lambda: RetryPolicy(max_retries="3"), "max_retries must be a whole number, not str"),
        (lambda: RetryPolicy(max_retries=1.5), "max_retries must be a whole number, not float"),
        (lambda: RetryPolicy(max_retries=True), "max_retries must be a whole number, not bool"),
        (lambda: RetryPolicy(base_delay=True), "base_delay must be a number, not bool"),
        (lambda: RetryPolicy(jitter=0.5), "jitter must be bool, not float"),
        (lambda: RetryPolicy(retry_predicate=False), "retry_predicate must be callable; bool is"),
        (lambda: RetryPolicy(on_retry="log"), "on_retry must be callable; str is not"),
        (lambda: ReconnectPolicy(max_reconnects=1.5), "max_reconnects must be a whole number"),
        (lambda: ReconnectPolicy(max_reconnects=math.inf), "max_reconnects must be a whole num"),
        (lambda: ReconnectPolicy(max_reconnects=False), "max_reconnects must be a whole number"),
        (lambda: BudgetPolicy(tokens="x"), "tokens must be a whole number, not str"),
        (lambda: BudgetPolicy(tokens=2.5), "tokens must be a whole number, not float"),
        (lambda: Resilience(refusals=frozenset({"429"})), "each of refusals must be a whole num"),
        (lambda: AiohttpEngine(proxies="http://p"), "proxies must be bool, not str"),
        (lambda: AiohttpEngine(session=3), "session must be ClientSession, not int"),
        (
            lambda: AiohttpEngine(ssl=None),
            "ssl must be a TlsConfig, a file, a context or a bool, not NoneType",
        ),
        (
            lambda: AiohttpEngine(ssl=0),
            "ssl must be a TlsConfig, a file, a context or a bool, not int",
        ),
        (lambda: AiohttpEngine(max_streams=1.5), "max_streams must be a whole number, not float"),
        (lambda: AiohttpEngine(max_connections=True), "max_connections must be a whole number"),
    ],
)
def test_a_setting_of_a_wrong_type_is_named(make, said):
    with pytest.raises(TypeError, match=said):
        make()
