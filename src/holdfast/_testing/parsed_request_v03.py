"""The agent's side of protocol 0.3: parsed requests, and their replies and errors as bytes.

It does not use the client's conversions on purpose; it converts JSON to JSON, in both forms of
0.3: with ``kind`` over JSON-RPC, and ProtoJSON over HTTP+JSON. As real agents of 0.3, it shows
history only on request, and blocks over HTTP+JSON only on request.
"""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any, ClassVar, Literal, cast

import msgspec

from holdfast import protocol as op
from holdfast._testing.parsed_request import ParsedRequest, Refusal, json_reply, plain_reply
from holdfast.types import (
    AgentCard,
    Empty,
    ListTaskPushNotificationConfigsResponse,
    SendMessageResponse,
    StreamResponse,
    Task,
    TaskPushNotificationConfig,
    TaskState,
    WireValue,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from holdfast.extend import HttpReply

__all__ = [
    "UNSUPPORTED_V03_OPERATIONS",
    "V03BytesParsedRequest",
    "V03FileEncoding",
    "V03ParsedRequest",
    "v03_card",
]

JsonObject = dict[str, Any]

V03FileEncoding = Literal["base64", "bytes"]
"""Form in which a fake agent of protocol 0.3 writes files over HTTP+JSON."""

UNSUPPORTED_V03_OPERATIONS = frozenset({op.LIST_TASKS.name})
"""Operations that a fake agent of 0.3 does not have: optional ones, and those of 1.0 only."""

_STATUSES = {
    -32001: 404,
    -32002: 409,
    -32003: 501,
    -32004: 501,
    -32005: 415,
    -32006: 502,
    -32007: 404,
    -32600: 400,
    -32601: 404,
    -32602: 422,
    -32603: 500,
}
"""The HTTP status of an error; HTTP+JSON has no code in 0.3."""

_WRAPPED_KEY = "data_part_compat"
"""Metadata of a data part whose value is not an object, and is wrapped in one."""


class V03ParsedRequest(ParsedRequest):
    """A parsed request of protocol 0.3, and the encoding of its reply in its binding."""

    @property
    def _form(self) -> _RpcForm:
        return _RPC if self._is_rpc else self._proto_json

    @property
    def _proto_json(self) -> _ProtoJsonForm:
        return _PROTO_JSON

    def params(self) -> Any:
        """Return the parameters, as the operation's request type in the model.

        Raises:
            Refusal: They are not valid.
        """
        if isinstance(self._params, Refusal):
            raise self._params
        try:
            params = self._form.request(self.operation, self._params)
        except (TypeError, ValueError, AttributeError, KeyError) as error:
            raise Refusal(-32602, f"Invalid params: {error}") from None
        return self.read(params)

    def answer(self, value: Any) -> HttpReply:
        """Return a reply with a result."""
        result = self._form.result(value)
        if self._is_rpc:
            return json_reply(200, {"jsonrpc": "2.0", "id": self._rpc_id, "result": result})
        return json_reply(200, result)

    def refuse(self, refusal: Refusal) -> HttpReply:
        """Return a reply with an error."""
        if refusal.http_status is not None:
            return plain_reply(refusal.http_status, refusal.message)
        code = refusal.code
        if self.operation == op.SUBSCRIBE_TO_TASK.name and code == -32004:
            code = -32602  # official servers of 0.3 send this for a task that has ended
        if not self._is_rpc:
            reply = json_reply(_STATUSES.get(code, 500), self._error(code, refusal.message))
            if refusal.retry_after is None:
                return reply
            return _with_retry_after(reply, refusal.retry_after)
        error: JsonObject = {"code": code, "message": refusal.message}
        if refusal.data is not None:
            error["data"] = refusal.data
        elif refusal.retry_after is not None:
            error["data"] = {"retryAfter": refusal.retry_after}
        return json_reply(200, {"jsonrpc": "2.0", "id": self._rpc_id, "error": error})

    def _error(self, _code: int, message: str) -> JsonObject:
        return {"message": message}


class V03BytesParsedRequest(V03ParsedRequest):
    """The same for a server that follows the proto: its files are bytes, its errors have codes."""

    @property
    def _proto_json(self) -> _ProtoJsonForm:
        return _PROTO_JSON_BYTES

    def _error(self, code: int, message: str) -> JsonObject:
        return {"code": code, "message": message}


def _with_retry_after(reply: HttpReply, seconds: float) -> HttpReply:
    headers = {**reply.headers, "retry-after": f"{seconds:g}"}
    return msgspec.structs.replace(reply, headers=headers)


# ── The forms ────────────────────────────────────────────────────────────────────────────────


class _RpcForm:
    """The form of JSON-RPC: converts requests to the form of 1.0, and results from it.

    Attributes:
        blocks: Whether a message waits for its task by default.
        push_key: The member of a message's configuration with its push configuration.
        parts_key: The member of a message with its parts.
        files: The members of a file, by their names in 1.0.
    """

    blocks = True
    push_key = "pushNotificationConfig"
    parts_key = "parts"
    files: ClassVar[Mapping[str, str]] = {
        "raw": "bytes",
        "url": "uri",
        "filename": "name",
        "mediaType": "mimeType",
    }

    # Requests

    def request(self, operation: str, params: JsonObject) -> JsonObject:
        """Convert parameters to the form of 1.0."""
        if "message" in params:
            return self._read_send(params)
        params = {name: value for name, value in params.items() if value is not None}
        if operation == op.GET_TASK.name:
            return {**params, "historyLength": _history_length(params.get("historyLength"))}
        if operation == op.CREATE_PUSH_CONFIG.name:
            return self._read_create_push(params)
        if operation in {op.GET_PUSH_CONFIG.name, op.DELETE_PUSH_CONFIG.name}:
            return {"taskId": params["id"], "id": params["pushNotificationConfigId"]}
        if operation == op.LIST_PUSH_CONFIGS.name:
            return {"taskId": params["id"]}
        return params

    def _read_send(self, params: JsonObject) -> JsonObject:
        v03 = dict(params.get("configuration") or {})
        blocking = v03.pop("blocking", self.blocks)
        push = v03.pop(self.push_key, None)
        configuration: JsonObject = {
            **v03,
            "historyLength": _history_length(v03.get("historyLength")),
            "returnImmediately": not blocking,
        }
        if push is not None:
            configuration["taskPushNotificationConfig"] = _read_push(push)
        message = self._read_message(dict(params["message"]))
        message["parts"] = [self._read_part(part) for part in message.pop(self.parts_key, ())]
        return {**params, "message": message, "configuration": configuration}

    def _read_part(self, part: JsonObject) -> JsonObject:
        kinds = {"text", "file", "data"} & part.keys()
        if len(kinds) != 1 or not self._is_kind(kinds, part):
            raise Refusal(-32602, "Invalid params: this is not a part")
        result: JsonObject = {}
        metadata = dict(part.get("metadata") or {})
        if "text" in part:
            result["text"] = part["text"]
        elif "data" in part:
            data = self._read_data(part["data"])
            if not isinstance(data, dict):
                raise Refusal(-32602, "Invalid params: data is an object")
            result["data"] = data["value"] if metadata.pop(_WRAPPED_KEY, False) else data
        else:
            file = part["file"]
            result = {name: file[v03] for name, v03 in self.files.items() if v03 in file}
            if "raw" in result:
                result["raw"] = self._read_bytes(result["raw"])
        return {**result, "metadata": metadata} if metadata else result

    def _read_create_push(self, params: JsonObject) -> JsonObject:
        return {**_read_push(params["pushNotificationConfig"]), "taskId": params["taskId"]}

    def _read_message(self, message: JsonObject) -> JsonObject:
        if message.pop("kind") != "message":
            raise Refusal(-32602, "Invalid params: this is not a message")
        return {**message, "role": f"ROLE_{message['role'].upper()}"}

    def _is_kind(self, kinds: set[str], part: JsonObject, /) -> bool:
        return {part.get("kind")} == kinds

    def _read_data(self, data: Any) -> Any:
        return data

    def _read_bytes(self, text: str) -> str:
        return text

    # Results

    def result(self, value: Any) -> Any:
        """Convert a result to this form."""
        match value:
            case StreamResponse() | SendMessageResponse():
                ((name, member),) = value.to_dict().items()
                return self._with_name(name, self._member(name, member))
            case Task():
                return self._task(value.to_dict())
            case TaskPushNotificationConfig():
                return self._push(value)
            case ListTaskPushNotificationConfigsResponse():
                return self._list([self._push(config) for config in value.configs])
            case AgentCard():
                return v03_card(value)
            case Empty():
                return self._empty()
            case WireValue():
                return value.to_dict()
            case _:
                return value

    def _member(self, name: str, member: JsonObject) -> JsonObject:
        match name:
            case "task":
                return self._task(member)
            case "message":
                return self._message(member)
            case "statusUpdate":
                return self._status_update(member)
            case _:
                return self._artifact_update(member)

    def _task(self, task: JsonObject) -> JsonObject:
        result = {**task, "status": self._status(task.get("status") or {})}
        for name, convert in (("artifacts", self._artifact), ("history", self._message)):
            if name in task:
                result[name] = [convert(item) for item in task[name]]
        return self._with_kind("task", result)

    def _status(self, status: JsonObject) -> JsonObject:
        state = self._state(status.get("state", "TASK_STATE_UNSPECIFIED"))
        result: JsonObject = {**status, "state": state}
        if "message" in status:
            result["message"] = self._message(status["message"])
        return result

    def _message(self, message: JsonObject) -> JsonObject:
        parts = [self._part(part) for part in message.get("parts", ())]
        rest = {name: value for name, value in message.items() if name != "parts"}
        return self._with_kind("message", {**self._with_role(rest), self.parts_key: parts})

    def _artifact(self, artifact: JsonObject) -> JsonObject:
        return {**artifact, "parts": [self._part(part) for part in artifact.get("parts", ())]}

    def _part(self, part: JsonObject) -> JsonObject:
        metadata = dict(part.get("metadata") or {})
        kind = next((kind for kind in ("text", "data") if kind in part), "file")
        content: Any = part.get(kind)
        if kind == "file":
            content = {v03: part[name] for name, v03 in self.files.items() if name in part}
            if "raw" in part:
                content[self.files["raw"]] = self._bytes(part["raw"])
        elif kind == "data":
            if not isinstance(content, dict):
                content, metadata[_WRAPPED_KEY] = {"value": content}, True
            content = self._data(content)
        result = self._with_kind(kind, {kind: content})
        return {**result, "metadata": metadata} if metadata else result

    def _status_update(self, update: JsonObject) -> JsonObject:
        state = TaskState(update["status"].get("state", TaskState.UNSPECIFIED))
        result = {
            **update,
            "status": self._status(update["status"]),
            "final": state.is_terminal or state is TaskState.INPUT_REQUIRED,
        }
        return self._with_kind("status-update", result)

    def _artifact_update(self, update: JsonObject) -> JsonObject:
        result = {**update, "artifact": self._artifact(update["artifact"])}
        return self._with_kind("artifact-update", result)

    def _push(self, config: TaskPushNotificationConfig) -> JsonObject:
        result = config.to_dict()
        task_id = result.pop("taskId")
        authentication = result.get("authentication")
        if authentication is not None:
            result["authentication"] = {"schemes": [authentication.get("scheme", "")]} | {
                name: value for name, value in authentication.items() if name != "scheme"
            }
        return {**self._push_owner(task_id, result), "pushNotificationConfig": result}

    def _with_name(self, _name: str, member: JsonObject) -> JsonObject:
        return member

    def _list(self, configs: list[JsonObject]) -> Any:
        return configs

    def _empty(self) -> Any:
        return None

    def _with_kind(self, kind: str, value: JsonObject, /) -> JsonObject:
        return {"kind": kind, **value}

    def _state(self, state: str) -> str:
        name = state.removeprefix("TASK_STATE_").lower().replace("_", "-")
        return "unknown" if name == "unspecified" else name

    def _with_role(self, message: JsonObject) -> JsonObject:
        role = message.get("role", "ROLE_AGENT")
        return {**message, "role": role.removeprefix("ROLE_").lower()}

    def _data(self, data: Any) -> Any:
        return data

    def _bytes(self, text: str) -> str:
        return text

    def _push_owner(self, task_id: str, _config: JsonObject) -> JsonObject:
        return {"taskId": task_id}


class _ProtoJsonForm(_RpcForm):
    """ProtoJSON, the form of HTTP+JSON; only the differences."""

    blocks = False
    push_key = "pushNotification"
    parts_key = "content"
    files: ClassVar[Mapping[str, str]] = {
        **_RpcForm.files,
        "raw": "fileWithBytes",
        "url": "fileWithUri",
    }

    def _read_create_push(self, params: JsonObject) -> JsonObject:
        config = params["config"]["pushNotificationConfig"]
        return {**_read_push(config), "taskId": params["id"]}

    def _read_message(self, message: JsonObject) -> JsonObject:
        return message

    def _is_kind(self, _kinds: set[str], _part: JsonObject, /) -> bool:
        return True

    def _read_data(self, data: Any) -> Any:
        return data["data"]

    def _read_bytes(self, text: str) -> str:
        return base64.b64decode(text).decode()

    def _with_name(self, name: str, member: JsonObject) -> JsonObject:
        return {name: member}

    def _list(self, configs: list[JsonObject]) -> Any:
        return {"configs": configs}

    def _empty(self) -> Any:
        return {}

    def _with_kind(self, _kind: str, value: JsonObject, /) -> JsonObject:
        return value

    def _state(self, state: str) -> str:
        return "TASK_STATE_CANCELLED" if state == TaskState.CANCELED else state

    def _with_role(self, message: JsonObject) -> JsonObject:
        return message

    def _data(self, data: Any) -> Any:
        return {"data": data}

    def _bytes(self, text: str) -> str:
        return base64.b64encode(text.encode()).decode()

    def _push_owner(self, task_id: str, config: JsonObject) -> JsonObject:
        return {"name": f"tasks/{task_id}/pushNotificationConfigs/{config.get('id', '')}"}


class _BytesForm(_ProtoJsonForm):
    """ProtoJSON whose files are bytes, as in the proto, and not base64 text in bytes."""

    def _read_bytes(self, text: str) -> str:
        return text

    def _bytes(self, text: str) -> str:
        return text


_RPC, _PROTO_JSON, _PROTO_JSON_BYTES = _RpcForm(), _ProtoJsonForm(), _BytesForm()


def _history_length(length: Any) -> int | None:
    """Return the length for 1.0: by default no history; in 0.3, 0 means no limit."""
    return 0 if length is None else int(length) or None


def _read_push(config: JsonObject) -> JsonObject:
    authentication = config.get("authentication")
    if authentication is None:
        return config
    schemes = authentication.get("schemes") or [""]
    credentials = authentication.get("credentials")
    return {**config, "authentication": {"scheme": schemes[0], "credentials": credentials}}


def v03_card(card: AgentCard) -> JsonObject:
    """Return a card in the form of 0.3, with the addresses and bindings of its interfaces."""
    first, *more = card.supported_interfaces
    document: JsonObject = card.to_dict()
    del document["supportedInterfaces"]
    capabilities = cast("Mapping[str, Any]", document.get("capabilities", {}))
    extended = "extendedAgentCard"
    return {
        **document,
        "protocolVersion": "0.3.0",
        "url": first.url,
        "preferredTransport": first.protocol_binding,
        "additionalInterfaces": [
            {"url": interface.url, "transport": interface.protocol_binding}
            for interface in (first, *more)
        ],
        "capabilities": {n: v for n, v in capabilities.items() if n != extended},
        "supportsAuthenticatedExtendedCard": bool(capabilities.get(extended)),
    }
