"""The page about the command line names commands and options that exist."""

import re

from tests.kit.pages import ROOT, Page

from holdfast._cli import error_table

PAGE = Page("docs/howto/command-line.md")
CODE = r"(?:A2ACLI|HOLDFAST)_ERR_[A-Z_]+"


def test_commands_exist_and_have_these_options():
    PAGE.check_commands(at_least=17)


def test_page_claims_what_the_report_says():
    report = (ROOT / "docs" / "reference" / "cli-compliance.md").read_text()
    assert ("all three tiers" in PAGE.text) is ("| Tier claimed | 3 |" in report)


def test_every_link_leads_somewhere():
    PAGE.check_complete()
    PAGE.check_links()


def test_every_code_of_an_error_is_listed_with_its_exit_code():
    sources = (ROOT / "src/holdfast/_cli").rglob("*.py")
    used = set().union(*(re.findall(CODE, source.read_text()) for source in sources))
    rows = [row for row in PAGE.text.splitlines() if re.match(r"\| `(A2ACLI|HOLDFAST)_ERR", row)]
    exits = {code: int(row.split("|")[2]) for row in rows for code in re.findall(CODE, row)}

    assert exits.keys() == used
    listed = {row.code: row.exit for row in error_table._ROWS if row.code}
    assert {code: exits[code] for code in listed} == listed
