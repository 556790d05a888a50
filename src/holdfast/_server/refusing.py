"""Refusals that need only the head of a request; `ProtocolErrors` gives them their form."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from holdfast._push.asgi import ASGIReceive, ASGIScope, ASGISend, ShortReply, reply

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["Application", "refuse"]

Application = Callable[[ASGIScope, ASGIReceive, ASGISend], Awaitable[None]]


async def refuse(
    send: ASGISend, status: int, reason: str, headers: Mapping[str, str] | None = None
) -> None:
    """Answers a request with a status, and with the reason as the ``detail`` of a JSON object.

    Args:
        send: Where the answer goes.
        status: From 400 on.
        reason: One line, without a secret.
        headers: Besides those of the body; names in lower case.
    """
    kind = {"content-type": "application/json"}
    text = json.dumps({"detail": reason})
    await reply(send, ShortReply(status, text, {**(headers or {}), **kind}))
