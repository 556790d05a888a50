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
    from holdfast._aio.env import Env
    from holdfast._auth.providers import (
        AuthInterceptor,
        AuthProvider,
        Credentials,
        CredentialService,
        InMemoryContextCredentialStore,
        SchemeCredentials,
        StaticAuth,
    )
    from holdfast._client.answer import Answer
    from holdfast._client.batch import BulkRun, RunItem, RunResult
    from holdfast._client.circuit import Circuit
    from holdfast._client.client import Client
    from holdfast._client.client_tools import ClientTools
    from holdfast._client.connect import ask, connect
    from holdfast._client.content import (
        Content,
        create_text_message_object,
        data_part,
        file_part,
        text_part,
        url_part,
    )
    from holdfast._client.conversation import Conversation, Interruption, InterruptionHook
    from holdfast._client.coordinator import Coordinator
    from holdfast._client.event_stream import EventStream
    from holdfast._client.fan_out import FanOut
    from holdfast._client.named_agent import AgentHealth, AgentResult
    from holdfast._client.options import CallOptions, ConnectOptions, SendOptions
    from holdfast._client.pending import PendingCall, ResumedCall
    from holdfast._client.stats import ClientStats, EndpointStats
    from holdfast._client.tools import ToolError
    from holdfast._compat.card_resolver import A2ACardResolver
    from holdfast._compat.config import ClientConfig
    from holdfast._compat.factory import ClientFactory, Producer, minimal_agent_card
    from holdfast._compat.task_manager import ClientTaskManager
    from holdfast._journal.protocol import CallRecord, Journal, RecordUpdate
    from holdfast._journal.sqlite import SqliteJournal
    from holdfast._model.article_errors import ArticleErrorCode, make_error
    from holdfast._model.operations import Operation
    from holdfast._net.aiohttp import AiohttpEngine
    from holdfast._net.engine import HttpEngine
    from holdfast._net.tls_config import TlsConfig
    from holdfast._pipeline.cards.verification import CardVerification
    from holdfast._pipeline.endpoints import Endpoint, Endpoints
    from holdfast._pipeline.listeners import (
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
    from holdfast._pipeline.produced import TransportProducer
    from holdfast._pipeline.transport import (
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
    from holdfast._policy.breaker import BreakerPolicy, SeenFailure
    from holdfast._policy.budget import BudgetPolicy
    from holdfast._policy.deadline import Deadline
    from holdfast._policy.hedge import HedgePolicy
    from holdfast._policy.limiter import ConcurrencyPolicy, RateLimitPolicy
    from holdfast._policy.reconcile import ContextIds, OnUnknown, ReconcilePolicy
    from holdfast._policy.reconnect import ReconnectPolicy
    from holdfast._policy.resilience import Resilience
    from holdfast._policy.retry import RetryPolicy
    from holdfast._stream.text import TextChange, TextDelta, TextReset
    from holdfast._version import __version__
    from holdfast._wire.http import HttpReply, HttpRequest, HttpStream, Timeouts
    from holdfast._wire.limits import Limits
    from holdfast.doctor import Diagnosis, Finding, diagnose
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
    from holdfast.push import JwtPolicy, PushReceiver
    from holdfast.signatures import CardVerifier
    from holdfast.types import (
        AgentCapabilities,
        AgentCard,
        AgentExtension,
        AgentInterface,
        AgentProvider,
        AgentSkill,
        Artifact,
        AuthenticationInfo,
        Event,
        ListTaskPushNotificationConfigsResponse,
        ListTasksResponse,
        Message,
        Part,
        Role,
        SendMessageConfiguration,
        StreamResponse,
        Task,
        TaskArtifactUpdateEvent,
        TaskPushNotificationConfig,
        TaskState,
        TaskStatus,
        TaskStatusUpdateEvent,
    )

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
    "_model.article_errors",
    "types",
    "_wire.http",
    "_wire.limits",
    "_model.operations",
    "_policy.deadline",
    "_policy.breaker",
    "_policy.budget",
    "_policy.retry",
    "_policy.hedge",
    "_policy.limiter",
    "_journal.outcome",
    "_policy.reconcile",
    "_policy.reconnect",
    "_policy.resilience",
    "_pipeline.endpoints",
    "_aio.env",
    "_net.engine",
    "_pipeline.transport",
    "_journal.protocol",
    "_pipeline.listeners",
    "_pipeline.cards.verification",
    "_pipeline.produced",
    "_stream.text",
    "_client.stats",
    "_compat.task_manager",
    "_auth.providers",
    "_client.answer",
    "_compat.config",
    "_client.options",
    "_client.content",
    "_client.event_stream",
    "_client.pending",
    "_client.batch",
    "_client.conversation",
    "_client.tools",
    "_client.circuit",
    "_client.client_tools",
    "_client.client",
    "_client.connect",
    "_compat.card_resolver",
    "_client.named_agent",
    "_client.fan_out",
    "_client.coordinator",
    "doctor",
    "_compat.factory",
    "push",
    "signatures",
    "_journal.sqlite",
    "_net.tls_config",
    "_net.aiohttp",
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
