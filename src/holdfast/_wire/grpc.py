"""The gRPC binding (A2A specification 10), in both versions: calls to bytes, bytes to values.

This module is independent of grpcio, which carries the bytes: a call is the path of a method,
metadata (`holdfast._wire.grpc_metadata`) and a message; the reply is a message, or a status with
metadata (`holdfast._wire.grpc_status`). For 0.3 a request is converted to the types of 0.3, and a
reply to the model's types (see `holdfast._wire.v03`).

The number of values in a large message is checked before it is decoded, since decoding takes many
times its size in memory. The count goes field by field, and stops at the limit.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple, Unpack

import msgspec

from holdfast._model import codec
from holdfast._model import operations as op
from holdfast._model.v03 import card, reading, types, writing
from holdfast._wire import v03
from holdfast._wire.bindings import OLDER_VERSION, PROTOCOL_VERSION
from holdfast._wire.limits import Limits, check_json_size, check_value, harmless_size, limit_error
from holdfast._wire.protobuf.messages import MessageType, message_type
from holdfast._wire.protobuf.reading import bytes_reader, reader
from holdfast._wire.protobuf.values import NeedsSlowPathError, UnrepresentableError, varint
from holdfast._wire.protobuf.writing import writer
from holdfast.errors import InvalidAgentResponseError, UnsupportedOperationError
from holdfast.types import Empty

if TYPE_CHECKING:
    from google.protobuf.descriptor import Descriptor

    from holdfast._wire.limits import Limits
    from holdfast.errors import Facts, LimitExceededError

__all__ = ["CODECS", "GrpcCodec", "RpcRequest", "check_values", "message_too_large"]

_MIN_FIELD_BYTES = 2
"""Minimum size of a field: its tag, and its value or length."""


def check_values(body: bytes, descriptor: Descriptor, limits: Limits) -> None:
    """Check the number of values in a message: each field on the wire is one.

    A malformed message passes; the decoder reports it.

    Args:
        body: The serialized message.
        descriptor: Descriptor of its type.
        limits: The bounds.

    Raises:
        LimitExceededError: It holds more than ``json_values``.
    """
    if len(body) < _MIN_FIELD_BYTES * limits.json_values:
        return
    try:
        count = _count_fields(body, descriptor, limits.json_values)
    except (IndexError, NeedsSlowPathError):
        return
    if count > limits.json_values:
        problem = f"the reply holds more than {limits.json_values} values"
        raise limit_error("json_values", limits, problem)


def _count_fields(body: bytes, descriptor: Descriptor, most: int) -> int:
    """Count the fields of a message and of those nested in it, up to one more than `most`."""
    count = 0
    pending: list[tuple[int, int, Descriptor]] = [(0, len(body), descriptor)]
    while pending:
        position, end, kind = pending.pop()
        nested = _message_fields(kind)
        while position < end and count <= most:
            count += 1
            tag, position = body[position], position + 1
            if tag > 0x7F:
                tag, position = varint(body, position - 1)
            match tag & 7:
                case 0:
                    _, position = varint(body, position)
                case 1:
                    position += 8
                case 2:
                    length, position = varint(body, position)
                    message = nested.get(tag >> 3)
                    if message is not None:
                        pending.append((position, min(position + length, end), message))
                    position += length
                case 5:
                    position += 4
                case _:
                    pass  # start or end of a group, which no message of A2A has
    return count


@cache
def _message_fields(descriptor: Descriptor) -> Mapping[int, Descriptor]:
    """Return the types of the fields that hold messages, by field number."""
    return {
        field.number: field.message_type
        for field in descriptor.fields
        if field.message_type is not None
    }


AnyOperation = op.Operation[Any, Any]


class RpcRequest(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """gRPC request of a call.

    Attributes:
        method: Path of the method, such as ``/lf.a2a.v1.A2AService/SendMessage``.
        body: The serialized message.
    """

    method: str
    body: bytes


class _Row(NamedTuple):
    """gRPC method of an operation in one version.

    Attributes:
        method: Name of the method.
        request: Name of the request message.
        write: Converts a request of 1.0 to the request's value in this version.
        response: Name of the response message.
        kind: Type of the response's value in this version.
        read: Converts that value to the response of 1.0.
    """

    method: str
    request: str
    write: Callable[[Any], Any]
    response: str
    kind: Any
    read: Callable[[Any], Any]


class GrpcCodec(msgspec.Struct, frozen=True, kw_only=True):
    """Codec of one protocol version over gRPC.

    Attributes:
        version: The protocol version.
        package: Package of its messages and its service.
        rows: The operations that the version has, by name.
        is_last: See `holdfast._wire.bindings.Codec`.
        has_snapshots: See `holdfast._wire.bindings.Codec`.
    """

    version: str
    package: str
    rows: Mapping[str, _Row]
    is_last: Callable[[Any], bool] | None = None
    has_snapshots: bool = True

    def encode(self, operation: AnyOperation, params: Any) -> RpcRequest:
        """Encode a call as a request.

        Args:
            operation: The operation.
            params: Its parameters.

        Raises:
            MalformedError: A parameter has no representation in protocol buffers; the error names
                it. (A `ValueError`; nothing was sent.)
            UnsupportedOperationError: The version lacks the operation, or cannot express the
                request; nothing was sent (``executed`` is False).
            ImportError: The extra is not installed.
        """
        row = self._row(operation)
        value = row.write(params)
        kind = message_type(self.package, row.request)
        message = kind.cls()
        try:
            writer(value.__class__, kind.descriptor)(value, message)
            body = message.SerializeToString()
            if len(body) > _ALWAYS_SHALLOW_BYTES:
                kind.cls.FromString(body)  # the agent must be able to decode it
        except UnrepresentableError as error:
            raise codec.MalformedError(error.reason, error.path) from None
        except Exception as error:
            if not _is_unreadable(error):
                raise
            raise codec.MalformedError("nested too deeply") from None
        return RpcRequest(method=f"/{self.package}.A2AService/{row.method}", body=body)

    def decode(self, operation: AnyOperation, body: bytes, *, limits: Limits) -> Any:
        """Decode the reply of an operation, or one event of its stream.

        Args:
            operation: The operation that was called.
            body: The serialized message.
            limits: Bounds of its size, including the numbers of artifacts, parts and messages.

        Raises:
            InvalidAgentResponseError: The body is not the expected message.
            InvalidAgentCardError: A card of 0.3 lacks a member that a client needs.
            LimitExceededError: The reply exceeds a limit.
        """
        row = self._row(operation)
        if len(body) > getattr(limits, _bound_of(operation)):
            raise message_too_large(operation, limits)
        kind = message_type(self.package, row.response)
        check_values(body, kind.descriptor, limits)
        try:
            value = row.read(_decode_message(row, kind, body))
        except UnrepresentableError as error:
            reason = f"{error.reason} at {error.path}" if error.path else error.reason
        except ValueError as error:
            reason = str(error)
        except Exception as error:
            if not _is_unreadable(error):
                raise
            reason = "its bytes cannot be read, or are nested too deeply"
        else:
            if (
                body.count(_OBJECT_TAG) + body.count(_LIST_TAG)
                > limits.json_depth - _MAX_OWN_DEPTH
            ):
                check_json_size(codec.encode(value), limits)
            if len(body) > harmless_size(limits):
                check_value(value, limits)
            return value
        raise InvalidAgentResponseError(
            f"the reply to {operation.name} is not a {row.response}: {reason}"
        )

    def _row(self, operation: AnyOperation) -> _Row:
        row = self.rows.get(operation.name)
        if row is None:
            text = f"protocol {self.version} has no {operation.name} over gRPC; nothing was sent"
            raise UnsupportedOperationError(text, executed=False)
        return row


_ALWAYS_SHALLOW_BYTES = 2 * 100
"""Size up to which a message cannot exceed protobuf's nesting limit of 100."""

_OBJECT_TAG, _LIST_TAG = b"\x2a", b"\x32"
"""Bytes that occur once for each JSON object and list in a message."""

_MAX_OWN_DEPTH = 12
"""Maximum JSON depth of a message apart from its metadata and data."""


def _decode_message(row: _Row, kind: MessageType, body: bytes) -> Any:
    """Decode bytes on the fast path; leave unusual encodings to protobuf."""
    read = bytes_reader(row.kind, kind.descriptor)
    try:
        return read(body, 0, len(body))
    except (NeedsSlowPathError, IndexError, UnicodeDecodeError):
        return reader(row.kind, kind.descriptor)(kind.cls.FromString(body))


def message_too_large(
    operation: AnyOperation, limits: Limits, *, most: int | None = None, **facts: Unpack[Facts]
) -> LimitExceededError:
    """Return the error of a message that exceeds the limit of its kind: body, card or event.

    Args:
        operation: The operation that was called.
        limits: The bounds.
        most: Another bound in bytes, if the transport has one.
        facts: Facts of the `A2AError`.
    """
    limit_name = _bound_of(operation)
    bound: int = getattr(limits, limit_name)
    bound = bound if most is None else min(bound, most)
    return limit_error(
        limit_name,
        limits,
        f"the {_NOUN_OF_LIMIT[limit_name]} is larger than {bound} bytes",
        **facts,
    )


def _bound_of(operation: AnyOperation) -> str:
    if operation.streaming:
        return "event"
    return "card" if operation.response is op.GET_EXTENDED_AGENT_CARD.response else "body"


_NOUN_OF_LIMIT = {"body": "reply", "card": "agent card", "event": "event of the stream"}


def _is_unreadable(error: Exception) -> bool:
    """Return whether an error means malformed bytes, or nesting deeper than the stack allows."""
    from google.protobuf.message import DecodeError, EncodeError

    return isinstance(error, RecursionError | DecodeError | EncodeError | NeedsSlowPathError)


def _unchanged(value: Any) -> Any:
    return value


def _make_row(operation: AnyOperation) -> _Row:
    """Return an operation of 1.0, whose messages are named like the model's types."""
    request, response = operation.request, operation.response
    return _Row(
        operation.name, request.__name__, _unchanged, response.__name__, response, _unchanged
    )


def _make_row_v03(
    operation: AnyOperation,
    write: Callable[[Any], Any],
    response: str,
    kind: type,
    read: Callable[[Any], Any],
) -> tuple[str, _Row]:
    method = operation.method_grpc_v03
    request = _REQUESTS_OF_V03.get(method, f"{method}Request")
    return operation.name, _Row(method, request, write, response, kind, read)


_REQUESTS_OF_V03 = {"SendStreamingMessage": "SendMessageRequest"}
"""Request messages that are not named after their method."""

_FORM = writing.GrpcForm()

CODECS: Mapping[str, GrpcCodec] = {
    PROTOCOL_VERSION: GrpcCodec(
        version=PROTOCOL_VERSION,
        package="lf.a2a.v1",
        rows={operation.name: _make_row(operation) for operation in op.OPERATIONS.values()},
    ),
    OLDER_VERSION: GrpcCodec(
        version=OLDER_VERSION,
        package="a2a.v1",
        rows=dict(
            [
                _make_row_v03(
                    op.SEND_MESSAGE,
                    _FORM.send_message,
                    "SendMessageResponse",
                    types.Event,
                    reading.sent,
                ),
                _make_row_v03(
                    op.SEND_STREAMING_MESSAGE,
                    _FORM.send_message,
                    "StreamResponse",
                    types.Event,
                    reading.event,
                ),
                _make_row_v03(op.GET_TASK, _FORM.get_task, "Task", types.Task, reading.task),
                _make_row_v03(op.CANCEL_TASK, _FORM.cancel_task, "Task", types.Task, reading.task),
                _make_row_v03(
                    op.SUBSCRIBE_TO_TASK,
                    _FORM.subscribe,
                    "StreamResponse",
                    types.Event,
                    reading.event,
                ),
                _make_row_v03(
                    op.CREATE_PUSH_CONFIG,
                    _FORM.create_push_config,
                    "TaskPushNotificationConfig",
                    types.TaskPushConfig,
                    reading.push_config,
                ),
                _make_row_v03(
                    op.GET_PUSH_CONFIG,
                    _FORM.push_config,
                    "TaskPushNotificationConfig",
                    types.TaskPushConfig,
                    reading.push_config,
                ),
                _make_row_v03(
                    op.LIST_PUSH_CONFIGS,
                    _FORM.push_configs,
                    "ListTaskPushNotificationConfigResponse",
                    types.PushConfigs,
                    reading.push_configs,
                ),
                _make_row_v03(
                    op.DELETE_PUSH_CONFIG, _FORM.push_config, "Empty", Empty, _unchanged
                ),
                _make_row_v03(
                    op.GET_EXTENDED_AGENT_CARD,
                    writing.nothing,
                    "AgentCard",
                    card.Card,
                    card.to_card,
                ),
            ]
        ),
        is_last=v03.is_last,
        has_snapshots=False,
    ),
}
"""Codecs by protocol version."""
