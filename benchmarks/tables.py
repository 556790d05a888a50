"""The report: medians of the rounds, their spread, targets and verdicts.

A ratio or a difference is taken within each round, where both sides met the same machine, and
its median is shown.
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median, quantiles
from typing import TYPE_CHECKING, TypeVar

import payloads

if TYPE_CHECKING:
    from collections.abc import Sequence

K = TypeVar("K")

Rounds = dict[K, list[float]]
"""The figure of each round, by what was measured."""

IN_FLIGHT = (1, 32)
OPEN_STREAMS = 10_000
PACED_STREAMS = (100, 1000)

HOLDFAST = "holdfast, all layers on"
BARE = "bare aiohttp, bytes only"
ENGINE = "holdfast's engine alone, bytes only"
BY_HAND = "aiohttp and json, by hand"
SDK = "a2a-sdk"
SDK_TASK = "a2a-sdk, and the task of them"
SDK_OVER_HOLDFAST = "a2a-sdk over HoldfastTransport"
STREAMING = (HOLDFAST, BARE, SDK, SDK_TASK)


@dataclass(frozen=True)
class Target:
    """Target of a figure.

    Attributes:
        bound: The number.
        at_least: Whether the figure must not be below it; otherwise it must not be above.
    """

    bound: float
    at_least: bool = False

    def verdict(self, figure: float) -> str:
        """Return the target, and whether the figure meets it."""
        kept = figure >= self.bound if self.at_least else figure <= self.bound
        return f"{'>=' if self.at_least else '<='} {self.bound:<4g} {'ok' if kept else 'MISSED'}"


class Table:
    """Prints rows, and keeps the names of those that missed their target."""

    def __init__(self) -> None:
        self.missed: list[str] = []

    def heading(self, title: str, *notes: str) -> None:
        """Begin a part of the report."""
        print(f"\n{title}")
        for note in notes:
            print(f"  {note}")
        print(f"  {'':<46}{'median':>9}{'':7}{'middle half':>18}")

    def row(
        self,
        name: str,
        rounds: Sequence[float],
        unit: str,
        *,
        target: Target | None = None,
        note: str = "",
    ) -> None:
        """Print the median of the rounds, their spread and the verdict."""
        figure = median(rounds)
        verdict = note if target is None else target.verdict(figure)
        if "MISSED" in verdict:
            self.missed.append(name.strip())
        low, _, high = quantiles(rounds if rounds[1:] else rounds * 2, n=4, method="inclusive")
        spread = f"{_number(low)} to {_number(high)}"
        print(f"  {name:<46}{_number(figure):>9} {unit:<6}{spread:>18}   {verdict}".rstrip())


def _number(value: float) -> str:
    digits = 0 if abs(value) >= 1000 else 1 if abs(value) >= 10 else 2
    return f"{value:,.{digits}f}"


def show_rates(table: Table, rates: Rounds[tuple[int, str]], agent: Rounds[int]) -> None:
    table.heading(
        "SendMessage calls per CPU second of the client",
        "The reply is a task of 1.3 kB. `bytes only` neither writes nor reads JSON.",
    )
    most = IN_FLIGHT[-1]
    ratios = {
        SDK: ("x", 1, Target(10, at_least=True)),
        BARE: ("%", 100, Target(65, at_least=True)),
    }
    for in_flight in IN_FLIGHT:
        print(f"  {in_flight} in flight")
        for name in (HOLDFAST, BARE, ENGINE, BY_HAND, SDK_OVER_HOLDFAST, SDK):
            if calls := rates.get((in_flight, name)):
                table.row(f"  {name}", calls, "/s", note=f"{1e6 / median(calls):,.0f} us a call")
        for name, (unit, scale, target) in ratios.items():
            if theirs := rates.get((in_flight, name)):
                own = rates[in_flight, HOLDFAST]
                table.row(
                    f"  holdfast / {name}",
                    [scale * ours / other for ours, other in zip(own, theirs, strict=True)],
                    unit,
                    target=target if in_flight == most else None,
                )
        if over := rates.get((in_flight, SDK_OVER_HOLDFAST)):
            alone = rates[in_flight, SDK]
            times = [ours / other for ours, other in zip(over, alone, strict=True)]
            table.row(f"  {SDK_OVER_HOLDFAST} / {SDK}", times, "x")
        table.row("  the agent's own work, for each call", agent[in_flight], "us")


def show_streams(table: Table, events: Rounds[tuple[str, str]]) -> None:
    table.heading(
        "Stream events per CPU second of the client, end to end",
        "Each stream is one task, whose text comes as fast as it is read, each event a chunk of",
        "HTTP. Holdfast gives typed events and the task at the end, a2a-sdk the events alone; the",
        "task is put together from them with the function that it has for that in its server.",
    )
    for size, (_, pieces) in payloads.STREAMS.items():
        print(f"  {size} of data in each event, {pieces:,} of them in a stream")
        for name in STREAMING:
            if rates := events.get((size, name)):
                table.row(f"  {name}", rates, "/s", note=f"{1e6 / median(rates):,.1f} us an event")
        own = events[size, HOLDFAST]
        for name, target in ((SDK, None), (SDK_TASK, Target(15, at_least=True))):
            if theirs := events.get((size, name)):
                ratios = [ours / other for ours, other in zip(own, theirs, strict=True)]
                table.row(f"  holdfast / {name}", ratios, "x", target=target)


def show_paced_streams(table: Table, costs: Rounds[tuple[int, str]]) -> None:
    table.heading(
        "CPU microseconds of an event of 200 bytes that arrives alone, from socket to text",
        "Each stream brings one event a second. Bare aiohttp reads its line, and decodes it with",
        "json.loads; Holdfast yields its text, with everything on; a2a-sdk yields a typed event.",
    )
    for streams in sorted({number for number, _ in costs}):
        print(f"  {streams:,} streams")
        for name in (HOLDFAST, BARE, SDK):
            if rounds := costs.get((streams, name)):
                table.row(f"  {name}", rounds, "us")
        own = costs[streams, HOLDFAST]
        for name, target in ((BARE, Target(1.5)), (SDK, None)):
            if theirs := costs.get((streams, name)):
                ratios = [ours / other for ours, other in zip(own, theirs, strict=True)]
                table.row(f"  holdfast / {name}", ratios, "x", target=target)


def show_open_streams(table: Table, memory: Rounds[str], streams: int) -> None:
    note = "" if streams >= OPEN_STREAMS else f", as many of {OPEN_STREAMS:,} as could be opened"
    table.heading(
        f"Memory of the client for each open stream, {streams:,} of them open{note}",
        "In each of them somebody waits for the second event.",
    )
    for name, rounds in memory.items():
        table.row(name, rounds, "kB")
    beyond = _less(memory[HOLDFAST], memory[BARE])
    table.row("holdfast beyond bare aiohttp", beyond, "kB", target=Target(10))


def show_floors(table: Table, costs: Rounds[str]) -> None:
    table.heading(
        "Holdfast's own CPU microseconds in a SendMessage, without I/O",
        "The layers, outermost first, as `connect` puts them together.",
    )
    stub = costs["a stub"]
    stack = _less(costs["the stack"], stub)
    for name, rounds in costs.items():
        if name.startswith("layer "):
            table.row(f"  {name.removeprefix('layer ')}", _less(rounds, stub), "us")
    table.row("all layers", stack, "us", target=Target(15))
    timeout_at = _less(costs["timeout_at"], stub)
    table.row("to compare: asyncio.timeout_at, entered once", timeout_at, "us")
    client = _less(costs["the client over a stub"], costs["a stub for the client"])
    table.row("the client: message, ids, call", client, "us")
    binding = _less(costs["the binding"], stub)
    table.row("the binding: request, JSON-RPC, task", binding, "us")
    whole = [sum(parts) for parts in zip(client, stack, binding, strict=True)]
    table.row("everything above the engine", whole, "us")


def _less(rounds: Sequence[float], others: Sequence[float]) -> list[float]:
    return [cost - other for cost, other in zip(rounds, others, strict=True)]


def show_decoding(table: Table, costs: Rounds[tuple[str, str]]) -> None:
    table.heading(
        "Decoding a task, CPU microseconds",
        "Holdfast and protobuf make typed values, json.loads makes dicts.",
    )
    for (size, parser), rounds in sorted(costs.items(), key=lambda item: median(item[1])):
        table.row(f"{size}: {parser}", rounds, "us")


def show_imports(table: Table, costs: Rounds[str]) -> None:
    table.heading("Importing, CPU milliseconds in a new process beyond asyncio and msgspec")
    for name, rounds in costs.items():
        target = Target(15) if name == "import holdfast" else None
        table.row(name, rounds, "ms", target=target)
