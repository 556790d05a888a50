"""Commands about tasks: ``task``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from holdfast._cli.commands import execute
from holdfast._cli.commands.push_config import push_config
from holdfast._cli.options import (
    AUTHORIZING,
    CONTEXT,
    EVERYWHERE,
    HISTORY,
    LINES,
    METADATA,
    POLLING,
    STREAMING,
    WAITING,
    with_options,
)
from holdfast._cli.task_options import LISTING, SAVING
from holdfast._cli.values import ParsedParam, read_id

__all__ = ["task"]


@click.group("task", context_settings=CONTEXT)
@with_options(EVERYWHERE)
def task(**_options: object) -> None:
    """Show tasks, follow them, save their artifacts, cancel them."""


@task.command("get", context_settings=CONTEXT)
@click.argument("wanted", metavar="TASK_ID", type=ParsedParam("id", read_id))
@with_options(HISTORY, WAITING, AUTHORIZING, POLLING, LINES, EVERYWHERE)
@click.pass_context
def task_get(ctx: click.Context, /, wanted: str, **options: Any) -> int:
    """Show a task as it stands, or with --wait as soon as it ends or waits for a person."""
    from holdfast._cli import actions

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
    from holdfast._cli import actions

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
@click.argument("wanted", metavar="TASK_ID", type=ParsedParam("id", read_id))
@with_options(AUTHORIZING, POLLING, STREAMING, EVERYWHERE)
@click.pass_context
def task_subscribe(ctx: click.Context, /, wanted: str, **_options: object) -> int:
    """Subscribe to a task until it ends or waits for a person.

    With --stream, show each event as it arrives, beginning with the task; without it, show the
    task at the end. A stream that is cut is resumed.
    """
    from holdfast._cli import actions

    return execute(
        ctx,
        lambda session, output: actions.subscribe_to_task(session, output, task_id=wanted),
        can_follow=True,
    )


@task.command("download", context_settings=CONTEXT)
@click.argument("wanted", metavar="TASK_ID", type=ParsedParam("id", read_id))
@with_options(SAVING, EVERYWHERE)
@click.pass_context
def task_download(ctx: click.Context, /, wanted: str, **options: Any) -> int:
    """Save the contents of a task's artifacts: files, texts and data.

    The agent names its files; unsafe names are replaced. A file that an artifact gives by its URL
    is fetched without credentials, up to 100 MiB, and not from a more private network than the
    agent's. A download that the disk has no room for is not started. With -o json the document is
    the task, and the metadata of each part names its file under holdfast/savedAs.
    """
    from holdfast._cli.downloading import download_task

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
@click.argument("wanted", metavar="TASK_ID", type=ParsedParam("id", read_id))
@with_options(METADATA, WAITING, POLLING, LINES, EVERYWHERE)
@click.pass_context
def task_cancel(ctx: click.Context, /, wanted: str, **options: Any) -> int:
    """Ask the agent to cancel a task, and wait until the task has ended."""
    from holdfast._cli import actions

    return execute(
        ctx,
        lambda session, output: actions.cancel_task(
            session, output, task_id=wanted, metadata=options["metadata"]
        ),
    )


task.add_command(push_config)
