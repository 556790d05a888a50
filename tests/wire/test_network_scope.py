"""Network scopes: a card or a redirect leads to no more private network than the caller's."""

import asyncio
import contextlib
import json
import socket
from contextlib import asynccontextmanager
from ipaddress import ip_address, ip_interface, ip_network

import aiohttp
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from tests.kit.card_signing import SIGNER
from tests.kit.raw_server import always, reply, serve

from holdfast import A2AError, AiohttpEngine, AuthenticationError, Resilience, connect
from holdfast._wire.network_scope import NetworkReach, network, scope_of, scope_of_host
from holdfast.auth.oauth import ClientCredentials
from holdfast.compat import A2ACardResolver
from holdfast.doctor import diagnose
from holdfast.errors import NetworkPolicyError
from holdfast.extend import HttpReply, HttpRequest
from holdfast.signatures import CardVerifier
from holdfast.testing import FakeAgent, FakeNetwork, Respond

SCOPES = ["public", "private", "link-local", "loopback", "metadata"]
EXAMPLES = {
    "public": ["8.8.8.8", "2606:4700::1", "::ffff:8.8.8.8", "64:ff9b::808:808"],
    "private": [
        "10.1.2.3",
        "172.16.0.1",
        "192.168.1.1",
        "100.64.0.1",
        "fd00::1",
        "fec0::1",
        "2002:808:808::",
        "224.0.0.1",
    ],
    "link-local": ["169.254.1.1", "fe80::1", "fe80::1%eth0", "::ffff:169.254.1.1"],
    "loopback": [
        "127.0.0.1",
        "127.9.9.9",
        "0.0.0.0",
        "0.1.2.3",
        "::1",
        "::",
        "::ffff:127.0.0.1",
        "::127.0.0.1",
        "64:ff9b::7f00:1",
        "64:ff9b:1::7f00:1",
        "2002:7f00:1::",
    ],
    "metadata": [
        "169.254.169.254",
        "100.100.100.200",
        "168.63.129.16",
        "fd00:ec2::254",
        "::ffff:169.254.169.254",
        "64:ff9b::a9fe:a9fe",
    ],
}
PAIRS = [(address, scope) for scope, addresses in EXAMPLES.items() for address in addresses]


def is_further_in(named, own):
    if named in {"link-local", "metadata"}:
        return named == "metadata" or own != "link-local"
    return SCOPES.index(named) > SCOPES.index(own)


@pytest.mark.parametrize(("address", "scope"), PAIRS)
def test_each_ip_address_has_a_scope(address, scope):
    assert scope_of(address) == scope


@pytest.mark.parametrize(
    ("url", "scope"),
    [
        ("http://localhost:8000", "loopback"),
        ("http://LOCALHOST./", "loopback"),
        ("http://agent.localhost", "loopback"),
        ("http://[::1]:80", "loopback"),
        ("http://10.0.0.1", "private"),
        ("http://agent.test", "public"),
    ],
)
def test_scope_of_a_host_without_a_lookup(url, scope):
    assert scope_of_host(url) == scope


@given(st.ip_addresses().map(str), st.sampled_from(SCOPES))
def test_reach_refuses_more_private_scopes(address, inward):
    refused = NetworkReach(inward=inward).refuses(address)

    assert refused == is_further_in(scope_of(address), inward)
    assert not NetworkReach(inward=inward, allowed=(network(address),)).refuses(address)
    elsewhere = network("192.88.99.1")
    assume(address != "192.88.99.1")  # its other spellings, in IPv6, are one in 2**32
    assert NetworkReach(inward=inward, allowed=(elsewhere,)).refuses(address) == refused


def test_an_allowed_network_accepts_its_addresses_in_any_spelling():
    reach = NetworkReach(allowed=(network("10.0.0.0/8"),))

    assert not reach.refuses("10.255.0.1")
    assert not reach.refuses("::ffff:10.0.0.1")
    assert reach.refuses("192.168.0.1")


@pytest.mark.parametrize("text", ["10.0.0.0/33", "agent.test", ""])
def test_a_text_that_is_not_a_network_is_refused(text):
    with pytest.raises(ValueError, match="in allowed_networks is not a network"):
        connect("http://agent.test", allowed_networks=[text])


@pytest.mark.parametrize("value", [None, 10.0])
def test_a_network_of_another_type_is_refused(value):
    with pytest.raises(TypeError, match=r"^one of allowed_networks must be str"):
        connect("http://agent.test", allowed_networks=[value])


@pytest.mark.parametrize("read", [ip_address, ip_network, ip_interface])
async def test_a_parsed_network_is_accepted(read):
    network = Hosts({"agent.test": "10.0.0.1"}, {})
    client = connect("http://agent.test", engine=network, reach="public")

    assert (await refused(client)).address == "10.0.0.1"
    allowed = [read("10.0.0.1")]
    client = connect("http://agent.test", engine=network, reach="public", allowed_networks=allowed)
    await client.ask("hello")


def test_a_single_string_is_not_a_sequence_of_networks():
    with pytest.raises(TypeError, match="allowed_networks must be a sequence"):
        connect("http://agent.test", allowed_networks="10.0.0.0/8")


# ── Cards and redirects ──────────────────────────────────────────────────────────────────────


class Hosts(FakeNetwork):
    """A network of hosts in several scopes, with cards and redirects."""

    def __init__(self, addresses, pages=()):
        agents = [FakeAgent(url=f"http://{host}") for host in addresses]
        super().__init__(*agents, addresses=addresses)
        self.pages = dict(pages)
        self.looked_up = []

    async def request(self, request):
        page = self.pages.get(request.url)
        if page is None:
            return await super().request(request)
        await self.connect(request)
        self.looked_up.append(request.url)
        return HttpReply(
            status=page.status,
            headers=page.headers,
            body=page.body,
            address=self.address_of(request.url),
        )

    @asynccontextmanager
    async def stream(self, request):  # which every request without a page goes through
        await self.connect(request)
        self.looked_up.append(request.url)
        async with super().stream(request) as reply:
            yield reply


CARD = "http://agent.test/.well-known/agent-card.json"


def card(*urls):
    interfaces = [{"url": url, "protocolBinding": "JSONRPC"} for url in urls]
    return {"name": "Elsewhere", "supportedInterfaces": interfaces}


def page(document):
    return HttpReply(status=200, body=json.dumps(document).encode())


def redirect(location):
    return HttpReply(status=302, headers={"location": location})


async def refused(client):
    with pytest.raises(NetworkPolicyError) as caught:
        await client.ask("hello")
    return caught.value


@pytest.mark.rule("P18")
@pytest.mark.parametrize("own", SCOPES)
@pytest.mark.parametrize("named", SCOPES)
async def test_a_card_leads_to_no_more_private_scope_than_its_own(own, named):
    hosts = {"agent.test": EXAMPLES[own][0], "named.test": EXAMPLES[named][0]}
    network = Hosts(hosts, {CARD: page(card("http://named.test/rpc"))})
    client = connect("http://agent.test", engine=network, resilience=Resilience.off())

    if is_further_in(named, own):
        error = await refused(client)
        assert (error.executed, error.transient) == (False, False)
        assert (error.address, error.agent) == (hosts["named.test"], "http://named.test/rpc")
        assert f"{hosts['named.test']} ({named})" in str(error)
        assert f'allowed_networks=("{error.address}",)' in str(error)
        assert network.looked_up == [CARD]
    else:
        await client.ask("hello")
    allowed = [hosts["named.test"]]
    await connect("http://agent.test", engine=network, allowed_networks=allowed).ask("hello")


@pytest.mark.parametrize("named", SCOPES)
async def test_an_address_that_the_caller_names_may_have_any_scope(named):
    address = EXAMPLES[named][0]
    inside = "http://inside.test"
    network = Hosts(
        {"agent.test": "8.8.8.8", "inside.test": address},
        {CARD: page(card(f"{inside}/rpc"))},
    )

    await connect(inside, engine=network).ask("hello")
    await connect("http://agent.test", engine=network, url=f"{inside}/rpc").ask("hello")
    await connect("http://agent.test", engine=network, credential_origins=[inside]).ask("hello")
    await connect(card(f"{inside}/rpc"), engine=network).ask("hello")


async def test_a_given_card_is_trusted_for_the_scope_of_its_first_interface():
    network = Hosts({"one.test": "10.0.0.1", "two.test": "10.0.0.2"})
    document = card("http://one.test/rpc")
    document["supportedInterfaces"].append(
        {"url": "http://two.test/rest", "protocolBinding": "HTTP+JSON"}
    )

    await connect(document, engine=network).ask("hello")
    error = await refused(connect(document, engine=network, bindings=["HTTP+JSON"]))

    assert error.address == "10.0.0.2"


async def test_a_card_from_loopback_may_name_any_loopback_address():
    network = Hosts({"localhost": "127.0.0.1", "127.0.0.2": "127.0.0.2"})
    document = card("http://localhost/rpc")
    document["supportedInterfaces"].append(
        {"url": "http://127.0.0.2/rest", "protocolBinding": "HTTP+JSON"}
    )

    await connect(document, engine=network, bindings=["HTTP+JSON"]).ask("hello")


@pytest.mark.rule("P18")
@pytest.mark.parametrize("hops", [["inside.test"], ["other.test", "inside.test"]], ids=len)
@pytest.mark.parametrize("inside", ["127.0.0.1", "10.0.0.1", "169.254.169.254"])
async def test_no_redirect_leads_to_a_more_private_scope(hops, inside):
    hosts = {"agent.test": "8.8.8.8", "other.test": "9.9.9.9", "inside.test": inside}
    here, pages = CARD, {}
    for host in hops:
        there = f"http://{host}/card.json"
        pages[here], here = redirect(there), there
    network = Hosts(hosts, {**pages, here: page(card("http://agent.test/rpc"))})

    error = await refused(connect("http://agent.test", engine=network))

    assert error.address == inside
    assert error.executed is False
    assert here not in network.looked_up
    await connect("http://agent.test", engine=network, allowed_networks=[inside]).ask("hello")


class Rebinding(FakeNetwork):
    """A network in which the agent's name resolves to another address after each connection."""

    def __init__(self, agent, *numbers):
        super().__init__(agent, addresses={"agent.test": numbers[0]})
        self.numbers = list(numbers[1:])

    async def connect(self, request):
        agent = await super().connect(request)
        if self.numbers:
            self._addresses["agent.test"] = self.numbers.pop(0)
        return agent


SENDS = ["SendMessage", "SendStreamingMessage"]


def rebinding(operation, inside, **options):
    """Return a client whose agent redirects an operation within its origin to a private one."""
    agent = FakeAgent(url="http://agent.test")
    path = "/.well-known/agent-card.json" if operation == "GetAgentCard" else "/rpc"
    location = {"location": f"http://agent.test{path}"}
    agent.inject(Respond(status=307, headers=location), on=operation)
    before = ["8.8.8.8"] * (1 if operation == "GetAgentCard" else 2)
    network = Rebinding(agent, *before, inside)
    return agent, connect(
        "http://agent.test", engine=network, resilience=Resilience.off(), **options
    )


async def send(client, operation):
    if operation != "SendStreamingMessage":
        return await client.send_message("hello")
    async with client.stream_message("hello") as events:
        return await events.result()


@pytest.mark.rule("P18")
@pytest.mark.parametrize("operation", ["GetAgentCard", *SENDS])
@pytest.mark.parametrize("inside", ["127.0.0.1", "169.254.169.254"])
async def test_a_redirect_within_the_origin_reaches_no_more_private_scope(operation, inside):
    agent, client = rebinding(operation, inside)

    with pytest.raises(NetworkPolicyError) as caught:
        await send(client, operation)

    assert (caught.value.address, caught.value.executed) == (inside, False)
    assert not any(agent.calls(sent) for sent in SENDS)
    _, client = rebinding(operation, inside, allowed_networks=[inside])
    await send(client, operation)


@pytest.mark.parametrize("operation", SENDS)
@pytest.mark.parametrize("named", SCOPES)
async def test_a_redirect_within_the_origin_stays_in_the_agents_scope(operation, named):
    agent, _ = rebinding(operation, "8.8.8.8")
    network = FakeNetwork(agent, addresses={"agent.test": EXAMPLES[named][0]})

    await send(connect("http://agent.test", engine=network), operation)
    assert len(agent.calls(operation)) == 1


# ── reach="public" ───────────────────────────────────────────────────────────────────────────

INSIDE = "http://inside.test"
NAMED_BY_THE_CALLER = {
    "agent": (INSIDE, {}),
    "url": ("http://agent.test", {"url": f"{INSIDE}/rpc"}),
    "origin": ("http://agent.test", {"credential_origins": [INSIDE]}),
    "card": (card(f"{INSIDE}/rpc"), {}),
}


@pytest.mark.rule("P19")
@pytest.mark.parametrize("named", NAMED_BY_THE_CALLER)
@pytest.mark.parametrize("scope", SCOPES)
async def test_reach_public_applies_to_all_addresses(named, scope):
    agent, options = NAMED_BY_THE_CALLER[named]
    address = EXAMPLES[scope][0]
    pages = {CARD: page(card(f"{INSIDE}/rpc"))}
    network = Hosts({"agent.test": "8.8.8.8", "inside.test": address}, pages)

    def client(**more):
        return connect(agent, engine=network, auth="Bearer s3cret", **options, **more)

    if scope != "public":
        error = await refused(client(reach="public"))
        assert (error.address, error.executed) == (address, False)
        assert 'reach="public"' in str(error)
        assert not any(url.startswith(INSIDE) for url in network.looked_up)
    await client(reach="public", allowed_networks=[address]).ask("hello")
    await client(reach="any").ask("hello")


@pytest.mark.parametrize("source", ["redirect", "interface"])
async def test_an_allowed_network_opens_no_other_to_a_card(source):
    there = f"{INSIDE}/rpc"
    pages = {CARD: redirect(there)} if source == "redirect" else {CARD: page(card(there))}
    network = Hosts({"agent.test": "10.0.0.1", "inside.test": "10.0.0.2"}, pages)

    error = await refused(
        connect("http://agent.test", engine=network, reach="public", allowed_networks=["10.0.0.1"])
    )

    assert error.address == "10.0.0.2"


async def test_dns_rebinding_is_refused_at_a_redirect():
    _, client = rebinding("SendMessage", "10.0.0.2", reach="public")

    with pytest.raises(NetworkPolicyError, match='reach="public"'):
        await client.send_message("hello")


@pytest.mark.rule("P19")
async def test_key_sets_and_authorization_servers_are_within_the_reach():
    network = Hosts({"agent.test": "8.8.8.8", "inside.test": "127.0.0.1"})
    network.pages[CARD] = page(SIGNER.sign(card("http://agent.test/rpc")))
    keys = CardVerifier(f"https://{'inside.test'}/jwks.json")
    auth = ClientCredentials("https://inside.test", "client", client_secret="s", engine=network)

    options = {"engine": network, "reach": "public", "resilience": Resilience.off()}
    async with connect("http://agent.test", card_verifier=keys, **options) as client:
        await client.agent_card()
        assert client.card_verification.outcome == "unverifiable"
    async with connect("http://agent.test", auth=auth, **options) as client:
        with pytest.raises(AuthenticationError, match='reach="public"'):
            await client.ask("hello")

    assert not any("inside.test" in url for url in network.looked_up)
    resolver = A2ACardResolver(INSIDE, engine=network, reach="public")
    with pytest.raises(NetworkPolicyError):
        await resolver.get_agent_card()


@pytest.mark.parametrize("reach", ["private", "", None, 1])
def test_reach_is_any_or_public(reach):
    with pytest.raises((ValueError, TypeError), match="reach"):
        connect("http://agent.test", reach=reach)


async def test_the_doctor_revalidates_a_card_within_its_scope():
    headers = {"etag": '"1"', "cache-control": "max-age=60"}
    body = page(card("http://agent.test/rpc")).body
    network = Hosts(
        {"agent.test": "8.8.8.8"}, {CARD: HttpReply(status=200, headers=headers, body=body)}
    )
    request = network.request

    async def rebound(asking):
        reply = await request(asking)
        network._addresses["agent.test"] = "10.0.0.7"
        return reply

    network.request = rebound
    await diagnose("http://agent.test", engine=network)

    assert network.looked_up.count(CARD) == 1


async def test_a_stale_card_is_not_revalidated_by_another_host():
    first, second = ("http://agent.test/1.json", "http://agent.test/2.json")
    old = page(card("http://agent.test/rpc"))
    network = Hosts({"agent.test": "8.8.8.8"}, {CARD: redirect(first), first: old})
    headers = {"etag": '"same"', "cache-control": "max-age=60"}
    network.pages[first] = HttpReply(status=200, headers=headers, body=old.body)
    client = connect("http://agent.test", engine=network)
    await client.agent_card()
    await asyncio.sleep(61)
    network.pages[CARD] = redirect(second)
    requests = []

    async def conditional(request):
        requests.append(request.headers.get("if-none-match"))
        if requests[-1]:
            return HttpReply(status=304, headers=headers)
        return page({**card("http://agent.test/rpc"), "name": "Another"})

    before = network.request

    async def request(asking):
        return await (conditional(asking) if asking.url == second else before(asking))

    network.request = request

    assert (await client.agent_card()).name == "Another"
    assert requests == ['"same"', None]


# ── Sockets ──────────────────────────────────────────────────────────────────────────────────


async def outcome(engine, url, reach):
    request = HttpRequest(method="POST", url=url, body=b"{}", reach=reach)
    try:
        await engine.request(request)
    except NetworkPolicyError as error:
        facts = (error.executed, error.transient, request.progress.sent)
        return error.address if facts == (False, False, False) else facts
    return None


@pytest.fixture
def names(monkeypatch):
    """Replace the resolver; tests set the addresses of names."""
    names_found = {}
    real = socket.getaddrinfo

    def getaddrinfo(host, port, *args, **kwargs):
        numbers = names_found.get(host, [host])
        return [info for number in numbers for info in real(number, port, *args, **kwargs)]

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    return names_found


@pytest.mark.rule("P18")
@pytest.mark.real_time
@pytest.mark.parametrize(
    "host",
    ["127.0.0.1", "0x7f.1", "0.0.0.0", "localhost", "named.test"],
)
async def test_no_socket_is_created_outside_the_reach(host, names):
    names["named.test"] = ["127.0.0.1"]
    engine = AiohttpEngine()
    async with serve(always()) as server:
        url = f"http://{host}:{server.url.rpartition(':')[2]}"

        address = await outcome(engine, url, NetworkReach())

        assert address is not None
        assert scope_of(address) == "loopback"
        assert server.connections == []
        assert await outcome(engine, url, NetworkReach(inward="loopback")) is None
        assert await outcome(engine, url, NetworkReach(allowed=(network("0.0.0.0/1"),))) is None
        await engine.close()


@pytest.mark.rule("P18")
@pytest.mark.real_time
async def test_dns_rebinding_is_refused(names):
    names["rebinding.test"] = ["127.0.0.1"]
    engine = AiohttpEngine()
    async with serve(always()) as server:
        url = f"http://rebinding.test:{server.url.rpartition(':')[2]}"

        # The caller's own request leaves a connection behind, which a card's must not use.
        assert await outcome(engine, url, None) is None
        assert await outcome(engine, url, NetworkReach()) == "127.0.0.1"
        assert len(server.requests) == 1
        await engine.close()


class Changing:
    """Addresses of a name: another one each time it is resolved."""

    def __init__(self, *numbers):
        self.numbers = list(numbers)

    def __iter__(self):
        return iter([self.numbers.pop(0) if self.numbers[1:] else self.numbers[0]])


@pytest.mark.real_time
@pytest.mark.parametrize("operation", SENDS)
async def test_dns_rebinding_of_a_call_is_refused(names, operation):
    names["rebinding.test"] = Changing("127.0.0.1", "169.254.169.254")
    redirect = reply(b"", "Location: /next", status="307 Temporary Redirect")
    async with serve(always(redirect)) as server, AiohttpEngine() as engine:
        url = f"http://rebinding.test:{server.url.rpartition(':')[2]}"
        document = {**card(url), "capabilities": {"streaming": True}}
        client = connect(
            document, engine=engine, resilience=Resilience.off(), protocol_version="1.0"
        )

        with pytest.raises(NetworkPolicyError) as caught:
            await send(client, operation)

        assert (caught.value.address, caught.value.executed) == ("169.254.169.254", False)
        assert len(server.requests) == 1


@pytest.mark.rule("P19")
@pytest.mark.real_time
async def test_reach_public_checks_the_ip_address_of_the_connection(names):
    names["named.test"] = ["127.0.0.1"]
    async with serve(always()) as server, AiohttpEngine() as engine:
        url = f"http://named.test:{server.url.rpartition(':')[2]}"

        for agent in (url, card(url)):
            error = await refused(connect(agent, engine=engine, reach="public"))
            assert (error.address, error.transient) == ("127.0.0.1", False)
        assert server.connections == []


@pytest.mark.rule("P19")
@pytest.mark.real_time
async def test_reach_public_refuses_addresses_that_cannot_be_checked(monkeypatch, names):
    names["named.test"] = ["127.0.0.1"]
    strict = NetworkReach(is_strict=True)
    async with serve(always()) as proxy:
        async with aiohttp.ClientSession() as session:
            borrowed = AiohttpEngine(session=session)
            url = f"http://named.test:{proxy.url.rpartition(':')[2]}"
            assert await outcome(borrowed, url, strict) == "127.0.0.1"
        async with aiohttp.ClientSession(proxy=proxy.url) as session:
            borrowed = AiohttpEngine(session=session)
            with pytest.raises(NetworkPolicyError, match="a caller-supplied gRPC channel"):
                await borrowed.request(HttpRequest(method="POST", url=url, reach=strict))
        monkeypatch.setenv("HTTP_PROXY", proxy.url)
        monkeypatch.setenv("NO_PROXY", "")
        async with connect("http://named.test", reach="public") as client:
            error = await refused(client)

        assert "a proxy or a caller-supplied gRPC channel" in str(error)
        assert (error.address, error.executed, error.agent) == (
            None,
            False,
            "http://named.test/.well-known/agent-card.json",
        )
        assert proxy.requests == []


@pytest.mark.real_time
async def test_of_several_addresses_the_allowed_ones_are_used(names):
    names["several.test"] = ["10.255.255.1", "127.0.0.1"]
    engine = AiohttpEngine()
    async with serve(always()) as server:
        url = f"http://several.test:{server.url.rpartition(':')[2]}"

        assert await outcome(engine, url, NetworkReach(allowed=(network("127.0.0.1"),))) is None
        names["others.test"] = ["127.0.0.1", "127.0.0.2"]
        assert await outcome(engine, url.replace("several", "others"), NetworkReach()) is not None
        await engine.close()


@pytest.mark.real_time
async def test_through_a_proxy_only_ip_literals_are_checked(monkeypatch, names):
    names["named.test"] = ["127.0.0.1"]
    async with serve(always()) as proxy:
        monkeypatch.setenv("HTTP_PROXY", proxy.url)
        monkeypatch.setenv("NO_PROXY", "")
        engine = AiohttpEngine()

        for host in ("127.0.0.1", "127.1", "localhost", "[::1]", "169.254.169.254"):
            assert await outcome(engine, f"http://{host}:1/", NetworkReach()) is not None
        assert proxy.requests == []
        # The proxy is the caller's own, wherever it is; who hides behind a name, it must know.
        assert await outcome(engine, "http://named.test:1/", NetworkReach()) is None
        await engine.close()


@pytest.mark.real_time
async def test_a_borrowed_session_sends_nothing_outside_the_reach(names):
    names["named.test"] = ["127.0.0.1"]
    async with serve(always()) as server, aiohttp.ClientSession() as session:
        engine = AiohttpEngine(session=session)
        url = f"http://named.test:{server.url.rpartition(':')[2]}"

        assert await outcome(engine, url, NetworkReach()) == "127.0.0.1"
        assert server.requests == []
        assert await outcome(engine, url, NetworkReach(inward="loopback")) is None
        assert await outcome(engine, url, NetworkReach()) == "127.0.0.1"
        assert len(server.requests) == 1


@pytest.mark.real_time
async def test_a_reply_has_the_scope_of_its_address():
    engine = AiohttpEngine()
    async with serve(always()) as server:
        reply = await engine.request(HttpRequest(method="GET", url=server.url))

        assert reply.address == "127.0.0.1"
        await engine.close()


# ── Proxies, metadata and allowed networks ───────────────────────────────────────────────────────


@pytest.mark.rule("P18")
@pytest.mark.real_time
@pytest.mark.parametrize(
    "host",
    [
        "169%2e254%2e169%2e254",
        "\uff11\uff16\uff19.254.169.254",
        "169\u3002254\u3002169\u3002254",
        "\u24dbocalhost",
    ],
)
async def test_an_ip_address_in_another_spelling_is_not_passed_to_a_proxy(host, monkeypatch):
    async with serve(always()) as proxy:
        monkeypatch.setenv("HTTP_PROXY", proxy.url)
        monkeypatch.setenv("NO_PROXY", "")
        engine = AiohttpEngine()
        card = {
            "name": "Odd",
            "supportedInterfaces": [
                {"url": f"http://{host}/rpc", "protocolBinding": "JSONRPC"},
            ],
        }
        agent = FakeAgent(card=card)

        class CardElsewhere(FakeNetwork):
            async def request(self, request):
                if request.method == "GET":
                    return await super().request(request)
                return await engine.request(request)

        client = connect(
            "http://agent.test", engine=CardElsewhere(agent), resilience=Resilience.off()
        )
        with contextlib.suppress(A2AError):
            await client.get_task("t")
        await engine.close()

        assert proxy.requests == []


@pytest.mark.real_time
async def test_a_borrowed_session_with_a_proxy_sends_no_metadata_address():
    async with serve(always()) as proxy, aiohttp.ClientSession(proxy=proxy.url) as session:
        engine = AiohttpEngine(session=session)
        reach = NetworkReach(inward="loopback")
        request = HttpRequest(
            method="POST", url="http://169.254.169.254/", body=b"{}", reach=reach
        )

        with pytest.raises(NetworkPolicyError):
            await engine.request(request)
        assert proxy.requests == []


@pytest.mark.real_time
async def test_a_borrowed_session_does_not_take_its_proxy_for_the_agent():
    card = {
        "name": "Outside",
        "supportedInterfaces": [{"url": "http://10.0.0.1/rpc", "protocolBinding": "JSONRPC"}],
    }

    async def script(connection):
        while (request := await connection.request()) is not None:
            is_card = request.startswith(b"GET")
            await connection.send(reply(json.dumps(card).encode() if is_card else b"{}"))

    async with serve(script) as proxy, aiohttp.ClientSession(proxy=proxy.url) as session:
        client = connect("http://agent.test", engine=session, resilience=Resilience.off())

        with pytest.raises(NetworkPolicyError):
            await client.get_task("t")
        assert [r for r in proxy.requests if r.startswith(b"POST")] == []


@pytest.mark.parametrize("address", ["fec0::2", "feff::1"])
def test_site_local_addresses_are_private(address):
    assert scope_of(address) == "private"  # RFC 3879: what has them routes them inside only


@pytest.mark.rule("P18")
@pytest.mark.parametrize(
    "address",
    [
        "169.254.42.42",  # Scaleway
        "fd00:42::42",
        "169.254.0.23",  # Tencent Cloud
        "fe80::a9fe:a9fe",  # OpenStack
    ],
)
async def test_a_card_from_loopback_may_not_name_metadata_addresses(address):
    assert NetworkReach(inward="loopback").refuses(address)


@pytest.mark.parametrize(
    "options",
    [
        {"allowed_networks": ["127.0.0.0/8"]},
        {"credential_origins": ["http://127.0.0.1:8000"]},
    ],
)
async def test_loopback_addresses_that_the_caller_allows_are_allowed(options):
    card = {
        "name": "Beside",
        "supportedInterfaces": [
            {"url": "http://127.0.0.1:8000/rpc", "protocolBinding": "JSONRPC"}
        ],
    }
    network = FakeNetwork(FakeAgent(card=card), FakeAgent(url="http://127.0.0.1:8000"))

    await connect("http://agent.test", engine=network, **options).ask("hello")
