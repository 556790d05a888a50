"""The runner's end of the pipes: the agent and the workers as child processes.

Every wait has a bound. A child whose runner is gone sees the end of its standard input and stops.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any, Self

_HERE = Path(__file__).parent
_LONGEST_ANSWER = 90.0
_LONGEST_GOODBYE = 5.0
_LONGEST_LINE = 1024 * 1024


def environment() -> dict[str, str]:
    """The environment for children: without proxies, which loopback does not need."""
    return {name: value for name, value in os.environ.items() if "proxy" not in name.lower()}


class Child:
    """A script of this directory that answers lines with lines."""

    def __init__(self, process: asyncio.subprocess.Process, name: str) -> None:
        self._process = process
        self._name = name

    @classmethod
    async def start(
        cls, script: str, *arguments: str, python: str = sys.executable, errors: int | None = None
    ) -> Self:
        """Start a script.

        Args:
            script: Its name.
            arguments: Its arguments.
            python: The Python to run it with.
            errors: Where its standard error goes, if not where the runner's does; as `subprocess`
                has it.
        """
        process = await asyncio.create_subprocess_exec(
            python,
            str(_HERE / script),
            *arguments,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=errors,
            env=environment(),
            limit=_LONGEST_LINE,
            start_new_session=True,  # an interrupt is for the runner, who then stops its children
        )
        return cls(process, " ".join((script, *arguments)))

    async def line(self, *, within: float | None = _LONGEST_ANSWER) -> str:
        """The next line that it prints.

        Args:
            within: Seconds to wait for it; None for a program whose end alone bounds the wait.

        Raises:
            RuntimeError: It stopped without one, or took too long.
        """
        assert self._process.stdout is not None
        try:
            async with asyncio.timeout(within):
                line = await self._process.stdout.readline()
        except TimeoutError:
            raise RuntimeError(f"{self._name} did not answer within {within} s") from None
        if not line:
            raise RuntimeError(f"{self._name} stopped; what it had to say stands above")
        return line.decode().strip()

    async def ask(self, line: str = "") -> str:
        """Send a line, and return the answer."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{line}\n".encode())
        return await self.line()

    async def stop(self) -> None:
        """Ends its standard input, and kills it if it does not stop by itself."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            async with asyncio.timeout(_LONGEST_GOODBYE):
                await self._process.wait()
        except TimeoutError:
            self._process.kill()
            await self._process.wait()


class Worker(Child):
    """A child process that runs jobs; see `worker`."""

    async def do(self, job: str, **arguments: object) -> dict[str, Any]:
        """Run a job, and return its result."""
        result: dict[str, Any] = json.loads(await self.ask(json.dumps({"job": job, **arguments})))
        return result


class Agent(Child):
    """The static agent."""

    async def cpu(self) -> float:
        """The CPU seconds that it used so far."""
        return float(await self.ask())
