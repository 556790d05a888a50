"""CPU time of commands, in milliseconds (user and system), compared with that of their libraries.

    python benchmarks/command_line.py [--rounds 15 | --least]

Each row is a new process; the rows take turns, and the least of each counts, which is what is left
when other programs disturb as little as possible. Commands that call no agent are compared with
importing click. Commands that call one are compared with a program that imports asyncio, aiohttp,
msgspec and click, and makes one request to the same agent on loopback. Compiled code is read from
a cache of its own, whatever the environment says about such caches; a first round fills it.
"""

from __future__ import annotations

import argparse
import asyncio
import resource
import sys
import tempfile
from typing import NamedTuple

from processes import Agent, environment

_LONGEST = 30.0
_SETTINGS = ("A2ACLI_", "HOLDFAST_")

_CLICK = "import click"
_REQUEST = """
import asyncio, sys, aiohttp, click, msgspec

async def main():
    async with aiohttp.ClientSession() as session, session.get(sys.argv[1]) as reply:
        print(msgspec.json.decode(await reply.read())["name"])

asyncio.run(main())
"""
_MAIN = "import sys; from holdfast.cli import main; sys.exit(main())"


class Row(NamedTuple):
    """A program that is measured.

    Attributes:
        name: The name that the report shows.
        floor: The row that it is compared with; None for a floor itself.
        words: The arguments of Python.
        variables: Environment variables to set.
    """

    name: str
    floor: str | None
    words: tuple[str, ...]
    variables: tuple[tuple[str, str], ...] = ()


def rows(url: str) -> list[Row]:
    """Return the programs to measure.

    Args:
        url: The address of the agent.
    """
    completing = (
        ("_HOLDFAST_COMPLETE", "bash_complete"),
        ("COMP_WORDS", "holdfast card get --"),
        ("COMP_CWORD", "3"),
    )
    imports, request = "import click", "imports and one request"
    agent = ("--agent-card", url)
    return [
        Row(imports, None, ("-c", _CLICK)),
        Row("holdfast --version", imports, ("-c", _MAIN, "--version")),
        Row("a completion", imports, ("-c", _MAIN), completing),
        Row("holdfast --help", imports, ("-c", _MAIN, "--help")),
        Row(request, None, ("-c", _REQUEST, url)),
        Row("holdfast card get", request, ("-c", _MAIN, "card", "get", "--no-cache", *agent)),
        Row("holdfast send", request, ("-c", _MAIN, "send", "--no-cache", *agent, "hello")),
    ]


async def milliseconds(row: Row, cache: str | None) -> float:
    """Run a program once; return the CPU time that it used, in milliseconds.

    Args:
        row: The program.
        cache: The directory for compiled code; None for the one that Python uses anyway.

    Raises:
        RuntimeError: The program failed.
    """
    given = environment().items()
    # Variables that look like settings would be read, and reported.
    variables = {name: value for name, value in given if not name.startswith(_SETTINGS)}
    if cache is not None:
        variables.pop("PYTHONDONTWRITEBYTECODE", None)
        variables["PYTHONPYCACHEPREFIX"] = cache
    variables |= dict(row.variables)
    before = _used_by_children()
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *row.words,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=variables,
    )
    try:
        async with asyncio.timeout(_LONGEST):
            _, problems = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode:
        message = f"{row.name} ended with {process.returncode}: {problems.decode()}"
        raise RuntimeError(message)
    return (_used_by_children() - before) * 1000


def _used_by_children() -> float:
    """Return the CPU seconds of the children that have ended."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


async def measure(rounds: int) -> dict[str, float]:
    """Return the least CPU time of each row, in milliseconds.

    Args:
        rounds: How often each row runs; 0 for once, without a cache that is filled before.
    """
    agent = await Agent.start("static_agent.py")
    try:
        programs = rows(await agent.line())
        if not rounds:
            return {row.name: await milliseconds(row, None) for row in programs}
        with tempfile.TemporaryDirectory() as cache:
            for row in programs:
                await milliseconds(row, cache)
            least = {row.name: float("inf") for row in programs}
            for _ in range(rounds):
                for row in programs:
                    least[row.name] = min(least[row.name], await milliseconds(row, cache))
    finally:
        await agent.stop()
    return least


def report(least: dict[str, float]) -> str:
    """Return the figures as lines: the time, and the ratio to the floor."""
    lines: list[str] = []
    for row in rows(""):
        used = least[row.name]
        ratio = "" if row.floor is None else f"  {used / least[row.floor]:.2f} x {row.floor}"
        lines.append(f"{row.name:<26}{used:6.0f} ms{ratio}")
    return "\n".join(lines)


def main() -> None:
    """Measure, and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=15, help="how often each row runs")
    parser.add_argument("--least", action="store_true", help="show that it runs, and no figures")
    options = parser.parse_args()
    print(report(asyncio.run(measure(0 if options.least else options.rounds))))


if __name__ == "__main__":
    main()
