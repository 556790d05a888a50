"""The terminal that somebody sits at: what is typed there, line by line, and Ctrl-C.

Rules: a line is read only while nothing else is under way, so that the event loop stands still
meanwhile, and needs no thread that would outlive it; Ctrl-C ends the reading, or calls whoever
wants to know. What was typed can be brought back and edited, and is forgotten with the process.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
from typing import TYPE_CHECKING, Protocol, TextIO

if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from contextlib import AbstractContextManager
    from types import FrameType

__all__ = ["InterruptedLine", "Terminal", "interrupts", "open_terminal"]


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
