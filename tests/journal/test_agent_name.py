"""Names of agents in a journal: one name for all spellings of an address."""

from pathlib import Path

import pytest

from holdfast import AgentCard
from holdfast._journal.agent_name import agent_name, is_address
from holdfast.types import AgentInterface

SAME = {
    "http://agent.test": [
        "http://agent.test/",
        "http://agent.test:80",
        "HTTP://Agent.TEST:80//",
        "http://agent.test/.well-known/agent-card.json",
        "http://agent.test/.well-known/agent.json",
        "http://agent.test:80/.well-known/agent-card.json/",
    ],
    "https://agent.test:8443/a2a": [
        "https://agent.test:8443/a2a/",
        "https://AGENT.test:8443/a2a/.well-known/agent-card.json",
    ],
    "http://localhost:9999": [
        "http://127.0.0.1:9999",
        "http://[::1]:9999/",
        "http://LOCALHOST:9999/.well-known/agent.json",
    ],
    "https://localhost": ["https://127.0.0.1:443/", "https://[0:0:0:0:0:0:0:1]"],
    "http://[2001:db8::1]": ["http://[2001:DB8:0::1]:80/"],
    "dns:///agent.test:50051": [],
    "/etc/agent/card.json": [],
    "C:\\agents\\card.json": [],
}


@pytest.mark.parametrize(
    ("name", "address"), [(name, one) for name, all_ in SAME.items() for one in (name, *all_)]
)
def test_agent_name_is_the_same_for_all_spellings_of_an_address(name, address):
    assert agent_name(address) == name


OTHER_ADDRESSES = [
    "http://agent.test",
    "https://agent.test",
    "http://agent.test:8080",
    "http://agent.test/a",
    "http://agent.test/A",
    "http://agent.test/cards/agent-card.json",
    "http://127.0.0.2",
    "http://localhost",
    "http://app.localhost",
    "http://agent.test?tenant=a",
    "http://agent.test?tenant=b",
    "http://agent.test/a?tenant=a",
]


def test_agent_name_differs_for_other_agents():
    assert len({agent_name(address) for address in OTHER_ADDRESSES}) == len(OTHER_ADDRESSES)


def test_agent_name_hides_the_query():
    name = agent_name("http://agent.test/a/?key=s3cret")

    assert "s3cret" not in name
    assert "key" not in name
    assert name.startswith("http://agent.test/a#query-")
    assert "?" not in name
    assert not is_address(name)


@pytest.mark.parametrize("name", SAME)
def test_is_address_is_true_for_names_without_a_query(name):
    assert is_address(name)


@pytest.mark.parametrize("address", OTHER_ADDRESSES)
def test_agent_name_of_a_name_is_that_name(address):
    assert agent_name(agent_name(address)) == agent_name(address)


def test_agent_name_of_a_file_is_its_absolute_path(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    assert agent_name(Path("card.json")) == str(tmp_path / "card.json")


def test_agent_name_of_a_card_is_its_first_interface():
    card = AgentCard(
        supported_interfaces=(
            AgentInterface(url="http://127.0.0.1:80/rpc/"),
            AgentInterface(url="http://other.test"),
        )
    )

    assert agent_name(card) == "http://localhost/rpc"
