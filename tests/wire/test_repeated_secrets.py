"""Secrets that an agent echoes in keys, names, addresses or truncated texts are redacted."""

import json

import pytest
from tests.kit.answering_network import Answering, rpc

from holdfast import (
    A2AError,
    AuthenticationError,
    Resilience,
    RetryPolicy,
    SchemeCredentials,
    TaskFailedError,
    connect,
)
from holdfast._wire.redaction import redact
from holdfast.extend import HttpReply
from holdfast.testing import FakeAgent, FakeNetwork, Garbage, Refuse, Respond, fails
from holdfast.types import TaskPushNotificationConfig

SECRET = "s3cret-value-of-some-length"


def everything_in(error):
    facts = f"{error!r}{error}{vars(error)}"
    return facts + "".join(f"{attempt}" for attempt in error.attempts)


SPOKEN = {
    "url": "http://agent.test/rpc",
    "protocolBinding": "JSONRPC",
    "protocolVersion": "1.0",
}


@pytest.mark.rule("P27")
async def test_a_secret_contained_partly_in_a_message_is_redacted():
    token = "".join(f"{n:04x}" for n in range(40))
    echoed_text = f"{'x' * 350} {token}"  # 500 characters of it are kept, 149 of the token's 160

    def answer(request):
        data = {"detail": "no", "retryable": False}
        return rpc(request, error={"code": -32000, "message": echoed_text, "data": data})

    client = connect("http://agent.test", engine=Answering(answer), auth=f"Bearer {token}")
    with pytest.raises(A2AError) as caught:
        await client.get_task("t")

    assert token[:100] not in everything_in(caught.value)


@pytest.mark.rule("P27")
async def test_a_secret_that_is_the_key_of_a_map_is_redacted():
    token = "".join(f"{n:03x}" for n in range(15))  # 45 characters, of which 40 are kept

    class Echo(FakeNetwork):
        async def request(self, request):
            sent = request.headers["authorization"].partition(" ")[2]
            card = {
                "name": "Echo",
                "supportedInterfaces": [
                    {"url": "http://agent.test/rpc", "protocolBinding": "JSONRPC"}
                ],
                "securitySchemes": {sent: 1},
            }
            return HttpReply(status=200, body=json.dumps(card).encode())

    client = connect("http://agent.test", engine=Echo(FakeAgent()), auth=f"Bearer {token}")
    with pytest.raises(A2AError) as caught:
        await client.get_task("t")

    assert token[:36] not in everything_in(caught.value)


@pytest.mark.rule("P27")
async def test_a_secret_in_the_name_of_a_card_is_redacted(caplog):
    caplog.set_level(1)
    card = {
        "name": f"you sent {SECRET}",
        "supportedInterfaces": [SPOKEN],
        "securitySchemes": {"it": {"httpAuthSecurityScheme": {"scheme": "bearer"}}},
        "securityRequirements": [{"schemes": {"it": {"list": []}}}],
    }
    client = connect(
        "http://agent.test",
        engine=FakeNetwork(FakeAgent(card=card)),
        headers={"x-api-key": SECRET},
        auth=SchemeCredentials({"other": SECRET}),
    )
    with pytest.raises(AuthenticationError) as caught:
        await client.get_task("t")

    assert SECRET not in everything_in(caught.value)
    assert SECRET not in caplog.text


async def test_a_secret_in_the_address_of_a_card_is_redacted(caplog):
    caplog.set_level(1)
    card = {
        "name": "Echo",
        "supportedInterfaces": [
            {"url": f"http://agent.test/rpc/{SECRET}", "protocolBinding": "JSONRPC"}
        ],
    }
    client = connect(
        "http://agent.test",
        engine=Answering(lambda _: HttpReply(status=500), FakeAgent(card=card)),
        auth=f"Bearer {SECRET}",
        resilience=Resilience.off(),
    )
    with pytest.raises(A2AError) as caught:
        await client.get_task("t")

    assert SECRET not in everything_in(caught.value)
    assert SECRET not in caplog.text


async def test_a_secret_in_an_extended_card_is_redacted():
    scheme = {"it": {"httpAuthSecurityScheme": {"scheme": "bearer"}}}
    interfaces = [{"url": "http://agent.test/rpc", "protocolBinding": "JSONRPC"}]
    card = {
        "name": "Plain",
        "supportedInterfaces": interfaces,
        "capabilities": {"extendedAgentCard": True},
        "securitySchemes": scheme,
        "securityRequirements": [{"schemes": {"it": {"list": []}}}],
    }

    def answer(request):
        sent = request.headers["authorization"].partition(" ")[2]
        there = [{"url": "http://agent.test/rpc", "protocolBinding": f"for {sent}"}]
        return rpc(request, result={**card, "name": "Echo", "supportedInterfaces": there})

    client = connect(
        "http://agent.test",
        engine=Answering(answer, FakeAgent(card=card)),
        auth=SchemeCredentials({"it": SECRET}),
    )
    await client.get_extended_agent_card()
    with pytest.raises(A2AError) as caught:
        await client.get_task("t")

    assert SECRET not in everything_in(caught.value)


async def test_a_secret_in_the_reason_of_a_failed_task_is_redacted():
    client = connect(
        "http://agent.test",
        engine=FakeNetwork(FakeAgent(fails(f"upstream refused Bearer {SECRET}"))),
        auth=f"Bearer {SECRET}",
    )
    with pytest.raises(TaskFailedError) as caught:
        await client.ask("hello")

    assert SECRET not in f"{caught.value}{caught.value!r}"


async def test_the_token_of_a_push_configuration_is_redacted_in_errors():
    def answer(request):
        sent = json.loads(request.body)["params"]
        echoed_text = f"cannot use {sent['token']} and {sent['authentication']['credentials']}"
        return rpc(request, error={"code": -32602, "message": echoed_text, "data": sent})

    card = {
        "name": "Echo",
        "capabilities": {"pushNotifications": True},
        "supportedInterfaces": [SPOKEN],
    }
    config = TaskPushNotificationConfig.from_dict(
        {
            "taskId": "t",
            "url": "http://me.test/push",
            "token": SECRET,
            "authentication": {"scheme": "Bearer", "credentials": f"{SECRET}-too"},
        }
    )
    client = connect("http://agent.test", engine=Answering(answer, FakeAgent(card=card)))
    with pytest.raises(A2AError) as caught:
        await client.create_task_push_notification_config(config)

    assert SECRET not in everything_in(caught.value)


def test_the_token_of_a_push_configuration_is_not_in_its_repr():
    config = TaskPushNotificationConfig.from_dict(
        {
            "url": "http://me.test/push",
            "token": SECRET,
            "authentication": {"scheme": "Bearer", "credentials": SECRET},
        }
    )

    assert SECRET not in repr(config)


ONCE = Resilience(retry=RetryPolicy(max_retries=0))


def fake(name, behaviour="done", **options):
    return FakeAgent(behaviour, url=f"http://{name}.test", **options)


@pytest.mark.parametrize("carrier", ["http://other.test", ""])
@pytest.mark.parametrize("fault", [Refuse(), Garbage()])
async def test_a_secret_in_the_address_of_a_redirected_card_is_redacted(carrier, fault):
    token, observed, agent = "s3cr3t-token-value", [], fake("agent")
    moved = Respond(status=302, headers={"location": f"{carrier}/{token}/card.json"})
    agent.inject(moved, on="GetAgentCard")
    agent.inject(fault)
    client = connect(
        agent.url,
        engine=FakeNetwork(agent),
        auth={"authorization": token},
        resilience=ONCE,
        observers=[lambda event: observed.append(repr(event))],
    )

    with pytest.raises(A2AError) as caught:
        await client.list_tasks()

    shown_texts = [str(caught.value), repr(vars(caught.value)), *observed]
    shown_texts += [repr(client.stats()), repr(client.circuit.last_failure)]
    assert not any(token in text for text in shown_texts)


# ── Redaction of an error's data ─────────────────────────────────────────────────────────────────


def test_a_secret_that_is_echoed_as_a_key_is_redacted():
    error = A2AError("no", data={"Bearer tok-secret": {"tok-secret": 1}})

    redact(error, ["Bearer tok-secret"])

    assert error.data == {"***": {"***": 1}}


def test_data_too_large_to_search_is_omitted():
    error = A2AError("no", data=["y" * 1000] * 1000, details=[{"n": [1] * 300_000}])

    redact(error, ["Bearer tok-secret", "k" * 1000])

    shown = sum(item != "***" for item in error.data)
    assert 100 < shown < 300
    assert error.data[-1] == "***"
