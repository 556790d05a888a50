"""The cards of agents: cached between commands as long as servers allow (RFC 9111), and verified.

Rules:
- Only a card that was fetched without credentials is cached, and only for equal requests: the key
  is the address, all headers (so those that ``Vary`` names are equal), and whether certificates
  are verified. Over plain http, only cards from this machine are cached.
- A cached card is treated like a fetched one: the addresses that it names are checked against the
  network of its host, and its signatures are verified again.
- A file is private (0600, in a directory of 0700 that belongs to the user). A file that is broken,
  readable by others or owned by another user is ignored. The cache never makes a command fail.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import logging
import os
import stat
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import click
import msgspec

from holdfast._net.private_files import NotPrivateError, read_private_file, write_private_file
from holdfast._wire.caching import Caching
from holdfast._wire.http import HttpReply, presentable
from holdfast._wire.network_scope import scope_of_host

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from contextlib import AbstractAsyncContextManager

    from holdfast._aio.env import Env
    from holdfast._cli.options.settings import Settings
    from holdfast._net.engine import HttpEngine
    from holdfast._wire.http import HttpRequest, HttpStream
    from holdfast.signatures import CardVerifier

__all__ = ["CachedCards", "CardCache", "card_verifier"]

logger = logging.getLogger("holdfast.cli.cache")

_MAX_FILES = 64
"""Cached files; the oldest are removed."""

_MAX_FILE_BYTES = 256 * 1024
"""Bytes of a cached file."""

_MAX_AGE_S = 86_400.0
"""Seconds for which a card is used without revalidation, whatever its server allows."""

_PLAIN_HEADERS = frozenset({"accept", "a2a-version", "a2a-extensions", "user-agent"})
"""The headers that a request without credentials may have."""

_GONE = frozenset({401, 403, 404, 410})
_OPEN = stat.S_IRWXG | stat.S_IRWXO


class _Entry(msgspec.Struct, frozen=True, kw_only=True):
    """A cached reply.

    Attributes:
        key: The key of the request; compared, so that one file cannot stand for another request.
        stored: Wall time of the reply, in seconds since the epoch.
        headers: The headers about caching, and the content type.
        body: The card.
        address: The IP address of the host that sent it; None if unknown.
    """

    key: str
    stored: float
    headers: dict[str, str]
    body: bytes
    address: str | None

    def reply(self, now: float) -> HttpReply:
        """Return the reply, with its age (RFC 9111, 5.1)."""
        try:
            age = float(self.headers.get("age", "0"))
        except ValueError:
            age = 0.0
        headers = {**self.headers, "age": f"{max(age, 0.0) + now - self.stored:.0f}"}
        return HttpReply(status=200, headers=headers, body=self.body, address=self.address)

    def is_fresh(self, now: float) -> bool:
        """Return whether the reply may be used without revalidation."""
        lifetime = Caching.of(self.reply(now).headers, now=now).lifetime or 0.0
        return 0 <= now - self.stored < _MAX_AGE_S and lifetime > 0


class CardCache:
    """Cached cards in a directory.

    Args:
        directory: The directory; created with mode 0700 when the first card is cached.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def load(self, key: str) -> _Entry | None:
        """Return the entry of a key; None if there is none, or its file is not private."""
        try:
            if not self._is_ours():
                return None
            content = read_private_file(self._path(key), max_bytes=_MAX_FILE_BYTES)
            entry = None if content is None else msgspec.json.decode(content, type=_Entry)
        except FileNotFoundError:
            return None
        except (OSError, NotPrivateError, ValueError, msgspec.DecodeError) as error:
            logger.debug("a cached card is ignored: %s", error)
            return None
        return entry if entry is not None and entry.key == key else None

    def save(self, entry: _Entry) -> None:
        """Save an entry, unless it is too large or cannot be saved privately."""
        content = msgspec.json.encode(entry)
        try:
            if len(content) >= _MAX_FILE_BYTES:
                return self.remove(entry.key)
            self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            if self._is_ours():
                write_private_file(self._path(entry.key), content)
                self._prune()
        except (OSError, NotPrivateError) as error:
            logger.debug("a card is not cached: %s", error)

    def remove(self, key: str) -> None:
        """Remove the entry of a key."""
        with contextlib.suppress(OSError):
            if self._is_ours():
                self._path(key).unlink(missing_ok=True)

    def _is_ours(self) -> bool:
        """Return whether the directory belongs to the user and is closed to others."""
        status = self._directory.lstat()
        if not stat.S_ISDIR(status.st_mode):
            return False
        is_private = not status.st_mode & _OPEN and status.st_uid == _user()
        return is_private or os.name != "posix"

    def _prune(self) -> None:
        """Remove the oldest files, including those that a crash left."""
        files = sorted(self._directory.iterdir(), key=lambda path: path.lstat().st_mtime)
        for path in files[:-_MAX_FILES]:
            path.unlink(missing_ok=True)

    def _path(self, key: str) -> Path:
        return self._directory / f"{hashlib.sha256(key.encode()).hexdigest()[:32]}.json"


def _user() -> int:
    return os.geteuid() if os.name == "posix" else 0


class CachedCards:
    """An engine that answers requests for an agent's card from a cache, if permitted.

    Args:
        inner: The engine that sends requests.
        cache: The cache.
        env: Supplies wall time.
        urls: The addresses of the card; no other reply is cached.
        is_verifying: Whether certificates are verified.

    Attributes:
        tls: The TLS settings of the inner engine, for connections outside it.
    """

    def __init__(
        self,
        inner: HttpEngine,
        cache: CardCache,
        env: Env,
        *,
        urls: Iterable[str],
        is_verifying: bool,
    ) -> None:
        self._inner = inner
        self._cache = cache
        self._env = env
        self._urls = frozenset(filter(_may_be_kept, urls))
        self._is_verifying = is_verifying
        self.tls: object = getattr(inner, "tls", None)

    async def request(self, request: HttpRequest) -> HttpReply:
        """Answer from the cache, or send the request; see `HttpEngine`."""
        if request.method != "GET" or request.url not in self._urls or request.reach is not None:
            return await self._inner.request(request)
        if not request.headers.keys() <= _PLAIN_HEADERS:  # credentials, or a conditional request
            return await self._inner.request(request)
        key = json.dumps([request.url, self._is_verifying, sorted(request.headers.items())])
        entry = await asyncio.to_thread(self._cache.load, key)
        now = self._env.wall()
        if entry is not None and entry.is_fresh(now):
            logger.debug("the card at %s is in the cache, and fresh", presentable(request.url))
            return entry.reply(now)
        return await self._revalidated(request, key, entry)

    def stream(self, request: HttpRequest) -> AbstractAsyncContextManager[HttpStream]:
        """Send a request whose reply is read later; see `HttpEngine`."""
        return self._inner.stream(request)

    async def close(self) -> None:
        """Close the inner engine."""
        await self._inner.close()

    async def _revalidated(
        self, request: HttpRequest, key: str, entry: _Entry | None
    ) -> HttpReply:
        before = None if entry is None else Caching.of(entry.headers, now=self._env.wall())
        conditions = {} if before is None else before.conditions()
        conditional = request
        if conditions:
            headers = {**request.headers, **conditions}
            conditional = msgspec.structs.replace(request, headers=headers)
        reply = await self._inner.request(conditional)
        if reply.status == 304 and entry is not None and before is not None and conditions:
            if before.is_confirmed_by(reply.headers):
                now = self._env.wall()
                merged = Caching.of(reply.headers, now=now, revalidated=before).fields
                kind = {n: v for n, v in entry.headers.items() if n == "content-type"}
                reply = HttpReply(
                    status=200, headers={**kind, **merged}, body=entry.body, address=reply.address
                )
            else:  # the reply is about another representation (RFC 9111, 4.3.4)
                reply = await self._inner.request(request)
        await self._keep(key, reply)
        return reply

    async def _keep(self, key: str, reply: HttpReply) -> None:
        """Cache a reply, or remove the entry that it replaces."""
        now = self._env.wall()
        entry = _Entry(
            key=key,
            stored=now,
            headers=_kept_headers(reply.headers, now),
            body=reply.body,
            address=reply.address,
        )
        if reply.status == 200 and _is_storable(entry.headers, now):
            await asyncio.to_thread(self._cache.save, entry)
        elif reply.status == 200 or reply.status in _GONE:
            await asyncio.to_thread(self._cache.remove, key)


def _may_be_kept(url: str) -> bool:
    """Return whether a card may be cached: no secret in its URL, and a protected connection."""
    parts = urlsplit(url)
    is_safe = parts.scheme == "https" or scope_of_host(url) == "loopback"
    return is_safe and not parts.query and "@" not in parts.netloc


def _kept_headers(headers: Mapping[str, str], now: float) -> dict[str, str]:
    kind = headers.get("content-type")
    fields = Caching.of(headers, now=now).fields
    return fields if kind is None else {**fields, "content-type": kind}


def _is_storable(headers: Mapping[str, str], now: float) -> bool:
    """Return whether a reply may be cached, and is useful in a cache (RFC 9111, 3)."""
    directives = {
        directive.partition("=")[0].strip() for directive in _control(headers).split(",")
    }
    if "no-store" in directives or "*" in headers.get("vary", ""):
        return False
    caching = Caching.of(headers, now=now)
    return bool(caching.lifetime or caching.conditions())


def _control(headers: Mapping[str, str]) -> str:
    return headers.get("cache-control", "").lower()


def card_verifier(settings: Settings) -> CardVerifier | None:
    """Return the verifier of cards for the settings of the command.

    Raises:
        click.UsageError: The keys cannot be read, or a card must be verified and no key is given.
    """
    if settings.card_keys is None and not settings.card_key_hosts:
        if settings.require_signature:
            message = "--require-signature: name keys by --card-keys or --card-key-host"
            raise click.UsageError(message)
        return None
    from holdfast.signatures import CardVerifier  # with an extra

    try:
        keys = None if settings.card_keys is None else _read_keys(settings.card_keys)
        return CardVerifier(keys, jku_hosts=settings.card_key_hosts)
    except (ValueError, ImportError) as error:
        flag = "--card-key-host" if settings.card_keys is None else "--card-keys"
        message = f"{flag}: {error}"
    raise click.UsageError(message)


def _read_keys(reference: str) -> str:
    if "://" in reference and not reference.startswith("file://"):
        return reference
    path = Path(reference.removeprefix("file://")).expanduser()
    try:
        keys = path.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text"
        message = f"{reference} cannot be read: {reason}"
        raise ValueError(message) from None
    if not keys.lstrip().startswith(("{", "-----BEGIN ")):  # otherwise taken for an address
        message = f"{reference} contains neither a JWK set nor a key in PEM"
        raise ValueError(message)
    return keys
