"""The code in docs/howto/temporal.md runs as it stands, on Temporal's development server."""

import asyncio
import contextlib
import os
import re
import sys
from pathlib import Path

import pytest
from temporalio.client import Client
from temporalio.worker import Worker
from tests.kit.pages import Page, execute
from tests.kit.temporal_server import temporal_server

from holdfast.integrations.temporal import HoldfastPlugin, WorkflowAgent
from holdfast.testing import FakeAgent, LoopbackServer, Respond, asks, completes

PAGE = Page("docs/howto/temporal.md")
WORKFLOWS = {"orders": "class Order:", "once": "class OrderOnce", "anywhere": "OrderAnywhere"}
BLOCKS = {*WORKFLOWS.values(), ".run()\n", "start_workflow(", "start_local("}

pytestmark = pytest.mark.real_time


@pytest.fixture
def address(tmp_path):
    with temporal_server(tmp_path / "stderr") as address:
        yield address


@pytest.fixture
def modules(tmp_path, monkeypatch):
    """The workflows of the page, as modules that Temporal's sandbox can import."""
    for name, text in WORKFLOWS.items():
        (tmp_path / f"{name}.py").write_text(PAGE.block(text))
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    yield {name: __import__(name) for name in WORKFLOWS}
    for name in WORKFLOWS:
        del sys.modules[name]


async def test_workflows_of_the_page(modules, address, monkeypatch):
    programs, printed = [], []
    monkeypatch.setattr(asyncio, "run", programs.append)

    async def start(text, agent, address):
        text = PAGE.block(text).replace("http://localhost:9999", agent.url)
        await execute(text.replace("localhost:7233", address), print=printed.append)
        return asyncio.create_task(programs.pop())

    def pizzeria(turn):
        return completes("Ordered.") if turn.message.task_id else asks("Which size?")

    near, far = FakeAgent(pizzeria), FakeAgent("Ordered elsewhere.")
    near.inject(Respond(status=404), on="SendStreamingMessage")
    async with asyncio.timeout(60), LoopbackServer(near) as agent, LoopbackServer(far) as other:
        plugin = HoldfastPlugin(
            {"pizzeria": agent.url, "other pizzeria": other.url}, journal="j.db"
        )
        client = await Client.connect(address, plugins=[plugin])
        once, anywhere = modules["once"].OrderOnce, modules["anywhere"].OrderAnywhere
        async with Worker(client, task_queue="others", workflows=[once, anywhere]):
            elsewhere = await client.execute_workflow(
                anywhere.run, "A pizza.", id="anywhere", task_queue="others"
            )
            for number in range(2):
                await client.execute_workflow(
                    once.run, args=["17", "A pizza."], id=f"{number}", task_queue="others"
                )
        worker = await start(".run()\n", agent, address)
        await (await start("start_workflow(", agent, address))
        worker.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await worker

    assert elsewhere == "Ordered elsewhere."
    assert printed == ["Which size?", "Ordered."]
    assert len(near.executions) == 3  # of order-17, of the order and of the reply


async def test_the_test_of_the_page(modules, monkeypatch):
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    names = await execute(PAGE.block("start_local("))
    await names["test_an_order_is_answered"]()


def test_every_block_is_run():
    PAGE.check_complete(*BLOCKS)


def test_every_link_leads_somewhere():
    PAGE.check_links()


def test_options_in_the_table_have_these_defaults():
    rows = dict(re.findall(r"^\| `(\w+_timeout)` \| ([^|]+) \|", PAGE.text, flags=re.MULTILINE))
    options = WorkflowAgent("agent")._options
    assert rows["start_to_close_timeout"] == "15 minutes"
    assert options["start_to_close_timeout"].total_seconds() == 15 * 60
    assert rows["heartbeat_timeout"] == "30 s"
    assert options["heartbeat_timeout"].total_seconds() == 30
