"""The route to an agent, from the caller's options: checked before anything is sent."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from holdfast._arguments import check_items, check_kind, check_not_empty, check_producer, check_url
from holdfast._client.content import from_sdk
from holdfast._model.card_checks import check_card
from holdfast._model.card_reading import read_card
from holdfast._model.extras import missing_extra
from holdfast._model.grpc_addresses import grpc_address, is_of_grpc_alone
from holdfast._model.sdk_values import kind_of
from holdfast._model.sendable import check_text
from holdfast._pipeline.interfaces import Route, choose_interfaces
from holdfast._wire.bindings import (
    BINDINGS,
    GRPC_BINDING,
    HTTP_BINDINGS,
    OLDER_VERSION,
    PROTOCOL_VERSION,
    PROTOCOL_VERSIONS,
)
from holdfast._wire.origins import origin_and_aliases
from holdfast.errors import A2AError
from holdfast.types import AgentCard

if TYPE_CHECKING:
    from holdfast._pipeline.grpc_extra import GrpcUse
    from holdfast._pipeline.produced import TransportProducer
    from holdfast._wire.network_scope import Network, NetworkReach

__all__ = ["AgentTarget", "as_targets", "check_transport_producers", "load_given_card", "route_to"]


_LEFT_OUT: Mapping[str, str] = {
    "left out": "its engine carries HTTP only: name GRPC in bindings= to call past it",
    "missing": str(missing_extra("GRPC", "grpc")),
}

AgentTarget: TypeAlias = str | Path | AgentCard | Mapping[str, Any]
"""An agent: its origin or address, its card's URL, the path of its card's file, its card, or the
card's JSON object.
"""


def as_targets(agent: AgentTarget | Sequence[AgentTarget], url: str | None) -> list[AgentTarget]:
    """Return the targets of an agent, several for replicas.

    Raises:
        ValueError: No target is named; or several, and one address for all of them.
    """
    if not isinstance(agent, list | tuple):
        return [_own(agent)]
    agents = [_own(target) for target in cast("Sequence[AgentTarget]", agent)]
    if not agents:
        message = "the list of agents must not be empty; pass a URL, a Path or a card"
        raise ValueError(message)
    if len(agents) > 1 and url is not None:
        message = "url= is the address of one agent, but several are given"
        raise ValueError(message)
    return agents


def _own(agent: object) -> AgentTarget:
    """Return the target; a card of the official SDK is converted."""
    return cast("AgentTarget", from_sdk(agent, AgentCard))


def route_to(
    agent: AgentTarget,
    *,
    url: str | None,
    tenant: str | None,
    bindings: Sequence[str],
    supported: Sequence[str],
    version: str | None,
    allow_legacy: bool,
    produced: Mapping[str, TransportProducer],
    credential_origins: Iterable[str],
    networks: tuple[Network, ...],
    within: NetworkReach | None = None,
    grpc: GrpcUse = "left out",
) -> Route:
    """Return the route to an agent, from the caller's options; see `holdfast.connect`.

    Raises:
        ValueError: An option is not valid, or contradicts another one.
        ImportError: gRPC is requested, and its extra is not installed.
        TypeError: An argument of another type.
    """
    custom = tuple(label for label in produced if label not in BINDINGS)
    supported = _known_bindings("supported_protocol_bindings", supported, (*BINDINGS, *custom))
    bindings = _known_bindings("bindings", bindings, supported or (*BINDINGS, *custom))
    if isinstance(url, str) and is_of_grpc_alone(url):
        supported = _grpc_only(supported)
    left_out = () if GRPC_BINDING in produced else _left_out(grpc, {*supported, *bindings})
    supported = supported or (*(HTTP_BINDINGS if left_out else BINDINGS), *custom)
    if tenant is not None:
        check_kind("tenant", tenant, str)
        check_text("tenant", tenant)
    check_kind("allow_legacy", allow_legacy, bool)
    if version is not None:
        _check_version(version)
    if allow_legacy and version == PROTOCOL_VERSION:
        text = (
            f'protocol_version="{version}" excludes {OLDER_VERSION}, but allow_legacy=True allows '
            "it; pass only one of them"
        )
        raise ValueError(text)
    if tenant and not produced and (allow_legacy or version == OLDER_VERSION):
        option = "allow_legacy=True" if version is None else f'protocol_version="{version}"'
        text = f"protocol {OLDER_VERSION} has no tenants; omit tenant= or {option}"
        raise ValueError(text)
    addresses = [
        _check_address(address, "address in credential_origins", any_scheme=bool(produced))
        for address in check_items("credential_origins", credential_origins)
    ]
    if url is not None:
        if {GRPC_BINDING} in ({*bindings}, {*supported}):
            _check_grpc_scheme(url)
        addresses.append(_check_address(url, "url", any_scheme=bool(produced)))
    if isinstance(agent, str):
        _check_has_card(agent)
        addresses.append(check_url(agent, "agent URL", or_path=True))
    elif not isinstance(cast("object", agent), Path | AgentCard | Mapping):
        text = f"agent must be a URL, a Path, an AgentCard or a dict, not {kind_of(agent)}"
        raise TypeError(text)
    return Route(
        bindings=bindings,
        supported=supported,
        produced=frozenset(produced),
        url=url,
        tenant=tenant,
        version=version,
        allow_legacy=allow_legacy,
        trusted=frozenset[str]().union(*(origin_and_aliases(address) for address in addresses)),
        trust_first=not isinstance(agent, str),
        source=agent if isinstance(agent, str) else None,
        left_out=left_out,
        networks=networks,
        within=within,
    )


def load_given_card(agent: AgentTarget, route: Route) -> str | Path | AgentCard:
    """Read a card that the caller passed, and check that it has an interface to call.

    Raises:
        InvalidAgentCardError: It is not usable.
        ValueError: None of its interfaces matches the caller's options.
    """
    if isinstance(agent, str | Path):
        return agent
    if isinstance(agent, AgentCard):
        card = agent
        check_card(card)
    else:
        card = read_card(dict(agent))
    try:
        choose_interfaces(card, route)
    except A2AError as error:
        raise ValueError(str(error)) from None
    return card


def _known_bindings(name: str, values: Sequence[str], allowed: tuple[str, ...]) -> tuple[str, ...]:
    bindings = check_items(name, values)
    for binding in bindings:
        if binding not in allowed:
            text = f"{binding!r} in {name} is not a binding; valid bindings: {', '.join(allowed)}"
            raise ValueError(text)
    return bindings


def _left_out(grpc: GrpcUse, named: set[str]) -> tuple[tuple[str, str], ...]:
    """Return the reason for not choosing gRPC, by binding; empty if gRPC may be chosen.

    Raises:
        ImportError: gRPC is requested, and its extra is not installed.
    """
    if grpc == "missing" and GRPC_BINDING in named:
        raise missing_extra("GRPC", "grpc")
    return () if grpc == "spoken" or GRPC_BINDING in named else ((GRPC_BINDING, _LEFT_OUT[grpc]),)


def _grpc_only(supported: tuple[str, ...]) -> tuple[str, ...]:
    """Return the bindings that may be used at an address of gRPC.

    Raises:
        ValueError: No binding is left.
    """
    if supported and GRPC_BINDING not in supported:
        text = f"url is a gRPC address, but supported_protocol_bindings lacks {GRPC_BINDING}"
        raise ValueError(text)
    return (GRPC_BINDING,)


def _check_has_card(agent: str) -> None:
    if is_of_grpc_alone(agent):
        text = (
            "agent is the address of a gRPC interface, not of an agent card: pass the card's "
            'address, with this one as url=, or pass minimal_agent_card(address, ["GRPC"])'
        )
        raise ValueError(text)


def _check_grpc_scheme(url: str) -> None:
    """Check that the address of a gRPC interface has a scheme, which says whether to use TLS."""
    address = grpc_address(url) if "://" not in str(url) else None
    if address is not None:
        text = (
            f"the url {url!r} has no scheme: pass grpcs://{address.authority} (TLS) or "
            f"grpc://{address.authority} (no TLS)"
        )
        raise ValueError(text)


def _check_address(url: str, name: str, *, any_scheme: bool) -> str:
    """Check an address of an interface, which may be a gRPC address."""
    is_grpc = isinstance(cast("object", url), str) and is_of_grpc_alone(url)
    check_url(url, name, any_scheme=any_scheme or is_grpc)
    if is_grpc and grpc_address(url) is None:
        text = f"the {name} is not a gRPC address, such as grpc://host:50051"
        raise ValueError(text)
    return url


def _check_version(version: str) -> None:
    check_kind("protocol_version", version, str)
    if version not in PROTOCOL_VERSIONS:
        text = f"protocol_version must be one of {', '.join(PROTOCOL_VERSIONS)}, not {version!r}"
        raise ValueError(text)


def check_transport_producers(
    producers: Mapping[str, TransportProducer] | None,
) -> dict[str, TransportProducer]:
    """Return the producers of transports by the names of their bindings.

    Raises:
        ValueError: A name is empty.
        TypeError: It is not a mapping, or one of its values is not callable.
    """
    if producers is None:
        return {}
    check_kind("transport_producers", producers, Mapping)
    for label, producer in producers.items():
        check_not_empty("the name of a binding in transport_producers", label)
        check_producer("transport_producers", producer)
    # Cards write the names of bindings in either case; the built-in names match in both, too.
    upper = {label: label.upper() for label in producers}
    return {
        upper[label] if upper[label] in BINDINGS else label: producer
        for label, producer in producers.items()
    }
