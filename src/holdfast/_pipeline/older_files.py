"""The layer that encodes files as a server of 0.3 reads them, over HTTP+JSON and gRPC.

`holdfast._wire.files` has the two encodings. The text of the error for an unknown task shows which
one a server uses. Rules: the layer queries each endpoint once, with a read, when the first file is
about to be sent there, or arrives from there in an ambiguous encoding; the file is not sent before
the reply; if the reply does not show the encoding, that of the proto is used. A reply that has
arrived is not lost: it waits at most 5 s, and at most half of the time that the call has left.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, TypeVar

import msgspec

from holdfast._aio.cancel_scope import CancelScope
from holdfast._model.operations import GET_TASK
from holdfast._pipeline.call_errors import not_sent
from holdfast._pipeline.layer_streams import with_stream
from holdfast._pipeline.observed_request import make_beside
from holdfast._pipeline.transport import (
    AnyCall,
    BaseLayer,
    Call,
    CallProgress,
    Reply,
    Stream,
    StreamWrapper,
    endpoint_of,
)
from holdfast._wire.files import as_base64, from_base64, has_content, may_be_base64
from holdfast.errors import A2AError
from holdfast.types import GetTaskRequest

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from holdfast._pipeline.endpoints import Endpoint

__all__ = ["OlderFilesLayer"]

P = TypeVar("P")
R = TypeVar("R")
T = TypeVar("T")

_MAX_WAIT_S = 5.0
"""Seconds that a reply waits until the encoding of its files is known."""


class OlderFilesLayer(BaseLayer):
    """Converts the files of requests and replies, at endpoints where they have two encodings."""

    async def unary(self, call: Call[P, R], /) -> Reply[R]:
        """Make the call below."""
        endpoint = endpoint_of(call)
        reply = await self._inner.unary(await self._encoded(call, endpoint))
        value = await self._decoded(reply.value, call, endpoint)
        return reply if value is reply.value else msgspec.structs.replace(reply, value=value)

    async def stream(self, call: Call[P, R], /) -> Reply[Stream[R]]:
        """Open the stream below."""
        endpoint = endpoint_of(call)
        reply = await self._inner.stream(await self._encoded(call, endpoint))

        def read(event: R) -> Awaitable[R]:
            return self._decoded(event, call, endpoint)

        return with_stream(reply, _ReadStream(reply.value, read))

    async def _encoded(self, call: Call[P, R], endpoint: Endpoint) -> Call[P, R]:
        """Return the call with its files in the encoding of the endpoint.

        Raises:
            A2AError: The encoding could not be found out now. Nothing was sent.
        """
        if not has_content(call.params):
            return call
        try:
            await self._find_out(call, endpoint)
        except A2AError as error:
            not_sent(error)
            if error.transient:
                raise
        if not endpoint.files_are_base64:
            return call
        return msgspec.structs.replace(call, params=as_base64(call.params))

    async def _decoded(self, value: T, call: AnyCall, endpoint: Endpoint) -> T:
        """Return a reply, or an event, with the content of its files decoded."""
        if endpoint.files_are_base64 is False or not may_be_base64(value):
            return value
        left = call.deadline.remaining(asyncio.get_running_loop().time())
        try:
            async with CancelScope.within(min(_MAX_WAIT_S, left / 2)):
                await self._find_out(call, endpoint)
        except A2AError:
            return value
        return from_base64(value) if endpoint.files_are_base64 else value

    async def _find_out(self, call: AnyCall, endpoint: Endpoint) -> None:
        """Request a task that does not exist, unless the encoding is known.

        Raises:
            A2AError: There was no reply.
        """
        if endpoint.files_are_base64 is not None:
            return
        async with endpoint.file_form_lock.here():
            if endpoint.files_are_base64 is not None:
                return  # another call has found out meanwhile
            params = GetTaskRequest(id=f"{call.request_id}-files")
            progress = CallProgress(
                began=asyncio.get_running_loop().time(), call_group=call.progress.call_group
            )
            make = self._inner.unary  # the binding notes the encoding
            try:
                await make_beside(call, GET_TASK, params, make, progress=progress)
            except A2AError as error:
                if error.transient and endpoint.files_are_base64 is None:
                    call.progress.end_with(progress)
                    raise


class _ReadStream(StreamWrapper[R]):
    """A stream whose events are converted.

    Args:
        inner: The stream below.
        read: Converts an event, after finding out the encoding if necessary.
    """

    def __init__(self, inner: Stream[R], read: Callable[[R], Awaitable[R]]) -> None:
        super().__init__(inner)
        self.next_nowait = self._next_unconverted
        self._inner_next_nowait = inner.next_nowait
        self._read = read
        self._held: list[R] = []

    async def __anext__(self) -> R:
        """Wait for the next event."""
        if not self._held:
            self._held.append(await super().__anext__())
        event = await self._read(self._held[0])  # a cancelled conversion keeps the event
        self._held.clear()
        return event

    def _next_unconverted(self) -> R | None:
        """Return the next event if it is buffered and needs no conversion."""
        if self._held or (event := self._inner_next_nowait()) is None:
            return None
        if may_be_base64(event):
            self._held.append(event)
            return None
        return event
