"""Keys that a caller trusts, in any of the accepted forms."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

from holdfast._arguments import check_url
from holdfast._model import codec
from holdfast._model.hosts import is_loopback
from holdfast._pipeline.cards.keys import PRIVATE_MEMBERS, FetchedKeys, FixedKeys
from holdfast._wire.http import presentable
from holdfast._wire.origins import origin

if TYPE_CHECKING:
    from holdfast._aio.env import Env
    from holdfast._net.engine import HttpEngine
    from holdfast._pipeline.cards.keys import KeySource

__all__ = [
    "VerificationKeys",
    "key_origin",
    "key_source",
    "private_key",
    "read_keys",
    "signing_fault",
]

VerificationKeys = str | bytes | Mapping[str, Any]
"""A JWK set, a JWK, keys by id, PEM (text or bytes), or the URL of a JWK set."""

_PEM = "-----BEGIN "

_KEYS_FORMAT = (
    "keys must be a JWK set or key (RFC 7517), a dict of keys by their ids, a public key as PEM, "
    "or the https:// address of a JWK set"
)


def read_keys(keys: VerificationKeys) -> str | dict[str, Any]:
    """Convert the caller's keys to the URL of a set, or to a set.

    Raises:
        ValueError: There is no public key, or the URL is not https.
        TypeError: The argument has another type.
    """
    if isinstance(keys, bytes):
        keys = _text(keys)
    if isinstance(keys, str):
        if keys.lstrip().startswith(_PEM):
            return {"keys": [_jwk_of_pem(keys)]}
        if keys.lstrip().startswith("{"):
            return read_keys(_json(keys))
        check_url(keys, "address of the keys", no_user="keys are public, and need none")
        _check_secure(keys, "address of the keys")
        return keys
    if not isinstance(cast("object", keys), Mapping):
        text = f"{_KEYS_FORMAT}, not {type(keys).__name__}"
        raise TypeError(text)
    if "keys" in keys and isinstance(keys["keys"], list | tuple):
        public_keys = [_public_part(key) for key in cast("list[object]", keys["keys"])]
    elif "kty" in keys:
        public_keys = [_public_part(keys)]
    else:
        public_keys = [{**_named_key(key), "kid": name} for name, key in keys.items()]
    if not public_keys:
        raise ValueError(_KEYS_FORMAT)
    return {"keys": public_keys}


def key_source(keys: str | dict[str, Any], engine: HttpEngine, env: Env) -> KeySource:
    """Return the source of keys from `read_keys`."""
    return FetchedKeys(keys, engine, env) if isinstance(keys, str) else FixedKeys(keys)


def key_origin(host: str) -> str:
    """Return the origin of a host whose key sets are accepted.

    Args:
        host: A host, which is requested over https, or an origin.

    Raises:
        ValueError: The argument is neither, or not https.
        TypeError: The argument is not a string.
    """
    url = host if not isinstance(cast("object", host), str) or "://" in host else f"https://{host}"
    check_url(url, "host of keys", no_user="keys are public, and need none")
    _check_secure(url, "host of keys")
    if url.rstrip("/").count("/") > 2 or "?" in url:
        text = f"jku_hosts must contain hosts or origins without a path, not {presentable(url)}"
        raise ValueError(text)
    return origin(url)


def private_key(key: Any) -> Any:
    """Load a private key: a JSON Web Key; any other form is returned unchanged.

    Raises:
        ValueError: The JSON Web Key is invalid.
    """
    import jwt  # needs an extra

    if not isinstance(key, Mapping):
        return key
    try:
        return jwt.PyJWK(dict(cast("Mapping[str, Any]", key))).key
    except (jwt.PyJWTError, ValueError, TypeError):
        text = "the private key is not a readable JSON Web Key"
    raise ValueError(text)


def signing_fault(key: Any) -> str:
    """Return why a key could not sign, and what to pass.

    Args:
        key: The caller's key, in any form.
    """
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    pem = key.encode() if isinstance(key, str) else key
    if isinstance(pem, bytes) and b"PUBLIC KEY" in pem:
        return _IS_PUBLIC
    try:
        loaded = load_pem_private_key(pem, None) if isinstance(pem, bytes) else private_key(pem)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        return _NOT_PRIVATE
    if isinstance(loaded, RSAPrivateKey):
        return "it is an RSA key; pass algorithm='RS256' or 'PS256'"
    if isinstance(loaded, EllipticCurvePrivateKey):
        algorithm = {256: "ES256", 384: "ES384", 521: "ES512"}.get(loaded.key_size)
        hint = f"pass algorithm={algorithm!r}" if algorithm else "no algorithm suits it"
        return f"it is an EC key of the curve {loaded.curve.name}; {hint}"
    if type(loaded).__name__.startswith("Ed"):  # Ed25519 and Ed448
        return "it is an Ed25519 or Ed448 key; pass algorithm='EdDSA'"
    return _IS_PUBLIC if hasattr(loaded, "verify") else _NOT_PRIVATE


_IS_PUBLIC = "it is a public key; pass the private one"
_NOT_PRIVATE = (
    "it is not a readable private key; pass PEM without a password, a JSON Web Key or a private "
    "key of cryptography"
)


def _check_secure(url: str, subject: str) -> None:
    from urllib.parse import urlsplit

    parts = urlsplit(url)
    if parts.scheme != "https" and not is_loopback(parts.hostname or ""):
        text = f"the {subject} must be https: over http, the keys could be replaced (A2A 8.4.3)"
        raise ValueError(text)


def _json(text: str) -> Mapping[str, Any]:
    try:
        members = codec.as_object(codec.parse(text.encode()))
    except ValueError:
        members = None
    if members is None:
        raise ValueError(_KEYS_FORMAT)
    return members


def _text(keys: bytes) -> str:
    try:
        return keys.decode()
    except UnicodeDecodeError:
        raise ValueError(_KEYS_FORMAT) from None


def _named_key(key: object) -> dict[str, Any]:
    if isinstance(key, bytes):
        key = _text(key)
    if isinstance(key, str) and key.lstrip().startswith(_PEM):
        return _jwk_of_pem(key)
    return _public_part(key)


def _public_part(key: object) -> dict[str, Any]:
    members = codec.as_object(key)
    if members is None or not isinstance(members.get("kty"), str):
        raise ValueError(_KEYS_FORMAT)
    return {name: member for name, member in members.items() if name not in PRIVATE_MEMBERS}


def _jwk_of_pem(text: str) -> dict[str, Any]:
    import jwt
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
    from cryptography.hazmat.primitives.serialization import load_pem_public_key
    from jwt import algorithms

    if "PRIVATE KEY" in text:
        fault = "keys must be public, and this is a private key: only the signer should have it"
        raise ValueError(fault)
    try:
        key = load_pem_public_key(text.strip().encode())
        if isinstance(key, EllipticCurvePublicKey):
            return algorithms.ECAlgorithm.to_jwk(key, as_dict=True)
        if isinstance(key, RSAPublicKey):
            return algorithms.RSAAlgorithm.to_jwk(key, as_dict=True)
        return algorithms.OKPAlgorithm.to_jwk(cast("Any", key), as_dict=True)
    except (ValueError, TypeError, UnsupportedAlgorithm, jwt.InvalidKeyError):
        pass
    fault = "keys: the PEM contains no readable public key"
    raise ValueError(fault)
