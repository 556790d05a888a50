"""docs/explanation: guarantees, streams, versions, security; and the links of all its pages."""

import pytest
from tests.kit.pages import ROOT, Page

PAGES = sorted(path.relative_to(ROOT) for path in ROOT.glob("docs/explanation/*.md"))


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
def test_every_link_leads_somewhere(path):
    Page(path).check_links()
