"""Real agents on the official SDK, as processes of their own, for tests that call them."""

import contextlib
import json
import os
import subprocess
import threading
from pathlib import Path

import pytest

__all__ = ["LIMIT", "sdk_process", "sdk_python"]

HERE = Path(__file__).parent

LIMIT = 20
"""Seconds after which a wait has failed; nothing here should come near it."""


def sdk_python():
    """The interpreter with the official SDK."""
    named = os.environ.get("HOLDFAST_SDK_PYTHON")
    python = Path(named) if named else HERE.parent / ".venv-sdk" / "bin" / "python"
    if not python.exists():
        pytest.fail(
            f"no Python with the official SDK at {python}: run `make test`, which sets one up, or "
            "name one in HOLDFAST_SDK_PYTHON",
            pytrace=False,
        )
    return python


@contextlib.contextmanager
def sdk_process(errors, *options):
    """Runs a real agent; gives its origin."""
    command = [sdk_python(), HERE / "agents" / "sdk_agent.py", *options]
    with (
        errors.open("wb") as log,
        subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log
        ) as process,
    ):
        watchdog = threading.Timer(LIMIT * 3, process.kill)  # a slow machine imports slowly
        watchdog.start()
        try:
            line = process.stdout.readline()
            watchdog.cancel()
            if not line:
                pytest.fail(f"the agent did not start:\n{errors.read_text()}", pytrace=False)
            yield json.loads(line)["url"]
            process.stdin.close()
            assert process.wait(LIMIT) == 0
        finally:
            watchdog.cancel()
            process.kill()
