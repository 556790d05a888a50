"""Tokens, and stores of tokens.

Rules: a token's expiry is wall time, since it outlives event loops and processes. The provider
also tracks it on the loop's clock, so that setting the wall clock back revives no token. No
``repr`` shows a token.
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

__all__ = ["MemoryTokenStore", "Token", "TokenStore", "hold_lock"]

_LOCK_POLL_INTERVAL_S = 0.05
"""Interval at which a waiting task tries to acquire a lock."""


class Token(RedactedRepr, msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Token response of an authorization server (RFC 6749, 5.1).

    Attributes:
        access_token: Sent in requests as ``Authorization: Bearer …``.
        refresh_token: Token to obtain a new one with; None if there is none.
        issued_at: Time of the request, in seconds since the epoch.
        expires_at: Expiry in seconds since the epoch; None if the server did not say.
        scopes: Scopes of the token; None if the server did not say.
    """

    access_token: str
    refresh_token: str | None = None
    issued_at: float = 0.0
    expires_at: float | None = None
    scopes: tuple[str, ...] | None = None

    def __repr__(self) -> str:
        return f"Token(issued_at={self.issued_at:.0f}, expires_at={self.expires_at})"

    def remaining(self, now: float, *, margin: float) -> float | None:
        """Return the remaining lifetime in seconds; None if unknown.

        Args:
            now: Wall time in seconds since the epoch.
            margin: Seconds before the expiry in which the token is not used; at most a quarter of
                its lifetime, so that a short-lived token is used at all.
        """
        if self.expires_at is None:
            return None
        life = max(0.0, self.expires_at - self.issued_at)
        return self.expires_at - now - min(margin, life / 4)

    @property
    def secrets(self) -> tuple[str, ...]:
        """Secret values, which errors must not contain."""
        return tuple(filter(None, (self.access_token, self.refresh_token)))


class TokenStore(Protocol):
    """Storage of tokens by name; several providers may share it.

    Its methods may be called from any thread and event loop.
    """

    async def load(self, key: str, /) -> Token | None:
        """Return the token of a name; None if there is none.

        Args:
            key: Name of the token.
        """
        ...

    async def save(self, key: str, token: Token, /) -> None:
        """Store a token in place of the previous one.

        Args:
            key: Name of the token.
            token: The token.
        """
        ...

    async def remove(self, key: str, /) -> None:
        """Remove a token; a missing one is not an error.

        Args:
            key: Name of the token.
        """
        ...

    def turn(self, key: str, /) -> AbstractAsyncContextManager[None]:
        """Return a lock, shared by all users of the store, for fetching a token of that name.

        Many servers treat a refresh token that is used twice as stolen (RFC 9700, 4.14), so only
        one provider at a time may use it.

        Args:
            key: Name of the token.
        """
        ...


class MemoryTokenStore:
    """Token store in memory, shared by the threads of the process."""

    def __init__(self) -> None:
        self._tokens: dict[str, Token] = {}
        self._turns: dict[str, threading.Lock] = {}

    async def load(self, key: str, /) -> Token | None:
        """Return the token of a name; None if there is none.

        Args:
            key: Name of the token.
        """
        return self._tokens.get(key)

    async def save(self, key: str, token: Token, /) -> None:
        """Store a token.

        Args:
            key: Name of the token.
            token: The token.
        """
        self._tokens[key] = token

    async def remove(self, key: str, /) -> None:
        """Remove a token.

        Args:
            key: Name of the token.
        """
        self._tokens.pop(key, None)

    def turn(self, key: str, /) -> AbstractAsyncContextManager[None]:
        """Return the lock of a name.

        Args:
            key: Name of the token.
        """
        return hold_lock(self._turns.setdefault(key, threading.Lock()))

    def __repr__(self) -> str:
        return f"MemoryTokenStore({len(self._tokens)} tokens)"


class _Lock(Protocol):
    def acquire(self, blocking: bool = True) -> bool: ...  # noqa: FBT001, FBT002  as of a lock
    def release(self) -> None: ...


@asynccontextmanager
async def hold_lock(lock: _Lock) -> AsyncGenerator[None]:
    """Acquire a lock of threads or processes without blocking the event loop.

    The caller bounds the wait.
    """
    while not lock.acquire(blocking=False):  # noqa: ASYNC110  its holder may have no event loop
        await asyncio.sleep(_LOCK_POLL_INTERVAL_S)
    try:
        yield
    finally:
        lock.release()
