"""The types of A2A 1.0: messages and tasks, what operations take and answer, agent cards.

Rules: values are frozen; names are Python's here and camelCase on the wire; absent and ``null``
are the same except in `Part.data`, where ``null`` is a value; what a server adds is ignored.

Sources: A2A specification 4 (messages, tasks, agent cards), 3.1 and 3.2 (operations).
"""

from __future__ import annotations

from datetime import UTC, datetime
from enum import Enum
from typing import Any, Self, TypeAlias

import msgspec
from msgspec import UNSET, UnsetType

from holdfast._model import codec
from holdfast._model.redacted_repr import RedactedRepr

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
    """What every type of the data model can do.

    None of them can hold itself, so none is looked at by the collector of cyclic garbage: a long
    stream makes very many.
    """

    def to_dict(self) -> dict[str, Any]:
        """Returns the protocol's JSON object as a dict, members that are not set left out."""
        result: dict[str, Any] = codec.to_builtins(self)
        return result

    def to_json(self, *, indent: int = 0) -> str:
        """Returns the protocol's JSON text.

        Args:
            indent: Spaces per level; 0 gives one line.
        """
        text = codec.encode(self)
        return (codec.indented(text, indent) if indent else text).decode()

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Self:
        """Reads the protocol's JSON object.

        Raises:
            ValueError: A member is missing or of the wrong type; the message names it.
        """
        return codec.from_builtins(data, cls)


class _OpenEnum(str, Enum):  # noqa: UP042  StrEnum's members cannot be made by hand
    """Names that the protocol may add to: an unknown one is kept as received."""

    @classmethod
    def _missing_(cls, value: object) -> Self | None:
        if not isinstance(value, str):
            return None
        member = str.__new__(cls, value)
        member._name_ = value
        member._value_ = value
        return member

    def __repr__(self) -> str:
        # A name that is kept as received may hold what cannot be shown, or encoded.
        return f"<{type(self).__name__}.{repr(self.name)[1:-1]}: {self.value!r}>"

    def __str__(self) -> str:
        return str(self.value)


class TaskState(_OpenEnum):
    """Where a task stands (A2A 4.1.3), in the order of the protocol's numbers."""

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
        """Whether the task is over for good."""
        return self in _TERMINAL

    @property
    def is_settled(self) -> bool:
        """Whether nothing happens to the task without another message, if at all."""
        return self in _TERMINAL or self is TaskState.INPUT_REQUIRED

    @property
    def is_interrupted(self) -> bool:
        """Whether the task waits for somebody to act."""
        return self in _INTERRUPTED


_TERMINAL = frozenset(
    {TaskState.COMPLETED, TaskState.FAILED, TaskState.CANCELED, TaskState.REJECTED}
)
_INTERRUPTED = frozenset({TaskState.INPUT_REQUIRED, TaskState.AUTH_REQUIRED})


class Role(_OpenEnum):
    """Who speaks (A2A 4.1.5), in the order of the protocol's numbers."""

    UNSPECIFIED = "ROLE_UNSPECIFIED"
    USER = "ROLE_USER"
    AGENT = "ROLE_AGENT"


class Part(WireValue, frozen=True, kw_only=True):
    """One piece of content: exactly one of text, raw bytes, a URL or data (A2A 4.1.6).

    Attributes:
        text: Text.
        raw: The bytes of a file; base64 on the wire.
        url: Where the receiver can fetch a file.
        data: Any JSON value; ``None`` is JSON's null, `msgspec.UNSET` is "no data".
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


class Message(WireValue, frozen=True, kw_only=True):
    """One turn (A2A 4.1.4).

    Attributes:
        message_id: Chosen by the sender, and kept when the message is sent again.
        role: Who speaks.
        parts: The content.
        context_id: The conversation that it belongs to.
        task_id: The task that it continues.
        metadata: A JSON object.
        extensions: URIs of the extensions that contributed to it.
        reference_task_ids: Tasks that it refers to.
    """

    message_id: str = ""
    role: Role = Role.UNSPECIFIED
    parts: tuple[Part, ...] = ()
    context_id: str | None = None
    task_id: str | None = None
    metadata: dict[str, Any] | None = None
    extensions: tuple[str, ...] = ()
    reference_task_ids: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """The text parts, a line end between them."""
        return "\n".join(part.text for part in self.parts if part.text is not None)


class Artifact(WireValue, frozen=True, kw_only=True):
    """A result of a task (A2A 4.1.7).

    Attributes:
        artifact_id: Unique within the task.
        name: Name for people.
        description: Description for people.
        parts: The content.
        metadata: A JSON object.
        extensions: URIs of the extensions that contributed to it.
    """

    artifact_id: str = ""
    name: str | None = None
    description: str | None = None
    parts: tuple[Part, ...] = ()
    metadata: dict[str, Any] | None = None
    extensions: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """The text parts, nothing between them: agents send one text in many parts."""
        return "".join(part.text for part in self.parts if part.text is not None)


class TaskStatus(WireValue, frozen=True, kw_only=True):
    """Where a task stands, since when, and what the agent says about it (A2A 4.1.2).

    Attributes:
        state: The state; UNSPECIFIED where the server sent none.
        message: What the agent says about it.
        timestamp: When, as received; see `time`.
    """

    state: TaskState = TaskState.UNSPECIFIED
    message: Message | None = None
    timestamp: str | None = None

    @property
    def time(self) -> datetime | None:
        """`timestamp` as a time with zone (UTC where it names none); None if unreadable."""
        try:
            time = datetime.fromisoformat(self.timestamp or "")
        except ValueError:
            return None
        return time if time.tzinfo else time.replace(tzinfo=UTC)


class Task(WireValue, frozen=True, kw_only=True):
    """A unit of work that the agent keeps (A2A 4.1.1).

    Attributes:
        id: Given by the agent.
        context_id: The conversation that it belongs to.
        status: Where it stands.
        artifacts: Its results so far.
        history: The messages so far; agents may keep few or none.
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
        """The text of the artifacts, a line end between them."""
        return "\n".join(text for artifact in self.artifacts if (text := artifact.text))

    @property
    def state(self) -> TaskState:
        """`status.state`."""
        return self.status.state


class TaskStatusUpdateEvent(WireValue, frozen=True, kw_only=True):
    """A task has a new status (A2A 4.2.1)."""

    task_id: str = ""
    context_id: str | None = None
    status: TaskStatus = TaskStatus()
    metadata: dict[str, Any] | None = None


class TaskArtifactUpdateEvent(WireValue, frozen=True, kw_only=True):
    """A task has a new artifact, or more of one (A2A 4.2.2).

    Attributes:
        task_id: The task.
        context_id: The conversation that it belongs to.
        artifact: The artifact, or the piece to add.
        append: Whether its parts go behind those of the artifact with the same id.
        last_chunk: Whether the artifact is complete.
        metadata: A JSON object.
    """

    task_id: str = ""
    context_id: str | None = None
    artifact: Artifact = Artifact()
    append: bool = False
    last_chunk: bool = False
    metadata: dict[str, Any] | None = None


Event: TypeAlias = Task | Message | TaskStatusUpdateEvent | TaskArtifactUpdateEvent
"""An event of a stream (A2A 3.2.3)."""


class StreamResponse(WireValue, frozen=True, kw_only=True):
    """One event of a stream or of a push notification: exactly one member is set (A2A 3.2.3)."""

    task: Task | None = None
    message: Message | None = None
    status_update: TaskStatusUpdateEvent | None = None
    artifact_update: TaskArtifactUpdateEvent | None = None

    @property
    def event(self) -> Event | None:
        """The member that is set."""
        return self.artifact_update or self.status_update or self.task or self.message


# Operations. Every request has a `tenant`: one that names none gets that of the chosen interface.


class Request(WireValue, frozen=True, kw_only=True):
    """Base of the requests.

    Attributes:
        tenant: Where it is left out, copied from the interface that the request goes to (A2A
            4.4.6).
    """

    tenant: str | None = None


class AuthenticationInfo(RedactedRepr, WireValue, frozen=True, kw_only=True):
    """How the agent authenticates to a push-notification receiver (A2A 4.3.2)."""

    scheme: str = ""
    credentials: str | None = None

    def __repr__(self) -> str:
        return f"AuthenticationInfo(scheme={self.scheme!r})"  # the credentials are secret


class TaskPushNotificationConfig(RedactedRepr, Request, frozen=True, kw_only=True):
    """Where the agent sends news of a task (A2A 4.3.1).

    Attributes:
        id: Of the configuration; the agent chooses one where it is left out.
        task_id: The task; left out when sent along with a message.
        url: Where the agent posts.
        token: Sent along, so that the receiver knows who posts.
        authentication: How the agent authenticates to the receiver.
    """

    id: str | None = None
    task_id: str | None = None
    url: str = ""
    token: str | None = None
    authentication: AuthenticationInfo | None = None

    def __repr__(self) -> str:
        # The token is secret, and so may be the query of the address.
        return (
            f"TaskPushNotificationConfig(id={self.id!r}, task_id={self.task_id!r}, "
            f"url={self.url.partition('?')[0]!r}, authentication={self.authentication!r})"
        )

    @property
    def secrets(self) -> list[str]:
        """What is secret of it: the token and the credentials."""
        own = None if self.authentication is None else self.authentication.credentials
        return [secret for secret in (self.token, own) if secret]


class SendMessageConfiguration(WireValue, frozen=True, kw_only=True):
    """How to treat a message (A2A 3.2.2).

    Attributes:
        accepted_output_modes: Media types that the caller can use.
        task_push_notification_config: Where to send news of the task.
        history_length: How many messages of the history to return at most; None sets no limit.
        return_immediately: Whether to answer as soon as the task exists.
    """

    accepted_output_modes: tuple[str, ...] = ()
    task_push_notification_config: TaskPushNotificationConfig | None = None
    history_length: int | None = None
    return_immediately: bool = False


class SendMessageRequest(Request, frozen=True, kw_only=True):
    """For SendMessage and SendStreamingMessage (A2A 3.2.1)."""

    message: Message
    configuration: SendMessageConfiguration | None = None
    metadata: dict[str, Any] | None = None


class SendMessageResponse(WireValue, frozen=True, kw_only=True):
    """A task or a message: exactly one is set (A2A 3.1.1)."""

    task: Task | None = None
    message: Message | None = None

    def __post_init__(self) -> None:
        if (self.task is None) == (self.message is None):
            text = "expected either a task or a message"
            raise ValueError(text)


class GetTaskRequest(Request, frozen=True, kw_only=True):
    """For GetTask (A2A 3.1.3)."""

    id: str
    history_length: int | None = None


class ListTasksRequest(Request, frozen=True, kw_only=True):
    """For ListTasks (A2A 3.1.4).

    Attributes:
        context_id: Only tasks of this conversation.
        status: Only tasks in this state.
        page_size: 1 to 100; the agent's default is 50.
        page_token: `ListTasksResponse.next_page_token` of the page before.
        history_length: How many messages of each history to return at most.
        status_timestamp_after: Only tasks whose status is not older; RFC 3339 with zone.
        include_artifacts: Whether to return artifacts; the agent's default is not to.
    """

    context_id: str | None = None
    status: TaskState | None = None
    page_size: int | None = None
    page_token: str | None = None
    history_length: int | None = None
    status_timestamp_after: str | None = None
    include_artifacts: bool | None = None


class ListTasksResponse(WireValue, frozen=True, kw_only=True):
    """One page of tasks, the most recently updated first (A2A 3.1.4).

    Attributes:
        tasks: The tasks.
        next_page_token: Asks for the next page; empty on the last one.
        page_size: How many tasks a page holds.
        total_size: How many tasks there are; 0 where the agent does not count.
    """

    tasks: tuple[Task, ...] = ()
    next_page_token: str = ""
    page_size: int = 0
    total_size: int = 0


class CancelTaskRequest(Request, frozen=True, kw_only=True):
    """For CancelTask (A2A 3.1.5)."""

    id: str
    metadata: dict[str, Any] | None = None


class SubscribeToTaskRequest(Request, frozen=True, kw_only=True):
    """For SubscribeToTask (A2A 3.1.6)."""

    id: str


class GetTaskPushNotificationConfigRequest(Request, frozen=True, kw_only=True):
    """For GetTaskPushNotificationConfig (A2A 3.1.8)."""

    task_id: str
    id: str


class ListTaskPushNotificationConfigsRequest(Request, frozen=True, kw_only=True):
    """For ListTaskPushNotificationConfigs (A2A 3.1.9)."""

    task_id: str
    page_size: int | None = None
    page_token: str | None = None


class ListTaskPushNotificationConfigsResponse(WireValue, frozen=True, kw_only=True):
    """One page of configurations (A2A 3.1.9)."""

    configs: tuple[TaskPushNotificationConfig, ...] = ()
    next_page_token: str = ""


class DeleteTaskPushNotificationConfigRequest(Request, frozen=True, kw_only=True):
    """For DeleteTaskPushNotificationConfig (A2A 3.1.10)."""

    task_id: str
    id: str


class GetExtendedAgentCardRequest(Request, frozen=True, kw_only=True):
    """For GetExtendedAgentCard (A2A 3.1.11)."""


class Empty(WireValue, frozen=True, kw_only=True):
    """The answer of an operation that answers nothing."""


# Agent cards.


class AgentInterface(WireValue, frozen=True, kw_only=True):
    """An address and what is spoken there (A2A 4.4.6).

    Attributes:
        url: Where; used as it is, no slash added or removed.
        protocol_binding: ``JSONRPC``, ``HTTP+JSON``, ``GRPC`` or a URI.
        tenant: To be repeated in every request, if set.
        protocol_version: As ``1.0``; may be missing on real cards.
    """

    url: str = ""
    protocol_binding: str = ""
    tenant: str | None = None
    protocol_version: str | None = None


class AgentProvider(WireValue, frozen=True, kw_only=True):
    """Who runs the agent (A2A 4.4.2)."""

    url: str = ""
    organization: str = ""


class AgentExtension(WireValue, frozen=True, kw_only=True):
    """A protocol extension that the agent supports (A2A 4.4.4)."""

    uri: str = ""
    description: str | None = None
    required: bool = False
    params: dict[str, Any] | None = None


class AgentCapabilities(WireValue, frozen=True, kw_only=True):
    """Optional parts of the protocol that the agent offers (A2A 4.4.3).

    ``None`` is "not declared", which the protocol reads as "no".
    """

    streaming: bool | None = None
    push_notifications: bool | None = None
    extensions: tuple[AgentExtension, ...] = ()
    extended_agent_card: bool | None = None


class StringList(WireValue, frozen=True, kw_only=True):
    """A list of strings, such as OAuth scopes."""

    list: tuple[str, ...] = ()


class SecurityRequirement(WireValue, frozen=True, kw_only=True):
    """Schemes that must be used together, each with its scopes."""

    schemes: dict[str, StringList] = {}


class AgentSkill(WireValue, frozen=True, kw_only=True):
    """Something that the agent can do (A2A 4.4.5)."""

    id: str = ""
    name: str = ""
    description: str = ""
    tags: tuple[str, ...] = ()
    examples: tuple[str, ...] = ()
    input_modes: tuple[str, ...] = ()
    output_modes: tuple[str, ...] = ()
    security_requirements: tuple[SecurityRequirement, ...] = ()


class AgentCardSignature(WireValue, frozen=True, kw_only=True):
    """A JSON Web Signature over the card (A2A 4.4.7, 8.4.2)."""

    protected: str = ""
    signature: str = ""
    header: dict[str, Any] | None = None


class APIKeySecurityScheme(WireValue, frozen=True, kw_only=True):
    """A key in a header, the query or a cookie (A2A 4.5.2)."""

    description: str | None = None
    location: str = ""
    name: str = ""


class HTTPAuthSecurityScheme(WireValue, frozen=True, kw_only=True):
    """An HTTP authentication scheme, such as Bearer (A2A 4.5.3)."""

    description: str | None = None
    scheme: str = ""
    bearer_format: str | None = None


class AuthorizationCodeOAuthFlow(WireValue, frozen=True, kw_only=True):
    """OAuth 2.0 authorization code (A2A 4.5.8)."""

    authorization_url: str = ""
    token_url: str = ""
    refresh_url: str | None = None
    scopes: dict[str, str] = {}
    pkce_required: bool = False


class ClientCredentialsOAuthFlow(WireValue, frozen=True, kw_only=True):
    """OAuth 2.0 client credentials (A2A 4.5.9)."""

    token_url: str = ""
    refresh_url: str | None = None
    scopes: dict[str, str] = {}


class ImplicitOAuthFlow(WireValue, frozen=True, kw_only=True):
    """OAuth 2.0 implicit grant; deprecated by the specification."""

    authorization_url: str = ""
    refresh_url: str | None = None
    scopes: dict[str, str] = {}


class PasswordOAuthFlow(WireValue, frozen=True, kw_only=True):
    """OAuth 2.0 password grant; deprecated by the specification."""

    token_url: str = ""
    refresh_url: str | None = None
    scopes: dict[str, str] = {}


class DeviceCodeOAuthFlow(WireValue, frozen=True, kw_only=True):
    """OAuth 2.0 device authorization, RFC 8628 (A2A 4.5.10)."""

    device_authorization_url: str = ""
    token_url: str = ""
    refresh_url: str | None = None
    scopes: dict[str, str] = {}


class OAuthFlows(WireValue, frozen=True, kw_only=True):
    """The flow that an OAuth 2.0 scheme offers: one member is set (A2A 4.5.7)."""

    authorization_code: AuthorizationCodeOAuthFlow | None = None
    client_credentials: ClientCredentialsOAuthFlow | None = None
    implicit: ImplicitOAuthFlow | None = None
    password: PasswordOAuthFlow | None = None
    device_code: DeviceCodeOAuthFlow | None = None


class OAuth2SecurityScheme(WireValue, frozen=True, kw_only=True):
    """OAuth 2.0 (A2A 4.5.4)."""

    description: str | None = None
    flows: OAuthFlows = OAuthFlows()
    oauth2_metadata_url: str | None = None


class OpenIdConnectSecurityScheme(WireValue, frozen=True, kw_only=True):
    """OpenID Connect (A2A 4.5.5)."""

    description: str | None = None
    open_id_connect_url: str = ""


class MutualTlsSecurityScheme(WireValue, frozen=True, kw_only=True):
    """Mutual TLS (A2A 4.5.6)."""

    description: str | None = None


class SecurityScheme(WireValue, frozen=True, kw_only=True):
    """A way to authenticate: one member is set (A2A 4.5.1)."""

    api_key_security_scheme: APIKeySecurityScheme | None = None
    http_auth_security_scheme: HTTPAuthSecurityScheme | None = None
    oauth2_security_scheme: OAuth2SecurityScheme | None = None
    open_id_connect_security_scheme: OpenIdConnectSecurityScheme | None = None
    mtls_security_scheme: MutualTlsSecurityScheme | None = None


class AgentCard(WireValue, frozen=True, kw_only=True):
    """What an agent says of itself (A2A 4.4.1)."""

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
