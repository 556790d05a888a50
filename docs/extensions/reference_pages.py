"""Pages of the reference: the names of one public module, from their docstrings.

A page has a fence ``{public-module} holdfast.client``. It becomes the module's docstring, a table
of its names with the first sentences of their docstrings, and an entry for each name.
"""

from __future__ import annotations

import importlib
import inspect
import re
import types
import typing

from docstrings import converted
from public_api import (
    MODULES,
    assignment,
    description,
    documented_members,
    home_of,
    is_public,
    public_names,
)

_FENCE = re.compile(
    r"^```\{public-module\} (?P<module>[\w.]+)\n```$", flags=re.MULTILINE
)


def setup(app):
    """Connect to the reader of pages."""
    app.connect("source-read", _write_modules)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def _write_modules(_app, _docname, source):
    source[0] = _FENCE.sub(lambda match: "\n".join(_page(match["module"])), source[0])


def _page(module):
    """Return the page of a module, in Markdown with directives of reStructuredText."""
    yield from (
        "```{eval-rst}",
        f".. automodule:: {module}",
        "   :no-members:",
        "```",
        "",
    )
    if module not in MODULES:
        return
    names = public_names(module)
    yield from ("| name | |", "|---|---|")
    for name in names:
        home = home_of(name) if module == "holdfast" else module
        yield f"| {{py:obj}}`{name} <{home}.{name}>` | {_first_sentence(home, name)} |"
    yield from ("", "```{eval-rst}")
    for name in names:
        if module != "holdfast" or home_of(name) == module:
            yield from _entry(module, name)
    yield "```"


def _first_sentence(module, name):
    line = " ".join(description(module, name).split("\n\n")[0].split())
    line = re.split(r"(?<=\.)\s", line)[0].rstrip(":.")
    return line.replace("``", "`").replace("|", "\\|").replace("*", "\\*")


def _entry(module, name):
    """Return the directives for one name."""
    value = getattr(importlib.import_module(module), name)
    if inspect.isclass(value):
        kind = "exception" if issubclass(value, Exception) else "class"
        yield f".. auto{kind}:: {module}.{name}"
        if any(is_public(base) for base in value.__bases__):
            yield "   :show-inheritance:"
        if members := documented_members(value):
            yield f"   :members: {', '.join(members)}"
    elif inspect.isroutine(value):
        yield f".. autofunction:: {module}.{name}"
    else:
        yield from _assigned(module, name, value)
    yield ""


def _assigned(module, name, value):
    """Return the directive for a constant or the alias of a type."""
    if typing.get_origin(value) is not None or isinstance(value, types.UnionType):
        yield f".. py:type:: {name}"
        yield f"   :canonical: {assignment(module, name)[0]}"
    else:
        yield f".. py:data:: {name}"
        if isinstance(value, str | tuple):
            yield f"   :value: {value!r}"
        elif is_public(type(value)):
            yield f"   :type: {type(value).__name__}"
    yield f"   :module: {module}"
    yield ""
    lines = description(module, name).splitlines()
    yield from (f"   {line}" for line in converted(lines, f"{module}.{name}", value))
