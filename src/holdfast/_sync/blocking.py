"""The blocking twins of `holdfast.sync`, generated from the classes of the asynchronous API.

A twin wraps one object of its class. Its methods have the same names, parameters and
documentation; each runs the object's method on the event loop of `holdfast.sync` (see
`holdfast._sync.loop`), and waits for the result.

- Coroutine methods, plain methods and properties all run on the loop.
- ``async with`` becomes ``with``, and ``async for`` becomes ``for``: see `_SPECIAL_METHODS`.
- A result whose class has a twin is returned as that twin, and an asynchronous iterator as an
  `Iteration`. Every other result is returned unchanged.
- An argument is passed on unchanged, except twins and functions that would block the loop: see
  `_CONVERTERS`.
"""

# pyright: reportPrivateUsage=false

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import (
    AsyncGenerator,
    AsyncIterable,
    AsyncIterator,
    Callable,
    ItemsView,
    Iterable,
    Mapping,
)
from collections.abc import Iterator as PlainIterator
from typing import Any, Self, cast

import msgspec

from holdfast._aio.async_only import AsyncOnly
from holdfast._sync.loop import HookDispatcher, is_over, run_by_caller, start_later, wait_for
from holdfast.policies import Resilience

__all__ = ["Blocking", "Iteration", "blocking_class", "blocking_function", "strip_async"]

_TO_RUN_IN_A_TASK = "to run it in a task of its own, pass it to ``asyncio.ensure_future``"
_OR_ITS_RESULTS = "or its `results` to ``asyncio.create_task``."

_PHRASES = (
    ("an async context manager, in one event loop", "a context manager"),
    ("an async context manager", "a context manager"),
    ("async with holdfast.", "with holdfast.sync."),
    ("await holdfast.ask(", "holdfast.sync.ask("),
    ("from holdfast.doctor import", "from holdfast.sync import"),
    ("async with", "with"),
    ("async for", "for"),
    (" await ", " "),
    (" or coroutine functions", ""),
    (" or coroutine function", ""),
    (" an async generator", " a generator"),
    (", plain or async,", ""),
    (" of the running event loop", ""),
    (", in the running event loop", ""),
    (" in the running event loop", ""),
    (", in every event loop,", ""),
    ("by one task at a time", "by one thread at a time"),
    ("An iteration that is cancelled", "An iteration that is interrupted"),
    ("``await`` the fan-out for all results", "Call ``results()`` for all results"),
    ("or await it for all of them", "or call `results` for all of them"),
    (", as a coroutine does", ""),
    (f" It is not a coroutine: {_TO_RUN_IN_A_TASK}, {_OR_ITS_RESULTS}", ""),
    (f" T{_TO_RUN_IN_A_TASK[1:]}; it is not a coroutine, but its ``results()`` is.", ""),
)
"""Phrases of asynchronous docstrings and their replacements; lines may end anywhere in them."""

_PATTERNS = tuple(
    (re.compile(r"\s+".join(map(re.escape, phrase.split(" ")))), replacement)
    for phrase, replacement in _PHRASES
)


def strip_async(text: str) -> str:
    """Return a docstring of the asynchronous API in the terms of the blocking one."""
    for pattern, replacement in _PATTERNS:
        text = pattern.sub(replacement, text)
    return text


_SPECIAL_METHODS = {
    "__aenter__": "__enter__",
    "__aexit__": "__exit__",
    "__aiter__": "__iter__",
    "__anext__": "__next__",
    "__repr__": "__repr__",
}
"""The special methods of twins by those of their classes; all others are left out."""

_CLOSING_METHODS = frozenset({"close", "__aexit__"})
"""Methods that do nothing once the loop has ended."""


class Blocking:
    """A blocking twin of an asynchronous object; created by `blocking_class`."""

    __slots__ = ("__weakref__", "_hooks", "_is_iterating", "_source", "_twin_of", "_unclaimed")

    def _wrap(self, instance: Any, source: Blocking | None = None) -> Self:
        self._twin_of = instance
        self._source = source
        self._is_iterating = False
        self._unclaimed: list[Any] = []  # results that arrived while the thread was interrupted
        # The iterating thread runs the hooks of everything in flight.
        self._hooks = HookDispatcher() if hasattr(instance, "__aiter__") else None
        return self

    def _next_item(self, function: Callable[..., Any]) -> Any:
        """Return the next item; Ctrl-C at any moment loses no item."""
        if self._unclaimed:
            return self._unclaimed.pop()
        return _call(function, (self._twin_of,), {}, self._hooks, self._unclaimed)

    def __del__(self) -> None:
        # An iteration that is abandoned is closed, like a generator.
        if getattr(self, "_is_iterating", False) and hasattr(self._twin_of, "close"):
            start_later(self._twin_of.close)


class Iteration(Blocking):
    """An iterator over the items of a stream or a batch, which it keeps alive."""

    __slots__ = ()

    def _wrap(self, instance: Any, source: Blocking | None = None) -> Self:
        super()._wrap(instance, source)
        if source is not None and source._hooks is not None:
            self._hooks = source._hooks
        return self

    def __iter__(self) -> Self:
        """Return the iterator itself."""
        return self

    def __next__(self) -> Any:
        """Return the next item."""
        try:
            return self._next_item(anext)
        except StopAsyncIteration:
            raise StopIteration from None

    def close(self) -> None:
        """End the iteration early; may be called twice."""
        aclose = getattr(self._twin_of, "aclose", None)
        if aclose is not None and not is_over():
            wait_for(aclose, self._hooks)


_twins: dict[type, type[Blocking]] = {}


def blocking_class(kind: type) -> type[Any]:
    """Create the blocking twin of a class; results of the class are returned as the twin."""
    members: dict[str, Any] = {
        "__slots__": (),
        "__module__": "holdfast.sync",
        "__doc__": strip_async(kind.__doc__ or ""),
    }
    for name in dir(kind):
        member = inspect.getattr_static(kind, name)
        twin_name = _SPECIAL_METHODS.get(name, None if name.startswith("_") else name)
        if twin_name is None or member is getattr(object, name, None):
            continue
        if isinstance(member, property):
            getter = _method(cast("Callable[..., Any]", member.fget), name)
            members[twin_name] = property(getter, doc=getter.__doc__)
        else:
            members[twin_name] = _method(member, name)
    members["__init__"] = _constructor(kind)
    twin = _twins[kind] = cast("type[Blocking]", type(kind.__name__, (Blocking,), members))
    return twin


def blocking_function(function: Callable[..., Any]) -> Callable[..., Any]:
    """Create the blocking twin of a function."""
    names = tuple(inspect.signature(function).parameters)

    @functools.wraps(function)
    def blocking(*args: Any, **kwargs: Any) -> Any:
        return _to_twin(_call(function, *_convert(names, args, kwargs), None))

    return _documented(blocking)


def _method(function: Callable[..., Any], name: str) -> Callable[..., Any]:
    names = tuple(inspect.signature(function).parameters)[1:]
    is_closing = name in _CLOSING_METHODS
    starts_iteration = name in {"__aenter__", "__aiter__", "__anext__"}
    is_next = name == "__anext__"

    @functools.wraps(function)
    def blocking(self: Blocking, *args: Any, **kwargs: Any) -> Any:
        if is_closing and is_over():
            return None
        if starts_iteration:
            self._is_iterating = True
        args, kwargs = _convert(names, args, kwargs)
        try:
            if is_next:
                result = self._next_item(function)
            else:
                result = _call(function, (self._twin_of, *args), kwargs, self._hooks)
        except StopAsyncIteration:
            self._is_iterating = False
            raise StopIteration from None
        if is_closing:
            self._is_iterating = False
        return self if result is self._twin_of else _to_twin(result, self)

    blocking.__name__ = _SPECIAL_METHODS.get(name, name)
    return _documented(blocking)


def _constructor(kind: type) -> Callable[..., None]:
    init = inspect.getattr_static(kind, "__init__")
    names = tuple(inspect.signature(init).parameters)[1:]

    @functools.wraps(init)
    def blocking(self: Blocking, *args: Any, **kwargs: Any) -> None:
        self._wrap(_call(kind, *_convert(names, args, kwargs), None))

    return _documented(blocking)


def _documented(function: Callable[..., Any]) -> Callable[..., Any]:
    function.__doc__ = strip_async(function.__doc__ or "") or None
    function.__module__ = "holdfast.sync"
    return function


def _call(
    function: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    hooks: HookDispatcher | None,
    unclaimed: list[Any] | None = None,
) -> Any:
    """Call a function of the asynchronous API on the loop, and return its result."""

    async def start() -> Any:
        result: Any = function(*args, **kwargs)
        # A fan-out is awaitable, but it is a result, and so is what only `async for` reads.
        if type(result) in _twins or isinstance(result, AsyncOnly):
            return result
        return await result if inspect.isawaitable(result) else result

    return wait_for(start, hooks, unclaimed)


# ── Arguments and results ────────────────────────────────────────────────────────────────────


def _to_twin(value: Any, source: Blocking | None = None) -> Any:
    """Return a result as its twin if its class has one.

    Args:
        value: The result.
        source: The twin whose method returned it; None for none.
    """
    twin = _twins.get(value.__class__)
    if twin is None and isinstance(value, list):
        return [_to_twin(item) for item in cast("list[Any]", value)]
    result: Any = value
    if twin is None and isinstance(value, AsyncIterator):
        twin = Iteration
    return result if twin is None else twin.__new__(twin)._wrap(result, source)


def _convert(
    names: tuple[str, ...], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Convert arguments for the asynchronous API."""
    arg_names = (*names, *[""] * (len(args) - len(names)))
    return (
        tuple(_argument(name, value) for name, value in zip(arg_names, args, strict=False)),
        {name: _argument(name, value) for name, value in kwargs.items()},
    )


def _argument(name: str, value: Any) -> Any:
    converter = _CONVERTERS.get(name)
    if converter is not None:
        return converter(value)
    if isinstance(value, Blocking):
        return value._twin_of
    if isinstance(value, PlainIterator):
        return list(cast("PlainIterator[Any]", value))  # the caller's thread must run it
    return value


def _hook(hook: Any) -> Any:
    """Return a hook; a plain function is wrapped, so that the calling thread runs it."""
    if not callable(hook) or isinstance(hook, type) or _is_async(hook):
        return hook
    return run_by_caller(hook)


def _is_async(hook: Callable[..., Any]) -> bool:
    call_method = getattr(type(hook), "__call__", None)  # noqa: B004  it is callable
    return inspect.iscoroutinefunction(hook) or inspect.iscoroutinefunction(call_method)


def _hook_list(hooks: Any) -> Any:
    if isinstance(hooks, Iterable) and not isinstance(hooks, str | bytes):
        return [_hook(hook) for hook in cast("Iterable[Any]", hooks)]
    return hooks


def _resilience(resilience: Any) -> Any:
    if not isinstance(resilience, Resilience) or resilience.retry.on_retry is None:
        return resilience
    retry = msgspec.structs.replace(resilience.retry, on_retry=_hook(resilience.retry.on_retry))
    return msgspec.structs.replace(resilience, retry=retry)


def _agents(agents: Any) -> Any:
    """Return the agents of a coordinator, with clients in place of their twins."""
    if isinstance(agents, Mapping):
        by_name = cast("Mapping[Any, Any]", agents)
        return {name: _argument("", agent) for name, agent in by_name.items()}
    return agents


def _messages(messages: Any) -> Any:
    """Return messages; the calling thread runs an iterator, when there is room for a message."""
    if isinstance(messages, list | tuple | AsyncIterable) or not isinstance(messages, Iterable):
        return cast("Any", messages)
    if isinstance(messages, str | bytes | Mapping | ItemsView):  # refused later
        return cast("Any", messages)
    return _iterate_by_caller(iter(cast("Iterable[Any]", messages)))


async def _iterate_by_caller(messages: PlainIterator[Any]) -> AsyncGenerator[Any]:
    next_message = run_by_caller(functools.partial(next, messages, _END))
    while (message := await next_message()) is not _END:
        yield message


_END = object()

_CONVERTERS: Mapping[str, Callable[[Any], Any]] = {
    "agents": _agents,
    "consumer": _hook,
    "consumers": _hook_list,
    "messages": _messages,
    "on_auth": _hook,
    "on_input": _hook,
    "resilience": _resilience,
}
"""Converters by argument name, for arguments that are or contain functions of the caller."""
