"""The pytest plugin, as somebody else's tests have it."""

import os
import subprocess
import sys
import tomllib

import pytest
from tests.kit.paths import ROOT

import holdfast
from holdfast.testing import FakeAgent, FakeNetwork, FaultProxy

pytest_plugins = ["pytester"]

KEPT = holdfast.connect, FakeAgent, FakeNetwork, FaultProxy
"""Imported here, so that not each run inside imports them again."""

WITHOUT = [word for name in ("cacheprovider", "hypothesispytest") for word in ("-p", f"no:{name}")]

SOURCE = ROOT / "src"
PLUGIN = "holdfast.testing.pytest_plugin"


@pytest.fixture
def inside(pytester):
    """Runs tests in this process; gives their outcomes."""

    def run(source, *arguments):
        pytester.makepyfile(source)
        options = ["-p", PLUGIN, "--strict-markers", "-W", "error", *WITHOUT]
        return pytester.runpytest_inprocess(*options, *arguments)

    return run


def test_a_marked_test_runs_in_virtual_time(inside):
    done = inside(
        """
        import asyncio
        import pytest

        pytestmark = pytest.mark.holdfast_virtual_time

        @pytest.fixture
        def hours():
            return 3

        async def test_waits(hours):
            await asyncio.sleep(3600 * hours)
            assert asyncio.get_running_loop().time() == 10800

        class TestClass:
            @pytest.mark.parametrize("n", [1, 2])
            async def test_in_a_class(self, n):
                await asyncio.sleep(n)
                assert asyncio.get_running_loop().time() == n

        def test_is_no_coroutine():
            pass

        async def test_fails():
            await asyncio.sleep(1)
            assert 1 == 2

        async def test_hangs():
            await asyncio.Event().wait()
        """
    )

    done.assert_outcomes(passed=4, failed=2)
    done.stdout.fnmatch_lines(["*assert 1 == 2*", "*DeadlockError*"])


def test_a_seed_draws_the_order(inside):
    done = inside(
        """
        import asyncio
        import pytest

        ORDERS = []

        @pytest.mark.parametrize("seed", range(8))
        def test_nothing(seed):
            pass

        async def order():
            seen = []
            async def note(n):
                await asyncio.sleep(1)
                seen.append(n)
            await asyncio.gather(*map(note, range(9)))
            ORDERS.append(tuple(seen))

        @pytest.mark.holdfast_virtual_time(seed=1)
        async def test_first():
            await order()

        @pytest.mark.holdfast_virtual_time(seed=1)
        async def test_again():
            await order()

        @pytest.mark.holdfast_virtual_time(seed=2)
        async def test_other():
            await order()

        def test_orders():
            assert ORDERS[0] == ORDERS[1] != ORDERS[2]
        """
    )

    done.assert_outcomes(passed=12)


def test_the_fake_agent_and_its_client(inside):
    done = inside(
        """
        import pytest
        from holdfast.testing import rate_limited

        @pytest.mark.holdfast_virtual_time
        async def test_survives(holdfast_fake_agent, holdfast_client, holdfast_fake_network):
            holdfast_fake_agent.inject(rate_limited(30))
            assert (await holdfast_client.ask("hello")).text == "hello"
            assert holdfast_fake_network.in_flight == 0
        """
    )

    done.assert_outcomes(passed=1)


def test_an_agent_of_ones_own(inside):
    done = inside(
        """
        import pytest
        from holdfast.testing import FakeAgent, streams

        @pytest.fixture
        def holdfast_fake_agent():
            return FakeAgent(streams("one ", "two", every=60))

        @pytest.mark.holdfast_virtual_time
        async def test_mine(holdfast_client):
            assert (await holdfast_client.ask("hello")).text == "one two"
        """
    )

    done.assert_outcomes(passed=1)


def test_a_proxy_for_any_test(inside):
    done = inside(
        """
        import json
        import threading
        import urllib.request
        from http.server import BaseHTTPRequestHandler, HTTPServer

        import pytest
        from holdfast.testing import Respond

        BEFORE = threading.active_count()

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                self.send_response(200)
                self.send_header("Content-Length", "4")
                self.end_headers()
                self.wfile.write(b"here")

            def log_message(self, *_):
                pass

        @pytest.fixture
        def agent():
            with HTTPServer(("127.0.0.1", 0), Handler) as server:
                thread = threading.Thread(target=server.serve_forever, args=(0.01,))
                thread.start()
                yield f"http://127.0.0.1:{server.server_port}"
                server.shutdown()
                thread.join()

        def test_two(agent, holdfast_fault_proxy):
            first, second = holdfast_fault_proxy(agent), holdfast_fault_proxy(agent)
            assert first.url != second.url
            first.inject(Respond(status=202))
            with urllib.request.urlopen(first.url, timeout=5) as reply:
                assert reply.status == 202
            for proxy in (first, second):
                with urllib.request.urlopen(proxy.url, timeout=5) as reply:
                    assert reply.read() == b"here"
            assert [len(first.received), len(second.received)] == [2, 1]
            assert threading.active_count() == BEFORE + 3

        def test_nothing_is_left():
            assert threading.active_count() == BEFORE
        """
    )

    done.assert_outcomes(passed=2)


def test_tests_of_anyio_continue_as_they_are(inside):
    done = inside(
        """
        import asyncio
        import pytest

        @pytest.mark.anyio
        @pytest.mark.parametrize("anyio_backend", ["asyncio"])
        async def test_theirs(anyio_backend):
            assert "Virtual" not in type(asyncio.get_running_loop()).__name__

        @pytest.mark.holdfast_virtual_time
        async def test_ours():
            assert "Virtual" in type(asyncio.get_running_loop()).__name__
        """
    )

    done.assert_outcomes(passed=2)


def test_pytest_finds_it_by_the_name_of_its_module():
    # Under any other name, a conftest.py that asks for it as well would be an error.
    declared = tomllib.loads((SOURCE.parent / "pyproject.toml").read_text())["project"]

    assert declared["entry-points"]["pytest11"] == {PLUGIN: PLUGIN}


def test_pytest_plugin_imports_nothing_of_holdfast_unless_used(pytester):
    pytester.makepyfile(
        """
        import sys

        def test_nothing():
            found = {name for name in sys.modules if name.startswith("holdfast")}
            assert found == {
                "holdfast",
                "holdfast._public",
                "holdfast.testing",
                "holdfast.testing.pytest_plugin",
            }
            assert not {"aiohttp", "msgspec"} & set(sys.modules)
        """
    )
    command = [sys.executable, "-m", "pytest", "-q", "-p", PLUGIN, "-p", "no:cacheprovider"]
    done = subprocess.run(
        command,
        cwd=pytester.path,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": str(SOURCE), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
    )

    assert done.returncode == 0, done.stdout
