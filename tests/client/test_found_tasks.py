"""The task of a lost reply: its text is returned, or an error says that it was not fetched."""

import pytest

from holdfast import connect
from holdfast.errors import A2AError
from holdfast.testing import Fail, FakeAgent, FakeNetwork, Garbage, Reset, Respond, completes, run

FAULTS = {
    "garbage": Garbage(after_execution=True),
    "refused by a proxy": Respond(status=403),
    "another layer's error": Fail(code=-32603),
}


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS)
@pytest.mark.parametrize("name", ["ask", "stream", "send"])
def test_found_task_that_cannot_be_fetched_is_no_empty_answer(name, fault):
    async def main():
        agent = FakeAgent(completes("the answer"))
        agent.inject(Reset(after_execution=True))
        agent.inject(fault, on="GetTask", times=1)
        async with connect(agent.url, engine=FakeNetwork(agent)) as client:
            try:
                if name == "ask":
                    text = (await client.ask("hi")).text
                elif name == "send":
                    text = (await client.send_message("hi")).text
                else:
                    async with client.stream_message("hi") as events:
                        text = "".join([piece async for piece in events.text_deltas()])
            except A2AError as error:
                return error
        return text

    outcome = run(main())
    if isinstance(outcome, A2AError):
        assert outcome.executed is not False
        assert "task-1" in str(outcome)
    else:
        assert outcome == "the answer"
