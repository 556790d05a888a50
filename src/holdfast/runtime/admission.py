"""How many calls of a client are under way at once, and who waits for a place.

Rules: first come, first served; an open stream keeps its place; a call that is made for another
one which has a place needs none, so that nobody waits for themselves.
"""

from __future__ import annotations

import asyncio
import math
from typing import TYPE_CHECKING, TypeVar

from holdfast.errors import QueueFullError
from holdfast.runtime.open_streams import replaced
from holdfast.runtime.transport import (
    AnyCall,
    Call,
    Onward,
    PassThrough,
    Reply,
    Stream,
    StreamOver,
    Transport,
)
from holdfast.runtime.waiting import until
from holdfast.runtime.waiting_line import WaitingLine

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast.policy.limiter import ConcurrencyPolicy
    from holdfast.runtime.perloop import PerLoop

__all__ = ["Admission", "AdmissionLayer"]

P = TypeVar("P")
R = TypeVar("R")
T = TypeVar("T")


_PATIENCE = 900.0
"""Seconds that a call waits for a place which has no deadline."""


class Admission:
    """A number of places, and a line of those who wait for one.

    Args:
        places: How many there are.
    """

    def __init__(self, places: int) -> None:
        self._places = self._free = places
        self._line = WaitingLine(self.leave)

    @property
    def taken(self) -> int:
        """How many places are taken."""
        return self._places - self._free

    @property
    def waiting(self) -> int:
        """How many wait."""
        return len(self._line)

    def enter_at_once(self) -> bool:
        """Takes a place, if one is free and nobody waits for it."""
        if self._free == 0:
            return False
        self._free -= 1
        return True

    async def enter(self) -> None:
        """Waits for a place, and takes it."""
        await self._line.wait()

    def leave(self) -> None:
        """Gives the place to the next, or back."""
        if not self._line.let_in():
            self._free += 1


class AdmissionLayer(PassThrough):
    """Lets in as many calls at once as its caller wants."""

    def __init__(
        self, inner: Transport, policy: ConcurrencyPolicy, admissions: PerLoop[Admission]
    ) -> None:
        super().__init__(inner)
        self._policy = policy
        self._admissions = admissions

    async def through(self, call: Call[P, R], onward: Onward[P, R, T], /) -> Reply[T]:
        leave = await self._let_in(call)
        try:
            return await onward(call)
        finally:
            leave()

    async def stream(self, call: Call[P, R], /) -> Reply[Stream[R]]:
        leave = await self._let_in(call)
        try:
            reply = await self._inner.stream(call)
        except BaseException:
            leave()
            raise
        return replaced(reply, _Admitted(reply.value, leave))

    async def _let_in(self, call: AnyCall) -> Callable[[], None]:
        """Waits until the call may go on, and gives what is to be called when it is over.

        Raises:
            QueueFullError: Too many wait already, or this one has waited for too long.
        """
        admission, errand = self._admissions.here(), call.progress.errand
        needs_place = not errand.places
        if needs_place and not admission.enter_at_once():
            if admission.waiting >= self._policy.queue:
                raise self._full(call, f"{admission.waiting} wait")
            call.progress.awaits = "place among the calls under way"
            await self._enter(admission, call)
            call.progress.awaits = None
        errand.places += 1

        def leave() -> None:
            errand.places -= 1
            if needs_place:
                admission.leave()

        return leave

    async def _enter(self, admission: Admission, call: AnyCall) -> None:
        """Waits for a place; a stream without a deadline waits no longer than other calls do.

        Raises:
            QueueFullError: No place was free for so long.
        """
        if call.deadline.at < math.inf:
            await admission.enter()  # who watches the deadline ends it
            return

        def too_late() -> QueueFullError:
            return self._full(call, f"no place was free for {_PATIENCE:g} s")

        at = asyncio.get_running_loop().time() + _PATIENCE
        await until(at, admission.enter(), too_late)

    def _full(self, call: AnyCall, why: str) -> QueueFullError:
        return QueueFullError(
            f"{self._policy.limit} calls are under way, and {why}; nothing was sent",
            executed=False,
            transient=True,
            request_id=call.request_id,
        )


class _Admitted(StreamOver[T]):
    """Keeps the place of a stream until it is closed."""

    def __init__(self, inner: Stream[T], leave: Callable[[], None]) -> None:
        super().__init__(inner)
        self.at_hand = inner.at_hand
        self._leave: Callable[[], None] | None = leave

    async def close(self) -> None:
        leave, self._leave = self._leave, None
        try:
            await super().close()
        finally:
            if leave is not None:
                leave()
