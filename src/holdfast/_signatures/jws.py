"""JSON Web Signatures with detached payload (RFC 7515, appendix F).

Rules: the caller determines the accepted algorithms, never the signature. The unprotected header
is not signed, and so is ignored. An unsupported critical parameter makes a signature unverifiable.
"""

from __future__ import annotations

import base64
import binascii
import re
from typing import TYPE_CHECKING, Any, NamedTuple

from holdfast._model import codec
from holdfast._model.extras import missing_extra
from holdfast._model.settings import check_kind

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

__all__ = [
    "ASYMMETRIC",
    "ProtectedHeader",
    "UnusableError",
    "base64url",
    "check_algorithms",
    "check_library",
    "is_signed_by",
    "read_header",
]

ASYMMETRIC = (
    "ES256",
    "ES384",
    "ES512",
    "EdDSA",
    "PS256",
    "PS384",
    "PS512",
    "RS256",
    "RS384",
    "RS512",
)
"""Algorithms whose verification keys are public (RFC 7518, 8037)."""

_MAX_CHARACTERS = 8192
"""Maximum length of a header, or of a signature."""

_BASE64URL = re.compile(r"[A-Za-z0-9_-]+")


class UnusableError(ValueError):
    """The signature cannot be verified; the text says why."""


class ProtectedHeader(NamedTuple):
    """Protected header of a signature.

    Attributes:
        algorithm: Name of the algorithm.
        key_id: Id of the key (``kid``); None if there is none.
        key_url: URL of a key set with the key (``jku``); None if there is none.
    """

    algorithm: str
    key_id: str | None
    key_url: str | None


def check_algorithms(algorithms: tuple[str, ...]) -> None:
    """Check names of accepted algorithms.

    Raises:
        ValueError: The tuple is empty, or contains ``none``.
        TypeError: A name is not a string.
    """
    if not algorithms:
        text = "algorithms must be a tuple of names, such as ('ES256',)"
        raise ValueError(text)
    for name in algorithms:
        check_kind("one of algorithms", name, str)
    if any(name.lower() == "none" for name in algorithms):
        text = "algorithms must not contain 'none'"
        raise ValueError(text)


def check_library(extra: str, feature: str, *, canonical: bool = False) -> None:
    """Check that the libraries for signatures are installed.

    Args:
        extra: The extra that provides them.
        feature: Name of the feature that needs them, in the singular.
        canonical: Canonical JSON is needed too.

    Raises:
        ImportError: The extra is not installed.
    """
    try:
        import jwt
        from jwt.algorithms import has_crypto

        if canonical:
            import rfc8785

            del rfc8785
    except ImportError:
        has_crypto = False
    else:
        del jwt
    if not has_crypto:
        raise missing_extra(feature, extra)


def base64url(data: bytes) -> str:
    """Encode as base64url without padding (RFC 7515, 2)."""
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def read_header(signature: Mapping[str, Any], algorithms: Iterable[str]) -> ProtectedHeader:
    """Decode the protected header of a signature.

    Args:
        signature: Its JSON object, as in a card.
        algorithms: Accepted algorithms.

    Raises:
        UnusableError: The signature cannot be verified.
    """
    protected, value = signature.get("protected"), signature.get("signature")
    if not (isinstance(protected, str) and isinstance(value, str)):
        raise UnusableError("it lacks its protected header or its value")
    if not (_is_base64url(protected) and _is_base64url(value)):
        raise UnusableError("it is not base64url, or too long")
    try:
        header = codec.as_object(codec.parse(_decode_base64url(protected)))
    except ValueError:
        header = None
    if header is None:
        raise UnusableError("its protected header is not a JSON object")
    if "crit" in header or "b64" in header:  # RFC 7515, 4.1.11; RFC 7797
        raise UnusableError("its critical headers (crit) are not supported")
    algorithm, key_id, key_url = (header.get(name) for name in ("alg", "kid", "jku"))
    if not isinstance(algorithm, str) or algorithm not in algorithms:
        raise UnusableError("its algorithm is not accepted")
    return ProtectedHeader(
        algorithm=algorithm,
        key_id=key_id if isinstance(key_id, str) else None,
        key_url=key_url if isinstance(key_url, str) else None,
    )


def is_signed_by(
    signature: Mapping[str, Any],
    payload: bytes,
    keys: Sequence[Mapping[str, Any]],
    algorithm: str,
) -> bool | None:
    """Return whether one of the keys made a signature of a payload.

    Args:
        signature: Its JSON object, whose header was decoded.
        payload: The signed bytes.
        keys: JSON Web Keys.
        algorithm: Algorithm of the header.

    Returns:
        None if no key suits the algorithm.
    """
    import jwt  # needs an extra

    token = f"{signature['protected']}.{base64url(payload)}.{signature['signature']}"
    has_suitable_key = False
    for key in keys:
        if key.get("alg", algorithm) != algorithm:
            continue
        try:
            jwk = jwt.PyJWK(dict(key), algorithm=algorithm)
        except (jwt.PyJWTError, ValueError, TypeError):  # the key's fault
            continue
        has_suitable_key = True
        try:
            jwt.PyJWS().decode_complete(token, key=jwk, algorithms=[algorithm])
        except (jwt.PyJWTError, ValueError, TypeError):
            continue
        return True
    return False if has_suitable_key else None


def _is_base64url(text: str) -> bool:
    return len(text) <= _MAX_CHARACTERS and _BASE64URL.fullmatch(text) is not None


def _decode_base64url(text: str) -> bytes:
    try:
        return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
    except binascii.Error:
        raise UnusableError("it is not base64url") from None
