"""Protocol extensions: those that a card declares and requires, and those that calls request.

Rules: a mismatch in either direction is an error before anything is sent (A2A 4.6). Fetching the
extended card is not checked: it may declare other extensions than the public card.
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

__all__ = ["Extensions", "check_tools_version", "requested_extensions"]


class Extensions(NamedTuple):
    """The extensions of a card, computed once for each card.

    Attributes:
        declared: The URIs of all extensions.
        required: The URIs that a call must request.
    """

    declared: frozenset[str]
    required: tuple[str, ...]

    @classmethod
    def of(cls, card: AgentCard) -> Extensions:
        """Return the extensions of a card."""
        extensions = card.capabilities.extensions
        return cls(
            frozenset(extension.uri for extension in extensions),
            tuple(e.uri for e in extensions if e.required and e.uri),  # "" cannot be requested
        )

    def check(self, call: AnyCall, card: AgentCard) -> None:
        """Check the extensions that a call requests.

        Raises:
            ExtensionNotSupportedError: The call requests an extension that is not declared.
            ExtensionSupportRequiredError: The call does not request a required extension.
        """
        if call.operation is GET_EXTENDED_AGENT_CARD:
            return
        subject = f"{call.operation.name} was not called: agent {card.name!r}"
        undeclared = [uri for uri in call.extensions if uri not in self.declared]
        if undeclared:
            error_type, hint = ExtensionNotSupportedError, "omit it from extensions="
            if CLIENT_TOOLS in undeclared:
                error_type, hint = ClientToolsNotSupportedError, "ask it without tools="
            uris = ", ".join(undeclared)
            raise error_type(
                f"{subject} does not declare the extension {uris} in its card; {hint}",
                extensions=undeclared,
                executed=False,
            )
        requested = requested_extensions(call)
        missing = [uri for uri in self.required if uri not in requested]
        if missing:
            raise ExtensionSupportRequiredError(
                f"{subject} requires the extension {', '.join(missing)}; if you support it, pass "
                f"extensions={missing} to the call or to connect",
                extensions=missing,
                executed=False,
            )


def check_tools_version(call: AnyCall, version: str) -> None:
    """Check that a call with client tools is made in a version that can carry them.

    Raises:
        ClientToolsNotSupportedError: In this version, data parts have no media type, by which
            tool calls are recognized.
    """
    if version == OLDER_VERSION and CLIENT_TOOLS in call.extensions:
        raise ClientToolsNotSupportedError(
            f"{call.operation.name} was not called: protocol {version} cannot carry tools; call "
            "it without tools=",
            extensions=[CLIENT_TOOLS],
            executed=False,
        )


def requested_extensions(call: AnyCall) -> tuple[str, ...]:
    """Return the URIs that a call requests, by its extensions and by its own headers."""
    if not call.headers:
        return call.extensions
    return tuple(dict.fromkeys((*call.extensions, *extensions_in(call.headers))))
