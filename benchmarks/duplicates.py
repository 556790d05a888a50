"""Count the outcomes of 1,000 calls to a failing agent, by caller.

    python benchmarks/duplicates.py [--calls 1000] [--seed 1]

The same schedule of faults meets three callers: a naive one, which tries three times whatever the
error is; Holdfast; and Holdfast with a journal. A fault meets the first request of a call. One
reply in ten is a message, of which an agent keeps nothing that could be found again. Time is
virtual. A duplicate is a task, or an answer, that the agent made of a message that it had executed
before.

It fails if Holdfast makes a duplicate.
"""

from __future__ import annotations

import argparse
import logging
import random
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import holdfast
from holdfast import Message, Part, Resilience, Role, Timeouts
from holdfast.testing import (
    Delay,
    FakeAgent,
    FakeNetwork,
    Refuse,
    Reset,
    Stall,
    completes,
    rate_limited,
    replies,
    run,
    unavailable,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from holdfast.client import Client
    from holdfast.testing import Fault, Plan, Turn

    Send = Callable[[Client, Message], Awaitable[object]]

PATIENCE = 5.0
"""Seconds that a caller waits for the beginning of a reply."""

FAULTS: dict[str, Fault | None] = {
    "none": None,
    "refused": Refuse(),
    "reset before": Reset(),
    "reset after": Reset(after_execution=True),
    "429": rate_limited(1),
    "503": unavailable(),
    "stalled": Stall(after_execution=True),
    "late reply": Delay(seconds=PATIENCE * 2),
    "late request": Delay(seconds=PATIENCE * 2, after_execution=False),
}
WEIGHTS = (60, *(5,) * (len(FAULTS) - 1))

NAIVE = "naive: 3 tries on any error"
PLAIN = "holdfast"
KEPT = "holdfast, with a journal"


@dataclass
class Day:
    """Outcomes of the calls of one caller.

    Attributes:
        duplicates: Executions beyond the first one of each message.
        unknown_and_run: Calls reported unknown whose message was executed.
        ends: Results that the caller got.
    """

    duplicates: int
    unknown_and_run: int
    ends: Counter[str]


def behave(turn: Turn) -> Plan:
    """Answer at once, with a message if the text requests one."""
    text = turn.message.text
    return replies(text) if text == "message" else completes(text)


async def naively(client: Client, message: Message) -> object:
    """Make up to three attempts after any error."""
    for _ in range(2):
        try:
            return await client.send_message(message)
        except holdfast.A2AError:
            pass
    return await client.send_message(message)


async def by_holdfast(client: Client, message: Message) -> object:
    """Send a message."""
    return await client.send_message(message)


async def day(
    schedule: Sequence[tuple[str, bool]], send: Send, resilience: Resilience, journal: Path | None
) -> Day:
    """Make all calls of a schedule, one after the other."""
    executions: Counter[str] = Counter()

    def behaviour(turn: Turn) -> Plan:
        executions[turn.message.message_id] += 1
        return behave(turn)

    agent = FakeAgent(behaviour)
    ends: Counter[str] = Counter()
    unknown: set[str] = set()
    client = holdfast.connect(
        agent.url,
        engine=FakeNetwork(agent),
        resilience=resilience,
        timeout=60.0,
        journal=None if journal is None else f"sqlite:///{journal}",
    )
    async with client:
        await client.agent_card()
        for number, (fault, is_message) in enumerate(schedule):
            if (happens := FAULTS[fault]) is not None:
                agent.inject(happens, on="SendMessage")
            parts = (Part(text="message" if is_message else "task"),)
            message = Message(message_id=f"m-{number}", role=Role.USER, parts=parts)
            try:
                await send(client, message)
            except holdfast.OutcomeUnknownError:
                ends["unknown"] += 1
                unknown.add(message.message_id)
            except holdfast.A2AError:
                ends["failed"] += 1
            else:
                ends["answered"] += 1
    return Day(
        duplicates=sum(executions.values()) - len(executions),
        unknown_and_run=len(unknown & executions.keys()),
        ends=ends,
    )


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description="Count duplicates by who makes the calls.")
    parser.add_argument("--calls", type=int, default=1000, help="how many")
    parser.add_argument("--seed", type=int, default=1, help="of the schedule")
    options = parser.parse_args()

    logging.disable()  # there are hundreds of warnings
    dice = random.Random(options.seed)
    names = list(FAULTS)
    schedule = [
        (dice.choices(names, WEIGHTS)[0], dice.random() < 0.1) for _ in range(options.calls)
    ]
    counts = Counter(fault for fault, _ in schedule)
    # Retries are not rationed here: a budget is for an agent that is down.
    bare = Resilience(
        timeouts=Timeouts(first_byte=PATIENCE),
        retry=holdfast.RetryPolicy(max_retries=0),
        reconcile=holdfast.ReconcilePolicy(timeout=0),
        budget=None,
    )
    whole = Resilience(timeouts=Timeouts(first_byte=PATIENCE), budget=None)

    print(f"{options.calls:,} calls, seed {options.seed}; what happens to their first request:")
    print("  " + ", ".join(f"{counts[name]} {name}" for name in names))
    print(f"\n  {'':<30}{'duplicates':>11}{'answered':>10}{'unknown':>9}{'failed':>8}")
    doubled = 0
    with TemporaryDirectory() as directory:
        for name, send, resilience, journal in (
            (NAIVE, naively, bare, None),
            (PLAIN, by_holdfast, whole, None),
            (KEPT, by_holdfast, whole, Path(directory) / "calls.db"),
        ):
            made = run(day(schedule, send, resilience, journal))
            doubled += 0 if name == NAIVE else made.duplicates
            ends = (made.ends[end] for end in ("answered", "unknown", "failed"))
            answered, unknown, failed = ends
            told = f"   {made.unknown_and_run} of the unknown were executed" if unknown else ""
            print(f"  {name:<30}{made.duplicates:>11}{answered:>10}{unknown:>9}{failed:>8}{told}")
    if doubled:
        sys.exit(f"Holdfast made {doubled} duplicates")


if __name__ == "__main__":
    main()
