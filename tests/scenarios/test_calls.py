"""What hurt users of other clients, by the names of the scenarios, in virtual time."""

import asyncio
import json
import random
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

import pytest
from tests.kit.effort import crossed, rounds

from holdfast import (
    A2AHTTPError,
    AgentCard,
    AuthenticationError,
    DeadlineExceededError,
    Message,
    OutcomeUnknownError,
    RateLimitedError,
    Resilience,
    RetryPolicy,
    Role,
    TaskFailedError,
    TaskState,
    connect,
    data_part,
    text_part,
)
from holdfast import protocol as op
from holdfast.errors import (
    CancelUnconfirmedError,
    CredentialOriginError,
    PermissionDeniedError,
)
from holdfast.extend import HttpReply
from holdfast.testing import (
    Delay,
    FakeAgent,
    FakeNetwork,
    Refuse,
    Respond,
    bad_gateway,
    completes,
    fails,
    rate_limited,
    run,
    works_forever,
)
from holdfast.types import AgentInterface, SendMessageRequest

both_bindings = pytest.mark.parametrize("binding", ["JSONRPC", "HTTP+JSON"])
both_ways = pytest.mark.parametrize("streaming", [True, False], ids=["streams", "polls"])
SENDS = {True: "SendStreamingMessage", False: "SendMessage"}


class Recorded(FakeNetwork):
    """Keeps every request, those that no agent sees included; a page is served as it is."""

    def __init__(self, *agents, pages=None, **options):
        super().__init__(*agents, **options)
        self.requests = []
        self.pages = pages or {}

    async def request(self, request):
        page = self.pages.get(request.url)
        if page is None:
            return await super().request(request)
        self.requests.append(request)
        return page(request) if callable(page) else page

    def stream(self, request):  # which every request goes through that an agent is to answer
        self.requests.append(request)
        return super().stream(request)


def connected(agent, binding, *, network=None, **options):
    return connect(agent.url, engine=network or FakeNetwork(agent), bindings=(binding,), **options)


def now():
    return asyncio.get_running_loop().time()


def message_ids(agent):
    found = []
    for received in agent.calls("SendMessage") + agent.calls("SendStreamingMessage"):
        body = json.loads(received.body)
        found.append(body.get("params", body)["message"]["messageId"])
    return found


@pytest.mark.rule("S01")
@both_bindings
async def test_s01_a_first_byte_after_ten_seconds_is_awaited(binding):
    agent = FakeAgent(latency=10)
    client = connected(agent, binding)
    await client.agent_card()
    began = now()

    task = await client.send_message("hello")

    assert task.state is TaskState.COMPLETED
    assert now() - began == 10


@pytest.mark.rule("S06")
@both_bindings
async def test_s06_refused_connections_cost_one_task_and_are_listed(binding):
    agent = FakeAgent()
    agent.inject(Refuse(), on="SendMessage", times=2)
    client = connected(agent, binding)
    message = Message(message_id="m-1", role=Role.USER, parts=(text_part("hello"),))

    reply = await client.call(op.SEND_MESSAGE, SendMessageRequest(message=message))

    assert [attempt.number for attempt in reply.attempts] == [1, 2, 3]
    assert all("refused" in attempt.error for attempt in reply.attempts[:2])
    assert all(attempt.wait is not None for attempt in reply.attempts[:2])
    assert reply.attempts[2].error is None
    assert list(agent.tasks) == [reply.value.task.id]
    assert agent.executions == {"m-1": [reply.value.task.id]}


@pytest.mark.rule("S07")
async def test_s07_a_rate_limited_card_is_waited_for():
    agent = FakeAgent()
    agent.inject(rate_limited(retry_after=30), on="GetAgentCard")

    card = await connect(agent.url, engine=FakeNetwork(agent)).agent_card()

    assert card.name == "Fake agent"
    assert 30 <= now() <= 31


@pytest.mark.rule("S07")
async def test_s07_a_forbidden_card_fails_at_once():
    agent = FakeAgent()
    agent.inject(Respond(status=403, body=b"members only"), on="GetAgentCard")
    network = Recorded(agent)

    with pytest.raises(PermissionDeniedError) as caught:
        await connect(agent.url, engine=network).agent_card()

    assert (caught.value.http_status, caught.value.excerpt) == (403, "members only")
    assert (now(), len(network.requests)) == (0, 1)


@pytest.mark.rule("S10")
@both_bindings
async def test_s10_a_failed_task_without_artifacts_raises_with_reason_and_task(binding):
    agent = FakeAgent(lambda _turn: fails("no such city", after=3))

    with pytest.raises(TaskFailedError, match="no such city") as caught:
        await connected(agent, binding).ask("how is the weather in Atlantis?")

    assert caught.value.task == agent.tasks["task-1"]
    assert caught.value.executed is True


@pytest.mark.rule("S13")
@both_bindings
@pytest.mark.parametrize(
    "status",
    [
        {"state": "TASK_STATE_COMPLETED", "message": None},
        {"state": "TASK_STATE_COMPLETED", "message": {"messageId": "m", "role": "ROLE_AGENT"}},
        {
            "state": "TASK_STATE_COMPLETED",
            "message": {"messageId": "m", "role": "ROLE_AGENT", "parts": None},
            "timestamp": None,
        },
    ],
    ids=["message null", "no parts", "parts null"],
)
async def test_s13_a_status_message_that_is_null_or_has_no_parts_is_no_error(binding, status):
    task = {"id": "t-1", "contextId": "c-1", "status": status, "artifacts": None, "history": None}

    def page(request):
        result = {"task": task}
        if binding == "JSONRPC":
            rpc_id = json.loads(request.body)["id"]
            result = {"jsonrpc": "2.0", "id": rpc_id, "result": result}
        return HttpReply(status=200, body=json.dumps(result).encode())

    agent = FakeAgent(streaming=False)
    pages = {"http://agent.test/rpc": page, "http://agent.test/rest/message:send": page}

    answer = await connected(agent, binding, network=Recorded(agent, pages=pages)).ask("hello")

    assert (answer.task_id, answer.text) == ("t-1", "")


@pytest.mark.rule("S17")
@both_bindings
async def test_s17_an_unconfirmed_cancel_is_polled_until_its_deadline(binding):
    agent = FakeAgent(lambda _turn: works_forever(), cancel_takes=None)
    client = connected(agent, binding)
    task = await client.send_message("hello", return_immediately=True)
    began = now()

    with pytest.raises(CancelUnconfirmedError, match="still WORKING 20 s after") as caught:
        await client.cancel_task(task.id, timeout=20)

    assert caught.value.task.state is TaskState.WORKING
    assert now() - began == 20
    assert len(agent.calls("CancelTask")) == 1
    assert len(agent.calls("GetTask")) > 5


@pytest.mark.rule("S17")
@both_bindings
async def test_s17_a_cancel_that_takes_a_while_is_confirmed(binding):
    agent = FakeAgent(lambda _turn: works_forever(), cancel_takes=7)
    client = connected(agent, binding)
    task = await client.send_message("hello", return_immediately=True)

    assert (await client.cancel_task(task.id)).state is TaskState.CANCELED


@pytest.mark.rule("S19")
@both_bindings
async def test_s19_a_card_without_protocol_version_works(binding):
    path = {"JSONRPC": "/rpc", "HTTP+JSON": "/rest"}[binding]
    interface = {"url": f"http://agent.test{path}", "protocolBinding": binding}
    agent = FakeAgent(card={"name": "Fake", "supportedInterfaces": [interface]})

    assert (await connected(agent, binding).ask("hello")).text == "hello"
    assert agent.calls("SendMessage")[0].headers["a2a-version"] == "1.0"


@pytest.mark.rule("S21")
async def test_s21_a_card_at_the_older_path_is_found():
    agent = FakeAgent()
    card = AgentCard(
        name="Older",
        supported_interfaces=(
            AgentInterface(url="http://agent.test/rpc", protocol_binding="JSONRPC"),
        ),
    )
    older = HttpReply(status=200, body=card.to_json().encode())
    pages = {
        "http://agent.test/.well-known/agent-card.json": HttpReply(status=404),
        "http://agent.test/.well-known/agent.json": older,
    }
    network = Recorded(agent, pages=pages)

    answer = await connect(agent.url, engine=network).ask("hello")

    assert answer.text == "hello"
    assert [request.url for request in network.requests[:2]] == list(pages)


@pytest.mark.rule("S21")
async def test_s21_a_401_at_the_first_path_is_an_answer():
    agent = FakeAgent()
    agent.inject(Respond(status=401), on="GetAgentCard")
    network = Recorded(agent)

    with pytest.raises(AuthenticationError):
        await connect(agent.url, engine=network).agent_card()

    assert [urlsplit(r.url).path for r in network.requests] == ["/.well-known/agent-card.json"]


@pytest.mark.rule("S22")
@pytest.mark.parametrize(
    ("binding", "url", "posted"),
    [
        ("JSONRPC", "http://agent.test/rpc", "http://agent.test/rpc"),
        ("JSONRPC", "http://agent.test/rpc/", "http://agent.test/rpc/"),
        ("HTTP+JSON", "http://agent.test/rest", "http://agent.test/rest/message:send"),
        ("HTTP+JSON", "http://agent.test/rest/", "http://agent.test/rest/message:send"),
    ],
)
async def test_s22_the_endpoint_is_used_as_the_card_writes_it(binding, url, posted):
    interface = AgentInterface(url=url, protocol_binding=binding)
    agent = FakeAgent(card=AgentCard(name="Fake", supported_interfaces=(interface,)))

    await connected(agent, binding).ask("hello")

    assert [received.url for received in agent.calls("SendMessage")] == [posted]


@pytest.mark.rule("S23", "P01")
@both_bindings
async def test_s23_credentials_do_not_follow_a_card_to_another_host(binding):
    elsewhere = FakeAgent(url="http://elsewhere.test", bindings=(binding,))
    agent = FakeAgent(
        card=AgentCard(
            name="Fake",
            supported_interfaces=(
                AgentInterface(url="http://elsewhere.test/rpc", protocol_binding="JSONRPC"),
                AgentInterface(url="http://elsewhere.test/rest", protocol_binding="HTTP+JSON"),
            ),
        )
    )
    network = Recorded(agent, elsewhere)

    with pytest.raises(CredentialOriginError) as caught:
        await connected(agent, binding, network=network, auth="Bearer t0ken").ask("hello")

    assert caught.value.origin == "http://elsewhere.test:80"
    assert 'credential_origins=("http://elsewhere.test:80",)' in str(caught.value)
    assert caught.value.executed is False
    assert {urlsplit(request.url).hostname for request in network.requests} == {"agent.test"}


@pytest.mark.rule("S24")
async def test_s24_a_card_from_another_origin_is_fetched_without_credentials():
    elsewhere = FakeAgent(url="http://elsewhere.test")
    agent = FakeAgent()
    there = "http://elsewhere.test/.well-known/agent-card.json"
    pages = {
        "http://agent.test/.well-known/agent-card.json": HttpReply(
            status=302, headers={"location": there}
        )
    }
    network = Recorded(agent, elsewhere, pages=pages)

    await connect(
        agent.url, engine=network, auth="Bearer t0ken", headers={"x-api-key": "k3y"}
    ).agent_card()

    first, second = network.requests
    assert first.headers["authorization"] == "Bearer t0ken"
    assert first.headers["x-api-key"] == "k3y"
    assert second.url == there
    assert not {"authorization", "x-api-key"} & second.headers.keys()
    assert second.headers["a2a-version"] == "1.0"


@pytest.mark.rule("S24")
@both_bindings
@both_ways
@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_s24_a_call_does_not_follow_to_another_origin(binding, streaming, status):
    agent, elsewhere = FakeAgent(streaming=streaming), FakeAgent(url="http://elsewhere.test")
    redirect = Respond(status=status, headers={"location": "http://elsewhere.test/rpc"})
    agent.inject(redirect, on=SENDS[streaming])
    network = Recorded(agent, elsewhere)

    with pytest.raises(A2AHTTPError, match=r"http://elsewhere\.test/rpc was not followed"):
        await connected(agent, binding, network=network, auth="Bearer t0ken").ask("hello")

    assert {urlsplit(request.url).hostname for request in network.requests} == {"agent.test"}


@pytest.mark.rule("S25")
@both_bindings
def test_s25_one_client_serves_two_event_loops(binding):
    agent = FakeAgent()
    client = connected(agent, binding)

    async def ask(text):
        return (await client.ask(text)).text

    assert run(ask("first")) == "first"
    assert run(ask("second")) == "second"
    assert asyncio.run(ask("third")) == "third"


@pytest.mark.rule("S26")
@both_bindings
@pytest.mark.parametrize("data", [{"n": 1}, [1, 2**63], 0, {"deep": [{"n": -7}]}], ids=str)
async def test_s26_integers_in_data_stay_integers(binding, data):
    agent = FakeAgent(lambda turn: completes(*turn.message.parts))

    answer = await connected(agent, binding).ask(data_part(data))

    (artifact,) = answer.task.artifacts
    assert repr(artifact.parts[0].data) == repr(data)


@pytest.mark.rule("S27", "P32")
@both_bindings
async def test_s27_a_wait_that_expires_names_its_deadline_and_carries_the_task(binding):
    agent = FakeAgent(lambda _turn: works_forever())
    client = connected(agent, binding)
    task = await client.send_message("hello", return_immediately=True)
    began = now()

    with pytest.raises(DeadlineExceededError, match="WORKING at the end of the wait") as caught:
        await client.wait(task.id, timeout=33)

    error = caught.value
    assert (error.deadline, error.timeout, error.executed) == ("wait", 33, True)
    assert error.task == agent.tasks[task.id]
    assert now() - began == 33


@pytest.mark.rule("S27")
@both_bindings
async def test_s27_an_ask_that_expires_names_its_deadline_and_carries_the_task(binding):
    agent = FakeAgent(lambda _turn: works_forever())

    with pytest.raises(DeadlineExceededError, match="the call timeout of 42 s") as caught:
        await connected(agent, binding).ask("hello", timeout=42)

    assert (caught.value.deadline, caught.value.task.id) == ("call", "task-1")
    assert now() == 42


class Slotted(FakeNetwork):
    """Has a bounded pool, as real engines do."""

    def __init__(self, *agents, slots):
        super().__init__(*agents, latency=0.01)
        self.slots = asyncio.Semaphore(slots)

    @asynccontextmanager
    async def stream(self, request):  # which every request goes through
        async with self.slots, super().stream(request) as reply:
            yield reply


@pytest.mark.rule("S28")
@both_ways
@crossed("binding, seed", ["JSONRPC", "HTTP+JSON"], range(3))
async def test_s28_every_slot_is_free_after_many_cancellations(binding, streaming, seed):
    dice = random.Random(seed)
    behaviour = completes("done", after=0.3)
    agent = FakeAgent(behaviour, latency=0.2, streaming=streaming)
    network = Slotted(agent, slots=25)
    client = connected(agent, binding, network=network)

    for _ in range(rounds(10, 40)):
        calls = [asyncio.create_task(client.ask("hello")) for _ in range(25)]
        for call in calls:
            asyncio.get_running_loop().call_later(dice.uniform(0, 1), call.cancel)
        await asyncio.gather(*calls, return_exceptions=True)

    assert (network.in_flight, agent.open_streams) == (0, 0)
    began = now()
    answers = await asyncio.gather(*(client.ask("hello") for _ in range(25)))
    assert [answer.text for answer in answers] == ["done"] * 25
    assert now() - began < 1  # nobody had to wait for a slot
    assert network.peak == 25


@pytest.mark.rule("S29")
@both_bindings
@pytest.mark.parametrize("operation", ["SendMessage", "GetTask"])
async def test_s29_a_wait_beyond_the_time_left_is_not_begun(binding, operation):
    agent = FakeAgent()
    client = connected(agent, binding, timeout=10)
    task = await client.send_message("hello")
    agent.inject(rate_limited(retry_after=30), on=operation)
    call = client.send_message("again") if operation == "SendMessage" else client.get_task(task.id)

    with pytest.raises(RateLimitedError) as caught:
        await call

    assert (caught.value.retry_after, caught.value.executed) == (30, False)
    assert len(caught.value.attempts) == 1
    assert now() == 0


@pytest.mark.rule("S30")
@both_bindings
@both_ways
async def test_s30_a_proxys_html_in_place_of_a_reply_to_a_message(binding, streaming):
    agent = FakeAgent(streaming=streaming)
    agent.inject(bad_gateway(after_execution=True), on=SENDS[streaming])

    with pytest.raises(OutcomeUnknownError) as caught:
        await connected(agent, binding, on_unknown="raise").ask("hello")

    assert caught.value.http_status == 502
    assert "upstream went away" in caught.value.excerpt
    assert type(caught.value.__cause__) is A2AHTTPError
    assert len(agent.calls(SENDS[streaming])) == 1


@pytest.mark.rule("S30")
@both_bindings
@pytest.mark.parametrize(("failures", "gives_up"), [(2, False), (4, True)])
async def test_s30_a_proxys_html_in_place_of_a_task_is_retried(binding, failures, gives_up):
    agent = FakeAgent()
    client = connected(agent, binding, resilience=Resilience(retry=RetryPolicy(max_retries=3)))
    task = await client.send_message("hello")
    agent.inject(bad_gateway(), on="GetTask", times=failures)

    if not gives_up:
        assert await client.get_task(task.id) == task
        return
    with pytest.raises(A2AHTTPError, match="HTTP 502 Bad Gateway") as caught:
        await client.get_task(task.id)
    assert (caught.value.http_status, caught.value.transient) == (502, True)
    assert "upstream went away" in caught.value.excerpt
    assert len(caught.value.attempts) == 4


@both_bindings
@both_ways
async def test_a_late_reply_is_no_lost_one(binding, streaming):
    agent = FakeAgent(streaming=streaming)
    agent.inject(Delay(seconds=100), on=SENDS[streaming])

    assert (await connected(agent, binding).ask("hello")).text == "hello"
    assert len(message_ids(agent)) == 1
