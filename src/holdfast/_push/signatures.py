"""Signed deliveries: a JSON Web Token in ``Authorization`` that covers the body.

Rules: the caller's policy determines the accepted algorithms, never the token. The token
identifies its key only by id; a key or URL in the token is ignored. Times are compared with the
wall clock of `Env`. `holdfast._push.replay_cache` ensures that a token is used for one delivery
only.

A token has the form of the specification's example (push notifications, JWT and JWKS), with the
digest of the body that the official samples add: ``request_body_sha256``, of the bytes as sent or
of the same JSON without whitespace.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import math
from typing import TYPE_CHECKING, Any, Literal, cast

import msgspec

from holdfast._arguments import check_not_empty
from holdfast._model import codec
from holdfast._model.settings import check_count, check_kinds, check_numbers
from holdfast._pipeline.cards.keys import KeysUnavailableError
from holdfast._push.refusals import Refusal, Refused
from holdfast._signatures.jws import ASYMMETRIC, check_algorithms

if TYPE_CHECKING:
    from collections.abc import Mapping

    from holdfast._aio.env import Env
    from holdfast._pipeline.cards.keys import KeySource

__all__ = ["JwtPolicy", "SignatureCheck", "VerifiedJwt"]

_MAX_TOKEN_CHARACTERS = 8192
_BODY_DIGEST_CLAIM = "request_body_sha256"


class JwtPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """Policy for signed tokens of deliveries.

    Attributes:
        algorithms: Names of the accepted algorithms (RFC 7518); by default those with public keys.
            A shared secret must be named, as ``("HS256",)``.
        issuer: Required ``iss``; None for any.
        audience: Required ``aud``, or one of its items; None for the receiver's ``url``. False
            accepts any audience, for agents that send none; then a token for another receiver is
            accepted here too.
        max_age: Maximum age in seconds after ``iat``, whatever ``exp`` allows, 300 by default.
        leeway: Accepted difference of the agent's clock, in seconds, 60 by default.
        body_digest: Whether to require a digest of the body (``request_body_sha256``); True by
            default. A digest is compared in any case.
        max_tokens: Maximum number of unexpired tokens that are remembered, so that none is used
            twice; 10,000 by default. Beyond it deliveries are deferred (HTTP 503).

    Raises:
        ValueError: There is no algorithm, or ``none``; or a number is out of range.
        TypeError: A value has another type.
    """

    algorithms: tuple[str, ...] = ASYMMETRIC
    issuer: str | None = None
    audience: str | Literal[False] | None = None
    max_age: float = 300.0
    leeway: float = 60.0
    body_digest: bool = True
    max_tokens: int = 10_000

    def __post_init__(self) -> None:
        check_kinds(self, algorithms=tuple, body_digest=bool)
        if self.issuer is not None:
            check_not_empty("issuer", self.issuer)
        check_numbers(self, ("max_age", "leeway"))
        check_count("max_tokens", self.max_tokens, least=1)
        check_algorithms(self.algorithms)
        if self.audience is not False and not isinstance(
            cast("object", self.audience), str | None
        ):
            text = "audience must be the name of the receiver, or False for any"
            raise TypeError(text)
        if self.audience == "":
            text = (
                "audience must not be empty; omit it for the receiver's url, or pass False for "
                "any audience"
            )
            raise ValueError(text)
        for name in ("max_age", "leeway"):
            if not 0 <= getattr(self, name) < math.inf:
                text = f"{name} must be a finite number of seconds, and not negative"
                raise ValueError(text)


class VerifiedJwt(msgspec.Struct, frozen=True, kw_only=True):
    """Token with a valid signature and valid times, for one body.

    Attributes:
        name: Identifies the token.
        expires_at: Wall time at which the token expires.
        body_digest: SHA-256 of the body in hexadecimal digits; None if the token has none.
        task_id: Task id of the token; None if it has none.
    """

    name: bytes
    expires_at: float
    body_digest: str | None = None
    task_id: str | None = None

    def signed_body(self, body: bytes) -> bytes:
        """Return the body that the token covers: as sent, or without whitespace.

        Args:
            body: The body as sent, small enough to parse.

        Raises:
            Refused: The digest does not match the body.
        """
        if self.body_digest is None:
            return body
        for normalized in (bytes, _compact):
            candidate = normalized(body)
            digest = hashlib.sha256(candidate).hexdigest()
            if hmac.compare_digest(digest, self.body_digest):
                return candidate
        raise _refused("the token's body digest does not match the body")


class SignatureCheck:
    """Verifier of tokens.

    Args:
        policy: Policy for tokens.
        url: URL of the receiver: the required audience unless the policy has one.
        keys: Source of public keys.
        env: Provides wall time.
    """

    def __init__(self, policy: JwtPolicy, url: str, keys: KeySource, env: Env) -> None:
        self._policy = policy
        self._audience = url if policy.audience is None else policy.audience
        self._keys = keys
        self._env = env

    async def close(self) -> None:
        """Stop fetching keys."""
        await self._keys.close()

    async def verify(self, authorization: str | None) -> VerifiedJwt:
        """Verify the token of a request, before its body is read.

        Raises:
            Refused: The token is missing, invalid, or cannot be verified now.
        """
        scheme, _, token = (authorization or "").partition(" ")
        if scheme.lower() != "bearer" or not token.strip():
            raise Refused(Refusal.UNAUTHENTICATED, "a signed token is missing")
        token = token.strip()
        if len(token) > _MAX_TOKEN_CHARACTERS:
            raise _refused("the token is too long")
        claims = await self._claims(token)
        return self._verified(token, claims)

    async def _claims(self, token: str) -> Mapping[str, Any]:
        """Return the claims of a token with a valid signature."""
        import jwt  # needs an extra

        try:
            header = jwt.get_unverified_header(token)
        except (jwt.PyJWTError, RecursionError):
            raise _refused("the token cannot be read") from None
        algorithm, kid = header.get("alg"), header.get("kid")
        if algorithm not in self._policy.algorithms:
            raise _refused("the token is signed with an algorithm that is not accepted")
        if "crit" in header:  # RFC 7515, 4.1.11
            raise _refused("the token has critical headers (crit) that are not supported")
        try:
            keys = await self._keys.find(kid if isinstance(kid, str) else None)
        except KeysUnavailableError:
            text = "the keys to verify the token cannot be fetched now"
            raise Refused(Refusal.UNAVAILABLE, text) from None
        for key in keys:
            if key.get("alg", algorithm) != algorithm:
                continue
            try:
                jwk = jwt.PyJWK(key, algorithm=algorithm)
                decoded = jwt.PyJWS().decode_complete(token, key=jwk, algorithms=[algorithm])
                claims = codec.parse(decoded["payload"])
            except (jwt.PyJWTError, ValueError, TypeError):  # perhaps because of the key
                continue
            if isinstance(claims, dict):
                return cast("dict[str, Any]", claims)
        raise _refused("the signature of the token matches no known key")

    def _verified(self, token: str, claims: Mapping[str, Any]) -> VerifiedJwt:
        policy, now = self._policy, self._env.wall()
        issued, expires, not_before = (_time(claims, name) for name in ("iat", "exp", "nbf"))
        if issued is None:
            raise _refused("the token has no time of issue (iat)")
        if issued > now + policy.leeway or (not_before or 0.0) > now + policy.leeway:
            raise _refused("the token was issued in the future")
        expires_at = issued + policy.max_age
        if expires is not None:
            expires_at = min(expires_at, expires)
        expires_at += policy.leeway
        if expires_at <= now:
            raise _refused("the token is too old")
        if policy.issuer is not None and claims.get("iss") != policy.issuer:
            raise _refused("the token was issued by another issuer")
        audience = claims.get("aud")
        audiences = cast("list[object]", audience if isinstance(audience, list) else [audience])
        if self._audience is not False and self._audience not in audiences:
            raise _refused("the token is not for this receiver (aud)")
        digest, task_id, name = (
            claims.get(_BODY_DIGEST_CLAIM),
            claims.get("taskId"),
            claims.get("jti"),
        )
        if digest is None and policy.body_digest:
            raise _refused("the token has no body digest")
        if digest is not None and not (isinstance(digest, str) and digest.isascii()):
            raise _refused("the token's body digest cannot be read")
        return VerifiedJwt(
            name=_name(token, claims.get("iss"), name),
            expires_at=expires_at,
            body_digest=None if digest is None else digest.lower(),
            task_id=task_id if isinstance(task_id, str) else None,
        )


def _refused(text: str) -> Refused:
    return Refused(Refusal.INVALID_TOKEN, text)


def _time(claims: Mapping[str, Any], name: str) -> float | None:
    value = claims.get(name)
    if value is None:
        return None
    if not isinstance(value, int | float) or isinstance(value, bool) or not abs(value) < 1e15:
        raise _refused("a time in the token cannot be read")
    return float(value)


def _name(token: str, issuer: object, token_id: object) -> bytes:
    """Return a digest that identifies a token: of its id (``jti``), or of its signed part.

    The signature does not identify it: some signatures have two encodings.
    """
    if not (isinstance(token_id, str) and token_id):
        token_id = token.rpartition(".")[0]
    known_issuer = issuer if isinstance(issuer, str) else None
    return hashlib.sha256(json.dumps([known_issuer, token_id]).encode()).digest()


def _compact(body: bytes) -> bytes:
    """Return the same JSON without whitespace, as the official samples digest it."""
    try:
        document = codec.parse(body)
        text = json.dumps(document, ensure_ascii=False, separators=(",", ":"))
        return text.encode()
    except (ValueError, RecursionError):
        return body
