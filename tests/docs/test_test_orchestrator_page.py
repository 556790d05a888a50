"""The code in docs/howto/test-orchestrator.md runs as it stands, and does what the page says."""

import inspect
import re

import pytest
from tests.kit.pages import Page, execute

import holdfast
from holdfast import testing
from holdfast.testing import FakeAgent, FakeNetwork, LoopbackServer, streams

PAGE = Page("docs/howto/test-orchestrator.md")
EXAMPLES = (
    "test_agents_that_fail_or_hang_are_unknown",
    "test_a_question_is_answered",
    "test_a_message_is_executed_once_whatever_happens",
    "test_no_text_is_lost_or_repeated_by_a_cut",
    "test_an_order_survives_a_crash",
    "test_survives_rate_limiting",
    "test_an_sdk_program_survives_a_cut",
)


async def names_of(text, **names):
    return await execute(PAGE.block(text), **names)


@pytest.mark.parametrize("example", EXAMPLES)
async def test_an_example_passes(example, tmp_path):
    agent = FakeAgent()
    fixtures = {
        "tmp_path": tmp_path,
        "holdfast_fake_agent": agent,
        "holdfast_client": holdfast.connect(agent.url, engine=FakeNetwork(agent)),
    }
    program = await names_of("async def plan_evening")
    names = await names_of(f"def {example}", plan_evening=program["plan_evening"])

    test = names[example]

    assert [mark.name for mark in test.pytestmark] == ["holdfast_virtual_time"]
    await test(**{name: fixtures[name] for name in inspect.signature(test).parameters})


async def test_the_sdk_example_passes_with_the_sdks_own_factory_and_no_fault():
    block = PAGE.block("def test_an_sdk_program_survives_a_cut")
    own = block.replace(", engine=network)\n        async", ")\n        async").replace(
        "from holdfast.integrations.a2a_sdk import client_factory",
        "from a2a.client import ClientFactory as client_factory",
    )
    own = re.sub(r"    agent\.inject\(.*\n", "", own)
    assert own.count("client_factory") == block.count("client_factory")
    names = await execute(own)
    await names["test_an_sdk_program_survives_a_cut"]()


async def test_an_agent_of_ones_own_is_called():
    printed = []
    await names_of("A2AServer(weather)", print=printed.append)
    assert printed == ["It is sunny in Rome."]


@pytest.mark.real_time
async def test_a_proxy_cuts_the_stream_of_a_real_agent(monkeypatch):
    printed, proxies, proxy = [], [], testing.FaultProxy
    async with LoopbackServer(FakeAgent(streams("384,400", " km"))) as server:

        def in_front_of(address):
            proxies.append((address, proxy(server.url)))
            return proxies[0][1]

        monkeypatch.setattr(testing, "FaultProxy", in_front_of)
        await names_of("FaultProxy(", print=printed.append)

    assert printed == ["384,400 km"]
    [(address, used)] = proxies
    assert (address, used.pending_faults) == ("http://localhost:9999", ())


def test_the_tables_name_every_fault_and_every_plan():
    faults = [name for name in testing.__all__ if _is_fault(getattr(testing, name))]
    plans = ["completes", "streams", "fails", "rejects", "asks", "needs_auth", "crashes"]
    plans += ["works_forever", "replies"]
    errors = [name for name in testing.__all__ if name.endswith("Error")]
    rows = [line for line in PAGE.text.splitlines() if line.startswith("| `")]
    for name in [*faults, *plans, *errors, "rate_limited", "unavailable", "bad_gateway"]:
        assert any(f"`{name}" in row for row in rows), name


def _is_fault(value):
    is_class = isinstance(value, type)
    return is_class and issubclass(value, testing.Fault) and value is not testing.Fault


def test_every_block_is_run():
    PAGE.check_complete(
        "async def plan_evening",
        "def test_agents_that_fail_or_hang_are_unknown",
        "def test_a_question_is_answered",
        "def test_a_message_is_executed_once_whatever_happens",
        "def test_an_order_survives_a_crash",
        "def test_survives_rate_limiting",
        "def test_an_sdk_program_survives_a_cut",
        "A2AServer(weather)",
        "FaultProxy(",
    )


def test_every_link_leads_somewhere():
    PAGE.check_links()
