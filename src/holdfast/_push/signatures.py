"""Signed deliveries: a JSON Web Token in ``Authorization`` that vouches for the body.

Rules: the caller's policy says which algorithms count, never the token; the token names a key by
its id only, and no key or address that comes along with it is used; times are compared with the
wall clock of `Env`. That one token vouches for one delivery only is `holdfast._push.replay_cache`.

A token is as in the specification's example (push notifications, JWT and JWKS), with the digest
of the body that the official samples add: ``request_body_sha256``, of the bytes as they were
sent or of the same JSON without blanks.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import math
from typing import TYPE_CHECKING, Any, Literal, cast

import msgspec

from holdfast._arguments import not_empty
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

_LONGEST = 8192
_BODY_DIGEST = "request_body_sha256"


class JwtPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """Which signed tokens count.

    Attributes:
        algorithms: Names of the algorithms (RFC 7518) that count: by default those with public
            keys. A shared secret needs naming, as ``("HS256",)``.
        issuer: What ``iss`` must be; any if left out.
        audience: What ``aud`` must be, or contain: the receiver's ``url`` if left out. False takes
            a token for anybody, as of agents that name nobody; then one that was made for another
            receiver counts here, too.
        max_age: Seconds after ``iat`` for which a token counts, whatever its ``exp`` allows.
        leeway: Seconds by which the agent's clock may differ.
        body_digest: Whether a token must vouch for the body by ``request_body_sha256``. One that
            does is compared with it in any case.
        max_tokens: How many tokens are remembered within their time, so that none counts twice;
            beyond it deliveries are put off (HTTP 503).

    Raises:
        ValueError: There is no algorithm, or ``none``; or a number that cannot be right.
        TypeError: A value of another type.
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
            not_empty("issuer", self.issuer)
        check_numbers(self, ("max_age", "leeway"))
        check_count("max_tokens", self.max_tokens, least=1)
        check_algorithms(self.algorithms)
        if self.audience is not False and not isinstance(
            cast("object", self.audience), str | None
        ):
            text = "audience must be the name of the receiver, or False for any"
            raise TypeError(text)
        if self.audience == "":
            text = "audience is empty: leave it out for the receiver's url, or pass False for any"
            raise ValueError(text)
        for name in ("max_age", "leeway"):
            if not 0 <= getattr(self, name) < math.inf:
                text = f"{name} must be zero or more seconds, with an end"
                raise ValueError(text)


class VerifiedJwt(msgspec.Struct, frozen=True, kw_only=True):
    """A token whose signature and times are right; it vouches for one body.

    Attributes:
        name: What the token is known by.
        ends: Wall time at which it counts no more.
        body_digest: SHA-256 of the body in hexadecimal digits; None if it names none.
        task_id: The task that it names, if it does.
    """

    name: bytes
    ends: float
    body_digest: str | None = None
    task_id: str | None = None

    def vouched(self, body: bytes) -> bytes:
        """Compares a body with what the token vouches for.

        Args:
            body: As it was sent, small enough to be parsed.

        Returns:
            The body that was vouched for: as it was sent, or without blanks.

        Raises:
            Refused: It is another body.
        """
        if self.body_digest is None:
            return body
        for written in (bytes, _compact):
            candidate = written(body)
            digest = hashlib.sha256(candidate).hexdigest()
            if hmac.compare_digest(digest, self.body_digest):
                return candidate
        raise _refused("the token's body digest does not match the body")


class SignatureCheck:
    """Verifies tokens.

    Args:
        policy: Which tokens count.
        url: The address of the receiver, for which tokens are if the policy names nobody.
        keys: Where public keys come from.
        env: Where wall time comes from.
    """

    def __init__(self, policy: JwtPolicy, url: str, keys: KeySource, env: Env) -> None:
        self._policy = policy
        self._audience = url if policy.audience is None else policy.audience
        self._keys = keys
        self._env = env

    async def close(self) -> None:
        """Fetches no more keys."""
        await self._keys.close()

    async def verify(self, authorization: str | None) -> VerifiedJwt:
        """Verifies the token of a request, before its body is read.

        Raises:
            Refused: There is none, it does not count, or it cannot be verified now.
        """
        scheme, _, token = (authorization or "").partition(" ")
        if scheme.lower() != "bearer" or not token.strip():
            raise Refused(Refusal.UNPROVEN, "a signed token is missing")
        token = token.strip()
        if len(token) > _LONGEST:
            raise _refused("the token is too long")
        claims = await self._claims(token)
        return self._voucher(token, claims)

    async def _claims(self, token: str) -> Mapping[str, Any]:
        """What a token says whose signature is right."""
        import jwt  # with an extra

        try:
            header = jwt.get_unverified_header(token)
        except (jwt.PyJWTError, RecursionError):
            raise _refused("the token cannot be read") from None
        algorithm, kid = header.get("alg"), header.get("kid")
        if algorithm not in self._policy.algorithms:
            raise _refused("the token is signed by an algorithm that does not count")
        if "crit" in header:  # RFC 7515, 4.1.11
            raise _refused("the token needs what is not understood here")
        try:
            keys = await self._keys.find(kid if isinstance(kid, str) else None)
        except KeysUnavailableError:
            text = "the keys to verify the token cannot be had now"
            raise Refused(Refusal.NOT_NOW, text) from None
        for key in keys:
            if key.get("alg", algorithm) != algorithm:
                continue
            try:
                known = jwt.PyJWK(key, algorithm=algorithm)
                signed = jwt.PyJWS().decode_complete(token, key=known, algorithms=[algorithm])
                claims = codec.parse(signed["payload"])
            except (jwt.PyJWTError, ValueError, TypeError):  # which may be the key's fault
                continue
            if isinstance(claims, dict):
                return cast("dict[str, Any]", claims)
        raise _refused("the signature of the token is of no known key")

    def _voucher(self, token: str, claims: Mapping[str, Any]) -> VerifiedJwt:
        policy, now = self._policy, self._env.wall()
        issued, expires, begins = (_time(claims, name) for name in ("iat", "exp", "nbf"))
        if issued is None:
            raise _refused("the token does not say when it was made")
        if issued > now + policy.leeway or (begins or 0.0) > now + policy.leeway:
            raise _refused("the token is of the future")
        ends = issued + policy.max_age
        if expires is not None:
            ends = min(ends, expires)
        ends += policy.leeway
        if ends <= now:
            raise _refused("the token is too old")
        if policy.issuer is not None and claims.get("iss") != policy.issuer:
            raise _refused("the token is of another issuer")
        audience = claims.get("aud")
        meant = cast("list[object]", audience if isinstance(audience, list) else [audience])
        if self._audience is not False and self._audience not in meant:
            raise _refused("the token is not for this receiver (aud)")
        digest, task_id, name = claims.get(_BODY_DIGEST), claims.get("taskId"), claims.get("jti")
        if digest is None and policy.body_digest:
            raise _refused("the token has no body digest")
        if digest is not None and not (isinstance(digest, str) and digest.isascii()):
            raise _refused("the token's body digest cannot be read")
        return VerifiedJwt(
            name=_name(token, claims.get("iss"), name),
            ends=ends,
            body_digest=None if digest is None else digest.lower(),
            task_id=task_id if isinstance(task_id, str) else None,
        )


def _refused(text: str) -> Refused:
    return Refused(Refusal.UNVOUCHED, text)


def _time(claims: Mapping[str, Any], name: str) -> float | None:
    value = claims.get(name)
    if value is None:
        return None
    if not isinstance(value, int | float) or isinstance(value, bool) or not abs(value) < 1e15:
        raise _refused("a time in the token cannot be read")
    return float(value)


def _name(token: str, issuer: object, given: object) -> bytes:
    """What a token is known by: what it is called, else what is signed of it.

    The signature itself is no name: some can be written in two ways.
    """
    if not (isinstance(given, str) and given):
        given = token.rpartition(".")[0]
    by = issuer if isinstance(issuer, str) else None
    return hashlib.sha256(json.dumps([by, given]).encode()).digest()


def _compact(body: bytes) -> bytes:
    """The same JSON without blanks, as the official samples digest it."""
    try:
        document = codec.parse(body)
        written = json.dumps(document, ensure_ascii=False, separators=(",", ":"))
        return written.encode()
    except (ValueError, RecursionError):
        return body
