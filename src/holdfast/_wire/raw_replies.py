"""Reading replies to requests that somebody else wrote: only what they say about execution.

Whoever wrote the request reads the reply. Here it counts whether the agent may have run it, and
whether to try again, in the terms of `holdfast._wire.status`, whatever the binding was.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast._model import codec
from holdfast._wire import rest, status
from holdfast._wire.limits import check_json_size
from holdfast.errors import LimitExceededError

if TYPE_CHECKING:
    from holdfast._wire.http import HttpReply
    from holdfast._wire.limits import Limits
    from holdfast.errors import A2AError

__all__ = ["read_raw_error"]


def read_raw_error(
    reply: HttpReply, *, now: float, refusals: frozenset[int], limits: Limits
) -> A2AError:
    """What a reply means that is no success.

    Args:
        reply: Of a status that is no success.
        now: Wall time in seconds since the epoch.
        refusals: Statuses that mean "not executed", unless the body is an agent's.
        limits: How much JSON is looked through; what is more may be an agent's.
    """
    try:
        check_json_size(reply.body, limits)
        document = codec.parse(reply.body)
    except LimitExceededError:
        return status.from_http_status(reply, now=now, refusals=frozenset())
    except codec.MalformedError:
        return status.from_http_status(reply, now=now, refusals=refusals)
    members = codec.as_object(document) or {}
    error = members.get("error")
    if "jsonrpc" in members and isinstance(error, dict) and "code" in error:
        return status.from_rpc_error(error, reply, now=now, refusals=refusals)
    around = status.refusals_around(document, refusals)
    return rest.read_error(reply, now=now, refusals=around)
