"""What a name in a docstring, a signature or a page refers to: decided from the objects."""

from __future__ import annotations

import builtins
import functools
import inspect
import re
import sys

from public_api import (
    MODULES,
    attributes_of,
    described_attributes,
    documented_members,
    home_of,
    is_public,
    look_up,
    options_of,
    public_names,
)

_LIBRARIES = {
    "a2a",
    "aiohttp",
    "cryptography",
    "google",
    "grpc",
    "httpx",
    "httpx2",
    "msgspec",
    "oauthlib",
    "pytest",
}
"""Libraries of others. Like the standard library, they are named and not linked."""

_NAMESPACES = (
    "asyncio",
    "collections.abc",
    "contextlib",
    "datetime",
    "enum",
    "os",
    "pathlib",
    "types",
    "typing",
)
"""Modules whose names signatures have without their module."""

_UNPACKED = re.compile(
    r"\*\*\w+: (?:~?typing\.)?~?Unpack\[~?(?:[\w.]+\.)?(?P<options>\w+)\]"
)


def find(name, context="holdfast", owner=None):
    """Return the full name of a public name that has an entry; None if it is not one.

    Args:
        name: As written.
        context: The full name of the object whose documentation has it.
        owner: The class that this object belongs to, or is.
    """
    if name.startswith("holdfast"):
        return _find_full(name)
    first = name.partition(".")[0]
    if has_entry(owner, name):
        return f"{owner.__module__}.{owner.__qualname__}.{name}"
    inside = [module for module in MODULES if f"{context}.".startswith(f"{module}.")]
    for module in (max(inside, key=len, default=""), home_of(first)):
        if module and first in public_names(module):
            return _find_full(f"{module}.{name}")
    return f"holdfast.{name}" if f"holdfast.{name}" in MODULES else None


def _find_full(name):
    if name in MODULES:
        return name
    module = max((m for m in MODULES if name.startswith(f"{m}.")), key=len, default="")
    first, _, rest = name.removeprefix(f"{module}.").partition(".")
    if not module or first not in public_names(module):
        return None
    if module == "holdfast":
        module = home_of(first)
    if rest and not has_entry(look_up(f"{module}.{first}"), rest):
        return None
    return f"{module}.{first}.{rest}".rstrip(".")


def has_entry(owner, attribute):
    """Return whether a class has an entry, in which an attribute has one."""
    if not inspect.isclass(owner) or not is_public(owner):
        return False
    return attribute in documented_members(owner) or attribute in described_attributes(
        owner
    )


def is_foreign(name):
    """Return whether a name is one of Python, of its library, or of a library of others."""
    first, _, rest = name.partition(".")
    if first in sys.stdlib_module_names or first in _LIBRARIES:
        return look_up(name) is not None
    spaces = [builtins, *(sys.modules[space] for space in _NAMESPACES)]
    return any(hasattr(space, first) for space in spaces) and (
        not rest or look_up(name) is None
    )


@functools.cache
def plain_words():
    """Return the names of all parameters, options and attributes of what is public."""
    words = set()
    for module in MODULES:
        for name in public_names(module):
            value = getattr(sys.modules[module], name)
            words |= {*_parameters(value)}
            if inspect.isclass(value):
                words |= attributes_of(value)
                words |= {
                    p
                    for m in documented_members(value)
                    for p in _parameters(getattr(value, m))
                }
    return words


def _parameters(value):
    try:
        signature = inspect.signature(value)
    except (TypeError, ValueError):
        return
    for parameter in signature.parameters.values():
        yield parameter.name
        if unpacked := _UNPACKED.match(str(parameter).replace("'", "")):
            yield from options_of(unpacked["options"])


def written(text, context, value, error=""):
    """Return a name between single backticks of a docstring as reStructuredText.

    Args:
        text: The name, perhaps with parentheses.
        context: The full name of the object with the docstring.
        value: That object.
        error: The class of errors that the paragraph describes.
    """
    name = re.sub(r"\(.*\)$", "", text)
    owner = value if inspect.isclass(value) else look_up(context.rpartition(".")[0])
    raised = look_up(f"holdfast.errors.{error}") if error else None
    full = find(name, context, owner) or find(name, "holdfast.errors", raised)
    if full:
        return f":py:obj:`{text} <{full}>`"
    return f"``{text}``" if name in plain_words() or is_foreign(name) else f"`{text}`"


def with_options(signature):
    """Return a signature with the options behind ``**options`` by name."""
    match = _UNPACKED.search(signature)
    if match is None:
        return signature
    options = options_of(match["options"])
    if not options:
        return signature
    listed = ", ".join(f"{name}: {hint} = ..." for name, hint in options.items())
    before = signature[: match.start()]
    star = "" if "*" in before else "*, "
    return f"{before}{star}{listed}{signature[match.end() :]}"
