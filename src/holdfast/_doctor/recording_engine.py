"""An engine that notes what comes back: dates, limits, and how the bytes of a stream arrive.

Rule: each request has a connection of its own, so that no finding is about one that the server was
just closing: some servers close a connection after what they cannot read, or after some seconds.
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

    from holdfast._aio.env import Env
    from holdfast._doctor.facts import StreamFacts
    from holdfast._net.engine import HttpEngine
    from holdfast._wire.http import HttpReply, HttpRequest, HttpStream

__all__ = ["RecordingEngine", "Seen", "StreamWitness"]

_HINT = re.compile(r"retry-after(-ms)?|(x-)?ratelimit(-.*)?|x-rate-limit(-.*)?")
_COMMENT = re.compile(rb"[\r\n]:")
_MOST_HINTS = 8
_LONGEST = 100
"""Characters of such a header that are kept."""


class Seen:
    """What was seen in replies, whatever they were for.

    Attributes:
        skew: Seconds that the agent's clock is ahead; None if no reply told its date.
        hints: Headers about limits to how often the agent may be called.
        refusals: How many replies were 429.
        unauthorized: How many were 401.
    """

    def __init__(self) -> None:
        self.skew: float | None = None
        self.hints: dict[str, str] = {}
        self.refusals = self.unauthorized = 0
        self._error = float("inf")

    def note(self, status: int, headers: Mapping[str, str], asked: float, now: float) -> None:
        """Notes a reply.

        Args:
            status: Its status.
            headers: Its headers.
            asked: Wall time of the request, in seconds since the epoch.
            now: That of the reply.
        """
        self.refusals += status == 429
        self.unauthorized += status == 401
        for name, value in headers.items():
            if _HINT.fullmatch(name.lower()) and len(self.hints) < _MOST_HINTS:
                self.hints[name.lower()] = value[:_LONGEST]
        date = http_date(headers.get("date", ""))
        if date is not None and "age" not in headers and now - asked < self._error:
            # The date is cut to whole seconds, and of some time between question and answer.
            self._error = now - asked
            self.skew = date + 0.5 - (asked + now) / 2


class RecordingEngine:
    """Notes each reply that another engine brings.

    Args:
        inner: What carries the requests; it is not closed.
        env: Wall time.
        seen: Where to note.
    """

    def __init__(self, inner: HttpEngine, env: Env, seen: Seen) -> None:
        self._inner = inner
        self._env = env
        self._seen = seen

    async def request(self, request: HttpRequest) -> HttpReply:
        """Sends a request and reads its reply."""
        asked = self._env.wall()
        reply = await self._inner.request(_alone(request))
        self._seen.note(reply.status, reply.headers, asked, self._env.wall())
        return reply

    def stream(self, request: HttpRequest) -> AbstractAsyncContextManager[HttpStream]:
        """Sends a request whose reply is read later, piece by piece."""
        return self._inner.stream(_alone(request))

    async def close(self) -> None:
        """Leaves the engine below open: it is another's."""


class StreamWitness(RecordingEngine):
    """Notes how the bytes of one stream arrive, too.

    Args:
        inner: What carries the requests.
        env: Wall time.
        seen: Where to note what all replies tell.
        facts: Where to note what the stream tells.
    """

    def __init__(self, inner: HttpEngine, env: Env, seen: Seen, facts: StreamFacts) -> None:
        super().__init__(inner, env, seen)
        self._facts = facts

    def stream(self, request: HttpRequest) -> AbstractAsyncContextManager[HttpStream]:
        """Sends a request whose reply is read later, piece by piece."""
        return _WatchedContext(super().stream(request), self._facts)


def _alone(request: HttpRequest) -> HttpRequest:
    return msgspec.structs.replace(request, max_idle=0.0)


class _WatchedContext:
    def __init__(self, inner: AbstractAsyncContextManager[HttpStream], facts: StreamFacts) -> None:
        self._inner = inner
        self._facts = facts

    async def __aenter__(self) -> HttpStream:
        return _WatchedStream(await self._inner.__aenter__(), self._facts)

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool | None:
        return await self._inner.__aexit__(kind, error, trace)


class _WatchedStream:
    """A reply whose pieces are noted as they come."""

    def __init__(self, inner: HttpStream, facts: StreamFacts) -> None:
        self._inner = inner
        self._facts = facts
        self._clock = asyncio.get_running_loop().time
        self._last = self._clock()
        self._before = b"\n"

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
            self._facts.silence = max(self._facts.silence, now - self._last)
            self._last = now
        self._facts.pieces += 1
        self._facts.comments += len(_COMMENT.findall(self._before + piece))
        self._before = piece[-1:]
        return piece

    async def read(self) -> bytes:
        return await self._inner.read()
