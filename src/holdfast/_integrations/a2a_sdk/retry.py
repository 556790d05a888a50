"""A transport of the SDK around another one, that tries its calls again.

The methods are the SDK's, one for each operation, and all alike: what they do is written once, in
`holdfast._integrations.a2a_sdk.retry_loop`, and what a second execution would cost is a row of
`holdfast._model.operations`.
"""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING, Literal

from a2a.client.transports.base import ClientTransport
from a2a.types.a2a_pb2 import TASK_STATE_CANCELED, GetTaskRequest
from a2a.utils.errors import TaskNotCancelableError, TaskNotFoundError

from holdfast._aio.env import SystemEnv
from holdfast._arguments import check_kind
from holdfast._integrations.a2a_sdk.retry_config import RetryConfig
from holdfast._integrations.a2a_sdk.retry_loop import DoneBefore, RetryExecutor, own_copy
from holdfast._model import operations

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator
    from typing import Self

    from a2a.client.client import ClientCallContext
    from a2a.types import a2a_pb2 as sdk

    from holdfast._aio.env import Env
    from holdfast._integrations.a2a_sdk.retry_config import OnRetry, RetryPredicate, SharedBudget
    from holdfast._policy.budget import BudgetPolicy

__all__ = ["RetryTransport"]


class RetryTransport(ClientTransport):
    """Tries the calls of another transport again, and executes no message twice.

    What it raises in the end is the error of the transport below, unchanged;
    `retry_facts(error)` and a note on it say what was tried. A stream is tried again only before
    its first event. The transport below is closed with it; closing and the extended card are
    passed through.

    Args:
        transport: The transport; any other one of the SDK's class.
        max_retries: See `RetryConfig`, as for all of the following.
        base_delay: In seconds.
        max_delay: In seconds.
        retry_predicate: Whether another try may help.
        on_retry: Told before each wait.
        resend_ambiguous: Whether a message is sent again that the agent may have seen.
        max_retry_after: In seconds.
        timeout: In seconds; None for none.
        budget: What stops retrying while most calls fail.
        env: Where wall time and dice come from; None for the system's.

    Raises:
        ValueError: A number is wrong; see `RetryConfig`.
        TypeError: One of them is of another kind.
    """

    def __init__(
        self,
        transport: ClientTransport,
        *,
        max_retries: int = 3,
        base_delay: float = 1.0,
        max_delay: float = 30.0,
        retry_predicate: RetryPredicate | None = None,
        on_retry: OnRetry | None = None,
        resend_ambiguous: bool = False,
        max_retry_after: float = 60.0,
        timeout: float | None = None,
        budget: BudgetPolicy | SharedBudget | Literal["standard"] | None = "standard",
        env: Env | None = None,
    ) -> None:
        check_kind("transport", transport, ClientTransport)
        config = RetryConfig(
            max_retries=max_retries,
            base_delay=base_delay,
            max_delay=max_delay,
            retry_predicate=retry_predicate,
            on_retry=on_retry,
            resend_ambiguous=resend_ambiguous,
            max_retry_after=max_retry_after,
            timeout=timeout,
            budget=budget,
        )
        self._base = transport  # as the SDK's own decorator calls it
        self._executor = RetryExecutor(transport, config, env or SystemEnv())

    @classmethod
    def from_config(
        cls, transport: ClientTransport, config: RetryConfig, *, env: Env | None = None
    ) -> Self:
        """The same of a `RetryConfig`, which may serve several transports.

        Args:
            transport: The transport.
            config: How to try.
            env: Where wall time and dice come from; None for the system's.

        Raises:
            TypeError: One of them is of another kind.
        """
        check_kind("config", config, RetryConfig)
        return cls(
            transport, **{one.name: getattr(config, one.name) for one in fields(config)}, env=env
        )

    async def send_message(
        self, request: sdk.SendMessageRequest, *, context: ClientCallContext | None = None
    ) -> sdk.SendMessageResponse:
        """Sends a message."""
        method = self._base.send_message
        return await self._executor.unary(operations.SEND_MESSAGE, method, request, context)

    def send_message_streaming(
        self, request: sdk.SendMessageRequest, *, context: ClientCallContext | None = None
    ) -> AsyncGenerator[sdk.StreamResponse]:
        """Sends a message, and streams what becomes of it."""
        method = self._base.send_message_streaming
        return self._executor.stream(operations.SEND_STREAMING_MESSAGE, method, request, context)

    async def get_task(
        self, request: sdk.GetTaskRequest, *, context: ClientCallContext | None = None
    ) -> sdk.Task:
        """Asks for a task."""
        method = self._base.get_task
        return await self._executor.unary(operations.GET_TASK, method, request, context)

    async def list_tasks(
        self, request: sdk.ListTasksRequest, *, context: ClientCallContext | None = None
    ) -> sdk.ListTasksResponse:
        """Asks for tasks."""
        method = self._base.list_tasks
        return await self._executor.unary(operations.LIST_TASKS, method, request, context)

    async def cancel_task(
        self, request: sdk.CancelTaskRequest, *, context: ClientCallContext | None = None
    ) -> sdk.Task:
        """Asks the agent to cancel a task."""

        async def find() -> tuple[sdk.Task] | None:
            asked = GetTaskRequest(id=request.id, tenant=request.tenant)
            task = await self._base.get_task(asked, context=context)
            return (task,) if task.status.state == TASK_STATE_CANCELED else None

        before = DoneBefore((TaskNotCancelableError, TaskNotFoundError), find)
        method = self._base.cancel_task
        return await self._executor.unary(operations.CANCEL_TASK, method, request, context, before)

    async def create_task_push_notification_config(
        self, request: sdk.TaskPushNotificationConfig, *, context: ClientCallContext | None = None
    ) -> sdk.TaskPushNotificationConfig:
        """Adds a push notification config to a task."""
        method = self._base.create_task_push_notification_config
        return await self._executor.unary(operations.CREATE_PUSH_CONFIG, method, request, context)

    async def get_task_push_notification_config(
        self,
        request: sdk.GetTaskPushNotificationConfigRequest,
        *,
        context: ClientCallContext | None = None,
    ) -> sdk.TaskPushNotificationConfig:
        """Asks for a push notification config of a task."""
        method = self._base.get_task_push_notification_config
        return await self._executor.unary(operations.GET_PUSH_CONFIG, method, request, context)

    async def list_task_push_notification_configs(
        self,
        request: sdk.ListTaskPushNotificationConfigsRequest,
        *,
        context: ClientCallContext | None = None,
    ) -> sdk.ListTaskPushNotificationConfigsResponse:
        """Asks for the push notification configs of a task."""
        method = self._base.list_task_push_notification_configs
        return await self._executor.unary(operations.LIST_PUSH_CONFIGS, method, request, context)

    async def delete_task_push_notification_config(
        self,
        request: sdk.DeleteTaskPushNotificationConfigRequest,
        *,
        context: ClientCallContext | None = None,
    ) -> None:
        """Deletes a push notification config of a task."""

        async def find() -> tuple[None]:
            return (None,)

        before = DoneBefore((TaskNotFoundError,), find)
        method = self._base.delete_task_push_notification_config
        await self._executor.unary(operations.DELETE_PUSH_CONFIG, method, request, context, before)

    def subscribe(
        self, request: sdk.SubscribeToTaskRequest, *, context: ClientCallContext | None = None
    ) -> AsyncGenerator[sdk.StreamResponse]:
        """Streams what becomes of a task."""
        method = self._base.subscribe
        return self._executor.stream(operations.SUBSCRIBE_TO_TASK, method, request, context)

    async def get_extended_agent_card(
        self,
        request: sdk.GetExtendedAgentCardRequest,
        *,
        context: ClientCallContext | None = None,
    ) -> sdk.AgentCard:
        """Asks for the agent's own card, once."""
        return await self._base.get_extended_agent_card(own_copy(request), context=context)

    async def close(self) -> None:
        """Closes the transport below."""
        await self._base.close()
