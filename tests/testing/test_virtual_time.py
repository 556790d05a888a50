"""Virtual time: the clock jumps when it may, stands still when it must, and never hangs."""

import asyncio
import contextlib
import selectors
import signal
import socket
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.testing import DeadlockError, OrphanTaskError, RealIOError, VirtualTimeLoop, run

# What a test waits for in a thread comes at once; the bound only keeps a broken loop from hanging.
PATIENCE = 10
HOUR = 3600.0


def now():
    return asyncio.get_running_loop().time()


class Gate:
    """Opens when the loop waits for real, or when the test opens it; jobs wait here in threads.

    A loop that jumps lets the timers of the test fire before it ever waits.
    """

    def __init__(self):
        self.event = threading.Event()

    def open(self):
        self.event.set()

    def wait(self):
        assert self.event.wait(PATIENCE)


@pytest.fixture
def gate(monkeypatch):
    gate = Gate()
    select = selectors.DefaultSelector.select

    def watched(self, timeout=None):
        if timeout is None or timeout > 0:
            gate.open()
        return select(self, timeout)

    monkeypatch.setattr(selectors.DefaultSelector, "select", watched)
    return gate


# --- the clock ----------------------------------------------------------------------------------


def test_an_hour_of_sleep_moves_the_clock_by_an_hour_exactly():
    async def main():
        assert now() == 0.0
        await asyncio.sleep(HOUR)
        return now()

    assert run(main()) == HOUR


def test_clock_begins_at_the_given_time():
    with contextlib.closing(VirtualTimeLoop(start=1e9)) as loop:
        loop.run_until_complete(asyncio.sleep(0.5))
        assert loop.time() == 1e9 + 0.5


@pytest.mark.parametrize("start", [float("nan"), float("inf"), float("-inf")])
def test_the_clock_begins_at_a_finite_time(start):
    with pytest.raises(ValueError, match="finite"):
        VirtualTimeLoop(start=start)


def test_timers_for_the_same_instant_fire_in_the_order_in_which_they_were_set():
    async def main():
        fired = []
        for name in range(100):
            asyncio.get_running_loop().call_later(1, fired.append, name)
        await asyncio.sleep(1)
        return fired

    assert run(main()) == list(range(100))


def test_timers_fire_in_order_each_at_its_own_instant():
    async def main():
        loop = asyncio.get_running_loop()
        fired = []
        for delay in (3.0, 1.0, 2.0, 1.0 + 1e-10):
            loop.call_later(delay, lambda delay=delay: fired.append((delay, loop.time())))
        await asyncio.sleep(4)
        return fired

    assert run(main()) == [(delay, delay) for delay in (1.0, 1.0 + 1e-10, 2.0, 3.0)]


def test_a_timer_is_met_on_a_clock_that_counts_in_centuries():
    """Where a float is too coarse for the nanosecond that asyncio adds."""

    async def main():
        await asyncio.sleep(1e10)
        await asyncio.sleep(0.3)
        return now()

    assert run(main()) == 1e10 + 0.3


def test_a_timer_that_was_cancelled_does_not_move_the_clock():
    async def main():
        asyncio.get_running_loop().call_later(50, print).cancel()
        await asyncio.sleep(1)
        with pytest.raises(DeadlockError):
            asyncio.get_running_loop()._jump()
        return now()

    assert run(main()) == 1


def test_a_timeout_fires_at_its_instant():
    async def main():
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(30):
                await asyncio.Event().wait()
        return now()

    assert run(main()) == 30


def test_a_timeout_that_is_not_needed_leaves_no_trace():
    async def main():
        async with asyncio.timeout(30):
            await asyncio.sleep(29)
        return now()

    assert run(main()) == 29


def test_the_clock_stands_still_while_something_is_ready():
    async def main():
        timer = asyncio.get_running_loop().call_later(0.001, pytest.fail, "the clock moved")
        for _ in range(100):
            await asyncio.sleep(0)
        timer.cancel()
        return now()

    assert run(main()) == 0


@given(st.lists(st.floats(0, 1e6), max_size=20), st.none() | st.integers(0, 3))
def test_wake_up_order_is_by_deadline(delays, seed):
    async def main():
        woken = []

        async def sleeper(delay):
            await asyncio.sleep(delay)
            woken.append((now(), delay))

        async with asyncio.TaskGroup() as group:
            for delay in delays:
                group.create_task(sleeper(delay))
        return woken

    assert run(main(), seed=seed) == [(delay, delay) for delay in sorted(delays)]


def test_debug_mode_works():
    with contextlib.closing(VirtualTimeLoop(seed=1)) as loop:
        loop.set_debug(True)
        loop.run_until_complete(asyncio.sleep(HOUR))
        assert loop.run_until_complete(asyncio.to_thread(lambda: 7)) == 7
        loop.run_until_complete(loop.shutdown_default_executor())
        assert loop.time() == HOUR


# --- deadlock -----------------------------------------------------------------------------------


async def wait_for_ever():
    await asyncio.Event().wait()


def test_a_deadlock_names_the_pending_tasks_and_where_they_are():
    async def main():
        await asyncio.sleep(5)
        async with asyncio.TaskGroup() as group:
            group.create_task(wait_for_ever(), name="the\nwaiter")

    with pytest.raises(DeadlockError) as caught:
        run(main())

    message = str(caught.value)
    line = wait_for_ever.__code__.co_firstlineno + 1
    assert "at virtual time 5" in message
    assert rf"'the\nwaiter' at test_virtual_time.py:{line} in wait_for_ever" in message
    assert "in main" in message
    assert "\n" not in message


def test_a_deadlock_names_a_few_tasks_only():
    async def main():
        await asyncio.gather(*(wait_for_ever() for _ in range(100)))

    with pytest.raises(DeadlockError, match=r"and 96 more$") as caught:
        run(main())
    assert len(str(caught.value)) < 1000


@pytest.mark.parametrize("delay", [None, float("inf")], ids=["no timer", "a timer at infinity"])
def test_after_a_deadlock_the_loop_runs_on_and_closes(delay):
    with contextlib.closing(VirtualTimeLoop()) as loop:
        stuck = loop.create_task(wait_for_ever() if delay is None else asyncio.sleep(delay))
        with pytest.raises(DeadlockError):
            loop.run_until_complete(stuck)
        assert not loop.is_running()
        stuck.cancel()
        with pytest.raises(asyncio.CancelledError):
            loop.run_until_complete(stuck)
    assert loop.is_closed()


def test_after_a_deadlock_tasks_are_cancelled_and_may_take_virtual_time():
    ended = []

    async def main():
        try:
            await wait_for_ever()
        finally:
            await asyncio.sleep(HOUR)
            ended.append(now())

    with pytest.raises(DeadlockError):
        run(main())
    assert ended == [HOUR]


# --- executors ----------------------------------------------------------------------------------


def run_by_loop(job):
    return asyncio.get_running_loop().run_in_executor(None, job)


async def run_by_own_pool(job):
    with ThreadPoolExecutor(1) as pool:
        return await asyncio.get_running_loop().run_in_executor(pool, job)


@pytest.mark.parametrize("start", [asyncio.to_thread, run_by_loop, run_by_own_pool])
def test_the_clock_stands_still_while_a_thread_works(gate, start):
    async def main():
        fired = []

        def fire():
            fired.append(now())
            gate.open()

        timer = asyncio.get_running_loop().call_later(1, fire)
        await start(gate.wait)
        timer.cancel()
        return fired, now()

    assert run(main()) == ([], 0)


def test_a_timeout_around_a_thread_does_not_fire():
    async def main():
        for _ in range(100):
            async with asyncio.timeout(0.001):
                await asyncio.to_thread(lambda: None)
        return now()

    assert run(main()) == 0


def test_many_threads_at_once_are_all_waited_for():
    async def main():
        async with asyncio.timeout(0.001):
            return await asyncio.gather(*(asyncio.to_thread(int, n) for n in range(100)))

    assert run(main()) == list(range(100))


def test_a_job_counts_until_its_result_is_delivered(gate):
    """Not only until its function is done."""

    class LateResults(VirtualTimeLoop):
        def call_soon_threadsafe(self, callback, *args, context=None):
            if callback != self._uncount_job:
                # The function is done, its result is still in the thread: hold it until the loop
                # has had a look, and has decided to wait or to jump.
                gate.event.clear()
                self._write_to_self()
                gate.wait()
            return super().call_soon_threadsafe(callback, *args, context=context)

    async def main():
        async with asyncio.timeout(1) as timeout:
            asyncio.get_running_loop().call_at(timeout.when(), gate.open)
            # Not done before the loop waits, so that the thread delivers the result.
            await asyncio.to_thread(gate.wait)
        return now()

    with contextlib.closing(LateResults()) as loop:
        assert loop.run_until_complete(main()) == 0


def test_jobs_are_counted_on_the_thread_of_the_loop_only(gate):
    threads = []

    class Watched(VirtualTimeLoop):
        def _uncount_job(self):
            threads.append(threading.current_thread())
            super()._uncount_job()

    with contextlib.closing(Watched()) as loop:
        loop.run_until_complete(asyncio.to_thread(gate.wait))
        loop.run_until_complete(loop.shutdown_default_executor())
    assert threads == [threading.main_thread()]


def test_name_resolution_holds_the_clock(gate, monkeypatch):
    def resolve(*args):
        gate.wait()
        return ["an address"]

    async def main():
        loop = asyncio.get_running_loop()
        timer = loop.call_later(1, gate.open)
        async with asyncio.timeout(0.5):
            addresses = await loop.getaddrinfo("example.org", 80)
        timer.cancel()
        return addresses, now()

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    assert run(main()) == (["an address"], 0)


def test_abandoned_job_still_holds_the_clock(gate):
    happened = []

    def job():
        gate.wait()
        happened.append("the job ended")

    def fire():
        happened.append("the clock moved")
        gate.open()

    async def main():
        waiting = asyncio.create_task(asyncio.to_thread(job))
        await asyncio.sleep(0)
        waiting.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await waiting
        asyncio.get_running_loop().call_later(0.5, fire)
        await asyncio.sleep(1)

    run(main())
    assert happened == ["the job ended", "the clock moved"]


def test_a_job_cancelled_before_it_began_is_not_counted_for_ever(gate):
    async def main():
        loop = asyncio.get_running_loop()
        with ThreadPoolExecutor(1) as pool:
            first = loop.run_in_executor(pool, gate.wait)
            second = loop.run_in_executor(pool, pytest.fail, "a cancelled job ran")
            second.cancel()
            await first
            await asyncio.sleep(1)
        return now()

    assert run(main()) == 1


def test_what_a_job_raises_is_raised():
    def job():
        raise LookupError("from the thread")

    with pytest.raises(LookupError, match="from the thread"):
        run(asyncio.to_thread(job))


def test_leftover_jobs_are_waited_for_at_the_end(gate):
    ended = []

    def job():
        gate.wait()
        ended.append(True)

    async def main():
        asyncio.get_running_loop().run_in_executor(None, job)

    run(main())
    assert ended == [True]


def test_a_stuck_job_is_an_error_which_says_so(monkeypatch):
    monkeypatch.setattr("holdfast._testing.virtual_time._EXECUTOR_LIMIT", 0.0)
    release = threading.Event()
    with ThreadPoolExecutor(1) as pool:

        async def main():
            asyncio.get_running_loop().set_default_executor(pool)
            await asyncio.to_thread(release.wait, PATIENCE)

        with pytest.raises(
            DeadlockError, match=r"1 executor job\(s\) at work .* in main"
        ) as caught:
            run(main())
        release.set()
    assert not hasattr(caught.value, "__notes__"), "cleaning up waited for the job again"


def test_a_job_that_is_stuck_at_the_end_is_an_error_too(monkeypatch):
    monkeypatch.setattr("holdfast._testing.virtual_time._EXECUTOR_LIMIT", 0.0)
    release = threading.Event()
    with ThreadPoolExecutor(1) as pool:

        async def main():
            asyncio.get_running_loop().set_default_executor(pool)
            asyncio.get_running_loop().run_in_executor(None, release.wait, PATIENCE)

        with pytest.raises(DeadlockError, match=r"^1 executor job\(s\) at work"):
            run(main())
        release.set()


def test_a_closed_loop_takes_no_job():
    with contextlib.closing(VirtualTimeLoop()) as loop:
        pass
    with pytest.raises(RuntimeError, match="closed"):
        loop.run_in_executor(None, print)


# --- real I/O -----------------------------------------------------------------------------------

REFUSED = {
    "add_reader": lambda loop, sock: loop.add_reader(sock, print),
    "add_writer": lambda loop, sock: loop.add_writer(sock, print),
    "connect_accepted_socket": lambda loop, sock: loop.connect_accepted_socket(
        asyncio.Protocol, sock
    ),
    "connect_read_pipe": lambda loop, sock: loop.connect_read_pipe(asyncio.Protocol, sock),
    "connect_write_pipe": lambda loop, sock: loop.connect_write_pipe(asyncio.Protocol, sock),
    "create_connection": lambda loop, sock: asyncio.open_connection("127.0.0.1", 9),
    "create_datagram_endpoint": lambda loop, sock: loop.create_datagram_endpoint(
        asyncio.DatagramProtocol, sock=sock
    ),
    "create_server": lambda loop, sock: asyncio.start_server(print, "127.0.0.1", 0),
    "create_unix_connection": lambda loop, sock: asyncio.open_unix_connection("/nowhere"),
    "create_unix_server": lambda loop, sock: asyncio.start_unix_server(print, "/nowhere"),
    "sock_accept": lambda loop, sock: loop.sock_accept(sock),
    "sock_connect": lambda loop, sock: loop.sock_connect(sock, ("127.0.0.1", 9)),
    "sock_recv": lambda loop, sock: loop.sock_recv(sock, 1),
    "sock_recv_into": lambda loop, sock: loop.sock_recv_into(sock, bytearray(1)),
    "sock_recvfrom": lambda loop, sock: loop.sock_recvfrom(sock, 1),
    "sock_recvfrom_into": lambda loop, sock: loop.sock_recvfrom_into(sock, bytearray(1)),
    "sock_sendall": lambda loop, sock: loop.sock_sendall(sock, b"x"),
    "sock_sendfile": lambda loop, sock: loop.sock_sendfile(sock, None),
    "sock_sendto": lambda loop, sock: loop.sock_sendto(sock, b"x", ("127.0.0.1", 9)),
    "subprocess_exec": lambda loop, sock: asyncio.create_subprocess_exec("true"),
    "subprocess_shell": lambda loop, sock: asyncio.create_subprocess_shell("true"),
}


@pytest.mark.parametrize("operation", sorted(REFUSED))
def test_real_io_is_refused_with_a_hint(operation):
    async def main():
        with socket.socket() as sock:
            sock.setblocking(False)
            awaitable = REFUSED[operation](asyncio.get_running_loop(), sock)
            if awaitable is not None:
                await awaitable

    with pytest.raises(RealIOError, match=f"^{operation}: .* ordinary event loop"):
        run(main())


# --- the order of tasks -------------------------------------------------------------------------


async def order_of_tasks():
    """Return the order in which ten tasks ran their first, second and third step."""
    steps = []
    go = asyncio.Event()

    async def task(name):
        steps.append(name)
        await go.wait()
        steps.append(name)
        await asyncio.sleep(1)
        steps.append(name)

    async with asyncio.TaskGroup() as group:
        for name in range(10):
            group.create_task(task(name))
        await asyncio.sleep(1)
        go.set()
    return tuple(tuple(steps[at : at + 10]) for at in (0, 10, 20))


def test_without_a_seed_the_order_is_that_of_asyncio():
    assert run(order_of_tasks()) == (tuple(range(10)),) * 3


@given(st.integers())
def test_the_same_seed_gives_the_same_order(seed):
    assert run(order_of_tasks(), seed=seed) == run(order_of_tasks(), seed=seed)


def test_other_seeds_give_other_orders():
    schedules = {run(order_of_tasks(), seed=seed) for seed in range(20)}
    assert len(schedules) == 20
    for step in range(3):
        assert len({schedule[step] for schedule in schedules}) == 20
    for schedule in schedules:
        assert all(sorted(step) == list(range(10)) for step in schedule)
        assert len(set(schedule)) == 3, "a step kept the order of the one before"


def test_callbacks_keep_their_places_among_shuffled_tasks():
    async def main():
        loop = asyncio.get_running_loop()
        ran = []

        async def task(name):
            ran.append(("task", name))

        tasks = []
        for at in range(10):
            loop.call_soon(ran.append, ("callback", at))
            tasks.append(asyncio.create_task(task(at)))
        await asyncio.gather(*tasks)
        return ran

    for seed in range(20):
        ran = run(main(), seed=seed)
        assert ran[0::2] == [("callback", at) for at in range(10)]
        assert sorted(ran[1::2]) == [("task", at) for at in range(10)]
        assert ran[1::2] != sorted(ran[1::2])


def test_a_method_of_a_task_is_a_plain_callback():
    async def main():
        loop = asyncio.get_running_loop()
        cancelled = []

        async def task(name):
            try:
                await wait_for_ever()
            finally:
                cancelled.append(name)

        tasks = [asyncio.create_task(task(name)) for name in range(10)]
        await asyncio.sleep(0)
        for place, each in enumerate(tasks):
            loop.call_soon(each.cancel, f"{place}")
            loop.call_soon(lambda each=each: order.append(each.cancelling()))
        order = []
        await asyncio.gather(*tasks, return_exceptions=True)
        return order

    for seed in range(20):
        assert run(main(), seed=seed) == [1] * 10


# --- run ----------------------------------------------------------------------------------------


def test_an_orphan_is_an_error_that_names_it():
    ended = []

    async def orphan():
        try:
            await wait_for_ever()
        finally:
            ended.append(True)

    async def main():
        task = asyncio.create_task(orphan(), name="orphan of main")
        await asyncio.sleep(0)
        return task

    with pytest.raises(OrphanTaskError, match=r"'orphan of main' at .* in wait_for_ever"):
        run(main())
    assert ended == [True]


def test_a_generator_that_the_collector_finds_is_no_orphan_and_is_closed():
    ended = []

    async def numbers():
        try:
            yield 1
        finally:
            ended.append(True)

    async def main():
        left = numbers()
        await anext(left)
        del left  # the loop begins to close it

    run(main())
    assert ended == [True]


def test_orphans_may_be_allowed():
    ended = []

    async def orphan():
        try:
            await wait_for_ever()
        finally:
            ended.append(True)

    async def main():
        task = asyncio.create_task(orphan())
        await asyncio.sleep(0)
        return task.done()

    assert run(main(), allow_orphans=True) is False
    assert ended == [True]


def test_what_main_raises_wins_over_orphans_and_over_trouble_in_cleaning_up():
    async def stubborn():
        while True:
            with contextlib.suppress(asyncio.CancelledError):
                await wait_for_ever()
                return

    async def main():
        # Cancelled once, it waits for ever again: cleaning up ends in a deadlock.
        tasks.append(asyncio.create_task(stubborn(), name="stubborn"))
        await asyncio.sleep(0)
        raise LookupError("from main")

    tasks = []
    with pytest.raises(LookupError, match="from main") as caught:
        run(main())
    (note,) = caught.value.__notes__
    assert "stubborn" in note
    # Ended here by hand, because asyncio reports a pending task that is thrown away.
    (task,) = tasks
    task._log_destroy_pending = False
    task.get_coro().close()


def test_asynchronous_generators_are_shut_down():
    ended = []

    async def numbers():
        try:
            yield 1
        finally:
            await asyncio.sleep(1)
            ended.append(now())

    async def main():
        generator = numbers()
        kept.append(generator)
        return await anext(generator)

    kept = []
    assert run(main()) == 1
    assert ended == [1]


def test_the_event_loop_of_the_thread_stays_as_it_was():
    loop = asyncio.SelectorEventLoop()
    asyncio.set_event_loop(loop)
    try:
        run(asyncio.sleep(1))
        assert asyncio.get_event_loop_policy().get_event_loop() is loop
        assert not loop.is_closed()
    finally:
        asyncio.set_event_loop(None)
        loop.close()


def test_inside_a_running_loop_it_refuses_to_run():
    async def inner():
        pytest.fail("it ran")

    async def main():
        coroutine = inner()
        with (
            contextlib.closing(coroutine),
            pytest.raises(RuntimeError, match="running event loop"),
        ):
            run(coroutine)

    run(main())


@pytest.mark.parametrize("error", [LookupError, KeyboardInterrupt, SystemExit])
def test_what_a_task_raises_comes_out(error):
    async def main():
        await asyncio.sleep(1)
        raise error("from main")

    with pytest.raises(error, match="from main"):
        run(main())


@pytest.fixture
def control_c():
    """Python's own handler, also where the tests were started with SIGINT ignored ("pytest &")."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("control_c")
def test_control_c_ends_a_loop_that_waits_for_a_thread(gate):
    """Ctrl-C reaches the main thread as it really waits; it cancels main, as in asyncio.run."""
    cancelled = threading.Event()
    in_time = []

    def interrupt(loop):
        gate.wait()
        signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
        # On any loop, a signal that comes just as the wait begins is seen when the wait ends.
        loop.call_soon_threadsafe(lambda: None)
        in_time.append(cancelled.wait(PATIENCE))

    async def main():
        try:
            await asyncio.to_thread(interrupt, asyncio.get_running_loop())
        except asyncio.CancelledError:
            cancelled.set()
            raise

    with pytest.raises(KeyboardInterrupt):
        run(main())
    assert in_time == [True]


@pytest.mark.usefixtures("control_c")
def test_control_c_ends_a_loop_that_never_waits():
    async def main():
        signal.raise_signal(signal.SIGINT)
        for _ in range(1000):
            await asyncio.sleep(1)

    with pytest.raises(KeyboardInterrupt):
        run(main())
