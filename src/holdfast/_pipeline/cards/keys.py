"""The public keys of those who sign: a set at hand, or fetched and kept.

Rules: a set is fetched through the engine, from the address that the caller named or where that
origin redirects to, and bounded in size and number; a key that is not in it is looked for anew,
but not more often than every ten seconds, whatever strangers ask for. One fetch is for all who ask
meanwhile, and goes on without them: nobody waits for two. While a set cannot be fetched anew, the
keys that it had count for a day, and of others nobody can say.
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

__all__ = ["PRIVATE", "FetchedKeys", "FixedKeys", "KeySource", "KeysUnavailableError"]

PRIVATE = frozenset({"d", "p", "q", "dp", "dq", "qi", "oth"})
"""Members of a JSON Web Key that are secret (RFC 7518, 6), and of no use to who verifies."""

Jwk = dict[str, Any]
"""A key as JSON (RFC 7517)."""

_MOST_KEYS = 100
_LIMITS = Limits(body=256 * 1024)
_TIMEOUTS = Timeouts(pool=5.0, connect=5.0, write=5.0, first_byte=10.0, idle=5.0)
_FETCH_TIMEOUT_S = 20.0
"""Seconds that a fetch has, redirects included."""

_LIFETIME = 300.0
"""Seconds for which a set is kept whose server says nothing of it."""

_SHORTEST, _LONGEST = 10.0, 86400.0
"""Seconds between two fetches, and for which a set is kept; in between its server decides."""


class KeysUnavailableError(A2AError):
    """The keys cannot be had now, so that nobody can say whether a signature is right."""


class KeySource(Protocol):
    """Where keys come from."""

    @property
    def fresh_for(self) -> float:
        """Seconds until its keys are to be fetched again; infinite where they never are."""
        ...

    async def find(self, kid: str | None) -> Sequence[Jwk]:
        """The keys of that id; without one the only key, if there is but one.

        Raises:
            KeysUnavailableError: They cannot be had now.
        """
        ...

    async def close(self) -> None:
        """Lets go of what is under way; who waits for it has no keys."""
        ...


class FixedKeys:
    """A set that never changes.

    Args:
        keys: The set (RFC 7517, 5), or one key.

    Raises:
        ValueError: There is no key in it.
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
        """The keys of that id."""
        return _matching(self._keys, kid)

    async def close(self) -> None:
        """Does nothing."""


class FetchedKeys:
    """A set that is fetched when it is needed, and kept as long as its server says.

    Args:
        url: Where it is.
        engine: What carries the requests.
        env: Where wall time comes from.
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
        return max(self._fetched_at + self._fresh_for - now, _SHORTEST)

    async def find(self, kid: str | None) -> Sequence[Jwk]:
        """The keys of that id; a set that is too old, or has none, is fetched anew."""
        now = asyncio.get_running_loop().time()
        found = _matching(self._keys, kid)
        if found and now - self._fetched_at < self._fresh_for:
            return found
        fetches = self._fetches.here()
        is_due = self._tried_at is None or now - self._tried_at >= _SHORTEST
        if is_due or fetches.is_running():
            await fetches.run(self._fetch)
        found = _matching(self._keys, kid)
        if self._failure is not None and not (found and now - self._fetched_at < _LONGEST):
            text = f"the keys at {presentable(self._url)} cannot be had"
            raise KeysUnavailableError(text) from self._failure
        return found

    async def close(self) -> None:
        """Ends a fetch that is under way; who waits for it has no keys."""
        await self._fetches.here().close()

    async def _fetch(self) -> None:
        self._tried_at = asyncio.get_running_loop().time()
        request = HttpRequest(
            method="GET",
            url=self._url,
            headers={"accept": "application/jwk-set+json, application/json"},
            timeouts=_TIMEOUTS,
            limits=_LIMITS,
        )
        try:
            at = asyncio.get_running_loop().time() + _FETCH_TIMEOUT_S
            fetching = fetch(self._engine, request, elsewhere=False)
            reply = (await wait_until(at, fetching, _took_too_long)).reply
            if reply.status != 200:
                text = f"the keys were answered by HTTP {reply.status}"
                raise KeysUnavailableError(text)
            check_json_size(reply.body, _LIMITS)
            keys = _read_keys(codec.parse(reply.body))
        except A2AError as error:
            self._failure = error
            return
        except (OSError, ValueError) as error:  # of the engine, and of what the document holds
            self._failure = KeysUnavailableError(f"the keys cannot be read: {error}")
            return
        caching = Caching.of(reply.headers, now=self._env.wall())
        lifetime = _LIFETIME if caching.lifetime is None else caching.lifetime
        self._fresh_for = min(max(lifetime, _SHORTEST), _LONGEST)
        self._keys, self._failure = keys, None
        self._fetched_at = asyncio.get_running_loop().time()


def _fetches() -> SingleFlight[None]:
    """Fetches that go on whoever leaves: the next signature needs the same keys."""

    def cancelled() -> KeysUnavailableError:
        return KeysUnavailableError("the fetch of the keys was cancelled")

    return SingleFlight(cancelled, lasts="finished")


def _took_too_long() -> KeysUnavailableError:
    return KeysUnavailableError("the keys took too long")


def _read_keys(document: object) -> list[Jwk]:
    """The keys of a set that are meant for signatures; what is no key is left out.

    Raises:
        ValueError: It is no set, or a very large one.
    """
    keys = cast("Any", document).get("keys") if hasattr(document, "get") else None
    if not isinstance(keys, list | tuple):
        text = "it is not a JWK set (RFC 7517): it has no list of keys"
        raise ValueError(text)  # noqa: TRY004  it is the content of a document
    given = cast("list[object]", keys)
    if len(given) > _MOST_KEYS:
        text = f"it has more than {_MOST_KEYS} keys"
        raise ValueError(text)
    return [_public(cast("Jwk", key)) for key in given if _is_for_signatures(key)]


def _public(key: Jwk) -> Jwk:
    """A key as one that verifies, where somebody published more of it."""
    return {name: member for name, member in key.items() if name not in PRIVATE}


def _is_for_signatures(key: object) -> bool:
    if not isinstance(key, dict):
        return False
    known = cast("Jwk", key)
    return isinstance(known.get("kty"), str) and known.get("use", "sig") == "sig"


def _matching(keys: Sequence[Jwk], kid: str | None) -> Sequence[Jwk]:
    if kid is None:
        return keys if len(keys) == 1 else ()
    return [key for key in keys if key.get("kid") == kid]
