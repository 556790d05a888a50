"""The faults of the demo agent, as they are written on the command line.

    rate-limit:2,cut:3,2xreset

A name, behind a colon what it needs to know, and before it how many requests meet it, with an x.
Each is for one request; a set of them has a name, too.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from holdfast.testing import (
    Cut,
    Delay,
    Duplicate,
    Fail,
    Garbage,
    Reset,
    Stall,
    bad_gateway,
    rate_limited,
    unavailable,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from holdfast.testing import Fault

__all__ = ["FAULTS", "SETS", "WrittenFault", "faults_text", "read_faults"]

_MAX_FAULTS = 1000
_MAX_SECONDS = 3600


class WrittenFault(NamedTuple):
    """A fault that one request meets.

    Attributes:
        name: As it is written.
        fault: What happens; None for nothing.
    """

    name: str
    fault: Fault | None


class Kind(NamedTuple):
    """A fault that has a name.

    Attributes:
        what: What happens.
        make: Makes it of its number.
        number: What it needs to know, and what that is if nobody says; None for nothing.
        lowest: The lowest that the number may be.
    """

    what: str
    make: Callable[[int], Fault | None]
    number: tuple[str, int] | None = None
    lowest: int = 0


def _always(fault: Fault | None) -> Callable[[int], Fault | None]:
    """A fault that needs no number."""

    def make(_number: int) -> Fault | None:
        return fault

    return make


def _error(code: int) -> Fault:
    return Fail(code=-abs(code))  # written with its sign or without


def _cut(events: int) -> Fault:
    return Cut(after_events=events)


def _end(events: int) -> Fault:
    return Cut(after_events=events, clean=True)


def _stall(events: int) -> Fault:
    return Stall(phase="idle", after_events=events)


def _twice(event: int) -> Fault:
    return Duplicate(event=event)


def _delay(seconds: int) -> Fault:
    return Delay(seconds=seconds)


_SECONDS, _EVENTS = "SECONDS", "EVENTS"
_LOST = Reset(after_execution=True)

FAULTS: Mapping[str, Kind] = {
    "ok": Kind("nothing: the request goes well", _always(None)),
    "rate-limit": Kind("429, and when to come back", rate_limited, (_SECONDS, 1)),
    "unavailable": Kind("503, and when to come back", unavailable, (_SECONDS, 1)),
    "bad-gateway": Kind("502 with the page of a proxy", _always(bad_gateway())),
    "error": Kind("the agent answers with an error", _error, ("-CODE", -32603), -99_999),
    "reset": Kind("a reset in place of taking the request in", _always(Reset())),
    "lost": Kind("a reset after taking it in: no reply", _always(_LOST)),
    "cut": Kind("the stream breaks off", _cut, (_EVENTS, 2)),
    "end": Kind("the stream ends too early, in good order", _end, (_EVENTS, 2)),
    "stall": Kind("the stream stops, and stays open", _stall, (_EVENTS, 2)),
    "twice": Kind("an event of the stream comes twice", _twice, ("EVENT", 2), 1),
    "delay": Kind("the reply is late", _delay, (_SECONDS, 3)),
    "garbage": Kind("bytes that are not HTTP", _always(Garbage())),
}

SETS: Mapping[str, str] = {
    "bad-day": "rate-limit,cut:3,bad-gateway,reset,end:1",
    "overload": "2xrate-limit,unavailable:2",
    "bad-network": "cut:2,2xreset,delay:1",
}


def read_faults(text: str) -> tuple[WrittenFault, ...]:
    """Reads what is written of faults.

    Raises:
        ValueError: It cannot be read; says what of it, and what can be.
    """
    faults: list[WrittenFault] = []
    for written in filter(None, (word.strip() for word in text.split(","))):
        faults += read_faults(SETS[written]) if written in SETS else _read(written)
    if len(faults) > _MAX_FAULTS:
        message = f"these are {len(faults)} faults; {_MAX_FAULTS} are enough for anybody"
        raise ValueError(message)
    return tuple(faults)


_WRITTEN = re.compile(r"(?:(?P<times>\d{1,4})x)?(?P<name>[a-z-]+)(?::(?P<number>-?\d{1,9}))?")


def _read(written: str) -> list[WrittenFault]:
    match = _WRITTEN.fullmatch(written)
    kind = None if match is None else FAULTS.get(match["name"])
    if match is None or kind is None:
        names = ", ".join([*FAULTS, *SETS])
        message = f"{written!r} is not a fault; faults are {names}, as in cut:3 or 2xreset"
        raise ValueError(message)
    number = match["number"]
    if number is not None and kind.number is None:
        message = f"{match['name']} takes no number"
        raise ValueError(message)
    value = int(number) if number is not None else (kind.number or ("", 0))[1]
    if value < kind.lowest or (_SECONDS in (kind.number or ()) and value > _MAX_SECONDS):
        most = f" and {_MAX_SECONDS}" if _SECONDS in (kind.number or ()) else ""
        least = f"{'between' if most else 'at least'} {kind.lowest}"
        message = f"{written!r}: the number has to be {least}{most}"
        raise ValueError(message)
    name = match["name"] if number is None else f"{match['name']}:{number}"
    return [WrittenFault(name, kind.make(value))] * int(match["times"] or 1)


def faults_text() -> str:
    """The faults and the sets, a line for each."""
    lines = [(_shown(name, kind), kind.what) for name, kind in FAULTS.items()]
    lines += SETS.items()
    return "\n".join(f"{name:<23} {what}" for name, what in lines)


def _shown(name: str, kind: Kind) -> str:
    if kind.number is None:
        return name
    what, otherwise = kind.number
    return f"{name}:{what} ({otherwise})"
