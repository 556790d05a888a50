"""What operations take and answer (A2A specification 3.1, 3.2).

Every request has a `tenant`: one that names none gets that of the chosen interface.
"""

from __future__ import annotations

from typing import Any

from holdfast._model.redacted_repr import Discreet
from holdfast._model.types import Message, Task, TaskState, WireValue

__all__ = [
    "AuthenticationInfo",
    "CancelTaskRequest",
    "DeleteTaskPushNotificationConfigRequest",
    "Empty",
    "GetExtendedAgentCardRequest",
    "GetTaskPushNotificationConfigRequest",
    "GetTaskRequest",
    "ListTaskPushNotificationConfigsRequest",
    "ListTaskPushNotificationConfigsResponse",
    "ListTasksRequest",
    "ListTasksResponse",
    "Request",
    "SendMessageConfiguration",
    "SendMessageRequest",
    "SendMessageResponse",
    "SubscribeToTaskRequest",
    "TaskPushNotificationConfig",
]


class Request(WireValue, frozen=True, kw_only=True):
    """Base of the requests.

    Attributes:
        tenant: Where it is left out, copied from the interface that the request goes to (A2A
            4.4.6).
    """

    tenant: str | None = None


class AuthenticationInfo(Discreet, WireValue, frozen=True, kw_only=True):
    """How the agent authenticates to a push-notification receiver (A2A 4.3.2)."""

    scheme: str = ""
    credentials: str | None = None

    def __repr__(self) -> str:
        return f"AuthenticationInfo(scheme={self.scheme!r})"  # the credentials are secret


class TaskPushNotificationConfig(Discreet, Request, frozen=True, kw_only=True):
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
