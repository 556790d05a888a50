"""What docs/howto/from-a2a-sdk.md says of replacing the SDK's client runs as it stands."""

import contextlib
import functools
import json
import re
import tempfile
from pathlib import Path

import a2a.client.interceptors
import a2a.client.service_parameters
import a2a.helpers
import a2a.types
import a2a.utils.errors
import a2a.utils.signing
import aiohttp
import grpc
import msgspec
import pytest
from a2a.server.request_handlers.response_helpers import agent_card_to_dict
from a2a.types import a2a_pb2 as pb
from grpc import aio
from tests.kit.authorization_server import FakeAuthorizationServer
from tests.kit.card_signing import DOCUMENT, SIGNER, Signer, as_sdk_signs
from tests.kit.coming_from import (
    HERE,
    OFF,
    REAL,
    WORKING,
    Counting,
    Guide,
    Pages,
    a_client_is_closed,
    called,
    card_of,
    failing,
    one_error_is_above_all,
)
from tests.kit.grpc_agent import SERVICE, TASK, grpc_agent
from tests.kit.grpc_agent import card_of as grpc_card
from tests.kit.tls_files import Files

import holdfast
from holdfast.auth import oauth
from holdfast.integrations import a2a_sdk
from holdfast.testing import (
    Fail,
    FakeAgent,
    FakeNetwork,
    Refuse,
    Respond,
    Stall,
    asks,
    bad_gateway,
    completes,
    crashes,
    fails,
    needs_auth,
    rate_limited,
    streams,
    unavailable,
    works_forever,
)

guide = Guide(
    "from-a2a-sdk",
    "Replace the SDK's client",
    "Making a client",
    "Signed cards",
    "Fetch cards",
    "A binding of your own",
    "Calling",
    "Enter a stream before you read it",
    "Interceptors",
    "Convert messages of the SDK",
    "Credentials",
    "ClientTaskManager",
    "Errors",
    "Left out on purpose",
    "See also",
)
row, block = guide.row, guide.block
REAL_TIME = pytest.mark.real_time


async def completed(request, context):
    return TASK


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
    with pytest.raises(holdfast.errors.InvalidParamsError):
        await written()
    assert world.printed[-1] == ("SendStreamingMessage", "failed")


async def made(written, world, behaviour="384,400 km", **options):
    """A client of a factory with the configuration that is written now; and its agent."""
    fake, names = await world.usual(behaviour, **options)
    push = holdfast.types.TaskPushNotificationConfig(url="https://me.example/push")
    config = await written(config=push, **names)
    assert isinstance(config, holdfast.compat.ClientConfig)
    return fake, holdfast.compat.ClientFactory(config).create(HERE)


@row("`ClientConfig(streaming=False)`")
async def without_streams_tasks_are_polled(written, world):
    fake, client = await made(written, world, completes("384,400 km", after=5))
    assert (await client.ask("How far?")).text == "384,400 km"
    assert set(called(fake)) == {"SendMessage", "GetTask"}


@row("`ClientConfig(polling=True)`")
async def polling_returns_at_once(written, world):
    _, client = await made(written, world, completes("384,400 km", after=5))
    task = await written(agent=client)
    assert not task.state.is_terminal


@row("`ClientConfig(httpx_client=…)`")
async def an_engine_is_lent(written, world):
    class Lent(FakeNetwork):
        async def close(self):
            raise AssertionError

    fake = FakeAgent(url=HERE)
    config = await written(engine=Lent(fake))
    async with holdfast.compat.ClientFactory(config).create(HERE) as client:
        assert (await client.ask("hello")).text == "hello"
    for kind in (await written(), await written()):
        assert kind in {holdfast.AiohttpEngine, aiohttp.ClientSession}
        async with kind() as engine:
            assert isinstance(
                holdfast.compat.ClientConfig(engine=engine), holdfast.compat.ClientConfig
            )


@row(
    '`httpx.AsyncClient(headers={"Authorization": …})`',
    "`httpx.AsyncClient(headers=…)`, other headers",
)
async def headers_of_the_httpx_client_are_options(written, world):
    fake = FakeAgent("384,400 km", url="https://agent.example.com")
    world.reach(fake)
    await (await written()).ask("hello")
    name, value = (
        ("x-team", "moon") if "other" in written.wrote else ("authorization", "Bearer s3cret")
    )
    assert fake.received[-1].headers[name] == value


@row("`ClientConfig(supported_protocol_bindings=…)`")
async def only_those_bindings_are_used(written, world):
    fake, client = await made(written, world)
    await client.ask("hello")
    assert {each.url.split("/")[3] for each in fake.received} == {".well-known", "rest"}
    assert holdfast.compat.ClientConfig().supported_protocol_bindings == ()


@row("`ClientConfig(use_client_preference=True)`")
async def the_clients_order_counts(written, world):
    fake, client = await made(written, world, bindings=("JSONRPC", "HTTP+JSON"))
    await client.ask("hello")
    assert fake.received[-1].url.startswith(f"{HERE}/rest")


@row("`ClientConfig(accepted_output_modes=…)`")
async def output_modes_go_with_each_message(written, world):
    fake, client = await made(written, world)
    await client.send_message("hello")
    sent = json.loads(fake.received[-1].body)["params"]
    assert sent["configuration"]["acceptedOutputModes"] == ["text/plain"]


@row("`ClientConfig(push_notification_config=…)`, before 1.0 `push_notification_configs`")
async def a_push_configuration_goes_with_each_message(written, world):
    fake, client = await made(written, world)
    await client.send_message("hello")
    sent = json.loads(fake.received[-1].body)["params"]["configuration"]
    assert sent["taskPushNotificationConfig"]["url"] == "https://me.example/push"
    with pytest.raises(ValueError, match="at most one config"):
        holdfast.compat.ClientConfig(
            push_notification_configs=[holdfast.types.TaskPushNotificationConfig(url=HERE)] * 2
        )


@row("`ClientFactory(config, consumers)`")
async def a_factory_has_consumers(written, world):
    _, names = await world.usual()
    heard = []
    factory = await written(
        config=holdfast.compat.ClientConfig(), consumer=lambda *told: heard.append(told), **names
    )
    await factory.create(HERE).ask("hello")
    (_, task, card) = heard[-1]
    assert (task.text, card.name) == ("384,400 km", "Fake agent")


@row("`factory.create(card, consumers, interceptors)`")
async def a_factory_creates_from_a_card(written, world):
    _, names = await world.usual()
    heard, counting = [], Counting()
    client = await written(
        factory=holdfast.compat.ClientFactory(),
        consumer=lambda *told: heard.append(told),
        interceptor=counting,
        **names,
    )
    await client.ask("hello")
    assert heard
    assert counting.seen
    error = await written()
    only = holdfast.compat.ClientConfig(supported_protocol_bindings=["HTTP+JSON"])
    rpc = FakeAgent(url="http://rpc.test", bindings=("JSONRPC",))
    world.reach(rpc)
    card = await holdfast.connect(rpc.url).agent_card()
    with pytest.raises(error, match="offers only JSONRPC"):
        holdfast.compat.ClientFactory(only).create(card)


@row("`factory.create_from_url(url)`, `create_client(url)`")
async def a_card_is_fetched_with_the_first_call(written, world):
    fake, _ = await world.usual()
    factory = holdfast.compat.ClientFactory()
    client = await written(factory=factory)
    assert [each.operation for each in fake.received] == ["GetAgentCard"]
    await client.ask("hello")
    assert fake.received[1].operation == "SendStreamingMessage"
    fake.received.clear()
    client = await written(factory=factory)
    assert fake.received == []
    await client.ask("hello")
    assert fake.received[0].operation == "GetAgentCard"


@row("`factory.register(label, producer)`")
async def a_binding_of_ones_own(written, world):
    factory, asked = holdfast.compat.ClientFactory(), []

    class Acme(holdfast.extend.UnaryOnly):
        async def unary(self, call):
            return holdfast.extend.Reply(value=holdfast.Task(id=call.params.id, status=WORKING))

        async def close(self):
            pass

    def producer(card, url, config):
        asked.append((card.name, url, type(config)))
        return Acme()

    assert await written(factory=factory, producer=producer) is None
    interface = holdfast.types.AgentInterface(url="acme://moon", protocol_binding="ACME")
    card = holdfast.AgentCard(name="Moon", supported_interfaces=(interface,))
    assert (await factory.create(card).get_task("1")).id == "1"
    assert asked == [("Moon", "acme://moon", holdfast.compat.ClientConfig)]


@row("`minimal_agent_card(url, transports)`")
async def a_card_that_says_only_where(written, world):
    fake, _ = await world.usual()
    client = holdfast.connect(await written())
    assert (await client.get_extended_agent_card()).name == "Fake agent, extended"
    assert fake.calls("GetAgentCard") == []


@row(
    "`TransportProtocol.GRPC` among them",
    "`ClientConfig(grpc_channel_factory=…)`",
    marks=REAL_TIME,
)
async def grpc_is_spoken(written, world):
    lent = []

    async with grpc_agent(GetTask=completed) as (port, calls, _):
        url = f"127.0.0.1:{port}"

        def channel_for(address):
            lent.append(aio.insecure_channel(address))
            return lent[-1]

        config = await written(channel_for=channel_for)
        async with holdfast.compat.ClientFactory(config).create(grpc_card(url)) as client:
            assert (await client.get_task("t1")).id == "t1"
        assert [method for method, _ in calls] == [f"{SERVICE}GetTask"]
        assert len(lent) == ("grpc_channel_factory" in written.wrote)
        for channel in lent:
            assert channel.get_state() is grpc.ChannelConnectivity.READY
            await channel.close()


@row('`minimal_agent_card(url, ["GRPC"])`', marks=REAL_TIME)
async def a_card_comes_over_grpc(written, world):
    async def get_card(request, context):
        place = pb.AgentInterface(url="x:1", protocol_binding="GRPC")
        return pb.AgentCard(name="whole", supported_interfaces=[place]).SerializeToString()

    async with grpc_agent(GetExtendedAgentCard=get_card) as (port, _, _):
        written.left[0] = written.left[0].replace("50051", str(port))
        async with holdfast.connect(await written()) as client:
            assert (await written(client=client)).name == "whole"


@row("`httpx.AsyncClient(verify=…, cert=…)`")
async def files_say_whom_to_trust_and_who_one_is(written, world):
    before = Path.cwd()
    with tempfile.TemporaryDirectory() as directory, contextlib.chdir(directory):
        code = written.left[0]
        with pytest.raises(FileNotFoundError):
            await written()
        files = Files(Path(directory))
        files.cert.rename("client.pem")
        files.key.rename("client.key")
        written.left.insert(0, code)
        assert isinstance(await written(), holdfast.Client)
    assert Path.cwd() == before


def signed(world, sign=SIGNER.sign):
    """Lets an agent be reached whose card is signed, and another one whose card is not."""
    place = {"url": f"{HERE}/rpc", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}
    card = {**DOCUMENT, "supportedInterfaces": [place]}
    world.reach(FakeAgent("384,400 km", url=HERE, card=sign(card)))
    return lambda: world.reach(FakeAgent("384,400 km", url=HERE, card=card))


@row("`signature_verifier=…`")
async def signatures_are_verified(written, world):
    unsigned, code = signed(world), written.left[0]
    names = {"factory": holdfast.compat.ClientFactory(), "jwks": SIGNER.jwks}
    client = await written(**names)
    await client.agent_card()
    assert client.card_verification.outcome == "verified"
    unsigned()
    written.left.insert(0, code)
    with pytest.raises(holdfast.errors.CardSignatureError):
        await (await written(**names)).agent_card()


@block('print("received"')
async def a_stream_is_entered_and_read(written, world):
    _, names = await world.usual(streams("384,400", " km"))
    await written(agent=names["agent"])
    assert world.printed[-1] == ("received", "TaskStatusUpdateEvent")


@block("create_signature_verifier")
async def the_sdks_verifier_judges_cards(written, world):
    unsigned = signed(world, lambda card: agent_card_to_dict(as_sdk_signs(card)))
    keys = {SIGNER.kid: SIGNER.key.public_key()}
    await written(key_provider=lambda kid, jku: keys[kid])
    assert world.printed == [("Signed", "verified")]
    with pytest.raises(holdfast.errors.CardSignatureError):
        await written(key_provider=lambda kid, jku: Signer().key.public_key())
    unsigned()
    with pytest.raises(holdfast.errors.CardSignatureError):
        await written(key_provider=lambda kid, jku: keys[kid])


@row("`A2ACardResolver(httpx_client, base_url, agent_card_path)`")
async def a_resolver_has_a_path(written, world):
    fake, _ = await world.usual()
    async with await written() as resolver:
        with pytest.raises(holdfast.AgentCardResolutionError):
            await resolver.get_agent_card()
    assert fake.received[-1].url == f"{HERE}/card.json"


@row("`resolver.get_agent_card(path, http_kwargs)`")
async def a_fetch_has_a_path_headers_and_a_timeout(written, world):
    pages = Pages({f"{HERE}/other.json": json.dumps(card_of("Moon").to_dict()).encode()})
    resolver = holdfast.compat.A2ACardResolver(HERE, engine=pages)
    pages.takes = 20
    with pytest.raises(holdfast.DeadlineExceededError, match="10 s"):
        await written(resolver=resolver)
    (sent,) = pages.requests
    assert (sent.url, sent.headers["x-team"]) == (f"{HERE}/other.json", "moon")
    pages.takes = 0
    assert (await resolver.get_agent_card("/other.json")).name == "Moon"


@block("extended = await client.get_extended_agent_card()")
async def an_extended_card_replaces_the_clients_own(written, world):
    fake, _ = await world.usual()
    await written()
    assert world.printed == [("Fake agent, extended", ["Echo"])]
    assert fake.calls("GetAgentCard") == []


@block("holdfast.compat.A2ACardResolver(")
async def cards_are_fetched_anew(written, world):
    fake, _ = await world.usual()
    fake.inject(unavailable(retry_after=1), on="GetAgentCard")
    await written()
    assert world.printed == [("Fake agent", ["JSONRPC", "HTTP+JSON"])]
    before = len(fake.received)
    async with holdfast.compat.A2ACardResolver(HERE) as resolver:
        for _ in range(2):
            await resolver.get_agent_card()
    assert len(fake.received) == before + 2


@block("class Acme")
async def a_binding_of_ones_own_is_an_object(written, world):
    await written()
    assert world.printed == [("384,400 km",), ("closed",)]


@row(
    "`new_text_message(text, role=Role.ROLE_USER)`, before 1.0 "
    "`create_text_message_object(role, content)`"
)
async def a_message_is_made_of_text(written, world):
    _, names = await world.usual(lambda turn: turn.message.text.upper())
    message = await written()
    assert (message.role, message.text) == (holdfast.Role.USER, "hello")
    assert message.message_id
    for said in (message, await written()):
        assert (await names["agent"].ask(said)).text == "HELLO"


@row("`client.send_message(request)`")
async def a_message_is_sent_in_three_ways(written, world):
    fake, names = await world.usual()
    assert (await written(**names)).text == "384,400 km"
    async with await written(**names) as events:
        assert "".join([text async for text in events.text_deltas()]) == "384,400 km"
    assert (await written(**names)).text == "384,400 km"
    assert called(fake).count("SendMessage") == 1


@row("`client.get_task(request)`")
async def a_task_is_fetched(written, world):
    fake, names = await world.usual()
    assert (await written(**names)).id == names["task"].id
    assert json.loads(fake.received[-1].body)["params"]["historyLength"] == 10


@row("`client.list_tasks(request)`")
async def tasks_are_listed(written, world):
    _, names = await world.usual()
    other = await names["agent"].send_message("another")
    page = await written(**names)
    assert [each.id for each in page.tasks] == [names["task"].id]
    assert set(await written(**names)) == {names["task"].id, other.id}


@row("`client.cancel_task(request)`")
async def a_cancel_waits_until_it_is_over(written, world):
    fake, names = await world.usual(works_forever(), cancel_takes=5)
    assert (await written(**names)).state is holdfast.TaskState.CANCELED
    assert "GetTask" in called(fake)


@row("`client.subscribe(request)`, before 1.0 `resubscribe`")
async def a_task_is_subscribed_to(written, world):
    fake, names = await world.usual(completes("384,400 km", after=5))
    async with await written(**names) as events:
        assert (await events.result()).text == "384,400 km"
    assert "SubscribeToTask" in called(fake)
    assert fake.open_streams == 0


@row(
    "`client.create_task_push_notification_config(config)`, before 1.0 `set_task_callback`",
    "`client.get_task_push_notification_config(request)`, before 1.0 `get_task_callback`",
    "`client.list_task_push_notification_configs(request)`",
    "`client.delete_task_push_notification_config(request)`",
)
async def push_configurations_are_kept_at_the_agent(written, world):
    _, names = await world.usual(works_forever())
    agent, task = names["agent"], names["task"]
    config = holdfast.types.TaskPushNotificationConfig(
        id="news", task_id=task.id, url="https://me.example/push"
    )
    if "create" not in written.left[0]:
        await agent.create_task_push_notification_config(config)
    name = written.left[0]
    result = await written(config=config, **names)
    kept = (await agent.list_task_push_notification_configs(task.id)).configs
    if "list" in name:
        assert result == kept
    assert [each.id for each in kept] == ([] if "delete" in name else ["news"])
    if "create" in name or "get_task_push" in name:
        assert (result.id, result.url) == ("news", "https://me.example/push")


@row("`client.get_extended_agent_card(request)`, before 1.0 `get_card`")
async def the_extended_card_is_fetched(written, world):
    _, names = await world.usual()
    assert (await written(**names)).name == "Fake agent, extended"
    refused = await written()
    world.reach(FakeAgent(url=HERE, card=card_of("Public").to_dict()))
    client = holdfast.connect(HERE)
    with pytest.raises(refused):
        await client.get_extended_agent_card()
    assert (await written(agent=client)).name == "Public"


@row("`client.add_event_consumer(consumer)`, before 1.0")
async def a_consumer_comes_later(written, world):
    _, names = await world.usual()
    heard = []
    await written(consumer=lambda event, task, card: heard.append(task), **names)
    await names["agent"].ask("hello")
    assert heard[-1].text == "384,400 km"


@row("`client.add_interceptor(interceptor)`, before 1.0 `add_request_middleware`")
async def an_interceptor_comes_later_and_sees_failures(written, world):
    _, names = await world.usual()
    counting = Counting()
    await written(interceptor=counting, **names)
    with pytest.raises(holdfast.TaskNotFoundError):
        await names["agent"].get_task("nobody's")
    ((operation, outcome),) = counting.seen
    assert operation == "GetTask"
    assert isinstance(outcome, holdfast.TaskNotFoundError)


@row("`ClientCallContext(state=…)`")
async def a_context_goes_with_the_call(written, world):
    _, names = await world.usual()
    seen = []

    class Looking(holdfast.extend.Interceptor):
        async def before(self, call):
            seen.append(call.context)
            return call

    await names["agent"].add_request_middleware(Looking())
    await written(**names)
    assert seen[-1].state == {"sessionId": "1"}


@row("`ClientCallContext(timeout=…)` of a stream")
async def a_stream_has_a_longest_wait_without_data(written, world):
    fake, names = await world.usual(streams("384,400", " km", "!", every=4))
    code = written.left[0]
    assert (await written(**names)).text == "384,400 km!"  # 12 s, and 4 s without data
    assert called(fake)[:1] == ["SendStreamingMessage"]
    assert "SubscribeToTask" not in called(fake)
    fake.inject(Stall(phase="idle", after_events=3), on="SendStreamingMessage")
    written.left.append(code)
    assert (await written(**names)).text == "384,400 km!"  # resumed after 5 s
    assert "SubscribeToTask" in called(fake)
    with pytest.raises(holdfast.DeadlineExceededError, match="call timeout of 5 s"):
        await names["agent"].ask("hello", timeout=5)


@row("`ClientCallContext(timeout=…)` of another call")
async def a_call_has_a_timeout(written, world):
    fake, names = await world.usual()
    fake.inject(Stall(), on="GetTask", times=9)
    with pytest.raises(holdfast.DeadlineExceededError, match="5 s"):
        await written(**names)


@row("`ClientCallContext(service_parameters=…)`")
async def a_call_has_headers(written, world):
    fake, names = await world.usual()
    await written(**names)
    assert fake.received[-1].headers["x-team"] == "moon"


@row("`with_a2a_extensions([uri])` among them")
async def a_call_requests_extensions(written, world):
    extension = holdfast.types.AgentExtension(uri="urn:example")
    fake, names = await world.usual(extensions=[extension])
    await written(**names)
    assert fake.received[-1].headers["a2a-extensions"] == "urn:example"


def sent_by(fake):
    (*_, last) = (each for each in fake.received if each.operation.startswith("Send"))
    return json.loads(last.body)["params"]


@row("`SendMessageRequest(metadata=…, tenant=…)`")
async def a_request_has_metadata_and_a_tenant(written, world):
    fake, names = await world.usual()
    await written(**names)
    assert sent_by(fake)["metadata"] == {"team": "moon"}
    assert sent_by(fake)["tenant"] == "acme"
    await written(**names)
    assert sent_by(fake)["message"]["metadata"] == {"team": "moon"}


@row("`SendMessageConfiguration(history_length=…)`")
async def a_message_has_a_configuration(written, world):
    fake, names = await world.usual()
    await written(**names)
    configuration = sent_by(fake)["configuration"]
    assert (configuration["historyLength"], configuration["returnImmediately"]) == (0, True)
    await written(**names)
    assert sent_by(fake)["configuration"]["acceptedOutputModes"] == ["text/plain"]


@row("`ListTasksRequest(page_size=…, page_token=…)`")
async def a_page_has_a_size(written, world):
    fake, names = await world.usual()
    await written(**names)
    sent = json.loads(fake.received[-1].body)["params"]
    assert (sent["pageSize"], sent["pageToken"]) == (10, "10")


@row("`TaskState.TASK_STATE_INPUT_REQUIRED` of a reply")
async def a_question_is_replied_to(written, world):
    _, names = await world.usual(lambda turn: "booked" if turn.task else asks("When?"))
    answer = await names["agent"].ask("hello")
    assert await written(answer=answer) is True
    assert await written(answer=answer) == "When?"
    assert (await written(answer=answer, **names)).text == "booked"


@row("`TaskState.TASK_STATE_AUTH_REQUIRED` of a reply")
async def an_authorization_is_handled(written, world):
    asked = []

    async def handler(interruption):
        asked.append(interruption.text)

    _, names = await world.usual(
        needs_auth("Log in", cleared_after=5, then=completes("384,400 km"))
    )
    assert (await written(handler=handler, **names)).text == "384,400 km"
    assert asked == ["Log in"]


@row("`TaskState.TASK_STATE_FAILED`, `REJECTED` or `CANCELED` of a reply")
async def a_task_that_fails_is_an_error(written, world):
    _, names = await world.usual(fails("no such planet"))
    agent = names["agent"]
    with pytest.raises(holdfast.TaskFailedError) as caught:
        await written(**names)
    kinds = [await written() for _ in range(3)]
    above = await written()
    assert all(issubclass(kind, above) for kind in kinds)
    assert type(caught.value) is kinds[0]
    assert (await written(error=caught.value)).state is holdfast.TaskState.FAILED
    assert (await written(**names)).state is holdfast.TaskState.FAILED
    async with agent.stream_message("hello") as events:
        assert [event async for event in events]
        assert events.task.state is holdfast.TaskState.FAILED
        with pytest.raises(kinds[0]):
            [text async for text in events.text_deltas()]
        with pytest.raises(kinds[0]):
            await events.result()


@row("`TaskState.TASK_STATE_COMPLETED`, `Role.ROLE_USER`")
async def enums_are_converted(written, world):
    assert await written() is holdfast.TaskState.COMPLETED
    assert await written() is holdfast.Role.USER
    assert a2a.types.TaskState.TASK_STATE_COMPLETED == 3 != holdfast.TaskState.COMPLETED
    assert await written(TaskState=a2a.types.TaskState) is holdfast.TaskState.COMPLETED


@row("`get_message_text(message)`, `get_artifact_text(artifact)`")
async def values_have_their_text(written, world):
    part = holdfast.Part(text="hello")
    assert await written(message=holdfast.Message(parts=(part,))) == "hello"
    artifact = holdfast.Artifact(artifact_id="1", parts=(part, part, holdfast.data_part(1)))
    assert await written(artifact=artifact) == "hellohello"
    of_sdk = a2a.helpers.get_artifact_text(a2a_sdk.to_proto(artifact, pb.Artifact))
    assert await written(artifact=artifact) == of_sdk == "hello\nhello"


@row(
    "`new_text_part(text)`, `new_data_part(data)`, `new_url_part(url)`",
    "`new_raw_part(raw)`",
)
async def parts_are_made(written, world):
    while written.left:
        assert isinstance(await written(path=__file__), holdfast.Part)


@row(
    "`BeforeArgs.input`, `BeforeArgs.method`",
    "`BeforeArgs.agent_card`, `BeforeArgs.context`",
    "`AfterArgs.result`",
)
async def an_interceptor_sees_the_call(written, world):
    seen = []

    class Looking(holdfast.extend.Interceptor):
        async def after(self, call, outcome):
            seen.append((call, outcome))
            return outcome

    _, names = await world.usual()
    await names["agent"].add_request_middleware(Looking())
    await names["agent"].get_task(names["task"].id)
    call, outcome = seen[-1]
    values = [await written(call=call, outcome=outcome) for _ in list(written.left)]
    expected = {
        "BeforeArgs.input": [call.params, "GetTask"],
        "BeforeArgs.agent_card": [call.card, call.context],
        "AfterArgs.result": [names["task"], holdfast.A2AError],
    }
    assert values == expected[written.wrote.split("`")[1]]


@block("class Team")
async def an_interceptor_adds_a_header(written, world):
    fake, _ = await world.usual()
    await written()
    assert world.printed == [("384,400 km",)]
    assert fake.received[-1].headers["x-team"] == "moon"


@row("`args.early_return = task`")
async def a_call_is_answered_early(written, world):
    _, names = await world.usual()
    task, replies = names["task"], {}

    class Early(holdfast.extend.Interceptor):
        async def before(self, call):
            return replies.get(call.operation.name, call)

    replies["SendMessage"] = await written(**names)
    replies["SendStreamingMessage"] = await written(**names)
    client = holdfast.connect(HERE, interceptors=[Early()])
    assert await client.send_message("hello") == task
    assert (await client.ask("hello")).task.id == task.id


@block("to_proto(task, Task)")
async def messages_are_converted(written, world):
    fake, _ = await world.usual()
    await written()
    sent = sent_by(fake)["configuration"]["taskPushNotificationConfig"]
    assert sent["url"] == "https://me.example/push"
    assert world.printed == [(False, "COMPLETED")]


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


@block("ClientCredentials")
async def tokens_are_fetched(written, world):
    fake = FakeAgent("384,400 km", url="https://agent.example.com", token="token-1")
    server = FakeAuthorizationServer(FakeNetwork(fake), at="https://id.example.com")
    world.put(holdfast, connect=functools.partial(REAL["connect"], engine=server))
    fetching = functools.partial(oauth.ClientCredentials, engine=server)
    world.put(oauth, ClientCredentials=fetching)
    await written()
    assert world.printed == [("384,400 km",)]
    assert [said["scope"] for said in server.asked] == ["a2a"]


@block("ClientTaskManager")
async def events_are_folded_by_hand(written, world):
    world.reach(FakeAgent(streams("384,400", " km"), url=HERE))

    names = await written()

    assert names["task"].text == "384,400 km"
    ((messages, is_kept),) = world.printed
    assert (messages, is_kept) == (2, True)
    manager, before = names["manager"], names["task"]
    event = holdfast.types.TaskStatusUpdateEvent(
        task_id=before.id, context_id="another", status=WORKING
    )
    for foreign in (event, msgspec.structs.replace(event, task_id="2", context_id=None)):
        with pytest.raises(holdfast.errors.InvalidAgentResponseError):
            await manager.save_task_event(foreign)
    assert manager.get_task() == before
    fresh = holdfast.compat.ClientTaskManager()
    assert fresh.get_task() is None
    with pytest.raises(holdfast.errors.InvalidAgentResponseError):
        fresh.get_task_or_raise()
    assert (await fresh.save_task_event(event)).id == before.id


@row("before 1.0 `A2AClientHTTPError`, `error.status_code`")
async def a_status_is_an_error(written, world):
    error = await failing(bad_gateway(), world)
    assert type(error) is await written()
    assert await written(error=error) == 502


@row("`error.__cause__.response.status_code`")
async def an_error_tells_what_came_back(written, world):
    error = await failing(rate_limited(retry_after=90), world)
    assert await written(error=error) == 429
    assert await written(error=error) == 90
    assert (await written(error=error))["retry-after"] == "90"


@row("`A2AClientTimeoutError`")
async def two_times_may_be_over(written, world):
    a_try = await failing(Stall(), world, resilience=OFF)
    a_call = await failing(Stall(), world, timeout=5)
    assert type(a_try) is await written()
    assert type(a_call) is await written()
    both = await written()
    assert isinstance(a_try, both)
    assert isinstance(a_call, both)


@row("before 1.0 `A2AClientJSONRPCError`, `error.error.code`")
async def an_answer_that_is_an_error_has_a_class(written, world):
    error = await failing(Fail(code=-32001, data={"taskId": "1"}), world)
    assert await written(error=error) == -32001
    assert await written(error=error) == {"taskId": "1"}
    assert type(error) is await written()


@row("before 1.0 `A2AClientJSONError`")
async def a_reply_that_is_no_json_is_an_error(written, world):
    page = Respond(status=200, headers={"content-type": "application/json"}, body=b"{oops")
    assert type(await failing(page, world)) is await written()


@row("before 1.0 `A2AClientInvalidStateError`")
async def no_task_yet_is_an_error(written, world):
    with pytest.raises(await written()):
        holdfast.compat.ClientTaskManager().get_task_or_raise()


@row("before 1.0 `A2AClientInvalidArgsError`")
async def arguments_that_cannot_be_right_are_told_at_once(written, world):
    fake, names = await world.usual()
    with pytest.raises(await written()):
        await names["agent"].get_task("")
    assert fake.received == []


@row("`AgentCardResolutionError`, `error.status_code`")
async def no_card_is_an_error(written, world):
    page = Respond(status=200, headers={"content-type": "text/html"}, body=b"<html>")
    faults = {404: Respond(status=404), 401: Respond(status=401), 503: Respond(status=503)}
    for status, fault in {**faults, None: Refuse(), 200: page}.items():
        fake = FakeAgent(url=HERE)
        fake.inject(fault, on="GetAgentCard", times=9)
        world.reach(fake)
        kind = await written()
        with pytest.raises(holdfast.A2AError) as caught:
            await holdfast.connect(HERE, resilience=OFF).agent_card()
        assert type(caught.value) is kind
        assert caught.value.http_status == status
    assert await written(error=caught.value) == 200


async def test_an_agents_error_after_its_task_began_is_the_cause_of_a_failed_task():
    fake = FakeAgent(crashes(after=1), url=HERE)
    async with REAL["connect"](HERE, engine=FakeNetwork(fake)) as client:
        with pytest.raises(holdfast.TaskFailedError) as caught:
            await client.ask("hello")
    assert isinstance(caught.value.__cause__, holdfast.errors.InternalError)


ERRORS_OF_THE_PROTOCOL = [
    row.wrote
    for row in guide.rows
    if re.match(r"`\w+Error`", row.wrote)
    and "holdfast.errors." in row.now
    and not re.search("Signature|Resolution", row.wrote)
]


@row(*ERRORS_OF_THE_PROTOCOL)
async def each_error_of_the_protocol_has_its_class(written, world):
    for name in re.findall(r"`(\w+Error)`", written.wrote):
        assert issubclass(getattr(a2a.utils.errors, name), a2a.utils.errors.A2AError)
        error = await written()
        assert issubclass(error, holdfast.A2AError)
        assert error.__name__ == ("ParseError" if name == "JSONParseError" else name)


@row("`SignatureVerificationError` and its subclasses")
async def a_signature_that_is_missing_is_an_error(written, world):
    signed(world)()
    verifier = holdfast.signatures.CardVerifier(SIGNER.jwks)
    client = holdfast.connect(HERE, card_verifier=verifier, require_signature=True)
    with pytest.raises(await written()) as caught:
        await client.agent_card()
    assert await written(error=caught.value) == "absent"


SDK_MODULES = (
    *(a2a.client, a2a.client.interceptors, a2a.client.service_parameters, a2a.helpers, a2a.types),
    a2a.utils.errors,
)

CLASS_OF_SDK = r"[A-Z]\w+(?:Args|Error|Request|Configuration|State|Context|Config|Factory)\b"
HELPER_OF_SDK = r"(?:new_\w+|get_\w+_text|with_a2a_\w+)\b"


def test_every_class_and_helper_on_the_left_is_in_the_installed_sdk():
    wrote = "\n".join(re.sub("before 1.0.*", "", row.wrote) for row in guide.rows)
    named = set(re.findall(rf"(?<![.\w])({CLASS_OF_SDK}|{HELPER_OF_SDK})", wrote))
    missing = {name for name in named if not any(hasattr(each, name) for each in SDK_MODULES)}
    assert missing == {"SignatureVerificationError"}
    assert hasattr(a2a.utils.signing, "SignatureVerificationError")
    assert {"BeforeArgs", "get_message_text", "with_a2a_extensions", "JSONParseError"} <= named
    assert callable(a2a.client.Client.add_interceptor)


def test_what_is_left_out_is_left_out():
    absent, _, _ = guide.parts["Left out on purpose"].partition(":")
    names = re.findall(r"`(\w+)`", absent)
    assert names == ["A2AClient", "A2AGrpcClient", "legacy_grpc", "SendMessageResponse"]
    assert not {*names, "SendMessageSuccessResponse"} & {*dir(holdfast)}


row("`client.close()`")(a_client_is_closed)
row("`A2AClientError`", "`A2AError` of `a2a.utils.errors`")(one_error_is_above_all)


@guide.each_row
async def test_a_row_is_as_it_says(row, monkeypatch):
    await guide.run_row(row, monkeypatch)


@guide.each_block
async def test_a_block_runs_as_it_stands(text, monkeypatch):
    await guide.run_block(text, monkeypatch)


def test_every_row_and_every_block_is_checked():
    guide.check_complete()
