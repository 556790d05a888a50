"""Messages over gRPC equal those of the official classes, in both versions."""

import pytest
from a2a.compat.v0_3 import a2a_v0_3_pb2 as pb03
from a2a.types import a2a_pb2 as pb
from google.protobuf import json_format
from google.protobuf.message import DecodeError
from hypothesis import strategies as st
from tests.kit.proto_strategies import protos, values
from tests.kit.strategies import given, parts, short_text

from holdfast import protocol as op
from holdfast._integrations.a2a_sdk.messages import to_proto, to_value
from holdfast._model.codec import MalformedError
from holdfast._wire import v03
from holdfast._wire.grpc import CODECS
from holdfast.errors import (
    A2AError,
    InvalidAgentResponseError,
    LimitExceededError,
    UnsupportedOperationError,
)
from holdfast.extend import HttpReply
from holdfast.policies import Limits
from holdfast.protocol import OPERATIONS
from holdfast.types import (
    CancelTaskRequest,
    DeleteTaskPushNotificationConfigRequest,
    Empty,
    GetTaskPushNotificationConfigRequest,
    GetTaskRequest,
    ListTaskPushNotificationConfigsRequest,
    ListTasksRequest,
    Message,
    Part,
    Role,
    SendMessageConfiguration,
    SendMessageRequest,
    SubscribeToTaskRequest,
    TaskPushNotificationConfig,
    TaskState,
)

NEW, OLD = CODECS["1.0"], CODECS["0.3"]
LIMITS = Limits()
ANSWERING = [each for each in OPERATIONS.values() if each.response is not Empty]
IN_03 = [each for each in ANSWERING if each.name in OLD.rows]


def named(operation):
    return operation.name


def outcome(read):
    """Return the decoded value, or the class of the error."""
    try:
        return read()
    except A2AError as error:
        return type(error)


# ── 1.0 ──────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("operation", OPERATIONS.values(), ids=named)
def test_requests_are_readable_by_the_official_classes(operation):
    @given(params=values(operation.request), max_examples=25)
    def check(params):
        encoded = NEW.encode(operation, params)

        official = getattr(pb, operation.request.__name__)
        assert encoded.method == f"/lf.a2a.v1.A2AService/{operation.name}"
        assert official.FromString(encoded.body) == to_proto(params, official)

    check()


@pytest.mark.parametrize("operation", ANSWERING, ids=named)
def test_replies_of_the_official_classes_are_decoded(operation):
    @given(message=protos(getattr(pb, operation.response.__name__)), max_examples=25)
    def check(message):
        expected = to_value(message, operation.response)
        tasks = getattr(expected, "tasks", [getattr(expected, "task", None)])
        lacks_id = any(task is not None and not task.id for task in tasks)

        read = outcome(lambda: NEW.decode(operation, message.SerializeToString(), limits=LIMITS))
        assert read == (InvalidAgentResponseError if lacks_id else expected)

    check()


def test_an_empty_reply_is_accepted_for_empty_responses_only():
    assert NEW.decode(op.DELETE_PUSH_CONFIG, b"", limits=LIMITS) == Empty()
    assert OLD.decode(op.DELETE_PUSH_CONFIG, b"", limits=LIMITS) == Empty()
    for codec in (NEW, OLD):
        for operation in (op.SEND_MESSAGE, op.GET_TASK):
            with pytest.raises(InvalidAgentResponseError) as caught:
                codec.decode(operation, b"", limits=LIMITS)
            assert (caught.value.executed, caught.value.code) == (None, None)


@pytest.mark.parametrize(
    ("operation", "params", "path"),
    [
        (op.GET_TASK, GetTaskRequest(id="\ud800"), "id"),
        (op.GET_TASK, GetTaskRequest(id="t", history_length=2**31), "history_length"),
        (
            op.LIST_TASKS,
            ListTasksRequest(status_timestamp_after="yesterday"),
            "status_timestamp_after",
        ),
        (
            op.SEND_MESSAGE,
            SendMessageRequest(message=Message(parts=(Part(data={"a": [float("inf")]}),))),
            'message.parts[0].data["a"][0]',
        ),
    ],
    ids=str,
)
def test_an_unrepresentable_value_is_named_and_not_sent(operation, params, path):
    with pytest.raises(MalformedError) as caught:
        NEW.encode(operation, params)
    assert caught.value.path == path


@pytest.mark.parametrize("codec", [NEW, OLD], ids=["1.0", "0.3"])
def test_a_request_nested_too_deeply_is_not_sent(codec):
    data = {}
    for _ in range(60):
        data = {"a": data}
    message = Message(message_id="m", role=Role.USER, parts=(Part(data=data),))

    with pytest.raises(MalformedError, match="nested too deeply"):
        codec.encode(op.SEND_MESSAGE, SendMessageRequest(message=message))


# ── 0.3 ──────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("operation", IN_03, ids=named)
def test_a_reply_of_0_3_equals_its_json(operation):
    official = getattr(pb03, OLD.rows[operation.name].response)

    @given(message=protos(official), max_examples=40)
    def check(message):
        body = json_format.MessageToJson(message).encode()
        reply = HttpReply(status=200, body=body)

        read = outcome(lambda: OLD.decode(operation, message.SerializeToString(), limits=LIMITS))
        assert read == outcome(lambda: v03.decode_rest(operation, "1", reply, now=0.0))

    check()


official_03 = st.builds(
    SendMessageRequest,
    message=st.builds(
        Message,
        message_id=short_text,
        role=st.sampled_from(Role),
        parts=st.lists(parts(), max_size=3).map(tuple),
        context_id=st.none() | short_text,
        task_id=st.none() | short_text,
        extensions=st.lists(short_text, max_size=2).map(tuple),
    ),
    configuration=st.none()
    | st.builds(
        SendMessageConfiguration,
        history_length=st.none() | st.integers(0, 100),
        return_immediately=st.booleans(),
        task_push_notification_config=st.none()
        | st.builds(TaskPushNotificationConfig, id=short_text, url=short_text),
    ),
)


@given(params=official_03)
def test_a_message_of_0_3_equals_its_json(params):
    try:
        written = OLD.encode(op.SEND_MESSAGE, params)
    except MalformedError:
        return  # a text that is no Unicode, which JSON can say

    over_http = v03.encode_rest(op.SEND_MESSAGE, params, "http://a", "1").body
    assert written.method == "/a2a.v1.A2AService/SendMessage"
    assert pb03.SendMessageRequest.FromString(written.body) == json_format.Parse(
        over_http, pb03.SendMessageRequest()
    )


@pytest.mark.parametrize(
    ("operation", "params", "method", "message"),
    [
        (
            op.GET_TASK,
            GetTaskRequest(id="t", history_length=3),
            "GetTask",
            pb03.GetTaskRequest(name="tasks/t", history_length=3),
        ),
        (
            op.CANCEL_TASK,
            CancelTaskRequest(id="t"),
            "CancelTask",
            pb03.CancelTaskRequest(name="tasks/t"),
        ),
        (
            op.SUBSCRIBE_TO_TASK,
            SubscribeToTaskRequest(id="t"),
            "TaskSubscription",
            pb03.TaskSubscriptionRequest(name="tasks/t"),
        ),
        (
            op.CREATE_PUSH_CONFIG,
            TaskPushNotificationConfig(id="c", task_id="t", url="http://r", token="s"),
            "CreateTaskPushNotificationConfig",
            pb03.CreateTaskPushNotificationConfigRequest(
                parent="tasks/t",
                config_id="c",
                config=pb03.TaskPushNotificationConfig(
                    name="tasks/t/pushNotificationConfigs/c",
                    push_notification_config=pb03.PushNotificationConfig(
                        id="c", url="http://r", token="s"
                    ),
                ),
            ),
        ),
        (
            op.GET_PUSH_CONFIG,
            GetTaskPushNotificationConfigRequest(task_id="t", id="c"),
            "GetTaskPushNotificationConfig",
            pb03.GetTaskPushNotificationConfigRequest(name="tasks/t/pushNotificationConfigs/c"),
        ),
        (
            op.LIST_PUSH_CONFIGS,
            ListTaskPushNotificationConfigsRequest(task_id="t"),
            "ListTaskPushNotificationConfig",
            pb03.ListTaskPushNotificationConfigRequest(parent="tasks/t"),
        ),
        (
            op.DELETE_PUSH_CONFIG,
            DeleteTaskPushNotificationConfigRequest(task_id="t", id="c"),
            "DeleteTaskPushNotificationConfig",
            pb03.DeleteTaskPushNotificationConfigRequest(name="tasks/t/pushNotificationConfigs/c"),
        ),
        (
            op.GET_EXTENDED_AGENT_CARD,
            op.GET_EXTENDED_AGENT_CARD.request(tenant="x"),
            "GetAgentCard",
            pb03.GetAgentCardRequest(),
        ),
    ],
    ids=lambda value: getattr(value, "name", ""),
)
def test_requests_of_0_3_have_resource_names(operation, params, method, message):
    encoded = OLD.encode(operation, params)

    assert encoded.method == f"/a2a.v1.A2AService/{method}"
    assert type(message).FromString(encoded.body) == message


@pytest.mark.parametrize(
    ("operation", "params"),
    [
        (op.LIST_TASKS, ListTasksRequest()),
        (op.CANCEL_TASK, CancelTaskRequest(id="t", metadata={"a": 1})),
        # Agents read a name as far as the next slash: this would be about another task.
        (op.GET_TASK, GetTaskRequest(id="t/u")),
        (op.CANCEL_TASK, CancelTaskRequest(id="t/u")),
        (op.SUBSCRIBE_TO_TASK, SubscribeToTaskRequest(id="t/u")),
        (op.CREATE_PUSH_CONFIG, TaskPushNotificationConfig(task_id="t/u", url="http://r")),
        (op.DELETE_PUSH_CONFIG, DeleteTaskPushNotificationConfigRequest(task_id="t", id="c/d")),
        (
            op.SEND_MESSAGE,
            SendMessageRequest(message=Message(message_id="m", reference_task_ids=("t",))),
        ),
    ],
    ids=str,
)
def test_requests_that_0_3_cannot_express_are_not_sent(operation, params):
    with pytest.raises(UnsupportedOperationError) as caught:
        OLD.encode(operation, params)
    assert caught.value.executed is False


def test_a_stream_of_0_3_marks_the_last_event():
    def event(state, *, final):
        update = pb03.TaskStatusUpdateEvent(
            task_id="t", status=pb03.TaskStatus(state=state), final=final
        )
        body = pb03.StreamResponse(status_update=update).SerializeToString()
        return OLD.decode(op.SEND_STREAMING_MESSAGE, body, limits=LIMITS)

    last_event = event(pb03.TASK_STATE_CANCELLED, final=True)

    assert last_event.status_update.status.state is TaskState.CANCELED
    assert OLD.is_last(last_event)
    assert not OLD.is_last(event(pb03.TASK_STATE_WORKING, final=True))
    assert not OLD.is_last(event(pb03.TASK_STATE_COMPLETED, final=False))


# ── Fuzz ─────────────────────────────────────────────────────────────────────────────────────


@given(
    body=st.binary(max_size=64),
    operation=st.sampled_from([*OPERATIONS.values()]),
    max_examples=200,
)
def test_any_bytes_are_a_value_or_an_a2a_error(body, operation):
    for codec in CODECS.values():
        if operation.name in codec.rows:
            outcome(lambda codec=codec: codec.decode(operation, body, limits=LIMITS))


@given(data=st.data(), max_examples=200)
def test_mutated_messages_are_decoded_like_the_official_classes(data):
    operation = data.draw(st.sampled_from(ANSWERING))
    official = getattr(pb, operation.response.__name__)
    body = bytearray(data.draw(protos(official)).SerializeToString())
    for _ in range(data.draw(st.integers(1, 3))):
        index = data.draw(st.integers(0, len(body)))
        body[index : index + 1] = data.draw(st.binary(max_size=2))

    check_as_official(operation, bytes(body))


def check_as_official(operation, body):
    official = getattr(pb, operation.response.__name__)
    read = outcome(lambda: NEW.decode(operation, body, limits=LIMITS))
    try:
        message = official.FromString(body)
    except DecodeError:
        assert read is InvalidAgentResponseError, body
    else:
        if read is not InvalidAgentResponseError:  # for want of an id, or because of a NaN
            assert read == to_value(message, operation.response)
    return read


UNUSUAL = {
    "a member in two pieces": b"\x1a\x02\x08\x02\x1a\x05\x12\x03\x0a\x01m",
    "a member twice": b"\x12\x01a\x12\x01b",
    "a member that is set and unset": b"\x12\x01a\x12\x00",
    "a member that is set to nothing": b"\x12\x00\x1a\x02\x08\x00",
    "both of two": b"\x22\x08\x22\x06\x0a\x01x\x1a\x01y",
    "both of two, in two pieces": b"\x22\x08\x22\x06\x22\x00\x0a\x00\x22\x00",
    "an unknown number": b"\xf8\x07\x01",
    "an unknown long number": b"\xf9\x07" + b"\x01" * 8,
    "an unknown short number": b"\xfd\x07" + b"\x01" * 4,
    "unknown bytes": b"\xfa\x07\x02xx",
    "an unknown group": b"\xfb\x07\x08\x01\xfc\x07",
    "a number where a text belongs": b"\x10\x07",
    "a long form of a number": b"\x1a\x04\x08\x82\x80\x00",
    "a long form of a length": b"\x12\x81\x00a",
    "a state below zero": b"\x1a\x0b\x08\xfe" + b"\xff" * 8 + b"\x01",
    "a state that is too large": b"\x1a\x07\x08\x82\x80\x80\x80\x80\x01",
    "an object with half an entry": b"\x32\x05\x0a\x03\x0a\x01k",
    "an object with the other half": b"\x32\x06\x0a\x04\x12\x02\x20\x01",
    "an object with a name twice": b"\x32\x0e" + b"\x0a\x05\x0a\x01k\x12\x00" * 2,
    "a value that is two": b"\x32\x0b\x0a\x09\x0a\x01k\x12\x04\x20\x01\x20\x00",
    "a time in another order": b"\x1a\x06\x1a\x04\x10\x01\x08\x01",
}


@pytest.mark.parametrize("body", UNUSUAL.values(), ids=UNUSUAL)
def test_unusual_encodings_are_decoded(body):
    read = check_as_official(op.GET_TASK, b"\x0a\x01t" + body)

    assert read is not InvalidAgentResponseError


@pytest.mark.parametrize(
    "body",
    [
        b"\x0a\x05t",
        b"\x0a\x01\xff",
        b"\x0a\x01t\x1a\x02\x12\x05\x0a\x03xyz",
        b"\x00\x01",
        b"\x08" + b"\xff" * 11,
        b"\x0a\x01t\xf0\x80\x80\x80\x30\x00",
        b"\x0a\x01t\x32\x05\x0a\x03\x0a\x01\xff",
        b"\x0a\x01t\x0c",
    ],
    ids=repr,
)
def test_malformed_messages_are_refused(body):
    assert check_as_official(op.GET_TASK, body) is InvalidAgentResponseError


def test_an_empty_text_is_present():
    flow = pb.ClientCredentialsOAuthFlow(scopes={"a": "", "": "b"})
    scheme = pb.SecurityScheme()
    scheme.oauth2_security_scheme.flows.client_credentials.CopyFrom(flow)
    card = pb.AgentCard(name="n", security_schemes={"x": scheme})

    read = NEW.decode(op.GET_EXTENDED_AGENT_CARD, card.SerializeToString(), limits=LIMITS)

    flows = read.security_schemes["x"].oauth2_security_scheme.flows
    assert flows.client_credentials.scopes == {"a": "", "": "b"}


def task_with(**members):
    return pb.Task(id="t", **members).SerializeToString()


@pytest.mark.parametrize(
    ("operation", "body", "limits", "which"),
    [
        (op.GET_TASK, task_with(context_id="c" * 100), Limits(body=100), "body"),
        (
            op.SEND_STREAMING_MESSAGE,
            pb.StreamResponse(task=pb.Task(id="t" * 100)).SerializeToString(),
            Limits(event=100),
            "event",
        ),
        (
            op.GET_EXTENDED_AGENT_CARD,
            pb.AgentCard(name="n" * 100).SerializeToString(),
            Limits(card=100),
            "card",
        ),
        (
            op.GET_TASK,
            task_with(artifacts=[pb.Artifact(artifact_id="a")] * 5),
            Limits(artifacts=4),
            "artifacts",
        ),
        (op.GET_TASK, task_with(history=[pb.Message()] * 5), Limits(history=4), "history"),
        (
            op.GET_TASK,
            task_with(artifacts=[pb.Artifact(parts=[pb.Part()] * 50)]),
            Limits(json_values=50),
            "json_values",
        ),
        (
            op.GET_TASK,
            task_with(metadata=json_format.ParseDict({"a": {"b": {}}}, pb.Task().metadata)),
            Limits(json_depth=3),
            "json_depth",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_message_that_exceeds_a_limit_names_the_limit(operation, body, limits, which):
    with pytest.raises(LimitExceededError) as caught:
        NEW.decode(operation, body, limits=limits)
    assert caught.value.which == which
    NEW.decode(operation, body, limits=LIMITS)


def test_too_many_values_are_refused_before_they_are_decoded():
    # Empty artifacts, and behind them no message at all.
    body = b"\x22\x00" * 2000 + b"\xff"

    with pytest.raises(LimitExceededError) as caught:
        NEW.decode(op.GET_TASK, body, limits=Limits(json_values=1000))
    assert caught.value.which == "json_values"
    with pytest.raises(InvalidAgentResponseError):
        NEW.decode(op.GET_TASK, body, limits=LIMITS)


def test_a_long_text_does_not_count_as_many_values():
    text = "x" * 1_000_001

    task = NEW.decode(
        op.GET_TASK,
        task_with(artifacts=[pb.Artifact(parts=[pb.Part(text=text)])]),
        limits=LIMITS,
    )

    assert task.text == text
