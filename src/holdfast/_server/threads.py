"""Threads for functions that block: one for each call.

Rules: no call waits for another one's thread, and a call that never returns holds up neither the
end of the server nor that of the program.
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
    """Calls a function in a thread of its own, in the caller's context.

    Whoever is cancelled here leaves the function to itself.

    Returns:
        What it returns.

    Raises:
        Exception: What it raises; RuntimeError where it exits.
    """
    loop, context = asyncio.get_running_loop(), contextvars.copy_context()

    def call() -> tuple[Any, Exception | None]:
        return context.run(_outcome, function, args)

    result, error = await loop.run_in_executor(_Threads(), call)
    if error is not None:
        raise error
    return result


def _outcome(function: Callable[..., Any], args: tuple[Any, ...]) -> tuple[Any, Exception | None]:
    """Calls a function; its exception is returned, as a future cannot hold a StopIteration."""
    try:
        return function(*args), None
    except SystemExit as error:  # as everywhere, it ends the thread, and not the program
        failure = RuntimeError("the function wanted to exit")
        failure.__cause__ = error
        return None, failure
    except Exception as error:  # noqa: BLE001  raised where it is waited for
        return None, error


class _Threads(Executor):
    """Begins a thread for each job. It is an executor so that the loop knows of its jobs."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        job: Future[Any] = Future()
        thread = Thread(target=_work, args=(job, fn, args, kwargs), name="agent", daemon=True)
        thread.start()
        return job


def _work(
    job: Future[Any], function: Callable[..., Any], args: Any, kwargs: dict[str, Any]
) -> None:
    if not job.set_running_or_notify_cancel():
        return
    try:
        job.set_result(function(*args, **kwargs))
    except BaseException as error:  # noqa: BLE001  it exits: raised where it is waited for
        job.set_exception(error)
