"""What facts mean: a table of what was observed, and what is said of it."""

import msgspec
import pytest

from holdfast._doctor.checks import verdicts
from holdfast._doctor.facts import (
    Answered,
    CardFacts,
    InterfaceFacts,
    ListingFacts,
    Observed,
    SendingFacts,
    StreamFacts,
    SubscriptionFacts,
)
from holdfast._wire.tls import TlsFacts
from holdfast.errors import (
    A2AConnectionError,
    A2AHTTPError,
    A2ATimeoutError,
    AgentCardResolutionError,
    AuthenticationError,
    InvalidAgentCardError,
    InvalidAgentResponseError,
    MethodNotFoundError,
    NetworkPolicyError,
    PermissionDeniedError,
    TaskNotFoundError,
    UnsupportedOperationError,
)
from holdfast.types import AgentCapabilities, AgentCard, AgentInterface

NOW = 1_767_225_600.0
DAY = 86_400.0

NOT_FOUND = Answered(status=200, error="TaskNotFoundError", code=-32001)
RESULT = Answered(status=200, media_type="text/event-stream", is_result=True)
EVENTS = Answered(status=200, media_type="text/event-stream", is_result=True)
NOBODY = Answered(failure="the connection was refused")
REFUSED = Answered(status=401, challenge="Bearer")
HTML = Answered(status=502, media_type="text/html")
NOT_JSON = Answered(status=200, media_type="text/html", failure="the reply is not JSON")


def card_facts(*, streaming=True, **facts):
    card = AgentCard(name="A", capabilities=AgentCapabilities(streaming=streaming))
    document = {"name": "A", "supportedInterfaces": []}
    url = "https://a.test/card.json"
    return CardFacts(card=card, document=document, url=url, moved_to=url, **facts)


def interface_facts(**facts):
    interface = AgentInterface(
        url="https://a.test/rpc", protocol_binding="JSONRPC", protocol_version="1.0"
    )
    given = {
        "interface": interface,
        "address": "https://a.test/rpc",
        "number": 1,
        "is_examined": True,
        "task": NOT_FOUND,
        "versions": {"1.0": True, "0.3": False},
        **facts,
    }
    return InterfaceFacts(**given)


def observed(*interfaces, **facts):
    given = {"agent": "https://a.test", "scheme": "https", "card": card_facts(), **facts}
    return Observed(interfaces=list(interfaces), **given)


def sent(*, stream=None, subscription=None, **facts):
    """What was observed when a message was sent."""
    given = {
        "message_id": "m-1",
        "answered": RESULT,
        "task_id": "t-1",
        "state": "TASK_STATE_COMPLETED",
        "stream": stream,
        "subscription": subscription or SubscriptionFacts(),
        **facts,
    }
    return observed(is_to_send=True, sending=SendingFacts(**given))


def streamed(**facts):
    given = {"opened": EVENTS, "arrivals": [0.1, 2.1], "pieces": 2, "end": "settled", **facts}
    return sent(stream=StreamFacts(**given))


def subscribed(**facts):
    stream = StreamFacts(opened=EVENTS, arrivals=[0.1, 2.1], end="settled")
    return sent(stream=stream, subscription=SubscriptionFacts(**facts))


def tls(**facts):
    return observed(tls=TlsFacts(host="a.test", **facts))


def listed(**facts):
    return observed(interface_facts(listing=ListingFacts(**facts)))


PAGE = Answered(status=200, media_type="application/json", is_result=True)


def without_card(error):
    return Observed(agent="https://a.test", scheme="https", card_error=error)


BAD_REQUEST = Answered(status=400, media_type="application/json")
REST = interface_facts(
    interface=AgentInterface(url="https://a.test", protocol_binding="HTTP+JSON"),
    params=BAD_REQUEST,
)
METADATA = interface_facts(scope="metadata")

TABLE = [
    # What keeps a card from coming
    (without_card(A2AConnectionError("no", failure="tls")), "card.reached", "problem"),
    (without_card(A2ATimeoutError("no", phase="connect")), "card.reached", "problem"),
    (without_card(AuthenticationError("no", http_status=401)), "card.found", "problem"),
    (without_card(PermissionDeniedError("no", http_status=403)), "card.found", "problem"),
    (without_card(AgentCardResolutionError("no", http_status=404)), "card.found", "problem"),
    (without_card(A2AHTTPError("no", http_status=500)), "card.found", "problem"),
    (without_card(InvalidAgentCardError("no")), "card.valid", "problem"),
    (without_card(InvalidAgentResponseError("no")), "card.valid", "problem"),
    # The card
    (observed(), "card.found", "ok"),
    (observed(card=card_facts(is_at_older_path=True)), "card.found", "warning"),
    (observed(card=card_facts(is_guarded=True)), "card.access", "info"),
    (observed(), "card.members", "warning"),
    (observed(card=card_facts(headers={"content-type": "text/html"})), "card.type", "warning"),
    (observed(card=card_facts(headers={"last-modified": "x"})), "card.caching", "info"),
    # TLS
    (tls(version="TLSv1.3", not_after=NOW + 90 * DAY), "tls.version", "ok"),
    (tls(version="TLSv1.2", not_after=NOW + 90 * DAY), "tls.certificate", "ok"),
    (tls(version="TLSv1.1"), "tls.version", "warning"),
    (tls(version="TLSv1.3", not_after=NOW + 20 * DAY), "tls.certificate", "warning"),
    (tls(version="TLSv1.3", not_after=NOW - DAY), "tls.certificate", "warning"),
    (tls(version="TLSv1.3"), "tls.certificate", "ok"),
    (tls(version="TLSv1.3", fault="self-signed certificate"), "tls.certificate", "problem"),
    (tls(failure="wrong version number"), "tls.version", "problem"),
    (observed(), "tls.version", "not measured"),
    # Clocks and limits
    (observed(skew=4.9), "clock.skew", "ok"),
    (observed(skew=-299), "clock.skew", "info"),
    (observed(skew=301), "clock.skew", "warning"),
    (observed(), "clock.skew", "not measured"),
    (observed(refusals=1), "limits.rate", "warning"),
    (observed(hints={"x-ratelimit-limit": "3"}), "limits.rate", "info"),
    # Addresses
    (observed(interface_facts()), "address.interface", "ok"),
    (observed(interface_facts(doubt="it is this machine")), "address.interface", "problem"),
    (observed(interface_facts(scope="private")), "address.interface", "problem"),
    (observed(interface_facts(scope="private"), scope="private"), "address.interface", "ok"),
    (
        observed(interface_facts(scope="metadata"), scope="loopback"),
        "address.interface",
        "problem",
    ),
    (observed(interface_facts(is_own_origin=False)), "address.interface", "warning"),
    (observed(interface_facts(address="http://a.test/rpc")), "address.plain", "warning"),
    # Credentials, where no agent answers
    (observed(interface_facts(task=HTML)), "authentication.asked", "not measured"),
    (observed(interface_facts(task=NOT_JSON)), "authentication.asked", "not measured"),
    (
        observed(interface_facts(task=HTML, unauthorized=HTML), has_credentials=True),
        "authentication.accepted",
        "not measured",
    ),
    # Interfaces and versions
    (observed(interface_facts(task=NOBODY)), "bindings.answers", "problem"),
    (observed(interface_facts(task=HTML)), "bindings.answers", "problem"),
    (observed(interface_facts(task=Answered(status=429))), "bindings.answers", "warning"),
    (observed(interface_facts(task=REFUSED)), "bindings.answers", "ok"),
    (observed(interface_facts(is_known=False)), "bindings.answers", "not measured"),
    (observed(interface_facts(is_known=False)), "bindings.known", "problem"),
    (observed(interface_facts(is_examined=False)), "bindings.answers", "not measured"),
    (observed(interface_facts()), "versions.spoken", "ok"),
    (
        observed(interface_facts(versions={"1.0": False, "0.3": True})),
        "versions.spoken",
        "problem",
    ),
    (
        observed(interface_facts(versions={"1.0": False, "0.3": False})),
        "versions.spoken",
        "problem",
    ),
    (
        observed(interface_facts(versions={"1.0": None, "0.3": False})),
        "versions.spoken",
        "not measured",
    ),
    # Errors
    (observed(interface_facts(params=BAD_REQUEST)), "errors.params", "warning"),
    (observed(REST), "errors.params", "ok"),
    (observed(interface_facts(task=RESULT)), "errors.task", "problem"),
    (observed(interface_facts(method=RESULT)), "errors.method", "warning"),
    (observed(interface_facts(broken=NOBODY)), "errors.broken", "warning"),
    (observed(interface_facts(path=RESULT)), "errors.path", "warning"),
    (observed(interface_facts(path=HTML)), "errors.path", "ok"),
    # The list of tasks
    (listed(answered=PAGE, tasks=2, with_history=1), "list.history", "ok"),
    (listed(answered=PAGE, tasks=2), "list.history", "info"),
    (listed(answered=PAGE), "list.history", "not measured"),
    (listed(answered=PAGE, tasks=2, of_no_context=0), "list.context", "ok"),
    (listed(answered=PAGE, tasks=2, of_no_context=2), "list.context", "warning"),
    (listed(answered=PAGE, tasks=2, of_the_future=1), "list.time", "warning"),
    (listed(answered=PAGE, tasks=2), "list.time", "not measured"),
    (listed(answered=HTML), "list.there", "warning"),
    # Streams
    (streamed(), "streaming.begins", "ok"),
    (streamed(opened=PAGE), "streaming.begins", "warning"),
    (streamed(opened=HTML, arrivals=[]), "streaming.begins", "problem"),
    (streamed(), "streaming.flushed", "ok"),
    (streamed(arrivals=[3.0, 3.1], stamped=[NOW, NOW + 3]), "streaming.flushed", "problem"),
    (streamed(arrivals=[0.9, 1.0], stamped=[NOW, NOW + 1]), "streaming.flushed", "not measured"),
    (streamed(arrivals=[0.1, 0.2], stamped=[NOW, NOW + 9]), "streaming.flushed", "not measured"),
    (streamed(arrivals=[3.0, 3.1], stamped=[NOW]), "streaming.flushed", "not measured"),
    (streamed(arrivals=[3.0], stamped=[NOW]), "streaming.flushed", "not measured"),
    (streamed(comments=3, silence=15.0), "streaming.keep-alive", "ok"),
    (streamed(comments=3, silence=61.0), "streaming.keep-alive", "warning"),
    (streamed(silence=16.0), "streaming.keep-alive", "warning"),
    (streamed(silence=14.0), "streaming.keep-alive", "not measured"),
    (streamed(end="cut", failure="x"), "streaming.end", "problem"),
    (streamed(end="left"), "streaming.end", "ok"),
    (sent(), "streaming.begins", "not measured"),
    # Subscriptions
    (subscribed(opened=RESULT, begins_with_task=True), "subscribe.snapshot", "ok"),
    (subscribed(opened=RESULT, begins_with_task=False), "subscribe.snapshot", "warning"),
    (subscribed(opened=RESULT), "subscribe.snapshot", "not measured"),
    (subscribed(opened=HTML), "subscribe.snapshot", "problem"),
    (subscribed(), "subscribe.snapshot", "not measured"),
    (subscribed(opened=RESULT, text="right"), "subscribe.overlap", "ok"),
    (subscribed(opened=RESULT, text="repeated"), "subscribe.overlap", "warning"),
    (subscribed(opened=RESULT, text="lost"), "subscribe.overlap", "warning"),
    (subscribed(opened=RESULT), "subscribe.overlap", "not measured"),
    (subscribed(of_over=NOT_FOUND), "subscribe.finished", "ok"),
    (subscribed(of_over=RESULT, events_of_over=1), "subscribe.finished", "info"),
    (subscribed(of_over=NOBODY), "subscribe.finished", "warning"),
    (observed(interface_facts(subscription=NOT_FOUND)), "subscribe.unknown", "ok"),
    (observed(interface_facts(subscription=RESULT)), "subscribe.unknown", "info"),
    (observed(interface_facts(subscription=NOBODY)), "subscribe.unknown", "warning"),
    # Messages
    (sent(in_task=True), "recording.task", "ok"),
    (sent(in_task=False), "recording.task", "warning"),
    (sent(), "recording.task", "not measured"),
    (sent(in_list=False), "recording.list", "warning"),
    (sent(in_recent=False), "recording.time", "warning"),
    (sent(in_recent=True), "recording.time", "ok"),
    (sent(answered=None, task_id=""), "sending.answer", "warning"),
    (sent(answered=NOBODY, task_id=""), "sending.answer", "warning"),
    (sent(answered=HTML, task_id=""), "sending.answer", "problem"),
    (sent(state="TASK_STATE_REJECTED"), "sending.answer", "info"),
    (sent(again=PAGE, second_task_id="t-1"), "sending.twice", "ok"),
    (sent(again=PAGE, second_task_id="t-2"), "sending.twice", "info"),
    (sent(again=HTML), "sending.twice", "ok"),
    (sent(why_not="no interface answers"), "sending.answer", "not measured"),
]


@pytest.mark.parametrize(
    ("facts", "check", "level"), TABLE, ids=[f"{row[1]} {row[2]}" for row in TABLE]
)
def test_what_facts_mean(facts, check, level):
    found = [finding for finding in verdicts(facts, now=NOW) if finding.check == check]

    assert [finding.level for finding in found] == [level]


@pytest.mark.parametrize("facts", [row[0] for row in TABLE])
def test_every_finding_says_what_there_is_to_say(facts):
    for finding in verdicts(facts, now=NOW):
        assert finding.saw
        assert finding.group in finding.check
        if finding.level in {"warning", "problem"}:
            assert finding.means, finding
            assert finding.do, finding
        for told in (finding.saw, finding.means, finding.do):
            assert not told.endswith(".")
            assert "\n" not in told


@pytest.mark.parametrize(
    ("answered", "cause"),
    [(HTML, "the agent fails"), (NOT_JSON, "it is not this agent")],
    ids=["5xx", "not JSON"],
)
def test_a_server_error_may_be_the_agents_own(answered, cause):
    facts = observed(interface_facts(task=answered))
    (finding,) = [one for one in verdicts(facts, now=NOW) if one.check == "bindings.answers"]
    assert cause in finding.means


def test_nothing_observed_is_nothing_measured():
    nothing = Observed(agent="https://a.test", scheme="https", stopped="the time was over")

    (finding,) = verdicts(nothing, now=NOW)
    assert (finding.check, finding.level) == ("card.found", "not measured")
    assert finding.saw == "the time was over"


@pytest.mark.parametrize(("is_to_repeat", "why"), [(False, "may not be"), (True, "no answer")])
def test_why_a_message_was_not_sent_again(is_to_repeat, why):
    facts = sent(answered=None, task_id="")
    facts.is_to_repeat = is_to_repeat

    (finding,) = [one for one in verdicts(facts, now=NOW) if one.check == "sending.twice"]
    assert why in finding.saw


@pytest.mark.parametrize(
    ("facts", "check", "why"),
    [
        (sent(), "recording.time", "there is no list of tasks"),
        (sent(has_list=True), "recording.list", "it could not be asked"),
        (
            sent(has_list=True, is_older=True),
            "recording.time",
            "lists of protocol 0.3 know no times",
        ),
        (
            streamed(end="left", arrivals=[0.1]),
            "streaming.flushed",
            "1 event came while it was watched, too few to tell",
        ),
        (
            streamed(arrivals=[30.0]),
            "streaming.flushed",
            "1 event came while it was watched, too few to tell",
        ),
        (
            streamed(end="left", silence=3.0),
            "streaming.keep-alive",
            "the stream was never silent for longer than 3 s",
        ),
    ],
)
def test_why_something_is_not_measured(facts, check, why):
    (finding,) = [one for one in verdicts(facts, now=NOW) if one.check == check]

    assert (finding.level, finding.saw) == ("not measured", why)


def test_a_list_of_protocol_0_3_knows_no_times():
    listing = ListingFacts(answered=PAGE, tasks=1, of_no_context=0)
    older = interface_facts(versions={"0.3": True, "1.0": False}, listing=listing)

    found = {one.check: one.level for one in verdicts(observed(older), now=NOW)}
    assert found["list.context"] == "ok"
    assert "list.time" not in found


def test_interfaces_that_nobody_got_to_are_no_problem():
    found = verdicts(observed(stopped="the time was over"), now=NOW)

    (finding,) = [one for one in found if one.group == "bindings"]
    assert (finding.level, finding.saw) == ("not measured", "the time was over")


def test_facts_are_judged_and_never_changed():
    facts = subscribed(opened=RESULT, text="lost")
    before = msgspec.structs.asdict(facts)

    assert verdicts(facts, now=NOW) == verdicts(facts, now=NOW)
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
    assert Answered.of(error).in_words == words


def test_what_is_no_json_is_told_as_what_could_not_be_read():
    error = InvalidAgentResponseError("the reply is not JSON", http_status=200)

    answered = Answered.of(error)
    assert answered.failure == "the reply is not JSON"
    assert not answered.is_of_agent


def test_what_a_program_would_do_is_not_in_a_finding():
    error = NetworkPolicyError(
        "x leads to 10.0.0.1. If you trust it, pass y=1", address="10.0.0.1"
    )

    assert Answered.of(error).in_words == "x leads to 10.0.0.1"


@pytest.mark.parametrize(
    ("facts", "check", "level", "said", "unsaid"),
    [
        (
            sent(answered=Answered(failure="refused", is_executed=False), task_id=""),
            "sending.answer",
            "problem",
            "was not executed: refused",
            "not known",
        ),
        (
            sent(answered=EVENTS, task_id="", stream=StreamFacts(opened=EVENTS, end="left")),
            "sending.answer",
            "warning",
            "no event and no task came back",
            "a result",
        ),
        (
            sent(answered=EVENTS, task_id="", stream=StreamFacts(opened=EVENTS, end="left")),
            "streaming.begins",
            "problem",
            "no event came: the stream stayed silent",
            "a result",
        ),
        (
            sent(answered=EVENTS, task_id="", stream=StreamFacts(opened=EVENTS, end="cut")),
            "streaming.begins",
            "problem",
            "no event came: the stream ended at once",
            "a result",
        ),
        (
            observed(interface_facts(subscription=Answered(failure="the reply ended too early"))),
            "subscribe.unknown",
            "warning",
            "the reply ended too early",
            "waits",
        ),
        (
            observed(interface_facts(params=Answered(failure="the connection was closed"))),
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
    [finding] = [found for found in verdicts(facts, now=0.0) if found.check == check]
    assert finding.level == level
    assert said in finding.saw
    assert unsaid not in f"{finding.saw} {finding.means} {finding.do}"
