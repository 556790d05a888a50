"""Objects that only ``async for`` reads."""

from __future__ import annotations

from typing import TYPE_CHECKING

__all__ = ["AsyncOnly"]


class AsyncOnly:
    """Base class of asynchronous iterables: a plain ``for`` raises a TypeError that names the fix.

    It defines ``__getitem__``, which ``for`` uses last, and not ``__iter__``: with that, other
    libraries would take the object for an iterable.
    """

    __slots__ = ()

    if not TYPE_CHECKING:  # so that type checkers refuse `for`, too

        def __getitem__(self, index: object) -> None:
            """Raise a TypeError: it is asynchronous."""
            name = type(self).__name__
            text = f"use 'async for' for {name}, not 'for'; holdfast.sync is for blocking code"
            raise TypeError(text)
