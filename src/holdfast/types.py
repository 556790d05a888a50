"""The types of A2A 1.0: messages, tasks, requests and responses of operations, agent cards.

Rules: values are frozen; names are snake_case in Python and camelCase on the wire; an absent
member equals ``null``, except in `Part.data`, where ``null`` is a value; unknown members of a
server are ignored.

Sources: A2A specification 4 (messages, tasks, agent cards), 3.1 and 3.2 (operations).
"""

from __future__ import annotations

from datetime import UTC, datetime
from enum import Enum
from typing import Any, Self, TypeAlias

import msgspec
from msgspec import UNSET, UnsetType

from holdfast._model import codec
from holdfast._model.redacted_repr import RedactedRepr, short_repr
from holdfast._model.sdk_values import kind_of
from holdfast._model.settings import NamedFieldsMeta

__all__ = [
    "APIKeySecurityScheme",
    "AgentCapabilities",
    "AgentCard",
    "AgentCardSignature",
    "AgentExtension",
    "AgentInterface",
    "AgentProvider",
    "AgentSkill",
    "Artifact",
    "AuthenticationInfo",
    "AuthorizationCodeOAuthFlow",
    "CancelTaskRequest",
    "ClientCredentialsOAuthFlow",
    "DeleteTaskPushNotificationConfigRequest",
    "DeviceCodeOAuthFlow",
    "Empty",
    "Event",
    "GetExtendedAgentCardRequest",
    "GetTaskPushNotificationConfigRequest",
    "GetTaskRequest",
    "HTTPAuthSecurityScheme",
    "ImplicitOAuthFlow",
    "ListTaskPushNotificationConfigsRequest",
    "ListTaskPushNotificationConfigsResponse",
    "ListTasksRequest",
    "ListTasksResponse",
    "Message",
    "MutualTlsSecurityScheme",
    "OAuth2SecurityScheme",
    "OAuthFlows",
    "OpenIdConnectSecurityScheme",
    "Part",
    "PasswordOAuthFlow",
    "Request",
    "Role",
    "SecurityRequirement",
    "SecurityScheme",
    "SendMessageConfiguration",
    "SendMessageRequest",
    "SendMessageResponse",
    "StreamResponse",
    "StringList",
    "SubscribeToTaskRequest",
    "Task",
    "TaskArtifactUpdateEvent",
    "TaskPushNotificationConfig",
    "TaskState",
    "TaskStatus",
    "TaskStatusUpdateEvent",
    "WireValue",
]


class WireValue(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel", gc=False
):
    """Base class of the protocol's types.

    Values cannot contain themselves, so the cyclic garbage collector skips them: a long stream
    creates very many.
    """

    def to_dict(self) -> dict[str, Any]:
        """Return the protocol's JSON object as a dict, without unset members."""
        result: dict[str, Any] = codec.to_builtins(self)
        return result

    def to_json(self, *, indent: int = 0) -> str:
        """Return the protocol's JSON text.

        Args:
            indent: Spaces per level, 0 or more; 0, the default, gives one line.
        """
        text = codec.encode(self)
        return (codec.indented(text, indent) if indent else text).decode()

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Self:
        """Convert the protocol's JSON object to a value.

        Args:
            data: The JSON object, with the protocol's names of members; unknown members are
                ignored.

        Raises:
            ValueError: A member is missing or has the wrong type; the message names it.
        """
        return codec.from_builtins(data, cls)

    @classmethod
    def __get_pydantic_core_schema__(cls, _source: object, _handler: object) -> Any:
        """Return how pydantic validates and serializes the type."""
        from holdfast._model.pydantic_schema import validation_schema_of

        return validation_schema_of(cls)

    @classmethod
    def __get_pydantic_json_schema__(cls, _schema: object, _handler: object) -> dict[str, Any]:
        """Return the JSON schema for pydantic."""
        from holdfast._model.pydantic_schema import json_schema_of

        return json_schema_of(cls)


class _OpenEnum(str, Enum):  # noqa: UP042  members of StrEnum cannot be created at run time
    """Names that the protocol may extend: an unknown one is kept as received."""

    @classmethod
    def _missing_(cls, value: object) -> Self | None:
        if not isinstance(value, str):
            text = f"{value!r} is not a valid {cls.__name__}: {kind_of(value, cls)}"
            raise ValueError(text)  # noqa: TRY004  as enums do
        member = str.__new__(cls, value)
        member._name_ = value
        member._value_ = value
        return member

    def __repr__(self) -> str:
        # A name as received may contain characters that cannot be printed or encoded.
        return f"<{type(self).__name__}.{repr(self.name)[1:-1]}: {self.value!r}>"

    def __str__(self) -> str:
        return str(self.value)


class TaskState(_OpenEnum):
    """State of a task (A2A 4.1.3), in the order of the protocol's numbers.

    Attributes:
        UNSPECIFIED: The server sent no state.
        SUBMITTED: The agent has accepted the message, and has not begun.
        WORKING: The agent is working on the task.
        COMPLETED: The task ended with a result; terminal.
        FAILED: The task ended with a failure; terminal.
        CANCELED: The task was canceled; terminal.
        INPUT_REQUIRED: The task waits for another message.
        REJECTED: The agent refused the task; terminal.
        AUTH_REQUIRED: The task waits for an authorization (A2A 7.6).
    """

    UNSPECIFIED = "TASK_STATE_UNSPECIFIED"
    SUBMITTED = "TASK_STATE_SUBMITTED"
    WORKING = "TASK_STATE_WORKING"
    COMPLETED = "TASK_STATE_COMPLETED"
    FAILED = "TASK_STATE_FAILED"
    CANCELED = "TASK_STATE_CANCELED"
    INPUT_REQUIRED = "TASK_STATE_INPUT_REQUIRED"
    REJECTED = "TASK_STATE_REJECTED"
    AUTH_REQUIRED = "TASK_STATE_AUTH_REQUIRED"

    @property
    def is_terminal(self) -> bool:
        """True if the task has ended: COMPLETED, FAILED, CANCELED or REJECTED."""
        return self in _TERMINAL

    @property
    def is_settled(self) -> bool:
        """True if the task changes only after another message: terminal, or INPUT_REQUIRED."""
        return self in _TERMINAL or self is TaskState.INPUT_REQUIRED

    @property
    def is_interrupted(self) -> bool:
        """True if the task waits for input or an authorization: INPUT_REQUIRED, AUTH_REQUIRED."""
        return self in _INTERRUPTED


_TERMINAL = frozenset(
    {TaskState.COMPLETED, TaskState.FAILED, TaskState.CANCELED, TaskState.REJECTED}
)
_INTERRUPTED = frozenset({TaskState.INPUT_REQUIRED, TaskState.AUTH_REQUIRED})


class Role(_OpenEnum):
    """Sender of a message (A2A 4.1.5), in the order of the protocol's numbers.

    Attributes:
        UNSPECIFIED: The server sent no role.
        USER: The caller of the agent.
        AGENT: The agent.
    """

    UNSPECIFIED = "ROLE_UNSPECIFIED"
    USER = "ROLE_USER"
    AGENT = "ROLE_AGENT"


class Part(WireValue, frozen=True, kw_only=True):
    """Piece of content: exactly one of text, raw bytes, a URL or data (A2A 4.1.6).

    Attributes:
        text: The text.
        raw: Content of a file; base64 on the wire.
        url: URL where the receiver can fetch a file.
        data: Any JSON value; ``None`` is JSON's null, ``msgspec.UNSET`` is "no data".
        metadata: A JSON object.
        filename: Name of the file, for raw bytes and URLs.
        media_type: MIME type of the content.
    """

    text: str | None = None
    raw: bytes | None = None
    url: str | None = None
    data: Any | UnsetType = UNSET
    metadata: dict[str, Any] | None = None
    filename: str | None = None
    media_type: str | None = None


class Message(RedactedRepr, WireValue, frozen=True, kw_only=True):
    """Message of a conversation (A2A 4.1.4).

    Attributes:
        message_id: Id chosen by the sender, and kept when the message is resent.
        role: Sender of the message.
        parts: The content.
        context_id: Conversation of the message.
        task_id: Task that the message continues.
        metadata: A JSON object.
        extensions: URIs of the extensions that contributed to the message.
        reference_task_ids: Tasks that the message refers to.
    """

    message_id: str = ""
    role: Role = Role.UNSPECIFIED
    parts: tuple[Part, ...] = ()
    context_id: str | None = None
    task_id: str | None = None
    metadata: dict[str, Any] | None = None
    extensions: tuple[str, ...] = ()
    reference_task_ids: tuple[str, ...] = ()

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Self:
        """Convert the protocol's JSON object to a message.

        Args:
            data: The JSON object, with the protocol's names of members; unknown members are
                ignored.

        Raises:
            ValueError: It has neither an id nor parts, or a member has the wrong type; the message
                of the error names the member.
        """
        message = super().from_dict(data)
        if not (message.message_id or message.parts):
            text = "Object missing required fields `messageId` and `parts`"
            raise codec.MalformedError(text)
        return message

    @property
    def text(self) -> str:
        """The text parts, joined by line breaks."""
        return "\n".join(part.text for part in self.parts if part.text is not None)

    def __repr__(self) -> str:
        text = self.text
        return short_repr(
            self,
            message_id=self.message_id,
            role=self.role,
            task_id=self.task_id,
            text=text,
            parts=0 if text and len(self.parts) == 1 else len(self.parts),
        )


class Artifact(WireValue, frozen=True, kw_only=True):
    """Result of a task (A2A 4.1.7).

    Attributes:
        artifact_id: Id, unique within the task.
        name: Name for display.
        description: Description for display.
        parts: The content.
        metadata: A JSON object.
        extensions: URIs of the extensions that contributed to the artifact.
    """

    artifact_id: str = ""
    name: str | None = None
    description: str | None = None
    parts: tuple[Part, ...] = ()
    metadata: dict[str, Any] | None = None
    extensions: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """The text parts, joined without separator: agents send one text in many parts."""
        return "".join(part.text for part in self.parts if part.text is not None)


class TaskStatus(WireValue, frozen=True, kw_only=True):
    """Status of a task: state, message, time (A2A 4.1.2).

    Attributes:
        state: The state; UNSPECIFIED if the server sent none.
        message: The agent's message about the state.
        timestamp: Time of the status as received; `time` is the parsed value.
    """

    state: TaskState = TaskState.UNSPECIFIED
    message: Message | None = None
    timestamp: str | None = None

    @property
    def time(self) -> datetime | None:
        """`timestamp` as a datetime with time zone (UTC by default); None if it is malformed."""
        try:
            time = datetime.fromisoformat(self.timestamp or "")
        except ValueError:
            return None
        return time if time.tzinfo else time.replace(tzinfo=UTC)


class Task(RedactedRepr, WireValue, frozen=True, kw_only=True):
    """Unit of work of an agent (A2A 4.1.1).

    Attributes:
        id: Id given by the agent.
        context_id: Conversation of the task.
        status: Current status.
        artifacts: Results so far.
        history: Messages so far; agents may keep few or none.
        metadata: A JSON object.
    """

    id: str
    context_id: str | None = None
    status: TaskStatus = TaskStatus()
    artifacts: tuple[Artifact, ...] = ()
    history: tuple[Message, ...] = ()
    metadata: dict[str, Any] | None = None

    @property
    def text(self) -> str:
        """The text of the artifacts, joined by line breaks."""
        return "\n".join(text for artifact in self.artifacts if (text := artifact.text))

    @property
    def state(self) -> TaskState:
        """The state of the task, from its status."""
        return self.status.state

    def __repr__(self) -> str:
        text, said = self.text, self.status.message
        return short_repr(
            self,
            id=self.id,
            state=self.state,
            text=text,
            status=None if text or said is None else said.text,
            artifacts=0 if text else len(self.artifacts),
        )


class TaskStatusUpdateEvent(WireValue, frozen=True, kw_only=True):
    """Event: new status of a task (A2A 4.2.1).

    Attributes:
        task_id: Id of the task.
        context_id: Conversation of the task.
        status: The new status.
        metadata: A JSON object.
    """

    task_id: str = ""
    context_id: str | None = None
    status: TaskStatus = TaskStatus()
    metadata: dict[str, Any] | None = None


class TaskArtifactUpdateEvent(WireValue, frozen=True, kw_only=True):
    """Event: new artifact of a task, or a chunk of one (A2A 4.2.2).

    Attributes:
        task_id: Id of the task.
        context_id: Conversation of the task.
        artifact: The artifact, or the chunk to append.
        append: Whether to append the parts to the artifact with the same id; False by default.
        last_chunk: Whether the artifact is complete; False by default.
        metadata: A JSON object.
    """

    task_id: str = ""
    context_id: str | None = None
    artifact: Artifact = Artifact()
    append: bool = False
    last_chunk: bool = False
    metadata: dict[str, Any] | None = None


Event: TypeAlias = Task | Message | TaskStatusUpdateEvent | TaskArtifactUpdateEvent
"""Event of a stream (A2A 3.2.3)."""


class StreamResponse(WireValue, frozen=True, kw_only=True):
    """Event of a stream or of a push notification: exactly one member is set (A2A 3.2.3).

    Attributes:
        task: The task as it is now.
        message: A message that answers without a task.
        status_update: A new status of the task.
        artifact_update: A new artifact of the task, or a chunk of one.
    """

    task: Task | None = None
    message: Message | None = None
    status_update: TaskStatusUpdateEvent | None = None
    artifact_update: TaskArtifactUpdateEvent | None = None

    @property
    def event(self) -> Event | None:
        """The member that is set; None for an unknown kind."""
        return self.artifact_update or self.status_update or self.task or self.message


# Operations. A request without `tenant` gets that of the interface to which it is sent.


class Request(WireValue, frozen=True, kw_only=True):
    """Base class of requests.

    Attributes:
        tenant: Tenant; by default that of the interface to which the request is sent (A2A 4.4.6).
    """

    tenant: str | None = None


class AuthenticationInfo(RedactedRepr, WireValue, frozen=True, kw_only=True):
    """Authentication of the agent at a push receiver (A2A 4.3.2).

    Attributes:
        scheme: HTTP authentication scheme, such as ``Bearer``.
        credentials: Credentials in the form of that scheme.
    """

    scheme: str = ""
    credentials: str | None = None

    def __repr__(self) -> str:
        return f"AuthenticationInfo(scheme={self.scheme!r})"  # the credentials are secret


class TaskPushNotificationConfig(
    RedactedRepr, Request, frozen=True, kw_only=True, metaclass=NamedFieldsMeta
):
    """Push notification configuration of a task: the receiver of its events (A2A 4.3.1).

    Attributes:
        id: Id of the configuration; by default chosen by the agent.
        task_id: Id of the task; None in a configuration sent with a message.
        url: URL to which the agent posts events.
        token: Sent with each event, so that the receiver can authenticate the agent.
        authentication: Authentication of the agent at the receiver.
    """

    id: str | None = None
    task_id: str | None = None
    url: str = ""
    token: str | None = None
    authentication: AuthenticationInfo | None = None

    def __repr__(self) -> str:
        # The token is secret, and the query of the URL may be.
        return (
            f"TaskPushNotificationConfig(id={self.id!r}, task_id={self.task_id!r}, "
            f"url={self.url.partition('?')[0]!r}, authentication={self.authentication!r})"
        )

    @property
    def secrets(self) -> list[str]:
        """Secret values: the token and the credentials."""
        credentials = None if self.authentication is None else self.authentication.credentials
        return [secret for secret in (self.token, credentials) if secret]


class SendMessageConfiguration(WireValue, frozen=True, kw_only=True, metaclass=NamedFieldsMeta):
    """Options for a message (A2A 3.2.2).

    Attributes:
        accepted_output_modes: Media types that the caller accepts; empty for any.
        task_push_notification_config: Configuration with which the agent sends events of the task.
        history_length: Largest number of history messages to return; None for no limit.
        return_immediately: Whether the agent replies as soon as the task exists; False by default.
    """

    accepted_output_modes: tuple[str, ...] = ()
    task_push_notification_config: TaskPushNotificationConfig | None = None
    history_length: int | None = None
    return_immediately: bool = False


class SendMessageRequest(Request, frozen=True, kw_only=True):
    """Request of SendMessage and SendStreamingMessage (A2A 3.2.1).

    Attributes:
        message: The message.
        configuration: Options for the message.
        metadata: A JSON object.
    """

    message: Message
    configuration: SendMessageConfiguration | None = None
    metadata: dict[str, Any] | None = None


class SendMessageResponse(WireValue, frozen=True, kw_only=True):
    """Response to a message: exactly one of a task and a message (A2A 3.1.1).

    Attributes:
        task: The task that the message created or continued.
        message: The reply, if there is no task.

    Raises:
        ValueError: Both members are set, or neither.
    """

    task: Task | None = None
    message: Message | None = None

    def __post_init__(self) -> None:
        if (self.task is None) == (self.message is None):
            text = "expected either a task or a message"
            raise ValueError(text)


class GetTaskRequest(Request, frozen=True, kw_only=True):
    """Request of GetTask (A2A 3.1.3).

    Attributes:
        id: Id of the task.
        history_length: Largest number of history messages to return; None for no limit.
    """

    id: str
    history_length: int | None = None


class ListTasksRequest(Request, frozen=True, kw_only=True):
    """Request of ListTasks (A2A 3.1.4).

    Attributes:
        context_id: Only tasks of this conversation.
        status: Only tasks in this state.
        page_size: Tasks per page, from 1 to 100; the agent's default is 50.
        page_token: `ListTasksResponse.next_page_token` of the previous page.
        history_length: Maximum number of messages of each history to return.
        status_timestamp_after: Only tasks with a status at or after this time; RFC 3339 with zone.
        include_artifacts: Whether to return artifacts; by default the agent does not.
    """

    context_id: str | None = None
    status: TaskState | None = None
    page_size: int | None = None
    page_token: str | None = None
    history_length: int | None = None
    status_timestamp_after: str | None = None
    include_artifacts: bool | None = None


class ListTasksResponse(WireValue, frozen=True, kw_only=True):
    """Page of tasks, the most recently updated first (A2A 3.1.4).

    Attributes:
        tasks: The tasks.
        next_page_token: Token of the next page; empty on the last page.
        page_size: Number of tasks per page.
        total_size: Number of tasks in total; 0 if the agent does not count them.
    """

    tasks: tuple[Task, ...] = ()
    next_page_token: str = ""
    page_size: int = 0
    total_size: int = 0


class CancelTaskRequest(Request, frozen=True, kw_only=True):
    """Request of CancelTask (A2A 3.1.5).

    Attributes:
        id: Id of the task.
        metadata: A JSON object.
    """

    id: str
    metadata: dict[str, Any] | None = None


class SubscribeToTaskRequest(Request, frozen=True, kw_only=True):
    """Request of SubscribeToTask (A2A 3.1.6).

    Attributes:
        id: Id of the task.
    """

    id: str


class GetTaskPushNotificationConfigRequest(Request, frozen=True, kw_only=True):
    """Request of GetTaskPushNotificationConfig (A2A 3.1.8).

    Attributes:
        task_id: Id of the task.
        id: Id of the configuration.
    """

    task_id: str
    id: str


class ListTaskPushNotificationConfigsRequest(Request, frozen=True, kw_only=True):
    """Request of ListTaskPushNotificationConfigs (A2A 3.1.9).

    Attributes:
        task_id: Id of the task.
        page_size: Configurations per page; None leaves it to the agent.
        page_token: ``next_page_token`` of the previous page; None for the first page.
    """

    task_id: str
    page_size: int | None = None
    page_token: str | None = None


class ListTaskPushNotificationConfigsResponse(WireValue, frozen=True, kw_only=True):
    """Page of push configurations (A2A 3.1.9).

    Attributes:
        configs: The configurations.
        next_page_token: Token of the next page; empty on the last page.
    """

    configs: tuple[TaskPushNotificationConfig, ...] = ()
    next_page_token: str = ""


class DeleteTaskPushNotificationConfigRequest(Request, frozen=True, kw_only=True):
    """Request of DeleteTaskPushNotificationConfig (A2A 3.1.10).

    Attributes:
        task_id: Id of the task.
        id: Id of the configuration.
    """

    task_id: str
    id: str


class GetExtendedAgentCardRequest(Request, frozen=True, kw_only=True):
    """Request of GetExtendedAgentCard (A2A 3.1.11)."""


class Empty(WireValue, frozen=True, kw_only=True):
    """Response of an operation without a result."""


# Agent cards.


class AgentInterface(WireValue, frozen=True, kw_only=True, metaclass=NamedFieldsMeta):
    """Interface of an agent: URL, binding, version and tenant (A2A 4.4.6).

    Attributes:
        url: URL; used unchanged, without adding or removing a slash.
        protocol_binding: ``JSONRPC``, ``HTTP+JSON``, ``GRPC`` or a URI.
        tenant: Tenant to repeat in every request, if set.
        protocol_version: Protocol version, such as ``1.0``; missing in some cards.
    """

    url: str = ""
    protocol_binding: str = ""
    tenant: str | None = None
    protocol_version: str | None = None


class AgentProvider(WireValue, frozen=True, kw_only=True, metaclass=NamedFieldsMeta):
    """Organization that runs the agent (A2A 4.4.2).

    Attributes:
        url: Website of the organization.
        organization: Name of the organization.
    """

    url: str = ""
    organization: str = ""


class AgentExtension(WireValue, frozen=True, kw_only=True, metaclass=NamedFieldsMeta):
    """Protocol extension that the agent supports (A2A 4.4.4).

    Attributes:
        uri: URI that identifies the extension.
        description: How the agent uses the extension, for display.
        required: Whether a client must support the extension; False by default.
        params: Parameters that the extension defines.
    """

    uri: str = ""
    description: str | None = None
    required: bool = False
    params: dict[str, Any] | None = None


class AgentCapabilities(WireValue, frozen=True, kw_only=True, metaclass=NamedFieldsMeta):
    """Optional parts of the protocol that the agent offers (A2A 4.4.3).

    ``None`` means "not declared", which the protocol treats as false.

    Attributes:
        streaming: Whether the agent streams answers.
        push_notifications: Whether the agent sends push notifications.
        extensions: Extensions that the agent supports.
        extended_agent_card: Whether there is another card for authenticated clients.
    """

    streaming: bool | None = None
    push_notifications: bool | None = None
    extensions: tuple[AgentExtension, ...] = ()
    extended_agent_card: bool | None = None


class StringList(WireValue, frozen=True, kw_only=True):
    """List of strings, such as OAuth scopes.

    Attributes:
        list: The strings.
    """

    list: tuple[str, ...] = ()


class SecurityRequirement(WireValue, frozen=True, kw_only=True):
    """Security schemes that must be used together, each with its scopes.

    Attributes:
        schemes: Scopes by the names of the security schemes.
    """

    schemes: dict[str, StringList] = {}


class AgentSkill(WireValue, frozen=True, kw_only=True, metaclass=NamedFieldsMeta):
    """Skill of the agent (A2A 4.4.5).

    Attributes:
        id: Id, unique within the card.
        name: Name for display.
        description: Description for display and for choosing a skill.
        tags: Keywords.
        examples: Examples of messages.
        input_modes: Media types that the skill accepts; empty for those of the agent.
        output_modes: Media types that the skill returns; empty for those of the agent.
        security_requirements: Alternatives of the schemes that the skill requires.
    """

    id: str = ""
    name: str = ""
    description: str = ""
    tags: tuple[str, ...] = ()
    examples: tuple[str, ...] = ()
    input_modes: tuple[str, ...] = ()
    output_modes: tuple[str, ...] = ()
    security_requirements: tuple[SecurityRequirement, ...] = ()


class AgentCardSignature(WireValue, frozen=True, kw_only=True):
    """JSON Web Signature of the card (A2A 4.4.7, 8.4.2).

    Attributes:
        protected: Protected header, base64url-encoded.
        signature: Signature, base64url-encoded.
        header: Unprotected header.
    """

    protected: str = ""
    signature: str = ""
    header: dict[str, Any] | None = None


class APIKeySecurityScheme(WireValue, frozen=True, kw_only=True):
    """API key in a header, the query or a cookie (A2A 4.5.2).

    Attributes:
        description: Description for display.
        location: ``header``, ``query`` or ``cookie``.
        name: Name of the header, query parameter or cookie.
    """

    description: str | None = None
    location: str = ""
    name: str = ""


class HTTPAuthSecurityScheme(WireValue, frozen=True, kw_only=True):
    """HTTP authentication scheme, such as Bearer (A2A 4.5.3).

    Attributes:
        description: Description for display.
        scheme: Name of the scheme for ``Authorization`` (RFC 9110, 11.1), such as ``Bearer``.
        bearer_format: Format of a bearer token, such as ``JWT``, for display.
    """

    description: str | None = None
    scheme: str = ""
    bearer_format: str | None = None


class AuthorizationCodeOAuthFlow(WireValue, frozen=True, kw_only=True):
    """OAuth 2.0 authorization code (A2A 4.5.8).

    Attributes:
        authorization_url: Authorization endpoint.
        token_url: Token endpoint.
        refresh_url: Endpoint for refresh tokens, if it differs.
        scopes: Descriptions by the names of the scopes.
        pkce_required: Whether the server requires PKCE (RFC 7636); False by default.
    """

    authorization_url: str = ""
    token_url: str = ""
    refresh_url: str | None = None
    scopes: dict[str, str] = {}
    pkce_required: bool = False


class ClientCredentialsOAuthFlow(WireValue, frozen=True, kw_only=True):
    """OAuth 2.0 client credentials (A2A 4.5.9).

    Attributes:
        token_url: Token endpoint.
        refresh_url: Endpoint for refresh tokens, if it differs.
        scopes: Descriptions by the names of the scopes.
    """

    token_url: str = ""
    refresh_url: str | None = None
    scopes: dict[str, str] = {}


class ImplicitOAuthFlow(WireValue, frozen=True, kw_only=True):
    """OAuth 2.0 implicit grant; deprecated by the specification.

    Attributes:
        authorization_url: Authorization endpoint.
        refresh_url: Endpoint for refresh tokens, if it differs.
        scopes: Descriptions by the names of the scopes.
    """

    authorization_url: str = ""
    refresh_url: str | None = None
    scopes: dict[str, str] = {}


class PasswordOAuthFlow(WireValue, frozen=True, kw_only=True):
    """OAuth 2.0 password grant; deprecated by the specification.

    Attributes:
        token_url: Token endpoint.
        refresh_url: Endpoint for refresh tokens, if it differs.
        scopes: Descriptions by the names of the scopes.
    """

    token_url: str = ""
    refresh_url: str | None = None
    scopes: dict[str, str] = {}


class DeviceCodeOAuthFlow(WireValue, frozen=True, kw_only=True):
    """OAuth 2.0 device authorization, RFC 8628 (A2A 4.5.10).

    Attributes:
        device_authorization_url: Device authorization endpoint.
        token_url: Token endpoint.
        refresh_url: Endpoint for refresh tokens, if it differs.
        scopes: Descriptions by the names of the scopes.
    """

    device_authorization_url: str = ""
    token_url: str = ""
    refresh_url: str | None = None
    scopes: dict[str, str] = {}


class OAuthFlows(WireValue, frozen=True, kw_only=True):
    """Flow of an OAuth 2.0 scheme: one member is set (A2A 4.5.7).

    Attributes:
        authorization_code: A user approves in a browser.
        client_credentials: The client acts for itself.
        implicit: Deprecated by the specification.
        password: Deprecated by the specification.
        device_code: A user approves on another device.
    """

    authorization_code: AuthorizationCodeOAuthFlow | None = None
    client_credentials: ClientCredentialsOAuthFlow | None = None
    implicit: ImplicitOAuthFlow | None = None
    password: PasswordOAuthFlow | None = None
    device_code: DeviceCodeOAuthFlow | None = None


class OAuth2SecurityScheme(WireValue, frozen=True, kw_only=True):
    """OAuth 2.0 (A2A 4.5.4).

    Attributes:
        description: Description for display.
        flows: The flow with its endpoints.
        oauth2_metadata_url: URL of the server's metadata (RFC 8414).
    """

    description: str | None = None
    flows: OAuthFlows = OAuthFlows()
    oauth2_metadata_url: str | None = None


class OpenIdConnectSecurityScheme(WireValue, frozen=True, kw_only=True):
    """OpenID Connect (A2A 4.5.5).

    Attributes:
        description: Description for display.
        open_id_connect_url: URL of the provider's configuration (OpenID Connect Discovery).
    """

    description: str | None = None
    open_id_connect_url: str = ""


class MutualTlsSecurityScheme(WireValue, frozen=True, kw_only=True):
    """Mutual TLS (A2A 4.5.6).

    Attributes:
        description: Description for display.
    """

    description: str | None = None


class SecurityScheme(WireValue, frozen=True, kw_only=True):
    """Security scheme: one member is set (A2A 4.5.1).

    Attributes:
        api_key_security_scheme: An API key.
        http_auth_security_scheme: HTTP authentication.
        oauth2_security_scheme: OAuth 2.0.
        open_id_connect_security_scheme: OpenID Connect.
        mtls_security_scheme: Mutual TLS.
    """

    api_key_security_scheme: APIKeySecurityScheme | None = None
    http_auth_security_scheme: HTTPAuthSecurityScheme | None = None
    oauth2_security_scheme: OAuth2SecurityScheme | None = None
    open_id_connect_security_scheme: OpenIdConnectSecurityScheme | None = None
    mtls_security_scheme: MutualTlsSecurityScheme | None = None


class AgentCard(WireValue, frozen=True, kw_only=True, metaclass=NamedFieldsMeta):
    """Agent card: an agent's description of itself (A2A 4.4.1).

    Attributes:
        name: Name for display.
        description: Description for display.
        supported_interfaces: Interfaces of the agent, the preferred one first.
        provider: Organization that runs the agent.
        version: Version of the agent, in the provider's own notation.
        documentation_url: URL of documentation.
        capabilities: Optional parts of the protocol that the agent offers.
        security_schemes: Security schemes by name.
        security_requirements: Alternatives: a caller must fulfil one of them.
        default_input_modes: Media types that the agent accepts.
        default_output_modes: Media types that the agent returns.
        skills: Skills of the agent.
        signatures: Signatures of the card.
        icon_url: URL of an icon.
    """

    name: str = ""
    description: str = ""
    supported_interfaces: tuple[AgentInterface, ...] = ()
    provider: AgentProvider | None = None
    version: str = ""
    documentation_url: str | None = None
    capabilities: AgentCapabilities = AgentCapabilities()
    security_schemes: dict[str, SecurityScheme] = {}
    security_requirements: tuple[SecurityRequirement, ...] = ()
    default_input_modes: tuple[str, ...] = ()
    default_output_modes: tuple[str, ...] = ()
    skills: tuple[AgentSkill, ...] = ()
    signatures: tuple[AgentCardSignature, ...] = ()
    icon_url: str | None = None
