"""Each error of the tree, made with the facts of its own."""

from datetime import UTC, datetime

from holdfast import errors
from holdfast.types import Task, TaskState, TaskStatus

TASK = Task(id="t-1", status=TaskStatus(state=TaskState("TASK_STATE_LATER")))


# What each kind needs beside a message and the common facts, and what it says of itself then.
OWN_FACTS = {
    "TaskNotFoundError": {"task_id": "t-1"},
    "TaskNotCancelableError": {"task_id": "t-1", "state": TaskState.COMPLETED},
    "PushNotificationNotSupportedError": {},
    "UnsupportedOperationError": {},
    "ContentTypeNotSupportedError": {},
    "InvalidAgentResponseError": {},
    "ExtendedAgentCardNotConfiguredError": {},
    "ExtensionSupportRequiredError": {"extensions": ("urn:x",)},
    "VersionNotSupportedError": {},
    "ParseError": {},
    "InvalidRequestError": {},
    "MethodNotFoundError": {},
    "InvalidParamsError": {},
    "InternalError": {},
    "AgentError": {},
    "A2AConnectionError": {"failure": "refused"},
    "A2ATimeoutError": {"phase": "first_byte", "timeout": 120.0},
    "A2AHTTPError": {},
    "AuthenticationError": {},
    "PermissionDeniedError": {},
    "RateLimitedError": {},
    "AgentCardResolutionError": {},
    "InvalidAgentCardError": {"field": "supportedInterfaces[0].url"},
    "CardSignatureError": {},
    "CredentialOriginError": {"origin": "https://elsewhere.example:443"},
    "NetworkPolicyError": {},
    "ExtensionNotSupportedError": {"extensions": ("urn:x",)},
    "ClientToolsNotSupportedError": {"extensions": ("urn:x",)},
    "LimitExceededError": {"which": "max_turns", "bound": 16, "task": TASK},
    "TaskTerminalError": {"task": TASK},
    "TaskFailedError": {"task": TASK},
    "TaskRejectedError": {"task": TASK},
    "TaskCanceledError": {"task": TASK},
    "TaskInterruptedError": {"task": TASK},
    "TaskInputRequiredError": {"task": TASK},
    "TaskAuthRequiredError": {"task": TASK},
    "DeadlineExceededError": {"deadline": "wait", "timeout": 900.0, "task": TASK},
    "CircuitOpenError": {},
    "QueueFullError": {},
    "OutcomeUnknownError": {
        "message_id": "m-1",
        "context_id": "c-1",
        "searched": ("GetTask t-1", "ListTasks"),
        "search_error": None,
    },
    "DuplicateTasksError": {"message_id": "m-1", "tasks": (TASK, TASK)},
    "CallEndedError": {"message_id": "m-1", "outcome": "answered", "detail": "fine"},
    "KeyConflictError": {"key": "k", "message_id": "m-1"},
    "ReconnectError": {"task": TASK},
    "CancelUnconfirmedError": {"task": TASK},
    "NotEnoughResultsError": {"results": (1, "two")},
    "JournalError": {
        "reason": "held",
        "message_id": "m-1",
        "held_until": datetime(2026, 7, 1, tzinfo=UTC),
    },
}


def make(name, message="it broke", **facts):
    return getattr(errors, name)(message, **OWN_FACTS.get(name, {}), **facts)
