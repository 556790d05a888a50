"""One request to a fake agent, its fault, and its reply."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from holdfast._testing.bodies import EventBody, Reply, WholeBody, refusal_for
from holdfast._testing.faults import Delay, Fail, Fault, Garbage, Reset, Respond, Stall
from holdfast._testing.parsed_request import Refusal
from holdfast._testing.timeline import http_date
from holdfast.protocol import EVENT_STREAM

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from holdfast._testing.operations import Result
    from holdfast._testing.parsed_request import ParsedRequest
    from holdfast._testing.streaming import Events
    from holdfast._testing.timeline import TaskTimeline
    from holdfast.extend import HttpReply

__all__ = ["Exchange"]


class Exchange:
    """A request, its fault, and its reply; it must be closed.

    Args:
        parsed: The parsed request.
        fault: The fault; None for none.
        execute: Has the agent execute the request; called at most once.
        headers: More headers of the agent's reply.
        latency: Seconds before the reply.
        streams: The set of open streams, to which a stream is added while it is open.
        epoch: Wall time when the event loop's clock shows zero.

    Attributes:
        fault: The fault; None for none.
    """

    def __init__(
        self,
        parsed: ParsedRequest,
        fault: Fault | None,
        execute: Callable[[], Result],
        *,
        headers: Mapping[str, str],
        latency: float,
        streams: set[EventBody],
        epoch: float,
    ) -> None:
        self.fault = fault
        self._parsed = parsed
        self._execute = execute
        self._headers = headers
        self._latency = latency
        self._streams = streams
        self._epoch = epoch
        self._stream: EventBody | None = None
        self._late: asyncio.TimerHandle | None = None

    def close(self) -> None:
        """End the stream, if the reply is one."""
        if self._stream is not None:
            self._streams.discard(self._stream)

    def drop(self) -> None:
        """Drop a delayed request that has not reached the agent."""
        if self._late is not None:
            self._late.cancel()

    async def reply(self) -> Reply | None:
        """Execute the request, and wait until the reply is due.

        Returns:
            The reply, whose body says how it ends. None if the fault is that there is no reply;
            the caller applies that fault.
        """
        match self.fault:
            case Delay(seconds=seconds, after_execution=False):
                return await self._reply_to(await self._deliver_late(seconds))
            case Delay(seconds=seconds):
                reply = await self._execute_and_finish()
                await asyncio.sleep(seconds)
                return reply
            case Reset(after_events=None) | Garbage() | Stall(phase="first_byte"):
                if self.fault.after_execution:
                    await self._execute_and_finish()
                return None
            case Respond() as answer:
                if answer.after_execution:
                    await self._execute_and_finish()
                body = WholeBody(answer.body)
                return Reply(status=answer.status, headers=answer.headers, body=body)
            case Fail(after_events=None) as answer:
                if answer.after_execution:
                    await self._execute_and_finish()
                return self._whole(self._parsed.refuse(refusal_for(answer)))
            case _:
                return await self._execute_and_finish()

    async def _execute_and_finish(self) -> Reply:
        return await self._reply_to(self._run())

    def _run(self) -> Result | Refusal:
        try:
            return self._execute()
        except Refusal as refusal:
            return refusal

    async def _reply_to(self, result: Result | Refusal) -> Reply:
        loop = asyncio.get_running_loop()
        not_before = loop.time() + self._latency
        if isinstance(result, Refusal):
            await asyncio.sleep(self._latency)
            return self._whole(self._parsed.refuse(result))
        if result.events is not None:
            return await self._streamed(result.events)
        timeline: TaskTimeline | None = result.after
        if timeline is not None:
            await timeline.wait_settled()
        await asyncio.sleep(max(0.0, not_before - loop.time()))
        if isinstance(self.fault, Fail) and self.fault.after_events == 0:
            return self._whole(self._parsed.refuse(refusal_for(self.fault)))
        try:
            return self._whole(self._parsed.answer(result.value(loop.time())))
        except Refusal as refusal:
            return self._whole(self._parsed.refuse(refusal))

    async def _streamed(self, events: Events) -> Reply:
        self._stream = EventBody(events, self._parsed, self.fault)
        self._streams.add(self._stream)
        await asyncio.sleep(self._latency)
        headers = {
            "content-type": EVENT_STREAM,
            "cache-control": "no-store",
            **self._headers,
        }
        return Reply(status=200, headers=headers, body=self._stream)

    def _whole(self, reply: HttpReply) -> Reply:
        body = WholeBody(reply.body, self.fault)
        now = asyncio.get_running_loop().time()
        headers = {**reply.headers, "date": http_date(now, self._epoch), **self._headers}
        return Reply(status=reply.status, headers=headers, body=body)

    async def _deliver_late(self, seconds: float) -> Result | Refusal:
        """Execute the request after a delay, even if its client has left by then."""
        loop = asyncio.get_running_loop()
        delivered: asyncio.Future[Result | Refusal] = loop.create_future()

        def deliver() -> None:
            if delivered.done():
                self._run()
                return
            try:
                delivered.set_result(self._run())
            except Exception as error:  # noqa: BLE001  of the behaviour; `reply` raises it
                delivered.set_exception(error)

        self._late = loop.call_later(seconds, deliver)
        return await delivered
