"""What holds for every page: blocks of code fit the width of the site and can be pasted."""

import pytest
from tests.kit.pages import ROOT, Page

WIDTH = 88
"""Columns of a block of code that the site shows without scrolling."""

PAGES = ["README.md", *(str(path.relative_to(ROOT)) for path in (ROOT / "docs").rglob("*.md"))]


def test_blocks_of_code_fit_the_width_of_the_site():
    wide = [
        (path, line)
        for path in PAGES
        for block in Page(path).blocks
        for line in block.splitlines()
        if len(line) > WIDTH
    ]
    assert wide == []


def test_blocks_can_be_pasted_unless_they_have_blank_lines_in_a_body():
    for path in PAGES:
        Page(path).check_pastes("\n\n  ")


@pytest.mark.parametrize(
    ("page", "phrases"),
    [
        ("howto/calls.md", "attachment,download,upload,image,gather,jupyter,parallel,websocket"),
        ("howto/many-agents.md", "gather,parallel"),
        ("howto/push.md", "webhooks"),
        ("howto/sync.md", "django,flask,jupyter,threads"),
        ("howto/test-orchestrator.md", "mock"),
        (
            "howto/troubleshooting.md",
            "'coroutine' object has no attribute 'text',too many requests,requires an object with",
        ),
        ("reference/glossary.md", "\n## 429\n"),  # the search ignores numbers, except in titles
        ("tutorial.md", "getting started,quickstart"),
    ],
)
def test_words_that_readers_search_for_are_on_the_page(page, phrases):
    text = Page(f"docs/{page}").text.lower()
    assert [phrase for phrase in phrases.split(",") if phrase not in text] == []


def test_glossary_is_complete():
    Page("docs/reference/glossary.md").check_links()
