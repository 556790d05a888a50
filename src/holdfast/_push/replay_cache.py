"""The signed tokens that were used, remembered while they count: one vouches for one delivery.

Rules: memory says what this receiver has taken; the journal, if there is one, which receiver may
take what a token vouches for, so that a restart forgets no use, and of several receivers with one
journal one alone takes it. A use is recorded before it is taken: a delivery that is put off, or
whose request is cancelled, stays this receiver's, and is taken when it comes again.
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

_RECORDING = 10.0
"""Seconds that a journal has to record the use of a token."""


class ReplayCache:
    """Tokens, and what they were used for.

    Args:
        most: How many are remembered.
        env: Where wall time comes from.
        journal: Where uses are recorded; None for memory alone.
    """

    def __init__(self, most: int, env: Env, journal: TokenJournal | None = None) -> None:
        self._most = most
        self._env = env
        self._journal = journal
        self._receiver = secrets.token_hex(16)  # not of Env: its dice may be loaded
        self._used: dict[bytes, tuple[float, bytes]] = {}  # until when, for what

    @property
    def has_journal(self) -> bool:
        """Whether uses are recorded in a journal."""
        return self._journal is not None

    async def record(self, voucher: VerifiedJwt, body: bytes) -> bool:
        """Record in the journal that a token is used here.

        Returns:
            Whether this receiver may take the body; if not, it was taken before.

        Raises:
            Refused: The token was used for another body, or its use cannot be recorded now.
        """
        if self._journal is None:
            return True
        if self.has(voucher, body):
            return False
        use = TokenUse(_digest(body), self._receiver)
        try:
            recording = self._journal.use_token(
                voucher.name, use, now=self._env.wall(), ends=voucher.ends, most=self._most
            )
            at = asyncio.get_running_loop().time() + _RECORDING
            found = await wait_until(at, recording, _timeout)
        except Exception as error:  # noqa: BLE001  a journal of the caller's own may raise any
            logger.warning(
                "the use of a signed token cannot be recorded: %s", error or type(error).__name__
            )
            text = "the use of the token cannot be recorded now"
            raise Refused(Refusal.NOT_NOW, text) from None
        if found is None:
            raise Refused(Refusal.NOT_NOW, "too many deliveries at once")
        if found.body != use.body:
            raise Refused(Refusal.UNVOUCHED, "the token was used before")
        return found.receiver == self._receiver

    def has(self, voucher: VerifiedJwt, body: bytes) -> bool:
        """Whether a token came before with the same body, which is the same delivery.

        Raises:
            Refused: It came with another body, counts no more since it was verified, or too many
                are remembered.
        """
        now = self._env.wall()
        if voucher.ends <= now:  # nobody knows any more what it was used for
            raise Refused(Refusal.UNVOUCHED, "the token is too old")
        used = self._used.get(voucher.name)
        if used is not None and used[0] > now:
            if used[1] != _digest(body):
                raise Refused(Refusal.UNVOUCHED, "the token was used before")
            return True
        if len(self._used) >= self._most:
            self._forget(now)
        return False

    def add(self, voucher: VerifiedJwt, body: bytes) -> None:
        """Remembers a token as long as it counts."""
        self._used[voucher.name] = (voucher.ends, _digest(body))

    def _forget(self, now: float) -> None:
        for name in [name for name, (ends, _) in self._used.items() if ends <= now]:
            del self._used[name]
        if len(self._used) >= self._most:
            raise Refused(Refusal.NOT_NOW, "too many deliveries at once")


def _digest(body: bytes) -> bytes:
    return hashlib.sha256(body).digest()


def _timeout() -> TimeoutError:
    return TimeoutError(f"the journal did not answer within {_RECORDING:g} s")
