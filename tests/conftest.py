"""How tests run: coroutines in virtual time, those marked ``real_time`` on an ordinary loop."""

import asyncio
import inspect

import pytest

from holdfast.testing import run


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    names = pyfuncitem._fixtureinfo.argnames
    coroutine = pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in names})
    if pyfuncitem.get_closest_marker("real_time") is None:
        run(coroutine)
    else:
        asyncio.run(coroutine)
    return True
