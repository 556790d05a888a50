"""The cost of observers and of OpenTelemetry: CPU microseconds of a call and of a stream's event.

    python benchmarks/telemetry.py [--rounds N]

A call is GetTask, with the reply from memory; an event is one artifact update of a stream. Each
way of observing is a process of its own (`telemetry_worker`). The processes take turns, so that
each difference is between figures that were measured shortly after each other.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

from processes import Child
from tables import Rounds, Table, Target

if TYPE_CHECKING:
    from collections.abc import Mapping

_ENABLED = "OTEL_INSTRUMENTATION_A2A_SDK_ENABLED"

_HOLDFAST = {
    "an observer that does nothing": "observer",
    "Telemetry, no provider": "api",
    "Telemetry, spans and metrics of the SDK": "sdk",
}

# The additional cost in microseconds that is accepted, by the way and the kind.
_TARGETS: Mapping[tuple[str, str], Target] = {
    ("sdk", "call"): Target(25),
    ("sdk", "event"): Target(2),
}


async def measure(rounds: int) -> Rounds[tuple[str, str]]:
    """Return the figures of each way and kind."""
    figures: Rounds[tuple[str, str]] = {}
    async with AsyncExitStack() as stack:
        children = {}
        for name in ("off", *_HOLDFAST.values(), "floor", "a2a-sdk", "a2a-sdk off"):
            os.environ[_ENABLED] = "false" if name == "a2a-sdk off" else "true"
            child = await Child.start("telemetry_worker.py", name.removesuffix(" off"))
            stack.push_async_callback(child.stop)
            children[name] = child
        for number in range(rounds + 1):
            for name, child in children.items():
                measured = json.loads(await child.ask())
                if number:  # the first round warms up
                    for kind, figure in measured.items():
                        figures.setdefault((name, kind), []).append(figure)
    return figures


def show(figures: Rounds[tuple[str, str]]) -> None:
    """Print the additional cost of each way of observing."""
    table = Table()
    for kind in ("call", "event"):
        table.heading(f"CPU µs of {'a call (GetTask)' if kind == 'call' else 'an event'}")
        off = figures["off", kind]
        table.row("holdfast, unobserved", off, "µs")
        for name, way in _HOLDFAST.items():
            more = [on - without for on, without in zip(figures[way, kind], off, strict=True)]
            table.row(f"  + {name}", more, "µs", target=_TARGETS.get((way, kind)))
        if kind == "call":
            table.row("the SDK of OpenTelemetry alone, by hand", figures["floor", kind], "µs")
        off = figures["a2a-sdk off", kind]
        table.row("a2a-sdk, its telemetry off", off, "µs")
        pairs = zip(figures["a2a-sdk", kind], off, strict=True)
        table.row("  + its spans", [on - without for on, without in pairs], "µs")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=9)
    show(asyncio.run(measure(parser.parse_args().rounds)))


if __name__ == "__main__":
    main()
