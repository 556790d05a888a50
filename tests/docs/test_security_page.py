"""SECURITY.md: each promise has tests, and what it names is there."""

import inspect
import re

from tests.kit.pages import ROOT, Page
from tests.kit.public_names import SUBJECTS
from tests.rules import holders, promises

import holdfast
import holdfast.auth.oauth
import holdfast.server

PAGE = Page("SECURITY.md")
PROMISES = promises(PAGE.text)
CODE = {code for code in re.findall(r"`([^`]+)`", PAGE.text) if "test_" not in code}


def test_each_promise_names_the_files_of_the_tests_that_hold_it():
    held = holders()

    for name, (promise, how, tests) in PROMISES.items():
        assert promise
        assert how
        files = re.findall(r"`([\w/]+\.py)`", tests)
        assert files == list(held[name]), f"{name}: run python -m tests.rules"


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
    start, end = lines.index("|---|---|---|---|") + 1, lines.index("## Not promised") - 1

    assert all(line.startswith("| ") for line in lines[start:end])
    assert all(len(row) == 3 for row in PROMISES.values())
    assert list(PROMISES) == [f"P{number:02}" for number in range(1, len(PROMISES) + 1)]
    assert len(PROMISES) == end - start


def test_every_link_leads_somewhere():
    PAGE.check_links()
