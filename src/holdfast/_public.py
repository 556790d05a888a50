"""How a public module takes over the names that it gives to what private modules define."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any, get_type_hints

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = ["publish"]


def publish(
    module: str, lazy: Mapping[str, str] | None = None
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Make a module the home of the names in its ``__all__``, and load some of them when used.

    A class or a function that a private module defines names the public one as its ``__module__``
    from then on: so tracebacks, representations, pickles and references show what callers import.

    Args:
        module: The public module's ``__name__``.
        lazy: The module of each name that is expensive to import.

    Returns:
        Its ``__getattr__`` and ``__dir__`` (PEP 562).
    """
    home, later = sys.modules[module], dict(lazy or {})
    for name in home.__all__:
        if name not in later:
            _adopt(getattr(home, name), module)

    def load(name: str) -> Any:
        if name not in later:
            text = f"module {module!r} has no attribute {name!r}"
            raise AttributeError(text)
        value = getattr(import_module(later[name]), name)
        _adopt(value, module)
        setattr(home, name, value)
        return value

    return load, lambda: list(home.__all__)


def _adopt(value: Any, module: str) -> None:
    source = getattr(value, "__module__", None)
    if not (isinstance(source, str) and source.startswith("holdfast._") and callable(value)):
        return
    if hasattr(value, "__struct_fields__"):
        # msgspec looks the names in annotations up in the module that a class names as its own.
        hints = get_type_hints(value, include_extras=True)
        value.__annotations__ = {name: hints[name] for name in value.__annotations__}
    value.__module__ = module
