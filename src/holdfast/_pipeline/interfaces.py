"""The interfaces of a card, and which of them calls go to.

Rules: the newest version of the protocol comes first, then the caller's preference, then the
card's order (A2A 8.3.2). An older version is used where the card declares no newer one, or leaves
the version open.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import urlsplit

import msgspec

from holdfast._model.hosts import ip_literal
from holdfast._wire.bindings import HTTP_BINDINGS, OLDER_VERSION, PROTOCOL_VERSION, spoken_version
from holdfast._wire.network_scope import Network, NetworkReach, scope_of_host
from holdfast._wire.origins import origin
from holdfast.errors import AgentCardResolutionError, VersionNotSupportedError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from holdfast.types import AgentCard, AgentInterface

__all__ = ["Interfaces", "Route", "choose_interfaces", "declared_versions", "leaves_room_for"]

CHECK_ADDRESS = " interface at this address: check "
"""The part of an HTTP 404's message before the advice for programs."""


class Route(msgspec.Struct, frozen=True, kw_only=True):
    """The caller's options for the choice of an endpoint.

    Attributes:
        bindings: The bindings that the caller prefers, best first.
        supported: The bindings that may be used at all.
        produced: The custom bindings, whose transports handle the version themselves.
        url: Address to use instead of the interface's own.
        tenant: Tenant to use instead of the interface's own.
        version: The version of the protocol to use, whatever the card says; None leaves it to
            the card.
        allow_legacy: Whether to find out if an agent speaks 0.3 that declares 1.0 only.
        trusted: Origins that may get the caller's headers and credentials.
        trust_first: Whether the origin of the first card's first interface is one of them: for a
            card that the caller passed.
        source: Where the card is fetched; None if the caller passed it.
        left_out: Why a binding is not among the supported ones that could be, by its name.
        networks: Networks that addresses from the card may reach, private ones included.
        within: The most private network that any address may be in; None for any.
    """

    bindings: tuple[str, ...] = ()
    supported: tuple[str, ...] = HTTP_BINDINGS
    produced: frozenset[str] = frozenset()
    url: str | None = None
    tenant: str | None = None
    version: str | None = None
    allow_legacy: bool = False
    trusted: frozenset[str] = frozenset()
    trust_first: bool = False
    source: str | None = None
    left_out: tuple[tuple[str, str], ...] = ()
    networks: tuple[Network, ...] = ()
    within: NetworkReach | None = None

    def allows_loopback(self, url: str) -> bool:
        """Return whether an address is of this machine, and in a network that may be reached."""
        if scope_of_host(url) != "loopback":
            return False
        number = ip_literal(urlsplit(url).hostname or "")
        return not NetworkReach(allowed=self.networks).refuses(str(number))


class Interfaces(NamedTuple):
    """The interface of calls, and its fallbacks.

    Attributes:
        first: The interface of calls.
        older: The interface for 0.3, if the first one turns out not to speak 1.0; None for none.
        in_doubt: Whether the card leaves open which of the two is right.
        others: Interfaces in the same version, for use while the first one is unreachable.
    """

    first: AgentInterface
    older: AgentInterface | None = None
    in_doubt: bool = False
    others: tuple[AgentInterface, ...] = ()


def declared_versions(card: AgentCard) -> tuple[str, ...]:
    """Return the versions that a card declares, each once, as the card writes them."""
    declared = (interface.protocol_version for interface in card.supported_interfaces)
    return tuple(dict.fromkeys(version for version in declared if version))


def leaves_room_for(version: str, card: AgentCard) -> bool:
    """Return whether an interface of a card is declared for a version, or for none at all."""
    interfaces = card.supported_interfaces
    if any(not interface.protocol_version for interface in interfaces):
        return True
    return any(spoken_version(declared) == version for declared in declared_versions(card))


def choose_interfaces(card: AgentCard, route: Route) -> Interfaces:
    """Choose among a card's interfaces (A2A 8.3.2): by version, preference, and the card's order.

    Raises:
        VersionNotSupportedError: No interface has a protocol version of this client.
        AgentCardResolutionError: No interface has a binding that this client supports.
    """
    spelled = {label.upper(): label for label in route.supported}  # cards use either case
    usable = [
        msgspec.structs.replace(interface, protocol_binding=binding)
        for interface in card.supported_interfaces
        if (binding := spelled.get(interface.protocol_binding.upper())) is not None
    ]
    if not usable:
        offered = ", ".join(i.protocol_binding for i in card.supported_interfaces)
        spoken = ", ".join(route.supported)
        names = {i.protocol_binding.upper() for i in card.supported_interfaces}
        hints = "".join(f"; {hint}" for name, hint in route.left_out if name in names)
        if route.url is not None and len(route.supported) == 1:
            hints += (
                f'; to call url= without that card, pass minimal_agent_card(url, ["{spoken}"])'
            )
        raise AgentCardResolutionError(
            f"agent {card.name!r} offers only {offered}; this client speaks {spoken}{hints}",
            executed=False,
        )
    if route.version is not None:
        first, *others = _of_version(route.version, usable, route)
        return Interfaces(first, others=_others(first, others, route))
    newer = [interface for interface in usable if _spoken(interface, route) == PROTOCOL_VERSION]
    older = [interface for interface in usable if _spoken(interface, route) == OLDER_VERSION]
    if not newer and not older:
        offered = ", ".join(str(interface.protocol_version) for interface in usable)
        raise VersionNotSupportedError(
            f"agent {card.name!r} speaks protocol {offered}; this client speaks "
            f"{PROTOCOL_VERSION} and {OLDER_VERSION}",
            executed=False,
        )
    if not newer:
        first, *others = (_as_asked(i, route) for i in _by_preference(older, route))
        return Interfaces(first, others=_others(first, others, route))
    first, *rest = _by_preference(newer, route)
    others = [_as_asked(i, route) for i in rest]
    if first.protocol_binding in route.produced:
        return Interfaces(_as_asked(first, route))
    # Some cards omit the version; the agent's replies show which version it speaks.
    in_doubt = not first.protocol_version or (route.allow_legacy and not older)
    if route.tenant or not (older or in_doubt):
        first = _as_asked(first, route)
        return Interfaces(first, others=_others(first, others, route))
    second = msgspec.structs.replace(first, protocol_version=OLDER_VERSION)
    if older:
        second = _by_preference(older, route)[0]
    first = _as_asked(first, route)
    return Interfaces(
        first, _as_asked(second, route), in_doubt, others=_others(first, others, route)
    )


def _spoken(interface: AgentInterface, route: Route) -> str | None:
    """Return the version that would be used at an interface; None if there is none."""
    if interface.protocol_binding in route.produced:
        return PROTOCOL_VERSION
    return spoken_version(interface.protocol_version)


def _of_version(version: str, usable: list[AgentInterface], route: Route) -> list[AgentInterface]:
    """Return the interfaces for a version that the caller names, whatever the card declares."""
    declared = [i for i in usable if i.protocol_version and _spoken(i, route) == version]
    if declared:
        return [_as_asked(i, route) for i in _by_preference(declared, route)]
    interface = _by_preference(usable, route)[0]
    if interface.protocol_binding not in route.produced:
        interface = msgspec.structs.replace(interface, protocol_version=version)
    return [_as_asked(interface, route)]


def _by_preference(interfaces: list[AgentInterface], route: Route) -> list[AgentInterface]:
    places = {binding: place for place, binding in enumerate(route.bindings)}
    return sorted(interfaces, key=lambda i: places.get(i.protocol_binding, len(places)))


def _others(
    first: AgentInterface, others: Iterable[AgentInterface], route: Route
) -> tuple[AgentInterface, ...]:
    """Return the interfaces of a card that may replace the first one.

    They are declared for the same version, on another host: another binding of the same server
    is down with it. An interface whose address the caller has overridden has none.
    """
    if route.url is not None or not first.protocol_version:
        return ()
    return tuple(
        other
        for other in others
        if other.protocol_version
        and other.protocol_binding not in route.produced
        and origin(other.url) != origin(first.url)
    )


def _as_asked(interface: AgentInterface, route: Route) -> AgentInterface:
    """Return an interface with the caller's address and tenant in place of its own.

    Raises:
        VersionNotSupportedError: It speaks 0.3, and the caller names a tenant.
    """
    url = interface.url if route.url is None else route.url
    tenant = (interface.tenant or None) if route.tenant is None else route.tenant or None
    if _spoken(interface, route) == OLDER_VERSION:
        if route.tenant:
            raise VersionNotSupportedError(
                f"the agent speaks protocol {OLDER_VERSION}, which has no tenants; omit tenant=",
                executed=False,
            )
        tenant = None
    return msgspec.structs.replace(
        interface,
        url=url.partition("#")[0],  # a fragment is not sent (RFC 9110, 7.1)
        tenant=tenant,
    )
