"""Scenarios again over real sockets: what leaves the machine, and what comes back from it."""

import asyncio
import json

import pytest
from msgspec.structs import replace

from holdfast import (
    A2AHTTPError,
    AuthenticationError,
    OutcomeUnknownError,
    RateLimitedError,
    Resilience,
    RetryPolicy,
    connect,
)
from holdfast.errors import CredentialOriginError, PermissionDeniedError
from holdfast.testing import (
    FakeAgent,
    LoopbackServer,
    Respond,
    bad_gateway,
    rate_limited,
    unavailable,
)

pytestmark = pytest.mark.real_time

both_bindings = pytest.mark.parametrize("binding", ["JSONRPC", "HTTP+JSON"])
both_ways = pytest.mark.parametrize("streaming", [True, False], ids=["streams", "polls"])

CARD_PATHS = "/.well-known/agent-card.json"
OLDER = "/.well-known/agent.json"
PATHS = {"JSONRPC": "/rpc", "HTTP+JSON": "/rest"}
SENT_TO = {"JSONRPC": "/rpc", "HTTP+JSON": "/rest/message:send"}
STREAMED_TO = {"JSONRPC": "/rpc", "HTTP+JSON": "/rest/message:stream"}
SENDS = {True: "SendStreamingMessage", False: "SendMessage"}
SECRETS = {"authorization": "Bearer t0ken", "x-api-key": "k3y"}

IMPATIENT = Resilience(retry=RetryPolicy(base_delay=0))
"""Tries again at once, unless the server asks to wait."""


class Agent(FakeAgent):
    """Keeps the beginning of each request that its server reads, whoever answers it.

    Args:
        known_as: Another path of what it has at ``/rpc``.
    """

    def __init__(self, *arguments, known_as=None, **options):
        super().__init__(*arguments, **options)
        self.seen = []
        self._known_as = known_as

    def exchange(self, request):
        self.seen.append((request.method, _target(request.url), request.headers))
        if _target(request.url) == self._known_as:
            request = replace(request, url=request.url.removesuffix(self._known_as) + "/rpc")
        return super().exchange(request)

    @property
    def targets(self):
        """What was asked for, byte for byte."""
        return [target for _, target, _ in self.seen]

    def headers_of(self, target):
        return next(headers for _, seen, headers in self.seen if seen == target)


def _target(url):
    return f"/{url.partition('://')[2].partition('/')[2]}"


def sent_to(binding, streaming):
    """Where a message goes."""
    return (STREAMED_TO if streaming else SENT_TO)[binding]


def card_at(server, *bindings, **members):
    """A card whose interfaces are at a server."""
    return {
        "name": "On a socket",
        "supportedInterfaces": [
            {
                "url": f"{server.url}{PATHS[binding]}",
                "protocolBinding": binding,
                "protocolVersion": "1.0",
                **members,
            }
            for binding in bindings or PATHS
        ],
    }


@pytest.fixture
def skipping(monkeypatch):
    """Lets the clock of the event loop jump over each wait before a retry."""
    skipped = []

    def policy(**options):
        loop = asyncio.get_running_loop()
        real = loop.time
        monkeypatch.setattr(loop, "time", lambda: real() + sum(skipped))

        def jump(_number, _error, delay):
            loop.call_soon(skipped.append, delay)  # when the wait has begun

        return Resilience(retry=RetryPolicy(on_retry=jump, **options))

    policy.waits = skipped
    return policy


# ── S07: the card is rate limited, or forbidden ──────────────────────────────────────────────


@pytest.mark.rule("S07")
@pytest.mark.parametrize(
    ("fault", "least"),
    [
        (rate_limited(retry_after_ms=20), 0.02),
        (rate_limited(retry_after=30), 30),
        (rate_limited(retry_after=7, retry_after_ms=45_000), 45),
        (unavailable(retry_after=59), 59),
    ],
    ids=str,
)
async def test_s07_a_rate_limited_card_is_waited_for(skipping, fault, least):
    agent = Agent()
    agent.inject(fault, on="GetAgentCard")
    async with (
        LoopbackServer(agent) as server,
        connect(server.url, resilience=skipping(base_delay=0.001)) as client,
    ):
        assert (await client.ask("hello")).text == "hello"

    assert agent.targets[:2] == [CARD_PATHS] * 2
    (waited,) = skipping.waits
    # It counts from when the reply came, and ends a little later, so that not all come at once.
    assert least - 0.01 < waited <= least + 1


@pytest.mark.rule("S07")
async def test_s07_a_rate_limited_card_is_waited_for_in_real_time():
    agent = Agent()
    agent.inject(rate_limited(retry_after_ms=5), on="GetAgentCard", times=3)
    async with (
        LoopbackServer(agent) as server,
        connect(server.url, resilience=IMPATIENT) as client,
    ):
        assert (await client.agent_card()).name == "Fake agent"

    assert agent.targets == [CARD_PATHS] * 4


@pytest.mark.rule("S07")
async def test_s07_a_wait_that_is_too_long_is_not_begun(skipping):
    agent = Agent()
    agent.inject(rate_limited(retry_after=3600), on="GetAgentCard")
    async with (
        LoopbackServer(agent) as server,
        connect(server.url, resilience=skipping(), timeout=7200) as client,
    ):
        with pytest.raises(RateLimitedError) as caught:
            await client.agent_card()

    assert (caught.value.retry_after, caught.value.executed) == (3600, False)
    assert agent.targets == [CARD_PATHS]


@pytest.mark.rule("S07")
async def test_s07_a_forbidden_card_fails_at_once():
    agent = Agent()
    agent.inject(Respond(status=403, body=b"members only"), on="GetAgentCard")
    async with LoopbackServer(agent) as server, connect(server.url) as client:
        with pytest.raises(PermissionDeniedError) as caught:
            await client.ask("hello")

    assert (caught.value.http_status, caught.value.excerpt) == (403, "members only")
    assert caught.value.agent == f"{server.url}{CARD_PATHS}"
    assert agent.targets == [CARD_PATHS]


# ── S19: no version ──────────────────────────────────────────────────────────────────────────


@pytest.mark.rule("S19")
@both_bindings
@pytest.mark.parametrize("version", [..., None, ""], ids=["missing", "null", "empty"])
async def test_s19_a_card_without_protocol_version_works(binding, version):
    agent = Agent()
    async with LoopbackServer(agent) as server:
        agent.card = card_at(server, binding, protocolVersion=version)
        [interface] = agent.card["supportedInterfaces"]
        if version is ...:
            del interface["protocolVersion"]
        async with connect(server.url) as client:
            assert (await client.ask("hello")).text == "hello"

    assert agent.headers_of(SENT_TO[binding])["a2a-version"] == "1.0"


# ── S21: where the card is ───────────────────────────────────────────────────────────────────


@pytest.mark.rule("S21")
@both_bindings
async def test_s21_a_card_at_the_older_path_is_found(binding):
    agent = Agent()
    async with LoopbackServer(agent) as server:
        older = json.dumps(card_at(server, binding)).encode()
        agent.inject(Respond(status=404, body=b"<h1>Not Found</h1>"), on="GetAgentCard")
        agent.inject(Respond(status=200, body=older))
        async with connect(server.url) as client:
            answers = [(await client.ask(text)).text for text in ("one", "two")]

    assert answers == ["one", "two"]
    assert agent.targets == [CARD_PATHS, OLDER, SENT_TO[binding], SENT_TO[binding]]


@pytest.mark.rule("S21")
@pytest.mark.parametrize("challenge", [{}, {"www-authenticate": 'Bearer realm="agents"'}])
async def test_s21_a_401_at_the_first_path_is_an_answer(challenge):
    agent = Agent()
    agent.inject(Respond(status=401, headers=challenge, body=b"{}"), on="GetAgentCard")
    async with LoopbackServer(agent) as server, connect(server.url) as client:
        with pytest.raises(AuthenticationError) as caught:
            await client.ask("hello")

    assert caught.value.http_status == 401
    assert challenge.items() <= caught.value.headers.items()
    assert agent.targets == [CARD_PATHS]


# ── S22: the address as the card writes it ───────────────────────────────────────────────────


@pytest.mark.rule("S22")
@pytest.mark.parametrize(
    "target",
    [
        "/rpc",
        "/rpc/",
        "/rpc//",
        "/",
        "/a/../b/./c",
        "/a%2Fb/%7Eme/%c3%a9",
        "/a//b;v=1/(c)/@d,e",
        "/rpc?key=a%20b+c&empty=&again&again",
        "/rpc/?redirect=http://elsewhere.test/%2F",
        "/agents/echo:v1/~rpc$!*'",
    ],
)
async def test_s22_an_endpoint_of_json_rpc_is_posted_to_byte_for_byte(target):
    agent = Agent(known_as=target)
    async with LoopbackServer(agent) as server:
        agent.card = card_at(server)
        agent.card["supportedInterfaces"][0]["url"] = f"{server.url}{target}"
        async with connect(server.url) as client:
            assert (await client.ask("hello")).text == "hello"

    assert agent.targets == [CARD_PATHS, target]


@pytest.mark.rule("S22")
@pytest.mark.parametrize(
    ("base", "posted"),
    [
        ("/rest", "/rest/message:send"),
        ("/rest/", "/rest/message:send"),
        ("", "/message:send"),
        ("/", "/message:send"),
        ("/a%2Fb/%7Eme/", "/a%2Fb/%7Eme/message:send"),
        ("/rest?key=a%20b+c", "/rest/message:send?key=a%20b+c"),
        ("/rest/?key", "/rest/message:send?key"),
    ],
)
async def test_s22_an_operation_of_rest_goes_behind_the_endpoint(base, posted):
    agent = Agent()
    reply = json.dumps({"message": {"messageId": "m", "role": "ROLE_AGENT", "parts": []}})
    async with LoopbackServer(agent) as server:
        agent.card = card_at(server, "HTTP+JSON")
        agent.card["supportedInterfaces"][0]["url"] = f"{server.url}{base}"
        agent.inject(Respond(status=200, body=reply.encode()), on=None)
        async with connect(server.url) as client:
            await client.ask("hello")

    assert agent.targets == [CARD_PATHS, posted]


@pytest.mark.rule("S22")
@pytest.mark.parametrize("tenant", ["acme", "a/b", "..", "\u00e4 ?#%"])
async def test_s22_a_tenant_of_rest_is_one_segment_on_the_wire(tenant):
    agent = Agent()
    async with LoopbackServer(agent) as server:
        agent.card = card_at(server, "HTTP+JSON", tenant=tenant)
        async with connect(server.url) as client:
            await client.ask("hello")

    escaped = {"a/b": "a%2Fb", "..": "%2E%2E", "\u00e4 ?#%": "%C3%A4%20%3F%23%25"}.get(
        tenant, tenant
    )
    assert agent.targets == [CARD_PATHS, f"/rest/{escaped}/message:send"]


# ── S23, S24: secrets stay with their origin ─────────────────────────────────────────────────


@pytest.mark.rule("S23")
@both_bindings
@pytest.mark.parametrize(
    ("options", "sent"),
    [
        ({"auth": "Bearer t0ken"}, ("authorization", "Bearer t0ken")),
        ({"auth": {"x-api-key": "k3y"}}, ("x-api-key", "k3y")),
        ({"headers": {"x-api-key": "k3y"}}, ("x-api-key", "k3y")),
    ],
    ids=["auth", "auth as headers", "headers"],
)
async def test_s23_credentials_do_not_follow_a_card_to_another_origin(binding, options, sent):
    agent, elsewhere = Agent(), Agent()
    async with LoopbackServer(agent) as server, LoopbackServer(elsewhere) as other:
        agent.card = card_at(other, binding)
        async with connect(server.url, **options) as client:
            with pytest.raises(CredentialOriginError) as caught:
                await client.ask("hello")
        assert other.connections == 0

        allowed = connect(server.url, credential_origins=[caught.value.origin], **options)
        async with allowed as client:
            assert (await client.ask("hello")).text == "hello"

    assert caught.value.origin == other.url
    assert f'credential_origins=("{other.url}",)' in str(caught.value)
    assert caught.value.executed is False
    assert agent.targets == [CARD_PATHS, CARD_PATHS]
    assert sent in elsewhere.headers_of(SENT_TO[binding]).items()


@pytest.mark.rule("S24")
@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_s24_a_card_from_another_origin_is_fetched_without_credentials(status):
    agent, elsewhere = Agent(), Agent()
    async with LoopbackServer(agent) as server, LoopbackServer(elsewhere) as other:
        there = {"location": f"{other.url}{CARD_PATHS}", "set-cookie": "session=s3cret; Path=/"}
        agent.inject(Respond(status=status, headers=there), on="GetAgentCard")
        own = {"x-api-key": SECRETS["x-api-key"]}
        async with connect(server.url, auth=SECRETS["authorization"], headers=own) as client:
            assert (await client.agent_card()).name == "Fake agent"
            with pytest.raises(CredentialOriginError):
                await client.ask("hello")

    assert SECRETS.items() <= agent.headers_of(CARD_PATHS).items()
    ((method, target, received),) = elsewhere.seen
    assert (method, target) == ("GET", CARD_PATHS)
    assert not {*SECRETS, "cookie", "referer"} & received.keys()
    assert not [v for v in received.values() if "t0ken" in v or "k3y" in v or "s3cret" in v]
    assert received["a2a-version"] == "1.0"


@pytest.mark.rule("S24")
@both_bindings
@both_ways
@pytest.mark.parametrize("status", [301, 302, 303])
async def test_s24_a_call_is_not_turned_into_another_one(binding, streaming, status):
    agent = Agent(bindings=(binding,), streaming=streaming)
    agent.inject(Respond(status=status, headers={"location": "/moved"}), on=SENDS[streaming])
    async with LoopbackServer(agent) as server, connect(server.url) as client:
        with pytest.raises(A2AHTTPError, match="was not followed"):
            await client.ask("hello")

    assert agent.targets == [CARD_PATHS, sent_to(binding, streaming)]


@pytest.mark.rule("S24")
@both_bindings
@both_ways
@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_s24_a_call_does_not_follow_to_another_origin(binding, streaming, status):
    agent, elsewhere = Agent(bindings=(binding,), streaming=streaming), Agent()
    async with LoopbackServer(agent) as server, LoopbackServer(elsewhere) as other:
        there = {"location": f"{other.url}{sent_to(binding, streaming)}"}
        agent.inject(Respond(status=status, headers=there), on=SENDS[streaming])
        async with connect(server.url, auth=SECRETS["authorization"]) as client:
            with pytest.raises(A2AHTTPError, match="was not followed") as caught:
                await client.ask("hello")
        assert other.connections == 0

    assert (caught.value.http_status, f"{other.url}/" in str(caught.value)) == (status, True)
    assert agent.targets == [CARD_PATHS, sent_to(binding, streaming)]
    assert agent.executions == {}


@pytest.mark.rule("S24")
@both_ways
@pytest.mark.parametrize("status", [307, 308])
async def test_s24_a_call_that_moved_within_its_origin_keeps_body_and_credentials(
    status, streaming
):
    agent = Agent(token="t0ken", known_as="/moved", streaming=streaming)
    agent.inject(Respond(status=status, headers={"location": "/moved"}), on=SENDS[streaming])
    async with (
        LoopbackServer(agent) as server,
        connect(server.url, auth=SECRETS["authorization"]) as client,
    ):
        assert (await client.ask("hello")).text == "hello"

    looks = ["/rpc"] if streaming else []  # for the whole task, at the end
    assert agent.targets == [CARD_PATHS, "/rpc", "/moved", *looks]
    assert len(agent.executions) == 1


# ── S30: the page of a proxy in place of an answer ───────────────────────────────────────────


@pytest.mark.rule("S30")
@pytest.mark.parametrize(("failures", "found"), [(3, True), (4, False)])
async def test_s30_a_proxys_html_in_place_of_a_card_is_retried(failures, found):
    agent = Agent()
    agent.inject(bad_gateway(), on="GetAgentCard", times=failures)
    async with (
        LoopbackServer(agent) as server,
        connect(server.url, resilience=IMPATIENT) as client,
    ):
        if found:
            assert (await client.send_message("hello")).text == "hello"
            assert agent.targets == [CARD_PATHS] * 4 + ["/rpc"]
            return
        with pytest.raises(A2AHTTPError, match="HTTP 502 Bad Gateway") as caught:
            await client.ask("hello")

    error = caught.value
    assert (error.http_status, error.transient, error.executed) == (502, True, False)
    assert "upstream went away" in error.excerpt
    assert len(error.attempts) == 4
    assert agent.executions == {}


@pytest.mark.rule("S30")
@both_bindings
@both_ways
@pytest.mark.parametrize("after_execution", [True, False])
async def test_s30_a_proxys_html_in_place_of_a_reply_to_a_message(
    binding, streaming, after_execution
):
    """Nobody can tell from it whether the agent ran: so it is not sent again."""
    agent = Agent(bindings=(binding,), streaming=streaming)
    agent.inject(bad_gateway(after_execution=after_execution), on=SENDS[streaming])
    async with (
        LoopbackServer(agent) as server,
        connect(server.url, resilience=IMPATIENT, on_unknown="raise") as client,
    ):
        with pytest.raises(OutcomeUnknownError) as caught:
            await client.ask("hello")

    error = caught.value
    assert (error.http_status, error.executed) == (502, None)
    assert "upstream went away" in error.excerpt
    assert type(error.__cause__) is A2AHTTPError
    assert agent.targets == [CARD_PATHS, sent_to(binding, streaming)]
    made = [task for tasks in agent.executions.values() for task in tasks]
    assert len(made) == after_execution
    assert not agent.executions or list(agent.executions) == [error.message_id]


@pytest.mark.rule("S30")
@both_bindings
async def test_s30_a_proxys_html_in_place_of_a_task_is_retried(binding):
    agent = Agent(bindings=(binding,))
    async with (
        LoopbackServer(agent) as server,
        connect(server.url, resilience=IMPATIENT) as client,
    ):
        task = await client.send_message("hello")
        agent.inject(bad_gateway(), on="GetTask", times=3)
        assert await client.get_task(task.id) == task

    assert len(agent.seen) == 2 + 4
    assert list(agent.executions.values()) == [[task.id]]
