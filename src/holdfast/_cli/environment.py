"""The environment of commands: event loop, network, file system, terminal, wall time.

Rules: each part is imported on first use, as `--version`, help and completions use none. A
line is read from the terminal only while nothing else is in flight, so that the event loop may
block meanwhile, and no thread is needed that would outlive it; Ctrl-C ends the reading, or calls a
function. Typed lines can be recalled and edited, and are forgotten with the process.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TextIO

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Generator
    from contextlib import AbstractContextManager
    from types import FrameType

    from holdfast._aio.env import Env
    from holdfast._cli.options.configuration import Configuration
    from holdfast._doctor.facts import TlsFacts
    from holdfast._net.engine import HttpEngine
    from holdfast._net.tls_config import TlsConfig

__all__ = [
    "CliEnvironment",
    "InterruptedLine",
    "Terminal",
    "interrupts",
    "open_terminal",
    "user_cache",
]


def _run(main: Coroutine[Any, Any, None]) -> None:
    try:
        import asyncio
        import gc

        gc.freeze()  # imported modules stay, and are not searched for garbage
        gc.enable()
    except BaseException:  # Ctrl-C
        main.close()
        raise
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


async def _look_at_tls(url: str, *, timeout: float) -> TlsFacts | None:
    from holdfast._doctor.tls import look_at_tls

    return await look_at_tls(url, timeout=timeout)


def _aiohttp_engine(*, verify: bool, tls: TlsConfig | None = None) -> HttpEngine:
    from holdfast._net.aiohttp import AiohttpEngine  # heavy: not imported for help
    from holdfast._net.tls_config import TlsConfig

    os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # otherwise gRPC writes to our stderr
    if tls is None and not verify:
        tls = TlsConfig(verify=False)
    return AiohttpEngine(ssl=True if tls is None else tls)


LOGINS = (".config", "holdfast", "logins")
"""The directory of logins, below the home directory."""


class InterruptedLine(Exception):  # noqa: N818  it is not an error
    """Ctrl-C was pressed while a line was read.

    Args:
        typed: The typed text, as far as it is known.

    Attributes:
        typed: As given.
    """

    def __init__(self, typed: str = "") -> None:
        super().__init__("interrupted")
        self.typed = typed


class Terminal(Protocol):
    """A terminal that lines are read from."""

    @property
    def is_terminated(self) -> bool:
        """Whether SIGTERM was received while lines or interrupts were waited for."""
        ...

    async def read(self, prompt: str) -> str:
        """Read a line; pasted text may have several.

        Args:
            prompt: The text before the input.

        Raises:
            EOFError: There is no more input, as after Ctrl-D or SIGTERM.
            InterruptedLine: Ctrl-C was pressed.
            UnicodeError: The input is not text.
        """
        ...

    def interrupts(self, call: Callable[[], None]) -> AbstractContextManager[None]:
        """Call a function at each Ctrl-C or SIGTERM while no line is read, in the context."""
        ...

    def hides_keys(self) -> AbstractContextManager[None]:
        """Hide typed text while the context is open; the next line begins with it."""
        ...

    def discard(self) -> None:
        """Discard unread input, which the shell would execute otherwise."""
        ...


def open_terminal() -> Terminal | None:
    """Return the terminal of the process; None if its input or output is not a terminal."""
    streams: tuple[TextIO | None, ...] = sys.stdin, sys.stdout
    if not all(stream is not None and stream.isatty() for stream in streams):
        return None
    return _Terminal()


@contextlib.contextmanager
def interrupts(call: Callable[[], None]) -> Generator[None]:
    """Call a function in the event loop at each Ctrl-C while the context is open.

    A Ctrl-C before the loop has handled the one before raises `KeyboardInterrupt`: the
    loop is blocked, for example by a pipe that is not read.
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


_LOCAL_MODES = 3
"""The index of the local modes in the attributes of a terminal."""
_PROMPT_COLOUR, _PLAIN = "\x1b[1;36m", "\x1b[0m"


class _Terminal:
    """Reads lines with the features of Python's own `input`."""

    def __init__(self) -> None:
        self._is_reading = self.is_terminated = False
        self._reads = 0
        self._typed = ""
        self._buffer: Callable[[], str] = str
        self._begin_hidden = self._end_hidden = ""  # around codes that take no column
        with contextlib.suppress(ImportError):  # without it, the terminal's own features remain
            import readline  # here only: it may write to the terminal

            self._buffer = readline.get_line_buffer
            self._begin_hidden, self._end_hidden = "\x01", "\x02"
            if "libedit" not in (readline.__doc__ or ""):
                readline.parse_and_bind("set enable-bracketed-paste on")
                readline.parse_and_bind("tab: self-insert")  # no files to complete

    async def read(self, prompt: str) -> str:
        if self.is_terminated:
            raise EOFError
        try:
            self._is_reading = True
            self._reads += 1
            return input(self._coloured(prompt))  # noqa: ASYNC250  nothing else is in flight
        except KeyboardInterrupt:
            sys.stdout.write("\n")
            raise InterruptedLine(self._typed) from None
        except EOFError:
            sys.stdout.write("\n")
            raise
        finally:
            self._is_reading = False

    def _coloured(self, prompt: str) -> str:
        from holdfast._cli.output.base import has_colours

        if not has_colours(sys.stdout):
            return prompt
        begin, end = self._begin_hidden, self._end_hidden
        return f"{begin}{_PROMPT_COLOUR}{end}{prompt}{begin}{_PLAIN}{end}"

    @contextlib.contextmanager
    def interrupts(self, call: Callable[[], None]) -> Generator[None]:
        import asyncio

        loop = asyncio.get_running_loop()

        def interrupted(number: int, _frame: FrameType | None) -> None:
            if number == signal.SIGTERM:
                self.is_terminated = True
                if self._is_reading:
                    raise EOFError
            if self._is_reading:
                self._typed = self._buffer()
                raise KeyboardInterrupt
            loop.call_soon_threadsafe(unless_read, self._reads)

        def unless_read(reads: int) -> None:
            if reads == self._reads:  # otherwise it was meant for work before the line
                call()

        before = signal.signal(signal.SIGINT, interrupted)
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, before)

    @contextlib.contextmanager
    def hides_keys(self) -> Generator[None]:
        try:
            import termios  # here only: not every system has it
        except ImportError:
            yield
            return
        try:
            modes = termios.tcgetattr(sys.stdin)
            hiding = [*modes]
            hiding[_LOCAL_MODES] &= ~termios.ECHO
            termios.tcsetattr(sys.stdin, termios.TCSANOW, hiding)
        except (termios.error, OSError, ValueError):
            yield
            return
        try:
            yield
        finally:
            with contextlib.suppress(termios.error, OSError, ValueError):
                termios.tcsetattr(sys.stdin, termios.TCSANOW, modes)

    def discard(self) -> None:
        try:
            import termios  # here only: not every system has it
        except ImportError:
            return
        with contextlib.suppress(termios.error, OSError):
            termios.tcflush(sys.stdin, termios.TCIFLUSH)


class CliEnvironment:
    """The environment of commands; each part can be replaced.

    Args:
        run: Runs a coroutine to its end.
        engine: Makes the engine that sends requests; `verify`: whether certificates are verified;
            `tls`, with a certificate of the client only: all TLS settings.
        home: Returns the home directory.
        directory: Returns the working directory.
        cache: Returns the directory of cached cards; None for no cache.
        terminal: Returns the terminal of the user; None if there is none.
        interrupts: Calls a function at each Ctrl-C, while the context is open.
        env: Wall time, randomness and ids; those of the system if left out.
        look_at_tls: Examines the TLS of a server; see `holdfast._doctor.tls`.
    """

    def __init__(
        self,
        *,
        run: Callable[[Coroutine[Any, Any, None]], None] = _run,
        engine: Callable[..., HttpEngine] = _aiohttp_engine,
        home: Callable[[], Path] = Path.home,
        directory: Callable[[], Path] = Path.cwd,
        cache: Callable[[], Path | None] = user_cache,
        terminal: Callable[[], Terminal | None] = open_terminal,
        interrupts: Callable[[Callable[[], None]], AbstractContextManager[None]] = interrupts,
        env: Env | None = None,
        look_at_tls: Callable[..., Awaitable[TlsFacts | None]] = _look_at_tls,
    ) -> None:
        self.run = run
        self.engine = engine
        self.home = home
        self.directory = directory
        self.cache = cache
        self.terminal = terminal
        self.interrupts = interrupts
        self.look_at_tls = look_at_tls
        self._env = env

    @cached_property
    def env(self) -> Env:
        """Wall time, randomness and ids."""
        if self._env is not None:
            return self._env
        from holdfast._aio.env import SystemEnv  # commands that call no agent need none

        return SystemEnv()

    def read_configuration(self, named: str | None) -> Configuration:
        """Read the configuration files.

        Args:
            named: The file to read in place of the local one, as written.

        Raises:
            OSError: That file cannot be read.
            ValueError: It is not UTF-8.
        """
        from holdfast._cli.options.configuration_files import read_configuration

        path = None if named is None else Path(named).expanduser()
        return read_configuration(path, home=self.home, directory=self.directory)
