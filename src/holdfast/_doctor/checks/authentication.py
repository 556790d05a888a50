"""Checks of authentication: declared, requested, accepted."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast._doctor.findings import Finding
from holdfast._wire.security import alternatives, describe_alternative

if TYPE_CHECKING:
    from collections.abc import Iterator

    from holdfast._doctor.facts import InterfaceFacts, Observations, ReplyFacts
    from holdfast.types import AgentCard

__all__ = ["check_authentication"]

_NOTHING = "the card requires no credentials"
_BY = "(--bearer, --api-key; auth=)"
"""The options for credentials: of the command; of the function."""


def check_authentication(observed: Observations, _now: float) -> Iterator[Finding]:
    """Check the declared schemes, replies without credentials, and replies with them."""
    if observed.card is None:
        return
    card = observed.card.card
    yield _declared(card, observed)
    for interface in observed.interfaces:
        if interface.task is not None and interface.task.status is not None:
            yield from _requested(interface, card, observed)
            if observed.has_credentials:
                yield from _accepted(interface, card)


def _without(interface: InterfaceFacts, observed: Observations) -> ReplyFacts | None:
    """Return the reply to callers without credentials."""
    return interface.unauthorized if observed.has_credentials else interface.task


def _declared(card: AgentCard, observed: Observations) -> Finding:
    required = alternatives(card)
    words = ", or ".join(describe_alternative(option, card) or "nothing" for option in required)
    undeclared = sorted(
        {name for option in required for name in option.schemes if name in option.unusable}
    )
    if undeclared:
        return Finding(
            "authentication.declared",
            "warning",
            f"the card asks for {words}",
            "clients cannot send credentials that are not declared, or of an unknown kind",
            f"declare {', '.join(undeclared)} in securitySchemes (A2A 4.5)",
        )
    if words:
        return Finding("authentication.declared", "ok", f"the card asks for {words}")
    names = ", ".join(card.security_schemes)
    answers = [_without(interface, observed) for interface in observed.interfaces]
    if any(reply is not None and reply.is_auth_refusal for reply in answers):
        saw = f"the card declares {names}, and requires none" if names else _NOTHING
        return Finding(
            "authentication.declared",
            "warning",
            f"{saw}, but the agent does",
            "clients send no credentials if the card requires none",
            "name the required schemes in securityRequirements (A2A 4.5)"
            + ("" if names else ", and declare it in securitySchemes"),
        )
    if names:
        return Finding(
            "authentication.declared",
            "info",
            f"the card declares {names}, and requires none of them",
            "callers send credentials only if they are configured to",
            "if credentials are required, name them in securityRequirements (A2A 4.5)",
        )
    return Finding("authentication.declared", "ok", _NOTHING)


def _requested(
    interface: InterfaceFacts, card: AgentCard, observed: Observations
) -> Iterator[Finding]:
    about, without = interface.about, _without(interface, observed)
    required = any(option.schemes for option in alternatives(card))
    if without is None or without.status is None:
        yield Finding(
            "authentication.asked", "not measured", observed.unmeasured_reason, about=about
        )
        return
    saw = f"without credentials: {without.summary}"
    if without.status == 401 and without.challenge:
        yield Finding("authentication.asked", "ok", f"{saw}, with WWW-Authenticate", about=about)
        yield from _missing(about, card, observed)
    elif without.status == 401:
        yield Finding(
            "authentication.asked",
            "warning",
            f"{saw}, without WWW-Authenticate",
            "callers cannot learn what to send; HTTP requires that header (RFC 9110, 11.6.1)",
            "send WWW-Authenticate with each 401",
            about,
        )
        yield from _missing(about, card, observed)
    elif without.status == 403:
        yield Finding(
            "authentication.asked",
            "warning",
            saw,
            "callers read it as missing permission, and do not obtain credentials",
            "answer requests without credentials with 401 and WWW-Authenticate (A2A 7.4)",
            about,
        )
        yield from _missing(about, card, observed)
    elif required and (without.is_result or without.error == "TaskNotFoundError"):
        yield Finding(
            "authentication.asked",
            "problem",
            saw,
            "the card requires credentials, but the agent answers without them",
            "check that the agent verifies credentials, or require none in the card",
            about,
        )
    elif required:
        yield Finding(
            "authentication.asked",
            "warning",
            saw,
            "clients cannot distinguish missing credentials from other failures",
            "answer requests without credentials with 401 and WWW-Authenticate (A2A 7.4)",
            about,
        )
    elif not without.is_protocol_reply:
        text = f"{saw}, which is not an agent's answer"
        yield Finding("authentication.asked", "not measured", text, about=about)
    else:
        text = "clients without credentials are answered, as the card declares"
        yield Finding("authentication.asked", "ok", text, about=about)


def _missing(about: str, card: AgentCard, observed: Observations) -> Iterator[Finding]:
    if not observed.has_credentials:
        yield Finding(
            "authentication.accepted",
            "problem",
            "no credentials were passed",
            "no call works without them, and few other checks are possible",
            _pass(card),
            about,
        )


def _pass(card: AgentCard) -> str:
    """Return the advice if there are no credentials."""
    if alternatives(card):
        return f"pass the credentials that the card requires {_BY}"
    if card.security_schemes:
        return f"pass the credentials that the card declares {_BY}"
    return f"pass a token or an API key {_BY}; the card does not declare which"


def _check(card: AgentCard) -> str:
    """Return the advice if the credentials are refused."""
    if alternatives(card):
        return "check that they are valid, for this agent, and of the kind that its card requires"
    if card.security_schemes:
        return "check that they are valid, for this agent, and of a kind that its card declares"
    return "check that they are valid and for this agent; its card does not declare their kind"


def _accepted(interface: InterfaceFacts, card: AgentCard) -> Iterator[Finding]:
    reply, about = interface.task, interface.about
    if reply is None:
        return
    if not interface.is_trusted:
        yield Finding(
            "authentication.accepted",
            "not measured",
            "credentials were not sent, because the interface is at another origin than the one "
            "they were passed for",
            about=about,
        )
    elif interface.credentials_error:
        yield Finding(
            "authentication.accepted",
            "problem",
            interface.credentials_error,
            "no call is sent without them",
            "pass the credentials that the card requires",
            about,
        )
    elif reply.is_auth_refusal:
        yield Finding(
            "authentication.accepted",
            "problem",
            f"with the given credentials: {reply.summary}",
            "no call works with them",
            _check(card),
            about,
        )
    elif interface.unauthorized is not None and interface.unauthorized.is_auth_refusal:
        yield Finding("authentication.accepted", "ok", "the credentials are accepted", about=about)
    elif not reply.is_protocol_reply:
        text = f"with credentials: {reply.summary}, which is not an agent's answer"
        yield Finding("authentication.accepted", "not measured", text, about=about)
    else:
        yield Finding(
            "authentication.accepted",
            "info",
            "the agent answers the same with and without credentials",
            "this does not show whether the agent checks them",
            about=about,
        )
