"""Agents behind `A2AServer`, called in process."""

import contextlib
import json

from a2a.server.agent_execution import AgentExecutor
from a2a.types import a2a_pb2

import holdfast
from holdfast.extend import HttpRequest
from holdfast.server import A2AServer
from holdfast.testing import AsgiNetwork

__all__ = ["URL", "calling", "echo", "post"]

URL = "http://agent.test"


@contextlib.asynccontextmanager
async def calling(agent, binding="JSONRPC", **options):
    """A client of the agent, over one binding; at the end nothing is left running."""
    server = agent if isinstance(agent, A2AServer) else A2AServer(agent, **options)
    network = AsgiNetwork({URL: server.app(url=URL)})
    try:
        async with holdfast.connect(URL, engine=network, bindings=[binding]) as client:
            yield client
    finally:
        await server.close()
        assert network.crashes == []


async def post(server, document, path="/", **headers):
    """Sends bytes or JSON to the server's application; gives status and what was answered."""
    body = document if isinstance(document, bytes) else json.dumps(document).encode()
    named = {"content-type": "application/json", "a2a-version": "1.0", **headers}
    network = AsgiNetwork({URL: server.app(url=URL)})
    request = HttpRequest(method="POST", url=f"{URL}{path}", headers=named, body=body)
    reply = await network.request(request)
    return reply.status, json.loads(reply.body)


async def echo(message):
    """Says what it was told.

    And nothing else.
    """
    return f"You said {message.text}"


class SdkExecutor(AgentExecutor):
    async def execute(self, context, event_queue):
        if context.get_user_input() == "raise":
            raise RuntimeError("hunter2")
        said = a2a_pb2.Message(
            message_id="m", role=a2a_pb2.ROLE_AGENT, parts=[a2a_pb2.Part(text="as it is")]
        )
        await event_queue.enqueue_event(said)

    async def cancel(self, context, event_queue):
        raise NotImplementedError
