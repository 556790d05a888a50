"""Clients made and called in the words of the official SDK; see ``test_messages.py``."""

import asyncio

import msgspec
import pytest
from tests.kit.contract import SOON, contract, open_engine
from tests.kit.real_agents import LIMIT
from tests.kit.virtual_env import SystemEnv

from holdfast import (
    AgentCardResolutionError,
    AuthenticationError,
    Resilience,
    SchemeCredentials,
    connect,
)
from holdfast._pipeline.http_binding import HttpBinding
from holdfast.compat import (
    A2ACardResolver,
    AuthInterceptor,
    ClientConfig,
    ClientFactory,
    create_text_message_object,
    minimal_agent_card,
)
from holdfast.extend import Endpoints
from holdfast.policies import Limits
from holdfast.types import AgentInterface, TaskPushNotificationConfig

pytestmark = [pytest.mark.sdk, pytest.mark.real_time]

both_bindings = pytest.mark.parametrize("binding", ["JSONRPC", "HTTP+JSON"])
SCHEMES = {"header": "header key", "query": "query&key=+ü"}


class OwnBinding:
    """A custom binding: JSON-RPC at another address than the interface's."""

    def __init__(self, url, engine):
        interface = AgentInterface(url=url, protocol_binding="JSONRPC", protocol_version="1.0")
        self._endpoint = Endpoints().of(interface)
        self._binding = HttpBinding(engine, SystemEnv(), Resilience.standard(), Limits())

    async def unary(self, call, /):
        return await self._binding.unary(msgspec.structs.replace(call, endpoint=self._endpoint))

    async def close(self):
        await self._binding.close()


@contract
async def test_client_factory_follows_its_configuration(agent):
    seen, later = [], []
    async with agent, open_engine() as engine:
        config = ClientConfig(
            engine=engine,
            polling=True,
            accepted_output_modes=["text/plain"],
            push_notification_configs=[TaskPushNotificationConfig(url="http://127.0.0.1:9/push")],
            supported_protocol_bindings=[agent.binding],
            use_client_preference=True,
        )
        factory = ClientFactory(config, [lambda _event, task, _card: seen.append(task.id)])
        async with A2ACardResolver(agent.url, engine=engine) as resolver:
            card = await resolver.get_agent_card()
            assert await resolver.get_agent_card("/.well-known/agent-card.json") == card
            with pytest.raises(AgentCardResolutionError):
                await resolver.get_agent_card("/no/card/here")
        async with factory.create(card) as client:
            task = await client.send_message(create_text_message_object(content="slow 0.2 hello"))
            await client.add_event_consumer(lambda _event, task, _card: later.append(task.id))
            done = await client.wait(task.id, **SOON)
            configs = await client.list_task_push_notification_configs(task.id)
        assert (task.state.is_terminal, done.text) == (False, "hello")
        assert [config.url for config in configs.configs] == ["http://127.0.0.1:9/push"]
        assert set(seen) == set(later) == {task.id}
        assert len(seen) == len(later) + 1


@both_bindings
async def test_client_factory_of_a_minimal_card_reaches_the_extended_card(sdk_url, binding):
    path = {"JSONRPC": "/rpc", "HTTP+JSON": "/rest"}[binding]
    async with (
        asyncio.timeout(LIMIT),
        ClientFactory().create(minimal_agent_card(f"{sdk_url}{path}", [binding])) as client,
    ):
        assert (await client.get_extended_agent_card()).name == "SDK agent, extended"
        assert (await client.ask("echo hello", **SOON)).text == "hello"


async def test_client_factory_with_a_custom_binding_reaches_the_agent(sdk_url):
    async with asyncio.timeout(LIMIT), open_engine() as engine:
        factory = ClientFactory(ClientConfig(engine=engine))
        factory.register("urn:own", lambda _card, url, _config: OwnBinding(f"{url}/rpc", engine))
        card = minimal_agent_card(sdk_url, ["urn:own"])
        async with factory.create(card) as client:
            assert (await client.ask("echo hello", **SOON)).text == "hello"


async def test_auth_interceptor_that_is_added_later_authenticates_calls(sdk_url):
    url = f"{sdk_url}/needs/header+query"
    async with asyncio.timeout(LIMIT), connect(url) as client:
        with pytest.raises(AuthenticationError):
            await client.ask("echo hello")
        await client.add_request_middleware(AuthInterceptor(SchemeCredentials(SCHEMES)))
        assert (await client.ask("echo hello", **SOON)).text == "hello"
