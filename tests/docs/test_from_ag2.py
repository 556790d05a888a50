"""Each block and each row of docs/howto/from-ag2.md runs as it stands."""

import asyncio
import contextlib
import functools
import json
import socket
from types import SimpleNamespace

import grpc
import httpx
import pytest
from a2a.client import ClientConfig, ClientFactory
from a2a.types import a2a_pb2 as pb
from grpc import aio
from tests.kit.card_signing import DOCUMENT, SIGNER
from tests.kit.client_tools import Scripted, call, calls
from tests.kit.coming_from import (
    HERE,
    Counting,
    Guide,
    a_client_has_a_timeout,
    a_client_is_made_of_an_address,
    called,
    one_error_is_above_all,
)
from tests.kit.served_agents import SdkExecutor

import holdfast
from holdfast.server import A2AServer, Executor, fail, requires_input
from holdfast.signatures import sign_card
from holdfast.testing import (
    AsgiNetwork,
    Cut,
    FakeAgent,
    FakeNetwork,
    Refuse,
    asks,
    bad_gateway,
    completes,
    fails,
    make_test_client_factory,
    make_test_rest_client_factory,
    needs_auth,
    pick_free_port,
    rejects,
    streams,
)

guide = Guide("from-ag2")
row, block = guide.row, guide.block


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


@row("`A2AConfig(preset_card=card)`, `A2AConfig.from_card(card)`")
async def a_client_is_made_of_a_card(written, world):
    fake, names = await world.usual()
    await (await written(**names)).ask("hello")
    assert fake.calls("GetAgentCard") == []


@row('`prefer="rest"`')
async def a_binding_is_preferred(written, world):
    fake, _ = await world.usual()
    await (await written()).ask("hello")
    assert fake.received[-1].url.startswith(f"{HERE}/rest")


@row("`streaming=False`, `polling_interval=0.5`")
async def a_task_is_polled(written, world):
    fake, _ = await world.usual(completes("384,400 km", after=10))
    assert (await written()).text == "384,400 km"
    assert set(called(fake)) == {"SendMessage", "GetTask"}
    looks = [each.at for each in fake.calls("GetTask")]
    assert looks[-1] - looks[-2] == pytest.approx(0.5)


@row("`headers=…`")
async def a_client_has_headers(written, world):
    fake, _ = await world.usual()
    await (await written()).ask("hello")
    assert fake.received[-1].headers["x-team"] == "moon"


@row("`max_reconnects=3`, `reconnect_backoff=0.5`")
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
    with pytest.raises(
        holdfast.errors.ReconnectError, match=r"failed for 300 s \(ReconnectPolicy\.max_outage\)"
    ):
        async with client.stream_message("hello") as events:
            [text async for text in events.text_deltas()]


@row("`input_required_timeout=300`")
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


@row("`hitl_hook=hook`")
async def a_hook_answers(written, world):
    def behave(turn):
        return asks("For when?") if turn.task is None else completes(turn.message.text)

    _, names = await world.usual(behave)
    conversation = await written(hook=lambda asked: f"{asked.text} Tonight.", **names)
    answer = await conversation.ask("Book a table.")
    assert answer.text == "For when? Tonight."


@row("`interceptors=[…]`")
async def a_client_has_interceptors(written, world):
    await world.usual()
    counting = Counting()
    await (await written(interceptor=counting)).ask("hello")
    assert counting.seen


@row('`tenant="acme"`')
async def a_client_has_a_tenant(written, world):
    fake, _ = await world.usual()
    await (await written()).ask("hello")
    assert json.loads(fake.received[-1].body)["params"]["tenant"] == "acme"


@row("`history_length=5`")
async def a_history_is_shortened(written, world):
    fake, names = await world.usual()
    await written(**names)
    assert json.loads(fake.received[-1].body)["params"]["historyLength"] == 5


@row("`extensions=[uri]`")
async def a_client_asks_for_extensions(written, world):
    uri = "urn:acme:moon"
    fake, _ = await world.usual(extensions=[holdfast.types.AgentExtension(uri=uri)])
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

    away = FakeAgent(url=HERE)
    away.inject(Refuse(), on="GetAgentCard", times=99)
    network = world.reach(away)
    make = (await written())["httpx_client_factory"]
    for _ in range(5):  # AG2 makes a client for each reply
        async with make() as http:
            with pytest.raises(httpx.ConnectError) as caught:
                await http.get(f"{HERE}/.well-known/agent-card.json")
    assert isinstance(caught.value.__cause__, holdfast.CircuitOpenError)
    assert 99 - len(away.pending_faults) < 5 + holdfast.RetryPolicy().max_retries
    assert network.closed == 0


@row("`httpx_client_factory=…`")
async def an_engine_carries_requests(written, world):
    fake = FakeAgent(url=HERE)
    assert (await (await written(engine=FakeNetwork(fake))).ask("hello")).text == "hello"


def distance(body: str) -> float:
    """How far a body is from the earth, in km."""
    return {"moon": 384400.0}[body]


@row("`tools=[function]`")
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


@row("`A2AInvalidCardError`")
async def a_card_that_is_not_usable_is_an_error(written, world):
    await world.usual()
    with pytest.raises(await written()) as caught:
        holdfast.connect({"name": "Moon", "supportedInterfaces": [{"url": 7}]})
    assert await written(error=caught.value) == "supportedInterfaces[0].url"


@row("`A2AClientToolsNotSupportedError`")
async def tools_need_the_extension(written, world):
    fake, names = await world.usual()
    with pytest.raises(await written()):
        await names["agent"].ask("hello", tools=[distance])
    assert called(fake) == []


@row("`A2AExtensionNotSupportedError`, requested but not declared")
async def what_is_not_declared_is_an_error(written, world):
    fake, names = await world.usual()
    with pytest.raises(await written()) as caught:
        await names["agent"].ask("hello", extensions=["urn:acme:moon"])
    assert await written(error=caught.value) == ("urn:acme:moon",)
    assert called(fake) == []


@row("`A2AExtensionNotSupportedError`, required but not requested")
async def what_is_required_and_not_asked_for_is_an_error(written, world):
    needed = holdfast.types.AgentExtension(uri="urn:acme:moon", required=True)
    fake = FakeAgent(url=HERE, extensions=[needed])
    world.reach(fake)
    with pytest.raises(await written()) as caught:
        await holdfast.connect(HERE).ask("hello")
    assert await written(error=caught.value) == ("urn:acme:moon",)
    assert called(fake) == []


@row("`A2AReconnectError`")
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


@row("`A2ATaskTerminalError`, `error.task`")
async def a_task_that_ends_badly_is_an_error(written, world):
    above = await written()
    for ends in (fails("no"), rejects("no")):
        error = await outcome(world, ends)
        assert isinstance(error, above)
    assert (await written(error=error)).status.message.text == "no"


@row("`A2ATaskFailedError`")
async def a_failed_task_is_an_error(written, world):
    assert type(await outcome(world, fails("no"))) is await written()


@row("`A2ATaskRejectedError`")
async def a_rejected_task_is_an_error(written, world):
    assert type(await outcome(world, rejects("no"))) is await written()


@row("`A2ATaskAuthRequiredError`")
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


@row('`prefer="grpc"`, `grpc_channel_factory=…`', marks=pytest.mark.real_time)
async def a_channel_is_lent(written, world):
    async with A2AServer(echo).serving(bindings=["JSONRPC", "GRPC"]) as running:
        lent = []

        def channel_for(address):
            lent.append(aio.insecure_channel(address))
            return lent[-1]

        written.left[0] = written.left[0].replace(HERE, running.url)
        async with await written(channel_for=channel_for) as client:
            assert (await client.ask("hello")).text == "hello"
        (channel,) = lent
        assert channel.get_state() is grpc.ChannelConnectivity.READY
        await channel.close()


@row("`card_signature_verifier=…`")
async def a_card_is_judged(written, world):
    def judged(card):
        if card["name"] != "Signed":
            raise ValueError(card["name"])

    def reach(card):
        place = {"url": f"{HERE}/rpc", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}
        world.reach(FakeAgent("hello", url=HERE, card={**card, "supportedInterfaces": [place]}))

    code = written.left[0]
    reach(SIGNER.sign(DOCUMENT))
    client = await written(card_verifier=judged)
    await client.agent_card()
    assert client.card_verification.outcome == "verified"
    for card in (SIGNER.sign({**DOCUMENT, "name": "Else"}), DOCUMENT):
        reach(card)
        written.left.insert(0, code)
        with pytest.raises(holdfast.errors.CardSignatureError):
            await (await written(card_verifier=judged)).agent_card()
    assert await written() is holdfast.signatures.CardVerifier


@row("`A2ACardSignatureError`")
async def a_signature_that_is_wrong_is_an_error(written, world):
    client = holdfast.connect(
        {**SIGNER.sign(DOCUMENT), "name": "Else"},
        card_verifier=holdfast.signatures.CardVerifier(SIGNER.jwks),
    )
    with pytest.raises(await written()) as caught:
        await client.agent_card()
    assert await written(error=caught.value) == "invalid"


# ── An agent that others call ────────────────────────────────────────────────────────────────


async def echo(text: str):
    """Says it again."""
    return text


@contextlib.asynccontextmanager
async def calling(server):
    """A client of a server, in process."""
    async with make_test_client_factory(server) as factory, factory.connect() as agent:
        yield agent


async def led(*steps):
    """What a client gets of an executor that does this with its turn."""

    class Led(Executor):
        async def execute(self, turn):
            for step in steps:
                ending = await step(turn=turn)
                if isinstance(ending, Exception):
                    raise ending

    async with calling(A2AServer(Led())) as agent:
        return await agent.ask("hello")


@block("class Booking")
async def an_executor_owns_the_life_of_its_requests(written, world):
    names = await written()
    async with calling(names["server"]) as agent:
        asked = await agent.ask("A table for two.")
        answer = await agent.ask("Tonight", task_id=asked.task_id, context_id=asked.context_id)
        card = await agent.agent_card()
    assert (asked.question, answer.text) == ("For when?", "A table for two. For Tonight.")
    assert (card.name, card.description) == ("tables", "Books tables.")
    async with AsgiNetwork({HERE: names["app"]}) as network:
        assert (await holdfast.connect(HERE, engine=network).ask("?")).needs_input


@block("async def book")
async def a_function_asks(written, world):
    names = await written()
    async with calling(names["server"]) as agent:
        asked = await agent.ask("A table for two.")
        answer = await agent.ask("tonight", task_id=asked.task_id, context_id=asked.context_id)
    assert (asked.question, answer.text) == ("For when?", "Booked for tonight.")


@row("`A2AServer(agent)`")
async def a_server_of_a_function(written, world):
    server = await written(A2AServer=A2AServer, function=echo)
    async with calling(server) as agent:
        assert (await agent.ask("hello")).text == "hello"
        assert (await agent.agent_card()).description == "Says it again."


@row("`A2AServer(stub, executor=executor)`")
async def a_card_is_made_of_a_stub(written, world):
    stub = SimpleNamespace(name="stub", description="Of another framework.")
    for executor in (echo, SdkExecutor()):
        code = written.left[0]
        server = await written(A2AServer=A2AServer, stub=stub, executor=executor)
        async with calling(server) as agent:
            assert (await agent.ask("hello")).text in {"hello", "as it is"}
            card = await agent.agent_card()
        assert (card.name, card.description) == ("stub", "Of another framework.")
        written.left.insert(0, code)
    written.left.pop(0)


@row("`server.build_jsonrpc(url=…)`")
@row("`server.build_rest(url=…)`")
async def an_application_speaks_one_binding(written, world):
    server = A2AServer(echo)
    binding = "JSONRPC" if "build_jsonrpc" in written.wrote else "HTTP+JSON"
    app = await written(server=server)
    async with (
        AsgiNetwork({HERE: app}) as network,
        holdfast.connect(HERE, engine=network) as agent,
    ):
        assert (await agent.ask("hello")).text == "hello"
        (interface,) = (await agent.agent_card()).supported_interfaces
    assert interface.protocol_binding == binding


@row("`server.build_grpc(bind=…, grpc_url=…)`", marks=pytest.mark.real_time)
async def grpc_is_served(written, world):
    async with await written(server=A2AServer(echo)) as running:
        card = holdfast.compat.minimal_agent_card(await written(running=running), ["GRPC"])
        async with holdfast.connect(card) as agent:
            assert (await agent.ask("hello")).text == "hello"


@row("`updater.start_work()`")
@row("`updater.add_artifact(parts)`")
@row("`updater.complete()`")
async def a_turn_is_told(written, world):
    is_artifact = "artifact" in written.wrote
    is_end = "complete" in written.wrote

    async def end(*, turn):
        await turn.complete()

    answer = await led(written, *([] if is_end else [end]))
    assert answer.text == ("384,400 km" if is_artifact else "")
    assert answer.task.state is holdfast.TaskState.COMPLETED


@row("`updater.requires_input(message)`")
async def a_turn_asks(written, world):
    assert (await led(written)).question == "For when?"
    raised = functools.partial(written, requires_input=requires_input)
    assert (await led(raised)).question == "For when?"


@row("`updater.failed(message)`")
async def a_turn_fails_in_words(written, world):
    with pytest.raises(holdfast.TaskFailedError, match="All tables are taken") as caught:
        await led(functools.partial(written, fail=fail))
    assert caught.value.__cause__.retry_after == 60


@row("`card_signer=…`, `card_modifier=…`")
async def a_card_is_signed(written, world):
    sign = written.left.pop(1)

    def modifier(card):
        return eval(sign, {"sign_card": sign_card, "card": card, "key": SIGNER.key})

    server = await written(A2AServer=A2AServer, function=echo, modifier=modifier)
    keys = {"1": SIGNER.jwk}
    async with make_test_client_factory(server) as factory:
        client = factory.connect(card_verifier=holdfast.signatures.CardVerifier(keys))
        await client.agent_card()
    assert client.card_verification.outcome == "verified"


@row("`extended_card=…`")
async def an_extended_card_is_served(written, world):
    async with calling(await written(A2AServer=A2AServer, function=echo)) as agent:
        assert (await agent.get_extended_agent_card()).name == "more"


@block("as http")
async def a_server_is_called_in_process(written, world):
    await written()
    assert world.printed == [("echo", "hello")]


@row("`make_test_client_factory(server, url=…, timeout=…)`")
@row("`make_test_rest_client_factory(server, url=…, timeout=…)`")
async def clients_are_made_for_tests(written, world):
    async def pieces(text: str):
        for word in text.split():
            yield f"{word} "
            await asyncio.sleep(10)

    binding = "HTTP+JSON" if "test_rest" in written.wrote else "JSONRPC"
    makers = {
        "make_test_client_factory": make_test_client_factory,
        "make_test_rest_client_factory": make_test_rest_client_factory,
    }
    async with await written(server=A2AServer(pieces), **makers) as factory:
        async with factory() as http:
            assert (http.base_url, http.timeout) == ("http://agent.test", httpx.Timeout(30))
            created = ClientFactory(
                ClientConfig(httpx_client=http, supported_protocol_bindings=[binding])
            )
            client = await created.create_from_url("http://agent.test")
            begun, said = asyncio.get_running_loop().time(), []
            part = pb.Part(text="one two")
            message = pb.Message(message_id="1", role=pb.ROLE_USER, parts=[part])
            async for event in client.send_message(pb.SendMessageRequest(message=message)):
                parts = event.artifact_update.artifact.parts
                at = asyncio.get_running_loop().time() - begun
                said.extend((each.text, round(at)) for each in parts)
        assert said == [("one ", 0), ("two ", 10)]
        card = await factory.connect().agent_card()
    assert [one.protocol_binding for one in card.supported_interfaces] == [binding]


@row("`pick_free_port()`")
async def a_port_is_free(written, world):
    port = await written(pick_free_port=pick_free_port)
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", port))


row("`A2AConfig(card_url=url)`")(a_client_is_made_of_an_address)
row("`timeout=60.0`")(a_client_has_a_timeout)
row("`A2AError`")(one_error_is_above_all)


@guide.each_row
async def test_a_row_is_as_it_says(row, monkeypatch):
    await guide.run_row(row, monkeypatch)


@guide.each_block
async def test_a_block_runs_as_it_stands(text, monkeypatch):
    await guide.run_block(text, monkeypatch)


def test_every_row_and_every_block_is_checked():
    guide.check_complete()
