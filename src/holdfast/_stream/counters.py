"""What limits the tries of a stream that lead to nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from holdfast._policy.attempts import more_informative
from holdfast.errors import A2AError, A2ATimeoutError

if TYPE_CHECKING:
    from holdfast._stream.merging import Subscription

__all__ = ["MAX_EVENTLESS", "StreamCounters"]

MAX_EVENTLESS = 3
"""Consecutive subscriptions without an event beside the task, after which the task is polled.

An agent may answer each subscription with the task as it is, and end it: polling costs it less.
"""


class StreamCounters(msgspec.Struct):
    """Counters of a stream. Counts of events are those of its outbox.

    Attributes:
        tries: Consecutive reconnects, and requests for the task, without a new event; after more
            than `ReconnectPolicy.max_reconnects` of them, the task is polled.
        tried_at_count: Count of events at the last of them: more events by now reset `tries`.
        failure: The most informative error of these tries.
        eventless: Consecutive subscriptions without an event beside the task as it
            is; `MAX_EVENTLESS` of them end reconnecting.
        behind_at_count: Count of events when the task first showed more than the first connection
            had brought. If it is the same at the next request, the connection is cut off.
        cut_at_count: Count of events when a connection broke: with more events at the end, the
            error of the connection is not the cause of the end.
    """

    tries: int = 0
    tried_at_count: int = 0
    failure: A2AError | None = None
    eventless: int = 0
    behind_at_count: int | None = None
    cut_at_count: int = 0

    def note_try(self, count: int, error: A2AError | None) -> None:
        """Count another try, with the count of events and the error that made it necessary."""
        if self.tried_at_count < count:
            self.tries, self.failure = 0, None
        self.failure = None if error is None else more_informative(error, self.failure)
        self.tries, self.tried_at_count = self.tries + 1, count

    def note_subscription_end(self, subscription: Subscription, error: A2AError | None) -> None:
        """Count the end of a subscription, with the error that ended it, if one did.

        One that was only silent until its timeout proves nothing about the agent.
        """
        if subscription.has_events:
            self.eventless = 0
        elif not isinstance(error, A2ATimeoutError):
            self.eventless += 1
