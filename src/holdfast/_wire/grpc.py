"""The gRPC binding (A2A specification 10), in both versions: calls to bytes, bytes to values.

Nothing here knows of grpcio, which carries the bytes: a call is the path of a method, metadata
(`holdfast._wire.grpc_metadata`) and a message; what comes back is a message, or a status with
metadata (`holdfast._wire.grpc_status`). In 0.3 a request is rewritten to what it is made of there,
and what is read is turned into the model's values (see `wire.v03`).

How much a message holds, told before it is read: to read it takes many times its size.

Only what is large is looked at, field by field, and no further than what is allowed.
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

_SMALLEST = 2
"""Bytes that a field takes at least: its number, and its value or its length."""


def check_values(body: bytes, descriptor: Descriptor, limits: Limits) -> None:
    """Checks how many values a message holds: each field on the wire is one.

    A message that is none passes: whoever reads it says so.

    Args:
        body: The message, serialized.
        descriptor: Its type.
        limits: The bounds.

    Raises:
        LimitExceededError: It holds too many.
    """
    if len(body) < _SMALLEST * limits.json_values:
        return
    try:
        found = _count(body, descriptor, limits.json_values)
    except (IndexError, NeedsSlowPathError):
        return
    if found > limits.json_values:
        what = f"the reply holds more than {limits.json_values} values"
        raise limit_error("json_values", limits, what)


def _count(body: bytes, descriptor: Descriptor, most: int) -> int:
    """How many fields there are, as far as it matters; messages in messages are looked into."""
    found = 0
    within: list[tuple[int, int, Descriptor]] = [(0, len(body), descriptor)]
    while within:
        at, end, kind = within.pop()
        inner = _messages_in(kind)
        while at < end and found <= most:
            found += 1
            tag, at = body[at], at + 1
            if tag > 0x7F:
                tag, at = varint(body, at - 1)
            match tag & 7:
                case 0:
                    _, at = varint(body, at)
                case 1:
                    at += 8
                case 2:
                    length, at = varint(body, at)
                    message = inner.get(tag >> 3)
                    if message is not None:
                        within.append((at, min(at + length, end), message))
                    at += length
                case 5:
                    at += 4
                case _:
                    pass  # the ends of a group, which nothing here has
    return found


@cache
def _messages_in(descriptor: Descriptor) -> Mapping[int, Descriptor]:
    """The fields that hold messages, by number."""
    return {
        field.number: field.message_type
        for field in descriptor.fields
        if field.message_type is not None
    }


AnyOperation = op.Operation[Any, Any]


class RpcRequest(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What becomes of a call.

    Attributes:
        method: Path of the method, as ``/lf.a2a.v1.A2AService/SendMessage``.
        body: The message, serialized.
    """

    method: str
    body: bytes


class _Row(NamedTuple):
    """An operation in one version.

    Attributes:
        method: Its name.
        request: Name of the message that asks.
        write: Makes the value of it from the one of 1.0.
        response: Name of the message that answers.
        kind: Type of its value.
        read: Makes the value of 1.0 of it.
    """

    method: str
    request: str
    write: Callable[[Any], Any]
    response: str
    kind: Any
    read: Callable[[Any], Any]


class GrpcCodec(msgspec.Struct, frozen=True, kw_only=True):
    """How a version of the protocol is spoken over gRPC.

    Attributes:
        version: The version.
        package: That of its messages and of its service.
        rows: The operations that it has, by name.
        is_last: As in `holdfast._wire.bindings.Codec`.
        has_snapshots: As there.
    """

    version: str
    package: str
    rows: Mapping[str, _Row]
    is_last: Callable[[Any], bool] | None = None
    has_snapshots: bool = True

    def encode(self, operation: AnyOperation, params: Any) -> RpcRequest:
        """Makes the request of a call.

        Args:
            operation: What to call.
            params: Its parameters.

        Raises:
            MalformedError: A parameter has no form in protocol buffers; the error names it. (It is
                a `ValueError`; nothing was sent.)
            UnsupportedOperationError: The version has no such operation, or no word for what the
                request says; nothing was sent (``executed`` is False).
            ImportError: The extra is not installed.
        """
        row = self._row(operation)
        value = row.write(params)
        kind = message_type(self.package, row.request)
        message = kind.cls()
        try:
            writer(value.__class__, kind.descriptor)(value, message)
            body = message.SerializeToString()
            if len(body) > _SHALLOW:
                kind.cls.FromString(body)  # as the agent will
        except UnrepresentableError as error:
            raise codec.MalformedError(error.why, error.path) from None
        except Exception as error:
            if not _is_unreadable(error):
                raise
            raise codec.MalformedError("nested too deeply") from None
        return RpcRequest(method=f"/{self.package}.A2AService/{row.method}", body=body)

    def decode(self, operation: AnyOperation, body: bytes, *, limits: Limits) -> Any:
        """Reads the reply of an operation, or one event of its stream.

        Args:
            operation: What was called.
            body: The message, serialized.
            limits: How much is accepted; the number of artifacts, parts and messages is checked,
                too.

        Raises:
            InvalidAgentResponseError: It is not the message that it must be.
            InvalidAgentCardError: It is a card of 0.3 that lacks what a client needs.
            LimitExceededError: It is larger than a limit.
        """
        row = self._row(operation)
        if len(body) > getattr(limits, _bound_of(operation)):
            raise message_too_large(operation, limits)
        kind = message_type(self.package, row.response)
        check_values(body, kind.descriptor, limits)
        try:
            value = row.read(_read(row, kind, body))
        except UnrepresentableError as error:
            why = f"{error.why} at {error.path}" if error.path else error.why
        except ValueError as error:
            why = str(error)
        except Exception as error:
            if not _is_unreadable(error):
                raise
            why = "its bytes cannot be read, or are nested too deeply"
        else:
            if body.count(_OBJECT) + body.count(_LIST) > limits.json_depth - _DEEPEST:
                check_json_size(codec.encode(value), limits)
            if len(body) > harmless_size(limits):
                check_value(value, limits)
            return value
        raise InvalidAgentResponseError(
            f"the reply to {operation.name} is not a {row.response}: {why}"
        )

    def _row(self, operation: AnyOperation) -> _Row:
        row = self.rows.get(operation.name)
        if row is None:
            what = f"protocol {self.version} has no {operation.name} over gRPC; nothing was sent"
            raise UnsupportedOperationError(what, executed=False)
        return row


_SHALLOW = 2 * 100
"""Bytes that cannot be nested deeper than protobuf reads: 100 messages one in another."""

_OBJECT, _LIST = b"\x2a", b"\x32"
"""Bytes of which each object and each list of JSON in a message has one."""

_DEEPEST = 12
"""Levels of JSON that messages have themselves, at most."""


def _read(row: _Row, kind: MessageType, body: bytes) -> Any:
    """Reads bytes as they usually are; what is unusual about others is left to protobuf."""
    read = bytes_reader(row.kind, kind.descriptor)
    try:
        return read(body, 0, len(body))
    except (NeedsSlowPathError, IndexError, UnicodeDecodeError):
        return reader(row.kind, kind.descriptor)(kind.cls.FromString(body))


def message_too_large(
    operation: AnyOperation, limits: Limits, *, most: int | None = None, **facts: Unpack[Facts]
) -> LimitExceededError:
    """The error of a message that is larger than the limit of what it holds.

    Args:
        operation: What was called.
        limits: How much is accepted.
        most: Bytes that are let through, where that may be less; None for no other bound.
        facts: As of any `A2AError`.
    """
    which = _bound_of(operation)
    bound: int = getattr(limits, which)
    bound = bound if most is None else min(bound, most)
    return limit_error(
        which, limits, f"the {_CALLED[which]} is larger than {bound} bytes", **facts
    )


def _bound_of(operation: AnyOperation) -> str:
    if operation.streaming:
        return "event"
    return "card" if operation.response is op.GET_EXTENDED_AGENT_CARD.response else "body"


_CALLED = {"body": "reply", "card": "agent card", "event": "event of the stream"}


def _is_unreadable(error: Exception) -> bool:
    """Whether protobuf, or this program, cannot go that deep; or there is no message at all."""
    from google.protobuf.message import DecodeError, EncodeError

    return isinstance(error, RecursionError | DecodeError | EncodeError | NeedsSlowPathError)


def _same(value: Any) -> Any:
    return value


def _row_of(operation: AnyOperation) -> _Row:
    """An operation of 1.0, whose messages are named as the model's values are."""
    request, response = operation.request, operation.response
    return _Row(operation.name, request.__name__, _same, response.__name__, response, _same)


def _row_of_v03(
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
"""Where a message is not named after its method."""

_FORM = writing.GrpcForm()

CODECS: Mapping[str, GrpcCodec] = {
    PROTOCOL_VERSION: GrpcCodec(
        version=PROTOCOL_VERSION,
        package="lf.a2a.v1",
        rows={operation.name: _row_of(operation) for operation in op.OPERATIONS},
    ),
    OLDER_VERSION: GrpcCodec(
        version=OLDER_VERSION,
        package="a2a.v1",
        rows=dict(
            [
                _row_of_v03(
                    op.SEND_MESSAGE,
                    _FORM.send_message,
                    "SendMessageResponse",
                    types.Event,
                    reading.sent,
                ),
                _row_of_v03(
                    op.SEND_STREAMING_MESSAGE,
                    _FORM.send_message,
                    "StreamResponse",
                    types.Event,
                    reading.event,
                ),
                _row_of_v03(op.GET_TASK, _FORM.get_task, "Task", types.Task, reading.task),
                _row_of_v03(op.CANCEL_TASK, _FORM.cancel_task, "Task", types.Task, reading.task),
                _row_of_v03(
                    op.SUBSCRIBE_TO_TASK,
                    _FORM.subscribe,
                    "StreamResponse",
                    types.Event,
                    reading.event,
                ),
                _row_of_v03(
                    op.CREATE_PUSH_CONFIG,
                    _FORM.create_push_config,
                    "TaskPushNotificationConfig",
                    types.TaskPushConfig,
                    reading.push_config,
                ),
                _row_of_v03(
                    op.GET_PUSH_CONFIG,
                    _FORM.push_config,
                    "TaskPushNotificationConfig",
                    types.TaskPushConfig,
                    reading.push_config,
                ),
                _row_of_v03(
                    op.LIST_PUSH_CONFIGS,
                    _FORM.push_configs,
                    "ListTaskPushNotificationConfigResponse",
                    types.PushConfigs,
                    reading.push_configs,
                ),
                _row_of_v03(op.DELETE_PUSH_CONFIG, _FORM.push_config, "Empty", Empty, _same),
                _row_of_v03(
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
"""By version of the protocol."""
