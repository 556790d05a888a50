"""Reading agent cards: those of 1.0, those of protocol 0.3, and those that are both."""

from __future__ import annotations

from typing import Any

from holdfast._model import codec
from holdfast._model.card_checks import check_card
from holdfast._model.v03 import card as v03
from holdfast.errors import InvalidAgentCardError
from holdfast.types import AgentCard

__all__ = ["describe_content", "read_card"]


def read_card(document: Any) -> AgentCard:
    """Reads an agent card, of protocol 0.3 too, and checks what a client needs of it.

    Cards leave out a lot; a missing description hurts nobody. Required is what a call depends
    on: a name, and at least one interface with an address and a binding.

    Args:
        document: The parsed JSON.

    Raises:
        InvalidAgentCardError: With the field that is missing or wrong.
    """
    members = codec.as_object(document)
    if members is None:
        message = f"the agent card is not a JSON object but {type(document).__name__}"
        raise InvalidAgentCardError(message, executed=False)
    if not members.get("supportedInterfaces") and "url" in members:
        return v03.read(members)
    try:
        card = codec.from_builtins(members, AgentCard)
    except codec.MalformedError as error:
        message = f"the agent card is not valid: {error}"
        raise InvalidAgentCardError(message, field=error.path, executed=False) from None
    check_card(card)
    return v03.with_v03_members(card, members) if "url" in members else card


def describe_content(content: bytes) -> str:
    """Say what is in a document that is not a card, and not the content: it may be a secret."""
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
