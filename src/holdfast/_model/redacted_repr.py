"""Representations of values: without secrets, and in one line of bounded length."""

from __future__ import annotations

from enum import Enum
from typing import Any

from holdfast._model.error_values import one_line

__all__ = ["RedactedRepr", "short_repr"]

_MAX_TEXT_CHARS = 60
"""Characters of each text that a short representation quotes."""


class RedactedRepr:
    """Mixin before `msgspec.Struct` for classes with a ``__repr__`` of their own.

    Without it, ``rich`` would print all members of a struct, also in tracebacks.
    """

    __slots__ = ()

    def __rich_repr__(self) -> Any:
        """Return None, so that ``rich`` uses ``repr``."""
        return None


def short_repr(value: object, **facts: object) -> str:
    """Return ``Type(fact=value, …)``, without facts that are None, False or empty."""
    shown = [f"{name}={_shown(fact)}" for name, fact in facts.items() if fact]
    return f"{type(value).__name__}({', '.join(shown)})"


def _shown(fact: object) -> str:
    if isinstance(fact, Enum):
        return one_line(repr(fact.name)[1:-1], _MAX_TEXT_CHARS)
    return repr(one_line(fact, _MAX_TEXT_CHARS)) if isinstance(fact, str) else repr(fact)
