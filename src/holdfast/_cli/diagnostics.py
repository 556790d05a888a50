"""What the library logs, shown on standard error: warnings of security, and all with --debug."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from holdfast._cli.output.events import Notice
from holdfast._wire.origins import SECURITY_LOGGER

if TYPE_CHECKING:
    from types import TracebackType

    from holdfast._cli.output.base import Output


__all__ = ["Diagnostics"]


class Diagnostics(logging.Handler):
    """Shows what the library logs, while the context is open.

    Args:
        output: Where to.
        enabled: Whether to show all.
    """

    def __init__(self, output: Output, *, enabled: bool) -> None:
        super().__init__(logging.DEBUG)
        self._output = output
        self._enabled = enabled
        self._logger = logging.getLogger("holdfast" if enabled else SECURITY_LOGGER)
        self._level = self._logger.level

    def emit(self, record: logging.LogRecord) -> None:
        """Shows one record."""
        try:
            if record.name == SECURITY_LOGGER:
                self._output.emit(
                    Notice.warning(record.getMessage().partition("; pass ")[0])
                )  # of Python
            else:
                self._output.emit(Notice("Debug", record.getMessage()))
        except OSError:
            self.handleError(record)

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802  logging's name
        """Nobody reads standard error any more: nothing can be said about that."""

    def __enter__(self) -> None:
        self._level = self._logger.level
        self._logger.setLevel(logging.DEBUG if self._enabled else logging.WARNING)
        self._logger.addHandler(self)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._logger.removeHandler(self)
        self._logger.setLevel(self._level)
