"""The command `holdfast run`, run again and again on the same files."""

import json

from tests.kit.cli_harness import holdfast

from holdfast.testing import FakeAgent, completes


def echo(after=0):
    return FakeAgent(lambda turn: completes(turn.message.text.upper(), after=after))


class Runs:
    """The same command, run again and again."""

    def __init__(self, directory, agent=None):
        self.agent = echo() if agent is None else agent
        self.input = directory / "in.jsonl"
        self.output = directory / "out.jsonl"
        self.journal = directory / "calls.db"

    def __call__(self, *words, lines=None, output=None, **more):
        if lines is not None:
            text = lines if isinstance(lines, bytes) else "".join(f"{x}\n" for x in lines).encode()
            self.input.write_bytes(text)
        named = ["--input", str(self.input)] if "--input" not in words else []
        named += ["--results", str(output or self.output), "--journal", str(self.journal)]
        return holdfast("run", *named, *words, agent=self.agent, **more)

    @property
    def results(self):
        return [json.loads(line) for line in self.output.read_text().splitlines()]

    @property
    def texts(self):
        """What the agent made of each line."""
        assert len({one["line"] for one in self.results}) == len(self.results)
        return {one["line"]: text_of(one) for one in self.results}

    @property
    def sent(self):
        assert all(len(made) == 1 for made in self.agent.executions.values())
        return len(self.agent.executions)


def text_of(result):
    return result["task"]["artifacts"][0]["parts"][0]["text"]
