"""Values that contain secrets and do not show them."""

from __future__ import annotations

from typing import Any

__all__ = ["RedactedRepr"]


class RedactedRepr:
    """Mixin before `msgspec.Struct` for classes with a ``__repr__`` of their own.

    Without it, ``rich`` would print all members of a struct, also in tracebacks.
    """

    __slots__ = ()

    def __rich_repr__(self) -> Any:
        """Return None, so that ``rich`` uses ``repr``."""
        return None
