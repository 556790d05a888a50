"""What an examination found, as text for people and pipes (a2a-cli 11.2).

Rules: each group of findings is a block, and each interface is one; what was not measured comes
last, by its reason; no line is longer than the terminal or 80 columns; colours are for terminals.
"""

from __future__ import annotations

import os
import shutil
import sys
import textwrap
from typing import TYPE_CHECKING

from holdfast.cli import text

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from holdfast.diagnosis import Diagnosis, Finding, Level

__all__ = ["Paper", "paper", "render_diagnosis"]

_COLUMNS = 80
_LEAST, _MOST = 40, 100

_TITLES: Mapping[str, str] = {
    "card": "Card",
    "tls": "Connection",
    "clock": "Connection",
    "limits": "Connection",
    "authentication": "Authentication",
    "bindings": "Interfaces",
    "streaming": "Streams",
    "subscribe": "Streams",
    "sending": "Messages",
    "recording": "Messages",
}
"""What a group's block is called; findings about an interface are in its own."""

_ORDER = ("Card", "Connection", "Authentication", "Interfaces", "", "Streams", "Messages")
"""The blocks in their order, the interfaces at the empty name."""

_LEVELS: Mapping[Level, str] = {
    "ok": "\x1b[32m",
    "info": "\x1b[36m",
    "warning": "\x1b[33m",
    "problem": "\x1b[1;31m",
}
_PLAIN = "\x1b[0m"
_INDENT = 2
_WIDTH = max(map(len, _LEVELS)) + 2
_COUNTED: Mapping[Level, tuple[str, str]] = {
    "problem": ("problem", "problems"),
    "warning": ("warning", "warnings"),
    "info": ("worth knowing", "worth knowing"),
    "ok": ("ok", "ok"),
    "not measured": ("not measured", "not measured"),
}


class Paper:
    """What is written on.

    Attributes:
        columns: Longest line.
        has_colours: Whether levels are told by colours, too.
    """

    def __init__(self, columns: int = _COLUMNS, *, has_colours: bool = False) -> None:
        self.columns = columns
        self.has_colours = has_colours


def paper() -> Paper:
    """What standard output is."""
    if sys.stdout is None or not sys.stdout.isatty():
        return Paper()
    columns = min(max(shutil.get_terminal_size().columns, _LEAST), _MOST)
    is_plain = "NO_COLOR" in os.environ or os.environ.get("TERM") == "dumb"
    return Paper(columns, has_colours=not is_plain)


def render_diagnosis(diagnosis: Diagnosis, on: Paper, *, verbose: bool = False) -> Iterator[str]:
    """The lines for what an examination found.

    Args:
        diagnosis: What was found.
        on: What they are written on.
        verbose: Whether to name each check, and to say what is meant where all is well.
    """
    if diagnosis.name:
        yield text.field("Agent", diagnosis.name)
    yield text.field("Address", diagnosis.agent)
    for message_id in dict.fromkeys(diagnosis.message_ids):
        yield text.field("Message ID", message_id)
    measured = [f for f in diagnosis.findings if f.level != "not measured"]
    for title in _ORDER:
        blocks = _of_interfaces(measured) if not title else [_titled(title, measured)]
        for findings in blocks:
            if findings:
                yield f"{title or 'Interface'}:"
                if not title:
                    yield from _wrapped(findings[0].about, on, _INDENT)
                for finding in findings:
                    yield from _lines(finding, on, verbose=verbose)
                yield ""
    yield from _unmeasured(diagnosis.findings, on)
    yield text.field("Result", _summary(diagnosis))


def _titled(title: str, findings: Sequence[Finding]) -> list[Finding]:
    return [f for f in findings if not f.about and _TITLES.get(f.group) == title]


def _of_interfaces(findings: Sequence[Finding]) -> list[list[Finding]]:
    interfaces = dict.fromkeys(f.about for f in findings if f.about)
    return [[f for f in findings if f.about == about] for about in interfaces]


def _lines(finding: Finding, on: Paper, *, verbose: bool) -> Iterator[str]:
    level = finding.level.ljust(_WIDTH)
    if on.has_colours:
        level = (
            f"{_LEVELS[finding.level]}{finding.level}{_PLAIN}{' ' * (_WIDTH - len(finding.level))}"
        )
    name = f"{finding.check}: " if verbose else ""
    first, *rest = _wrapped(f"{name}{finding.saw}", on, _INDENT + _WIDTH)
    yield f"{' ' * _INDENT}{level}{first.lstrip()}"
    yield from rest
    for label, said in (("means", finding.means), ("do", finding.do)):
        if said and (finding.level != "ok" or verbose):
            begin = _INDENT + _WIDTH
            first, *rest = _wrapped(said, on, begin + len("means  "))
            yield f"{' ' * begin}{label.ljust(len('means  '))}{first.lstrip()}"
            yield from rest


def _unmeasured(findings: Sequence[Finding], on: Paper) -> Iterator[str]:
    """What was not measured, by the reason."""
    reasons: dict[str, dict[str, None]] = {}
    for finding in findings:
        if finding.level == "not measured":
            reasons.setdefault(finding.saw, {})[finding.check] = None
    if not reasons:
        return
    yield "Not measured:"
    for reason, checks in reasons.items():
        yield from _wrapped(f"{', '.join(checks)}: {reason}", on, _INDENT, more=_INDENT)
    yield ""


def _wrapped(said: str, on: Paper, begin: int, *, more: int = 0) -> list[str]:
    """A text in lines that begin at a column.

    Args:
        said: The text.
        on: What it is written on.
        begin: How many columns are free at the left.
        more: How many more from the second line on.
    """
    lines = textwrap.wrap(
        text.one_line(said),
        on.columns,
        initial_indent=" " * begin,
        subsequent_indent=" " * (begin + more),
        break_long_words=False,
        break_on_hyphens=False,
    )
    return lines or [" " * begin]


def _summary(diagnosis: Diagnosis) -> str:
    counts = diagnosis.counts
    told = [
        f"{counts[level]} {words[counts[level] != 1]}"
        for level, words in _COUNTED.items()
        if counts[level] or level == "problem"
    ]
    ended = "" if diagnosis.is_complete else f"; {diagnosis.stopped}; it was not finished"
    return f"{', '.join(told)}{ended}"
