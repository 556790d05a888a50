"""The HTTP+JSON binding: addresses, queries, bodies, and the classification of replies."""

import json
from urllib.parse import parse_qs, unquote, urlsplit

import pytest
from hypothesis import example
from hypothesis import strategies as st
from tests.kit.refused_bodies import OF_AN_AGENT
from tests.kit.strategies import (
    any_text,
    error_objects,
    given,
    http_headers,
    http_statuses,
    json_values,
    messages,
    tasks,
)

from holdfast import protocol as op
from holdfast._wire import rest
from holdfast.errors import (
    A2AError,
    A2AHTTPError,
    AgentError,
    InternalError,
    InvalidAgentResponseError,
    InvalidParamsError,
    MethodNotFoundError,
    TaskNotFoundError,
)
from holdfast.extend import HttpReply
from holdfast.protocol import GET_TASK, OPERATIONS
from holdfast.types import (
    CancelTaskRequest,
    DeleteTaskPushNotificationConfigRequest,
    Empty,
    GetExtendedAgentCardRequest,
    GetTaskPushNotificationConfigRequest,
    GetTaskRequest,
    ListTaskPushNotificationConfigsRequest,
    ListTasksRequest,
    ListTasksResponse,
    Message,
    SendMessageRequest,
    SubscribeToTaskRequest,
    Task,
    TaskPushNotificationConfig,
    TaskState,
    TaskStatus,
)

NOW = 1_445_412_480.0
SPOKEN = {
    name: body for name, body in OF_AN_AGENT.items() if name != "too much to look through"
}  # which the engine finds first
UNARY = [operation for operation in OPERATIONS.values() if not operation.streaming]
INFO = {
    "@type": "type.googleapis.com/google.rpc.ErrorInfo",
    "reason": "TASK_NOT_FOUND",
    "domain": "a2a-protocol.org",
    "metadata": {},
}
STATUS = {"code": 404, "status": "NOT_FOUND", "message": "Task not found", "details": [INFO]}


def encode(operation, params, url="https://a.example"):
    return rest.encode(operation, params, url, "unused")


def decode(body, operation=GET_TASK, *, http_status=200, headers=None):
    reply = HttpReply(status=http_status, headers=headers or {}, body=body)
    return rest.decode(operation, "unused", reply, now=NOW)


def answer_or_error(*args, **options):
    try:
        return decode(*args, **options)
    except A2AError as error:
        return error


def failure(body, *args, **options):
    with pytest.raises(A2AError) as caught:
        decode(body, *args, **options)
    return caught.value


def as_json(value):
    return json.dumps(value).encode()


# ── Requests ─────────────────────────────────────────────────────────────────────────────────

MESSAGE = Message(message_id="m")
CALLS = [
    # operation, parameters -> verb, path, query, body
    (
        op.SEND_MESSAGE,
        SendMessageRequest(message=MESSAGE),
        ("POST", "/message:send", {}, {"message": {"messageId": "m"}}),
    ),
    (
        op.SEND_STREAMING_MESSAGE,
        SendMessageRequest(message=MESSAGE),
        ("POST", "/message:stream", {}, {"message": {"messageId": "m"}}),
    ),
    (GET_TASK, GetTaskRequest(id="t"), ("GET", "/tasks/t", {}, None)),
    (
        GET_TASK,
        GetTaskRequest(id="t", history_length=0),
        ("GET", "/tasks/t", {"historyLength": ["0"]}, None),
    ),
    (op.LIST_TASKS, ListTasksRequest(), ("GET", "/tasks", {}, None)),
    (
        op.LIST_TASKS,
        ListTasksRequest(
            context_id="a&b=c d",
            status=TaskState.WORKING,
            page_size=10,
            page_token="+/=",
            status_timestamp_after="2025-03-01T12:00:00+02:00",
            include_artifacts=True,
        ),
        (
            "GET",
            "/tasks",
            {
                "contextId": ["a&b=c d"],
                "status": ["TASK_STATE_WORKING"],
                "pageSize": ["10"],
                "pageToken": ["+/="],
                "statusTimestampAfter": ["2025-03-01T12:00:00+02:00"],
                "includeArtifacts": ["true"],
            },
            None,
        ),
    ),
    (
        op.LIST_TASKS,
        ListTasksRequest(include_artifacts=False),
        ("GET", "/tasks", {"includeArtifacts": ["false"]}, None),
    ),
    (
        op.CANCEL_TASK,
        CancelTaskRequest(id="t", metadata={"why": 1}),
        ("POST", "/tasks/t:cancel", {}, {"metadata": {"why": 1}}),
    ),
    (
        op.SUBSCRIBE_TO_TASK,
        SubscribeToTaskRequest(id="t"),
        ("POST", "/tasks/t:subscribe", {}, {}),
    ),
    (
        op.CREATE_PUSH_CONFIG,
        TaskPushNotificationConfig(task_id="t", id="c", url="https://me"),
        ("POST", "/tasks/t/pushNotificationConfigs", {}, {"id": "c", "url": "https://me"}),
    ),
    (
        op.GET_PUSH_CONFIG,
        GetTaskPushNotificationConfigRequest(task_id="t", id="c"),
        ("GET", "/tasks/t/pushNotificationConfigs/c", {}, None),
    ),
    (
        op.LIST_PUSH_CONFIGS,
        ListTaskPushNotificationConfigsRequest(task_id="t", page_size=5),
        ("GET", "/tasks/t/pushNotificationConfigs", {"pageSize": ["5"]}, None),
    ),
    (
        op.DELETE_PUSH_CONFIG,
        DeleteTaskPushNotificationConfigRequest(task_id="t", id="c"),
        ("DELETE", "/tasks/t/pushNotificationConfigs/c", {}, None),
    ),
    (
        op.GET_EXTENDED_AGENT_CARD,
        GetExtendedAgentCardRequest(),
        ("GET", "/extendedAgentCard", {}, None),
    ),
]
calls = pytest.mark.parametrize(
    ("operation", "params", "expected"), CALLS, ids=[call[0].name for call in CALLS]
)


def what_is_sent(encoded):
    parts = urlsplit(encoded.url)
    body = json.loads(encoded.body) if encoded.body else None
    return encoded.method, parts.path, parse_qs(parts.query), body


@calls
def test_a_call_is_the_protocols_request(operation, params, expected):
    encoded = encode(operation, params)

    assert what_is_sent(encoded) == expected
    assert urlsplit(encoded.url)[:2] == ("https", "a.example")
    assert "application/json" in encoded.headers["accept"]
    assert ("content-type" in encoded.headers) == bool(encoded.body)


@calls
@pytest.mark.parametrize(("tenant", "segment"), [("acme", "acme"), ("a/b c", "a%2Fb%20c")])
def test_a_tenant_is_in_the_path_and_in_the_body(*, operation, params, expected, tenant, segment):
    verb, path, query, body = expected
    fields = {name: getattr(params, name) for name in params.__struct_fields__}

    encoded = encode(operation, type(params)(**{**fields, "tenant": tenant}))

    in_body = body if body is None else {"tenant": tenant, **body}
    assert what_is_sent(encoded) == (verb, f"/{segment}{path}", query, in_body)


@pytest.mark.rule("S22")
@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("https://a.example", "https://a.example/tasks/t?historyLength=1"),
        ("https://a.example/", "https://a.example/tasks/t?historyLength=1"),
        ("https://a.example/v1/api", "https://a.example/v1/api/tasks/t?historyLength=1"),
        ("https://a.example/v1/api/", "https://a.example/v1/api/tasks/t?historyLength=1"),
        ("https://a.example/v1?key=1", "https://a.example/v1/tasks/t?key=1&historyLength=1"),
        ("https://a.example/v1/?k=%2F#top", "https://a.example/v1/tasks/t?k=%2F&historyLength=1"),
        ("http://[::1]:8080", "http://[::1]:8080/tasks/t?historyLength=1"),
        ("https://a.example/a%2Fb", "https://a.example/a%2Fb/tasks/t?historyLength=1"),
    ],
)
def test_s22_the_operations_path_follows_the_path_of_the_address(url, expected):
    assert encode(GET_TASK, GetTaskRequest(id="t", history_length=1), url).url == expected


def test_a_query_in_the_address_is_kept_for_a_post():
    encoded = encode(op.CANCEL_TASK, CancelTaskRequest(id="t"), "https://a.example/?key=1")

    assert encoded.url == "https://a.example/tasks/t:cancel?key=1"


@given(task_id=any_text.filter(bool), config_id=any_text.filter(bool))
@example(task_id=".", config_id="..")
@example(task_id="..", config_id="a/../b")
@example(task_id="{id}", config_id="{task_id}")
@example(task_id="a?b#c", config_id="a:cancel")
@example(task_id="%2F", config_id="a;b=c@d+e f")
@example(task_id="\ud800", config_id="é\u2028\n")
def test_any_id_is_one_segment_of_the_path(task_id, config_id):
    params = DeleteTaskPushNotificationConfigRequest(task_id=task_id, id=config_id)

    url = encode(op.DELETE_PUSH_CONFIG, params, "https://a.example/base").url

    parts = urlsplit(url)
    empty, base, tasks_, first, configs, second = parts.path.split("/")
    assert (empty, base, tasks_, configs) == ("", "base", "tasks", "pushNotificationConfigs")
    assert unquote(first, errors="surrogatepass") == task_id
    assert unquote(second, errors="surrogatepass") == config_id
    assert not {first, second} & {".", ".."}  # which everything on the way would resolve
    assert url.isascii()
    assert not set(url) & set(' \t\r\n"<>\\')
    assert (parts.netloc, parts.query, parts.fragment) == ("a.example", "", "")


@given(task_id=any_text.filter(bool))
def test_the_custom_verb_of_a_path_is_never_part_of_an_id(task_id):
    url = encode(op.CANCEL_TASK, CancelTaskRequest(id=task_id)).url

    segment, colon, verb = urlsplit(url).path.rpartition("/")[2].partition(":")
    assert (colon, verb) == (":", "cancel")
    assert unquote(segment, errors="surrogatepass") == task_id


@given(context_id=any_text, token=st.text(max_size=20))
def test_any_text_is_encoded_in_the_query(context_id, token):
    encoded = encode(op.LIST_TASKS, ListTasksRequest(context_id=context_id, page_token=token))

    query = parse_qs(urlsplit(encoded.url).query, keep_blank_values=True, errors="surrogatepass")
    assert query == {"contextId": [context_id], "pageToken": [token]}
    assert encoded.url.isascii()


@pytest.mark.parametrize(
    ("operation", "params", "name"),
    [
        (GET_TASK, GetTaskRequest(id=""), "id"),
        (op.CREATE_PUSH_CONFIG, TaskPushNotificationConfig(url="https://me"), "task_id"),
        (
            op.GET_PUSH_CONFIG,
            GetTaskPushNotificationConfigRequest(task_id="t", id=""),
            "id",
        ),
    ],
)
def test_an_empty_id_in_a_path_is_refused(operation, params, name):
    with pytest.raises(ValueError, match=f"lacks {name}"):
        encode(operation, params)


@given(message=messages)
def test_any_message_arrives_unchanged(message):
    params = SendMessageRequest(message=message)

    assert SendMessageRequest.from_dict(json.loads(encode(op.SEND_MESSAGE, params).body)) == params


# ── Results ──────────────────────────────────────────────────────────────────────────────────


@given(task=tasks)
def test_the_body_is_the_result(task):
    assert decode(task.to_json().encode()) == task
    assert decode(as_json({"task": task.to_dict()}), op.SEND_MESSAGE).task == task


@pytest.mark.parametrize("body", [b"{}", b""])
@pytest.mark.parametrize("http_status", [200, 202, 204])
def test_an_empty_response_may_have_an_empty_body(body, http_status):
    assert decode(body, op.DELETE_PUSH_CONFIG, http_status=http_status) == Empty()


def test_slightly_invalid_replies_are_accepted():
    task = decode(b'{"id":"t","history":null,"status":{"state":2,"message":null},"new":[1]}')

    assert task == Task(id="t", status=TaskStatus(state=TaskState.WORKING))


def test_a_task_with_an_error_member_is_a_task():
    assert decode(as_json({"id": "t", "error": {"code": 1, "message": "x"}})) == Task(id="t")
    assert decode(as_json({"id": "t", "error": None})) == Task(id="t")
    page = {"tasks": [{"id": "t"}], "error": {"code": 1}}
    assert decode(as_json(page), op.LIST_TASKS) == ListTasksResponse(tasks=(Task(id="t"),))


# ── Errors ───────────────────────────────────────────────────────────────────────────────────


def test_an_error_of_the_official_server_is_decoded():
    error = failure(as_json({"error": STATUS}), http_status=404)

    assert type(error) is TaskNotFoundError
    assert (error.code, error.http_status, error.executed) == (-32001, 404, None)
    assert error.message == "the agent answered -32001: Task not found"
    assert error.details == (INFO,)


def test_a_crashed_executor_is_an_internal_error_without_details():
    crash = {"error": {"code": 500, "status": "INTERNAL", "message": "unknown exception"}}

    error = failure(as_json(crash), op.SEND_MESSAGE, http_status=500)

    assert type(error) is InternalError
    assert (error.executed, error.transient, error.details) == (None, True, ())


@pytest.mark.parametrize("http_status", [400, 404, 500])
@pytest.mark.parametrize(
    "wrap",
    [
        pytest.param(lambda error: error, id="bare"),
        pytest.param(lambda error: {"error": error}, id="member"),
        pytest.param(lambda error: {"jsonrpc": "2.0", "id": 1, "error": error}, id="envelope"),
    ],
)
@pytest.mark.parametrize(
    ("code", "kind"),
    [(-32601, MethodNotFoundError), (-32602, InvalidParamsError), (-32050, AgentError)],
)
def test_a_json_rpc_error_in_a_rest_reply_is_that_error(*, code, kind, wrap, http_status):
    body = as_json(wrap({"code": code, "message": "no", "data": {"retryable": True}}))

    error = failure(body, http_status=http_status)

    assert type(error) is kind
    assert (error.code, error.executed, error.transient) == (code, None, True)


@pytest.mark.parametrize("operation", UNARY, ids=lambda operation: operation.name)
def test_a_json_rpc_error_under_status_200_is_an_error(operation):
    error = {"code": -32601, "message": "no such method"}

    assert failure(as_json({"error": error}), operation).code == -32601
    envelope = {"jsonrpc": "2.0", "id": "1", "error": error}
    assert failure(as_json(envelope), operation).code == -32601


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (b"", A2AHTTPError),
        (b"not found", A2AHTTPError),
        (b"<html>not found</html>", A2AHTTPError),
        (b'{"detail":"Not Found"}', A2AHTTPError),
        (b'{"error":"not_found"}', A2AHTTPError),
        (b'{"error":{"reason":"gone"}}', A2AHTTPError),
        (b'{"error":[]}', A2AHTTPError),
        (b'{"code":"ENOENT"}', A2AHTTPError),
        (b'{"type":"https://a2a-protocol.org/errors/task-not-found"}', TaskNotFoundError),
        (b"[" * 100_000, A2AHTTPError),
        (b'{"error":' * 100_000, A2AHTTPError),
    ],
)
def test_any_body_under_an_error_status_is_an_error(body, kind):
    error = failure(body, http_status=404)

    assert type(error) is kind
    assert error.executed is (False if kind is A2AHTTPError else None)


@pytest.mark.parametrize("body", SPOKEN.values(), ids=SPOKEN)
@pytest.mark.parametrize("http_status", [429, 503])
def test_a_refusal_with_an_agents_body_may_have_been_executed(body, http_status):
    error = failure(body, http_status=http_status, headers={"retry-after": "1"})

    assert error.executed is None


# ── Malformed replies ────────────────────────────────────────────────────────────────────────

NO_REPLIES = {
    "empty": b"",
    "text": b"ok",
    "HTML": b"<!doctype html><html></html>",
    "half": b'{"id":"t"',
    "list": b"[]",
    "null": b"null",
    "number": b"7",
    "something else": b'{"status":"ok"}',  # a GET to a wrong path
    "wrong type": b'{"id":7}',
    "odd error": b'{"error":"no"}',
    "error without code": b'{"error":{"message":"no"}}',
    "too deep": b'{"id":"t","metadata":{"a":%s}}' % (b"[" * 100_000),
    "too deep with an error": b'{"error":%s}' % (b"[" * 100_000),
    "too large a number": b'{"id":"t","metadata":{"n":%s}}' % (b"9" * 5000),
    "bad text": b'{"id":"\xff"}',
}


@pytest.mark.parametrize("body", NO_REPLIES.values(), ids=NO_REPLIES)
@pytest.mark.parametrize("http_status", [200, 202])
def test_a_malformed_reply_is_invalid_and_quoted(body, http_status):
    headers = {"content-type": "text/html", "set-cookie": "s=1"}

    error = failure(body, http_status=http_status, headers=headers)

    assert type(error) is InvalidAgentResponseError
    assert (error.code, error.http_status) == (None, http_status)
    assert (error.executed, error.transient) == (None, False)
    assert error.headers == {"content-type": "text/html"}
    assert len(error.excerpt) <= 200
    assert bool(error.excerpt) == bool(body)


def test_an_invalid_member_is_named():
    error = failure(b'{"id":"t","history":[{"role":[]}]}')

    assert "history[0].role" in str(error)
    assert "GetTask" in str(error)


# ── Fuzz ─────────────────────────────────────────────────────────────────────────────────────

bodies = (
    st.binary(max_size=80)
    | json_values.map(as_json)
    | error_objects.map(as_json)
    | error_objects.map(lambda error: as_json({"error": error}))
    | error_objects.map(lambda error: as_json({"jsonrpc": "2.0", "id": "r", "error": error}))
    | tasks.map(lambda task: as_json({**task.to_dict(), "error": None}))
    | tasks.map(lambda task: as_json({"task": task.to_dict()}))
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
