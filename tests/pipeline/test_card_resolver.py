"""Fetching cards from one place: each time anew, on the path that every fetch of a card takes."""

import asyncio
import json
import logging

import pytest
from tests.kit.card_signing import CARD, KEYS_URL, SIGNER, Net, document

from holdfast import (
    A2AError,
    AgentCardResolutionError,
    AuthenticationError,
    DeadlineExceededError,
    Resilience,
    SchemeCredentials,
)
from holdfast.auth import StaticAuth
from holdfast.compat import A2ACardResolver
from holdfast.errors import CardSignatureError, InvalidAgentCardError
from holdfast.extend import HttpReply
from holdfast.signatures import CardVerifier
from holdfast.testing import (
    FakeAgent,
    FakeNetwork,
    LoopbackServer,
    Respond,
    Stall,
    unavailable,
)

BASE = "http://agent.test"
SECRET = "s3cret-value"
CARD_PATHS = "/.well-known/agent-card.json"
OLDER = "/.well-known/agent.json"
MISSING = HttpReply(status=404, body=b"not here")


class Pages(FakeNetwork):
    """A network of pages, and of nothing else."""

    def __init__(self, pages=None):
        super().__init__()
        self.pages = pages or {}
        self.requests = []

    async def request(self, request):
        self.requests.append(request)
        return self.pages[request.url]

    def urls(self):
        return [request.url for request in self.requests]


def page(document, status=200):
    body = document if isinstance(document, bytes) else json.dumps(document).encode()
    return HttpReply(status=status, body=body)


def card():
    interface = {"url": f"{BASE}/rpc", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}
    return {"name": "Found", "supportedInterfaces": [interface]}


def redirect(location):
    return HttpReply(status=302, headers={"location": location})


def now():
    return asyncio.get_running_loop().time()


@pytest.mark.parametrize("base", [BASE, f"{BASE}/"])
async def test_card_is_discovered_as_connect_does_it(base):
    network = Pages(pages={f"{BASE}{CARD_PATHS}": MISSING, f"{BASE}{OLDER}": page(card())})

    found = await A2ACardResolver(base, engine=network).get_agent_card()

    assert found.name == "Found"
    assert network.urls() == [f"{BASE}{CARD_PATHS}", f"{BASE}{OLDER}"]
    assert network.requests[0].headers["a2a-version"] == "1.0"


@pytest.mark.parametrize(
    ("base", "path", "url"),
    [
        (BASE, "/cards/one.json", f"{BASE}/cards/one.json"),
        (f"{BASE}/", "cards/one", f"{BASE}/cards/one"),
        (f"{BASE}/a/b/", "/card?v=1", f"{BASE}/a/b/card?v=1"),
        (f"{BASE}/a?x=1", "card", f"{BASE}/a/card"),
        (f"{BASE}/a", "/", f"{BASE}/a"),
        (BASE, "http://elsewhere.test/card", f"{BASE}/http://elsewhere.test/card"),
        (BASE, "//elsewhere.test/card", f"{BASE}/elsewhere.test/card"),
    ],
)
@pytest.mark.parametrize("where", ["resolver", "call"])
async def test_a_path_is_below_the_base_address(base, path, url, where):
    network = Pages(pages={url: page(card())})
    if where == "resolver":
        found = await A2ACardResolver(base, path, engine=network).get_agent_card()
    else:
        resolver = A2ACardResolver(base, "/another", engine=network)
        found = await resolver.get_agent_card(path)

    assert found.name == "Found"
    assert network.urls() == [url]


async def test_nothing_is_kept_between_fetches():
    agent = FakeAgent()
    resolver = A2ACardResolver(BASE, engine=FakeNetwork(agent))

    await asyncio.gather(*(resolver.get_agent_card() for _ in range(3)))

    assert len(agent.received) == 3


async def test_headers_of_a_fetch_stand_before_those_of_the_resolver():
    agent = FakeAgent()
    resolver = A2ACardResolver(
        BASE,
        engine=FakeNetwork(agent),
        auth=f"Bearer {SECRET}",
        headers={"X-Team": "blue", "X-Kept": "1"},
    )

    await resolver.get_agent_card(headers={"x-team": "red"})
    await resolver.get_agent_card()

    first, second = (received.headers for received in agent.received)
    assert (first["x-team"], first["x-kept"], second["x-team"]) == ("red", "1", "blue")
    assert first["authorization"] == f"Bearer {SECRET}"


async def test_no_secret_follows_a_redirect_to_another_origin():
    there = "http://elsewhere.test/card.json"
    network = Pages(pages={f"{BASE}/card": redirect(there), there: page(card())})
    resolver = A2ACardResolver(
        BASE, "/card", engine=network, auth=f"Bearer {SECRET}", headers={"x-a": SECRET}
    )

    await resolver.get_agent_card(headers={"x-b": SECRET})

    assert [SECRET in str(dict(r.headers)) for r in network.requests] == [True, False]


async def test_a_fetch_is_tried_again_like_any_read():
    agent = FakeAgent()
    agent.inject(unavailable(retry_after=7), on="GetAgentCard")

    await A2ACardResolver(BASE, engine=FakeNetwork(agent)).get_agent_card()

    assert now() >= 7
    assert len(agent.received) == 1
    agent.inject(unavailable(), on="GetAgentCard")
    without = A2ACardResolver(BASE, engine=FakeNetwork(agent), resilience=Resilience.off())
    with pytest.raises(Exception, match="503"):
        await without.get_agent_card()


@pytest.mark.parametrize("timeouts", [(5, None), (900, 5)])
async def test_a_fetch_ends_in_time(timeouts):
    own, of_the_call = timeouts
    agent = FakeAgent()
    agent.inject(Stall(), on="GetAgentCard", times=9)
    resolver = A2ACardResolver(BASE, engine=FakeNetwork(agent), timeout=own)

    with pytest.raises(DeadlineExceededError) as caught:
        await resolver.get_agent_card(timeout=of_the_call)

    assert (now(), caught.value.executed, caught.value.timeout) == (5, False, 5)


@pytest.mark.parametrize(
    ("reply", "error"),
    [
        (MISSING, AgentCardResolutionError),
        (page(b"<html>"), InvalidAgentCardError),
        (page({"name": "x"}), InvalidAgentCardError),
        (page(b"no", 401), AuthenticationError),
    ],
)
async def test_what_is_no_card_has_its_error(reply, error):
    network = Pages(pages={f"{BASE}/card": reply})

    with pytest.raises(error) as caught:
        await A2ACardResolver(BASE, "card", engine=network).get_agent_card()

    assert f"{BASE}/card" in str(caught.value)
    assert caught.value.request_id


async def test_a_401_is_replayed_if_the_provider_asks_for_it():
    class Renewing(StaticAuth):
        async def on_unauthorized(self, call, error, /):
            return True

    agent = FakeAgent()
    agent.inject(Respond(status=401), on="GetAgentCard")
    auth = Renewing({"authorization": SECRET})

    assert await A2ACardResolver(BASE, engine=FakeNetwork(agent), auth=auth).get_agent_card()


@pytest.mark.parametrize(
    ("arguments", "options", "error"),
    [
        (["agent.test"], {}, ValueError),
        ([7], {}, TypeError),
        ([BASE, ""], {}, ValueError),
        ([BASE, 7], {}, TypeError),
        ([BASE, "a b"], {}, ValueError),
        ([BASE], {"timeout": 0}, ValueError),
        ([BASE], {"headers": {"a": f"{SECRET}\n"}}, ValueError),
        ([BASE], {"auth": ""}, ValueError),
        ([BASE], {"auth": 7}, TypeError),
        ([BASE], {"auth": SchemeCredentials({"a": SECRET})}, TypeError),
        ([BASE], {"resilience": 7}, TypeError),
        ([BASE], {"engine": 7}, TypeError),
        ([BASE], {"env": 7}, TypeError),
    ],
)
def test_what_cannot_be_right_is_refused_at_once(arguments, options, error):
    with pytest.raises(error) as caught:
        A2ACardResolver(*arguments, **options)
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize(
    ("arguments", "options", "error"),
    [
        ([""], {}, ValueError),
        ([7], {}, TypeError),
        (["a\nb"], {}, ValueError),
        ([], {"timeout": -1}, ValueError),
        ([], {"headers": {"a": "b\n"}}, ValueError),
    ],
)
async def test_options_of_a_fetch_are_checked(arguments, options, error):
    network = Pages()
    with pytest.raises(error):
        await A2ACardResolver(BASE, engine=network).get_agent_card(*arguments, **options)
    assert network.requests == []


class Closing(FakeNetwork):
    closed = 0

    async def close(self):
        self.closed += 1


async def test_an_engine_that_is_borrowed_stays_open():
    network = Closing(FakeAgent())
    async with A2ACardResolver(BASE, engine=network) as resolver:
        await resolver.get_agent_card()
    await resolver.close()
    assert network.closed == 0


@pytest.mark.real_time
async def test_a_resolver_of_its_own_engine_fetches_over_a_socket():
    async with (
        asyncio.timeout(20),
        LoopbackServer(FakeAgent()) as server,
        A2ACardResolver(server.url) as resolver,
    ):
        assert (await resolver.get_agent_card()).name == "Fake agent"
        assert (await resolver.get_agent_card(CARD_PATHS)).name == "Fake agent"


async def test_a_closed_resolver_says_so():
    pages = Pages({BASE + CARD_PATHS: page(card())})
    async with A2ACardResolver(BASE, engine=pages) as resolver:
        await resolver.get_agent_card()

    with pytest.raises(RuntimeError, match="the resolver is closed"):
        await resolver.get_agent_card()

    assert len(pages.requests) == 1


# ── Signatures and TLS ───────────────────────────────────────────────────────────────────────


async def test_cards_are_verified_as_connect_does():
    net = Net(pages={CARD: SIGNER.sign(document())})
    trusting = {"card_verifier": CardVerifier(SIGNER.jwks), "require_signature": True}
    async with A2ACardResolver("http://agent.test", engine=net, **trusting) as resolver:
        assert (await resolver.get_agent_card()).name == "Signed"
        for card, outcome in (
            ({**SIGNER.sign(document()), "name": "Else"}, "invalid"),
            (document(), "absent"),
        ):
            net.pages[CARD] = card
            with pytest.raises(CardSignatureError) as caught:
                await resolver.get_agent_card()
            assert (caught.value.outcome, caught.value.executed) == (outcome, False)


async def test_keys_are_waited_for_as_long_as_the_fetch_may_take():
    net = Net(pages={CARD: SIGNER.sign(document())}, takes={KEYS_URL: 3600})
    verifier = CardVerifier(KEYS_URL)
    async with A2ACardResolver(
        "http://agent.test", engine=net, card_verifier=verifier
    ) as resolver:
        with pytest.raises(DeadlineExceededError) as caught:
            await resolver.get_agent_card(timeout=5.0)
    assert caught.value.executed is False


@pytest.mark.parametrize(
    "options", [{"require_signature": True}, {"card_verifier": 5}, {"tls": 5}]
)
def test_what_cannot_be_about_trust_is_reported_at_once(options):
    with pytest.raises((ValueError, TypeError)):
        A2ACardResolver("http://agent.test", **options)


async def test_a_closed_card_resolver_fetches_no_card():
    resolver = A2ACardResolver("http://agent.test", engine=FakeNetwork(FakeAgent()))
    await resolver.close()

    with pytest.raises(RuntimeError, match="closed"):
        await resolver.get_agent_card()


@pytest.mark.parametrize("is_found", [True, False])
async def test_a_fetch_is_one_operation_of_one_request_in_the_log(is_found, caplog):
    caplog.set_level(logging.DEBUG, "holdfast")
    agent = FakeAgent()
    agent.inject(unavailable(), on="GetAgentCard", times=1 if is_found else 100)
    error = None
    async with A2ACardResolver(agent.url, engine=FakeNetwork(agent), timeout=10) as resolver:
        try:
            await resolver.get_agent_card()
        except A2AError as failure:
            error = failure

    records = [each for each in caplog.records if each.name == "holdfast"]
    ids = {each.operation_id for each in records}
    texts = [each.getMessage().partition(": ")[2].partition(" after ")[0] for each in records]
    assert len(ids) == 1
    assert error is None or {error.operation_id} == ids
    assert texts.count("started") == 2  # the operation and its request
    assert texts[:2] == ["started", "started"]
    assert {each.operation for each in records} == {"get_agent_card"}
    assert texts[-1] == ("succeeded" if is_found else f"failed with {type(error).__name__}")
