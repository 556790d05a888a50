"""Signatures of cards over gRPC: on real sockets, in both forms of signers."""

import random

import pytest
from a2a.types import a2a_pb2 as pb
from a2a.utils.signing import create_agent_card_signer
from cryptography.hazmat.primitives import serialization
from google.protobuf.json_format import MessageToDict, ParseDict
from google.protobuf.struct_pb2 import Struct
from tests.kit.card_signing import SIGNER, document
from tests.kit.grpc_agent import card_of, grpc_agent

from holdfast import AgentCard, Resilience, connect
from holdfast._pipeline.cards.trust import received_card
from holdfast._wire.protobuf.messages import message_type
from holdfast.errors import CardSignatureError
from holdfast.extend import Endpoint, Reply
from holdfast.signatures import CardVerifier
from holdfast.types import AgentCapabilities, AgentInterface

pytestmark = pytest.mark.real_time

TRUSTED = CardVerifier(SIGNER.jwks)
PEM = SIGNER.key.private_bytes(
    serialization.Encoding.PEM,
    serialization.PrivateFormat.PKCS8,
    serialization.NoEncryption(),
).decode()
BY_SDK = create_agent_card_signer(PEM, {"alg": "ES256", "kid": SIGNER.kid, "typ": "JOSE"})

UNKNOWN = b"\xfa\x3f\x03new"
"""Field 1023, as of a newer protocol."""

NOT_ALL = "signature 1 does not match: the agent's reply may lack signed members"


def by_us(card):
    return ParseDict(SIGNER.sign(MessageToDict(card)), pb.AgentCard())


def small():
    interface = pb.AgentInterface(url="x:1", protocol_binding="GRPC", protocol_version="1.0")
    return pb.AgentCard(name="honest", supported_interfaces=[interface])


TEXTS = ("", "text", "é\u2028€", "0")
STRUCT = {"n": 1, "f": 1.5e-9, "big": 2.0**60, "e": "", "no": None, "l": [1, {}, [], True, None]}


def fill(message, chance):
    """Set the members of a message, also to their defaults; those of a oneof in turn."""
    chosen = {
        field.containing_oneof.name: chance.choice(field.containing_oneof.fields).name
        for field in message.DESCRIPTOR.fields
        if field.containing_oneof is not None
    }
    for field in message.DESCRIPTOR.fields:
        group = field.containing_oneof
        is_left_out = group is not None and chosen[group.name] != field.name
        if is_left_out or field.name == "signatures" or chance.random() < 0.2:
            continue
        value = getattr(message, field.name)
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            fill_map(value, field.message_type.fields_by_name["value"], chance)
        elif field.is_repeated:
            for _ in range(chance.randrange(3)):
                if field.message_type is None:
                    value.append(chance.choice(TEXTS))
                else:
                    fill(value.add(), chance)
        else:
            set_one(message, field, value, chance)


def fill_map(items, of_values, chance):
    for name in chance.sample(TEXTS[1:], chance.randrange(4)):
        if of_values.message_type is None:
            items[name] = chance.choice(TEXTS)
        else:
            fill(items[name], chance)


def set_one(message, field, value, chance):
    if isinstance(value, Struct):
        value.SetInParent()
        value.update(dict(chance.sample(sorted(STRUCT.items()), chance.randrange(7))))
    elif field.message_type is not None:
        value.SetInParent()
        fill(value, chance)
    else:
        is_flag = field.type == field.TYPE_BOOL
        setattr(message, field.name, chance.choice((True, False) if is_flag else TEXTS))


def filled(seed):
    card = pb.AgentCard()
    fill(card, random.Random(seed))
    card.name = "honest"
    del card.supported_interfaces[:]
    card.supported_interfaces.extend(small().supported_interfaces)
    card.supported_interfaces[0].tenant = "t" if seed % 2 else ""
    return card


class Serving:
    """An agent that serves scripted cards."""

    def __init__(self):
        self.body = b""

    async def get_card(self, request, context):
        return self.body

    async def verify(self, port, body, *, version="1.0"):
        """Return the card that a new client gets, its verification, and the document."""
        self.body = body if isinstance(body, bytes) else body.SerializeToString()
        interface = AgentInterface(
            url=f"127.0.0.1:{port}", protocol_binding="GRPC", protocol_version=version
        )
        card = AgentCard(
            name="asked",
            supported_interfaces=(interface,),
            capabilities=AgentCapabilities(extended_agent_card=True),
        )
        async with connect(card, card_verifier=TRUSTED, resilience=Resilience.off()) as client:
            got = await client.get_extended_agent_card()
            return got, client.card_verification, client.card_document


async def test_a_modified_card_is_refused():
    serving = Serving()
    async with grpc_agent(GetExtendedAgentCard=serving.get_card) as (port, _, _):
        for sign in (BY_SDK, by_us):
            card = sign(small())
            card.name = "else"
            with pytest.raises(CardSignatureError, match="does not match the card") as caught:
                await serving.verify(port, card)
            assert caught.value.outcome == "invalid"


async def test_unmodified_cards_are_verified():
    serving = Serving()
    explicit = ParseDict(SIGNER.sign(document()), pb.AgentCard())
    cards = [sign(filled(seed)) for seed in range(60) for sign in (BY_SDK, by_us)]
    async with grpc_agent(GetExtendedAgentCard=serving.get_card) as (port, _, _):
        for card in [explicit, *cards]:
            got, verification, _ = await serving.verify(port, card)
            assert (got.name, verification.outcome) == (card.name, "verified"), card


async def test_unknown_members_may_have_been_signed():
    serving = Serving()
    card = BY_SDK(small())
    honest = card.SerializeToString() + UNKNOWN
    card.name = "else"
    skill = pb.AgentSkill.FromString(pb.AgentSkill(id="s").SerializeToString() + UNKNOWN)
    inside = BY_SDK(small())
    inside.skills.append(skill)
    async with grpc_agent(GetExtendedAgentCard=serving.get_card) as (port, _, _):
        _, verification, received = await serving.verify(port, honest)
        assert (verification.outcome, received) == ("verified", None)  # without it, as the SDKs do
        for changed in (card.SerializeToString() + UNKNOWN, inside):
            _, verification, _ = await serving.verify(port, changed)
            assert verification.outcome == "unverifiable"
            assert verification.reason == NOT_ALL


async def test_a_card_of_03_may_lack_part_of_its_json():
    older = {"name": "honest", "url": "x:1", "preferredTransport": "GRPC", "version": "1"}
    changed = {**SIGNER.sign({**older, "protocolVersion": "0.3.0"}), "name": "else"}
    kind = message_type("a2a.v1", "AgentCard").cls
    serving = Serving()
    async with grpc_agent(GetAgentCard=serving.get_card) as (port, _, _):
        _, verification, received = await serving.verify(
            port, ParseDict(changed, kind()), version="0.3"
        )
    assert (verification.outcome, verification.reason, received) == ("unverifiable", NOT_ALL, None)


async def test_the_document_of_a_card_equals_its_message():
    serving = Serving()
    async with grpc_agent(GetExtendedAgentCard=serving.get_card) as (port, _, _):
        _, verification, received = await serving.verify(port, small())
    assert verification.outcome == "absent"
    assert received == MessageToDict(small())


@pytest.mark.parametrize(
    ("raw", "version"),
    [
        (b"", "1.0"),
        (b"\x0a\x05abc", "1.0"),
        (b"{}", "1.0"),
        (small().SerializeToString(), "0.3"),
    ],
)
def test_a_reply_that_is_not_a_card_of_its_version_has_no_document(raw, version):
    # A transport of the caller's own may answer with anything.
    interface = AgentInterface(url="x:1", protocol_binding="GRPC", protocol_version=version)
    reply = Reply(value=card_of("x:1"), raw=raw, endpoint=Endpoint(interface))
    assert not received_card(reply).is_whole


def test_without_the_extra_a_message_has_no_document(monkeypatch):
    def missing(*_):
        raise ImportError

    interface = AgentInterface(url="x:1", protocol_binding="GRPC", protocol_version="1.0")
    raw = small().SerializeToString()
    reply = Reply(value=card_of("x:1"), raw=raw, endpoint=Endpoint(interface))
    assert received_card(reply).is_whole
    monkeypatch.setattr("holdfast._wire.protobuf.cards.message_type", missing)
    assert not received_card(reply).is_whole
