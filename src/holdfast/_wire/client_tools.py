"""AG2's extension for client tools: parts that offer, call and answer tools.

Rules: an agent calls a tool by an artifact, while its task waits for input; the task's next
message returns the results. The agent keeps no state between messages, so each message repeats
the tools and the history.
"""

from __future__ import annotations

import json
import re
from base64 import b64encode
from typing import TYPE_CHECKING, Any, cast

import msgspec

from holdfast.errors import InvalidAgentResponseError
from holdfast.types import Part, TaskState

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from holdfast.types import Artifact, Task

__all__ = [
    "CLIENT_TOOLS",
    "ToolCall",
    "ToolResult",
    "ToolSchema",
    "history_part",
    "model_response_event",
    "results_part",
    "schemas_part",
    "tool_calls_in",
    "tool_results_event",
    "user_input_event",
]

_SURROGATE = re.compile("[\ud800-\udfff]")

CLIENT_TOOLS = "urn:ag2:client-tools:v1"
"""The URI of the extension."""

_SCHEMAS = "application/vnd.ag2.tool-schemas+json"
_CALL = "application/vnd.ag2.tool-call+json"
_RESULTS = "application/vnd.ag2.tool-result+json"
_HISTORY = "application/vnd.ag2.history+json"


class ToolSchema(msgspec.Struct, frozen=True, kw_only=True):
    """Tool as offered to an agent's model.

    Attributes:
        name: Name by which the model calls it.
        description: Description for the model.
        parameters: JSON schema of the arguments, an object.
    """

    name: str
    description: str
    parameters: dict[str, Any]


class ToolCall(msgspec.Struct, frozen=True, kw_only=True):
    """Request of an agent to run a tool.

    Attributes:
        id: Identifies the call.
        name: Name of the tool.
        arguments: A JSON object, as the model wrote it.
    """

    id: str
    name: str
    arguments: str


class ToolResult(msgspec.Struct, frozen=True, kw_only=True):
    """Result of a tool call.

    Attributes:
        id: Identifies the call.
        name: Name of the tool.
        content: Output of the tool, as text.
        error: Message of the tool's failure; None if it succeeded.
    """

    id: str
    name: str
    content: str = ""
    error: str | None = None


def schemas_part(tools: Iterable[ToolSchema]) -> Part:
    """Return the part that offers tools."""
    return _part(_SCHEMAS, {"tools": msgspec.to_builtins(tuple(tools))})


def results_part(results: Iterable[ToolResult]) -> Part:
    """Return the part with the results of tool calls."""
    return _part(_RESULTS, {"results": msgspec.to_builtins(tuple(results))})


def history_part(events: Iterable[dict[str, Any]]) -> Part:
    """Return the part with the earlier turns, one event each."""
    return _part(_HISTORY, {"events": list(events)})


def tool_calls_in(task: Task) -> tuple[ToolCall, ...]:
    """Return all tool calls in a task that waits for input, answered or not.

    Raises:
        InvalidAgentResponseError: A call is malformed, so it cannot be answered.
    """
    if task.state is not TaskState.INPUT_REQUIRED:
        return ()
    return tuple(
        _read_call(part.data, artifact)
        for artifact in task.artifacts
        for part in artifact.parts
        if part.media_type == _CALL and part.data is not msgspec.UNSET
    )


def _read_call(data: Any, artifact: Artifact) -> ToolCall:
    call = cast("dict[str, Any]", data) if isinstance(data, dict) else {}
    name, call_id, arguments = call.get("name"), call.get("id"), call.get("arguments")
    if not isinstance(name, str) or not isinstance(call_id, str):
        text = f"artifact {artifact.artifact_id!r} calls a tool without an id or a name"
        raise InvalidAgentResponseError(text, executed=True)
    if not isinstance(arguments, str):
        arguments = msgspec.json.encode(arguments).decode()
    return ToolCall(id=call_id, name=name, arguments=arguments)


# ── Events of the history ────────────────────────────────────────────────────────────────────


def user_input_event(parts: Iterable[Part]) -> dict[str, Any]:
    """Return the event of a user's message."""
    return {"kind": "user_input", "parts": list(_inputs(parts))}


def model_response_event(text: str, calls: Iterable[ToolCall]) -> dict[str, Any]:
    """Return the event of a turn of the model that ended in tool calls."""
    return {
        "kind": "model_response",
        "content": text,
        "tool_calls": msgspec.to_builtins(tuple(calls)),
    }


def tool_results_event(results: Sequence[ToolResult]) -> dict[str, Any]:
    """Return the event of a message with tool results."""
    entries = [
        {
            "kind": "tool_result",
            "parent_id": result.id,
            "name": result.name,
            "content": result.content,
            "error": result.error,
        }
        for result in results
    ]
    return {"kind": "tool_results", "results": entries}


def _inputs(parts: Iterable[Part]) -> Iterator[dict[str, Any]]:
    for part in parts:
        if part.text is not None:
            yield {"type": "text", "text": part.text}
        elif part.raw is not None:
            yield {
                "type": "binary",
                "media_type": part.media_type or "application/octet-stream",
                "data": b64encode(part.raw).decode(),
                "kind": "binary",
                "vendor_metadata": {"filename": part.filename} if part.filename else {},
            }
        elif part.url is not None:
            yield {"type": "url", "url": part.url, "kind": "binary"}
        else:
            yield {"type": "data", "data": part.data}


def _part(media_type: str, data: dict[str, Any]) -> Part:
    text = json.dumps(data, ensure_ascii=False)
    try:
        text.encode()
    except UnicodeEncodeError:  # lone surrogates from an agent's call, which is sent back to it
        data = json.loads(_SURROGATE.sub("\ufffd", text))
    return Part(data=data, media_type=media_type)
