"""The code in docs/trust.md runs as it stands, and does what the page says."""

import functools
import stat
from pathlib import Path

import pytest
import trustme
from tests.authorization_server import ISSUER, FakeAuthorizationServer
from tests.card_signing import DOCUMENT, SIGNER, Net
from tests.pages import Page, execute
from tests.raw_server import serve
from tests.test_tls_config import Files

import holdfast
from holdfast.auth import oauth
from holdfast.testing import FakeAgent, FakeNetwork, LoopbackServer

PAGE = Page("docs/trust.md")
HERE = "https://agent.example.com"
KEYS = "https://keys.example.com/jwks.json"

KEPT = {
    "name": "Kept",
    "supportedInterfaces": [
        {"url": "https://agent.example.com/rpc", "protocolBinding": "JSONRPC"}
    ],
    "securitySchemes": {"bearerAuth": {"httpAuthSecurityScheme": {"scheme": "bearer"}}},
    "securityRequirements": [{"schemes": {"bearerAuth": {"list": []}}}],
}


async def test_each_session_has_credentials_of_its_own(monkeypatch):
    agent = FakeAgent(url="https://agent.example.com", card=KEPT, token="t")
    connect = holdfast.connect
    monkeypatch.setattr(
        holdfast, "connect", lambda url, **o: connect(url, engine=FakeNetwork(agent), **o)
    )

    names = await execute(the_one_with("sessionId"), token="t")

    assert names["answer"].text == "How far is the moon?"


@pytest.mark.real_time
async def test_an_engine_is_entered_beside_its_client(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    trustme.CA().cert_pem.write_to_path("ca.pem")

    async with LoopbackServer(FakeAgent()) as server:
        fragment = the_one_with("ca.pem").replace("https://agent.example.com", server.url)
        names = await execute(fragment)

    assert names["answer"].text == "How far is the moon?"


