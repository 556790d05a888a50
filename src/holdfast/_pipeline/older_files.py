"""The layer that encodes files as a server of 0.3 reads them, over HTTP+JSON and gRPC.

`holdfast._wire.files` has the two encodings. The text of the error for an unknown task shows which
one a server uses. Rules: the layer asks each endpoint once, with a read, when the first file is
about to be sent there, or arrives from there in an ambiguous form; the file is not sent before the
answer; if the answer does not show the encoding, the proto counts. A reply that has arrived is not
lost: it waits at most 5 s, and at most half of the time that the call has left.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, TypeVar

import msgspec

from holdfast._aio.cancel_scope import CancelScope
from holdfast._model.operations import GET_TASK
from holdfast._pipeline.call_errors import not_sent
from holdfast._pipeline.connection import replaced
from holdfast._pipeline.transport import (
    AnyCall,
    Call,
    CallProgress,
    PassThrough,
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

_READING_S = 5.0
"""Seconds that a reply waits for the form of its files."""


class OlderFilesLayer(PassThrough):
    """Converts the files of requests and replies, at endpoints where they have two forms."""

    async def unary(self, call: Call[P, R], /) -> Reply[R]:
        """Makes the call below."""
        endpoint = endpoint_of(call)
        reply = await self._inner.unary(await self._written(call, endpoint))
        value = await self._read(reply.value, call, endpoint)
        return reply if value is reply.value else msgspec.structs.replace(reply, value=value)

    async def stream(self, call: Call[P, R], /) -> Reply[Stream[R]]:
        """Opens the stream below."""
        endpoint = endpoint_of(call)
        reply = await self._inner.stream(await self._written(call, endpoint))

        def read(event: R) -> Awaitable[R]:
            return self._read(event, call, endpoint)

        return replaced(reply, _ReadStream(reply.value, read))

    async def _written(self, call: Call[P, R], endpoint: Endpoint) -> Call[P, R]:
        """The call with its files as they are read there.

        Raises:
            A2AError: That could not be found out now. Nothing was sent.
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

    async def _read(self, value: T, call: AnyCall, endpoint: Endpoint) -> T:
        """A reply, or an event, with the content of its files."""
        if endpoint.files_are_base64 is False or not may_be_base64(value):
            return value
        left = call.deadline.left(asyncio.get_running_loop().time())
        try:
            async with CancelScope.within(min(_READING_S, left / 2)):
                await self._find_out(call, endpoint)
        except A2AError:
            return value
        return from_base64(value) if endpoint.files_are_base64 else value

    async def _find_out(self, call: AnyCall, endpoint: Endpoint) -> None:
        """Asks for a task that does not exist, unless the form is known.

        Raises:
            A2AError: There was no answer.
        """
        if endpoint.files_are_base64 is not None:
            return
        async with endpoint.file_form_lock.here():
            if endpoint.files_are_base64 is not None:
                return  # another call has asked meanwhile
            name = f"{call.request_id}-files"
            progress = CallProgress(
                began=asyncio.get_running_loop().time(), call_group=call.progress.call_group
            )
            question = msgspec.structs.replace(
                call,
                operation=GET_TASK,
                params=GetTaskRequest(id=name),
                request_id=name,
                progress=progress,
            )
            try:
                await self._inner.unary(question)  # whose binding notes what it learns
            except A2AError as error:
                if error.transient and endpoint.files_are_base64 is None:
                    call.progress.join(progress)
                    call.progress.endpoint = progress.endpoint
                    raise


class _ReadStream(StreamWrapper[R]):
    """A stream whose events are converted.

    Args:
        inner: What is below.
        read: Converts an event; it may have to ask first.
    """

    def __init__(self, inner: Stream[R], read: Callable[[R], Awaitable[R]]) -> None:
        super().__init__(inner)
        self.next_nowait = self._at_hand
        self._inner_at_hand = inner.next_nowait
        self._read = read
        self._held: list[R] = []

    async def __anext__(self) -> R:
        """The next event."""
        if not self._held:
            self._held.append(await super().__anext__())
        event = await self._read(self._held[0])  # if that is cancelled, the event is kept
        self._held.clear()
        return event

    def _at_hand(self) -> R | None:
        """The next event, where there is nothing to convert in it."""
        if self._held or (event := self._inner_at_hand()) is None:
            return None
        if may_be_base64(event):
            self._held.append(event)
            return None
        return event
