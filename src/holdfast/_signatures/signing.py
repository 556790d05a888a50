"""Signing of agent cards (A2A 8.4.2), for servers of a card."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, cast, overload

import msgspec

from holdfast._arguments import check_not_empty
from holdfast._model import codec
from holdfast._model.sdk_values import kind_of
from holdfast._signatures.jws import ASYMMETRIC, base64url, check_library
from holdfast._signatures.key_store import private_key, signing_fault
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
    """Sign a card in the specification's form, and keep its other signatures.

    The official SDKs (a2a-sdk, a2a-js) sign and verify another form, without empty members. Their
    verifiers refuse a card that this function signed if a required member is empty, or a security
    requirement has no scopes, as ``{"bearerAuth": {"list": []}}``; sign such a card with the SDK's
    signer, which `CardVerifier` verifies, too. gRPC transmits only the members of the
    specification, so the signature of a card with other members is invalid there.

    Args:
        card: The card or its JSON object, as it will be served; not modified.
        key: Private key: PEM (text or bytes, without a password), a JSON Web Key, or an object of
            the library ``cryptography``.
        key_id: Id of the key (``kid``), by which verifiers find the public key.
        algorithm: Algorithm, by its name in RFC 7518, that suits the key: ``ES256`` (the default)
            for an EC key of the curve P-256, ``ES384`` and ``ES512`` for P-384 and P-521,
            ``RS256`` or ``PS256`` for an RSA key, ``EdDSA`` for an Ed25519 key.
        key_url: URL where the public key is published (``jku``); none by default.

    Returns:
        The card with the new signature after the existing ones.

    Raises:
        ValueError: The key cannot be used, or the card has no canonical JSON.
        TypeError: The card is neither.
        ImportError: The extra ``signatures`` is not installed.
    """
    check_library("signatures", "sign_card", canonical=True)
    check_not_empty("key_id", key_id)
    if not isinstance(cast("object", card), AgentCard | Mapping):
        text = f"card must be an AgentCard or its JSON object, not {kind_of(card)}"
        raise TypeError(text)
    if algorithm not in ASYMMETRIC:
        text = f"algorithm must be one of {', '.join(ASYMMETRIC)}, not {algorithm!r}"
        raise ValueError(text)
    header = {"alg": algorithm, "typ": "JOSE", "kid": key_id}
    if key_url is not None:
        header["jku"] = key_url
    if isinstance(card, AgentCard):
        signed = _signature(codec.to_builtins(card), key, header)
        added = AgentCardSignature(protected=signed["protected"], signature=signed["signature"])
        return msgspec.structs.replace(card, signatures=(*card.signatures, added))
    present: list[Any] = [*(card.get("signatures") or ())]
    return {**card, "signatures": [*present, _signature(card, key, header)]}


def _signature(document: Mapping[str, Any], key: Any, header: Mapping[str, str]) -> dict[str, str]:
    import jwt

    algorithm = header["alg"]
    payload = _specified(document)
    protected = base64url(json.dumps(header, separators=(",", ":")).encode())
    signing = f"{protected}.{base64url(payload)}".encode()
    try:
        signer = jwt.get_algorithm_by_name(algorithm)
        signature = signer.sign(signing, signer.prepare_key(private_key(key)))
    except (jwt.PyJWTError, ValueError, TypeError, AttributeError):
        text = f"the key cannot sign with {algorithm}: {signing_fault(key)}"
        raise ValueError(text) from None
    return {"protected": protected, "signature": base64url(signature)}


def _specified(document: Mapping[str, Any]) -> bytes:
    """Return the bytes to sign; the whole card for protocol 0.3, which defines no form."""
    forms = {form.name: form.payload for form in signed_forms(document)}
    return forms.get("specified", forms["received"])
