"""An httpx client over an engine, with nothing in between; needs the extra ``holdfast[httpx]``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from holdfast._integrations.httpx import Transport
from holdfast._integrations.raw_requests import ForeignReply

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from contextlib import AbstractAsyncContextManager

    import httpx

    from holdfast._net.engine import HttpEngine
    from holdfast._wire.http import HttpRequest, HttpStream

__all__ = ["async_client"]


def async_client(engine: HttpEngine, *, base_url: str, timeout: float) -> httpx.AsyncClient:
    """Makes a client; closing it leaves the engine open.

    Args:
        engine: What carries its requests.
        base_url: What relative addresses go to.
        timeout: Seconds that each phase of a request may take.
    """
    import httpx  # after the transport, whose error names the extra

    return httpx.AsyncClient(transport=_Bare(engine), base_url=base_url, timeout=timeout)


class _Bare(Transport):
    """Holdfast's transport with the engine's own replies: each request once, each stream raw."""

    def __init__(self, engine: HttpEngine) -> None:
        super().__init__(engine=engine)
        self._requests = _Once(engine)


class _Once:
    """Carries each request once."""

    def __init__(self, engine: HttpEngine) -> None:
        self._engine = engine

    async def send(self, request: HttpRequest, *, began: float) -> ForeignReply:  # noqa: ARG002
        connection = self._engine.stream(request)
        reply = await connection.__aenter__()
        return ForeignReply(reply.status, reply.headers, _Pieces(connection, reply))

    async def close(self) -> None:
        pass


class _Pieces:
    """The body of a reply as it comes."""

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
        """Nothing is known to be there already."""

    async def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.__aexit__(None, None, None)
