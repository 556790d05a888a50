"""Protocol 0.3 over both bindings: the codecs of 1.0, with other names, types and errors.

An operation is rewritten to what it is called and made of in 0.3, the binding's own codec does the
rest, and what it reads is turned into the model's values.
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
from holdfast._wire.http import Encoded, HttpReply, excerpt, harmless_headers
from holdfast._wire.sse import EVENT_STREAM
from holdfast.errors import (
    A2AError,
    InternalError,
    InvalidAgentResponseError,
    InvalidParamsError,
    UnsupportedOperationError,
)
from holdfast.types import Empty

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

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
    """An operation in 0.3.

    Attributes:
        write: Makes its request of the one of 1.0.
        response: Type of the answer.
        read: Makes the answer of 1.0 of it.
        listed: Member of the answer that may come alone, as an array.
    """

    write: Callable[[Any], Any]
    response: Any
    read: Callable[[Any], Any]
    listed: str | None = None


def _same(value: R) -> R:
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
        op.DELETE_PUSH_CONFIG.name: _Row(writing.push_config_id, Empty, _same),
        op.GET_EXTENDED_AGENT_CARD.name: _Row(writing.nothing, card.Card, card.to_card),
    }


_RPC_ROWS = _rows(writing.RpcForm())
_REST_ROWS = _rows(writing.ProtoJsonForm())

_OPTIONAL = frozenset(
    {
        op.LIST_TASKS.name,
        op.LIST_PUSH_CONFIGS.name,
        op.DELETE_PUSH_CONFIG.name,
        op.GET_EXTENDED_AGENT_CARD.name,
    }
)
"""What agents of 0.3 need not know at all."""

_CODES: Mapping[int, int] = {
    400: -32600,
    404: -32001,
    409: -32002,
    415: -32005,
    422: -32602,
    500: -32603,
    501: -32004,
}
"""The error of an HTTP status under which the agent says something itself, as official servers
choose them; a 502, which is among theirs, is a gateway's more often, and passes."""

_CODES_OF: Mapping[tuple[str, int], int] = {
    (op.GET_EXTENDED_AGENT_CARD.name, 404): -32007,
    (op.CREATE_PUSH_CONFIG.name, 501): -32003,
    (op.GET_PUSH_CONFIG.name, 501): -32003,
    (op.LIST_PUSH_CONFIGS.name, 501): -32003,
    (op.DELETE_PUSH_CONFIG.name, 501): -32003,
}
"""Where a status means something else for an operation."""

_LISTS = frozenset({op.LIST_TASKS.name, op.LIST_PUSH_CONFIGS.name})
"""What official servers have a path for, over HTTP+JSON, and an internal error in place of it."""

_JSON = {"content-type": "application/json", "accept": "application/json"}
_FOR_EVENTS = {**_JSON, "accept": f"{EVENT_STREAM}, application/json"}


def is_last(event: object) -> bool:
    """Whether the agent says nothing more after an event, and the task is over or waits."""
    return isinstance(event, reading.LastResponse)


def read_event(body: bytes) -> StreamResponse | None:
    """Reads the body of a push notification.

    Returns:
        None if it is none of 0.3.
    """
    try:
        found = codec.decode(body, types.Event)
    except codec.MalformedError:
        return None
    if not reading.is_v03(found):
        return None
    event = reading.event(found)
    is_proto_json = found.task or found.message or found.status_update or found.artifact_update
    # The server that pushes it cannot be asked: its files are read as official servers write them.
    return event if is_proto_json is None else from_base64(event)


# ── JSON-RPC ─────────────────────────────────────────────────────────────────────────────────


def encode_rpc(operation: AnyOperation, params: Any, url: str, request_id: str) -> Encoded:
    """Makes the POST of a call; see `jsonrpc.encode`.

    Raises:
        UnsupportedOperationError: The request says what 0.3 cannot say.
    """
    row = _RPC_ROWS[operation.name]
    return jsonrpc.encode(_rpc(operation, row), row.write(params), url, request_id)


def rpc_reader(operation: AnyOperation, request_id: str) -> Callable[[bytes], Any]:
    """Makes what reads the plain events of a stream; see `jsonrpc.reader`."""
    row = _RPC_ROWS[operation.name]
    return _converting(jsonrpc.reader(_rpc(operation, row), request_id), row)


def decode_rpc(
    operation: AnyOperation,
    request_id: str,
    reply: HttpReply,
    *,
    now: float,
    refusals: frozenset[int] = status.REFUSALS,
) -> Any:
    """Reads the reply of an operation, or an event of its stream; see `jsonrpc.decode`.

    Raises:
        A2AError: The agent's error, the HTTP status's, or `InvalidAgentResponseError`.
    """
    row = _RPC_ROWS[operation.name]
    try:
        found = jsonrpc.decode(_rpc(operation, row), request_id, reply, now=now, refusals=refusals)
    except A2AError as error:
        raise as_error_of_1_0(error, operation) from None
    return _converted(
        row.read if row.listed is None else partial(_listed, row), found, operation, reply
    )


def _rpc(operation: AnyOperation, row: _Row) -> AnyOperation:
    response: Any = row.response if row.listed is None else Any
    return msgspec.structs.replace(operation, name=operation.method_v03, response=response)


def _listed(row: _Row, found: Any) -> Any:
    """Reads an answer, or the member alone that it consists of."""
    if isinstance(found, list):
        found = {row.listed: cast("Any", found)}
    return row.read(codec.from_builtins(found, row.response))


# ── HTTP+JSON ────────────────────────────────────────────────────────────────────────────────


def encode_rest(operation: AnyOperation, params: Any, url: str, request_id: str) -> Encoded:
    """Makes the request of a call; see `rest.encode`.

    Raises:
        UnsupportedOperationError: The request says what 0.3 cannot say.
    """
    row = _REST_ROWS[operation.name]
    written = row.write(params)
    encoded = rest.encode(_rest(operation, row), written, url, request_id)
    headers = _FOR_EVENTS if operation.streaming else _JSON
    if not encoded.body:
        headers = {"accept": headers["accept"]}
    return msgspec.structs.replace(encoded, headers=headers)


def rest_reader(operation: AnyOperation, request_id: str) -> Callable[[bytes], Any]:
    """Makes what reads the plain events of a stream; see `rest.reader`."""
    row = _REST_ROWS[operation.name]
    return _converting(rest.reader(_rest(operation, row), request_id), row)


def decode_rest(
    operation: AnyOperation,
    request_id: str,
    reply: HttpReply,
    *,
    now: float,
    refusals: frozenset[int] = status.REFUSALS,
) -> Any:
    """Reads the reply of an operation, or an event of its stream; see `rest.decode`.

    Raises:
        A2AError: The agent's error, the HTTP status's, or `InvalidAgentResponseError`.
    """
    row = _REST_ROWS[operation.name]
    if row.listed is not None and reply.body.lstrip().startswith(b"["):
        body = b'{"%s":%s}' % (row.listed.encode(), reply.body)
        reply = msgspec.structs.replace(reply, body=body)
    try:
        said = None if reply.status < 300 else _what_it_says(operation, reply, now=now)
        if said is not None:
            raise said
        found = rest.decode(_rest(operation, row), request_id, reply, now=now, refusals=refusals)
    except A2AError as error:
        raise as_error_of_1_0(error, operation) from None
    return _converted(row.read, found, operation, reply)


def _rest(operation: AnyOperation, row: _Row) -> AnyOperation:
    return msgspec.structs.replace(operation, path=operation.path_v03, response=row.response)


def _what_it_says(operation: AnyOperation, reply: HttpReply, *, now: float) -> A2AError | None:
    """The error of official servers, which is an HTTP status and a message, if this is one."""
    code = _CODES_OF.get((operation.name, reply.status)) or _CODES.get(reply.status)
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


def _converting(read: Callable[[bytes], Any], row: _Row) -> Callable[[bytes], Any]:
    """Makes a reader of the model's values of one that reads those of 0.3."""
    convert = row.read

    def read_converted(data: bytes) -> Any:
        found = read(data)
        return None if found is None else convert(found)

    return read_converted


def _converted(
    convert: Callable[[Any], Any], found: Any, operation: AnyOperation, reply: HttpReply
) -> Any:
    try:
        return convert(found)
    except ValueError as error:
        what = f"the reply to {operation.name} is not what it must be: {error}"
        raise InvalidAgentResponseError(
            what,
            http_status=reply.status,
            headers=harmless_headers(reply.headers),
            excerpt=excerpt(reply.body),
        ) from None


def as_error_of_1_0(error: A2AError, operation: AnyOperation) -> A2AError:
    """An error of 0.3 as 1.0 has it.

    A task that is over cannot be subscribed to, which 0.3 calls invalid parameters; what an agent
    of 0.3 need not have is not supported, whatever it says instead.
    """
    if operation.name == op.SUBSCRIBE_TO_TASK.name and isinstance(error, InvalidParamsError):
        return UnsupportedOperationError(error.message, **error.facts())
    if operation.name in _OPTIONAL and _is_unknown(error, operation):
        facts = error.facts()
        facts["executed"], facts["transient"] = False, False
        return UnsupportedOperationError(
            f"the agent does not know {operation.name} ({operation.method_v03}), which protocol "
            f"0.3 does not ask of it: {error.message}",
            **facts,
        )
    return error


def _is_unknown(error: A2AError, operation: AnyOperation) -> bool:
    if isinstance(error, InternalError):
        return operation.name in _LISTS and error.http_status == 500
    if isinstance(error, UnsupportedOperationError) or status.is_unknown_operation(error):
        return True
    return operation.name in _LISTS and error.http_status == 404
