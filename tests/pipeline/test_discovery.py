"""Finding an agent: every way to name one, one fetch for many, and secrets that stay at home."""

import asyncio
import collections
import contextlib
import json
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from multidict import CIMultiDict
from tests.kit.raw_server import reply, serve

from holdfast import (
    A2AConnectionError,
    A2AError,
    A2AHTTPError,
    AgentCard,
    AgentCardResolutionError,
    AiohttpEngine,
    AuthenticationError,
    DeadlineExceededError,
    Resilience,
    connect,
)
from holdfast import protocol as op
from holdfast.errors import (
    CredentialOriginError,
    InvalidAgentCardError,
    LimitExceededError,
    PermissionDeniedError,
    PushNotificationNotSupportedError,
    UnsupportedOperationError,
    VersionNotSupportedError,
)
from holdfast.extend import HttpReply
from holdfast.observe import AttemptStarted
from holdfast.policies import Limits
from holdfast.testing import (
    FakeAgent,
    FakeNetwork,
    Refuse,
    Respond,
    Stall,
    bad_gateway,
    run,
    unavailable,
    works_forever,
)
from holdfast.types import GetTaskRequest, ListTasksRequest

both_bindings = pytest.mark.parametrize("binding", ["JSONRPC", "HTTP+JSON"])
CARD_PATHS = "/.well-known/agent-card.json"
OLDER = "/.well-known/agent.json"


class Pages(FakeNetwork):
    """A network with pages of its own; asks the fake agents where it has none."""

    def __init__(self, *agents, pages=None, **options):
        super().__init__(*agents, **options)
        self.pages = dict(pages or {})
        self.requests = []

    async def request(self, request):
        self.requests.append(request)
        page = self.pages.get(request.url)
        return await super().request(request) if page is None else page

    def gets(self):
        return [request for request in self.requests if request.method == "GET"]

    def urls(self):
        return [request.url for request in self.requests]

    def hosts(self):
        return {urlsplit(request.url).hostname for request in self.requests}


def interface(host="agent.test", binding="JSONRPC", **members):
    path = {"JSONRPC": "rpc", "HTTP+JSON": "rest"}.get(binding, "other")
    defaults = {"url": f"http://{host}/{path}", "protocolBinding": binding}
    return {**defaults, "protocolVersion": "1.0", **members}


def card(*interfaces, **members):
    found = list(interfaces) or [interface()]
    return {"name": "Found", "supportedInterfaces": found, **members}


def page(document, status=200, **headers):
    body = document if isinstance(document, bytes) else json.dumps(document).encode()
    return HttpReply(status=status, headers=headers, body=body)


MISSING = page(b"not here", 404)


def redirect(location, status=302):
    return HttpReply(status=status, headers={"location": location})


def now():
    return asyncio.get_running_loop().time()


async def test_nothing_is_fetched_before_the_first_call():
    network = Pages(FakeAgent())

    async with connect("http://agent.test", engine=network):
        pass

    assert network.requests == []


# ── Every way to name an agent ───────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("agent", "at", "searched"),
    [
        ("http://agent.test", CARD_PATHS, [CARD_PATHS]),
        ("http://agent.test/", CARD_PATHS, [CARD_PATHS]),
        ("http://agent.test", OLDER, [CARD_PATHS, OLDER]),
        ("http://agent.test/a/b", f"/a/b{CARD_PATHS}", [f"/a/b{CARD_PATHS}"]),
        ("http://agent.test/a/", f"/a{OLDER}", [f"/a{CARD_PATHS}", f"/a{OLDER}"]),
        ("http://agent.test/card", "/card", [f"/card{CARD_PATHS}", f"/card{OLDER}", "/card"]),
        ("http://agent.test/my/card.json", "/my/card.json", ["/my/card.json"]),
        ("http://agent.test/card.json?v=2", "/card.json?v=2", ["/card.json?v=2"]),
    ],
)
async def test_an_address_leads_to_its_card(agent, at, searched):
    origin = "http://agent.test"
    pages = {f"{origin}{path}": MISSING for path in searched}
    pages[f"{origin}{at}"] = page(card())
    network = Pages(FakeAgent(), pages=pages)

    answer = await connect(agent, engine=network).ask("hello")

    assert answer.text == "hello"
    assert [request.url.removeprefix(origin) for request in network.gets()] == searched


@pytest.mark.parametrize("kind", ["path", "dict", "card"])
async def test_a_card_in_hand_needs_no_fetch(kind, tmp_path):
    document = card()
    (tmp_path / "card.json").write_text(json.dumps(document))
    agent = {
        "path": tmp_path / "card.json",
        "dict": document,
        "card": AgentCard.from_dict(document),
    }[kind]
    network = Pages(FakeAgent())
    client = connect(agent, engine=network, auth="Bearer t0ken")

    assert (await client.agent_card()).name == "Found"
    assert (await client.discover()).name == "Found"
    assert network.requests == []
    assert (await client.ask("hello")).text == "hello"
    assert network.requests[0].headers["authorization"] == "Bearer t0ken"


async def test_a_request_for_a_card_says_what_is_spoken():
    network = Pages(FakeAgent())

    await connect("http://agent.test", engine=network).agent_card()

    (request,) = network.requests
    assert request.headers["a2a-version"] == "1.0"
    assert "application/json" in request.headers["accept"]


async def test_a_callers_card_is_not_changed():
    document = card()
    before = json.dumps(document)

    await connect(document, engine=FakeNetwork(FakeAgent()), tenant="t").agent_card()

    assert json.dumps(document) == before


# ── Failures ─────────────────────────────────────────────────────────────────────────────────


async def test_missing_card_error_names_the_addresses_searched():
    pages = dict.fromkeys([f"http://agent.test{path}" for path in (CARD_PATHS, OLDER)], MISSING)

    with pytest.raises(AgentCardResolutionError) as caught:
        await connect("http://agent.test", engine=Pages(pages=pages)).agent_card()

    for url in pages:
        assert url in str(caught.value)
    assert (caught.value.http_status, caught.value.executed) == (404, False)


@pytest.mark.parametrize(
    ("status", "kind"),
    [(401, AuthenticationError), (403, PermissionDeniedError), (410, A2AHTTPError)],
)
async def test_only_a_404_leads_to_the_next_place(status, kind):
    network = Pages(pages={f"http://agent.test{CARD_PATHS}": page(b"no", status)})

    with pytest.raises(kind) as caught:
        await connect("http://agent.test", engine=network).agent_card()

    assert caught.value.http_status == status
    assert caught.value.agent == f"http://agent.test{CARD_PATHS}"
    assert len(network.requests) == 1


async def test_a_card_is_fetched_with_retries():
    agent = FakeAgent()
    agent.inject(Refuse(), on="GetAgentCard")
    agent.inject(bad_gateway(), on="GetAgentCard")

    assert (await connect(agent.url, engine=FakeNetwork(agent)).agent_card()).name == "Fake agent"


@pytest.mark.parametrize(
    ("document", "field"),
    [
        ({}, "name"),
        ({"name": ""}, "name"),
        ({"name": "x"}, "supportedInterfaces"),
        ({"name": "x", "supportedInterfaces": []}, "supportedInterfaces"),
        ({"name": "x", "supportedInterfaces": None}, "supportedInterfaces"),
        (card(interface(url="")), "supportedInterfaces[0].url"),
        (card(interface(), interface(url=None)), "supportedInterfaces[1].url"),
        (card(interface(url="http://h:port/")), "supportedInterfaces[0].url"),
        (card(interface(protocolBinding="")), "supportedInterfaces[0].protocolBinding"),
        (card(capabilities=7), "capabilities"),
    ],
    ids=str,
)
async def test_what_is_wrong_with_a_card_is_named(document, field):
    network = Pages(pages={f"http://agent.test{CARD_PATHS}": page(document)})

    for agent in ("http://agent.test", document):
        with pytest.raises(InvalidAgentCardError) as caught:
            await connect(agent, engine=network).agent_card()
        assert caught.value.field == field
        assert field in str(caught.value)
        assert caught.value.executed is False


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"", "not JSON: the reply is empty"),
        (b"\n<!DOCTYPE html>s3cret", "not JSON: the reply is an HTML page"),
        (b"welcome", "not JSON: the reply has 7 bytes of text"),
        (b"\xff", "not JSON: the reply has 1 bytes of binary data"),
        (b"[]", "not a JSON object but list"),
        (b'"card"', "not a JSON object but str"),
        (b"[" * 50, "not JSON: Expecting value: line 1 column 51"),
    ],
)
async def test_what_is_no_card_is_reported(body, words):
    network = Pages(pages={f"http://agent.test{CARD_PATHS}": page(body)})

    with pytest.raises(InvalidAgentCardError) as caught:
        await connect("http://agent.test", engine=network).agent_card()

    assert f"the agent card is {words}" in caught.value.message
    assert ("there may be no agent at this address" in caught.value.message) == ("reply" in words)
    assert "s3cret" not in caught.value.message
    assert (caught.value.http_status, caught.value.field) == (200, None)
    assert caught.value.agent == f"http://agent.test{CARD_PATHS}"


async def test_an_html_page_in_place_of_a_card_is_named_with_its_media_type():
    agent = FakeAgent()
    headers = {"content-type": "text/html; charset=utf-8"}
    agent.inject(Respond(status=200, headers=headers, body=b"<html>Hi</html>"), on="GetAgentCard")

    with pytest.raises(InvalidAgentCardError, match=r"HTML page \(text/html\); there may be no"):
        await connect(agent.url, engine=FakeNetwork(agent)).agent_card()


@pytest.mark.parametrize(
    ("content", "kind"),
    [
        (None, AgentCardResolutionError),
        (b"<html>", InvalidAgentCardError),
        (b"{}", InvalidAgentCardError),
    ],
)
async def test_a_file_that_is_no_card_is_named(content, kind, tmp_path):
    path = tmp_path / "card.json"
    if content is not None:
        path.write_bytes(content)

    with pytest.raises(kind) as caught:
        await connect(path, engine=FakeNetwork()).agent_card()

    assert caught.value.executed is False
    if content != b"{}":
        assert str(path) in str(caught.value)


async def test_a_directory_is_no_card(tmp_path):
    with pytest.raises(AgentCardResolutionError, match=str(tmp_path)):
        await connect(Path(tmp_path), engine=FakeNetwork()).agent_card()


# ── Time to live ─────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("ttl", "waited", "fetches"),
    [(300, 299, 1), (300, 300, 2), (10, 11, 2), (0, 0, 2), (float("inf"), 10**9, 1)],
)
async def test_a_card_is_kept_for_its_time_to_live(ttl, waited, fetches):
    agent = FakeAgent()
    client = connect(agent.url, engine=FakeNetwork(agent), card_ttl=ttl)

    await client.agent_card()
    await asyncio.sleep(waited)
    await client.agent_card()

    assert len(agent.calls("GetAgentCard")) == fetches


async def test_a_new_card_is_used_for_the_next_call():
    agent = FakeAgent()
    client = connect(agent.url, engine=FakeNetwork(agent), card_ttl=10)
    await client.send_message("hello")
    agent.card = card(interface(binding="HTTP+JSON"))
    await asyncio.sleep(10)

    await client.send_message("hello")

    assert [urlsplit(r.url).path for r in agent.calls("SendMessage")] == [
        "/rpc",
        "/rest/message:send",
    ]


async def test_a_file_is_read_again_after_its_time_to_live(tmp_path):
    path = tmp_path / "card.json"
    path.write_text(json.dumps(card()))
    client = connect(path, engine=FakeNetwork(), card_ttl=10)
    await client.agent_card()
    path.write_text(json.dumps(card(name="Newer")))

    assert (await client.agent_card()).name == "Found"
    await asyncio.sleep(10)
    assert (await client.agent_card()).name == "Newer"


@both_bindings
async def test_the_extended_card_replaces_the_public_one(binding):
    agent = FakeAgent()
    client = connect(agent.url, engine=FakeNetwork(agent), bindings=[binding])
    await client.agent_card()

    extended = await client.get_extended_agent_card()

    assert extended.name == "Fake agent, extended"
    assert await client.agent_card() == extended


# ── One fetch for many ───────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("ttl", [300, 0])
@pytest.mark.parametrize("seed", [None, 1, 2])
def test_a_hundred_calls_at_once_fetch_the_card_once(ttl, seed):
    async def main():
        agent = FakeAgent(latency=1)
        client = connect(agent.url, engine=FakeNetwork(agent), card_ttl=ttl)

        answers = await asyncio.gather(*(client.send_message(f"{n}") for n in range(100)))

        assert [task.text for task in answers] == [f"{n}" for n in range(100)]
        assert len(agent.calls("GetAgentCard")) == 1

    run(main(), seed=seed)


async def test_a_failing_fetch_fails_all_who_wait_each_with_an_error_of_their_own():
    agent = FakeAgent(latency=1)
    agent.inject(Respond(status=403, body=b"no", after_execution=True), on="GetAgentCard")
    network = Pages(agent)
    client = connect(agent.url, engine=network)

    errors = await asyncio.gather(
        *(client.send_message("hello") for _ in range(100)), return_exceptions=True
    )

    assert {type(error) for error in errors} == {PermissionDeniedError}
    assert len({id(error) for error in errors}) == 100
    assert len({error.request_id for error in errors}) == 100
    assert {error.excerpt for error in errors} == {"no"}
    assert len(network.requests) == 1


async def test_who_comes_after_a_failed_fetch_tries_anew():
    agent = FakeAgent()
    agent.inject(Respond(status=403), on="GetAgentCard")
    client = connect(agent.url, engine=FakeNetwork(agent))
    with pytest.raises(PermissionDeniedError):
        await client.agent_card()

    assert (await client.agent_card()).name == "Fake agent"


@pytest.mark.parametrize("how", ["cancelled", "deadline"])
async def test_who_leads_and_leaves_does_not_fail_the_others(how):
    agent = FakeAgent()
    agent.inject(Stall(), on="GetAgentCard")
    network = Pages(agent)
    client = connect(agent.url, engine=network)
    leader = asyncio.create_task(client.agent_card(timeout=3 if how == "deadline" else None))
    await asyncio.sleep(0)
    others = [asyncio.create_task(client.agent_card()) for _ in range(20)]
    await asyncio.sleep(3)
    leader.cancel()

    cards = await asyncio.gather(*others)

    (result,) = await asyncio.gather(leader, return_exceptions=True)
    expected = DeadlineExceededError if how == "deadline" else asyncio.CancelledError
    assert type(result) is expected
    assert {found.name for found in cards} == {"Fake agent"}
    assert now() == 3
    assert len(network.requests) == 2


async def test_waiter_that_leaves_disturbs_no_other():
    agent = FakeAgent(latency=2)
    client = connect(agent.url, engine=FakeNetwork(agent))
    calls = [asyncio.create_task(client.agent_card()) for _ in range(10)]
    await asyncio.sleep(1)
    for call in calls[1::2]:
        call.cancel()

    results = await asyncio.gather(*calls, return_exceptions=True)

    assert [type(result) for result in results[::2]] == [AgentCard] * 5
    assert len(agent.calls("GetAgentCard")) == 1


def _too_large(path):
    with path.open("wb") as file:
        file.truncate(Limits().card + 1)
    return path


async def test_card_file_that_is_too_large_is_reported(tmp_path):
    client = connect(_too_large(tmp_path / "card.json"), engine=FakeNetwork())

    with pytest.raises(LimitExceededError, match="is larger than") as caught:
        await client.agent_card()

    assert (caught.value.bound, caught.value.executed) == (Limits().card, False)


def test_a_second_event_loop_waits_for_no_fetch_of_the_first():
    agent = FakeAgent(latency=1)
    agent.inject(Stall(), on="GetAgentCard")
    client = connect(agent.url, engine=FakeNetwork(agent))

    async def fetch(seconds):
        """Two at once, so that one waits for the other; returns those that are done."""
        tasks = [asyncio.create_task(client.agent_card()) for _ in range(2)]
        await asyncio.sleep(seconds)
        return [task.result().name for task in tasks if task.done()]

    assert run(fetch(5), allow_orphans=True) == []
    assert run(fetch(5)) == ["Fake agent", "Fake agent"]


def test_a_fetch_in_one_event_loop_does_not_disturb_that_in_another():
    class Gated(Pages):
        """Answers in each event loop only when its gate opens."""

        def __init__(self):
            super().__init__()
            self.gates = collections.defaultdict(asyncio.Event)

        async def request(self, request):
            self.requests.append(request)
            await self.gates[asyncio.get_running_loop()].wait()
            return page(card())

    network = Gated()
    client = connect("http://agent.test", engine=network, card_ttl=0)

    async def settle(*, opening=False):
        if opening:
            network.gates[asyncio.get_running_loop()].set()
        for _ in range(20):
            await asyncio.sleep(0)

    one, other = asyncio.new_event_loop(), asyncio.new_event_loop()
    with contextlib.closing(one), contextlib.closing(other):
        first = one.create_task(client.agent_card())
        one.run_until_complete(settle())
        second = other.create_task(client.agent_card())
        other.run_until_complete(settle())
        other.run_until_complete(settle(opening=True))
        third = one.create_task(client.agent_card())
        one.run_until_complete(settle())
        one.run_until_complete(settle(opening=True))

    assert [task.result().name for task in (first, second, third)] == ["Found"] * 3
    assert len(network.requests) == 2


# ── How long a card is kept (RFC 9111) ───────────────────────────────────────────────────────


class CardServer(Pages):
    """Serves a card as a test says, and tells what it was asked for."""

    def __init__(self, *replies):
        super().__init__(FakeAgent())
        self.replies = list(replies)

    async def request(self, request):
        if request.method != "GET":
            return await super().request(request)
        self.requests.append(request)
        reply = self.replies.pop(0) if len(self.replies) > 1 else self.replies[0]
        if isinstance(reply, Exception):
            raise reply
        return reply

    def conditions(self):
        names = ("if-none-match", "if-modified-since")
        return [{n: get.headers[n] for n in names if n in get.headers} for get in self.gets()]


def says(**headers):
    return {name.replace("_", "-"): value for name, value in headers.items()}


async def fetched_at(client, network, *, seconds):
    """When the card was fetched, with a call in every second."""
    fetches = []
    for _ in range(seconds):
        before = len(network.gets())
        await client.agent_card()
        fetches += [now()] * (len(network.gets()) - before)
        await asyncio.sleep(1)
    return fetches


@pytest.mark.parametrize(
    ("headers", "options", "fetches"),
    [
        (says(), {}, [0, 300]),
        (says(), {"card_ttl": 200}, [0, 200]),
        (says(cache_control="max-age=150"), {}, [0, 150, 300]),
        (says(cache_control="public, Max-Age = 150"), {"card_ttl": 1000}, [0, 150, 300]),
        (says(cache_control='private, max-age="150"'), {}, [0, 150, 300]),
        (says(cache_control="max-age=150, max-age=2"), {}, [0, 150, 300]),
        (says(cache_control="max-age=150", age="50"), {}, [0, 100, 200, 300]),
        (says(cache_control="max-age=90000"), {}, [0]),
        (says(cache_control="s-maxage=9"), {}, [0, 300]),
        (
            says(
                date="Sun, 01 Mar 2026 12:00:00 GMT",
                expires="Sun, 01 Mar 2026 12:02:30 GMT",
            ),
            {},
            [0, 150, 300],
        ),
        (says(cache_control="max-age=150", expires="0"), {}, [0, 150, 300]),
    ],
)
async def test_a_card_is_kept_for_as_long_as_its_server_says(headers, options, fetches):
    network = CardServer(page(card(), **headers))
    client = connect("http://agent.test", engine=network, **options)

    assert await fetched_at(client, network, seconds=310) == fetches


@pytest.mark.parametrize(
    "headers",
    [
        says(cache_control="no-cache"),
        says(cache_control="no-store, max-age=900"),
        says(cache_control="max-age=0"),
        says(cache_control="max-age=soon"),
        says(expires="0"),
        says(cache_control="max-age=900", vary="accept, *"),
    ],
)
async def test_a_card_that_is_not_to_be_kept_is_used_for_a_moment(headers):
    network = CardServer(page(card(), **headers))

    assert await fetched_at(connect("http://agent.test", engine=network), network, seconds=12) == [
        0,
        5,
        10,
    ]
    eager = connect("http://agent.test", engine=network, card_ttl=0)
    assert len(await fetched_at(eager, network, seconds=3)) == 3


async def test_it_is_looked_at_once_a_day_at_least():
    network = CardServer(page(card(), **says(cache_control="max-age=31536000")))
    client = connect("http://agent.test", engine=network)
    await client.agent_card()
    await asyncio.sleep(86_399)
    await client.agent_card()
    assert len(network.gets()) == 1

    await asyncio.sleep(1)
    await client.agent_card()
    assert len(network.gets()) == 2


async def test_a_card_is_asked_for_only_if_it_changed():
    since = "Sun, 01 Mar 2026 12:00:00 GMT"
    network = CardServer(
        page(
            card(),
            **says(etag='"one"', last_modified=since, cache_control="max-age=150", age="50"),
        ),
        page(b"", 304, **says(cache_control="max-age=200")),
        page(b"", 304),
        page(card(), **says(etag='"two"')),
    )
    client = connect("http://agent.test", engine=network)

    assert await fetched_at(client, network, seconds=502) == [0, 100, 300, 500]
    both = {"if-none-match": '"one"', "if-modified-since": since}
    assert network.conditions() == [{}, both, both, both]


async def test_moved_card_is_searched_at_the_well_known_paths():
    network = Pages(pages={f"http://agent.test{OLDER}": page(card())})
    network.pages[f"http://agent.test{CARD_PATHS}"] = MISSING
    client = connect("http://agent.test", engine=network)
    await client.agent_card()
    await asyncio.sleep(300)
    await client.agent_card()
    network.pages = {
        f"http://agent.test{OLDER}": MISSING,
        f"http://agent.test{CARD_PATHS}": page(card()),
    }
    await asyncio.sleep(300)
    await client.agent_card()

    assert [urlsplit(url).path for url in network.urls()] == [
        CARD_PATHS,
        OLDER,
        OLDER,
        OLDER,
        CARD_PATHS,
    ]


@pytest.mark.parametrize(
    ("headers", "good_for"),
    [
        (says(), 3600),
        (says(cache_control="stale-if-error=500"), 500),
        (says(cache_control="max-age=300, stale-if-error=0"), 0),
        (says(cache_control="max-age=300, must-revalidate"), 0),
    ],
)
@pytest.mark.parametrize(
    "failure", [page(b"", 502), page(b"", 500), A2AConnectionError("no", failure="refused")]
)
async def test_a_card_that_is_too_old_stands_in_for_a_while(headers, good_for, failure):
    if isinstance(failure, A2AError):
        failure.executed, failure.transient = False, True
    network = CardServer(page(card(), **headers), failure)
    client = connect("http://agent.test", engine=network)
    await client.send_message("hello")
    assert now() == 0

    for at in range(300, 300 + good_for, 100):
        await asyncio.sleep(at - now())
        await client.send_message("hello")
        assert now() - at <= 10
    await asyncio.sleep(300 + good_for + 60 - now())
    with pytest.raises(A2AError):
        await client.send_message("hello")


async def test_caller_with_a_cached_card_waits_briefly_for_a_newer_one():
    agent = FakeAgent()
    client = connect(agent.url, engine=FakeNetwork(agent))
    await client.send_message("hello")
    agent.inject(Stall(), on="GetAgentCard", times=9)
    await asyncio.sleep(300)

    await client.send_message("hello")

    assert now() == 310


@pytest.mark.parametrize("timeout", [1, 8, 900])
async def test_a_call_with_little_time_has_the_old_card_too(timeout):
    agent = FakeAgent()
    client = connect(agent.url, engine=FakeNetwork(agent))
    await client.send_message("hello")
    agent.inject(Stall(), on="GetAgentCard", times=99)
    await asyncio.sleep(300)

    for _ in range(10):
        await client.send_message("hello", timeout=timeout)

    assert now() == 300 + min(timeout / 2, 10)


async def test_callers_do_not_queue_for_a_newer_card():
    agent = FakeAgent()
    network = Pages(agent)
    client = connect(agent.url, engine=network)
    await client.send_message("hello")
    agent.inject(Stall(), on="GetAgentCard", times=99)
    await asyncio.sleep(300)
    first = asyncio.create_task(client.send_message("hello"))
    await asyncio.sleep(1)

    await asyncio.gather(*(client.send_message("hello") for _ in range(5)))
    assert now() == 301
    first.cancel()
    await asyncio.wait([first])
    await client.send_message("hello")
    assert now() == 301
    assert len(network.gets()) == 2


@pytest.mark.parametrize("asked", ["31536000", "3000", "1"])
async def test_no_server_makes_an_old_card_stand_in_for_longer_than_it_may(asked):
    headers = says(cache_control="max-age=300, stale-if-error=5")
    network = CardServer(page(card(), **headers), page(b"", 503, **says(retry_after=asked)))
    client = connect("http://agent.test", engine=network)
    await client.agent_card()
    await asyncio.sleep(301)
    await client.agent_card()
    await asyncio.sleep(5)

    with pytest.raises(A2AError):
        await client.agent_card()


async def test_a_304_about_another_card_is_not_believed():
    since = "Sun, 01 Mar 2026 12:00:00 GMT"
    new = {**card(), "name": "New"}
    network = CardServer(
        page(card(), **says(etag='"one"', last_modified=since)),
        page(b"", 304, **says(etag='"two"')),
        page(new, **says(etag='"two"')),
    )
    client = connect("http://agent.test", engine=network)
    await client.agent_card()
    await asyncio.sleep(300)

    assert (await client.agent_card()).name == "New"
    assert network.conditions()[2] == {}


@pytest.mark.parametrize("etag", [None, '"a\x01b"', '"a\x7f"', "bare", '"\xff"'])
async def test_a_304_to_an_unconditional_request_is_an_error(etag):
    headers = {} if etag is None else says(etag=etag)
    network = CardServer(page(card(), **headers), page(b"", 304))
    client = connect("http://agent.test", engine=network)
    await client.agent_card()
    await asyncio.sleep(300)

    with pytest.raises(A2AHTTPError, match="304"):
        await client.agent_card()
    assert network.conditions() == [{}, {}]


async def test_several_lines_of_a_list_are_one():
    lines = CIMultiDict([("Cache-Control", "max-age=900"), ("Cache-Control", "no-store")])
    network = CardServer(HttpReply(status=200, headers=lines, body=page(card()).body))
    client = connect("http://agent.test", engine=network)

    assert await fetched_at(client, network, seconds=6) == [0, 5]


async def test_server_of_a_fresh_card_is_not_asked():
    network = CardServer(page(card()), page(b"", 503, **says(retry_after="120")))
    client = connect("http://agent.test", engine=network)

    assert await fetched_at(client, network, seconds=500) == [0, 300, 420]


@pytest.mark.parametrize("failure", [page(b"", 403), page(b"[]"), page(b"", 410)])
async def test_an_answer_about_the_card_is_no_outage(failure):
    network = CardServer(page(card()), failure)
    client = connect("http://agent.test", engine=network)
    await client.agent_card()
    await asyncio.sleep(300)

    with pytest.raises(A2AError):
        await client.agent_card()


async def test_an_extended_card_is_used_until_the_public_one_changes():
    agent = FakeAgent()
    public = card(capabilities={"extendedAgentCard": True})
    extended = {**public, "name": "Extended"}

    class Extending(CardServer):
        async def request(self, request):
            if b"GetExtendedAgentCard" not in request.body:
                return await super().request(request)
            asked = json.loads(request.body)["id"]
            return page({"jsonrpc": "2.0", "id": asked, "result": extended})

    changed = page({**public, "name": "Changed"})
    network = Extending(page(public), page(public), changed)
    client = connect(agent.url, engine=network)
    names = [(await client.agent_card()).name, (await client.get_extended_agent_card()).name]
    for _ in range(3):
        names.append((await client.agent_card()).name)
        await asyncio.sleep(300)

    assert names == ["Found", "Extended", "Extended", "Extended", "Changed"]


# ── What a card does not declare ─────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("call", "kind"),
    [
        (lambda client: client.get_extended_agent_card(), UnsupportedOperationError),
        (
            lambda client: client.get_task_push_notification_config("task", "config"),
            PushNotificationNotSupportedError,
        ),
        (
            lambda client: client.delete_task_push_notification_config("task", "config"),
            PushNotificationNotSupportedError,
        ),
    ],
)
@pytest.mark.parametrize("capabilities", [{}, {"pushNotifications": False}])
async def test_what_a_card_does_not_declare_is_not_called(call, kind, capabilities):
    agent = FakeAgent(card=card(capabilities=capabilities))

    with pytest.raises(kind, match="does not declare") as caught:
        await call(connect(agent.url, engine=FakeNetwork(agent)))

    assert caught.value.executed is False
    assert {call.operation for call in agent.received} == {"GetAgentCard"}


# ── Addresses that cannot be meant ───────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("source", "url", "why"),
    [
        ("https://agent.test", "http://0.0.0.0:8000/rpc", "0.0.0.0 is where a server listens"),
        ("http://127.0.0.1:8000", "http://0.0.0.0:8000/rpc", "0.0.0.0 is where a server listens"),
        ("https://agent.test", "http://[::]:8000/rpc", ":: is where a server listens"),
        ("https://agent.test", "https://localhost/rpc", "localhost is this machine"),
        ("https://agent.test", "http://127.0.0.3:80/rpc", "127.0.0.3 is this machine"),
        ("https://agent.test", "http://[::1]/rpc", "::1 is this machine"),
        ("https://agent.test", "http://localhost./rpc", "localhost. is this machine"),
        ("https://agent.test", "http://[::ffff:127.0.0.1]/rpc", "is this machine"),
        ("https://agent.test", "http://[::ffff:0.0.0.0]/rpc", "is where a server listens"),
        ("https://agent.test", "http://agent.test./rpc", "it has no TLS"),
        ("https://agent.test", "http://agent.test/rpc", "it has no TLS"),
        ("https://Agent.Test", "http://agent.test:8080/rpc", "it has no TLS"),
    ],
)
async def test_an_address_that_cannot_be_meant_is_reported_with_what_to_pass(source, url, why):
    network = CardServer(page(card(interface(url=url))))

    with pytest.raises(InvalidAgentCardError) as caught:
        await connect(source, engine=network).send_message("hello")

    assert why in str(caught.value)
    assert '/rpc"' in str(caught.value)
    assert (caught.value.executed, len(network.requests)) == (False, 1)


@pytest.mark.parametrize(
    ("source", "url"),
    [
        ("http://localhost:1", "http://127.0.0.1:2/rpc"),
        ("http://0.0.0.0:1", "http://localhost:2/rpc"),
        ("http://localhost.:1", "http://[::ffff:127.0.0.1]:2/rpc"),
        ("http://127.0.0.1:1", "http://app.localhost:2/rpc"),
        ("https://agent.test", "https://other.test/rpc"),
        ("http://agent.test", "https://agent.test/rpc"),
        ("https://agent.test", "http://other.test/rpc"),
    ],
)
async def test_other_addresses_are_called(source, url):
    agent = FakeAgent(url=url.removesuffix("/rpc"), card=card(interface(url=url)))
    network = Pages(agent, pages={f"{source}{CARD_PATHS}": page(agent.card)})

    await connect(source, engine=network).send_message("hello")

    assert len(agent.calls("SendMessage")) == 1


async def test_the_callers_own_address_is_taken_as_it_is():
    agent = FakeAgent()
    network = Pages(agent)
    network.pages[f"https://agent.test{CARD_PATHS}"] = page(card(interface("0.0.0.0")))

    await connect("https://agent.test", engine=network, url=f"{agent.url}/rpc").ask("hello")

    assert len(agent.calls("SendMessage")) == 1


# ── Choosing an interface ────────────────────────────────────────────────────────────────────

RPC, REST = "http://agent.test/rpc", "http://agent.test/rest/message:send"


@pytest.mark.parametrize(
    ("interfaces", "options", "used"),
    [
        (["JSONRPC", "HTTP+JSON"], {}, RPC),
        (["HTTP+JSON", "JSONRPC"], {}, REST),
        (["GRPC", "https://example.com/own", "HTTP+JSON"], {}, REST),
        (["JSONRPC", "HTTP+JSON"], {"bindings": ["HTTP+JSON"]}, REST),
        (["HTTP+JSON", "JSONRPC"], {"bindings": ("JSONRPC", "HTTP+JSON")}, RPC),
        (["HTTP+JSON"], {"bindings": ["JSONRPC"]}, REST),
        (["JSONRPC"], {"url": "http://agent.test/rpc/v2"}, f"{RPC}/v2"),
    ],
)
async def test_the_callers_order_then_the_cards(interfaces, options, used):
    agent = FakeAgent(card=card(*(interface(binding=binding) for binding in interfaces)))
    client = connect(agent.url, engine=FakeNetwork(agent), **options)

    await client.send_message("hello")

    assert agent.received[-1].url == used


async def test_of_two_interfaces_with_one_binding_the_first_is_used():
    first, second = interface(), interface(url="http://agent.test/rpc/2")
    agent = FakeAgent(card=card(first, second))

    await connect(agent.url, engine=FakeNetwork(agent)).send_message("hello")

    assert agent.received[-1].url == first["url"]


@pytest.mark.parametrize("version", ["1.0", "1.1", "1.0.3", "1", "v1.0", "", None])
async def test_versions_that_are_taken_for_1_0(version):
    agent = FakeAgent(card=card(interface(protocolVersion=version)))

    assert (await connect(agent.url, engine=FakeNetwork(agent)).ask("hello")).text == "hello"


@pytest.mark.parametrize("version", ["0.1", "2.0", "10.0", "one"])
async def test_an_interface_of_another_version_is_not_called(version):
    agent = FakeAgent(card=card(interface(protocolVersion=version)))
    network = Pages(agent)

    with pytest.raises(VersionNotSupportedError) as caught:
        await connect(agent.url, engine=network).send_message("hello")

    assert version in str(caught.value)
    assert caught.value.executed is False
    assert len(network.requests) == 1


async def test_among_versions_the_one_that_is_spoken_is_used():
    older = interface(protocolVersion="0.3", url="http://agent.test/rpc/old")
    agent = FakeAgent(card=card(older, interface()))

    await connect(agent.url, engine=FakeNetwork(agent)).send_message("hello")

    assert agent.received[-1].url == RPC


async def test_a_card_without_a_binding_that_is_spoken_says_which_there_are():
    agent = FakeAgent(card=card(interface(binding="GRPC"), interface(binding="urn:x:own")))

    with pytest.raises(AgentCardResolutionError, match="GRPC, urn:x:own") as caught:
        await connect(agent.url, engine=FakeNetwork(agent)).send_message("hello")

    assert "JSONRPC, HTTP+JSON" in str(caught.value)
    assert caught.value.executed is False


# ── Tenant ───────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("in_card", "given", "sent"),
    [
        ("acme", None, "acme"),
        (None, "mine", "mine"),
        ("acme", "mine", "mine"),
        (None, None, None),
        ("", None, None),
    ],
)
async def test_the_tenant_goes_into_every_json_rpc_request(in_card, given, sent):
    agent = FakeAgent(card=card(interface(tenant=in_card)))
    client = connect(agent.url, engine=FakeNetwork(agent), tenant=given)

    task = await client.send_message("hello")
    await client.get_task(task.id)

    for received in agent.received[1:]:
        assert json.loads(received.body)["params"].get("tenant") == sent


@pytest.mark.parametrize(("in_card", "given"), [("a/c", None), (None, "a/c"), ("x", "a/c")])
async def test_the_tenant_goes_into_the_path_and_the_body_of_rest(in_card, given):
    agent = FakeAgent(card=card(interface(binding="HTTP+JSON", tenant=in_card)))
    client = connect(agent.url, engine=FakeNetwork(agent), tenant=given)

    task = await client.send_message("hello")
    await client.get_task(task.id)

    sent, looked = agent.received[1:]
    assert sent.url == "http://agent.test/rest/a%2Fc/message:send"
    assert json.loads(sent.body)["tenant"] == "a/c"
    assert looked.url == f"http://agent.test/rest/a%2Fc/tasks/{task.id}"


@both_bindings
@pytest.mark.parametrize("in_card", ["acme", None])
async def test_a_request_that_names_a_tenant_keeps_it(in_card, binding):
    agent = FakeAgent(card=card(interface(binding=binding, tenant=in_card)))
    client = connect(agent.url, engine=FakeNetwork(agent))

    await client.call(op.LIST_TASKS, ListTasksRequest(tenant="mine"))
    await client.call(op.LIST_TASKS, ListTasksRequest())

    named, left_out = (told_tenant(received) for received in agent.received[1:])
    assert (named, left_out) == ("mine", in_card)


def told_tenant(received):
    if received.body:
        return json.loads(received.body)["params"].get("tenant")
    before = urlsplit(received.url).path.removesuffix("/tasks")
    return before.removeprefix("/rest").strip("/") or None


async def test_a_tenant_is_not_sent_to_an_agent_of_an_older_protocol():
    agent = FakeAgent(versions=("0.3",))
    client = connect(agent.url, engine=FakeNetwork(agent))

    with pytest.raises(VersionNotSupportedError, match="has no tenants") as caught:
        await client.call(op.GET_TASK, GetTaskRequest(id="task-1", tenant="mine"))

    assert caught.value.executed is False
    assert agent.calls("GetTask") == []


# ── Secrets stay at home ─────────────────────────────────────────────────────────────────────

SECRETS = {
    "auth": {"auth": "Bearer s3cret"},
    "headers": {"headers": {"x-api-key": "s3cret"}},
}


def moved(host="elsewhere.test"):
    """An agent whose card names an interface on another host."""
    interfaces = interface(host), interface(host, "HTTP+JSON")
    agent = FakeAgent(card=card(*interfaces, capabilities={"extendedAgentCard": True}))
    elsewhere = FakeAgent(url=f"http://{host}")
    return agent, elsewhere, Pages(agent, elsewhere)


@pytest.mark.rule("P01")
@both_bindings
@pytest.mark.parametrize(
    ("options", "call"),
    [
        (SECRETS["auth"], lambda client: client.send_message("hello")),
        (SECRETS["auth"], lambda client: client.get_extended_agent_card()),
        (SECRETS["headers"], lambda client: client.ask("hello")),
        ({}, lambda client: client.ask("hello", headers={"x-api-key": "s3cret"})),
    ],
    ids=["auth", "extended card", "headers", "headers of the call"],
)
async def test_nothing_goes_to_an_origin_that_was_not_named(binding, options, call):
    agent, elsewhere, network = moved()
    client = connect(agent.url, engine=network, bindings=[binding], **options)

    with pytest.raises(CredentialOriginError) as caught:
        await call(client)

    assert caught.value.origin == "http://elsewhere.test:80"
    assert "credential_origins" in str(caught.value)
    assert "http://agent.test:80" in str(caught.value)
    assert "s3cret" not in str(caught.value)
    assert (network.hosts(), elsewhere.received) == ({"agent.test"}, [])


async def test_without_secrets_there_is_nothing_to_keep():
    agent, elsewhere, network = moved()

    await connect(agent.url, engine=network).send_message("hello")

    assert len(elsewhere.calls("SendMessage")) == 1


@both_bindings
@pytest.mark.parametrize("secrets", SECRETS)
@pytest.mark.parametrize(
    "origins",
    [
        ["http://elsewhere.test"],
        ["http://elsewhere.test:80"],
        ("HTTP://ELSEWHERE.test/some/path",),
        {"https://other.test", "http://elsewhere.test"},
    ],
    ids=lambda origins: " ".join(sorted(origins)),
)
async def test_an_origin_that_was_named_gets_them(binding, secrets, origins):
    agent, elsewhere, network = moved()
    options = SECRETS[secrets]

    await connect(
        agent.url, engine=network, bindings=[binding], credential_origins=origins, **options
    ).send_message("hello")

    assert "s3cret" in str(dict(elsewhere.received[0].headers))


@pytest.mark.rule("P01")
@pytest.mark.parametrize("origin", ["https://elsewhere.test", "http://elsewhere.test:8080"])
async def test_another_scheme_or_port_is_another_origin(origin):
    agent, _, network = moved()

    with pytest.raises(CredentialOriginError):
        await connect(
            agent.url, engine=network, auth="Bearer s3cret", credential_origins=[origin]
        ).send_message("hello")

    assert network.hosts() == {"agent.test"}


async def test_the_address_that_the_caller_gives_is_trusted():
    agent = FakeAgent()
    elsewhere = FakeAgent(url="http://elsewhere.test")

    await connect(
        agent.url,
        engine=Pages(agent, elsewhere),
        url="http://elsewhere.test/rpc",
        auth="Bearer s3cret",
    ).send_message("hello")

    assert elsewhere.received[0].headers["authorization"] == "Bearer s3cret"


async def test_a_card_in_hand_is_trusted_for_its_first_interface_only():
    document = card(interface("one.test"), interface("two.test", "HTTP+JSON"))
    one, two = FakeAgent(url="http://one.test"), FakeAgent(url="http://two.test")
    network = Pages(one, two)

    await connect(document, engine=network, auth="Bearer s3cret").send_message("hello")
    with pytest.raises(CredentialOriginError):
        await connect(
            document, engine=network, auth="Bearer s3cret", bindings=["HTTP+JSON"]
        ).send_message("hello")

    assert network.hosts() == {"one.test"}


async def test_the_first_card_in_hand_says_whom_to_trust_even_if_it_cannot_be_used(tmp_path):
    path = tmp_path / "card.json"
    network = Pages(FakeAgent(url="http://two.test"))
    client = connect(path, engine=network, auth="Bearer s3cret", card_ttl=0)
    path.write_text(json.dumps(card(interface("one.test", "GRPC"))))
    with pytest.raises(AgentCardResolutionError, match="offers only GRPC"):
        await client.send_message("hello")

    path.write_text(json.dumps(card(interface("two.test"))))
    with pytest.raises(CredentialOriginError, match=r"given for http://one\.test"):
        await client.send_message("hello")

    assert network.hosts() == set()


# ── Redirects of the card ────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_a_card_may_have_moved_within_its_origin(status):
    start = f"http://agent.test{CARD_PATHS}"
    pages = {
        start: redirect("/v2/card.json", status),
        "http://agent.test/v2/card.json": page(card()),
    }
    network = Pages(pages=pages)

    found = await connect("http://agent.test", engine=network, auth="Bearer s3cret").agent_card()

    assert found.name == "Found"
    assert network.urls() == list(pages)
    assert [r.headers.get("authorization") for r in network.requests] == ["Bearer s3cret"] * 2


@pytest.mark.rule("P03")
async def test_at_another_origin_and_after_it_there_are_no_credentials():
    there, back = "http://elsewhere.test/card.json", "http://agent.test/card.json"
    pages = {
        f"http://agent.test{CARD_PATHS}": redirect(there),
        there: redirect(back),
        back: page(card()),
    }
    network = Pages(pages=pages)

    await connect(
        "http://agent.test", engine=network, auth="Bearer s3cret", headers={"x-key": "s3cret"}
    ).agent_card()

    assert ["s3cret" in str(dict(r.headers)) for r in network.requests] == [True, False, False]
    assert all(r.headers["a2a-version"] == "1.0" for r in network.requests)


@pytest.mark.parametrize(("hops", "found"), [(5, True), (6, False)])
async def test_five_redirects_are_followed_and_no_more(hops, found):
    pages = {f"http://agent.test{CARD_PATHS}": redirect("/1")}
    pages |= {f"http://agent.test/{n}": redirect(f"/{n + 1}") for n in range(1, hops)}
    pages[f"http://agent.test/{hops}"] = page(card())
    network = Pages(pages=pages)
    client = connect("http://agent.test", engine=network, resilience=Resilience.off())

    if found:
        assert (await client.agent_card()).name == "Found"
    else:
        with pytest.raises(A2AHTTPError, match="was not followed: there were 5 redirects"):
            await client.agent_card()
    assert len(network.requests) == 6


@pytest.mark.parametrize(
    "location", ["http://agent.test/card.json", "ftp://agent.test/card.json", "https://[", ""]
)
async def test_a_redirect_to_where_no_card_should_be_is_not_followed(location):
    network = Pages(pages={f"https://agent.test{CARD_PATHS}": redirect(location)})
    loops = location == ""

    with pytest.raises(A2AHTTPError, match="was not followed") as caught:
        await connect("https://agent.test", engine=network).agent_card()

    assert caught.value.http_status == 302
    assert len(network.requests) == (6 if loops else 1)


async def test_address_without_a_server_is_a_connection_error():
    with pytest.raises(A2AConnectionError) as caught:
        await connect(
            "http://nobody.test", engine=FakeNetwork(), resilience=Resilience.off()
        ).send_message("hello")

    assert (caught.value.failure, caught.value.executed) == ("dns", False)


async def test_an_extended_card_cannot_name_whom_to_trust():
    """The caller's own card did; what an agent puts in its place must not widen that."""
    agent, thief = FakeAgent(), FakeAgent(url="http://other.test")
    extended = AgentCard.from_dict(card(interface("other.test")))
    reply = {"jsonrpc": "2.0", "id": "ID", "result": extended.to_dict()}

    class Swapping(Pages):
        async def request(self, request):
            if b"GetExtendedAgentCard" not in request.body:
                return await super().request(request)
            return page({**reply, "id": json.loads(request.body)["id"]})

    network = Swapping(agent, thief)
    own = card(capabilities={"extendedAgentCard": True})
    client = connect(own, auth="Bearer secret-token", engine=network)
    await client.get_extended_agent_card()

    with pytest.raises(CredentialOriginError) as caught:
        await client.send_message("hello")

    assert caught.value.origin == "http://other.test:80"
    assert thief.received == []


@pytest.mark.parametrize("url", ["/rpc", "agent.test/rpc", "ftp://agent.test/rpc", "http:///rpc"])
def test_an_interface_needs_an_absolute_address(url):
    with pytest.raises(InvalidAgentCardError) as caught:
        connect(card(interface(url=url)), engine=Pages())

    assert caught.value.field == "supportedInterfaces[0].url"


async def test_an_interface_of_another_binding_has_an_address_of_its_own_form():
    offered = card(interface(binding="GRPC", url="agent.test:443"), interface())
    client = connect(offered, engine=FakeNetwork(FakeAgent()))

    assert (await client.ask("hello")).text == "hello"


@pytest.mark.parametrize(
    "named", ["localhost", "localhost.", "127.0.0.1", "[::1]", "[::ffff:127.0.0.1]"]
)
async def test_the_names_of_this_machine_are_one_origin(named):
    agent = FakeAgent(url="http://127.0.0.1:9999")
    pages = {f"http://{named}:9999{CARD_PATHS}": page(card(interface("127.0.0.1:9999")))}
    client = connect(f"http://{named}:9999", auth="Bearer x", engine=Pages(agent, pages=pages))

    assert (await client.ask("hello")).text == "hello"


@pytest.mark.parametrize("named", ["127.0.0.2", "app.localhost"])
async def test_another_address_of_loopback_is_another_origin(named):
    pages = {f"http://{named}:9999{CARD_PATHS}": page(card(interface("127.0.0.1:9999")))}
    client = connect(f"http://{named}:9999", auth="Bearer x", engine=Pages(pages=pages))

    with pytest.raises(CredentialOriginError):
        await client.ask("hello")


async def test_another_port_of_this_machine_is_another_origin():
    pages = {f"http://localhost:9999{CARD_PATHS}": page(card(interface("127.0.0.1:9998")))}
    client = connect("http://localhost:9999", auth="Bearer x", engine=Pages(pages=pages))

    with pytest.raises(CredentialOriginError):
        await client.ask("hello")


async def test_an_agents_own_address_that_takes_no_get_is_no_card():
    address = "http://agent.test/rpc"
    pages = {f"{address}{CARD_PATHS}": MISSING, f"{address}{OLDER}": MISSING}
    client = connect(address, engine=Pages(pages={**pages, address: page(b"no", 405)}))

    with pytest.raises(AgentCardResolutionError, match="no agent card was found at"):
        await client.ask("hello")


# ── Failures while a card is fetched ─────────────────────────────────────────────────────────────


PAGE = b"<html>" + b"busy " * 1000


@pytest.mark.real_time
async def test_a_stale_card_is_used_while_a_page_comes_that_cannot_be_read():
    served = []

    async def script(connection):
        while (await connection.request()) is not None:
            served.append(connection)
            card = {
                "name": "Old",
                "supportedInterfaces": [{"url": server.url, "protocolBinding": "JSONRPC"}],
            }
            body = json.dumps(card).encode()
            good = reply(body, "Cache-Control: max-age=0, stale-if-error=60")
            bad = reply(PAGE, "Content-Encoding: br", status="503 Busy")
            await connection.send(good if len(served) == 1 else bad)

    engine = AiohttpEngine()
    async with serve(script) as server:
        client = connect(server.url, engine=engine, card_ttl=0, resilience=Resilience.off())
        first = await client.agent_card()
        assert await client.agent_card() is first
        await engine.close()

    assert len(served) == 2


async def test_the_error_names_the_address_that_a_redirect_of_the_card_leads_to():
    class Moved(FakeNetwork):
        async def request(self, request):
            if request.url.startswith("http://agent.test/"):
                headers = {"location": "http://login.test/in"}
                return HttpReply(status=302, headers=headers)
            return await super().request(request)

    client = connect("http://agent.test", engine=Moved(), resilience=Resilience.off())
    with pytest.raises(A2AError) as caught:
        await client.agent_card()

    assert caught.value.agent == "http://login.test/in"
    told = "could not be resolved, where http://agent.test/.well-known/agent-card.json leads"
    assert told in str(caught.value)


# ── One fetch of a card for several calls ────────────────────────────────────────────────────────


def connected(agent, network=None, **options):
    return connect(agent.url, engine=network or FakeNetwork(agent), **options)


async def test_an_error_of_a_shared_card_fetch_does_not_name_the_task_of_another_call():
    agent = FakeAgent(lambda _: works_forever())
    network = FakeNetwork(agent, latency=0.2)
    fetching = asyncio.Event()

    def observe(observation):
        if isinstance(observation, AttemptStarted) and observation.method == "GetAgentCard":
            fetching.set()

    options = {"card_ttl": 0, "resilience": Resilience.off(), "observers": [observe]}
    client = connected(agent, network, **options)
    task = await client.send_message("first", return_immediately=True)
    fetching.clear()
    agent.inject(Respond(status=403), on="GetAgentCard", times=20)
    watching = asyncio.ensure_future(client.wait(task.id, timeout=60))
    await fetching.wait()  # no card is kept, and the watcher fetches it anew

    with pytest.raises(PermissionDeniedError) as caught:
        await client.send_message("second")
    await asyncio.gather(watching, return_exceptions=True)

    assert (caught.value.executed, task.id in str(caught.value)) == (False, False)


async def test_a_short_timeout_of_one_call_does_not_end_the_card_fetch_of_others():
    agent = FakeAgent()
    agent.inject(unavailable(retry_after=2), on="GetAgentCard")
    client = connected(agent, FakeNetwork(agent, latency=0.1))
    hasty = asyncio.ensure_future(client.agent_card(timeout=1))
    await asyncio.sleep(0)

    patient = await client.ask("hello", timeout=600)

    assert patient.text == "hello"
    assert isinstance(hasty.exception(), A2AError)


async def test_a_deadline_during_the_card_fetch_carries_its_attempts():
    agent = FakeAgent()
    agent.inject(Refuse(), on="GetAgentCard", times=2)
    agent.inject(Stall(), on="GetAgentCard")

    with pytest.raises(DeadlineExceededError) as caught:
        await connected(agent).ask("hello", timeout=30)

    assert (caught.value.executed, len(caught.value.attempts)) == (False, 3)
    assert caught.value.agent.startswith("http://agent.test")
