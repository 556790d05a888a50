"""What the commands do: send, task get, task cancel, card get, help (a2a-cli 7 to 10)."""

import json
import re
import shlex
from itertools import pairwise

import click
import pytest
from tests.kit.cli_harness import AGENT, holdfast

from holdfast._cli.app import app
from holdfast._cli.environment import CliEnvironment
from holdfast.testing import (
    Cut,
    Delay,
    FakeAgent,
    FakeNetwork,
    Plan,
    Refuse,
    Reset,
    Respond,
    Stall,
    Step,
    asks,
    completes,
    fails,
    needs_auth,
    rate_limited,
    rejects,
    replies,
    streams,
    works_forever,
)
from holdfast.types import (
    AgentCapabilities,
    AgentCard,
    AgentExtension,
    AgentInterface,
    Artifact,
    Message,
    Part,
    Role,
    Task,
    TaskState,
    TaskStatus,
)


def sent(agent, number=0):
    """The request of a SendMessage, as the agent got it."""
    body = json.loads(agent.calls("SendMessage")[number].body)
    return body["params"] if "jsonrpc" in body else body


# ── send ─────────────────────────────────────────────────────────────────────────────────────


def test_send_waits_and_shows_the_artifact():
    agent = FakeAgent(lambda _: completes("42", after=30, works=1))
    done = holdfast("send", "the answer?", agent=agent)
    assert done.exit == 0
    assert done.out == (
        "Task ID: task-1\nContext ID: context-2\nState: TASK_STATE_COMPLETED\n"
        "Artifact: artifact-1\nText:\n42\n\n"
    )
    assert done.err == ""


def test_send_asks_for_the_task_id_at_once_and_sends_once():
    agent = FakeAgent(lambda _: completes("42", after=30))
    holdfast("send", "the answer?", agent=agent)
    assert len(agent.calls("SendMessage")) == 1
    assert sent(agent)["configuration"] == {"returnImmediately": True}
    assert len(agent.calls("GetTask")) > 1


def test_send_gives_one_json_document_with_the_response_wrapper():
    done = holdfast("send", "hello", "-o", "json")
    assert done.exit == 0
    assert list(done.json) == ["task"]
    assert done.json["task"]["status"]["state"] == "TASK_STATE_COMPLETED"
    assert done.json["task"]["artifacts"][0]["parts"] == [{"text": "hello"}]


@pytest.mark.parametrize("flag", ["--async", "--no-wait", "--return-immediately"])
def test_async_returns_at_once_with_the_identifiers_and_the_way_on(flag):
    agent = FakeAgent(lambda _: works_forever())
    done = holdfast("send", "hello", flag, agent=agent)
    assert done.exit == 0
    assert done.field("Task ID") == "task-1"
    assert done.field("Context ID") == "context-2"
    assert done.field("State") == "TASK_STATE_WORKING"
    assert done.err == f"Hint: holdfast task get --wait task-1 --agent-card {AGENT}\n"
    assert agent.calls("GetTask") == []


def test_async_in_json_is_the_task():
    done = holdfast(
        "send", "hi", "--async", "-o", "json", agent=FakeAgent(lambda _: works_forever())
    )
    assert done.json["task"]["id"] == "task-1"
    assert done.json["task"]["contextId"] == "context-2"


def test_a_message_reply_is_shown():
    agent = FakeAgent(lambda _: replies("hi there"))
    done = holdfast("send", "hello", agent=agent)
    assert done.exit == 0
    assert done.out == "Message ID: message-1\nContext ID: context-2\nText:\nhi there\n\n"


def test_a_message_reply_in_json_is_wrapped():
    agent = FakeAgent(lambda _: replies("hi there"))
    done = holdfast("send", "hello", "-o", "json", agent=agent)
    assert done.json["message"]["parts"] == [{"text": "hi there"}]
    assert done.json["message"]["role"] == "ROLE_AGENT"


@pytest.mark.parametrize("form", ["text", "json"])
@pytest.mark.parametrize(
    ("plan", "state", "words", "why"),
    [
        (fails("no luck", after=5), "TASK_STATE_FAILED", "failed", ": no luck"),
        (fails(after=5), "TASK_STATE_FAILED", "failed", ""),
        (rejects("not mine", after=5), "TASK_STATE_REJECTED", "was rejected", ": not mine"),
        (asks("Which city?", after=5), "TASK_STATE_INPUT_REQUIRED", "waits for your answer", ""),
        (needs_auth("log in"), "TASK_STATE_AUTH_REQUIRED", "waits for authorization", ""),
    ],
)
def test_an_outcome_is_no_failure_of_the_command(form, plan, state, words, why):
    done = holdfast("send", "hello", "-o", form, agent=FakeAgent(lambda _: plan))
    assert done.exit == 0
    assert state in done.out
    assert f"Warning: task task-1 {words} ({state}){why}\n" in done.err


@pytest.mark.parametrize("form", ["text", "json"])
@pytest.mark.parametrize(
    "words",
    [
        ("send", "hi", "--stream"),
        ("task", "get", "--wait", "task-1"),
        ("task", "subscribe", "task-1"),
    ],
)
def test_the_reason_of_a_failed_task_is_one_short_line_on_stderr_and_whole_on_stdout(words, form):
    agent = FakeAgent(lambda _: fails(f"no oven:\n\x1b[2J{'x' * 400}", after=5))
    if words[0] == "task":
        holdfast("send", "hi", "--async", agent=agent)
    done = holdfast(*words, "-o", form, agent=agent)
    (warning,) = (line for line in done.err.splitlines() if line.startswith("Warning: "))
    assert warning.startswith(
        "Warning: task task-1 failed (TASK_STATE_FAILED): no oven: \\x1b[2Jx"
    )
    assert warning.endswith("xx…")
    assert len(warning) < 380
    assert "x" * 400 in done.out


def test_a_question_comes_with_the_command_that_answers_it():
    done = holdfast("send", "hello", agent=FakeAgent(lambda _: asks("Which city?", after=3)))
    assert done.field("Status message") == "Which city?"
    answer = f"Hint: holdfast send --task-id task-1 '<reply>' --agent-card {AGENT}\n"
    assert answer in done.err


def test_authorization_request_comes_with_the_command_that_continues():
    done = holdfast("send", "hello", agent=FakeAgent(lambda _: needs_auth("log in")))
    assert (
        f"Hint: holdfast task get --wait --through-auth task-1 --agent-card {AGENT}\n" in done.err
    )


def test_the_command_to_continue_keeps_what_was_said_about_the_agent():
    agent = FakeAgent(lambda _: asks("Which?"))
    done = holdfast("send", "hi", "--transport", "HTTP+JSON", "--insecure", agent=agent)
    assert "'<reply>' --agent-card http://agent.test --transport HTTP+JSON --insecure" in done.err


def test_a_task_is_continued_by_its_id():
    def behave(turn):
        return asks("Which city?") if turn.task is None else completes(turn.message.text)

    agent = FakeAgent(behave)
    network = FakeNetwork(agent)
    holdfast("send", "weather", engine=lambda **_: network)
    done = holdfast("send", "London", "--task-id", "task-1", engine=lambda **_: network)
    assert done.field("State") == "TASK_STATE_COMPLETED"
    assert sent(agent, 1)["message"]["taskId"] == "task-1"
    assert "contextId" not in sent(agent, 1)["message"]


def test_a_context_is_continued_by_its_id():
    agent = FakeAgent()
    done = holdfast("send", "hello", "--context-id", "context-77", agent=agent)
    assert sent(agent)["message"]["contextId"] == "context-77"
    assert done.field("Context ID") == "context-77"


def test_no_identifier_is_invented():
    agent = FakeAgent()
    holdfast("send", "hello", agent=agent)
    assert sent(agent)["message"].keys() == {"messageId", "role", "parts"}


def test_metadata_of_the_message_and_of_its_parts_go_where_they_belong(tmp_path):
    file = tmp_path / "d.json"
    file.write_text("[1]")
    parts = ("--data", str(file), "--media-type", "a/b", "--part-metadata", '{"p": 1}')
    agent = FakeAgent()
    holdfast("send", "hi", *parts, "--message-metadata", '{"m": 1}', agent=agent)
    assert sent(agent)["message"]["metadata"] == {"m": 1}
    assert sent(agent)["message"]["parts"] == [
        {"text": "hi"},
        {"data": [1], "mediaType": "a/b", "metadata": {"p": 1}},
    ]
    assert "metadata" not in sent(agent)


def test_part_metadata_needs_a_part_before_it():
    agent = FakeAgent()
    done = holdfast("send", "--part-metadata", '{"p": 1}', "--text", "hi", agent=agent)
    assert done.exit == 2
    assert "--part-metadata must follow the --text" in done.err
    assert not agent.calls("SendMessage")


def test_metadata_travels_in_the_request():
    agent = FakeAgent()
    holdfast("send", "hello", "--metadata", '{"k": [1, null]}', agent=agent)
    assert sent(agent)["metadata"] == {"k": [1, None]}


def test_a_rejected_task_id_fails_and_makes_no_new_task():
    agent = FakeAgent()
    done = holdfast("send", "hello", "--task-id", "nope", "-o", "json", agent=agent)
    assert done.exit == 1
    assert done.error["code"] == "TaskNotFoundError"
    assert done.error["a2aCode"] == -32001
    assert "no new task was created" in done.error["hint"]
    assert "--debug" in done.error["hint"]
    assert len(agent.calls("SendMessage")) == 1


@pytest.mark.parametrize("words", [["send", "hi"], ["task", "get", "--wait", "task-1"]])
def test_a_wait_stops_at_an_authorization_that_is_asked_for_later(words):
    agent = FakeAgent(
        lambda _: Plan(
            (
                Step(state=TaskState.WORKING),
                Step(state=TaskState.AUTH_REQUIRED, after=30, says="log in"),
                Step(state=TaskState.COMPLETED, after=60),
            )
        )
    )
    network = FakeNetwork(agent)
    holdfast("send", "hi", "--async", engine=lambda **_: network)
    done = holdfast(*words, engine=lambda **_: network)
    assert done.exit == 0
    assert done.field("State") == "TASK_STATE_AUTH_REQUIRED"
    assert done.field("Status message") == "log in"


def test_unspecified_is_neither_an_end_nor_an_interruption():
    steps = (
        Step(state=TaskState.SUBMITTED),
        Step(state=TaskState.UNSPECIFIED, after=1),
        Step(state=TaskState.COMPLETED, after=100),
    )
    done = holdfast("send", "hello", agent=FakeAgent(lambda _: Plan(steps)))
    assert done.field("State") == "TASK_STATE_COMPLETED"


def test_an_unspecified_state_is_named_as_received():
    plan = Plan((Step(state=TaskState.UNSPECIFIED),))
    agent = FakeAgent(lambda _: plan)
    text = holdfast("send", "hello", "--async", agent=agent)
    assert text.field("State") == "TASK_STATE_UNSPECIFIED"
    document = holdfast("send", "hello", "--async", "-o", "json", agent=FakeAgent(lambda _: plan))
    assert document.json["task"]["status"]["state"] == "TASK_STATE_UNSPECIFIED"


def test_a_cancel_without_a_timeout_tells_its_own():
    agent = FakeAgent(lambda _: works_forever())
    network = FakeNetwork(agent)
    holdfast("send", "hi", "--async", engine=lambda **_: network)
    agent.inject(Stall(), on="CancelTask", times=9)
    done = holdfast("task", "cancel", "task-1", engine=lambda **_: network)
    assert done.exit == 5
    assert "the timeout of 1m expired" in done.err


# ── When it does not work ────────────────────────────────────────────────────────────────────


def test_the_timeout_ends_the_wait_and_names_the_task():
    agent = FakeAgent(lambda _: works_forever())
    done = holdfast("send", "hello", "--timeout", "90", agent=agent)
    assert done.exit == 5
    assert done.out == ("Task ID: task-1\nContext ID: context-2\nState: TASK_STATE_WORKING\n")
    assert done.err == (
        "Error: the timeout of 1m30s expired; task task-1 was last seen TASK_STATE_WORKING\n"
        "Code: A2ACLI_ERR_TIMEOUT\n"
        f"Hint: holdfast task get --wait task-1 --agent-card {AGENT}\n"
    )


def test_the_timeout_in_json_is_the_only_document():
    agent = FakeAgent(lambda _: works_forever())
    done = holdfast("send", "hello", "--timeout", "5s", "-o", "json", agent=agent)
    assert done.exit == 5
    assert done.error["code"] == "A2ACLI_ERR_TIMEOUT"
    assert "task-1" in done.error["message"]
    assert "Task ID: task-1\n" in done.err
    assert (done.error["taskId"], done.error["contextId"]) == ("task-1", "context-2")


def test_the_timeout_counts_from_the_start_of_the_command():
    agent = FakeAgent(lambda _: works_forever(), latency=4.0)
    done = holdfast("send", "hello", "--timeout", "10s", agent=agent)
    assert done.exit == 5
    assert max(call.at for call in agent.received) < 10


def test_the_poll_interval_is_kept_and_reached_step_by_step():
    agent = FakeAgent(lambda _: completes("done", after=100), streaming=False)
    holdfast("send", "hello", "--poll-interval", "16s", agent=agent)
    looks = [call.at for call in agent.calls("GetTask")]
    gaps = [later - earlier for earlier, later in pairwise(looks)]
    assert gaps[:5] == [1, 2, 4, 8, 16]
    assert max(gaps) == 16


def test_a_message_lost_to_the_timeout_is_a_timeout_that_names_it():
    agent = FakeAgent()
    agent.inject(Stall(after_execution=True), on="SendMessage")
    done = holdfast("send", "hello", "--timeout", "20s", "-o", "json", agent=agent)
    assert done.exit == 5
    assert done.error["code"] == "A2ACLI_ERR_TIMEOUT"
    message_id = sent(agent)["message"]["messageId"]
    assert message_id in done.error["message"]
    assert done.error["hint"] == (
        f"search for message {message_id} with holdfast task list --all --history 10 -o json "
        f"--agent-card {AGENT}; send it again only if running it twice does no harm"
    )


def test_a_timeout_that_leaves_no_time_to_search_says_so_and_names_the_operation_once():
    agent = FakeAgent()
    agent.inject(Stall(after_execution=True), on="SendMessage")
    done = holdfast("send", "hello", "--timeout", "4s", agent=agent)
    (told,) = [line for line in done.err.splitlines() if line.startswith("Warning: ")]
    assert told.startswith("Warning: SendMessage did not finish within the call timeout of 4 s ")
    assert told.endswith("no time is left to search for its task; the message is not sent again")


def test_the_search_for_a_lost_reply_is_reported_when_it_begins():
    agent = FakeAgent()
    agent.inject(Respond(status=500, body=b"oops"), on="SendMessage")
    agent.inject(Respond(status=503, body=b"busy"), on="ListTasks")
    done = holdfast("send", "hello", agent=agent)
    assert done.exit == 1
    (searching,) = [line for line in done.err.splitlines() if "searching for its task" in line]
    assert searching.startswith("Warning: SendMessage: HTTP 500 Internal Server Error (agent ")
    assert "for up to 30s; the message is not sent again" in searching
    assert "Warning: ListTasks: HTTP 503 Service Unavailable" in done.err
    assert done.err.index("searching") < done.err.index("Warning: ListTasks: ")
    assert (
        f"with holdfast task list --all --history 10 -o json --agent-card {AGENT}; send"
        in done.err
    )


def test_a_task_that_the_search_found_is_reported():
    agent = FakeAgent()
    agent.inject(Reset(after_execution=True), on="SendMessage")
    done = holdfast("send", "hello", agent=agent)
    assert (done.exit, done.field("State")) == (0, "TASK_STATE_COMPLETED")
    first, second, *_ = done.err.splitlines()
    assert first.startswith("Warning: SendMessage: the connection was")
    assert second.startswith(
        f"Warning: the search found task {done.field('Task ID')}, created by "
    )


def test_a_wait_says_once_that_the_agent_is_away_and_once_that_it_is_back():
    agent = FakeAgent(streams("one ", "two", every=20))
    agent.inject(Cut(after_events=2), on="SubscribeToTask")
    agent.inject(Refuse(), on="SubscribeToTask", times=4)
    done = holdfast("send", "hello", agent=agent)
    assert (done.exit, done.field("State")) == (0, "TASK_STATE_COMPLETED")
    away, back = done.err.splitlines()
    assert away.startswith("Warning: SubscribeToTask: the connection was refused (agent ")
    assert away.endswith(
        f"; waiting for task {done.field('Task ID')} until the agent answers again"
    )
    assert back == "Warning: the agent answers again"


def test_a_task_that_the_agent_forgot_is_reported_as_such():
    error = {"code": -32001, "message": "Task not found"}
    body = json.dumps({"jsonrpc": "2.0", "id": None, "error": error}).encode()
    missing = Respond(status=200, headers={"content-type": "application/json"}, body=body)
    agent = FakeAgent(completes("x", after=60), bindings=("JSONRPC",), streaming=False)
    agent.inject(missing, on="GetTask", times=50)
    done = holdfast("send", "hello", "-o", "json", agent=agent)
    assert done.error["code"] == "TaskNotFoundError"
    assert "no longer knows task" in done.error["hint"]


def test_a_read_that_was_not_answered_may_be_given_more_time():
    agent = FakeAgent()
    agent.inject(Stall(), on="GetTask")
    done = holdfast("task", "get", "t", "--timeout", "20s", "-o", "json", agent=agent)
    assert (done.exit, done.error["code"]) == (5, "A2ACLI_ERR_TIMEOUT")
    assert done.error["hint"] == "allow more time with --timeout"


@pytest.mark.parametrize(
    ("card", "hint"),
    [
        (AGENT, "check the address, or allow more time with --timeout"),
        (
            AGENT.replace("http:", "https:"),
            "check the address (does it speak http://?), or allow more time with --timeout",
        ),
    ],
)
def test_address_without_an_answer_in_time_is_doubted(card, hint):
    agent = FakeAgent(url=card)
    agent.inject(Stall(), on="GetAgentCard")
    done = holdfast("send", "hello", "--timeout", "3s", "-o", "json", agent=agent, card=card)
    assert done.error["code"] == "A2ACLI_ERR_TIMEOUT"
    assert done.error["message"] == (
        f"the timeout of 3s expired; the agent card of {card} had not arrived"
    )
    assert done.error["hint"] == hint


@pytest.mark.parametrize("form", ["text", "json"])
def test_a_long_wait_is_reported_on_stderr_and_seldom(form):
    agent = FakeAgent(lambda _: replies("hi"), latency=50)
    done = holdfast("send", "hello", "-o", form, agent=agent)
    card = f"Progress: waiting for the agent card of {AGENT}\n"  # at 3 s and 33 s
    reply = f"Progress: waiting for the reply from {AGENT}/rpc to the message\n"  # 63 s, 93 s
    assert done.err == 2 * card + 2 * reply
    assert "waiting" not in done.out
    assert done.exit == 0


def test_a_long_wait_for_another_reply_is_reported_too():
    agent = FakeAgent()
    agent.inject(Stall(), on="GetTask")
    done = holdfast("task", "get", "task-1", "--timeout", "5s", agent=agent)
    assert f"Progress: waiting for the reply from {AGENT}/rpc to GetTask\n" in done.err


def test_a_short_wait_is_silent():
    done = holdfast("send", "hello", agent=FakeAgent(lambda _: replies("hi"), latency=2))
    assert done.err == ""


@pytest.mark.parametrize("form", ["text", "json"])
@pytest.mark.parametrize(
    ("operation", "where", "counts"),
    [
        (
            "GetAgentCard",
            "/.well-known/agent-card.json",
            [" (attempt 2 of 4)", " (attempt 3 of 4)"],
        ),
        ("GetTask", "/rpc", ["", ""]),  # which is waited for, however many tries it takes
    ],
    ids=["card", "task"],
)
def test_wait_before_a_retry_is_reported_on_stderr_only(form, operation, where, counts):
    agent = FakeAgent(lambda _: completes("done", after=3))
    busy = Respond(status=503, headers={"retry-after": "2"}, body=b"try later")
    agent.inject(busy, on=operation, times=2)
    done = holdfast("send", "hello", "-o", form, agent=agent)
    assert done.exit == 0
    told = [line for line in done.err.splitlines() if not line.startswith("Task ID: ")]
    why = f"HTTP 503 Service Unavailable (agent {AGENT}{where}); retrying in "
    why = f"Warning: {operation}: {why}"
    assert [re.sub(r"[23](\.\d)?s", "2s", line) for line in told] == [
        f"{why}2s{count}" for count in counts
    ]
    assert "retrying" not in done.out
    if form == "json":
        assert done.json["task"]["status"]["state"] == "TASK_STATE_COMPLETED"


def test_wait_before_a_retry_is_as_long_as_reported():
    agent = FakeAgent()
    agent.inject(Respond(status=429, headers={"retry-after": "40"}), on="SendMessage")
    done = holdfast("send", "hello", agent=agent)
    told = float(re.search(r"retrying in ([\d.]+)s \(attempt 2 of 4\)", done.err)[1])
    (sent_at,) = (call.at for call in agent.calls("SendMessage"))
    waited = sent_at - agent.received[0].at  # since the card was fetched, which took no time
    assert told - 0.1 <= waited <= told


def test_a_failure_that_is_not_tried_again_is_reported_once():
    agent = FakeAgent()
    agent.inject(Respond(status=429, headers={"retry-after": "90"}), on="SendMessage")
    done = holdfast("send", "hello", agent=agent)
    assert done.exit == 1
    assert "Warning" not in done.err


def test_an_extension_that_the_agent_requires_is_asked_for_by_a_service_parameter():
    agent = FakeAgent(extensions=[AgentExtension(uri="urn:x", required=True)])

    refused = holdfast("send", "hello", agent=agent)
    done = holdfast("send", "hello", "--svc-param", "a2a-extensions:urn:x", agent=agent)

    assert refused.exit == 1
    assert "the agent requires the extension urn:x; nothing was sent" in refused.err
    assert "--extension urn:x" in refused.err
    assert (done.exit, done.field("State")) == (0, "TASK_STATE_COMPLETED")


@pytest.mark.parametrize("words", [["send", "hi"], ["task", "get", "--wait", "task-1"]])
@pytest.mark.parametrize(
    ("fault", "why"),
    [
        (Refuse(), "the connection was refused"),
        (Respond(status=503), "HTTP 503 Service Unavailable"),
    ],
)
def test_a_wait_that_saw_only_failures_tells_the_last_one(words, fault, why):
    agent = FakeAgent(lambda _: works_forever())
    network = FakeNetwork(agent)
    if words[0] == "task":
        holdfast("send", "hi", "--async", engine=lambda **_: network)
        agent.inject(Delay(seconds=0), on="GetTask")  # the first look is answered
    agent.inject(fault, on="GetTask", times=999)
    done = holdfast(*words, "--timeout", "1m", engine=lambda **_: network)
    assert done.exit == 5
    assert done.out == "Task ID: task-1\nContext ID: context-2\nState: TASK_STATE_WORKING\n"
    assert done.last_word == (
        "Error: the timeout of 1m expired; task task-1 was last seen TASK_STATE_WORKING; since "
        f"then: {why} (agent {AGENT}/rpc)\n"
        "Code: A2ACLI_ERR_TIMEOUT\n"
        f"Hint: holdfast task get --wait task-1 --agent-card {AGENT}\n"
    )


def test_a_cancel_that_saw_only_failures_tells_the_last_one():
    agent = FakeAgent(lambda _: works_forever(), cancel_takes=None)
    network = FakeNetwork(agent)
    holdfast("send", "hello", "--async", engine=lambda **_: network)
    agent.inject(Refuse(), on="GetTask", times=999)
    done = holdfast("task", "cancel", "task-1", "--timeout", "20s", engine=lambda **_: network)
    assert done.exit == 5
    assert done.last_word == (
        "Error: task task-1 is still WORKING 20 s after the agent took the request to cancel it; "
        f"since then: the connection was refused (agent {AGENT}/rpc)\n"
        "Code: A2ACLI_ERR_TIMEOUT\n"
        f"Hint: holdfast task get --wait task-1 --agent-card {AGENT}\n"
    )


@pytest.mark.parametrize(
    ("fault", "what", "why"),
    [
        (
            Refuse(),
            "the connection was refused",
            "; 4 attempts; no further retry: the limit of 3 retries is reached",
        ),
        (
            rate_limited(retry_after=3000),
            "HTTP 429 Too Many Requests",
            "; not retried: the agent asked to wait 3000 s, and max_retry_after is 60 s",
        ),
        (
            Respond(status=404),
            "HTTP 404 Not Found; there may be no JSONRPC interface at this address",
            "",
        ),
    ],
)
def test_a_message_says_each_thing_once(fault, what, why):
    agent = FakeAgent()
    agent.inject(fault, on="GetTask", times=9)
    done = holdfast("task", "get", "task-1", "-o", "json", agent=agent)
    assert done.error["message"] == f"{what} (agent {AGENT}/rpc{why})"


def test_a_lost_reply_is_found_again():
    agent = FakeAgent()
    agent.inject(Reset(after_execution=True), on="SendMessage")
    done = holdfast("send", "hello", "-o", "json", agent=agent)
    assert done.exit == 0
    assert len(agent.calls("SendMessage")) == 1
    assert "task-1" in done.out


def test_a_lost_reply_is_never_followed_by_a_second_message():
    agent = FakeAgent(records_messages=False)
    agent.inject(Reset(after_execution=True), on="SendMessage")
    done = holdfast("send", "hello", "-o", "json", agent=agent)
    assert done.exit == 1
    assert done.error["code"] == "HOLDFAST_ERR_OUTCOME_UNKNOWN"
    message_id = sent(agent)["message"]["messageId"]
    assert done.error["message"] == (
        f"the outcome of message {message_id} is unknown: the connection was closed before the "
        f"reply (agent {AGENT}/rpc); it was not sent again"
    )
    assert message_id in done.error["hint"]
    assert "twice" in done.error["hint"]
    assert len(agent.calls("SendMessage")) == 1


def test_what_certainly_did_not_run_is_tried_again():
    agent = FakeAgent()
    agent.inject(rate_limited(retry_after=30), on="SendMessage")
    done = holdfast("send", "hello", agent=agent)
    assert done.exit == 0
    assert done.err.count("retrying") == 1
    assert done.last_word == ""


def test_agent_that_keeps_refusing_is_unreachable():
    agent = FakeAgent()
    agent.inject(Refuse(), on="SendMessage", times=10)
    done = holdfast("send", "hello", "-o", "json", agent=agent)
    assert done.exit == 3
    assert done.error["code"] == "A2ACLI_ERR_UNREACHABLE"
    assert "running" in done.error["hint"]


def test_a_host_that_there_is_not_is_unreachable():
    done = holdfast("card", "get", "-o", "json", "-a", "http://nobody.test", card=None)
    assert done.exit == 3
    assert done.error["code"] == "A2ACLI_ERR_UNREACHABLE"
    assert done.error["a2aCode"] is None


def test_a_wait_survives_an_agent_that_is_away():
    agent = FakeAgent(lambda _: completes("done", after=60))
    agent.inject(Refuse(), on="GetTask", times=12)
    done = holdfast("send", "hello", agent=agent)
    assert done.field("State") == "TASK_STATE_COMPLETED"


@pytest.mark.parametrize(
    ("status", "code", "exit_code"),
    [
        (429, "HOLDFAST_ERR_RATE_LIMITED", 1),
        (500, "HOLDFAST_ERR_HTTP", 1),
        (404, "HOLDFAST_ERR_HTTP", 1),
    ],
)
def test_an_http_status_without_an_a2a_error_keeps_its_number(status, code, exit_code):
    agent = FakeAgent()
    agent.inject(Respond(status=status), on="GetTask", times=9)
    done = holdfast("task", "get", "task-1", "-o", "json", agent=agent)
    assert (done.exit, done.error["code"], done.error["a2aCode"]) == (exit_code, code, status)


def test_a_code_of_the_agents_own_is_kept():
    agent = FakeAgent()
    body = b'{"jsonrpc": "2.0", "id": null, "error": {"code": -32050, "message": "moon phase"}}'
    json_type = {"content-type": "application/json"}
    agent.inject(Respond(status=200, headers=json_type, body=body), on="GetTask")
    done = holdfast("task", "get", "task-1", "-o", "json", "--transport", "jsonrpc", agent=agent)
    assert done.exit == 1
    assert (done.error["code"], done.error["a2aCode"]) == ("HOLDFAST_ERR_AGENT", -32050)


def test_the_protocols_parse_error_has_the_protocols_name():
    agent = FakeAgent()
    body = b'{"jsonrpc": "2.0", "id": null, "error": {"code": -32700, "message": "what?"}}'
    json_type = {"content-type": "application/json"}
    agent.inject(Respond(status=200, headers=json_type, body=body), on="GetTask", times=9)
    done = holdfast("task", "get", "task-1", "-o", "json", agent=agent)
    assert done.error["code"] == "JSONParseError"


@pytest.mark.parametrize("transport", ["JSONRPC", "HTTP+JSON"])
@pytest.mark.parametrize("task_id", ["nope", "a b/ü?#%", "../card", "x\ny", "'; rm -rf /", "-1"])
def test_a_task_id_with_odd_characters_is_just_not_found(transport, task_id):
    done = holdfast(
        "task",
        "get",
        "-o",
        "json",
        "--transport",
        transport,
        "-a",
        AGENT,
        "--",
        task_id,
        card=None,
    )
    assert done.exit == 1
    assert done.error["code"] == "TaskNotFoundError"


def test_an_error_in_text_goes_to_stderr():
    done = holdfast("task", "get", "nope")
    assert done.exit == 1
    assert done.out == ""
    assert done.err.startswith("Error: ")
    assert "\nCode: TaskNotFoundError\nHint: " in done.err


def test_an_error_inside_the_command_is_reported_without_traceback():
    class Broken:
        async def request(self, request):
            raise ZeroDivisionError("ouch")

        def stream(self, request):
            raise NotImplementedError

        async def close(self):
            pass

    done = holdfast("send", "hello", "-o", "json", engine=lambda **_: Broken())
    assert done.exit == 1
    assert done.error["code"] == "A2ACLI_ERR_INTERNAL"
    assert "ZeroDivisionError: ouch" in done.error["message"]
    assert "Traceback" not in done.err


# ── Cards ────────────────────────────────────────────────────────────────────────────────────


def test_card_get_shows_what_the_agent_says_of_itself():
    done = holdfast("card", "get")
    assert done.exit == 0
    assert done.field("Name") == "Fake agent"
    assert done.field("Streaming") in {"yes", "no"}
    assert done.field("Push notifications") == "yes"
    assert done.field("Extended card") == "yes"
    assert done.field("Transport") == "JSONRPC 1.0 http://agent.test/rpc"
    assert done.out.count("Interface: ") == 2
    assert done.field("Skill") == "echo: Echo"


def test_card_get_in_json_is_a_bare_card():
    done = holdfast("card", "get", "-o", "json")
    assert done.json["name"] == "Fake agent"
    assert done.json["supportedInterfaces"][0]["protocolBinding"] == "JSONRPC"
    assert done.json["capabilities"]["pushNotifications"] is True


def test_what_a_card_must_have_is_in_the_json_even_if_it_is_empty():
    card = AgentCard(
        name="Bare",
        supported_interfaces=(AgentInterface(url=f"{AGENT}/rpc", protocol_binding="JSONRPC"),),
        capabilities=AgentCapabilities(streaming=False),
    )
    done = holdfast("card", "get", "-o", "json", agent=FakeAgent(card=card))
    assert done.json["skills"] == []
    assert done.json["defaultInputModes"] == []
    assert done.json["description"] == ""
    assert done.json["capabilities"] == {"streaming": False}


def test_a_card_on_file_is_used(tmp_path):
    path = tmp_path / "card.json"
    path.write_text(holdfast("card", "get", "-o", "json").out)
    for reference in (str(path), path.as_uri()):
        done = holdfast("send", "hello", "-a", reference, card=None)
        assert done.field("State") == "TASK_STATE_COMPLETED"


def test_a_cards_own_address_is_used_as_it_is():
    agent = FakeAgent()
    done = holdfast(
        "card", "get", "-a", f"{AGENT}/.well-known/agent-card.json", agent=agent, card=None
    )
    assert done.exit == 0
    assert [call.url for call in agent.received] == [f"{AGENT}/.well-known/agent-card.json"]


def test_no_card_at_all():
    agent = FakeAgent()
    agent.inject(Respond(status=404), on="GetAgentCard", times=9)
    done = holdfast("card", "get", "-o", "json", agent=agent)
    assert done.exit == 3
    assert done.error["code"] == "A2ACLI_ERR_CARD_NOT_FOUND"
    assert done.error["a2aCode"] == 404


def test_a_card_file_that_is_not_there():
    done = holdfast("card", "get", "-o", "json", "-a", "./nowhere.json", card=None)
    assert done.exit == 3
    assert done.error["code"] == "A2ACLI_ERR_CARD_NOT_FOUND"
    assert "nowhere.json" in done.error["message"]


@pytest.mark.parametrize(
    ("content", "field"),
    [
        (b"<html>welcome</html>", "not JSON"),
        (b"[]", "not a JSON object"),
        (b"{}", "name"),
        (b'{"name": "x"}', "supportedInterfaces"),
        (b'{"name": "x", "supportedInterfaces": [{"url": "http://x"}]}', "protocolBinding"),
    ],
)
@pytest.mark.parametrize("command", [["card", "get"], ["send", "hello"]])
def test_a_card_that_is_none(tmp_path, content, field, command):
    path = tmp_path / "card.json"
    path.write_bytes(content)
    done = holdfast(*command, "-o", "json", "-a", str(path), card=None)
    assert done.exit == 1
    assert done.error["code"] == "A2ACLI_ERR_CARD_INVALID"
    assert field in done.error["message"]


def test_card_with_an_unknown_binding_is_shown_and_not_used():
    agent = FakeAgent(
        card={
            "name": "Odd",
            "supportedInterfaces": [{"url": "http://agent.test/x", "protocolBinding": "PIGEON"}],
        }
    )
    shown = holdfast("card", "get", agent=agent)
    assert shown.exit == 0
    assert shown.field("Transport") == "(none)"
    assert "PIGEON" in shown.err
    done = holdfast("send", "hello", "-o", "json", agent=agent)
    assert done.exit == 1
    assert done.error["code"] == "HOLDFAST_ERR_NO_TRANSPORT"
    assert agent.calls("SendMessage") == []


def test_a_card_with_an_address_that_cannot_be_meant_is_shown_and_doubted():
    interface = AgentInterface(
        url="http://0.0.0.0:9999/rpc", protocol_binding="JSONRPC", protocol_version="1.0"
    )
    agent = FakeAgent(card=AgentCard(name="Lost", supported_interfaces=(interface,)))
    shown = holdfast("card", "get", agent=agent)
    assert (shown.exit, shown.field("Transport")) == (0, "(none)")
    assert "0.0.0.0 is where a server listens" in shown.err
    assert "url=" not in shown.err
    done = holdfast("send", "hello", "-o", "json", agent=agent)
    assert (done.exit, done.error["code"]) == (1, "A2ACLI_ERR_CARD_INVALID")
    assert shown.err == f"Warning: {done.error['message']}\nHint: {done.error['hint']}\n"
    assert {call.operation for call in agent.received} == {"GetAgentCard"}
    assert done.error["hint"] == (
        f"correct the address: holdfast card get -o json --agent-card {AGENT} > card.json, edit "
        "it, then --agent-card card.json"
    )


@pytest.mark.parametrize(
    ("flags", "warned"), [([], False), (["--bearer", "s3cret"], True), (["--api-key", "k"], True),
                          (["--svc-param", "x-a:1"], True)],
)  # fmt: skip
def test_card_get_says_where_credentials_would_not_go(flags, warned):
    interface = AgentInterface(url="http://elsewhere.test/rpc", protocol_binding="JSONRPC")
    agent = FakeAgent(card=AgentCard(name="Moved", supported_interfaces=(interface,)))
    done = holdfast("card", "get", *flags, agent=agent)
    assert done.exit == 0
    assert ("Warning: the agent's interface is at http://elsewhere.test" in done.err) is warned
    assert (done.field("Transport") == "(none)") is warned
    assert {call.operation for call in agent.received} == {"GetAgentCard"}


def test_an_agent_of_an_older_protocol_is_named_as_such():
    interface = AgentInterface(
        url=f"{AGENT}/rpc", protocol_binding="JSONRPC", protocol_version="0.3"
    )
    agent = FakeAgent(card=AgentCard(name="Old", supported_interfaces=(interface,)))
    done = holdfast("send", "hello", "-o", "json", "--a2a-version", "1.0", agent=agent)
    assert done.exit == 1
    assert done.error["code"] == "VersionNotSupportedError"


# ── task get, task cancel ────────────────────────────────────────────────────────────────────


def begun(behaviour):
    """An agent with one task, and the engine that reaches it."""
    agent = FakeAgent(behaviour)
    network = FakeNetwork(agent)
    holdfast("send", "hello", "--async", engine=lambda **_: network)
    return agent, lambda **_: network


def test_task_get_looks_once():
    agent, engine = begun(lambda _: works_forever())
    done = holdfast("task", "get", "task-1", engine=engine)
    assert done.exit == 0
    assert done.field("State") == "TASK_STATE_WORKING"
    assert len(agent.calls("GetTask")) == 1


@pytest.mark.parametrize("flag", ["--wait", "--watch"])
def test_task_get_waits_when_told(flag):
    _, engine = begun(lambda _: completes("done", after=50))
    done = holdfast("task", "get", flag, "task-1", engine=engine)
    assert done.field("State") == "TASK_STATE_COMPLETED"
    assert done.field("Task ID") == "task-1"
    assert "done" in done.out


@pytest.mark.parametrize("plan", [asks("Which?", after=3), needs_auth("log in")])
def test_a_waiting_task_get_stops_at_an_interruption(plan):
    _, engine = begun(lambda _: plan)
    done = holdfast("task", "get", "--wait", "task-1", engine=engine)
    assert done.exit == 0
    assert "Hint: holdfast " in done.err


def test_task_get_in_json_is_a_bare_task():
    _, engine = begun(lambda _: completes("done"))
    done = holdfast("task", "get", "task-1", "-o", "json", engine=engine)
    assert done.json["id"] == "task-1"
    assert done.json["artifacts"][0]["artifactId"] == "artifact-1"


def test_history_is_asked_for_and_shown():
    agent, engine = begun(lambda _: completes("done"))
    done = holdfast("task", "get", "task-1", "--history", "3", engine=engine)
    assert json.loads(agent.calls("GetTask")[0].body)["params"]["historyLength"] == 3
    assert "History message: " in done.out
    assert "Role: ROLE_USER\nText:\nhello\n\n" in done.out


def test_history_is_asked_for_at_the_end_of_a_wait_only():
    agent, engine = begun(lambda _: completes("done", after=9))
    holdfast("task", "get", "task-1", "--history", "3", "--wait", engine=engine)
    lengths = [
        json.loads(call.body)["params"].get("historyLength") for call in agent.calls("GetTask")
    ]
    assert lengths[-1] == 3
    assert set(lengths[:-1]) == {None}


def test_history_is_not_shown_unless_asked_for():
    _, engine = begun(lambda _: completes("done"))
    done = holdfast("task", "get", "task-1", engine=engine)
    assert done.field("State") == "TASK_STATE_COMPLETED"
    assert "History message" not in done.out


def test_cancel_reports_the_state():
    _, engine = begun(lambda _: works_forever())
    done = holdfast("task", "cancel", "task-1", engine=engine)
    assert done.exit == 0
    assert done.field("State") == "TASK_STATE_CANCELED"
    assert done.err == ""


def test_cancel_in_json_is_a_bare_task():
    _, engine = begun(lambda _: works_forever())
    done = holdfast("task", "cancel", "task-1", "-o", "json", engine=engine)
    assert done.json["status"]["state"] == "TASK_STATE_CANCELED"


def slow_to_cancel(seconds):
    agent = FakeAgent(lambda _: works_forever(), cancel_takes=seconds)
    network = FakeNetwork(agent)
    holdfast("send", "hello", "--async", engine=lambda **_: network)
    return lambda **_: network


def test_cancel_waits_until_the_task_is_over():
    done = holdfast("task", "cancel", "task-1", engine=slow_to_cancel(20))
    assert done.field("State") == "TASK_STATE_CANCELED"


def test_cancel_of_a_task_that_ends_by_itself_says_that_it_was_not_canceled():
    agent = FakeAgent(completes("done", after=10), cancel_takes=None)
    network = FakeNetwork(agent)
    sent = holdfast("send", "x", "--async", engine=lambda **_: network)
    task_id = sent.field("Task ID")
    done = holdfast("task", "cancel", task_id, engine=lambda **_: network)
    assert (done.exit, done.field("State")) == (0, "TASK_STATE_COMPLETED")
    assert f"Warning: task {task_id} was not canceled: it is TASK_STATE_COMPLETED" in done.err


def test_cancel_without_waiting_tells_the_state_as_it_is():
    done = holdfast("task", "cancel", "task-1", "--async", engine=slow_to_cancel(20))
    assert done.exit == 0
    assert done.field("State") == "TASK_STATE_WORKING"
    assert "still TASK_STATE_WORKING" in done.err
    assert "Hint: holdfast task get --wait task-1" in done.err


def test_a_cancel_that_does_not_happen_times_out():
    done = holdfast(
        "task", "cancel", "task-1", "-o", "json", "--timeout", "9s", engine=slow_to_cancel(None)
    )
    assert done.exit == 5
    assert done.error["code"] == "A2ACLI_ERR_TIMEOUT"


@pytest.mark.parametrize(("flags", "code"), [([], 5), (["--timeout", "2m"], 0)])
def test_cancel_waits_for_a_minute_by_default(flags, code):
    done = holdfast("task", "cancel", "task-1", *flags, engine=slow_to_cancel(80))
    assert done.exit == code


def test_cancel_of_a_task_that_is_over():
    _, engine = begun(lambda _: completes("done"))
    done = holdfast("task", "cancel", "task-1", "-o", "json", engine=engine)
    assert done.exit == 1
    assert (done.error["code"], done.error["a2aCode"]) == ("TaskNotCancelableError", -32002)


def test_cancel_of_a_task_that_is_over_reports_how_it_ended():
    _, engine = begun(lambda _: completes("done"))
    done = holdfast("task", "cancel", "task-1", engine=engine)
    assert done.out == "Task ID: task-1\nContext ID: context-2\nState: TASK_STATE_COMPLETED\n"
    assert "; the task is TASK_STATE_COMPLETED\nCode: TaskNotCancelableError\n" in done.err


def test_cancel_of_a_canceled_task_is_done():
    agent, engine = begun(lambda _: works_forever())
    first, again = (holdfast("task", "cancel", "task-1", engine=engine) for _ in range(2))
    assert len(agent.calls("CancelTask")) == 2
    assert (again.exit, again.out, again.err) == (0, first.out, "")


def test_a_refused_cancel_is_reported_even_if_the_task_cannot_be_looked_at():
    agent, engine = begun(lambda _: completes("done"))
    agent.inject(Respond(status=404), on="GetTask")
    done = holdfast("task", "cancel", "task-1", "-o", "json", engine=engine)
    assert (done.exit, done.error["code"]) == (1, "TaskNotCancelableError")


def test_metadata_goes_along_with_a_cancel():
    agent, engine = begun(lambda _: works_forever())
    holdfast("task", "cancel", "task-1", "--metadata", '{"why": "late"}', engine=engine)
    assert json.loads(agent.calls("CancelTask")[0].body)["params"]["metadata"] == {"why": "late"}


# ── Bindings ─────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("offered", "preferred", "used"),
    [
        (("JSONRPC", "HTTP+JSON"), (), "/rpc"),
        (("HTTP+JSON", "JSONRPC"), (), "/rest/message:send"),
        (("JSONRPC", "HTTP+JSON"), ("HTTP+JSON",), "/rest/message:send"),
        (("JSONRPC", "HTTP+JSON"), ("http+json", "jsonrpc"), "/rest/message:send"),
        (("JSONRPC", "HTTP+JSON"), ("jsonrpc", "http+json"), "/rpc"),
        (("JSONRPC",), ("HTTP+JSON", "JSONRPC"), "/rpc"),
        (("JSONRPC",), ("HTTP+JSON",), "/rpc"),
    ],
)
def test_the_callers_order_counts_then_the_cards(offered, preferred, used):
    agent = FakeAgent(bindings=offered)
    flags = [word for binding in preferred for word in ("--transport", binding)]
    assert holdfast("send", "hello", *flags, agent=agent).exit == 0
    assert agent.calls("SendMessage")[0].url == f"{AGENT}{used}"


def test_both_bindings_say_the_same():
    outs = [
        holdfast("send", "hello", "--transport", binding, *form).out
        for form in ([], ["-o", "json", "--task-id", "nope"])
        for binding in ("JSONRPC", "HTTP+JSON")
    ]
    assert outs[0] == outs[1]
    errors = [json.loads(out)["error"] for out in outs[2:]]
    assert errors[0]["code"] == errors[1]["code"] == "TaskNotFoundError"
    assert [error["a2aCode"] for error in errors] == [-32001, 404]


def test_the_version_is_on_every_request():
    agent = FakeAgent(lambda _: completes("done", after=5))
    holdfast("send", "hello", agent=agent)
    assert {call.headers["a2a-version"] for call in agent.received} == {"1.0"}


def test_the_tenant_of_the_interface_is_in_every_request():
    interface = AgentInterface(
        url=f"{AGENT}/rpc", protocol_binding="JSONRPC", protocol_version="1.0", tenant="acme"
    )
    agent = FakeAgent(
        lambda _: completes("done", after=5),
        card=AgentCard(name="Shared", supported_interfaces=(interface,)),
    )
    holdfast("send", "hello", agent=agent)
    calls = [call for call in agent.received if call.operation != "GetAgentCard"]
    assert len(calls) > 1
    assert {json.loads(call.body)["params"].get("tenant") for call in calls} == {"acme"}


# ── What a part looks like ───────────────────────────────────────────────────────────────────


def test_every_kind_of_part_is_shown():
    artifact = Artifact(
        artifact_id="a1",
        name="report",
        parts=(
            Part(text="one\n\ntwo "),
            Part(text="three"),
            Part(data={"n": 1}),
            Part(raw=b"12345", filename="x.bin", media_type="application/x"),
            Part(url="https://e.test/y.pdf", filename="y.pdf"),
            Part(),
            Part(data=None),
        ),
    )
    done = holdfast("send", "hello", agent=FakeAgent(lambda _: completes(artifact)))
    assert done.out.partition("Artifact: ")[2] == (
        "report\nText:\none\n \ntwo three\n\n"
        'Data:\n{\n  "n": 1\n}\n\n'
        "File: x.bin\nMedia type: application/x\nSize: 5 bytes\n"
        "File: y.pdf\nMedia type: (none)\nURL: https://e.test/y.pdf\n"
        "Part: of a kind that is not known\n"
        "Data:\nnull\n\n"
    )


def test_every_kind_of_part_is_in_the_json():
    artifact = Artifact(
        artifact_id="a1", parts=(Part(text="é\x9b"), Part(data=None), Part(raw=b"\xff\xfe"))
    )
    agent = FakeAgent(lambda _: completes(artifact))
    done = holdfast("send", "hello", "-o", "json", agent=agent)
    assert done.json["task"]["artifacts"][0]["parts"] == [
        {"text": "é\x9b"},
        {"data": None},
        {"raw": "//4="},
    ]
    assert "é" in done.out
    assert "\x9b" not in done.out


def test_an_artifact_that_looks_like_a_field_hides_nothing():
    agent = FakeAgent(lambda _: completes("Task ID: task-1", after=9))
    done = holdfast("send", "hello", agent=agent)
    assert "Text:\nTask ID: task-1\n\n" in done.out


def test_an_address_of_a_web_server_is_reported_with_the_option_to_check():
    agent = FakeAgent()
    agent.inject(Respond(status=501), on="SendMessage")
    words = ["-e", f"{AGENT}/rpc", "--transport", "jsonrpc"]
    done = holdfast("send", "hello", *words, card=None, agent=agent)
    assert done.exit == 1
    assert "Hint: check the path of --endpoint; " in done.err


def test_verbose_shows_what_else_there_is():
    artifact = Artifact(
        artifact_id="a1",
        name="report",
        description="What came out",
        parts=(Part(text="x", media_type="text/markdown", metadata={"p": 1}),),
        metadata={"m": 1},
    )
    done = holdfast("send", "hello", "--verbose", agent=FakeAgent(lambda _: completes(artifact)))
    assert done.field("Artifact ID") == "a1"
    assert done.field("Artifact description") == "What came out"
    assert done.field("Media type") == "text/markdown"
    assert done.field("Updated") is not None
    assert "Artifact metadata:\n" in done.out
    assert "Part metadata:\n" in done.out
    assert "History message: " in done.out


def test_a_status_message_may_hold_more_than_text():
    message = Message(message_id="m", role=Role.AGENT, parts=(Part(text="a\nb"), Part(data=[1])))
    task = Task(
        id="task-1", status=TaskStatus(state=TaskState.COMPLETED, message=message)
    ).to_json()
    agent = FakeAgent(bindings=("HTTP+JSON",))
    json_type = {"content-type": "application/json"}
    agent.inject(Respond(status=200, headers=json_type, body=task.encode()), on="GetTask")
    done = holdfast("task", "get", "task-1", agent=agent)
    assert done.out == (
        "Task ID: task-1\nContext ID: (none)\nState: TASK_STATE_COMPLETED\n"
        "Status message:\na\nb\n\nStatus parts: 1\nData:\n[\n  1\n]\n\n"
    )


# ── help ─────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "words",
    [
        ["help"],
        ["--help"],
        ["-h"],
        ["help", "send"],
        ["send", "--help"],
        ["send", "-h"],
        ["help", "task", "get"],
        ["task", "get", "-h"],
        ["task", "--help"],
        ["help", "card"],
        ["help", "server"],
    ],
)
def test_help_is_everywhere(words):
    done = holdfast(*words, card=None)
    assert done.exit == 0
    assert done.out.startswith("Usage: holdfast")
    assert done.err == ""


@pytest.mark.parametrize("words", [["send"], ["task", "get"], ["task", "cancel"], ["card", "get"]])
def test_help_by_name_is_help_by_flag(words):
    asked = holdfast("help", *words, card=None)
    assert asked.out == holdfast(*words, "--help", card=None).out
    assert f"Usage: holdfast {' '.join(words)} " in asked.out


def test_help_fits_a_narrow_terminal_and_keeps_options_and_commands_whole(monkeypatch):
    whole = {words: holdfast(*words, "--help", card=None).out for words in every_command(app)}
    assert len(whole) > 20
    monkeypatch.setenv("COLUMNS", "40")
    for words, wide in whole.items():
        narrow = holdfast(*words, "--help", card=None).out
        assert [line for line in narrow.splitlines() if len(line.rstrip()) > 40] == []
        options = set(re.findall(r"^  (?:-\w, )?(--[\w-]+)", wide, re.MULTILINE))
        assert options <= set(re.findall(r"^  (?:-\w, )?(--[\w-]+)", narrow, re.MULTILINE))
        assert "..." not in narrow.partition("[ARGS]...")[2]


def test_the_list_of_commands_says_what_their_own_help_says():
    listed = holdfast("--help", card=None).out
    for name, command in app.commands.items():
        summary = " ".join(command.help.split("\n\n")[0].split()).removesuffix(".")
        row = re.search(rf"(?m)^  {name} +(.*(?:\n {{10,}}.*)*)", listed)
        assert " ".join(row[1].split()).removesuffix(".").startswith(summary.partition(". ")[0])


@pytest.mark.parametrize(
    ("topic", "says"),
    [("options", "--bearer"), ("exit-codes", "\n  143 "), ("terms", "\n  journal ")],
)
def test_help_has_topics(topic, says):
    done = holdfast("help", topic, card=None)
    assert (done.exit, done.err) == (0, "")
    assert says in done.out


@pytest.mark.parametrize(
    ("words", "equivalent"),
    [
        (("ask", "hello"), "holdfast send TEXT"),
        (("stream",), "holdfast send --stream TEXT"),
        (("help", "stream"), "holdfast send --stream TEXT"),
        (("task", "wait", "t-1"), "holdfast task get --wait TASK_ID"),
        (("help", "task", "wait"), "holdfast task get --wait TASK_ID"),
        (("task", "push-config", "set"), "holdfast task push-config create TASK_ID URL"),
    ],
)
def test_a_command_of_other_tools_is_refused_with_its_equivalent(words, equivalent):
    done = holdfast(*words, card=None)
    assert (done.exit, done.out) == (2, "")
    assert done.err.splitlines()[0].startswith("Error: No such command '")
    assert "Did you mean" not in done.err
    assert done.err.splitlines()[-1] == f"Hint: {equivalent}"


def test_equivalents_name_commands_that_exist():
    for group in (app, app.commands["task"], app.commands["task"].commands["push-config"]):
        for foreign, line in group._equivalents.items():
            assert foreign not in group.commands
            for command in re.split(", or holdfast ", line):
                words = re.findall(r"^[a-z -]+(?= |$)", command.partition("--")[0])
                named = app
                for word in words[0].split() if words else []:
                    named = named.get_command(None, word)
                assert named is not None, command


def test_help_says_what_the_timeout_limits():
    for words, what in ((("send",), "of the command"), (("chat",), "of each call")):
        shown = " ".join(holdfast(*words, "--help", card=None).out.split())
        assert f"--timeout DURATION Time limit {what}" in shown


def test_each_example_of_the_help_is_a_valid_command_line():
    checked = 0
    for words in every_command(app):
        shown = holdfast(*words, "--help", card=None).out.partition("\nExamples:\n")[2]
        for line in shown.replace("\\\n", "").splitlines():
            command = line.partition("#")[0].rpartition("holdfast ")[2]
            tokens = shlex.split(command.partition("|")[0])
            named, ctx = app, click.Context(app, info_name="holdfast", obj=CliEnvironment())
            while isinstance(named, click.Group):
                _, named, tokens = named.resolve_command(ctx, tokens)
            named.make_context(named.name, tokens, parent=ctx, resilient_parsing=False)
            checked += 1
    assert checked > 25


def every_command(command, words=()):
    yield words
    for name, below in getattr(command, "commands", {}).items():
        yield from every_command(below, (*words, name))


@pytest.mark.parametrize("words", [["nope"], ["task", "nope"], ["send", "nope"]])
def test_help_for_what_there_is_not(words):
    done = holdfast("help", *words, card=None)
    assert done.exit == 2
    assert "No such command" in done.err


@pytest.mark.parametrize("words", [["--version"], ["-v"], ["send", "--version"]])
def test_the_version(words):
    from holdfast import __version__

    done = holdfast(*words, card=None)
    assert (done.exit, done.out) == (0, f"holdfast {__version__}\n")


@pytest.mark.parametrize("address", ["localhost:9999", "https://agent.example.com/a"])
def test_address_before_the_text_is_answered_with_the_option_for_it(address):
    done = holdfast("send", address, "hi", agent=FakeAgent())
    assert done.exit == 2
    assert f"TEXT is one argument; to name the agent: -a {address}\n" in done.err


@pytest.mark.parametrize("words", [["doctor"], ["card", "get"], ["task", "get", "task-1"]])
@pytest.mark.parametrize(
    ("address", "shown"),
    [
        ("localhost:9999", "localhost:9999"),
        ("https://user:s3cret@agent.example.com/a", "https://***@agent.example.com/a"),
    ],
)
def test_address_as_an_extra_argument_is_answered_with_the_option_for_it(words, address, shown):
    done = holdfast(*words, address, card=None)
    assert done.exit == 2
    command = " ".join(["holdfast", *words]).removesuffix(" task-1")
    assert f"{command} takes no address; to name the agent: -a {shown}\n" in done.err


def test_address_is_an_extra_argument_where_there_is_no_agent():
    done = holdfast("demo-server", "localhost:9999", card=None)
    assert (done.exit, "unexpected extra argument (localhost:9999)" in done.err) == (2, True)


def test_message_to_an_ended_task_is_answered_with_how_to_continue():
    done = holdfast("send", "hello", "--task-id", "nope", agent=FakeAgent())
    assert "for a new task, leave out --task-id, and pass --context-id ID to stay" in done.err


# ── Hints about files, rate limiting, transports and texts ───────────────────────────────────


@pytest.mark.parametrize("flags", [[], ["--stream"]])
def test_an_answer_with_a_file_names_the_command_that_saves_it(flags):
    agent = FakeAgent(completes(Part(raw=b"xyz", filename="x.bin")))
    done = holdfast("send", "hello", *flags, agent=agent)
    document = holdfast("send", "hello", "-o", "json", *flags, agent=agent)

    assert done.err == (
        f"Hint: to save the files: holdfast task download task-1 --agent-card {AGENT}\n"
    )
    assert document.err == ""


_LONGER = "or pass a longer --timeout: the command then waits and tries again"


@pytest.mark.parametrize(
    ("seconds", "flags", "hint"),
    [
        (
            30,
            ["--timeout", "10s"],
            f"nothing was executed; try again in 30s, {_LONGER}",
        ),
        (3000, [], "nothing was executed; try again in 50m"),
    ],
)
def test_the_hint_about_rate_limiting_says_that_nothing_was_executed(seconds, flags, hint):
    agent = FakeAgent()
    agent.inject(rate_limited(retry_after=seconds), on="SendMessage")
    done = holdfast("send", "hello", "-o", "json", *flags, agent=agent)

    assert (done.error["code"], done.error["hint"]) == ("HOLDFAST_ERR_RATE_LIMITED", hint)


def test_an_endpoint_of_another_transport_has_a_hint():
    words = ["send", "hello", "--endpoint", f"{AGENT}/rpc", "--transport"]
    done = holdfast(*words, "rest", "-o", "json", card=None)

    assert done.error["hint"].endswith("interface: --transport jsonrpc")
    assert holdfast(*words, "jsonrpc", card=None).exit == 0


@pytest.mark.parametrize("command", ["send", "chat"])
def test_a_text_that_begins_with_a_dash_has_a_hint(command):
    done = holdfast(command, "- buy milk")

    assert f"For a text that begins with -: holdfast {command} [OPTIONS] -- TEXT\n" in done.err
    assert holdfast(command, "-a", AGENT, "--", "- buy milk", card=None).exit == 0


@pytest.mark.parametrize(
    ("words", "name", "hint"),
    [
        (["mix.jsonl"], "mix.jsonl", "for the messages of a file: holdfast run --input mix.jsonl"),
        (["result"], "result", "did you mean: holdfast run results"),
        (["result", "--input", "in"], "result", "did you mean: holdfast run results"),
    ],
)
def test_a_stray_argument_of_run_is_named_before_a_missing_option(words, name, hint):
    done = holdfast("run", *words, "--journal", "calls.db")

    assert done.exit == 2
    assert done.err.startswith(f"Error: Got unexpected extra argument ({name}).\n")
    assert done.err.endswith(f"Hint: {hint}\n")


def test_help_on_exit_codes_names_no_file_of_the_sources():
    assert "docs/" not in holdfast("help", "exit-codes").out
