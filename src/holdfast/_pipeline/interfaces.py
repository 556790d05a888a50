"""The interfaces of a card, and which of them calls go to.

Rules: the newest version of the protocol comes first, then the caller's preference, then the
card's order (A2A 8.3.2). An older version is spoken where the card declares no newer one, or
leaves room for doubt.
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
    """What the caller says about where calls go.

    Attributes:
        bindings: The bindings that the caller prefers, best first.
        supported: The bindings that may be used at all.
        produced: Those whose transports the caller brings; they judge the version themselves.
        url: Address to use instead of the interface's own.
        tenant: Tenant to use instead of the interface's own.
        version: The version of the protocol to speak, whatever the card says; None leaves it to
            the card.
        allow_legacy: Whether to find out if an agent speaks 0.3 that declares 1.0 only.
        trusted: Origins that may get the caller's headers and credentials.
        trust_first: Whether the origin of the first card's first interface is one of them: for a
            card that the caller brought along.
        source: Where the card is fetched; None if the caller brought it along.
        left_out: Why a binding is not among the supported ones that could be, by its name.
        networks: Networks, wherever they lie, that may be reached at addresses others named.
        within: How far inside any address may lie, whoever named it; None for anywhere.
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
        """Whether an address is of this machine, and in a network that may be reached."""
        if scope_of_host(url) != "loopback":
            return False
        number = ip_literal(urlsplit(url).hostname or "")
        return not NetworkReach(allowed=self.networks).refuses(str(number))


class Interfaces(NamedTuple):
    """Where calls go, and where else if that turns out to speak no 1.0.

    Attributes:
        first: Where they go.
        older: Where they go in 0.3; None for nowhere.
        in_doubt: Whether the card leaves open which of the two it is.
        others: Where else they may go, in the same version, while the first one is away.
    """

    first: AgentInterface
    older: AgentInterface | None = None
    in_doubt: bool = False
    others: tuple[AgentInterface, ...] = ()


def declared_versions(card: AgentCard) -> tuple[str, ...]:
    """The versions that a card declares, each once, as it writes them."""
    declared = (interface.protocol_version for interface in card.supported_interfaces)
    return tuple(dict.fromkeys(version for version in declared if version))


def leaves_room_for(version: str, card: AgentCard) -> bool:
    """Whether an interface of a card is declared for a version, or for none at all."""
    interfaces = card.supported_interfaces
    if any(not interface.protocol_version for interface in interfaces):
        return True
    return any(spoken_version(declared) == version for declared in declared_versions(card))


def choose_interfaces(card: AgentCard, route: Route) -> Interfaces:
    """Chooses among a card's interfaces (A2A 8.3.2): by version, the caller, the card.

    Raises:
        VersionNotSupportedError: None speaks a protocol version of this client.
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
        names = {i.protocol_binding.upper() for i in card.supported_interfaces}
        hints = "".join(f"; {hint}" for name, hint in route.left_out if name in names)
        raise AgentCardResolutionError(
            f"agent {card.name!r} offers only {offered}; this client speaks {spoken}{hints}",
            executed=False,
        )
    if route.version is not None:
        first, *others = _of_version(route.version, known, route)
        return Interfaces(first, others=_others(first, others, route))
    newer = [i for i in known if _spoken(i, route) == PROTOCOL_VERSION]
    older = [i for i in known if _spoken(i, route) == OLDER_VERSION]
    if not newer and not older:
        offered = ", ".join(str(i.protocol_version) for i in known)
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
    # Real cards leave the version out; what an agent answers says which one it speaks.
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
    """The version that would be spoken at an interface; None if there is none."""
    if interface.protocol_binding in route.produced:
        return PROTOCOL_VERSION
    return spoken_version(interface.protocol_version)


def _of_version(version: str, known: list[AgentInterface], route: Route) -> list[AgentInterface]:
    """The interfaces for a version that the caller names, whatever the card says of it."""
    declared = [i for i in known if i.protocol_version and _spoken(i, route) == version]
    if declared:
        return [_as_asked(i, route) for i in _by_preference(declared, route)]
    found = _by_preference(known, route)[0]
    if found.protocol_binding not in route.produced:
        found = msgspec.structs.replace(found, protocol_version=version)
    return [_as_asked(found, route)]


def _by_preference(interfaces: list[AgentInterface], route: Route) -> list[AgentInterface]:
    places = {binding: place for place, binding in enumerate(route.bindings)}
    return sorted(interfaces, key=lambda i: places.get(i.protocol_binding, len(places)))


def _others(
    first: AgentInterface, others: Iterable[AgentInterface], route: Route
) -> tuple[AgentInterface, ...]:
    """Those of a card's interfaces that may stand in for the first one.

    They are declared for the same version, and elsewhere: another binding of the same server is
    away with it. One that the caller put another address on has none.
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
    """An interface with what the caller puts in place of its own.

    Raises:
        VersionNotSupportedError: It speaks 0.3, and the caller names a tenant.
    """
    url = interface.url if route.url is None else route.url
    tenant = (interface.tenant or None) if route.tenant is None else route.tenant or None
    if _spoken(interface, route) == OLDER_VERSION:
        if route.tenant:
            raise VersionNotSupportedError(
                f"the agent speaks protocol {OLDER_VERSION}, which knows no tenants: leave out "
                "tenant=",
                executed=False,
            )
        tenant = None
    return msgspec.structs.replace(
        interface,
        url=url.partition("#")[0],  # a fragment is not sent (RFC 9110, 7.1)
        tenant=tenant,
    )
