"""SECURITY.md: each promise has tests, and what it names is there."""

import inspect
import re

import pytest
from tests.kit.pages import ROOT, Page
from tests.kit.public_names import SUBJECTS

import holdfast
import holdfast.auth.oauth
import holdfast.server

PAGE = Page("SECURITY.md")
PROMISES = [
    [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
    for line in PAGE.text.splitlines()
    if line.startswith("| ") and not line.startswith("| promise")
]
CODE = {code for code in re.findall(r"`([^`]+)`", PAGE.text) if "test_" not in code}


@pytest.mark.parametrize(("promise", "how", "tests"), PROMISES, ids=[row[0] for row in PROMISES])
def test_each_promise_names_tests_that_are_there(promise, how, tests):
    named = re.findall(r"`((?:\w+/)?test_\w+\.py)`", tests)

    assert how
    assert named, promise
    for name in named:
        content = (ROOT / "tests" / name).read_text()
        assert "def test_" in content, name
    for scenario in re.findall(r"\b(S\d+)\b", tests):
        assert f"def test_{scenario.lower()}_" in content, scenario


def test_each_option_and_member_is_there():
    sources = "".join(path.read_text() for path in (ROOT / "src").rglob("*.py"))
    modules = (*SUBJECTS, holdfast.auth.oauth, holdfast.server)
    for code in CODE:
        for option in re.findall(r"(?<!-)--[a-z][a-z-]+", code):
            assert f'"{option}' in sources or f"/{option}" in sources, code
        for variable in re.findall(r"A2ACLI_[A-Z_]+", code):
            assert variable.removeprefix("A2ACLI_").lower() in sources, code
        for owner, member in re.findall(r"\b([A-Z][a-z]\w+)\.([a-z_]+)\b", code):
            [found, *_] = [getattr(one, owner) for one in modules if hasattr(one, owner)]
            assert hasattr(found, member) or member in inspect.signature(found).parameters, code
        for keyword in re.findall(r"\b([a-z]\w+(?:_\w+)+)=?", code):
            assert re.search(rf"\b{keyword}\b", sources), code


def test_the_table_is_whole():
    lines = PAGE.text.splitlines()
    start, end = lines.index("|---|---|---|") + 1, lines.index("## Not promised") - 1

    assert all(line.startswith("| ") for line in lines[start:end])
    assert all(len(row) == 3 for row in PROMISES)


def test_every_link_leads_somewhere():
    PAGE.check_links()
