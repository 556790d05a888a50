"""The pytest plugin: fixtures and a marker for a fake agent, virtual time, and a fault proxy.

pytest loads it wherever holdfast is installed. Unused, it costs and changes nothing: all its names
begin with ``holdfast``, and each fixture imports what it needs. To disable it, pass
``-p no:holdfast.testing.pytest_plugin``.

- The marker ``holdfast_virtual_time`` runs a coroutine test in virtual time, in which waiting
  takes no time (`holdfast.testing.run`); with ``holdfast_virtual_time(seed=7)``, the order in
  which tasks are resumed is drawn from that seed. It has no effect on tests that are not
  coroutines, so that ``pytest_itemcollected`` of a ``conftest.py`` may add it to all tests. Tests
  of pytest-asyncio and anyio stay as they are; their async fixtures belong to other loops.
- ``holdfast_fake_agent`` is a `FakeAgent` that echoes; override it with a fixture of that name in
  your own ``conftest.py``. ``holdfast_fake_network`` reaches it in process, and
  ``holdfast_client`` is connected to it.
- ``holdfast_fault_proxy`` starts a `FaultProxy` in front of an agent, in a thread:
  ``proxy = holdfast_fault_proxy("http://127.0.0.1:9999")``. It is stopped after the test. Use its
  synchronous members: `url`, `inject`, `received`, `calls`, `pending_faults`.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import threading
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from holdfast._client.client import Client
    from holdfast._testing.agent import FakeAgent
    from holdfast._testing.network import FakeNetwork
    from holdfast._testing.proxy import FaultProxy

__all__ = [
    "holdfast_client",
    "holdfast_fake_agent",
    "holdfast_fake_network",
    "holdfast_fault_proxy",
    "pytest_configure",
    "pytest_pyfunc_call",
]

_MARKER = "holdfast_virtual_time"
_PROXY_TIMEOUT_S = 10.0
"""Seconds for a proxy to start, and to stop."""


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker."""
    text = f"{_MARKER}(seed=None): run this coroutine test on a virtual clock (holdfast)"
    config.addinivalue_line("markers", text)


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> None:
    """Wrap a test with the marker in a function that runs it in virtual time."""
    marker = pyfuncitem.get_closest_marker(_MARKER)
    test = None if marker is None else _coroutine_function(pyfuncitem)
    if marker is not None and test is not None:
        pyfuncitem.obj = _in_virtual_time(test, {**marker.kwargs})


def _coroutine_function(item: pytest.Function) -> Callable[..., Any] | None:
    """Return the test function if it is a coroutine function."""
    test: Callable[..., Any] = item.obj
    if inspect.iscoroutinefunction(test):
        return test
    inner = getattr(test, "__wrapped__", None)
    # In its mode "auto", pytest-asyncio wraps every coroutine test in a plain function.
    is_wrapped = item.get_closest_marker("asyncio") is not None
    return inner if is_wrapped and inspect.iscoroutinefunction(inner) else None


def _in_virtual_time(test: Callable[..., Any], options: dict[str, Any]) -> Callable[..., None]:
    @functools.wraps(test)
    def called(*args: object, **kwargs: object) -> None:
        from holdfast._testing.virtual_time import run

        run(test(*args, **kwargs), **options)

    return called


@pytest.fixture
def holdfast_fake_agent() -> FakeAgent:
    """A fake agent that echoes; see `FakeAgent.inject` and `FakeAgent.received`."""
    from holdfast._testing.agent import FakeAgent

    return FakeAgent()


@pytest.fixture
def holdfast_fake_network(holdfast_fake_agent: FakeAgent) -> FakeNetwork:
    """An engine that reaches the fake agent, and nothing else."""
    from holdfast._testing.network import FakeNetwork

    return FakeNetwork(holdfast_fake_agent)


@pytest.fixture
def holdfast_client(holdfast_fake_agent: FakeAgent, holdfast_fake_network: FakeNetwork) -> Client:
    """A client of the fake agent; it does not need to be closed."""
    from holdfast._client.connect import connect

    return connect(holdfast_fake_agent.url, engine=holdfast_fake_network)


@pytest.fixture
def holdfast_fault_proxy() -> Generator[Callable[[str], FaultProxy]]:
    """A function that starts a proxy in front of an agent, given the agent's origin."""
    from holdfast._testing.proxy import FaultProxy

    with ExitStack() as stack:
        yield lambda agent: stack.enter_context(_running(FaultProxy(agent)))


@contextmanager
def _running(proxy: FaultProxy) -> Generator[FaultProxy]:
    """Run a proxy in a thread with its own event loop."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="holdfast fault proxy", daemon=True)
    thread.start()
    try:
        asyncio.run_coroutine_threadsafe(proxy.__aenter__(), loop).result(_PROXY_TIMEOUT_S)
        try:
            yield proxy
        finally:
            leaving = proxy.__aexit__(None, None, None)
            asyncio.run_coroutine_threadsafe(leaving, loop).result(_PROXY_TIMEOUT_S)
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join(_PROXY_TIMEOUT_S)
        loop.close()
