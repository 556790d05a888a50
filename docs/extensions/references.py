"""References that Sphinx does not find by itself, and what the pages must have."""

from __future__ import annotations

import re
from typing import TypeVar

import docutils.nodes
from names import find, is_foreign
from public_api import MODULES, home_of, look_up, public_names
from sphinx.addnodes import pending_xref
from sphinx.util import logging
from sphinx.util.nodes import make_refnode

_LOGGER = logging.getLogger(__name__)
_PRIVATE = re.compile(r"\._(?!_)")


def setup(app):
    """Connect to the resolution of references and to the last check."""
    app.connect("doctree-read", _name_in_full)
    app.connect("missing-reference", _leave_as_text)
    app.connect("env-updated", _add_everyday_names)
    app.connect("doctree-resolved", _link_code_spans)
    app.connect("env-check-consistency", _check_complete)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def _name_in_full(_app, doctree):
    """Give the short names in signatures in full, which is quicker than a search by Sphinx."""
    for node in list(doctree.findall(pending_xref)):
        if node.get("refdomain") == "py":
            context = ".".join(
                filter(None, (node.get("py:module"), node.get("py:class")))
            )
            target = node["reftarget"]
            value = look_up(target) if "." in target else None
            full = find(target, context, look_up(context) if context else None)
            node["reftarget"] = full or _public_name(value) or target
            node.attributes.pop(
                "refspecific", None
            )  # its presence alone starts the search


def _leave_as_text(_app, _env, node, content):
    """Show names of Python and of other libraries as text."""
    target = node["reftarget"]
    is_text = is_foreign(target) or isinstance(look_up(target), TypeVar)
    return content if node.get("refdomain") == "py" and is_text else None


def _public_name(value):
    """Return the full public name of an object of a private module."""
    name = getattr(value, "__name__", None)
    home = home_of(name) if isinstance(name, str) else None
    return f"{home}.{name}" if home and look_up(f"{home}.{name}") is value else None


def _link(app, full, docname, content):
    domain = app.env.domains.python_domain
    entry = domain.objects.get(full) or domain.modules.get(full)
    if entry is None:
        return None
    return make_refnode(
        app.builder, docname, entry.docname, entry.node_id, content, full
    )


def _add_everyday_names(_app, env):
    """Let the everyday names be found under ``holdfast``, too."""
    objects = env.domains.python_domain.objects
    for name in public_names("holdfast"):
        if entry := objects.get(f"{home_of(name)}.{name}"):
            objects.setdefault(f"holdfast.{name}", entry._replace(aliased=True))
    return []


def _link_code_spans(app, doctree, docname):
    """Link the code spans of a page that are public names, such as ``Client.ask``."""
    for span in list(doctree.findall(docutils.nodes.literal)):
        text = span.astext()
        name = re.sub(r"\(.*\)$", "", text)
        is_name = re.fullmatch(r"[A-Za-z_][\w.]*", name)
        ambiguous = "." not in name and name.islower() and name == text
        if (
            not is_name
            or ambiguous
            or isinstance(span.parent, docutils.nodes.reference)
        ):
            continue
        if link := _link(app, find(name), docname, span.deepcopy()):
            span.replace_self(link)


def _check_complete(_app, env):
    """Report public names without an entry, and entries of private names."""
    objects = env.domains.python_domain.objects
    for module in MODULES:
        for name in public_names(module):
            if f"{module}.{name}" not in objects:
                _LOGGER.warning("no page of the reference has %s.%s", module, name)
    for name in filter(_PRIVATE.search, objects):
        _LOGGER.warning("a page of the reference has %s, which is private", name)
