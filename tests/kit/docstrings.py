"""The docstrings of what is public: their sections, their names and their examples."""

import dataclasses
import enum
import importlib
import inspect
import math
import re
import textwrap
import typing

import msgspec
from tests.kit.public_names import SUBJECTS

import holdfast

__all__ = [
    "MODULES",
    "entries",
    "examples",
    "inherited_entries",
    "is_a_public_name",
    "option_names",
    "parameters",
    "public_texts",
    "section",
    "spellings",
]

MODULES = [
    *SUBJECTS,
    *(
        importlib.import_module(f"holdfast.{name}")
        for name in (
            "auth.oauth",
            "integrations.a2a_sdk",
            "integrations.httpx",
            "integrations.httpx2",
            "server",
            "testing",
        )
    ),
]
"""The public modules whose names have docstrings of their own."""

OPTION_TYPES = {
    name: value
    for module in MODULES
    for name in module.__all__
    if typing.is_typeddict(value := getattr(module, name))
}
"""The types of options, which functions take by keyword."""


@dataclasses.dataclass(frozen=True)
class Text:
    """The docstring of a public module, class, function, method or property.

    `thing` is what it describes, `owner` the class whose member that is, or the class itself.
    """

    name: str
    doc: str
    thing: object
    owner: type | None = None


def is_ours(value):
    return (getattr(value, "__module__", None) or "").startswith("holdfast")


def public_texts():
    """Every docstring that the public modules own."""
    for module in [holdfast, *MODULES]:
        yield Text(module.__name__, inspect.cleandoc(module.__doc__), module)
    for module in MODULES:
        for name in module.__all__:
            value, path = getattr(module, name), f"{module.__name__}.{name}"
            if is_ours(value) and inspect.isfunction(value):
                yield Text(path, inspect.cleandoc(value.__doc__), value)
            elif is_ours(value) and inspect.isclass(value):
                yield Text(path, inspect.cleandoc(vars(value)["__doc__"]), value, value)
                for member, plain in members(value):
                    if plain.__doc__:
                        doc = inspect.cleandoc(plain.__doc__)
                        yield Text(f"{path}.{member}", doc, vars(value)[member], value)


def members(owner):
    """The methods and properties of a class that callers use."""
    for name, member in vars(owner).items():
        plain = getattr(member, "__func__", getattr(member, "fget", member))
        if inspect.isfunction(plain) and (not name.startswith("_") or name == "__call__"):
            yield name, plain


def section(doc, name):
    """The lines of a section of a docstring, as one text; empty where it has none."""
    found = re.search(rf"^{name}:\n((?:    .*\n|\n)+)", f"{doc}\n", flags=re.MULTILINE)
    return found[1] if found else ""


def entries(doc, sections=("Args", "Attributes")):
    """The text of each argument or attribute that a docstring describes, by name."""
    found, name = {}, None
    for line in "".join(section(doc, each) for each in sections).splitlines():
        if match := re.match(r" {4}\*{0,2}(\w+): (.*)", line):
            name = match[1]
            found[name] = f"{found.get(name, '')} {match[2]}".strip()
        elif name and line.strip():
            found[name] += f" {line.strip()}"
    return found


def inherited_entries(text):
    """The entries of a docstring, and those of the base classes that it completes."""
    if text.owner is None:
        return entries(text.doc)
    found = {}
    for base in reversed(text.owner.__mro__):
        member = base if text.owner is text.thing else vars(base).get(text.name.rpartition(".")[2])
        member = getattr(member, "__func__", getattr(member, "fget", member))
        found |= entries(inspect.cleandoc(getattr(member, "__doc__", None) or ""))
    return found


def parameters(text, made_by_the_library):
    """What a caller passes, with the defaults: the parameters of a function or constructor."""
    thing = text.thing
    if isinstance(thing, property) or inspect.ismodule(thing) or is_defined_elsewhere(text):
        return {}
    if inspect.isclass(thing):
        if issubclass(thing, BaseException | enum.Enum) or typing.is_typeddict(thing):
            return {}
        if thing.__name__ in made_by_the_library or getattr(thing, "_is_protocol", False):
            return {}
        if issubclass(thing, msgspec.Struct):
            fields, defaults = thing.__struct_fields__, thing.__struct_defaults__
            return dict.fromkeys(fields) | dict(
                zip(fields[len(fields) - len(defaults) :], defaults, strict=True)
            )
    signature = inspect.signature(getattr(thing, "__func__", thing))
    return {
        name: parameter.default
        for name, parameter in signature.parameters.items()
        if name not in {"self", "cls"} and not name.startswith("_")
    }


def is_defined_elsewhere(text):
    """Whether a method overrides one of another library, which describes its arguments."""
    if text.owner is None or text.owner is text.thing:
        return False
    name = text.name.rpartition(".")[2]
    return any(name in vars(base) for base in text.owner.__mro__ if not is_ours(base))


def option_names(text):
    """The options that a function takes by keyword (``**options: Unpack[…]``), by parameter."""
    function = text.owner.__init__ if inspect.isclass(text.thing) else text.thing
    function = getattr(function, "__func__", function)
    for parameter, kind in getattr(function, "__annotations__", {}).items():
        if match := re.fullmatch(r"Unpack\[(\w+Options)\]", str(kind)):
            yield parameter, list(OPTION_TYPES[match[1]].__annotations__)


def spellings(default):
    """How a docstring may write a default; empty for one that it need not state."""
    match default:
        case bool():
            return [
                f"{default} by default",
                f"{default}, the default",
                f"the default is {default}",
            ]
        case enum.Enum() | 0:
            return []
        case int() | float() if math.isfinite(default):
            powers = {"KiB": 1024, "MiB": 1024**2, "GiB": 1024**3}
            sizes = [f"{default / size:g} {unit}" for unit, size in powers.items()]
            return [f"{default:g}", f"{default:,}", f"{default:,.0f}", oct(int(default)), *sizes]
        case str() if default.strip():
            return [default]
        case _:
            return []


def examples(doc):
    """The code of a docstring's example; empty where it has none."""
    text = section(doc, "Example")
    return [textwrap.dedent(text.partition("::\n\n")[2])] if text else []


def is_a_public_name(name, owner=None):
    """Whether single backticks around a name lead to its reference.

    It is a path that begins with ``holdfast.``, a name that a public module exports with or
    without a member of it, or a member of the class whose docstring it is in.
    """
    head, _, rest = name.partition(".")
    if head == "holdfast":
        return not rest or is_path(rest)
    exported = {each: getattr(module, each) for module in MODULES for each in module.__all__}
    if head in exported:
        return not rest or has_member(exported[head], rest)
    return owner is not None and has_member(owner, name)


def is_path(path):
    names = {module.__name__.partition(".")[2]: module for module in MODULES}
    names |= {name: importlib.import_module(f"holdfast.{name}") for name in ("sync",)}
    if path in names or path in holdfast.__all__:
        return True
    head, _, rest = path.partition(".")
    if head in holdfast.__all__:
        return has_member(getattr(holdfast, head), rest)
    return any(
        path.startswith(f"{name}.") and is_exported(module, path.removeprefix(f"{name}."))
        for name, module in names.items()
    )


def is_exported(module, path):
    head, _, rest = path.partition(".")
    return head in module.__all__ and (not rest or has_member(getattr(module, head), rest))


def has_member(owner, path):
    name, _, rest = path.partition(".")
    if rest or not inspect.isclass(owner) or name.startswith("_"):
        return False
    described = entries(inspect.cleandoc(owner.__doc__ or ""), ["Attributes"])
    return hasattr(owner, name) or name in described
