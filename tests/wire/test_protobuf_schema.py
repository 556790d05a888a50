"""The tables of messages equal the official schemas, field by field."""

import subprocess
import sys

import pytest
from a2a.compat.v0_3 import a2a_v0_3_pb2
from a2a.types import a2a_pb2
from google.protobuf import empty_pb2, struct_pb2, timestamp_pb2
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.descriptor_pool import Default, DescriptorPool
from tests.kit.paths import ROOT
from tests.kit.real_agents import LIMIT, sdk_python

from holdfast._wire.grpc import CODECS
from holdfast._wire.protobuf.messages import check_library, message_type
from holdfast._wire.protobuf.schema_v03 import V03
from holdfast._wire.protobuf.schema_v1 import V1
from holdfast.protocol import OPERATIONS

WELL_KNOWN_FILES = (empty_pb2, struct_pb2, timestamp_pb2)


def official(file):
    """Return an official schema with only its messages, in a separate pool."""
    well_known = [each.DESCRIPTOR.name for each in WELL_KNOWN_FILES]
    dependencies = [name for name in file.dependency if name in well_known]
    del file.dependency[:]
    file.dependency.extend(dependencies)
    file.ClearField("options")
    for message in file.message_type:
        for field in message.field:
            field.ClearField("options")
    for service in file.service:
        for method in service.method:
            method.ClearField("options")
    pool = DescriptorPool()
    for each in WELL_KNOWN_FILES:
        pool.AddSerializedFile(each.DESCRIPTOR.serialized_pb)
    return pool.AddSerializedFile(file.SerializeToString())


def official_of(generated):
    return official(FileDescriptorProto.FromString(generated.DESCRIPTOR.serialized_pb))


def official_of_sdk03():
    """Return the schema from which the last SDK of protocol 0.3 was generated."""
    script = "import sys; from a2a.grpc.a2a_pb2 import DESCRIPTOR as d; "
    script += "sys.stdout.buffer.write(d.serialized_pb)"
    python = sdk_python("HOLDFAST_SDK03_PYTHON", ".venv-sdk03")
    command = [str(python), "-c", script]
    completed = subprocess.run(command, check=True, capture_output=True, timeout=LIMIT)
    return official(FileDescriptorProto.FromString(completed.stdout))


def facts(message):
    """Return all properties of a message type that affect its wire format or JSON."""
    return sorted(
        (
            field.number,
            field.name,
            field.json_name,
            field.type,
            field.is_repeated,
            field.has_presence,
            type_of(field),
            oneof_of(field),
        )
        for field in message.fields
    )


def type_of(field):
    message = field.message_type
    if message is None:
        return field.enum_type and field.enum_type.full_name
    if message.GetOptions().map_entry:
        return facts(message)
    return message.full_name


def oneof_of(field):
    oneof = field.containing_oneof
    return oneof and oneof.name


def enums(file):
    return {
        name: [(value.name, value.number) for value in enum.values]
        for name, enum in file.enum_types_by_name.items()
    }


SCHEMAS = [
    pytest.param(V1, lambda: official_of(a2a_pb2), id="1.0"),
    pytest.param(V03, lambda: official_of(a2a_v0_3_pb2), id="0.3"),
    pytest.param(V03, official_of_sdk03, id="0.3 of its last SDK", marks=pytest.mark.sdk),
]


@pytest.mark.parametrize(("schema", "its_official"), SCHEMAS)
def test_each_field_equals_the_official_schema(schema, its_official):
    file = its_official()

    own_fields = {
        name: facts(message_type(schema.package, name).descriptor) for name in schema.messages
    }
    assert own_fields == {name: facts(each) for name, each in file.message_types_by_name.items()}
    assert file.package == schema.package
    described = message_type(schema.package, "Task").descriptor.file
    assert enums(described) == enums(file)


@pytest.mark.parametrize(("schema", "its_official"), SCHEMAS)
def test_each_method_equals_the_official_service(schema, its_official):
    (service,) = its_official().services_by_name.values()
    (codec,) = (each for each in CODECS.values() if each.package == schema.package)
    streaming = {operation.name: operation.streaming for operation in OPERATIONS.values()}

    own_methods = {
        (row.method, row.request, row.response, streaming[name])
        for name, row in codec.rows.items()
    }
    assert own_methods == {
        (each.name, each.input_type.name, each.output_type.name, each.server_streaming)
        for each in service.methods
    }
    assert service.full_name == f"{codec.package}.A2AService"


def test_the_message_classes_use_no_shared_descriptor_pool():
    own_descriptor = message_type("lf.a2a.v1", "Task").descriptor

    assert own_descriptor.file.pool is not Default()
    assert own_descriptor is not a2a_pb2.Task.DESCRIPTOR
    assert (
        own_descriptor.fields_by_name["metadata"].message_type.file.pool
        is own_descriptor.file.pool
    )


def test_protobuf_is_imported_on_demand():
    script = "import sys, holdfast._wire.grpc, holdfast._wire.protobuf.writing; "
    script += "sys.exit(' '.join(m for m in sys.modules if m.startswith('google')))"
    source = ROOT / "src"
    completed = subprocess.run(
        [sys.executable, "-c", script],
        check=False,
        capture_output=True,
        timeout=LIMIT,
        env={"PYTHONPATH": str(source)},
    )

    assert completed.stderr.strip() == b""


def test_without_the_extra_the_error_names_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "google.rpc", None)

    with pytest.raises(ImportError, match=r'pip install "\.\[grpc\]"'):
        check_library()
