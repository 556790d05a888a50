"""The agent's side of protocol 0.3: its requests read, its replies and errors written.

It is written apart from the client's conversions on purpose, as JSON to JSON: what 0.3 says in two
forms, with ``kind`` over JSON-RPC and as ProtoJSON over HTTP+JSON. As real agents of 0.3, it shows
history only when asked, and blocks over HTTP+JSON only when told to.
"""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any, cast

import msgspec

from holdfast.model import operations as op
from holdfast.model.card import AgentCard
from holdfast.model.requests import (
    Empty,
    ListTaskPushNotificationConfigsResponse,
    SendMessageResponse,
    TaskPushNotificationConfig,
)
from holdfast.model.types import StreamResponse, Task, TaskState, WireValue
from holdfast.testing.serverwire import Refusal, Wire, json_reply, plain_reply

if TYPE_CHECKING:
    from collections.abc import Mapping

    from holdfast.wire.http import HttpReply

__all__ = ["LACKING", "OlderWire", "older_card"]

JsonObject = dict[str, Any]

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

_FILES = {"raw": "bytes", "url": "uri", "filename": "name", "mediaType": "mimeType"}
_PROTO_FILES = _FILES | {"raw": "fileWithBytes", "url": "fileWithUri"}
_WRAPPED = "data_part_compat"


class OlderWire(Wire):
    """One request of protocol 0.3 as read, and how to answer it in its own binding."""

    def params(self) -> Any:
        """The parameters, as the operation's request type in the model.

        Raises:
            Refusal: They are not.
        """
        if isinstance(self._params, Refusal):
            raise self._params
        try:
            asked = _request(self.operation, self._params, is_rpc=self._is_rpc)
        except (TypeError, ValueError, AttributeError, KeyError) as error:
            raise Refusal(-32602, f"Invalid params: {error}") from None
        return self.read(asked)

    def answer(self, value: Any) -> HttpReply:
        """A reply with a result."""
        result = _result(value, is_rpc=self._is_rpc)
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
            reply = json_reply(_STATUSES.get(code, 500), {"message": refusal.message})
            return reply if refusal.retry_after is None else _hinted(reply, refusal.retry_after)
        error: JsonObject = {"code": code, "message": refusal.message}
        if refusal.data is not None:
            error["data"] = refusal.data
        elif refusal.retry_after is not None:
            error["data"] = {"retryAfter": refusal.retry_after}
        return json_reply(200, {"jsonrpc": "2.0", "id": self._rpc_id, "error": error})


def _hinted(reply: HttpReply, seconds: float) -> HttpReply:
    headers = {**reply.headers, "retry-after": f"{seconds:g}"}
    return msgspec.structs.replace(reply, headers=headers)


# ── Requests ─────────────────────────────────────────────────────────────────────────────────


def _request(operation: str, told: JsonObject, *, is_rpc: bool) -> JsonObject:
    """What is asked for, in the words of 1.0."""
    if "message" in told:
        return _asked_to_send(told, is_rpc=is_rpc)
    asked = {name: value for name, value in told.items() if value is not None}
    if operation == op.GET_TASK.name:
        return {**asked, "historyLength": _history(asked.get("historyLength"))}
    if operation == op.CREATE_PUSH_CONFIG.name:
        holder = asked if is_rpc else asked["config"]
        task_id = asked["taskId"] if is_rpc else asked["id"]
        return {**_push_in(holder["pushNotificationConfig"]), "taskId": task_id}
    if operation in {op.GET_PUSH_CONFIG.name, op.DELETE_PUSH_CONFIG.name}:
        return {"taskId": asked["id"], "id": asked["pushNotificationConfigId"]}
    if operation == op.LIST_PUSH_CONFIGS.name:
        return {"taskId": asked["id"]}
    return asked


def _asked_to_send(told: JsonObject, *, is_rpc: bool) -> JsonObject:
    wanted = dict(told.get("configuration") or {})
    blocking = wanted.pop("blocking", is_rpc)
    push = wanted.pop("pushNotificationConfig" if is_rpc else "pushNotification", None)
    configuration: JsonObject = {
        **wanted,
        "historyLength": _history(wanted.get("historyLength")),
        "returnImmediately": not blocking,
    }
    if push is not None:
        configuration["taskPushNotificationConfig"] = _push_in(push)
    message = dict(told["message"])
    parts = message.pop("parts" if is_rpc else "content", ())
    if is_rpc:
        if message.pop("kind") != "message":
            raise Refusal(-32602, "Invalid params: this is no message")
        message["role"] = f"ROLE_{message['role'].upper()}"
    message["parts"] = [_part_in(part, is_rpc=is_rpc) for part in parts]
    return {**told, "message": message, "configuration": configuration}


def _history(length: Any) -> int | None:
    """Nothing is shown unless asked; 0 sets no limit."""
    return 0 if length is None else int(length) or None


def _part_in(part: JsonObject, *, is_rpc: bool) -> JsonObject:
    kinds = {"text", "file", "data"} & part.keys()
    if len(kinds) != 1 or (is_rpc and {part.get("kind")} != kinds):
        raise Refusal(-32602, "Invalid params: this is no part")
    found: JsonObject = {}
    metadata = dict(part.get("metadata") or {})
    if "text" in part:
        found["text"] = part["text"]
    elif "data" in part:
        data = part["data"] if is_rpc else part["data"]["data"]
        if not isinstance(data, dict):
            raise Refusal(-32602, "Invalid params: data is an object")
        found["data"] = data["value"] if metadata.pop(_WRAPPED, False) else data
    else:
        names = _FILES if is_rpc else _PROTO_FILES
        found = {ours: part["file"][its] for ours, its in names.items() if its in part["file"]}
        if "raw" in found and not is_rpc:
            found["raw"] = base64.b64decode(found["raw"]).decode()
    return {**found, "metadata": metadata} if metadata else found


def _push_in(config: JsonObject) -> JsonObject:
    how = config.get("authentication")
    if how is None:
        return config
    schemes = how.get("schemes") or [""]
    return {
        **config,
        "authentication": {"scheme": schemes[0], "credentials": how.get("credentials")},
    }


# ── Results ──────────────────────────────────────────────────────────────────────────────────


def _result(value: Any, *, is_rpc: bool) -> Any:
    match value:
        case StreamResponse() | SendMessageResponse():
            document = value.to_dict()
            ((name, thing),) = document.items()
            found = _THINGS[name](thing, is_rpc)
            if is_rpc:
                return found
            return {name: found}
        case Task():
            return _task(value.to_dict(), is_rpc)
        case TaskPushNotificationConfig():
            return _push(value, is_rpc=is_rpc)
        case ListTaskPushNotificationConfigsResponse():
            configs = [_push(config, is_rpc=is_rpc) for config in value.configs]
            return configs if is_rpc else {"configs": configs}
        case AgentCard():
            return older_card(value)
        case Empty():
            return None if is_rpc else {}
        case WireValue():
            return value.to_dict()
        case _:
            return value


def _task(task: JsonObject, is_rpc: bool) -> JsonObject:  # noqa: FBT001  as in the table below
    told = {**task, "status": _status(task.get("status") or {}, is_rpc=is_rpc)}
    for name, convert in (("artifacts", _artifact), ("history", _message)):
        if name in task:
            told[name] = [convert(item, is_rpc) for item in task[name]]
    return _kind("task", told, is_rpc=is_rpc)


def _status(status: JsonObject, *, is_rpc: bool) -> JsonObject:
    state: str = status.get("state", "TASK_STATE_UNSPECIFIED")
    if is_rpc:
        state = state.removeprefix("TASK_STATE_").lower().replace("_", "-")
        state = "unknown" if state == "unspecified" else state
    elif state == TaskState.CANCELED:
        state = "TASK_STATE_CANCELLED"
    told: JsonObject = {**status, "state": state}
    if "message" in status:
        told["message"] = _message(status["message"], is_rpc)
    return told


def _message(message: JsonObject, is_rpc: bool) -> JsonObject:  # noqa: FBT001
    parts = [_part(part, is_rpc=is_rpc) for part in message.get("parts", ())]
    told = {name: value for name, value in message.items() if name != "parts"}
    if not is_rpc:
        return {**told, "content": parts}
    role = told.get("role", "ROLE_AGENT").removeprefix("ROLE_").lower()
    return {"kind": "message", **told, "role": role, "parts": parts}


def _artifact(artifact: JsonObject, is_rpc: bool) -> JsonObject:  # noqa: FBT001
    parts = [_part(part, is_rpc=is_rpc) for part in artifact.get("parts", ())]
    return {**artifact, "parts": parts}


def _part(part: JsonObject, *, is_rpc: bool) -> JsonObject:
    metadata = dict(part.get("metadata") or {})
    kind = next((kind for kind in ("text", "data") if kind in part), "file")
    told: Any = part.get(kind)
    if kind == "file":
        names = _FILES if is_rpc else _PROTO_FILES
        told = {names[name]: part[name] for name in names if name in part}
        if "fileWithBytes" in told:
            told["fileWithBytes"] = base64.b64encode(told["fileWithBytes"].encode()).decode()
    elif kind == "data":
        if not isinstance(part["data"], dict):
            told, metadata[_WRAPPED] = {"value": told}, True
        told = told if is_rpc else {"data": told}
    found: JsonObject = {"kind": kind, kind: told} if is_rpc else {kind: told}
    return {**found, "metadata": metadata} if metadata else found


def _status_update(update: JsonObject, is_rpc: bool) -> JsonObject:  # noqa: FBT001
    state = TaskState(update["status"].get("state", TaskState.UNSPECIFIED))
    told = {
        **update,
        "status": _status(update["status"], is_rpc=is_rpc),
        "final": state.is_terminal or state is TaskState.INPUT_REQUIRED,
    }
    return _kind("status-update", told, is_rpc=is_rpc)


def _artifact_update(update: JsonObject, is_rpc: bool) -> JsonObject:  # noqa: FBT001
    told = {**update, "artifact": _artifact(update["artifact"], is_rpc)}
    return _kind("artifact-update", told, is_rpc=is_rpc)


_THINGS = {
    "task": _task,
    "message": _message,
    "statusUpdate": _status_update,
    "artifactUpdate": _artifact_update,
}


def _kind(kind: str, told: JsonObject, *, is_rpc: bool) -> JsonObject:
    return {"kind": kind, **told} if is_rpc else told


def _push(config: TaskPushNotificationConfig, *, is_rpc: bool) -> JsonObject:
    told = config.to_dict()
    task_id = told.pop("taskId")
    how = told.get("authentication")
    if how is not None:
        told["authentication"] = {"schemes": [how.get("scheme", "")]} | {
            name: value for name, value in how.items() if name != "scheme"
        }
    if is_rpc:
        return {"taskId": task_id, "pushNotificationConfig": told}
    name = f"tasks/{task_id}/pushNotificationConfigs/{told.get('id', '')}"
    return {"name": name, "pushNotificationConfig": told}


def older_card(card: AgentCard) -> JsonObject:
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
