"""What the signatures of an agent card are worth."""

from __future__ import annotations

from typing import Literal

import msgspec

__all__ = ["CardOutcome", "CardVerification"]

CardOutcome = Literal["verified", "unverifiable", "invalid", "absent"]


class CardVerification(msgspec.Struct, frozen=True, kw_only=True):
    """What the signatures of a card are worth (A2A 8.4.3).

    Attributes:
        outcome: ``"verified"``: one of them is right. ``"unverifiable"``: none of them can be
            verified. ``"invalid"``: there is a key for one, and it is not right; such a card is
            refused. ``"absent"``: there are none.
        reason: Why it is not verified, in one line; empty if it is.
        key_id: The key of the signature that decided (``kid``); None for none.
        key_url: Where that key is from (``jku``); None for the caller's own.
        algorithm: How it was made.
        number: Its place in the card, from 1; None for none.
        unsigned: Members of the card that it does not cover; they are not used.
        is_for_now: Whether it may turn out better soon: keys could not be had.
    """

    outcome: CardOutcome
    reason: str = ""
    key_id: str | None = None
    key_url: str | None = None
    algorithm: str | None = None
    number: int | None = None
    unsigned: tuple[str, ...] = ()
    is_for_now: bool = False
