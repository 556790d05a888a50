"""Protocol 0.3 over both HTTP bindings: the codecs of 1.0, with other names, types and errors.

An operation is converted to its name and types in 0.3, the binding's codec encodes and decodes it,
and the reply is converted to the model's types.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, cast

import msgspec

from holdfast._model import codec
from holdfast._model import operations as op
from holdfast._model.v03 import card, reading, types, writing
from holdfast._wire import jsonrpc, rest, status
from holdfast._wire.files import from_base64
from holdfast._wire.sse import EVENT_STREAM
from holdfast.errors import (
    A2AError,
    InternalError,
    InvalidParamsError,
    UnsupportedOperationError,
)
from holdfast.types import Empty

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from holdfast._wire.http import Encoded, HttpReply
    from holdfast.types import StreamResponse

__all__ = [
    "as_error_of_1_0",
    "decode_rest",
    "decode_rpc",
    "encode_rest",
    "encode_rpc",
    "is_last",
    "read_event",
    "rest_reader",
    "rpc_reader",
]

R = TypeVar("R")
AnyOperation = op.Operation[Any, Any]


class _Row(NamedTuple):
    """Types of an operation in 0.3.

    Attributes:
        write: Converts a request of 1.0 to one of 0.3.
        response: Type of the response in 0.3.
        read: Converts it to the response of 1.0.
        listed: Member of the response that some agents send alone, as an array.
    """

    write: Callable[[Any], Any]
    response: Any
    read: Callable[[Any], Any]
    listed: str | None = None


def _unchanged(value: R) -> R:
    return value


def _rows(form: writing.Form) -> Mapping[str, _Row]:
    return {
        op.SEND_MESSAGE.name: _Row(form.send_message, types.Event, reading.sent),
        op.SEND_STREAMING_MESSAGE.name: _Row(form.send_message, types.Event, reading.event),
        op.GET_TASK.name: _Row(writing.get_task, types.Task, reading.task),
        op.LIST_TASKS.name: _Row(form.list_tasks, types.Tasks, reading.tasks, "tasks"),
        op.CANCEL_TASK.name: _Row(form.cancel_task, types.Task, reading.task),
        op.SUBSCRIBE_TO_TASK.name: _Row(writing.task_id, types.Event, reading.event),
        op.CREATE_PUSH_CONFIG.name: _Row(
            form.create_push_config, types.TaskPushConfig, reading.push_config
        ),
        op.GET_PUSH_CONFIG.name: _Row(
            writing.push_config_id, types.TaskPushConfig, reading.push_config
        ),
        op.LIST_PUSH_CONFIGS.name: _Row(
            writing.task_id, types.PushConfigs, reading.push_configs, "configs"
        ),
        op.DELETE_PUSH_CONFIG.name: _Row(writing.push_config_id, Empty, _unchanged),
        op.GET_EXTENDED_AGENT_CARD.name: _Row(writing.nothing, card.Card, card.to_card),
    }


_RPC_ROWS = _rows(writing.RpcForm())
_REST_ROWS = _rows(writing.ProtoJsonForm())


def _row_of(operation: AnyOperation, rows: Mapping[str, _Row]) -> _Row:
    row = rows.get(operation.name)
    if row is None:
        text = f"protocol 0.3 has no {operation.name}; nothing was sent"
        raise UnsupportedOperationError(text, executed=False)
    return row


_OPTIONAL = frozenset(
    {
        op.LIST_TASKS.name,
        op.LIST_PUSH_CONFIGS.name,
        op.DELETE_PUSH_CONFIG.name,
        op.GET_EXTENDED_AGENT_CARD.name,
    }
)
"""Operations that agents of 0.3 need not support."""

_CODE_OF_STATUS: Mapping[int, int] = {
    400: -32600,
    404: -32001,
    409: -32002,
    415: -32005,
    422: -32602,
    500: -32603,
    501: -32004,
}
"""Code of an HTTP status with a message of the agent, as official servers choose it. A 502, which
they use too, is more often a gateway's, and transient."""

_CODE_OF_OPERATION_STATUS: Mapping[tuple[str, int], int] = {
    (op.GET_EXTENDED_AGENT_CARD.name, 404): -32007,
    (op.CREATE_PUSH_CONFIG.name, 501): -32003,
    (op.GET_PUSH_CONFIG.name, 501): -32003,
    (op.LIST_PUSH_CONFIGS.name, 501): -32003,
    (op.DELETE_PUSH_CONFIG.name, 501): -32003,
}
"""Exceptions by operation."""

_LIST_OPERATIONS = frozenset({op.LIST_TASKS.name, op.LIST_PUSH_CONFIGS.name})
"""Operations that official servers route over HTTP+JSON, but answer with an internal error."""

_JSON_HEADERS = {"content-type": "application/json", "accept": "application/json"}
_EVENT_HEADERS = {**_JSON_HEADERS, "accept": f"{EVENT_STREAM}, application/json"}


def is_last(event: object) -> bool:
    """Return whether this event ends the stream, with a task that is terminal or interrupted."""
    return isinstance(event, reading.LastResponse)


def read_event(body: bytes) -> StreamResponse | None:
    """Decode the body of a push notification of 0.3.

    Returns:
        None if the body is not an event of 0.3.
    """
    try:
        event_v03 = codec.decode(body, types.Event)
    except codec.MalformedError:
        return None
    if not reading.is_v03(event_v03):
        return None
    event = reading.event(event_v03)
    is_proto_json = (
        event_v03.task or event_v03.message or event_v03.status_update or event_v03.artifact_update
    )
    # The server's encoding of files is unknown here: assume that of the official servers.
    return event if is_proto_json is None else from_base64(event)


# ── JSON-RPC ─────────────────────────────────────────────────────────────────────────────────


def encode_rpc(operation: AnyOperation, params: Any, url: str, request_id: str) -> Encoded:
    """Encode a call as a POST request; see `jsonrpc.encode`.

    Raises:
        UnsupportedOperationError: 0.3 cannot express the request.
    """
    row = _row_of(operation, _RPC_ROWS)
    return jsonrpc.encode(_rpc_operation(operation, row), row.write(params), url, request_id)


def rpc_reader(operation: AnyOperation, request_id: str) -> Callable[[bytes], Any]:
    """Make a fast reader of a stream's plain events; see `jsonrpc.reader`."""
    row = _row_of(operation, _RPC_ROWS)
    return _converting_reader(jsonrpc.reader(_rpc_operation(operation, row), request_id), row)


def decode_rpc(
    operation: AnyOperation,
    request_id: str,
    reply: HttpReply,
    *,
    now: float,
    refusals: frozenset[int] = status.REFUSALS,
) -> Any:
    """Decode the reply of an operation, or one event of its stream; see `jsonrpc.decode`.

    Raises:
        A2AError: The agent's error, the error of the HTTP status, or `InvalidAgentResponseError`.
    """
    row = _row_of(operation, _RPC_ROWS)
    try:
        response = jsonrpc.decode(
            _rpc_operation(operation, row), request_id, reply, now=now, refusals=refusals
        )
    except A2AError as error:
        raise as_error_of_1_0(error, operation) from None
    return _converted(
        row.read if row.listed is None else partial(_read_listed, row), response, operation, reply
    )


def _rpc_operation(operation: AnyOperation, row: _Row) -> AnyOperation:
    response: Any = row.response if row.listed is None else Any
    return msgspec.structs.replace(operation, name=operation.method_v03, response=response)


def _read_listed(row: _Row, response: Any) -> Any:
    """Convert a response, or its list member alone."""
    if isinstance(response, list):
        response = {row.listed: cast("Any", response)}
    return row.read(codec.from_builtins(response, row.response))


# ── HTTP+JSON ────────────────────────────────────────────────────────────────────────────────


def encode_rest(operation: AnyOperation, params: Any, url: str, request_id: str) -> Encoded:
    """Encode a call as a request; see `rest.encode`.

    Raises:
        UnsupportedOperationError: 0.3 cannot express the request.
    """
    row = _row_of(operation, _REST_ROWS)
    request = row.write(params)
    encoded = rest.encode(_rest_operation(operation, row), request, url, request_id)
    headers = _EVENT_HEADERS if operation.streaming else _JSON_HEADERS
    if not encoded.body:
        headers = {"accept": headers["accept"]}
    return msgspec.structs.replace(encoded, headers=headers)


def rest_reader(operation: AnyOperation, request_id: str) -> Callable[[bytes], Any]:
    """Make a fast reader of a stream's plain events; see `rest.reader`."""
    row = _row_of(operation, _REST_ROWS)
    return _converting_reader(rest.reader(_rest_operation(operation, row), request_id), row)


def decode_rest(
    operation: AnyOperation,
    request_id: str,
    reply: HttpReply,
    *,
    now: float,
    refusals: frozenset[int] = status.REFUSALS,
) -> Any:
    """Decode the reply of an operation, or one event of its stream; see `rest.decode`.

    Raises:
        A2AError: The agent's error, the error of the HTTP status, or `InvalidAgentResponseError`.
    """
    row = _row_of(operation, _REST_ROWS)
    if row.listed is not None and reply.body.lstrip().startswith(b"["):
        body = b'{"%s":%s}' % (row.listed.encode(), reply.body)
        reply = msgspec.structs.replace(reply, body=body)
    try:
        agent_error = None if reply.status < 300 else _agent_error(operation, reply, now=now)
        if agent_error is not None:
            raise agent_error
        response = rest.decode(
            _rest_operation(operation, row), request_id, reply, now=now, refusals=refusals
        )
    except A2AError as error:
        raise as_error_of_1_0(error, operation) from None
    return _converted(row.read, response, operation, reply)


def _rest_operation(operation: AnyOperation, row: _Row) -> AnyOperation:
    return msgspec.structs.replace(operation, path=operation.path_v03, response=row.response)


def _agent_error(operation: AnyOperation, reply: HttpReply, *, now: float) -> A2AError | None:
    """Return the error of an official server, an HTTP status with a message; else None."""
    code = _CODE_OF_OPERATION_STATUS.get((operation.name, reply.status)) or _CODE_OF_STATUS.get(
        reply.status
    )
    try:
        document = codec.parse(reply.body)
    except codec.MalformedError:
        return None
    if code is None or not isinstance(document, dict):
        return None
    members = cast("dict[str, Any]", document)
    if not isinstance(members.get("message"), str) or not members.keys() <= {"message", "data"}:
        return None
    return status.from_rpc_error({**members, "code": code}, reply, now=now)


# ── Both ─────────────────────────────────────────────────────────────────────────────────────


def _converting_reader(read: Callable[[bytes], Any], row: _Row) -> Callable[[bytes], Any]:
    """Make a reader of the model's values from a reader of 0.3's."""
    convert = row.read

    def read_converted(data: bytes) -> Any:
        value = read(data)
        return None if value is None else convert(value)

    return read_converted


def _converted(
    convert: Callable[[Any], Any], value: Any, operation: AnyOperation, reply: HttpReply
) -> Any:
    try:
        return convert(value)
    except ValueError as error:
        message = f"the reply to {operation.name} is not valid: {error}"
        raise status.malformed_reply(message, reply) from None


def as_error_of_1_0(error: A2AError, operation: AnyOperation) -> A2AError:
    """Convert an error of 0.3 to its counterpart in 1.0.

    Subscribing to a terminal task is "invalid parameters" in 0.3. An optional operation that the
    agent does not know becomes `UnsupportedOperationError`, whatever the agent answers.
    """
    if operation.name == op.SUBSCRIBE_TO_TASK.name and isinstance(error, InvalidParamsError):
        return UnsupportedOperationError(error.message, **error.facts())
    if operation.name in _OPTIONAL and _is_unsupported(error, operation):
        facts = error.facts()
        facts["executed"], facts["transient"] = False, False
        return UnsupportedOperationError(
            f"the agent does not know {operation.name} ({operation.method_v03}), which is "
            f"optional in protocol 0.3: {error.message}",
            **facts,
        )
    return error


def _is_unsupported(error: A2AError, operation: AnyOperation) -> bool:
    if isinstance(error, InternalError):
        return operation.name in _LIST_OPERATIONS and error.http_status == 500
    if isinstance(error, UnsupportedOperationError) or status.is_unknown_operation(error):
        return True
    return operation.name in _LIST_OPERATIONS and error.http_status == 404
