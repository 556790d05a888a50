"""The table of exceptions is true: its cases exist, and its patterns name targets."""

import ast
import fnmatch
from pathlib import Path

import pytest
from tests.kit.contract import EXCEPTIONS, TARGETS, chosen

FILES = sorted(Path(__file__).parent.glob("test_*.py"))


def contract_cases():
    """Yield the names of the tests that are decorated with `contract`."""
    for path in FILES:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.AsyncFunctionDef) and any(
                isinstance(decorator, ast.Name) and decorator.id == "contract"
                for decorator in node.decorator_list
            ):
                yield node.name


CASES = sorted(contract_cases())


def matching(pattern):
    return {str(target) for target in TARGETS if fnmatch.fnmatchcase(str(target), pattern)}


def is_excluded(case, target):
    return any(str(target) in matching(pattern) for pattern in EXCEPTIONS.get(case, {}))


def test_every_case_has_a_name_of_its_own():
    assert len(set(CASES)) == len(CASES)


def test_every_exception_is_of_a_case():
    assert set(EXCEPTIONS) - set(CASES) == set()


@pytest.mark.parametrize("case", EXCEPTIONS)
def test_every_exception_names_targets_and_a_reason(case):
    excluded = [matching(pattern) for pattern in EXCEPTIONS[case]]

    assert all(excluded)
    assert all(len(reason.split()) > 3 for reason in EXCEPTIONS[case].values())
    assert set.union(*excluded) < {str(target) for target in TARGETS}


@pytest.mark.parametrize("target", TARGETS, ids=str)
def test_every_target_is_held_to_most_cases(target):
    excluded = [case for case in CASES if is_excluded(case, target)]

    assert len(excluded) < len(CASES) / 2


def test_every_target_is_chosen_by_a_third_of_the_cases_that_apply_to_it():
    for target in TARGETS:
        applies = [case for case in CASES if not is_excluded(case, target)]

        assert sum(target in chosen(case) for case in applies) >= len(applies) / 3, str(target)


@pytest.mark.parametrize("part", ["kind", "binding", "version"])
def test_every_case_runs_with_each_kind_binding_and_version_to_which_it_applies(part):
    for case in CASES:
        applies = {getattr(each, part) for each in TARGETS if not is_excluded(case, each)}

        assert {getattr(target, part) for target in chosen(case)} == applies, case
