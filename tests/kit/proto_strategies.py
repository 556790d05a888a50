"""Arbitrary messages of protocol buffers, and values of Holdfast's, for the property tests."""

from a2a.types import a2a_pb2 as pb
from google.protobuf import json_format
from google.protobuf.message_factory import GetMessageClass
from google.protobuf.struct_pb2 import Struct, Value
from google.protobuf.timestamp_pb2 import Timestamp
from hypothesis import strategies as st
from msgspec import inspect
from tests.kit.strategies import short_text

from holdfast.types import Message, Role, SendMessageResponse, TaskState

numbers = st.integers(-(2**60), 2**60) | st.floats(allow_nan=False, allow_infinity=False)
plain_json = st.recursive(
    st.none() | st.booleans() | numbers | short_text,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(short_text, inner, max_size=3),
    max_leaves=6,
)
plain_objects = st.dictionaries(short_text, plain_json, max_size=3)
times = st.builds(
    Timestamp,
    seconds=st.integers(-62135596800, 253402300799),
    nanos=st.sampled_from([0, 1, 1_000, 120_000_000, 999_999_999]) | st.integers(0, 999_999_999),
)
integers = st.sampled_from([0, 1]) | st.integers(-(2**31), 2**31 - 1)


def well_known(kind, values):
    return values.map(lambda value: json_format.ParseDict(value, kind()))


CARD_PATHS = {
    "google.protobuf.Struct": well_known(Struct, plain_objects),
    "google.protobuf.Value": well_known(Value, plain_json) | st.just(Value()),
    "google.protobuf.Timestamp": times,
}
SCALARS = {"string": short_text, "bytes": st.binary(max_size=8), "bool": st.booleans()}


def scalars(field):
    if field.enum_type is not None:
        return st.integers(0, 8) | st.sampled_from([99, -1])
    names = {field.TYPE_STRING: "string", field.TYPE_BYTES: "bytes", field.TYPE_BOOL: "bool"}
    return SCALARS.get(names.get(field.type), integers)


@st.composite
def protos(draw, message_class):
    """A message in which anything may be set or not."""
    message = message_class()
    for name, oneof in message.DESCRIPTOR.oneofs_by_name.items():
        if not name.startswith("_"):
            nothing = [] if message_class.DESCRIPTOR.name == "SendMessageResponse" else [None]
            field = draw(st.sampled_from([*oneof.fields, *nothing]))
            if field is not None:
                fill(draw, message, field)
    for field in message.DESCRIPTOR.fields:
        in_group = field.containing_oneof and not field.containing_oneof.name.startswith("_")
        if not in_group and draw(st.booleans()):
            fill(draw, message, field)
    if message_class.DESCRIPTOR.name == "Task":  # no reply with a task that has no id is one
        message.id = draw(short_text.filter(bool))
    return message


def fill(draw, message, field):
    target, kind = getattr(message, field.name), field.message_type
    if kind is not None and kind.GetOptions().map_entry:
        fill_map(draw, target, kind.fields_by_name["value"].message_type)
    elif kind is not None and kind.full_name in CARD_PATHS:
        target.MergeFromString(draw(CARD_PATHS[kind.full_name]).SerializeToString())
        target.SetInParent()
    elif hasattr(target, "MergeFrom") and hasattr(target, "add"):
        target.extend(draw(st.lists(protos(GetMessageClass(kind)), max_size=2)))
    elif kind is not None:
        target.CopyFrom(draw(protos(type(target))))
        target.SetInParent()
    elif hasattr(target, "extend"):
        target.extend(draw(st.lists(scalars(field), max_size=2)))
    else:
        setattr(message, field.name, draw(scalars(field)))


def fill_map(draw, target, kind):
    for key in draw(st.lists(short_text, max_size=2)):
        if kind is None:
            target[key] = draw(short_text)
        else:
            target[key].CopyFrom(draw(protos(GetMessageClass(kind))))


any_number = st.integers(-(2**80), 2**80) | st.floats(allow_nan=False, allow_infinity=False)
any_json = st.recursive(
    st.none() | st.booleans() | any_number | short_text,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(short_text, inner, max_size=3),
    max_leaves=6,
)
names = st.sampled_from([*TaskState, *Role, "TASK_STATE_NEW", "77", "-3"])
time_texts = times.map(lambda time: time.ToJsonString()) | st.sampled_from(
    ["2026-01-02T03:04:05+02:00", "2026-01-02T03:04:05.1234567-11:30", "1969-12-31T23:59:59.5Z"]
)


@st.composite
def values(draw, kind):
    """A value of Holdfast's as a server's JSON may make it."""
    info = inspect.type_info(kind)
    members = {}
    for field in info.fields:
        if field.required or draw(st.booleans()):
            members[field.name] = draw(members_of(field.name, field.type))
    content = [name for name in members if name in ONE_OF.get(kind.__name__, ())]
    for name in content[1:]:
        del members[name]
    if kind is SendMessageResponse and not content:
        members["message"] = draw(values(Message))
    return kind(**members)


ONE_OF = {
    message.name: {field.name for field in oneof.fields}
    for message in pb.DESCRIPTOR.message_types_by_name.values()
    for name, oneof in message.oneofs_by_name.items()
    if not name.startswith("_")
}


def members_of(name, info):
    match info:
        case inspect.UnionType():
            present = [one for one in info.types if not isinstance(one, inspect.NoneType)]
            return st.one_of(*(members_of(name, one) for one in present))
        case inspect.StructType():
            return values(info.cls)
        case inspect.VarTupleType():
            return st.lists(members_of(name, info.item_type), max_size=2).map(tuple)
        case inspect.DictType():
            return st.dictionaries(short_text, members_of(name, info.value_type), max_size=2)
        case inspect.EnumType():
            return names.map(info.cls)
        case inspect.BytesType():
            return st.binary(max_size=8)
        case inspect.BoolType():
            return st.booleans()
        case inspect.IntType():
            return integers
        case inspect.StrType():
            return time_texts if "timestamp" in name else short_text
        case _:
            return any_json


def completed(data, kind):
    """A JSON object with the members that Holdfast needs, as far as they are not there."""
    for field in inspect.type_info(kind).fields:
        if field.required:
            data.setdefault(field.encode_name, {} if field.name == "message" else "")
    return data
