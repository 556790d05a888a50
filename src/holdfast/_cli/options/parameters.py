"""An option whose value may come from a flag, the environment or a configuration file."""

from __future__ import annotations

import copy
import os
import re
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeVar, cast

import click
from click.core import ParameterSource

from holdfast._cli.options.configuration import (
    DEFAULT,
    ENVIRONMENT,
    FLAG,
    PREFIX,
    RULES,
    looks_like_setting,
    rule_of,
)
from holdfast._cli.options.values import did_you_mean, read_switch, state_names
from holdfast._model.extras import install_hint

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from click.shell_completion import CompletionItem
    from click.types import OptionHelpExtra

    from holdfast._cli.environment import CliEnvironment
    from holdfast._cli.options.configuration import Configuration, FileSetting, Ignored, Source

__all__ = [
    "EQUIVALENTS",
    "Choice",
    "HintedUsageError",
    "MissingAgentError",
    "MissingExtraError",
    "ParsedParam",
    "SettingOption",
    "SharedFlag",
    "complete_path",
    "complete_state",
    "configuration_of",
    "loaded_configuration",
    "notices",
    "setting_beside",
    "setting_option",
    "value_of",
    "variable_of",
]

F = TypeVar("F", bound="Callable[..., Any]")

_CONFIGURATION = "holdfast._cli.options.parameters.configuration"
_CREDENTIALS = ("--bearer", "--api-key")
EQUIVALENTS: Mapping[str, tuple[str, ...]] = {
    "--auth": _CREDENTIALS,
    "--auth-token": ("--bearer",),
    "--bearer-token": ("--bearer",),
    "--token": ("--bearer",),
    "--key": ("--api-key",),
    "--header": ("--svc-param",),
    "--headers": ("--svc-param",),
    "-H": ("--svc-param",),
    "--url": ("--agent-card", "--endpoint"),
    "--agent": ("--agent-card",),
    "--agent-url": ("--agent-card", "--endpoint"),
    "--card": ("--agent-card",),
    "--format": ("--output",),
    "--json": ("--output",),
    "--no-verify": ("--insecure",),
}
"""Options of other tools, with the option that does the same here."""
_MAX_UNKNOWN_NAMES = 50
"""Maximum number of unknown names to report; a file may have thousands."""


class HintedUsageError(click.UsageError):
    """A wrong command line, with the command that is meant.

    Args:
        message: What is wrong.
        ctx: The command's context.
        hint: What to do about it.

    Attributes:
        hint: As given.
    """

    def __init__(self, message: str, ctx: click.Context | None, *, hint: str) -> None:
        super().__init__(message, ctx)
        self.hint = hint


class MissingExtraError(HintedUsageError):
    """A command needs an extra that is not installed; the hint is how to install it.

    Args:
        feature: What needs the extra.
        extra: The name of the extra.
    """

    def __init__(self, feature: str, extra: str) -> None:
        super().__init__(
            f"{feature} needs the extra {extra!r}, which is not installed; nothing was sent.",
            None,
            hint=install_hint(extra),
        )


class MissingAgentError(HintedUsageError):
    """A command needs an agent, and no setting names one; the hint says how to name it.

    Args:
        ctx: The command's context.
    """

    def __init__(self, ctx: click.Context) -> None:
        super().__init__(
            "Missing option '--agent-card' / '-a': name the agent.",
            ctx,
            hint=f"{ctx.command_path} -a URL, or set A2ACLI_AGENT_CARD=URL; holdfast demo-server "
            "starts an agent to try, at localhost:9999",
        )


class SettingOption(click.Option):
    """An option whose value may also come from the environment or a configuration file.

    Args:
        args: The arguments of `click.Option`.
        variable: The environment variable.
        shown: Formats a value as the environment would have it.
        mask: Removes secrets from a written value.
        section: The section of ``holdfast help options`` that has it, if all commands take it.
        brief: Its description in the help of each command; the whole one if left out.
        attributes: The keyword arguments of `click.Option`.

    Attributes:
        variable: As given.
        section: As given.
    """

    def __init__(
        self,
        *args: Any,
        variable: str,
        shown: Callable[[Any], str] = str,
        mask: Callable[[str], str] = str,
        section: str | None = None,
        brief: str | None = None,
        **attributes: Any,
    ) -> None:
        self.variable = variable
        self.section = section
        self._brief = brief
        self._shown = shown
        self._mask = mask
        if attributes.get("is_flag"):
            attributes["type"] = _Switch()
            self._shown = _shown_switch
        super().__init__(*args, envvar=variable, **attributes)

    def resolve_envvar_value(self, ctx: click.Context) -> str | None:
        """Return the value of the environment, else of a file; neither before a command's name."""
        value = super().resolve_envvar_value(ctx)
        if value is not None or ctx.resilient_parsing or isinstance(ctx.command, click.Group):
            return value
        stated = self._stated(ctx)
        return None if stated is None else stated.value

    def source(self, ctx: click.Context) -> Source:
        """Return the source of the value."""
        match ctx.get_parameter_source(self.name or ""):
            case ParameterSource.COMMANDLINE:
                return FLAG
            case ParameterSource.ENVIRONMENT:
                stated = self._stated(ctx)
                return ENVIRONMENT if stated is None else stated.source
            case _:
                return DEFAULT

    def show(self, value: Any) -> str | None:
        """Return a value for people to read; None if it is not set."""
        if value is None or value == ():
            return None
        values = cast("tuple[Any, ...]", value if isinstance(value, tuple) else (value,))
        return ", ".join(self._mask(self._shown(item)) for item in values)

    def get_help_extra(self, ctx: click.Context) -> OptionHelpExtra:
        """Show the effective value as the default."""
        extra = super().get_help_extra(ctx)
        value, source_name = os.environ.get(self.variable), self.variable
        if not value:
            try:
                stated = self._stated(ctx)
            except click.UsageError:  # help is shown even if a file is wrong
                stated = None
            if stated is not None:
                value, source_name = stated.value, str(stated.source.path)
        if value:
            from holdfast._cli.output.sanitizer import clean_line

            extra["default"] = clean_line(f"{self._mask(value)}, from {source_name}")
        return extra

    def is_stated(self, ctx: click.Context) -> bool:
        """Return whether the environment or a file has a value."""
        try:
            return bool(os.environ.get(self.variable) or self._stated(ctx))
        except click.UsageError:  # help is shown even if a file is wrong
            return False

    def brief_record(self, ctx: click.Context) -> tuple[str, str] | None:
        """Return the names, and a short description with the default or the stated value."""
        short = copy.copy(self)
        short.help = self._brief or self.help
        short.show_envvar = self.is_stated(ctx)
        return short.get_help_record(ctx)

    def get_error_hint(self, ctx: click.Context | None) -> str:
        """Name a wrong value's source, as it is written there."""
        source = DEFAULT if ctx is None else self.source(ctx)
        if source is FLAG:
            return click.Parameter.get_error_hint(self, ctx)  # without the variable
        if source is DEFAULT:
            return super().get_error_hint(ctx)
        return self.written(source)

    def written(self, source: Source) -> str:
        """Return how a value is written in its source, for people to find it."""
        if source is ENVIRONMENT:
            return f"{self.variable} in the environment"
        return self.opts[0] if source.path is None else f"{self.variable} in {source.location}"

    @property
    def otherwise(self) -> str | None:
        """Return the effect of no value, in words; None for none."""
        return self.show_default if isinstance(self.show_default, str) else None

    @property
    def default_text(self) -> str | None:
        """Return the default as a file would have it; None for none, or a switch that is off."""
        default: object = self.default
        return default if isinstance(default, str) else None

    def _stated(self, ctx: click.Context) -> FileSetting | None:
        """Return the value of a file, unless the environment has one; an empty variable counts."""
        if self.variable in os.environ:
            return None
        return configuration_of(ctx).find(self.variable, self.default_text)


class SharedFlag(click.Option):
    """A flag of all commands that is not a setting.

    Attributes:
        section: The section of ``holdfast help options`` that has it.
    """

    section = "Output"

    def is_stated(self, _ctx: click.Context) -> bool:
        """Return whether the environment or a file has a value: it cannot."""
        return False

    def brief_record(self, ctx: click.Context) -> tuple[str, str] | None:
        """Return the names, and the description."""
        return self.get_help_record(ctx)


def variable_of(flag: str) -> str:
    """Return the environment variable of an option."""
    return f"{PREFIX}{flag.lstrip('-').replace('-', '_').upper()}"


def setting_option(*names: str, **attributes: Any) -> Callable[[F], F]:
    """Return an option whose environment variable is named after its flag.

    Args:
        names: The flag, and its other names.
        attributes: The keyword arguments of `SettingOption`.
    """
    variable = variable_of(names[0])
    shared = {"variable": variable, "show_envvar": True, "show_default": True}
    return click.option(*names, cls=SettingOption, **{**shared, **attributes})


class _Switch(click.types.BoolParamType):
    """A flag whose variable or file may state it in words."""

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> bool:
        try:
            return value if isinstance(value, bool) else read_switch(str(value))
        except ValueError as error:
            self.fail(str(error), param, ctx)


def _shown_switch(value: object) -> str:
    return str(value).lower()


def configuration_of(ctx: click.Context) -> Configuration:
    """Return the configuration files, which are read once, for the first option that asks.

    Raises:
        click.UsageError: The file that the caller named cannot be read.
    """
    named_file = _named_file(ctx)
    cached: tuple[str | None, Configuration] | None = ctx.meta.get(_CONFIGURATION)
    if cached is None or cached[0] != named_file:
        cached = ctx.meta[_CONFIGURATION] = named_file, _read_files(ctx, named_file)
    return cached[1]


def value_of(ctx: click.Context, variable: str) -> tuple[str | None, Source]:
    """Return a setting without a flag, from the environment or a file, and its source."""
    if variable in os.environ:
        return os.environ[variable] or None, ENVIRONMENT
    stated = configuration_of(ctx).find(variable)
    return (None, DEFAULT) if stated is None else (stated.value, stated.source)


def setting_beside(ctx: click.Context, source: Source, variable: str) -> str | None:
    """Return another setting from the same source; None for a flag."""
    if source is ENVIRONMENT:
        return os.environ.get(variable) or None
    return None if source.path is None else configuration_of(ctx).value_beside(source, variable)


def loaded_configuration(ctx: click.Context | None) -> Configuration | None:
    """Return the configuration, if it was read; a pipe can be read only once."""
    cached = None if ctx is None else ctx.meta.get(_CONFIGURATION)
    return None if cached is None else cached[1]


def notices(
    ctx: click.Context, configuration: Configuration, *, every: bool = False
) -> Iterator[str]:
    """Yield one line for each part of the configuration that is ignored or may be a mistake.

    Args:
        ctx: The command's context.
        configuration: The configuration files.
        every: Whether to include variables of the environment that begin like a setting but
            resemble none: they may belong to another program.
    """
    yield from configuration.problems
    yield from map(str, _ignored(ctx, configuration))
    yield from islice(_unknown(ctx, configuration, every=every), _MAX_UNKNOWN_NAMES)


def _unknown(ctx: click.Context, configuration: Configuration, *, every: bool) -> Iterator[str]:
    """Yield a line for each name in files and the environment that only looks like a setting."""
    names = {name.removeprefix(PREFIX): name for name in RULES}

    def advice(name: str) -> str:
        from difflib import get_close_matches  # only mistakes need it

        bare = re.split("[-_]", re.sub("(?i)^a2a[-_]cli", "a2acli", name), maxsplit=1)[1]
        bare = bare.upper().replace("-", "_")
        flag = f"--{bare.lower().replace('_', '-')}"
        equivalents = [variable_of(name) for name in EQUIVALENTS.get(flag, ())]
        if name.startswith(PREFIX) and flag in _flags(ctx.find_root()):
            other = f", or did you mean {' or '.join(equivalents)}?" if equivalents else ""
            return f"; pass the flag {flag}{other}"
        similar = get_close_matches(bare, names, n=1, cutoff=0.75)
        meant = equivalents or [names[name] for name in similar]
        return f"; did you mean {' or '.join(meant)}?" if meant else ""

    for name, source in configuration.unknown:
        yield f"{source.location}: {name} is not a setting of holdfast{advice(name)}"
    for name in sorted(name for name in os.environ if looks_like_setting(name)):
        is_shown = advice(name) or (every and name.startswith(PREFIX))
        if name not in RULES and is_shown:
            yield f"{name} in the environment is not a setting of holdfast{advice(name)}"


def _flags(root: click.Context) -> frozenset[str]:
    """Return the flags of all commands."""
    flags, groups = set[str](), [root.command]
    while groups:
        command = groups.pop()
        flags.update(flag for param in command.params for flag in param.opts)
        if isinstance(command, click.Group):
            found = (command.get_command(root, name) for name in command.list_commands(root))
            groups += [member for member in found if member is not None]
    return frozenset(flags)


def _ignored(ctx: click.Context, configuration: Configuration) -> Iterator[Ignored]:
    """Yield the settings in files that may not decide them for a command.

    Args:
        ctx: The command's context.
        configuration: The configuration files.
    """
    options = [param for param in ctx.command.params if isinstance(param, SettingOption)]
    defaults = {option.variable: option.default_text for option in options}
    for ignored in configuration.ignored(defaults):
        rule = rule_of(ignored.variable)
        if (
            rule.strictness is None or ignored.variable in defaults
        ):  # other settings have no default
            yield ignored


def _named_file(ctx: click.Context) -> str | None:
    """Return the value of ``--config``, which is read before all other options."""
    above: click.Context | None = ctx
    while above is not None:
        if above.get_parameter_source("config") is ParameterSource.COMMANDLINE:
            config: str = above.params["config"]
            return config
        above = above.parent
    return os.environ.get(f"{PREFIX}CONFIG") or None


def _read_files(ctx: click.Context, named: str | None) -> Configuration:
    environment: CliEnvironment = ctx.obj
    try:
        return environment.read_configuration(named)
    except (OSError, ValueError) as error:
        message = f"--config {named} cannot be read: {getattr(error, 'strerror', None) or error}"
        raise click.UsageError(message, ctx) from None


# ── Types of values ──────────────────────────────────────────────────────────────────────────


def complete_path(
    _ctx: click.Context, _param: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Leave the completion of a path to the shell."""
    from click.shell_completion import CompletionItem  # only completions need it

    return [CompletionItem(incomplete, type="file")]


def complete_state(
    _ctx: click.Context, _param: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Return the states whose names begin with a text."""
    from click.shell_completion import CompletionItem  # only completions need it

    return [CompletionItem(name) for name in state_names() if name.startswith(incomplete.lower())]


class Choice(click.Choice[str]):
    """One of a few words; the error about another one suggests the nearest."""

    def get_invalid_choice_message(self, value: object, ctx: click.Context | None) -> str:
        """Return the error, with the nearest word."""
        message = super().get_invalid_choice_message(value, ctx).rstrip(".")
        return f"{message}{did_you_mean(str(value), self.choices)}"


if TYPE_CHECKING:
    _ParamType = click.ParamType[object]
else:
    _ParamType = click.ParamType  # generic since click 8.4


class ParsedParam(_ParamType):
    """A value that a function parses; its `ValueError` becomes a usage error.

    Args:
        name: The name of the value in help.
        read: Parses it, or raises `ValueError`.
        separator: The separator of values in an environment variable; a regular expression.
    """

    def __init__(self, name: str, read: Callable[[str], object], separator: str = "\n") -> None:
        self.name = name
        self._read = read
        self._separator = separator

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> object:
        """Parse the text of a flag or a variable; a default is unchanged."""
        if not isinstance(value, str):
            return value
        try:
            return self._read(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)

    def split_envvar_value(self, rv: str) -> Sequence[str]:
        """Split the value of a variable for an option that can be repeated."""
        return [value for value in re.split(self._separator, rv) if value.strip()]
