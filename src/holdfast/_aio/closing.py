"""Close caller-supplied objects: all of them even if one raises, each within a time limit."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Protocol, Self

from holdfast._aio.cancel_scope import CancelScope

if TYPE_CHECKING:
    from collections.abc import Iterable
    from types import TracebackType

__all__ = ["Closable", "ClosingContext", "close", "close_in_turn", "raise_first"]


class Closable(Protocol):
    """An object that can be closed."""

    async def close(self) -> None:
        """Free all resources."""
        ...


class ClosingContext(ABC):
    """An async context manager that closes itself at its end."""

    __slots__ = ()

    @abstractmethod
    async def close(self) -> None:
        """Free all resources."""

    async def __aenter__(self) -> Self:
        return self

    if not TYPE_CHECKING:  # so that type checkers refuse `with`, too

        def __enter__(self) -> None:
            """Raise a TypeError: it is an async context manager."""
            name = type(self).__name__
            text = f"use 'async with' for {name}, not 'with'; holdfast.sync is for blocking code"
            raise TypeError(text)

        def __exit__(self, *error: object) -> None:
            """Do nothing: `__enter__` raises."""

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()


async def close(closable: Closable, *, seconds: float) -> None:
    """Close one object.

    Raises:
        TimeoutError: It took longer than `seconds` seconds, and was cancelled.
    """
    async with CancelScope.within(seconds) as scope:
        await closable.close()
    if scope.expired:
        message = f"{type(closable).__name__} did not close within {seconds:g} s"
        raise TimeoutError(message)


async def close_in_turn(closables: Iterable[Closable], *, seconds: float) -> None:
    """Close objects one by one, each within `seconds`, and raise the first error at the end."""
    errors: list[BaseException] = []
    for closable in closables:
        try:
            await close(closable, seconds=seconds)
        except BaseException as error:  # noqa: BLE001  raised below, a cancellation first
            errors.append(error)
    raise_first(errors)


def raise_first(outcomes: Iterable[BaseException | None]) -> None:
    """Raise the first error, if any; a cancellation takes precedence."""
    errors = [outcome for outcome in outcomes if outcome is not None]
    for error in sorted(errors, key=lambda error: isinstance(error, Exception)):
        raise error
