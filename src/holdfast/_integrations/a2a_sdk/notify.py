"""Calling the caller's listener before a retry, so that it can do no harm."""

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
"""Seconds that a listener has."""

logger = logging.getLogger("holdfast")


async def notify(
    on_retry: OnRetry, attempt: int, error: Exception, delay: float, *, until: float = math.inf
) -> None:
    """Calls a listener, for a while; what it raises is logged, and changes nothing.

    Args:
        on_retry: The listener.
        attempt: The number of the retry, from 1.
        error: What the SDK's user would catch.
        delay: Seconds until the retry.
        until: When it has to be done at the latest, on the event loop's clock.
    """
    at = min(until, asyncio.get_running_loop().time() + _LISTENER_TIMEOUT_S)

    async def listen() -> None:
        telling = on_retry(attempt, error, delay)
        if inspect.isawaitable(telling):
            await telling

    try:
        # A cancellation may be one of those that the listener waits for, and not the caller's.
        await wait_until(at, reject_self_cancellation(listen()), _too_long)
    except Exception as failed:
        # The log is to tell of the listener, not of the call: in an error of the SDK there may be
        # an address with a secret.
        failed.__context__ = None
        logger.exception("on_retry failed, which changes nothing")


def _too_long() -> TimeoutError:
    return TimeoutError(f"on_retry took longer than {_LISTENER_TIMEOUT_S:g} s")
