"""What docs/howto/from-a2a-sdk.md says of keeping the SDK's client runs as it stands."""

import asyncio
import contextlib
import functools
import os
import tempfile
import textwrap
from pathlib import Path

import httpx
import pytest
from a2a.client import A2ACardResolver, Client, ClientConfig, ClientFactory
from a2a.client.errors import (
    A2AClientError,
    A2AClientTimeoutError,
    AgentCardResolutionError,
)
from a2a.client.transports.base import ClientTransport
from a2a.helpers import get_stream_response_text
from a2a.server.agent_execution import SimpleRequestContextBuilder
from a2a.server.tasks import (
    BasePushNotificationSender,
    InMemoryPushNotificationConfigStore,
    InMemoryTaskStore,
)
from a2a.types import a2a_pb2 as pb
from a2a.utils.errors import TaskNotFoundError as SdkTaskNotFoundError
from a2a.utils.signing import create_agent_card_signer
from tests.kit.card_signing import Signer
from tests.kit.coming_from import ASYNC_CLIENT, CARRYING, HERE, OFF, Guide, Row, Written, called
from tests.kit.faulty_agent import Answer, FaultyAgent
from tests.kit.faulty_agent import Cut as CutStream
from tests.kit.raw_server import serve
from tests.kit.real_agents import LIMIT, PACKAGE, sdk_process, sdk_python
from tests.kit.sdk_clients import card_of
from tests.kit.sdk_transports import Scripted as ScriptedTransport
from tests.kit.sdk_transports import refused, status_error, timed_out, unanswered
from tests.kit.tls_files import Files

import holdfast
import holdfast.integrations.httpx as holdfast_httpx
from holdfast.integrations import a2a_sdk
from holdfast.server import A2AServer
from holdfast.testing import (
    AsgiNetwork,
    Cut,
    Fail,
    FakeAgent,
    FakeNetwork,
    Reset,
    Stall,
    bad_gateway,
    completes,
    needs_auth,
    rate_limited,
    streams,
    unavailable,
    works_forever,
)

guide = Guide(
    "from-a2a-sdk",
    "Keep the SDK's client",
    "RetryTransport",
    "An httpx client with retries",
    "Time limits of a stream",
    "Settings of your httpx client",
    "Arguments",
    "Google ADK",
    "Serve an agent",
)
row, block = guide.row, guide.block


@block("factory = client_factory(ClientConfig())")
async def one_line_changes(written, world):
    fake = FakeAgent(streams("384,400", " km", every=1), url=HERE)
    world.reach(fake)
    fake.inject(rate_limited(retry_after=5))
    fake.inject(Cut(after_events=3))

    await written()

    assert "".join(text for (text,) in world.printed) == "384,400 km"
    assert "SubscribeToTask" in called(fake)
    assert [len(tasks) for tasks in fake.executions.values()] == [1]


async def test_after_a_lost_reply_the_first_event_is_the_task_with_the_text_so_far():
    fake = FakeAgent("384,400 km", url=HERE)
    factory = a2a_sdk.client_factory(engine=FakeNetwork(fake))
    async with factory.create(card_of(fake)) as client:
        fake.inject(Reset(after_execution=True), on="SendStreamingMessage")
        events = [event async for event in client.send_message(send())]

    assert events[0].HasField("task")
    texts = [get_stream_response_text(event) for event in events]
    assert "".join(texts) == "384,400 km"


@block("async with asyncio.timeout(60)")
async def a_whole_stream_is_bounded(written, world):
    fake = FakeAgent(works_forever(), url=HERE)
    world.reach(fake)

    await written()

    assert world.printed[-1] == ("The agent took too long.",)


@block("class MyExecutor")
async def an_executor_is_served(written, world):
    names = await written()
    async with AsgiNetwork({HERE: names["app"]}) as network:
        async with holdfast.connect(HERE, engine=network) as client:
            answer = await client.ask("How far is the moon?")
            card = await client.agent_card()
        await names["server"].close()
    assert (answer.text, card.name) == ("384,400 km", "moon")


def send():
    """A message, as the SDK has it."""
    part = pb.Part(text="hello")
    return pb.SendMessageRequest(
        message=pb.Message(message_id="1", role=pb.ROLE_USER, parts=[part])
    )


class OfHttpx(httpx.Auth):
    """Credentials of the SDK's user."""


class Provider:
    """The same, as Holdfast has them."""

    async def credentials(self, call, /):
        return holdfast.auth.Credentials(query={"key": "1"})

    async def on_unauthorized(self, call, error, /):
        return False


SETTINGS = {
    "auth=": {"auth": OfHttpx()},
    "event_hooks=": {"event_hooks": {"request": [print]}},
    "verify=False": {"verify": False},
    "proxy=": {"proxy": "http://proxy.test:8080"},
    "params=": {"params": {"key": "1"}},
}


@row(
    "`httpx.AsyncClient(auth=…)`, an `httpx.Auth`",
    "`httpx.AsyncClient(event_hooks=…)`",
    "`httpx.AsyncClient(verify=False)`",
    "`httpx.AsyncClient(proxy=…)`, `mounts`, `transport`",
    "`httpx.AsyncClient(params=…)`",
)
async def a_setting_of_the_httpx_client_is_refused_until_its_option_is_passed(written, world):
    [settings] = [values for name, values in SETTINGS.items() if name in written.wrote]
    fake = FakeAgent(url=HERE)
    names = {"engine": FakeNetwork(fake), "observer": print, "layer": holdfast.extend.BaseLayer}
    with tempfile.TemporaryDirectory() as directory, contextlib.chdir(directory):
        assert Files(Path(directory)).ca.name == "ca.pem"
        async with ASYNC_CLIENT(**settings) as http:
            config = ClientConfig(httpx_client=http)
            with pytest.raises(ValueError, match="to client_factory instead"):
                a2a_sdk.client_factory(config).create(card_of(fake))
            while written.left:
                made = await written(config=config, provider=Provider(), **names)
                if isinstance(made, ClientFactory):
                    made.create(card_of(fake))
                else:
                    assert made == await Provider().credentials(None)


async def test_what_is_taken_over_of_the_httpx_client_is_so():
    fake = FakeAgent(url=HERE)
    options = {"headers": {"x-team": "moon"}, "cookies": {"a": "b"}, "auth": ("ann", "pass")}
    options |= {
        "base_url": "http://x",
        "follow_redirects": True,
        "limits": httpx.Limits(max_connections=5),
    }
    async with ASYNC_CLIENT(**options) as http:
        config = ClientConfig(httpx_client=http)
        factory = a2a_sdk.client_factory(config, engine=FakeNetwork(fake))
        async with factory.create(card_of(fake)) as client:
            http.headers["x-team"] = "sun"
            await client.list_tasks(pb.ListTasksRequest())
    headers = fake.received[-1].headers
    assert (headers["x-team"], headers["cookie"]) == ("sun", "a=b")
    assert headers["authorization"].startswith("Basic ")
    assert "httpx" not in headers["user-agent"]


async def test_auth_required_does_not_end_the_loop():
    fake = FakeAgent(needs_auth("Log in", cleared_after=60, then=completes("done")), url=HERE)
    factory = a2a_sdk.client_factory(engine=FakeNetwork(fake))
    async with factory.create(card_of(fake)) as client:
        events = [event async for event in client.send_message(send())]
    states = [event.status_update.status.state for event in events]
    assert pb.TASK_STATE_AUTH_REQUIRED in states
    assert "".join(get_stream_response_text(event) for event in events).endswith("done")


async def test_a_silent_stream_is_resumed_and_raises_no_timeout():
    fake = FakeAgent(streams("384,400", " km", every=1), url=HERE)
    fake.inject(Stall(phase="idle", after_events=3), on="SendStreamingMessage")
    async with ASYNC_CLIENT(timeout=2) as http:
        config = ClientConfig(httpx_client=http)
        factory = a2a_sdk.client_factory(config, engine=FakeNetwork(fake))
        async with factory.create(card_of(fake)) as client:
            events = [event async for event in client.send_message(send())]
    assert "SubscribeToTask" in called(fake)
    assert events[-1].status_update.status.state == pb.TASK_STATE_COMPLETED


async def test_only_create_from_url_retries_the_request_of_the_card():
    fake = FakeAgent(url=HERE)
    bare = CARRYING(engine=FakeNetwork(fake), resilience=OFF)
    async with ASYNC_CLIENT(transport=bare) as http:
        fake.inject(unavailable(retry_after=1), on="GetAgentCard")
        with pytest.raises(AgentCardResolutionError):
            await A2ACardResolver(http, HERE).get_agent_card()
        fake.inject(unavailable(retry_after=1), on="GetAgentCard")
        config = ClientConfig(httpx_client=http)
        factory = a2a_sdk.client_factory(config, engine=FakeNetwork(fake))
        assert isinstance(await factory.create_from_url(HERE), Client)


@row("`ClientFactory(config)`")
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


@row('`factory.register("JSONRPC", producer)`')
async def the_transport_is_registered_alone(written, world):
    fake = FakeAgent("384,400 km", url=HERE)
    network = world.reach(fake)
    factory = ClientFactory(ClientConfig(streaming=False))
    carried = functools.partial(a2a_sdk.HoldfastTransport, engine=network)
    await written(factory=factory, HoldfastTransport=carried)
    async with await factory.create_from_url(HERE) as client:
        fake.inject(rate_limited(retry_after=5))
        assert (await client.list_tasks(pb.ListTasksRequest())).total_size == 0


@row("`ClientConfig(retry_config=…)`, as proposed")
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


@row("`RetryTransport(transport)`, as proposed")
async def a_transport_of_the_sdk_is_tried_again(written, world):
    kinds = [refused(), status_error(429), status_error(502), status_error(503)]
    for cause in (*kinds, status_error(504), timed_out(), unanswered()):
        inner = ScriptedTransport(cause)
        code = written.left[0]
        transport = await Written(Row("", f"`{code}`"))(inner=inner)
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


@row("`retry_predicate=…`")
async def a_predicate_decides(written, world):
    assert a2a_sdk.default_retry_predicate(status_error(502)) is True
    inner = ScriptedTransport(status_error(502))
    transport = await written(inner=inner, predicate=lambda error: False)
    with pytest.raises(A2AClientError):
        await transport.get_task(pb.GetTaskRequest(id="1"))
    assert await written() is a2a_sdk.default_retry_predicate


@row("`on_retry=…`")
async def a_callback_is_told(written, world):
    told, code = [], written.left[0]

    async def later(*facts):
        told.append(facts)

    for callback in (later, lambda *facts: told.append(facts)):
        one = Written(Row("", f"`{code}`"))
        transport = await one(inner=ScriptedTransport(refused()), callback=callback)
        await transport.get_task(pb.GetTaskRequest(id="1"))
    assert [(number, type(error)) for number, error, _ in told] == [(1, A2AClientError)] * 2
    await written(inner=ScriptedTransport(), callback=later)


@row("a loop that sends again after any failure")
async def a_message_may_be_sent_again(written, world):
    inner = ScriptedTransport(timed_out())
    await (await written(inner=inner)).send_message(send())
    assert len(inner.calls) == 2


@row("a deadline around the loop")
async def all_tries_have_a_deadline(written, world):
    inner = ScriptedTransport(20, refused(), 20, refused(), 20)
    with pytest.raises(A2AClientTimeoutError):
        await (await written(inner=inner)).get_task(pb.GetTaskRequest(id="1"))
    assert asyncio.get_running_loop().time() == 30


@row("`httpx.AsyncClient()`")
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


@pytest.mark.parametrize(
    ("given", "options", "seconds"),
    [
        (5, {"retry_config": a2a_sdk.RetryConfig(max_retries=0)}, holdfast.Timeouts().first_byte),
        (7, {"retry_config": a2a_sdk.RetryConfig(max_retries=0)}, 7),
        (7, {"resilience": OFF}, OFF.timeouts.first_byte),
    ],
    ids=["5 s", "7 s", "7 s and resilience"],
)
async def test_what_is_said_of_the_timeouts_of_a_borrowed_client_is_so(given, options, seconds):
    fake = FakeAgent(url=HERE)
    network = FakeNetwork(fake)
    async with ASYNC_CLIENT(transport=CARRYING(engine=network), timeout=given) as http:
        config = ClientConfig(httpx_client=http)
        factory = a2a_sdk.client_factory(config, engine=network, **options)
        client = await factory.create_from_url(HERE)
        fake.inject(Stall())
        with pytest.raises(A2AClientTimeoutError):
            await client.get_task(pb.GetTaskRequest(id="1"))
    assert asyncio.get_running_loop().time() == pytest.approx(seconds)


async def test_what_is_said_of_the_five_seconds_is_so():
    fake = FakeAgent(url=HERE)
    fake.inject(Stall(), on="GetAgentCard")
    carrying = CARRYING(engine=FakeNetwork(fake), resilience=OFF)
    async with ASYNC_CLIENT(transport=carrying) as http:
        with pytest.raises(httpx.ReadTimeout):
            await http.get(f"{HERE}/.well-known/agent-card.json")
    assert asyncio.get_running_loop().time() == pytest.approx(5)


@row(
    "`DefaultRequestHandler(agent_executor, task_store, agent_card)`",
    "`push_config_store=…`",
    "`push_sender=…`, `push_url_validator=…`",
    "`extended_agent_card=…`",
    "`request_context_builder=…`, `queue_manager=…`, `extended_card_modifier=…`, "
    "`validate_input_modes=…`, `event_stream=…`, `interrupted_task_timeout=…`",
    "`create_agent_card_routes(card, card_modifier=…)`",
    "`create_agent_card_signer(key, header)`",
    "`create_jsonrpc_routes(handler, rpc_url)`, `create_rest_routes(handler)`",
    "`context_builder=…`",
    "`enable_v0_3_compat=True`",
)
async def a_server_takes_what_the_sdks_took(written, world):
    def executor(message):
        return "384,400 km"

    async def validator(url):
        return True

    card, code = {"name": "moon"}, written.left[0]
    made = await written(
        A2AServer=A2AServer,
        builder=SimpleRequestContextBuilder(),
        caller_of=lambda headers: "caller",
        card=card,
        create_agent_card_signer=create_agent_card_signer,
        executor=executor,
        extended={"name": "moon", "description": "For callers with a name."},
        header={"alg": "ES256", "kid": "2026", "jku": None, "typ": "JOSE"},
        key=Signer().key,
        modifier=lambda card: card,
        sender=BasePushNotificationSender(ASYNC_CLIENT(), InMemoryPushNotificationConfigStore()),
        server=A2AServer(executor, card=card),
        store=InMemoryPushNotificationConfigStore(),
        task_store=InMemoryTaskStore(),
        validator=validator,
    )
    app = made.app(url=HERE) if isinstance(made, A2AServer) else made
    async with (
        AsgiNetwork({HERE: app}) as network,
        holdfast.connect(HERE, engine=network) as client,
    ):
        assert (await client.ask("How far is the moon?")).text == "384,400 km"
        signatures = (await client.agent_card()).signatures
    assert bool(signatures) == ("create_agent_card_signer" in code)


@block("RemoteA2aAgent(", marks=[pytest.mark.adk, pytest.mark.sdk, pytest.mark.real_time])
async def adk_is_given_both(written, world):
    code = textwrap.indent(written.elsewhere(), "    ")
    program = f"import asyncio\n\nasync def main():\n{code}\nasyncio.run(main())\n"
    faults = [Answer(429, ("Retry-After: 0",)), CutStream("close", 1)]
    with (
        tempfile.TemporaryDirectory() as directory,
        sdk_process(Path(directory, "stderr")) as agent,
    ):
        async with asyncio.timeout(LIMIT * 3), serve(FaultyAgent(agent, faults)) as server:
            process = await asyncio.create_subprocess_exec(
                *(sdk_python("HOLDFAST_ADK_PYTHON", ".venv-adk"), "-c"),
                program.replace(HERE, server.url.rstrip("/")),
                env={**os.environ, "PYTHONPATH": str(PACKAGE)},
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
            )
            told, errors = await process.communicate()
    assert (process.returncode, told) == (0, b"How far is the moon?\n"), errors.decode()


@guide.each_row
async def test_a_row_is_as_it_says(row, monkeypatch):
    await guide.run_row(row, monkeypatch)


@guide.each_block
async def test_a_block_runs_as_it_stands(text, monkeypatch):
    await guide.run_block(text, monkeypatch)


def test_every_row_and_every_block_is_checked():
    guide.check_complete()
