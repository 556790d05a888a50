"""Subscriptions that begin with no snapshot of the task but with the next thing that happens.

That may be nothing: whoever subscribes asks for the task where it stays silent. Agents that
subscribe so break off what they refuse.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from holdfast.errors import A2AConnectionError, A2AError, UnsupportedOperationError

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Mapping
    from typing import Any

    from holdfast.model.types import Task

__all__ = ["subscribed"]

_FIRST_LOOK, _LATEST_LOOK = 2.0, 60.0
"""Seconds of silence after which the task is asked for; twice as many each time."""


async def subscribed(
    opening: Coroutine[Any, Any, Mapping[str, str]],
    look: Callable[[], Coroutine[Any, Any, Task]],
) -> Mapping[str, str]:
    """Waits until a subscription brings its first event, unless there is none to come.

    Args:
        opening: Opens the subscription. Whoever is cancelled here closes what it has opened.
        look: Asks for the task.

    Returns:
        What opening it gives: the headers of the reply.

    Raises:
        UnsupportedOperationError: The task is over or waits for input, or the agent breaks off.
        A2AError: What opening it raises.
    """
    first = asyncio.ensure_future(opening)
    silence = _FIRST_LOOK
    try:
        while not (await asyncio.wait({first}, timeout=silence))[0]:
            silence = min(2 * silence, _LATEST_LOOK)
            try:
                state = (await look()).state
            except A2AError as error:
                if not (error.transient or first.done()):
                    raise
                continue
            if state.is_settled and not first.done():  # else it has begun meanwhile
                break
        else:
            return first.result()
    except A2AConnectionError as error:
        if error.failure != "truncated":
            raise
        text = f"the agent took no subscription: {error.message}"
        raise UnsupportedOperationError(text, **error.facts()) from error
    finally:
        if first.cancel():
            await asyncio.wait({first})
    text = f"there is nothing to subscribe to: the task is {state.name}"
    raise UnsupportedOperationError(text, executed=False)
