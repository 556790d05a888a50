"""Telling a caller's listener of a retry, which can do no harm."""

from __future__ import annotations

import asyncio
import inspect
import logging
import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from holdfast._integrations.a2a_sdk.retry_config import OnRetry

__all__ = ["tell"]

_LISTENING = 10.0
"""Seconds that a listener has."""

logger = logging.getLogger("holdfast")


async def tell(
    on_retry: OnRetry, attempt: int, error: Exception, delay: float, *, until: float = math.inf
) -> None:
    """Tells a listener, for a while; what it raises is logged, and changes nothing.

    Args:
        on_retry: The listener.
        attempt: The number of the retry, from 1.
        error: What the SDK's user would catch.
        delay: Seconds until the retry.
        until: When it has to be done at the latest, on the event loop's clock.
    """
    limit = min(until, asyncio.get_running_loop().time() + _LISTENING)
    asked_to_end = _cancelling()
    try:
        async with asyncio.timeout_at(limit):
            telling = on_retry(attempt, error, delay)
            if inspect.isawaitable(telling):
                await telling
    except (Exception, asyncio.CancelledError) as failed:
        # Not every cancellation is one of the caller's: the listener may wait for others.
        if isinstance(failed, asyncio.CancelledError) and _cancelling() > asked_to_end:
            raise
        # The log is to tell of the listener, not of the call: in an error of the SDK there may be
        # an address with a secret.
        failed.__context__ = None
        logger.exception("on_retry failed, which changes nothing")


def _cancelling() -> int:
    """How often the running task was asked to end."""
    task = asyncio.current_task()
    return 0 if task is None else task.cancelling()
