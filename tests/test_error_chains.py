"""A calls B calls C: the caller of A sees where it broke, and whether trying again makes sense."""

import json
import tracemalloc

import pytest
from hypothesis import strategies as st
from tests.kit.error_facts import OWN_FACTS, make
from tests.kit.strategies import any_text, given, json_values

from holdfast import (
    A2AConnectionError,
    A2AError,
    NotEnoughResultsError,
    RateLimitedError,
    Resilience,
    Task,
    TaskFailedError,
    TaskNotFoundError,
    TaskState,
    connect,
    errors,
)
from holdfast._model.error_hops import MAX_HOPS, links_in
from holdfast._wire import status
from holdfast.client import AgentResult
from holdfast.compat import ArticleErrorCode, make_error
from holdfast.errors import (
    BY_CODE,
    AgentError,
    Attempt,
    InternalError,
    InvalidAgentResponseError,
    wrap_downstream,
)
from holdfast.extend import HttpReply
from holdfast.testing import Fail, FakeAgent, FakeNetwork, Refuse, Respond
from holdfast.types import TaskStatus

INFO = "type.googleapis.com/google.rpc.ErrorInfo"
FORMS = pytest.mark.parametrize("nested", [False, True], ids=["typed", "dialect"])

TIMED_OUT = {
    "code": -32006,
    "message": "Task timed out",
    "data": {"retryable": True, "retryAfter": 10},
}


def over_the_wire(error, **form):
    """What a client reads of the error object that an agent answers with."""
    return A2AError.from_jsonrpc(json.loads(json.dumps(error.to_jsonrpc(**form))))


def chain(length, cause=None, **form):
    """The error that agent 0 answers with when the last of so many agents below it fails."""
    error = cause or RateLimitedError("too many requests", transient=True, retry_after=7)
    for number in range(length, 0, -1):
        error = wrap_downstream(
            error, agent=f"agent-{number}", current=f"agent-{number - 1}", **form
        )
        if number > 1:
            error = over_the_wire(error)
    return error


# ── One error object ─────────────────────────────────────────────────────────────────────────


def test_an_error_of_the_protocol_is_written_as_the_specification_says():
    error = TaskNotFoundError("no such task", task_id="t-1")

    assert error.to_jsonrpc() == {
        "code": -32001,
        "message": "no such task",
        "data": [
            {
                "@type": INFO,
                "reason": "TASK_NOT_FOUND",
                "domain": "a2a-protocol.org",
                "metadata": {"retryable": "false", "taskId": "t-1"},
            }
        ],
    }


def test_only_an_error_about_a_task_names_it():
    task = Task(id="t-of-another-agent", context_id="c", status=TaskStatus(state=TaskState.FAILED))
    error = TaskFailedError("it failed", task=task)

    assert error.to_jsonrpc()["data"][0]["metadata"] == {"retryable": "false"}


def test_a_wait_is_a_retry_info_and_the_id_for_those_who_ask_a_request_info():
    error = InternalError("busy", transient=True, retry_after=2.5)

    assert error.to_jsonrpc(request_id="r-7")["data"][1:] == [
        {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "2.5s"},
        {"@type": "type.googleapis.com/google.rpc.RequestInfo", "requestId": "r-7"},
    ]


def test_in_the_dialect_the_code_and_the_hints_are_the_dialects():
    error = RateLimitedError("slow down", transient=True, retry_after=5)

    assert error.to_jsonrpc(nested=True, request_id="r-7") == make_error(
        ArticleErrorCode.RATE_LIMITED,
        "slow down",
        {"retryable": True, "retryAfter": 5, "requestId": "r-7"},
    )


def test_over_http_json_it_is_a_status_object():
    error = TaskNotFoundError("no such task", task_id="t-1")

    body = error.to_rest()

    assert (body["code"], body["status"], body["message"]) == (404, "NOT_FOUND", "no such task")
    assert body["details"] == error.to_jsonrpc()["data"]


def test_details_of_ones_own_go_along():
    violation = {"field": "message.parts", "description": "at least one part is required"}
    detail = {"@type": "type.googleapis.com/google.rpc.BadRequest", "fieldViolations": [violation]}

    error = errors.InvalidParamsError("no parts", details=[detail])

    assert error.to_jsonrpc()["data"][1:] == [detail]


@pytest.mark.parametrize(
    "detail",
    [
        {"@type": "type.googleapis.com/google.rpc.DebugInfo", "stackEntries": ["in main()"]},
        {"@type": INFO, "domain": "a2a-protocol.org", "reason": "SOMETHING_ELSE"},
        {"@type": "type.googleapis.com/google.rpc.Help", "text": "x" * 10_000},
        {"@type": "x/Own", "value": float("nan")},
        {"@type": "x/Own", "value": object()},
        {"no": "type"},
        {"@type": "x/Own", "value": [[[[[[[["nested too deeply"]]]]]]]]},
    ],
)
def test_private_or_malformed_details_are_left_out(detail):
    assert len(InternalError("no", details=[detail]).to_jsonrpc()["data"]) == 1


@pytest.mark.parametrize("error", [None, [], "no", 7, {}, {"code": "x"}, {"message": "no"}])
def test_what_is_no_error_object_is_a_malformed_answer(error):
    found = A2AError.from_jsonrpc(error)

    assert type(found) is InvalidAgentResponseError
    assert found.code is None
    assert "the error" in str(found)


def test_a_lone_error_object_is_read_by_the_table_of_replies():
    """What is read of an object is the same with and without a reply around it."""
    for code in [*BY_CODE, -32050, -32000]:
        written = {"code": code, "message": "no", "data": {"retryAfter": 3}}
        alone = A2AError.from_jsonrpc(written)
        reply = status.from_rpc_error(written, HttpReply(status=200), now=0)
        assert type(alone) is type(reply)
        assert {**vars(alone), "http_status": 200} == vars(reply)


def test_every_error_of_the_protocol_has_one_row_of_its_own():
    rows = [kind.entry for kind in BY_CODE.values()]

    assert len({row.code for row in rows}) == len({row.reason for row in rows}) == 14
    for kind in BY_CODE.values():
        assert type(kind("x").entry) is type(rows[0])
        assert "entry" in vars(kind) or kind is InternalError


def kept(error):
    return (error.code, error.transient, error.retry_after, error.hops, error.loop)


@pytest.mark.rule("D11")
@given(
    max_examples=300,
    name=st.sampled_from(sorted(OWN_FACTS)),
    message=st.text(st.characters(), max_size=80),
    hops=st.lists(any_text, max_size=20),
    transient=st.booleans(),
    retry_after=st.none() | st.floats(min_value=0, max_value=1e9).map(lambda s: round(s, 6)),
    details=st.lists(st.dictionaries(any_text | st.just("@type"), json_values), max_size=2),
    agent=st.none() | any_text,
    nested=st.booleans(),
)
def test_any_error_survives_the_wire(*, name, message, nested, **told):
    error = make(name, message, **told)

    written = error.to_jsonrpc(nested=nested)
    found = A2AError.from_jsonrpc(json.loads(json.dumps(written)))

    assert (found.transient, found.retry_after) == (told["transient"], told["retry_after"])
    assert len(found.hops) <= 16
    assert found.code == written["code"]
    if not nested:
        assert found.code == ((BY_CODE.get(error.entry.code) and error.entry.code) or -32000)
        named = type(error) in BY_CODE.values()
        expected = type(error) if named else BY_CODE.get(found.code, AgentError)
        assert type(found) is expected
    again = over_the_wire(found)
    assert type(again) is type(found)
    assert kept(again) == kept(found)
    assert again.message == found.message
    assert found.executed is (False if found.code in {-32700, -32009} else None)


# ── Chains ───────────────────────────────────────────────────────────────────────────────────


@FORMS
@pytest.mark.parametrize("length", [1, 2, 3, 16])
def test_the_hops_of_a_chain_are_named_in_order(length, nested):
    found = over_the_wire(chain(length, nested=nested))

    assert found.hops == tuple(f"agent-{number}" for number in range(1, length + 1))
    assert (type(found), found.code, found.executed) == (InternalError, -32603, None)
    assert (found.transient, found.retry_after, found.loop) == (True, 7, None)
    assert f"agent agent-{length} failed: too many requests" in str(found)
    assert "agent agent-1 failed: " in str(found)


@FORMS
def test_a_chain_may_change_its_form_on_the_way(nested):
    inner = over_the_wire(chain(2, nested=nested))
    outer = wrap_downstream(inner, agent="outer", current="me", nested=not nested)

    found = over_the_wire(outer)

    assert found.hops == ("outer", "agent-1", "agent-2")
    assert (found.transient, found.retry_after) == (True, 7)


@FORMS
@pytest.mark.parametrize("length", [17, 40])
def test_of_a_long_chain_the_nearest_agents_and_the_last_one_are_named(length, nested):
    found = over_the_wire(chain(length, nested=nested))

    assert len(found.hops) == 16
    assert found.hops[:14] == tuple(f"agent-{number}" for number in range(1, 15))
    assert found.hops[14:] == ("…", f"agent-{length}")
    assert f"agent agent-{length} failed: too many requests" in str(found)
    assert len(json.dumps(found.to_jsonrpc(nested=nested))) < 20_000


def test_the_nested_form_is_the_articles():
    error = A2AError.from_jsonrpc(TIMED_OUT)

    wrapped = wrap_downstream(
        error, agent="http://code-agent:8002", current="coordinator", nested=True
    )

    assert wrapped.to_jsonrpc() == {
        "code": -32603,
        "message": "agent http://code-agent:8002 failed: Task timed out",
        "data": {
            "currentAgent": "coordinator",
            "downstreamAgent": "http://code-agent:8002",
            "downstreamError": TIMED_OUT,
            "retryable": True,
            "retryAfter": 10,
        },
    }


def test_what_another_agent_wrote_in_the_nested_form_is_read():
    middle = {
        "code": -32603,
        "message": "Downstream agent 'C' failed",
        "data": {
            "currentAgent": "B",
            "downstreamAgent": "C",
            "downstreamError": TIMED_OUT,
            "retryable": True,
        },
    }
    outer = {
        "code": -32603,
        "message": "Downstream agent 'B' failed",
        "data": {
            "currentAgent": "A",
            "downstreamAgent": "B",
            "downstreamError": middle,
            "retryable": True,
        },
    }

    found = A2AError.from_jsonrpc(outer)

    assert (found.hops, found.transient, found.retry_after) == (("B", "C"), True, 10)
    assert str(found) == (
        "the agent answered -32603: Downstream agent 'B' failed: Task timed out (it failed at B "
        "→ C; retry after 10 s)"
    )


def test_typed_details_within_the_nested_form_are_read():
    typed = chain(2).to_jsonrpc()
    data = {"downstreamAgent": "agent-0", "downstreamError": typed, "retryable": False}

    found = A2AError.from_jsonrpc({"code": -32603, "message": "no", "data": data})

    assert found.hops == ("agent-0", "agent-1", "agent-2")
    assert found.transient is False
    assert "too many requests" in str(found)


def test_a_code_that_not_everybody_can_read_does_not_go_out():
    assert over_the_wire(A2AError.from_jsonrpc({"code": 10**20, "message": "no"})).code == -32000


def test_what_came_in_the_dialect_goes_out_in_it_with_its_code():
    for code in (*ArticleErrorCode, -32603, -32050):
        written = make_error(code, "no", {"retryable": True, "retryAfter": 5})
        assert A2AError.from_jsonrpc(written).to_jsonrpc() == written

    reply = HttpReply(status=429)
    written = make_error(-32050, "no", {"retryable": True})
    assert status.from_rpc_error(written, reply, now=0).to_jsonrpc() == written


@pytest.mark.parametrize("code", ArticleErrorCode)
def test_an_error_with_a_code_of_the_dialect_is_written_in_it(code):
    found = over_the_wire(AgentError("no", code=code))

    assert (type(found), found.code, found.transient) == (AgentError, code, False)


def test_the_codes_below_are_kept_in_the_nested_form():
    error = A2AError.from_jsonrpc(TIMED_OUT)
    for agent, current in [("C", "B"), ("B", "A")]:
        error = over_the_wire(wrap_downstream(error, agent=agent, current=current, nested=True))
    data = error.to_jsonrpc()["data"]

    assert (data["downstreamAgent"], data["downstreamError"]["code"]) == ("B", -32603)
    below = data["downstreamError"]["data"]
    assert (below["currentAgent"], below["downstreamAgent"]) == ("B", "C")
    assert below["downstreamError"]["code"] == -32006


@FORMS
def test_loop_is_reported(nested):
    error = A2AConnectionError("connection refused", failure="refused", executed=False)
    for agent, current in [("B", "A"), ("A", "B"), ("B", "A")]:
        error = over_the_wire(wrap_downstream(error, agent=agent, current=current, nested=nested))

    assert error.hops == ("B", "A", "B")
    assert error.loop in {"A", "B"}
    assert f"{error.loop} occurs twice in the chain" in str(error)


def test_an_agent_that_is_called_by_the_one_that_it_calls_sees_the_loop_itself():
    inner = wrap_downstream(InternalError("no"), agent="https://a.test/", current="https://b.test")

    outer = wrap_downstream(inner, agent="https://b.test", current="https://a.test")

    assert outer.loop == "https://a.test/"


def test_what_failed_below_is_an_internal_error_whatever_it_was_there():
    below = TaskNotFoundError("gone", code=-32001, task_id="t-of-b", executed=False)

    wrapped = wrap_downstream(below, agent="B", current="A")

    assert (type(wrapped), wrapped.code, wrapped.agent) == (InternalError, -32603, "A")
    assert (wrapped.executed, wrapped.transient) == (None, False)
    assert "t-of-b" not in json.dumps(wrapped.to_jsonrpc())


def test_facts_of_the_call_below_stay_below():
    attempts = [Attempt(number=1, agent="http://b", started=0, duration=1, error="secret")]
    headers = {"server": "internal/1.0"}
    below = InternalError(
        "no", attempts=attempts, headers=headers, excerpt="<html>", http_status=500, data=[1]
    )

    wrapped = wrap_downstream(below, agent="B", current="A")

    assert (wrapped.attempts, wrapped.headers, wrapped.data) == ((), {}, None)
    assert (wrapped.excerpt, wrapped.http_status) == (None, None)


def test_failed_agent_defaults_to_that_of_the_error():
    below = InternalError("no", agent="http://user:pw@b.test/rpc?key=1")

    assert wrap_downstream(below, current="A").hops == ("http://b.test/rpc",)
    below.agent = "http://b.test/sk-1234567890abcdefghij/rpc"
    assert wrap_downstream(below, current="A").hops == ("http://b.test/***/rpc",)
    with pytest.raises(ValueError, match="pass the called agent as agent="):
        wrap_downstream(InternalError("no"), current="A")


@pytest.mark.parametrize(
    ("error", "names", "kind", "match"),
    [
        (ValueError("s3cret"), {}, TypeError, "error must be A2AError, not ValueError; .* Intern"),
        (None, {}, TypeError, "error must be A2AError, not NoneType"),
        (InternalError("no"), {"agent": 5}, TypeError, "agent must be str, not int"),
        (InternalError("no"), {"agent": ""}, ValueError, "agent must not be empty"),
        (InternalError("no"), {"current": ""}, ValueError, "current must not be empty"),
        (InternalError("no"), {"current": None}, TypeError, "current must be str"),
        (InternalError("no"), {"nested": 1}, TypeError, "nested must be bool"),
    ],
)
def test_what_cannot_be_passed_on_is_reported(error, names, kind, match):
    with pytest.raises(kind, match=match) as caught:
        wrap_downstream(error, **{"agent": "B", "current": "A", **names})

    assert "s3cret" not in str(caught.value)


def too_few(*results):
    return NotEnoughResultsError("2 should have answered", results=results, transient=True)


def test_of_many_agents_those_that_failed_are_named():
    well = AgentResult(agent="news")
    away = AgentResult(agent="http://me:pw@traffic.test/?key=1", error=InternalError("no"))
    broken = AgentResult(agent="weather", error=InternalError("no", hops=("B", "C")))

    one = over_the_wire(wrap_downstream(too_few(well, broken, broken), current="A"))
    several = over_the_wire(wrap_downstream(too_few(well, away, broken), current="A"))

    assert one.hops == ("weather", "B", "C")
    assert one.transient
    assert several.hops == ("http://traffic.test/, weather",)
    assert "agent weather failed: 2 should have answered" in str(one)


def test_replica_below_the_quorum_has_not_failed():
    wrapped = wrap_downstream(too_few(), current="A", nested=True)

    assert (wrapped.hops, wrapped.agent) == ((), "A")
    assert wrapped.message == "2 should have answered"
    assert A2AError.from_jsonrpc(wrapped.to_jsonrpc()).hops == ()


@pytest.mark.parametrize("levels", [1, 2, 3])
@pytest.mark.parametrize("when", ["wrapped", "written"])
def test_the_innermost_error_of_the_nested_form_says_why(levels, when):
    task = Task(id="t-1", context_id="c", status=TaskStatus(state=TaskState.FAILED))
    why = "task t-1 ended in FAILED: no traffic today, see /etc/agent/config.yaml"
    error = TaskFailedError(why, task=task)
    for agent, current in [("D", "C"), ("C", "B"), ("B", "A")][-levels:]:
        error = wrap_downstream(error, agent=agent, current=current, nested=when == "wrapped")
        written = error.to_jsonrpc(nested=True)
        error = A2AError.from_jsonrpc(json.loads(json.dumps(written)))

    told = "task t-1 ended in FAILED: no traffic today, see (path)"
    said, found = [], written
    while "downstreamError" in found["data"]:
        found = found["data"]["downstreamError"]
        said.append(found["message"])
    names = ["B", "C", "D"][:levels] if levels > 1 else ["B"]
    stages = [f"agent {name} failed: " for name in names]
    assert said == ["".join(stages[n + 1 :]) + told for n in range(levels)]
    assert written["message"] == "".join(stages) + told


# ── Nothing of the machine goes out ──────────────────────────────────────────────────────────

SECRETS = [
    ("in /home/me/agent/main.py line 3", "/home/me"),
    ("see /etc/agent/config.yaml", "/etc/agent"),
    (r"see C:\Users\somebody\agent.ini", "somebody"),
    ("agent/tools/search.py:12 failed", "search.py"),
    ("file:///srv/agent/key.pem is gone", "key.pem"),
    ('Traceback (most recent call last): File "x.py", line 1', "x.py"),
    ('File "/app/main.py", line 7, in call', "main.py"),
    ("no: Traceback (most recent call last): in handle(): ValueError: inner", "inner"),
    ('File "main", line 7, in handle_inner', "handle_inner"),
    ("OPENAI_API_KEY=sk-1234567890abcdef is wrong", "sk-1234567890abcdef"),
    ("key sk-proj-1234567890abcdefgh is wrong", "1234567890abcdefgh"),
    ("Authorization: Bearer abcdefgh12345678", "abcdefgh12345678"),
    ("sent Bearer abcdefgh12345678 to it", "abcdefgh12345678"),
    ('{"password": "correct horse"}', "correct"),
    ("token eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2ln expired", "eyJzdWIiOiIxIn0"),
    ("http://user:hunter2@b.test/rpc refused", "hunter2"),
    ("http://b.test/rpc?sig=abcdef refused", "abcdef"),
]


@FORMS
@pytest.mark.parametrize(("text", "secret"), SECRETS)
def test_paths_traces_and_secrets_do_not_go_out(text, secret, nested):
    detail = {"@type": "x/Own", "where": [{"text": text}], text: 1}
    for error in (
        InternalError(text, details=[detail]),
        wrap_downstream(InternalError(text), agent="B", current="A", nested=nested),
        wrap_downstream(
            A2AError.from_jsonrpc(make_error(-32603, text, {"retryable": True, "detail": text})),
            agent="B",
            current="A",
            nested=nested,
        ),
    ):
        assert secret not in json.dumps(error.to_jsonrpc(nested=nested))
        assert secret not in json.dumps(error.to_rest())


@pytest.mark.parametrize(
    "text",
    [
        "GET /tasks/t-1 answered HTTP 404 Not Found",
        "http://b.test/usr/agents/rpc refused the connection",
        "the agent did not answer within 120 s",
        "authentication failed: the token has expired",
        "and/or, 1/2, text/plain; application/json",
        "rate limit: 3 requests/minute",
    ],
)
def test_what_helps_the_caller_goes_out_as_it_is(text):
    assert InternalError(text).to_jsonrpc()["message"] == text


# ── Hostile answers ──────────────────────────────────────────────────────────────────────────


def deep(levels):
    error = TIMED_OUT
    for number in range(levels):
        data = {"downstreamAgent": f"agent-{number}", "downstreamError": error, "retryable": True}
        error = {"code": -32603, "message": "no", "data": data}
    return error


def test_a_chain_without_end_is_not_followed():
    assert len(links_in(deep(10_000)["data"])) == MAX_HOPS == 16


def test_a_chain_without_end_costs_nothing_and_is_cut():
    error = A2AError.from_jsonrpc(deep(10_000))
    wrapped = wrap_downstream(error, agent="B", current="A", nested=True)

    assert len(error.hops) == len(wrapped.hops) == 16
    assert len(json.dumps(wrapped.to_jsonrpc())) < 20_000


def test_megabytes_of_text_are_not_looked_through():
    large = "x" * 10_000_000
    object_ = {
        "code": -32603,
        "message": large,
        "data": {
            "detail": large,
            "downstreamAgent": large,
            "downstreamError": {"code": -32603, "message": large, "data": {large: large}},
            "retryable": True,
        },
    }
    details = [{"@type": large, "reason": large}, {"@type": "x/y", "value": [large] * 9}]
    details += [{"@type": "x/y", "value": "x" * 900}] * 10_000

    tracemalloc.start()
    try:
        error = A2AError.from_jsonrpc(object_)
        written = wrap_downstream(error, agent=large, current=large, nested=True).to_jsonrpc()
        typed = InternalError(large, details=details, hops=[large] * 1000).to_jsonrpc()
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert peak < 1_000_000
    assert len(json.dumps(written)) < 10_000
    assert len(json.dumps(typed)) < 20_000


@given(data=json_values, error=json_values, hops=json_values)
def test_chains_of_any_shape_are_read(data, error, hops):
    members = {"downstreamAgent": hops, "downstreamError": error, "data": data}
    inner = {"code": -32603, "message": "no", "data": {**members, "loop": hops}}
    details = [
        {"@type": INFO, "domain": "a2a-protocol.org", "metadata": {"hop1": data, "hop2": 1}}
    ]

    for object_ in (inner, {**inner, "data": details}, {**inner, "data": [members]}):
        found = A2AError.from_jsonrpc(object_)
        assert all(isinstance(hop, str) for hop in found.hops)
        assert len(str(found).splitlines()) == 1
        json.dumps(wrap_downstream(found, agent="B", current="A", nested=True).to_jsonrpc())


# ── Over the wire ────────────────────────────────────────────────────────────────────────────


def client_of(agent, *agents, **options):
    network = FakeNetwork(agent, *agents)
    return connect(agent.url, engine=network, resilience=Resilience.off(), **options)


async def failure_of(client):
    with pytest.raises(A2AError) as caught:
        await client.send_message("go on")
    return caught.value


def answers_with(agent, error):
    """Makes an agent answer with an error, in the form of its one binding."""
    if agent.binding == "JSONRPC":
        answer = error.to_jsonrpc()
        agent.inject(Fail(code=answer["code"], message=answer["message"], data=answer["data"]))
    else:
        answer = error.to_rest()
        body = json.dumps({"error": answer}).encode()
        agent.inject(Respond(status=answer["code"], body=body))


@pytest.mark.parametrize(
    ("binding", "nested"), [("JSONRPC", False), ("JSONRPC", True), ("HTTP+JSON", False)]
)
async def test_three_agents_tell_where_it_broke(binding, nested):
    a, b, c = (FakeAgent(url=f"http://{name}.test", bindings=(binding,)) for name in "abc")
    for agent in (a, b):
        agent.binding = binding
    c.inject(Fail(message="the model is overloaded", retry_after=30))

    error = await failure_of(client_of(c))
    for agent, current in [(b, "B"), (a, "A")]:
        answers_with(agent, wrap_downstream(error, current=current, nested=nested))
        error = await failure_of(client_of(agent))

    path = {"JSONRPC": "rpc", "HTTP+JSON": "rest"}[binding]
    assert type(error) is InternalError
    assert error.hops == (f"http://b.test/{path}", f"http://c.test/{path}")
    assert (error.transient, error.retry_after, error.executed) == (True, 30, None)
    assert error.agent == f"http://a.test/{path}"
    assert f"agent http://c.test/{path} failed: the model is overloaded" in str(error)


@pytest.mark.parametrize("code", [-32050, -32000])
async def test_a_code_of_ones_own_survives_http_json(code):
    agent = FakeAgent(bindings=("HTTP+JSON",))
    agent.binding = "HTTP+JSON"
    answers_with(agent, AgentError("no such skill", code=code, transient=True))

    error = await failure_of(client_of(agent))

    assert (type(error), error.code, error.transient) == (AgentError, code, True)
    assert f"the agent answered {code}: no such skill" in str(error)


async def test_agent_that_was_not_reached_is_reported_with_its_facts():
    b = FakeAgent(url="http://b.test")
    b.inject(Refuse())

    below = await failure_of(client_of(b))
    found = over_the_wire(wrap_downstream(below, current="A"))

    assert (below.executed, found.executed) == (False, None)
    assert (found.transient, found.hops) == (True, ("http://b.test/rpc",))
