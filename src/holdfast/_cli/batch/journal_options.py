"""Options of commands with a journal."""

from __future__ import annotations

from typing import get_args

import click

from holdfast._cli.values import Choice, ParsedParam, complete_path, read_grace, read_id, read_rate
from holdfast._policy.reconcile import OnUnknown

__all__ = ["DEFAULT_CONCURRENCY", "RESUMING", "RUNNING"]

DEFAULT_CONCURRENCY = 32

RUNNING = (
    click.option(
        "--input",
        "source",
        metavar="FILE",
        required=True,
        type=ParsedParam("path", read_id),
        shell_complete=complete_path,
        help="Messages, one on each line; - for standard input, with --run-id.",
    ),
    click.option(
        "--results",
        "results",
        metavar="FILE",
        required=True,
        type=ParsedParam("path", read_id),
        shell_complete=complete_path,
        help="File of results, one on each line; new results are appended. - for standard output.",
    ),
    click.option(
        "--journal",
        metavar="FILE",
        required=True,
        type=ParsedParam("path", read_id),
        shell_complete=complete_path,
        help="The journal, a file of SQLite or its sqlite:/// address: it records each message "
        "before it is sent, and its outcome. Created if it does not exist, readable only by "
        "you; it grows until you remove it.",
    ),
    click.option(
        "--run-id",
        metavar="NAME",
        type=ParsedParam("name", read_id),
        show_default="made from the path of the input",
        help="Name of the run in the journal: the same name resumes it. A run of another name "
        "does not see the calls that the first has in flight. Without a name, a line that another "
        "run has in flight ends the command before anything is sent: the input may have moved.",
    ),
    click.option(
        "--concurrency",
        metavar="N",
        type=click.IntRange(min=1),
        default=DEFAULT_CONCURRENCY,
        show_default=True,
        help="How many messages are in flight at once.",
    ),
    click.option(
        "--rate",
        metavar="RATE",
        type=ParsedParam("rate", read_rate),
        show_default="not limited",
        help="How many messages to start at most, such as 50/s, 3/min or 100/h; 50 is 50/s.",
    ),
    click.option(
        "--on-unknown",
        type=Choice(get_args(OnUnknown)),
        default="reconcile",
        show_default=True,
        help="What to do about a message whose reply is lost: search for the task that it made; "
        "report it as unknown at once; search, and send it again if there is none, which takes an "
        "agent whose list shows each task soon, with its messages; or send it again at once. The "
        "last two are for messages that may well be executed twice.",
    ),
    click.option(
        "--on-bad-line",
        type=Choice(["skip", "fail"]),
        default="fail",
        show_default=True,
        help="What to do about a line that is not a message: skip it, or send no line after it. "
        "It is reported on stderr in both cases.",
    ),
    click.option(
        "--retry-errors",
        is_flag=True,
        help="Remove the results that are errors, and process their lines again. A message that "
        "may have been executed is waited for or searched for, and not sent again, unless "
        "--run-id names another run.",
    ),
    click.option(
        "--grace",
        metavar="DURATION",
        type=ParsedParam("duration", read_grace),
        default="30s",
        show_default=True,
        help="How long to wait after Ctrl-C for the messages in flight.",
    ),
)

RESUMING = (
    click.option(
        "--journal",
        metavar="FILE",
        required=True,
        type=ParsedParam("path", read_id),
        shell_complete=complete_path,
        help="The journal that the calls are in.",
    ),
    click.option(
        "--list",
        "lists",
        is_flag=True,
        help="Only show the calls that have no outcome; nothing is sent.",
    ),
    click.option(
        "--forget",
        metavar="MESSAGE_ID",
        type=ParsedParam("id", read_id),
        help="Record that the outcome of this call is not needed; nothing is sent.",
    ),
)
