"""Groups that import a command when it is used, and help that fits the terminal.

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

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from click.shell_completion import CompletionItem

__all__ = ["HelpContext", "LazyCommand", "LazyGroup", "fit_help"]

_MIN_COLUMNS = 20
"""Columns for which help is formatted at least."""
_NARROW_COLUMNS = 60
"""Terminals of fewer columns show each description below its option."""
_NAME_COLUMNS = 12
"""Columns of the longest name that stays beside its description on a narrow terminal."""
_INDENT_COLUMNS = 4
"""Columns by which a description below its option is indented."""
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
        rows = list(rows)
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


def fit_help(command: click.Command) -> None:
    """Make the help of a command, and of those below it, fit the terminal."""
    command.context_class = HelpContext
    command.short_help = command.get_short_help_str(
        _SUMMARY_CHARACTERS
    )  # click cuts it off otherwise
    if isinstance(command, click.Group) and not isinstance(command, LazyGroup):
        for below in command.commands.values():
            fit_help(below)


class LazyCommand(NamedTuple):
    """A command that is not imported yet.

    Attributes:
        place: Its module below `holdfast._cli.commands`, a colon, and its name there.
        summary: The description in the list of commands: the first sentence of its help.
    """

    place: str
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
            fit_help(self._loaded[name])
        return self._loaded[name]

    def __setitem__(self, name: str, command: click.Command) -> None:
        self._loaded[name] = command

    def __delitem__(self, name: str) -> None:
        del self._loaded[name]

    def __iter__(self) -> Iterator[str]:
        return iter(dict.fromkeys((*self._lazy, *self._loaded)))

    def __len__(self) -> int:
        return len(self._lazy.keys() | self._loaded.keys())


class LazyGroup(click.Group):
    """A group whose list of commands and completions import none of them.

    Args:
        lazy: The commands by name.
        attributes: The arguments of `click.Group`.
    """

    def __init__(self, *, lazy: Mapping[str, LazyCommand], **attributes: Any) -> None:
        super().__init__(**attributes)
        self._lazy = lazy
        self.commands = _Commands(lazy)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of commands."""
        rows = [(name, self._lazy[name].summary) for name in self.list_commands(ctx)]
        with formatter.section("Commands"):
            formatter.write_dl(rows)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Return the commands and options that begin with a text."""
        from click.shell_completion import CompletionItem

        names = [name for name in self.list_commands(ctx) if name.startswith(incomplete)]
        items = [CompletionItem(name, help=self._lazy[name].summary) for name in names]
        return [*items, *click.Command.shell_complete(self, ctx, incomplete)]
