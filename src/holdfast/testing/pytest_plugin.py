"""The pytest plugin: a fake agent, virtual time, and a faulty proxy, for whoever asks for them.

pytest loads it wherever holdfast is installed. Where nobody asks for anything it costs nothing and
changes nothing: all its names begin with ``holdfast``, and the rest of holdfast is imported by the
fixture that needs it. ``-p no:holdfast.testing.pytest_plugin`` leaves it out.

- The marker ``holdfast_virtual_time`` runs a coroutine test on a virtual clock, on which waiting
  takes no time (`holdfast.testing.run`); ``holdfast_virtual_time(seed=7)`` draws from that seed in
  which order tasks are resumed. On a test that is no coroutine it does nothing, so that
  ``pytest_itemcollected`` of a ``conftest.py`` may put it on all of them. Tests of pytest-asyncio
  and anyio go on as they are; their async fixtures belong to other loops.
- ``holdfast_fake_agent`` is a `FakeAgent` that echoes; a fixture of that name in your own
  ``conftest.py`` is another one. ``holdfast_fake_network`` reaches it in process, and
  ``holdfast_client`` is connected to it.
- ``holdfast_fault_proxy`` starts a `FaultProxy` before an agent, in a thread:
  ``proxy = holdfast_fault_proxy("http://127.0.0.1:9999")``. It is stopped after the test. Use what
  needs no ``await``: `url`, `inject`, `received`, `calls`, `pending_faults`.
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
_LIMIT = 10.0
"""Seconds for a proxy to start, and to stop."""


def pytest_configure(config: pytest.Config) -> None:
    """Knows the marker."""
    text = f"{_MARKER}(seed=None): run this coroutine test on a virtual clock (holdfast)"
    config.addinivalue_line("markers", text)


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> None:
    """Puts a test that is to run in virtual time into the form in which pytest calls it."""
    marker = pyfuncitem.get_closest_marker(_MARKER)
    test = None if marker is None else _coroutine_function(pyfuncitem)
    if marker is not None and test is not None:
        pyfuncitem.obj = _in_virtual_time(test, {**marker.kwargs})


def _coroutine_function(item: pytest.Function) -> Callable[..., Any] | None:
    """The test, if it is a coroutine function."""
    test: Callable[..., Any] = item.obj
    if inspect.iscoroutinefunction(test):
        return test
    inner = getattr(test, "__wrapped__", None)
    # pytest-asyncio takes everything in its mode "auto", and makes of it what is no coroutine.
    is_taken = item.get_closest_marker("asyncio") is not None
    return inner if is_taken and inspect.iscoroutinefunction(inner) else None


def _in_virtual_time(test: Callable[..., Any], options: dict[str, Any]) -> Callable[..., None]:
    @functools.wraps(test)
    def called(*args: object, **kwargs: object) -> None:
        from holdfast._testing.virtualtime import run

        run(test(*args, **kwargs), **options)

    return called


@pytest.fixture
def holdfast_fake_agent() -> FakeAgent:
    """A fake agent that echoes; `inject` faults, look at `received`."""
    from holdfast._testing.agent import FakeAgent

    return FakeAgent()


@pytest.fixture
def holdfast_fake_network(holdfast_fake_agent: FakeAgent) -> FakeNetwork:
    """An engine that reaches the fake agent, and nobody else."""
    from holdfast._testing.network import FakeNetwork

    return FakeNetwork(holdfast_fake_agent)


@pytest.fixture
def holdfast_client(holdfast_fake_agent: FakeAgent, holdfast_fake_network: FakeNetwork) -> Client:
    """A client that is connected to the fake agent. It has nothing to close."""
    from holdfast._client.connect import connect

    return connect(holdfast_fake_agent.url, engine=holdfast_fake_network)


@pytest.fixture
def holdfast_fault_proxy() -> Generator[Callable[[str], FaultProxy]]:
    """Starts proxies before agents, by their origins."""
    from holdfast._testing.proxy import FaultProxy

    with ExitStack() as stack:
        yield lambda agent: stack.enter_context(_running(FaultProxy(agent)))


@contextmanager
def _running(proxy: FaultProxy) -> Generator[FaultProxy]:
    """Runs a proxy in a thread with an event loop of its own."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="holdfast fault proxy", daemon=True)
    thread.start()
    try:
        asyncio.run_coroutine_threadsafe(proxy.__aenter__(), loop).result(_LIMIT)
        try:
            yield proxy
        finally:
            leaving = proxy.__aexit__(None, None, None)
            asyncio.run_coroutine_threadsafe(leaving, loop).result(_LIMIT)
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join(_LIMIT)
        loop.close()
