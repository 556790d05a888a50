"""Clients of the official SDK whose transport is Holdfast's."""

import asyncio

from a2a.client import ClientConfig
from a2a.client.errors import A2AClientTimeoutError
from a2a.client.transports.base import ClientTransport
from a2a.types import a2a_pb2 as pb
from tests.kit.virtual_env import Dice

from holdfast.integrations.a2a_sdk import HoldfastTransport, client_factory
from holdfast.testing import FakeNetwork

PATHS = {"JSONRPC": "/rpc", "HTTP+JSON": "/rest"}


def card_of(agent, *bindings, tenant="", version="1.0"):
    return pb.AgentCard(
        name="Fake agent",
        version="1",
        supported_interfaces=[
            pb.AgentInterface(
                url=agent.url + PATHS[binding],
                protocol_binding=binding,
                protocol_version=version,
                tenant=tenant,
            )
            for binding in bindings or PATHS
        ],
        capabilities=pb.AgentCapabilities(
            streaming=True, push_notifications=True, extended_agent_card=True
        ),
    )


def said(text="hello", **more):
    part = pb.Part(text=text)
    return pb.SendMessageRequest(
        message=pb.Message(message_id="m-1", role=pb.ROLE_USER, parts=[part]), **more
    )


def transport_of(agent, binding="JSONRPC", *, config=None, **options):
    options.setdefault("engine", FakeNetwork(agent))
    options.setdefault("env", Dice())
    url = agent.url + PATHS[binding]
    return HoldfastTransport(card_of(agent), url, config, protocol_binding=binding, **options)


def client_of(agent, binding="JSONRPC", *, streaming=True, interceptors=(), card=None, **options):
    options.setdefault("engine", FakeNetwork(agent))
    options.setdefault("env", Dice())
    config = ClientConfig(supported_protocol_bindings=[binding], streaming=streaming)
    factory = client_factory(config, **options)
    return factory.create(card or card_of(agent, binding), list(interceptors))


async def collected(events):
    return [event async for event in events]


def text_of(events):
    """The text of the artifacts, as a program puts it together that knows nothing of repeats."""
    text = ""
    for event in events:
        if event.HasField("artifact_update"):
            update = event.artifact_update
            piece = "".join(part.text for part in update.artifact.parts)
            text = text + piece if update.append else piece
        elif event.HasField("task"):
            text = "".join(p.text for a in event.task.artifacts for p in a.parts) or text
    return text


def now():
    return asyncio.get_running_loop().time()


def tasks_made(agent):
    return {message: len(tasks) for message, tasks in agent.executions.items()}


class Own(ClientTransport):
    """A third party's transport, which fails the first two times."""

    def __init__(self, card, url, config):
        self.asked = 0
        self.is_closed = False
        self.given = (card, url, config)

    async def get_task(self, request, *, context=None):
        self.asked += 1
        if self.asked < 3:
            raise A2AClientTimeoutError("too late")
        return pb.Task(id=request.id)

    async def close(self):
        self.is_closed = True


for name in ClientTransport.__abstractmethods__ - {"get_task", "close"}:
    setattr(Own, name, None)
Own.__abstractmethods__ = frozenset()
