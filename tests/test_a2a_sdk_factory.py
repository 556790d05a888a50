"""What `client_factory` and `HoldfastTransport` take: each option is honoured or refused."""

import asyncio

import httpx
import pytest
from a2a.client import ClientConfig, ClientFactory
from a2a.client.errors import A2AClientTimeoutError
from a2a.types import a2a_pb2 as pb
from a2a.utils.errors import InvalidParamsError
from tests.test_a2a_sdk_transport import (
    Own,
    card_of,
    said,
    transport_of,
)
from tests.test_layers import Dice

from holdfast import BudgetPolicy, Endpoints, PassThrough, Resilience, RetryPolicy
from holdfast.integrations.a2a_sdk import (
    CallFailedError,
    HoldfastTransport,
    RetryConfig,
    RetryTransport,
    SharedBudget,
    client_factory,
)
from holdfast.testing import FakeAgent, FakeNetwork, Reset, Stall, unavailable

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
    with pytest.raises(ValueError, match=r"SharedBudget has no effect.*pass shared=Endpoints"):
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


class Faulty(PassThrough):
    """A layer with a fault in it."""

    def through(self, call, onward, /):
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


async def test_who_lent_a_client_without_limits_still_has_those_of_the_call():
    agent = FakeAgent()
    agent.inject(Stall(), times=9)
    async with httpx.AsyncClient(timeout=None) as lent:
        config = ClientConfig(httpx_client=lent)
        transport = transport_of(agent, config=config, retry_config=RetryConfig(timeout=2000))
        with pytest.raises(A2AClientTimeoutError):
            await transport.get_task(pb.GetTaskRequest(id="t"))

    assert len(agent.pending_faults) == 8
    assert asyncio.get_running_loop().time() == 2000
