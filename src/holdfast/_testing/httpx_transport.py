"""An httpx client on an engine, without retries; needs the extra ``holdfast[httpx]``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from holdfast._integrations.raw_requests import ForeignReply
from holdfast.integrations.httpx import Transport

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from contextlib import AbstractAsyncContextManager

    import httpx

    from holdfast.extend import HttpEngine, HttpRequest, HttpStream

__all__ = ["async_client"]


def async_client(engine: HttpEngine, *, base_url: str, timeout: float) -> httpx.AsyncClient:
    """Return a client; closing it leaves the engine open.

    Args:
        engine: The engine that sends its requests.
        base_url: The base of relative URLs.
        timeout: Seconds that each phase of a request may take.
    """
    import httpx  # imported after the transport, whose error names the extra

    return httpx.AsyncClient(transport=_PlainTransport(engine), base_url=base_url, timeout=timeout)


class _PlainTransport(Transport):
    """Holdfast's transport without its policies: each request is sent once, each stream is raw."""

    def __init__(self, engine: HttpEngine) -> None:
        super().__init__(engine=engine)
        self._requests = _PlainSender(engine)


class _PlainSender:
    """Sends each request once."""

    def __init__(self, engine: HttpEngine) -> None:
        self._engine = engine

    async def send(self, request: HttpRequest, *, began: float) -> ForeignReply:  # noqa: ARG002
        connection = self._engine.stream(request)
        reply = await connection.__aenter__()
        return ForeignReply(reply.status, reply.headers, _Pieces(connection, reply))

    async def close(self) -> None:
        pass


class _Pieces:
    """The body of a reply, piece by piece."""

    def __init__(
        self, connection: AbstractAsyncContextManager[HttpStream], reply: HttpStream
    ) -> None:
        self._connection: AbstractAsyncContextManager[HttpStream] | None = connection
        self._chunks: AsyncIterator[bytes] = reply.chunks()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> bytes:
        return await anext(self._chunks)

    def next_nowait(self) -> None:
        """Return None: the engine does not tell which pieces are buffered."""

    async def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.__aexit__(None, None, None)
