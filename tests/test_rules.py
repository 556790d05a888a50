"""The rules that tests hold: each has a test, each marker names one, and the index is current."""

import re
from types import SimpleNamespace

import pytest
from tests import conftest, rules

MADE_BY = "python -m tests.rules"


def test_every_rule_has_a_test():
    assert [name for name in rules.RULES if not rules.holders()[name]] == []


def test_every_marker_names_a_rule():
    assert set(rules.holders()) <= set(rules.RULES)


def test_the_index_is_current():
    assert rules.INDEX.read_text() == rules.index(rules.holders()), f"run {MADE_BY}"


def test_the_table_of_promises_is_current():
    assert rules.PAGE.read_text() == rules.page(rules.holders()), f"run {MADE_BY}"


def test_a_scenario_in_the_name_of_a_test_is_its_rule():
    for path in rules.TESTS.rglob("test_*.py"):
        for test in re.findall(
            r"^(?:async )?def (test_s\d\d_\w+)", path.read_text(), re.MULTILINE
        ):
            held = rules.holders()[f"S{test[6:8]}"][path.relative_to(rules.TESTS).as_posix()]
            assert test in held, f"{path}: {test}"


def test_an_unknown_rule_is_an_error_of_collection():
    marked = pytest.mark.rule("S99").mark
    item = SimpleNamespace(nodeid="test_x.py::test_x", iter_markers=lambda _name: [marked])

    with pytest.raises(pytest.UsageError, match=r"test_x: there is no rule \['S99'\]"):
        conftest.pytest_itemcollected(item)
