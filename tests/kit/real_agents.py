"""Real agents on the official SDK, and other people's clients, as processes of their own."""

import contextlib
import json
import os
import subprocess
import threading
from pathlib import Path

import pytest
from tests.kit.paths import ROOT
from tests.kit.ports import reserve_port

import holdfast

__all__ = [
    "LIMIT",
    "PACKAGE",
    "TOKEN",
    "ClusterReplica",
    "adk_client",
    "ag2_client",
    "ag2_process",
    "guarded_process",
    "oauth_process",
    "sdk03_client",
    "sdk03_process",
    "sdk_process",
    "sdk_python",
    "traced_process",
]

AGENTS = ROOT / "tests" / "agents"
PACKAGE = Path(holdfast.__file__).parent.parent

TOKEN = "s3cret-value-of-mine"  # what the guarded agents want

LIMIT = 120
"""Seconds after which a wait hangs. It decides nothing but that: a machine that does much else may
take twenty times as long as a quiet one."""


def sdk_python(variable="HOLDFAST_SDK_PYTHON", environment=".venv-sdk"):
    """The interpreter with the official SDK."""
    named = os.environ.get(variable)
    python = Path(named) if named else ROOT / environment / "bin" / "python"
    if not python.exists():
        pytest.fail(
            f"no Python of this environment at {python}: run `make test`, which sets it up, or "
            f"name one in {variable}",
            pytrace=False,
        )
    return python


def sdk_process(errors, *options):
    """Runs a real agent; gives its origin."""
    return _process(errors, sdk_python(), "sdk_agent.py", *options)


def guarded_process(errors, *options):
    """Runs a real agent behind Holdfast's errors; gives its origin."""
    return _process(errors, sdk_python(), "guarded_agent.py", "--holdfast", PACKAGE, *options)


def traced_process(errors, *options):
    """Runs a real agent with the SDK's own spans; gives its origin."""
    return _process(errors, sdk_python(), "traced_agent.py", *options)


def sdk03_process(errors, *options):
    """Runs a real agent of protocol 0.3; gives its origin."""
    python = sdk_python("HOLDFAST_SDK03_PYTHON", ".venv-sdk03")
    return _process(errors, python, "sdk03_agent.py", *options)


def ag2_process(errors):
    """Runs a real agent of AG2's; gives its origin."""
    python = sdk_python("HOLDFAST_AG2_PYTHON", ".venv-ag2")
    return _process(errors, python, "ag2_agent.py")


def ag2_client(errors):
    """Run AG2's client; give the process, which `tests.kit.frameworks` tells what to call."""
    python = sdk_python("HOLDFAST_AG2_PYTHON", ".venv-ag2")
    return _started(errors, python, "ag2_client.py", "--holdfast", PACKAGE)


def adk_client(errors):
    """Run Google ADK's client; the process waits for what `tests.kit.frameworks` tells it."""
    python = sdk_python("HOLDFAST_ADK_PYTHON", ".venv-adk")
    return _started(errors, python, "adk_client.py", "--holdfast", PACKAGE)


def sdk03_client(errors):
    """Runs the client of the SDK of protocol 0.3; gives the process, as the two above."""
    python = sdk_python("HOLDFAST_SDK03_PYTHON", ".venv-sdk03")
    return _started(errors, python, "sdk03_client.py", "--holdfast", PACKAGE)


@contextlib.contextmanager
def oauth_process(errors):
    """Runs a real authorization server; gives where it is, and the secret of its client."""
    python = sdk_python("HOLDFAST_OAUTH_PYTHON", ".venv-oauth")
    with _started(errors, python, "oauth_server.py") as (_, said):
        yield said


class ClusterReplica:
    """A real replica of an agent, which can be killed, and started again at the same address.

    Args:
        store: The SQLite file that it shares with other replicas.
        errors: The file that gets its standard error.
        shown: Ports of HTTP and gRPC that its card names; its own if left out.

    Attributes:
        url: Its origin.
        ports: Its own ports of HTTP and gRPC.
        is_running: Whether it was started, and not ended since.
    """

    def __init__(self, store, errors, shown=None):
        self.ports = reserve_port(), reserve_port()
        self.url = f"http://127.0.0.1:{self.ports[0]}"
        self.is_running = False
        self._errors = errors
        port, grpc_port = map(str, self.ports)
        self._command = [sdk_python(), AGENTS / "cluster_agent.py", "--store", store]
        self._command += ["--port", port, "--grpc-port", grpc_port]
        if shown is not None:
            self._command += ["--shown", f"http://127.0.0.1:{shown[0]}", f"127.0.0.1:{shown[1]}"]

    def start(self):
        """Starts the process; `wait_until_ready` waits for it."""
        with self._errors.open("ab") as log:
            self._process = subprocess.Popen(
                self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log
            )
        self.is_running = True

    def wait_until_ready(self):
        """Waits until it takes calls."""
        watchdog = threading.Timer(LIMIT, self._process.kill)
        watchdog.start()
        line = self._process.stdout.readline()
        watchdog.cancel()
        if not line:
            pytest.fail(f"a replica did not start:\n{self._errors.read_text()}", pytrace=False)

    def stop(self):
        """Lets it finish what it does, and waits until it has ended."""
        self._process.stdin.close()
        assert self._process.wait(LIMIT) == 0
        self._process.stdout.close()
        self.is_running = False

    def kill(self):
        """Ends it at once, as `kill -9` does."""
        self._process.kill()
        self._process.wait(LIMIT)
        self._process.stdin.close()
        self._process.stdout.close()
        self.is_running = False


@contextlib.contextmanager
def _process(errors, python, script, *options):
    with _started(errors, python, script, *options) as (_, said):
        yield said["url"]


@contextlib.contextmanager
def _started(errors, python, script, *options):
    """Gives the process, and what it says when it is ready."""
    command = [python, AGENTS / script, *options]
    with (
        errors.open("wb") as log,
        subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log
        ) as process,
    ):
        watchdog = threading.Timer(LIMIT, process.kill)  # a slow machine imports slowly
        watchdog.start()
        try:
            line = process.stdout.readline()
            watchdog.cancel()
            if not line:
                pytest.fail(f"{script} did not start:\n{errors.read_text()}", pytrace=False)
            yield process, json.loads(line)
            process.stdin.close()
            assert process.wait(LIMIT) == 0
        finally:
            watchdog.cancel()
            process.kill()


# ── One of each for all tests of a process ───────────────────────────────────────────────────


@pytest.fixture(scope="session")
def sdk_url(tmp_path_factory):
    """The origin of an agent on the official SDK that serves every binding of 1.0."""
    with sdk_process(tmp_path_factory.mktemp("sdk") / "stderr", "--grpc") as url:
        yield url


@pytest.fixture(scope="session")
def sdk03_url(tmp_path_factory):
    """The origin of an agent on the official SDK that serves every binding of 0.3."""
    with sdk03_process(tmp_path_factory.mktemp("sdk03") / "stderr", "--grpc") as url:
        yield url


@pytest.fixture(scope="session")
def guarded_sdk_url(tmp_path_factory):
    """The origin of an agent of 1.0 that wants the bearer token `TOKEN`."""
    errors = tmp_path_factory.mktemp("guarded") / "stderr"
    with sdk_process(errors, "--grpc", "--token", TOKEN) as url:
        yield url


@pytest.fixture(scope="session")
def guarded_sdk03_url(tmp_path_factory):
    """The origin of an agent of 0.3 that wants the bearer token `TOKEN`."""
    errors = tmp_path_factory.mktemp("guarded03") / "stderr"
    with sdk03_process(errors, "--grpc", "--token", TOKEN) as url:
        yield url


@pytest.fixture
def agent(request):
    """The agent under test of a case of the contract, which is not served yet."""
    from tests.kit.contract import agent_for  # not needed by other tests

    return agent_for(request.param, request.getfixturevalue)
