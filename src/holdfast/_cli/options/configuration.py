"""The configuration of a command: its sources, their precedence, and what each may decide.

Rules:
- A flag beats the environment, which beats the local file, which beats the global one
  (a2a-cli 8.3). Only names that begin with ``A2ACLI_`` are looked at, and taken literally.
- A flag and the process's environment decide every setting that they can name.
- A file decides all of them only if it is the user's own: ``~/.config/a2a-cli/.env``, or the file
  that ``--config`` or ``A2ACLI_CONFIG`` names, owned by the user and of mode 0600.
- Any other file, above all one found in the working directory or above it, which another person
  may have written, may name the agent and set the form of the output. Beyond that it can only make
  a command stricter. This is narrower than a2a-cli 8.3, which would let a found file decide
  everything.
- A setting that is not in the table `RULES` is decided by no file.

How the files are found and read is in `holdfast._cli.options.configuration_files`.
"""

from __future__ import annotations

import re
from operator import ge, le
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from holdfast._cli.options.values import read_duration, read_switch, read_timeout

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

__all__ = [
    "DEFAULT",
    "ENVIRONMENT",
    "FLAG",
    "FOUND_FILE",
    "GLOBAL_RANK",
    "LOCAL_RANK",
    "PREFIX",
    "RULES",
    "SETTING_PREFIXES",
    "Configuration",
    "ConfigurationFile",
    "FileSetting",
    "Ignored",
    "Rule",
    "Source",
    "looks_like_setting",
    "rule_of",
]


PREFIX = "A2ACLI_"


class _Strictness(NamedTuple):
    """The order of a setting's values by strictness.

    Attributes:
        read: Parses a written value.
        is_kept: Returns whether the first of two values is at least as strict as the second.
        only: The permitted stricter choice, for people to read.
    """

    read: Callable[[str], Any]
    is_kept: Callable[[Any, Any], bool]
    only: str


class Rule(NamedTuple):
    """Which files may decide a setting.

    Attributes:
        own: Whether the user's own file may.
        found: Whether any other file may, above all a found one.
        strictness: The order of its values: any other file may choose a stricter one; None if
            there is no such order.
    """

    own: bool = True
    found: bool = False
    strictness: _Strictness | None = None

    def permits(self, value: str, instead_of: str | None) -> bool:
        """Return whether a file that is not the user's own may choose a value.

        A value that cannot be read is permitted: it is reported, and ends the command.

        Args:
            value: The value, as written.
            instead_of: The value that counts without it; None for the switch that is off.
        """
        if self.strictness is None:
            return self.found
        try:
            stated = self.strictness.read(value)
        except ValueError:
            return True
        try:
            return self.strictness.is_kept(stated, self.strictness.read(instead_of or "0"))
        except ValueError:
            return False


_ANY_FILE = Rule(found=True)
_OWN_FILE = Rule()
_NO_FILE = Rule(own=False)

RULES: Mapping[str, Rule] = {
    f"{PREFIX}{name}": rule
    for name, rule in {
        # The agent, how it is called, and the form of output.
        "AGENT_CARD": _ANY_FILE,
        "ENDPOINT": _ANY_FILE,
        "A2A_VERSION": _ANY_FILE,
        "TRANSPORT": _ANY_FILE,
        "OUTPUT": _ANY_FILE,
        "VERBOSE": _ANY_FILE,
        "HISTORY": _ANY_FILE,
        "WAIT": _ANY_FILE,
        "ASYNC": _ANY_FILE,
        # Settings with a strict side.
        "TIMEOUT": Rule(strictness=_Strictness(read_timeout, le, "shorten it")),
        "POLL_INTERVAL": Rule(strictness=_Strictness(read_duration, ge, "lengthen it")),
        "REQUIRE_SIGNATURE": Rule(strictness=_Strictness(read_switch, ge, "turn it on")),
        "NO_CACHE": Rule(strictness=_Strictness(read_switch, ge, "turn it on")),
        "INSECURE": Rule(strictness=_Strictness(read_switch, le, "turn it off")),
        # Identity: credentials, and what is sent in the user's name.
        "BEARER": _OWN_FILE,
        "API_KEY": _OWN_FILE,
        "SVC_PARAM": _OWN_FILE,
        "CLIENT_CERT": _OWN_FILE,
        "CLIENT_KEY": _OWN_FILE,
        "CLIENT_KEY_PASSWORD": _OWN_FILE,
        "CLIENT_ID": _OWN_FILE,
        "CLIENT_SECRET": _OWN_FILE,
        "CLIENT_SECRET_FILE": _OWN_FILE,
        "CLIENT_AUTH": _OWN_FILE,
        "PUSH_TOKEN": _OWN_FILE,
        "PUSH_CREDENTIALS": _OWN_FILE,
        "CONTEXT_ID": _OWN_FILE,
        "TASK_ID": _OWN_FILE,
        "METADATA": _OWN_FILE,
        "MESSAGE_METADATA": _OWN_FILE,
        "EXTENSION": _OWN_FILE,
        # Trust: keys, hosts and origins that vouch for others.
        "CREDENTIAL_ORIGIN": _OWN_FILE,
        "CARD_KEYS": _OWN_FILE,
        "CARD_KEY_HOST": _OWN_FILE,
        "FLOW": _OWN_FILE,
        "ISSUER": _OWN_FILE,
        "TRUST_SERVER": _OWN_FILE,
        "SCOPE": _OWN_FILE,
        "RESOURCE": _OWN_FILE,
        "ALLOW_UNADVERTISED_PKCE": _OWN_FILE,
        # Programs, files, and the log of the wire.
        "TCK": _OWN_FILE,
        "DEBUG": _OWN_FILE,
        "CONFIG": _NO_FILE,
    }.items()
}
"""By variable. The process's environment may decide each of them."""


def rule_of(variable: str) -> Rule:
    """Return the rule of a setting; one that is not in the table is decided by no file."""
    return RULES.get(variable, _NO_FILE)


class Source(NamedTuple):
    """The source of a setting's value.

    Attributes:
        rank: The precedence; the lowest rank wins.
        name: ``flag``, ``environment``, ``file`` or ``default``.
        path: The file.
        line: The line number in the file.
        is_trusted: Whether it is the user's own: false for a file that is not.
    """

    rank: int
    name: str
    path: Path | None = None
    line: int | None = None
    is_trusted: bool = True

    @property
    def location(self) -> str:
        """Return the file and the line, for people to find."""
        return str(self.path) if self.line is None else f"{self.path}, line {self.line}"


FLAG, ENVIRONMENT, DEFAULT = Source(0, "flag"), Source(1, "environment"), Source(4, "default")
LOCAL_RANK, GLOBAL_RANK = 2, 3


class FileSetting(NamedTuple):
    """The value of a setting in a file."""

    value: str
    source: Source


class Ignored(NamedTuple):
    """A setting in a file that may not decide it.

    Attributes:
        variable: The setting.
        source: The file and the line.
        why: The reason.
    """

    variable: str
    source: Source
    why: str

    def __str__(self) -> str:
        return f"{self.source.location}: {self.variable} is ignored: {self.why}"


_NONE: Mapping[str, Any] = MappingProxyType({})


class ConfigurationFile(NamedTuple):
    """A configuration file and its content.

    Attributes:
        path: The file.
        stated: The values, by variable.
        similar: Names that resemble those of settings, such as ``HOLDFAST_OUTPUT``.
        obstacle: Why it is not the user's own; empty if it is.
    """

    path: Path
    stated: Mapping[str, FileSetting] = _NONE
    similar: Mapping[str, Source] = _NONE
    obstacle: str = ""

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.path})"  # the values may be secrets


class Configuration(NamedTuple):
    """The configuration files.

    Attributes:
        files: The files, in the order of precedence.
        local: The local file, or the one that the caller named; None if there is none.
        shared: The global file; None if there is none.
        problems: The problems of the files, for the caller.
    """

    files: tuple[ConfigurationFile, ...] = ()
    local: Path | None = None
    shared: Path | None = None
    problems: tuple[str, ...] = ()

    @property
    def names(self) -> set[str]:
        """The variables that the files name, whether they are settings or not."""
        return {name for file in self.files for name in file.stated}

    @property
    def unknown(self) -> Iterator[tuple[str, Source]]:
        """Yield the names in the files that only resemble a setting's, and their sources."""
        for file in self.files:
            for name, stated in file.stated.items():
                if name not in RULES:
                    yield name, stated.source
            yield from file.similar.items()

    def find(self, variable: str, default: str | None = None) -> FileSetting | None:
        """Return the value of a setting in the files, as far as each may decide it.

        Args:
            variable: The setting.
            default: The value if no file has one, as a file would have it.
        """
        return self._decide(variable, default)[0]

    def ignored(self, defaults: Mapping[str, str | None]) -> Iterator[Ignored]:
        """Yield the settings in files that may not decide them.

        Args:
            defaults: The settings that have a default, with it.
        """
        for variable in sorted(self.names & RULES.keys()):
            for stated, file in self._decide(variable, defaults.get(variable))[1]:
                yield Ignored(variable, stated.source, _why_not(variable, file))

    def value_beside(self, source: Source, variable: str) -> str | None:
        """Return another setting in the file of a source, if it is the user's own."""
        files = (file for file in self.files if file.path == source.path and source.is_trusted)
        setting = next((file.stated.get(variable) for file in files), None)
        return None if setting is None else setting.value or None

    def _decide(
        self, variable: str, default: str | None
    ) -> tuple[FileSetting | None, list[tuple[FileSetting, ConfigurationFile]]]:
        rule = rule_of(variable)
        decided: FileSetting | None = None
        ignored: list[tuple[FileSetting, ConfigurationFile]] = []
        for file in reversed(self.files):
            stated = file.stated.get(variable)
            if stated is None:
                continue
            if rule.own and stated.source.is_trusted:
                decided = stated if stated.value else None  # empty: hides lower precedence
            elif not stated.value:
                continue
            elif rule.permits(stated.value, decided.value if decided else default):
                decided = stated
            else:
                ignored.append((stated, file))
        return decided, ignored


def looks_like_setting(name: str) -> bool:
    """Return whether a name may be meant as a setting's; such a name is safe to show."""
    return re.fullmatch(_LIKE, name) is not None


FOUND_FILE = "a file found in the working directory or above it"
_ELSEWHERE = "set it in the environment, in ~/.config/a2a-cli/.env, or name the file with --config"


def _why_not(variable: str, file: ConfigurationFile) -> str:
    rule = rule_of(variable)
    if not rule.own:
        return "no file may set it"
    if file.obstacle != FOUND_FILE:
        return file.obstacle
    if rule.strictness is not None:
        return f"{FOUND_FILE} may only {rule.strictness.only}"
    return f"{FOUND_FILE} must not set it; {_ELSEWHERE}"


SETTING_PREFIXES = r"(?i:a2a[-_]?cli|holdfast)[-_]"
"""The prefixes of names that may be meant as settings."""
_LIKE = rf"{SETTING_PREFIXES}[A-Za-z][\w-]{{0,47}}"
