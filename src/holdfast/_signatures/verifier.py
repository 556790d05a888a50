"""Verification of agent cards (A2A 8.4.3).

Rules: only keys that the caller passed, or from an origin that the caller named, are trusted; a
card only identifies its key. One valid signature is enough, since several exist for key rotation.
A signature without an available key is unverifiable, one that does not match its key is invalid.
Keys without an id (PEM has none) may have any id: they are tried for each signature whose key is
not known by its id, and a signature that matches none of them is invalid, too.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from holdfast._aio.closing import close_in_turn
from holdfast._arguments import check_hook, check_items, check_kind, explains_unknown_options
from holdfast._model.addresses import is_http_address
from holdfast._model.error_reading import objects_in
from holdfast._pipeline.cards.keys import FetchedKeys, KeysUnavailableError
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
from holdfast._signatures.key_store import VerificationKeys, key_origin, key_source, read_keys
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
    from holdfast._pipeline.cards.keys import KeySource
    from holdfast._pipeline.cards.trust import CardChecker, ReceivedCard

__all__ = ["CardVerifier", "CardVerifierCallable", "card_checker", "check_card_verifier"]

CardVerifierCallable = Callable[[Mapping[str, Any]], Awaitable[object] | object]
"""Function or coroutine function that gets the JSON object of a signed card as received. An
exception, or the result ``False``, means that the signature is invalid.
"""

_MAX_SIGNATURES = 16
_MAX_KEY_SETS = 8
_CLOSE_TIMEOUT_S = 5.0


class CardVerifier:
    """Trusted keys for agent cards; pass it as ``connect(card_verifier=…)``.

    A card is verified if one of its signatures is valid. The client then uses only the signed part
    of the card; `CardVerification.unsigned` lists the rest. SDKs sign cards in different forms,
    all of which are tried.

    A verifier holds no connections, and can be shared between clients.

    Args:
        keys: A JWK set or key (RFC 7517), keys by their ids (as JWK or PEM), a public key as PEM
            (text or bytes), or the URL of a JWK set. Keys without an id (PEM has none) are tried
            for each signature whose key is not known by its id; one that matches none of them is
            invalid. A set is fetched when it is needed, and cached as its server says (from 10 s
            to 24 h; by default 300 s). For an unknown key it is fetched again, at most every 10 s.
            A card is verified again once its key set is no longer fresh: a removed key is accepted
            until then, and for at most 24 h more if the set cannot be fetched.
        jku_hosts: Hosts whose key sets are accepted if a signature names one (``jku``): a host,
            which is requested over https at its default port, or an origin such as
            ``"https://keys.example:8443"``. Anyone who can publish a file there can sign.
        algorithms: Names of accepted algorithms; by default all with public keys.

    Raises:
        ValueError: Both keys and hosts are missing, or one is invalid.
        TypeError: An argument has another type.
        ImportError: The extra ``signatures`` is not installed.
    """

    @explains_unknown_options()
    def __init__(
        self,
        keys: VerificationKeys | None = None,
        *,
        jku_hosts: Iterable[str] = (),
        algorithms: Iterable[str] = ASYMMETRIC,
    ) -> None:
        check_library("signatures", "a CardVerifier", canonical=True)
        self._algorithms = check_items("algorithms", algorithms)
        check_algorithms(self._algorithms)
        self._keys = None if keys is None else read_keys(keys)
        self._origins = frozenset(map(key_origin, check_items("jku_hosts", jku_hosts)))
        if self._keys is None and not self._origins:
            text = "a CardVerifier needs keys, or jku_hosts from which they may be fetched"
            raise ValueError(text)

    def __repr__(self) -> str:
        keys = self._keys if isinstance(self._keys, str) else None
        count = len(self._keys["keys"]) if isinstance(self._keys, dict) else 0
        named = presentable(keys) if keys else f"{count} keys"
        return f"CardVerifier({named}, jku_hosts={sorted(self._origins)})"

    def opened(self, engine: HttpEngine, env: Env) -> CardChecker:
        """Return a checker of cards.

        Args:
            engine: Carries the requests for keys; not closed.
            env: Provides wall time.
        """
        keys = None if self._keys is None else key_source(self._keys, engine, env)
        return _Checker(keys, self._origins, self._algorithms, engine, env)


def check_card_verifier(
    verifier: CardVerifier | CardVerifierCallable | None, *, require_signature: bool
) -> None:
    """Check the caller's arguments for card verification.

    Raises:
        ValueError: A signature is required, but there is no verifier.
        TypeError: An argument has another type.
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
    """Return a checker of cards for the caller's verifier; None without one."""
    if verifier is None:
        return None
    if isinstance(verifier, CardVerifier):
        return verifier.opened(engine, env)
    return _CallableChecker(verifier)


class _Checker:
    """Checker with the keys of one client."""

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
        """Try the signatures in order, each in all forms; the first valid one decides."""
        try:
            forms = tuple(signed_forms(received.document))
        except NoCanonicalFormError as error:
            return CardCheck(CardVerification(outcome="unverifiable", reason=str(error)))
        signatures = _signatures(received)
        failures: list[CardVerification] = []
        for number, signature in enumerate(signatures[:_MAX_SIGNATURES], start=1):
            verification, form, fresh_for = await self._verify_signature(
                signature, number, forms, received
            )
            if form is not None:
                return CardCheck(verification, form.used, fresh_for)
            failures.append(verification)
        # Report an invalid signature first, then one that may be verified later.
        failures.sort(key=lambda failure: (failure.outcome != "invalid", not failure.is_for_now))
        return CardCheck(failures[0] if failures else _UNREADABLE)

    async def close(self) -> None:
        """Stop fetching keys."""
        sources = [*self._sets.values(), *([] if self._keys is None else [self._keys])]
        await close_in_turn(sources, seconds=_CLOSE_TIMEOUT_S)

    async def _verify_signature(
        self,
        signature: Mapping[str, Any],
        number: int,
        forms: tuple[SignedForm, ...],
        received: ReceivedCard,
    ) -> tuple[CardVerification, SignedForm | None, float]:
        """Return the result for a signature, its form if valid, and its freshness in seconds."""
        try:
            header = read_header(signature, self._algorithms)
        except UnusableError as error:
            reason = f"signature {number}: {error}"
            verification = CardVerification(outcome="unverifiable", reason=reason, number=number)
            return verification, None, 0.0
        unverified = CardVerification(
            outcome="unverifiable",
            key_id=header.key_id,
            algorithm=header.algorithm,
            number=number,
        )
        is_own_mismatch, is_other_mismatch, unavailable = False, False, None
        for url, source in self._sources(header):
            try:
                keys = await source.find(header.key_id)
            except KeysUnavailableError as error:
                unavailable = error
                continue
            is_own = header.key_id is None or any(key.get("kid") is not None for key in keys)
            for form in forms:
                is_match = is_signed_by(signature, form.payload, keys, header.algorithm)
                if is_match:
                    verified = replace(
                        unverified,
                        outcome="verified",
                        key_url=None if url is None else presentable(url),
                        unsigned=unsigned_members(received.document, form.document),
                    )
                    return verified, form, source.fresh_for
                is_own_mismatch |= is_match is False and is_own
                is_other_mismatch |= is_match is False and not is_own
        # A key without an id proves nothing while the signature's own key cannot be fetched.
        is_mismatch = is_own_mismatch or (is_other_mismatch and unavailable is None)
        key_name = "its key" if header.key_id is None else f"key {_shown(header.key_id)}"
        if is_mismatch and received.is_whole:
            key = (
                key_name if is_own_mismatch else f"any key without an id; {key_name} is not known"
            )
            reason = f"signature {number} does not match the card and {key}"
            return replace(unverified, outcome="invalid", reason=reason), None, 0.0
        if is_mismatch:
            reason = f"signature {number} does not match: {received.doubt}"
        elif unavailable is not None:
            reason = f"signature {number}: {unavailable.message}"
        elif header.key_url is not None and not self._is_allowed(header.key_url):
            reason = f"signature {number}: {key_name} is not known, and its jku is not allowed"
        else:
            reason = f"signature {number}: {key_name} is not known"
        is_for_now = unavailable is not None and not is_mismatch
        return replace(unverified, reason=reason, is_for_now=is_for_now), None, 0.0

    def _sources(self, header: ProtectedHeader) -> list[tuple[str | None, KeySource]]:
        """Return the sources of the key, the caller's own first."""
        sources: list[tuple[str | None, KeySource]] = []
        if self._keys is not None:
            sources.append((None, self._keys))
        url = header.key_url
        if url is not None and self._is_allowed(url):
            sources.append((url, self._set_at(url)))
        return sources

    def _is_allowed(self, url: str) -> bool:
        try:
            is_plain = is_http_address(url) and "#" not in url
            return is_plain and origin(url) in self._origins
        except ValueError:
            return False

    def _set_at(self, url: str) -> FetchedKeys:
        key_set = self._sets.pop(url, None)
        if key_set is None:
            key_set = FetchedKeys(url, self._engine, self._env)
            if len(self._sets) >= _MAX_KEY_SETS:
                del self._sets[next(iter(self._sets))]  # its fetch ends by its own timeout
        self._sets[url] = key_set  # now the most recent
        return key_set


class _CallableChecker:
    """Checker with the caller's own verifier."""

    def __init__(self, verify: CardVerifierCallable) -> None:
        self._verify = verify

    async def check(self, received: ReceivedCard, /) -> CardCheck:
        """Call the verifier; the card is verified, as a whole, unless it objects."""
        document = copy.deepcopy(dict(received.document))  # the verifier may modify it
        try:
            result = self._verify(document)
            if inspect.isawaitable(result):
                result = await result
        except A2AError as error:
            if error.transient:
                verification = CardVerification(
                    outcome="unverifiable", reason=error.message, is_for_now=True
                )
                return CardCheck(verification)
            return _invalid(error.message)
        except Exception as error:  # noqa: BLE001  any exception rejects the card
            return _invalid(f"{type(error).__name__}: {error}")
        if result is False:
            return _invalid("the card verifier rejected it")
        return CardCheck(CardVerification(outcome="verified"))

    async def close(self) -> None:
        """Do nothing."""


_UNREADABLE = CardVerification(
    outcome="unverifiable", reason="its signatures cannot be read: they are not a list of objects"
)


def _invalid(reason: str) -> CardCheck:
    return CardCheck(CardVerification(outcome="invalid", reason=reason))


def _signatures(received: ReceivedCard) -> list[Mapping[str, Any]]:
    signatures = received.document.get("signatures")
    return [*objects_in(signatures)]


_MAX_NAME_CHARACTERS = 80


def _shown(name: str) -> str:
    """Return a key id from a card as one short line."""
    return repr(name if len(name) <= _MAX_NAME_CHARACTERS else f"{name[:_MAX_NAME_CHARACTERS]}…")
