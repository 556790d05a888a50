"""The keys that a caller trusts, however they are given."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

from holdfast._arguments import check_url
from holdfast._model import codec
from holdfast._model.hosts import is_loopback
from holdfast._pipeline.cards.keys import PRIVATE_MEMBERS, FetchedKeys, FixedKeys
from holdfast._wire.origins import origin

if TYPE_CHECKING:
    from holdfast._aio.env import Env
    from holdfast._net.engine import HttpEngine
    from holdfast._pipeline.cards.keys import KeySource

__all__ = ["KeysGiven", "key_origin", "key_source", "private_key", "read_keys"]

KeysGiven = str | Mapping[str, Any]
"""A JWK set, a key, keys by their ids, PEM, or the address of a set."""

_PEM = "-----BEGIN "

_NO_KEY = (
    "keys are a JWK set or key (RFC 7517), a dict of keys by their ids, a public key as PEM, or "
    "the https:// address of a JWK set"
)


def read_keys(keys: KeysGiven) -> str | dict[str, Any]:
    """Reads the keys that a caller gives: the address of a set, or a set.

    Raises:
        ValueError: There is no public key in it, or an address that others can listen to.
        TypeError: It is something else.
    """
    if isinstance(keys, str):
        if keys.lstrip().startswith(_PEM):
            return {"keys": [_jwk_of_pem(keys)]}
        if keys.lstrip().startswith("{"):
            return read_keys(_json(keys))
        check_url(keys, "address of the keys", no_user="keys are public, and need none")
        _check_secure(keys, "address of the keys")
        return keys
    if not isinstance(cast("object", keys), Mapping):
        text = f"{_NO_KEY}, not {type(keys).__name__}"
        raise TypeError(text)
    if "keys" in keys and isinstance(keys["keys"], list | tuple):
        found = [_public(key) for key in cast("list[object]", keys["keys"])]
    elif "kty" in keys:
        found = [_public(keys)]
    else:
        found = [{**_of_name(key), "kid": name} for name, key in keys.items()]
    if not found:
        raise ValueError(_NO_KEY)
    return {"keys": found}


def key_source(keys: str | dict[str, Any], engine: HttpEngine, env: Env) -> KeySource:
    """Where keys come from that were read."""
    return FetchedKeys(keys, engine, env) if isinstance(keys, str) else FixedKeys(keys)


def key_origin(host: str) -> str:
    """The origin that a caller means by a host whose key sets count.

    Args:
        host: A host, which is asked over https, or an origin.

    Raises:
        ValueError: It is neither, or others can listen to it.
        TypeError: It is no string.
    """
    url = host if not isinstance(cast("object", host), str) or "://" in host else f"https://{host}"
    check_url(url, "host of keys", no_user="keys are public, and need none")
    _check_secure(url, "host of keys")
    if url.rstrip("/").count("/") > 2 or "?" in url:
        text = f"a host of keys is a host or an origin, without a path: {origin(url)}"
        raise ValueError(text)
    return origin(url)


def private_key(key: Any) -> Any:
    """A private key as the library wants it: of PEM, a JSON Web Key, or as it is.

    Raises:
        ValueError: It cannot be read.
    """
    import jwt  # with an extra

    if not isinstance(key, Mapping):
        return key
    try:
        return jwt.PyJWK(dict(cast("Mapping[str, Any]", key))).key
    except (jwt.PyJWTError, ValueError, TypeError):
        text = "the private key is not a readable JSON Web Key"
    raise ValueError(text)


def _check_secure(url: str, what: str) -> None:
    from urllib.parse import urlsplit

    parts = urlsplit(url)
    if parts.scheme != "https" and not is_loopback(parts.hostname or ""):
        text = f"the {what} must be https: over http, others could replace the keys (A2A 8.4.3)"
        raise ValueError(text)


def _json(text: str) -> Mapping[str, Any]:
    try:
        found = codec.as_object(codec.parse(text.encode()))
    except ValueError:
        found = None
    if found is None:
        raise ValueError(_NO_KEY)
    return found


def _of_name(key: object) -> dict[str, Any]:
    if isinstance(key, str) and key.lstrip().startswith(_PEM):
        return _jwk_of_pem(key)
    return _public(key)


def _public(key: object) -> dict[str, Any]:
    known = codec.as_object(key)
    if known is None or not isinstance(known.get("kty"), str):
        raise ValueError(_NO_KEY)
    return {name: member for name, member in known.items() if name not in PRIVATE_MEMBERS}


def _jwk_of_pem(text: str) -> dict[str, Any]:
    import jwt
    import jwt.algorithms as known
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
    from cryptography.hazmat.primitives.serialization import load_pem_public_key

    if "PRIVATE KEY" in text:
        why = "keys must be public, and this is a private key: only the signer should have it"
        raise ValueError(why)
    try:
        key = load_pem_public_key(text.strip().encode())
        if isinstance(key, EllipticCurvePublicKey):
            return known.ECAlgorithm.to_jwk(key, as_dict=True)
        if isinstance(key, RSAPublicKey):
            return known.RSAAlgorithm.to_jwk(key, as_dict=True)
        return known.OKPAlgorithm.to_jwk(cast("Any", key), as_dict=True)
    except (ValueError, TypeError, UnsupportedAlgorithm, jwt.InvalidKeyError):
        pass
    why = "keys: the PEM holds no public key that can be read"
    raise ValueError(why)
