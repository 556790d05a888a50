r"""Word wrapping of streamed text for a terminal.

Rules:
- A word that no longer fits on its line moves to the next one. The part of it that is already on
  the screen is taken back: ``\b`` moves over it, spaces hide it.
- A word longer than a line, such as an address, is left to the terminal, and can be copied.
- Between wide characters (Chinese, Japanese, Korean) a line may break anywhere.
- The last column stays free: a terminal that shows a character there may be on the next line.
"""

from __future__ import annotations

import unicodedata
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Wrapping"]

_LEAST = 10
"""Columns below which a terminal's own way of breaking lines is as good."""

_TAB, _WIDEST = 8, 2
"""Columns of a tab stop, and of a wide character."""

_WIDE = frozenset({"W", "F"})
_NO_WIDTH = frozenset({"Mn", "Me", "Cf"})


class Wrapping:
    """Breaks the lines of a text that comes in pieces.

    Args:
        columns: Gives the columns of the terminal; None where there is none, and lines are not
            broken. It is asked before each piece, since a window may change its size.
    """

    def __init__(self, columns: Callable[[], int | None]) -> None:
        self._columns = columns
        self._column = 0  # where the next character goes
        self._word = ""  # what stands there of a word that may go on
        self._word_width = 0

    def feed(self, text: str) -> str:
        """Return what to write for the next piece of the text.

        Args:
            text: The piece, which has no control characters but line ends and tabs.
        """
        columns = self._columns()
        if columns is None or columns < _LEAST:
            return text
        limit, shown = columns - 1, list[str]()
        sent, sent_width, word_at = self._word, self._word_width, 0
        for character in text:
            width = _width(character)
            if character in "\n\t ":
                shown.append(self._space(character, limit))
            elif width == _WIDEST:
                shown.append(self._wide(character, limit))
            else:
                if self._moves(width, limit):
                    shown.insert(word_at, f"{chr(8) * sent_width}{' ' * sent_width}\n{sent}")
                    self._column = self._word_width
                shown.append(character)
                self._word += character
                self._word_width += width
                self._column += width
                continue
            self._word, self._word_width = "", 0
            sent, sent_width, word_at = "", 0, len(shown)
        return "".join(shown)

    def _space(self, character: str, limit: int) -> str:
        width = _TAB - self._column % _TAB if character == "\t" else 1
        if character == "\n" or self._column + width > limit:
            self._column = 0
            return "\n"
        self._column += width
        return character

    def _wide(self, character: str, limit: int) -> str:
        fits = self._column + _WIDEST <= limit
        self._column = self._column + _WIDEST if fits else _WIDEST
        return character if fits else f"\n{character}"

    def _moves(self, width: int, limit: int) -> bool:
        """Whether the word does not fit here, and would on a line of its own."""
        fits = self._column + width <= limit
        begins_line = self._column <= self._word_width
        return not (fits or begins_line or self._word_width + width > limit)


def _width(character: str) -> int:
    """Return the columns that a character takes."""
    if character.isascii():
        return 1
    if unicodedata.category(character) in _NO_WIDTH:
        return 0
    return _WIDEST if unicodedata.east_asian_width(character) in _WIDE else 1
