"""`HoldfastInstrumentor`, which ``opentelemetry-instrument`` finds by its entry point."""

from __future__ import annotations

import logging
import os
from typing import TYPE_CHECKING

from holdfast._integrations.otel.telemetry import Telemetry
from holdfast._model.installed_telemetry import install_telemetry, installed_telemetry

if TYPE_CHECKING:
    from collections.abc import Collection

    from opentelemetry.metrics import MeterProvider
    from opentelemetry.propagators.textmap import TextMapPropagator
    from opentelemetry.trace import TracerProvider

__all__ = ["HoldfastInstrumentor"]

logger = logging.getLogger("holdfast")

_CAPTURE_CONTENT = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"
_CAPTURING = frozenset({"true", "span_only", "span_and_event"})


class HoldfastInstrumentor:
    """Gives a `Telemetry` to all clients, servers and push receivers that are made without one.

    The program need not be changed: ``opentelemetry-instrument python program.py`` finds this
    class by its entry point. It has the methods of ``BaseInstrumentor`` of
    opentelemetry-instrumentation, and does not need that package.
    """

    @property
    def is_instrumented_by_opentelemetry(self) -> bool:
        """Whether clients, servers and push receivers get a `Telemetry`."""
        return installed_telemetry() is not None

    def instrumentation_dependencies(self) -> Collection[str]:
        """Return the packages that must be installed besides Holdfast: none."""
        return ()

    def instrument(
        self,
        *,
        tracer_provider: TracerProvider | None = None,
        meter_provider: MeterProvider | None = None,
        propagator: TextMapPropagator | None = None,
        operation_spans: bool = False,
        capture_content: bool | None = None,
        skip_dep_check: bool = False,
        raise_exception_on_conflict: bool = False,
    ) -> None:
        """Give a `Telemetry` to clients, servers and push receivers that are made from now on.

        A second call before `uninstrument` changes nothing, and logs a warning.

        Args:
            tracer_provider: As for `Telemetry`.
            meter_provider: As for `Telemetry`.
            propagator: As for `Telemetry`.
            operation_spans: As for `Telemetry`.
            capture_content: As for `Telemetry`; None for what the environment variable
                ``OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT`` says: ``true``,
                ``span_only`` and ``span_and_event`` capture content.
            skip_dep_check: Passed by ``opentelemetry-instrument``; without effect, because there
                are no dependencies.
            raise_exception_on_conflict: As for `skip_dep_check`.

        Raises:
            TypeError: An argument of another type.
        """
        del skip_dep_check, raise_exception_on_conflict
        if self.is_instrumented_by_opentelemetry:
            logger.warning(
                "HoldfastInstrumentor has a Telemetry already: call uninstrument() first"
            )
            return
        if capture_content is None:
            capture_content = os.environ.get(_CAPTURE_CONTENT, "").lower() in _CAPTURING
        install_telemetry(
            Telemetry(
                tracer_provider=tracer_provider,
                meter_provider=meter_provider,
                propagator=propagator,
                operation_spans=operation_spans,
                capture_content=capture_content,
            )
        )

    def uninstrument(self) -> None:
        """Give no `Telemetry` to new clients, servers and receivers; existing ones keep theirs."""
        install_telemetry(None)
