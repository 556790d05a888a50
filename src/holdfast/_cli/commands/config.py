"""Commands about the tool itself: ``config``, ``completion`` and ``help``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from holdfast._cli.commands.auth import OAUTH
from holdfast._cli.commands.conformance import TCK
from holdfast._cli.commands.task import PUSHING
from holdfast._cli.environment import LOGINS
from holdfast._cli.groups import HelpContext, HelpfulCommand, HelpfulGroup, shared_options_help
from holdfast._cli.options.flags import (
    CONTEXT,
    EVERYWHERE,
    HISTORY,
    MESSAGE_METADATA,
    METADATA,
    OUTPUT_FORMATS,
    POLLING,
    REPLY,
    WAITING_BY_COMMAND,
    with_options,
)
from holdfast._cli.options.parameters import Choice, configuration_of, notices
from holdfast._cli.options.settings import effective

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from holdfast._cli.environment import CliEnvironment

__all__ = ["completion", "config", "show_help"]


@click.group(
    "config",
    cls=HelpfulGroup,
    context_settings=CONTEXT,
    equivalents=dict.fromkeys(("get", "list"), "config show"),
)
@with_options(EVERYWHERE)
def config(**_options: object) -> None:
    """Show the settings in effect, and their sources."""


@config.command(
    "show",
    context_settings=CONTEXT,
    common=("output", "config"),
)
@with_options(
    EVERYWHERE,
    REPLY,
    METADATA,
    MESSAGE_METADATA,
    HISTORY,
    WAITING_BY_COMMAND,
    POLLING,
    PUSHING,
    OAUTH,
    TCK,
)
@click.pass_context
def config_show(ctx: click.Context, /, **_options: object) -> None:
    """Show each setting in effect, and the source of its value.

    A flag takes precedence over the environment, then comes the local .env file (in the working
    directory or above it, or the one of --config), then ~/.config/a2a-cli/.env, then the default.
    To change a setting, edit the file.

    A file that you own and that has mode 0600, at ~/.config/a2a-cli/.env or named by --config, may
    set everything. Any other file, such as one found in a working directory, may name the agent
    and set the output format; beyond that it may only make a command stricter. Ignored lines are
    reported on stderr.
    """
    from holdfast._cli.output import output_for
    from holdfast._cli.output.base import Notice, SettingsShown

    settings, configuration = list(effective(ctx)), configuration_of(ctx)
    form = next(setting.value for setting in settings if setting.name == "output")
    output = output_for(form or OUTPUT_FORMATS[0])
    logins, problems = _logins(ctx.obj)
    output.emit(SettingsShown(settings, configuration, logins))
    for problem in problems:
        output.emit(Notice.warning(problem))
    for notice in notices(ctx, configuration, every=True):
        output.emit(Notice.warning(notice))


def _logins(environment: CliEnvironment) -> tuple[dict[str, str], list[str]]:
    """Return the files of the user's logins by agent, and the problems with them."""
    try:
        home = environment.home()
    except (OSError, RuntimeError):  # there is no home directory
        return {}, []
    if not home.joinpath(*LOGINS).is_dir():
        return {}, []
    from holdfast._cli.agent.login_store import Logins  # requires an extra

    store = Logins(home)
    logins, problems = store.all()
    return {login.agent: str(store.path(login.agent)) for login in logins}, problems


@click.command("completion", cls=HelpfulCommand, context_settings=CONTEXT, common=())
@click.argument("shell", type=Choice(["bash", "fish", "zsh"]))
@click.pass_context
def completion(ctx: click.Context, /, shell: str) -> None:
    """Print a completion script for SHELL: commands, options and their values.

    For bash, add this line to ~/.bashrc: eval "$(holdfast completion bash)". For zsh, to ~/.zshrc:
    eval "$(holdfast completion zsh)". For fish: holdfast completion fish >
    ~/.config/fish/completions/holdfast.fish
    """
    from click.shell_completion import get_completion_class

    from holdfast._cli.app import COMPLETE

    kind = get_completion_class(shell)
    if kind is not None:
        click.echo(kind(ctx.find_root().command, {}, "holdfast", COMPLETE).source())


def _complete_command(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    """Return the commands below those that are written already."""
    command: click.Command | None = ctx.find_root().command
    for word in ctx.params.get("words") or ():
        command = command.get_command(ctx, word) if isinstance(command, click.Group) else None
    names = command.list_commands(ctx) if isinstance(command, click.Group) else []
    names += [] if ctx.params.get("words") else _TOPICS
    return [name for name in names if name.startswith(incomplete)]


@click.command(
    "help",
    cls=HelpfulCommand,
    context_settings=CONTEXT,
    common=(),
    examples=("holdfast help send\nholdfast help task push-config\nholdfast help options\n"),
)
@click.argument("words", nargs=-1, metavar="[COMMAND]...", shell_complete=_complete_command)
@click.pass_context
def show_help(ctx: click.Context, words: tuple[str, ...]) -> None:
    """Show help for the tool, a command or a topic.

    Topics: options (the options that all commands take, and their variables and files), terms
    (the terms of the protocol and of this tool), exit-codes.
    """
    above = ctx.find_root()
    command = above.command
    if len(words) == 1 and (topic := _TOPICS.get(words[0])) is not None:
        click.echo(topic(HelpContext(command, obj=ctx.obj, **_help_settings())))
        return
    remaining = list(words)
    while remaining:
        word, child = remaining.pop(0), None
        if isinstance(command, click.Group):
            if remaining and f"{word} {remaining[0]}" in command.commands:
                word += f" {remaining.pop(0)}"
            child = command.get_command(above, word)
        if child is None:
            if isinstance(command, HelpfulGroup):
                command.check_equivalents(ctx, word)
            message = f"No such command {' '.join(words)!r}."
            raise click.UsageError(message, ctx)
        command = child
        above = HelpContext(command, parent=above, info_name=word, **_help_settings())
    click.echo(command.get_help(above))


def _help_on_options(ctx: click.Context) -> str:
    return shared_options_help(
        ctx,
        "Options that all commands take, before or after the command's name:",
        "Each can also be set by the environment variable in its description, or by a line with "
        "that name in a .env file: in the working directory or above it, or in "
        "~/.config/a2a-cli/.env. The names begin with A2ACLI_, the prefix of the a2a-cli "
        "specification, so that they work with every command that follows it. A flag takes "
        "precedence over the environment, which takes precedence over files. holdfast config show "
        "lists the values in effect; holdfast config show --help says which settings each file "
        "may set.",
    )


def _help_on_exit_codes(ctx: click.Context) -> str:
    formatter = ctx.make_formatter()
    formatter.write_text("Exit codes of all commands:")
    with formatter.indentation():
        formatter.write_dl(_EXIT_CODES)
    formatter.write_paragraph()
    formatter.write_text(
        "If a task failed, the exit code is still 0, because the command itself succeeded: the "
        "state in the output says how the task ended."
    )
    formatter.write_paragraph()
    formatter.write_text(
        "The code of an error is more precise: the page Command line of the documentation lists "
        "all codes, each with its exit code."
    )
    return formatter.getvalue().rstrip("\n")


def _help_on_terms(ctx: click.Context) -> str:
    formatter = ctx.make_formatter()
    formatter.write_text("Terms of the protocol and of this tool:")
    with formatter.indentation():
        formatter.write_dl(_TERMS)
    return formatter.getvalue().rstrip("\n")


_TERMS = [
    ("A2A", "the Agent2Agent protocol, by which programs call agents (https://a2a-protocol.org)"),
    (
        "agent card",
        "the JSON document in which an agent describes itself: name, skills, addresses",
    ),
    ("catalog", "a JSON file with several agents; CATALOG#NAME is the agent NAME of it"),
    ("interface", "an address of an agent, with the binding and the protocol version it speaks"),
    ("binding", "how requests are written on the wire: JSON-RPC, HTTP+JSON (rest) or gRPC"),
    ("message", "what you send to an agent, or what it replies; it has one or more parts"),
    ("part", "a text, a file or JSON data in a message or an artifact"),
    ("task", "the agent's work on a message, with a state and an id; it may ask for input"),
    ("artifact", "a result of a task: texts, files, data"),
    ("context", "an id, assigned by the agent, that groups related messages and tasks"),
    ("service parameter", "a value that an agent expects in a header of each request"),
    ("extension", "an addition to the protocol, named by a URI, that a card declares"),
    ("push notification", "an HTTP request by which the agent reports events of a task to a URL"),
    (
        "journal",
        "a file or database that records each message before it is sent, and its outcome",
    ),
    ("key", "a name that you give to a message in a journal: it is executed at most once"),
    ("TCK", "the protocol's own test kit for agents, a separate download"),
]
_EXIT_CODES = [
    ("0", "success"),
    ("1", "the command failed for a reason that has no exit code of its own"),
    (
        "2",
        (
            "wrong usage, or an input file (--file, --data, run --input) that cannot be read; "
            "nothing was sent"
        ),
    ),
    (
        "3",
        (
            "the agent cannot be reached, or there is no card: the card's file or the catalog "
            "does not exist, the catalog has no such agent, or the server has no card at the "
            "address"
        ),
    ),
    ("4", "authentication failed"),
    ("5", "timeout"),
    ("6", "the key of send --key was used for another message or agent; nothing was sent"),
    ("130", "interrupted by Ctrl-C"),
    ("141", "the reader of the output closed it (SIGPIPE)"),
    ("143", "terminated by SIGTERM"),
]
_TOPICS: Mapping[str, Callable[[click.Context], str]] = {
    "options": _help_on_options,
    "terms": _help_on_terms,
    "exit-codes": _help_on_exit_codes,
}


def _help_settings() -> dict[str, Any]:
    return dict(CONTEXT)
