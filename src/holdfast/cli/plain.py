"""Text without anything that steers a terminal, whether it is there at once or comes in pieces.

Rules: control sequences go with all that belongs to them, also where they have no end; so do other
control characters, and those that turn the direction of writing; every kind of line end is LF.
What a piece leaves open, the next one goes on with, so that it does not matter where text is cut.
"""

from __future__ import annotations

import re
from enum import Enum, auto
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["Plain", "clean"]

_SPECIAL = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069\ufeff]"
)
_LINE_ENDS = frozenset("\r\x0b\x0c\x85\u2028\u2029")
_ESCAPE = "\x1b"
_ENDS = re.compile("[\x07\x1b\x9c]")
_STRINGS = frozenset("]PX^_")  # OSC, DCS and their like, after an escape
_STRINGS_C1 = frozenset("\x9d\x90\x98\x9e\x9f")
_CSI_C1 = "\x9b"


class _Within(Enum):
    """Where the text so far ends."""

    TEXT = auto()
    RETURN = auto()  # right after CR, which a LF may belong to
    ESCAPE = auto()
    OTHER = auto()  # an escape that is neither CSI nor a string
    PARAMETERS = auto()  # CSI: colours, cursor
    INTERMEDIATES = auto()
    STRING = auto()
    STRING_ESCAPE = auto()


_SEQUENCES: Mapping[_Within, tuple[re.Pattern[str], str]] = {
    _Within.OTHER: (re.compile("[ -/]*"), "".join(map(chr, range(0x30, 0x7F)))),
    _Within.PARAMETERS: (re.compile("[0-?]*"), ""),
    _Within.INTERMEDIATES: (re.compile("[ -/]*"), "".join(map(chr, range(0x40, 0x7F)))),
}
"""What goes on with a sequence, and what ends it (ECMA-48 5.3, 5.4)."""


class Plain:
    """Takes text in pieces, and gives what of it may be shown."""

    def __init__(self) -> None:
        self._within = _Within.TEXT

    def feed(self, text: str) -> str:
        """The next piece, as far as it can be shown."""
        if self._within is _Within.TEXT and _SPECIAL.search(text) is None:
            return _encodable(text)
        shown: list[str] = []
        at = 0
        while at < len(text):
            at = self._step(text, at, shown)
        return _encodable("".join(shown))

    def _step(self, text: str, at: int, shown: list[str]) -> int:
        """Takes some of the text, and says where the rest begins."""
        if self._within is _Within.TEXT:
            return self._text(text, at, shown)
        if self._within is _Within.STRING:
            return self._string(text, at)
        within, self._within = self._within, _Within.TEXT
        if within is _Within.RETURN:
            return at + (text[at] == "\n")
        if within is _Within.ESCAPE:
            return self._escape(text[at], at)
        if within is _Within.STRING_ESCAPE:
            return self._string_escape(text[at], at)
        return self._sequence(within, text, at)

    def _sequence(self, within: _Within, text: str, at: int) -> int:
        """Goes on in a sequence that ends with a character of its own, or before another one."""
        goes_on, last = _SEQUENCES[within]
        found = goes_on.match(text, at)
        end = at if found is None else found.end()
        if end == len(text):
            self._within = within
        elif within is _Within.PARAMETERS:
            self._within = _Within.INTERMEDIATES
        elif text[end] in last:
            return end + 1
        return end

    def _string(self, text: str, at: int) -> int:
        found = _ENDS.search(text, at)
        if found is None:
            return len(text)
        self._within = _Within.STRING_ESCAPE if found[0] == _ESCAPE else _Within.TEXT
        return found.end()

    def _string_escape(self, character: str, at: int) -> int:
        if character == "\\":
            return at + 1
        self._within = _Within.STRING
        return at

    def _text(self, text: str, at: int, shown: list[str]) -> int:
        found = _SPECIAL.search(text, at)
        if found is None:
            shown.append(text[at:])
            return len(text)
        shown.append(text[at : found.start()])
        character = found[0]
        if character in _LINE_ENDS:
            shown.append("\n")
            self._within = _Within.RETURN if character == "\r" else _Within.TEXT
        elif character == _ESCAPE:
            self._within = _Within.ESCAPE
        elif character == _CSI_C1:
            self._within = _Within.PARAMETERS
        elif character in _STRINGS_C1:
            self._within = _Within.STRING
        return found.end()

    def _escape(self, character: str, at: int) -> int:
        if character == "[":
            self._within = _Within.PARAMETERS
        elif character in _STRINGS:
            self._within = _Within.STRING
        else:
            self._within = _Within.OTHER
            return at
        return at + 1


def clean(text: str) -> str:
    """Text that is there at once, as it may be shown."""
    return Plain().feed(text)


def _encodable(text: str) -> str:
    """Text without halves of characters, which no encoding can write."""
    return text.encode("utf-8", "replace").decode()
