"""The layer that adds credentials to each attempt, and where they come from."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TypeVar

import msgspec

from holdfast.errors import A2AError, AuthenticationError
from holdfast.runtime.transport import AnyCall, Call, PassThrough, Reply, Transport
from holdfast.wire.http import check_headers
from holdfast.wire.redaction import redact

if TYPE_CHECKING:
    from collections.abc import Awaitable

__all__ = ["AuthProvider", "CredentialsLayer"]

P = TypeVar("P")
R = TypeVar("R")
T = TypeVar("T")


class AuthProvider(Protocol):
    """Where credentials come from; asked anew for each attempt."""

    async def headers(self, call: AnyCall, /) -> dict[str, str]:
        """The headers that carry the credentials."""
        ...

    async def on_unauthorized(self, error: AuthenticationError, /) -> bool:
        """Told of a 401; True asks to try once more with new credentials."""
        ...


class CredentialsLayer(PassThrough):
    """Adds the credentials to each attempt, and replays one after a 401 where that is safe."""

    def __init__(self, inner: Transport, provider: AuthProvider) -> None:
        super().__init__(inner)
        self._provider = provider
        self._last: tuple[dict[str, str], dict[str, str]] = ({}, {})

    async def unary(self, call: Call[P, R], /) -> Reply[R]:
        try:
            return await self._attempt(call)
        except AuthenticationError as error:
            safe = call.operation.safety != "conditional" or error.executed is False
            call.progress.failed(error)
            if not safe or not await _before_sending(self._provider.on_unauthorized(error)):
                raise
        call.progress.sent = False
        return await self._attempt(call)

    async def _attempt(self, call: Call[P, R]) -> Reply[R]:
        credentials = self._checked(await _before_sending(self._provider.headers(call)))
        authorized = msgspec.structs.replace(call, headers={**call.headers, **credentials})
        try:
            return await self._inner.unary(authorized)
        except A2AError as error:
            redact(error, credentials.values())
            raise

    def _checked(self, headers: dict[str, str]) -> dict[str, str]:
        last = self._last  # read once: another thread may use this client too
        if headers != last[0]:  # most providers give the same ones for a while
            last = self._last = (dict(headers), check_headers(headers))
        return last[1]


async def _before_sending(provider: Awaitable[T]) -> T:
    """A provider that calls somebody itself may fail in any way: nothing of ours was sent."""
    try:
        return await provider
    except A2AError as error:
        error.executed = False
        raise
