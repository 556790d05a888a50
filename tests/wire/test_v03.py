"""Protocol 0.3 on the wire: requests, and the classification of replies."""

import contextlib
import json
from urllib.parse import parse_qs, urlsplit

import msgspec
import pytest
from hypothesis import strategies as st
from tests.kit.strategies import (
    any_text,
    events,
    given,
    http_headers,
    http_statuses,
    json_values,
    messages,
    tasks,
)

from holdfast import connect
from holdfast import protocol as op
from holdfast._model.card_reading import read_card
from holdfast._testing.parsed_request_v03 import V03BytesParsedRequest
from holdfast._wire import v03
from holdfast._wire.bindings import codec_for
from holdfast.errors import (
    A2AError,
    A2AHTTPError,
    AuthenticationError,
    ExtendedAgentCardNotConfiguredError,
    InternalError,
    InvalidAgentCardError,
    InvalidAgentResponseError,
    InvalidParamsError,
    MethodNotFoundError,
    PushNotificationNotSupportedError,
    TaskNotCancelableError,
    TaskNotFoundError,
    UnsupportedOperationError,
)
from holdfast.extend import HttpReply
from holdfast.testing import FakeAgent, FakeNetwork
from holdfast.types import (
    AuthenticationInfo,
    CancelTaskRequest,
    GetExtendedAgentCardRequest,
    GetTaskPushNotificationConfigRequest,
    GetTaskRequest,
    ListTaskPushNotificationConfigsRequest,
    ListTaskPushNotificationConfigsResponse,
    ListTasksRequest,
    Message,
    Part,
    Role,
    SendMessageConfiguration,
    SendMessageRequest,
    SendMessageResponse,
    SubscribeToTaskRequest,
    Task,
    TaskPushNotificationConfig,
    TaskState,
)

NOW = 1_445_412_480.0
REQUEST_ID = "r-1"
URL = "http://agent.test/a"
BINDINGS = ["JSONRPC", "HTTP+JSON"]

both_bindings = pytest.mark.parametrize("binding", BINDINGS)


def encoded(binding, operation, params):
    return codec_for(binding, "0.3").encode(operation, params, URL, REQUEST_ID)


def body_of(binding, operation, params):
    body = json.loads(encoded(binding, operation, params).body)
    return body["params"] if binding == "JSONRPC" else body


def decoded(binding, operation, document, *, status=200):
    body = document if isinstance(document, bytes) else json.dumps(document).encode()
    reply = HttpReply(status=status, headers={}, body=body)
    return codec_for(binding, "0.3").decode(
        operation, REQUEST_ID, reply, now=NOW, refusals=frozenset({404, 405})
    )


def result(binding, operation, document):
    if binding == "JSONRPC":
        document = {"jsonrpc": "2.0", "id": REQUEST_ID, "result": document}
    return decoded(binding, operation, document)


def wire(binding, operation, params=None):
    is_rpc = binding == "JSONRPC"
    return V03BytesParsedRequest(operation.name, params, rpc_id=REQUEST_ID, is_rpc=is_rpc)


# ── Round trips ──────────────────────────────────────────────────────────────────────────────


def in_words_of_0_3(value):
    """Return a value without members that 0.3 cannot express."""
    if isinstance(value, Part):
        is_file = value.raw is not None or value.url is not None
        return msgspec.structs.replace(
            value,
            metadata=value.metadata or None,
            filename=value.filename or None if is_file else None,
            media_type=value.media_type or None if is_file else None,
        )
    if isinstance(value, tuple):
        return tuple(map(in_words_of_0_3, value))
    if not isinstance(value, msgspec.Struct):
        return value
    changed = {
        name: in_words_of_0_3(getattr(value, name))
        for name in value.__struct_fields__
        if name not in {"metadata", "timestamp"}
    }
    for name in ("context_id", "name", "description"):
        if name in changed:
            changed[name] = changed[name] or None
    if isinstance(value, Message):
        changed["task_id"] = changed["task_id"] or None
        if changed["role"] not in {Role.USER, Role.AGENT}:
            changed["role"] = Role.AGENT
    state = changed.get("state")
    if state is not None and state not in list(TaskState):
        changed["state"] = TaskState.WORKING
    return msgspec.structs.replace(value, **changed)


@both_bindings
@given(event=events, max_examples=150)
def test_an_event_is_converted_to_the_model(binding, event):
    event = in_words_of_0_3(event)
    data = wire(binding, op.SEND_STREAMING_MESSAGE).answer(event).body
    codec = codec_for(binding, "0.3")

    slow = decoded(binding, op.SEND_STREAMING_MESSAGE, data)
    fast = codec.reader(op.SEND_STREAMING_MESSAGE, REQUEST_ID)(data)

    assert slow.event == event.event
    assert fast is None or fast.event == event.event


@both_bindings
@given(task=tasks)
def test_a_task_is_converted_to_the_model(binding, task):
    task = in_words_of_0_3(task)

    for operation in (op.GET_TASK, op.CANCEL_TASK):
        assert decoded(binding, operation, wire(binding, operation).answer(task).body) == task
    response = SendMessageResponse(task=task)
    sent = wire(binding, op.SEND_MESSAGE).answer(response).body
    assert decoded(binding, op.SEND_MESSAGE, sent) == response


@both_bindings
@given(message=messages, at_once=st.booleans(), length=st.none() | st.integers(1, 99))
def test_a_message_is_converted_from_the_model(binding, message, at_once, length):
    message = in_words_of_0_3(message)
    if binding == "HTTP+JSON":
        message = msgspec.structs.replace(message, reference_task_ids=())
    own = SendMessageConfiguration(
        accepted_output_modes=("a/b",), history_length=length, return_immediately=at_once
    )

    document = body_of(
        binding, op.SEND_MESSAGE, SendMessageRequest(message=message, configuration=own)
    )
    read = wire(binding, op.SEND_MESSAGE, document).params()

    assert in_words_of_0_3(read.message) == message
    expected = msgspec.structs.replace(own, history_length=length or 10_000)
    assert read.configuration == expected


OTHER_BINDING = {"JSONRPC": "HTTP+JSON", "HTTP+JSON": "JSONRPC"}


def crossed(binding, operation, value):
    """Return the reply of an agent that uses the form of the other binding."""
    document = json.loads(wire(OTHER_BINDING[binding], operation).answer(value).body)
    return result(binding, operation, document if binding == "JSONRPC" else document["result"])


@both_bindings
@given(event=events)
def test_an_event_may_have_the_form_of_the_other_binding(binding, event):
    event = in_words_of_0_3(event)

    assert crossed(binding, op.SEND_STREAMING_MESSAGE, event).event == event.event


@both_bindings
@given(task=tasks)
def test_a_task_may_have_the_form_of_the_other_binding(binding, task):
    task = in_words_of_0_3(task)

    assert crossed(binding, op.GET_TASK, task) == task
    response = SendMessageResponse(task=task)
    assert crossed(binding, op.SEND_MESSAGE, response) == response


@both_bindings
def test_push_configurations_may_have_the_form_of_the_other_binding(binding):
    config = TaskPushNotificationConfig(task_id="t-1", id="c-1", url="http://x.test/push")
    configs = ListTaskPushNotificationConfigsResponse(configs=(config,))

    assert crossed(binding, op.GET_PUSH_CONFIG, config) == config
    assert crossed(binding, op.LIST_PUSH_CONFIGS, configs) == configs


# ── Garbage ──────────────────────────────────────────────────────────────────────────────────

EVENT_NAMES = (
    "kind id contextId status artifacts history metadata messageId role parts content taskId "
    "final artifact append task message msg statusUpdate artifactUpdate code"
)
CARD_NAMES = (
    "preferredTransport additionalInterfaces protocolVersion supportedInterfaces capabilities "
    "securitySchemes security skills supportsAuthenticatedExtendedCard signatures"
)


def members_of(names, values, **options):
    return st.dictionaries(st.sampled_from(names), values, **options)


words_of_0_3 = st.sampled_from(["task", "message", "status-update", "working", "user", 2])
near_events = members_of(EVENT_NAMES.split(), json_values | words_of_0_3, max_size=8)
near_values = (
    json_values
    | st.dictionaries(any_text, json_values, max_size=2)
    | st.lists(members_of(["url", "transport", "k"], json_values), max_size=3)
)
near_cards = members_of(CARD_NAMES.split(), near_values, max_size=6)


@both_bindings
@given(
    operation=st.sampled_from([*op.OPERATIONS.values()]),
    document=near_events | json_values | st.lists(near_events, max_size=2),
    reply=st.builds(HttpReply, status=http_statuses, headers=http_headers),
    raw=st.none() | st.binary(max_size=60),
    max_examples=300,
)
def test_any_reply_is_a_value_or_an_a2a_error(binding, operation, document, reply, raw):
    if binding == "JSONRPC":
        document = {"jsonrpc": "2.0", "id": REQUEST_ID, "result": document}
    body = json.dumps(document).encode() if raw is None else raw
    codec, reply = codec_for(binding, "0.3"), msgspec.structs.replace(reply, body=body)
    with contextlib.suppress(A2AError):
        codec.decode(operation, REQUEST_ID, reply, now=NOW, refusals=frozenset())
    if operation.streaming:
        codec.reader(operation, REQUEST_ID)(body)


@given(card=near_cards, url=st.just("http://agent.test/") | json_values, max_examples=300)
def test_any_card_is_a_card_or_an_a2a_error(card, url):
    with contextlib.suppress(InvalidAgentCardError):
        assert read_card({"name": "Any", "url": url, **card}).supported_interfaces


# ── Requests ─────────────────────────────────────────────────────────────────────────────────

MESSAGE = Message(
    message_id="m",
    role=Role.USER,
    parts=(
        Part(text="hi"),
        Part(raw=b"\x00\xff", filename="a.bin", media_type="a/b"),
        Part(url="http://x.test/f"),
        Part(data={"n": 1}),
        Part(data=[1]),
    ),
    context_id="c",
)


def test_a_message_is_sent_over_json_rpc():
    request = encoded("JSONRPC", op.SEND_MESSAGE, SendMessageRequest(message=MESSAGE))

    assert (request.method, request.url, request.headers["content-type"]) == (
        "POST",
        URL,
        "application/json",
    )
    assert json.loads(request.body) == {
        "jsonrpc": "2.0",
        "id": REQUEST_ID,
        "method": "message/send",
        "params": {
            "message": {
                "kind": "message",
                "messageId": "m",
                "role": "user",
                "contextId": "c",
                "parts": [
                    {"kind": "text", "text": "hi"},
                    {
                        "kind": "file",
                        "file": {"bytes": "AP8=", "name": "a.bin", "mimeType": "a/b"},
                    },
                    {"kind": "file", "file": {"uri": "http://x.test/f"}},
                    {"kind": "data", "data": {"n": 1}},
                    {
                        "kind": "data",
                        "data": {"value": [1]},
                        "metadata": {"data_part_compat": True},
                    },
                ],
            },
            "configuration": {"blocking": True, "historyLength": 10_000},
        },
    }


def test_a_message_is_sent_over_http_json():
    request = encoded("HTTP+JSON", op.SEND_STREAMING_MESSAGE, SendMessageRequest(message=MESSAGE))

    assert (request.method, request.url) == ("POST", f"{URL}/v1/message:stream")
    assert request.headers == {
        "content-type": "application/json",
        "accept": "text/event-stream, application/json",
    }
    assert json.loads(request.body) == {
        "message": {
            "messageId": "m",
            "role": "ROLE_USER",
            "contextId": "c",
            "content": [
                {"text": "hi"},
                {
                    "file": {
                        "fileWithBytes": "AP8=",
                        "name": "a.bin",
                        "mimeType": "a/b",
                    }
                },
                {"file": {"fileWithUri": "http://x.test/f"}},
                {"data": {"data": {"n": 1}}},
                {"data": {"data": {"value": [1]}}, "metadata": {"data_part_compat": True}},
            ],
        },
        "configuration": {"blocking": True, "historyLength": 10_000},
    }


@both_bindings
@pytest.mark.parametrize("at_once", [False, True])
def test_blocking_is_always_sent(binding, at_once):
    own = SendMessageConfiguration(return_immediately=at_once)
    request = SendMessageRequest(message=MESSAGE, configuration=own)

    assert body_of(binding, op.SEND_MESSAGE, request)["configuration"]["blocking"] is not at_once


@pytest.mark.parametrize(("length", "sent"), [(None, 10_000), (7, 7), (0, 0)])
def test_the_history_length_is_always_sent(length, sent):
    request = GetTaskRequest(id="t", history_length=length)
    rest_request = encoded("HTTP+JSON", op.GET_TASK, request)

    assert body_of("JSONRPC", op.GET_TASK, request) == {"id": "t", "historyLength": sent}
    assert parse_qs(urlsplit(rest_request.url).query) == {"historyLength": [str(sent)]}
    assert urlsplit(rest_request.url).path == "/a/v1/tasks/t"


def test_tasks_are_listed_by_limit_and_cursor():
    request = ListTasksRequest(
        context_id="c", status=TaskState.INPUT_REQUIRED, page_size=5, page_token="next"
    )

    assert body_of("JSONRPC", op.LIST_TASKS, request) == {
        "contextId": "c",
        "status": "input-required",
        "limit": 5,
        "cursor": "next",
    }
    query = parse_qs(urlsplit(encoded("HTTP+JSON", op.LIST_TASKS, request).url).query)
    assert (query["status"], query["limit"]) == (["TASK_STATE_INPUT_REQUIRED"], ["5"])


CONFIG = TaskPushNotificationConfig(
    task_id="t",
    id="p",
    url="http://me.test",
    token="tok",
    authentication=AuthenticationInfo(scheme="Bearer", credentials="cred"),
)
CONFIG_DOCUMENT = {
    "id": "p",
    "url": "http://me.test",
    "token": "tok",
    "authentication": {"schemes": ["Bearer"], "credentials": "cred"},
}
NAME = "tasks/t/pushNotificationConfigs/p"


def test_a_push_configuration_has_the_form_of_each_binding():
    rest_request = encoded("HTTP+JSON", op.CREATE_PUSH_CONFIG, CONFIG)

    assert body_of("JSONRPC", op.CREATE_PUSH_CONFIG, CONFIG) == {
        "taskId": "t",
        "pushNotificationConfig": CONFIG_DOCUMENT,
    }
    assert rest_request.url == f"{URL}/v1/tasks/t/pushNotificationConfigs"
    assert json.loads(rest_request.body) == {
        "parent": "tasks/t",
        "configId": "p",
        "config": {"name": NAME, "pushNotificationConfig": CONFIG_DOCUMENT},
    }
    request = GetTaskPushNotificationConfigRequest(task_id="t", id="p")
    assert encoded("HTTP+JSON", op.GET_PUSH_CONFIG, request).url.endswith(f"/v1/{NAME}")
    assert body_of("JSONRPC", op.GET_PUSH_CONFIG, request) == {
        "id": "t",
        "pushNotificationConfigId": "p",
    }
    of_message = SendMessageRequest(
        message=MESSAGE,
        configuration=SendMessageConfiguration(task_push_notification_config=CONFIG),
    )
    for binding, name in zip(
        BINDINGS, ["pushNotificationConfig", "pushNotification"], strict=True
    ):
        document = body_of(binding, op.SEND_MESSAGE, of_message)
        assert document["configuration"][name] == CONFIG_DOCUMENT


@pytest.mark.parametrize(
    ("binding", "operation", "params"),
    [
        (
            "HTTP+JSON",
            op.SEND_MESSAGE,
            SendMessageRequest(message=Message(reference_task_ids=("t",))),
        ),
        ("HTTP+JSON", op.CANCEL_TASK, CancelTaskRequest(id="t", metadata={"a": 1})),
        ("JSONRPC", op.LIST_TASKS, ListTasksRequest(status_timestamp_after="2026")),
    ],
)
def test_a_request_that_0_3_cannot_express_is_named_and_not_sent(binding, operation, params):
    with pytest.raises(UnsupportedOperationError, match=r"0\.3 does not support") as caught:
        encoded(binding, operation, params)

    assert caught.value.executed is False


@pytest.mark.parametrize("operation", op.OPERATIONS.values(), ids=lambda operation: operation.name)
def test_every_operation_of_0_3_has_a_row(operation):
    assert operation.name in v03._RPC_ROWS


# ── Replies ──────────────────────────────────────────────────────────────────────────────────

STATUS = {"state": "completed"}


@both_bindings
@pytest.mark.parametrize(
    ("written", "state"),
    [
        ("submitted", TaskState.SUBMITTED),
        ("input-required", TaskState.INPUT_REQUIRED),
        ("auth-required", TaskState.AUTH_REQUIRED),
        ("canceled", TaskState.CANCELED),
        ("unknown", TaskState.UNSPECIFIED),
        ("TASK_STATE_CANCELLED", TaskState.CANCELED),
        ("TASK_STATE_WORKING", TaskState.WORKING),
        (3, TaskState.COMPLETED),
        (5.0, TaskState.CANCELED),
        (99, TaskState("99")),
        ("paused", TaskState("paused")),
        (None, TaskState.UNSPECIFIED),
        (True, TaskState.UNSPECIFIED),
    ],
)
def test_states_are_read_in_every_form(binding, written, state):
    task = result(binding, op.GET_TASK, {"id": "t", "status": {"state": written}})

    assert task.state == state


@both_bindings
@pytest.mark.parametrize(
    ("document", "kind"),
    [
        ({"kind": "task", "id": "t", "contextId": "c", "status": STATUS}, "task"),
        ({"id": "t", "status": STATUS}, "task"),
        ({"task": {"id": "t"}}, "task"),
        ({"kind": "message", "messageId": "m", "role": "agent", "parts": []}, "message"),
        ({"messageId": "m", "role": 2, "content": [{"text": "a"}]}, "message"),
        ({"msg": {"messageId": "m", "role": "ROLE_AGENT"}}, "message"),
        ({"message": {"messageId": "m"}}, "message"),
        ({"kind": "status-update", "taskId": "t", "status": STATUS}, "status_update"),
        ({"taskId": "t", "status": STATUS, "final": True}, "status_update"),
        ({"kind": "status-update", "id": "x", "status": STATUS}, "status_update"),
        ({"statusUpdate": {"taskId": "t", "status": STATUS}}, "status_update"),
        ({"kind": "artifact-update", "artifact": {"artifactId": "a"}}, "artifact_update"),
        ({"taskId": "t", "artifact": {"parts": None}, "append": None}, "artifact_update"),
        ({"artifactUpdate": {"artifact": {"artifactId": "a"}}}, "artifact_update"),
        ({"kind": "something-new"}, None),
        ({}, None),
    ],
)
def test_an_event_is_recognized_by_its_kind_or_its_members(binding, document, kind):
    event = result(binding, op.SUBSCRIBE_TO_TASK, document)

    names = ("task", "message", "status_update", "artifact_update")
    assert [name for name in names if getattr(event, name) is not None] == ([kind] if kind else [])


@both_bindings
@pytest.mark.parametrize("document", [{}, {"taskId": "t", "status": STATUS}, {"kind": "x"}, []])
def test_the_response_to_a_message_is_a_task_or_a_message(binding, document):
    with pytest.raises(InvalidAgentResponseError) as caught:
        result(binding, op.SEND_MESSAGE, document)

    assert caught.value.executed is None


@pytest.mark.parametrize(
    ("part", "read"),
    [
        ({"kind": "file", "file": {"bytes": "AP8="}}, Part(raw=b"\x00\xff")),
        ({"kind": "file", "file": {"bytes": "AP8"}}, Part(raw=b"\x00\xff")),
        ({"file": {"fileWithBytes": "QVA4PQ=="}}, Part(raw=b"AP8=")),
        ({"file": {"fileWithBytes": "AP8="}}, Part(raw=b"\x00\xff")),
        ({"file": {"fileWithUri": "u", "mimeType": "a/b"}}, Part(url="u", media_type="a/b")),
        ({"kind": "data", "data": {"data": {"n": 1}}}, Part(data={"data": {"n": 1}})),
        ({"data": {"data": {"n": 1}}}, Part(data={"n": 1})),
        ({"data": {"n": 1}}, Part(data={"n": 1})),
        (
            {"kind": "data", "data": {"value": None}, "metadata": {"data_part_compat": True}},
            Part(data=None),
        ),
        ({"text": "a", "metadata": {"n": 1}}, Part(text="a", metadata={"n": 1})),
        ({"kind": "new"}, Part()),
    ],
)
@both_bindings
def test_a_part_is_read_in_every_form(binding, part, read):
    message = result(binding, op.SEND_MESSAGE, {"messageId": "m", "parts": [part]}).message

    assert message.parts == (read,)


@pytest.mark.rule("S26")
@both_bindings
def test_s26_an_integer_stays_an_integer(binding):
    part = {"kind": "data", "data": {"n": 1, "big": 2**70, "f": 1.5}}
    message = result(binding, op.SEND_MESSAGE, {"messageId": "m", "parts": [part]}).message

    assert message.parts[0].data == {"n": 1, "big": 2**70, "f": 1.5}
    assert isinstance(message.parts[0].data["n"], int)


@both_bindings
@pytest.mark.parametrize("page", [{"nextCursor": "n"}, {"nextPageToken": "n"}, {}])
def test_a_page_of_tasks_is_read(binding, page):
    response = result(binding, op.LIST_TASKS, {"tasks": [{"id": "t", "status": STATUS}], **page})

    assert [task.state for task in response.tasks] == [TaskState.COMPLETED]
    assert response.next_page_token == ("n" if page else "")


def test_lists_may_be_bare():
    task, config = {"id": "t", "status": STATUS}, {"name": NAME, "pushNotificationConfig": {}}

    assert result("HTTP+JSON", op.LIST_TASKS, [task]).tasks[0].id == "t"
    [config_found] = result("HTTP+JSON", op.LIST_PUSH_CONFIGS, [config]).configs
    assert (config_found.task_id, config_found.id) == ("t", "p")
    document = {"taskId": "t", "pushNotificationConfig": CONFIG_DOCUMENT}
    assert result("JSONRPC", op.LIST_PUSH_CONFIGS, [document]).configs == (CONFIG,)
    assert decoded("HTTP+JSON", op.DELETE_PUSH_CONFIG, b"") is not None


# ── Errors ───────────────────────────────────────────────────────────────────────────────────


def refused(binding, operation, document, *, status=200):
    with pytest.raises(A2AError) as caught:
        decoded(binding, operation, document, status=status)
    return caught.value


@pytest.mark.parametrize(
    ("operation", "status", "kind", "code"),
    [
        (op.GET_TASK, 404, TaskNotFoundError, -32001),
        (op.CANCEL_TASK, 409, TaskNotCancelableError, -32002),
        (op.SEND_MESSAGE, 501, UnsupportedOperationError, -32004),
        (op.CREATE_PUSH_CONFIG, 501, PushNotificationNotSupportedError, -32003),
        (op.SEND_MESSAGE, 422, InvalidParamsError, -32602),
        (op.SEND_MESSAGE, 500, InternalError, -32603),
        (op.SUBSCRIBE_TO_TASK, 422, UnsupportedOperationError, -32602),
        (op.GET_EXTENDED_AGENT_CARD, 404, ExtendedAgentCardNotConfiguredError, -32007),
    ],
)
def test_an_official_servers_status_determines_the_error(operation, status, kind, code):
    error = refused("HTTP+JSON", operation, {"message": "so it is"}, status=status)

    assert type(error) is kind
    assert (error.code, error.http_status, error.executed) == (code, status, None)
    assert "so it is" in str(error)


@pytest.mark.parametrize(
    ("document", "status", "kind"),
    [
        ({"detail": "Not Found"}, 404, A2AHTTPError),
        (b"<html>", 502, A2AHTTPError),
        ({"message": {"a": 1}}, 404, A2AHTTPError),
        ({"error": "unauthorized"}, 401, AuthenticationError),
        ({"message": "no"}, 401, AuthenticationError),
        ({"message": "Bad Gateway"}, 502, A2AHTTPError),
        ({"code": -32001, "message": "no"}, 404, TaskNotFoundError),
        ({"error": {"code": -32002, "message": "no"}}, 400, TaskNotCancelableError),
        ({"jsonrpc": "2.0", "error": {"code": -32602, "message": "no"}}, 200, InvalidParamsError),
    ],
)
def test_errors_of_other_servers_are_read_as_in_1_0(document, status, kind):
    assert type(refused("HTTP+JSON", op.GET_TASK, document, status=status)) is kind


def rpc_error(code):
    return {"jsonrpc": "2.0", "id": REQUEST_ID, "error": {"code": code, "message": "no"}}


@pytest.mark.parametrize(
    ("operation", "code", "kind"),
    [
        (op.GET_TASK, -32001, TaskNotFoundError),
        (op.GET_TASK, -32601, MethodNotFoundError),
        (op.SEND_MESSAGE, -32602, InvalidParamsError),
        (op.SUBSCRIBE_TO_TASK, -32602, UnsupportedOperationError),
        (op.LIST_TASKS, -32601, UnsupportedOperationError),
        (op.DELETE_PUSH_CONFIG, -32601, UnsupportedOperationError),
        (op.GET_EXTENDED_AGENT_CARD, -32601, UnsupportedOperationError),
    ],
)
def test_a_json_rpc_error_is_read(operation, code, kind):
    assert type(refused("JSONRPC", operation, rpc_error(code))) is kind


@pytest.mark.parametrize(
    ("binding", "document", "status"),
    [
        ("JSONRPC", rpc_error(-32601), 200),
        ("JSONRPC", rpc_error(-32004), 200),
        ("HTTP+JSON", {"detail": "Not Found"}, 404),
        ("HTTP+JSON", {"message": "no such path"}, 404),
        ("HTTP+JSON", {"message": "unknown exception"}, 500),
        ("HTTP+JSON", b"", 405),
    ],
)
def test_an_agent_without_a_list_of_tasks_is_named(binding, document, status):
    error = refused(binding, op.LIST_TASKS, document, status=status)

    assert type(error) is UnsupportedOperationError
    assert "ListTasks (tasks/list), which is optional in protocol 0.3" in str(error)
    assert (error.executed, error.transient) == (False, False)


def test_a_request_without_parameters_has_none():
    request = GetExtendedAgentCardRequest()
    assert body_of("JSONRPC", op.GET_EXTENDED_AGENT_CARD, request) == {}
    assert encoded("HTTP+JSON", op.GET_EXTENDED_AGENT_CARD, request).url == f"{URL}/v1/card"
    listing = ListTaskPushNotificationConfigsRequest(task_id="t")
    assert body_of("JSONRPC", op.LIST_PUSH_CONFIGS, listing) == {"id": "t"}
    assert body_of("JSONRPC", op.SUBSCRIBE_TO_TASK, SubscribeToTaskRequest(id="t")) == {"id": "t"}


@pytest.mark.parametrize("binding", ["JSONRPC", "HTTP+JSON"])
async def test_an_operation_that_0_3_does_not_have_is_refused_before_it_is_sent(binding):
    archive = op.Operation(
        name="ArchiveTask",
        request=GetTaskRequest,
        response=Task,
        safety="idempotent",
        verb="POST",
        path="/tasks/{id}:archive",
    )
    agent = FakeAgent(versions=("0.3",))
    client = connect(agent.url, engine=FakeNetwork(agent), bindings=[binding])

    with pytest.raises(UnsupportedOperationError, match=r"protocol 0\.3 has no ArchiveTask") as e:
        await client.call(archive, GetTaskRequest(id="t"))

    assert (e.value.executed, e.value.transient) == (False, False)
    assert {request.operation for request in agent.received} == {"GetAgentCard"}
