"""The agent's side of protocol 0.3: its requests read, its replies and errors written.

It is written apart from the client's conversions on purpose, as JSON to JSON: what 0.3 says in two
forms, with ``kind`` over JSON-RPC and as ProtoJSON over HTTP+JSON. As real agents of 0.3, it shows
history only when asked, and blocks over HTTP+JSON only when told to.
"""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any, ClassVar, Literal, cast

import msgspec

from holdfast._model import operations as op
from holdfast._testing.serverwire import Refusal, Wire, json_reply, plain_reply
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

    from holdfast._wire.http import HttpReply

__all__ = ["LACKING", "V03BytesWire", "V03FileEncoding", "V03Wire", "v03_card"]

JsonObject = dict[str, Any]

V03FileEncoding = Literal["base64", "bytes"]

LACKING = frozenset({op.LIST_TASKS.name})
"""What no agent of 0.3 has to know, and this one does not."""

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
"""The HTTP status of an error; the code is not told."""

_WRAPPED = "data_part_compat"


class V03Wire(Wire):
    """One request of protocol 0.3 as read, and how to answer it in its own binding."""

    @property
    def _form(self) -> _RpcForm:
        return _RPC if self._is_rpc else self._proto_json

    @property
    def _proto_json(self) -> _ProtoJsonForm:
        return _PROTO_JSON

    def params(self) -> Any:
        """The parameters, as the operation's request type in the model.

        Raises:
            Refusal: They are not.
        """
        if isinstance(self._params, Refusal):
            raise self._params
        try:
            asked = self._form.request(self.operation, self._params)
        except (TypeError, ValueError, AttributeError, KeyError) as error:
            raise Refusal(-32602, f"Invalid params: {error}") from None
        return self.read(asked)

    def answer(self, value: Any) -> HttpReply:
        """A reply with a result."""
        result = self._form.result(value)
        if self._is_rpc:
            return json_reply(200, {"jsonrpc": "2.0", "id": self._rpc_id, "result": result})
        return json_reply(200, result)

    def refuse(self, refusal: Refusal) -> HttpReply:
        """A reply with an error."""
        if refusal.http_status is not None:
            return plain_reply(refusal.http_status, refusal.message)
        code = refusal.code
        if self.operation == op.SUBSCRIBE_TO_TASK.name and code == -32004:
            code = -32602  # of a task that is over
        if not self._is_rpc:
            reply = json_reply(_STATUSES.get(code, 500), self._error(code, refusal.message))
            return reply if refusal.retry_after is None else _hinted(reply, refusal.retry_after)
        error: JsonObject = {"code": code, "message": refusal.message}
        if refusal.data is not None:
            error["data"] = refusal.data
        elif refusal.retry_after is not None:
            error["data"] = {"retryAfter": refusal.retry_after}
        return json_reply(200, {"jsonrpc": "2.0", "id": self._rpc_id, "error": error})

    def _error(self, _code: int, message: str) -> JsonObject:
        return {"message": message}


class V03BytesWire(V03Wire):
    """The same of a server that follows the proto: its files are bytes, its errors have codes."""

    @property
    def _proto_json(self) -> _ProtoJsonForm:
        return _PROTO_JSON_BYTES

    def _error(self, code: int, message: str) -> JsonObject:
        return {"code": code, "message": message}


def _hinted(reply: HttpReply, seconds: float) -> HttpReply:
    headers = {**reply.headers, "retry-after": f"{seconds:g}"}
    return msgspec.structs.replace(reply, headers=headers)


# ── The forms ────────────────────────────────────────────────────────────────────────────────


class _RpcForm:
    """The form of JSON-RPC, each way: requests in the words of 1.0, results in its own.

    Attributes:
        blocks: Whether a message waits for its task unless it says something else.
        push_in: Where a message has its push configuration.
        parts: Where a message has its parts.
        files: What a file's members are called, by their names in 1.0.
    """

    blocks = True
    push_in = "pushNotificationConfig"
    parts = "parts"
    files: ClassVar[Mapping[str, str]] = {
        "raw": "bytes",
        "url": "uri",
        "filename": "name",
        "mediaType": "mimeType",
    }

    # Requests

    def request(self, operation: str, told: JsonObject) -> JsonObject:
        """What is asked for, in the words of 1.0."""
        if "message" in told:
            return self._asked_to_send(told)
        asked = {name: value for name, value in told.items() if value is not None}
        if operation == op.GET_TASK.name:
            return {**asked, "historyLength": _history(asked.get("historyLength"))}
        if operation == op.CREATE_PUSH_CONFIG.name:
            return self._asked_to_push(asked)
        if operation in {op.GET_PUSH_CONFIG.name, op.DELETE_PUSH_CONFIG.name}:
            return {"taskId": asked["id"], "id": asked["pushNotificationConfigId"]}
        if operation == op.LIST_PUSH_CONFIGS.name:
            return {"taskId": asked["id"]}
        return asked

    def _asked_to_send(self, told: JsonObject) -> JsonObject:
        wanted = dict(told.get("configuration") or {})
        blocking = wanted.pop("blocking", self.blocks)
        push = wanted.pop(self.push_in, None)
        configuration: JsonObject = {
            **wanted,
            "historyLength": _history(wanted.get("historyLength")),
            "returnImmediately": not blocking,
        }
        if push is not None:
            configuration["taskPushNotificationConfig"] = _push_in(push)
        message = self._message_in(dict(told["message"]))
        message["parts"] = [self._part_in(part) for part in message.pop(self.parts, ())]
        return {**told, "message": message, "configuration": configuration}

    def _part_in(self, part: JsonObject) -> JsonObject:
        kinds = {"text", "file", "data"} & part.keys()
        if len(kinds) != 1 or not self._is_of(kinds, part):
            raise Refusal(-32602, "Invalid params: this is no part")
        found: JsonObject = {}
        metadata = dict(part.get("metadata") or {})
        if "text" in part:
            found["text"] = part["text"]
        elif "data" in part:
            data = self._data_in(part["data"])
            if not isinstance(data, dict):
                raise Refusal(-32602, "Invalid params: data is an object")
            found["data"] = data["value"] if metadata.pop(_WRAPPED, False) else data
        else:
            file = part["file"]
            found = {ours: file[its] for ours, its in self.files.items() if its in file}
            if "raw" in found:
                found["raw"] = self._bytes_in(found["raw"])
        return {**found, "metadata": metadata} if metadata else found

    def _asked_to_push(self, asked: JsonObject) -> JsonObject:
        return {**_push_in(asked["pushNotificationConfig"]), "taskId": asked["taskId"]}

    def _message_in(self, message: JsonObject) -> JsonObject:
        if message.pop("kind") != "message":
            raise Refusal(-32602, "Invalid params: this is no message")
        return {**message, "role": f"ROLE_{message['role'].upper()}"}

    def _is_of(self, kinds: set[str], part: JsonObject, /) -> bool:
        return {part.get("kind")} == kinds

    def _data_in(self, data: Any) -> Any:
        return data

    def _bytes_in(self, text: str) -> str:
        return text

    # Results

    def result(self, value: Any) -> Any:
        """What is answered, in the words of this form."""
        match value:
            case StreamResponse() | SendMessageResponse():
                ((name, thing),) = value.to_dict().items()
                return self._named(name, self._thing(name, thing))
            case Task():
                return self._task(value.to_dict())
            case TaskPushNotificationConfig():
                return self._push(value)
            case ListTaskPushNotificationConfigsResponse():
                return self._listed([self._push(config) for config in value.configs])
            case AgentCard():
                return v03_card(value)
            case Empty():
                return self._nothing()
            case WireValue():
                return value.to_dict()
            case _:
                return value

    def _thing(self, name: str, thing: JsonObject) -> JsonObject:
        match name:
            case "task":
                return self._task(thing)
            case "message":
                return self._message(thing)
            case "statusUpdate":
                return self._status_update(thing)
            case _:
                return self._artifact_update(thing)

    def _task(self, task: JsonObject) -> JsonObject:
        told = {**task, "status": self._status(task.get("status") or {})}
        for name, convert in (("artifacts", self._artifact), ("history", self._message)):
            if name in task:
                told[name] = [convert(item) for item in task[name]]
        return self._of_kind("task", told)

    def _status(self, status: JsonObject) -> JsonObject:
        state = self._state(status.get("state", "TASK_STATE_UNSPECIFIED"))
        told: JsonObject = {**status, "state": state}
        if "message" in status:
            told["message"] = self._message(status["message"])
        return told

    def _message(self, message: JsonObject) -> JsonObject:
        parts = [self._part(part) for part in message.get("parts", ())]
        told = {name: value for name, value in message.items() if name != "parts"}
        return self._of_kind("message", {**self._said(told), self.parts: parts})

    def _artifact(self, artifact: JsonObject) -> JsonObject:
        return {**artifact, "parts": [self._part(part) for part in artifact.get("parts", ())]}

    def _part(self, part: JsonObject) -> JsonObject:
        metadata = dict(part.get("metadata") or {})
        kind = next((kind for kind in ("text", "data") if kind in part), "file")
        told: Any = part.get(kind)
        if kind == "file":
            told = {its: part[ours] for ours, its in self.files.items() if ours in part}
            if "raw" in part:
                told[self.files["raw"]] = self._bytes(part["raw"])
        elif kind == "data":
            if not isinstance(told, dict):
                told, metadata[_WRAPPED] = {"value": told}, True
            told = self._data(told)
        found = self._of_kind(kind, {kind: told})
        return {**found, "metadata": metadata} if metadata else found

    def _status_update(self, update: JsonObject) -> JsonObject:
        state = TaskState(update["status"].get("state", TaskState.UNSPECIFIED))
        told = {
            **update,
            "status": self._status(update["status"]),
            "final": state.is_terminal or state is TaskState.INPUT_REQUIRED,
        }
        return self._of_kind("status-update", told)

    def _artifact_update(self, update: JsonObject) -> JsonObject:
        told = {**update, "artifact": self._artifact(update["artifact"])}
        return self._of_kind("artifact-update", told)

    def _push(self, config: TaskPushNotificationConfig) -> JsonObject:
        told = config.to_dict()
        task_id = told.pop("taskId")
        how = told.get("authentication")
        if how is not None:
            told["authentication"] = {"schemes": [how.get("scheme", "")]} | {
                name: value for name, value in how.items() if name != "scheme"
            }
        return {**self._place(task_id, told), "pushNotificationConfig": told}

    def _named(self, _name: str, thing: JsonObject) -> JsonObject:
        return thing

    def _listed(self, configs: list[JsonObject]) -> Any:
        return configs

    def _nothing(self) -> Any:
        return None

    def _of_kind(self, kind: str, told: JsonObject, /) -> JsonObject:
        return {"kind": kind, **told}

    def _state(self, state: str) -> str:
        name = state.removeprefix("TASK_STATE_").lower().replace("_", "-")
        return "unknown" if name == "unspecified" else name

    def _said(self, message: JsonObject) -> JsonObject:
        role = message.get("role", "ROLE_AGENT")
        return {**message, "role": role.removeprefix("ROLE_").lower()}

    def _data(self, data: Any) -> Any:
        return data

    def _bytes(self, text: str) -> str:
        return text

    def _place(self, task_id: str, _config: JsonObject) -> JsonObject:
        return {"taskId": task_id}


class _ProtoJsonForm(_RpcForm):
    """ProtoJSON, the form of HTTP+JSON, where it differs."""

    blocks = False
    push_in = "pushNotification"
    parts = "content"
    files: ClassVar[Mapping[str, str]] = {
        **_RpcForm.files,
        "raw": "fileWithBytes",
        "url": "fileWithUri",
    }

    def _asked_to_push(self, asked: JsonObject) -> JsonObject:
        config = asked["config"]["pushNotificationConfig"]
        return {**_push_in(config), "taskId": asked["id"]}

    def _message_in(self, message: JsonObject) -> JsonObject:
        return message

    def _is_of(self, _kinds: set[str], _part: JsonObject, /) -> bool:
        return True

    def _data_in(self, data: Any) -> Any:
        return data["data"]

    def _bytes_in(self, text: str) -> str:
        return base64.b64decode(text).decode()

    def _named(self, name: str, thing: JsonObject) -> JsonObject:
        return {name: thing}

    def _listed(self, configs: list[JsonObject]) -> Any:
        return {"configs": configs}

    def _nothing(self) -> Any:
        return {}

    def _of_kind(self, _kind: str, told: JsonObject, /) -> JsonObject:
        return told

    def _state(self, state: str) -> str:
        return "TASK_STATE_CANCELLED" if state == TaskState.CANCELED else state

    def _said(self, message: JsonObject) -> JsonObject:
        return message

    def _data(self, data: Any) -> Any:
        return {"data": data}

    def _bytes(self, text: str) -> str:
        return base64.b64encode(text.encode()).decode()

    def _place(self, task_id: str, config: JsonObject) -> JsonObject:
        return {"name": f"tasks/{task_id}/pushNotificationConfigs/{config.get('id', '')}"}


class _BytesForm(_ProtoJsonForm):
    """ProtoJSON whose files are bytes, as the proto says, and no base64 text in bytes."""

    def _bytes_in(self, text: str) -> str:
        return text

    def _bytes(self, text: str) -> str:
        return text


_RPC, _PROTO_JSON, _PROTO_JSON_BYTES = _RpcForm(), _ProtoJsonForm(), _BytesForm()


def _history(length: Any) -> int | None:
    """Nothing is shown unless asked; 0 sets no limit."""
    return 0 if length is None else int(length) or None


def _push_in(config: JsonObject) -> JsonObject:
    how = config.get("authentication")
    if how is None:
        return config
    schemes = how.get("schemes") or [""]
    return {
        **config,
        "authentication": {"scheme": schemes[0], "credentials": how.get("credentials")},
    }


def v03_card(card: AgentCard) -> JsonObject:
    """A card in the words of 0.3; of its interfaces, the addresses and bindings."""
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
            {"url": each.url, "transport": each.protocol_binding} for each in (first, *more)
        ],
        "capabilities": {n: v for n, v in capabilities.items() if n != extended},
        "supportsAuthenticatedExtendedCard": bool(capabilities.get(extended)),
    }
