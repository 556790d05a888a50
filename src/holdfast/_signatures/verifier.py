"""Verifying agent cards (A2A 8.4.3).

Rules: a key counts that the caller gave, or that is at an origin which the caller named; a card
says which key, never that it counts. One right signature is enough, since several are there for
rotation. What cannot be verified for want of a key is not wrong; what does not match its key is.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from msgspec.structs import replace

from holdfast._aio.closing import close_in_turn
from holdfast._arguments import check_hook, check_kind, items
from holdfast._model.addresses import is_http_address
from holdfast._pipeline.cards.keys import FetchedKeys, FixedKeys, KeysUnavailableError
from holdfast._pipeline.cards.trust import CardCheck
from holdfast._pipeline.cards.verification import CardVerification
from holdfast._signatures.jws import (
    ASYMMETRIC,
    ProtectedHeader,
    UnusableError,
    check_algorithms,
    check_library,
    is_signed_by,
    read_header,
)
from holdfast._signatures.key_store import KeysGiven, key_origin, key_source, read_keys
from holdfast._wire.canonical import (
    NoCanonicalFormError,
    SignedForm,
    signed_forms,
    unsigned_members,
)
from holdfast._wire.http import presentable
from holdfast._wire.origins import origin
from holdfast.errors import A2AError

if TYPE_CHECKING:
    from holdfast._aio.env import Env
    from holdfast._net.engine import HttpEngine
    from holdfast._pipeline.cards.keys import Jwk, KeySource
    from holdfast._pipeline.cards.trust import CardChecker, ReceivedCard

__all__ = ["CardVerifier", "CardVerifierCallable", "card_checker", "check_card_verifier"]

CardVerifierCallable = Callable[[Mapping[str, Any]], Awaitable[object] | object]
"""Called with the JSON object of a signed card as it was received; may be a coroutine function.
What it raises, or a ``False``, means that the card's signature is wrong."""

_MOST_SIGNATURES = 16
_MOST_KEY_SETS = 8
_CLOSING = 5.0


async def _keys_for(key_id: str | None, source: KeySource) -> tuple[Sequence[Jwk], bool]:
    """The keys that may have signed, and whether it is known that one of them should have.

    One key that was given without a name (PEM has none) may be of any name.
    """
    keys = await source.find(key_id)
    if keys or not isinstance(source, FixedKeys):
        return keys, True
    return [key for key in await source.find(None) if "kid" not in key], False


class CardVerifier:
    """Which keys vouch for agent cards; pass it as ``connect(card_verifier=…)``.

    A card counts as verified if one of its signatures is right. What is used of it then is what
    that signature covers, and nothing else: see `holdfast._wire.canonical` for the forms in which
    a card may have been signed, and `CardVerification.unsigned` for what was left out.

    It holds no connections and can be shared between clients.

    Args:
        keys: A JWK set or key (RFC 7517), keys by their ids (as JWK or PEM), a public key as PEM,
            which counts whatever a signature calls its key, or the address of a JWK set, which is
            fetched when it is needed, kept as long as its server says (between 10 s and 24 h;
            300 s where it says nothing), and fetched anew for a key that it did not have, at most
            every 10 s. A card is verified again when the set that verified it is no longer fresh:
            a key that was removed from its set counts until then, and for at most 24 h more where
            the set cannot be fetched.
        jku_hosts: Hosts whose key sets count where a signature names one (``jku``): a host, which
            is asked over https and at its usual port, or an origin such as
            ``"https://keys.example:8443"``. Whoever may put a file there can sign.
        algorithms: Names of the algorithms that count: by default those with public keys.

    Raises:
        ValueError: There are neither keys nor hosts, or one that cannot be.
        TypeError: An argument of another type.
        ImportError: The extra ``signatures`` is not installed.
    """

    def __init__(
        self,
        keys: KeysGiven | None = None,
        *,
        jku_hosts: Iterable[str] = (),
        algorithms: Iterable[str] = ASYMMETRIC,
    ) -> None:
        check_library("signatures", "a CardVerifier", canonical=True)
        self._algorithms = items("algorithms", algorithms)
        check_algorithms(self._algorithms)
        self._keys = None if keys is None else read_keys(keys)
        self._origins = frozenset(map(key_origin, items("jku_hosts", jku_hosts)))
        if self._keys is None and not self._origins:
            text = "a CardVerifier needs keys, or jku_hosts where they may be fetched"
            raise ValueError(text)

    def __repr__(self) -> str:
        keys = self._keys if isinstance(self._keys, str) else None
        count = len(self._keys["keys"]) if isinstance(self._keys, dict) else 0
        named = presentable(keys) if keys else f"{count} keys"
        return f"CardVerifier({named}, jku_hosts={sorted(self._origins)})"

    def opened(self, engine: HttpEngine, env: Env) -> CardChecker:
        """What verifies cards, over an engine that is not closed.

        Args:
            engine: Carries the requests for keys.
            env: Where wall time comes from.
        """
        keys = None if self._keys is None else key_source(self._keys, engine, env)
        return _Checker(keys, self._origins, self._algorithms, engine, env)


def check_card_verifier(
    verifier: CardVerifier | CardVerifierCallable | None, *, require_signature: bool
) -> None:
    """Checks what a caller passes to have cards verified.

    Raises:
        ValueError: A signature is required, and there is nobody to verify it.
        TypeError: An argument of another type.
    """
    if verifier is not None and not isinstance(verifier, CardVerifier):
        check_hook("card_verifier", verifier, besides="a CardVerifier or ")
    check_kind("require_signature", require_signature, bool)
    if require_signature and verifier is None:
        text = "require_signature=True needs a card_verifier, such as CardVerifier(keys=…)"
        raise ValueError(text)


def card_checker(
    verifier: CardVerifier | CardVerifierCallable | None, engine: HttpEngine, env: Env
) -> CardChecker | None:
    """What verifies cards, of what a caller passes."""
    if verifier is None:
        return None
    if isinstance(verifier, CardVerifier):
        return verifier.opened(engine, env)
    return _Asking(verifier)


class _Checker:
    """Verifies cards with the keys of one client."""

    def __init__(
        self,
        keys: KeySource | None,
        origins: frozenset[str],
        algorithms: tuple[str, ...],
        engine: HttpEngine,
        env: Env,
    ) -> None:
        self._keys = keys
        self._origins = origins
        self._algorithms = algorithms
        self._engine = engine
        self._env = env
        self._sets: dict[str, FetchedKeys] = {}

    async def check(self, received: ReceivedCard, /) -> CardCheck:
        """Tries the signatures in order, each in all forms; the first right one decides."""
        try:
            forms = tuple(signed_forms(received.document))
        except NoCanonicalFormError as error:
            return CardCheck(CardVerification(outcome="unverifiable", reason=str(error)))
        signatures = _signatures(received)
        found: list[CardVerification] = []
        for number, signature in enumerate(signatures[:_MOST_SIGNATURES], start=1):
            verification, form, fresh_for = await self._tried(signature, number, forms, received)
            if form is not None:
                return CardCheck(verification, form.used, fresh_for)
            found.append(verification)
        # A wrong one tells most; then one that may turn out better.
        ranked = sorted(found, key=lambda one: (one.outcome != "invalid", not one.is_for_now))
        return CardCheck(ranked[0] if ranked else _UNREADABLE)

    async def close(self) -> None:
        """Fetches no more keys."""
        sources = [*self._sets.values(), *([] if self._keys is None else [self._keys])]
        await close_in_turn(sources, seconds=_CLOSING)

    async def _tried(
        self,
        signature: Mapping[str, Any],
        number: int,
        forms: tuple[SignedForm, ...],
        received: ReceivedCard,
    ) -> tuple[CardVerification, SignedForm | None, float]:
        """The result for one signature, the form in which it is right, and for how long (s)."""
        try:
            header = read_header(signature, self._algorithms)
        except UnusableError as error:
            reason = f"signature {number}: {error}"
            refused = CardVerification(outcome="unverifiable", reason=reason, number=number)
            return refused, None, 0.0
        about = CardVerification(
            outcome="unverifiable",
            key_id=header.key_id,
            algorithm=header.algorithm,
            number=number,
        )
        is_wrong, unavailable = False, None
        for url, source in self._sources(header):
            try:
                keys, is_named = await _keys_for(header.key_id, source)
            except KeysUnavailableError as error:
                unavailable = error
                continue
            for form in forms:
                is_right = is_signed_by(signature, form.payload, keys, header.algorithm)
                if is_right:
                    verified = replace(
                        about,
                        outcome="verified",
                        key_url=None if url is None else presentable(url),
                        unsigned=unsigned_members(received.document, form.document),
                    )
                    return verified, form, source.fresh_for
                is_wrong |= is_right is False and is_named
        named = "its key" if header.key_id is None else f"key {_shown(header.key_id)}"
        if is_wrong and received.is_whole:
            reason = f"signature {number} does not match the card and {named}"
            return replace(about, outcome="invalid", reason=reason), None, 0.0
        if is_wrong:
            reason = f"signature {number} does not match: {received.doubt}"
        elif unavailable is not None:
            reason = f"signature {number}: {unavailable.message}"
        elif header.key_url is not None and not self._is_allowed(header.key_url):
            reason = f"signature {number}: {named} is not known, and its jku is not allowed"
        else:
            reason = f"signature {number}: {named} is not known"
        is_for_now = unavailable is not None and not is_wrong
        return replace(about, reason=reason, is_for_now=is_for_now), None, 0.0

    def _sources(self, header: ProtectedHeader) -> list[tuple[str | None, KeySource]]:
        """Where the key may be: what the caller gave comes first."""
        found: list[tuple[str | None, KeySource]] = []
        if self._keys is not None:
            found.append((None, self._keys))
        url = header.key_url
        if url is not None and self._is_allowed(url):
            found.append((url, self._set_at(url)))
        return found

    def _is_allowed(self, url: str) -> bool:
        try:
            is_plain = is_http_address(url) and "#" not in url
            return is_plain and origin(url) in self._origins
        except ValueError:
            return False

    def _set_at(self, url: str) -> FetchedKeys:
        known = self._sets.pop(url, None)
        if known is None:
            known = FetchedKeys(url, self._engine, self._env)
            if len(self._sets) >= _MOST_KEY_SETS:
                del self._sets[next(iter(self._sets))]  # a fetch of it ends by its own limit
        self._sets[url] = known  # which makes it the youngest
        return known


class _Asking:
    """Asks the caller's own verifier."""

    def __init__(self, verify: CardVerifierCallable) -> None:
        self._verify = verify

    async def check(self, received: ReceivedCard, /) -> CardCheck:
        """A card that nothing is raised about is verified, as it is."""
        document = copy.deepcopy(dict(received.document))  # theirs to change
        try:
            said = self._verify(document)
            if inspect.isawaitable(said):
                said = await said
        except A2AError as error:
            if error.transient:
                verification = CardVerification(
                    outcome="unverifiable", reason=error.message, is_for_now=True
                )
                return CardCheck(verification)
            return _wrong(error.message)
        except Exception as error:  # noqa: BLE001  whatever a verifier raises refuses the card
            return _wrong(f"{type(error).__name__}: {error}")
        if said is False:
            return _wrong("the card verifier says so")
        return CardCheck(CardVerification(outcome="verified"))

    async def close(self) -> None:
        """Does nothing."""


_UNREADABLE = CardVerification(
    outcome="unverifiable", reason="its signatures cannot be read: they are not a list of objects"
)


def _wrong(reason: str) -> CardCheck:
    return CardCheck(CardVerification(outcome="invalid", reason=reason))


def _signatures(received: ReceivedCard) -> list[Mapping[str, Any]]:
    given = received.document.get("signatures")
    if not isinstance(given, list):
        return []
    return [cast("Mapping[str, Any]", one) for one in cast("list[Any]", given) if _is_object(one)]


def _is_object(value: object) -> bool:
    return isinstance(value, dict)


_LONGEST_NAME = 80


def _shown(name: str) -> str:
    """A key's name as a card gives it, in one short line."""
    return repr(name if len(name) <= _LONGEST_NAME else f"{name[:_LONGEST_NAME]}…")
