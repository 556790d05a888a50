"""Commands about the tool itself: ``config``, ``completion`` and ``help``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from holdfast._cli.commands.auth import OAUTH
from holdfast._cli.commands.conformance import TCK
from holdfast._cli.commands.task import PUSHING
from holdfast._cli.environment import LOGINS
from holdfast._cli.groups import HelpContext
from holdfast._cli.options.flags import (
    CONTEXT,
    EVERYWHERE,
    HISTORY,
    MESSAGE_METADATA,
    METADATA,
    OUTPUT_FORMATS,
    POLLING,
    REPLY,
    WAITING,
    with_options,
)
from holdfast._cli.options.parameters import Choice, configuration_of, notices
from holdfast._cli.options.settings import effective

if TYPE_CHECKING:
    from holdfast._cli.environment import CliEnvironment

__all__ = ["completion", "config", "show_help"]


@click.group("config", context_settings=CONTEXT)
@with_options(EVERYWHERE)
def config(**_options: object) -> None:
    """Show the settings in effect."""


@config.command("show", context_settings=CONTEXT)
@with_options(
    EVERYWHERE,
    REPLY,
    METADATA,
    MESSAGE_METADATA,
    HISTORY,
    WAITING,
    POLLING,
    PUSHING,
    OAUTH,
    TCK,
)
@click.pass_context
def config_show(ctx: click.Context, /, **_options: object) -> None:
    """Show each setting as it is in effect, and where its value comes from.

    A flag beats the environment, which beats the local .env file (of the working directory or
    above it, or the one that --config names), which beats ~/.config/a2a-cli/.env, which beats the
    default. Nothing is changed: edit the files.

    A file that is yours and has mode 0600, at ~/.config/a2a-cli/.env or named by --config, decides
    every setting. Any other, such as one that is found in a working directory, may name the agent
    and say how output looks; beyond that it may only make a command stricter. What is ignored is
    named on stderr.
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


@click.command("completion", context_settings=CONTEXT)
@click.argument("shell", type=Choice(["bash", "fish", "zsh"]))
@click.pass_context
def completion(ctx: click.Context, /, shell: str) -> None:
    """Write a script with which SHELL completes commands, options and their values.

    For bash, put this into ~/.bashrc: eval "$(holdfast completion bash)". For zsh, into ~/.zshrc:
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
    return [name for name in names if name.startswith(incomplete)]


@click.command("help", context_settings=CONTEXT)
@click.argument("words", nargs=-1, metavar="[COMMAND]...", shell_complete=_complete_command)
@click.pass_context
def show_help(ctx: click.Context, words: tuple[str, ...]) -> None:
    """Show how to use the tool or a command."""
    above = ctx.find_root()
    command = above.command
    for word in words:
        child = command.get_command(above, word) if isinstance(command, click.Group) else None
        if child is None:
            message = f"No such command {' '.join(words)!r}."
            raise click.UsageError(message, ctx)
        command = child
        above = HelpContext(command, parent=above, info_name=word, **_help_settings())
    click.echo(command.get_help(above))


def _help_settings() -> dict[str, Any]:
    return dict(CONTEXT)
