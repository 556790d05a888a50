"""The codes of errors that commands print are listed on the page about the command line."""

import re

from tests.kit.pages import ROOT, Page

from holdfast._cli import error_table

CODE = r"(?:A2ACLI|HOLDFAST)_ERR_[A-Z_]+"


def test_every_code_of_an_error_is_listed_with_its_exit_code():
    sources = (ROOT / "src/holdfast/_cli").rglob("*.py")
    used = set().union(*(re.findall(CODE, source.read_text()) for source in sources))
    lines = Page("docs/howto/command-line.md").text.splitlines()
    rows = [line for line in lines if re.match(rf"\| `{CODE}", line)]
    exits = {code: int(row.split("|")[2]) for row in rows for code in re.findall(CODE, row)}

    assert exits.keys() == used
    listed = {row.code: row.exit for row in error_table._ROWS if row.code}
    assert {code: exits[code] for code in listed} == listed
