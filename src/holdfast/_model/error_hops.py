"""The agents on the way to a failure: how they are told, read, and kept few.

In typed details they are members of the `google.rpc.ErrorInfo`, ``hop1`` the nearest; in the older
dialect each error holds the one below it, in ``downstreamError``. Nobody is believed about how
many there are: of more than `MAX_HOPS` the nearest and the last one are kept.
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
"""How many agents of a chain are named."""

LEFT_OUT = "…"
"""What stands for the agents in the middle of a longer one."""

_LONGEST = 200
"""Characters of the name or address of an agent."""


class Link(msgspec.Struct, frozen=True, kw_only=True):
    """What one agent of a chain answered, as the agent before it tells.

    Attributes:
        agent: Its name or address.
        code: The code of its error; None if nobody tells.
        text: What it said, in one line.
        retry_after: Seconds that it asked to wait; None if it did not.
        data: The ``data`` of its error, as received.
    """

    agent: str
    code: int | None = None
    text: str = ""
    retry_after: float | None = None
    data: Any = None


def as_hop(agent: Any) -> str:
    """The name or address of an agent, as it may be told: one short line, and no credentials."""
    told = scrubbed(agent, _LONGEST) if isinstance(agent, str) else ""
    return presentable(told) if "://" in told else told


def bounded_chain(agents: Iterable[str]) -> tuple[str, ...]:
    """The hops of a chain, none of them empty and not too many."""
    hops = tuple(hop for agent in agents if (hop := as_hop(agent)))
    return hops if len(hops) <= MAX_HOPS else (*hops[: MAX_HOPS - 2], LEFT_OUT, hops[-1])


def hops_in(metadata: Mapping[str, str]) -> tuple[str, ...]:
    """The hops that a `google.rpc.ErrorInfo` tells."""
    found: list[str] = []
    while len(found) < MAX_HOPS and (hop := as_hop(metadata.get(f"hop{len(found) + 1}"))):
        found.append(hop)
    return tuple(found)


def links_in(data: Any) -> list[Link]:
    """What the agents of a chain answered, nearest first, from the ``data`` of the first error."""
    links: list[Link] = []
    hints = _object(data)
    while "downstreamAgent" in hints and "downstreamError" in hints and len(links) < MAX_HOPS:
        agent = as_hop(hints["downstreamAgent"])
        members = _object(hints["downstreamError"])
        hints = _object(members.get("data"))
        said = filter(None, (text_of(members.get("message")), text_of(hints.get("detail"))))
        links.append(
            Link(
                agent=agent or "?",
                code=int64(members.get("code")),
                text=": ".join(said),
                retry_after=seconds(hints.get("retryAfter")),
                data=members.get("data"),
            )
        )
    return links


def _object(value: Any) -> dict[str, Any]:
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def repeated_agent(agents: Sequence[str | None]) -> str | None:
    """The first agent that is in a chain more than once; None if there is none."""
    seen: set[str] = set()
    for agent in agents:
        key = (agent or "").rstrip("/")
        if key in seen:
            return agent
        if key and key != LEFT_OUT:
            seen.add(key)
    return None
