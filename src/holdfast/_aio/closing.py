"""Closing what others wrote: all of it whatever one of them raises, and none of it for ever."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Protocol, Self

from holdfast._aio.cancel_scope import CancelScope

if TYPE_CHECKING:
    from collections.abc import Iterable
    from types import TracebackType

__all__ = ["Closable", "ClosingContext", "close", "close_in_turn", "raise_first"]


class Closable(Protocol):
    """What can be closed."""

    async def close(self) -> None:
        """Frees everything."""
        ...


class ClosingContext(ABC):
    """An async context manager that is closed at its end."""

    __slots__ = ()

    @abstractmethod
    async def close(self) -> None:
        """Frees everything."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()


async def close(thing: Closable, *, seconds: float) -> None:
    """Closes one thing.

    Raises:
        TimeoutError: It took longer than `seconds`, and was given up.
    """
    async with CancelScope.within(seconds) as scope:
        await thing.close()
    if scope.expired:
        message = f"{type(thing).__name__} did not close within {seconds:g} s"
        raise TimeoutError(message)


async def close_in_turn(things: Iterable[Closable], *, seconds: float) -> None:
    """Closes one thing after another, each within `seconds`; raises the first error at the end."""
    errors: list[BaseException] = []
    for thing in things:
        try:
            await close(thing, seconds=seconds)
        except BaseException as error:  # noqa: BLE001  raised below, a cancellation before all
            errors.append(error)
    raise_first(errors)


def raise_first(outcomes: Iterable[BaseException | None]) -> None:
    """Raises the first error that there is; a cancellation comes before all others."""
    errors = [outcome for outcome in outcomes if outcome is not None]
    for error in sorted(errors, key=lambda error: isinstance(error, Exception)):
        raise error
