"""The name of an agent in a journal: one name for all addresses that are certainly equivalent.

Rules:
- The origin has one spelling, without the default port of its scheme; this machine has one name
  (see `holdfast._wire.origins`).
- The well-known path of the card is not part of the name; nor is a slash at the end.
- A query may hold a key, so it is replaced by a digest in place of the fragment; such a name is
  not used as an address by mistake.
- Replicas have one name, of their sorted names. Two names are of one agent if they have an address
  in common, so that an agent keeps its calls if replicas are added or removed.
"""

from __future__ import annotations

import re
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from holdfast._model.operations import CARD_PATHS
from holdfast._wire.origins import canonical_origin
from holdfast.types import AgentCard

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = [
    "NEXT_ADDRESS",
    "addresses_in",
    "agent_name",
    "is_address",
    "is_same_agent",
    "name_of_replicas",
]

_QUERY_PREFIX = "#query-"

NEXT_ADDRESS = re.compile(r" (?=/|[A-Za-z][A-Za-z0-9+.-]*://|[A-Za-z]:\\)")
"""The space before the next replica in a name; other spaces are part of the name of a file.

PostgreSQL reads this pattern as Python does.
"""

_DEFAULT_PORTS = {"http": ":80", "https": ":443"}


def agent_name(agent: str | Path | AgentCard) -> str:
    """Return the name of an agent in a journal; a name is returned unchanged.

    Args:
        agent: Its address; the file of its card; or the card, whose first interface is used.

    Raises:
        ValueError: The host or port of the address cannot be parsed.
    """
    if isinstance(agent, Path):
        return str(agent.absolute())
    address = agent.supported_interfaces[0].url if isinstance(agent, AgentCard) else agent
    if "://" not in address:
        return address  # the name of a file
    parts = urlsplit(address)
    name = f"{parts.scheme}://{parts.path}"
    if parts.netloc:
        path = parts.path.rstrip("/")
        for card_path in CARD_PATHS:
            path = path.removesuffix(card_path)
        origin = canonical_origin(address)
        name = origin.removesuffix(_DEFAULT_PORTS.get(parts.scheme, "")) + path.rstrip("/")
    if parts.query:
        name += f"{_QUERY_PREFIX}{blake2b(parts.query.encode(), digest_size=8).hexdigest()}"
    return name + (f"#{parts.fragment}" if parts.fragment else "")


def name_of_replicas(agents: Iterable[str | Path | AgentCard]) -> str:
    """Return the name of an agent with one or several replicas, in any order."""
    return " ".join(sorted({agent_name(agent) for agent in agents}))


def addresses_in(name: str) -> list[str]:
    """Return the names of the replicas in an agent's name."""
    return NEXT_ADDRESS.split(name)


def is_same_agent(name: str, other: str) -> bool:
    """Return whether two names of agents, as in `CallRecord.agent`, have an address in common.

    Args:
        name: A name: one address, or those of several replicas, sorted and separated by spaces.
        other: Another name.
    """
    return not set(addresses_in(name)).isdisjoint(addresses_in(other))


def is_address(name: str) -> bool:
    """Return whether an agent's name is an address; with a query it is not."""
    return _QUERY_PREFIX not in name
