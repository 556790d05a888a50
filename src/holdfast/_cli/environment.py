"""What commands run in: event loop, network, file system, terminal, wall time.

Rules: each of them is imported when it is used, as `--version`, help and completions use none. A
line is read from the terminal only while nothing else is in flight, so that the event loop stands
still meanwhile, and needs no thread that would outlive it; Ctrl-C ends the reading, or calls a
function. What was typed can be brought back and edited, and is forgotten with the process.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TextIO

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Generator
    from contextlib import AbstractContextManager
    from types import FrameType

    from holdfast._aio.env import Env
    from holdfast._cli.options.configuration import Configuration
    from holdfast._net.engine import HttpEngine
    from holdfast._net.tls_config import TlsConfig
    from holdfast._wire.tls import TlsFacts

__all__ = [
    "CliEnvironment",
    "InterruptedLine",
    "Terminal",
    "interrupts",
    "open_terminal",
    "user_cache",
]


def _run(main: Coroutine[Any, Any, None]) -> None:
    import asyncio
    import gc

    gc.freeze()  # what is imported by now stays, and is not searched for garbage
    gc.enable()
    asyncio.run(main)


def user_cache() -> Path | None:
    """Return the directory of cached cards by the platform's conventions; None if there is none.

    ``$XDG_CACHE_HOME`` or ``~/.cache``; ``~/Library/Caches`` on macOS; ``%LOCALAPPDATA%`` on
    Windows.
    """
    if sys.platform == "win32":
        stated, below = os.environ.get("LOCALAPPDATA", ""), ("holdfast", "Cache", "cards")
    else:
        stated, below = os.environ.get("XDG_CACHE_HOME", ""), ("holdfast", "cards")
    if stated and Path(stated).is_absolute():
        return Path(stated, *below)
    try:
        home = Path.home()
    except RuntimeError:
        return None
    usual = ("Library", "Caches") if sys.platform == "darwin" else (".cache",)
    return home.joinpath(*usual, *below) if home.is_dir() else None


def _system_env() -> Env:
    from holdfast._aio.env import SystemEnv

    return SystemEnv()


async def _look_at_tls(url: str, *, timeout: float) -> TlsFacts | None:
    from holdfast._net.tls import look_at_tls

    return await look_at_tls(url, timeout=timeout)


def _aiohttp_engine(*, verify: bool, tls: TlsConfig | None = None) -> HttpEngine:
    from holdfast._net.aiohttp import AiohttpEngine  # heavy; help and usage errors are not
    from holdfast._net.tls_config import TlsConfig

    os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # it writes to stderr, which is ours
    if tls is None and not verify:
        tls = TlsConfig(verify=False)
    return AiohttpEngine(ssl=True if tls is None else tls)


LOGINS = (".config", "holdfast", "logins")
"""Where logins are kept, below the home directory."""


class InterruptedLine(Exception):  # noqa: N818  it is no error
    """Ctrl-C was pressed while a line was read.

    Args:
        typed: What had been typed, as far as that is known.

    Attributes:
        typed: As given.
    """

    def __init__(self, typed: str = "") -> None:
        super().__init__("interrupted")
        self.typed = typed


class Terminal(Protocol):
    """Where lines are typed."""

    async def read(self, prompt: str) -> str:
        """Reads a line; what is pasted at once may have several.

        Args:
            prompt: What is shown before it.

        Raises:
            EOFError: Nothing more will be typed, as after Ctrl-D.
            InterruptedLine: Ctrl-C was pressed.
            UnicodeError: What was typed is no text.
        """
        ...

    def interrupts(self, call: Callable[[], None]) -> AbstractContextManager[None]:
        """Calls at each Ctrl-C while no line is read, as long as the context is open."""
        ...

    def discard(self) -> None:
        """Forgets what was typed and not read, which would go to the shell otherwise."""
        ...


def open_terminal() -> Terminal | None:
    """The terminal of the process; None if its input or its output is none."""
    streams: tuple[TextIO | None, ...] = sys.stdin, sys.stdout
    if not all(stream is not None and stream.isatty() for stream in streams):
        return None
    return _Terminal()


@contextlib.contextmanager
def interrupts(call: Callable[[], None]) -> Generator[None]:
    """Call in the event loop at each Ctrl-C while the context is open.

    A Ctrl-C that comes before the loop has seen the one before raises `KeyboardInterrupt`: the
    loop is blocked, for example by a pipe whose reader reads no more.
    """
    import asyncio

    loop = asyncio.get_running_loop()
    unseen = 0

    def seen() -> None:
        nonlocal unseen
        unseen -= 1
        call()

    def interrupted(_number: int, _frame: FrameType | None) -> None:
        nonlocal unseen
        if unseen:
            raise KeyboardInterrupt
        unseen += 1
        loop.call_soon_threadsafe(seen)

    before = signal.signal(signal.SIGINT, interrupted)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


class _Terminal:
    """Reads lines with what Python's own `input` offers."""

    def __init__(self) -> None:
        self._is_reading = False
        self._reads = 0
        self._typed = ""
        self._buffer: Callable[[], str] = str
        with contextlib.suppress(ImportError):  # without it, what the terminal itself offers
            import readline  # here only: it may write to the terminal that it finds

            self._buffer = readline.get_line_buffer
            if "libedit" not in (readline.__doc__ or ""):
                readline.parse_and_bind("set enable-bracketed-paste on")
                readline.parse_and_bind("tab: self-insert")  # there are no files to complete

    async def read(self, prompt: str) -> str:
        try:
            self._is_reading = True
            self._reads += 1
            return input(prompt)  # noqa: ASYNC250  nothing else is under way
        except KeyboardInterrupt:
            sys.stdout.write("\n")
            raise InterruptedLine(self._typed) from None
        except EOFError:
            sys.stdout.write("\n")
            raise
        finally:
            self._is_reading = False

    @contextlib.contextmanager
    def interrupts(self, call: Callable[[], None]) -> Generator[None]:
        import asyncio

        loop = asyncio.get_running_loop()

        def interrupted(_number: int, _frame: FrameType | None) -> None:
            if self._is_reading:
                self._typed = self._buffer()
                raise KeyboardInterrupt
            loop.call_soon_threadsafe(unless_read, self._reads)

        def unless_read(reads: int) -> None:
            if reads == self._reads:  # else it was meant for what was under way before the line
                call()

        before = signal.signal(signal.SIGINT, interrupted)
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, before)

    def discard(self) -> None:
        try:
            import termios  # here only: not every system has it
        except ImportError:
            return
        with contextlib.suppress(termios.error, OSError):
            termios.tcflush(sys.stdin, termios.TCIFLUSH)


@dataclass(frozen=True, kw_only=True)
class CliEnvironment:
    """What commands run in.

    Attributes:
        run: Runs a coroutine to its end.
        engine: Makes what carries requests; `verify` says whether certificates are verified, and
            `tls`, which is there if the client shows one of its own, says all of it.
        home: Gives the home directory.
        directory: Gives the working directory.
        cache: Gives the directory of cached cards; None for no cache.
        terminal: Gives the terminal that somebody sits at; None for none.
        interrupts: Calls at each Ctrl-C, as long as the context is open.
        env: Wall time, randomness and ids.
        look_at_tls: Looks at the TLS of a server; see `holdfast._net.tls`.
    """

    run: Callable[[Coroutine[Any, Any, None]], None] = _run
    engine: Callable[..., HttpEngine] = _aiohttp_engine
    home: Callable[[], Path] = Path.home
    directory: Callable[[], Path] = Path.cwd
    cache: Callable[[], Path | None] = user_cache
    terminal: Callable[[], Terminal | None] = open_terminal
    interrupts: Callable[[Callable[[], None]], AbstractContextManager[None]] = interrupts
    env: Env = field(default_factory=_system_env)
    look_at_tls: Callable[..., Awaitable[TlsFacts | None]] = _look_at_tls

    def read_configuration(self, named: str | None) -> Configuration:
        """Reads the configuration files.

        Args:
            named: The file to read in place of the local one, as the caller wrote it.

        Raises:
            OSError: That file cannot be read.
            ValueError: It is not UTF-8.
        """
        from holdfast._cli.options.configuration import read_configuration

        path = None if named is None else Path(named).expanduser()
        return read_configuration(path, home=self.home, directory=self.directory)
