"""Where trust could be had too cheaply, or lost for good: keys, tokens, and who asks for them."""

import asyncio
import json

import jwt
from cryptography.hazmat.primitives.asymmetric import rsa
from tests.kit.card_signing import CARD, KEYS_URL, SIGNER, Net, Signer, document

from holdfast import connect
from holdfast.signatures import CardVerifier

# ── Keys of cards ────────────────────────────────────────────────────────────────────────────


async def test_a_key_set_that_holds_private_keys_verifies_by_the_public_ones():
    signer = Signer("k-rsa", rsa.generate_private_key(65537, 2048), "RS256")
    whole = json.loads(jwt.get_algorithm_by_name("RS256").to_jwk(signer.key))
    net = Net(pages={KEYS_URL: {"keys": [{**whole, "kid": "k-rsa"}]}})

    card = signer.sign(document())
    async with connect(card, engine=net, card_verifier=CardVerifier(KEYS_URL)) as client:
        await client.agent_card()
        assert client.card_verification.outcome == "verified"


async def test_a_card_whose_key_comes_later_is_verified_then_though_it_has_not_changed():
    net = Net(pages={KEYS_URL: Signer("old").jwks, CARD: SIGNER.sign(document())})

    verifier = CardVerifier(KEYS_URL)
    async with connect(
        "http://agent.test", engine=net, card_verifier=verifier, card_ttl=60.0
    ) as client:
        await client.agent_card()
        assert client.card_verification.outcome == "unverifiable"
        net.pages[KEYS_URL] = SIGNER.jwks
        await asyncio.sleep(61)
        await client.agent_card()
        assert client.card_verification.outcome == "verified"
