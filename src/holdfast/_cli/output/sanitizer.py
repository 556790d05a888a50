r"""Text that cannot steer a terminal or hide from its reader, at once or in pieces.

Rules:
- Escaped, as ``\x1b`` or ``\u202e``, is what a terminal would obey or a reader would not see:
  control characters of ECMA-48 (so the sequences that they begin show as text), those that change
  the direction of writing, characters of no width, fillers, tags, and halves of characters.
- Tabs stay, and every kind of line end is LF.
- What languages and emoji need stays, where they need it: combining marks everywhere; a joiner
  (U+200C, U+200D) right after a letter of a script that joins, or U+200D after a picture; one
  variation selector right after a picture, a keycap, or a sign of a script that has variants.
- A piece is shown as it would be in the whole, so that it does not matter where text is cut.
"""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["TerminalSanitizer", "clean", "clean_line", "replace_special", "shortened"]

_JOINING = (  # the Arabic and related scripts, those of South Asia, and those derived from them
    "\u0600-\u061b\u061d-\u109f\u1780-\u180a\u1810-\u18af\u1900-\u1cff\ua800-\uabff"
    "\ufb50-\ufdff\ufe70-\ufefc\U00010a00-\U00010eff\U00011000-\U00011fff"
)
_IDEOGRAPHS = "\u3000-\u303f\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
_PICTURES = (
    "\xa9\xae\u203c\u2049\u2122\u2139\u2190-\u21ff\u2300-\u23ff\u2460-\u24ff\u25a0-\u27bf"
    "\u2900-\u297f\u2b00-\u2bff\u3297\u3299\U0001f000-\U0001faff"
)
_VARIED = f"#*0-9\u1000-\u109f\u2200-\u22ff\ua840-\ua87f{_PICTURES}{_IDEOGRAPHS}"
_MONGOLIAN = "\u1820-\u18af"

_SPECIAL = (
    r"(?<=\r)\n|"  # the rest of a line end that is shown
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u200b\u200e\u200f"
    "\u2028-\u202e\u2060-\u206f\u3164\ud800-\udfff\ufeff\uffa0\ufff0-\ufffb"
    "\U0001bca0-\U0001bca3\U0001d173-\U0001d17a"
    "\U000e0000-\U000e00ff\U000e01f0-\U000e0fff]"
    f"|(?<![{_JOINING}])\u200c"
    f"|(?<![{_JOINING}{_PICTURES}])(?<![{_PICTURES}]\ufe0f)\u200d"
    f"|(?<![{_MONGOLIAN}])[\u180b-\u180f]"
    f"|(?<![{_VARIED}])[\ufe00-\ufe0f]"
    f"|(?<![{_IDEOGRAPHS}])[\U000e0100-\U000e01ef]"
)
"""The characters to escape; of CR and LF together, each is one."""

_PLAIN = re.compile(r"[\t\n -~]*")
"""Most text: nothing in it is special. To compile the other expression takes milliseconds."""


@cache
def _special() -> re.Pattern[str]:
    return re.compile(_SPECIAL)


def replace_special(text: str, escape: Callable[[re.Match[str]], str]) -> str:
    """Return a text in which what would steer a terminal, or hide in it, is escaped.

    Args:
        text: The text.
        escape: Writes a special character.
    """
    return text if _PLAIN.fullmatch(text) else _special().sub(escape, text)


_LINE_ENDS = frozenset("\r\x0b\x0c\x85\u2028\u2029")


class TerminalSanitizer:
    """Sanitizes text that arrives in pieces."""

    def __init__(self) -> None:
        self._last = ""  # the characters before the next piece, which decide about its first

    def feed(self, text: str) -> str:
        """Return the next piece, sanitized."""
        joined, position = self._last + text, len(self._last)
        self._last = joined[-2:]
        if _PLAIN.fullmatch(joined):
            return text
        pieces: list[str] = []
        for match in _special().finditer(joined, position):
            pieces += joined[position : match.start()], _shown(match[0])
            position = match.end()
        return "".join((*pieces, joined[position:]))


def clean(text: str) -> str:
    """Return sanitized text."""
    return TerminalSanitizer().feed(text)


def clean_line(text: str) -> str:
    """Return sanitized text on one line."""
    return " ".join(clean(text).split())


def shortened(text: str, length: int) -> str:
    """Return at most so many characters of a text; an ellipsis marks a cut."""
    return text if len(text) <= length else f"{text[: length - 1]}…"


def _shown(character: str) -> str:
    if character == "\n":
        return ""  # CR ended the line
    if character in _LINE_ENDS:
        return "\n"
    number = ord(character)
    return f"\\x{number:02x}" if number < 0x100 else ascii(character)[1:-1]
