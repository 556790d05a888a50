"""The request that finds out the encoding of files does not count as an attempt to send."""

import pytest

from holdfast import Part, connect
from holdfast.errors import A2AError, OutcomeUnknownError
from holdfast.testing import FakeAgent, FakeNetwork, Refuse, Reset, run

FILE = Part(raw=b"\x00\x01", media_type="image/png")


def agent_of_v03(refusals):
    agent = FakeAgent(versions=("0.3",), bindings=("HTTP+JSON",))
    agent.inject(Reset(), on="GetTask")  # of the probe
    agent.inject(Refuse(), on="SendMessage", times=refusals)
    return agent


def test_message_refused_after_a_lost_probe_is_sent_again():
    async def main():
        agent = agent_of_v03(refusals=1)
        async with connect(agent.url, engine=FakeNetwork(agent)) as client:
            await client.send_message(FILE)

    run(main())


def test_message_never_sent_after_a_lost_probe_has_a_known_outcome():
    async def main():
        agent = agent_of_v03(refusals=20)
        async with connect(agent.url, engine=FakeNetwork(agent)) as client:
            with pytest.raises(A2AError) as raised:
                await client.send_message(FILE)
        assert "SendMessage" not in {request.operation for request in agent.received}
        assert not isinstance(raised.value, OutcomeUnknownError), raised.value
        assert raised.value.executed is False

    run(main())
