"""Replies that are lost on their way; the contract is that of ``test_messages.py``."""

import asyncio
import socket
import struct

import pytest
from tests.kit.contract import contract
from tests.kit.messages import message_of

from holdfast import ReconcilePolicy, Resilience, RetryPolicy
from holdfast._testing.listening import Listener

QUICK = Resilience(retry=RetryPolicy(base_delay=0.01), reconcile=ReconcilePolicy(backoff=0.01))

pytestmark = [pytest.mark.sdk, pytest.mark.real_time]


class LossyProxy(Listener):
    """Passes requests on to an agent, and cuts the connection instead of passing on the reply.

    Attributes:
        url: Where it listens.
        requests: What it passed on.
    """

    def __init__(self, target, cut):
        super().__init__(self._pass_on, host="127.0.0.1", port=0, largest_head=65536)
        self._target = target
        self._cut = cut
        self.requests = []

    async def _pass_on(self, reader, writer):
        request = await whole(reader)
        port = int(self._target.rpartition(":")[2])
        onward_reader, onward_writer = await asyncio.open_connection("127.0.0.1", port)
        self.requests.append(request)
        try:
            onward_writer.write(request)
            reply = await whole(onward_reader)  # the agent is done
        finally:
            onward_writer.transport.abort()
        sock = writer.get_extra_info("socket")
        match self._cut if b'"parts"' in request else "whole":
            case "whole":
                writer.write(reply)
            case "reset":
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                writer.transport.abort()
            case "cut":
                writer.write(reply[:-10])


async def whole(reader):
    """One HTTP message."""
    head = await reader.readuntil(b"\r\n\r\n")
    for line in head.decode("latin-1").lower().split("\r\n"):
        if line.startswith("content-length:"):
            return head + await reader.readexactly(int(line.partition(":")[2]))
    return head


@pytest.mark.rule("S05")
@contract
@pytest.mark.parametrize("cut", ["reset", "close", "cut"])
async def test_s05_lost_reply_leaves_one_execution_which_is_found(agent, cut):
    message = message_of("echo hello")
    async with agent, LossyProxy(agent.origin, cut) as proxy:
        url = f"{proxy.url}{await agent.path()}"
        async with agent.client(url=url, resilience=QUICK) as client:
            answer = await client.ask(message)
        executions = (await agent.executions())[message.message_id]

    assert (answer.text, executions) == ("hello", [answer.task_id])
    message_id = message.message_id.encode()
    sends = [
        request for request in proxy.requests if message_id in request and b"parts" in request
    ]
    assert len(sends) == 1
