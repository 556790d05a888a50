"""What holds for every page: blocks of code fit the width of the site and can be pasted."""

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


def test_glossary_is_complete():
    Page("docs/reference/glossary.md").check_links()
