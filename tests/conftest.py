"""How tests run: coroutines in virtual time, those marked ``real_time`` on an ordinary loop."""

import asyncio
import functools
import gc
import inspect
import os
from collections.abc import Generator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from tests.rules import RULES

# grpcio's handlers of a fork abort some of the children that are forked while it is at work.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "false")

# To read the machine's authorities takes each client of httpx and each process a twentieth of a
# second. Tests trust this one instead, whose key is no more, and those that they make themselves.
os.environ["SSL_CERT_FILE"] = str(Path(__file__).with_name("kit") / "authority.pem")
os.environ["SSL_CERT_DIR"] = os.devnull

pytest_plugins = ["holdfast.testing.pytest_plugin", "tests.kit.real_agents"]

# Machines are shared: how long an example takes says nothing about what is tested.
settings.register_profile("holdfast", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("holdfast")


LONGEST = {
    "cli/test_process.py",
    "cli/test_run.py",
    "cli/test_specification.py",
    "client/test_cancellation.py",
    "contract/test_messages.py",
    "contract/test_sdk_transports.py",
    "contract/test_streams.py",
    "docs/test_celery_page.py",
    "docs/test_side_by_side.py",
    "e2e/test_adk.py",
    "e2e/test_benchmarks.py",
    "e2e/test_killed.py",
    "e2e/test_replicas.py",
    "e2e/test_streams.py",
    "e2e/test_temporal.py",
    "integrations/test_httpx_transport.py",
    "integrations/test_sdk_messages.py",
    "pipeline/test_endpoint_registry.py",
    "pipeline/test_hostile_cards.py",
    "pipeline/test_replicas.py",
    "stream/test_broken_streams.py",
    "stream/test_streams.py",
    "stream/test_streams_on_sockets.py",
    "sync/test_sync_programs.py",
    "wire/test_v03.py",
}
"""Files that take ten seconds and more each; begun last, one would be waited for by all."""


def pytest_xdist_auto_num_workers() -> int:
    """One process more than there are processors: a quarter of the time goes to real agents."""
    return (os.cpu_count() or 1) + 1


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Let each worker begin with other files: what one has compiled, the others only read."""
    report = yield
    given = getattr(collector.config, "workerinput", None)
    if given is not None and isinstance(collector, pytest.Dir):
        worker, workers = int(given["workerid"].removeprefix("gw")), given["workercount"]
        begin = len(report.result) * worker // workers
        report.result = report.result[begin:] + report.result[:begin]
    return report


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Order the tests alike in each worker, the longest files first."""
    here = Path(__file__).parent

    def place(item: pytest.Item) -> tuple[bool, Path]:
        return item.path.relative_to(here).as_posix() not in LONGEST, item.path

    items.sort(key=place)


def pytest_collection_finish() -> None:
    """Keep the collected tests, which stay to the end, out of every garbage collection.

    Collections are rarer, too: most of what a test leaves is freed without them.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 10, 100)


def pytest_itemcollected(item: pytest.Item) -> None:
    for marker in item.iter_markers("rule"):
        if unknown := set(marker.args) - set(RULES):
            raise pytest.UsageError(f"{item.nodeid}: there is no rule {sorted(unknown)}")
    if item.get_closest_marker("real_time") is None:
        item.add_marker("holdfast_virtual_time")


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> None:
    test = pyfuncitem.obj
    if inspect.iscoroutinefunction(test) and pyfuncitem.get_closest_marker("real_time"):
        pyfuncitem.obj = functools.wraps(test)(lambda **given: asyncio.run(test(**given)))


# ── Settings files of the command line ───────────────────────────────────────────────────────


@pytest.fixture
def found(tmp_path: Path) -> Path:
    """The path of a settings file in the working directory, which is not there yet."""
    path = tmp_path / "work" / ".env"
    path.parent.mkdir()
    return path


@pytest.fixture
def own(tmp_path: Path) -> Path:
    """The user's own settings file, empty."""
    path = tmp_path / "home" / ".config" / "a2a-cli" / ".env"
    path.parent.mkdir(parents=True)
    path.touch(0o600)
    return path
