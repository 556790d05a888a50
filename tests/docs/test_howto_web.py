"""The code in the pages about push notifications and web applications runs as it stands."""

import asyncio
import json

import pytest
from starlette.applications import Starlette
from tests.kit.asgi_client import body_of
from tests.kit.pages import Page, execute
from tests.kit.ports import reserve_port
from tests.kit.real_agents import LIMIT, PACKAGE, sdk_python

import holdfast
from holdfast.extend import HttpRequest
from holdfast.push import PushReceiver
from holdfast.testing import AsgiNetwork

PUSH = Page("docs/howto/push.md")
WEB = Page("docs/howto/fastapi.md")

# Runs in an environment with FastAPI, in virtual time: sends requests to the page's application.
CALLER = """
import functools, json, sys
from urllib.parse import urlencode

import holdfast
from holdfast.extend import HttpRequest
from holdfast.testing import *

def behave(turn):
    match turn.message.text:
        case "table": return asks("When?")
        case "oven": return fails("no oven")
        case "forever": return streams("…", then=works_forever())
        case "poem": return streams("Roses ", "are red.", every=1)
        case text: return completes(text)

async def main():
    agent = FakeAgent(behave, url="http://localhost:9999")
    holdfast.connect = functools.partial(holdfast.connect, engine=FakeNetwork(agent))
    page = {}
    exec(sys.stdin.read(), page)
    async with AsgiNetwork({"http://app.test": page["app"]}) as network:
        async def send(method, path, **query):
            url = f"http://app.test{path}?{urlencode(query)}"
            reply = await network.request(HttpRequest(method=method, url=url, headers={}))
            text = reply.body.decode()
            is_json = "json" in reply.headers["content-type"]
            replies.append((reply.status, json.loads(text) if is_json else text))
            return replies[-1][1]

        replies = []
        asked = await send("POST", "/ask", text="table")
        ids = {name: asked[name] for name in ("task_id", "context_id")}
        await send("POST", "/ask", text="tonight", **ids)
        await send("POST", "/ask", text="oven")
        await send("POST", "/stream", text="poem")
        await send("POST", "/stream", text="table")
        await send("POST", "/stream", text="oven")
        started = await send("POST", "/tasks", text="poem")
        await send("GET", f"/tasks/{started['id']}/events")
        url = "http://app.test/stream?text=forever"
        async with network.stream(HttpRequest(method="POST", url=url, headers={})) as reply:
            async for chunk in reply.chunks():
                break
        left = list(agent.tasks)[-1]
        started = await send("POST", "/tasks", text="forever")
        await send("DELETE", f"/tasks/{started['id']}")
        replies.append(agent.tasks[left].state.name)
        await send("POST", "/ask", text="hello", task_id="nope")
        await send("POST", "/ask", text="again", **ids)
        await send("DELETE", "/tasks/nope")
        await send("DELETE", f"/tasks/{ids['task_id']}")
        agent.inject(rate_limited(retry_after=300), on="SendStreamingMessage")
        await send("POST", "/ask", text="later")
        await send("POST", "/ask", text="")
        await send("POST", "/stream", text="hello", task_id="")
        await send("POST", "/tasks", text="")
    page["app"].router.lifespan_context = page["resuming_lifespan"]
    before = len(agent.tasks)
    async with AsgiNetwork({"http://app.test": page["app"]}) as network:
        for _ in range(2):
            headers = {"idempotency-key": "order-17"}
            url = "http://app.test/orders?text=pizza"
            request = HttpRequest(method="POST", url=url, headers=headers)
            reply = await network.request(request)
            replies.append((reply.status, json.loads(reply.body)["text"]))
    replies.append(len(agent.tasks) - before)
    print(json.dumps(replies))

run(main())
"""


@pytest.mark.real_time
async def test_agent_notifies_of_its_task(capsys):
    """The page's two programs, on other ports, and with a report that takes no time."""
    program, _, _ = PUSH.block("push_networks=").partition("asyncio.run(")
    agent = await execute(program.replace("sleep(5)", "sleep(0)"))
    async with asyncio.timeout(60), agent["server"].serving(port=0) as running:
        program, _, _ = PUSH.block("receiver.wait").partition("asyncio.run(")
        program = program.replace("http://localhost:9999", running.url)
        program = program.replace("8000", str(reserve_port()))
        await (await execute(program))["main"]()

    assert capsys.readouterr().out == "COMPLETED The report is done.\n"


async def test_receiver_is_mounted():
    names = await execute(PUSH.block("Mount("))
    assert isinstance(names["app"], Starlette)
    receiver = names["receiver"]
    config = receiver.config("task-1")
    task = holdfast.Task(
        id="task-1", status=holdfast.types.TaskStatus(state=holdfast.TaskState.COMPLETED)
    )
    headers = {
        "content-type": "application/a2a+json",
        "x-a2a-notification-token": config.token,
    }
    async with AsgiNetwork({"https://me.example": names["app"]}) as network:
        request = HttpRequest(method="POST", url=receiver.url, headers=headers, body=body_of(task))
        reply = await network.request(request)
        assert reply.status == 200
        assert (await receiver.wait("task-1")).state is holdfast.TaskState.COMPLETED


async def test_deliveries_are_signed(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = await execute(PUSH.block("JwtPolicy("))
    assert isinstance(names["receiver"], PushReceiver)
    await names["receiver"].close()


@pytest.mark.sdk
@pytest.mark.real_time
async def test_application_serves_a_browser(tmp_path):
    process = await asyncio.create_subprocess_exec(
        *(sdk_python("HOLDFAST_SDK03_PYTHON", ".venv-sdk03"), "-c", CALLER),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={"PYTHONPATH": str(PACKAGE)},
        cwd=tmp_path,
    )
    async with asyncio.timeout(LIMIT):
        output, errors = await process.communicate("\n".join(WEB.blocks).encode())
    assert process.returncode == 0, errors.decode()
    asked, booked, oven, poem, table, failed, started, followed, *rest = json.loads(output)
    _, canceled, left, *refused, limited = rest[:8]
    *invalid, first_order, second_order, order_count = rest[8:]

    assert (asked[0], asked[1]["question"], asked[1]["text"]) == (200, "When?", "")
    assert (booked[0], booked[1]["text"]) == (200, "tonight")
    assert booked[1]["task"]["id"] == asked[1]["task_id"]
    assert oven[0] == 502
    assert "no oven" in oven[1]["error"]
    assert oven[1]["task_id"]
    assert [name for name, _ in events_in(poem)] == ["text", "text", "done"]
    assert "".join(data.get("text", "") for _, data in events_in(poem)) == "Roses are red."
    assert [(name, data["text"]) for name, data in events_in(table)] == [("question", "When?")]
    [(name, data)] = events_in(failed)
    assert (name, "no oven" in data["error"]) == ("failed", True)
    assert "".join(data.get("text", "") for _, data in events_in(followed)) == "Roses are red."
    assert started[1]["status"]["state"] == "TASK_STATE_WORKING"
    assert (canceled[0], canceled[1]["status"]["state"]) == (200, "TASK_STATE_CANCELED")
    assert left == "CANCELED"
    assert limited[0] == 503
    assert [status for status, _ in refused] == [404, 409, 404, 409]
    assert [status for status, _ in invalid] == [422, 422, 422]
    assert first_order == second_order == [200, "pizza"]
    assert order_count == 1


def events_in(reply):
    """The events of a stream: names and data."""
    status, text = reply
    assert status == 200
    for block in text.split("\n\n")[:-1]:
        name, data = block.split("\n")
        yield name.removeprefix("event: "), json.loads(data.removeprefix("data: "))


def test_every_block_is_run():
    PUSH.check_complete("push_networks=", "receiver.wait", "Mount(", "JwtPolicy(")


@pytest.mark.parametrize("page", [PUSH, WEB], ids=lambda page: page.path.stem)
def test_every_link_leads_somewhere(page):
    page.check_links()
