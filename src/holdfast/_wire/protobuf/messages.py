"""Message classes, created from the tables at first use, in a descriptor pool of their own."""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

from holdfast._model.extras import missing_extra
from holdfast._wire.protobuf.schema import OF_PROTOBUF, Schema
from holdfast._wire.protobuf.schema_v03 import V03
from holdfast._wire.protobuf.schema_v1 import V1

if TYPE_CHECKING:
    from google.protobuf.descriptor import Descriptor
    from google.protobuf.descriptor_pb2 import (
        DescriptorProto,
        FieldDescriptorProto,
        FileDescriptorProto,
    )
    from google.protobuf.descriptor_pool import DescriptorPool
    from google.protobuf.message import Message as ProtoMessage

    from holdfast._wire.protobuf.schema import Field

__all__ = ["MessageType", "check_library", "file_of", "message_type"]

_WELL_KNOWN_PACKAGE = "google.protobuf"
_TYPE = re.compile(r"(?:(optional|repeated) )?(?:map<string, (\w+)>|(\w+))")


def check_library() -> None:
    """Check that the protobuf libraries are installed.

    Raises:
        ImportError: The extra is not installed.
    """
    try:
        from google.protobuf import message_factory
        from google.rpc import error_details_pb2  # type: ignore[import-untyped]
    except ImportError:
        raise missing_extra("gRPC", "grpc") from None
    del message_factory, error_details_pb2


class MessageType(NamedTuple):
    """Class and descriptor of a type of messages.

    Attributes:
        cls: Class of the messages.
        descriptor: Descriptor of the type.
    """

    cls: type[ProtoMessage]
    descriptor: Descriptor


@cache
def message_type(package: str, name: str) -> MessageType:
    """Return the class and descriptor of a message.

    Args:
        package: Package of a table; ignored for protobuf's own messages.
        name: Name of the message.

    Raises:
        ImportError: The extra is not installed.
        KeyError: The package has no such message.
    """
    check_library()
    from google.protobuf.message_factory import GetMessageClass

    package = _WELL_KNOWN_PACKAGE if name in OF_PROTOBUF else package
    descriptor = _pool().FindMessageTypeByName(f"{package}.{name}")
    return MessageType(GetMessageClass(descriptor), descriptor)


@cache
def _pool() -> DescriptorPool:
    from google.protobuf import empty_pb2, struct_pb2, timestamp_pb2
    from google.protobuf.descriptor_pool import DescriptorPool

    pool = DescriptorPool()
    for module in (empty_pb2, struct_pb2, timestamp_pb2):
        pool.AddSerializedFile(module.DESCRIPTOR.serialized_pb)
    for schema in (V1, V03):
        pool.AddSerializedFile(file_of(schema).SerializeToString())
    return pool


def file_of(schema: Schema) -> FileDescriptorProto:
    """Return a table as the file descriptor that protoc would produce."""
    from google.protobuf.descriptor_pb2 import FileDescriptorProto

    file = FileDescriptorProto(
        name=f"holdfast/{schema.package}.proto",
        package=schema.package,
        syntax="proto3",
        dependency=sorted(set(OF_PROTOBUF.values())),
    )
    for name, values in schema.enums.items():
        enum = file.enum_type.add(name=name)
        for number, value in enumerate(values):
            enum.value.add(name=value, number=number)
    for name, fields in schema.messages.items():
        message = file.message_type.add(name=name)
        for field in fields:
            _add(message, field, schema)
        _add_presence(message)
    return file


def _add(message: DescriptorProto, field: Field, schema: Schema) -> None:
    match = _TYPE.fullmatch(field.type)
    assert match is not None, field  # noqa: S101  a mistake in the table
    label, value_kind, kind = match.groups()
    added = message.field.add(name=field.name, number=field.number)
    if field.json is not None:
        added.json_name = field.json
    added.label = added.LABEL_REPEATED if label == "repeated" else added.LABEL_OPTIONAL
    if value_kind is not None:
        added.label = added.LABEL_REPEATED
        entry = message.nested_type.add(name=f"{_capitalized(field.name)}Entry")
        entry.options.map_entry = True
        key = entry.field.add(name="key", number=1, label=added.LABEL_OPTIONAL)
        value = entry.field.add(name="value", number=2, label=added.LABEL_OPTIONAL)
        _set_type(key, "string", schema)
        _set_type(value, value_kind, schema)
        added.type = added.TYPE_MESSAGE
        added.type_name = f".{schema.package}.{message.name}.{entry.name}"
        return
    _set_type(added, kind, schema)
    if label == "optional":
        added.proto3_optional = True
    if field.oneof is not None:
        groups = [group.name for group in message.oneof_decl]
        if field.oneof not in groups:
            message.oneof_decl.add(name=field.oneof)
            groups.append(field.oneof)
        added.oneof_index = groups.index(field.oneof)


def _set_type(field: FieldDescriptorProto, kind: str, schema: Schema) -> None:
    scalars = {
        "bool": field.TYPE_BOOL,
        "bytes": field.TYPE_BYTES,
        "int32": field.TYPE_INT32,
        "string": field.TYPE_STRING,
    }
    scalar = scalars.get(kind)
    if scalar is not None:
        field.type = scalar
        return
    field.type = field.TYPE_ENUM if kind in schema.enums else field.TYPE_MESSAGE
    package = _WELL_KNOWN_PACKAGE if kind in OF_PROTOBUF else schema.package
    field.type_name = f".{package}.{kind}"


def _add_presence(message: DescriptorProto) -> None:
    """Give each optional field a group of its own, which records whether it is set."""
    for field in message.field:
        if field.proto3_optional:
            field.oneof_index = len(message.oneof_decl)
            message.oneof_decl.add(name=f"_{field.name}")


def _capitalized(name: str) -> str:
    return "".join(word.capitalize() for word in name.split("_"))
