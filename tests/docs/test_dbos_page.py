"""The code in docs/howto/dbos.md runs as it stands, in a process of its own."""

import asyncio
import sys

import pytest
from tests.kit.pages import Page

from holdfast.testing import FakeAgent, LoopbackServer, Reset, asks, completes

PAGE = Page("docs/howto/dbos.md")
ORDER, REPORT = "async def order(", "order_or_report("

RUN = """
async def both():
    await main()
    with SetWorkflowID("order-18"):
        print(await order_or_report("a lost order"))
    DBOS.destroy()

asyncio.run(both())
"""


@pytest.mark.real_time
async def test_workflows_of_the_page(tmp_path):
    def pizzeria(turn):
        if turn.message.task_id is None:
            return asks("Which size?")
        agent.inject(Reset(), on="SendStreamingMessage")
        return completes("Ordered.")

    agent = FakeAgent(pizzeria)
    program = tmp_path / "orders.py"
    async with asyncio.timeout(60), LoopbackServer(agent) as server:
        begin = PAGE.block(ORDER).replace("http://localhost:9999", server.url)
        begin = begin.replace("asyncio.run(main())\n", "").replace("async with pizzeria:", "if 1:")
        begin = begin.replace('"calls.db")', '"calls.db", on_unknown="raise")')  # at once
        program.write_text(begin + PAGE.block(REPORT) + RUN)
        process = await asyncio.create_subprocess_exec(
            sys.executable, program, cwd=tmp_path, stdout=asyncio.subprocess.PIPE
        )
        out, _ = await process.communicate()

    question, answer, report = out.decode().splitlines()
    assert (question, answer) == ("Which size?", "Ordered.")
    assert report.startswith("Perhaps ordered: message ")


def test_every_block_is_run():
    PAGE.check_complete(ORDER, REPORT)


def test_every_link_leads_somewhere():
    PAGE.check_links()
