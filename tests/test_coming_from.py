"""Everything on docs/coming-from.md is run: each block as it stands, and each row of a table.

A row is run by what its second column says: every piece of code there, from left to right. Each
block and each row has a check of its own here; one without fails.
"""

import ast
import asyncio
import contextlib
import functools
import inspect
import json
import logging
import re
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import aiohttp
import httpx
import msgspec
import pytest
from a2a.client import ClientConfig, ClientFactory
from a2a.client.errors import A2AClientError
from a2a.client.transports.base import ClientTransport
from a2a.types import a2a_pb2 as pb
from a2a.utils.errors import TaskNotFoundError as SdkTaskNotFoundError
from tests.asgi_client import request
from tests.sdk_transports import Scripted as ScriptedTransport
from tests.sdk_transports import refused, status_error, timed_out, unanswered
from tests.test_client_tools import Scripted, call, calls
from tests.test_readme import execute

import holdfast
import holdfast.integrations.httpx as holdfast_httpx
from holdfast.integrations import a2a_sdk
from holdfast.server import ProtocolErrors
from holdfast.testing import (
    Cut,
    Fail,
    FakeAgent,
    FakeNetwork,
    Garbage,
    Refuse,
    Reset,
    Respond,
    Stall,
    asks,
    bad_gateway,
    completes,
    fails,
    needs_auth,
    rate_limited,
    rejects,
    streams,
    unavailable,
    works_forever,
)

PAGE = Path(__file__).parent.parent / "docs" / "coming-from.md"
TEXT = PAGE.read_text()
HERE = "http://localhost:9999"

WORKING = holdfast.TaskStatus(state=holdfast.TaskState.WORKING)
OFF = holdfast.Resilience.off()


# ── What is on the page ──────────────────────────────────────────────────────────────────────


class Row(NamedTuple):
    """One row of a table: where it stands, what was written, and what is now."""

    section: str
    wrote: str
    now: str

    @property
    def code(self):
        """Everything in the second column that is code."""
        return re.findall(r"`([^`]+)`", self.now)


def rows_in(text):
    """The rows of all tables."""
    for part in re.split(r"^## ", text, flags=re.MULTILINE)[1:]:
        section, _, body = part.partition("\n")
        for line in re.findall(r"^\|(.*)\|$", body, flags=re.MULTILINE):
            wrote, now = (cell.strip() for cell in line.split(" | "))
            if wrote != "you wrote" and not set(line) <= set("|- "):
                yield Row(section, wrote, now)


ROWS = list(rows_in(TEXT.replace("|---|---|", "| --- | --- |")))
BLOCKS = re.findall(r"```python\n(.*?)```", TEXT, flags=re.DOTALL)

ROW_CHECKS = {}
BLOCK_CHECKS = {}


def rows_of(section):
    """Says which rows of a section a function checks."""

    def of(*wrote):
        def register(check):
            for each in wrote:
                assert (section, each) not in ROW_CHECKS, each
                ROW_CHECKS[section, each] = check
            return check

        return register

    return of


def block(text, *, real_time=False):
    """Says which block a function checks: the one that has a text in it."""

    def register(check):
        BLOCK_CHECKS[text] = check, real_time
        return check

    return register


sdk = rows_of("a2a-sdk")
article = rows_of("Agents that report errors as the article does")
ag2 = rows_of("AG2")
apcore = rows_of("apcore-a2a")


# ── What runs it ─────────────────────────────────────────────────────────────────────────────


class World:
    """Lets what the page calls be fake agents.

    Attributes:
        printed: What was printed, a tuple for each time.
    """

    def __init__(self, monkeypatch):
        self._patch = monkeypatch
        self.printed = []

    def reach(self, *agents):
        """Makes agents reachable, and nobody else."""
        network = FakeNetwork(*agents)
        create = CREATE
        for name in ("connect", "Coordinator", "A2ACardResolver"):
            made = functools.partial(REAL[name], engine=network)
            self._patch.setattr(holdfast, name, made)

        def created(factory, agent, *arguments, **options):
            return create(factory, agent, *arguments, **{"engine": network, **options})

        self._patch.setattr(holdfast.ClientFactory, "create", created)
        factory = functools.partial(CLIENT_FACTORY, engine=network)
        self._patch.setattr(a2a_sdk, "client_factory", factory)
        carrying = functools.partial(CARRYING, engine=network)
        self._patch.setattr(holdfast_httpx, "Transport", carrying)
        bare = functools.partial(carrying, resilience=holdfast.Resilience.off())

        class InProcess(ASYNC_CLIENT):
            """Stands for the clients that open sockets."""

            def __init__(self, *, transport=None, **options):
                super().__init__(transport=transport or bare(), **options)

        self._patch.setattr(httpx, "AsyncClient", InProcess)
        return network

    async def usual(self, behaviour="384,400 km", **options):
        """A client and its agent, and what else the page gives a name."""
        fake = FakeAgent(behaviour, url=HERE, **options)
        engine = self.reach(fake)
        agent = holdfast.connect(HERE)
        task = await agent.send_message("hello", return_immediately=True)
        card = await agent.agent_card()
        fake.received.clear()
        return fake, {"agent": agent, "task": task, "card": card, "engine": engine}

    def print(self, *words):
        """Stands for the built-in."""
        self.printed.append(words)


REAL = {name: getattr(holdfast, name) for name in ("connect", "Coordinator", "A2ACardResolver")}
CREATE = holdfast.ClientFactory.create
CLIENT_FACTORY = a2a_sdk.client_factory
CARRYING = holdfast_httpx.Transport
ASYNC_CLIENT = httpx.AsyncClient


class Written:
    """What a row says is written now: each call runs the next piece of it."""

    def __init__(self, row):
        self.left = row.code

    async def __call__(self, **names):
        known = {
            "holdfast": holdfast,
            "aiohttp": aiohttp,
            "logging": logging,
            "ProtocolErrors": ProtocolErrors,
            "httpx": httpx,
            **{name: getattr(a2a_sdk, name) for name in a2a_sdk.__all__},
            **names,
        }
        code = compile(self.left.pop(0), str(PAGE), "eval", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        value = eval(code, known)
        return await value if inspect.iscoroutine(value) else value


async def failing(fault, world, *, resilience=OFF, **options):
    """What a read raises that fails in this way."""
    fake = FakeAgent(url=HERE)
    world.reach(fake)
    client = holdfast.connect(HERE, resilience=resilience)
    await client.agent_card()
    fake.inject(fault, times=9)
    with pytest.raises(holdfast.A2AError) as caught:
        await client.get_task("task-1", **options)
    return caught.value


def called(fake):
    """The operations that reached an agent, but for its card."""
    return [each.operation for each in fake.received if each.operation != "GetAgentCard"]


# ── All alike ────────────────────────────────────────────────────────────────────────────────


@block("except holdfast.A2AError as error:\n        print(error, error.executed")
async def a_first_call(written, world):
    fake = FakeAgent("384,400 km", url=HERE, records_messages=False, lists_tasks=False)
    world.reach(fake)

    await written()
    fake.inject(Reset(after_execution=True))
    await written()

    assert world.printed[0] == ("384,400 km", "TASK_STATE_COMPLETED")
    error, executed, transient, retry_after = world.printed[1]
    assert isinstance(error, holdfast.OutcomeUnknownError)
    assert (executed, transient, retry_after) == (None, False, None)
    world.reach(FakeAgent(works_forever(), url=HERE))
    await written()
    assert (type(world.printed[2][0]), world.printed[2][0].timeout) == (
        holdfast.DeadlineExceededError,
        60,
    )
    assert all(len(made) == 1 for made in fake.executions.values())


# ── a2a-sdk: below it ────────────────────────────────────────────────────────────────────────


@block("factory = client_factory(ClientConfig())")
async def one_line_changes(written, world):
    fake = FakeAgent(streams("384,400", " km", every=1), url=HERE)
    world.reach(fake)
    fake.inject(rate_limited(retry_after=5))
    fake.inject(Cut(after_events=3))

    await written()

    events = [event for (event,) in world.printed]
    assert all(type(event) is pb.StreamResponse for event in events)
    texts = [
        part.text
        for event in events
        if event.HasField("artifact_update")
        for part in event.artifact_update.artifact.parts
    ]
    assert texts == ["384,400", " km"]
    assert events[-1].status_update.status.state == pb.TASK_STATE_COMPLETED
    assert "SubscribeToTask" in called(fake)
    assert [len(tasks) for tasks in fake.executions.values()] == [1]


def send():
    """A message, as the SDK has it."""
    part = pb.Part(text="hello")
    return pb.SendMessageRequest(
        message=pb.Message(message_id="1", role=pb.ROLE_USER, parts=[part])
    )


@sdk("`ClientFactory(config)`")
async def the_sdks_client_is_what_it_was(written, world):
    fake = FakeAgent("384,400 km", url=HERE)
    world.reach(fake)
    factory = await written(
        config=ClientConfig(streaming=False), client_factory=a2a_sdk.client_factory
    )
    assert isinstance(factory, ClientFactory)
    async with await factory.create_from_url(HERE) as client:
        fake.inject(Reset(after_execution=True), on="SendMessage")
        ((event,),) = [[event async for event in client.send_message(send())]]
        assert event.task.artifacts[0].parts[0].text == "384,400 km"
        with pytest.raises(SdkTaskNotFoundError) as caught:
            await client.get_task(pb.GetTaskRequest(id="nobody's"))
    assert isinstance(caught.value.__cause__, holdfast.TaskNotFoundError)
    assert [len(tasks) for tasks in fake.executions.values()] == [1]


@sdk('`factory.register("JSONRPC", producer)`')
async def the_transport_is_registered_alone(written, world):
    fake = FakeAgent("384,400 km", url=HERE)
    network = world.reach(fake)
    factory = ClientFactory(ClientConfig(streaming=False))
    carried = functools.partial(a2a_sdk.HoldfastTransport, engine=network)
    await written(factory=factory, HoldfastTransport=carried)
    async with await factory.create_from_url(HERE) as client:
        fake.inject(rate_limited(retry_after=5))
        assert (await client.list_tasks(pb.ListTasksRequest())).total_size == 0


@sdk("`ClientConfig(retry_config=…)`, as proposed")
async def one_configuration_is_for_all_bindings(written, world):
    fake = FakeAgent("384,400 km", url=HERE)
    world.reach(fake)
    config = ClientConfig(supported_protocol_bindings=["JSONRPC", "ACME"])
    factory = await written(config=config, client_factory=a2a_sdk.client_factory)
    async with await factory.create_from_url(HERE) as client:
        fake.inject(Fail(), on="ListTasks", times=5)
        await client.list_tasks(pb.ListTasksRequest())
    inner = ScriptedTransport(*[refused()] * 5)
    factory.register("ACME", lambda card, url, config: inner)
    card = pb.AgentCard(name="Acme")
    card.supported_interfaces.add(url="acme://moon", protocol_binding="ACME")
    await factory.create(card).get_task(pb.GetTaskRequest(id="1"))
    assert len(inner.calls) == 6


@block("RetryTransport(inner, max_retries=3, on_retry=on_retry)")
async def a_transport_is_tried_again(written, world):
    fake = FakeAgent("384,400 km", url=HERE)
    world.reach(fake)
    fake.inject(unavailable(retry_after=2))
    await written()
    retry, (count,) = world.printed
    assert retry[:3] == ("retry", 1, "in")
    assert retry[3] >= 2
    assert isinstance(retry[-1], A2AClientError)
    assert count == 0


@sdk("`RetryTransport(transport)`, as proposed")
async def a_transport_of_the_sdk_is_tried_again(written, world):
    kinds = [refused(), status_error(429), status_error(502), status_error(503)]
    for cause in (*kinds, status_error(504), timed_out(), unanswered()):
        inner = ScriptedTransport(cause)
        code = written.left[0]
        transport = await Written(Row("", "", f"`{code}`"))(inner=inner)
        assert isinstance(transport, ClientTransport)
        await transport.get_task(pb.GetTaskRequest(id="1"))
        assert len(inner.calls) == 2
    inner = ScriptedTransport(*[refused()] * 9)
    with pytest.raises(A2AClientError):
        await (await written(inner=inner)).get_task(pb.GetTaskRequest(id="1"))
    assert len(inner.calls) == 4
    assert inner.times[-1] - inner.times[0] <= 1 + 2 + 4
    for final in (SdkTaskNotFoundError(), status_error(400)):
        inner = ScriptedTransport(final)
        with pytest.raises(type(final)):
            await a2a_sdk.RetryTransport(inner).get_task(pb.GetTaskRequest(id="1"))
        assert len(inner.calls) == 1


@pytest.mark.parametrize(
    ("failure", "is_sent_again"),
    [
        (refused, True),
        (lambda: status_error(429), True),
        (lambda: status_error(503, retry_after="1"), True),
        (lambda: status_error(503), False),
        (lambda: status_error(502), False),
        (timed_out, False),
        (unanswered, False),
    ],
)
async def test_what_is_said_of_messages_below_the_sdk_is_so(failure, is_sent_again):
    inner = ScriptedTransport(failure())
    transport = a2a_sdk.RetryTransport(inner, retry_predicate=lambda error: True)
    with contextlib.suppress(A2AClientError):
        await transport.send_message(send())
    assert len(inner.calls) == (2 if is_sent_again else 1)


async def test_a_stream_is_tried_again_before_its_first_event():
    event = pb.StreamResponse(message=pb.Message(message_id="1"))
    inner = ScriptedTransport(refused(), [event, unanswered()])
    events = a2a_sdk.RetryTransport(inner).send_message_streaming(send())
    seen = [await anext(events)]
    with pytest.raises(A2AClientError):
        await anext(events)
    assert (seen, len(inner.calls)) == ([event], 2)


@sdk("`retry_predicate=…`")
async def a_predicate_decides(written, world):
    assert a2a_sdk.default_retry_predicate(status_error(502)) is True
    inner = ScriptedTransport(status_error(502))
    transport = await written(inner=inner, predicate=lambda error: False)
    with pytest.raises(A2AClientError):
        await transport.get_task(pb.GetTaskRequest(id="1"))
    assert await written() is a2a_sdk.default_retry_predicate


@sdk("`on_retry=…`")
async def a_callback_is_told(written, world):
    told, code = [], written.left[0]

    async def later(*facts):
        told.append(facts)

    for callback in (later, lambda *facts: told.append(facts)):
        one = Written(Row("", "", f"`{code}`"))
        transport = await one(inner=ScriptedTransport(refused()), callback=callback)
        await transport.get_task(pb.GetTaskRequest(id="1"))
    assert [(number, type(error)) for number, error, _ in told] == [(1, A2AClientError)] * 2
    await written(inner=ScriptedTransport(), callback=later)


@sdk("a loop that sends again after any failure")
async def a_message_may_be_sent_again(written, world):
    inner = ScriptedTransport(timed_out())
    await (await written(inner=inner)).send_message(send())
    assert len(inner.calls) == 2


@sdk("a deadline around the loop")
async def all_tries_have_a_deadline(written, world):
    inner = ScriptedTransport(20, refused(), 20, refused(), 20)
    with pytest.raises(A2AClientError):
        await (await written(inner=inner)).get_task(pb.GetTaskRequest(id="1"))
    assert asyncio.get_running_loop().time() <= 30


@sdk("`httpx.AsyncClient()`")
async def an_httpx_client_holds_fast(written, world):
    fake = FakeAgent(url=HERE)
    world.reach(fake)
    fake.inject(unavailable(retry_after=2), on="GetAgentCard")
    async with await written(Transport=holdfast_httpx.Transport) as http:
        card = await http.get(f"{HERE}/.well-known/agent-card.json")
    assert (card.status_code, http.timeout.read) == (200, 120)


@block("ClientConfig(httpx_client=http)")
async def an_sdk_is_given_an_httpx_client(written, world):
    fake = FakeAgent(url=HERE)
    world.reach(fake)
    fake.inject(bad_gateway())
    await written()
    assert world.printed == [(0,)]


async def test_what_is_said_of_the_httpx_transport_is_so():
    fake = FakeAgent("384,400 km", url=HERE, streaming=False)
    carrying = CARRYING(engine=FakeNetwork(fake))
    async with ASYNC_CLIENT(transport=carrying, timeout=120) as http:
        factory = ClientFactory(ClientConfig(httpx_client=http, streaming=False))
        client = await factory.create_from_url(HERE)
        fake.inject(Reset(after_execution=True), on="SendMessage")
        with pytest.raises(A2AClientError):
            [event async for event in client.send_message(send())]
    assert [len(tasks) for tasks in fake.executions.values()] == [1]
    assert called(fake) == ["SendMessage"]  # once, and its task was not looked for


# ── a2a-sdk: in Holdfast's own words ─────────────────────────────────────────────────────────


@block("class Outcomes")
async def a_factory_with_consumers_and_interceptors(written, world):
    fake = FakeAgent(streams("384,400", " km", every=1), url=HERE)
    world.reach(fake)

    await written()

    (received,) = fake.calls("SendStreamingMessage")
    assert received.url == f"{HERE}/rest/message:stream"
    sent = json.loads(received.body)
    assert sent["configuration"]["acceptedOutputModes"] == ["text/plain"]
    assert ("SendStreamingMessage", "went well") in world.printed
    consumed = [words[-1] for words in world.printed if words[:2] == ("Fake agent", "said:")]
    events = [words[0] for words in world.printed if words[-1] in {"SUBMITTED", "WORKING"}]
    assert consumed[: len(events)] == events
    assert "TaskArtifactUpdateEvent" in events
    assert ("TaskStatusUpdateEvent", "COMPLETED") in world.printed
    fake.inject(Fail(code=-32602))
    with pytest.raises(holdfast.InvalidParamsError):
        await written()
    assert world.printed[-1] == ("SendStreamingMessage", "failed")


async def made(written, world, behaviour="384,400 km", **options):
    """A client of a factory with the configuration that is written now; and its agent."""
    fake, names = await world.usual(behaviour, **options)
    push = holdfast.TaskPushNotificationConfig(url="https://me.example/push")
    config = await written(config=push, **names)
    assert isinstance(config, holdfast.ClientConfig)
    return fake, holdfast.ClientFactory(config).create(HERE)


@sdk("`ClientConfig(streaming=False)`")
async def without_streams_tasks_are_polled(written, world):
    fake, client = await made(written, world, completes("384,400 km", after=5))
    assert (await client.ask("How far?")).text == "384,400 km"
    assert set(called(fake)) == {"SendMessage", "GetTask"}


@sdk("`ClientConfig(polling=True)`")
async def polling_returns_at_once(written, world):
    _, client = await made(written, world, completes("384,400 km", after=5))
    task = await written(agent=client)
    assert not task.state.is_terminal


@sdk("`ClientConfig(httpx_client=…)`")
async def an_engine_is_lent(written, world):
    class Lent(FakeNetwork):
        async def close(self):
            raise AssertionError

    fake = FakeAgent(url=HERE)
    config = await written(engine=Lent(fake))
    async with holdfast.ClientFactory(config).create(HERE) as client:
        assert (await client.ask("hello")).text == "hello"
    for kind in (await written(), await written()):
        assert kind in {holdfast.AiohttpEngine, aiohttp.ClientSession}
        async with kind() as engine:
            assert isinstance(holdfast.ClientConfig(engine=engine), holdfast.ClientConfig)


@sdk("`ClientConfig(supported_protocol_bindings=…)`")
async def only_those_bindings_are_used(written, world):
    fake, client = await made(written, world)
    await client.ask("hello")
    assert {each.url.split("/")[3] for each in fake.received} == {".well-known", "rest"}
    assert holdfast.ClientConfig().supported_protocol_bindings == ()


@sdk("`ClientConfig(use_client_preference=True)`")
async def the_clients_order_counts(written, world):
    fake, client = await made(written, world, bindings=("JSONRPC", "HTTP+JSON"))
    await client.ask("hello")
    assert fake.received[-1].url.startswith(f"{HERE}/rest")


@sdk("`ClientConfig(accepted_output_modes=…)`")
async def output_modes_go_with_each_message(written, world):
    fake, client = await made(written, world)
    await client.send_message("hello")
    sent = json.loads(fake.received[-1].body)["params"]
    assert sent["configuration"]["acceptedOutputModes"] == ["text/plain"]


@sdk("`ClientConfig(push_notification_config=…)`, before 1.0 `push_notification_configs`")
async def a_push_configuration_goes_with_each_message(written, world):
    fake, client = await made(written, world)
    await client.send_message("hello")
    sent = json.loads(fake.received[-1].body)["params"]["configuration"]
    assert sent["taskPushNotificationConfig"]["url"] == "https://me.example/push"
    with pytest.raises(ValueError, match="more than the one"):
        holdfast.ClientConfig(
            push_notification_configs=[holdfast.TaskPushNotificationConfig(url=HERE)] * 2
        )


class Counting(holdfast.Interceptor):
    """Counts what it is asked about."""

    def __init__(self):
        self.seen = []

    async def after(self, call, outcome):
        """What came of a call."""
        self.seen.append((call.operation.name, outcome))
        return outcome


@sdk("`ClientFactory(config, consumers)`")
async def a_factory_has_consumers(written, world):
    _, names = await world.usual()
    heard = []
    factory = await written(
        config=holdfast.ClientConfig(), consumer=lambda *told: heard.append(told), **names
    )
    await factory.create(HERE).ask("hello")
    (_, task, card) = heard[-1]
    assert (task.text, card.name) == ("384,400 km", "Fake agent")


@sdk("`factory.create(card, consumers, interceptors)`")
async def a_factory_creates_from_a_card(written, world):
    _, names = await world.usual()
    heard, counting = [], Counting()
    client = await written(
        factory=holdfast.ClientFactory(),
        consumer=lambda *told: heard.append(told),
        interceptor=counting,
        **names,
    )
    await client.ask("hello")
    assert heard
    assert counting.seen
    error = await written()
    only = holdfast.ClientConfig(supported_protocol_bindings=["HTTP+JSON"])
    rpc = FakeAgent(url="http://rpc.test", bindings=("JSONRPC",))
    world.reach(rpc)
    card = await holdfast.connect(rpc.url).agent_card()
    with pytest.raises(error, match="offers only JSONRPC"):
        holdfast.ClientFactory(only).create(card)


@sdk("`factory.create_from_url(url)`, `create_client(url)`")
async def a_card_is_fetched_with_the_first_call(written, world):
    fake, _ = await world.usual()
    client = await written(factory=holdfast.ClientFactory())
    assert fake.received == []
    await client.ask("hello")
    assert fake.received[0].operation == "GetAgentCard"


@sdk("`factory.register(label, producer)`")
async def a_binding_of_ones_own(written, world):
    factory, asked = holdfast.ClientFactory(), []

    class Acme(holdfast.UnaryOnly):
        async def unary(self, call):
            return holdfast.Reply(value=holdfast.Task(id=call.params.id, status=WORKING))

        async def close(self):
            pass

    def producer(card, url, config):
        asked.append((card.name, url, type(config)))
        return Acme()

    assert await written(factory=factory, producer=producer) is None
    interface = holdfast.AgentInterface(url="acme://moon", protocol_binding="ACME")
    card = holdfast.AgentCard(name="Moon", supported_interfaces=(interface,))
    assert (await factory.create(card).get_task("1")).id == "1"
    assert asked == [("Moon", "acme://moon", holdfast.ClientConfig)]


@sdk("`minimal_agent_card(url, transports)`")
async def a_card_that_says_only_where(written, world):
    fake, _ = await world.usual()
    client = holdfast.connect(await written())
    assert (await client.get_extended_agent_card()).name == "Fake agent, extended"
    assert fake.calls("GetAgentCard") == []


@sdk("`A2ACardResolver(httpx_client, base_url, agent_card_path)`")
async def a_resolver_has_a_path(written, world):
    fake, _ = await world.usual()
    async with await written() as resolver:
        with pytest.raises(holdfast.AgentCardResolutionError):
            await resolver.get_agent_card()
    assert fake.received[-1].url == f"{HERE}/card.json"


@sdk("`resolver.get_agent_card(path, http_kwargs)`")
async def a_fetch_has_a_path_headers_and_a_timeout(written, world):
    pages = Pages({f"{HERE}/other.json": json.dumps(card_of("Moon").to_dict()).encode()})
    resolver = holdfast.A2ACardResolver(HERE, engine=pages)
    pages.takes = 20
    with pytest.raises(holdfast.DeadlineExceededError, match="10 s"):
        await written(resolver=resolver)
    (sent,) = pages.requests
    assert (sent.url, sent.headers["x-team"]) == (f"{HERE}/other.json", "moon")
    pages.takes = 0
    assert (await resolver.get_agent_card("/other.json")).name == "Moon"


class Pages(FakeNetwork):
    """A network of pages."""

    def __init__(self, pages):
        super().__init__()
        self.pages, self.requests = pages, []
        self.takes = 0

    async def request(self, request):
        """A page; 404 where there is none."""
        self.requests.append(request)
        await asyncio.sleep(self.takes)
        body = self.pages.get(request.url)
        return holdfast.HttpReply(status=404 if body is None else 200, body=body or b"")


def card_of(name):
    """A card with one interface."""
    interface = holdfast.AgentInterface(
        url=f"{HERE}/rpc", protocol_binding="JSONRPC", protocol_version="1.0"
    )
    return holdfast.AgentCard(name=name, supported_interfaces=(interface,))


@block("extended = await client.get_extended_agent_card()")
async def an_extended_card_replaces_the_clients_own(written, world):
    fake, _ = await world.usual()
    await written()
    assert world.printed == [("Fake agent, extended", ["Echo"])]
    assert fake.calls("GetAgentCard") == []


@block("holdfast.A2ACardResolver(")
async def cards_are_fetched_anew(written, world):
    fake, _ = await world.usual()
    fake.inject(unavailable(retry_after=1), on="GetAgentCard")
    await written()
    assert world.printed == [("Fake agent", ["JSONRPC", "HTTP+JSON"])]
    before = len(fake.received)
    async with holdfast.A2ACardResolver(HERE) as resolver:
        for _ in range(2):
            await resolver.get_agent_card()
    assert len(fake.received) == before + 2


@block("class Acme")
async def a_binding_of_ones_own_is_an_object(written, world):
    await written()
    assert world.printed == [("384,400 km",), ("closed",)]


@sdk("`create_text_message_object(role, content)`")
async def a_message_is_made_of_text(written, world):
    _, names = await world.usual(lambda turn: turn.message.text.upper())
    message = await written()
    assert (message.role, message.text) == (holdfast.Role.USER, "hello")
    assert message.message_id
    for said in (message, await written()):
        assert (await names["agent"].ask(said)).text == "HELLO"


@sdk("`client.send_message(request)`")
async def a_message_is_sent_in_three_ways(written, world):
    fake, names = await world.usual()
    assert (await written(**names)).text == "384,400 km"
    async with await written(**names) as events:
        assert "".join([text async for text in events.text_deltas()]) == "384,400 km"
    assert (await written(**names)).text == "384,400 km"
    assert called(fake).count("SendMessage") == 1


@sdk("`client.get_task(request)`")
async def a_task_is_fetched(written, world):
    fake, names = await world.usual()
    assert (await written(**names)).id == names["task"].id
    assert json.loads(fake.received[-1].body)["params"]["historyLength"] == 10


@sdk("`client.list_tasks(request)`")
async def tasks_are_listed(written, world):
    _, names = await world.usual()
    other = await names["agent"].send_message("another")
    page = await written(**names)
    assert [each.id for each in page.tasks] == [names["task"].id]
    assert set(await written(**names)) == {names["task"].id, other.id}


@sdk("`client.cancel_task(request)`")
async def a_cancel_waits_until_it_is_over(written, world):
    fake, names = await world.usual(works_forever(), cancel_takes=5)
    assert (await written(**names)).state is holdfast.TaskState.CANCELED
    assert "GetTask" in called(fake)


@sdk("`client.subscribe(request)`, before 1.0 `resubscribe`")
async def a_task_is_subscribed_to(written, world):
    fake, names = await world.usual(completes("384,400 km", after=5))
    async with await written(**names) as events:
        assert (await events.result()).text == "384,400 km"
    assert "SubscribeToTask" in called(fake)
    assert fake.open_streams == 0


@sdk(
    "`client.create_task_push_notification_config(config)`, before 1.0 `set_task_callback`",
    "`client.get_task_push_notification_config(request)`, before 1.0 `get_task_callback`",
    "`client.list_task_push_notification_configs(request)`",
    "`client.delete_task_push_notification_config(request)`",
)
async def push_configurations_are_kept_at_the_agent(written, world):
    _, names = await world.usual(works_forever())
    agent, task = names["agent"], names["task"]
    config = holdfast.TaskPushNotificationConfig(
        id="news", task_id=task.id, url="https://me.example/push"
    )
    if "create" not in written.left[0]:
        await agent.create_task_push_notification_config(config)
    name = written.left[0]
    result = await written(config=config, **names)
    kept = (await agent.list_task_push_notification_configs(task.id)).configs
    if "list" in name:
        assert result.configs == kept
    assert [each.id for each in kept] == ([] if "delete" in name else ["news"])
    if "create" in name or "get_task_push" in name:
        assert (result.id, result.url) == ("news", "https://me.example/push")


@sdk("`client.get_extended_agent_card(request)`, before 1.0 `get_card`")
async def the_extended_card_is_fetched(written, world):
    _, names = await world.usual()
    assert (await written(**names)).name == "Fake agent, extended"


@sdk("`client.add_event_consumer(consumer)`")
async def a_consumer_comes_later(written, world):
    _, names = await world.usual()
    heard = []
    await written(consumer=lambda event, task, card: heard.append(task), **names)
    await names["agent"].ask("hello")
    assert heard[-1].text == "384,400 km"


@sdk("`client.add_interceptor(interceptor)`, before 1.0 `add_request_middleware`")
async def an_interceptor_comes_later_and_sees_failures(written, world):
    _, names = await world.usual()
    counting = Counting()
    await written(interceptor=counting, **names)
    with pytest.raises(holdfast.TaskNotFoundError):
        await names["agent"].get_task("nobody's")
    ((operation, outcome),) = counting.seen
    assert operation == "GetTask"
    assert isinstance(outcome, holdfast.TaskNotFoundError)


@sdk("`ClientCallContext(state=…)`")
async def a_context_goes_with_the_call(written, world):
    _, names = await world.usual()
    seen = []

    class Looking(holdfast.Interceptor):
        async def before(self, call):
            seen.append(call.context)
            return call

    await names["agent"].add_request_middleware(Looking())
    await written(**names)
    assert seen[-1].state == {"sessionId": "1"}


@sdk("`ClientCallContext(timeout=…)`")
async def a_call_has_a_timeout(written, world):
    _, names = await world.usual(works_forever())
    with pytest.raises(holdfast.DeadlineExceededError, match="5 s"):
        await written(**names)


@sdk("`ClientCallContext(service_parameters=…)`")
async def a_call_has_headers(written, world):
    fake, names = await world.usual()
    await written(**names)
    assert fake.received[-1].headers["x-team"] == "moon"


@sdk("`client.close()`")
@apcore("`client.close()`")
async def a_client_is_closed(written, world):
    _, names = await world.usual()
    await written(**names)
    with pytest.raises(RuntimeError, match="closed"):
        await names["agent"].ask("hello")


GUARDED = {
    "name": "Guarded",
    "supportedInterfaces": [
        {
            "url": "https://agent.example.com/rpc",
            "protocolBinding": "JSONRPC",
            "protocolVersion": "1.0",
        }
    ],
    "securitySchemes": {"bearerAuth": {"httpAuthSecurityScheme": {"scheme": "bearer"}}},
    "securityRequirements": [{"schemes": {"bearerAuth": {"list": []}}}],
}


@block("AuthInterceptor")
async def each_session_has_its_credentials(written, world):
    fake = FakeAgent("384,400 km", url="https://agent.example.com", card=GUARDED, token="s3cret")
    world.reach(fake)
    names = await written()
    assert world.printed == [("384,400 km",)]

    asks_for_none = FakeAgent("hello", url="https://agent.example.com")
    world.reach(asks_for_none)
    open_to_all = holdfast.connect(asks_for_none.url, auth=names["store"])
    await open_to_all.ask("hello", context=names["context"])
    assert "authorization" not in asks_for_none.received[-1].headers
    world.reach(fake)

    class Store:
        async def get_credentials(self, scheme, context):
            assert (scheme, context) == ("bearerAuth", names["context"])
            return "s3cret"

    kept = holdfast.connect(fake.url, auth=Store())
    assert (await kept.ask("again", context=names["context"])).text == "384,400 km"


@block("ClientTaskManager")
async def events_are_folded_by_hand(written, world):
    world.reach(FakeAgent(streams("384,400", " km"), url=HERE))

    names = await written()

    assert names["task"].text == "384,400 km"
    ((messages, is_kept),) = world.printed
    assert (messages, is_kept) == (2, True)
    manager, before = names["manager"], names["task"]
    event = holdfast.TaskStatusUpdateEvent(task_id=before.id, context_id="another", status=WORKING)
    for foreign in (event, msgspec.structs.replace(event, task_id="2", context_id=None)):
        with pytest.raises(holdfast.InvalidAgentResponseError):
            await manager.save_task_event(foreign)
    assert manager.get_task() == before
    fresh = holdfast.ClientTaskManager()
    assert fresh.get_task() is None
    with pytest.raises(holdfast.InvalidAgentResponseError):
        fresh.get_task_or_raise()
    assert (await fresh.save_task_event(event)).id == before.id


@sdk("`A2AClientError`")
@ag2("`A2AError`")
@apcore("`A2AClientError`")
async def one_error_is_above_all(written, world):
    above = await written()
    for fault in (Refuse(), bad_gateway(), Garbage(), Fail(code=-32001), Fail(code=-32050)):
        assert isinstance(await failing(fault, world), above)


@sdk("`A2AClientHTTPError`, `error.status_code`")
async def a_status_is_an_error(written, world):
    error = await failing(bad_gateway(), world)
    assert type(error) is await written()
    assert await written(error=error) == 502


@sdk("`error.__cause__.response.status_code`")
async def an_error_tells_what_came_back(written, world):
    error = await failing(rate_limited(retry_after=90), world)
    assert await written(error=error) == 429
    assert await written(error=error) == 90
    assert (await written(error=error))["retry-after"] == "90"


@sdk("`A2AClientTimeoutError`")
async def two_times_may_be_over(written, world):
    a_try = await failing(Stall(), world, resilience=OFF)
    a_call = await failing(Stall(), world, timeout=5)
    assert type(a_try) is await written()
    assert type(a_call) is await written()
    both = await written()
    assert isinstance(a_try, both)
    assert isinstance(a_call, both)


@sdk("`A2AClientJSONRPCError`, `error.error.code`")
async def an_answer_that_is_an_error_has_a_class(written, world):
    error = await failing(Fail(code=-32001, data={"taskId": "1"}), world)
    assert await written(error=error) == -32001
    assert await written(error=error) == {"taskId": "1"}
    assert type(error) is await written()


@sdk("`A2AClientJSONError`")
async def a_reply_that_is_no_json_is_an_error(written, world):
    page = Respond(status=200, headers={"content-type": "application/json"}, body=b"{oops")
    assert type(await failing(page, world)) is await written()


@sdk("`A2AClientInvalidStateError`")
async def no_task_yet_is_an_error(written, world):
    with pytest.raises(await written()):
        holdfast.ClientTaskManager().get_task_or_raise()


@sdk("`A2AClientInvalidArgsError`")
async def arguments_that_cannot_be_right_are_told_at_once(written, world):
    fake, names = await world.usual()
    with pytest.raises(await written()):
        await names["agent"].get_task("")
    assert fake.received == []


@sdk("`AgentCardResolutionError`")
async def no_card_is_an_error(written, world):
    with pytest.raises(await written()):
        await REAL["connect"](HERE, engine=Pages({})).agent_card()


def test_what_is_left_out_is_left_out():
    (told,) = re.findall(r"### Left out on purpose\n(.*?)\n## ", TEXT, flags=re.DOTALL)
    names = re.findall(r"`(\w+)`", told.partition(":")[0])
    assert names == ["A2AClient", "A2AGrpcClient", "SendMessageResponse"]
    assert not {*names, "SendMessageSuccessResponse"} & {*dir(holdfast)}


# ── The article ──────────────────────────────────────────────────────────────────────────────

ARTICLE_CODES = {
    "AUTH_REQUIRED": -32001,
    "TASK_NOT_FOUND": -32002,
    "INSUFFICIENT_SCOPE": -32003,
    "RATE_LIMITED": -32004,
    "AGENT_UNAVAILABLE": -32005,
    "TASK_TIMEOUT": -32006,
    "CONTENT_TOO_LARGE": -32007,
    "SKILL_NOT_FOUND": -32008,
}
LATER = {"retryable": True, "retryAfter": 10, "detail": "the model is overloaded"}


@block("SKILL_NOT_FOUND")
async def the_articles_codes_are_kept(written, world):
    fake = FakeAgent(url=HERE)
    world.reach(fake)
    fake.inject(Fail(code=-32008, data={"detail": "no moon here"}))
    await written()
    fake.inject(Fail(code=-32006, message="Task timed out", data=LATER))
    await written()

    assert world.printed[0] == ("it cannot do that:", "no moon here")
    error, transient, retry_after = world.printed[1]
    assert (error.code, transient, retry_after) == (-32006, True, 10.0)
    assert "Task timed out: the model is overloaded" in str(error)
    assert (fake.pending_faults, fake.executions) == ((), {})  # each was sent once


@article("`A2AErrorCode.RATE_LIMITED`")
async def the_codes_have_names(written, world):
    assert await written() == -32004
    assert {code.name: code.value for code in holdfast.ArticleErrorCode} == ARTICLE_CODES


@article("`make_error(code, message, data)`")
async def an_error_is_made(written, world):
    data = {"retryable": True, "retryAfter": 10}
    assert await written() == {"code": -32006, "message": "Task timed out", "data": data}


@article("`A2AError(code, message, data)`")
async def an_error_object_is_read(written, world):
    error = await written()
    assert type(error) is holdfast.AgentError
    assert (error.code, error.transient, error.executed) == (-32006, True, None)
    assert "Task timed out" in str(error)
    not_the_articles = holdfast.A2AError.from_jsonrpc(holdfast.make_error(-32001, "no such task"))
    assert type(not_the_articles) is holdfast.TaskNotFoundError


def late():
    """An error with everything that the article puts into one."""
    return Fail(code=-32004, message="Slow down", data={**LATER, "retryAfter": 90})


@article('`error["code"]`, `error["message"]`')
async def an_error_has_its_code_and_message(written, world):
    error = await failing(late(), world)
    assert await written(error=error) == holdfast.ArticleErrorCode.RATE_LIMITED
    assert "Slow down" in await written(error=error)


@article('`error["data"]["retryable"]`')
async def an_error_says_whether_it_may_pass(written, world):
    for retryable in (True, False):
        fault = Fail(code=-32007, data={"retryable": retryable})
        error = await failing(fault, world, resilience=OFF)
        assert error.transient is retryable
    assert await written(error=error) is False


@article('`error["data"]["retryAfter"]`, the header `Retry-After`')
async def an_error_says_when_to_come_back(written, world):
    by_header = await failing(rate_limited(retry_after=90), world)
    assert by_header.retry_after == 90
    assert await written(error=await failing(late(), world)) == 90


@article('`error["data"]["detail"]`')
async def an_error_has_its_detail(written, world):
    error = await failing(late(), world)
    detail = await written(error=error)
    assert detail == "the model is overloaded"
    assert detail in await written(error=error)


@article("`RETRYABLE_CODES`, `NON_RETRYABLE_CODES`")
async def a_code_says_whether_it_may_pass_where_the_error_does_not(written, world):
    passing = []
    for code in [*holdfast.ArticleErrorCode, -32603, -32700, -32600, -32601, -32602]:
        error = holdfast.A2AError.from_jsonrpc(holdfast.make_error(code, "no", {"detail": "x"}))
        if error.transient:
            passing.append(code)
    assert passing == [-32004, -32005, -32006, -32603]
    assert await written(error=error) is False


@article("`resp.status_code == 429`")
async def http_and_the_agent_are_told_apart(written, world):
    assert await written(error=await failing(rate_limited(), world)) == 429
    assert (await failing(rate_limited(), world)).code is None
    assert await written(error=await failing(late(), world)) == -32004


@article("`RetryConfig(max_retries, base_delay, max_delay, backoff_factor)`")
async def retries_wait_longer_and_longer(written, world):
    policy = await written()
    assert policy == holdfast.RetryPolicy()
    waits = []

    class AlwaysTheLongest:
        wall, new_id = staticmethod(lambda: 0.0), staticmethod(lambda: "id")
        random = staticmethod(lambda: 1 - 1e-9)

    told = msgspec.structs.replace(
        policy, max_retries=6, on_retry=lambda number, error, wait: waits.append(round(wait, 3))
    )
    fake = FakeAgent(url=HERE)
    fake.inject(bad_gateway(), on="GetTask", times=9)
    client = holdfast.connect(
        HERE,
        engine=FakeNetwork(fake),
        resilience=holdfast.Resilience(retry=told, budget=None, breaker=None),
        env=AlwaysTheLongest(),
    )
    with pytest.raises(holdfast.A2AHTTPError):
        await client.get_task("task-1")
    assert waits == [1, 2, 4, 8, 16, 30]


@article("`httpx.Timeout(connect=5, read=60, write=5, pool=10)`")
async def each_wait_has_its_limit(written, world):
    timeouts = await written()
    resilience = msgspec.structs.replace(OFF, timeouts=timeouts)
    for phase, limit in (("connect", 5), ("first_byte", 60), ("idle", 60)):
        error = await failing(Stall(phase=phase), world, resilience=resilience)
        assert (error.phase, error.timeout) == (phase, limit)
    assert (timeouts.write, timeouts.pool) == (5, 10)


@article("`asyncio.timeout(total_timeout)`")
async def the_whole_call_has_its_limit(written, world):
    _, names = await world.usual(works_forever())
    with pytest.raises(holdfast.DeadlineExceededError, match="90 s"):
        await written(**names)


@block("timeouts=holdfast.Timeouts(")
async def limits_are_options(written, world):
    world.reach(FakeAgent("384,400 km", url=HERE))
    names = await written()
    assert world.printed == [("384,400 km",)]
    assert names["resilience"] == holdfast.Resilience(
        timeouts=holdfast.Timeouts(connect=5, first_byte=60, idle=60, write=5, pool=10),
        retry=holdfast.RetryPolicy(max_retries=3, base_delay=1, max_delay=30, backoff_factor=2),
    )
    assert names["agent"].circuit.state == "closed"
    away = FakeAgent(url=HERE)
    away.inject(Stall(), times=99)
    world.reach(away)
    with pytest.raises(holdfast.OutcomeUnknownError, match="no reply began for 60 s"):
        await written()
    world.reach(FakeAgent(works_forever(), url=HERE))
    with pytest.raises(holdfast.DeadlineExceededError, match="90 s"):
        await written()


@pytest.mark.parametrize(
    ("fault", "is_sent_again"),
    [
        (rate_limited(retry_after=1), True),
        (unavailable(retry_after=1), True),
        (Refuse(), True),
        (Fail(code=-32603, after_execution=True, data={"retryable": True}), False),
        (bad_gateway(after_execution=True), False),
        (Respond(status=500, after_execution=True), False),
        (Stall(after_execution=True), False),
    ],
)
async def test_what_is_said_of_sending_again_is_so(fault, is_sent_again):
    fake, seen = FakeAgent("384,400 km", url=HERE, streaming=False), []
    client = REAL["connect"](HERE, engine=FakeNetwork(fake), observers=[seen.append])
    await client.agent_card()
    fake.inject(fault, on="SendMessage")

    with contextlib.suppress(holdfast.InternalError):  # what the agent itself has answered
        assert (await client.ask("How far?")).text == "384,400 km"

    tries = [each for each in seen if isinstance(each, holdfast.AttemptStarted)]
    sent = [each for each in tries if each.operation == "SendMessage"]
    assert len(sent) == (2 if is_sent_again else 1)
    assert [len(tasks) for tasks in fake.executions.values()] == [1]
    fake.inject(fault, on="GetTask")
    assert (await client.get_task("task-1")).id == "task-1"  # a read is repeated


async def test_a_predicate_says_no_to_more():
    policy = holdfast.RetryPolicy(retry_predicate=lambda error: error.http_status != 429)
    fake = FakeAgent(url=HERE)
    client = REAL["connect"](
        HERE, engine=FakeNetwork(fake), resilience=holdfast.Resilience(retry=policy)
    )
    await client.agent_card()
    fake.inject(rate_limited(retry_after=1))
    with pytest.raises(holdfast.RateLimitedError):
        await client.ask("How far?")
    fake.inject(unavailable(retry_after=1))
    assert (await client.ask("How far?")).text == "How far?"


async def several(world, *behaviours, **options):
    """A coordinator of agents at a, b, c …, and these."""
    fakes = [
        FakeAgent(behaviour, url=f"http://{name}.example.com", id_suffix=name)
        for name, behaviour in zip("abc", behaviours, strict=False)
    ]
    world.reach(*fakes, FakeAgent(url=HERE))
    return holdfast.Coordinator([fake.url for fake in fakes], **options), fakes


@article("`ResilientCoordinator(urls)`")
async def a_coordinator_has_agents(written, world):
    made, (fake,) = await several(world, "one")
    await made.close()
    async with await written(urls=[fake.url]) as coordinator:
        assert (await coordinator.delegate(fake.url, "hello")).unwrap().text == "one"
    async with await written() as coordinator:
        assert (await coordinator.delegate("moon", "hello")).unwrap().text == "hello"


@article("3 failures in a row, 30 s")
async def a_circuit_opens_after_three_failures(written, world):
    breaker = await written()
    resilience = holdfast.Resilience(breaker=breaker, retry=holdfast.RetryPolicy(max_retries=0))
    coordinator, (fake,) = await several(world, "one", resilience=resilience)
    await coordinator.delegate(fake.url, "hello")
    fake.inject(Refuse(), times=9)
    for failures in (1, 2, 3):
        await coordinator.delegate(fake.url, "hello")
        health = coordinator.health()[fake.url]
        assert (health.consecutive_failures, health.healthy) == (failures, failures < 3)
    refused = await coordinator.delegate(fake.url, "hello")
    assert isinstance(refused.error, holdfast.CircuitOpenError)
    assert refused.error.retry_after == pytest.approx(30, rel=0.2)
    await coordinator.close()
    assert holdfast.BreakerPolicy().failures == 5


async def with_one_away(world):
    """A coordinator of one agent that is away."""
    resilience = holdfast.Resilience(
        breaker=holdfast.BreakerPolicy.simple(failures=1, open_for=30),
        retry=holdfast.RetryPolicy(max_retries=0),
    )
    coordinator, (fake,) = await several(world, "one", resilience=resilience)
    await coordinator.delegate(fake.url, "hello")
    fake.inject(Refuse(), times=9)
    await coordinator.delegate(fake.url, "hello")
    return {"coordinator": coordinator, "url": fake.url}


@article("`coordinator.is_available(url)`")
async def an_agent_that_is_away_is_not_healthy(written, world):
    names = await with_one_away(world)
    assert await written(**names) is False
    await names["coordinator"].close()


@article("`coordinator.agents[url].consecutive_failures`, `.last_failure`")
async def failures_are_counted(written, world):
    names = await with_one_away(world)
    assert await written(**names) == 1
    assert await written(**names) > 0
    await names["coordinator"].close()


@article("`coordinator.agents[url].circuit_open_until`")
async def it_is_known_when_to_come_back(written, world):
    names = await with_one_away(world)
    until = await written(**names)
    health = names["coordinator"].health()[names["url"]]
    assert health.url == names["url"]
    assert until - health.last_failure == pytest.approx(30, rel=0.2)
    await names["coordinator"].close()


@article("`coordinator.delegate(url, text)`")
async def a_result_says_why_there_is_no_answer(written, world):
    names = await with_one_away(world)
    result = await written(**names)
    assert result.answer is await written()
    assert isinstance(result.error, holdfast.CircuitOpenError)
    await names["coordinator"].close()


@article("`fan_out_resilient(urls, texts, min_results)`")
async def pairs_or_one_message_for_all(written, world):
    def shout(turn):
        return turn.message.text.upper()

    coordinator, fakes = await several(world, shout, fails("no"))
    names = {"urls": [fake.url for fake in fakes], "texts": ["one", "two"]}
    for said in ("ONE", "HELLO"):
        answered, failed = await written(coordinator=coordinator, **names)
        assert (answered.unwrap().text, type(failed.error)) == (said, holdfast.TaskFailedError)
    await coordinator.close()


@article('`RuntimeError("Only 1/3 agents responded …")`')
async def too_few_answers_are_an_error(written, world):
    coordinator, fakes = await several(world, "one", fails("no"), fails("no"))
    with pytest.raises(await written()) as caught:
        await coordinator.fan_out("hello", min_results=2)
    assert len(await written(error=caught.value)) == len(fakes)
    await coordinator.close()


@block("urls = [")
async def many_are_asked_and_some_are_away(written, world):
    unused, fakes = await several(world, *(lambda turn: turn.message.text.upper(),) * 3)
    await unused.close()
    fakes[2].inject(Refuse(), on="GetAgentCard", times=99)
    await written()
    assert [words[:2] for words in world.printed[:2]] == [
        ("http://a.example.com", "ONE"),
        ("http://b.example.com", "TWO"),
    ]
    assert isinstance(world.printed[2][1], holdfast.A2AConnectionError)
    health = [words[1:] for words in world.printed[3:]]
    assert health[:2] == [(True, 0, None)] * 2
    healthy, failures, open_until = health[2]
    assert (healthy, failures >= 3, open_until is not None) == (False, True, True)


DOWNSTREAM = {"currentAgent": "A", "downstreamAgent": "B", "retryable": True}


@article("`wrap_downstream_error(agent, error, current)`")
async def an_error_is_passed_on(written, world):
    error = holdfast.A2AError.from_jsonrpc(holdfast.make_error(-32006, "Task timed out", LATER))
    told = await written(error=error)
    assert told["code"] == -32603
    assert told["data"].items() >= DOWNSTREAM.items()
    below = told["data"]["downstreamError"]
    assert (below["code"], below["data"]["retryable"], below["data"]["retryAfter"]) == (
        -32006,
        True,
        10,
    )
    assert told["message"].startswith("agent B failed")


async def asked_over_http(app):
    """The JSON-RPC error that an application answers with."""
    call = {"jsonrpc": "2.0", "id": "1", "method": "SendMessage", "params": {}}
    reply = await request(
        app, json.dumps(call).encode(), headers=[("content-type", "application/json")]
    )
    answer = json.loads(reply.text)
    assert answer["id"] == "1"
    return answer["error"]


@article("a handler that catches everything")
async def an_agent_answers_with_errors_of_the_protocol(written, world):
    async def page(scope, receive, send):
        headers = [(b"content-type", b"text/html")]
        await send({"type": "http.response.start", "status": 502, "headers": headers})
        await send({"type": "http.response.body", "body": b"<h1>secret</h1>"})

    async def crash(scope, receive, send):
        message = "secret /etc/passwd"
        raise RuntimeError(message)

    async def calls_another(scope, receive, send):
        raise holdfast.A2AConnectionError("refused", failure="refused", agent="B")

    now, apps = written.left.pop(), [page, crash, calls_another]
    for app in apps:
        written.left.append(now)
        error = await asked_over_http(await written(app=app))
        assert error["code"] in {-32000, -32603}
        assert "secret" not in json.dumps(error)
    assert error["data"]["currentAgent"] == "A"


@article("`logger.error(…)` with request ids")
async def failures_are_logged(written, world):
    logger, records = await written(), []
    handler = logging.Handler()
    handler.emit = lambda record: records.append(record.getMessage())
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        error = await failing(bad_gateway(), world, resilience=holdfast.Resilience.standard())
    finally:
        logger.removeHandler(handler)
        logger.setLevel(logging.NOTSET)
    failed = [line for line in records if "failed after" in line]
    assert len(failed) == len(error.attempts) > 1
    for number, line in enumerate(failed, start=1):
        assert f"GetTask {error.request_id} to {HERE}/rpc: attempt {number} failed" in line


@block("ProtocolErrors")
async def an_agent_passes_on_what_went_wrong(written, world):
    fake = FakeAgent(url=HERE)
    fake.inject(Fail(code=-32006, message="Task timed out", data=LATER))
    world.reach(fake)
    names = await written()
    error = await asked_over_http(names["app"])
    assert error["data"].items() >= DOWNSTREAM.items()
    assert error["data"]["downstreamError"]["code"] == -32006
    assert error["data"]["requestId"]
    assert holdfast.A2AError.from_jsonrpc(error).hops == ("B",)


# ── AG2 ──────────────────────────────────────────────────────────────────────────────────────


@block("hitl_hook")
async def a_question_is_answered_on_the_way(written, world):
    def behave(turn):
        if turn.task is None:
            return asks("For when?")
        return completes(f"Booked for {turn.message.text.partition(',')[0]}.")

    fake = FakeAgent(behave, url=HERE)
    world.reach(fake)
    names = await written()
    assert world.printed == [("Booked for tonight.",)]
    assert names["reconnect"] == holdfast.ReconnectPolicy(max_reconnects=3, backoff=0.5)


@ag2("`A2AConfig(card_url=url)`")
@apcore("`A2AClient(url)`")
async def a_client_is_made_of_an_address(written, world):
    await world.usual()
    client = await written()
    assert (await client.ask("hello")).text == "384,400 km"
    if written.left:
        with pytest.raises(await written()):
            holdfast.connect("agent.example.com")


@ag2("`A2AConfig(preset_card=card)`, `A2AConfig.from_card(card)`")
async def a_client_is_made_of_a_card(written, world):
    fake, names = await world.usual()
    await (await written(**names)).ask("hello")
    assert fake.calls("GetAgentCard") == []


@ag2('`prefer="rest"`')
async def a_binding_is_preferred(written, world):
    fake, _ = await world.usual()
    await (await written()).ask("hello")
    assert fake.received[-1].url.startswith(f"{HERE}/rest")


@ag2("`streaming=False`, `polling_interval=0.5`")
async def a_task_is_polled(written, world):
    fake, _ = await world.usual(completes("384,400 km", after=10))
    assert (await written()).text == "384,400 km"
    assert set(called(fake)) == {"SendMessage", "GetTask"}
    looks = [each.at for each in fake.calls("GetTask")]
    assert looks[-1] - looks[-2] == pytest.approx(0.5)


@ag2("`headers=…`")
async def a_client_has_headers(written, world):
    fake, _ = await world.usual()
    await (await written()).ask("hello")
    assert fake.received[-1].headers["x-team"] == "moon"


@ag2("`timeout=60.0`")
@apcore("`timeout=30.0`")
async def a_client_has_a_timeout(written, world):
    seconds = "60" if "60" in written.left[0] else "30"
    await world.usual(works_forever())
    with pytest.raises(holdfast.DeadlineExceededError, match=f"{seconds} s"):
        await (await written()).ask("hello")


@ag2("`max_reconnects=3`, `reconnect_backoff=0.5`")
async def only_reconnects_in_vain_count(written, world):
    resilience = holdfast.Resilience(reconnect=await written())
    fake = FakeAgent(streams(*"abcdef", every=1), url=HERE)
    fake.inject(Cut(after_events=3))
    fake.inject(Cut(after_events=2), on="SubscribeToTask", times=4)
    world.reach(fake)
    client = holdfast.connect(HERE, resilience=resilience)
    async with client.stream_message("hello") as events:
        assert "".join([text async for text in events.text_deltas()]) == "abcdef"
    assert events.reconnects > 3

    fake.inject(Cut(after_events=3))
    fake.inject(Refuse(), on="SubscribeToTask", times=99)
    fake.inject(Refuse(), on="GetTask", times=99)
    with pytest.raises(holdfast.ReconnectError, match="in 3 tries"):
        async with client.stream_message("hello") as events:
            [text async for text in events.text_deltas()]


@ag2("`input_required_timeout=300`")
async def a_hook_has_so_long(written, world):
    async def never(asked):
        await asyncio.sleep(1e6)

    _, names = await world.usual(asks("For when?"))
    conversation = await written(hook=never, **names)
    with pytest.raises(holdfast.TaskInputRequiredError) as caught:
        await conversation.ask("Book a table.")
    assert 300 <= asyncio.get_running_loop().time() < 301
    assert caught.value.task.state is holdfast.TaskState.INPUT_REQUIRED
    assert conversation.is_open


@ag2("`hitl_hook=hook`")
async def a_hook_answers(written, world):
    def behave(turn):
        return asks("For when?") if turn.task is None else completes(turn.message.text)

    _, names = await world.usual(behave)
    conversation = await written(hook=lambda asked: f"{asked.text} Tonight.", **names)
    answer = await conversation.ask("Book a table.")
    assert answer.text == "For when? Tonight."


@ag2("`interceptors=[…]`")
async def a_client_has_interceptors(written, world):
    await world.usual()
    counting = Counting()
    await (await written(interceptor=counting)).ask("hello")
    assert counting.seen


@ag2('`tenant="acme"`')
async def a_client_has_a_tenant(written, world):
    fake, _ = await world.usual()
    await (await written()).ask("hello")
    assert json.loads(fake.received[-1].body)["params"]["tenant"] == "acme"


@ag2("`history_length=5`")
async def a_history_is_shortened(written, world):
    fake, names = await world.usual()
    await written(**names)
    assert json.loads(fake.received[-1].body)["params"]["historyLength"] == 5


@ag2("`extensions=[uri]`")
async def a_client_asks_for_extensions(written, world):
    uri = "urn:acme:moon"
    fake, _ = await world.usual(extensions=[holdfast.AgentExtension(uri=uri)])
    answer = await (await written()).ask("hello")
    assert answer.extensions == (uri,)
    assert fake.received[-1].headers["a2a-extensions"] == uri


@block("def httpx_client_factory")
async def another_client_can_hold_fast_below(written, world):
    fake = FakeAgent(url=HERE)
    world.reach(fake)
    names = await written()
    fake.inject(bad_gateway())
    async with names["httpx_client_factory"]() as http:
        factory = ClientFactory(ClientConfig(httpx_client=http))
        client = await factory.create_from_url(HERE)
        assert (await client.list_tasks(pb.ListTasksRequest())).total_size == 0


@ag2("`httpx_client_factory=…`")
async def an_engine_carries_requests(written, world):
    fake = FakeAgent(url=HERE)
    assert (await (await written(engine=FakeNetwork(fake))).ask("hello")).text == "hello"


def distance(body: str) -> float:
    """How far a body is from the earth, in km."""
    return {"moon": 384400.0}[body]


@ag2("`tools=[function]`")
async def an_agent_calls_functions(written, world):
    agent = Scripted(calls(call(1, "distance", '{"body":"moon"}')), completes("far"))
    answer = await written(agent=agent.client(), function=distance)
    assert answer.text == "far"
    assert agent.results(1)[0][2:] == ("384400.0", None)


@block("error.attempts, error.task.text")
async def a_stream_that_is_lost_leaves_its_task(written, world):
    fake = FakeAgent(streams("384,400", " km", every=1), url=HERE)
    world.reach(fake)
    fake.inject(Cut(after_events=3))
    await written()
    assert world.printed == [("384,400",), (" km",)]

    world.printed.clear()
    fake.inject(Cut(after_events=3))
    fake.inject(Refuse(), on="SubscribeToTask", times=99)
    fake.inject(Refuse(), on="GetTask", times=99)
    names = await written()
    assert world.printed[0] == ("384,400",)
    assert names["reconnect"] == holdfast.ReconnectPolicy(max_reconnects=3, backoff=0.5)
    attempts, text = world.printed[1]
    assert text == "384,400"
    assert [each.number for each in attempts] == list(range(1, len(attempts) + 1))
    assert "refused" in attempts[-1].error


@ag2("`A2AInvalidCardError`")
async def a_card_that_is_not_usable_is_an_error(written, world):
    await world.usual()
    with pytest.raises(await written()) as caught:
        holdfast.connect({"name": "Moon", "supportedInterfaces": [{"url": 7}]})
    assert await written(error=caught.value) == "supportedInterfaces[0].url"


@ag2("`A2AClientToolsNotSupportedError`")
async def tools_need_the_extension(written, world):
    fake, names = await world.usual()
    with pytest.raises(await written()):
        await names["agent"].ask("hello", tools=[distance])
    assert called(fake) == []


@ag2("`A2AExtensionNotSupportedError`, asked for and not declared")
async def what_is_not_declared_is_an_error(written, world):
    fake, names = await world.usual()
    with pytest.raises(await written()) as caught:
        await names["agent"].ask("hello", extensions=["urn:acme:moon"])
    assert await written(error=caught.value) == ("urn:acme:moon",)
    assert called(fake) == []


@ag2("`A2AExtensionNotSupportedError`, required and not asked for")
async def what_is_required_and_not_asked_for_is_an_error(written, world):
    needed = holdfast.AgentExtension(uri="urn:acme:moon", required=True)
    fake = FakeAgent(url=HERE, extensions=[needed])
    world.reach(fake)
    with pytest.raises(await written()) as caught:
        await holdfast.connect(HERE).ask("hello")
    assert await written(error=caught.value) == ("urn:acme:moon",)
    assert called(fake) == []


@ag2("`A2AReconnectError`")
async def a_stream_that_stays_cut_is_an_error(written, world):
    fake, names = await world.usual(streams("a", "b", every=1))
    fake.inject(Cut(after_events=3))
    fake.inject(Refuse(), times=999)
    with pytest.raises(await written()):
        async with names["agent"].stream_message("hello") as events:
            [text async for text in events.text_deltas()]


async def outcome(world, behaviour, **options):
    """What asking raises."""
    _, names = await world.usual(behaviour)
    with pytest.raises(holdfast.A2AError) as caught:
        await names["agent"].ask("hello", **options)
    return caught.value


@ag2("`A2ATaskTerminalError`, `error.task`")
async def a_task_that_ends_badly_is_an_error(written, world):
    above = await written()
    for ends in (fails("no"), rejects("no")):
        error = await outcome(world, ends)
        assert isinstance(error, above)
    assert (await written(error=error)).status.message.text == "no"


@ag2("`A2ATaskFailedError`")
async def a_failed_task_is_an_error(written, world):
    assert type(await outcome(world, fails("no"))) is await written()


@ag2("`A2ATaskRejectedError`")
async def a_rejected_task_is_an_error(written, world):
    assert type(await outcome(world, rejects("no"))) is await written()


@ag2("`A2ATaskAuthRequiredError`")
async def an_authorization_is_waited_for(written, world):
    kind = await written()
    error = await outcome(world, needs_auth("log in there"), timeout=60)
    assert type(error) is kind
    assert issubclass(kind, holdfast.TaskInterruptedError)
    assert not issubclass(kind, holdfast.TaskTerminalError)
    _, names = await world.usual(
        needs_auth("log in there", cleared_after=30, then=completes("welcome"))
    )
    assert (await names["agent"].ask("hello", timeout=60)).text == "welcome"


@block("def distance")
async def an_agent_calls_a_function_here(written, world):
    agent = Scripted(
        calls(call(1, "distance", '{"body":"moon"}')), completes("384,400 km"), url=HERE
    )
    world.reach(agent.agent)
    await written()
    assert world.printed == [("384,400 km",)]
    assert agent.results(1)[0][2:] == ("384400.0", None)
    assert agent.agent.received[-1].headers["a2a-extensions"] == "urn:ag2:client-tools:v1"


# ── apcore-a2a ───────────────────────────────────────────────────────────────────────────────


@block("image.resize")
async def a_message_is_a_dict(written, world):
    fake = FakeAgent(url=HERE, token="t0ken")
    world.reach(fake)
    names = await written()
    assert world.printed == [("TASK_STATE_COMPLETED",)]
    assert names["task"].text == "resize to 800x600"
    sent = json.loads(fake.received[-1].body)["params"]
    assert sent["metadata"] == {"skillId": "image.resize"}
    assert "contextId" not in sent["message"]


@apcore('`auth="Bearer …"`')
async def a_client_has_credentials(written, world):
    world.reach(FakeAgent(url=HERE, token="t0ken"))
    assert (await (await written()).ask("hello")).text == "hello"


@apcore("`card_ttl=300.0`")
async def a_card_is_kept(written, world):
    fake, _ = await world.usual()
    client = await written()
    for seconds, fetched in ((0, 1), (299, 1), (2, 2)):
        await asyncio.sleep(seconds)
        await client.agent_card()
        assert len(fake.received) == fetched


@apcore("`await client.agent_card`")
@apcore("`client.discover()`")
@apcore("`AgentCardFetcher(http, base_url, ttl=300.0)`")
async def the_card_is_fetched_and_kept(written, world):
    shown = json.dumps(card_of("Moon").to_dict()).encode()
    older = Pages({f"{HERE}/.well-known/agent.json": shown})
    client = REAL["connect"](HERE, engine=older)
    assert (await written(agent=client)).name == "Moon"
    assert (await client.agent_card()).name == "Moon"
    paths = [each.url.removeprefix(HERE) for each in older.requests]
    assert paths == ["/.well-known/agent-card.json", "/.well-known/agent.json"]


@apcore("`client.send_message(message, metadata=…, context_id=…)`")
@apcore("`client.stream_message(message, metadata=…, context_id=…)`")
async def a_dict_is_sent_with_metadata_and_context(written, world):
    fake, names = await world.usual()
    result = await written(**names)
    if isinstance(result, holdfast.EventStream):
        async with result as events:
            result = (await events.result()).task
    assert (result.text, result.context_id) == ("384,400 km", "c-1")
    (received,) = fake.calls("SendMessage") or fake.calls("SendStreamingMessage")
    sent = json.loads(received.body)["params"]
    assert (sent["metadata"], sent["message"]["contextId"]) == ({"skillId": "echo"}, "c-1")


@apcore("`client.get_task(task_id)`")
async def a_task_is_fetched_by_id(written, world):
    _, names = await world.usual()
    assert (await written(**names)).id == names["task"].id


@apcore("`client.cancel_task(task_id)`")
async def a_task_is_canceled(written, world):
    _, names = await world.usual(works_forever())
    assert (await written(**names)).state is holdfast.TaskState.CANCELED


@apcore("`client.list_tasks(context_id, limit)`")
async def tasks_of_a_context_are_listed(written, world):
    fake, names = await world.usual()
    await names["agent"].send_message("another")
    assert [each.id for each in (await written(**names)).tasks] == [names["task"].id]
    assert json.loads(fake.received[-1].body)["params"]["pageSize"] == 50


@apcore('`result["tasks"]`, `result["nextCursor"]`')
async def a_page_has_a_cursor(written, world):
    _, names = await world.usual()
    await names["agent"].send_message("another")
    page = await names["agent"].list_tasks(limit=1)
    assert len(await written(page=page)) == 1
    rest = await names["agent"].list_tasks(limit=1, page_token=await written(page=page))
    assert (len(rest.tasks), rest.next_page_token) == (1, "")
    assert rest.tasks != page.tasks


@apcore("`A2AConnectionError`")
async def no_connection_is_an_error(written, world):
    assert isinstance(await failing(Refuse(), world), await written())
    assert isinstance(await failing(bad_gateway(), world), await written())


@apcore("`A2ADiscoveryError`")
async def no_usable_card_is_an_error(written, world):
    with pytest.raises(await written()):
        await REAL["connect"](HERE, engine=Pages({})).agent_card()
    oops = Pages({f"{HERE}/.well-known/agent-card.json": b"{oops"})
    with pytest.raises(await written()):
        await REAL["connect"](HERE, engine=oops).agent_card()


@apcore("`TaskNotFoundError`")
async def a_task_that_is_not_there_is_named(written, world):
    _, names = await world.usual()
    with pytest.raises(await written()) as caught:
        await names["agent"].get_task("nobody's")
    assert await written(error=caught.value) == "nobody's"


@apcore("`TaskNotCancelableError`")
async def a_task_that_is_over_cannot_be_canceled(written, world):
    _, names = await world.usual()
    with pytest.raises(await written()) as caught:
        await names["agent"].cancel_task(names["task"].id)
    assert await written(error=caught.value) is holdfast.TaskState.COMPLETED


@apcore("`A2AServerError`")
async def an_error_inside_of_the_agent(written, world):
    assert type(await failing(Fail(code=-32603), world)) is await written()
    assert type(await failing(Fail(code=-32050), world)) is await written()


@block("page.next_page_token")
async def a_list_goes_on(written, world):
    fake, names = await world.usual()
    for number in range(60):
        await names["agent"].send_message(f"{number}", return_immediately=True)
    await written()
    ((ids,),) = world.printed
    assert len(fake.calls("ListTasks")) == 2
    assert len(ids) == 61 - 50


def test_importing_loads_no_server_code():
    program = (
        "import sys, holdfast\n"
        "for name in holdfast.__all__: getattr(holdfast, name)\n"
        "print([name for name in sys.modules if name.startswith('holdfast.server')])"
    )
    told = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60
    )
    assert told.stdout == "[]\n"


# ── What runs it all ─────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.section[:6]}: {row.wrote}")
async def test_a_row_is_as_it_says(row, monkeypatch):
    written = Written(row)

    await ROW_CHECKS[row.section, row.wrote](written, World(monkeypatch))

    assert written.left == []


def test_every_row_has_a_check_and_every_check_a_row():
    named = [(row.section, row.wrote) for row in ROWS]
    assert len(named) == len(set(named)) > 80
    assert set(named) == set(ROW_CHECKS)
    lines = [line for line in TEXT.splitlines() if line.startswith("|")]
    assert len(lines) == len(ROWS) + 2 * lines.count("| you wrote | you write now |")
    assert all(row.code for row in ROWS)


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(text, marks=[pytest.mark.real_time] if real_time else [])
        for text, (_, real_time) in BLOCK_CHECKS.items()
    ],
)
async def test_a_block_runs_as_it_stands(text, monkeypatch):
    (code,) = (each for each in BLOCKS if text in each)
    world, runs = World(monkeypatch), []

    async def written(**names):
        runs.append(code)
        return await execute(code, print=world.print, **names)

    check, _ = BLOCK_CHECKS[text]
    await check(written, world)

    assert runs


def test_every_block_has_one_check():
    assert len(BLOCKS) == len(BLOCK_CHECKS) == TEXT.count("```") // 2
    for code in BLOCKS:
        assert len([text for text in BLOCK_CHECKS if text in code]) == 1, code


def test_every_block_says_what_it_imports():
    assert all(code.startswith(("import ", "from ")) for code in BLOCKS)


def test_every_link_leads_somewhere():
    headings = re.findall(r"^#+ (.*)$", TEXT, flags=re.MULTILINE)
    anchors = {"#" + re.sub(r"[^\w -]", "", one).lower().replace(" ", "-") for one in headings}
    for target in re.findall(r"\]\(([^)]+)\)", TEXT):
        assert target in anchors or (PAGE.parent / target).is_file()
