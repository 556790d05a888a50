"""Validation of settings and arguments.

A bool does not count as a number, and a count is an integer.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, cast

import msgspec

from holdfast._model.sdk_values import kind_of

__all__ = [
    "NamedFieldsMeta",
    "Policy",
    "check_count",
    "check_kind",
    "check_kinds",
    "check_number",
    "check_numbers",
    "explains_unknown_options",
    "suggestion",
]

P = ParamSpec("P")
R = TypeVar("R")

_MIN_SIMILARITY = 0.7
"""Similarity from 0 to 1 of a suggested name; high enough that equal endings do not suffice."""


def check_number(name: str, value: object, description: str = "number") -> None:
    """Check that a value is a number, before it is compared.

    Args:
        name: Name of the value in messages.
        value: The caller's value.
        description: Description of the number in messages.

    Raises:
        TypeError: The value is not a number.
    """
    if not isinstance(value, int | float) or isinstance(value, bool):
        message = f"{name} must be a {description}, not {type(value).__name__}"
        raise TypeError(message)


def check_count(name: str, value: object, *, least: int = 0) -> None:
    """Check that a value is an integer of at least `least`.

    Raises:
        TypeError: The value is not an integer, or is infinite.
        ValueError: The value is less than `least`.
    """
    if not isinstance(value, int) or isinstance(value, bool):
        message = f"{name} must be a whole number, not {type(value).__name__}"
        raise TypeError(message)
    if value < least:
        message = f"{name} must be at least {least}" if least else f"{name} must not be negative"
        raise ValueError(message)


def check_numbers(settings: object, names: Iterable[str]) -> None:
    """Check that the named settings are numbers; see `check_number`.

    Raises:
        TypeError: A setting is not a number.
    """
    for name in names:
        check_number(name, getattr(settings, name))


def check_kinds(settings: object, **kinds: type | tuple[type, ...]) -> None:
    """Check the classes of settings by name.

    Raises:
        TypeError: A setting has another class.
    """
    for name, kind in kinds.items():
        check_kind(name, getattr(settings, name), kind)


def check_kind(
    name: str, value: object, kind: type | tuple[type, ...], *, or_else: str = ""
) -> None:
    """Check the class of a value; the message names the first of several accepted classes.

    Args:
        name: Name of the value in messages.
        value: The caller's value.
        kind: Accepted class or classes.
        or_else: Other accepted values, for the message.

    Raises:
        TypeError: The value has another class.
    """
    if not isinstance(value, kind):
        first = kind[0] if isinstance(kind, tuple) else kind
        message = f"{name} must be {first.__name__}{or_else}, not {kind_of(value, first)}"
        raise TypeError(message)


def suggestion(name: str, choices: Sequence[str]) -> str:
    """Suggest the choice closest to a rejected name; list all if none is close."""
    import difflib  # slow to import, needed only for errors

    closest = [other for other in _OTHER_NAMES.get(name, ()) if other in choices]
    closest += difflib.get_close_matches(name, choices, n=1, cutoff=_MIN_SIMILARITY)
    return f"did you mean {closest[0]!r}?" if closest else f"there are {', '.join(choices)}"


def explains_unknown_options(
    instead: Mapping[str, str] | None = None,
    *,
    missing: str | None = None,
    too_many: str | None = None,
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Make a function raise an error that names the right option in place of an unknown one.

    Args:
        instead: What to pass in place of options that other libraries have.
        missing: The error if the first argument, which has no default, is missing; None for
            Python's own.
        too_many: The error for too many arguments by position; None for Python's own.
    """

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        code = function.__code__  # pyright: ignore[reportFunctionMemberAccess]  of a function
        named = slice(code.co_posonlyargcount, code.co_argcount + code.co_kwonlyargcount)
        known = tuple(name for name in code.co_varnames[named] if name != "self")
        first, least = known[0] if known else "", 2 if code.co_varnames[:1] == ("self",) else 1

        def check(args: tuple[object, ...], options: Iterable[str]) -> None:
            for name in options:
                if name not in known:
                    hint = (instead or {}).get(name) or suggestion(name, known)
                    target = function.__name__
                    if target == "__init__":
                        target = type(args[0]).__name__
                    text = f"{name!r} is not an option of {target}; {hint}"
                    raise TypeError(text)
            is_missing = len(args) < least and first not in options
            fault = missing if is_missing else too_many if len(args) > code.co_argcount else None
            if fault is not None:
                raise TypeError(fault)

        if inspect.iscoroutinefunction(function):

            @functools.wraps(function)
            async def checked_coroutine(*args: P.args, **options: P.kwargs) -> Any:
                check(args, options)
                return await function(*args, **options)

            return cast("Callable[P, R]", checked_coroutine)

        @functools.wraps(function)
        def checked(*args: P.args, **options: P.kwargs) -> R:
            check(args, options)
            return function(*args, **options)

        return checked

    return decorate


_OTHER_NAMES = {
    "attempts": ("max_retries", "max_reconnects"),
    "deadline": ("within", "timeout"),
    "httpx_client": ("engine",),
    "page_size": ("limit",),
    "push_notification_config": ("push_notification_configs",),
    "resolver_http_kwargs": ("headers",),
    "signature_verifier": ("card_verifier",),
    "max_attempts": ("max_retries", "max_reconnects"),
    "read": ("first_byte",),
    "retries": ("max_retries", "retry", "retry_config"),
    "circuit_breaker": ("breaker",),
    "timeout": ("timeouts",),
    "within": ("timeout",),
}
"""Names that other libraries have for fields and options."""


class NamedFieldsMeta(msgspec.StructMeta):
    """Metaclass of structs that name the right field if one is made with a name that it lacks.

    It makes the constructor slower, so values that streams create do not have it. Decoders do not
    call it.
    """

    if not TYPE_CHECKING:  # so that type checkers see the fields

        def __call__(cls, *args: Any, **values: Any) -> Any:  # noqa: N805  a metaclass
            try:
                return super().__call__(*args, **values)
            except TypeError:
                fields: tuple[str, ...] = cls.__struct_fields__
                unknown = [name for name in values if name not in fields]
                if not args and not unknown:
                    raise
            shown = ", ".join(fields)
            if args:
                text = f"{cls.__name__} takes its fields by name: {shown}"
                raise TypeError(text)
            name, hint = unknown[0], suggestion(unknown[0], fields)
            hint = f"{hint} " if hint.endswith("?") else ""
            text = f"{cls.__name__} has no field {name!r}; {hint}its fields are {shown}"
            raise TypeError(text)


class Policy(msgspec.Struct, frozen=True, kw_only=True, metaclass=NamedFieldsMeta):
    """Base class of policies: their fields are passed by name."""
