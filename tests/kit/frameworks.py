"""Other people's clients, told over their standard input what to call (`tests/agents/calling`)."""

import asyncio
import json
import urllib.request

from tests.kit.faulty_agent import CARD_PATH, SENDING, FaultyAgent
from tests.kit.raw_server import serve
from tests.kit.real_agents import LIMIT

__all__ = ["Called", "call", "permit"]


class Called:
    """What came of a call.

    Attributes:
        outcome: What the client told at its end.
        retries: The errors after which something was tried again, each the first of its chain.
        asked: What reached the agent's door, in order, by the specification's names.
        executions: How often the agent executed a message.
    """

    def __init__(self, outcome, retries, asked, executions):
        self.outcome, self.retries = outcome, retries
        self.asked, self.executions = asked, executions

    def __repr__(self):
        return f"{self.executions} of {self.asked}, after {self.retries}: {self.outcome}"


async def call(
    process,
    agent,
    text,
    *,
    refused=False,
    known=False,
    card_path="",
    faults=(),
    at=SENDING,
    on_stream=None,
    **wanted,
):
    """Has a client call a real agent that is behind a door where things happen.

    Args:
        process: The client, from `tests.kit.real_agents`.
        agent: The agent's origin.
        text: What is said.
        refused: Whether the door's port refuses connections until something is tried again.
        known: Whether the client has the agent's card; else it is told where the card is.
        card_path: Where that is, at the door's address.
        faults: What happens at the door, see `FaultyAgent`; so `at` and `on_stream`.
        wanted: More of what the client is told.
    """
    before = await _executions(agent)
    door = FaultyAgent(agent, faults, at=at, on_stream=on_stream)
    async with asyncio.timeout(LIMIT), serve(door, refusing=refused) as server:
        url = server.url.rstrip("/")
        card = await _card(agent, url) if known else url + card_path
        await _write(process, {"card": card, "text": text, **wanted})
        retries = []
        while "outcome" not in (said := await _read(process)):
            retries.append(said["error"][0])
            await server.open_up()
            await _write(process, {})
    return Called(said["outcome"], retries, door.asked, await _executions(agent) - before)


async def permit(agent, pace, count):
    """Lets the agent send so many chunks more of what is paced by this name."""
    await _get(f"{agent}/permits?name={pace}&count={count}")


async def _card(agent, url):
    """The card of the agent behind a door, which offers nothing but messages and streams."""
    card = json.loads(json.dumps(await _get(agent + CARD_PATH)).replace(agent, url))
    card["capabilities"] = {"streaming": True}
    return card


async def _executions(agent):
    return sum(map(len, (await _get(agent + "/executions")).values()))


async def _get(url):
    def get():
        with urllib.request.urlopen(url, timeout=LIMIT) as reply:
            return json.load(reply)

    return await asyncio.to_thread(get)


async def _write(process, line):
    process.stdin.write(json.dumps(line).encode() + b"\n")
    process.stdin.flush()


async def _read(process):
    line = await asyncio.to_thread(process.stdout.readline)
    assert line, "the client has ended"
    return json.loads(line)
