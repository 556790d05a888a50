"""Reading replies to requests that somebody else wrote: only what they say about execution.

Whoever wrote the request reads the reply. Here it counts whether the agent may have run it, and
whether to try again, in the terms of `holdfast.wire.status`, whatever the binding was.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from holdfast.errors import LimitExceededError
from holdfast.model import codec
from holdfast.wire import rest, status
from holdfast.wire.limits import check_json_size

if TYPE_CHECKING:
    from holdfast.errors import A2AError
    from holdfast.wire.http import HttpReply
    from holdfast.wire.limits import Limits

__all__ = ["error_in"]

_ANSWERS = ("result", "task", "message", "status")
"""Members of an answer of the protocol, where they hold an object."""


def error_in(
    reply: HttpReply, *, now: float, refusals: frozenset[int], limits: Limits
) -> A2AError:
    """What a reply means that is no success.

    Args:
        reply: Of a status from 400 on.
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
    if isinstance(document, list):  # of a batch
        batch = cast("list[Any]", document)
        spared = frozenset[int]() if any(map(_is_answer, batch)) else refusals
        return status.from_http_status(reply, now=now, refusals=spared)
    members = codec.as_object(document) or {}
    error = members.get("error")
    if "jsonrpc" in members and isinstance(error, dict) and "code" in error:
        return status.from_rpc_error(error, reply, now=now, refusals=refusals)
    spared = frozenset[int]() if _is_answer(members) else refusals
    return rest.read_error(reply, now=now, refusals=spared)


def _is_answer(document: Any) -> bool:
    """Whether an agent must have said this, whatever the status around it."""
    members = codec.as_object(document) or {}
    return "jsonrpc" in members or any(isinstance(members.get(n), dict) for n in _ANSWERS)
