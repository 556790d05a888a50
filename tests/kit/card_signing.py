"""Signed cards for tests: keys, signers, and a network with pages of its own."""

import asyncio
import copy
import json

import jwt
from a2a.types import AgentCard as ProtobufCard
from a2a.utils.signing import create_agent_card_signer
from cryptography.hazmat.primitives.asymmetric import ec
from google.protobuf.json_format import ParseDict

from holdfast._pipeline.cards.trust import AcceptedCard, ReceivedCard
from holdfast.extend import HttpReply
from holdfast.signatures import CardVerification, sign_card
from holdfast.testing import FakeNetwork

KEYS_URL = "https://keys.test/jwks.json"
CARD = "http://agent.test/.well-known/agent-card.json"

DOCUMENT = {
    "name": "Signed",
    "description": "An agent that is who it says",
    "version": "1.0.0",
    "supportedInterfaces": [
        {
            "url": "http://agent.test/rpc",
            "protocolBinding": "JSONRPC",
            "protocolVersion": "1.0",
            "tenant": "",
        }
    ],
    "provider": {"url": "https://provider.test", "organization": "Provider"},
    "capabilities": {
        "streaming": True,
        "pushNotifications": False,
        "extendedAgentCard": True,
        "extensions": [
            {
                "uri": "urn:x",
                "required": False,
                "params": {"n": 1, "f": 1.5e-9, "big": 2**60, "e": "", "u": "é\u2028€"},
            }
        ],
    },
    "securitySchemes": {
        "oauth": {
            "oauth2SecurityScheme": {
                "flows": {
                    "clientCredentials": {
                        "tokenUrl": "https://id.test/token",
                        "scopes": {"read": "Read"},
                    }
                }
            }
        }
    },
    "securityRequirements": [{"schemes": {"oauth": {"list": ["read"]}}}],
    "defaultInputModes": ["text/plain"],
    "defaultOutputModes": ["text/plain"],
    "skills": [{"id": "s", "name": "Skill", "description": "", "tags": []}],
}
"""A card with explicit defaults, empty members, and numbers of every form."""


def document(**members):
    return {**copy.deepcopy(DOCUMENT), **members}


def unsigned(card):
    """A card that may be used, as the client keeps it."""
    nothing = CardVerification(outcome="absent")
    return AcceptedCard(card, nothing, ReceivedCard.of(card))


class Signer:
    """Somebody with a key."""

    def __init__(self, kid="k-1", key=None, algorithm="ES256"):
        self.kid = kid
        self.key = ec.generate_private_key(ec.SECP256R1()) if key is None else key
        self.algorithm = algorithm

    @property
    def jwk(self):
        algorithm = jwt.get_algorithm_by_name(self.algorithm)
        return {**json.loads(algorithm.to_jwk(self.key.public_key())), "kid": self.kid}

    @property
    def jwks(self):
        return {"keys": [self.jwk]}

    def sign(self, card, **options):
        return sign_card(card, self.key, key_id=self.kid, algorithm=self.algorithm, **options)


SIGNER = Signer()


class Net(FakeNetwork):
    """A network with pages of its own, some of which take their time."""

    def __init__(self, *agents, pages=None, takes=None, **options):
        super().__init__(*agents, **options)
        self.pages = dict(pages or {})
        self.takes = dict(takes or {})
        self.urls = []

    async def request(self, request):
        self.urls.append(request.url)
        await asyncio.sleep(self.takes.get(request.url, 0))
        if request.url not in self.pages:
            return await super().request(request)
        answer = self.pages[request.url]
        if isinstance(answer, Exception):
            raise answer
        return answer if isinstance(answer, HttpReply) else page(answer)


def page(answer, status=200, **headers):
    body = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
    return HttpReply(status=status, headers=headers, body=body)


def as_sdk_signs(card):
    made = create_agent_card_signer(
        SIGNER.key, {"alg": "ES256", "kid": "k-1", "typ": "JOSE", "jku": None}
    )
    return made(ParseDict(card, ProtobufCard()))
