"""The tree of errors: every kind, every fact, one readable line, and a way through pickle."""

import copy
import inspect
import pickle

import pytest
from hypothesis import example
from hypothesis import strategies as st
from tests.kit.error_facts import OWN_FACTS, make
from tests.kit.strategies import any_text, given, json_values

from holdfast import errors
from holdfast.errors import (
    A2AConnectionError,
    A2AError,
    A2AHTTPError,
    A2ATimeoutError,
    Attempt,
    DeadlineExceededError,
    ExtensionNotSupportedError,
    OutcomeUnknownError,
    TaskInterruptedError,
    TaskNotFoundError,
    TaskTerminalError,
)
from holdfast.types import Part, Task

COMMON_FACTS = {
    "code": -32603,
    "details": ({"@type": "type.googleapis.com/google.rpc.ErrorInfo"},),
    "data": {"retryable": True, "list": [1, None]},
    "http_status": 503,
    "grpc_status": "UNAVAILABLE",
    "headers": {"retry-after": "3"},
    "executed": False,
    "transient": True,
    "retry_after": 3.0,
    "attempts": (Attempt(number=1, agent="http://a", started=0.0, duration=0.5, error="no"),),
    "agent": "http://agent.example/rpc",
    "request_id": "r-1",
    "hops": ("http://a", "http://b"),
    "loop": "http://a",
    "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
    "excerpt": "<html>",
}

every_kind = pytest.mark.parametrize("name", OWN_FACTS)


def public_kinds():
    members = inspect.getmembers(errors, inspect.isclass)
    return {n for n, c in members if issubclass(c, A2AError) and not n.startswith("_")}


def facts_of(error):
    own = {name: value for name, value in vars(error).items() if not name.startswith("_")}
    return {**own, "task": error.task, "task_id": error.task_id}


def test_the_tree_holds_exactly_the_errors_of_the_design():
    assert public_kinds() == {"A2AError", *OWN_FACTS}


def test_every_error_is_public():
    assert public_kinds() <= set(errors.__all__)
    assert all(hasattr(errors, name) for name in errors.__all__)


@every_kind
def test_an_error_carries_its_facts(name):
    error = make(name, **COMMON_FACTS)

    assert isinstance(error, A2AError)
    for fact, value in {**COMMON_FACTS, **OWN_FACTS[name]}.items():
        assert getattr(error, fact) == value, fact
    assert error.message == "it broke"


@every_kind
def test_error_has_no_fact_that_was_not_given(name):
    error = make(name)

    assert error.executed is None  # nobody knows, which is not "no"
    assert error.transient is False
    assert (error.code, error.data, error.http_status, error.grpc_status) == (None,) * 4
    assert (error.retry_after, error.agent, error.request_id, error.excerpt) == (None,) * 4
    assert (error.details, error.attempts, error.hops) == ((),) * 3
    assert error.headers == {}
    own_task = OWN_FACTS.get(name, {}).get("task")
    own_id = OWN_FACTS.get(name, {}).get("task_id")
    assert (error.task, error.task_id) == (own_task, own_task.id if own_task else own_id)


@pytest.mark.rule("D11")
@every_kind
@pytest.mark.parametrize(
    "duplicate",
    [lambda error: pickle.loads(pickle.dumps(error)), copy.copy, copy.deepcopy],
    ids=["pickle", "copy", "deepcopy"],
)
def test_a_duplicate_keeps_every_fact(name, duplicate):
    error = make(name, **COMMON_FACTS)

    twin = duplicate(error)

    assert type(twin) is type(error)
    assert facts_of(twin) == facts_of(error)
    assert twin.args == error.args
    assert (str(twin), repr(twin)) == (str(error), repr(error))


@given(
    name=st.sampled_from(sorted(OWN_FACTS)),
    message=st.text(st.characters(), max_size=60),
    excerpt=any_text,
    agent=any_text,
)
@example(name="A2AError", message="a\r\n\x1b[2Jb\u2028c\x85", excerpt="\ud800", agent="\x00")
def test_any_message_is_shown_as_one_readable_line(name, message, excerpt, agent):
    error = make(name, message, agent=agent, excerpt=excerpt, retry_after=2.5)

    for line in (str(error), repr(error)):
        assert len(line.splitlines()) == 1
        assert line.isprintable()  # nothing that moves a terminal's cursor, no lone surrogate
    assert error.message == message


@pytest.mark.parametrize("size", [2_000, 1_000_000])
def test_a_line_is_bounded_however_much_the_agent_wrote(size):
    error = A2AError("m" * size, agent="a" * size, excerpt="e" * size, retry_after=3)

    assert len(str(error)) < 2_000
    assert "retry after 3 s" in str(error)
    assert len(error.message) == size


def test_a_line_names_the_facts_that_help():
    error = A2AError(
        "HTTP 502 Bad Gateway",
        agent="http://agent.example",
        attempts=[Attempt(number=n, agent="a", started=0, duration=0) for n in (1, 2)],
        retry_after=2.5,
        excerpt="<html> oops",
    )

    assert str(error) == (
        "HTTP 502 Bad Gateway (agent http://agent.example; 2 attempts; retry after 2.5 s; "
        "reply began '<html> oops')"
    )
    assert repr(error) == f"<A2AError: {error}>"


@every_kind
def test_an_error_without_a_message_is_named_by_its_kind(name):
    assert str(make(name, "")) == name


@pytest.mark.parametrize(
    ("kind", "parent"),
    [
        ("A2AConnectionError", ConnectionError),
        ("A2ATimeoutError", TimeoutError),
        ("DeadlineExceededError", TimeoutError),
        ("AuthenticationError", A2AHTTPError),
        ("PermissionDeniedError", A2AHTTPError),
        ("RateLimitedError", A2AHTTPError),
        ("ClientToolsNotSupportedError", ExtensionNotSupportedError),
        ("TaskFailedError", TaskTerminalError),
        ("TaskRejectedError", TaskTerminalError),
        ("TaskCanceledError", TaskTerminalError),
        ("TaskInputRequiredError", TaskInterruptedError),
        ("TaskAuthRequiredError", TaskInterruptedError),
    ],
)
def test_an_error_can_be_caught_by_its_wider_kind(kind, parent):
    assert isinstance(make(kind), parent)


@pytest.mark.parametrize(
    "build",
    [
        lambda: A2AConnectionError("x"),
        lambda: A2ATimeoutError("x"),
        lambda: DeadlineExceededError("x"),
        lambda: OutcomeUnknownError("x"),
        lambda: TaskTerminalError("x"),
    ],
)
def test_an_error_cannot_be_made_without_the_fact_that_it_is_about(build):
    with pytest.raises(TypeError, match="required keyword-only argument"):
        build()


@pytest.mark.rule("D11")
@given(data=json_values)
def test_data_of_any_shape_survives_pickle(data):
    error = pickle.loads(pickle.dumps(TaskNotFoundError("gone", data=data)))

    assert error.data == data


def test_facts_are_copied_so_that_the_caller_may_change_its_lists():
    headers, hops = {"date": "now"}, ["http://a"]
    error = A2AError("x", headers=headers, hops=hops)

    headers["date"] = "later"
    hops.append("http://b")

    assert (error.headers, error.hops) == ({"date": "now"}, ("http://a",))


def test_a_task_with_every_sort_of_content_survives_pickle():
    task = Task(id="t", artifacts=(), metadata={"n": 1})
    error = errors.ReconnectError("it broke", task=task)
    error.data = Part(raw=b"\x00", data=None)

    twin = pickle.loads(pickle.dumps(error))

    assert (twin.task, twin.data) == (task, Part(raw=b"\x00", data=None))
