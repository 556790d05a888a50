"""Bindings that are not HTTP: their transports stand beside the one that is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from holdfast._aio.closing import close_in_turn
from holdfast._pipeline.transport import BaseLayer

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Mapping

    from holdfast._pipeline.transport import AnyCall, Call, Reply, Stream, Transport

__all__ = ["BindingRouter"]

P = TypeVar("P")
R = TypeVar("R")

_CLOSING = 5.0
"""Seconds that one of them has to close."""


class BindingRouter(BaseLayer):
    """Hands a call to the transport of its binding.

    Args:
        inner: Carries all others.
        makers: What makes the transports, by binding: for the first call of each.
    """

    def __init__(self, inner: Transport, makers: Mapping[str, Callable[[], Transport]]) -> None:
        super().__init__(inner)
        self._makers = makers
        self._made: dict[str, Transport] = {}

    def unary(self, call: Call[P, R], /) -> Coroutine[Any, Any, Reply[R]]:
        return self._of(call).unary(call)

    def stream(self, call: Call[P, R], /) -> Coroutine[Any, Any, Reply[Stream[R]]]:
        return self._of(call).stream(call)

    async def close(self) -> None:
        """Closes all that were made, and those below."""
        await close_in_turn([*self._made.values(), self._inner], seconds=_CLOSING)

    def _of(self, call: AnyCall) -> Transport:
        binding = "" if call.endpoint is None else call.endpoint.interface.protocol_binding
        made = self._made.get(binding)
        if made is None:
            maker = self._makers.get(binding)
            if maker is None:
                return self._inner
            made = self._made.setdefault(binding, maker())
        return made
