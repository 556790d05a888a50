"""Groups that import a command when it is used, and the help of all commands.

click formats help for at least 50 columns, and leaves a third of them to descriptions. On a narrow
terminal, each option has a line of its own here, with its description below it.
"""

from __future__ import annotations

import re
import shutil
import textwrap
from collections.abc import Mapping, MutableMapping
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import click

from holdfast._cli.options.parameters import HintedUsageError, SettingOption, SharedFlag

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from click.shell_completion import CompletionItem

__all__ = [
    "COMMON",
    "HelpContext",
    "HelpfulCommand",
    "HelpfulGroup",
    "LazyCommand",
    "LazyGroup",
    "shared_options_help",
]

_MIN_COLUMNS = 20
"""Columns for which help is formatted at least."""
_NARROW_COLUMNS = 60
"""Terminals of fewer columns show each description below its option."""
_NAME_COLUMNS = 12
"""Columns of the longest name that stays beside its description on a narrow terminal."""
_INDENT_COLUMNS = 4
"""Columns by which a description below its option is indented."""
_DEFAULT_IN_WORDS = re.compile(r"(default: )\(([^()]+)\)(?=[;\]])")
"""A default that click puts in parentheses, because it is not a value."""
_SUMMARY_CHARACTERS = 1_000
"""Characters of a command's description in the list of commands."""


class _Formatter(click.HelpFormatter):
    """Formats help for the width of the terminal."""

    def __init__(
        self, indent_increment: int = 2, width: int | None = None, max_width: int | None = None
    ) -> None:
        columns = shutil.get_terminal_size().columns
        if width is None and columns < _NARROW_COLUMNS:
            width = max(columns - 2, _MIN_COLUMNS)
        super().__init__(indent_increment, width, max_width)

    def write_dl(
        self, rows: Iterable[tuple[str, str]], col_max: int = 30, col_spacing: int = 2
    ) -> None:
        """Write options or commands, each with its description."""
        rows = [(name, _DEFAULT_IN_WORDS.sub(r"\1\2", text)) for name, text in rows]
        if self.width < _NARROW_COLUMNS - 2:
            col_max = _NAME_COLUMNS
            if any(len(name) > _NAME_COLUMNS for name, _ in rows):
                col_max = _INDENT_COLUMNS - col_spacing
                rows = [(self._broken(name), text) for name, text in rows]
        super().write_dl(rows, col_max, col_spacing)

    def write_text(self, text: str) -> None:
        """Write text; tables fit a narrow terminal (they begin with a backspace)."""
        if self.width < _NARROW_COLUMNS - 2:
            paragraphs = (
                self._rewrapped(paragraph) if paragraph.startswith("\b\n") else paragraph
                for paragraph in text.split("\n\n")
            )
            text = "\n\n".join(paragraphs)
        super().write_text(text)

    def _rewrapped(self, table: str) -> str:
        """Return a table whose rows are broken at the width of the terminal."""
        return "\n".join(
            textwrap.fill(
                re.sub(r"(?<=\S)\s{2,}", "  ", row),
                max(self.width - self.current_indent, _MIN_COLUMNS),
                subsequent_indent=" " * _INDENT_COLUMNS,
                break_on_hyphens=False,
            )
            if row.strip()
            else row
            for row in table.split("\n")
        )

    def _broken(self, name: str) -> str:
        """Return the name of an option, broken between its names and between its choices."""
        lines, width = [""], self.width - self.current_indent
        for piece in re.split(r"(?<=[ |])", name):
            if lines[-1] and len(lines[-1] + piece.rstrip()) > width:
                lines.append(" " * self.current_indent)
            lines[-1] += piece
        return "\n".join(line.rstrip() for line in lines)


class HelpContext(click.Context):
    """The context of a command whose help fits the terminal."""

    formatter_class = _Formatter


COMMON = (
    "agent_card",
    "output",
    "transport",
    "a2a_version",
    "timeout",
    "insecure",
    "verbose",
)
"""The shared options in the help of each command that calls an agent."""


class HelpfulCommand(click.Command):
    """A command whose help has its own options first, and examples at the end.

    The options that all commands take are described once, by ``holdfast help options``. The help
    of a command lists some of them, and those that the environment or a file sets.

    Args:
        args: The arguments of `click.Command`.
        examples: Command lines, one on each line.
        common: The shared options to list, by name.
        attributes: The keyword arguments of `click.Command`.
    """

    context_class = HelpContext

    def __init__(
        self,
        *args: Any,
        examples: str = "",
        common: Sequence[str] = COMMON,
        **attributes: Any,
    ) -> None:
        super().__init__(*args, **attributes)
        self._examples = textwrap.dedent(examples).strip("\n")
        self._common = common

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the command's own options, and some of those that all commands take."""
        own: list[tuple[str, str]] = []
        common: list[tuple[str, str]] = []
        for param in self.get_params(ctx):
            if isinstance(param, SettingOption | SharedFlag) and param.section:
                if param.name in self._common or param.is_stated(ctx):
                    common += filter(None, [param.brief_record(ctx)])
            elif isinstance(param, click.Option):
                is_help = param is self.get_help_option(ctx)
                (common if is_help else own).extend(filter(None, [param.get_help_record(ctx)]))
        sections = [("Options", own), ("Common options", common)]
        if not own or not self._common:
            sections = [("Options", own + common)]
        for title, rows in sections:
            with formatter.section(title):
                formatter.write_dl(rows)
        if self._common or isinstance(self, click.Group):
            formatter.write_paragraph()
            with formatter.indentation():
                formatter.write_text(_MORE_OPTIONS)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the examples."""
        super().format_epilog(ctx, formatter)
        if self._examples:
            with formatter.section("Examples"):
                formatter.write_text(f"\b\n{self._examples}")


_MORE_OPTIONS = "More options, variables: holdfast help options. Terms: holdfast help terms"


class HelpfulGroup(HelpfulCommand, click.Group):
    """A group of commands with such help.

    Args:
        args: The arguments of `click.Group`.
        common: The shared options to list, by name.
        equivalents: Commands of other tools, with what does the same here.
        attributes: The keyword arguments of `HelpfulCommand`.
    """

    command_class = HelpfulCommand
    group_class = type

    def __init__(
        self,
        *args: Any,
        common: Sequence[str] = (),
        equivalents: Mapping[str, str] | None = None,
        **attributes: Any,
    ) -> None:
        super().__init__(*args, common=common, **attributes)
        self._equivalents = equivalents or {}

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command that the arguments name.

        Raises:
            HintedUsageError: It is a command of other tools.
        """
        self.check_equivalents(ctx, args[0])
        return super().resolve_command(ctx, args)

    def check_equivalents(self, ctx: click.Context, name: str) -> None:
        """Refuse a command of other tools.

        Raises:
            HintedUsageError: It says what does the same here.
        """
        if not ctx.resilient_parsing and name in self._equivalents:
            raise HintedUsageError(
                f"No such command '{name}'.", ctx, hint=f"holdfast {self._equivalents[name]}"
            )

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands, and the options."""
        self.format_commands(ctx, formatter)
        super().format_options(ctx, formatter)


def _set_summary(command: click.Command) -> None:
    """Keep click from cutting off the description of a command in a list of commands."""
    command.short_help = command.get_short_help_str(_SUMMARY_CHARACTERS)
    if isinstance(command, click.Group) and not isinstance(command, LazyGroup):
        for below in command.commands.values():
            _set_summary(below)


class LazyCommand(NamedTuple):
    """A command that is not imported yet.

    Attributes:
        place: Its module below `holdfast._cli.commands`, a colon, and its name there.
        section: The section of the list of commands that has it.
        summary: The description in the list of commands: the first sentence of its help.
    """

    place: str
    section: str
    summary: str


class _Commands(MutableMapping[str, click.Command]):
    """The commands of a group by name; each is imported on first access."""

    def __init__(self, lazy: Mapping[str, LazyCommand]) -> None:
        self._lazy = lazy
        self._loaded: dict[str, click.Command] = {}

    def __getitem__(self, name: str) -> click.Command:
        if name not in self._loaded:
            module, _, attribute = self._lazy[name].place.partition(":")
            loaded = import_module(f"holdfast._cli.commands.{module}")
            self._loaded[name] = cast("click.Command", getattr(loaded, attribute))
            _set_summary(self._loaded[name])
        return self._loaded[name]

    def __setitem__(self, name: str, command: click.Command) -> None:
        self._loaded[name] = command

    def __delitem__(self, name: str) -> None:
        del self._loaded[name]

    def __iter__(self) -> Iterator[str]:
        return iter(dict.fromkeys((*self._lazy, *self._loaded)))

    def __len__(self) -> int:
        return len(self._lazy.keys() | self._loaded.keys())


class LazyGroup(HelpfulGroup):
    """A group whose list of commands and completions import none of them.

    Args:
        lazy: The commands by name.
        attributes: The arguments of `HelpfulGroup`.
    """

    def __init__(self, *, lazy: Mapping[str, LazyCommand], **attributes: Any) -> None:
        super().__init__(**attributes)
        self._lazy = lazy
        self.commands = _Commands(lazy)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command that the arguments name, by one word or by two."""
        if (name := " ".join(args[:2])) in self._lazy and args[1:]:
            args = [name, *args[2:]]
        return super().resolve_command(ctx, args)

    def format_commands(
        self,
        ctx: click.Context,  # noqa: ARG002  the base names it
        formatter: click.HelpFormatter,
    ) -> None:
        """Write the list of commands."""
        sections = dict.fromkeys(command.section for command in self._lazy.values())
        names = max(map(len, self._lazy))
        for section in sections:
            with formatter.section(section):
                formatter.write_dl(
                    [
                        (name.ljust(names), command.summary)
                        for name, command in self._lazy.items()
                        if command.section == section
                    ]
                )

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Return the commands and options that begin with a text."""
        from click.shell_completion import CompletionItem

        names = [name for name in self.list_commands(ctx) if name.startswith(incomplete)]
        items = [CompletionItem(name, help=self._lazy[name].summary) for name in names]
        return [*items, *click.Command.shell_complete(self, ctx, incomplete)]


def shared_options_help(ctx: click.Context, title: str, after: str) -> str:
    """Return the descriptions of the options that all commands take, by section.

    Args:
        ctx: The context of a command that has them all.
        title: The text before them.
        after: The text after them.
    """
    sections: dict[str, list[tuple[str, str]]] = {}
    for param in ctx.command.params:
        if isinstance(param, SettingOption | SharedFlag) and param.section:
            record = param.get_help_record(ctx)
            if record is not None:
                sections.setdefault(param.section, []).append(record)
    formatter = ctx.make_formatter()
    formatter.write_text(title)
    for section, rows in sections.items():
        with formatter.section(section):
            formatter.write_dl(rows)
    formatter.write_paragraph()
    formatter.write_text(after)
    return formatter.getvalue().rstrip("\n")
