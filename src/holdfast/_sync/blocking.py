"""How `holdfast.sync` is made of the asynchronous API: each class gets a blocking twin.

A twin has an object of the class and nothing else. Its methods have the same names, parameters and
documentation, and all do the same: they have the object's own method run on the event loop of
`holdfast.sync` (see `holdfast._sync.loop`) and wait for what it returns.

- A coroutine method, a plain one and a property are the same here: all run on the loop.
- ``async with`` is ``with``, ``async for`` is ``for``: see `_SPELLED`.
- A result of a class that has a twin comes as that twin, and what can be iterated over
  asynchronously as an `Iteration`. Everything else is a value, and comes as it is.
- An argument is passed on as it is, but for twins and for what would hold up the loop: see
  `_GIVEN`.
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
    Iterable,
    Mapping,
)
from collections.abc import Iterator as PlainIterator
from typing import Any, Self, cast

import msgspec

from holdfast._policy.resilience import Resilience
from holdfast._sync.loop import HookDispatcher, asked_of_caller, is_over, later, wait_for

__all__ = ["Blocking", "Iteration", "blocking_class", "blocking_function", "strip_async"]

_TO_RUN_IN_A_TASK = "to run it in a task of its own, pass it to `asyncio.ensure_future`"

_WORDS = (
    ("an async context manager, in one event loop", "a context manager"),
    ("an async context manager", "a context manager"),
    ("async with", "with"),
    ("async for", "for"),
    (" an async generator", " a generator"),
    (" of the running event loop", ""),
    (", in the running event loop", ""),
    (" in the running event loop", ""),
    (", in every event loop,", ""),
    ("by one task at a time", "by one thread at a time"),
    ("An iteration that is cancelled", "An iteration that is interrupted"),
    ("``await`` the fan-out for all results", "Call ``results()`` for all results"),
    ("or await it for all of them", "or call `results` for all of them"),
    (", as a coroutine does", ""),
    (
        f" It is not a coroutine: {_TO_RUN_IN_A_TASK}, or its `results` to `asyncio.create_task`.",
        "",
    ),
    (f" T{_TO_RUN_IN_A_TASK[1:]}; it is not a coroutine, but its ``results()`` is.", ""),
)
"""What is said instead of what, wherever lines end."""

_PATTERNS = tuple(
    (re.compile(r"\s+".join(map(re.escape, said.split(" ")))), instead) for said, instead in _WORDS
)


def strip_async(text: str) -> str:
    """A docstring of the asynchronous API in the words of the blocking one."""
    for pattern, instead in _PATTERNS:
        text = pattern.sub(instead, text)
    return text


_SPELLED = {
    "__aenter__": "__enter__",
    "__aexit__": "__exit__",
    "__aiter__": "__iter__",
    "__anext__": "__next__",
    "__repr__": "__repr__",
}
"""What special methods are called where nothing is awaited; others are left out."""

_ENDING = frozenset({"close", "__aexit__"})
"""What is done already when the program ends."""


class Blocking:
    """A blocking twin of an asynchronous object; made by `blocking_class`."""

    __slots__ = ("__weakref__", "_callers", "_is_begun", "_source", "_twin_of", "_unclaimed")

    def _have(self, thing: Any, source: Blocking | None = None) -> Self:
        self._twin_of = thing
        self._source = source
        self._is_begun = False
        self._unclaimed: list[Any] = []  # what came as the iterating thread was interrupted
        # Who iterates runs the functions for all that is under way.
        self._callers = HookDispatcher() if hasattr(thing, "__aiter__") else None
        return self

    def _following(self, following: Callable[..., Any]) -> Any:
        """What an iteration gives next; Ctrl-C, at whichever moment, costs nothing of it."""
        if self._unclaimed:
            return self._unclaimed.pop()
        return _blocked(following, (self._twin_of,), {}, self._callers, self._unclaimed)

    def __del__(self) -> None:
        # An iteration that is left without a word is closed, as a plain generator is.
        if getattr(self, "_is_begun", False) and hasattr(self._twin_of, "close"):
            later(self._twin_of.close)


class Iteration(Blocking):
    """A walk through what comes, which keeps what it comes from."""

    __slots__ = ()

    def _have(self, thing: Any, source: Blocking | None = None) -> Self:
        super()._have(thing, source)
        if source is not None and source._callers is not None:
            self._callers = source._callers
        return self

    def __iter__(self) -> Self:
        """The iteration itself."""
        return self

    def __next__(self) -> Any:
        """The next one."""
        try:
            return self._following(anext)
        except StopAsyncIteration:
            raise StopIteration from None

    def close(self) -> None:
        """Ends it early. Can be called twice."""
        end = getattr(self._twin_of, "aclose", None)
        if end is not None and not is_over():
            wait_for(end, self._callers)


_twins: dict[type, type[Blocking]] = {}


def blocking_class(kind: type) -> type[Any]:
    """The blocking twin of a class, whose objects come as this from now on."""
    members: dict[str, Any] = {
        "__slots__": (),
        "__module__": "holdfast.sync",
        "__doc__": strip_async(kind.__doc__ or ""),
    }
    for name in dir(kind):
        member = inspect.getattr_static(kind, name)
        spelled = _SPELLED.get(name, None if name.startswith("_") else name)
        if spelled is None or member is getattr(object, name, None):
            continue
        if isinstance(member, property):
            get = _method(cast("Callable[..., Any]", member.fget), name)
            members[spelled] = property(get, doc=get.__doc__)
        else:
            members[spelled] = _method(member, name)
    members["__init__"] = _constructor(kind)
    twin = _twins[kind] = cast("type[Blocking]", type(kind.__name__, (Blocking,), members))
    return twin


def blocking_function(function: Callable[..., Any]) -> Callable[..., Any]:
    """The blocking twin of a function."""
    names = tuple(inspect.signature(function).parameters)

    @functools.wraps(function)
    def blocking(*args: Any, **kwargs: Any) -> Any:
        return _wrapped(_blocked(function, *_ready(names, args, kwargs), None))

    return _documented(blocking)


def _method(function: Callable[..., Any], name: str) -> Callable[..., Any]:
    names = tuple(inspect.signature(function).parameters)[1:]
    is_ending, begins = name in _ENDING, name in {"__aenter__", "__aiter__", "__anext__"}
    is_following = name == "__anext__"

    @functools.wraps(function)
    def blocking(self: Blocking, *args: Any, **kwargs: Any) -> Any:
        if is_ending and is_over():
            return None
        if begins:
            self._is_begun = True
        args, kwargs = _ready(names, args, kwargs)
        try:
            if is_following:
                given = self._following(function)
            else:
                given = _blocked(function, (self._twin_of, *args), kwargs, self._callers)
        except StopAsyncIteration:
            self._is_begun = False
            raise StopIteration from None
        if is_ending:
            self._is_begun = False
        return self if given is self._twin_of else _wrapped(given, self)

    blocking.__name__ = _SPELLED.get(name, name)
    return _documented(blocking)


def _constructor(kind: type) -> Callable[..., None]:
    init = inspect.getattr_static(kind, "__init__")
    names = tuple(inspect.signature(init).parameters)[1:]

    @functools.wraps(init)
    def blocking(self: Blocking, *args: Any, **kwargs: Any) -> None:
        self._have(_blocked(kind, *_ready(names, args, kwargs), None))

    return _documented(blocking)


def _documented(function: Callable[..., Any]) -> Callable[..., Any]:
    function.__doc__ = strip_async(function.__doc__ or "") or None
    function.__module__ = "holdfast.sync"
    return function


def _blocked(
    function: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    callers: HookDispatcher | None,
    unclaimed: list[Any] | None = None,
) -> Any:
    """What a function of the asynchronous API gives, on the loop."""

    async def begin() -> Any:
        given = function(*args, **kwargs)
        # A fan-out could be awaited as well, and is a result.
        is_result = type(given) in _twins or not inspect.isawaitable(given)
        return given if is_result else await given

    return wait_for(begin, callers, unclaimed)


# ── What is given and taken ──────────────────────────────────────────────────────────────────


def _wrapped(given: Any, source: Blocking | None = None) -> Any:
    """A result, as its twin if it has one.

    Args:
        given: The result.
        source: Whose it is.
    """
    twin = _twins.get(given.__class__)
    if twin is None and isinstance(given, list):
        return [_wrapped(one) for one in cast("list[Any]", given)]
    result: Any = given
    if twin is None and isinstance(given, AsyncIterator):
        twin = Iteration
    return result if twin is None else twin.__new__(twin)._have(result, source)


def _ready(
    names: tuple[str, ...], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Arguments as the asynchronous API takes them."""
    by_place = (*names, *[""] * (len(args) - len(names)))
    return (
        tuple(_argument(name, value) for name, value in zip(by_place, args, strict=False)),
        {name: _argument(name, value) for name, value in kwargs.items()},
    )


def _argument(name: str, value: Any) -> Any:
    ready = _GIVEN.get(name)
    if ready is not None:
        return ready(value)
    if isinstance(value, Blocking):
        return value._twin_of
    if isinstance(value, PlainIterator):
        return list(cast("PlainIterator[Any]", value))  # the caller's, to be run by the caller
    return value


def _hook(hook: Any) -> Any:
    """A hook that may be plain: the caller runs it then."""
    if not callable(hook) or isinstance(hook, type) or _is_async(hook):
        return hook
    return asked_of_caller(hook)


def _is_async(hook: Callable[..., Any]) -> bool:
    called = getattr(type(hook), "__call__", None)  # noqa: B004  it is callable
    return inspect.iscoroutinefunction(hook) or inspect.iscoroutinefunction(called)


def _hooks(hooks: Any) -> Any:
    if isinstance(hooks, Iterable) and not isinstance(hooks, str | bytes):
        return [_hook(hook) for hook in cast("Iterable[Any]", hooks)]
    return hooks


def _resilience(resilience: Any) -> Any:
    if not isinstance(resilience, Resilience) or resilience.retry.on_retry is None:
        return resilience
    retry = msgspec.structs.replace(resilience.retry, on_retry=_hook(resilience.retry.on_retry))
    return msgspec.structs.replace(resilience, retry=retry)


def _agents(agents: Any) -> Any:
    """What a coordinator is given: clients among them."""
    if isinstance(agents, Mapping):
        named = cast("Mapping[Any, Any]", agents)
        return {name: _argument("", agent) for name, agent in named.items()}
    return agents


def _messages(messages: Any) -> Any:
    """Many messages: those that are made one by one are asked for when there is room for one."""
    if isinstance(messages, list | tuple | AsyncIterable) or not isinstance(messages, Iterable):
        return cast("Any", messages)
    if isinstance(messages, str | bytes | Mapping):  # one message, which is refused
        return cast("Any", messages)
    return _one_by_one(iter(cast("Iterable[Any]", messages)))


async def _one_by_one(messages: PlainIterator[Any]) -> AsyncGenerator[Any]:
    following = asked_of_caller(functools.partial(next, messages, _END))
    while (message := await following()) is not _END:
        yield message


_END = object()

_GIVEN: Mapping[str, Callable[[Any], Any]] = {
    "agents": _agents,
    "consumer": _hook,
    "consumers": _hooks,
    "messages": _messages,
    "on_auth": _hook,
    "on_input": _hook,
    "resilience": _resilience,
}
"""What becomes of arguments, by their names, that are or hold plain functions of the caller's."""
