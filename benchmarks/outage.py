"""The load of an outage, and the time that callers need to recover from it.

    python benchmarks/outage.py [--seeds 100] [--curves docs/pictures/outage_curves.json]
    python benchmarks/outage.py --least

Many clients call one server, which fails for a while: it refuses each request at once, or accepts
requests and does not process them. Time is virtual. Only the network and the server are models:
the clients decide by Holdfast's own policies, with separate state for each client, as in separate
processes. If its circuit is open, a call that was tried before waits for the circuit, as in
Holdfast, and a new call fails. The server processes requests in order, and does not notice that a
caller has timed out: that keeps overloaded servers overloaded (Bronson et al., "Metastable
Failures in Distributed Systems", HotOS 2021).

- amplification: attempts per call during the outage.
- detection: seconds until half of the clients have stopped calling the server.
- recovery: seconds from the end of the outage to the first five seconds in which 95 % of the calls
  succeed.

It fails if a figure of the design is not reached: an amplification of at most 1.05 with the
budget and 0.5 with the breaker, and recovery from a stall of 15 s within 10 s, for every seed.
"""

from __future__ import annotations

import argparse
import gc
import heapq
import math
import random
import statistics
import sys
from collections import deque
from dataclasses import dataclass, field
from multiprocessing import Pool
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from holdfast._policy.breaker import Breaker, CallResult, Permit
from holdfast._policy.budget import RetryBudget
from holdfast._policy.retry import Retry, decide
from holdfast.errors import A2AError, A2AHTTPError, A2ATimeoutError, CircuitOpenError
from holdfast.policies import BreakerPolicy, BudgetPolicy, RetryPolicy

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

WARM_UP = 10.0
"""Seconds before the outage."""

AFTERWARDS = 120.0
"""Seconds that are simulated after it."""

PATIENCE = 1.0
TIMEOUT = A2ATimeoutError("", phase="first_byte", timeout=PATIENCE, transient=True)
REFUSED = A2AHTTPError("", http_status=503, transient=True)
DEADLINE = 10.0
"""Seconds that a call has, all attempts and waits together."""

SERVICE = 0.05
"""Seconds that the server works on a request, on average."""


@dataclass(frozen=True)
class Outage:
    """What happens.

    Attributes:
        name: What the table calls it.
        load: Share of the server that is busy before.
        kind: Whether the server refuses at once, or takes requests and does nothing.
        seconds: How long.
        clients: How many there are.
        rate: Calls a second of each.
        is_promised: Whether the design names a figure for the recovery from it.
    """

    name: str
    load: float
    kind: Literal["refusing", "stalling"]
    seconds: float = 15.0
    clients: int = 100
    rate: float = 8.0
    is_promised: bool = True


@dataclass(frozen=True)
class Strategy:
    """The policies of the clients."""

    name: str
    retries: int = 3
    budget: BudgetPolicy | None = None
    breaker: BreakerPolicy | None = None
    most_amplification: float = math.inf


OUTAGES = (
    Outage("15 s stalling, 80 % load", 0.8, "stalling"),
    Outage("15 s stalling, 90 % load", 0.9, "stalling"),
    Outage("15 s refusing, 80 % load", 0.8, "refusing"),
    Outage("15 s refusing, 90 % load", 0.9, "refusing"),
    Outage(
        "30 s stalling, 400 clients of 0.2 calls/s",
        0.8,
        "stalling",
        seconds=30.0,
        clients=400,
        rate=0.2,
        is_promised=False,
    ),
)

LEAST = Outage(
    "1 s refusing, 10 clients", 0.8, "refusing", seconds=1.0, clients=10, is_promised=False
)

STRATEGIES = (
    Strategy("no retry", retries=0),
    Strategy("3 retries"),
    Strategy("3 retries, budget", budget=BudgetPolicy(), most_amplification=1.05),
    Strategy(
        "3 retries, budget, breaker",
        budget=BudgetPolicy(),
        breaker=BreakerPolicy(),
        most_amplification=0.5,
    ),
)
HEADING = """\
| clients have | amplification, worst | detection, median | recovery, median | worst |
|---|---|---|---|---|"""

CURVE_SECONDS = 100
"""Seconds of a curve, from the warm-up on."""


@dataclass
class Call:
    """One call of a client, at one of its attempts."""

    client: Client
    began: float
    attempt: int = 1
    tried: float = 0.0
    permit: Permit | None = None
    is_over: bool = False


@dataclass
class Client:
    """The state of one client."""

    budget: RetryBudget | None
    breaker: Breaker | None


@dataclass
class Seconds:
    """Counters by second."""

    counts: dict[int, int] = field(default_factory=dict[int, int])

    def add(self, moment: float) -> None:
        """Counts what happens at a moment."""
        second = math.floor(moment)
        self.counts[second] = self.counts.get(second, 0) + 1

    def between(self, first: float, last: float) -> int:
        """Return the count from one full second up to another one."""
        return sum(self.counts.get(second, 0) for second in range(int(first), int(last)))


@dataclass(frozen=True)
class Outcome:
    """Outcomes of one run.

    Attributes:
        amplification: Attempts per call during the outage.
        detection: Seconds until half of the clients have stopped calling; infinity for never.
        recovery: Seconds from the end of the outage until calls succeed; infinity for never.
        goodput: Share of successful calls by the second in which they began.
    """

    amplification: float
    detection: float
    recovery: float
    goodput: tuple[float, ...]


class Simulation:
    """One run."""

    def __init__(self, outage: Outage, strategy: Strategy, seed: int) -> None:
        self.outage = outage
        self.now = 0.0
        self._random = random.Random(seed)
        self._events: list[tuple[float, int, Callable[..., None], Call | Client | None]] = []
        self._planned = 0
        self._policy = RetryPolicy(max_retries=strategy.retries)
        self._workers = round(outage.clients * outage.rate * SERVICE / outage.load)
        self._busy = 0
        self._queue: deque[Call] = deque()
        self._stalled: list[Call] = []
        self._end = WARM_UP + outage.seconds
        self._stop = self._end + AFTERWARDS
        self.offered, self.good, self.attempts = Seconds(), Seconds(), Seconds()
        self._noticed: dict[int, float] = {}
        for _ in range(outage.clients):
            budget, breaker = strategy.budget, strategy.breaker
            client = Client(
                None if budget is None else RetryBudget(budget, now=0.0),
                None if breaker is None else Breaker(breaker),
            )
            self._at(self._random.expovariate(outage.rate), self._call, client)
        self._at(self._end, self._come_back, None)

    def run(self) -> Outcome:
        """Run it to its end."""
        while self._events:
            self.now, _, happens, subject = heapq.heappop(self._events)
            if self.now > self._stop + DEADLINE:
                break
            happens(subject)
        self._events.clear()  # they know this object
        noticed = sorted(self._noticed.values())
        half = self.outage.clients // 2
        outage = (WARM_UP, self._end)
        return Outcome(
            amplification=self.attempts.between(*outage) / self.offered.between(*outage),
            detection=noticed[half] if len(noticed) > half else math.inf,
            recovery=self._recovery(),
            goodput=tuple(
                self.good.between(second, second + 1)
                / max(1, self.offered.between(second, second + 1))
                for second in range(int(self._stop))
            ),
        )

    def _recovery(self) -> float:
        for first in range(math.ceil(self._end), int(self._stop) - 5):
            five = (first, first + 5)
            if self.good.between(*five) >= 0.95 * self.offered.between(*five):
                return first - self._end
        return math.inf

    def _at(
        self, when: float, happens: Callable[..., None], subject: Call | Client | None
    ) -> None:
        self._planned += 1  # what happens at the same moment happens in this order
        heapq.heappush(self._events, (when, self._planned, happens, subject))

    @property
    def _is_away(self) -> bool:
        return WARM_UP <= self.now < self._end

    # ── Clients ──────────────────────────────────────────────────────────────────────────────

    def _call(self, client: Client) -> None:
        """A client begins a call, and thinks of the next one."""
        if self.now < self._stop:
            self._at(self.now + self._random.expovariate(self.outage.rate), self._call, client)
        self.offered.add(self.now)
        self._attempt(Call(client, self.now))

    def _attempt(self, call: Call) -> None:
        breaker = call.client.breaker
        if breaker is not None:
            call.permit = breaker.acquire(now=self.now)
            if call.permit is None:
                if call.attempt > 1:  # a call that was tried once waits for the circuit
                    self._think(call, _refusal(breaker.retry_after(now=self.now)))
                return
        call.tried = self.now
        self.attempts.add(self.now)
        self._arrive(call)

    def _answered(self, call: Call) -> None:
        if call.is_over:
            return  # its caller has left
        call.is_over = True
        self.good.add(call.began)
        client = call.client
        if client.budget is not None:
            client.budget.succeeded()
        if client.breaker is not None:
            self._settle(client.breaker, call, "success")

    def _timed_out(self, call: Call) -> None:
        if call.is_over:
            return
        if self.now < call.tried + PATIENCE:  # its own deadline is over, which says nothing
            call.is_over = True
            if call.client.breaker is not None:
                self._settle(call.client.breaker, call, None)
            return
        self._failed(call, TIMEOUT)

    def _refused(self, call: Call) -> None:
        self._failed(call, REFUSED)

    def _failed(self, call: Call, error: A2AError) -> None:
        call.is_over = True
        client, now = call.client, self.now
        within_budget = client.budget is None or client.budget.failed(now=now)
        if client.breaker is not None:
            self._settle(client.breaker, call, "failure")
            if self._is_away and client.breaker.state(now=now) == "open":
                self._noticed.setdefault(id(client), now - WARM_UP)
        if within_budget:
            self._think(call, error)

    def _think(self, call: Call, error: A2AError) -> None:
        """A client thinks about trying a call again."""
        decision = decide(
            self._policy,
            error,
            safety="read",
            attempt=call.attempt,
            time_left=call.began + DEADLINE - self.now,
            draw=self._random.random(),
        )
        if isinstance(decision, Retry):
            again = Call(call.client, call.began, call.attempt + 1)
            self._at(self.now + decision.delay, self._attempt, again)

    def _settle(self, breaker: Breaker, call: Call, verdict: CallResult | None) -> None:
        if call.permit is not None:
            duration, draw = self.now - call.tried, self._random.random()
            breaker.settle(
                call.permit, verdict, duration=duration, now=self.now, draw=lambda: draw
            )

    # ── The server ───────────────────────────────────────────────────────────────────────────

    def _arrive(self, call: Call) -> None:
        if self._is_away and self.outage.kind == "refusing":
            self._at(self.now + 0.002, self._refused, call)
            return
        self._at(min(self.now + PATIENCE, call.began + DEADLINE), self._timed_out, call)
        if self._busy < self._workers and not self._is_away:
            self._work(call)
        else:
            self._queue.append(call)

    def _work(self, call: Call) -> None:
        self._busy += 1
        self._at(self.now + self._random.expovariate(1 / SERVICE), self._done, call)

    def _done(self, call: Call) -> None:
        if self._is_away and self.outage.kind == "stalling":
            self._stalled.append(call)
            return
        self._busy -= 1
        self._answered(call)
        if self._queue:
            self._work(self._queue.popleft())

    def _come_back(self, _: None) -> None:
        for call in self._stalled:
            self._at(self.now + self._random.expovariate(1 / SERVICE), self._done, call)
        while self._queue and self._busy < self._workers:
            self._work(self._queue.popleft())


def _refusal(retry_after: float | None) -> CircuitOpenError:
    return CircuitOpenError("", executed=False, transient=True, retry_after=retry_after)


def simulate(run: tuple[Outage, Strategy, int]) -> Outcome:
    """Simulate one run."""
    gc.disable()  # there is much to look through, and none of it is garbage
    try:
        return Simulation(*run).run()
    finally:
        gc.enable()


def main(arguments: Iterable[str] | None = None) -> int:
    """Print the table; return 1 if a target is missed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seeds", type=int, default=100, help="runs of each (default 100)")
    parser.add_argument("--least", action="store_true", help="show that it runs, and no figures")
    parser.add_argument("--curves", type=Path, metavar="FILE", help="where to write the curves")
    options = parser.parse_args(None if arguments is None else list(arguments))
    if options.seeds < 1:
        parser.error("--seeds must be at least 1")
    if options.curves and options.least:
        parser.error("--least has no curves")
    if options.curves and not options.curves.parent.is_dir():
        parser.error(f"--curves: there is no directory {options.curves.parent}")
    outcomes: dict[tuple[str, str], list[Outcome]] = {}
    missed: list[str] = []
    outages, number = ((LEAST,), 1) if options.least else (OUTAGES, options.seeds)
    with Pool(1 if options.least else None) as pool:
        for outage in outages:
            print(f"\n{outage.name}\n")
            print(HEADING)
            for strategy in STRATEGIES:
                seeds = [(outage, strategy, seed) for seed in range(number)]
                several = outcomes[outage.name, strategy.name] = pool.map(simulate, seeds, 1)
                print(row(strategy, several), flush=True)
                missed += failures(outage, strategy, several)
    if options.curves:
        options.curves.write_text(curves(outcomes), encoding="utf-8")
    print("", *missed, sep="\n")
    return 1 if missed else 0


def row(strategy: Strategy, several: list[Outcome]) -> str:
    """Return one line of the table."""
    worst = max(one.amplification for one in several)
    detection = statistics.median(one.detection for one in several)
    recoveries = [one.recovery for one in several]
    cells = [
        strategy.name,
        f"{worst:.2f}",
        shown(detection),
        shown(statistics.median(recoveries)),
        shown(max(recoveries)),
    ]
    return f"| {' | '.join(cells)} |"


def shown(seconds: float) -> str:
    """Format seconds for people."""
    return "never" if math.isinf(seconds) else f"{seconds:.1f} s"


def failures(outage: Outage, strategy: Strategy, several: list[Outcome]) -> list[str]:
    """Return the missed targets."""
    if not outage.is_promised:
        return []
    missed: list[str] = []
    worst = max(one.amplification for one in several)
    if worst > strategy.most_amplification:
        missed.append(f"missed: {outage.name}, {strategy.name}: amplification {worst:.2f}")
    slowest = max(one.recovery for one in several)
    if strategy.breaker is not None and slowest > 10:
        missed.append(f"missed: {outage.name}, {strategy.name}: recovery {shown(slowest)}")
    return missed


def curves(outcomes: dict[tuple[str, str], list[Outcome]]) -> str:
    """Return the mean percentage of successful calls by second, as the page's picture reads it."""
    blocks: dict[str, list[str]] = {}
    for (outage, strategy), several in outcomes.items():
        by_second = zip(*(one.goodput[:CURVE_SECONDS] for one in several), strict=True)
        percents = ", ".join(f"{round(100 * statistics.fmean(each), 1):g}" for each in by_second)
        blocks.setdefault(outage, []).append(f'    "{strategy}": [{percents}]')
    lines = (f'  "{outage}": {{\n' + ",\n".join(rows) + "\n  }" for outage, rows in blocks.items())
    return "{\n" + ",\n".join(lines) + "\n}\n"


if __name__ == "__main__":
    sys.exit(main())
