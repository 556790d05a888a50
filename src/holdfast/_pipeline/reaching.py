"""The layer that bounds how far inside a network a call may lead, where nothing else does."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

import msgspec

from holdfast._pipeline.transport import Call, CallNext, PassThrough, Reply, Transport

if TYPE_CHECKING:
    from collections.abc import Coroutine
    from typing import Any

    from holdfast._wire.network_scope import Reach

__all__ = ["ReachLayer"]

P = TypeVar("P")
R = TypeVar("R")
T = TypeVar("T")


class ReachLayer(PassThrough):
    """Bounds where calls lead, over whatever binding: for an address that others named.

    Args:
        inner: What is below.
        reach: How far inside it may lie.
    """

    def __init__(self, inner: Transport, reach: Reach) -> None:
        super().__init__(inner)
        self._reach = reach

    def through(
        self, call: Call[P, R], onward: CallNext[P, R, T], /
    ) -> Coroutine[Any, Any, Reply[T]]:
        """Makes the call within its bounds."""
        if call.reach is None:
            call = msgspec.structs.replace(call, reach=self._reach)
        return onward(call)
