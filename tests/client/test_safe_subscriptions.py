"""Whether a subscription is safe is learned from the agent, not from a layer's reply."""

from holdfast import connect
from holdfast.extend import Reply
from holdfast.testing import FakeAgent, FakeNetwork, run, streams


class Cache:
    """Answers the first GetTask from a cache, as an interceptor may."""

    def __init__(self):
        self.task = None

    async def before(self, call):
        if call.operation.name == "GetTask" and self.task is not None:
            task, self.task = self.task, None
            return Reply(value=task)
        return call

    async def after(self, call, outcome):
        return outcome


def test_wait_at_protocol_0_3_after_a_cached_reply_does_not_subscribe():
    async def main():
        agent = FakeAgent(streams("a", "b", "c", every=5.0), versions=("0.3",))
        cache = Cache()
        async with connect(agent.url, engine=FakeNetwork(agent), interceptors=[cache]) as client:
            task = await client.send_message("hi", return_immediately=True)
            cache.task = task
            done = await client.wait(task.id)
        assert done.text == "abc"
        assert "SubscribeToTask" not in [request.operation for request in agent.received]

    run(main())


def test_wait_at_protocol_0_3_does_not_subscribe():
    async def main():
        agent = FakeAgent(streams("a", "b", "c", every=5.0), versions=("0.3",))
        async with connect(agent.url, engine=FakeNetwork(agent)) as client:
            task = await client.send_message("hi", return_immediately=True)
            await client.wait(task.id)
        assert "SubscribeToTask" not in [request.operation for request in agent.received]

    run(main())
