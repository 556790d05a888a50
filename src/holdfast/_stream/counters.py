"""What limits the tries of a stream that lead to nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from holdfast._policy.attempts import more_informative
from holdfast.errors import A2AError, A2ATimeoutError, Facts, ReconnectError

if TYPE_CHECKING:
    from holdfast._stream.merging import Subscription
    from holdfast.types import Task

__all__ = ["MAX_EVENTLESS", "StreamCounters"]

MAX_EVENTLESS = 3
"""Consecutive subscriptions without an event beside the task, after which the task is polled.

An agent may answer each subscription with the task as it is, and end it: polling costs it less.
"""


class StreamCounters(msgspec.Struct):
    """Counters of a stream. Counts of events are those of its outbox.

    Attributes:
        tries: Consecutive reconnects, and requests for the task, without a new event; more than
            `ReconnectPolicy.max_reconnects` of them end reconnecting, or the stream.
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

    def exhausted(self, most: int, task_id: str | None, task: Task | None) -> ReconnectError:
        """Return the error of a stream after the most tries that are allowed."""
        match most:
            case 0:
                what = f"the stream of task {task_id} was cut, and reconnecting is switched off"
            case 1:
                what = f"one attempt to resume the stream of task {task_id} yielded no new event"
            case _:
                what = (
                    f"{most} attempts to resume the stream of task {task_id} yielded no new event"
                )
        error = self.failure
        failure = "" if error is None else f"; last error: {error.message}"
        facts = Facts() if error is None else error.facts()
        return ReconnectError(f"{what}{failure}", task=task, **facts)
