"""The A2A Technology Compatibility Kit on this machine: its layouts and its reports.

Rules: there are two layouts, each run by ``run_tck.py`` in its own directory; a measurement is
read from the JUnit report of that run, and from nothing else; a report that is missing, cannot
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
    """The layout of one generation of the kit.

    Attributes:
        version: The protocol version that it tests.
        tests: The directory that identifies it.
        levels: Its names for the levels of requirements.
        takes_headers: Whether it accepts headers for its requests.
        arguments: Makes the arguments of its runner from address, level, bindings and report.
        bindings: Its names for bindings.
    """

    version: str
    tests: str
    levels: Mapping[str, str]
    takes_headers: bool
    arguments: Callable[[str, str, Sequence[str], Path], list[str]]
    bindings: Mapping[str, str]


class Kit(NamedTuple):
    """An installed kit.

    Attributes:
        directory: Its directory.
        layout: Its layout.
    """

    directory: Path
    layout: Layout

    def command(
        self, url: str, *, level: str, transports: Sequence[str], report: Path, python: str | None
    ) -> list[str]:
        """Return the command that runs the kit.

        Args:
            url: The agent's address; its card is below it.
            level: A value of ``--level`` that the layout supports.
            transports: Bindings to test; those of the card if empty.
            report: The file for the JUnit report.
            python: The interpreter with its requirements; None for the kit's own,
                or else this one.
        """
        bindings = self.layout.bindings
        names = [bindings[name] for name in transports if name in bindings]
        runner = [python or self._python(), _RUNNER]
        return [*runner, *self.layout.arguments(url, self.layout.levels[level], names, report)]

    def environment(self, inherited: Mapping[str, str], report: Path) -> dict[str, str]:
        """Return the kit's environment, without the variables of the command line.

        Args:
            inherited: The environment of this process.
            report: The file for the JUnit report.
        """
        variables = {
            name: value for name, value in inherited.items() if not name.startswith("A2ACLI_")
        }
        if self.layout is _OLDER:
            more = variables.get("PYTEST_ADDOPTS", "")
            variables["PYTEST_ADDOPTS"] = f"{more} --junitxml='{report}'".lstrip()
        return variables

    def _python(self) -> str:
        paths = (".venv/bin/python", ".venv/Scripts/python.exe")
        interpreters = (self.directory / place for place in paths)
        return next((str(path) for path in interpreters if path.is_file()), sys.executable)


def find_kit(directory: Path) -> Kit | None:
    """Return the kit in a directory; None if there is none of a known layout."""
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
    # One binding: the kit runs several one after the other, and the last report would count.
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


# ── Reports ──────────────────────────────────────────────────────────────────────────────────


class Counts(NamedTuple):
    """Counts of tests by outcome.

    Attributes:
        passed: Tests that passed.
        failed: Tests that failed, errors included.
        expected: Tests of optional behaviour that failed, which does not fail the whole.
        skipped: Tests that were not run.
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
    """The measurement of a run."""

    counts: Counts
    failed: tuple[Failed, ...]

    @property
    def status(self) -> Literal["pass", "partial", "fail", "not_measured"]:
        """Return the status in the words of the a2a-cli specification (COMPLIANCE.md, A.2)."""
        if self.counts.failed:
            return "fail"
        if self.counts.expected:
            return "partial"
        return "pass" if self.counts.passed else "not_measured"


def read_report(path: Path) -> Report:
    """Read a JUnit report.

    Raises:
        ValueError: It is missing, or invalid.
    """
    try:
        if path.stat().st_size > _MAX_REPORT_BYTES:
            message = "its report is too large"
            raise ValueError(message)
        cases = list(_cases(path))
    except OSError:
        message = "it wrote no report"
        raise ValueError(message) from None
    except ET.ParseError:
        message = "its report cannot be read"
        raise ValueError(message) from None
    ends = [end for end, _ in cases]
    counts = Counts(*(ends.count(end) for end in Counts._fields))
    return Report(counts, tuple(failed for end, failed in cases if end == "failed"))


def _cases(path: Path) -> Iterator[tuple[str, Failed]]:
    """Yield the outcome of each test; one that failed in itself and after it counts once."""
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
