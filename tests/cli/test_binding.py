"""Credentials of the command line go only to the agents that they were given for."""

import json

import msgspec
import pytest
from tests.kit.cli_harness import holdfast

from holdfast import connect
from holdfast.testing import FakeAgent, FakeNetwork, Respond, run

SECRET = "canary-51c2d9"
AGENT = "https://agent.test"
OTHER = "https://other.test"
CREDENTIALS = {
    "A2ACLI_BEARER": SECRET,
    "A2ACLI_API_KEY": SECRET,
    "A2ACLI_SVC_PARAM": f"x:{SECRET}",
}


@pytest.fixture
def send(found, own):
    """Send a message to an agent, and return what came out and whether it got the secret."""

    def send(url=AGENT, *words, **more):
        agent = FakeAgent(url=url)
        places = {"home": own.parents[2], "directory": found.parent}
        done = holdfast("send", "hello", *words, agent=agent, **{"card": url, **places, **more})
        assert agent.received or done.exit == 2
        shown = json.dumps([[one.url, *one.headers.values()] for one in agent.received])
        return done, shown.count(SECRET) > 0

    return send


def stated(variables):
    return "".join(f"{name}={value}\n" for name, value in variables.items())


def test_without_an_agent_of_their_own_they_go_to_the_one_that_the_user_names(send, own):
    assert send(env=CREDENTIALS)[1]
    assert send(card=None, env={"A2ACLI_AGENT_CARD": AGENT, **CREDENTIALS})[1]
    own.write_text(stated(CREDENTIALS))
    assert send()[1]
    assert send(card=None, env={"A2ACLI_AGENT_CARD": AGENT})[1]


@pytest.mark.rule("P22")
@pytest.mark.parametrize("names", ["A2ACLI_AGENT_CARD", "A2ACLI_CREDENTIAL_ORIGIN"])
@pytest.mark.parametrize("by", ["environment", "file"])
def test_they_stay_with_the_agent_that_is_named_beside_them(send, own, names, by):
    variables, where = {names: f"{AGENT}/", **CREDENTIALS}, {}
    if by == "file":
        own.write_text(stated(variables))
    else:
        where = {"env": variables}
    done, got_it = send(**where)
    assert (done.exit, done.err, got_it) == (0, "", True)
    done, got_it = send(OTHER, **where)
    assert (done.exit, got_it) == (0, False)
    assert done.err.count(" is not sent: it belongs to https://agent.test/, which ") == 3
    assert done.err.count(f"--credential-origin {OTHER}:443\n") == 3
    done, got_it = send(OTHER, "--credential-origin", OTHER, **where)
    assert (done.exit, done.err, got_it) == (0, "", True)


@pytest.mark.rule("P22")
def test_each_source_binds_its_own(send, own):
    own.write_text(stated({"A2ACLI_AGENT_CARD": AGENT, "A2ACLI_BEARER": SECRET}))
    assert not send(OTHER, env={"A2ACLI_CREDENTIAL_ORIGIN": OTHER})[1]
    assert not send(OTHER, card=None, env={"A2ACLI_AGENT_CARD": OTHER})[1]
    assert send(card=None)[1]


@pytest.mark.rule("P22")
@pytest.mark.parametrize("how", ["flag", "environment", "file"])
def test_none_goes_to_an_agent_that_only_a_found_file_names(send, found, own, how):
    found.write_text(f"A2ACLI_OUTPUT=text\nA2ACLI_AGENT_CARD={OTHER}\n")
    words = ["--bearer", SECRET] if how == "flag" else []
    own.write_text(stated(CREDENTIALS) if how == "file" else "")
    env = CREDENTIALS if how == "environment" else {}
    done, got_it = send(OTHER, *words, card=None, env=env)
    assert (done.exit, got_it) == (0, False)
    assert f"{found}, line 2 names the agent {OTHER}, but the file may not be yours" in done.err
    assert f"if you trust the agent: --agent-card {OTHER}" in done.err
    done, got_it = send(OTHER, *words, env=env)
    assert (done.exit, done.err, got_it) == (0, "", True)


@pytest.mark.rule("P22")
def test_a_found_file_cannot_name_an_origin_for_them(send, found):
    found.write_text(f"A2ACLI_AGENT_CARD={OTHER}\nA2ACLI_CREDENTIAL_ORIGIN={OTHER}\n")
    done, got_it = send(OTHER, card=None, env=CREDENTIALS)
    assert "A2ACLI_CREDENTIAL_ORIGIN is ignored" in done.err
    assert not got_it


def test_a_command_to_copy_runs_nothing_of_a_found_file(found):
    found.write_text(f"A2ACLI_AGENT_CARD='{OTHER}/;touch owned'\n")
    done = holdfast("send", "hello", card=None, directory=found.parent, env=CREDENTIALS)
    assert f"--agent-card '{OTHER}/;touch owned'\n" in done.err


def test_the_secrets_of_a_push_configuration_are_refused_to_another_agent(found):
    found.write_text(f"A2ACLI_AGENT_CARD={OTHER}\n")
    agent = FakeAgent(url=OTHER)
    done = holdfast(
        "task", "push-config", "create", "t", "https://me.test/hook",
        card=None, agent=agent, directory=found.parent, env={"A2ACLI_PUSH_TOKEN": SECRET},
    )  # fmt: skip
    assert done.exit == 2
    assert "A2ACLI_PUSH_TOKEN in the environment is not sent" in done.err
    assert agent.received == []


def test_a_card_in_a_file_stands_for_its_first_interface(send, tmp_path):
    agent = FakeAgent(url=OTHER)
    card = run(connect(OTHER, engine=FakeNetwork(agent)).agent_card())
    path = tmp_path / "card.json"
    path.write_bytes(msgspec.json.encode(card))
    for origin, expected in ((OTHER, True), (AGENT, False)):
        env = {"A2ACLI_BEARER": SECRET, "A2ACLI_CREDENTIAL_ORIGIN": origin}
        assert send(OTHER, card=str(path), env=env)[1] is expected


def test_a_401_of_an_agent_that_they_are_not_for_is_explained():
    agent = FakeAgent(url=OTHER)
    agent.inject(Respond(status=401), on="SendMessage", times=9)
    env = {"A2ACLI_AGENT_CARD": AGENT, "A2ACLI_BEARER": SECRET}
    done = holdfast("send", "hello", card=OTHER, agent=agent, env=env)
    assert done.exit == 4
    assert "Hint: the credentials that are set belong to another agent" in done.err


def test_a_login_is_not_made_for_an_agent_that_a_found_file_names(found):
    found.write_text(f"A2ACLI_AGENT_CARD={OTHER}\n")
    agent = FakeAgent(url=OTHER)
    words = ("auth", "login", "--client-id", "me", "--issuer", "https://id.test")
    done = holdfast(*words, card=None, agent=agent, directory=found.parent)
    assert done.exit == 2
    assert f"{found}, line 1 names the agent" in done.err
    assert agent.received == []


def test_an_address_without_a_card_is_an_agent_like_any_other(found):
    words = ("send", "hello", "--transport", "JSONRPC", "--bearer", SECRET)
    for name, by in (("environment", {"env": {"A2ACLI_ENDPOINT": f"{OTHER}/rpc"}}), ("file", {})):
        found.write_text("" if by else f"A2ACLI_ENDPOINT={OTHER}/rpc\n")
        agent = FakeAgent(url=OTHER)
        done = holdfast(*words, card=None, agent=agent, directory=found.parent, **by)
        assert done.exit == 0, done.err
        shown = {one.headers.get("authorization") for one in agent.received}
        assert shown == ({f"Bearer {SECRET}"} if name == "environment" else {None})
