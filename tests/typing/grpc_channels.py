"""What callers write of gRPC, for the type checkers."""

from typing import assert_type

from grpc import aio

from holdfast import Client, connect
from holdfast.compat import ClientConfig, ClientFactory, minimal_agent_card


def channel_for(url: str) -> aio.Channel:
    return aio.insecure_channel(url)


assert_type(connect("https://a.test", url="grpcs://a.test", bindings=["GRPC"]), Client)
assert_type(connect("https://a.test", grpc_channel_factory=channel_for), Client)
CARD = minimal_agent_card("a.test:50051", ["GRPC"])
CONFIG = ClientConfig(supported_protocol_bindings=["GRPC"], grpc_channel_factory=channel_for)
assert_type(ClientFactory(CONFIG).create(CARD), Client)
assert_type(ClientFactory(CONFIG).create(CARD, grpc_channel_factory=channel_for), Client)
