"""What a journal is asked: whatever it raises is a `JournalError`, and its silence has an end."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, ParamSpec, TypeVar

from holdfast._aio.cancel_scope import wait_until
from holdfast.errors import JournalError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

__all__ = ["in_time", "said"]

P = ParamSpec("P")
T = TypeVar("T")

_LONGEST = 60.0
"""Seconds that a journal has to write a call down, or to tell of calls, if nobody says less."""


async def said(method: Callable[P, Awaitable[T]], *args: P.args, **kwargs: P.kwargs) -> T:
    """What a journal says.

    Raises:
        JournalError: Whatever it has raised; that is its cause, if it is another error.
    """
    try:
        return await method(*args, **kwargs)
    except JournalError:
        raise
    except Exception as error:
        text = f"the journal has failed: {type(error).__name__}: {error}"
        raise JournalError(text) from error


async def in_time(work: Awaitable[T], seconds: float = _LONGEST) -> T:
    """Waits for a journal, and no longer than some seconds.

    Raises:
        JournalError: It has not answered.
    """

    def too_late() -> JournalError:
        return JournalError(f"the journal has not answered within {seconds:.3g} s")

    return await wait_until(asyncio.get_running_loop().time() + seconds, work, too_late)
