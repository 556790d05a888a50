"""How tests run: coroutines in virtual time, those marked ``real_time`` on an ordinary loop."""

import asyncio
import functools
import inspect

import pytest

pytest_plugins = ["holdfast.testing.pytest_plugin"]


def pytest_itemcollected(item: pytest.Item) -> None:
    if item.get_closest_marker("real_time") is None:
        item.add_marker("holdfast_virtual_time")


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> None:
    test = pyfuncitem.obj
    if inspect.iscoroutinefunction(test) and pyfuncitem.get_closest_marker("real_time"):
        pyfuncitem.obj = functools.wraps(test)(lambda **given: asyncio.run(test(**given)))
