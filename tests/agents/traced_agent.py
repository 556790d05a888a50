"""The agent of `sdk_agent.py` with OpenTelemetry, whose spans the tests read from a file.

This module owns one agent process. The official SDK makes its spans by itself as soon as there is
a provider; the trace in the headers of a request is continued by the instrumentation of ASGI.

Rules:
- Each span that has ended is one line of JSON in the file that is named on the command line.
- With `--bare` there is no instrumentation of ASGI.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import logging
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from opentelemetry import trace
from opentelemetry.instrumentation.asgi import OpenTelemetryMiddleware
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import ConsoleSpanExporter, SimpleSpanProcessor
from sdk_agent import build_app
from serving import serve

if TYPE_CHECKING:
    from starlette.types import ASGIApp


def build(url: str, *, bare: bool) -> ASGIApp:
    """Put the instrumentation around the real agent, unless it is to be bare."""
    app = build_app(url, "jsonrpc", None, 0.0)
    return app if bare else OpenTelemetryMiddleware(app, exclude_spans=["receive", "send"])


def main() -> None:
    """Serve with this process's arguments and standard streams."""
    logging.basicConfig(level=logging.WARNING, stream=sys.stderr)
    parser = argparse.ArgumentParser(description="An agent on the official SDK, with its spans.")
    parser.add_argument("--spans", required=True, type=Path, help="the file that gets its spans")
    parser.add_argument("--bare", action="store_true", help="leave out the instrumentation")
    options = parser.parse_args()
    with options.spans.open("w", encoding="utf-8") as file:
        exporter = ConsoleSpanExporter(
            out=file, formatter=lambda span: span.to_json(indent=None) + "\n"
        )
        provider = TracerProvider()
        provider.add_span_processor(SimpleSpanProcessor(exporter))
        trace.set_tracer_provider(provider)
        with contextlib.suppress(KeyboardInterrupt):
            asyncio.run(serve(lambda url: build(url, bare=options.bare), 600.0))


if __name__ == "__main__":
    main()
