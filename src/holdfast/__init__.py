"""Holdfast: the A2A client that does not let go.

Ask an agent::

    import holdfast

    async with holdfast.connect("https://agent.example.com") as agent:
        answer = await agent.ask("How far is the moon?")
        print(answer.text)

These are the everyday names. All others are in public modules by subject: `holdfast.errors`,
`holdfast.types`, `holdfast.protocol`, `holdfast.policies`, `holdfast.client`, `holdfast.observe`,
`holdfast.extend`, `holdfast.auth`, `holdfast.compat` and more. Importing this package is cheap: a
name is loaded when it is first used.
"""

from __future__ import annotations

from importlib import import_module

TYPE_CHECKING = False  # for type checkers it is true; typing is not imported: see holdfast.cli

if TYPE_CHECKING:
    from holdfast import auth as auth
    from holdfast import client as client
    from holdfast import compat as compat
    from holdfast import doctor as doctor
    from holdfast import errors as errors
    from holdfast import extend as extend
    from holdfast import observe as observe
    from holdfast import policies as policies
    from holdfast import protocol as protocol
    from holdfast import push as push
    from holdfast import server as server
    from holdfast import signatures as signatures
    from holdfast import sync as sync
    from holdfast import testing as testing
    from holdfast import types as types
    from holdfast._version import __version__
    from holdfast.auth import SchemeCredentials
    from holdfast.client import (
        Answer,
        Client,
        ClientTools,
        Conversation,
        Coordinator,
        EventStream,
        Interruption,
        RunItem,
        ask,
        connect,
        data_part,
        file_part,
        text_part,
        url_part,
    )
    from holdfast.errors import (
        A2AConnectionError,
        A2AError,
        A2AHTTPError,
        A2ATimeoutError,
        AgentCardResolutionError,
        AuthenticationError,
        CircuitOpenError,
        DeadlineExceededError,
        NotEnoughResultsError,
        OutcomeUnknownError,
        RateLimitedError,
        TaskFailedError,
        TaskInputRequiredError,
        TaskInterruptedError,
        TaskNotFoundError,
        TaskTerminalError,
    )
    from holdfast.extend import AiohttpEngine, PostgresJournal, SqliteJournal
    from holdfast.policies import (
        BreakerPolicy,
        BudgetPolicy,
        ConcurrencyPolicy,
        HedgePolicy,
        Limits,
        ReconcilePolicy,
        ReconnectPolicy,
        Resilience,
        RetryAfterPolicy,
        RetryPolicy,
        Timeouts,
        TlsConfig,
    )
    from holdfast.types import AgentCard, Artifact, Message, Part, Role, Task, TaskState

__all__ = [
    "A2AConnectionError",
    "A2AError",
    "A2AHTTPError",
    "A2ATimeoutError",
    "AgentCard",
    "AgentCardResolutionError",
    "AiohttpEngine",
    "Answer",
    "Artifact",
    "AuthenticationError",
    "BreakerPolicy",
    "BudgetPolicy",
    "CircuitOpenError",
    "Client",
    "ClientTools",
    "ConcurrencyPolicy",
    "Conversation",
    "Coordinator",
    "DeadlineExceededError",
    "EventStream",
    "HedgePolicy",
    "Interruption",
    "Limits",
    "Message",
    "NotEnoughResultsError",
    "OutcomeUnknownError",
    "Part",
    "PostgresJournal",
    "RateLimitedError",
    "ReconcilePolicy",
    "ReconnectPolicy",
    "Resilience",
    "RetryAfterPolicy",
    "RetryPolicy",
    "Role",
    "RunItem",
    "SchemeCredentials",
    "SqliteJournal",
    "Task",
    "TaskFailedError",
    "TaskInputRequiredError",
    "TaskInterruptedError",
    "TaskNotFoundError",
    "TaskState",
    "TaskTerminalError",
    "Timeouts",
    "TlsConfig",
    "__version__",
    "ask",
    "connect",
    "data_part",
    "file_part",
    "text_part",
    "url_part",
]

_HOMES = {
    "A2AConnectionError": "holdfast.errors",
    "A2AError": "holdfast.errors",
    "A2AHTTPError": "holdfast.errors",
    "A2ATimeoutError": "holdfast.errors",
    "AgentCard": "holdfast.types",
    "AgentCardResolutionError": "holdfast.errors",
    "AiohttpEngine": "holdfast.extend",
    "Answer": "holdfast.client",
    "Artifact": "holdfast.types",
    "AuthenticationError": "holdfast.errors",
    "BreakerPolicy": "holdfast.policies",
    "BudgetPolicy": "holdfast.policies",
    "CircuitOpenError": "holdfast.errors",
    "Client": "holdfast.client",
    "ClientTools": "holdfast.client",
    "ConcurrencyPolicy": "holdfast.policies",
    "Conversation": "holdfast.client",
    "Coordinator": "holdfast.client",
    "DeadlineExceededError": "holdfast.errors",
    "EventStream": "holdfast.client",
    "HedgePolicy": "holdfast.policies",
    "Interruption": "holdfast.client",
    "Limits": "holdfast.policies",
    "Message": "holdfast.types",
    "NotEnoughResultsError": "holdfast.errors",
    "OutcomeUnknownError": "holdfast.errors",
    "Part": "holdfast.types",
    "RetryAfterPolicy": "holdfast.policies",
    "RateLimitedError": "holdfast.errors",
    "ReconcilePolicy": "holdfast.policies",
    "ReconnectPolicy": "holdfast.policies",
    "Resilience": "holdfast.policies",
    "RetryPolicy": "holdfast.policies",
    "Role": "holdfast.types",
    "RunItem": "holdfast.client",
    "SchemeCredentials": "holdfast.auth",
    "PostgresJournal": "holdfast.extend",
    "SqliteJournal": "holdfast.extend",
    "Task": "holdfast.types",
    "TaskFailedError": "holdfast.errors",
    "TaskInputRequiredError": "holdfast.errors",
    "TaskInterruptedError": "holdfast.errors",
    "TaskNotFoundError": "holdfast.errors",
    "TaskState": "holdfast.types",
    "TaskTerminalError": "holdfast.errors",
    "Timeouts": "holdfast.policies",
    "TlsConfig": "holdfast.policies",
    "__version__": "holdfast._version",
    "ask": "holdfast.client",
    "connect": "holdfast.client",
    "data_part": "holdfast.client",
    "file_part": "holdfast.client",
    "text_part": "holdfast.client",
    "url_part": "holdfast.client",
}

_MODULES = frozenset(
    {
        "auth",
        "client",
        "compat",
        "doctor",
        "errors",
        "extend",
        "observe",
        "policies",
        "protocol",
        "push",
        "server",
        "signatures",
        "sync",
        "testing",
        "types",
    }
)
"""Public modules, which are attributes of the package without an import of their own."""


def __getattr__(name: str) -> object:
    if name in _MODULES:
        return import_module(f"holdfast.{name}")
    if name not in _HOMES:
        from holdfast._public import missing_name  # needed only for errors

        raise missing_name(name, [*__all__, *_MODULES])
    value = globals()[name] = getattr(import_module(_HOMES[name]), name)
    return value


def __dir__() -> list[str]:
    return __all__
