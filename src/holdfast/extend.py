"""The seams for those who extend Holdfast: transports, layers, engines, journals, interceptors."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast._aio.env import Env
from holdfast._journal.protocol import CallRecord, Journal, RecordUpdate
from holdfast._model.operations import OPERATIONS, Operation
from holdfast._net.engine import HttpEngine
from holdfast._pipeline.endpoints import Endpoint, Endpoints
from holdfast._pipeline.listeners import Consumer, Interceptor
from holdfast._pipeline.produced import TransportProducer
from holdfast._pipeline.transport import (
    Call,
    Layer,
    PassThrough,
    Reply,
    Stream,
    StreamWrapper,
    Transport,
    UnaryOnly,
)
from holdfast._public import publish
from holdfast._wire.http import HttpReply, HttpRequest, HttpStream

if TYPE_CHECKING:
    from holdfast._journal.sqlite import SqliteJournal
    from holdfast._net.aiohttp import AiohttpEngine

__all__ = [
    "OPERATIONS",
    "AiohttpEngine",
    "Call",
    "CallRecord",
    "Consumer",
    "Endpoint",
    "Endpoints",
    "Env",
    "HttpEngine",
    "HttpReply",
    "HttpRequest",
    "HttpStream",
    "Interceptor",
    "Journal",
    "Layer",
    "Operation",
    "PassThrough",
    "RecordUpdate",
    "Reply",
    "SqliteJournal",
    "Stream",
    "StreamWrapper",
    "Transport",
    "TransportProducer",
    "UnaryOnly",
]

__getattr__, __dir__ = publish(
    __name__,
    {"AiohttpEngine": "holdfast._net.aiohttp", "SqliteJournal": "holdfast._journal.sqlite"},
)
