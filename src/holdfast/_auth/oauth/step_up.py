"""Step-up: the scopes that agents report as missing, and which of them are requested.

Rules: no scope is requested that the caller does not allow; a scope is added once the
authorization server has granted it, so that a step-up that fails does not affect another one; a
refused scope is not requested again.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from holdfast._model.bounded_dict import BoundedDict

if TYPE_CHECKING:
    from collections.abc import Iterable

    from holdfast.types import AgentCard

__all__ = ["StepUp", "declared_scopes"]

_MAX_SCOPES = 256
"""Granted scopes, and refused scopes, to remember: a card may declare others each time."""


class StepUp:
    """Granted and refused step-ups of all tokens of a provider.

    Args:
        allowed: Scopes that agents may request; True for those that the agent's card declares,
            False for none.
    """

    def __init__(self, allowed: bool | tuple[str, ...]) -> None:  # noqa: FBT001  as callers say it
        self._takes_declared = allowed is True
        self._named: tuple[str, ...] = () if isinstance(allowed, bool) else allowed
        self._granted: BoundedDict[tuple[str, str], None] = BoundedDict(_MAX_SCOPES)
        self._refused: BoundedDict[tuple[str, str], None] = BoundedDict(_MAX_SCOPES)
        self._lock = threading.Lock()

    def granted(self, key: str) -> tuple[str, ...]:
        """Return the scopes that step-ups have added to the tokens of a name."""
        with self._lock:
            return tuple(scope for name, scope in self._granted if name == key)

    def objection(
        self, key: str, requested: tuple[str, ...], card: AgentCard | None
    ) -> str | None:
        """Return why scopes are not requested, with advice; None if they may be.

        Args:
            key: The name of the tokens.
            requested: Scopes that the token lacks.
            card: The agent's card, which may declare them.
        """
        if not (self._takes_declared or self._named):
            return "pass scopes=, or pass step_up= with the scopes that agents may request"
        allowed = declared_scopes(card) if self._takes_declared else self._named
        disallowed = " ".join(scope for scope in requested if scope not in allowed)
        if disallowed and self._takes_declared:
            return (
                f"the agent's card does not declare {disallowed}, as step_up=True requires; pass "
                "the allowed scopes as step_up="
            )
        if disallowed:
            return f"step_up= does not allow {disallowed}"
        refused = " ".join(scope for scope in requested if (key, scope) in self._refused)
        return f"the authorization server refused {refused} before" if refused else None

    def note_granted(self, key: str, scopes: Iterable[str]) -> None:
        """Note that the authorization server has given a token for more scopes."""
        with self._lock:
            for scope in scopes:
                self._granted[key, scope] = None

    def note_refused(self, key: str, scopes: Iterable[str]) -> None:
        """Note that the authorization server gives no token for more scopes."""
        with self._lock:
            for scope in scopes:
                self._refused[key, scope] = None


def declared_scopes(card: AgentCard | None) -> frozenset[str]:
    """Return the scopes in a card's flows, and in its and its skills' requirements."""
    if card is None:
        return frozenset()
    declared: set[str] = set()
    for scheme in card.security_schemes.values():
        if scheme.oauth2_security_scheme is not None:
            flows = scheme.oauth2_security_scheme.flows
            for name in flows.__struct_fields__:
                flow = getattr(flows, name)
                declared |= set(getattr(flow, "scopes", ()))
    requirements = [*card.security_requirements]
    for skill in card.skills:
        requirements += skill.security_requirements
    for requirement in requirements:
        for scopes in requirement.schemes.values():
            declared |= set(scopes.list)
    return frozenset(declared)
