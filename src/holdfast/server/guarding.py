"""Around the official SDK's request handler: what fails in it says nothing that is not meant.

The SDK answers an exception with its text. Here it is an error of the protocol as it is, an
`A2AError` in the SDK's form, or "internal error" and a line in the log.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import logging
from typing import TYPE_CHECKING, Any, cast

from a2a.utils import errors as sdk

from holdfast.errors import A2AError
from holdfast.errors.writing import own_words
from holdfast.server.answers import error_of_failure

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from a2a.server.request_handlers import RequestHandler

__all__ = ["guarded", "sdk_error"]

logger = logging.getLogger("holdfast.server")

_STREAMS = frozenset({"on_message_send_stream", "on_subscribe_to_task"})
_CANCEL = "on_cancel_task"
_CANCELING = 30.0
"""Seconds after which a cancel is answered that does not end."""


def guarded(handler: RequestHandler, agent: str) -> RequestHandler:
    """The same handler, whose failures are told as errors of the protocol only.

    Args:
        handler: The SDK's.
        agent: The name of the agent.
    """
    return cast("RequestHandler", _Guarded(handler, agent))


class _Guarded:
    """Every operation of a handler, by the name that the SDK calls it."""

    def __init__(self, handler: Any, agent: str) -> None:
        for name in dir(handler):
            if name.startswith("on_"):
                guard = _stream if name in _STREAMS else _unary
                limit = _CANCELING if name == _CANCEL else None
                setattr(self, name, guard(getattr(handler, name), agent, limit))


def _unary(method: Callable[..., Any], agent: str, limit: float | None) -> Callable[..., Any]:
    @functools.wraps(method)
    async def call(*arguments: Any, **named: Any) -> Any:
        try:
            async with asyncio.timeout(limit):
                return await method(*arguments, **named)
        except sdk.A2AError:
            raise
        except Exception as failure:  # noqa: BLE001  whatever it is
            raise _told(failure, agent) from failure

    return call


def _stream(method: Callable[..., Any], agent: str, _: float | None) -> Callable[..., Any]:
    @functools.wraps(method)
    async def call(*arguments: Any, **named: Any) -> AsyncIterator[Any]:
        events = method(*arguments, **named)
        try:
            async for event in events:
                yield event
        except sdk.A2AError:
            raise
        except Exception as failure:  # noqa: BLE001  whatever it is
            raise _told(failure, agent) from failure
        finally:
            if inspect.isasyncgen(events):
                await events.aclose()

    return call


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
    """The SDK's error for one of Holdfast's, with what it says of trying again and of its chain."""
    kind = getattr(sdk, type(error).__name__, sdk.InternalError)
    info = error.to_rest()["details"][0]
    made: sdk.A2AError = kind(message=own_words(error), data=dict(info["metadata"]))
    return made
