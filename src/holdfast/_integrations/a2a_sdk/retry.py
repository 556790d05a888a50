"""A transport of the SDK around another one, which retries its calls.

The methods are the SDK's, one for each operation, and all alike: their common code is in
`holdfast._integrations.a2a_sdk.retry_loop`, and the safety of each operation is in its row of
`holdfast.protocol`.
"""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING, Literal, cast

from a2a.client.client import Client
from a2a.client.transports.base import ClientTransport
from a2a.types.a2a_pb2 import TASK_STATE_CANCELED, GetTaskRequest
from a2a.utils.errors import TaskNotCancelableError, TaskNotFoundError

from holdfast import protocol
from holdfast._arguments import check_kind, explains_unknown_options
from holdfast._integrations.a2a_sdk.retry_config import RetryConfig
from holdfast._integrations.a2a_sdk.retry_loop import EarlierEffect, RetryExecutor, copy_request
from holdfast.extend import SystemEnv

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator
    from typing import Self

    from a2a.client.client import ClientCallContext
    from a2a.types import a2a_pb2 as sdk

    from holdfast._integrations.a2a_sdk.retry_config import OnRetry, RetryPredicate, SharedBudget
    from holdfast.extend import Env
    from holdfast.policies import BudgetPolicy

__all__ = ["RetryTransport"]


class RetryTransport(ClientTransport):
    """Transport over another one, whose calls it retries without executing a message twice.

    It raises the last error of the transport below, unchanged; ``retry_facts(error)`` and a note
    on it describe the attempts. A stream is retried only before its first event. The transport
    below is closed with it; closing and the extended card are passed through.

    Args:
        transport: The transport; any other one of the SDK's class.
        max_retries: Attempts after the first one; 0 or more, 3 by default. This and the following
            arguments are those of `RetryConfig`.
        base_delay: Upper bound of the first wait, in seconds, 1 by default.
        max_delay: Largest value of that bound, in seconds, 30 by default.
        retry_predicate: Function that gets the SDK's error, and returns whether a retry may help;
            `default_retry_predicate` by default.
        on_retry: Function or coroutine function that is called before each wait with the number of
            the retry, the error, and the wait in seconds; none by default.
        resend_ambiguous: Whether to send a message again that the agent may have executed; False
            by default.
        max_retry_after: Longest hint of a server to wait for, in seconds, 60 by default.
        timeout: Seconds for a call with all its attempts; None for no limit.
        budget: The retry budget; ``"standard"`` by default, None for no budget.
        env: Source of wall time and random numbers; None for the system's.

    Raises:
        ValueError: A number is negative, infinite or not a number, or the timeout is not positive.
        TypeError: An argument is of another type.
    """

    @explains_unknown_options()
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
        if isinstance(cast("object", transport), Client):
            text = (
                "transport must be ClientTransport, not a client; use client_factory(…), whose "
                "clients retry, or pass a transport such as JsonRpcTransport"
            )
            raise TypeError(text)
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
        """Create a transport from a `RetryConfig`, which may serve several transports.

        Args:
            transport: The transport.
            config: The retry settings.
            env: Source of wall time and random numbers; None for the system's.

        Raises:
            TypeError: An argument is of another type.
        """
        check_kind("config", config, RetryConfig)
        return cls(
            transport,
            **{field.name: getattr(config, field.name) for field in fields(config)},
            env=env,
        )

    async def send_message(
        self, request: sdk.SendMessageRequest, *, context: ClientCallContext | None = None
    ) -> sdk.SendMessageResponse:
        """Send a message."""
        method = self._base.send_message
        return await self._executor.unary(protocol.SEND_MESSAGE, method, request, context)

    def send_message_streaming(
        self, request: sdk.SendMessageRequest, *, context: ClientCallContext | None = None
    ) -> AsyncGenerator[sdk.StreamResponse]:
        """Send a message, and stream the events of its answer."""
        method = self._base.send_message_streaming
        return self._executor.stream(protocol.SEND_STREAMING_MESSAGE, method, request, context)

    async def get_task(
        self, request: sdk.GetTaskRequest, *, context: ClientCallContext | None = None
    ) -> sdk.Task:
        """Fetch a task."""
        method = self._base.get_task
        return await self._executor.unary(protocol.GET_TASK, method, request, context)

    async def list_tasks(
        self, request: sdk.ListTasksRequest, *, context: ClientCallContext | None = None
    ) -> sdk.ListTasksResponse:
        """List tasks."""
        method = self._base.list_tasks
        return await self._executor.unary(protocol.LIST_TASKS, method, request, context)

    async def cancel_task(
        self, request: sdk.CancelTaskRequest, *, context: ClientCallContext | None = None
    ) -> sdk.Task:
        """Ask the agent to cancel a task."""

        async def find() -> tuple[sdk.Task] | None:
            get_request = GetTaskRequest(id=request.id, tenant=request.tenant)
            task = await self._base.get_task(get_request, context=context)
            return (task,) if task.status.state == TASK_STATE_CANCELED else None

        earlier = EarlierEffect((TaskNotCancelableError, TaskNotFoundError), find)
        method = self._base.cancel_task
        return await self._executor.unary(protocol.CANCEL_TASK, method, request, context, earlier)

    async def create_task_push_notification_config(
        self, request: sdk.TaskPushNotificationConfig, *, context: ClientCallContext | None = None
    ) -> sdk.TaskPushNotificationConfig:
        """Add a push notification config to a task."""
        method = self._base.create_task_push_notification_config
        return await self._executor.unary(protocol.CREATE_PUSH_CONFIG, method, request, context)

    async def get_task_push_notification_config(
        self,
        request: sdk.GetTaskPushNotificationConfigRequest,
        *,
        context: ClientCallContext | None = None,
    ) -> sdk.TaskPushNotificationConfig:
        """Fetch a push notification config of a task."""
        method = self._base.get_task_push_notification_config
        return await self._executor.unary(protocol.GET_PUSH_CONFIG, method, request, context)

    async def list_task_push_notification_configs(
        self,
        request: sdk.ListTaskPushNotificationConfigsRequest,
        *,
        context: ClientCallContext | None = None,
    ) -> sdk.ListTaskPushNotificationConfigsResponse:
        """List the push notification configs of a task."""
        method = self._base.list_task_push_notification_configs
        return await self._executor.unary(protocol.LIST_PUSH_CONFIGS, method, request, context)

    async def delete_task_push_notification_config(
        self,
        request: sdk.DeleteTaskPushNotificationConfigRequest,
        *,
        context: ClientCallContext | None = None,
    ) -> None:
        """Delete a push notification config of a task."""

        async def find() -> tuple[None]:
            return (None,)

        earlier = EarlierEffect((TaskNotFoundError,), find)
        method = self._base.delete_task_push_notification_config
        await self._executor.unary(protocol.DELETE_PUSH_CONFIG, method, request, context, earlier)

    def subscribe(
        self, request: sdk.SubscribeToTaskRequest, *, context: ClientCallContext | None = None
    ) -> AsyncGenerator[sdk.StreamResponse]:
        """Stream the events of a task."""
        method = self._base.subscribe
        return self._executor.stream(protocol.SUBSCRIBE_TO_TASK, method, request, context)

    async def get_extended_agent_card(
        self,
        request: sdk.GetExtendedAgentCardRequest,
        *,
        context: ClientCallContext | None = None,
    ) -> sdk.AgentCard:
        """Fetch the extended agent card, without retries."""
        return await self._base.get_extended_agent_card(copy_request(request), context=context)

    async def close(self) -> None:
        """Close the transport below."""
        await self._base.close()
