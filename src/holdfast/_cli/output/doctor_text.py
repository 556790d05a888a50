"""What an examination found, as text for people and pipes (a2a-cli 11.2).

Rules: each group of findings is a block, and each interface is one; a line that is about an
interface names its binding and version; what was not measured comes
after them, in words, by its reason; problems and warnings that may have left the screen are told
again, shortly, at the end; no line is longer than the terminal or 80 columns; colours are for
terminals.
"""

from __future__ import annotations

import os
import shutil
import sys
import textwrap
from collections import Counter
from typing import TYPE_CHECKING

from holdfast._cli.output import text

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from holdfast.doctor import Diagnosis, Finding, Level

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
"""What a group's block is called; other findings about an interface are in its own."""

_OF_MESSAGES = frozenset({"streaming", "subscribe", "sending", "recording"})
"""Groups about the message that was sent, which went to one interface."""

_ORDER = ("Card", "Connection", "Authentication", "Interfaces", "", "Streams", "Messages")
"""The blocks in their order, the interfaces at the empty name."""

_UNMEASURED: Mapping[str, str] = {
    "card.found": "the card",
    "tls.version": "TLS",
    "clock.skew": "the agent's clock",
    "bindings.answers": "which server answers at an interface",
    "versions.spoken": "the version that is spoken",
    "authentication.asked": "the answer to callers without credentials",
    "authentication.accepted": "whether credentials are accepted",
    "list.history": "messages in the list of tasks",
    "list.context": "the list of tasks by context",
    "list.time": "the list of tasks by time",
    "streaming.begins": "whether streams begin",
    "streaming.flushed": "whether events are sent as they happen",
    "streaming.keep-alive": "whether silent streams are kept alive",
    "subscribe.snapshot": "what a subscription begins with",
    "subscribe.overlap": "whether a subscription repeats or loses text",
    "subscribe.finished": "a subscription to a task that has ended",
    "sending.answer": "the answer to a message",
    "sending.twice": "sending the same message again",
    "recording.task": "whether a task keeps its message",
    "recording.list": "whether the list of tasks shows the message",
    "recording.time": "whether the task is found by its time",
}
"""What the checks are about that may not be measured."""

_TOGETHER: tuple[tuple[str, frozenset[str]], ...] = tuple(
    (words, frozenset(checks.split()))
    for words, checks in (
        ("streams", "streaming.begins streaming.flushed streaming.keep-alive"),
        ("subscriptions", "subscribe.snapshot subscribe.overlap subscribe.finished"),
        (
            "messages",
            "sending.answer recording.task recording.list recording.time sending.twice",
        ),
        ("whether a message is found again", "recording.task recording.list recording.time"),
        ("what the list of tasks shows", "list.history list.context list.time"),
    )
)
"""What some of them are about together, the most first."""

_LEVELS: Mapping[Level, str] = {
    "ok": "\x1b[32m",
    "info": "\x1b[36m",
    "warning": "\x1b[33m",
    "problem": "\x1b[1;31m",
}
_PLAIN = "\x1b[0m"
_INDENT = 2
_SCREEN = 20
"""Lines that are seen at once, with the prompt and an error below them."""

_SHORT = 2
"""Lines for a finding that is told again."""

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
    lines = list(_body(diagnosis, on, verbose=verbose))
    yield from lines
    if len(lines) > _SCREEN:
        yield from _again(diagnosis.findings, on)
    yield text.field("Result", _summary(diagnosis))


def _body(diagnosis: Diagnosis, on: Paper, *, verbose: bool) -> Iterator[str]:
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


def _titled(title: str, findings: Sequence[Finding]) -> list[Finding]:
    return [f for f in findings if not _is_of_interface(f) and _TITLES.get(f.group) == title]


def _of_interfaces(findings: Sequence[Finding]) -> list[list[Finding]]:
    of_interfaces = [f for f in findings if _is_of_interface(f)]
    interfaces = dict.fromkeys(f.about for f in of_interfaces)
    return [[f for f in of_interfaces if f.about == about] for about in interfaces]


def _is_of_interface(finding: Finding) -> bool:
    is_of_message = finding.group in _OF_MESSAGES and finding.check != "subscribe.unknown"
    return bool(finding.about) and not is_of_message


def _spoken(finding: Finding) -> str:
    """Binding and version of the interface that a finding is about; empty for none."""
    return f"{finding.binding} {finding.version}".strip()


def _named(finding: Finding) -> str:
    """What was seen, behind the binding and version that it was seen with."""
    spoken = _spoken(finding)
    return f"{spoken}: {finding.saw}" if spoken else finding.saw


def _lines(finding: Finding, on: Paper, *, verbose: bool) -> Iterator[str]:
    name = f"{finding.check}: " if verbose else ""
    yield from _seen(finding.level, f"{name}{_named(finding)}", on)
    for label, said in (("means", finding.means), ("do", finding.do)):
        if said and (finding.level != "ok" or verbose):
            begin = _INDENT + _WIDTH
            first, *rest = _wrapped(said, on, begin + len("means  "))
            yield f"{' ' * begin}{label.ljust(len('means  '))}{first.lstrip()}"
            yield from rest


def _seen(level: Level, saw: str, on: Paper, *, most: int | None = None) -> Iterator[str]:
    """What was seen, behind its level; no more lines than said."""
    space = " " * (_WIDTH - len(level))
    shown = f"{_LEVELS[level]}{level}{_PLAIN}" if on.has_colours else level
    first, *rest = _wrapped(saw, on, _INDENT + _WIDTH, most=most)
    yield f"{' ' * _INDENT}{shown}{space}{first.lstrip()}"
    yield from rest


def _again(findings: Sequence[Finding], on: Paper) -> Iterator[str]:
    """Problems and warnings in short, the problems first, the same of several places once."""
    levels: tuple[Level, ...] = ("problem", "warning")
    counts: Counter[tuple[Level, str]] = Counter(
        (level, _named(f)) for level in levels for f in findings if f.level == level
    )
    if not counts:
        return
    yield "Problems and warnings:"
    for (level, saw), count in counts.items():
        times = f" ({count} times)" if count > 1 else ""
        yield from _seen(level, f"{saw}{times}", on, most=_SHORT)
    yield ""


def _unmeasured(findings: Sequence[Finding], on: Paper) -> Iterator[str]:
    """What was not measured, by the reason."""
    reasons: dict[tuple[str, str], dict[str, None]] = {}
    for finding in findings:
        if finding.level == "not measured":
            reasons.setdefault((_spoken(finding), finding.saw), {})[finding.check] = None
    if not reasons:
        return
    yield "Not measured:"
    for (spoken, reason), checks in reasons.items():
        where = f" ({spoken})" if spoken else ""
        yield from _wrapped(f"{_in_words(checks)}{where}: {reason}", on, _INDENT, more=_INDENT)
    yield ""


def _in_words(checks: Iterable[str]) -> str:
    """What checks are about, those together that belong together, each where its first is."""
    names = {check: _UNMEASURED.get(check, check) for check in checks}
    for words, together in _TOGETHER:
        if together <= names.keys() and all(names[one] == _UNMEASURED[one] for one in together):
            names |= dict.fromkeys(together, words)
    *most, last = dict.fromkeys(names.values())
    return f"{', '.join(most)}, and {last}" if most else last


def _wrapped(
    said: str, on: Paper, begin: int, *, more: int = 0, most: int | None = None
) -> list[str]:
    """A text in lines that begin at a column.

    Args:
        said: The text.
        on: What it is written on.
        begin: How many columns are free at the left.
        more: How many more from the second line on.
        most: How many lines there may be; what does not fit is left out. None for as many as
            it takes.
    """
    lines = textwrap.wrap(
        text.clean_line(said),
        on.columns,
        initial_indent=" " * begin,
        subsequent_indent=" " * (begin + more),
        break_long_words=False,
        break_on_hyphens=False,
        max_lines=most,
        placeholder=" …",
    )
    return lines or [" " * begin]


def _summary(diagnosis: Diagnosis) -> str:
    counts = diagnosis.counts
    parts = [
        f"{counts[level]} {words[counts[level] != 1]}"
        for level, words in _COUNTED.items()
        if counts[level] or level == "problem"
    ]
    ended = "" if diagnosis.is_complete else f"; {diagnosis.stopped}; it was not finished"
    return f"{', '.join(parts)}{ended}"
