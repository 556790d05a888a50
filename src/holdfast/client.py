"""The client, and what its methods take and return."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast._client.answer import Answer
from holdfast._client.client import Client
from holdfast._client.connect import ask, connect
from holdfast._client.content import Content, data_part, file_part, text_part, url_part
from holdfast._client.event_stream import EventStream
from holdfast._client.options import CallOptions, ConnectOptions, SendOptions
from holdfast._public import publish
from holdfast._stream.text import TextChange, TextDelta, TextReset

if TYPE_CHECKING:
    from holdfast._client.batch import BulkRun, RunItem, RunResult
    from holdfast._client.client_tools import ClientTools
    from holdfast._client.conversation import Conversation, Interruption, InterruptionHook
    from holdfast._client.coordinator import Coordinator
    from holdfast._client.fan_out import FanOut
    from holdfast._client.named_agent import AgentResult
    from holdfast._client.pending import PendingCall, ResumedCall
    from holdfast._client.tools import ToolError

__all__ = [
    "AgentResult",
    "Answer",
    "BulkRun",
    "CallOptions",
    "Client",
    "ClientTools",
    "ConnectOptions",
    "Content",
    "Conversation",
    "Coordinator",
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
    "url_part",
]

__getattr__, __dir__ = publish(
    __name__,
    {
        "AgentResult": "holdfast._client.named_agent",
        "BulkRun": "holdfast._client.batch",
        "ClientTools": "holdfast._client.client_tools",
        "Conversation": "holdfast._client.conversation",
        "Coordinator": "holdfast._client.coordinator",
        "FanOut": "holdfast._client.fan_out",
        "Interruption": "holdfast._client.conversation",
        "InterruptionHook": "holdfast._client.conversation",
        "PendingCall": "holdfast._client.pending",
        "ResumedCall": "holdfast._client.pending",
        "RunItem": "holdfast._client.batch",
        "RunResult": "holdfast._client.batch",
        "ToolError": "holdfast._client.tools",
    },
)
