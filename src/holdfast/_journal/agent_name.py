"""What a journal calls an agent: one name for all addresses that are the same for certain.

Rules:
- The origin is in one spelling, without the port that is its scheme's own; this machine has one
  name (see `holdfast._wire.origins`).
- The well-known path of the card says where to look, and not who it is; nor does a slash at the
  end.
- A query may hold a key: a digest stands for it, in the place of a fragment, so that nobody calls
  such a name by mistake.
"""

from __future__ import annotations

from hashlib import blake2b
from pathlib import Path
from urllib.parse import urlsplit

from holdfast._model.operations import WELL_KNOWN
from holdfast._wire.origins import canonical_origin
from holdfast.types import AgentCard

__all__ = ["agent_name", "is_address"]

_QUERY = "#query-"

_OWN_PORT = {"http": ":80", "https": ":443"}


def agent_name(agent: str | Path | AgentCard) -> str:
    """What a journal calls an agent; of a name, that name.

    Args:
        agent: Its address; the file of its card; or the card, whose first interface counts.

    Raises:
        ValueError: Its host or port cannot be read.
    """
    if isinstance(agent, Path):
        return str(agent.absolute())
    address = agent.supported_interfaces[0].url if isinstance(agent, AgentCard) else agent
    if "://" not in address:
        return address  # the name of a file
    parts = urlsplit(address)
    place = f"{parts.scheme}://{parts.path}"
    if parts.netloc:
        path = parts.path.rstrip("/")
        for known in WELL_KNOWN:
            path = path.removesuffix(known)
        origin = canonical_origin(address)
        place = origin.removesuffix(_OWN_PORT.get(parts.scheme, "")) + path.rstrip("/")
    if parts.query:
        place += f"{_QUERY}{blake2b(parts.query.encode(), digest_size=8).hexdigest()}"
    return place + (f"#{parts.fragment}" if parts.fragment else "")


def is_address(name: str) -> bool:
    """Whether what a journal calls an agent leads there: an address with a query is not kept."""
    return _QUERY not in name
