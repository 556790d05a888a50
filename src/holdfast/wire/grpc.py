"""The gRPC binding (A2A specification 10), in both versions: calls to bytes, bytes to values.

Nothing here knows of grpcio, which carries the bytes: a call is the path of a method, metadata and
a message; what comes back is a message, or a status with metadata. In 0.3 a request is rewritten
to what it is made of there, and what is read is turned into the model's values (see `wire.v03`).
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from holdfast._version import __version__
from holdfast.errors import InvalidAgentResponseError, UnsupportedOperationError
from holdfast.model import codec
from holdfast.model import operations as op
from holdfast.model.requests import Empty
from holdfast.model.v03 import card, reading, types, writing
from holdfast.wire import status, v03
from holdfast.wire.bindings import OLDER_VERSION, PROTOCOL_VERSION, protocol_headers
from holdfast.wire.http import FRAMING
from holdfast.wire.limits import Limits, check_json_size, check_value, exceeded, harmless
from holdfast.wire.protobuf.details import read_details
from holdfast.wire.protobuf.messages import MessageType, check_library, message_type
from holdfast.wire.protobuf.reading import bytes_reader, reader
from holdfast.wire.protobuf.sizes import check_values
from holdfast.wire.protobuf.values import UnfitError, UnusualError
from holdfast.wire.protobuf.writing import writer

if TYPE_CHECKING:
    from collections.abc import Collection

    from holdfast.errors import A2AError

__all__ = [
    "BINDING",
    "CODECS",
    "USER_AGENT",
    "GrpcCodec",
    "Metadata",
    "RpcRequest",
    "RpcStatus",
    "check_library",
    "error_of",
    "reply_headers",
    "request_metadata",
]

BINDING = "GRPC"
"""The name that cards use."""

USER_AGENT = f"holdfast/{__version__}"
"""For the channel: gRPC writes the header by itself (``grpc.primary_user_agent``)."""

AnyOperation = op.Operation[Any, Any]

Metadata = Iterable[tuple[str, str | bytes]]
"""As grpcio gives and takes it: values of names that end in ``-bin`` are bytes."""


# ── Messages ─────────────────────────────────────────────────────────────────────────────────


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
        is_last: As in `holdfast.wire.bindings.Codec`.
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
        except UnfitError as error:
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
        _check_size(operation, body, limits)
        kind = message_type(self.package, row.response)
        check_values(body, kind.descriptor, limits)
        try:
            value = row.read(_read(row, kind, body))
        except UnfitError as error:
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
            if len(body) > harmless(limits):
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
    except (UnusualError, IndexError, UnicodeDecodeError):
        return reader(row.kind, kind.descriptor)(kind.cls.FromString(body))


def _check_size(operation: AnyOperation, body: bytes, limits: Limits) -> None:
    """Checks the size of a message by the limit of what it holds."""
    which = _bound_of(operation)
    bound: int = getattr(limits, which)
    if len(body) > bound:
        raise exceeded(which, limits, f"the {_CALLED[which]} is larger than {bound} bytes")


def _bound_of(operation: AnyOperation) -> str:
    if operation.streaming:
        return "event"
    return "card" if operation.response is op.GET_EXTENDED_AGENT_CARD.response else "body"


_CALLED = {"body": "reply", "card": "agent card", "event": "event of the stream"}


def _is_unreadable(error: Exception) -> bool:
    """Whether protobuf, or this program, cannot go that deep; or there is no message at all."""
    from google.protobuf.message import DecodeError, EncodeError

    return isinstance(error, RecursionError | DecodeError | EncodeError | UnusualError)


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


# ── Metadata ─────────────────────────────────────────────────────────────────────────────────

_OWN = FRAMING | {"content-type", "user-agent"}
"""What gRPC writes by itself."""

_RESERVED = "grpc-"
_BINARY = "-bin"
_NAME = re.compile(r"(?!-bin$)[0-9a-z_.-]+")
_VALUE = re.compile(r"[\x20-\x7e]*")


def request_metadata(
    version: str, headers: Mapping[str, str], extensions: Collection[str] = ()
) -> tuple[tuple[str, str | bytes], ...]:
    """The metadata of a call: its headers, the version and the extensions (A2A 10.3).

    Args:
        version: One of `PROTOCOL_VERSIONS`.
        headers: The caller's headers and the credentials, names in lower case. Those that gRPC
            writes by itself (``user-agent``, ``content-type`` …) are left out; the value of a
            name in ``-bin`` is base64.
        extensions: URIs of the extensions that are asked for; none leaves the caller's own header.

    Raises:
        ValueError: A name or a value that gRPC does not carry; the value is not shown.
    """
    written = {**headers, **protocol_headers(version, extensions, headers)}
    return tuple(
        (name, _carried(name, value)) for name, value in written.items() if name not in _OWN
    )


def _carried(name: str, value: str) -> str | bytes:
    """A value as gRPC carries it (its specification of HTTP/2, "Custom-Metadata")."""
    if name.startswith(_RESERVED):
        raise ValueError(f"the header {name} is set by gRPC, not by the caller")
    if _NAME.fullmatch(name) is None:
        raise ValueError(f"{name!r} is not a name that gRPC carries: only a-z, 0-9, '_', '-', '.'")
    if name.endswith(_BINARY):
        try:
            return base64.b64decode(value + "=" * (-len(value) % 4), validate=True)
        except (binascii.Error, ValueError):
            raise ValueError(f"the header {name} is binary, so that it must be base64") from None
    if _VALUE.fullmatch(value) is None:
        raise ValueError(f"the header {name} has a character that gRPC does not carry")
    return value.strip()


def reply_headers(*metadata: Metadata | None) -> dict[str, str]:
    """Metadata as the headers of a `Reply`: initial first, then trailing.

    Names are in lower case, values of one name are joined by a comma; binary ones are base64;
    gRPC's own (``grpc-…``) are left out.
    """
    headers = _joined(*metadata)
    return {name: value for name, value in headers.items() if not name.startswith(_RESERVED)}


def _joined(*metadata: Metadata | None) -> dict[str, str]:
    headers: dict[str, str] = {}
    for each in metadata:
        for name, value in each or ():
            lowered, text = name.lower(), value if isinstance(value, str) else _text(name, value)
            headers[lowered] = f"{headers[lowered]}, {text}" if lowered in headers else text
    return headers


def _text(name: str, value: bytes) -> str:
    if name.lower().endswith(_BINARY):
        return base64.b64encode(value).decode()
    return value.decode("utf-8", "replace")


# ── Errors ───────────────────────────────────────────────────────────────────────────────────


class RpcStatus(msgspec.Struct, frozen=True, kw_only=True):
    """How a call ended that was no success, as gRPC tells it.

    Attributes:
        code: Name of the status, as ``"NOT_FOUND"``, or its number.
        details: The text that came along.
        initial: Metadata before the reply.
        trailing: Metadata behind it.
    """

    code: str | int
    details: str | None = None
    initial: Metadata | None = None
    trailing: Metadata | None = None


_RICH = "grpc-status-details-bin"
_TOO_LARGE = "CLIENT: Received message larger than max"
"""How gRPC's core begins where it did not take a message from the agent."""

_NAMES: Mapping[int, str] = {meant.number: name for name, meant in status.GRPC_STATUSES.items()}


def error_of(
    operation: AnyOperation,
    ended: RpcStatus,
    *,
    version: str,
    now: float,
    refusals: frozenset[int],
    sent: bool = True,
    began: bool = False,
    limits: Limits | None = None,
) -> A2AError:
    """Makes the error of a call that gRPC says has failed.

    Args:
        operation: What was called.
        ended: What gRPC says.
        version: The version of the protocol that was spoken.
        now: Wall time in seconds since the epoch, to read a Retry-After date by.
        refusals: HTTP statuses that are taken to mean "not executed" (`Resilience.refusals`);
            those gRPC statuses mean it that stand for one of them.
        sent: False where it is certain that no byte of the request left, because there never was
            a connection: then it was not executed, whatever is said.
        began: Whether an event or the initial metadata had come before.
        limits: What the client accepts, where the channel has a bound because of it.

    Returns:
        With ``grpc_status`` and the facts; raised by whoever asked, who adds ``agent``.
    """
    text = ended.details or ""
    if limits is not None and text.startswith(_TOO_LARGE):
        which = _bound_of(operation)
        what = f"the {_CALLED[which]} is larger than {getattr(limits, which)} bytes"
        return exceeded(which, limits, what, grpc_status="RESOURCE_EXHAUSTED")
    code = ended.code
    headers = _joined(ended.initial, ended.trailing)
    rich = next((v for name, v in ended.trailing or () if name.lower() == _RICH), None)
    told = read_details(rich) if isinstance(rich, bytes) else None
    end = status.RpcEnd(
        status=code if isinstance(code, str) else _NAMES.get(code, str(code)),
        text=text if told is None or not told.message else told.message,
        details=() if told is None else told.details,
        headers=headers,
        sent=sent,
        began=began,
    )
    error = status.from_grpc_status(operation, end, now=now, refusals=refusals)
    return v03.in_words_of_1_0(error, operation) if version == OLDER_VERSION else error
