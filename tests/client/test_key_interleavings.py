"""Keys, whatever processes do at once, wherever they crash, and however the agent answers."""

from tests.kit.key_races import RESENDING, plans, problems_of
from tests.kit.strategies import given


@given(plan=plans(), max_examples=420)
def test_a_key_has_one_execution_and_one_result(plan):
    assert problems_of(plan) == []


@given(plan=plans(on_unknown=RESENDING), max_examples=240)
def test_a_resend_that_a_caller_allows_repeats_the_recorded_message(plan):
    assert problems_of(plan, may_resend=True) == []
