"""Whether a card is its author's: who is asked, what follows, and what of the card is used.

Rules: what is used of a card that is verified is what its signature covers; a card whose signature
is wrong is never used; one that nobody can verify is, unless the caller requires a signature. A
card that has not changed is verified again once the keys that verified it are no longer fresh, so
that a key which its owner withdrew stops counting.
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
    "CardChecker",
    "CardTrust",
    "Checked",
    "ReceivedCard",
    "received_in",
]


_GIVEN = "an AgentCard need not have all that was signed; pass the card's JSON object or file"
_ANSWERED = "what the agent answered need not have all that was signed"


class ReceivedCard(NamedTuple):
    """A card as it came.

    Attributes:
        card: As it was read.
        document: Its JSON object.
        doubt: Why the document need not have all that was signed; empty if it has. One that was
            made of `card` lacks what the model does not have.
    """

    card: AgentCard
    document: Mapping[str, Any]
    doubt: str = ""

    @property
    def is_whole(self) -> bool:
        """Whether the document is all that was received."""
        return not self.doubt

    @classmethod
    def of(cls, card: AgentCard, doubt: str = _GIVEN) -> ReceivedCard:
        """A card of which there is nothing else."""
        # Without signatures nobody looks at the rest, and writing it takes its time.
        return cls(card, codec.to_builtins(card) if card.signatures else {}, doubt)


def received_in(reply: Reply[AgentCard]) -> ReceivedCard:
    """The card that an operation answered, as far as its bytes are there."""
    document = None
    if reply.endpoint is not None:
        read = _READ.get(reply.endpoint.interface.protocol_binding)
        document = None if read is None else read(reply.raw, reply.endpoint.version)
    if document is None:
        return ReceivedCard.of(reply.value, _ANSWERED)
    return ReceivedCard(reply.value, document)


def _of_rest(body: bytes, version: str) -> dict[str, Any] | None:  # noqa: ARG001  see `_READ`
    try:
        return codec.as_object(codec.parse(body))
    except codec.MalformedError:
        return None


def _of_rpc(body: bytes, version: str) -> dict[str, Any] | None:
    envelope = _of_rest(body, version)
    return None if envelope is None else codec.as_object(envelope.get("result"))


def _of_grpc(body: bytes, version: str) -> dict[str, Any] | None:
    if version != PROTOCOL_VERSION:
        return None  # before, cards had other members in JSON than in protocol buffers
    from holdfast._wire.protobuf.cards import card_json  # with an extra

    return card_json(body)


_READ: Mapping[str, Callable[[bytes, str], dict[str, Any] | None]] = {
    "JSONRPC": _of_rpc,
    "HTTP+JSON": _of_rest,
    "GRPC": _of_grpc,
}
"""By binding: the card's JSON object, of an answer in a version; None if it cannot be whole."""


class Checked(NamedTuple):
    """What somebody says of a card.

    Attributes:
        verification: What its signatures are worth.
        document: What of it may be used; None for all of it.
        fresh_for: Seconds for which that holds: as long as its keys are fresh.
    """

    verification: CardVerification
    document: Mapping[str, Any] | None = None
    fresh_for: float = math.inf


class CardChecker(Protocol):
    """Verifies signatures of cards."""

    async def check(self, received: ReceivedCard, /) -> Checked:
        """Says what a card's signatures are worth; of a card that has some."""
        ...

    async def close(self) -> None:
        """Lets go of what is under way."""
        ...


class AcceptedCard(NamedTuple):
    """A card that may be used.

    Attributes:
        card: What of it is used.
        verification: What its signatures are worth.
        received: The card as it came.
        fresh_for: Seconds, from when it was verified, after which it is to be verified again.
    """

    card: AgentCard
    verification: CardVerification
    received: ReceivedCard
    fresh_for: float = math.inf


_ABSENT = CardVerification(outcome="absent", reason="the card is not signed")
_NOBODY = CardVerification(outcome="unverifiable", reason="there is no card verifier")


class CardTrust:
    """Decides which cards a client uses.

    Args:
        checker: Who verifies signatures; None for nobody.
        is_required: Whether a card must be verified.
        observers: Who is told of it.
    """

    def __init__(
        self, checker: CardChecker | None, *, is_required: bool, observers: Observers
    ) -> None:
        self._checker = checker
        self._is_required = is_required
        self._observers = observers

    async def believed(self, call: AnyCall, received: ReceivedCard) -> AcceptedCard:
        """The card that may be used.

        Args:
            call: Whoever needs the card.
            received: As it came.

        Raises:
            CardSignatureError: Its signature is wrong; or it is not verified, and must be.
            InvalidAgentCardError: What its signature covers is not usable.
        """
        if not received.card.signatures and not received.document.get("signatures"):
            checked = Checked(_ABSENT)
        elif self._checker is None:
            return AcceptedCard(received.card, _NOBODY, received)
        else:
            checked = await self._checker.check(received)
        found = checked.verification
        if self._checker is not None:
            self._observers.card_checked(call, found)
        if found.outcome == "invalid" or (self._is_required and found.outcome != "verified"):
            raise _refused(found, received.card)
        if checked.document is None:
            return AcceptedCard(received.card, found, received, checked.fresh_for)
        signatures = received.card.signatures
        card = read_card(checked.document)
        card = msgspec.structs.replace(card, signatures=signatures)
        return AcceptedCard(card, found, received, checked.fresh_for)

    async def close(self) -> None:
        """Lets go of what is under way."""
        if self._checker is not None:
            await self._checker.close()


def _refused(found: CardVerification, card: AgentCard) -> CardSignatureError:
    words = "is wrong" if found.outcome == "invalid" else "is required, and not verified"
    return CardSignatureError(
        f"the signature of the agent card of {card.name!r} {words}: {found.reason}; nothing was "
        "sent to the agent",
        outcome=found.outcome,
        key_id=found.key_id,
        transient=found.is_for_now,
        executed=False,
    )
