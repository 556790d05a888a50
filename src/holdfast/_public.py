"""Publication of private classes and functions under the names of public modules."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any, get_type_hints

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

__all__ = ["missing_name", "publish"]

_COMMON_MODULES = ("auth", "client", "errors", "extend", "observe", "policies", "push", "types")
"""Public modules in which a name is searched that the package lacks; none needs an extra."""


def publish(
    module: str, lazy: Mapping[str, str] | None = None
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Make a module the home of the names in its ``__all__``, and load some of them when used.

    A class or function of a private module gets the public one as its ``__module__``, so that
    tracebacks, representations, pickles and references show the name that callers import.

    Args:
        module: The public module's ``__name__``.
        lazy: Private modules, without ``holdfast.``, that are imported with the first use of one
            of their names, and those names, separated by spaces.

    Returns:
        Its ``__getattr__`` and ``__dir__`` (PEP 562).
    """
    home = sys.modules[module]
    pending = {f"holdfast.{source}": names.split() for source, names in (lazy or {}).items()}
    source_of = {name: source for source, names in pending.items() for name in names}
    for name in home.__all__:
        if name not in source_of:
            _adopt(getattr(home, name), module)

    def load(name: str) -> Any:
        if name not in source_of:
            text = f"module {module!r} has no attribute {name!r}"
            raise AttributeError(text)
        import_module(source_of[name])
        # Importing one module often loads others, whose classes callers may meet before they
        # import them by name.
        for source, published in list(pending.items()):
            if _is_loaded(source):
                for each in published:
                    value = getattr(sys.modules[source], each)
                    _adopt(value, module)
                    setattr(home, each, value)
                pending.pop(source, None)  # after all are there: another thread may do the same
        return vars(home)[name]

    return load, lambda: list(home.__all__)


def _is_loaded(module: str) -> bool:
    """Return whether a module is imported, and no thread is still executing it."""
    spec = getattr(sys.modules.get(module), "__spec__", None)
    return spec is not None and not getattr(spec, "_initializing", False)


def _adopt(value: Any, module: str) -> None:
    source = getattr(value, "__module__", None)
    if not (isinstance(source, str) and source.startswith("holdfast._") and callable(value)):
        return
    if hasattr(value, "__struct_fields__"):
        # msgspec looks the names in annotations up in the module that a class names as its own.
        hints = get_type_hints(value, include_extras=True)
        value.__annotations__ = {name: hints[name] for name in value.__annotations__}
    value.__module__ = module


def missing_name(name: str, names: Sequence[str]) -> Exception:
    """Return the error of a name that the package does not have, with the right name.

    Python drops the text of an AttributeError in ``from holdfast import Name``. Its import system
    asks for the name first, and gets an ImportError.

    Args:
        name: The missing name.
        names: The public names of the package.
    """
    text = f"module 'holdfast' has no attribute {name!r}"
    if name.startswith("_"):
        return AttributeError(text)
    homes = [
        f"holdfast.{module}"
        for module in _COMMON_MODULES
        if name in import_module(f"holdfast.{module}").__all__
    ]
    if homes:
        hint = f"; it is in {homes[0]}"
    else:
        from holdfast._model.settings import suggestion

        closest = suggestion(name, names)
        hint = f"; {closest}" if closest.endswith("?") else ""
    asker = sys._getframe(2).f_code  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
    if hint and asker.co_name == "_handle_fromlist" and "importlib" in asker.co_filename:
        return ImportError(f"cannot import name {name!r} from 'holdfast'{hint}", name="holdfast")
    return AttributeError(f"{text}{hint if homes else ''}")  # a traceback adds the closest name
