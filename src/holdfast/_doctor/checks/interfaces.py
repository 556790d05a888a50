"""Checks of the card's interfaces: whether an agent answers, and in which version."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast._doctor.findings import Finding
from holdfast.protocol import HTTP_BINDINGS, PROTOCOL_VERSIONS, spoken_version

if TYPE_CHECKING:
    from collections.abc import Iterator

    from holdfast._doctor.facts import InterfaceFacts, Observations

__all__ = ["check_interfaces"]

_SERVER_ERROR = 500


def check_interfaces(observed: Observations, _now: float) -> Iterator[Finding]:
    """Check each interface."""
    if observed.card is None:
        return
    for interface in observed.interfaces:
        yield _reached(interface, observed)
        if interface.versions:
            yield _version(interface)
    count = len(observed.card.card.supported_interfaces)
    if not observed.interfaces:
        yield Finding("bindings.answers", "not measured", observed.unmeasured_reason)
        return
    if len(observed.interfaces) < count:
        yield Finding(
            "bindings.many",
            "info",
            f"the card names {count} interfaces; the first {len(observed.interfaces)} are shown",
            "clients use the first one that they support",
            "declare only those that clients should use",
        )
    is_any_supported = any(interface.is_supported for interface in observed.interfaces)
    if not is_any_supported and any(map(_is_grpc, observed.interfaces)):
        yield Finding("bindings.known", "not measured", "only HTTP is examined, and not gRPC")
    elif not is_any_supported:
        yield Finding(
            "bindings.known",
            "problem",
            "no interface has a binding and a version that this tool supports",
            f"callers that speak {' and '.join(HTTP_BINDINGS)}, in "
            f"{' and '.join(PROTOCOL_VERSIONS)}, cannot call the agent",
            "offer one of them",
        )


def _is_grpc(interface: InterfaceFacts) -> bool:
    return interface.interface.protocol_binding.upper() == "GRPC"


def _reached(interface: InterfaceFacts, observed: Observations) -> Finding:
    about = interface.about
    if not interface.is_supported:
        declared = interface.interface.protocol_version or "no version"
        grpc = _is_grpc(interface)
        return Finding(
            "bindings.answers",
            "not measured",
            f"this binding, in {declared}, is not {'examined' if grpc else 'spoken'} here",
            about=about,
        )
    if not interface.is_examined or interface.task is None:
        reason = observed.stopped or "enough other interfaces were examined"
        if interface.address_fault is not None:
            reason = "its address cannot be correct"
        return Finding("bindings.answers", "not measured", reason, about=about)
    reply = interface.task
    if reply.status is None:
        return Finding(
            "bindings.answers",
            "problem",
            reply.summary,
            "callers that choose this interface cannot connect",
            "check the address in the card, or take the interface out of it",
            about,
        )
    if reply.is_auth_refusal:
        saw = f"the interface answers with a refusal: {reply.summary}"
        return Finding("bindings.answers", "ok", saw, about=about)
    if reply.is_protocol_reply:
        return Finding("bindings.answers", "ok", "an agent answers there", about=about)
    if reply.status in {429, 503}:
        return Finding(
            "bindings.answers",
            "warning",
            f"the server there is busy: {reply.summary}",
            "this interface cannot be examined now",
            "wait, and examine it again",
            about,
        )
    if reply.status >= _SERVER_ERROR:
        return Finding(
            "bindings.answers",
            "problem",
            f"a question is answered by {reply.summary}",
            "the agent fails, or a gateway does not reach it, or another program listens there",
            "check the logs of the agent and of the gateway, and the path in the card",
            about,
        )
    return Finding(
        "bindings.answers",
        "problem",
        f"a question is answered by {reply.summary}",
        "another program answers there, or the agent answers in another binding",
        "check the path in the card, and the proxy before the agent",
        about,
    )


def _version(interface: InterfaceFacts) -> Finding:
    about, declared = interface.about, interface.interface.protocol_version
    spoken = [v for v in PROTOCOL_VERSIONS if interface.versions.get(v)]
    unclear = [v for v in PROTOCOL_VERSIONS if interface.versions.get(v, False) is None]
    declaration = f"declared {declared}" if declared else "declares none"
    saw = f"{declaration}; answers in {' and '.join(spoken) or 'none that is known here'}"
    declared_version = spoken_version(declared) if declared else None
    if not spoken and unclear:
        return Finding(
            "versions.spoken",
            "not measured",
            f"{declaration}; the answers do not tell which it speaks",
            about=about,
        )
    if not spoken:
        return Finding(
            "versions.spoken",
            "problem",
            saw,
            "the agent understands neither protocol 1.0 nor 0.3",
            "check the address in the card, and the version of the agent's library",
            about,
        )
    if declared_version is not None and declared_version not in {*spoken, *unclear}:
        return Finding(
            "versions.spoken",
            "problem",
            saw,
            "clients use the declared version, and get errors",
            f"declare {spoken[0]} in the card, or speak {declared}",
            about,
        )
    if not declared:
        return Finding(
            "versions.spoken",
            "warning",
            saw,
            "each client has to probe or guess the version",
            f'add "protocolVersion": "{spoken[0]}" to the interface',
            about,
        )
    return Finding("versions.spoken", "ok", saw, about=about)
