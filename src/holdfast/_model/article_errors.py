"""An older dialect of errors, which agents written after a widely read article speak.

It gives the codes from -32001 to -32008 meanings of its own, and tells in ``error.data`` whether
and when to try again. Its errors are recognised by those members; to a caller each is an
`AgentError` that keeps its code, with `transient` and `retry_after` read from the data. Where that
does not say, RATE_LIMITED, AGENT_UNAVAILABLE and TASK_TIMEOUT may pass, and the others do not.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import Any, cast

from holdfast._model.settings import check_kind

__all__ = [
    "ArticleErrorCode",
    "is_article_code",
    "is_article_data",
    "is_article_error",
    "make_error",
]

_MEMBERS = frozenset({"retryable", "retryAfter", "detail"})


class ArticleErrorCode(IntEnum):
    """The dialect's codes, to compare with ``AgentError.code``."""

    AUTH_REQUIRED = -32001
    TASK_NOT_FOUND = -32002
    INSUFFICIENT_SCOPE = -32003
    RATE_LIMITED = -32004
    AGENT_UNAVAILABLE = -32005
    TASK_TIMEOUT = -32006
    CONTENT_TOO_LARGE = -32007
    SKILL_NOT_FOUND = -32008


_CODES = frozenset(ArticleErrorCode)


def is_article_code(code: int | None) -> bool:
    """Whether the dialect gives a code a meaning of its own."""
    return code in _CODES


def is_article_data(data: Any) -> bool:
    """Whether the ``data`` of an error has the dialect's members."""
    return isinstance(data, dict) and not cast("dict[str, Any]", data).keys().isdisjoint(_MEMBERS)


def is_article_error(code: int, data: Mapping[str, Any]) -> bool:
    """Whether an error with these members is the dialect's and not A2A's own."""
    return is_article_code(code) and is_article_data(data)


def make_error(code: int, message: str, data: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Makes the ``error`` of a JSON-RPC reply (JSON-RPC 2.0, 5.1), for agents.

    Args:
        code: An `ArticleErrorCode`, or any other code.
        message: What went wrong, in one sentence.
        data: JSON members: ``detail`` (text), ``retryable`` (bool), ``retryAfter`` (seconds), and
            whatever else the caller of the agent should know; left out if empty.

    Raises:
        TypeError: An argument of another type.
    """
    check_kind("code", code, int)
    check_kind("message", message, str)
    if data is not None:
        check_kind("data", data, Mapping)
    error: dict[str, Any] = {"code": int(code), "message": message}
    if data:
        error["data"] = dict(data)
    return error
