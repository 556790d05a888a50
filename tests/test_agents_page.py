"""The code in docs/agents.md runs as it stands, and does what the page says."""

import functools
import json

import pytest
from tests.asgi_client import request
from tests.pages import Page, execute

import holdfast
from holdfast.server import A2AServer, ProtocolErrors
from holdfast.testing import AsgiNetwork, Fail, FakeAgent, FakeNetwork, make_test_client_factory

PAGE = Page("docs/agents.md")


async def test_an_agent_tells_its_callers_where_it_broke(monkeypatch):
    b = FakeAgent(url="https://b.example.com")
    broken = holdfast.AgentError("the model is overloaded", code=-32050)
    told = holdfast.wrap_downstream(broken, agent="C", current="B").to_jsonrpc()
    b.inject(Fail(code=told["code"], message=told["message"], data=told["data"]))
    connect = functools.partial(holdfast.connect, engine=FakeNetwork(b))
    monkeypatch.setattr(holdfast, "connect", connect)

    names = await execute(the_one_with("wrap_downstream"), ProtocolErrors=ProtocolErrors)
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
    assert text in " ".join(README.read_text().split())


