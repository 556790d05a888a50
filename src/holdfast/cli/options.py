"""The options that commands share: what each is called, how it is read, what it means.

Rules: a flag beats its environment variable, which beats the default (a2a-cli 6.5); the variable
is named after the flag; a value that cannot be right is a usage error, found before anything is
sent; no help text shows a secret.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import click
from click.core import ParameterSource

from holdfast._version import __version__
from holdfast.cli.values import (
    Reads,
    read_duration,
    read_id,
    read_metadata,
    read_secret,
    read_svc_param,
    read_transport,
    read_version,
    shown_duration,
)
from holdfast.wire.bindings import BINDINGS, PROTOCOL_VERSION

if TYPE_CHECKING:
    from click.types import OptionHelpExtra

__all__ = [
    "EVERYWHERE",
    "HISTORY",
    "METADATA",
    "OUTPUT_FORMATS",
    "REPLY",
    "WAITING",
    "Settings",
    "read_settings",
    "with_options",
]

F = TypeVar("F", bound=Callable[..., Any])

OUTPUT_FORMATS = ("text", "json")
DEFAULT_TIMEOUT = 900.0
DEFAULT_POLL_INTERVAL = 2.0


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What every command is told.

    Attributes:
        agent_card: The reference, as written.
        bearer: A bearer token.
        api_key: An API key.
        svc_params: Service parameters (A2A 3.2.6), names in lower case.
        transports: Preferred bindings, best first.
        insecure: Whether certificates are left unverified.
        timeout: Seconds for the whole command.
        timeout_given: Whether the caller chose them.
        output: ``text`` or ``json``.
        verbose: Whether to show everything.
        debug: Whether to tell on stderr how it goes.
        waits: Whether to wait for the task; None leaves it to the command.
        poll_interval: Seconds between two looks.
    """

    agent_card: str
    bearer: str | None = field(default=None, repr=False)
    api_key: str | None = field(default=None, repr=False)
    svc_params: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    transports: tuple[str, ...] = ()
    insecure: bool = False
    timeout: float = DEFAULT_TIMEOUT
    timeout_given: bool = False
    output: Literal["text", "json"] = "text"
    verbose: bool = False
    debug: bool = False
    waits: bool | None = None
    poll_interval: float = DEFAULT_POLL_INTERVAL

    @property
    def has_credentials(self) -> bool:
        """Whether a credential flag or its variable is set."""
        return self.bearer is not None or self.api_key is not None


# ── Options ──────────────────────────────────────────────────────────────────────────────────


class _Option(click.Option):
    """An option that shows in its help what is in effect: the variable's value, if it is set."""

    def __init__(self, *args: Any, secret: bool = False, **attributes: Any) -> None:
        self._secret = secret
        super().__init__(*args, **attributes)

    def get_help_extra(self, ctx: click.Context) -> OptionHelpExtra:
        extra = super().get_help_extra(ctx)
        for variable in extra.get("envvars", ()):
            if value := os.environ.get(variable):
                extra["default"] = f"{'(secret)' if self._secret else value}, from {variable}"
        return extra


def _option(*names: str, secret: bool = False, **attributes: Any) -> Callable[[F], F]:
    variable = f"A2ACLI_{names[0].lstrip('-').replace('-', '_').upper()}"
    attributes = {"envvar": variable, "show_envvar": True, "show_default": True, **attributes}
    return click.option(*names, cls=_Option, secret=secret, **attributes)


def _print_version(ctx: click.Context, _param: click.Parameter, value: object) -> None:
    if value and not ctx.resilient_parsing:
        click.echo(f"holdfast {__version__}")
        ctx.exit()


EVERYWHERE = (
    _option(
        "--agent-card",
        "-a",
        metavar="REF",
        type=Reads("ref", read_id),
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
        help=f"Preferred binding ({', '.join(BINDINGS)}); can be repeated, best first.",
    ),
    _option(
        "--a2a-version",
        metavar="VERSION",
        type=Reads("version", read_version),
        default=PROTOCOL_VERSION,
        help="Protocol version to speak.",
    ),
    _option(
        "--bearer",
        metavar="TOKEN",
        type=Reads("token", read_secret),
        secret=True,
        help="Bearer token. A flag shows in the process table and the shell's history; the "
        "environment variable does not.",
    ),
    _option(
        "--api-key",
        metavar="KEY",
        type=Reads("key", read_secret),
        secret=True,
        help="API key, sent the way the card declares, or as the header X-API-Key. A flag shows "
        "in the process table and the shell's history; the environment variable does not.",
    ),
    _option(
        "--svc-param",
        multiple=True,
        metavar="NAME:VALUE",
        type=Reads("name:value", read_svc_param),
        secret=True,
        help="A2A service parameter to send with each request; can be repeated.",
    ),
    _option(
        "--insecure",
        is_flag=True,
        help="Do not verify TLS certificates. For development only.",
    ),
    _option(
        "--timeout",
        metavar="DURATION",
        type=Reads("duration", read_duration),
        default=shown_duration(DEFAULT_TIMEOUT),
        help="How long to wait before giving up, as 30s or 1m30s.",
    ),
    _option("--verbose", is_flag=True, help="Show everything that the agent said."),
    _option(
        "--debug",
        is_flag=True,
        help="Tell on stderr how it goes: requests, their times, retries. Never credentials.",
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
)
"""Options of every command; they can also stand before it."""

WAITING = (
    _option(
        "--async",
        "--no-wait",
        "--return-immediately",
        "asynchronous",
        is_flag=True,
        help="Do not wait; return the identifiers at once.",
    ),
    _option(
        "--wait",
        "--watch",
        is_flag=True,
        help="Wait until the task is over or needs somebody to act. Default of send and cancel.",
    ),
    _option(
        "--poll-interval",
        metavar="DURATION",
        type=Reads("duration", read_duration),
        default=shown_duration(DEFAULT_POLL_INTERVAL),
        help="How often to look while waiting; the first looks are quicker.",
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


def with_options(*groups: Sequence[Callable[[Any], Any]]) -> Callable[[F], F]:
    """Adds groups of options to a command, in their order."""

    def add(function: F) -> F:
        for option in reversed([option for group in groups for option in group]):
            function = option(function)
        return function

    return add


# ── Reading them together ────────────────────────────────────────────────────────────────────


def read_settings(ctx: click.Context) -> Settings:
    """Puts together what was written before and after the command's name.

    Raises:
        click.UsageError: Options contradict each other, or one is missing.
    """
    values, sources = _merged(ctx)
    if values.get("agent_card") is None:
        message = "Missing option '--agent-card' / '-a': name the agent."
        raise click.UsageError(message, ctx)
    return Settings(
        agent_card=values["agent_card"],
        bearer=values["bearer"],
        api_key=values["api_key"],
        svc_params=_no_repeats(ctx, values["svc_param"]),
        transports=tuple(dict.fromkeys(values["transport"])),
        insecure=values["insecure"],
        timeout=values["timeout"],
        timeout_given=sources["timeout"] is not ParameterSource.DEFAULT,
        output=values["output"],
        verbose=values["verbose"],
        debug=values["debug"],
        waits=_waits(ctx, values, sources),
        poll_interval=values.get("poll_interval", DEFAULT_POLL_INTERVAL),
    )


def _merged(ctx: click.Context) -> tuple[dict[str, Any], dict[str, ParameterSource | None]]:
    values: dict[str, Any] = dict(ctx.params)
    sources = {name: ctx.get_parameter_source(name) for name in values}
    above = ctx.parent
    while above is not None:
        for name, value in above.params.items():
            if above.get_parameter_source(name) is not ParameterSource.COMMANDLINE:
                continue
            if sources.get(name) is not ParameterSource.COMMANDLINE:
                values[name], sources[name] = value, ParameterSource.COMMANDLINE
            elif isinstance(value, tuple):
                values[name] = (*value, *values[name])
        above = above.parent
    return values, sources


def _waits(
    ctx: click.Context, values: Mapping[str, Any], sources: Mapping[str, ParameterSource | None]
) -> bool | None:
    """What ``--wait`` and ``--async`` say: a flag of one beats the variable of the other."""
    said = {
        True: sources.get("wait") if values.get("wait") else None,
        False: sources.get("asynchronous") if values.get("asynchronous") else None,
    }
    given = [waits for waits, source in said.items() if source is ParameterSource.COMMANDLINE]
    given = given or [waits for waits, source in said.items() if source is not None]
    if len(given) > 1:
        message = "--wait and --async contradict each other."
        raise click.UsageError(message, ctx)
    return given[0] if given else None


def _no_repeats(ctx: click.Context, pairs: Sequence[tuple[str, str]]) -> dict[str, str]:
    params = dict(pairs)
    if len(params) < len(pairs):
        message = "A service parameter is given twice with --svc-param."
        raise click.UsageError(message, ctx)
    return params
