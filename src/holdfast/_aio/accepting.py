"""A wait before a server closes its port, so that no accepted connection leaks."""

from __future__ import annotations

import asyncio

__all__ = ["settle_accepted"]

_MIN_DELAY_S = 1e-9
"""The smallest delay for which the event loop creates a timer."""


async def settle_accepted() -> None:
    """Wait until the server has a transport for each connection that it accepted; then close it.

    An `asyncio.Server` accepts a connection in one iteration of the event loop, and creates its
    transport in the next. If the server is closed in between, creating the transport fails
    silently, and the connection stays open until it is garbage-collected, while its client waits
    for an answer. An iteration polls sockets before timers. So code that a timer wakes runs after
    the transports of all accepted connections were created, and before another connection is
    accepted. The protocols get their transports one iteration later.
    """
    await asyncio.sleep(_MIN_DELAY_S)
