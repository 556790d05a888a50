"""Signing agent cards (A2A 8.4.2), for those who serve one."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, cast, overload

import msgspec

from holdfast._arguments import not_empty
from holdfast._model import codec
from holdfast._signatures.jws import ASYMMETRIC, check_library, encoded
from holdfast._signatures.key_store import private_key
from holdfast._wire.canonical import signed_forms
from holdfast.types import AgentCard, AgentCardSignature

__all__ = ["sign_card"]


@overload
def sign_card(
    card: AgentCard,
    key: Any,
    *,
    key_id: str,
    algorithm: str = "ES256",
    key_url: str | None = None,
) -> AgentCard: ...


@overload
def sign_card(
    card: Mapping[str, Any],
    key: Any,
    *,
    key_id: str,
    algorithm: str = "ES256",
    key_url: str | None = None,
) -> dict[str, Any]: ...


def sign_card(
    card: AgentCard | Mapping[str, Any],
    key: Any,
    *,
    key_id: str,
    algorithm: str = "ES256",
    key_url: str | None = None,
) -> AgentCard | dict[str, Any]:
    """Signs a card in the form that the specification describes, beside its present signatures.

    Some SDKs sign and verify another form: give every member that is required a value that is not
    empty, and every security requirement its scopes, and all of them agree. Over gRPC only the
    specification's own members arrive: a card that is signed with others is wrong there.

    Args:
        card: The card, or its JSON object, as it is going to be served; it is not changed.
        key: The private key: PEM, a JSON Web Key, or an object of the library ``cryptography``.
        key_id: The name of the key (``kid``), by which verifiers find the public one.
        algorithm: How to sign, by the names of RFC 7518; it goes with the kind of the key.
        key_url: Where the public key is published (``jku``).

    Returns:
        The card with one more signature.

    Raises:
        ValueError: The key cannot be used, or the card has no canonical JSON.
        TypeError: The card is none.
        ImportError: The extra ``signatures`` is not installed.
    """
    check_library("signatures", "sign_card", canonical=True)
    not_empty("key_id", key_id)
    if not isinstance(cast("object", card), AgentCard | Mapping):
        text = f"card must be an AgentCard or its JSON object, not {type(card).__name__}"
        raise TypeError(text)
    if algorithm not in ASYMMETRIC:
        text = f"algorithm is one of {', '.join(ASYMMETRIC)}, not {algorithm!r}"
        raise ValueError(text)
    header = {"alg": algorithm, "typ": "JOSE", "kid": key_id}
    if key_url is not None:
        header["jku"] = key_url
    if isinstance(card, AgentCard):
        made = _signature(codec.to_builtins(card), key, header)
        added = AgentCardSignature(protected=made["protected"], signature=made["signature"])
        return msgspec.structs.replace(card, signatures=(*card.signatures, added))
    present: list[Any] = [*(card.get("signatures") or ())]
    return {**card, "signatures": [*present, _signature(card, key, header)]}


def _signature(document: Mapping[str, Any], key: Any, header: Mapping[str, str]) -> dict[str, str]:
    import jwt

    algorithm = header["alg"]
    payload = _specified(document)
    protected = encoded(json.dumps(header, separators=(",", ":")).encode())
    signing = f"{protected}.{encoded(payload)}".encode()
    try:
        maker = jwt.get_algorithm_by_name(algorithm)
        made = maker.sign(signing, maker.prepare_key(private_key(key)))
    except (jwt.PyJWTError, ValueError, TypeError, AttributeError) as error:
        text = (
            f"the key cannot sign by {algorithm}: {type(error).__name__}; it is a private key of "
            "that kind, as PEM, a JSON Web Key or an object of cryptography"
        )
        raise ValueError(text) from None
    return {"protected": protected, "signature": encoded(made)}


def _specified(document: Mapping[str, Any]) -> bytes:
    """The bytes to sign; protocol 0.3 describes no form, so that all of the card is signed."""
    forms = {form.name: form.payload for form in signed_forms(document)}
    return forms.get("specified", forms["received"])
