"""Facts of errors: the agent is named wherever the call failed."""

import json

import pytest

from holdfast import DeadlineExceededError, TaskFailedError, connect
from holdfast.errors import InvalidAgentCardError, InvalidAgentResponseError
from holdfast.extend import HttpReply
from holdfast.testing import FakeAgent, FakeNetwork, fails, works_forever


def connected(agent, network=None, **options):
    return connect(agent.url, engine=network or FakeNetwork(agent), **options)


class Answering(FakeNetwork):
    """Answers requests whose body has a method in place of the agent."""

    def __init__(self, agent, method, answer):
        super().__init__(agent)
        self.method = method
        self.answer = answer

    async def request(self, request):
        if self.method not in request.body:
            return await super().request(request)
        document = {"jsonrpc": "2.0", "id": json.loads(request.body)["id"], **self.answer()}
        return HttpReply(status=200, body=json.dumps(document).encode())


async def test_the_deadline_error_of_a_wait_names_the_agent():
    with pytest.raises(DeadlineExceededError) as caught:
        await connected(FakeAgent(works_forever())).ask("hello", timeout=7)

    assert caught.value.agent == "http://agent.test/rpc"


async def test_the_error_of_a_failed_task_names_the_agent():
    with pytest.raises(TaskFailedError) as caught:
        await connected(FakeAgent(fails("no"))).ask("hello")

    assert caught.value.agent == "http://agent.test/rpc"


async def test_the_error_of_an_invalid_extended_card_names_the_agent():
    agent = FakeAgent()
    network = Answering(agent, b"GetExtendedAgentCard", lambda: {"result": {}})

    with pytest.raises(InvalidAgentCardError) as caught:
        await connected(agent, network).get_extended_agent_card()

    assert caught.value.agent == "http://agent.test/rpc"


async def test_a_list_of_empty_pages_ends():
    agent, pages = FakeAgent(), iter(range(3000))
    answer = lambda: {"result": {"tasks": [], "nextPageToken": str(next(pages))}}  # noqa: E731

    with pytest.raises(InvalidAgentResponseError, match="empty pages"):
        async for _ in connected(agent, Answering(agent, b"ListTasks", answer)).iter_tasks():
            pass
