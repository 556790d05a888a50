"""The reference has each public module and each error; its texts use the project's words."""

import re
from pathlib import Path

from tests.glossary import findings
from tests.kit.pages import Page
from tests.kit.paths import ROOT

import holdfast.errors
from holdfast.errors import A2AError

PACKAGE = ROOT / "src" / "holdfast"
REFERENCE = ROOT / "docs" / "reference"
ERRORS = Page("docs/reference/errors.md")
ON_OTHER_PAGES = {"holdfast.__main__", "holdfast.cli"}
"""They only start the command line, which has a page of its own."""


def module_name(path):
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(part for part in parts if part != "__init__")


def is_private(path):
    names = path.relative_to(PACKAGE).parts
    return any(name.startswith("_") and not name.startswith("__") for name in names)


def test_each_public_module_is_on_one_page():
    pages = [path.read_text() for path in REFERENCE.glob("*.md")]
    shown = [name for text in pages for name in re.findall(r"\{public-module\} (\S+)", text)]
    paths = [path for path in PACKAGE.rglob("*.py") if not is_private(path)]

    assert sorted(shown) == sorted({module_name(path) for path in paths} - ON_OTHER_PAGES)


def advice():
    """What to do about each error: the rows of the tables."""
    return re.findall(r"^\| `(\w+Error)` \| (.+) \|$", ERRORS.text, flags=re.MULTILINE)


def test_each_error_has_advice_once():
    errors = {
        name
        for name in holdfast.errors.__all__
        if isinstance(value := getattr(holdfast.errors, name), type)
        and issubclass(value, A2AError)
    }

    assert sorted(name for name, _ in advice()) == sorted(errors - {"A2AError"})


def facts(error):
    documented = (base.__doc__ or "" for base in error.__mro__ if issubclass(base, A2AError))
    return {name for text in documented for name in re.findall(r"(?m)^ {8}(\w+): ", text)}


def test_advice_names_facts_that_its_error_has():
    unknown = {
        name: named - facts(getattr(holdfast.errors, name))
        for name, text in advice()
        if (named := set(re.findall(r"`(?:error\.)?([a-z_]+)`", text)))
    }

    assert {name: named for name, named in unknown.items() if named} == {}


def test_links_of_the_reference_lead_somewhere():
    for path in REFERENCE.glob("*.md"):
        Page(path.relative_to(ROOT)).check_links()


def test_words_that_are_not_used_are_found_with_their_lines():
    text = "The stream\nis under way; `told` and\n```text\nnobody\n```\nare code, nobody is.\n"

    assert [(line, word) for line, word, _ in findings(text)] == [(2, "under way"), (6, "nobody")]


def test_every_page_is_below_an_index():
    for folder in {path.parent for path in Path(ROOT / "docs").rglob("*.md")}:
        assert (folder / "index.md").exists(), folder
