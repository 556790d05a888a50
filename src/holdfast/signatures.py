"""Signatures of agent cards (A2A 8.4): verification and signing, in the extra ``signatures``."""

from __future__ import annotations

from holdfast._pipeline.cards.verification import CardVerification
from holdfast._public import publish
from holdfast._signatures.key_store import VerificationKeys
from holdfast._signatures.signing import sign_card
from holdfast._signatures.verifier import CardVerifier, CardVerifierCallable

__all__ = [
    "CardVerification",
    "CardVerifier",
    "CardVerifierCallable",
    "VerificationKeys",
    "sign_card",
]

__getattr__, __dir__ = publish(__name__)
