"""Commands about tasks: ``task``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from holdfast._cli.commands import execute
from holdfast._cli.groups import HelpfulGroup
from holdfast._cli.options.flags import (
    AUTHORIZING,
    CONTEXT,
    EVERYWHERE,
    HISTORY,
    LINES,
    METADATA,
    POLLING,
    STREAMING,
    WAITING,
    WAITING_ON_REQUEST,
    with_options,
)
from holdfast._cli.options.masking import hidden
from holdfast._cli.options.parameters import (
    ParsedParam,
    complete_path,
    complete_state,
    setting_option,
)
from holdfast._cli.options.values import (
    read_directory,
    read_id,
    read_listen,
    read_push_credentials,
    read_push_url,
    read_secret,
    read_state,
    read_time,
)

if TYPE_CHECKING:
    from holdfast._cli.agent.session import Session
    from holdfast._cli.output.base import Output

__all__ = ["push_config", "task"]


_LISTING = (
    setting_option(
        "--context-id",
        metavar="ID",
        type=ParsedParam("id", read_id),
        help="Only tasks of this context.",
    ),
    click.option(
        "--status",
        metavar="STATE",
        type=ParsedParam("state", read_state),
        shell_complete=complete_state,
        help="Only tasks in this state, such as working or TASK_STATE_WORKING.",
    ),
    click.option(
        "--since",
        metavar="TIME",
        type=ParsedParam("time", read_time),
        help="Only tasks whose state is not older than this, such as 2026-11-21 or "
        "2026-11-21T09:00:00Z; UTC unless it names a zone.",
    ),
    click.option(
        "--limit",
        metavar="N",
        type=click.IntRange(1, 100),
        default=50,
        show_default=True,
        help="Tasks on a page.",
    ),
    click.option(
        "--page-token",
        metavar="TOKEN",
        type=ParsedParam("token", read_id),
        help="Show the page of this token; each page shows the token of the next one.",
    ),
    click.option("--all", "every_page", is_flag=True, help="Show the tasks of all pages."),
    click.option("--with-artifacts", is_flag=True, help="Show the artifacts as well."),
)
_SAVING = (
    click.option(
        "--to",
        "directory",
        metavar="DIRECTORY",
        type=ParsedParam("path", read_directory),
        default=".",
        show_default="the working directory",
        shell_complete=complete_path,
        help="Directory to save to; created if it does not exist.",
    ),
    click.option("--overwrite", is_flag=True, help="Replace existing files with these names."),
    click.option(
        "--max-files",
        metavar="N",
        type=click.IntRange(min=1),
        default=1000,
        show_default=True,
        help="Save nothing if the task has more files.",
    ),
    click.option(
        "--max-bytes",
        metavar="N",
        type=click.IntRange(min=1),
        default=1024**3,
        show_default="1 GiB",
        help="Maximum size of all files together, in bytes.",
    ),
)


@click.group(
    "task",
    cls=HelpfulGroup,
    context_settings=CONTEXT,
    equivalents={
        "show": "task get TASK_ID",
        "wait": "task get --wait TASK_ID",
        **dict.fromkeys(("watch", "follow", "stream"), "task subscribe --stream TASK_ID"),
        "send": "send --task-id TASK_ID TEXT",
        "resume": "task subscribe --stream TASK_ID",
    },
)
@with_options(EVERYWHERE)
def task(**_options: object) -> None:
    """Show, list, follow, cancel and download tasks; configure push notifications."""


@task.command(
    "get",
    context_settings=CONTEXT,
    examples=(
        "holdfast task get -a localhost:9999 TASK_ID\n"
        "holdfast task get -a localhost:9999 TASK_ID --wait --history 5\n"
    ),
)
@click.argument("task_id", metavar="TASK_ID", type=ParsedParam("id", read_id))
@with_options(WAITING_ON_REQUEST, HISTORY, AUTHORIZING, POLLING, LINES, EVERYWHERE)
@click.pass_context
def task_get(ctx: click.Context, /, task_id: str, **options: Any) -> int:
    """Show a task; with --wait, once it ends or waits for a person."""
    from holdfast._cli.agent import actions

    return execute(
        ctx,
        lambda session, output: actions.get_task(
            session, output, task_id=task_id, history=options["history"]
        ),
    )


@task.command(
    "list",
    context_settings=CONTEXT,
    examples=(
        "holdfast task list -a localhost:9999 --status input-required\n"
        "holdfast task list -a localhost:9999 --context-id ID --all -o json\n"
    ),
)
@with_options(_LISTING, HISTORY, LINES, EVERYWHERE)
@click.pass_context
def task_list(ctx: click.Context, /, **options: Any) -> int:
    """List tasks, the most recently updated first, page by page."""
    from holdfast._cli.agent import actions

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


@task.command(
    "subscribe",
    context_settings=CONTEXT,
    examples=("holdfast task subscribe -a localhost:9999 TASK_ID --stream\n"),
)
@click.argument("task_id", metavar="TASK_ID", type=ParsedParam("id", read_id))
@with_options(STREAMING, AUTHORIZING, POLLING, EVERYWHERE)
@click.pass_context
def task_subscribe(ctx: click.Context, /, task_id: str, **_options: object) -> int:
    """Follow a task until it ends or waits for a person.

    With --stream, show each event as it arrives, beginning with the task; without it, show the
    task at the end. A stream that is cut is resumed.
    """
    from holdfast._cli.agent import actions

    return execute(
        ctx,
        lambda session, output: actions.subscribe_to_task(session, output, task_id=task_id),
        can_follow=True,
    )


@task.command(
    "download",
    context_settings=CONTEXT,
    examples=("holdfast task download -a localhost:9999 TASK_ID --to results/\n"),
)
@click.argument("task_id", metavar="TASK_ID", type=ParsedParam("id", read_id))
@with_options(_SAVING, EVERYWHERE)
@click.pass_context
def task_download(ctx: click.Context, /, task_id: str, **options: Any) -> int:
    """Save the artifacts of a task: files, texts and data.

    The agent names its files; unsafe names are replaced. A file that an artifact gives by its URL
    is fetched without credentials, up to 100 MiB, and not from a more private network than the
    agent's. A download that the disk has no room for is not started. With -o json the document is
    the task, and the metadata of each part names its file under holdfast/savedAs.
    """
    from holdfast._cli.agent.download import download_task

    return execute(
        ctx,
        lambda session, output: download_task(
            session,
            output,
            task_id=task_id,
            directory=Path(options["directory"]).expanduser(),
            overwrite=options["overwrite"],
            most_files=options["max_files"],
            most_bytes=options["max_bytes"],
        ),
    )


@task.command(
    "cancel",
    context_settings=CONTEXT,
    examples=("holdfast task cancel -a localhost:9999 TASK_ID\n"),
)
@click.argument("task_id", metavar="TASK_ID", type=ParsedParam("id", read_id))
@with_options(WAITING, METADATA, POLLING, LINES, EVERYWHERE)
@click.pass_context
def task_cancel(ctx: click.Context, /, task_id: str, **options: Any) -> int:
    """Cancel a task, and wait until it has ended."""
    from holdfast._cli.agent import actions

    return execute(
        ctx,
        lambda session, output: actions.cancel_task(
            session, output, task_id=task_id, metadata=options["metadata"]
        ),
    )


# ── Push configurations ──────────────────────────────────────────────────────────────────────


PUSHING = (
    setting_option(
        "--push-token",
        metavar="TOKEN",
        type=ParsedParam("token", read_secret),
        mask=hidden,
        help="Token that the agent sends as X-A2A-Notification-Token. A flag shows in the "
        "process table and the shell's history; the environment variable does not.",
    ),
    setting_option(
        "--push-credentials",
        metavar="'SCHEME CREDENTIALS'",
        type=ParsedParam("credentials", read_push_credentials),
        mask=hidden,
        help="What the agent sends as Authorization, such as 'Bearer TOKEN'; Bearer alone lets "
        "the agent choose the token. A flag shows in the process table and the shell's "
        "history; the environment variable does not.",
    ),
)


_PAGES = (
    click.option(
        "--limit",
        metavar="N",
        type=click.IntRange(min=1),
        show_default="the agent's choice",
        help="Configurations on a page.",
    ),
    click.option(
        "--page-token",
        metavar="TOKEN",
        type=ParsedParam("token", read_id),
        help="Show the page of this token; each page shows the token of the next one.",
    ),
)
_RECEIVING = (
    click.option(
        "--listen",
        metavar="HOST:PORT",
        type=ParsedParam("host:port", read_listen),
        default="127.0.0.1:0",
        show_default="a free port of this machine's loopback address",
        help="Address to listen on.",
    ),
    click.option(
        "--url",
        "receiver_url",
        metavar="URL",
        type=ParsedParam("url", read_push_url),
        show_default="the address itself",
        help="Address at which the agent reaches this listener, for example through a TLS proxy.",
    ),
)


@task.group(
    "push-config",
    context_settings=CONTEXT,
    equivalents=dict.fromkeys(("add", "set"), "task push-config create TASK_ID URL"),
)
@with_options(EVERYWHERE)
def push_config(**_options: object) -> None:
    """Manage the push notifications of a task.

    Text output shows no token and no credentials; -o json shows the configuration as the agent
    returned it.
    """


@push_config.command(
    "create",
    context_settings=CONTEXT,
    examples=(
        "A2ACLI_PUSH_TOKEN=$TOKEN holdfast task push-config create -a localhost:9999 TASK_ID \\\n"
        "    https://me.example.com/push\n"
    ),
)
@click.argument("task_id", metavar="TASK_ID", type=ParsedParam("id", read_id))
@click.argument("url", metavar="URL", type=ParsedParam("url", read_push_url))
@click.option(
    "--id",
    "config_id",
    metavar="ID",
    type=ParsedParam("id", read_id),
    show_default="the agent's choice",
    help="Name of the configuration; one of that name is replaced.",
)
@with_options(PUSHING, LINES, EVERYWHERE)
@click.pass_context
def push_config_create(ctx: click.Context, /, task_id: str, url: str, **options: Any) -> int:
    """Have the agent send push notifications of a task to URL."""
    from holdfast._cli.agent import actions
    from holdfast.types import TaskPushNotificationConfig

    config = TaskPushNotificationConfig(
        id=options["config_id"],
        task_id=task_id,
        url=url,
        token=options["push_token"],
        authentication=options["push_credentials"],
    )
    return execute(
        ctx,
        lambda session, output: actions.create_push_config(session, output, config=config),
    )


@push_config.command("get", context_settings=CONTEXT)
@click.argument("task_id", metavar="TASK_ID", type=ParsedParam("id", read_id))
@click.argument("config_id", metavar="CONFIG_ID", type=ParsedParam("id", read_id))
@with_options(LINES, EVERYWHERE)
@click.pass_context
def push_config_get(
    ctx: click.Context, /, task_id: str, config_id: str, **_options: object
) -> int:
    """Show one push notification configuration of a task."""
    from holdfast._cli.agent import actions

    return execute(
        ctx,
        lambda session, output: actions.get_push_config(
            session, output, task_id=task_id, config_id=config_id
        ),
    )


@push_config.command("list", context_settings=CONTEXT)
@click.argument("task_id", metavar="TASK_ID", type=ParsedParam("id", read_id))
@with_options(_PAGES, LINES, EVERYWHERE)
@click.pass_context
def push_config_list(ctx: click.Context, /, task_id: str, **options: Any) -> int:
    """List the push notification configurations of a task."""
    from holdfast._cli.agent import actions

    return execute(
        ctx,
        lambda session, output: actions.list_push_configs(
            session,
            output,
            task_id=task_id,
            limit=options["limit"],
            page_token=options["page_token"],
        ),
    )


@push_config.command("delete", context_settings=CONTEXT)
@click.argument("task_id", metavar="TASK_ID", type=ParsedParam("id", read_id))
@click.argument("config_id", metavar="CONFIG_ID", type=ParsedParam("id", read_id))
@with_options(LINES, EVERYWHERE)
@click.pass_context
def push_config_delete(
    ctx: click.Context, /, task_id: str, config_id: str, **_options: object
) -> int:
    """Delete one push notification configuration of a task."""
    from holdfast._cli.agent import actions

    return execute(
        ctx,
        lambda session, output: actions.delete_push_config(
            session, output, task_id=task_id, config_id=config_id
        ),
    )


@push_config.command(
    "receive",
    context_settings=CONTEXT,
    examples=("holdfast task push-config receive -a localhost:9999 TASK_ID --stream\n"),
)
@click.argument("task_id", metavar="TASK_ID", type=ParsedParam("id", read_id))
@with_options(STREAMING, _RECEIVING, AUTHORIZING, EVERYWHERE)
@click.pass_context
def push_config_receive(ctx: click.Context, /, task_id: str, **options: Any) -> int:
    """Receive push notifications of a task until it ends or waits for a person.

    The command listens at a local address, registers it at the agent, and accepts only deliveries
    that carry the secrets of that configuration. With --stream, it shows each event as it arrives,
    with -o json on a line of its own; without it, the task at the end. Deliveries may get lost, so
    the task is fetched at the end, and after a minute without a delivery. The configuration is
    deleted at the end, also after Ctrl-C and SIGTERM.
    """
    host, port = options["listen"]

    async def act(session: Session, output: Output) -> None:
        from holdfast._cli.agent.push_receiver import receive  # heavy: not imported for help

        await receive(
            session, output, task_id=task_id, host=host, port=port, url=options["receiver_url"]
        )

    return execute(ctx, act, can_follow=True)
