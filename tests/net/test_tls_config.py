"""TLS configuration, over real TLS on loopback: mutual TLS, and invalid files."""

import os
import ssl
import subprocess
import sys

import msgspec
import pytest
from cryptography.hazmat.primitives import serialization
from tests.kit.cli_harness import holdfast
from tests.kit.raw_server import always, serve
from tests.kit.tls_files import Files

from holdfast import A2AConnectionError, AiohttpEngine, Coordinator, TlsConfig, connect
from holdfast._net import private_files
from holdfast.extend import HttpRequest
from holdfast.policies import Timeouts
from holdfast.testing import FakeAgent, FakeNetwork

real_time = pytest.mark.real_time


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    return Files(tmp_path_factory.mktemp("one"))


@pytest.fixture(scope="module")
def other_authority(tmp_path_factory):
    return Files(tmp_path_factory.mktemp("other"))


def post(url):
    return HttpRequest(
        method="POST", url=url, body=b"{}", timeouts=Timeouts(connect=5, first_byte=5)
    )


async def failure_of(server, tls):
    async with AiohttpEngine(ssl=tls) as engine:
        with pytest.raises(A2AConnectionError) as caught:
            await engine.request(post(server.url))
    return caught.value


# ── Permissions of key files ─────────────────────────────────────────────────────────────────


posix = pytest.mark.skipif(os.name == "nt", reason="permissions of POSIX")


@pytest.mark.rule("P09")
@posix
@pytest.mark.parametrize("mode", [0o640, 0o604, 0o644, 0o620])
@pytest.mark.parametrize("key", ["key", "both"])
def test_a_key_that_others_may_read_causes_a_warning(files, caplog, key, mode):
    path = getattr(files, key)
    path.chmod(mode)
    try:
        TlsConfig(cert_file=files.cert if key == "key" else path, key_file=path)
    finally:
        path.chmod(0o600)

    (warning,) = caplog.records
    assert (warning.name, warning.levelname) == ("holdfast.security", "WARNING")
    assert f"{path} has mode {mode:04o}" in warning.getMessage()
    assert "chmod 600" in warning.getMessage()


@pytest.mark.rule("P09")
@posix
def test_a_private_key_of_the_user_causes_no_warning(files, caplog):
    files.cert.chmod(0o644)  # which is no secret
    files.key.chmod(0o400)
    TlsConfig(cert_file=files.cert, key_file=files.key)
    TlsConfig(ca_file=files.ca)
    files.key.chmod(0o600)
    assert caplog.records == []


@pytest.mark.rule("P09")
@posix
def test_a_key_of_another_user_causes_a_warning_and_one_shared_by_root_does_not(
    files, caplog, monkeypatch
):
    owner = os.geteuid()
    files.key.chmod(0o640)
    monkeypatch.setattr(os, "geteuid", lambda: owner + 1)
    monkeypatch.setattr(private_files, "_ROOT", owner)
    TlsConfig(cert_file=files.cert, key_file=files.key)
    assert caplog.records == []

    monkeypatch.setattr(private_files, "_ROOT", owner + 2)
    TlsConfig(cert_file=files.cert, key_file=files.key)
    files.key.chmod(0o600)
    assert f"{files.key} belongs to user {owner}" in caplog.text


@pytest.mark.rule("P09")
@posix
def test_the_command_line_shows_the_warning(files):
    files.key.chmod(0o644)
    words = ("--client-cert", str(files.cert), "--client-key", str(files.key))
    done = holdfast("send", "hello", *words, engine=lambda **_: FakeNetwork(FakeAgent("done")))
    files.key.chmod(0o600)
    assert done.exit == 0
    assert done.err.startswith(f"Warning: the client's key in {files.key} has mode 0644")
    assert done.err.count("Warning") == 1


# ── Mutual TLS ───────────────────────────────────────────────────────────────────────────────


@real_time
async def test_a_client_certificate_is_sent_to_a_server_that_requires_one(files):
    configs = [
        TlsConfig(ca_file=files.ca, cert_file=files.cert, key_file=files.key),
        TlsConfig(ca_file=str(files.ca), cert_file=str(files.both)),
        TlsConfig(
            ca_file=files.ca,
            cert_file=files.cert,
            key_file=files.locked,
            key_password="open sesame",
        ),
        TlsConfig(cert_file=files.both, verify=False),
    ]
    async with serve(always(), ssl=files.server()) as server:
        for tls in configs:
            async with AiohttpEngine(ssl=tls) as engine:
                assert (await engine.request(post(server.url))).status == 200


@real_time
async def test_without_the_right_certificate_nothing_is_sent(files, other_authority):
    none = TlsConfig(ca_file=files.ca)
    wrong = TlsConfig(
        ca_file=files.ca, cert_file=other_authority.cert, key_file=other_authority.key
    )
    old = files.server()
    old.maximum_version = ssl.TLSVersion.TLSv1_2
    async with serve(always(), ssl=old) as server:
        for tls in (none, wrong):
            error = await failure_of(server, tls)

            assert (error.failure, error.executed) == ("tls", False)
        assert server.requests == []
    # With TLS 1.3 the server looks at it when the client may have sent its request already.
    async with serve(always(), ssl=files.server()) as server:
        for tls in (none, wrong):
            await failure_of(server, tls)
        assert server.requests == []


@pytest.mark.rule("P33")
@real_time
async def test_a_server_of_another_authority_is_refused(files, other_authority):
    async with serve(always(), ssl=files.server(demanding=False)) as server:
        error = await failure_of(server, TlsConfig(ca_file=other_authority.ca))

        assert (error.failure, error.executed, error.transient) == ("tls", False, False)
        assert server.requests == []


@pytest.mark.rule("P33")
@real_time
async def test_verification_can_be_disabled(files):
    async with (
        serve(always(), ssl=files.server(demanding=False)) as server,
        AiohttpEngine(ssl=TlsConfig(verify=False)) as engine,
    ):
        assert (await engine.request(post(server.url))).status == 200


@real_time
async def test_a_client_and_a_coordinator_use_the_config(files):
    tls = TlsConfig(ca_file=files.ca, cert_file=files.cert, key_file=files.key)
    async with serve(always(), ssl=files.server()) as server:
        async with connect(server.url, tls=tls) as client:
            with pytest.raises(Exception, match="card"):
                await client.agent_card()
        request_count = len(server.requests)
        async with Coordinator({"a": server.url}, tls=tls) as coordinator:
            with pytest.raises(Exception, match="card"):
                await coordinator.client("a").agent_card()

        assert 0 < request_count < len(server.requests)


# ── Invalid arguments ────────────────────────────────────────────────────────────────────────


def test_tls_with_an_engine_that_has_its_own_is_refused():
    agent = FakeAgent()
    with pytest.raises(ValueError, match="AiohttpEngine"):
        connect(agent.url, engine=FakeNetwork(agent), tls=TlsConfig())
    with pytest.raises(ValueError, match="AiohttpEngine"):
        Coordinator([agent.url], engine=FakeNetwork(agent), tls=TlsConfig())
    with pytest.raises(TypeError, match="tls must be TlsConfig"):
        connect(agent.url, tls=True)
    with pytest.raises(TypeError, match="tls must be TlsConfig"):
        Coordinator([agent.url], tls="ca.pem")


@pytest.mark.parametrize("name", ["ca_file", "cert_file", "key_file"])
def test_a_missing_file_is_named(name, files, tmp_path):
    options = {"cert_file": files.cert} if name == "key_file" else {}
    with pytest.raises(FileNotFoundError, match=rf"{name}: file not found: .*nowhere\.pem"):
        TlsConfig(**options, **{name: tmp_path / "nowhere.pem"})


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"ca_file": "garbage"}, r"ca_file: .*garbage\.pem holds no certificate"),
        ({"cert_file": "garbage"}, "contains no certificate with its key"),
        ({"cert_file": "cert"}, "pass key_file as well"),
        ({"cert_file": "cert", "key_file": "garbage"}, "contain no certificate with its key"),
        ({"cert_file": "cert", "key_file": "strange"}, "does not belong to the certificate"),
        ({"cert_file": "cert", "key_file": "locked"}, "is encrypted; pass key_password"),
        (
            {"cert_file": "cert", "key_file": "locked", "key_password": "swordfish"},
            "key_password does not open",
        ),
        ({"key_file": "key"}, "needs cert_file; pass both"),
        ({"key_password": "open sesame"}, "needs cert_file; pass both"),
        ({"ca_file": "ca", "verify": False}, "pass only one of them"),
    ],
)
def test_an_invalid_file_is_refused_at_once(options, words, files, other_authority, tmp_path):
    garbage = tmp_path / "garbage.pem"
    garbage.write_text("garbage")
    paths = {**vars(files), "garbage": garbage, "strange": other_authority.key}
    resolved_options = {
        name: paths[v] if name.endswith("_file") else v for name, v in options.items()
    }

    with pytest.raises(ValueError, match=words) as caught:
        TlsConfig(**resolved_options)
    assert "swordfish" not in str(caught.value)


def test_no_password_is_requested_on_a_terminal(files):
    code = (
        "import sys, holdfast\n"
        "try: holdfast.TlsConfig(cert_file=sys.argv[1], key_file=sys.argv[2])\n"
        "except ValueError as error: print(error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, files.cert, files.locked],
        capture_output=True,
        text=True,
        check=True,
        timeout=30,
        env={"PYTHONPATH": "src"},
        start_new_session=True,
    )

    assert done.stdout.endswith("is encrypted; pass key_password\n")
    assert "PEM pass phrase" not in done.stderr


@pytest.mark.parametrize(
    "options", [{"ca_file": 1}, {"key_password": b"x"}, {"verify": "yes"}, {"cert_file": b"x"}]
)
def test_a_value_of_another_type_is_refused(options):
    with pytest.raises(TypeError, match=next(iter(options))):
        TlsConfig(**options)


# ── The configuration as a value ─────────────────────────────────────────────────────────────


def test_the_files_are_returned_as_pem(files):
    tls = TlsConfig(
        ca_file=files.ca, cert_file=files.cert, key_file=files.locked, key_password="open sesame"
    )
    pem = tls.pem()

    assert pem.ca == files.ca.read_bytes()
    assert pem.certificate == files.cert.read_bytes()
    assert pem.key is not None
    opened = serialization.load_pem_private_key(pem.key, None)
    expected = serialization.load_pem_private_key(files.key.read_bytes(), None)
    assert opened.private_numbers() == expected.private_numbers()
    assert TlsConfig(cert_file=files.both).pem().key == files.key.read_bytes()
    assert TlsConfig().pem() == (None, None, None)


def test_a_config_is_frozen_and_shows_no_secret(files):
    tls = TlsConfig(cert_file=files.cert, key_file=files.locked, key_password="open sesame")

    assert "open sesame" not in repr(tls)
    assert "key_password=…" in repr(tls)
    assert "PRIVATE" not in repr(tls.pem())
    with pytest.raises(AttributeError):
        tls.verify = False
    assert tls == msgspec.structs.replace(tls)


def test_renewed_files_are_read_for_the_next_context(files, other_authority, tmp_path):
    ca = tmp_path / "ca.pem"
    ca.write_bytes(files.ca.read_bytes())
    tls = TlsConfig(ca_file=ca)
    before = tls.context().get_ca_certs()
    ca.write_bytes(other_authority.ca.read_bytes())

    assert tls.context().get_ca_certs() != before


def test_an_engine_has_its_tls_config():
    tls = TlsConfig(verify=False)

    assert AiohttpEngine(ssl=tls).tls is tls
    assert AiohttpEngine(ssl=False).tls is None
