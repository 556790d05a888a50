"""Keys, whatever processes do at once, wherever they crash, and however the agent answers."""

import tempfile
from pathlib import Path

from tests.kit.key_races import RESENDING, late_plans, plans, problems_of
from tests.kit.strategies import given

from holdfast import SqliteJournal


@given(plan=plans(), max_examples=420)
def test_a_key_has_one_execution_and_one_result(plan):
    assert problems_of(plan) == []


@given(plan=plans(on_unknown=RESENDING), max_examples=240)
def test_a_resend_that_a_caller_allows_repeats_the_recorded_message(plan):
    assert problems_of(plan, may_resend=True) == []


@given(plan=late_plans(), max_examples=30)
def test_a_process_that_stood_still_for_longer_than_a_lease_writes_nothing(plan):
    with tempfile.TemporaryDirectory() as directory:
        assert problems_of(plan, SqliteJournal(Path(directory) / "calls.db")) == []
