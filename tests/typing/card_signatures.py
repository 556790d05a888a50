"""The signatures of cards, as callers use them: for type checkers, never run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, assert_type

from holdfast import AgentCard, Client, connect
from holdfast.observe import CardChecked, Observation
from holdfast.signatures import CardVerification, CardVerifier, sign_card

if TYPE_CHECKING:
    from holdfast.errors import CardSignatureError

VERIFIER = CardVerifier({"keys": []}, jku_hosts=("keys.test",), algorithms=("ES256",))
connect("http://agent.test", card_verifier=VERIFIER, require_signature=True)


def by_hand(card: Mapping[str, Any]) -> None:
    del card


async def slowly(card: Mapping[str, Any]) -> bool:
    return bool(card)


connect("http://agent.test", card_verifier=by_hand)
connect("http://agent.test", card_verifier=slowly)


def of_a_client(client: Client) -> None:
    assert_type(client.card_verification, CardVerification | None)
    assert_type(client.card_document, Mapping[str, Any] | None)


def of_signing(card: AgentCard, document: dict[str, Any]) -> None:
    assert_type(sign_card(card, "pem", key_id="k"), AgentCard)
    assert_type(sign_card(document, "pem", key_id="k", key_url="https://k.test"), dict[str, Any])


def of_errors(error: CardSignatureError, observation: Observation) -> None:
    assert_type(error.outcome, str)
    assert_type(error.key_id, str | None)
    if isinstance(observation, CardChecked):
        assert_type(observation.verification, CardVerification)
