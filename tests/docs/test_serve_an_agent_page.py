"""The code in docs/howto/serve-an-agent.md runs as it stands, and does what the page says."""

import asyncio
import contextlib
import functools
import json
import os

import pytest
from tests.kit.asgi_client import request
from tests.kit.pages import Page, execute
from tests.kit.ports import reserve_port
from tests.kit.real_agents import LIMIT, PACKAGE, sdk_python

import holdfast
from holdfast.extend import HttpRequest
from holdfast.server import A2AServer, ProtocolErrors
from holdfast.testing import AsgiNetwork, Fail, FakeAgent, FakeNetwork, make_test_client_factory

PAGE = Page("docs/howto/serve-an-agent.md")


async def test_a_first_agent_is_served(monkeypatch):
    served = []

    def serve(server, **options):
        served.append((server, options))

    monkeypatch.setattr(A2AServer, "serve", serve)
    monkeypatch.setattr(asyncio, "run", lambda _: None)
    await execute(PAGE.block("async def weather"))

    [(server, options)] = served
    assert options == {"port": 9999}
    async with make_test_client_factory(server) as factory, factory.connect() as agent:
        assert (await agent.ask("Rome")).text == "It is sunny in Rome."


async def test_a_function_tells_its_answer_piece_by_piece():
    names = await execute(PAGE.block("async def countdown"))
    async with make_test_client_factory(names["server"]) as factory, factory.connect() as agent:
        async with agent.stream_message("3") as events:
            pieces = [text async for text in events.text_deltas()]
        card = await agent.agent_card()
    assert pieces == ["3, ", "2, ", "1, ", "lift-off."]
    assert (card.name, card.description) == ("countdown", "Counts down from a number.")


@pytest.mark.parametrize(
    ("given", "text", "said"),
    [
        ("text", "text", None),
        (holdfast.text_part("part"), "part", None),
        (["a", holdfast.text_part("b")], "ab", None),
        (holdfast.Artifact(parts=(holdfast.text_part("artifact"),)), "artifact", None),
        ({"n": 1}, "", None),
        (holdfast.Message(message_id="1", parts=(holdfast.text_part("bye"),)), "", "bye"),
        (None, "", None),
    ],
    ids=lambda given: type(given).__name__,
)
async def test_what_a_function_gives_is_what_the_client_gets(given, text, said):
    async def agent(message):
        return given

    async with make_test_client_factory(A2AServer(agent)) as factory, factory.connect() as client:
        task = (await client.ask("hello")).task
    assert "".join(artifact.text for artifact in task.artifacts) == text
    assert (task.status.message.text if task.status.message else None) == said
    data = [part.data for artifact in task.artifacts for part in artifact.parts if not part.text]
    assert data == ([given] if isinstance(given, dict) else [])


async def test_a_turn_ends_in_many_ways():
    names = await execute(PAGE.block("async def book"))
    made = make_test_client_factory(A2AServer(names["book"]))
    async with made as factory, factory.connect() as agent:

        async def book(when):
            asked = await agent.ask("A table for two.")
            assert asked.question == "For when?"
            return await agent.ask(when, task_id=asked.task_id, context_id=asked.context_id)

        assert (await book("Friday")).text == "A table for two. Booked for Friday."
        with pytest.raises(holdfast.errors.TaskRejectedError, match="closed on Mondays"):
            await book("Monday")
        with pytest.raises(holdfast.TaskFailedError, match="All tables are taken") as caught:
            await book("now")
    assert caught.value.__cause__.retry_after == 1800


async def test_an_executor_leads_its_tasks():
    printed = []
    names = await execute(
        PAGE.block("class Reporting"), print=lambda *words: printed.append(words)
    )
    async with make_test_client_factory(names["server"]) as factory, factory.connect() as agent:
        answer = await agent.ask("us")
        card = await agent.agent_card()
    assert (answer.task.artifacts[0].name, answer.task.artifacts[0].text) == (
        "report",
        "All is well with us.",
    )
    assert answer.task.status.message.text == "Here it is."
    assert (card.name, [skill.name for skill in card.skills]) == ("pipeline", ["report"])
    assert printed == []


@pytest.mark.real_time
async def test_it_is_served_over_every_binding():
    names = await execute(PAGE.block("async def countdown"))
    printed = []

    async def call_each(running):
        for binding in running.card.supported_interfaces:
            only = [binding.protocol_binding]
            async with holdfast.connect(running.url, supported_protocol_bindings=only) as agent:
                assert (await agent.ask("1")).text == "1, lift-off."
                printed.extend(only)

    block = PAGE.block(".serving(") + "    await call_each(running)\n"
    await execute(block, call_each=call_each, print=lambda *words: printed.append(words), **names)

    (name, url, grpc_url), *bindings = printed
    assert (name, url[:17], grpc_url[:10]) == ("countdown", "http://127.0.0.1:", "127.0.0.1:")
    assert bindings == ["JSONRPC", "HTTP+JSON", "GRPC"]


@pytest.mark.real_time
async def test_tasks_in_a_store_survive_a_restart(tmp_path):
    port = reserve_port()
    program = PAGE.block("DatabaseTaskStore").replace("9999", str(port))

    @contextlib.asynccontextmanager
    async def running():
        process = await asyncio.create_subprocess_exec(
            *(sdk_python(), "-c", program),
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(PACKAGE)},
            stderr=asyncio.subprocess.PIPE,
        )
        try:
            while b"serving order" not in (line := await process.stderr.readline()):
                assert line, "the agent did not start"
            yield holdfast.connect(f"http://localhost:{port}")
        finally:
            process.kill()
            await process.communicate()

    async with asyncio.timeout(LIMIT):
        async with running() as client, client as agent:
            answer = await agent.ask("pizza")
        async with running() as client, client as agent:
            task = await agent.get_task(answer.task_id)
    assert task.text == answer.text == "Ordered: pizza."


async def test_it_is_part_of_an_application():
    names = await execute(PAGE.block("async def countdown"))
    names = await execute(PAGE.block("Mount("), **names)
    network = AsgiNetwork({"https://agents.example.com": names["site"]})
    url = "https://agents.example.com/countdown"
    for version in ("1.0", "0.3"):
        async with holdfast.connect(url, engine=network, protocol_version=version) as agent:
            assert (await agent.ask("1")).text == "1, lift-off."
    async with names["lifespan"](names["site"]):
        pass
    async with holdfast.connect(url, engine=network) as agent:
        with pytest.raises(holdfast.A2AError):
            await agent.ask("1")


async def test_callers_are_authenticated():
    names = await execute(PAGE.block("async def countdown"))
    names = await execute(PAGE.block("def caller_of"), **names)
    names["TOKENS"].update(ada="1", bob="2")
    network = AsgiNetwork({"http://a.test": names["server"].app(url="http://a.test")})
    seen = []
    for token in ("1", "2"):
        headers = {"authorization": f"Bearer {token}"}
        async with holdfast.connect("http://a.test", engine=network, headers=headers) as agent:
            await agent.ask("1")
            seen.append(len((await agent.list_tasks()).tasks))
    async with holdfast.connect("http://a.test", engine=network) as agent:
        with pytest.raises(holdfast.AuthenticationError):
            await agent.ask("1")
    await names["server"].close()

    assert seen == [1, 1]


async def test_the_card_declares_security_schemes():
    names = await execute(PAGE.block("async def countdown"))
    names = await execute(PAGE.block("def caller_of"), **names)
    names = await execute(PAGE.block("securitySchemes"), **names)
    names["TOKENS"].update(ada="1")
    network = AsgiNetwork({"http://a.test": names["server"].app(url="http://a.test")})
    async with holdfast.connect("http://a.test", engine=network) as agent:
        with pytest.raises(holdfast.AuthenticationError, match="ClientCredentials") as caught:
            await agent.ask("1")
        card = await agent.agent_card()
    auth = holdfast.SchemeCredentials({"bearerAuth": "1"})
    async with holdfast.connect("http://a.test", engine=network, auth=auth) as agent:
        assert (await agent.ask("1")).text == "1, lift-off."
    await names["server"].close()

    assert caught.value.schemes == ("bearerAuth", "oauth")
    flow = card.security_schemes["oauth"].oauth2_security_scheme.flows.client_credentials
    assert flow.token_url == "https://id.example.com/token"


async def test_pushes_reach_a_network_of_ones_own():
    names = await execute(PAGE.block("async def countdown"))
    names = await execute(PAGE.block("push_networks="), **names)
    network = AsgiNetwork({"http://a.test": names["server"].app(url="http://a.test")})
    async with holdfast.connect("http://a.test", engine=network) as agent:
        task = (await agent.ask("1")).task
        for url in ("http://10.20.1.1/", "http://10.21.1.1/"):
            config = holdfast.types.TaskPushNotificationConfig(task_id=task.id, url=url)
            with contextlib.suppress(holdfast.errors.InvalidParamsError):
                await agent.create_task_push_notification_config(config)
        kept = await agent.list_task_push_notification_configs(task.id)
    await names["server"].close()

    assert [config.url for config in kept.configs] == ["http://10.20.1.1/"]


async def test_hosts_and_origins_are_allowed():
    names = await execute(PAGE.block("async def countdown"))
    names = await execute(PAGE.block("allowed_hosts="), **names)
    app = names["server"].app(url="http://127.0.0.1:8000")
    network = AsgiNetwork({"http://a.dev.example": app, "http://b.example": app})
    statuses = []
    for host, origin in [("a.dev", "https://console.example.com"), ("a.dev", "x://y"), ("b", "")]:
        url = f"http://{host}.example/.well-known/agent-card.json"
        headers = {"origin": origin} if origin else {}
        reply = await network.request(HttpRequest(method="GET", url=url, headers=headers))
        statuses.append(reply.status)

    assert statuses == [200, 403, 421]


async def test_an_agent_tells_its_callers_where_it_broke(monkeypatch):
    b = FakeAgent(url="https://b.example.com")
    broken = holdfast.errors.AgentError("the model is overloaded", code=-32050)
    told = holdfast.errors.wrap_downstream(broken, agent="C", current="B").to_jsonrpc()
    b.inject(Fail(code=told["code"], message=told["message"], data=told["data"]))
    connect = functools.partial(holdfast.connect, engine=FakeNetwork(b))
    monkeypatch.setattr(holdfast, "connect", connect)

    names = await execute(PAGE.block("wrap_downstream"), ProtocolErrors=ProtocolErrors)
    call = {"jsonrpc": "2.0", "id": "1", "method": "SendMessage", "params": {}}
    reply = await request(
        names["app"],
        json.dumps(call).encode(),
        headers=[("content-type", "application/json")],
    )

    error = holdfast.A2AError.from_jsonrpc(json.loads(reply.text)["error"])
    assert error.hops == ("B", "C")
    text = "the agent answered -32603: agent B failed: agent C failed: the model is overloaded"
    assert str(error) == text
    assert text in " ".join(PAGE.text.split())


def test_every_block_is_run():
    PAGE.check_complete(
        "async def weather",
        "async def countdown",
        "async def book",
        "class Reporting",
        ".serving(",
        "Mount(",
        "DatabaseTaskStore",
        "def caller_of",
        "securitySchemes",
        "push_networks=",
        "allowed_hosts=",
        "wrap_downstream",
    )


def test_every_link_leads_somewhere():
    PAGE.check_links()


def test_the_commands_exist():
    PAGE.check_commands(at_least=1)
