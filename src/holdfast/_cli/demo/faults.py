"""The faults of the demo agent, as written on the command line.

    rate-limit:2,cut:3,2xreset

A name, after a colon its number, and before it the count of requests that meet it, with an x.
Each is for one request; some sets of them have names.
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
        name: The fault, as written.
        fault: The fault; None for none.
    """

    name: str
    fault: Fault | None


class Kind(NamedTuple):
    """A named fault.

    Attributes:
        what: A description.
        make: Makes the fault from its number.
        number: The meaning of the number, and its default; None for a fault without a number.
        lowest: The minimum of the number.
    """

    what: str
    make: Callable[[int], Fault | None]
    number: tuple[str, int] | None = None
    lowest: int = 0


def _always(fault: Fault | None) -> Callable[[int], Fault | None]:
    """Return a maker of a fault that has no number."""

    def make(_number: int) -> Fault | None:
        return fault

    return make


def _error(code: int) -> Fault:
    return Fail(code=-abs(code))  # with or without its sign


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
    """Parse faults.

    Raises:
        ValueError: The text is invalid; the message names the wrong part and the valid faults.
    """
    faults: list[WrittenFault] = []
    for name in filter(None, (word.strip() for word in text.split(","))):
        faults += read_faults(SETS[name]) if name in SETS else _read(name)
    if len(faults) > _MAX_FAULTS:
        message = f"these are {len(faults)} faults; {_MAX_FAULTS} are enough for anybody"
        raise ValueError(message)
    return tuple(faults)


_WRITTEN = re.compile(r"(?:(?P<times>\d{1,4})x)?(?P<name>[a-z-]+)(?::(?P<number>-?\d{1,9}))?")


def _read(text: str) -> list[WrittenFault]:
    match = _WRITTEN.fullmatch(text)
    kind = None if match is None else FAULTS.get(match["name"])
    if match is None or kind is None:
        names = ", ".join([*FAULTS, *SETS])
        message = f"{text!r} is not a fault; faults are {names}, as in cut:3 or 2xreset"
        raise ValueError(message)
    number = match["number"]
    if number is not None and kind.number is None:
        message = f"{match['name']} takes no number"
        raise ValueError(message)
    value = int(number) if number is not None else (kind.number or ("", 0))[1]
    if value < kind.lowest or (_SECONDS in (kind.number or ()) and value > _MAX_SECONDS):
        maximum = f" and {_MAX_SECONDS}" if _SECONDS in (kind.number or ()) else ""
        range_text = f"{'between' if maximum else 'at least'} {kind.lowest}"
        message = f"{text!r}: the number has to be {range_text}{maximum}"
        raise ValueError(message)
    name = match["name"] if number is None else f"{match['name']}:{number}"
    return [WrittenFault(name, kind.make(value))] * int(match["times"] or 1)


def faults_text() -> str:
    """Return the faults and the sets, a line for each."""
    lines = [(_shown(name, kind), kind.what) for name, kind in FAULTS.items()]
    lines += SETS.items()
    return "\n".join(f"{name:<23} {description}" for name, description in lines)


def _shown(name: str, kind: Kind) -> str:
    if kind.number is None:
        return name
    meaning, otherwise = kind.number
    return f"{name}:{meaning} ({otherwise})"
