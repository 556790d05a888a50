"""The actions of commands about push configurations."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

import click

from holdfast._cli.options.values import secrets_in_reference
from holdfast._cli.output.events import ConfigDeleted, Notice, Result

if TYPE_CHECKING:
    from holdfast._cli.agent.session import Session
    from holdfast._cli.output.base import Output
    from holdfast.types import TaskPushNotificationConfig

__all__ = ["create_push_config", "delete_push_config", "get_push_config", "list_push_configs"]


async def create_push_config(
    session: Session, output: Output, *, config: TaskPushNotificationConfig
) -> None:
    """Set where the agent sends push notifications of a task.

    Raises:
        click.UsageError: The secrets in it are for another agent.
    """
    for name in ("push_token", "push_credentials"):
        if name in session.settings.withheld:  # without them the configuration would differ
            raise click.UsageError(session.settings.withheld[name])
    output.hide((*config.secrets, *secrets_in_reference(config.url)))
    await session.prepare()
    created = await session.client.create_task_push_notification_config(
        config, timeout=session.left(), headers=session.svc_params
    )
    output.emit(Result(created))


async def get_push_config(
    session: Session, output: Output, *, task_id: str, config_id: str
) -> None:
    """Show one configuration."""
    session.asks_for_config = True
    await session.prepare()
    config = await session.client.get_task_push_notification_config(
        task_id, config_id, timeout=session.left(), headers=session.svc_params
    )
    output.emit(Result(config))


async def list_push_configs(
    session: Session,
    output: Output,
    *,
    task_id: str,
    limit: int | None,
    page_token: str | None,
) -> None:
    """Show one page of a task's configurations."""
    await session.prepare()
    page = await session.client.list_task_push_notification_configs(
        task_id,
        limit=limit,
        page_token=page_token,
        timeout=session.left(),
        headers=session.svc_params,
    )
    output.emit(Result(page))
    if page.next_page_token:
        output.emit(
            Notice.hint(f"the next page: --page-token {shlex.quote(page.next_page_token)}")
        )


async def delete_push_config(
    session: Session, output: Output, *, task_id: str, config_id: str
) -> None:
    """Delete one configuration; a missing one counts as deleted."""
    session.asks_for_config = True
    await session.prepare()
    await session.client.delete_task_push_notification_config(
        task_id, config_id, timeout=session.left(), headers=session.svc_params
    )
    output.emit(ConfigDeleted(task_id, config_id))
