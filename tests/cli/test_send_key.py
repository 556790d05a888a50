"""``holdfast send --key``: the message of a key is executed at most once, by all commands."""

import json
import signal
import sqlite3

import pytest
from tests.kit.cli_harness import holdfast
from tests.kit.cli_process import BOUND, served, start

from holdfast.testing import (
    Cut,
    FakeAgent,
    FakeNetwork,
    Reset,
    Stall,
    completes,
    fails,
    replies,
    streams,
)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "calls.db"


@pytest.fixture
def send(path):
    """Run ``holdfast send`` with the key ``order-17``."""

    def sending(*words, **more):
        return holdfast("send", "--journal", str(path), "--key", "order-17", *words, **more)

    return sending


def sends(agent):
    return [call for call in agent.received if "Send" in (call.operation or "")]


# ── The same command again ───────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("flags", [[], ["--stream"], ["--async"]])
def test_the_same_command_shows_the_result_again_without_sending(send, flags):
    agent = FakeAgent(streams("forty", "-two"))
    first, again = (send("hello", *flags, agent=agent) for _ in range(2))

    assert (first.exit, again.exit) == (0, 0)
    assert first.out.startswith("Sent: yes\nTask ID: task-1\n")
    assert again.out.startswith("Sent: no, the journal has a call of the key\nTask ID: task-1\n")
    assert "State: TASK_STATE_COMPLETED\n" in again.out
    assert "Text:\nforty-two\n\n" in again.out
    assert len(agent.executions) == 1


@pytest.mark.parametrize("behaviour", [fails("no"), replies("42"), completes("42")])
@pytest.mark.parametrize("flags", [[], ["--stream"]])
def test_json_has_a_member_that_says_whether_the_message_was_sent(send, behaviour, flags):
    agent = FakeAgent(behaviour)
    first, again = (send("hello", "-o", "json", *flags, agent=agent) for _ in range(2))

    for done, sent in ((first, True), (again, False)):
        documents = [json.loads(line) for line in done.out.splitlines()] if flags else [done.json]
        assert done.exit == 0
        assert {document["sent"] for document in documents} == {sent}
    assert len(agent.executions) == 1


def test_a_stored_result_outlives_the_agents_task(send):
    assert send("hello", agent=FakeAgent(completes("42"))).exit == 0
    restarted = FakeAgent(completes("43"))
    assert "Text:\n42\n\n" in send("hello", agent=restarted).out
    assert not restarted.executions


def test_a_stored_result_is_shown_while_the_agent_is_down(send):
    assert send("hello", agent=FakeAgent(completes("42"))).exit == 0
    down = {"card": "http://agent.test", "engine": lambda **_: FakeNetwork()}
    done, other = send("hello", **down), send("bye", "-o", "json", **down)

    assert (done.exit, done.err) == (0, "")
    assert done.out.startswith("Sent: no, the journal has a call of the key\nTask ID: task-1\n")
    assert "Text:\n42\n\n" in done.out
    assert (other.exit, other.error["code"]) == (6, "HOLDFAST_ERR_KEY_CONFLICT")


def test_a_journal_without_a_key_records_the_call_and_sends_each_time(path):
    agent = FakeAgent(completes("42"))
    for _ in range(2):
        done = holdfast("send", "hello", "--journal", str(path), agent=agent)
        assert done.out.startswith("Task ID: ")

    assert len(agent.executions) == 2
    assert path.exists()


def test_commands_without_a_key_have_no_such_member():
    assert list(holdfast("send", "hello", "-o", "json").json) == ["task"]


# ── A crash, another process, a lost reply ───────────────────────────────────────────────────


def test_the_same_command_resumes_the_call_of_a_killed_one(path):
    agent = FakeAgent(lambda _: completes("42", after=1.0))
    words = ["send", "hello", "--key", "order-17", "--journal", str(path)]
    with served(agent) as url:
        with start(*words, "-a", url) as process:
            assert process.stdout.readline() == "Sent: yes\n"
            process.kill()
        listed = holdfast("resume", "--list", "--journal", str(path), card=None)
        with sqlite3.connect(path) as journal:  # the lease of the killed process ends
            journal.execute("UPDATE calls SET lease_until = 0")
        journal.close()
        again = holdfast(*words, card=url, on_sockets=True)

    assert listed.field("Key") == "order-17"
    assert (again.exit, again.err) == (0, "")
    assert again.out.startswith("Sent: no, the journal has a call of the key\nTask ID: task-1\n")
    assert "Text:\n42\n\n" in again.out
    assert len(agent.executions) == 1


def test_an_interrupted_command_says_how_to_resume(path):
    agent = FakeAgent(lambda _: completes("42", after=3000))
    with served(agent) as url:
        words = ["send", "hello", "--key", "order-17", "--journal", str(path), "-a", url]
        with start(*words) as process:
            assert process.stdout.readline() == "Sent: yes\n"
            process.send_signal(signal.SIGINT)
            _, err = process.communicate(timeout=BOUND)

    assert process.returncode == 130
    assert err == (
        "Hint: run the same command again: it resumes the call, and does not send the message "
        "twice\n"
    )


def test_a_call_that_another_process_holds_is_named_at_the_timeout(send, path):
    agent = FakeAgent(completes("42"))
    send("hello", agent=agent)
    with sqlite3.connect(path) as journal:  # as while that command was waiting
        journal.execute("UPDATE calls SET outcome = NULL, lease_until = 4e9")
    journal.close()
    done = send("hello", "--timeout", "5s", agent=agent)

    assert done.exit == 5
    assert "the earlier call of the key 'order-17' has not ended, and another process" in done.err
    assert "Progress: waiting for the earlier call of the key 'order-17'" in done.err
    assert "Hint: run the same command again" in done.err
    assert len(agent.executions) == 1


def test_an_unknown_outcome_is_reported_again_and_not_sent(send):
    agent = FakeAgent(completes("42"), lists_tasks=False)
    agent.inject(Cut(), on="SendStreamingMessage")
    for again in (False, True):
        done = send("hello", agent=agent)
        reported = "is unknown: an earlier command with the key 'order-17' may have sent it, and"
        assert (done.exit, reported in done.err) == (1, again)
        assert "Code: HOLDFAST_ERR_OUTCOME_UNKNOWN\n" in done.err
        assert "; it was not sent again\n" in done.err
        assert "send it again with --on-unknown resend only if" in done.err

    assert len(sends(agent)) == 1


@pytest.mark.parametrize("flags", [[], ["--async"]])
def test_a_key_whose_task_the_agent_has_lost_says_so(send, flags):
    first = send("hello", "--async", agent=FakeAgent(completes("42", after=3000)))
    restarted = FakeAgent(completes("43"))
    done = send("hello", *flags, agent=restarted)

    assert (first.exit, done.exit, restarted.executions) == (0, 1, {})
    assert "Code: TaskNotFoundError\n" in done.err
    assert " is task-1, last seen " in done.err
    assert "loses them when it restarts; the message was not sent again" in done.err
    assert "Hint: if executing the message twice does no harm, send it with another --key" in (
        done.err
    )


@pytest.mark.parametrize("on_unknown", ["resend", "resend_if_absent"])
@pytest.mark.parametrize("flags", [[], ["--stream"], ["--async"]])
def test_a_message_of_unknown_outcome_is_sent_again_if_the_option_allows_it(
    send, on_unknown, flags
):
    agent = FakeAgent(completes("42"))
    agent.inject(Reset(), on="SendMessage" if "--async" in flags else "SendStreamingMessage")
    unknown = send("hello", *flags, "--on-unknown", "raise", agent=agent)
    done = send("hello", *flags, "--on-unknown", on_unknown, agent=agent)

    assert (unknown.exit, done.exit) == (1, 0)
    assert done.out.startswith("Sent: yes\n")
    assert ("Text:\n42\n\n" in done.out) is ("--async" not in flags)
    assert len(agent.executions) == 1


def test_an_option_that_allows_a_second_sending_is_not_said_to_have_sent_none(send):
    agent = FakeAgent(completes("42"), lists_tasks=False)
    agent.inject(Cut(), on="SendStreamingMessage", times=9)
    done = send("hello", "--on-unknown", "resend", agent=agent)

    assert (done.exit, len(sends(agent)) > 1) == (1, True)
    assert "the outcome of message " in done.err
    assert "not sent again" not in done.err


def test_the_handling_of_unknown_outcomes_needs_no_key():
    agent = FakeAgent(completes("42"))
    agent.inject(Reset(), on="SendMessage")
    done = holdfast("send", "hello", "--on-unknown", "resend", agent=agent)

    assert (done.exit, len(agent.executions)) == (0, 1)


@pytest.mark.parametrize("flags", [[], ["--stream"], ["--async"]])
def test_a_reply_that_is_late_is_found_by_the_command_of_the_hint(send, flags):
    agent = FakeAgent(completes("42"))
    agent.inject(Stall(after_execution=True), on="SendMessage")
    agent.inject(Stall(after_execution=True), on="SendStreamingMessage")
    late = send("hello", *flags, "--timeout", "3s", agent=agent)
    done = send("hello", *flags, "--timeout", "1m", agent=agent)

    assert (late.exit, done.exit, len(agent.executions)) == (5, 0, 1)
    assert late.err.endswith(
        "Hint: run the same command again, with --timeout 1m: it searches for the task, and does "
        "not send the message twice\n"
    )


def test_an_unknown_outcome_without_a_search_names_the_option_that_sends_again(send):
    agent = FakeAgent(completes("42"))
    agent.inject(Stall(), on="SendStreamingMessage")
    late = send("hello", "--timeout", "3s", "--on-unknown", "raise", agent=agent)

    assert late.exit == 5
    assert "send it again with --on-unknown resend only if" in late.err


# ── Wrong uses ───────────────────────────────────────────────────────────────────────────────


def test_a_key_of_another_message_or_agent_has_its_own_exit_code(send):
    agent = FakeAgent(completes("42"))
    other = FakeNetwork(FakeAgent(url="http://other.test"))
    send("hello", agent=agent)
    there = {"card": "http://other.test", "engine": lambda *, verify: other}
    for done, hint in (
        (send("bye", "-o", "json", agent=agent), "or the message that the key was used for"),
        (
            send("hello", "-o", "json", **there),
            "or name the agent that the key was used for: -a http://agent.test",
        ),
    ):
        assert (done.exit, done.error["code"]) == (6, "HOLDFAST_ERR_KEY_CONFLICT")
        assert "the key 'order-17' was used for " in done.error["message"]
        assert done.error["message"].endswith("this message was not sent")
        assert done.error["hint"] == f"pass another --key, {hint}"

    assert len(agent.executions) == 1


@pytest.mark.parametrize(
    ("key", "why"),
    [
        ("", "key must not be empty"),
        ("x" * 513, "key must have at most 512 characters, not 513"),
        ("a\nb", r"key must not contain control characters; it has '\n'"),
        ("a\x1bb", r"key must not contain control characters; it has '\x1b'"),
    ],
)
def test_a_key_that_is_not_valid_is_refused_in_one_line(path, key, why):
    agent = FakeAgent()
    done = holdfast("send", "hello", "--journal", str(path), "--key", key, agent=agent)

    assert done.exit == 2
    assert done.err.splitlines()[0] == f"Error: Invalid value for '--key': {why}"
    assert agent.received == []
    assert not path.exists()


def test_a_key_without_a_journal_is_refused_with_the_option_to_add():
    agent = FakeAgent()
    done = holdfast("send", "hello", "--key", "order-17", agent=agent)

    assert done.exit == 2
    assert "--key needs --journal FILE" in done.err
    assert agent.received == []


def test_a_journal_that_cannot_be_used_is_an_error_before_anything_is_sent(tmp_path):
    (tmp_path / "calls.db").write_text("no journal" * 1000)
    agent = FakeAgent()
    done = holdfast(
        "send", "hello", "--key", "k", "--journal", str(tmp_path / "calls.db"), agent=agent
    )

    assert done.exit == 1
    assert "Code: HOLDFAST_ERR_JOURNAL" in done.err
    assert not agent.executions
