"""Errors in replies to requests that another program encoded."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.kit.refused_bodies import OF_AN_AGENT, OF_SOMEBODY_BEFORE_IT

from holdfast import A2AError, Limits
from holdfast._wire.raw_replies import read_raw_error
from holdfast._wire.status import REFUSALS
from holdfast.extend import HttpReply

NAMES = st.sampled_from(
    ["jsonrpc", "id", "error", "code", "message", "data", "details", "status", "result", "task",
     "type", "@type", "reason", "metadata", "httpStatus"]
) | st.text(max_size=4)  # fmt: skip
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=4),
    max_leaves=8,
)
BODIES = st.binary(max_size=60) | JSON.map(lambda value: json.dumps(value).encode())


def failure_of(status, body, headers=None, **limits):
    reply = HttpReply(status=status, headers=headers or {}, body=body)
    return read_raw_error(reply, now=0.0, refusals=REFUSALS, limits=Limits(**limits))


@given(st.integers(400, 599), BODIES)
def test_any_raw_reply_is_an_error_with_facts(status, body):
    error = failure_of(status, body)

    assert isinstance(error, A2AError)
    assert error.executed in {None, False}
    assert error.http_status == status


@given(st.sampled_from([429, 425]), JSON)
def test_an_error_of_an_agent_is_never_proof_of_no_execution(status, value):
    answer = {"jsonrpc": "2.0", "id": 1, "result": value}

    assert failure_of(status, json.dumps(answer).encode()).executed is None
    assert failure_of(status, json.dumps([value, answer]).encode()).executed is None


@pytest.mark.parametrize("code", [-32603, -32602, -32001, 7, 429, "x"])
@pytest.mark.parametrize("status", [429, 503, 404])
def test_a_json_rpc_error_is_never_proof_of_no_execution(status, code):
    body = {"jsonrpc": "2.0", "id": None, "error": {"code": code, "message": "no"}}

    assert failure_of(status, json.dumps(body).encode(), {"retry-after": "1"}).executed is None


@pytest.mark.parametrize("body", OF_AN_AGENT.values(), ids=OF_AN_AGENT)
@pytest.mark.parametrize("status", [425, 429, 503])
def test_a_body_of_an_agent_is_never_proof_of_no_execution(status, body):
    assert failure_of(status, body, {"retry-after": "1"}).executed is None


@pytest.mark.parametrize(
    ("status", "headers", "executed", "transient"),
    [
        (429, {}, False, True),
        (503, {"retry-after": "1"}, False, True),
        (503, {}, None, True),
        (502, {}, None, True),
        (404, {}, False, False),
        (500, {}, None, True),
    ],
)
@pytest.mark.parametrize("body", OF_SOMEBODY_BEFORE_IT.values(), ids=OF_SOMEBODY_BEFORE_IT)
def test_a_refusal_of_a_gateway_proves_that_nothing_was_executed(
    status, headers, executed, transient, body
):
    error = failure_of(status, body, headers)

    assert (error.executed, error.transient) == (executed, transient)


def test_a_body_too_large_to_search_may_be_an_agents():
    assert failure_of(429, b"[" * 50 + b"]" * 50, json_depth=10).executed is None
    assert failure_of(429, b"[" * 50 + b"]" * 50).executed is False


def test_the_facts_of_a_json_rpc_error_are_read():
    body = {"jsonrpc": "2.0", "id": 1, "error": {"code": 7, "message": "no"}}

    assert failure_of(429, json.dumps(body).encode()).code == 7


@pytest.mark.parametrize(
    "headers",
    [{"content-encoding": "br"}, {"transfer-encoding": "chunked"}, {"content-length": "70"}],
)
def test_an_unread_body_may_be_an_agents(headers):
    assert failure_of(429, b"", headers).executed is None
    assert failure_of(429, b"busy", headers).executed is False
    assert failure_of(429, b"", {"content-length": "0"}).executed is False
