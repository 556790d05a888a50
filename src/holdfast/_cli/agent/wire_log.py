"""The log of requests and replies for ``--debug``, without secrets.

Rules: a sent header outside the protocol shows its name only, as does a received header whose
name or length suggests a credential; the query of an address shows its names only; tokens and
credentials in a body are removed by their names; the caller's own credentials are removed from
the rest when it is written (`holdfast._cli.output.base`).
"""

from __future__ import annotations

import logging
import re
from typing import TYPE_CHECKING, Any, Self, TypeVar

from holdfast._cli.options.masking import hidden, masked_reference
from holdfast._pipeline.layer_streams import with_stream
from holdfast._pipeline.transport import BaseLayer, Reply, Stream, StreamWrapper
from holdfast._wire.redaction import secrets_in
from holdfast._wire.security import PROTOCOL_HEADERS
from holdfast.errors import A2AError
from holdfast.types import WireValue

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping
    from contextlib import AbstractAsyncContextManager
    from types import TracebackType

    from holdfast._net.engine import HttpEngine
    from holdfast._pipeline.transport import AnyCall, Call
    from holdfast._wire.http import HttpReply, HttpRequest, HttpStream

__all__ = ["LoggedEngine", "LoggedGrpc"]

P = TypeVar("P")
R = TypeVar("R")

logger = logging.getLogger("holdfast.cli.wire")

_LINE_END = re.compile(rb"[\r\n]")
_MAX_BODY_CHARACTERS = 50_000
"""Characters of a body to show."""

_PUBLIC = PROTOCOL_HEADERS | {"date", "retry-after", "server", "www-authenticate"}


class LoggedEngine:
    """An engine that logs the requests and replies of another engine."""

    def __init__(self, inner: HttpEngine) -> None:
        self._inner = inner
        self.tls: object = getattr(inner, "tls", None)  # for connections outside it

    async def request(self, request: HttpRequest) -> HttpReply:
        """Send a request and read its reply."""
        _log_request(request)
        reply = await self._inner.request(request)
        _log_reply(reply, reply.body)
        return reply

    def stream(self, request: HttpRequest) -> AbstractAsyncContextManager[HttpStream]:
        """Send a request whose reply is read later, chunk by chunk."""
        _log_request(request)
        return _LoggedContext(self._inner.stream(request))

    async def close(self) -> None:
        """Close the inner engine."""
        await self._inner.close()


class _LoggedContext:
    """The context of a reply that is still arriving."""

    def __init__(self, inner: AbstractAsyncContextManager[HttpStream]) -> None:
        self._inner = inner

    async def __aenter__(self) -> HttpStream:
        stream = await self._inner.__aenter__()
        _log_reply(stream)
        return _LoggedStream(stream)

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool | None:
        return await self._inner.__aexit__(kind, error, trace)


class _LoggedStream:
    """A reply that is logged as it arrives."""

    def __init__(self, inner: HttpStream) -> None:
        self._inner = inner
        self.status = inner.status
        self.headers = inner.headers
        self.address: str | None = getattr(inner, "address", None)

    def chunks(self) -> AsyncIterator[bytes]:
        """Return the body as it arrives; log it by lines: a chunk may end within a secret."""
        return _LoggedChunks(self._inner.chunks())

    async def read(self) -> bytes:
        """Return the whole body."""
        body = await self._inner.read()
        logger.debug("< %s", _text(body))
        return body


class _LoggedChunks:
    """The chunks of a body; a cancelled wait for a chunk can be repeated."""

    def __init__(self, inner: AsyncIterator[bytes]) -> None:
        self._inner = inner
        self._rest = b""

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> bytes:
        try:
            chunk = await anext(self._inner)
        except (StopAsyncIteration, A2AError):
            rest, self._rest = self._rest, b""
            _log_lines([rest])
            raise
        *lines, self._rest = _LINE_END.split(self._rest + chunk)
        _log_lines(lines)
        return chunk


# ── gRPC, which bypasses the engine ──────────────────────────────────────────────────────────


class LoggedGrpc(BaseLayer):
    """An attempt layer that logs calls over gRPC, their messages as the protocol's JSON.

    Credentials are added below it, so that it does not see them.
    """

    async def unary(self, call: Call[P, R], /) -> Reply[R]:
        """Log a call and its reply."""
        if not _is_grpc(call):
            return await super().unary(call)
        _log_call(call)
        try:
            reply = await super().unary(call)
        except A2AError as error:
            _log_status(call, error)
            raise
        _log_message(call, reply.value)
        return reply

    async def stream(self, call: Call[P, R], /) -> Reply[Stream[R]]:
        """Log a call, and each message of its stream."""
        if not _is_grpc(call):
            return await super().stream(call)
        _log_call(call)
        try:
            reply = await super().stream(call)
        except A2AError as error:
            _log_status(call, error)
            raise
        return with_stream(reply, _LoggedMessages(reply.value, call))


class _LoggedMessages(StreamWrapper[R]):
    """The messages of a stream, logged as they arrive."""

    def __init__(self, inner: Stream[R], call: AnyCall) -> None:
        super().__init__(inner)
        self._call = call

    async def __anext__(self) -> R:
        try:
            message = await self._inner.__anext__()
        except A2AError as error:
            _log_status(self._call, error)
            raise
        _log_message(self._call, message)
        return message


def _is_grpc(call: AnyCall) -> bool:
    endpoint = call.endpoint
    return endpoint is not None and endpoint.interface.protocol_binding == "GRPC"


def _log_call(call: AnyCall) -> None:
    url = "" if call.endpoint is None else masked_reference(call.endpoint.interface.url)
    headers = _headers(call.headers, _sent)
    logger.debug("> gRPC %s %s %s%s", call.operation.name, url, headers, _json(call.params))


def _log_message(call: AnyCall, message: object) -> None:
    logger.debug("< gRPC %s%s", call.operation.name, _json(message))


def _log_status(call: AnyCall, error: A2AError) -> None:
    logger.debug("< gRPC %s %s: %s", call.operation.name, error.grpc_status or "failed", error)


def _json(message: Any) -> str:
    if not isinstance(message, WireValue):
        return ""
    return _body(message.to_json().encode())


def _log_reply(reply: HttpReply | HttpStream, body: bytes = b"") -> None:
    logger.debug("< %d %s%s", reply.status, _headers(reply.headers, _received), _body(body))


def _log_lines(lines: list[bytes]) -> None:
    for line in lines:
        if line.strip():
            logger.debug("< %s", _text(line))


def _log_request(request: HttpRequest) -> None:
    url = masked_reference(request.url)
    headers, body = _headers(request.headers, _sent), _body(request.body)
    logger.debug("> %s %s %s%s", request.method, url, headers, body)


def _headers(headers: Mapping[str, str], show: Callable[[str, str], str]) -> str:
    lowered = ((name.lower(), value) for name, value in headers.items())
    return ", ".join(f"{name}: {show(name, value)}" for name, value in lowered)


def _sent(name: str, value: str) -> str:
    return value if name in PROTOCOL_HEADERS else hidden(value)


def _received(name: str, value: str) -> str:
    if name == "location":
        return masked_reference(value)
    return hidden(value) if name not in _PUBLIC and secrets_in({name: value}) else value


def _body(body: bytes) -> str:
    return f"; {_text(body)}" if body else ""


_SECRET_MEMBER = re.compile(r'("(?:token|credentials)"\s*:\s*)"(?:[^"\\]|\\.)*"?')
"""The secret members of a push configuration (A2A 4.3), also at the cut end of a body."""


def _text(body: bytes) -> str:
    text = _SECRET_MEMBER.sub(r'\1"***"', body.decode("utf-8", "replace"))
    if len(text) > _MAX_BODY_CHARACTERS:
        excerpt = text[:_MAX_BODY_CHARACTERS]
        return f"the first {_MAX_BODY_CHARACTERS} of {len(text)} characters: {excerpt}"
    return text
