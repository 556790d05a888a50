"""Examinations over real sockets: real agents, TLS, and servers that answer nonsense."""

import contextlib
import datetime as dt
import json
import socket
import ssl
import time

import pytest
import trustme
from tests.kit.raw_server import always, chunk, head, reply, serve
from tests.kit.real_agents import TOKEN, ag2_process

from holdfast import A2AConnectionError, AiohttpEngine
from holdfast._doctor.tls import look_at_tls
from holdfast.doctor import diagnose
from holdfast.errors import InvalidAgentCardError, LimitExceededError
from holdfast.policies import TlsConfig
from holdfast.testing import FakeAgent, LoopbackServer

pytestmark = pytest.mark.real_time

JSON = "Content-Type: application/json"


@pytest.fixture(autouse=True)
def no_proxies(monkeypatch):
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


def levels(diagnosis, check):
    return {finding.level for finding in diagnosis.of(check)}


def worst(diagnosis):
    return {(f.check, f.level) for f in diagnosis.findings if f.level in {"warning", "problem"}}


def card(url, **members):
    interface = {"url": url, "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}
    document = {"name": "Raw", "supportedInterfaces": [interface], **members}
    return json.dumps(document).encode()


# ── Real agents ──────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def sdk(sdk_url):
    return sdk_url


@pytest.fixture
def sdk_with_token(guarded_sdk_url):
    return guarded_sdk_url


@pytest.fixture
def sdk03(sdk03_url):
    return sdk03_url


@pytest.mark.sdk
async def test_an_agent_on_the_official_sdk_is_healthy(sdk):
    diagnosis = await diagnose(sdk, send="slow 2 hello", twice=True)

    assert worst(diagnosis) == set()
    assert diagnosis.error is None
    for check in (
        "streaming.flushed",
        "streaming.end",
        "subscribe",
        "recording",
        "list.context",
        "list.time",
        "errors",
    ):
        assert "ok" in levels(diagnosis, check), diagnosis.of(check)
    assert levels(diagnosis, "sending.twice") == {"info"}  # it makes a second task


@pytest.mark.sdk
async def test_an_agent_of_protocol_0_3_is_healthy(sdk03):
    diagnosis = await diagnose(sdk03, send="slow 2 hello")

    assert diagnosis.is_healthy, diagnosis.findings
    assert "answers in 0.3" in diagnosis.of("versions.spoken")[0].saw
    assert levels(diagnosis, "list.there") == {"info"}
    assert levels(diagnosis, "streaming.flushed") == {"ok"}
    assert levels(diagnosis, "recording.task") == {"ok"}
    # An official server of 0.3 ends the stream of such a subscription without a word.
    assert worst(diagnosis) == {("subscribe.unknown", "warning")}


@pytest.mark.sdk
@pytest.mark.parametrize(
    ("auth", "accepted"),
    [(None, "problem"), ("Bearer wr0ng-token", "problem"), (f"Bearer {TOKEN}", "ok")],
)
async def test_a_real_agent_that_wants_a_token(sdk_with_token, auth, accepted):
    diagnosis = await diagnose(sdk_with_token, auth=auth)

    assert levels(diagnosis, "authentication.accepted") == {accepted}
    assert levels(diagnosis, "authentication.asked") == {"ok"}
    assert (diagnosis.error is None) == (accepted == "ok")
    assert "0ken" not in json.dumps(diagnosis.to_dict())


@pytest.mark.ag2
async def test_an_agent_of_ag2_keeps_no_messages(tmp_path):
    with ag2_process(tmp_path / "errors") as url:
        diagnosis = await diagnose(url, send="hello")

    assert diagnosis.is_healthy, diagnosis.findings
    assert levels(diagnosis, "recording.task") == {"warning"}


async def test_a_fake_agent_behind_a_socket():
    async with LoopbackServer(FakeAgent()) as server:
        diagnosis = await diagnose(server.url, send="hello")

    assert diagnosis.is_healthy, diagnosis.findings
    assert levels(diagnosis, "recording") == {"ok"}


# ── Nobody, and nonsense ─────────────────────────────────────────────────────────────────────


async def test_the_clock_of_a_fake_agent_on_a_socket_is_right():
    async with LoopbackServer(FakeAgent()) as server:
        diagnosis = await diagnose(server.url, send="go")

    assert levels(diagnosis, "clock.skew") == {"ok"}
    assert levels(diagnosis, "recording.time") == {"ok"}


async def test_a_port_that_refuses():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        diagnosis = await diagnose(f"http://127.0.0.1:{port}")

    assert [(f.check, f.level) for f in diagnosis.findings] == [("card.reached", "problem")]
    assert isinstance(diagnosis.error, A2AConnectionError)
    assert diagnosis.error.failure == "refused"
    assert "Connect call" not in diagnosis.findings[0].saw


async def test_a_name_that_cannot_exist():
    diagnosis = await diagnose("http://no..such..name.invalid")

    assert diagnosis.error.failure == "dns"
    assert levels(diagnosis, "card.reached") == {"problem"}


@pytest.mark.parametrize(
    "answer",
    [
        reply(b"<html><body>Welcome!</body></html>", "Content-Type: text/html"),
        reply(b"Welcome!"),
        reply(b""),
        b"SSH-2.0-OpenSSH_9.6\r\n",
    ],
)
async def test_what_listens_at_a_wrong_port_is_reported_as_a_wrong_address(answer):
    async with serve(always(answer)) as server:
        diagnosis = await diagnose(server.url)

    (finding,) = diagnosis.findings
    assert finding.level == "problem"
    assert finding.do == "check the address and port: no agent seems to be there"


@pytest.mark.parametrize(
    "answer", [reply(b'{"name": "x"', JSON), reply(b"{}"), reply(b"[]", JSON)]
)
async def test_what_might_be_meant_for_a_card_is_to_be_mended(answer):
    async with serve(always(answer)) as server:
        diagnosis = await diagnose(server.url)

    assert "correct the card" in diagnosis.findings[0].do


async def test_without_a_card_there_the_address_may_be_wrong_as_well():
    async with serve(always(reply(b"no", status="404 Not Found"))) as server:
        diagnosis = await diagnose(server.url)

    (finding,) = diagnosis.findings
    assert "address and port" in finding.do
    assert "/.well-known/agent-card.json" in finding.do


@pytest.mark.parametrize(
    "answer",
    [
        reply(b"<html><body>Welcome!</body></html>", "Content-Type: text/html"),
        reply(b"\xff\xfe\x00nonsense", JSON),
        reply(b"[" * 5000, JSON),
        reply(b'"card"', JSON),
    ],
)
async def test_a_server_that_answers_everything_alike(answer):
    async with serve(always(answer)) as server:
        diagnosis = await diagnose(server.url)

    assert [(f.check, f.level) for f in diagnosis.findings] == [("card.valid", "problem")]
    assert isinstance(diagnosis.error, InvalidAgentCardError | LimitExceededError)


async def test_bytes_that_are_no_http():
    async with serve(always(b"\x15\x03\x01 nonsense\r\n\r\n")) as server:
        diagnosis = await diagnose(server.url)

    assert levels(diagnosis, "card") == {"problem"}
    assert diagnosis.error is not None


def answering(of_card, *others):
    """A server with a card, and the same answer to everything else, after which it leaves."""

    async def script(connection):
        while (request := await connection.request()) is not None:
            is_card = request.startswith(b"GET /.well-known")
            await connection.send(*([of_card()] if is_card else others))
            if not is_card:
                return

    return script


@pytest.mark.parametrize(
    "pieces",
    [
        (reply(b"<html>no</html>", "Content-Type: text/html"),),
        (reply(b"<html>no</html>", "Content-Type: text/html", status="502 Bad Gateway"),),
        (reply(b"{}", JSON),),
        (reply(b"null", JSON),),
        (reply(b"", status="204 No Content"),),
        (head("Transfer-Encoding: chunked", JSON), chunk(b'{"jsonrpc":')),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n{}",),
        (reply(b"", "Location: http://127.0.0.1:1/", status="302 Found"),),
    ],
)
async def test_nonsense_behind_a_good_card(pieces):
    servers = []

    def of_card():
        return reply(card(servers[0].url), JSON)

    async with serve(answering(of_card, *pieces)) as server:
        servers.append(server)
        diagnosis = await diagnose(server.url, send="go")

    assert levels(diagnosis, "card.found") == {"ok"}
    assert levels(diagnosis, "bindings.answers") == {"problem"}
    assert not any(b"SendMessage" in request for request in server.requests)
    assert levels(diagnosis, "sending.answer") == {"not measured"}


async def test_diagnose_takes_no_server_that_closes_idle_connections_for_one_that_fails():
    async def script(connection):
        request = await connection.request()
        if request.startswith(b"GET /.well-known"):
            await connection.send(reply(card(servers[0].url), JSON))
        else:
            error = {"code": -32001, "message": "no such task"}
            document = {"jsonrpc": "2.0", "id": None, "error": error}
            await connection.send(reply(json.dumps(document).encode(), JSON))
        await connection.request()  # and closes, where one more comes on the same connection

    servers = []
    async with serve(script) as server:
        servers.append(server)
        diagnosis = await diagnose(server.url)

    assert levels(diagnosis, "bindings.answers") == {"ok"}
    assert not any("closed" in f.saw or "reset" in f.saw for f in diagnosis.findings)
    assert all(b"connection: close" in request.lower() for request in server.requests)


async def test_a_server_that_says_nothing():
    async with serve(lambda connection: connection.stall()) as server:
        diagnosis = await diagnose(server.url, timeout=0.3)

    assert not diagnosis.is_complete
    assert levels(diagnosis, "card.found") == {"not measured"}


# ── TLS ──────────────────────────────────────────────────────────────────────────────────────


def certified(authority, name="127.0.0.1", **options):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert(name, **options).configure_cert(context)
    return context


@contextlib.contextmanager
def trusted(monkeypatch, authority):
    with authority.cert_pem.tempfile() as path:
        monkeypatch.setenv("SSL_CERT_FILE", path)
        yield


async def test_a_certificate_that_is_trusted(monkeypatch):
    authority = trustme.CA()
    with trusted(monkeypatch, authority):
        async with serve(always(), ssl=certified(authority)) as server:
            seen = await look_at_tls(server.url, timeout=5)
            diagnosis = await diagnose(server.url)

    assert seen.version == "TLSv1.3"
    assert seen.fault == ""
    assert seen.not_after > time.time()
    assert levels(diagnosis, "tls") == {"ok"}


async def test_certificate_is_trusted_by_clients_configured_to_trust_it(tmp_path):
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    async with serve(always(), ssl=certified(authority)) as server:
        diagnosis = await diagnose(server.url, tls=TlsConfig(ca_file=tmp_path / "ca.pem"))

    assert levels(diagnosis, "tls") == {"ok"}


async def test_a_certificate_that_ends_soon(monkeypatch):
    authority = trustme.CA()
    soon = dt.datetime.now(dt.UTC) + dt.timedelta(days=3)
    with trusted(monkeypatch, authority):
        async with serve(always(), ssl=certified(authority, not_after=soon)) as server:
            diagnosis = await diagnose(server.url)

    (finding,) = diagnosis.of("tls.certificate")
    assert finding.level == "warning"
    assert "days left" in finding.saw


@pytest.mark.parametrize(
    ("name", "is_known", "fault"),
    [("127.0.0.1", False, "unable to get"), ("other.test", True, "mismatch")],
)
async def test_a_certificate_that_is_not_trusted(monkeypatch, name, is_known, fault):
    authority = trustme.CA()
    with trusted(monkeypatch, authority if is_known else trustme.CA()):
        async with serve(always(), ssl=certified(authority, name)) as server:
            diagnosis = await diagnose(server.url)

    assert levels(diagnosis, "tls.version") == {"ok"}
    (finding,) = diagnosis.of("tls.certificate")
    assert finding.level == "problem"
    assert fault in finding.saw
    assert levels(diagnosis, "card.reached") == {"problem"}


async def test_plain_http_where_tls_is_called():
    async def script(connection):
        await connection.first_bytes()
        await connection.send(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")

    async with serve(script) as server:
        seen = await look_at_tls(server.url.replace("http:", "https:"), timeout=5)

    assert seen.failure
    assert seen.version == ""


async def test_a_port_without_anybody_and_one_without_a_word():
    async with serve(lambda connection: connection.stall()) as server:
        url = server.url.replace("http:", "https:")
        silent = await look_at_tls(url, timeout=0.2)
    gone = await look_at_tls(url, timeout=5)

    assert "0.2 s" in silent.failure
    assert gone.failure == "Connection refused"


async def test_behind_a_proxy_tls_is_not_looked_at(monkeypatch):
    monkeypatch.setenv("https_proxy", "http://127.0.0.1:1")

    assert await look_at_tls("https://agent.invalid", timeout=1) is None

    diagnosis = await diagnose("https://agent.invalid", timeout=10)
    assert diagnosis.error.failure == "proxy"


async def test_with_an_engine_of_ones_own_tls_is_not_looked_at():
    authority = trustme.CA()
    trusting = ssl.create_default_context()
    authority.configure_trust(trusting)
    async with (
        serve(always(), ssl=certified(authority)) as server,
        AiohttpEngine(ssl=trusting) as engine,
    ):
        diagnosis = await diagnose(server.url, engine=engine)

    assert levels(diagnosis, "card.valid") == {"problem"}  # that far it came
    assert levels(diagnosis, "tls") == set()
    assert not any(f.check.startswith("tls") for f in diagnosis.findings)
