"""A test kit: an agent that fails on demand, and virtual time.

Test a caller against rate limiting::

    from holdfast import connect
    from holdfast.testing import FakeAgent, FakeNetwork, rate_limited, run


    async def main():
        agent = FakeAgent()
        agent.inject(rate_limited(retry_after=30))
        client = connect(agent.url, engine=FakeNetwork(agent))
        assert (await client.ask("hello")).text == "hello"


    run(main())  # takes no time

A plan is the course of a task, and a fault is a failure on the way: ``FakeAgent(streams("Hello, ",
"world", every=10))`` streams an artifact in two chunks, ``inject(Cut(after_events=3))`` cuts the
next stream after the first three events. `Streaming` has the differences of real servers.

Importing this package is cheap, because pytest imports it for the plugin: a name is loaded when it
is first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast._public import publish

if TYPE_CHECKING:
    from holdfast._testing.agent import FakeAgent, Received
    from holdfast._testing.asgi import AsgiNetwork
    from holdfast._testing.consistency import ConsistencyChecker
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
    from holdfast._testing.in_process import (
        InProcessClients,
        make_test_client_factory,
        make_test_rest_client_factory,
    )
    from holdfast._testing.journals import check_journal
    from holdfast._testing.network import FakeNetwork
    from holdfast._testing.operations import ContextHandling
    from holdfast._testing.parsed_request_v03 import V03FileEncoding
    from holdfast._testing.plans import (
        Behaviour,
        Plan,
        ReceivedMessage,
        Step,
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
    from holdfast._testing.virtual_time import (
        DeadlockError,
        OrphanTaskError,
        RealIOError,
        VirtualTimeLoop,
        run,
    )

__all__ = [
    "AsgiNetwork",
    "Behaviour",
    "ConsistencyChecker",
    "ContextHandling",
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
    "InProcessClients",
    "LoopbackServer",
    "OrphanTaskError",
    "Plan",
    "RealIOError",
    "Received",
    "ReceivedMessage",
    "Refuse",
    "Reset",
    "Respond",
    "Stall",
    "Step",
    "Streaming",
    "V03FileEncoding",
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

__getattr__, __dir__ = publish(
    __name__,
    {
        "_testing.agent": "FakeAgent Received",
        "_testing.asgi": "AsgiNetwork",
        "_testing.faults": (
            "Cut Delay Duplicate Fail Fault Garbage Refuse Reset Respond Stall bad_gateway "
            "rate_limited unavailable"
        ),
        "_testing.consistency": "ConsistencyChecker",
        "_testing.in_process": (
            "InProcessClients make_test_client_factory make_test_rest_client_factory"
        ),
        "_testing.journals": "check_journal",
        "_testing.network": "FakeNetwork",
        "_testing.operations": "ContextHandling",
        "_testing.parsed_request_v03": "V03FileEncoding",
        "_testing.plans": (
            "Behaviour Plan ReceivedMessage Step asks completes crashes echo fails needs_auth "
            "rejects replies streams works_forever"
        ),
        "_testing.proxy": "FaultProxy",
        "_testing.server": "LoopbackServer pick_free_port",
        "_testing.streaming": "Streaming",
        "_testing.virtual_time": "DeadlockError OrphanTaskError RealIOError VirtualTimeLoop run",
    },
)
