"""Credentials are bound to the agents that they were given for, as logins are.

Rules:
- Each source binds its own credentials: to the agents that its ``A2ACLI_CREDENTIAL_ORIGIN`` names,
  else to the agent that it names itself. A source that names neither, such as a flag, binds them
  to the agent that the user names, in any of the user's own sources.
- No credential goes to an agent that only a found file names.
- ``--credential-origin`` on the command line adds agents for all credentials.
- A withheld credential is reported, and the command continues without it.
"""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from holdfast._cli.configuration import DEFAULT, FLAG, PREFIX
from holdfast._cli.output.events import Notice
from holdfast._cli.reference import read_reference
from holdfast._cli.sources import beside
from holdfast._cli.values import masked_reference
from holdfast._wire.origins import canonical_origin
from holdfast.errors import A2AError

if TYPE_CHECKING:
    from pathlib import Path

    import click

    from holdfast._cli.configuration import Source
    from holdfast._cli.output.base import Output
    from holdfast._cli.settings import Settings
    from holdfast.types import AgentCard

__all__ = ["bind", "origin_of"]

_CREDENTIALS = (
    "bearer",
    "api_key",
    "svc_param",
    "client_cert",
    "client_key",
    "push_token",
    "push_credentials",
)
"""Options that hold one."""

_ORIGIN = f"{PREFIX}CREDENTIAL_ORIGIN"
_AGENTS = (f"{PREFIX}AGENT_CARD", f"{PREFIX}ENDPOINT")


def bind(
    ctx: click.Context, settings: Settings, reference: str | Path, output: Output
) -> Settings:
    """Take out of the settings the credentials that are not for an agent, and report them.

    Args:
        ctx: The command's context.
        settings: The settings, as they were read.
        reference: Where the agent's card is.
        output: Where it is said what is withheld.

    Returns:
        The settings without what is withheld; `Settings.withheld` has the reasons.
    """
    origin = _origin_of_reference(reference)
    agent = _Agent(settings.agent_card, settings.agent_source, origin)
    withheld: dict[str, str] = {}
    for name in _CREDENTIALS:
        source = settings.sources.get(name)
        if source is None or source is DEFAULT:
            continue
        reason = _reason(ctx, settings, source, agent)
        if reason is not None:
            withheld[name] = f"{settings.named[name]} is not sent: {reason}"
            output.emit(Notice.warning(withheld[name]))
    without_certificate = withheld.keys() & {"client_cert", "client_key"}
    return replace(
        settings,
        bearer=None if "bearer" in withheld else settings.bearer,
        api_key=None if "api_key" in withheld else settings.api_key,
        svc_params={} if "svc_param" in withheld else settings.svc_params,
        client_cert=None if without_certificate else settings.client_cert,
        client_key=None if without_certificate else settings.client_key,
        withheld=withheld,
        bound_to=agent.origin,
        is_credential_origin=any(agent.is_named_by(one) for one in settings.credential_origins),
    )


def origin_of(card: AgentCard) -> str | None:
    """Return the origin that a card from a file stands for: its first interface's."""
    try:
        return canonical_origin(card.supported_interfaces[0].url)
    except (IndexError, ValueError):
        return None


@dataclass(frozen=True)
class _Agent:
    """The agent of a command.

    Attributes:
        text: As it was named.
        source: Where it was named.
        origin: Its origin; None if that is not known.
    """

    text: str
    source: Source
    origin: str | None

    def is_named_by(self, text: str) -> bool:
        """Whether a reference leads here too."""
        if self.source.is_trusted and text.strip() == self.text.strip():
            return True
        try:
            found = read_reference(text)
            return isinstance(found, str) and canonical_origin(found) == self.origin
        except ValueError:
            return False


def _reason(ctx: click.Context, settings: Settings, source: Source, agent: _Agent) -> str | None:
    """Why a credential from a source does not go to an agent; None if it does."""
    if settings.sources["credential_origins"] is FLAG:
        more = settings.credential_origins
        if any(agent.is_named_by(one) for one in more):
            return None
    shown = masked_reference(agent.text)
    origins = beside(ctx, source, _ORIGIN)
    agents = re.split(r"[,\s]+", origins.strip()) if origins else []
    agents = agents or [said for name in _AGENTS if (said := beside(ctx, source, name))]
    if not agents:
        if agent.source.is_trusted:
            return None
        return (
            f"{agent.source.place} names the agent {shown}, but the file may not be yours; if you "
            f"trust the agent: --agent-card {shlex.quote(shown)}"
        )
    if any(agent.is_named_by(one) for one in agents):
        return None
    meant = ", ".join(masked_reference(one) for one in agents)
    return (
        f"it is for {meant}, which is named beside it, and not for {shown}; if it is for both: "
        f"--credential-origin {shlex.quote(agent.origin or shown)}"
    )


def _origin_of_reference(reference: str | Path) -> str | None:
    try:
        if isinstance(reference, str):
            return canonical_origin(reference)
        from holdfast._pipeline.cards.files import read_card_file  # heavy, as the rest is
        from holdfast._wire.limits import Limits

        return origin_of(read_card_file(reference, Limits())[0])
    except (A2AError, ValueError):  # reported where the card is needed
        return None
