"""The signed tokens that were used, remembered while they count: one vouches for one delivery."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from holdfast.push.refusals import Refusal, Refused

if TYPE_CHECKING:
    from holdfast.push.signatures import Voucher
    from holdfast.runtime.env import Env

__all__ = ["UsedTokens"]


class UsedTokens:
    """Tokens, and what they were used for.

    Args:
        most: How many are remembered.
        env: Where wall time comes from.
    """

    def __init__(self, most: int, env: Env) -> None:
        self._most = most
        self._env = env
        self._used: dict[bytes, tuple[float, bytes]] = {}  # until when, for what

    def has(self, voucher: Voucher, body: bytes) -> bool:
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

    def add(self, voucher: Voucher, body: bytes) -> None:
        """Remembers a token as long as it counts."""
        self._used[voucher.name] = (voucher.ends, _digest(body))

    def _forget(self, now: float) -> None:
        for name in [name for name, (ends, _) in self._used.items() if ends <= now]:
            del self._used[name]
        if len(self._used) >= self._most:
            raise Refused(Refusal.NOT_NOW, "too many deliveries at once")


def _digest(body: bytes) -> bytes:
    return hashlib.sha256(body).digest()
