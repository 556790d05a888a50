"""Options of commands that list tasks or save what they made."""

from __future__ import annotations

import click

from holdfast._cli.sources import setting_option
from holdfast._cli.values import (
    ParsedParam,
    complete_path,
    complete_state,
    read_id,
    read_listen,
    read_push_url,
    read_state,
    read_time,
)

__all__ = ["LISTING", "PAGES", "RECEIVING", "SAVING"]

LISTING = (
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
        help="Only tasks in this state, as working or TASK_STATE_WORKING.",
    ),
    click.option(
        "--since",
        metavar="TIME",
        type=ParsedParam("time", read_time),
        help="Only tasks whose state is not older than this, as 2026-11-21 or "
        "2026-11-21T09:00:00Z; UTC unless it says otherwise.",
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
        help="Show the page that this token stands for; each page names that of the next.",
    ),
    click.option("--all", "every_page", is_flag=True, help="Show all of them, page by page."),
    click.option("--with-artifacts", is_flag=True, help="Show the artifacts as well."),
)

PAGES = (
    click.option(
        "--limit",
        metavar="N",
        type=click.IntRange(min=1),
        show_default="as the agent likes",
        help="Configurations on a page.",
    ),
    LISTING[4],
)

SAVING = (
    click.option(
        "--to",
        "directory",
        metavar="DIRECTORY",
        type=ParsedParam("path", read_id),
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
        help="Bytes that all files together may have.",
    ),
)

RECEIVING = (
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
