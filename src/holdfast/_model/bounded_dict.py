"""A dict of bounded size, for keys that others choose."""

from __future__ import annotations

import contextlib
from typing import TypeVar

__all__ = ["BoundedDict"]

K = TypeVar("K")
V = TypeVar("V")


class BoundedDict(dict[K, V]):
    """A dict that keeps the entries that were set last, and forgets the oldest of the others.

    Only assignment counts as setting an entry; do not use `update` or `setdefault`.

    Args:
        most: How many entries to keep, at least 1.
    """

    __slots__ = ("_most",)

    def __init__(self, most: int) -> None:
        super().__init__()
        self._most = most

    def __setitem__(self, key: K, value: V) -> None:
        self.pop(key, None)
        super().__setitem__(key, value)
        if len(self) > self._most:
            with contextlib.suppress(KeyError, RuntimeError):  # another thread was quicker
                del self[next(iter(self))]
