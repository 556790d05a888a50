"""The options that commands share: what each is called, how it is read, what it means.

Rules: a flag beats its environment variable, which beats a configuration file, which beats the
default (a2a-cli 6.5); the variable is named after the flag; a value that cannot be right is a
usage error, found before anything is sent; no help text shows a secret.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any, TypeVar, get_args

import click

from holdfast._version import __version__
from holdfast.cli.configuration import PREFIX
from holdfast.cli.sources import SettingOption
from holdfast.cli.values import (
    Reads,
    complete_path,
    complete_state,
    hidden,
    hidden_params,
    masked_reference,
    read_bearer,
    read_duration,
    read_grace,
    read_id,
    read_metadata,
    read_push_credentials,
    read_rate,
    read_secret,
    read_state,
    read_svc_param,
    read_time,
    read_timeout,
    read_transport,
    read_version,
    shown_duration,
)
from holdfast.policy.reconcile import OnUnknown
from holdfast.wire.bindings import BINDINGS, OLDER_VERSION, PROTOCOL_VERSION

__all__ = [
    "CARD",
    "DEFAULT_CONCURRENCY",
    "DEFAULT_POLL_INTERVAL",
    "DEFAULT_TIMEOUT",
    "EVERYWHERE",
    "EVERYWHERE_BRIEFLY",
    "EVERYWHERE_BUT_FILES",
    "EXAMINING",
    "HISTORY",
    "LINES",
    "LISTING",
    "METADATA",
    "OUTPUT_FORMATS",
    "PAGES",
    "POLLING",
    "PUSHING",
    "REPLY",
    "RESUMING",
    "RUNNING",
    "SAVING",
    "STREAMING",
    "WAITING",
    "with_options",
]

F = TypeVar("F", bound=Callable[..., Any])

OUTPUT_FORMATS = ("text", "json")
DEFAULT_TIMEOUT = 900.0
DEFAULT_TIMEOUT_OF_DOCTOR = 120.0
DEFAULT_CONCURRENCY = 32
DEFAULT_POLL_INTERVAL = 2.0


def _option(*names: str, **attributes: Any) -> Callable[[F], F]:
    variable = f"{PREFIX}{names[0].lstrip('-').replace('-', '_').upper()}"
    shared = {"variable": variable, "show_envvar": True, "show_default": True}
    return click.option(*names, cls=SettingOption, **{**shared, **attributes})


def _complete_transport(
    _ctx: click.Context, _param: click.Parameter, incomplete: str
) -> list[str]:
    return [name for name in BINDINGS if name.startswith(incomplete.upper())]


def _as_flag(value: object) -> str:
    return str(value).lower()


def _print_version(ctx: click.Context, _param: click.Parameter, value: object) -> None:
    if value and not ctx.resilient_parsing:
        click.echo(f"holdfast {__version__}")
        ctx.exit()


def _timeout(seconds: float) -> Callable[[F], F]:
    return _option(
        "--timeout",
        metavar="DURATION",
        type=Reads("duration", read_timeout),
        default=shown_duration(seconds),
        shown=shown_duration,
        help="How long to wait before giving up, as 30s or 1m30s.",
    )


TRUST = (
    _option(
        "--card-keys",
        metavar="REF",
        type=Reads("ref", read_id),
        shell_complete=complete_path,
        help="Keys that agent cards are signed with: a file with a JWK set, a JWK or a public key "
        "as PEM, or the https address of a JWK set. A card whose signature is wrong is refused.",
    ),
    _option(
        "--card-key-host",
        "card_key_hosts",
        multiple=True,
        metavar="HOST",
        type=Reads("host", read_id, r"[,\s]+"),
        help="Host, or origin, whose key sets count where the signature of a card names one "
        "(jku); can be repeated.",
    ),
    _option(
        "--require-signature",
        is_flag=True,
        shown=_as_flag,
        help="Refuse an agent whose card is not verified, before anything is sent to it.",
    ),
)
"""Options about the signatures of cards."""

CARD = (
    click.option(
        "--validate",
        is_flag=True,
        help="Check the card against the protocol's schema; what is wrong with it ends the "
        "command with an error.",
    ),
    click.option(
        "--extended",
        is_flag=True,
        help="Show the card for authenticated clients. Credentials are sent for it only where "
        "the public card declares a scheme that takes them.",
    ),
)

EVERYWHERE = (
    _option(
        "--agent-card",
        "-a",
        metavar="REF",
        type=Reads("ref", read_id),
        mask=masked_reference,
        shell_complete=complete_path,
        help="The agent, by its card: a host or origin (the well-known path is appended; a bare "
        "host is called over https, localhost over http), a card's URL, a file:// URL or a path.",
    ),
    _option(
        "--output",
        "-o",
        type=click.Choice(OUTPUT_FORMATS, case_sensitive=False),
        default="text",
        help="Output format: labelled lines, or one document of the protocol's own types.",
    ),
    _option(
        "--transport",
        multiple=True,
        metavar="BINDING",
        type=Reads("binding", read_transport, r"[,\s]+"),
        show_default="the order of the card",
        shell_complete=_complete_transport,
        help=f"Preferred binding ({', '.join(BINDINGS)}); can be repeated, best first. One that "
        "the card does not offer is skipped.",
    ),
    _option(
        "--a2a-version",
        metavar="VERSION",
        type=Reads("version", read_version),
        default=PROTOCOL_VERSION,
        help=f"Protocol version to speak: {PROTOCOL_VERSION}, or {OLDER_VERSION}, which is spoken "
        "only with this option, even where the card declares nothing else.",
    ),
    _option(
        "--bearer",
        metavar="TOKEN",
        type=Reads("token", read_bearer),
        mask=hidden,
        help="Bearer token. A flag shows in the process table and the shell's history; the "
        "environment variable does not.",
    ),
    _option(
        "--api-key",
        metavar="KEY",
        type=Reads("key", read_secret),
        mask=hidden,
        help="API key, sent the way the card declares, or as the header X-API-Key. A flag shows "
        "in the process table and the shell's history; the environment variable does not.",
    ),
    _option(
        "--svc-param",
        multiple=True,
        metavar="NAME:VALUE",
        type=Reads("name:value", read_svc_param),
        shown=":".join,
        mask=hidden_params,
        help="A2A service parameter to send with each request; can be repeated.",
    ),
    _option(
        "--insecure",
        is_flag=True,
        shown=_as_flag,
        help="Do not verify TLS certificates, as is done otherwise. For development only.",
    ),
    _timeout(DEFAULT_TIMEOUT),
    _option(
        "--config",
        metavar="PATH",
        type=Reads("path", read_id),
        is_eager=True,
        in_files=False,
        shell_complete=complete_path,
        help="Read settings from this .env file in place of the one in the working directory or "
        "above it.",
    ),
    _option(
        "--verbose",
        is_flag=True,
        shown=_as_flag,
        help="Show everything that was sent and received, not only the outcome.",
    ),
    _option(
        "--debug",
        is_flag=True,
        shown=_as_flag,
        help="Tell on stderr how it goes: what is sent and received, its times, retries. Never "
        "credentials.",
    ),
    click.option(
        "--version",
        "-v",
        is_flag=True,
        is_eager=True,
        expose_value=False,
        callback=_print_version,
        help="Show the version and exit.",
    ),
    *TRUST,
)
"""Options of every command; they can also stand before it."""

EVERYWHERE_BUT_FILES = (
    EVERYWHERE[0],
    _option(
        "-o",
        "output",
        variable=f"{PREFIX}OUTPUT",
        type=click.Choice(OUTPUT_FORMATS, case_sensitive=False),
        default="text",
        help="Output format: words, or a document. What --output names is JSON either way.",
    ),
    *EVERYWHERE[2:],
)
"""The same where ``--output`` names a file."""

EVERYWHERE_BRIEFLY = (*EVERYWHERE[:8], _timeout(DEFAULT_TIMEOUT_OF_DOCTOR), *EVERYWHERE[9:])
"""The same where nobody waits for a task."""

WAITING = (
    _option(
        "--async",
        "--no-wait",
        "--return-immediately",
        "asynchronous",
        is_flag=True,
        shown=_as_flag,
        help="Do not wait; return the identifiers at once.",
    ),
    _option(
        "--wait",
        "--watch",
        is_flag=True,
        shown=_as_flag,
        help="Wait until the task is over or needs somebody to act. Default of send and cancel.",
    ),
)
POLLING = (
    _option(
        "--poll-interval",
        metavar="DURATION",
        type=Reads("duration", read_duration),
        default=shown_duration(DEFAULT_POLL_INTERVAL),
        shown=shown_duration,
        help="How often to look at the task while waiting, where no stream tells of it; the first "
        "looks are quicker.",
    ),
)
REPLY = (
    _option(
        "--task-id",
        metavar="ID",
        type=Reads("id", read_id),
        help="Continue this task, for example one that waits for input.",
    ),
    _option(
        "--context-id",
        metavar="ID",
        type=Reads("id", read_id),
        help="Send in this context, which the agent named earlier.",
    ),
)
METADATA = (
    _option(
        "--metadata",
        metavar="JSON",
        type=Reads("json", read_metadata),
        shown=json.dumps,
        help="""JSON object to send along in the request, as '{"key": "value"}'.""",
    ),
)
HISTORY = (
    _option(
        "--history",
        metavar="N",
        type=click.IntRange(min=0),
        help="Show the task's last N messages.",
    ),
)


STREAMING = (
    click.option(
        "--stream",
        is_flag=True,
        help="Show what comes as it comes; with -o json as JSON Lines, one event on each. A flag "
        "only: no variable and no file sets it.",
    ),
)
LINES = (
    click.option(
        "--stream",
        is_flag=True,
        help="With -o json: write each object on one line. A flag only.",
    ),
)
"""The same flag where there is nothing to follow."""
LISTING = (
    REPLY[1],
    click.option(
        "--status",
        metavar="STATE",
        type=Reads("state", read_state),
        shell_complete=complete_state,
        help="Only tasks in this state, as working or TASK_STATE_WORKING.",
    ),
    click.option(
        "--since",
        metavar="TIME",
        type=Reads("time", read_time),
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
        type=Reads("token", read_id),
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
PUSHING = (
    _option(
        "--push-token",
        metavar="TOKEN",
        type=Reads("token", read_secret),
        mask=hidden,
        help="Token that the agent sends along as X-A2A-Notification-Token. A flag shows in the "
        "process table and the shell's history; the environment variable does not.",
    ),
    _option(
        "--push-credentials",
        metavar="'SCHEME CREDENTIALS'",
        type=Reads("credentials", read_push_credentials),
        mask=hidden,
        help="What the agent sends as Authorization, as in 'Bearer TOKEN'; Bearer alone leaves "
        "the token to the agent. For a flag the same goes as above.",
    ),
)
SAVING = (
    click.option(
        "--to",
        "directory",
        metavar="DIRECTORY",
        type=Reads("path", read_id),
        default=".",
        show_default="the working directory",
        shell_complete=complete_path,
        help="Where to save; made if it is not there.",
    ),
    click.option(
        "--overwrite", is_flag=True, help="Replace files that are there already by these names."
    ),
)

RUNNING = (
    click.option(
        "--input",
        "source",
        metavar="FILE",
        required=True,
        type=Reads("path", read_id),
        shell_complete=complete_path,
        help="Messages, one on each line; - for standard input, with --run-id.",
    ),
    click.option(
        "--output",
        "results",
        metavar="FILE",
        required=True,
        type=Reads("path", read_id),
        shell_complete=complete_path,
        help="Where results go, one on each line, behind those that are there; - for standard "
        "output.",
    ),
    click.option(
        "--journal",
        metavar="FILE",
        required=True,
        type=Reads("path", read_id),
        shell_complete=complete_path,
        help="The journal, a file of SQLite or its sqlite:/// address: each message is written "
        "down there before it is sent, and what came of it. Made if it is not there, readable to "
        "you alone; it grows until you remove it.",
    ),
    click.option(
        "--run-id",
        metavar="NAME",
        type=Reads("name", read_id),
        show_default="made from the path of the input",
        help="Name of the run in the journal: under the same one, it goes on. Another one knows "
        "nothing of what the first has under way. Where none is given, a line that another run "
        "has under way ends the command before anything is sent: the input may have been moved.",
    ),
    click.option(
        "--concurrency",
        metavar="N",
        type=click.IntRange(min=1),
        default=DEFAULT_CONCURRENCY,
        show_default=True,
        help="How many are under way at once.",
    ),
    click.option(
        "--rate",
        metavar="RATE",
        type=Reads("rate", read_rate),
        show_default="no bound",
        help="How many are begun at most, as 50/s, 3/min or 100/h; 50 is 50/s.",
    ),
    click.option(
        "--on-unknown",
        type=click.Choice(get_args(OnUnknown)),
        default="reconcile",
        show_default=True,
        help="What to do about a message whose reply is lost: look for the task that it made; "
        "report it as unknown at once; look, and send it again if there is none, which takes an "
        "agent whose list shows each task soon, with its messages; or send it again at once. The "
        "last two are for messages that may well be executed twice.",
    ),
    click.option(
        "--on-bad-line",
        type=click.Choice(["skip", "fail"]),
        default="fail",
        show_default=True,
        help="What to do about a line that is no message: leave it out, or send nothing that is "
        "behind it. Either way it is named on stderr.",
    ),
    click.option(
        "--retry-errors",
        is_flag=True,
        help="Take the results that are errors out of the output, and try their lines once more. "
        "What may have been executed is waited for or looked up, and not sent again; it is where "
        "--run-id names another run.",
    ),
    click.option(
        "--grace",
        metavar="DURATION",
        type=Reads("duration", read_grace),
        default="30s",
        show_default=True,
        help="How long to wait after Ctrl-C for what is under way.",
    ),
)
EXAMINING = (
    click.option(
        "--send",
        "sends",
        metavar="TEXT",
        help="Send this text as a message, once: the agent executes it. Shows how streams come, "
        "and what the agent keeps of messages.",
    ),
    click.option(
        "--twice",
        is_flag=True,
        help="With --send: send the same message, under the same id, once more at the end, to see "
        "whether the agent executes it again. Most do.",
    ),
)
RESUMING = (
    click.option(
        "--journal",
        metavar="FILE",
        required=True,
        type=Reads("path", read_id),
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
        type=Reads("id", read_id),
        help="Note that nobody wants to know what becomes of this call; nothing is sent.",
    ),
)


def with_options(*groups: Sequence[Callable[[Any], Any]]) -> Callable[[F], F]:
    """Adds groups of options to a command, in their order."""

    def add(function: F) -> F:
        for option in reversed([option for group in groups for option in group]):
            function = option(function)
        return function

    return add
