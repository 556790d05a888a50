"""Apply one schedule of faults to several clients, and count the outcomes of their calls.

    python benchmarks/side_by_side.py [--calls 10] [--seed 1] [--clients "a2a-sdk;Holdfast"]

A real agent on the official SDK streams a known text to each call. Each call has its own network
path, on which its first message meets one fault; see `faulty_paths`. Every client has the same
schedule, its own agent and its own process; see `caller`. Only the result that a client returns or
raises counts.

It prints for each client and fault:

- success: calls that ended without an error.
- executed twice: calls whose message the agent executed more than once, by its own record.
- text lost, text repeated: successes whose text lacks a chunk, or has one more than once.
- failed, yet executed: calls that ended in an error although the agent has done the work.
- the median and the longest of the seconds that calls took, the requests that one took on average,
  and the errors of those that failed.

It fails if a fault did not occur, or a client fails without a fault. `--page FILE` writes the
report into a page, between two marked lines.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import sys
from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from faulty_paths import NO_FAULT, Paths, faults, get
from processes import Child

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from faulty_paths import Fault
    from faulty_paths import Path as CallPath

HERE = Path(__file__).parent
ROOT = HERE.parent

CHUNKS = 12
"""Pieces of text in the answer."""

WHOLE = "".join(f"chunk {number + 1}\n" for number in range(CHUNKS))
"""The answer."""

EVERY = 0.2
"""Seconds from one call to the next, so that waits are measured and not the machine."""

LIMIT = 60.0
"""Seconds that a call may take."""

FIRST = "first"
"""The call that pays for what is set up once, and is not counted."""

BEGIN, END = "<!-- side_by_side.py: begin -->", "<!-- side_by_side.py: end -->"


@dataclass(frozen=True)
class Client:
    """A client to compare.

    Attributes:
        name: What the report calls it.
        script: Of this directory.
        arguments: The script's.
        searches: Whether it searches for messages whose reply was lost, for a given time.
        environment: Where its Python is: the variable that names it, and the directory.
    """

    name: str
    script: str
    arguments: tuple[str, ...] = ()
    searches: bool = False
    environment: tuple[str, str] | None = None

    @property
    def python(self) -> str:
        """The Python to run it with."""
        return sys.executable if self.environment is None else python_of(*self.environment)


AG2 = ("HOLDFAST_AG2_PYTHON", ".venv-ag2")

CLIENTS = (
    Client("a2a-sdk", "sdk_caller.py"),
    Client("a2a-sdk + RetryTransport", "sdk_caller.py", ("--transport=retry",)),
    Client(
        "a2a-sdk + RetryTransport, resend_ambiguous",
        "sdk_caller.py",
        ("--transport=retry", "--resend-ambiguous"),
    ),
    Client(
        "a2a-sdk + HoldfastTransport", "sdk_caller.py", ("--transport=holdfast",), searches=True
    ),
    Client("AG2", "ag2_caller.py", environment=AG2),
    Client("AG2 + httpx.Transport", "ag2_caller.py", ("--transport=holdfast",), environment=AG2),
    Client("Holdfast", "holdfast_caller.py", searches=True),
    Client(
        "Holdfast, resend_if_absent",
        "holdfast_caller.py",
        ("--on-unknown=resend_if_absent",),
        searches=True,
    ),
)


@dataclass(frozen=True)
class Outcome:
    """The outcome of one call.

    Attributes:
        errors: Class and message of the error and of its causes; empty after a success.
        text: What the client gave for an answer.
        seconds: How long it took.
        executions: How often the agent executed its message.
        requests: How many requests were made for it, that of the card aside.
    """

    errors: list[list[str]]
    text: str
    seconds: float
    executions: int
    requests: int

    @property
    def has_lost(self) -> bool:
        """Whether it passes for an answer and lacks a chunk, or has it in the wrong place."""
        lines = iter(self.text.splitlines())
        return not self.errors and not all(chunk in lines for chunk in WHOLE.splitlines())

    @property
    def has_repeated(self) -> bool:
        """Whether it passes for an answer and has a chunk more than once."""
        return not self.errors and max(Counter(self.text.splitlines()).values(), default=0) > 1


Report = dict[str, dict[str, list[Outcome]]]
"""The outcomes by fault and client."""


def python_of(variable: str, environment: str) -> str:
    """The interpreter of an environment that is not this one."""
    python = os.environ.get(variable) or str(ROOT / environment / "bin" / "python")
    if not Path(python).exists():
        sys.exit(f"no Python at {python}: `make agents` sets it up, or name one in {variable}")
    return python


def schedule(kinds: Sequence[Fault], calls: int, seed: int) -> dict[str, Fault]:
    """Return the fault of each call, in the order of the calls."""
    met = [kind for kind in kinds for _ in range(calls)]
    random.Random(seed).shuffle(met)
    return {FIRST: NO_FAULT, **{f"call-{number}": fault for number, fault in enumerate(met)}}


async def calls_of(
    client: Client, plan: dict[str, Fault], options: argparse.Namespace
) -> tuple[dict[str, Outcome], str]:
    """Make all calls of a schedule.

    Returns:
        The outcomes by call, and what is to be said of the client's versions and settings.
    """
    python = python_of("HOLDFAST_SDK_PYTHON", ".venv-sdk")
    agent = await Child.start(
        "../tests/agents/sdk_agent.py", python=python, errors=asyncio.subprocess.DEVNULL
    )
    try:
        origin = json.loads(await agent.line())["url"]
        async with Paths(origin, plan) as paths:
            arguments = list(client.arguments)
            if client.searches and options.search_timeout is not None:
                arguments.append(f"--search-timeout={options.search_timeout}")
            caller = await Child.start(client.script, *arguments, python=client.python)
            try:
                about = json.loads(await caller.line())
                ends = await _ends(caller, paths, options.pause)
            finally:
                await caller.stop()
            executions = json.loads(await get(origin, "/executions"))
    finally:
        await agent.stop()
    outcomes = {}
    for call, path in paths.paths.items():
        runs = [len(executions.get(message, ())) for message in set(path.messages)]
        end = ends[call]
        outcomes[call] = Outcome(
            end["errors"], end["text"], end["seconds"], sum(runs), path.requests
        )
        check(client, path, outcomes[call])
    versions = ", ".join(f"{name} {version}" for name, version in about["versions"].items())
    settings = ", ".join(about["settings"]) or "all by default"
    return outcomes, f"{client.name}: {versions}, Python {about['python']}; {settings}"


async def _ends(caller: Child, paths: Paths, pause: float) -> dict[str, Any]:
    calls = [
        {"call": call, "url": paths.url(call), "text": f"timed {pause} {CHUNKS} {call}"}
        for call in paths.paths
    ]
    line = await caller.ask(json.dumps({"calls": calls, "every": EVERY, "limit": LIMIT}))
    ends: dict[str, Any] = {}
    while True:
        facts = json.loads(line)
        if "tries" in facts:
            paths.tried(facts["tries"])
        else:
            ends[facts["call"]] = facts
        if len(ends) == len(calls):
            return ends
        line = await caller.line()


def check(client: Client, path: CallPath, outcome: Outcome) -> None:
    """Check that the call met its fault, and no other failure.

    Raises:
        RuntimeError: It did not, so that its figures say nothing.
    """
    met = path.has_met_its_fault and (outcome.executions > 0 or not path.fault.passes)
    if path.fault == NO_FAULT:
        met = outcome.executions == 1 and outcome.text == WHOLE
    if not met:
        raise RuntimeError(f"{client.name}, {path}: this did not happen; {outcome}")


def rows_of(outcomes: Sequence[Outcome]) -> list[str]:
    """Return the figures of some calls of one client."""
    failed = [outcome for outcome in outcomes if outcome.errors]
    seconds = [outcome.seconds for outcome in outcomes]
    return [
        f"{len(outcomes) - len(failed)} of {len(outcomes)}",
        _count(outcome.executions > 1 for outcome in outcomes),
        _count(outcome.has_lost for outcome in outcomes),
        _count(outcome.has_repeated for outcome in outcomes),
        _count(outcome.executions > 0 for outcome in failed),
        f"{median(seconds):.1f}",
        f"{max(seconds):.1f}",
        f"{sum(outcome.requests for outcome in outcomes) / len(outcomes):.1f}",
    ]


COLUMNS = (
    "success",
    "executed twice",
    "text lost",
    "text repeated",
    "failed, yet executed",
    "median s",
    "longest s",
    "requests",
)


def _count(holds: Iterator[bool]) -> str:
    return str(sum(holds) or "-")


def _error_counts(outcomes: Sequence[Outcome]) -> str:
    """Return the classes of the errors, with their causes."""
    counts = Counter(
        " from ".join(
            f"`{name}`" if name.isidentifier() else name
            for name in list(dict.fromkeys(name for name, _ in outcome.errors))[:3]
        )
        for outcome in outcomes
        if outcome.errors
    )
    return "; ".join(f"{count}: {names}" for names, count in counts.most_common())


def table(heading: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """A table that reads well as text, too; the figures are on the right of their columns."""
    widths = [max(map(len, column)) for column in zip(heading, *rows, strict=True)]
    right = [name in COLUMNS for name in heading]

    def line(cells: Sequence[str]) -> str:
        padded = (
            cell.rjust(width) if is_right else cell.ljust(width)
            for cell, width, is_right in zip(cells, widths, right, strict=True)
        )
        return f"| {' | '.join(padded)} |"

    rule = (
        "-" * (width - 1) + (":" if is_right else "-")
        for width, is_right in zip(widths, right, strict=True)
    )
    return [line(heading), f"| {' | '.join(rule)} |", *map(line, rows)]


def lines_of(
    report: Report, about_clients: Sequence[str], options: argparse.Namespace
) -> list[str]:
    """The report, as Markdown."""
    clients = list(next(iter(report.values())))
    every = {
        client: [
            outcome
            for fault, by_client in report.items()
            if fault != NO_FAULT.name
            for outcome in by_client[client]
        ]
        for client in clients
    }
    lines = [
        f"{options.calls} calls for each fault and client, seed {options.seed}.",
        f"The answer is {CHUNKS} chunks of text, {options.pause:g} s apart.",
        f"Timeout of a call: {LIMIT:g} s.",
        f"Load average at the start: {options.load:.1f}, on {os.cpu_count()} processors.",
        "",
        *(f"- {line}" for line in about_clients),
        "",
        "### All faults together",
        "",
        *table(
            ["client", *COLUMNS[:-3]],
            [[client, *rows_of(outcomes)[:-3]] for client, outcomes in every.items()],
        ),
    ]
    for fault, by_client in report.items():
        rows = [
            [client, *rows_of(outcomes), _error_counts(outcomes)]
            for client, outcomes in by_client.items()
        ]
        heading = ["client", *COLUMNS, "errors of failed calls"]
        lines += ["", f"### {fault[0].upper()}{fault[1:]}", "", *table(heading, rows)]
    return lines


def put_into(page: Path, lines: Sequence[str]) -> None:
    """Replace the report in a page."""
    before, begin, rest = page.read_text().partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        sys.exit(f"{page} has no place for the report: {BEGIN} and {END}")
    page.write_text("\n".join([f"{before}{begin}", "", *lines, "", f"{end}{after}"]))


def keep(file: Path, report: Report) -> None:
    """Write the outcome of each call as a line of JSON."""
    with file.open("w") as lines:
        for fault, by_client in report.items():
            for client, outcomes in by_client.items():
                for outcome in outcomes:
                    call = {"fault": fault, "client": client, **asdict(outcome)}
                    lines.write(f"{json.dumps(call)}\n")


async def measure(options: argparse.Namespace) -> list[str]:
    """One client after the other."""
    plan = schedule(options.faults, options.calls, options.seed)
    report: Report = {fault.name: {} for fault in options.faults}
    about_clients = []
    for client in options.clients:
        print(f"{client.name} ...", file=sys.stderr, flush=True)
        outcomes, about = await calls_of(client, plan, options)
        about_clients.append(about)
        for fault in options.faults:
            mine = [outcomes[call] for call, met in plan.items() if met == fault and call != FIRST]
            report[fault.name][client.name] = mine
    if options.outcomes:
        keep(options.outcomes, report)
    return lines_of(report, about_clients, options)


def _some_of(all_of_them: Sequence[Any]) -> Callable[[str], list[Any]]:
    """Reads names, separated by semicolons."""
    by_name = {one.name: one for one in all_of_them}

    def read(names: str) -> list[Any]:
        return [by_name[name.strip()] for name in names.split(";")]

    return read


def main() -> None:
    """Print the report."""
    kinds = faults(CHUNKS)
    parser = argparse.ArgumentParser(description="Put several clients through the same faults.")
    parser.add_argument("--calls", type=int, default=10, help="for each fault")
    parser.add_argument("--seed", type=int, default=1, help="of the order of the calls")
    parser.add_argument("--clients", type=_some_of(CLIENTS), default=CLIENTS, help="a;b")
    parser.add_argument("--faults", type=_some_of(kinds), default=kinds, help="a;b")
    parser.add_argument("--pause", type=float, default=0.2, help="seconds before each chunk")
    parser.add_argument(
        "--search-timeout",
        type=float,
        help="seconds of the search for a message whose reply was lost; the default is Holdfast's",
    )
    parser.add_argument("--outcomes", type=Path, help="a file for each call's outcome, as JSON")
    parser.add_argument("--page", type=Path, help="a page to put the report into")
    options = parser.parse_args()
    options.load = os.getloadavg()[0]  # before there is any of ours
    lines = asyncio.run(measure(options))
    print("\n".join(lines))
    if options.page:
        put_into(options.page, lines)


if __name__ == "__main__":
    main()
