"""Links from pages to files of the repository, and pages made of files outside of ``docs/``.

Pages link to each other and to other files by relative paths, as a repository host shows them. A
file of `PAGES` is a page of the site, and links to it lead there.
"""

from __future__ import annotations

import os
import posixpath
import re
from pathlib import Path

PAGES = {
    "README.md": "index.md",
    "CHANGELOG.md": "project/changelog.md",
    "CONTRIBUTING.md": "project/architecture.md",
    "SECURITY.md": "project/security.md",
}
"""Files outside of ``docs/``, and the pages that show them."""

_ROOT = Path(__file__).parents[2]
_FENCE = re.compile(
    r"^```\{repository-file\} (?P<path>[\w./-]+)\n```$", flags=re.MULTILINE
)
_LINK = re.compile(r"(?<=\]\()(?P<path>[^)#:\s]+)(?P<anchor>#[^)\s]*)?(?=\))")


def setup(app):
    """Connect to the reader of pages."""
    app.connect("source-read", _read)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def _read(app, docname, source):
    page = f"docs/{docname}.md"

    def included(fence):
        app.env.note_dependency(str(_ROOT / fence["path"]))
        return _with_links((_ROOT / fence["path"]).read_text(), fence["path"], page)

    source[0] = _FENCE.sub(included, _with_links(source[0], page, page))


def _with_links(text, file, page):
    """Return the text of a file with links that work on a page of the site."""

    def moved(link):
        target = posixpath.normpath(
            posixpath.join(posixpath.dirname(file), link["path"])
        )
        if target in PAGES:
            anchor = link["anchor"] or ""
            return (
                os.path.relpath(f"docs/{PAGES[target]}", posixpath.dirname(page))
                + anchor
            )
        if (_ROOT / target / "index.md").exists():
            target += "/index.md"
        return os.path.relpath(target, posixpath.dirname(page)) + (link["anchor"] or "")

    return _LINK.sub(moved, text)
