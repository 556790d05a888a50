"""Extensions that an agent requires, and authorizations in the middle of a task."""

import shlex

import pytest
from tests.kit.cli_harness import holdfast

from holdfast.testing import FakeAgent, FakeNetwork, Plan, Step, works_forever
from holdfast.types import AgentExtension, TaskState

REQUIRED = "https://e.test/required/v1"
OFFERED = "https://e.test/offered/v1"


def extended(behaviour="done"):
    return FakeAgent(
        behaviour,
        extensions=[AgentExtension(uri=REQUIRED, required=True), AgentExtension(uri=OFFERED)],
    )


def authorized_later(*, then=TaskState.COMPLETED, streaming=True):
    steps = (
        Step(state=TaskState.WORKING),
        Step(state=TaskState.AUTH_REQUIRED, after=5, says="log in at https://login.test"),
        Step(state=TaskState.WORKING, after=60),
        Step(state=then, after=5, says="thank you"),
    )
    return FakeAgent(lambda _: Plan(steps), streaming=streaming)


# ── Extensions ───────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "given",
    [
        {"words": ("--extension", REQUIRED, "--extension", OFFERED)},
        {"env": {"A2ACLI_EXTENSION": f"{REQUIRED}, {OFFERED}"}},
    ],
)
def test_ver_002_extensions_are_declared_with_each_request(given):
    agent = extended()
    words, env = given.get("words", ()), given.get("env")

    sent = holdfast("send", "hello", *words, agent=agent, env=env)
    seen = holdfast("task", "get", "task-1", *words, agent=agent, env=env)

    assert (sent.exit, seen.exit) == (0, 0)
    calls = [one for one in agent.received if one.operation in {"SendMessage", "GetTask"}]
    assert len(calls) >= 2
    assert {one.headers["a2a-extensions"] for one in calls} == {f"{REQUIRED},{OFFERED}"}


def test_ver_002_without_one_that_is_required_nothing_is_sent_and_the_flag_is_named():
    agent = extended()
    done = holdfast("send", "hello", "-o", "json", agent=agent)
    assert done.exit == 1
    assert done.error["code"] == "ExtensionSupportRequiredError"
    assert f"--extension {REQUIRED}" in done.error["hint"]
    assert not agent.calls("SendMessage")


def test_ver_002_one_that_the_agent_does_not_know_is_an_error():
    agent = extended()
    words = ("--extension", REQUIRED, "--extension", "urn:other")
    done = holdfast("send", "hello", "-o", "json", *words, agent=agent)
    assert (done.exit, done.error["code"]) == (1, "HOLDFAST_ERR_EXTENSION")
    assert "urn:other" in done.error["message"]
    assert "extensions=" not in done.error["message"]  # that is for programs
    assert not agent.calls("SendMessage")


def test_ver_002_the_command_that_continues_declares_them_as_well():
    agent = extended(lambda _: works_forever())
    done = holdfast("send", "hello", "--async", "--extension", REQUIRED, agent=agent)
    (hint,) = [line for line in done.err.splitlines() if "task get" in line]
    assert f"--extension {REQUIRED}" in hint


@pytest.mark.parametrize("uri", ["", "urn:a,urn:b\n"])
def test_a_uri_that_cannot_be_in_a_header_is_a_usage_error(uri):
    done = holdfast("send", "hello", "--extension", uri, "-o", "json")
    assert (done.exit, done.error["code"]) == (2, "A2ACLI_ERR_USAGE")


# ── Authorizations ───────────────────────────────────────────────────────────────────────────


def next_commands(done):
    """The commands that hints name, as words."""
    hints = [line for line in done.err.splitlines() if line.startswith("Hint: ")]
    return [shlex.split(hint[hint.index("holdfast ") :])[1:] for hint in hints]


def test_auth_011_a_wait_stops_and_says_how_the_task_continues():
    network = FakeNetwork(authorized_later())

    asked = holdfast("send", "hello", engine=lambda **_: network)
    follow, reply = next_commands(asked)
    done = holdfast(*follow, card=None, engine=lambda **_: network)

    assert asked.exit == 0
    assert asked.field("State") == "TASK_STATE_AUTH_REQUIRED"
    assert asked.field("Status message") == "log in at https://login.test"
    assert reply[:3] == ["send", "--task-id", "task-1"]
    assert (done.exit, done.field("State")) == (0, "TASK_STATE_COMPLETED")


@pytest.mark.parametrize("streaming", [True, False])
@pytest.mark.parametrize("how", [[], ["--stream"]])
def test_auth_011_command_waits_until_the_task_is_authorized(how, streaming):
    agent = authorized_later(streaming=streaming)
    done = holdfast("send", "hello", "--through-auth", *how, agent=agent)
    assert done.exit == 0
    assert done.out.rindex("TASK_STATE_COMPLETED") > done.out.rindex("Task ID: ")
    assert "waits for authorization: log in at https://login.test" in done.err
    assert len(agent.calls("SendMessage")) + len(agent.calls("SendStreamingMessage")) == 1


def test_auth_011_it_still_stops_where_the_agent_asks_for_something_else():
    agent = authorized_later(then=TaskState.INPUT_REQUIRED)
    done = holdfast("send", "hello", "--through-auth", agent=agent)
    assert (done.exit, done.field("State")) == (0, "TASK_STATE_INPUT_REQUIRED")


def test_auth_011_missing_authorization_is_a_timeout():
    words = ("--through-auth", "--timeout", "30s", "-o", "json")
    done = holdfast("send", "hello", *words, agent=authorized_later())
    assert (done.exit, done.error["code"]) == (5, "A2ACLI_ERR_TIMEOUT")
    assert "task-1 was last seen TASK_STATE_AUTH_REQUIRED" in done.error["message"]
    assert "task get --wait --through-auth task-1" in done.error["hint"]
