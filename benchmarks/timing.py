"""Timing of code that does not wait: CPU microseconds of one call, one round at a time.

The event loop runs once in `IN_A_ROW` calls, as it does with that many in flight: what a call
leaves behind in the loop (cancelled timers above all) is cleaned up as in earnest, and counted.

Only the standard library is needed, so that every Python can import this.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

IN_A_ROW = 32


async def microseconds(call: Callable[[], Awaitable[object]], *, calls: int) -> float:
    """CPU microseconds of awaiting one call, the mean of a round of `calls`."""
    before = time.process_time()
    for number in range(calls):
        await call()
        if number % IN_A_ROW == 0:
            await asyncio.sleep(0)
    return (time.process_time() - before) / calls * 1e6


def microseconds_of(function: Callable[[], object], *, seconds: float) -> float:
    """CPU microseconds of calling a function, the mean of a round of about `seconds`."""
    before = time.process_time()
    function()
    calls = max(1, int(seconds / (time.process_time() - before)))
    before = time.process_time()
    for _ in range(calls):
        function()
    return (time.process_time() - before) / calls * 1e6
