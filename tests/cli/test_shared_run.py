"""``holdfast run --share``: processes with files of their own share a run, whatever ends them."""

import contextlib
import json
import signal
import sqlite3
import threading

import pytest
from tests.kit.cli_harness import holdfast
from tests.kit.cli_process import BOUND, NOBODY_READS, served, start
from tests.kit.cli_runs import Runs, echo, text_of
from tests.kit.postgres_server import Postgres

from holdfast.testing import FakeAgent, Reset, Stall, asks, completes

IN_A_HURRY = """
from functools import partial
from holdfast._cli.agent import connection
from holdfast._cli.batch import session
from holdfast._client import batch
from holdfast.cli import main
from holdfast.policies import ReconcilePolicy, Resilience

session._LEASE, batch._DEFERRAL_S = 1.0, 0.2
quick = ReconcilePolicy(timeout=1.0, backoff=0.1, max_backoff=0.3)
connection.Resilience = partial(Resilience, reconcile=quick)
raise SystemExit(main())
"""
"""The command with a shorter lease and search, which the test waits for."""


@pytest.fixture(scope="module")
def server():
    server = Postgres()
    yield server
    server.close()


def test_each_line_is_sent_by_one_process_though_one_is_killed_and_the_server_crashes(
    server, tmp_path
):
    lines = [f"line {number}" for number in range(30)]
    (tmp_path / "in.txt").write_text("\n".join(lines))
    arrived = threading.Semaphore(0)

    def behave(turn):
        arrived.release()
        return completes(turn.message.text.upper(), after=0.2)

    def wait_for(count):
        for _ in range(count):
            assert arrived.acquire(timeout=BOUND)

    agent = FakeAgent(behave)
    journal = f"{server.dsn}&schema=fleet"
    shared = ["--input", str(tmp_path / "in.txt"), "--run-id", "night", "--journal", journal]
    with served(agent) as url, contextlib.ExitStack() as stack:
        workers = []
        for number in range(3):
            directory = tmp_path / f"worker-{number}"
            directory.mkdir()
            words = ["run", "-a", url, *shared, "--share", "--concurrency", "3"]
            words += ["--results", "out.jsonl"]
            workers.append(
                stack.enter_context(start(*words, python=("-c", IN_A_HURRY), directory=directory))
            )
            wait_for(3)  # the first process has calls in flight
        workers[0].send_signal(signal.SIGKILL)
        wait_for(8)
        server.crash()
        told = [worker.communicate(timeout=BOUND) for worker in workers]
        assert workers[0].returncode == -signal.SIGKILL
        assert {worker.returncode for worker in workers[1:]} <= {0, 1}, told

    merged = holdfast("run", "results", *shared)

    results = [json.loads(line) for line in merged.out.splitlines()]
    assert [one["line"] for one in results] == list(range(1, 31))
    answered = [one for one in results if "task" in one]
    assert [text_of(one) for one in answered] == [f"LINE {one['line'] - 1}" for one in answered]
    assert {len(tasks) for tasks in agent.executions.values()} == {1}
    assert len(agent.executions) == len(answered)
    unknown = [one["error"]["code"] for one in results if "error" in one]
    assert len(unknown) <= 3  # recorded, but not sent yet, when the process was killed
    assert set(unknown) <= {"HOLDFAST_ERR_OUTCOME_UNKNOWN"}
    assert merged.exit == bool(unknown)
    # A result that was written just before a crash may be written by another process, too.
    written = {}
    for path in tmp_path.glob("worker-*/out.jsonl"):
        for result in map(json.loads, path.read_text().splitlines()):
            if "task" in result:
                written.setdefault(result["line"], set()).add(result["task"]["id"])
    assert {len(tasks) for tasks in written.values()} == {1}


# ── Results from the journal ─────────────────────────────────────────────────────────────────


@pytest.fixture
def runs(tmp_path):
    return Runs(tmp_path)


def merged(runs, *words):
    done = holdfast("run", "results", "--input", str(runs.input), *words)
    return done, [json.loads(line) for line in done.out.splitlines()]


def test_results_are_those_of_the_run_in_the_order_of_its_lines(runs):
    runs.agent = FakeAgent(
        lambda turn: (
            asks("Which?")
            if turn.message.text == "b"
            else completes(turn.message.text, after=len(turn.message.text))
        )
    )
    runs(lines=["aaaa", '{"id": 7, "text": "b"}', "cc", "cc"])

    done, results = merged(runs, "--journal", str(runs.journal))

    assert done.exit == 0
    assert results == sorted(runs.results, key=lambda one: one["line"])
    assert [one["line"] for one in runs.results] != [1, 2, 3, 4]


def test_a_line_without_an_answer_has_an_error_that_says_why(runs):
    runs.agent = echo()
    runs.agent.inject(Reset(after_execution=False), on="SendStreamingMessage")
    runs(lines=["lost"])
    runs(lines=["a", "b", '{"id": "x", "text": "one"}'])
    runs.input.write_text('lost\na\nnew\n{"id": "x", "text": "other"}\n{"broken\n')

    done, results = merged(runs, "--journal", str(runs.journal))

    assert done.exit == 1
    assert [one.get("executed") for one in results] == [None, None, False, False]
    assert [one["error"]["message"] if "error" in one else None for one in results] == [
        results[0]["error"]["message"],
        None,
        "the message was not sent",
        "the id 'x' belongs to another message in the journal",
    ]
    assert "is unknown" in results[0]["error"]["message"]
    assert "line 5 of" in done.err
    assert "3 of 4 lines have no answer" in done.err


def test_a_name_that_the_journal_does_not_have_is_named(runs):
    runs.agent = echo()
    runs(lines=["a", "b"])
    other, _ = merged(runs, "--journal", str(runs.journal), "--run-id", "monday")
    own, _ = merged(runs, "--journal", str(runs.journal))

    assert (other.exit, own.exit) == (1, 0)
    assert "no call of the run 'monday'; name the run with --run-id" in other.err


@pytest.mark.parametrize(
    ("lease_until", "holder", "hint"),
    [
        (0, ", and no process works on it", "only a run with another --run-id sends"),
        (4e9, ": another process works on it", "when that process has ended"),
    ],
)
def test_a_pending_call_has_a_code_of_its_own_and_was_executed_if_its_task_is_known(
    runs, lease_until, holder, hint
):
    runs.agent = echo()
    runs(lines=["a", "b"])
    with sqlite3.connect(runs.journal) as journal:  # as after a crash
        first = "(SELECT min(message_id) FROM calls)"
        query = f"UPDATE calls SET outcome = NULL, lease_until = ? WHERE message_id = {first}"
        assert journal.execute(query, (lease_until,)).rowcount == 1
    journal.close()
    done, results = merged(runs, "--journal", str(runs.journal))

    assert done.exit == 1
    (result,) = (result for result in results if "error" in result)
    error = result["error"]
    assert (error["code"], result["executed"]) == ("HOLDFAST_ERR_PENDING", True)
    assert f" is pending{holder}" in error["message"]
    assert hint in error["hint"]


def test_a_pending_call_without_a_reply_may_have_been_executed(runs):
    runs.agent = echo()
    runs.agent.inject(Stall(), on="SendStreamingMessage")
    runs("--grace", "0", lines=["a"], stops=[5])
    _, (result,) = merged(runs, "--journal", str(runs.journal))

    assert (result["executed"], result["error"]["code"]) == (None, "HOLDFAST_ERR_PENDING")


def test_ended_calls_whose_tasks_are_known_were_executed(runs):
    runs.agent = echo(after=100)
    runs("--grace", "0", lines=["a"], stops=[5])
    (message_id,) = runs.agent.executions
    words = ["resume", "--journal", str(runs.journal)]
    assert holdfast(*words, "--dismiss", message_id, agent=runs.agent).exit == 0
    _, (result,) = merged(runs, "--journal", str(runs.journal))

    assert (result["executed"], result["error"]["code"]) == (True, "HOLDFAST_ERR_CALL_ENDED")


def test_a_reader_of_the_results_that_leaves_ends_the_command_quietly(runs):
    runs.agent = echo()
    runs(lines=["x" * 20_000] * 20)
    words = ["run", "results", "--input", str(runs.input), "--journal", str(runs.journal)]
    with start(*words) as process:
        assert process.stdout.readline()
        process.stdout.close()
        assert process.wait(timeout=BOUND) == NOBODY_READS
        assert process.stderr.read() == ""


@pytest.mark.parametrize("flags", [[], ["--share"]])
def test_the_hint_about_a_question_does_not_promise_an_answer_in_shared_results(runs, flags):
    runs.agent = FakeAgent(asks("Which?"))
    done = runs("--run-id", "monday", *flags, lines=["a"])

    assert "Hint: holdfast send --task-id task-1 " in done.err
    assert ("; then, to write the answer to the results: holdfast run" in done.err) is (not flags)


def test_a_damaged_record_is_the_error_of_its_line_alone(runs):
    runs(lines=["a", "b", "c"])
    with contextlib.closing(sqlite3.connect(runs.journal, isolation_level=None)) as file:
        label = 'WHERE request LIKE \'%"text":"b"%\''
        assert file.execute(f"UPDATE calls SET generation = 'x' {label}").rowcount == 1

    done, results = merged(runs, "--journal", str(runs.journal))

    assert done.exit == 1
    assert ["error" in one for one in results] == [False, True, False]
    assert "unreadable record" in results[1]["error"]["message"]
    assert results[1]["executed"] is None
    assert "1 of 3 lines has no answer" in done.err


def test_a_shared_run_and_results_of_standard_input_need_a_name(runs):
    refused = runs("--share", lines=["a"])
    assert (refused.exit, runs.sent) == (2, 0)
    assert "--share: the processes of a run find each other by its name" in refused.err

    refused, _ = merged(runs, "--input", "-", "--journal", str(runs.journal))
    assert refused.exit == 2
    assert "--run-id" in refused.err


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("", "must not be empty"),
        ("x" * 513, "must have at most 512 characters, not 513"),
        ("a\x1bb", r"must not contain control characters; it has '\x1b'"),
    ],
    ids=["empty", "long", "control"],
)
def test_the_name_of_a_run_that_is_not_valid_is_refused_in_one_line(runs, name, why):
    refused = runs("--run-id", name, lines=["a"])

    assert (refused.exit, runs.sent) == (2, 0)
    problem = f"the name of a run {why}"
    assert refused.err.splitlines()[0] == f"Error: Invalid value for '--run-id': {problem}"


def test_results_of_a_journal_that_is_not_there(runs):
    runs.input.write_text("a\n")
    refused, results = merged(runs, "--journal", str(runs.journal))

    assert (refused.exit, results) == (1, [])
    assert "does not exist" in refused.err
