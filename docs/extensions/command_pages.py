"""The page of the command line, from the commands themselves.

A page has a fence ``{command-line}``. It becomes a section for the options that every command
takes, and one for each command, with its own options.
"""

from __future__ import annotations

import inspect
import re
from itertools import groupby

import click
from click.testing import CliRunner

from holdfast._cli.app import app as command_line

_FENCE = "```{command-line}\n```"
_FLAG = re.compile(r"(?<![\w-])(--?[a-z][a-z-]*)")
_MARKUP = re.compile(r"([\\`*_<>\[\]$#|{}])")


def setup(app):
    app.connect("source-read", _write_commands)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def _write_commands(_app, _docname, source):
    if _FENCE in source[0]:
        source[0] = source[0].replace(_FENCE, "\n".join(_commands()))


def _commands():
    context = click.Context(command_line, info_name="holdfast", resilient_parsing=True)
    yield from ("## Options of every command", "")
    for section, options in groupby(
        _shared(command_line), key=lambda option: option.section
    ):
        yield from (f"### {section}", "")
        yield from _options(options, context)
    yield from ("## Exit codes", "", "```text")
    yield CliRunner().invoke(command_line, ["help", "exit-codes"]).output.strip()
    yield from ("```", "", "## Terms", "", "```text")
    yield CliRunner().invoke(command_line, ["help", "terms"]).output.strip()
    yield from ("```", "", "## Commands", "")
    for command, below in _all_commands(command_line, context):
        yield from _command(command, below)


def _shared(command):
    """Return the options that all commands take, by section."""
    sections = {}
    for parameter in command.params:
        if section := getattr(parameter, "section", None):
            sections.setdefault(section, []).append(parameter)
    return [option for options in sections.values() for option in options]


def _all_commands(group, context):
    """Yield each command below a group, and the groups among them, with their contexts."""
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        below = click.Context(
            command, info_name=name, parent=context, resilient_parsing=True
        )
        if not command.hidden:
            yield command, below
            if isinstance(command, click.Group):
                yield from _all_commands(command, below)


def _command(command, context):
    path = context.command_path
    yield from (
        f"### {path}",
        "",
        "```text",
        command.get_usage(context).removeprefix("Usage: "),
    )
    yield from ("```", "")
    yield from _texts(command.help or "")
    if isinstance(command, click.Group):
        below = [f"{path} {name}" for name in command.list_commands(context)]
        yield from (f"- [`{each}`](#{each.replace(' ', '-')})" for each in below)
        yield ""
    own = [each for each in command.params if not getattr(each, "section", None)]
    yield from _options(
        (each for each in own if isinstance(each, click.Option)), context
    )
    formatter = click.HelpFormatter(width=100)
    command.format_epilog(context, formatter)
    before, _, examples = formatter.getvalue().partition("Examples:\n")
    yield from _texts(before)
    if examples:
        yield from ("```text", inspect.cleandoc(f"\n{examples}"), "```", "")


def _texts(text):
    """Yield the paragraphs of a help text; those after a backspace keep their lines."""
    for paragraph in inspect.cleandoc(text).split("\n\n"):
        if paragraph.startswith("\b"):
            yield from ("```text", paragraph.removeprefix("\b").strip("\n"), "```", "")
        elif paragraph:
            yield from (_escaped(paragraph), "")


def _options(options, context):
    """Yield a list of options: their names, what they do, their variables and defaults."""
    for option in options:
        if option.hidden:
            continue
        value = (
            "" if option.is_flag or option.count else f" {option.make_metavar(context)}"
        )
        # The method of the library shows no value that this machine's settings have.
        extra = click.Option.get_help_extra(option, context)
        details = [f"Variable: `{name}`." for name in extra.get("envvars", ())]
        if default := extra.get("default"):
            details.append(f"Default: {_escaped(default.strip('()'))}.")
        text = " ".join([_escaped(option.help or ""), *details])
        yield from (
            f"`{', '.join(option.opts)}{value}`",
            f": {' '.join(text.split())}",
            "",
        )


def _escaped(text):
    """Return a help text as Markdown, with flags as code."""
    return _FLAG.sub(r"`\1`", _MARKUP.sub(r"\\\1", text))
