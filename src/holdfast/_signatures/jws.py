"""JSON Web Signatures whose payload is elsewhere (RFC 7515, appendix F).

Rules: the caller says which algorithms count, never the signature; nothing counts that is not
signed itself, which is the whole unprotected header; what must be understood and is not makes a
signature one that nobody can verify.
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
    "check_algorithms",
    "check_library",
    "encoded",
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
"""Algorithms whose verifying keys are public (RFC 7518, 8037)."""

_LONGEST = 8192
"""Characters of a header, or of a signature."""

_BASE64URL = re.compile(r"[A-Za-z0-9_-]+")


class UnusableError(ValueError):
    """A signature that nobody here can verify, and why."""


class ProtectedHeader(NamedTuple):
    """What a signature says of itself, and covers.

    Attributes:
        algorithm: How it was made.
        key_id: The key's name; None if it names none.
        key_url: Where a set is that has the key (``jku``); None if it does not say.
    """

    algorithm: str
    key_id: str | None
    key_url: str | None


def check_algorithms(algorithms: tuple[str, ...]) -> None:
    """Checks which algorithms count.

    Raises:
        ValueError: There is none, or ``none``.
        TypeError: One is not text.
    """
    if not algorithms:
        text = "algorithms must be a tuple of names, such as ('ES256',)"
        raise ValueError(text)
    for name in algorithms:
        check_kind("one of algorithms", name, str)
    if any(name.lower() == "none" for name in algorithms):
        text = "algorithms must not have 'none', which is no signature"
        raise ValueError(text)


def check_library(extra: str, what: str, *, canonical: bool = False) -> None:
    """Checks that signatures can be verified.

    Args:
        extra: The extra that has what it takes.
        what: What needs it, in the singular.
        canonical: Whether canonical JSON is needed as well.

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
        raise missing_extra(what, extra)


def encoded(data: bytes) -> str:
    """Base64url without padding (RFC 7515, 2)."""
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def read_header(signature: Mapping[str, Any], algorithms: Iterable[str]) -> ProtectedHeader:
    """Reads what a signature says of itself.

    Args:
        signature: Its JSON object, as in a card.
        algorithms: Those that count.

    Raises:
        UnusableError: It cannot be verified.
    """
    protected, made = signature.get("protected"), signature.get("signature")
    if not (isinstance(protected, str) and isinstance(made, str)):
        raise UnusableError("it lacks its protected header or its value")
    if not (_is_base64url(protected) and _is_base64url(made)):
        raise UnusableError("it is not base64url, or too long")
    try:
        header = codec.as_object(codec.parse(_decoded(protected)))
    except ValueError:
        header = None
    if header is None:
        raise UnusableError("its protected header is not a JSON object")
    if "crit" in header or "b64" in header:  # RFC 7515, 4.1.11; RFC 7797
        raise UnusableError("it needs what is not understood here")
    algorithm, key_id, key_url = (header.get(name) for name in ("alg", "kid", "jku"))
    if not isinstance(algorithm, str) or algorithm not in algorithms:
        raise UnusableError("it is made by an algorithm that does not count")
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
    """Whether a signature over a payload is of one of some keys.

    Args:
        signature: Its JSON object, whose header was read.
        payload: What it is over.
        keys: JSON Web Keys.
        algorithm: The one that the header names.

    Returns:
        None if none of the keys is one for that algorithm.
    """
    import jwt  # with an extra

    token = f"{signature['protected']}.{encoded(payload)}.{signature['signature']}"
    is_any = False
    for key in keys:
        if key.get("alg", algorithm) != algorithm:
            continue
        try:
            known = jwt.PyJWK(dict(key), algorithm=algorithm)
        except (jwt.PyJWTError, ValueError, TypeError):  # the key's fault
            continue
        is_any = True
        try:
            jwt.PyJWS().decode_complete(token, key=known, algorithms=[algorithm])
        except (jwt.PyJWTError, ValueError, TypeError):
            continue
        return True
    return False if is_any else None


def _is_base64url(text: str) -> bool:
    return len(text) <= _LONGEST and _BASE64URL.fullmatch(text) is not None


def _decoded(text: str) -> bytes:
    try:
        return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
    except binascii.Error:
        raise UnusableError("it is not base64url") from None
