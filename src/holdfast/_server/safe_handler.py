"""A wrapper around the official SDK's request handler that hides the text of exceptions.

The SDK answers an exception with its text. Here an error of the SDK stays as it is, an `A2AError`
becomes the SDK's, and any other exception becomes "internal error" and a line in the log.
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
from holdfast._server.answers import error_of_failure
from holdfast._server.json_requests import exceeds_json_values
from holdfast.integrations.a2a_sdk import to_value
from holdfast.types import Message

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Generator

    from a2a.server.request_handlers import RequestHandler

    from holdfast.errors import A2AError

__all__ = ["SafeRequestHandler", "sdk_error"]

logger = logging.getLogger("holdfast.server")

_STREAMS = frozenset({"on_message_send_stream", "on_subscribe_to_task"})
_SENDS = frozenset({"on_message_send", "on_message_send_stream"})
_TIMEOUTS_S = {"on_cancel_task": 30.0}


class SafeRequestHandler:
    """The operations of an SDK request handler, under the same names, with safe errors.

    Args:
        handler: The SDK's handler.
        agent: The name of the agent.
        required: The URIs of the extensions that a client must declare to send a message.
        max_parts: Parts that a message may have.
        max_values: JSON values that a message may contain.
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
                wrap = self._stream if name in _STREAMS else self._unary
                setattr(self, name, wrap(getattr(handler, name), _TIMEOUTS_S.get(name)))

    async def wait_idle(self, seconds: float) -> None:
        """Wait until no request is in flight, but no longer than the given seconds."""
        async with CancelScope.within(seconds):
            await self._is_idle.wait()

    def _unary(self, method: Callable[..., Any], timeout: float | None) -> Callable[..., Any]:
        @functools.wraps(method)
        async def call(*args: Any, **kwargs: Any) -> Any:
            with self._guard():
                self._check_message(method, args)
                async with asyncio.timeout(timeout):
                    return await method(*args, **kwargs)

        return call

    def _stream(self, method: Callable[..., Any], _: float | None) -> Callable[..., Any]:
        @functools.wraps(method)
        async def call(*args: Any, **kwargs: Any) -> AsyncIterator[Any]:
            with self._guard():
                self._check_message(method, args)
                async with aclosing(method(*args, **kwargs)) as events:
                    async for event in events:
                        yield event

        return call

    def _check_message(self, method: Callable[..., Any], args: tuple[Any, ...]) -> None:
        """Refuse a message that is not valid, before a turn starts.

        Refuse also a client that does not declare a required extension (A2A 4.6.3).
        """
        if method.__name__ not in _SENDS:
            return
        request, context = args[:2]
        if len(request.message.parts) > self._max_parts:
            text = f"the message has more than {self._max_parts} parts"
            raise sdk.InvalidParamsError(text)
        if exceeds_json_values(request, self._max_values):  # gRPC has no JSON to count earlier
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
            raise _safe_error(failure, self._agent) from failure
        finally:
            self._in_flight -= 1
            if not self._in_flight:
                self._is_idle.set()


def _safe_error(failure: Exception, agent: str) -> sdk.A2AError:
    """Log a failure, and return the error that the client gets."""
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
    """Return the SDK's error for an `A2AError`, with its retry advice and its chain."""
    error_class = getattr(sdk, type(error).__name__, sdk.InternalError)
    body = error.to_rest()
    metadata = dict(body["details"][0]["metadata"])
    result: sdk.A2AError = error_class(message=body["message"], data=metadata)
    return result
