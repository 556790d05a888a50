"""Holdfast: the A2A client that does not let go.

    import holdfast

    async with holdfast.connect("https://agent.example.com") as agent:
        answer = await agent.ask("How far is the moon?")
        print(answer.text)

Importing this package is cheap: a name is loaded when it is first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from holdfast._version import __version__
    from holdfast.answer import Answer
    from holdfast.assembly import ask, connect
    from holdfast.auth import (
        AuthInterceptor,
        AuthProvider,
        Credentials,
        CredentialService,
        InMemoryContextCredentialStore,
        SchemeCredentials,
        StaticAuth,
    )
    from holdfast.bulk import BulkRun, RunItem, RunResult
    from holdfast.card_resolver import A2ACardResolver
    from holdfast.circuit import Circuit
    from holdfast.client import Client
    from holdfast.client_tools import ClientTools
    from holdfast.config import ClientConfig
    from holdfast.content import (
        Content,
        create_text_message_object,
        data_part,
        file_part,
        text_part,
        url_part,
    )
    from holdfast.conversation import Conversation, Interruption, InterruptionHook
    from holdfast.coordinator import Coordinator
    from holdfast.diagnosis import Diagnosis, Finding, diagnose
    from holdfast.errors import (
        A2AConnectionError,
        A2AError,
        A2AHTTPError,
        A2ATimeoutError,
        AgentCardResolutionError,
        AgentError,
        Attempt,
        AuthenticationError,
        CallEndedError,
        CallOutcome,
        CancelUnconfirmedError,
        CardSignatureError,
        CircuitOpenError,
        ClientToolsNotSupportedError,
        ConnectionFailure,
        ContentTypeNotSupportedError,
        CredentialOriginError,
        DeadlineExceededError,
        DuplicateTasksError,
        ExtendedAgentCardNotConfiguredError,
        ExtensionNotSupportedError,
        ExtensionSupportRequiredError,
        InternalError,
        InvalidAgentCardError,
        InvalidAgentResponseError,
        InvalidParamsError,
        InvalidRequestError,
        JournalError,
        JournalFailure,
        LimitExceededError,
        MethodNotFoundError,
        NetworkPolicyError,
        NotEnoughResultsError,
        OutcomeUnknownError,
        ParseError,
        PermissionDeniedError,
        PushNotificationNotSupportedError,
        QueueFullError,
        RateLimitedError,
        ReconnectError,
        RunItemChangedError,
        TaskAuthRequiredError,
        TaskCanceledError,
        TaskFailedError,
        TaskInputRequiredError,
        TaskInterruptedError,
        TaskNotCancelableError,
        TaskNotFoundError,
        TaskRejectedError,
        TaskTerminalError,
        TimeoutPhase,
        UnsupportedOperationError,
        VersionNotSupportedError,
        wrap_downstream,
    )
    from holdfast.errors.article import ArticleErrorCode, make_error
    from holdfast.event_stream import EventStream
    from holdfast.factory import ClientFactory, Producer, minimal_agent_card
    from holdfast.fan_out import FanOut
    from holdfast.journals.sqlite import SqliteJournal
    from holdfast.model.card import (
        AgentCapabilities,
        AgentCard,
        AgentExtension,
        AgentInterface,
        AgentProvider,
        AgentSkill,
    )
    from holdfast.model.operations import Operation
    from holdfast.model.requests import (
        AuthenticationInfo,
        ListTaskPushNotificationConfigsResponse,
        ListTasksResponse,
        SendMessageConfiguration,
        TaskPushNotificationConfig,
    )
    from holdfast.model.types import (
        Artifact,
        Event,
        Message,
        Part,
        Role,
        StreamResponse,
        Task,
        TaskArtifactUpdateEvent,
        TaskState,
        TaskStatus,
        TaskStatusUpdateEvent,
    )
    from holdfast.named_agent import AgentHealth, AgentResult
    from holdfast.net.aiohttp import AiohttpEngine
    from holdfast.net.tls_config import TlsConfig
    from holdfast.options import CallOptions, ConnectOptions, SendOptions
    from holdfast.pending import PendingCall, ResumedCall
    from holdfast.policy.breaker import BreakerPolicy, SeenFailure
    from holdfast.policy.budget import BudgetPolicy
    from holdfast.policy.deadline import Deadline
    from holdfast.policy.hedge import HedgePolicy
    from holdfast.policy.limiter import ConcurrencyPolicy, RateLimitPolicy
    from holdfast.policy.reconcile import ContextIds, OnUnknown, ReconcilePolicy
    from holdfast.policy.reconnect import ReconnectPolicy
    from holdfast.policy.resilience import Resilience
    from holdfast.policy.retry import RetryPolicy
    from holdfast.push import JwtPolicy, PushReceiver
    from holdfast.runtime.card_verification import CardVerification
    from holdfast.runtime.endpoints import Endpoint, Endpoints
    from holdfast.runtime.engine import HttpEngine
    from holdfast.runtime.env import Env
    from holdfast.runtime.journal import CallRecord, Journal, RecordUpdate
    from holdfast.runtime.listeners import (
        AttemptFailed,
        AttemptStarted,
        CallFinished,
        CardChecked,
        CircuitChanged,
        Consumer,
        Interceptor,
        Observation,
        Observer,
        Reconciled,
        ReconcileStarted,
        Reconnected,
        RequestFinished,
        RetryScheduled,
    )
    from holdfast.runtime.produced import TransportProducer
    from holdfast.runtime.transport import (
        Call,
        ClientCallContext,
        Layer,
        PassThrough,
        Reply,
        Stream,
        StreamOver,
        Transport,
        UnaryOnly,
    )
    from holdfast.signatures import CardVerifier
    from holdfast.stats import ClientStats, EndpointStats
    from holdfast.task_manager import ClientTaskManager
    from holdfast.tasks.text import TextChange, TextDelta, TextReset
    from holdfast.tools import ToolError
    from holdfast.wire.http import HttpReply, HttpRequest, HttpStream, Timeouts
    from holdfast.wire.limits import Limits

__all__ = [
    "A2ACardResolver",
    "A2AConnectionError",
    "A2AError",
    "A2AHTTPError",
    "A2ATimeoutError",
    "AgentCapabilities",
    "AgentCard",
    "AgentCardResolutionError",
    "AgentError",
    "AgentExtension",
    "AgentHealth",
    "AgentInterface",
    "AgentProvider",
    "AgentResult",
    "AgentSkill",
    "AiohttpEngine",
    "Answer",
    "ArticleErrorCode",
    "Artifact",
    "Attempt",
    "AttemptFailed",
    "AttemptStarted",
    "AuthInterceptor",
    "AuthProvider",
    "AuthenticationError",
    "AuthenticationInfo",
    "BreakerPolicy",
    "BudgetPolicy",
    "BulkRun",
    "Call",
    "CallEndedError",
    "CallFinished",
    "CallOptions",
    "CallOutcome",
    "CallRecord",
    "CancelUnconfirmedError",
    "CardChecked",
    "CardSignatureError",
    "CardVerification",
    "CardVerifier",
    "Circuit",
    "CircuitChanged",
    "CircuitOpenError",
    "Client",
    "ClientCallContext",
    "ClientConfig",
    "ClientFactory",
    "ClientStats",
    "ClientTaskManager",
    "ClientTools",
    "ClientToolsNotSupportedError",
    "ConcurrencyPolicy",
    "ConnectOptions",
    "ConnectionFailure",
    "Consumer",
    "Content",
    "ContentTypeNotSupportedError",
    "ContextIds",
    "Conversation",
    "Coordinator",
    "CredentialOriginError",
    "CredentialService",
    "Credentials",
    "Deadline",
    "DeadlineExceededError",
    "Diagnosis",
    "DuplicateTasksError",
    "Endpoint",
    "EndpointStats",
    "Endpoints",
    "Env",
    "Event",
    "EventStream",
    "ExtendedAgentCardNotConfiguredError",
    "ExtensionNotSupportedError",
    "ExtensionSupportRequiredError",
    "FanOut",
    "Finding",
    "HedgePolicy",
    "HttpEngine",
    "HttpReply",
    "HttpRequest",
    "HttpStream",
    "InMemoryContextCredentialStore",
    "Interceptor",
    "InternalError",
    "Interruption",
    "InterruptionHook",
    "InvalidAgentCardError",
    "InvalidAgentResponseError",
    "InvalidParamsError",
    "InvalidRequestError",
    "Journal",
    "JournalError",
    "JournalFailure",
    "JwtPolicy",
    "Layer",
    "LimitExceededError",
    "Limits",
    "ListTaskPushNotificationConfigsResponse",
    "ListTasksResponse",
    "Message",
    "MethodNotFoundError",
    "NetworkPolicyError",
    "NotEnoughResultsError",
    "Observation",
    "Observer",
    "OnUnknown",
    "Operation",
    "OutcomeUnknownError",
    "ParseError",
    "Part",
    "PassThrough",
    "PendingCall",
    "PermissionDeniedError",
    "Producer",
    "PushNotificationNotSupportedError",
    "PushReceiver",
    "QueueFullError",
    "RateLimitPolicy",
    "RateLimitedError",
    "ReconcilePolicy",
    "ReconcileStarted",
    "Reconciled",
    "ReconnectError",
    "ReconnectPolicy",
    "Reconnected",
    "RecordUpdate",
    "Reply",
    "RequestFinished",
    "Resilience",
    "ResumedCall",
    "RetryPolicy",
    "RetryScheduled",
    "Role",
    "RunItem",
    "RunItemChangedError",
    "RunResult",
    "SchemeCredentials",
    "SeenFailure",
    "SendMessageConfiguration",
    "SendOptions",
    "SqliteJournal",
    "StaticAuth",
    "Stream",
    "StreamOver",
    "StreamResponse",
    "Task",
    "TaskArtifactUpdateEvent",
    "TaskAuthRequiredError",
    "TaskCanceledError",
    "TaskFailedError",
    "TaskInputRequiredError",
    "TaskInterruptedError",
    "TaskNotCancelableError",
    "TaskNotFoundError",
    "TaskPushNotificationConfig",
    "TaskRejectedError",
    "TaskState",
    "TaskStatus",
    "TaskStatusUpdateEvent",
    "TaskTerminalError",
    "TextChange",
    "TextDelta",
    "TextReset",
    "TimeoutPhase",
    "Timeouts",
    "TlsConfig",
    "ToolError",
    "Transport",
    "TransportProducer",
    "UnaryOnly",
    "UnsupportedOperationError",
    "VersionNotSupportedError",
    "__version__",
    "ask",
    "connect",
    "create_text_message_object",
    "data_part",
    "diagnose",
    "file_part",
    "make_error",
    "minimal_agent_card",
    "text_part",
    "url_part",
    "wrap_downstream",
]

_MODULES = (
    "_version",
    "errors",
    "errors.article",
    "model.types",
    "model.card",
    "model.requests",
    "wire.http",
    "wire.limits",
    "model.operations",
    "policy.deadline",
    "policy.breaker",
    "policy.budget",
    "policy.retry",
    "policy.hedge",
    "policy.limiter",
    "policy.outcome",
    "policy.reconcile",
    "policy.reconnect",
    "policy.resilience",
    "runtime.endpoints",
    "runtime.env",
    "runtime.engine",
    "runtime.transport",
    "runtime.journal",
    "runtime.listeners",
    "runtime.card_verification",
    "runtime.produced",
    "tasks.text",
    "stats",
    "task_manager",
    "auth",
    "answer",
    "config",
    "options",
    "content",
    "event_stream",
    "pending",
    "bulk",
    "conversation",
    "tools",
    "circuit",
    "client_tools",
    "client",
    "assembly",
    "card_resolver",
    "named_agent",
    "fan_out",
    "coordinator",
    "diagnosis",
    "factory",
    "push",
    "signatures",
    "journals.sqlite",
    "net.tls_config",
    "net.aiohttp",
)
"""Where the public names live: from what is cheap to import to what is not."""


def __getattr__(name: str) -> Any:
    if name in __all__:
        for module in _MODULES:
            home = import_module(f"holdfast.{module}")
            if name in home.__all__:
                value = globals()[name] = getattr(home, name)
                return value
    message = f"module 'holdfast' has no attribute {name!r}"
    raise AttributeError(message)


def __dir__() -> list[str]:
    return __all__
