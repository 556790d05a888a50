"""`client_factory`: the SDK's factory of clients, whose transports hold fast."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Unpack, cast

from a2a.client.client import ClientConfig
from a2a.client.client_factory import ClientFactory
from a2a.types import a2a_pb2 as pb

from holdfast._integrations.a2a_sdk.conversion import (
    check_budget,
    check_other_labels,
    retry_config_of,
)
from holdfast._integrations.a2a_sdk.retry import RetryTransport
from holdfast._integrations.a2a_sdk.retry_loop import RetryExecutor
from holdfast._integrations.a2a_sdk.transport import HoldfastTransport, TransportOptions
from holdfast._integrations.a2a_sdk.validation import check_config, check_names
from holdfast._pipeline.cards.resolver import FETCH_CARD
from holdfast.extend import Endpoints, SystemEnv
from holdfast.protocol import HTTP_BINDINGS

if TYPE_CHECKING:
    from collections.abc import Callable

    from a2a.client.client import Client
    from a2a.client.client_factory import TransportProducer
    from a2a.client.interceptors import ClientCallInterceptor
    from a2a.client.transports.base import ClientTransport

    from holdfast._integrations.a2a_sdk.retry_config import RetryConfig

__all__ = ["HoldfastClientFactory", "client_factory"]


_NOBODY, _NOWHERE = pb.AgentCard(name="nobody"), "http://nowhere.invalid"
"""To try options on."""


class HoldfastClientFactory(ClientFactory):
    """The SDK's factory, whose clients try again where that is safe; see `client_factory`."""

    def __init__(
        self,
        config: ClientConfig | None = None,
        *,
        retry_config: RetryConfig | None = None,
        **options: Unpack[TransportOptions],
    ) -> None:
        check_names("client_factory", options, TransportOptions.__annotations__)
        check_config(config)
        resilience = options.get("resilience")
        # What cannot be right is told at once; a journal is opened only where one is written.
        trial = {name: value for name, value in options.items() if value is not None}
        trial |= {"journal": None, "shared": Endpoints()}
        HoldfastTransport(
            _NOBODY, _NOWHERE, retry_config=retry_config, **cast("TransportOptions", trial)
        )
        check_budget(retry_config, options.get("shared"))
        self._resilience = resilience
        self._retry_config = retry_config or retry_config_of(resilience)
        self._env = options.get("env") or SystemEnv()
        if options.get("shared") is None:  # an empty one may be filled by others
            options["shared"] = Endpoints()
        self._fetching = RetryExecutor(None, self._retry_config, self._env)
        self._holdfast = partial(HoldfastTransport, retry_config=retry_config, **options)
        config = config or ClientConfig()
        super().__init__(config)
        self._register_holdfast(config.supported_protocol_bindings)

    def _register_defaults(self, supported: list[str]) -> None:
        # For copies: Google ADK makes one, and has the SDK's own registered anew. Nothing else
        # depends on it, as it is private to the SDK.
        super()._register_defaults(supported)
        self._register_holdfast(supported)

    def _register_holdfast(self, supported: list[str]) -> None:
        for label in HTTP_BINDINGS:
            if label in (supported or HTTP_BINDINGS[:1]):
                super().register(label, partial(self._holdfast, protocol_binding=label))

    def register(self, label: str, generator: TransportProducer) -> None:
        """Registers what makes the transports of a binding, which are tried again.

        Args:
            label: The name of the binding in cards; what was there before is replaced.
            generator: Makes a transport, which gets a `RetryTransport` around it, unless it tries
                again by itself.
        """
        super().register(label, partial(self._retried, generator))

    def _retried(
        self, generator: TransportProducer, card: pb.AgentCard, url: str, config: ClientConfig
    ) -> ClientTransport:
        transport = generator(card, url, config)
        if isinstance(transport, HoldfastTransport | RetryTransport):
            return transport
        check_other_labels(self._resilience)
        return RetryTransport.from_config(transport, self._retry_config, env=self._env)

    async def create_from_url(
        self,
        url: str,
        interceptors: list[ClientCallInterceptor] | None = None,
        relative_card_path: str | None = None,
        resolver_http_kwargs: dict[str, Any] | None = None,
        signature_verifier: Callable[[pb.AgentCard], None] | None = None,
    ) -> Client:
        """Makes a client for the agent whose card is at an address.

        The SDK fetches the card, with the lent httpx client if there is one; that is tried again
        like any other read.

        Args:
            url: Where the agent is.
            interceptors: Of the client that is made.
            relative_card_path: Where the card is below that.
            resolver_http_kwargs: For the request of the card.
            signature_verifier: Called with the card.

        Raises:
            a2a.client.errors.AgentCardResolutionError: There is no card.
            ValueError: The client has no binding in common with the agent.
        """
        make = partial(
            super().create_from_url,
            url,
            interceptors,
            relative_card_path,
            resolver_http_kwargs,
            signature_verifier,
        )
        return await self._fetching.execute(FETCH_CARD, make)


def client_factory(
    config: ClientConfig | None = None,
    *,
    retry_config: RetryConfig | None = None,
    **options: Unpack[TransportOptions],
) -> HoldfastClientFactory:
    """The SDK's factory of clients, whose transports hold fast: the one line that changes.

    ``ClientFactory(config)`` becomes ``client_factory(config)``. JSON-RPC and HTTP+JSON are
    spoken by a `HoldfastTransport`, which picks up streams and looks for lost replies; what makes
    the transports of gRPC or of a binding of your own is as before, with a `RetryTransport` around
    each of them. A producer that is registered for one of the former takes its place.

    The clients of a factory share what is known of agents: circuits, budgets, what an address
    speaks.

    Args:
        config: As for the SDK's factory; see `HoldfastTransport` for its ``httpx_client``.
        retry_config: How to try again, for all bindings.
        options: Of the `HoldfastTransport`; see `TransportOptions`. Of a ``resilience``, the
            ``budget`` goes for the other bindings, too, and of its ``retry`` how often and how
            long to wait. Where it says more of trying again (another factor, no jitter, a
            predicate, a listener, other refusals), a client of such a binding is a ValueError
            when it is made.

    Raises:
        ValueError: Both ``retry_config`` and ``resilience``; or a `SharedBudget` without
            ``shared``, by which Holdfast's transports share theirs.
        TypeError: One of them is of another type.
    """
    return HoldfastClientFactory(config, retry_config=retry_config, **options)
