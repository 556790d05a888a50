"""Checks of the values that settings are made of."""

from __future__ import annotations

from collections.abc import Iterable

__all__ = ["check_kinds", "check_numbers"]


def check_numbers(settings: object, names: Iterable[str]) -> None:
    """Checks that settings are numbers, before they are compared with anything.

    Raises:
        TypeError: One is something else.
    """
    for name in names:
        value = getattr(settings, name)
        if not isinstance(value, int | float) or isinstance(value, bool):
            message = f"{name} must be a number, not {type(value).__name__}"
            raise TypeError(message)


def check_kinds(settings: object, **kinds: type | tuple[type, ...]) -> None:
    """Checks the classes of settings, by name.

    Raises:
        TypeError: One is of another class.
    """
    for name, kind in kinds.items():
        value = getattr(settings, name)
        if not isinstance(value, kind):
            first = kind[0] if isinstance(kind, tuple) else kind
            message = f"{name} must be a {first.__name__}, not {type(value).__name__}"
            raise TypeError(message)
