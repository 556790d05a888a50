"""The layers that a call goes through: their order is written here, and nowhere else.

Each layer is around those below it in a list. What stands above `RetryLayer` sees a call once,
what stands below it sees each try, and what stands below the choice of an endpoint sees where the
call goes. A layer that a client does not need is not there.
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
    from holdfast._pipeline.cautions import Cautions
    from holdfast._pipeline.credentials import AuthProviderRef
    from holdfast._pipeline.listeners import ListenerSet, Observers
    from holdfast._pipeline.produced import TransportProducer
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
    """Make what carries calls, by the binding of the interface that they go to.

    Args:
        engine: What carries requests, for the bindings that are HTTP.
        env: Tells the time.
        resilience: Its timeouts and refusals count.
        limits: How large a reply to accept.
        has_grpc: Whether gRPC may be spoken.
        channel_factory: Makes the channels of gRPC, if the caller does.
        producers: What makes the transports of the caller's own bindings.
        networks: Networks that a redirect may reach in any case.
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

    The layers of interceptors and of credentials are put in when the first of either comes, which
    may be after the client was made.

    Args:
        bottom: Carries calls.
        choice: Makes the layer that chooses where a call goes, over what is below it: in general,
            and for endpoints where files have two forms.
        resilience: What to do when things go wrong.
        env: Wall time and randomness.
        observers: Learn of calls and attempts.
        hooks: The caller's interceptors.
        auth: Where credentials come from.
        override: The manual override of circuit breakers.
        cautions: Warns of where credentials go.
        admissions: How many calls may be in flight; None for any number.
        call_layers: The caller's own layers around a whole call.
        attempt_layers: The same, around each attempt.

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
        cautions: Cautions,
        admissions: PerLoop[Admission] | None,
        call_layers: Sequence[Layer],
        attempt_layers: Sequence[Layer],
    ) -> None:
        self._hooks = hooks
        self._auth = auth
        self._credentials = partial(CredentialsLayer, cautions=cautions)
        self._has_interceptors = False
        # One of the caller's layers may add credentials, too.
        self._has_credentials = bool(attempt_layers)

        def chosen(inner: Transport) -> Transport:
            return choice(inner, OlderFilesLayer(inner))

        # ── The order ────────────────────────────────────────────────────────────────────────
        attempt = [
            partial(AttemptLayer, observers=observers),  # a refused call is not an attempt
            *attempt_layers,
            # CredentialsLayer: fresh ones, and once more after a 401: both are one attempt
            self._credentials if self._has_credentials else None,
        ]
        self._attempt = _stacked(attempt, bottom)
        call = [
            partial(ObservedLayer, observers=observers),  # each call that begins is reported
            # InterceptorLayer: before anything is decided, as an interceptor may answer
            DeadlineLayer,  # all below counts: queues, waits, cards, credentials
            _admission(resilience, admissions),  # once for a call, however often it is tried
            *call_layers,
            partial(RetryLayer, resilience=resilience, env=env, observers=observers),
            _hedge(resilience),  # two requests that are one try
            chosen,  # an endpoint for each try, and for each of two; there, how files are written
            partial(  # of that endpoint: one that refuses is passed over
                GuardLayer, resilience=resilience, env=env, observers=observers, override=override
            ),
        ]
        self.transport = _stacked(call, self._attempt)
        # ─────────────────────────────────────────────────────────────────────────────────────
        self.update()

    def update(self) -> None:
        """Put in the layers that are needed by now; calls in flight go on as they began."""
        if self._hooks.interceptors and not self._has_interceptors:
            self._has_interceptors = True
            _put_below(self.transport, partial(InterceptorLayer, hooks=self._hooks))
        if self._auth.provider is not None and not self._has_credentials:
            self._has_credentials = True
            _put_below(self._attempt, self._credentials)


def card_pipeline(cards: Transport, observers: Observers) -> Transport:
    """The layers of a call that asks for the card, or for a choice among its interfaces.

    Args:
        cards: What answers.
        observers: Who is told of such calls.
    """
    return _stacked([partial(ObservedLayer, observers=observers), DeadlineLayer], cards)


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
    cautions: Cautions | None = None,
) -> Transport:
    """What fetches cards: the layers around each fetch, in their order.

    Args:
        engine: What carries requests.
        resilience: What to do when things go wrong.
        env: Wall time and randomness.
        observers: Who is told of attempts.
        limits: How large a card may be.
        networks: Where a redirect may lead besides the outside.
        version: The version of the protocol to ask for; the newest if left out.
        override: The manual override of circuit breakers; none by default.
        cautions: Warns of where credentials go; nobody does if left out.
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
            partial(RetryLayer, resilience=resilience, env=env, observers=observers),
            partial(guarded, override=override or ManualOverride()),
            partial(AttemptLayer, observers=observers),
            partial(CredentialsLayer, cautions=cautions),
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
    """The layers of a request that somebody else wrote, to an address that they chose.

    There is no choice of a place, no credentials are added, and what a lost reply means is for
    those to say who know what they asked for.

    Args:
        bottom: What carries requests.
        resilience: What to do when things go wrong.
        env: Wall time and randomness.
        observers: Who is told of requests and attempts.
        override: The manual override of circuit breakers.
        admissions: Who is let in; None for everybody.
    """
    guarded = partial(GuardLayer, resilience=resilience, env=env, observers=observers)
    return _stacked(
        [
            partial(ObservedLayer, observers=observers),  # a request that is told has begun ends
            OpeningLayer,  # all below counts: lines, waits, attempts
            _admission(resilience, admissions),  # once, however often it is tried
            partial(RetryLayer, resilience=resilience, env=env, observers=observers),
            _hedge(resilience),  # two requests that are one try
            partial(guarded, override=override),  # what is refused here was never sent
            partial(AttemptLayer, observers=observers),  # what is not let through is no attempt
        ],
        bottom,
    )


def _stacked(layers: Iterable[Layer | None], bottom: Transport) -> Transport:
    return compose((layer for layer in layers if layer is not None), bottom)


def _put_below(layer: Transport, added: Layer) -> None:
    """Put a layer between another one and what is below that."""
    if isinstance(layer, ExtensibleLayer):
        layer.put_below(added)


def _admission(resilience: Resilience, admissions: PerLoop[Admission] | None) -> Layer | None:
    policy = resilience.concurrency
    if policy is None or admissions is None:
        return None
    return partial(AdmissionLayer, policy=policy, admissions=admissions)


def _hedge(resilience: Resilience) -> Layer | None:
    policy = resilience.hedge
    return None if policy is None else partial(HedgeLayer, policy=policy)
