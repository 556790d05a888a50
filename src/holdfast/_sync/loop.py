"""The event loop of `holdfast.sync`: one for the process, in a thread of its own.

Rules:
- All of Holdfast runs on that loop, whichever threads call: no object is used by two threads.
- A calling thread waits for the outcome of its call only. Ctrl-C, or any other exception in the
  thread, cancels the call as in the asynchronous API, waits up to 3 s for its cleanup, and is
  raised.
- A plain function of the caller is run by the waiting thread: it may block, ask for input, or
  call `holdfast.sync` again.
- A forked child has its own loop. It replaces its parent's sockets, so that nothing that it does,
  not even its exit, affects the parent's connections or loop.
- At the exit of the process, the loop is closed as by `asyncio.run`.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import contextvars
import inspect
import os
import selectors
import threading
import time
from collections import deque
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Iterator

__all__ = ["HookDispatcher", "is_over", "run", "run_by_caller", "start_later", "wait_for"]

T = TypeVar("T")

_CHECK_INTERVAL_S = 1.0
"""Seconds after which a waiting thread checks that the loop is alive, and (on Windows, where the
wait cannot be interrupted) whether Ctrl-C was pressed."""

_CLEANUP_GRACE_S = 3.0
"""Seconds that a call has to clean up when its thread was interrupted, and all calls at exit."""


class _PrivateLoop:
    """The loop and its thread, which starts when it is first needed."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._selector: selectors.BaseSelector | None = None
        self._parents: list[asyncio.AbstractEventLoop] = []
        self._detached_tasks: set[asyncio.Task[object]] = set()
        self.is_over = False

    def get_or_start(self) -> asyncio.AbstractEventLoop:
        """Return the running loop.

        Raises:
            RuntimeError: This is the loop's own thread, or the process is exiting.
        """
        loop = self._loop or self._start()
        if self._thread is threading.current_thread():
            text = (
                "holdfast.sync was called on its own event loop, which would wait for itself: a "
                "coroutine function, an observer, a layer or a predicate runs there; await the "
                "asynchronous API in it, or pass a plain function"
            )
            raise RuntimeError(text)
        return loop

    def get(self) -> asyncio.AbstractEventLoop | None:
        """Return the loop; None if it was not started."""
        return self._loop

    def start_detached(self, start: Callable[[], Coroutine[Any, Any, object]]) -> None:
        """Start a coroutine without a waiter, on the loop; keep a reference to its task."""
        task = asyncio.get_running_loop().create_task(start())
        self._detached_tasks.add(task)
        task.add_done_callback(self._detached_tasks.discard)

    def is_alive(self) -> bool:
        """Whether the loop's thread runs."""
        return self._thread is not None and self._thread.is_alive()

    def _start(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self.is_over:
                text = "the interpreter is shutting down: holdfast.sync accepts no more calls"
                raise RuntimeError(text)
            if self._loop is None:
                loop = self._new_loop()
                # A daemon, because the process waits for other threads before it calls `end`.
                self._thread = threading.Thread(
                    target=self._serve, args=(loop,), name="holdfast.sync", daemon=True
                )
                self._thread.start()
                self._loop = loop
            return self._loop

    def _serve(self, loop: asyncio.AbstractEventLoop) -> None:
        try:
            while not self.is_over:
                # An exit within a task is raised in the waiting thread.
                with contextlib.suppress(SystemExit, KeyboardInterrupt):
                    loop.run_forever()
            loop.run_until_complete(_cancel_all())
            loop.run_until_complete(loop.shutdown_asyncgens())
            loop.run_until_complete(loop.shutdown_default_executor())
        finally:
            loop.close()

    def end(self) -> None:
        """End the loop, at the exit of the process."""
        with self._lock:
            self.is_over = True
            loop, self._loop = self._loop, None
        if loop is not None and self._thread is not None:
            with contextlib.suppress(RuntimeError):  # it has ended by itself
                loop.call_soon_threadsafe(loop.stop)
            self._thread.join(2 * _CLEANUP_GRACE_S)

    def _new_loop(self) -> asyncio.AbstractEventLoop:
        if not hasattr(os, "fork"):
            return asyncio.new_event_loop()
        self._selector = selectors.DefaultSelector()
        return asyncio.SelectorEventLoop(self._selector)

    def leave_to_parent(self) -> None:
        """Abandon the loop, in a forked child.

        The loop's selector and connections are shared with the parent: closing one here would
        close the parent's. So each file descriptor is replaced by the null device.
        """
        loop, self._loop, self._thread = self._loop, None, None
        self._lock = threading.Lock()  # a thread of the parent may have held the old one
        if loop is None or self._selector is None:
            return
        loop.set_exception_handler(_ignore)
        self._parents.append(loop)  # its finalizer would close the parent's file descriptors
        null = os.open(os.devnull, os.O_RDWR)
        for key in list(self._selector.get_map().values()):
            os.dup2(null, key.fd, inheritable=False)
        os.close(null)


def _ignore(_loop: asyncio.AbstractEventLoop, _context: dict[str, Any]) -> None:
    """Ignore an error of the parent's loop in a child."""


async def _cancel_all() -> None:
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    if tasks:
        done, _ = await asyncio.wait(tasks, timeout=_CLEANUP_GRACE_S)
        for task in done:
            if not task.cancelled():
                task.exception()  # retrieved, so that asyncio does not log it


_private = _PrivateLoop()  # one for each process
atexit.register(_private.end)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_private.leave_to_parent)


# ── Waiting for a call ───────────────────────────────────────────────────────────────────────


def run(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine on the event loop of `holdfast.sync`, and return its result.

    For methods of caller-supplied objects, such as an engine or a journal:
    ``run(engine.close())``.

    Args:
        coroutine: The coroutine.

    Raises:
        TypeError: It is not a coroutine.
        RuntimeError: It is called on that event loop, or the process is exiting.
        BaseException: The coroutine raised it.
    """
    if not inspect.isawaitable(coroutine):
        hint = "; call it first" if inspect.iscoroutinefunction(coroutine) else ""
        text = (
            f"run needs a coroutine, such as engine.close(), not {type(coroutine).__name__}{hint}"
        )
        raise TypeError(text)
    try:
        _private.get_or_start()
    except RuntimeError:
        coroutine.close()
        raise
    return wait_for(lambda: coroutine)


def wait_for(
    start: Callable[[], Awaitable[T]],
    hooks: HookDispatcher | None = None,
    unclaimed: list[T] | None = None,
) -> T:
    """Start an awaitable on the loop with the caller's context variables, and wait for it.

    Args:
        start: Called on the loop; returns the awaitable.
        hooks: Runs the plain functions that it calls; None for this thread.
        unclaimed: Receives the result if this thread is interrupted at the moment it arrives.

    Raises:
        RuntimeError: It is called on the loop, or the process is exiting.
        BaseException: The awaitable raised it, or this thread was interrupted by it.
    """
    call = _Call(start, _private.get_or_start(), HookDispatcher() if hooks is None else hooks)
    try:
        return call.outcome()
    except BaseException:
        if unclaimed is not None:
            unclaimed.extend(call.unclaimed())
        raise


def start_later(start: Callable[[], Coroutine[Any, Any, object]]) -> None:
    """Start a coroutine on the loop, if the loop runs, and do not wait for it."""
    loop = _private.get()
    if loop is not None:
        with contextlib.suppress(RuntimeError):  # the loop has just been closed
            loop.call_soon_threadsafe(_private.start_detached, start)


def is_over() -> bool:
    """Whether the loop has ended, at the exit of the process."""
    return _private.is_over


class _Call(Generic[T]):
    """An awaitable on the loop, and the thread that waits for it.

    The inbox contains the work of the thread: functions to run, and None at the end.
    """

    def __init__(
        self,
        start: Callable[[], Awaitable[T]],
        loop: asyncio.AbstractEventLoop,
        hooks: HookDispatcher,
    ) -> None:
        self.inbox: SimpleQueue[_HookCall | None] = SimpleQueue()
        self._start_awaitable = start
        self._loop = loop
        self._hooks = hooks
        self._task: asyncio.Task[T] | None = None

    # ── In the thread ────────────────────────────────────────────────────────────────────────

    def outcome(self) -> T:
        """Wait for the result."""
        try:
            self._loop.call_soon_threadsafe(self._start, context=contextvars.copy_context())
            while (hook_call := self._next_hook_call()) is not None:
                hook_call.run()
        except BaseException:
            self._abort()
            raise
        task = self._task
        if task is None:
            text = "the event loop of holdfast.sync was interrupted"
            raise RuntimeError(text)
        try:
            return task.result()
        except BaseException:
            self._task = None  # its exception refers to this frame
            raise
        finally:
            del task

    def unclaimed(self) -> Iterator[T]:
        """Yield the result, if the thread did not get it."""
        task, self._task = self._task, None
        if task is not None and task.done() and not task.cancelled() and not task.exception():
            yield task.result()

    def _next_hook_call(self) -> _HookCall | None:
        while True:
            try:
                return self.inbox.get(timeout=_CHECK_INTERVAL_S)
            except Empty:
                # The loop is gone in a child that was forked in a callback. At the exit of the
                # process only daemon threads wait, and end with it.
                if not (_private.is_alive() or _private.is_over):
                    text = "the event loop of holdfast.sync has ended"
                    raise RuntimeError(text) from None

    def _abort(self) -> None:
        """Cancel the call, and wait up to 3 s for its cleanup."""
        deadline_at = time.monotonic() + _CLEANUP_GRACE_S
        with contextlib.suppress(Empty, RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._cancel)
            while hook_call := self.inbox.get(timeout=max(0.0, deadline_at - time.monotonic())):
                self._loop.call_soon_threadsafe(self._hooks.put, hook_call)

    # ── On the loop ──────────────────────────────────────────────────────────────────────────

    def _start(self) -> None:
        _current_hooks.set(self._hooks)  # in the context of this call only
        self._hooks.enter(self)
        self._task = self._loop.create_task(_await(self._start_awaitable))
        self._task.add_done_callback(self._on_done)

    def _on_done(self, task: asyncio.Task[T]) -> None:
        if not task.cancelled():
            task.exception()  # retrieved, so that asyncio does not log it if the thread has left
        self._hooks.leave(self)
        if not _private.is_over:
            self.inbox.put(None)

    def _cancel(self) -> None:
        self._hooks.leave(self)
        if self._task is None or self._task.done():
            self.inbox.put(None)
        else:
            self._task.cancel()


async def _await(start: Callable[[], Awaitable[T]]) -> T:
    return await start()


# ── Functions of the caller ──────────────────────────────────────────────────────────────────


class HookDispatcher:
    """Dispatches the plain functions that a call needs to the threads that wait for it.

    While no thread waits, as between two steps of an iteration, functions are queued. It is used
    on the loop only.
    """

    def __init__(self) -> None:
        self._waiting: list[_Call[Any]] = []
        self._queue: deque[_HookCall] = deque()

    def enter(self, call: _Call[Any]) -> None:
        """Add a waiting thread."""
        self._waiting.append(call)
        while self._queue:
            call.inbox.put(self._queue.popleft())

    def leave(self, call: _Call[Any]) -> None:
        """Remove a thread that waits no longer."""
        if call in self._waiting:
            self._waiting.remove(call)

    def put(self, hook_call: _HookCall) -> None:
        """Pass a function to a waiting thread, or queue it."""
        if self._waiting:
            self._waiting[-1].inbox.put(hook_call)
        else:
            self._queue.append(hook_call)

    async def call(self, function: Callable[..., Any], *args: Any) -> Any:
        """Have a waiting thread call a function, and return its result."""
        hook_call = _HookCall(function, args)
        self.put(hook_call)
        value, error = await hook_call.outcome
        if error is not None:
            raise error
        return value


_current_hooks: contextvars.ContextVar[HookDispatcher] = contextvars.ContextVar(
    "holdfast.sync hooks"
)


class _HookCall:
    """A function to be called by a waiting thread."""

    def __init__(self, function: Callable[..., Any], args: tuple[Any, ...]) -> None:
        self._function = function
        self._args = args
        self._loop = asyncio.get_running_loop()
        self.outcome: asyncio.Future[tuple[Any, Exception | None]] = self._loop.create_future()

    def run(self) -> None:
        """Call the function, unless its result is no longer needed."""
        if self.outcome.done():
            return
        outcome: tuple[Any, Exception | None]
        try:
            outcome = self._function(*self._args), None
        except Exception as error:  # noqa: BLE001  raised on the loop
            outcome = None, error
        except BaseException:  # Ctrl-C, for example: the thread stops waiting
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self.outcome.cancel)
            raise
        with contextlib.suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._set_outcome, outcome)

    def _set_outcome(self, outcome: tuple[Any, Exception | None]) -> None:
        if not self.outcome.done():
            self.outcome.set_result(outcome)


def run_by_caller(function: Callable[..., Any]) -> Callable[..., Coroutine[Any, Any, Any]]:
    """Return a coroutine function that has a waiting thread run a plain function."""

    async def call(*args: Any) -> Any:
        hooks = _current_hooks.get(None)
        if hooks is None:  # a background task of the client, which no thread waits for
            result = await asyncio.to_thread(function, *args)
        else:
            result = await hooks.call(function, *args)
        return await result if inspect.isawaitable(result) else result

    return call
