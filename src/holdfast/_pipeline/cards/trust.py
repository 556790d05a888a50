"""Signature verification of agent cards: which cards are accepted, and which of their members.

Rules: of a verified card, only the members that its signature covers are used; a card with an
invalid signature is never used; an unverifiable card is used unless the caller requires a verified
signature. An unchanged card is verified again once the keys that verified it are no longer fresh,
so that a withdrawn key stops counting.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import msgspec

from holdfast._model import codec
from holdfast._model.card_reading import read_card
from holdfast._pipeline.cards.verification import CardVerification
from holdfast._wire.bindings import PROTOCOL_VERSION
from holdfast.errors import CardSignatureError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from holdfast._pipeline.listeners import Observers
    from holdfast._pipeline.transport import AnyCall, Reply
    from holdfast.types import AgentCard

__all__ = [
    "AcceptedCard",
    "CardCheck",
    "CardChecker",
    "CardTrust",
    "ReceivedCard",
    "received_card",
]


_OF_CARD_OBJECT = "an AgentCard may lack signed members; pass the card's JSON object or its file"
_OF_REPLY = "the agent's reply may lack signed members"


class ReceivedCard(NamedTuple):
    """A card as it was received.

    Attributes:
        card: The card.
        document: Its JSON object.
        doubt: Why the document may lack signed members; empty if it is complete. A document that
            was made from `card` lacks the members that the model does not define.
    """

    card: AgentCard
    document: Mapping[str, Any]
    doubt: str = ""

    @property
    def is_whole(self) -> bool:
        """Whether the document has all members that were received."""
        return not self.doubt

    @classmethod
    def of(cls, card: AgentCard, doubt: str = _OF_CARD_OBJECT) -> ReceivedCard:
        """Return a card without its original document."""
        # Only cards with signatures need a document, and making it is slow.
        return cls(card, codec.to_builtins(card) if card.signatures else {}, doubt)


def received_card(reply: Reply[AgentCard]) -> ReceivedCard:
    """Return the card in the reply of an operation, with the document from the reply's bytes."""
    document = None
    if reply.endpoint is not None:
        read = _DOCUMENT_READERS.get(reply.endpoint.interface.protocol_binding)
        document = None if read is None else read(reply.raw, reply.endpoint.version)
    if document is None:
        return ReceivedCard.of(reply.value, _OF_REPLY)
    return ReceivedCard(reply.value, document)


def _read_json(body: bytes, version: str) -> dict[str, Any] | None:  # noqa: ARG001  one signature
    try:
        return codec.as_object(codec.parse(body))
    except codec.MalformedError:
        return None


def _read_json_rpc(body: bytes, version: str) -> dict[str, Any] | None:
    envelope = _read_json(body, version)
    return None if envelope is None else codec.as_object(envelope.get("result"))


def _read_grpc(body: bytes, version: str) -> dict[str, Any] | None:
    if version != PROTOCOL_VERSION:
        return None  # in 0.3, the members of a card differ between JSON and protocol buffers
    from holdfast._wire.protobuf.cards import card_json  # needs an extra

    return card_json(body)


_DOCUMENT_READERS: Mapping[str, Callable[[bytes, str], dict[str, Any] | None]] = {
    "JSONRPC": _read_json_rpc,
    "HTTP+JSON": _read_json,
    "GRPC": _read_grpc,
}
"""Readers of the card's JSON object by binding; they return None if it cannot be complete."""


class CardCheck(NamedTuple):
    """The result of checking a card.

    Attributes:
        verification: The result for its signatures.
        document: The members that may be used; None for all of them.
        fresh_for: Seconds for which the result holds: as long as the keys are fresh.
    """

    verification: CardVerification
    document: Mapping[str, Any] | None = None
    fresh_for: float = math.inf


class CardChecker(Protocol):
    """Verifies the signatures of cards."""

    async def check(self, received: ReceivedCard, /) -> CardCheck:
        """Verify the signatures of a card that has some."""
        ...

    async def close(self) -> None:
        """Cancel fetches of keys."""
        ...


class AcceptedCard(NamedTuple):
    """A card that may be used.

    Attributes:
        card: The card, with the members that may be used.
        verification: The result of verifying its signatures.
        received: The card as it was received.
        fresh_for: Seconds after which it has to be verified again.
    """

    card: AgentCard
    verification: CardVerification
    received: ReceivedCard
    fresh_for: float = math.inf


_ABSENT = CardVerification(outcome="absent", reason="the card is not signed")
_NO_VERIFIER = CardVerification(outcome="unverifiable", reason="no card verifier is configured")


class CardTrust:
    """Decides which cards a client uses.

    Args:
        checker: Verifies signatures; None for no verification.
        is_required: Whether a card must be verified.
        observers: Receive the results.
    """

    def __init__(
        self, checker: CardChecker | None, *, is_required: bool, observers: Observers
    ) -> None:
        self._checker = checker
        self._is_required = is_required
        self._observers = observers

    async def accept(self, call: AnyCall, received: ReceivedCard) -> AcceptedCard:
        """Return the card with the members that may be used.

        Args:
            call: The call that needs the card.
            received: The card as it was received.

        Raises:
            CardSignatureError: A signature is invalid, or the card must be verified and is not.
            InvalidAgentCardError: The signed members are not a valid card.
        """
        if not received.card.signatures and not received.document.get("signatures"):
            checked = CardCheck(_ABSENT)
        elif self._checker is None:
            return AcceptedCard(received.card, _NO_VERIFIER, received)
        else:
            checked = await self._checker.check(received)
        verification = checked.verification
        if self._checker is not None:
            self._observers.card_checked(call, verification)
        outcome = verification.outcome
        if outcome == "invalid" or (self._is_required and outcome != "verified"):
            raise _signature_error(verification, received.card)
        if checked.document is None:
            return AcceptedCard(received.card, verification, received, checked.fresh_for)
        signatures = received.card.signatures
        card = read_card(checked.document)
        card = msgspec.structs.replace(card, signatures=signatures)
        return AcceptedCard(card, verification, received, checked.fresh_for)

    async def close(self) -> None:
        """Close the checker."""
        if self._checker is not None:
            await self._checker.close()


def _signature_error(verification: CardVerification, card: AgentCard) -> CardSignatureError:
    state = (
        "is wrong" if verification.outcome == "invalid" else "is required, but was not verified"
    )
    return CardSignatureError(
        f"the signature of the agent card of {card.name!r} {state}: {verification.reason}; "
        "nothing was sent to the agent",
        outcome=verification.outcome,
        key_id=verification.key_id,
        transient=verification.is_for_now,
        executed=False,
    )
