"""Values that hold secrets, and show none of them."""

from __future__ import annotations

from typing import Any

__all__ = ["RedactedRepr"]


class RedactedRepr:
    """Comes before `msgspec.Struct` where a class has a ``__repr__`` of its own.

    A struct tells ``rich`` all its members besides, which prints them, and puts them into
    tracebacks.
    """

    __slots__ = ()

    def __rich_repr__(self) -> Any:
        """Tells nothing, so that ``repr`` is what is shown."""
        return None
