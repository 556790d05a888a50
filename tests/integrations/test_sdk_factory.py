"""What `client_factory` and `HoldfastTransport` take: each option is honoured or refused."""

import json

import httpx
import pytest
from a2a.client import ClientConfig, ClientFactory
from a2a.client.client import ClientCallContext
from a2a.client.errors import A2AClientError, A2AClientTimeoutError, AgentCardResolutionError
from a2a.types import a2a_pb2 as pb
from a2a.utils.errors import InvalidParamsError
from tests.kit.sdk_clients import (
    Own,
    card_of,
    client_of,
    collected,
    now,
    said,
    text_of,
    transport_of,
)
from tests.kit.virtual_env import Dice

import holdfast
from holdfast import BudgetPolicy, Resilience, RetryPolicy, connect
from holdfast.extend import BaseLayer, Endpoints
from holdfast.integrations.a2a_sdk import (
    CallFailedError,
    CallTimeoutError,
    HoldfastTransport,
    RetryConfig,
    RetryTransport,
    SharedBudget,
    client_factory,
)
from holdfast.integrations.httpx import Transport
from holdfast.observe import RetryScheduled
from holdfast.testing import (
    Cut,
    FakeAgent,
    FakeNetwork,
    Refuse,
    Reset,
    Respond,
    Stall,
    streams,
    unavailable,
)

both_bindings = pytest.mark.parametrize("binding", ["JSONRPC", "HTTP+JSON"])


def own_factory(**options):
    """A factory of clients over a transport that fails the first two times."""
    config = ClientConfig(supported_protocol_bindings=["OWN"])
    factory = client_factory(config, env=Dice(), **options)
    factory.register("OWN", Own)
    return factory


OWN_CARD = pb.AgentCard(
    name="a", supported_interfaces=[pb.AgentInterface(url="own://a", protocol_binding="OWN")]
)


# ── What of a RetryConfig ────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "make", [client_factory, lambda **given: transport_of(FakeAgent(), **given)]
)
async def test_a_budget_that_transports_share_is_refused_where_it_would_not_be(make):
    with pytest.raises(
        ValueError, match=r"SharedBudget alone has no effect.*pass the same shared=Endpoints"
    ):
        make(retry_config=RetryConfig(budget=SharedBudget()))


async def test_transports_that_share_what_is_known_share_their_budget():
    agent, shared = FakeAgent(), Endpoints()
    agent.inject(unavailable(), times=99)
    budget = SharedBudget(BudgetPolicy(tokens=6))
    config = RetryConfig(max_retries=2, base_delay=0, budget=budget)
    tries = []
    for _ in range(2):
        transport = transport_of(agent, retry_config=config, shared=shared)
        with pytest.raises(CallFailedError) as caught:
            await transport.get_task(pb.GetTaskRequest(id="t"))
        tries.append(len(caught.value.attempts))

    assert tries[0] > tries[1] == 1


@both_bindings
@pytest.mark.parametrize(("resends", "times"), [(True, 2), (False, 1)])
async def test_a_push_config_is_created_again_only_where_the_caller_says_so(
    resends, times, binding
):
    agent = FakeAgent()
    config = RetryConfig(resend_ambiguous=resends)
    transport = transport_of(agent, binding, retry_config=config)
    task = (await transport.send_message(said())).task
    agent.inject(Reset(after_execution=True), on="CreateTaskPushNotificationConfig")
    request = pb.TaskPushNotificationConfig(task_id=task.id, id="p", url="https://me.test/hook")

    if resends:
        created = await transport.create_task_push_notification_config(request)
        assert created.url == request.url
    else:
        with pytest.raises(CallFailedError):
            await transport.create_task_push_notification_config(request)

    assert len(agent.calls("CreateTaskPushNotificationConfig")) == times


# ── What of a Resilience, where the transport is not Holdfast's ──────────────────────────────


@pytest.mark.parametrize(
    ("resilience", "named"),
    [
        (Resilience(retry=RetryPolicy(backoff_factor=3)), "retry.backoff_factor"),
        (Resilience(retry=RetryPolicy(jitter=False)), "retry.jitter"),
        (Resilience(retry=RetryPolicy(retry_predicate=bool)), "retry.retry_predicate"),
        (Resilience(retry=RetryPolicy(on_retry=print)), "retry.on_retry"),
        (Resilience(refusals=frozenset({429})), "refusals"),
    ],
)
async def test_what_another_transport_cannot_follow_is_said_once_one_is_made(resilience, named):
    factory = own_factory(resilience=resilience)

    with pytest.raises(ValueError, match=rf"resilience has {named}, .*pass retry_config="):
        factory.create(OWN_CARD)

    agent = FakeAgent()
    client_factory(resilience=resilience, engine=FakeNetwork(agent)).create(card_of(agent))
    factory.register("OWN", lambda *given: RetryTransport(Own(*given)))
    factory.create(OWN_CARD)


async def test_of_a_resilience_the_numbers_hold_for_other_transports():
    resilience = Resilience(retry=RetryPolicy(max_retries=1, base_delay=0))
    with pytest.raises(A2AClientTimeoutError):
        await own_factory(resilience=resilience).create(OWN_CARD).get_task(pb.GetTaskRequest())


# ── Errors of layers ─────────────────────────────────────────────────────────────────────────


class Faulty(BaseLayer):
    """A layer with a fault in it."""

    def handle(self, call, call_next, /):
        raise ValueError("a fault in a layer")


@pytest.mark.parametrize("where", ["call_layers", "attempt_layers"])
async def test_a_fault_in_a_layer_is_no_word_of_the_agent(where):
    transport = transport_of(FakeAgent(), **{where: [Faulty]})

    with pytest.raises(ValueError, match="a fault in a layer"):
        await transport.send_message(said())


async def test_what_has_no_path_is_the_callers_to_mend():
    transport = transport_of(FakeAgent(), "HTTP+JSON")
    with pytest.raises(InvalidParamsError):
        await transport.get_task(pb.GetTaskRequest())
    with pytest.raises(InvalidParamsError):
        await transport.delete_task_push_notification_config(
            pb.DeleteTaskPushNotificationConfigRequest(task_id="t")
        )


# ── What a factory registers ─────────────────────────────────────────────────────────────────


@pytest.fixture
def without_the_hook(monkeypatch):
    """The SDK's factory, whose private method has another name."""
    register = ClientFactory._register_defaults
    begin = ClientFactory.__init__

    def renamed(self, config=None):
        hook = type(self).__dict__.get("_register_defaults")
        with pytest.MonkeyPatch.context() as patch:
            if hook is not None:
                patch.delattr(type(self), "_register_defaults")
            patch.setattr(ClientFactory, "_register_defaults", register, raising=False)
            begin(self, config)

    monkeypatch.setattr(ClientFactory, "__init__", renamed)
    monkeypatch.delattr(ClientFactory, "_register_defaults")


@pytest.mark.usefixtures("without_the_hook")
@both_bindings
async def test_a_factory_needs_nothing_that_is_private_to_the_sdk(binding):
    agent = FakeAgent()
    config = ClientConfig(supported_protocol_bindings=[binding])
    client = client_factory(config, engine=FakeNetwork(agent)).create(card_of(agent, binding))

    assert isinstance(client._transport, HoldfastTransport)


async def test_a_copy_whose_bindings_are_registered_anew_holds_fast():
    agent = FakeAgent()
    factory = client_factory(engine=FakeNetwork(agent))
    factory._registry = {}
    factory._register_defaults(["HTTP+JSON"])
    factory._config = ClientConfig(supported_protocol_bindings=["HTTP+JSON"])

    assert isinstance(factory.create(card_of(agent))._transport, HoldfastTransport)


# ── What of a lent client ────────────────────────────────────────────────────────────────────


async def test_borrowed_client_without_limits_has_those_of_the_call():
    agent = FakeAgent()
    agent.inject(Stall(), times=9)
    async with httpx.AsyncClient(timeout=None) as lent:
        config = ClientConfig(httpx_client=lent)
        transport = transport_of(agent, config=config, retry_config=RetryConfig(timeout=2000))
        with pytest.raises(A2AClientTimeoutError):
            await transport.get_task(pb.GetTaskRequest(id="t"))

    assert len(agent.pending_faults) == 8
    assert now() == 2000


# ── How long a stream may take to begin ──────────────────────────────────────────────────────

bounded = pytest.mark.parametrize(
    "bound", [{"retry_config": RetryConfig(timeout=8)}, {"timeout": 8}], ids=["config", "option"]
)


@both_bindings
@bounded
async def test_the_time_of_a_call_bounds_a_stream_up_to_its_first_event(bound, binding):
    agent = FakeAgent()
    agent.inject(Stall(), on="SendStreamingMessage")
    client = client_of(agent, binding, **bound)

    with pytest.raises(CallTimeoutError) as caught:
        await collected(client.send_message(said()))

    assert now() == 8
    assert (caught.value.executed, len(caught.value.attempts)) == (None, 1)


@both_bindings
@bounded
async def test_the_search_for_a_lost_reply_is_within_it(bound, binding):
    agent = FakeAgent()
    agent.inject(Reset(), on="SendStreamingMessage")
    client = client_of(agent, binding, **bound)

    with pytest.raises(CallFailedError) as caught:
        await collected(client.send_message(said()))

    assert now() == 8
    assert (caught.value.executed, caught.value.message_id) == (None, "m-1")


@both_bindings
@bounded
async def test_a_stream_that_has_begun_continues_for_as_long_as_it_likes(bound, binding):
    agent = FakeAgent(streams("Hello, ", "world", "!", every=20.0))
    agent.inject(Cut(after_events=3), on="SendStreamingMessage")
    client = client_of(agent, binding, **bound)

    assert text_of(await collected(client.send_message(said()))) == "Hello, world!"
    assert now() > 40
    assert len(agent.calls("SubscribeToTask")) == 1

    again = said()
    again.message.message_id = "m-2"
    assert text_of(await collected(client.send_message(again))) == "Hello, world!"
    assert len(agent.calls("SubscribeToTask")) == 1  # nothing was cut after 8 seconds


@both_bindings
@bounded
async def test_a_subscription_is_bounded_in_the_same_way(bound, binding):
    agent = FakeAgent(streams("Hello, ", "world", "!", every=20.0))
    transport = transport_of(agent, binding, **bound)
    configuration = pb.SendMessageConfiguration(return_immediately=True)
    sent = await transport.send_message(said(configuration=configuration))
    request = pb.SubscribeToTaskRequest(id=sent.task.id)

    assert text_of(await collected(transport.subscribe(request))) == "Hello, world!"
    began = now()
    agent.inject(unavailable(), times=99)
    with pytest.raises(A2AClientError):
        await collected(transport.subscribe(request))
    assert now() - began <= 8


# ── Cards ────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("fault", "status", "transient"),
    [(Refuse(), None, True), (Respond(status=404), 404, False), (unavailable(), 503, True)],
)
async def test_the_error_of_a_card_has_holdfasts_error_as_its_cause(fault, status, transient):
    agent = FakeAgent()
    agent.inject(fault, on="GetAgentCard", times=99)

    def reply(request):
        if status is None:
            raise httpx.ConnectError("refused", request=request)
        return httpx.Response(status)

    transport = httpx.MockTransport(reply)
    for carrying in (transport, Transport(engine=FakeNetwork(agent))):
        async with httpx.AsyncClient(transport=carrying) as http:
            factory = client_factory(ClientConfig(httpx_client=http), engine=FakeNetwork(agent))
            with pytest.raises(AgentCardResolutionError) as caught:
                await factory.create_from_url(agent.url)
        cause = caught.value.__cause__
        assert isinstance(cause, holdfast.AgentCardResolutionError)
        assert (cause.executed, cause.transient) == (False, transient)
        assert (cause.http_status, cause.agent) == (status, agent.url)
        assert isinstance(cause.__cause__, httpx.HTTPError)


# ── Options that are wrong ───────────────────────────────────────────────────────────────────

WRONG_NAMES = [
    ({"max_retries": 3}, r"did you mean retry_config=RetryConfig\(max_retries=3\)\?"),
    ({"on_retry": print}, r"did you mean retry_config=RetryConfig\(on_retry=…\)\?"),
    ({"observer": []}, "did you mean 'observers'"),
    ({"interceptors": []}, "is not an option of"),
    ({"auth": 3}, "auth"),
    ({"retry_config": 3}, "retry_config must be RetryConfig, not int"),
    ({"env": 3}, "env"),
]
makers = pytest.mark.parametrize(
    "make",
    [
        lambda **given: client_factory(ClientConfig(), **given),
        lambda **given: HoldfastTransport(card_of(FakeAgent()), "http://a.test", **given),
    ],
    ids=["factory", "transport"],
)


@makers
@pytest.mark.parametrize(("given", "told"), WRONG_NAMES)
async def test_an_option_that_is_none_is_reported_at_once_with_what_was_meant(make, given, told):
    with pytest.raises(TypeError, match=told):
        make(**given)


@makers
@pytest.mark.parametrize("given", [{"timeout": -1}, {"on_unknown": "never"}])
async def test_impossible_value_is_reported_at_once(make, given):
    with pytest.raises(ValueError, match=next(iter(given))):
        make(**given)


async def test_a_journal_is_not_opened_before_there_is_something_to_write(tmp_path):
    client_factory(journal=tmp_path / "calls.db")

    assert [*tmp_path.iterdir()] == []


@pytest.mark.parametrize(
    ("config", "kind"),
    [
        (
            holdfast.compat.ClientConfig(),
            "holdfast.compat.ClientConfig; pass the ClientConfig of the official SDK.* engine=",
        ),
        (httpx.AsyncClient(), r"httpx.AsyncClient; pass ClientConfig\(httpx_client=…\)"),
        ("http://a.test", "str"),
        ({}, "dict"),
        (pb.AgentCard(), "AgentCard"),
    ],
)
async def test_another_configuration_is_distinguished_from_the_sdks(config, kind):
    told = rf"config must be a2a\.client\.ClientConfig, not .*{kind}$"
    with pytest.raises(TypeError, match=told):
        client_factory(config)
    with pytest.raises(TypeError, match=told):
        HoldfastTransport(pb.AgentCard(), "http://a.test", config)


async def test_factory_given_a_card_of_holdfast_says_what_to_pass():
    card = holdfast.AgentCard(name="a")
    told = r"not holdfast\.types\.AgentCard; pass .*to_proto\(card, a2a\.types\.AgentCard\)"
    with pytest.raises(TypeError, match=told):
        client_factory().create(card)


@pytest.mark.parametrize(
    ("operation", "request_", "told"),
    [
        ("get_task", "t-1", "not str; pass a request with this id"),
        ("get_task", holdfast.Task(id="t-1"), r"not holdfast\.types\.Task; pass .* with its id"),
        (
            "create_task_push_notification_config",
            holdfast.types.TaskPushNotificationConfig(url="http://me.test"),
            r"pass holdfast.*to_proto\(…, a2a\.types\.TaskPushNotificationConfig\)",
        ),
    ],
)
async def test_client_given_a_request_of_another_library_says_what_to_pass(
    operation, request_, told
):
    client = client_of(FakeAgent())
    with pytest.raises(
        TypeError, match=f"request must be a request of the official SDK, .*{told}"
    ):
        await getattr(client, operation)(request_)


@pytest.mark.parametrize(
    ("make", "advice"),
    [
        (client_of, "give client_factory the option auth=SchemeCredentials({'bearer': …})"),
        (transport_of, "give HoldfastTransport the option auth=SchemeCredentials({'bearer': …})"),
    ],
)
async def test_errors_that_advise_an_option_name_what_takes_it(make, advice):
    agent = FakeAgent(token="t0ken")
    card = card_of(agent, "JSONRPC")
    card.security_schemes["bearer"].http_auth_security_scheme.scheme = "bearer"
    card.security_requirements.add().schemes["bearer"].SetInParent()
    client = make(agent, card=card) if make is client_of else None
    if client is None:
        network = FakeNetwork(agent)
        client = HoldfastTransport(card, f"{agent.url}/rpc", engine=network, env=Dice())

    with pytest.raises(CallFailedError) as caught:
        await client.list_tasks(pb.ListTasksRequest())

    assert advice in str(caught.value)
    assert ": pass auth=SchemeCredentials" in str(caught.value.__cause__)


async def test_the_arguments_of_the_sdks_own_transports_are_distinguished_from_these():
    card = pb.AgentCard(name="a")
    async with httpx.AsyncClient() as lent:
        with pytest.raises(TypeError, match=r"not httpx\.AsyncClient; pass a client as Client"):
            HoldfastTransport(lent, card, "http://a.test")
    with pytest.raises(TypeError, match=r"url must be str, not a2a_pb2\.AgentCard"):
        HoldfastTransport(card, card)


@pytest.mark.parametrize("url", ["localhost:9871/rpc", "agent.test"])
async def test_a_card_with_a_wrong_address_is_the_sdks_error_and_names_it(url):
    interface = pb.AgentInterface(url=url, protocol_binding="JSONRPC")
    card = pb.AgentCard(name="a", supported_interfaces=[interface])

    with pytest.raises(AgentCardResolutionError, match=url) as caught:
        client_factory().create(card)

    assert isinstance(caught.value.__cause__, holdfast.A2AError)


# ── Who is told of retries ───────────────────────────────────────────────────────────────────


@both_bindings
@pytest.mark.parametrize("streaming", [True, False])
async def test_only_retries_of_what_was_asked_for_are_reported(streaming, binding):
    agent = FakeAgent()
    send = "SendStreamingMessage" if streaming else "SendMessage"
    agent.inject(unavailable(1), on=send)
    agent.inject(Reset(after_execution=True), on=send)
    agent.inject(unavailable(1), on="ListTasks")
    told, seen = [], []
    config = RetryConfig(on_retry=lambda *given: told.append(given))
    client = client_of(
        agent, binding, streaming=streaming, retry_config=config, observers=[seen.append]
    )

    await collected(client.send_message(said()))

    assert [number for number, _, _ in told] == [1]
    assert len([one for one in seen if isinstance(one, RetryScheduled)]) == 2


# ── What goes along with a call ──────────────────────────────────────────────────────────────


async def test_a_layer_of_the_callers_sees_the_tenant_and_the_limits_of_the_call():
    seen = []

    class Looking(BaseLayer):
        def handle(self, call, call_next, /):
            seen.append((call.operation.name, call.params.tenant, call.timeouts.idle))
            return call_next(call)

    agent = FakeAgent()
    agent.inject(Reset(after_execution=True), on="SendMessage")
    transport = transport_of(agent, call_layers=[Looking], attempt_layers=[Looking])
    context = ClientCallContext(timeout=500)

    await transport.send_message(said(tenant="acme"), context=context)

    assert {name for name, _, _ in seen} >= {"SendMessage", "ListTasks"}
    assert {(tenant, idle) for _, tenant, idle in seen} == {("acme", 500)}


async def test_a_call_of_holdfasts_own_client_names_a_tenant_and_limits_too():
    agent = FakeAgent()
    agent.inject(Stall())
    async with connect(agent.url, engine=FakeNetwork(agent)) as client:
        await client.list_tasks(tenant="acme")
        with pytest.raises(ValueError, match="tenant must not be empty"):
            await client.list_tasks(tenant="")
        with pytest.raises(TypeError, match="timeouts must be Timeouts"):
            await client.list_tasks(timeouts=3)

    assert json.loads(agent.received[-1].body)["params"]["tenant"] == "acme"


@pytest.mark.parametrize(("version", "names"), [("1.0", 1), ("0.3", 2)])
async def test_extensions_that_a_caller_wrote_by_hand_have_the_names_of_the_version(
    version, names
):
    agent = FakeAgent(versions=(version,))
    options = {"protocol_version": version, "headers": {"A2A-Extensions": "urn:one, urn:two"}}
    async with connect(agent.url, engine=FakeNetwork(agent), **options) as client:
        await client.send_message("hi")

    headers = agent.received[-1].headers
    found = [headers[name] for name in ("a2a-extensions", "x-a2a-extensions") if name in headers]
    assert found == ["urn:one, urn:two"] * names


async def test_a_retry_config_stands_for_the_retries_of_a_borrowed_client():
    below = httpx.AsyncHTTPTransport(retries=3)
    async with httpx.AsyncClient(transport=below) as lent:
        config = ClientConfig(httpx_client=lent)
        with pytest.raises(ValueError, match=r"has transport=AsyncHTTPTransport\(retries=3\)"):
            client_factory(config).create(card_of(FakeAgent()))
        client_factory(config, retry_config=RetryConfig()).create(card_of(FakeAgent()))


async def test_what_httpx_does_by_itself_comes_along_unseen(monkeypatch):
    monkeypatch.delenv("SSL_CERT_FILE", raising=False)
    async with httpx.AsyncClient(verify=True, base_url="http://a.test") as lent:
        config = ClientConfig(httpx_client=lent)
        client_factory(config).create(card_of(FakeAgent()))


# ── What the SDK does itself ─────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("name", ["card_verifier", "require_signature", "signature_verifier"])
@pytest.mark.parametrize("make", [client_factory, transport_of])
def test_options_for_signatures_are_refused_with_the_parameter_of_the_sdk(make, name):
    given = {name: True}
    arguments = () if make is client_factory else (FakeAgent(),)
    with pytest.raises(TypeError, match=r"pass signature_verifier=a2a\.utils\.signing\."):
        make(*arguments, **given)


def test_an_unknown_option_of_client_factory_lists_retry_config():
    with pytest.raises(TypeError, match="client_factory; did you mean 'retry_config'"):
        client_factory(retries=3)
    with pytest.raises(TypeError, match=r"client_factory; there are retry_config, "):
        client_factory(colour=3)


async def test_a_setting_of_httpx_is_refused_before_the_card_is_fetched():
    fetched = []

    def fetch(request):
        fetched.append(request.url)
        return httpx.Response(404)

    async with httpx.AsyncClient(transport=httpx.MockTransport(fetch)) as client:
        factory = client_factory(ClientConfig(httpx_client=client))
        with pytest.raises(ValueError, match=r"transport=MockTransport\(…\).* pass engine="):
            await factory.create_from_url("http://agent.test")
        assert fetched == []
        factory.register("JSONRPC", Own)
        with pytest.raises(AgentCardResolutionError):
            await factory.create_from_url("http://agent.test")
        assert fetched
