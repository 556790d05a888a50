"""What has to happen before a port is closed, so that no connection to it is lost."""

from __future__ import annotations

import asyncio

__all__ = ["settle_accepted"]

_MOMENT = 1e-9
"""Seconds: as few as make a timer."""


async def settle_accepted() -> None:
    """Waits until each connection that was accepted is known to its server, which may close then.

    An `asyncio.Server` accepts a connection in one turn of the event loop, and makes its transport
    in the next. If it is closed in between, that fails without a word, and the connection stays
    open until garbage collection finds it, with a client that waits for an answer. A turn looks at
    sockets before timers, so whoever was woken by a timer comes after the transports of all that
    was accepted, and before anything else is. Their protocols get them one turn later.
    """
    await asyncio.sleep(_MOMENT)
