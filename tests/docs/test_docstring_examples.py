"""The examples in docstrings run as they stand, with fake agents at their addresses."""

import types
from functools import partial
from unittest.mock import create_autospec

import pytest
from tests.kit.docstrings import examples, public_texts
from tests.kit.pages import execute

import holdfast
from holdfast import doctor
from holdfast.server import A2AServer
from holdfast.testing import FakeAgent, FakeNetwork, completes

EXAMPLES = {text.name: example for text in public_texts() for example in examples(text.doc)}


def test_the_most_used_names_have_an_example():
    assert len(EXAMPLES) >= 30
    assert all(EXAMPLES.values())


@pytest.mark.parametrize("name", EXAMPLES)
async def test_an_example_of_a_docstring_runs(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    plan = completes("An answer.", after=5)
    agents = [FakeAgent(plan, url=f"http://localhost:{port}") for port in (9999, 9998)]
    engine = FakeNetwork(*agents)
    async with holdfast.connect(agents[0].url, engine=engine) as agent:
        task = await agent.send_message("A task to look at.", return_immediately=True)
    assert task.id == "task-1"
    names = types.ModuleType("holdfast")
    names.__getattr__ = partial(getattr, holdfast)
    monkeypatch.setattr(doctor, "diagnose", partial(doctor.diagnose, engine=engine))
    monkeypatch.setattr(A2AServer, "serve", create_autospec(A2AServer.serve))
    for maker in (holdfast.ask, holdfast.connect, holdfast.Coordinator):
        setattr(names, maker.__name__, partial(maker, engine=engine))

    await execute(EXAMPLES[name], holdfast=names, print=lambda *texts, **options: None)
