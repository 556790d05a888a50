"""Docstrings as reStructuredText: indented examples are code, names are references."""

from __future__ import annotations

import ast
import inspect
import re
import textwrap

from names import find, is_foreign, with_options, written
from public_api import is_public
from sphinx.ext.napoleon import Config, GoogleDocstring

_NAME = re.compile(r"(?<![`:\w])`(?P<text>[^`<>\n]+)`(?![`_])")
_ENTRY = re.compile(r"^ {4}`?(?P<name>\w+)`?: ")
_SECTION = re.compile(r"[A-Z]\w+( \w+)?:")
_SECTIONS = Config(napoleon_use_rtype=False, napoleon_attr_annotations=True)


def setup(app):
    """Connect to autodoc."""
    app.connect("autodoc-process-docstring", _process)
    app.connect("autodoc-process-signature", _process_signature)
    app.connect("autodoc-process-bases", _process_bases)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def _process(app, what, name, value, options, lines):  # noqa: PLR0917  autodoc's own
    # A colon in the docstring of a property ends no type: "The state: in flight, or settled."
    what = "method" if what == "property" else what
    marked = converted(lines, name, value)
    if what in {"class", "exception"}:
        marked = _with_assigned_types(marked, name, value)
    sections = GoogleDocstring(marked, _SECTIONS, app, what, name, value, options)
    lines[:] = _with_types_beside_names(sections.lines())


def _with_assigned_types(lines, context, klass):
    """Add the types of attributes that the constructor declares: ``self.code: int = …``."""
    try:
        source = inspect.getsource(vars(klass)["__init__"])
    except (KeyError, TypeError, OSError):  # none, or one that a decorator made
        return lines
    tree = ast.parse(textwrap.dedent(source))
    types = {
        node.target.attr: ast.unparse(node.annotation)
        for node in ast.walk(tree)
        if isinstance(node, ast.AnnAssign)
        and isinstance(node.target, ast.Attribute)
        and _names_known_types(ast.unparse(node.annotation), context)
    }
    result, in_attributes = [], False
    for line in lines:
        if line and not line.startswith(" "):
            in_attributes = line == "Attributes:"
        entry = _ENTRY.match(line) if in_attributes else None
        if entry and entry["name"] in types:
            name, text = entry["name"], line.partition(":")[2]
            result.append(f"    {name} ({types[name]}):{text}")
        else:
            result.append(line)
    return result


def _with_types_beside_names(lines):
    """Move the type of each attribute from below its description to beside its name."""
    result, name = [], None
    for line in lines:
        if line.startswith(".. attribute::"):
            name = len(result) + 1
        if name is not None and line.startswith("   :type:"):
            result.insert(name, line)
            name = None
        else:
            result.append(line)
    return result


def converted(lines, name, value):
    """Return the lines of a docstring as reStructuredText.

    Args:
        lines: The docstring.
        name: The full name of its object.
        value: The object.
    """
    result, in_code, entry = [], False, ""

    def reference(match):
        return written(match["text"], name, value, error=entry)

    for line in _mark_code(lines):
        if line and not line.startswith(" "):
            in_code, entry = line.startswith(".. code-block::"), ""
        elif found := _ENTRY.match(line):
            entry = found["name"]
        result.append(line if in_code else _NAME.sub(reference, line))
    return result


def _mark_code(lines):
    """Mark the indented blocks that are neither in a section nor in a list."""
    is_text, in_code = True, False
    for index, line in enumerate(lines):
        if line and not line.startswith(" "):
            is_text = not (_SECTION.fullmatch(line) or line.startswith(("- ", "1. ")))
            in_code = line.endswith("::")
        elif (
            line.startswith("    ") and is_text and not in_code and not lines[index - 1]
        ):
            in_code = True
            drawn = any("─" in each for each in lines[index:])
            yield from (f".. code-block:: {'text' if drawn else 'python'}", "")
        yield line


def _process_signature(_app, what, name, value, _options, signature, returns):
    """Show options by name, and no constructor whose arguments only Holdfast has."""
    if what in {"class", "exception"} and _is_made_by_holdfast(value, name):
        return "", None
    if signature is None:
        return None
    if what == "exception":
        return re.sub(r"(\*\*facts): .*(?=\))", r"\1", signature), returns
    return with_options(re.sub(r"<[^<>]*>", "...", signature)), returns


def _is_made_by_holdfast(klass, name):
    annotations = vars(klass).get("__init__", klass.__init__)
    hints = " ".join(map(str, getattr(annotations, "__annotations__", {}).values()))
    return not _names_known_types(hints, name)


def _names_known_types(hints, context):
    types = re.findall(r"(?<![\w.'\"])[A-Z]\w+", hints)
    return all(find(each, context) or is_foreign(each) for each in types)


def _process_bases(_app, _name, _klass, _options, bases):
    bases[:] = [base for base in bases if isinstance(base, type) and is_public(base)]
