"""The findings of an examination, as text for people and pipes (a2a-cli 11.2).

Rules: each group of findings is a block, and so is each interface; a line about an interface names
its binding and version; what was not measured follows, in words, with the reason; problems and
warnings that may have scrolled off the screen are repeated at the end, in short; no line is longer
than the terminal or 80 columns; colours are for terminals.
"""

from __future__ import annotations

import shutil
import sys
import textwrap
from collections import Counter
from typing import TYPE_CHECKING

from holdfast._cli.output import text
from holdfast._cli.output.base import has_colours

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from holdfast.doctor import Diagnosis, Finding, Level

__all__ = ["Paper", "paper", "render_diagnosis"]

_COLUMNS = 80
_MIN_COLUMNS, _MAX_COLUMNS = 40, 100

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
"""The title of a group's block; other findings about an interface are in its own block."""

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
"""The checks that may not be measured, in words."""

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
"""Checks that are named together, the largest groups first."""

_LEVELS: Mapping[Level, str] = {
    "ok": "\x1b[32m",
    "info": "\x1b[36m",
    "warning": "\x1b[33m",
    "problem": "\x1b[1;31m",
}
_PLAIN = "\x1b[0m"
_INDENT_COLUMNS = 2
_SCREEN_LINES = 20
"""Lines that fit a screen, with the prompt and an error below them."""

_MAX_REPEATED_LINES = 2
"""Lines for a finding that is repeated."""

_WIDTH = max(map(len, _LEVELS)) + 2
_COUNTED: Mapping[Level, tuple[str, str]] = {
    "problem": ("problem", "problems"),
    "warning": ("warning", "warnings"),
    "info": ("note", "notes"),
    "ok": ("ok", "ok"),
    "not measured": ("check not measured", "checks not measured"),
}


class Paper:
    """The properties of the output.

    Attributes:
        columns: Columns of the longest line.
        has_colours: Whether levels are shown in colours, too.
    """

    def __init__(self, columns: int = _COLUMNS, *, has_colours: bool = False) -> None:
        self.columns = columns
        self.has_colours = has_colours


def paper() -> Paper:
    """Return the properties of standard output."""
    if sys.stdout is None or not sys.stdout.isatty():
        return Paper()
    columns = min(max(shutil.get_terminal_size().columns, _MIN_COLUMNS), _MAX_COLUMNS)
    return Paper(columns, has_colours=has_colours(sys.stdout))


def render_diagnosis(
    diagnosis: Diagnosis, on: Paper, *, verbose: bool = False, only_problems: bool = False
) -> Iterator[str]:
    """Yield the lines for the findings of an examination.

    Args:
        diagnosis: The findings.
        on: The properties of the output.
        verbose: Whether to name each check, and to explain findings without a problem.
        only_problems: Whether to leave out all but problems and warnings.
    """
    wrong = [f for f in diagnosis.findings if f.level in {"problem", "warning"}]
    findings = wrong if only_problems else diagnosis.findings
    lines = list(_body(diagnosis, findings, on, verbose=verbose))
    yield from lines
    if len(lines) > _SCREEN_LINES and not only_problems:
        yield from _again(diagnosis.findings, on)
    yield text.field("Result", _summary(diagnosis))


def _body(
    diagnosis: Diagnosis, findings: Sequence[Finding], on: Paper, *, verbose: bool
) -> Iterator[str]:
    if diagnosis.name:
        yield text.field("Agent", diagnosis.name)
    yield text.field("Address", diagnosis.agent)
    for message_id in dict.fromkeys(diagnosis.message_ids):
        yield text.field("Message ID", message_id)
    measured = [f for f in findings if f.level != "not measured"]
    for title in _ORDER:
        blocks = _of_interfaces(measured) if not title else [_titled(title, measured)]
        for block in blocks:
            if block:
                yield f"{title or 'Interface'}:"
                if not title:
                    yield from _wrapped(block[0].about, on, _INDENT_COLUMNS)
                for finding in block:
                    yield from _lines(finding, on, verbose=verbose)
                yield ""
    yield from _unmeasured(findings, on)


def _titled(title: str, findings: Sequence[Finding]) -> list[Finding]:
    return [f for f in findings if not _is_of_interface(f) and _TITLES.get(f.group) == title]


def _of_interfaces(findings: Sequence[Finding]) -> list[list[Finding]]:
    of_interfaces = [f for f in findings if _is_of_interface(f)]
    interfaces = dict.fromkeys(f.about for f in of_interfaces)
    return [[f for f in of_interfaces if f.about == about] for about in interfaces]


def _is_of_interface(finding: Finding) -> bool:
    is_of_message = finding.group in _OF_MESSAGES and finding.check != "subscribe.unknown"
    return bool(finding.about) and not is_of_message


def _interface_label(finding: Finding) -> str:
    """Return binding and version of the interface of a finding; empty for none."""
    return f"{finding.binding} {finding.version}".strip()


def _named(finding: Finding) -> str:
    """Return the observation, after the binding and version that it was made with."""
    interface = _interface_label(finding)
    return f"{interface}: {finding.saw}" if interface else finding.saw


def _lines(finding: Finding, on: Paper, *, verbose: bool) -> Iterator[str]:
    name = f"{finding.check}: " if verbose else ""
    yield from _seen(finding.level, f"{name}{_named(finding)}", on)
    for label, advice in (("means", finding.means), ("do", finding.do)):
        if advice and (finding.level != "ok" or verbose):
            begin = _INDENT_COLUMNS + _WIDTH
            first, *rest = _wrapped(advice, on, begin + len("means  "))
            yield f"{' ' * begin}{label.ljust(len('means  '))}{first.lstrip()}"
            yield from rest


def _seen(level: Level, saw: str, on: Paper, *, most: int | None = None) -> Iterator[str]:
    """Yield the observation, after its level; no more lines than the maximum."""
    space = " " * (_WIDTH - len(level))
    label = f"{_LEVELS[level]}{level}{_PLAIN}" if on.has_colours else level
    first, *rest = _wrapped(saw, on, _INDENT_COLUMNS + _WIDTH, most=most)
    yield f"{' ' * _INDENT_COLUMNS}{label}{space}{first.lstrip()}"
    yield from rest


def _again(findings: Sequence[Finding], on: Paper) -> Iterator[str]:
    """Yield problems and warnings in short, the problems first, equal ones once."""
    levels: tuple[Level, ...] = ("problem", "warning")
    counts: Counter[tuple[Level, str]] = Counter(
        (level, _named(f)) for level in levels for f in findings if f.level == level
    )
    if not counts:
        return
    yield "Problems and warnings:"
    for (level, saw), count in counts.items():
        times = f" ({count} times)" if count > 1 else ""
        yield from _seen(level, f"{saw}{times}", on, most=_MAX_REPEATED_LINES)
    yield ""


def _unmeasured(findings: Sequence[Finding], on: Paper) -> Iterator[str]:
    """Yield what was not measured, by the reason."""
    reasons: dict[tuple[str, str], list[str]] = {}
    for finding in findings:
        if finding.level == "not measured":
            reasons.setdefault((_interface_label(finding), finding.saw), []).append(finding.check)
    if not reasons:
        return
    yield "Not measured:"
    for (interface, reason), checks in reasons.items():
        count = "1 check" if len(checks) == 1 else f"{len(checks)} checks"
        suffix = f" ({interface}; {count})" if interface else f" ({count})"
        yield from _wrapped(
            f"{_in_words(checks)}{suffix}: {reason}", on, _INDENT_COLUMNS, more=_INDENT_COLUMNS
        )
    yield ""


def _in_words(checks: Iterable[str]) -> str:
    """Return the subjects of checks, grouped, each group at its first check."""
    names = {check: _UNMEASURED.get(check, check) for check in checks}
    for words, together in _TOGETHER:
        if together <= names.keys() and all(
            names[check] == _UNMEASURED[check] for check in together
        ):
            names |= dict.fromkeys(together, words)
    *names_before, last = dict.fromkeys(names.values())
    return f"{', '.join(names_before)}, and {last}" if names_before else last


def _wrapped(
    said: str, on: Paper, begin: int, *, more: int = 0, most: int | None = None
) -> list[str]:
    """Return a text in lines that begin at a column.

    Args:
        said: The text.
        on: The properties of the output.
        begin: Columns before the text.
        more: Additional columns from the second line on.
        most: Maximum number of lines; the rest is left out. None for all
            lines.
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
    ended = "" if diagnosis.is_complete else f"; incomplete: {diagnosis.stopped}"
    return f"{', '.join(parts)}{ended}"
