"""Agents that call the client's tools, as the extension of AG2 has it."""

import asyncio

from holdfast import Artifact, Part, TaskState, connect
from holdfast.testing import FakeAgent, FakeNetwork, Plan, Step
from holdfast.types import AgentExtension

URI = "urn:ag2:client-tools:v1"


CALL = "application/vnd.ag2.tool-call+json"


def now():
    return asyncio.get_running_loop().time()


def call(number, name, arguments="{}"):
    data = {"id": f"call-{number}", "name": name, "arguments": arguments}
    return Artifact(
        artifact_id=f"call-{number}", name=name, parts=(Part(data=data, media_type=CALL),)
    )


def calls(*artifacts, after=0.0, says=None):
    """A task that waits for the results of calls."""
    waiting = Step(state=TaskState.INPUT_REQUIRED, after=after, artifacts=artifacts, says=says)
    return Plan((Step(state=TaskState.SUBMITTED), waiting))


def part_of(message, kind):
    """The data of the one part of a kind; None if there is none."""
    media_type = f"application/vnd.ag2.{kind}+json"
    found = [part.data for part in message.parts if part.media_type == media_type]
    assert len(found) <= 1
    return found[0] if found else None


class Scripted:
    """An agent whose turns are plans, one for each message that it gets.

    Attributes:
        turns: What it got.
    """

    def __init__(self, *plans, declared=True, **options):
        self._plans = list(plans)
        self.turns = []
        extensions = [AgentExtension(uri=URI)] if declared else []
        self.agent = FakeAgent(self._take, extensions=extensions, **options)

    def _take(self, turn):
        self.turns.append(turn)
        return self._plans[len(self.turns) - 1]

    def client(self, **options):
        options.setdefault("engine", FakeNetwork(self.agent))
        return connect(self.agent.url, **options)

    def results(self, turn):
        """What the message of a turn tells: (id, name, content, error) of each call."""
        told = part_of(self.turns[turn].message, "tool-result")["results"]
        return [(each["id"], each["name"], each["content"], each["error"]) for each in told]


def add(a: int, b: int = 1) -> int:
    """Adds two numbers."""
    return a + b


async def slow(seconds: float) -> str:
    """Takes its time."""
    await asyncio.sleep(seconds)
    return f"after {seconds:g} s"
