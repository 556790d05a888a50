"""JSON Web Key sets that verify signatures: supplied by the caller, or fetched and cached.

Rules: a set is fetched through the engine, from the address that the caller named or from where
that origin redirects to, and is bounded in size and number of keys. If a key is not in the set,
the set is fetched again, but not within ten seconds of the last fetch, so that unknown key ids
cannot cause requests at will. Concurrent callers of one event loop share one fetch, which
continues if they leave: no caller waits for two fetches. While a set cannot be fetched, its old
keys count for a day; signatures with other keys are unverifiable.
"""

from __future__ import annotations

import asyncio
import math
from typing import TYPE_CHECKING, Any, Protocol, cast

from holdfast._aio.cancel_scope import wait_until
from holdfast._aio.per_loop import PerLoop
from holdfast._aio.single_flight import SingleFlight
from holdfast._model import codec
from holdfast._net.engine import fetch
from holdfast._wire.caching import Caching
from holdfast._wire.http import HttpRequest, Timeouts, presentable
from holdfast._wire.limits import Limits, check_json_size
from holdfast.errors import A2AError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from holdfast._aio.env import Env
    from holdfast._net.engine import HttpEngine

__all__ = ["PRIVATE_MEMBERS", "FetchedKeys", "FixedKeys", "KeySource", "KeysUnavailableError"]

PRIVATE_MEMBERS = frozenset({"d", "p", "q", "dp", "dq", "qi", "oth"})
"""Members of a JSON Web Key that are secret (RFC 7518, 6), and not needed to verify."""

Jwk = dict[str, Any]
"""A key as JSON (RFC 7517)."""

_MAX_KEYS = 100
_LIMITS = Limits(body=256 * 1024)
_TIMEOUTS = Timeouts(pool=5.0, connect=5.0, write=5.0, first_byte=10.0, idle=5.0)
_FETCH_TIMEOUT_S = 20.0
"""Seconds that a fetch may take, redirects included."""

_DEFAULT_LIFETIME_S = 300.0
"""Seconds for which a set is cached if its server does not say."""

_MIN_LIFETIME_S, _MAX_LIFETIME_S = 10.0, 86400.0
"""Seconds between two fetches at least, and for which a set is cached at most."""


class KeysUnavailableError(A2AError):
    """The keys cannot be fetched now, so that a signature can be neither verified nor rejected."""


class KeySource(Protocol):
    """A source of keys."""

    @property
    def fresh_for(self) -> float:
        """Seconds until the keys have to be fetched again; infinite if they never have to."""
        ...

    async def find(self, kid: str | None) -> Sequence[Jwk]:
        """Return the keys that may have made a signature.

        Args:
            kid: Id of its key; None if the signature names none.

        Returns:
            The keys with that id; for None, the key of a set that has only one. Otherwise the keys
            without an id, each of which may be the one.

        Raises:
            KeysUnavailableError: The keys cannot be fetched now.
        """
        ...

    async def close(self) -> None:
        """Cancel a fetch in flight; calls that wait for it get no keys."""
        ...


class FixedKeys:
    """A set that never changes.

    Args:
        keys: The set (RFC 7517, 5), or one key.

    Raises:
        ValueError: The set has no key for signatures.
    """

    def __init__(self, keys: Mapping[str, Any]) -> None:
        self._keys = _read_keys({"keys": [keys]} if "kty" in keys else keys)
        if not self._keys:
            text = "keys has no key to verify signatures with; it is a JWK set (RFC 7517)"
            raise ValueError(text)

    @property
    def fresh_for(self) -> float:
        """Infinite."""
        return math.inf

    async def find(self, kid: str | None) -> Sequence[Jwk]:
        """Return the keys with an id, or else those without one."""
        return _candidates(self._keys, kid)

    async def close(self) -> None:
        """Do nothing."""


class FetchedKeys:
    """A set that is fetched when it is needed, and cached as long as its server says.

    Args:
        url: The address of the set.
        engine: Makes the requests.
        env: Source of the wall-clock time.
    """

    def __init__(self, url: str, engine: HttpEngine, env: Env) -> None:
        self._url = url
        self._engine = engine
        self._env = env
        self._keys: list[Jwk] = []
        self._tried_at: float | None = None
        self._fetched_at = 0.0
        self._fresh_for = 0.0
        self._failure: A2AError | None = None
        self._fetches = PerLoop(_fetches)

    @property
    def fresh_for(self) -> float:
        """Seconds until the set is fetched again; while that fails, until the next attempt."""
        now = asyncio.get_running_loop().time()
        return max(self._fetched_at + self._fresh_for - now, _MIN_LIFETIME_S)

    async def find(self, kid: str | None) -> Sequence[Jwk]:
        """Return the keys with an id, or else those without one.

        The set is fetched if it is stale, or has no key with the id.
        """
        now = asyncio.get_running_loop().time()
        keys = _matching(self._keys, kid)
        if keys and now - self._fetched_at < self._fresh_for:
            return keys
        fetches = self._fetches.here()
        is_due = self._tried_at is None or now - self._tried_at >= _MIN_LIFETIME_S
        if is_due or fetches.is_running():
            await fetches.run(self._fetch)
        keys = _candidates(self._keys, kid)
        if self._failure is not None and not (keys and now - self._fetched_at < _MAX_LIFETIME_S):
            text = f"the keys at {presentable(self._url)} cannot be fetched"
            raise KeysUnavailableError(text) from self._failure
        return keys

    async def close(self) -> None:
        """Cancel a fetch in flight; calls that wait for it get no keys."""
        await self._fetches.here().close()

    async def _fetch(self) -> None:
        await self._load()
        # Not before: a caller in another event loop does not wait for this fetch, and needs its
        # own until there are keys.
        self._tried_at = asyncio.get_running_loop().time()

    async def _load(self) -> None:
        """Fetch the set, or note why it cannot be fetched."""
        request = HttpRequest(
            method="GET",
            url=self._url,
            headers={"accept": "application/jwk-set+json, application/json"},
            timeouts=_TIMEOUTS,
            limits=_LIMITS,
        )
        try:
            deadline_at = asyncio.get_running_loop().time() + _FETCH_TIMEOUT_S
            fetching = fetch(self._engine, request, other_origins=False)
            reply = (await wait_until(deadline_at, fetching, _timeout_error)).reply
            if reply.status != 200:
                text = f"fetching the keys failed with HTTP {reply.status}"
                raise KeysUnavailableError(text)
            check_json_size(reply.body, _LIMITS)
            keys = _read_keys(codec.parse(reply.body))
        except A2AError as error:
            self._failure = error
            return
        except (OSError, ValueError) as error:  # by the engine, or about the document
            self._failure = KeysUnavailableError(f"the keys cannot be read: {error}")
            return
        caching = Caching.of(reply.headers, now=self._env.wall())
        lifetime = _DEFAULT_LIFETIME_S if caching.lifetime is None else caching.lifetime
        self._fresh_for = min(max(lifetime, _MIN_LIFETIME_S), _MAX_LIFETIME_S)
        self._keys, self._failure = keys, None
        self._fetched_at = asyncio.get_running_loop().time()


def _fetches() -> SingleFlight[None]:
    """Return the shared fetch; it continues if all callers leave, as the next one needs it."""

    def cancelled() -> KeysUnavailableError:
        return KeysUnavailableError("the fetch of the keys was cancelled")

    return SingleFlight(cancelled, lasts="finished")


def _timeout_error() -> KeysUnavailableError:
    return KeysUnavailableError("fetching the keys timed out")


def _read_keys(document: object) -> list[Jwk]:
    """Return the keys of a set that are meant for signatures; other members are ignored.

    Raises:
        ValueError: The document is not a set, or has too many keys.
    """
    keys = cast("Any", document).get("keys") if hasattr(document, "get") else None
    if not isinstance(keys, list | tuple):
        text = "it is not a JWK set (RFC 7517): it has no list of keys"
        raise ValueError(text)  # noqa: TRY004  it is the content of a document
    members = cast("list[object]", keys)
    if len(members) > _MAX_KEYS:
        text = f"it has more than {_MAX_KEYS} keys"
        raise ValueError(text)
    return [_public(cast("Jwk", key)) for key in members if _is_for_signatures(key)]


def _public(key: Jwk) -> Jwk:
    """Return a key without private members, which a server may have published by mistake."""
    return {name: member for name, member in key.items() if name not in PRIVATE_MEMBERS}


def _is_for_signatures(key: object) -> bool:
    if not isinstance(key, dict):
        return False
    jwk = cast("Jwk", key)
    return isinstance(jwk.get("kty"), str) and jwk.get("use", "sig") == "sig"


def _candidates(keys: Sequence[Jwk], kid: str | None) -> Sequence[Jwk]:
    return _matching(keys, kid) or [key for key in keys if key.get("kid") is None]


def _matching(keys: Sequence[Jwk], kid: str | None) -> Sequence[Jwk]:
    if kid is None:
        return keys if len(keys) == 1 else ()
    return [key for key in keys if key.get("kid") == kid]
