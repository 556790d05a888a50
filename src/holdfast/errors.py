"""Every error of Holdfast, and the facts that each carries.

Rules: one tree under `A2AError`; ``str(error)`` is one helpful line; whatever a program may
want to know is an attribute; no secret is ever in either. An error states facts, not verdicts:
whether to try again is decided elsewhere, from `A2AError.executed` and `A2AError.transient`.

    A2AError
    ├── what the agent answered (A2A specification 3.3.2, JSON-RPC 2.0)
    │   ├── TaskNotFoundError                   ├── ParseError
    │   ├── TaskNotCancelableError              ├── InvalidRequestError
    │   ├── PushNotificationNotSupportedError   ├── MethodNotFoundError
    │   ├── UnsupportedOperationError           ├── InvalidParamsError
    │   ├── ContentTypeNotSupportedError        ├── InternalError
    │   ├── InvalidAgentResponseError           ├── ExtendedAgentCardNotConfiguredError
    │   ├── ExtensionSupportRequiredError       ├── VersionNotSupportedError
    │   └── AgentError (any other code)
    ├── how it travelled
    │   ├── A2AConnectionError                  ├── AuthenticationError
    │   ├── A2ATimeoutError                     ├── PermissionDeniedError
    │   └── A2AHTTPError                        └── RateLimitedError
    ├── discovery and trust
    │   ├── AgentCardResolutionError            ├── ExtensionNotSupportedError
    │   ├── InvalidAgentCardError               ├── ClientToolsNotSupportedError
    │   ├── CardSignatureError                  ├── NetworkPolicyError
    │   ├── CredentialOriginError               └── LimitExceededError
    ├── how a task ended, or why it waits
    │   ├── TaskTerminalError: TaskFailedError, TaskRejectedError, TaskCanceledError
    │   └── TaskInterruptedError: TaskInputRequiredError, TaskAuthRequiredError
    └── what the client itself decided
        ├── DeadlineExceededError               ├── ReconnectError
        ├── CircuitOpenError                    ├── CancelUnconfirmedError
        ├── QueueFullError                      ├── NotEnoughResultsError
        ├── OutcomeUnknownError                 ├── JournalError
        ├── DuplicateTasksError                 └── CallEndedError
        └── RunItemChangedError
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypedDict, Unpack, cast

import msgspec

from holdfast._model import error_hops as hops
from holdfast._model import error_reading as reading
from holdfast._model import error_writing as writing
from holdfast._model.article_errors import ArticleErrorCode as Dialect
from holdfast._model.article_errors import is_article_code, is_article_data
from holdfast._model.error_values import one_line
from holdfast._model.error_writing import HTTP_STATUS, UNNAMED, Entry, own_message
from holdfast._model.settings import check_kind
from holdfast.types import TaskState

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from datetime import datetime

    from holdfast._model.error_reading import ErrorObject
    from holdfast.types import Task

__all__ = [
    "A2AConnectionError",
    "A2AError",
    "A2AHTTPError",
    "A2ATimeoutError",
    "AgentCardResolutionError",
    "AgentError",
    "Attempt",
    "AuthenticationError",
    "CallEndedError",
    "CallOutcome",
    "CancelUnconfirmedError",
    "CardSignatureError",
    "CircuitOpenError",
    "ClientToolsNotSupportedError",
    "ConnectionFailure",
    "ContentTypeNotSupportedError",
    "CredentialOriginError",
    "DeadlineExceededError",
    "DuplicateTasksError",
    "ExtendedAgentCardNotConfiguredError",
    "ExtensionNotSupportedError",
    "ExtensionSupportRequiredError",
    "Facts",
    "InternalError",
    "InvalidAgentCardError",
    "InvalidAgentResponseError",
    "InvalidParamsError",
    "InvalidRequestError",
    "JournalError",
    "JournalFailure",
    "LimitExceededError",
    "MethodNotFoundError",
    "NetworkPolicyError",
    "NotEnoughResultsError",
    "OutcomeUnknownError",
    "ParseError",
    "PermissionDeniedError",
    "PushNotificationNotSupportedError",
    "QueueFullError",
    "RateLimitedError",
    "ReconnectError",
    "RunItemChangedError",
    "TaskAuthRequiredError",
    "TaskCanceledError",
    "TaskFailedError",
    "TaskInputRequiredError",
    "TaskInterruptedError",
    "TaskNotCancelableError",
    "TaskNotFoundError",
    "TaskRejectedError",
    "TaskTerminalError",
    "TimeoutPhase",
    "UnsupportedOperationError",
    "VersionNotSupportedError",
    "wrap_downstream",
]

ConnectionFailure = Literal[
    "dns", "refused", "unreachable", "tls", "proxy", "disconnected", "truncated", "closed"
]
"""How a connection failed; the first five happen before a byte of the request is sent."""

JournalFailure = Literal[
    "unusable",
    "full",
    "locked",
    "read_only",
    "damaged",
    "gone",
    "untrusted",
    "exists",
    "held",
    "over",
    "taken_over",
    "missing",
    "elsewhere",
]
"""Why a journal did not do what it was asked.

- ``"unusable"``: it cannot be written or read, or is silent. Where a journal knows why, it is
  ``"full"``, as its disk is; ``"locked"`` by somebody else who writes; ``"read_only"``;
  ``"damaged"``; ``"gone"``: deleted, moved or replaced since it was opened; or ``"untrusted"``:
  its file, or one beside it (``-wal``, ``-shm``), belongs to another user, is a link, or lets
  others read or write it.
- ``"exists"``: it has a call of that message or label, and that one may have been sent.
- ``"held"``: somebody works on the call, or did and died less than a lease ago.
- ``"over"``: the call has an outcome.
- ``"taken_over"``: somebody else took the call over while it was worked on.
- ``"missing"``: it has no such call.
- ``"elsewhere"``: the call went to an agent of another name, and this one does not know it.
"""

CallOutcome = Literal["answered", "refused", "duplicated", "unknown", "not_sent", "forgotten"]
"""What became of a call.

- ``"answered"``: by a task, in whatever state it came to rest, or by a message.
- ``"refused"``: by an error of the protocol, and nothing goes on.
- ``"duplicated"``: the agent made more than one task of it, and its caller was told so.
- ``"unknown"``: it may have been sent, nothing was found of it, and its caller was told so.
- ``"not_sent"``: it certainly did not reach the agent, and may be sent again.
- ``"forgotten"``: the outcome is not needed.
"""

TimeoutPhase = Literal["pool", "connect", "write", "first_byte", "idle"]
"""Which wait expired; in the first two no byte of the request was sent."""


class Attempt(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One attempt at a call, as told by errors and replies.

    Attributes:
        number: 1 for the first one.
        agent: The address that was called, without credentials or query.
        started: Seconds after the call began.
        duration: Seconds that it took.
        error: Why it failed, in one line; None for the one that succeeded.
        executed: Whether the agent ran it: True, False, or None if unknown.
        wait: Seconds waited before the next one; None for the last one.
    """

    number: int
    agent: str
    started: float
    duration: float
    error: str | None = None
    executed: bool | None = None
    wait: float | None = None


class Facts(TypedDict, total=False):
    """The facts that any `A2AError` can be given, by keyword."""

    code: int | None
    details: Sequence[Mapping[str, Any]]
    data: Any
    http_status: int | None
    grpc_status: str | None
    headers: Mapping[str, str] | None
    executed: bool | None
    transient: bool
    retry_after: float | None
    attempts: Sequence[Attempt]
    agent: str | None
    request_id: str | None
    retry_stopped_reason: str | None
    hops: Sequence[str]
    loop: str | None
    traceparent: str | None
    excerpt: str | None
    other_version: str | None


class A2AError(Exception):
    """Base of every error that Holdfast raises.

    Attributes:
        entry: How the protocol writes errors of this kind; the same for all of them.
        code: The JSON-RPC code of the A2A error, whichever binding carried it; None where the
            failure has none.
        details: Typed details (`google.rpc` objects with an ``@type``), as received.
        data: JSON-RPC ``error.data`` or the body's own error object, as received.
        http_status: Status of the HTTP reply, if there was one.
        grpc_status: Name of the gRPC status, if there was one.
        headers: The harmless part of the reply's headers, names in lower case.
        executed: Whether the agent ran the operation: True, False, or None if unknown.
        transient: Whether the same call may succeed later.
        retry_after: Seconds to wait before another try, where the agent said so, or its circuit
            breaker did.
        attempts: Every attempt that was made, in order.
        retry_stopped_reason: Why it was not tried again, where trying again might have helped.
        agent: The address that failed, without credentials or query.
        request_id: The id under which the call is logged.
        hops: The agents behind `agent` on the way to the failure, nearest first; in the last one
            it broke. Of more than 16 the nearest 14 and the last one, with ``"…"`` between.
        loop: The agent that is in that chain more than once.
        traceparent: The call's place in a distributed trace (W3C Trace Context), if it had one.
        excerpt: The beginning of a reply that was not understood.
        other_version: Version of the protocol to try, ``"1.0"`` or ``"0.3"``, where the agent
            seems not to speak the one that it was spoken to in.
    """

    entry: ClassVar[Entry] = Entry()

    def __init__(self, message: str = "", **facts: Unpack[Facts]) -> None:
        super().__init__(message)
        self.code: int | None = facts.get("code")
        self.details: tuple[Mapping[str, Any], ...] = tuple(facts.get("details", ()))
        self.data: Any = facts.get("data")
        self.http_status: int | None = facts.get("http_status")
        self.grpc_status: str | None = facts.get("grpc_status")
        self.headers: Mapping[str, str] = dict(facts.get("headers") or {})
        self.executed: bool | None = facts.get("executed")
        self.transient: bool = facts.get("transient", False)
        self.retry_after: float | None = facts.get("retry_after")
        self.attempts: tuple[Attempt, ...] = tuple(facts.get("attempts", ()))
        self.agent: str | None = facts.get("agent")
        self.request_id: str | None = facts.get("request_id")
        self.retry_stopped_reason: str | None = facts.get("retry_stopped_reason")
        self.hops: tuple[str, ...] = tuple(facts.get("hops", ()))
        self.loop: str | None = facts.get("loop")
        self.traceparent: str | None = facts.get("traceparent")
        self.excerpt: str | None = facts.get("excerpt")
        self.other_version: str | None = facts.get("other_version")

    @property
    def message(self) -> str:
        """What happened, in one line."""
        return str(self.args[0])

    @message.setter
    def message(self, message: str) -> None:
        self.args = (message,)

    def facts(self) -> Facts:
        """The facts, to give to another error."""
        return cast("Facts", {name: getattr(self, name) for name in Facts.__annotations__})

    @staticmethod
    def from_jsonrpc(error: Mapping[str, Any]) -> A2AError:
        """Makes the typed error of a JSON-RPC error object (JSON-RPC 2.0, 5.1; A2A 9.5).

        Args:
            error: The ``error`` of a reply, parsed: of A2A 1.0, or in the older dialect.

        Returns:
            With the facts that it tells; `InvalidAgentResponseError` if it is no such object.
        """
        try:
            told = reading.read_error_object(error)
        except ValueError as why:
            return InvalidAgentResponseError(f"the error {why}")
        return error_from_object(told)

    def to_jsonrpc(self, *, nested: bool = False, request_id: str | None = None) -> dict[str, Any]:
        """The JSON-RPC error object that an agent answers with (JSON-RPC 2.0, 5.1; A2A 9.5).

        Its ``data`` is a list of typed details: whether it may help to try again, and `hops`, are
        members of the `google.rpc.ErrorInfo`; `retry_after` is a `google.rpc.RetryInfo`. Foreign
        details are kept, up to 8,000 characters; secrets, file paths and stack traces are taken
        out wherever they can be told by their look.

        Args:
            nested: Whether ``data`` is an object of the older dialect: ``retryable``,
                ``retryAfter``, and of a chain ``currentAgent``, ``downstreamAgent`` and
                ``downstreamError``, one inside the other. An error that came so goes out so.
            request_id: The id under which the agent logs it, for those who ask about it.
        """
        own_code = isinstance(self, AgentError) and is_article_code(self.code)
        nested = nested or own_code or is_article_data(self.data)
        return writing.rpc_error(self, self.entry, nested=nested, request_id=request_id)

    def to_rest(self, *, request_id: str | None = None) -> dict[str, Any]:
        """The `google.rpc.Status` object that an agent answers with over HTTP+JSON (A2A 11.6).

        It is the member ``error`` of the body, and its ``code`` the HTTP status of the reply.

        Args:
            request_id: The id under which the agent logs it, for those who ask about it.
        """
        return writing.rest_error(self, self.entry, request_id=request_id)

    def __str__(self) -> str:
        notes = "; ".join(one_line(note, _MAX_NOTE) for note in self._notes())
        message = one_line(self.message or type(self).__name__, _MAX_MESSAGE)
        return f"{message} ({notes})" if notes else message

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {self}>"

    def __copy__(self) -> A2AError:
        twin = _rebuild(type(self), self.args, self.__dict__)
        twin.__cause__ = self.__cause__
        return twin

    def __reduce__(self) -> tuple[Callable[..., A2AError], tuple[Any, ...]]:
        # The constructors take keywords only, which Exception's own pickling does not know.
        return _rebuild, (type(self), self.args, self.__dict__)

    def _notes(self) -> list[str]:
        notes: list[str] = []
        if self.agent is not None:
            notes.append(f"agent {self.agent}")
        if self.hops and not (self.hops[-1] and self.hops[-1] in self.message):
            notes.append(f"it broke at {' → '.join(self.hops)}")
        if self.loop is not None:
            notes.append(f"{self.loop} is in the chain twice")
        if len(self.attempts) > 1:
            notes.append(f"{len(self.attempts)} attempts")
        if self.retry_after is not None:
            exact = "3g" if self.retry_after < 100 else "0f"  # as far as anybody reads it
            notes.append(f"retry after {self.retry_after:.{exact}} s")
        if self.retry_stopped_reason is not None:
            notes.append(f"not tried again: {self.retry_stopped_reason}")
        if self.other_version is not None:
            version = self.other_version
            notes.append(
                f'if the agent speaks protocol {version}, pass protocol_version="{version}"'
            )
        if self.excerpt:
            notes.append(f"reply began {self.excerpt[:120]!r}")
        return notes


_MAX_MESSAGE = 1000
_MAX_NOTE = 250
"""What `str` shows of a message and of each fact, in characters; the attributes keep it whole."""


def _rebuild(kind: type[A2AError], args: tuple[Any, ...], state: dict[str, Any]) -> A2AError:
    error = kind.__new__(kind)
    error.args = args
    error.__dict__.update(state)
    return error


# ── What the agent answered ──────────────────────────────────────────────────────────────────


class TaskNotFoundError(A2AError):
    """The task does not exist, is purged, or is not this caller's (A2A 3.3.2).

    Attributes:
        task_id: The id that was asked for, where known.
    """

    entry = Entry(-32001, "TASK_NOT_FOUND", 404, "NOT_FOUND", Dialect.TASK_NOT_FOUND)

    def __init__(
        self, message: str = "", *, task_id: str | None = None, **facts: Unpack[Facts]
    ) -> None:
        super().__init__(message, **facts)
        self.task_id = task_id


class TaskNotCancelableError(A2AError):
    """The task is over, or cannot be canceled where it stands (A2A 3.3.2).

    Attributes:
        task_id: The id that was asked for, where known.
        state: The state that the task is in, where the agent told it.
    """

    entry = Entry(-32002, "TASK_NOT_CANCELABLE", 400, "FAILED_PRECONDITION", -32600)

    def __init__(
        self,
        message: str = "",
        *,
        task_id: str | None = None,
        state: TaskState | None = None,
        **facts: Unpack[Facts],
    ) -> None:
        super().__init__(message, **facts)
        self.task_id = task_id
        self.state = state


class PushNotificationNotSupportedError(A2AError):
    """The agent has no push notifications (A2A 3.3.2)."""

    entry = Entry(-32003, "PUSH_NOTIFICATION_NOT_SUPPORTED", 400, "FAILED_PRECONDITION", -32601)


class UnsupportedOperationError(A2AError):
    """The agent does not offer this operation, or not for this task (A2A 3.3.2)."""

    entry = Entry(-32004, "UNSUPPORTED_OPERATION", 400, "FAILED_PRECONDITION", -32601)


class ContentTypeNotSupportedError(A2AError):
    """The agent does not take a media type of the message (A2A 3.3.2)."""

    entry = Entry(-32005, "CONTENT_TYPE_NOT_SUPPORTED", 400, "INVALID_ARGUMENT", -32602)


class InvalidAgentResponseError(A2AError):
    """The reply is not what the protocol says it must be.

    Either the agent says so itself (``code`` -32006), or the client could not read the reply
    (``code`` None; ``excerpt`` shows its beginning).
    """

    entry = Entry(-32006, "INVALID_AGENT_RESPONSE", 500, "INTERNAL", -32603)


class ExtendedAgentCardNotConfiguredError(A2AError):
    """The agent declares an extended card but has none (A2A 3.3.2)."""

    entry = Entry(-32007, "EXTENDED_AGENT_CARD_NOT_CONFIGURED", 400, "FAILED_PRECONDITION", -32601)


class ExtensionSupportRequiredError(A2AError):
    """The agent requires an extension that the request did not declare (A2A 3.3.2).

    Where its card already says so, nothing was sent.

    Attributes:
        extensions: The URIs that are missing, where a card says so.
    """

    entry = Entry(-32008, "EXTENSION_SUPPORT_REQUIRED", 400, "FAILED_PRECONDITION", -32600)

    def __init__(
        self, message: str = "", *, extensions: Sequence[str] = (), **facts: Unpack[Facts]
    ) -> None:
        super().__init__(message, **facts)
        self.extensions: tuple[str, ...] = tuple(extensions)


class VersionNotSupportedError(A2AError):
    """The agent does not speak the protocol version that was asked for (A2A 3.6)."""

    entry = Entry(-32009, "VERSION_NOT_SUPPORTED", 400, "FAILED_PRECONDITION")


class ParseError(A2AError):
    """The agent could not read the request as JSON (JSON-RPC -32700)."""

    entry = Entry(-32700, "PARSE_ERROR", 400, "INVALID_ARGUMENT")


class InvalidRequestError(A2AError):
    """The agent does not take the request for a valid one (JSON-RPC -32600)."""

    entry = Entry(-32600, "INVALID_REQUEST", 400, "INVALID_ARGUMENT")


class MethodNotFoundError(A2AError):
    """The agent does not know the method (JSON-RPC -32601)."""

    entry = Entry(-32601, "METHOD_NOT_FOUND", 404, "NOT_FOUND")


class InvalidParamsError(A2AError):
    """The agent refuses the parameters (JSON-RPC -32602)."""

    entry = Entry(-32602, "INVALID_PARAMS", 400, "INVALID_ARGUMENT")


class InternalError(A2AError):
    """The agent failed inside (JSON-RPC -32603); it may have run the message first."""


class AgentError(A2AError):
    """The agent answered with an error code of its own; ``code`` keeps it."""

    entry = Entry(-32000, UNNAMED, 500, "UNKNOWN")


# ── How it travelled ─────────────────────────────────────────────────────────────────────────


class A2AConnectionError(A2AError, ConnectionError):
    """No connection to the agent, or it broke.

    Attributes:
        failure: What broke: see `ConnectionFailure`.
    """

    entry = Entry(in_article=Dialect.AGENT_UNAVAILABLE)

    def __init__(
        self, message: str = "", *, failure: ConnectionFailure, **facts: Unpack[Facts]
    ) -> None:
        super().__init__(message, **facts)
        self.failure: ConnectionFailure = failure


class A2ATimeoutError(A2AError, TimeoutError):
    """The agent took longer than one of the limits of an attempt.

    Attributes:
        phase: Which wait expired: see `TimeoutPhase`.
        timeout: Its limit in seconds.
    """

    entry = Entry(in_article=Dialect.TASK_TIMEOUT)

    def __init__(
        self,
        message: str = "",
        *,
        phase: TimeoutPhase,
        timeout: float | None = None,
        **facts: Unpack[Facts],
    ) -> None:
        super().__init__(message, **facts)
        self.phase: TimeoutPhase = phase
        self.timeout = timeout


class A2AHTTPError(A2AError):
    """An HTTP status that says no, without an A2A error in the body."""

    entry = Entry(-32000, HTTP_STATUS, 500, "UNKNOWN", -32603)


class AuthenticationError(A2AHTTPError):
    """The agent wants credentials, or other ones (HTTP 401).

    Where its card already says what this client does not have, nothing was sent.

    Attributes:
        schemes: Names of the card's security schemes that it is about, where a card says so.
        missing: Those of them for which there is no credential.
    """

    entry = Entry(-32000, HTTP_STATUS, 401, "UNAUTHENTICATED", Dialect.AUTH_REQUIRED)

    def __init__(
        self,
        message: str = "",
        *,
        schemes: Sequence[str] = (),
        missing: Sequence[str] = (),
        **facts: Unpack[Facts],
    ) -> None:
        super().__init__(message, **facts)
        self.schemes: tuple[str, ...] = tuple(schemes)
        self.missing: tuple[str, ...] = tuple(missing)


class PermissionDeniedError(A2AHTTPError):
    """The credentials do not allow this (HTTP 403)."""

    entry = Entry(-32000, HTTP_STATUS, 403, "PERMISSION_DENIED", Dialect.INSUFFICIENT_SCOPE)


class RateLimitedError(A2AHTTPError):
    """Too many requests (HTTP 429); ``retry_after`` says when to come back, if the agent did."""

    entry = Entry(-32000, HTTP_STATUS, 429, "RESOURCE_EXHAUSTED", Dialect.RATE_LIMITED)


# ── Discovery and trust ──────────────────────────────────────────────────────────────────────


class AgentCardResolutionError(A2AError):
    """No agent card was found at its address."""


class InvalidAgentCardError(A2AError):
    """What was found is not a usable agent card.

    Attributes:
        field: The member that is wrong, as a path like ``supportedInterfaces[0].url``; None if
            the whole is not a card.
    """

    def __init__(
        self, message: str = "", *, field: str | None = None, **facts: Unpack[Facts]
    ) -> None:
        super().__init__(message, **facts)
        self.field = field


class CardSignatureError(A2AError):
    """The agent card's signature is wrong, or it is not verified where that is required.

    Nothing was sent to the agent.

    Attributes:
        outcome: ``"invalid"``, ``"unverifiable"`` or ``"absent"``; see `CardVerification`.
        key_id: The key that the signature names; None if there is none.
    """

    def __init__(
        self,
        message: str = "",
        *,
        outcome: str = "invalid",
        key_id: str | None = None,
        **facts: Unpack[Facts],
    ) -> None:
        super().__init__(message, **facts)
        self.outcome = outcome
        self.key_id = key_id


class CredentialOriginError(A2AError):
    """Credentials were about to go to an origin that they were not given for; nothing was sent.

    Only a card makes one: a redirect is followed without credentials, or not at all.

    Attributes:
        origin: The origin that the card named.
    """

    def __init__(self, message: str = "", *, origin: str, **facts: Unpack[Facts]) -> None:
        super().__init__(message, **facts)
        self.origin = origin


class NetworkPolicyError(A2AError):
    """An address resolves into a network that it must not reach (SSRF protection).

    Nothing was sent. Raised for an address that a card, a redirect or an authorization server
    names, and with ``connect(reach="public")`` for every address of the client.

    Attributes:
        address: The number of the host that it led to.
    """

    def __init__(
        self, message: str = "", *, address: str | None = None, **facts: Unpack[Facts]
    ) -> None:
        super().__init__(message, **facts)
        self.address = address


class ExtensionNotSupportedError(A2AError):
    """An extension that the caller asked for is not declared by the agent; nothing was sent.

    Attributes:
        extensions: The URIs that the agent's card does not have.
    """

    def __init__(
        self, message: str = "", *, extensions: Sequence[str], **facts: Unpack[Facts]
    ) -> None:
        super().__init__(message, **facts)
        self.extensions: tuple[str, ...] = tuple(extensions)


class ClientToolsNotSupportedError(ExtensionNotSupportedError):
    """The caller offers tools, but the agent does not declare the client-tools extension."""


class LimitExceededError(A2AError):
    """Something is larger than the client is told to accept.

    Attributes:
        which: The field of `Limits`, or ``"max_turns"`` or ``"max_tool_calls"`` of
            `ClientTools`.
        bound: Its value, in the unit that is given for it there.
        task: The task as last seen, where the agent still waits for the client.
    """

    entry = Entry(in_article=Dialect.CONTENT_TOO_LARGE)

    def __init__(
        self,
        message: str = "",
        *,
        which: str,
        bound: float,
        task: Task | None = None,
        **facts: Unpack[Facts],
    ) -> None:
        super().__init__(message, **facts)
        self.which = which
        self.bound = bound
        self.task = task


# ── How a task ended, or why it waits ────────────────────────────────────────────────────────


class _TaskOutcomeError(A2AError):
    def __init__(self, message: str = "", *, task: Task, **facts: Unpack[Facts]) -> None:
        super().__init__(message, **facts)
        self.task = task


class TaskTerminalError(_TaskOutcomeError):
    """The task is over, and not completed.

    Attributes:
        task: The task as last seen, with its status message and artifacts.
    """


class TaskFailedError(TaskTerminalError):
    """The task ended in FAILED."""


class TaskRejectedError(TaskTerminalError):
    """The agent refused the task: REJECTED."""


class TaskCanceledError(TaskTerminalError):
    """The task was canceled: CANCELED."""


class TaskInterruptedError(_TaskOutcomeError):
    """The task waits for somebody to act.

    Attributes:
        task: The task as last seen; its status message says what it waits for.
    """


class TaskInputRequiredError(TaskInterruptedError):
    """The task waits for a message: INPUT_REQUIRED."""


class TaskAuthRequiredError(TaskInterruptedError):
    """The task waits for an authorization: AUTH_REQUIRED (A2A 7.6)."""


# ── What the client itself decided ───────────────────────────────────────────────────────────


class DeadlineExceededError(A2AError, TimeoutError):
    """The time that the caller gave is over.

    Attributes:
        deadline: Which one: ``"call"``, ``"wait"``, ``"cancel"`` or ``"stream"``.
        timeout: What was given, in seconds.
        task: The task as last seen, if one is known. It may still be running.
    """

    entry = Entry(in_article=Dialect.TASK_TIMEOUT)

    def __init__(
        self,
        message: str = "",
        *,
        deadline: str,
        timeout: float,
        task: Task | None = None,
        **facts: Unpack[Facts],
    ) -> None:
        super().__init__(message, **facts)
        self.deadline = deadline
        self.timeout = timeout
        self.task = task


class CircuitOpenError(A2AError):
    """The agent failed so often that it is left alone for ``retry_after`` seconds."""

    entry = Entry(in_article=Dialect.AGENT_UNAVAILABLE)


class QueueFullError(A2AError):
    """Too many calls wait already."""

    entry = Entry(in_article=Dialect.AGENT_UNAVAILABLE)


class OutcomeUnknownError(A2AError):
    """The reply to a message was lost, and it is unknown whether the agent executed the message.

    It was not sent again, unless ``on_unknown`` asked for it. ``__cause__`` is the failure that
    lost the reply; for a call from a journal, it is the failure of the search. The message of such
    a call may not have been sent at all: a journal records calls, not their attempts.

    Attributes:
        message_id: The id of the message that was sent.
        context_id: The context that it was sent in, if any.
        searched: The places that were searched for the message, in order; empty if none was.
        search_error: The error that ended the search early: a deadline, the close of the client,
            an unreachable agent. None if the search was finished, or not wanted. A later search
            may find the message; in a journal, its call stays pending for that.
    """

    def __init__(
        self,
        message: str = "",
        *,
        message_id: str,
        context_id: str | None = None,
        searched: Sequence[str] = (),
        search_error: A2AError | None = None,
        **facts: Unpack[Facts],
    ) -> None:
        super().__init__(message, **facts)
        self.message_id = message_id
        self.context_id = context_id
        self.searched: tuple[str, ...] = tuple(searched)
        self.search_error = search_error


class DuplicateTasksError(A2AError):
    """An agent has more than one task of one message.

    The search for its lost reply found them. ``executed`` is True.

    Attributes:
        message_id: The id of the message.
        tasks: The tasks, as the agent's list shows them.
    """

    def __init__(
        self,
        message: str = "",
        *,
        message_id: str,
        tasks: Sequence[Task],
        **facts: Unpack[Facts],
    ) -> None:
        super().__init__(message, **facts)
        self.message_id = message_id
        self.tasks: tuple[Task, ...] = tuple(tasks)


class CallEndedError(A2AError):
    """A call that was to be resumed has ended, and has no answer that can be returned.

    Nothing was sent. ``executed`` is that of the message: True if there was an answer, else None.

    Attributes:
        message_id: The id of its message.
        outcome: What became of the call: see `CallOutcome`.
        detail: More of that, in a line for people, as the journal has it.
    """

    def __init__(
        self,
        message: str = "",
        *,
        message_id: str,
        outcome: CallOutcome,
        detail: str | None = None,
        **facts: Unpack[Facts],
    ) -> None:
        super().__init__(message, **facts)
        self.message_id = message_id
        self.outcome: CallOutcome = outcome
        self.detail = detail


class RunItemChangedError(A2AError):
    """Another message had the key of this one in an earlier run, and may have been sent.

    This one was not sent: ``executed`` is False.

    Attributes:
        key: The key of both.
        message_id: The id of the other one, where it is known.
    """

    def __init__(
        self,
        message: str = "",
        *,
        key: str,
        message_id: str | None = None,
        **facts: Unpack[Facts],
    ) -> None:
        super().__init__(message, **facts)
        self.key = key
        self.message_id = message_id


class ReconnectError(A2AError):
    """A stream was cut and could not be picked up again.

    Attributes:
        task: The task as last seen, if one is known.
    """

    def __init__(
        self, message: str = "", *, task: Task | None = None, **facts: Unpack[Facts]
    ) -> None:
        super().__init__(message, **facts)
        self.task = task


class CancelUnconfirmedError(A2AError):
    """The agent took the request to cancel, but the task did not end in time.

    Attributes:
        task: The task as last seen.
    """

    def __init__(
        self, message: str = "", *, task: Task | None = None, **facts: Unpack[Facts]
    ) -> None:
        super().__init__(message, **facts)
        self.task = task


class NotEnoughResultsError(A2AError):
    """Fewer agents answered than the caller needs.

    Attributes:
        results: Every result, the failed ones included.
    """

    def __init__(
        self, message: str = "", *, results: Sequence[Any] = (), **facts: Unpack[Facts]
    ) -> None:
        super().__init__(message, **facts)
        self.results: tuple[Any, ...] = tuple(results)


class JournalError(A2AError):
    """The journal cannot be used, or does not give a call away.

    ``executed`` is False where nothing was sent, and None where the call goes on elsewhere.

    Attributes:
        reason: What keeps from it: see `JournalFailure`.
        message_id: Of the call that the journal has, or has not; None where it is about no call.
        held_until: When the call is free unless whoever holds it goes on, in UTC; None for one
            that nobody holds, and where that is not known.
    """

    def __init__(
        self,
        message: str = "",
        *,
        reason: JournalFailure = "unusable",
        message_id: str | None = None,
        held_until: datetime | None = None,
        **facts: Unpack[Facts],
    ) -> None:
        super().__init__(message, **facts)
        self.reason: JournalFailure = reason
        self.message_id = message_id
        self.held_until = held_until


# ── By the protocol's names ──────────────────────────────────────────────────────────────────

_KINDS: tuple[type[A2AError], ...] = (
    TaskNotFoundError,
    TaskNotCancelableError,
    PushNotificationNotSupportedError,
    UnsupportedOperationError,
    ContentTypeNotSupportedError,
    InvalidAgentResponseError,
    ExtendedAgentCardNotConfiguredError,
    ExtensionSupportRequiredError,
    VersionNotSupportedError,
    ParseError,
    InvalidRequestError,
    MethodNotFoundError,
    InvalidParamsError,
    InternalError,
)

BY_CODE: Mapping[int, type[A2AError]] = MappingProxyType({k.entry.code: k for k in _KINDS})
"""The errors that the protocol names."""

CODE_BY_REASON: Mapping[str, int] = MappingProxyType(
    {kind.entry.reason: kind.entry.code for kind in _KINDS}
    | {"INTERNAL": -32603, "JSON_PARSE": -32700}
)
"""By the ``reason`` of a `google.rpc.ErrorInfo`; some are written in more than one way."""

_NOT_EXECUTED_CODES = frozenset({-32700, -32009})
_TRANSIENT_CODES = frozenset({-32603})
_TRANSIENT_IN_ARTICLE = frozenset(
    {Dialect.RATE_LIMITED, Dialect.AGENT_UNAVAILABLE, Dialect.TASK_TIMEOUT}
)
"""What may pass if the error itself says nothing about it; of the protocol, and of the dialect."""


def error_from_object(told: ErrorObject, otherwise: type[A2AError] | None = None) -> A2AError:
    """The error that an error object tells of.

    Args:
        told: What it tells.
        otherwise: What it is if the protocol does not name it; `AgentError` if that is None.
    """
    kind = BY_CODE.get(told.code) or otherwise or AgentError
    if told.in_article_dialect:
        kind = AgentError
    codes = _TRANSIENT_IN_ARTICLE if told.in_article_dialect else _TRANSIENT_CODES
    hint = told.code in codes or told.retry_after is not None
    facts = Facts(
        code=told.code,
        details=told.details,
        data=told.data,
        executed=False if told.code in _NOT_EXECUTED_CODES else None,
        transient=hint if told.retryable is None else told.retryable,
        retry_after=told.retry_after,
        hops=told.hops,
        loop=told.loop,
    )
    task_id, state = told.metadata.get("taskId"), told.metadata.get("state")
    if kind is TaskNotFoundError:
        return TaskNotFoundError(told.message, task_id=task_id, **facts)
    if kind is TaskNotCancelableError:
        known = None if state is None else TaskState(state)
        return TaskNotCancelableError(told.message, task_id=task_id, state=known, **facts)
    return kind(told.message, **facts)


_LONGEST_MESSAGE = 480
"""Characters of a message of which nothing is left out on the way."""


def wrap_downstream(
    error: A2AError, *, current: str, agent: str | None = None, nested: bool = False
) -> A2AError:
    """The error of an agent that failed because the next agent did; raise it, or answer with it.

    It says where the chain broke, and keeps whether and when it may help to try again. Whether the
    next agent ran anything is its own affair: ``executed`` is None, since the current agent did
    run. To those who called the current agent it is an internal error (-32603), whatever it was
    below: a task that is not found there is not theirs.

    Of a `NotEnoughResultsError` each agent that failed is named: one of them with those behind it,
    several as one hop, ``"traffic, weather"``. Where too few were asked, nobody failed, and there
    is no hop.

    Args:
        error: What the call of the next agent raised, or `A2AError.from_jsonrpc` of its answer.
        current: The name or address of the agent that answers. Use one name for it everywhere, as
            that is how loops are found.
        agent: The name or address of the agent that failed; None for ``error.agent``, or those of
            its results.
        nested: Whether to answer in the older dialect, with the errors below one inside the other.

    Returns:
        With `hops` from ``agent`` to where it broke, and `loop` if an agent is in it twice.

    Raises:
        ValueError: There is no name for the agent that failed, or for the one that answers.
        TypeError: An argument of another type. What is no `A2AError` is not for others: to them it
            is an `InternalError` that says nothing else.
    """
    _check_error(error)
    _check_name("current", current)
    if agent is not None:
        _check_name("agent", agent)
    check_kind("nested", nested, bool)
    failed, below = _failed_below(error) if agent is None else (agent, error.hops)
    nearest = hops.as_hop(failed)
    if not nearest and not isinstance(error, NotEnoughResultsError):
        text = "the error names no agent: say which one was called, with agent="
        raise ValueError(text)
    here = hops.as_hop(current)
    chain = hops.bounded_chain((nearest, *below))
    wrapped = InternalError(
        _message(nearest, error) if nearest else own_message(error),
        code=InternalError.entry.code,
        transient=error.transient,
        retry_after=error.retry_after,
        agent=here or None,
        hops=chain,
        loop=error.loop or hops.repeated_agent((here, *chain)),
        traceparent=error.traceparent,
    )
    if nested:
        data: dict[str, Any] = wrapped.to_jsonrpc(nested=True)["data"]
        if chain and below == error.hops:  # else it knows less of them than the chain
            data["downstreamError"] = error.to_jsonrpc(nested=True)
        wrapped.data = data
    return wrapped


def _check_error(error: object) -> None:
    if not isinstance(error, A2AError):
        text = (
            f"error must be A2AError, not {type(error).__name__}; other errors are passed on only "
            'as InternalError("internal error")'
        )
        raise TypeError(text)


def _check_name(name: str, value: str) -> None:
    check_kind(name, value, str)
    if not value:
        text = f"{name} must not be empty"
        raise ValueError(text)


def _failed_below(error: A2AError) -> tuple[str | None, tuple[str, ...]]:
    """The agent that failed, and those behind it; of several, all their names."""
    if not isinstance(error, NotEnoughResultsError) or error.agent:
        return error.agent, error.hops
    failed: dict[str, A2AError] = {
        hops.as_hop(one.agent): cast("A2AError", one.error)
        for one in error.results
        if one.error is not None
    }
    behind = [one.hops for one in failed.values()]
    return ", ".join(failed), behind[0] if len(behind) == 1 else ()


def _message(nearest: str, error: A2AError) -> str:
    """Names every agent, and what the last one said; of a long chain the nearest and the last."""
    rest, cause = "", own_message(error)
    for hop in error.hops:
        stage = f"agent {hops.as_hop(hop)} failed: "
        if not cause.startswith(stage):
            break
        rest, cause = rest + stage, cause.removeprefix(stage)
    if len(rest) + len(cause) > _LONGEST_MESSAGE - len(nearest):
        last = error.hops[-1] if error.hops else ""
        rest = f"{hops.LEFT_OUT} agent {hops.as_hop(last)} failed: " if last else ""
    return f"agent {nearest} failed: {rest}{cause}"
