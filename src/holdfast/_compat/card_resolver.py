"""A resolver that fetches agent cards below one address, without a cache."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from holdfast._aio.cancel_scope import wait_until
from holdfast._aio.closing import ClosingContext
from holdfast._aio.env import Env, SystemEnv
from holdfast._arguments import (
    check_kind,
    check_methods,
    check_networks,
    check_not_empty,
    check_reach,
    check_seconds,
    check_url,
    explains_unknown_options,
)
from holdfast._auth.providers import AuthInterceptor, AuthProvider, to_provider
from holdfast._model.error_values import presentable
from holdfast._model.operations import CARD_BINDING
from holdfast._net.engine import EngineWithin
from holdfast._net.resolve_engine import resolve_engine
from holdfast._pipeline.caller_operation import CallerOperation
from holdfast._pipeline.cards.fetch import CardLocation
from holdfast._pipeline.cards.resolver import FETCH_CARD
from holdfast._pipeline.cards.trust import CardTrust, ReceivedCard
from holdfast._pipeline.endpoints import Endpoints
from holdfast._pipeline.layers import CompletingLayer, DeadlineLayer
from holdfast._pipeline.listeners import Observers
from holdfast._pipeline.order import card_source
from holdfast._pipeline.security_warnings import SecurityWarnings
from holdfast._pipeline.transport import Call, CallGroup, CallProgress
from holdfast._policy.deadline import Deadline, callback_deadline_error
from holdfast._policy.resilience import Resilience
from holdfast._signatures.verifier import (
    CardVerifier,
    CardVerifierCallable,
    card_checker,
    check_card_verifier,
)
from holdfast._wire.http import check_caller_headers
from holdfast._wire.limits import Limits
from holdfast._wire.origins import origin
from holdfast.errors import A2AError
from holdfast.types import AgentInterface

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    import aiohttp

    from holdfast._net.engine import HttpEngine
    from holdfast._net.tls_config import TlsConfig
    from holdfast._wire.network_scope import AgentReach
    from holdfast.types import AgentCard

__all__ = ["A2ACardResolver"]


class A2ACardResolver(ClosingContext):
    """Fetcher of agent cards below one address; use it as an async context manager.

    It has no cache: each call fetches the card, with the retries and limits of `connect`.

    Args:
        base_url: The base address of the cards.
        agent_card_path: Path of the card below that; None, the default, to search for the card as
            `connect` does.
        auth: Credentials for the server of the cards: a value for ``Authorization``, headers, or
            an `AuthProvider` that does not need a card; None for none.
        headers: Headers for every request.
        timeout: Seconds for a fetch, including its retries, 900 by default.
        resilience: The policies; None for `Resilience.standard`.
        limits: Bounds on the size of a card; None for the defaults.
        allowed_networks: Networks that a redirect may lead to, as for `connect`.
        reach: Addresses that may be fetched: ``"any"``, the default, or ``"public"``, as for
            `connect`.
        engine: The HTTP engine, as for `connect`.
        tls: TLS settings, without ``engine``.
        card_verifier: Verifier of the cards' signatures, such as a `CardVerifier`; none by
            default.
        require_signature: Whether a card without a verified signature is an error; False by
            default.
        env: Wall time, randomness and ids; None for the system's.

    Raises:
        ValueError: An address, a header or a number is not valid, or arguments contradict each
            other.
        TypeError: An argument has the wrong type.
    """

    @explains_unknown_options()
    def __init__(
        self,
        base_url: str,
        agent_card_path: str | None = None,
        *,
        auth: str | Mapping[str, str] | AuthProvider | None = None,
        headers: Mapping[str, str] | None = None,
        timeout: float = 900.0,
        resilience: Resilience | None = None,
        limits: Limits | None = None,
        allowed_networks: Iterable[str] = (),
        reach: AgentReach = "any",
        engine: HttpEngine | aiohttp.ClientSession | None = None,
        tls: TlsConfig | None = None,
        card_verifier: CardVerifier | CardVerifierCallable | None = None,
        require_signature: bool = False,
        env: Env | None = None,
    ) -> None:
        resilience = Resilience.standard() if resilience is None else resilience
        env = SystemEnv() if env is None else env
        limits = Limits() if limits is None else limits
        check_kind("limits", limits, Limits)
        check_kind("resilience", resilience, Resilience)
        check_methods("env", env, "wall", "random", "new_id")
        check_card_verifier(card_verifier, require_signature=require_signature)
        self._base = check_url(base_url, "base_url").partition("?")[0]
        self._location = CardLocation.of(base_url)
        if agent_card_path is not None:
            self._location = self._below("agent_card_path", agent_card_path)
        self._auth = to_provider(auth)
        if isinstance(self._auth, AuthInterceptor):
            text = (
                "this auth depends on the agent's card, which is not fetched yet; pass a header "
                "value, a dict of headers or an AuthProvider"
            )
            raise TypeError(text)
        self._headers = check_caller_headers({} if headers is None else headers)
        self._timeout = check_seconds("timeout", timeout)
        self._env = env
        self._server = Endpoints().of(
            AgentInterface(url=origin(base_url), protocol_binding=CARD_BINDING)
        )
        networks = check_networks("allowed_networks", allowed_networks)
        self._reach = check_reach(reach, networks)
        http_engine, self._owned_engine = resolve_engine(engine, tls)
        if self._reach is not None:
            http_engine = EngineWithin(http_engine, self._reach)
        self._observers = observers = Observers((), agent=presentable(self._base))
        self._trust = CardTrust(
            card_checker(card_verifier, http_engine, env),
            is_required=require_signature,
            observers=observers,
        )
        cards = card_source(
            http_engine,
            resilience,
            env,
            observers,
            limits=limits,
            networks=networks,
            warnings=SecurityWarnings(),
        )
        self._is_closed = False
        self._cards = CompletingLayer(DeadlineLayer(cards))

    async def close(self) -> None:
        """End fetches in flight, and close the connections unless the caller supplied the engine.

        Later fetches raise a RuntimeError. Can be called twice.
        """
        self._is_closed = True
        await self._trust.close()
        await self._cards.close()
        if self._owned_engine is not None:
            await self._owned_engine.close()

    @explains_unknown_options()
    async def get_agent_card(
        self,
        relative_card_path: str | None = None,
        *,
        headers: Mapping[str, str] | None = None,
        timeout: float | None = None,
    ) -> AgentCard:
        """Fetch a card.

        Args:
            relative_card_path: The path of the card below the base address, ``"/"`` for that
                address itself; None for that of the resolver.
            headers: Headers for this fetch; they replace the resolver's of the same names.
            timeout: Seconds for the whole fetch; None for the resolver's.

        Raises:
            AgentCardResolutionError: There is no card.
            InvalidAgentCardError: The card is not valid.
            CardSignatureError: Its signature is invalid, or required and not verified.
            DeadlineExceededError: The timeout expired.
            A2AError: The card could not be fetched.
            ValueError: A path, a header or a number is not valid.
            RuntimeError: The resolver is closed.
        """
        if self._is_closed:
            text = "the resolver is closed"
            raise RuntimeError(text)
        location = self._location
        if relative_card_path is not None:
            location = self._below("relative_card_path", relative_card_path)
        seconds = self._timeout if timeout is None else check_seconds("timeout", timeout)
        now = asyncio.get_running_loop().time()
        all_headers = {**self._headers, **check_caller_headers({} if headers is None else headers)}
        operation = CallerOperation(
            self._observers,
            "get_agent_card",
            self._env.new_id(),
            is_observed=self._observers.are_active(),
        )
        deadline = Deadline(name="call", timeout=seconds, at=now + seconds)

        def too_late() -> A2AError:
            return callback_deadline_error("the card was not verified", deadline, None)

        with operation:
            call = Call(
                operation=FETCH_CARD,
                params=location,
                request_id=operation.add_request(FETCH_CARD.name, None),
                deadline=deadline,
                headers=all_headers,
                endpoint=self._server,
                auth=self._auth,
                reach=self._reach,
                progress=CallProgress(began=now, call_group=CallGroup(operation=operation)),
            )
            try:
                fetched = (await self._cards.unary(call)).value
                accepting = self._trust.accept(call, ReceivedCard(fetched.card, fetched.document))
                return (await wait_until(deadline.at, accepting, too_late)).card
            except A2AError as error:
                error.executed = False  # fetching a card executes nothing
                raise

    def _below(self, name: str, path: str) -> CardLocation:
        segments = check_not_empty(name, path).lstrip("/")
        url = f"{self._base.rstrip('/')}/{segments}" if segments else self._base
        return CardLocation((check_url(url, name),))
