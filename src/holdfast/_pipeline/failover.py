"""Making a call at the first of several ways that takes it: interfaces of a card, or replicas.

Rules: a way that refuses before anything is sent, or where no agent is, is passed over; one where
the call has failed, or was refused, comes after all others when it is tried again. An agent that
asks for time has not failed: where the call can wait, it waits there. Nor has one for which there
are no credentials.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, TypeVar

from holdfast._policy.limiter import asks_to_wait
from holdfast._policy.retry import is_permanent_connect_failure
from holdfast._wire.status import is_not_an_agent
from holdfast.errors import A2AError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Hashable, Iterable

    from holdfast._pipeline.transport import AnyCall

__all__ = ["try_in_order"]

W = TypeVar("W", bound="Hashable")
T = TypeVar("T")


async def try_in_order(
    call: AnyCall, ways: Iterable[W], make: Callable[[W], Awaitable[T | None]]
) -> T:
    """Makes a call at one way after another, until one does not refuse it.

    Args:
        call: The call; its progress remembers the ways.
        ways: At least one, the best one first.
        make: Makes the call at a way; None if that turns out to be none, which not all may.

    Raises:
        A2AError: What the call came to at the first way that let it through; or where all refuse
            it, the refusal that ends first, as one that does not end by itself ends last.
    """
    progress = call.progress
    known = progress.ways
    refusals: list[A2AError] = []
    ways = list(ways)
    for way in ways:
        known.setdefault(way, 0)
    for way in sorted(ways, key=known.__getitem__):
        known[way] += 1
        tried = len(progress.attempts)
        try:
            reply = await make(way)
        except A2AError as error:
            if asks_to_wait(error) or progress.lacks_credentials:
                del known[way]
            is_untried = len(progress.attempts) == tried
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
