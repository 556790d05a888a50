"""Around the official SDK's request handler: what fails in it says nothing that is not meant.

The SDK answers an exception with its text. Here it is an error of the protocol as it is, an
`A2AError` in the SDK's form, or "internal error" and a line in the log.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

from a2a.utils import errors as sdk

from holdfast._aio.cancel_scope import CancelScope
from holdfast._integrations.a2a_sdk.messages import to_value
from holdfast._model.error_writing import own_words
from holdfast._server.answers import error_of_failure
from holdfast._server.json_requests import holds_more
from holdfast.types import Message

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Generator

    from a2a.server.request_handlers import RequestHandler

    from holdfast.errors import A2AError

__all__ = ["SafeRequestHandler", "sdk_error"]

logger = logging.getLogger("holdfast.server")

_STREAMS = frozenset({"on_message_send_stream", "on_subscribe_to_task"})
_SENDS = frozenset({"on_message_send", "on_message_send_stream"})
_LIMITS = {"on_cancel_task": 30.0}
"""Seconds after which is answered what does not end."""


class SafeRequestHandler:
    """Every operation of a handler, under the SDK's name; none tells a failure that is not meant.

    Args:
        handler: The SDK's.
        agent: The name of the agent.
        required: The URIs of the extensions that whoever sends a message has to declare.
        max_parts: Parts that a message may have.
        max_values: JSON values that a message may hold.
    """

    def __init__(
        self,
        handler: RequestHandler,
        agent: str,
        *,
        required: frozenset[str] = frozenset(),
        max_parts: int,
        max_values: int,
    ) -> None:
        self._agent = agent
        self._max_parts = max_parts
        self._max_values = max_values
        self._required = required
        self._in_flight = 0
        self._is_idle = asyncio.Event()
        self._is_idle.set()
        for name in dir(handler):
            if name.startswith("on_"):
                guard = self._stream if name in _STREAMS else self._unary
                setattr(self, name, guard(getattr(handler, name), _LIMITS.get(name)))

    async def idle(self, seconds: float) -> None:
        """Waits until all is answered, but not for ever."""
        async with CancelScope.within(seconds):
            await self._is_idle.wait()

    def _unary(self, method: Callable[..., Any], limit: float | None) -> Callable[..., Any]:
        @functools.wraps(method)
        async def call(*arguments: Any, **named: Any) -> Any:
            with self._guard():
                self._check(method, arguments)
                async with asyncio.timeout(limit):
                    return await method(*arguments, **named)

        return call

    def _stream(self, method: Callable[..., Any], _: float | None) -> Callable[..., Any]:
        @functools.wraps(method)
        async def call(*arguments: Any, **named: Any) -> AsyncIterator[Any]:
            with self._guard():
                self._check(method, arguments)
                async with aclosing(method(*arguments, **named)) as events:
                    async for event in events:
                        yield event

        return call

    def _check(self, method: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
        """Refuses messages that cannot be read, before there is a turn that could not be led.

        And those of whoever does not declare an extension that is required (A2A 4.6.3).
        """
        if method.__name__ not in _SENDS:
            return
        request, context = arguments[:2]
        if len(request.message.parts) > self._max_parts:
            text = f"the message has more than {self._max_parts} parts"
            raise sdk.InvalidParamsError(text)
        if holds_more(request, self._max_values):  # gRPC brings no JSON that was counted before
            text = f"the request holds more than {self._max_values} JSON values"
            raise sdk.InvalidParamsError(text)
        try:
            to_value(request.message, Message)
        except ValueError as error:
            raise sdk.InvalidParamsError(f"the message is not valid: {error}") from None
        if missing := self._required - set(context.requested_extensions):
            text = f"the agent requires {', '.join(sorted(missing))}"
            raise sdk.ExtensionSupportRequiredError(text)

    @contextlib.contextmanager
    def _guard(self) -> Generator[None]:
        self._in_flight += 1
        self._is_idle.clear()
        try:
            yield
        except sdk.A2AError:
            raise
        except Exception as failure:
            raise _told(failure, self._agent) from failure
        finally:
            self._in_flight -= 1
            if not self._in_flight:
                self._is_idle.set()


def _told(failure: Exception, agent: str) -> sdk.A2AError:
    logger.error(
        "a request to %s failed: %s: %s",
        agent,
        type(failure).__name__,
        failure,
        exc_info=failure,
        extra={"agent": agent},
    )
    return sdk_error(error_of_failure(failure, agent))


def sdk_error(error: A2AError) -> sdk.A2AError:
    """The SDK's error for one of Holdfast's, with its hint to try again and its chain."""
    kind = getattr(sdk, type(error).__name__, sdk.InternalError)
    info = error.to_rest()["details"][0]
    made: sdk.A2AError = kind(message=own_words(error), data=dict(info["metadata"]))
    return made
