"""``holdfast run``: what was sent before is known, and told as what it is."""

import pytest
from tests.kit.cli_harness import holdfast
from tests.kit.cli_runs import Runs, echo, text_of

from holdfast.testing import Delay, FakeAgent, Reset, Stall


@pytest.mark.parametrize("has_task", [True, False])
def test_a_line_whose_call_was_dismissed_has_no_answer(tmp_path, has_task):
    runs = Runs(tmp_path, echo(after=100))
    if not has_task:
        runs.agent.inject(Stall(), on="SendStreamingMessage")
    assert runs("--grace", "0", lines=["a"], stops=[5]).exit == 130
    listed = holdfast("resume", "--list", "--journal", str(runs.journal), "-o", "json")
    dismissed = holdfast(
        "resume", "--dismiss", listed.json["messageId"], "--journal", str(runs.journal),
        agent=runs.agent,
    )  # fmt: skip
    done = runs()

    assert dismissed.exit == 0
    assert done.exit == 1
    (result,) = runs.results
    assert result["error"]["code"] == "HOLDFAST_ERR_CALL_ENDED"
    assert "dismissed with holdfast resume --dismiss" in result["error"]["message"]
    assert "1 without an answer" in done.err


def test_the_time_of_a_search_is_not_the_one_that_the_user_gave(tmp_path):
    runs = Runs(tmp_path)
    runs.agent.inject(Reset(after_execution=True), on="SendStreamingMessage")
    runs.agent.inject(Delay(seconds=50), on="ListTasks", times=9)
    done = runs(lines=["a"])

    (result,) = runs.results
    error = result["error"]
    (sent,) = runs.agent.executions
    assert done.exit == 1
    assert error["code"] == "HOLDFAST_ERR_OUTCOME_UNKNOWN"
    assert f"the outcome of message {sent} is unknown: " in error["message"]
    assert "the search for its task did not finish within 30s" in error["message"]
    assert error["hint"] == (
        "the call is pending in the journal: holdfast resume searches for its task again"
    )
    assert "--timeout" not in error["hint"]

    resumed = holdfast("resume", "--journal", str(runs.journal), "-o", "json", agent=runs.agent)
    assert resumed.json["task"]["artifacts"][0]["parts"][0]["text"] == "A"


def test_a_task_that_was_seen_and_could_not_be_had_in_time_is_named(tmp_path):
    runs = Runs(tmp_path)
    runs.agent.inject(Reset(after_execution=True), on="SendStreamingMessage")
    runs.agent.inject(Stall(), on="GetTask", times=99)
    done = runs("--timeout", "60s", lines=["a"])

    (result,) = runs.results
    assert done.exit == 1
    assert result["executed"] is True
    assert "is unknown" not in result["error"]["message"]
    assert "was last seen TASK_STATE_COMPLETED" in result["error"]["message"]


def test_what_went_to_an_agent_is_not_sent_to_another_one(tmp_path):
    runs = Runs(tmp_path, echo(after=100))
    assert runs("--grace", "0", lines=["a"], stops=[5]).exit == 130
    first, other = runs.agent, FakeAgent("there", url="http://other.test")
    runs.agent = other
    done = runs(card=other.url)

    (result,) = runs.results
    assert done.exit == 1
    assert other.executions == {}
    assert result["executed"] is None
    message = result["error"]["message"]
    assert "was recorded for http://agent.test, and this agent has no task" in message
    assert "--agent-card http://agent.test" in result["error"]["hint"]

    assert runs("--retry-errors", card=other.url).exit == 1
    assert other.executions == {}
    runs.agent = first
    assert runs("--retry-errors").exit == 0
    assert text_of(runs.results[0]) == "A"


def test_a_card_file_is_another_name_of_an_agent(tmp_path):
    runs = Runs(tmp_path)
    card = tmp_path / "card.json"
    card.write_text(holdfast("card", "get", "-o", "json", agent=runs.agent).out)
    assert runs(lines=["a", "b"]).exit == 0
    again = tmp_path / "again.jsonl"
    done = runs(card=str(card), output=again)

    assert done.exit == 0
    assert runs.sent == 2
    assert len(again.read_text().splitlines()) == 2
