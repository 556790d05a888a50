"""Replies to requests that a caller encoded itself: only their meaning for retries is read.

The caller decodes the reply. This module decides whether the agent may have executed the request,
and whether to retry, by the rules of `holdfast._wire.status`, for any binding.
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
    """Return the error of an unsuccessful reply.

    Args:
        reply: Reply with an unsuccessful status.
        now: Wall time in seconds since the epoch.
        refusals: Statuses that mean "not executed", unless an agent wrote the body.
        limits: Bound of the JSON that is parsed; a larger body may be an agent's.
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
    effective_refusals = status.refusals_around(document, refusals)
    return rest.read_error(reply, now=now, refusals=effective_refusals)
