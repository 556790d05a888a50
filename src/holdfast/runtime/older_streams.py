"""Streams of protocol 0.3, where they differ from those of 1.0.

Agents of 0.3 say which event is the last one. What they answer a subscription with begins with no
task but with the next thing that happens, which may be nothing, and they break off what they
refuse.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, TypeVar

from holdfast.errors import A2AConnectionError, A2AError, UnsupportedOperationError
from holdfast.model.v03.reading import LastResponse
from holdfast.runtime.transport import Stream, StreamOver

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Mapping
    from typing import Any

    from holdfast.model.types import Task

__all__ = ["UntilLast", "subscribed"]

R = TypeVar("R")

_FIRST_LOOK, _LATEST_LOOK = 2.0, 60.0
"""Seconds of silence after which the task is asked for; twice as many each time."""


class UntilLast(StreamOver[R]):
    """A stream that has ended in good order after such an event, however long it stays open."""

    def __init__(self, inner: Stream[R]) -> None:
        super().__init__(inner)
        self.at_hand = self._at_hand
        self._inner_at_hand = inner.at_hand
        self._is_over = False

    async def __anext__(self) -> R:
        """The next event."""
        if self._is_over:
            raise StopAsyncIteration
        return self._seen(await super().__anext__())

    def _at_hand(self) -> R | None:
        event = None if self._is_over else self._inner_at_hand()
        return None if event is None else self._seen(event)

    def _seen(self, event: R) -> R:
        self._is_over = isinstance(event, LastResponse)
        return event


async def subscribed(
    opening: Coroutine[Any, Any, Mapping[str, str]],
    look: Callable[[], Coroutine[Any, Any, Task]],
) -> Mapping[str, str]:
    """Waits until a subscription brings its first event, unless there is none to come.

    Args:
        opening: Opens the subscription. Whoever is cancelled here closes what it has opened.
        look: Asks for the task.

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
