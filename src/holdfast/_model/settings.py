"""Checks of numbers, and of the values that settings are made of.

A bool is no number, and a count is a whole one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

__all__ = [
    "check_count",
    "check_kind",
    "check_kinds",
    "check_number",
    "check_numbers",
    "kind_of",
    "suggestion",
]

_ALIKE = 0.7
"""How alike two names are, of 1, where one was meant by the other: not only by their endings."""


def check_number(name: str, value: object, what: str = "number") -> None:
    """Checks that a value is a number, before it is compared with anything.

    Args:
        name: What messages call it.
        value: What the caller passes.
        what: What the number is of, if that is to be told.

    Raises:
        TypeError: It is something else.
    """
    if not isinstance(value, int | float) or isinstance(value, bool):
        message = f"{name} must be a {what}, not {type(value).__name__}"
        raise TypeError(message)


def check_count(name: str, value: object, *, least: int = 0) -> None:
    """Checks that a value is a whole number, and not too small.

    Raises:
        TypeError: It is something else, infinity included.
        ValueError: It is less than `least`.
    """
    if not isinstance(value, int) or isinstance(value, bool):
        message = f"{name} must be a whole number, not {type(value).__name__}"
        raise TypeError(message)
    if value < least:
        message = f"{name} must be at least {least}" if least else f"{name} must not be negative"
        raise ValueError(message)


def check_numbers(settings: object, names: Iterable[str]) -> None:
    """Checks that settings are numbers; see `check_number`.

    Raises:
        TypeError: One is something else.
    """
    for name in names:
        check_number(name, getattr(settings, name))


def check_kinds(settings: object, **kinds: type | tuple[type, ...]) -> None:
    """Checks the classes of settings, by name.

    Raises:
        TypeError: One is of another class.
    """
    for name, kind in kinds.items():
        check_kind(name, getattr(settings, name), kind)


def check_kind(
    name: str, value: object, kind: type | tuple[type, ...], *, or_else: str = ""
) -> None:
    """Checks the class of a value; of several that will do, the first one is named.

    Args:
        name: What messages call it.
        value: What the caller passes.
        kind: What will do.
        or_else: What else to tell that would do.

    Raises:
        TypeError: It is of another class.
    """
    if not isinstance(value, kind):
        first = kind[0] if isinstance(kind, tuple) else kind
        message = f"{name} must be {first.__name__}{or_else}, not {kind_of(value)}"
        raise TypeError(message)


def kind_of(value: object) -> str:
    """Name the class of a value that is refused; of the official SDK's, say what to pass."""
    kind = type(value)
    if kind.__module__.partition(".")[0] not in {"a2a", "a2a_pb2"}:
        return kind.__name__
    if hasattr(kind, "DESCRIPTOR"):
        instead = "google.protobuf.json_format.MessageToDict(…)"
    else:  # of protocol 0.3
        instead = 'model_dump(mode="json", by_alias=True, exclude_none=True)'
    return f"{kind.__module__}.{kind.__name__} of the official SDK; pass what {instead} gives"


def suggestion(name: str, known: Sequence[str]) -> str:
    """Say which known name is nearest to one that is refused; all of them where none is near."""
    import difflib  # takes longer than a call that is right

    meant = difflib.get_close_matches(name, known, n=1, cutoff=_ALIKE)
    return f"did you mean {meant[0]!r}?" if meant else f"there are {', '.join(known)}"
