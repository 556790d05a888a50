"""The JSON-RPC binding: requests, and the classification of replies."""

import json

import pytest
from hypothesis import strategies as st
from tests.kit.strategies import (
    error_objects,
    events,
    given,
    http_headers,
    http_statuses,
    json_values,
    messages,
    tasks,
)

from holdfast._wire import jsonrpc
from holdfast.errors import (
    A2AError,
    A2AHTTPError,
    AgentError,
    InternalError,
    InvalidAgentResponseError,
    TaskNotFoundError,
    UnsupportedOperationError,
)
from holdfast.extend import HttpReply
from holdfast.protocol import (
    DELETE_PUSH_CONFIG,
    GET_EXTENDED_AGENT_CARD,
    GET_TASK,
    LIST_TASKS,
    OPERATIONS,
    SEND_MESSAGE,
)
from holdfast.types import (
    DeleteTaskPushNotificationConfigRequest,
    Empty,
    GetTaskRequest,
    ListTasksRequest,
    Message,
    Part,
    Role,
    SendMessageRequest,
    Task,
    TaskState,
    TaskStatus,
)

NOW = 1_445_412_480.0
REQUEST_ID = "r-1"
UNARY = [operation for operation in OPERATIONS.values() if not operation.streaming]
NOT_FOUND = {
    "code": -32001,
    "message": "Task not found",
    "data": [
        {
            "@type": "type.googleapis.com/google.rpc.ErrorInfo",
            "reason": "TASK_NOT_FOUND",
            "domain": "a2a-protocol.org",
            "metadata": {},
        }
    ],
}


def decode(body, operation=GET_TASK, *, http_status=200, headers=None):
    reply = HttpReply(status=http_status, headers=headers or {}, body=body)
    return jsonrpc.decode(operation, REQUEST_ID, reply, now=NOW)


def envelope(**members):
    return json.dumps({"jsonrpc": "2.0", "id": REQUEST_ID, **members}).encode()


def answer_or_error(*args, **options):
    try:
        return decode(*args, **options)
    except A2AError as error:
        return error


def failure(*args, **options):
    with pytest.raises(A2AError) as caught:
        decode(*args, **options)
    return caught.value


# ── Requests ─────────────────────────────────────────────────────────────────────────────────


@pytest.mark.rule("S22")
@pytest.mark.parametrize(
    "url",
    [
        "https://a.example",
        "https://a.example/",
        "https://a.example/rpc",
        "https://a.example/rpc/",
        "https://a.example/rpc/?key=1&k=%2F",
        "http://[::1]:8080//a2a//",
    ],
)
@pytest.mark.parametrize("operation", OPERATIONS.values(), ids=lambda operation: operation.name)
def test_s22_a_call_is_posted_to_the_unchanged_address(url, operation):
    params = GetTaskRequest(id="t", tenant="acme")

    encoded = jsonrpc.encode(operation, params, url, REQUEST_ID)

    assert (encoded.method, encoded.url) == ("POST", url)
    assert encoded.headers["content-type"] == "application/json"
    assert "application/json" in encoded.headers["accept"]
    assert json.loads(encoded.body) == {
        "jsonrpc": "2.0",
        "id": REQUEST_ID,
        "method": operation.name,
        "params": {"tenant": "acme", "id": "t"},
    }


def test_parameters_have_the_protocols_names():
    params = SendMessageRequest(
        message=Message(message_id="m", role=Role.USER, parts=(Part(data={"n": 1}),))
    )

    encoded = jsonrpc.encode(SEND_MESSAGE, params, "http://a", REQUEST_ID)

    assert encoded.body.endswith(
        b'{"message":{"messageId":"m","role":"ROLE_USER","parts":[{"data":{"n":1}}]}}'
        b',"jsonrpc":"2.0"}'
    )


def test_a_request_without_parameters_has_an_empty_object():
    encoded = jsonrpc.encode(LIST_TASKS, ListTasksRequest(), "http://a", REQUEST_ID)

    assert json.loads(encoded.body)["params"] == {}


@given(message=messages)
def test_any_message_arrives_unchanged(message):
    params = SendMessageRequest(message=message)

    encoded = jsonrpc.encode(SEND_MESSAGE, params, "http://a", REQUEST_ID)

    assert SendMessageRequest.from_dict(json.loads(encoded.body)["params"]) == params


# ── Results ──────────────────────────────────────────────────────────────────────────────────


@given(task=tasks)
def test_the_result_is_returned(task):
    assert decode(envelope(result=task.to_dict())) == task
    assert decode(envelope(result={"task": task.to_dict()}), SEND_MESSAGE).task == task


@given(message=messages)
def test_a_result_may_be_a_message(message):
    assert decode(envelope(result={"message": message.to_dict()}), SEND_MESSAGE).message == message


@pytest.mark.parametrize(
    "result",
    [
        pytest.param({"id": "t", "status": {"state": "TASK_STATE_WORKING"}}, id="plain"),
        pytest.param({"id": "t", "status": {"state": 2}}, id="enum by number"),
        pytest.param(
            {
                "id": "t",
                "history": None,
                "status": {"state": "TASK_STATE_WORKING", "message": None},
            },
            id="nulls",
        ),
        pytest.param(
            {"id": "t", "status": {"state": "TASK_STATE_WORKING"}, "error": {"code": 1}},
            id="an addition",
        ),
    ],
)
@pytest.mark.parametrize(
    "around", [{}, {"error": None}, {"jsonrpc": None}, {"x": 1}], ids=["", "null error", "", "x"]
)
@pytest.mark.parametrize("http_status", [200, 201, 202])
def test_slightly_invalid_replies_are_accepted(result, around, http_status):
    task = decode(envelope(result=result, **around), http_status=http_status)

    assert task == Task(id="t", status=TaskStatus(state=TaskState.WORKING))


@pytest.mark.parametrize("result", [None, {}, {"anything": 1}])
def test_an_empty_response_may_be_null(result):
    assert decode(envelope(result=result), DELETE_PUSH_CONFIG) == Empty()


@pytest.mark.parametrize("body", [envelope(), envelope(error=None)])
def test_an_empty_response_may_lack_the_result(body):
    assert decode(body, DELETE_PUSH_CONFIG) == Empty()  # as the official server of 0.3 does


@pytest.mark.parametrize(
    "operation",
    [operation for operation in UNARY if operation is not DELETE_PUSH_CONFIG],
    ids=lambda operation: operation.name,
)
def test_null_is_not_a_result_of_other_operations(operation):
    error = failure(envelope(result=None), operation)

    assert type(error) is InvalidAgentResponseError
    assert operation.name in str(error)


def test_printed_defaults_are_read_as_values():
    part = {"text": "a", "filename": "", "mediaType": "", "metadata": {}}

    page = decode(
        envelope(
            result={
                "tasks": [{"id": "t", "artifacts": [{"artifactId": "a", "parts": [part]}]}],
                "nextPageToken": "",
                "pageSize": 50.0,
                "totalSize": 1,
            }
        ),
        LIST_TASKS,
    )

    assert page.tasks[0].artifacts[0].parts == (
        Part(text="a", filename="", media_type="", metadata={}),
    )
    assert (page.next_page_token, page.page_size, page.total_size) == ("", 50, 1)


# ── Errors ───────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("http_status", [200, 400, 404, 500])
def test_an_error_object_is_the_same_under_every_http_status(http_status):
    error = failure(envelope(error=NOT_FOUND), http_status=http_status)

    assert type(error) is TaskNotFoundError
    assert (error.code, error.http_status, error.executed) == (-32001, http_status, None)
    assert error.details == tuple(NOT_FOUND["data"])
    assert error.message == "the agent answered -32001: Task not found"


def test_a_crashed_executor_is_an_internal_error_without_details():
    error = failure(envelope(error={"code": -32603, "message": "crashed"}), SEND_MESSAGE)

    assert type(error) is InternalError
    assert (error.executed, error.transient, error.details, error.data) == (None, True, (), None)


@pytest.mark.parametrize("id_", [None, ...])
def test_an_error_may_lack_the_id(id_):
    # An agent that could not read the request does not know it.
    members = {"error": {"code": -32700, "message": "?"}, "id": id_}
    body = json.dumps({name: value for name, value in members.items() if value is not ...})

    error = failure(body.encode(), http_status=400)

    assert (error.code, error.executed) == (-32700, False)


def test_an_error_takes_precedence_over_a_result():
    for result in (None, {}, {"id": "t"}):
        for operation in (DELETE_PUSH_CONFIG, GET_TASK, LIST_TASKS):
            error = failure(envelope(result=result, error=NOT_FOUND), operation)
            assert type(error) is TaskNotFoundError


@pytest.mark.parametrize("code", [-32004, -32004.0])
def test_a_code_may_be_a_float(code):
    error = failure(envelope(error={"code": code}))

    assert type(error) is UnsupportedOperationError
    assert type(error.code) is int


@pytest.mark.parametrize("code", [0, 1, 404, -32050, 10**20])
def test_an_unknown_code_is_kept(code):
    error = failure(envelope(error={"code": code, "message": "own"}))

    assert type(error) is AgentError
    assert error.code == code


# ── Malformed replies ────────────────────────────────────────────────────────────────────────

DEEP = b'{"jsonrpc":"2.0","id":"r-1","result":{"id":"t","metadata":{"a":%s}}}' % (b"[" * 100_000)
NO_REPLIES = {
    "empty": b"",
    "text": b"ok",
    "HTML": b"<!doctype html><html></html>",
    "half": b'{"jsonrpc":"2.0","id":"r-1","resu',
    "list": b"[]",
    "batch": b'[{"jsonrpc":"2.0","id":"r-1","result":{"id":"t"}}]',
    "null": b"null",
    "number": b"7",
    "neither result nor error": envelope(),
    "null error": envelope(error=None),
    "another id": envelope(result={"id": "t"}, id="r-2"),
    "no id": b'{"jsonrpc":"2.0","result":{"id":"t"}}',
    "null id": envelope(result={"id": "t"}, id=None),
    "number id": envelope(result={"id": "t"}, id=1),
    "list id": envelope(result={"id": "t"}, id=[]),
    "object id": envelope(result={"id": "t"}, id={}),
    "error for another id": envelope(error=NOT_FOUND, id="r-2"),
    "error with list id": envelope(error=NOT_FOUND, id=["r-1"]),
    "wrong type": envelope(result=[]),
    "wrong member": envelope(result={"id": 7}),
    "missing member": envelope(result={}),
    "error is text": envelope(error="no"),
    "error is list": envelope(error=[NOT_FOUND]),
    "error is false": envelope(error=False),
    "error without code": envelope(error={"message": "no"}),
    "error with odd code": envelope(error={"code": "-32001"}),
    "error with half code": envelope(error={"code": 2.5}),
    "error with true code": envelope(error={"code": True}),
    "too deep": DEEP,
    "too large a number": b'{"id":"r-1","result":{"id":"t","metadata":{"n":%s}}}' % (b"9" * 5000),
    "bad text": b'{"id":"r-1","result":{"id":"\xff"}}',
}


@pytest.mark.parametrize("body", NO_REPLIES.values(), ids=NO_REPLIES)
def test_a_malformed_reply_is_invalid_and_quoted(body):
    error = failure(body, headers={"content-type": "text/html", "set-cookie": "s=1"})

    assert type(error) is InvalidAgentResponseError
    assert (error.code, error.http_status) == (None, 200)
    assert (error.executed, error.transient) == (None, False)
    assert error.headers == {"content-type": "text/html"}
    assert len(error.excerpt) <= 200
    assert error.excerpt[:10].strip() in body.decode("utf-8", "replace")
    assert bool(error.excerpt) == bool(body)


def test_an_invalid_member_is_named():
    error = failure(envelope(result={"id": "t", "history": [{"role": []}]}))

    assert "history[0].role" in str(error)
    assert "GetTask" in str(error)


@pytest.mark.parametrize(
    "body", [envelope(result={"id": "t"}), envelope(), b"", b"[]", envelope(error="expired")]
)
@pytest.mark.parametrize("http_status", [302, 400, 404, 500])
def test_an_error_status_takes_precedence_over_a_result(body, http_status):
    error = failure(body, http_status=http_status)

    assert type(error) is A2AHTTPError
    assert error.http_status == http_status


@pytest.mark.parametrize("http_status", [429, 503])
@pytest.mark.parametrize(
    ("body", "executed"),
    [
        (b"busy", False),
        (b'{"error": {"message": "busy"}}', False),  # as proxies write it
        (b"[]", False),
        (envelope(error={"message": "busy"}), None),
        (envelope(error="busy"), None),
        (envelope(), None),
        (b'{"result": {"task": {}}}', None),
        (b'[{"jsonrpc": "2.0", "id": "r-1", "result": {"task": {"id": "t"}}}]', None),
        (b'["busy", {"jsonrpc": "2.0", "id": "r-1", "error": {"code": -32603}}]', None),
    ],
)
def test_a_refusal_with_an_agents_body_may_have_been_executed(body, executed, http_status):
    error = failure(body, SEND_MESSAGE, http_status=http_status, headers={"retry-after": "1"})

    assert error.executed is executed
    assert error.transient


# ── Fuzz ─────────────────────────────────────────────────────────────────────────────────────

results = json_values | tasks.map(Task.to_dict) | events.map(lambda event: event.to_dict())
envelopes = st.fixed_dictionaries(
    {},
    optional={
        "jsonrpc": json_values,
        "id": st.just(REQUEST_ID) | json_values,
        "result": results,
        "error": error_objects | json_values,
    },
)
bodies = (
    st.binary(max_size=80)
    | json_values.map(lambda value: json.dumps(value).encode())
    | envelopes.map(lambda value: json.dumps(value).encode())
)


@given(
    body=bodies,
    operation=st.sampled_from(UNARY),
    http_status=http_statuses,
    headers=http_headers,
    max_examples=200,
)
def test_any_reply_is_a_result_or_an_a2a_error(body, operation, http_status, headers):
    outcome = answer_or_error(body, operation, http_status=http_status, headers=headers)

    if isinstance(outcome, A2AError):
        assert outcome.http_status == http_status
        assert len(str(outcome).splitlines()) == 1
    else:
        assert isinstance(outcome, operation.response)
        assert http_status < 300


def test_the_extended_card_is_a_result():
    card = decode(envelope(result={"name": "a"}), GET_EXTENDED_AGENT_CARD)

    assert card.name == "a"


def test_a_delete_request_names_both_ids():
    params = DeleteTaskPushNotificationConfigRequest(task_id="t", id="c")

    encoded = jsonrpc.encode(DELETE_PUSH_CONFIG, params, "http://a", REQUEST_ID)

    assert json.loads(encoded.body)["params"] == {"taskId": "t", "id": "c"}
