"""The options that commands share: their names, their parsers, their meaning.

Rules: a flag beats its environment variable, which beats a configuration file, which beats the
default (a2a-cli 6.5); the variable is named after the flag; an invalid value is a
usage error, found before anything is sent; no help text shows a secret.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import click

from holdfast._cli.options.masking import hidden, hidden_params, masked_reference
from holdfast._cli.options.parameters import Choice, ParsedParam, SharedFlag, complete_path
from holdfast._cli.options.parameters import setting_option as _option
from holdfast._cli.options.values import (
    SHORT_BINDINGS,
    read_bearer,
    read_duration,
    read_endpoint,
    read_extension,
    read_id,
    read_metadata,
    read_secret,
    read_svc_param,
    read_timeout,
    read_transport,
    read_version,
    shown_duration,
)
from holdfast._version import __version__
from holdfast._wire.versions import BINDINGS, OLDER_VERSION, PROTOCOL_VERSION

__all__ = [
    "AUTHORIZING",
    "CONTEXT",
    "DEFAULT_POLL_INTERVAL_S",
    "DEFAULT_TIMEOUT_S",
    "EVERYWHERE",
    "EVERYWHERE_BRIEFLY",
    "EVERYWHERE_BY_CALL",
    "HISTORY",
    "LINES",
    "MESSAGE_METADATA",
    "METADATA",
    "ON_UNKNOWN",
    "OUTPUT_FORMATS",
    "POLLING",
    "REPLY",
    "STREAMING",
    "WAITING",
    "WAITING_BY_COMMAND",
    "WAITING_ON_REQUEST",
    "version_line",
    "with_options",
]

F = TypeVar("F", bound=Callable[..., Any])

CONTEXT = {"help_option_names": ["-h", "--help"], "max_content_width": 100}
"""The click settings of every command."""

OUTPUT_FORMATS = ("text", "json")
DEFAULT_TIMEOUT_S = 900.0
DEFAULT_DOCTOR_TIMEOUT_S = 120.0
DEFAULT_POLL_INTERVAL_S = 2.0


def _complete_transport(
    _ctx: click.Context, _param: click.Parameter, incomplete: str
) -> list[str]:
    names = (*BINDINGS, *SHORT_BINDINGS)
    return [name for name in names if name.upper().startswith(incomplete.upper())]


def _print_version(ctx: click.Context, _param: click.Parameter, value: object) -> None:
    if value and not ctx.resilient_parsing:
        click.echo(version_line())
        ctx.exit()


def version_line() -> str:
    """Return the output of ``--version``."""
    return f"holdfast {__version__}"


_AGENT, _OUTPUT, _CREDENTIALS, _TRUST, _PROTOCOL, _SETTINGS = (
    "Agent",
    "Output",
    "Credentials",
    "TLS and signatures",
    "Protocol",
    "Settings",
)
"""The sections of ``holdfast help options``."""


def _timeout(
    seconds: float, what: str = "Time limit of the command, such as 30s or 1m30s."
) -> Callable[[F], F]:
    return _option(
        "--timeout",
        section=_OUTPUT,
        metavar="DURATION",
        type=ParsedParam("duration", read_timeout),
        default=shown_duration(seconds),
        shown=shown_duration,
        help=what,
    )


TRUST = (
    _option(
        "--card-keys",
        section=_TRUST,
        metavar="REF",
        type=ParsedParam("ref", read_id),
        shell_complete=complete_path,
        help="Keys that agent cards are signed with: a file with a JWK set, a JWK or a public key "
        "in PEM, or the https address of a JWK set. A card with a wrong signature is refused.",
    ),
    _option(
        "--card-key-host",
        "card_key_hosts",
        section=_TRUST,
        multiple=True,
        metavar="HOST",
        type=ParsedParam("host", read_id, r"[,\s]+"),
        help="Host or origin whose key set is trusted if the signature of a card names it "
        "(jku). Repeatable.",
    ),
    _option(
        "--require-signature",
        section=_TRUST,
        is_flag=True,
        help="Refuse an agent whose card has no verified signature, before anything is sent to "
        "it.",
    ),
)
"""Options about the signatures of cards."""


EVERYWHERE = (
    _option(
        "--agent-card",
        "-a",
        section=_AGENT,
        brief="The agent: host, URL or file of its card, or CATALOG#NAME.",
        metavar="REF",
        type=ParsedParam("ref", read_id),
        mask=masked_reference,
        shell_complete=complete_path,
        help="The agent, by its card: a host or origin (the well-known path is appended; a bare "
        "host is called over https, localhost over http), the URL of a card, a file:// URL or a "
        "path; or CATALOG#NAME, the agent NAME of a catalog: a JSON file of agents at a path or "
        "URL.",
    ),
    _option(
        "--endpoint",
        "-e",
        section=_AGENT,
        metavar="URL",
        type=ParsedParam("url", read_endpoint),
        mask=masked_reference,
        help="Address of an interface of the agent, instead of --agent-card; no card is fetched. "
        "--transport names the binding, unless the address begins with grpc:// or grpcs://.",
    ),
    _option(
        "--output",
        "-o",
        section=_OUTPUT,
        brief="Output format.",
        type=Choice(OUTPUT_FORMATS, case_sensitive=False),
        default="text",
        help="Output format: text is lines with labels, json one JSON document of the protocol's "
        "own types.",
    ),
    _option(
        "--transport",
        section=_PROTOCOL,
        brief="Preferred binding: jsonrpc, rest or grpc. Repeatable.",
        multiple=True,
        metavar="BINDING",
        type=ParsedParam("binding", read_transport, r"[,\s]+"),
        show_default="the card's order",
        shell_complete=_complete_transport,
        help=f"Preferred binding (wire format): {', '.join(BINDINGS)}, or for short jsonrpc, "
        "rest, grpc. Repeatable, best first. A binding that the card does not offer is skipped; "
        "if it offers none of them, its own order applies.",
    ),
    _option(
        "--a2a-version",
        section=_PROTOCOL,
        brief=f"Protocol version: {PROTOCOL_VERSION} or {OLDER_VERSION}.",
        metavar="VERSION",
        type=ParsedParam("version", read_version),
        show_default="the card's newest",
        help=f"Protocol version: {PROTOCOL_VERSION} or {OLDER_VERSION}. By "
        f"default, {OLDER_VERSION} is used, with a warning, if the card declares nothing newer.",
    ),
    _option(
        "--bearer",
        section=_CREDENTIALS,
        metavar="TOKEN",
        type=ParsedParam("token", read_bearer),
        mask=hidden,
        help="Bearer token. A flag shows in the process table and the shell's history; the "
        "environment variable does not.",
    ),
    _option(
        "--api-key",
        section=_CREDENTIALS,
        metavar="KEY",
        type=ParsedParam("key", read_secret),
        mask=hidden,
        help="API key, sent as the card declares, or as the header X-API-Key. A flag shows "
        "in the process table and the shell's history; the environment variable does not.",
    ),
    _option(
        "--svc-param",
        section=_PROTOCOL,
        multiple=True,
        metavar="NAME:VALUE",
        type=ParsedParam("name:value", read_svc_param),
        shown=":".join,
        mask=hidden_params,
        help="A2A service parameter, sent as a header with each request. Repeatable.",
    ),
    _option(
        "--insecure",
        section=_TRUST,
        is_flag=True,
        help="Do not verify TLS certificates; they are verified by default. For development only.",
    ),
    _timeout(DEFAULT_TIMEOUT_S),
    _option(
        "--config",
        section=_SETTINGS,
        metavar="PATH",
        type=ParsedParam("path", read_id),
        is_eager=True,
        shell_complete=complete_path,
        help="Read settings from this .env file instead of the one in the working directory or "
        "above it. A file that you own and that has mode 0600 may set everything that flags can.",
    ),
    _option(
        "--verbose",
        "-v",
        section=_OUTPUT,
        is_flag=True,
        help="Show everything that was sent and received, not only the outcome.",
    ),
    _option(
        "--debug",
        section=_OUTPUT,
        is_flag=True,
        help="Log requests, replies, durations and retries on stderr, without credentials.",
    ),
    _option(
        "--client-cert",
        section=_CREDENTIALS,
        metavar="PATH",
        type=ParsedParam("path", read_id),
        shell_complete=complete_path,
        help="PEM file of a client certificate (mutual TLS); it may contain the key. The password "
        "of the key is read from the environment: A2ACLI_CLIENT_KEY_PASSWORD.",
    ),
    _option(
        "--client-key",
        section=_CREDENTIALS,
        metavar="PATH",
        type=ParsedParam("path", read_id),
        shell_complete=complete_path,
        help="PEM file of the key of the client certificate.",
    ),
    _option(
        "--extension",
        section=_PROTOCOL,
        multiple=True,
        metavar="URI",
        type=ParsedParam("uri", read_extension, r"[,\s]+"),
        help="Protocol extension that your messages follow, declared with each request. "
        "Repeatable. An agent may require some.",
    ),
    click.option(
        "--version",
        cls=SharedFlag,
        is_flag=True,
        is_eager=True,
        expose_value=False,
        callback=_print_version,
        help="Show the version and exit.",
    ),
    *TRUST,
    _option(
        "--credential-origin",
        "credential_origins",
        section=_CREDENTIALS,
        multiple=True,
        metavar="ORIGIN",
        type=ParsedParam("origin", read_id, r"[,\s]+"),
        help="Origin or agent that may get credentials, even before its card is fetched. "
        "Repeatable. By default, credentials of the environment or of a file are sent to the "
        "agent that the same source names, and those of flags to the agent of the command.",
    ),
    _option(
        "--no-cache",
        section=_AGENT,
        is_flag=True,
        help="Fetch the agent's card again, and keep no copy of it. By default, cards are cached "
        "between commands as their headers allow, for a day at most.",
    ),
)
"""Options of every command; they are also valid before its name."""


def _with_timeout(timeout: Callable[[Any], Any]) -> Sequence[Callable[[Any], Any]]:
    """Return the options of every command with another time limit."""
    return (*EVERYWHERE[:9], timeout, *EVERYWHERE[10:])


EVERYWHERE_BRIEFLY = _with_timeout(_timeout(DEFAULT_DOCTOR_TIMEOUT_S))
"""The same for commands that do not wait for a task."""

EVERYWHERE_BY_CALL = _with_timeout(
    _timeout(
        DEFAULT_TIMEOUT_S,
        "Time limit of each call, which is a message and its result, such as 30s or 1m30s.",
    )
)
"""The same for commands that make more than one call."""

_ASYNC = _option(
    "--async",
    "--no-wait",
    "--return-immediately",
    "asynchronous",
    is_flag=True,
    help="Do not wait for the task: show its id and state at once.",
)


def _waiting(default: str) -> Sequence[Callable[[Any], Any]]:
    """Return the options about waiting for a task, with the default of ``--wait`` in words."""
    wait = _option(
        "--wait",
        "--watch",
        is_flag=True,
        show_default=default,
        help="Wait until the task ends or waits for a person.",
    )
    return (_ASYNC, wait)


WAITING = _waiting("true")
WAITING_ON_REQUEST = _waiting("false")
WAITING_BY_COMMAND = _waiting("true, except of task get")
POLLING = (
    _option(
        "--poll-interval",
        metavar="DURATION",
        type=ParsedParam("duration", read_duration),
        default=shown_duration(DEFAULT_POLL_INTERVAL_S),
        shown=shown_duration,
        help="Interval between queries of the task, if the agent has no stream for it; the first "
        "intervals are shorter.",
    ),
)
REPLY = (
    _option(
        "--task-id",
        metavar="ID",
        type=ParsedParam("id", read_id),
        help="Continue this task, for example one that waits for input.",
    ),
    _option(
        "--context-id",
        metavar="ID",
        type=ParsedParam("id", read_id),
        help="Send in this context: the id by which the agent groups related messages.",
    ),
)
AUTHORIZING = (
    click.option(
        "--through-auth",
        is_flag=True,
        help="If the task waits for authorization (AUTH_REQUIRED), show what the agent asks for "
        "and keep waiting, instead of ending.",
    ),
)
METADATA = (
    _option(
        "--metadata",
        metavar="JSON",
        type=ParsedParam("json", read_metadata),
        shown=json.dumps,
        help="""JSON object for the metadata of the request, such as '{"key": "value"}'.""",
    ),
)
MESSAGE_METADATA = (
    _option(
        "--message-metadata",
        metavar="JSON",
        type=ParsedParam("json", read_metadata),
        shown=json.dumps,
        help="JSON object for the metadata of the message.",
    ),
)
# The values are those of `OnUnknown`; to import that would cost more than the help of a command.
ON_UNKNOWN = click.option(
    "--on-unknown",
    type=Choice(("reconcile", "raise", "resend_if_absent", "resend")),
    default="reconcile",
    show_default=True,
    help="If the reply to a message is lost: search for its task (reconcile), report the outcome "
    "as unknown (raise), or send the message again, if there is no task (resend_if_absent) or at "
    "once (resend). The last two may execute it twice. Has no variable.",
)
HISTORY = (
    _option(
        "--history",
        metavar="N",
        type=click.IntRange(min=0),
        help="Show the last N messages of the task.",
    ),
)


STREAMING = (
    click.option(
        "--stream",
        is_flag=True,
        help="Show events as they arrive; with -o json, each is a JSON document on one line. Has "
        "no variable.",
    ),
)
LINES = (
    click.option(
        "--stream",
        is_flag=True,
        help="With -o json: write each JSON document on one line. Has no variable.",
    ),
)
"""The same flag for commands without a stream."""


def with_options(*groups: Sequence[Callable[[Any], Any]]) -> Callable[[F], F]:
    """Add groups of options to a command, in their order."""

    def add(function: F) -> F:
        for option in reversed([option for group in groups for option in group]):
            function = option(function)
        return function

    return add
