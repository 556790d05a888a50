"""The SDK's messages and Holdfast's values say the same, by the SDK's own JSON of them."""

import inspect as python_inspect
import json
import math
import sys
import time

import pytest
from a2a.types import a2a_pb2 as pb
from google.protobuf import descriptor_pool, json_format
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.message_factory import GetMessageClass
from msgspec import UNSET, inspect
from tests.kit.proto_strategies import completed, protos, values
from tests.kit.strategies import given

from holdfast._integrations.a2a_sdk.messages import to_card, to_params, to_proto, to_value
from holdfast._model import codec
from holdfast.errors import InvalidAgentResponseError
from holdfast.protocol import OPERATIONS
from holdfast.types import (
    AgentInterface,
    Artifact,
    Empty,
    GetTaskRequest,
    ListTasksRequest,
    ListTasksResponse,
    Message,
    Part,
    SendMessageConfiguration,
    SendMessageRequest,
    StreamResponse,
    Task,
    TaskState,
    TaskStatus,
)

REQUESTS = list(dict.fromkeys(operation.request for operation in OPERATIONS.values()))
RESPONSES = list(dict.fromkeys(o.response for o in OPERATIONS.values() if o.response is not Empty))
KINDS = list(dict.fromkeys([*REQUESTS, *RESPONSES, Message, Artifact, Part]))


def named(kind):
    return kind.__name__


def proto_of(kind):
    return getattr(pb, kind.__name__)


def sdk_json(message):
    """What the SDK's own transports send."""
    return json.dumps(json_format.MessageToDict(message)).encode()


def sdk_parsed(text, kind):
    """What the SDK's own transports make of a reply."""
    return json_format.ParseDict(json.loads(text), proto_of(kind)(), ignore_unknown_fields=True)


# ── Both say the same ────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("kind", KINDS, ids=named)
def test_a_message_becomes_what_its_json_is_read_as(kind):
    @given(message=protos(proto_of(kind)), max_examples=25)
    def check(message):
        read = to_value(message, kind)

        sent = completed(json_format.MessageToDict(message), kind)
        assert read == codec.decode(json.dumps(sent).encode(), kind)

    check()


@pytest.mark.parametrize("kind", KINDS, ids=named)
def test_what_holdfast_sends_for_a_message_is_that_message(kind):
    @given(message=protos(proto_of(kind)), max_examples=25)
    def check(message):
        value = to_value(message, kind)

        again = sdk_parsed(codec.encode(value), kind)
        sent = completed(json_format.MessageToDict(message), kind)
        assert again == sdk_parsed(json.dumps(sent), kind)
        assert to_proto(value, proto_of(kind)) == again

    check()


@pytest.mark.parametrize("kind", KINDS, ids=named)
def test_a_value_becomes_what_the_sdk_reads_in_its_json(kind):
    @given(value=values(kind), max_examples=25)
    def check(value):
        # As received: what a server leaves out is a default then, and the same object.
        value = codec.decode(codec.encode(value), kind)

        assert to_proto(value, proto_of(kind)) == sdk_parsed(codec.encode(value), kind)

    check()


@pytest.mark.parametrize("request_type", REQUESTS, ids=named)
def test_every_request_has_its_parameters(request_type):
    @given(message=protos(proto_of(request_type)), max_examples=10)
    def check(message):
        before = message.SerializeToString(deterministic=True)

        params = to_params(message)

        assert type(params) is request_type
        assert params == to_value(message, request_type)
        assert message.SerializeToString(deterministic=True) == before

    check()


def test_both_name_every_member_alike():
    seen, waiting = {}, list(KINDS)
    while waiting:
        kind = waiting.pop()
        if kind.__name__ in seen:
            continue
        fields = inspect.type_info(kind).fields
        seen[kind.__name__] = {field.name for field in fields}
        waiting += [one.cls for field in fields for one in parts_of(field.type)]

    assert seen == {
        name: set(message.fields_by_name)
        for name, message in pb.DESCRIPTOR.message_types_by_name.items()
    }


def parts_of(info):
    match info:
        case inspect.StructType():
            return [info]
        case inspect.UnionType():
            return [one for part in info.types for one in parts_of(part)]
        case inspect.VarTupleType():
            return parts_of(info.item_type)
        case inspect.DictType():
            return parts_of(info.value_type)
        case _:
            return []


# ── What is not set ──────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        (pb.GetTaskRequest(id="t"), GetTaskRequest(id="t")),
        (pb.GetTaskRequest(id="t", history_length=0), GetTaskRequest(id="t", history_length=0)),
        (pb.ListTasksRequest(), ListTasksRequest()),
        (
            pb.ListTasksRequest(page_size=0, include_artifacts=False),
            ListTasksRequest(page_size=0, include_artifacts=False),
        ),
        (
            pb.SendMessageRequest(
                message=pb.Message(), configuration=pb.SendMessageConfiguration()
            ),
            SendMessageRequest(message=Message(), configuration=SendMessageConfiguration()),
        ),
        (pb.SendMessageRequest(message=pb.Message()), SendMessageRequest(message=Message())),
    ],
    ids=str,
)
def test_what_is_not_set_stays_so_and_an_empty_member_stays_there(message, expected):
    assert to_params(message) == expected


def test_a_required_member_that_is_not_set_is_empty_and_the_agent_may_say_so():
    assert to_params(pb.GetTaskRequest()) == GetTaskRequest(id="")
    assert to_params(pb.SendMessageRequest()) == SendMessageRequest(message=Message())


def test_members_of_a_reply_are_there_only_if_they_were():
    bare = to_proto(codec.decode(b'{"id": "t"}', Task), pb.Task)
    empty = to_proto(codec.decode(b'{"id": "t", "status": {}, "metadata": {}}', Task), pb.Task)

    assert (bare.HasField("status"), bare.HasField("metadata")) == (False, False)
    assert (empty.HasField("status"), empty.HasField("metadata")) == (True, True)


@pytest.mark.parametrize(
    "part",
    [Part(text=""), Part(raw=b""), Part(url=""), Part(data=None), Part(data={}), Part(data=[])],
    ids=str,
)
def test_empty_content_is_content(part):
    message = to_proto(part, pb.Part)

    assert message.WhichOneof("content") is not None
    assert to_value(message, Part) == part


def test_a_part_without_content_has_none():
    assert to_proto(Part(), pb.Part).WhichOneof("content") is None
    assert to_value(pb.Part(), Part).data is UNSET


# ── Numbers, times, names ────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("double", "sent"),
    [
        (3.0, "3"),
        (-7.0, "-7"),
        (0.0, "0"),
        (-0.0, "-0.0"),
        (1.5, "1.5"),
        (2.0**53, "9007199254740992"),
        (2.0**53 + 2, "9007199254740994.0"),
        (-(2.0**70), "-1.1805916207174113e21"),
        (1e300, "1e300"),
    ],
)
def test_whole_numbers_of_a_struct_leave_as_integers(double, sent):
    request = pb.CancelTaskRequest(id="t")
    request.metadata["n"] = double

    text = to_params(request).to_json()

    number = text.removeprefix('{"id":"t","metadata":{"n":').removesuffix("}}")
    assert (number, math.copysign(1, float(number))) == (sent, math.copysign(1, double))
    assert float(number) == double


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
def test_what_is_no_number_of_json_is_refused_by_name(number):
    request = pb.SendMessageRequest()
    request.message.parts.add().text = "hello"
    values = request.message.parts.add().data.struct_value.fields["list"].list_value.values
    values.add().bool_value = True
    values.add().number_value = number

    with pytest.raises(ValueError, match=r'message\.parts\[1\]\.data\["list"\]\[1\]'):
        to_params(request)
    with pytest.raises(json_format.SerializeToJsonError):  # and so does the SDK
        json_format.MessageToDict(request)


@pytest.mark.parametrize("number", [10**400, -(10**400)])
def test_an_integer_that_no_double_holds_is_reported(number):
    with pytest.raises(InvalidAgentResponseError, match=r'out of range at metadata\["n"\]'):
        to_proto(Task(id="t", metadata={"n": number}), pb.Task)


def test_an_integer_that_its_field_does_not_hold_is_reported():
    with pytest.raises(InvalidAgentResponseError, match="at total_size"):
        to_proto(ListTasksResponse(total_size=2**40), pb.ListTasksResponse)


@pytest.mark.parametrize(
    ("text", "seconds", "nanos"),
    [
        ("1970-01-01T00:00:01Z", 1, 0),
        ("1970-01-01T00:00:01", 1, 0),
        ("1970-01-01T02:00:01+02:00", 1, 0),
        ("1970-01-01 00:00:01Z", 1, 0),
        ("1970-01-01T00:00:01.5Z", 1, 500_000_000),
        ("1970-01-01T00:00:01.000001Z", 1, 1_000),
        ("1970-01-01T00:00:01.123456789Z", 1, 123_456_789),
        ("1970-01-01T00:00:01.1234567Z", 1, 123_456_700),
        ("1970-01-01T00:00:01.1234567891234Z", 1, 123_456_789),
        ("1969-12-31T23:59:59.999999999Z", -1, 999_999_999),
        ("9999-12-31T23:59:59.999999999Z", 253402300799, 999_999_999),
        ("0001-01-01T00:00:00Z", -62135596800, 0),
    ],
)
def test_times_are_read_to_the_nanosecond(text, seconds, nanos):
    status = to_proto(TaskStatus(timestamp=text), pb.TaskStatus)

    assert (status.timestamp.seconds, status.timestamp.nanos) == (seconds, nanos)


@pytest.mark.parametrize(
    "text", ["", "yesterday", "2026-13-01T00:00:00Z", "0001-01-01T00:00:00+01:00", "1e9"]
)
def test_what_is_no_time_is_left_out_and_the_task_arrives(text):
    status = to_proto(TaskStatus(state=TaskState.WORKING, timestamp=text), pb.TaskStatus)

    assert not status.HasField("timestamp")
    assert status.state == pb.TASK_STATE_WORKING


def test_a_time_without_a_zone_is_in_utc_wherever_the_program_runs(monkeypatch):
    monkeypatch.setenv("TZ", "Asia/Kolkata")
    time.tzset()
    try:
        status = to_proto(TaskStatus(timestamp="1970-01-01T00:00:01"), pb.TaskStatus)
    finally:
        monkeypatch.undo()
        time.tzset()

    assert status.timestamp.seconds == 1


def test_a_time_out_of_range_is_refused_by_name():
    request = pb.ListTasksRequest()
    request.status_timestamp_after.seconds = 2**60

    with pytest.raises(ValueError, match="at status_timestamp_after"):
        to_params(request)


@pytest.mark.parametrize(
    ("state", "number"),
    [
        (TaskState.COMPLETED, pb.TASK_STATE_COMPLETED),
        (TaskState("TASK_STATE_NEW"), 0),
        (TaskState("77"), 77),
        (TaskState(str(2**40)), 0),
    ],
)
def test_states_that_the_sdk_does_not_know_keep_their_number_if_they_have_one(state, number):
    assert to_proto(TaskStatus(state=state), pb.TaskStatus).state == number


def test_numbers_of_states_that_holdfast_does_not_know_are_kept():
    assert to_params(pb.ListTasksRequest(status=77)).status == TaskState("77")


# ── What the other side has no form for ──────────────────────────────────────────────────────

LONE = "\ud800"


@pytest.mark.parametrize(
    ("value", "where"),
    [
        (Task(id=LONE), r"id$"),
        (Task(id="t", metadata={"a": [1, LONE]}), r'metadata\["a"\]\[1\]$'),
        (Task(id="t", metadata={LONE: 1}), r'metadata\["\\ud800"\]$'),
        (Task(id="t", artifacts=(Artifact(), Artifact(name=LONE))), r"artifacts\[1\]\.name$"),
        (Task(id="t", history=(Message(extensions=("x", LONE)),)), r"history\[0\]\.extensions$"),
        (
            Task(id="t", status=TaskStatus(message=Message(parts=(Part(text=LONE),)))),
            r"status\.message\.parts\[0\]\.text$",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_text_that_is_no_unicode_is_a_typed_error_with_its_place(value, where):
    with pytest.raises(InvalidAgentResponseError, match=where) as caught:
        to_proto(value, pb.Task)

    assert caught.value.executed is True
    str(caught.value).encode()


@pytest.mark.parametrize(
    "value",
    [
        Part(text="a", url="b"),
        Part(raw=b"", data={}),
        StreamResponse(task=Task(id="t"), message=Message()),
    ],
    ids=repr,
)
def test_two_where_one_belongs_are_refused_as_by_the_sdk(value):
    with pytest.raises(InvalidAgentResponseError, match="only one of them may be"):
        to_proto(value, proto_of(type(value)))
    with pytest.raises(json_format.ParseError):
        sdk_parsed(codec.encode(value), type(value))


def test_a_null_beside_other_content_is_no_data():
    part = codec.decode(b'{"text": "hello", "data": null}', Part)

    assert to_proto(part, pb.Part) == pb.Part(text="hello")


def nested(levels):
    value = {}
    for level in range(levels):
        value = {"a": value} if level % 2 else [value]
    return value


@pytest.mark.parametrize("levels", [40, 100])
def test_deep_json_arrives(levels):
    deep = {"deep": nested(levels - 1)}

    task = to_proto(Task(id="t", metadata=deep), pb.Task)

    assert to_value(task, Task).metadata == deep


@pytest.mark.parametrize("levels", [102, 50_000])
def test_json_that_is_too_deep_is_reported(levels):
    with pytest.raises(InvalidAgentResponseError, match="nested more than 100 levels deep"):
        to_proto(Task(id="t", metadata={"deep": nested(levels)}), pb.Task)


def test_a_struct_that_is_too_deep_is_reported():
    request = pb.CancelTaskRequest(id="t")
    struct = request.metadata
    for _ in range(200):
        struct = struct.fields["a"].struct_value

    with pytest.raises(ValueError, match=r'nested more than 100 levels deep at metadata\["a"\]'):
        to_params(request)


def deep_in_a_program(frames, call):
    return call() if frames == 0 else deep_in_a_program(frames - 1, call)


def test_program_with_a_deep_stack_gets_an_error_that_says_so():
    task = Task(id="t", metadata={"deep": nested(99)})
    message = to_proto(task, pb.Task)
    frames = sys.getrecursionlimit() - len(python_inspect.stack(0)) - 120

    with pytest.raises(InvalidAgentResponseError, match="nested too deeply"):
        deep_in_a_program(frames, lambda: to_proto(task, pb.Task))
    with pytest.raises(ValueError, match="nested too deeply"):
        deep_in_a_program(frames, lambda: to_value(message, Task))


def test_a_long_key_is_shortened_in_the_place():
    with pytest.raises(InvalidAgentResponseError) as caught:
        to_proto(Task(id="t", metadata={"k" * 5000: LONE}), pb.Task)

    assert len(str(caught.value)) < 200


def test_a_value_of_another_type_is_a_mistake_of_the_program():
    with pytest.raises(TypeError, match=r"Task is not a2a\.types\.Message"):
        to_proto(Task(id="t"), pb.Message)
    with pytest.raises(TypeError, match="Task is not an A2A request"):
        to_params(pb.Task())


def test_values_that_the_model_takes_for_json_are_json():
    part = Part(data={"when": TaskState.WORKING, "pair": (1, 2)})

    assert json_format.MessageToDict(to_proto(part, pb.Part)) == {
        "data": {"when": "TASK_STATE_WORKING", "pair": [1, 2]}
    }


def test_what_is_no_json_at_all_is_reported():
    with pytest.raises(InvalidAgentResponseError, match=r'not a JSON value.* at data\["x"\]'):
        to_proto(Part(data={"x": object()}), pb.Part)


# ── Members that a newer protocol has ────────────────────────────────────────────────────────


def test_fields_that_the_sdk_does_not_know_are_ignored():
    newer = pb.GetTaskRequest.FromString(
        pb.GetTaskRequest(id="t").SerializeToString() + b"\xfa\x01\x01x"
    )

    assert to_params(newer) == GetTaskRequest(id="t")


def test_members_that_only_a_newer_sdk_has_are_ignored():
    file = FileDescriptorProto(name="newer.proto", package="newer", syntax="proto3")
    message = file.message_type.add(name="GetTaskRequest")
    for number, name in enumerate(["id", "new_member"], start=1):
        message.field.add(name=name, number=number, type=9, label=1)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    newer = GetMessageClass(pool.FindMessageTypeByName("newer.GetTaskRequest"))

    params = to_params(newer(id="t", new_member="x"))

    assert params == GetTaskRequest(id="t")
    assert to_proto(GetTaskRequest(id="t", history_length=1), newer) == newer(id="t")


# ── Cards ────────────────────────────────────────────────────────────────────────────────────


def test_a_card_becomes_one():
    card = pb.AgentCard(name="a", capabilities=pb.AgentCapabilities(streaming=False))
    card.supported_interfaces.add(url="http://a/", protocol_binding="JSONRPC")
    card.security_schemes["key"].api_key_security_scheme.name = "X-Key"
    card.security_requirements.add().schemes["key"].list.append("scope")

    read = to_card(card)

    assert read.supported_interfaces == (
        AgentInterface(url="http://a/", protocol_binding="JSONRPC"),
    )
    assert read.capabilities.streaming is False
    assert read.capabilities.push_notifications is None
    assert read.security_schemes["key"].api_key_security_scheme.name == "X-Key"
    assert read.security_requirements[0].schemes["key"].list == ("scope",)
    assert to_proto(read, pb.AgentCard) == card
