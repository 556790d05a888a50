"""What a client warns of, once for each origin: messages that go elsewhere, plain credentials."""

import ssl

import pytest
from tests.kit.cli_harness import holdfast

from holdfast import AiohttpEngine, TlsConfig, connect
from holdfast.errors import CredentialOriginError
from holdfast.testing import FakeAgent, FakeNetwork

SECURITY = "holdfast.security"


@pytest.fixture
def warned(caplog):
    def found(logger=SECURITY):
        return [record.getMessage() for record in caplog.records if record.name == logger]

    return found


def card(url):
    interface = {"url": url, "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}
    return {"name": "Elsewhere", "supportedInterfaces": [interface]}


def elsewhere(url="https://elsewhere.test", *, named="https://agent.test"):
    """An agent whose card sends its calls to another origin."""
    agent = FakeAgent(url=named, card=card(f"{url}/rpc"))
    return FakeNetwork(agent, FakeAgent(url=url))


# ── Messages and files ───────────────────────────────────────────────────────────────────────


@pytest.mark.rule("P02")
async def test_a_message_to_an_origin_that_only_the_card_names_is_warned_of_once(warned):
    async with connect("https://agent.test", engine=elsewhere()) as client:
        await client.list_tasks()
        assert warned() == []
        await client.send_message("hello")
        await client.ask("hello")

    (text,) = warned()
    assert "sent to https://elsewhere.test:443" in text
    assert "the caller named https://agent.test:443" in text
    assert "credential_origins=('https://elsewhere.test:443',)" in text


@pytest.mark.rule("P02")
@pytest.mark.parametrize(
    "options",
    [
        {"credential_origins": ["https://elsewhere.test"]},
        {"url": "https://elsewhere.test/rpc"},
    ],
    ids=str,
)
async def test_a_trusted_origin_is_not_warned_of(warned, options):
    async with connect("https://agent.test", engine=elsewhere(), **options) as client:
        await client.ask("hello")

    assert warned() == []


async def test_a_card_of_the_callers_own_names_a_trusted_origin(warned):
    async with connect(card("https://elsewhere.test/rpc"), engine=elsewhere()) as client:
        await client.ask("hello")

    assert warned() == []


async def test_with_credentials_nothing_goes_there_and_nothing_is_warned_of(warned):
    async with connect("https://agent.test", engine=elsewhere(), auth="Bearer s3cret") as client:
        with pytest.raises(CredentialOriginError):
            await client.ask("hello")

    assert warned() == []


# ── Credentials without TLS ──────────────────────────────────────────────────────────────────


class Provider:
    async def credentials(self, _call):
        from holdfast.auth import Credentials

        return Credentials(query={"key": "s3cret-key"})

    async def on_unauthorized(self, _call, _error):
        return False


@pytest.mark.rule("P02")
@pytest.mark.parametrize(
    "given",
    [
        {"auth": "Bearer s3cret"},
        {"headers": {"X-Api-Key": "s3cret"}},
        {"auth": Provider()},
    ],
    ids=["auth", "headers", "query"],
)
async def test_credentials_to_another_machine_without_tls_are_warned_of_once(warned, given):
    network = FakeNetwork(FakeAgent(url="http://agent.test"))
    async with connect("http://agent.test", engine=network, **given) as client:
        await client.ask("hello")
        await client.ask("hello")

    (text,) = warned()
    assert "credentials are sent to http://agent.test:80 without TLS" in text
    assert "s3cret" not in text


@pytest.mark.parametrize("url", ["https://agent.test", "http://localhost:8000", "http://[::1]:80"])
async def test_credentials_with_tls_or_on_this_machine_are_not(warned, url):
    network = FakeNetwork(FakeAgent(url=url))
    async with connect(url, engine=network, auth="Bearer s3cret") as client:
        await client.ask("hello")

    assert warned() == []


async def test_nothing_secret_without_tls_is_not_warned_of(warned):
    network = FakeNetwork(FakeAgent(url="http://agent.test"))
    async with connect("http://agent.test", engine=network, headers={"x-team": "a"}) as client:
        await client.ask("hello")

    assert warned() == []


# ── Certificates that nobody verifies ────────────────────────────────────────────────────────


def unverified():
    context = ssl.create_default_context()
    context.check_hostname = False
    return context


@pytest.mark.rule("P02")
@pytest.mark.parametrize("trusting", [lambda: False, lambda: TlsConfig(verify=False), unverified])
def test_an_engine_that_verifies_no_certificates_says_so(warned, trusting):
    AiohttpEngine()
    AiohttpEngine(ssl=ssl.create_default_context())
    assert warned("holdfast.security") == []

    AiohttpEngine(ssl=trusting())

    (text,) = warned("holdfast.security")
    assert "TLS certificates are not verified" in text


# ── On the command line ──────────────────────────────────────────────────────────────────────


@pytest.mark.rule("P02")
@pytest.mark.parametrize("debug", [(), ("--debug",)])
def test_the_command_line_shows_both_once(debug):
    engine = elsewhere("http://elsewhere.test", named="http://agent.test")
    done = holdfast("send", "hello", *debug, engine=lambda **_: engine)

    assert done.exit == 0
    warning = (
        "messages and files are sent to http://elsewhere.test:80, an origin that only the agent's "
        "card names; the caller named http://agent.test:80\n"
    )
    assert done.err.count(warning) == 1
    assert "credential_origins" not in done.err
    done = holdfast("send", "hello", *debug, "--bearer", "s3cret-token")
    assert done.err.count("credentials are sent to http://agent.test:80 without TLS") == 1
