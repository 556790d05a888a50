"""Entries of catalogs as references to agents."""

import json

import pytest
from tests.kit.cli_harness import AGENT, holdfast

from holdfast.testing import FakeAgent, FakeNetwork, Respond

CATALOGS = [
    {"agents": {"one": AGENT, "two": "https://other.test"}},
    {"agents": {"one": {"agentCard": f"{AGENT}/.well-known/agent-card.json"}}},
    {"agents": [{"name": "one", "url": AGENT}]},
    [{"id": "one", "card": AGENT}],
]


@pytest.mark.parametrize("catalog", CATALOGS)
def test_card_get_005_an_entry_of_a_catalog_in_a_file(tmp_path, catalog):
    path = tmp_path / "agents.json"
    path.write_text(json.dumps(catalog))
    for words in (["card", "get"], ["send", "hello"]):
        done = holdfast(*words, card=f"{path}#one")
        assert done.exit == 0, done.err


def test_card_get_005_a_file_beside_the_catalog(tmp_path):
    card = holdfast("card", "get", "-o", "json").out
    (tmp_path / "card.json").write_text(card)
    (tmp_path / "agents.json").write_text('{"agents": {"one": "./card.json"}}')
    done = holdfast("send", "hello", card=f"{tmp_path}/agents.json#one")
    assert done.exit == 0, done.err


def fetched(content, *, entry="one", status=200, url=AGENT):
    agent = FakeAgent()
    body = content if isinstance(content, str) else json.dumps(content)
    answer = Respond(
        status=status, body=body.encode(), headers={"content-type": "application/json"}
    )
    agent.inject(answer, on="GetAgentCard", times=1)
    network = FakeNetwork(agent)
    words = ("send", "hello", "-o", "json", "--bearer", "s3cret-token")
    card = f"{url}/.well-known/agent-card.json#{entry}"
    return agent, holdfast(*words, card=card, engine=lambda **_: network)


def test_card_get_005_a_catalog_at_an_address_is_resolved_first_without_credentials():
    agent, done = fetched({"agents": {"one": "/.well-known/agent-card.json"}})
    assert done.exit == 0, done.err
    first = agent.received[0]
    assert "authorization" not in first.headers


@pytest.mark.parametrize(
    ("content", "status", "code", "exit_code", "why"),
    [
        ({"agents": {"two": AGENT}}, 200, "A2ACLI_ERR_CARD_NOT_FOUND", 3, "has no entry 'one'"),
        ("", 404, "A2ACLI_ERR_CARD_NOT_FOUND", 3, "HTTP 404"),
        ("no json", 200, "A2ACLI_ERR_CARD_INVALID", 1, "is not JSON"),
        ("[" * 100_000, 200, "A2ACLI_ERR_CARD_INVALID", 1, "is not JSON"),
        ({"agents": 1}, 200, "A2ACLI_ERR_CARD_INVALID", 1, "has no object or list named agents"),
        ({"agents": {"one": {}}}, 200, "A2ACLI_ERR_CARD_INVALID", 1, "names no address"),
        (
            {"agents": {"one": "file:///etc/passwd"}},
            200,
            "A2ACLI_ERR_CARD_INVALID",
            1,
            "more private network",
        ),
        (
            {"agents": {"one": "http://127.0.0.1"}},
            200,
            "A2ACLI_ERR_CARD_INVALID",
            1,
            "more private network",
        ),
        ({"agents": {"one": "http://169.254.169.254"}}, 200, "A2ACLI_ERR_CARD_INVALID", 1, "in"),
    ],
)
def test_card_get_005_failure_is_reported_in_the_envelope(content, status, code, exit_code, why):
    agent, done = fetched(content, status=status)
    assert (done.exit, done.error["code"]) == (exit_code, code)
    assert why in done.error["message"]
    assert not agent.calls("SendMessage")
    has_its_form = why not in {"has no entry 'one'", "more private network", "in"}
    assert ("a catalog is JSON, such as" in done.error["hint"]) is has_its_form


@pytest.mark.rule("P18")
@pytest.mark.parametrize("inside", ["127.0.0.1", "10.0.0.7", "169.254.169.254"])
@pytest.mark.parametrize("words", [("card", "get"), ("send", "hello"), ("doctor",)])
def test_an_entry_whose_name_leads_further_inside_than_the_catalog_gets_nothing(words, inside):
    catalog, agent = FakeAgent(), FakeAgent(url="http://inside.test")
    entry = json.dumps({"agents": {"one": "http://inside.test"}}).encode()

    def called(**addresses):
        catalog.inject(Respond(status=200, body=entry), on="GetAgentCard", times=1)
        hosts = {f"{name}.test": number for name, number in addresses.items()}
        network = FakeNetwork(catalog, agent, addresses=hosts)
        card = f"{AGENT}/.well-known/agent-card.json#one"
        return holdfast(*words, "-o", "json", card=card, engine=lambda **_: network)

    done = called(inside=inside)
    assert done.exit != 0
    assert inside in done.out
    assert agent.received == []
    if inside != "169.254.169.254":  # a catalog that lies there itself may name it
        assert called(inside=inside, agent=inside).exit == 0


def test_an_entry_that_leads_inside_by_the_next_connection_gets_nothing():
    agent = FakeAgent()

    class Rebinding(FakeNetwork):
        async def connect(self, request):
            agent = await super().connect(request)
            self._addresses["agent.test"] = "10.0.0.7"
            return agent

    entry = json.dumps({"agents": {"one": AGENT}}).encode()
    agent.inject(Respond(status=200, body=entry), on="GetAgentCard", times=1)
    network = Rebinding(agent, addresses={"agent.test": "8.8.8.8"})
    card = f"{AGENT}/.well-known/agent-card.json#one"
    done = holdfast("send", "hello", "-o", "json", card=card, engine=lambda **_: network)

    assert "10.0.0.7" in done.error["message"]
    assert agent.received == []


def test_card_get_005_the_entries_there_are_are_named():
    _, done = fetched({"agents": {"two": AGENT, "three": AGENT}})
    assert done.error["hint"] == "it has three, two"


def test_card_get_005_a_catalog_that_is_not_there(tmp_path):
    done = holdfast("send", "hello", "-o", "json", card=f"{tmp_path}/none.json#one")
    assert (done.exit, done.error["code"]) == (3, "A2ACLI_ERR_CARD_NOT_FOUND")


def test_a_file_whose_name_has_that_sign_is_a_file(tmp_path):
    path = tmp_path / "card#one"
    path.write_text(holdfast("card", "get", "-o", "json").out)
    assert holdfast("send", "hello", card=str(path)).exit == 0


@pytest.mark.parametrize("catalog", CATALOGS)
def test_a_catalog_without_the_name_of_an_entry_is_reported(tmp_path, catalog):
    path = tmp_path / "agents.json"
    path.write_text(json.dumps(catalog))
    done = holdfast("send", "hello", "-o", "json", card=str(path))
    assert (done.exit, done.error["code"]) == (1, "A2ACLI_ERR_CARD_INVALID")
    told = f"{path} is a catalog of agents: name an entry, as {path}#one"
    assert done.error["message"] == told


def test_a_misspelt_entry_is_reported_with_the_nearest_one_and_the_others(tmp_path):
    path = tmp_path / "agents.json"
    many = {f"agent-{number:02}": AGENT for number in range(12)}
    path.write_text(json.dumps({"agents": {**many, "weather": AGENT}}))
    done = holdfast("card", "get", "-o", "json", card=f"{path}#wether")
    assert done.error["hint"].startswith("did you mean weather? it has agent-00, agent-01, ")
    assert done.error["hint"].endswith(", and 3 more")
    assert "did you mean" not in holdfast("card", "get", card=f"{path}#nothing").err
