"""Reports of what a command waits for, while nothing else is reported.

Rules: a short wait is silent; a long one is reported after a few seconds, and then seldom, on
standard error, with or without a terminal.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
from typing import TYPE_CHECKING

from holdfast._cli.output.events import Notice

if TYPE_CHECKING:
    from holdfast._cli.output.base import Output

__all__ = ["Waiting"]

_SILENT_S = 3.0
"""Seconds for which a wait is silent."""

_REPEATED_S = 30.0
"""Seconds between two reports, also of different waits."""


class Waiting:
    """Reports what a command waits for.

    Args:
        output: Where to report.

    Attributes:
        subject: What the command waits for; None while it waits for nothing.
    """

    def __init__(self, output: Output) -> None:
        self.subject: str | None = None
        self._output = output
        self._reported = -math.inf
        self._timer: asyncio.TimerHandle | None = None

    def begin(self, subject: str) -> None:
        """Note that a wait begins; it ends the one before."""
        self.end()
        self.subject = subject
        loop = asyncio.get_running_loop()
        at = max(loop.time() + _SILENT_S, self._reported + _REPEATED_S)
        self._timer = loop.call_at(at, self._report)

    def end(self) -> None:
        """Note that the wait has ended."""
        self.subject = None
        if self._timer is not None:
            self._timer.cancel()

    def _report(self) -> None:
        loop = asyncio.get_running_loop()
        self._reported = loop.time()
        self._timer = loop.call_later(_REPEATED_S, self._report)
        with contextlib.suppress(OSError):  # the next write reports it
            self._output.emit(Notice("Progress", f"waiting for {self.subject}"))
