"""Spans and metrics of OpenTelemetry for clients, and spans for servers and push receivers.

Pass a `Telemetry` to a client::

    import holdfast
    from holdfast.integrations.opentelemetry import Telemetry

    client = holdfast.connect("http://localhost:9999", telemetry=Telemetry())

It needs the extra ``holdfast[otel]``, which is the API of OpenTelemetry alone; the spans go where
your program's provider sends them. `HoldfastInstrumentor` gives one to all clients, servers and
push receivers of a program; ``opentelemetry-instrument python program.py`` does so without a
change of the program.
"""

from holdfast._integrations.otel.instrumentor import HoldfastInstrumentor
from holdfast._integrations.otel.telemetry import Telemetry
from holdfast._public import publish

__all__ = ["HoldfastInstrumentor", "Telemetry"]

__getattr__, __dir__ = publish(__name__)
