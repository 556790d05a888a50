"""Names for extensions: transports, layers, engines, journals, interceptors."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast._public import publish

if TYPE_CHECKING:
    from holdfast._aio.env import Env, SystemEnv
    from holdfast._asgi import ASGIApplication
    from holdfast._journal.agent_name import is_same_agent
    from holdfast._journal.postgres import PostgresJournal
    from holdfast._journal.protocol import CallRecord, Journal, RecordUpdate
    from holdfast._journal.sqlite import SqliteJournal
    from holdfast._model.error_values import excerpt, presentable
    from holdfast._net.aiohttp import AiohttpEngine
    from holdfast._net.engine import HttpEngine, connection_error, reach_error, timeout_error
    from holdfast._pipeline.endpoints import Endpoint, Endpoints
    from holdfast._pipeline.listeners import Consumer, Interceptor
    from holdfast._pipeline.produced import TransportProducer
    from holdfast._pipeline.transport import (
        AnyCall,
        AnyReply,
        BaseLayer,
        Call,
        CallNext,
        Layer,
        Reply,
        Stream,
        StreamWrapper,
        Transport,
        UnaryOnly,
    )
    from holdfast._wire.http import HttpReply, HttpRequest, HttpStream, media_type
    from holdfast._wire.limits import limit_error
    from holdfast._wire.network_scope import NetworkReach
    from holdfast._wire.origins import origin

__all__ = [
    "ASGIApplication",
    "AiohttpEngine",
    "AnyCall",
    "AnyReply",
    "BaseLayer",
    "Call",
    "CallNext",
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
    "NetworkReach",
    "PostgresJournal",
    "RecordUpdate",
    "Reply",
    "SqliteJournal",
    "Stream",
    "StreamWrapper",
    "SystemEnv",
    "Transport",
    "TransportProducer",
    "UnaryOnly",
    "connection_error",
    "excerpt",
    "is_same_agent",
    "limit_error",
    "media_type",
    "origin",
    "presentable",
    "reach_error",
    "timeout_error",
]

__getattr__, __dir__ = publish(
    __name__,
    {
        "_aio.env": "Env SystemEnv",
        "_asgi": "ASGIApplication",
        "_journal.agent_name": "is_same_agent",
        "_journal.postgres": "PostgresJournal",
        "_journal.protocol": "CallRecord Journal RecordUpdate",
        "_journal.sqlite": "SqliteJournal",
        "_model.error_values": "excerpt presentable",
        "_net.aiohttp": "AiohttpEngine",
        "_net.engine": "HttpEngine connection_error reach_error timeout_error",
        "_pipeline.endpoints": "Endpoint Endpoints",
        "_pipeline.listeners": "Consumer Interceptor",
        "_pipeline.produced": "TransportProducer",
        "_pipeline.transport": (
            "AnyCall AnyReply BaseLayer Call CallNext Layer Reply Stream StreamWrapper "
            "Transport UnaryOnly"
        ),
        "_wire.http": "HttpReply HttpRequest HttpStream media_type",
        "_wire.limits": "limit_error",
        "_wire.network_scope": "NetworkReach",
        "_wire.origins": "origin",
    },
)
