"""The A2A Technology Compatibility Kit on this machine: what it looks like, and what it reports.

Rules: there are two layouts, each run by ``run_tck.py`` in its own directory; what was measured is
read from the JUnit report of that run, and from nothing else; a report that is not there, cannot
be read or has no test that passed or failed measures nothing.

Source: https://github.com/a2aproject/a2a-tck, its branches ``1.0-dev`` and ``main``.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Literal, NamedTuple
from xml.etree import ElementTree as ET

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

__all__ = ["Counts", "Failed", "Kit", "Report", "find_kit", "read_report"]

_MAX_REPORT_BYTES = 64 * 1024 * 1024
_RUNNER = "run_tck.py"


class Layout(NamedTuple):
    """How one generation of the kit is run.

    Attributes:
        version: The protocol version that it is about.
        tests: The directory by which it is known.
        levels: What it calls the levels that it can be asked for.
        takes_headers: Whether it can be given headers to send along.
        arguments: The arguments of its runner, from address, level, bindings and report.
        bindings: What it calls bindings.
    """

    version: str
    tests: str
    levels: Mapping[str, str]
    takes_headers: bool
    arguments: Callable[[str, str, Sequence[str], Path], list[str]]
    bindings: Mapping[str, str]


class Kit(NamedTuple):
    """A kit that is there.

    Attributes:
        directory: Where.
        layout: Which generation.
    """

    directory: Path
    layout: Layout

    def command(
        self, url: str, *, level: str, transports: Sequence[str], report: Path, python: str | None
    ) -> list[str]:
        """What runs it.

        Args:
            url: The agent's address; its card is below it.
            level: One of ``--level`` that the layout knows.
            transports: Bindings to test; those of the card if empty.
            report: Where the JUnit report goes.
            python: The interpreter that has what it needs; the kit's own, or else this one.
        """
        bindings = self.layout.bindings
        names = [bindings[name] for name in transports if name in bindings]
        runner = [python or self._python(), _RUNNER]
        return [*runner, *self.layout.arguments(url, self.layout.levels[level], names, report)]

    def environment(self, inherited: Mapping[str, str], report: Path) -> dict[str, str]:
        """What it finds in its environment: nothing that is meant for us.

        Args:
            inherited: Our own.
            report: Where the JUnit report goes.
        """
        kept = {name: value for name, value in inherited.items() if not name.startswith("A2ACLI_")}
        if self.layout is _OLDER:
            more = kept.get("PYTEST_ADDOPTS", "")
            kept["PYTEST_ADDOPTS"] = f"{more} --junitxml='{report}'".lstrip()
        return kept

    def _python(self) -> str:
        places = (".venv/bin/python", ".venv/Scripts/python.exe")
        interpreters = (self.directory / place for place in places)
        return next((str(path) for path in interpreters if path.is_file()), sys.executable)


def find_kit(directory: Path) -> Kit | None:
    """The kit in a directory; None if there is none that is known."""
    if not (directory / _RUNNER).is_file():
        return None
    layouts = (layout for layout in (_NEWER, _OLDER) if (directory / layout.tests).is_dir())
    layout = next(layouts, None)
    return None if layout is None else Kit(directory, layout)


def _for_newer(url: str, level: str, transports: Sequence[str], report: Path) -> list[str]:
    levels = ["--level", level] if level else []
    bindings = ["--transport", ",".join(transports)] if transports else []
    return ["--sut-host", url, *levels, *bindings, "--", f"--junitxml={report}"]


def _for_older(url: str, level: str, transports: Sequence[str], _report: Path) -> list[str]:
    # One binding: for several it runs one after the other, and the last report would count.
    bindings = ["--transports", transports[0]] if transports else []
    return ["--sut-url", url, "--category", level, *bindings]


_NEWER = Layout(
    version="1.0",
    tests="tests/compatibility",
    levels={"must": "must", "should": "should", "may": "may", "all": ""},
    takes_headers=False,
    arguments=_for_newer,
    bindings={"JSONRPC": "jsonrpc", "HTTP+JSON": "http_json", "GRPC": "grpc"},
)
_OLDER = Layout(
    version="0.3",
    tests="tests/mandatory",
    levels={"must": "mandatory"},
    takes_headers=True,
    arguments=_for_older,
    bindings={"JSONRPC": "jsonrpc", "HTTP+JSON": "rest", "GRPC": "grpc"},
)


# ── What it reports ──────────────────────────────────────────────────────────────────────────


class Counts(NamedTuple):
    """How many tests ended how.

    Attributes:
        passed: As they should.
        failed: Otherwise, errors included.
        expected: Failed, where that is no failure of the whole: what an agent only should do.
        skipped: Were not run.
    """

    passed: int = 0
    failed: int = 0
    expected: int = 0
    skipped: int = 0


class Failed(NamedTuple):
    """A test that failed, and why, in the kit's words."""

    test: str
    why: str


class Report(NamedTuple):
    """What a run measured."""

    counts: Counts
    failed: tuple[Failed, ...]

    @property
    def status(self) -> Literal["pass", "partial", "fail", "not_measured"]:
        """In the words of the a2a-cli specification (COMPLIANCE.md, A.2)."""
        if self.counts.failed:
            return "fail"
        if self.counts.expected:
            return "partial"
        return "pass" if self.counts.passed else "not_measured"


def read_report(path: Path) -> Report:
    """Reads a JUnit report.

    Raises:
        ValueError: It is not there, or cannot be one.
    """
    try:
        if path.stat().st_size > _MAX_REPORT_BYTES:
            message = "its report is too large"
            raise ValueError(message)
        cases = list(_cases(path))
    except OSError:
        message = "it left no report"
        raise ValueError(message) from None
    except ET.ParseError:
        message = "its report cannot be read"
        raise ValueError(message) from None
    ends = [end for end, _ in cases]
    counts = Counts(*(ends.count(end) for end in Counts._fields))
    return Report(counts, tuple(failed for end, failed in cases if end == "failed"))


def _cases(path: Path) -> Iterator[tuple[str, Failed]]:
    """How each test ended; one that failed twice, in itself and after it, counts once."""
    for case in ET.parse(path).iter("testcase"):  # noqa: S314  the user's own program wrote it
        bad = next((outcome for outcome in case if outcome.tag in {"failure", "error"}), None)
        skipped = case.find("skipped")
        name = "::".join(filter(None, (case.get("classname"), case.get("name"))))
        if bad is not None:
            yield "failed", Failed(name, bad.get("message") or "")
        elif skipped is not None:
            is_expected = skipped.get("type") == "pytest.xfail"
            yield "expected" if is_expected else "skipped", Failed(name, "")
        else:
            yield "passed", Failed(name, "")
