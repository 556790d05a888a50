"""The JSON codec: known mistakes of servers are accepted, others are named."""

import base64
import json

import pytest
from hypothesis import example
from hypothesis import strategies as st
from msgspec import UNSET
from tests.kit.strategies import any_text, given, json_values, model_values, short_text

from holdfast._model import codec
from holdfast._model.codec import MalformedError, decode, encode, from_builtins, parse, to_builtins
from holdfast.types import (
    AgentCard,
    Artifact,
    ListTasksResponse,
    Message,
    Part,
    Role,
    SendMessageResponse,
    StreamResponse,
    Task,
    TaskArtifactUpdateEvent,
    TaskState,
    TaskStatus,
    TaskStatusUpdateEvent,
)

TOO_DEEP = 100_000


def read(kind, /, **members):
    return decode(json.dumps(members).encode(), kind)


# ── Omitted and null members (PROTOCOL "what real servers do", 11) ───────────────────────────

OPTIONAL_MEMBERS = [
    (Task, "id", "contextId status artifacts history metadata"),
    (TaskStatus, None, "state message timestamp"),
    (Message, None, "messageId role parts contextId taskId metadata extensions referenceTaskIds"),
    (Artifact, None, "artifactId name description parts metadata extensions"),
    (Part, None, "text raw url metadata filename mediaType"),
    (TaskStatusUpdateEvent, None, "taskId contextId status metadata"),
    (
        TaskArtifactUpdateEvent,
        None,
        "taskId contextId artifact append lastChunk metadata",
    ),
    (ListTasksResponse, None, "tasks nextPageToken pageSize totalSize"),
    (
        AgentCard,
        None,
        (
            "name description supportedInterfaces provider version documentationUrl capabilities "
            "securitySchemes securityRequirements defaultInputModes defaultOutputModes skills "
            "signatures iconUrl"
        ),
    ),
]


@pytest.mark.parametrize(
    ("kind", "required", "member"),
    [
        pytest.param(kind, required, member, id=f"{kind.__name__}.{member}")
        for kind, required, members in OPTIONAL_MEMBERS
        for member in members.split()
    ],
)
def test_null_equals_an_absent_member(kind, required, member):
    needed = {required: "x"} if required else {}

    assert read(kind, **needed, **{member: None}) == read(kind, **needed)


def test_every_optional_member_of_the_model_is_in_the_table():
    for kind, required, members in OPTIONAL_MEMBERS:
        listed = {*members.split(), required} - {None}
        assert set(kind.__struct_encode_fields__) - {"data"} == listed


@pytest.mark.rule("S13")
def test_s13_a_status_message_may_be_null_and_have_no_parts():
    task = read(Task, id="t", status={"state": "TASK_STATE_WORKING", "message": None})
    with_null_parts = read(
        Task, id="t", status={"state": "TASK_STATE_WORKING", "message": {"parts": None}}
    )

    assert task.status == TaskStatus(state=TaskState.WORKING)
    assert with_null_parts.status.message == Message()


def test_a_missing_required_member_is_named():
    with pytest.raises(MalformedError, match="missing required field `id`") as caught:
        read(SendMessageResponse, task={"contextId": "c"})
    assert caught.value.path == "task"


def test_unknown_members_are_ignored():
    task = read(Task, id="t", kind="task", status={"state": "TASK_STATE_WORKING", "x": {"y": 1}})

    assert task == Task(id="t", status=TaskStatus(state=TaskState.WORKING))


def test_unknown_members_are_ignored_on_the_slow_path():
    task = read(Task, id="t", kind="task", history=None, status={"state": 2, "x": [1]})

    assert task == Task(id="t", status=TaskStatus(state=TaskState.WORKING))


# ── Enums ────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("number", range(9))
@pytest.mark.parametrize("as_sent", [int, float])
def test_an_enum_may_be_sent_as_its_number(number, as_sent):
    # The numbers are those of the protocol's schema.
    state = [
        TaskState.UNSPECIFIED,
        TaskState.SUBMITTED,
        TaskState.WORKING,
        TaskState.COMPLETED,
        TaskState.FAILED,
        TaskState.CANCELED,
        TaskState.INPUT_REQUIRED,
        TaskState.REJECTED,
        TaskState.AUTH_REQUIRED,
    ][number]

    assert read(TaskStatus, state=as_sent(number)).state is state


@pytest.mark.parametrize(("number", "role"), [(1, Role.USER), (2, Role.AGENT)])
def test_a_role_may_be_sent_as_its_number(number, role):
    assert read(Message, role=number).role is role


@given(name=short_text.filter(lambda name: name not in set(TaskState)))
def test_an_unknown_state_is_kept_and_not_terminal(name):
    state = read(TaskStatus, state=name).state

    assert state == name
    assert str(state) == name
    assert not state.is_terminal
    assert not state.is_interrupted
    assert state not in set(TaskState)


@pytest.mark.parametrize("number", [9, -1, 2**31 - 1])
def test_an_unknown_number_is_kept_and_not_terminal(number):
    state = read(TaskStatus, state=number).state

    assert state == str(number)
    assert not state.is_terminal


@pytest.mark.parametrize("value", [True, False, 2.5, [], {}, 2**31, 1e300, -(2**31) - 1])
def test_an_invalid_enum_is_named(value):
    with pytest.raises(MalformedError) as caught:
        read(Task, id="t", status={"state": value})
    assert caught.value.path == "status.state"


@pytest.mark.parametrize("value", [float("nan"), float("inf"), pytest.param(10**5000, id="huge")])
def test_an_invalid_enum_in_a_dict_is_named(value):
    with pytest.raises(MalformedError):
        from_builtins({"state": value}, TaskStatus)


# ── Bytes, text, numbers ─────────────────────────────────────────────────────────────────────


@given(
    raw=st.binary(max_size=40), url_safe=st.booleans(), padded=st.booleans(), wrapped=st.booleans()
)
def test_base64_may_be_url_safe_unpadded_or_wrapped(raw, url_safe, padded, wrapped):
    text = (base64.urlsafe_b64encode if url_safe else base64.b64encode)(raw).decode()
    text = text if padded else text.rstrip("=")
    text = "\r\n".join((text[:4], text[4:])) if wrapped else text

    assert read(Part, raw=text).raw == raw


def test_the_base64_text_null_is_three_bytes():
    # `extensions: null` sends the document down the slow path.
    message = read(Message, extensions=None, parts=[{"raw": "null"}, {"text": "null"}])

    assert [message.parts[0].raw, message.parts[1].text] == [b"\x9e\xe9e", "null"]


@pytest.mark.parametrize("text", ["!!!?", "a", "AA=A", "ä", "\ud800"])
def test_invalid_base64_is_named_and_not_decoded_partly(text):
    with pytest.raises(MalformedError) as caught:
        read(Message, parts=[{"text": "a"}, {"raw": text}])
    assert caught.value.path == "parts[1].raw"


@given(text=st.text(st.characters(categories=["Cs", "Ll"]), min_size=1, max_size=5))
def test_lone_surrogates_are_read_and_written_back(text):
    part = read(Part, text=text)

    assert part.text == text.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")
    assert decode(encode(part), Part) == part


def test_lone_surrogates_may_be_sent_as_bytes():
    assert decode(b'{"text":"\xed\xa0\x80"}', Part).text == "\ud800"


def test_a_byte_order_mark_is_ignored():
    assert decode(b'\xef\xbb\xbf{"text":"a"}', Part) == Part(text="a")


@pytest.mark.parametrize("value", [50, 50.0, "50"])
def test_an_integer_may_be_sent_as_a_float_or_a_string(value):
    size = read(ListTasksResponse, pageSize=value).page_size

    assert size == 50
    assert type(size) is int


@pytest.mark.parametrize("value", [1.5, "many", [], True])
def test_an_invalid_integer_is_named(value):
    with pytest.raises(MalformedError) as caught:
        read(ListTasksResponse, pageSize=value)
    assert caught.value.path == "pageSize"


@pytest.mark.rule("S26")
@pytest.mark.parametrize(
    "number", [1, 0, -1, 2**53 + 1, 2**63, 2**64, -(2**64), pytest.param(10**400, id="huge")]
)
@pytest.mark.parametrize("slowly", [False, True])
def test_s26_an_integer_in_data_stays_that_integer(number, slowly):
    document = {"data": {"n": number}} | ({"text": None, "raw": "_-8"} if slowly else {})

    part = read(Part, **document)

    assert part.data == {"n": number}
    assert type(part.data["n"]) is int
    assert json.loads(encode(part))["data"] == {"n": number}
    assert decode(encode(part), Part) == part


def test_a_float_in_data_stays_a_float():
    part = read(Part, data=[1.0, 1, -0.0])

    assert [type(n) for n in part.data] == [float, int, float]
    assert encode(part) == b'{"data":[1.0,1,-0.0]}'


@pytest.mark.parametrize("slowly", ["", '"metadata":null,"raw":"_-8",'])
def test_data_null_differs_from_absent_data(slowly):
    null = decode(f'{{{slowly}"data":null}}'.encode(), Part)
    absent = decode(f'{{{slowly}"text":null}}'.encode(), Part)

    assert null.data is None
    assert absent.data is UNSET
    assert json.loads(encode(null))["data"] is None
    assert "data" not in json.loads(encode(absent))


# ── Malformed input ──────────────────────────────────────────────────────────────────────────


def nested(opening, closing, depth):
    return opening * depth + b"1" + closing * depth


@pytest.mark.parametrize(
    "nesting",
    [b'{"data":%s}', b'{"added":%s}', b'{"metadata":{"a":%s}}', b'{"raw":"_-8","data":%s}', b"%s"],
)
@pytest.mark.parametrize(("opening", "closing"), [(b"[", b"]"), (b'{"a":', b"}"), (b"[", b"")])
def test_too_deep_nesting_is_malformed(nesting, opening, closing):
    with pytest.raises(MalformedError, match="nested too deeply"):
        decode(nesting % nested(opening, closing, TOO_DEEP), Part)


@pytest.mark.parametrize("write", [encode, to_builtins])
@pytest.mark.parametrize("text", ["a", "\ud800"])
def test_encoding_too_deep_nesting_is_malformed(write, text):
    deep = []
    for _ in range(TOO_DEEP):
        deep = [deep]

    with pytest.raises(MalformedError, match="nested too deeply"):
        write(Part(text=text, data=deep))


@pytest.mark.parametrize(
    ("kind", "document"),
    [
        pytest.param(Part, b'{"data":%s}' % (b"9" * 5_000), id="an integer"),
        pytest.param(Part, b'{"data":1e999}', id="a float"),
        pytest.param(Part, b'{"text":null,"raw":"_-8","data":-1e999}', id="slowly"),
        pytest.param(ListTasksResponse, b'{"pageSize":%s}' % (b"9" * 5_000), id="a size"),
        pytest.param(ListTasksResponse, b'{"pageSize":"%s"}' % (b"9" * 5_000), id="a text"),
        pytest.param(ListTasksResponse, b'{"pageSize":1e300}', id="a large float"),
        pytest.param(TaskStatus, b'{"state":1e999}', id="an enum"),
    ],
)
def test_numbers_out_of_range_are_malformed(kind, document):
    with pytest.raises(MalformedError):
        decode(document, kind)


@pytest.mark.parametrize(
    "document",
    [
        b"",
        b" ",
        b"{",
        b"null",
        b"[]",
        b"7",
        b'"text"',
        b"<html></html>",
        b'{"text":"a"} {"text":"b"}',
        b'{"text":"a",}',
        b"{'text':'a'}",
        b'{"data":NaN}',
        b'{"data":-Infinity}',
        b'{"text":"\xff"}',
        b"\xff\xfe\x00",
        b'{"text":7}',
        b'{"metadata":[]}',
    ],
)
def test_an_invalid_part_is_malformed(document):
    with pytest.raises(MalformedError):
        decode(document, Part)


@pytest.mark.parametrize(
    ("kind", "members", "path"),
    [
        (Task, {"id": 7}, "id"),
        (
            Task,
            {"id": "t", "history": [{}, {"parts": [{"text": []}]}]},
            "history[1].parts[0].text",
        ),
        (StreamResponse, {"statusUpdate": {"status": "done"}}, "statusUpdate.status"),
        (Task, {"id": "t", "artifacts": {}}, "artifacts"),
        (AgentCard, {"skills": [{"tags": "a"}]}, "skills[0].tags"),
        (AgentCard, {"skills": [{"tags": "\ud800"}]}, "skills[0].tags"),
        (AgentCard, {"securitySchemes": {"a": {}, 'b"\n': 7}}, r'securitySchemes["b\"\n"]'),
        (
            AgentCard,
            {"securityRequirements": [{"schemes": {"a": []}}]},
            'securityRequirements[0].schemes["a"]',
        ),
    ],
)
def test_an_invalid_member_is_named(kind, members, path):
    with pytest.raises(MalformedError) as caught:
        read(kind, **members)

    assert caught.value.path == path
    assert path in str(caught.value)


@pytest.mark.parametrize("members", [{}, {"task": {"id": "t"}, "message": {}}])
def test_an_answer_is_either_a_task_or_a_message(members):
    with pytest.raises(MalformedError, match="either a task or a message"):
        read(SendMessageResponse, **members)


# ── Properties ───────────────────────────────────────────────────────────────────────────────


@given(value=model_values)
def test_encoded_values_are_decoded_unchanged(value):
    assert decode(encode(value), type(value)) == value


@given(value=model_values)
def test_values_converted_to_dicts_are_converted_back_unchanged(value):
    assert from_builtins(to_builtins(value), type(value)) == value


@given(value=model_values)
def test_to_builtins_equals_the_parsed_json(value):
    assert to_builtins(value) == json.loads(encode(value))


@given(value=model_values, extra=json_values, name=any_text.map("x-{}".format))
def test_an_added_member_changes_nothing(value, extra, name):
    document = {**to_builtins(value), name: extra}

    assert decode(json.dumps(document).encode(), type(value)) == value


@given(document=json_values, kind=st.sampled_from([Task, Message, StreamResponse, AgentCard]))
@example(document="\ud800", kind=Task)
def test_any_json_is_a_value_or_malformed(document, kind):
    try:
        value = from_builtins(document, kind)
    except MalformedError:
        return
    assert isinstance(value, kind)


MEMBERS = sorted(
    {
        name
        for kind in (Task, TaskStatus, Message, Part, Artifact, StreamResponse, AgentCard)
        for name in kind.__struct_encode_fields__
    }
)
almost_right = st.recursive(
    st.sampled_from(
        [None, True, 0, 3, 3.0, 1.5, -1, 2**70, 1e300, "", "null", "TASK_STATE_FAILED", "\ud800"]
    ),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(MEMBERS), inner, max_size=5)
    ),
    max_leaves=12,
)


@given(document=almost_right, kind=st.sampled_from([Task, Message, StreamResponse, AgentCard]))
def test_mutated_json_is_a_value_or_malformed(document, kind):
    try:
        value = decode(json.dumps(document).encode(), kind)
    except MalformedError:
        return
    assert isinstance(value, kind)
    assert decode(encode(value), kind) == value


@given(data=st.binary(max_size=60))
def test_any_bytes_are_a_value_or_malformed(data):
    for kind in (Part, AgentCard):
        try:
            value = decode(data, kind)
        except MalformedError:
            continue
        assert isinstance(value, kind)


@given(value=json_values)
def test_parse_reads_the_output_of_the_standard_library(value):
    assert parse(json.dumps(value).encode()) == value


def test_decoders_are_cached():
    assert codec.decoder_of(Task) is codec.decoder_of(Task)
