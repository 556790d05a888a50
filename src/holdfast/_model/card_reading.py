"""Decoding of agent cards: of 1.0, of 0.3, and of both at once."""

from __future__ import annotations

from typing import Any

from holdfast._model import codec
from holdfast._model.card_checks import check_card
from holdfast.errors import InvalidAgentCardError
from holdfast.types import AgentCard

__all__ = ["describe_content", "read_card"]


def read_card(document: Any) -> AgentCard:
    """Decode an agent card of protocol 1.0 or 0.3, and check that it has what a client needs.

    Many cards are incomplete. Required is only what a call needs: a name, and at least one
    interface with an address and a binding.

    Args:
        document: The parsed JSON.

    Raises:
        InvalidAgentCardError: A field is missing or invalid; the error names it.
    """
    members = codec.as_object(document)
    if members is None:
        message = f"the agent card is not a JSON object but {type(document).__name__}"
        raise InvalidAgentCardError(message, executed=False)
    if "url" not in members:
        return _read_v1(members)
    from holdfast._model.v03 import card as v03  # slow to import, and rarely needed

    if not members.get("supportedInterfaces"):
        return v03.read(members)
    return v03.with_v03_members(_read_v1(members), members)


def _read_v1(members: dict[str, Any]) -> AgentCard:
    try:
        card = codec.from_builtins(members, AgentCard)
    except codec.MalformedError as error:
        message = f"the agent card is not valid: {error}"
        raise InvalidAgentCardError(message, field=error.path, executed=False) from None
    check_card(card)
    return card


def describe_content(content: bytes) -> str:
    """Describe a document that is not a card, without quoting it: it may be a secret."""
    start = content.lstrip()[:100].lower()
    if not start:
        return "is empty"
    if codec.is_html(content):
        return "is an HTML page"
    if start.startswith(b"-----begin "):
        return "is a key or a certificate (PEM)"
    try:
        content.decode()
    except UnicodeDecodeError:
        return f"has {len(content)} bytes of binary data"
    return f"has {len(content)} bytes of text"
