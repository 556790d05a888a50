"""Each block and each row of docs/howto/scripts.md runs as it stands."""

from tests.kit.coming_from import HERE, Guide

import holdfast.sync
from holdfast.testing import FakeAgent

guide = Guide("scripts")
row, block = guide.row, guide.block


def reach(world):
    """Lets an agent be reached; its network belongs to the loop of `holdfast.sync`."""
    fake = FakeAgent("384,400 km", url=HERE)
    return fake, world.reach(fake)


@block("holdfast.sync.connect")
async def a_script_calls_an_agent(written, world):
    reach(world)
    await written()
    assert world.printed == [("384,400 km",), ("384,400 km",)]


@row("`asyncio.run(client.send_message(…))`")
@row("`nest_asyncio.apply()`, in a notebook")
async def an_answer_is_there_when_the_call_returns(written, world):
    reach(world)
    assert (await written()).text == "384,400 km"


@row("`loop.run_until_complete(coroutine)`")
async def a_coroutine_runs_on_the_same_loop(written, world):
    _, network = reach(world)
    holdfast.sync.connect(HERE).ask("hello")
    await written(engine=network)
    assert network.closed == 1


@row("a thread for each agent")
async def many_agents_are_asked_at_once(written, world):
    reach(world)
    (result,) = await written()
    assert result.unwrap().text == "384,400 km"


@guide.each_row
async def test_a_row_is_as_it_says(row, monkeypatch):
    await guide.run_row(row, monkeypatch)


@guide.each_block
async def test_a_block_runs_as_it_stands(text, monkeypatch):
    await guide.run_block(text, monkeypatch)


def test_every_row_and_every_block_is_checked():
    guide.check_complete()
