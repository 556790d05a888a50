"""Commands about tasks: ``task``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from holdfast.cli import actions
from holdfast.cli.downloading import download_task
from holdfast.cli.execution import CONTEXT, execute
from holdfast.cli.options import (
    AUTHORIZING,
    EVERYWHERE,
    HISTORY,
    LINES,
    METADATA,
    POLLING,
    STREAMING,
    WAITING,
    with_options,
)
from holdfast.cli.push_commands import push_config
from holdfast.cli.task_options import LISTING, SAVING
from holdfast.cli.values import Reads, read_id

__all__ = ["task"]


@click.group("task", context_settings=CONTEXT)
@with_options(EVERYWHERE)
def task(**_options: object) -> None:
    """Look at tasks, follow them, save what they made, cancel them."""


@task.command("get", context_settings=CONTEXT)
@click.argument("wanted", metavar="TASK_ID", type=Reads("id", read_id))
@with_options(HISTORY, WAITING, AUTHORIZING, POLLING, LINES, EVERYWHERE)
@click.pass_context
def task_get(ctx: click.Context, /, wanted: str, **options: Any) -> int:
    """Show a task as it stands, or with --wait as soon as it ends or waits for a person."""
    return execute(
        ctx,
        lambda session, output: actions.get_task(
            session, output, task_id=wanted, history=options["history"]
        ),
    )


@task.command("list", context_settings=CONTEXT)
@with_options(LISTING, HISTORY, LINES, EVERYWHERE)
@click.pass_context
def task_list(ctx: click.Context, /, **options: Any) -> int:
    """List tasks, the most recently updated first, page by page."""
    if options["every_page"] and options["page_token"]:
        message = "--all and --page-token contradict each other."
        raise click.UsageError(message, ctx)
    filters = actions.Filters(
        context_id=options["context_id"],
        status=options["status"],
        status_timestamp_after=options["since"],
        limit=options["limit"],
        history_length=options["history"],
        include_artifacts=options["with_artifacts"],
    )
    return execute(
        ctx,
        lambda session, output: actions.list_tasks(
            session,
            output,
            filters=filters,
            page_token=options["page_token"],
            every_page=options["every_page"],
        ),
    )


@task.command("subscribe", context_settings=CONTEXT)
@click.argument("wanted", metavar="TASK_ID", type=Reads("id", read_id))
@with_options(AUTHORIZING, POLLING, STREAMING, EVERYWHERE)
@click.pass_context
def task_subscribe(ctx: click.Context, /, wanted: str, **_options: object) -> int:
    """Subscribe to a task until it ends or waits for a person.

    With --stream each event is shown as it comes, first the task as it stands; without, the task
    at the end. A connection that is cut is picked up again.
    """
    return execute(
        ctx,
        lambda session, output: actions.subscribe_to_task(session, output, task_id=wanted),
        can_follow=True,
    )


@task.command("download", context_settings=CONTEXT)
@click.argument("wanted", metavar="TASK_ID", type=Reads("id", read_id))
@with_options(SAVING, EVERYWHERE)
@click.pass_context
def task_download(ctx: click.Context, /, wanted: str, **options: Any) -> int:
    """Save what is in the artifacts of a task: files, texts and data.

    The agent names its files; what is no plain name is made one. What an artifact only names the
    address of is fetched without credentials, up to 100 MiB, and not from further inside this
    network than the agent. What the disk has no room for is not begun. With -o json the document
    is the task, and the metadata of each part says under holdfast/savedAs where it is.
    """
    return execute(
        ctx,
        lambda session, output: download_task(
            session,
            output,
            task_id=wanted,
            directory=Path(options["directory"]).expanduser(),
            overwrite=options["overwrite"],
            most_files=options["max_files"],
            most_bytes=options["max_bytes"],
        ),
    )


@task.command("cancel", context_settings=CONTEXT)
@click.argument("wanted", metavar="TASK_ID", type=Reads("id", read_id))
@with_options(METADATA, WAITING, POLLING, LINES, EVERYWHERE)
@click.pass_context
def task_cancel(ctx: click.Context, /, wanted: str, **options: Any) -> int:
    """Ask the agent to cancel a task, and wait until the task is over."""
    return execute(
        ctx,
        lambda session, output: actions.cancel_task(
            session, output, task_id=wanted, metadata=options["metadata"]
        ),
    )


task.add_command(push_config)
