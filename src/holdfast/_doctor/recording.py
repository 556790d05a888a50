"""Engines that record replies: dates, rate limits, and how the bytes of a stream arrive.

Rule: each request has a connection of its own, so that no finding is about a connection that the
server was closing: some servers close a connection after a request that they cannot read, or after
some seconds.
"""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING, Self

import msgspec

from holdfast._wire.caching import http_date

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping
    from contextlib import AbstractAsyncContextManager
    from types import TracebackType

    from holdfast._doctor.facts import StreamFacts
    from holdfast.extend import Env, HttpEngine, HttpReply, HttpRequest, HttpStream

__all__ = ["RecordingEngine", "ReplyLog", "StreamRecordingEngine"]

_RATE_LIMIT_HEADER = re.compile(r"retry-after(-ms)?|(x-)?ratelimit(-.*)?|x-rate-limit(-.*)?")
_COMMENT = re.compile(rb"[\r\n]:")
_MAX_HINTS = 8
_MAX_HINT_CHARS = 100


class ReplyLog:
    """Facts from all replies, whatever the requests were for.

    Attributes:
        skew: Seconds that the agent's clock is ahead; None if no reply had a date.
        hints: Headers about rate limits, by name.
        refusals: Number of replies with status 429.
        unauthorized: Number of replies with status 401.
    """

    def __init__(self) -> None:
        self.skew: float | None = None
        self.hints: dict[str, str] = {}
        self.refusals = self.unauthorized = 0
        self._skew_error = float("inf")

    def add(
        self, status: int, headers: Mapping[str, str], requested_at: float, received_at: float
    ) -> None:
        """Record a reply.

        Args:
            status: HTTP status.
            headers: The reply's headers.
            requested_at: Wall time of the request, in seconds since the epoch.
            received_at: Wall time of the reply, in seconds since the epoch.
        """
        self.refusals += status == 429
        self.unauthorized += status == 401
        for name, value in headers.items():
            if _RATE_LIMIT_HEADER.fullmatch(name.lower()) and len(self.hints) < _MAX_HINTS:
                self.hints[name.lower()] = value[:_MAX_HINT_CHARS]
        date = http_date(headers.get("date", ""))
        duration = received_at - requested_at
        if date is not None and "age" not in headers and duration < self._skew_error:
            # The date has whole seconds, and is of some time between request and reply.
            self._skew_error = duration
            self.skew = date + 0.5 - (requested_at + received_at) / 2


class RecordingEngine:
    """Records each reply of another engine.

    Args:
        inner: The other engine; it is not closed.
        env: Wall time.
        log: Records the replies.
    """

    def __init__(self, inner: HttpEngine, env: Env, log: ReplyLog) -> None:
        self._inner = inner
        self._env = env
        self._log = log

    async def request(self, request: HttpRequest) -> HttpReply:
        """Send a request, and read its reply."""
        requested_at = self._env.wall()
        reply = await self._inner.request(_on_new_connection(request))
        self._log.add(reply.status, reply.headers, requested_at, self._env.wall())
        return reply

    def stream(self, request: HttpRequest) -> AbstractAsyncContextManager[HttpStream]:
        """Send a request whose reply is read piece by piece."""
        return self._inner.stream(_on_new_connection(request))

    async def close(self) -> None:
        """Leave the other engine open; the caller owns it."""


class StreamRecordingEngine(RecordingEngine):
    """Records also how the bytes of one stream arrive.

    Args:
        inner: The other engine; it is not closed.
        env: Wall time.
        log: Records the replies.
        facts: Records the stream.
    """

    def __init__(self, inner: HttpEngine, env: Env, log: ReplyLog, facts: StreamFacts) -> None:
        super().__init__(inner, env, log)
        self._facts = facts

    def stream(self, request: HttpRequest) -> AbstractAsyncContextManager[HttpStream]:
        """Send a request whose reply is read piece by piece."""
        return _RecordedContext(super().stream(request), self._facts)


def _on_new_connection(request: HttpRequest) -> HttpRequest:
    return msgspec.structs.replace(request, max_idle=0.0)


class _RecordedContext:
    def __init__(self, inner: AbstractAsyncContextManager[HttpStream], facts: StreamFacts) -> None:
        self._inner = inner
        self._facts = facts

    async def __aenter__(self) -> HttpStream:
        return _RecordedStream(await self._inner.__aenter__(), self._facts)

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool | None:
        return await self._inner.__aexit__(kind, error, trace)


class _RecordedStream:
    """A reply whose pieces are recorded as they arrive."""

    def __init__(self, inner: HttpStream, facts: StreamFacts) -> None:
        self._inner = inner
        self._facts = facts
        self._clock = asyncio.get_running_loop().time
        self._last_arrival = self._clock()
        self._last_byte = b"\n"

    @property
    def status(self) -> int:
        return self._inner.status

    @property
    def headers(self) -> Mapping[str, str]:
        return self._inner.headers

    def chunks(self) -> AsyncIterator[bytes]:
        self._chunks = self._inner.chunks()
        return self

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> bytes:
        try:
            piece = await self._chunks.__anext__()
        finally:
            now = self._clock()
            self._facts.silence = max(self._facts.silence, now - self._last_arrival)
            self._last_arrival = now
        self._facts.pieces += 1
        self._facts.comments += len(_COMMENT.findall(self._last_byte + piece))
        self._last_byte = piece[-1:]
        return piece

    async def read(self) -> bytes:
        return await self._inner.read()
