"""Contents of a page beside it, and not in the navigation of every other page.

Sphinx copies the entries of all names for the navigation of each page, although the theme shows
only titles there; that takes a third of the time. So the entries are kept for their own page.
"""

from __future__ import annotations

import docutils.nodes
from sphinx.environment.adapters.toctree import document_toc

_contents = {}
"""The contents of each page, with the entries of names."""


def setup(app):
    app.connect("env-check-consistency", _keep_titles)
    app.connect("html-page-context", _write_contents, priority=100)
    app.connect("html-page-context", _forget_contents, priority=900)  # after the theme
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def _keep_titles(_app, env):
    for docname, contents in env.tocs.items():
        if docname.startswith("reference/") and docname != "reference/index":
            _contents[docname] = contents
            titles = contents.deepcopy()
            for below in list(titles.findall(docutils.nodes.bullet_list)):
                if below.parent is not None and below.parent.parent is titles:
                    below.parent.remove(below)
            env.tocs[docname] = titles


def _write_contents(app, docname, _template, context, _doctree):
    if docname in _contents:
        tocs = app.env.tocs
        tocs[docname], _contents[docname] = _contents[docname], tocs[docname]
        contents = document_toc(app.env, docname, app.builder.tags)
        context["toc"] = app.builder.render_partial(contents)["fragment"]


def _forget_contents(app, docname, _template, _context, _doctree):
    if docname in _contents:
        app.env.tocs[docname] = _contents.pop(docname)
