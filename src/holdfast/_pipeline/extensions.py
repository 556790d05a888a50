"""Extensions of the protocol: what a card declares and requires, held against what calls ask for.

Rules: a mismatch in either direction is an error before anything is sent (A2A 4.6). The extended
card is fetched all the same: it may declare others than the public one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from holdfast._model.operations import GET_EXTENDED_AGENT_CARD
from holdfast._wire.bindings import OLDER_VERSION, extensions_in
from holdfast._wire.client_tools import CLIENT_TOOLS
from holdfast.errors import (
    ClientToolsNotSupportedError,
    ExtensionNotSupportedError,
    ExtensionSupportRequiredError,
)

if TYPE_CHECKING:
    from holdfast._pipeline.transport import AnyCall
    from holdfast.types import AgentCard

__all__ = ["Extensions", "asked_for", "check_spoken"]


class Extensions(NamedTuple):
    """What a card says of extensions, worked out once for each card.

    Attributes:
        declared: The URIs of all of them.
        required: Those that a call must ask for.
    """

    declared: frozenset[str]
    required: tuple[str, ...]

    @classmethod
    def of(cls, card: AgentCard) -> Extensions:
        """Reads a card."""
        known = card.capabilities.extensions
        return cls(
            frozenset(extension.uri for extension in known),
            tuple(e.uri for e in known if e.required and e.uri),  # nobody can ask for none
        )

    def check(self, call: AnyCall, card: AgentCard) -> None:
        """Checks what a call asks for.

        Raises:
            ExtensionNotSupportedError: The card does not declare an extension that is asked for.
            ExtensionSupportRequiredError: It requires one that is not asked for.
        """
        if call.operation is GET_EXTENDED_AGENT_CARD:
            return
        what = f"{call.operation.name} was not called: agent {card.name!r}"
        unknown = [uri for uri in call.extensions if uri not in self.declared]
        if unknown:
            kind, hint = ExtensionNotSupportedError, "leave it out of extensions="
            if CLIENT_TOOLS in unknown:
                kind, hint = ClientToolsNotSupportedError, "ask it without tools="
            raise kind(
                f"{what} does not declare the extension {', '.join(unknown)} in its card; {hint}",
                extensions=unknown,
                executed=False,
            )
        asked = asked_for(call)
        missing = [uri for uri in self.required if uri not in asked]
        if missing:
            raise ExtensionSupportRequiredError(
                f"{what} requires the extension {', '.join(missing)}; if you support it, pass "
                f"extensions={missing} to the call or to connect",
                extensions=missing,
                executed=False,
            )


def check_spoken(call: AnyCall, version: str) -> None:
    """Checks what a call asks for against the version of the protocol that it is spoken in.

    Raises:
        ClientToolsNotSupportedError: Tools, in a version whose data has no media type to know them
            by.
    """
    if version == OLDER_VERSION and CLIENT_TOOLS in call.extensions:
        raise ClientToolsNotSupportedError(
            f"{call.operation.name} was not called: protocol {version} cannot carry tools; call "
            "it without tools=",
            extensions=[CLIENT_TOOLS],
            executed=False,
        )


def asked_for(call: AnyCall) -> tuple[str, ...]:
    """The URIs that a call asks for: those it names, and those that a caller wrote by hand."""
    if not call.headers:
        return call.extensions
    return tuple(dict.fromkeys((*call.extensions, *extensions_in(call.headers))))
