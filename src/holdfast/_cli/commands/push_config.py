"""Commands about push notifications of a task: ``task push-config``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from holdfast._cli.commands import execute
from holdfast._cli.options.flags import (
    AUTHORIZING,
    CONTEXT,
    EVERYWHERE,
    LINES,
    STREAMING,
    with_options,
)
from holdfast._cli.options.masking import hidden
from holdfast._cli.options.parameters import ParsedParam, setting_option
from holdfast._cli.options.values import (
    read_id,
    read_listen,
    read_push_credentials,
    read_push_url,
    read_secret,
)

if TYPE_CHECKING:
    from holdfast._cli.agent.session import Session
    from holdfast._cli.output.base import Output

__all__ = ["push_config"]

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
        show_default="as the agent likes",
        help="Configurations on a page.",
    ),
    click.option(
        "--page-token",
        metavar="TOKEN",
        type=ParsedParam("token", read_id),
        help="Show the page that this token stands for; each page names that of the next.",
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


@click.group("push-config", context_settings=CONTEXT)
@with_options(EVERYWHERE)
def push_config(**_options: object) -> None:
    """Configure and show the push notifications of a task.

    Text shows no token and no credentials; -o json shows the configuration as the agent gave it.
    """


@push_config.command("create", context_settings=CONTEXT)
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
    """Show one configuration of a task."""
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
    """List the configurations of a task."""
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


@push_config.command("receive", context_settings=CONTEXT)
@click.argument("task_id", metavar="TASK_ID", type=ParsedParam("id", read_id))
@with_options(_RECEIVING, AUTHORIZING, STREAMING, EVERYWHERE)
@click.pass_context
def push_config_receive(ctx: click.Context, /, task_id: str, **options: Any) -> int:
    """Receive push notifications of a task until it ends or waits for a person.

    Listens at a local address, registers it at the agent, and accepts only deliveries that carry
    the secrets of the registration. With --stream, show each event as it arrives, with -o json
    on a line of its own; without it, the task at the end. Deliveries may get lost: at the end, and
    after a minute without one, the task is fetched. The configuration is deleted at the end.
    """
    host, port = options["listen"]

    async def act(session: Session, output: Output) -> None:
        from holdfast._cli.agent.push_receiver import receive  # heavy: not imported for help

        await receive(
            session, output, task_id=task_id, host=host, port=port, url=options["receiver_url"]
        )

    return execute(ctx, act, can_follow=True)
