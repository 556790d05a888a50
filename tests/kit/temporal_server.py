"""The development server of Temporal, on this machine, for the tests of one file."""

import asyncio
import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

from temporalio.client import Client
from tests.kit.ports import reserve_port

__all__ = ["temporal_server"]

_STARTING_S = 60.0
_LAST_REPLIES_S = 0.3
"""Seconds in which the threads of Temporal's clients end.

A process of temporalio 1.35 that exits at once may abort while one of them releases the
interpreter's lock.
"""


@contextlib.contextmanager
def temporal_server(errors):
    """Run the server; give its address.

    Args:
        errors: The file for what it logs.
    """
    beside = Path(sys.executable).with_name("temporal")
    program = beside if beside.exists() else shutil.which("temporal")
    port = reserve_port()
    with errors.open("wb") as log:
        process = subprocess.Popen(
            [
                *(program, "server", "start-dev", "--headless", "--ip", "127.0.0.1"),
                *("--port", str(port), "--log-level", "error"),
            ],
            stdout=log,
            stderr=log,
            env={"HOME": str(errors.parent), "PATH": os.environ["PATH"]},
        )
        try:
            address = f"127.0.0.1:{port}"
            asyncio.run(_wait_for(address, process, errors))
            yield address
            time.sleep(_LAST_REPLIES_S)
        finally:
            process.send_signal(signal.SIGKILL)
            process.wait()


async def _wait_for(address, process, errors):
    end = time.monotonic() + _STARTING_S
    while True:
        try:
            await Client.connect(address)
        except RuntimeError:  # it does not listen, or is "not healthy yet"
            assert process.poll() is None, errors.read_text()
            assert time.monotonic() < end, errors.read_text()
            await asyncio.sleep(0.02)
        else:
            return
