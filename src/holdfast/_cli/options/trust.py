"""The sources that may decide each setting: one table, used by every check.

Rules:
- A flag and the process's environment decide every setting that they can name.
- A file decides all of them only if it is the user's own: ``~/.config/a2a-cli/.env``, or the file
  that ``--config`` or ``A2ACLI_CONFIG`` names, owned by the user and of mode 0600.
- Any other file, above all one found in the working directory or above it, may name the agent and
  set the form of the output. Beyond that it can only make a command stricter. This is narrower
  than a2a-cli 8.3, which would let a found file decide everything.
- A setting that is not in the table is decided by no file.
"""

from __future__ import annotations

from operator import ge, le
from typing import TYPE_CHECKING, Any, NamedTuple

from holdfast._cli.options.values import read_duration, read_switch, read_timeout

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = ["PREFIX", "RULES", "Rule", "rule_of"]

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
