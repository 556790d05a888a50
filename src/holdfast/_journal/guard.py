"""Calls of a journal: each error is a `JournalError`, and each call has a time limit."""

from __future__ import annotations

from typing import TYPE_CHECKING, ParamSpec, TypeVar

from holdfast._aio.cancel_scope import wait_within
from holdfast.errors import JournalError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

__all__ = ["journal_timeout", "wrap_journal_errors"]

P = ParamSpec("P")
T = TypeVar("T")

_DEFAULT_TIMEOUT_S = 60.0
"""Time limit, in seconds, for recording a call and for listing calls."""


async def wrap_journal_errors(
    method: Callable[P, Awaitable[T]], *args: P.args, **kwargs: P.kwargs
) -> T:
    """Call a method of a journal.

    Raises:
        JournalError: The method raised it, or another exception, which is then the cause.
    """
    try:
        return await method(*args, **kwargs)
    except JournalError:
        raise
    except Exception as error:
        text = f"the journal failed: {type(error).__name__}: {error}"
        raise JournalError(text) from error


async def journal_timeout(work: Awaitable[T], seconds: float = _DEFAULT_TIMEOUT_S) -> T:
    """Wait for a journal within a time limit.

    Raises:
        JournalError: The journal did not answer in time.
    """

    def too_late() -> JournalError:
        return JournalError(f"the journal did not answer within {seconds:.3g} s")

    return await wait_within(seconds, work, too_late)
