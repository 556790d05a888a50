"""Virtual time: an asyncio event loop for tests, on which waiting takes no time.

This module owns the clock, and the order in which tasks that became ready together are resumed.

- The clock stands still while code runs. When nothing is ready it jumps to the next timer. Timers
  set for the same instant fire in the order in which they were set.
- It never jumps while a job of an executor is at work: that is really waited for, up to
  30 seconds without a sign of life. Threads which the loop did not start are not seen: use
  ``asyncio.to_thread``. A job that waits for a timer of this loop waits for ever, and is reported.
- When nothing can ever wake the loop, it raises `DeadlockError` instead of hanging.
- Real sockets, pipes and subprocesses are refused with `RealIOError`.
- With a seed, tasks that are ready together are resumed in an order drawn from that seed. Plain
  callbacks, and with them those of transports, keep their places. A schedule can be replayed as
  long as it uses no executor: threads finish when they like.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import itertools
import math
import random
import selectors
from collections.abc import Callable
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar, TypeVarTuple

if TYPE_CHECKING:
    from collections import deque
    from collections.abc import Coroutine, Iterable
    from contextvars import Context

__all__ = ["EPOCH", "DeadlockError", "OrphanTaskError", "RealIOError", "VirtualTimeLoop", "run"]

T = TypeVar("T")
Ts = TypeVarTuple("Ts")
_Events = list[tuple[selectors.SelectorKey, int]]
_Poll = Callable[[float], _Events]

EPOCH = datetime(2026, 1, 1, tzinfo=UTC).timestamp()
"""Wall time, in seconds since 1970, when the clock shows 0."""

# Real seconds without any event, after which a job of an executor is taken to be stuck.
_EXECUTOR_LIMIT = 30.0
# An error names this many tasks, and this many characters of the name of each.
_TASKS_NAMED = 5
_NAME_LENGTH = 60
_ASYNCIO = str(Path(asyncio.__file__).parent)


class DeadlockError(RuntimeError):
    """Nothing can wake the event loop any more, or a job of an executor is stuck.

    The message has the virtual time, and the positions of up to five pending tasks.
    """


class OrphanTaskError(RuntimeError):
    """The main coroutine returned while other tasks were pending; the message names up to five."""


class RealIOError(RuntimeError):
    """A loop in virtual time was asked for a real socket, pipe or subprocess."""


def _refuse(operation: str) -> Callable[..., NoReturn]:
    """Make the method that stands in for an operation of real I/O; it raises when called."""

    def refused(*_args: object, **_kwargs: object) -> NoReturn:
        raise RealIOError(
            f"{operation}: virtual time cannot wait for real I/O; run this test on an ordinary "
            "event loop (asyncio.run)"
        )

    return refused


class _Selector(selectors.DefaultSelector):
    """Hands each wait of the event loop to ``wait(timeout, poll)``; watches the self-pipe."""

    def __init__(self, wait: Callable[[float | None, _Poll], _Events]) -> None:
        super().__init__()
        self._wait = wait

    def select(self, timeout: float | None = None) -> _Events:
        return self._wait(timeout, super().select)


class _Instant(float):
    """When a timer is due. Of two that are due at once, the one that was set first is less.

    asyncio keeps its timers in a heap, which forgets the order of equals. On a real clock no two
    are equal; on this one most are.
    """

    turn: int

    def __lt__(self, other: float) -> bool:
        if isinstance(other, _Instant) and self == other:
            return self.turn < other.turn
        return super().__lt__(other)


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """Event loop whose clock jumps to the next timer when nothing else is ready.

    A task that polls with ``asyncio.sleep(0)`` keeps the loop busy, so the clock stands still.
    Debug mode works; no callback is ever reported as slow, because no virtual time passes inside a
    callback.

    Args:
        seed: Seed of the order in which tasks that are ready together are resumed. None, the
            default, keeps the order of asyncio: first ready, first resumed.
        start: Time at the start, in seconds; finite, 0 by default.

    Attributes:
        epoch: Wall time of clients and journals when the clock shows 0, in seconds since 1970;
            2026-01-01 by default, as for fake agents. A test may set it, as if the clock of the
            machine was set.

    Raises:
        ValueError: ``start`` is not finite.
    """

    # Attributes of the base classes without public access. The ready handles are what a seed
    # reorders, the first timer is where the clock goes, the resolution decides which timers are
    # due, the pool is where `run_in_executor(None, ...)` goes.
    _ready: deque[asyncio.Handle]
    _scheduled: list[asyncio.TimerHandle]
    _clock_resolution: float
    _default_executor: ThreadPoolExecutor | None

    def __init__(self, *, seed: int | None = None, start: float = 0.0) -> None:
        super().__init__(_Selector(self._wait))
        if not math.isfinite(start):
            self.close()  # an unclosed loop would emit a ResourceWarning
            raise ValueError(f"start must be finite, not {start!r}")
        # Repeatable, not secret.
        self._random = None if seed is None else random.Random(seed)  # noqa: S311
        self._turns = itertools.count()
        self._jobs = 0
        self._jobs_done = asyncio.Event()
        self._jobs_done.set()
        self._job_stuck = False
        self.epoch = EPOCH
        self._set_time(start)

    def time(self) -> float:
        """Return the virtual time in seconds; it begins at ``start``."""
        return self._now

    @property
    def wall_time(self) -> float:
        """The wall time of clients and journals, in seconds since 1970."""
        return self.epoch + self._now

    def call_at(
        self,
        when: float,
        callback: Callable[[*Ts], object],
        *args: *Ts,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        """Call ``callback(*args)`` when the clock has reached ``when``, in seconds."""
        instant = _Instant(when)
        instant.turn = next(self._turns)
        return super().call_at(instant, callback, *args, context=context)

    def _set_time(self, now: float) -> None:
        self._now = now
        # asyncio runs the timers that are due before time() + resolution. One step of a float
        # makes that "up to and including now": none fires early, and on a clock that counts in
        # years, where the usual nanosecond is lost in rounding, none is missed.
        self._clock_resolution = math.ulp(now)

    def _wait(self, timeout: float | None, poll: _Poll) -> _Events:
        """Stand in for the wait of the selector, which the loop enters once per iteration.

        ``timeout`` is 0 if something is ready. What is raised here leaves `run_until_complete`
        between two iterations: the loop can be closed, or run on.
        """
        if timeout == 0:
            events = poll(0)
        elif self._jobs:
            # Both the result of a job and the end of its count arrive by the self-pipe.
            events = poll(_EXECUTOR_LIMIT)
            if not events and not self._ready:
                self._job_stuck = True
                raise DeadlockError(
                    f"{self._jobs} executor job(s) at work for {_EXECUTOR_LIMIT:g} s of real time "
                    f"without a sign of life, at virtual time {self._now:g}; {self._pending()}"
                )
        else:
            # A signal, or a thread, may have spoken since the loop looked.
            events = poll(0)
            if not events and not self._ready:
                self._jump()
        if self._random is not None:
            self._shuffle(self._random)
        return events

    def _jump(self) -> None:
        # The timeout of select() is a rounded difference, cut at one day; the timer is exact.
        when = float(self._scheduled[0].when()) if self._scheduled else math.inf
        if when == math.inf:
            raise DeadlockError(
                f"nothing can wake the loop at virtual time {self._now:g}: nothing is ready, no "
                f"timer is set, no executor job is at work; {self._pending()}"
            )
        self._set_time(max(self._now, when))

    def _pending(self) -> str:
        return f"pending: {_name_tasks(asyncio.all_tasks(self))}"

    def _shuffle(self, dice: random.Random) -> None:
        # A copy, because other threads may append meanwhile. They append at the right end only,
        # so the places found here stay valid.
        ready = list(self._ready)
        places = [place for place, handle in enumerate(ready) if _resumes_task(handle)]
        for place, source in zip(places, dice.sample(places, len(places)), strict=True):
            self._ready[place] = ready[source]

    def run_in_executor(
        self,
        executor: Executor | None,
        func: Callable[[*Ts], T],
        *args: *Ts,
    ) -> asyncio.Future[T]:
        """Run ``func(*args)`` in an executor; the clock stands still until it returns.

        The clock also stands still if the returned future is cancelled: the thread continues, and
        its effects must not depend on the time of the clock.

        Raises:
            RuntimeError: The loop is closed, or the executor was shut down.
        """
        if self.is_closed():
            raise RuntimeError("Event loop is closed")
        executor = executor or self._default_executor
        if executor is None:
            executor = ThreadPoolExecutor(thread_name_prefix="asyncio")
            self.set_default_executor(executor)
        job = executor.submit(func, *args)
        future = asyncio.wrap_future(job, loop=self)
        self._jobs += 1
        self._jobs_done.clear()
        # Added after that of wrap_future, so it is called after it: the loop first learns the
        # result, then that the job is over. In between the job still counts.
        job.add_done_callback(self._job_ended)
        return future

    def _job_ended(self, _job: Future[Any]) -> None:
        """Report to the loop, from any thread, that one job has ended."""
        with contextlib.suppress(RuntimeError):  # the loop is closed: jobs are no longer counted
            self.call_soon_threadsafe(self._uncount_job)

    def _uncount_job(self) -> None:
        self._jobs -= 1
        if not self._jobs:
            self._jobs_done.set()

    async def shutdown_default_executor(self, timeout: float | None = None) -> None:
        """Wait for all executor jobs, and then shut the default executor down.

        ``timeout`` is not used, because no virtual time passes meanwhile. If a job is stuck, this
        method does not wait for it again; ``close()`` releases the executor.
        """
        del timeout
        if self._job_stuck:
            return
        await self._jobs_done.wait()
        # The base class has a thread of its own wait for the executor: it is counted like a job.
        self._jobs += 1
        try:
            await super().shutdown_default_executor()
        finally:
            self._jobs -= 1

    # The self-pipe, which carries signals and the results of threads, does not come this way.
    # (The first two are methods because a type checker cannot match them to a bare callable.)
    def add_reader(self, fd: object, callback: Callable[..., Any], *args: object) -> NoReturn:
        """Raise a `RealIOError`, as all methods for real sockets do."""
        _refuse("add_reader")(fd, callback, *args)

    def add_writer(self, fd: object, callback: Callable[..., Any], *args: object) -> NoReturn:
        """Raise a `RealIOError`, as all methods for real sockets do."""
        _refuse("add_writer")(fd, callback, *args)

    connect_accepted_socket = _refuse("connect_accepted_socket")
    connect_read_pipe = _refuse("connect_read_pipe")
    connect_write_pipe = _refuse("connect_write_pipe")
    create_connection = _refuse("create_connection")
    create_datagram_endpoint = _refuse("create_datagram_endpoint")
    create_server = _refuse("create_server")
    create_unix_connection = _refuse("create_unix_connection")
    create_unix_server = _refuse("create_unix_server")
    sock_accept = _refuse("sock_accept")
    sock_connect = _refuse("sock_connect")
    sock_recv = _refuse("sock_recv")
    sock_recv_into = _refuse("sock_recv_into")
    sock_recvfrom = _refuse("sock_recvfrom")
    sock_recvfrom_into = _refuse("sock_recvfrom_into")
    sock_sendall = _refuse("sock_sendall")
    sock_sendfile = _refuse("sock_sendfile")
    sock_sendto = _refuse("sock_sendto")
    subprocess_exec = _refuse("subprocess_exec")
    subprocess_shell = _refuse("subprocess_shell")


def run(
    main: Coroutine[Any, Any, T], *, seed: int | None = None, allow_orphans: bool = False
) -> T:
    """Run a coroutine in virtual time, as ``asyncio.run`` does in real time.

    At the end it cancels the tasks that are left, shuts down asynchronous generators and the
    default executor, and closes the loop. The event loop set for the thread, if any, stays set.

    Args:
        main: The coroutine to run; its exceptions are raised. Problems in the clean-up after it
            are added to them as notes.
        seed: Seed of the order in which ready tasks are resumed, as for `VirtualTimeLoop`; None,
            the default, for the order of asyncio.
        allow_orphans: Whether ``main`` may return while other tasks are pending; False by default.

    Returns:
        The result of ``main``.

    Raises:
        DeadlockError: Nothing can wake the event loop any more, or a job of an executor is stuck.
        OrphanTaskError: ``main`` returned while other tasks were pending.
        RuntimeError: Another event loop is running in this thread.
    """
    runner = asyncio.Runner(loop_factory=functools.partial(VirtualTimeLoop, seed=seed))
    try:
        result = runner.run(main)
        if not allow_orphans:
            _check_orphans(asyncio.all_tasks(runner.get_loop()))
    except BaseException as error:
        try:
            runner.close()
        except DeadlockError as late:
            error.add_note(f"and while cleaning up: {late}")
        raise
    runner.close()
    return result


def _check_orphans(pending: set[asyncio.Task[Any]]) -> None:
    # A loop closes an asynchronous generator in such a task after the garbage collector has found
    # it, at a time that no test controls; closing the loop ends the task.
    orphans = {
        task for task in pending if type(task.get_coro()).__name__ != "async_generator_athrow"
    }
    if orphans:
        raise OrphanTaskError(f"main returned before its tasks did: {_name_tasks(orphans)}")


def _resumes_task(handle: asyncio.Handle) -> bool:
    """Whether a handle starts or resumes a task: a step or a wake-up, bound to the task.

    A public method of a task, say ``call_soon(task.cancel)``, is a plain callback.
    """
    callback = getattr(handle, "_callback", None)  # a handle has no public access to it
    return isinstance(getattr(callback, "__self__", None), asyncio.Task) and not hasattr(
        asyncio.Task, getattr(callback, "__name__", "")
    )


def _name_tasks(tasks: Iterable[asyncio.Task[Any]]) -> str:
    # By length first, so that Task-2 comes before Task-10.
    named = sorted(tasks, key=lambda task: (len(task.get_name()), task.get_name()))
    lines = [f"{task.get_name()[:_NAME_LENGTH]!r} at {_place(task)}" for task in named]
    more = len(lines) - _TASKS_NAMED
    return ", ".join(lines[:_TASKS_NAMED]) + (f" and {more} more" if more > 0 else "")


def _place(task: asyncio.Task[Any]) -> str:
    """Return where a task is suspended: its innermost line that is not asyncio's own."""
    place = ""
    step: Any = task.get_coro()
    while (frame := getattr(step, "cr_frame", None)) is not None:
        code = frame.f_code
        if not place or not code.co_filename.startswith(_ASYNCIO):
            place = f"{Path(code.co_filename).name}:{frame.f_lineno} in {code.co_name}"
        step = step.cr_await
    return place or "an unknown line"
