"""Failover: make a call at the first candidate that accepts it, an interface or a replica.

Rules: a candidate that refuses before anything is sent, or where no agent answers, is skipped; one
where the call has failed, or was refused, comes after all others in the next attempt. An agent
that sends Retry-After has not failed: where the call can wait, it waits there. Nor has an agent
for which there are no credentials.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, TypeVar

from holdfast._policy.retry import is_permanent_connect_failure
from holdfast._policy.retry_after import asks_to_wait
from holdfast._wire.status import is_not_an_agent
from holdfast.errors import A2AError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Hashable, Iterable

    from holdfast._pipeline.transport import AnyCall

__all__ = ["try_in_order"]

W = TypeVar("W", bound="Hashable")
T = TypeVar("T")


async def try_in_order(
    call: AnyCall, candidates: Iterable[W], make: Callable[[W], Awaitable[T | None]]
) -> T:
    """Make a call at one candidate after another, until one does not refuse it.

    Args:
        call: The call; its progress remembers the candidates.
        candidates: The candidates: at least one, the best one first.
        make: Makes the call at a candidate; None if the candidate turns out not to be usable,
            which must not be so for all of them.

    Raises:
        A2AError: The error of the first candidate that did not refuse the call; or where all
            refuse it, the refusal with the shortest Retry-After, one without it counting as
            endless.
    """
    progress = call.progress
    failures = progress.candidates
    refusals: list[A2AError] = []
    candidates = list(candidates)
    for candidate in candidates:
        failures.setdefault(candidate, 0)
    for candidate in sorted(candidates, key=failures.__getitem__):
        failures[candidate] += 1
        attempts_before = len(progress.attempts)
        try:
            reply = await make(candidate)
        except A2AError as error:
            if asks_to_wait(error) or progress.lacks_credentials:
                del failures[candidate]
            is_untried = len(progress.attempts) == attempts_before
            is_none = is_permanent_connect_failure(error) or is_not_an_agent(call.operation, error)
            is_passed = is_untried or (is_none and not progress.lacks_credentials)
            if error.executed is not False or not is_passed:
                raise
            refusals.append(error)
        else:
            if reply is not None:
                return reply
    raise min(refusals, key=_ends_after)


def _ends_after(refusal: A2AError) -> float:
    return math.inf if refusal.retry_after is None else refusal.retry_after
