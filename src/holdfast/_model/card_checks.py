"""Validation of an agent card: only what a client needs."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from holdfast._model.addresses import address_fault, has_user, is_http_address
from holdfast.errors import InvalidAgentCardError

if TYPE_CHECKING:
    from holdfast.types import AgentCard, AgentInterface

__all__ = ["check_card", "check_interface", "missing_field_error"]


def check_card(card: AgentCard) -> None:
    """Check that a card has what a client needs.

    Raises:
        InvalidAgentCardError: A field is missing or invalid; the error names it.
    """
    if not card.name:
        raise missing_field_error("name")
    if not card.supported_interfaces:
        raise missing_field_error("supportedInterfaces")
    for index, interface in enumerate(card.supported_interfaces):
        check_interface(interface, f"supportedInterfaces[{index}].url")
        if not interface.protocol_binding:
            raise missing_field_error(f"supportedInterfaces[{index}].protocolBinding")


def check_interface(interface: AgentInterface, field: str) -> None:
    """Check the address of an interface.

    Args:
        interface: The interface.
        field: Path of the address in the card.

    Raises:
        InvalidAgentCardError: The address is missing or invalid.
    """
    if not interface.url:
        raise missing_field_error(field)
    if not _is_address(interface):
        scheme = _SCHEME.match(interface.url)
        if scheme is not None and scheme[1].lower() not in {"http", "https"}:
            message = (
                f"the agent card is not valid: {field} begins with {scheme[0]}, but the binding "
                f"{interface.protocol_binding} needs http:// or https://"
            )
            raise InvalidAgentCardError(message, field=field, executed=False)
        message = f"the agent card is not valid: {field} {_fault(interface.url)}"
        raise InvalidAgentCardError(message, field=field, executed=False)


_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]{0,19})://")


def _fault(url: str) -> str:
    """Describe what is wrong with an address; the address itself may hold a secret."""
    if has_user(url):
        return "contains a user name or password"
    return address_fault(url) or "is not an absolute URL"


def _is_address(interface: AgentInterface) -> bool:
    """Return whether the address is valid; bindings without HTTP have other forms of addresses."""
    if interface.protocol_binding.upper() in {"JSONRPC", "HTTP+JSON"}:
        return is_http_address(interface.url)
    if interface.protocol_binding.upper() == "GRPC" and has_user(interface.url):
        return False
    try:
        _ = urlsplit(interface.url).port
    except ValueError:
        return False
    return True


def missing_field_error(field: str) -> InvalidAgentCardError:
    """Return the error of a card without a field that a client needs."""
    return InvalidAgentCardError(
        f"the agent card lacks the field {field}", field=field, executed=False
    )
