"""Limits of calls in flight and of queued calls, and the recognition of Retry-After."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from holdfast._model.article_errors import ArticleErrorCode
from holdfast._model.settings import check_count

if TYPE_CHECKING:
    from holdfast.errors import A2AError

__all__ = ["ConcurrencyPolicy", "RetryAfterPolicy", "asks_to_wait"]

_BUSY: frozenset[int | str | None] = frozenset({429, 503, "RESOURCE_EXHAUSTED", "UNAVAILABLE"})
"""HTTP and gRPC statuses of rate limiting."""


class ConcurrencyPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """How many calls of a client may be in flight at once.

    Calls and open streams count; requests that belong to one call of the caller, such as a poll of
    the task of an open stream, count once. Queued calls start in order, within their deadlines; a
    stream without a deadline waits for at most 15 minutes.

    Attributes:
        limit: Calls in flight at once; at least 1.
        queue: Calls that may be queued, 0 or more; the next one fails with `QueueFullError`.

    Raises:
        ValueError: `limit` is less than 1, or `queue` is negative.
        TypeError: A value is not an integer.
    """

    limit: int
    queue: int = 1000

    def __post_init__(self) -> None:
        check_count("limit", self.limit, least=1)
        check_count("queue", self.queue)


class RetryAfterPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """How calls wait while a Retry-After of the agent runs (RFC 9110, 10.2.3).

    After one call was rate-limited (429, 503), all calls of its kind (sends or reads) to that
    endpoint wait, and start at a growing rate afterwards; a cancel never waits.

    Attributes:
        queue: Calls that may be queued, 0 or more; the next one fails with `QueueFullError`.

    Raises:
        ValueError: `queue` is negative.
        TypeError: `queue` is not an integer.
    """

    queue: int = 1000

    def __post_init__(self) -> None:
        check_count("queue", self.queue)


def asks_to_wait(error: A2AError) -> bool:
    """Return whether an error is rate limiting with a Retry-After that applies to all callers."""
    if not error.retry_after:  # 0 concerns only the refused call
        return False
    is_busy = error.http_status in _BUSY or error.grpc_status in _BUSY
    return is_busy or error.code == ArticleErrorCode.RATE_LIMITED
