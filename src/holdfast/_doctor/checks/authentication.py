"""What the agent asks for, and whether it takes what it was given."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast._doctor.findings import Finding
from holdfast._wire.security import alternatives, describe_alternative

if TYPE_CHECKING:
    from collections.abc import Iterator

    from holdfast._doctor.facts import Answered, InterfaceFacts, Observed
    from holdfast.types import AgentCard

__all__ = ["judge_authentication"]

_NOTHING = "the card asks for no credentials"
_BY = "(--bearer, --api-key; auth=)"
"""How credentials are passed: to the command; to the function."""


def judge_authentication(observed: Observed, _now: float) -> Iterator[Finding]:
    """Judges what is declared, what is asked for without credentials, and what is accepted."""
    if observed.card is None:
        return
    card = observed.card.card
    yield _declared(card, observed)
    for interface in observed.interfaces:
        if interface.task is not None and interface.task.status is not None:
            yield from _asked(interface, card, observed)
            if observed.has_credentials:
                yield from _accepted(interface, card)


def _without(interface: InterfaceFacts, observed: Observed) -> Answered | None:
    """What callers without credentials are answered by."""
    return interface.unauthorized if observed.has_credentials else interface.task


def _declared(card: AgentCard, observed: Observed) -> Finding:
    asked = alternatives(card)
    words = ", or ".join(describe_alternative(one, card) or "nothing" for one in asked)
    undeclared = sorted({name for one in asked for name in one.schemes if name in one.unusable})
    if undeclared:
        return Finding(
            "authentication.declared",
            "warning",
            f"the card asks for {words}",
            "callers cannot know how to carry what is not declared, or of no known kind",
            f"declare {', '.join(undeclared)} in securitySchemes (A2A 4.5)",
        )
    if words:
        return Finding("authentication.declared", "ok", f"the card asks for {words}")
    names = ", ".join(card.security_schemes)
    answers = [_without(interface, observed) for interface in observed.interfaces]
    if any(answered is not None and answered.is_refusal for answered in answers):
        saw = f"the card declares {names}, and requires none" if names else _NOTHING
        return Finding(
            "authentication.declared",
            "warning",
            f"{saw}, but the agent does",
            "callers send no credentials where the card asks for none",
            "name what is required in securityRequirements (A2A 4.5)"
            + ("" if names else ", and declare it in securitySchemes"),
        )
    if names:
        return Finding(
            "authentication.declared",
            "info",
            f"the card declares {names}, and requires none of them",
            "callers send credentials only if they are configured to",
            "name what is required in securityRequirements (A2A 4.5), if it is",
        )
    return Finding("authentication.declared", "ok", _NOTHING)


def _asked(interface: InterfaceFacts, card: AgentCard, observed: Observed) -> Iterator[Finding]:
    about, without = interface.about, _without(interface, observed)
    required = any(one.schemes for one in alternatives(card))
    if without is None or without.status is None:
        yield Finding("authentication.asked", "not measured", observed.why_unmeasured, about=about)
        return
    saw = f"without credentials: {without.in_words}"
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
            "the card asks for credentials, and the agent answers without them",
            "check that the agent verifies credentials, or ask for none in the card",
            about,
        )
    elif required:
        yield Finding(
            "authentication.asked",
            "warning",
            saw,
            "callers cannot tell that credentials are missing from any other failure",
            "answer requests without credentials with 401 and WWW-Authenticate (A2A 7.4)",
            about,
        )
    elif not without.is_of_agent:
        text = f"{saw}, which is not an agent's answer"
        yield Finding("authentication.asked", "not measured", text, about=about)
    else:
        text = "callers without credentials are answered, as the card says"
        yield Finding("authentication.asked", "ok", text, about=about)


def _missing(about: str, card: AgentCard, observed: Observed) -> Iterator[Finding]:
    if not observed.has_credentials:
        yield Finding(
            "authentication.accepted",
            "problem",
            "there were no credentials to send",
            "no call works without them, and little else could be examined",
            _pass(card),
            about,
        )


def _pass(card: AgentCard) -> str:
    """What to do where there are no credentials, as far as the card says what they are."""
    if alternatives(card):
        return f"pass what the card asks for {_BY}"
    if card.security_schemes:
        return f"pass what the card declares {_BY}"
    return f"pass a token or an API key {_BY}; the card does not say which"


def _check(card: AgentCard) -> str:
    """What to do where the credentials are not taken."""
    if alternatives(card):
        return "check that they are for this agent, valid, and of the kind that its card asks for"
    if card.security_schemes:
        return "check that they are for this agent, valid, and of a kind that its card declares"
    return "check that they are for this agent, and valid; its card does not say of which kind"


def _accepted(interface: InterfaceFacts, card: AgentCard) -> Iterator[Finding]:
    answered, about = interface.task, interface.about
    if answered is None:
        return
    if not interface.is_trusted:
        yield Finding(
            "authentication.accepted",
            "not measured",
            "credentials were not sent to another origin than the one they were given for",
            about=about,
        )
    elif interface.unmet:
        yield Finding(
            "authentication.accepted",
            "problem",
            interface.unmet,
            "no call leaves without them",
            "give what the card asks for",
            about,
        )
    elif answered.is_refusal:
        yield Finding(
            "authentication.accepted",
            "problem",
            f"with the credentials that were given: {answered.in_words}",
            "no call works with them",
            _check(card),
            about,
        )
    elif interface.unauthorized is not None and interface.unauthorized.is_refusal:
        yield Finding("authentication.accepted", "ok", "the credentials are taken", about=about)
    elif not answered.is_of_agent:
        text = f"with credentials: {answered.in_words}, which is not an agent's answer"
        yield Finding("authentication.accepted", "not measured", text, about=about)
    else:
        yield Finding(
            "authentication.accepted",
            "info",
            "the agent answers the same with and without credentials",
            "this does not show whether the agent checks them",
            about=about,
        )
