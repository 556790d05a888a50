"""Signatures of agent cards (A2A 8.4), verified and made; with the extra ``signatures``."""

from __future__ import annotations

from holdfast.runtime.card_verification import CardVerification
from holdfast.signatures.signing import sign_card
from holdfast.signatures.verifier import CardVerifier

__all__ = ["CardVerification", "CardVerifier", "sign_card"]
