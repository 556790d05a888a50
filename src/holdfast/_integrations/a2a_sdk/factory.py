"""`client_factory`: the SDK's factory of clients, with transports that retry and resume."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Unpack, cast

from a2a.client.client import ClientConfig
from a2a.client.client_factory import ClientFactory
from a2a.client.errors import AgentCardResolutionError
from a2a.types import a2a_pb2 as pb

from holdfast import errors
from holdfast._arguments import explains_unknown_options
from holdfast._integrations.a2a_sdk.conversion import (
    check_budget,
    check_other_labels,
    retry_config_of,
)
from holdfast._integrations.a2a_sdk.failures import default_retry_predicate
from holdfast._integrations.a2a_sdk.retry import RetryTransport
from holdfast._integrations.a2a_sdk.retry_loop import RetryExecutor, retry_facts
from holdfast._integrations.a2a_sdk.transport import HoldfastTransport, TransportOptions
from holdfast._integrations.a2a_sdk.validation import (
    check_card,
    check_config,
    check_interceptors,
    check_names,
)
from holdfast._pipeline.cards.resolver import FETCH_CARD
from holdfast.errors import A2AError
from holdfast.extend import Endpoints, SystemEnv, presentable
from holdfast.protocol import HTTP_BINDINGS

if TYPE_CHECKING:
    from collections.abc import Callable

    from a2a.client.client import Client
    from a2a.client.client_factory import TransportProducer
    from a2a.client.interceptors import ClientCallInterceptor
    from a2a.client.transports.base import ClientTransport

    from holdfast._integrations.a2a_sdk.retry_config import RetryConfig

__all__ = ["HoldfastClientFactory", "client_factory"]


_EXAMPLE_CARD, _EXAMPLE_URL = pb.AgentCard(name="example"), "http://agent.invalid"
"""For a transport that only checks the options."""


class _FactoryTransport(HoldfastTransport):
    """The transport of a factory, whose errors advise to pass options to the factory."""

    _taker = "client_factory"


class HoldfastClientFactory(ClientFactory):
    """The SDK's factory of clients that retry and resume, made by `client_factory`.

    Args:
        config: The SDK's configuration; None for its defaults.
        retry_config: Retries of all bindings; None for the defaults.
        options: Options of the `HoldfastTransport`: ``auth``, ``timeout`` (seconds, 900 by
            default), ``resilience``, ``limits``, ``engine``, ``tls``, ``shared``, ``env``,
            ``protocol_version``, ``allow_legacy``, ``on_unknown``, ``context_ids``, ``journal``,
            ``headers``, ``credential_origins``, ``allowed_networks``, ``reach``, ``observers``,
            ``telemetry``, ``call_layers`` and ``attempt_layers``.
    """

    def __init__(
        self,
        config: ClientConfig | None = None,
        *,
        retry_config: RetryConfig | None = None,
        **options: Unpack[TransportOptions],
    ) -> None:
        check_names("client_factory", options, ("retry_config", *TransportOptions.__annotations__))
        check_config(config)
        resilience = options.get("resilience")
        # An option that is not valid is an error here; a journal is opened by a client only.
        trial = {name: value for name, value in options.items() if value is not None}
        trial |= {"journal": None, "shared": Endpoints()}
        self._trial = partial(
            _FactoryTransport,
            _EXAMPLE_CARD,
            _EXAMPLE_URL,
            retry_config=retry_config,
            **cast("TransportOptions", trial),
        )
        self._trial()
        check_budget(retry_config, options.get("shared"), taker="client_factory")
        self._resilience = resilience
        self._retry_config = retry_config or retry_config_of(resilience)
        self._env = options.get("env") or SystemEnv()
        if options.get("shared") is None:  # not `or`: an empty one may be shared with others
            options["shared"] = Endpoints()
        self._fetching = RetryExecutor(None, self._retry_config, self._env)
        self._holdfast = partial(_FactoryTransport, retry_config=retry_config, **options)
        config = config or ClientConfig()
        self._given_config = config
        self._own_bindings: set[str] = set()
        super().__init__(config)
        self._register_holdfast(config.supported_protocol_bindings)

    def _register_defaults(self, supported: list[str]) -> None:
        # Google ADK copies the factory, and registers the SDK's transports again. Nothing else
        # depends on this method, which is private to the SDK.
        super()._register_defaults(supported)
        self._register_holdfast(supported)

    def _register_holdfast(self, supported: list[str]) -> None:
        for label in HTTP_BINDINGS:
            if label in (supported or HTTP_BINDINGS[:1]):
                super().register(label, partial(self._holdfast, protocol_binding=label))
                self._own_bindings.add(label)

    def register(self, label: str, generator: TransportProducer) -> None:
        """Register the producer of the transports of a binding, whose calls are retried.

        Args:
            label: The name of the binding in cards; it replaces the producer registered before.
            generator: Function that gets a card, an address and the SDK's configuration, and
                returns a transport; it is wrapped in a `RetryTransport`, unless it is one or a
                `HoldfastTransport`.
        """
        super().register(label, partial(self._retried, generator))
        self._own_bindings.discard(label)

    def _retried(
        self, generator: TransportProducer, card: pb.AgentCard, url: str, config: ClientConfig
    ) -> ClientTransport:
        transport = generator(card, url, config)
        if isinstance(transport, HoldfastTransport | RetryTransport):
            return transport
        check_other_labels(self._resilience)
        return RetryTransport.from_config(transport, self._retry_config, env=self._env)

    @explains_unknown_options()
    def create(
        self, card: pb.AgentCard, interceptors: list[ClientCallInterceptor] | None = None
    ) -> Client:
        """Return a client for the agent of a card.

        Args:
            card: The card of the agent.
            interceptors: Interceptors of the client.

        Raises:
            ValueError: The client has no binding in common with the agent, or the ``httpx_client``
                has a setting that a `HoldfastTransport` cannot take over.
            TypeError: The card or an interceptor is not one of the SDK.
        """
        check_card(card)
        check_interceptors(interceptors)
        client = super().create(card, interceptors)
        add = client.add_interceptor

        async def add_interceptor(interceptor: ClientCallInterceptor) -> None:
            check_interceptors((interceptor,))
            await add(interceptor)

        client.add_interceptor = add_interceptor  # type: ignore[method-assign]
        return client

    @explains_unknown_options()
    async def create_from_url(
        self,
        url: str,
        interceptors: list[ClientCallInterceptor] | None = None,
        relative_card_path: str | None = None,
        resolver_http_kwargs: dict[str, Any] | None = None,
        signature_verifier: Callable[[pb.AgentCard], None] | None = None,
    ) -> Client:
        """Return a client for the agent whose card is at an address.

        The SDK fetches the card, with the ``httpx_client`` of the configuration if there is one;
        that request is retried like any other read.

        Args:
            url: The agent's address.
            interceptors: Interceptors of the client.
            relative_card_path: The path of the card below the address.
            resolver_http_kwargs: Arguments of httpx for the request of the card.
            signature_verifier: Called with the card; raises if no signature is valid, such as
                ``a2a.utils.signing.create_signature_verifier(…)``.

        Raises:
            a2a.client.errors.AgentCardResolutionError: There is no card; its ``__cause__`` is
                Holdfast's error of the same name.
            ValueError: The client has no binding in common with the agent, or the ``httpx_client``
                has a setting that a `HoldfastTransport` cannot take over; the latter is raised
                before the card is fetched.
            TypeError: An interceptor is not one of the SDK.
        """
        check_interceptors(interceptors)
        if self._own_bindings:
            self._trial(self._given_config)
        make = partial(
            super().create_from_url,
            url,
            interceptors,
            relative_card_path,
            resolver_http_kwargs,
            signature_verifier,
        )
        try:
            return await self._fetching.execute(FETCH_CARD, make)
        except AgentCardResolutionError as error:
            failure = error
        raise failure from _card_error(url, failure)


def _card_error(url: str, failure: AgentCardResolutionError) -> A2AError:
    """Return Holdfast's error for that of the SDK, which fetches cards itself, with httpx."""
    cause, facts = failure.__cause__, retry_facts(failure)
    if isinstance(cause, A2AError):
        return cause  # such as that of a factory around this one
    if failure.status_code is not None:
        reason = f"HTTP {failure.status_code}"
    else:
        reason = "no reason" if cause is None else type(cause).__name__
    error = errors.AgentCardResolutionError(
        f"no agent card was fetched: {reason}",
        executed=False,
        transient=default_retry_predicate(failure),
        retry_after=None if facts is None else facts.retry_after,
        http_status=failure.status_code,
        agent=presentable(url),
    )
    error.__cause__ = cause
    return error


def client_factory(
    config: ClientConfig | None = None,
    *,
    retry_config: RetryConfig | None = None,
    **options: Unpack[TransportOptions],
) -> HoldfastClientFactory:
    """Return the SDK's factory of clients, with transports that retry and resume.

    Replace ``ClientFactory(config)`` by ``client_factory(config)``. JSON-RPC and HTTP+JSON get a
    `HoldfastTransport`, which resumes streams and searches for the tasks of lost replies. The
    transports of gRPC and of your own bindings stay, each wrapped in a `RetryTransport`. A
    producer that you register for JSON-RPC or HTTP+JSON replaces the `HoldfastTransport`.

    The clients of a factory share the state of agents: circuits, retry budgets, and the protocol
    version of each address.

    Args:
        config: The SDK's configuration, as for its own factory; `HoldfastTransport` describes the
            use of its ``httpx_client``.
        retry_config: Retries of all bindings; None for the defaults.
        options: Options of the `HoldfastTransport`: ``auth``, ``timeout`` (seconds, 900 by
            default), ``resilience``, ``limits``, ``engine``, ``tls``, ``shared``, ``env``,
            ``protocol_version``, ``allow_legacy``, ``on_unknown``, ``context_ids``, ``journal``,
            ``headers``, ``credential_origins``, ``allowed_networks``, ``reach``, ``observers``,
            ``telemetry``, ``call_layers`` and ``attempt_layers``.
            For the other bindings, only the ``budget`` of a ``resilience`` applies, and the number
            and the delays of its ``retry``. If that has other settings (another factor, no jitter,
            a predicate, a listener, other refusals), creating a client of such a binding raises a
            ValueError.

    Raises:
        ValueError: Both ``retry_config`` and ``resilience`` are given; or a `SharedBudget`
            without ``shared``, through which Holdfast's transports share theirs.
        TypeError: An argument has the wrong type.
    """
    return HoldfastClientFactory(config, retry_config=retry_config, **options)
