"""Agent cards as no agent should send them: each can be used, or is refused by the member's name.

A full card, and one thing wrong with it at a time. Of each it is written down whether a client
must go on, and why. Whatever a card holds, there is no other exception, no wait, no request to
anywhere but the agent, and no secret in an error.
"""

import asyncio
import contextlib
import json
import types

import pytest
from hypothesis import strategies as st
from tests.kit.effort import case, some
from tests.kit.raw_server import reply, serve
from tests.kit.strategies import given, json_values

from holdfast import A2AError, AgentCardResolutionError, Limits, connect
from holdfast.errors import (
    CredentialOriginError,
    ExtensionSupportRequiredError,
    InvalidAgentCardError,
    InvalidAgentResponseError,
    LimitExceededError,
    VersionNotSupportedError,
)
from holdfast.extend import HttpReply
from holdfast.testing import FakeAgent, FakeNetwork, run

CARD_URL = "http://agent.test/.well-known/agent-card.json"
RPC = "http://agent.test/rpc"
REST = "http://agent.test/rest"
TOKEN = "s3cret-t0ken"
PASSWORD = "pa55-w0rd"


def scheme(kind, **members):
    return {kind: {"description": "How to log in.", **members}}


def flow(**urls):
    return {**urls, "refreshUrl": "https://id.test/refresh", "scopes": {"read": "Read."}}


AUTHORIZE = {"authorizationUrl": "https://id.test/authorize"}
TOKENS = {"tokenUrl": "https://id.test/token"}
FLOWS = {
    "authorizationCode": {**flow(**AUTHORIZE, **TOKENS), "pkceRequired": True},
    "clientCredentials": flow(**TOKENS),
    "implicit": flow(**AUTHORIZE),
    "password": flow(**TOKENS),
    "deviceCode": flow(deviceAuthorizationUrl="https://id.test/device", **TOKENS),
}

FULL = {
    "name": "Full",
    "description": "Has every member of A2A 1.0.",
    "version": "1.2.3",
    "supportedInterfaces": [
        {"url": RPC, "protocolBinding": "JSONRPC", "tenant": "acme", "protocolVersion": "1.0"},
        {"url": REST, "protocolBinding": "HTTP+JSON", "tenant": "acme", "protocolVersion": "1.0"},
    ],
    "provider": {"url": "https://provider.test", "organization": "Provider"},
    "documentationUrl": "https://provider.test/docs",
    "iconUrl": "https://provider.test/icon.png",
    "capabilities": {
        "streaming": False,
        "pushNotifications": False,
        "extendedAgentCard": False,
        "extensions": [
            {
                "uri": "https://extension.test/v1",
                "description": "Adds something.",
                "required": False,
                "params": {"level": 1},
            }
        ],
    },
    "securitySchemes": {
        "key": scheme("apiKeySecurityScheme", location="header", name="X-Key"),
        "http": scheme("httpAuthSecurityScheme", scheme="Bearer", bearerFormat="JWT"),
        "oidc": scheme("openIdConnectSecurityScheme", openIdConnectUrl="https://id.test/.w"),
        "mtls": scheme("mtlsSecurityScheme"),
        "oauth": scheme(
            "oauth2SecurityScheme", flows=FLOWS, oauth2MetadataUrl="https://id.test/.well-known"
        ),
    },
    "securityRequirements": [{"schemes": {"oauth": {"list": ["read"]}, "key": {"list": []}}}],
    "defaultInputModes": ["text/plain"],
    "defaultOutputModes": ["text/plain"],
    "skills": [
        {
            "id": "echo",
            "name": "Echo",
            "description": "Says what it hears.",
            "tags": ["test"],
            "examples": ["hello"],
            "inputModes": ["text/plain"],
            "outputModes": ["text/plain"],
            "securityRequirements": [{"schemes": {"key": {"list": []}}}],
        }
    ],
    "signatures": [{"protected": "e30", "signature": "c2ln", "header": {"kid": "1"}}],
}

TEXT = json.dumps(FULL)

MAPS = ("securitySchemes", "schemes", "scopes")
"""Members whose names the agent chooses."""
FREE = ("params", "header")
"""Members that hold any JSON object."""
NEEDED = ("name", "supportedInterfaces", "url", "protocolBinding")
"""What a call depends on: an agent that can be named, and where and how to reach it."""


# ── What is where in a card ──────────────────────────────────────────────────────────────────


def paths(value, path=()):
    yield path
    names = (
        value if isinstance(value, dict) else range(len(value) if isinstance(value, list) else 0)
    )
    for name in names:
        yield from paths(value[name], (*path, name))


MEMBERS = [path for path in paths(FULL) if path]


def shown(path):
    """The path as errors write it: ``securitySchemes["key"].apiKeySecurityScheme.name``."""
    text = ""
    for index, name in enumerate(path):
        if isinstance(name, int):
            text += f"[{name}]"
        elif index and path[index - 1] in MAPS:
            text += f"[{json.dumps(name)}]"
        else:
            text += f".{name}" if text else name
    return text


def at(document, path):
    for name in path:
        document = document[name]
    return document


def changed(path, value):
    document = json.loads(TEXT)
    at(document, path[:-1])[path[-1]] = value
    return document


def without(path):
    document = json.loads(TEXT)
    del at(document, path[:-1])[path[-1]]
    return document


def with_interfaces(*interfaces):
    return {**FULL, "supportedInterfaces": list(interfaces)}


def interface(**members):
    return {"url": RPC, "protocolBinding": "JSONRPC", "protocolVersion": "1.0", **members}


def is_needed(path):
    return path[-1] in NEEDED and (len(path) == 1 or path[0] == "supportedInterfaces")


# ── What becomes of a card ───────────────────────────────────────────────────────────────────


class Outcome:
    """What a client made of a card, and what it sent where."""

    def __init__(self, network, error, text, seconds):
        self.network, self.error, self.text, self.seconds = network, error, text, seconds

    @property
    def posted(self):
        return [request.url for request in self.network.requests if request.method == "POST"]

    def everything_shown(self):
        """The error as a log, a traceback or a debugger would show it."""
        told, error = [], self.error
        while error is not None:
            told += [str(error), repr(error), repr(vars(error))]
            hidden = error.__suppress_context__
            error = error.__cause__ or (None if hidden else error.__context__)
        return "\n".join(told)


class Network(FakeNetwork):
    """Serves a card as it is, and the fake agent beside it."""

    def __init__(self, body):
        self.agent = FakeAgent(versions=("1.0", "0.3"))
        super().__init__(self.agent)
        self.body = body
        self.requests = []

    async def request(self, request):
        if request.url == CARD_URL:
            self.requests.append(request)
            return HttpReply(status=200, body=self.body)
        return await super().request(request)

    def stream(self, request):  # which every request goes through that the agent is to answer
        self.requests.append(request)
        return super().stream(request)


UNLIMITED = Limits(json_depth=10**7, json_values=10**7)
"""What is wrong with a card is told by those who read it, however much may come to them."""


def on_the_wire(document):
    return document if isinstance(document, bytes) else json.dumps(document).encode()


def used(document, agent="http://agent.test", **options):
    """Asks the agent of a card something: one on the wire, unless another is passed."""
    network = Network(on_the_wire(document) if document is not None else b"")
    options = {"limits": UNLIMITED} | options

    async def ask():
        loop, error, text = asyncio.get_running_loop(), None, None
        began = loop.time()
        try:
            client = connect(agent, engine=network, auth=f"Bearer {TOKEN}", **options)
            text = (await client.ask("hello")).text
        except A2AError as raised:
            error = raised
        return Outcome(network, error, text, loop.time() - began)

    outcome = run(ask())
    assert outcome.seconds == 0, "nothing here is worth waiting for"
    fetches = [request for request in network.requests if request.method == "GET"]
    assert len(fetches) <= 1, "another try gives the same card"
    told = outcome.everything_shown()
    assert TOKEN not in told
    assert PASSWORD not in told
    assert len(str(outcome.error)) < 20_000
    assert str(outcome.error).isprintable(), "one line, and nothing that a terminal obeys"
    return outcome


def assert_works(outcome, posted=None, why=None):
    assert outcome.error is None, why
    assert outcome.text == "hello"
    if posted is None:
        assert set(outcome.posted) <= {RPC, f"{REST}/acme/message:send"}
    else:
        assert outcome.posted == [posted]


def assert_names(outcome, field, why=None):
    """Refused by the member that is wrong, or by what is wrong inside of it."""
    error = outcome.error
    assert isinstance(error, InvalidAgentCardError), why
    assert error.field is not None
    assert error.field == field or error.field.startswith((f"{field}.", f"{field}["))
    assert error.field in str(error)
    assert (error.executed, error.transient) == (False, False)
    assert outcome.posted == []


# ── Every member, wrong in every way ─────────────────────────────────────────────────────────

DEEP = {"a": 1}
for _ in range(100):
    DEEP = {"a": [DEEP]}

VALUES = {
    "null": None,
    "true": True,
    "0": 0,
    "1.0": 1.0,
    "a huge number": 10**300,
    "text": "some text",
    "empty text": "",
    "huge text": "x" * 30_000,
    "a lone surrogate": "\ud800",
    "control characters": "a\x1b[31m\r\nb\x00",
    "empty array": [],
    "array of null": [None],
    "array of text": ["some text"],
    "array of objects": [{}],
    "empty object": {},
    "object of null": {"x": None},
    "object of text": {"x": "some text"},
    "object of objects": {"x": {}},
    "something deep": DEEP,
}

AS_IT_IS = "it holds any JSON (a Struct), and the client hands it on"
ABSENT = "ProtoJSON: null is an absent member, and those that a call depends on are REQUIRED"
REQUIRED = "a call depends on it"
NO_ITEM = "ProtoJSON: null is no item of a list and no value of a map"
OF_ITS_TYPE = "of the type that the protocol says; unknown members are ignored (A2A 5.7)"
NO_ADDRESS = "an interface is called there (A2A 4.4.6)"
ANOTHER_ONE = "no version that is spoken, but there is another interface"
WRONG_TYPE = (
    "ProtoJSON: a value of another type is an error; what it should mean can be guessed only"
)
AS_FLAG = "0 for false means nothing else, and servers send it"


def verdict(path, value):
    """Whether a card with this value there can be used, and why; read off the specification."""
    if any(name in FREE for name in path[:-1]):
        return True, AS_IT_IS
    there = at(FULL, path)
    if value is None:
        is_entry = isinstance(path[-1], int) or (path[-2:-1] and path[-2] in MAPS)
        return (False, NO_ITEM) if is_entry else (not is_needed(path), ABSENT)
    if isinstance(there, bool) and value == 0 and isinstance(value, int):
        return True, AS_FLAG
    if type(value) is not type(there):
        return False, WRONG_TYPE
    if is_needed(path) and not value:
        return False, REQUIRED
    return verdict_by_content(path, there, value)


def verdict_by_content(path, there, value):
    """The same for a value that is of the right type, as far as that goes."""
    if path[0] == "supportedInterfaces" and path[-1] == "url":
        return False, NO_ADDRESS
    if path[-1] == "protocolVersion" and value:
        return True, ANOTHER_ONE
    if path[-1] in FREE:
        return True, AS_IT_IS
    if isinstance(value, list):
        return verdict_on_entries(there[0] if there else "text", value)
    if isinstance(value, dict) and path[-1] in MAPS:
        return verdict_on_entries(next(iter(there.values())), value.values())
    if isinstance(value, dict) and path[-2:-1] == ("supportedInterfaces",):
        return False, REQUIRED
    return True, OF_ITS_TYPE


def verdict_on_entries(entry, values):
    """Whether entries are of the type of the one that the full card has."""
    for value in values:
        if value is None:
            return False, NO_ITEM
        if type(value) is not type(entry):
            return False, WRONG_TYPE
        if isinstance(value, dict) and "protocolBinding" in entry:
            return False, REQUIRED
    return True, OF_ITS_TYPE


@pytest.mark.rule("P26")
@pytest.mark.parametrize("path", MEMBERS, ids=shown)
def test_a_member_with_another_value_is_read_or_named(path):
    for kind, value in some(VALUES.items(), of=6, beginning=MEMBERS.index(path)):
        with case(kind):
            works, why = verdict(path, value)

            outcome = used(changed(path, value))

            if path[-1] == "required" and value is True:
                assert isinstance(outcome.error, ExtensionSupportRequiredError)
                assert outcome.posted == []
            elif works:
                assert_works(outcome, why=why)
            else:
                assert_names(outcome, shown(path), why)


@pytest.mark.rule("P26")
@pytest.mark.parametrize("path", MEMBERS, ids=shown)
def test_a_card_without_a_member_is_read_unless_a_call_depends_on_it(path):
    outcome = used(without(path))

    if is_needed(path):
        assert_names(outcome, shown(path))
    else:
        assert_works(outcome)


@pytest.mark.parametrize("path", [(), *MEMBERS], ids=shown)
def test_unknown_members_are_ignored(path):
    """A2A 5.7; names of all kinds, which a map takes for entries of its own."""
    there = at(FULL, path)
    if not isinstance(there, dict) or (path and path[-1] in MAPS):
        return
    strange = {"x-new": {"a": [1]}, "": None, "\ud800": "\ud800", "__class__": 1, "$ref": "#/a"}

    document = changed(path, {**there, **strange}) if path else {**FULL, **strange}

    assert_works(used(document))


@pytest.mark.parametrize("path", [p for p in MEMBERS if p[-1] in MAPS], ids=shown)
@pytest.mark.parametrize("name", ["", "\ud800", "a\x1b\nb", "x" * 100_000, "].url", "[...]", '"'])
def test_the_names_of_a_map_are_the_agents_and_are_reported_in_one_short_line(path, name):
    there = at(FULL, path)
    entry = next(iter(there.values()))

    assert_works(used(changed(path, {**there, name: entry})))
    outcome = used(changed(path, {**there, name: 7}))
    assert_names(outcome, shown(path))
    assert len(outcome.error.field) < 300


@pytest.mark.parametrize("path", MEMBERS, ids=shown)
def test_of_a_member_that_comes_twice_the_last_one_counts(path):
    """RFC 8259, 4: what most parsers do, so that others read the same as we."""
    value = at(FULL, path)
    if isinstance(path[-1], int):
        return
    mark, name = "@@@", json.dumps(path[-1])
    text = json.dumps(changed(path, mark)).replace(f'"{mark}"', f"7, {name}: {json.dumps(value)}")

    assert_works(used(text.encode()))


# ── Addresses ────────────────────────────────────────────────────────────────────────────────

SAID_BY_ITSELF = "any client posts to it as it is"
FREELY_WRITTEN = "RFC 3986: the same address in another spelling"
NOT_HTTP = "A2A 4.4.6: an absolute address of HTTP"
READ_DIFFERENTLY = "libraries disagree on where it leads"
NO_PORT = "a port is a number from 1 to 65535"
TOO_LONG = "longer than servers take (RFC 9110, 4.1)"

GOOD_URLS = {
    "http://agent.test/rpc": SAID_BY_ITSELF,
    "http://agent.test/rpc/": SAID_BY_ITSELF,
    "http://agent.test/rpc?key=1&key=2": SAID_BY_ITSELF,
    "http://agent.test:80/rpc": FREELY_WRITTEN,
    "http://agent.test:/rpc": FREELY_WRITTEN,
    "http://agent.test:0080/rpc": FREELY_WRITTEN,
    "HTTP://AGENT.test/rpc": FREELY_WRITTEN,
}
BAD_URLS = {
    "/rpc": NOT_HTTP,
    "rpc": NOT_HTTP,
    "?": NOT_HTTP,
    "#": NOT_HTTP,
    "//agent.test/rpc": NOT_HTTP,
    "agent.test/rpc": NOT_HTTP,
    "agent.test:80/rpc": NOT_HTTP,
    "http": NOT_HTTP,
    "http:": NOT_HTTP,
    "http://": NOT_HTTP,
    "http:///rpc": NOT_HTTP,
    "http://:80/rpc": NOT_HTTP,
    "http://?x": NOT_HTTP,
    "http:agent.test/rpc": NOT_HTTP,
    "http:/agent.test/rpc": NOT_HTTP,
    "http//agent.test/rpc": NOT_HTTP,
    "https//agent.test/rpc": NOT_HTTP,
    "ws://agent.test/rpc": NOT_HTTP,
    "grpc://agent.test:443": NOT_HTTP,
    "ftp://agent.test/rpc": NOT_HTTP,
    "file:///etc/passwd": NOT_HTTP,
    "file://agent.test/etc/passwd": NOT_HTTP,
    "unix:///var/run/docker.sock": NOT_HTTP,
    "http+unix://%2Fvar%2Frun%2Fdocker.sock/rpc": NOT_HTTP,
    "javascript:alert(1)": NOT_HTTP,
    "javascript://agent.test/%0aalert(1)": NOT_HTTP,
    "data:application/json,{}": NOT_HTTP,
    "mailto:agent@agent.test": NOT_HTTP,
    "urn:agent:test": NOT_HTTP,
    "view-source:http://agent.test/rpc": NOT_HTTP,
    "{url}": NOT_HTTP,
    "<http://agent.test/rpc>": NOT_HTTP,
    f"http://user:{PASSWORD}@agent.test/rpc": READ_DIFFERENTLY,
    f"http://{PASSWORD}@agent.test/rpc": READ_DIFFERENTLY,
    f"http://user:{PASSWORD}@elsewhere.test/rpc": READ_DIFFERENTLY,
    "http://@agent.test/rpc": READ_DIFFERENTLY,
    "http://agent.test@elsewhere.test/rpc": READ_DIFFERENTLY,
    "http://agent.test:80@elsewhere.test/rpc": READ_DIFFERENTLY,
    "http://elsewhere.test@agent.test/rpc": READ_DIFFERENTLY,
    "http://agent.test\\@elsewhere.test/rpc": READ_DIFFERENTLY,
    "http://elsewhere.test\\@agent.test/rpc": READ_DIFFERENTLY,
    "http:\\\\agent.test\\rpc": READ_DIFFERENTLY,
    "http://agent.test/\\..\\rpc": READ_DIFFERENTLY,
    " http://agent.test/rpc": READ_DIFFERENTLY,
    "http://agent.test/rpc ": READ_DIFFERENTLY,
    "http://agent.test/r pc": READ_DIFFERENTLY,
    "http://agent .test/rpc": READ_DIFFERENTLY,
    "http://agent.test/rpc\n": READ_DIFFERENTLY,
    "http://agent.test/rpc\r\nX-Smuggled: 1": READ_DIFFERENTLY,
    "http://agent.test\r\nHost: elsewhere.test\r\n\r\n/rpc": READ_DIFFERENTLY,
    "ht\ntp://agent.test/rpc": READ_DIFFERENTLY,
    "http://agent.test/\trpc": READ_DIFFERENTLY,
    "http://agent.test/\x00rpc": READ_DIFFERENTLY,
    "http://agent.test/\x7frpc": READ_DIFFERENTLY,
    "http://agent.test/\x85rpc": READ_DIFFERENTLY,
    "http://agent.test/\xa0rpc": READ_DIFFERENTLY,
    "http://agent.test/\u2028rpc": READ_DIFFERENTLY,
    "http://agent.test/\u202erpc": READ_DIFFERENTLY,
    "http://agent.test/\ud800": READ_DIFFERENTLY,
    "http://agent\u200b.test/rpc": READ_DIFFERENTLY,
    "http://agent\xad.test/rpc": READ_DIFFERENTLY,
    "\ufeffhttp://agent.test/rpc": READ_DIFFERENTLY,
    "http://elsewhere.test\uff0fagent.test/rpc": READ_DIFFERENTLY,
    "http://elsewhere.test\uff03.agent.test/rpc": READ_DIFFERENTLY,
    "http://elsewhere.test\uff20agent.test/rpc": READ_DIFFERENTLY,
    "http://elsewhere.test\u2100agent.test/rpc": READ_DIFFERENTLY,
    "http://[agent.test/rpc": READ_DIFFERENTLY,
    "http://agent.test]/rpc": READ_DIFFERENTLY,
    "http://[::1/rpc": READ_DIFFERENTLY,
    "http://agent.test:0/rpc": NO_PORT,
    "http://agent.test:000/rpc": NO_PORT,
    "http://agent.test:-1/rpc": NO_PORT,
    "http://agent.test:+80/rpc": NO_PORT,
    "http://agent.test:8_0/rpc": NO_PORT,
    "http://agent.test:80:80/rpc": NO_PORT,
    "http://agent.test:65536/rpc": NO_PORT,
    "http://agent.test:99999999999999999999/rpc": NO_PORT,
    "http://agent.test:http/rpc": NO_PORT,
    "http://agent.test:0x50/rpc": NO_PORT,
    "http://agent.test:8\uff10/rpc": NO_PORT,
    "http://agent.test:\u0668\u0660/rpc": NO_PORT,
    "http://\u24d0gent.test/rpc": READ_DIFFERENTLY,  # IDNA makes it agent.test
    "http://agent\u3002test/rpc": READ_DIFFERENTLY,
    "http://\u0430gent.test/rpc": READ_DIFFERENTLY,  # Cyrillic
    "http://agent%2etest/rpc": READ_DIFFERENTLY,
    "http://agent.test%2f.elsewhere.test/rpc": READ_DIFFERENTLY,
    "http://agent.test%40elsewhere.test/rpc": READ_DIFFERENTLY,
    "http://agent.test%00.elsewhere.test/rpc": READ_DIFFERENTLY,
    f"http://agent.test/{'x' * 100_000}": TOO_LONG,
    f"http://{'x.' * 50_000}test/rpc": TOO_LONG,
}
OTHER_HOSTS = (
    "http://elsewhere.test/rpc",
    "http://agent.test.elsewhere.test/rpc",
    "http://agent.test./rpc",
    "http://agent.test:8080/rpc",
    "https://agent.test/rpc",
    "http://xn--agnt-epa.test/rpc",
    "http://ag\xe9nt.test/rpc",
    "http://agent.test,elsewhere.test/rpc",
    "http://agent.test;elsewhere.test/rpc",
    "http://agent.test&elsewhere.test/rpc",
    "http://agent..test/rpc",
    "http://.agent.test/rpc",
    "http://127.1/rpc",
    "http://0x7f000001/rpc",
    "http://2130706433/rpc",
    "http://169.254.169.254/latest/meta-data",
    "http://[fe80::1%25eth0]/rpc",
)
"""Addresses that can be read, but not the agent's: nothing that was given for it goes there."""


@pytest.mark.parametrize("url", GOOD_URLS, ids=ascii)
@pytest.mark.parametrize("binding", ["JSONRPC", "jsonrpc"])
def test_an_address_of_the_agent_is_called_as_it_is(url, binding):
    card = with_interfaces(interface(url=url, protocolBinding=binding))

    assert_works(used(card), url, GOOD_URLS[url])


@pytest.mark.rule("P20")
@pytest.mark.parametrize("binding", ["JSONRPC", "HTTP+JSON", "jsonrpc"])
def test_what_is_no_address_is_named_and_never_called(binding):
    for url, why in BAD_URLS.items():
        with case(url):
            card = with_interfaces(interface(), interface(url=url, protocolBinding=binding))

            outcome = used(card, bindings=["HTTP+JSON"])

            assert_names(outcome, "supportedInterfaces[1].url", why)


@pytest.mark.parametrize("url", OTHER_HOSTS, ids=ascii)
@pytest.mark.parametrize("binding", ["JSONRPC", "HTTP+JSON"])
def test_an_address_that_is_not_the_agents_gets_nothing_of_what_was_given_for_it(url, binding):
    outcome = used(with_interfaces(interface(url=url, protocolBinding=binding)))

    assert isinstance(outcome.error, CredentialOriginError)
    assert outcome.error.executed is False
    assert outcome.posted == []


@pytest.mark.parametrize(
    ("fragment", "posted"),
    [("#top", RPC), ("?key=1#top", f"{RPC}?key=1"), ("#", RPC), ("#@elsewhere.test", RPC)],
)
def test_a_fragment_is_never_sent(fragment, posted):
    """RFC 9110, 7.1: it is no part of what is asked for."""
    outcome = used(with_interfaces(interface(url=RPC + fragment)))

    assert_works(outcome, posted)


@pytest.mark.parametrize("end", ["", "/", "#top", "/#top"])
def test_an_operation_goes_behind_the_path_of_the_address(end):
    card = with_interfaces(interface(url=REST + end, protocolBinding="HTTP+JSON"))

    assert_works(used(card), f"{REST}/message:send")


@pytest.mark.parametrize(
    "url", ["http://0.0.0.0:80/rpc", "http://[::]/rpc", "http://localhost/rpc"]
)
def test_an_address_that_cannot_be_meant_is_named(url):
    card = with_interfaces(interface(protocolBinding="GRPC"), interface(url=url))

    outcome = used(card)

    assert_names(outcome, "supportedInterfaces[1].url")
    assert outcome.error.field == "supportedInterfaces[1].url"


@pytest.mark.parametrize(
    "tenant", ["..", "a/b?c#d", "\ud800", "a\r\nX: 1", "%2e%2e", "\u00e4", " "]
)
@pytest.mark.parametrize("binding", ["JSONRPC", "HTTP+JSON"])
def test_a_tenant_stays_within_the_address(tenant, binding):
    url = {"JSONRPC": RPC, "HTTP+JSON": REST}[binding]
    card = with_interfaces(interface(url=url, protocolBinding=binding, tenant=tenant))

    outcome = used(card)

    (posted,) = outcome.posted
    assert posted.startswith(url)
    assert posted.isascii()
    assert posted.isprintable()
    assert not set("?# ") & set(posted)


# ── Which interface ──────────────────────────────────────────────────────────────────────────

BROKEN_ENTRIES = {
    "null": (None, ""),
    "a number": (7, ""),
    "text": (RPC, ""),
    "an array": ([RPC], ""),
    "an empty object": ({}, ".url"),
    "no url": ({"protocolBinding": "JSONRPC"}, ".url"),
    "url null": (interface(url=None), ".url"),
    "url empty": (interface(url=""), ".url"),
    "url of another type": (interface(url=[RPC]), ".url"),
    "url relative": (interface(url="/rpc"), ".url"),
    "url that nobody reads": (interface(url="http://[", protocolBinding="GRPC"), ".url"),
    "port that is none": (interface(url="agent.test:x", protocolBinding="//x:y"), None),
    "no binding": ({"url": RPC}, ".protocolBinding"),
    "binding null": (interface(protocolBinding=None), ".protocolBinding"),
    "binding empty": (interface(protocolBinding=""), ".protocolBinding"),
    "binding of another type": (interface(protocolBinding=0), ".protocolBinding"),
    "0.3's own": ({"url": RPC, "transport": "JSONRPC"}, ".protocolBinding"),
    "snake case": ({"url": RPC, "protocol_binding": "JSONRPC"}, ".protocolBinding"),
    "version a number": (interface(protocolVersion=1), ".protocolVersion"),
    "version a fraction": (interface(protocolVersion=1.0), ".protocolVersion"),
    "tenant a number": (interface(tenant=7), ".tenant"),
}


@pytest.mark.parametrize("entry", BROKEN_ENTRIES)
@pytest.mark.parametrize("position", [0, 1, 2])
def test_a_broken_interface_is_named_also_next_to_good_ones(entry, position):
    """Which one an agent means first is its own to say: none is passed over in silence."""
    broken, member = BROKEN_ENTRIES[entry]
    interfaces = [interface(), interface(url=REST, protocolBinding="HTTP+JSON")]
    interfaces.insert(position, broken)

    outcome = used(with_interfaces(*interfaces))

    if member is None:
        assert_works(outcome, RPC)  # it is another binding's to say what an address is
    else:
        assert_names(outcome, f"supportedInterfaces[{position}]{member}")


SPOKEN_VERSIONS = ("1.0", "1", "1.0.0", "1.1", "1.99", "v1.0", "v1", " 1.0 ", "1.0-rc.1", "", None)
OTHER_VERSIONS = (
    "0",
    "0.1",
    "0.30",
    "00.3",
    "2.0",
    "2",
    "10.0",
    "11",
    "01.0",
    "-1.0",
    "1,0",
    "1e0",
    "one",
    "v",
    "latest",
    "*",
    "1\x00.0",
    "\u0661.0",
    "\uff11.0",
    "\ud800",
    "\x1b[31m1.0\r\n",
    "x" * 100_000,
)


@pytest.mark.parametrize("version", SPOKEN_VERSIONS, ids=ascii)
def test_a_version_that_is_spoken_or_missing_is_called(version):
    """Real cards leave it out; a server of another one says so (A2A 3.6)."""
    outcome = used(with_interfaces(interface(protocolVersion=version)))

    assert_works(outcome)
    assert outcome.posted == [RPC] * (1 if version else 2)  # where it is missing, one finds out


@pytest.mark.parametrize("version", OTHER_VERSIONS, ids=lambda version: ascii(version)[:20])
def test_another_version_is_not_called(version):
    outcome = used(with_interfaces(interface(protocolVersion=version)))

    assert isinstance(outcome.error, VersionNotSupportedError)
    assert (outcome.error.executed, outcome.posted) == (False, [])
    assert_works(used(with_interfaces(interface(protocolVersion=version), interface())), RPC)


@pytest.mark.parametrize(
    ("binding", "url"),
    [
        ("JSONRPC", RPC),
        ("jsonrpc", RPC),
        ("JsonRpc", RPC),
        ("HTTP+JSON", REST),
        ("http+json", REST),
        ("Http+Json", REST),
    ],
)
def test_a_binding_is_known_in_either_case(binding, url):
    """Nothing else can be meant: bindings of others are URIs (A2A 5.8)."""
    outcome = used(with_interfaces(interface(url=url, protocolBinding=binding)))

    assert_works(outcome, url if url == RPC else f"{REST}/message:send")


@pytest.mark.parametrize("binding", ["jsonrpc", "http+json"])
def test_a_caller_may_prefer_a_binding_that_the_card_writes_in_its_own_way(binding):
    first = interface(url="http://agent.test/first", protocolBinding="GRPC")
    both = interface(protocolBinding="jsonrpc"), interface(url=REST, protocolBinding="http+json")

    outcome = used(with_interfaces(first, *both), bindings=[binding.upper()])

    assert_works(outcome, {"jsonrpc": RPC, "http+json": f"{REST}/message:send"}[binding])


@pytest.mark.parametrize(
    "binding",
    [
        "GRPC",
        "grpc",
        "JSON-RPC",
        "JSONRPC ",
        "JSON",
        "REST",
        "HTTP",
        "HTTP_JSON",
        "JSONRPC\x00",
        "__class__",
        "urn:x:own",
        "https://example.com/bindings/websocket/v1",
        "\ud800",
        "\x1b]0;owned\x07\r\n",
        "x" * 100_000,
    ],
    ids=lambda binding: ascii(binding)[:20],
)
@pytest.mark.parametrize("url", [RPC, "agent.test:443", "wss://agent.test", "javascript:alert(1)"])
def test_what_another_binding_needs_is_its_own_affair(binding, url):
    other = interface(url=url, protocolBinding=binding)

    outcome = used(with_interfaces(other))

    assert isinstance(outcome.error, AgentCardResolutionError)
    assert (outcome.error.executed, outcome.posted) == (False, [])
    assert_works(used(with_interfaces(other, interface())), RPC)


def test_a_thousand_interfaces_of_which_one_is_spoken():
    others = [interface(url=f"agent.test:{n}", protocolBinding="GRPC") for n in range(1000)]

    assert_works(used(with_interfaces(*others, interface())), RPC)
    assert isinstance(used(with_interfaces(*others)).error, AgentCardResolutionError)


# ── Cards of other versions of the protocol ──────────────────────────────────────────────────

OLDER = {
    "name": "Older",
    "url": RPC,
    "preferredTransport": "JSONRPC",
    "additionalInterfaces": [{"url": RPC, "transport": "JSONRPC"}],
    "protocolVersion": "0.3.0",
    "capabilities": {"streaming": False, "stateTransitionHistory": True},
    "securitySchemes": {"key": {"type": "apiKey", "in": "header", "name": "X-Key"}},
    "security": [{"key": []}],
    "supportsAuthenticatedExtendedCard": False,
    "skills": [{"id": "echo", "name": "Echo", "tags": [], "security": [{"key": []}]}],
}
HYBRID = {**OLDER, **FULL}


@pytest.mark.parametrize(
    "members",
    [
        {},
        {"url": "http://elsewhere.test/rpc"},
        {"url": "javascript:alert(1)"},
        {"url": None, "protocolVersion": None, "additionalInterfaces": None},
        {"url": 7, "protocolVersion": 0.3, "additionalInterfaces": "none"},
        {"protocolVersion": "1.0"},
        {"protocolVersion": "\x1b" * 100_000},
        {"preferredTransport": "GRPC"},
        {"securitySchemes": OLDER["securitySchemes"]},
        {"securitySchemes": {"basic": {"type": "http", "scheme": "basic"}}},
        {"authentication": {"schemes": ["Bearer"], "credentials": None}},
    ],
    ids=str,
)
def test_of_a_card_for_both_protocols_the_newer_part_counts(members):
    assert_works(used({**HYBRID, **members}))


OLDER_CARDS = {
    "as it should be": ({}, None),
    "address null": ({"url": None}, "url"),
    "address a number": ({"url": 7}, "url"),
    "address empty": ({"url": ""}, "url"),
    "address that runs": ({"url": "javascript:alert(1)"}, "url"),
    "no version": ({"protocolVersion": ...}, None),
    "version null": ({"protocolVersion": None}, None),
    "version empty": ({"protocolVersion": ""}, None),
    "version of before": ({"protocolVersion": "0.2.6"}, None),
    "version of after": ({"protocolVersion": "1.0"}, None),
    "version a number": ({"protocolVersion": 0.3}, "protocolVersion"),
    "transport null": ({"preferredTransport": None}, None),
    "transport in small letters": ({"preferredTransport": "jsonrpc"}, None),
    "more that is none": ({"additionalInterfaces": "none"}, "additionalInterfaces"),
    "more without address": (
        {"additionalInterfaces": [{"transport": "JSONRPC"}]},
        "additionalInterfaces[0].url",
    ),
    "more without transport": (
        {"additionalInterfaces": [{"url": RPC}]},
        "additionalInterfaces[0].transport",
    ),
    "more that runs": (
        {"additionalInterfaces": [{"url": "javascript:alert(1)", "transport": "JSONRPC"}]},
        "additionalInterfaces[0].url",
    ),
    "no name": ({"name": ""}, "name"),
    "schemes that are none": ({"securitySchemes": [7]}, "securitySchemes"),
    "a scheme of no type": ({"securitySchemes": {"key": {"type": "own"}}}, None),
    "requirements of 1.0": ({"security": [{"schemes": {"key": {"list": ["a"]}}}]}, None),
    "scopes that are none": ({"security": [{"key": {"list": 7}}, {"key": None}]}, None),
    "requirements that are none": ({"security": {"key": []}}, "security"),
}


@pytest.mark.parametrize("interfaces", [..., None, []], ids=str)
@pytest.mark.parametrize("name", OLDER_CARDS)
def test_a_card_of_the_older_protocol_is_read_as_one(name, interfaces):
    members, wrong = OLDER_CARDS[name]
    document = {**OLDER, **members, "supportedInterfaces": interfaces}
    outcome = used({name: value for name, value in document.items() if value is not ...})

    if wrong is None:
        assert_works(outcome, RPC)
    else:
        assert_names(outcome, wrong)


@pytest.mark.parametrize("version", ["0.3\x1b[31m\r\n", "\ud800", "0" * 100_000, "0.1"], ids=ascii)
def test_a_card_of_an_older_protocol_yet_is_not_called(version):
    outcome = used({**OLDER, "protocolVersion": version})

    assert isinstance(outcome.error, VersionNotSupportedError)
    assert (outcome.error.executed, outcome.posted) == (False, [])


# ── What comes on the wire ───────────────────────────────────────────────────────────────────

TELLS_ITS_ENCODING = "not RFC 8259, 8.1; but it says what it is, and Windows tools write it"

READABLE = {
    "UTF-8 with a byte-order mark": (b"\xef\xbb\xbf" + TEXT.encode(), TELLS_ITS_ENCODING),
    "white space around": (f" \r\n\t{TEXT}\n\n".encode(), "RFC 8259, 2"),
    "laid out": (json.dumps(FULL, indent=4).encode(), "RFC 8259, 2"),
    "all escaped": (
        TEXT.replace("Full", "".join(f"\\u{ord(c):04x}" for c in "Full")).encode(),
        "RFC 8259, 7",
    ),
    "surrogates as UTF-8": (
        TEXT.encode().replace(b"Full", b"\xed\xa0\x80"),
        "servers send lone surrogates, and this is the other way to write one",
    ),
    "not escaped": (TEXT.replace("Full", "Gro\xdf \U0001f916").encode(), "RFC 8259, 7"),
}


def with_level(text):
    """The full card with a text in place of a number where any JSON may stand."""
    return TEXT.replace('"level": 1', f'"level": {text}').encode()


UNREADABLE = {
    "nothing": b"",
    "white space": b" \r\n",
    "NUL": b"\x00",
    "NULs": b"\x00" * 9,
    "a byte-order mark": b"\xef\xbb\xbf",
    "half a byte-order mark": b"\xff\xfe",
    "HTML": b"<!doctype html><title>Log in</title>",
    "XML": b"<?xml version='1.0'?><card/>",
    "YAML": b"name: Full\nurl: http://agent.test/rpc\n",
    "an event stream": b"data: " + TEXT.encode() + b"\n\n",
    "a guard against inclusion": b")]}'\n" + TEXT.encode(),
    "JSON with padding": b"card(" + TEXT.encode() + b");",
    "two cards": TEXT.encode() * 2,
    "something behind": TEXT.encode() + b"\x00",
    "a comment": b"/* a card */" + TEXT.encode(),
    "a comma too many": TEXT[:-1].encode() + b",}",
    "single quotes": str(FULL).encode(),
    "Python's names": b'{"name": None}',
    "Latin-1": TEXT.replace("Full", "Gro\xdf").encode("latin-1"),
    "overlong UTF-8": TEXT.encode().replace(b"Full", b"\xc0\xafull"),
    "cut UTF-8": TEXT.encode().replace(b"Full", b"Gro\xc3"),
    "a control character in a text": TEXT.encode().replace(b"Full", b"Fu\nll"),
    "compressed twice": b"\x1f\x8b\x08\x00" + bytes(range(99)),
    "NaN": with_level("NaN"),
    "Infinity": with_level("-Infinity"),
    "a number beyond all": with_level("1e999"),
    "a number of many digits": with_level("9" * 5000),
    "a number with a zero before": with_level("01"),
    "a hexadecimal number": with_level("0x10"),
    "arrays without end": with_level("[" * 100_000),
    "UTF-16": TEXT.encode("utf-16"),  # RFC 8259, 8.1: UTF-8
    "UTF-16, little end first": TEXT.encode("utf-16-le"),
    "UTF-16, big end first": TEXT.encode("utf-16-be"),
    "UTF-32": TEXT.encode("utf-32"),
    "deep arrays": with_level("[" * 100_000 + "]" * 100_000),
    "deep objects": with_level('{"a":' * 100_000 + "1" + "}" * 100_000),
    "null": b"null",
    "true": b"true",
    "a number": b"7",
    "a text": json.dumps(TEXT).encode(),
    "an array": b"[]",
    "an array of cards": f"[{TEXT}]".encode(),
}


@pytest.mark.parametrize("body", READABLE)
def test_a_card_in_another_dress_is_read(body):
    document, why = READABLE[body]

    assert_works(used(document), why=why)


def assert_is_no_card(outcome):
    error = outcome.error
    assert isinstance(error, InvalidAgentCardError)
    assert (error.field, error.http_status, error.executed) == (None, 200, False)
    assert "the agent card is " in str(error)
    assert "is JSON" not in str(error)
    assert len(str(error)) < 1000
    assert outcome.posted == []


@pytest.mark.parametrize("body", UNREADABLE)
def test_what_is_no_json_object_is_no_card(body):
    assert_is_no_card(used(UNREADABLE[body]))


@pytest.mark.rule("P26")
@pytest.mark.parametrize("length", range(1, len(TEXT), len(TEXT) // 60))
def test_a_card_that_was_cut_is_no_card(length):
    assert_is_no_card(used(TEXT[:length].encode()))


@pytest.mark.parametrize("depth", [500, 900, *range(930, 1000, 5), 2000, 5000])
def test_a_card_as_deep_as_it_can_be_is_read_or_refused(depth):
    """The same each time: what the reader takes, the rest of the client takes too."""
    network = Network(with_level("[" * depth + "]" * depth))

    async def use():
        client = connect("http://agent.test", engine=network, card_ttl=0, limits=UNLIMITED)
        for call in (client.agent_card, client.agent_card, lambda: client.ask("hello")):
            with contextlib.suppress(InvalidAgentCardError):
                await call()

    run(use())


@pytest.mark.parametrize("depth", [101, 2000, 100_000])
def test_a_card_is_no_deeper_than_the_limit(depth):
    outcome = used(with_level("[" * depth + "]" * depth), limits=Limits())

    assert isinstance(outcome.error, LimitExceededError)
    assert (outcome.error.which, outcome.error.executed) == ("json_depth", False)


def test_a_card_of_a_megabyte_is_read():
    skills = FULL["skills"] * 5_000

    assert_works(used({**FULL, "skills": skills}))
    assert_names(used({**FULL, "skills": [*skills, 7]}), "skills[5000]")


# ── Secrets ──────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "start", [{"name": TOKEN}, {TOKEN: 1}, {"name": f"Bearer {TOKEN}"}], ids=str
)
@pytest.mark.parametrize("broken", [{"supportedInterfaces": 7}, {"supportedInterfaces": []}])
def test_a_card_that_repeats_what_it_was_sent_shows_no_secret(start, broken):
    outcome = used({**start, **broken})

    assert "***" in str(outcome.error)


@pytest.mark.parametrize(
    "url",
    [
        f"http://user:{PASSWORD}@agent.test/rpc",
        f"http://{PASSWORD}@agent.test/rpc",
        f"http://a:{PASSWORD}@b:{PASSWORD}@agent.test/rpc",
        f"grpc://user:{PASSWORD}@agent.test:443",
    ],
)
def test_a_password_in_an_address_is_not_shown_with_the_beginning_of_the_card(url):
    outcome = used({"supportedInterfaces": [interface(url=url)]})

    assert_names(outcome, "name")
    assert "agent.test" in outcome.error.excerpt


# ── As a dict and as a file ──────────────────────────────────────────────────────────────────

SAMPLE = [(path, kind) for path in MEMBERS for kind in VALUES][::31]


@pytest.mark.parametrize(
    ("path", "kind"), SAMPLE, ids=lambda p: p if isinstance(p, str) else shown(p)
)
@pytest.mark.parametrize("how", ["dict", "file"])
def test_a_card_in_hand_is_judged_as_one_on_the_wire(path, kind, how, tmp_path):
    document = changed(path, VALUES[kind])
    works, why = verdict(path, VALUES[kind])
    agent = document
    if how == "file":
        agent = tmp_path / "card.json"
        agent.write_bytes(on_the_wire(document))
    before = repr(document)

    outcome = used(None, agent)

    if works:
        assert_works(outcome, why=why)
    else:
        assert_names(outcome, shown(path), why)
    assert repr(document) == before


@pytest.mark.parametrize("body", UNREADABLE)
def test_a_file_that_is_no_card_is_reported_by_its_path(body, tmp_path):
    path = tmp_path / "card.json"
    path.write_bytes(UNREADABLE[body])

    outcome = used(None, path)

    assert isinstance(outcome.error, InvalidAgentCardError)
    assert outcome.error.field is None
    assert outcome.network.requests == []


class Extending(Network):
    """An agent whose card for those who log in is another one."""

    def __init__(self, extended):
        public = {**FULL, "capabilities": {"extendedAgentCard": True}}
        super().__init__(on_the_wire(public))
        self.extended = extended

    async def request(self, request):
        if request.url.endswith("/extendedAgentCard"):
            return HttpReply(status=200, body=on_the_wire(self.extended))
        if b"GetExtendedAgentCard" in request.body:
            rpc_id = json.loads(request.body)["id"]
            result = {"jsonrpc": "2.0", "id": rpc_id, "result": self.extended}
            return HttpReply(status=200, body=on_the_wire(result))
        return await super().request(request)


@pytest.mark.parametrize(
    ("path", "kind"), SAMPLE, ids=lambda p: p if isinstance(p, str) else shown(p)
)
@pytest.mark.parametrize("binding", ["JSONRPC", "HTTP+JSON"])
async def test_an_extended_card_is_judged_alike_and_a_broken_one_replaces_nothing(
    path, kind, binding
):
    works, why = verdict(path, VALUES[kind])
    network = Extending(changed(path, VALUES[kind]))
    client = connect("http://agent.test", engine=network, bindings=[binding], limits=UNLIMITED)
    public = await client.agent_card()

    if works:
        assert await client.get_extended_agent_card() == await client.agent_card(), why
    else:
        with pytest.raises((InvalidAgentCardError, InvalidAgentResponseError)) as caught:
            await client.get_extended_agent_card()
        assert shown(path) in str(caught.value), why
        assert await client.agent_card() is public
    assert (await client.ask("hello")).text == "hello"


CYCLE = {}
CYCLE["again"] = CYCLE
NO_JSON = {
    "set": {"x"},
    "frozenset": frozenset({"x"}),
    "bytes": b"x",
    "tuple": ("x",),
    "object": object(),
    "class": dict,
    "function": len,
    "ellipsis": ...,
    "mapping": types.MappingProxyType({"x": "x"}),
    "cycle": CYCLE,
    "names that are numbers": {1: "x"},
    "names that are null": {None: "x"},
    "names that are tuples": {(1,): "x"},
    "NaN": float("nan"),
    "infinity": float("-inf"),
    "a number of many digits": 10**5000,
    "complex": 1j,
}


@pytest.mark.parametrize("path", MEMBERS[::4], ids=shown)
def test_a_dict_that_is_no_json_is_read_or_named(path):
    for kind, value in NO_JSON.items():
        with case(kind):
            outcome = used(None, changed(path, value))

            if outcome.error is None:
                assert_works(outcome)
            else:
                assert_names(outcome, shown(path))


# ── Anything anywhere ────────────────────────────────────────────────────────────────────────


def is_related(field, path):
    """Whether the one is the other, or inside of it."""
    return any(
        one == other or one.startswith((f"{other}.", f"{other}["))
        for one, other in ((field, shown(path)), (shown(path), field))
    )


@pytest.mark.rule("P26")
@given(path=st.sampled_from(MEMBERS), value=json_values, max_examples=300)
def test_any_json_anywhere_in_a_card_is_read_or_named(path, value):
    outcome = used(changed(path, value))

    match outcome.error:
        case None:
            assert_works(outcome)
        case InvalidAgentCardError(field=field):
            assert is_related(field, path)
            assert field in str(outcome.error)
        case ExtensionSupportRequiredError():  # the value has made one required
            assert path[:2] == ("capabilities", "extensions")
        case _:
            assert path[0] == "supportedInterfaces"
    if outcome.error is not None:
        assert outcome.error.executed is False
        assert outcome.posted == []


@given(path=st.sampled_from(MEMBERS), value=json_values, max_examples=60)
def test_any_json_anywhere_in_a_dict_is_judged_as_on_the_wire(path, value):
    document = changed(path, value)

    on_wire, in_hand = used(document), used(None, document)

    assert type(on_wire.error) is type(in_hand.error)
    assert getattr(on_wire.error, "field", None) == getattr(in_hand.error, "field", None)


# ── Addresses that can be read in two ways, over sockets ─────────────────────────────────────────


def card_at(url, **members):
    interface = {"url": url, "protocolBinding": "JSONRPC", "protocolVersion": "1.0", **members}
    return {"name": "Found", "supportedInterfaces": [interface]}


def answering(address, answer):
    """An agent on a raw socket whose card names an address of its own making."""

    async def script(connection):
        while (request := await connection.request()) is not None:
            if request.startswith(b"GET"):
                card = card_at(address.format(connection._server.port))
                await connection.send(reply(json.dumps(card).encode()))
            else:
                await connection.send(answer(connection._server.port))

    return script


@pytest.mark.rule("P20")
@pytest.mark.real_time
@pytest.mark.parametrize(
    "address",
    [
        "http://user:pw@127.0.0.1:{}/rpc",
        "http://127.0.0.1:{}/a\x0bb",
        "http://127.0.0.1:{}/a b",
        "http://127.0.0.1:{}\\@evil.test/",
    ],
)
async def test_an_interface_whose_address_reads_in_two_ways_is_refused(address):
    async with serve(answering(address, lambda _: b"")) as server, connect(server.url) as client:
        with pytest.raises(InvalidAgentCardError):
            await client.send_message("hello", timeout=30)


@pytest.mark.real_time
@pytest.mark.parametrize("to", ["http://u:p@127.0.0.1:{}/rpc2", "http://127.0.0.1:{}/\x0bx"])
async def test_a_redirect_whose_address_reads_in_two_ways_is_refused(to):
    def answer(port):
        return reply(b"", f"Location: {to.format(port)}", status="307 Temporary Redirect")

    script = answering("http://127.0.0.1:{}/rpc", answer)
    async with serve(script) as server, connect(server.url, auth="Bearer secret") as client:
        with pytest.raises(A2AError, match=r"not an HTTP address|cannot be read"):
            await client.send_message("hello", timeout=30)
