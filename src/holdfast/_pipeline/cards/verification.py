"""The result of verifying the signatures of an agent card."""

from __future__ import annotations

from typing import Literal

import msgspec

__all__ = ["CardOutcome", "CardVerification"]

CardOutcome = Literal["verified", "unverifiable", "invalid", "absent"]


class CardVerification(msgspec.Struct, frozen=True, kw_only=True):
    """The result of verifying the signatures of an agent card (A2A 8.4.3).

    Attributes:
        outcome: ``"verified"``: a signature is valid. ``"unverifiable"``: no signature can be
            verified. ``"invalid"``: there is a key for a signature, by its id or without an id,
            and the signature does not match; such a card is rejected. ``"absent"``: the card is
            not signed.
        reason: Why the card is not verified, in one line; empty if it is.
        key_id: Id of the key of the decisive signature (``kid``); None for none.
        key_url: Address of the key set with that key (``jku``); None if the caller supplied it.
        algorithm: Algorithm of the decisive signature.
        number: Position of that signature in the card, from 1; None for none.
        unsigned: Members of the card that the signature does not cover; they are not used.
        is_for_now: Whether the outcome is temporary, because keys could not be fetched. False by
            default.
    """

    outcome: CardOutcome
    reason: str = ""
    key_id: str | None = None
    key_url: str | None = None
    algorithm: str | None = None
    number: int | None = None
    unsigned: tuple[str, ...] = ()
    is_for_now: bool = False
