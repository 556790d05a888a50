"""The page about the command line names commands and options that exist."""

from tests.kit.pages import ROOT, Page

PAGE = Page("docs/howto/command-line.md")


def test_commands_exist_and_have_these_options():
    PAGE.check_commands(at_least=17)


def test_page_claims_what_the_report_says():
    report = (ROOT / "docs" / "reference" / "cli-compliance.md").read_text()
    assert ("all three tiers" in PAGE.text) is ("| Tier claimed | 3 |" in report)


def test_every_link_leads_somewhere():
    PAGE.check_complete()
    PAGE.check_links()
