"""A failure keeps its exit code and its hint when the output is full."""

import subprocess
import sys
from pathlib import Path

import pytest
from tests.kit.cli_process import environment, served

from holdfast.testing import FakeAgent, works_forever


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device is always full here")
@pytest.mark.parametrize("form", ["text", "json"])
def test_timeout_with_a_full_standard_output_says_how_to_resume(form):
    with served(FakeAgent(lambda _: works_forever())) as url, Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "holdfast", "send", "hello", "--timeout", "1s", "-o", form],
            stdin=subprocess.DEVNULL, stdout=full, stderr=subprocess.PIPE,
            text=True, env=environment(A2ACLI_AGENT_CARD=url), check=False, timeout=30,
        )  # fmt: skip
    assert "the message was sent; task task-1 was last seen" in done.stderr, done.stderr
    assert "Hint: holdfast task get --wait task-1" in done.stderr, done.stderr


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device is always full here")
def test_timeout_with_a_full_standard_error_keeps_its_exit_code():
    with served(FakeAgent(lambda _: works_forever())) as url, Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "holdfast", "send", "hello", "--timeout", "1s", "-o", "text"],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=full,
            text=True, env=environment(A2ACLI_AGENT_CARD=url), check=False, timeout=30,
        )  # fmt: skip
    assert done.returncode == 5
