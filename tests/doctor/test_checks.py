"""What facts mean: a table of what was observed, and what is said of it."""

import msgspec
import pytest
from tests.kit.doctor_facts import (
    EVENTS,
    HTML,
    NOT_JSON,
    NOW,
    PAGE,
    RESULT,
    TABLE,
    interface_facts,
    observed,
    sent,
    streamed,
    subscribed,
)

from holdfast._doctor.checks import run_checks
from holdfast._doctor.facts import (
    ListingFacts,
    Observations,
    ReplyFacts,
    StreamFacts,
)
from holdfast.errors import (
    A2AConnectionError,
    A2AHTTPError,
    InvalidAgentResponseError,
    MethodNotFoundError,
    NetworkPolicyError,
    TaskNotFoundError,
    UnsupportedOperationError,
)


@pytest.mark.parametrize(
    ("facts", "check", "level"), TABLE, ids=[f"{row[1]} {row[2]}" for row in TABLE]
)
def test_what_facts_mean(facts, check, level):
    found = [finding for finding in run_checks(facts, now=NOW) if finding.check == check]

    assert [finding.level for finding in found] == [level]


@pytest.mark.parametrize("facts", [row[0] for row in TABLE])
def test_every_finding_says_what_there_is_to_say(facts):
    for finding in run_checks(facts, now=NOW):
        assert finding.saw
        assert finding.group in finding.check
        if finding.level in {"warning", "problem"}:
            assert finding.means, finding
            assert finding.do, finding
        for told in (finding.saw, finding.means, finding.do):
            assert not told.endswith(".")
            assert "\n" not in told


@pytest.mark.parametrize(
    ("reply", "cause"),
    [(HTML, "the agent fails"), (NOT_JSON, "another program answers there")],
    ids=["5xx", "not JSON"],
)
def test_a_server_error_may_be_the_agents_own(reply, cause):
    facts = observed(interface_facts(task=reply))
    (finding,) = [one for one in run_checks(facts, now=NOW) if one.check == "bindings.answers"]
    assert cause in finding.means


def test_nothing_observed_is_nothing_measured():
    nothing = Observations(agent="https://a.test", scheme="https", stopped="the time was over")

    (finding,) = run_checks(nothing, now=NOW)
    assert (finding.check, finding.level) == ("card.found", "not measured")
    assert finding.saw == "the time was over"


@pytest.mark.parametrize(("may_repeat", "why"), [(False, "pass --twice"), (True, "no answer")])
def test_why_a_message_was_not_sent_again(may_repeat, why):
    facts = sent(reply=None, task_id="")
    facts.may_repeat = may_repeat

    (finding,) = [one for one in run_checks(facts, now=NOW) if one.check == "sending.twice"]
    assert why in finding.saw


@pytest.mark.parametrize(
    ("facts", "check", "why"),
    [
        (sent(), "recording.time", "the agent has no list of tasks"),
        (sent(has_list=True), "recording.list", "it could not be asked"),
        (
            sent(has_list=True, is_v03=True),
            "recording.time",
            "lists of protocol 0.3 cannot filter by time",
        ),
        (
            streamed(end="left", arrivals=[0.1]),
            "streaming.flushed",
            "1 event arrived during the examination, too few to measure",
        ),
        (
            streamed(arrivals=[30.0]),
            "streaming.flushed",
            "1 event arrived during the examination, too few to measure",
        ),
        (
            streamed(end="left", silence=3.0),
            "streaming.keep-alive",
            "the stream was never silent for longer than 3 s",
        ),
    ],
)
def test_why_something_is_not_measured(facts, check, why):
    (finding,) = [one for one in run_checks(facts, now=NOW) if one.check == check]

    assert (finding.level, finding.saw) == ("not measured", why)


def test_a_list_of_protocol_0_3_knows_no_times():
    listing = ListingFacts(reply=PAGE, tasks=1, in_unknown_context=0)
    older = interface_facts(versions={"0.3": True, "1.0": False}, listing=listing)

    found = {one.check: one.level for one in run_checks(observed(older), now=NOW)}
    assert found["list.context"] == "ok"
    assert "list.time" not in found


def test_unvisited_interfaces_are_no_problem():
    found = run_checks(observed(stopped="the time was over"), now=NOW)

    (finding,) = [one for one in found if one.group == "bindings"]
    assert (finding.level, finding.saw) == ("not measured", "the time was over")


def test_facts_are_judged_and_never_changed():
    facts = subscribed(opened=RESULT, text="lost")
    before = msgspec.structs.asdict(facts)

    assert run_checks(facts, now=NOW) == run_checks(facts, now=NOW)
    assert msgspec.structs.asdict(facts) == before


# ── What a reply is ──────────────────────────────────────────────────────────────────────────


HTML_502 = {"http_status": 502, "headers": {"content-type": "text/html; charset=utf-8"}}
UNKNOWN = {"code": -32601, "http_status": 200}


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (TaskNotFoundError(code=-32001, http_status=404), "TaskNotFoundError (-32001), HTTP 404"),
        (UnsupportedOperationError(**UNKNOWN), "MethodNotFoundError (-32601), HTTP 200"),
        (MethodNotFoundError(**UNKNOWN), "MethodNotFoundError (-32601), HTTP 200"),
        (A2AHTTPError(**HTML_502), "HTTP 502 text/html"),
        (A2AHTTPError(http_status=404), "HTTP 404 without a content type"),
        (A2AConnectionError("it was refused", failure="refused"), "it was refused"),
        (A2AConnectionError(failure="refused"), "no reply"),
    ],
)
def test_an_error_in_a_few_words(error, words):
    assert ReplyFacts.of_error(error).summary == words


def test_what_is_no_json_is_reported_as_what_could_not_be_read():
    error = InvalidAgentResponseError("the reply is not JSON", http_status=200)

    reply = ReplyFacts.of_error(error)
    assert reply.failure == "the reply is not JSON"
    assert not reply.is_protocol_reply


def test_what_a_program_would_do_is_not_in_a_finding():
    error = NetworkPolicyError(
        "x leads to 10.0.0.1. If you trust it, pass y=1", address="10.0.0.1"
    )

    assert ReplyFacts.of_error(error).summary == "x leads to 10.0.0.1"


@pytest.mark.parametrize(
    ("facts", "check", "level", "said", "unsaid"),
    [
        (
            sent(reply=ReplyFacts(failure="refused", is_executed=False), task_id=""),
            "sending.answer",
            "problem",
            "was not executed: refused",
            "not known",
        ),
        (
            sent(reply=EVENTS, task_id="", stream=StreamFacts(opened=EVENTS, end="left")),
            "sending.answer",
            "warning",
            "no event and no task was returned",
            "a result",
        ),
        (
            sent(reply=EVENTS, task_id="", stream=StreamFacts(opened=EVENTS, end="left")),
            "streaming.begins",
            "problem",
            "no event came: the stream stayed silent",
            "a result",
        ),
        (
            sent(reply=EVENTS, task_id="", stream=StreamFacts(opened=EVENTS, end="cut")),
            "streaming.begins",
            "problem",
            "no event came: the stream ended at once",
            "a result",
        ),
        (
            observed(
                interface_facts(subscription=ReplyFacts(failure="the reply ended too early"))
            ),
            "subscribe.unknown",
            "warning",
            "the reply ended too early",
            "waits",
        ),
        (
            observed(interface_facts(params=ReplyFacts(failure="the connection was closed"))),
            "errors.params",
            "warning",
            "the connection was closed",
            "waits",
        ),
        (
            observed(refusals=1, hints={"retry-after-ms": "500"}),
            "limits.rate",
            "warning",
            "retry-after-ms: 500",
            "Retry-After",
        ),
    ],
)
def test_a_finding_is_not_refuted_by_its_own_line(facts, check, level, said, unsaid):
    [finding] = [found for found in run_checks(facts, now=0.0) if found.check == check]
    assert finding.level == level
    assert said in finding.saw
    assert unsaid not in f"{finding.saw} {finding.means} {finding.do}"
