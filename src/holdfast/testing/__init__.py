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

Importing this package is cheap, as pytest does it for the plugin: a name is loaded when it is
first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from holdfast._testing.agent import FakeAgent, Received
    from holdfast._testing.asgi import AsgiNetwork
    from holdfast._testing.faults import (
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
    from holdfast._testing.history import History
    from holdfast._testing.in_process import (
        InProcessClients,
        make_test_client_factory,
        make_test_rest_client_factory,
    )
    from holdfast._testing.journals import check_journal
    from holdfast._testing.network import FakeNetwork
    from holdfast._testing.plans import (
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
    from holdfast._testing.proxy import FaultProxy
    from holdfast._testing.server import LoopbackServer, pick_free_port
    from holdfast._testing.streaming import Streaming
    from holdfast._testing.virtualtime import (
        DeadlockError,
        OrphanTaskError,
        RealIOError,
        VirtualTimeLoop,
        run,
    )

__all__ = [
    "AsgiNetwork",
    "Behaviour",
    "Cut",
    "DeadlockError",
    "Delay",
    "Duplicate",
    "Fail",
    "FakeAgent",
    "FakeNetwork",
    "Fault",
    "FaultProxy",
    "Garbage",
    "History",
    "InProcessClients",
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
    "make_test_client_factory",
    "make_test_rest_client_factory",
    "needs_auth",
    "pick_free_port",
    "rate_limited",
    "rejects",
    "replies",
    "run",
    "streams",
    "unavailable",
    "works_forever",
]

_MODULES = (
    "virtualtime",
    "faults",
    "plans",
    "streaming",
    "agent",
    "network",
    "server",
    "asgi",
    "in_process",
    "proxy",
    "history",
    "journals",
)


def __getattr__(name: str) -> Any:
    if name in __all__:
        for module in _MODULES:
            home = import_module(f"holdfast._testing.{module}")
            if name in home.__all__:
                value = globals()[name] = getattr(home, name)
                return value
    message = f"module 'holdfast.testing' has no attribute {name!r}"
    raise AttributeError(message)


def __dir__() -> list[str]:
    return __all__
