"""Subscriptions that do not begin with a snapshot of the task, but with its next event.

There may be no such event. So the task is fetched while the subscription is silent. Agents that
subscribe in this way end the connection to refuse a subscription.
"""

from __future__ import annotations

import asyncio
import contextlib
from functools import partial
from typing import TYPE_CHECKING, Protocol

import msgspec

from holdfast._aio.callbacks import cancel_and_wait
from holdfast._aio.closing import close
from holdfast._model.operations import GET_TASK
from holdfast._pipeline.connection import CLOSE_GRACE_S
from holdfast._pipeline.transport import CallProgress
from holdfast.errors import A2AConnectionError, A2AError, UnsupportedOperationError
from holdfast.types import GetTaskRequest

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Mapping
    from typing import Any

    from holdfast._pipeline.transport import AnyCall, Transport
    from holdfast.types import Task

__all__ = ["subscribed"]

_FIRST_LOOK, _LATEST_LOOK = 2.0, 60.0
"""Seconds of silence after which the task is fetched; they double, up to the second number."""


class UnopenedStream(Protocol):
    """A stream that is not open yet."""

    async def open(self) -> Mapping[str, str]:
        """Open it, wait for the first event, and return the headers of the reply."""
        ...

    async def close(self) -> None:
        """Close it, if it is open."""
        ...


async def subscribed(
    subscription: UnopenedStream, call: AnyCall, transport: Transport
) -> Mapping[str, str]:
    """Open a subscription that may bring no event.

    Args:
        subscription: The subscription; it is closed if it brings no event.
        call: The call that subscribes.
        transport: Carries the requests for the task meanwhile.

    Returns:
        The headers of the reply.

    Raises:
        UnsupportedOperationError: The task is over or waits for input, or the agent refuses the
            subscription by ending the connection.
        A2AError: Opening the subscription failed.
    """
    try:
        return await _opened(subscription.open(), partial(_look, call, transport))
    except BaseException:
        with contextlib.suppress(TimeoutError):
            await close(subscription, seconds=CLOSE_GRACE_S)  # it may be open by now
        raise


async def _look(call: AnyCall, transport: Transport) -> Task:
    """Fetch the task that a call subscribes to."""
    question = msgspec.structs.replace(
        call,
        operation=GET_TASK,
        params=GetTaskRequest(id=call.params.id),
        progress=CallProgress(began=call.progress.began, call_group=call.progress.call_group),
    )
    task: Task = (await transport.unary(question)).value
    return task


async def _opened(
    opening: Coroutine[Any, Any, Mapping[str, str]],
    look: Callable[[], Coroutine[Any, Any, Task]],
) -> Mapping[str, str]:
    """Wait until a subscription brings its first event, unless none will come."""
    first = asyncio.create_task(opening, name="a subscription")
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
        text = f"the agent refused the subscription: {error.message}"
        raise UnsupportedOperationError(text, **error.facts()) from error
    finally:
        await cancel_and_wait(first)
    text = f"cannot subscribe: the task is {state.name}"
    raise UnsupportedOperationError(text, executed=False)
