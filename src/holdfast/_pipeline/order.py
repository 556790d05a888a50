"""The layers of a call and their order, which is defined here and nowhere else.

Each layer is around those below it in a list. A layer above `RetryLayer` sees a call once, a layer
below it sees each attempt, and a layer below the choice of an endpoint sees the endpoint of the
call. Layers that a client does not need are omitted. `GuardLayer` is one layer for two policies,
the circuit breaker and rate limiting: its module states their order.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from holdfast._net.resolve_engine import resolve_tls
from holdfast._pipeline.admission import Admission, AdmissionLayer
from holdfast._pipeline.attempts import AttemptLayer
from holdfast._pipeline.binding_router import BindingRouter
from holdfast._pipeline.cards.fetch import CardTransport
from holdfast._pipeline.credentials import CredentialsLayer
from holdfast._pipeline.grpc_extra import grpc_transport
from holdfast._pipeline.guard import GuardLayer
from holdfast._pipeline.hedging import HedgeLayer
from holdfast._pipeline.http_binding import HttpBinding
from holdfast._pipeline.layers import (
    CompletingLayer,
    DeadlineLayer,
    InterceptorLayer,
    ObservedLayer,
    OpeningLayer,
)
from holdfast._pipeline.older_files import OlderFilesLayer
from holdfast._pipeline.produced import ProducedTransports
from holdfast._pipeline.retrying import RetryLayer
from holdfast._pipeline.transport import ExtensibleLayer, Layer, Transport, compose
from holdfast._policy.breaker import ManualOverride
from holdfast._wire.bindings import GRPC_BINDING, PROTOCOL_VERSION

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from grpc import aio

    from holdfast._aio.env import Env
    from holdfast._aio.per_loop import PerLoop
    from holdfast._net.engine import HttpEngine
    from holdfast._pipeline.credentials import AuthProviderRef
    from holdfast._pipeline.listeners import ListenerSet, Observers
    from holdfast._pipeline.produced import TransportProducer
    from holdfast._pipeline.security_warnings import SecurityWarnings
    from holdfast._policy.resilience import Resilience
    from holdfast._wire.limits import Limits
    from holdfast._wire.network_scope import Network

__all__ = [
    "CallPipeline",
    "binding_transport",
    "card_pipeline",
    "card_source",
    "layered_requests",
]


def binding_transport(
    engine: HttpEngine,
    env: Env,
    resilience: Resilience,
    limits: Limits,
    *,
    has_grpc: bool,
    channel_factory: Callable[[str], aio.Channel] | None,
    producers: Mapping[str, TransportProducer],
    networks: tuple[Network, ...],
) -> Transport:
    """Return the transport that carries calls, by the binding of their interface.

    Args:
        engine: Carries the requests of the HTTP bindings.
        env: The clock.
        resilience: Its timeouts apply, and its rules for refusals.
        limits: How large a reply to accept.
        has_grpc: Whether gRPC may be used.
        channel_factory: Makes the channels of gRPC, if the caller supplies it.
        producers: Make the transports of custom bindings.
        networks: Networks that a redirect may always reach.
    """
    bottom: Transport = HttpBinding(engine, env, resilience, limits, networks=networks)
    if has_grpc:
        over_grpc = partial(
            grpc_transport,
            env,
            resilience,
            limits,
            tls=resolve_tls(engine),
            factory=channel_factory,
        )
        bottom = BindingRouter(bottom, {GRPC_BINDING: over_grpc})
    return ProducedTransports(bottom, producers) if producers else bottom


class CallPipeline:
    """The layers of every call of a client, without those that the client does not need.

    The layers of interceptors and of credentials are inserted with the first interceptor or
    provider, which may be added after the client was made.

    Args:
        bottom: Carries calls.
        choice: Makes the layer that chooses an endpoint, over two transports: the usual one, and
            the one for endpoints where files have two encodings.
        resilience: Retries, timeouts and other policies.
        env: Wall time and randomness.
        observers: Notified of calls and attempts.
        hooks: The caller's interceptors.
        auth: The source of credentials.
        override: The manual override of circuit breakers.
        warnings: Logs warnings about the destinations of credentials.
        admissions: How many calls may be in flight; None for any number.
        call_layers: Custom layers around a whole call.
        attempt_layers: Custom layers around each attempt.

    Attributes:
        transport: The outermost layer.
    """

    def __init__(
        self,
        bottom: Transport,
        *,
        choice: Callable[[Transport, Transport], Transport],
        resilience: Resilience,
        env: Env,
        observers: Observers,
        hooks: ListenerSet,
        auth: AuthProviderRef,
        override: ManualOverride,
        warnings: SecurityWarnings,
        admissions: PerLoop[Admission] | None,
        call_layers: Sequence[Layer],
        attempt_layers: Sequence[Layer],
    ) -> None:
        self._hooks = hooks
        self._auth = auth
        self._credentials = partial(CredentialsLayer, warnings=warnings)
        self._has_interceptors = False
        # A custom layer may add credentials, too.
        self._has_credentials = bool(attempt_layers) or observers.telemetry is not None

        def chosen(inner: Transport) -> Transport:
            return choice(inner, OlderFilesLayer(inner))

        # ── The order ────────────────────────────────────────────────────────────────────────
        attempt = [
            partial(AttemptLayer, observers=observers),  # a refused call is not an attempt
            *attempt_layers,
            _telemetry(observers),  # below custom layers, whose headers take precedence
            # CredentialsLayer: new credentials, and a replay after a 401, are one attempt
            self._credentials if self._has_credentials else None,
        ]
        self._attempt = _stacked(attempt, bottom)
        call = [
            partial(ObservedLayer, observers=observers),  # each call that begins is reported
            # InterceptorLayer: before any decision, as an interceptor may reply itself
            DeadlineLayer,  # includes everything below: queues, waits, cards, credentials
            _admission(resilience, admissions, observers),  # once per call, however many attempts
            *call_layers,
            partial(RetryLayer, resilience=resilience, env=env, observers=observers),
            _hedge(
                resilience, observers
            ),  # two requests that count as one attempt of the retry layer
            chosen,  # an endpoint for each attempt and each hedge; there, the encoding of files
            partial(  # the endpoint's circuit breaker: an open circuit fails over
                GuardLayer, resilience=resilience, env=env, observers=observers, override=override
            ),
        ]
        self.transport = _stacked(call, self._attempt)
        # ─────────────────────────────────────────────────────────────────────────────────────
        self.update()

    def update(self) -> None:
        """Insert the layers that are needed by now; calls in flight do not pass them."""
        if self._hooks.interceptors and not self._has_interceptors:
            self._has_interceptors = True
            _put_below(self.transport, partial(InterceptorLayer, hooks=self._hooks))
        if self._auth.provider is not None and not self._has_credentials:
            self._has_credentials = True
            _put_below(self._attempt, self._credentials)


def card_pipeline(cards: Transport) -> Transport:
    """Return the layers of a call for the card, or for a choice among its interfaces.

    Args:
        cards: Answers the call, from a cache or with requests that are reported.
    """
    return _stacked([CompletingLayer, DeadlineLayer], cards)


def card_source(
    engine: HttpEngine,
    resilience: Resilience,
    env: Env,
    observers: Observers,
    *,
    limits: Limits,
    networks: tuple[Network, ...],
    version: str | None = None,
    override: ManualOverride | None = None,
    warnings: SecurityWarnings | None = None,
) -> Transport:
    """Return the transport that fetches cards: the layers around each fetch, in their order.

    Args:
        engine: Carries requests.
        resilience: Retries, timeouts and other policies.
        env: Wall time and randomness.
        observers: Notified of attempts.
        limits: How large a card may be.
        networks: Networks that a redirect may reach besides public ones.
        version: The version of the protocol to request; the newest if left out.
        override: The manual override of circuit breakers; none by default.
        warnings: Logs warnings about the destinations of credentials; none if left out.
    """
    cards = CardTransport(
        engine,
        env,
        timeouts=resilience.timeouts,
        limits=limits,
        networks=networks,
        version=version or PROTOCOL_VERSION,
    )
    guarded = partial(GuardLayer, resilience=resilience, env=env, observers=observers)
    return _stacked(
        [
            partial(ObservedLayer, observers=observers),
            partial(RetryLayer, resilience=resilience, env=env, observers=observers),
            partial(guarded, override=override or ManualOverride()),
            partial(AttemptLayer, observers=observers),
            _telemetry(observers),
            partial(CredentialsLayer, warnings=warnings),
        ],
        cards,
    )


def layered_requests(
    bottom: Transport,
    *,
    resilience: Resilience,
    env: Env,
    observers: Observers,
    override: ManualOverride,
    admissions: PerLoop[Admission] | None,
) -> Transport:
    """Return the layers of a request that other code wrote, to an address that it chose.

    No endpoint is chosen, no credentials are added, and the code that makes the request decides
    what a lost reply means.

    Args:
        bottom: Carries requests.
        resilience: Retries, timeouts and other policies.
        env: Wall time and randomness.
        observers: Notified of requests and attempts.
        override: The manual override of circuit breakers.
        admissions: The limits of requests in flight; None for no limit.
    """
    guarded = partial(GuardLayer, resilience=resilience, env=env, observers=observers)
    return _stacked(
        [
            partial(ObservedLayer, observers=observers),  # every reported begin has an end
            OpeningLayer,  # includes everything below: queues, waits, attempts
            _admission(resilience, admissions, observers),  # once, however many attempts
            partial(RetryLayer, resilience=resilience, env=env, observers=observers),
            _hedge(
                resilience, observers
            ),  # two requests that count as one attempt of the retry layer
            partial(guarded, override=override),  # a refused request was never sent
            partial(AttemptLayer, observers=observers),  # a refused request is not an attempt
            _telemetry(observers),
        ],
        bottom,
    )


def _stacked(layers: Iterable[Layer | None], bottom: Transport) -> Transport:
    return compose((layer for layer in layers if layer is not None), bottom)


def _put_below(layer: Transport, added: Layer) -> None:
    """Insert a layer between another one and the layer below it."""
    assert isinstance(layer, ExtensibleLayer)  # noqa: S101  else its calls would lack the added one
    layer.put_below(added)


def _admission(
    resilience: Resilience, admissions: PerLoop[Admission] | None, observers: Observers
) -> Layer | None:
    policy = resilience.concurrency
    if policy is None or admissions is None:
        return None
    return partial(AdmissionLayer, policy=policy, admissions=admissions, observers=observers)


def _telemetry(observers: Observers) -> Layer | None:
    return None if observers.telemetry is None else observers.telemetry.layer


def _hedge(resilience: Resilience, observers: Observers) -> Layer | None:
    policy = resilience.hedge
    return None if policy is None else partial(HedgeLayer, policy=policy, observers=observers)
