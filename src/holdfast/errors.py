"""All errors of Holdfast, and their facts.

Rules: one tree under `A2AError`; ``str(error)`` is one helpful line; all facts for programs are
attributes; neither contains a secret. An error states facts, not decisions: whether to retry is
decided elsewhere, from `A2AError.executed` and `A2AError.transient`. The tree::

    A2AError
    ├── errors of the agent (A2A specification 3.3.2, JSON-RPC 2.0)
    │   ├── TaskNotFoundError                   ├── ParseError
    │   ├── TaskNotCancelableError              ├── InvalidRequestError
    │   ├── PushNotificationNotSupportedError   ├── MethodNotFoundError
    │   ├── UnsupportedOperationError           ├── InvalidParamsError
    │   ├── ContentTypeNotSupportedError        ├── InternalError
    │   ├── InvalidAgentResponseError           ├── ExtendedAgentCardNotConfiguredError
    │   ├── ExtensionSupportRequiredError       ├── VersionNotSupportedError
    │   └── AgentError (any other code)
    ├── transport errors
    │   ├── A2AConnectionError                  ├── AuthenticationError
    │   ├── A2ATimeoutError                     ├── PermissionDeniedError
    │   └── A2AHTTPError                        └── RateLimitedError
    ├── discovery and trust
    │   ├── AgentCardResolutionError            ├── ExtensionNotSupportedError
    │   ├── InvalidAgentCardError               ├── ClientToolsNotSupportedError
    │   ├── CardSignatureError                  ├── NetworkPolicyError
    │   ├── CredentialOriginError               └── LimitExceededError
    ├── terminal and interrupted tasks
    │   ├── TaskTerminalError: TaskFailedError, TaskRejectedError, TaskCanceledError
    │   └── TaskInterruptedError: TaskInputRequiredError, TaskAuthRequiredError
    └── decisions of the client
        ├── DeadlineExceededError               ├── ReconnectError
        ├── CircuitOpenError                    ├── CancelUnconfirmedError
        ├── QueueFullError                      ├── NotEnoughResultsError
        ├── OutcomeUnknownError                 ├── JournalError
        ├── DuplicateTasksError                 └── CallEndedError
        └── KeyConflictError
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
    "KeyConflictError",
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
"""Failure of a connection; the first five occur before a byte of the request is sent."""

JournalFailure = Literal[
    "unusable",
    "full",
    "locked",
    "read_only",
    "damaged",
    "replaced",
    "untrusted",
    "unreachable",
    "forbidden",
    "newer",
    "exists",
    "held",
    "finished",
    "taken_over",
    "missing",
    "other_agent",
]
"""Reason why a journal operation failed.

- ``"unusable"``: it cannot be written or read, or does not answer. If the journal knows the cause:
  ``"full"``: the disk is full; ``"locked"`` by another writer; ``"read_only"``; ``"damaged"``;
  ``"replaced"``: deleted, moved or replaced since it was opened; or ``"untrusted"``: its file, or
  one beside it (``-wal``, ``-shm``), belongs to another user, is a link, or is readable or
  writable by others.
- ``"unreachable"``: the server of the journal cannot be reached, or refuses the connection.
- ``"forbidden"``: the journal's role on its server lacks a right.
- ``"newer"``: a newer version of Holdfast has written it.
- ``"exists"``: it has a call with that message id or label, which may have been sent.
- ``"held"``: another process works on the call, or crashed less than a lease ago.
- ``"finished"``: the call has an outcome.
- ``"taken_over"``: another process took the call over during the work on it.
- ``"missing"``: it has no such call.
- ``"other_agent"``: the call was recorded for other addresses (``agent``) too, and the addresses
  of this client have no task of it.
"""

CallOutcome = Literal["answered", "refused", "duplicated", "unknown", "not_sent", "dismissed"]
"""Outcome of a call.

- ``"answered"``: by a task, in any settled state, or by a message.
- ``"refused"``: by an error of the protocol that is not transient; no task continues.
- ``"duplicated"``: the agent created more than one task; the caller got an error.
- ``"unknown"``: it may have been executed: it was sent, and no task was found, or the agent failed
  with a transient error, such as -32603. The caller got an error; the call is still pending.
- ``"not_sent"``: it certainly did not reach the agent, and may be sent again.
- ``"dismissed"``: the outcome is not needed.
"""

TimeoutPhase = Literal["pool", "connect", "write", "first_byte", "idle"]
"""Wait that expired; in the first two no byte of the request was sent."""


class Attempt(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One attempt of a call, in errors and replies.

    Attributes:
        number: Number of the attempt, from 1.
        method: The A2A method, such as ``"SendMessage"``; empty where it is not known.
        agent: The called address, without credentials or query.
        started: Seconds from the start of the call.
        duration: Duration in seconds.
        error: Reason of the failure, in one line; None if the attempt succeeded.
        executed: Whether the agent executed it: True, False, or None if unknown.
        wait: Seconds until the next attempt; None for the last one.
    """

    number: int
    agent: str
    started: float
    duration: float
    error: str | None = None
    executed: bool | None = None
    wait: float | None = None
    method: str = ""


class Facts(TypedDict, total=False):
    """Facts of any `A2AError`, as keyword arguments; `A2AError` describes each.

    Attributes:
        code: JSON-RPC code of the A2A error.
        details: Typed details, as received.
        data: JSON-RPC ``error.data`` or the body's own error object, as received.
        http_status: Status of the HTTP reply.
        grpc_status: Name of the gRPC status.
        headers: Harmless headers of the reply.
        executed: Whether the agent executed the operation; None if unknown.
        transient: Whether the same call may succeed later.
        retry_after: Seconds to wait before a retry.
        attempts: All attempts, in order.
        agent: Address that failed.
        request_id: Id of the request in the log.
        operation_id: Id of the operation in the log.
        retry_stopped_reason: Why there was no further retry.
        hops: Agents behind ``agent`` on the way to the failure.
        loop: Agent that occurs more than once in that chain.
        traceparent: Position of the call in a distributed trace.
        excerpt: Beginning of a reply that was not understood.
        other_version: Protocol version to try.
    """

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
    operation_id: str | None
    retry_stopped_reason: str | None
    hops: Sequence[str]
    loop: str | None
    traceparent: str | None
    excerpt: str | None
    other_version: str | None


class A2AError(Exception):
    """Base class of all errors that Holdfast raises.

    Attributes:
        entry: Representation of errors of this class in the protocol.
        code: JSON-RPC code of the A2A error, whatever the binding; None if there is none.
        details: Typed details (``google.rpc`` objects with an ``@type``), as received.
        data: JSON-RPC ``error.data`` or the body's own error object, as received.
        http_status: Status of the HTTP reply; None if there was none.
        grpc_status: Name of the gRPC status; None if there was none.
        headers: Harmless headers of the reply, names in lower case.
        executed: Whether the agent executed the operation: True, False, or None if unknown.
        transient: Whether the same call may succeed later. Never True if a task of the call was
            seen: the agent has executed the message, and the task is to be resumed instead.
        retry_after: Seconds to wait before a retry, if the agent or its circuit breaker gave a
            delay.
        attempts: All attempts, in order.
        retry_stopped_reason: Why there was no further retry, although one might have helped.
        agent: Address that failed, without credentials or query: that of a card or of an
            interface, which observations and log records have as ``endpoint``. Their ``agent`` is
            the agent as the program named it.
        request_id: Id of the request in the log.
        operation_id: Id of the operation in the log: of the method call that raised the error;
            None for an error outside of an operation, such as a `NotEnoughResultsError`, whose
            results have the errors of several operations.
        hops: Agents behind ``agent`` on the way to the failure, nearest first; the last one
            failed. Of more than 16, the nearest 14 and the last one, with ``"…"`` between.
        loop: Agent that occurs more than once in that chain.
        traceparent: Position of the call in a distributed trace (W3C Trace Context); None without
            one.
        excerpt: Beginning of a reply that was not understood.
        other_version: Protocol version to try, ``"1.0"`` or ``"0.3"``, if the agent does not seem
            to support the version of the call.
    """

    entry: ClassVar[Entry] = Entry()
    _task: Task | None = None
    _task_id: str | None = None

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
        self.operation_id: str | None = facts.get("operation_id")
        self.retry_stopped_reason: str | None = facts.get("retry_stopped_reason")
        self.hops: tuple[str, ...] = tuple(facts.get("hops", ()))
        self.loop: str | None = facts.get("loop")
        self.traceparent: str | None = facts.get("traceparent")
        self.excerpt: str | None = facts.get("excerpt")
        self.other_version: str | None = facts.get("other_version")

    @property
    def message(self) -> str:
        """Description of the failure, in one line."""
        return str(self.args[0])

    @message.setter
    def message(self, message: str) -> None:
        self.args = (message,)

    @property
    def task(self) -> Task | None:
        """The task in its last known state; None if the call has seen none."""
        return self._task

    @property
    def task_id(self) -> str | None:
        """Id of the task that the call is about; None if unknown."""
        return self._task_id if self._task is None else self._task.id

    def facts(self) -> Facts:
        """Return the facts, to pass to another error; without ``task`` and ``task_id``."""
        return cast("Facts", {name: getattr(self, name) for name in Facts.__annotations__})

    @staticmethod
    def from_jsonrpc(error: Mapping[str, Any]) -> A2AError:
        """Convert a JSON-RPC error object to a typed error (JSON-RPC 2.0, 5.1; A2A 9.5).

        Args:
            error: The parsed ``error`` of a reply: of A2A 1.0, or in the older dialect.

        Returns:
            The error with its facts; `InvalidAgentResponseError` if the object is malformed.
        """
        try:
            error_object = reading.read_error_object(error)
        except ValueError as fault:
            return InvalidAgentResponseError(f"the error {fault}")
        return error_from_object(error_object)

    def to_jsonrpc(self, *, nested: bool = False, request_id: str | None = None) -> dict[str, Any]:
        """Return the JSON-RPC error object for an agent's reply (JSON-RPC 2.0, 5.1; A2A 9.5).

        Its ``data`` is a list of typed details: ``transient`` and ``hops`` are members of the
        ``google.rpc.ErrorInfo``; ``retry_after`` is a ``google.rpc.RetryInfo``. Other details are
        kept, up to 8,000 characters; secrets, file paths and stack traces are removed if their
        form reveals them.

        Args:
            nested: Whether to use the older dialect, in which ``data`` is an object:
                ``retryable``, ``retryAfter``, and for a chain ``currentAgent``,
                ``downstreamAgent`` and ``downstreamError``, nested in each other. An error
                received in that dialect is always written in it. False by default.
            request_id: Id of the request in the agent's log, for support requests; none by
                default.
        """
        own_code = isinstance(self, AgentError) and is_article_code(self.code)
        nested = nested or own_code or is_article_data(self.data)
        return writing.rpc_error(self, self.entry, nested=nested, request_id=request_id)

    def to_rest(self, *, request_id: str | None = None) -> dict[str, Any]:
        """Return the ``google.rpc.Status`` object for an agent's reply over HTTP+JSON (A2A 11.6).

        Send it as the member ``error`` of the body, with its ``code`` as the HTTP status.

        Args:
            request_id: Id of the request in the agent's log, for support requests; none by
                default.
        """
        return writing.rest_error(self, self.entry, request_id=request_id)

    def __str__(self) -> str:
        notes = "; ".join(one_line(note, _MAX_NOTE_CHARACTERS) for note in self._notes())
        message = one_line(self.message or type(self).__name__, _MAX_MESSAGE_CHARACTERS)
        return f"{message} ({notes})" if notes else message

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {self}>"

    def __copy__(self) -> A2AError:
        duplicate = _rebuild(type(self), self.args, self.__dict__)
        duplicate.__cause__ = self.__cause__
        return duplicate

    def __reduce__(self) -> tuple[Callable[..., A2AError], tuple[Any, ...]]:
        # The constructors take keyword arguments, which Exception's own pickling does not support.
        return _rebuild, (type(self), self.args, self.__dict__)

    def _notes(self) -> list[str]:
        notes: list[str] = []
        if self.agent is not None:
            notes.append(f"agent {self.agent}")
        if self.hops and not (self.hops[-1] and self.hops[-1] in self.message):
            notes.append(f"it failed at {' → '.join(self.hops)}")
        if self.loop is not None:
            notes.append(f"{self.loop} occurs twice in the chain")
        if len(self.attempts) > 1:
            notes.append(f"{len(self.attempts)} attempts")
        if self.retry_after is not None:
            exact = "3g" if self.retry_after < 100 else "0f"  # more digits do not matter
            notes.append(f"retry after {self.retry_after:.{exact}} s")
        if self.retry_stopped_reason is not None:
            is_retried = len(self.attempts) > 1
            end = "no further retry" if is_retried else "not retried"
            notes.append(f"{end}: {self.retry_stopped_reason}")
        if self.other_version is not None:
            version = self.other_version
            notes.append(
                f'if the agent speaks protocol {version}, pass protocol_version="{version}"'
            )
        if self.excerpt:
            notes.append(f"reply began {self.excerpt[:120]!r}")
        return notes


_MAX_MESSAGE_CHARACTERS = 1000
_MAX_NOTE_CHARACTERS = 250
"""Characters of the message and of each fact in `str`; the attributes are complete."""


def note_task(error: A2AError, task: Task | None, task_id: str | None = None) -> None:
    """Add the task of the call, or its id, to an error that does not know it."""
    # A function and not a setter: a task in the errors of tasks is never None.
    error._task = error._task or task  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
    error._task_id = error._task_id or task_id  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]


def _rebuild(kind: type[A2AError], args: tuple[Any, ...], state: dict[str, Any]) -> A2AError:
    error = kind.__new__(kind)
    error.args = args
    error.__dict__.update(state)
    return error


# ── Errors of the agent ──────────────────────────────────────────────────────────────────────


class TaskNotFoundError(A2AError):
    """The task does not exist, was deleted, or belongs to another caller (A2A 3.3.2).

    Attributes:
        task_id: The requested id, if known.
    """

    entry = Entry(-32001, "TASK_NOT_FOUND", 404, "NOT_FOUND", Dialect.TASK_NOT_FOUND)

    def __init__(
        self, message: str = "", *, task_id: str | None = None, **facts: Unpack[Facts]
    ) -> None:
        super().__init__(message, **facts)
        self._task_id = task_id


class TaskNotCancelableError(A2AError):
    """The task is terminal, or cannot be canceled in its state (A2A 3.3.2).

    Attributes:
        task_id: The requested id, if known.
        state: State of the task, if the agent reported it.
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
        self._task_id = task_id
        self.state = state


class PushNotificationNotSupportedError(A2AError):
    """The agent does not support push notifications (A2A 3.3.2)."""

    entry = Entry(-32003, "PUSH_NOTIFICATION_NOT_SUPPORTED", 400, "FAILED_PRECONDITION", -32601)


class UnsupportedOperationError(A2AError):
    """The agent does not support this operation, or not for this task (A2A 3.3.2)."""

    entry = Entry(-32004, "UNSUPPORTED_OPERATION", 400, "FAILED_PRECONDITION", -32601)


class ContentTypeNotSupportedError(A2AError):
    """The agent does not accept a media type of the message (A2A 3.3.2)."""

    entry = Entry(-32005, "CONTENT_TYPE_NOT_SUPPORTED", 400, "INVALID_ARGUMENT", -32602)


class InvalidAgentResponseError(A2AError):
    """The reply violates the protocol.

    Either the agent reports it (``code`` -32006), or the client could not decode the reply
    (``code`` None; ``excerpt`` is its beginning).
    """

    entry = Entry(-32006, "INVALID_AGENT_RESPONSE", 500, "INTERNAL", -32603)


class ExtendedAgentCardNotConfiguredError(A2AError):
    """The agent declares an extended card but has none (A2A 3.3.2)."""

    entry = Entry(-32007, "EXTENDED_AGENT_CARD_NOT_CONFIGURED", 400, "FAILED_PRECONDITION", -32601)


class ExtensionSupportRequiredError(A2AError):
    """The agent requires an extension that the request did not declare (A2A 3.3.2).

    If the card already requires it, nothing was sent.

    Attributes:
        extensions: URIs of the missing extensions, if the card names them.
    """

    entry = Entry(-32008, "EXTENSION_SUPPORT_REQUIRED", 400, "FAILED_PRECONDITION", -32600)

    def __init__(
        self, message: str = "", *, extensions: Sequence[str] = (), **facts: Unpack[Facts]
    ) -> None:
        super().__init__(message, **facts)
        self.extensions: tuple[str, ...] = tuple(extensions)


class VersionNotSupportedError(A2AError):
    """The agent does not support the requested protocol version (A2A 3.6)."""

    entry = Entry(-32009, "VERSION_NOT_SUPPORTED", 400, "FAILED_PRECONDITION")


class ParseError(A2AError):
    """The agent could not parse the request as JSON (JSON-RPC -32700)."""

    entry = Entry(-32700, "PARSE_ERROR", 400, "INVALID_ARGUMENT")


class InvalidRequestError(A2AError):
    """The agent considers the request invalid (JSON-RPC -32600)."""

    entry = Entry(-32600, "INVALID_REQUEST", 400, "INVALID_ARGUMENT")


class MethodNotFoundError(A2AError):
    """The agent does not support the method (JSON-RPC -32601)."""

    entry = Entry(-32601, "METHOD_NOT_FOUND", 404, "NOT_FOUND")


class InvalidParamsError(A2AError):
    """The agent rejects the parameters (JSON-RPC -32602)."""

    entry = Entry(-32602, "INVALID_PARAMS", 400, "INVALID_ARGUMENT")


class InternalError(A2AError):
    """The agent failed internally (JSON-RPC -32603), perhaps after executing the message."""


class AgentError(A2AError):
    """The agent answered with an unknown error code, which is in ``code``."""

    entry = Entry(-32000, UNNAMED, 500, "UNKNOWN")


# ── Transport errors ─────────────────────────────────────────────────────────────────────────


class A2AConnectionError(A2AError, ConnectionError):
    """The connection to the agent could not be established, or it broke.

    Attributes:
        failure: Kind of failure, one of `ConnectionFailure`.
    """

    entry = Entry(in_article=Dialect.AGENT_UNAVAILABLE)

    def __init__(
        self, message: str = "", *, failure: ConnectionFailure, **facts: Unpack[Facts]
    ) -> None:
        super().__init__(message, **facts)
        self.failure: ConnectionFailure = failure


class A2ATimeoutError(A2AError, TimeoutError):
    """The agent exceeded one of the timeouts of an attempt.

    Attributes:
        phase: Wait that expired, one of `TimeoutPhase`.
        timeout: Its timeout in seconds.
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
    """An unsuccessful HTTP status without an A2A error in the body."""

    entry = Entry(-32000, HTTP_STATUS, 500, "UNKNOWN", -32603)


class AuthenticationError(A2AHTTPError):
    """The agent requires credentials, or other ones (HTTP 401), or there is no token for it.

    If the card already requires credentials that the client lacks, nothing was sent.

    Attributes:
        schemes: Names of the card's security schemes that are required, if known.
        missing: The required schemes for which the client has no credential.
        authorization_server: Address of the authorization server that issued no token; None if
            none was asked. ``agent`` is the agent that the token is for; it was not called:
            ``http_status`` is the server's, and ``transient`` is true if the server could not be
            reached or is unavailable.
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
        self.authorization_server: str | None = None

    def _notes(self) -> list[str]:
        notes = super()._notes()
        if self.authorization_server is not None and self.agent is not None:
            notes[0] = f"for agent {self.agent}"  # it did not fail
        return notes


class PermissionDeniedError(A2AHTTPError):
    """The credentials do not permit the operation (HTTP 403)."""

    entry = Entry(-32000, HTTP_STATUS, 403, "PERMISSION_DENIED", Dialect.INSUFFICIENT_SCOPE)


class RateLimitedError(A2AHTTPError):
    """Too many requests (HTTP 429); ``retry_after`` is the agent's delay, if it gave one.

    A call that would wait too long for the Retry-After of other calls raises it, too. The error of
    a 503 with Retry-After is an `A2AHTTPError` with ``retry_after``.
    """

    entry = Entry(-32000, HTTP_STATUS, 429, "RESOURCE_EXHAUSTED", Dialect.RATE_LIMITED)


# ── Discovery and trust ──────────────────────────────────────────────────────────────────────


class AgentCardResolutionError(A2AError):
    """No agent card was found at the agent's address."""


class InvalidAgentCardError(A2AError):
    """The document is not a usable agent card.

    Attributes:
        field: Path of the invalid member, such as ``supportedInterfaces[0].url``; None if the
            document is not a card at all.
    """

    def __init__(
        self, message: str = "", *, field: str | None = None, **facts: Unpack[Facts]
    ) -> None:
        super().__init__(message, **facts)
        self.field = field


class CardSignatureError(A2AError):
    """The signature of the agent card is invalid, or it is not verified although required.

    Nothing was sent to the agent.

    Attributes:
        outcome: ``"invalid"``, ``"unverifiable"`` or ``"absent"``, as in `CardVerification`.
        key_id: Key id of the signature; None if there is none.
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
    """Credentials would have been sent to an origin that is not trusted; nothing was sent.

    Only a card can cause it: a redirect is followed without credentials, or not at all.

    Attributes:
        origin: The origin in the card.
    """

    def __init__(self, message: str = "", *, origin: str, **facts: Unpack[Facts]) -> None:
        super().__init__(message, **facts)
        self.origin = origin


class NetworkPolicyError(A2AError):
    """An address leads into a network that must not be reached (SSRF protection).

    Nothing was sent. Raised for addresses from a card, a redirect or an authorization server, and
    with ``connect(reach="public")`` for all addresses of the client.

    Attributes:
        address: The IP address.
    """

    def __init__(
        self, message: str = "", *, address: str | None = None, **facts: Unpack[Facts]
    ) -> None:
        super().__init__(message, **facts)
        self.address = address


class ExtensionNotSupportedError(A2AError):
    """The agent does not declare a requested extension; nothing was sent.

    Attributes:
        extensions: URIs that the agent's card does not declare.
    """

    def __init__(
        self, message: str = "", *, extensions: Sequence[str], **facts: Unpack[Facts]
    ) -> None:
        super().__init__(message, **facts)
        self.extensions: tuple[str, ...] = tuple(extensions)


class ClientToolsNotSupportedError(ExtensionNotSupportedError):
    """The agent does not declare the client-tools extension, but the caller offers tools."""


class LimitExceededError(A2AError):
    """A value exceeds one of the client's limits.

    Attributes:
        which: Name of the limit: a field of `Limits`, or ``"max_turns"`` or ``"max_tool_calls"``
            of `ClientTools`.
        bound: Value of the limit, in its unit.
        task: The task in its last known state, if the agent still waits for the client.
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
        self._task = task


# ── Terminal and interrupted tasks ───────────────────────────────────────────────────────────


class _TaskOutcomeError(A2AError):
    def __init__(self, message: str = "", *, task: Task, **facts: Unpack[Facts]) -> None:
        super().__init__(message, **facts)
        self._task = task

    @property
    def task(self) -> Task:
        """The task in its last known state."""
        return cast("Task", self._task)

    @property
    def task_id(self) -> str:
        """Id of the task."""
        return self.task.id


class TaskTerminalError(_TaskOutcomeError):
    """The task has ended without being completed.

    Attributes:
        task: The task in its last known state, with its status message and artifacts.
    """


class TaskFailedError(TaskTerminalError):
    """The task ended in the state FAILED."""


class TaskRejectedError(TaskTerminalError):
    """The task ended in the state REJECTED: the agent refused it."""


class TaskCanceledError(TaskTerminalError):
    """The task ended in the state CANCELED."""


class TaskInterruptedError(_TaskOutcomeError):
    """The task waits for input or an authorization.

    Attributes:
        task: The task in its last known state; its status message is the question or instruction.
    """


class TaskInputRequiredError(TaskInterruptedError):
    """The task waits for a message: state INPUT_REQUIRED."""


class TaskAuthRequiredError(TaskInterruptedError):
    """The task waits for an authorization: state AUTH_REQUIRED (A2A 7.6)."""


# ── Decisions of the client ──────────────────────────────────────────────────────────────────


class DeadlineExceededError(A2AError, TimeoutError):
    """A timeout of the caller has expired.

    Attributes:
        deadline: Name of the timeout: ``"call"``, ``"wait"``, ``"cancel"`` or ``"stream"``.
        timeout: Its value in seconds.
        task: The task in its last known state, if there is one. It may still be running.
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
        self._task = task


class CircuitOpenError(A2AError):
    """The circuit breaker of the agent is open for ``retry_after`` more seconds."""

    entry = Entry(in_article=Dialect.AGENT_UNAVAILABLE)


class QueueFullError(A2AError):
    """The queue of waiting calls, or of expected tasks, is full."""

    entry = Entry(in_article=Dialect.AGENT_UNAVAILABLE)


class OutcomeUnknownError(A2AError):
    """The reply to a message was lost, and it is unknown whether the agent executed the message.

    It was not resent, unless ``on_unknown`` requires it. ``__cause__`` is the failure that lost
    the reply; for a call from a journal, the failure of the search. The message of such a call may
    not have been sent at all: a journal records calls, not their attempts.

    Attributes:
        message_id: Id of the message.
        context_id: Context of the message; None if it has none.
        searched: The locations that were searched for the message, in order; empty without a
            search.
        search_error: The error that ended the search early: a deadline, the close of the client,
            an unreachable agent. None if the search was completed, or disabled. A later search may
            find the message; in a journal, the call stays pending for it.
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
    """The agent has more than one task of one message.

    The search for its lost reply found them. ``executed`` is True.

    Attributes:
        message_id: Id of the message.
        tasks: The tasks, from the agent's list.
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
    """The call of a key has ended, and the journal has no answer to return.

    The answer was not stored, or the call was refused, dismissed, or executed more than once.
    Nothing was sent now. ``executed`` refers to the message of that call: True if the journal has
    an answer or a task of it, or it was executed more than once, else None.

    Attributes:
        message_id: Id of its message.
        outcome: Outcome of the call, one of `CallOutcome`.
        detail: Details from the journal, in one line for display.
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


class KeyConflictError(A2AError):
    """The key of the call was used for another message or agent, and that may have been sent.

    This message was not sent: ``executed`` is False.

    Attributes:
        key: Key of both calls.
        message_id: Id of the other message, if known.
        other_agent: The agent that the key was used for, as in `CallRecord.agent`; None if it is
            this one, or unknown.
    """

    def __init__(
        self,
        message: str = "",
        *,
        key: str,
        message_id: str | None = None,
        other_agent: str | None = None,
        **facts: Unpack[Facts],
    ) -> None:
        super().__init__(message, **facts)
        self.key = key
        self.message_id = message_id
        self.other_agent = other_agent


class ReconnectError(A2AError):
    """A cut stream could not be resumed.

    Attributes:
        task: The task in its last known state; None if it was never seen.
        task_id: Id of the task, to resume it with `Client.subscribe_to_task` or `Client.wait`.
    """

    def __init__(
        self,
        message: str = "",
        *,
        task: Task | None = None,
        task_id: str | None = None,
        **facts: Unpack[Facts],
    ) -> None:
        super().__init__(message, **facts)
        self._task = task
        self._task_id = task_id


class CancelUnconfirmedError(A2AError):
    """The agent accepted the cancellation, but the task did not end in time.

    Attributes:
        task: The task in its last known state.
    """

    def __init__(
        self, message: str = "", *, task: Task | None = None, **facts: Unpack[Facts]
    ) -> None:
        super().__init__(message, **facts)
        self._task = task


class NotEnoughResultsError(A2AError):
    """Fewer agents answered than the caller needs.

    Attributes:
        results: All results, including failures. A task that needs input
            (`TaskInputRequiredError`) does not count as an answer.
    """

    def __init__(
        self, message: str = "", *, results: Sequence[Any] = (), **facts: Unpack[Facts]
    ) -> None:
        super().__init__(message, **facts)
        self.results: tuple[Any, ...] = tuple(results)


class JournalError(A2AError):
    """The journal cannot be used, or does not release a call.

    ``executed`` is False if nothing was sent, and None if another process continues the call.

    Attributes:
        reason: Kind of failure, one of `JournalFailure`.
        message_id: Message id of the call; None if the error is not about a call.
        held_until: End of the call's lease in UTC, unless its holder extends it; None if there is
            none, or it is unknown.
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


# ── Errors by code and reason ────────────────────────────────────────────────────────────────

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
"""Errors that the protocol defines, by code."""

CODE_BY_REASON: Mapping[str, int] = MappingProxyType(
    {kind.entry.reason: kind.entry.code for kind in _KINDS}
    | {"INTERNAL": -32603, "JSON_PARSE": -32700}
)
"""Codes by the ``reason`` of a `google.rpc.ErrorInfo`; some have several spellings."""

_NOT_EXECUTED_CODES = frozenset({-32700, -32009})
_TRANSIENT_CODES = frozenset({-32603})
_TRANSIENT_IN_ARTICLE = frozenset(
    {Dialect.RATE_LIMITED, Dialect.AGENT_UNAVAILABLE, Dialect.TASK_TIMEOUT}
)
"""Codes that are transient without a hint: of the protocol, and of the dialect."""


def error_from_object(
    error_object: ErrorObject, otherwise: type[A2AError] | None = None
) -> A2AError:
    """Return the typed error of an error object.

    Args:
        error_object: Facts of the object.
        otherwise: Type of an error that the protocol does not define; by default `AgentError`.
    """
    kind = BY_CODE.get(error_object.code) or otherwise or AgentError
    if error_object.in_article_dialect:
        kind = AgentError
    codes = _TRANSIENT_IN_ARTICLE if error_object.in_article_dialect else _TRANSIENT_CODES
    hint = error_object.code in codes or error_object.retry_after is not None
    facts = Facts(
        code=error_object.code,
        details=error_object.details,
        data=error_object.data,
        executed=False if error_object.code in _NOT_EXECUTED_CODES else None,
        transient=hint if error_object.retryable is None else error_object.retryable,
        retry_after=error_object.retry_after,
        hops=error_object.hops,
        loop=error_object.loop,
    )
    task_id, state = error_object.metadata.get("taskId"), error_object.metadata.get("state")
    if kind is TaskNotFoundError:
        return TaskNotFoundError(error_object.message, task_id=task_id, **facts)
    if kind is TaskNotCancelableError:
        task_state = None if state is None else TaskState(state)
        return TaskNotCancelableError(
            error_object.message, task_id=task_id, state=task_state, **facts
        )
    return kind(error_object.message, **facts)


_MAX_CHAIN_MESSAGE_CHARACTERS = 480
"""Characters of a message of which nothing is left out on the way."""


def wrap_downstream(
    error: A2AError, *, current: str, agent: str | None = None, nested: bool = False
) -> A2AError:
    """Wrap the error of a downstream agent, to raise it or to answer with it.

    The result names the chain of agents, and keeps ``transient`` and ``retry_after``. ``executed``
    is None, since the current agent did run, whatever the downstream agent did. For the caller of
    the current agent it is an internal error (-32603), whatever it was downstream: a task that was
    not found there is not the caller's.

    A `NotEnoughResultsError` names each agent that failed: a single one with the agents behind it,
    several as one hop, ``"traffic, weather"``. If too few agents were called, none failed, and
    there is no hop.

    Args:
        error: The error of the downstream call, or `A2AError.from_jsonrpc` of the downstream
            reply.
        current: Name or address of the agent that answers. Always use the same name, since loops
            are detected by it.
        agent: Name or address of the agent that failed; by default ``error.agent``, or those of
            the results.
        nested: Whether to answer in the older dialect, with the downstream errors nested in each
            other; False by default.

    Returns:
        An error with ``hops`` from ``agent`` to the agent that failed, and ``loop`` if an agent
        occurs twice.

    Raises:
        ValueError: The name of the failed agent, or of the current agent, is missing.
        TypeError: An argument has another type. Exceptions other than `A2AError` must not be sent:
            answer with an `InternalError` without details.
    """
    _check_error(error)
    _check_name("current", current)
    if agent is not None:
        _check_name("agent", agent)
    check_kind("nested", nested, bool)
    failed_agent, below = _failed_below(error) if agent is None else (agent, error.hops)
    nearest = hops.as_hop(failed_agent)
    if not nearest and not isinstance(error, NotEnoughResultsError):
        text = "the error has no agent; pass the called agent as agent="
        raise ValueError(text)
    current_name = hops.as_hop(current)
    chain = hops.bounded_chain((nearest, *below))
    wrapped = InternalError(
        _message(nearest, error) if nearest else own_message(error),
        code=InternalError.entry.code,
        transient=error.transient,
        retry_after=error.retry_after,
        agent=current_name or None,
        hops=chain,
        loop=error.loop or hops.repeated_agent((current_name, *chain)),
        traceparent=error.traceparent,
    )
    if nested:
        data: dict[str, Any] = wrapped.to_jsonrpc(nested=True)["data"]
        if chain and below == error.hops:  # otherwise it has fewer agents than the chain
            data["downstreamError"] = error.to_jsonrpc(nested=True)
        wrapped.data = data
    return wrapped


def _check_error(error: object) -> None:
    if not isinstance(error, A2AError):
        text = (
            f"error must be A2AError, not {type(error).__name__}; pass other errors "
            'on as InternalError("internal error")'
        )
        raise TypeError(text)


def _check_name(name: str, value: str) -> None:
    check_kind(name, value, str)
    if not value:
        text = f"{name} must not be empty"
        raise ValueError(text)


def _failed_below(error: A2AError) -> tuple[str | None, tuple[str, ...]]:
    """Return the agent that failed and those behind it; all names if several failed."""
    if not isinstance(error, NotEnoughResultsError) or error.agent:
        return error.agent, error.hops
    failed: dict[str, A2AError] = {
        hops.as_hop(result.agent): cast("A2AError", result.error)
        for result in error.results
        if result.error is not None
    }
    behind = [failure.hops for failure in failed.values()]
    return ", ".join(failed), behind[0] if len(behind) == 1 else ()


def _message(nearest: str, error: A2AError) -> str:
    """Name all agents of a chain, and the last message; of a long chain only its two ends."""
    rest, cause = "", own_message(error)
    for hop in error.hops:
        stage = f"agent {hops.as_hop(hop)} failed: "
        if not cause.startswith(stage):
            break
        rest, cause = rest + stage, cause.removeprefix(stage)
    if len(rest) + len(cause) > _MAX_CHAIN_MESSAGE_CHARACTERS - len(nearest):
        last = error.hops[-1] if error.hops else ""
        rest = f"{hops.LEFT_OUT} agent {hops.as_hop(last)} failed: " if last else ""
    return f"agent {nearest} failed: {rest}{cause}"
