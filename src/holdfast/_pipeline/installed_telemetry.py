"""The telemetry of clients that are made without one, as ``HoldfastInstrumentor`` installs it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from holdfast._pipeline.observations import TelemetrySource

__all__ = ["install_telemetry", "installed_telemetry"]

_installed: list[TelemetrySource] = []  # at most one


def install_telemetry(source: TelemetrySource | None) -> None:
    """Set the telemetry of clients that are made from now on.

    Args:
        source: The telemetry; None for none.
    """
    _installed[:] = [] if source is None else [source]


def installed_telemetry() -> TelemetrySource | None:
    """Return the telemetry of clients that are made without one; None for none."""
    return _installed[0] if _installed else None
