"""The client, and what its methods take and return."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast._public import publish

if TYPE_CHECKING:
    from holdfast._client.answer import Answer
    from holdfast._client.batch import BulkRun, RunItem, RunResult
    from holdfast._client.client import Client
    from holdfast._client.client_tools import ClientTools
    from holdfast._client.connect import ask, connect
    from holdfast._client.content import (
        Content,
        data_part,
        file_part,
        text_part,
        to_message,
        url_part,
    )
    from holdfast._client.conversation import Conversation, Interruption, InterruptionHook
    from holdfast._client.coordinator import Coordinator
    from holdfast._client.event_stream import EventStream
    from holdfast._client.fan_out import FanOut
    from holdfast._client.named_agent import AgentOrClient, AgentResult
    from holdfast._client.options import CallOptions, ConnectOptions, CreateOptions, SendOptions
    from holdfast._client.pending import PendingCall, ResumedCall
    from holdfast._client.targets import AgentTarget
    from holdfast._client.tools import ToolError
    from holdfast._stream.text import TextChange, TextDelta, TextReset
    from holdfast._wire.network_scope import AgentReach

__all__ = [
    "AgentOrClient",
    "AgentReach",
    "AgentResult",
    "AgentTarget",
    "Answer",
    "BulkRun",
    "CallOptions",
    "Client",
    "ClientTools",
    "ConnectOptions",
    "Content",
    "Conversation",
    "Coordinator",
    "CreateOptions",
    "EventStream",
    "FanOut",
    "Interruption",
    "InterruptionHook",
    "PendingCall",
    "ResumedCall",
    "RunItem",
    "RunResult",
    "SendOptions",
    "TextChange",
    "TextDelta",
    "TextReset",
    "ToolError",
    "ask",
    "connect",
    "data_part",
    "file_part",
    "text_part",
    "to_message",
    "url_part",
]

__getattr__, __dir__ = publish(
    __name__,
    {
        "_client.answer": "Answer",
        "_client.batch": "BulkRun RunItem RunResult",
        "_client.client": "Client",
        "_client.client_tools": "ClientTools",
        "_client.connect": "ask connect",
        "_client.content": "Content data_part file_part text_part to_message url_part",
        "_client.conversation": "Conversation Interruption InterruptionHook",
        "_client.coordinator": "Coordinator",
        "_client.event_stream": "EventStream",
        "_client.fan_out": "FanOut",
        "_client.named_agent": "AgentOrClient AgentResult",
        "_client.options": "CallOptions ConnectOptions CreateOptions SendOptions",
        "_client.pending": "PendingCall ResumedCall",
        "_client.targets": "AgentTarget",
        "_client.tools": "ToolError",
        "_stream.text": "TextChange TextDelta TextReset",
        "_wire.network_scope": "AgentReach",
    },
)
