"""Where a call would go, asked of the client itself: a call that stops right before it is sent.

All that may refuse a call is asked on its way: the version, the binding, the address, the origin
of credentials. Nothing is sent.
"""

from __future__ import annotations

from types import NoneType
from typing import TYPE_CHECKING, TypeVar, cast

from holdfast._model.operations import Operation
from holdfast._pipeline.transport import PassThrough, Reply

if TYPE_CHECKING:
    from collections.abc import Mapping

    from holdfast._client.client import Client
    from holdfast._pipeline.transport import Call
    from holdfast.types import AgentInterface

__all__ = ["DryRun", "rehearse"]

P = TypeVar("P")
R = TypeVar("R")

_REHEARSAL = Operation(
    name="choice of the interface",  # as --debug tells it
    request=NoneType,
    response=NoneType,
    safety="read",
    verb="GET",
    path="",
)


class DryRun(PassThrough):
    """An attempt layer that stops rehearsals, and lets everything else through."""

    async def unary(self, call: Call[P, R], /) -> Reply[R]:
        """Answers a rehearsal by the endpoint that it reached."""
        if call.operation.name == _REHEARSAL.name:
            return Reply(value=cast("R", None), endpoint=call.endpoint)
        return await super().unary(call)


async def rehearse(
    client: Client, *, timeout: float, headers: Mapping[str, str]
) -> AgentInterface:
    """Finds the interface that calls go to.

    Args:
        client: Has `DryRun` among its attempt layers.
        timeout: Seconds.
        headers: What calls carry.

    Raises:
        A2AError: Why calls would go nowhere.
    """
    reply = await client.call(_REHEARSAL, None, timeout=timeout, headers=headers)
    if reply.endpoint is None:
        message = "the client has no attempt layer for rehearsals"
        raise RuntimeError(message)
    return reply.endpoint.interface
