"""Pages for language models: ``llms.txt`` lists the pages, ``llms-full.txt`` has their text.

The list has the title and the first paragraph of each page, in the form of llmstxt.org. The text
is Markdown; of the reference it has the tables, and not the entries.
"""

from __future__ import annotations

import re
from pathlib import Path

from docutils import nodes

_PARTS = {
    "": "Start",
    "howto": "How-to guides",
    "reference": "Reference",
    "explanation": "Explanation",
    "project": "Project",
}
"""The folders of pages, and their headings."""


_texts = {}
"""The text of each page."""

_DIRECTIVES = re.compile(
    r"^```\{(?:toctree|eval-rst)\}.*?^```\n?", re.DOTALL | re.MULTILINE
)
_REFERENCE = re.compile(r"\{py:obj\}`[^`<]*<([^`>]*)>`")


def setup(app):
    app.connect("source-read", _keep, priority=900)  # after what writes parts of pages
    app.connect("build-finished", _write)
    return {"parallel_read_safe": False, "parallel_write_safe": True}


def _keep(_app, docname, source):
    text = _REFERENCE.sub(r"`\1`", _DIRECTIVES.sub("", source[0]))
    _texts[docname] = re.sub(r"\n{3,}", "\n\n", text).strip()


def _write(app, error):
    if error is not None or app.builder.name != "html":
        return
    env, out = app.env, Path(app.outdir)
    pages = [*env.found_docs]
    lines = ["# Holdfast", "", f"> {_summary(env, 'index')}", ""]
    for folder, heading in _PARTS.items():
        below = sorted(page for page in pages if page.rpartition("/")[0] == folder)
        lines += [f"## {heading}", ""]
        for page in below:
            lines.append(
                f"- [{env.titles[page].astext()}]({page}.html): {_summary(env, page)}"
            )
        lines.append("")
    (out / "llms.txt").write_text("\n".join(lines))
    (out / "llms-full.txt").write_text(
        "\n\n".join(_texts[page] for page in sorted(_texts))
    )


def _summary(env, page):
    """Return the first paragraph of a page, in one line."""
    paragraph = next(env.get_doctree(page).findall(nodes.paragraph), None)
    return " ".join(paragraph.astext().split()) if paragraph is not None else ""
