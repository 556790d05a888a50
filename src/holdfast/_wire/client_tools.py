"""AG2's extension for client tools: how tools are offered, called and answered, as parts.

Rules: a tool is called by an artifact, while its task waits for input; the results go back in the
next message of the task. The agent remembers nothing from one message to the next, so that each
message offers the tools anew and tells what was said before.
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
    """A tool as an agent's model sees it.

    Attributes:
        name: What it is called by.
        description: What it does.
        parameters: What it takes, as a JSON schema of an object.
    """

    name: str
    description: str
    parameters: dict[str, Any]


class ToolCall(msgspec.Struct, frozen=True, kw_only=True):
    """An agent's wish to have a tool run.

    Attributes:
        id: Names the call.
        name: The tool.
        arguments: A JSON object, as the model wrote it.
    """

    id: str
    name: str
    arguments: str


class ToolResult(msgspec.Struct, frozen=True, kw_only=True):
    """What came of a call.

    Attributes:
        id: The call.
        name: The tool.
        content: What it gave; text.
        error: Why it gave nothing; None if it did.
    """

    id: str
    name: str
    content: str = ""
    error: str | None = None


def schemas_part(tools: Iterable[ToolSchema]) -> Part:
    """The part that offers tools."""
    return _part(_SCHEMAS, {"tools": msgspec.to_builtins(tuple(tools))})


def results_part(found: Iterable[ToolResult]) -> Part:
    """The part that tells what came of calls."""
    return _part(_RESULTS, {"results": msgspec.to_builtins(tuple(found))})


def history_part(events: Iterable[dict[str, Any]]) -> Part:
    """The part that tells what was said before, event by event."""
    return _part(_HISTORY, {"events": list(events)})


def tool_calls_in(task: Task) -> tuple[ToolCall, ...]:
    """Every call that a waiting task holds, answered or not; none of a task that does not wait.

    Raises:
        InvalidAgentResponseError: One of them cannot be read, so that nobody can answer it.
    """
    if task.state is not TaskState.INPUT_REQUIRED:
        return ()
    return tuple(
        _read(part.data, artifact)
        for artifact in task.artifacts
        for part in artifact.parts
        if part.media_type == _CALL and part.data is not msgspec.UNSET
    )


def _read(data: Any, artifact: Artifact) -> ToolCall:
    call = cast("dict[str, Any]", data) if isinstance(data, dict) else {}
    name, call_id, arguments = call.get("name"), call.get("id"), call.get("arguments")
    if not isinstance(name, str) or not isinstance(call_id, str):
        text = f"artifact {artifact.artifact_id!r} calls a tool without an id or a name"
        raise InvalidAgentResponseError(text, executed=True)
    if not isinstance(arguments, str):
        arguments = msgspec.json.encode(arguments).decode()
    return ToolCall(id=call_id, name=name, arguments=arguments)


# ── What was said before ─────────────────────────────────────────────────────────────────────


def user_input_event(parts: Iterable[Part]) -> dict[str, Any]:
    """The event of a message of the user's."""
    return {"kind": "user_input", "parts": list(_inputs(parts))}


def model_response_event(said: str, calls: Iterable[ToolCall]) -> dict[str, Any]:
    """The event of a turn of the model's, which ended in calls."""
    return {
        "kind": "model_response",
        "content": said,
        "tool_calls": msgspec.to_builtins(tuple(calls)),
    }


def tool_results_event(found: Sequence[ToolResult]) -> dict[str, Any]:
    """The event of the results that a message brought."""
    told = [
        {
            "kind": "tool_result",
            "parent_id": result.id,
            "name": result.name,
            "content": result.content,
            "error": result.error,
        }
        for result in found
    ]
    return {"kind": "tool_results", "results": told}


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
    except UnicodeEncodeError:  # of an agent's call, which goes back to it
        data = json.loads(_SURROGATE.sub("\ufffd", text))
    return Part(data=data, media_type=media_type)
