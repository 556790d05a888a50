"""Choosing where a call goes: from a card to one of its interfaces.

Rules: the caller's preference comes first, then the card's order (A2A 8.3.2); credentials go to
the origins that the caller named, and to no other.
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, NamedTuple, TypeVar
from urllib.parse import urlsplit

import msgspec

from holdfast.errors import (
    A2AError,
    AgentCardResolutionError,
    AuthenticationError,
    CredentialOriginError,
    InvalidAgentCardError,
    PermissionDeniedError,
    PushNotificationNotSupportedError,
    UnsupportedOperationError,
    VersionNotSupportedError,
)
from holdfast.model.addresses import doubt
from holdfast.model.hosts import number_of
from holdfast.runtime.transport import PassThrough
from holdfast.wire.bindings import BINDINGS, PROTOCOL_VERSION
from holdfast.wire.http import presentable
from holdfast.wire.origins import origin, origin_and_aliases
from holdfast.wire.reach import Network, Reach, furthest_in, scope_of_host
from holdfast.wire.redaction import hidden_in_path
from holdfast.wire.security import explain

if TYPE_CHECKING:
    from holdfast.model.card import AgentCard, AgentInterface
    from holdfast.model.operations import Capability
    from holdfast.runtime.credentials import AuthSlot
    from holdfast.runtime.endpoints import Endpoint, Endpoints
    from holdfast.runtime.resolver import AgentCardResolver
    from holdfast.runtime.transport import Call, Onward, Reply, Transport

__all__ = ["InterfaceLayer", "Route", "choose_interface"]

P = TypeVar("P")
R = TypeVar("R")
T = TypeVar("T")


class Route(msgspec.Struct, frozen=True, kw_only=True):
    """What the caller says about where calls go.

    Attributes:
        bindings: The bindings that the caller prefers, best first.
        supported: The bindings that may be used at all.
        produced: Those whose transports the caller brings; they judge the version themselves.
        url: Address to use instead of the interface's own.
        tenant: Tenant to use instead of the interface's own.
        trusted: Origins that may get the caller's headers and credentials.
        trust_first: Whether the origin of the first card's first interface is one of them: for a
            card that the caller brought along.
        source: Where the card is fetched; None if the caller brought it along.
        networks: Networks that an address may lead to which others named, wherever they lie.
    """

    bindings: tuple[str, ...] = ()
    supported: tuple[str, ...] = tuple(BINDINGS)
    produced: frozenset[str] = frozenset()
    url: str | None = None
    tenant: str | None = None
    trusted: frozenset[str] = frozenset()
    trust_first: bool = False
    source: str | None = None
    networks: tuple[Network, ...] = ()

    def allows_host(self, url: str) -> bool:
        """Whether the host of an address is this machine, and may be reached all the same."""
        if scope_of_host(url) != "loopback":
            return False
        number = number_of(urlsplit(url).hostname or "")
        return not Reach(allowed=self.networks).refuses(str(number))


class InterfaceLayer(PassThrough):
    """Chooses the interface that a call goes to, fetching the card if need be."""

    def __init__(
        self,
        inner: Transport,
        resolver: AgentCardResolver,
        route: Route,
        endpoints: Endpoints,
        auth: AuthSlot,
    ) -> None:
        super().__init__(inner)
        self._resolver = resolver
        self._route = route
        self._auth = auth
        self._endpoints = endpoints
        self._trusted: frozenset[str] | None = None  # until the first card is there
        self._choice: _Choice | None = None

    async def through(self, call: Call[P, R], onward: Onward[P, R, T], /) -> Reply[T]:
        """Makes the call at the chosen endpoint.

        Raises:
            CredentialOriginError: The call carries credentials that were not given for the
                interface's origin. Nothing was sent.
            InvalidAgentCardError: The interface has an address that cannot be meant.
            PushNotificationNotSupportedError: The card declares no push notifications.
            UnsupportedOperationError: The card declares no such operation.
        """
        try:
            card = self._resolver.fresh or await self._resolver.card(call)
        except A2AError as error:
            error.executed = False  # of this call, whatever became of the card's
            raise
        call.progress.card = None  # it has come
        provider = self._auth.provider
        if self._resolver.secrets:  # which the card may repeat
            call.progress.secrets.note_values(self._resolver.secrets)
        choice = self._checked(call, card, has_credentials=provider is not None)
        routed = msgspec.structs.replace(
            call, endpoint=choice.endpoint, reach=choice.reach, card=card, auth=provider
        )
        try:
            return await onward(routed)
        except (AuthenticationError, PermissionDeniedError) as error:
            if provider is None:
                explain(error, card, call.headers)
            raise

    def _checked(self, call: Call[P, R], card: AgentCard, *, has_credentials: bool) -> _Choice:
        """What follows from the card, if it allows the call."""
        choice = self._choice
        if choice is None or choice.card is not card:
            choice = self._choice = self._choose(card)
        capability = call.operation.capability
        if capability is not None and not getattr(card.capabilities, capability):
            raise _undeclared(call.operation.name, capability, card)
        if choice.refusal is not None and (call.headers or call.query or has_credentials):
            raise copy.copy(choice.refusal)
        return choice

    def _choose(self, card: AgentCard) -> _Choice:
        trusted = self._trusted
        if trusted is None:
            # The caller's own card says whom to trust; one that replaces it later does not.
            trusted = self._trusted = _trusted(self._route, card)
        interface = choose_interface(card, self._route)
        _check_address(interface, card, self._route, source=self._source_of(interface, trusted))
        refusal = _check_origin(interface, trusted)
        reach = None if refusal is None else self._reach(trusted)
        endpoint = self._endpoints.of(interface)
        if self._resolver.secrets:  # which the card may repeat
            endpoint.agent = hidden_in_path(endpoint.agent, self._resolver.secrets)
        return _Choice(card, endpoint, refusal, reach)

    def _source_of(self, interface: AgentInterface, trusted: frozenset[str]) -> str | None:
        """Where an interface's address is from; None if the caller stands for it in some way."""
        if origin(interface.url) in trusted:
            return None
        is_allowed = self._route.networks and self._route.allows_host(interface.url)
        return None if is_allowed else self._route.source

    def _reach(self, trusted: frozenset[str]) -> Reach:
        """How far an address of the card may lead that the caller did not name."""
        inward = furthest_in([self._resolver.scope, *map(scope_of_host, trusted)])
        return Reach(inward=inward, allowed=self._route.networks)


class _Choice(NamedTuple):
    """What follows from a card, so that it is worked out once for each card."""

    card: AgentCard
    endpoint: Endpoint
    refusal: CredentialOriginError | None
    reach: Reach | None


def choose_interface(card: AgentCard, route: Route) -> AgentInterface:
    """Chooses among a card's interfaces (A2A 8.3.2): the caller's preference, then the card's.

    Raises:
        VersionNotSupportedError: None speaks the protocol version of this client.
        AgentCardResolutionError: None has a binding that this client speaks.
    """
    spelled = {label.upper(): label for label in route.supported}  # cards use either case
    known = [
        msgspec.structs.replace(interface, protocol_binding=binding)
        for interface in card.supported_interfaces
        if (binding := spelled.get(interface.protocol_binding.upper())) is not None
    ]
    if not known:
        offered = ", ".join(i.protocol_binding for i in card.supported_interfaces)
        spoken = ", ".join(route.supported)
        raise AgentCardResolutionError(
            f"agent {card.name!r} offers only {offered}; this client speaks {spoken}",
            executed=False,
        )
    # Real cards leave the version out; a server that speaks another one will say so.
    usable = [
        i
        for i in known
        if i.protocol_binding in route.produced
        or _major(i.protocol_version or PROTOCOL_VERSION) == "1"
    ]
    if not usable:
        offered = ", ".join(str(i.protocol_version) for i in known)
        raise VersionNotSupportedError(
            f"agent {card.name!r} speaks protocol {offered}; this client speaks "
            f"{PROTOCOL_VERSION}",
            executed=False,
        )
    by_binding = {i.protocol_binding: i for i in reversed(usable)}
    preferred = next((b for b in route.bindings if b in by_binding), usable[0].protocol_binding)
    interface = by_binding[preferred]
    url = interface.url if route.url is None else route.url
    return msgspec.structs.replace(
        interface,
        url=url.partition("#")[0],  # a fragment is not sent (RFC 9110, 7.1)
        tenant=(interface.tenant or None) if route.tenant is None else route.tenant,
    )


def _trusted(route: Route, first: AgentCard) -> frozenset[str]:
    """The origins that may get the caller's headers and credentials."""
    if not route.trust_first:
        return route.trusted
    return route.trusted | origin_and_aliases(first.supported_interfaces[0].url)


def _check_address(
    interface: AgentInterface, card: AgentCard, route: Route, *, source: str | None
) -> None:
    """Checks an address that the caller did not name."""
    why = None if route.url is not None else doubt(interface.url, source)
    if why is None:
        return
    hint = "pass the right one as url="
    if route.source is not None:
        guess = f"{origin(route.source)}{urlsplit(interface.url).path}"
        hint = f'if the agent is where its card is, pass url="{guess}"'
    urls = [offered.url.partition("#")[0] for offered in card.supported_interfaces]
    field = f"supportedInterfaces[{urls.index(interface.url)}].url"
    raise InvalidAgentCardError(
        f"the card names {presentable(interface.url)} as the agent's address ({field}), but "
        f"{why}; nothing was sent there. {hint[0].upper()}{hint[1:]}",
        field=field,
        executed=False,
    )


_UNDECLARED = {
    "streaming": (UnsupportedOperationError, "streaming"),
    "push_notifications": (PushNotificationNotSupportedError, "push notifications"),
    "extended_agent_card": (UnsupportedOperationError, "an extended card"),
}


def _undeclared(operation: str, capability: Capability, card: AgentCard) -> A2AError:
    kind, what = _UNDECLARED[capability]
    return kind(
        f"{operation} was not called: agent {card.name!r} does not declare {what} in its "
        "card (capabilities)",
        executed=False,
    )


def _major(version: str) -> str:
    return version.strip().removeprefix("v").partition(".")[0]


def _check_origin(
    interface: AgentInterface, trusted: frozenset[str]
) -> CredentialOriginError | None:
    """The error of a call with credentials, if they were not given for this interface."""
    its_origin = origin(interface.url)
    if its_origin in trusted:
        return None
    return CredentialOriginError(
        f"the agent's interface is at {its_origin}, but the credentials and headers were "
        f"given for {', '.join(sorted(trusted))}; nothing was sent. If you trust it, pass "
        f'credential_origins=("{its_origin}",)',
        origin=its_origin,
        executed=False,
    )
