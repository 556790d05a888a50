"""A bound on the push notification configurations of a task at a served agent.

Every event of a task is posted to each of its configurations, so that without a bound one client
could have the server send any number of requests.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

from a2a.server.tasks import PushNotificationConfigStore
from a2a.utils import errors as sdk

if TYPE_CHECKING:
    from a2a.server.context import ServerCallContext
    from a2a.types.a2a_pb2 import TaskPushNotificationConfig

__all__ = ["BoundedPushConfigs"]


class BoundedPushConfigs(PushNotificationConfigStore):
    """A store that refuses one configuration of a task too many.

    Args:
        store: Where the configurations are kept.
        most: How many configurations a task may have.
    """

    def __init__(self, store: PushNotificationConfigStore, most: int) -> None:
        self._store = store
        self._most = most
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def set_info(
        self,
        task_id: str,
        notification_config: TaskPushNotificationConfig,
        context: ServerCallContext,
    ) -> TaskPushNotificationConfig | None:
        """Store a configuration, or replace the one with the same id.

        Raises:
            InvalidParamsError: The task has as many configurations as it may have.
        """
        # Between counting and storing, nothing else is stored for the task.
        lock = self._locks.setdefault(task_id, asyncio.Lock())
        async with lock:
            known = {config.id for config in await self._store.get_info(task_id, context)}
            config_id = notification_config.id or task_id  # as the SDK names it
            if config_id not in known and len(known) >= self._most:
                text = (
                    f"task {task_id} has {len(known)} push notification configurations, and may "
                    f"have {self._most}: delete one first"
                )
                raise sdk.InvalidParamsError(text)
            return await self._store.set_info(task_id, notification_config, context)

    async def get_info(
        self, task_id: str, context: ServerCallContext
    ) -> list[TaskPushNotificationConfig]:
        """Return the caller's configurations of a task."""
        return await self._store.get_info(task_id, context)

    async def delete_info(
        self, task_id: str, context: ServerCallContext, config_id: str | None = None
    ) -> None:
        """Delete one configuration of a task, or all of the caller's."""
        await self._store.delete_info(task_id, context, config_id)
