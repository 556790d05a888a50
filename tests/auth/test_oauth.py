"""OAuth 2.0 tokens as credentials: in virtual time, against a scripted authorization server."""

import asyncio
import base64
import contextlib
import logging
import os
import stat
import threading
from pathlib import Path
from urllib.parse import parse_qs, quote_plus, urlsplit

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.pretty import pretty_repr
from tests.kit.authorization_server import (
    ISSUER,
    FakeAuthorizationServer,
    VirtualEnv,
    answer,
    away,
    refused,
)

from holdfast import (
    A2AError,
    A2ATimeoutError,
    AuthenticationError,
    DeadlineExceededError,
    connect,
)
from holdfast._auth.oauth.requests import token_in
from holdfast.auth import Credentials
from holdfast.auth.oauth import (
    AuthorizationCode,
    AuthorizationServer,
    ClientCredentials,
    DeviceCode,
    FileTokenStore,
    FromCard,
    MemoryTokenStore,
    Token,
)
from holdfast.errors import CredentialOriginError, PermissionDeniedError
from holdfast.extend import HttpRequest
from holdfast.policies import Resilience, RetryPolicy
from holdfast.testing import Cut, FakeAgent, FakeNetwork, run, streams
from holdfast.types import (
    AuthenticationInfo,
    AuthorizationCodeOAuthFlow,
    ClientCredentialsOAuthFlow,
    DeviceCodeOAuthFlow,
    OAuth2SecurityScheme,
    OAuthFlows,
    OpenIdConnectSecurityScheme,
    SecurityRequirement,
    SecurityScheme,
    StringList,
    TaskPushNotificationConfig,
)

SECRET = "s3cret/+ of the client"
SERVER = AuthorizationServer(
    token_endpoint=f"{ISSUER}/token",
    authorization_endpoint=f"{ISSUER}/authorize",
    device_authorization_endpoint=f"{ISSUER}/device_authorization",
    issuer=ISSUER,
)


TOKENS = SERVER.token_endpoint


class Scene:
    """A fake agent, an authorization server, and a provider between them."""

    def __init__(self, agent=None, **options):
        self.agent = agent or FakeAgent()
        server_options = {"lifetime", "latency", "refreshes", "issuer"}
        self.server = FakeAuthorizationServer(
            FakeNetwork(self.agent), **{k: options.pop(k) for k in server_options & options.keys()}
        )
        self.env = VirtualEnv()
        kind = options.pop("kind", ClientCredentials)
        first = {"kind": options.pop("server", SERVER)}["kind"]
        if kind is ClientCredentials:
            options.setdefault("client_secret", SECRET)
        self.auth = kind(first, "me", engine=self.server, env=self.env, **options)

    def connect(self, **options):
        options.setdefault("resilience", Resilience.off())
        return connect(self.agent.url, auth=self.auth, engine=self.server, env=self.env, **options)

    @property
    def shown(self):
        """The tokens that the agent received, without those for its card."""
        return [
            request.headers.get("authorization", "")
            for request in self.agent.received
            if not request.url.endswith("agent-card.json")
        ]


def wants(*tokens, error="invalid_token", status=401, **more):
    """Return a guard of agents that accepts only these tokens."""

    def guard(request):
        if request.url.endswith("agent-card.json"):
            return None
        if request.headers.get("authorization") in {f"Bearer {token}" for token in tokens}:
            return None
        parameters = ", ".join(
            f'{name}="{value}"' for name, value in {"error": error, **more}.items()
        )
        return answer(b"", status, www_authenticate=f"Bearer {parameters}")

    return guard


# ── Fetching, caching and renewing ───────────────────────────────────────────────────────────


async def test_a_token_is_fetched_once_and_sent():
    scene = Scene(scopes=["a2a", "read"], resource="https://agent.test/")
    async with scene.connect() as client:
        for _ in range(3):
            await client.list_tasks()

    assert scene.shown == ["Bearer token-1"] * 3
    assert scene.server.asked == [
        {
            "grant_type": "client_credentials",
            "scope": "a2a read",
            "resource": "https://agent.test/",
        }
    ]
    request = scene.server.requests[0]
    name, secret = base64.b64decode(request.headers["authorization"][6:]).decode().split(":")
    assert (name, secret) == ("me", "s3cret%2F%2B+of+the+client")


@pytest.mark.parametrize(
    ("options", "supported", "body"),
    [
        ({"client_auth": "client_secret_post"}, (), {"client_id": "me", "client_secret": SECRET}),
        ({}, ("client_secret_post",), {"client_id": "me", "client_secret": SECRET}),
        ({"client_secret": None}, (), {"client_id": "me"}),
        ({}, ("client_secret_basic", "client_secret_post"), {}),
    ],
)
async def test_each_client_authentication_method_is_sent(options, supported, body):
    server = msgspec.structs.replace(SERVER, token_endpoint_auth_methods_supported=supported)
    scene = Scene(server=server, **options)
    await scene.auth.token()

    assert scene.server.asked == [{"grant_type": "client_credentials", **body}]
    assert ("authorization" in scene.server.requests[0].headers) is (not body)


@pytest.mark.parametrize(
    ("lifetime", "still", "expired"), [(3600, 3569, 3571), (20, 14, 16), (None, 10**6, None)]
)
async def test_a_token_is_renewed_before_it_expires(lifetime, still, expired):
    scene = Scene(lifetime=lifetime)
    await scene.auth.token()
    await asyncio.sleep(still)
    assert (await scene.auth.token()).access_token == "token-1"
    if expired is not None:
        await asyncio.sleep(expired - still)
        assert (await scene.auth.token()).access_token == "token-2"


async def test_the_lifetime_of_a_token_counts_from_the_request():
    scene = Scene(lifetime=100, latency=20)
    await scene.auth.token()
    await asyncio.sleep(54)  # a quarter of it is kept back
    assert (await scene.auth.token()).access_token == "token-1"
    await asyncio.sleep(2)
    assert (await scene.auth.token()).access_token == "token-2"


@pytest.mark.parametrize("shift", [-10_000, 10_000])
async def test_setting_the_clock_back_revives_no_token(shift):
    scene = Scene(lifetime=100)
    await scene.auth.token()
    scene.env.offset += shift
    await asyncio.sleep(80)

    assert (await scene.auth.token()).access_token == "token-2"


async def test_a_token_that_expires_at_once_is_used_once_by_all_waiting_calls():
    scene = Scene(lifetime=0, latency=1)
    tokens = await asyncio.gather(*(scene.auth.token() for _ in range(5)))

    assert {token.access_token for token in tokens} == {"token-1"}


async def test_a_refresh_token_is_used_once_and_rotated():
    scene = Scene(kind=DeviceCode, prompt=lambda _: None, refreshes=True, lifetime=100)
    first = await scene.auth.token()
    await asyncio.sleep(90)
    second = await scene.auth.token()
    await asyncio.sleep(90)
    await scene.auth.token()

    assert (first.refresh_token, second.refresh_token) == ("refresh-1", "refresh-2")
    refresh_requests = [
        (form["grant_type"], form.get("refresh_token")) for form in scene.server.asked[1:]
    ]
    assert refresh_requests == [("refresh_token", "refresh-1"), ("refresh_token", "refresh-2")]


async def test_a_refresh_token_is_kept_if_the_server_returns_none():
    store = MemoryTokenStore()
    scene = Scene(
        kind=DeviceCode, prompt=lambda _: None, refreshes=True, lifetime=100, store=store
    )
    await scene.auth.token()
    scene.server.refreshes = False
    await asyncio.sleep(90)

    assert (await scene.auth.token()).refresh_token == "refresh-1"


async def test_a_refused_refresh_token_restarts_the_grant():
    prompts = []
    scene = Scene(kind=DeviceCode, prompt=prompts.append, refreshes=True, lifetime=100)
    await scene.auth.token()
    scene.server.spent.add("refresh-1")
    await asyncio.sleep(90)

    assert (await scene.auth.token()).access_token == "token-2"
    assert len(prompts) == 2


# ── Concurrent calls ─────────────────────────────────────────────────────────────────────────


async def test_concurrent_calls_share_one_fetch():
    scene = Scene(latency=3)
    async with scene.connect() as client:
        await asyncio.gather(*(client.list_tasks() for _ in range(50)))

    assert len(scene.server.asked) == 1
    assert set(scene.shown) == {"Bearer token-1"}


async def test_a_cancelled_call_does_not_cancel_the_shared_fetch():
    scene = Scene(latency=3)
    first, second = (asyncio.create_task(scene.auth.token()) for _ in range(2))
    await asyncio.sleep(1)
    first.cancel()

    assert (await second).access_token == "token-1"
    assert first.cancelled()
    assert len(scene.server.requests) == 1


async def test_the_last_cancelled_call_cancels_the_fetch():
    scene = Scene(latency=3)
    waiting = [asyncio.create_task(scene.auth.token()) for _ in range(3)]
    await asyncio.sleep(1)
    for task in waiting:
        task.cancel()
    await asyncio.wait(waiting)

    assert scene.server.ended == 1
    assert asyncio.all_tasks() == {asyncio.current_task()}
    assert (await scene.auth.token()).access_token == "token-1"


async def test_a_refresh_is_finished_without_a_waiting_call():
    scene = Scene(kind=DeviceCode, prompt=lambda _: None, refreshes=True, lifetime=100)
    await scene.auth.token()
    await asyncio.sleep(90)
    scene.server.latency = 3
    task = asyncio.create_task(scene.auth.token())
    await asyncio.sleep(1)
    task.cancel()
    await asyncio.wait({task})
    assert task.cancelled()
    await asyncio.sleep(5)

    assert asyncio.all_tasks() == {asyncio.current_task()}
    assert (await scene.auth.token()).refresh_token == "refresh-2"
    assert scene.server.ended == 0


@pytest.mark.rule("D05")
async def test_a_storm_of_cancellations_leaks_nothing():
    scene = Scene(latency=1, lifetime=7)
    for turn in range(200):
        tasks = [asyncio.create_task(scene.auth.token()) for _ in range(turn % 4 + 1)]
        await asyncio.sleep((turn % 7) / 4)
        for number, task in enumerate(tasks):
            if (number + turn) % 3:
                task.cancel()
        if turn % 5:
            await asyncio.wait(tasks)
    await asyncio.sleep(5)

    assert asyncio.all_tasks() == {asyncio.current_task()}
    assert (await scene.auth.token()).access_token.startswith("token-")


async def test_a_call_that_joins_during_a_cancellation_starts_a_new_fetch():
    scene = Scene(latency=3)
    first = asyncio.create_task(scene.auth.token())
    await asyncio.sleep(1)
    first.cancel()
    await asyncio.sleep(0)  # it is being ended just now
    assert (await scene.auth.token()).access_token == "token-1"


def test_event_loops_in_threads_take_turns_with_one_refresh_token():
    store = MemoryTokenStore()
    scene = Scene(
        kind=DeviceCode, prompt=lambda _: None, refreshes=True, lifetime=100, store=store
    )
    run(scene.auth.token())
    scene.env.offset += 95
    scene.server.latency = 0.05
    barrier, access_tokens = threading.Barrier(3), []

    async def get():
        access_tokens.append((await scene.auth.token()).access_token)

    def work():
        barrier.wait()
        asyncio.run(get())

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)

    assert access_tokens == ["token-2"] * 3
    assert [form.get("refresh_token") for form in scene.server.asked[1:]] == ["refresh-1"]


def test_a_token_outlives_the_loop_that_fetched_it():
    scene = Scene()
    assert run(scene.auth.token()).access_token == "token-1"
    assert run(scene.auth.token()).access_token == "token-1"
    assert len(scene.server.asked) == 1


# ── Refused tokens ───────────────────────────────────────────────────────────────────────────


async def test_a_refused_token_is_replaced_and_the_call_replayed_once():
    scene = Scene()
    scene.server.guard = wants("token-2")
    async with scene.connect() as client:
        await client.send_message("hello")

    assert scene.shown == ["Bearer token-2"]
    assert len(scene.server.asked) == 2


async def test_a_second_refusal_is_final():
    scene = Scene()
    scene.server.guard = wants("another")
    async with scene.connect() as client:
        with pytest.raises(AuthenticationError) as caught:
            await client.send_message("hello")

    assert (caught.value.http_status, caught.value.executed) == (401, False)
    assert len(scene.server.asked) == 2
    assert scene.shown == []


async def test_an_agent_that_refuses_all_tokens_causes_no_fetch_for_each_call():
    scene = Scene()
    scene.server.guard = wants("another")
    async with scene.connect() as client:
        for _ in range(5):
            with pytest.raises(AuthenticationError):
                await client.list_tasks()
        assert len(scene.server.asked) == 2
        await asyncio.sleep(31)
        scene.server.guard = wants("token-3")
        await client.list_tasks()

    assert len(scene.server.asked) == 3


async def test_a_call_that_is_an_invalid_request_does_not_replace_the_token():
    scene = Scene()
    scene.server.guard = wants("token-2", error="invalid_request")
    async with scene.connect() as client:
        with pytest.raises(AuthenticationError):
            await client.list_tasks()

    assert len(scene.server.asked) == 1


@pytest.mark.parametrize("challenge", [{}, {"www_authenticate": 'Basic realm="a"'}])
async def test_a_401_without_a_bearer_challenge_replaces_the_token(challenge):
    scene = Scene()
    guard = wants("token-2")
    scene.server.guard = lambda request: guard(request) and answer(b"", 401, **challenge)
    async with scene.connect() as client:
        await client.list_tasks()

    assert (scene.shown, len(scene.server.asked)) == (["Bearer token-2"], 2)


async def test_concurrent_refusals_of_one_token_cause_one_fetch():
    scene = Scene(latency=2)
    async with scene.connect() as client:
        await client.list_tasks()
        scene.server.guard = wants("token-2")
        await asyncio.gather(*(client.list_tasks() for _ in range(20)))

    assert len(scene.server.asked) == 2


async def test_a_refused_token_in_the_store_is_not_used_again():
    store = MemoryTokenStore()
    scene = Scene(store=store)
    scene.server.guard = wants("token-2")
    async with scene.connect() as client:
        await client.list_tasks()
        await client.list_tasks()

    assert len(scene.server.asked) == 2


@pytest.mark.rule("P07")
@pytest.mark.parametrize("status", [401, 403])
async def test_a_missing_scope_is_named(status):
    scene = Scene(scopes=["read"])
    scene.server.guard = wants(error="insufficient_scope", scope="read write", status=status)
    async with scene.connect() as client:
        with pytest.raises(
            (AuthenticationError, PermissionDeniedError), match=r"read write.*step_up"
        ):
            await client.list_tasks()

    assert len(scene.server.asked) == 1


@pytest.mark.parametrize("status", [401, 403])
async def test_step_up_requests_a_missing_scope(status):
    scene = Scene(scopes=["read"], step_up=["write"])
    scene.server.guard = wants(
        "token-2", error="insufficient_scope", scope="read write", status=status
    )
    async with scene.connect() as client:
        await client.send_message("hello")
        await client.send_message("hello")

    assert [form["scope"] for form in scene.server.asked] == ["read", "read write"]
    assert scene.shown == ["Bearer token-2"] * 2


@pytest.mark.parametrize("needed", ["write", "read write"])
async def test_step_up_keeps_the_scopes_that_the_server_grants_by_default(needed):
    scene = Scene(step_up=["write"], lifetime=60)
    scene.server.scope = "read list"
    scene.server.guard = wants("token-2", "token-3", error="insufficient_scope", scope=needed)
    async with scene.connect() as client:
        await client.list_tasks()
        await asyncio.sleep(3600)
        await client.list_tasks()

    requested = [form.get("scope") for form in scene.server.asked]
    assert requested == [None, "read list write", "read list write"]


async def test_a_refused_scope_is_not_requested_again():
    scene = Scene(step_up=["write"])
    scene.server.guard = wants(error="insufficient_scope", scope="write", status=403)
    async with scene.connect() as client:
        with pytest.raises(PermissionDeniedError):
            await client.list_tasks()
        with pytest.raises(PermissionDeniedError, match="needs the scope write"):
            await client.list_tasks()

    assert len(scene.server.asked) == 2


async def test_only_the_latest_refused_scopes_are_remembered():
    names = [f"s{number}" for number in range(257)]
    scene = Scene(step_up=names)
    async with scene.connect() as client:
        await client.list_tasks()
        for name in (*names, names[-1], names[0]):
            scene.server.guard = wants(error="insufficient_scope", scope=name, status=403)
            scene.server.replies = [refused("invalid_scope")]
            with pytest.raises((AuthenticationError, PermissionDeniedError)):
                await client.list_tasks()

    requested = [form.get("scope") for form in scene.server.asked]
    assert requested == [None, *names, names[0]]


@pytest.mark.parametrize(
    ("scope", "current_scopes"),
    [(None, ("read", "write")), ("read", ("read",)), ("write", ("write",))],
)
async def test_a_refreshed_token_has_the_requested_scopes_unless_the_server_says_otherwise(
    scope, current_scopes
):
    store = MemoryTokenStore()
    scene = Scene(
        kind=DeviceCode,
        prompt=lambda _: None,
        refreshes=True,
        scopes=["read"],
        step_up=["write"],
        store=store,
    )
    async with scene.connect() as client:
        await client.list_tasks()
        scene.server.scope = scope
        scene.server.guard = wants(
            "token-2", error="insufficient_scope", scope="write", status=403
        )
        await client.list_tasks()

    assert scene.server.asked[-1]["grant_type"] == "refresh_token"
    assert scene.server.asked[-1]["scope"] == "read write"
    (token,) = store._tokens.values()
    assert token.scopes == current_scopes


async def test_a_refresh_of_a_token_with_unknown_scopes_names_the_needed_scopes():
    store = MemoryTokenStore()
    options = {"kind": DeviceCode, "prompt": lambda _: None, "refreshes": True, "store": store}
    scene = Scene(**options, scopes=["read"], lifetime=100)
    await scene.auth.token()
    ((key, token),) = store._tokens.items()
    await store.save(key, msgspec.structs.replace(token, scopes=None))
    await asyncio.sleep(200)
    await scene.auth.token()

    assert scene.server.asked[-1]["scope"] == "read"
    assert store._tokens[key].scopes == ("read",)


async def test_a_scope_that_the_server_does_not_grant_removes_no_other():
    scene = Scene(scopes=["read"], step_up=["admin"])
    scene.server.guard = wants("token-1")
    async with scene.connect() as client:
        await client.list_tasks()
        scene.server.replies = [refused("invalid_scope")]
        scene.server.guard = wants(error="insufficient_scope", scope="admin", status=403)
        with pytest.raises(AuthenticationError, match="invalid_scope"):
            await client.list_tasks()
        with pytest.raises(PermissionDeniedError, match="needs the scope admin"):
            await client.list_tasks()
        scene.server.guard = wants("token-1")
        await client.list_tasks()

    assert [form["scope"] for form in scene.server.asked] == ["read", "read admin"]


async def test_concurrent_calls_that_lack_a_scope_request_it_once():
    scene = Scene(scopes=["read"], step_up=["write"], latency=2)
    async with scene.connect() as client:
        await client.list_tasks()
        at_once = scene.server.request

        async def slowly(request):
            await asyncio.sleep(1)
            return await at_once(request)

        scene.server.request = slowly
        scene.server.guard = wants(
            "token-2", error="insufficient_scope", scope="read write", status=403
        )
        await asyncio.gather(*(client.list_tasks() for _ in range(5)))

    assert [form["scope"] for form in scene.server.asked] == ["read", "read write"]


@pytest.mark.rule("P07")
async def test_step_up_requests_no_scope_that_the_caller_does_not_allow():
    scene = Scene(scopes=["read"], step_up=["write"])
    scene.server.guard = wants(error="insufficient_scope", scope="read write admin", status=403)
    async with scene.connect() as client:
        with pytest.raises(PermissionDeniedError, match=r"step_up= does not allow admin"):
            await client.list_tasks()

    assert [form["scope"] for form in scene.server.asked] == ["read"]


@pytest.mark.rule("P07")
@pytest.mark.parametrize("declared", [True, False])
async def test_step_up_true_requests_the_scopes_that_the_card_declares(declared):
    scheme = flow(**({"write": "change things"} if declared else {}))
    scene = Scene(await carded(scheme), scopes=["read"], step_up=True)
    scene.server.guard = wants("token-2", error="insufficient_scope", scope="write", status=403)
    expected_error = contextlib.nullcontext()
    if not declared:
        expected_error = pytest.raises(PermissionDeniedError, match=r"not declare write.*step_up=")
    async with scene.connect() as client:
        with expected_error:
            await client.list_tasks()

    scopes = [form["scope"] for form in scene.server.asked]
    assert scopes == (["read", "read write"] if declared else ["read"])


@pytest.mark.parametrize("first", ["ListTasks", "GetTask"])
async def test_a_failed_step_up_affects_no_concurrent_one(first):
    scene = Scene(scopes=["read"], step_up=["write", "admin"], latency=2)
    give = scene.server.token

    def token(scope_text):
        return refused("invalid_scope") if "admin" in scope_text["scope"] else give(scope_text)

    def guard(request):
        if request.url.endswith("agent-card.json"):
            return None
        scope = "admin" if b"ListTasks" in request.body else "write"
        status = {"error": "insufficient_scope", "scope": scope, "status": 403}
        return wants("token-2", "token-3", **status)(request)

    scene.server.token = token
    async with scene.connect() as client:
        reply = await client.send_message("hello")
        scene.server.guard = guard
        calls = {"ListTasks": client.list_tasks, "GetTask": lambda: client.get_task(reply.id)}
        names = [first, *(name for name in calls if name != first)]
        ended = await asyncio.gather(*(calls[name]() for name in names), return_exceptions=True)
        ended = dict(zip(names, ended, strict=True))
        assert isinstance(ended["ListTasks"], AuthenticationError)
        assert ended["GetTask"].id == reply.id
        assert (await scene.auth.token(await client.agent_card())).scopes == ("read", "write")
        await asyncio.sleep(4000)
        await client.get_task(reply.id)

    scopes = [form["scope"] for form in scene.server.asked]
    assert scopes[0] == "read"
    assert scopes[-1] == "read write"


async def test_concurrent_step_ups_for_different_scopes_both_succeed():
    scene = Scene(scopes=["read"], step_up=["write", "admin"], latency=2)
    async with scene.connect() as client:
        reply = await client.send_message("hello")

        def guard(request):
            scope, refused_token = (
                ("admin", "token-2") if b"ListTasks" in request.body else ("write", "")
            )
            status = {"error": "insufficient_scope", "scope": scope, "status": 403}
            return wants(refused_token, "token-3", **status)(request)

        scene.server.guard = guard
        await asyncio.gather(client.list_tasks(), client.get_task(reply.id))

    scopes = [form["scope"] for form in scene.server.asked]
    assert scopes == ["read", "read admin", "read admin write"]


async def test_a_token_refused_for_a_message_is_not_used_for_the_next_one():
    scene = Scene()
    body = {"jsonrpc": "2.0", "id": None, "error": {"code": -32000, "message": "no"}}

    def guard(request):
        is_accepted = request.headers.get("authorization") == "Bearer token-2" or not request.body
        return None if is_accepted else answer(body, 401)

    scene.server.guard = guard
    async with scene.connect() as client:
        with pytest.raises(A2AError) as caught:
            await client.send_message("hello")
        assert caught.value.http_status == 401
        assert caught.value.executed is None
        assert scene.shown == []
        await client.send_message("hello")

    assert scene.shown == ["Bearer token-2"]


# ── Failures of the authorization server ─────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("reply", "transient", "retry_after", "code"),
    [
        (refused("invalid_client", 401), False, None, "invalid_client"),
        (refused("invalid_scope"), False, None, "invalid_scope"),
        (
            refused("temporarily_unavailable", 503, retry_after="7"),
            True,
            7.0,
            "temporarily_unavailable",
        ),
        (answer(b"busy", 429, retry_after="3"), True, 3.0, None),
        (answer(b"", 503), True, None, None),
        (answer(b"<html>", 200), False, None, None),
        (answer({"token_type": "bearer"}), False, None, None),
        (answer({"access_token": "a b", "token_type": "bearer"}), False, None, None),
        (answer({"access_token": "abc", "token_type": "DPoP"}), False, None, None),
        (answer(b"", 302, location="https://evil.test/"), False, None, None),
        (away(), True, None, None),
    ],
)
async def test_an_error_response_of_the_server_is_an_authentication_error(
    reply, transient, retry_after, code
):
    scene = Scene()
    scene.server.replies = [reply]
    async with scene.connect() as client:
        with pytest.raises(AuthenticationError) as caught:
            await client.send_message("hello")

    error = caught.value
    assert (error.executed, error.transient, error.retry_after) == (False, transient, retry_after)
    assert (error.data or {}).get("error") == code
    assert error.authorization_server == TOKENS
    assert error.agent.startswith(scene.agent.url)
    assert SECRET not in f"{error!r} {error} {vars(error)}"
    assert scene.shown == []


@pytest.mark.parametrize(
    ("reply", "status", "words"),
    [
        (away(), None, "could not be reached: refused"),
        (answer(b"", 503), 503, "is unavailable: HTTP 503 Service Unavailable"),
    ],
)
async def test_authorization_server_that_is_down_is_not_refused_credentials(reply, status, words):
    scene = Scene()
    scene.server.replies = [reply]
    async with scene.connect() as client:
        with pytest.raises(AuthenticationError) as caught:
            await client.send_message("hello")

    error = caught.value
    expected = f"could not get a token: the authorization server {TOKENS} {words}"
    assert (error.message, error.http_status) == (expected, status)
    assert (error.transient, error.authorization_server) == (True, TOKENS)
    assert f"(for agent {scene.agent.url}" in str(error)  # the agent itself did not fail


async def test_a_transient_failure_of_the_server_is_retried():
    scene = Scene()
    scene.server.replies = [away(), answer(b"", 503)]
    async with scene.connect(resilience=Resilience.standard()) as client:
        await client.send_message("hello")

    assert scene.shown == ["Bearer token-1"]


async def test_failures_of_the_server_do_not_open_the_agents_breaker():
    scene = Scene()
    scene.server.replies = [away() for _ in range(30)]
    async with scene.connect(resilience=Resilience(retry=RetryPolicy(max_retries=0))) as client:
        for _ in range(10):
            with pytest.raises(AuthenticationError):
                await client.list_tasks()
        scene.server.replies = []
        await client.list_tasks()


async def test_an_error_that_echoes_the_request_shows_no_secret(caplog):
    caplog.set_level(logging.DEBUG)
    scene = Scene(kind=DeviceCode, prompt=lambda _: None, client_secret=SECRET, refreshes=True)
    await scene.auth.token()
    scene.env.offset += 4000
    sent = [SECRET, quote_plus(SECRET), scene.server.requests[0].headers["authorization"]]
    scene.server.replies = [
        answer(
            {"error": f"x refresh-1 {request}", "error_description": f"refresh-1 {request}"}, 400
        )
        for request in sent
    ]
    for secret in sent:
        with pytest.raises(AuthenticationError) as caught:
            await scene.auth.token()

        shown_text = (
            f"{caught.value!r} {vars(caught.value)} {caught.value.__cause__!r} {caplog.text}"
        )
        assert "refresh-1" not in shown_text
        assert secret.removeprefix("Basic ") not in shown_text


async def test_each_waiting_call_gets_its_own_error():
    scene = Scene(latency=1)
    scene.server.replies = [away()]
    first, second = await asyncio.gather(
        *(scene.auth.token() for _ in range(2)), return_exceptions=True
    )

    assert first is not second
    assert str(first) == str(second)


async def test_a_silent_server_costs_at_most_the_timeout():
    scene = Scene(latency=10**6, timeout=12)
    began = asyncio.get_running_loop().time()
    with pytest.raises(AuthenticationError, match="no token within 12 s") as caught:
        await scene.auth.token()

    assert asyncio.get_running_loop().time() - began == 12
    assert caught.value.transient
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_the_deadline_of_the_call_bounds_the_fetch():
    scene = Scene(latency=10**6, timeout=500)
    async with scene.connect(timeout=5) as client:
        with pytest.raises(DeadlineExceededError) as caught:
            await client.send_message("hello")

    assert caught.value.executed is False
    await asyncio.sleep(0)
    assert asyncio.all_tasks() == {asyncio.current_task()}


# ── Streams ──────────────────────────────────────────────────────────────────────────────────


async def test_each_reconnect_of_a_stream_has_a_fresh_token():
    scene = Scene(FakeAgent(streams("a", "b", "c", "d", every=50)), lifetime=40)
    scene.agent.inject(Cut(after_events=3), on="SendStreamingMessage")
    scene.agent.inject(Cut(after_events=2), on="SubscribeToTask")
    async with scene.connect(resilience=Resilience.standard()) as client:
        answer_ = await client.ask("hello")

    assert answer_.text == "abcd"
    names = {"SendStreamingMessage", "SubscribeToTask"}
    opened = [request for request in scene.agent.received if request.operation in names]
    tokens = [request.headers["authorization"] for request in opened]
    assert len(set(tokens)) == len(tokens) == 3


# ── Resources ────────────────────────────────────────────────────────────────────────────────


@pytest.mark.rule("P04")
@pytest.mark.parametrize(
    ("address", "resource"),
    [
        ("https://agent.test/", "https://agent.test"),
        ("https://agent.test:443/some/where?x=1", "https://agent.test"),
        ("https://agent.test:8443/", "https://agent.test:8443"),
        ("http://127.0.0.1:5000/", "http://127.0.0.1:5000"),
    ],
)
async def test_a_token_is_for_the_origin_of_the_agent(address, resource):
    agent = FakeAgent(url=address)
    scene = Scene(agent)
    async with scene.connect() as client:
        await client.list_tasks()
        token = await scene.auth.token(await client.agent_card())

    assert [form["resource"] for form in scene.server.asked] == [resource]
    assert scene.shown == [f"Bearer {token.access_token}"]


@pytest.mark.parametrize("refreshes", [True, False])
async def test_tokens_of_two_agents_are_separate_and_renewed_separately(refreshes):
    agents = FakeAgent(url="https://one.test"), FakeAgent(url="https://two.test")
    kind = {"kind": DeviceCode, "prompt": lambda _: None} if refreshes else {}
    scene = Scene(agents[0], refreshes=refreshes, lifetime=100, **kind)
    scene.server.agents = FakeNetwork(*agents)
    for _ in range(2):
        for scene.agent in agents:
            async with scene.connect() as client:
                await client.list_tasks()
                await client.list_tasks()
        await asyncio.sleep(90)

    resources = [form["resource"] for form in scene.server.asked]
    assert resources == ["https://one.test", "https://two.test"] * 2
    assert [
        request.headers["authorization"] for request in agents[1].received if "rpc" in request.url
    ] == [
        "Bearer token-2",
        "Bearer token-2",
        "Bearer token-4",
        "Bearer token-4",
    ]


@pytest.mark.parametrize(
    ("resource", "sent_resource"),
    [(False, None), ("urn:agent:1", "urn:agent:1"), ("api://x", "api://x")],
)
async def test_resource_is_set_or_left_out_by_the_caller(resource, sent_resource):
    scene = Scene(resource=resource)
    async with scene.connect() as client:
        await client.list_tasks()
        await scene.auth.token()

    assert [form.get("resource") for form in scene.server.asked] == [sent_resource]


@pytest.mark.parametrize(
    ("error", "words", "hinted"),
    [
        ("invalid_target", "no such thing", True),
        ("invalid_request", "The Resource parameter is not supported", True),
        ("invalid_request", "no such thing", False),
    ],
)
async def test_a_server_that_refuses_the_resource_causes_a_hint(error, words, hinted):
    scene = Scene()
    scene.server.replies = [answer({"error": error, "error_description": words}, 400)]
    async with scene.connect() as client:
        with pytest.raises(AuthenticationError, match=error) as caught:
            await client.list_tasks()

    hint = "for the resource http://agent.test (RFC 8707): pass resource="
    assert (hint in str(caught.value)) is hinted
    assert caught.value.data["error"] == error


async def test_a_browser_response_of_invalid_target_causes_a_hint():
    scene = by_browser(Browser(code=None, error="invalid_target"))
    async with scene.connect() as client:
        with pytest.raises(AuthenticationError, match=r"invalid_target.*pass resource="):
            await client.list_tasks()


# ── Discovery ────────────────────────────────────────────────────────────────────────────────


async def test_endpoints_are_discovered_from_the_issuer():
    scene = Scene(server=ISSUER)
    await scene.auth.token()
    await asyncio.sleep(4000)
    await scene.auth.token()

    paths = [urlsplit(request.url).path for request in scene.server.requests]
    assert paths == ["/.well-known/openid-configuration", "/token", "/token"]


@pytest.mark.parametrize(
    ("reply", "words"),
    [
        (away(), f"the authorization server {ISSUER} could not be reached: refused"),
        (answer(b"", 503), f"the metadata of the authorization server {ISSUER}: HTTP 503"),
    ],
)
async def test_a_server_without_reachable_metadata_is_named_by_its_issuer(reply, words):
    async def answered(_):
        if isinstance(reply, Exception):
            raise reply
        return reply

    scene = Scene(server=ISSUER)
    scene.server.answered = answered
    async with scene.connect() as client:
        with pytest.raises(AuthenticationError, match=words) as caught:
            await client.send_message("hello")

    error = caught.value
    assert error.authorization_server == ISSUER
    assert f"(for agent {scene.agent.url}" in str(error)


@pytest.mark.rule("P04")
async def test_metadata_of_another_issuer_is_refused():
    scene = Scene(server=ISSUER)
    scene.server.metadata["issuer"] = "https://evil.test"
    with pytest.raises(AuthenticationError, match=r"is of https://evil\.test"):
        await scene.auth.token()

    assert scene.server.asked == []


@pytest.mark.rule("P04")
@pytest.mark.parametrize("token_endpoint", ["http://id.test/token", "ftp://x", 5, None])
async def test_metadata_with_an_insecure_endpoint_is_refused(token_endpoint):
    scene = Scene(server=ISSUER)
    scene.server.metadata["token_endpoint"] = token_endpoint
    with pytest.raises(AuthenticationError, match="cannot be used"):
        await scene.auth.token()


async def test_an_issuer_without_metadata_is_an_error():
    scene = Scene(server=ISSUER)
    scene.server.metadata = None
    with pytest.raises(AuthenticationError, match="no authorization server metadata") as caught:
        await scene.auth.token()

    for address in (
        "/.well-known/oauth-authorization-server",
        "/.well-known/openid-configuration",
    ):
        assert f"{ISSUER}{address}" in caught.value.message
    assert "pass AuthorizationServer(token_endpoint=…)" in caught.value.message


async def test_a_token_is_for_a_card_and_not_for_an_address():
    scene = Scene(server=ISSUER)
    with pytest.raises(TypeError, match=r"agent_card must be AgentCard or None \(await client"):
        await scene.auth.token("http://localhost:9999")


async def carded(scheme, scopes=("a2a",)):
    agent = FakeAgent()
    agent.card = msgspec.structs.replace(
        await connect(agent.url, engine=FakeNetwork(agent)).agent_card(),
        security_schemes={"oauth": scheme},
        security_requirements=(SecurityRequirement(schemes={"oauth": StringList(list=scopes)}),),
    )
    return agent


def flow(token_url=f"{ISSUER}/token", **scopes):
    offered = ClientCredentialsOAuthFlow(token_url=token_url, scopes=scopes)
    flows = OAuthFlows(client_credentials=offered)
    return SecurityScheme(oauth2_security_scheme=OAuth2SecurityScheme(flows=flows))


OPENID = SecurityScheme(
    open_id_connect_security_scheme=OpenIdConnectSecurityScheme(
        open_id_connect_url=f"{ISSUER}/.well-known/openid-configuration"
    )
)


@pytest.mark.parametrize("scheme", [flow(), OPENID])
async def test_a_card_names_the_server_and_the_scopes(scheme):
    scene = Scene(await carded(scheme), server=FromCard([ISSUER]))
    async with scene.connect() as client:
        await client.send_message("hello")

    assert scene.shown == ["Bearer token-1"]
    assert scene.server.asked[0]["scope"] == "a2a"


@pytest.mark.rule("P04")
@pytest.mark.parametrize(
    "scheme",
    [
        flow("https://evil.test/token"),
        SecurityScheme(
            open_id_connect_security_scheme=OpenIdConnectSecurityScheme(
                open_id_connect_url="https://evil.test/.well-known/openid-configuration"
            )
        ),
    ],
)
async def test_no_secret_is_sent_to_an_endpoint_that_only_a_card_names(scheme):
    scene = Scene(await carded(scheme), server=FromCard([ISSUER]))
    async with scene.connect() as client:
        with pytest.raises(CredentialOriginError, match=r"evil\.test") as caught:
            await client.send_message("hello")

    assert caught.value.executed is False
    assert scene.server.requests == []


@pytest.mark.rule("P04")
@pytest.mark.parametrize("endpoint", ["token_endpoint", "device_authorization_endpoint"])
async def test_metadata_from_a_card_leads_to_no_untrusted_origin(endpoint):
    scene = Scene(await carded(OPENID), server=FromCard([ISSUER]))
    scene.server.metadata[endpoint] = "https://evil.test/token"
    async with scene.connect() as client:
        with pytest.raises(CredentialOriginError, match=r"evil\.test"):
            await client.send_message("hello")

    assert scene.server.asked == []


def device(token_url):
    flow = DeviceCodeOAuthFlow(
        device_authorization_url=f"{ISSUER}/device_authorization", token_url=token_url
    )
    flows = OAuthFlows(device_code=flow)
    return SecurityScheme(oauth2_security_scheme=OAuth2SecurityScheme(flows=flows))


@pytest.mark.rule("P04")
async def test_a_card_that_names_another_server_gets_no_token_of_the_first():
    agent = await carded(device(f"{ISSUER}/token"))
    options = {"kind": DeviceCode, "prompt": lambda _: None, "server": FromCard([ISSUER])}
    scene = Scene(agent, **options, refreshes=True, lifetime=60)
    async with scene.connect(card_ttl=10.0) as client:
        await client.list_tasks()
        agent.card = (await carded(device(f"{ISSUER}/other/token"))).card
        scene.server.requests.clear()
        await asyncio.sleep(100)
        with pytest.raises(AuthenticationError):
            await client.list_tasks()

    assert [urlsplit(request.url).path for request in scene.server.requests] == [
        "/device_authorization",
        "/other/token",
    ]
    assert not any(b"refresh" in request.body for request in scene.server.requests)


@pytest.mark.parametrize("scheme", [flow(""), flow("nowhere"), flow("http://id.test/token")])
async def test_a_card_that_names_no_address_is_an_error(scheme):
    scene = Scene(await carded(scheme), server=FromCard([ISSUER]))
    async with scene.connect() as client:
        with pytest.raises(AuthenticationError, match="cannot be used"):
            await client.send_message("hello")


async def test_a_wait_for_the_lock_ends_at_the_timeout():
    class Stuck(MemoryTokenStore):
        @contextlib.asynccontextmanager
        async def turn(self, _key):
            await never()
            yield

    for kind, more in ((DeviceCode, {"prompt": print}), (AuthorizationCode, {"open_url": print})):
        with pytest.raises(AuthenticationError, match="within 30 s"):
            await Scene(kind=kind, store=Stuck(), **more).auth.token()


async def test_a_slow_body_of_metadata_ends_at_the_timeout():
    scene = Scene(kind=DeviceCode, prompt=lambda _: None, server=ISSUER, latency=3600)
    began = asyncio.get_running_loop().time()
    with pytest.raises(AuthenticationError, match="30 s"):
        await scene.auth.token()

    assert asyncio.get_running_loop().time() - began == 30


# ── Device code ──────────────────────────────────────────────────────────────────────────────


async def test_device_code_returns_a_token_after_approval():
    prompts = []

    async def prompt(instructions):
        prompts.append(instructions)

    scene = Scene(kind=DeviceCode, prompt=prompt, scopes=["a2a"])
    scene.server.replies = [refused("authorization_pending"), refused("slow_down")]
    began = asyncio.get_running_loop().time()
    token = await scene.auth.token()

    assert token.access_token == "token-1"
    assert asyncio.get_running_loop().time() - began == 5 + 5 + 10
    assert (prompts[0].verification_uri, prompts[0].user_code) == (f"{ISSUER}/device", "ABCD-EFGH")
    assert scene.server.asked[-1]["device_code"] == "device-secret"


@pytest.mark.parametrize("hitch", ["away", "silent", "down"])
async def test_device_code_survives_a_transient_failure(hitch):
    scene = Scene(kind=DeviceCode, prompt=lambda _: None, timeout=10.0)
    down = answer(b"", 503) if hitch == "down" else away()
    scene.server.replies = [refused("authorization_pending"), down]
    if hitch == "silent":
        token, waits = scene.server.answered, [0, 0, 3600, 0]

        async def slowly(request):
            await asyncio.sleep(waits.pop(0))
            return await token(request)

        scene.server.answered = slowly
        scene.server.replies.pop()
    began = asyncio.get_running_loop().time()

    assert (await scene.auth.token()).access_token == "token-1"
    waited = asyncio.get_running_loop().time() - began
    assert waited == 5 + 5 + 10 + (10 if hitch == "silent" else 0)


@pytest.mark.parametrize("error", ["access_denied", "expired_token"])
async def test_device_code_ends_at_a_denial(error):
    scene = Scene(kind=DeviceCode, prompt=lambda _: None)
    scene.server.replies = [refused(error)]
    with pytest.raises(AuthenticationError, match=error) as caught:
        await scene.auth.token()

    assert not caught.value.transient
    assert "device-secret" not in str(vars(caught.value))


async def test_device_code_ends_when_the_code_expires():
    scene = Scene(kind=DeviceCode, prompt=lambda _: None)
    scene.server.replies = [refused("authorization_pending") for _ in range(100)]
    began = asyncio.get_running_loop().time()
    with pytest.raises(AuthenticationError, match="the login was not approved within 300 s"):
        await scene.auth.token()

    assert asyncio.get_running_loop().time() - began <= 300


@pytest.mark.parametrize(
    "change",
    [{"verification_uri": "javascript:alert(1)"}, {"device_code": None}, {"user_code": 5}],
)
async def test_an_invalid_device_response_is_an_error(change):
    scene = Scene(kind=DeviceCode, prompt=lambda _: None)
    scene.server.device.update(change)
    with pytest.raises(AuthenticationError, match="is not valid"):
        await scene.auth.token()


# ── Authorization code ───────────────────────────────────────────────────────────────────────


class Browser:
    """Receives the authorization URL, and returns a scripted redirect."""

    def __init__(self, **changes):
        self.changes = changes
        self.query = None

    def open(self, url):
        self.query = {name: value[0] for name, value in parse_qs(urlsplit(url).query).items()}
        self.address = url.partition("?")[0]

    async def come_back(self):
        response = {"code": "code-1", "state": self.query["state"], **self.changes}
        pairs = "&".join(
            f"{name}={value}" for name, value in response.items() if value is not None
        )
        return f"https://me.test/back?{pairs}"


def by_browser(browser, **options):
    return Scene(
        kind=AuthorizationCode,
        open_url=browser.open,
        redirect_uri="https://me.test/back",
        receive=browser.come_back,
        **options,
    )


@pytest.mark.rule("P05")
async def test_authorization_code_returns_a_token_after_approval():
    browser = Browser(iss=ISSUER)
    scene = by_browser(browser, scopes=["a2a"])
    assert (await scene.auth.token()).access_token == "token-1"

    import hashlib

    form = scene.server.asked[0]
    digest = hashlib.sha256(form["code_verifier"].encode()).digest()
    assert browser.query["code_challenge"] == base64.urlsafe_b64encode(digest).decode().rstrip("=")
    assert browser.query["code_challenge_method"] == "S256"
    assert browser.address == f"{ISSUER}/authorize"
    assert (form["code"], form["redirect_uri"]) == ("code-1", "https://me.test/back")


@pytest.mark.rule("P05")
@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"state": "other"}, "state"),
        ({"state": None}, "state"),
        ({"iss": "https://evil.test"}, "iss"),
        ({"error": "access_denied"}, "access_denied"),
        ({"code": None}, "no authorization code"),
    ],
)
async def test_an_invalid_browser_response_is_refused(changes, words):
    scene = by_browser(Browser(**changes))
    with pytest.raises(AuthenticationError, match=words):
        await scene.auth.token()

    assert scene.server.asked == []


@pytest.mark.rule("P05")
@pytest.mark.parametrize("advertised", [None, ["plain"], "S256"])
async def test_a_code_flow_without_advertised_pkce_ends_before_the_browser(advertised):
    browser = Browser()
    scene = by_browser(browser, server=ISSUER)
    scene.server.metadata["code_challenge_methods_supported"] = advertised
    with pytest.raises(AuthenticationError, match="allow_unadvertised_pkce=True"):
        await scene.auth.token()
    assert browser.query is None

    scene = by_browser(browser, server=ISSUER, allow_unadvertised_pkce=True)
    scene.server.metadata["code_challenge_methods_supported"] = advertised
    await scene.auth.token()
    assert browser.query["code_challenge_method"] == "S256"
    assert "code_verifier" in scene.server.asked[0]


@pytest.mark.rule("P05")
@pytest.mark.parametrize("required", [True, False])
async def test_a_code_flow_by_a_card_needs_a_card_that_requires_pkce(required):
    browser = Browser()
    offered = AuthorizationCodeOAuthFlow(
        authorization_url=f"{ISSUER}/authorize",
        token_url=f"{ISSUER}/token",
        pkce_required=required,
    )
    flows = OAuthFlows(authorization_code=offered)
    agent = await carded(SecurityScheme(oauth2_security_scheme=OAuth2SecurityScheme(flows=flows)))
    scene = by_browser(browser, agent=agent, server=FromCard([ISSUER]))
    message = (
        contextlib.nullcontext() if required else pytest.raises(AuthenticationError, match="S256")
    )
    async with scene.connect() as client:
        with message:
            await client.list_tasks()

    assert (browser.query is not None) is required


async def test_a_missing_browser_is_an_error(monkeypatch):
    monkeypatch.setattr("webbrowser._tryorder", [])
    scene = Scene(kind=AuthorizationCode, redirect_uri="http://localhost/back", receive=never)
    began = asyncio.get_running_loop().time()
    with pytest.raises(AuthenticationError, match="no browser"):
        await scene.auth.token()

    assert asyncio.get_running_loop().time() == began


async def never():
    await asyncio.Event().wait()


async def test_a_server_that_announces_its_issuer_must_send_it():
    named = msgspec.structs.replace(SERVER, authorization_response_iss_parameter_supported=True)
    scene = by_browser(Browser(), server=named)
    with pytest.raises(AuthenticationError, match="iss"):
        await scene.auth.token()


async def test_authorization_code_waits_login_timeout_seconds():
    async def never():
        await asyncio.Event().wait()

    scene = Scene(
        kind=AuthorizationCode,
        open_url=lambda _: None,
        redirect_uri="https://me.test/back",
        receive=never,
        login_timeout=77,
    )
    with pytest.raises(AuthenticationError, match="77 s"):
        await scene.auth.token()


async def test_a_slow_server_after_the_login_is_not_a_login_that_was_not_approved():
    scene = by_browser(Browser(iss=ISSUER))
    scene.server.replies = [A2ATimeoutError("no first byte came within 10 s", phase="first_byte")]
    with pytest.raises(AuthenticationError, match="no first byte came within 10 s"):
        await scene.auth.token()


async def test_a_timeout_of_the_store_is_not_one_of_the_authorization_server():
    class Away(MemoryTokenStore):
        async def load(self, key):
            raise TimeoutError("the store is away")

    with pytest.raises(TimeoutError, match="the store is away"):
        await Scene(store=Away()).auth.token()


# ── Files ────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.rule("P08")
async def test_token_files_are_readable_only_by_their_owner(tmp_path):
    directory = tmp_path / "tokens"
    scene = Scene(store=FileTokenStore(directory))
    previous = os.umask(0)
    try:
        await scene.auth.token()
    finally:
        os.umask(previous)
    again = Scene(store=FileTokenStore(directory))
    assert (await again.auth.token()).access_token == "token-1"
    assert again.server.asked == []

    assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    assert {stat.S_IMODE(path.stat().st_mode) for path in directory.iterdir()} == {0o600}
    assert not [path for path in directory.iterdir() if path.name.startswith(".")]


@pytest.mark.rule("P08")
async def test_a_token_file_that_others_can_read_is_refused(tmp_path):
    scene = Scene(store=FileTokenStore(tmp_path))
    await scene.auth.token()
    (file,) = tmp_path.glob("*.json")
    file.chmod(0o640)
    with pytest.raises(AuthenticationError, match="is readable by other users") as caught:
        await Scene(store=FileTokenStore(tmp_path)).auth.token()
    assert "token-1" not in str(caught.value)


@pytest.mark.rule("P08")
async def test_a_directory_in_which_all_users_may_rename_files_is_refused(tmp_path):
    store = FileTokenStore(tmp_path)
    await store.save("k", Token(access_token="x"))

    tmp_path.chmod(0o777)
    for use in (store.load("k"), store.save("k", Token(access_token="y"))):
        with pytest.raises(AuthenticationError, match="other users can write to"):
            await use
    tmp_path.chmod(0o1777)  # where only owners may
    assert (await store.load("k")).access_token == "x"


async def test_a_lock_is_not_created_behind_a_link(tmp_path):
    store = FileTokenStore(tmp_path / "tokens")
    await store.save("k", Token(access_token="x"))
    store.path("k").with_suffix(".lock").symlink_to(tmp_path / "other")

    with pytest.raises(AuthenticationError, match="cannot be used for tokens"):
        async with store.turn("k"):
            pass
    assert not (tmp_path / "other").exists()


@pytest.mark.parametrize("content", [b"", b"{}", b"[1]", b"\xff", b'{"access_token": 5}'])
async def test_a_file_without_a_token_is_an_error(content, tmp_path):
    store = FileTokenStore(tmp_path)
    await store.save("k", Token(access_token="x"))
    (file,) = tmp_path.glob("*.json")
    file.write_bytes(content)
    with pytest.raises(AuthenticationError, match="contains no token"):
        await store.load("k")
    await store.remove("k")
    assert await store.load("k") is None
    await store.remove("k")


@pytest.mark.rule("P08")
@pytest.mark.skipif(os.name == "nt", reason="permissions of POSIX")
@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda path, target: path.symlink_to(target), "it is a symbolic link"),
        (lambda path, _: os.mkfifo(path), "not a regular file"),
        (lambda path, _: path.mkdir(), "not a regular file|directory"),
    ],
    ids=["link", "FIFO", "directory"],
)
async def test_token_and_lock_files_are_regular_files(make, message, tmp_path):
    store = FileTokenStore(tmp_path / "tokens")
    path = store.path("k")
    path.parent.mkdir(mode=0o700)
    target = tmp_path / "target"
    make(path, target)
    make(path.with_suffix(".lock"), target)

    with pytest.raises(AuthenticationError, match=f"json cannot be used for tokens: .*{message}"):
        await store.load("k")
    with pytest.raises(AuthenticationError, match=f"lock cannot be used for tokens: .*{message}"):
        async with store.turn("k"):
            pass

    assert not target.exists()


@pytest.mark.rule("P08")
@pytest.mark.skipif(os.name == "nt", reason="permissions of POSIX")
async def test_a_lock_of_another_user_is_refused(tmp_path, monkeypatch):
    store = FileTokenStore(tmp_path)
    async with store.turn("k"):
        pass
    owner = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: owner + 1)
    monkeypatch.setattr("holdfast._auth.oauth.files._ROOT_USER_ID", owner + 1)

    with pytest.raises(AuthenticationError, match=f"lock belongs to user {owner}"):
        async with store.turn("k"):
            pass


async def test_a_lock_is_released_although_a_forked_process_has_its_file(tmp_path):
    store = FileTokenStore(tmp_path)
    async with store.turn("x"):
        locks_held = duplicated_locks()
    assert locks_held
    async with asyncio.timeout(5), store.turn("x"):
        pass
    for number in locks_held:
        os.close(number)


def duplicated_locks():
    """Return the duplicated lock files of a child that was forked while locks are held."""
    opened = [path for path in Path("/proc/self/fd").iterdir() if path.is_symlink()]
    locks = [path for path in opened if os.path.realpath(path).endswith(".lock")]
    return [os.dup(int(path.name)) for path in locks]


async def test_a_directory_that_cannot_be_created_is_an_error(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(AuthenticationError, match="cannot be used for tokens"):
        await FileTokenStore(tmp_path / "file" / "x").save("k", Token(access_token="x"))


# ── Arguments ────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("arguments", "options", "words"),
    [
        (("http://id.test", "me"), {}, "must use https"),
        (("id.test", "me"), {}, "must begin with"),
        ((SERVER, ""), {}, "client_id"),
        ((SERVER, "me", ""), {}, "client_secret"),
        ((SERVER, "me", "x"), {"client_auth": "jwt"}, "client_auth must be one of"),
        ((SERVER, "me"), {"client_auth": "client_secret_basic"}, "needs client_secret"),
        ((SERVER, "me", "x"), {"timeout": 0}, "timeout"),
        ((SERVER, "me", "x"), {"resource": "agent"}, "resource"),
        ((SERVER, "me", "x"), {"resource": "https://a.test/#x"}, "fragment"),
        (
            (SERVER, "me", "x"),
            {"resource": "https://me:pw@a.test"},
            "must not contain credentials",
        ),
    ],
)
def test_invalid_arguments_are_refused_at_once(arguments, options, words):
    with pytest.raises(ValueError, match=words):
        ClientCredentials(*arguments, **options)


@pytest.mark.parametrize(
    "more",
    [{"refresh_token": "\ud800"}, {"scope": "a \udfff"}],
)
def test_a_token_response_with_lone_surrogates_is_refused(more):
    with pytest.raises(AuthenticationError):
        token_in({"access_token": "x", **more}, requested_at=0.0)


def test_an_infinite_lifetime_is_bounded():
    assert (
        token_in({"access_token": "x", "expires_in": 10**400}, requested_at=0.0).expires_at < 1e10
    )


def test_no_repr_shows_a_secret():
    token = Token(access_token="t0ken", refresh_token="r3fresh")
    shown = [ClientCredentials(SERVER, "me", SECRET), token, Scene().auth._client]
    shown += [Credentials(headers={"authorization": "t0ken"})]
    shown += [HttpRequest(method="GET", url="http://x", headers={"authorization": "t0ken"})]
    shown += [AuthenticationInfo(scheme="Bearer", credentials="t0ken")]
    shown += [TaskPushNotificationConfig(url="http://x", token="t0ken")]

    for shown_text in (repr(shown), pretty_repr(shown)):
        assert not any(secret in shown_text for secret in ("t0ken", "r3fresh", SECRET))


VALUES = st.none() | st.booleans() | st.integers() | st.floats() | st.text("a1. \x00é", max_size=9)


@given(
    st.fixed_dictionaries(
        {"access_token": VALUES},
        optional=dict.fromkeys(("token_type", "expires_in", "scope", "refresh_token"), VALUES),
    )
)
def test_a_token_response_is_parsed_or_refused(document):
    try:
        token = token_in(document, requested_at=100.0)
    except A2AError:
        return
    assert token.expires_at is None or token.expires_at >= 100.0


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: ClientCredentials(SERVER, "me", SECRET, scope="x"),
            "'scope' is not an option of ClientCredentials; did you mean 'scopes'",
        ),
        (lambda: DeviceCode(SERVER, "me", 5), "^prompt must be a function, not int$"),
    ],
)
def test_an_unknown_option_is_named(make, message):
    with pytest.raises(TypeError, match=message):
        make()
