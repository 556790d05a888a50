"""The limit of calls in flight, and of queued calls."""

from __future__ import annotations

from holdfast._model.settings import Policy, check_count

__all__ = ["ConcurrencyPolicy"]


class ConcurrencyPolicy(Policy, frozen=True, kw_only=True):
    """Bulkhead: largest number of calls of a client in flight, and queue of further ones.

    Calls and open streams count; requests that belong to one call of the caller, such as a poll of
    the task of an open stream, count once. Queued calls start in order, within their deadlines; a
    stream without a deadline waits for at most 15 minutes.

    Attributes:
        limit: Calls in flight at once; at least 1.
        queue: Calls that may be queued, 0 or more, 1,000 by default; the next one fails with
            `QueueFullError`.

    Raises:
        ValueError: `limit` is less than 1, or `queue` is negative.
        TypeError: A value is not an integer.
    """

    limit: int
    queue: int = 1000

    def __post_init__(self) -> None:
        check_count("limit", self.limit, least=1)
        check_count("queue", self.queue)
