"""The code in docs/trust.md runs as it stands, and does what the page says."""

import functools
import json
import stat
from pathlib import Path

import pytest
import trustme
from tests.kit.authorization_server import FakeAuthorizationServer
from tests.kit.card_signing import DOCUMENT, Net, Signer
from tests.kit.pages import Page, execute
from tests.kit.raw_server import reply, serve
from tests.kit.tls_files import Files

import holdfast
from holdfast.auth import oauth
from holdfast.testing import FakeAgent, FakeNetwork, LoopbackServer

PAGE = Page("docs/trust.md")
HERE = "https://agent.example.com"
ID = "https://id.example.com"
KEYS = "https://keys.example.com/jwks.json"


def reach(monkeypatch, engine):
    """Lets what is connected to be in process."""
    monkeypatch.setattr(holdfast, "connect", functools.partial(holdfast.connect, engine=engine))


KEPT = {
    "name": "Kept",
    "supportedInterfaces": [{"url": f"{HERE}/rpc", "protocolBinding": "JSONRPC"}],
    "securitySchemes": {"bearerAuth": {"httpAuthSecurityScheme": {"scheme": "bearer"}}},
    "securityRequirements": [{"schemes": {"bearerAuth": {"list": []}}}],
}


async def test_each_session_has_credentials_of_its_own(monkeypatch):
    agent = FakeAgent(url=HERE, card=KEPT, token="t")
    reach(monkeypatch, FakeNetwork(agent))

    names = await execute(PAGE.block("sessionId"), token="t")

    assert names["answer"].text == "How far is the moon?"


@pytest.mark.real_time
async def test_an_engine_is_entered_beside_its_client(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    trustme.CA().cert_pem.write_to_path("ca.pem")

    async with LoopbackServer(FakeAgent()) as server:
        fragment = PAGE.block("max_streams").replace(HERE, server.url)
        names = await execute(fragment)

    assert names["answer"].text == "How far is the moon?"


@pytest.fixture
def authorizing(monkeypatch):
    """An authorization server, and the agent that takes its token."""

    def made(**options):
        agent = FakeAgent("384,400 km", url=HERE, token="token-1", **options)
        server = FakeAuthorizationServer(FakeNetwork(agent), at=ID)
        reach(monkeypatch, server)
        for kind in ("ClientCredentials", "DeviceCode"):
            fetching = functools.partial(getattr(oauth, kind), engine=server)
            monkeypatch.setattr(oauth, kind, fetching)
        return server

    return made


async def test_a_person_allows_it_and_the_token_is_kept(authorizing, tmp_path, monkeypatch):
    monkeypatch.setattr(Path, "home", lambda: tmp_path)
    server, printed = authorizing(), []
    block = PAGE.block("DeviceCode(")
    for _ in range(2):
        await execute(block, print=printed.append)

    told = f"Open {ID}/device and enter ABCD-EFGH"
    assert printed == [told, "384,400 km", "384,400 km"]
    assert [said["device_code"] for said in server.asked] == ["device-secret"]
    (file,) = (tmp_path / ".my-agent").glob("*.json")
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


async def test_a_card_names_the_authorization_server(authorizing):
    flows = {"clientCredentials": {"tokenUrl": f"{ID}/token", "scopes": {"a2a": "All"}}}
    card = {
        **KEPT,
        "securitySchemes": {"oauth": {"oauth2SecurityScheme": {"flows": flows}}},
        "securityRequirements": [{"schemes": {"oauth": {"list": ["a2a"]}}}],
    }
    server, printed = authorizing(card=card), []
    block = PAGE.block("FromCard")
    with pytest.raises(holdfast.errors.CredentialOriginError):
        await execute(block.replace("https://id.", "https://other."))
    assert server.requests == []

    await execute(block, print=printed.append)

    assert printed == ["384,400 km"]
    assert [said["scope"] for said in server.asked] == ["a2a"]


@pytest.mark.real_time
async def test_a_certificate_is_shown(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    files = Files(tmp_path)
    files.cert.rename("client.pem")
    files.key.rename("client.key")
    hello = {"message": {"messageId": "1", "role": "ROLE_AGENT", "parts": [{"text": "hello"}]}}

    async def script(connection):
        while (request := await connection.request()) is not None:
            place = {"url": server.url, "protocolBinding": "HTTP+JSON", "protocolVersion": "1.0"}
            card = {"name": "Strict", "supportedInterfaces": [place]}
            answer = card if b"agent-card.json" in request else hello
            await connection.send(reply(json.dumps(answer).encode()))

    async with serve(script, ssl=files.server()) as server:
        names = await execute(PAGE.block("client.pem").replace(HERE, server.url))

    assert names["answer"].text == "hello"


async def test_cards_are_signed_and_verified(monkeypatch):
    place = {"url": f"{HERE}/rpc", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}
    card = {**DOCUMENT, "supportedInterfaces": [place]}
    signer = Signer("2026")
    names = await execute(PAGE.block("sign_card("), card=card, private_key=signer.key)
    net = Net(FakeAgent(url=HERE, card=names["signed"]), pages={KEYS: signer.jwks})
    reach(monkeypatch, net)
    printed = []
    block = PAGE.block("holdfast.signatures.CardVerifier(")

    await execute(block, print=lambda *words: printed.append(words))
    net.pages[KEYS] = {"keys": [Signer("2026").jwk]}
    with pytest.raises(holdfast.errors.CardSignatureError):
        await execute(block)
    net.pages[KEYS] = {"keys": []}
    await execute(block, print=lambda *words: printed.append(words))

    assert printed[0] == ("Signed", "verified", "")
    assert printed[1][:2] == ("Signed", "unverifiable")
    assert "key '2026' is not known" in printed[1][2]


async def test_a_users_address_leads_nowhere_inside(monkeypatch, capsys):
    network = FakeNetwork(FakeAgent(url="http://127.0.0.1:9000"))
    reach(monkeypatch, network)

    await execute(PAGE.block('reach="public"'))

    assert capsys.readouterr().out == "127.0.0.1\n"


def test_every_block_is_run():
    PAGE.check_complete(
        "sessionId",
        "DeviceCode(",
        "FromCard",
        "client.pem",
        "max_streams",
        "holdfast.signatures.CardVerifier(",
        "sign_card(",
        'reach="public"',
    )


def test_every_link_leads_somewhere():
    PAGE.check_links()
