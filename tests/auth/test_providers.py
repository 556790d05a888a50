"""Credentials: passed by callers, required by cards, added to requests."""

import asyncio
import base64
import json
import logging
import re
from urllib.parse import parse_qsl, quote, quote_plus, urlsplit

import httpx
import msgspec
import pytest
from hypothesis import strategies as st
from tests.kit.strategies import given

from holdfast import (
    A2AConnectionError,
    A2AError,
    A2AHTTPError,
    AgentCard,
    AiohttpEngine,
    AuthenticationError,
    DeadlineExceededError,
    SchemeCredentials,
    connect,
)
from holdfast._auth.providers import to_provider
from holdfast._wire.credentials import check_credentials, with_cookies
from holdfast._wire.http import check_headers
from holdfast.auth import AuthProvider, ClientCallContext, Credentials, StaticAuth
from holdfast.compat import A2ACardResolver, AuthInterceptor, InMemoryContextCredentialStore
from holdfast.errors import CredentialOriginError, PermissionDeniedError
from holdfast.extend import BaseLayer, Call, HttpReply, Interceptor
from holdfast.policies import Deadline
from holdfast.protocol import GET_TASK
from holdfast.testing import FakeAgent, FakeNetwork, LoopbackServer, Refuse, Respond, run
from holdfast.types import GetTaskRequest, TaskPushNotificationConfig

SECRET = "s3cret-value"
both_bindings = pytest.mark.parametrize("binding", ["JSONRPC", "HTTP+JSON"])


class Provider:
    async def credentials(self, call, /):
        return Credentials()

    async def on_unauthorized(self, call, error, /):
        return False


@pytest.mark.parametrize(
    ("auth", "headers"),
    [
        (f"Bearer {SECRET}", {"authorization": f"Bearer {SECRET}"}),
        ({"X-API-Key": SECRET}, {"x-api-key": SECRET}),
        ({"Authorization": "a", "Cookie": "b=c"}, {"authorization": "a", "cookie": "b=c"}),
    ],
)
async def test_a_header_value_or_headers_become_a_provider(auth, headers):
    provider = to_provider(auth)

    assert isinstance(provider, StaticAuth)
    assert await provider.credentials(None) == Credentials(headers=headers)
    deadline = Deadline(name="call", timeout=1, at=1)
    call = Call(
        operation=GET_TASK, params=GetTaskRequest(id="t"), request_id="r", deadline=deadline
    )
    assert await provider.on_unauthorized(call, AuthenticationError("no")) is False


def test_none_stays_none_and_a_provider_is_returned_unchanged():
    own: AuthProvider = Provider()

    assert to_provider(None) is None
    assert to_provider(own) is own


def test_a_credential_service_provides_what_the_card_requires():
    assert isinstance(to_provider(SchemeCredentials({"bearer": SECRET})), AuthInterceptor)
    assert isinstance(to_provider(InMemoryContextCredentialStore()), AuthInterceptor)


@pytest.mark.parametrize(
    "auth", [7, b"Bearer x", ["a"], object(), ("user", "password"), Provider, SchemeCredentials]
)
def test_an_invalid_auth_is_named_by_its_type(auth):
    with pytest.raises(TypeError, match=f"not {type(auth).__name__}"):
        to_provider(auth)


def test_an_auth_of_httpx_is_refused_with_what_to_pass():
    text = r'not DigestAuth, an Auth of httpx; pass .* auth="Bearer …", or an AuthProvider'
    with pytest.raises(TypeError, match=text):
        to_provider(httpx.DigestAuth("ann", "pass"))


def test_static_auth_refuses_a_single_value():
    with pytest.raises(
        TypeError, match=r"headers must be a dict, .* not str; pass one value"
    ) as caught:
        StaticAuth(f"Bearer {SECRET}")

    assert SECRET not in str(caught.value)


def test_the_repr_of_a_provider_shows_no_value():
    provider = StaticAuth({"authorization": f"Bearer {SECRET}", "x-api-key": SECRET})

    assert repr(provider) == "StaticAuth(authorization, x-api-key)"
    assert SECRET not in str(provider)


async def test_a_provider_copies_its_headers():
    headers = {"authorization": "one"}
    provider = StaticAuth(headers)
    headers["authorization"] = "two"

    assert (await provider.credentials(None)).headers == {"authorization": "one"}


@pytest.mark.parametrize(
    ("value", "says"),
    [
        ("", "the header Authorization is empty"),
        ("  ", "the header Authorization is empty"),
        ("Bearer", "the header Authorization has no token behind 'Bearer'"),
        ("Bearer  ", "the header Authorization has no token behind 'Bearer'"),
        ("basic ", "the header Authorization has no token behind 'basic'"),
        (f"Bearer {None}", "the header Authorization contains None instead of a token"),
        (f"ApiKey  {None} ", "the header Authorization contains None instead of a token"),
        (f"{None}", "the header Authorization contains None instead of a token"),
    ],
)
def test_an_authorization_without_a_token_is_refused_before_anything_is_sent(value, says):
    agent = FakeAgent()
    client = connect(agent.url, engine=FakeNetwork(agent))
    for make in (
        lambda: connect(agent.url, auth={"Authorization": value}),
        lambda: connect(agent.url, headers={"authorization": value}),
        lambda: A2ACardResolver(agent.url, headers={"authorization": value}),
        lambda: check_credentials(Credentials(headers={"Authorization": value})),
    ):
        with pytest.raises(ValueError, match=says):
            make()
    if value.strip():
        with pytest.raises(ValueError, match=says):
            connect(agent.url, auth=value)

    async def call():
        async with client:
            await client.get_task("t", headers={"Authorization": value})

    with pytest.raises(ValueError, match=says):
        run(call())
    assert agent.received == []


def test_a_missing_variable_is_named_as_the_likely_cause():
    with pytest.raises(ValueError, match="is an environment variable unset"):
        connect("http://agent.test", auth=f"Bearer {None}")


@pytest.mark.parametrize(
    ("value", "says"),
    [
        ("", "the header X-API-Key must not be empty"),
        (" ", "the header X-API-Key must not be empty"),
        (str(None), "the header X-API-Key contains None instead of a credential"),
        (f"ApiKey {None}", "the header X-API-Key contains None instead of a credential"),
    ],
)
def test_a_missing_credential_is_refused_under_any_header(value, says):
    with pytest.raises(ValueError, match=says):
        connect("http://agent.test", auth={"X-API-Key": value})
    with pytest.raises(ValueError, match=says.replace("header X-API-Key", "credential for 'key'")):
        SchemeCredentials({"key": value})


def test_empty_credentials_are_refused():
    with pytest.raises(ValueError, match="auth must not be empty; omit it to send no credentials"):
        connect("http://agent.test", auth={})
    with pytest.raises(ValueError, match="SchemeCredentials must not be empty; omit auth="):
        SchemeCredentials({})


@pytest.mark.parametrize("value", ["Bearer a", "Bearer Nonesuch", "plain", "Digest a=b, c=d"])
def test_an_authorization_of_any_other_form_is_accepted(value):
    assert check_headers({"Authorization": value}) == {"authorization": value}


def test_the_callers_dict_is_not_changed():
    headers = {"X-Any": "a"}

    check_headers(headers)["x-other"] = "b"

    assert headers == {"X-Any": "a"}


# ── Security schemes of the card ─────────────────────────────────────────────────────────────

SCHEMES = {
    "bearer": {"httpAuthSecurityScheme": {"scheme": "Bearer"}},
    "basic": {"httpAuthSecurityScheme": {"scheme": "basic"}},
    "digest": {"httpAuthSecurityScheme": {"scheme": "Digest"}},
    "header": {"apiKeySecurityScheme": {"location": "header", "name": "X-API-Key"}},
    "query": {"apiKeySecurityScheme": {"location": "query", "name": "api key"}},
    "cookie": {"apiKeySecurityScheme": {"location": "cookie", "name": "sid"}},
    "oauth": {"oauth2SecurityScheme": {"flows": {}}},
    "oidc": {"openIdConnectSecurityScheme": {"openIdConnectUrl": "https://id.test"}},
    "mtls": {"mtlsSecurityScheme": {}},
    "elsewhere": {"apiKeySecurityScheme": {"location": "body", "name": "key"}},
    "nameless": {"apiKeySecurityScheme": {"location": "header", "name": ""}},
    "framing": {"apiKeySecurityScheme": {"location": "header", "name": "Content-Length"}},
    "protocol": {"apiKeySecurityScheme": {"location": "header", "name": "A2A-Version"}},
    "crumbled": {"apiKeySecurityScheme": {"location": "cookie", "name": "a=b"}},
    "both": {"httpAuthSecurityScheme": {"scheme": "Bearer"}, "mtlsSecurityScheme": {}},
    "empty": {},
}
CREDENTIALS = {
    "bearer": "b3arer-token",
    "basic": "user:p4ss:w0rd",
    "header": "h3ader-key",
    "query": "qu3ry&key=ü",
    "cookie": "c00kie-key",
    "oauth": "0auth-token",
    "oidc": "0idc-token",
}
SUPPORTED = sorted([*CREDENTIALS, "mtls"])
UNKNOWN = sorted(SCHEMES.keys() - SUPPORTED)
NAMES = sorted([*SCHEMES, "nowhere"])
BASIC = base64.b64encode(CREDENTIALS["basic"].encode()).decode()


def guarded(*requirements, url="http://agent.test", **members):
    """Return a card with these requirements, each a list of scheme names."""
    interfaces = [
        {"url": f"{url}/{path}", "protocolBinding": binding, "protocolVersion": "1.0"}
        for path, binding in (("rpc", "JSONRPC"), ("rest", "HTTP+JSON"))
    ]
    return {
        "name": "Guarded",
        "supportedInterfaces": interfaces,
        "securitySchemes": SCHEMES,
        "securityRequirements": [
            {"schemes": {name: {"list": []} for name in names}} for names in requirements
        ],
        **members,
    }


def asking(*requirements, **options):
    """Return a fake agent with such a card."""
    return FakeAgent(card=guarded(*requirements), **options)


def connected(agent, auth, binding="JSONRPC", *, network=None, **options):
    return connect(
        agent.url, auth=auth, engine=network or FakeNetwork(agent), bindings=[binding], **options
    )


def carried(received):
    """Return the parts of a request that carry credentials."""
    names = ("authorization", "x-api-key", "cookie")
    headers = {name: received.headers[name] for name in names if name in received.headers}
    query = dict(parse_qsl(urlsplit(received.url).query))
    return headers | {name: value for name, value in query.items() if name == "api key"}


CARRIED = {
    "bearer": {"authorization": "Bearer b3arer-token"},
    "basic": {"authorization": f"Basic {BASIC}"},
    "header": {"x-api-key": "h3ader-key"},
    "query": {"api key": "qu3ry&key=ü"},
    "cookie": {"cookie": "sid=c00kie-key"},
    "oauth": {"authorization": "Bearer 0auth-token"},
    "oidc": {"authorization": "Bearer 0idc-token"},
    "mtls": {},
}


@both_bindings
@pytest.mark.parametrize("scheme", SUPPORTED)
@pytest.mark.parametrize("given_as", ["service", "provider", "interceptor"])
async def test_each_scheme_puts_its_credential_into_the_right_part_of_the_request(
    binding, scheme, given_as
):
    service = SchemeCredentials(CREDENTIALS)
    agent = asking([scheme])
    client = connected(
        agent,
        {"service": service, "provider": AuthInterceptor(service)}.get(given_as),
        binding,
        interceptors=[AuthInterceptor(service)] if given_as == "interceptor" else (),
    )

    await client.send_message("hello")
    await client.get_task("task-1")

    [card, *calls] = agent.received
    assert [carried(call) for call in calls] == [CARRIED[scheme]] * 2
    assert carried(card) == {}


@both_bindings
@pytest.mark.parametrize(
    ("requirements", "available", "chosen"),
    [
        ([["bearer"]], ["bearer", "header"], ["bearer"]),
        ([["bearer"], ["header"]], ["header"], ["header"]),
        ([["header"], ["bearer"]], ["bearer", "header"], ["header"]),
        ([["header", "query", "cookie"]], SUPPORTED, ["header", "query", "cookie"]),
        ([["bearer", "header"], ["query"]], ["bearer", "query"], ["query"]),
        ([["bearer", "header"], ["query"]], ["bearer", "header"], ["bearer", "header"]),
        ([["mtls", "header"]], ["header"], ["header"]),
        ([["mtls"], ["header"]], ["header"], ["header"]),
        ([["mtls"], ["header"]], [], []),
        ([[], ["header"]], ["header"], ["header"]),
        ([[], ["header"]], [], []),
        ([["nowhere"], ["digest"], ["header"]], ["nowhere", "digest", "header"], ["header"]),
        ([["header", "nowhere"], ["mtls"]], ["header", "nowhere"], []),
        ([["bearer", "basic"], ["header"]], SUPPORTED, ["header"]),
        ([], SUPPORTED, []),
        ([[]], SUPPORTED, []),
    ],
)
async def test_the_first_requirement_with_all_credentials_is_used(
    binding, requirements, available, chosen
):
    agent = asking(*requirements)
    available = {name: CREDENTIALS.get(name, "any-credential") for name in (*available, "unasked")}

    await connected(agent, SchemeCredentials(available), binding).send_message("hello")

    expected = {}
    for name in chosen:
        expected |= CARRIED[name]
    assert carried(agent.received[-1]) == expected


async def test_two_schemes_may_need_the_same_value_in_the_same_header():
    agent = asking(["oauth", "oidc"])

    await connected(agent, SchemeCredentials({"oauth": "same", "oidc": "same"})).ask("hello")

    assert carried(agent.received[-1]) == {"authorization": "Bearer same"}


@both_bindings
@pytest.mark.parametrize(
    ("requirements", "available", "named", "says"),
    [
        ([["bearer"]], [], (["bearer"], ["bearer"]), "there is no credential for 'bearer'"),
        (
            [["bearer", "header"], ["query"]],
            ["header"],
            (["bearer", "header", "query"], ["bearer", "query"]),
            "requires 'bearer' and 'header', or 'query'",
        ),
        (
            [["nowhere"]],
            SUPPORTED,
            (["nowhere"], []),
            "'nowhere' is not declared in the card",
        ),
        *(
            (
                [[name]],
                SUPPORTED,
                ([name], []),
                f"{name!r} is of an unsupported kind",
            )
            for name in UNKNOWN
        ),
        (
            [["header", "nowhere"]],
            ["header"],
            (["header", "nowhere"], []),
            "'nowhere' is not declared",
        ),
        ([["bearer", "basic"]], SUPPORTED, (["bearer", "basic"], []), "exclude each other"),
    ],
)
async def test_an_unsatisfied_requirement_is_named_and_nothing_is_sent(
    binding, requirements, available, named, says
):
    agent = asking(*requirements)
    service = SchemeCredentials({n: CREDENTIALS.get(n, "x") for n in (*available, "unasked")})

    with pytest.raises(AuthenticationError) as caught:
        await connected(agent, service, binding).send_message("hello")

    error = caught.value
    assert says in str(error)
    assert (error.schemes, error.missing) == tuple(map(tuple, named))
    assert (error.executed, error.transient, error.http_status) == (False, False, None)
    assert len(error.attempts) == 1
    assert [received.operation for received in agent.received] == ["GetAgentCard"]
    assert not any(value in str(error) for value in CREDENTIALS.values())


class RecordingService:
    """A credential service that records each request; it has every credential."""

    def __init__(self, credentials=CREDENTIALS):
        self.known_credentials = credentials
        self.requests = []

    async def get_credentials(self, scheme, context):
        self.requests.append((scheme, context))
        return self.known_credentials.get(scheme)


async def test_a_service_is_asked_only_for_required_schemes():
    service = RecordingService({"header": "x", "query": "y", "bearer": "z"})
    agent = asking(["nowhere", "basic"], ["oauth", "header"], ["header", "query"], ["bearer"])

    await connected(agent, service).send_message("hello")

    assert [scheme for scheme, _ in service.requests] == ["oauth", "header", "query"]


async def test_a_service_is_asked_for_each_attempt_with_the_context_of_the_call():
    service, agent = RecordingService(), asking(["header"])
    agent.inject(Refuse(), on="SendMessage", times=2)
    context = ClientCallContext(state={"sessionId": "s"})

    await connected(agent, service).send_message("hello", context=context)

    assert service.requests == [("header", context)] * 3


async def test_the_context_is_passed_to_the_service_for_every_operation():
    service, context = RecordingService(), ClientCallContext(state={"sessionId": "s"})
    agent = asking(["header"])
    agent.card["capabilities"] = {"pushNotifications": True, "extendedAgentCard": True}
    client = connected(agent, service)
    await client.send_message("hello", context=context)
    await client.ask("hello", context=context)
    config = await client.create_task_push_notification_config(
        TaskPushNotificationConfig(task_id="task-1", url="http://me.test"), context=context
    )
    await client.get_task_push_notification_config("task-1", config.id, context=context)
    await client.list_task_push_notification_configs("task-1", context=context)
    await client.delete_task_push_notification_config("task-1", config.id, context=context)
    await client.get_task("task-1", context=context)
    await client.list_tasks(context=context)
    assert [task.id async for task in client.iter_tasks(context=context)]
    await client.wait("task-1", context=context)
    with pytest.raises(A2AError):
        await client.cancel_task("task-1", context=context)
    await client.call(GET_TASK, GetTaskRequest(id="task-1"), context=context)
    await client.get_extended_agent_card(context=context)

    assert len(service.requests) == 13
    assert {context_received is context for _, context_received in service.requests} == {True}


def test_contexts_share_no_state():
    first, second = ClientCallContext(), ClientCallContext()
    first.state["sessionId"] = "s"

    assert second.state == {}


@pytest.mark.parametrize("context", [7, "s", {"sessionId": "s"}])
async def test_a_context_must_be_a_client_call_context(context):
    with pytest.raises(TypeError, match="context must be ClientCallContext"):
        await connected(FakeAgent(), None).ask("hello", context=context)


@pytest.mark.parametrize("answer", [7, b"token", ["token"]])
async def test_a_credential_must_be_text(answer):
    with pytest.raises(TypeError, match="the credential for 'header' must be a string"):
        await connected(asking(["header"]), RecordingService({"header": answer})).ask("hello")


@pytest.mark.parametrize(
    ("scheme", "credential"),
    [
        ("bearer", "Bearer s3cret-value"),
        ("bearer", "s3cret-value\n"),
        ("bearer", "s3cret-välue"),
        ("oauth", '"s3cret-value"'),
        ("oauth", "Bearer "),
        ("bearer", "bearer"),
        ("oidc", "s3cret-value; x"),
        ("basic", "s3cret-value"),
        ("basic", "us\ner:s3cret-value"),
        ("basic", "user:s3cret-value\ud800"),
        ("header", "s3cret-value\r\nX-Other: y"),
        ("header", "s3cret-value\u2028"),
        ("cookie", "s3cret-value; admin=1"),
        ("cookie", "s3cret value"),
        ("cookie", 's3cret-value"'),
        ("query", "s3cret-value\ud800"),
    ],
)
async def test_a_malformed_credential_is_named_and_not_shown(scheme, credential):
    agent = asking([scheme], ["mtls"])

    with pytest.raises(AuthenticationError) as caught:
        await connected(agent, SchemeCredentials({scheme: credential})).ask("hello")

    assert re.search(f"the credential for '{scheme}' is (no|the name)", str(caught.value))
    assert "s3cret" not in f"{caught.value!r}{vars(caught.value)}{caught.value.__cause__}"
    assert (caught.value.executed, caught.value.schemes) == (False, (scheme,))
    assert agent.calls("SendMessage") == []


@given(
    requirements=st.lists(st.lists(st.sampled_from(NAMES), max_size=3), max_size=4),
    available=st.sets(st.sampled_from(NAMES)),
    max_examples=300,
)
def test_requirements_are_alternatives_of_combined_schemes(requirements, available):
    credentials = {name: CREDENTIALS.get(name, "any-token") for name in available}
    card = AgentCard.from_dict(guarded(*requirements))

    def headers_of(names):
        return [next(iter(CARRIED[name]), None) for name in names if name != "mtls"]

    def is_met(names):
        needed = [name for name in names if name != "mtls"]
        used_headers = headers_of(set(names) & CARRIED.keys())
        return (
            set(names) <= set(SUPPORTED)
            and available >= set(needed)
            and len(used_headers) == len(set(used_headers))
        )

    satisfiable = [set(names) for names in requirements if is_met(names)]
    best = next(
        (names for names in satisfiable if names - {"mtls"}),
        satisfiable[0] if satisfiable else None,
    )
    call = Call(
        operation=GET_TASK,
        params=GetTaskRequest(id="t"),
        request_id="r",
        deadline=Deadline(name="call", timeout=1, at=1),
        card=card,
    )
    choosing = AuthInterceptor(SchemeCredentials({**credentials, "unasked": "x"})).credentials(
        call
    )

    if best is None and requirements:
        with pytest.raises(AuthenticationError) as caught:
            run(choosing)
        requested_schemes = dict.fromkeys(name for names in requirements for name in names)
        assert caught.value.schemes == tuple(requested_schemes)
        assert not set(caught.value.missing) & available
        assert set(caught.value.missing) <= set(SUPPORTED)
    else:
        expected = {}
        for name in best or ():
            expected |= CARRIED[name]
        outcome = run(choosing)
        cookies = {"cookie": with_cookies("", outcome.cookies)} if outcome.cookies else {}
        assert {**outcome.headers, **outcome.query, **cookies} == expected


# ── Sessions ─────────────────────────────────────────────────────────────────────────────────


def context_of(session):
    return ClientCallContext(state={"sessionId": session})


async def test_a_store_keeps_sessions_apart_until_they_are_forgotten():
    store, agent = InMemoryContextCredentialStore(), asking(["header"])
    client = connected(agent, store)
    for session in ("one", "two"):
        await store.set_credentials(session, "header", f"key-of-{session}")
    await store.set_credentials("two", "header", "newer-key-of-two")

    await asyncio.gather(*(client.ask("hi", context=context_of(s)) for s in ("one", "two")))

    keys = [call.headers["x-api-key"] for call in agent.calls("SendMessage")]
    assert sorted(keys) == ["key-of-one", "newer-key-of-two"]
    await store.forget_session("one")
    await store.forget_session("never there")
    for context in (
        context_of("one"),
        context_of("three"),
        context_of(7),
        ClientCallContext(),
        None,
    ):
        with pytest.raises(AuthenticationError) as caught:
            await client.ask("hi", context=context)
        assert caught.value.missing == ("header",)
    assert (await client.ask("hi", context=context_of("two"))).text == "hi"


@pytest.mark.parametrize("which", [0, 1, 2])
async def test_a_store_refuses_empty_values(which):
    arguments = ["session", "scheme", SECRET]
    arguments[which] = ""
    with pytest.raises(ValueError, match="must not be empty") as caught:
        await InMemoryContextCredentialStore().set_credentials(*arguments)
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize(
    ("credentials", "error"),
    [
        ({"a": ""}, ValueError),
        ({"": SECRET}, ValueError),
        ({"a": 7}, TypeError),
        (SECRET, TypeError),
    ],
)
def test_scheme_credentials_must_be_a_mapping_of_strings(credentials, error):
    with pytest.raises(error) as caught:
        SchemeCredentials(credentials)
    assert SECRET not in str(caught.value)


async def test_the_repr_of_all_holders_shows_no_credential():
    store = InMemoryContextCredentialStore()
    await store.set_credentials("session-of-ann", "bearer", SECRET)
    service = SchemeCredentials({"bearer": SECRET})
    credentials = Credentials(
        headers={"authorization": SECRET}, query={"key": SECRET}, cookies={"sid": SECRET}
    )
    context = ClientCallContext(state={"sessionId": SECRET})

    assert repr(store) == "InMemoryContextCredentialStore(1 sessions)"
    assert repr(service) == "SchemeCredentials(bearer)"
    assert repr(AuthInterceptor(service)) == "AuthInterceptor(SchemeCredentials)"
    assert repr(context) == "ClientCallContext(sessionId)"
    assert repr(credentials) == "Credentials(headers=[authorization], query=[key], cookies=[sid])"


# ── One source of credentials ────────────────────────────────────────────────────────────────


def test_a_second_source_of_credentials_is_refused():
    first = AuthInterceptor(SchemeCredentials({"a": SECRET}))
    for options in (
        {"auth": "Bearer x", "interceptors": [first]},
        {"interceptors": [first, AuthInterceptor(SchemeCredentials({"b": SECRET}))]},
    ):
        with pytest.raises(ValueError, match="pass credentials as auth= or in one"):
            connect("http://agent.test", engine=FakeNetwork(), **options)


@pytest.mark.parametrize("service", [None, object(), SchemeCredentials, "Bearer x"])
def test_an_auth_interceptor_needs_a_service(service):
    with pytest.raises(TypeError, match="credential_service must "):
        AuthInterceptor(service)


# ── Origins ──────────────────────────────────────────────────────────────────────────────────


@pytest.mark.rule("P01")
@pytest.mark.parametrize("scheme", ["bearer", "header", "query", "cookie"])
@pytest.mark.parametrize("given_as", ["auth", "interceptor"])
async def test_no_scheme_sends_credentials_to_another_origin(scheme, given_as):
    agent = FakeAgent(card=guarded([scheme], url="http://elsewhere.test"))
    elsewhere = FakeAgent(url="http://elsewhere.test")
    service = RecordingService()
    options = (
        {"auth": service} if given_as == "auth" else {"interceptors": [AuthInterceptor(service)]}
    )
    network = FakeNetwork(agent, elsewhere)

    with pytest.raises(CredentialOriginError):
        await connect(agent.url, engine=network, **options).ask("hello")
    assert (elsewhere.received, service.requests) == ([], [])

    origins = ["http://elsewhere.test"]
    client = connect(agent.url, engine=network, credential_origins=origins, **options)
    await client.ask("hello")
    assert carried(elsewhere.received[-1]) == CARRIED[scheme]


@pytest.mark.rule("P01")
@pytest.mark.parametrize("how", ["dict", "file"])
async def test_credentials_of_a_given_card_are_bound_to_its_first_interface(how, tmp_path):
    document = guarded(["query"])
    document["supportedInterfaces"][1]["url"] = "http://elsewhere.test/rest"
    agent, elsewhere = FakeAgent(), FakeAgent(url="http://elsewhere.test")
    path = tmp_path / "card.json"
    path.write_text(json.dumps(document))
    named = document if how == "dict" else path
    options = {"auth": SchemeCredentials(CREDENTIALS), "engine": FakeNetwork(agent, elsewhere)}

    assert (await connect(named, bindings=["JSONRPC"], **options).ask("hello")).text == "hello"
    with pytest.raises(CredentialOriginError):
        await connect(named, bindings=["HTTP+JSON"], **options).ask("hello")

    assert carried(agent.received[0]) == CARRIED["query"]
    assert elsewhere.received == []


async def test_the_extended_card_determines_the_credentials():
    public = guarded(["header"], capabilities={"extendedAgentCard": True})
    extended = AgentCard.from_dict(guarded(["bearer"]))
    agent = FakeAgent(card=public)

    class Extending(FakeNetwork):
        async def request(self, request):
            if b"GetExtendedAgentCard" not in request.body:
                return await super().request(request)
            reply = {"jsonrpc": "2.0", "id": json.loads(request.body)["id"]}
            body = json.dumps({**reply, "result": extended.to_dict()}).encode()
            requested.append(request.headers)
            return await Answering(body).request(request)

    requested = []
    client = connected(agent, SchemeCredentials(CREDENTIALS), network=Extending(agent))
    await client.ask("hello")
    await client.get_extended_agent_card()
    await client.ask("hello")

    first, second = agent.calls("SendMessage")
    assert (carried(first), carried(second)) == (CARRIED["header"], CARRIED["bearer"])
    assert requested[0]["x-api-key"] == CREDENTIALS["header"]


class Answering:
    """Answers every request with one body."""

    def __init__(self, body, status=200, headers=None):
        self.reply = HttpReply(status=status, headers=headers or {}, body=body)

    async def request(self, request):
        return self.reply


@pytest.mark.rule("P03")
@both_bindings
async def test_a_call_with_a_key_in_the_query_follows_no_redirect_to_another_origin(binding):
    agent, elsewhere = asking(["query"]), FakeAgent(url="http://elsewhere.test")
    location = "http://elsewhere.test/rpc"
    agent.inject(Respond(status=307, headers={"location": location}), on="SendMessage")
    network = FakeNetwork(agent, elsewhere)
    client = connected(agent, SchemeCredentials(CREDENTIALS), binding, network=network)

    with pytest.raises(A2AHTTPError, match="was not followed: it leads to another origin"):
        await client.ask("hello")

    assert elsewhere.received == []


async def test_a_card_request_with_a_key_in_the_query_follows_no_redirect_to_another_origin():
    class KeyInQuery(Provider):
        async def credentials(self, call, /):
            return Credentials(query={"key": SECRET})

    agent, elsewhere = FakeAgent(), FakeAgent(url="http://elsewhere.test")
    location = f"http://elsewhere.test/.well-known/agent-card.json?key={SECRET}"
    agent.inject(Respond(status=307, headers={"location": location}), on="GetAgentCard")

    with pytest.raises(A2AHTTPError, match="was not followed") as caught:
        await connected(agent, KeyInQuery(), network=FakeNetwork(agent, elsewhere)).agent_card()

    assert SECRET not in f"{caught.value!r}{vars(caught.value)}"
    assert elsewhere.received == []
    assert (await connected(agent, KeyInQuery()).agent_card()).name
    assert urlsplit(agent.received[-1].url).query == f"key={SECRET}"


# ── Credentials in the request ───────────────────────────────────────────────────────────────


async def test_a_cookie_is_added_to_those_of_the_caller():
    agent = asking(["cookie"])
    client = connected(agent, SchemeCredentials(CREDENTIALS), headers={"Cookie": "lang=en; sid=x"})

    await client.ask("hello")

    assert agent.received[-1].headers["cookie"] == "lang=en; sid=c00kie-key"


@both_bindings
async def test_a_key_in_the_query_replaces_a_parameter_of_its_name(binding):
    document = guarded(["query"])
    for offered in document["supportedInterfaces"]:
        offered["url"] += "?a=1&api%20key=old&b=%2F&api+key=older"
    agent = FakeAgent(card=document)

    await connected(agent, SchemeCredentials(CREDENTIALS), binding).send_message("hello")

    query = urlsplit(agent.received[-1].url).query
    assert query == f"a=1&b=%2F&api%20key={quote(CREDENTIALS['query'], safe='')}"


@pytest.mark.parametrize(
    ("credentials", "error"),
    [
        ({"x-api-key": SECRET}, TypeError),
        (None, TypeError),
        (Credentials(headers={"x": f"{SECRET}\n"}), ValueError),
        (Credentials(query={"": SECRET}), ValueError),
        (Credentials(query={"key": f"{SECRET}\ud800"}), ValueError),
        (Credentials(cookies={"a b": SECRET}), ValueError),
        (Credentials(cookies={"sid": f"{SECRET};"}), ValueError),
    ],
)
async def test_invalid_credentials_of_a_provider_are_refused_and_not_shown(credentials, error):
    class Wrong(Provider):
        async def credentials(self, call, /):
            return credentials

    agent = FakeAgent()
    with pytest.raises(error) as caught:
        await connected(agent, Wrong()).ask("hello")

    assert SECRET not in str(caught.value)
    assert agent.received == []
    with pytest.raises(error):
        check_credentials(credentials)


# ── After a 401 ──────────────────────────────────────────────────────────────────────────────


class Renewing(RecordingService):
    """A service that returns a new token after so many calls."""

    def __init__(self, *tokens):
        super().__init__()
        self.tokens = list(tokens)

    async def get_credentials(self, scheme, context):
        await super().get_credentials(scheme, context)
        return self.tokens.pop(0) if len(self.tokens) > 1 else self.tokens[0]


@both_bindings
async def test_a_401_is_replayed_if_the_service_has_another_credential(binding):
    agent = asking(["bearer"], token="new")

    await connected(agent, Renewing("old", "new"), binding).send_message("hello")

    sent = [call.headers["authorization"] for call in agent.calls("SendMessage")]
    assert sent == ["Bearer old", "Bearer new"]
    assert {len(attempts) for attempts in agent.executions.values()} == {1}


@both_bindings
@pytest.mark.parametrize("then", ["old", None])
async def test_a_401_is_final_if_the_service_has_no_other_credential(binding, then):
    agent = asking(["bearer"], token="new")

    with pytest.raises(AuthenticationError) as caught:
        await connected(agent, Renewing("old", then), binding).send_message("hello")

    assert (caught.value.http_status, caught.value.schemes) == (401, ())
    assert len(agent.calls("SendMessage")) == 1


DIGEST = "the HTTP credential 'digest' (scheme 'Digest')"
KEY = "the API key 'header' (header 'X-API-Key')"


OR_A_PROVIDER = ", or a provider such as holdfast.auth.oauth.ClientCredentials(…)"


def pass_auth(*names):
    shown_headers = ", ".join(f"{name!r}: …" for name in names)
    return f": pass auth=SchemeCredentials({{{shown_headers}}})"


@both_bindings
@pytest.mark.parametrize(
    ("requirements", "says"),
    [
        ([["bearer"]], f"the bearer token 'bearer'{pass_auth('bearer')}"),
        ([["basic"]], f"the user and password 'basic'{pass_auth('basic')}"),
        ([["header"]], f"{KEY}{pass_auth('header')}"),
        ([["query"]], f"the API key 'query' (query 'api key'){pass_auth('query')}"),
        ([["oauth"]], f"the OAuth 2.0 token 'oauth'{pass_auth('oauth')}{OR_A_PROVIDER}"),
        ([["oidc"]], f"the OpenID Connect token 'oidc'{pass_auth('oidc')}"),
        ([["mtls"]], "the client certificate 'mtls'"),
        ([["digest"]], DIGEST),
        ([["empty"]], "'empty', of an unsupported kind"),
        ([["both"]], "'both', of an unsupported kind"),
        ([["elsewhere"]], "'elsewhere', of an unsupported kind"),
        ([["nowhere"]], "'nowhere', which the card does not declare"),
        (
            [["digest"], [], ["bearer", "header"]],
            f"{DIGEST}, or the bearer token 'bearer' and {KEY}{pass_auth('bearer', 'header')}",
        ),
        (
            [["mtls", "bearer"]],
            f"the client certificate 'mtls' and the bearer token 'bearer'{pass_auth('bearer')}",
        ),
    ],
)
async def test_a_401_without_auth_names_what_the_card_requires(binding, requirements, says):
    agent = asking(*requirements, token=SECRET)

    with pytest.raises(AuthenticationError) as caught:
        await connected(agent, None, binding).send_message("hello")

    assert caught.value.message.endswith(f"agent 'Guarded' requires {says}")
    assert caught.value.http_status == 401
    named = dict.fromkeys(name for names in requirements for name in names)
    assert caught.value.schemes == tuple(named)
    assert set(caught.value.missing) == set(named) & CREDENTIALS.keys()


@pytest.mark.parametrize("requirements", [(), ([],)])
async def test_a_401_names_the_schemes_that_a_card_declares_without_requiring_them(requirements):
    schemes = {"b": SCHEMES["bearer"], "h": SCHEMES["header"]}
    agent = FakeAgent(card=guarded(*requirements, securitySchemes=schemes), token=SECRET)

    with pytest.raises(AuthenticationError) as caught:
        await connected(agent, None).send_message("hello")

    assert caught.value.message.endswith(
        "agent 'Guarded' declares the bearer token 'b', or the API key 'h' (header 'X-API-Key')"
        f"{pass_auth('b')}"
    )


async def test_the_error_of_a_401_has_one_line_for_any_card():
    odd = "a\nb\x1b[2J"
    schemes = {
        f"s{odd}": {"httpAuthSecurityScheme": {"scheme": odd}},
        f"k{odd}": {"apiKeySecurityScheme": {"location": odd, "name": odd}},
        f"h{odd}": {"apiKeySecurityScheme": {"location": "query", "name": odd}},
    }
    agent = FakeAgent(card=guarded(name=odd, securitySchemes=schemes), token=SECRET)

    with pytest.raises(AuthenticationError) as caught:
        await connected(agent, None).send_message("hello")

    assert "declares" in caught.value.message
    assert caught.value.message.isprintable()


async def test_a_401_without_requirements_says_that_no_credentials_were_sent():
    agent = FakeAgent(card=guarded(securitySchemes={}), token=SECRET)

    with pytest.raises(AuthenticationError) as caught:
        await connected(agent, None).send_message("hello")

    assert caught.value.message.endswith("; no credentials were sent: pass auth=")
    assert caught.value.schemes == ()


@pytest.mark.parametrize("name", ["Authorization", "X-My-Token", "Cookie"])
async def test_a_401_without_requirements_counts_headers_that_may_be_credentials(name):
    agent = FakeAgent(card=guarded(securitySchemes={}), token=SECRET)

    with pytest.raises(AuthenticationError) as caught:
        await connected(agent, None, headers={name: "wrong=1"}).send_message("hello")

    assert "no credentials" not in caught.value.message


@pytest.mark.parametrize(
    ("requirements", "headers", "says"),
    [
        ([], {}, "; no credentials were sent: pass auth="),
        ([["bearer"]], {}, f"; no credentials were sent{pass_auth('bearer')}"),
        ([["mtls"]], {}, "; no credentials were sent"),
        ([["bearer"]], {"Authorization": "Bearer x"}, " Forbidden"),
        ([], {"X-API-Key": "x"}, " Forbidden"),
    ],
)
async def test_a_403_says_whether_credentials_were_sent(requirements, headers, says):
    agent = asking(*requirements) if requirements else FakeAgent()
    agent.inject(Respond(status=403), on="SendMessage")

    with pytest.raises(PermissionDeniedError) as caught:
        await connected(agent, None, headers=headers).send_message("hello")

    assert caught.value.message.endswith(says)


@pytest.mark.parametrize("status", [401, 403])
@pytest.mark.parametrize(
    ("schemes", "says"),
    [
        ({}, "the card of agent 'Guarded' declares no security schemes"),
        ({"b": SCHEMES["bearer"]}, "the card of agent 'Guarded' requires none"),
    ],
)
async def test_unused_credentials_are_named_in_the_error(status, schemes, says):
    agent = FakeAgent(card=guarded(securitySchemes=schemes))
    agent.inject(Respond(status=status), on="SendMessage", times=9)

    with pytest.raises((AuthenticationError, PermissionDeniedError)) as caught:
        await connected(agent, SchemeCredentials({"b": SECRET})).send_message("hello")

    assert caught.value.message.endswith(f"; no credentials of auth were sent: {says}")


@pytest.mark.parametrize("name", ["Authorization", "X-API-Key", "Cookie"])
async def test_a_401_with_custom_headers_does_not_advise_to_pass_them(name):
    agent = asking(["bearer"], token=SECRET)

    with pytest.raises(AuthenticationError) as caught:
        await connected(agent, None, headers={name: "Bearer wrong=1"}).send_message("hello")

    assert caught.value.message.endswith(
        f"requires the bearer token 'bearer', and did not accept the header {name.lower()}"
    )
    assert (caught.value.schemes, caught.value.missing) == (("bearer",), ())


NO_SCHEME = "; the Authorization header has no scheme: pass 'Bearer <token>'"


@pytest.mark.parametrize(
    "options",
    [
        {"auth": {"AUTHORIZATION": SECRET}},
        {"headers": {"Authorization": SECRET}},
    ],
)
@pytest.mark.parametrize("answer", ["401", "403"])
async def test_a_401_for_a_token_without_a_scheme_names_the_scheme_and_not_the_token(
    options, answer
):
    agent = asking(["bearer"])
    agent.inject(Respond(status=int(answer)), on="SendMessage", times=9)

    with pytest.raises((AuthenticationError, PermissionDeniedError)) as caught:
        await connected(agent, **{"auth": None, **options}).send_message("hello")

    assert caught.value.message.endswith(NO_SCHEME) == (answer == "401")
    assert SECRET not in str(caught.value)


def test_a_token_without_a_scheme_is_refused_before_anything_is_sent():
    with pytest.raises(ValueError, match=r'auth has no scheme; pass auth="Bearer …"') as caught:
        connect("https://agent.example", auth=SECRET)

    assert SECRET not in str(caught.value)


@pytest.mark.parametrize("name", ["auth", "headers"])
async def test_an_api_key_in_the_authorization_header_needs_no_scheme(name):
    key = {"raw": {"apiKeySecurityScheme": {"location": "header", "name": "Authorization"}}}
    agent = FakeAgent(card=guarded(["raw"], securitySchemes=key), token="other")

    client = connected(agent, **{"auth": None, name: {"Authorization": SECRET}})
    with pytest.raises(AuthenticationError) as caught:
        await client.send_message("hello")

    assert "scheme" not in caught.value.message


async def test_a_401_with_scheme_credentials_keeps_the_agents_message():
    auth = SchemeCredentials({"bearer": "wrong"})
    with pytest.raises(AuthenticationError) as caught:
        await connected(asking(["bearer"], token=SECRET), auth).send_message("hello")

    assert "requires" not in caught.value.message


@both_bindings
@pytest.mark.parametrize(
    ("auth", "says", "missing"),
    [
        ("Bearer wrong", ", and did not accept the header authorization", ()),
        ({"Authorization": "Bearer wrong"}, ", and did not accept the header authorization", ()),
        ({"bearer": "wrong"}, ": pass auth=SchemeCredentials({'bearer': …})", ("bearer",)),
    ],
)
async def test_a_401_with_static_auth_names_what_the_card_requires(auth, says, missing, binding):
    with pytest.raises(AuthenticationError) as caught:
        await connected(asking(["bearer"], token=SECRET), auth, binding).send_message("hello")

    assert caught.value.message.endswith(f"requires the bearer token 'bearer'{says}")
    assert (caught.value.schemes, caught.value.missing) == (("bearer",), missing)
    assert "wrong" not in caught.value.message


async def test_a_401_with_static_auth_and_no_requirements_does_not_say_that_nothing_was_sent():
    agent = FakeAgent(card=guarded(securitySchemes={}), token=SECRET)

    with pytest.raises(AuthenticationError) as caught:
        await connected(agent, {"bearer": "wrong"}).send_message("hello")

    assert "no credentials" not in caught.value.message


async def test_on_unauthorized_receives_the_refused_call():
    refusals = []

    class Telling(Provider):
        async def credentials(self, call, /):
            return Credentials(headers={"authorization": "Bearer old"}, query={"key": "value"})

        async def on_unauthorized(self, call, error, /):
            refusals.append((call.headers["authorization"], dict(call.query), error.http_status))
            return False

    with pytest.raises(AuthenticationError):
        await connected(FakeAgent(token="new"), Telling()).send_message("hello")

    assert refusals == [("Bearer old", {"key": "value"}, 401)]


async def test_a_401_within_a_provider_is_not_the_agents():
    class Refused(Provider):
        async def credentials(self, call, /):
            if call.card is None:
                return Credentials()
            raise AuthenticationError("the token's server says no", http_status=401)

        async def on_unauthorized(self, call, error, /):
            raise AssertionError("nobody refused the call")

    agent = FakeAgent()
    with pytest.raises(AuthenticationError, match="the token's server says no") as caught:
        await connected(agent, Refused()).send_message("hello")

    assert (caught.value.executed, agent.calls("SendMessage")) == (False, [])


@pytest.mark.parametrize(
    ("failure", "attempts"),
    [
        (A2AConnectionError("hung up", failure="refused", transient=True), 4),
        (A2AConnectionError("hung up", failure="refused"), 1),
        (KeyError("a vault of its own"), 1),
    ],
)
async def test_a_failing_service_fails_the_attempt_before_anything_is_sent(failure, attempts):
    class Failing(RecordingService):
        async def get_credentials(self, scheme, context):
            await super().get_credentials(scheme, context)
            raise failure

    service, agent = Failing(), asking(["bearer"])
    with pytest.raises(type(failure)) as caught:
        await connected(agent, service).send_message("hello")

    assert len(service.requests) == attempts
    assert agent.calls("SendMessage") == []
    if isinstance(caught.value, A2AError):
        assert caught.value.executed is False


async def test_a_hanging_service_ends_at_the_deadline():
    class Hanging(RecordingService):
        async def get_credentials(self, scheme, context):
            await asyncio.sleep(1000)

    with pytest.raises(DeadlineExceededError) as caught:
        await connected(asking(["bearer"]), Hanging()).send_message("hello", timeout=5)

    assert (asyncio.get_running_loop().time(), caught.value.executed) == (5, False)


# ── Echoed secrets ───────────────────────────────────────────────────────────────────────────

ECHOED = {
    "as it is": lambda secret: secret,
    "base64": lambda secret: base64.b64encode(secret.encode()).decode(),
    "base64 for URLs": lambda secret: base64.urlsafe_b64encode(secret.encode()).decode(),
    "percent": lambda secret: quote(secret, safe=""),
    "percent, with slashes": quote,
    "form": quote_plus,
    "JSON": lambda secret: json.dumps(secret)[1:-1],
}


@both_bindings
@pytest.mark.parametrize("scheme", sorted(CREDENTIALS))
@pytest.mark.parametrize("spelling", ECHOED)
async def test_an_echoed_credential_is_redacted_everywhere(binding, scheme, spelling, caplog):
    caplog.set_level(logging.DEBUG)
    secret = {"basic": "p4ss/w+0rd~?ü", "query": "s3cret/ü value?"}.get(scheme, "s3cret/Valu+")
    if scheme == "cookie":
        secret = "s3cret/Valu?"
    credential = f"user:{secret}" if scheme == "basic" else secret
    echo = ECHOED[spelling](secret)
    agent, observed, calls = asking([scheme]), [], []

    class Peeking(BaseLayer):
        async def unary(self, call, /):
            calls.append(repr(call))
            return await super().unary(call)

    for body in (f"you sent {echo}!", json.dumps({"error": {"code": 400, "message": echo}})):
        agent.inject(Respond(status=400, body=body.encode()), on="SendMessage")
    client = connected(
        agent,
        SchemeCredentials({scheme: credential}),
        binding,
        observers=[observed.append],
        attempt_layers=[Peeking],
    )

    for _ in range(2):
        with pytest.raises(A2AError) as caught:
            await client.send_message("hello")
        shown = f"{caught.value!r}{vars(caught.value)}{caught.value.args}{observed}{calls}"
        assert echo[:6] not in shown + caplog.text
        assert secret[:6] not in shown + caplog.text
        assert "***" in shown


async def test_a_failed_connection_does_not_show_the_query():
    agent = asking(["query"])
    agent.inject(Refuse(), on="SendMessage", times=9)

    with pytest.raises(A2AError) as caught:
        await connected(agent, SchemeCredentials(CREDENTIALS)).send_message("hello")

    shown = f"{caught.value!r}{vars(caught.value)}"
    assert "qu3ry" not in shown
    assert "api" not in shown


async def test_an_echoed_cookie_of_the_caller_is_redacted():
    agent = FakeAgent()
    agent.inject(Respond(status=400, body=b"your session s3cr is old"))

    with pytest.raises(A2AError) as caught:
        await connected(agent, None, headers={"Cookie": "a=b; sid=s3cr; c=d"}).ask("hello")

    assert caught.value.excerpt == "your session *** is old"


class Adding(Interceptor):
    """Adds a query parameter to the address of each call."""

    async def before(self, call):
        return msgspec.structs.replace(call, query={"key": SECRET})


@both_bindings
async def test_a_query_that_an_interceptor_adds_is_treated_like_a_header(binding):
    agent = FakeAgent()
    agent.inject(Respond(status=400, body=f"you sent {SECRET}".encode()), on="GetTask")
    client = connected(agent, None, binding, interceptors=[Adding()])

    await client.send_message("hello")
    with pytest.raises(A2AError) as caught:
        await client.get_task("task-1")

    assert [urlsplit(call.url).query for call in agent.received[1:]] == [f"key={SECRET}"]
    assert SECRET not in f"{caught.value!r}{vars(caught.value)}"
    agent.card = guarded(url="http://elsewhere.test")
    with pytest.raises(CredentialOriginError):
        await connected(agent, None, binding, interceptors=[Adding()]).ask("hello")


# ── Several clients on one engine ────────────────────────────────────────────────────────────


async def two_clients(engine, first, two):
    """Have two clients call each tenant of their agents in turn, all on one engine."""
    async with asyncio.timeout(20):
        clients = [
            connect(
                url,
                engine=engine,
                tenant=tenant,
                bindings=["HTTP+JSON"],
                auth=SchemeCredentials(
                    {name: f"{name}-of-{tenant}" for name in ("header", "cookie", "query")}
                ),
            )
            for url in (first, two)
            for tenant in ("ann", "bob")
        ]
        for _ in range(3):
            await asyncio.gather(*(client.list_tasks() for client in clients))


def assert_apart(agent):
    calls = agent.calls("ListTasks")
    assert len(calls) == 6
    for call in calls:
        tenant = urlsplit(call.url).path.split("/")[2]
        assert call.headers["x-api-key"] == f"header-of-{tenant}"
        assert call.headers["cookie"] == f"cookie=cookie-of-{tenant}".replace("cookie=", "sid=", 1)
        assert dict(parse_qsl(urlsplit(call.url).query))["api key"] == f"query-of-{tenant}"


@pytest.mark.rule("P17")
async def test_clients_and_tenants_on_one_network_share_nothing():
    urls = ("http://one.test", "http://two.test")
    agents = [
        FakeAgent(card=guarded(["header", "cookie", "query"], url=url), url=url) for url in urls
    ]

    await two_clients(FakeNetwork(*agents), *urls)

    for agent in agents:
        assert_apart(agent)


@pytest.mark.rule("P17")
@pytest.mark.real_time
async def test_clients_and_tenants_on_one_real_engine_share_nothing():
    agents = [FakeAgent(), FakeAgent()]
    engine = AiohttpEngine(proxies=False)
    async with LoopbackServer(agents[0]) as first, LoopbackServer(agents[1]) as two:
        for agent, server in zip(agents, (first, two), strict=True):
            agent.card = guarded(["header", "cookie", "query"], url=server.url)
        await two_clients(engine, first.url, two.url)
        await engine.close()

    for agent in agents:
        assert_apart(agent)
