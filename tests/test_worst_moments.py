"""What agents, networks and callers' own code do at the worst moment."""

import asyncio
import json
import os
import subprocess
import sys

import aiohttp
import pytest
from tests.kit.raw_server import reply, serve

from holdfast import (
    A2AConnectionError,
    A2AError,
    DeadlineExceededError,
    OutcomeUnknownError,
    RateLimitedError,
    Resilience,
    TaskFailedError,
    TaskNotFoundError,
    connect,
)
from holdfast._wire.redaction import redact
from holdfast.errors import (
    InvalidAgentCardError,
    InvalidAgentResponseError,
    PermissionDeniedError,
)
from holdfast.extend import Endpoints, HttpReply, Interceptor, PassThrough
from holdfast.observe import AttemptStarted
from holdfast.testing import (
    DeadlockError,
    FakeAgent,
    FakeNetwork,
    Refuse,
    Respond,
    Stall,
    completes,
    fails,
    rate_limited,
    run,
    unavailable,
    works_forever,
)

both_bindings = pytest.mark.parametrize("binding", ["JSONRPC", "HTTP+JSON"])
both_ways = pytest.mark.parametrize("streaming", [True, False], ids=["streams", "polls"])


def now():
    return asyncio.get_running_loop().time()


def connected(agent, network=None, **options):
    return connect(agent.url, engine=network or FakeNetwork(agent), **options)


def card_at(url, **members):
    interface = {"url": url, "protocolBinding": "JSONRPC", "protocolVersion": "1.0", **members}
    return {"name": "Found", "supportedInterfaces": [interface]}


class Answering(FakeNetwork):
    """Answers some requests in the agent's place: those whose body has a method."""

    def __init__(self, agent, method, answer):
        super().__init__(agent)
        self.method = method
        self.answer = answer

    async def request(self, request):
        if self.method not in request.body:
            return await super().request(request)
        document = {"jsonrpc": "2.0", "id": json.loads(request.body)["id"], **self.answer()}
        return HttpReply(status=200, body=json.dumps(document).encode())


# ── Executed, and by whom ────────────────────────────────────────────────────────────────────


@both_bindings
@pytest.mark.parametrize("status", [429, 503, 401, 404])
async def test_a_result_under_an_error_status_did_come_from_the_agent(binding, status):
    class Gate(FakeNetwork):
        async def request(self, request):
            got = await super().request(request)
            if request.method == "GET":
                return got
            headers = {**got.headers, "retry-after": "1"}
            return HttpReply(status=status, headers=headers, body=got.body)

    agent = FakeAgent(bindings=(binding,))

    with pytest.raises(A2AError) as caught:
        await connected(agent, Gate(agent)).send_message("hello", on_unknown="raise")

    assert caught.value.executed is None
    assert [len(made) for made in agent.executions.values()] == [1]


@both_bindings
async def test_a_gateways_own_words_are_no_result(binding):
    agent = FakeAgent(bindings=(binding,))
    agent.inject(Respond(status=429, body=b'{"message": "Too Many Requests"}'))

    assert (await connected(agent).ask("hello")).text == "hello"


async def test_who_waits_for_the_card_of_another_call_is_not_told_of_that_calls_task():
    agent = FakeAgent(lambda _: works_forever())
    network = FakeNetwork(agent, latency=0.2)
    fetching = asyncio.Event()

    def observe(observation):
        if isinstance(observation, AttemptStarted) and observation.operation == "GetAgentCard":
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


class Failing:
    """An `AuthProvider` whose own call to somebody fails."""

    async def credentials(self, _call):
        raise A2AConnectionError("the token's server hung up", failure="disconnected")

    async def on_unauthorized(self, _call, _error):
        return False


async def test_a_token_that_cannot_be_had_is_no_message_that_was_sent():
    agent = FakeAgent()
    client = connect(card_at("http://agent.test/rpc"), engine=FakeNetwork(agent), auth=Failing())

    with pytest.raises(A2AConnectionError) as caught:
        await client.send_message("hello")

    assert (caught.value.executed, agent.received) == (False, [])
    assert not isinstance(caught.value, OutcomeUnknownError)


async def test_a_slow_hook_does_not_hide_that_the_message_ran():
    class Slow(Interceptor):
        async def after(self, call, outcome):
            await asyncio.sleep(1000)
            return outcome

    with pytest.raises(DeadlineExceededError) as caught:
        await connected(FakeAgent(), interceptors=[Slow()]).send_message("hello", timeout=10)

    assert caught.value.executed is True


async def test_what_was_not_there_was_not_deleted_by_a_try_that_never_arrived():
    agent = FakeAgent()
    agent.inject(Refuse(), on="DeleteTaskPushNotificationConfig")

    with pytest.raises(TaskNotFoundError):
        await connected(agent).delete_task_push_notification_config("task", "config")


async def test_nothing_is_sent_after_the_client_was_closed():
    agent = FakeAgent()
    agent.inject(rate_limited(retry_after=5), on="SendMessage")
    async with connected(agent) as client:
        sending = asyncio.ensure_future(client.send_message("hello"))
        await asyncio.sleep(1)

    with pytest.raises(A2AConnectionError, match="closed"):
        await sending
    assert agent.executions == {}


async def test_a_call_whose_time_is_over_as_the_client_closes_says_so():
    agent = FakeAgent()
    agent.inject(Stall(), on="GetTask")
    client = connected(agent)
    loop, closing = asyncio.get_running_loop(), []
    loop.call_at(5, lambda: closing.append(loop.create_task(client.close())))

    with pytest.raises(DeadlineExceededError):
        await client.get_task("task", timeout=5)

    assert now() == 5
    await closing[0]


def test_a_call_that_is_over_leaves_no_timer_behind():
    agent = FakeAgent()

    async def main():
        await connected(agent).send_message("hello")
        await asyncio.Event().wait()

    with pytest.raises(DeadlockError, match="at virtual time 0:"):
        run(main())


async def test_whoever_closes_a_client_waits_for_its_last_call_and_no_longer():
    class Tidies(PassThrough):
        async def unary(self, call):
            try:
                return await super().unary(call)
            finally:
                await asyncio.sleep(0.25)

    agent = FakeAgent()
    agent.inject(rate_limited(retry_after=5), on="SendMessage")
    client = connected(agent, call_layers=[Tidies])
    sending = asyncio.ensure_future(client.send_message("hello"))
    await asyncio.sleep(1)
    closed_at = []

    async def close():
        await client.close()
        closed_at.append(now())

    began = now()
    await asyncio.gather(close(), close())

    assert closed_at == [began + 0.25] * 2
    with pytest.raises(A2AConnectionError, match="closed"):
        await sending


# ── One fetch for many ───────────────────────────────────────────────────────────────────────


async def test_who_has_little_time_does_not_fail_those_who_have_more():
    agent = FakeAgent()
    agent.inject(unavailable(retry_after=2), on="GetAgentCard")
    client = connected(agent, FakeNetwork(agent, latency=0.1))
    hasty = asyncio.ensure_future(client.agent_card(timeout=1))
    await asyncio.sleep(0)

    patient = await client.ask("hello", timeout=600)

    assert patient.text == "hello"
    assert isinstance(hasty.exception(), A2AError)


# ── Consumers ────────────────────────────────────────────────────────────────────────────────


@both_ways
@pytest.mark.parametrize(
    "own",
    [
        DeadlineExceededError("the consumer's own", deadline="call", timeout=1, executed=False),
        A2AConnectionError("the consumer's own", failure="refused", transient=True),
        A2AError("the consumer's own", executed=False),
    ],
)
async def test_a_consumers_own_error_is_raised_as_it_is(own, streaming):
    seen = []

    def consumer(event, _task, _card):
        seen.append(event)
        if len(seen) == 2:
            raise own

    agent = FakeAgent(completes("x", after=10, works=1), streaming=streaming)

    with pytest.raises(type(own)) as caught:
        await connected(agent, consumers=[consumer]).ask("hello")

    assert caught.value is own
    assert str(own) == "the consumer's own"
    assert len(seen) == 2


# ── Facts ────────────────────────────────────────────────────────────────────────────────────


async def test_the_end_of_a_wait_names_the_agent():
    with pytest.raises(DeadlineExceededError) as caught:
        await connected(FakeAgent(works_forever())).ask("hello", timeout=7)

    assert caught.value.agent == "http://agent.test/rpc"


async def test_a_failed_task_names_the_agent():
    with pytest.raises(TaskFailedError) as caught:
        await connected(FakeAgent(fails("no"))).ask("hello")

    assert caught.value.agent == "http://agent.test/rpc"


async def test_a_bad_extended_card_names_the_agent():
    agent = FakeAgent()
    network = Answering(agent, b"GetExtendedAgentCard", lambda: {"result": {}})

    with pytest.raises(InvalidAgentCardError) as caught:
        await connected(agent, network).get_extended_agent_card()

    assert caught.value.agent == "http://agent.test/rpc"


async def test_a_deadline_during_the_fetch_of_the_card_tells_of_its_attempts():
    agent = FakeAgent()
    agent.inject(Refuse(), on="GetAgentCard", times=2)
    agent.inject(Stall(), on="GetAgentCard")

    with pytest.raises(DeadlineExceededError) as caught:
        await connected(agent).ask("hello", timeout=30)

    assert (caught.value.executed, len(caught.value.attempts)) == (False, 3)
    assert caught.value.agent.startswith("http://agent.test")


# ── Without an end ───────────────────────────────────────────────────────────────────────────


async def test_a_list_of_empty_pages_ends():
    agent, pages = FakeAgent(), iter(range(3000))
    answer = lambda: {"result": {"tasks": [], "nextPageToken": str(next(pages))}}  # noqa: E731

    with pytest.raises(InvalidAgentResponseError, match="empty pages"):
        async for _ in connected(agent, Answering(agent, b"ListTasks", answer)).iter_tasks():
            pass


async def test_the_registry_of_endpoints_is_bounded():
    agent, shared = FakeAgent(), Endpoints()
    client = connected(agent, shared=shared, card_ttl=0)
    for number in range(1100):
        agent.card = card_at("http://agent.test/rpc", tenant=f"t{number}")
        await client.list_tasks()

    assert len(shared) == 1000


def test_a_pipe_is_no_file_of_a_card(tmp_path):
    os.mkfifo(tmp_path / "card.json")
    code = (
        "import asyncio, pathlib, holdfast\n"
        f"client = holdfast.connect(pathlib.Path({str(tmp_path / 'card.json')!r}))\n"
        "asyncio.run(client.ask('x'))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], timeout=60, check=False, capture_output=True, text=True
    )
    assert "it is not a file" in done.stderr


# ── Secrets ──────────────────────────────────────────────────────────────────────────────────


def test_a_secret_that_is_echoed_as_a_name_is_hidden():
    error = A2AError("no", data={"Bearer tok-secret": {"tok-secret": 1}})

    redact(error, ["Bearer tok-secret"])

    assert error.data == {"***": {"***": 1}}


def test_what_is_too_much_to_look_through_is_left_out():
    error = A2AError("no", data=["y" * 1000] * 1000, details=[{"n": [1] * 300_000}])

    redact(error, ["Bearer tok-secret", "k" * 1000])

    shown = sum(item != "***" for item in error.data)
    assert 100 < shown < 300
    assert error.data[-1] == "***"


# ── Addresses ────────────────────────────────────────────────────────────────────────────────


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


@pytest.mark.real_time
async def test_a_lent_session_that_raises_for_a_status_tells_the_facts_all_the_same():
    def answer(_port):
        return reply(b"slow", "Retry-After: 7", status="429 Too Many Requests")

    script = answering("http://127.0.0.1:{}/rpc", answer)
    async with aiohttp.ClientSession(raise_for_status=True) as session, serve(script) as server:
        client = connect(server.url, engine=session, resilience=Resilience.off())
        with pytest.raises(RateLimitedError) as caught:
            await client.send_message("hello")

    assert (caught.value.retry_after, caught.value.executed) == (7, False)
