"""A telemetry of servers whose failures end no request."""

from __future__ import annotations

import logging
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import TracebackType

    from holdfast._model.server_spans import ServerActivity, ServerSpan, ServerTelemetry

__all__ = ["guarded"]

logger = logging.getLogger("holdfast")


def guarded(telemetry: ServerTelemetry | None) -> ServerTelemetry | None:
    """Return a telemetry whose failures are logged, the first one as a warning.

    Args:
        telemetry: The telemetry of the program, which may raise; None for none.
    """
    return None if telemetry is None else GuardedTelemetry(telemetry)


class GuardedTelemetry:
    """Starts the spans of a telemetry; its first failure is logged.

    Args:
        telemetry: The telemetry of the program, which may raise.
    """

    def __init__(self, telemetry: ServerTelemetry) -> None:
        self._telemetry = telemetry
        self._has_warned = False

    def start_span(
        self, activity: ServerActivity, parent: ServerSpan | None = None, /
    ) -> GuardedSpan:
        """Start a span.

        Args:
            activity: The activity.
            parent: The span that caused a push; None if unknown.
        """
        if isinstance(parent, GuardedSpan):
            parent = parent.inner
        try:
            return GuardedSpan(self, self._telemetry.start_span(activity, parent))
        except Exception as failure:  # noqa: BLE001  a telemetry must not end requests
            self.warn(failure)
            return GuardedSpan(self, None)

    def warn(self, failure: Exception) -> None:
        """Log a failure, once."""
        if not self._has_warned:
            self._has_warned = True
            logger.warning(
                "the telemetry of the server failed, and requests continue without it: %s: %s",
                type(failure).__name__,
                failure,
            )


class GuardedSpan:
    """A span whose failures are logged.

    Args:
        telemetry: Started it.
        inner: The span of the program's telemetry; None if it could not be started.

    Attributes:
        inner: The same.
    """

    def __init__(self, telemetry: GuardedTelemetry, inner: ServerSpan | None) -> None:
        self.inner = inner
        self._telemetry = telemetry

    def attached(self) -> AbstractContextManager[None]:
        """Return a context in which the span is the current one."""
        if self.inner is None:
            return nullcontext()
        try:
            return _Guarded(self._telemetry, self.inner.attached())
        except Exception as failure:  # noqa: BLE001  as above
            self._telemetry.warn(failure)
            return nullcontext()

    def headers(self) -> Mapping[str, str]:
        """Return the headers that carry the ids of the trace."""
        try:
            return {} if self.inner is None else self.inner.headers()
        except Exception as failure:  # noqa: BLE001  as above
            self._telemetry.warn(failure)
            return {}

    def end(self, activity: ServerActivity, error: BaseException | None = None) -> None:
        """End the span.

        Args:
            activity: The activity with all that is known of it now.
            error: The error that ended it.
        """
        try:
            if self.inner is not None:
                self.inner.end(activity, error)
        except Exception as failure:  # noqa: BLE001  as above
            self._telemetry.warn(failure)


class _Guarded(AbstractContextManager[None]):
    """Enters and leaves a context, whatever it raises."""

    def __init__(self, telemetry: GuardedTelemetry, inner: AbstractContextManager[object]) -> None:
        self._telemetry = telemetry
        self._inner = inner
        self._is_entered = False

    def __enter__(self) -> None:
        try:
            self._inner.__enter__()
            self._is_entered = True
        except Exception as failure:  # noqa: BLE001  as above
            self._telemetry.warn(failure)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if not self._is_entered:
            return
        try:
            self._inner.__exit__(kind, error, trace)
        except Exception as failure:  # noqa: BLE001  as above
            self._telemetry.warn(failure)
