"""What tests need: an agent that fails as told, and time that passes at once.

from holdfast import connect
from holdfast.testing import FakeAgent, FakeNetwork, rate_limited, run

async def main():
    agent = FakeAgent()
    agent.inject(rate_limited(retry_after=30))
    client = connect(agent.url, engine=FakeNetwork(agent))
    assert (await client.ask("hello")).text == "hello"

run(main())  # takes no time

A plan says what the agent does, and a fault what goes wrong: ``FakeAgent(streams("Hello, ",
"world", every=10))`` streams an artifact in two chunks, ``inject(Cut(after_events=3))`` cuts the
next stream after the first of them. `Streaming` has what real servers do differently.
"""

from holdfast.testing.agent import FakeAgent, Received
from holdfast.testing.faults import (
    Cut,
    Delay,
    Duplicate,
    Fail,
    Fault,
    Garbage,
    Refuse,
    Reset,
    Respond,
    Stall,
    bad_gateway,
    rate_limited,
    unavailable,
)
from holdfast.testing.history import History
from holdfast.testing.journals import check_journal
from holdfast.testing.network import FakeNetwork
from holdfast.testing.plans import (
    Behaviour,
    Plan,
    Step,
    Turn,
    asks,
    completes,
    crashes,
    echo,
    fails,
    needs_auth,
    rejects,
    replies,
    streams,
    works_forever,
)
from holdfast.testing.server import LoopbackServer
from holdfast.testing.streams import Streaming
from holdfast.testing.virtualtime import (
    DeadlockError,
    OrphanTaskError,
    RealIOError,
    VirtualTimeLoop,
    run,
)

__all__ = [
    "Behaviour",
    "Cut",
    "DeadlockError",
    "Delay",
    "Duplicate",
    "Fail",
    "FakeAgent",
    "FakeNetwork",
    "Fault",
    "Garbage",
    "History",
    "LoopbackServer",
    "OrphanTaskError",
    "Plan",
    "RealIOError",
    "Received",
    "Refuse",
    "Reset",
    "Respond",
    "Stall",
    "Step",
    "Streaming",
    "Turn",
    "VirtualTimeLoop",
    "asks",
    "bad_gateway",
    "check_journal",
    "completes",
    "crashes",
    "echo",
    "fails",
    "needs_auth",
    "rate_limited",
    "rejects",
    "replies",
    "run",
    "streams",
    "unavailable",
    "works_forever",
]
