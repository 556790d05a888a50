"""Holdfast below the SDK's client, as a caller's program uses it, for type checkers: never run."""

# What must be refused is marked as ignored; an ignored line that is right is an error as well.
# pyright: reportUnnecessaryTypeIgnoreComment=true

from collections.abc import AsyncGenerator
from typing import Unpack, assert_type

from a2a.client import Client, ClientConfig, ClientFactory
from a2a.client.client_factory import TransportProducer  # noqa: TC002  as programs do
from a2a.client.transports.base import ClientTransport  # noqa: TC002  as programs do
from a2a.types import a2a_pb2 as pb

import holdfast
from holdfast import Resilience
from holdfast.extend import Endpoints
from holdfast.integrations.a2a_sdk import (
    HoldfastClientFactory,
    HoldfastTransport,
    RetryConfig,
    TransportOptions,
    client_factory,
)


async def the_one_line_that_changes(config: ClientConfig, card: pb.AgentCard) -> None:
    factory: ClientFactory = client_factory(config)
    assert_type(factory.create(card), Client)
    assert_type(client_factory(), HoldfastClientFactory)
    assert_type(await client_factory().create_from_url("https://agent.test"), Client)
    _ = client_factory(config, retry_config=RetryConfig(max_retries=5, on_retry=told))
    _ = client_factory(config, resilience=Resilience(), shared=Endpoints(), auth="Bearer t")
    _ = client_factory(tenant="acme")  # type: ignore[call-arg]


async def told(attempt: int, error: Exception, delay: float) -> None:
    raise RuntimeError(attempt, delay) from error


def a_producer_for_the_sdks_factory(factory: ClientFactory) -> None:
    producer: TransportProducer = HoldfastTransport
    factory.register("JSONRPC", producer)
    factory.register("HTTP+JSON", HoldfastTransport)


def options_handed_on(**options: Unpack[TransportOptions]) -> HoldfastClientFactory:
    return client_factory(**options)


async def as_any_transport(card: pb.AgentCard) -> None:
    transport: ClientTransport = HoldfastTransport(
        card, "https://agent.test/rpc", protocol_binding="JSONRPC", timeout=60.0
    )
    request = pb.SendMessageRequest()
    assert_type(await transport.send_message(request), pb.SendMessageResponse)
    assert_type(transport.send_message_streaming(request), AsyncGenerator[pb.StreamResponse, None])
    async with HoldfastTransport(card, "https://agent.test/rpc") as ours:
        assert_type(ours.client, holdfast.Client)
