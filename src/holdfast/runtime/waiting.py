"""Waiting until a moment, and no longer."""

from __future__ import annotations

import asyncio
import math
from typing import TYPE_CHECKING, TypeVar

from holdfast.errors import A2AError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

__all__ = ["until"]

T = TypeVar("T")


async def until(at: float, awaitable: Awaitable[T], too_late: Callable[[], A2AError]) -> T:
    """Waits for something until a moment on the event loop's clock.

    Args:
        at: The moment; infinity for none.
        awaitable: What to wait for.
        too_late: Makes the error to raise at that moment.
    """
    scope = asyncio.timeout_at(None if at == math.inf else at)
    try:
        async with scope:
            return await awaitable
    except TimeoutError as error:
        # Our own timeouts are TimeoutErrors too, and pass through here on their way up.
        if not scope.expired() or isinstance(error, A2AError):
            raise
        raise too_late() from None
