"""Objects that only ``async for`` reads."""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, Self, TypeVar

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

__all__ = ["AsyncOnly", "AsyncOnlyIterator"]

T = TypeVar("T")


class AsyncOnly:
    """Base class of asynchronous iterables: ``for`` and ``await`` raise an error with the fix.

    It defines ``__getitem__``, which ``for`` uses last, and not ``__iter__``: with that, other
    libraries would take the object for an iterable.
    """

    __slots__ = ()

    if not TYPE_CHECKING:  # so that type checkers refuse `for` and `await`, too

        def __getitem__(self, index: object) -> None:
            """Raise a TypeError: it is asynchronous."""
            text = f"use 'async for' for {_name(self)}, not 'for'; {_BLOCKING}"
            raise TypeError(text)

        def __await__(self) -> None:
            """Raise a TypeError: it is iterated over."""
            text = f"use 'async for' for {_name(self)}, not 'await'"
            raise TypeError(text)


class AsyncOnlyIterator(AsyncOnly, Generic[T]):
    """The items of an asynchronous generator.

    Args:
        name: Name of the iterator in errors.
        items: The generator.
    """

    def __init__(self, name: str, items: AsyncGenerator[T]) -> None:
        self.name = name
        self._items = items

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> T:
        return await anext(self._items)

    async def aclose(self) -> None:
        """Close the generator."""
        await self._items.aclose()


_BLOCKING = "holdfast.sync is for blocking code"


def _name(iterable: AsyncOnly) -> str:
    return iterable.name if isinstance(iterable, AsyncOnlyIterator) else type(iterable).__name__
