"""A wait before a server closes its port, so that no accepted connection leaks."""

from __future__ import annotations

import asyncio

__all__ = ["settle_accepted"]

_MOMENT = 1e-9
"""Seconds; the smallest delay for which the event loop makes a timer."""


async def settle_accepted() -> None:
    """Wait until the server knows each connection that it has accepted; then it may close.

    An `asyncio.Server` accepts a connection in one turn of the event loop, and makes its transport
    in the next. If the server is closed in between, making the transport fails silently, and the
    connection stays open until it is garbage-collected, while its client waits for an answer. A
    turn polls sockets before timers. So code that a timer wakes runs after the transports of all
    accepted connections are made, and before another connection is accepted. The protocols get
    their transports one turn later.
    """
    await asyncio.sleep(_MOMENT)
