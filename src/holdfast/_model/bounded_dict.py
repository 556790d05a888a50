"""A dict of bounded size, for keys that others choose."""

from __future__ import annotations

import contextlib
from typing import TypeVar

__all__ = ["BoundedDict"]

K = TypeVar("K")
V = TypeVar("V")


class BoundedDict(dict[K, V]):
    """Dict that keeps the entries that were set last, and drops the oldest.

    Set entries by assignment only, not with `update` or `setdefault`.

    Args:
        most: Maximum number of entries, at least 1.
    """

    __slots__ = ("_most",)

    def __init__(self, most: int) -> None:
        super().__init__()
        self._most = most

    def __setitem__(self, key: K, value: V) -> None:
        self.pop(key, None)
        super().__setitem__(key, value)
        if len(self) > self._most:
            with contextlib.suppress(KeyError, RuntimeError):  # another thread removed it
                del self[next(iter(self))]
