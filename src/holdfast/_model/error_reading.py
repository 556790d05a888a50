"""What an error object of JSON-RPC or HTTP+JSON tells, in whichever dialect: facts, no types yet.

Two dialects are read: the typed details of A2A 1.0 (a list of `google.rpc` objects), and the older
one, where ``data`` is an object with ``retryable``, ``retryAfter`` and ``detail``, and of a chain
of agents ``downstreamAgent`` and ``downstreamError``. Whatever nobody needs of an object is not
looked at, however large or deep it is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import msgspec

from holdfast._model import error_hops as hops
from holdfast._model.article_errors import is_article_error
from holdfast._model.error_values import integer, seconds, text_of

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = [
    "ErrorObject",
    "answer_prefix",
    "is_detail_type",
    "is_error_info",
    "make_error_object",
    "metadata_of",
    "objects_in",
    "read_error_object",
]

_BOOLEANS: Mapping[str, bool] = {"true": True, "false": False}


class ErrorObject(msgspec.Struct, frozen=True, kw_only=True):
    """What an error object tells.

    Attributes:
        code: The JSON-RPC code.
        message: What happened, in one line.
        details: Typed details, as received.
        data: JSON-RPC ``error.data``, as received.
        metadata: Members of A2A's own `google.rpc.ErrorInfo`.
        retryable: Whether it may help to try again; None if nobody says.
        retry_after: Seconds to wait before; None if nobody says.
        hops: The agents on the way to the failure, nearest first.
        loop: The agent that is in the chain more than once.
        in_article_dialect: Whether the code means what the older dialect says.
    """

    code: int
    message: str
    details: tuple[dict[str, Any], ...] = ()
    data: Any = None
    metadata: dict[str, str] = {}
    retryable: bool | None = None
    retry_after: float | None = None
    hops: tuple[str, ...] = ()
    loop: str | None = None
    in_article_dialect: bool = False


def answer_prefix(code: int | None) -> str:
    """How the message of an error begins that an agent answered with."""
    return f"the agent answered {code}"


def read_error_object(error: object) -> ErrorObject:
    """Reads a JSON-RPC error object (JSON-RPC 2.0, section 5.1; A2A 9.5).

    Raises:
        ValueError: It is none; the text says why, and follows "the error".
    """
    if not isinstance(error, dict):
        text = "is not an object"
        raise ValueError(text)  # noqa: TRY004  what an agent sent, and not a caller's mistake
    members = cast("dict[str, Any]", error)
    code = integer(members.get("code"))
    if code is None:
        text = "has no integer code"
        raise ValueError(text)
    data = members.get("data")
    return make_error_object(code, text_of(members.get("message")), data, objects_in(data))


def make_error_object(
    code: int, text: str, data: Any, details: tuple[dict[str, Any], ...]
) -> ErrorObject:
    """What the members of an error object tell together.

    Args:
        code: The JSON-RPC code.
        text: What the agent said, in one line.
        data: ``error.data``, or whatever else stands for it.
        details: Typed details.
    """
    hints = cast("dict[str, Any]", data) if isinstance(data, dict) else {}
    metadata = metadata_of(details)
    links = hops.links_in(data)
    innermost = links[-1] if links else None
    if innermost is not None:
        # A chain may change its dialect on the way.
        below = metadata_of(objects_in(innermost.data))
        chain = hops.bounded_chain((*(link.agent for link in links), *hops.hops_in(below)))
        more = "" if innermost.text in text else innermost.text
        loop = hops.repeated_agent((hops.as_hop(hints.get("currentAgent")), *chain))
    else:
        chain, more, loop = hops.hops_in(metadata), "", None
    reason = _reason(code, data, details)
    detail = text_of(hints.get("detail"))
    said = ": ".join(filter(None, (text, detail, more, "" if reason in text else reason)))
    retry_after = _first(
        seconds(hints.get("retryAfter")),
        _retry_info(details),
        *(link.retry_after for link in links),
    )
    return ErrorObject(
        code=code,
        message=": ".join(filter(None, (answer_prefix(code), said))),
        details=details,
        data=data,
        metadata=metadata,
        retryable=_retryable(hints.get("retryable"), metadata.get("retryable")),
        retry_after=retry_after,
        hops=chain,
        loop=hops.as_hop(hints.get("loop", metadata.get("loop")))
        or loop
        or hops.repeated_agent(chain),
        in_article_dialect=is_article_error(code, hints),
    )


def _reason(code: int, data: Any, details: tuple[dict[str, Any], ...]) -> str:
    """Why parameters were refused, as far as only the data say it; in one line."""
    if code != _INVALID_PARAMS:
        return ""
    if isinstance(data, dict):
        members = cast("dict[str, Any]", data)
        return next(filter(None, (text_of(members.get(name)) for name in _REASONS)), "")
    found = [text_of(data)]
    for detail in details[:_MAX_VIOLATIONS]:
        violations = detail.get("fieldViolations")
        if not isinstance(violations, list):
            found.append(_placed(detail.get("loc"), detail.get("msg")))  # of pydantic
            continue
        found.extend(
            _placed(each.get("field"), each.get("description"))
            for each in objects_in(violations)[:_MAX_VIOLATIONS]
        )
    return text_of("; ".join(filter(None, found)), _MAX_REASON)


def _placed(place: object, text: object) -> str:
    """What is wrong, and where; nothing if it does not say what."""
    if isinstance(place, list):
        steps = cast("list[object]", place)
        place = ".".join(str(step) for step in steps if isinstance(step, str | int))
    return ": ".join(filter(None, (text_of(place, 100), said))) if (said := text_of(text)) else ""


_INVALID_PARAMS = -32602
_REASONS = ("message", "reason", "error", "description")
"""Members of an object of data that may say why; ``detail`` is read for every error."""
_MAX_VIOLATIONS = 5
_MAX_REASON = 500


def objects_in(value: Any) -> tuple[dict[str, Any], ...]:
    """The objects of a list of details; none if it is no list."""
    if not isinstance(value, list):
        return ()
    items = cast("list[Any]", value)
    return tuple(cast("dict[str, Any]", item) for item in items if isinstance(item, dict))


def is_detail_type(detail: Mapping[str, Any], name: str) -> bool:
    """Whether a detail is the `google.rpc` object of this name."""
    return text_of(detail.get("@type")).rpartition("/")[2] == f"google.rpc.{name}"


def is_error_info(detail: Mapping[str, Any]) -> bool:
    """Whether a detail is the `google.rpc.ErrorInfo` of A2A itself."""
    return is_detail_type(detail, "ErrorInfo") and detail.get("domain") == "a2a-protocol.org"


def metadata_of(details: tuple[dict[str, Any], ...]) -> dict[str, str]:
    """What the first of them that is A2A's own says besides its reason: texts by name."""
    for detail in details:
        metadata = detail.get("metadata")
        if is_error_info(detail) and isinstance(metadata, dict):
            members = cast("dict[str, Any]", metadata)
            return {name: value for name, value in members.items() if isinstance(value, str)}
    return {}


def _retry_info(details: tuple[dict[str, Any], ...]) -> float | None:
    for detail in details:
        delay = detail.get("retryDelay")
        if is_detail_type(detail, "RetryInfo") and isinstance(delay, str):
            return seconds(delay.removesuffix("s"))
    return None


def _retryable(hint: Any, member: str | None) -> bool | None:
    """A ``google.rpc.ErrorInfo`` holds texts only; in the older dialect a text is none of ours."""
    return hint if isinstance(hint, bool) else _BOOLEANS.get(member or "")


def _first(*values: float | None) -> float | None:
    return next((value for value in values if value is not None), None)
