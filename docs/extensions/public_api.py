"""The public names, found by looking at the modules: where each belongs, and what describes it."""

from __future__ import annotations

import ast
import contextlib
import enum
import functools
import importlib
import inspect
import pkgutil
import re
import types
import typing
from pathlib import Path

import holdfast

WITHOUT_ENTRIES = {
    "holdfast.cli": "the command line has a page of its own",
    "holdfast.integrations": "it has modules only",
    "holdfast.testing.pytest_plugin": "its docstring describes its fixtures",
}
"""Public modules whose names have no entries, and why."""

_SECOND_HOMES = ("holdfast.sync", "holdfast.integrations")
"""Modules with other objects of the same names: blocking twins, transports of other libraries."""


def _find_modules():
    below = pkgutil.walk_packages([str(Path(holdfast.__file__).parent)], "holdfast.")
    found = ["holdfast", *(each.name for each in below if "._" not in each.name)]
    return [
        name
        for name in found
        if name != "holdfast.__main__" and name not in WITHOUT_ENTRIES
    ]


MODULES = _find_modules()
"""The public modules whose names have entries."""


@functools.cache
def public_names(module):
    """Return the names that a public module exports."""
    return importlib.import_module(module).__all__


@functools.cache
def home_of(name):
    """Return the module that a public name belongs to; None if there is no such name."""
    homes = [module for module in MODULES if name in public_names(module)]
    homes.sort(
        key=lambda module: (module == "holdfast", module.startswith(_SECOND_HOMES))
    )
    return homes[0] if homes else None


def is_public(klass):
    """Return whether a class is a public name of its module."""
    return klass.__module__ in MODULES and klass.__name__ in public_names(
        klass.__module__
    )


@functools.cache
def look_up(name):
    """Return the object of a full name; None if there is none."""
    first, *rest = name.split(".")
    try:
        found = importlib.import_module(first)
    except (ImportError, ValueError):
        return None
    for index, part in enumerate(rest):
        if isinstance(found, types.ModuleType) and not hasattr(found, part):
            with contextlib.suppress(ImportError):
                importlib.import_module(".".join((first, *rest[: index + 1])))
        found = getattr(found, part, None)
    return found


# ── Members of classes ───────────────────────────────────────────────────────────────────────


@functools.cache
def documented_members(klass):
    """Return the names of the members that have entries of their own.

    These are its own and those of its private bases, unless "Attributes" describes them.
    """
    if issubclass(klass, enum.Enum):
        return list(klass.__members__)
    bases = [
        b for b in klass.__mro__ if b is klass or b.__module__.startswith("holdfast._")
    ]
    names = dict.fromkeys(
        name
        for base in bases
        for name, member in vars(base).items()
        if not name.startswith("_") and _has_docstring(member)
    )
    return [name for name in names if name not in described_attributes(klass)]


def _has_docstring(member):
    member = getattr(member, "__func__", member)
    kinds = (property, functools.cached_property)
    return (inspect.isroutine(member) or isinstance(member, kinds)) and bool(
        member.__doc__
    )


@functools.cache
def described_attributes(klass):
    """Return the names in the section "Attributes" of a class's docstring."""
    text = inspect.cleandoc(klass.__doc__ or "") + "\n"
    section = re.search(r"^Attributes:\n((?:    .*\n|\n)*)", text, flags=re.MULTILINE)
    return (
        re.findall(r"^ {4}(\w+): ", section[1], flags=re.MULTILINE) if section else []
    )


@functools.cache
def attributes_of(klass):
    """Return the names of all attributes of a class, with or without an entry."""
    names = set(dir(klass))
    for base in klass.__mro__:
        names |= {*vars(base).get("__annotations__", ()), *described_attributes(base)}
    return names


@functools.cache
def options_of(name):
    """Return the options of a public ``TypedDict``, those of its bases first, with their types.

    There are none if it is one of another library.
    """
    if home_of(name) is None:
        return {}
    options = {}
    for klass in reversed(list(_typed_dicts(look_up(f"{home_of(name)}.{name}")))):
        options |= klass.__annotations__
    return {
        name: getattr(hint, "__forward_arg__", str(hint))
        for name, hint in options.items()
    }


def _typed_dicts(klass):
    yield klass
    for base in getattr(klass, "__orig_bases__", ()):
        if typing.is_typeddict(base):
            yield from _typed_dicts(base)


# ── Descriptions ─────────────────────────────────────────────────────────────────────────────


def description(module, name):
    """Return the docstring of a public name; for a constant or alias the text after it."""
    value = getattr(importlib.import_module(module), name)
    if inspect.isclass(value) or inspect.isroutine(value):
        return inspect.getdoc(value) or ""
    return inspect.cleandoc(assignment(module, name)[1])


@functools.cache
def assignment(module, name):
    """Return the value of a constant or alias, and its description, as the source has them."""
    tree = _tree(module)
    for node, after in zip(tree.body, [*tree.body[1:], None], strict=True):
        if _is_assignment(node, name):
            is_text = isinstance(after, ast.Expr) and isinstance(
                after.value, ast.Constant
            )
            return ast.unparse(node.value), after.value.value if is_text else ""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and any(
            each.name == name for each in node.names
        ):
            return assignment(node.module, name)
    return "", ""


@functools.cache
def _tree(module):
    return ast.parse(Path(importlib.import_module(module).__file__).read_text())


def _is_assignment(node, name):
    if isinstance(node, ast.Assign):
        target = node.targets[0]
    elif isinstance(node, ast.AnnAssign):
        target = node.target
    else:
        return False
    return isinstance(target, ast.Name) and target.id == name
