"""Facts of an error object of JSON-RPC or HTTP+JSON, in either dialect.

Two dialects are decoded: the typed details of A2A 1.0 (a list of `google.rpc` objects), and the
older one, where ``data`` is an object with ``retryable``, ``retryAfter`` and ``detail``; for a
chain of agents also ``downstreamAgent`` and ``downstreamError``. Other members are not inspected,
so their size and depth cost nothing.
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
    """Facts of an error object.

    Attributes:
        code: The JSON-RPC code.
        message: What happened, in one line.
        details: Typed details, as received.
        data: JSON-RPC ``error.data``, as received.
        metadata: Members of A2A's own `google.rpc.ErrorInfo`.
        retryable: The agent's hint whether a retry may succeed; None without a hint.
        retry_after: The agent's hint how many seconds to wait; None without a hint.
        hops: Agents that the error passed, nearest first.
        loop: Agent that occurs twice in the chain; None if there is none.
        in_article_dialect: The code has the meaning of the older dialect.
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
    """Return the beginning of the message of an error that an agent answered with."""
    return f"the agent answered {code}"


def read_error_object(error: object) -> ErrorObject:
    """Decode a JSON-RPC error object (JSON-RPC 2.0, section 5.1; A2A 9.5).

    Raises:
        ValueError: It is not an error object; the text says why, and follows "the error".
    """
    if not isinstance(error, dict):
        text = "is not an object"
        raise ValueError(text)  # noqa: TRY004  sent by an agent, not a caller's mistake
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
    """Combine the members of an error object.

    Args:
        code: The JSON-RPC code.
        text: The agent's message, in one line.
        data: ``error.data``, or its equivalent.
        details: Typed details.
    """
    hints = cast("dict[str, Any]", data) if isinstance(data, dict) else {}
    metadata = metadata_of(details)
    links = hops.links_in(data)
    innermost = links[-1] if links else None
    if innermost is not None:
        # The agents of a chain may use different dialects.
        nested_metadata = metadata_of(objects_in(innermost.data))
        chain = hops.bounded_chain(
            (*(link.agent for link in links), *hops.hops_in(nested_metadata))
        )
        innermost_text = "" if innermost.text in text else innermost.text
        loop = hops.repeated_agent((hops.as_hop(hints.get("currentAgent")), *chain))
    else:
        chain, innermost_text, loop = hops.hops_in(metadata), "", None
    reason = _reason(code, data, details)
    detail = text_of(hints.get("detail"))
    description = ": ".join(
        filter(None, (text, detail, innermost_text, "" if reason in text else reason))
    )
    retry_after = _first(
        seconds(hints.get("retryAfter")),
        _retry_info(details),
        *(link.retry_after for link in links),
    )
    return ErrorObject(
        code=code,
        message=": ".join(filter(None, (answer_prefix(code), description))),
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
    """Return why parameters were rejected, in one line, if only the data say so."""
    if code != _INVALID_PARAMS:
        return ""
    if isinstance(data, dict):
        members = cast("dict[str, Any]", data)
        return next(filter(None, (text_of(members.get(name)) for name in _REASON_MEMBERS)), "")
    reasons = [text_of(data)]
    for detail in details[:_MAX_VIOLATIONS]:
        violations = detail.get("fieldViolations")
        if not isinstance(violations, list):
            reasons.append(_violation(detail.get("loc"), detail.get("msg")))  # from pydantic
            continue
        reasons.extend(
            _violation(violation.get("field"), violation.get("description"))
            for violation in objects_in(violations)[:_MAX_VIOLATIONS]
        )
    return text_of("; ".join(filter(None, reasons)), _MAX_REASON_CHARACTERS)


def _violation(field: object, text: object) -> str:
    """Describe an invalid field; empty if there is no text."""
    if isinstance(field, list):
        steps = cast("list[object]", field)
        field = ".".join(str(step) for step in steps if isinstance(step, str | int))
    description = text_of(text)
    return ": ".join(filter(None, (text_of(field, 100), description))) if description else ""


_INVALID_PARAMS = -32602
_REASON_MEMBERS = ("message", "reason", "error", "description")
"""Members of a data object that may give the reason; ``detail`` is used for every error."""
_MAX_VIOLATIONS = 5
_MAX_REASON_CHARACTERS = 500


def objects_in(value: Any) -> tuple[dict[str, Any], ...]:
    """Return the objects of a list; empty if the value is not a list."""
    if not isinstance(value, list):
        return ()
    items = cast("list[Any]", value)
    return tuple(cast("dict[str, Any]", item) for item in items if isinstance(item, dict))


def is_detail_type(detail: Mapping[str, Any], name: str) -> bool:
    """Return whether a detail is the `google.rpc` object of this name."""
    return text_of(detail.get("@type")).rpartition("/")[2] == f"google.rpc.{name}"


def is_error_info(detail: Mapping[str, Any]) -> bool:
    """Return whether a detail is the `google.rpc.ErrorInfo` of A2A itself."""
    return is_detail_type(detail, "ErrorInfo") and detail.get("domain") == "a2a-protocol.org"


def metadata_of(details: tuple[dict[str, Any], ...]) -> dict[str, str]:
    """Return the text metadata of A2A's own `google.rpc.ErrorInfo`; empty without one."""
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
    """Combine both hints: a boolean in the older dialect, a text in a `google.rpc.ErrorInfo`."""
    return hint if isinstance(hint, bool) else _BOOLEANS.get(member or "")


def _first(*values: float | None) -> float | None:
    return next((value for value in values if value is not None), None)
