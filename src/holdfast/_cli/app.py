"""The command line: its commands, and how it is run."""

from __future__ import annotations

import contextlib
import os
import re
import sys
from typing import TYPE_CHECKING

import click

from holdfast._cli.errors import INTERRUPTED, CommandError, Failure, usage
from holdfast._cli.groups import LazyCommand, LazyGroup
from holdfast._cli.options.flags import (
    CONTEXT,
    EVERYWHERE,
    OUTPUT_FORMATS,
    version_line,
    with_options,
)
from holdfast._cli.options.parameters import (
    EQUIVALENTS,
    HintedUsageError,
    loaded_configuration,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from holdfast._cli.environment import CliEnvironment

__all__ = ["COMPLETE", "app", "run"]

COMPLETE = "_HOLDFAST_COMPLETE"
"""Environment variable of a shell's requests for completions."""

_AGENT, _MANY, _CHECK, _TOOL = "Agents", "Many messages", "Diagnosis and practice", "This tool"
_COMMANDS: Mapping[str, LazyCommand] = {
    "send": LazyCommand(
        "send:send",
        _AGENT,
        "Send a message and wait for the result; with --stream, show events as they arrive.",
    ),
    "chat": LazyCommand("send:chat", _AGENT, "Talk to an agent interactively, line by line."),
    "task": LazyCommand(
        "task:task",
        _AGENT,
        "Show, list, follow, cancel and download tasks; configure push notifications.",
    ),
    "card": LazyCommand("card:card", _AGENT, "Fetch and validate an agent's card."),
    "auth": LazyCommand(
        "auth:auth", _AGENT, "Log in to an agent with OAuth; later commands send its token."
    ),
    "run": LazyCommand(
        "run:run_lines",
        _MANY,
        "Send many messages from a file, each once; the same command resumes after a crash.",
    ),
    "run results": LazyCommand(
        "run:run_results",
        _MANY,
        "Print the result of each line of a run, in the order of the lines, from its journal.",
    ),
    "resume": LazyCommand(
        "run:resume",
        _MANY,
        "Resume the pending calls of a journal, and show the outcome of each.",
    ),
    "doctor": LazyCommand(
        "doctor:doctor",
        _CHECK,
        "Diagnose an agent: what is wrong, what it means for callers, and what to do.",
    ),
    "conformance": LazyCommand(
        "conformance:conformance",
        _CHECK,
        "Run the A2A TCK, the protocol's test kit, against an agent.",
    ),
    "demo-server": LazyCommand(
        "demo_server:demo_server", _CHECK, "Run a demo agent on this machine, until Ctrl-C."
    ),
    "server": LazyCommand(
        "demo_server:server",
        _CHECK,
        "The same as demo-server, under its name in the a2a-cli specification.",
    ),
    "config": LazyCommand(
        "config:config", _TOOL, "Show the settings in effect, and their sources."
    ),
    "completion": LazyCommand(
        "config:completion",
        _TOOL,
        "Print a completion script for SHELL: commands, options and their values.",
    ),
    "skill": LazyCommand(
        "skill:skill",
        _TOOL,
        "Install the Agent Skill, which teaches coding agents this command.",
    ),
    "help": LazyCommand(
        "config:show_help", _TOOL, "Show help for the tool, a command or a topic."
    ),
}
"""The commands; a test compares the summaries with the commands' own help."""
_EQUIVALENTS: Mapping[str, str] = {
    **dict.fromkeys(("ask", "call", "message", "invoke"), "send TEXT"),
    "stream": "send --stream TEXT",
    "get": "task get TASK_ID, or holdfast card get",
    "wait": "task get --wait TASK_ID",
    **dict.fromkeys(("subscribe", "watch", "follow"), "task subscribe --stream TASK_ID"),
    "cancel": "task cancel TASK_ID",
    "list": "task list",
    "download": "task download TASK_ID",
    "push": "task push-config receive TASK_ID",
    "pending": "resume --list --journal FILE",
    "batch": "run --input FILE --results FILE --journal FILE",
    "login": "auth login",
    "logout": "auth logout",
    **dict.fromkeys(("discover", "validate"), "card get --validate"),
    "check": "doctor",
    "version": "--version",
}
"""Commands of other tools, and words for a task, with the command that does it here."""


def run(arguments: Sequence[str], environment: CliEnvironment) -> int:
    """Run one command and return its exit code.

    Args:
        arguments: The command line after the program's name.
        environment: The environment of the command.
    """
    if sys.stdout is None:  # closed by the parent process; the answer would be lost
        return _cannot_write(OSError("it is closed"))
    in_lines = "--stream" in arguments
    try:
        code = app.main(
            args=list(arguments),
            prog_name="holdfast",
            complete_var=COMPLETE,
            standalone_mode=False,
            obj=environment,
        )
    except click.exceptions.NoArgsIsHelpError as error:
        failure = usage("Missing command.", error.ctx.command_path, instead=error.message)
        return _fail(_output_format(arguments, environment, error.ctx), failure, in_lines=in_lines)
    except click.UsageError as error:
        command = "holdfast" if error.ctx is None else error.ctx.command_path
        failure = usage(_message(error), command)
        if isinstance(error, HintedUsageError):
            failure = failure._replace(hint=error.hint)
        form = _output_format(arguments, environment, error.ctx)
        return _fail(form, failure, in_lines=in_lines, ctx=error.ctx)
    except CommandError as error:  # before there was a session to report it
        return _fail(
            _output_format(arguments, environment, None), error.failure, in_lines=in_lines
        )
    except (click.Abort, KeyboardInterrupt):
        return INTERRUPTED
    except BrokenPipeError:
        return _exit_for_closed_pipe()
    except OSError as error:  # all other such errors are reported already
        return _cannot_write(error)
    except SystemExit as end:  # click exits so after unread help, and after completions
        return _exit_for_closed_pipe() if end.code else 0
    return code if isinstance(code, int) else 0


def _fail(form: str, failure: Failure, *, in_lines: bool, ctx: click.Context | None = None) -> int:
    from holdfast._cli.execution import fail

    return fail(form, failure, in_lines=in_lines, ctx=ctx)


def _cannot_write(error: OSError) -> int:
    from holdfast._cli.execution import cannot_write

    return cannot_write(error)


def _exit_for_closed_pipe() -> int:
    from holdfast._cli.execution import exit_for_closed_pipe

    return exit_for_closed_pipe()


def _message(error: click.UsageError) -> str:
    """Return the error's text, without an option that only vaguely resembles the written one."""
    if isinstance(error, click.NoSuchOption):
        if (advice := _argument(error)) is not None:
            return f"No such option '{error.option_name}'. {advice}"
        options = {name for param in _options(error.ctx) for name in param.opts}
        equivalents = [name for name in EQUIVALENTS.get(error.option_name, ()) if name in options]
        if equivalents:
            return f"No such option '{error.option_name}'. {' or '.join(equivalents)} does that."
        from difflib import get_close_matches  # only mistakes need it

        similar = get_close_matches(error.option_name, error.possibilities or (), cutoff=0.75)
        error = click.NoSuchOption(error.option_name, possibilities=similar, ctx=error.ctx)
        if not similar and any(param.name == "words" for param in _options(error.ctx)):
            command = "" if error.ctx is None else error.ctx.command_path
            with_text = f"For a text that begins with -: {command} [OPTIONS] -- TEXT"
            return f"{error.format_message()} {with_text}"
    return _without_address(error)


def _argument(error: click.NoSuchOption) -> str | None:
    """Return how to pass a value that is an argument of the command; None if it is not one."""
    ctx, name = error.ctx, error.option_name.lstrip("-").replace("-", "_").upper()
    arguments = [param for param in _options(ctx) if isinstance(param, click.Argument)]
    names = [(param.metavar or param.human_readable_name).strip("[].") for param in arguments]
    if ctx is None or name not in names:
        return None
    place = ("first ", "second ", "third ")[names.index(name)] if len(names) > 1 else ""
    article = "the" if place else "an"
    return f"{name} is {article} {place}argument: {ctx.command_path} {' '.join(names)}"


def _without_address(error: click.UsageError) -> str:
    """Return the error's text; an address among extra arguments is answered with its option."""
    text = error.format_message()
    extra = re.fullmatch(r"Got unexpected extra arguments? \((.*)\)", text)
    if extra is None or all(param.name != "agent_card" for param in _options(error.ctx)):
        return text
    from holdfast._cli.options.masking import masked_address  # only mistakes need it

    address = next(filter(None, map(masked_address, extra[1].split())), None)
    command = "" if error.ctx is None else error.ctx.command_path
    return f"{command} takes no address; to name the agent: -a {address}" if address else text


def _options(ctx: click.Context | None) -> Sequence[click.Parameter]:
    return () if ctx is None else ctx.command.params


def _output_format(
    arguments: Sequence[str], environment: CliEnvironment, ctx: click.Context | None
) -> str:
    """Return the requested output format, even if other arguments are wrong."""
    format_name = _last_value(arguments, r"-o[\0=]?|--output[\0=]") or os.environ.get(
        "A2ACLI_OUTPUT"
    )
    if format_name is None:
        config = (
            _last_value(arguments, r"--config[\0=]") or os.environ.get("A2ACLI_CONFIG") or None
        )
        with contextlib.suppress(OSError, ValueError):
            configuration = loaded_configuration(ctx) or environment.read_configuration(config)
            stated = configuration.find("A2ACLI_OUTPUT")
            format_name = None if stated is None else stated.value
    form = (format_name or "").lower()
    return form if form in OUTPUT_FORMATS else OUTPUT_FORMATS[0]


def _last_value(arguments: Sequence[str], flags: str) -> str | None:
    """Return the last value of any of the flags."""
    values = re.findall(rf"(?:^|\0)(?:{flags})([^\0]*)", "\0".join(arguments))
    return values[-1] if values else None


@click.group(
    cls=LazyGroup,
    lazy=_COMMANDS,
    equivalents=_EQUIVALENTS,
    context_settings=CONTEXT,
    invoke_without_command=True,
    no_args_is_help=True,
    common=("version",),
    examples=(
        "holdfast demo-server             # in another terminal\n"
        "holdfast send -a localhost:9999 --stream 'Hello'\n"
        "holdfast help send\n"
        "holdfast help terms              # context, part, binding, journal and others\n"
        "holdfast help options            # that all commands take, and A2ACLI_* variables\n"
        "holdfast help exit-codes\n"
    ),
)
@with_options(EVERYWHERE)
@click.pass_context
def app(ctx: click.Context, /, **options: object) -> None:
    """Talk to agents over A2A, the Agent2Agent protocol."""
    if ctx.invoked_subcommand is not None:
        return
    if not options["verbose"]:
        ctx.fail("Missing command.")
    click.echo(version_line())  # other tools print their version for -v alone
