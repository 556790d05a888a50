"""One request on its way to a fake agent and back, and what goes wrong with it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from holdfast.testing.faults import Delay, Fail, Fault, Garbage, Reset, Respond, Stall
from holdfast.testing.serverwire import Refusal
from holdfast.wire.http import HttpReply

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast.testing.lives import Life
    from holdfast.testing.operations import Result
    from holdfast.testing.serverwire import Wire

__all__ = ["Exchange"]


class Exchange:
    """A request, its fault, and its reply.

    Args:
        wire: The request as read.
        fault: What goes wrong with it.
        take_in: Has the agent execute it; called at most once.
        latency: Seconds before the reply.

    Attributes:
        fault: What goes wrong with it; None for nothing.
    """

    def __init__(
        self,
        wire: Wire,
        fault: Fault | None,
        take_in: Callable[[], Result],
        *,
        latency: float,
    ) -> None:
        self.fault = fault
        self._wire = wire
        self._take_in = take_in
        self._latency = latency
        self._late: asyncio.TimerHandle | None = None

    def drop(self) -> None:
        """Forgets a request that is still under way."""
        if self._late is not None:
            self._late.cancel()

    async def reply(self) -> HttpReply | None:
        """Has the agent do what is asked, and waits until the reply is due.

        Returns:
            The reply. What cuts it is left to the caller, who looks at `fault`. None where the
            fault is that there is no reply.
        """
        match self.fault:
            case Delay(seconds=seconds, after_execution=False):
                return await self._finish(await self._deliver_late(seconds))
            case Delay(seconds=seconds):
                reply = await self._executed()
                await asyncio.sleep(seconds)
                return reply
            case Reset() | Garbage() | Stall(phase="first_byte"):
                if self.fault.after_execution:
                    await self._executed()
                return None
            case Respond() as answer:
                if answer.after_execution:
                    await self._executed()
                return HttpReply(status=answer.status, headers=answer.headers, body=answer.body)
            case Fail() as answer:
                if answer.after_execution:
                    await self._executed()
                return self._wire.refuse(
                    Refusal(
                        answer.code,
                        answer.message,
                        retry_after=answer.retry_after,
                        data=answer.data,
                    )
                )
            case _:
                return await self._executed()

    async def _executed(self) -> HttpReply:
        return await self._finish(self._begin())

    def _begin(self) -> Result | Refusal:
        try:
            return self._take_in()
        except Refusal as refusal:
            return refusal

    async def _finish(self, result: Result | Refusal) -> HttpReply:
        loop = asyncio.get_running_loop()
        not_before = loop.time() + self._latency
        if isinstance(result, Refusal):
            await asyncio.sleep(self._latency)
            return self._wire.refuse(result)
        life: Life | None = result.after
        if life is not None:
            await life.settled()
        await asyncio.sleep(max(0.0, not_before - loop.time()))
        try:
            return self._wire.answer(result.value(loop.time()))
        except Refusal as refusal:
            return self._wire.refuse(refusal)

    async def _deliver_late(self, seconds: float) -> Result | Refusal:
        """Delivers on the clock, so that it happens whether or not somebody still waits here."""
        loop = asyncio.get_running_loop()
        delivered: asyncio.Future[Result | Refusal] = loop.create_future()

        def deliver() -> None:
            if delivered.done():
                self._begin()
                return
            try:
                delivered.set_result(self._begin())
            except Exception as error:  # noqa: BLE001  of the behaviour: for who waits
                delivered.set_exception(error)

        self._late = loop.call_later(seconds, deliver)
        return await delivered
