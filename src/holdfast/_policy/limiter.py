"""How many calls may be under way or wait, and what an agent means that asks to come later."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from holdfast._model.article_errors import ArticleErrorCode
from holdfast._model.settings import check_count

if TYPE_CHECKING:
    from holdfast.errors import A2AError

__all__ = ["ConcurrencyPolicy", "RateLimitPolicy", "asks_to_wait"]

_BUSY: frozenset[int | str | None] = frozenset({429, 503, "RESOURCE_EXHAUSTED", "UNAVAILABLE"})
"""Statuses of HTTP and of gRPC."""


class ConcurrencyPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """How many calls of a client are under way at once.

    Calls and open streams count; what belongs to one call of the caller's, such as a look at the
    task of an open stream, counts once. Who waits is let in in order, within their deadlines; a
    stream that has none waits 15 minutes at most.

    Attributes:
        limit: Calls under way at once.
        queue: Calls that may wait; the next one is a `QueueFullError`.

    Raises:
        ValueError: `limit` is less than 1, or `queue` is negative.
        TypeError: One is no whole number.
    """

    limit: int
    queue: int = 1000

    def __post_init__(self) -> None:
        check_count("limit", self.limit, least=1)
        check_count("queue", self.queue)


class RateLimitPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """What to do where an agent says that calls come too fast, and when to come again.

    All calls of its kind to that endpoint wait, sends and reads apart, and come at a growing pace
    afterwards; a cancel never waits.

    Attributes:
        queue: Calls that may wait; the next one is a `QueueFullError`.

    Raises:
        ValueError: It is negative.
        TypeError: It is no whole number.
    """

    queue: int = 1000

    def __post_init__(self) -> None:
        check_count("queue", self.queue)


def asks_to_wait(error: A2AError) -> bool:
    """Whether an agent says by an error that all who call should wait, and for how long."""
    if not error.retry_after:  # 0 leaves it to the one who was refused
        return False
    is_busy = error.http_status in _BUSY or error.grpc_status in _BUSY
    return is_busy or error.code == ArticleErrorCode.RATE_LIMITED
