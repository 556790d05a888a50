"""Push notifications that a real agent on the official SDK sends, over real sockets.

It sends the token of a configuration, never its credentials, and each event once.
"""

import asyncio
import contextlib

import pytest
from tests.kit.asgi_server import serving
from tests.kit.real_agents import LIMIT

from holdfast import TaskState, connect
from holdfast.compat import ClientConfig, ClientFactory
from holdfast.extend import HttpRequest
from holdfast.push import PushReceiver

pytestmark = [pytest.mark.sdk, pytest.mark.real_time]

everywhere = pytest.mark.parametrize("binding", ["JSONRPC", "HTTP+JSON"])


class Recorded:
    """The receiver, and how it answered."""

    def __init__(self, url):
        self.receiver = PushReceiver(f"{url}/push")
        self.statuses = []

    async def __call__(self, scope, receive, send):
        async def noted(message):
            if message["type"] == "http.response.start":
                self.statuses.append(message["status"])
            await send(message)

        await self.receiver(scope, receive, noted)


@contextlib.asynccontextmanager
async def told_by(sdk_url, binding, **options):
    async with (
        asyncio.timeout(LIMIT),
        serving(Recorded) as app,
        connect(sdk_url, bindings=[binding], **options) as client,
    ):
        yield client, app.receiver, app


@everywhere
async def test_an_agent_tells_how_a_task_goes(sdk_url, binding):
    async with told_by(sdk_url, binding) as (client, receiver, app):
        config = receiver.config()
        task = await client.send_message(
            "slow 0.1 hello", push_notification_config=config, return_immediately=True
        )
        receiver.expect(task, config)
        done = await receiver.wait(task.id)
        confirmed = await receiver.wait(task.id, client=client)
        real = await client.get_task(task.id)

    assert not task.state.is_terminal
    assert done.text == confirmed.text == "hello"
    assert done.state is TaskState.COMPLETED
    assert confirmed == real
    assert set(app.statuses) == {200}


@everywhere
async def test_what_an_agent_tells_before_its_task_is_expected_is_not_lost(sdk_url, binding):
    async with told_by(sdk_url, binding) as (client, receiver, app):
        config = receiver.config()
        task = await client.send_message("slow 0.1 hello", push_notification_config=config)
        receiver.expect(task.id, config)
        done = await receiver.wait(task.id)

    assert (task.state, done.state, done.text) == (TaskState.COMPLETED, task.state, "hello")
    assert set(app.statuses) == {200}


@everywhere
async def test_a_long_answer_comes_whole(sdk_url, binding):
    async with told_by(sdk_url, binding) as (client, receiver, _):
        config = receiver.config()
        task = await client.send_message(
            "chunks 30", push_notification_config=config, return_immediately=True
        )
        receiver.expect(task, config)
        done = await receiver.wait(task.id, client=client)

    assert done.text == "".join(f"chunk {number}\n" for number in range(1, 31))


@everywhere
async def test_a_configuration_that_is_made_later_is_delivered_to_as_well(sdk_url, binding):
    async with told_by(sdk_url, binding) as (client, receiver, app):
        asked = await client.send_message("ask how far?")
        config = receiver.config(asked.id)
        created = await client.create_task_push_notification_config(config)
        receiver.expect(asked)
        question = await receiver.wait(asked.id)
        found = await client.get_task_push_notification_config(asked.id, config.id)
        listed = await client.list_task_push_notification_configs(asked.id)
        answered = await client.send_message("very", task_id=asked.id, return_immediately=True)
        receiver.expect(answered)
        done = await receiver.wait(asked.id)

    assert created == found == config
    assert listed.configs == (config,)
    assert question.state is TaskState.INPUT_REQUIRED
    assert (done.state, done.text) == (TaskState.COMPLETED, "very")
    assert set(app.statuses) == {200}


async def test_a_configuration_that_is_deleted_is_delivered_to_no_more(sdk_url):
    async with told_by(sdk_url, "JSONRPC") as (client, receiver, app):
        asked = await client.send_message("ask how far?")
        config = receiver.config(asked.id)
        await client.create_task_push_notification_config(config)
        receiver.expect(asked)
        await client.delete_task_push_notification_config(asked.id, config.id)
        done = await client.ask("very", task_id=asked.id)

    assert done.text == "very"
    assert app.statuses == []
    assert receiver.get_task(asked.id).state is TaskState.INPUT_REQUIRED


async def test_result_for_another_task_is_refused(sdk_url):
    async with told_by(sdk_url, "JSONRPC") as (client, receiver, app):
        config = receiver.config("another")
        answer = await client.ask("echo hello", push_notification_config=config)

    assert answer.text == "hello"
    assert set(app.statuses) == {404}
    assert receiver.get_task("another") is None


async def test_the_configuration_of_a_factory_goes_along_with_its_message(sdk_url):
    async with asyncio.timeout(LIMIT), serving(Recorded) as app:
        config = app.receiver.config()
        factory = ClientFactory(ClientConfig(push_notification_configs=[config], polling=True))
        async with connect(sdk_url) as found:
            card = await found.agent_card()
        async with factory.create(card) as client:
            task = await client.send_message("slow 0.1 hello")
            app.receiver.expect(task, config)
            done = await app.receiver.wait(task.id, client=client)

    assert done.text == "hello"


async def test_a_stranger_on_the_network_is_refused(sdk_url):
    from holdfast import AiohttpEngine

    async with told_by(sdk_url, "JSONRPC") as (_, receiver, _):
        engine = AiohttpEngine(proxies=False)
        headers = {"content-type": "application/json"}
        request = HttpRequest(method="POST", url=receiver.url, headers=headers, body=b"{}")
        reply = await engine.request(request)
        await engine.close()

    assert reply.status == 401
