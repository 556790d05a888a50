"""An engine that removes the interfaces of all bindings but one from agent cards."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import msgspec

from holdfast._model import codec
from holdfast.extend import HttpReply, HttpRequest, HttpStream
from holdfast.protocol import CARD_PATHS

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping
    from contextlib import AbstractAsyncContextManager
    from types import TracebackType

    from holdfast.extend import HttpEngine

__all__ = ["SingleBindingEngine"]


class SingleBindingEngine:
    """An engine around another one, whose agent cards have interfaces of one binding only.

    Args:
        engine: The other engine.
        binding: The binding that cards keep.
    """

    def __init__(self, engine: HttpEngine, binding: str) -> None:
        self._engine = engine
        self._binding = binding

    async def request(self, request: HttpRequest) -> HttpReply:
        """Send a request, and read its reply."""
        reply = await self._engine.request(request)
        if not _is_for_card(request) or reply.status != 200:
            return reply
        body = _filtered(reply.body, self._binding)
        headers = {**reply.headers, "content-length": str(len(body))}
        return msgspec.structs.replace(reply, headers=headers, body=body)

    def stream(self, request: HttpRequest) -> AbstractAsyncContextManager[HttpStream]:
        """Send a request whose reply is read piece by piece."""
        if _is_for_card(request):
            return _WholeReply(self, request)
        return self._engine.stream(request)

    async def close(self) -> None:
        """Close the other engine."""
        await self._engine.close()


class _WholeReply:
    """A reply that was read at once, as a stream."""

    def __init__(self, engine: SingleBindingEngine, request: HttpRequest) -> None:
        self._engine = engine
        self._request = request
        self._reply = HttpReply(status=0)

    async def __aenter__(self) -> HttpStream:
        self._reply = await self._engine.request(self._request)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        pass

    @property
    def status(self) -> int:
        return self._reply.status

    @property
    def headers(self) -> Mapping[str, str]:
        return self._reply.headers

    async def chunks(self) -> AsyncIterator[bytes]:
        if self._reply.body:
            yield self._reply.body

    async def read(self) -> bytes:
        return self._reply.body


def _is_for_card(request: HttpRequest) -> bool:
    return request.method == "GET" and request.url.partition("?")[0].endswith(CARD_PATHS)


def _filtered(body: bytes, binding: str) -> bytes:
    try:
        card = codec.as_object(codec.parse(body))
    except codec.MalformedError:
        return body  # the client reports what is wrong with it
    if card is None:
        return body
    interfaces = card.get("supportedInterfaces")
    if isinstance(interfaces, list):
        card["supportedInterfaces"] = [
            members
            for interface in cast("list[object]", interfaces)
            if (members := codec.as_object(interface)) is not None
            and members.get("protocolBinding") == binding
        ]
    return msgspec.json.encode(card)
