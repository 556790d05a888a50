"""Calls the caller's listener before a retry, isolated from the call."""

from __future__ import annotations

import asyncio
import inspect
import logging
import math
from typing import TYPE_CHECKING

from holdfast._aio.callbacks import reject_self_cancellation
from holdfast._aio.cancel_scope import wait_until

if TYPE_CHECKING:
    from holdfast._integrations.a2a_sdk.retry_config import OnRetry

__all__ = ["notify"]

_LISTENER_TIMEOUT_S = 10.0
"""Time limit of a listener, in seconds."""

logger = logging.getLogger("holdfast")


async def notify(
    on_retry: OnRetry, attempt: int, error: Exception, delay: float, *, until: float = math.inf
) -> None:
    """Call a listener within a time limit; its errors are logged and do not affect the call.

    Args:
        on_retry: The listener.
        attempt: The number of the retry, from 1.
        error: The error, as the SDK's user would catch it.
        delay: Seconds until the retry.
        until: When it must end at the latest, in seconds on the event loop's clock.
    """
    at = min(until, asyncio.get_running_loop().time() + _LISTENER_TIMEOUT_S)

    async def listen() -> None:
        notification = on_retry(attempt, error, delay)
        if inspect.isawaitable(notification):
            await notification

    try:
        # A cancellation may come from within the listener instead of the caller.
        await wait_until(at, reject_self_cancellation(listen()), _too_long)
    except Exception as failed:
        # The log describes the listener, not the call: an error of the SDK may contain an address
        # with a secret.
        failed.__context__ = None
        logger.exception("on_retry failed; the retry continues")


def _too_long() -> TimeoutError:
    return TimeoutError(f"on_retry took longer than {_LISTENER_TIMEOUT_S:g} s")
