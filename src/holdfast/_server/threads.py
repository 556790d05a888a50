"""A thread for each call of a blocking function.

Rules: no call waits for the thread of another one, and a call that never returns delays neither
the server's shutdown nor the exit of the process.
"""

from __future__ import annotations

import asyncio
import contextvars
from concurrent.futures import Executor, Future
from threading import Thread
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["in_thread"]


async def in_thread(function: Callable[..., Any], *args: Any) -> Any:
    """Call a function in a new thread, with the caller's context variables.

    If this coroutine is cancelled, the function keeps running.

    Returns:
        The function's result.

    Raises:
        Exception: The function raised it; RuntimeError if it raised SystemExit.
    """
    loop, context = asyncio.get_running_loop(), contextvars.copy_context()

    def call() -> tuple[Any, Exception | None]:
        return context.run(_outcome, function, args)

    result, error = await loop.run_in_executor(_Threads(), call)
    if error is not None:
        raise error
    return result


def _outcome(function: Callable[..., Any], args: tuple[Any, ...]) -> tuple[Any, Exception | None]:
    """Call a function; return its exception, because a future cannot hold a StopIteration."""
    try:
        return function(*args), None
    except SystemExit as error:  # in a thread, it does not end the process
        failure = RuntimeError("the function raised SystemExit")
        failure.__cause__ = error
        return None, failure
    except Exception as error:  # noqa: BLE001  the coroutine raises it
        return None, error


class _Threads(Executor):
    """Starts a thread for each call; an executor, so that the event loop knows of the call."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        thread = Thread(target=_run, args=(future, fn, args, kwargs), name="agent", daemon=True)
        thread.start()
        return future


def _run(
    future: Future[Any], function: Callable[..., Any], args: Any, kwargs: dict[str, Any]
) -> None:
    if not future.set_running_or_notify_cancel():
        return
    try:
        future.set_result(function(*args, **kwargs))
    except BaseException as error:  # noqa: BLE001  the coroutine raises it
        future.set_exception(error)
