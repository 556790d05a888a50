"""The telemetry of the clients, servers and push receivers of a process that are made without one.

`HoldfastInstrumentor` installs it: an object that is a `TelemetrySource` and a `ServerTelemetry`.
"""

from __future__ import annotations

from typing import Any

__all__ = ["install_telemetry", "installed_telemetry"]

_installed: list[Any] = []  # at most one


def install_telemetry(telemetry: object | None) -> None:
    """Set the telemetry of clients, servers and push receivers that are made from now on.

    Args:
        telemetry: A `TelemetrySource` that is a `ServerTelemetry` as well; None for none.
    """
    _installed[:] = [] if telemetry is None else [telemetry]


def installed_telemetry() -> Any:
    """Return the telemetry that `install_telemetry` has set last; None for none."""
    return _installed[0] if _installed else None
