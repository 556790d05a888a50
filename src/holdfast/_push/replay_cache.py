"""Replay protection: each signed token is valid for one delivery.

Rules: the memory holds the tokens whose deliveries this receiver accepted. The journal, if there
is one, holds which receiver may accept a token's delivery, so that no use is lost in a restart,
and only one of several receivers with the same journal accepts it. A use is recorded before the
delivery is accepted: a delivery that is deferred, or whose request is cancelled, stays reserved
for this receiver, which accepts it when it is sent again.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import secrets
from typing import TYPE_CHECKING

from holdfast._aio.cancel_scope import wait_until
from holdfast._journal.protocol import TokenUse
from holdfast._push.refusals import Refusal, Refused

if TYPE_CHECKING:
    from holdfast._aio.env import Env
    from holdfast._journal.protocol import TokenJournal
    from holdfast._push.signatures import VerifiedJwt

__all__ = ["ReplayCache"]

logger = logging.getLogger("holdfast.push")

_RECORDING_TIMEOUT_S = 10.0
"""Time in which a journal must record the use of a token."""


class ReplayCache:
    """Used tokens, with the digest of the body that each was used for.

    Args:
        most: Maximum number of tokens.
        env: Provides wall time.
        journal: Records uses; None to keep them in memory only.
    """

    def __init__(self, most: int, env: Env, journal: TokenJournal | None = None) -> None:
        self._most = most
        self._env = env
        self._journal = journal
        self._receiver = secrets.token_hex(16)  # not from Env, which may be deterministic
        self._used: dict[bytes, tuple[float, bytes]] = {}  # expiry, digest of the body

    @property
    def has_journal(self) -> bool:
        """Return whether uses are recorded in a journal."""
        return self._journal is not None

    async def record(self, verified_jwt: VerifiedJwt, body: bytes) -> bool:
        """Record in the journal that this receiver uses a token.

        Returns:
            True if this receiver may accept the body; False if it was accepted before.

        Raises:
            Refused: The token was used for another body, or the journal cannot record its use now.
        """
        if self._journal is None:
            return True
        if self.has(verified_jwt, body):
            return False
        use = TokenUse(_digest(body), self._receiver)
        try:
            recording = self._journal.use_token(
                verified_jwt.name,
                use,
                expires_in=verified_jwt.expires_at - self._env.wall(),
                most=self._most,
            )
            deadline_at = asyncio.get_running_loop().time() + _RECORDING_TIMEOUT_S
            recorded = await wait_until(deadline_at, recording, _timeout)
        except Exception as error:  # noqa: BLE001  a journal of the caller's own may raise any
            logger.warning(
                "the use of a signed token cannot be recorded: %s", error or type(error).__name__
            )
            text = "the use of the token cannot be recorded now"
            raise Refused(Refusal.UNAVAILABLE, text) from None
        if recorded is None:
            raise Refused(Refusal.UNAVAILABLE, "too many deliveries at once")
        if recorded.body != use.body:
            raise Refused(Refusal.INVALID_TOKEN, "the token was used before")
        return recorded.receiver == self._receiver

    def has(self, verified_jwt: VerifiedJwt, body: bytes) -> bool:
        """Return whether a token was used before for the same body: the same delivery.

        Raises:
            Refused: The token was used for another body, has expired since it was verified, or the
                cache is full.
        """
        now = self._env.wall()
        if verified_jwt.expires_at <= now:  # its use may have been dropped from the cache
            raise Refused(Refusal.INVALID_TOKEN, "the token is too old")
        used = self._used.get(verified_jwt.name)
        if used is not None and used[0] > now:
            if used[1] != _digest(body):
                raise Refused(Refusal.INVALID_TOKEN, "the token was used before")
            return True
        if len(self._used) >= self._most:
            self._drop_expired(now)
        return False

    def add(self, verified_jwt: VerifiedJwt, body: bytes) -> None:
        """Store a used token until it expires."""
        self._used[verified_jwt.name] = (verified_jwt.expires_at, _digest(body))

    def _drop_expired(self, now: float) -> None:
        for name in [name for name, (expires_at, _) in self._used.items() if expires_at <= now]:
            del self._used[name]
        if len(self._used) >= self._most:
            raise Refused(Refusal.UNAVAILABLE, "too many deliveries at once")


def _digest(body: bytes) -> bytes:
    return hashlib.sha256(body).digest()


def _timeout() -> TimeoutError:
    return TimeoutError(f"the journal did not answer within {_RECORDING_TIMEOUT_S:g} s")
