"""Runs the command in process, in virtual time, against a fake agent."""

import asyncio
import io
import itertools
import json
import os
import sys
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from tests.kit.virtual_env import set_wall

from holdfast._cli.environment import CliEnvironment, InterruptedLine
from holdfast.cli import main
from holdfast.testing import FakeAgent, FakeNetwork, run

AGENT = "http://agent.test"
PLAIN = (
    f"Warning: credentials are sent to {AGENT}:80 without TLS: anyone on the network path can "
    "read and use them; use https\n"
)
"""What is said where credentials go to the agent of these tests."""

NOWHERE = Path("/no/such/directory")


@dataclass(frozen=True)
class Outcome:
    exit: int
    out: str
    err: str

    @property
    def json(self):
        return json.loads(self.out)

    @property
    def error(self):
        return self.json["error"]

    @property
    def last_word(self):
        """What is on stderr besides the announcements of further tries."""
        lines = self.err.splitlines(keepends=True)
        return "".join(line for line in lines if "; retrying in " not in line)

    def field(self, label: str) -> str | None:
        found = [line for line in self.out.splitlines() if line.startswith(f"{label}: ")]
        assert len(found) <= 1, found
        return found[0].partition(": ")[2] if found else None


class Stop(NamedTuple):
    """Ctrl-C, while the answer comes to the line before."""

    after: float


CTRL_C = InterruptedLine()
CTRL_D = EOFError()


class Typist:
    """Types at a terminal, which shows it: a line as soon as it is asked for one.

    Args:
        keys: Lines, and what ends one or the waiting for an answer; Ctrl-D behind the last.
    """

    def __init__(self, *keys: str | Exception | Stop) -> None:
        self._keys = deque([*keys, CTRL_D])
        self._call = None
        self.is_discarded = self.is_terminated = False

    async def read(self, prompt: str) -> str:
        sys.stdout.write(prompt)
        key = self._keys.popleft()
        if isinstance(key, Exception):
            sys.stdout.write("\n")
            raise key
        sys.stdout.write(f"{key.encode(errors='replace').decode()}\n")
        if isinstance(self._keys[0], Stop):
            asyncio.get_running_loop().call_later(self._keys.popleft().after, self._call)
        return key

    @contextmanager
    def interrupts(self, call: Callable[[], None]) -> Iterator[None]:
        self._call = call
        yield

    @contextmanager
    def hides_keys(self) -> Iterator[None]:
        yield

    def discard(self) -> None:
        self.is_discarded = True


def pressed(stops: Sequence[float]):
    """Ctrl-C at these times, for whoever wants to know of it."""

    @contextmanager
    def interrupts(call: Callable[[], None]) -> Iterator[None]:
        loop = asyncio.get_running_loop()
        timers = [loop.call_later(stop, call) for stop in stops]
        yield
        for timer in timers:
            timer.cancel()

    return interrupts


class VirtualWall:
    """The wall time of commands in virtual time; each command has its own day by default.

    Attributes:
        start: The wall time when a command starts its event loop, in seconds since 1970.
    """

    _days = itertools.count()

    def __init__(self):
        self.start = 1_700_006_400.0 + 86_400 * next(self._days)

    def run(self, main):
        """Run a coroutine, as `holdfast.testing.run` does."""

        async def at_start():
            set_wall(self.start)
            return await main

        return run(at_start())


Engine = Callable[..., object]


def holdfast(
    *arguments: str,
    agent: FakeAgent | None = None,
    engine: Engine | None = None,
    stdin: bytes = b"",
    card: str | None = AGENT,
    env: dict[str, str] | None = None,
    encoding: str = "utf-8",
    home: Path = NOWHERE,
    directory: Path = NOWHERE,
    cache: Path | None = None,
    on_sockets: bool = False,
    terminal: Typist | None = None,
    stops: Sequence[float] = (),
    wall: VirtualWall | None = None,
) -> Outcome:
    """Runs ``holdfast``, with ``--agent-card`` where `card` is not None.

    What it wrote is read as UTF-8, whatever its streams are said to take. Configuration files are
    looked for below `home` and in `directory` only; cards are cached in `cache`, if that is given.
    Somebody sits at the `terminal`, if there is one. Ctrl-C is pressed at the `stops`, in seconds
    from when somebody wants to know of it. With `on_sockets`, time and network are the real ones;
    else wall time is `wall`'s.
    """
    files = {"home": lambda: home, "directory": lambda: directory, "interrupts": pressed(stops)}
    files["cache"] = lambda: cache
    if terminal is not None:
        files["terminal"] = lambda: terminal
    if on_sockets:
        environment = CliEnvironment(**files)
    else:
        network = FakeNetwork(FakeAgent() if agent is None else agent)
        environment = CliEnvironment(
            run=(wall or VirtualWall()).run, engine=engine or (lambda *, verify: network), **files
        )
    words = [*arguments, "--agent-card", card] if card is not None else list(arguments)
    with _settings(env or {}), _streams(stdin, encoding) as (out, err):
        code = main(words, environment=environment)
    return Outcome(code, out.getvalue().decode(), err.getvalue().decode())


@contextmanager
def _settings(env: dict[str, str]) -> Iterator[None]:
    """The given variables, and none of whoever runs the tests."""
    before = {name: value for name, value in os.environ.items() if name.startswith("A2ACLI_")}
    for name in before:
        del os.environ[name]
    os.environ.update(env)
    try:
        yield
    finally:
        for name in env:
            del os.environ[name]
        os.environ.update(before)


@contextmanager
def _streams(stdin: bytes, encoding: str) -> Iterator[tuple[io.BytesIO, io.BytesIO]]:
    out, err = io.BytesIO(), io.BytesIO()
    before = sys.stdin, sys.stdout, sys.stderr
    sys.stdin = io.TextIOWrapper(io.BytesIO(stdin), encoding="utf-8")
    sys.stdout = io.TextIOWrapper(out, encoding=encoding, write_through=True)
    sys.stderr = io.TextIOWrapper(err, encoding=encoding, write_through=True)
    try:
        yield out, err
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        for mine in (sys.stdout, sys.stderr):
            mine.detach()
        sys.stdin, sys.stdout, sys.stderr = before
