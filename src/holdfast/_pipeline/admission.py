"""How many calls are under way at once, and who waits for a place.

Rules: first come, first served, and a place is handed over; an open stream keeps its place; a call
that is made for another one which has a place needs none, so that nobody waits for themselves.
"""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from holdfast._aio.semaphore import WaitingLine
from holdfast._aio.waiting import until
from holdfast._pipeline.open_streams import replaced
from holdfast._pipeline.transport import (
    AnyCall,
    Call,
    CallNext,
    PassThrough,
    Reply,
    Stream,
    StreamWrapper,
    Transport,
)
from holdfast.errors import QueueFullError

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast._aio.per_loop import PerLoop
    from holdfast._policy.limiter import ConcurrencyPolicy

__all__ = ["Admission", "AdmissionLayer", "AdmissionLine"]

P = TypeVar("P")
R = TypeVar("R")
T = TypeVar("T")


_PATIENCE = 900.0
"""Seconds that a call waits for a place which has no deadline."""


class AdmissionLine:
    """Those who wait in one line, by whom they want to call."""

    def __init__(self) -> None:
        self.waiting: dict[str, WaitingLine] = {}  # in order of turns, and none of them empty

    def __len__(self) -> int:
        return sum(map(len, self.waiting.values()))


class Admission:
    """A number of places, and lines of those who wait for one.

    Within a line, who came first comes first; the lines take turns, however long one of them is.
    Who is called leaves as many places free as it has, so that one that never answers cannot take
    all of them: the dynamic threshold of shared buffers (Choudhury and Hahne, IEEE/ACM
    Transactions on Networking 6, 1998).

    Args:
        places: How many there are.
        are_shared: Whether others than the one who has places may need them.
    """

    def __init__(self, places: int, are_shared: Callable[[], bool] = lambda: False) -> None:
        self._places = self._free = places
        self._are_shared = are_shared
        self._taken = Counter[str]()
        self._line = AdmissionLine()
        self._lines: dict[AdmissionLine, None] = {}  # where somebody waits, in order of turns
        self._wanted = Counter[str]()  # in how many lines somebody waits to call each

    @property
    def taken(self) -> int:
        """How many places are taken."""
        return self._places - self._free

    @property
    def places(self) -> int:
        """How many there are."""
        return self._places

    @property
    def holders(self) -> tuple[str, ...]:
        """Who is called by those that have places, in order of how many."""
        return tuple(name for name, _ in self._taken.most_common())

    @property
    def waiting(self) -> int:
        """How many wait."""
        return sum(map(len, self._lines))

    def enter_at_once(self, name: str = "") -> bool:
        """Takes a place to call somebody, if one is free; nobody waits for such a one then."""
        if not self._is_free_for(name):
            return False
        self._take(name)
        return True

    async def enter(self, line: AdmissionLine | None = None, name: str = "") -> None:
        """Takes a place as soon as there is one.

        Args:
            line: Where to wait for it; in the line of all who name none if left out.
            name: Who is to be called.
        """
        if self.enter_at_once(name):
            return
        line = self._line if line is None else line
        waiting = line.waiting.get(name)
        if waiting is None:
            waiting = line.waiting[name] = WaitingLine(partial(self.leave, name))
            self._wanted[name] += 1
        self._lines.setdefault(line)
        try:
            await waiting.wait()
        finally:
            if not len(waiting) and line.waiting.get(name) is waiting:
                self._drop(line, name)

    def leave(self, name: str = "") -> None:
        """Gives a place back, and to the next who may have it."""
        self._free += 1
        _count_down(self._taken, name)
        while self._free > 0 and any(map(self._is_free_for, self._wanted)):
            self._let_in()

    def dismiss(self, name: str) -> None:
        """Ends the waits of all who want to call somebody that is gone: they leave at once."""
        for line in [line for line in self._lines if name in line.waiting]:
            waiting = line.waiting[name]
            self._drop(line, name)
            while waiting.let_in():
                self._take(name)  # more than there are, for a moment

    def _is_free_for(self, name: str) -> bool:
        return self._free > (self._taken[name] if self._are_shared() else 0)

    def _take(self, name: str) -> None:
        self._free -= 1
        self._taken[name] += 1

    def _let_in(self) -> None:
        """Gives a place to the first who may have it, of the next line; there is one."""
        line, name = next(
            (line, name)
            for line in self._lines
            for name in line.waiting
            if self._is_free_for(name)
        )
        waiting = line.waiting[name]
        self._drop(line, name)
        if waiting.let_in():  # else all of them are about to leave
            self._take(name)
            if len(waiting):
                line.waiting[name] = waiting
                self._wanted[name] += 1
        if line.waiting:
            self._lines.pop(line, None)
            self._lines[line] = None  # its next turn is after those of the others

    def _drop(self, line: AdmissionLine, name: str) -> None:
        """Forgets that anybody waits in a line to call somebody."""
        del line.waiting[name]
        _count_down(self._wanted, name)
        if not line.waiting:
            self._lines.pop(line, None)


def _count_down(counter: Counter[str], name: str) -> None:
    counter[name] -= 1
    if not counter[name]:
        del counter[name]


class AdmissionLayer(PassThrough):
    """Lets in as many calls at once as its caller wants."""

    def __init__(
        self, inner: Transport, policy: ConcurrencyPolicy, admissions: PerLoop[Admission]
    ) -> None:
        super().__init__(inner)
        self._policy = policy
        self._admissions = admissions

    async def through(self, call: Call[P, R], onward: CallNext[P, R, T], /) -> Reply[T]:
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
        admission, call_group = self._admissions.here(), call.progress.call_group
        needs_place = not call_group.places
        if needs_place and not admission.enter_at_once():
            if admission.waiting >= self._policy.queue:
                waiting = admission.waiting
                raise self._full(call, f"{waiting} wait{'s' if waiting == 1 else ''}")
            call.progress.awaits = "concurrency slot"
            await self._enter(admission, call)
            call.progress.awaits = None
        call_group.places += 1

        def leave() -> None:
            call_group.places -= 1
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
            return self._full(call, f"no slot was free for {_PATIENCE:g} s")

        at = asyncio.get_running_loop().time() + _PATIENCE
        await until(at, admission.enter(), too_late)

    def _full(self, call: AnyCall, why: str) -> QueueFullError:
        limit = self._policy.limit
        calls = "1 call is" if limit == 1 else f"{limit} calls are"
        return QueueFullError(
            f"{calls} in flight, and {why}; nothing was sent",
            executed=False,
            transient=True,
            request_id=call.request_id,
        )


class _Admitted(StreamWrapper[T]):
    """Keeps the place of a stream until it is closed."""

    def __init__(self, inner: Stream[T], leave: Callable[[], None]) -> None:
        super().__init__(inner)
        self.next_nowait = inner.next_nowait
        self._leave: Callable[[], None] | None = leave

    async def close(self) -> None:
        leave, self._leave = self._leave, None
        try:
            await super().close()
        finally:
            if leave is not None:
                leave()
