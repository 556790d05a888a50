"""The event loop of `holdfast.sync`: one for the program, in a thread of its own.

Rules:
- Everything of Holdfast's runs on that loop, whichever threads call: no object is touched by two.
- A thread that calls waits for the outcome, and for nothing else that could last for ever. Ctrl-C,
  or whatever else is raised in it meanwhile, cancels the call as in the asynchronous API, gives it
  a moment to clean up, and goes on its way.
- A plain function of the caller's is run by the thread that waits, as if that had called it: it
  may take its time, ask for input, or call `holdfast.sync` again.
- A forked child has a loop of its own. It lets go of its parent's sockets, so that nothing that it
  does, and be it at its end, reaches their other ends or what the parent's loop waits on.
- At the end of the program the loop is closed like that of `asyncio.run`.
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

__all__ = ["HookDispatcher", "asked_of_caller", "is_over", "later", "run", "wait_for"]

T = TypeVar("T")

_HEARTBEAT = 1.0
"""Seconds after which a thread that waits looks whether the loop is there, and (on Windows, where
waiting cannot be interrupted) whether Ctrl-C was pressed."""

_LAST_WORD = 3.0
"""Seconds that a call has to clean up when its thread was interrupted, and all at the exit."""


class _PrivateLoop:
    """The loop and its thread, which begins when it is first needed."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._selector: selectors.BaseSelector | None = None
        self._parents: list[asyncio.AbstractEventLoop] = []
        self._begun_later: set[asyncio.Task[object]] = set()
        self.is_over = False

    def here(self) -> asyncio.AbstractEventLoop:
        """The loop, running.

        Raises:
            RuntimeError: It is asked for in its own thread, or after the end of the program.
        """
        loop = self._loop or self._begun()
        if self._thread is threading.current_thread():
            text = (
                "holdfast.sync was called on its own event loop, which would wait for itself: a "
                "coroutine function, an observer, a layer or a predicate runs there; await the "
                "asynchronous API in it, or pass a plain function as the hook"
            )
            raise RuntimeError(text)
        return loop

    def known(self) -> asyncio.AbstractEventLoop | None:
        """The loop, if there is one."""
        return self._loop

    def begin(self, begin: Callable[[], Coroutine[Any, Any, object]]) -> None:
        """Begins something that nobody waits for; called on the loop, which forgets its tasks."""
        task = asyncio.get_running_loop().create_task(begin())
        self._begun_later.add(task)
        task.add_done_callback(self._begun_later.discard)

    def is_alive(self) -> bool:
        """Whether somebody runs the loop."""
        return self._thread is not None and self._thread.is_alive()

    def _begun(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self.is_over:
                text = "the program is at its end: holdfast.sync takes no more calls"
                raise RuntimeError(text)
            if self._loop is None:
                loop = self._new_loop()
                # A daemon, since the program waits for all others before it says that it ends.
                self._thread = threading.Thread(
                    target=self._serve, args=(loop,), name="holdfast.sync", daemon=True
                )
                self._thread.start()
                self._loop = loop
            return self._loop

    def _serve(self, loop: asyncio.AbstractEventLoop) -> None:
        try:
            while not self.is_over:
                # What exits within a task is raised by who waits for it.
                with contextlib.suppress(SystemExit, KeyboardInterrupt):
                    loop.run_forever()
            loop.run_until_complete(_cancel_all())
            loop.run_until_complete(loop.shutdown_asyncgens())
            loop.run_until_complete(loop.shutdown_default_executor())
        finally:
            loop.close()

    def end(self) -> None:
        """Ends the loop, at the end of the program."""
        with self._lock:
            self.is_over = True
            loop, self._loop = self._loop, None
        if loop is not None and self._thread is not None:
            with contextlib.suppress(RuntimeError):  # it has ended by itself
                loop.call_soon_threadsafe(loop.stop)
            self._thread.join(2 * _LAST_WORD)

    def _new_loop(self) -> asyncio.AbstractEventLoop:
        if not hasattr(os, "fork"):
            return asyncio.new_event_loop()
        self._selector = selectors.DefaultSelector()
        return asyncio.SelectorEventLoop(self._selector)

    def leave_to_parent(self) -> None:
        """Forgets the loop, in a child.

        What the system waits on for the loop is shared with the parent, and so are connections:
        to close one here would end the parent's. In place of each there is nothing from now on.
        """
        loop, self._loop, self._thread = self._loop, None, None
        self._lock = threading.Lock()  # somebody may have held the other one
        if loop is None or self._selector is None:
            return
        loop.set_exception_handler(_nothing_to_tell)
        self._parents.append(loop)  # whose end would close more
        nothing = os.open(os.devnull, os.O_RDWR)
        for key in list(self._selector.get_map().values()):
            os.dup2(nothing, key.fd, inheritable=False)
        os.close(nothing)


def _nothing_to_tell(_loop: asyncio.AbstractEventLoop, _context: dict[str, Any]) -> None:
    """What comes of a parent's loop in a child is no news."""


async def _cancel_all() -> None:
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    if tasks:
        done, _ = await asyncio.wait(tasks, timeout=_LAST_WORD)
        for task in done:
            if not task.cancelled():
                task.exception()  # which nobody waits for any more


_private = _PrivateLoop()  # a process has one, as it has one main thread
atexit.register(_private.end)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_private.leave_to_parent)


# ── Waiting for a call ───────────────────────────────────────────────────────────────────────


def run(coroutine: Coroutine[Any, Any, T]) -> T:
    """Runs a coroutine on the event loop of `holdfast.sync`, and waits for what it returns.

    For what a client is given and that has methods of its own, such as an engine or a journal:
    ``run(engine.close())``.

    Raises:
        TypeError: It is no coroutine.
        RuntimeError: It is called on that event loop.
        BaseException: What the coroutine raises.
    """
    if not inspect.isawaitable(coroutine):
        called = "; call it first" if inspect.iscoroutinefunction(coroutine) else ""
        text = f"run takes a coroutine, as engine.close(), not {type(coroutine).__name__}{called}"
        raise TypeError(text)
    try:
        _private.here()
    except RuntimeError:
        coroutine.close()
        raise
    return wait_for(lambda: coroutine)


def wait_for(
    begin: Callable[[], Awaitable[T]],
    callers: HookDispatcher | None = None,
    unclaimed: list[T] | None = None,
) -> T:
    """Begins something on the loop, and waits for it, in the caller's context.

    Args:
        begin: Called on the loop.
        callers: Who runs the plain functions that it calls; this thread if left out.
        unclaimed: Gets the result if this thread is interrupted in the moment in which it comes.

    Raises:
        RuntimeError: It is called on the loop, or at the end of the program.
        BaseException: What comes of it; or what is raised in this thread while it waits.
    """
    call = _Call(begin, _private.here(), HookDispatcher() if callers is None else callers)
    try:
        return call.outcome()
    except BaseException:
        if unclaimed is not None:
            unclaimed.extend(call.unclaimed())
        raise


def later(begin: Callable[[], Coroutine[Any, Any, object]]) -> None:
    """Begins something on the loop, if there still is one, and does not wait for it."""
    loop = _private.known()
    if loop is not None:
        with contextlib.suppress(RuntimeError):  # the loop has just been closed
            loop.call_soon_threadsafe(_private.begin, begin)


def is_over() -> bool:
    """Whether the loop has ended, with all that was on it."""
    return _private.is_over


class _Call(Generic[T]):
    """Something that runs on the loop, and the thread that waits for it.

    The inbox has what the thread is to do: functions to run, and None at the end.
    """

    def __init__(
        self,
        begin: Callable[[], Awaitable[T]],
        loop: asyncio.AbstractEventLoop,
        callers: HookDispatcher,
    ) -> None:
        self.inbox: SimpleQueue[_Request | None] = SimpleQueue()
        self._begin = begin
        self._loop = loop
        self._callers = callers
        self._task: asyncio.Task[T] | None = None

    # ── In the thread ────────────────────────────────────────────────────────────────────────

    def outcome(self) -> T:
        """What comes of it."""
        try:
            self._loop.call_soon_threadsafe(self._start, context=contextvars.copy_context())
            while (request := self._next()) is not None:
                request.run()
        except BaseException:
            self._give_up()
            raise
        task = self._task
        if task is None:
            text = "the event loop of holdfast.sync was interrupted"
            raise RuntimeError(text)
        try:
            return task.result()
        except BaseException:
            self._task = None  # whose error knows this frame
            raise
        finally:
            del task

    def unclaimed(self) -> Iterator[T]:
        """What has come of it, if that was not given to the thread."""
        task, self._task = self._task, None
        if task is not None and task.done() and not task.cancelled() and not task.exception():
            yield task.result()

    def _next(self) -> _Request | None:
        while True:
            try:
                return self.inbox.get(timeout=_HEARTBEAT)
            except Empty:
                # As in a child that was forked in a callback. At the end of the program only
                # daemons wait, and end with it.
                if not (_private.is_alive() or _private.is_over):
                    text = "the event loop of holdfast.sync has ended meanwhile"
                    raise RuntimeError(text) from None

    def _give_up(self) -> None:
        """Cancels it, and waits for a moment until it has cleaned up."""
        until = time.monotonic() + _LAST_WORD
        with contextlib.suppress(Empty, RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._cancel)
            while request := self.inbox.get(timeout=max(0.0, until - time.monotonic())):
                self._loop.call_soon_threadsafe(self._callers.put, request)

    # ── On the loop ──────────────────────────────────────────────────────────────────────────

    def _start(self) -> None:
        _callers.set(self._callers)  # in the context of this call alone
        self._callers.enter(self)
        self._task = self._loop.create_task(_awaited(self._begin))
        self._task.add_done_callback(self._has_ended)

    def _has_ended(self, task: asyncio.Task[T]) -> None:
        if not task.cancelled():
            task.exception()  # who waits may be gone, and then it is nobody's
        self._callers.leave(self)
        if not _private.is_over:
            self.inbox.put(None)

    def _cancel(self) -> None:
        self._callers.leave(self)
        if self._task is None or self._task.done():
            self.inbox.put(None)
        else:
            self._task.cancel()


async def _awaited(begin: Callable[[], Awaitable[T]]) -> T:
    return await begin()


# ── Functions of the caller's ────────────────────────────────────────────────────────────────


class HookDispatcher:
    """The threads that wait for something, and run the plain functions that it calls.

    Where nobody waits, as between two steps of an iteration, functions wait for somebody to do so.
    Used on the loop alone.
    """

    def __init__(self) -> None:
        self._waiting: list[_Call[Any]] = []
        self._requests: deque[_Request] = deque()

    def enter(self, call: _Call[Any]) -> None:
        """Somebody waits."""
        self._waiting.append(call)
        while self._requests:
            call.inbox.put(self._requests.popleft())

    def leave(self, call: _Call[Any]) -> None:
        """Somebody waits no longer."""
        if call in self._waiting:
            self._waiting.remove(call)

    def put(self, request: _Request) -> None:
        """Gives a function to who waits."""
        if self._waiting:
            self._waiting[-1].inbox.put(request)
        else:
            self._requests.append(request)

    async def ask(self, function: Callable[..., Any], *args: Any) -> Any:
        """Has a function called by who waits."""
        request = _Request(function, args)
        self.put(request)
        value, error = await request.answer
        if error is not None:
            raise error
        return value


_callers: contextvars.ContextVar[HookDispatcher] = contextvars.ContextVar("holdfast.sync callers")


class _Request:
    """A function to be called by a thread that waits."""

    def __init__(self, function: Callable[..., Any], args: tuple[Any, ...]) -> None:
        self._function = function
        self._args = args
        self._loop = asyncio.get_running_loop()
        self.answer: asyncio.Future[tuple[Any, Exception | None]] = self._loop.create_future()

    def run(self) -> None:
        """Calls it, unless nobody wants to know any more."""
        if self.answer.done():
            return
        outcome: tuple[Any, Exception | None]
        try:
            outcome = self._function(*self._args), None
        except Exception as error:  # noqa: BLE001  raised where it is waited for
            outcome = None, error
        except BaseException:  # Ctrl-C, for example: the thread does not wait any longer
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self.answer.cancel)
            raise
        with contextlib.suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._answered, outcome)

    def _answered(self, outcome: tuple[Any, Exception | None]) -> None:
        if not self.answer.done():
            self.answer.set_result(outcome)


def asked_of_caller(function: Callable[..., Any]) -> Callable[..., Coroutine[Any, Any, Any]]:
    """A plain function as a coroutine function, which the thread that waits is asked to run."""

    async def ask(*args: Any) -> Any:
        callers = _callers.get(None)
        if callers is None:  # of something that began by itself, which nobody waits for
            given = await asyncio.to_thread(function, *args)
        else:
            given = await callers.ask(function, *args)
        return await given if inspect.isawaitable(given) else given

    return ask
