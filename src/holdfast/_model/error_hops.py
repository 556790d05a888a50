"""Chains of agents that an error passed: encoding, decoding, bounds.

In typed details the hops are members of the `google.rpc.ErrorInfo`, ``hop1`` the nearest; in the
older dialect each error contains the one below it in ``downstreamError``. Of a chain longer than
`MAX_HOPS` only the nearest agents and the last one are kept.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import msgspec

from holdfast._model.error_scrubbing import scrubbed
from holdfast._model.error_values import int64, presentable, seconds, text_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

__all__ = [
    "LEFT_OUT",
    "MAX_HOPS",
    "Link",
    "as_hop",
    "bounded_chain",
    "hops_in",
    "links_in",
    "repeated_agent",
]

MAX_HOPS = 16
"""Maximum number of agents in a chain."""

LEFT_OUT = "…"
"""Placeholder for the omitted agents of a longer chain."""

_MAX_NAME_CHARACTERS = 200
"""Maximum length of an agent's name or address."""


class Link(msgspec.Struct, frozen=True, kw_only=True):
    """Answer of one agent in a chain, as reported by the agent before it.

    Attributes:
        agent: Name or address of the agent.
        code: Code of its error; None if not reported.
        text: Message of its error, in one line.
        retry_after: Requested delay in seconds; None if there is none.
        data: ``data`` of its error, as received.
    """

    agent: str
    code: int | None = None
    text: str = ""
    retry_after: float | None = None
    data: Any = None


def as_hop(agent: Any) -> str:
    """Return an agent's name or address for an error: one short line, without credentials."""
    name = scrubbed(agent, _MAX_NAME_CHARACTERS) if isinstance(agent, str) else ""
    return presentable(name) if "://" in name else name


def bounded_chain(agents: Iterable[str]) -> tuple[str, ...]:
    """Return the hops of a chain, without empty ones, at most `MAX_HOPS`."""
    hops = tuple(hop for agent in agents if (hop := as_hop(agent)))
    return hops if len(hops) <= MAX_HOPS else (*hops[: MAX_HOPS - 2], LEFT_OUT, hops[-1])


def hops_in(metadata: Mapping[str, str]) -> tuple[str, ...]:
    """Return the hops in the metadata of a `google.rpc.ErrorInfo`."""
    hops: list[str] = []
    while len(hops) < MAX_HOPS and (hop := as_hop(metadata.get(f"hop{len(hops) + 1}"))):
        hops.append(hop)
    return tuple(hops)


def links_in(data: Any) -> list[Link]:
    """Return the answers of a chain's agents, nearest first, from an error's ``data``."""
    links: list[Link] = []
    hints = _object(data)
    while "downstreamAgent" in hints and "downstreamError" in hints and len(links) < MAX_HOPS:
        agent = as_hop(hints["downstreamAgent"])
        members = _object(hints["downstreamError"])
        hints = _object(members.get("data"))
        texts = filter(None, (text_of(members.get("message")), text_of(hints.get("detail"))))
        links.append(
            Link(
                agent=agent or "?",
                code=int64(members.get("code")),
                text=": ".join(texts),
                retry_after=seconds(hints.get("retryAfter")),
                data=members.get("data"),
            )
        )
    return links


def _object(value: Any) -> dict[str, Any]:
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def repeated_agent(agents: Sequence[str | None]) -> str | None:
    """Return the first agent that occurs twice in a chain; None if there is none."""
    names: set[str] = set()
    for agent in agents:
        key = (agent or "").rstrip("/")
        if key in names:
            return agent
        if key and key != LEFT_OUT:
            names.add(key)
    return None
