"""Each block and each row of docs/howto/from-apcore.md runs as it stands."""

import asyncio
import json
import subprocess
import sys

import pytest
from tests.kit.coming_from import (
    HERE,
    REAL,
    Guide,
    Pages,
    a_client_has_a_timeout,
    a_client_is_closed,
    a_client_is_made_of_an_address,
    card_of,
    failing,
    one_error_is_above_all,
)

import holdfast
from holdfast.testing import (
    Fail,
    FakeAgent,
    Refuse,
    bad_gateway,
    completes,
    fails,
    works_forever,
)

guide = Guide("from-apcore")
row, block = guide.row, guide.block


def apcore(turn):
    """Does what its server does with a message (its executor and its converter of parts)."""
    message = turn.message
    if not (message.metadata or {}).get("skillId"):
        return fails("Missing required parameter: metadata.skillId")
    if len(message.parts) != 1:
        return fails("Multiple parts are not supported; expected exactly one Part")
    return completes(*message.parts)


@block("image.resize")
async def a_message_is_a_dict(written, world):
    fake = FakeAgent(apcore, url=HERE, token="t0ken")
    world.reach(fake)
    names = await written()
    assert world.printed == [("TASK_STATE_COMPLETED",)]
    assert names["task"].artifacts[0].parts[0].data == {"width": 800, "height": 600}
    sent = json.loads(fake.received[-1].body)["params"]
    # A server of 1.0 refuses the role "user" and parts with a "type".
    assert sent["message"]["role"] == "ROLE_USER"
    assert sent["message"]["parts"] == [{"data": {"width": 800, "height": 600}}]
    assert "contextId" not in sent["message"]


@row('`auth="Bearer …"`')
async def a_client_has_credentials(written, world):
    world.reach(FakeAgent(url=HERE, token="t0ken"))
    assert (await (await written()).ask("hello")).text == "hello"


@row("`card_ttl=300.0`")
async def a_card_is_kept(written, world):
    fake, _ = await world.usual()
    client = await written()
    for seconds, fetched in ((0, 1), (299, 1), (2, 2)):
        await asyncio.sleep(seconds)
        await client.agent_card()
        assert len(fake.received) == fetched


@row("`await client.agent_card`")
@row("`client.discover()`")
@row("`AgentCardFetcher(http, base_url, ttl=300.0)`")
async def the_card_is_fetched_and_kept(written, world):
    shown = json.dumps(card_of("Moon").to_dict()).encode()
    older = Pages({f"{HERE}/.well-known/agent.json": shown})
    client = REAL["connect"](HERE, engine=older)
    assert (await written(agent=client)).name == "Moon"
    assert (await client.agent_card()).name == "Moon"
    paths = [each.url.removeprefix(HERE) for each in older.requests]
    assert paths == ["/.well-known/agent-card.json", "/.well-known/agent.json"]


@row("`client.send_message(message, metadata=…, context_id=…)`")
@row("`client.stream_message(message, metadata=…, context_id=…)`")
async def a_dict_is_sent_with_metadata_and_context(written, world):
    fake, names = await world.usual()
    result = await written(**names)
    if isinstance(result, holdfast.EventStream):
        async with result as events:
            result = (await events.result()).task
    assert (result.text, result.context_id) == ("384,400 km", "c-1")
    (received,) = fake.calls("SendMessage") or fake.calls("SendStreamingMessage")
    sent = json.loads(received.body)["params"]
    message = sent["message"]
    assert (message["metadata"], message["contextId"]) == ({"skillId": "echo"}, "c-1")
    assert "metadata" not in sent


@row("`client.get_task(task_id)`")
async def a_task_is_fetched_by_id(written, world):
    _, names = await world.usual()
    assert (await written(**names)).id == names["task"].id


@row("`client.cancel_task(task_id)`")
async def a_task_is_canceled(written, world):
    _, names = await world.usual(works_forever())
    assert (await written(**names)).state is holdfast.TaskState.CANCELED


@row("`client.list_tasks(context_id, limit)`")
async def tasks_of_a_context_are_listed(written, world):
    fake, names = await world.usual()
    await names["agent"].send_message("another")
    assert [each.id for each in (await written(**names)).tasks] == [names["task"].id]
    assert json.loads(fake.received[-1].body)["params"]["pageSize"] == 50


@row('`result["tasks"]`, `result["nextCursor"]`')
async def a_page_has_a_cursor(written, world):
    _, names = await world.usual()
    await names["agent"].send_message("another")
    page = await names["agent"].list_tasks(limit=1)
    assert len(await written(page=page)) == 1
    rest = await names["agent"].list_tasks(limit=1, page_token=await written(page=page))
    assert (len(rest.tasks), rest.next_page_token) == (1, "")
    assert rest.tasks != page.tasks


@row("`A2AConnectionError`")
async def no_connection_is_an_error(written, world):
    assert isinstance(await failing(Refuse(), world), await written())
    assert isinstance(await failing(bad_gateway(), world), await written())


@row("`A2ADiscoveryError`")
async def no_usable_card_is_an_error(written, world):
    with pytest.raises(await written()):
        await REAL["connect"](HERE, engine=Pages({})).agent_card()
    oops = Pages({f"{HERE}/.well-known/agent-card.json": b"{oops"})
    with pytest.raises(await written()):
        await REAL["connect"](HERE, engine=oops).agent_card()


@row("`TaskNotFoundError`")
async def a_task_that_is_not_there_is_named(written, world):
    _, names = await world.usual()
    with pytest.raises(await written()) as caught:
        await names["agent"].get_task("nobody's")
    assert await written(error=caught.value) == "nobody's"


@row("`TaskNotCancelableError`")
async def a_task_that_is_over_cannot_be_canceled(written, world):
    _, names = await world.usual()
    with pytest.raises(await written()) as caught:
        await names["agent"].cancel_task(names["task"].id)
    assert await written(error=caught.value) is holdfast.TaskState.COMPLETED


@row("`A2AServerError`")
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
        "import holdfast.client, holdfast.compat, holdfast.extend, holdfast.observe\n"
        "served = ('holdfast.server', 'holdfast._server')\n"
        "print([name for name in sys.modules if name.startswith(served)])"
    )
    told = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60
    )
    assert told.stdout == "[]\n"


row("`A2AClient(url)`")(a_client_is_made_of_an_address)
row("`timeout=30.0`")(a_client_has_a_timeout)
row("`client.close()`")(a_client_is_closed)
row("`A2AClientError`")(one_error_is_above_all)


@guide.each_row
async def test_a_row_is_as_it_says(row, monkeypatch):
    await guide.run_row(row, monkeypatch)


@guide.each_block
async def test_a_block_runs_as_it_stands(text, monkeypatch):
    await guide.run_block(text, monkeypatch)


def test_every_row_and_every_block_is_checked():
    guide.check_complete()
