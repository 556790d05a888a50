"""Tokens as values, and where they are kept.

Rules: a token's end is wall time, since it outlives event loops and processes; who holds one
counts on the loop's clock as well, so that a clock that is set back revives none. No ``repr``
shows a token.
"""

from __future__ import annotations

import asyncio
import threading
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Protocol

import msgspec

from holdfast._model.redacted_repr import RedactedRepr

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator
    from contextlib import AbstractAsyncContextManager

__all__ = ["MemoryTokenStore", "Token", "TokenStore", "turn_of"]

_LOOKS = 0.05
"""Seconds between two looks at whether it is one's turn."""


class Token(RedactedRepr, msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What an authorization server gave out (RFC 6749, 5.1).

    Attributes:
        access_token: What a request carries, as ``Authorization: Bearer …``.
        refresh_token: What a new one is to be had for; None if there is none.
        issued_at: When it was asked for, in seconds since the epoch.
        expires_at: When it ends, in seconds since the epoch; None where the server did not say.
        scopes: What it is for; None where the server did not say.
    """

    access_token: str
    refresh_token: str | None = None
    issued_at: float = 0.0
    expires_at: float | None = None
    scopes: tuple[str, ...] | None = None

    def __repr__(self) -> str:
        return f"Token(issued_at={self.issued_at:.0f}, expires_at={self.expires_at})"

    def left(self, now: float, *, margin: float) -> float | None:
        """Seconds for which it may be used; None for no end that is known.

        Args:
            now: Wall time in seconds since the epoch.
            margin: Seconds before its end in which it is not used any more: at most a quarter of
                its life, so that one of a short life is used at all.
        """
        if self.expires_at is None:
            return None
        life = max(0.0, self.expires_at - self.issued_at)
        return self.expires_at - now - min(margin, life / 4)

    @property
    def secrets(self) -> tuple[str, ...]:
        """What of it no error may repeat."""
        return tuple(filter(None, (self.access_token, self.refresh_token)))


class TokenStore(Protocol):
    """Where tokens are kept, by the name of what they are for; may be shared by providers.

    Its methods are called from any thread and event loop.
    """

    async def load(self, key: str, /) -> Token | None:
        """The token of that name; None if there is none."""
        ...

    async def save(self, key: str, token: Token, /) -> None:
        """Keeps a token in place of the one before."""
        ...

    async def remove(self, key: str, /) -> None:
        """Forgets a token; one that is not there is no error."""
        ...

    def turn(self, key: str, /) -> AbstractAsyncContextManager[None]:
        """Lets one after the other, of all that share the store, get a token of that name.

        A refresh token that is spent twice is taken for stolen by many servers (RFC 9700, 4.14),
        so nobody must spend what another one spends just now.
        """
        ...


class MemoryTokenStore:
    """Tokens in memory: gone with the process, and shared by its threads."""

    def __init__(self) -> None:
        self._tokens: dict[str, Token] = {}
        self._turns: dict[str, threading.Lock] = {}

    async def load(self, key: str, /) -> Token | None:
        """The token of that name."""
        return self._tokens.get(key)

    async def save(self, key: str, token: Token, /) -> None:
        """Keeps a token."""
        self._tokens[key] = token

    async def remove(self, key: str, /) -> None:
        """Forgets a token."""
        self._tokens.pop(key, None)

    def turn(self, key: str, /) -> AbstractAsyncContextManager[None]:
        """Lets one after the other."""
        return turn_of(self._turns.setdefault(key, threading.Lock()))

    def __repr__(self) -> str:
        return f"MemoryTokenStore({len(self._tokens)} tokens)"


class _Turn(Protocol):
    def acquire(self, blocking: bool = True) -> bool: ...  # noqa: FBT001, FBT002  as of a lock
    def release(self) -> None: ...


@asynccontextmanager
async def turn_of(lock: _Turn) -> AsyncGenerator[None]:
    """Holds a lock of threads or processes without ever blocking the event loop.

    The wait has the bound of whoever waits.
    """
    while not lock.acquire(blocking=False):  # noqa: ASYNC110  others hold it who have no loop
        await asyncio.sleep(_LOOKS)
    try:
        yield
    finally:
        lock.release()
