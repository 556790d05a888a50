"""``holdfast run``: each line sent once, each with a result, whatever ends the command."""

import json
import os
import re
import select
import shlex
import signal
import sqlite3
import sys
import time
from pathlib import Path

import pytest
from tests.kit.cli_harness import AGENT, VirtualWall, holdfast
from tests.kit.cli_process import BOUND, NOBODY_READS, served, start
from tests.kit.cli_runs import Runs, echo, text_of

from holdfast._cli.batch.input import MAX_LINE_BYTES, read_line
from holdfast._cli.batch.output import Results
from holdfast._cli.options.values import read_grace, read_rate, shown_rate
from holdfast.testing import (
    Cut,
    FakeAgent,
    Refuse,
    Reset,
    Respond,
    Stall,
    asks,
    completes,
    fails,
    needs_auth,
    rate_limited,
    replies,
)

if sys.platform != "win32":
    import fcntl
    import resource

REFUSED = {"on": "SendStreamingMessage", "times": 4}  # as often as it is tried


@pytest.fixture
def runs(tmp_path):
    return Runs(tmp_path)


# ── Lines and results ────────────────────────────────────────────────────────────────────────


def test_a_line_is_a_message_in_any_of_its_forms(runs):
    done = runs(
        lines=[
            "plain text",
            '"a \\"string\\""',
            "",
            '{"id": "x", "text": "named"}',
            '{"id": 7, "message": {"parts": [{"text": "whole"}]}}',
            '{"messageId": "m1", "parts": [{"text": "bare"}]}',
            "42",
            '{"text": "nameless"}',
        ]
    )

    assert (done.exit, done.out) == (0, "")
    assert done.err == "Summary: 7 completed\n"
    assert runs.texts == {
        1: "PLAIN TEXT",
        2: 'A "STRING"',
        4: "NAMED",
        5: "WHOLE",
        6: "BARE",
        7: "42",
        8: "NAMELESS",
    }
    assert {one["line"]: one.get("id") for one in runs.results} == {
        1: None, 2: None, 4: "x", 5: 7, 6: "m1", 7: None, 8: None,
    }  # fmt: skip
    assert "m1" in runs.agent.executions


def test_a_result_is_a_task_a_message_or_an_error(tmp_path):
    def behave(turn):
        plans = {"talk": replies("hi"), "break": fails("no oven"), "ask": asks("Which?")}
        return plans.get(turn.message.text) or completes("done")

    runs = Runs(tmp_path, FakeAgent(behave))
    runs.agent.inject(Reset(), on="SendStreamingMessage", times=1)
    done = runs("--concurrency", "1", lines=["lost", "talk", "break", "ask", "work"])

    by_line = {one["line"]: one for one in runs.results}
    assert by_line[1]["error"]["code"] == "HOLDFAST_ERR_OUTCOME_UNKNOWN"
    assert set(by_line[1]["error"]) == {"code", "message", "hint", "a2aCode", "messageId"}
    assert by_line[2]["message"]["parts"] == [{"text": "hi"}]
    states = [by_line[line]["task"]["status"]["state"] for line in (3, 4, 5)]
    assert states == [
        "TASK_STATE_FAILED", "TASK_STATE_INPUT_REQUIRED", "TASK_STATE_COMPLETED"
    ]  # fmt: skip
    summary = "2 completed, 1 failed, 1 waiting for input or authorization, 1 without an answer"
    assert f"Summary: {summary}\n" in done.err
    assert re.search(r"Warning: line 1: the outcome of message \S+ is unknown: .*\n", done.err)
    assert re.search(r"Warning: line 3: task \S+ failed \(TASK_STATE_FAILED\).*\n", done.err)
    assert "Error: 1 of 5 lines has no answer\nCode: HOLDFAST_ERR_RUN\n" in done.err
    assert done.exit == 1


def test_a_failed_task_is_an_answer_and_the_first_one_comes_with_its_reason(tmp_path):
    runs = Runs(tmp_path, FakeAgent(fails("no oven")))
    done = runs("--concurrency", "1", lines=["a", "b", "c"])

    assert done.exit == 0
    reason = "task task-1 failed (TASK_STATE_FAILED): no oven"
    assert f"Warning: line 1: {reason}; 2 more failed: lines 2, 3\n" in done.err


def test_a_later_run_writes_the_answer_of_a_line_whose_task_asked_a_question(tmp_path):
    def behave(turn):
        if turn.message.text == "Friday":
            return completes("booked")
        return asks("Which day?") if turn.message.text.startswith("ask") else completes("done")

    runs = Runs(tmp_path, FakeAgent(behave))
    done = runs("--concurrency", "1", lines=["ask 1", "work", "ask 2"])
    task_id = runs.results[0]["task"]["id"]
    waits = f"Warning: line 1: task {task_id} waits for your answer (TASK_STATE_INPUT_REQUIRED)"
    assert f"{waits}; 1 more wait for input or authorization: line 3\n" in done.err
    assert f"Hint: holdfast send --task-id {task_id} '<reply>' --agent-card" in done.err
    assert holdfast("send", "--task-id", task_id, "Friday", agent=runs.agent).exit == 0

    runs.agent.inject(Respond(status=403), on="GetTask", times=2)
    assert runs().exit == 1  # an error does not replace a question
    assert states_of(runs) == {1: "INPUT_REQUIRED", 2: "COMPLETED", 3: "INPUT_REQUIRED"}

    later = runs()
    assert later.exit == 0
    waiting = "1 waiting for input or authorization"
    assert f"Summary: 1 completed, {waiting}, 1 done by an earlier run\n" in later.err
    assert states_of(runs) == {1: "COMPLETED", 2: "COMPLETED", 3: "INPUT_REQUIRED"}
    assert len(runs.agent.executions) == 4

    runs.journal.unlink()  # without a record, the message would be sent again
    assert f"Summary: 0 completed, {waiting}, 2 done by" in runs().err
    assert states_of(runs) == {1: "COMPLETED", 2: "COMPLETED", 3: "INPUT_REQUIRED"}
    assert len(runs.agent.executions) == 4


def states_of(runs):
    """The state of each line, which has one result."""
    assert len({one["line"] for one in runs.results}) == len(runs.results)
    prefix = "TASK_STATE_"
    return {
        one["line"]: one["task"]["status"]["state"].removeprefix(prefix) for one in runs.results
    }


def test_timeout_of_a_task_that_waits_for_an_authorization_says_so(tmp_path):
    runs = Runs(tmp_path, FakeAgent(lambda _: needs_auth("Log in.")))
    done = runs("--timeout", "5s", lines=["a"])

    assert done.exit == 0
    assert runs.results[0]["task"]["status"]["state"] == "TASK_STATE_AUTH_REQUIRED"


def test_the_summary_is_a_document_where_standard_output_is_free(runs):
    done = runs("-o", "json", "--run-id", "r", lines=["a", "b"])

    assert (done.exit, done.err) == (0, "")
    assert done.json == {
        "run": {
            "runId": "r", "completed": 2, "failed": 0, "waiting": 0, "errors": 0,
            "notSent": 0, "earlier": 0, "earlierFailed": 0, "elsewhere": 0, "skipped": 0,
            "left": 0, "pending": 0,
        }
    }  # fmt: skip


def test_the_document_of_an_error_has_the_counts_of_the_run(runs):
    done = runs("-o", "json", "--run-id", "r", lines=["a", "b", '{"prompt": "c"}', "d"])

    assert (done.exit, done.json["error"]["code"]) == (1, "HOLDFAST_ERR_INPUT")
    counts = done.json["run"]
    assert (counts["runId"], counts["completed"], counts["left"]) == ("r", 2, 2)


def test_failed_tasks_of_an_earlier_run_are_counted(tmp_path):
    runs = Runs(
        tmp_path, FakeAgent(lambda turn: fails() if turn.message.text == "b" else completes("x"))
    )
    runs(lines=["a", "b", "c"])
    again, document = runs(), runs("-o", "json")

    assert "Summary: 0 completed, 3 done by an earlier run, 1 of them failed\n" in again.err
    counts = document.json["run"]
    assert (counts["earlier"], counts["earlierFailed"], counts["failed"]) == (3, 1, 0)


@pytest.mark.parametrize("form", ["text", "json"])
def test_standard_streams_take_the_place_of_files(runs, form):
    words = ("--input", "-", "--run-id", "r", "-o", form)
    first = runs(*words, stdin=b"a\nb\n", output="-")
    second = runs(*words, stdin=b"a\nb\n", output="-")

    summaries = ["2 completed", "0 completed, 2 done by an earlier run"]
    for done, summary in zip((first, second), summaries, strict=True):
        assert sorted(text_of(json.loads(line)) for line in done.out.splitlines()) == ["A", "B"]
        assert (done.exit, done.err) == (0, f"Summary: {summary}\n")
    assert runs.sent == 2


def test_no_lines_are_done_at_once(runs):
    done = runs(lines=b"")

    assert (done.exit, done.err, runs.results) == (0, "Summary: 0 completed\n", [])


# ── Bad lines ────────────────────────────────────────────────────────────────────────────────

BAD = {
    b'{"id": "x", "text": "half': "begins like a JSON object, and is not valid JSON",
    b'{"prompt": "hi"}': "this one has none of them",
    b'{"text": "a", "parts": []}': "this one has text and parts",
    b"[1, 2]": "it is a JSON array",
    b'{"id": true, "text": "a"}': "its id is neither a string nor an integer",
    b'{"id": "\\ud800", "text": "a"}': "its id is not UTF-8",
    b'{"id": "a\\nb", "text": "a"}': "its id cannot be a key: key must not contain control",
    b'{"text": 5}': "its text is no text",
    b'{"message": "hi"}': "its message is no object",
    b'{"id": "a", "text": "hi", "bogus": 1}': (
        "'bogus' is not a member of an object with text; there are id, text;"
    ),
    b'{"key": "k", "text": "hi"}': (
        "'key' is not a member of an object with text; did you mean 'id'?;"
    ),
    b'{"id": "a", "text": "hi", "context_id": "c9"}': (
        "'context_id' is not a member of an object with text; write "
        '{"id": …, "parts": [{"text": …}], "contextId": …};'
    ),
    b'{"message": {"parts": [{"text": "a"}]}, "contextId": "c9"}': (
        "'contextId' is not a member of an object with message; write "
        '{"id": …, "message": {…, "contextId": …}};'
    ),
    b'""': "needs at least one part",
    b'{"parts": 3}': "the message is not valid",
    b"\xff\xfe\x00": "is not UTF-8",
    b"PK\x03\x04": "it has control characters",
    b"[" * 100_000: "",
    b"x" * (MAX_LINE_BYTES + 9): "is longer than 16 MiB",
}


@pytest.mark.parametrize("line", [bad for bad in BAD if BAD[bad]], ids=lambda line: line[:20])
def test_a_bad_line_is_named_and_skipped_where_that_is_wanted(runs, line):
    done = runs("--on-bad-line", "skip", lines=b"first\n" + line + b"\nlast\n")

    assert f"Warning: line 2 of {runs.input} " in done.err
    assert BAD[line] in done.err
    assert "Summary: 2 completed, 1 skipped\n" in done.err
    assert done.exit == 0
    assert runs.texts == {1: "FIRST", 3: "LAST"}


def test_run_with_a_bad_line_stops_sending_and_keeps_lines_in_flight(tmp_path):
    runs = Runs(tmp_path, echo(after=10))
    done = runs(lines=["a", "b", "{", "c"])

    assert done.exit == 1
    assert f"Error: line 3 of {runs.input} is not a message: " in done.err
    assert "Code: HOLDFAST_ERR_INPUT\n" in done.err
    assert "Summary: 2 completed, 2 left\n" in done.err
    assert runs.texts == {1: "A", 2: "B"}

    assert runs(lines=["a", "b", "mended", "c"]).exit == 0
    assert runs.texts == {1: "A", 2: "B", 3: "MENDED", 4: "C"}
    assert runs.sent == 4


def test_an_id_is_for_one_line(runs):
    line = '{"id": "x", "text": "a"}'
    done = runs("--on-bad-line", "skip", lines=[line, line])

    assert "line 2 of" in done.err
    assert "has the id 'x' of another line before it; skipped" in done.err
    assert runs.sent == 1


def test_lines_are_read_when_there_is_room_for_them(tmp_path):
    runs = Runs(tmp_path, echo(after=10))
    many = [str(number) for number in range(40)]
    done = runs("--concurrency", "2", lines=[*many, "{"], stops=[15])

    assert "is not a message" not in done.err
    assert len(runs.results) < 8


# ── Begun again ──────────────────────────────────────────────────────────────────────────────


def test_what_is_there_is_neither_sent_nor_written_again(runs):
    runs(lines=["a", '{"id": "x", "text": "b"}'])
    before = runs.output.read_bytes()
    done = runs(lines=["a", '{"id": "x", "text": "b"}', "c"])

    assert done.err == "Summary: 1 completed, 2 done by an earlier run\n"
    assert runs.output.read_bytes().startswith(before)
    assert runs.texts == {1: "A", 2: "B", 3: "C"}
    assert runs.sent == 3


@pytest.mark.parametrize("cut", [1, 3, 30])
def test_a_line_that_was_cut_in_half_is_written_once_more_and_not_sent(runs, cut):
    runs("--concurrency", "1", lines=["a", "b"])
    before = runs.output.read_bytes()
    runs.output.write_bytes(before[:-cut])

    assert runs("--concurrency", "1").exit == 0
    assert runs.output.read_bytes() == before
    assert runs.sent == 2


def test_results_that_were_lost_come_from_the_journal(runs):
    runs(lines=["a", "b"])
    before = runs.texts
    runs.output.unlink()

    assert runs().exit == 0
    assert runs.texts == before
    assert runs.sent == 2


def test_a_line_is_known_wherever_it_stands(runs):
    runs(lines=["a", "b", '{"id": "x", "text": "c"}'])
    done = runs(lines=['{"id": "x", "text": "c"}', "new", "b", "a"])

    assert done.err == "Summary: 1 completed, 3 done by an earlier run\n"
    assert sorted(map(text_of, runs.results)) == ["A", "B", "C", "NEW"]
    assert runs.sent == 4


def test_a_line_that_has_changed_is_another_message(runs):
    runs(lines=["a", "b"])
    done = runs(lines=["a", "changed"])

    assert done.err == "Summary: 1 completed, 1 done by an earlier run\n"
    assert sorted(map(text_of, runs.results)) == ["A", "B", "CHANGED"]


def test_a_line_says_the_same_in_any_of_its_forms(runs):
    runs(lines=["a", '{"parts": [{"text": "b"}], "metadata": {"x": 1, "y": 2}}'])
    done = runs(
        lines=[
            '"a"',
            '{"text": "a"}',
            '{"metadata": {"y": 2, "x": 1}, "parts": [{"text": "b"}]}',
            '{"text": "other"}',
        ]
    )

    assert done.err == "Summary: 2 completed, 2 done by an earlier run\n"
    assert runs.sent == 4


def test_a_line_with_parts_has_an_id_and_no_unknown_member(runs):
    done = runs(lines=['{"id": 7, "parts": [{"text": "a"}], "contextid": "c"}'])

    assert "'contextid' is not a member of the message; did you mean 'contextId'?" in done.err
    assert runs(lines=['{"id": 7, "parts": [{"text": "a"}], "contextId": "c"}']).exit == 0
    assert [one["id"] for one in runs.results] == [7]


@pytest.mark.parametrize("known_by", ["results", "journal"])
def test_the_same_words_in_another_task_are_another_message(runs, known_by):
    runs(lines=['{"parts": [{"text": "yes"}], "contextId": "c1"}'])
    if known_by == "journal":
        runs.output.unlink()
    done = runs(lines=['{"parts": [{"text": "yes"}], "contextId": "c2"}', "yes"])

    assert done.err == "Summary: 2 completed\n"


@pytest.mark.parametrize("known_by", ["results", "journal"])
def test_an_id_whose_line_goes_to_another_task_is_an_error_of_that_line(runs, known_by):
    line = '{"id": "x", "message": {"parts": [{"text": "yes"}], "contextId": "%s"}}'
    runs(lines=[line % "c1"])
    if known_by == "journal":
        runs.output.unlink()
    done = runs(lines=[line % "c2"])

    assert "Summary: 0 completed, 1 not sent\n" in done.err
    assert runs.sent == 1
    assert runs(lines=[line % "c1"]).exit == 0
    assert runs.sent == 1


@pytest.mark.parametrize("known_by", ["results", "journal"])
def test_the_same_line_twice_is_two_messages(runs, known_by):
    runs(lines=["a", "a"])
    if known_by == "journal":
        runs.output.unlink()
    done = runs(lines=["a", "b", "a", "a"])

    assert sorted(map(text_of, runs.results)) == ["A", "A", "A", "B"]
    assert runs.sent == 4
    if known_by == "results":
        assert done.err == "Summary: 2 completed, 2 done by an earlier run\n"


def test_of_two_equal_lines_the_one_without_a_result_has_its_turn(runs):
    runs("--concurrency", "1", lines=["a", "a"])
    first, second = runs.output.read_bytes().splitlines(keepends=True)
    runs.output.write_bytes(second)
    done = runs()

    assert done.err == "Summary: 0 completed, 2 done by an earlier run\n"
    assert runs.output.read_bytes() == second + first
    assert runs.sent == 2


def test_results_of_another_input_stay_and_skip_nothing_else(runs, tmp_path):
    runs(lines=["a", "b"])
    before = runs.output.read_bytes()
    other = tmp_path / "other.txt"
    other.write_text("b\nc\n")
    done = runs("--input", str(other))

    assert done.err == "Summary: 1 completed, 1 done by an earlier run\n"
    assert runs.output.read_bytes().startswith(before)
    assert sorted(map(text_of, runs.results)) == ["A", "B", "C"]


@pytest.mark.parametrize("known_by", ["results", "journal"])
def test_an_id_whose_line_has_changed_is_an_error_of_that_line(runs, known_by):
    runs(lines=['{"id": "x", "text": "a"}'])
    if known_by == "journal":
        runs.output.unlink()
    done = runs(lines=["new", '{"id": "x", "text": "changed"}', "last"])

    assert done.exit == 1
    assert "Summary: 2 completed, 1 not sent\n" in done.err
    assert "Error: 1 of 3 lines has no answer\n" in done.err
    assert "Warning: 1 line has the id of another message: line 2\n" in done.err
    command = f"holdfast run --input {runs.input} "
    hint = "give each changed message an id of its own, otherwise it is not sent; then, to resume"
    assert f"Hint: {hint}: {command}" in done.err
    assert "to retry" not in done.err
    (error,) = [one for one in runs.results if "error" in one]
    assert (error["id"], error["line"], error["executed"]) == ("x", 2, False)
    assert error["error"]["code"] == "HOLDFAST_ERR_INPUT"
    assert "'x'" in error["error"]["message"]
    assert runs.sent == 3

    mended = runs(lines=["new", '{"id": "y", "text": "changed"}', "last"])
    assert mended.exit == 0
    assert mended.err == "Summary: 1 completed, 2 done by an earlier run\n"
    assert all("error" not in one for one in runs.results)


def test_what_was_not_sent_has_its_turn_again(runs):
    line = '{"messageId": "m1", "parts": [{"text": "a"}]}'
    runs.agent.inject(Refuse(), **REFUSED)
    first = runs("--concurrency", "1", lines=[line, "b"])
    assert first.exit == 1
    assert "Summary: 1 completed, 1 not sent\n" in first.err
    assert "Error: 1 of 2 lines has no answer\n" in first.err
    assert "--retry-errors" not in first.err
    assert [one.get("executed", "") for one in runs.results] == [False, ""]

    second = runs("--concurrency", "1")

    assert second.err == "Summary: 1 completed, 1 done by an earlier run\n"
    assert runs.texts == {1: "A", 2: "B"}
    assert runs.sent == 2


def test_an_agent_that_takes_nothing_for_long_ends_the_sending(tmp_path):
    runs = Runs(tmp_path, echo())
    runs.agent.inject(Refuse(), on="SendStreamingMessage", times=10_000)
    many = [str(number) for number in range(100)]
    down = runs("--concurrency", "4", lines=many)

    assert down.exit == 3
    assert "Warning: the agent cannot be reached: the connection was refused (" in down.err
    assert "Error: the agent has not been reached for 5m: the connection was refused (" in down.err
    assert "to resume: holdfast run --input" in down.err
    unsent = len(runs.results)
    assert 4 <= unsent < 20
    assert f"Summary: 0 completed, {unsent} not sent, {100 - unsent} left\n" in down.err
    assert runs.sent == 0

    runs.agent = echo()
    up = runs()
    assert (up.exit, up.err) == (0, "Summary: 100 completed\n")
    assert runs.sent == 100


def test_an_agent_that_is_away_for_a_while_is_waited_for(tmp_path):
    runs = Runs(tmp_path, echo())
    runs.agent.inject(Refuse(), on="SendStreamingMessage", times=24)
    many = [str(number) for number in range(100)]
    done = runs("--concurrency", "4", lines=many)

    assert done.exit == 1
    missing = 100 - runs.sent
    assert 1 <= missing < 24
    assert f"Summary: {runs.sent} completed, {missing} not sent\n" in done.err
    assert runs("--concurrency", "4").exit == 0


def test_agent_that_refuses_credentials_ends_the_sending_without_waiting(tmp_path):
    runs = Runs(tmp_path, echo())
    runs.agent.inject(Respond(status=401), on="SendStreamingMessage", times=10_000)
    done = runs("--concurrency", "4", lines=[str(number) for number in range(100)])

    assert done.exit == 4
    assert "cannot be reached" not in done.err
    assert "Error: sending has stopped: HTTP 401 Unauthorized" in done.err
    assert re.search(r"Summary: 0 completed, [1-4] not sent, 9[6-9] left\n", done.err)


class GoneAgent(FakeAgent):
    """An agent that dies while the fourth message comes to its end, and may come back."""

    def __init__(self, failures):
        super().__init__(self._behave)
        self.inject(Cut(after_events=1), on="SendStreamingMessage", times=4)
        self._begun = 0
        self._failures = failures

    def _behave(self, turn):
        self._begun += 1
        if self._begun == 4:
            self.inject(Refuse(), times=self._failures)
        return completes(turn.message.text.upper(), after=20)


def test_crashed_agent_is_reported_at_once_and_abandoned_after_minutes(tmp_path):
    runs = Runs(tmp_path, GoneAgent(100_000))
    down = runs("--concurrency", "4", lines=[str(number) for number in range(100)])

    assert down.exit == 3
    assert "Warning: the agent cannot be reached: the connection was refused" in down.err
    assert "; waiting up to 5m until it answers\n" in down.err
    assert "Summary: 0 completed, 100 left, 4 of them pending\n" in down.err
    assert "Error: the agent has not been reached for 5m: " in down.err
    assert "; then, to resume: holdfast run --input" in down.err
    assert (runs.sent, len(runs.agent.calls("SendStreamingMessage"))) == (4, 4)
    assert runs.results == []

    runs.agent._faults.clear()
    assert runs().exit == 0
    assert len(runs.texts) == runs.sent == 100


def test_an_agent_that_is_back_is_sent_what_is_left(tmp_path):
    runs = Runs(tmp_path, GoneAgent(60))
    done = runs("--concurrency", "4", lines=[str(number) for number in range(100)])

    assert "Warning: the agent cannot be reached: " in done.err
    assert "Warning: the agent answers again\n" in done.err
    assert (done.exit, runs.sent) == (0, 100)


@pytest.mark.parametrize(("fault", "seconds"), [(Refuse(), 60), (rate_limited(), 180)])
def test_an_agent_that_is_back_is_soon_as_busy_as_before(tmp_path, fault, seconds):
    runs = Runs(tmp_path, echo(after=10_000))
    words = ("--concurrency", "20", "--rate", "2/s", "--grace", "0", "--timeout", "5h")
    runs.agent.inject(fault, on="SendStreamingMessage", times=8)
    runs(*words, lines=[str(number) for number in range(20)], stops=[seconds])

    assert runs.sent >= 12


def test_an_agent_that_is_away_at_the_start_is_waited_for(tmp_path):
    runs = Runs(tmp_path)
    runs.agent.inject(Refuse(), on="GetAgentCard", times=9)
    done = runs("--timeout", "20s", lines=["a", "b"])

    assert "Warning: the agent cannot be reached: the connection was refused (" in done.err
    assert "Warning: the agent answers again\n" in done.err
    assert (done.exit, runs.sent) == (0, 2)


def test_an_agent_that_is_away_at_the_start_for_long_ends_the_run(tmp_path):
    runs = Runs(tmp_path)
    runs.agent.inject(Refuse(), on="GetAgentCard", times=10_000)
    done = runs(lines=["a", "b"])

    assert done.exit == 3
    assert "Summary: 0 completed, 2 left\n" in done.err
    assert "Error: the agent has not been reached for 5m: the connection was refused (" in done.err
    assert "; then, to resume: holdfast run --input" in done.err


def test_command_that_does_not_wait_for_an_unreachable_agent_says_how_to_resume(tmp_path):
    runs = Runs(tmp_path)
    runs.agent.inject(Refuse(), on="GetAgentCard", times=10_000)
    done = runs(lines=["a", "b"], stops=[20])

    assert done.exit == 130
    assert "Summary: 0 completed, 2 left\nHint: to resume: holdfast run --input" in done.err


@pytest.mark.parametrize(
    ("fault", "code"),
    [
        (Respond(status=404), "A2ACLI_ERR_CARD_NOT_FOUND"),
        (Respond(status=401), "A2ACLI_ERR_CREDENTIALS_MISSING"),
    ],
)
def test_an_address_that_is_wrong_ends_the_run_at_once(runs, fault, code):
    runs.agent.inject(fault, on="GetAgentCard", times=100)
    done = runs(lines=["a"])

    assert done.exit in {3, 4}
    assert f"Code: {code}\n" in done.err
    assert "waiting up to" not in done.err
    assert "Summary: " not in done.err


def test_unknown_name_ends_the_run_at_once(runs):
    done = runs(lines=["a"], card="http://nowhere.test")

    assert done.exit == 3
    assert done.err.startswith(
        "Error: the host name could not be resolved (agent http://nowhere.test"
    )


def test_messages_that_are_not_sent_now_and_then_do_not_end_the_sending(runs):
    many = []
    for number in range(30):
        many += [f'{{"id": "{number}", "text": "first"}}', str(number)]
    runs(lines=many[::2])
    changed = [line.replace("first", "second") for line in many]
    done = runs("--concurrency", "1", lines=changed)

    numbers = ", ".join(map(str, range(1, 40, 2)))
    told = f"30 lines have the id of another message: lines {numbers} and 10 others"
    assert f"Warning: {told}\n" in done.err

    assert "Summary: 30 completed, 30 not sent\n" in done.err


def test_lines_whose_ids_are_taken_do_not_end_the_sending(runs):
    runs(lines=[f'{{"id": {number}, "text": "first"}}' for number in range(30)])
    runs.output.unlink()
    changed = [f'{{"id": {number}, "text": "second"}}' for number in range(30)]
    done = runs("--concurrency", "1", lines=[*changed, "last"])

    assert "Summary: 1 completed, 30 not sent\n" in done.err
    assert "cannot be reached" not in done.err


def test_dismissed_call_is_reported_and_not_sent_again(tmp_path):
    runs = Runs(tmp_path, echo(after=100))
    runs("--grace", "0", lines=["a"], stops=[5])
    (message_id,) = runs.agent.executions
    holdfast("resume", "--journal", str(runs.journal), "--dismiss", message_id, agent=runs.agent)
    done = runs("--retry-errors")

    assert done.exit == 1
    (result,) = runs.results
    assert (result["executed"], result["error"]["code"]) == (True, "HOLDFAST_ERR_CALL_ENDED")
    assert "dismissed" in result["error"]["message"]
    assert runs.sent == 1


def test_a_message_that_another_run_has_sent_is_an_error_of_its_line(runs):
    line = '{"messageId": "m1", "parts": [{"text": "a"}]}'
    runs("--run-id", "r", lines=[line])
    runs.output.unlink()
    done = runs("--run-id", "s", lines=[line, "b"])

    assert "Summary: 1 completed, 1 not sent\n" in done.err
    (error,) = [one["error"] for one in runs.results if "error" in one]
    assert error["code"] == "HOLDFAST_ERR_JOURNAL"
    assert "message m1 is in the journal" in error["message"]
    assert "to retry" not in done.err
    assert runs.sent == 2


def test_a_journal_that_is_gone_ends_the_sending_and_no_line_is_lost(tmp_path):
    def behave(turn):
        if turn.message.text == "5":
            runs.journal.unlink()
        return completes("x")

    runs = Runs(tmp_path, FakeAgent(behave))
    many = [str(number) for number in range(100)]
    done = runs("--concurrency", "1", lines=many)

    assert done.exit == 1
    assert (
        f"Error: the journal {runs.journal} was deleted or moved after it was opened" in done.err
    )
    assert "Hint: put the journal back where it was: " in done.err
    assert "; then, to resume: holdfast " in done.err
    assert [one for one in runs.results if "error" in one] == []
    assert runs.sent < 10


def test_errors_of_earlier_runs_are_still_errors(runs):
    runs.agent.inject(Reset(), on="SendStreamingMessage", times=1)
    runs("--concurrency", "1", lines=["a", "b"])
    again = runs()

    assert again.exit == 1
    assert "Summary: 0 completed, 1 without an answer, 1 done by an earlier run\n" in again.err
    assert "Error: 1 of 2 lines has no answer\n" in again.err


def test_hint_about_unknown_messages_names_the_search_before_the_resend(runs):
    runs.agent.inject(Reset(), on="SendStreamingMessage", times=1)
    first = runs("--run-id", "r", lines=["a"])
    assert "Hint: to wait or search for the answers again: " in first.err
    assert f"--journal {runs.journal} --run-id r --retry-errors --agent-card" in first.err
    words = "--run-id r --on-unknown resend --retry-errors"

    searched = runs("--run-id", "r", "--retry-errors")
    assert searched.exit == 1
    assert "add --on-unknown resend" in searched.err
    assert "add --on-unknown resend" in runs("--run-id", "r").err
    assert runs(*words.split()).exit == 0
    assert runs.texts == {1: "A"}


def test_unknown_message_of_an_earlier_run_is_sent_again_if_the_user_allows_it(runs):
    runs.agent.inject(Reset(), on="SendStreamingMessage", times=1)
    assert runs(lines=["a"]).exit == 1
    assert runs("--retry-errors", "--on-unknown", "resend").exit == 0

    assert runs.texts == {1: "A"}
    assert len(runs.agent.executions) == 1


@pytest.mark.parametrize("ended", ["--grace 0", "--timeout 5s"])
def test_lines_whose_task_is_lost_are_sent_by_the_command_of_the_hint(tmp_path, ended):
    runs = Runs(tmp_path, echo(after=100))
    runs(*ended.split(), lines=["a", "b"], stops=[5])
    runs.agent = echo()  # restarted: it has lost its tasks
    lost = runs("--retry-errors")
    again = runs()
    resend = re.search(r"give the run another name: holdfast run (.*)\n", lost.err)[1]

    assert (lost.exit, again.exit, runs.agent.executions) == (1, 1, {})
    hints = {one["error"]["hint"] for one in runs.results}
    assert all("the agent has lost the task" in hint for hint in hints)
    assert resend in again.err
    assert "--on-unknown" not in lost.err
    assert holdfast("run", *shlex.split(resend), agent=runs.agent).exit == 0
    assert (runs.texts, runs.sent) == ({1: "A", 2: "B"}, 2)


def test_each_hint_about_lost_tasks_names_another_run(tmp_path):
    runs = Runs(tmp_path, echo(after=100))
    runs("--run-id", "r", "--timeout", "5s", lines=["a"])
    names = ["r"]
    for _ in range(3):
        runs.agent = echo(after=100)  # it loses its tasks again
        lost = runs("--run-id", names[-1], "--retry-errors")
        names.append(re.search(r"--run-id (\S+) --retry-errors", lost.err)[1])
        runs("--run-id", names[-1], "--retry-errors", "--timeout", "5s")

    assert names == ["r", "r-resent", "r-resent-2", "r-resent-3"]


def test_open_lines_are_retried_before_lost_ones_are_sent_as_new_messages(tmp_path):
    runs = Runs(tmp_path, echo(after=100))
    runs("--timeout", "5s", lines=["a", "b"])
    runs.agent = echo(after=100)
    done = runs("--timeout", "5s", "--retry-errors", lines=["a", "b", "c"])

    assert "Hint: to wait or search for the answers again: " in done.err
    assert "; if lines remain whose task the agent has lost, send these as new" in done.err


def test_lines_still_in_flight_are_awaited_again(tmp_path):
    runs = Runs(tmp_path, echo(after=100))
    first = runs("--timeout", "5s", lines=["a"])
    assert "Hint: to wait or search for the answers again: " in first.err
    assert f"--journal {runs.journal} --timeout 5s --retry-errors --agent-card" in first.err

    assert runs("--retry-errors").exit == 0
    assert runs.texts == {1: "A"}
    assert runs.sent == 1


def test_retry_that_times_out_keeps_that_the_message_was_executed(tmp_path):
    runs = Runs(tmp_path, echo(after=100))
    runs("--timeout", "5s", lines=["a"])
    assert runs.results[0]["executed"] is True

    runs.agent.inject(Stall(), on="GetTask")
    assert runs("--timeout", "5s", "--retry-errors").exit == 1
    (result,) = runs.results
    assert (result["executed"], result["error"]["code"]) == (True, "A2ACLI_ERR_TIMEOUT")


def test_retry_that_cannot_find_the_task_keeps_that_the_message_was_executed(tmp_path):
    runs = Runs(tmp_path, echo(after=100))
    runs("--timeout", "5s", lines=["a", "b"])

    runs.agent = FakeAgent(url="http://moved.test")  # which has no task of the messages
    assert runs("--retry-errors", card=runs.agent.url).exit == 1
    codes = {(one["executed"], one["error"]["code"]) for one in runs.results}
    assert codes == {(True, "HOLDFAST_ERR_OUTCOME_UNKNOWN")}
    assert runs.agent.executions == {}
    assert runs("--retry-errors", card=runs.agent.url).exit == 1
    assert {one["executed"] for one in runs.results} == {True}


def test_a_message_whose_reply_is_lost_is_sent_again_where_that_is_wanted(runs):
    runs.agent.inject(Reset(), on="SendStreamingMessage", times=1)
    done = runs("--on-unknown", "resend", lines=["a"])

    assert done.exit == 0
    assert runs.texts == {1: "A"}


def test_what_may_have_been_executed_is_not_sent_again_by_trying_once_more(runs):
    runs.agent.inject(Reset(), on="SendStreamingMessage")
    runs(lines=["a"])
    done = runs("--retry-errors")

    assert done.exit == 1
    assert runs.results[0]["error"]["code"] == "HOLDFAST_ERR_OUTCOME_UNKNOWN"
    assert runs.agent.executions == {}


# ── Moved ────────────────────────────────────────────────────────────────────────────────────


def left(tmp_path, *lines):
    """A run that left its lines under way, and whose input was moved then."""
    runs = Runs(tmp_path, echo(after=100))
    runs("--grace", "0", lines=lines, stops=[5])
    runs.input = runs.input.rename(tmp_path / "moved.jsonl")
    return runs


@pytest.mark.parametrize("line", ["a", '{"id": "x", "text": "a"}'])
def test_pending_lines_of_a_moved_input_are_not_sent_again(tmp_path, line):
    runs = left(tmp_path, line)
    done = runs()

    assert done.exit == 1
    assert f"Error: line 1 of {runs.input} is pending in the run " in done.err
    assert "Code: HOLDFAST_ERR_INPUT\n" in done.err
    assert runs.sent == 1

    name = done.err.partition(" in the run ")[2].split(" ")[0].rstrip(",;")
    assert f"--run-id {name} " in done.err
    assert runs("--run-id", name).exit == 0
    assert runs.texts == {1: "A"}
    assert runs.sent == 1


def test_a_name_that_was_left_out_is_reported(tmp_path):
    runs = Runs(tmp_path, echo(after=100))
    runs("--run-id", "a:b%3A", "--grace", "0", lines=["a"], stops=[5])
    done = runs()

    assert " is pending in the run a:b%3A, according to " in done.err
    assert "--run-id a:b%3A " in done.err
    assert runs.sent == 1


def test_the_same_line_is_sent_by_a_run_that_is_given_a_name(tmp_path):
    runs = left(tmp_path, "a")

    assert runs("--run-id", "other").exit == 0
    assert len(runs.agent.executions) == 2


def test_other_lines_are_sent_whatever_is_pending_in_other_runs(tmp_path):
    runs = left(tmp_path, "a", '{"id": 1, "text": "b"}')

    assert runs(lines=["b", '{"id": 1, "text": "other"}']).exit == 0


def test_a_line_that_is_over_may_be_pending_in_another_run(tmp_path):
    runs = left(tmp_path, "a")
    runs("--run-id", "other")

    assert runs().err == "Summary: 0 completed, 1 done by an earlier run\n"


# ── Ctrl-C ───────────────────────────────────────────────────────────────────────────────────


def test_after_an_interruption_calls_in_flight_finish(tmp_path):
    runs = Runs(tmp_path, echo(after=10))
    many = [str(number) for number in range(10)]
    done = runs("--concurrency", "4", "--rate", "50/s", lines=many, stops=[5])

    assert done.exit == 130
    assert "Warning: sending has stopped; waiting up to 30s for 4 in flight" in done.err
    assert "Summary: 4 completed, 6 left\n" in done.err
    assert (
        f"Hint: to resume: holdfast run --input {runs.input} --results {runs.output} --journal "
        f"{runs.journal} --rate 50/s --concurrency 4 --agent-card {AGENT}\n"
    ) in done.err
    assert runs.sent == 4

    assert runs().exit == 0
    assert runs.texts == {number + 1: str(number) for number in range(10)}
    assert runs.sent == 10


@pytest.mark.parametrize(("grace", "stops"), [("200s", [5, 6]), ("2s", [5]), ("0", [5])])
def test_call_that_was_not_awaited_is_resumed_by_the_next_run(tmp_path, grace, stops):
    runs = Runs(tmp_path, echo(after=100))
    many = [str(number) for number in range(10)]
    done = runs("--concurrency", "4", "-o", "json", "--grace", grace, lines=many, stops=stops)

    assert done.exit == 130
    assert (done.json["run"]["completed"], done.json["run"]["left"]) == (0, 10)
    assert runs.sent == 4

    assert runs().exit == 0
    assert runs.texts == {number + 1: str(number) for number in range(10)}
    assert runs.sent == 10
    assert runs.agent.calls("CancelTask") == []


# ── Files that cannot be used ────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("path", "problem"),
    [
        ("{}/none", "cannot be read: No such file or directory"),
        ("{}", "cannot be read: Is a directory"),
        ("/dev/null", "is not a regular file, whose path could name the run"),
    ],
)
@pytest.mark.parametrize("command", ["run", "run results"])
def test_an_input_that_cannot_be_used_is_a_usage_error(tmp_path, command, path, problem):
    source, agent = path.format(tmp_path), FakeAgent()
    words = ["--input", source, "--journal", str(tmp_path / "calls.db")]
    if command == "run":
        words += ["--results", str(tmp_path / "out")]
    done = holdfast(*command.split(), *words, agent=agent)

    assert done.exit == 2
    assert f"Error: --input {source} {problem}\nCode: A2ACLI_ERR_USAGE\n" in done.err
    assert agent.executions == {}
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--results", "{}"], "{} cannot be written: Is a directory"),
        (["--results", "{}/none/out"], "{}/none/out cannot be written: No such file or directory"),
        (["--results", "{}/notes/out"], "{}/notes/out cannot be written: Not a directory"),
        (["--results", "{}/notes"], "{}/notes contains something that is not a result, in line 1"),
        (["--results", "{}/in"], "{}/in is named by --input and by --results"),
        (["--journal", "{}/in"], "{}/in is named by --input and by --journal"),
        (["--journal", "{}"], "the journal {} cannot be used: {} is a directory"),
        (
            ["--journal", "{}/notes"],
            "the journal {}/notes cannot be used: {}/notes is not a SQLite database",
        ),
    ],
)
def test_a_file_that_cannot_be_used_is_reported_before_anything_is_sent(tmp_path, words, told):
    (tmp_path / "in").write_text("a\n")
    (tmp_path / "notes").write_text("my own notes, with no end of the line")
    given = {"--input": "{}/in", "--results": "{}/out", "--journal": "{}/calls.db"}
    given |= dict([words])
    agent = FakeAgent()
    named = [word.format(tmp_path) for pair in given.items() for word in pair]
    done = holdfast("run", *named, agent=agent)

    assert done.exit == 1
    assert f"Error: {told.replace('{}', str(tmp_path))}" in done.err
    assert "Code: HOLDFAST_ERR_" in done.err
    assert agent.executions == {}
    assert (tmp_path / "notes").read_text() == "my own notes, with no end of the line"


def test_the_output_option_is_the_form_as_everywhere(runs):
    assert runs("--output", "json", lines=["a"]).json["run"]["completed"] == 1
    refused = runs("--output", "results.jsonl", lines=["a"])
    assert refused.exit == 2
    assert "'results.jsonl' is not one of 'text', 'json'" in refused.err


def test_a_journal_is_named_as_a_program_names_it(runs):
    runs(lines=["a"])
    address = f"sqlite:///{runs.journal}"
    words = ("--input", str(runs.input), "--results", "-", "--journal", address)
    done = holdfast("run", *words, agent=runs.agent)
    shared = holdfast("run", *words[:3], str(runs.journal), *words[4:], agent=runs.agent)

    assert text_of(json.loads(done.out)) == "A"
    assert runs.sent == 1
    assert f"Error: {runs.journal} is named by --results and by --journal" in shared.err


def test_result_inside_another_value_is_unchanged(runs):
    first = '{"line":1,"digest":"0123456789abcdef","task":{}}\n'
    content = f'{first}{{"line":2}}\n{{"line":3,"ta'
    runs.output.write_text(content)
    done = runs(lines=["a"])

    assert "contains something that is not a result, in line 2" in done.err
    assert runs.output.read_text() == content


@pytest.mark.skipif(sys.platform == "win32", reason="files are not locked there")
def test_two_runs_do_not_write_to_one_file(runs):
    import fcntl

    with runs.output.open("ab") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        done = runs(lines=["a"])

    assert done.exit == 1
    assert "is being written by another run; nothing was sent\n" in done.err


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device is always full here")
def test_an_output_that_takes_nothing_more_ends_the_sending(runs):
    done = runs("--concurrency", "1", lines=["a", "b", "c"], output="/dev/full")

    assert done.exit == 1
    summary = "Summary: 0 completed, 1 answered, but not written to the results, 2 left\n"
    assert summary in done.err
    assert "Error: /dev/full cannot be written: No space left on device\n" in done.err
    assert runs.sent < 3

    assert runs().exit == 0
    assert runs.texts == {1: "A", 2: "B", 3: "C"}
    assert runs.sent == 3


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device is always full here")
def test_answers_that_cannot_be_written_are_counted_and_kept_in_the_journal(runs):
    done = runs(lines=["a", "b", "c"], output="/dev/full")
    summary = "Summary: 0 completed, 3 answered, but not written to the results\n"
    assert summary in done.err
    assert runs.sent == 3

    assert runs().exit == 0
    assert runs.texts == {1: "A", 2: "B", 3: "C"}
    assert runs.sent == 3


@pytest.mark.parametrize("last", ["5", "9"])
@pytest.mark.parametrize("replaced", [False, True])
def test_an_output_that_is_gone_ends_the_sending_and_no_answer_is_lost(tmp_path, last, replaced):
    def behave(turn):
        if turn.message.text == last:
            runs.output.unlink()
            if replaced:
                runs.output.write_bytes(b"")
        return completes(turn.message.text, after=1)

    runs = Runs(tmp_path, FakeAgent(behave))
    done = runs("--concurrency", "1", lines=[str(number) for number in range(10)])

    assert done.exit == 1
    assert "Summary: 0 completed, " not in done.err
    assert f"Error: {runs.output} was moved or deleted; the journal has the results" in done.err
    assert "Hint: to write all results again, and resume: holdfast run --input" in done.err

    runs.agent = echo()
    assert runs().exit == 0
    assert len(runs.texts) == 10


def test_calls_in_flight_are_not_awaited_if_results_are_not_read(tmp_path):
    agent = FakeAgent(lambda turn: completes("x", after=0 if turn.message.text == "0" else 3000))
    source = tmp_path / "in.txt"
    source.write_text("".join(f"{number}\n" for number in range(5)))
    words = ("run", "--input", str(source), "--results", "-")
    words += ("--journal", str(tmp_path / "calls.db"))
    with served(agent) as url, start(*words, "-a", url) as process:
        process.stdout.close()
        assert process.wait(BOUND) == NOBODY_READS


def test_results_that_are_tried_again_leave_a_file_as_it_is_otherwise(runs, tmp_path):
    runs.agent.inject(Refuse(), **REFUSED)
    runs("--concurrency", "1", lines=["a", "b"])
    target = runs.output.rename(tmp_path / "target.jsonl")
    runs.output.symlink_to(target)
    target.chmod(0o600)

    assert runs("--retry-errors").exit == 0
    assert runs.output.is_symlink()
    assert target.stat().st_mode & 0o777 == 0o600
    assert runs.texts == {1: "A", 2: "B"}


def test_a_link_in_place_of_the_new_results_is_not_followed(runs, tmp_path):
    runs.agent.inject(Refuse(), **REFUSED)
    runs("--concurrency", "1", lines=["a", "b"])
    precious = tmp_path / "precious"
    precious.write_text("mine")
    runs.output.with_name(f".{runs.output.name}.holdfast").symlink_to(precious)

    assert runs("--retry-errors").exit == 0

    assert precious.read_text() == "mine"
    assert not runs.output.is_symlink()
    assert runs.texts == {1: "A", 2: "B"}


def test_what_was_sent_is_known_for_ever(runs):
    """A journal of a program forgets after a week what is finished."""
    line = '{"id": "x", "text": "a"}'
    runs(lines=[line])
    with sqlite3.connect(runs.journal) as journal:
        journal.execute("UPDATE calls SET began = began - 1e9")
    journal.close()
    runs.output.unlink()
    runs("--concurrency", "1", lines=["b", line])

    assert runs.texts == {1: "B", 2: "A"}
    assert runs.sent == 2


def test_a_message_for_an_answer_comes_from_the_journal_too(tmp_path):
    runs = Runs(tmp_path, FakeAgent(replies("hi")))
    runs(lines=["a"])
    runs.output.unlink()

    assert runs().exit == 0
    assert runs.results[0]["message"]["parts"] == [{"text": "hi"}]
    assert runs.sent == 1


def test_messages_are_begun_no_faster_than_wanted(runs):
    many = [str(number) for number in range(10)]
    runs("--rate", "1/s", lines=many, stops=[2.5])

    assert runs.sent <= 4


# ── Options ──────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("text", "rate"),
    [("50", 50), ("50/s", 50), ("3/min", 0.05), ("3 / m", 0.05), ("36/h", 0.01), ("0.5/s", 0.5)],
)
def test_a_rate_is_so_many_in_a_time(text, rate):
    assert read_rate(text) == pytest.approx(rate)
    assert read_rate(shown_rate(rate)) == pytest.approx(rate)


@pytest.mark.parametrize(
    "rate", ["0/s", "0", "-1", "fast", "50/day", "", "/s", "1e400", "9" * 400]
)
def test_a_rate_that_cannot_be_right_is_a_usage_error(runs, rate):
    done = runs("--rate", rate, lines=["a"])

    assert done.exit == 2
    assert "Code: A2ACLI_ERR_USAGE\n" in done.err
    assert runs.agent.executions == {}


def test_no_grace_is_a_grace():
    assert [read_grace(text) for text in ("0", "0s", "2s")] == [0, 0, 2]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--input", "-"], "--input -: standard input has no name"),
        (["--concurrency", "0"], "0 is not in the range x>=1"),
        (["--on-bad-line", "ignore"], "'ignore' is not one of 'skip', 'fail'"),
    ],
)
@pytest.mark.parametrize("form", ["text", "json"])
def test_options_that_cannot_be_right_are_usage_errors(runs, words, told, form):
    done = runs("-o", form, *words, lines=["a"])

    assert done.exit == 2
    assert told in (done.error["message"] if form == "json" else done.err)


def test_service_parameters_go_with_each_message(runs):
    runs("--svc-param", "x-team:blue", lines=["a", "b"])

    sends = runs.agent.calls("SendStreamingMessage")
    assert [call.headers["x-team"] for call in sends] == ["blue", "blue"]


# ── Processes ────────────────────────────────────────────────────────────────────────────────


def test_a_run_that_was_killed_continues_with_the_same_command(tmp_path):
    agent = echo(after=0.2)
    source, output = tmp_path / "in.txt", tmp_path / "out.jsonl"
    source.write_text("".join(f"line {number}\n" for number in range(1, 41)))
    words = ("run", "--input", str(source), "--results", str(output), "--concurrency", "8")
    words += ("--journal", str(tmp_path / "calls.db"))
    with served(agent) as url:
        with start(*words, "-a", url) as process:
            limit = time.monotonic() + BOUND
            while not output.exists() or output.read_bytes().count(b"\n") < 10:
                assert time.monotonic() < limit
                assert process.poll() is None
                time.sleep(0.01)
            process.kill()
            process.wait(BOUND)
        known = output.read_bytes().count(b"\n")
        # A message that was recorded and not sent when the process was killed is not found; the
        # search lasts as long as --timeout allows, 30 s at most. On a slow machine other calls may
        # take longer than that, too: they are executed, and end with an error.
        with start(*words, "--timeout", "8s", "-a", url) as process:
            _, told = process.communicate(timeout=BOUND)
    results = [json.loads(line) for line in output.read_text().splitlines()]
    answers = {one["line"]: text_of(one) for one in results if "task" in one}
    others = [one["error"]["code"] for one in results if "error" in one]
    assert 0 < known < 40
    # The journal may have more answers of the killed process than its results.
    (earlier,) = re.findall(r"(\d+) done by an earlier run", told)
    assert known <= int(earlier) < 40
    assert sorted(one["line"] for one in results) == [*range(1, 41)]
    assert answers.items() <= {number: f"LINE {number}" for number in range(1, 41)}.items()
    assert set(others) <= {"HOLDFAST_ERR_OUTCOME_UNKNOWN", "A2ACLI_ERR_TIMEOUT"}
    assert {one["executed"] for one in results if "error" in one} <= {None}
    assert process.returncode == bool(others)
    assert len(answers) <= len(agent.executions) <= len(results)
    assert all(len(made) == 1 for made in agent.executions.values())


def test_an_interruption_of_a_run_that_waits_for_its_input_is_quiet(tmp_path):
    words = ("run", "--input", "/dev/stdin", "--run-id", "r", "--results", "-")
    words += ("--journal", str(tmp_path / "calls.db"))
    reader, writer = os.pipe()
    with served(echo()) as url, start(*words, "-a", url, stdin=reader) as process:
        os.write(writer, b"a\n")
        line = process.stdout.readline()
        assert line, process.stderr.read()
        assert text_of(json.loads(line)) == "A"
        process.send_signal(signal.SIGINT)
        _, told = process.communicate(timeout=BOUND)
    os.close(reader)
    os.close(writer)
    assert process.returncode == 130
    assert told.startswith("Summary: 1 completed, an unknown number left\nHint: to resume: ")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no named pipes here")
def test_one_sigterm_ends_a_run_whose_input_no_process_writes(tmp_path):
    os.mkfifo(tmp_path / "in")
    words = ("run", "--input", str(tmp_path / "in"), "--run-id", "r")
    words += ("--results", str(tmp_path / "out"), "--journal", str(tmp_path / "calls.db"))
    agent, ends = echo(), time.monotonic() + BOUND
    with served(agent) as url, start(*words, "-a", url) as process:
        while not agent.received and time.monotonic() < ends:
            time.sleep(0.01)
        process.send_signal(signal.SIGTERM)
        _, told = process.communicate(timeout=BOUND)
    assert process.returncode == 143
    assert told.startswith("Summary: 0 completed, an unknown number left\nHint: to resume: ")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no named pipes here")
def test_results_into_a_fifo_that_no_process_reads_are_refused(tmp_path):
    os.mkfifo(tmp_path / "out")
    (tmp_path / "in").write_text("hello\n")
    words = ("run", "--input", str(tmp_path / "in"), "--results", str(tmp_path / "out"))
    words += ("--journal", str(tmp_path / "calls.db"), "-a", "http://127.0.0.1:1")
    with start(*words) as process:
        _, told = process.communicate(timeout=BOUND)
    assert process.returncode == 1
    assert f"Error: {tmp_path / 'out'} is a FIFO that no process reads; nothing was sent\n" in told


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no named pipes here")
def test_two_interruptions_end_a_run_whose_results_are_not_read(tmp_path):
    os.mkfifo(tmp_path / "out")
    (tmp_path / "in").write_text(f"{'x' * 200_000}\n")  # more than a pipe holds
    words = ("run", "--input", str(tmp_path / "in"), "--results", str(tmp_path / "out"))
    words += ("--journal", str(tmp_path / "calls.db"))
    reader = os.open(tmp_path / "out", os.O_RDONLY | os.O_NONBLOCK)
    with served(echo()) as url, start(*words, "-a", url) as process:
        select.select([reader], [], [], BOUND)  # the pipe is full, or about to be
        ends = time.monotonic() + BOUND
        while not select.select([process.stderr], [], [], 1)[0] and time.monotonic() < ends:
            process.send_signal(signal.SIGINT)
        _, told = process.communicate(timeout=BOUND)
    os.close(reader)
    assert process.returncode == 130
    assert told.startswith("Summary: 0 completed, 1 left\nHint: to resume: ")
    assert "Traceback" not in told


def test_without_a_terminal_the_progress_is_reported_now_and_then(tmp_path):
    done = Runs(tmp_path, echo(after=70))("--concurrency", "2", lines=["a", "b", "c"])
    assert done.exit == 0
    assert done.err.splitlines() == [
        "Progress: 0 of 3, 2 in flight, 30s, 0.0/h: 0 completed",
        "Progress: 0 of 3, 2 in flight, 1m, 0.0/h: 0 completed",
        "Progress: 2 of 3, 1 in flight, 1m30s, 1.3/min, about 45s left: 2 completed",
        "Progress: 2 of 3, 1 in flight, 2m, 1.0/min, about 1m left: 2 completed",
        "Summary: 3 completed",
    ]


def test_the_progress_says_that_the_agent_limits_the_rate(tmp_path):
    agent = echo()
    agent.inject(rate_limited(50), on="SendMessage")
    agent.inject(rate_limited(50), on="SendStreamingMessage")
    done = Runs(tmp_path, agent)(lines=["a"])
    assert done.exit == 0
    assert (
        "Progress: 0 of 1, 1 in flight, 30s, 0.0/h, rate limited by the agent, for 20s more: "
        "0 completed\n"
    ) in done.err


def test_progress_counts_the_calls_that_another_process_holds(tmp_path):
    runs, wall = Runs(tmp_path, echo(after=20)), VirtualWall()
    assert runs("--grace", "0", lines=["a"], stops=[5], wall=wall).exit == 130
    with sqlite3.connect(tmp_path / "calls.db") as connection:
        lease = "(SELECT MAX(began) FROM calls) + 50"
        connection.execute(f"UPDATE calls SET lease_until = {lease}")
    done = runs(wall=wall)
    assert "1 in flight, 30s, 0.0/h, 1 held by another process, which may have crashed: " in (
        done.err
    )
    assert done.err.endswith("Summary: 1 completed\n")


@pytest.mark.skipif(sys.platform == "win32", reason="terminals of POSIX")
def test_progress_on_a_terminal_counts_finished_lines(tmp_path):
    import fcntl
    import pty
    import struct
    import termios

    source = tmp_path / "in.txt"
    source.write_text("a\n\nb\nc\n")
    words = ("run", "--input", str(source), "--results", str(tmp_path / "out"))
    words += ("--journal", str(tmp_path / "calls.db"), "--concurrency", "1")
    mine, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 40, 0, 0))
    agent = echo(after=0.5)
    with served(agent) as url, start(*words, "-a", url, stderr=theirs) as process:
        os.close(theirs)
        told = b""
        while b"2 of 3, 1 in flight, " not in told:
            told += os.read(mine, 1000)
        process.kill()
    os.close(mine)
    rows = [row for row in told.split(b"\r\x1b[K") if b"in flight" in row]
    assert max(len(row.decode()) for row in rows) == 39


# ── Files of results ─────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("is_lost", [True, False])
def test_results_with_an_unpaired_surrogate_are_resumed(tmp_path, is_lost):
    runs = Runs(tmp_path, FakeAgent(completes("a\ud800b")))
    runs(lines=["one", "other"])
    written = sorted(runs.output.read_text().splitlines())
    if is_lost:
        runs.output.unlink()

    done = runs()

    assert done.exit == 0
    assert sorted(runs.output.read_text().splitlines()) == written
    assert runs.sent == 2


@pytest.mark.skipif(sys.platform == "win32", reason="there are no such locks")
def test_a_results_file_that_was_replaced_before_it_was_locked_is_not_written_to(
    tmp_path, monkeypatch
):
    runs, lock = Runs(tmp_path), fcntl.flock
    runs(lines=["one"])
    whole = runs.output.read_text()

    def replaced(file, how):
        runs.output.unlink()
        runs.output.write_text(whole)  # another run has put a new one there
        lock(file, how)

    monkeypatch.setattr(fcntl, "flock", replaced)
    done = runs(lines=["one", "two"])

    assert "is being written by another run" in done.err
    assert runs.output.read_text() == whole
    assert runs.sent == 1


@pytest.mark.skipif(sys.platform == "win32", reason="there is no such limit")
def test_a_result_that_cannot_be_written_whole_does_not_spoil_the_next_one(tmp_path):
    path = tmp_path / "out.jsonl"
    results = Results(path, without_errors=False)
    one, two = (read_line(text, 1) for text in (b"one", b"two"))
    results.write(one, {"message": {"parts": []}})
    whole = path.read_bytes()

    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(whole) + 20, before[1]))
    try:
        with pytest.raises(OSError, match="large"):
            results.write(two, {"message": {"parts": []}})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)

    assert path.read_bytes() == whole
    results.write(two, {"message": {"parts": []}})
    results.close()
    again = Results(path, without_errors=False)
    assert set(again.known) == {one.key, two.key}
    again.close()


# ── Another agent, and answers of the journal ────────────────────────────────────────────────


def test_run_to_another_agent_refuses_the_lines_that_the_first_agent_answered(runs):
    assert runs(lines=["a", "b"]).exit == 0
    first, runs.output = runs.output, runs.output.with_name("other.jsonl")
    runs.agent = FakeAgent(completes("of the other"), url="http://other.test")

    done = runs(card=runs.agent.url)

    assert done.exit == 1
    assert runs.agent.executions == {}
    assert [one["executed"] for one in runs.results] == [False, False]
    assert all("http://agent.test has answered this line" in one["error"]["message"]
               for one in runs.results)  # fmt: skip
    assert "Summary: 0 completed, 2 not sent\n" in done.err
    assert "; 1 more were answered by another agent: line 2\n" in done.err
    again = re.search(r"Hint: to send them to this agent as well: holdfast (.*?);", done.err)
    assert holdfast(*shlex.split(again[1]), agent=runs.agent, card=None).exit == 0
    assert [one["task"]["status"]["state"] for one in runs.results] == ["TASK_STATE_COMPLETED"] * 2
    assert len(runs.agent.executions) == 2
    assert len(first.read_text().splitlines()) == 2


def test_a_question_of_another_agent_stays_in_the_results(tmp_path):
    runs = Runs(tmp_path, FakeAgent(asks("Which?")))
    runs(lines=["a"])
    question = runs.results
    runs.agent = FakeAgent(completes("no"), url="http://other.test")

    assert "1 waiting for input or authorization" in runs(card=runs.agent.url).err
    assert runs.results == question
    assert runs.agent.executions == {}


def test_answers_that_the_journal_had_before_the_run_are_counted_as_earlier(tmp_path):
    def behave(turn):
        return fails("no") if turn.message.text == "bad" else completes("ok")

    runs = Runs(tmp_path, FakeAgent(behave))
    runs(lines=["good", "bad"])
    runs.output.unlink()

    done = runs("-o", "json", lines=["good", "bad", "new"])

    counts = json.loads(done.out)["run"]
    assert (counts["completed"], counts["failed"]) == (1, 0)
    assert (counts["earlier"], counts["earlierFailed"]) == (2, 1)
    assert len(runs.results) == runs.sent == 3


def test_an_interrupted_run_with_nothing_left_does_not_hint_to_resume(tmp_path):
    runs = Runs(tmp_path, echo(after=10))

    done = runs(lines=["a", "b"], stops=[5])

    assert done.exit == 130
    assert "Summary: 2 completed\n" in done.err
    assert "to resume" not in done.err


@pytest.mark.parametrize("command", ["run --input i --results r", "send hi", "resume"])
def test_a_journal_named_as_standard_input_is_a_usage_error(command, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "i").write_text("a\n")

    done = holdfast(*command.split(), "--journal", "-", agent=echo())

    assert (done.exit, "a file of that name is ./-" in done.err) == (2, True)
    assert not (tmp_path / "-").exists()


def test_send_with_a_journal_hints_to_resume_it_after_an_unknown_outcome(runs):
    for method in ("SendMessage", "SendStreamingMessage"):
        runs.agent.inject(Reset(after_execution=True), on=method)
    words = ("--journal", str(runs.journal), "--on-unknown", "raise")

    done = holdfast("send", "hi", *words, agent=runs.agent)

    assert "HOLDFAST_ERR_OUTCOME_UNKNOWN" in done.err
    assert f"holdfast resume --journal {runs.journal}" in done.err


def test_a_half_json_line_names_its_fault_once():
    assert "JSON: not JSON" not in read_line(b'{"id": "x', 1).reason
