"""The command as a process of its own, and agents on loopback sockets that it calls."""

import asyncio
import os
import signal
import subprocess
import sys
import threading
from contextlib import contextmanager

from tests.kit.paths import ROOT

from holdfast.testing import LoopbackServer

NOBODY_READS = 141  # as a shell tells of who was ended by SIGPIPE


BOUND = 120  # seconds after which a command hangs


SOURCE = str(ROOT / "src")


def environment(**more):
    # The terminal says how wide it is, and not the environment that the tests run in.
    ours = ("A2ACLI_", "COLUMNS", "LINES", "XDG_")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    return {**kept, "PYTHONPATH": SOURCE, "HOME": "/no/such/home", **more}


@contextmanager
def served(agent):
    """The agent behind a loopback socket, on a loop in a thread of its own."""
    loop, up, url = asyncio.new_event_loop(), threading.Event(), []
    down = asyncio.Event()

    async def serve():
        async with LoopbackServer(agent) as server:
            url.append(server.url)
            up.set()
            await down.wait()

    thread = threading.Thread(target=loop.run_until_complete, args=(serve(),))
    thread.start()
    up.wait()
    try:
        yield url[0]
    finally:
        loop.call_soon_threadsafe(down.set)
        thread.join()
        loop.close()


@contextmanager
def start(
    *words,
    python=("-m", "holdfast"),
    directory="/",
    stdin=subprocess.DEVNULL,
    stderr=subprocess.PIPE,
    **more,
):
    """The command, running; killed if the test does not wait for its end."""
    process = subprocess.Popen(
        [sys.executable, *python, *words],
        stdin=stdin, stdout=subprocess.PIPE, stderr=stderr,
        text=True, env=environment(**more), cwd=directory,
        # Whoever starts the tests in the background has them ignore Ctrl-C.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # noqa: PLW1509
    )  # fmt: skip
    with process:
        try:
            yield process
        finally:
            if process.poll() is None:
                process.kill()
