"""The code in the pages about credentials, TLS, cards, gateways and gRPC runs as it stands."""

import functools
import json
import stat
from pathlib import Path

import msgspec
import pytest
import trustme
from tests.kit.authorization_server import FakeAuthorizationServer
from tests.kit.card_signing import DOCUMENT, Net, Signer
from tests.kit.pages import Page, execute, shows
from tests.kit.ports import reserve_port
from tests.kit.raw_server import reply, serve
from tests.kit.tls_files import Files

import holdfast
from holdfast.auth import oauth
from holdfast.server import A2AServer
from holdfast.testing import FakeAgent, FakeNetwork, LoopbackServer, Respond

AUTH = Page("docs/howto/auth.md")
TLS = Page("docs/howto/tls.md")
SIGNED = Page("docs/howto/signed-cards.md")
GATEWAY = Page("docs/howto/gateway.md")
GRPC = Page("docs/howto/grpc.md")
HERE = "https://agent.example.com"
LOCAL = "http://localhost:9999"
ID = "https://id.example.com"
KEYS = "https://keys.example.com/jwks.json"


def reach(monkeypatch, engine):
    """Lets what is connected to be in process."""
    monkeypatch.setattr(holdfast, "connect", functools.partial(holdfast.connect, engine=engine))


def card_of(*interfaces, **members):
    places = [
        {"url": url, "protocolBinding": "JSONRPC", "protocolVersion": "1.0"} for url in interfaces
    ]
    return {"name": "Agent", "supportedInterfaces": places, **members}


REQUIRING = card_of(
    f"{HERE}/rpc",
    securitySchemes={"bearerAuth": {"httpAuthSecurityScheme": {"scheme": "bearer"}}},
    securityRequirements=[{"schemes": {"bearerAuth": {"list": []}}}],
)


# ── Credentials ──────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("form", ['f"Bearer {token}"', "SchemeCredentials("])
async def test_credentials_have_many_forms(form):
    await execute(AUTH.block(form), token="t", key="k")


async def test_each_session_has_credentials_of_its_own(monkeypatch):
    agent = FakeAgent(url=HERE, card=REQUIRING, token="t")
    reach(monkeypatch, FakeNetwork(agent))
    names = await execute(AUTH.block("sessionId"), token="t")
    assert names["answer"].text == "How far is the moon?"


async def test_provider_is_asked_for_each_attempt(monkeypatch):
    class Vault:
        def __init__(self):
            self.tokens = ["old", "new"]

        async def read(self, name):
            assert name == "a2a"
            return self.tokens[0]

        async def refresh(self, name):
            del self.tokens[0]
            return True

    agent, printed = FakeAgent("384,400 km", url=HERE, token="new"), []
    reach(monkeypatch, FakeNetwork(agent))
    await execute(AUTH.block("class FromVault"), vault=Vault(), print=printed.append)
    assert printed == ["384,400 km"]


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


async def test_program_fetches_tokens(authorizing):
    server, printed = authorizing(), []
    await execute(AUTH.block('scopes=["a2a"]\n)'), print=printed.append)
    assert printed == ["384,400 km"]
    assert [said["scope"] for said in server.asked] == ["a2a"]


async def test_program_fetches_tokens_of_a_server_without_metadata(authorizing):
    server, printed = authorizing(), []
    server.metadata = None
    await execute(AUTH.block("token_endpoint="), print=printed.append)
    assert printed == ["384,400 km"]
    assert [said["scope"] for said in server.asked] == ["a2a"]


@pytest.mark.real_time
async def test_oauth_is_tried_on_one_machine(capsys):
    block, ports = AUTH.block("authorization_server"), ("9200", "9999")
    reserved = {port: str(reserve_port()) for port in ports}
    shown = AUTH.output_below(block)
    for port, free in reserved.items():
        block, shown = block.replace(port, free), shown.replace(port, free)
    program, _, last = block.rstrip().rpartition("\n")
    assert last == "asyncio.run(main())"

    await (await execute(program))["main"]()
    assert shows(shown, capsys.readouterr().out)

    program = program.replace("connect(server.url, auth", f'connect("{LOCAL}", auth')
    program = program.replace("9999", reserved["9999"])
    await (await execute(program))["main"]()
    assert capsys.readouterr().out.count("a token for") == 2


async def test_person_allows_it_and_the_token_is_kept(authorizing, tmp_path, monkeypatch):
    monkeypatch.setattr(Path, "home", lambda: tmp_path)
    server, printed = authorizing(), []
    block = AUTH.block("DeviceCode(")
    for _ in range(2):
        await execute(block, print=printed.append)

    asked = f"Open {ID}/device and enter ABCD-EFGH"
    assert printed == [asked, "384,400 km", "384,400 km"]
    assert [said["device_code"] for said in server.asked] == ["device-secret"]
    (file,) = (tmp_path / ".my-agent").glob("*.json")
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


async def test_card_names_the_authorization_server(authorizing):
    flows = {"clientCredentials": {"tokenUrl": f"{ID}/token", "scopes": {"a2a": "All"}}}
    card = {
        **REQUIRING,
        "securitySchemes": {"oauth": {"oauth2SecurityScheme": {"flows": flows}}},
        "securityRequirements": [{"schemes": {"oauth": {"list": ["a2a"]}}}],
    }
    server, printed = authorizing(card=card), []
    block = AUTH.block("FromCard")
    with pytest.raises(holdfast.errors.CredentialOriginError):
        await execute(block.replace("https://id.", "https://other."))
    assert server.requests == []

    await execute(block, print=printed.append)

    assert printed == ["384,400 km"]
    assert [said["scope"] for said in server.asked] == ["a2a"]


# ── TLS ──────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.real_time
async def test_engine_is_entered_beside_its_client(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    trustme.CA().cert_pem.write_to_path("ca.pem")
    printed = []

    async with LoopbackServer(FakeAgent()) as server:
        names = await execute(TLS.block("max_streams").replace(HERE, server.url))
        block = GATEWAY.block("proxies=False").replace("http://localhost:9999", server.url)
        await execute(block, print=printed.append)

    assert (names["answer"].text, printed) == ("How far is the moon?", ["Rome"])


@pytest.mark.real_time
async def test_certificate_is_presented(tmp_path, monkeypatch):
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
        names = await execute(TLS.block("client.pem").replace(HERE, server.url))

    assert names["answer"].text == "hello"


# ── Signed cards ─────────────────────────────────────────────────────────────────────────────


async def test_cards_are_signed_and_verified(monkeypatch):
    card = {**DOCUMENT, "supportedInterfaces": card_of(f"{HERE}/rpc")["supportedInterfaces"]}
    del card["securityRequirements"]
    signer = Signer("2026")
    names = await execute(SIGNED.block("sign_card("), card=card, private_key=signer.key)
    net = Net(FakeAgent("384,400 km", url=HERE, card=names["signed"]), pages={KEYS: signer.jwks})
    reach(monkeypatch, net)
    printed = []
    block, requiring = SIGNED.block("card_verification.reason"), SIGNED.block("jku_hosts")

    await execute(block, print=lambda *words: printed.append(words))
    await execute(requiring, print=lambda *words: printed.append(words))
    net.pages[KEYS] = {"keys": [Signer("2026").jwk]}
    with pytest.raises(holdfast.errors.CardSignatureError):
        await execute(block)
    net.pages[KEYS] = {"keys": []}
    await execute(block, print=lambda *words: printed.append(words))
    with pytest.raises(holdfast.errors.CardSignatureError):
        await execute(requiring)

    assert printed[:3] == [("Signed", "verified", ""), ("384,400 km",), ("verified",)]
    assert printed[3][:2] == ("Signed", "unverifiable")
    assert "key '2026' is not known" in printed[3][2]


# ── Gateways ─────────────────────────────────────────────────────────────────────────────────

OUTSIDE = "https://gateway.example.com/agents/weather"
INSIDE = "http://10.0.0.7:8000/rpc"


class Gateway:
    """An engine for a public gateway that passes requests below a path on to a private agent."""

    def __init__(self, agent):
        self._network, self.sent = FakeNetwork(agent), []

    def _behind(self, request):
        self.sent.append(request)
        url = request.url.replace(OUTSIDE, "http://10.0.0.7:8000")
        return msgspec.structs.replace(request, url=url)

    async def request(self, request):
        reply = await self._network.request(self._behind(request))
        return msgspec.structs.replace(reply, address="8.8.8.8")

    def stream(self, request):
        return self._network.stream(self._behind(request))

    async def close(self):
        """Has nothing to close."""


@pytest.fixture
def gateway(monkeypatch):
    made = Gateway(FakeAgent("Rain.", url="http://10.0.0.7:8000", card=card_of(INSIDE)))
    reach(monkeypatch, made)
    return made


async def test_gateway_gets_its_own_key(monkeypatch):
    made = Gateway(FakeAgent("Rain.", url="http://10.0.0.7:8000", card=card_of(f"{OUTSIDE}/rpc")))
    reach(monkeypatch, made)
    printed = []
    await execute(GATEWAY.block("X-Gateway-Key"), key="k", token="t", print=printed.append)
    assert printed == ["Rain."]
    assert made.sent[0].url == f"{OUTSIDE}/.well-known/agent-card.json"
    sent = made.sent[-1].headers
    assert (sent["x-gateway-key"], sent["authorization"]) == ("k", "Bearer t")


async def test_internal_address_of_a_card_is_replaced_or_allowed(gateway):
    printed = []
    blocks = GATEWAY.block("weather/rpc"), GATEWAY.block("allowed_networks=[")
    with pytest.raises(holdfast.errors.NetworkPolicyError):
        await execute(blocks[1].replace("10.0.0.0/8", "192.168.0.0/16"))
    for block in blocks:
        await execute(block, print=printed.append)
    assert printed == ["Rain.", "Rain."]


async def test_other_origin_gets_credentials_only_if_it_is_allowed(monkeypatch):
    origin = "https://rpc.example.com"
    agent = FakeAgent("Rain.", url=origin, card=card_of(f"{origin}/rpc"), token="t")
    own = FakeAgent(url=HERE, card=card_of(f"{origin}/rpc"))
    reach(monkeypatch, FakeNetwork(agent, own))
    block, printed = GATEWAY.block("credential_origins="), []
    with pytest.raises(holdfast.errors.CredentialOriginError):
        await execute(block.replace(origin, "https://c.example.com"), token="t")
    await execute(block, token="t", print=printed.append)
    assert printed == ["Rain."]


async def test_status_of_a_gateway_proves_what_the_policy_lists(monkeypatch):
    agent = FakeAgent(url=OUTSIDE.removesuffix("/agents/weather"), records_messages=False)
    reach(monkeypatch, FakeNetwork(agent))
    block, executed = GATEWAY.block("refusals="), []
    for code in (block, block.replace(", resilience=policies", "")):
        names = await execute(code.replace("/agents/weather", ""))
        agent.inject(Respond(status=404), on="SendStreamingMessage")
        async with names["agent"] as client:
            with pytest.raises(holdfast.A2AError) as caught:
                await client.ask("Rome")
        executed.append(caught.value.executed)
    assert executed == [None, False]


# ── gRPC ─────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.real_time
async def test_grpc_is_called():
    callers, printed = [], []

    async def answer(text: str, turn):
        callers.append(turn.requester.headers["user-agent"])
        return text

    server = A2AServer(answer).serving(bindings=["JSONRPC", "HTTP+JSON", "GRPC"])
    async with server as running:
        port = running.grpc_url.rpartition(":")[2]
        for text in ("print((", "url=", "minimal_agent_card", "grpc_channel_factory"):
            block = GRPC.blocks[0] if text == "print((" else GRPC.block(text)
            block = (
                block.replace("grpcs://agent.example.com:50051", f"grpc://127.0.0.1:{port}")
                .replace("localhost:50051", f"127.0.0.1:{port}")
                .replace(HERE, running.url)
            )
            await execute(block, print=printed.append)
        await check_addresses(running.url, port)
    assert printed == ["How far is the moon?"] * 4
    assert all("grpc" in caller for caller in callers)


async def check_addresses(url, port):
    """The table of addresses is right."""
    with pytest.raises(ValueError, match="has no scheme"):
        holdfast.connect(url, url=f"127.0.0.1:{port}", bindings=["GRPC"])
    with pytest.raises(ValueError, match="minimal_agent_card"):
        holdfast.connect(f"grpc://127.0.0.1:{port}")
    by_hand = {"url": f"http://127.0.0.1:{port}", "bindings": ["GRPC"]}
    card = holdfast.compat.minimal_agent_card
    forms = [f"127.0.0.1:{port}", f"dns:///127.0.0.1:{port}", f"ipv4:127.0.0.1:{port}"]
    for agent, options in [(url, by_hand), *((card(form, ["GRPC"]), {}) for form in forms)]:
        async with holdfast.connect(agent, **options) as client:
            assert (await client.ask("x")).text == "x"


# ── Pages ────────────────────────────────────────────────────────────────────────────────────


def test_every_block_is_run():
    AUTH.check_complete(
        'f"Bearer {token}"',
        "SchemeCredentials(",
        "sessionId",
        'scopes=["a2a"]\n)',
        "token_endpoint=",
        "DeviceCode(",
        "authorization_server",
        "FromCard",
        "class FromVault",
    )
    TLS.check_complete("client.pem", "max_streams")
    SIGNED.check_complete("card_verification.reason", "jku_hosts", "sign_card(")
    GATEWAY.check_complete(
        "X-Gateway-Key",
        "weather/rpc",
        "allowed_networks=[",
        "credential_origins=",
        "refusals=",
        "proxies=False",
    )
    assert len(GRPC.blocks) == 4


def test_commands_exist_and_have_these_options():
    AUTH.check_commands(at_least=3)


@pytest.mark.parametrize(
    "page", [AUTH, TLS, SIGNED, GATEWAY, GRPC], ids=lambda page: page.path.stem
)
def test_every_link_leads_somewhere(page):
    page.check_links()
