"""Logging in: requirements of the a2a-cli specification, section 12; names carry identifiers."""

import asyncio
import contextlib
import json
import os
import signal
import ssl
import stat
import sys
import time
from types import SimpleNamespace

import msgspec
import pytest
import trustme
from tests.kit.authorization_server import ISSUER, FakeAuthorizationServer, answer, away, refused
from tests.kit.cli_harness import VirtualWall, holdfast
from tests.kit.cli_process import BOUND, start
from tests.kit.raw_server import always, reply, serve

from holdfast import connect
from holdfast.errors import A2AConnectionError
from holdfast.testing import FakeAgent, FakeNetwork, Respond, needs_auth, run
from holdfast.types import (
    AuthorizationCodeOAuthFlow,
    ClientCredentialsOAuthFlow,
    DeviceCodeOAuthFlow,
    OAuth2SecurityScheme,
    OAuthFlows,
    OpenIdConnectSecurityScheme,
    SecurityRequirement,
    SecurityScheme,
    StringList,
)

SECRET = "client-s3cret"
CREDENTIALS = ("auth", "login", "--flow", "client-credentials", "--client-id", "me")
DEVICE = ("auth", "login", "--client-id", "me", "--issuer", ISSUER)


class Scene:
    """A home, an agent and an authorization server, for one command after the other."""

    def __init__(self, home, agent=None, **options):
        self.agent = agent or with_scheme(device_scheme())
        self.home = home
        self.wall = VirtualWall()
        self.server = FakeAuthorizationServer(FakeNetwork(self.agent), **options)

    def run(self, *words, **options):
        return holdfast(
            *words,
            engine=lambda *, verify: self.server,
            home=self.home,
            wall=self.wall,
            **options,
        )

    @property
    def shown(self):
        return [one.headers.get("authorization") for one in self.agent.received]

    @property
    def files(self):
        return [one for one in self.home.rglob("*") if one.is_file()]


@pytest.fixture
def scene(tmp_path):
    return Scene(tmp_path)


def with_scheme(scheme):
    agent = FakeAgent()
    card = run(connect(agent.url, engine=FakeNetwork(agent)).agent_card())
    agent.card = msgspec.structs.replace(
        card,
        security_schemes={"login": scheme},
        security_requirements=(SecurityRequirement(schemes={"login": StringList(list=("a2a",))}),),
    )
    return agent


def device_scheme(at=ISSUER):
    flow = DeviceCodeOAuthFlow(
        token_url=f"{at}/token", device_authorization_url=f"{at}/device_authorization"
    )
    scheme = OAuth2SecurityScheme(flows=OAuthFlows(device_code=flow))
    return SecurityScheme(oauth2_security_scheme=scheme)


# ── AUTH_005: device code ────────────────────────────────────────────────────────────────────


def test_auth_005_login_with_a_device_code_tells_a_person_what_to_do(scene):
    scene.server.replies = [refused("authorization_pending"), refused("slow_down")]
    done = scene.run(*DEVICE, "--scope", "a2a")

    assert done.exit == 0, done.err
    assert f"Open: {ISSUER}/device" in done.err
    assert "Code: ABCD-EFGH" in done.err
    assert done.field("Logged in") == "http://agent.test:80"
    assert scene.server.asked[-1]["device_code"] == "device-secret"
    assert "token-1" not in done.out + done.err


def test_auth_005_a_person_who_refuses_ends_it(scene):
    scene.server.replies = [refused("access_denied")]
    done = scene.run(*DEVICE, "-o", "json")

    assert (done.exit, done.error["code"]) == (4, "A2ACLI_ERR_AUTH_FAILED")
    assert "access_denied" in done.error["message"]
    assert scene.files == [] or all(one.suffix == ".lock" for one in scene.files)


def test_auth_005_login_waits_no_longer_than_the_timeout(scene):
    scene.server.replies = [refused("authorization_pending")] * 90
    done = scene.run(*DEVICE, "-o", "json", "--timeout", "60s")

    assert (done.exit, done.error["code"]) == (5, "A2ACLI_ERR_TIMEOUT")


def test_auth_005_the_server_of_the_card_is_called_only_if_it_is_trusted(tmp_path):
    scene = Scene(tmp_path, with_scheme(device_scheme()))
    words = ("auth", "login", "--client-id", "me", "-o", "json")
    refusal = scene.run(*words)
    done = scene.run(*words, "--trust-server", ISSUER)

    assert (refusal.exit, refusal.error["code"]) == (4, "A2ACLI_ERR_CREDENTIALS_MISSING")
    assert f"--trust-server {ISSUER}:443" in refusal.error["message"]
    assert done.exit == 0, done.out
    assert done.json["scopes"] == ["a2a"]


def test_auth_005_a_card_that_names_another_server_than_the_trusted_one_gets_nothing(tmp_path):
    scene = Scene(tmp_path, with_scheme(device_scheme("https://evil.test")))
    done = scene.run("auth", "login", "--client-id", "me", "--trust-server", ISSUER, "-o", "json")

    assert done.exit != 0
    assert "evil.test" in done.error["message"]
    assert scene.server.requests == []


# ── AUTH_006: client credentials ─────────────────────────────────────────────────────────────


@pytest.mark.parametrize("how", ["environment", "file", "stdin"])
def test_auth_006_login_with_client_credentials(how, scene, tmp_path):
    (tmp_path / "secret").write_text(f"{SECRET}\n")
    more, options = {
        "environment": ((), {"env": {"A2ACLI_CLIENT_SECRET": SECRET}}),
        "file": (("--client-secret-file", str(tmp_path / "secret")), {}),
        "stdin": (("--client-secret-file", "-"), {"stdin": SECRET.encode()}),
    }[how]
    words = (*CREDENTIALS, "--issuer", ISSUER, "--client-auth", "client_secret_post", *more)
    done = scene.run(*words, "-o", "json", **options)

    assert done.exit == 0, done.out
    assert done.json["renewed"] is True
    assert scene.server.asked[0]["client_secret"] == SECRET
    assert SECRET not in done.out + done.err


@pytest.mark.parametrize(
    ("words", "resource"),
    [
        ((), "http://agent.test"),
        (("--resource", "urn:agent:1"), "urn:agent:1"),
        (("--resource", "none"), None),
    ],
)
def test_auth_a_login_is_for_the_agent_and_stays_so_when_it_is_renewed(scene, words, resource):
    env = {"A2ACLI_CLIENT_SECRET": SECRET}
    done = scene.run(*CREDENTIALS, "--issuer", ISSUER, *words, env=env)
    assert done.exit == 0, done.err
    scene.wall.start += 4000
    assert scene.run("send", "hello", env=env).exit == 0

    assert [one.get("resource") for one in scene.server.asked] == [resource] * 2


def test_auth_a_login_of_before_that_names_no_resource_is_renewed_without_one(scene):
    env = {"A2ACLI_CLIENT_SECRET": SECRET}
    scene.run(*CREDENTIALS, "--issuer", ISSUER, env=env)
    (login,) = (one for one in scene.files if one.suffix == ".login")
    kept = json.loads(login.read_bytes())
    del kept["resource"]
    login.write_bytes(msgspec.json.encode(kept))
    scene.wall.start += 4000

    assert scene.run("send", "hello", env=env).exit == 0
    assert "resource" not in scene.server.asked[-1]


def test_auth_a_server_that_refuses_the_resource_is_answered_by_a_hint(scene):
    scene.server.replies = [refused("invalid_target")]
    done = scene.run(*CREDENTIALS, "--issuer", ISSUER, env={"A2ACLI_CLIENT_SECRET": SECRET})

    assert done.exit == 4
    assert "Hint: name the agent as the server does with --resource URI" in done.err


@pytest.mark.rule("P05")
@pytest.mark.parametrize("allowed", [False, True])
def test_auth_a_code_flow_without_advertised_pkce_needs_an_option(scene, allowed, monkeypatch):
    @contextlib.asynccontextmanager
    async def redirect(_state):  # no socket, and nobody comes
        yield SimpleNamespace(uri="http://127.0.0.1:1/callback", received=asyncio.Event().wait)

    monkeypatch.setattr("holdfast._auth.oauth.grants.LoopbackRedirect", redirect)
    scene.run(*DEVICE)
    del scene.server.metadata["code_challenge_methods_supported"]
    words = ("--flow", "authorization-code", "--timeout", "5s")
    env = {"A2ACLI_ALLOW_UNADVERTISED_PKCE": "1"} if allowed else {}
    done = scene.run(*DEVICE, *words, env=env)

    assert ("PKCE with S256" in done.err) is not allowed
    assert ("Open: https://id.test/authorize" in done.err) is allowed
    hint = "--allow-unadvertised-pkce to log in all the same"
    warning = "ignores code challenges (A2ACLI_ALLOW_UNADVERTISED_PKCE"
    assert (warning if allowed else hint) in done.err
    if not allowed:
        assert done.exit == 4
        assert scene.run("auth", "status").field("Logged in") == "http://agent.test:80"


def test_auth_006_no_secret_is_an_argument(scene):
    done = scene.run(*CREDENTIALS, "--issuer", ISSUER, "-o", "json")
    help_ = scene.run("auth", "login", "--help", card=None)

    assert (done.exit, done.error["code"]) == (2, "A2ACLI_ERR_USAGE")
    assert "A2ACLI_CLIENT_SECRET" in done.error["message"]
    assert "--client-secret " not in help_.out


def test_auth_a_login_that_is_not_kept_leaves_no_older_one_for_its_token(scene, monkeypatch):
    scene.run(*DEVICE)

    def full(_self, _login):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("holdfast._cli.agent.login_store.Logins.save", full)
    scene.run(*DEVICE)

    assert not [one for one in scene.files if one.suffix == ".login"]


def test_auth_without_what_it_takes_the_extra_is_named(scene, monkeypatch):
    scene.run(*DEVICE)
    for name in [one for one in sys.modules if one.partition(".")[0] == "oauthlib"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "oauthlib", None)
    again = scene.run(*DEVICE, "-o", "json")
    later = scene.run("task", "list", "-o", "json")

    assert (again.exit, again.error["code"]) == (2, "A2ACLI_ERR_USAGE")
    assert (later.exit, later.error["code"]) == (4, "A2ACLI_ERR_CREDENTIALS_MISSING")
    assert again.error["message"].startswith("auth login needs the extra 'oauth', which is not")
    assert again.error["hint"] == 'install the extra "oauth" (in a clone: pip install ".[oauth]")'
    assert '".[oauth]"' in later.error["message"]


def test_auth_006_a_token_is_fetched_anew_with_the_secret_of_the_environment(scene):
    env = {"A2ACLI_CLIENT_SECRET": SECRET}
    scene.run(*CREDENTIALS, "--issuer", ISSUER, env=env)
    scene.wall.start += 4000
    done = scene.run("send", "hello", env=env)

    assert done.exit == 0, done.err
    assert "Bearer token-2" in scene.shown


@pytest.mark.parametrize(
    ("beside", "is_for_it"),
    [
        ({"A2ACLI_CLIENT_ID": "me", "A2ACLI_ISSUER": ISSUER}, True),
        ({"A2ACLI_CLIENT_ID": "another"}, False),
        ({"A2ACLI_ISSUER": "https://other-id.test"}, False),
    ],
)
def test_auth_006_the_secret_of_another_client_goes_to_no_server(scene, beside, is_for_it):
    env = {"A2ACLI_CLIENT_SECRET": SECRET}
    scene.run(*CREDENTIALS, "--issuer", ISSUER, env=env)
    scene.wall.start += 4000
    before = len(scene.server.asked)
    done = scene.run("send", "hello", env=env | beside)

    assert (done.exit, len(scene.server.asked) - before) == ((0, 1) if is_for_it else (4, 0))


# ── AUTH_007: tokens are kept, and used by themselves ────────────────────────────────────────


def test_auth_007_the_token_is_used_by_later_commands(scene):
    scene.run(*DEVICE)
    done = scene.run("send", "hello")

    assert done.exit == 0, done.err
    sent = [one for one in scene.agent.received if "card" not in one.url]
    assert {one.headers["authorization"] for one in sent} == {"Bearer token-1"}
    cards = [one for one in scene.agent.received if "card" in one.url]
    assert all("authorization" not in one.headers for one in cards)


@pytest.mark.rule("P08")
def test_auth_007_what_is_kept_is_for_its_owner_alone_and_holds_no_client_secret(scene):
    env = {"A2ACLI_CLIENT_SECRET": SECRET}
    scene.run(*CREDENTIALS, "--issuer", ISSUER, env=env)

    assert {stat.S_IMODE(one.stat().st_mode) for one in scene.files} == {0o600}
    assert {stat.S_IMODE(one.parent.stat().st_mode) for one in scene.files} == {0o700}
    assert all(SECRET.encode() not in one.read_bytes() for one in scene.files)


@pytest.mark.rule("P08")
def test_auth_007_a_file_that_others_can_read_is_not_used(scene):
    scene.run(*DEVICE)
    for file in scene.files:
        file.chmod(0o644)
    done = scene.run("send", "hello", "-o", "json")

    assert done.exit == 4
    assert "is readable by other users" in done.error["message"]


def test_auth_007_a_token_goes_only_where_the_card_asks_for_one(tmp_path):
    scene = Scene(tmp_path, FakeAgent())
    scene.run(*DEVICE)
    done = scene.run("send", "hello")

    assert done.exit == 0
    assert "the token of your login is not sent: the card declares no scheme" in done.err
    assert set(scene.shown) == {None}


@pytest.mark.rule("P22")
@pytest.mark.parametrize("named", [False, True])
def test_auth_008_a_cards_server_that_asks_for_a_token_gets_none_unless_it_is_named(scene, named):
    scene.run(*DEVICE)
    agent, seen = scene.agent, []

    class Guarded(FakeNetwork):
        async def request(self, request):
            seen.append(request.headers.get("authorization"))
            return await super().request(request)

    network = Guarded(agent)
    challenge = {"www-authenticate": 'Bearer realm="x"'}
    agent.inject(Respond(status=401, headers=challenge), on="GetAgentCard")
    words = ("--credential-origin", agent.url) if named else ()
    done = holdfast(
        "card", "get", *words, engine=lambda *, verify: network, home=scene.home, wall=scene.wall
    )

    assert (done.exit, seen) == ((0, [None, "Bearer token-1"]) if named else (4, [None]))


@pytest.mark.rule("P22")
def test_auth_007_a_token_is_for_one_origin(scene):
    scene.run(*DEVICE)
    other = FakeAgent(url="http://other.test")
    network = FakeNetwork(other)
    done = holdfast(
        "send", "hello", "--agent-card", other.url,
        card=None, engine=lambda *, verify: network, home=scene.home, wall=scene.wall,
    )  # fmt: skip

    assert done.exit == 0, done.err
    assert all("authorization" not in one.headers for one in other.received)


def test_auth_007_a_token_is_renewed_by_itself(tmp_path):
    scene = Scene(tmp_path, refreshes=True)
    scene.run(*DEVICE)
    scene.wall.start += 4000
    first = scene.run("send", "hello")
    scene.wall.start += 4000
    second = scene.run("send", "hello")

    assert (first.exit, second.exit) == (0, 0)
    spent = [one.get("refresh_token") for one in scene.server.asked[1:]]
    assert spent == ["refresh-1", "refresh-2"]


def test_auth_007_a_token_that_cannot_be_renewed_says_so(scene):
    scene.run(*DEVICE)
    scene.wall.start += 4000
    done = scene.run("send", "hello", "-o", "json")

    assert done.exit == 4
    assert "holdfast auth login" in done.error["message"]
    assert all("card" in one.url for one in scene.agent.received)


def test_auth_007_a_flag_comes_before_the_login(scene):
    scene.run(*DEVICE)
    scene.run("send", "hello", env={"A2ACLI_BEARER": "mine"})

    assert "Bearer mine" in scene.shown
    assert "Bearer token-1" not in scene.shown


def test_auth_007_status_and_logout(scene):
    before = scene.run("auth", "status", "-o", "json")
    scene.run(*DEVICE)
    during = scene.run("auth", "status", "-o", "json")
    told = scene.run("auth", "status")
    logout = scene.run("auth", "logout")
    after = scene.run("auth", "status", "-o", "json")

    assert [one.json["loggedIn"] for one in (before, during, after)] == [False, True, False]
    assert during.json["expiresAt"].endswith("+00:00")
    assert told.field("Logged in") == "http://agent.test:80"
    assert logout.out.startswith("Logged out: http://agent.test")
    assert "token-1" not in during.out + told.out
    assert not [one for one in scene.files if one.suffix != ".lock"]


def test_auth_007_status_without_an_agent_lists_all_logins(scene):
    def status(*words, **more):
        return scene.run("auth", "status", *words, card=None, **more)

    assert status().out == "Not logged in at any agent\n"
    scene.run(*DEVICE)
    scene.run(*DEVICE, "--agent-card", "http://b.test", card=None)
    (scene.home / ".env").write_text("A2ACLI_AGENT_CARD=http://found.test\n")
    listed = status("-o", "json", directory=scene.home).json["logins"]
    told = status()
    assert [one["agent"] for one in listed] == ["http://agent.test:80", "http://b.test:80"]
    assert told.out.count("Logged in: ") == 2
    one = status("-o", "json", env={"A2ACLI_AGENT_CARD": "http://b.test"})
    assert (one.json["agent"], one.json["loggedIn"]) == ("http://b.test:80", True)
    assert "token-1" not in told.out + told.err

    broken = next(one for one in scene.files if one.suffix == ".login")
    broken.chmod(0o644)
    told = status()
    assert told.out.count("Logged in: ") == 1
    assert f"Warning: {broken} is readable by other users" in told.err


def test_auth_007_config_show_lists_the_logins_and_their_files(scene):
    assert scene.run("config", "show", "-o", "json").json["logins"] == []
    scene.run(*DEVICE)
    (login,) = (str(one) for one in scene.files if one.suffix == ".login")
    listed = scene.run("config", "show", "-o", "json").json["logins"]
    assert listed == [{"agent": "http://agent.test:80", "file": login}]
    assert scene.run("config", "show").field("Login") == f"http://agent.test:80 [{login}]"


@pytest.mark.parametrize("flow", ["authorization-code", "client-credentials", "device-code"])
def test_auth_007_a_401_names_the_login_that_the_card_offers(tmp_path, flow):
    flows = {
        "authorization-code": {
            "authorization_code": AuthorizationCodeOAuthFlow(
                authorization_url=f"{ISSUER}/authorize", token_url=f"{ISSUER}/token"
            )
        },
        "client-credentials": {
            "client_credentials": ClientCredentialsOAuthFlow(token_url=f"{ISSUER}/token")
        },
    }
    scheme = device_scheme()
    if flow in flows:
        oauth = OAuth2SecurityScheme(flows=OAuthFlows(**flows[flow]))
        scheme = SecurityScheme(oauth2_security_scheme=oauth)
    scene = Scene(tmp_path, with_scheme(scheme))
    scene.agent.inject(Respond(status=401), on="SendMessage", times=9)
    done = scene.run("send", "hello")
    named = "" if flow == "device-code" else f"--flow {flow} "
    assert (
        f"Hint: log in: holdfast auth login {named}--client-id CLIENT_ID --agent-card "
        "http://agent.test, or set A2ACLI_BEARER" in done.err
    )


@pytest.mark.parametrize("debug", [(), ("--debug",), ("--debug", "--verbose")])
def test_auth_007_no_diagnostic_shows_a_token(debug, tmp_path):
    scene = Scene(tmp_path, refreshes=True)
    env = {"A2ACLI_CLIENT_SECRET": SECRET}
    done = [
        scene.run(*DEVICE, *debug, env=env),
        scene.run("send", "hello", *debug, env=env),
    ]

    told = "".join(one.out + one.err for one in done)
    assert all(one.exit == 0 for one in done), told
    for secret in ("token-1", "refresh-1", "device-secret", SECRET):
        assert secret not in told


# ── AUTH_009: mutual TLS ─────────────────────────────────────────────────────────────────────


@pytest.mark.real_time
async def test_auth_009_a_certificate_is_shown(tmp_path):
    authority = trustme.CA()
    own = authority.issue_cert("client@test")
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    own.cert_chain_pems[0].write_to_path(str(cert))
    own.private_key_pem.write_to_path(str(key))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    context.verify_mode = ssl.CERT_REQUIRED
    authority.configure_trust(context)
    agent = FakeAgent()
    card = await connect(agent.url, engine=FakeNetwork(agent)).agent_card()
    async with serve(always(reply(json.dumps(card.to_dict()).encode())), ssl=context) as server:
        words = ("card", "get", "--insecure", "--timeout", "10s")
        shown = ("--client-cert", str(cert), "--client-key", str(key))
        with_it = await asyncio.to_thread(
            holdfast, *words, *shown, card=server.url, on_sockets=True
        )
        without = await asyncio.to_thread(holdfast, *words, card=server.url, on_sockets=True)

    assert with_it.exit == 0, with_it.err
    assert without.exit == 3, without.out


def test_auth_009_a_certificate_that_cannot_be_is_wrong_usage(tmp_path):
    (tmp_path / "no.pem").write_text("none")
    for words in (("--client-cert", str(tmp_path / "no.pem")), ("--client-key", "nowhere.pem")):
        done = holdfast("send", "hello", *words, "-o", "json")

        assert (done.exit, done.error["code"]) == (2, "A2ACLI_ERR_USAGE")
        assert "--client-" in done.error["message"]


# ── AUTH_010: OpenID Connect ─────────────────────────────────────────────────────────────────


def test_auth_010_openid_connect_by_the_card(tmp_path):
    scheme = OpenIdConnectSecurityScheme(
        open_id_connect_url=f"{ISSUER}/.well-known/openid-configuration"
    )
    agent = with_scheme(SecurityScheme(open_id_connect_security_scheme=scheme))
    scene = Scene(tmp_path, agent)
    done = scene.run("auth", "login", "--client-id", "me", "--trust-server", ISSUER, "-o", "json")
    sent = scene.run("send", "hello")

    assert done.exit == 0, done.out
    assert done.json["authorizationServer"] == ISSUER
    assert sent.exit == 0
    assert "Bearer token-1" in scene.shown


def test_auth_010_metadata_of_another_issuer_is_refused(scene):
    scene.server.metadata["issuer"] = "https://evil.test"
    done = scene.run(*DEVICE, "-o", "json")

    assert (done.exit, done.error["code"]) == (4, "A2ACLI_ERR_AUTH_FAILED")
    assert "is of https://evil.test" in done.error["message"]


@pytest.mark.parametrize(
    ("metadata", "code", "said", "hint"),
    [
        (away(), "A2ACLI_ERR_UNREACHABLE", "refused", "check --issuer, and that the server is"),
        (
            A2AConnectionError("no such name", failure="dns", executed=False),
            "A2ACLI_ERR_UNREACHABLE",
            "no such name",
            "check the host name in --issuer",
        ),
        (
            answer(b"<html>Welcome</html>"),
            "A2ACLI_ERR_AUTH_FAILED",
            "has no authorization server metadata (HTTP 200, not a JSON object)",
            "check --issuer: ",
        ),
    ],
    ids=["refused", "dns", "HTML"],
)
def test_an_issuer_that_cannot_be_used_is_named(scene, metadata, code, said, hint):
    async def answered(_request):
        if isinstance(metadata, Exception):
            raise metadata
        return metadata

    scene.server.answered = answered
    error = scene.run(*DEVICE, "-o", "json").error
    assert error["code"] == code
    assert ISSUER in error["message"]
    assert said in error["message"]
    assert "agent" not in error["message"]
    assert error["hint"].startswith(hint)


# ── AUTH_011: an authorization in the middle of a task ───────────────────────────────────────


def test_auth_011_a_task_that_waits_for_an_authorization_says_how_to_continue(tmp_path):
    scene = Scene(tmp_path, FakeAgent(needs_auth("log in at https://x.test")))
    asked = scene.run("send", "hello")

    assert asked.exit == 0
    assert asked.field("State") == "TASK_STATE_AUTH_REQUIRED"
    assert asked.field("Status message") == "log in at https://x.test"
    assert f"holdfast task get --wait --through-auth {asked.field('Task ID')}" in asked.err


# ── What cannot be right ─────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("auth", "login", "--issuer", ISSUER), "--client-id"),
        (("auth", "login", "--client-id", "me", "--issuer", "http://id.test"), "https"),
        (("auth", "login", "--client-id", "me"), "--issuer"),
        ((*CREDENTIALS, "--client-secret-file", "/no/such/file"), "cannot be read"),
    ],
)
def test_auth_wrong_usage_is_reported(words, told, tmp_path):
    done = Scene(tmp_path, FakeAgent()).run(*words, "-o", "json")

    assert (done.exit, done.error["code"]) == (2, "A2ACLI_ERR_USAGE")
    assert told in done.error["message"]


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no named pipes here")
def test_auth_one_interruption_ends_the_wait_for_a_secret_that_no_process_writes(tmp_path):
    os.mkfifo(tmp_path / "secret")
    words = (*CREDENTIALS, "--client-secret-file", str(tmp_path / "secret"))
    ends, writer = time.monotonic() + BOUND, None
    with start(*words, "-a", "http://127.0.0.1:1") as process:
        while writer is None and time.monotonic() < ends:
            with contextlib.suppress(OSError):  # until the command waits for it
                writer = os.open(tmp_path / "secret", os.O_WRONLY | os.O_NONBLOCK)
        process.send_signal(signal.SIGINT)
        _, told = process.communicate(timeout=BOUND)
        os.close(writer)
    assert (process.returncode, told.strip()) == (130, "")


def test_auth_a_redirect_of_the_token_endpoint_is_not_followed(scene):
    scene.server.replies = [answer(b"", 307, location="https://evil.test/")]
    done = scene.run(*DEVICE, "-o", "json")

    assert done.exit == 4
    assert "a redirect (HTTP 307)" in done.error["message"]
